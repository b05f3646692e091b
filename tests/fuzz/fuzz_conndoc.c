/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as a connector document, from a client and as stored, and as a
 * parameter.  A refusal says something and is UTF-8; what is accepted is
 * written in a form that is accepted again and written the same; what is shown
 * of anything at all is JSON without the secrets.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "arena.h"
#include "buf.h"
#include "conndoc.h"
#include "err.h"
#include "jspan.h"
#include "jwrite.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct span
form_of(const struct conndoc *d, enum conndoc_form form, struct arena *a)
{
	struct buf b = BUF_ZERO;
	struct jwrite w;
	struct span out;

	jwrite_init(&w, &b);
	jwrite_object(&w);
	conndoc_write(d, form, &w);
	jwrite_end(&w);
	out = arena_dup(a, buf_span(&b));
	buf_fini(&b);
	return out;
}

static void
check_refusal(const struct err *e)
{
	if (e->kind != ERR_INPUT || !strstr(e->text, ": ") ||
		!jspan_utf8(span_of(e->text)))
		abort();
}

static void
check_forms(const struct conndoc *d, struct arena *a)
{
	struct span form = form_of(d, CONNDOC_STORED, a);
	struct conndoc *again;
	struct err e = ERR_ZERO;

	if (conndoc_parse_stored(form, a, &again, &e) != 0 ||
		!span_eq(form_of(again, CONNDOC_STORED, a), form))
		abort();
	/* a read that comes back */
	if (conndoc_parse(form_of(d, CONNDOC_SHOWN, a), SPAN_LIT("n"), a,
		    &again, &e) != 0 ||
		again->conn.password_given || again->conn.password_sealed.n)
		abort();
}

static void
check_redacted(struct span s, struct arena *a)
{
	struct buf b = BUF_ZERO;
	struct jwrite w;
	const char *what;
	size_t at;

	jwrite_init(&w, &b);
	jwrite_object(&w);
	conndoc_write_redacted(&w, s, a);
	jwrite_end(&w);
	if (!jspan_valid(buf_span(&b), &what, &at))
		abort();
	buf_fini(&b);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct span s = span_make(data, size);
	struct arena a = ARENA_ZERO;
	struct conndoc_param p;
	struct conndoc *d;
	struct err e = ERR_ZERO;
	const char *why = NULL;

	if (conndoc_parse(s, SPAN_LIT("n"), &a, &d, &e) != 0) {
		check_refusal(&e);
	} else {
		conndoc_wipe(d);
		check_forms(d, &a);
	}
	if (conndoc_parse_stored(s, &a, &d, &e) != 0)
		check_refusal(&e);
	else
		check_forms(d, &a);
	check_redacted(s, &a);
	if (!conndoc_param_parse(s, &a, &p, &why) && !why)
		abort();
	arena_fini(&a);
	return 0;
}

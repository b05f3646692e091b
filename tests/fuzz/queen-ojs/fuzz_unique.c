/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Unique policies and rate limits.  What is accepted becomes JSON; the
 * arguments are the bytes themselves when they are an array.
 */
#include <stdint.h>
#include <stdlib.h>

#include "arena.h"
#include "jspan.h"
#include "unique.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void
check(int rc, struct span out, const struct problem *p)
{
	const char *what;
	size_t at;

	if (rc == 0 ? !jspan_valid(out, &what, &at)
		    : p->status != 400 || !p->message)
		abort();
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct unique_of of = { .type = SPAN_LIT("t"),
		.queue = SPAN_LIT("q"),
		.args = SPAN_LIT("[{\"a\":1,\"b\":[2]}]"),
		.meta = SPAN_LIT("{\"m\":1e400,\"n\":0}") };
	struct span s = span_make(data, size), out = SPAN_ZERO;
	struct arena a = ARENA_ZERO;
	struct problem p;
	struct jspan_val v;
	struct jspan j;
	int rc;

	rc = unique_parse(s, &of, &a, &out, &p);
	check(rc, out, &p);
	rc = rate_parse(s, &a, &out, &p);
	check(rc, out, &p);
	jspan_open(&j, s);
	if (jspan_take(&j, &v) && jspan_end(&j) && v.type == JSPAN_ARRAY) {
		of.args = v.raw;
		rc = unique_parse(SPAN_LIT("{\"args_keys\":[\"a\",\"\"]}"), &of,
			&a, &out, &p);
		check(rc, out, &p);
		rc = unique_parse(SPAN_LIT("{\"args_keys\":[\"a\",\"b\"]}"),
			&of, &a, &out, &p);
		check(rc, out, &p);
	}
	arena_fini(&a);
	return 0;
}

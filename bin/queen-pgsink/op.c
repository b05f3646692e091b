/* SPDX-License-Identifier: Apache-2.0 */
/* Payloads as rows, and rows of one statement. */
#include "op.h"

#include "err.h"
#include "jwrite.h"
#include "op_int.h"

/* ---- metadata ---- */

static struct span
quoted(struct op_make *k, struct span text)
{
	struct buf *b = &k->p->scratch->json;

	buf_reset(b);
	jwrite_quoted(b, text);
	return arena_dup(k->a, buf_span(b));
}

static void
add_metadata(struct op_make *k, uint64_t *set)
{
	for (unsigned m = 0; m < CONNDOC_METAS; m++) {
		bool is_json = m == CONNDOC_META_PARTITION_ID ||
			       m == CONNDOC_META_OFFSET ||
			       m == CONNDOC_META_PAYLOAD;
		struct span text;

		if (k->p->metadata[m] < 0)
			continue;
		text = op_field(k, m);
		op_set(k, set, (size_t)k->p->metadata[m],
			is_json ? text : quoted(k, text));
	}
}

/* ---- append and upsert ---- */

/* Its members, or nothing when it is no object and is kept as a whole. */
static bool
read_payload(struct op_make *k, uint64_t *set)
{
	struct jspan_val v;
	struct jspan j;

	jspan_open(&j, k->m->payload);
	if (jspan_peek(&j) == JSPAN_OBJECT) {
		if (!op_read(k, &j, set, NULL))
			return false;
	} else if (!op_take(&j, &v)) {
		return op_fail_json(k, &j);
	} else if (k->p->metadata[CONNDOC_META_PAYLOAD] < 0) {
		return op_fail(k, "not an object");
	}
	return jspan_end(&j) || op_fail_json(k, &j);
}

static bool
is_empty(const struct op_make *k, const uint64_t *set)
{
	for (size_t w = 0; w < op_words(k->p); w++)
		if (set[w])
			return false;
	return true;
}

static bool
mapped(struct op_make *k, struct op *o)
{
	bool upsert = k->p->doc->mode == CONNDOC_UPSERT;
	uint64_t *set = op_shape(k, o, upsert ? OP_UPSERT : OP_INSERT);

	if (!read_payload(k, set))
		return false;
	add_metadata(k, set);
	if (is_empty(k, set))
		return op_fail(k, "names no column of the table");
	if (!op_whole_key(k, set))
		return false;
	op_params(k, o, 1);
	o->params[0] = op_row(k, set);
	return true;
}

bool
op_of(const struct plan *p, const struct feed_part *part,
	const struct feed_message *m, struct arena *a, struct op *out,
	struct span *why)
{
	struct op_make k = { .p = p, .part = part, .m = m, .a = a };
	bool good = false;

	*out = (struct op){ .kind = OP_INSERT };
	switch (p->doc->mode) {
	case CONNDOC_APPEND:
	case CONNDOC_UPSERT:
		good = mapped(&k, out);
		break;
	case CONNDOC_CDC:
		good = op_event(&k, out);
		break;
	case CONNDOC_SQL:
		good = op_statement(&k, out);
		break;
	}
	*why = k.why;
	return good;
}

/* ---- runs ---- */

size_t
op_run(const struct op *ops, size_t n)
{
	size_t bytes = 0, i;

	if (ops[0].kind != OP_INSERT)
		return 1;
	for (i = 0; i < n; i++) {
		if (!span_eq(ops[i].shape, ops[0].shape))
			break;
		/* a comma or bracket each */
		bytes += ops[i].params[0].n + 1;
		if (i > 0 && bytes > OP_JOIN_MAX_BYTES)
			break;
	}
	return i;
}

void
op_join(const struct op *ops, size_t n, struct buf *out)
{
	for (size_t i = 0; i < n; i++) {
		BUG(ops[i].kind != OP_INSERT);
		buf_putc(out, i ? ',' : '[');
		buf_put_span(out, ops[i].params[0]);
	}
	buf_putc(out, ']');
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A row on its way from a payload to a parameter: which columns it names, as
 * a set of bits, and the characters of each value.
 */
#include <stdarg.h>
#include <string.h>

#include "jwrite.h"
#include "op_int.h"

/* ---- what is wrong ---- */

bool
op_fail(struct op_make *k, const char *fmt, ...)
{
	struct buf b = BUF_ZERO;
	va_list ap;

	va_start(ap, fmt);
	buf_vprintf(&b, fmt, ap);
	va_end(ap);
	if (!k->why.p)
		k->why = arena_dup(k->a, buf_span(&b));
	buf_fini(&b);
	return false;
}

bool
op_fail_json(struct op_make *k, const struct jspan *j)
{
	return op_fail(
		k, "not readable: %s at byte %zu", j->error, j->error_at);
}

/* ---- values ---- */

/* Behind the string that begins at p; NULL when it does not end. */
static const char *
skip_string(const char *p, const char *end)
{
	for (p++; p < end; p++) {
		if (*p == '\\')
			p++;
		else if (*p == '"')
			return p + 1;
	}
	return NULL;
}

/*
 * Only brackets are counted.  That is enough: the server reads the value
 * again, and what is no JSON it refuses wherever it stands.
 */
static const char *
skip_deep(const char *p, const char *end)
{
	size_t depth = 0;

	while (p && p < end) {
		if (*p == '"') {
			p = skip_string(p, end);
			continue;
		}
		if (*p == '{' || *p == '[')
			depth++;
		else if (*p == '}' || *p == ']')
			depth--;
		p++;
		if (depth == 0)
			return p;
	}
	return NULL;
}

bool
op_take(struct jspan *j, struct jspan_val *v)
{
	enum jspan_type type = jspan_peek(j);
	struct jspan was = *j;
	const char *end;

	if (jspan_take(j, v))
		return true;
	if (was.error || !span_is(span_of(j->error), "nested too deep"))
		return false;
	end = skip_deep(was.p, was.end);
	if (!end)
		return false;
	*j = was;
	j->p = end;
	*v = (struct jspan_val){ .type = type,
		.raw = span_make(was.p, (size_t)(end - was.p)) };
	return true;
}

/* ---- sets ---- */

size_t
op_words(const struct plan *p)
{
	return (p->columns_n + 63) / 64;
}

uint64_t *
op_shape(struct op_make *k, struct op *o, enum op_kind kind)
{
	bool bare = kind == OP_DELETE || kind == OP_TRUNCATE ||
		    kind == OP_STATEMENT;
	size_t bytes = (1 + (bare ? 0 : op_words(k->p))) * sizeof(uint64_t);
	uint64_t *shape = arena_zalloc(k->a, bytes);

	shape[0] = kind;
	o->kind = kind;
	o->shape = span_make(shape, bytes);
	return shape + 1;
}

const uint64_t *
op_columns(const struct op *o)
{
	return (const uint64_t *)(const void *)o->shape.p + 1;
}

uint64_t *
op_not_missing(struct op_make *k, const uint64_t *set)
{
	size_t n = op_words(k->p);
	uint64_t *out = arena_alloc(k->a, n * sizeof(*out));

	memset(out, 0xff, n * sizeof(*out));
	for (size_t i = 0; i < k->p->key_n; i++) {
		size_t c = k->p->key[i];

		if (!set || !op_has(set, c))
			out[c / 64] &= ~(UINT64_C(1) << (c % 64));
	}
	return out;
}

void
op_set(struct op_make *k, uint64_t *set, size_t column, struct span json)
{
	set[column / 64] |= UINT64_C(1) << (column % 64);
	k->p->scratch->values[column] = json;
}

bool
op_read(struct op_make *k, struct jspan *j, uint64_t *set, const uint64_t *skip)
{
	struct jspan_val name, v;
	struct span text;

	if (!jspan_enter_object(j))
		return op_fail_json(k, j);
	while (jspan_next_name(j, &name)) {
		int i = jspan_text(&name, k->a, &text) ? plan_column(k->p, text)
						       : -1;

		if (!op_take(j, &v))
			break;
		if (i >= 0 && !k->p->columns[i].generated &&
			!(skip && op_has(skip, (size_t)i)))
			op_set(k, set, (size_t)i, v.raw);
	}
	return !j->error || op_fail_json(k, j);
}

bool
op_whole_key(struct op_make *k, const uint64_t *set)
{
	struct buf b = BUF_ZERO;
	size_t missing = 0;

	for (size_t i = 0; i < k->p->key_n; i++) {
		struct span name = k->p->columns[k->p->key[i]].name;

		if (op_has(set, k->p->key[i]))
			continue;
		buf_puts(&b, missing++ ? ", " : "");
		buf_printf(&b, "\"%.*s\"", SPAN_ARG(name));
	}
	if (missing)
		op_fail(k, "no value for key column%s %.*s",
			missing > 1 ? "s" : "", SPAN_ARG(buf_span(&b)));
	buf_fini(&b);
	return missing == 0;
}

/* ---- the row as JSON ---- */

static void
put_value(struct buf *b, const struct plan_column *c, struct span json)
{
	if (c->verbatim && !span_is(span_trim(json), "null"))
		jwrite_quoted(b, json);
	else
		buf_put_span(b, json);
}

struct span
op_row(struct op_make *k, const uint64_t *set)
{
	const struct plan *p = k->p;
	struct buf *b = &p->scratch->json;
	size_t words = op_words(p);

	buf_reset(b);
	buf_putc(b, '{');
	for (size_t w = 0; w < words; w++)
		for (uint64_t left = set[w]; left; left &= left - 1) {
			size_t i = w * 64 + (size_t)__builtin_ctzll(left);

			if (b->len > 1)
				buf_putc(b, ',');
			buf_put_span(b, p->columns[i].json_key);
			put_value(b, &p->columns[i], p->scratch->values[i]);
		}
	buf_putc(b, '}');
	return arena_dup(k->a, buf_span(b));
}

void
op_params(struct op_make *k, struct op *o, size_t n)
{
	o->params_n = n;
	o->params = arena_zalloc(k->a, n * sizeof(*o->params));
}

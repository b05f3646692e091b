/* SPDX-License-Identifier: Apache-2.0 */
/* Parameters of a sink's statement: a path into the payload, or a field. */
#include <string.h>

#include "arena.h"
#include "conndoc_int.h"
#include "jspan.h"

struct cursor {
	struct span rest;
	struct arena *a;
	struct conndoc_param *out;
	size_t cap;
	const char *why;
};

static struct conndoc_step *
add_step(struct cursor *c)
{
	struct conndoc_param *o = c->out;

	o->steps = arena_grown(
		c->a, o->steps, o->steps_n, &c->cap, sizeof(*o->steps));
	memset(&o->steps[o->steps_n], 0, sizeof(*o->steps));
	return &o->steps[o->steps_n++];
}

static void
skip(struct cursor *c, size_t n)
{
	c->rest = span_make(c->rest.p + n, c->rest.n - n);
}

static bool
fail(struct cursor *c, const char *why)
{
	c->why = why;
	return false;
}

static bool
key_step(struct cursor *c)
{
	size_t n = 0;

	skip(c, 1);
	while (n < c->rest.n && c->rest.p[n] != '.' && c->rest.p[n] != '[')
		n++;
	if (n == 0)
		return fail(c, "has an empty step");
	add_step(c)->key = span_make(c->rest.p, n);
	skip(c, n);
	return true;
}

/* The length of the string literal in front, quotes included; 0 = none. */
static size_t
literal(struct span s)
{
	for (size_t i = 1; i < s.n; i++) {
		if (s.p[i] == '\\')
			i++;
		else if (s.p[i] == '"')
			return i + 1;
	}
	return 0;
}

static bool
string_step(struct cursor *c)
{
	size_t n = literal(c->rest);
	struct jspan_val v;
	struct jspan j;
	struct span key;

	if (n == 0)
		return fail(c, "has a string without end");
	jspan_open(&j, span_make(c->rest.p, n));
	if (!jspan_take(&j, &v) || !jspan_end(&j) ||
		!jspan_text(&v, c->a, &key))
		return fail(c, "has a string that is not JSON");
	add_step(c)->key = key;
	skip(c, n);
	return true;
}

static bool
index_step(struct cursor *c)
{
	struct conndoc_step *s;
	size_t n = 0;
	int64_t i;

	while (n < c->rest.n && c->rest.p[n] >= '0' && c->rest.p[n] <= '9')
		n++;
	if (n == 0 || !span_i64(span_make(c->rest.p, n), &i))
		return fail(c, "has an index that is no number from 0 up");
	s = add_step(c);
	s->is_index = true;
	s->index = i;
	skip(c, n);
	return true;
}

static bool
bracket_step(struct cursor *c)
{
	bool good;

	skip(c, 1);
	good = c->rest.n && c->rest.p[0] == '"' ? string_step(c)
						: index_step(c);
	if (!good)
		return false;
	if (c->rest.n == 0 || c->rest.p[0] != ']')
		return fail(c, "has a bracket without end");
	skip(c, 1);
	return true;
}

static bool
path(struct cursor *c)
{
	skip(c, 1);
	while (c->rest.n) {
		if (c->rest.p[0] == '.' ? !key_step(c)
			: c->rest.p[0] == '['
				? !bracket_step(c)
				: !fail(c,
					  "has no . or [ behind the $ or a step"))
			return false;
	}
	return true;
}

bool
conndoc_param_parse(struct span text, struct arena *a,
	struct conndoc_param *out, const char **why)
{
	struct cursor c = { .rest = text, .a = a, .out = out };

	*out = (struct conndoc_param){ .kind = CONNDOC_PARAM_PATH };
	if (text.n && text.p[0] == '$') {
		bool good = path(&c);

		*why = c.why;
		return good;
	}
	out->kind = CONNDOC_PARAM_META;
	*why = "starts with neither $ nor @";
	if (text.n == 0 || text.p[0] != '@')
		return false;
	*why = "names an unknown field";
	for (unsigned i = 0; i < CONNDOC_META_PAYLOAD; i++)
		if (span_is(span_make(text.p + 1, text.n - 1),
			    conndoc_metas[i])) {
			out->meta = i;
			return true;
		}
	return false;
}

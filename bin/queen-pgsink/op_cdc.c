/* SPDX-License-Identifier: Apache-2.0 */
/* Events of a source as what repeats them on a copy of the table. */
#include <string.h>

#include "op_int.h"

/* Members of the event; what is absent has type JSPAN_NONE. */
struct event {
	struct jspan_val op, key, after, before, unchanged;
};

static bool
read_event(struct op_make *k, struct event *e)
{
	struct {
		const char *name;
		struct jspan_val *v;
	} members[] = { { "op", &e->op }, { "key", &e->key },
		{ "after", &e->after }, { "before", &e->before },
		{ "unchanged", &e->unchanged } };
	struct jspan_val name, v;
	struct jspan j;
	struct span text;

	jspan_open(&j, k->m->payload);
	if (jspan_peek(&j) != JSPAN_OBJECT && !j.error)
		return op_fail(k, "not an object");
	jspan_enter_object(&j);
	while (jspan_next_name(&j, &name) && op_take(&j, &v)) {
		if (!jspan_text(&name, k->a, &text))
			continue;
		for (size_t i = 0; i < sizeof(members) / sizeof(*members); i++)
			if (span_is(text, members[i].name))
				*members[i].v = v;
	}
	return jspan_end(&j) || op_fail_json(k, &j);
}

/* What of an object is not yet in the set of the columns outside skip. */
static bool
read_part(struct op_make *k, const struct jspan_val *object, uint64_t *set,
	const uint64_t *skip)
{
	struct jspan j;

	if (object->type != JSPAN_OBJECT)
		return true;
	jspan_open(&j, object->raw);
	return op_read(k, &j, set, skip);
}

/* The columns that the event does not carry. */
static bool
read_unchanged(struct op_make *k, const struct event *e, uint64_t *skip)
{
	struct jspan_val v;
	struct jspan j;
	struct span text;

	if (e->unchanged.type == JSPAN_NONE || e->unchanged.type == JSPAN_NULL)
		return true;
	if (e->unchanged.type != JSPAN_ARRAY)
		return op_fail(k, "unchanged is not an array");
	jspan_open(&j, e->unchanged.raw);
	jspan_enter_array(&j);
	while (jspan_next_item(&j)) {
		int i;

		if (!op_take(&j, &v))
			break;
		if (v.type != JSPAN_STRING)
			return op_fail(k, "unchanged holds what is no name");
		i = jspan_text(&v, k->a, &text) ? plan_column(k->p, text) : -1;
		if (i >= 0)
			skip[i / 64] |= UINT64_C(1) << (i % 64);
	}
	return !j.error || op_fail_json(k, &j);
}

/* ---- a row that is there now ---- */

/* The values of the key, which the next row read would overwrite. */
static struct span *
save_key(struct op_make *k)
{
	const struct plan *p = k->p;
	struct span *out = arena_alloc(k->a, p->key_n * sizeof(*out));

	for (size_t i = 0; i < p->key_n; i++)
		out[i] = p->scratch->values[p->key[i]];
	return out;
}

/* Before holds another key: the row is to be moved, not put beside the old. */
static bool
move(struct op_make *k, const struct event *e, struct op *o)
{
	const struct plan *p = k->p;
	uint64_t *old = arena_zalloc(k->a, op_words(p) * sizeof(*old));
	struct span *key = save_key(k), row = o->params[0];
	struct op *upsert;
	bool differs = false;

	if (!read_part(k, &e->before, old, op_not_missing(k, NULL)))
		return false;
	for (size_t i = 0; i < p->key_n; i++) {
		if (!op_has(old, p->key[i]))
			return true;
		differs |= !span_eq(key[i], p->scratch->values[p->key[i]]);
	}
	if (!differs)
		return true;
	upsert = arena_alloc(k->a, sizeof(*upsert));
	*upsert = *o;
	memcpy(op_shape(k, o, OP_MOVE), op_columns(upsert),
		op_words(p) * sizeof(uint64_t));
	op_params(k, o, 2);
	o->params[0] = row;
	o->params[1] = op_row(k, old);
	o->otherwise = upsert;
	return true;
}

static bool
put(struct op_make *k, const struct event *e, struct op *o)
{
	uint64_t *set = op_shape(k, o, OP_UPSERT);
	uint64_t *skip = arena_zalloc(k->a, op_words(k->p) * sizeof(*skip));

	if (e->after.type != JSPAN_OBJECT)
		return op_fail(k, "after is not an object");
	if (!read_unchanged(k, e, skip) ||
		!read_part(k, &e->after, set, skip) ||
		!read_part(k, &e->key, set, op_not_missing(k, set)) ||
		!op_whole_key(k, set))
		return false;
	op_params(k, o, 1);
	o->params[0] = op_row(k, set);
	return true;
}

/* ---- a row that is gone ---- */

static bool
gone(struct op_make *k, const struct event *e, struct op *o)
{
	uint64_t *key = arena_zalloc(k->a, op_words(k->p) * sizeof(*key));

	op_shape(k, o, OP_DELETE);
	if (!read_part(k, &e->key, key, op_not_missing(k, NULL)) ||
		!read_part(k, &e->before, key, op_not_missing(k, key)) ||
		!op_whole_key(k, key))
		return false;
	op_params(k, o, 1);
	o->params[0] = op_row(k, key);
	return true;
}

bool
op_event(struct op_make *k, struct op *o)
{
	struct event e;
	struct span op;

	memset(&e, 0, sizeof(e));
	if (!read_event(k, &e))
		return false;
	if (!jspan_text(&e.op, k->a, &op) || op.n != 1)
		return op_fail(k, "op is none of c, r, u, d, t");
	switch (*op.p) {
	case 'c':
	case 'r':
		return put(k, &e, o);
	case 'u':
		return put(k, &e, o) && move(k, &e, o);
	case 'd':
		return gone(k, &e, o);
	case 't':
		op_shape(k, o, OP_TRUNCATE);
		return true;
	default:
		return op_fail(k, "op is none of c, r, u, d, t");
	}
}

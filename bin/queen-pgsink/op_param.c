/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Parameters of a sink's own statement.  All paths are followed in one walk
 * over the payload, however many they are.
 */
#include "clk.h"
#include "op_int.h"

struct walk {
	struct op_make *k;
	struct span *params;
};

static bool walk(struct walk *w, struct jspan *j, const struct plan_path *at);

/* A key comes again: what the one before it gave is void. */
static void
forget(struct walk *w, const struct plan_path *at)
{
	for (size_t i = 0; i < at->params_n; i++)
		w->params[at->params[i]] = span_make(NULL, 0);
	for (size_t i = 0; i < at->below_n; i++)
		forget(w, at->below[i]);
}

static bool
walk_object(struct walk *w, struct jspan *j, const struct plan_path *at)
{
	struct jspan_val name, v;
	struct span text;

	jspan_enter_object(j);
	while (jspan_next_name(j, &name)) {
		const struct plan_path *next = NULL;
		bool readable = jspan_text(&name, w->k->a, &text);

		for (size_t i = 0; readable && !next && i < at->below_n; i++)
			if (!at->below[i]->step->is_index &&
				span_eq(at->below[i]->step->key, text))
				next = at->below[i];
		if (next)
			forget(w, next);
		if (!(next ? walk(w, j, next) : op_take(j, &v)))
			return false;
	}
	return !j->error;
}

static bool
walk_array(struct walk *w, struct jspan *j, const struct plan_path *at)
{
	struct jspan_val v;

	jspan_enter_array(j);
	for (int64_t n = 0; jspan_next_item(j); n++) {
		const struct plan_path *next = NULL;

		for (size_t i = 0; !next && i < at->below_n; i++)
			if (at->below[i]->step->is_index &&
				at->below[i]->step->index == n)
				next = at->below[i];
		if (!(next ? walk(w, j, next) : op_take(j, &v)))
			return false;
	}
	return !j->error;
}

/* What the paths that end here get. */
static bool
give(struct walk *w, const struct plan_path *at, const struct jspan_val *v)
{
	struct span text = v->raw;

	if (at->params_n == 0 || v->type == JSPAN_NULL)
		return true;
	if (v->type == JSPAN_STRING && !jspan_text(v, w->k->a, &text))
		return op_fail(
			w->k, "not readable: lone surrogate in a string");
	for (size_t i = 0; i < at->params_n; i++)
		w->params[at->params[i]] = text;
	return true;
}

/* As deep as the longest path, and as the scanner follows. */
static bool
walk(struct walk *w, struct jspan *j, const struct plan_path *at)
{
	struct jspan_val v = { .type = jspan_peek(j) };
	const char *from = j->p;

	if (v.type == JSPAN_OBJECT && at->below_n) {
		if (!walk_object(w, j, at))
			return false;
	} else if (v.type == JSPAN_ARRAY && at->below_n) {
		if (!walk_array(w, j, at))
			return false;
	} else if (!op_take(j, &v)) {
		return false;
	}
	v.raw = span_make(from, (size_t)(j->p - from));
	return give(w, at, &v);
}

struct span
op_field(struct op_make *k, enum conndoc_meta m)
{
	char at[CLK_ISO_MAX];

	switch (m) {
	case CONNDOC_META_PARTITION:
		return k->part->name;
	case CONNDOC_META_PARTITION_ID:
		return arena_printf(k->a, "%lld", (long long)k->part->id);
	case CONNDOC_META_OFFSET:
		return arena_printf(k->a, "%lld", (long long)k->m->offset);
	case CONNDOC_META_TXN:
		return k->m->txn;
	case CONNDOC_META_CREATED_AT:
		clk_iso_us(k->m->created_at_us, at);
		return arena_dup(k->a, span_of(at));
	case CONNDOC_META_PAYLOAD:
	case CONNDOC_METAS:
		break;
	}
	return k->m->payload;
}

bool
op_statement(struct op_make *k, struct op *o)
{
	const struct plan *p = k->p;
	struct walk w = { .k = k };
	struct jspan j;

	op_shape(k, o, OP_STATEMENT);
	op_params(k, o, p->params_n);
	w.params = o->params;
	jspan_open(&j, k->m->payload);
	if (!walk(&w, &j, &p->paths) || !jspan_end(&j))
		return j.error ? op_fail_json(k, &j) : false;
	for (size_t i = 0; i < p->params_n; i++)
		if (p->params[i].kind == CONNDOC_PARAM_META)
			o->params[i] = op_field(k, p->params[i].meta);
	return true;
}

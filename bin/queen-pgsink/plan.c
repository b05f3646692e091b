/* SPDX-License-Identifier: Apache-2.0 */
/* A plan is made whole or not at all; then nothing of it changes. */
#include "plan.h"

#include <string.h>

#include "connfault.h"
#include "jwrite.h"
#include "pgquote.h"

enum { OUTGROWN_FROM_BYTES = 1 << 20 };

static bool
is_named(const void *item, const void *key)
{
	const struct plan_column *c = item;

	return span_eq(c->name, *(const struct span *)key);
}

int
plan_column(const struct plan *p, struct span name)
{
	const struct plan_column *c =
		map_get(&p->by_name, map_hash_span(name), is_named, &name);

	return c ? (int)(c - p->columns) : -1;
}

static struct span
json_key(struct plan *p, struct span name)
{
	struct buf *b = &p->scratch->json;

	buf_reset(b);
	jwrite_quoted(b, name);
	buf_putc(b, ':');
	return arena_dup(&p->arena, buf_span(b));
}

static void
take_columns(struct plan *p, const struct plan_facts *facts)
{
	struct arena *a = &p->arena;

	p->columns_n = facts->columns_n;
	p->columns = arena_zalloc(a, p->columns_n * sizeof(*p->columns));
	p->scratch->values =
		arena_alloc(a, p->columns_n * sizeof(*p->scratch->values));
	for (size_t i = 0; i < p->columns_n; i++) {
		const struct plan_column *from = &facts->columns[i];
		struct plan_column *c = &p->columns[i];

		c->name = arena_dup(a, from->name);
		c->type = arena_dup(a, from->type);
		c->generated = from->generated;
		c->identity_always = from->identity_always;
		/* spacing, repeated keys and escapes are part of its value */
		c->verbatim = span_is(c->type, "json");
		c->json_key = json_key(p, c->name);
		map_put(&p->by_name, map_hash_span(c->name), c);
	}
}

/* ---- the key ---- */

static int
add_key(struct plan *p, struct span name, struct connfault *f)
{
	struct span table = p->doc->table.text;
	int i = plan_column(p, name);

	if (i < 0)
		return connfault_set(f, "no_key", false,
			"table %.*s has no column \"%.*s\", which sink.key "
			"names; name columns of the table",
			SPAN_ARG(table), SPAN_ARG(name));
	if (p->columns[i].generated)
		return connfault_set(f, "no_key", false,
			"column \"%.*s\" of table %.*s is generated and cannot "
			"be part of sink.key; name other columns",
			SPAN_ARG(name), SPAN_ARG(table));
	p->columns[i].is_key = true;
	p->key_is_identity |= p->columns[i].identity_always;
	p->key[p->key_n++] = (size_t)i;
	return 0;
}

static int
take_key(struct plan *p, const struct plan_facts *facts, struct connfault *f)
{
	const struct conndoc_list *given = &p->doc->key;
	const struct span *names = given->n ? given->p : facts->key;
	size_t n = given->n ? given->n : facts->key_n;

	if (p->doc->mode != CONNDOC_UPSERT && p->doc->mode != CONNDOC_CDC)
		return 0;
	if (n == 0)
		return connfault_set(f, "no_key", false,
			"table %.*s has neither a primary key nor a replica "
			"identity index; add a primary key, or set sink.key "
			"to columns with a unique index",
			SPAN_ARG(p->doc->table.text));
	p->key = arena_alloc(&p->arena, n * sizeof(*p->key));
	for (size_t i = 0; i < n; i++)
		if (add_key(p, names[i], f) != 0)
			return -1;
	return 0;
}

/* ---- metadata ---- */

/* A column that holds any JSON text as it is. */
static bool
is_text(struct span type)
{
	static const char varying[] = "character varying";
	size_t n = sizeof(varying) - 1;

	return span_is(type, "text") ||
	       (type.n >= n && memcmp(type.p, varying, n) == 0);
}

static int
take_metadata(struct plan *p, struct connfault *f)
{
	struct span table = p->doc->table.text;

	for (int m = 0; m < CONNDOC_METAS; m++) {
		struct span name = p->doc->metadata[m];
		int i = name.n ? plan_column(p, name) : -1;

		p->metadata[m] = i;
		if (name.n == 0)
			continue;
		if (i < 0 || p->columns[i].generated)
			return connfault_set(f, "metadata_column", false,
				"sink.metadata names column \"%.*s\", which %s "
				"table %.*s; name columns that can be written",
				SPAN_ARG(name),
				i < 0 ? "is not in" : "is generated in",
				SPAN_ARG(table));
		for (int k = 0; k < m; k++)
			if (p->metadata[k] == i)
				return connfault_set(f, "metadata_column",
					false,
					"sink.metadata names column \"%.*s\" "
					"twice; name each once",
					SPAN_ARG(name));
		if (m == CONNDOC_META_PAYLOAD && is_text(p->columns[i].type))
			p->columns[i].verbatim = true;
	}
	return 0;
}

/* ---- parameters ---- */

static bool
same_step(const struct conndoc_step *a, const struct conndoc_step *b)
{
	return a->is_index == b->is_index &&
	       (a->is_index ? a->index == b->index : span_eq(a->key, b->key));
}

static struct plan_path *
below(struct plan *p, struct plan_path *at, const struct conndoc_step *step)
{
	struct plan_path *new;

	for (size_t i = 0; i < at->below_n; i++)
		if (same_step(at->below[i]->step, step))
			return at->below[i];
	new = arena_zalloc(&p->arena, sizeof(*new));
	new->step = step;
	at->below = arena_grown(&p->arena, at->below, at->below_n,
		&at->below_cap, sizeof(struct plan_path *));
	at->below[at->below_n++] = new;
	return new;
}

static void
add_path(struct plan *p, size_t param)
{
	const struct conndoc_param *c = &p->params[param];
	struct plan_path *at = &p->paths;

	for (size_t i = 0; i < c->steps_n; i++)
		at = below(p, at, &c->steps[i]);
	at->params = arena_grown(&p->arena, at->params, at->params_n,
		&at->params_cap, sizeof(*at->params));
	at->params[at->params_n++] = param;
}

static int
take_params(struct plan *p, struct connfault *f)
{
	const struct conndoc_list *l = &p->doc->params;
	const char *why;

	if (p->doc->mode != CONNDOC_SQL)
		return 0;
	if (l->n > PLAN_PARAMS_MAX)
		return connfault_set(f, "statement", false,
			"sink.params has %zu entries; at most %d are possible",
			l->n, PLAN_PARAMS_MAX);
	p->params_n = l->n;
	p->params = arena_zalloc(&p->arena, l->n * sizeof(*p->params));
	for (size_t i = 0; i < l->n; i++) {
		if (!conndoc_param_parse(
			    l->p[i], &p->arena, &p->params[i], &why))
			return connfault_set(f, "statement", false,
				"sink.params[%zu] %s", i, why);
		if (p->params[i].kind == CONNDOC_PARAM_PATH)
			add_path(p, i);
	}
	return 0;
}

/* ---- the whole ---- */

int
plan_make(const struct conndoc_sink *doc, const struct plan_facts *facts,
	struct plan **out, struct connfault *f)
{
	struct arena a = ARENA_ZERO;
	struct plan *p = arena_zalloc(&a, sizeof(*p));

	p->arena = a;
	p->doc = doc;
	p->oid = facts->oid;
	p->size_bytes = facts->size_bytes;
	p->scratch = arena_zalloc(&p->arena, sizeof(*p->scratch));
	take_columns(p, facts);
	if (take_key(p, facts, f) != 0 || take_metadata(p, f) != 0 ||
		take_params(p, f) != 0) {
		plan_free(p);
		*out = NULL;
		return -1;
	}
	*out = p;
	return 0;
}

void
plan_free(struct plan *p)
{
	struct arena a;

	if (!p)
		return;
	map_fini(&p->by_name);
	buf_fini(&p->scratch->json);
	a = p->arena;
	arena_fini(&a);
}

bool
plan_same(const struct plan *a, const struct plan *b)
{
	if (a->oid != b->oid || a->columns_n != b->columns_n ||
		a->key_n != b->key_n)
		return false;
	for (size_t i = 0; i < a->columns_n; i++) {
		const struct plan_column *x = &a->columns[i],
					 *y = &b->columns[i];

		if (!span_eq(x->name, y->name) || !span_eq(x->type, y->type) ||
			x->generated != y->generated ||
			x->identity_always != y->identity_always ||
			x->verbatim != y->verbatim)
			return false;
	}
	return a->key_n == 0 ||
	       memcmp(a->key, b->key, a->key_n * sizeof(*a->key)) == 0;
}

bool
plan_outgrown(const struct plan *old, const struct plan *now)
{
	return now->size_bytes > 2 * old->size_bytes + OUTGROWN_FROM_BYTES;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table's facts, in one flight.  Only ordinary and partitioned tables of
 * exactly that name count: a view or a foreign table cannot promise what the
 * progress rows rely on.
 */
#include "facts.h"

#include "conndoc.h"
#include "pglink.h"
#include "pgtext.h"

#define TABLE                                                                  \
	"(select c.oid from pg_catalog.pg_class c"                             \
	" join pg_catalog.pg_namespace n on n.oid = c.relnamespace"            \
	" where n.nspname = $1 and c.relname = $2"                             \
	" and c.relkind in ('r', 'p'))"

static const char oid_sql[] =
	"select t.oid, coalesce((select pg_catalog.sum("
	"pg_catalog.pg_relation_size(p.relid))::pg_catalog.int8"
	" from pg_catalog.pg_partition_tree(t.oid) p),"
	" pg_catalog.pg_relation_size(t.oid))"
	" from (select " TABLE " as oid) t";
static const char columns_sql[] =
	"select a.attname, pg_catalog.format_type(a.atttypid, a.atttypmod),"
	" a.attgenerated <> '', a.attidentity = 'a'"
	" from pg_catalog.pg_attribute a where a.attrelid = " TABLE
	" and a.attnum > 0 and not a.attisdropped order by a.attnum";
static const char key_sql[] =
	"select a.attname from pg_catalog.pg_index i"
	" cross join lateral pg_catalog.unnest(i.indkey::pg_catalog.int2[])"
	" with ordinality k(attnum, ord)"
	" join pg_catalog.pg_attribute a"
	" on a.attrelid = i.indrelid and a.attnum = k.attnum"
	" where k.ord <= i.indnkeyatts and i.indexrelid = ("
	"select x.indexrelid from pg_catalog.pg_index x"
	" where x.indrelid = " TABLE " and x.indisvalid"
	" and (x.indisprimary or x.indisreplident)"
	" order by x.indisprimary desc limit 1) order by k.ord";

void
facts_init(
	struct facts *f, const struct conndoc_sink *doc, facts_fn fn, void *arg)
{
	*f = (struct facts){ .doc = doc, .fn = fn, .arg = arg };
}

void
facts_fini(struct facts *f)
{
	arena_fini(&f->arena);
}

/* The first failure counts; what it took along says nothing. */
static bool
failed(struct facts *f, const struct connfault *why)
{
	if (why && why->code && !f->fault.code)
		f->fault = *why;
	return why != NULL;
}

static void
on_oid(void *arg, PGresult *const *res, int n, const struct connfault *why)
{
	struct facts *f = arg;

	(void)n;
	if (failed(f, why))
		return;
	f->found.oid = (uint32_t)pgtext_i64(res[0], 0, 0);
	f->found.size_bytes = pgtext_i64(res[0], 0, 1);
}

static void
on_columns(void *arg, PGresult *const *res, int n, const struct connfault *why)
{
	struct facts *f = arg;
	struct plan_column *c;

	(void)n;
	if (failed(f, why))
		return;
	f->found.columns_n = (size_t)PQntuples(res[0]);
	c = arena_zalloc(&f->arena, (f->found.columns_n + 1) * sizeof(*c));
	for (int i = 0; i < PQntuples(res[0]); i++) {
		c[i].name = pgtext_dup(res[0], i, 0, &f->arena);
		c[i].type = pgtext_dup(res[0], i, 1, &f->arena);
		c[i].generated = pgtext_bool(res[0], i, 2);
		c[i].identity_always = pgtext_bool(res[0], i, 3);
	}
	f->found.columns = c;
}

static void
finish(struct facts *f)
{
	struct connfault fault = f->fault;
	struct plan *plan = NULL;
	const struct conndoc_name *t = &f->doc->table;

	if (!fault.code && f->found.oid == 0)
		connfault_set(&fault, "table_missing", false,
			"the target has no table \"%.*s\".\"%.*s\" (ordinary "
			"or partitioned, the name in exactly these letters): "
			"create it, or mend sink.table",
			SPAN_ARG(t->schema), SPAN_ARG(t->name));
	else if (!fault.code &&
		 plan_make(f->doc, &f->found, &plan, &fault) != 0)
		plan = NULL;
	arena_reset(&f->arena);
	f->fn(f->arg, plan, plan ? NULL : &fault);
}

static void
on_key(void *arg, PGresult *const *res, int n, const struct connfault *why)
{
	struct facts *f = arg;

	(void)n;
	if (!failed(f, why)) {
		struct span *key;

		f->found.key_n = (size_t)PQntuples(res[0]);
		key = arena_alloc(
			&f->arena, (f->found.key_n + 1) * sizeof(*key));
		for (int i = 0; i < PQntuples(res[0]); i++)
			key[i] = pgtext_dup(res[0], i, 0, &f->arena);
		f->found.key = key;
	}
	finish(f);
}

void
facts_read(struct facts *f, struct pglink *k)
{
	struct pglink_param table[2] = { { f->doc->table.schema },
		{ f->doc->table.name } };

	f->found = (struct plan_facts){ .oid = 0 };
	f->fault.code = NULL;
	pglink_exec(k, NULL, oid_sql, table, 2, on_oid, f);
	pglink_exec(k, NULL, columns_sql, table, 2, on_columns, f);
	pglink_exec(k, NULL, key_sql, table, 2, on_key, f);
	pglink_sync(k);
}

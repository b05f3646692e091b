/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The steps of setup, in the order an operator would mend what they find.  A
 * step either goes on to the next or ends it all with a fault.
 */
#include "setup.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arena.h"
#include "buf.h"
#include "conndoc.h"
#include "connchild.h"
#include "connfault.h"
#include "ctx.h"
#include "err.h"
#include "facts.h"
#include "loop.h"
#include "op.h"
#include "pglink.h"
#include "pgquote.h"
#include "plan.h"
#include "progress.h"
#include "session.h"
#include "takeover.h"

struct setup {
	struct ctx *x;
	const struct conndoc_sink *doc;
	setup_fn fn;
	void *arg;
	struct session session;
	struct facts facts;
	struct plan *plan;
	struct takeover *takeover;
	struct loop_timer done;
	struct connfault fault;
	bool over; /* done will tell, or told */
	/* the progress table */
	struct arena arena;
	struct progress_column *columns;
	size_t columns_n;
	bool created; /* tried to */
	bool looked_again;
	struct connfault create_fault;
};

static void
on_done(void *arg)
{
	struct setup *s = arg;

	s->fn(s->arg, s->fault.code ? &s->fault : NULL);
}

static void
finish(struct setup *s)
{
	if (s->over)
		return;
	s->over = true;
	loop_timer_start(&s->done, 0);
}

static void
fail(struct setup *s, const struct connfault *why)
{
	if (s->over)
		return;
	s->fault = *why;
	finish(s);
}

/* ---- the end: rows of another cell ---- */

static void
on_takeover(void *arg, const struct connfault *why)
{
	struct setup *s = arg;

	if (why)
		fail(s, why);
	else
		finish(s);
}

static void
take_over(struct setup *s)
{
	s->takeover = takeover_new(s->x, s->session.link, on_takeover, s);
}

/* ---- statement: does it take as many parameters as there are? ---- */

static int
refuse_count(struct setup *s, const char *what)
{
	return connfault_set(&s->fault, "statement", false,
		"sink.statement uses %s parameters than the %zu of "
		"sink.params: give each $n its entry",
		what, s->plan->params_n);
}

static void
describe(struct setup *s, size_t n, pglink_fn fn)
{
	pglink_describe(s->session.link,
		arena_cstr(&s->arena, s->doc->statement), (int)n, fn, s);
	pglink_sync(s->session.link);
}

static void
on_fewer(void *arg, PGresult *const *res, int n, const struct connfault *why)
{
	struct setup *s = arg;

	(void)n;
	if (why && why->retryable) {
		fail(s, why);
		return;
	}
	/* that it does not prepare without a type for the last one is use */
	if (!why && PQnparams(res[0]) < (int)s->plan->params_n) {
		refuse_count(s, "fewer");
		finish(s);
		return;
	}
	take_over(s);
}

static void
on_described(
	void *arg, PGresult *const *res, int n, const struct connfault *why)
{
	struct setup *s = arg;
	size_t have = s->plan->params_n;
	struct connfault f;

	(void)n;
	if (why && why->retryable) {
		fail(s, why);
	} else if (why) {
		connfault_set(&f, "statement", false,
			"sink.statement does not prepare: %s", why->text);
		fail(s, &f);
	} else if (PQnparams(res[0]) > (int)have) {
		refuse_count(s, "more");
		finish(s);
	} else if (have == 0) {
		take_over(s);
	} else {
		describe(s, have - 1, on_fewer);
	}
}

/* ---- a unique index on exactly the key ---- */

static void
refuse_key(struct setup *s)
{
	struct buf key = BUF_ZERO;

	for (size_t i = 0; i < s->plan->key_n; i++) {
		if (i)
			buf_puts(&key, ", ");
		pgquote_ident(&key, s->plan->columns[s->plan->key[i]].name);
	}
	connfault_set(&s->fault, "no_key", false,
		"no unique index of %.*s that is not deferrable is on exactly "
		"(%.*s): run "
		"CREATE UNIQUE INDEX ON %.*s (%.*s), or name the columns of "
		"one that is in sink.key",
		SPAN_ARG(s->doc->table.text), (int)key.len, key.p,
		SPAN_ARG(s->doc->table.text), (int)key.len, key.p);
	buf_fini(&key);
}

static void
on_index(void *arg, PGresult *const *res, int n, const struct connfault *why)
{
	struct setup *s = arg;

	(void)n;
	if (why) {
		fail(s, why);
	} else if (*PQgetvalue(res[0], 0, 0) != 't') {
		refuse_key(s);
		finish(s);
	} else {
		take_over(s);
	}
}

/* The planner takes a deferrable one, the executor then refuses each row. */
static void
check_index(struct setup *s)
{
	const struct plan *p = s->plan;
	struct buf oid = BUF_ZERO, key = BUF_ZERO;
	struct pglink_param params[2];

	buf_printf(&oid, "%u", p->oid);
	progress_array_open(&key);
	for (size_t i = 0; i < p->key_n; i++)
		progress_array_text(&key, p->columns[p->key[i]].name);
	progress_array_close(&key);
	params[0].text = buf_span(&oid);
	params[1].text = buf_span(&key);
	pglink_exec(s->session.link, NULL,
		"SELECT EXISTS (SELECT FROM pg_catalog.pg_index i"
		" WHERE i.indrelid = $1::oid AND i.indisunique"
		" AND i.indimmediate AND i.indisvalid AND i.indpred IS NULL"
		" AND i.indexprs IS NULL"
		" AND i.indnkeyatts = cardinality($2::text[])"
		" AND i.indnkeyatts = (SELECT count(*)"
		" FROM pg_catalog.pg_attribute a WHERE a.attrelid = i.indrelid"
		" AND a.attnum = ANY ((i.indkey::int2[])[0:i.indnkeyatts - 1])"
		" AND a.attname = ANY ($2::text[])))",
		params, 2, on_index, s);
	pglink_sync(s->session.link);
	buf_fini(&oid);
	buf_fini(&key);
}

static void
on_probe(void *arg, PGresult *const *res, int n, const struct connfault *why)
{
	struct setup *s = arg;

	(void)res;
	(void)n;
	if (connfault_is(why, "42P10")) {
		refuse_key(s);
		finish(s);
	} else if (why) {
		fail(s, why);
	} else {
		check_index(s);
	}
}

/* It would take the messages out of the transaction of their progress. */
static bool
ends_transactions(struct span sql)
{
	static const char *const words[] = { "abort", "begin", "commit", "end",
		"prepare", "release", "rollback", "savepoint", "start" };
	struct span s = span_trim(sql);
	size_t n = 0;

	while (n < s.n && (s.p[n] | 32) >= 'a' && (s.p[n] | 32) <= 'z')
		n++;
	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
		if (strlen(words[i]) == n && strncasecmp(s.p, words[i], n) == 0)
			return true;
	return false;
}

static void
check_mode(struct setup *s)
{
	struct buf sql = BUF_ZERO;

	if (s->doc->mode == CONNDOC_SQL &&
		ends_transactions(s->doc->statement)) {
		connfault_set(&s->fault, "statement", false,
			"sink.statement must not begin or end transactions: "
			"it runs within the one of its progress");
		finish(s);
	} else if (s->doc->mode == CONNDOC_SQL) {
		describe(s, s->plan->params_n, on_described);
	} else if (s->doc->mode != CONNDOC_APPEND) {
		op_sql_probe(s->plan, &sql);
		buf_putc(&sql, '\0');
		pglink_exec(s->session.link, NULL, sql.p, NULL, 0, on_probe, s);
		pglink_sync(s->session.link);
	} else {
		take_over(s);
	}
	buf_fini(&sql);
}

/* ---- the progress table ---- */

static void look(struct setup *s);

static void
run(struct setup *s, enum progress_sql which, pglink_fn fn)
{
	struct buf sql = BUF_ZERO;

	progress_sql(&s->doc->progress_table, which, &sql);
	buf_putc(&sql, '\0');
	pglink_exec(s->session.link, NULL, sql.p, NULL, 0, fn, s);
	buf_fini(&sql);
}

static void
on_schema(void *arg, PGresult *const *res, int n, const struct connfault *why)
{
	struct setup *s = arg;

	(void)res;
	(void)n;
	if (why)
		s->create_fault = *why;
}

/* Whoever made it, what counts is what is there afterwards. */
static void
on_created(void *arg, PGresult *const *res, int n, const struct connfault *why)
{
	struct setup *s = arg;

	(void)res;
	(void)n;
	if (why && why->retryable) {
		fail(s, why);
		return;
	}
	/* 3F000: no schema, and why there is none was told before */
	if (why && !connfault_is(why, "3F000"))
		s->create_fault = *why;
	look(s);
}

static void
create(struct setup *s)
{
	s->created = true;
	/* asks for CREATE on the database even where the schema exists */
	run(s, PROGRESS_SCHEMA, on_schema);
	pglink_sync(s->session.link);
	run(s, PROGRESS_TABLE, on_created);
	pglink_sync(s->session.link);
}

static void
missing(struct setup *s)
{
	char why[CONNFAULT_TEXT_MAX];

	if (s->doc->create_progress_table && !s->created) {
		create(s);
		return;
	}
	if (s->create_fault.code)
		snprintf(why, sizeof(why), "cannot be created (%.300s)",
			s->create_fault.text);
	else
		snprintf(why, sizeof(why),
			"does not exist and "
			"sink.createProgressTable is false");
	progress_refuse(&s->doc->progress_table, &s->fault, why);
	finish(s);
}

/* True when one of the rights is missing. */
static bool
lacks_rights(struct setup *s, const PGresult *facts)
{
	static const char *const rights[] = { "SELECT", "INSERT", "UPDATE" };
	struct buf b = BUF_ZERO, table = BUF_ZERO;

	for (int i = 0; i < 3; i++)
		if (*PQgetvalue(facts, 0, 2 + i) != 't')
			buf_printf(&b, "%s%s", b.len ? ", " : "", rights[i]);
	if (b.len == 0)
		return false;
	pgquote_table(&table, s->doc->progress_table.schema,
		s->doc->progress_table.name);
	buf_puts(&table, " TO ");
	pgquote_ident(&table, s->x->task->doc->conn.user);
	connfault_set(&s->fault, "progress_table", false,
		"%.*s may not be used with %.*s; run: GRANT %.*s ON %.*s",
		SPAN_ARG(s->doc->progress_table.text), (int)b.len, b.p,
		(int)b.len, b.p, (int)table.len, table.p);
	buf_fini(&b);
	buf_fini(&table);
	return true;
}

static void
on_columns(void *arg, PGresult *const *res, int n, const struct connfault *why)
{
	struct setup *s = arg;

	(void)n;
	if (why) {
		if (why->code)
			fail(s, why);
		return;
	}
	arena_reset(&s->arena);
	s->columns_n = (size_t)PQntuples(res[0]);
	s->columns = arena_zalloc(
		&s->arena, (s->columns_n + 1) * sizeof(*s->columns));
	for (size_t i = 0; i < s->columns_n; i++) {
		s->columns[i].name = arena_dup(
			&s->arena, span_of(PQgetvalue(res[0], (int)i, 0)));
		s->columns[i].type = arena_dup(
			&s->arena, span_of(PQgetvalue(res[0], (int)i, 1)));
	}
}

static void
on_table(void *arg, PGresult *const *res, int n, const struct connfault *why)
{
	struct setup *s = arg;
	const struct conndoc_name *t = &s->doc->progress_table;

	(void)n;
	if (why) {
		if (why->code)
			fail(s, why);
		return;
	}
	if (PQntuples(res[0]) == 0) {
		missing(s);
	} else if (s->columns_n == 0 && !s->looked_again) {
		/* another sink made it between the two statements */
		s->looked_again = true;
		look(s);
	} else if (*PQgetvalue(res[0], 0, 0) != 't') {
		progress_refuse(t, &s->fault, "is no table");
		finish(s);
	} else if (progress_verify(t, s->columns, s->columns_n,
			   *PQgetvalue(res[0], 0, 1) == 't', &s->fault) != 0 ||
		   lacks_rights(s, res[0])) {
		finish(s);
	} else {
		check_mode(s);
	}
}

static void
look(struct setup *s)
{
	run(s, PROGRESS_COLUMNS, on_columns);
	run(s, PROGRESS_FACTS, on_table);
	pglink_sync(s->session.link);
}

/* ---- the table ---- */

static void
on_facts(void *arg, struct plan *plan, const struct connfault *why)
{
	struct setup *s = arg;

	if (!plan) {
		if (why->code)
			fail(s, why);
		return;
	}
	s->plan = plan;
	look(s);
}

static void
on_up(void *arg)
{
	struct setup *s = arg;

	facts_read(&s->facts, s->session.link);
}

static void
on_end(void *arg, const struct connfault *why)
{
	fail(arg, why);
}

struct setup *
setup_new(struct ctx *x, setup_fn fn, void *arg)
{
	struct setup *s = calloc(1, sizeof(*s));

	BUG(!s);
	s->x = x;
	s->doc = &x->task->doc->sink;
	s->fn = fn;
	s->arg = arg;
	loop_timer_init(&s->done, x->loop, on_done, s);
	facts_init(&s->facts, s->doc, on_facts, s);
	if (session_open(
		    &s->session, x, "setup", on_up, on_end, s, &s->fault) != 0)
		finish(s);
	return s;
}

void
setup_free(struct setup *s)
{
	if (!s)
		return;
	session_close(&s->session);
	takeover_free(s->takeover);
	facts_fini(&s->facts);
	plan_free(s->plan);
	loop_timer_fini(&s->done);
	arena_fini(&s->arena);
	free(s);
}

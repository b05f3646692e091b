/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The steps of setup, in the order an operator would mend what they find.  A
 * step either goes on to the next or ends it all with a fault.
 */
#include "setup.h"

#include <stdio.h>
#include <stdlib.h>

#include "buf.h"
#include "conndoc.h"
#include "connchild.h"
#include "ctx.h"
#include "err.h"
#include "pglink.h"
#include "pgquote.h"
#include "pgtext.h"
#include "plan.h"
#include "progress.h"
#include "setup_int.h"
#include "takeover.h"

static void
on_done(void *arg)
{
	struct setup *s = arg;

	s->fn(s->arg, s->fault.code ? &s->fault : NULL);
}

void
setup_finish(struct setup *s)
{
	if (s->over)
		return;
	s->over = true;
	loop_timer_start(&s->done, 0);
}

void
setup_fail(struct setup *s, const struct connfault *why)
{
	if (s->over)
		return;
	s->fault = *why;
	setup_finish(s);
}

/* ---- the end: rows of another cell ---- */

static void
on_takeover(void *arg, const struct connfault *why)
{
	struct setup *s = arg;

	if (why)
		setup_fail(s, why);
	else
		setup_finish(s);
}

void
setup_take_over(struct setup *s)
{
	s->takeover = takeover_new(s->x, s->session.link, on_takeover, s);
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
		setup_fail(s, why);
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
	setup_finish(s);
}

/* True when the schema is closed or one of the rights is missing. */
static bool
lacks_rights(struct setup *s, const PGresult *facts)
{
	static const char *const rights[] = { "SELECT", "INSERT", "UPDATE" };
	const struct conndoc_name *t = &s->doc->progress_table;
	bool may_enter = pgtext_bool(facts, 0, 5);
	struct buf b = BUF_ZERO, grants = BUF_ZERO, role = BUF_ZERO;

	for (int i = 0; i < 3; i++)
		if (!pgtext_bool(facts, 0, 2 + i))
			buf_printf(&b, "%s%s", b.len ? ", " : "", rights[i]);
	if (b.len == 0 && may_enter)
		return false;
	pgquote_ident(&role, s->x->task->doc->conn.user);
	if (!may_enter) {
		buf_puts(&grants, "GRANT USAGE ON SCHEMA ");
		pgquote_ident(&grants, t->schema);
		buf_printf(&grants, " TO %.*s%s", (int)role.len, role.p,
			b.len ? "; " : "");
	}
	if (b.len) {
		buf_printf(&grants, "GRANT %.*s ON ", (int)b.len, b.p);
		pgquote_table(&grants, t->schema, t->name);
		buf_printf(&grants, " TO %.*s", (int)role.len, role.p);
	}
	connfault_set(&s->fault, "progress_table", false,
		"the role may not use %.*s; run: %.*s", SPAN_ARG(t->text),
		(int)grants.len, grants.p);
	buf_fini(&b);
	buf_fini(&grants);
	buf_fini(&role);
	return true;
}

static void
on_columns(void *arg, PGresult *const *res, int n, const struct connfault *why)
{
	struct setup *s = arg;

	(void)n;
	if (why) {
		if (why->code)
			setup_fail(s, why);
		return;
	}
	arena_reset(&s->arena);
	s->columns_n = (size_t)PQntuples(res[0]);
	s->columns = arena_zalloc(
		&s->arena, (s->columns_n + 1) * sizeof(*s->columns));
	for (size_t i = 0; i < s->columns_n; i++) {
		s->columns[i].name = pgtext_dup(res[0], (int)i, 0, &s->arena);
		s->columns[i].type = pgtext_dup(res[0], (int)i, 1, &s->arena);
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
			setup_fail(s, why);
		return;
	}
	if (PQntuples(res[0]) == 0) {
		missing(s);
	} else if (s->columns_n == 0 && !s->looked_again) {
		/* another sink made it between the two statements */
		s->looked_again = true;
		look(s);
	} else if (!pgtext_bool(res[0], 0, 0)) {
		progress_refuse(t, &s->fault, "is no table");
		setup_finish(s);
	} else if (progress_verify(t, s->columns, s->columns_n,
			   pgtext_bool(res[0], 0, 1), &s->fault) != 0 ||
		   lacks_rights(s, res[0])) {
		setup_finish(s);
	} else {
		setup_check_mode(s);
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
			setup_fail(s, why);
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
	setup_fail(arg, why);
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
		setup_finish(s);
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

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The sequence's own life: its timer, its links to the source, its calls of
 * the cell, its one answer.  A call of the cell can outlive it, because the
 * link to the cell is shared and keeps what was sent.
 */
#include "start.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "conndoc.h"
#include "connchild.h"
#include "connhost.h"
#include "ctx.h"
#include "err.h"
#include "start_int.h"
#include "teardown.h"

#ifndef QUEEN_VERSION
#error "QUEEN_VERSION comes from the Makefile"
#endif

enum { VERSION_TRANSACTION_TIMEOUT = 170000, WATCH_AGAIN_MS = 10000 };

/* ---- state and answer ---- */

void
start_say(struct start *s, const char *phase, const char *doing, int pid)
{
	if (s->state.phase == phase && s->state.doing == doing &&
		s->state.active_pid == pid)
		return;
	s->state = (struct start_state){ phase, doing, pid };
	if (s->on_state)
		s->on_state(s->arg);
}

static void
rest(struct start *s)
{
	s->over = true;
	loop_timer_stop(&s->timer);
	loop_timer_stop(&s->watch);
}

void
start_answer(struct start *s, enum start_end end, struct start_found *found)
{
	rest(s);
	s->fn(s->arg, end, found, NULL);
}

void
start_fail(struct start *s, const struct connfault *f)
{
	struct connfault own = *f;

	rest(s);
	if (s->doc->deleting)
		connfault_set(&own, f->code, f->retryable,
			"%.800s; to give the slot up: queenctl connector delete "
			"%.*s --keep-slot --yes",
			f->text, SPAN_ARG(s->x->task->name));
	s->fn(s->arg, START_FAILED, NULL, &own);
}

static void
on_timer(void *arg)
{
	struct start *s = arg;

	s->next(s);
}

void
start_after(struct start *s, int64_t ms, start_step next)
{
	s->next = next;
	loop_timer_start(&s->timer, ms);
}

/* ---- calls of the cell ---- */

struct start_call {
	struct start *s; /* NULL: nobody waits any more */
};

static void
on_row(void *arg, const struct cellkv_row *row, const struct err *e)
{
	struct start_call *c = arg;
	struct start *s = c->s;
	struct connfault f;

	free(c);
	if (!s)
		return;
	s->call = NULL;
	if (row) {
		s->call_fn(s, row);
		return;
	}
	connfault_cell(&f, e);
	start_fail(s, &f);
}

static struct cellkv_key
prepare(struct start *s, start_row_fn fn)
{
	BUG(s->call);
	s->call = calloc(1, sizeof(*s->call));
	BUG(!s->call);
	s->call->s = s;
	s->call_fn = fn;
	return (struct cellkv_key){ .tenant = &s->x->task->tenant,
		.ns = "queen-pg",
		.key = s->x->pointer_key };
}

void
start_settle(struct start *s, start_row_fn fn)
{
	struct cellkv_key k = prepare(s, fn);

	cellkv_settle(s->x->side, &k, on_row, s->call);
}

void
start_put(struct start *s, struct span value, int64_t expect, start_row_fn fn)
{
	struct cellkv_key k = prepare(s, fn);

	cellkv_put(
		s->x->side, &k, value, expect, CELLKV_FOREVER, on_row, s->call);
}

void
start_delete(struct start *s, int64_t expect, start_row_fn fn)
{
	struct cellkv_key k = prepare(s, fn);

	cellkv_delete(s->x->side, &k, expect, on_row, s->call);
}

/* ---- links ---- */

void
start_hang_up(struct start_link *l)
{
	pglink_free(l->k);
	l->k = NULL;
	buf_wipe(&l->password);
}

static void
on_up(void *arg)
{
	struct start_link *l = arg;

	buf_wipe(&l->password);
	l->on_up(l->s);
}

static void
on_end(void *arg, const struct connfault *why)
{
	struct start_link *l = arg;
	struct start *s = l->s;

	if (l == &s->link_watch) {
		start_hang_up(l);
		loop_timer_start(&s->watch, WATCH_AGAIN_MS);
	} else if (!s->over) {
		start_fail(s, why);
	}
}

/*
 * Values must read alike on both links, so what influences them is set on
 * both.  Without row_security a policy would silently hide rows of the copy.
 */
#define SESSION                                                                \
	"statement_timeout=0", "lock_timeout=0",                               \
		"idle_in_transaction_session_timeout=0",                       \
		"idle_session_timeout=0", "row_security=off",                  \
		"client_min_messages=warning"

void
start_dial(struct start *s, struct start_link *l, enum pglink_use use,
	start_step step)
{
	const char *const session[] = { s->search_path, SESSION, NULL };
	struct pglink_conf c = { .conn = &s->doc->conn,
		.settings = session,
		.use = use,
		.allow_private = s->x->conf->allow_private,
		.ca_file = s->x->conf->ca_file };
	struct connfault f;
	char app[128];

	if (connchild_unseal(s->x->task, s->x->seal, &l->password, &f) != 0) {
		start_fail(s, &f);
		return;
	}
	snprintf(app, sizeof(app), "queen-pg/%s %.*s", QUEEN_VERSION,
		SPAN_ARG(s->x->task->name));
	c.application_name = app;
	c.password = buf_span(&l->password);
	l->on_up = step;
	l->k = pglink_new(s->x->loop, &c, on_up, on_end, l);
}

void
start_query(struct start *s, struct start_link *l, pglink_fn fn)
{
	buf_putc(&s->sql, '\0');
	pglink_query(l->k, s->sql.p, fn, s);
	buf_reset(&s->sql);
}

bool
start_worked(struct start *s, const struct connfault *why)
{
	if (why)
		start_fail(s, why);
	return !why;
}

/* ---- the first steps ---- */

static void
on_server(void *arg, PGresult *const *res, int n, const struct connfault *why)
{
	struct start *s = arg;
	struct connfault f;

	if (!start_worked(s, why))
		return;
	if (catalog_server(res, n, &s->arena, &s->server, &s->sql_pid, &f) !=
			0 ||
		(!s->doc->deleting && decide_server(&s->server, &f) != 0))
		start_fail(s, &f);
	else if (s->doc->deleting)
		teardown(s);
	else
		start_tables(s);
}

static void
on_sql_up(struct start *s)
{
	/* a session that waits for hours ends with its client; not vital */
	pglink_query(s->link_sql.k,
		"set client_connection_check_interval = 500", NULL, NULL);
	if (pglink_server_version(s->link_sql.k) >= VERSION_TRANSACTION_TIMEOUT)
		pglink_query(s->link_sql.k, "set transaction_timeout = 0", NULL,
			NULL);
	buf_puts(&s->sql, catalog_server_sql);
	start_query(s, &s->link_sql, on_server);
}

static void
on_pointer(struct start *s, const struct cellkv_row *row)
{
	struct err e = ERR_ZERO;

	s->version = row->version;
	s->row = arena_dup(&s->arena, row->value);
	s->readable =
		row->version && pointer_parse(s->row, &s->pointer, &e) == 0;
	memcpy(s->unreadable, e.text, sizeof(s->unreadable));
	start_say(s, "connecting", "connecting to the source", 0);
	start_dial(s, &s->link_sql, PGLINK_SQL, on_sql_up);
}

/*
 * Who has not read yet that the source is being deleted must not make anew
 * what the owner before has just removed.
 */
static void
on_document(struct start *s, const struct cellkv_row *row)
{
	if (row->version != s->x->task->version)
		start_answer(s, START_STALE, NULL);
	else
		start_settle(s, on_pointer);
}

static void
begin(struct start *s)
{
	static const struct qid internal;
	const struct connchild_task *t = s->x->task;
	struct cellkv_key k = prepare(s, on_document);
	char tenant[QID_TEXT_MAX];

	k.tenant = &internal;
	k.key = arena_printf(&s->arena, "conn:%s:%.*s",
		qid_text(&t->tenant, tenant), SPAN_ARG(t->name));
	cellkv_get(s->x->side, &k, on_row, s->call);
}

/* ---- the surface ---- */

struct start *
start_new(struct ctx *x, start_fn fn, void *arg)
{
	struct start *s = calloc(1, sizeof(*s));
	const struct conndoc *d = x->task->doc;

	BUG(!s);
	s->x = x;
	s->doc = d;
	s->fn = fn;
	s->arg = arg;
	s->state =
		(struct start_state){ "connecting", "reading the pointer", 0 };
	s->search_path = "search_path=pg_catalog";
	s->link_sql.s = s->link_repl.s = s->link_watch.s = s;
	s->slot_name = conndoc_slot(&d->source, x->task->name, &s->arena);
	s->publication_name =
		conndoc_publication(&d->source, x->task->name, &s->arena);
	loop_timer_init(&s->timer, x->loop, on_timer, s);
	loop_timer_init(&s->watch, x->loop, start_watch, s);
	start_after(s, 0, begin);
	return s;
}

const struct start_state *
start_state(const struct start *s)
{
	return &s->state;
}

void
start_on_state(struct start *s, void (*fn)(void *arg))
{
	s->on_state = fn;
}

void
start_free(struct start *s)
{
	if (!s)
		return;
	if (s->call)
		s->call->s = NULL;
	start_hang_up(&s->link_sql);
	start_hang_up(&s->link_repl);
	start_hang_up(&s->link_watch);
	loop_timer_fini(&s->timer);
	loop_timer_fini(&s->watch);
	pointer_fini(&s->pointer);
	arena_fini(&s->arena);
	buf_fini(&s->sql);
	free(s);
}

void
start_found_free(struct start_found *f)
{
	if (!f)
		return;
	pglink_free(f->sql);
	pglink_free(f->repl);
	pointer_fini(&f->pointer);
	arena_fini(&f->arena);
	free(f);
}

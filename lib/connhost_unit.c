/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a unit does next.  Invariant: a unit has at most one process, and a
 * new one starts only after the old one was reaped.
 */
#include <stdlib.h>
#include <string.h>

#include "backoff.h"
#include "clk.h"
#include "connhost_int.h"
#include "pgbin.h"
#include "pgconn.h"

enum {
	LADDER_MIN_MS = 1000,
	LADDER_MAX_MS = 30000,
	LADDER_ANEW_MS = 3600000, /* a run as long as this forgives */
	BOOTING_MAX = 8, /* processes that have not said a word yet */
};

static const struct pgstmt STMT_DELETE = { "connector_delete",
	"select queen.connector_delete_v1($1, $2, $3, false)" };

static void remove_document(struct unit *u);

/* ---- being there ---- */

static bool
is_key(const void *item, const void *key)
{
	const struct unit *u = item;

	return span_eq(buf_span(&u->key), *(const struct span *)key);
}

static void
wait_in_line(struct unit *u)
{
	if (u->is_waiting)
		return;
	u->is_waiting = true;
	TAILQ_INSERT_TAIL(&u->host->waiting, u, waiting);
}

static void
leave_line(struct unit *u)
{
	if (u->is_waiting)
		TAILQ_REMOVE(&u->host->waiting, u, waiting);
	u->is_waiting = false;
}

static void
on_timer(void *arg)
{
	struct unit *u = arg;

	switch (u->state) {
	case UNIT_IDLE:
		break;
	case UNIT_WAITS:
		wait_in_line(u);
		connhost_unit_next(u->host);
		break;
	case UNIT_REMOVES:
		remove_document(u);
		break;
	case UNIT_RUNS: /* it has not said a word, or hung up */
	case UNIT_STOPS:
		connhost_child_kill(u);
		break;
	}
}

struct unit *
connhost_unit_get(struct connhost *h, struct span key)
{
	uint64_t hash = map_hash_span(key);
	struct unit *u = map_get(&h->units, hash, is_key, &key);

	if (u)
		return u;
	u = calloc(1, sizeof(*u));
	BUG(!u);
	u->host = h;
	buf_put_span(&u->key, key);
	BUG(!conndoc_key_parse(buf_span(&u->key), &u->tenant, &u->name));
	u->want = UNIT_GONE; /* so that its document is looked at */
	u->phase = "starting";
	u->since_us = clk_wall_us();
	loop_timer_init(&u->timer, h->loop, on_timer, u);
	map_put(&h->units, hash, u);
	TAILQ_INSERT_TAIL(&h->list, u, link);
	h->units_n++;
	return u;
}

void
connhost_unit_free(struct unit *u)
{
	struct connhost *h = u->host;
	struct span key = buf_span(&u->key);

	leave_line(u);
	connhost_work_watch(u, 0);
	map_take(&h->units, map_hash_span(key), is_key, &key);
	TAILQ_REMOVE(&h->list, u, link);
	h->units_n--;
	loop_timer_fini(&u->timer);
	connpipe_free(u->pipe);
	buf_fini(&u->key);
	buf_fini(&u->doc);
	buf_fini(&u->print);
	buf_fini(&u->why);
	buf_fini(&u->run_print);
	buf_fini(&u->status);
	buf_fini(&u->error);
	buf_fini(&u->last_error);
	buf_fini(&u->marks);
	free(u);
}

void
connhost_unit_phase(struct unit *u, const char *phase)
{
	if (u->phase != phase)
		u->since_us = clk_wall_us();
	u->phase = phase;
	connhost_row_touch(u);
}

/* ---- without a process ---- */

/* The next start, after_ms from now. */
static void
plan_start(struct unit *u, int64_t after_ms)
{
	leave_line(u);
	u->state = UNIT_WAITS;
	u->again_ms = clk_mono_ms() + after_ms;
	if (after_ms > 0) {
		loop_timer_start(&u->timer, after_ms);
		return;
	}
	loop_timer_stop(&u->timer);
	wait_in_line(u);
	connhost_unit_next(u->host);
}

/* One rung up. */
static int64_t
climb(struct unit *u)
{
	u->pause_ms =
		backoff_next_ms(u->pause_ms, LADDER_MIN_MS, LADDER_MAX_MS);
	return u->pause_ms;
}

static bool
is_news(const struct unit *u)
{
	return u->want != u->run_want ||
	       !span_eq(buf_span(&u->print), buf_span(&u->run_print));
}

/* A new generation: what was shown of the one before is over. */
static void
begin(struct unit *u)
{
	u->generation++;
	u->crashes = u->restarts = 0;
	u->pause_ms = 0;
	u->run_want = u->want;
	buf_reset(&u->run_print);
	buf_put_span(&u->run_print, buf_span(&u->print));
	buf_reset(&u->status);
	buf_reset(&u->error);
	leave_line(u);
	loop_timer_stop(&u->timer);
	u->state = UNIT_IDLE;
	connhost_row_touch(u);
}

static void
apply(struct unit *u)
{
	if (u->want == UNIT_GONE) {
		if (u->removing)
			return; /* its answer is still to come */
		connhost_row_drop(u);
		connhost_unit_free(u);
		return;
	}
	if (!is_news(u))
		return;
	begin(u);
	switch (u->want) {
	case UNIT_RUN:
		connhost_unit_phase(u, "starting");
		plan_start(u, 0);
		break;
	case UNIT_REST:
		connhost_unit_phase(u, "disabled");
		break;
	case UNIT_BAD:
		connhost_status_error(u, u->code, u->why.p);
		connhost_unit_phase(u, "error");
		break;
	case UNIT_GONE:
		break;
	}
}

void
connhost_unit_step(struct unit *u)
{
	if (u->want == UNIT_GONE)
		u->forget = true;
	if (u->state == UNIT_RUNS && is_news(u))
		connhost_child_stop(u, u->host->conf.grace_ms);
	else if (u->state != UNIT_RUNS && u->state != UNIT_STOPS)
		apply(u);
}

void
connhost_unit_next(struct connhost *h)
{
	struct err e = ERR_ZERO;
	struct unit *u;

	while (!h->stopping && h->booting < BOOTING_MAX &&
		(u = TAILQ_FIRST(&h->waiting))) {
		leave_line(u);
		if (connhost_child_start(u, &e) == 0)
			continue;
		connhost_status_error(u, "crashed", e.text);
		connhost_unit_phase(u, "error");
		plan_start(u, climb(u));
	}
}

/* ---- the end of a process ---- */

static void
crashed(struct unit *u, const char *how)
{
	u->host->crashes++;
	u->crashes++;
	connhost_status_error(u, "crashed", how);
	connhost_unit_phase(u, "error");
}

void
connhost_unit_ended(struct unit *u, const char *how)
{
	bool asked = u->state == UNIT_STOPS;

	connhost_status_settle(u);
	u->state = UNIT_IDLE;
	loop_timer_stop(&u->timer);
	connhost_unit_phase(u, "stopped");
	if (u->host->stopping)
		return;
	if (clk_mono_ms() - u->started_ms >= LADDER_ANEW_MS)
		u->pause_ms = 0;
	if (u->torn_down && !is_news(u)) {
		connhost_unit_phase(u, "torn_down");
		u->pause_ms = 0;
		remove_document(u);
	} else if (is_news(u)) {
		apply(u);
	} else if (asked) {
		/* the document went, and came back as it was */
		u->run_want = UNIT_GONE;
		apply(u);
	} else {
		if (!u->left)
			crashed(u, how);
		plan_start(u, climb(u));
	}
}

/* ---- a document whose connector is torn down ---- */

static void
on_removed(void *arg, const PGresult *res, const struct err *e)
{
	struct unit *u = arg;
	struct connhost *h = u->host;

	u->removing = false;
	if (e)
		log_line(LOG_WARN, "connectors",
			"a document cannot be removed yet",
			"connector=%.*s error=%s", SPAN_ARG(u->name),
			log_quote(e->text));
	/* written again meanwhile: the read tells whether it matters */
	if (u->state == UNIT_REMOVES && (e || pgbin_i32(res, 0, 0) != 0))
		loop_timer_start(&u->timer, climb(u));
	connhost_unit_step(u);
	if (!e)
		connhost_doc_read(h);
}

static void
remove_document(struct unit *u)
{
	struct pgargs a;

	u->state = UNIT_REMOVES;
	if (u->removing)
		return;
	u->removing = true;
	pgargs_init(&a);
	pgargs_uuid(&a, &u->tenant);
	pgargs_text(&a, u->name);
	pgargs_i64(&a, u->version);
	pgconn_call(u->host->conn, &STMT_DELETE, false, &a, on_removed, u);
	pgargs_fini(&a);
}

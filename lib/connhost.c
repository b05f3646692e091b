/* SPDX-License-Identifier: Apache-2.0 */
/* The parent's start and end; what is between is in the other files. */
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "boot.h"
#include "clk.h"
#include "connhost_int.h"
#include "exit.h"
#include "hsrv.h"
#include "notify.h"
#include "pgconn.h"

enum {
	UNANSWERED_MS = 60000,
	LAST_ROWS_MS = 1000, /* for the status of the stop */
};

/* ---- ticks ---- */

static void
on_reload(void *arg)
{
	struct connhost *h = arg;

	if (h->stopping)
		return;
	loop_timer_start(&h->reload, h->conf.reload_ms);
	connhost_doc_read(h);
}

static void
on_watchdog(void *arg)
{
	struct connhost *h = arg;

	notify_alive();
	loop_timer_start(&h->watchdog, notify_watchdog_ms());
}

static void
on_cell(void *arg, enum pgconn_event ev, const struct err *why)
{
	struct connhost *h = arg;
	bool up = ev == PGCONN_UP;

	if (up != h->cell_up)
		log_line(up ? LOG_INFO : LOG_WARN, "connectors",
			up ? "the cell is reachable" : "the cell is lost",
			why ? "error=%s" : NULL,
			why ? log_quote(why->text) : "");
	h->cell_up = up;
	if (why)
		h->cell_why = *why;
	if (up && !h->stopping)
		on_reload(h);
}

/* ---- the end ---- */

static void
on_last(void *arg)
{
	struct connhost *h = arg;

	loop_stop(h->loop);
}

/* Every process is gone: the rows say so, then it is over. */
static void
end_if_quiet(struct connhost *h)
{
	if (!h->stopping || h->children > 0 || loop_timer_pending(&h->last))
		return;
	loop_timer_start(&h->last, h->units_n && h->cell_up ? LAST_ROWS_MS : 0);
	h->flushed_ms = 0;
	connhost_row_flush(h);
}

static void
on_child(void *arg)
{
	connhost_child_reap(arg);
	end_if_quiet(arg);
}

static void
on_term(void *arg)
{
	struct connhost *h = arg;
	struct unit *u;

	if (h->stopping) { /* the second one means now */
		TAILQ_FOREACH (u, &h->list, link)
			if (u->pid > 0)
				kill(u->pid, SIGKILL);
		_exit(EXIT_INTERNAL);
	}
	h->stopping = true;
	log_line(LOG_INFO, "shutdown", "signal received, stopping",
		"processes=%zu", h->children);
	notify_stopping();
	TAILQ_FOREACH (u, &h->list, link) {
		if (u->pid > 0)
			connhost_child_stop(u, h->conf.grace_ms);
		else
			connhost_unit_phase(u, "stopped");
	}
	end_if_quiet(h);
}

static void
on_hup(void *arg)
{
	(void)arg; /* documents are read anyway */
}

/* ---- life ---- */

static void
start(struct connhost *h)
{
	TAILQ_INIT(&h->list);
	TAILQ_INIT(&h->waiting);
	h->started_ms = clk_mono_ms();
	loop_on_signal(h->loop, SIGTERM, on_term, h);
	loop_on_signal(h->loop, SIGINT, on_term, h);
	loop_on_signal(h->loop, SIGHUP, on_hup, h);
	loop_on_signal(h->loop, SIGCHLD, on_child, h);
	loop_timer_init(&h->reload, h->loop, on_reload, h);
	loop_timer_init(&h->flush, h->loop, connhost_row_flush, h);
	loop_timer_init(&h->watchdog, h->loop, on_watchdog, h);
	loop_timer_init(&h->last, h->loop, on_last, h);
	h->conn =
		pgconn_new(h->loop, h->conf.conninfo, h->conf.tool, on_cell, h);
	pgconn_limit(h->conn, UNANSWERED_MS);
	connhost_work_start(h);
}

static void
finish(struct connhost *h)
{
	struct unit *u;

	hsrv_free(h->hsrv);
	pgconn_free(h->conn);
	while ((u = TAILQ_FIRST(&h->list)))
		connhost_unit_free(u);
	connhost_work_free(h);
	loop_timer_fini(&h->reload);
	loop_timer_fini(&h->flush);
	loop_timer_fini(&h->watchdog);
	loop_timer_fini(&h->last);
	map_fini(&h->units);
	buf_fini(&h->drops);
}

int
connhost_run(const struct connhost_conf *c)
{
	struct connhost h = { .conf = *c };
	struct err e = ERR_ZERO;
	int code = EXIT_CLEAN;

	h.loop = loop_new();
	start(&h);
	if (connhost_http_start(&h, &e) != 0) {
		code = boot_fatal(
			e.kind == ERR_CONFIG ? EXIT_CONFIG : EXIT_INTERNAL,
			e.text);
	} else {
		log_line(LOG_INFO, "boot", "running",
			"node=%s listen=%s version=%s", c->node,
			c->listen && c->listen[0] ? c->listen : "none",
			QUEEN_VERSION);
		notify_ready();
		if (notify_watchdog_ms() > 0)
			on_watchdog(&h);
		loop_run(h.loop);
		log_line(LOG_INFO, "shutdown", "stopped", NULL);
	}
	finish(&h);
	loop_free(h.loop);
	return code;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* From the loop's first turn to its last. */
#include "host.h"

#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "boot.h"
#include "clk.h"
#include "exit.h"
#include "host_int.h"
#include "hsrv.h"
#include "notify.h"
#include "s3conf.h"
#include "settings.h"

void
host_fail(struct host *h, int code, const char *text)
{
	h->code = boot_fatal(code, text);
	loop_stop(h->x->loop);
}

/* ---- the end ---- */

void
host_end_if_quiet(struct host *h)
{
	struct tenant *t;

	if (!h->stopping || h->quiet)
		return;
	TAILQ_FOREACH (t, &h->tenants, link)
		if (t->sink)
			return;
	h->quiet = true;
	log_line(LOG_INFO, "shutdown", "drained", NULL);
	loop_stop(h->x->loop);
}

/* Nothing is lost by it: the next owner goes on from the intent. */
static void
on_grace(void *arg)
{
	struct host *h = arg;

	log_line(LOG_WARN, "shutdown",
		"the time to drain is over; leases wait out their time",
		"QUEEN_S3_SHUTDOWN_GRACE_MS=%lld",
		(long long)h->x->conf->shutdown_grace_ms);
	loop_stop(h->x->loop);
}

static void
on_term(void *arg)
{
	struct host *h = arg;
	struct tenant *t, *next;

	if (h->stopping)
		_exit(EXIT_INTERNAL); /* the second one means now */
	h->stopping = true;
	log_line(LOG_INFO, "shutdown", "signal received, draining", NULL);
	notify_stopping();
	loop_timer_stop(&h->rows_timer);
	loop_timer_start(&h->grace, h->x->conf->shutdown_grace_ms);
	for (t = TAILQ_FIRST(&h->tenants); t; t = next) {
		next = TAILQ_NEXT(t, link);
		host_sink_stop(t, false);
	}
	host_end_if_quiet(h);
}

static void
on_hup(void *arg)
{
	(void)arg; /* settings are read once; rows are read anyway */
}

static void
on_watchdog(void *arg)
{
	struct host *h = arg;

	notify_alive();
	loop_timer_start(&h->watchdog, notify_watchdog_ms());
}

/* ---- the start ---- */

static void
ready(struct host *h)
{
	h->probed = true;
	log_line(LOG_INFO, "boot", "running",
		"instance=%s listen=%s version=%s", h->x->conf->instance,
		h->x->conf->listen, QUEEN_VERSION);
	notify_ready();
	if (notify_watchdog_ms() > 0)
		on_watchdog(h);
}

/*
 * A bucket that does not answer at boot is told by the exit code, unless
 * tenants have sinks here: one of them must not stop the others.
 */
static void
on_probe(void *arg, bool ok, const char *text)
{
	struct tenant *t = arg;
	struct host *h = t->host;

	if (h->stopping)
		return;
	if (!ok && h->rows_read && h->rows_enabled == 0) {
		host_fail(h, EXIT_DEPENDENCY, text);
		return;
	}
	ready(h);
	sink_start(t->sink);
}

static void
start_env(struct host *h)
{
	struct s3conf *c = calloc(1, sizeof(*c));
	struct tenant *t;
	struct qid id;

	BUG(!c || !qid_parse(SPAN_LIT(CTX_TENANT_DEFAULT), &id));
	*c = h->x->conf->sink;
	h->x->conf->sink = (struct s3conf){ .prefix = NULL };
	t = host_sink_add(h, &id, NULL);
	host_sink_set(t, c);
	if (!t->sink)
		host_fail(h, EXIT_CONFIG, t->error);
	else
		sink_probe(t->sink, on_probe, t);
}

void
host_begin(struct host *h)
{
	h->begun = true;
	if (h->x->conf->has_sink)
		start_env(h);
	else
		ready(h);
}

struct host *
host_new(struct ctx *x, struct err *e)
{
	struct host *h = calloc(1, sizeof(*h));

	BUG(!h);
	h->x = x;
	h->started_ms = clk_mono_ms();
	TAILQ_INIT(&h->tenants);
	loop_on_signal(x->loop, SIGTERM, on_term, h);
	loop_on_signal(x->loop, SIGINT, on_term, h);
	loop_on_signal(x->loop, SIGHUP, on_hup, h);
	loop_timer_init(&h->rows_timer, x->loop, host_rows_read, h);
	loop_timer_init(&h->grace, x->loop, on_grace, h);
	loop_timer_init(&h->watchdog, x->loop, on_watchdog, h);
	if (host_http_start(h, e) != 0) {
		host_free(h);
		return NULL;
	}
	return h;
}

int
host_run(struct host *h)
{
	host_rows_read(h);
	loop_run(h->x->loop);
	log_line(LOG_INFO, "shutdown", "stopped", NULL);
	return h->code;
}

void
host_free(struct host *h)
{
	struct tenant *t;

	if (!h)
		return;
	hsrv_free(h->hsrv);
	cell_cancel(h->reading);
	while ((t = TAILQ_FIRST(&h->tenants)))
		host_sink_free(t);
	loop_timer_fini(&h->rows_timer);
	loop_timer_fini(&h->grace);
	loop_timer_fini(&h->watchdog);
	free(h);
}

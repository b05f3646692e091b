/* SPDX-License-Identifier: Apache-2.0 */
/*
 * queen-ojs: jobs and streams over HTTP.  Boot order and shutdown order only;
 * what the parts do is in their own files.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "boot.h"
#include "claims.h"
#include "clk.h"
#include "ctx.h"
#include "err.h"
#include "exit.h"
#include "gate.h"
#include "hash.h"
#include "hsrv.h"
#include "level.h"
#include "log.h"
#include "loop.h"
#include "notify.h"
#include "pgconn.h"
#include "pgpool.h"
#include "reply.h"
#include "route.h"
#include "schema.h"
#include "settings.h"
#include "stream.h"
#include "sweep.h"
#include "ticks.h"
#include "wait.h"

#ifndef QUEEN_VERSION
#error "QUEEN_VERSION comes from the Makefile"
#endif

enum {
	STOP_SETTLE_MS = 2000, /* for calls in flight; then they are given up */
	STOP_POLL_MS = 10,
	HOST_MAX = 256,
	TICKS_LOGS = 10000,
};

struct boot {
	struct ctx x;
	struct settings conf;
	struct loop_timer watchdog;
	struct loop_timer settle; /* after the drain: calls in flight */
	int64_t settle_until_ms;
	char *conninfo;
	char instance[HOST_MAX + 32];
	int code;
};

static void
usage(void)
{
	printf("usage: queen-ojs [--help | --version | --check-config]\n"
	       "\n"
	       "Jobs by the Open Job Spec and snapshot-delimited streams of a\n"
	       "cell, over HTTP. It is configured by the environment alone;\n"
	       "see queen-ojs(8).\n"
	       "\n"
	       "  --check-config  print the effective settings and exit\n"
	       "  --version       print the version and exit\n"
	       "  --help          print this and exit\n"
	       "\n"
	       "environment:\n");
	conf_help(conf_items, conf_items_n, stdout);
}

/* Two processes never have one name: each skips its own hints. */
static void
name_instance(struct boot *b)
{
	char host[HOST_MAX] = "host";
	struct qid id = qid_new();
	char text[QID_TEXT_MAX];

	if (b->conf.server_id && *b->conf.server_id)
		snprintf(host, sizeof(host), "%s", b->conf.server_id);
	else
		gethostname(host, sizeof(host) - 1);
	qid_text(&id, text);
	snprintf(b->instance, sizeof(b->instance), "%s/ojs-%s", host,
		text + QID_TEXT - 8);
	b->x.instance = b->instance;
}

static int
meet_database(struct boot *b, struct err *e)
{
	struct pgconn_conf c = BOOT_PGCONN_CONF(&b->conf);
	struct schema_cell cell;
	PGconn *pg;
	int rc;

	b->conninfo = pgconn_info(&c, e);
	if (!b->conninfo)
		return -1;
	pg = boot_open(b->conninfo, "queen-ojs", e);
	if (!pg)
		return -1;
	rc = boot_schema(pg, &cell, e);
	PQfinish(pg);
	if (rc == 0)
		b->x.cell_tag = cell.tag;
	return rc;
}

static void
start_pool(struct boot *b)
{
	int n = (int)b->conf.pool_size;
	struct pgpool_conf c = {
		.conninfo = b->conninfo,
		.application_name = "queen-ojs",
		.lanes_n = LANES,
		.stmt_timeout_ms = b->conf.stmt_timeout_ms,
	};

	/* 2, 2, 2, 2 of the default 8 */
	c.conns[LANE_FETCH] = n / 4;
	c.conns[LANE_JOB] = n / 4;
	c.conns[LANE_STREAM] = n / 4;
	c.conns[LANE_REST] = n - 3 * (n / 4);
	b->x.pool = pgpool_new(b->x.loop, &c);
}

static int
start_listening(struct boot *b, struct err *e)
{
	struct hsrv_conf c = {
		.routes = route_table,
		.routes_n = route_table_n,
		.gate = route_gate,
		.unmatched = route_unmatched,
		.begin = reply_begin,
		.error = reply_error,
		.ctx = &b->x,
		.max_body_bytes = b->conf.max_body_bytes,
		.memory_bytes = b->conf.http_memory_mb << 20,
		.busy_status = 429,
	};

	b->x.hsrv = hsrv_new(b->x.loop, &c);
	if (hsrv_listen(b->x.hsrv, b->conf.bind_addr, (int)b->conf.port, e) !=
		0)
		return -1;
	log_line(LOG_INFO, "boot", "serving",
		"addr=%s port=%d instance=%s version=%s", b->conf.bind_addr,
		hsrv_port(b->x.hsrv), b->instance, QUEEN_VERSION);
	return 0;
}

/* ---- the end ---- */

/* Calls in flight have owners that free them when they return. */
static void
on_settle(void *arg)
{
	struct boot *b = arg;
	struct pgpool_stats ps;

	pgpool_stats(b->x.pool, &ps);
	if ((ps.busy == 0 && ps.waiting == 0) ||
		clk_mono_ms() >= b->settle_until_ms) {
		loop_stop(b->x.loop);
		return;
	}
	loop_timer_start(&b->settle, STOP_POLL_MS);
}

static void
on_drained(void *arg)
{
	struct boot *b = arg;

	b->settle_until_ms = clk_mono_ms() + STOP_SETTLE_MS;
	on_settle(b);
}

static void
on_term(void *arg)
{
	struct boot *b = arg;

	if (b->x.stopping)
		_exit(EXIT_INTERNAL); /* the second one means now */
	b->x.stopping = true;
	log_line(LOG_INFO, "shutdown", "signal received, draining", NULL);
	notify_stopping();
	waits_drain(b->x.waits);
	hsrv_drain(b->x.hsrv, b->conf.shutdown_grace_ms, on_drained, b);
}

static void
on_hup(void *arg)
{
	(void)arg; /* there is nothing to reload */
}

static void
on_watchdog(void *arg)
{
	struct boot *b = arg;

	notify_alive();
	loop_timer_start(&b->watchdog, notify_watchdog_ms());
}

/* ---- the run ---- */

static void
start_parts(struct boot *b)
{
	struct ctx *x = &b->x;

	loop_on_signal(x->loop, SIGTERM, on_term, b);
	loop_on_signal(x->loop, SIGINT, on_term, b);
	loop_on_signal(x->loop, SIGHUP, on_hup, b);
	loop_timer_init(&b->watchdog, x->loop, on_watchdog, b);
	loop_timer_init(&b->settle, x->loop, on_settle, b);
	start_pool(b);
	x->claims = claims_new();
	x->ticks = ticks_new(TICKS_LOGS, stream_tick, x);
	x->waits = waits_new(x);
	x->sweep = sweep_new(x);
}

static void
stop_parts(struct boot *b)
{
	struct ctx *x = &b->x;

	loop_timer_fini(&b->watchdog);
	loop_timer_fini(&b->settle);
	gate_stop(x->gate);
	hsrv_free(x->hsrv);
	sweep_free(x->sweep);
	waits_free(x->waits);
	claims_free(x->claims);
	ticks_free(x->ticks);
	pgpool_free(x->pool);
}

static int
serve(struct boot *b)
{
	struct err e = ERR_ZERO;

	name_instance(b);
	if (meet_database(b, &e) != 0)
		return boot_fatal(boot_code(&e), e.text);
	b->x.conninfo = b->conninfo;
	b->x.conf = &b->conf;
	b->x.started_ms = clk_mono_ms();
	b->x.loop = loop_new();
	if (gate_start(b->x.gate, b->x.loop, &e) != 0) {
		loop_free(b->x.loop);
		return boot_fatal(EXIT_CONFIG, e.text);
	}
	start_parts(b);
	if (start_listening(b, &e) != 0) {
		b->code = boot_fatal(EXIT_INTERNAL, e.text);
	} else {
		notify_ready();
		if (notify_watchdog_ms() > 0)
			on_watchdog(b);
		loop_run(b->x.loop);
	}
	stop_parts(b);
	gate_free(b->x.gate); /* its keys are fetched on the loop */
	b->x.gate = NULL;
	loop_free(b->x.loop);
	if (b->code == EXIT_CLEAN)
		log_line(LOG_INFO, "shutdown", "stopped", NULL);
	return b->code;
}

static int
load(struct boot *b, struct err *e)
{
	struct gate_conf g;

	if (conf_load(conf_items, conf_items_n, &b->conf, e) != 0)
		return -1;
	g = (struct gate_conf){ GATE_CONF(&b->conf),
		.read_only = b->conf.read_only, .level = level_of };
	return gate_new(&g, &b->x.gate, e);
}

static void
wipe(char *secret)
{
	if (secret)
		explicit_bzero(secret, strlen(secret));
}

/* The gate has a copy of its own, in memory that is guarded. */
static void
wipe_secrets(struct settings *conf)
{
	wipe(conf->jwt_secret);
	for (size_t i = 0; i < conf_items_n; i++)
		if (conf_items[i].secret)
			wipe(getenv(conf_items[i].name));
}

static int
run(struct boot *b, bool check)
{
	struct err e = ERR_ZERO;

	log_init(NULL, false);
	boot_harden(); /* before there is a secret in memory */
	if (load(b, &e) != 0)
		return boot_fatal(EXIT_CONFIG, e.text);
	if (check) {
		conf_print(conf_items, conf_items_n, &b->conf, stdout);
		return EXIT_CLEAN;
	}
	log_init(b->conf.rust_log && *b->conf.rust_log ? b->conf.rust_log
						       : b->conf.log_level,
		b->conf.log_json);
	conf_warn_unknown(
		conf_items, conf_items_n, "QUEEN_OJS_", "QUEEN_OJS_URL");
	conf_log(conf_items, conf_items_n, &b->conf);
	wipe_secrets(&b->conf);
	return serve(b);
}

int
main(int argc, char **argv)
{
	const char *word = argc == 2 ? argv[1] : "";
	bool check = strcmp(word, "--check-config") == 0;
	struct boot b = { .code = EXIT_CLEAN };
	int code;

	if (strcmp(word, "--help") == 0) {
		usage();
		return EXIT_CLEAN;
	}
	if (strcmp(word, "--version") == 0) {
		printf("queen-ojs %s\n", QUEEN_VERSION);
		return EXIT_CLEAN;
	}
	if (argc != 1 && !check) {
		fprintf(stderr, "queen-ojs: unknown argument; see --help\n");
		return EXIT_CONFIG;
	}
	code = run(&b, check);
	gate_free(b.x.gate);
	if (b.conninfo)
		wipe(b.conninfo);
	free(b.conninfo);
	conf_fini(conf_items, conf_items_n, &b.conf);
	return code;
}

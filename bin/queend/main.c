/* SPDX-License-Identifier: Apache-2.0 */
/*
 * queend: the HTTP core of a cell.  Boot order and shutdown order only; what
 * the parts do is in their own files.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ack.h"
#include "boot.h"
#include "catalog.h"
#include "change.h"
#include "clk.h"
#include "count.h"
#include "ctx.h"
#include "err.h"
#include "exit.h"
#include "flags.h"
#include "flush.h"
#include "gate.h"
#include "hint.h"
#include "hsrv.h"
#include "instance.h"
#include "keyring.h"
#include "kv_sweep.h"
#include "kvlimit.h"
#include "level.h"
#include "log.h"
#include "loop.h"
#include "maint.h"
#include "notify.h"
#include "pgconn.h"
#include "pgpool.h"
#include "pop.h"
#include "replay.h"
#include "route.h"
#include "schema.h"
#include "seal.h"
#include "settings.h"
#include "stats.h"
#include "timer_fire.h"

#ifndef QUEEN_VERSION
#error "QUEEN_VERSION comes from the Makefile"
#endif

enum {
	SCHEMA_RETRY_MS = 180000,
	STOP_SETTLE_MS = 2000, /* for calls in flight; then they are given up */
	STOP_GIVE_UP_MS = 1000,
	STOP_POLL_MS = 10,
};

struct boot {
	struct ctx x;
	struct settings conf;
	struct hsrv *metrics; /* listener of QUEEN_METRICS_BIND */
	struct loop_timer watchdog;
	struct loop_timer settle; /* after the drain: calls in flight */
	int64_t settle_until_ms;
	bool given_up, quiet;
	char *conninfo, *instance;
	bool listening;
	int code;
};

static void
usage(FILE *out)
{
	fprintf(out,
		"usage: queend [--help | --version | --check-config]\n"
		"\n"
		"The HTTP core of a message-broker cell. It is configured by\n"
		"the environment alone; see queend(8).\n"
		"\n"
		"  --check-config  print the effective settings and exit\n"
		"  --version       print the version and exit\n"
		"  --help          print this and exit\n"
		"\n"
		"environment:\n");
	conf_help(conf_items, conf_items_n, out);
}

static int
check_settings(const struct settings *s, struct err *e)
{
	if (strspn(s->bind_addr, "0123456789.:") != strlen(s->bind_addr) &&
		strchr(s->bind_addr, ':'))
		return err_set(e, ERR_CONFIG,
			"QUEEN_BIND_ADDR=\"%s\" must be a host or an IP "
			"without a port",
			s->bind_addr);
	const char *colon = strchr(s->bind_addr, ':');

	if (colon && !strchr(colon + 1, ':'))
		return err_set(e, ERR_CONFIG,
			"QUEEN_BIND_ADDR=\"%s\" must be a host or an IP "
			"without a port",
			s->bind_addr);
	return 0;
}

static int
make_gate(struct boot *b, struct err *e)
{
	struct gate_conf c = { GATE_CONF(&b->conf), .level = level_of };

	return gate_new(&c, &b->x.gate, e);
}

static int
make_conninfo(struct boot *b, struct err *e)
{
	struct pgconn_conf c = BOOT_PGCONN_CONF(&b->conf);

	b->conninfo = pgconn_info(&c, e);
	return b->conninfo ? 0 : -1;
}

static int
meet_database(struct boot *b, struct err *e)
{
	struct schema_cell cell;
	int rc;
	PGconn *pg = boot_open(b->conninfo, "queend", e);

	if (!pg)
		return -1;
	if (b->conf.apply_schema)
		rc = schema_apply(pg, SCHEMA_RETRY_MS, &cell, NULL, NULL, e);
	else
		rc = boot_schema(pg, &cell, e);
	if (rc == 0)
		rc = flags_load_sync(&b->x, pg, e);
	if (rc == 0)
		rc = keyring_prove(&b->x, pg, e);
	PQfinish(pg);
	if (rc != 0)
		return -1;
	b->x.cell_tag = cell.tag;
	memcpy(b->x.hash_key, cell.hash_key, sizeof(b->x.hash_key));
	return 0;
}

static void
start_pool(struct boot *b)
{
	int n = (int)b->conf.pool_size;
	struct pgpool_conf c = {
		.conninfo = b->conninfo,
		.application_name = "queend",
		.lanes_n = LANES,
		.stmt_timeout_ms = b->conf.stmt_timeout_ms,
	};

	/* 4, 3, 5, 4 of the default 16 */
	c.conns[LANE_PUSH] = n * 4 / 16 ? n * 4 / 16 : 1;
	c.conns[LANE_ACK] = n * 3 / 16 ? n * 3 / 16 : 1;
	c.conns[LANE_POP] = n * 5 / 16 ? n * 5 / 16 : 1;
	c.conns[LANE_REST] =
		n - c.conns[LANE_PUSH] - c.conns[LANE_ACK] - c.conns[LANE_POP];
	b->x.pool = pgpool_new(b->x.loop, &c);
}

static void
on_watchdog(void *arg)
{
	struct boot *b = arg;

	notify_alive();
	loop_timer_start(&b->watchdog, notify_watchdog_ms());
}

static int
listen_metrics(struct boot *b, struct err *e)
{
	char host[BOOT_HOST_MAX];
	int64_t port;

	if (!boot_listen(b->conf.metrics_bind, host, &port))
		return err_set(e, ERR_CONFIG,
			"QUEEN_METRICS_BIND=\"%s\" is not host:port",
			b->conf.metrics_bind);
	struct hsrv_conf c = {
		.routes = route_metrics_table,
		.routes_n = route_metrics_table_n,
		.unmatched = route_unmatched,
		.ctx = &b->x,
		.max_body_bytes = 1024,
		.memory_bytes = b->conf.http_memory_mb << 20,
	};

	b->metrics = hsrv_new(b->x.loop, &c);
	return hsrv_listen(b->metrics, host, (int)port, e);
}

static bool
on_gate(struct hsrv_req *r, int level)
{
	return gate_ask(ctx_of(r)->gate, r, level);
}

static int
start_listening(struct boot *b, struct err *e)
{
	struct hsrv_conf c = {
		.routes = route_table,
		.routes_n = route_table_n,
		.gate = on_gate,
		.unmatched = route_unmatched,
		.ctx = &b->x,
		.max_body_bytes = b->conf.max_body_bytes,
		.memory_bytes = b->conf.http_memory_mb << 20,
	};

	b->x.hsrv = hsrv_new(b->x.loop, &c);
	if (hsrv_listen(b->x.hsrv, b->conf.bind_addr, (int)b->conf.port, e) !=
		0)
		return -1;
	if (b->conf.metrics_bind && *b->conf.metrics_bind &&
		listen_metrics(b, e) != 0)
		return -1;
	return 0;
}

static void on_drained(void *arg);

/* The catalogue is loaded: from here on requests can be answered. */
static void
on_catalog(void *arg, const struct err *e)
{
	struct boot *b = arg;
	struct err why = ERR_ZERO;

	/* after a failure the change scan tries again */
	if (e || b->listening || b->x.stopping)
		return;
	b->listening = true;
	if (start_listening(b, &why) != 0) {
		b->code = boot_fatal(
			why.kind == ERR_CONFIG ? EXIT_CONFIG : EXIT_INTERNAL,
			why.text);
		on_drained(b);
		return;
	}
	log_line(LOG_INFO, "boot", "serving",
		"addr=%s port=%d instance=%s version=%s", b->conf.bind_addr,
		hsrv_port(b->x.hsrv), b->instance, QUEEN_VERSION);
	notify_ready();
	if (notify_watchdog_ms() > 0)
		on_watchdog(b);
}

/*
 * Calls in flight have owners that free them when they return; quiet twice,
 * because a look-up of names may rest between two calls.
 */
static void
on_settle(void *arg)
{
	struct boot *b = arg;
	struct pgpool_stats ps;
	bool was_quiet = b->quiet, late = clk_mono_ms() >= b->settle_until_ms;

	pgpool_stats(b->x.pool, &ps);
	b->quiet = ps.busy == 0 && ps.waiting == 0;
	if ((b->quiet && was_quiet) || (late && b->given_up)) {
		loop_stop(b->x.loop);
		return;
	}
	if (late) {
		b->given_up = true;
		b->settle_until_ms += STOP_GIVE_UP_MS;
		pgpool_stop(b->x.pool);
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
	if (!b->x.hsrv) {
		on_drained(b);
		return;
	}
	pops_drain(b->x.pops);
	hsrv_drain(b->x.hsrv, b->conf.shutdown_grace_ms, on_drained, b);
}

static void
on_hup(void *arg)
{
	(void)arg; /* there is nothing to reload */
}

static void
start_parts(struct boot *b)
{
	struct ctx *x = &b->x;

	start_pool(b);
	x->catalog = catalog_new(x);
	x->counts = counts_new(x);
	x->stats = stats_new(x);
	x->flush = flush_new(x);
	x->acks = acks_new(x);
	x->pops = pops_new(x);
	x->changes = changes_new(x);
	x->maint = maint_new(x);
	x->timer_fire = timer_fire_new(x);
	x->kv_sweep = kv_sweep_new(x);
	x->kvlimit = kvlimit_new(x);
	loop_timer_init(&b->watchdog, x->loop, on_watchdog, b);
	loop_timer_init(&b->settle, x->loop, on_settle, b);
	catalog_start(x->catalog, on_catalog, b);
}

static void
stop_parts(struct boot *b)
{
	struct ctx *x = &b->x;

	loop_timer_fini(&b->watchdog);
	loop_timer_fini(&b->settle);
	gate_stop(x->gate);
	hsrv_free(b->metrics);
	hsrv_free(x->hsrv);
	kvlimit_free(x->kvlimit);
	kv_sweep_free(x->kv_sweep);
	timer_fire_free(x->timer_fire);
	maint_free(x->maint);
	changes_free(x->changes);
	pops_free(x->pops);
	acks_free(x->acks);
	flush_free(x->flush);
	stats_free(x->stats);
	counts_free(x->counts);
	pgpool_free(x->pool);
	catalog_free(x->catalog);
}

static int
serve(struct boot *b)
{
	struct err e = ERR_ZERO;

	if (make_conninfo(b, &e) != 0 || meet_database(b, &e) != 0)
		return boot_fatal(boot_code(&e), e.text);
	b->instance = instance_take(
		b->conf.server_id, b->conf.run_dir, b->x.cell_tag, &e);
	if (!b->instance)
		return boot_fatal(EXIT_CONFIG, e.text);
	b->x.instance = b->instance;
	b->x.conninfo = b->conninfo;
	b->x.conf = &b->conf;
	b->x.started_ms = clk_mono_ms();
	b->x.loop = loop_new();
	loop_on_signal(b->x.loop, SIGTERM, on_term, b);
	loop_on_signal(b->x.loop, SIGINT, on_term, b);
	loop_on_signal(b->x.loop, SIGHUP, on_hup, b);
	if (gate_start(b->x.gate, b->x.loop, &e) != 0) {
		loop_free(b->x.loop);
		return boot_fatal(EXIT_CONFIG, e.text);
	}
	start_parts(b);
	loop_run(b->x.loop);
	stop_parts(b);
	gate_free(b->x.gate); /* its keys are fetched on the loop */
	b->x.gate = NULL;
	loop_free(b->x.loop);
	if (b->code == EXIT_CLEAN)
		log_line(LOG_INFO, "shutdown", "stopped", NULL);
	return b->code;
}

static void
wipe(char *secret)
{
	if (secret)
		explicit_bzero(secret, strlen(secret));
}

/*
 * Ring and gate have their own copies, in memory that is guarded; these, and
 * those of the environment, which /proc shows, are not needed any more.
 */
static void
wipe_keys(struct settings *conf)
{
	wipe(conf->encryption_key);
	wipe(conf->encryption_old_keys);
	wipe(conf->jwt_secret);
	for (size_t i = 0; i < conf_items_n; i++)
		if (conf_items[i].secret)
			wipe(getenv(conf_items[i].name));
}

int
main(int argc, char **argv)
{
	struct boot b = { .code = EXIT_CLEAN };
	struct err e = ERR_ZERO;
	bool check = false;

	if (argc == 2 && strcmp(argv[1], "--help") == 0) {
		usage(stdout);
		return EXIT_CLEAN;
	}
	if (argc == 2 && strcmp(argv[1], "--version") == 0) {
		printf("queend %s\n", QUEEN_VERSION);
		return EXIT_CLEAN;
	}
	if (argc == 2 && strcmp(argv[1], "--check-config") == 0) {
		check = true;
	} else if (argc != 1) {
		fprintf(stderr, "queend: unknown argument; see --help\n");
		return EXIT_CONFIG;
	}
	log_init(NULL, false);
	boot_harden(); /* before there is a secret in memory */
	if (conf_load(conf_items, conf_items_n, &b.conf, &e) != 0 ||
		check_settings(&b.conf, &e) != 0 || make_gate(&b, &e) != 0 ||
		seal_new(b.conf.encryption_key, b.conf.encryption_old_keys,
			&b.x.seal, &e) != 0) {
		gate_free(b.x.gate);
		conf_fini(conf_items, conf_items_n, &b.conf);
		return boot_fatal(EXIT_CONFIG, e.text);
	}
	if (check) {
		conf_print(conf_items, conf_items_n, &b.conf, stdout);
		gate_free(b.x.gate);
		seal_free(b.x.seal);
		conf_fini(conf_items, conf_items_n, &b.conf);
		return EXIT_CLEAN;
	}
	log_init(b.conf.rust_log && *b.conf.rust_log ? b.conf.rust_log
						     : b.conf.log_level,
		b.conf.log_json);
	conf_log(conf_items, conf_items_n, &b.conf);
	wipe_keys(&b.conf);
	conf_warn_ignored(conf_items, conf_items_n);
	if (b.conf.file_buffer_dir && *b.conf.file_buffer_dir)
		log_line(LOG_WARN, "boot",
			"FILE_BUFFER_DIR is ignored: this release has no spool",
			NULL);
	b.code = serve(&b);
	gate_free(b.x.gate);
	seal_free(b.x.seal);
	if (b.conninfo)
		explicit_bzero(b.conninfo, strlen(b.conninfo));
	free(b.conninfo);
	free(b.instance);
	conf_fini(conf_items, conf_items_n, &b.conf);
	return b.code;
}

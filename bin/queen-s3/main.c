/* SPDX-License-Identifier: Apache-2.0 */
/* queen-s3: boot order only; what the parts do is in their own files. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "boot.h"
#include "budget.h"
#include "buf.h"
#include "cell.h"
#include "conf.h"
#include "ctx.h"
#include "err.h"
#include "exit.h"
#include "host.h"
#include "log.h"
#include "loop.h"
#include "pgconn.h"
#include "schema.h"
#include "seal.h"
#include "sealproof.h"
#include "settings.h"

struct boot {
	struct ctx x;
	struct settings conf;
	struct seal *seal;
	struct buf pg_text;
	char *conninfo;
};

static void
usage(void)
{
	printf("usage: queen-s3 [--help | --version | --check-config]\n"
	       "\n"
	       "Mirrors queues into an S3 bucket, exactly once, as JSONL or\n"
	       "Parquet. It is configured by the environment alone, and by\n"
	       "`queenctl s3` for the sinks of tenants; see queen-s3(8).\n"
	       "\n"
	       "  --check-config  print the effective settings and exit\n"
	       "  --version       print the version and exit\n"
	       "  --help          print this and exit\n"
	       "\n"
	       "environment:\n");
	conf_help(conf_items, conf_items_n, stdout);
}

static void
wipe(char *secret)
{
	if (secret)
		explicit_bzero(secret, strlen(secret));
}

static int
make_conninfo(struct boot *b, struct err *e)
{
	struct pgconn_conf c = BOOT_PGCONN_CONF(&b->conf);

	b->conninfo = pgconn_info(&c, e);
	return b->conninfo ? 0 : -1;
}

static int
load(struct boot *b, struct err *e)
{
	if (settings_load(&b->conf, e) != 0 ||
		seal_new(b->conf.encryption_key, b->conf.encryption_old_keys,
			&b->seal, e) != 0)
		return -1;
	return make_conninfo(b, e);
}

static void
unload(struct boot *b)
{
	seal_free(b->seal);
	wipe(b->conninfo);
	free(b->conninfo);
	buf_fini(&b->pg_text);
	settings_fini(&b->conf);
}

/* One call of a boot: 1 or 0 as it answers, -1 when it fails. */
static int
try_call(PGconn *pg, const char *sql, struct err *e)
{
	PGresult *res = PQexec(pg, sql);
	int rc;

	if (PQresultStatus(res) == PGRES_TUPLES_OK) {
		rc = strcmp(PQgetvalue(res, 0, 0), "t") == 0;
	} else {
		rc = pgconn_err(e, res, pg);
		err_wrap(e, "the role may not read the cell (see `queenctl "
			    "schema grant`)");
	}
	PQclear(res);
	return rc;
}

/* What the sinks will call: may this role, and is safeTime whole? */
static int
try_calls(PGconn *pg, struct err *e)
{
	int degraded = try_call(pg,
		"select degraded from queen.safe_time_v1(5000, 30000),"
		" (select count(*) from queen.lake_queues_v1('" CTX_TENANT_DEFAULT
		"')) q, (select count(*) from queen.lake_sinks_v1()) s",
		e);
	int writes;

	if (degraded < 0)
		return -1;
	writes = try_call(pg,
		"select bool_and(has_table_privilege('queen.kv', p))"
		" from unnest('{insert,update,delete}'::text[]) p",
		e);
	if (writes == 0)
		err_set(e, ERR_AUTH,
			"the role may not write queen.kv (see `queenctl "
			"schema grant`)");
	if (writes <= 0)
		return -1;
	if (degraded)
		log_line(LOG_INFO, "queen-s3",
			"safeTime is degraded: grant pg_read_all_stats to the role",
			NULL);
	return 0;
}

static int
meet(struct boot *b, struct err *e)
{
	struct schema_cell cell;
	PGconn *pg = boot_open(b->conninfo, "queen-s3", e);
	int rc;

	if (!pg)
		return -1;
	rc = boot_schema(pg, &cell, e);
	if (rc == 0)
		rc = sealproof_check(b->seal, pg, e);
	if (rc == 0)
		rc = try_calls(pg, e);
	buf_printf(&b->pg_text, "host=%s port=%s dbname=%s user=%s", PQhost(pg),
		PQport(pg), PQdb(pg), PQuser(pg));
	buf_putc(&b->pg_text, '\0');
	PQfinish(pg);
	if (rc == 0)
		snprintf(b->x.cell_tag, sizeof(b->x.cell_tag), "%012" PRIx64,
			cell.tag & UINT64_C(0xffffffffffff));
	return rc;
}

static void
say_hello(struct boot *b)
{
	struct buf line = BUF_ZERO;

	if (b->conf.has_sink) {
		settings_boot_line(&b->conf, &b->conf.sink, CTX_TENANT_DEFAULT,
			b->pg_text.p, &line);
		log_line(LOG_INFO, "boot", "the sink of the environment",
			"%.*s", SPAN_ARG(buf_span(&line)));
	}
	buf_fini(&line);
	if (b->conf.crash_at != CRASH_NEVER)
		log_line(LOG_WARN, "boot",
			"this process will abort, for a test", "crash_at=%s",
			settings_crash_name(b->conf.crash_at));
}

static int
serve(struct boot *b)
{
	struct cell_conf cell = { .conninfo = b->conninfo,
		.seal = b->seal,
		.guard_ms = b->conf.time_guard_ms,
		.floor_ms = b->conf.safe_floor_ms };
	struct err e = ERR_ZERO;
	struct host *h;
	int code;

	b->x.conf = &b->conf;
	b->x.seal = b->seal;
	b->x.pg_text = b->pg_text.p;
	b->x.loop = loop_new();
	b->x.budget = budget_new(b->x.loop, b->conf.memory_mb << 20);
	b->x.cell = cell_new(b->x.loop, &cell);
	h = host_new(&b->x, &e);
	code = h ? host_run(h) : boot_fatal(EXIT_INTERNAL, e.text);
	host_free(h);
	cell_free(b->x.cell);
	budget_free(b->x.budget);
	loop_free(b->x.loop);
	return code;
}

static int
run(struct boot *b, bool check)
{
	struct err e = ERR_ZERO;

	log_init(NULL, false);
	boot_harden();
	if (load(b, &e) != 0)
		return boot_fatal(EXIT_CONFIG, e.text);
	log_init(b->conf.rust_log && *b->conf.rust_log ? b->conf.rust_log
						       : b->conf.log_level,
		b->conf.log_json);
	conf_warn_unknown(
		conf_items, conf_items_n, "QUEEN_S3_", "QUEEN_S3_URL");
	if (check) {
		conf_print(conf_items, conf_items_n, &b->conf, stdout);
		return EXIT_CLEAN;
	}
	conf_warn_ignored(conf_items, conf_items_n);
	conf_log(conf_items, conf_items_n, &b->conf);
	settings_wipe(&b->conf);
	if (meet(b, &e) != 0)
		return boot_fatal(boot_code(&e), e.text);
	say_hello(b);
	return serve(b);
}

int
main(int argc, char **argv)
{
	const char *word = argc == 2 ? argv[1] : "";
	bool check = strcmp(word, "--check-config") == 0;
	struct boot b = { .seal = NULL };
	int code;

	if (strcmp(word, "--help") == 0) {
		usage();
		return EXIT_CLEAN;
	}
	if (strcmp(word, "--version") == 0) {
		printf("queen-s3 %s\n", QUEEN_VERSION);
		return EXIT_CLEAN;
	}
	if (argc != 1 && !check) {
		fprintf(stderr, "queen-s3: unknown argument; see --help\n");
		return EXIT_CONFIG;
	}
	code = run(&b, check);
	unload(&b);
	return code;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * queen-pgsrc: boot order only.  Started by a person it is the parent of this
 * node's sources (lib/connhost); started by itself, with --child, it is one of
 * them.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

#include "conf.h"
#include "connchild.h"
#include "connhost.h"
#include "ctx.h"
#include "err.h"
#include "exit.h"
#include "log.h"
#include "loop.h"
#include "notify.h"
#include "pgconn.h"
#include "seal.h"
#include "settings.h"
#include "source.h"

#ifndef QUEEN_VERSION
#error "QUEEN_VERSION comes from the Makefile"
#endif

struct boot {
	struct settings conf;
	struct seal *seal;
	char *conninfo, *node;
};

static void
usage(FILE *out)
{
	fprintf(out,
		"usage: queen-pgsrc [--help | --version | --check-config]\n"
		"\n"
		"Streams tables of PostgreSQL databases into queues, exactly\n"
		"once. It is configured by the environment\n"
		"alone; see queen-pgsrc(8).\n"
		"\n"
		"  --check-config  print the effective settings and exit\n"
		"  --version       print the version and exit\n"
		"  --help          print this and exit\n"
		"\n"
		"environment:\n");
	conf_help(conf_items, conf_items_n, out);
}

static int
make_conninfo(struct boot *b, struct err *e)
{
	const struct settings *s = &b->conf;
	struct pgconn_conf c = {
		.conninfo = s->pg_conninfo,
		.host = s->pg_host,
		.port = s->pg_port,
		.user = s->pg_user,
		.password = s->pg_password,
		.database = s->pg_database && *s->pg_database ? s->pg_database
							      : s->pg_db,
		.use_ssl = s->pg_use_ssl,
		.reject_unauthorized = s->pg_ssl_reject_unauthorized,
		.ssl_root_cert = s->pg_ssl_root_cert,
	};

	b->conninfo = pgconn_info(&c, e);
	return b->conninfo ? 0 : -1;
}

static int
load(struct boot *b, struct err *e)
{
	if (conf_load(conf_items, conf_items_n, &b->conf, e) != 0 ||
		connhost_check_listen(
			"QUEEN_PGSRC_LISTEN", b->conf.listen, e) != 0 ||
		seal_new(b->conf.encryption_key, b->conf.encryption_old_keys,
			&b->seal, e) != 0)
		return -1;
	b->node = connhost_node(b->conf.server_id, e);
	return b->node && make_conninfo(b, e) == 0 ? 0 : -1;
}

static void
wipe(char *secret)
{
	if (secret)
		explicit_bzero(secret, strlen(secret));
}

static void
unload(struct boot *b)
{
	seal_free(b->seal);
	wipe(b->conninfo);
	free(b->conninfo);
	free(b->node);
	conf_fini(conf_items, conf_items_n, &b->conf);
}

/* ---- one source ---- */

static void
on_stop(void *arg, int64_t grace_ms)
{
	source_stop(arg, grace_ms);
}

static int
run_child(struct boot *b)
{
	struct ctx x = {
		.conf = &b->conf, .conninfo = b->conninfo, .seal = b->seal
	};
	struct connchild_face face = { .write_detail = source_write_detail,
		.write_metrics = source_write_metrics,
		.on_stop = on_stop };
	struct err e = ERR_ZERO;

	prctl(PR_SET_NAME, "queen-pgsrc"); /* else `exe`, as it was run */
	/* the parent keeps those of the environment for those to come */
	for (size_t i = 0; i < conf_items_n; i++)
		if (conf_items[i].secret)
			wipe(getenv(conf_items[i].name));
	x.loop = loop_new();
	x.child = connchild_open(x.loop, CONNHOST_FD, &face, &e);
	if (!x.child) {
		loop_free(x.loop);
		return connhost_fatal(EXIT_INTERNAL, e.text);
	}
	x.task = connchild_task(x.child);
	struct source *s = source_new(&x);

	connchild_set_arg(x.child, s);
	loop_run(x.loop);
	source_free(s);
	connchild_free(x.child);
	loop_free(x.loop);
	return EXIT_CLEAN;
}

/* ---- all of them ---- */

static int
run_parent(struct boot *b)
{
	char tag[CONNHOST_TAG_MAX];
	struct connhost_conf c = { .kind = CONNDOC_SOURCE,
		.tool = "queen-pgsrc",
		.conninfo = b->conninfo,
		.node = b->node,
		.cell_tag = tag,
		.listen = b->conf.listen,
		.seal = b->seal,
		.reload_ms = b->conf.reload_ms,
		.grace_ms = b->conf.shutdown_grace_ms };
	struct err e = ERR_ZERO;

	if (!b->conf.connectors) {
		notify_ready(); /* an end before that word is a failure */
		log_line(LOG_INFO, "boot",
			"QUEEN_PG_CONNECTORS is false: nothing runs here",
			NULL);
		return EXIT_CLEAN;
	}
	if (connhost_meet(&c, tag, &e) != 0)
		return connhost_fatal(connhost_code(&e), e.text);
	return connhost_run(&c);
}

static int
run(struct boot *b, bool check, bool child)
{
	struct err e = ERR_ZERO;

	log_init(NULL, false);
	connhost_harden();
	if (load(b, &e) != 0)
		return connhost_fatal(EXIT_CONFIG, e.text);
	if (check) {
		conf_print(conf_items, conf_items_n, &b->conf, stdout);
		return EXIT_CLEAN;
	}
	log_init(b->conf.rust_log && *b->conf.rust_log ? b->conf.rust_log
						       : b->conf.log_level,
		b->conf.log_json);
	if (!child && b->conf.connectors)
		conf_log(conf_items, conf_items_n, &b->conf);
	/* the ring has its own copies, in memory that is guarded */
	wipe(b->conf.encryption_key);
	wipe(b->conf.encryption_old_keys);
	return child ? run_child(b) : run_parent(b);
}

int
main(int argc, char **argv)
{
	const char *word = argc == 2 ? argv[1] : "";
	bool check = strcmp(word, "--check-config") == 0;
	bool child = strcmp(word, CONNHOST_CHILD) == 0;
	struct boot b = { .seal = NULL };
	int code;

	if (strcmp(word, "--help") == 0) {
		usage(stdout);
		return EXIT_CLEAN;
	}
	if (strcmp(word, "--version") == 0) {
		printf("queen-pgsrc %s\n", QUEEN_VERSION);
		return EXIT_CLEAN;
	}
	if (argc != 1 && !check && !child) {
		fprintf(stderr, "queen-pgsrc: unknown argument; see --help\n");
		return EXIT_CONFIG;
	}
	code = run(&b, check, child);
	unload(&b);
	return code;
}

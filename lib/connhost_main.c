/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The program of a tool: boot order only.  Started by a person it is the
 * parent of this node's connectors of one kind; started by itself, with
 * CONNHOST_CHILD, it is one of them.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

#include "boot.h"
#include "conf.h"
#include "connhost_int.h"
#include "exit.h"
#include "notify.h"
#include "pgconn.h"
#include "seal.h"

struct boot {
	const struct connhost_tool *tool;
	struct connhost_settings conf;
	struct seal *seal;
	char *conninfo, *node;
};

static void
usage(const struct connhost_tool *t)
{
	printf("usage: %s [--help | --version | --check-config]\n"
	       "\n"
	       "%s"
	       "\n"
	       "  --check-config  print the effective settings and exit\n"
	       "  --version       print the version and exit\n"
	       "  --help          print this and exit\n"
	       "\n"
	       "environment:\n",
		t->name, t->purpose);
	conf_help(t->items, t->items_n, stdout);
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
	const struct connhost_tool *t = b->tool;

	if (conf_load(t->items, t->items_n, &b->conf, e) != 0 ||
		boot_check_listen(t->listen_name, b->conf.listen, e) != 0 ||
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
	conf_fini(b->tool->items, b->tool->items_n, &b->conf);
}

static int
run_child(struct boot *b)
{
	const struct connhost_tool *t = b->tool;

	prctl(PR_SET_NAME, t->name); /* else `exe`, as it was run */
	/* the parent keeps those of the environment for those to come */
	for (size_t i = 0; i < t->items_n; i++)
		if (t->items[i].secret)
			wipe(getenv(t->items[i].name));
	return t->child(&b->conf, b->conninfo, b->seal);
}

static int
run_parent(struct boot *b)
{
	char tag[CONNHOST_TAG_MAX];
	struct connhost_conf c = { .kind = b->tool->kind,
		.tool = b->tool->name,
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
		return boot_fatal(boot_code(&e), e.text);
	return connhost_run(&c);
}

static int
run(struct boot *b, bool check, bool child)
{
	struct err e = ERR_ZERO;

	log_init(NULL, false);
	boot_harden();
	if (load(b, &e) != 0)
		return boot_fatal(EXIT_CONFIG, e.text);
	if (check) {
		conf_print(b->tool->items, b->tool->items_n, &b->conf, stdout);
		return EXIT_CLEAN;
	}
	log_init(b->conf.rust_log && *b->conf.rust_log ? b->conf.rust_log
						       : b->conf.log_level,
		b->conf.log_json);
	if (!child && b->conf.connectors)
		conf_log(b->tool->items, b->tool->items_n, &b->conf);
	/* the ring has its own copies, in memory that is guarded */
	wipe(b->conf.encryption_key);
	wipe(b->conf.encryption_old_keys);
	return child ? run_child(b) : run_parent(b);
}

int
connhost_main(const struct connhost_tool *t, int argc, char **argv)
{
	const char *word = argc == 2 ? argv[1] : "";
	bool check = strcmp(word, "--check-config") == 0;
	bool child = argc == 3 && strcmp(argv[1], CONNHOST_CHILD) == 0;
	struct boot b = { .tool = t };
	int code;

	if (strcmp(word, "--help") == 0) {
		usage(t);
		return EXIT_CLEAN;
	}
	if (strcmp(word, "--version") == 0) {
		printf("%s %s\n", t->name, QUEEN_VERSION);
		return EXIT_CLEAN;
	}
	if (argc != 1 && !check && !child) {
		fprintf(stderr, "%s: unknown argument; see --help\n", t->name);
		return EXIT_CONFIG;
	}
	code = run(&b, check, child);
	unload(&b);
	return code;
}

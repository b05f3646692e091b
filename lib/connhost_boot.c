/* SPDX-License-Identifier: Apache-2.0 */
/* What comes before the loop: it may block, and it may end the process. */
#include <errno.h>
#include <inttypes.h>
#include <sodium.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "clk.h"
#include "connhost_int.h"
#include "exit.h"
#include "pgconn.h"
#include "schema.h"
#include "sealproof.h"

enum {
	CONNECT_MS = 10000,
	SCHEMA_WAIT_MS = 60000,
	SCHEMA_POLL_US = 250000,
	NODE_MAX = 128,
};

int
connhost_code(const struct err *e)
{
	switch (e->kind) {
	case ERR_CONFIG:
		return EXIT_CONFIG;
	case ERR_DB_RETRY:
	case ERR_DB_UNKNOWN:
	case ERR_IO:
	case ERR_AUTH:
		return EXIT_DEPENDENCY;
	default:
		return EXIT_INTERNAL;
	}
}

int
connhost_fatal(int code, const char *text)
{
	char line[320];

	snprintf(line, sizeof(line), "FATAL: %s", text);
	log_line(LOG_ERROR, "boot", line, NULL);
	return code;
}

char *
connhost_node(const char *server_id, struct err *e)
{
	char host[65] = "", text[QID_TEXT_MAX];
	struct qid id = qid_new();

	if (server_id && server_id[0]) {
		if (strlen(server_id) > NODE_MAX) {
			err_set(e, ERR_CONFIG,
				"QUEEN_SERVER_ID is longer than %d bytes",
				NODE_MAX);
			return NULL;
		}
		return strdup(server_id);
	}
	if (gethostname(host, sizeof(host) - 1) == 0 && host[0])
		return strdup(host);
	return strdup(qid_text(&id, text));
}

void
connhost_harden(void)
{
	struct rlimit lim;

	prctl(PR_SET_DUMPABLE, 0);
	if (getrlimit(RLIMIT_NOFILE, &lim) == 0 &&
		lim.rlim_cur < lim.rlim_max) {
		lim.rlim_cur = lim.rlim_max;
		if (setrlimit(RLIMIT_NOFILE, &lim) != 0)
			log_line(LOG_WARN, "boot",
				"cannot raise the limit of open files", NULL);
	}
}

static int
wait_for_schema(PGconn *pg, struct schema_cell *cell, struct err *e)
{
	int64_t until_ms = clk_mono_ms() + SCHEMA_WAIT_MS;

	for (;;) {
		if (schema_read(pg, cell, e) != 0)
			return -1;
		if (cell->state == SCHEMA_SAME || cell->state == SCHEMA_NEWER)
			return 0;
		if (cell->state == SCHEMA_FOREIGN)
			return err_set(e, ERR_CONFIG,
				"the database holds schema major %d, this "
				"program needs %d",
				cell->major, SCHEMA_MAJOR);
		if (clk_mono_ms() >= until_ms)
			return err_set(e, ERR_DB_RETRY,
				"the schema of the cell is %s; start queend, "
				"or run `queenctl schema apply`",
				cell->state == SCHEMA_OLDER ? "older than "
							      "this program"
							    : "not there");
		usleep(SCHEMA_POLL_US);
	}
}

/*
 * Two processes of one name would take each other for an earlier life of
 * theirs and a source's lease from each other.  A socket without a file is
 * held as long as the process lives, and gone with it.
 */
static int
hold_name(const struct connhost_conf *c, const PGconn *pg, struct err *e)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	unsigned char hash[16];
	char who[512];
	int n = snprintf(who, sizeof(who), "%s/%s/%s:%s/%s", c->tool, c->node,
		PQhost(pg), PQport(pg), PQdb(pg));
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return err_errno(e, "cannot open a socket");
	if (n >= (int)sizeof(who))
		n = (int)sizeof(who) - 1;
	crypto_generichash(hash, sizeof(hash), (const unsigned char *)who,
		(unsigned long long)n, NULL, 0);
	snprintf(a.sun_path + 1, sizeof(a.sun_path) - 1, "queen/");
	sodium_bin2hex(
		a.sun_path + 7, 2 * sizeof(hash) + 1, hash, sizeof(hash));
	if (bind(fd, (struct sockaddr *)&a,
		    offsetof(struct sockaddr_un, sun_path) + 7 +
			    2 * sizeof(hash)) == 0)
		return 0; /* left open for the life of the process */
	if (errno == EADDRINUSE)
		err_set(e, ERR_CONFIG,
			"QUEEN_SERVER_ID=\"%s\" is in use by another %s of "
			"this cell on this machine; give each its own",
			c->node, c->tool);
	else
		err_errno(e, "cannot hold the name of this node");
	close(fd);
	return -1;
}

int
connhost_meet(const struct connhost_conf *c, char tag[CONNHOST_TAG_MAX],
	struct err *e)
{
	struct schema_cell cell;
	char app[64];
	PGconn *pg;
	int rc;

	snprintf(app, sizeof(app), "%s boot", c->tool);
	pg = pgconn_open_sync(c->conninfo, app, CONNECT_MS, e);
	if (!pg)
		return -1;
	rc = hold_name(c, pg, e);
	if (rc == 0)
		rc = wait_for_schema(pg, &cell, e);
	if (rc == 0)
		rc = sealproof_check(c->seal, pg, e);
	PQfinish(pg);
	if (rc == 0)
		snprintf(tag, CONNHOST_TAG_MAX, "%012" PRIx64,
			cell.tag & UINT64_C(0xffffffffffff));
	return rc;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* What comes before the loop: it may block, and it may end the process. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
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
	rc = wait_for_schema(pg, &cell, e);
	if (rc == 0)
		rc = sealproof_check(c->seal, pg, e);
	PQfinish(pg);
	if (rc == 0)
		snprintf(tag, CONNHOST_TAG_MAX, "%012" PRIx64,
			cell.tag & UINT64_C(0xffffffffffff));
	return rc;
}

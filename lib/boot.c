/* SPDX-License-Identifier: Apache-2.0 */
/* Before the loop runs: it waits, and may sleep. */
#include "boot.h"

#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "clk.h"
#include "err.h"
#include "exit.h"
#include "log.h"
#include "pgconn.h"
#include "schema.h"
#include "span.h"

enum {
	CONNECT_MS = 10000,
	SCHEMA_WAIT_MS = 60000,
	SCHEMA_POLL_US = 250000,
};

int
boot_code(const struct err *e)
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
boot_fatal(int code, const char *text)
{
	char line[1024];

	snprintf(line, sizeof(line), "FATAL: %s", text);
	log_line(LOG_ERROR, "boot", line, NULL);
	return code;
}

void
boot_harden(void)
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

bool
boot_listen(const char *text, char host[BOOT_HOST_MAX], int64_t *port)
{
	const char *colon = strrchr(text, ':');
	struct span h = span_make(text, colon ? (size_t)(colon - text) : 0);

	if (h.n > 2 && h.p[0] == '[' && h.p[h.n - 1] == ']')
		h = span_make(h.p + 1, h.n - 2);
	if (h.n == 0 || h.n >= BOOT_HOST_MAX ||
		!span_i64(span_of(colon + 1), port) || *port < 0 ||
		*port > 65535)
		return false;
	snprintf(host, BOOT_HOST_MAX, "%.*s", SPAN_ARG(h));
	return true;
}

int
boot_check_listen(const char *name, const char *text, struct err *e)
{
	char host[BOOT_HOST_MAX];
	int64_t port;

	if (!text || !text[0] || boot_listen(text, host, &port))
		return 0;
	return err_set(
		e, ERR_CONFIG, "%s=\"%.200s\" is not host:port", name, text);
}

PGconn *
boot_open(const char *conninfo, const char *tool, struct err *e)
{
	char app[64];

	snprintf(app, sizeof(app), "%s boot", tool);
	return pgconn_open_sync(conninfo, app, CONNECT_MS, e);
}

int
boot_schema(PGconn *pg, struct schema_cell *cell, struct err *e)
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

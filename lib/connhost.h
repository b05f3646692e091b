/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The parent of the connectors of one kind on a node: reads their documents,
 * keeps one process for each, hands them hints of new messages, writes their
 * status, and serves health and metrics.  It does no work of theirs, so that
 * what one of them suffers is its own.
 */
#ifndef QUEEN_CONNHOST_H
#define QUEEN_CONNHOST_H

#include <stdbool.h>
#include <stdint.h>

#include "conndoc.h"

struct err;
struct seal;

/* argv[1] of a connector's process; its task comes over descriptor 3. */
#define CONNHOST_CHILD "--child"
enum { CONNHOST_FD = 3, CONNHOST_TAG_MAX = 13 };

struct connhost_conf {
	enum conndoc_kind kind;
	const char *tool;		/* queen-pgsrc, queen-pgsink */
	const char *conninfo;		/* of the cell */
	const char *node;
	const char *cell_tag;		/* 12 hex */
	const char *listen;		/* host:port; empty = no listener */
	const struct seal *seal;	/* NULL: no key */
	int64_t reload_ms, grace_ms;
};

/* Runs until it is told to stop; the exit code. */
int connhost_run(const struct connhost_conf *c);

/* ---- boot, of parent and child ---- */

/*
 * Waits up to a minute for the schema, checks the keys against the cell, and
 * tells the cell's tag.  ERR_CONFIG: another process of this name, another
 * major, or a key that does not open what the cell seals with.
 */
int connhost_meet(const struct connhost_conf *c, char tag[CONNHOST_TAG_MAX],
	struct err *e) __attribute__((warn_unused_result));
/* host:port, or empty; name: of the variable, for the refusal. */
int connhost_check_listen(const char *name, const char *text, struct err *e)
	__attribute__((warn_unused_result));
/* Exit code of a failed boot. */
int connhost_code(const struct err *e);
/* Logs it as the reason of the end; returns the code. */
int connhost_fatal(int code, const char *text);
/* QUEEN_SERVER_ID, else host name, else random; allocated. */
char *connhost_node(const char *server_id, struct err *e);
/*
 * What holds passwords leaves no core and shows its memory and environment to
 * nobody; it may open as many files as the system lets it.
 */
void connhost_harden(void);

#endif

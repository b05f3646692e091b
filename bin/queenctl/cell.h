/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A private cell: a PostgreSQL data directory of its own, a socket folder
 * nobody else can enter, one queend and the tools that were asked for, held up
 * by one supervising queenctl.
 *
 *	DIR/data	the database
 *	DIR/log		postgres.log, queend.log, supervisor.log, one per tool
 *	DIR/key		QUEEN_ENCRYPTION_KEY of all of them, made with the
 *			first tool; mode 0600
 *	DIR/cell.lock	locked by the supervisor for its life; holds its pid
 *	DIR/cell.env	how to reach it: URLs, PG_HOST, PG_USER, PG_DATABASE
 *
 * Run by root, all of them run as an unprivileged user.
 */
#ifndef QUEENCTL_CELL_H
#define QUEENCTL_CELL_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct err;

enum { CELL_PATH = 1024, CELL_PORT_DEFAULT = 6632, CELL_OJS_PORT = 6634 };
enum { CELL_TOOLS = 4 };

/* Where everything of a cell is; filled by cell_locate. */
struct cell {
	char dir[CELL_PATH];		/* absolute */
	char sock[108];			/* socket folder */
	char user[64];			/* who runs the servers */
	uid_t uid;
	gid_t gid;
	bool as_root;			/* we drop from root to that user */
	char bind[256];			/* QUEEN_BIND_ADDR */
	int port;			/* HTTP */
	char bindir[CELL_PATH];		/* initdb and postgres */
	char queend[CELL_PATH];
	bool with[CELL_TOOLS];		/* of cell_tools */
	char tool[CELL_TOOLS][CELL_PATH];
};

/* What may run beside queend. */
struct cell_tool {
	const char *word;		/* in --with: pgsrc */
	const char *name;		/* queen-pgsrc */
	const char *listen_env, *listen; /* host:port, or the port of --bind */
};
extern const struct cell_tool cell_tools[CELL_TOOLS];

/* A supervisor that is there. */
struct cell_running {
	pid_t pid;
	char url[300], ojs_url[300];
	char pg_host[108], pg_user[64], pg_database[64];
	char with[64];			/* a comma list of words */
};

#define CELL_DATABASE "queen"

/*
 * dir NULL: /var/lib/queen/cell for root, $XDG_DATA_HOME/queen/cell else.
 * Creates nothing.  ERR_CONFIG when a path does not fit.
 */
int cell_locate(struct cell *c, const char *dir, struct err *e)
	__attribute__((warn_unused_result));
/* list: pgsrc,pgsink,s3,ojs or NULL; ERR_CONFIG names the word that is none. */
int cell_with(struct cell *c, const char *list, struct err *e)
	__attribute__((warn_unused_result));
/* Is the tool in such a list? */
bool cell_with_has(const char *list, int tool);
/* Finds PostgreSQL 15 or newer and our programs; to start, not to stop. */
int cell_find_programs(struct cell *c, struct err *e)
	__attribute__((warn_unused_result));
/* True when a supervisor holds the cell; out may be NULL. */
bool cell_is_running(const struct cell *c, struct cell_running *out);

/*
 * Starts the cell unless it runs (*was_up), and returns once it answers.
 * *supervisor gets the pid of the process that holds it up.  detach: it lives
 * on by itself; else it ends with this process, which calls cell_wait.
 */
int cell_up(struct cell *c, bool detach, bool *was_up, pid_t *supervisor,
	struct err *e) __attribute__((warn_unused_result));
/* Waits for the supervisor's end, handing SIGINT and SIGTERM on; its status. */
int cell_wait(pid_t supervisor);
/* Ends the supervisor and waits for it.  1 = there was none. */
int cell_down(struct cell *c, int64_t timeout_ms, struct err *e)
	__attribute__((warn_unused_result));

/*
 * The cell that `up` last started by this user, for commands without a
 * server: its directory, or false.
 */
bool cell_last(char dir[CELL_PATH]);
void cell_remember(const char *dir);

#endif

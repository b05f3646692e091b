/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shared by the files of connhost:
 *	connhost_main.c		the program: settings, parent or child
 *	connhost.c		boot, ticks, shutdown
 *	connhost_boot.c		what comes before the loop
 *	connhost_doc.c		documents to units
 *	connhost_unit.c		what a unit does next
 *	connhost_child.c	processes: start, stop, end
 *	connhost_status.c	the status block, counters
 *	connhost_row.c		the rows others read
 *	connhost_work.c		hints, marks, change scan
 *	connhost_http.c		health and metrics
 */
#ifndef QUEEN_CONNHOST_INT_H
#define QUEEN_CONNHOST_INT_H

#include <sys/queue.h>
#include <sys/types.h>

#include "buf.h"
#include "connhost.h"
#include "connmetric.h"
#include "connpipe.h"
#include "err.h"
#include "log.h"
#include "loop.h"
#include "map.h"
#include "qid.h"

struct cellscan;
struct hint;
struct hsrv;
struct pgconn;
struct unit;
struct watch;

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

/* What the document wants of this node. */
enum unit_want {
	UNIT_RUN,
	UNIT_REST,	/* enabled: false */
	UNIT_BAD,	/* does not parse, or its password does not open */
	UNIT_GONE,	/* there is no document any more */
};

/* Where it is; the first three have no process. */
enum unit_state {
	UNIT_IDLE,
	UNIT_WAITS,	/* for its time, or for a place to start */
	UNIT_REMOVES,	/* torn down; its document is being removed */
	UNIT_RUNS,
	UNIT_STOPS,	/* told to */
};

struct unit {
	struct connhost *host;
	struct buf key;			/* of the document */
	struct qid tenant;
	struct span name;		/* in key */
	TAILQ_ENTRY(unit) link, waiting, watching;
	bool is_waiting;		/* in host->waiting */
	bool seen;			/* in the documents being read */
	/* the document */
	int64_t version;
	struct buf doc, print;		/* print: the restart fingerprint */
	bool kind_known;
	enum unit_want want;
	const char *code;		/* UNIT_BAD: config or unseal */
	struct buf why;
	/* its process */
	enum unit_state state;
	pid_t pid;
	struct connpipe *pipe;
	struct buf run_print;		/* fingerprint it was begun with */
	enum unit_want run_want;
	bool heard, left, torn_down;	/* what it told */
	bool removing;			/* the call is in flight */
	int64_t started_ms, pause_ms, again_ms;
	struct loop_timer timer;	/* the next start, kill or removal */
	/* what is shown */
	int64_t generation;
	uint64_t crashes, restarts;	/* of this generation, ended processes' */
	const char *phase;		/* without a process, or before its word */
	int64_t since_us;
	struct buf status;		/* its last word, JSON */
	struct buf error, last_error;	/* JSON; of the parent, of both */
	uint64_t base[CONNMETRIC_N], now[CONNMETRIC_N];
	bool has[CONNMETRIC_N];
	uint64_t errors;		/* counted here */
	bool forget;			/* removed: counters start over */
	bool dirty;
	int64_t put_ms;			/* last written; 0 = never */
	/* work */
	struct watch *watch;		/* of its queue; NULL = none */
	struct buf marks;		/* int64_t */
	bool mark_all;
};

TAILQ_HEAD(unit_list, unit);

struct connhost {
	struct connhost_conf conf;
	struct loop *loop;
	struct pgconn *conn;		/* documents and status */
	bool cell_up;
	struct err cell_why;
	struct hsrv *hsrv;
	struct hint *hint;
	struct cellscan *scan;		/* sinks alone */
	struct map units;
	struct unit_list list, waiting;
	size_t units_n, children, booting;
	int64_t started_ms;
	/* documents */
	struct loop_timer reload;
	bool reading, read_again;
	struct err documents_why;	/* kind ERR_NONE: read well */
	bool documents_read;
	struct log_sampler bad_key, bad_read;
	/* status */
	struct loop_timer flush;
	bool putting;
	int64_t flushed_ms;
	struct buf drops;		/* keys of rows to drop, \n-ended */
	struct log_sampler bad_put;
	uint64_t put_failures, crashes;
	/* work */
	struct map watches;
	struct loop_timer second;
	bool marks_later;
	/* the end */
	struct loop_timer watchdog, last;
	bool stopping;
};

/* connhost.c */
/* Runs until it is told to stop; the exit code. */
int connhost_run(const struct connhost_conf *c);

/* connhost_boot.c */
/*
 * Waits up to a minute for the schema, checks the keys against the cell, and
 * tells the cell's tag.  ERR_CONFIG: another process of this name, another
 * major, or a key that does not open what the cell seals with.
 */
int connhost_meet(const struct connhost_conf *c, char tag[CONNHOST_TAG_MAX],
	struct err *e) __attribute__((warn_unused_result));
/* QUEEN_SERVER_ID, else host name, else random; allocated. */
char *connhost_node(const char *server_id, struct err *e);

/* connhost_doc.c */
void connhost_doc_read(struct connhost *h);

/* connhost_unit.c */
/* The unit of a key, made when there is none. */
struct unit *connhost_unit_get(struct connhost *h, struct span key);
/* Goes on from what is: the document, the process, the time. */
void connhost_unit_step(struct unit *u);
void connhost_unit_free(struct unit *u);
/* Its process ended; how: one line for the status. */
void connhost_unit_ended(struct unit *u, const char *how);
/* Starts those that wait, as many as may boot at once. */
void connhost_unit_next(struct connhost *h);
void connhost_unit_phase(struct unit *u, const char *phase);

/* connhost_child.c */
int connhost_child_start(struct unit *u, struct err *e);
void connhost_child_stop(struct unit *u, int64_t grace_ms);
void connhost_child_kill(struct unit *u);
/* On SIGCHLD. */
void connhost_child_reap(void *host);

/* connhost_status.c */
/* The last word of the unit's process is in u->status. */
void connhost_status_heard(struct unit *u);
/* An error that the parent saw. */
void connhost_status_error(struct unit *u, const char *code,
	const char *text);
/* Counters of a process that ended become those of the unit. */
void connhost_status_settle(struct unit *u);
/* The block, and the families as an object. */
void connhost_status_write(struct unit *u, struct buf *b);
void connhost_status_metrics(const struct unit *u, struct buf *b);
uint64_t connhost_status_metric(const struct unit *u, int i, bool *has);

/* connhost_row.c */
void connhost_row_touch(struct unit *u);
void connhost_row_drop(struct unit *u);
/* At most twice a second; later ones do nothing. */
void connhost_row_flush(void *host);

/* connhost_work.c */
void connhost_work_start(struct connhost *h);
void connhost_work_free(struct connhost *h);
void connhost_work_watch(struct unit *u, int64_t queue_id);
void connhost_work_announce(struct unit *u, struct span body);

/* connhost_http.c */
int connhost_http_start(struct connhost *h, struct err *e);

#endif

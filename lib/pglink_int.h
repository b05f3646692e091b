/* SPDX-License-Identifier: Apache-2.0 */
/* What the rooms of pglink share. */
#ifndef QUEEN_PGLINK_INT_H
#define QUEEN_PGLINK_INT_H

#include "buf.h"
#include "connfault.h"
#include "egress.h"
#include "loop.h"
#include "pglink.h"

struct event;

enum pglink_op_kind { OP_QUERY, OP_STREAM, OP_EXEC, OP_SYNC };

/* A statement that was asked for, or the end of a flight. */
struct pglink_op {
	struct pglink_op *next;
	enum pglink_op_kind kind;
	pglink_fn fn;
	void *arg;
	char *sql;
	char *name;		/* OP_EXEC: as the caller says it, or NULL */
	struct buf data;	/* parameters of one that waits */
	int *len;		/* -1 = null */
	int params_n;
	bool preparing;		/* the first of its two commands prepares */
	unsigned generation;	/* then: of the name */
	bool describe;		/* nothing is run */
	int commands, done, ok;	/* in the pipeline */
	PGresult **res;
	int res_n;
	bool failed;		/* why is set */
	struct connfault why;
};

struct pglink_ops {
	struct pglink_op *first, **end;
};

/* A statement prepared on this link, or being prepared. */
struct pglink_stmt {
	struct pglink_stmt *next;
	bool ready;
	uint64_t flight;	/* in which it is prepared */
	char name[];
};

enum pglink_state {
	PGLINK_LOOKING,		/* for addresses */
	PGLINK_DIALLING,
	PGLINK_UP,
	PGLINK_LOST,		/* on_later reports it */
	PGLINK_OVER,		/* reported */
};

enum pglink_copy { COPY_NONE, COPY_RUNS, COPY_ENDS };

struct pglink {
	struct loop *loop;
	enum pglink_use use;
	pglink_up_fn on_up;
	pglink_end_fn on_end;
	void *arg;
	enum pglink_state state;
	PGconn *pg;
	struct event *rd, *wr;	/* while dialling rd is for either */
	struct loop_timer limit;	/* of a dial, of a finish */
	struct loop_timer later;	/* a loss; more of the stream */
	struct connfault why;
	bool condemned;		/* why holds the server's last word */
	bool dead;		/* the socket has come to its end */
	int depth;		/* callbacks of ours on the stack */
	bool freed;

	/* the dial */
	const struct conndoc_conn *conn;
	struct span password;
	const char *ca_file;
	struct egress *look;
	struct egress_found found;
	int at;			/* of found */
	bool allow_private;
	char *app, *options;
	int pem_fd;

	/* statements */
	struct pglink_ops sent, waiting;

	/* the pipeline */
	struct pglink_stmt *stmts;
	unsigned generation;	/* of their names on the server */
	uint64_t flight;
	bool open;		/* something was sent since the last sync */
	bool prepare_failed;	/* the last failure was a prepare's */

	/* the stream */
	enum pglink_copy copy;
	bool paused, finishing, undrained;
	pglink_data_fn on_data;
	void (*on_drained)(void *arg);
	void *stream_arg;
	pglink_warning_fn on_warning;	/* NULL: nobody wants to know */
	void *warning_arg;
};

/* pglink.c */
void pglink_enter(struct pglink *k);
void pglink_leave(struct pglink *k);
/* Closes; who waits hears of it from the loop, so it is safe anywhere. */
void pglink_lose(struct pglink *k, const struct connfault *why);
/* The same with what the server or libpq said. */
void pglink_lose_broken(struct pglink *k);
/* Takes the socket of a connection that is ready into use. */
void pglink_came_up(struct pglink *k);
/* Sends what is buffered; the write event carries the rest. */
void pglink_flush(struct pglink *k);
/* Looks at a failed result: remembers why the server ends the session. */
void pglink_heed(struct pglink *k, const PGresult *r);

/* pglink_dial.c */
void pglink_dial_start(struct pglink *k, const struct pglink_conf *c);
/* An address has had its time. */
void pglink_dial_late(struct pglink *k);
/* Drops what only a dial needs. */
void pglink_dial_end(struct pglink *k);

/* pglink_param.c */
/*
 * The environment without PG*, which libpq would heed in every step of a
 * dial; for the time of one call of it.
 */
struct pglink_env {
	char **was, **less;
};
void pglink_env_hide(struct pglink_env *v);
void pglink_env_back(struct pglink_env *v);
char *pglink_param_options(const char *const *settings);
/* NULL with *why when the certificate cannot be kept. */
PGconn *pglink_param_start(struct pglink *k, struct connfault *why);
/* Why a dial failed. */
void pglink_param_fault(struct pglink *k, struct connfault *why);

/* pglink_query.c */
struct pglink_op *pglink_op_new(enum pglink_op_kind kind, const char *sql,
	pglink_fn fn, void *arg);
void pglink_op_free(struct pglink_op *o);
void pglink_op_fail(struct pglink_op *o, const struct connfault *why);
/* Calls back and frees. */
void pglink_op_answer(struct pglink_op *o);
void pglink_ops_init(struct pglink_ops *l);
void pglink_ops_add(struct pglink_ops *l, struct pglink_op *o);
struct pglink_op *pglink_ops_take(struct pglink_ops *l);
/* Behind what waits; it is sent when its turn comes. */
void pglink_queue(struct pglink *k, struct pglink_op *o);
void pglink_query_send(struct pglink *k);
void pglink_query_read(struct pglink *k);

/* pglink_pipe.c */
void pglink_pipe_send(struct pglink *k);
void pglink_pipe_read(struct pglink *k);
void pglink_pipe_fini(struct pglink *k);

/* pglink_stream.c */
/* The answer to the statement came: COPY BOTH. */
void pglink_stream_began(struct pglink *k, struct pglink_op *o);
void pglink_stream_step(struct pglink *k);
/* Frames are here that were not given yet. */
bool pglink_stream_has_more(const struct pglink *k);
void pglink_stream_late(struct pglink *k);

#endif

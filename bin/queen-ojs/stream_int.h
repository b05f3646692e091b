/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the stream handlers alone. */
#ifndef QUEEN_OJS_STREAM_INT_H
#define QUEEN_OJS_STREAM_INT_H

#include <libpq-fe.h>
#include <stdbool.h>
#include <stdint.h>

#include "pgbin.h"
#include "span.h"

struct hsrv_req;
struct jwrite;

/* Column `verdict` of every queen.stream_* function. */
enum stream_verdict {
	STREAM_OK,
	STREAM_NOTHING, /* to deliver; append, subscribe: no stream yet */
	STREAM_NO_QUEUE,
	STREAM_NO_CONSUMER,
	STREAM_TOO_LARGE, /* the next batch is above `max` */
	STREAM_MIXED, /* plain and cooperative at once */
	STREAM_NO_BATCH,
	STREAM_HOLDER, /* another consumer's or member's batch */
	STREAM_WAITS, /* acked, earlier batches are not */
	STREAM_REBASE, /* restored from a dump, not rebased yet */
	STREAM_NO_MESSAGE, /* of the batch */
	STREAM_AMBIGUOUS, /* several messages of this id */
	STREAM_NO_TICK,
	STREAM_NO_DEAD /* letter */
};
/* Of an append alone, where no queue is missing. */
enum { STREAM_FULL = STREAM_NO_QUEUE };

/* What the refusal of a call may name. */
struct stream_names {
	struct span queue, consumer, message, tick;
	int64_t batch, seq, dead;
};
/* The answer to a verdict that is no success. */
void
stream_refuse(struct hsrv_req *r, int verdict, const struct stream_names *n);

/* A refusal that passes: with Retry-After. */
void stream_later(
	struct hsrv_req *r, int status, const char *code, const char *text);

/* A call that makes what is missing, then starts again. */
struct stream_make {
	struct span queue;
	int tries;
	void (*again)(struct hsrv_req *r, void *arg);
	void *arg;
};
/* *m lives in the arena of the request. */
void stream_make(struct hsrv_req *r, struct stream_make *m);

/* 200 with this body when there is such a queue, else 404. */
void stream_if_queue(struct hsrv_req *r, struct span queue, struct span empty);

/* A path parameter that is a number of at least 1; false after 400. */
bool
stream_path_number(struct hsrv_req *r, int i, const char *field, int64_t *v);
/* A path parameter that is a consumer's or member's name. */
bool stream_path_name(
	struct hsrv_req *r, int i, const char *field, struct span *name);

/*
 * A message as a consumer sees it, from columns seq, event_id, type, payload,
 * headers, retry_count, created_at, outcome, in this order from col on;
 * payload false = without payload and headers.
 */
enum { STREAM_MESSAGE_COLS = 8 };
void stream_write_message(
	struct buf *b, const PGresult *res, int row, int col, bool payload);

/* An answer that is being written; in the arena of the request. */
struct stream_rows {
	struct hsrv_req *req;
	bool payload;
	PGresult *rows;
	int row;
};
/*
 * Takes the rows of the call that is done, whose first is the head, writes
 * `,"messages":[...]}` behind what there is of the answer, and replies.
 */
void stream_reply_rows(struct stream_rows *w);

#endif

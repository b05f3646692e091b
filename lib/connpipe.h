/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What goes over the pair of sockets between the parent and the process of
 * one connector: frames of u32 length, u8 kind and a body, in the machine's
 * own byte order, because both ends are the same program.
 */
#ifndef QUEEN_CONNPIPE_H
#define QUEEN_CONNPIPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "qid.h"
#include "span.h"

struct buf;
struct connpipe;
struct err;
struct loop;

enum connpipe_kind {
	/* down */
	CONNPIPE_TASK = 1,	/* struct connpipe_task */
	CONNPIPE_MARKS,		/* parts; none: any may have work */
	CONNPIPE_STOP,		/* number: milliseconds of grace */
	/* up */
	CONNPIPE_STATUS,	/* JSON, see connchild.c */
	CONNPIPE_WATCH,		/* number: queue id */
	CONNPIPE_ANNOUNCE,	/* parts; none: some were dropped */
	CONNPIPE_LEAVE,		/* number: 1 = torn down */
	CONNPIPE_KINDS
};

enum { CONNPIPE_FRAME_MAX = 16 << 20, CONNPIPE_PARTS_MAX = 4096 };

struct connpipe_events {
	/* body: borrowed until it returns. */
	void (*on_frame)(void *arg, enum connpipe_kind kind, struct span body);
	/* The other end is gone, or talks nonsense; once. */
	void (*on_end)(void *arg);
	void *arg;
};

/* Takes the descriptor over. */
struct connpipe *connpipe_new(struct loop *l, int fd,
	const struct connpipe_events *ev);
/* Not from inside its callbacks. */
void connpipe_free(struct connpipe *p);
/* Never blocks; what the socket does not take waits here. */
void connpipe_send(struct connpipe *p, enum connpipe_kind kind,
	struct span body);
size_t connpipe_unsent_bytes(const struct connpipe *p);
/* Hands out what has arrived: the last words of an end that is gone. */
void connpipe_drain(struct connpipe *p);
/* Waits until all is sent, at most limit_ms. */
void connpipe_flush(struct connpipe *p, int64_t limit_ms);

/* Boot only: waits for the first frame, which must be of this kind. */
int connpipe_first(int fd, enum connpipe_kind kind, int64_t limit_ms,
	struct buf *body, struct err *e) __attribute__((warn_unused_result));

/* ---- bodies ---- */

struct connpipe_task {
	struct qid tenant;
	int64_t version, grace_ms;
	struct span name, node, cell_tag, doc;
};
void connpipe_write_task(struct buf *b, const struct connpipe_task *t);
/* Borrows from the body; false when it is none. */
bool connpipe_read_task(struct span body, struct connpipe_task *t);

void connpipe_send_number(struct connpipe *p, enum connpipe_kind kind,
	int64_t v);
bool connpipe_read_number(struct span body, int64_t *v);

/* As many frames as it takes; n = 0: one without parts. */
void connpipe_send_parts(struct connpipe *p, enum connpipe_kind kind,
	int64_t queue_id, const int64_t *parts, size_t n);
bool connpipe_read_parts(struct span body, int64_t *queue_id,
	int64_t parts[CONNPIPE_PARTS_MAX], size_t *n);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Request bodies of the stream routes, read in one pass.  Spans point into
 * the body or the arena.  Unknown members are passed over, null means absent
 * (but as a payload), and of a member given twice the last one counts.  0, or
 * -1 with the problem.
 */
#ifndef QUEEN_OJS_STREAM_BODY_H
#define QUEEN_OJS_STREAM_BODY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "reply.h"
#include "span.h"

struct arena;

enum {
	STREAM_BATCH_MAX = 1000, /* messages of one append */
	STREAM_HEADERS_MAX = 65536, /* bytes */
	STREAM_MAX_MAX = 100000, /* of a receive, and its default */
};

struct stream_message {
	struct span id; /* n = 0 = none given */
	struct span type;
	struct span payload, headers; /* JSON as sent; headers n = 0 = none */
};

/* max_bytes: of one message as sent. */
int stream_body_append(struct span body, struct arena *a, int64_t max_bytes,
	struct stream_message *m, struct problem *p)
	__attribute__((warn_unused_result));
int stream_body_append_batch(struct span body, struct arena *a,
	int64_t max_bytes, struct stream_message **m, size_t *n,
	struct problem *p) __attribute__((warn_unused_result));

struct stream_subscribe {
	struct span consumer;
	struct span from; /* n = 0, "now", or digits */
};
int stream_body_subscribe(struct span body, struct arena *a,
	struct stream_subscribe *s, struct problem *p)
	__attribute__((warn_unused_result));

struct stream_receive {
	struct span consumer, member; /* member n = 0 = plain */
	int max;
	int64_t wait_ms, dead_ms; /* dead_ms 0 = no takeover */
};
int
stream_body_receive(struct span body, struct arena *a, struct stream_receive *s,
	struct problem *p) __attribute__((warn_unused_result));

struct stream_end {
	struct span queue;
	int64_t batch;
	struct span consumer, member; /* ack; n = 0 = not given */
	struct span message; /* nack; n = 0 = not given */
	int64_t seq; /* nack; 0 = not given */
	int64_t retry_ms; /* nack; -1 = not given */
	struct span reason; /* nack; n = 0 = not given */
};
int stream_body_ack(struct span body, struct arena *a, struct stream_end *s,
	struct problem *p) __attribute__((warn_unused_result));
int stream_body_nack(struct span body, struct arena *a, struct stream_end *s,
	struct problem *p) __attribute__((warn_unused_result));

/* `^[A-Za-z0-9][A-Za-z0-9_-]{0,127}$`: of a consumer or a member. */
bool stream_body_name_ok(struct span s);
/* A number of at least 1, as in a path or a query. */
bool stream_body_number(struct span s, int64_t *v);

#endif

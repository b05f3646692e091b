/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside the HTTP server.  hsrv_head, hsrv_uri and hsrv_body are pure: bytes
 * in, verdict out, no clock, no descriptor.  hsrv_conn moves bytes, hsrv_reply
 * is what handlers see, hsrv owns listeners and what connections share.
 */
#ifndef QUEEN_HSRV_INT_H
#define QUEEN_HSRV_INT_H

#include <sys/queue.h>

#include "hsrv.h"
#include "log.h"
#include "loop.h"

/* ---- request head ---- */
enum {
	HSRV_LINE_MAX = 16 << 10,	/* request line, 414 above */
	HSRV_HEAD_MAX = 32 << 10,	/* whole head, 431 above */
	HSRV_FIELDS_MAX = 100,		/* header lines, 431 above */
};

struct hsrv_field {
	struct span name, value;
};

struct hsrv_head {
	enum hsrv_method method;
	int minor;			/* HTTP/1.minor */
	struct span path, query;	/* query without the '?' */
	struct hsrv_field *fields;	/* of the caller */
	int fields_n;
	int64_t length;			/* Content-Length, -1 = none */
	bool chunked;
	bool keep_alive;
	bool expect_continue;
	/* when refused */
	int status;
	const char *error;
};

/*
 * Where the head ends: its length with the blank line, 0 = more bytes needed,
 * -1 = refused (h->status, h->error).  *scanned remembers between calls how
 * far the same bytes were looked at; starts at 0.
 */
int hsrv_head_end(struct span in, size_t *scanned, struct hsrv_head *h);
/*
 * Parses a whole head into h (fields: room for HSRV_FIELDS_MAX); spans borrow
 * from in.  False when refused.
 */
bool hsrv_head_parse(struct span in, struct hsrv_field *fields,
	struct hsrv_head *h);
/* `name: value` without the line end; false when malformed. */
bool hsrv_head_field(struct span line, struct hsrv_field *f);

/* ---- request target ---- */
enum { HSRV_PARAMS_MAX = 8 };

/* NULL, or what is wrong with the escapes: malformed, %00, not UTF-8. */
const char *hsrv_uri_check(struct span raw);
/* Length of the longest front part that is UTF-8 and whole characters. */
size_t hsrv_uri_utf8_prefix(struct span s);
/* Number of parameters, or -1 when the pattern does not match. */
int hsrv_uri_match(const char *pattern, struct span path, struct arena *a,
	struct span params[HSRV_PARAMS_MAX]);
bool hsrv_uri_query(struct span query, const char *key, struct arena *a,
	struct span *out);

/* ---- chunked body ---- */
enum {
	HSRV_CHUNK_LINE_MAX = 256,	/* one size line with extensions */
	HSRV_CHUNK_EXTRA_MAX = 8192,	/* extensions and trailers in all */
};
enum hsrv_chunk_state {
	HSRV_CHUNK_SIZE, HSRV_CHUNK_EXT, HSRV_CHUNK_SIZE_LF, HSRV_CHUNK_DATA,
	HSRV_CHUNK_DATA_CR, HSRV_CHUNK_DATA_LF, HSRV_CHUNK_TRAILER,
	HSRV_CHUNK_TRAILER_LF, HSRV_CHUNK_END
};
enum hsrv_chunk_verdict {
	HSRV_CHUNK_MORE, HSRV_CHUNK_DONE, HSRV_CHUNK_BAD, HSRV_CHUNK_LARGE
};
struct hsrv_chunk {
	enum hsrv_chunk_state state;
	uint64_t left;		/* of the open chunk, or its size so far */
	uint64_t total;		/* decoded bytes promised so far */
	int digits;
	size_t line, extra;
	char trailer[HSRV_CHUNK_LINE_MAX];
	const char *error;
};
/*
 * Consumes from *in up to the end of the body, appends the plain bytes to out.
 * LARGE as soon as a chunk size promises more than max_bytes in all.
 */
enum hsrv_chunk_verdict hsrv_body_chunked(struct hsrv_chunk *k,
	struct span *in, struct buf *out, int64_t max_bytes);

/* ---- request ---- */
enum { HSRV_EXTRA_HEADERS_MAX = 8 };

struct hsrv_req {
	struct hsrv *s;
	struct hsrv_conn *c;
	struct arena *arena;		/* = &arena_own */
	struct arena arena_own;
	enum hsrv_method method;
	struct span path, query;
	struct hsrv_field *fields;
	int fields_n;
	const struct hsrv_route *route;	/* NULL = unmatched */
	struct span params[HSRV_PARAMS_MAX];
	int params_n;
	struct buf body;
	int64_t body_counted;		/* in s->stats.body_bytes */
	void *user;
	const void *who;
	/* reply */
	struct buf out;
	const char *type;
	struct {
		const char *name, *value;
	} extra[HSRV_EXTRA_HEADERS_MAX];
	int extra_n;
	struct span head_out;		/* in the arena */
	size_t sent;			/* of head and body together */
	size_t out_n;			/* body bytes that are really sent */
	bool begun;			/* conf.begin has seen it */
	bool replied;
	SLIST_ENTRY(hsrv_req) spare;
};

/* ---- connection ---- */
enum hsrv_state {
	HSRV_AT_HEAD,	/* idle or in the head */
	HSRV_AT_BODY,	/* reading the body; may wait for memory */
	HSRV_AT_HANDLER,	/* a handler owns the request */
	HSRV_AT_WRITE,	/* the reply is on its way */
	HSRV_AT_LINGER,	/* answered; discards so that the answer arrives */
	HSRV_AT_DEAD,	/* closed; freed at the end of the turn */
};

struct hsrv_conn {
	struct hsrv *s;
	struct loop *loop;
	int fd;
	enum hsrv_state state;
	struct event *ev_read;		/* edge-triggered, always registered */
	struct event *ev_write;		/* made at the first stalled write */
	struct loop_timer timer;	/* deadline of the state */
	bool timer_on;			/* initialised */

	bool readable;	/* the kernel may have bytes or the end */
	bool short_read; /* the last read got less than it could */
	bool hangup;	/* EPOLLRDHUP was seen */
	bool in_step;	/* hsrv_conn_step is on the stack */
	bool later;	/* a deferred call is on its way */
	bool idle;	/* on s->idle */
	bool parked;
	bool gone;	/* the client is known to be away */
	bool gone_told;	/* on_gone was called */
	bool keep_alive;
	bool http10;
	bool chunked;
	bool must_close; /* framing in doubt, or bytes of ours unread */
	bool waiting;	/* on s->waiters */
	bool gated;	/* the gate keeps the request */
	bool passed;	/* and has let it go since */
	bool expect_continue;
	bool stalled;	/* on s->stalled */
	int served;

	struct hsrv_req *req;
	hsrv_fn on_gone;
	struct buf in;		/* read but not consumed */
	int64_t in_counted;	/* of it in s->held_bytes */
	size_t scanned;		/* hsrv_head_end */
	int64_t length_left;	/* of a counted body; -1 = none */
	int64_t skip;		/* refused body bytes to jump over */
	struct hsrv_chunk *chunk;	/* in the arena of the request */
	int64_t body_from_ms;
	int64_t body_wire_bytes;
	int64_t waiting_from_ms;	/* 0 = not */
	int64_t lingered_bytes;
	int64_t idle_from_ms;
	TAILQ_ENTRY(hsrv_conn) idle_link, wait_link, stalled_link;
	LIST_ENTRY(hsrv_conn) link;
};

void hsrv_conn_new(struct hsrv *s, int fd);
/* Closes at once; memory goes at the end of the turn. */
void hsrv_conn_close(struct hsrv_conn *c);
/* Runs the state machine at the end of the turn. */
void hsrv_conn_later(struct hsrv_conn *c);
/* The reply of c->req is complete in r->head_out and r->out: send it. */
void hsrv_conn_send(struct hsrv_conn *c);
/* An idle connection while draining: a last look, then the end. */
void hsrv_conn_drain(struct hsrv_conn *c);
bool hsrv_conn_hangs_up(struct hsrv_conn *c, bool half);

/* ---- reply ---- */
/* Once per request: conf.begin. */
void hsrv_reply_begin(struct hsrv_req *r);
/* Answers c->req with an error and closes afterwards. */
void hsrv_reply_refuse(struct hsrv_conn *c, int status, const char *text);

/* ---- server ---- */
enum {
	HSRV_SCRATCH_BYTES = 64 << 10,
	HSRV_SPARE_MAX = 64,		/* request objects kept */
	HSRV_KEEP_BYTES = 64 << 10,	/* largest buffer kept in one */
	HSRV_LISTENERS_MAX = 16,
};
struct hsrv_listener {
	struct hsrv *s;
	int fd;
	struct event *ev;
};
TAILQ_HEAD(hsrv_conns, hsrv_conn);
struct hsrv {
	struct loop *loop;
	struct hsrv_conf conf;
	struct hsrv_listener listeners[HSRV_LISTENERS_MAX];
	int listeners_n;
	int port;
	LIST_HEAD(hsrv_conn_list, hsrv_conn) conns;
	struct hsrv_conns idle;		/* oldest first */
	struct hsrv_conns waiters;	/* bodies waiting for memory */
	struct hsrv_conns stalled;	/* longest without progress first */
	SLIST_HEAD(hsrv_req_list, hsrv_req) spare;
	int spare_n;
	struct loop_timer idle_timer, accept_timer, drain_timer;
	struct log_sampler accept_log;
	bool draining, drained;
	int64_t drain_until_ms;
	void (*on_drained)(void *);
	void *drained_arg;
	int64_t held_bytes;		/* bodies and bytes not consumed */
	int64_t stalled_bytes;		/* replies of s->stalled */
	struct hsrv_stats stats;
	/* shared scratch of whoever runs now */
	struct hsrv_field fields[HSRV_FIELDS_MAX];
	char scratch[HSRV_SCRATCH_BYTES];
};

struct hsrv_req *hsrv_req_new(struct hsrv *s, struct hsrv_conn *c);
void hsrv_req_free(struct hsrv_req *r);
void hsrv_idle_add(struct hsrv_conn *c);
void hsrv_idle_del(struct hsrv_conn *c);
/* Counts body bytes of r; their release wakes who waits. */
void hsrv_memory_add(struct hsrv_req *r, int64_t bytes);
/* Counts what c->in holds now: pipelined bytes cost memory like bodies. */
void hsrv_memory_in(struct hsrv_conn *c);
bool hsrv_memory_full(const struct hsrv *s);
void hsrv_memory_wait(struct hsrv_conn *c);
void hsrv_memory_unwait(struct hsrv_conn *c);
/*
 * The socket of c is full before its reply is out; moved: it took a part just
 * now.  Above the bound whoever took nothing for the longest time is closed,
 * never c.
 */
void hsrv_stalled_add(struct hsrv_conn *c, bool moved);
void hsrv_stalled_del(struct hsrv_conn *c);
void hsrv_conn_gone(struct hsrv *s);	/* one connection less */

#endif

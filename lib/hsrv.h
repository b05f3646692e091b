/* SPDX-License-Identifier: Apache-2.0 */
/*
 * HTTP/1.1 server on libevent (RFC 9112).  Route, gate and size are
 * decided before the body is read; one request in flight per connection,
 * pipelined bytes stay unread; a client that vanishes while its request is
 * parked is noticed.  Head 10 s, body 10 s + 1 s per 64 KiB, idle 75 s.
 * Body bytes in flight are bounded over all connections.  All errors JSON,
 * `{"error":"..."}` unless hsrv_conf says otherwise.
 */
#ifndef QUEEN_HSRV_H
#define QUEEN_HSRV_H

#include <stdbool.h>
#include <stdint.h>

#include "arena.h"
#include "buf.h"
#include "err.h"
#include "span.h"

struct loop;
struct hsrv;
struct hsrv_req;

enum hsrv_method {
	HSRV_GET, HSRV_HEAD, HSRV_POST, HSRV_PUT, HSRV_DELETE, HSRV_OTHER
};

enum { HSRV_NO_ROUTE = -1 };

typedef void (*hsrv_fn)(struct hsrv_req *r);

/*
 * Tried in table order.  Pattern segments: literal, `:name` (one segment,
 * percent-decoded), or a last `*name` (the decoded rest, slashes included).
 */
struct hsrv_route {
	enum hsrv_method method;	/* HEAD is served by GET routes */
	const char *pattern;
	hsrv_fn handle;
	int level;			/* meaning is the gate's */
};

struct hsrv_conf {
	const struct hsrv_route *routes;
	size_t routes_n;
	/*
	 * Before the body, and for paths without a route (HSRV_NO_ROUTE):
	 * true to go on; false after having replied, or to keep the request,
	 * bodies unread, until hsrv_gate_pass or a reply.  NULL = all pass.
	 */
	bool (*gate)(struct hsrv_req *r, int level);
	hsrv_fn unmatched;	/* no route; sees method and path, no body */
	/*
	 * NULL, or called once per request, before route and gate: type and
	 * headers set here are those of every reply.  A head that is refused
	 * has neither path nor headers then.  Must not reply.
	 */
	hsrv_fn begin;
	/*
	 * NULL, or writes the body of an error (hsrv_reply_error, and what
	 * the server refuses itself) into an empty hsrv_out, and sets the
	 * type where the handler may have set another.  Must not reply.
	 */
	void (*error)(struct hsrv_req *r, int status, const char *text);
	void *ctx;		/* hsrv_ctx(r) */
	int64_t max_body_bytes;
	bool own_port;		/* without SO_REUSEPORT */
	/* body bytes in flight, and as much of unread replies, in all */
	int64_t memory_bytes;
	int busy_status;	/* of who waits in vain for them; 0 = 503 */
	/* 0 = the figures above; tests shorten them */
	int64_t head_timeout_ms, body_timeout_ms, idle_timeout_ms;
	int64_t write_timeout_ms;	/* 30 s without progress */
	int64_t linger_ms;		/* 2 s */
	int64_t memory_wait_ms;		/* 5 s, then busy_status */
};

struct hsrv *hsrv_new(struct loop *l, const struct hsrv_conf *c);
/*
 * Listens with SO_REUSEPORT (but own_port) and SO_REUSEADDR, backlog 4096; may
 * be called for several addresses.  ERR_IO when it cannot.  host: IP or name;
 * port 0 = any (hsrv_port tells).
 */
int hsrv_listen(struct hsrv *s, const char *host, int port, struct err *e)
	__attribute__((warn_unused_result));
int hsrv_port(const struct hsrv *s);
/*
 * Accepts until EAGAIN, closes the listeners, answers what is in hand with
 * `Connection: close`; on_drained comes when the last connection is gone or
 * after grace_ms.
 */
void hsrv_drain(struct hsrv *s, int64_t grace_ms, void (*on_drained)(void *),
	void *arg);
void hsrv_free(struct hsrv *s);

struct hsrv_stats {
	uint64_t accepted, requests;
	int connections, parked;
	int64_t body_bytes;
};
void hsrv_stats(const struct hsrv *s, struct hsrv_stats *out);

/* ---- a request; owned by the handler until reply or drop ---- */
void *hsrv_ctx(const struct hsrv_req *r);
enum hsrv_method hsrv_method(const struct hsrv_req *r);
struct span hsrv_path(const struct hsrv_req *r);	/* as sent, no query */
/*
 * The methods that have a route for this path, as an `Allow` header wants
 * them: "GET, HEAD, POST", in the arena; NULL when no route knows the path.
 */
const char *hsrv_allow(struct hsrv_req *r);
/* A gate that kept the request lets it go on; never from inside the gate. */
void hsrv_gate_pass(struct hsrv_req *r);
/* What the gate found out about the sender, for the handler. */
void hsrv_set_who(struct hsrv_req *r, const void *who);
const void *hsrv_who(const struct hsrv_req *r);
/* i-th decoded path parameter. */
struct span hsrv_param(const struct hsrv_req *r, int i);
/* First value of a query key, decoded (`+` is a space); false when absent. */
bool hsrv_query(const struct hsrv_req *r, const char *key, struct span *out);
/* Was there a `?`, even with nothing behind it? */
bool hsrv_has_query(const struct hsrv_req *r);
/* A header by case-insensitive name; false when absent. */
bool hsrv_header(const struct hsrv_req *r, const char *name,
	struct span *out);
/* How often it stands there. */
int hsrv_header_count(const struct hsrv_req *r, const char *name);
struct span hsrv_body(const struct hsrv_req *r);	/* contiguous */
/* Lives until the last byte of the reply is out. */
struct arena *hsrv_arena(struct hsrv_req *r);
/* The handler's own pointer, e.g. its state of this request. */
void hsrv_set_user(struct hsrv_req *r, void *user);
void *hsrv_user(const struct hsrv_req *r);

/* Body of the reply, filled before hsrv_reply. */
struct buf *hsrv_out(struct hsrv_req *r);
/* type/value must outlive the request (literals or its arena). */
void hsrv_set_type(struct hsrv_req *r, const char *content_type);
void hsrv_add_header(struct hsrv_req *r, const char *name, const char *value);
/* What hsrv_add_header gave this name, spelt the same; NULL = nothing. */
const char *hsrv_added_header(const struct hsrv_req *r, const char *name);
/* Ends the handler's ownership.  204 sends no body and no Content-Length. */
void hsrv_reply(struct hsrv_req *r, int status);
/* {"error":"..."}, or what hsrv_conf.error makes of it; text is escaped. */
void hsrv_reply_error(struct hsrv_req *r, int status, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
/*
 * Watches for the client to vanish; on_gone is called at most once, never
 * after a reply, and must end in hsrv_drop.  A half-closed client counts as
 * gone only while parked.
 */
void hsrv_park(struct hsrv_req *r, hsrv_fn on_gone);
void hsrv_unpark(struct hsrv_req *r);
bool hsrv_is_gone(const struct hsrv_req *r);	/* client known to be away */
void hsrv_drop(struct hsrv_req *r);		/* no answer; closes */

#endif

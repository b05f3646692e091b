/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One connection as a state machine on plain libevent events.  The read event
 * is edge-triggered and registered once: what arrives while nobody wants it
 * stays in the kernel and costs nothing, and the end of the peer is still
 * told.  (libevent 2.1's bufferevents read 4 KiB a turn, and an EV_CLOSED
 * watch alone spins on a reset without reporting it.)  A connection is never
 * closed while a handler owns its request.
 */
#include "hsrv_int.h"

#include <errno.h>
#include <event2/event.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

enum {
	TURN_BYTES = 256 << 10, /* read in one turn */
	TURN_REQUESTS = 32, /* served in one turn */
	LINGER_BYTES = 256 << 10,
	FULL_READ_BYTES = 4 << 10, /* of a head while memory is short */
	BODY_BYTES_PER_S = 64 << 10,
	DRAIN_FRESH_MS = 1000, /* for who connected just before */
};

/* The bytes in hand: in c->in, or still in the shared scratch. */
struct view {
	struct span s;
	bool kept; /* s lies at the front of c->in */
	int64_t read_bytes; /* this turn */
	int requests;
};

static void on_timer(void *arg);
static void resume(struct hsrv_conn *c);
static void step(struct hsrv_conn *c);

/* ---- life ---- */

static void
timer_start(struct hsrv_conn *c, int64_t after_ms)
{
	if (!c->timer_on) {
		loop_timer_init(&c->timer, c->loop, on_timer, c);
		c->timer_on = true;
	}
	loop_timer_start(&c->timer, after_ms);
}

static void
timer_stop(struct hsrv_conn *c)
{
	if (c->timer_on && loop_timer_pending(&c->timer))
		loop_timer_stop(&c->timer);
}

static void
call_gone(struct hsrv_conn *c)
{
	hsrv_fn fn = c->on_gone;

	c->gone = true;
	c->on_gone = NULL;
	hsrv_unpark(c->req);
	c->gone_told = true;
	fn(c->req);
}

static void
on_later(void *arg)
{
	struct hsrv_conn *c = arg;

	c->later = false;
	if (c->state == HSRV_AT_DEAD)
		free(c);
	else if (c->passed && c->state == HSRV_AT_HANDLER)
		resume(c);
	else if (c->parked && c->on_gone &&
		 (c->gone || hsrv_conn_hangs_up(c, true)))
		call_gone(c);
	else
		step(c);
}

void
hsrv_conn_later(struct hsrv_conn *c)
{
	if (c->later)
		return;
	c->later = true;
	loop_later(c->loop, on_later, c);
}

void
hsrv_conn_close(struct hsrv_conn *c)
{
	struct hsrv *s = c->s;

	if (c->state == HSRV_AT_DEAD)
		return;
	c->state = HSRV_AT_DEAD;
	hsrv_idle_del(c);
	hsrv_memory_unwait(c);
	hsrv_stalled_del(c);
	buf_fini(&c->in);
	hsrv_memory_in(c);
	event_free(c->ev_read);
	if (c->ev_write)
		event_free(c->ev_write);
	if (c->timer_on)
		loop_timer_fini(&c->timer);
	if (c->req) {
		if (c->parked)
			hsrv_unpark(c->req);
		hsrv_req_free(c->req);
		c->req = NULL;
	}
	close(c->fd);
	LIST_REMOVE(c, link);
	hsrv_conn_gone(s);
	c->s = NULL;
	hsrv_conn_later(c);
}

/*
 * Asks the kernel, which knows more than the events told: an error, both
 * directions closed, or (half) the peer's end of sending.
 */
bool
hsrv_conn_hangs_up(struct hsrv_conn *c, bool half)
{
	struct pollfd p = { .fd = c->fd, .events = POLLRDHUP };
	short mask = (short)(POLLERR | POLLHUP | (half ? POLLRDHUP : 0));

	return poll(&p, 1, 0) == 1 && (p.revents & mask);
}

static void
on_read(evutil_socket_t fd, short what, void *arg)
{
	struct hsrv_conn *c = arg;

	(void)fd;
	c->readable = true;
	c->short_read = false;
	if (what & EV_CLOSED)
		c->hangup = true;
	switch (c->state) {
	case HSRV_AT_HANDLER:
		if (c->parked && c->on_gone) {
			if (hsrv_conn_hangs_up(c, true))
				call_gone(c);
		} else if (hsrv_conn_hangs_up(c, false)) {
			c->gone = true;
		}
		break;
	case HSRV_AT_HEAD:
	case HSRV_AT_BODY:
	case HSRV_AT_LINGER:
		step(c);
		break;
	case HSRV_AT_WRITE: /* a write will find out */
	case HSRV_AT_DEAD:
		break;
	}
}

void
hsrv_conn_new(struct hsrv *s, int fd)
{
	struct hsrv_conn *c = calloc(1, sizeof(*c));

	BUG(!c);
	c->s = s;
	c->loop = s->loop;
	c->fd = fd;
	c->ev_read = event_new(loop_base(s->loop), fd,
		EV_READ | EV_CLOSED | EV_ET | EV_PERSIST, on_read, c);
	BUG(!c->ev_read);
	LIST_INSERT_HEAD(&s->conns, c, link);
	s->stats.connections++;
	s->stats.accepted++;
	if (event_add(c->ev_read, NULL) < 0) {
		hsrv_conn_close(c);
		return;
	}
	hsrv_idle_add(c);
	if (s->draining)
		hsrv_conn_drain(c);
}

/* ---- reading ---- */

static void
keep_view(struct hsrv_conn *c, struct view *v)
{
	if (!v->kept) {
		if (v->s.n)
			buf_put_span(&c->in, v->s);
	} else if (v->s.n == 0) {
		buf_fini(&c->in);
	} else if (v->s.p != c->in.p) {
		buf_skip(&c->in, (size_t)(v->s.p - c->in.p));
	}
	v->kept = c->in.len > 0;
	v->s = buf_span(&c->in);
}

static void
view_skip(struct view *v, size_t n)
{
	v->s = span_make(v->s.p + n, v->s.n - n);
}

/* Edge-triggered: registering anew reports again what is still unread. */
static void
rearm(struct hsrv_conn *c)
{
	c->readable = false;
	event_del(c->ev_read);
	if (event_add(c->ev_read, NULL) < 0)
		hsrv_conn_close(c);
}

enum more { MORE_GOT, MORE_NOT_NOW, MORE_END, MORE_LOST };

/*
 * After a short read the kernel is most likely empty, which saves a call per
 * request.  It is not believed where that could hide an end: EPOLLRDHUP came
 * along, or a reset, which libevent reports as nothing but readable.
 */
static bool
may_read(const struct hsrv_conn *c, bool in_request)
{
	return c->readable && (!c->short_read || c->hangup || in_request);
}

/* Reads once, behind what is in hand. */
static enum more
read_more(struct hsrv_conn *c, struct view *v)
{
	struct hsrv *s = c->s;
	size_t want = sizeof(s->scratch);
	ssize_t n;

	if (!may_read(c, c->state != HSRV_AT_HEAD || v->s.n))
		return MORE_NOT_NOW;
	if (v->read_bytes >= TURN_BYTES) {
		rearm(c);
		return c->state == HSRV_AT_DEAD ? MORE_LOST : MORE_NOT_NOW;
	}
	if (v->s.n || v->kept)
		keep_view(c, v);
	if (c->state == HSRV_AT_HEAD && hsrv_memory_full(s))
		want = FULL_READ_BYTES;
	n = recv(c->fd, s->scratch, want, 0);
	if (n == 0)
		return MORE_END;
	if (n < 0) {
		if (errno != EAGAIN && errno != EINTR)
			return MORE_LOST;
		c->readable = errno == EINTR;
		return MORE_NOT_NOW;
	}
	v->read_bytes += n;
	c->short_read = (size_t)n < want;
	if (v->kept) {
		buf_put(&c->in, s->scratch, (size_t)n);
		v->s = buf_span(&c->in);
	} else {
		v->s = span_make(s->scratch, (size_t)n);
	}
	return MORE_GOT;
}

/* ---- head ---- */

static void
begin_linger(struct hsrv_conn *c)
{
	c->state = HSRV_AT_LINGER;
	c->lingered_bytes = 0;
	shutdown(c->fd, SHUT_WR);
	timer_start(c, c->s->conf.linger_ms);
}

static void
give_to_handler(struct hsrv_conn *c)
{
	struct hsrv_req *r = c->req;

	timer_stop(c);
	c->state = HSRV_AT_HANDLER;
	if (r->route)
		r->route->handle(r);
	else
		c->s->conf.unmatched(r);
}

static void
find_route(struct hsrv_req *r)
{
	const struct hsrv_conf *conf = &r->s->conf;
	enum hsrv_method m = r->method;

	for (size_t i = 0; i < conf->routes_n; i++) {
		const struct hsrv_route *t = &conf->routes[i];
		int n;

		if (t->method != m &&
			!(m == HSRV_HEAD && t->method == HSRV_GET))
			continue;
		n = hsrv_uri_match(t->pattern, r->path, r->arena, r->params);
		if (n >= 0) {
			r->route = t;
			r->params_n = n;
			return;
		}
	}
}

/* The gate let it through: size, then the handler at once or the body first. */
static void
admitted(struct hsrv_conn *c, size_t in_hand)
{
	struct hsrv *s = c->s;
	struct hsrv_req *r = c->req;

	if (!r->route) {
		give_to_handler(c);
		return;
	}
	if (c->length_left > s->conf.max_body_bytes) {
		hsrv_reply_refuse(c, 413, "request body too large");
		return;
	}
	c->must_close = false;
	c->skip = 0;
	if (!c->chunked && c->length_left <= 0) {
		give_to_handler(c);
		return;
	}
	c->state = HSRV_AT_BODY;
	if (c->chunked) {
		c->length_left = 0;
		c->chunk = arena_zalloc(r->arena, sizeof(*c->chunk));
	}
	c->body_from_ms = loop_now_ms(c->loop);
	c->body_wire_bytes = 0;
	c->waiting_from_ms = 0;
	timer_start(c, s->conf.body_timeout_ms);
	if (c->expect_continue && in_hand == 0) {
		static const char go[] = "HTTP/1.1 100 Continue\r\n\r\n";

		/* Nothing is before it in the socket: it fits or is lost. */
		if (send(c->fd, go, sizeof(go) - 1, MSG_NOSIGNAL) !=
			(ssize_t)sizeof(go) - 1)
			hsrv_conn_close(c);
	}
}

/* Route and gate. */
static void
admit(struct hsrv_conn *c, const struct hsrv_head *h, size_t in_hand)
{
	struct hsrv *s = c->s;
	struct hsrv_req *r = c->req;
	bool body = h->chunked || h->length > 0;

	c->chunked = h->chunked;
	c->length_left = h->length;
	c->chunk = NULL;
	c->expect_continue = h->expect_continue;
	c->passed = false;
	/* Refused before its body: jump over a short one, else close. */
	c->skip = 0;
	if (body && !h->chunked && h->length <= (int64_t)in_hand)
		c->skip = h->length;
	else if (body)
		c->must_close = true;
	s->stats.requests++;
	c->served++;
	find_route(r);
	c->state = HSRV_AT_HANDLER; /* the gate may reply */
	c->gated = true;
	if (s->conf.gate &&
		!s->conf.gate(r, r->route ? r->route->level : HSRV_NO_ROUTE)) {
		/* kept: the body stays where it is until the verdict */
		if (c->state == HSRV_AT_HANDLER && body) {
			c->skip = 0;
			c->must_close = true;
		}
		return;
	}
	c->gated = false;
	admitted(c, in_hand);
}

void
hsrv_gate_pass(struct hsrv_req *r)
{
	struct hsrv_conn *c = r->c;

	BUG(!c->gated || c->state != HSRV_AT_HANDLER);
	c->passed = true;
	hsrv_conn_later(c);
}

/* From the loop: the gate that kept the request has let it go. */
static void
resume(struct hsrv_conn *c)
{
	c->passed = false;
	c->gated = false;
	admitted(c, c->in.len);
	if (c->state == HSRV_AT_BODY)
		step(c);
}

/* False when more bytes are needed. */
static bool
step_head(struct hsrv_conn *c, struct view *v)
{
	struct hsrv *s = c->s;
	struct hsrv_head h = { .status = 0 };
	struct hsrv_req *r;
	struct span head;
	int end;

	if (v->s.n == 0)
		return false;
	hsrv_idle_del(c);
	end = hsrv_head_end(v->s, &c->scanned, &h);
	if (end == 0)
		return false;
	c->scanned = 0;
	c->must_close = false;
	timer_stop(c);
	r = hsrv_req_new(s, c);
	c->req = r;
	if (end < 0) {
		hsrv_reply_refuse(c, h.status, h.error);
		return true;
	}
	head = arena_dup(r->arena, span_make(v->s.p, (size_t)end));
	view_skip(v, (size_t)end);
	v->requests++;
	if (!hsrv_head_parse(head, s->fields, &h)) {
		hsrv_reply_refuse(c, h.status, h.error);
		return true;
	}
	r->method = h.method;
	r->path = h.path;
	r->query = h.query;
	r->fields_n = h.fields_n;
	r->fields = arena_alloc(
		r->arena, sizeof(*r->fields) * ((size_t)h.fields_n + 1));
	memcpy(r->fields, s->fields, sizeof(*r->fields) * (size_t)h.fields_n);
	c->keep_alive = h.keep_alive;
	c->http10 = h.minor == 0;
	hsrv_reply_begin(r);
	admit(c, &h, v->s.n);
	if (c->state != HSRV_AT_DEAD && c->skip) {
		view_skip(v, (size_t)c->skip);
		c->skip = 0;
	}
	return true;
}

/* ---- body ---- */

static bool
body_counted(struct hsrv_conn *c, struct view *v)
{
	struct buf *b = &c->req->body;
	size_t n = (uint64_t)c->length_left < v->s.n ? (size_t)c->length_left
						     : v->s.n;

	/* Grows with what has come, whatever was announced. */
	buf_put(b, v->s.p, n);
	view_skip(v, n);
	c->length_left -= (int64_t)n;
	c->body_wire_bytes += (int64_t)n;
	hsrv_memory_add(c->req, (int64_t)n);
	if (c->length_left > 0)
		return false;
	give_to_handler(c);
	return true;
}

static bool
body_chunked(struct hsrv_conn *c, struct view *v)
{
	struct hsrv_req *r = c->req;
	size_t before = r->body.len, wire = v->s.n;
	enum hsrv_chunk_verdict verdict = hsrv_body_chunked(
		c->chunk, &v->s, &r->body, c->s->conf.max_body_bytes);

	c->body_wire_bytes += (int64_t)(wire - v->s.n);
	hsrv_memory_add(r, (int64_t)(r->body.len - before));
	switch (verdict) {
	case HSRV_CHUNK_MORE:
		return false;
	case HSRV_CHUNK_DONE:
		give_to_handler(c);
		break;
	case HSRV_CHUNK_BAD:
		hsrv_reply_refuse(c, 400, c->chunk->error);
		break;
	case HSRV_CHUNK_LARGE:
		hsrv_reply_refuse(c, 413, "request body too large");
		break;
	}
	return true;
}

/* False when more bytes are needed. */
static bool
step_body(struct hsrv_conn *c, struct view *v)
{
	if (v->s.n == 0)
		return false;
	return c->chunked ? body_chunked(c, v) : body_counted(c, v);
}

static int64_t
body_deadline_ms(const struct hsrv_conn *c)
{
	return c->body_from_ms + c->s->conf.body_timeout_ms +
	       c->body_wire_bytes * 1000 / BODY_BYTES_PER_S;
}

/* No reading while memory is short; true when it has to wait. */
static bool
wait_for_memory(struct hsrv_conn *c)
{
	char byte;

	if (!hsrv_memory_full(c->s)) {
		if (c->waiting_from_ms) {
			/* the pause was ours, not the client's */
			int64_t now = loop_now_ms(c->loop);

			hsrv_memory_unwait(c);
			c->body_from_ms += now - c->waiting_from_ms;
			c->waiting_from_ms = 0;
			timer_start(c, body_deadline_ms(c) - now);
		}
		return false;
	}
	/* Nothing there, or the end: no reason to wait. */
	if (recv(c->fd, &byte, 1, MSG_PEEK) <= 0)
		return false;
	if (!c->waiting_from_ms) {
		c->waiting_from_ms = loop_now_ms(c->loop);
		timer_start(c, c->s->conf.memory_wait_ms);
	}
	hsrv_memory_wait(c);
	return true;
}

/* ---- the machine ---- */

static void
step_linger(struct hsrv_conn *c, struct view *v)
{
	for (;;) {
		c->lingered_bytes += (int64_t)v->s.n;
		v->s.n = 0;
		if (c->lingered_bytes > LINGER_BYTES) {
			hsrv_conn_close(c);
			return;
		}
		switch (read_more(c, v)) {
		case MORE_GOT:
			continue;
		case MORE_NOT_NOW:
			return;
		case MORE_END:
		case MORE_LOST:
			if (c->state != HSRV_AT_DEAD)
				hsrv_conn_close(c);
			return;
		}
	}
}

/* The peer ended: between requests that is all, inside one it is told. */
static void
ended(struct hsrv_conn *c, const struct view *v)
{
	if (c->state == HSRV_AT_BODY) {
		hsrv_reply_refuse(c, 400, "request body ended early");
		return;
	}
	if (v->s.n == 0) {
		hsrv_conn_close(c);
		return;
	}
	timer_stop(c);
	c->req = hsrv_req_new(c->s, c);
	hsrv_reply_refuse(c, 400, "request head ended early");
}

/* Reads for a head or a body that wants more; false = not in this turn. */
static bool
want_more(struct hsrv_conn *c, struct view *v)
{
	if (c->state == HSRV_AT_BODY && c->readable && wait_for_memory(c))
		return false;
	switch (read_more(c, v)) {
	case MORE_GOT:
		return true;
	case MORE_END:
		ended(c, v);
		return true;
	case MORE_LOST:
		if (c->state != HSRV_AT_DEAD)
			hsrv_conn_close(c);
		return false;
	case MORE_NOT_NOW:
		break;
	}
	if (c->state == HSRV_AT_HEAD) {
		if (v->s.n == 0)
			hsrv_idle_add(c);
		else if (!c->timer_on || !loop_timer_pending(&c->timer))
			timer_start(c, c->s->conf.head_timeout_ms);
	}
	return false;
}

static void
step(struct hsrv_conn *c)
{
	struct view v = { .s = buf_span(&c->in), .kept = c->in.len > 0 };
	bool go = true;

	if (c->state == HSRV_AT_DEAD || c->in_step)
		return;
	c->in_step = true;
	while (go) {
		switch (c->state) {
		case HSRV_AT_HEAD:
			if (v.requests >= TURN_REQUESTS) {
				hsrv_conn_later(c);
				go = false;
			} else if (!step_head(c, &v)) {
				go = want_more(c, &v);
			}
			break;
		case HSRV_AT_BODY:
			if (!step_body(c, &v))
				go = want_more(c, &v);
			break;
		case HSRV_AT_LINGER:
			step_linger(c, &v);
			go = false;
			break;
		case HSRV_AT_HANDLER:
		case HSRV_AT_WRITE:
		case HSRV_AT_DEAD:
			go = false;
			break;
		}
	}
	c->in_step = false;
	if (c->state == HSRV_AT_DEAD)
		return;
	keep_view(c, &v);
	hsrv_memory_in(c);
}

static void
on_timer(void *arg)
{
	struct hsrv_conn *c = arg;
	int64_t left;

	switch (c->state) {
	case HSRV_AT_HEAD:
		if (c->in.len == 0) { /* draining: nothing came */
			hsrv_conn_close(c);
			break;
		}
		c->req = hsrv_req_new(c->s, c);
		hsrv_reply_refuse(c, 408, "request head took too long");
		break;
	case HSRV_AT_BODY:
		if (c->waiting_from_ms) {
			hsrv_memory_unwait(c);
			hsrv_reply_refuse(c, c->s->conf.busy_status,
				"no memory for request bodies, try later");
			break;
		}
		left = body_deadline_ms(c) - loop_now_ms(c->loop);
		if (left > 0)
			timer_start(c, left);
		else
			hsrv_reply_refuse(c, 408, "request body took too long");
		break;
	case HSRV_AT_WRITE:
	case HSRV_AT_LINGER:
		hsrv_conn_close(c);
		break;
	case HSRV_AT_HANDLER:
	case HSRV_AT_DEAD:
		break;
	}
}

void
hsrv_conn_drain(struct hsrv_conn *c)
{
	if (c->state != HSRV_AT_HEAD)
		return;
	c->readable = true; /* a request may be there unseen */
	c->short_read = false;
	step(c);
	if (c->state != HSRV_AT_HEAD || c->in.len)
		return;
	if (c->served)
		hsrv_conn_close(c);
	else
		timer_start(c, DRAIN_FRESH_MS);
}

/* ---- writing ---- */

static void
sent_all(struct hsrv_conn *c)
{
	struct hsrv *s = c->s;
	bool ends = c->must_close || !c->keep_alive || s->draining;

	timer_stop(c);
	hsrv_stalled_del(c);
	hsrv_req_free(c->req);
	c->req = NULL;
	if (c->must_close || (ends && (may_read(c, false) || c->in.len))) {
		begin_linger(c);
	} else if (ends) {
		hsrv_conn_close(c);
		return;
	} else {
		c->state = HSRV_AT_HEAD;
	}
	if (c->in_step)
		return;
	if (c->in.len || may_read(c, c->state == HSRV_AT_LINGER))
		hsrv_conn_later(c);
	else if (c->state == HSRV_AT_HEAD)
		hsrv_idle_add(c);
}

static void
on_write(evutil_socket_t fd, short what, void *arg)
{
	struct hsrv_conn *c = arg;

	(void)fd;
	(void)what;
	if (c->state == HSRV_AT_WRITE)
		hsrv_conn_send(c);
}

static void
wait_for_room(struct hsrv_conn *c)
{
	if (!c->ev_write)
		c->ev_write = event_new(loop_base(c->loop), c->fd,
			EV_WRITE | EV_ET, on_write, c);
	BUG(!c->ev_write);
	if (event_add(c->ev_write, NULL) < 0)
		hsrv_conn_close(c);
}

void
hsrv_conn_send(struct hsrv_conn *c)
{
	struct hsrv_req *r = c->req;
	size_t head_n = r->head_out.n, total = head_n + r->out_n;
	bool first = c->state != HSRV_AT_WRITE, moved = false;

	c->state = HSRV_AT_WRITE;
	while (r->sent < total) {
		struct iovec iov[2];
		struct msghdr m = { .msg_iov = iov };
		size_t body_at = r->sent > head_n ? r->sent - head_n : 0;
		ssize_t n;

		if (r->sent < head_n)
			iov[m.msg_iovlen++] = (struct iovec){
				.iov_base = (char *)(uintptr_t)(r->head_out.p +
								r->sent),
				.iov_len = head_n - r->sent
			};
		if (body_at < r->out_n)
			iov[m.msg_iovlen++] =
				(struct iovec){ .iov_base = r->out.p + body_at,
					.iov_len = r->out_n - body_at };
		n = sendmsg(c->fd, &m, MSG_NOSIGNAL);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno != EAGAIN) {
			hsrv_conn_close(c);
			return;
		}
		if (n < 0) {
			if (first || moved)
				timer_start(c, c->s->conf.write_timeout_ms);
			hsrv_stalled_add(c, moved);
			wait_for_room(c);
			return;
		}
		r->sent += (size_t)n;
		moved = true;
	}
	sent_all(c);
}

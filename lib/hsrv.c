/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The HTTP server: listeners, and what its connections share (idle list,
 * memory bound, spare request objects, drain).  A connection that does
 * nothing holds no buffer of ours.
 */
#include "hsrv_int.h"

#include <errno.h>
#include <event2/event.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
	BACKLOG = 4096,
	ACCEPTS_PER_TURN = 64,
	ACCEPT_PAUSE_MS = 100,
	ACCEPT_LOG_MS = 10000,
};

/* ---- shared by connections ---- */

struct hsrv_req *
hsrv_req_new(struct hsrv *s, struct hsrv_conn *c)
{
	struct hsrv_req *r = SLIST_FIRST(&s->spare);

	if (r) {
		SLIST_REMOVE_HEAD(&s->spare, spare);
		s->spare_n--;
	} else {
		r = calloc(1, sizeof(*r));
		BUG(!r);
		r->arena = &r->arena_own;
	}
	r->s = s;
	r->c = c;
	r->type = "application/json";
	return r;
}

static void
req_destroy(struct hsrv_req *r)
{
	arena_fini(&r->arena_own);
	buf_fini(&r->body);
	buf_fini(&r->out);
	free(r);
}

void
hsrv_req_free(struct hsrv_req *r)
{
	struct hsrv *s = r->s;
	struct hsrv_req clean = {
		.arena_own = r->arena_own, .body = r->body, .out = r->out
	};

	if (r->body_counted)
		hsrv_memory_add(r, -r->body_counted);
	if (s->spare_n == HSRV_SPARE_MAX) {
		req_destroy(r);
		return;
	}
	*r = clean;
	r->arena = &r->arena_own;
	if (r->arena->total_bytes > HSRV_KEEP_BYTES)
		arena_fini(r->arena);
	else
		arena_reset(r->arena);
	if (r->body.cap > HSRV_KEEP_BYTES)
		buf_fini(&r->body);
	buf_reset(&r->body);
	if (r->out.cap > HSRV_KEEP_BYTES)
		buf_fini(&r->out);
	buf_reset(&r->out);
	SLIST_INSERT_HEAD(&s->spare, r, spare);
	s->spare_n++;
}

/* All wait equally long, so the list is in the order of its deadlines. */
void
hsrv_idle_add(struct hsrv_conn *c)
{
	struct hsrv *s = c->s;

	hsrv_idle_del(c);
	c->idle = true;
	c->idle_from_ms = loop_now_ms(s->loop);
	TAILQ_INSERT_TAIL(&s->idle, c, idle_link);
	if (!loop_timer_pending(&s->idle_timer))
		loop_timer_start(&s->idle_timer, s->conf.idle_timeout_ms);
}

void
hsrv_idle_del(struct hsrv_conn *c)
{
	if (!c->idle)
		return;
	c->idle = false;
	TAILQ_REMOVE(&c->s->idle, c, idle_link);
}

static void
on_idle_timer(void *arg)
{
	struct hsrv *s = arg;
	struct hsrv_conn *c;

	while ((c = TAILQ_FIRST(&s->idle))) {
		int64_t left = c->idle_from_ms + s->conf.idle_timeout_ms -
			       loop_now_ms(s->loop);

		if (left > 0) {
			loop_timer_start(&s->idle_timer, left);
			return;
		}
		hsrv_conn_close(c);
	}
}

bool
hsrv_memory_full(const struct hsrv *s)
{
	return s->held_bytes >= s->conf.memory_bytes;
}

static void
hold(struct hsrv *s, int64_t bytes)
{
	struct hsrv_conn *c;

	s->held_bytes += bytes;
	if (bytes >= 0)
		return;
	/* Each looks again before it reads, so waking all is harmless. */
	while (!hsrv_memory_full(s) && (c = TAILQ_FIRST(&s->waiters))) {
		hsrv_memory_unwait(c);
		hsrv_conn_later(c);
	}
}

void
hsrv_memory_add(struct hsrv_req *r, int64_t bytes)
{
	r->body_counted += bytes;
	r->s->stats.body_bytes += bytes;
	hold(r->s, bytes);
}

void
hsrv_memory_in(struct hsrv_conn *c)
{
	int64_t now = (int64_t)c->in.len;

	if (now == c->in_counted)
		return;
	hold(c->s, now - c->in_counted);
	c->in_counted = now;
}

void
hsrv_memory_wait(struct hsrv_conn *c)
{
	if (c->waiting)
		return;
	c->waiting = true;
	TAILQ_INSERT_TAIL(&c->s->waiters, c, wait_link);
}

void
hsrv_memory_unwait(struct hsrv_conn *c)
{
	if (!c->waiting)
		return;
	c->waiting = false;
	TAILQ_REMOVE(&c->s->waiters, c, wait_link);
}

void
hsrv_stalled_add(struct hsrv_conn *c, bool moved)
{
	struct hsrv *s = c->s;
	struct hsrv_conn *worst;

	if (c->stalled && !moved)
		return;
	hsrv_stalled_del(c);
	c->stalled = true;
	TAILQ_INSERT_TAIL(&s->stalled, c, stalled_link);
	s->stalled_bytes += (int64_t)c->req->out.len;
	while (s->stalled_bytes > s->conf.memory_bytes &&
		(worst = TAILQ_FIRST(&s->stalled)) != c)
		hsrv_conn_close(worst);
}

void
hsrv_stalled_del(struct hsrv_conn *c)
{
	if (!c->stalled)
		return;
	c->stalled = false;
	c->s->stalled_bytes -= (int64_t)c->req->out.len;
	TAILQ_REMOVE(&c->s->stalled, c, stalled_link);
}

/* ---- listeners ---- */

static void
listeners_watch(struct hsrv *s, bool on)
{
	for (int i = 0; i < s->listeners_n; i++) {
		if (on)
			event_add(s->listeners[i].ev, NULL);
		else
			event_del(s->listeners[i].ev);
	}
}

static void
on_accept_timer(void *arg)
{
	listeners_watch(arg, true);
}

/* Out of descriptors or memory: a pause instead of a spin. */
static void
accept_pause(struct hsrv *s, int error)
{
	uint64_t suppressed;

	listeners_watch(s, false);
	loop_timer_start(&s->accept_timer, ACCEPT_PAUSE_MS);
	if (log_sample(&s->accept_log, loop_now_ms(s->loop), &suppressed))
		log_line(LOG_WARN, "http", "cannot accept connections",
			"error=%s connections=%d suppressed=%llu",
			log_quote(strerror(error)), s->stats.connections,
			(unsigned long long)suppressed);
}

/* Returns false when the queue is empty or accepting has to pause. */
static bool
accept_one(struct hsrv_listener *l)
{
	int fd = accept4(l->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

	if (fd >= 0) {
		hsrv_conn_new(l->s, fd);
		return true;
	}
	switch (errno) {
	case EAGAIN:
		return false;
	case EMFILE:
	case ENFILE:
	case ENOBUFS:
	case ENOMEM:
		if (!l->s->draining)
			accept_pause(l->s, errno);
		return false;
	default: /* that connection failed, not the listener */
		return true;
	}
}

static void
on_accept(evutil_socket_t fd, short what, void *arg)
{
	(void)fd;
	(void)what;
	for (int i = 0; i < ACCEPTS_PER_TURN; i++)
		if (!accept_one(arg))
			break;
}

static int
bind_one(const struct addrinfo *a, int port, bool v6_only, bool own,
	struct err *e)
{
	struct sockaddr_storage sa;
	int on = 1, shared = !own, fd;

	memcpy(&sa, a->ai_addr, a->ai_addrlen);
	if (a->ai_family == AF_INET6)
		((struct sockaddr_in6 *)&sa)->sin6_port = htons((uint16_t)port);
	else
		((struct sockaddr_in *)&sa)->sin_port = htons((uint16_t)port);
	fd = socket(
		a->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return err_errno(e, "socket");
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	/* accepted sockets inherit it */
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	if (a->ai_family == AF_INET6 && v6_only)
		setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof(on));
	if (setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &shared, sizeof(shared)) <
			0 ||
		bind(fd, (struct sockaddr *)&sa, a->ai_addrlen) < 0 ||
		listen(fd, BACKLOG) < 0) {
		err_errno(e, "bind");
		close(fd);
		return -1;
	}
	return fd;
}

static int
port_of(int fd)
{
	struct sockaddr_storage sa = { .ss_family = AF_UNSPEC };
	socklen_t n = sizeof(sa);

	if (getsockname(fd, (struct sockaddr *)&sa, &n) < 0)
		return 0;
	return ntohs(sa.ss_family == AF_INET6
			     ? ((struct sockaddr_in6 *)&sa)->sin6_port
			     : ((struct sockaddr_in *)&sa)->sin_port);
}

static void
listener_add(struct hsrv *s, int fd)
{
	struct hsrv_listener *l = &s->listeners[s->listeners_n++];

	l->s = s;
	l->fd = fd;
	l->ev = event_new(
		loop_base(s->loop), fd, EV_READ | EV_PERSIST, on_accept, l);
	BUG(!l->ev);
	event_add(l->ev, NULL);
	if (!s->port)
		s->port = port_of(fd);
}

int
hsrv_listen(struct hsrv *s, const char *host, int port, struct err *e)
{
	struct addrinfo hints = { .ai_flags = AI_PASSIVE,
		.ai_socktype = SOCK_STREAM },
			*all, *a;
	struct err why = ERR_ZERO;
	int rc, got = 0;

	BUG(s->draining);
	rc = getaddrinfo(host, NULL, &hints, &all);
	if (rc)
		return err_set(e, ERR_IO, "cannot resolve %s: %s", host,
			rc == EAI_SYSTEM ? strerror(errno) : gai_strerror(rc));
	for (a = all; a; a = a->ai_next) {
		int fd;

		if (a->ai_family != AF_INET && a->ai_family != AF_INET6)
			continue;
		if (s->listeners_n == HSRV_LISTENERS_MAX)
			break;
		fd = bind_one(
			a, port, all->ai_next != NULL, s->conf.own_port, &why);
		if (fd < 0)
			continue;
		listener_add(s, fd);
		if (port == 0) /* further addresses of the name: same port */
			port = port_of(fd);
		got++;
	}
	freeaddrinfo(all);
	if (got)
		return 0;
	if (why.kind == ERR_NONE)
		return err_set(e, ERR_IO, "no address for %s", host);
	*e = why;
	return err_wrap(e, "cannot listen on %s port %d", host, port);
}

int
hsrv_port(const struct hsrv *s)
{
	return s->port;
}

/* ---- drain ---- */

static void
on_drain_timer(void *arg)
{
	struct hsrv *s = arg;
	int64_t left = s->drain_until_ms - loop_now_ms(s->loop);

	if (s->drained)
		return;
	/* None was left for a moment, then the accept queue gave some. */
	if (s->stats.connections > 0 && left > 0) {
		loop_timer_start(&s->drain_timer, left);
		return;
	}
	s->drained = true;
	if (s->on_drained)
		s->on_drained(s->drained_arg);
}

void
hsrv_conn_gone(struct hsrv *s)
{
	s->stats.connections--;
	/* from the loop, not from inside whoever closed */
	if (s->draining && s->stats.connections == 0 && !s->drained)
		loop_timer_start(&s->drain_timer, 0);
}

static void
listeners_close(struct hsrv *s)
{
	for (int i = 0; i < s->listeners_n; i++) {
		event_free(s->listeners[i].ev);
		close(s->listeners[i].fd);
	}
	s->listeners_n = 0;
}

void
hsrv_drain(
	struct hsrv *s, int64_t grace_ms, void (*on_drained)(void *), void *arg)
{
	struct hsrv_conn *c, *next;

	BUG(s->draining);
	s->draining = true;
	s->on_drained = on_drained;
	s->drained_arg = arg;
	loop_timer_stop(&s->accept_timer);
	s->drain_until_ms = loop_now_ms(s->loop) + grace_ms;
	loop_timer_start(&s->drain_timer, grace_ms);
	for (c = LIST_FIRST(&s->conns); c; c = next) {
		next = LIST_NEXT(c, link);
		hsrv_conn_drain(c);
	}
	/* Who is in the accept queue would be reset by the close. */
	for (int i = 0; i < s->listeners_n; i++)
		while (accept_one(&s->listeners[i]))
			;
	listeners_close(s);
	if (s->stats.connections == 0)
		loop_timer_start(&s->drain_timer, 0);
}

/* ---- life ---- */

struct hsrv *
hsrv_new(struct loop *l, const struct hsrv_conf *conf)
{
	struct hsrv *s = calloc(1, sizeof(*s));
	struct hsrv_conf *c;

	BUG(!s || !conf->unmatched);
	s->loop = l;
	s->conf = *conf;
	c = &s->conf;
	c->head_timeout_ms = c->head_timeout_ms ? c->head_timeout_ms : 10000;
	c->body_timeout_ms = c->body_timeout_ms ? c->body_timeout_ms : 10000;
	c->idle_timeout_ms = c->idle_timeout_ms ? c->idle_timeout_ms : 75000;
	c->write_timeout_ms = c->write_timeout_ms ? c->write_timeout_ms : 30000;
	c->linger_ms = c->linger_ms ? c->linger_ms : 2000;
	c->memory_wait_ms = c->memory_wait_ms ? c->memory_wait_ms : 5000;
	c->busy_status = c->busy_status ? c->busy_status : 503;
	LIST_INIT(&s->conns);
	TAILQ_INIT(&s->idle);
	TAILQ_INIT(&s->waiters);
	TAILQ_INIT(&s->stalled);
	SLIST_INIT(&s->spare);
	s->accept_log.every_ms = ACCEPT_LOG_MS;
	loop_timer_init(&s->idle_timer, l, on_idle_timer, s);
	loop_timer_init(&s->accept_timer, l, on_accept_timer, s);
	loop_timer_init(&s->drain_timer, l, on_drain_timer, s);
	return s;
}

void
hsrv_free(struct hsrv *s)
{
	struct hsrv_req *r;

	if (!s)
		return;
	s->drained = true;
	listeners_close(s);
	while (!LIST_EMPTY(&s->conns))
		hsrv_conn_close(LIST_FIRST(&s->conns));
	while ((r = SLIST_FIRST(&s->spare))) {
		SLIST_REMOVE_HEAD(&s->spare, spare);
		req_destroy(r);
	}
	loop_timer_fini(&s->idle_timer);
	loop_timer_fini(&s->accept_timer);
	loop_timer_fini(&s->drain_timer);
	free(s);
}

void
hsrv_stats(const struct hsrv *s, struct hsrv_stats *out)
{
	*out = s->stats;
}

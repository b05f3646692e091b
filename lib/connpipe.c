/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Frames over a stream socket.  Nothing here blocks in the loop: a reader
 * that is slow costs memory of the writer, who looks at what is unsent.
 */
#include "connpipe.h"

#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "buf.h"
#include "clk.h"
#include "err.h"
#include "loop.h"

enum {
	HEAD_BYTES = 5,
	READ_BYTES = 65536,
	READS_A_TURN = 16,
};

struct connpipe {
	int fd;
	struct event *can_read, *can_write;
	struct connpipe_events ev;
	struct buf in, out;
	bool ended;
};

/* ---- in ---- */

static void
end(struct connpipe *p)
{
	if (p->ended)
		return;
	p->ended = true;
	event_del(p->can_read);
	event_del(p->can_write);
	p->out.len = 0;
	p->ev.on_end(p->ev.arg);
}

/* 1 = a frame stands at the front, 0 = not whole yet, -1 = nonsense. */
static int
front(struct span in, enum connpipe_kind *kind, struct span *body)
{
	uint32_t n;

	if (in.n < HEAD_BYTES)
		return 0;
	memcpy(&n, in.p, sizeof(n));
	if (n > CONNPIPE_FRAME_MAX || in.p[4] < CONNPIPE_TASK ||
		in.p[4] >= CONNPIPE_KINDS)
		return -1;
	if (in.n - HEAD_BYTES < n)
		return 0;
	*kind = (enum connpipe_kind)in.p[4];
	*body = span_make(in.p + HEAD_BYTES, n);
	return 1;
}

static void
hand_out(struct connpipe *p)
{
	struct span rest = buf_span(&p->in), body;
	enum connpipe_kind kind;
	int rc;

	while ((rc = front(rest, &kind, &body)) == 1) {
		p->ev.on_frame(p->ev.arg, kind, body);
		rest.p += HEAD_BYTES + body.n;
		rest.n -= HEAD_BYTES + body.n;
	}
	buf_skip(&p->in, p->in.len - rest.n);
	if (rc < 0)
		end(p);
}

/* False when nothing more is there to be read now. */
static bool
read_some(struct connpipe *p)
{
	char *at = buf_reserve(&p->in, READ_BYTES);
	ssize_t n = read(p->fd, at, READ_BYTES);

	if (n < 0 && errno == EINTR)
		return true;
	if (n < 0 && errno == EAGAIN)
		return false;
	if (n <= 0) {
		end(p);
		return false;
	}
	p->in.len += (size_t)n;
	hand_out(p);
	return !p->ended;
}

static void
on_readable(evutil_socket_t fd, short what, void *arg)
{
	struct connpipe *p = arg;

	(void)fd;
	(void)what;
	for (int i = 0; i < READS_A_TURN && read_some(p); i++)
		;
}

void
connpipe_drain(struct connpipe *p)
{
	while (!p->ended && read_some(p))
		;
}

/* ---- out ---- */

/* False when the socket is full. */
static bool
write_some(struct connpipe *p)
{
	ssize_t n = send(p->fd, p->out.p, p->out.len, MSG_NOSIGNAL);

	if (n >= 0) {
		buf_skip(&p->out, (size_t)n);
		return true;
	}
	if (errno == EINTR)
		return true;
	/* when the other end is gone the reader tells it */
	if (errno != EAGAIN)
		p->out.len = 0;
	return false;
}

static void
write_out(struct connpipe *p)
{
	while (p->out.len > 0 && write_some(p))
		;
	if (p->out.len > 0)
		event_add(p->can_write, NULL);
}

static void
on_writable(evutil_socket_t fd, short what, void *arg)
{
	(void)fd;
	(void)what;
	write_out(arg);
}

void
connpipe_send(struct connpipe *p, enum connpipe_kind kind, struct span body)
{
	uint32_t n = (uint32_t)body.n;
	bool idle = p->out.len == 0;

	BUG(body.n > CONNPIPE_FRAME_MAX);
	if (p->ended)
		return;
	buf_put(&p->out, &n, sizeof(n));
	buf_putc(&p->out, (char)kind);
	buf_put_span(&p->out, body);
	if (idle)
		write_out(p);
}

size_t
connpipe_unsent_bytes(const struct connpipe *p)
{
	return p->out.len;
}

void
connpipe_flush(struct connpipe *p, int64_t limit_ms)
{
	int64_t until_ms = clk_mono_ms() + limit_ms;

	while (p->out.len > 0) {
		struct pollfd pf = { .fd = p->fd, .events = POLLOUT };
		int64_t left_ms = until_ms - clk_mono_ms();

		if (left_ms <= 0)
			return;
		/* a signal is no reason to keep the last words */
		if (poll(&pf, 1, (int)left_ms) > 0)
			write_some(p);
	}
}

struct connpipe *
connpipe_new(struct loop *l, int fd, const struct connpipe_events *ev)
{
	struct connpipe *p = calloc(1, sizeof(*p));

	BUG(!p || fcntl(fd, F_SETFL, O_NONBLOCK) != 0);
	p->fd = fd;
	p->ev = *ev;
	p->can_read = event_new(
		loop_base(l), fd, EV_READ | EV_PERSIST, on_readable, p);
	p->can_write = event_new(loop_base(l), fd, EV_WRITE, on_writable, p);
	BUG(!p->can_read || !p->can_write || event_add(p->can_read, NULL) < 0);
	return p;
}

void
connpipe_free(struct connpipe *p)
{
	if (!p)
		return;
	event_free(p->can_read);
	event_free(p->can_write);
	close(p->fd);
	buf_fini(&p->in);
	buf_fini(&p->out);
	free(p);
}

/* ---- boot ---- */

static int
read_all(int fd, char *at, size_t n, int64_t until_ms, struct err *e)
{
	while (n > 0) {
		struct pollfd pf = { .fd = fd, .events = POLLIN };
		int64_t left_ms = until_ms - clk_mono_ms();
		ssize_t got;

		if (left_ms <= 0)
			return err_set(e, ERR_IO, "nothing came in time");
		if (poll(&pf, 1, (int)left_ms) <= 0)
			continue;
		got = read(fd, at, n);
		if (got == 0)
			return err_set(e, ERR_IO, "the other end is gone");
		if (got < 0 && errno != EINTR && errno != EAGAIN)
			return err_errno(e, "cannot read descriptor %d", fd);
		if (got > 0) {
			at += got;
			n -= (size_t)got;
		}
	}
	return 0;
}

int
connpipe_first(int fd, enum connpipe_kind kind, int64_t limit_ms,
	struct buf *body, struct err *e)
{
	int64_t until_ms = clk_mono_ms() + limit_ms;
	char head[HEAD_BYTES];
	uint32_t n;

	if (read_all(fd, head, sizeof(head), until_ms, e) != 0)
		return -1;
	memcpy(&n, head, sizeof(n));
	if (n > CONNPIPE_FRAME_MAX || head[4] != (char)kind)
		return err_set(
			e, ERR_INPUT, "descriptor %d brought no task", fd);
	buf_reserve(body, n);
	if (read_all(fd, body->p + body->len, n, until_ms, e) != 0)
		return -1;
	body->len += n;
	return 0;
}

/* ---- bodies ---- */

static void
put_i64(struct buf *b, int64_t v)
{
	buf_put(b, &v, sizeof(v));
}

static void
put_text(struct buf *b, struct span s)
{
	put_i64(b, (int64_t)s.n);
	buf_put_span(b, s);
}

static bool
take(struct span *rest, void *out, size_t n)
{
	if (rest->n < n)
		return false;
	memcpy(out, rest->p, n);
	rest->p += n;
	rest->n -= n;
	return true;
}

static bool
take_text(struct span *rest, struct span *s)
{
	int64_t n;

	if (!take(rest, &n, sizeof(n)) || n < 0 || (uint64_t)n > rest->n)
		return false;
	*s = span_make(rest->p, (size_t)n);
	rest->p += n;
	rest->n -= (size_t)n;
	return true;
}

void
connpipe_write_task(struct buf *b, const struct connpipe_task *t)
{
	buf_put(b, &t->tenant, sizeof(t->tenant));
	put_i64(b, t->version);
	put_i64(b, t->grace_ms);
	put_text(b, t->name);
	put_text(b, t->node);
	put_text(b, t->cell_tag);
	put_text(b, t->doc);
}

bool
connpipe_read_task(struct span body, struct connpipe_task *t)
{
	return take(&body, &t->tenant, sizeof(t->tenant)) &&
	       take(&body, &t->version, sizeof(t->version)) &&
	       take(&body, &t->grace_ms, sizeof(t->grace_ms)) &&
	       take_text(&body, &t->name) && take_text(&body, &t->node) &&
	       take_text(&body, &t->cell_tag) && take_text(&body, &t->doc) &&
	       body.n == 0;
}

void
connpipe_send_number(struct connpipe *p, enum connpipe_kind kind, int64_t v)
{
	connpipe_send(p, kind, span_make(&v, sizeof(v)));
}

bool
connpipe_read_number(struct span body, int64_t *v)
{
	return body.n == sizeof(*v) && take(&body, v, sizeof(*v));
}

void
connpipe_send_parts(struct connpipe *p, enum connpipe_kind kind,
	int64_t queue_id, const int64_t *parts, size_t n)
{
	struct buf b = BUF_ZERO;
	size_t at = 0;

	do {
		size_t m = n - at < CONNPIPE_PARTS_MAX ? n - at
						       : CONNPIPE_PARTS_MAX;

		buf_reset(&b);
		put_i64(&b, queue_id);
		if (m > 0)
			buf_put(&b, parts + at, m * sizeof(*parts));
		connpipe_send(p, kind, buf_span(&b));
		at += m;
	} while (at < n);
	buf_fini(&b);
}

bool
connpipe_read_parts(struct span body, int64_t *queue_id,
	int64_t parts[CONNPIPE_PARTS_MAX], size_t *n)
{
	if (!take(&body, queue_id, sizeof(*queue_id)) ||
		body.n % sizeof(*parts) != 0 ||
		body.n / sizeof(*parts) > CONNPIPE_PARTS_MAX)
		return false;
	*n = body.n / sizeof(*parts);
	if (*n > 0)
		memcpy(parts, body.p, body.n);
	return true;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests, calls and fences of the main flow.  They are repeated for ever
 * while that may help: the queue lags, it never drops.
 */
#include "queue_int.h"

#include <string.h>

#include "backoff.h"
#include "cell.h"
#include "err.h"

static void send_io(struct queue *q);

static void
on_io(void *arg, const struct s3_answer *a, const struct s3_error *e)
{
	struct queue *q = arg;
	struct queue_io *io = &q->io;

	io->req = NULL;
	if (q->ending)
		return;
	if (!e) {
		q->retry_ms = 0;
		io->fn(q, a);
		return;
	}
	if (io->soft) {
		queue_remember(q, e->text);
		io->fn(q, NULL);
		return;
	}
	if (!e->retriable) {
		queue_fail(q, e->text);
		return;
	}
	queue_trouble(q, io->object ? QUEUE_OF_PUT : QUEUE_OF_REST, e->text);
	queue_wait(q, queue_retry_ms(q, e->retry_after_ms), send_io);
}

static void
send_io(struct queue *q)
{
	struct queue_io *io = &q->io;
	struct span key = buf_span(&io->key);

	if (io->object)
		io->req = s3_put(io->s3, key, io->type, io->object, io->on_part,
			on_io, q);
	else if (io->max_bytes)
		io->req = s3_get(io->s3, key, io->max_bytes, on_io, q);
	else
		io->req = s3_list(
			io->s3, key, buf_span(&io->after), 1000, on_io, q);
}

static struct queue_io *
begin(struct queue *q, struct s3 *s3, struct span key, queue_answer_fn fn)
{
	struct queue_io *io = &q->io;

	BUG(io->req || q->next);
	buf_reset(&io->key);
	buf_put_span(&io->key, key);
	buf_reset(&io->after);
	io->s3 = s3;
	io->object = NULL;
	io->on_part = NULL;
	io->max_bytes = 0;
	io->soft = false;
	io->fn = fn;
	return io;
}

void
queue_put(struct queue *q, struct s3 *s3, struct span key, const char *type,
	const struct object *o, s3_part_fn on_part, queue_answer_fn fn)
{
	struct queue_io *io = begin(q, s3, key, fn);

	io->type = type;
	io->object = o;
	io->on_part = on_part;
	send_io(q);
}

void
queue_get(struct queue *q, struct s3 *s3, struct span key, size_t max_bytes,
	queue_answer_fn fn)
{
	begin(q, s3, key, fn)->max_bytes = max_bytes;
	send_io(q);
}

void
queue_get_soft(struct queue *q, struct s3 *s3, struct span key,
	size_t max_bytes, queue_answer_fn fn)
{
	struct queue_io *io = begin(q, s3, key, fn);

	io->max_bytes = max_bytes;
	io->soft = true;
	send_io(q);
}

void
queue_list(struct queue *q, struct span prefix, struct span after, bool soft,
	queue_answer_fn fn)
{
	struct queue_io *io = begin(q, q->x->s3, prefix, fn);

	buf_put_span(&io->after, after);
	io->soft = soft;
	send_io(q);
}

void
queue_io_cancel(struct queue *q)
{
	struct s3_req *req = q->io.req;

	q->io.req = NULL;
	if (req)
		s3_cancel(req);
}

/* ---- the cell ---- */

bool
queue_again(struct queue *q, enum queue_trouble kind, const struct err *e,
	queue_next_fn fn)
{
	if (!cell_may_retry(e)) {
		queue_fail(q, e->text);
		return false;
	}
	queue_trouble(q, kind, e->text);
	queue_wait(q, queue_retry_ms(q, 0), fn);
	return true;
}

/* ---- the fence ---- */

static void send_fence(struct queue *q);

static void
on_fence(void *arg, enum lease_fenced f, int64_t version, const struct err *e)
{
	struct queue *q = arg;

	switch (f) {
	case LEASE_APPLIED:
		q->retry_ms = 0;
		q->fence.busy = false;
		*q->fence.version = version;
		if (!q->ending)
			q->fence.fn(q);
		return;
	case LEASE_LOST:
		q->counts.precondition_lost++;
		queue_finish(q, QUEUE_FENCED);
		return;
	case LEASE_RETRY:
		if (!q->ending && e)
			queue_again(q, QUEUE_OF_KV, e, send_fence);
		else if (!q->ending)
			queue_wait(q, queue_retry_ms(q, 0), send_fence);
		return;
	}
}

static void
send_fence(struct queue *q)
{
	struct queue_fencing *f = &q->fence;

	f->busy = true;
	lease_fence(q->lease, f->pointer, buf_span(&f->value), *f->version,
		f->drop, on_fence, q);
}

void
queue_fence(struct queue *q, enum key_row pointer, struct buf *value,
	int64_t *version, enum key_row drop, queue_next_fn fn)
{
	struct queue_fencing *f = &q->fence;

	BUG(f->busy || q->next);
	buf_fini(&f->value);
	f->value = *value;
	*value = (struct buf)BUF_ZERO;
	f->pointer = pointer;
	f->version = version;
	f->drop = drop;
	f->fn = fn;
	send_fence(q);
}

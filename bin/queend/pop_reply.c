/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The answer of a pop (http-core 4.2).  Keys and their order are what clients
 * know; payload bytes are copied from the frame as they are.
 */
#include <stdlib.h>
#include <string.h>

#include "clk.h"
#include "count.h"
#include "err.h"
#include "frame.h"
#include "hsrv.h"
#include "jwrite.h"
#include "keyring.h"
#include "pop_int.h"
#include "seg.h"

/* What all messages of a slice share, written once. */
struct shared {
	struct buf middle; /* ,"createdAt":... up to deliveryAttempt */
	struct buf end; /* ,"queue":...} */
};

static void
put_lease(struct buf *b, const struct pop *pop, const struct pop_slice *s)
{
	char text[QID_TEXT_MAX];
	struct qid_lease l = { .partition_id = s->lease_at,
		.group_id = s->lease_group,
		.number = pop->lease_no };

	buf_putc(b, '"');
	if (!pop->q.auto_ack) {
		struct qid q = qid_of_lease(&l);

		buf_put(b, qid_text(&q, text), QID_TEXT);
	}
	buf_putc(b, '"');
}

static void
put_part_id(struct buf *b, const struct pop *pop, int64_t part_id)
{
	char text[QID_TEXT_MAX];
	struct qid q =
		qid_entity(QID_PARTITION, pop->pops->x->cell_tag, part_id);

	buf_putc(b, '"');
	buf_put(b, qid_text(&q, text), QID_TEXT);
	buf_putc(b, '"');
}

static void
share(struct shared *sh, const struct pop *pop, const struct pop_slice *s)
{
	char at[CLK_ISO_MAX];
	struct buf *b = &sh->middle;

	buf_reset(b);
	buf_puts(b, ",\"createdAt\":\"");
	buf_puts(b, clk_iso_us(s->at_us, at));
	buf_puts(b, "\",\"partitionId\":");
	put_part_id(b, pop, s->part_id);
	buf_puts(b, ",\"partition\":");
	jwrite_quoted(b, s->part->name);
	buf_puts(b, ",\"leaseId\":");
	put_lease(b, pop, s);
	buf_puts(b, ",\"consumerGroup\":");
	jwrite_quoted(b, pop->q.group);
	buf_printf(b, ",\"deliveryAttempt\":%d,\"offset\":",
		pop->q.auto_ack ? 1 : s->attempt);
	b = &sh->end;
	buf_reset(b);
	buf_puts(b, ",\"queue\":");
	jwrite_quoted(b, s->part->queue->name);
	buf_putc(b, '}');
}

static void
put_i64(struct buf *b, int64_t v)
{
	char text[24], *p = text + sizeof(text);
	uint64_t u = v < 0 ? 0 - (uint64_t)v : (uint64_t)v;

	do {
		*--p = (char)('0' + u % 10);
		u /= 10;
	} while (u);
	if (v < 0)
		*--p = '-';
	buf_put(b, p, (size_t)(text + sizeof(text) - p));
}

static void
put_message(struct buf *b, const struct frame *f, const struct shared *sh,
	int64_t offset)
{
	char text[QID_TEXT_MAX];

	buf_puts(b, "{\"id\":\"");
	buf_put(b, qid_text(&f->id, text), QID_TEXT);
	buf_puts(b, "\",\"transactionId\":");
	jwrite_quoted(b, f->txn);
	if (f->flags & FRAME_TRACE) {
		buf_puts(b, ",\"traceId\":\"");
		buf_put(b, qid_text(&f->trace, text), QID_TEXT);
		buf_puts(b, "\",\"data\":");
	} else {
		buf_puts(b, ",\"traceId\":null,\"data\":");
	}
	buf_put_span(b, f->payload.n ? f->payload : SPAN_LIT("null"));
	buf_puts(b, ",\"producerSub\":");
	if (f->flags & FRAME_SUB)
		jwrite_quoted(b, f->sub);
	else
		buf_puts(b, "null");
	buf_put_span(b, buf_span(&sh->middle));
	put_i64(b, offset);
	buf_put_span(b, buf_span(&sh->end));
}

/* Appends the messages of one slice; *comma: one was written before. */
static int
put_slice(struct buf *b, struct pop *pop, const struct pop_slice *s,
	const struct shared *sh, bool *comma)
{
	struct pops *p = pop->pops;
	struct err e = ERR_ZERO;
	struct frame f;
	struct span rest = s->clear;

	if (!s->clear.n) {
		buf_reset(&p->scratch);
		if (seg_unpack(s->blob, &p->scratch, &e) != 0)
			goto unread;
		rest = buf_span(&p->scratch);
		if (seg_skip(&rest, s->skip, &e) != 0)
			goto unread;
	}
	for (int i = 0; i < s->take; i++) {
		if (frame_next(&rest, &f, &e) <= 0 ||
			keyring_open(p->x, &f, &p->opened, &e) != 0) {
			pop_blame(pop, s, s->base + s->skip + i, &e);
			return -1;
		}
		if (*comma)
			buf_putc(b, ',');
		*comma = true;
		put_message(b, &f, sh, s->base + s->skip + i);
	}
	return 0;
unread:
	pop_blame(pop, s, s->base + s->skip, &e);
	return -1;
}

bool
pop_conflated(const struct pop *pop)
{
	return pop->group ? pop->group->conflated : pop->q.conflation;
}

static void
put_conflation(struct buf *b, const struct pop *pop, bool conflated)
{
	if (conflated)
		buf_puts(b, ",\"conflation\":true");
	if (conflated != pop->q.conflation)
		buf_puts(b, ",\"conflationConflict\":true");
}

static void
put_head(struct buf *b, const struct pop *pop, const struct pop_slice *s)
{
	buf_puts(b, "{\"success\":true,\"queue\":");
	jwrite_quoted(b, pop->queue_name);
	buf_puts(b, ",\"partition\":");
	jwrite_quoted(b, s->part->name);
	buf_puts(b, ",\"partitionId\":");
	put_part_id(b, pop, s->part_id);
	buf_puts(b, ",\"leaseId\":");
	put_lease(b, pop, s);
	buf_puts(b, ",\"consumerGroup\":");
	jwrite_quoted(b, pop->q.group);
	buf_puts(b, ",\"messages\":[");
}

static void
count_reply(struct pop *pop, const struct pop_slice *slices, size_t n)
{
	struct ctx *x = pop->pops->x;
	int64_t now_us = clk_wall_us() + pop->pops->clock_offset_us;
	size_t i = 0;

	/* one line per queue; discovery spans several */
	while (i < n) {
		struct cat_queue *q = slices[i].part->queue;
		int64_t oldest = slices[i].at_us;
		int messages = 0;

		for (; i < n && slices[i].part->queue == q; i++) {
			messages += slices[i].take;
			if (slices[i].at_us < oldest)
				oldest = slices[i].at_us;
		}
		int64_t lag_ms = (now_us - oldest) / 1000;

		count_pop(x, q->id, messages, lag_ms > 0 ? lag_ms : 0,
			pop->kind == POP_WILDCARD);
	}
	count_latency(x, COUNT_POP, (clk_mono_ms() - pop->arrived_ms) * 1000);
}

/* Drops slices of partitions that were deleted meanwhile. */
static size_t
with_names(struct pop_slice *slices, size_t n, int *partitions)
{
	size_t kept = 0;

	*partitions = 0;
	for (size_t i = 0; i < n; i++) {
		if (!slices[i].part)
			continue;
		if (!kept || slices[kept - 1].cand != slices[i].cand)
			++*partitions;
		slices[kept++] = slices[i];
	}
	return kept;
}

void
pop_reply(struct pop *pop, struct pop_slice *slices, size_t n)
{
	struct shared sh = { .middle = BUF_ZERO, .end = BUF_ZERO };
	struct buf *b = hsrv_out(pop->req);
	bool comma = false, conflated = false;
	int partitions;

	n = with_names(slices, n, &partitions);
	if (!n) {
		pop_finish_empty(pop);
		return;
	}
	put_head(b, pop, slices);
	for (size_t i = 0; i < n; i++) {
		share(&sh, pop, &slices[i]);
		conflated |= slices[i].group->conflated;
		if (put_slice(b, pop, &slices[i], &sh, &comma) != 0)
			break;
	}
	buf_fini(&sh.middle);
	buf_fini(&sh.end);
	if (pop->fault) {
		pop_fail(pop, slices);
		return;
	}
	buf_printf(b, "],\"partitionsClaimed\":%d", partitions);
	put_conflation(b, pop, conflated);
	buf_putc(b, '}');
	count_reply(pop, slices, n);
	hsrv_reply(pop->req, 200);
	pop_finish(pop);
}

bool
pop_reply_empty(struct pop *pop)
{
	bool conflated = pop_conflated(pop);

	if (!conflated && !pop->q.conflation)
		return false;
	buf_puts(hsrv_out(pop->req), "{\"messages\":[]");
	put_conflation(hsrv_out(pop->req), pop, conflated);
	buf_putc(hsrv_out(pop->req), '}');
	hsrv_reply(pop->req, 200);
	return true;
}

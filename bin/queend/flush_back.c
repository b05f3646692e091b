/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The answers of push calls.  Every segment of a call ends here in one of
 * these ways: answered whole; cut down to what was no duplicate and sent
 * again; sent again after its window was paged in; moved to the partition
 * that took the place of one that is gone; or failed.  Until then its
 * partition sends nothing else.
 */
#include <stdlib.h>
#include <string.h>

#include "announce.h"
#include "catalog.h"
#include "clk.h"
#include "count.h"
#include "err.h"
#include "flush_int.h"
#include "keyring.h"
#include "pgpool.h"

enum {
	FAULTS_MAX = 2, /* deadlock victims and the like, sent again */
	MOVES_MAX = 1,
	BEHIND_MAX = 16,
};

enum {
	COL_ORD,
	COL_VERDICT,
	COL_BASE,
	COL_AT,
	COL_GAP_BASE,
	COL_GAP,
	COL_DUP_POS,
	COL_DUP_OFF
};

/* The flight becomes the first of those waiting again. */
static void
send_again(struct flush *f, struct flush_part *p)
{
	struct flush_seg *s = p->flight;

	p->flight = NULL;
	s->next = p->first;
	if (!p->first)
		p->last = &s->next;
	p->first = s;
	flush_make_ready(f, p);
}

static void
fail_flight(struct flush *f, struct flush_part *p)
{
	struct flush_seg *s = p->flight;

	p->flight = NULL;
	flush_seg_fail(f, s);
	flush_part_idle(f, p);
}

/* ---- written ---- */

static void
on_written(struct flush *f, struct flush_part *p)
{
	struct flush_seg *s = p->flight;
	const struct cat_queue *q = p->part->queue;

	p->flight = NULL;
	announce_messages(f->x, q->id, p->id);
	for (uint32_t i = 0; i < s->n; i++)
		flush_complete(s->msgs[i].it, FLUSH_QUEUED);
	flush_seg_free(f, s);
	flush_part_idle(f, p);
}

/* ---- duplicate ---- */

/* Takes the duplicates out of the segment; the frames close ranks. */
static void
cut_duplicates(struct flush *f, struct flush_part *p, const PGresult *res,
	int row, struct flush_dups *dups)
{
	struct flush_seg *s = p->flight;
	struct pgbin_array pos = pgbin_array(res, row, COL_DUP_POS);
	struct pgbin_array off = pgbin_array(res, row, COL_DUP_OFF);
	struct span at, of;
	bool null, more = pgbin_array_next(&pos, &at, &null);
	size_t read = 0, write = 0;
	uint32_t kept = 0;

	map_fini(&s->by_hash);
	s->probe = false;
	for (uint32_t i = 0; i < s->n; i++) {
		struct flush_msg m = s->msgs[i];
		bool dup = more && pgbin_span_i32(at) == (int32_t)i;

		if (dup) {
			BUG(!pgbin_array_next(&off, &of, &null));
			m.it->offset = pgbin_span_i64(of);
			flush_dups_add(dups, p->part, m.it);
			more = pgbin_array_next(&pos, &at, &null);
		} else {
			memmove(s->frames.p + write, s->frames.p + read,
				m.bytes);
			write += m.bytes;
			s->probe = s->probe || !m.it->minted;
			s->msgs[kept++] = m;
		}
		read += m.bytes;
	}
	f->stats.duplicates += s->n - kept;
	f->waiting_bytes -= (int64_t)(read - write);
	s->frames.len = write;
	s->n = kept;
}

static void
on_duplicate(struct flush *f, struct flush_part *p, const PGresult *res,
	int row, struct flush_dups *dups)
{
	uint32_t before = p->flight->n;

	cut_duplicates(f, p, res, row, dups);
	if (p->flight->n == before) {
		fail_flight(f, p); /* the verdict named none: do not loop */
		return;
	}
	if (p->flight->n) {
		send_again(f, p);
		return;
	}
	flush_seg_free(f, p->flight);
	p->flight = NULL;
	flush_part_idle(f, p);
}

/* ---- behind ---- */

static void
on_paged(void *arg, const struct err *e)
{
	struct flush_part *p = arg;

	if (e)
		fail_flight(p->flush, p);
	else
		send_again(p->flush, p);
}

static void
on_behind(struct flush *f, struct flush_part *p)
{
	if (p->behind == BEHIND_MAX) {
		fail_flight(f, p);
		return;
	}
	flush_ids_page(f, p->part, p->behind++, on_paged, p);
}

/* ---- gone ---- */

/* Appends what waited for the old partition to the new one. */
static void
move_segments(struct flush *f, struct flush_part *p, struct cat_part *to)
{
	struct flush_seg *s = p->flight;

	p->flight = NULL;
	s->next = p->first;
	p->first = NULL;
	p->last = &p->first;
	if (!to) {
		struct flush_seg *next;

		for (; s; s = next) {
			next = s->next;
			flush_seg_fail(f, s);
		}
		flush_part_idle(f, p);
		return;
	}
	struct flush_part *q = flush_part_get(f, to);

	/* the same one: it had been asked for in an unlucky moment */
	for (struct flush_seg *k = s; k; k = k->next)
		k->moves++;
	*q->last = s;
	while (*q->last)
		q->last = &(*q->last)->next;
	flush_make_ready(f, q);
	if (q != p)
		flush_part_idle(f, p);
}

static void
on_resolved(void *arg, const struct err *e)
{
	struct flush_part *p = arg;

	move_segments(p->flush, p, e ? NULL : p->again.part);
}

static void
on_gone(struct flush *f, struct flush_part *p)
{
	struct cat_queue *q = p->part->queue;

	catalog_forget_part(f->x->catalog, p->id);
	dedup_drop(f->dedup, p->id);
	if (p->flight->moves >= MOVES_MAX) {
		fail_flight(f, p);
		return;
	}
	p->again = (struct resolve_item){ .queue = q->name,
		.partition = p->part->name };
	resolve_start(f->x, &q->tenant, &p->again, 1, on_resolved, p);
}

/* ---- encryption required ---- */

static void
on_encryption(struct flush *f, struct flush_part *p)
{
	if (keyring_must_seal(f->x, p->part->queue) && !p->flight->sealed) {
		send_again(f, p);
		return;
	}
	for (uint32_t i = 0; i < p->flight->n; i++)
		p->flight->msgs[i].it->unsealed = true;
	fail_flight(f, p);
}

/* ---- the call ---- */

static void
learn(struct flush *f, struct flush_part *p, const PGresult *res, int row,
	enum flush_verdict v)
{
	struct flush_seg *s = p->flight;
	struct flush_news news = { .probed = s->probe,
		.sent_verified = p->sent_verified,
		.written = v == FLUSH_V_WRITTEN };

	flush_news_gap(&news, res, row, COL_GAP_BASE);
	if (news.written) {
		news.base = pgbin_i64(res, row, COL_BASE);
		news.at_us = pgbin_time(res, row, COL_AT);
	}
	buf_reset(&f->blob);
	for (uint32_t k = 0; news.written && k < s->n; k++)
		buf_put(&f->blob, &s->msgs[k].it->hash, HASH_ID_BYTES);
	flush_ids_learn(f, p->part, &news, (const uint8_t *)f->blob.p,
		news.written ? s->n : 0);
}

static void
on_row(struct flush *f, struct flush_part *p, const PGresult *res, int row,
	struct flush_dups *dups)
{
	enum flush_verdict v =
		(enum flush_verdict)pgbin_i32(res, row, COL_VERDICT);

	switch (v) {
	case FLUSH_V_WRITTEN:
		learn(f, p, res, row, v);
		on_written(f, p);
		return;
	case FLUSH_V_DUPLICATE:
		learn(f, p, res, row, v);
		on_duplicate(f, p, res, row, dups);
		return;
	case FLUSH_V_GONE:
		on_gone(f, p);
		return;
	case FLUSH_V_BEHIND:
		on_behind(f, p);
		return;
	case FLUSH_V_ENCRYPTION:
		on_encryption(f, p);
		return;
	}
	fail_flight(f, p);
}

static void
on_failure(struct flush *f, struct flush_call *c, const struct err *e)
{
	count_db_error(f->x);
	for (int i = 0; i < c->n; i++) {
		struct flush_part *p = c->parts[i];

		/*
		 * Unknown is failed, too: the client sends it again with the
		 * same id, and the ids that were written are then found.
		 */
		if (pgpool_was_victim(e) && p->flight->faults++ < FAULTS_MAX)
			send_again(f, p);
		else
			fail_flight(f, p);
	}
}

void
flush_on_answer(void *call, const PGresult *res, const struct err *e)
{
	struct flush_call *c = call;
	struct flush *f = c->flush;
	bool seen[FLUSH_PARTS_MAX] = { false };
	int messages = 0;

	f->calls--;
	if (e) {
		on_failure(f, c, e);
	} else {
		struct flush_dups *dups = flush_dups_new(f);

		for (int i = 0; i < c->n; i++)
			messages += (int)c->parts[i]->flight->n;
		count_batch(f->x, COUNT_PUSH, c->n, messages,
			clk_mono_us() - c->sent_us);
		for (int i = 0; i < PQntuples(res); i++) {
			int at = pgbin_i32(res, i, COL_ORD) - 1;

			BUG(at < 0 || at >= c->n || seen[at]);
			seen[at] = true;
			on_row(f, c->parts[at], res, i, dups);
		}
		for (int i = 0; i < c->n; i++)
			if (!seen[i])
				fail_flight(f, c->parts[i]);
		flush_dups_start(dups);
	}
	free(c);
	flush_pump_later(f);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* One input of ack_v1: its arrays, its rows; see ack_job.h. */
#include "ack_job.h"

#include <string.h>

#include "arena.h"
#include "catalog.h"
#include "ctx.h"
#include "err.h"
#include "frame.h"
#include "log.h"
#include "seg.h"

const char *const ack_job_no_consumer = "consumer not found";
const char *const ack_job_bad_lease = "invalid or expired lease";
const char *const ack_job_failed =
	"ack flush failed; lease will expire and redeliver";
const char *const ack_job_pool = "pool";

static const char *const text_committed =
	"already committed: the cursor moved past this message before this ack";
static const char *const text_unresolvable =
	"unresolvable: transaction not in the ack window (hash purged or never "
	"pushed); if leased, the message redelivers";

void
ack_job_init(struct ack_job *j, struct arena *a)
{
	*j = (struct ack_job){
		.arena = a, .plain = true, .dead = -1, .conflated = -1
	};
	j->last = &j->first;
}

void
ack_job_add(struct ack_job *j, struct ack_item *it)
{
	it->next = NULL;
	*j->last = it;
	j->last = &it->next;
	j->n++;
	j->plain = j->plain && it->status == BODY_COMPLETED;
}

int
ack_job_cmp(const void *a, const void *b)
{
	const struct ack_job *p = *(struct ack_job *const *)a;
	const struct ack_job *q = *(struct ack_job *const *)b;

	if (p->part_id != q->part_id)
		return p->part_id < q->part_id ? -1 : 1;
	return (p->group_id > q->group_id) - (p->group_id < q->group_id);
}

/* ---- arrays ---- */

static void
put_lease(struct pgargs *a, struct ack_job *const *jobs, size_t n, int which)
{
	pgargs_array(a, PGARGS_I64);
	for (size_t i = 0; i < n; i++) {
		const struct qid_lease *l = &jobs[i]->lease;

		if (!jobs[i]->leased)
			pgargs_item_null(a);
		else
			pgargs_item_i64(a, which == 0   ? l->partition_id
					   : which == 1 ? l->group_id
							: l->number);
	}
	pgargs_close(a);
}

static void
put_items(struct pgargs *a, struct ack_job *const *jobs, size_t n)
{
	struct buf b = BUF_ZERO;

	pgargs_array(a, PGARGS_BYTEA);
	for (size_t i = 0; i < n; i++) {
		buf_reset(&b);
		for (struct ack_item *it = jobs[i]->first; it; it = it->next)
			buf_put(&b, it->hash.b, HASH_ID_BYTES);
		pgargs_item_bytea(a, buf_span(&b));
	}
	pgargs_close(a);
	pgargs_array(a, PGARGS_BYTEA);
	for (size_t i = 0; i < n; i++) {
		buf_reset(&b);
		for (struct ack_item *it = jobs[i]->first; it; it = it->next)
			buf_putc(&b, (char)it->status);
		if (jobs[i]->plain)
			pgargs_item_null(a);
		else
			pgargs_item_bytea(a, buf_span(&b));
	}
	pgargs_close(a);
	buf_fini(&b);
}

enum error_part { ERROR_ACK, ERROR_ITEM, ERROR_TEXT };

static void
put_errors(struct pgargs *a, struct ack_job *const *jobs, size_t n,
	enum error_part part)
{
	pgargs_array(a, part == ERROR_TEXT ? PGARGS_TEXT : PGARGS_I32);
	for (size_t i = 0; i < n; i++) {
		int32_t k = 0;

		for (struct ack_item *it = jobs[i]->first; it;
			it = it->next, k++) {
			if (!it->text.n)
				continue;
			if (part == ERROR_TEXT)
				pgargs_item_text(a, it->text);
			else
				pgargs_item_i32(a,
					part == ERROR_ACK ? (int32_t)i + 1 : k);
		}
	}
	pgargs_close(a);
}

static void
put_frames(struct pgargs *a, struct ack_job *const *jobs, size_t n)
{
	pgargs_array(a, PGARGS_I32);
	for (size_t i = 0; i < n; i++)
		for (int k = 0; k < jobs[i]->frames_n; k++)
			pgargs_item_i32(a, (int32_t)i + 1);
	pgargs_close(a);
	pgargs_array(a, PGARGS_I64);
	for (size_t i = 0; i < n; i++)
		for (int k = 0; k < jobs[i]->frames_n; k++)
			pgargs_item_i64(a, jobs[i]->frames[k].off);
	pgargs_close(a);
	pgargs_array(a, PGARGS_BYTEA);
	for (size_t i = 0; i < n; i++)
		for (int k = 0; k < jobs[i]->frames_n; k++) {
			if (jobs[i]->frames[k].null)
				pgargs_item_null(a);
			else
				pgargs_item_bytea(a, jobs[i]->frames[k].frame);
		}
	pgargs_close(a);
	/* when the message was stored: SQL knows */
	pgargs_array(a, PGARGS_TIMESTAMPTZ);
	for (size_t i = 0; i < n; i++)
		for (int k = 0; k < jobs[i]->frames_n; k++)
			pgargs_item_null(a);
	pgargs_close(a);
}

void
ack_job_args(struct pgargs *a, struct ack_job *const *jobs, size_t n)
{
	pgargs_array(a, PGARGS_I64);
	for (size_t i = 0; i < n; i++)
		pgargs_item_i64(a, jobs[i]->group_id);
	pgargs_close(a);
	pgargs_array(a, PGARGS_I64);
	for (size_t i = 0; i < n; i++)
		pgargs_item_i64(a, jobs[i]->part_id);
	pgargs_close(a);
	for (int which = 0; which < 3; which++)
		put_lease(a, jobs, n, which);
	put_items(a, jobs, n);
	put_errors(a, jobs, n, ERROR_ACK);
	put_errors(a, jobs, n, ERROR_ITEM);
	put_errors(a, jobs, n, ERROR_TEXT);
	put_frames(a, jobs, n);
	pgargs_array(a, PGARGS_UUID);
	for (size_t i = 0; i < n; i++) {
		struct qid id = qid_new();

		pgargs_item_uuid(a, &id);
	}
	pgargs_close(a);
}

/* ---- rows ---- */

void
ack_job_fail(struct ack_job *j, const char *error)
{
	for (struct ack_item *it = j->first; it; it = it->next) {
		it->success = it->noop = it->dlq = it->released = false;
		it->error = error;
		it->conflated = -1;
	}
}

static void
read_item(struct ack_item *it, uint8_t byte, bool released, int64_t conflated)
{
	it->error = NULL;
	it->noop = byte == ACK_ITEM_NOOP;
	it->success = byte == ACK_ITEM_SUCCESS || byte == ACK_ITEM_NOOP;
	it->released = released && it->success;
	it->dlq = false;
	it->conflated = it->success && !it->noop ? conflated : -1;
	switch (byte) {
	case ACK_ITEM_COMMITTED:
		it->error = text_committed;
		break;
	case ACK_ITEM_UNRESOLVABLE:
		it->error = text_unresolvable;
		break;
	case ACK_ITEM_STALE:
		it->error = ack_job_bad_lease;
		break;
	default:
		break;
	}
}

/*
 * Which item the dead letter is: the one with the id in the frame, or, when
 * the message had been removed, the first that asked for trouble.
 */
static void
mark_dead(struct ack_job *j)
{
	const struct ack_frame *f = NULL;

	for (int i = 0; i < j->frames_n; i++)
		if (j->frames[i].off == j->dead && !j->frames[i].null)
			f = &j->frames[i];
	for (struct ack_item *it = j->first; it; it = it->next) {
		if (!it->success ||
			(it->status != BODY_FAILED && it->status != BODY_DLQ))
			continue;
		if (f && memcmp(&f->txn, &it->hash, sizeof(f->txn)) != 0)
			continue;
		it->dlq = true;
		if (!f)
			return;
	}
}

void
ack_job_read(struct ack_job *j, enum ack_verdict v, const PGresult *res,
	int row, const struct ack_cols *c)
{
	struct span bytes = SPAN_ZERO;
	size_t i = 0;

	if (v == ACK_NO_CONSUMER) {
		ack_job_fail(j, ack_job_no_consumer);
		return;
	}
	if (!pgbin_null(res, row, c->items))
		bytes = pgbin_bytes(res, row, c->items);
	if (v == ACK_STALE && bytes.n != j->n) {
		ack_job_fail(j, ack_job_bad_lease);
		return;
	}
	j->conflated = pgbin_null(res, row, c->conflated)
			       ? -1
			       : pgbin_i64(res, row, c->conflated);
	for (struct ack_item *it = j->first; it; it = it->next, i++)
		read_item(it,
			i < bytes.n ? (uint8_t)bytes.p[i] : ACK_ITEM_SUCCESS,
			v == ACK_RELEASED, j->conflated);
	j->dead = pgbin_null(res, row, c->dead) ? -1
						: pgbin_i64(res, row, c->dead);
	if (j->dead >= 0)
		mark_dead(j);
}

static bool
cut(struct ctx *x, struct ack_job *j, struct span blob, int64_t skip,
	struct ack_frame *out)
{
	struct buf frames = BUF_ZERO;
	struct frame fr;
	struct err e = ERR_ZERO;
	bool good = seg_unpack(blob, &frames, &e) == 0;
	struct span rest = buf_span(&frames);

	good = good && seg_skip(&rest, skip, &e) == 0 &&
	       frame_next(&rest, &fr, &e) == 1;
	if (good) {
		out->frame = arena_dup(j->arena, fr.whole);
		hash_id(x->hash_key, fr.txn, &out->txn);
	} else {
		log_line(LOG_ERROR, "ack", "a stored segment cannot be read",
			"partition_id=%lld offset=%lld error=%s",
			(long long)j->part_id, (long long)out->off,
			log_quote(e.text));
	}
	buf_fini(&frames);
	return good;
}

bool
ack_job_cut(struct ctx *x, struct ack_job *j, const PGresult *res, int row,
	const struct ack_cols *c)
{
	if (j->frames_n == ACK_JOB_ROUNDS)
		return false;
	struct ack_frame *f = &j->frames[j->frames_n++];
	int64_t off = pgbin_i64(res, row, c->off);

	*f = (struct ack_frame){ .off = off };
	f->null = !cut(x, j, pgbin_bytes(res, row, c->blob),
		off - pgbin_i64(res, row, c->base), f);
	return true;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bundle: begin and one call, then commit when every verdict is good, else
 * rollback.  After a rollback the first verdict that is bad decides: the
 * bundle is repeated (window paged in, frame brought, name resolved anew) or
 * the request is refused.
 */
#include <stdlib.h>
#include <string.h>

#include "announce.h"
#include "arena.h"
#include "catalog.h"
#include "count.h"
#include "err.h"
#include "frame.h"
#include "hsrv.h"
#include "keyring.h"
#include "map.h"
#include "pgpool.h"
#include "seg.h"
#include "timer_fire.h"
#include "txn_int.h"

enum { FAULTS_MAX = 3, GONE_MAX = 2, BEHIND_MAX = 16 };

static const struct pgstmt STMT_BUNDLE = { "bundle",
	"select kind, ord, verdict, base, at, gap_base, gap, dup_pos, dead, "
	"dropped, conflated, more, off, blob, items "
	"from queen.bundle_v1($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, "
	"$12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23, $24, "
	"$25, $26, $27, $28, $29, $30, $31, $32)" };
static const struct pgstmt STMT_RIDERS = { "bundle_riders",
	"select kind, ord, verdict, base, at, gap_base, gap, dup_pos, dead, "
	"dropped, conflated, more, off, blob, items, row_no, reason, key, "
	"value, version, expires_at, updated_at, txn, message_id, deliver_at "
	"from queen.bundle_riders_v1($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, "
	"$11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23, $24, "
	"$25, $26, $27, $28, $29, $30, $31, $32, $33, $34, $35, $36, $37, $38, "
	"$39, $40, $41, $42, $43, $44, $45, $46, $47, $48, $49, $50, $51, $52, "
	"$53, $54, $55, $56)" };
/* the bundle of riders for nothing else: an eighth more of the backend's time */
static const struct pgstmt STMT_KV = { "bundle_kv",
	"select 3 as kind, ord, verdict, row_no, reason, key, value, version, "
	"expires_at, updated_at "
	"from queen.kv_apply_v1($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, "
	"$12, $13, $14, $15, $16, $17, $18)" };
enum {
	COL_KIND,
	COL_ORD,
	COL_VERDICT,
	COL_BASE,
	COL_AT,
	COL_GAP_BASE,
	COL_GAP,
	COL_DUP_POS
};
static const struct ack_cols COLS = { .dead = 8,
	.dropped = 9,
	.conflated = 10,
	.more = 11,
	.off = 12,
	.base = COL_BASE,
	.blob = 13,
	.items = 14 };

enum kind { KIND_LEASE, KIND_PUSH, KIND_ACK };

/* ---- segments ---- */

static bool
same_id(const void *item, const void *key)
{
	const struct txn_push *a = item, *b = key;

	return a->part == b->part &&
	       memcmp(&a->hash, &b->hash, sizeof(a->hash)) == 0;
}

static int
seg_cmp(const void *a, const void *b)
{
	const struct txn_seg *p = a, *q = b;

	return (p->part->id > q->part->id) - (p->part->id < q->part->id);
}

static bool
is_seg(const void *item, const void *key)
{
	return ((const struct txn_seg *)item)->part == key;
}

/* First wins; which items go to which partition. */
static void
share_out(struct txn *t)
{
	struct map ids = MAP_ZERO, segs = MAP_ZERO;

	t->segs_n = 0;
	for (size_t i = 0; i < t->pushes_n; i++) {
		struct txn_push *p = &t->pushes[i];
		uint64_t h, ph = map_hash_i64(p->part->id);

		memcpy(&h, p->hash.b, sizeof(h));
		h ^= ph;
		p->leader = map_get(&ids, h, same_id, p);
		if (p->leader)
			continue;
		map_put(&ids, h, p);
		struct txn_seg *s = map_get(&segs, ph, is_seg, p->part);

		if (!s) {
			s = &t->segs[t->segs_n++];
			*s = (struct txn_seg){ .part = p->part };
			map_put(&segs, ph, s);
		}
		s->n++;
		s->probe = s->probe || !p->minted;
	}
	for (size_t i = 0; i < t->segs_n; i++) {
		t->segs[i].items = arena_alloc(
			t->arena, t->segs[i].n * sizeof(struct txn_push *));
		t->segs[i].n = 0;
	}
	for (size_t i = 0; i < t->pushes_n; i++) {
		struct txn_push *p = &t->pushes[i];
		struct txn_seg *s =
			p->leader ? NULL
				  : map_get(&segs, map_hash_i64(p->part->id),
					    is_seg, p->part);

		if (s)
			s->items[s->n++] = p;
	}
	map_fini(&ids);
	map_fini(&segs);
	qsort(t->segs, t->segs_n, sizeof(*t->segs), seg_cmp);
}

static void
write_frames(struct txn *t)
{
	struct buf b = BUF_ZERO, room = BUF_ZERO;

	for (size_t i = 0; i < t->segs_n; i++) {
		struct txn_seg *s = &t->segs[i];

		buf_reset(&b);
		s->sealed = s->part->queue->encrypted && keyring_seals(t->x);
		for (size_t k = 0; k < s->n; k++) {
			const struct txn_push *p = s->items[k];
			struct frame f = { .id = p->id,
				.txn = p->txn,
				.payload = p->body->payload };

			if (p->body->has_trace) {
				f.flags |= FRAME_TRACE;
				f.trace = p->body->trace;
			}
			f.sub = ctx_subject(t->req);
			if (f.sub.n)
				f.flags |= FRAME_SUB;
			if (s->sealed)
				keyring_seal(t->x, &f, &room);
			frame_write(&b, &f);
		}
		s->frames = arena_dup(t->arena, buf_span(&b));
	}
	buf_fini(&b);
	buf_fini(&room);
}

/* ---- arguments ---- */

static void
put_leases(struct pgargs *a, const struct txn *t)
{
	for (int which = 0; which < 3; which++) {
		pgargs_array(a, PGARGS_I64);
		for (size_t i = 0; i < t->leases_n; i++) {
			const struct qid_lease *l = &t->leases[i];

			pgargs_item_i64(a, which == 0   ? l->partition_id
					   : which == 1 ? l->group_id
							: l->number);
		}
		pgargs_close(a);
	}
}

static void
put_segs(struct pgargs *a, const struct txn *t)
{
	struct buf b = BUF_ZERO;
	size_t i;

	pgargs_array(a, PGARGS_I64);
	for (i = 0; i < t->segs_n; i++)
		pgargs_item_i64(a, t->segs[i].part->id);
	pgargs_close(a);
	pgargs_array(a, PGARGS_I32);
	for (i = 0; i < t->segs_n; i++)
		pgargs_item_i32(a, (int32_t)t->segs[i].n);
	pgargs_close(a);
	pgargs_array(a, PGARGS_BYTEA);
	for (i = 0; i < t->segs_n; i++) {
		buf_reset(&b);
		for (size_t k = 0; k < t->segs[i].n; k++)
			buf_put(&b, t->segs[i].items[k]->hash.b, HASH_ID_BYTES);
		pgargs_item_bytea(a, buf_span(&b));
	}
	pgargs_close(a);
	pgargs_array(a, PGARGS_I32);
	for (i = 0; i < t->segs_n; i++)
		pgargs_item_i32(a, (int32_t)t->segs[i].frames.n);
	pgargs_close(a);
	pgargs_array(a, PGARGS_I16);
	for (i = 0; i < t->segs_n; i++)
		keyring_item(a, t->x, t->segs[i].sealed);
	pgargs_close(a);
	pgargs_array(a, PGARGS_BYTEA);
	for (i = 0; i < t->segs_n; i++) {
		buf_reset(&b);
		seg_pack(t->segs[i].frames, &b);
		pgargs_item_bytea(a, buf_span(&b));
	}
	pgargs_close(a);
	buf_fini(&b);
}

static void
put_vouchers(struct pgargs *a, struct txn *t)
{
	struct flush *f = t->x->flush;
	int64_t *covered =
		arena_alloc(t->arena, (t->segs_n + 1) * sizeof(*covered));

	t->suspects.n = 0;
	pgargs_array(a, PGARGS_I64);
	for (size_t i = 0; i < t->segs_n; i++) {
		struct txn_seg *s = &t->segs[i];

		if (!s->probe) {
			pgargs_item_null(a);
			continue;
		}
		struct flush_vouch v = flush_ids_vouch(f, s->part->id);

		s->sent_verified = v.verified;
		covered[i] = v.covered_us;
		pgargs_item_i64(a, v.verified);
		for (size_t k = 0; k < s->n; k++)
			if (!s->items[k]->minted)
				flush_ids_suspect(f, s->part->id,
					(int32_t)i + 1, (int32_t)k,
					&s->items[k]->hash, &t->suspects);
	}
	pgargs_close(a);
	pgargs_array(a, PGARGS_TIMESTAMPTZ);
	for (size_t i = 0; i < t->segs_n; i++) {
		if (t->segs[i].probe)
			pgargs_item_time(a, covered[i]);
		else
			pgargs_item_null(a);
	}
	pgargs_close(a);
	flush_suspects_args(a, &t->suspects);
}

/* ---- verdicts ---- */

/* Is every item of an ack done, or tolerated? */
static bool
items_are_good(const PGresult *res, int row)
{
	if (pgbin_null(res, row, COLS.items))
		return true;
	struct span b = pgbin_bytes(res, row, COLS.items);

	for (size_t i = 0; i < b.n; i++)
		if ((uint8_t)b.p[i] > ACK_ITEM_COMMITTED)
			return false;
	return true;
}

static bool
is_good(const PGresult *res, int row)
{
	int32_t v = pgbin_i32(res, row, COL_VERDICT);

	if (pgbin_i32(res, row, COL_KIND) != KIND_ACK)
		return v == 0;
	return (v == ACK_RELEASED || v == ACK_KEPT) && items_are_good(res, row);
}

static bool
decide(void *arg, const PGresult *res)
{
	struct txn *t = arg;
	size_t n = 0;
	bool good = txn_rider_index(t, res);

	for (int i = t->rest; i < PQntuples(res); i++)
		n += is_good(res, i);
	t->committed = good && n == (size_t)(PQntuples(res) - t->rest) &&
		       n == t->leases_n + t->segs_n + t->jobs_n;
	return t->committed;
}

static void
learn(struct txn *t, struct txn_seg *s, const PGresult *res, int row)
{
	struct buf ids = BUF_ZERO;
	struct flush_news news = { .probed = s->probe,
		.sent_verified = s->sent_verified,
		.written = t->committed };

	flush_news_gap(&news, res, row, COL_GAP_BASE);
	if (news.written) {
		news.base = pgbin_i64(res, row, COL_BASE);
		news.at_us = pgbin_time(res, row, COL_AT);
		for (size_t k = 0; k < s->n; k++)
			buf_put(&ids, s->items[k]->hash.b, HASH_ID_BYTES);
	}
	flush_ids_learn(t->x->flush, s->part, &news, (const uint8_t *)ids.p,
		ids.len / HASH_ID_BYTES);
	buf_fini(&ids);
}

static void
on_committed(struct txn *t, const PGresult *res)
{
	for (int i = t->rest; i < PQntuples(res); i++) {
		size_t at = (size_t)pgbin_i32(res, i, COL_ORD) - 1;
		int32_t v = pgbin_i32(res, i, COL_VERDICT);
		struct ack_job *j;

		switch (pgbin_i32(res, i, COL_KIND)) {
		case KIND_PUSH:
			BUG(at >= t->segs_n);
			learn(t, &t->segs[at], res, i);
			announce_messages(t->x, t->segs[at].part->queue->id,
				t->segs[at].part->id);
			break;
		case KIND_ACK:
			BUG(at >= t->jobs_n);
			j = t->jobs[at];
			ack_job_read(j, (enum ack_verdict)v, res, i, &COLS);
			if (v != ACK_RELEASED)
				break;
			if (pgbin_bool(res, i, COLS.more))
				announce_released(t->x, j->part->queue->id,
					j->group_id, j->part_id);
			else
				announce_done(t->x, j->part->queue->id,
					j->group_id, j->part_id,
					j->leased ? j->lease.number : 0);
			break;
		default:
			break;
		}
	}
	txn_done(t, res);
}

static void
reject_ack(struct txn *t, const struct ack_job *j, const char *cause)
{
	const struct txn_ack *k = t->acks;

	while (k->job != j)
		k++;
	txn_reject(t, "ack_rejected",
		"QTXN ack failed for partition %.*s group \"%.*s\": %s; "
		"transaction rolled back",
		SPAN_ARG(k->body->partition_id), SPAN_ARG(k->group), cause);
}

static void
reject_duplicate(
	struct txn *t, const struct txn_seg *s, const PGresult *res, int row)
{
	struct pgbin_array pos = pgbin_array(res, row, COL_DUP_POS);
	struct span at;
	bool null;
	size_t k = 0;

	if (pgbin_array_next(&pos, &at, &null))
		k = (size_t)pgbin_span_i32(at);
	BUG(k >= s->n);
	txn_reject(t, "duplicate",
		"QDUP transactionId \"%.*s\" is already in partition \"%.*s\" "
		"of queue \"%.*s\" inside the dedup window; transaction "
		"rolled back",
		SPAN_ARG(s->items[k]->txn), SPAN_ARG(s->part->name),
		SPAN_ARG(s->part->queue->name));
}

/* ---- repeats ---- */

static void
on_paged(void *arg, const struct err *e)
{
	struct txn *t = arg;

	if (e)
		txn_reject(
			t, "db_error", "%s; transaction rolled back", e->text);
	else
		txn_send(t);
}

/* A name or group is looked up anew; the jobs are made again. */
static void
repeat_resolved(struct txn *t)
{
	if (t->gone++ == GONE_MAX)
		txn_reject(t, "db_error",
			"what it writes to was deleted; transaction rolled "
			"back");
	else
		txn_resolve(t);
}

static void
on_bad_push(struct txn *t, struct txn_seg *s, const PGresult *res, int row)
{
	switch (pgbin_i32(res, row, COL_VERDICT)) {
	case FLUSH_V_DUPLICATE:
		learn(t, s, res, row);
		reject_duplicate(t, s, res, row);
		return;
	case FLUSH_V_GONE:
		catalog_forget_part(t->x->catalog, s->part->id);
		dedup_drop(t->x->flush->dedup, s->part->id);
		repeat_resolved(t);
		return;
	case FLUSH_V_BEHIND:
		if (t->behind == BEHIND_MAX)
			break;
		flush_ids_page(t->x->flush, s->part, t->behind++, on_paged, t);
		return;
	case FLUSH_V_ENCRYPTION:
		if (keyring_must_seal(t->x, s->part->queue) && !s->sealed) {
			txn_send(t);
			return;
		}
		txn_reject(t, "encryption_required",
			"queue \"%.*s\" takes only encrypted messages; "
			"transaction rolled back",
			SPAN_ARG(s->part->queue->name));
		return;
	default:
		break;
	}
	txn_reject(t, "db_error",
		"the ids of partition \"%.*s\" could not be "
		"read in; transaction rolled back",
		SPAN_ARG(s->part->name));
}

static void
on_bad_ack(struct txn *t, struct ack_job *j, const PGresult *res, int row)
{
	switch (pgbin_i32(res, row, COL_VERDICT)) {
	case ACK_NO_CONSUMER:
		reject_ack(t, j, ack_job_no_consumer);
		return;
	case ACK_STALE:
		reject_ack(t, j, ack_job_bad_lease);
		return;
	case ACK_GONE:
		catalog_forget_group(t->x->catalog, j->group_id);
		repeat_resolved(t);
		return;
	case ACK_NEEDS_FRAME:
		if (!ack_job_cut(t->x, j, res, row, &COLS))
			reject_ack(t, j,
				"the message to dead-letter keeps "
				"changing");
		else
			txn_send(t);
		return;
	default:
		txn_reject(t, "ack_rejected",
			"QTXN ack references unknown transactionId; "
			"transaction rolled back");
	}
}

static void
on_rolled_back(struct txn *t, const PGresult *res)
{
	int row = t->rest;

	if (t->lost >= 0) {
		txn_reject_lost(t, res);
		return;
	}
	while (!t->misaligned && row < PQntuples(res) && is_good(res, row))
		row++;
	if (t->misaligned || row == PQntuples(res)) {
		txn_reject(t, "misaligned",
			"answers are missing; transaction rolled back");
		return;
	}
	size_t at = (size_t)pgbin_i32(res, row, COL_ORD) - 1;

	switch (pgbin_i32(res, row, COL_KIND)) {
	case KIND_PUSH:
		BUG(at >= t->segs_n);
		on_bad_push(t, &t->segs[at], res, row);
		return;
	case KIND_ACK:
		BUG(at >= t->jobs_n);
		on_bad_ack(t, t->jobs[at], res, row);
		return;
	default:
		BUG(at >= t->leases_n);
		txn_reject(t, "ack_rejected",
			"QTXN required lease \"%.*s\": %s; transaction rolled "
			"back",
			SPAN_ARG(t->body.leases[at]), ack_job_bad_lease);
	}
}

/* The answer was lost: what may have happened is looked for. */
static void
announce_maybe(struct txn *t)
{
	for (size_t i = 0; i < t->segs_n; i++)
		announce_messages(
			t->x, t->segs[i].part->queue->id, t->segs[i].part->id);
	for (size_t i = 0; i < t->jobs_n; i++)
		announce_released(t->x, t->jobs[i]->part->queue->id,
			t->jobs[i]->group_id, t->jobs[i]->part_id);
	if (t->timers.schedules)
		timer_fire_wake(t->x, t->timers.soonest_ms);
}

static void
on_answer(void *arg, const PGresult *res, const struct err *e)
{
	struct txn *t = arg;

	if (!e) {
		if (t->committed)
			on_committed(t, res);
		else
			on_rolled_back(t, res);
		return;
	}
	count_db_error(t->x);
	if ((pgpool_was_victim(e) && t->faults++ < FAULTS_MAX) ||
		txn_rider_seal(t, e)) {
		txn_send(t);
		return;
	}
	txn_rider_count(t, KVLIMIT_ERROR);
	if (pgpool_had_none(e)) {
		txn_no_pool(t, e);
	} else if (e->kind == ERR_DB_UNKNOWN) {
		announce_maybe(t);
		/* what it may have taken stays charged */
		t->charged = false;
		txn_reject(t, "db_error",
			"%s; whether the transaction was committed is unknown",
			e->text);
	} else {
		txn_reject(t, txn_rider_reason(t, e),
			"%s; transaction rolled back", e->text);
	}
}

static void
send_kv(struct txn *t)
{
	struct pgargs a;

	pgargs_init(&a);
	pgargs_uuid(&a, ctx_tenant(t->req));
	txn_rider_kv_args(&a, t);
	pgpool_bundle(
		t->x->pool, LANE_REST, &STMT_KV, &a, decide, on_answer, t);
}

static void
send_all(struct txn *t)
{
	struct pgargs a;
	bool riders = txn_rider_any(t);

	share_out(t);
	write_frames(t);
	pgargs_init(&a);
	pgargs_uuid(&a, ctx_tenant(t->req));
	put_leases(&a, t);
	put_segs(&a, t);
	put_vouchers(&a, t);
	ack_job_args(&a, t->jobs, t->jobs_n);
	pgargs_bool(&a, t->leases_n > 0);
	if (riders)
		txn_rider_args(&a, t);
	pgpool_bundle(t->x->pool, LANE_REST,
		riders ? &STMT_RIDERS : &STMT_BUNDLE, &a, decide, on_answer, t);
}

void
txn_send(struct txn *t)
{
	t->committed = false;
	if (txn_rider_kv_alone(t))
		send_kv(t);
	else
		send_all(t);
}

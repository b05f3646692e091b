/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What rides on a transaction: its `kv` and `timers`.  Read and admitted before
 * anything is sent; in the database they come before pushes and acks.  Their
 * results stand behind those of the operations.
 */
#include <stdio.h>
#include <string.h>

#include "arena.h"
#include "err.h"
#include "fault.h"
#include "hsrv.h"
#include "jwrite.h"
#include "pgbin.h"
#include "timer_fire.h"
#include "txn_int.h"

enum { KIND_KV = 3, KIND_TIMER = 4 };
enum { COL_KIND, COL_ORD, COL_VERDICT };
/* behind the columns of a bundle without riders */
enum { RIDER_COLS = 15 };
static const struct kv_cols KV = { .ord = COL_ORD,
	.row_no = RIDER_COLS,
	.verdict = COL_VERDICT,
	.reason = RIDER_COLS + 1,
	.key = RIDER_COLS + 2,
	.value = RIDER_COLS + 3,
	.version = RIDER_COLS + 4,
	.expires_at = RIDER_COLS + 5,
	.updated_at = RIDER_COLS + 6 };
/* of a bundle that has nothing else: no room for the rest */
static const struct kv_cols KV_ALONE = { .ord = COL_ORD,
	.row_no = 3,
	.verdict = COL_VERDICT,
	.reason = 4,
	.key = 5,
	.value = 6,
	.version = 7,
	.expires_at = 8,
	.updated_at = 9 };
static const struct timer_cols TIMER = { .ord = COL_ORD,
	.status = COL_VERDICT,
	.txn = RIDER_COLS + 7,
	.message_id = RIDER_COLS + 8,
	.deliver_at = RIDER_COLS + 9 };

/* ---- before the call ---- */

static void
refuse(struct txn *t, const struct fault *f)
{
	/* a queue wants sealed payloads and we have no key: as a push */
	bool unsealed = f->status == 500;
	const char *reason = f->status == 400   ? "bad_request"
			     : f->status == 413 ? "payload_too_large"
			     : unsealed         ? f->reason
						: f->error;
	struct span text =
		f->detail[0]
			? arena_printf(t->arena, "%s: %s", f->reason, f->detail)
			: span_of(f->reason ? f->reason : f->error);

	if (f->retry_after_s) {
		struct span s = arena_printf(t->arena, "%d", f->retry_after_s);

		hsrv_add_header(t->req, "Retry-After", arena_cstr(t->arena, s));
	}
	txn_refuse(t, unsealed ? 200 : f->status, reason, text);
}

bool
txn_rider_read(struct txn *t)
{
	struct fault f = { .status = 0 };

	if (t->body.kv.n && kv_ops_parse(t->body.kv, true, t->x, t->arena,
				    &t->kv, &f) != 0) {
		refuse(t, &f);
		return false;
	}
	if (t->body.timers.n &&
		timer_ops_parse(t->body.timers, t->x, ctx_tenant(t->req),
			ctx_subject(t->req), t->arena, &t->timers, &f) != 0) {
		timer_ops_count(t->x, &f);
		refuse(t, &f);
		return false;
	}
	return true;
}

bool
txn_rider_admit(struct txn *t)
{
	struct kvlimit_no no;
	struct fault f;

	t->ask = (struct kvlimit_ask){ .kv = t->kv.n > 0,
		.kv_write = t->kv.writes > 0,
		.schedule = t->timers.schedules > 0,
		.in_bundle = true,
		.rows = t->kv.rows,
		.bytes = t->kv.bytes,
		.timers = t->timers.schedules,
		.horizon_ms = t->timers.horizon_ms };
	if (!t->ask.kv && !t->ask.schedule)
		return true;
	if (kvlimit_admit(t->x, ctx_tenant(t->req), &t->ask, &no)) {
		t->charged = true;
		return true;
	}
	fault_of_limit(&no, &f);
	refuse(t, &f);
	return false;
}

void
txn_rider_refund(struct txn *t)
{
	if (t->charged)
		kvlimit_refund(t->x, ctx_tenant(t->req), &t->ask);
	t->charged = false;
}

/* ---- the call ---- */

bool
txn_rider_any(const struct txn *t)
{
	return t->kv.n > 0 || t->timers.n > 0;
}

bool
txn_rider_kv_alone(const struct txn *t)
{
	size_t others = t->timers.n + t->pushes_n + t->acks_n + t->leases_n;

	return t->kv.n > 0 && others == 0;
}

static const struct kv_cols *
kv_cols(const struct txn *t)
{
	return txn_rider_kv_alone(t) ? &KV_ALONE : &KV;
}

void
txn_rider_args(struct pgargs *a, const struct txn *t)
{
	kv_ops_args(a, &t->kv, t->x);
	timer_ops_args(a, &t->timers, t->x);
}

void
txn_rider_kv_args(struct pgargs *a, const struct txn *t)
{
	pgargs_bool(a, true);
	kv_ops_args(a, &t->kv, t->x);
}

bool
txn_rider_seal(struct txn *t, const struct err *e)
{
	return timer_ops_seal(
		&t->timers, t->x, ctx_tenant(t->req), t->arena, e);
}

static int
rows_of(const PGresult *res, int from, int kind)
{
	int to = from;

	while (to < PQntuples(res) && pgbin_i32(res, to, COL_KIND) == kind)
		to++;
	return to;
}

bool
txn_rider_index(struct txn *t, const PGresult *res)
{
	int kv = rows_of(res, 0, KIND_KV);
	int timers = rows_of(res, kv, KIND_TIMER);

	t->rest = timers;
	t->lost = kv_ops_lost(res, kv_cols(t), 0, kv);
	t->misaligned =
		t->lost < 0 &&
		(!kv_ops_index(&t->kv, res, kv_cols(t), 0, kv) ||
			!timer_ops_index(&t->timers, res, &TIMER, kv, timers));
	return t->lost < 0 && !t->misaligned;
}

/* ---- afterwards ---- */

static void
count_kv(const struct txn *t, const PGresult *res)
{
	for (size_t i = 0; i < t->kv.n; i++) {
		const struct kv_op *op = &t->kv.v[i];
		bool good = op->kind < KV_PUT ||
			    pgbin_i32(res, op->row, COL_VERDICT) == 0;

		kvlimit_count(t->x, (enum kvlimit_op)op->kind,
			good ? KVLIMIT_APPLIED : KVLIMIT_REJECTED);
	}
}

void
txn_rider_committed(struct txn *t, const PGresult *res)
{
	t->charged = false;
	count_kv(t, res);
	if (t->timers.schedules)
		timer_fire_wake(t->x, t->timers.soonest_ms);
}

void
txn_rider_write(struct jwrite *w, const struct txn *t, int64_t index,
	const PGresult *res)
{
	for (size_t i = 0; i < t->kv.n; i++) {
		jwrite_object(w);
		jwrite_kv_i64(w, "index", index++);
		jwrite_kv_cstr(w, "type", "kv");
		jwrite_kv_i64(w, "opIndex", (int64_t)i);
		kv_ops_write(w, &t->kv, i, res, kv_cols(t));
		jwrite_end(w);
	}
	for (size_t i = 0; i < t->timers.n; i++) {
		jwrite_object(w);
		jwrite_kv_i64(w, "index", index++);
		jwrite_kv_cstr(w, "type", "timer");
		jwrite_kv_i64(w, "opIndex", (int64_t)i);
		timer_ops_write(w, &t->timers, i, res, &TIMER);
		jwrite_end(w);
	}
}

void
txn_rider_write_lost(struct jwrite *w, const struct txn *t, const PGresult *res)
{
	const struct kv_cols *c = kv_cols(t);
	int64_t index = (int64_t)(t->pushes_n + t->acks_n +
				  kv_ops_of_row(res, c, t->lost));

	kv_ops_write_lost(w, &t->kv, index, res, c, t->lost);
}

void
txn_rider_count(const struct txn *t, enum kvlimit_result result)
{
	for (size_t i = 0; i < t->kv.n; i++)
		kvlimit_count(t->x, (enum kvlimit_op)t->kv.v[i].kind, result);
}

const char *
txn_rider_reason(const struct txn *t, const struct err *e)
{
	if (!txn_rider_any(t) || strncmp(e->sqlstate, "22", 2) != 0)
		return "db_error";
	if (strcmp(e->sqlstate, "22001") == 0)
		return "payload_too_large";
	/* flagged after the timer was read: never in clear text */
	if (strstr(e->text, "encryption_required"))
		return "encryption_required";
	return "bad_request";
}

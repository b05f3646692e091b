/* SPDX-License-Identifier: Apache-2.0 */
/* Timer operations as arguments, and the rows that answer them as JSON. */
#include "ctx.h"
#include "err.h"
#include "fault.h"
#include "jwrite.h"
#include "keyring.h"
#include "kvlimit.h"
#include "pgbin.h"
#include "timer_ops.h"

/* As timer_apply_v1 numbers them. */
enum { SCHEDULED, RESCHEDULED, CANCELLED, ABSENT };

/* A text of each schedule; a cancel has none. */
static void
put_texts(struct pgargs *a, const struct timer_ops *o, size_t at, bool of_all)
{
	pgargs_array(a, PGARGS_TEXT);
	for (size_t i = 0; i < o->n; i++) {
		struct span s;

		memcpy(&s, (const char *)&o->v[i] + at, sizeof(s));
		if (of_all || !o->v[i].cancel)
			pgargs_item_text(a, s);
		else
			pgargs_item_null(a);
	}
	pgargs_close(a);
}

static void
put_bytes(struct pgargs *a, const struct timer_ops *o)
{
	pgargs_array(a, PGARGS_BYTEA);
	for (size_t i = 0; i < o->n; i++)
		if (o->v[i].cancel)
			pgargs_item_null(a);
		else
			pgargs_item_bytea(
				a, span_make(o->v[i].hash.b, HASH_ID_BYTES));
	pgargs_close(a);
	pgargs_array(a, PGARGS_BYTEA);
	for (size_t i = 0; i < o->n; i++)
		if (o->v[i].cancel)
			pgargs_item_null(a);
		else
			pgargs_item_bytea(a, o->v[i].frame);
	pgargs_close(a);
}

void
timer_ops_args(struct pgargs *a, const struct timer_ops *o, const struct ctx *x)
{
	pgargs_array(a, PGARGS_I16);
	for (size_t i = 0; i < o->n; i++)
		pgargs_item_i16(a, o->v[i].cancel);
	pgargs_close(a);
	put_texts(a, o, offsetof(struct timer_op, queue), true);
	put_texts(a, o, offsetof(struct timer_op, key), true);
	put_texts(a, o, offsetof(struct timer_op, partition), false);
	pgargs_array(a, PGARGS_I64);
	for (size_t i = 0; i < o->n; i++)
		pgargs_item_i64(a, (int64_t)(o->v[i].delay_ms * 1000.0));
	pgargs_close(a);
	put_bytes(a, o);
	pgargs_array(a, PGARGS_I16);
	for (size_t i = 0; i < o->n; i++)
		keyring_item(a, x, o->v[i].sealed);
	pgargs_close(a);
}

bool
timer_ops_index(struct timer_ops *o, const PGresult *res,
	const struct timer_cols *c, int from, int to)
{
	if ((size_t)(to - from) != o->n)
		return false;
	for (size_t i = 0; i < o->n; i++)
		o->v[i].row = -1;
	for (int row = from; row < to; row++) {
		int32_t at = pgbin_i32(res, row, c->ord);
		int32_t status = pgbin_i32(res, row, c->status);

		if (at < 1 || (size_t)at > o->n || o->v[at - 1].row >= 0 ||
			status < SCHEDULED || status > ABSENT)
			return false;
		o->v[at - 1].row = row;
	}
	return true;
}

void
timer_ops_write(struct jwrite *w, const struct timer_ops *o, size_t i,
	const PGresult *res, const struct timer_cols *c)
{
	static const char *const words[] = { "scheduled", "rescheduled",
		"cancelled", "absent" };
	const struct timer_op *op = &o->v[i];
	int32_t status = pgbin_i32(res, op->row, c->status);
	struct qid id;

	jwrite_kv_cstr(w, "status", words[status]);
	jwrite_kv_bool(w, "ok", status != ABSENT);
	jwrite_kv_str(w, "queue", op->queue);
	jwrite_kv_str(w, "timerKey", op->key);
	jwrite_key(w, "txn");
	if (status != ABSENT)
		jwrite_str(w, pgbin_bytes(res, op->row, c->txn));
	else if (op->txn.n)
		jwrite_str(w, op->txn);
	else
		jwrite_null(w);
	if (status > RESCHEDULED)
		return;
	id = pgbin_uuid(res, op->row, c->message_id);
	jwrite_key(w, "messageId");
	jwrite_qid(w, &id);
	jwrite_key(w, "deliverAt");
	jwrite_iso_us(w, pgbin_time(res, op->row, c->deliver_at));
}

void
timer_ops_fault(const struct err *e, struct fault *f)
{
	static const struct fault_words words = { .prefix = "timers_",
		.unavailable = "timers_unavailable",
		.pool_exhausted = "timers_pool_exhausted",
		.timeout = "timers_timeout",
		.bad_request = "timers_bad_request",
		.misconfigured = "timers_misconfigured",
		.error = "timers_error" };

	fault_of_err(e, &words, f);
	/* flagged after it was read here: never in clear text */
	if (f->status == 400 && strstr(e->text, "encryption_required")) {
		f->status = 500;
		f->error = words.error;
		f->reason = "encryption_required";
		f->detail[0] = '\0';
	}
}

void
timer_ops_count(struct ctx *x, const struct fault *f)
{
	kvlimit_schedule_refused(x, f->status == 413   ? KVLIMIT_SIZE
				    : f->status == 403 ? KVLIMIT_HORIZON
				    : f->status == 400 ? KVLIMIT_SHAPE
						       : KVLIMIT_POOL);
}

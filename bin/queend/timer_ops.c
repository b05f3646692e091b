/* SPDX-License-Identifier: Apache-2.0 */
/* Reads timer operations and checks all of them before anything is sent. */
#include "timer_ops.h"

#include <stdlib.h>

#include "arena.h"
#include "ctx.h"
#include "fault.h"
#include "frame.h"
#include "name.h"
#include "settings.h"
#include "timer_ops_int.h"

enum {
	TIMER_NAME_MAX = 512,
	NUMBER_MAX = 64,
	/* further back than this no delay needs to reach */
	PAST_MAX_MS = 1000000000,
};

static const struct {
	const char *name;
	size_t at;
} fields[] = {
	{ "op", offsetof(struct timer_given, op) },
	{ "queue", offsetof(struct timer_given, queue) },
	{ "timerKey", offsetof(struct timer_given, key) },
	{ "delayMs", offsetof(struct timer_given, delay) },
	{ "txn", offsetof(struct timer_given, txn) },
	{ "payload", offsetof(struct timer_given, payload) },
	{ "partition", offsetof(struct timer_given, partition) },
	{ "payloadZstd", offsetof(struct timer_given, zstd) },
	{ "encrypted", offsetof(struct timer_given, encrypted) },
};

static const char *const server_owned[] = { "producerSub", "producer_sub",
	"messageId", "message_id", "tenant", "tenantId", "tenant_id",
	"deliverAt", "deliver_at", "delaySeconds", "delay_seconds", "attempts",
	"claimToken", "claim_token", "claimedUntil", "claimed_until" };

int
timer_ops_refuse(struct timer_reader *r, const char *reason, const char *what)
{
	return timer_ops_refuse_as(r, 400, "timers_bad_request", reason, what);
}

int
timer_ops_refuse_as(struct timer_reader *r, int status, const char *error,
	const char *reason, const char *what)
{
	return fault_set(
		r->f, status, error, reason, "operation %zu: %s", r->at, what);
}

/* ---- names ---- */

static bool
is_name(struct span s, size_t max)
{
	int control;

	return s.n <= max && !name_fault(s, false, &control);
}

int
timer_ops_names(struct span queue, struct span key, struct fault *f)
{
	if (!is_name(queue, TIMER_NAME_MAX))
		return fault_set(f, 400, "timers_bad_request",
			"timers_queue_required",
			"queue must have 1 to 512 bytes of UTF-8 without "
			"control characters");
	if (!is_name(key, TIMER_NAME_MAX))
		return fault_set(f, 400, "timers_bad_request",
			"timers_key_required",
			"timerKey must have 1 to 512 bytes of UTF-8 without "
			"control characters");
	return 0;
}

static int
read_names(struct timer_reader *r, const struct timer_given *g,
	struct timer_op *op)
{
	if (g->queue.type != JSPAN_STRING ||
		!jspan_text(&g->queue, r->a, &op->queue) ||
		!is_name(op->queue, TIMER_NAME_MAX))
		return timer_ops_refuse(r, "timers_queue_required",
			"queue must be a string of 1 to 512 bytes without "
			"control characters");
	if (g->key.type != JSPAN_STRING ||
		!jspan_text(&g->key, r->a, &op->key) ||
		!is_name(op->key, TIMER_NAME_MAX))
		return timer_ops_refuse(r, "timers_key_required",
			"timerKey must be a string of 1 to 512 bytes without "
			"control characters");
	return 0;
}

/* ---- what a schedule has ---- */

static int
read_delay(struct timer_reader *r, const struct timer_given *g,
	struct timer_op *op)
{
	char text[NUMBER_MAX + 1];
	int64_t ms;

	if (g->delay.type != JSPAN_NUMBER)
		return timer_ops_refuse(
			r, "timers_delay_required", "delayMs must be a number");
	if (g->delay.raw.n > NUMBER_MAX)
		return timer_ops_refuse(r, "timers_delay_required",
			"delayMs has more than 64 characters");
	memcpy(text, g->delay.raw.p, g->delay.raw.n);
	text[g->delay.raw.n] = '\0';
	op->delay_ms = strtod(text, NULL);
	if (op->delay_ms > (double)r->x->conf->timers_max_horizon_s * 1000.0)
		return timer_ops_refuse_as(r, 403, "timer_horizon_exceeded",
			"timers_horizon", "delayMs is beyond the horizon");
	if (op->delay_ms < -PAST_MAX_MS)
		op->delay_ms = -PAST_MAX_MS;
	ms = (int64_t)op->delay_ms;
	if (ms > r->o->horizon_ms)
		r->o->horizon_ms = ms;
	if (r->o->schedules == 0 || ms < r->o->soonest_ms)
		r->o->soonest_ms = ms;
	return 0;
}

static int
read_texts(struct timer_reader *r, const struct timer_given *g,
	struct timer_op *op)
{
	if (g->txn.type != JSPAN_STRING ||
		!jspan_text(&g->txn, r->a, &op->txn) ||
		!is_name(op->txn, NAME_MAX_BYTES))
		return timer_ops_refuse(r, "timers_txn_required",
			"txn must be a string of 1 to 1024 bytes without "
			"control characters");
	op->partition = SPAN_LIT("Default");
	if (g->partition.type == JSPAN_NONE || g->partition.type == JSPAN_NULL)
		return 0;
	if (g->partition.type != JSPAN_STRING ||
		!jspan_text(&g->partition, r->a, &op->partition) ||
		!is_name(op->partition, NAME_MAX_BYTES))
		return timer_ops_refuse(r, "timers_partition_required",
			"partition must be a string of 1 to 1024 bytes "
			"without control characters");
	return 0;
}

static int
read_schedule(struct timer_reader *r, const struct timer_given *g,
	struct timer_op *op)
{
	if (read_texts(r, g, op) < 0 || read_delay(r, g, op) < 0 ||
		timer_ops_frame(r, g, op) < 0)
		return -1;
	r->o->schedules++;
	return 0;
}

/* ---- an operation ---- */

static bool
is_server_owned(struct span key)
{
	if (key.n && key.p[0] == '_')
		return true;
	for (size_t i = 0; i < sizeof(server_owned) / sizeof(*server_owned);
		i++)
		if (span_is(key, server_owned[i]))
			return true;
	return false;
}

/* The scanner has passed over it once: it is well formed. */
static int
read_fields(struct timer_reader *r, struct span raw, struct timer_given *g)
{
	struct jspan_val v;
	struct jspan j;
	struct span key;

	jspan_open(&j, raw);
	if (jspan_peek(&j) != JSPAN_OBJECT)
		return timer_ops_refuse(
			r, "timers_bad_body", "it must be an object");
	jspan_enter_object(&j);
	while (jspan_next_key(&j, r->a, &key) && jspan_take(&j, &v)) {
		if (is_server_owned(key))
			return timer_ops_refuse(r, "timers_server_owned_field",
				"it holds a field that only the server sets");
		for (size_t i = 0; i < sizeof(fields) / sizeof(*fields); i++)
			if (span_is(key, fields[i].name))
				memcpy((char *)g + fields[i].at, &v, sizeof(v));
	}
	return j.error ? timer_ops_refuse(r, "timers_bad_body", j.error) : 0;
}

static int
read_op(struct timer_reader *r, struct span raw, struct timer_op *op)
{
	struct timer_given g = { .op = { .type = JSPAN_NONE } };
	struct span name = SPAN_ZERO;

	if (read_fields(r, raw, &g) < 0)
		return -1;
	if (g.op.type != JSPAN_STRING || !jspan_text(&g.op, r->a, &name))
		return timer_ops_refuse(
			r, "timers_bad_op", "op must be a string");
	op->cancel = span_is(name, "cancel");
	if (!op->cancel && !span_is(name, "schedule") &&
		!span_is(name, "reschedule"))
		return timer_ops_refuse(r, "timers_bad_op",
			"op must be schedule, reschedule or cancel");
	if (read_names(r, &g, op) < 0)
		return -1;
	if (!op->cancel)
		return read_schedule(r, &g, op);
	if (g.txn.type != JSPAN_NONE && g.txn.type != JSPAN_NULL &&
		(g.txn.type != JSPAN_STRING ||
			!jspan_text(&g.txn, r->a, &op->txn)))
		return timer_ops_refuse(
			r, "timers_txn_required", "txn must be a string");
	return 0;
}

static int
by_name(const void *a, const void *b)
{
	const struct timer_op *x = *(struct timer_op *const *)a;
	const struct timer_op *y = *(struct timer_op *const *)b;
	size_t n = x->queue.n < y->queue.n ? x->queue.n : y->queue.n;
	int c = memcmp(x->queue.p, y->queue.p, n);

	if (c || x->queue.n != y->queue.n)
		return c ? c : x->queue.n < y->queue.n ? -1 : 1;
	n = x->key.n < y->key.n ? x->key.n : y->key.n;
	c = memcmp(x->key.p, y->key.p, n);
	if (c || x->key.n != y->key.n)
		return c ? c : x->key.n < y->key.n ? -1 : 1;
	return 0;
}

/* One name at most once in a call: what would it answer otherwise? */
static int
check_once(struct timer_reader *r)
{
	struct timer_op **v;

	if (r->o->n < 2)
		return 0;
	v = arena_alloc(r->a, r->o->n * sizeof(*v));
	for (size_t i = 0; i < r->o->n; i++)
		v[i] = &r->o->v[i];
	qsort(v, r->o->n, sizeof(*v), by_name);
	for (size_t i = 1; i < r->o->n; i++)
		if (by_name(&v[i - 1], &v[i]) == 0)
			return fault_set(r->f, 400, "timers_bad_request",
				"timers_duplicate_key_in_call",
				"one timer is named twice");
	return 0;
}

int
timer_ops_parse(struct span json, const struct ctx *x, const struct qid *tenant,
	struct span sub, struct arena *a, struct timer_ops *o, struct fault *f)
{
	struct timer_reader r = {
		.x = x, .tenant = tenant, .a = a, .o = o, .f = f
	};
	struct jspan_val v;
	struct jspan j;

	*o = (struct timer_ops){ .n = 0 };
	if (sub.n <= FRAME_TXN_MAX)
		o->sub = sub;
	jspan_open(&j, json);
	if (jspan_peek(&j) != JSPAN_ARRAY)
		return fault_set(f, 400, "timers_bad_request",
			"timers_bad_body",
			"timers must be an array of operations");
	jspan_enter_array(&j);
	while (jspan_next_item(&j) && jspan_take(&j, &v)) {
		r.at = o->n;
		if (o->n == (size_t)x->conf->timers_max_ops)
			return fault_set(f, 400, "timers_bad_request",
				"timers_too_many_ops",
				"a call has at most %zu operations", o->n);
		o->v = arena_grown(a, o->v, o->n, &o->cap, sizeof(*o->v));
		o->v[o->n] = (struct timer_op){ .row = -1 };
		if (read_op(&r, v.raw, &o->v[o->n]) < 0)
			return -1;
		o->n++;
	}
	if (!jspan_end(&j))
		return fault_set(f, 400, "timers_bad_request",
			"timers_bad_body", "%s at offset %zu",
			j.error ? j.error : "unexpected value", j.error_at);
	return check_once(&r);
}

int
timer_ops_cancel(struct span queue, struct span key, struct span txn,
	struct arena *a, struct timer_ops *o, struct fault *f)
{
	*o = (struct timer_ops){ .n = 1, .cap = 1 };
	if (timer_ops_names(queue, key, f) < 0)
		return -1;
	o->v = arena_alloc(a, sizeof(*o->v));
	*o->v = (struct timer_op){ .cancel = true,
		.queue = queue,
		.key = key,
		.txn = txn,
		.row = -1 };
	return 0;
}

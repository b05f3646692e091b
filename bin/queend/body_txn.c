/* SPDX-License-Identifier: Apache-2.0 */
/* The body of a transaction: operations, required leases, riders. */
#include "arena.h"
#include "body_int.h"

/*
 * The type may stand behind the other members, so an operation is read twice:
 * once for its type, and again as what it is.
 */
static int
op_type(struct span raw, struct arena *a, const struct body_where *w,
	struct span *type, bool *has_items, struct err *e)
{
	struct jspan j;
	struct jspan_val v;
	struct span key;
	bool given = false;

	*has_items = false;
	jspan_open(&j, raw);
	if (body_enter(&j, true, w, "", e) != 0)
		return -1;
	while (jspan_next_key(&j, a, &key)) {
		if (span_is(key, "type")) {
			if (body_read_text(&j, a, w, "type", type, &given, e) !=
				0)
				return -1;
			continue;
		}
		if (!jspan_take(&j, &v))
			return body_bad_json(e, &j);
		if (span_is(key, "items"))
			*has_items = v.type != JSPAN_NULL;
	}
	return given ? 0 : body_bad(e, w, "type", "is required");
}

static int
op_push(struct jspan *j, struct arena *a, const struct body_where *w,
	bool has_items, struct body_op *op, struct err *e)
{
	struct body_where in = {
		.outer = w->outer, .i = w->i, .inner = "items"
	};
	struct span key;
	struct jspan_val v;

	op->is_push = true;
	if (!has_items) {
		op->items = arena_alloc(a, sizeof(*op->items));
		op->n = 1;
		return body_push_item(j, a, w, true, op->items, e);
	}
	if (body_enter(j, true, w, "", e) != 0)
		return -1;
	while (jspan_next_key(j, a, &key)) {
		if (span_is(key, "items") && jspan_peek(j) != JSPAN_NULL) {
			if (body_push_items(j, a, &in, true, &op->items, &op->n,
				    e) != 0)
				return -1;
		} else if (!jspan_take(j, &v)) {
			return body_bad_json(e, j);
		}
	}
	return j->error ? body_bad_json(e, j) : 0;
}

static int
op_ack(struct jspan *j, struct arena *a, const struct body_where *w,
	struct body_op *op, struct err *e)
{
	struct span key;

	op->ack = (struct body_ack){ .status = BODY_COMPLETED };
	if (body_enter(j, true, w, "", e) != 0)
		return -1;
	while (jspan_next_key(j, a, &key)) {
		int rc = span_is(key, "consumerGroup")
				 ? body_read_group(j, a, w, &op->ack.group, e)
				 : body_ack_field(j, a, w, key, &op->ack, e);

		if (rc != 0)
			return -1;
	}
	return j->error ? body_bad_json(e, j) : 0;
}

static int
txn_op(struct span raw, struct arena *a, const struct body_where *w,
	struct body_op *op, struct err *e)
{
	struct span type = SPAN_ZERO;
	struct jspan j;
	bool has_items;

	*op = (struct body_op){ .is_push = false };
	if (op_type(raw, a, w, &type, &has_items, e) != 0)
		return -1;
	jspan_open(&j, raw);
	if (span_is(type, "push"))
		return op_push(&j, a, w, has_items, op, e);
	if (span_is(type, "ack"))
		return op_ack(&j, a, w, op, e);
	return body_bad(e, w, "type",
		"must be \"push\" or \"ack\", not \"%.*s\"",
		SPAN_ARG(span_clip(type, 40)));
}

static int
txn_ops(struct jspan *j, struct arena *a, struct body_txn *out, struct err *e)
{
	struct body_where w = { .outer = "operations" };
	size_t cap = 0;
	struct jspan_val v;

	out->ops_n = 0;
	if (body_enter(j, false, NULL, "operations", e) != 0)
		return -1;
	while (jspan_next_item(j)) {
		if (body_has_room(out->ops_n, NULL, "operations", e) != 0)
			return -1;
		if (!jspan_take(j, &v))
			return body_bad_json(e, j);
		out->ops = arena_grown(
			a, out->ops, out->ops_n, &cap, sizeof(*out->ops));
		w.i = out->ops_n;
		if (txn_op(v.raw, a, &w, &out->ops[out->ops_n], e) != 0)
			return -1;
		out->ops_n++;
	}
	return j->error ? body_bad_json(e, j) : 0;
}

static int
txn_leases(
	struct jspan *j, struct arena *a, struct body_txn *out, struct err *e)
{
	struct body_where w = { .outer = "requiredLeases" };
	size_t cap = 0;
	bool given;

	out->leases_n = 0;
	if (body_enter(j, false, NULL, "requiredLeases", e) != 0)
		return -1;
	while (jspan_next_item(j)) {
		if (body_has_room(out->leases_n, NULL, "requiredLeases", e) !=
			0)
			return -1;
		out->leases = arena_grown(a, out->leases, out->leases_n, &cap,
			sizeof(*out->leases));
		w.i = out->leases_n;
		if (body_read_text(j, a, &w, "", &out->leases[out->leases_n],
			    &given, e) != 0)
			return -1;
		if (!given)
			return body_bad(e, &w, "", "must be a string");
		out->leases_n++;
	}
	return j->error ? body_bad_json(e, j) : 0;
}

/* What is in it is read by those who know it. */
static int
txn_rider(struct jspan *j, const char *name, struct span *out, struct err *e)
{
	struct jspan_val v;

	if (!jspan_take(j, &v))
		return body_bad_json(e, j);
	*out = v.type == JSPAN_ARRAY ? v.raw : (struct span)SPAN_ZERO;
	if (v.type != JSPAN_NULL && v.type != JSPAN_ARRAY)
		return body_bad(e, NULL, name, "must be an array");
	return 0;
}

static int
txn_member(struct jspan *j, struct arena *a, struct span key,
	struct body_txn *out, bool *found, struct err *e)
{
	struct jspan_val v;

	if (span_is(key, "operations")) {
		*found = true;
		return txn_ops(j, a, out, e);
	}
	if (span_is(key, "requiredLeases") && jspan_peek(j) != JSPAN_NULL)
		return txn_leases(j, a, out, e);
	if (span_is(key, "kv"))
		return txn_rider(j, "kv", &out->kv, e);
	if (span_is(key, "timers"))
		return txn_rider(j, "timers", &out->timers, e);
	return jspan_take(j, &v) ? 0 : body_bad_json(e, j);
}

int
body_parse_txn(
	struct span body, struct arena *a, struct body_txn *out, struct err *e)
{
	struct jspan j;
	struct span key;
	bool found = false;

	*out = (struct body_txn){ .ops_n = 0 };
	jspan_open(&j, body);
	if (body_enter(&j, true, NULL, "", e) != 0)
		return -1;
	while (jspan_next_key(&j, a, &key))
		if (txn_member(&j, a, key, out, &found, e) != 0)
			return -1;
	if (!jspan_end(&j))
		return body_bad_json(e, &j);
	if (!found && !out->kv.n && !out->timers.n)
		return body_bad(e, NULL, "operations", "is required");
	return 0;
}

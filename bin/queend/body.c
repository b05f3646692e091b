/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Readers of request bodies; see body.h.  The scanner checks every byte, so
 * what is left here is which field must be what.
 */
#include "body.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "arena.h"
#include "jspan.h"
#include "name.h"

/* Where in the body: `operations[2].items[0].` or nothing. */
struct where {
	const char *outer, *inner;
	size_t i, k;
};

static int __attribute__((format(printf, 4, 5))) bad(struct err *e,
	const struct where *w, const char *field, const char *fmt, ...)
{
	char text[96], place[96];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	place[0] = '\0';
	if (w && w->inner)
		snprintf(place, sizeof(place), "%s[%zu].%s[%zu]%s", w->outer,
			w->i, w->inner, w->k, *field ? "." : "");
	else if (w && w->outer)
		snprintf(place, sizeof(place), "%s[%zu]%s", w->outer, w->i,
			*field ? "." : "");
	return err_set(e, ERR_INPUT, "bad body: %s%s %s", place, field, text);
}

static int
bad_json(struct err *e, const struct jspan *j)
{
	return err_set(e, ERR_INPUT, "bad body: %s at offset %zu",
		j->error ? j->error : "unexpected value", j->error_at);
}

/* A list is read into memory that is many times its text: it has a bound. */
static int
has_room(size_t n, const struct where *w, const char *field, struct err *e)
{
	if (n < BODY_LIST_MAX)
		return 0;
	return bad(e, w, field, "holds more than %d", BODY_LIST_MAX);
}

/* Steps into the object or list that must come next. */
static int
enter(struct jspan *j, bool object, const struct where *w, const char *field,
	struct err *e)
{
	enum jspan_type t = jspan_peek(j);
	struct jspan_val v;

	if (t != (object ? JSPAN_OBJECT : JSPAN_ARRAY)) {
		if (!jspan_take(j, &v)) /* it may be no value at all */
			return bad_json(e, j);
		if (!w && !*field)
			return err_set(e, ERR_INPUT,
				"bad body: it must be a JSON object");
		return bad(e, w, field, "must be an %s",
			object ? "object" : "array");
	}
	if (object ? !jspan_enter_object(j) : !jspan_enter_array(j))
		return bad_json(e, j);
	return 0;
}

/* A string or null (out empty, false); anything else is an error. */
static int
read_text(struct jspan *j, struct arena *a, const struct where *w,
	const char *field, struct span *out, bool *given, struct err *e)
{
	struct jspan_val v;

	if (!jspan_take(j, &v))
		return bad_json(e, j);
	*out = (struct span)SPAN_ZERO;
	*given = v.type != JSPAN_NULL;
	if (!*given)
		return 0;
	if (v.type != JSPAN_STRING)
		return bad(e, w, field, "must be a string");
	if (!jspan_text(&v, a, out))
		return bad(e, w, field, "holds half of a surrogate pair");
	return 0;
}

/* The scanner has seen that it is UTF-8. */
static int
check_name(const struct where *w, const char *field, struct span name,
	struct err *e)
{
	int control;
	const char *fault = name_fault(name, true, &control);

	if (!fault)
		return 0;
	if (control >= 0)
		return bad(
			e, w, field, "%s (0x%02x)", fault, (unsigned)control);
	return bad(e, w, field, "%s", fault);
}

static int
read_name(struct jspan *j, struct arena *a, const struct where *w,
	const char *field, struct span *out, bool *given, struct err *e)
{
	if (read_text(j, a, w, field, out, given, e) != 0)
		return -1;
	return *given ? check_name(w, field, *out, e) : 0;
}

/* Goes to the database as text, which holds no NUL: a space for each. */
static int
read_reason(struct jspan *j, struct arena *a, const struct where *w,
	const char *field, struct span *out, struct err *e)
{
	bool given;

	if (read_text(j, a, w, field, out, &given, e) != 0)
		return -1;
	if (!out->n || !memchr(out->p, '\0', out->n))
		return 0;
	char *copy = arena_alloc(a, out->n);

	for (size_t i = 0; i < out->n; i++)
		copy[i] = out->p[i] ? out->p[i] : ' ';
	out->p = copy;
	return 0;
}

/* ---- push ---- */

/* What of a push item was there, to be judged at its end. */
struct seen {
	bool queue, partition, txn, payload, data;
	struct span alias;
};

static int
push_field(struct jspan *j, struct arena *a, const struct where *w,
	struct span key, bool in_txn, struct body_push *it, struct seen *seen,
	struct err *e)
{
	struct jspan_val v;

	if (span_is(key, "queue"))
		return read_name(j, a, w, "queue", &it->queue, &seen->queue, e);
	if (span_is(key, "partition"))
		return read_name(j, a, w, "partition", &it->partition,
			&seen->partition, e);
	if (span_is(key, "transactionId"))
		return read_name(
			j, a, w, "transactionId", &it->txn, &seen->txn, e);
	if (!jspan_take(j, &v))
		return bad_json(e, j);
	if (span_is(key, "payload")) {
		it->payload = v.raw;
		seen->payload = true;
	} else if (in_txn && span_is(key, "data")) {
		seen->alias = v.raw;
		seen->data = true;
	} else if (in_txn && span_is(key, "traceId")) {
		struct span text;

		it->has_trace = v.type == JSPAN_STRING &&
				jspan_text(&v, a, &text) &&
				qid_parse(text, &it->trace);
	}
	return 0;
}

static int
push_end(const struct where *w, bool in_txn, struct body_push *it,
	const struct seen *seen, struct err *e)
{
	if (!seen->queue)
		return bad(e, w, "queue", "is required");
	if (!seen->partition)
		it->partition = SPAN_LIT("Default");
	if (!seen->payload && seen->data)
		it->payload = seen->alias;
	else if (!seen->payload && in_txn)
		it->payload = SPAN_LIT("{}");
	else if (!seen->payload)
		return bad(e, w, "payload", "is required");
	return 0;
}

static int
push_item(struct jspan *j, struct arena *a, const struct where *w, bool in_txn,
	struct body_push *it, struct err *e)
{
	struct seen seen = { .queue = false };
	struct span key;

	*it = (struct body_push){ .has_trace = false };
	if (enter(j, true, w, "", e) != 0)
		return -1;
	while (jspan_next_key(j, a, &key))
		if (push_field(j, a, w, key, in_txn, it, &seen, e) != 0)
			return -1;
	if (j->error)
		return bad_json(e, j);
	return push_end(w, in_txn, it, &seen, e);
}

static int
push_items(struct jspan *j, struct arena *a, struct where *w, bool in_txn,
	struct body_push **items, size_t *n, struct err *e)
{
	struct where list = *w;
	size_t cap = 0, *at = w->inner ? &w->k : &w->i;

	/* the list itself is named without an index */
	if (list.inner)
		list.inner = NULL;
	else
		list.outer = NULL;
	*n = 0;
	if (enter(j, false, &list, "items", e) != 0)
		return -1;
	while (jspan_next_item(j)) {
		if (has_room(*n, &list, "items", e) != 0)
			return -1;
		*items = arena_grown(a, *items, *n, &cap, sizeof(**items));
		*at = *n;
		if (push_item(j, a, w, in_txn, &(*items)[*n], e) != 0)
			return -1;
		(*n)++;
	}
	return j->error ? bad_json(e, j) : 0;
}

int
body_parse_push(struct span body, struct arena *a, struct body_push **items,
	size_t *n, struct err *e)
{
	struct jspan j;
	struct span key;
	struct jspan_val v;
	bool found = false;

	*items = NULL;
	*n = 0;
	jspan_open(&j, body);
	if (enter(&j, true, NULL, "", e) != 0)
		return -1;
	while (jspan_next_key(&j, a, &key)) {
		struct where w = { .outer = "items" };

		if (!span_is(key, "items")) {
			if (!jspan_take(&j, &v))
				return bad_json(e, &j);
			continue;
		}
		if (push_items(&j, a, &w, false, items, n, e) != 0)
			return -1;
		found = true;
	}
	if (!jspan_end(&j))
		return bad_json(e, &j);
	if (!found)
		return bad(e, NULL, "items", "is required");
	return 0;
}

/* ---- ack ---- */

enum body_status
body_status_of(struct span word)
{
	if (span_is(word, "completed") || span_is(word, "success") ||
		span_is(word, "acked") || span_is(word, "ok"))
		return BODY_COMPLETED;
	if (span_is(word, "retry"))
		return BODY_RETRY;
	if (span_is(word, "dlq"))
		return BODY_DLQ;
	return BODY_FAILED;
}

static int
ack_field(struct jspan *j, struct arena *a, const struct where *w,
	struct span key, struct body_ack *k, struct err *e)
{
	struct span word;
	struct jspan_val v;
	bool given;

	if (span_is(key, "transactionId"))
		return read_text(j, a, w, "transactionId", &k->txn, &given, e);
	if (span_is(key, "partitionId"))
		return read_text(
			j, a, w, "partitionId", &k->partition_id, &given, e);
	if (span_is(key, "leaseId"))
		return read_text(j, a, w, "leaseId", &k->lease_id, &given, e);
	if (span_is(key, "error"))
		return read_reason(j, a, w, "error", &k->error, e);
	if (span_is(key, "status")) {
		if (read_text(j, a, w, "status", &word, &given, e) != 0)
			return -1;
		k->status = given ? body_status_of(word) : BODY_COMPLETED;
		return 0;
	}
	return jspan_take(j, &v) ? 0 : bad_json(e, j);
}

static int
read_group(struct jspan *j, struct arena *a, const struct where *w,
	struct span *group, struct err *e)
{
	bool given;

	if (read_text(j, a, w, "consumerGroup", group, &given, e) != 0)
		return -1;
	return group->n ? check_name(w, "consumerGroup", *group, e) : 0;
}

int
body_parse_ack(struct span body, struct arena *a, struct span *group,
	struct body_ack *ack, struct err *e)
{
	struct jspan j;
	struct span key;

	*group = (struct span)SPAN_ZERO;
	*ack = (struct body_ack){ .status = BODY_COMPLETED };
	jspan_open(&j, body);
	if (enter(&j, true, NULL, "", e) != 0)
		return -1;
	while (jspan_next_key(&j, a, &key)) {
		int rc = span_is(key, "consumerGroup")
				 ? read_group(&j, a, NULL, group, e)
				 : ack_field(&j, a, NULL, key, ack, e);

		if (rc != 0)
			return -1;
	}
	return jspan_end(&j) ? 0 : bad_json(e, &j);
}

static int
ack_item(struct jspan *j, struct arena *a, const struct where *w,
	struct body_ack *k, struct err *e)
{
	struct span key;

	*k = (struct body_ack){ .status = BODY_COMPLETED };
	if (enter(j, true, w, "", e) != 0)
		return -1;
	while (jspan_next_key(j, a, &key))
		if (ack_field(j, a, w, key, k, e) != 0)
			return -1;
	return j->error ? bad_json(e, j) : 0;
}

static int
ack_list(struct jspan *j, struct arena *a, struct body_ack **acks, size_t *n,
	struct err *e)
{
	struct where w = { .outer = "acknowledgments" };
	size_t cap = 0;

	*n = 0;
	if (enter(j, false, NULL, "acknowledgments", e) != 0)
		return -1;
	while (jspan_next_item(j)) {
		if (has_room(*n, NULL, "acknowledgments", e) != 0)
			return -1;
		*acks = arena_grown(a, *acks, *n, &cap, sizeof(**acks));
		w.i = *n;
		if (ack_item(j, a, &w, &(*acks)[*n], e) != 0)
			return -1;
		(*n)++;
	}
	return j->error ? bad_json(e, j) : 0;
}

int
body_parse_ack_batch(struct span body, struct arena *a, struct span *group,
	struct body_ack **acks, size_t *n, struct err *e)
{
	struct jspan j;
	struct jspan_val v;
	struct span key;
	bool found = false;

	*group = (struct span)SPAN_ZERO;
	*acks = NULL;
	*n = 0;
	jspan_open(&j, body);
	if (enter(&j, true, NULL, "", e) != 0)
		return -1;
	while (jspan_next_key(&j, a, &key)) {
		if (span_is(key, "consumerGroup")) {
			if (read_group(&j, a, NULL, group, e) != 0)
				return -1;
		} else if (span_is(key, "acknowledgments")) {
			if (ack_list(&j, a, acks, n, e) != 0)
				return -1;
			found = true;
		} else if (!jspan_take(&j, &v)) {
			return bad_json(e, &j);
		}
	}
	if (!jspan_end(&j))
		return bad_json(e, &j);
	if (!found)
		return bad(e, NULL, "acknowledgments", "is required");
	return 0;
}

/* ---- transaction ---- */

/*
 * The type may stand behind the other members, so an operation is read twice:
 * once for its type, and again as what it is.
 */
static int
op_type(struct span raw, struct arena *a, const struct where *w,
	struct span *type, bool *has_items, struct err *e)
{
	struct jspan j;
	struct jspan_val v;
	struct span key;
	bool given = false;

	*has_items = false;
	jspan_open(&j, raw);
	if (enter(&j, true, w, "", e) != 0)
		return -1;
	while (jspan_next_key(&j, a, &key)) {
		if (span_is(key, "type")) {
			if (read_text(&j, a, w, "type", type, &given, e) != 0)
				return -1;
			continue;
		}
		if (!jspan_take(&j, &v))
			return bad_json(e, &j);
		if (span_is(key, "items"))
			*has_items = v.type != JSPAN_NULL;
	}
	return given ? 0 : bad(e, w, "type", "is required");
}

static int
op_push(struct jspan *j, struct arena *a, const struct where *w, bool has_items,
	struct body_op *op, struct err *e)
{
	struct where in = { .outer = w->outer, .i = w->i, .inner = "items" };
	struct span key;
	struct jspan_val v;

	op->is_push = true;
	if (!has_items) {
		op->items = arena_alloc(a, sizeof(*op->items));
		op->n = 1;
		return push_item(j, a, w, true, op->items, e);
	}
	if (enter(j, true, w, "", e) != 0)
		return -1;
	while (jspan_next_key(j, a, &key)) {
		if (span_is(key, "items") && jspan_peek(j) != JSPAN_NULL) {
			if (push_items(j, a, &in, true, &op->items, &op->n,
				    e) != 0)
				return -1;
		} else if (!jspan_take(j, &v)) {
			return bad_json(e, j);
		}
	}
	return j->error ? bad_json(e, j) : 0;
}

static int
op_ack(struct jspan *j, struct arena *a, const struct where *w,
	struct body_op *op, struct err *e)
{
	struct span key;

	op->ack = (struct body_ack){ .status = BODY_COMPLETED };
	if (enter(j, true, w, "", e) != 0)
		return -1;
	while (jspan_next_key(j, a, &key)) {
		int rc = span_is(key, "consumerGroup")
				 ? read_group(j, a, w, &op->ack.group, e)
				 : ack_field(j, a, w, key, &op->ack, e);

		if (rc != 0)
			return -1;
	}
	return j->error ? bad_json(e, j) : 0;
}

static int
txn_op(struct span raw, struct arena *a, const struct where *w,
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
	return bad(e, w, "type", "must be \"push\" or \"ack\", not \"%.*s\"",
		SPAN_ARG(span_clip(type, 40)));
}

static int
txn_ops(struct jspan *j, struct arena *a, struct body_txn *out, struct err *e)
{
	struct where w = { .outer = "operations" };
	size_t cap = 0;
	struct jspan_val v;

	out->ops_n = 0;
	if (enter(j, false, NULL, "operations", e) != 0)
		return -1;
	while (jspan_next_item(j)) {
		if (has_room(out->ops_n, NULL, "operations", e) != 0)
			return -1;
		if (!jspan_take(j, &v))
			return bad_json(e, j);
		out->ops = arena_grown(
			a, out->ops, out->ops_n, &cap, sizeof(*out->ops));
		w.i = out->ops_n;
		if (txn_op(v.raw, a, &w, &out->ops[out->ops_n], e) != 0)
			return -1;
		out->ops_n++;
	}
	return j->error ? bad_json(e, j) : 0;
}

static int
txn_leases(
	struct jspan *j, struct arena *a, struct body_txn *out, struct err *e)
{
	struct where w = { .outer = "requiredLeases" };
	size_t cap = 0;
	bool given;

	out->leases_n = 0;
	if (enter(j, false, NULL, "requiredLeases", e) != 0)
		return -1;
	while (jspan_next_item(j)) {
		if (has_room(out->leases_n, NULL, "requiredLeases", e) != 0)
			return -1;
		out->leases = arena_grown(a, out->leases, out->leases_n, &cap,
			sizeof(*out->leases));
		w.i = out->leases_n;
		if (read_text(j, a, &w, "", &out->leases[out->leases_n], &given,
			    e) != 0)
			return -1;
		if (!given)
			return bad(e, &w, "", "must be a string");
		out->leases_n++;
	}
	return j->error ? bad_json(e, j) : 0;
}

/* What is in it is read by those who know it. */
static int
txn_rider(struct jspan *j, const char *name, struct span *out, struct err *e)
{
	struct jspan_val v;

	if (!jspan_take(j, &v))
		return bad_json(e, j);
	*out = v.type == JSPAN_ARRAY ? v.raw : (struct span)SPAN_ZERO;
	if (v.type != JSPAN_NULL && v.type != JSPAN_ARRAY)
		return bad(e, NULL, name, "must be an array");
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
	return jspan_take(j, &v) ? 0 : bad_json(e, j);
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
	if (enter(&j, true, NULL, "", e) != 0)
		return -1;
	while (jspan_next_key(&j, a, &key))
		if (txn_member(&j, a, key, out, &found, e) != 0)
			return -1;
	if (!jspan_end(&j))
		return bad_json(e, &j);
	if (!found && !out->kv.n && !out->timers.n)
		return bad(e, NULL, "operations", "is required");
	return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Items to push: the body of push, and of operations of a transaction. */
#include "arena.h"
#include "body_int.h"

/* What of a push item was there, to be judged at its end. */
struct seen {
	bool queue, partition, txn, payload, data;
	struct span alias;
};

static int
push_field(struct jspan *j, struct arena *a, const struct body_where *w,
	struct span key, bool in_txn, struct body_push *it, struct seen *seen,
	struct err *e)
{
	struct jspan_val v;

	if (span_is(key, "queue"))
		return body_read_name(
			j, a, w, "queue", &it->queue, &seen->queue, e);
	if (span_is(key, "partition"))
		return body_read_name(j, a, w, "partition", &it->partition,
			&seen->partition, e);
	if (span_is(key, "transactionId"))
		return body_read_name(
			j, a, w, "transactionId", &it->txn, &seen->txn, e);
	if (!jspan_take(j, &v))
		return body_bad_json(e, j);
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
push_end(const struct body_where *w, bool in_txn, struct body_push *it,
	const struct seen *seen, struct err *e)
{
	if (!seen->queue)
		return body_bad(e, w, "queue", "is required");
	if (!seen->partition)
		it->partition = SPAN_LIT("Default");
	if (!seen->payload && seen->data)
		it->payload = seen->alias;
	else if (!seen->payload && in_txn)
		it->payload = SPAN_LIT("{}");
	else if (!seen->payload)
		return body_bad(e, w, "payload", "is required");
	return 0;
}

int
body_push_item(struct jspan *j, struct arena *a, const struct body_where *w,
	bool in_txn, struct body_push *it, struct err *e)
{
	struct seen seen = { .queue = false };
	struct span key;

	*it = (struct body_push){ .has_trace = false };
	if (body_enter(j, true, w, "", e) != 0)
		return -1;
	while (jspan_next_key(j, a, &key))
		if (push_field(j, a, w, key, in_txn, it, &seen, e) != 0)
			return -1;
	if (j->error)
		return body_bad_json(e, j);
	return push_end(w, in_txn, it, &seen, e);
}

int
body_push_items(struct jspan *j, struct arena *a, struct body_where *w,
	bool in_txn, struct body_push **items, size_t *n, struct err *e)
{
	struct body_where list = *w;
	size_t cap = 0, *at = w->inner ? &w->k : &w->i;

	/* the list itself is named without an index */
	if (list.inner)
		list.inner = NULL;
	else
		list.outer = NULL;
	*n = 0;
	if (body_enter(j, false, &list, "items", e) != 0)
		return -1;
	while (jspan_next_item(j)) {
		if (body_has_room(*n, &list, "items", e) != 0)
			return -1;
		*items = arena_grown(a, *items, *n, &cap, sizeof(**items));
		*at = *n;
		if (body_push_item(j, a, w, in_txn, &(*items)[*n], e) != 0)
			return -1;
		(*n)++;
	}
	return j->error ? body_bad_json(e, j) : 0;
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
	if (body_enter(&j, true, NULL, "", e) != 0)
		return -1;
	while (jspan_next_key(&j, a, &key)) {
		struct body_where w = { .outer = "items" };

		if (!span_is(key, "items")) {
			if (!jspan_take(&j, &v))
				return body_bad_json(e, &j);
			continue;
		}
		if (body_push_items(&j, a, &w, false, items, n, e) != 0)
			return -1;
		found = true;
	}
	if (!jspan_end(&j))
		return body_bad_json(e, &j);
	if (!found)
		return body_bad(e, NULL, "items", "is required");
	return 0;
}

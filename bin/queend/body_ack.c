/* SPDX-License-Identifier: Apache-2.0 */
/* Acknowledgments: one, a batch of them, and the fields in a transaction. */
#include <string.h>

#include "arena.h"
#include "body_int.h"

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

/* Goes to the database as text, which holds no NUL: a space for each. */
static int
read_reason(struct jspan *j, struct arena *a, const struct body_where *w,
	const char *field, struct span *out, struct err *e)
{
	bool given;

	if (body_read_text(j, a, w, field, out, &given, e) != 0)
		return -1;
	if (!out->n || !memchr(out->p, '\0', out->n))
		return 0;
	char *copy = arena_alloc(a, out->n);

	for (size_t i = 0; i < out->n; i++)
		copy[i] = out->p[i] ? out->p[i] : ' ';
	out->p = copy;
	return 0;
}

int
body_ack_field(struct jspan *j, struct arena *a, const struct body_where *w,
	struct span key, struct body_ack *k, struct err *e)
{
	struct span word;
	struct jspan_val v;
	bool given;

	if (span_is(key, "transactionId"))
		return body_read_text(
			j, a, w, "transactionId", &k->txn, &given, e);
	if (span_is(key, "partitionId"))
		return body_read_text(
			j, a, w, "partitionId", &k->partition_id, &given, e);
	if (span_is(key, "leaseId"))
		return body_read_text(
			j, a, w, "leaseId", &k->lease_id, &given, e);
	if (span_is(key, "error"))
		return read_reason(j, a, w, "error", &k->error, e);
	if (span_is(key, "status")) {
		if (body_read_text(j, a, w, "status", &word, &given, e) != 0)
			return -1;
		k->status = given ? body_status_of(word) : BODY_COMPLETED;
		return 0;
	}
	return jspan_take(j, &v) ? 0 : body_bad_json(e, j);
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
	if (body_enter(&j, true, NULL, "", e) != 0)
		return -1;
	while (jspan_next_key(&j, a, &key)) {
		int rc = span_is(key, "consumerGroup")
				 ? body_read_group(&j, a, NULL, group, e)
				 : body_ack_field(&j, a, NULL, key, ack, e);

		if (rc != 0)
			return -1;
	}
	return jspan_end(&j) ? 0 : body_bad_json(e, &j);
}

static int
ack_item(struct jspan *j, struct arena *a, const struct body_where *w,
	struct body_ack *k, struct err *e)
{
	struct span key;

	*k = (struct body_ack){ .status = BODY_COMPLETED };
	if (body_enter(j, true, w, "", e) != 0)
		return -1;
	while (jspan_next_key(j, a, &key))
		if (body_ack_field(j, a, w, key, k, e) != 0)
			return -1;
	return j->error ? body_bad_json(e, j) : 0;
}

static int
ack_list(struct jspan *j, struct arena *a, struct body_ack **acks, size_t *n,
	struct err *e)
{
	struct body_where w = { .outer = "acknowledgments" };
	size_t cap = 0;

	*n = 0;
	if (body_enter(j, false, NULL, "acknowledgments", e) != 0)
		return -1;
	while (jspan_next_item(j)) {
		if (body_has_room(*n, NULL, "acknowledgments", e) != 0)
			return -1;
		*acks = arena_grown(a, *acks, *n, &cap, sizeof(**acks));
		w.i = *n;
		if (ack_item(j, a, &w, &(*acks)[*n], e) != 0)
			return -1;
		(*n)++;
	}
	return j->error ? body_bad_json(e, j) : 0;
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
	if (body_enter(&j, true, NULL, "", e) != 0)
		return -1;
	while (jspan_next_key(&j, a, &key)) {
		if (span_is(key, "consumerGroup")) {
			if (body_read_group(&j, a, NULL, group, e) != 0)
				return -1;
		} else if (span_is(key, "acknowledgments")) {
			if (ack_list(&j, a, acks, n, e) != 0)
				return -1;
			found = true;
		} else if (!jspan_take(&j, &v)) {
			return body_bad_json(e, &j);
		}
	}
	if (!jspan_end(&j))
		return body_bad_json(e, &j);
	if (!found)
		return body_bad(e, NULL, "acknowledgments", "is required");
	return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading the query of a pop.  A value of the wrong type fails the whole
 * query; unknown parameters (autopilot among them) are passed over, but a
 * known one that has no effect is still checked.
 */
#include "pop_query.h"

#include <string.h>

#include "clk.h"
#include "ctx.h"
#include "name.h"

/* 1 = given, 0 = absent, -1 = wrong. */
static int
get_int(pop_query_get get, const void *src, const char *key, int64_t lo,
	int64_t hi, int64_t *out, struct err *e)
{
	struct span s;

	if (!get(src, key, &s))
		return 0;
	if (!span_i64(s, out))
		return err_set(
			e, ERR_INPUT, "bad query: %s is not an integer", key);
	if (*out < lo || *out > hi)
		return err_set(
			e, ERR_INPUT, "bad query: %s is out of range", key);
	return 1;
}

static int
get_bool(pop_query_get get, const void *src, const char *key, bool *out,
	struct err *e)
{
	struct span s;

	*out = false;
	if (!get(src, key, &s))
		return 0;
	if (span_is(s, "true"))
		*out = true;
	else if (!span_is(s, "false"))
		return err_set(e, ERR_INPUT,
			"bad query: %s is neither true nor false", key);
	return 0;
}

static int
get_numbers(struct pop_query *q, const struct pop_defaults *d,
	pop_query_get get, const void *src, struct err *e)
{
	int64_t v;
	int rc;

	q->batch = POP_BATCH_DEFAULT;
	q->partitions = 1;
	q->timeout_ms = d->timeout_ms;
	if ((rc = get_int(get, src, "batch", INT32_MIN, INT32_MAX, &v, e)) < 0)
		return -1;
	if (rc)
		q->batch = v < 1 ? 1 : (int32_t)v;
	rc = get_int(get, src, "partitions", INT32_MIN, INT32_MAX, &v, e);
	if (rc < 0)
		return -1;
	if (rc) {
		q->partitions = v < 1 ? 0 : (int32_t)v;
		q->partitions_given = true;
	}
	rc = get_int(get, src, "leaseSeconds", INT32_MIN, INT32_MAX, &v, e);
	if (rc < 0)
		return -1;
	if (rc)
		q->lease_s = v < 1 ? 0 : (int32_t)v;
	if ((rc = get_int(get, src, "timeout", 0, INT64_MAX, &v, e)) < 0)
		return -1;
	if (rc)
		q->timeout_ms = v;
	if (q->timeout_ms > POP_TIMEOUT_MAX_MS)
		q->timeout_ms = POP_TIMEOUT_MAX_MS;
	return 0;
}

/* Where a group starts that is met for the first time. */
static void
get_start(struct pop_query *q, const struct pop_defaults *d, pop_query_get get,
	const void *src)
{
	struct span s;
	struct span word = span_of(d->subscription_mode);

	q->mode = "all";
	if (q->queue_mode)
		return;
	if (get(src, "subscriptionFrom", &s) && s.n) {
		q->mode = "new";
		if (!span_is(s, "now") && clk_parse_iso(s, &q->from_us))
			q->mode = "timestamp";
		return;
	}
	if (get(src, "subscriptionMode", &s) && s.n)
		word = s;
	if (span_is(word, "new") || span_is(word, "new-only"))
		q->mode = "new";
}

static int
get_text(pop_query_get get, const void *src, const char *key, struct span *out,
	struct err *e)
{
	*out = (struct span)SPAN_ZERO;
	if (!get(src, key, out) || !out->n)
		return 0;
	return name_check(*out, key, e);
}

int
pop_query_parse(struct pop_query *q, const struct pop_defaults *d,
	pop_query_get get, const void *src, const char **code, struct err *e)
{
	bool autopilot;

	*code = NULL;
	memset(q, 0, sizeof(*q));
	if (get_numbers(q, d, get, src, e) != 0 ||
		get_bool(get, src, "autoAck", &q->auto_ack, e) != 0 ||
		get_bool(get, src, "wait", &q->wait, e) != 0 ||
		get_bool(get, src, "conflation", &q->conflation, e) != 0 ||
		get_bool(get, src, "autopilot", &autopilot, e) != 0 ||
		get_text(get, src, "consumerGroup", &q->group, e) != 0 ||
		get_text(get, src, "namespace", &q->namespace_name, e) != 0 ||
		get_text(get, src, "task", &q->task, e) != 0)
		return -1;
	if (!q->group.n)
		q->group = SPAN_LIT(CTX_QUEUE_MODE);
	q->queue_mode = span_is(q->group, CTX_QUEUE_MODE);
	if (q->conflation && q->queue_mode) {
		*code = "conflation_requires_group";
		return err_set(
			e, ERR_INPUT, "conflation requires a consumer group");
	}
	if (q->conflation && q->auto_ack) {
		*code = "conflation_with_auto_ack";
		return err_set(
			e, ERR_INPUT, "conflation cannot be used with autoAck");
	}
	get_start(q, d, get, src);
	return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* The rate limit: the short form of the binding, and that of the extension. */
#include "unique.h"

#include "arena.h"
#include "buf.h"
#include "jspan.h"
#include "jwrite.h"
#include "when.h"

enum { KEY_MAX_BYTES = 255, SECOND_MS = 1000 };

static const int64_t COUNT_MAX = 1000000;

struct rate {
	struct arena *a;
	struct problem *p;
	struct span key;
	int64_t max, period_ms, concurrency; /* 0 = no such limit */
	const char *window; /* the member that set max */
};

static int
no(const struct rate *r, const char *field, const char *what)
{
	return problem_field(
		r->p, r->a, field, "`rate_limit.%s` %s.", field, what);
}

static bool
count(const struct jspan_val *v, int64_t *n)
{
	return jspan_i64(v, n) && *n >= 1 && *n <= COUNT_MAX;
}

static int
set_window(struct rate *r, const char *field)
{
	if (r->window)
		return no(r, field, "excludes the other limits of a period");
	r->window = field;
	return 0;
}

static int
take_max(struct rate *r, const char *field, const struct jspan_val *v)
{
	if (!count(v, &r->max))
		return no(r, field, "must be an integer from 1 to 1000000");
	r->period_ms = SECOND_MS;
	return set_window(r, field);
}

static int
take_key(struct rate *r, const char *field, const struct jspan_val *v)
{
	if (!jspan_text(v, r->a, &r->key) || r->key.n == 0 ||
		r->key.n > KEY_MAX_BYTES || memchr(r->key.p, 0, r->key.n))
		return no(r, field, "must be a string of 1 to 255 bytes");
	return 0;
}

static int
take_concurrency(struct rate *r, const char *field, const struct jspan_val *v)
{
	return count(v, &r->concurrency)
		       ? 0
		       : no(r, field, "must be an integer from 1 to 1000000");
}

/* {"limit":N,"period":"PT1S"} */
static bool
read_window(struct rate *r, const struct jspan_val *v)
{
	struct jspan_val in;
	struct span name, text;
	struct jspan j;

	r->max = r->period_ms = 0;
	jspan_open(&j, v->raw);
	if (!jspan_enter_object(&j))
		return false;
	while (jspan_next_key(&j, r->a, &name)) {
		if (!jspan_take(&j, &in))
			return false;
		if (span_is(name, "limit")) {
			if (!count(&in, &r->max))
				return false;
		} else if (span_is(name, "period")) {
			if (!jspan_text(&in, r->a, &text) ||
				!when_duration(text, &r->period_ms))
				return false;
		}
	}
	return jspan_end(&j) && r->max > 0 && r->period_ms > 0;
}

static int
take_rate(struct rate *r, const char *field, const struct jspan_val *v)
{
	if (!read_window(r, v))
		return no(r, field,
			"must be an object with limit, 1 to 1000000, and "
			"period, a duration above zero");
	return set_window(r, field);
}

/* As many in the period, but one by one. */
static int
take_throttle(struct rate *r, const char *field, const struct jspan_val *v)
{
	if (take_rate(r, field, v) < 0)
		return -1;
	r->period_ms = (r->period_ms + r->max - 1) / r->max;
	r->max = 1;
	return 0;
}

static int
take_on_limit(struct rate *r, const char *field, const struct jspan_val *v)
{
	struct span text;

	if (!jspan_text(v, r->a, &text) || !span_is(text, "wait"))
		return no(
			r, field, "must be \"wait\": the job stays available");
	return 0;
}

static const struct {
	const char *name;
	int (*take)(
		struct rate *r, const char *field, const struct jspan_val *v);
} MEMBERS[] = {
	{ "max_per_second", take_max },
	{ "key", take_key },
	{ "concurrency", take_concurrency },
	{ "rate", take_rate },
	{ "throttle", take_throttle },
	{ "on_limit", take_on_limit },
};

static int
take_member(struct rate *r, struct span name, const struct jspan_val *v)
{
	if (v->type == JSPAN_NULL)
		return 0;
	for (size_t i = 0; i < sizeof(MEMBERS) / sizeof(*MEMBERS); i++) {
		if (span_is(name, MEMBERS[i].name))
			return MEMBERS[i].take(r, MEMBERS[i].name, v);
	}
	return 0;
}

static int
read_rate(struct span raw, struct rate *r)
{
	struct jspan_val v;
	struct span name;
	struct jspan j;

	jspan_open(&j, raw);
	if (!jspan_enter_object(&j))
		return problem_field(r->p, r->a, "rate_limit",
			"`rate_limit` must be an object.");
	while (jspan_next_key(&j, r->a, &name)) {
		if (!jspan_take(&j, &v))
			break;
		if (take_member(r, name, &v) < 0)
			return -1;
	}
	if (!jspan_end(&j))
		return problem_field(
			r->p, r->a, "rate_limit", "`rate_limit`: %s.", j.error);
	if (!r->max && !r->concurrency)
		return problem_field(r->p, r->a, "rate_limit",
			"`rate_limit` needs max_per_second, rate, throttle or "
			"concurrency.");
	return 0;
}

static void
put_limit(struct jwrite *w, const char *name, int64_t n)
{
	if (n)
		jwrite_kv_i64(w, name, n);
	else
		jwrite_kv_null(w, name);
}

int
rate_parse(
	struct span raw, struct arena *a, struct span *out, struct problem *p)
{
	struct rate r = { .a = a, .p = p };
	struct buf b = BUF_ZERO;
	struct jwrite w;

	if (read_rate(raw, &r) < 0)
		return -1;
	jwrite_init(&w, &b);
	jwrite_object(&w);
	jwrite_kv_str(&w, "key", r.key);
	put_limit(&w, "max", r.max);
	put_limit(&w, "period_ms", r.period_ms);
	put_limit(&w, "concurrency", r.concurrency);
	jwrite_end(&w);
	*out = arena_dup(a, buf_span(&b));
	buf_fini(&b);
	return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The policy is stored as numbers and names the database can use without a
 * further look; what the client wrote is kept beside it, for the answers.
 */
#include "retry.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arena.h"
#include "buf.h"
#include "jspan.h"
#include "jwrite.h"
#include "when.h"

enum {
	ATTEMPTS_DEFAULT = 3,
	INITIAL_DEFAULT_MS = 1000,
	MAX_DEFAULT_MS = 300000,
	NUMBER_MAX = 64,
};
static const int64_t interval_max_ms = INT64_C(100) * 366 * 86400 * 1000;

struct policy {
	struct arena *a;
	struct problem *p;
	int max_attempts;
	int64_t initial_ms, max_ms;
	double coefficient;
	bool jitter, dead;
	const char *strategy;
	struct span stop; /* JSON array */
	bool max_given;
	bool changed; /* more than max_attempts was given */
};

static int
bad(struct policy *r, const char *field, const char *rule)
{
	char details[96];

	snprintf(details, sizeof(details), "\"field\":\"retry.%s\"", field);
	problem_set(r->p, r->a, 422, "invalid_payload", details,
		"Retry policy: `%s` must be %s.", field, rule);
	r->p->type = "validation_error";
	return -1;
}

static int
read_attempts(struct policy *r, const char *field, const struct jspan_val *v)
{
	int64_t n;

	if (!jspan_i64(v, &n) || n < 0 || n > INT32_MAX)
		return bad(r, field, "an integer from 0 to 2147483647");
	r->max_attempts = (int)n;
	return 0;
}

static int
read_interval(struct policy *r, const char *field, const struct jspan_val *v,
	int64_t *ms)
{
	struct span text;

	if (jspan_i64(v, ms) && strstr(field, "_ms")) {
		if (*ms <= 0 || *ms > interval_max_ms)
			return bad(r, field, "above 0 and below 100 years");
		return 0;
	}
	if (!jspan_text(v, r->a, &text) || !when_duration(text, ms) || *ms <= 0)
		return bad(r, field, "a duration above 0, such as PT1S");
	return 0;
}

static int
read_initial(struct policy *r, const char *field, const struct jspan_val *v)
{
	return read_interval(r, field, v, &r->initial_ms);
}

static int
read_max(struct policy *r, const char *field, const struct jspan_val *v)
{
	r->max_given = true;
	return read_interval(r, field, v, &r->max_ms);
}

static int
read_coefficient(struct policy *r, const char *field, const struct jspan_val *v)
{
	char text[NUMBER_MAX];

	if (v->type != JSPAN_NUMBER || v->raw.n >= sizeof(text))
		return bad(r, field, "a number of at least 1.0");
	memcpy(text, v->raw.p, v->raw.n);
	text[v->raw.n] = '\0';
	r->coefficient = strtod(text, NULL);
	if (!(r->coefficient >= 1.0) || !isfinite(r->coefficient))
		return bad(r, field, "a number of at least 1.0");
	return 0;
}

static int
read_jitter(struct policy *r, const char *field, const struct jspan_val *v)
{
	if (v->type != JSPAN_BOOL)
		return bad(r, field, "true or false");
	r->jitter = v->truth;
	return 0;
}

static int
read_strategy(struct policy *r, const char *field, const struct jspan_val *v)
{
	static const char *const names[] = { "constant", "linear",
		"exponential", "polynomial" };
	struct span text = SPAN_ZERO;

	if (!jspan_text(v, r->a, &text))
		return bad(r, field, "a string");
	if (span_is(text, "none"))
		text = span_of(names[0]);
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (span_is(text, names[i])) {
			r->strategy = names[i];
			return 0;
		}
	return bad(
		r, field, "none, constant, linear, exponential or polynomial");
}

static int
read_exhaustion(struct policy *r, const char *field, const struct jspan_val *v)
{
	struct span text = SPAN_ZERO;

	if (!jspan_text(v, r->a, &text) ||
		(!span_is(text, "discard") && !span_is(text, "dead_letter")))
		return bad(r, field, "discard or dead_letter");
	r->dead = span_is(text, "dead_letter");
	return 0;
}

/* Decoded and written anew: jsonb takes neither \u0000 nor half a pair. */
static int
read_stop(struct policy *r, const char *field, const struct jspan_val *v)
{
	struct buf b = BUF_ZERO;
	struct jspan_val item;
	struct span text;
	struct jspan j;
	struct jwrite w;
	bool ok = v->type == JSPAN_ARRAY;

	jspan_open(&j, v->raw);
	jwrite_init(&w, &b);
	jwrite_array(&w);
	for (ok = ok && jspan_enter_array(&j); ok && jspan_next_item(&j);) {
		ok = jspan_take(&j, &item) && jspan_text(&item, r->a, &text) &&
		     text.n > 0 && !memchr(text.p, '\0', text.n);
		if (ok)
			jwrite_str(&w, text);
	}
	jwrite_end(&w);
	if (ok)
		r->stop = arena_dup(r->a, buf_span(&b));
	buf_fini(&b);
	return ok ? 0 : bad(r, field, "an array of strings, none empty");
}

static const struct {
	const char *name;
	int (*read)(
		struct policy *r, const char *field, const struct jspan_val *v);
} fields[] = {
	{ "max_attempts", read_attempts },
	{ "initial_interval", read_initial },
	{ "initial_interval_ms", read_initial },
	{ "max_interval", read_max },
	{ "max_interval_ms", read_max },
	{ "backoff_coefficient", read_coefficient },
	{ "jitter", read_jitter },
	{ "non_retryable_errors", read_stop },
	{ "on_exhaustion", read_exhaustion },
	{ "backoff_strategy", read_strategy },
};

static int
read_field(struct policy *r, struct span name, const struct jspan_val *v)
{
	if (v->type == JSPAN_NULL)
		return 0;
	for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++)
		if (span_is(name, fields[i].name)) {
			r->changed |= fields[i].read != read_attempts;
			return fields[i].read(r, fields[i].name, v);
		}
	return 0;
}

static struct span
write_policy(const struct policy *r)
{
	struct buf b = BUF_ZERO;
	struct jwrite w;
	struct span out;
	char number[NUMBER_MAX];

	snprintf(number, sizeof(number), "%.17g", r->coefficient);
	jwrite_init(&w, &b);
	jwrite_object(&w);
	jwrite_kv_i64(&w, "initial_ms", r->initial_ms);
	jwrite_kv_raw(&w, "coefficient", span_of(number));
	jwrite_kv_i64(&w, "max_ms", r->max_ms);
	jwrite_kv_bool(&w, "jitter", r->jitter);
	jwrite_kv_cstr(&w, "strategy", r->strategy);
	jwrite_kv_raw(&w, "stop", r->stop);
	jwrite_kv_bool(&w, "dead", r->dead);
	jwrite_end(&w);
	out = arena_dup(r->a, buf_span(&b));
	buf_fini(&b);
	return out;
}

int
retry_parse(struct span raw, struct arena *a, int *max_attempts,
	struct span *out, struct problem *p)
{
	struct policy r = {
		.a = a,
		.p = p,
		.max_attempts = ATTEMPTS_DEFAULT,
		.initial_ms = INITIAL_DEFAULT_MS,
		.max_ms = MAX_DEFAULT_MS,
		.coefficient = 2.0,
		.jitter = true,
		.strategy = "exponential",
		.stop = SPAN_LIT("[]"),
	};
	struct jspan_val v;
	struct span name;
	struct jspan j;

	jspan_open(&j, raw);
	if (jspan_peek(&j) != JSPAN_OBJECT)
		goto no_object;
	(void)jspan_enter_object(&j);
	while (jspan_next_key(&j, a, &name)) {
		if (!jspan_take(&j, &v))
			goto no_object;
		if (read_field(&r, name, &v) != 0)
			return -1;
	}
	if (!jspan_end(&j))
		goto no_object;
	if (!r.max_given && r.max_ms < r.initial_ms)
		r.max_ms = r.initial_ms;
	if (r.max_ms < r.initial_ms)
		return bad(&r, "max_interval",
			"at least as long as `initial_interval`");
	*max_attempts = r.max_attempts;
	*out = r.changed ? write_policy(&r) : (struct span)SPAN_ZERO;
	return 0;
no_object:
	problem_set(p, a, 422, "invalid_payload", "\"field\":\"retry\"",
		"`retry` must be an object.");
	p->type = "validation_error";
	return -1;
}

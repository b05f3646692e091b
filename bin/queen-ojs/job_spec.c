/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One envelope.  The scanner has seen that it is JSON; here its members are
 * sorted: what queries need is read, what the server owns is dropped, and all
 * the rest goes as it was sent into `doc`, which is shown for ever.
 */
#include <stdio.h>

#include "arena.h"
#include "buf.h"
#include "job_spec.h"
#include "jwrite.h"
#include "queue.h"
#include "retry.h"
#include "unique.h"

enum {
	TYPE_MAX_BYTES = 255,
	META_MAX_BYTES = 64 * 1024,
	PRIORITY_MAX = 100,
};

/* ---- sorting ---- */

static const struct {
	const char *name;
	bool option; /* may stand in `options` too */
} known[SPEC_FIELDS] = {
	[SPEC_SPECVERSION] = { "specversion", false },
	[SPEC_ID] = { "id", false },
	[SPEC_TYPE] = { "type", false },
	[SPEC_ARGS] = { "args", false },
	[SPEC_META] = { "meta", false },
	[SPEC_OPTIONS] = { "options", false },
	[SPEC_QUEUE] = { "queue", true },
	[SPEC_PRIORITY] = { "priority", true },
	[SPEC_TIMEOUT] = { "timeout", true },
	[SPEC_TIMEOUT_MS] = { "timeout_ms", true },
	[SPEC_LEASE] = { "visibility_timeout", true },
	[SPEC_LEASE_MS] = { "visibility_timeout_ms", true },
	[SPEC_SCHEDULED_AT] = { "scheduled_at", true },
	[SPEC_DELAY_UNTIL] = { "delay_until", true },
	[SPEC_EXPIRES_AT] = { "expires_at", true },
	[SPEC_RETRY] = { "retry", true },
	[SPEC_UNIQUE] = { "unique", true },
	[SPEC_RATE] = { "rate_limit", true },
	[SPEC_SCHEMA] = { "schema", true },
	[SPEC_TAGS] = { "tags", true },
	[SPEC_PENDING] = { "pending", true },
};

/* What the answers say about a job is not the client's to set. */
static const char *const owned[] = { "state", "attempt", "max_attempts",
	"created_at", "enqueued_at", "started_at", "completed_at",
	"cancelled_at", "discarded_at", "activated_at", "next_attempt_at",
	"retry_delay_ms", "error", "errors", "result", "worker_id",
	"lease_expires_at", "previous_state", "parent_results", "workflow_id",
	"deduplicated" };

static bool
is_owned(struct span name)
{
	for (size_t i = 0; i < sizeof(owned) / sizeof(owned[0]); i++)
		if (span_is(name, owned[i]))
			return true;
	return false;
}

static int
known_field(struct span name, bool in_options)
{
	for (int i = 0; i < SPEC_FIELDS; i++)
		if ((known[i].option || !in_options) &&
			span_is(name, known[i].name))
			return i;
	return -1;
}

static void
keep_member(struct buf *b, struct span key, struct span value)
{
	if (b->len)
		buf_putc(b, ',');
	buf_put_span(b, key);
	buf_putc(b, ':');
	buf_put_span(b, value);
}

/* A name with half a surrogate pair is nobody's but the client's. */
static void
sort_member(struct spec *s, const struct jspan_val *key,
	const struct jspan_val *v, bool in_options)
{
	static const struct jspan_val none = { .type = JSPAN_NONE };
	struct span name = SPAN_ZERO;
	bool plain = jspan_text(key, s->a, &name);
	int f = plain ? known_field(name, in_options) : -1;

	if (f < 0) {
		if (in_options)
			keep_member(&s->options, key->raw, v->raw);
		else if (!plain || !is_owned(name))
			keep_member(&s->rest, key->raw, v->raw);
		return;
	}
	/* Options are read last, so that they win; null is absent. */
	if (v->type == JSPAN_NULL && in_options)
		return;
	s->v[f] = v->type == JSPAN_NULL ? none : *v;
	s->option[f] = in_options;
}

static int
sort_object(struct spec *s, struct span raw, bool in_options)
{
	struct jspan_val key, v;
	struct jspan j;

	jspan_open(&j, raw);
	if (jspan_enter_object(&j))
		while (jspan_next_name(&j, &key) && jspan_take(&j, &v))
			sort_member(s, &key, &v, in_options);
	if (jspan_end(&j))
		return 0;
	return problem_set(s->p, s->a, 400, "invalid_payload", NULL,
		"The job is no JSON object: %s at byte %zu.", j.error,
		j.error_at);
}

static int
too_large(struct spec *s, const char *what, size_t size, size_t limit)
{
	char details[96];

	snprintf(details, sizeof(details), "\"size\":%zu,\"limit\":%zu", size,
		limit);
	return problem_set(s->p, s->a, 413, "envelope_too_large", details,
		"%s has %zu bytes, the limit is %zu.", what, size, limit);
}

static int
sort_envelope(struct spec *s, struct span body, size_t max_bytes)
{
	struct jspan_val *options = &s->v[SPEC_OPTIONS];

	body = span_trim(body);
	if (body.n > max_bytes)
		return too_large(s, "The job", body.n, max_bytes);
	if (sort_object(s, body, false) != 0)
		return -1;
	if (!job_depth_ok(body, JOB_DEPTH_MAX))
		return problem_set(s->p, s->a, 400, "invalid_payload", NULL,
			"The job is nested deeper than %d.", JOB_DEPTH_MAX);
	if (options->type == JSPAN_NONE)
		return 0;
	if (options->type != JSPAN_OBJECT)
		return problem_field(
			s->p, s->a, "options", "`options` must be an object.");
	return sort_object(s, options->raw, true);
}

/* ---- fields ---- */

static bool
given(const struct spec *s, enum spec_field f)
{
	return s->v[f].type != JSPAN_NONE;
}

static int
read_version(struct spec *s)
{
	struct span text = SPAN_ZERO;

	if (!given(s, SPEC_SPECVERSION) ||
		(jspan_text(&s->v[SPEC_SPECVERSION], s->a, &text) &&
			span_is(text, "1.0")))
		return 0;
	return problem_set(s->p, s->a, 422, "unsupported",
		"\"field\":\"specversion\",\"supported\":[\"1.0\"]",
		"`specversion` must be \"1.0\".");
}

/* Segments of [a-z][a-z0-9_-]*, with dots between. */
static bool
type_ok(struct span t)
{
	bool first = true;

	for (size_t i = 0; i < t.n; i++) {
		char c = t.p[i];
		bool letter = c >= 'a' && c <= 'z';
		bool digit = c >= '0' && c <= '9';

		if (c == '.' && !first)
			first = true;
		else if (letter || (!first && (digit || c == '_' || c == '-')))
			first = false;
		else
			return false;
	}
	return !first && t.n <= TYPE_MAX_BYTES;
}

static int
read_type(struct spec *s)
{
	const struct jspan_val *v = &s->v[SPEC_TYPE];

	if (v->type == JSPAN_NONE)
		return problem_field(s->p, s->a, "type", "`type` is missing.");
	if (!jspan_text(v, s->a, &s->out->type) || !type_ok(s->out->type))
		return problem_field(s->p, s->a, "type",
			"`type` must be segments of lower-case letters, "
			"digits, `_` and `-` with dots between, at most %d "
			"bytes.",
			TYPE_MAX_BYTES);
	return 0;
}

static int
read_queue(struct spec *s)
{
	s->out->queue = SPAN_LIT("default");
	if (!given(s, SPEC_QUEUE))
		return 0;
	if (jspan_text(&s->v[SPEC_QUEUE], s->a, &s->out->queue) &&
		queue_name_ok(s->out->queue))
		return 0;
	return problem_field(s->p, s->a, "queue",
		"`queue` must be 1 to 128 lower-case letters, digits, `.` and "
		"`-`, the first a letter or a digit.");
}

static int
read_id(struct spec *s)
{
	struct span text;

	if (!given(s, SPEC_ID)) {
		s->out->id = qid_new();
		return 0;
	}
	if (jspan_text(&s->v[SPEC_ID], s->a, &text) &&
		job_id_parse(text, &s->out->id))
		return 0;
	return problem_field(
		s->p, s->a, "id", "`id` must be a UUIDv7 in lower case.");
}

static int
read_args(struct spec *s)
{
	if (s->v[SPEC_ARGS].type == JSPAN_ARRAY)
		return 0;
	return problem_field(s->p, s->a, "args",
		given(s, SPEC_ARGS) ? "`args` must be an array."
				    : "`args` is missing.");
}

static int
read_meta(struct spec *s)
{
	const struct jspan_val *v = &s->v[SPEC_META];

	if (v->type != JSPAN_NONE && v->type != JSPAN_OBJECT)
		return problem_field(
			s->p, s->a, "meta", "`meta` must be an object.");
	if (v->raw.n > META_MAX_BYTES)
		return too_large(s, "`meta`", v->raw.n, META_MAX_BYTES);
	return 0;
}

static int
read_priority(struct spec *s)
{
	int64_t n = 0;

	if (job_number(&s->v[SPEC_PRIORITY], s->a, "priority", -PRIORITY_MAX,
		    PRIORITY_MAX, &n, s->p) != 0)
		return -1;
	s->out->rank = (int)-n;
	return 0;
}

static int
read_tags(struct spec *s)
{
	const struct jspan_val *v = &s->v[SPEC_TAGS];
	struct jspan_val item;
	struct jspan j;

	if (v->type == JSPAN_NONE)
		return 0;
	jspan_open(&j, v->raw);
	if (jspan_enter_array(&j))
		while (jspan_next_item(&j) && jspan_take(&j, &item))
			if (item.type != JSPAN_STRING)
				jspan_fail(&j, "no string");
	if (jspan_end(&j))
		return 0;
	return problem_field(
		s->p, s->a, "tags", "`tags` must be an array of strings.");
}

static int
read_policies(struct spec *s)
{
	const struct unique_of of = {
		.type = s->out->type,
		.queue = s->out->queue,
		.args = s->v[SPEC_ARGS].raw,
		.meta = s->v[SPEC_META].raw,
	};
	const struct jspan_val *unique = &s->v[SPEC_UNIQUE];
	const struct jspan_val *rate = &s->v[SPEC_RATE];

	s->out->max_attempts = 3;
	if (given(s, SPEC_RETRY) &&
		retry_parse(s->v[SPEC_RETRY].raw, s->a, &s->out->max_attempts,
			&s->out->policy, s->p) != 0)
		return -1;
	if (unique->type != JSPAN_NONE && unique_parse(unique->raw, &of, s->a,
						  &s->out->unique, s->p) != 0)
		return -1;
	if (rate->type == JSPAN_NONE)
		return 0;
	return rate_parse(rate->raw, s->a, &s->out->rate, s->p);
}

/* ---- the whole ---- */

static void
keep_as_sent(struct spec *s, enum spec_field f)
{
	if (!given(s, f))
		return;
	jwrite_key(&s->w, known[f].name);
	jwrite_raw(&s->w, s->v[f].raw);
}

static void
keep_rest(struct spec *s, struct buf *members)
{
	if (!members->len)
		return;
	buf_putc(s->w.b, ',');
	buf_put(s->w.b, members->p, members->len);
}

/* The brace in front is not part of it. */
static int
write_doc(struct spec *s)
{
	jwrite_object(&s->w);
	if (spec_moments(s) != 0)
		return -1;
	jwrite_kv_raw(&s->w, "args", s->v[SPEC_ARGS].raw);
	jwrite_kv_raw(&s->w, "meta",
		given(s, SPEC_META) ? s->v[SPEC_META].raw : SPAN_LIT("{}"));
	keep_rest(s, &s->rest);
	if (spec_lengths(s) != 0)
		return -1;
	for (enum spec_field f = SPEC_RETRY; f < SPEC_FIELDS; f++)
		keep_as_sent(s, f);
	if (s->options.len) {
		jwrite_key(&s->w, "options");
		buf_putc(s->w.b, '{');
		buf_put(s->w.b, s->options.p, s->options.len);
		jwrite_raw(&s->w, SPAN_LIT("}"));
	}
	s->out->doc =
		arena_dup(s->a, span_make(s->w.b->p + 1, s->w.b->len - 1));
	return 0;
}

static int
read_all(struct spec *s)
{
	if (read_version(s) != 0 || read_type(s) != 0 || read_args(s) != 0 ||
		read_queue(s) != 0 || read_id(s) != 0 || read_meta(s) != 0 ||
		read_priority(s) != 0 || read_tags(s) != 0 ||
		job_flag(&s->v[SPEC_PENDING], s->a, "pending", &s->out->pending,
			s->p) != 0)
		return -1;
	return read_policies(s) != 0 ? -1 : write_doc(s);
}

int
job_spec_parse(struct span body, size_t max_bytes, struct arena *a,
	int64_t now_us, struct job_spec *out, struct problem *p)
{
	struct buf doc = BUF_ZERO;
	struct spec s = { .a = a, .p = p, .out = out, .now_us = now_us };
	int rc;

	*out = (struct job_spec){ .rank = 0 };
	jwrite_init(&s.w, &doc);
	rc = sort_envelope(&s, body, max_bytes);
	if (rc == 0)
		rc = read_all(&s);
	buf_fini(&s.rest);
	buf_fini(&s.options);
	buf_fini(&doc);
	return rc;
}

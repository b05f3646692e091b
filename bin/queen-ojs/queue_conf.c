/* SPDX-License-Identifier: Apache-2.0 */
/* The configuration of a queue, read and written. */
#include "queue_int.h"

#include <stdio.h>
#include <string.h>

#include "arena.h"
#include "jspan.h"
#include "jwrite.h"
#include "pgbin.h"
#include "queue.h"
#include "when.h"

#define YEAR_MS (INT64_C(365) * 86400 * 1000)

enum { KEY_ROOM = 40 };

static const struct {
	const char *name;
	int64_t low, high;
	int64_t fallback; /* shown when it is not set; 0 = nothing */
	bool text; /* a duration, as text or as NAME_ms */
} keys[QUEUE_KEYS] = {
	[QUEUE_VISIBILITY] = { .name = "visibility_timeout_ms",
		.low = 1,
		.high = 10 * YEAR_MS },
	[QUEUE_JOB_RETENTION] = { .name = "job_retention",
		.low = 1000,
		.high = 10 * YEAR_MS,
		.fallback = INT64_C(604800000),
		.text = true },
	[QUEUE_DEAD_RETENTION] = { .name = "dead_letter_retention",
		.low = 1000,
		.high = 10 * YEAR_MS,
		.fallback = INT64_C(15552000000),
		.text = true },
	[QUEUE_DEAD_MAX] = { .name = "dead_letter_max",
		.low = 0,
		.high = INT64_C(1000000000),
		.fallback = 10000 },
	[QUEUE_MAX_JOBS] = { .name = "max_jobs",
		.low = 0,
		.high = INT64_C(1000000000000) },
	[QUEUE_MAX_EVENTS] = { .name = "max_events",
		.low = 0,
		.high = INT64_C(1000000000000) },
	[QUEUE_MAX_RETRIES] = { .name = "max_retries",
		.low = 0,
		.high = 1000,
		.fallback = 5 },
	[QUEUE_RETENTION] = { .name = "retention",
		.low = 1000,
		.high = 10 * YEAR_MS,
		.fallback = INT64_C(604800000),
		.text = true },
};

const char *
queue_key_name(enum queue_key k)
{
	return keys[k].name;
}

/* The key a member stands for; *ms: it is the number form of a duration. */
static int
find(struct span name, bool *ms)
{
	for (int k = 0; k < QUEUE_KEYS; k++) {
		size_t n = strlen(keys[k].name);

		*ms = keys[k].text && name.n == n + 3 &&
		      memcmp(name.p + n, "_ms", 3) == 0;
		if ((name.n == n || *ms) &&
			memcmp(name.p, keys[k].name, n) == 0)
			return k;
	}
	return -1;
}

static bool
value_of(int k, bool ms, const struct jspan_val *v, struct arena *a,
	int64_t *out)
{
	struct span s;

	if (!keys[k].text || ms)
		return v->type == JSPAN_NUMBER && jspan_i64(v, out);
	if (v->type == JSPAN_NUMBER) /* whole seconds */
		return jspan_i64(v, out) &&
		       !__builtin_mul_overflow(*out, 1000, out);
	return v->type == JSPAN_STRING && jspan_text(v, a, &s) &&
	       when_duration(s, out);
}

static int
member(struct span name, const struct jspan_val *v, struct arena *a,
	struct queue_conf *c, struct problem *p)
{
	struct span shown = span_clip(name, 64);
	bool ms;
	int k = find(name, &ms);

	if (k < 0)
		return problem_field(p, a, arena_cstr(a, shown),
			"A queue has no setting `%.*s`.", SPAN_ARG(shown));
	c->given[k] = true;
	c->null[k] = v->type == JSPAN_NULL;
	if (c->null[k])
		return 0;
	if (!value_of(k, ms, v, a, &c->value[k]))
		return problem_field(p, a, arena_cstr(a, shown),
			keys[k].text && !ms
				? "`%.*s` must be a duration such as `168h`, or seconds."
				: "`%.*s` must be an integer.",
			SPAN_ARG(shown));
	if (c->value[k] < keys[k].low || c->value[k] > keys[k].high)
		return problem_field(p, a, arena_cstr(a, shown),
			"`%.*s` must be from %lld to %lld%s.", SPAN_ARG(shown),
			(long long)keys[k].low, (long long)keys[k].high,
			keys[k].text ? " ms" : "");
	return 0;
}

static int
name_of(const struct jspan_val *v, struct arena *a, struct queue_conf *c,
	struct problem *p)
{
	if (v->type != JSPAN_STRING || !jspan_text(v, a, &c->name) ||
		!queue_name_ok(c->name))
		return problem_field(p, a, "name",
			"`name` must match ^[a-z0-9][a-z0-9.-]*$ and have at "
			"most 128 characters.");
	return 0;
}

int
queue_conf_parse(struct span body, bool named, struct arena *a,
	struct queue_conf *c, struct problem *p)
{
	struct jspan j;
	struct jspan_val v;
	struct span key;
	int rc = 0;

	*c = (struct queue_conf){ .name = { .n = 0 } };
	jspan_open(&j, body);
	if (jspan_enter_object(&j))
		while (rc == 0 && jspan_next_key(&j, a, &key) &&
			jspan_take(&j, &v))
			rc = named && span_is(key, "name")
				     ? name_of(&v, a, c, p)
				     : member(key, &v, a, c, p);
	if (rc != 0)
		return -1;
	if (j.error || !jspan_end(&j))
		return problem_set(p, a, 400, "invalid_payload", NULL,
			"The body is no JSON object: %s.", j.error);
	if (named && c->name.n == 0)
		return problem_field(p, a, "name", "`name` is missing.");
	return 0;
}

static void
write_key(struct jwrite *w, int k, int64_t v)
{
	char name[KEY_ROOM], text[WHEN_SPAN_MAX];

	if (!keys[k].text) {
		jwrite_kv_i64(w, keys[k].name, v);
		return;
	}
	jwrite_kv_cstr(w, keys[k].name, when_text(v, text));
	snprintf(name, sizeof(name), "%s_ms", keys[k].name);
	jwrite_kv_i64(w, name, v);
}

void
queue_conf_write(
	struct jwrite *w, const PGresult *res, int row, int first_column)
{
	jwrite_key(w, "config");
	jwrite_object(w);
	for (int k = QUEUE_KEYS - 1; k >= 0; k--) {
		if (!pgbin_null(res, row, first_column + k))
			write_key(w, k, pgbin_i64(res, row, first_column + k));
		else if (keys[k].fallback)
			write_key(w, k, keys[k].fallback);
	}
	jwrite_end(w);
}

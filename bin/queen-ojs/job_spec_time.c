/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Clocks and times of an envelope.  A moment is shown as the client wrote it,
 * a relative one as what it came to; a length as it was written, and in
 * milliseconds.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "arena.h"
#include "job_spec.h"
#include "when.h"

enum { NUMBER_MAX = 64 };

static bool
seconds(const struct jspan_val *v, struct arena *a, int64_t *ms)
{
	char text[NUMBER_MAX];
	struct span s;
	double x;

	if (v->type == JSPAN_STRING)
		return jspan_text(v, a, &s) && when_duration(s, ms) && *ms > 0;
	if (v->type != JSPAN_NUMBER || v->raw.n >= sizeof(text))
		return false;
	memcpy(text, v->raw.p, v->raw.n);
	text[v->raw.n] = '\0';
	x = strtod(text, NULL) * 1000;
	if (!(x > 0) || x > (double)JOB_LENGTH_MAX_MS)
		return false;
	*ms = x < 1 ? 1 : llround(x);
	return true;
}

/* The field in seconds counts when the one in ms is absent, or stands lower. */
static int
read_length(struct spec *s, enum spec_field in_s, enum spec_field in_ms,
	const char *const names[2], int64_t *ms)
{
	const struct jspan_val *v = &s->v[in_s], *v_ms = &s->v[in_ms];
	bool use_s = v->type != JSPAN_NONE &&
		     (v_ms->type == JSPAN_NONE ||
			     (s->option[in_s] && !s->option[in_ms]));

	if (!use_s && job_number(v_ms, s->a, names[1], 1, JOB_LENGTH_MAX_MS, ms,
			      s->p) != 0)
		return -1;
	if (use_s && !seconds(v, s->a, ms))
		return problem_field(s->p, s->a, names[0],
			"`%s` must be a number of seconds above 0, or a "
			"duration such as PT30S.",
			names[0]);
	if (use_s)
		jwrite_kv_raw(&s->w, names[0], v->raw);
	if (*ms)
		jwrite_kv_i64(&s->w, names[1], *ms);
	return 0;
}

static int
read_moment(struct spec *s, const struct jspan_val *v, const char *name,
	int64_t *at_us)
{
	struct span text = SPAN_ZERO;

	if (!jspan_text(v, s->a, &text) ||
		!when_instant(text, s->now_us, at_us))
		return problem_field(s->p, s->a, name,
			"`%s` must be a time with a zone (RFC 3339), or `+` "
			"and a duration.",
			name);
	return 0;
}

static void
show_moment(struct spec *s, const char *key, const struct jspan_val *v,
	int64_t at_us)
{
	struct span text = SPAN_ZERO;

	jwrite_key(&s->w, key);
	if (jspan_text(v, s->a, &text) && text.n && text.p[0] == '+')
		jwrite_iso_ms(&s->w, at_us);
	else
		jwrite_raw(&s->w, v->raw);
}

static int
read_schedule(struct spec *s)
{
	enum spec_field f = SPEC_SCHEDULED_AT, g = SPEC_DELAY_UNTIL;
	bool use_g =
		s->v[g].type != JSPAN_NONE &&
		(s->v[f].type == JSPAN_NONE || (s->option[g] && !s->option[f]));
	const struct jspan_val *v = &s->v[use_g ? g : f];

	if (v->type == JSPAN_NONE)
		return 0;
	if (read_moment(s, v, use_g ? "delay_until" : "scheduled_at",
		    &s->out->due_us) != 0)
		return -1;
	show_moment(s, "scheduled_at", v, s->out->due_us);
	return 0;
}

static int
read_expiry(struct spec *s)
{
	const struct jspan_val *v = &s->v[SPEC_EXPIRES_AT];
	int64_t *at_us = &s->out->expires_us;

	if (v->type == JSPAN_NONE)
		return 0;
	if (read_moment(s, v, "expires_at", at_us) != 0)
		return -1;
	show_moment(s, "expires_at", v, *at_us);
	if (*at_us <= 0) /* 0 would be never */
		*at_us = 1;
	return 0;
}

int
spec_moments(struct spec *s)
{
	return read_schedule(s) != 0 ? -1 : read_expiry(s);
}

int
spec_lengths(struct spec *s)
{
	static const char *const timeout[] = { "timeout", "timeout_ms" };
	static const char *const lease[] = { "visibility_timeout",
		"visibility_timeout_ms" };

	if (read_length(s, SPEC_TIMEOUT, SPEC_TIMEOUT_MS, timeout,
		    &s->out->timeout_ms) != 0)
		return -1;
	return read_length(
		s, SPEC_LEASE, SPEC_LEASE_MS, lease, &s->out->lease_ms);
}

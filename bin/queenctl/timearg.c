/* SPDX-License-Identifier: Apache-2.0 */
#include "timearg.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "clk.h"
#include "err.h"
#include "span.h"

#define US_PER_S INT64_C(1000000)

enum { UNIX_MIN = 1000000000, YEARS_MAX_S = 2000000000 };

/* ---- durations ---- */

struct unit {
	const char *name;
	int64_t ms;
};

static const struct unit units[] = {
	{ "ms", 1 },
	{ "s", 1000 },
	{ "m", 60000 },
	{ "h", 3600000 },
	{ "d", 86400000 },
	{ "w", 604800000 },
};

static const struct unit *
find_unit(const char *p, size_t n)
{
	for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++)
		if (strlen(units[i].name) == n &&
			strncmp(units[i].name, p, n) == 0)
			return &units[i];
	return NULL;
}

static bool
parse_duration(struct span s, int64_t *ms)
{
	const char *p = s.p, *end = s.p + s.n;
	int64_t sum = 0;

	if (s.n == 0)
		return false;
	while (p < end) {
		const char *num = p, *word;
		int64_t v;

		while (p < end && *p >= '0' && *p <= '9')
			p++;
		word = p;
		while (p < end && *p >= 'a' && *p <= 'z')
			p++;
		const struct unit *u = find_unit(word, (size_t)(p - word));

		if (!u || word == num || word - num > 10 ||
			!span_i64(span_make(num, (size_t)(word - num)), &v))
			return false;
		if (v > YEARS_MAX_S * INT64_C(1000) / u->ms)
			return false;
		sum += v * u->ms;
		if (sum > YEARS_MAX_S * INT64_C(1000))
			return false;
	}
	*ms = sum;
	return true;
}

int
timearg_duration(const char *text, int64_t *ms, struct err *e)
{
	if (strcmp(text, "0") == 0) {
		*ms = 0;
		return 0;
	}
	if (parse_duration(span_of(text), ms))
		return 0;
	return err_set(e, ERR_INPUT,
		"\"%.60s\" is not a duration (as 500ms, 10s, 1m30s)", text);
}

/* ---- points in time ---- */

static bool
is_word(const char *text, const char *const *words)
{
	for (; *words; words++)
		if (strcmp(text, *words) == 0)
			return true;
	return false;
}

static bool
parse_ago(const char *text, int64_t *ms)
{
	static const char tail[] = " ago";
	size_t n = strlen(text), t = sizeof(tail) - 1;

	if (n > t && strcmp(text + n - t, tail) == 0)
		n -= t;
	while (n && text[n - 1] == ' ')
		n--;
	return parse_duration(span_make(text, n), ms);
}

int
timearg_parse(
	const char *text, int64_t now_us, struct timearg *t, struct err *e)
{
	static const char *const ends[] = { "now", "end", "latest", NULL };
	static const char *const starts[] = { "beginning", "earliest", "start",
		NULL };
	int64_t v;

	*t = (struct timearg){ .kind = TIMEARG_AT };
	if (is_word(text, ends)) {
		t->kind = TIMEARG_END;
		t->at_us = now_us;
		return 0;
	}
	if (is_word(text, starts)) {
		t->kind = TIMEARG_START;
		return 0;
	}
	if (strncmp(text, "offset:", 7) == 0) {
		t->kind = TIMEARG_OFFSET;
		if (span_i64(span_of(text + 7), &t->offset) && t->offset >= 0)
			return 0;
		return err_set(e, ERR_INPUT,
			"\"%.60s\": expected offset:N with N from 0 up", text);
	}
	if (parse_ago(text, &v)) {
		t->at_us = now_us - v * 1000;
		return 0;
	}
	if (span_i64(span_of(text), &v)) {
		if (v > UNIX_MIN && v < INT64_C(100) * UNIX_MIN) {
			t->at_us = v * US_PER_S;
			return 0;
		}
	} else if (clk_parse_iso(span_of(text), &t->at_us)) {
		return 0;
	}
	return err_set(e, ERR_INPUT,
		"\"%.60s\" is not a time (as now, beginning, \"5m ago\", "
		"2026-09-03, 2026-09-03T11:02:44Z, unix seconds)",
		text);
}

char *
timearg_text(int64_t at_us, char out[TIMEARG_TEXT])
{
	char iso[CLK_ISO_MAX];

	clk_iso_ms(at_us, iso);
	snprintf(out, TIMEARG_TEXT, "%.19sZ", iso);
	return out;
}

/* ---- out ---- */

void
timearg_age(int64_t at_us, int64_t now_us, char *out, int cap)
{
	static const struct {
		int64_t s;
		const char *name;
	} steps[] = { { 365 * 86400, "year" }, { 30 * 86400, "month" },
		{ 7 * 86400, "week" }, { 86400, "day" }, { 3600, "hour" },
		{ 60, "minute" }, { 1, "second" } };
	bool past = at_us <= now_us;
	int64_t s = (past ? now_us - at_us : at_us - now_us) / US_PER_S;

	for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
		int64_t n = s / steps[i].s;

		if (n == 0)
			continue;
		snprintf(out, (size_t)cap, "%s%lld %s%s%s", past ? "" : "in ",
			(long long)n, steps[i].name, n == 1 ? "" : "s",
			past ? " ago" : "");
		return;
	}
	snprintf(out, (size_t)cap, "now");
}

void
timearg_span(double seconds, char *out, int cap)
{
	long long ms = llround(seconds * 1000), s = ms / 1000;

	if (!isfinite(seconds) || seconds < 0 || seconds > 1e12)
		snprintf(out, (size_t)cap, "-");
	else if (ms == 0)
		snprintf(out, (size_t)cap, "0s");
	else if (ms < 1000)
		snprintf(out, (size_t)cap, "%lldms", ms);
	else if (s < 60)
		snprintf(out, (size_t)cap, "%llds", s);
	else if (s < 3600)
		snprintf(out, (size_t)cap, "%lldm%llds", s / 60, s % 60);
	else
		snprintf(out, (size_t)cap, "%lldh%lldm0s", (s + 30) / 3600,
			(s + 30) % 3600 / 60);
}

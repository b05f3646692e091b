/* SPDX-License-Identifier: Apache-2.0 */
/* Durations in two notations, instants in one and as "from now". */
#include "when.h"

#include <math.h>
#include <stdio.h>

#include "clk.h"

/* 36525 days: what a client means by more is no duration. */
static const int64_t max_us = 36525LL * 86400 * 1000000;

/* A unit of a notation, longest first; each at most once, in this order. */
struct unit {
	struct span name;
	int64_t us;
};

static const struct unit iso_days[] = { { SPAN_LIT("W"), 604800000000 },
	{ SPAN_LIT("D"), 86400000000 } };
static const struct unit iso_times[] = { { SPAN_LIT("H"), 3600000000 },
	{ SPAN_LIT("M"), 60000000 }, { SPAN_LIT("S"), 1000000 } };
static const struct unit short_units[] = { { SPAN_LIT("d"), 86400000000 },
	{ SPAN_LIT("h"), 3600000000 }, { SPAN_LIT("m"), 60000000 },
	{ SPAN_LIT("s"), 1000000 }, { SPAN_LIT("ms"), 1000 } };

struct sum {
	int64_t us;
	bool some; /* more than nothing, however little */
	bool fraction; /* seen: nothing may follow */
};

static bool
is_digit(struct span s)
{
	return s.n > 0 && s.p[0] >= '0' && s.p[0] <= '9';
}

static void
skip(struct span *s, size_t n)
{
	s->p += n;
	s->n -= n;
}

/* Digits, and after a point or a comma more of them. */
static bool
take_number(struct span *s, struct sum *sum, int64_t *whole, double *part)
{
	double unit = 1;

	*whole = 0;
	*part = 0;
	if (sum->fraction || !is_digit(*s))
		return false;
	for (; is_digit(*s); skip(s, 1)) {
		*whole = *whole * 10 + (s->p[0] - '0');
		if (*whole > max_us)
			return false;
	}
	if (*whole > 0)
		sum->some = true;
	if (s->n == 0 || (s->p[0] != '.' && s->p[0] != ','))
		return true;
	skip(s, 1);
	if (!is_digit(*s))
		return false;
	sum->fraction = true;
	for (; is_digit(*s); skip(s, 1)) {
		unit *= 10;
		*part += (s->p[0] - '0') / unit;
		if (s->p[0] != '0')
			sum->some = true;
	}
	return true;
}

/* The letters that follow, among the units that may still come. */
static size_t
take_unit(struct span *s, const struct unit *units, size_t from, size_t n)
{
	size_t letters = 0, i = from;

	while (letters < s->n && (s->p[letters] | 0x20) >= 'a' &&
		(s->p[letters] | 0x20) <= 'z')
		letters++;
	/* `T` begins the second half of ISO's form. */
	if (letters > 1 && s->p[1] == 'T')
		letters = 1;
	while (i < n && !span_eq(units[i].name, span_make(s->p, letters)))
		i++;
	skip(s, letters);
	return i;
}

/* Numbers with units up to the end, or to `until`; one at least. */
static bool
take_parts(struct span *s, const struct unit *units, size_t n, char until,
	struct sum *sum)
{
	size_t next = 0;

	do {
		int64_t whole;
		double part;
		size_t i;

		if (!take_number(s, sum, &whole, &part))
			return false;
		i = take_unit(s, units, next, n);
		if (i == n || whole > max_us / units[i].us)
			return false;
		sum->us += whole * units[i].us +
			   llround(part * (double)units[i].us);
		if (sum->us > max_us)
			return false;
		next = i + 1;
	} while (s->n > 0 && s->p[0] != until);
	return true;
}

static bool
take_iso(struct span *s, struct sum *sum)
{
	skip(s, 1);
	if (s->n == 0)
		return false;
	if (s->p[0] != 'T' &&
		!take_parts(s, iso_days, sizeof(iso_days) / sizeof(iso_days[0]),
			'T', sum))
		return false;
	if (s->n == 0)
		return true;
	skip(s, 1);
	return take_parts(s, iso_times,
		sizeof(iso_times) / sizeof(iso_times[0]), '\0', sum);
}

bool
when_duration(struct span s, int64_t *ms)
{
	struct sum sum = { .us = 0 };
	bool ok;

	if (s.n > 0 && s.p[0] == 'P')
		ok = take_iso(&s, &sum);
	else
		ok = take_parts(&s, short_units,
			sizeof(short_units) / sizeof(short_units[0]), '\0',
			&sum);
	if (!ok || s.n > 0)
		return false;
	*ms = (sum.us + 500) / 1000;
	if (*ms == 0 && sum.some)
		*ms = 1;
	return true;
}

/* A local time says nothing: whoever wrote it may be anywhere. */
static bool
has_zone(struct span s)
{
	char last = s.n >= 20 ? s.p[s.n - 1] : '\0';

	if (last == 'Z' || last == 'z')
		return true;
	return s.n >= 25 && s.p[s.n - 3] == ':' &&
	       (s.p[s.n - 6] == '+' || s.p[s.n - 6] == '-');
}

bool
when_instant(struct span s, int64_t now_us, int64_t *at_us)
{
	int64_t ms;

	if (s.n > 1 && s.p[0] == '+' && s.p[1] == 'P') {
		if (!when_duration(span_make(s.p + 1, s.n - 1), &ms))
			return false;
		*at_us = now_us + ms * 1000;
		return true;
	}
	return has_zone(s) && clk_parse_iso(s, at_us);
}

/* As queen.stream_span writes it. */
char *
when_text(int64_t ms, char out[WHEN_SPAN_MAX])
{
	const struct {
		int64_t n;
		const char *unit;
	} parts[] = { { ms / 3600000, "h" }, { ms / 60000 % 60, "m" },
		{ ms / 1000 % 60, "s" }, { ms % 1000, "ms" } };
	size_t len = 0;

	for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
		if (parts[i].n != 0)
			len += (size_t)snprintf(out + len, WHEN_SPAN_MAX - len,
				"%lld%s", (long long)parts[i].n, parts[i].unit);
	if (len == 0)
		snprintf(out, WHEN_SPAN_MAX, "0s");
	return out;
}

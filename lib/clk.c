/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The two clocks and ISO 8601.  Calendar arithmetic is our own: no time zone
 * database, no locale, and years 0000 to 9999 are all that is read.
 */
#include "clk.h"

#include <stdio.h>
#include <time.h>

static int64_t
read_us(clockid_t id)
{
	struct timespec ts;

	clock_gettime(id, &ts);
	return (int64_t)ts.tv_sec * 1000000 + ts.tv_nsec / 1000;
}

int64_t
clk_wall_us(void)
{
	return read_us(CLOCK_REALTIME);
}

int64_t
clk_mono_us(void)
{
	return read_us(CLOCK_MONOTONIC);
}

int64_t
clk_mono_ms(void)
{
	return clk_mono_us() / 1000;
}

/*
 * Days since 1970-01-01 of a proleptic Gregorian date.  The year starts in
 * March here, so the leap day is its last day; 146097 days make 400 years.
 */
static int64_t
days_of(int64_t y, int m, int d)
{
	int64_t era, yoe, doy;

	y -= m <= 2;
	era = (y >= 0 ? y : y - 399) / 400;
	yoe = y - era * 400;
	doy = (153 * (m + (m > 2 ? -3 : 9)) + 2) / 5 + d - 1;
	return era * 146097 + yoe * 365 + yoe / 4 - yoe / 100 + doy - 719468;
}

static void
date_of(int64_t days, int64_t *y, int *m, int *d)
{
	int64_t z = days + 719468, era, doe, yoe, doy, mp;

	era = (z >= 0 ? z : z - 146096) / 146097;
	doe = z - era * 146097;
	yoe = (doe - doe / 1460 + doe / 36524 - doe / 146096) / 365;
	doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
	mp = (5 * doy + 2) / 153;
	*d = (int)(doy - (153 * mp + 2) / 5 + 1);
	*m = (int)(mp < 10 ? mp + 3 : mp - 9);
	*y = yoe + era * 400 + (*m <= 2);
}

static int
month_days(int64_t y, int m)
{
	static const int8_t days[] = { 31, 28, 31, 30, 31, 30, 31, 31, 30, 31,
		30, 31 };
	bool leap = y % 4 == 0 && (y % 100 != 0 || y % 400 == 0);

	return m == 2 && leap ? 29 : days[m - 1];
}

static void
put_digits(char *p, int n, int64_t v)
{
	while (n-- > 0) {
		p[n] = (char)('0' + v % 10);
		v /= 10;
	}
}

/* Hot: every popped message carries one. */
static char *
iso(int64_t at_us, int digits, char *out)
{
	int64_t days, us, s, y;
	int m, d;

	days = at_us / 86400000000;
	us = at_us % 86400000000;
	if (us < 0) {
		us += 86400000000;
		days--;
	}
	date_of(days, &y, &m, &d);
	if (y < 0 || y > 9999) {
		/* Outside what the format can say: the nearest it can. */
		snprintf(out, CLK_ISO_MAX, "%s",
			y < 0 ? "0000-01-01T00:00:00Z"
			      : "9999-12-31T23:59:59Z");
		return out;
	}
	s = us / 1000000;
	us %= 1000000;
	memcpy(out, "0000-00-00T00:00:00.", 20);
	put_digits(out, 4, y);
	put_digits(out + 5, 2, m);
	put_digits(out + 8, 2, d);
	put_digits(out + 11, 2, s / 3600);
	put_digits(out + 14, 2, s / 60 % 60);
	put_digits(out + 17, 2, s % 60);
	put_digits(out + 20, digits, digits == 3 ? us / 1000 : us);
	out[20 + digits] = 'Z';
	out[21 + digits] = '\0';
	return out;
}

char *
clk_iso_us(int64_t at_us, char out[CLK_ISO_MAX])
{
	return iso(at_us, 6, out);
}

char *
clk_iso_ms(int64_t at_us, char out[CLK_ISO_MAX])
{
	return iso(at_us, 3, out);
}

static bool
take_digits(struct span *s, int n, int *out)
{
	int v = 0;

	if (s->n < (size_t)n)
		return false;
	for (int i = 0; i < n; i++) {
		if (s->p[i] < '0' || s->p[i] > '9')
			return false;
		v = v * 10 + (s->p[i] - '0');
	}
	s->p += n;
	s->n -= (size_t)n;
	*out = v;
	return true;
}

static bool
take_char(struct span *s, const char *any)
{
	if (s->n == 0 || s->p[0] == '\0' || !strchr(any, s->p[0]))
		return false;
	s->p++;
	s->n--;
	return true;
}

/* Digits beyond the sixth are cut, not rounded: a time never moves ahead. */
static bool
take_fraction(struct span *s, int64_t *us)
{
	int64_t unit = 100000, v = 0;
	size_t n = 0;

	while (s->n > 0 && s->p[0] >= '0' && s->p[0] <= '9') {
		v += (s->p[0] - '0') * unit;
		unit /= 10;
		s->p++;
		s->n--;
		n++;
	}
	*us = v;
	return n > 0;
}

/* `Z`, `+hh:mm`, `+hhmm`, `+hh`, or nothing, up to the end of the text. */
static bool
take_offset(struct span *s, int64_t *seconds)
{
	int sign, h, m = 0;

	*seconds = 0;
	if (s->n == 0)
		return true;
	if (take_char(s, "Zz"))
		return s->n == 0;
	sign = s->p[0] == '-' ? -1 : 1;
	if (!take_char(s, "+-") || !take_digits(s, 2, &h) || h > 23)
		return false;
	if (s->n > 0) {
		take_char(s, ":");
		if (!take_digits(s, 2, &m) || m > 59)
			return false;
	}
	*seconds = sign * (h * 3600 + m * 60);
	return s->n == 0;
}

bool
clk_parse_iso(struct span s, int64_t *at_us)
{
	int y, mo, d, h = 0, mi = 0, sec = 0;
	int64_t us = 0, off = 0;

	if (!take_digits(&s, 4, &y) || !take_char(&s, "-") ||
		!take_digits(&s, 2, &mo) || !take_char(&s, "-") ||
		!take_digits(&s, 2, &d))
		return false;
	if (mo < 1 || mo > 12 || d < 1 || d > month_days(y, mo))
		return false;
	if (s.n > 0) {
		if (!take_char(&s, "Tt ") || !take_digits(&s, 2, &h) ||
			!take_char(&s, ":") || !take_digits(&s, 2, &mi) ||
			!take_char(&s, ":") || !take_digits(&s, 2, &sec))
			return false;
		/* 60 is a leap second; it counts as the next second. */
		if (h > 23 || mi > 59 || sec > 60)
			return false;
		if (take_char(&s, ".") && !take_fraction(&s, &us))
			return false;
		if (!take_offset(&s, &off))
			return false;
	}
	*at_us = (days_of(y, mo, d) * 86400 + h * 3600 + mi * 60 + sec - off) *
			 1000000 +
		 us;
	return true;
}

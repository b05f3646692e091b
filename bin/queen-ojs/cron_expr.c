/* SPDX-License-Identifier: Apache-2.0 */
/* Expressions as crontab(5) knows them, in five fields or by name. */
#include <stddef.h>
#include <strings.h>

#include "cron.h"

enum { FIELDS = 5 };
enum { MINUTE, HOUR, DAY, MONTH, WEEKDAY };

struct field {
	int min, max;
	const char *const *names; /* from min on; NULL at the end */
	const char *no_value, *no_range, *no_step;
};

static const char *const MONTHS[] = { "JAN", "FEB", "MAR", "APR", "MAY", "JUN",
	"JUL", "AUG", "SEP", "OCT", "NOV", "DEC", NULL };
static const char *const WEEKDAYS[] = { "SUN", "MON", "TUE", "WED", "THU",
	"FRI", "SAT", NULL };
static const char *const NO_NAMES[] = { NULL };

static const struct field TABLE[FIELDS] = {
	{ 0, 59, NO_NAMES, "the minute is not from 0 to 59",
		"the range of minutes runs backwards",
		"the step of the minutes is not from 1 to 59" },
	{ 0, 23, NO_NAMES, "the hour is not from 0 to 23",
		"the range of hours runs backwards",
		"the step of the hours is not from 1 to 23" },
	{ 1, 31, NO_NAMES, "the day of the month is not from 1 to 31",
		"the range of days runs backwards",
		"the step of the days is not from 1 to 31" },
	{ 1, 12, MONTHS, "the month is not from 1 to 12 or JAN to DEC",
		"the range of months runs backwards",
		"the step of the months is not from 1 to 12" },
	/* 7 is Sunday too. */
	{ 0, 7, WEEKDAYS, "the weekday is not from 0 to 7 or SUN to SAT",
		"the range of weekdays runs backwards",
		"the step of the weekdays is not from 1 to 7" },
};

static const struct {
	const char *name, *fields;
} MACROS[] = {
	{ "@yearly", "0 0 1 1 *" },
	{ "@monthly", "0 0 1 * *" },
	{ "@weekly", "0 0 * * 0" },
	{ "@daily", "0 0 * * *" },
	{ "@midnight", "0 0 * * *" },
	{ "@hourly", "0 * * * *" },
};

/* Cuts what stands before the first sep, or all; false at the end. */
static bool
next_part(struct span *rest, char sep, struct span *part)
{
	const char *at;

	if (!rest->p)
		return false;
	at = memchr(rest->p, sep, rest->n);
	*part = span_make(rest->p, at ? (size_t)(at - rest->p) : rest->n);
	if (at)
		*rest = span_make(at + 1, rest->n - part->n - 1);
	else
		*rest = (struct span)SPAN_ZERO;
	return true;
}

/* Up to two digits: no field is wider. */
static bool
number(struct span s, int *v)
{
	*v = 0;
	if (s.n < 1 || s.n > 2)
		return false;
	for (size_t i = 0; i < s.n; i++) {
		if (s.p[i] < '0' || s.p[i] > '9')
			return false;
		*v = *v * 10 + (s.p[i] - '0');
	}
	return true;
}

static bool
value(struct span s, const struct field *f, int *v)
{
	for (int i = 0; f->names[i]; i++) {
		if (s.n == 3 && strncasecmp(s.p, f->names[i], 3) == 0) {
			*v = f->min + i;
			return true;
		}
	}
	return number(s, v) && *v >= f->min && *v <= f->max;
}

/* `*`, `5`, `1-5`; a value before a step stands for all from it on. */
static bool
range(struct span s, const struct field *f, bool stepped, int *from, int *to,
	const char **why)
{
	struct span low, rest = s;

	*from = f->min;
	*to = f->max;
	if (span_is(s, "*"))
		return true;
	*why = f->no_value;
	next_part(&rest, '-', &low);
	if (!value(low, f, from))
		return false;
	if (!rest.p) {
		*to = stepped ? f->max : *from;
		return true;
	}
	if (!value(rest, f, to))
		return false;
	/* A week may end with Sunday, by whatever name. */
	if (f == &TABLE[WEEKDAY] && *to == 0 && *from > 0)
		*to = 7;
	*why = f->no_range;
	return *from <= *to;
}

static bool
item(struct span s, const struct field *f, uint64_t *bits, const char **why)
{
	struct span head, step = s;
	int from, to, by = 1;

	next_part(&step, '/', &head);
	if (!range(head, f, step.p, &from, &to, why))
		return false;
	if (step.p && (!number(step, &by) || by < 1 || by > f->max)) {
		*why = f->no_step;
		return false;
	}
	for (int v = from; v <= to; v += by)
		*bits |= UINT64_C(1) << v;
	return true;
}

static bool
parse_field(
	struct span s, const struct field *f, uint64_t *bits, const char **why)
{
	struct span part;

	*bits = 0;
	while (next_part(&s, ',', &part)) {
		if (!item(part, f, bits, why))
			return false;
	}
	return true;
}

/* The words of s; FIELDS + 1 when there are more. */
static int
split(struct span s, struct span words[FIELDS])
{
	int n = 0;

	for (size_t i = 0; i < s.n;) {
		size_t from;

		while (i < s.n && (s.p[i] == ' ' || s.p[i] == '\t'))
			i++;
		for (from = i; i < s.n && s.p[i] != ' ' && s.p[i] != '\t';)
			i++;
		if (i == from)
			break;
		if (n == FIELDS)
			return FIELDS + 1;
		words[n++] = span_make(s.p + from, i - from);
	}
	return n;
}

/* A day that no year has, as the 30th of February. */
static bool
comes(const struct cron_expr *e)
{
	static const char last[] = { 0, 31, 29, 31, 30, 31, 30, 31, 31, 30, 31,
		30, 31 };

	if (!e->any_day && !e->any_weekday)
		return true;
	for (int m = 1; m <= 12; m++) {
		if (e->months >> m & 1 &&
			(e->days & (UINT32_MAX >> (31 - last[m]))) != 0)
			return true;
	}
	return false;
}

static bool
macro(struct span s, struct span *fields)
{
	for (size_t i = 0; i < sizeof(MACROS) / sizeof(*MACROS); i++) {
		if (span_is(s, MACROS[i].name)) {
			*fields = span_of(MACROS[i].fields);
			return true;
		}
	}
	return false;
}

bool
cron_parse(struct span s, struct cron_expr *e, const char **why)
{
	struct span words[FIELDS], fields = span_trim(s);
	uint64_t bits[FIELDS];

	if (fields.n > 0 && *fields.p == '@' && !macro(fields, &fields)) {
		*why = "it is none of @yearly, @monthly, @weekly, @daily, "
		       "@midnight and @hourly";
		return false;
	}
	if (split(fields, words) != FIELDS) {
		*why = "it has not five fields";
		return false;
	}
	for (int i = 0; i < FIELDS; i++) {
		if (!parse_field(words[i], &TABLE[i], &bits[i], why))
			return false;
	}
	*e = (struct cron_expr){
		.minutes = bits[MINUTE],
		.hours = (uint32_t)bits[HOUR],
		.days = (uint32_t)bits[DAY],
		.months = (uint32_t)bits[MONTH],
		.weekdays =
			(uint32_t)((bits[WEEKDAY] | bits[WEEKDAY] >> 7) & 0x7f),
		.any_day = *words[DAY].p == '*',
		.any_weekday = *words[WEEKDAY].p == '*',
	};
	if (comes(e))
		return true;
	*why = "no month it names has such a day";
	return false;
}

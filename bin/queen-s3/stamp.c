/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Boundaries are multiples of the unit from the epoch, below it too, so a
 * window starts where it would have started in any other process.
 */
#include "stamp.h"

#include "clk.h"

#define HOUR_US INT64_C(3600000000)
#define DAY_US INT64_C(86400000000)

static int64_t
unit_us(enum s3_align a)
{
	switch (a) {
	case S3_HOUR:
		return HOUR_US;
	case S3_DAY:
		return DAY_US;
	case S3_UNALIGNED:
		break;
	}
	return 0;
}

int64_t
stamp_floor(int64_t at_us, enum s3_align a)
{
	int64_t unit = unit_us(a), rest, out;

	if (unit == 0)
		return at_us;
	rest = at_us % unit;
	if (rest < 0)
		rest += unit;
	return __builtin_sub_overflow(at_us, rest, &out) ? STAMP_NONE : out;
}

int64_t
stamp_next(int64_t at_us, enum s3_align a)
{
	int64_t unit = unit_us(a), rest, out;

	if (unit == 0)
		return INT64_MAX;
	rest = at_us % unit;
	if (rest < 0)
		rest += unit;
	return __builtin_add_overflow(at_us, unit - rest, &out) ? INT64_MAX
								: out;
}

bool
stamp_parse(struct span s, int64_t *at_us)
{
	static const char form[] = "0000-00-00T00:00:00";
	enum { N = sizeof(form) - 1 };

	if (s.n < N + 1 || s.p[s.n - 1] != 'Z')
		return false;
	for (size_t i = 0; i < N; i++) {
		bool digit = s.p[i] >= '0' && s.p[i] <= '9';

		if (form[i] == '0' ? !digit : s.p[i] != form[i])
			return false;
	}
	/* a leap second would come back as another text */
	if (s.p[N - 2] == '6')
		return false;
	if (s.n > N + 1 && (s.p[N] != '.' || s.n < N + 3 || s.n > N + 8))
		return false;
	return clk_parse_iso(s, at_us);
}

static int
digits(const char *p, int n)
{
	int v = 0;

	while (n-- > 0)
		v = v * 10 + (*p++ - '0');
	return v;
}

void
stamp_split(int64_t at_us, struct stamp_parts *out)
{
	char iso[CLK_ISO_MAX];

	clk_iso_us(at_us, iso);
	*out = (struct stamp_parts){
		.year = digits(iso, 4),
		.month = digits(iso + 5, 2),
		.day = digits(iso + 8, 2),
		.hour = digits(iso + 11, 2),
	};
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Measures a value as another writer of JSON would print it, so that the limit
 * does not depend on how a client indents or escapes; see kv_value.h.
 */
#include "kv_value.h"

/* The four digits of \uXXXX; the text is valid JSON. */
static unsigned
code_unit(const char *p)
{
	unsigned v = 0;

	for (int i = 0; i < 4; i++)
		v = v << 4 | (unsigned)span_hex(p[i]);
	return v;
}

/*
 * What an escape of n bytes at p becomes; *bytes when it is written again.
 * Returns its length, 0 when it cannot be stored.
 */
static size_t
escape(const char *p, const char *end, size_t *bytes)
{
	unsigned u;

	*bytes = p[1] == '/' ? 1 : 2;
	if (p[1] != 'u')
		return 2;
	u = code_unit(p + 2);
	if (u == 0 || (u >= 0xdc00 && u <= 0xdfff))
		return 0;
	if (u >= 0xd800 && u <= 0xdbff) {
		if (end - p < 12 || p[6] != '\\' || p[7] != 'u' ||
			(code_unit(p + 8) & 0xfc00) != 0xdc00)
			return 0;
		*bytes = 4;
		return 12;
	}
	if (u == '"' || u == '\\' || (u >= 8 && u <= 13 && u != 11))
		*bytes = 2;
	else if (u < 0x20)
		*bytes = 6;
	else
		*bytes = u < 0x80 ? 1 : u < 0x800 ? 2 : 3;
	return 6;
}

/* PostgreSQL refuses a number of more places before it writes one. */
enum { PLACES_MAX = 150000 };

/*
 * The exponent at p, behind a digit: its length.  *bytes: the zeros it stands
 * for, since jsonb prints plain decimals and 1e99999 is a hundred thousand.
 */
static size_t
exponent(const char *p, const char *end, size_t *bytes)
{
	const char *from = p++;
	size_t places = 0;

	if (p < end && (*p == '+' || *p == '-'))
		p++;
	for (; p < end && *p >= '0' && *p <= '9'; p++)
		if (places <= PLACES_MAX)
			places = places * 10 + (size_t)(*p - '0');
	*bytes = places <= PLACES_MAX ? places : (size_t)(p - from);
	return (size_t)(p - from);
}

bool
kv_value_bytes(struct span json, size_t *bytes)
{
	const char *p = json.p, *end = json.p + json.n;
	bool in_string = false;

	*bytes = 0;
	while (p < end) {
		size_t n = 1, printed = 1;

		if (in_string && *p == '\\') {
			n = escape(p, end, &printed);
			if (n == 0)
				return false;
		} else if (*p == '"') {
			in_string = !in_string;
		} else if (!in_string && (*p == 'e' || *p == 'E') &&
			   p > json.p && p[-1] >= '0' && p[-1] <= '9') {
			n = exponent(p, end, &printed);
		} else if (!in_string && (*p == ' ' || *p == '\t' ||
						 *p == '\n' || *p == '\r')) {
			printed = 0;
		}
		p += n;
		*bytes += printed;
	}
	return true;
}

/* mantissa * 10^exp as an integer; false when it is none or too large. */
static bool
scale(uint64_t mantissa, int64_t exp, uint64_t *out)
{
	for (; exp < 0 && mantissa % 10 == 0 && mantissa; exp++)
		mantissa /= 10;
	if (mantissa && exp < 0)
		return false;
	for (; exp > 0 && mantissa; exp--)
		if (__builtin_mul_overflow(mantissa, 10, &mantissa))
			return false;
	*out = mantissa;
	return true;
}

bool
kv_value_integer(struct span number, int64_t *out)
{
	const char *p = number.p, *end = number.p + number.n;
	bool minus = p < end && *p == '-', point = false;
	uint64_t mantissa = 0, v;
	int64_t exp = 0, given = 0;
	int zeros = 0; /* not yet multiplied in: 1.000 may be long */

	for (p += minus; p < end && *p != 'e' && *p != 'E'; p++) {
		if (*p == '.') {
			point = true;
			continue;
		}
		exp -= point;
		if (*p == '0') {
			zeros++;
			continue;
		}
		for (; zeros > 0 && mantissa; zeros--)
			if (__builtin_mul_overflow(mantissa, 10, &mantissa))
				return false;
		zeros = 0;
		if (__builtin_mul_overflow(mantissa, 10, &mantissa) ||
			__builtin_add_overflow(
				mantissa, (uint64_t)(*p - '0'), &mantissa))
			return false;
	}
	if (p < end) {
		p += 1 + (p + 1 < end && p[1] == '+');
		if (!span_i64(span_make(p, (size_t)(end - p)), &given) ||
			given > 1000000 || given < -1000000)
			return mantissa == 0 && (*out = 0, true);
	}
	if (!scale(mantissa, exp + zeros + given, &v) || v > INT64_MAX)
		return false;
	*out = minus ? -(int64_t)v : (int64_t)v;
	return true;
}

/* Of a number that is no int64: has it no fraction? */
static bool
is_whole(const char *p, const char *end)
{
	int64_t fraction = 0, digits = 0, given = 0;
	bool point = false;

	for (; p < end && *p != 'e' && *p != 'E'; p++) {
		point = point || *p == '.';
		digits += point && *p != '.';
		if (point && *p > '0')
			fraction = digits; /* places that count */
	}
	if (p == end)
		return fraction == 0;
	p += 1 + (p + 1 < end && p[1] == '+');
	/* an exponent beyond all reason has a sign still */
	if (!span_i64(span_make(p, (size_t)(end - p)), &given))
		return *p != '-';
	return given >= fraction;
}

bool
kv_value_clamped(struct span number, int64_t *out)
{
	bool minus = number.n > 0 && *number.p == '-';

	if (kv_value_integer(number, out))
		return true;
	*out = minus ? -INT64_MAX : INT64_MAX;
	return is_whole(number.p + minus, number.p + number.n);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Identifiers.  Random bits come from libsodium in blocks: one system call
 * serves some hundred ids.
 */
#include "qid.h"

#include <sodium.h>
#include <string.h>

#include "clk.h"

enum { POOL_BYTES = 4096 };

/* Used up from the end; each byte is given out once and then cleared. */
static uint64_t
random_bits(int bits)
{
	static uint8_t pool[POOL_BYTES];
	static size_t left;
	size_t n = ((size_t)bits + 7) / 8;
	uint64_t v = 0;

	if (left < n) {
		randombytes_buf(pool, sizeof(pool));
		left = sizeof(pool);
	}
	left -= n;
	memcpy(&v, pool + left, n);
	memset(pool + left, 0, n);
	return bits == 64 ? v : v & ((UINT64_C(1) << bits) - 1);
}

static void
put_be(uint8_t *p, int bytes, uint64_t v)
{
	while (bytes-- > 0) {
		p[bytes] = (uint8_t)v;
		v >>= 8;
	}
}

static uint64_t
get_be(const uint8_t *p, int bytes)
{
	uint64_t v = 0;

	for (int i = 0; i < bytes; i++)
		v = v << 8 | p[i];
	return v;
}

/* Version 4 bits, then 48 + 12 + 62 bits of content. */
static struct qid
pack(unsigned version, uint64_t hi48, uint64_t mid12, uint64_t lo62)
{
	struct qid q = { .b = { 0 } };

	put_be(q.b, 6, hi48);
	put_be(q.b + 6, 2, (uint64_t)version << 12 | mid12);
	put_be(q.b + 8, 8, UINT64_C(1) << 63 | lo62);
	return q;
}

static bool
is_version(const struct qid *q, unsigned version)
{
	return q->b[6] >> 4 == version && q->b[8] >> 6 == 2;
}

struct qid
qid_new(void)
{
	/* The last id as 48 bits of ms and a 74-bit counter in two parts. */
	static uint64_t last_ms, last_mid, last_lo;
	const uint64_t lo_end = UINT64_C(1) << 62;
	uint64_t ms = (uint64_t)(clk_wall_us() / 1000);

	if (ms > last_ms) {
		last_ms = ms;
		last_mid = random_bits(11); /* room to count upwards */
		last_lo = random_bits(62);
		return pack(7, last_ms, last_mid, last_lo);
	}
	/* Same ms, or the clock went back: a random step ahead of the last. */
	last_lo += 1 + random_bits(32);
	if (last_lo >= lo_end) {
		last_lo -= lo_end;
		if (++last_mid == 1 << 12) {
			last_mid = 0;
			last_ms++;
		}
	}
	return pack(7, last_ms, last_mid, last_lo);
}

struct qid
qid_entity(enum qid_kind kind, uint64_t cell_tag, int64_t id)
{
	return pack(8, cell_tag & 0xffffffffffffu, (uint64_t)kind << 8,
		(uint64_t)id & ((UINT64_C(1) << 62) - 1));
}

bool
qid_is_entity(
	const struct qid *q, enum qid_kind kind, uint64_t cell_tag, int64_t *id)
{
	if (!is_version(q, 8) || (q->b[6] & 15) != (unsigned)kind ||
		q->b[7] != 0 || get_be(q->b, 6) != (cell_tag & 0xffffffffffffu))
		return false;
	*id = (int64_t)(get_be(q->b + 8, 8) & ((UINT64_C(1) << 62) - 1));
	return true;
}

struct qid
qid_of_lease(const struct qid_lease *l)
{
	uint64_t p = (uint64_t)l->partition_id & ((UINT64_C(1) << 46) - 1);
	uint64_t g = (uint64_t)l->group_id & ((UINT64_C(1) << 34) - 1);
	uint64_t n = (uint64_t)l->number & ((UINT64_C(1) << 42) - 1);

	return pack(
		8, p << 2 | g >> 32, g >> 20 & 0xfff, (g & 0xfffff) << 42 | n);
}

bool
qid_is_lease(const struct qid *q, struct qid_lease *l)
{
	uint64_t hi, mid, lo;

	if (!is_version(q, 8))
		return false;
	hi = get_be(q->b, 6);
	mid = get_be(q->b + 6, 2) & 0xfff;
	lo = get_be(q->b + 8, 8) & ((UINT64_C(1) << 62) - 1);
	l->partition_id = (int64_t)(hi >> 2);
	l->group_id = (int64_t)((hi & 3) << 32 | mid << 20 | lo >> 42);
	l->number = (int64_t)(lo & ((UINT64_C(1) << 42) - 1));
	return true;
}

int64_t
qid_lease_number(void)
{
	return (int64_t)random_bits(42);
}

char *
qid_text(const struct qid *q, char out[QID_TEXT_MAX])
{
	static const char hex[] = "0123456789abcdef";
	char *p = out;

	for (int i = 0; i < 16; i++) {
		if (i == 4 || i == 6 || i == 8 || i == 10)
			*p++ = '-';
		*p++ = hex[q->b[i] >> 4];
		*p++ = hex[q->b[i] & 15];
	}
	*p = '\0';
	return out;
}

bool
qid_parse(struct span s, struct qid *out)
{
	const char *p = s.p;
	struct qid q;

	if (s.n != QID_TEXT)
		return false;
	for (int i = 0; i < 16; i++) {
		int hi, lo;

		if ((i == 4 || i == 6 || i == 8 || i == 10) && *p++ != '-')
			return false;
		hi = span_hex(*p++);
		lo = span_hex(*p++);
		if (hi < 0 || lo < 0)
			return false;
		q.b[i] = (uint8_t)(hi << 4 | lo);
	}
	*out = q;
	return true;
}

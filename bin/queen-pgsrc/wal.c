/* SPDX-License-Identifier: Apache-2.0 */
/*
 * LSNs, CopyData frames and the status update.  Everything on the wire is
 * big-endian; the server counts microseconds from 2000.
 */
#include "wal.h"

#include "err.h"

/* 2000-01-01 in microseconds since 1970 */
#define PG_EPOCH_US INT64_C(946684800000000)

enum { DATA_HEAD_BYTES = 25, KEEPALIVE_BYTES = 18 };

static uint64_t
be64(const char *p)
{
	uint64_t v = 0;

	for (int i = 0; i < 8; i++)
		v = v << 8 | (unsigned char)p[i];
	return v;
}

static char *
put_be64(char *p, uint64_t v)
{
	for (int i = 7; i >= 0; i--) {
		p[i] = (char)(v & 0xff);
		v >>= 8;
	}
	return p + 8;
}

/* As %X does; once per event, so without printf. */
static char *
put_hex(char *p, uint32_t v)
{
	int shift = 28;

	while (shift > 0 && !(v >> shift))
		shift -= 4;
	for (; shift >= 0; shift -= 4)
		*p++ = "0123456789ABCDEF"[v >> shift & 15];
	return p;
}

char *
wal_lsn_text(uint64_t lsn, char out[WAL_LSN_MAX])
{
	char *p = put_hex(out, (uint32_t)(lsn >> 32));

	*p++ = '/';
	*put_hex(p, (uint32_t)lsn) = '\0';
	return out;
}

static bool
take_hex(const char **p, const char *end, uint64_t *half)
{
	const char *from = *p;
	uint64_t v = 0;

	for (; *p < end && span_hex(**p) >= 0; ++*p) {
		if (*p - from == 8)
			return false;
		v = v << 4 | (uint64_t)span_hex(**p);
	}
	*half = v;
	return *p > from;
}

bool
wal_lsn_parse(struct span s, uint64_t *lsn)
{
	const char *p = s.n > 0 ? s.p : "", *end = p + s.n;
	uint64_t high, low;

	if (!take_hex(&p, end, &high) || p == end || *p++ != '/' ||
		!take_hex(&p, end, &low) || p != end)
		return false;
	*lsn = high << 32 | low;
	return true;
}

int64_t
wal_time_us(int64_t pg_us)
{
	return pg_us > INT64_MAX - PG_EPOCH_US ? INT64_MAX
					       : pg_us + PG_EPOCH_US;
}

int
wal_frame_parse(struct span d, struct wal_frame *f, struct err *e)
{
	if (d.n == 0)
		return err_set(e, ERR_IO, "the stream sent an empty frame");
	if (d.p[0] == 'w' && d.n >= DATA_HEAD_BYTES) {
		*f = (struct wal_frame){ .kind = WAL_DATA,
			.start_lsn = be64(d.p + 1),
			.end_lsn = be64(d.p + 9),
			.data = span_make(
				d.p + DATA_HEAD_BYTES, d.n - DATA_HEAD_BYTES) };
		return 0;
	}
	if (d.p[0] == 'k' && d.n == KEEPALIVE_BYTES) {
		*f = (struct wal_frame){ .kind = WAL_KEEPALIVE,
			.end_lsn = be64(d.p + 1),
			.reply_now = d.p[17] != 0 };
		return 0;
	}
	return err_set(e, ERR_IO, "the stream sent a frame 0x%02x of %zu bytes",
		(unsigned char)d.p[0], d.n);
}

void
wal_status_write(char out[WAL_STATUS_BYTES], uint64_t received_lsn,
	uint64_t committed_lsn, int64_t now_us)
{
	char *p = out;

	*p++ = 'r';
	p = put_be64(
		p, received_lsn > committed_lsn ? received_lsn : committed_lsn);
	p = put_be64(p, committed_lsn);
	p = put_be64(p, committed_lsn);
	p = put_be64(p, (uint64_t)(now_us - PG_EPOCH_US));
	*p = 0;
}

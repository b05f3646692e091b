/* SPDX-License-Identifier: Apache-2.0 */
/* What a snapshot of the server sees: pg_current_snapshot() and 32-bit ids. */
#include "snapshot.h"

#include "err.h"

static bool
take_xid(struct span *s, char end, uint64_t *out)
{
	const char *at = s->n ? memchr(s->p, end, s->n) : NULL;
	size_t n = at ? (size_t)(at - s->p) : s->n;
	int64_t v;

	/* only the list of running ones ends by itself */
	if ((!at && end == ':') || !span_i64(span_make(s->p, n), &v) || v < 0)
		return false;
	*out = (uint64_t)v;
	s->p += at ? n + 1 : n;
	s->n -= at ? n + 1 : n;
	return true;
}

int
snapshot_seen_parse(struct span text, struct arena *a, struct snapshot_seen *s,
	struct err *e)
{
	struct span rest = text;
	size_t cap = 0;

	*s = (struct snapshot_seen){ .n = 0 };
	if (!take_xid(&rest, ':', &s->xmin) || !take_xid(&rest, ':', &s->xmax))
		goto bad;
	while (rest.n > 0) {
		if (s->n == cap)
			s->running = arena_grown(
				a, s->running, s->n, &cap, sizeof(*s->running));
		if (!take_xid(&rest, ',', &s->running[s->n]) ||
			(s->n > 0 && s->running[s->n] <= s->running[s->n - 1]))
			goto bad;
		s->n++;
	}
	if (s->xmax > 0 && s->xmin <= s->xmax && text.p[text.n - 1] != ',')
		return 0;
bad:
	return err_set(e, ERR_IO, "not a snapshot: %.*s",
		SPAN_ARG(span_clip(text, 100)));
}

uint64_t
snapshot_widen(uint32_t xid, uint64_t near)
{
	/* the signed distance on the circle of 32-bit ids */
	int32_t d = (int32_t)(xid - (uint32_t)near);

	/* no id lies before the first one */
	if (d < 0 && (uint64_t) - (int64_t)d > near)
		return near + (uint64_t)((int64_t)d + (INT64_C(1) << 32));
	return near + (uint64_t)(int64_t)d;
}

bool
snapshot_sees(const struct snapshot_seen *s, uint32_t xid)
{
	uint64_t wide = snapshot_widen(xid, s->xmax);
	size_t low = 0, high = s->n;

	if (wide >= s->xmax)
		return false;
	while (low < high) {
		size_t mid = low + (high - low) / 2;

		if (s->running[mid] < wide)
			low = mid + 1;
		else
			high = mid;
	}
	return low == s->n || s->running[low] != wide;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The change scan.  last_write_at moves at most once a second, so a stamp is
 * settled only when it was seen a second after its time; until then it is
 * marked again.  A partition somebody told us about since the stamp needs no
 * mark.  Partitions of queues nobody here waits for are passed over: who
 * begins to wait reads all that is pending.
 */
#include "cellscan.h"

#include <stdlib.h>

#include "clk.h"
#include "err.h"
#include "log.h"
#include "map.h"
#include "pgbin.h"

enum {
	SCAN_PAGE = 10000,
	SCAN_BACK_US = 3000000,
	OVERLAP_EVERY_MS = 30000,
	OVERLAP_BACK_US = 120000000,
	OVERLAP_MARK_US = 40000000, /* marked again whatever was seen */
	SETTLE_US = 1100000,
	SEEN_KEEP_US = 150000000,
	CLOCK_GOOD_US = 100000, /* a round trip of the clock's call */
};

static const struct pgstmt STMT_SCAN = { "change_scan",
	"select queue_id, part, written_at "
	"from queen.change_scan_v1($1, $2, $3)" };
static const struct pgstmt STMT_REPAIRS = { "repair_scan",
	"select id, queue_id, group_id, part from queen.repair_scan_v1($1)" };
static const struct pgstmt STMT_CLOCK = { "change_clock",
	"select queen.clock_v1()" };

/* What is known about a partition that was written lately. */
struct seen {
	int64_t part_id; /* first: map_is_i64 */
	int64_t stamp_us; /* newest last_write_at met, 0 = none */
	int64_t heard_us; /* newest mark by other ways, database clock */
	bool settled;
};

struct cellscan {
	struct cellscan_face face;
	struct map seen;
	int64_t offset_us; /* database clock - ours */
	int64_t clock_sent_us, clock_next_ms; /* monotonic */
	int64_t clock_trip_us; /* of the call that offset_us is from */
	bool clock_known;
	/* the scan under way */
	bool scanning, overlap;
	int64_t since_us, after, now_us;
	int64_t last_us; /* database time of the last scan */
	int64_t overlap_next_ms, started_us;
	/* repair notes */
	bool repairing, repaired; /* a read runs; the first one is over */
	int64_t repair_after;
	struct log_sampler failures;
	struct cellscan_stats stats;
};

static int64_t
db_now_us(const struct cellscan *c)
{
	return clk_wall_us() + c->offset_us;
}

static struct seen *
seen_of(struct cellscan *c, int64_t part_id)
{
	struct seen *s =
		map_get(&c->seen, map_hash_i64(part_id), map_is_i64, &part_id);

	if (s)
		return s;
	s = calloc(1, sizeof(*s));
	if (!s)
		abort();
	s->part_id = part_id;
	map_put(&c->seen, map_hash_i64(part_id), s);
	return s;
}

static void
seen_prune(struct cellscan *c)
{
	int64_t old = db_now_us(c) - SEEN_KEEP_US;
	struct seen **gone =
		malloc((c->seen.count + 1) * sizeof(struct seen *));
	size_t at = 0, n = 0;
	struct seen *s;

	if (!gone)
		abort();
	while ((s = map_next(&c->seen, &at)))
		if (s->stamp_us < old && s->heard_us < old)
			gone[n++] = s;
	for (size_t i = 0; i < n; i++) {
		map_take(&c->seen, map_hash_i64(gone[i]->part_id), map_is_i64,
			&gone[i]->part_id);
		free(gone[i]);
	}
	free(gone);
}

static bool
wanted(const struct cellscan *c, int64_t queue_id)
{
	return !c->face.wants || c->face.wants(c->face.arg, queue_id);
}

void
cellscan_heard(struct cellscan *c, int64_t queue_id, int64_t part_id)
{
	if (wanted(c, queue_id))
		seen_of(c, part_id)->heard_us = db_now_us(c);
}

static void
failed(struct cellscan *c, const char *what, const struct err *e)
{
	uint64_t suppressed;

	c->stats.failures++;
	c->failures.every_ms = 10000;
	if (log_sample(&c->failures, clk_mono_ms(), &suppressed))
		log_line(LOG_WARN, "change", what, "error=%s suppressed=%llu",
			log_quote(e->text), (unsigned long long)suppressed);
}

/* ---- partitions ---- */

static bool
needs_mark(struct cellscan *c, int64_t part_id, int64_t stamp_us)
{
	struct seen *s = seen_of(c, part_id);
	bool settled = c->now_us >= stamp_us + SETTLE_US;

	if (c->overlap && stamp_us > c->now_us - OVERLAP_MARK_US) {
		s->stamp_us = stamp_us;
		s->settled = settled;
		return true;
	}
	if (s->stamp_us == stamp_us && s->settled)
		return false;
	bool fresh = s->stamp_us != stamp_us;

	s->stamp_us = stamp_us;
	s->settled = settled;
	if (s->heard_us >= stamp_us)
		return false;
	return fresh || settled;
}

static void scan_page(struct cellscan *c);

static void
scan_end(struct cellscan *c, const struct err *e)
{
	c->scanning = false;
	if (e) {
		failed(c, "change scan failed", e);
		return;
	}
	c->stats.scans++;
	c->stats.last_ms = (clk_mono_us() - c->started_us) / 1000;
	c->last_us = c->now_us;
	if (c->overlap)
		seen_prune(c);
}

static void
on_scan(void *arg, const PGresult *res, const struct err *e)
{
	struct cellscan *c = arg;
	int n = e ? 0 : PQntuples(res);

	if (e) {
		scan_end(c, e);
		return;
	}
	for (int i = 0; i < n; i++) {
		int64_t queue_id = pgbin_i64(res, i, 0);
		int64_t part_id = pgbin_i64(res, i, 1);
		int64_t stamp_us = pgbin_time(res, i, 2);

		c->since_us = stamp_us;
		c->after = part_id;
		c->stats.rows++;
		if (!wanted(c, queue_id) || !needs_mark(c, part_id, stamp_us))
			continue;
		c->stats.marks++;
		c->face.on_mark(c->face.arg, queue_id, part_id);
	}
	if (n == SCAN_PAGE)
		scan_page(c);
	else
		scan_end(c, NULL);
}

static void
scan_page(struct cellscan *c)
{
	struct pgargs a;

	pgargs_init(&a);
	pgargs_time(&a, c->since_us);
	pgargs_i64(&a, c->after);
	pgargs_i32(&a, SCAN_PAGE);
	c->face.call(c->face.arg, &STMT_SCAN, &a, on_scan, c);
}

static void
scan_start(struct cellscan *c, int64_t now_ms)
{
	if (c->scanning || !c->clock_known)
		return;
	c->scanning = true;
	c->started_us = clk_mono_us();
	c->now_us = db_now_us(c);
	c->overlap = now_ms >= c->overlap_next_ms;
	c->since_us = c->last_us - SCAN_BACK_US;
	if (c->overlap) {
		c->overlap_next_ms = now_ms + OVERLAP_EVERY_MS;
		if (c->since_us > c->now_us - OVERLAP_BACK_US)
			c->since_us = c->now_us - OVERLAP_BACK_US;
	}
	c->after = 0;
	scan_page(c);
}

/* ---- repair notes ---- */

static void
on_repairs(void *arg, const PGresult *res, const struct err *e)
{
	struct cellscan *c = arg;
	int n = e ? 0 : PQntuples(res);

	c->repairing = false;
	if (e) {
		failed(c, "repair notes cannot be read", e);
		return;
	}
	for (int i = 0; i < n; i++) {
		c->repair_after = pgbin_i64(res, i, 0);
		/* what was noted before we began is in every walk */
		if (c->repaired)
			c->face.on_moved(c->face.arg, pgbin_i64(res, i, 1),
				pgbin_i64(res, i, 2),
				pgbin_null(res, i, 3) ? 0
						      : pgbin_i64(res, i, 3));
	}
	if (n < SCAN_PAGE)
		c->repaired = true;
}

static void
repairs_start(struct cellscan *c)
{
	struct pgargs a;

	if (c->repairing)
		return;
	c->repairing = true;
	pgargs_init(&a);
	pgargs_i64(&a, c->repair_after);
	c->face.call(c->face.arg, &STMT_REPAIRS, &a, on_repairs, c);
}

/* ---- the clock ---- */

static void
on_clock(void *arg, const PGresult *res, const struct err *e)
{
	struct cellscan *c = arg;

	if (e || PQntuples(res) != 1) {
		c->clock_next_ms = 0;
		return;
	}
	int64_t trip_us = clk_mono_us() - c->clock_sent_us;

	/*
	 * Half of the trip is how wrong it can be, and at boot the call waits
	 * for a connection: a long one counts until a shorter one comes, or
	 * for a while.
	 */
	if (trip_us > CLOCK_GOOD_US) {
		c->clock_next_ms = 0;
		if (c->clock_known && trip_us >= c->clock_trip_us) {
			c->clock_trip_us += c->clock_trip_us / 8;
			return;
		}
	}
	c->clock_trip_us = trip_us;
	c->offset_us = pgbin_time(res, 0, 0) - (clk_wall_us() - trip_us / 2);
	if (!c->clock_known)
		c->last_us = db_now_us(c);
	c->clock_known = true;
	if (c->face.on_clock)
		c->face.on_clock(c->face.arg, c->offset_us);
}

static void
clock_start(struct cellscan *c, int64_t now_ms)
{
	struct pgargs a;

	if (now_ms < c->clock_next_ms)
		return;
	c->clock_next_ms = now_ms + OVERLAP_EVERY_MS;
	c->clock_sent_us = clk_mono_us();
	pgargs_init(&a);
	c->face.call(c->face.arg, &STMT_CLOCK, &a, on_clock, c);
}

/* ---- the whole ---- */

void
cellscan_tick(struct cellscan *c, int64_t now_ms)
{
	clock_start(c, now_ms);
	scan_start(c, now_ms);
	repairs_start(c);
}

struct cellscan *
cellscan_new(const struct cellscan_face *face, int64_t now_ms)
{
	struct cellscan *c = calloc(1, sizeof(*c));

	if (!c)
		abort();
	c->face = *face;
	c->overlap_next_ms = now_ms + OVERLAP_EVERY_MS;
	return c;
}

void
cellscan_free(struct cellscan *c)
{
	size_t at = 0;
	struct seen *s;

	if (!c)
		return;
	while ((s = map_next(&c->seen, &at)))
		free(s);
	map_fini(&c->seen);
	free(c);
}

void
cellscan_stats(const struct cellscan *c, struct cellscan_stats *out)
{
	*out = c->stats;
}

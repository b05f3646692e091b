/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The filters of flush: what a call says with them, what its answer teaches
 * them, and paging a window in.  A filter only ever claims what the database
 * has shown: all id rows from some offset on, or all from some time on.
 */
#include <stdlib.h>

#include "catalog.h"
#include "clk.h"
#include "err.h"
#include "flush_int.h"
#include "pgpool.h"

enum {
	PAGE_ROWS_FIRST = 1000,
	PAGE_ROWS_MIN = 16,
	PAGE_ROWS_MAX = 10000,
	PAGE_BYTES = 4 << 20,
	/* so often behind: the window is not what we think */
	PAGE_ALL_FROM = 3,
};

/* Clocks differ a little; the window reaches back further than needed. */
#define PAGE_SLACK_US INT64_C(60000000)
#define DAY_US INT64_C(86400000000)

static const struct pgstmt STMT_PAGE = { "ids_page",
	"select base, last, at, ids "
	"from queen.ids_page_v1($1, $2, $3, $4, $5)" };
static const struct pgstmt STMT_HIGH = { "ids_high",
	"select ord, high from queen.fetch_high_v1($1, $2, $3)" };

struct flush_vouch
flush_ids_vouch(struct flush *f, int64_t part)
{
	struct dedup_filter *d = dedup_find(f->dedup, part);

	if (!d || !dedup_is_ready(d))
		return (struct flush_vouch){ .verified = -1,
			.covered_us = INT64_MIN };
	return (struct flush_vouch){ .verified = dedup_verified(d),
		.covered_us = dedup_covered_us(d) };
}

void
flush_ids_suspect(struct flush *f, int64_t part, int32_t seg, int32_t pos,
	const struct hash_id *id, struct flush_suspects *out)
{
	struct dedup_range r[FLUSH_RANGES_MAX];
	struct dedup_filter *d = dedup_find(f->dedup, part);
	int n = d && dedup_is_ready(d)
			? dedup_suspects(d, id, r, FLUSH_RANGES_MAX)
			: 0;

	f->stats.suspects += (uint64_t)n;
	for (int i = 0; i < n; i++) {
		if (out->n == out->cap) {
			out->cap = out->cap ? out->cap * 2 : 64;
			out->at = realloc(out->at, out->cap * sizeof(*out->at));
			if (!out->at)
				abort();
		}
		out->at[out->n++] = (struct flush_suspect){
			.seg = seg, .pos = pos, .lo = r[i].lo, .hi = r[i].hi
		};
	}
}

void
flush_suspects_args(struct pgargs *a, const struct flush_suspects *s)
{
	pgargs_array(a, PGARGS_I32);
	for (size_t i = 0; i < s->n; i++)
		pgargs_item_i32(a, s->at[i].seg);
	pgargs_close(a);
	pgargs_array(a, PGARGS_I32);
	for (size_t i = 0; i < s->n; i++)
		pgargs_item_i32(a, s->at[i].pos);
	pgargs_close(a);
	pgargs_array(a, PGARGS_I64);
	for (size_t i = 0; i < s->n; i++)
		pgargs_item_i64(a, s->at[i].lo);
	pgargs_close(a);
	pgargs_array(a, PGARGS_I64);
	for (size_t i = 0; i < s->n; i++)
		pgargs_item_i64(a, s->at[i].hi);
	pgargs_close(a);
}

void
flush_news_gap(struct flush_news *news, const PGresult *res, int row, int col)
{
	news->has_gap =
		!pgbin_null(res, row, col) && !pgbin_null(res, row, col + 1);
	if (!news->has_gap)
		return;
	news->gap_base = pgbin_i64(res, row, col);
	news->gap = pgbin_bytes(res, row, col + 1);
}

/* The database's clock, not later than it is. */
static int64_t
now_us(const struct flush *f)
{
	if (!f->db_at_us)
		return clk_wall_us() - DAY_US;
	return f->db_at_us + clk_mono_us() - f->db_at_mono_us;
}

/* Not earlier than the database's clock is now. */
static int64_t
at_most_us(const struct flush *f)
{
	if (!f->db_at_us)
		return clk_wall_us() + DAY_US;
	return f->db_at_us + clk_mono_us() - f->db_at_mono_us + 1000000;
}

static int64_t
window_us(const struct cat_part *part)
{
	return (int64_t)part->queue->dedup_window_s * 1000000;
}

static void
learn_gap(struct flush *f, struct dedup_filter *d,
	const struct flush_news *news, int64_t at_us, int64_t window)
{
	f->stats.gaps++;
	if (!dedup_is_ready(d) && news->sent_verified >= 0)
		return; /* it follows a filter that was dropped since */
	/*
	 * A gap from before what we vouched for is the whole index: all id
	 * rows there are, so it covers any window.
	 */
	if (news->sent_verified < 0 || news->gap_base <= news->sent_verified)
		dedup_restart(f->dedup, d, news->gap_base, INT64_MIN);
	else if (news->sent_verified <= dedup_verified(d))
		dedup_skip_to(d, news->gap_base, INT64_MIN);
	dedup_add(f->dedup, d, news->gap_base, (const uint8_t *)news->gap.p,
		news->gap.n / HASH_ID_BYTES, at_us, window);
}

void
flush_ids_learn(struct flush *f, const struct cat_part *part,
	const struct flush_news *news, const uint8_t *ids, size_t n)
{
	struct dedup_filter *d = news->probed ? dedup_open(f->dedup, part->id)
					      : dedup_find(f->dedup, part->id);
	int64_t window = window_us(part);

	if (news->written) {
		f->db_at_us = news->at_us;
		f->db_at_mono_us = clk_mono_us();
	}
	if (!d)
		return;
	if (window == 0) {
		dedup_drop(f->dedup, part->id);
		return;
	}
	if (news->has_gap)
		learn_gap(f, d, news,
			news->written ? news->at_us : at_most_us(f), window);
	if (!news->written)
		return;
	/* offset 0 was ours: there is nothing before it */
	if (!dedup_is_ready(d) && news->base == 0)
		dedup_restart(f->dedup, d, 0, INT64_MIN);
	if (!dedup_is_ready(d)) {
		dedup_drop(f->dedup, part->id);
		return;
	}
	dedup_add(f->dedup, d, news->base, ids, n, news->at_us, window);
	dedup_expire(f->dedup, d, news->at_us, window);
}

/* ---- paging ---- */

struct paging {
	struct flush *f;
	const struct cat_part *part;
	int64_t high; /* next offset when paging began */
	int64_t after, since_us;
	int32_t rows;
	bool fresh; /* starts the filter anew */
	flush_paged_fn done;
	void *arg;
};

static void page_next(struct paging *g);

static void
page_end(struct paging *g, const struct err *e)
{
	g->done(g->arg, e);
	free(g);
}

static void
take_rows(struct paging *g, struct dedup_filter *d, const PGresult *res)
{
	size_t bytes = 0;
	int n = PQntuples(res);
	int64_t window = window_us(g->part);

	for (int i = 0; i < n; i++) {
		int64_t base = pgbin_i64(res, i, 0);
		struct span ids = pgbin_bytes(res, i, 3);

		if (g->fresh) {
			dedup_restart(g->f->dedup, d, base, g->since_us);
			g->fresh = false;
		}
		/* what lies before the row is older, or purged */
		dedup_skip_to(d, base, g->since_us);
		dedup_add(g->f->dedup, d, base, (const uint8_t *)ids.p,
			ids.n / HASH_ID_BYTES, pgbin_time(res, i, 2), window);
		g->after = pgbin_i64(res, i, 1);
		bytes += ids.n;
	}
	if (n == 0)
		return;
	dedup_expire(g->f->dedup, d, now_us(g->f), window);
	int64_t rows = PAGE_BYTES / (int64_t)(bytes / (size_t)n + 1);

	g->rows = rows < PAGE_ROWS_MIN   ? PAGE_ROWS_MIN
		  : rows > PAGE_ROWS_MAX ? PAGE_ROWS_MAX
					 : (int32_t)rows;
}

static void
on_page(void *arg, const PGresult *res, const struct err *e)
{
	struct paging *g = arg;
	int32_t asked = g->rows;

	if (e) {
		page_end(g, e);
		return;
	}
	struct dedup_filter *d = g->fresh
					 ? dedup_open(g->f->dedup, g->part->id)
					 : dedup_find(g->f->dedup, g->part->id);

	/*
	 * Evicted, or begun anew by a transaction that pages, too: what these
	 * rows follow on is not there any more.  The caller asks again.
	 */
	if (!g->fresh && (!d || dedup_verified(d) < g->after)) {
		page_end(g, NULL);
		return;
	}
	take_rows(g, d, res);
	if (PQntuples(res) == asked) {
		page_next(g);
		return;
	}
	/*
	 * The newest offset was read before the pages: what they did not show
	 * up to there has left the window.
	 */
	if (g->fresh)
		dedup_restart(g->f->dedup, d, g->high, g->since_us);
	else
		dedup_skip_to(d, g->high, g->since_us);
	page_end(g, NULL);
}

static void
page_next(struct paging *g)
{
	struct pgargs a;

	pgargs_init(&a);
	pgargs_uuid(&a, &g->part->queue->tenant);
	pgargs_i64(&a, g->part->id);
	pgargs_i64(&a, g->after);
	pgargs_time(&a, g->since_us);
	pgargs_i32(&a, g->rows);
	pgpool_call(g->f->x->pool, LANE_REST, &STMT_PAGE, &a, on_page, g);
}

static void
on_high(void *arg, const PGresult *res, const struct err *e)
{
	struct paging *g = arg;

	if (e) {
		page_end(g, e);
		return;
	}
	if (PQntuples(res) && !pgbin_null(res, 0, 1))
		g->high = pgbin_i64(res, 0, 1);
	page_next(g);
}

void
flush_ids_page(struct flush *f, const struct cat_part *part, int attempt,
	flush_paged_fn done, void *arg)
{
	struct paging *g = calloc(1, sizeof(*g));
	struct dedup_filter *d = dedup_find(f->dedup, part->id);
	int64_t now = f->db_at_us ? now_us(f) : clk_wall_us();
	struct pgargs a;

	if (!g)
		abort();
	f->stats.behind++;
	*g = (struct paging){ .f = f,
		.part = part,
		.rows = PAGE_ROWS_FIRST,
		.done = done,
		.arg = arg };
	g->since_us = attempt < PAGE_ALL_FROM
			      ? now - window_us(part) - PAGE_SLACK_US
			      : INT64_MIN;
	if (attempt > 0)
		catalog_refresh(f->x->catalog);
	g->fresh = !d || !dedup_is_ready(d) || attempt == PAGE_ALL_FROM ||
		   dedup_covered_us(d) > g->since_us + PAGE_SLACK_US / 2;
	g->after = g->fresh ? -1 : dedup_verified(d);
	pgargs_init(&a);
	pgargs_uuid(&a, &part->queue->tenant);
	pgargs_array(&a, PGARGS_TEXT);
	pgargs_item_text(&a, part->queue->name);
	pgargs_close(&a);
	pgargs_array(&a, PGARGS_TEXT);
	pgargs_item_text(&a, part->name);
	pgargs_close(&a);
	pgpool_call(f->x->pool, LANE_REST, &STMT_HIGH, &a, on_high, g);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Records for an engine.  An answer is kept and decoded in slices, so that
 * large ones do not hold up the loop; few are in hand at a time, whatever
 * number of queues asks, for each holds its answer in memory.
 */
#include "cell_int.h"

#include "clk.h"
#include "engine.h"
#include "err.h"
#include "logrd.h"
#include "pgpool.h"
#include "seal.h"

static const struct pgstmt STMT_FETCH = { "s3_fetch",
	"select ord, verdict, high, log_start, base, last, at, key_id, blob "
	"from queen.fetch_parts_v1($1, $2, $3, $4, $5, $6)" };

enum {
	COL_ORD,
	COL_VERDICT,
	COL_HIGH,
	COL_START,
	COL_BASE,
	COL_LAST,
	COL_AT,
	COL_KEY,
	COL_BLOB
};

static void
bounds(struct cell_call *k)
{
	static const enum engine_verdict told[] = { ENGINE_OK, ENGINE_GONE,
		ENGINE_RANGE };
	int32_t v = pgbin_i32(k->res, k->row, COL_VERDICT);

	BUG(v < 0 || v > 2);
	engine_on_entry(k->engine, k->id, k->entry - 1, told[v],
		pgbin_i64(k->res, k->row, COL_HIGH),
		pgbin_i64(k->res, k->row, COL_START));
}

static bool
is_known(const struct seal *seal, int key_id)
{
	uint8_t ids[SEAL_KEYS_MAX];
	size_t n = seal_ids(seal, ids);

	for (size_t i = 0; i < n; i++)
		if (ids[i] == key_id)
			return true;
	return false;
}

/* A key that is here and does not open is as good as damage. */
static void
blocked(struct cell_call *k, int64_t offset, int64_t ts_us)
{
	int key_id = pgbin_null(k->res, k->row, COL_KEY)
			     ? SEAL_NO_KEY
			     : pgbin_i16(k->res, k->row, COL_KEY);

	if (key_id != SEAL_NO_KEY && is_known(k->cell->seal, key_id))
		key_id = -1;
	engine_on_blocked(
		k->engine, k->id, k->entry - 1, offset, ts_us, key_id);
	k->shut = true;
}

static void
on_message(void *arg, const struct logrd_message *m)
{
	struct cell_call *k = arg;
	const struct record r = {
		.txn = m->frame.txn,
		.offset = m->offset,
		.ts_us = k->ts_us,
		.payload = m->payload,
		.null = m->payload.n == 0,
	};

	engine_on_record(k->engine, k->id, k->entry - 1, &r);
}

/* The records of one row from the asked offset on. */
static void
segment(struct cell_call *k)
{
	int64_t base = pgbin_i64(k->res, k->row, COL_BASE);
	int64_t last = pgbin_i64(k->res, k->row, COL_LAST);
	int64_t asked = k->offset[k->entry - 1];
	int64_t from = asked > base ? asked : base;
	const struct logrd_slice s = {
		.blob = pgbin_bytes(k->res, k->row, COL_BLOB),
		.base = base,
		.skip = (int32_t)(from - base),
		.take = (int32_t)(last + 1 - from),
	};
	struct err why = ERR_ZERO;
	size_t n;

	if (s.take <= 0)
		return;
	k->ts_us = pgbin_time(k->res, k->row, COL_AT);
	n = logrd_each(&s, k->cell->seal, &k->cell->room, on_message, k, &why);
	if (n < (size_t)s.take)
		blocked(k, from + (int64_t)n, k->ts_us);
}

static void
decode_row(struct cell_call *k)
{
	size_t entry = (size_t)pgbin_i32(k->res, k->row, COL_ORD);

	if (entry != k->entry) {
		BUG(entry != k->entry + 1 || entry > k->n);
		k->entry = entry;
		k->shut = false;
		bounds(k);
	}
	if (!k->shut && !pgbin_null(k->res, k->row, COL_BASE))
		segment(k);
}

static void
on_slice(void *arg)
{
	struct cell_call *k = arg;
	int64_t until_us = clk_mono_us() + CELL_SLICE_US;

	for (; k->row < PQntuples(k->res); k->row++) {
		if (clk_mono_us() > until_us) {
			loop_timer_start(&k->slice, 0);
			return;
		}
		decode_row(k);
	}
	BUG(k->entry != k->n);
	engine_on_done(k->engine, k->id);
	cell_step_end(k, NULL);
}

static void
on_fetched(struct cell_call *k, const PGresult *res, const struct err *e)
{
	(void)res;
	if (e) {
		cell_step_end(k, e);
		return;
	}
	k->res = pgpool_take_result(k->cell->pool);
	k->at = CELL_SLICING;
	loop_timer_init(&k->slice, k->cell->loop, on_slice, k);
	loop_timer_start(&k->slice, 0);
}

static void
send_fetch(struct cell_call *k)
{
	struct pgargs a;

	k->fetching = true;
	k->cell->fetches++;
	pgargs_init(&a);
	pgargs_uuid(&a, &k->tenant);
	pgargs_text(&a, span_of(k->queue));
	pgargs_array(&a, PGARGS_I64);
	for (size_t i = 0; i < k->n; i++)
		pgargs_item_i64(&a, k->part[i]);
	pgargs_close(&a);
	pgargs_array(&a, PGARGS_I64);
	for (size_t i = 0; i < k->n; i++)
		pgargs_item_i64(&a, k->offset[i]);
	pgargs_close(&a);
	pgargs_array(&a, PGARGS_I32);
	for (size_t i = 0; i < k->n; i++)
		pgargs_item_i32(&a, k->entry_bytes);
	pgargs_close(&a);
	pgargs_i64(&a, CELL_FETCH_BYTES);
	cell_send(k, CELL_READ, &STMT_FETCH, &a, on_fetched);
}

void
cell_fetch_next(struct cell *c)
{
	struct cell_call *k;

	while (c->fetches < CELL_FETCHES &&
		(k = TAILQ_FIRST(&c->waiting)) != NULL) {
		TAILQ_REMOVE(&c->waiting, k, wait);
		send_fetch(k);
	}
}

void
cell_fetch_begin(struct cell_call *k)
{
	k->at = CELL_QUEUED;
	TAILQ_INSERT_TAIL(&k->cell->waiting, k, wait);
	cell_fetch_next(k->cell);
}

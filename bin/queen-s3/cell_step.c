/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What an engine asks for.  A page of discovery is asked for only when the
 * safeTime before it has come: so it holds every record stamped up to then.
 */
#include "cell_int.h"

#include <stdlib.h>

#include "engine.h"
#include "err.h"

static const struct pgstmt STMT_SAFE = { "s3_safe",
	"select safe_time, degraded from queen.safe_time_v1($1, $2)" };
static const struct pgstmt STMT_PAGE = { "s3_page",
	"select verdict, part, name, last_offset, log_start, last_write_at "
	"from queen.changed_parts_v1($1, $2, $3, $4, $5, $6)" };
static const struct pgstmt STMT_SEEK = { "s3_seek",
	"select ord, off from queen.offsets_at_v1($1, $2, $3, $4)" };

/* ---- a step ---- */

void
cell_step_end(struct cell_call *k, const struct err *e)
{
	struct cell *c = k->cell;
	cell_step_fn fn = k->fn.step;
	void *arg = k->arg;

	if (e)
		engine_on_failed(k->engine, k->id);
	cell_call_end(k);
	cell_fetch_next(c);
	fn(arg, e);
}

static void
put_time(struct pgargs *a, int64_t at_us)
{
	if (at_us == STAMP_NONE)
		pgargs_null(a);
	else
		pgargs_time(a, at_us);
}

/* ---- discovery ---- */

static void
on_page(struct cell_call *k, const PGresult *res, const struct err *e)
{
	enum { VERDICT, PART, NAME, LAST, START, WRITTEN };
	struct engine_found *rows;
	int n = e ? 0 : PQntuples(res);

	if (e) {
		cell_step_end(k, e);
		return;
	}
	if (n == 1 && pgbin_i32(res, 0, VERDICT) == 1) {
		engine_on_missing(k->engine, k->id, k->safe_us, k->degraded);
		cell_step_end(k, NULL);
		return;
	}
	rows = arena_alloc(&k->arena, ((size_t)n + 1) * sizeof(*rows));
	for (int i = 0; i < n; i++)
		rows[i] = (struct engine_found){
			.part = pgbin_i64(res, i, PART),
			.name = pgbin_bytes(res, i, NAME),
			.last_offset = pgbin_i64(res, i, LAST),
			.log_start = pgbin_i64(res, i, START),
			.last_write_us = pgbin_time(res, i, WRITTEN),
		};
	engine_on_page(k->engine, k->id, k->safe_us, k->degraded, rows,
		(size_t)n, n == ENGINE_PAGE);
	cell_step_end(k, NULL);
}

static void
on_safe(struct cell_call *k, const PGresult *res, const struct err *e)
{
	struct pgargs a;

	if (e) {
		cell_step_end(k, e);
		return;
	}
	k->safe_us = pgbin_null(res, 0, 0) ? STAMP_NONE : pgbin_time(res, 0, 0);
	k->degraded = pgbin_bool(res, 0, 1);
	pgargs_init(&a);
	pgargs_uuid(&a, &k->tenant);
	pgargs_text(&a, span_of(k->queue));
	put_time(&a, k->since_us);
	put_time(&a, k->after_us);
	pgargs_i64(&a, k->after_part);
	pgargs_i32(&a, ENGINE_PAGE);
	cell_send(k, CELL_READ, &STMT_PAGE, &a, on_page);
}

static void
send_safe(struct cell_call *k)
{
	struct pgargs a;

	/* both are bounded where they are set */
	pgargs_init(&a);
	pgargs_i32(&a, (int32_t)k->cell->guard_ms);
	pgargs_i32(&a, (int32_t)k->cell->floor_ms);
	cell_send(k, CELL_READ, &STMT_SAFE, &a, on_safe);
}

/* ---- seek ---- */

static void
on_seek(struct cell_call *k, const PGresult *res, const struct err *e)
{
	if (e) {
		cell_step_end(k, e);
		return;
	}
	for (int i = 0; i < PQntuples(res); i++) {
		bool gone = pgbin_null(res, i, 1);

		engine_on_seek(k->engine, k->id,
			(size_t)pgbin_i32(res, i, 0) - 1, gone,
			gone ? 0 : pgbin_i64(res, i, 1));
	}
	engine_on_done(k->engine, k->id);
	cell_step_end(k, NULL);
}

static void
send_seek(struct cell_call *k)
{
	struct pgargs a;

	pgargs_init(&a);
	pgargs_uuid(&a, &k->tenant);
	pgargs_text(&a, span_of(k->queue));
	pgargs_array(&a, PGARGS_I64);
	for (size_t i = 0; i < k->n; i++)
		pgargs_item_i64(&a, k->part[i]);
	pgargs_close(&a);
	put_time(&a, k->at_us);
	cell_send(k, CELL_READ, &STMT_SEEK, &a, on_seek);
}

static int64_t *
copy(struct cell_call *k, const int64_t *from)
{
	int64_t *to = arena_alloc(&k->arena, (k->n + 1) * sizeof(*to));

	if (k->n)
		memcpy(to, from, k->n * sizeof(*to));
	return to;
}

struct cell_call *
cell_step(struct cell *c, const struct qid *tenant, const char *queue,
	struct engine *engine, const struct engine_step *s, cell_step_fn fn,
	void *arg)
{
	struct cell_call *k = cell_call_new(c, tenant, arg);

	k->fn.step = fn;
	k->engine = engine;
	k->queue = arena_cstr(&k->arena, span_of(queue));
	k->id = s->call;
	if (s->what == ENGINE_DISCOVER) {
		k->since_us = s->since_us;
		k->after_us = s->after_us;
		k->after_part = s->after_part;
		send_safe(k);
		return k;
	}
	k->n = s->n;
	k->part = copy(k, s->part);
	if (s->what == ENGINE_SEEK) {
		k->at_us = s->at_us;
		send_seek(k);
	} else {
		BUG(s->what != ENGINE_FETCH);
		k->offset = copy(k, s->offset);
		k->entry_bytes = s->entry_bytes;
		cell_fetch_begin(k);
	}
	return k;
}

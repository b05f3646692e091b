/* SPDX-License-Identifier: Apache-2.0 */
/*
 * POST /api/v1/partitions/changed.  The settled time is read first, in a
 * statement of its own: what is read after it then holds every record
 * stamped before it.
 */
#include "changed.h"

#include "count.h"
#include "ctx.h"
#include "err.h"
#include "fetch_body.h"
#include "hsrv.h"
#include "jwrite.h"
#include "pgpool.h"
#include "settings.h"

enum { SAFE_GUARD_MS = 5000 };

static const struct pgstmt STMT_SAFE = { "safe_time",
	"select safe_time, degraded from queen.safe_time_v1($1, $2)" };
static const struct pgstmt STMT_CHANGED = { "partitions_changed",
	"select ord, verdict, name, last_offset, log_start, last_write_at "
	"from queen.partitions_changed_v1($1, $2, $3, $4, $5, $6)" };

struct changed {
	struct changed_body body;
	bool safe_known, degraded;
	int64_t safe_us;
	size_t *asked; /* entries of the call, by its ord */
	size_t asked_n;
};

static void
fail(struct hsrv_req *r, const struct err *e)
{
	count_db_error(ctx_of(r));
	hsrv_reply_error(r, 500, "%s",
		pgpool_had_none(e) ? e->text : "partitions changed failed");
}

static void
put_safe(struct jwrite *w, const struct changed *c)
{
	jwrite_key(w, "safeTime");
	if (c->safe_known)
		jwrite_iso_us(w, c->safe_us);
	else
		jwrite_null(w);
	jwrite_kv_bool(w, "safeTimeDegraded", c->degraded);
}

static void
put_next(struct jwrite *w, struct hsrv_req *r, const struct changed_entry *e,
	struct span name, int64_t at_us, int rows)
{
	struct buf text = BUF_ZERO;

	jwrite_key(w, "next");
	if (rows < e->limit) {
		jwrite_null(w);
		return;
	}
	if (e->timed)
		buf_printf(&text, "t|%lld|", (long long)at_us);
	else
		buf_puts(&text, "n|");
	buf_put_span(&text, name);
	jwrite_str(w, arena_dup(hsrv_arena(r), buf_span(&text)));
	buf_fini(&text);
}

/* The rows of one entry start at *row, which moves behind them. */
static void
put_page(struct jwrite *w, struct hsrv_req *r, const struct changed_entry *e,
	int32_t ord, const PGresult *res, int *row)
{
	struct span name = SPAN_ZERO;
	int64_t at_us = 0;
	int rows = 0;

	jwrite_key(w, "partitions");
	jwrite_array(w);
	for (; *row < PQntuples(res) && pgbin_i32(res, *row, 0) == ord;
		++*row) {
		if (pgbin_i32(res, *row, 1) != 0)
			continue; /* an empty page */
		rows++;
		name = pgbin_bytes(res, *row, 2);
		at_us = pgbin_time(res, *row, 5);
		jwrite_object(w);
		jwrite_kv_str(w, "name", name);
		jwrite_kv_i64(w, "lastOffset", pgbin_i64(res, *row, 3));
		jwrite_kv_i64(w, "logStart", pgbin_i64(res, *row, 4));
		jwrite_key(w, "lastWriteAt");
		jwrite_iso_us(w, at_us);
		jwrite_end(w);
	}
	jwrite_end(w);
	put_next(w, r, e, name, at_us, rows);
}

static bool
is_unknown(const PGresult *res, int row, int32_t ord)
{
	return row < PQntuples(res) && pgbin_i32(res, row, 0) == ord &&
	       pgbin_i32(res, row, 1) == 1;
}

static void
answer(struct hsrv_req *r, const PGresult *res)
{
	struct changed *c = hsrv_user(r);
	struct jwrite w;
	int row = 0;
	int32_t ord = 0;

	jwrite_init(&w, hsrv_out(r));
	jwrite_object(&w);
	put_safe(&w, c);
	jwrite_key(&w, "entries");
	jwrite_array(&w);
	for (size_t i = 0; i < c->body.n; i++) {
		const struct changed_entry *e = &c->body.entries[i];

		jwrite_object(&w);
		jwrite_kv_str(&w, "queue", e->queue);
		if (e->bad_cursor) {
			jwrite_kv_cstr(&w, "error", "BAD_CURSOR");
		} else if (is_unknown(res, row, ++ord)) {
			jwrite_kv_cstr(
				&w, "error", "UNKNOWN_TOPIC_OR_PARTITION");
			row++;
		} else {
			put_page(&w, r, e, ord, res, &row);
		}
		jwrite_end(&w);
	}
	jwrite_end(&w);
	jwrite_end(&w);
	hsrv_reply(r, 200);
}

static void
on_changed(void *arg, const PGresult *res, const struct err *e)
{
	struct hsrv_req *r = arg;

	if (e)
		fail(r, e);
	else
		answer(r, res);
}

#define ASKED_EACH(c, i, e)                                                    \
	for ((i) = 0; (i) < (c)->asked_n &&                                    \
		      ((e) = &(c)->body.entries[(c)->asked[i]]);               \
		(i)++)

static void
ask(struct hsrv_req *r)
{
	struct changed *c = hsrv_user(r);
	const struct changed_entry *e;
	struct pgargs a;
	size_t i;

	pgargs_init(&a);
	pgargs_uuid(&a, ctx_tenant(r));
	pgargs_array(&a, PGARGS_TEXT);
	ASKED_EACH (c, i, e)
		pgargs_item_text(&a, e->queue);
	pgargs_close(&a);
	pgargs_array(&a, PGARGS_TIMESTAMPTZ);
	ASKED_EACH (c, i, e) {
		if (e->timed)
			pgargs_item_time(&a, e->since_us);
		else
			pgargs_item_null(&a);
	}
	pgargs_close(&a);
	pgargs_array(&a, PGARGS_TIMESTAMPTZ);
	ASKED_EACH (c, i, e) {
		if (e->timed && e->has_cursor)
			pgargs_item_time(&a, e->cursor_us);
		else
			pgargs_item_null(&a);
	}
	pgargs_close(&a);
	pgargs_array(&a, PGARGS_TEXT);
	ASKED_EACH (c, i, e) {
		if (e->has_cursor)
			pgargs_item_text(&a, e->cursor_name);
		else
			pgargs_item_null(&a);
	}
	pgargs_close(&a);
	pgargs_array(&a, PGARGS_I32);
	ASKED_EACH (c, i, e)
		pgargs_item_i32(&a, e->limit);
	pgargs_close(&a);
	pgpool_call(
		ctx_of(r)->pool, LANE_REST, &STMT_CHANGED, &a, on_changed, r);
}

static void
on_safe(void *arg, const PGresult *res, const struct err *e)
{
	struct hsrv_req *r = arg;
	struct changed *c = hsrv_user(r);

	if (e || PQntuples(res) != 1) {
		static const struct err none = ERR_ZERO;

		fail(r, e ? e : &none);
		return;
	}
	c->safe_known = !pgbin_null(res, 0, 0);
	if (c->safe_known)
		c->safe_us = pgbin_time(res, 0, 0);
	c->degraded = pgbin_bool(res, 0, 1);
	if (c->asked_n)
		ask(r);
	else
		answer(r, NULL);
}

void
changed_post(struct hsrv_req *r)
{
	struct changed *c = arena_zalloc(hsrv_arena(r), sizeof(*c));
	struct ctx *x = ctx_of(r);
	struct err e = ERR_ZERO;
	struct pgargs a;

	if (changed_body_parse(hsrv_body(r), hsrv_arena(r), &c->body, &e) !=
		0) {
		hsrv_reply_error(r, 400, "%s", e.text);
		return;
	}
	c->asked =
		arena_alloc(hsrv_arena(r), (c->body.n + 1) * sizeof(*c->asked));
	for (size_t i = 0; i < c->body.n; i++)
		if (!c->body.entries[i].bad_cursor)
			c->asked[c->asked_n++] = i;
	hsrv_set_user(r, c);
	pgargs_init(&a);
	pgargs_i32(&a, SAFE_GUARD_MS);
	pgargs_i32(&a, (int32_t)x->conf->fetch_safe_floor_ms);
	pgpool_call(x->pool, LANE_REST, &STMT_SAFE, &a, on_safe, r);
}

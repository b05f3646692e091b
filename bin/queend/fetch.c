/* SPDX-License-Identifier: Apache-2.0 */
/*
 * POST /api/v1/fetch.  A fetch that found too little parks; one cheap look at
 * the high watermarks serves all parked ones, every 200 ms and when messages
 * landed in one of their queues.  Only what moved is read again.
 */
#include "fetch.h"

#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#include "catalog.h"
#include "clk.h"
#include "count.h"
#include "ctx.h"
#include "err.h"
#include "fetch_body.h"
#include "frame.h"
#include "hsrv.h"
#include "jwrite.h"
#include "keyring.h"
#include "loop.h"
#include "pgpool.h"
#include "pop.h"
#include "seg.h"

enum {
	FETCH_LOOK_MS = 200,
	FETCH_LOOK_ENTRIES = 4096,
	FETCH_RECORDS_MAX = 10000,
	FETCH_CALL_BYTES = 64 << 20, /* stored, and rendered */
};

static const struct pgstmt STMT_FETCH = { "fetch",
	"select ord, verdict, high, log_start, base, last, at, raw_bytes, "
	"key_id, blob from queen.fetch_v1($1, $2, $3, $4, $5, $6)" };
static const struct pgstmt STMT_HIGH = { "fetch_high",
	"select ord, high from queen.fetch_high_v1($1, $2, $3)" };

enum {
	COL_ORD,
	COL_VERDICT,
	COL_HIGH,
	COL_START,
	COL_BASE,
	COL_LAST,
	COL_AT,
	COL_RAW,
	COL_KEY,
	COL_BLOB
};
enum { VERDICT_OK, VERDICT_UNKNOWN, VERDICT_RANGE };

struct fetch {
	TAILQ_ENTRY(fetch) link; /* while parked */
	struct hsrv_req *req;
	struct ctx *x;
	struct fetch_body body;
	int64_t *high; /* as last read, per entry */
	int64_t deadline_ms;
	struct pops_watch *watches;
	size_t watches_n;
	bool parked;
	bool marked; /* messages landed since the look */
	bool looked_at; /* in the look under way */
	bool moved; /* the look found a watermark moved */
};
TAILQ_HEAD(fetch_list, fetch);

struct fetches {
	struct ctx *x;
	struct fetch_list parked;
	struct loop_timer timer;
	int64_t look_next_ms;
	bool look_soon, looking;
	struct fetch **look; /* those in the look, in its order */
	size_t *look_entries; /* how many each asked; it may be gone */
	size_t look_n;
};

static void fetch_read(struct fetch *f);
static void fetches_arm(struct fetches *fs);

/* ---- parking ---- */

static void
unpark(struct fetch *f)
{
	struct fetches *fs = f->x->fetches;

	if (!f->parked)
		return;
	f->parked = false;
	TAILQ_REMOVE(&fs->parked, f, link);
	for (size_t i = 0; i < f->watches_n; i++)
		pops_unwatch(f->x->pops, &f->watches[i]);
	hsrv_unpark(f->req);
}

static void
on_gone(struct hsrv_req *r)
{
	struct fetch *f = hsrv_user(r);
	struct fetches *fs = f->x->fetches;

	unpark(f);
	/* a look under way must not come back to it */
	for (size_t i = 0; f->looked_at && i < fs->look_n; i++)
		if (fs->look[i] == f)
			fs->look[i] = NULL;
	hsrv_drop(r);
}

static void look_at(struct fetches *fs, bool all);

static void
on_look_soon(void *arg)
{
	struct fetches *fs = arg;

	fs->look_soon = false;
	if (!fs->looking)
		look_at(fs, false);
}

/* Within pops_mark: only remembers. */
static void
on_mark(void *arg)
{
	struct fetch *f = arg;
	struct fetches *fs = f->x->fetches;

	f->marked = true;
	if (fs->look_soon)
		return;
	fs->look_soon = true;
	loop_later(f->x->loop, on_look_soon, fs);
}

static void
watch(struct fetch *f)
{
	const struct qid *tenant = ctx_tenant(f->req);
	int64_t last = 0;

	if (!f->watches)
		f->watches = arena_zalloc(
			hsrv_arena(f->req), f->body.n * sizeof(*f->watches));
	f->watches_n = 0;
	for (size_t i = 0; i < f->body.n; i++) {
		struct cat_queue *q = catalog_queue(
			f->x->catalog, tenant, f->body.entries[i].queue);

		/* the look every 200 ms finds what is not in memory yet */
		if (!q || q->id == last)
			continue;
		struct pops_watch *w = &f->watches[f->watches_n++];

		last = q->id;
		*w = (struct pops_watch){
			.queue_id = q->id, .fn = on_mark, .arg = f
		};
		pops_watch(f->x->pops, w);
	}
}

static struct fetches *fetches_of(struct ctx *x);

static void
park(struct fetch *f)
{
	struct fetches *fs = fetches_of(f->x);

	f->parked = true;
	f->marked = false;
	f->looked_at = false;
	TAILQ_INSERT_TAIL(&fs->parked, f, link);
	watch(f);
	hsrv_park(f->req, on_gone);
	fetches_arm(fs);
}

/* ---- the look at the watermarks ---- */

/* Row by row: whose watermark is not what it was? */
static void
compare(struct fetches *fs, const PGresult *res)
{
	size_t at = 0, entry = 0;

	for (int i = 0; i < PQntuples(res) && at < fs->look_n; i++) {
		struct fetch *f = fs->look[at];

		if (f && (pgbin_null(res, i, 1) ||
				 pgbin_i64(res, i, 1) != f->high[entry]))
			f->moved = true;
		if (++entry == fs->look_entries[at]) {
			entry = 0;
			at++;
		}
	}
}

static void
on_look(void *arg, const PGresult *res, const struct err *e)
{
	struct fetches *fs = arg;
	int64_t now = clk_mono_ms();

	fs->looking = false;
	if (!e)
		compare(fs, res);
	for (size_t i = 0; i < fs->look_n; i++) {
		struct fetch *f = fs->look[i];

		if (!f)
			continue;
		bool moved = f->moved;

		f->moved = f->looked_at = false;
		if (moved || now >= f->deadline_ms) {
			unpark(f);
			fetch_read(f);
		}
	}
	fs->look_n = 0;
	fetches_arm(fs);
}

static void
look_args(struct fetches *fs, struct pgargs *a)
{
	size_t k, i;

	pgargs_init(a);
	pgargs_uuid(a, ctx_tenant(fs->look[0]->req));
	pgargs_array(a, PGARGS_TEXT);
	for (k = 0; k < fs->look_n; k++)
		for (i = 0; i < fs->look[k]->body.n; i++)
			pgargs_item_text(a, fs->look[k]->body.entries[i].queue);
	pgargs_close(a);
	pgargs_array(a, PGARGS_TEXT);
	for (k = 0; k < fs->look_n; k++)
		for (i = 0; i < fs->look[k]->body.n; i++)
			pgargs_item_text(
				a, fs->look[k]->body.entries[i].partition);
	pgargs_close(a);
}

/* all: also those nobody marked. */
static void
look_at(struct fetches *fs, bool all)
{
	struct fetch *f;
	struct pgargs a;
	size_t n = 0, entries = 0;

	if (fs->looking)
		return;
	TAILQ_FOREACH (f, &fs->parked, link)
		n++;
	fs->look = reallocarray(fs->look, n + 1, sizeof(struct fetch *));
	fs->look_entries = reallocarray(
		fs->look_entries, n + 1, sizeof(*fs->look_entries));
	if (!fs->look || !fs->look_entries)
		abort();
	fs->look_n = 0;
	TAILQ_FOREACH (f, &fs->parked, link) {
		if (!all && !f->marked)
			continue;
		if (fs->look_n && (entries + f->body.n > FETCH_LOOK_ENTRIES ||
					  memcmp(ctx_tenant(fs->look[0]->req),
						  ctx_tenant(f->req),
						  sizeof(struct qid)) != 0))
			continue;
		f->marked = false;
		f->looked_at = true;
		entries += f->body.n;
		fs->look_entries[fs->look_n] = f->body.n;
		fs->look[fs->look_n++] = f;
	}
	if (!fs->look_n) {
		fetches_arm(fs);
		return;
	}
	look_args(fs, &a);
	fs->looking = true;
	pgpool_call(fs->x->pool, LANE_REST, &STMT_HIGH, &a, on_look, fs);
}

/* Those whose time is over read once more and answer. */
static void
end_due(struct fetches *fs, int64_t now)
{
	struct fetch *f, *next;

	for (f = TAILQ_FIRST(&fs->parked); f; f = next) {
		next = TAILQ_NEXT(f, link);
		if (f->looked_at || (now < f->deadline_ms && !fs->x->stopping))
			continue;
		unpark(f);
		fetch_read(f);
	}
}

static void
on_timer(void *arg)
{
	struct fetches *fs = arg;
	int64_t now = clk_mono_ms();

	end_due(fs, now);
	if (!fs->looking && now >= fs->look_next_ms) {
		fs->look_next_ms = now + FETCH_LOOK_MS;
		look_at(fs, true);
	}
	fetches_arm(fs);
}

static void
fetches_arm(struct fetches *fs)
{
	int64_t now = clk_mono_ms(), next = now + FETCH_LOOK_MS;
	struct fetch *f;
	bool any = false;

	TAILQ_FOREACH (f, &fs->parked, link) {
		any = true;
		if (f->deadline_ms < next && !f->looked_at)
			next = f->deadline_ms;
		if (f->marked && !fs->looking && !fs->look_soon) {
			fs->look_soon = true;
			loop_later(fs->x->loop, on_look_soon, fs);
		}
	}
	if (!any) {
		loop_timer_stop(&fs->timer);
		return;
	}
	if (!fs->looking && fs->look_next_ms < next)
		next = fs->look_next_ms;
	loop_timer_start(&fs->timer, next > now ? next - now : 1);
}

static struct fetches *
fetches_of(struct ctx *x)
{
	struct fetches *fs = x->fetches;

	if (fs)
		return fs;
	fs = calloc(1, sizeof(*fs));
	if (!fs)
		abort();
	fs->x = x;
	TAILQ_INIT(&fs->parked);
	loop_timer_init(&fs->timer, x->loop, on_timer, fs);
	x->fetches = fs;
	return fs;
}

void
fetches_free(struct fetches *fs)
{
	if (!fs)
		return;
	/* the requests went with the server */
	loop_timer_fini(&fs->timer);
	free(fs->look);
	free(fs->look_entries);
	free(fs);
}

/* ---- the answer ---- */

struct render {
	struct fetch *f;
	struct buf *out;
	struct buf frames;
	struct buf opened; /* payload of one message */
	int64_t payload_bytes;
	bool first; /* no unit was rendered yet */
	bool any_error;
};

static void
put_record(struct render *v, struct jwrite *w, struct frame *m, int64_t offset,
	int64_t at_us)
{
	struct err why = ERR_ZERO;
	bool sealed = keyring_open(v->f->x, m, &v->opened, &why) != 0;

	jwrite_object(w);
	jwrite_kv_i64(w, "offset", offset);
	jwrite_kv_str(w, "transactionId", m->txn);
	jwrite_kv_raw(w, "payload",
		m->payload.n && !sealed ? m->payload : SPAN_LIT("null"));
	if (sealed)
		jwrite_kv_bool(w, "isEncrypted", true);
	jwrite_key(w, "ts");
	jwrite_iso_us(w, at_us);
	jwrite_end(w);
}

/* The records of one segment from offset on; *left is what may come. */
static int
put_segment(struct render *v, struct jwrite *w, const PGresult *res, int row,
	int64_t offset, int64_t *left, struct err *e)
{
	int64_t base = pgbin_i64(res, row, COL_BASE);
	int64_t at_us = pgbin_time(res, row, COL_AT);
	int64_t skip = offset > base ? offset - base : 0;
	struct span rest;
	struct frame m;
	int rc = 0;

	buf_reset(&v->frames);
	if (seg_unpack(pgbin_bytes(res, row, COL_BLOB), &v->frames, e) != 0)
		return -1;
	rest = buf_span(&v->frames);
	if (seg_skip(&rest, skip, e) != 0)
		return -1;
	for (int64_t at = base + skip; *left > 0; at++, --*left) {
		rc = frame_next(&rest, &m, e);
		if (rc <= 0)
			break;
		if (!v->first && v->out->len > FETCH_CALL_BYTES) {
			*left = 0;
			break;
		}
		put_record(v, w, &m, at, at_us);
		v->payload_bytes += m.payload.n ? (int64_t)m.payload.n : 1;
	}
	v->first = false;
	return rc < 0 ? -1 : 0;
}

/* All rows of one entry, from *row on. */
static int
put_entry(struct render *v, struct jwrite *w, size_t i, const PGresult *res,
	int *row, struct err *e)
{
	const struct fetch_entry *en = &v->f->body.entries[i];
	int32_t verdict = pgbin_i32(res, *row, COL_VERDICT);
	int64_t high = pgbin_i64(res, *row, COL_HIGH);
	int64_t start = pgbin_i64(res, *row, COL_START);
	int64_t left = FETCH_RECORDS_MAX;

	v->f->high[i] = verdict == VERDICT_UNKNOWN ? -1 : high;
	jwrite_object(w);
	jwrite_kv_str(w, "queue", en->queue);
	jwrite_kv_str(w, "partition", en->partition);
	jwrite_key(w, "records");
	jwrite_array(w);
	for (; *row < PQntuples(res) &&
		pgbin_i32(res, *row, COL_ORD) == (int32_t)i + 1;
		++*row)
		if (!pgbin_null(res, *row, COL_BASE) && left > 0 &&
			put_segment(v, w, res, *row, en->offset, &left, e) != 0)
			return -1;
	jwrite_end(w);
	jwrite_kv_i64(w, "highWatermark", high);
	jwrite_kv_i64(w, "logStartOffset", start);
	if (verdict != VERDICT_OK) {
		v->any_error = true;
		jwrite_kv_cstr(w, "error",
			verdict == VERDICT_UNKNOWN
				? "UNKNOWN_TOPIC_OR_PARTITION"
				: "OFFSET_OUT_OF_RANGE");
	}
	jwrite_end(w);
	return 0;
}

static int
render_all(struct render *v, const PGresult *res, struct err *e)
{
	struct jwrite w;
	int row = 0, rc = 0;

	buf_reset(v->out);
	jwrite_init(&w, v->out);
	jwrite_object(&w);
	jwrite_key(&w, "entries");
	jwrite_array(&w);
	for (size_t i = 0; i < v->f->body.n && rc == 0; i++) {
		BUG(row >= PQntuples(res));
		rc = put_entry(v, &w, i, res, &row, e);
	}
	if (rc == 0) {
		jwrite_end(&w);
		jwrite_end(&w);
	}
	buf_fini(&v->frames);
	buf_fini(&v->opened);
	return rc;
}

static void
on_read(void *arg, const PGresult *res, const struct err *e)
{
	struct fetch *f = arg;
	struct err why = ERR_ZERO;
	struct render v = { .f = f,
		.out = hsrv_out(f->req),
		.frames = BUF_ZERO,
		.opened = BUF_ZERO,
		.first = true };

	if (e) {
		count_db_error(f->x);
		hsrv_reply_error(f->req, 500, "%s",
			pgpool_had_none(e) ? e->text : "fetch failed");
		return;
	}
	if (render_all(&v, res, &why) != 0) {
		hsrv_reply_error(f->req, 500, "fetch decode failed");
		return;
	}
	if (!v.any_error && v.payload_bytes < f->body.min_bytes &&
		clk_mono_ms() < f->deadline_ms && !f->x->stopping) {
		buf_fini(v.out); /* too little, and made anew later */
		park(f);
		return;
	}
	hsrv_reply(f->req, 200);
}

static void
fetch_read(struct fetch *f)
{
	struct pgargs a;
	size_t i;

	pgargs_init(&a);
	pgargs_uuid(&a, ctx_tenant(f->req));
	pgargs_array(&a, PGARGS_TEXT);
	for (i = 0; i < f->body.n; i++)
		pgargs_item_text(&a, f->body.entries[i].queue);
	pgargs_close(&a);
	pgargs_array(&a, PGARGS_TEXT);
	for (i = 0; i < f->body.n; i++)
		pgargs_item_text(&a, f->body.entries[i].partition);
	pgargs_close(&a);
	pgargs_array(&a, PGARGS_I64);
	for (i = 0; i < f->body.n; i++)
		pgargs_item_i64(&a, f->body.entries[i].offset);
	pgargs_close(&a);
	pgargs_array(&a, PGARGS_I32);
	for (i = 0; i < f->body.n; i++)
		pgargs_item_i32(&a, f->body.entries[i].max_bytes);
	pgargs_close(&a);
	pgargs_i64(&a, FETCH_CALL_BYTES);
	pgpool_call(f->x->pool, LANE_REST, &STMT_FETCH, &a, on_read, f);
}

void
fetch_post(struct hsrv_req *r)
{
	struct fetch *f = arena_zalloc(hsrv_arena(r), sizeof(*f));
	struct err e = ERR_ZERO;

	if (fetch_body_parse(hsrv_body(r), hsrv_arena(r), &f->body, &e) != 0) {
		hsrv_reply_error(r, 400, "%s", e.text);
		return;
	}
	if (!f->body.n) {
		buf_puts(hsrv_out(r), "{\"entries\":[]}");
		hsrv_reply(r, 200);
		return;
	}
	f->req = r;
	f->x = ctx_of(r);
	f->high = arena_zalloc(hsrv_arena(r), f->body.n * sizeof(*f->high));
	f->deadline_ms = clk_mono_ms() +
			 (f->body.min_bytes > 0 ? f->body.max_wait_ms : 0);
	hsrv_set_user(r, f);
	fetch_read(f);
}

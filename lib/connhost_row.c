/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rows others read the status from.  One that cannot be written is written
 * later: no unit waits for it.
 */
#include <string.h>

#include "clk.h"
#include "connhost_int.h"
#include "pgbin.h"
#include "pgconn.h"

enum {
	PUT_MIN_MS = 1000,
	PUT_MAX_MS = 10000,
	COALESCE_MS = 10,
	QUIET_MS = 60000,
};

static const struct pgstmt STMT_PUT = { "connector_status_put",
	"select queen.connector_status_put_v1($1, $2, $3, $4, $5, $6)" };
static const struct pgstmt STMT_DROP = { "connector_status_drop",
	"select queen.connector_status_drop_v1($1, $2, $3)" };

void
connhost_row_touch(struct unit *u)
{
	struct connhost *h = u->host;
	int64_t now_ms = clk_mono_ms(), due_ms = h->flushed_ms + PUT_MIN_MS;

	u->dirty = true;
	if (loop_timer_pending(&h->flush))
		return;
	loop_timer_start(&h->flush,
		due_ms > now_ms + COALESCE_MS ? due_ms - now_ms : COALESCE_MS);
}

void
connhost_row_drop(struct unit *u)
{
	buf_put_span(&u->host->drops, buf_span(&u->key));
	buf_putc(&u->host->drops, '\n');
	connhost_row_touch(u);
}

/* What could not be written stays due. */
static void
failed(struct connhost *h, const struct err *e)
{
	uint64_t suppressed;
	struct unit *u;

	h->put_failures++;
	TAILQ_FOREACH (u, &h->list, link)
		u->dirty |= u->put_ms == h->flushed_ms;
	h->bad_put.every_ms = QUIET_MS;
	if (log_sample(&h->bad_put, clk_mono_ms(), &suppressed))
		log_line(LOG_WARN, "connectors", "status cannot be written",
			"error=%s suppressed=%llu", log_quote(e->text),
			(unsigned long long)suppressed);
}

static void
on_put(void *arg, const PGresult *res, const struct err *e)
{
	struct connhost *h = arg;

	(void)res;
	h->putting = false;
	if (e)
		failed(h, e);
	if (!h->stopping || h->children > 0)
		return;
	h->flushed_ms = 0;
	connhost_row_flush(h);
	if (!h->putting)
		loop_stop(h->loop);
}

/* One of the arrays of a call, over the units that are due. */
static void
put_array(struct connhost *h, struct pgargs *a, enum pgargs_type type,
	void (*item)(struct pgargs *a, struct unit *u, struct buf *room))
{
	struct buf room = BUF_ZERO;
	struct unit *u;

	pgargs_array(a, type);
	TAILQ_FOREACH (u, &h->list, link) {
		if (u->put_ms != h->flushed_ms)
			continue;
		buf_reset(&room);
		item(a, u, &room);
	}
	pgargs_close(a);
	buf_fini(&room);
}

static void
item_tenant(struct pgargs *a, struct unit *u, struct buf *room)
{
	(void)room;
	pgargs_item_uuid(a, &u->tenant);
}

static void
item_name(struct pgargs *a, struct unit *u, struct buf *room)
{
	(void)room;
	pgargs_item_text(a, u->name);
}

static void
item_kind(struct pgargs *a, struct unit *u, struct buf *room)
{
	(void)room;
	if (u->kind_known)
		pgargs_item_text(
			a, span_of(conndoc_kind_word(u->host->conf.kind)));
	else
		pgargs_item_null(a);
}

static void
item_status(struct pgargs *a, struct unit *u, struct buf *room)
{
	connhost_status_write(u, room);
	pgargs_item_text(a, buf_span(room));
}

static void
item_metrics(struct pgargs *a, struct unit *u, struct buf *room)
{
	connhost_status_metrics(u, room);
	pgargs_item_text(a, buf_span(room));
}

/* Those due get this flush's time as their mark. */
static bool
mark_due(struct connhost *h)
{
	struct unit *u;
	bool any = false;

	TAILQ_FOREACH (u, &h->list, link) {
		if (u->generation == 0 ||
			(!u->dirty && u->put_ms + PUT_MAX_MS > h->flushed_ms))
			continue;
		u->dirty = false;
		u->put_ms = h->flushed_ms;
		any = true;
	}
	return any;
}

static void
put_rows(struct connhost *h)
{
	struct pgargs a;

	pgargs_init(&a);
	pgargs_text(&a, span_of(h->conf.node));
	put_array(h, &a, PGARGS_UUID, item_tenant);
	put_array(h, &a, PGARGS_TEXT, item_name);
	put_array(h, &a, PGARGS_TEXT, item_kind);
	put_array(h, &a, PGARGS_TEXT, item_status);
	put_array(h, &a, PGARGS_TEXT, item_metrics);
	pgconn_call(h->conn, &STMT_PUT, false, &a, on_put, h);
	pgargs_fini(&a);
	h->putting = true;
}

/*
 * A row that is not dropped for want of the cell is nobody's: what has no
 * document is not shown.
 */
static void
drop_rows(struct connhost *h)
{
	struct span rest = buf_span(&h->drops), name;
	struct buf names = BUF_ZERO;
	struct qid tenant;
	struct pgargs a;

	pgargs_init(&a);
	pgargs_text(&a, span_of(h->conf.node));
	pgargs_array(&a, PGARGS_UUID);
	while (rest.n > 0) {
		const char *end = memchr(rest.p, '\n', rest.n);
		struct span key = span_make(rest.p, (size_t)(end - rest.p));

		BUG(!conndoc_key_parse(key, &tenant, &name));
		pgargs_item_uuid(&a, &tenant);
		buf_put_span(&names, name);
		buf_putc(&names, '\n');
		rest = span_make(end + 1, rest.n - key.n - 1);
	}
	pgargs_close(&a);
	pgargs_array(&a, PGARGS_TEXT);
	for (rest = buf_span(&names); rest.n > 0;) {
		const char *end = memchr(rest.p, '\n', rest.n);

		name = span_make(rest.p, (size_t)(end - rest.p));
		pgargs_item_text(&a, name);
		rest = span_make(end + 1, rest.n - name.n - 1);
	}
	pgargs_close(&a);
	buf_fini(&names);
	buf_reset(&h->drops);
	pgconn_call(h->conn, &STMT_DROP, false, &a, NULL, NULL);
	pgargs_fini(&a);
}

void
connhost_row_flush(void *host)
{
	struct connhost *h = host;

	if (h->putting || !h->cell_up ||
		clk_mono_ms() - h->flushed_ms < PUT_MIN_MS / 2)
		return;
	h->flushed_ms = clk_mono_ms();
	if (h->drops.len > 0)
		drop_rows(h);
	if (mark_due(h))
		put_rows(h);
}

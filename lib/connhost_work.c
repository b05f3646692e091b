/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hints and the change scan, once per parent, handed to the units that wait
 * for the queue.  A mark may be lost only when all of them are told to look
 * at everything.
 */
#include <stdlib.h>
#include <unistd.h>

#include "cellscan.h"
#include "clk.h"
#include "connhost_int.h"
#include "hint.h"
#include "pgbin.h"
#include "pgconn.h"

enum {
	UNSENT_MAX_BYTES = 1 << 20, /* to a process that does not read */
	MARKS_MAX = 65536, /* more than these in a turn are all */
};

struct watch {
	int64_t queue_id; /* first: map_is_i64 */
	struct unit_list units;
};

/* ---- who waits for what ---- */

static struct watch *
watch_of(const struct connhost *h, int64_t queue_id)
{
	return map_get(
		&h->watches, map_hash_i64(queue_id), map_is_i64, &queue_id);
}

static void
unwatch(struct unit *u)
{
	struct watch *w = u->watch;

	u->watch = NULL;
	u->mark_all = false;
	buf_reset(&u->marks);
	TAILQ_REMOVE(&w->units, u, watching);
	if (!TAILQ_EMPTY(&w->units))
		return;
	map_take(&u->host->watches, map_hash_i64(w->queue_id), map_is_i64,
		&w->queue_id);
	free(w);
}

void
connhost_work_watch(struct unit *u, int64_t queue_id)
{
	struct watch *w;

	if (u->watch)
		unwatch(u);
	if (queue_id <= 0)
		return;
	w = watch_of(u->host, queue_id);
	if (!w) {
		w = calloc(1, sizeof(*w));
		BUG(!w);
		w->queue_id = queue_id;
		TAILQ_INIT(&w->units);
		map_put(&u->host->watches, map_hash_i64(queue_id), w);
	}
	TAILQ_INSERT_TAIL(&w->units, u, watching);
	u->watch = w;
}

/* ---- marks ---- */

static void
send_marks(struct unit *u)
{
	if ((u->marks.len == 0 && !u->mark_all) ||
		connpipe_unsent_bytes(u->pipe) > UNSENT_MAX_BYTES)
		return;
	connpipe_send_parts(u->pipe, CONNPIPE_MARKS, u->watch->queue_id,
		(const int64_t *)(const void *)u->marks.p,
		u->mark_all ? 0 : u->marks.len / sizeof(int64_t));
	buf_reset(&u->marks);
	u->mark_all = false;
}

static void
send_all_marks(void *arg)
{
	struct connhost *h = arg;
	struct watch *w;
	struct unit *u;
	size_t at = 0;

	h->marks_later = false;
	while ((w = map_next(&h->watches, &at)))
		TAILQ_FOREACH (u, &w->units, watching)
			send_marks(u);
}

/* part_id 0: any may have work. */
static void
mark_unit(struct unit *u, int64_t part_id)
{
	struct connhost *h = u->host;

	if (part_id > 0 && u->marks.len < MARKS_MAX * sizeof(part_id))
		buf_put(&u->marks, &part_id, sizeof(part_id));
	else
		u->mark_all = true;
	if (!h->marks_later)
		loop_later(h->loop, send_all_marks, h);
	h->marks_later = true;
}

static void
mark(struct connhost *h, int64_t queue_id, int64_t part_id)
{
	struct watch *w = watch_of(h, queue_id);
	struct unit *u;

	if (w)
		TAILQ_FOREACH (u, &w->units, watching)
			mark_unit(u, part_id);
}

static void
mark_everything(void *arg)
{
	struct connhost *h = arg;
	struct watch *w;
	struct unit *u;
	size_t at = 0;

	while ((w = map_next(&h->watches, &at)))
		TAILQ_FOREACH (u, &w->units, watching)
			mark_unit(u, 0);
}

void
connhost_work_announce(struct unit *u, struct span body)
{
	int64_t parts[CONNPIPE_PARTS_MAX], queue_id;
	size_t n;

	if (!connpipe_read_parts(body, &queue_id, parts, &n))
		return;
	if (n == 0)
		hint_send(u->host->hint, HINT_RESYNC, 0, 0, 0);
	for (size_t i = 0; i < n; i++)
		hint_send(u->host->hint, HINT_MESSAGES, queue_id, 0, parts[i]);
}

/* ---- hints ---- */

static void
on_hint(void *arg, const struct hint_item *i)
{
	struct connhost *h = arg;

	switch (i->kind) {
	case HINT_MESSAGES:
		if (h->scan && i->part_id > 0 && watch_of(h, i->queue_id))
			cellscan_heard(h->scan, i->queue_id, i->part_id);
		mark(h, i->queue_id, i->part_id);
		break;
	case HINT_RELEASED:
	case HINT_MOVED:
		mark(h, i->queue_id, i->part_id);
		break;
	case HINT_CATALOG:
		if (i->queue_id > 0)
			mark(h, i->queue_id, 0);
		else
			mark_everything(h);
		break;
	case HINT_RESYNC:
		mark_everything(h);
		break;
	case HINT_DONE:
	case HINT_FLAGS:
	case HINT_JOBS:
	case HINT_EVENTS:
	case HINT_QUEUES:
	case HINT_KINDS:
		break;
	}
}

/* ---- the change scan ---- */

static void
scan_call(void *arg, const struct pgstmt *s, struct pgargs *args,
	pgconn_result_fn fn, void *fn_arg)
{
	struct connhost *h = arg;

	pgconn_call(h->conn, s, false, args, fn, fn_arg);
	pgargs_fini(args);
}

static bool
scan_wants(void *arg, int64_t queue_id)
{
	return watch_of(arg, queue_id) != NULL;
}

static void
scan_mark(void *arg, int64_t queue_id, int64_t part_id)
{
	mark(arg, queue_id, part_id);
}

static void
scan_moved(void *arg, int64_t queue_id, int64_t group_id, int64_t part_id)
{
	(void)group_id;
	mark(arg, queue_id, part_id);
}

/* ---- life ---- */

static void
on_second(void *arg)
{
	struct connhost *h = arg;

	loop_timer_start(&h->second, 1000);
	if (h->scan && h->watches.count > 0)
		cellscan_tick(h->scan, clk_mono_ms());
	send_all_marks(h);
	connhost_row_flush(h);
}

void
connhost_work_start(struct connhost *h)
{
	struct hint_events ev = {
		.on_hint = on_hint, .on_up = mark_everything, .arg = h
	};
	struct cellscan_face face = { .call = scan_call,
		.wants = scan_wants,
		.on_mark = scan_mark,
		.on_moved = scan_moved,
		.arg = h };
	struct buf b = BUF_ZERO;

	/* hints of queend and of the other tool on this node are not ours */
	buf_printf(&b, "%s %s %ld", h->conf.node, h->conf.tool, (long)getpid());
	buf_putc(&b, '\0');
	struct buf app = BUF_ZERO;

	buf_printf(&app, "%s listen", h->conf.tool);
	buf_putc(&app, '\0');
	h->hint = hint_new(h->loop, h->conf.conninfo, app.p, b.p, &ev);
	buf_fini(&app);
	buf_fini(&b);
	if (h->conf.kind == CONNDOC_SINK)
		h->scan = cellscan_new(&face, clk_mono_ms());
	loop_timer_init(&h->second, h->loop, on_second, h);
	on_second(h);
}

void
connhost_work_free(struct connhost *h)
{
	loop_timer_fini(&h->second);
	hint_free(h->hint);
	cellscan_free(h->scan);
	map_fini(&h->watches);
}

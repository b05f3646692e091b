/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From the rows and the bucket to an engine.  The order: whose rows
 * are these; a window begun and not committed; is the bucket ahead of the
 * cell; positions; the first read.
 */
#include "queue_int.h"

#include <string.h>

#include "cell.h"
#include "err.h"

static void read_rows(struct queue *q);

/* A queue that is held stays so while it is looked at again. */
static void
set_restoring(struct queue *q)
{
	if (!q->held_why[0])
		q->state = QUEUE_RESTORING;
}

static bool
has_redo(const struct queue *q)
{
	return q->intent_is_text && q->intent.k == q->committed.k + 1;
}

bool
queue_owns_manifest(const struct queue *q, const struct doc_manifest *m)
{
	return span_is(m->sink, q->x->conf->sink) &&
	       span_eq(m->tenant, queue_tenant_of(q)) &&
	       span_eq(m->queue, queue_name_of(q));
}

/* ---- the bucket ahead of the cell ---- */

/*
 * An intent that nobody can read may have been carried out whole: then its
 * manifest is the window.
 */
static bool
commit_unreadable(struct queue *q, struct span text)
{
	struct arena a = ARENA_ZERO;
	struct doc_manifest m;
	struct err e;
	struct doc_intent i;
	bool ours;

	ours = doc_manifest_read(text, &a, &m, &e) == 0 &&
	       m.k == q->committed.k + 1 && queue_owns_manifest(q, &m) &&
	       m.start_us >= q->committed.end_us;
	if (ours) {
		i = (struct doc_intent){ .k = m.k,
			.start_us = m.start_us,
			.end_us = m.end_us,
			.format = m.format,
			.codec = m.codec,
			.layout = m.layout };
		if (queue_window_place(q, &i))
			queue_window_found(q, &m);
	}
	arena_fini(&a);
	return ours;
}

static void
go_on(struct queue *q)
{
	if (q->engine)
		queue_pump(q);
	else
		queue_load(q);
}

static void
on_row_deleted(void *arg, const struct cell_row *r, const struct err *e)
{
	struct queue *q = arg;

	(void)r;
	(void)e; /* it is asked for again at the next start */
	q->call = NULL;
	q->resume_version = CELL_ABSENT;
	go_on(q);
}

/* A wish that nothing waited for must not come true years later. */
static void
forget_resume(struct queue *q)
{
	struct buf key = BUF_ZERO;

	key_row(&key, q->x->conf->sink, queue_name_of(q), KEY_RESUME);
	q->call = cell_delete(q->x->x->cell, &q->x->tenant, buf_span(&key),
		q->resume_version, on_row_deleted, q);
	buf_fini(&key);
}

static bool
is_manifest(struct span text)
{
	struct arena a = ARENA_ZERO;
	struct doc_manifest m;
	struct err e;
	bool is = doc_manifest_read(text, &a, &m, &e) == 0;

	arena_fini(&a);
	return is;
}

static void
on_next_manifest(struct queue *q, const struct s3_answer *a)
{
	bool unreadable = q->has_intent && !q->intent_is_text;

	if (!a->absent && unreadable && !q->engine &&
		commit_unreadable(q, a->body))
		return;
	if (!a->absent) {
		queue_hold(q,
			is_manifest(a->body)
				? "the bucket holds a later window than the "
				  "cell knows of"
				: "what lies where the next manifest would is "
				  "none");
		return;
	}
	queue_unhold(q);
	q->guarded = true;
	if (q->resume_version != CELL_ABSENT)
		forget_resume(q);
	else
		go_on(q);
}

void
queue_guard(struct queue *q)
{
	struct key_of of = { q->x->conf->prefix, queue_tenant_of(q),
		queue_name_of(q) };
	struct buf key = BUF_ZERO;

	/* after a redo, too: a drain has nothing to finish here */
	q->phase = QUEUE_START;
	set_restoring(q);
	key_manifest(&key, &of, q->committed.k + 1);
	queue_get(q, q->x->s3, buf_span(&key), QUEUE_MANIFEST_MAX,
		on_next_manifest);
	buf_fini(&key);
}

/* ---- the rows ---- */

static void
redo(struct queue *q)
{
	queue_unhold(q);
	if (queue_window_place(q, &q->intent))
		queue_window_look(q, queue_load);
}

static void
decide(struct queue *q)
{
	queue_say(q, LOG_DEBUG, "rows read", "committed_k=%lld intent_k=%lld",
		(long long)q->committed.k,
		(long long)(q->intent_is_text ? q->intent.k : 0));
	if (queue_is_foreign(q))
		queue_hold(q, "its rows were written by another cell: this one "
			      "was restored, or is new");
	else if (has_redo(q))
		redo(q);
	else
		queue_guard(q);
}

static void
take_rows(struct queue *q, const struct cell_row *rows)
{
	struct arena *a = &q->rows;

	q->intent_version = rows[0].version;
	q->committed_version = rows[1].version;
	q->resume_version = rows[2].version;
	q->has_intent = rows[0].found;
	q->intent_is_text =
		rows[0].found && doc_intent_read(rows[0].value, a, &q->intent);
	if (!rows[1].found ||
		!doc_committed_read(rows[1].value, a, &q->committed))
		q->committed = (struct doc_committed){ .end_us = STAMP_NONE };
	/* no window of ours begins before the one in front of it ended */
	if (has_redo(q) && q->intent.start_us < q->committed.end_us)
		q->intent_is_text = false;
	q->known_us = q->committed.end_us;
	q->known_k = q->committed.k ? q->committed.k : -1;
	if (rows[0].found && !q->intent_is_text)
		queue_say(q, LOG_WARN, "intent not readable", NULL);
	if (rows[1].found && !q->committed.k)
		queue_say(q, LOG_WARN, "pointer not readable", NULL);
}

static void
on_rows(void *arg, const struct cell_row *rows, size_t n, const struct err *e)
{
	struct queue *q = arg;

	q->call = NULL;
	if (e) {
		queue_again(q, QUEUE_OF_KV, e, read_rows);
		return;
	}
	BUG(n != 3);
	q->retry_ms = 0;
	take_rows(q, rows);
	decide(q);
}

static void
read_rows(struct queue *q)
{
	static const enum key_row what[] = { KEY_INTENT, KEY_COMMITTED,
		KEY_RESUME };
	struct span keys[3];
	struct buf b[3] = { BUF_ZERO, BUF_ZERO, BUF_ZERO };

	for (int i = 0; i < 3; i++) {
		key_row(&b[i], q->x->conf->sink, queue_name_of(q), what[i]);
		keys[i] = buf_span(&b[i]);
	}
	q->call = cell_get_many(
		q->x->x->cell, &q->x->tenant, keys, 3, on_rows, q);
	for (int i = 0; i < 3; i++)
		buf_fini(&b[i]);
}

void
queue_restore(struct queue *q)
{
	q->phase = QUEUE_START;
	set_restoring(q);
	if (queue_draining(q)) {
		queue_finish(q, q->stopping ? QUEUE_DRAINED : QUEUE_RELEASED);
		return;
	}
	q->guarded = q->ahead_told = false;
	arena_reset(&q->rows);
	read_rows(q);
}

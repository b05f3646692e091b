/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ours, and not going on: the bucket and the cell tell two stories, and which
 * one is to hold is for an operator to say (`queenctl s3 resume`).  Nothing is
 * written before that; what it asks for is done in one fence with the end of
 * the wish, so that it is done once.  Now and then it starts from the rows
 * again, as another process would: what was wrong may have been put right, or
 * was a gateway's answer.
 */
#include "queue_int.h"

#include <stdio.h>
#include <string.h>

#include "backoff.h"
#include "cell.h"
#include "clk.h"
#include "err.h"

static void poll_row(struct queue *q);

static bool
is_other(const struct queue *q, const char *tag)
{
	return tag[0] && strcmp(tag, q->x->x->cell_tag) != 0;
}

bool
queue_is_foreign(const struct queue *q)
{
	/* the pointer of this cell vouches for the intent behind it */
	if (q->committed.k && q->committed.cell[0])
		return is_other(q, q->committed.cell);
	return q->intent_is_text && q->intent.k == q->committed.k + 1 &&
	       is_other(q, q->intent.cell);
}

static void
say_why(struct queue *q, const char *why)
{
	if (strcmp(q->held_why, why) == 0)
		return;
	snprintf(q->held_why, sizeof(q->held_why), "%s", why);
	queue_remember(q, why);
	queue_say(q, LOG_WARN, "queue held until `queenctl s3 resume`",
		"k=%lld reason=%s", (long long)q->committed.k, log_quote(why));
}

static void
wait_more(struct queue *q, const char *why)
{
	say_why(q, why);
	queue_wait(q, QUEUE_RESUME_POLL_MS, poll_row);
}

void
queue_unhold(struct queue *q)
{
	q->held_why[0] = '\0';
	q->held_ms = 0;
}

void
queue_hold(struct queue *q, const char *why)
{
	queue_reads_cancel(q);
	queue_engine_drop(q);
	q->phase = QUEUE_START;
	q->state = QUEUE_HELD;
	q->held_ms = backoff_next_ms(
		q->held_ms, QUEUE_RESUME_POLL_MS, QUEUE_RETRY_MAX_MS);
	q->look_at_ms = loop_now_ms(queue_loop(q)) + q->held_ms;
	say_why(q, why);
	/* the wish may be there already */
	queue_turn(q, poll_row);
}

static void
resumed(struct queue *q)
{
	queue_say(q, LOG_INFO, "queue resumed", NULL);
	queue_unhold(q);
	queue_restore(q);
}

static struct key_of
keys_of(const struct queue *q)
{
	return (struct key_of){ q->x->conf->prefix, queue_tenant_of(q),
		queue_name_of(q) };
}

/* The pointer as it is now, of this cell; the wish goes with it. */
static void
fence_pointer(struct queue *q)
{
	struct buf value = BUF_ZERO;

	memcpy(q->committed.cell, q->x->x->cell_tag, sizeof(q->committed.cell));
	doc_committed_write(&value, &q->committed);
	queue_fence(q, KEY_COMMITTED, &value, &q->committed_version, KEY_RESUME,
		resumed);
}

/* ---- from the newest manifest ---- */

static void
on_newest(struct queue *q, const struct s3_answer *a)
{
	struct doc_manifest m;
	struct err e;

	if (a->absent || doc_manifest_read(a->body, &q->rows, &m, &e) < 0 ||
		m.k != q->newest_manifest || !queue_owns_manifest(q, &m)) {
		wait_more(q, "the newest manifest is not readable, or not of "
			     "this sink, tenant and queue");
		return;
	}
	q->committed = (struct doc_committed){
		.k = m.k,
		.end_us = m.end_us,
		.manifest = arena_dup(&q->rows, buf_span(&q->io.key)),
		.records = m.records,
		.bytes = m.bytes,
		.at_ms = clk_wall_us() / 1000,
	};
	/*
	 * Positions of windows that this cell does not know are offsets of a log
	 * that it does not have: they are hidden by a checkpoint of none.
	 */
	queue_checkpoint_empty(q, m.k, m.end_us, fence_pointer);
}

static void list_newest(struct queue *q, struct span after);

static void
on_manifests(struct queue *q, const struct s3_answer *a)
{
	struct key_of of = keys_of(q);
	struct buf key = BUF_ZERO;
	int64_t k;

	for (size_t i = 0; i < a->keys_n; i++)
		if (key_manifest_k(a->keys[i], &k) && k > q->newest_manifest)
			q->newest_manifest = k;
	if (a->truncated && a->keys_n) {
		list_newest(q, a->keys[a->keys_n - 1]);
		return;
	}
	if (q->newest_manifest < 1) {
		wait_more(q, "the bucket holds no manifest to go on from");
		return;
	}
	key_manifest(&key, &of, q->newest_manifest);
	queue_get(q, q->x->s3, buf_span(&key), QUEUE_MANIFEST_MAX, on_newest);
	buf_fini(&key);
}

static void
list_newest(struct queue *q, struct span after)
{
	struct key_of of = keys_of(q);
	struct buf prefix = BUF_ZERO;

	key_manifests(&prefix, &of);
	queue_list(q, buf_span(&prefix), after, false, on_manifests);
	buf_fini(&prefix);
}

/* ---- under a new prefix ---- */

/* The other cell may live on: its window is ours from the new place on. */
static void
fence_intent(struct queue *q)
{
	struct doc_intent *i = &q->intent;
	struct buf value = BUF_ZERO;

	i->prefix = span_of(q->x->conf->prefix);
	i->bucket = span_of(q->x->conf->bucket);
	memcpy(i->cell, q->x->x->cell_tag, sizeof(i->cell));
	doc_intent_write(&value, i);
	queue_fence(q, KEY_INTENT, &value, &q->intent_version,
		q->committed.k ? KEY_LEASE : KEY_RESUME,
		q->committed.k ? fence_pointer : resumed);
}

static void
on_new_place(struct queue *q, const struct s3_answer *a)
{
	if (!a->absent)
		wait_more(q, "the new prefix holds windows of this queue, too");
	else if (q->intent_is_text && q->intent.k == q->committed.k + 1)
		fence_intent(q);
	else if (q->committed.k)
		fence_pointer(q);
	else
		queue_restore(q); /* nothing is held back by any row */
}

static void
new_prefix(struct queue *q)
{
	struct key_of of = keys_of(q);
	struct buf key = BUF_ZERO;

	if (!span_is(q->resume.prefix, q->x->conf->prefix)) {
		wait_more(q, "the prefix to resume under is not the one that "
			     "is configured");
		return;
	}
	key_manifest(&key, &of, q->committed.k + 1);
	queue_get(
		q, q->x->s3, buf_span(&key), QUEUE_MANIFEST_MAX, on_new_place);
	buf_fini(&key);
}

/* ---- the wish ---- */

static void
on_row(void *arg, const struct cell_row *r, const struct err *e)
{
	struct queue *q = arg;

	q->call = NULL;
	if (e) {
		queue_again(q, QUEUE_OF_KV, e, poll_row);
		return;
	}
	q->retry_ms = 0;
	if (!r->found) {
		if (loop_now_ms(queue_loop(q)) >= q->look_at_ms)
			queue_restore(q);
		else
			queue_wait(q, QUEUE_RESUME_POLL_MS, poll_row);
		return;
	}
	arena_reset(&q->wish);
	if (!doc_resume_read(r->value, &q->wish, &q->resume)) {
		wait_more(q, "what was asked of it is not readable");
		return;
	}
	if (!q->resume.newest) {
		new_prefix(q);
		return;
	}
	q->newest_manifest = 0;
	list_newest(q, (struct span)SPAN_ZERO);
}

static void
poll_row(struct queue *q)
{
	struct buf key = BUF_ZERO;

	key_row(&key, q->x->conf->sink, queue_name_of(q), KEY_RESUME);
	q->call = cell_get(
		q->x->x->cell, &q->x->tenant, buf_span(&key), on_row, q);
	buf_fini(&key);
}

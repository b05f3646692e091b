/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Replay of a dead letter: read the row, find or make the destination, encode
 * the frame anew under its new id, and move it in one call.  What the row
 * says is read before, but only the move decides whether it is still there.
 */
#include "replay.h"

#include <stdlib.h>
#include <string.h>

#include "announce.h"
#include "arena.h"
#include "catalog.h"
#include "count.h"
#include "err.h"
#include "flush_int.h"
#include "frame.h"
#include "hash.h"
#include "keyring.h"
#include "pgpool.h"
#include "seal.h"
#include "seg.h"

enum { AGAIN_MAX = 3 };

static const struct pgstmt STMT_GET = { "dead_get",
	"select queue, partition, group_name, frame "
	"from queen.dead_get_v1($1, $2)" };
static const struct pgstmt STMT_MOVE = { "dead_move",
	"select verdict, base, at "
	"from queen.dead_move_v1($1, $2, $3, $4, $5, $6, $7)" };

enum verdict { MOVED, DUPLICATE, GONE, PARTITION_GONE, ENCRYPTION };

struct replay {
	struct ctx *x;
	struct qid tenant;
	struct arena arena;
	struct resolve_item to;
	struct frame frame; /* as sent, but opened */
	struct hash_id hash;
	struct replay_result result;
	int again;
	replay_fn done;
	void *arg;
};

static void
finish(struct replay *p, enum replay_outcome outcome, const char *text)
{
	static const char *const words[] = { "moved", "duplicate", "gone",
		"maintenance", "refused", "failed" };
	struct replay_result *r = &p->result;

	r->outcome = outcome;
	r->word = words[outcome];
	r->queue = p->to.queue;
	r->partition = p->to.partition;
	r->text = span_of(text);
	if (outcome != REPLAY_MOVED) {
		memset(&r->message_id, 0, sizeof(r->message_id));
		r->offset = r->at_us = -1;
	}
	p->done(p->arg, r);
	arena_fini(&p->arena);
	free(p);
}

static void
fail(struct replay *p, const struct err *e)
{
	p->result.unknown = e->kind == ERR_DB_UNKNOWN;
	finish(p, REPLAY_FAILED, e->text);
}

static void resolve(struct replay *p);
static void move(struct replay *p);

static void
on_moved(struct replay *p, const PGresult *res)
{
	struct flush_news news = { .written = true,
		.base = pgbin_i64(res, 0, 1),
		.at_us = pgbin_time(res, 0, 2) };

	p->result.offset = news.base;
	p->result.at_us = news.at_us;
	p->result.message_id = p->frame.id;
	flush_ids_learn(p->x->flush, p->to.part, &news, p->hash.b, 1);
	announce_messages(p->x, p->to.part->queue->id, p->to.part->id);
	count_push(p->x, p->to.part->queue->id, 0, 1);
	finish(p, REPLAY_MOVED, "");
}

static void
on_move(void *arg, const PGresult *res, const struct err *e)
{
	struct replay *p = arg;

	if (e) {
		count_db_error(p->x);
		if (pgpool_was_victim(e) && p->again++ < AGAIN_MAX)
			move(p);
		else
			fail(p, e);
		return;
	}
	switch (PQntuples(res) ? pgbin_i32(res, 0, 0) : GONE) {
	case MOVED:
		on_moved(p, res);
		return;
	case DUPLICATE:
		finish(p, REPLAY_DUPLICATE, "");
		return;
	case GONE:
		finish(p, REPLAY_GONE, "Message not found");
		return;
	case PARTITION_GONE:
		catalog_forget_part(p->x->catalog, p->to.part->id);
		if (p->again++ < AGAIN_MAX)
			resolve(p);
		else
			finish(p, REPLAY_FAILED,
				"the destination was deleted meanwhile");
		return;
	case ENCRYPTION:
		if (keyring_must_seal(p->x, p->to.part->queue) &&
			p->again++ < AGAIN_MAX) {
			move(p);
			return;
		}
		/* fall through */
	default:
		finish(p, REPLAY_FAILED, "encryption_required");
	}
}

static void
move(struct replay *p)
{
	struct buf frames = BUF_ZERO, blob = BUF_ZERO, room = BUF_ZERO;
	struct frame f = p->frame;
	struct pgargs a;

	if (p->to.part->queue->encrypted)
		keyring_seal(p->x, &f, &room);
	frame_write(&frames, &f);
	seg_pack(buf_span(&frames), &blob);
	pgargs_init(&a);
	pgargs_uuid(&a, &p->tenant);
	pgargs_uuid(&a, &p->result.dead_id);
	pgargs_i64(&a, p->to.part->id);
	pgargs_bytea(&a, span_make(p->hash.b, HASH_ID_BYTES));
	pgargs_i32(&a, (int32_t)frames.len);
	if (f.flags & FRAME_SEALED)
		pgargs_i16(&a, (int16_t)seal_key_id(p->x->seal));
	else
		pgargs_null(&a);
	pgargs_bytea(&a, buf_span(&blob));
	buf_fini(&frames);
	buf_fini(&blob);
	buf_fini(&room);
	pgpool_call(p->x->pool, LANE_REST, &STMT_MOVE, &a, on_move, p);
}

static void
on_resolved(void *arg, const struct err *e)
{
	struct replay *p = arg;

	if (e)
		fail(p, e);
	else if (!p->to.part)
		finish(p, REPLAY_FAILED, "the destination could not be made");
	else if (p->to.part->queue->encrypted && !keyring_seals(p->x))
		finish(p, REPLAY_FAILED, "encryption_required");
	else
		move(p);
}

static void
resolve(struct replay *p)
{
	resolve_start(p->x, &p->tenant, &p->to, 1, on_resolved, p);
}

/* Opened under its own id, before it gets a new one. */
static int
open_frame(struct replay *p, struct err *e)
{
	struct buf room = BUF_ZERO;
	int rc = keyring_open(p->x, &p->frame, &room, e);

	if (rc == 0 && p->frame.flags & FRAME_SEALED) {
		p->frame.payload = arena_dup(&p->arena, p->frame.payload);
		p->frame.flags &= ~FRAME_SEALED;
	}
	buf_fini(&room);
	return rc;
}

/* The frame to send: a new id and transaction id, the rest as it was. */
static bool
read_frame(struct replay *p, struct span stored, struct err *e)
{
	struct span rest = arena_dup(&p->arena, stored);
	char id[QID_TEXT_MAX];

	if (frame_next(&rest, &p->frame, e) != 1) {
		err_set(e, ERR_DB_DATA, "the stored frame cannot be read");
		return false;
	}
	if (open_frame(p, e) != 0)
		return false;
	p->result.original_txn = p->frame.txn;
	p->frame.id = qid_new();
	p->frame.txn = arena_printf(
		&p->arena, "dlq:%s", qid_text(&p->result.dead_id, id));
	p->result.txn = p->frame.txn;
	hash_id(p->x->hash_key, p->frame.txn, &p->hash);
	return true;
}

/*
 * Filed by the cell itself (`__timer__`): no group ever read it, and what
 * failed as a timer is for its scheduler to promise anew.
 */
static bool
is_reserved(struct span group)
{
	return group.n >= 4 && memcmp(group.p, "__", 2) == 0 &&
	       memcmp(group.p + group.n - 2, "__", 2) == 0 &&
	       !span_is(group, CTX_QUEUE_MODE);
}

static void
on_row(void *arg, const PGresult *res, const struct err *e)
{
	struct replay *p = arg;
	struct err why = ERR_ZERO;

	if (e) {
		fail(p, e);
		return;
	}
	if (PQntuples(res) == 0) {
		finish(p, REPLAY_GONE, "Message not found");
		return;
	}
	if (!p->to.queue.n)
		p->to.queue = arena_dup(&p->arena, pgbin_bytes(res, 0, 0));
	if (!p->to.partition.n)
		p->to.partition = arena_dup(&p->arena, pgbin_bytes(res, 0, 1));
	p->result.group = arena_dup(&p->arena, pgbin_bytes(res, 0, 2));
	if (is_reserved(p->result.group))
		finish(p, REPLAY_REFUSED,
			"a dead letter of a reserved group is not replayed; "
			"schedule the timer again");
	else if (pgbin_null(res, 0, 3))
		finish(p, REPLAY_FAILED,
			"the message had been removed by "
			"retention before it was dead-lettered; there is "
			"nothing to replay");
	else if (!read_frame(p, pgbin_bytes(res, 0, 3), &why))
		finish(p, REPLAY_FAILED, why.text);
	else
		resolve(p);
}

static void
begin(void *arg)
{
	struct replay *p = arg;
	struct pgargs a;

	if (p->x->push_maintenance) {
		finish(p, REPLAY_MAINTENANCE, "push maintenance is on");
		return;
	}
	pgargs_init(&a);
	pgargs_uuid(&a, &p->tenant);
	pgargs_uuid(&a, &p->result.dead_id);
	pgpool_call(p->x->pool, LANE_REST, &STMT_GET, &a, on_row, p);
}

void
replay_start(struct ctx *x, const struct qid *tenant, const struct qid *dead_id,
	struct span queue, struct span partition, replay_fn done, void *arg)
{
	struct replay *p = calloc(1, sizeof(*p));

	if (!p)
		abort();
	p->x = x;
	p->tenant = *tenant;
	p->result.dead_id = *dead_id;
	p->to.queue = arena_dup(&p->arena, queue);
	p->to.partition = arena_dup(&p->arena, partition);
	p->done = done;
	p->arg = arg;
	loop_later(x->loop, begin, p);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Claimed messages that are sealed: opened before anything is answered, and
 * before an autoAck pop commits.  One that cannot be opened is an error that
 * names it, and no claim: a lease goes back, a cursor stays.
 */
#include <stdlib.h>
#include <string.h>

#include "announce.h"
#include "catalog.h"
#include "err.h"
#include "frame.h"
#include "hsrv.h"
#include "jwrite.h"
#include "keyring.h"
#include "pgpool.h"
#include "pop_int.h"
#include "seal.h"
#include "seg.h"

static const struct pgstmt STMT_RETURN = { "lease_return",
	"select queue_id, part, grp "
	"from queen.lease_return_v1($1, $2, $3, $4)" };
static const struct pgstmt STMT_BLOCK = { "seal_block",
	"select queen.seal_block_v1($1, $2, $3, $4, $5, $6, $7)" };

struct pop_fault {
	int64_t part_id, offset;
	int key;
	struct err why;
};

void
pop_blame(struct pop *pop, const struct pop_slice *s, int64_t offset,
	const struct err *why)
{
	struct pop_fault *f = pop->fault;

	if (f)
		return;
	f = malloc(sizeof(*f));
	if (!f)
		abort();
	*f = (struct pop_fault){ .part_id = s->part_id,
		.offset = offset,
		.key = s->key,
		.why = *why };
	if (f->why.kind == ERR_NONE)
		err_set(&f->why, ERR_DB_DATA,
			"its segment holds fewer messages than its row says");
	pop->fault = f;
	if (s->key != SEAL_NO_KEY)
		pop_blocked(pop->pops, &pop->tenant, s->group->queue->id,
			s->part_id, s->key, offset, true);
}

int
pop_open(struct pop *pop, const struct pop_slice *s, struct buf *out)
{
	struct pops *p = pop->pops;
	int64_t at = s->base + s->skip;
	struct err e = ERR_ZERO;
	struct span rest;
	struct frame f;

	buf_reset(&p->scratch);
	if (seg_unpack(s->blob, &p->scratch, &e) != 0)
		goto unread;
	rest = buf_span(&p->scratch);
	if (seg_skip(&rest, s->skip, &e) != 0)
		goto unread;
	for (int i = 0; i < s->take; i++, at++) {
		if (frame_next(&rest, &f, &e) <= 0 ||
			keyring_open(p->x, &f, &p->opened, &e) != 0)
			goto unread;
		f.flags &= (uint8_t)~FRAME_SEALED;
		frame_write(out, &f);
	}
	return 0;
unread:
	pop_blame(pop, s, at, &e);
	return -1;
}

bool
pop_has_key(const struct pops *p, int key)
{
	uint8_t ids[SEAL_KEYS_MAX];
	size_t n = seal_ids(p->x->seal, ids);

	while (n)
		if (ids[--n] == key)
			return true;
	return false;
}

/* ---- the answer ---- */

/* Names may be longer than any fixed text. */
static void
answer(struct pop *pop)
{
	const struct pop_fault *f = pop->fault;
	const struct cat_part *part =
		catalog_part_by_id(pop->pops->x->catalog, f->part_id);
	struct buf text = BUF_ZERO, *out = hsrv_out(pop->req);
	struct jwrite w;

	buf_printf(&text, "pop failed: %s", f->why.text);
	if (f->key != SEAL_NO_KEY && !strstr(f->why.text, "key id"))
		buf_printf(&text, " (key id %d)", f->key);
	buf_printf(&text, ": offset %lld of partition ", (long long)f->offset);
	if (part)
		buf_printf(&text, "\"%.*s\" of queue \"%.*s\"",
			SPAN_ARG(part->name), SPAN_ARG(part->queue->name));
	else
		buf_printf(&text, "%lld", (long long)f->part_id);
	buf_reset(out);
	jwrite_init(&w, out);
	jwrite_object(&w);
	jwrite_kv_str(&w, "error", buf_span(&text));
	jwrite_end(&w);
	buf_fini(&text);
	pop_unpark(pop);
	hsrv_reply(pop->req, 500);
	pop_finish(pop);
}

static void
on_returned(void *arg, const PGresult *res, const struct err *e)
{
	struct pop *pop = arg;

	/* without an answer the lease ends by its time */
	for (int i = 0; !e && i < PQntuples(res); i++) {
		int64_t part_id = pgbin_i64(res, i, 1);

		/*
		 * Nobody is called to the one that cannot be read: processes
		 * would hand it to one another without end.
		 */
		if (part_id != pop->fault->part_id)
			announce_released(pop->pops->x, pgbin_i64(res, i, 0),
				pgbin_i64(res, i, 2), part_id);
	}
	answer(pop);
}

void
pop_fail(struct pop *pop, const struct pop_slice *lease)
{
	struct pgargs a;

	if (!lease || pop->q.auto_ack) {
		answer(pop);
		return;
	}
	pgargs_init(&a);
	pgargs_uuid(&a, &pop->tenant);
	pgargs_i64(&a, lease->lease_at);
	pgargs_i64(&a, lease->lease_group);
	pgargs_i64(&a, pop->lease_no);
	pgpool_call(pop->pops->x->pool, LANE_ACK, &STMT_RETURN, &a, on_returned,
		pop);
}

/* ---- for the operator ---- */

/* Was it filed a moment ago?  If not, it is now. */
static bool
filed(struct pops *p, int64_t queue_id, int key)
{
	int64_t now = loop_now_ms(p->x->loop);
	struct pop_block *b, *oldest = p->blocks;

	for (b = p->blocks; b < p->blocks + p->blocks_n; b++) {
		if (b->queue_id == queue_id && b->key == key)
			break;
		if (b->filed_ms < oldest->filed_ms)
			oldest = b;
	}
	if (b < p->blocks + p->blocks_n) {
		if (now - b->filed_ms < POP_BLOCK_FILED_MS)
			return true;
	} else if (p->blocks_n < POP_BLOCKS) {
		p->blocks_n++;
	} else {
		b = oldest;
	}
	*b = (struct pop_block){ queue_id, now, key };
	return false;
}

/* Nobody waits for it; the next one tries again. */
static void
on_filed(void *arg, const PGresult *res, const struct err *e)
{
	(void)arg;
	(void)res;
	(void)e;
}

void
pop_blocked(struct pops *p, const struct qid *tenant, int64_t queue_id,
	int64_t part_id, int key, int64_t offset, bool damaged)
{
	struct pgargs a;

	if (filed(p, queue_id, key))
		return;
	pgargs_init(&a);
	pgargs_uuid(&a, tenant);
	pgargs_i64(&a, queue_id);
	pgargs_i64(&a, part_id);
	pgargs_i32(&a, key);
	pgargs_i64(&a, offset);
	pgargs_bool(&a, damaged);
	pgargs_text(&a, span_of(p->x->instance));
	pgpool_call(p->x->pool, LANE_REST, &STMT_BLOCK, &a, on_filed, NULL);
}

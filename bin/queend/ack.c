/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ack requests: items to jobs, ids to partitions and groups, answers back in
 * the order of the request.  What cannot be resolved is answered per item; a
 * request that is JSON of the right shape never fails as a whole.
 */
#include "ack.h"

#include <string.h>

#include "ack_job.h"
#include "ack_lane.h"
#include "arena.h"
#include "body.h"
#include "catalog.h"
#include "clk.h"
#include "count.h"
#include "ctx.h"
#include "err.h"
#include "hsrv.h"
#include "jwrite.h"
#include "map.h"
#include "pgpool.h"

struct request {
	struct ctx *x;
	struct hsrv_req *req;
	struct body_ack *body;
	struct ack_item *items;
	size_t n;
	struct span group;
	struct ack_job **jobs;
	size_t jobs_n, pending;
	int64_t began_us;
	/* look-ups in hand */
	int64_t *ids;
	struct cat_queue **queues;
	struct span *names;
};

/* ---- answering ---- */

static void
write_answer(struct request *q)
{
	struct jwrite w;

	jwrite_init(&w, hsrv_out(q->req));
	jwrite_array(&w);
	for (size_t i = 0; i < q->n; i++) {
		const struct ack_item *it = &q->items[i];

		jwrite_object(&w);
		jwrite_kv_i64(&w, "index", (int64_t)i);
		jwrite_kv_str(&w, "transactionId", q->body[i].txn);
		jwrite_kv_bool(&w, "success", it->success);
		jwrite_kv_cstr(&w, "error", it->error);
		jwrite_kv_bool(&w, "leaseReleased", it->released);
		jwrite_kv_bool(&w, "dlq", it->dlq);
		jwrite_kv_bool(&w, "noop", it->noop);
		if (it->conflated >= 0)
			jwrite_kv_i64(&w, "conflated", it->conflated);
		jwrite_end(&w);
	}
	jwrite_end(&w);
}

static void
count_job(struct request *q, const struct ack_job *j)
{
	int good = 0, bad = 0;

	for (const struct ack_item *it = j->first; it; it = it->next) {
		if (it->success && it->status == BODY_COMPLETED)
			good++;
		else
			bad++;
	}
	count_ack(q->x, j->part->queue->id, 1, good, bad, j->dead >= 0,
		j->conflated > 0 ? j->conflated : 0);
}

static void
finish(struct request *q)
{
	for (size_t i = 0; i < q->jobs_n; i++)
		if (q->jobs[i]->part)
			count_job(q, q->jobs[i]);
	write_answer(q);
	count_latency(q->x, COUNT_ACK, clk_mono_us() - q->began_us);
	hsrv_reply(q->req, 200);
}

static void
on_job(struct ack_job *j)
{
	struct request *q = j->owner;

	if (--q->pending == 0)
		finish(q);
}

/* ---- looking up ---- */

static void
send_jobs(struct request *q)
{
	q->pending = 1;
	for (size_t i = 0; i < q->jobs_n; i++) {
		struct ack_job *j = q->jobs[i];

		if (j->part)
			j->group = catalog_group(
				q->x->catalog, j->part->queue, q->group);
		if (!j->part || !j->group) {
			if (!j->first->error)
				ack_job_fail(j, ack_job_no_consumer);
			continue;
		}
		j->group_id = j->group->id;
		q->pending++;
		ack_lane_add(q->x->acks, j);
	}
	if (--q->pending == 0)
		finish(q);
}

/* A failed look-up is no verdict about the items: they say so. */
static void
fail_open_jobs(struct request *q, const struct err *e, bool groups)
{
	const char *text = pgpool_had_none(e) ? ack_job_pool : ack_job_failed;

	for (size_t i = 0; i < q->jobs_n; i++) {
		struct ack_job *j = q->jobs[i];

		if (!j->part || (groups && !catalog_group(q->x->catalog,
						   j->part->queue, q->group)))
			ack_job_fail(j, text);
	}
}

static void
on_groups(void *arg, const struct err *e)
{
	struct request *q = arg;

	if (e)
		fail_open_jobs(q, e, true);
	send_jobs(q);
}

static void
find_groups(struct request *q)
{
	size_t n = 0;

	for (size_t i = 0; i < q->jobs_n; i++) {
		struct cat_part *p = q->jobs[i]->part;
		size_t k = 0;

		if (!p || catalog_group(q->x->catalog, p->queue, q->group))
			continue;
		while (k < n && q->queues[k] != p->queue)
			k++;
		if (k < n)
			continue;
		q->queues[n] = p->queue;
		q->names[n++] = q->group;
	}
	if (n)
		catalog_load_groups(
			q->x->catalog, q->queues, q->names, n, on_groups, q);
	else
		send_jobs(q);
}

/* How many jobs still have no partition; fills ids with them. */
static size_t
find_parts(struct request *q)
{
	const struct qid *tenant = ctx_tenant(q->req);
	size_t n = 0;

	for (size_t i = 0; i < q->jobs_n; i++) {
		struct ack_job *j = q->jobs[i];

		j->part = catalog_part_of(q->x->catalog, tenant, j->part_id);
		if (!j->part)
			q->ids[n++] = j->part_id;
	}
	return n;
}

static void
on_parts(void *arg, const struct err *e)
{
	struct request *q = arg;

	find_parts(q);
	if (e)
		fail_open_jobs(q, e, false);
	find_groups(q);
}

/* ---- jobs ---- */

static bool
is_job(const void *item, const void *key)
{
	const struct ack_job *a = item, *b = key;

	return a->part_id == b->part_id && a->leased == b->leased &&
	       memcmp(&a->lease, &b->lease, sizeof(a->lease)) == 0;
}

/* Reads the ids of an item; false when it is answered already. */
static bool
parse_item(struct request *q, const struct body_ack *b, struct ack_item *it,
	struct ack_job *want)
{
	struct qid id;

	*it = (struct ack_item){
		.status = b->status, .text = b->error, .conflated = -1
	};
	hash_id(q->x->hash_key, b->txn, &it->hash);
	if (!qid_parse(b->partition_id, &id) ||
		!qid_is_entity(
			&id, QID_PARTITION, q->x->cell_tag, &want->part_id)) {
		it->error = "invalid partitionId";
		return false;
	}
	want->leased = b->lease_id.n > 0;
	if (want->leased && (!qid_parse(b->lease_id, &id) ||
				    !qid_is_lease(&id, &want->lease))) {
		it->error = ack_job_bad_lease;
		return false;
	}
	return true;
}

static void
make_jobs(struct request *q)
{
	struct arena *a = hsrv_arena(q->req);
	struct map jobs = MAP_ZERO;
	struct ack_job *last = NULL;

	for (size_t i = 0; i < q->n; i++) {
		struct ack_job want;

		memset(&want, 0, sizeof(want)); /* padding is compared */
		if (!parse_item(q, &q->body[i], &q->items[i], &want))
			continue;
		uint64_t h =
			map_hash_i64(want.part_id ^
				     (int64_t)map_hash_i64(want.lease.number));

		if (!last || !is_job(last, &want))
			last = map_get(&jobs, h, is_job, &want);
		if (!last) {
			last = arena_alloc(a, sizeof(*last));
			ack_job_init(last, a);
			last->part_id = want.part_id;
			last->leased = want.leased;
			memcpy(&last->lease, &want.lease, sizeof(want.lease));
			last->done = on_job;
			last->owner = q;
			map_put(&jobs, h, last);
			q->jobs[q->jobs_n++] = last;
		}
		ack_job_add(last, &q->items[i]);
	}
	map_fini(&jobs);
}

static void
start(struct request *q)
{
	struct arena *a = hsrv_arena(q->req);

	if (!q->group.n)
		q->group = SPAN_LIT(CTX_QUEUE_MODE);
	q->items = arena_alloc(a, (q->n + 1) * sizeof(*q->items));
	q->jobs = arena_alloc(a, (q->n + 1) * sizeof(struct ack_job *));
	make_jobs(q);
	q->ids = arena_alloc(a, (q->jobs_n + 1) * sizeof(*q->ids));
	q->queues =
		arena_alloc(a, (q->jobs_n + 1) * sizeof(struct cat_queue *));
	q->names = arena_alloc(a, (q->jobs_n + 1) * sizeof(*q->names));
	size_t missing = find_parts(q);

	if (missing)
		catalog_load_parts_by_id(q->x->catalog, ctx_tenant(q->req),
			q->ids, missing, on_parts, q);
	else
		find_groups(q);
}

static struct request *
begin(struct hsrv_req *r)
{
	struct request *q = arena_zalloc(hsrv_arena(r), sizeof(*q));

	q->x = ctx_of(r);
	q->req = r;
	q->began_us = clk_mono_us();
	return q;
}

void
ack_one(struct hsrv_req *r)
{
	struct request *q = begin(r);
	struct err e = ERR_ZERO;

	q->body = arena_alloc(hsrv_arena(r), sizeof(*q->body));
	q->n = 1;
	if (body_parse_ack(
		    hsrv_body(r), hsrv_arena(r), &q->group, q->body, &e) != 0)
		hsrv_reply_error(r, 400, "%s", e.text);
	else
		start(q);
}

void
ack_batch(struct hsrv_req *r)
{
	struct request *q = begin(r);
	struct err e = ERR_ZERO;

	if (body_parse_ack_batch(hsrv_body(r), hsrv_arena(r), &q->group,
		    &q->body, &q->n, &e) != 0)
		hsrv_reply_error(r, 400, "%s", e.text);
	else
		start(q);
}

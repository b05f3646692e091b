/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A transaction request: read, ids and names resolved, sent as one bundle,
 * answered with one slot per push item and per ack in the order of the
 * request.  Whatever goes wrong, nothing of it is done.
 *
 * Queues and partitions it pushes to are made before, in a commit of their
 * own: who else wants the name must not wait for a bundle.  A bundle that is
 * rolled back leaves them, empty; one that is refused before anything was sent
 * leaves none.
 */
#include "txn.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "arena.h"
#include "catalog.h"
#include "count.h"
#include "err.h"
#include "hsrv.h"
#include "jwrite.h"
#include "keyring.h"
#include "map.h"
#include "pgpool.h"
#include "txn_int.h"

/* ---- answering ---- */

static void
finish(struct txn *t, int status)
{
	free(t->suspects.at);
	hsrv_reply(t->req, status);
}

void
txn_refuse(struct txn *t, int status, const char *reason, struct span error)
{
	struct jwrite w;

	txn_rider_refund(t);
	jwrite_init(&w, hsrv_out(t->req));
	jwrite_object(&w);
	jwrite_key(&w, "transactionId");
	jwrite_qid(&w, &t->id);
	jwrite_kv_bool(&w, "success", false);
	jwrite_kv_cstr(&w, "reason", reason);
	jwrite_kv_str(&w, "error", error);
	jwrite_key(&w, "results");
	jwrite_array(&w);
	jwrite_end(&w);
	jwrite_end(&w);
	finish(t, status);
}

void
txn_reject_lost(struct txn *t, const PGresult *res)
{
	struct jwrite w;

	txn_rider_refund(t);
	txn_rider_count(t, KVLIMIT_REJECTED);
	jwrite_init(&w, hsrv_out(t->req));
	jwrite_object(&w);
	jwrite_key(&w, "transactionId");
	jwrite_qid(&w, &t->id);
	jwrite_kv_bool(&w, "success", false);
	jwrite_kv_bool(&w, "ok", false);
	jwrite_kv_cstr(&w, "reason", "kv_precondition");
	jwrite_kv_cstr(&w, "error", "kv_precondition_failed");
	txn_rider_write_lost(&w, t, res);
	jwrite_key(&w, "results");
	jwrite_array(&w);
	jwrite_end(&w);
	jwrite_end(&w);
	finish(t, 200);
}

void
txn_reject(struct txn *t, const char *reason, const char *fmt, ...)
{
	struct buf b = BUF_ZERO;
	va_list ap;

	va_start(ap, fmt);
	buf_vprintf(&b, fmt, ap);
	va_end(ap);
	txn_refuse(t, 200, reason, buf_span(&b));
	buf_fini(&b);
}

static void
write_ack(struct jwrite *w, const struct txn_ack *k)
{
	jwrite_kv_cstr(w, "type", "ack");
	jwrite_kv_bool(w, "success", k->item.success);
	jwrite_kv_str(w, "transactionId", k->body->txn);
	jwrite_kv_cstr(w, "error", k->item.error);
	jwrite_kv_bool(w, "dlq", k->item.dlq);
	if (k->item.noop)
		jwrite_kv_bool(w, "noop", true);
}

static void
write_push(struct jwrite *w, const struct txn_push *p)
{
	jwrite_kv_cstr(w, "type", "push");
	jwrite_kv_bool(w, "success", true);
	jwrite_kv_str(w, "transactionId", p->txn);
	jwrite_key(w, "messageId");
	jwrite_qid(w, p->leader ? &p->leader->id : &p->id);
	jwrite_kv_str(w, "queueName", p->body->queue);
	if (p->leader)
		jwrite_kv_bool(w, "duplicate", true);
}

static void
write_results(struct jwrite *w, const struct txn *t, const PGresult *res)
{
	const struct txn_ack *k = t->acks;
	const struct txn_push *p = t->pushes;
	int64_t index = 0;

	for (size_t i = 0; i < t->body.ops_n; i++) {
		const struct body_op *op = &t->body.ops[i];

		for (size_t n = op->is_push ? op->n : 1; n > 0; n--) {
			jwrite_object(w);
			jwrite_kv_i64(w, "index", index++);
			if (op->is_push)
				write_push(w, p++);
			else
				write_ack(w, k++);
			jwrite_end(w);
		}
	}
	txn_rider_write(w, t, index, res);
}

static void
count_all(const struct txn *t)
{
	for (size_t i = 0; i < t->segs_n; i++) {
		int64_t queue = t->segs[i].part->queue->id;

		count_push(t->x, queue, 0, (int)t->segs[i].n);
		if (i == 0)
			count_transaction(t->x, queue);
	}
	for (size_t i = 0; i < t->jobs_n; i++) {
		const struct ack_job *j = t->jobs[i];

		count_ack(t->x, j->part->queue->id, 0, (int)j->n, 0,
			j->dead >= 0, j->conflated > 0 ? j->conflated : 0);
		if (i == 0 && t->segs_n == 0)
			count_transaction(t->x, j->part->queue->id);
	}
}

void
txn_done(struct txn *t, const PGresult *res)
{
	struct jwrite w;

	count_all(t);
	txn_rider_committed(t, res);
	jwrite_init(&w, hsrv_out(t->req));
	jwrite_object(&w);
	jwrite_key(&w, "transactionId");
	jwrite_qid(&w, &t->id);
	jwrite_kv_bool(&w, "success", true);
	jwrite_key(&w, "results");
	jwrite_array(&w);
	write_results(&w, t, res);
	jwrite_end(&w);
	jwrite_end(&w);
	finish(t, 200);
}

/* ---- jobs: one per (partition, group) ---- */

static bool
is_job(const void *item, const void *key)
{
	const struct ack_job *a = item, *b = key;

	return a->part_id == b->part_id && a->group == b->group;
}

/* False after having answered. */
static bool
use_lease(struct txn *t, struct ack_job *j, const struct txn_ack *k)
{
	struct qid id;
	struct qid_lease lease;

	if (!k->body->lease_id.n)
		return true;
	memset(&lease, 0, sizeof(lease));
	if (qid_parse(k->body->lease_id, &id) && qid_is_lease(&id, &lease) &&
		(!j->leased || memcmp(&j->lease, &lease, sizeof(lease)) == 0)) {
		memcpy(&j->lease, &lease, sizeof(lease));
		j->leased = true;
		return true;
	}
	txn_reject(t, "ack_rejected",
		"QTXN ack failed for partition %.*s group \"%.*s\": %s; "
		"transaction rolled back",
		SPAN_ARG(k->body->partition_id), SPAN_ARG(k->group),
		ack_job_bad_lease);
	return false;
}

/* Groups are known: acks become jobs.  False after having answered. */
static bool
make_jobs(struct txn *t)
{
	struct map jobs = MAP_ZERO;
	bool good = true;

	t->jobs_n = 0;
	for (size_t i = 0; good && i < t->acks_n; i++) {
		struct txn_ack *k = &t->acks[i];
		struct cat_part *part = catalog_part_of(
			t->x->catalog, ctx_tenant(t->req), k->part_id);
		struct ack_job want = { .part_id = k->part_id,
			.group = part ? catalog_group(t->x->catalog,
						part->queue, k->group)
				      : NULL };

		if (!want.group) {
			txn_reject(t, "ack_rejected",
				"QTXN ack failed for partition %.*s group "
				"\"%.*s\": %s; transaction rolled back",
				SPAN_ARG(k->body->partition_id),
				SPAN_ARG(k->group),
				part ? ack_job_no_consumer
				     : "partition not found");
			good = false;
			break;
		}
		uint64_t h =
			map_hash_i64(k->part_id) ^ map_hash_i64(want.group->id);
		struct ack_job *j = map_get(&jobs, h, is_job, &want);

		if (!j) {
			j = arena_alloc(t->arena, sizeof(*j));
			ack_job_init(j, t->arena);
			memset(&j->lease, 0, sizeof(j->lease));
			j->part = part;
			j->part_id = k->part_id;
			j->group = want.group;
			j->group_id = want.group->id;
			map_put(&jobs, h, j);
			t->jobs[t->jobs_n++] = j;
		}
		k->job = j;
		ack_job_add(j, &k->item);
		good = use_lease(t, j, k);
	}
	map_fini(&jobs);
	if (good)
		qsort(t->jobs, t->jobs_n, sizeof(struct ack_job *),
			ack_job_cmp);
	return good;
}

/* ---- looking up ---- */

void
txn_no_pool(struct txn *t, const struct err *e)
{
	txn_rider_refund(t);
	free(t->suspects.at);
	hsrv_reply_error(t->req, 500, "%s", e->text);
}

static void
look_up_failed(struct txn *t, const struct err *e)
{
	if (pgpool_had_none(e))
		txn_no_pool(t, e);
	else
		txn_reject(
			t, "db_error", "%s; transaction rolled back", e->text);
}

static void
on_groups(void *arg, const struct err *e)
{
	struct txn *t = arg;

	if (e)
		look_up_failed(t, e);
	else if (make_jobs(t))
		txn_send(t);
}

static void
find_groups(struct txn *t)
{
	struct cat_queue **queues = arena_alloc(
		t->arena, (t->acks_n + 1) * sizeof(struct cat_queue *));
	struct span *names =
		arena_alloc(t->arena, (t->acks_n + 1) * sizeof(*names));
	size_t n = 0;

	for (size_t i = 0; i < t->acks_n; i++) {
		const struct txn_ack *k = &t->acks[i];
		struct cat_part *p = catalog_part_of(
			t->x->catalog, ctx_tenant(t->req), k->part_id);

		if (!p || catalog_group(t->x->catalog, p->queue, k->group))
			continue;
		if (n && queues[n - 1] == p->queue &&
			span_eq(names[n - 1], k->group))
			continue;
		queues[n] = p->queue;
		names[n++] = k->group;
	}
	if (n)
		catalog_load_groups(
			t->x->catalog, queues, names, n, on_groups, t);
	else
		on_groups(t, NULL);
}

static void
on_parts(void *arg, const struct err *e)
{
	struct txn *t = arg;

	if (e)
		look_up_failed(t, e);
	else
		find_groups(t);
}

static void
find_parts(struct txn *t)
{
	int64_t *ids = arena_alloc(t->arena, (t->acks_n + 1) * sizeof(*ids));
	size_t n = 0;

	for (size_t i = 0; i < t->acks_n; i++) {
		int64_t id = t->acks[i].part_id;

		if (!catalog_part_of(t->x->catalog, ctx_tenant(t->req), id) &&
			(!n || ids[n - 1] != id))
			ids[n++] = id;
	}
	if (n)
		catalog_load_parts_by_id(
			t->x->catalog, ctx_tenant(t->req), ids, n, on_parts, t);
	else
		find_groups(t);
}

static void
on_resolved(void *arg, const struct err *e)
{
	struct txn *t = arg;

	if (e) {
		look_up_failed(t, e);
		return;
	}
	for (size_t i = 0; i < t->pushes_n; i++) {
		struct cat_part *p = t->names[i].part;

		if (!p) {
			txn_reject(t, "db_error",
				"partition \"%.*s\" of queue \"%.*s\" could "
				"not be made; transaction rolled back",
				SPAN_ARG(t->names[i].partition),
				SPAN_ARG(t->names[i].queue));
			return;
		}
		if (p->queue->encrypted && !keyring_seals(t->x)) {
			txn_reject(t, "encryption_required",
				"queue \"%.*s\" takes only encrypted "
				"messages; transaction rolled back",
				SPAN_ARG(p->queue->name));
			return;
		}
		t->pushes[i].part = p;
	}
	find_parts(t);
}

void
txn_resolve(struct txn *t)
{
	if (resolve_known(t->x, ctx_tenant(t->req), t->names, t->pushes_n))
		on_resolved(t, NULL);
	else
		resolve_start(t->x, ctx_tenant(t->req), t->names, t->pushes_n,
			on_resolved, t);
}

/* ---- reading ---- */

static void
take_push(struct txn *t, const struct body_push *b)
{
	struct txn_push *p = &t->pushes[t->pushes_n];

	*p = (struct txn_push){ .body = b,
		.id = qid_new(),
		.txn = b->txn,
		.minted = b->txn.n == 0 };
	if (p->minted) {
		char *text = arena_alloc(t->arena, QID_TEXT_MAX);

		qid_text(&p->id, text);
		p->txn = span_make(text, QID_TEXT);
	}
	hash_id(t->x->hash_key, p->txn, &p->hash);
	t->names[t->pushes_n++] = (struct resolve_item){ .queue = b->queue,
		.partition = b->partition };
}

/* False after having answered. */
static bool
take_ack(struct txn *t, const struct body_ack *b)
{
	struct txn_ack *k = &t->acks[t->acks_n++];
	struct qid id;

	*k = (struct txn_ack){ .body = b,
		.group = b->group.n ? b->group : SPAN_LIT(CTX_QUEUE_MODE),
		.item = { .status = b->status,
			.text = b->error,
			.conflated = -1 } };
	hash_id(t->x->hash_key, b->txn, &k->item.hash);
	if (qid_parse(b->partition_id, &id) &&
		qid_is_entity(&id, QID_PARTITION, t->x->cell_tag, &k->part_id))
		return true;
	txn_reject(t, "ack_rejected",
		"QTXN ack failed for partition %.*s group \"%.*s\": invalid "
		"partitionId; transaction rolled back",
		b->partition_id.n > 100 ? 0 : (int)b->partition_id.n,
		b->partition_id.n ? b->partition_id.p : "", SPAN_ARG(k->group));
	return false;
}

/* An empty id is what a pop without lease gave: it asks for nothing. */
static bool
take_leases(struct txn *t)
{
	for (size_t i = 0; i < t->body.leases_n; i++) {
		struct span text = t->body.leases[i];
		struct qid id;

		if (!text.n)
			continue;
		if (!qid_parse(text, &id) ||
			!qid_is_lease(&id, &t->leases[t->leases_n])) {
			txn_reject(t, "ack_rejected",
				"QTXN required lease: %s; transaction rolled "
				"back",
				ack_job_bad_lease);
			return false;
		}
		t->body.leases[t->leases_n++] = text;
	}
	return true;
}

static void
allocate(struct txn *t)
{
	size_t pushes = 1, acks = 1;

	for (size_t i = 0; i < t->body.ops_n; i++) {
		if (t->body.ops[i].is_push)
			pushes += t->body.ops[i].n;
		else
			acks++;
	}
	t->pushes = arena_alloc(t->arena, pushes * sizeof(*t->pushes));
	t->names = arena_alloc(t->arena, pushes * sizeof(*t->names));
	t->segs = arena_alloc(t->arena, pushes * sizeof(*t->segs));
	t->acks = arena_alloc(t->arena, acks * sizeof(*t->acks));
	t->jobs = arena_alloc(t->arena, acks * sizeof(struct ack_job *));
	t->leases = arena_alloc(
		t->arena, (t->body.leases_n + 1) * sizeof(*t->leases));
}

void
txn_post(struct hsrv_req *r)
{
	struct txn *t = arena_zalloc(hsrv_arena(r), sizeof(*t));
	struct err e = ERR_ZERO;

	t->x = ctx_of(r);
	t->req = r;
	t->arena = hsrv_arena(r);
	t->id = qid_new();
	if (body_parse_txn(hsrv_body(r), t->arena, &t->body, &e) != 0) {
		txn_refuse(t, 400, "bad_request", span_of(e.text));
		return;
	}
	if (!txn_rider_read(t))
		return;
	allocate(t);
	for (size_t i = 0; i < t->body.ops_n; i++) {
		const struct body_op *op = &t->body.ops[i];

		for (size_t k = 0; op->is_push && k < op->n; k++)
			take_push(t, &op->items[k]);
		if (!op->is_push && !take_ack(t, &op->ack))
			return;
	}
	if (t->pushes_n && t->x->push_maintenance) {
		hsrv_reply_error(r, 503, "push maintenance is on");
		return;
	}
	if (!take_leases(t) || !txn_rider_admit(t))
		return;
	if (!t->pushes_n && !t->acks_n && !t->leases_n && !txn_rider_any(t))
		txn_done(t, NULL);
	else
		txn_resolve(t);
}

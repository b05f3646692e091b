/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One bundle at a time, from its units to a verdict that stands.  bundle.h
 * says what each answer means; here is who asks: names, then begin and the
 * call in one flush, then commit or rollback.  Whatever may have committed
 * unseen is settled over the other link by the pointer itself.
 *
 * What is told to the owner comes last in every function: it may free us.
 */
#include "commit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "batch.h"
#include "buf.h"
#include "bundle.h"
#include "cellkv.h"
#include "clk.h"
#include "connchild.h"
#include "connfault.h"
#include "ctx.h"
#include "err.h"
#include "loop.h"
#include "names.h"
#include "pgbin.h"
#include "pgconn.h"
#include "pointer.h"
#include "unit.h"

enum { ANSWER_MS = 60000 };

static const struct pgstmt STMT_BUNDLE = { "source_bundle",
	"select verdict, version from queen.source_bundle_v1($1, $2, $3, $4, "
	"$5, $6, $7, $8, $9, $10, $11)" };
/* Verdicts of source_bundle_v1. */
enum verdict {
	VERDICT_WRITTEN = 0,
	VERDICT_MOVED = 1,
	VERDICT_GONE = 2,
	VERDICT_UNSEALED = 4,
	VERDICT_SUSPENDED = 5
};

/* A statement under way; outlives the commit when that is freed meanwhile. */
struct flight {
	struct commit *commit;
	struct pgconn *work;
};

struct commit {
	struct ctx *x;
	struct unit_queue *queue;
	const struct bundle_limits *limits;
	struct commit_events ev;
	struct names *names;
	struct pointer pointer; /* what stays of it */
	int64_t version; /* of its row, as of the last settled bundle */
	uint64_t lsn, bundles;
	bool troubled;
	/* the bundle in flight */
	bool busy;
	struct bundle bundle;
	struct batch batch;
	struct buf doc; /* the pointer it moves to */
	int64_t next_version; /* of a bundle that is written */
	struct connfault refusal; /* why it is not taken */
	struct flight *flight;
	struct loop_timer timer;
	void (*next)(struct commit *c); /* when the timer is up */
};

static void bundle_send(struct commit *c);
static void pointer_ask(struct commit *c);

/* ---- telling ---- */

static void
fail(struct commit *c, const struct connfault *f)
{
	c->ev.on_fault(c->ev.arg, f);
}

static void
tell_trouble(struct commit *c, const struct connfault *f)
{
	c->troubled = true;
	c->ev.on_trouble(c->ev.arg, f);
}

static void
next_in(struct commit *c, int64_t ms, void (*next)(struct commit *c))
{
	c->next = next;
	loop_timer_start(&c->timer, ms);
}

static void
on_timer(void *arg)
{
	struct commit *c = arg;

	c->next(c);
}

static const struct pointer_place *
cover_of(const struct commit *c)
{
	const struct unit *u = TAILQ_FIRST(&c->queue->list);

	for (size_t i = 1; i < c->queue->in_flight; i++)
		u = TAILQ_NEXT(u, link);
	return &u->cover;
}

static void
settled(struct commit *c, int64_t version)
{
	batch_announce(&c->batch, c->x->child);
	batch_fini(&c->batch);
	c->version = version;
	c->lsn = cover_of(c)->lsn;
	c->bundles++;
	c->busy = false;
	unit_queue_settle(c->queue);
	if (c->troubled) {
		c->troubled = false;
		c->ev.on_trouble(c->ev.arg, NULL);
	}
	c->ev.on_settled(c->ev.arg);
}

/* ---- what to do next ---- */

static void
fenced(struct commit *c)
{
	struct connfault f;

	connfault_set(&f, "fenced", true,
		"another owner moved the pointer; this one starts anew");
	fail(c, &f);
}

static void
refused(struct commit *c)
{
	struct connfault f = c->refusal; /* what we own may go */

	fail(c, &f);
}

/* version: of the pointer's row, should the act be to go on. */
static void
act(struct commit *c, enum bundle_act a, int64_t version)
{
	switch (a) {
	case BUNDLE_GO_ON:
		settled(c, version);
		break;
	case BUNDLE_READ:
		next_in(c, c->bundle.wait_ms, pointer_ask);
		break;
	case BUNDLE_ENSURE:
		names_forget(c->names, c->batch.parts, c->batch.parts_n);
		/* fallthrough */
	case BUNDLE_RESEND:
		next_in(c, c->bundle.wait_ms, bundle_send);
		break;
	case BUNDLE_SEAL:
		names_reread(c->names);
		next_in(c, 0, bundle_send);
		break;
	case BUNDLE_FENCED:
		fenced(c);
		break;
	case BUNDLE_STOP:
		refused(c);
		break;
	}
}

static void
answered(struct commit *c, enum bundle_answer answer)
{
	act(c, bundle_on_answer(&c->bundle, answer, 0), c->next_version);
}

static void
refuse(struct commit *c, const char *why)
{
	connfault_set(&c->refusal, "queen_refused", false,
		"the cell refuses messages: %s; nothing is skipped", why);
	answered(c, BUNDLE_REFUSED);
}

/* Nothing of it is in, for certain. */
static void
not_done(struct commit *c, const struct err *e)
{
	struct connfault f;

	connfault_cell(&f, e);
	if (e->kind == ERR_DB_DATA || e->kind == ERR_INPUT) {
		refuse(c, e->text);
	} else if (!f.retryable) {
		fail(c, &f);
	} else {
		answered(c, BUNDLE_SLOW_DOWN);
		tell_trouble(c, &f);
	}
}

/* ---- did it happen ---- */

/* The lock of a commit under way holds the pointer's row: it is waited for. */
static void
on_pointer(void *arg, const struct cellkv_row *row, const struct err *e)
{
	struct commit *c = ((struct flight *)arg)->commit;
	struct pointer found = POINTER_ZERO;
	struct err bad = ERR_ZERO;
	struct connfault f;
	bool readable;
	int64_t version;

	free(arg);
	if (!c)
		return;
	c->flight = NULL;
	if (e) {
		connfault_cell(&f, e);
		act(c, bundle_on_no_answer(&c->bundle), 0);
		tell_trouble(c, &f);
		return;
	}
	version = row->version;
	readable = row->applied && pointer_parse(row->value, &found, &bad) == 0;
	enum bundle_act a =
		bundle_on_pointer(&c->bundle, readable ? &found : NULL, version,
			&c->pointer, c->version, cover_of(c));

	pointer_fini(&found);
	act(c, a, version);
}

static struct flight *
take_off(struct commit *c)
{
	BUG(c->flight);
	c->flight = malloc(sizeof(*c->flight));
	if (!c->flight) {
		fprintf(stderr, "out of memory: a bundle\n");
		abort();
	}
	*c->flight = (struct flight){ .commit = c, .work = c->x->work };
	return c->flight;
}

static void
pointer_ask(struct commit *c)
{
	struct cellkv_key k = { .tenant = &c->x->task->tenant,
		.ns = "queen-pg",
		.key = c->x->pointer_key };

	cellkv_settle(c->x->side, &k, on_pointer, take_off(c));
}

static void
in_doubt(struct commit *c, const struct err *e)
{
	struct connfault f;

	/* what it would answer yet is no use any more */
	if (pgconn_is_up(c->x->work))
		pgconn_reset(c->x->work);
	connfault_cell(&f, e);
	answered(c, BUNDLE_IN_DOUBT);
	tell_trouble(c, &f);
}

static void
on_committed(void *arg, const PGresult *res, const struct err *e)
{
	struct commit *c = ((struct flight *)arg)->commit;
	struct err odd = ERR_ZERO;
	PGresult *own;

	free(arg);
	if (!c)
		return;
	c->flight = NULL;
	if (!e) {
		own = pgconn_take_result(c->x->work);
		BUG(own != res);
		if (strcmp(PQcmdStatus(own), "COMMIT") != 0) {
			err_set(&odd, ERR_DB_RETRY, "it was rolled back");
			e = &odd;
		}
		PQclear(own);
	}
	if (e)
		in_doubt(c, e);
	else
		answered(c, BUNDLE_COMMITTED);
}

/* ---- the call ---- */

static void
suspended(struct commit *c)
{
	struct connfault f;

	connfault_set(&f, "queen", true,
		"pushes are suspended by push maintenance; end it with POST "
		"/api/v1/system/maintenance {\"enabled\":false}");
	answered(c, BUNDLE_SLOW_DOWN);
	tell_trouble(c, &f);
}

static void
on_verdict(struct commit *c, enum verdict v)
{
	switch (v) {
	case VERDICT_MOVED:
		answered(c, BUNDLE_PRECONDITION);
		return;
	case VERDICT_GONE:
		answered(c, BUNDLE_GONE);
		return;
	case VERDICT_UNSEALED:
		connfault_set(&c->refusal, "queen_refused", false,
			"a queue takes sealed messages only, and its flag "
			"changes while it is written to; nothing is skipped");
		answered(c, BUNDLE_UNSEALED);
		return;
	case VERDICT_SUSPENDED:
		suspended(c);
		return;
	case VERDICT_WRITTEN:
		break;
	}
	BUG(true);
}

static void
on_called(void *arg, const PGresult *res, const struct err *e)
{
	struct flight *fl = arg;
	struct commit *c = fl->commit;
	enum verdict v;

	if (!c || e) {
		/* it has begun all the same */
		pgconn_send(fl->work, "rollback", NULL, NULL, NULL);
		free(fl);
		if (!c)
			return;
		c->flight = NULL;
		not_done(c, e);
		return;
	}
	BUG(PQntuples(res) != 1);
	v = (enum verdict)pgbin_i32(res, 0, 0);
	if (v == VERDICT_WRITTEN) {
		c->next_version = pgbin_i64(res, 0, 1);
		pgconn_send(fl->work, "commit", NULL, on_committed, fl);
		return;
	}
	pgconn_send(fl->work, "rollback", NULL, NULL, NULL);
	free(fl);
	c->flight = NULL;
	on_verdict(c, v);
}

static void
call(struct commit *c)
{
	struct pgargs a;

	pgargs_init(&a);
	pgargs_uuid(&a, &c->x->task->tenant);
	pgargs_text(&a, c->x->pointer_key);
	pgargs_text(&a, buf_span(&c->doc));
	pgargs_i64(&a, c->version);
	batch_args(&a, &c->batch);
	pgconn_call(c->x->work, &STMT_BUNDLE, true, &a, on_called, take_off(c));
	pgargs_fini(&a);
}

/* ---- before the call ---- */

static void
pack(struct commit *c)
{
	if (batch_pack(&c->batch, c->x->seal, names_hash_key(c->names)))
		call(c);
	else
		next_in(c, 0, pack);
}

static void
pack_begin(struct commit *c)
{
	const struct names_part *p = batch_unsealable(&c->batch, c->x->seal);
	char why[256];

	if (!p) {
		pack(c);
		return;
	}
	snprintf(why, sizeof(why),
		"queue %.*s takes sealed messages only and there is no key: "
		"set QUEEN_ENCRYPTION_KEY to that of the cell",
		SPAN_ARG(p->queue->name));
	refuse(c, why);
}

static void
on_names(void *arg, const struct err *e)
{
	struct commit *c = arg;

	if (e)
		not_done(c, e);
	else
		pack_begin(c);
}

static void
bundle_send(struct commit *c)
{
	struct batch *b = &c->batch;

	if (b->n == 0 || names_known(c->names, b->parts, b->parts_n))
		pack_begin(c);
	else
		names_load(c->names, b->parts, b->parts_n, on_names, c);
}

static void
bundle_begin(struct commit *c)
{
	struct err e = ERR_ZERO;

	if (batch_init(&c->batch, c->queue, c->names, &e) != 0)
		refuse(c, e.text);
	else
		bundle_send(c);
}

void
commit_send(struct commit *c)
{
	BUG(c->busy);
	bundle_take(c->queue, c->limits);
	c->busy = true;
	c->bundle = (struct bundle)BUNDLE_ZERO;
	buf_reset(&c->doc);
	pointer_write(&c->doc, &c->pointer, cover_of(c), clk_wall_us());
	next_in(c, 0, bundle_begin);
}

/* ---- life ---- */

bool
commit_is_busy(const struct commit *c)
{
	return c->busy;
}

uint64_t
commit_lsn(const struct commit *c)
{
	return c->lsn;
}

uint64_t
commit_bundles(const struct commit *c)
{
	return c->bundles;
}

struct commit *
commit_new(struct ctx *x, struct unit_queue *q,
	const struct bundle_limits *limits, const struct pointer *pointer,
	int64_t version, const struct commit_events *ev)
{
	struct commit *c = calloc(1, sizeof(*c));

	if (!c) {
		fprintf(stderr, "out of memory: the commits of a source\n");
		abort();
	}
	c->x = x;
	c->queue = q;
	c->limits = limits;
	c->ev = *ev;
	c->names = names_new(x);
	pointer_copy(&c->pointer, pointer);
	c->version = version;
	c->lsn = pointer->place.lsn;
	loop_timer_init(&c->timer, x->loop, on_timer, c);
	pgconn_limit(x->work, ANSWER_MS);
	return c;
}

void
commit_free(struct commit *c)
{
	if (!c)
		return;
	if (c->flight)
		c->flight->commit = NULL;
	loop_timer_fini(&c->timer);
	batch_fini(&c->batch);
	names_free(c->names);
	pointer_fini(&c->pointer);
	buf_fini(&c->doc);
	free(c);
}

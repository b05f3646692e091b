/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Begin and the call in one flush, then commit or rollback by its verdict.
 * Whatever may have committed unseen is settled over the other link, by the
 * pointer itself.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cellkv.h"
#include "commit_int.h"
#include "connchild.h"
#include "ctx.h"
#include "err.h"
#include "pgbin.h"
#include "pgconn.h"

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
struct commit_flight {
	struct commit *commit;
	struct pgconn *work;
};

/* ---- did it happen ---- */

/* The lock of a commit under way holds the pointer's row: it is waited for. */
static void
on_pointer(void *arg, const struct cellkv_row *row, const struct err *e)
{
	struct commit *c = ((struct commit_flight *)arg)->commit;
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
		commit_act(c, bundle_on_no_answer(&c->bundle), 0);
		commit_trouble(c, &f);
		return;
	}
	version = row->version;
	readable = row->applied && pointer_parse(row->value, &found, &bad) == 0;
	enum bundle_act a =
		bundle_on_pointer(&c->bundle, readable ? &found : NULL, version,
			&c->pointer, c->version, commit_cover(c));

	pointer_fini(&found);
	commit_act(c, a, version);
}

static struct commit_flight *
take_off(struct commit *c)
{
	BUG(c->flight);
	c->flight = malloc(sizeof(*c->flight));
	if (!c->flight) {
		fprintf(stderr, "out of memory: a bundle\n");
		abort();
	}
	*c->flight = (struct commit_flight){ .commit = c, .work = c->x->work };
	return c->flight;
}

void
commit_ask(struct commit *c)
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
	commit_answered(c, BUNDLE_IN_DOUBT);
	commit_trouble(c, &f);
}

static void
on_committed(void *arg, const PGresult *res, const struct err *e)
{
	struct commit *c = ((struct commit_flight *)arg)->commit;
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
		commit_answered(c, BUNDLE_COMMITTED);
}

/* ---- the call ---- */

static void
suspended(struct commit *c)
{
	struct connfault f;

	connfault_set(&f, "queen", true,
		"pushes are suspended by push maintenance; end it with POST "
		"/api/v1/system/maintenance {\"enabled\":false}");
	commit_answered(c, BUNDLE_SLOW_DOWN);
	commit_trouble(c, &f);
}

static void
on_verdict(struct commit *c, enum verdict v)
{
	switch (v) {
	case VERDICT_MOVED:
		commit_answered(c, BUNDLE_PRECONDITION);
		return;
	case VERDICT_GONE:
		commit_answered(c, BUNDLE_GONE);
		return;
	case VERDICT_UNSEALED:
		connfault_set(&c->refusal, "queen_refused", false,
			"a queue takes sealed messages only, and its flag "
			"changes while it is written to; nothing is skipped");
		commit_answered(c, BUNDLE_UNSEALED);
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
	struct commit_flight *fl = arg;
	struct commit *c = fl->commit;
	enum verdict v;

	if (!c || e) {
		/* it has begun all the same */
		pgconn_send(fl->work, "rollback", NULL, NULL, NULL);
		free(fl);
		if (!c)
			return;
		c->flight = NULL;
		commit_not_done(c, e);
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

void
commit_call(struct commit *c)
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

void
commit_leave(struct commit *c)
{
	if (c->flight)
		c->flight->commit = NULL;
	c->flight = NULL;
}

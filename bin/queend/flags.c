/* SPDX-License-Identifier: Apache-2.0 */
/* Switches of the cell, mirrored in the process. */
#include "flags.h"

#include <stddef.h>
#include <stdlib.h>

#include "announce.h"
#include "ctx.h"
#include "log.h"
#include "pgconn.h"
#include "pgpool.h"

static const struct pgstmt STMT_READ = { "flags_read",
	"select key, enabled from queen.flags_read_v1()" };
static const struct pgstmt STMT_SET = { "flag_set",
	"select queen.flag_set_v1($1, $2)" };

struct flags_call {
	struct ctx *x;
	uint64_t set; /* ctx.flags_set when it was sent */
	bool early; /* sent while a change of ours was under way */
	flags_fn done;
	void *arg;
};

/* A flag by its row, its mirror, and what it is without a row. */
static const struct {
	const char *key;
	size_t at;
	bool dflt;
} flags[FLAGS] = {
	[FLAG_PUSH_MAINTENANCE] = { "maintenance_mode",
		offsetof(struct ctx, push_maintenance), false },
	[FLAG_POP_MAINTENANCE] = { "pop_maintenance_mode",
		offsetof(struct ctx, pop_maintenance), false },
	[FLAG_KV] = { "kv_enabled", offsetof(struct ctx, kv_enabled), true },
	[FLAG_TIMERS_SCHEDULE] = { "timers_schedule_enabled",
		offsetof(struct ctx, timers_schedule_enabled), true },
	[FLAG_TIMERS_FIRE] = { "timers_fire_enabled",
		offsetof(struct ctx, timers_fire_enabled), true },
};

static bool *
mirror(struct ctx *x, enum flag flag)
{
	return (bool *)((char *)x + flags[flag].at);
}

static void
set_mirror(struct ctx *x, enum flag flag, bool enabled)
{
	bool *at = mirror(x, flag);

	if (*at == enabled)
		return;
	*at = enabled;
	log_line(LOG_INFO, "system", enabled ? "switched on" : "switched off",
		"flag=%s", flags[flag].key);
}

/* Missing rows mean the default. */
static void
take_rows(struct ctx *x, const PGresult *res,
	bool (*truth)(const PGresult *, int))
{
	bool on[FLAGS];

	for (int f = 0; f < FLAGS; f++)
		on[f] = flags[f].dflt;
	for (int i = 0; i < PQntuples(res); i++) {
		/* text is the same in both formats */
		struct span key = { PQgetvalue(res, i, 0),
			(size_t)PQgetlength(res, i, 0) };

		for (int f = 0; f < FLAGS; f++)
			if (span_is(key, flags[f].key))
				on[f] = truth(res, i);
	}
	for (int f = 0; f < FLAGS; f++)
		set_mirror(x, (enum flag)f, on[f]);
}

static bool
truth_binary(const PGresult *res, int row)
{
	return pgbin_bool(res, row, 1);
}

static bool
truth_text(const PGresult *res, int row)
{
	return PQgetvalue(res, row, 1)[0] == 't';
}

int
flags_load_sync(struct ctx *x, PGconn *pg, struct err *e)
{
	PGresult *res = PQexec(pg, STMT_READ.sql);
	int rc = 0;

	/* not a change worth a line in the log */
	for (int f = 0; f < FLAGS; f++)
		*mirror(x, (enum flag)f) = flags[f].dflt;
	if (PQresultStatus(res) == PGRES_TUPLES_OK)
		take_rows(x, res, truth_text);
	else
		rc = pgconn_err(e, res, pg);
	PQclear(res);
	return rc;
}

static void
finish(struct flags_call *c, const struct err *e)
{
	if (c->done)
		c->done(c->arg, e);
	free(c);
}

static void
on_read(void *arg, const PGresult *res, const struct err *e)
{
	struct flags_call *c = arg;

	/* what was read before our own change must not undo it */
	if (!e && !c->early && c->set == c->x->flags_set)
		take_rows(c->x, res, truth_binary);
	finish(c, e);
}

static void
on_set(void *arg, const PGresult *res, const struct err *e)
{
	struct flags_call *c = arg;

	(void)res;
	c->x->flags_set++;
	c->x->flags_setting--;
	if (!e)
		announce_flags(c->x);
	finish(c, e);
}

static struct flags_call *
call_new(struct ctx *x, flags_fn done, void *arg)
{
	struct flags_call *c = malloc(sizeof(*c));

	if (!c)
		abort();
	*c = (struct flags_call){ .x = x,
		.set = x->flags_set,
		.early = x->flags_setting > 0,
		.done = done,
		.arg = arg };
	return c;
}

void
flags_refresh(struct ctx *x, flags_fn done, void *arg)
{
	struct pgargs a;

	pgargs_init(&a);
	pgpool_call(x->pool, LANE_REST, &STMT_READ, &a, on_read,
		call_new(x, done, arg));
}

void
flags_set(struct ctx *x, enum flag flag, bool enabled, flags_fn done, void *arg)
{
	struct pgargs a;

	set_mirror(x, flag, enabled);
	x->flags_set++;
	x->flags_setting++;
	pgargs_init(&a);
	pgargs_text(&a, span_of(flags[flag].key));
	pgargs_bool(&a, enabled);
	pgpool_call(x->pool, LANE_REST, &STMT_SET, &a, on_set,
		call_new(x, done, arg));
}

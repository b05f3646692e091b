/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Maintenance switches: the process's own flag changes at once, the row makes
 * it last and the hint makes it spread.  Reading never fails: without a
 * database the answer is what this process believes.
 */
#include "system.h"

#include "admin.h"
#include "arena.h"
#include "catalog.h"
#include "ctx.h"
#include "flags.h"
#include "hsrv.h"
#include "jspan.h"
#include "jwrite.h"
#include "pgpool.h"
#include "pop.h"
#include "stats.h"

#define TEXT_PUSH_ON                                                           \
	"Maintenance mode ENABLED. All PUSHes routing to file buffer."
#define TEXT_PUSH_OFF                                                          \
	"Maintenance mode DISABLED. Background processor will drain buffer "   \
	"to DB."
#define TEXT_POP_ON                                                            \
	"Pop maintenance mode ENABLED. All POP operations will return empty "  \
	"arrays."
#define TEXT_POP_OFF "Pop maintenance mode DISABLED. Normal operation."
#define TEXT_POP_IS_ON                                                         \
	"Pop maintenance mode is ON. All POP operations return empty arrays."
#define TEXT_POP_IS_OFF "Pop maintenance mode is OFF. Normal operation."

static const struct pgstmt STMT_OVERVIEW = { "overview_refresh",
	"select status, body from queen.overview_v1($1)" };

/* The spool's numbers; there is none in this release. */
static void
write_buffer_stats(struct jwrite *w, bool healthy)
{
	jwrite_key(w, "bufferStats");
	jwrite_object(w);
	jwrite_kv_i64(w, "pendingCount", 0);
	jwrite_kv_i64(w, "failedCount", 0);
	jwrite_kv_bool(w, "dbHealthy", healthy);
	jwrite_key(w, "failedFiles");
	jwrite_object(w);
	jwrite_kv_i64(w, "count", 0);
	jwrite_kv_i64(w, "totalBytes", 0);
	jwrite_key(w, "totalMB");
	jwrite_f64(w, 0, 1);
	jwrite_kv_i64(w, "failoverCount", 0);
	jwrite_kv_i64(w, "qos0Count", 0);
	jwrite_end(w);
	jwrite_end(w);
}

static void
on_flags_read(void *arg, const struct err *e)
{
	struct hsrv_req *r = arg;
	struct ctx *x = ctx_of(r);
	struct jwrite w;

	jwrite_init(&w, hsrv_out(r));
	jwrite_object(&w);
	jwrite_kv_bool(&w, "maintenanceMode", x->push_maintenance);
	jwrite_kv_bool(&w, "popMaintenanceMode", x->pop_maintenance);
	jwrite_kv_i64(&w, "bufferedMessages", 0);
	jwrite_kv_bool(&w, "bufferHealthy", e == NULL);
	write_buffer_stats(&w, e == NULL);
	jwrite_end(&w);
	hsrv_reply(r, 200);
}

void
system_maintenance_get(struct hsrv_req *r)
{
	flags_refresh(ctx_of(r), on_flags_read, r);
}

/* Body {"enabled": bool}; replies 400 itself. */
static bool
read_enabled(struct hsrv_req *r, bool *enabled)
{
	struct jspan j;
	struct span key;
	struct jspan_val v;
	bool given = false;

	jspan_open(&j, hsrv_body(r));
	if (jspan_enter_object(&j)) {
		while (jspan_next_key(&j, hsrv_arena(r), &key)) {
			if (!jspan_take(&j, &v))
				break;
			if (!span_is(key, "enabled"))
				continue;
			given = v.type == JSPAN_BOOL;
			*enabled = v.truth;
		}
	}
	if (jspan_end(&j) && given)
		return true;
	hsrv_reply_error(r, 400, "enabled (boolean) is required");
	return false;
}

static void
on_push_set(void *arg, const struct err *e)
{
	struct hsrv_req *r = arg;
	bool on = ctx_of(r)->push_maintenance;
	struct jwrite w;

	jwrite_init(&w, hsrv_out(r));
	jwrite_object(&w);
	jwrite_kv_bool(&w, "maintenanceMode", on);
	jwrite_kv_i64(&w, "bufferedMessages", 0);
	jwrite_kv_bool(&w, "bufferHealthy", e == NULL);
	jwrite_kv_cstr(&w, "message", on ? TEXT_PUSH_ON : TEXT_PUSH_OFF);
	jwrite_end(&w);
	hsrv_reply(r, 200);
}

void
system_maintenance_post(struct hsrv_req *r)
{
	bool enabled;

	if (read_enabled(r, &enabled))
		flags_set(ctx_of(r), FLAG_PUSH_MAINTENANCE, enabled,
			on_push_set, r);
}

static void
reply_pop(struct hsrv_req *r, const char *message)
{
	struct jwrite w;

	jwrite_init(&w, hsrv_out(r));
	jwrite_object(&w);
	jwrite_kv_bool(&w, "popMaintenanceMode", ctx_of(r)->pop_maintenance);
	jwrite_kv_cstr(&w, "message", message);
	jwrite_end(&w);
	hsrv_reply(r, 200);
}

void
system_pop_get(struct hsrv_req *r)
{
	reply_pop(r,
		ctx_of(r)->pop_maintenance ? TEXT_POP_IS_ON : TEXT_POP_IS_OFF);
}

static void
on_pop_set(void *arg, const struct err *e)
{
	struct hsrv_req *r = arg;

	(void)e; /* the process obeys at once; the row follows when it can */
	reply_pop(r, ctx_of(r)->pop_maintenance ? TEXT_POP_ON : TEXT_POP_OFF);
}

void
system_pop_post(struct hsrv_req *r)
{
	bool enabled;

	if (read_enabled(r, &enabled))
		flags_set(ctx_of(r), FLAG_POP_MAINTENANCE, enabled, on_pop_set,
			r);
}

static void
reply_constant(struct hsrv_req *r, const char *reason)
{
	struct ctx *x = ctx_of(r);
	struct jwrite w;

	jwrite_init(&w, hsrv_out(r));
	jwrite_object(&w);
	jwrite_kv_bool(&w, "enabled", false);
	jwrite_kv_cstr(&w, "reason", reason);
	jwrite_kv_bool(&w, "maintenance_mode", x->push_maintenance);
	jwrite_kv_bool(&w, "pop_maintenance_mode", x->pop_maintenance);
	jwrite_end(&w);
	hsrv_reply(r, 200);
}

void
system_shared_state(struct hsrv_req *r)
{
	reply_constant(r, "single_node_segments_broker");
}

/* Instances meet in the database, so there are never any peers to show. */
void
system_peers(struct hsrv_req *r)
{
	reply_constant(r, "no_peers");
}

/* Something wrote through SQL: wake what waits on the queue. */
void
system_notify(struct hsrv_req *r)
{
	struct ctx *x = ctx_of(r);
	struct span key, name = SPAN_ZERO;
	struct jspan_val v;
	struct jspan j;
	struct jwrite w;

	jspan_open(&j, hsrv_body(r));
	if (jspan_enter_object(&j)) {
		while (jspan_next_key(&j, hsrv_arena(r), &key)) {
			if (!jspan_take(&j, &v))
				break;
			if (span_is(key, "queue") && v.type == JSPAN_STRING &&
				!jspan_text(&v, hsrv_arena(r), &name))
				jspan_fail(&j, "a lone surrogate");
		}
	}
	if (!jspan_end(&j) || name.n == 0) {
		hsrv_reply_error(r, 400, "queue is required");
		return;
	}
	struct cat_queue *q = catalog_queue(x->catalog, ctx_tenant(r), name);

	if (q)
		pops_wake_queue(x->pops, q->id);
	jwrite_init(&w, hsrv_out(r));
	jwrite_object(&w);
	jwrite_kv_cstr(&w, "status", "ok");
	jwrite_end(&w);
	hsrv_reply(r, 200);
}

/* What was cached is dropped; the summary is computed at once. */
void
system_stats_refresh(struct hsrv_req *r)
{
	struct pgargs a;

	stats_forget(ctx_of(r));
	admin_args(r, &a);
	stats_pass(r, STATS_SUMMARY, &STMT_OVERVIEW, &a, "refresh");
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The switches of kv and timers.  The process obeys at once; `mirrored` says
 * whether the rows followed, so that the other processes will too.
 */
#include "system.h"

#include "arena.h"
#include "ctx.h"
#include "flags.h"
#include "hsrv.h"
#include "jspan.h"
#include "jwrite.h"
#include "kvlimit.h"

static const struct {
	const char *name;
	enum flag flag;
} switches[] = {
	{ "kv", FLAG_KV },
	{ "timersSchedule", FLAG_TIMERS_SCHEDULE },
	{ "timersFire", FLAG_TIMERS_FIRE },
};

enum { SWITCHES = sizeof(switches) / sizeof(switches[0]) };

struct change {
	struct hsrv_req *r;
	bool given[SWITCHES], on[SWITCHES];
	int waiting;
	bool mirrored;
};

static void
write_state(struct jwrite *w, struct ctx *x)
{
	struct kvlimit_stats s;

	kvlimit_stats(x->kvlimit, &s);
	jwrite_kv_bool(w, "kvEnabled", x->kv_enabled);
	jwrite_kv_bool(w, "timersScheduleEnabled", x->timers_schedule_enabled);
	jwrite_kv_bool(w, "timersFireEnabled", x->timers_fire_enabled);
	jwrite_kv_i64(w, "quotaTenants", s.tenants);
	if (s.age_ms < 0)
		jwrite_kv_null(w, "quotaAgeMs");
	else
		jwrite_kv_i64(w, "quotaAgeMs", s.age_ms);
	jwrite_kv_bool(w, "quotaHot", s.hot);
}

static void
on_read(void *arg, const struct err *e)
{
	struct hsrv_req *r = arg;
	struct jwrite w;

	(void)e; /* without a database: what this process believes */
	jwrite_init(&w, hsrv_out(r));
	jwrite_object(&w);
	write_state(&w, ctx_of(r));
	jwrite_end(&w);
	hsrv_reply(r, 200);
}

void
system_kv_timers_get(struct hsrv_req *r)
{
	flags_refresh(ctx_of(r), on_read, r);
}

/* False when a switch is no boolean, or none is named. */
static bool
read_change(struct hsrv_req *r, struct change *c)
{
	struct jspan j;
	struct span key;
	struct jspan_val v;
	bool good = true;

	jspan_open(&j, hsrv_body(r));
	if (jspan_enter_object(&j)) {
		while (jspan_next_key(&j, hsrv_arena(r), &key)) {
			if (!jspan_take(&j, &v))
				break;
			for (int i = 0; i < SWITCHES; i++) {
				if (!span_is(key, switches[i].name))
					continue;
				good = good && v.type == JSPAN_BOOL;
				c->given[i] = true;
				c->on[i] = v.truth;
			}
		}
	}
	return jspan_end(&j) && good &&
	       (c->given[0] || c->given[1] || c->given[2]);
}

static void
on_set(void *arg, const struct err *e)
{
	struct change *c = arg;
	struct jwrite w;

	if (e)
		c->mirrored = false;
	if (--c->waiting > 0)
		return;
	jwrite_init(&w, hsrv_out(c->r));
	jwrite_object(&w);
	write_state(&w, ctx_of(c->r));
	jwrite_kv_bool(&w, "mirrored", c->mirrored);
	jwrite_end(&w);
	hsrv_reply(c->r, 200);
}

void
system_kv_timers_post(struct hsrv_req *r)
{
	struct change *c = arena_zalloc(hsrv_arena(r), sizeof(*c));

	c->r = r;
	c->mirrored = true;
	if (!read_change(r, c)) {
		hsrv_reply_error(r, 400,
			"kv, timersSchedule or timersFire (boolean) is "
			"required");
		return;
	}
	for (int i = 0; i < SWITCHES; i++)
		c->waiting += c->given[i];
	for (int i = 0; i < SWITCHES; i++)
		if (c->given[i])
			flags_set(ctx_of(r), switches[i].flag, c->on[i], on_set,
				c);
}

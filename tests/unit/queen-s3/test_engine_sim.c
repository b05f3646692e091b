/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The window engine against a broker that does what it likes: whatever the
 * order of events and answers, each record is in one window, in its place.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "engine_sim.h"

#ifdef __SANITIZE_ADDRESS__ /* slow, and more are the same code */
enum { SEEDS = 8 };
#else
enum { SEEDS = 32 };
#endif
enum { EVENTS = 5000 };

/* What one run is like. */
struct mood {
	bool crashes, loses; /* restarts; retention and deletions */
};

static struct sim sim;
static struct {
	bool out; /* an intent is written */
	struct sim_window w;
	uint64_t changes;
	/* the newest checkpoint */
	int64_t k;
	int n;
	struct {
		char name[40];
		int64_t offset, part;
	} pos[SIM_PARTS];
} durable;

/* ---- what the broker does ---- */

static struct sim_part *
some_part(struct sim *s)
{
	struct sim_part *p = &s->parts[sim_below(s, s->parts_n)];

	return p->gone ? NULL : p;
}

static void
writes(struct sim *s)
{
	struct sim_part *p = some_part(s);
	int64_t n = 1 + sim_below(s, 5);

	if (!p || p->locked)
		return;
	while (n-- > 0)
		sim_push(s, p, (uint32_t)sim_below(s, 2000));
}

static void
begins(struct sim *s)
{
	struct sim_tx *t = &s->tx[sim_below(s, SIM_TXS)];

	if (t->open)
		return;
	*t = (struct sim_tx){ .open = true,
		.start_us = s->now_us - sim_below(s, 20 * SECOND) };
	for (int i = 0; i < 2; i++) {
		struct sim_part *p = some_part(s);

		if (!p || p->locked)
			continue;
		p->locked = true;
		sim_write(s, p, (uint32_t)sim_below(s, 300));
		t->part[t->n++] = (int)(p - s->parts);
	}
}

static void
commits(struct sim *s, struct sim_tx *t)
{
	for (int i = 0; t->open && i < t->n; i++) {
		struct sim_part *p = &s->parts[t->part[i]];

		p->locked = false;
		sim_publish(p);
	}
	t->open = false;
}

static void
retention(struct sim *s)
{
	struct sim_part *p = some_part(s);

	if (p && p->seen > p->log_start)
		sim_trim(s, p,
			p->log_start + 1 +
				sim_below(s, p->seen - p->log_start));
}

/* The name lives on. */
static void
renews(struct sim *s)
{
	struct sim_part *p = some_part(s);

	if (!p || p->locked || s->parts_n + 1 >= SIM_PARTS)
		return;
	sim_delete(s, p);
	sim_create(s, p->name);
}

/* All of it, and made again some time later. */
static void
queue_comes_and_goes(struct sim *s)
{
	int n = s->parts_n, living = 0;

	for (int i = 0; i < n; i++)
		living += !s->parts[i].gone;
	if (n + living >= SIM_PARTS)
		return;
	if (s->missing) {
		s->missing = false;
		sim_create(s, s->parts[0].name);
		return;
	}
	s->missing = true;
	for (int i = 0; i < SIM_TXS; i++)
		commits(s, &s->tx[i]);
	for (int i = 0; i < n; i++)
		if (!s->parts[i].gone)
			sim_delete(s, &s->parts[i]);
}

static void
grows(struct sim *s)
{
	char name[24];

	if (s->missing || s->parts_n >= 60)
		return;
	snprintf(name, sizeof(name), "p-%lld", (long long)sim_below(s, 1000));
	for (int i = 0; i < s->parts_n; i++)
		if (strcmp(s->parts[i].name, name) == 0)
			return;
	sim_create(s, name);
}

static void
time_passes(struct sim *s)
{
	static const int64_t most[] = { 1000, SECOND, 10 * SECOND, MINUTE,
		20 * MINUTE };
	int64_t i = sim_below(s, 40);

	s->now_us += sim_below(s, most[i < 16 ? i / 4 : i == 39 ? 4 : 1]);
}

static void
something_happens(struct sim *s, const struct mood *m)
{
	int64_t what = sim_below(s, 100);

	if (what < 30)
		writes(s);
	else if (what < 45)
		begins(s);
	else if (what < 62)
		commits(s, &s->tx[sim_below(s, SIM_TXS)]);
	else if (what < 92)
		time_passes(s);
	else if (what < 96)
		grows(s);
	else if (m->loses && what < 99)
		retention(s);
	else if (m->loses && sim_below(s, 10))
		renews(s);
	else if (m->loses)
		queue_comes_and_goes(s);
}

/* ---- the node ---- */

static void
take_checkpoint(struct sim *s)
{
	struct span name;
	int64_t part, offset;

	if (!engine_may_checkpoint(s->e))
		return;
	durable.n = 0;
	durable.k = s->win_n;
	while (!engine_positions_ready(s->e))
		;
	while (engine_positions_next(s->e, &name, &part, &offset)) {
		struct span last =
			durable.n ? span_of(durable.pos[durable.n - 1].name)
				  : (struct span)SPAN_ZERO;

		if (durable.n && sim_cmp(last, name) >= 0)
			sim_fail(s, "positions are out of order");
		snprintf(durable.pos[durable.n].name, 40, "%.*s",
			SPAN_ARG(name));
		durable.pos[durable.n].part = part;
		durable.pos[durable.n++].offset = offset;
	}
	engine_positions_end(s->e);
}

static void
restart(struct sim *s, const struct mood *m)
{
	struct engine_restore r = { .committed_k = s->win_n };

	if (s->win_n)
		r.committed_us = s->win[s->win_n - 1].w.end_us;
	if (durable.out) {
		r.redo_k = durable.w.w.k;
		r.redo_start_us = durable.w.w.start_us;
		r.redo_end_us = durable.w.w.end_us;
	}
	sim_start(s, &r);
	for (int i = 0; i < durable.n; i++)
		engine_position(s->e, span_of(durable.pos[i].name),
			durable.pos[i].offset,
			!m->loses && sim_below(s, 20) == 0
				? -1
				: durable.pos[i].part);
}

/* The same as before the crash, unless the broker lost some of it since. */
static void
check_redo(struct sim *s, const struct sim_window *w)
{
	if (!w->w.redo || durable.changes != s->changes)
		return;
	if (w->hash != durable.w.hash ||
		w->w.start_us != durable.w.w.start_us ||
		w->w.end_us != durable.w.w.end_us)
		sim_fail(s, "the redo of window %lld is another",
			(long long)w->w.k);
}

/* Intent, upload, commit; a crash after any of them. */
static void
window(struct sim *s, const struct mood *m)
{
	int64_t crash = m->crashes ? sim_below(s, 12) : 99;
	bool redo = durable.out;
	struct sim_window *w = sim_open(s);

	sim_records(s, w, false);
	check_redo(s, w);
	if (!redo) {
		durable.w = *w;
		/* what is in it may be gone from the broker already */
		durable.changes = m->loses ? UINT64_MAX : s->changes;
		durable.out = true;
	}
	if (crash == 0) {
		restart(s, m);
		return;
	}
	sim_commit(s);
	durable.out = false;
	if (crash == 1)
		restart(s, m);
	else if (sim_below(s, 3) == 0)
		take_checkpoint(s);
}

/* What it lost and no window told. */
static void
ends(struct sim *s, const struct mood *m)
{
	struct sim_window none = { .lost = 0 };

	sim_lost(s, &none);
	restart(s, m);
}

static void
node(struct sim *s, const struct mood *m)
{
	if (s->call_n && sim_below(s, 2)) {
		int at = (int)sim_below(s, s->call_n);

		if (s->call[at]->stage < 2)
			sim_work(s, s->call[at]);
		else
			sim_deliver(s, at, sim_below(s, 25) == 0);
		return;
	}
	switch (sim_step(s)) {
	case ENGINE_CLOSE:
		/* answers may come in between */
		if (sim_below(s, 3) == 0)
			window(s, m);
		break;
	case ENGINE_IDLE:
		engine_woken(s->e);
		break;
	case ENGINE_MISSING:
		ends(s, m);
		break;
	default:
		break;
	}
	if (sim_below(s, 200) == 0)
		engine_force(s->e);
	if (m->crashes && sim_below(s, 400) == 0)
		restart(s, m);
}

/* ---- the end of it ---- */

/* Of the records of one name at each offset: how many are lost. */
static int due[SIM_OFFSETS], may[SIM_OFFSETS];

static void
count_lost(struct sim *s, const struct sim_part *p)
{
	for (int64_t o = 0; o < p->seen; o++) {
		const struct sim_rec *r = &p->r[o];

		if (r->shipped > 1)
			sim_fail(s, "%s %lld shipped twice", p->name,
				(long long)o);
		may[o] += r->trimmed && !r->shipped;
		if (r->shipped || r->ts_us < s->from_us)
			continue;
		if (!r->trimmed)
			sim_fail(
				s, "%s %lld is missing", p->name, (long long)o);
		/* else: before it was known where to begin, or never named */
		due[o] += p->asked >= 0 && o >= p->asked && o < p->told;
	}
}

static void
check_name(struct sim *s, const struct sim_part *first, const struct mood *m)
{
	memset(due, 0, sizeof(due));
	memset(may, 0, sizeof(may));
	for (int i = 0; i < s->parts_n; i++)
		if (strcmp(s->parts[i].name, first->name) == 0)
			count_lost(s, &s->parts[i]);
	/* what a restart never heard of, it cannot count; or it does twice */
	for (int o = 0; o < SIM_OFFSETS && !m->crashes; o++)
		if (first->lost[o] < due[o] || first->lost[o] > may[o])
			sim_fail(s, "%s %d lost %d times, of %d to %d",
				first->name, o, first->lost[o], due[o], may[o]);
}

/* Quiet at last: all there is has to come. */
static void
check_all(struct sim *s, const struct mood *m)
{
	struct engine_stats now;

	for (int i = 0; i < SIM_TXS; i++)
		commits(s, &s->tx[i]);
	for (int i = 0; i < 3; i++) {
		s->now_us += 3 * HOUR;
		while (sim_settle(s) == ENGINE_WAIT)
			while (s->call_n)
				sim_deliver(s, 0, false);
		if (s->what == ENGINE_MISSING)
			ends(s, m);
		s->missing = false;
	}
	engine_stats(s->e, &now);
	if (now.buffered_bytes != 0)
		sim_fail(s, "%lld bytes are left",
			(long long)now.buffered_bytes);
	if (now.lag_us > s->conf.safe_guard_us)
		sim_fail(s, "lag %lld", (long long)now.lag_us);
	for (int i = 0; i < s->parts_n; i++)
		if (sim_first(s, span_of(s->parts[i].name)) == &s->parts[i])
			check_name(s, &s->parts[i], m);
}

static void
configure(struct sim *s, uint64_t seed)
{
	static const enum s3_align align[] = { S3_HOUR, S3_UNALIGNED, S3_DAY };
	static const int64_t guard[] = { 0, SECOND, 5 * SECOND };

	sim_init(s, seed);
	s->page = 1 + (size_t)sim_below(s, 7);
	s->batch = 1 + (size_t)sim_below(s, 40);
	s->guard_us = guard[sim_below(s, 3)];
	s->conf.align = align[seed % 3];
	s->conf.safe_guard_us = guard[sim_below(s, 3)];
	s->conf.target_bytes = 2000 + sim_below(s, 60000);
	s->conf.max_window_us = SECOND + sim_below(s, 10 * MINUTE);
	s->conf.start = (enum s3_start)(seed / 3 % 3);
	s->conf.start_us = s->now_us + sim_below(s, 2 * MINUTE);
	s->conf.fetch_concurrency = 1 + (int)sim_below(s, 6);
	for (int i = 0; i < 12; i++)
		grows(s);
	for (int i = 0; i < 100; i++) {
		writes(s);
		s->now_us += sim_below(s, 3 * SECOND);
	}
}

static void
run(uint64_t seed, enum sim_fault fault, const struct mood *m)
{
	struct sim *s = &sim;

	memset(&durable, 0, sizeof(durable));
	configure(s, seed);
	s->fault = fault;
	if (fault) {
		s->guard_us = s->conf.safe_guard_us = 0;
		s->conf.start = S3_EARLIEST;
	}
	sim_start(s, NULL);
	for (int i = 0; i < EVENTS; i++) {
		something_happens(s, m);
		node(s, m);
		node(s, m);
	}
	while (s->call_n)
		sim_deliver(s, 0, false);
	if (sim_step(s) == ENGINE_CLOSE)
		sim_commit(s);
	check_all(s, m);
}

static uint64_t
seeds(enum sim_fault fault, struct mood m)
{
	uint64_t faults = 0;
	int64_t windows = 0;

	for (uint64_t seed = 1; seed <= SEEDS; seed++) {
		run(seed, fault, &m);
		windows += sim.win_n;
		faults += sim.faults != 0;
		if (sim.faults && fault == SIM_SOUND)
			print_error("seed %d: %s\n", (int)seed, sim.why);
		sim_fini(&sim);
	}
	/* it did do something */
	assert_true(windows > SEEDS * 10);
	return faults;
}

static void
exactly_once_in_order_and_below_safe_time(void **state)
{
	(void)state;
	assert_int_equal(seeds(SIM_SOUND, (struct mood){ .loses = false }), 0);
}

static void
the_same_through_crashes(void **state)
{
	(void)state;
	assert_int_equal(seeds(SIM_SOUND, (struct mood){ .crashes = true }), 0);
}

static void
what_retention_and_deletion_take_is_told_lost(void **state)
{
	(void)state;
	assert_int_equal(seeds(SIM_SOUND, (struct mood){ .loses = true }), 0);
}

static void
all_of_it_at_once(void **state)
{
	(void)state;
	assert_int_equal(seeds(SIM_SOUND, (struct mood){ .loses = true,
						  .crashes = true }),
		0);
}

/* The checks above would see it. */
static void
the_newest_safe_time_of_a_pass_is_noticed(void **state)
{
	(void)state;
	assert_true(seeds(SIM_SAFE_IS_NEWEST, (struct mood){ .loses = false }) >
		    SEEDS / 4);
}

static void
the_clock_instead_of_safe_time_is_noticed(void **state)
{
	(void)state;
	assert_true(seeds(SIM_SAFE_IS_CLOCK, (struct mood){ .loses = false }) >
		    SEEDS / 4);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(exactly_once_in_order_and_below_safe_time),
		cmocka_unit_test(the_same_through_crashes),
		cmocka_unit_test(what_retention_and_deletion_take_is_told_lost),
		cmocka_unit_test(all_of_it_at_once),
		cmocka_unit_test(the_newest_safe_time_of_a_pass_is_noticed),
		cmocka_unit_test(the_clock_instead_of_safe_time_is_noticed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

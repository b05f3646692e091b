/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A broker that the window engine can be run against: writers that hold
 * transactions open, so that a stamp is given before it is seen; retention;
 * partitions deleted and made again; and a lake that counts what was shipped.
 */
#ifndef QUEEN_S3_ENGINE_SIM_H
#define QUEEN_S3_ENGINE_SIM_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine.h"

#define SECOND INT64_C(1000000)
#define MINUTE (60 * SECOND)
#define HOUR (60 * MINUTE)
/* An hour on the clock: 2026-01-01T00:00:00Z. */
#define DAWN INT64_C(1767225600000000)

enum { SIM_OFFSETS = 4096, SIM_PARTS = 512, SIM_CALLS = 600, SIM_TXS = 8, SIM_WINDOWS = 4096 };

struct sim_rec {
	int64_t ts_us;
	uint32_t len;
	uint8_t shipped, trimmed;
};
struct sim_part {
	int64_t id;
	char name[40];
	struct sim_rec *r;
	int64_t n, cap;
	int64_t seen; /* committed; the rest is in an open transaction */
	int64_t log_start, last_write_us;
	bool gone, locked;
	int64_t sealed; /* the record that cannot be opened; -1 */
	int64_t asked; /* the first offset that was read; -1: none */
	int64_t told; /* the newest head that was answered */
	/* of all partitions of this name, in the first of them */
	uint8_t lost[SIM_OFFSETS];
};
struct sim_tx {
	bool open;
	int64_t start_us;
	int part[2], n;
};
struct sim_call {
	struct engine_step s;
	int64_t part[ENGINE_ENTRIES], offset[ENGINE_ENTRIES];
	int stage;
	/* the answer */
	int64_t safe_us;
	struct engine_found *rows;
	size_t rows_n;
	bool full, missing;
	bool late; /* nobody waits for it any more */
	struct {
		int at; /* of parts; -1: gone */
		enum engine_verdict v;
		int64_t high, log_start, from, to;
	} e[ENGINE_ENTRIES];
};
struct sim_window {
	struct engine_window w;
	uint64_t hash; /* of its records in their order */
	int64_t lost;
};
enum sim_fault { SIM_SOUND, SIM_SAFE_IS_NEWEST, SIM_SAFE_IS_CLOCK };
struct sim {
	uint64_t seed;
	/* broker */
	int64_t now_us, guard_us;
	struct sim_part parts[SIM_PARTS];
	int parts_n;
	int64_t next_id;
	bool missing; /* the queue is deleted */
	struct sim_tx tx[SIM_TXS];
	uint64_t changes; /* trims and deletions */
	int64_t told_us; /* the newest safeTime that was answered */
	enum sim_fault fault;
	/* how it is read */
	struct engine_conf conf;
	struct engine *e;
	size_t page, batch;
	struct sim_call *call[SIM_CALLS];
	int call_n;
	enum engine_what what; /* the last one */
	uint64_t pages, fetches, seeks, entries;
	int64_t peak_bytes;
	size_t most_calls, most_entries;
	int64_t since_us; /* of the last pass */
	/* lake */
	struct sim_window win[SIM_WINDOWS];
	int win_n;
	int64_t from_us; /* start of the first window */
	char why[256]; /* the first fault; empty: none */
	uint64_t faults;
};

static inline uint64_t
sim_random(struct sim *s)
{
	s->seed ^= s->seed << 13;
	s->seed ^= s->seed >> 7;
	s->seed ^= s->seed << 17;
	return s->seed;
}

static inline int64_t
sim_below(struct sim *s, int64_t n)
{
	return (int64_t)(sim_random(s) % (uint64_t)n);
}

static inline void __attribute__((format(printf, 2, 3)))
sim_fail(struct sim *s, const char *fmt, ...)
{
	va_list ap;

	if (s->faults++)
		return;
	va_start(ap, fmt);
	vsnprintf(s->why, sizeof(s->why), fmt, ap);
	va_end(ap);
}

/* ---- the broker ---- */

static inline struct sim_part *
sim_create(struct sim *s, const char *name)
{
	struct sim_part *p = &s->parts[s->parts_n++];

	if (s->parts_n > SIM_PARTS)
		abort();
	*p = (struct sim_part){ .id = ++s->next_id,
		.sealed = -1,
		.asked = -1 };
	snprintf(p->name, sizeof(p->name), "%s", name);
	p->last_write_us = s->now_us;
	return p;
}

/* Its stamp is taken now, under the lock of the partition. */
static inline void
sim_write(struct sim *s, struct sim_part *p, uint32_t len)
{
	int64_t ts = s->now_us;

	if (p->n && p->r[p->n - 1].ts_us > ts)
		ts = p->r[p->n - 1].ts_us;
	if (p->n == p->cap) {
		p->cap = p->cap * 2 + 8;
		p->r = realloc(p->r, (size_t)p->cap * sizeof(*p->r));
	}
	p->r[p->n++] = (struct sim_rec){ .ts_us = ts, .len = len };
}

static inline void
sim_publish(struct sim_part *p)
{
	if (p->seen == p->n)
		return;
	p->seen = p->n;
	/* told once a second at most */
	if (p->seen == 1 ||
		p->r[p->n - 1].ts_us >= p->last_write_us + SECOND)
		p->last_write_us = p->r[p->n - 1].ts_us;
}

static inline void
sim_push(struct sim *s, struct sim_part *p, uint32_t len)
{
	sim_write(s, p, len);
	sim_publish(p);
}

/* n records at a time of its own. */
static inline void
sim_push_at(struct sim *s, struct sim_part *p, int64_t at_us, int n)
{
	s->now_us = at_us;
	while (n-- > 0)
		sim_push(s, p, 100);
}

static inline void
sim_trim(struct sim *s, struct sim_part *p, int64_t to)
{
	for (int64_t i = p->log_start; i < to; i++)
		p->r[i].trimmed = 1;
	if (p->log_start < to)
		p->log_start = to;
	s->changes++;
}

static inline void
sim_delete(struct sim *s, struct sim_part *p)
{
	sim_trim(s, p, p->seen);
	p->n = p->seen;
	p->gone = true;
}

static inline int64_t
sim_safe(const struct sim *s)
{
	int64_t safe = s->now_us - s->guard_us;

	for (int i = 0; i < SIM_TXS; i++)
		if (s->tx[i].open && s->tx[i].start_us < safe)
			safe = s->tx[i].start_us;
	return safe;
}

static inline int
sim_find(const struct sim *s, int64_t id)
{
	for (int i = 0; i < s->parts_n; i++)
		if (s->parts[i].id == id)
			return s->parts[i].gone ? -1 : i;
	return -1;
}

/* ---- answers, as of now ---- */

static inline bool
sim_after(const struct engine_step *t, const struct sim_part *p)
{
	if (t->since_us == STAMP_NONE)
		return p->id > t->after_part;
	if (p->last_write_us < t->since_us)
		return false;
	return p->last_write_us > t->after_us ||
		(p->last_write_us == t->after_us && p->id > t->after_part);
}

static inline bool
sim_earlier(const struct engine_step *t, const struct sim_part *a,
	const struct sim_part *b)
{
	if (t->since_us != STAMP_NONE && a->last_write_us != b->last_write_us)
		return a->last_write_us < b->last_write_us;
	return a->id < b->id;
}

static inline void
sim_read_page(struct sim *s, struct sim_call *c)
{
	static const struct sim_part *of[SIM_PARTS];
	size_t n = 0;

	c->missing = s->missing;
	for (int i = 0; i < s->parts_n; i++) {
		const struct sim_part *p = &s->parts[i];
		size_t at = n;

		if (p->gone || !sim_after(&c->s, p))
			continue;
		for (; at > 0 && sim_earlier(&c->s, p, of[at - 1]); at--)
			of[at] = of[at - 1];
		of[at] = p;
		n++;
	}
	c->full = n >= s->page;
	c->rows_n = c->full ? s->page : n;
	c->rows = calloc(c->rows_n + 1, sizeof(*c->rows));
	for (size_t i = 0; i < c->rows_n; i++)
		c->rows[i] = (struct engine_found){ .part = of[i]->id,
			.name = span_of(of[i]->name),
			.last_offset = of[i]->seen - 1,
			.log_start = of[i]->log_start,
			.last_write_us = of[i]->last_write_us };
}

static inline void
sim_read_entry(struct sim *s, struct sim_call *c, size_t i)
{
	int at = sim_find(s, c->part[i]);
	const struct sim_part *p;

	c->e[i].at = at;
	if (at < 0) {
		c->e[i].v = ENGINE_GONE;
		return;
	}
	p = &s->parts[at];
	if (p->asked < 0 && c->s.what == ENGINE_FETCH)
		s->parts[at].asked = c->offset[i];
	c->e[i].high = p->seen;
	c->e[i].log_start = p->log_start;
	if (c->s.what == ENGINE_SEEK) {
		int64_t o = p->log_start;

		while (o < p->seen && p->r[o].ts_us < c->s.at_us)
			o++;
		c->e[i].from = o;
		return;
	}
	c->e[i].v = c->offset[i] >= p->log_start && c->offset[i] <= p->seen
		? ENGINE_OK
		: ENGINE_RANGE;
	c->e[i].from = c->offset[i];
	c->e[i].to = c->offset[i] + (int64_t)s->batch;
	if (c->e[i].to > p->seen)
		c->e[i].to = p->seen;
	if (c->e[i].v == ENGINE_RANGE)
		c->e[i].to = c->e[i].from;
}

static inline int64_t
sim_told_safe(struct sim *s)
{
	int64_t safe = s->fault == SIM_SAFE_IS_CLOCK ? s->now_us : sim_safe(s);

	if (safe > s->told_us)
		s->told_us = safe;
	return safe;
}

/* safeTime first, then what is read; each at its own time. */
static inline void
sim_work(struct sim *s, struct sim_call *c)
{
	c->stage++;
	if (c->s.what == ENGINE_DISCOVER) {
		if (c->stage == 1)
			c->safe_us = sim_told_safe(s);
		else
			sim_read_page(s, c);
	} else if (c->stage == 1) {
		c->stage = 2;
		for (size_t i = 0; i < c->s.n; i++)
			sim_read_entry(s, c, i);
	}
}

static inline struct record
sim_record(const struct sim_part *p, int64_t offset, char buf[64])
{
	int n = snprintf(buf, 64, "%lld/%lld", (long long)p->id,
		(long long)offset);
	static char bytes[(1 << 20) + 1];
	uint32_t len = p->r[offset].len;

	return (struct record){ .txn = span_make(buf, (size_t)n),
		.offset = offset,
		.ts_us = p->r[offset].ts_us,
		.payload = span_make(bytes, len),
		.null = len == 0 };
}

static inline void
sim_tell_entry(struct sim *s, const struct sim_call *c, size_t i)
{
	char buf[64];

	if (c->s.what == ENGINE_SEEK) {
		engine_on_seek(s->e, c->s.call, i, c->e[i].at < 0, c->e[i].from);
		return;
	}
	engine_on_entry(s->e, c->s.call, i, c->e[i].v, c->e[i].high,
		c->e[i].log_start);
	if (c->e[i].at < 0 || c->late)
		return;
	struct sim_part *p = &s->parts[c->e[i].at];

	if (p->told < c->e[i].high)
		p->told = c->e[i].high;

	for (int64_t o = c->e[i].from; o < c->e[i].to; o++) {
		struct record r = sim_record(p, o, buf);

		if (o == p->sealed) {
			engine_on_blocked(
				s->e, c->s.call, i, o, r.ts_us, 7);
			return;
		}
		engine_on_record(s->e, c->s.call, i, &r);
	}
}

static inline void
sim_drop_call(struct sim *s, int at)
{
	free(s->call[at]->rows);
	free(s->call[at]);
	s->call[at] = s->call[--s->call_n];
}

static inline void
sim_tell_page(struct sim *s, const struct sim_call *c)
{
	int64_t safe = c->safe_us;

	if (c->missing) {
		engine_on_missing(s->e, c->s.call, safe, false);
		for (int i = 0; i < s->call_n; i++)
			s->call[i]->late = true;
		return;
	}
	for (size_t i = 0; i < c->rows_n; i++)
		for (int k = 0; k < s->parts_n; k++)
			if (s->parts[k].id == c->rows[i].part &&
				s->parts[k].told <= c->rows[i].last_offset)
				s->parts[k].told = c->rows[i].last_offset + 1;
	/* the minimum is that of the last page, then */
	if (s->fault == SIM_SAFE_IS_NEWEST && c->full)
		safe = INT64_MAX;
	engine_on_page(s->e, c->s.call, safe, false, c->rows, c->rows_n,
		c->full);
}

static inline void
sim_deliver(struct sim *s, int at, bool fails)
{
	struct sim_call *c = s->call[at];
	size_t most = c->s.n;

	while (c->stage < 2)
		sim_work(s, c);
	if (c->s.what == ENGINE_DISCOVER && !fails) {
		sim_tell_page(s, c);
	} else {
		/* one that fails may have told a part of it before */
		if (fails)
			most = c->s.n ? (size_t)sim_below(s, (int64_t)c->s.n)
				      : 0;
		for (size_t i = 0; i < most; i++)
			sim_tell_entry(s, c, i);
		if (fails)
			engine_on_failed(s->e, c->s.call);
		else
			engine_on_done(s->e, c->s.call);
	}
	sim_drop_call(s, at);
}

static inline void
sim_ask(struct sim *s, const struct engine_step *t)
{
	struct sim_call *c = calloc(1, sizeof(*c));
	size_t calls = 0;

	c->s = *t;
	if (t->n) {
		memcpy(c->part, t->part, t->n * sizeof(int64_t));
		memcpy(c->offset, t->offset, t->n * sizeof(int64_t));
	}
	if (s->call_n == SIM_CALLS)
		abort();
	s->call[s->call_n++] = c;
	s->pages += t->what == ENGINE_DISCOVER;
	s->fetches += t->what == ENGINE_FETCH;
	s->seeks += t->what == ENGINE_SEEK;
	s->entries += t->what == ENGINE_FETCH ? t->n : 0;
	if (t->what == ENGINE_DISCOVER)
		s->since_us = t->since_us;
	for (int i = 0; i < s->call_n; i++)
		calls += s->call[i]->s.what == t->what;
	if (t->what != ENGINE_DISCOVER && calls > s->most_calls)
		s->most_calls = calls;
	if (t->n > s->most_entries)
		s->most_entries = t->n;
}

/* ---- the lake ---- */

static inline uint64_t
sim_mix(uint64_t h, struct span x)
{
	for (size_t i = 0; i < x.n; i++)
		h = (h ^ (unsigned char)x.p[i]) * 1099511628211u;
	return h * 31 + x.n;
}

static inline int
sim_cmp(struct span a, struct span b)
{
	size_t n = a.n < b.n ? a.n : b.n;
	int d = memcmp(a.p, b.p, n);

	return d ? d : (a.n > b.n) - (a.n < b.n);
}

/* Which record of the broker it is; NULL with a fault when it is none. */
static inline struct sim_rec *
sim_origin(struct sim *s, const struct record *r)
{
	long long id, offset;
	char buf[64];

	snprintf(buf, sizeof(buf), "%.*s", SPAN_ARG(r->txn));
	if (sscanf(buf, "%lld/%lld", &id, &offset) != 2 ||
		offset != r->offset) {
		sim_fail(s, "a record nobody wrote: %s", buf);
		return NULL;
	}
	for (int i = 0; i < s->parts_n; i++) {
		struct sim_part *p = &s->parts[i];

		if (p->id != id)
			continue;
		if (!span_is(r->partition, p->name) ||
			r->ts_us != p->r[offset].ts_us ||
			r->payload.n != p->r[offset].len ||
			r->null != (p->r[offset].len == 0))
			sim_fail(s, "record %s changed", buf);
		return &p->r[offset];
	}
	sim_fail(s, "no partition %lld", id);
	return NULL;
}

static inline void
sim_order(struct sim *s, const struct record *a, const struct record *b)
{
	int d = sim_cmp(a->partition, b->partition);

	if (d > 0 || (d == 0 && (a->ts_us > b->ts_us ||
					(a->ts_us == b->ts_us &&
						a->offset >= b->offset))))
		sim_fail(s, "%.*s %lld comes before %.*s %lld",
			SPAN_ARG(a->partition), (long long)a->offset,
			SPAN_ARG(b->partition), (long long)b->offset);
}

static inline void
sim_records(struct sim *s, struct sim_window *w, bool count)
{
	struct record r, last = { .offset = 0 };
	int64_t n = 0, min = INT64_MAX, max = INT64_MIN;

	w->hash = 1469598103934665603u;
	engine_plan_rewind(s->e);
	while (engine_plan_next(s->e, &r)) {
		struct sim_rec *o = sim_origin(s, &r);

		if (o && count)
			o->shipped++;
		if (r.ts_us >= w->w.end_us || (r.ts_us < w->w.start_us))
			sim_fail(s, "window %lld: stamp outside",
				(long long)w->w.k);
		if (n++)
			sim_order(s, &last, &r);
		last = r;
		min = r.ts_us < min ? r.ts_us : min;
		max = r.ts_us > max ? r.ts_us : max;
		w->hash = sim_mix(sim_mix(w->hash, r.partition), r.txn);
	}
	if (n != w->w.records)
		sim_fail(s, "window %lld: %lld records, %lld told",
			(long long)w->w.k, (long long)n,
			(long long)w->w.records);
	if (n && (min != w->w.min_us || max != w->w.max_us))
		sim_fail(s, "window %lld: stamps", (long long)w->w.k);
	if (n == 0 && !w->w.redo)
		sim_fail(s, "window %lld is empty", (long long)w->w.k);
}

static inline struct sim_part *
sim_first(struct sim *s, struct span name)
{
	struct sim_part *p = s->parts;

	while (!span_is(name, p->name))
		p++;
	return p;
}

static inline void
sim_lost(struct sim *s, struct sim_window *w)
{
	struct span name;
	int64_t from, to;
	size_t at = 0;

	while (engine_lost_next(s->e, &at, &name, &from, &to)) {
		struct sim_part *p = sim_first(s, name);

		w->lost += to - from + 1;
		if (from > to || to >= SIM_OFFSETS)
			sim_fail(s, "%.*s %lld..%lld is lost", SPAN_ARG(name),
				(long long)from, (long long)to);
		for (int64_t o = from; o <= to && o < SIM_OFFSETS; o++)
			p->lost[o]++;
	}
}

/* The window as it closes: nothing may come below its end any more. */
static inline struct sim_window *
sim_open(struct sim *s)
{
	struct sim_window *w = &s->win[s->win_n];

	if (s->win_n == SIM_WINDOWS)
		abort();
	*w = (struct sim_window){ .lost = 0 };
	while (!engine_plan_ready(s->e))
		;
	engine_window(s->e, &w->w);
	if (s->fault == SIM_SOUND &&
		w->w.end_us > s->told_us - s->conf.safe_guard_us)
		sim_fail(s, "window %lld closes above safeTime",
			(long long)w->w.k);
	if (s->conf.align != S3_UNALIGNED && !w->w.redo &&
		w->w.end_us > stamp_next(w->w.start_us, s->conf.align))
		sim_fail(s, "window %lld straddles", (long long)w->w.k);
	return w;
}

static inline void
sim_commit(struct sim *s)
{
	struct sim_window *w = sim_open(s);
	const struct sim_window *before = s->win_n ? w - 1 : NULL;

	if (w->w.k != (before ? before->w.k + 1 : w->w.k) ||
		(before && w->w.start_us < before->w.end_us) ||
		w->w.start_us >= w->w.end_us)
		sim_fail(s, "window %lld does not follow", (long long)w->w.k);
	sim_records(s, w, true);
	sim_lost(s, w);
	if (!before)
		s->from_us = w->w.start_us;
	s->win_n++;
	engine_committed(s->e);
}

/* ---- running it ---- */

static inline void
sim_start(struct sim *s, const struct engine_restore *r)
{
	static const struct engine_restore none = { .committed_k = 0 };

	engine_free(s->e);
	while (s->call_n)
		sim_drop_call(s, 0);
	s->e = engine_new(&s->conf, r ? r : &none);
}

static inline void
sim_init(struct sim *s, uint64_t seed)
{
	memset(s, 0, sizeof(*s));
	s->seed = seed * 2654435761u + 88172645463325252u;
	s->now_us = DAWN;
	s->guard_us = 0;
	s->page = 1000;
	s->batch = 100;
	s->conf = (struct engine_conf){ .target_bytes = 1 << 20,
		.max_window_us = 5 * MINUTE,
		.safe_guard_us = 5 * SECOND,
		.align = S3_HOUR,
		.start = S3_EARLIEST,
		.fetch_concurrency = 4 };
}

static inline void
sim_fini(struct sim *s)
{
	engine_free(s->e);
	while (s->call_n)
		sim_drop_call(s, 0);
	for (int i = 0; i < s->parts_n; i++)
		free(s->parts[i].r);
}

/* One step of the engine, asked but not answered; what it was. */
static inline enum engine_what
sim_step(struct sim *s)
{
	struct engine_step t;
	struct engine_stats now;

	engine_next(s->e, &t);
	if (t.what == ENGINE_DISCOVER || t.what == ENGINE_SEEK ||
		t.what == ENGINE_FETCH)
		sim_ask(s, &t);
	engine_stats(s->e, &now);
	if (now.buffered_bytes > s->peak_bytes)
		s->peak_bytes = now.buffered_bytes;
	return s->what = t.what;
}

/* Answers at once, until it idles, closes or ends. */
static inline enum engine_what
sim_run(struct sim *s)
{
	for (;;) {
		switch (sim_step(s)) {
		case ENGINE_DISCOVER:
		case ENGINE_SEEK:
		case ENGINE_FETCH:
			sim_deliver(s, s->call_n - 1, false);
			continue;
		case ENGINE_BUSY:
			continue;
		case ENGINE_WAIT:
			if (s->call_n == 0)
				return s->what;
			sim_deliver(s, 0, false);
			continue;
		default:
			return s->what;
		}
	}
}

/* The same with windows committed, and one more pass after an idle wait. */
static inline enum engine_what
sim_settle(struct sim *s)
{
	for (int woken = 0; woken < 2;) {
		if (sim_run(s) == ENGINE_CLOSE) {
			sim_commit(s);
		} else if (s->what == ENGINE_IDLE) {
			engine_woken(s->e);
			woken++;
		} else {
			break;
		}
	}
	return s->what;
}

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Loading in rounds: the hash key, queues that are unknown or read long ago,
 * then unknown partitions, a call for 1000.  A queue that is deleted in
 * between makes another round.  Remembered partitions are two generations:
 * when the younger is full the older goes, and what is used moves over.
 */
#include "names.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "connchild.h"
#include "ctx.h"
#include "err.h"
#include "hash.h"
#include "loop.h"
#include "map.h"
#include "pgbin.h"
#include "pgconn.h"

enum {
	REREAD_MS = 5000, /* what a queue asks for is believed so long */
	ENSURE_MAX = 1000, /* names in a call: as many as it makes */
	REMEMBERED_MAX = 100000, /* partitions of a generation */
	BUSY_MS = 5, /* another session makes the name */
	LOAD_MS = 30000,
};

static const struct pgstmt STMT_KEY = { "source_key",
	"select queen.cell_key_v1()" };
static const struct pgstmt STMT_QUEUES = { "source_queues",
	"select ord, id, encryption_enabled "
	"from queen.queue_resolve_v1($1, $2, true)" };
static const struct pgstmt STMT_PARTS = { "source_parts",
	"select ord, verdict, id "
	"from queen.partitions_ensure_v1($1, $2, $3)" };
/* Verdicts of partitions_ensure_v1. */
enum { VERDICT_THERE, VERDICT_MADE, VERDICT_BUSY, VERDICT_GONE };

struct known {
	int64_t queue_id, id;
	size_t name_n;
	char name[];
};

/* A load under way; outlives names that are freed meanwhile. */
struct load {
	struct names *names; /* NULL: nobody waits */
	struct names_part *parts;
	size_t parts_n;
	size_t *asked, asked_n; /* places in parts, or queues, of the call */
	names_fn fn;
	void *arg;
	int64_t deadline_ms;
};

struct names {
	struct ctx *x;
	struct names_queue **queues;
	size_t queues_n;
	struct map young, old;
	bool has_key;
	uint8_t key[HASH_KEY_BYTES];
	struct load *load;
	struct loop_timer again;
};

static void load_next(struct load *l);

static void *
must(void *p)
{
	if (!p) {
		fprintf(stderr, "out of memory: names\n");
		abort();
	}
	return p;
}

/* ---- what is remembered ---- */

static uint64_t
hash_of(int64_t queue_id, struct span name)
{
	return map_hash_span(name) ^ map_hash_i64(queue_id);
}

static bool
is_part(const void *item, const void *key)
{
	const struct known *k = item;
	const struct names_part *p = key;

	return k->queue_id == p->queue->id &&
	       span_eq(span_make(k->name, k->name_n), p->name);
}

static void
forget_all(struct map *m)
{
	struct known *k;
	size_t at = 0;

	while ((k = map_next(m, &at)))
		free(k);
	map_fini(m);
}

static void
keep(struct names *n, struct known *k)
{
	if (n->young.count >= REMEMBERED_MAX) {
		forget_all(&n->old);
		n->old = n->young;
		n->young = (struct map)MAP_ZERO;
	}
	map_put(&n->young, hash_of(k->queue_id, span_make(k->name, k->name_n)),
		k);
}

static int64_t
look_up(struct names *n, const struct names_part *p)
{
	uint64_t h = hash_of(p->queue->id, p->name);
	struct known *k = map_get(&n->young, h, is_part, p);

	if (!k && (k = map_take(&n->old, h, is_part, p)))
		keep(n, k);
	return k ? k->id : 0;
}

static void
remember(struct names *n, const struct names_part *p)
{
	struct known *k = must(malloc(sizeof(*k) + p->name.n));

	*k = (struct known){
		.queue_id = p->queue->id, .id = p->id, .name_n = p->name.n
	};
	if (p->name.n > 0)
		memcpy(k->name, p->name.p, p->name.n);
	keep(n, k);
}

void
names_forget(struct names *n, struct names_part *parts, size_t parts_n)
{
	for (size_t i = 0; i < parts_n; i++) {
		struct names_part *p = &parts[i];
		uint64_t h = hash_of(p->queue->id, p->name);

		free(map_take(&n->young, h, is_part, p));
		free(map_take(&n->old, h, is_part, p));
		p->id = 0;
	}
	/* only now: they are found by the queue's id */
	for (size_t i = 0; i < parts_n; i++)
		parts[i].queue->id = 0;
}

struct names_queue *
names_queue(struct names *n, struct span name)
{
	struct names_queue *q;
	char *copy;

	for (size_t i = 0; i < n->queues_n; i++) {
		if (span_eq(n->queues[i]->name, name))
			return n->queues[i];
	}
	n->queues = must(realloc(
		n->queues, (n->queues_n + 1) * sizeof(struct names_queue *)));
	q = must(calloc(1, sizeof(*q) + name.n));
	copy = (char *)(q + 1);
	memcpy(copy, name.p, name.n);
	q->name = span_make(copy, name.n);
	n->queues[n->queues_n++] = q;
	return q;
}

void
names_reread(struct names *n)
{
	for (size_t i = 0; i < n->queues_n; i++)
		n->queues[i]->read_ms = INT64_MIN / 2;
}

const uint8_t *
names_hash_key(const struct names *n)
{
	return n->has_key ? n->key : NULL;
}

static bool
is_fresh(const struct names *n, const struct names_queue *q)
{
	return q->id != 0 && loop_now_ms(n->x->loop) - q->read_ms <= REREAD_MS;
}

bool
names_known(struct names *n, struct names_part *parts, size_t parts_n)
{
	for (size_t i = 0; i < parts_n; i++) {
		struct names_part *p = &parts[i];

		if (!is_fresh(n, p->queue))
			return false;
		p->id = look_up(n, p);
		if (p->id == 0)
			return false;
	}
	return n->has_key;
}

/* ---- loading ---- */

/* Until then one more must be known. */
static int64_t
deadline(const struct names *n)
{
	return loop_now_ms(n->x->loop) + LOAD_MS;
}

static void
load_free(struct load *l)
{
	if (l->names)
		l->names->load = NULL;
	free(l->asked);
	free(l);
}

static void
load_end(struct load *l, const struct err *e)
{
	names_fn fn = l->fn;
	void *arg = l->arg;

	load_free(l);
	fn(arg, e);
}

/* Nobody waits any more, or it failed: true, and the load is over. */
static bool
is_over(struct load *l, const struct err *e)
{
	if (!l->names)
		load_free(l);
	else if (e)
		load_end(l, e);
	else
		return false;
	return true;
}

static void
on_key(void *arg, const PGresult *res, const struct err *e)
{
	struct load *l = arg;
	struct span key;

	if (is_over(l, e))
		return;
	BUG(PQntuples(res) != 1);
	key = pgbin_bytes(res, 0, 0);
	BUG(key.n != sizeof(l->names->key));
	memcpy(l->names->key, key.p, key.n);
	l->names->has_key = true;
	load_next(l);
}

static void
on_queues(void *arg, const PGresult *res, const struct err *e)
{
	struct load *l = arg;

	if (is_over(l, e))
		return;
	for (int i = 0; i < PQntuples(res); i++) {
		size_t at = (size_t)pgbin_i32(res, i, 0) - 1;
		struct names_queue *q;

		BUG(at >= l->asked_n);
		q = l->names->queues[l->asked[at]];
		q->id = pgbin_i64(res, i, 1);
		q->sealed = pgbin_bool(res, i, 2);
		q->read_ms = loop_now_ms(l->names->x->loop);
	}
	load_next(l);
}

/* Frees the arguments. */
static void
call(struct load *l, const struct pgstmt *s, struct pgargs *a,
	pgconn_result_fn fn)
{
	pgconn_call(l->names->x->work, s, false, a, fn, l);
	pgargs_fini(a);
}

static void
ask_key(struct load *l)
{
	struct pgargs a;

	pgargs_init(&a);
	call(l, &STMT_KEY, &a, on_key);
}

/* Those of the load that are not fresh; false: there is none. */
static bool
ask_queues(struct load *l)
{
	struct names *n = l->names;
	struct pgargs a;

	l->asked_n = 0;
	pgargs_init(&a);
	pgargs_uuid(&a, &n->x->task->tenant);
	pgargs_array(&a, PGARGS_TEXT);
	for (size_t i = 0; i < n->queues_n; i++) {
		if (is_fresh(n, n->queues[i]))
			continue;
		l->asked = must(realloc(
			l->asked, (l->asked_n + 1) * sizeof(*l->asked)));
		l->asked[l->asked_n++] = i;
		pgargs_item_text(&a, n->queues[i]->name);
	}
	pgargs_close(&a);
	if (l->asked_n == 0) {
		pgargs_fini(&a);
		return false;
	}
	call(l, &STMT_QUEUES, &a, on_queues);
	return true;
}

static void
on_parts(void *arg, const PGresult *res, const struct err *e)
{
	struct load *l = arg;
	bool busy = false;

	if (is_over(l, e))
		return;
	for (int i = 0; i < PQntuples(res); i++) {
		size_t at = (size_t)pgbin_i32(res, i, 0) - 1;
		struct names_part *p;

		BUG(at >= l->asked_n);
		p = &l->parts[l->asked[at]];
		switch (pgbin_i32(res, i, 1)) {
		case VERDICT_THERE:
		case VERDICT_MADE:
			p->id = pgbin_i64(res, i, 2);
			remember(l->names, p);
			l->deadline_ms = deadline(l->names);
			break;
		case VERDICT_BUSY:
			busy = true;
			break;
		default:
			p->queue->id = 0;
		}
	}
	if (busy)
		loop_timer_start(&l->names->again, BUSY_MS);
	else
		load_next(l);
}

/* The next ones that are not known; false: there is none. */
static bool
ask_parts(struct load *l)
{
	struct names *n = l->names;
	struct pgargs a;

	l->asked = must(realloc(l->asked, ENSURE_MAX * sizeof(*l->asked)));
	l->asked_n = 0;
	for (size_t i = 0; i < l->parts_n && l->asked_n < ENSURE_MAX; i++) {
		struct names_part *p = &l->parts[i];

		if (p->id == 0 && (p->id = look_up(n, p)) == 0)
			l->asked[l->asked_n++] = i;
	}
	if (l->asked_n == 0)
		return false;
	pgargs_init(&a);
	pgargs_uuid(&a, &n->x->task->tenant);
	pgargs_array(&a, PGARGS_I64);
	for (size_t i = 0; i < l->asked_n; i++)
		pgargs_item_i64(&a, l->parts[l->asked[i]].queue->id);
	pgargs_close(&a);
	pgargs_array(&a, PGARGS_TEXT);
	for (size_t i = 0; i < l->asked_n; i++)
		pgargs_item_text(&a, l->parts[l->asked[i]].name);
	pgargs_close(&a);
	call(l, &STMT_PARTS, &a, on_parts);
	return true;
}

static void
load_next(struct load *l)
{
	struct err e = ERR_ZERO;

	if (loop_now_ms(l->names->x->loop) > l->deadline_ms) {
		err_set(&e, ERR_DB_RETRY,
			"queues or partitions come and go faster than they "
			"can be written to");
		load_end(l, &e);
	} else if (!l->names->has_key) {
		ask_key(l);
	} else if (!ask_queues(l) && !ask_parts(l)) {
		load_end(l, NULL);
	}
}

static void
on_again(void *arg)
{
	struct names *n = arg;

	load_next(n->load);
}

void
names_load(struct names *n, struct names_part *parts, size_t parts_n,
	names_fn fn, void *arg)
{
	struct load *l = must(calloc(1, sizeof(*l)));

	BUG(n->load);
	*l = (struct load){ .names = n,
		.parts = parts,
		.parts_n = parts_n,
		.fn = fn,
		.arg = arg,
		.deadline_ms = deadline(n) };
	n->load = l;
	loop_timer_start(&n->again, 0);
}

/* ---- life ---- */

struct names *
names_new(struct ctx *x)
{
	struct names *n = must(calloc(1, sizeof(*n)));

	n->x = x;
	loop_timer_init(&n->again, x->loop, on_again, n);
	return n;
}

void
names_free(struct names *n)
{
	bool waits;

	if (!n)
		return;
	waits = loop_timer_pending(&n->again);
	loop_timer_fini(&n->again);
	if (n->load && waits)
		load_free(n->load);
	else if (n->load)
		n->load->names = NULL;
	for (size_t i = 0; i < n->queues_n; i++)
		free(n->queues[i]);
	free(n->queues);
	forget_all(&n->young);
	forget_all(&n->old);
	free(n);
}

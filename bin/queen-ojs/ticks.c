/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A row per log that grew, found by its queue's id, and in the order in which
 * they came unless a tick is under way.
 */
#include "ticks.h"

#include <stdlib.h>
#include <sys/queue.h>

#include "err.h"
#include "map.h"

/* Below it a log is forgotten without a tick. */
enum { LITTLE_BYTES = 1 << 20 };

struct ticks_log {
	int64_t queue_id; /* key */
	struct ticks *ticks;
	int64_t bytes; /* since the last tick we made */
	int64_t asked; /* of these, when a tick was asked for */
	bool asking; /* and is in no list */
	TAILQ_ENTRY(ticks_log) link;
};
TAILQ_HEAD(log_list, ticks_log);

struct ticks {
	struct map logs;
	struct log_list idle;
	size_t idle_n, max;
	ticks_fn fn;
	void *arg;
};

struct ticks *
ticks_new(size_t max, ticks_fn fn, void *arg)
{
	struct ticks *t = calloc(1, sizeof(*t));

	BUG(!t);
	TAILQ_INIT(&t->idle);
	t->max = max;
	t->fn = fn;
	t->arg = arg;
	return t;
}

void
ticks_free(struct ticks *t)
{
	struct ticks_log *l;
	size_t at = 0;

	if (!t)
		return;
	while ((l = map_next(&t->logs, &at)))
		free(l);
	map_fini(&t->logs);
	free(t);
}

static void
list(struct ticks_log *l)
{
	TAILQ_INSERT_TAIL(&l->ticks->idle, l, link);
	l->ticks->idle_n++;
}

static void
unlist(struct ticks_log *l)
{
	TAILQ_REMOVE(&l->ticks->idle, l, link);
	l->ticks->idle_n--;
}

/* It is in no list. */
static void
forget(struct ticks_log *l)
{
	map_take(&l->ticks->logs, map_hash_i64(l->queue_id), map_is_i64,
		&l->queue_id);
	free(l);
}

static void
ask(struct ticks_log *l, bool heavy)
{
	l->asking = true;
	l->asked = l->bytes;
	l->ticks->fn(l->ticks->arg, l, l->queue_id, heavy);
}

static void
make_room(struct ticks *t)
{
	while (t->idle_n && t->idle_n >= t->max) {
		struct ticks_log *l = TAILQ_FIRST(&t->idle);

		unlist(l);
		if (l->bytes < LITTLE_BYTES)
			forget(l);
		else
			ask(l, true);
	}
}

static struct ticks_log *
log_of(struct ticks *t, int64_t queue_id)
{
	uint64_t hash = map_hash_i64(queue_id);
	struct ticks_log *l = map_get(&t->logs, hash, map_is_i64, &queue_id);

	if (l)
		return l;
	make_room(t);
	l = calloc(1, sizeof(*l));
	BUG(!l);
	l->queue_id = queue_id;
	l->ticks = t;
	map_put(&t->logs, hash, l);
	list(l);
	return l;
}

void
ticks_grew(struct ticks *t, int64_t queue_id, int64_t bytes, bool many)
{
	struct ticks_log *l = log_of(t, queue_id);

	l->bytes += bytes;
	if (l->asking || (!many && l->bytes <= TICKS_HEAVY_BYTES))
		return;
	unlist(l);
	ask(l, l->bytes > TICKS_HEAVY_BYTES);
}

void
ticks_asked(struct ticks_log *l, bool made)
{
	l->asking = false;
	if (made)
		l->bytes -= l->asked;
	/* One that was not made is asked for again when the log grows. */
	if (made && l->bytes > TICKS_HEAVY_BYTES)
		ask(l, true);
	else if (l->bytes == 0 || l->ticks->idle_n >= l->ticks->max)
		forget(l);
	else
		list(l);
}

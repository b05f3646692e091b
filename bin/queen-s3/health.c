/* SPDX-License-Identifier: Apache-2.0 */
#include "health.h"

#include <stdlib.h>

#include "err.h"

enum { LIMIT_MIN_MS = 30000, WINDOWS = 3 };

struct health_queue {
	TAILQ_ENTRY(health_queue) link;
	int64_t since_ms; /* until a lag is known */
	bool known;
	int64_t lag_ms, at_ms, stamp_us;
	size_t n;
	char name[];
};

void
health_init(struct health *h, int64_t max_window_ms)
{
	TAILQ_INIT(&h->list);
	h->by_name = (struct map)MAP_ZERO;
	h->n = 0;
	h->limit_ms = max_window_ms * WINDOWS;
	if (h->limit_ms < LIMIT_MIN_MS)
		h->limit_ms = LIMIT_MIN_MS;
}

void
health_fini(struct health *h)
{
	struct health_queue *q;

	while ((q = TAILQ_FIRST(&h->list))) {
		TAILQ_REMOVE(&h->list, q, link);
		free(q);
	}
	map_fini(&h->by_name);
	h->n = 0;
}

static int
compare(const struct health_queue *q, struct span name)
{
	size_t n = q->n < name.n ? q->n : name.n;
	int c = memcmp(q->name, name.p, n);

	return c ? c : (q->n > name.n) - (q->n < name.n);
}

static bool
is_named(const void *item, const void *name)
{
	return compare(item, *(const struct span *)name) == 0;
}

static struct health_queue *
find(const struct health *h, struct span name)
{
	return map_get(&h->by_name, map_hash_span(name), is_named, &name);
}

void
health_runs(struct health *h, struct span queue, int64_t now_ms)
{
	struct health_queue *q, *at;

	if (find(h, queue))
		return;
	q = calloc(1, sizeof(*q) + queue.n);
	BUG(!q);
	memcpy(q->name, queue.p, queue.n);
	q->n = queue.n;
	q->since_ms = now_ms;
	q->stamp_us = INT64_MIN;
	h->n++;
	map_put(&h->by_name, map_hash_span(queue), q);
	/* they come in the order of their names */
	TAILQ_FOREACH_REVERSE(at, &h->list, health_list, link)
	if (compare(at, queue) < 0) {
		TAILQ_INSERT_AFTER(&h->list, at, q, link);
		return;
	}
	TAILQ_INSERT_HEAD(&h->list, q, link);
}

void
health_report(struct health *h, struct span queue, int64_t lag_us,
	int64_t stamp_us, int64_t now_ms)
{
	struct health_queue *q = find(h, queue);

	if (!q || lag_us < 0 || stamp_us <= q->stamp_us)
		return;
	q->known = true;
	q->stamp_us = stamp_us;
	q->lag_ms = lag_us / 1000;
	q->at_ms = now_ms;
}

void
health_forget(struct health *h, struct span queue)
{
	struct health_queue *q = find(h, queue);

	if (!q)
		return;
	map_take(&h->by_name, map_hash_span(queue), is_named, &queue);
	TAILQ_REMOVE(&h->list, q, link);
	free(q);
	h->n--;
}

bool
health_behind(const struct health *h, int64_t now_ms, struct health_behind *out)
{
	const struct health_queue *q;

	TAILQ_FOREACH (q, &h->list, link) {
		int64_t stale_ms = q->known ? q->lag_ms + now_ms - q->at_ms
					    : now_ms - q->since_ms;

		if (stale_ms <= h->limit_ms)
			continue;
		*out = (struct health_behind){ .queue =
						       span_make(q->name, q->n),
			.stale_ms = stale_ms,
			.limit_ms = h->limit_ms };
		return true;
	}
	return false;
}

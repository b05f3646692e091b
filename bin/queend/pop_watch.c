/* SPDX-License-Identifier: Apache-2.0 */
/* Who else wants to hear of messages, by queue. */
#include <stdlib.h>

#include "pop_int.h"

struct watch_list {
	int64_t queue_id; /* first: map_is_i64 */
	struct pops_watch *first;
};

static struct watch_list *
list_of(const struct pops *p, int64_t queue_id)
{
	return map_get(
		&p->watches, map_hash_i64(queue_id), map_is_i64, &queue_id);
}

void
pops_watch(struct pops *p, struct pops_watch *w)
{
	struct watch_list *l = list_of(p, w->queue_id);

	if (!l) {
		l = calloc(1, sizeof(*l));
		if (!l)
			abort();
		l->queue_id = w->queue_id;
		map_put(&p->watches, map_hash_i64(l->queue_id), l);
	}
	w->next = l->first;
	w->prev = &l->first;
	if (l->first)
		l->first->prev = &w->next;
	l->first = w;
}

void
pops_unwatch(struct pops *p, struct pops_watch *w)
{
	struct watch_list *l;

	if (!w->prev)
		return;
	*w->prev = w->next;
	if (w->next)
		w->next->prev = w->prev;
	w->prev = NULL;
	l = list_of(p, w->queue_id);
	if (!l || l->first)
		return;
	map_take(&p->watches, map_hash_i64(l->queue_id), map_is_i64,
		&l->queue_id);
	free(l);
}

void
watch_fire(struct pops *p, int64_t queue_id)
{
	struct watch_list *l = p->watches.count ? list_of(p, queue_id) : NULL;

	for (struct pops_watch *w = l ? l->first : NULL; w; w = w->next)
		w->fn(w->arg);
}

bool
watch_any(const struct pops *p, int64_t queue_id)
{
	return p->watches.count && list_of(p, queue_id);
}

void
watch_free_all(struct pops *p)
{
	size_t at = 0;
	struct watch_list *l;

	while ((l = map_next(&p->watches, &at)))
		free(l);
	map_fini(&p->watches);
}

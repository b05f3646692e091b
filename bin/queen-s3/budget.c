/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One sum over all queues.  Only the largest is told, and once until it has
 * shrunk: to close every window for the sake of one queue would make many
 * small objects and free little.
 */
#include "budget.h"

#include <stdlib.h>

#include "err.h"
#include "loop.h"

struct budget {
	int64_t limit, used;
	struct budget_item *first;
	struct loop_timer later;
};

static struct budget_item *
largest(const struct budget *b)
{
	struct budget_item *best = b->first;

	for (struct budget_item *i = best; i; i = i->next)
		if (i->bytes > best->bytes)
			best = i;
	return best;
}

/* It may be over by now, or another may be the largest. */
static void
on_later(void *arg)
{
	struct budget *b = arg;
	struct budget_item *i = largest(b);

	if (b->used <= b->limit || !i || i->told)
		return;
	i->told = true;
	i->force(i->arg);
}

struct budget *
budget_new(struct loop *l, int64_t limit_bytes)
{
	struct budget *b = calloc(1, sizeof(*b));

	BUG(!b);
	b->limit = limit_bytes;
	loop_timer_init(&b->later, l, on_later, b);
	return b;
}

void
budget_free(struct budget *b)
{
	if (!b)
		return;
	BUG(b->first);
	loop_timer_fini(&b->later);
	free(b);
}

void
budget_join(struct budget *b, struct budget_item *i, void (*force)(void *arg),
	void *arg)
{
	*i = (struct budget_item){
		.budget = b,
		.next = b->first,
		.force = force,
		.arg = arg,
	};
	if (b->first)
		b->first->prev = i;
	b->first = i;
}

static void
set(struct budget_item *i, int64_t bytes)
{
	i->budget->used += bytes - i->bytes;
	if (bytes < i->bytes)
		i->told = false;
	i->bytes = bytes;
}

void
budget_report(struct budget_item *i, int64_t bytes)
{
	struct budget *b = i->budget;

	set(i, bytes);
	if (b->used > b->limit && !loop_timer_pending(&b->later))
		loop_timer_start(&b->later, 0);
}

void
budget_leave(struct budget_item *i)
{
	struct budget *b = i->budget;

	set(i, 0);
	if (i->prev)
		i->prev->next = i->next;
	else
		b->first = i->next;
	if (i->next)
		i->next->prev = i->prev;
	*i = (struct budget_item){ .budget = NULL };
}

int64_t
budget_used(const struct budget *b)
{
	return b->used;
}

int64_t
budget_limit(const struct budget *b)
{
	return b->limit;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The buffers of all queues of the process against QUEEN_S3_MEMORY_MB: above
 * it the largest one, and only that, is told to close its window early.
 */
#ifndef QUEEN_S3_BUDGET_H
#define QUEEN_S3_BUDGET_H

#include <stdbool.h>
#include <stdint.h>

struct budget;
struct loop;

struct budget_item { /* embedded in a queue */
	struct budget *budget;
	struct budget_item *prev, *next;
	int64_t bytes;
	bool told; /* and has not shrunk since */
	void (*force)(void *arg);
	void *arg;
};
struct budget *budget_new(struct loop *l, int64_t limit_bytes);
/* After the last item has left. */
void budget_free(struct budget *b);
void budget_join(struct budget *b, struct budget_item *i,
	void (*force)(void *arg), void *arg);
/* Above the limit the largest is forced, in a turn of the loop to come. */
void budget_report(struct budget_item *i, int64_t bytes);
void budget_leave(struct budget_item *i);
int64_t budget_used(const struct budget *b);
int64_t budget_limit(const struct budget *b);

#endif

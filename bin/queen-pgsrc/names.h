/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Queues and partitions of the cell by name: their ids, and what a queue asks
 * of its messages.  What is missing is made, in commits of its own.  Ids are
 * remembered, in bounds; an id that is gone is told by the call that uses it.
 */
#ifndef QUEEN_PGSRC_NAMES_H
#define QUEEN_PGSRC_NAMES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "span.h"

struct ctx;
struct err;
struct names;

struct names_queue {
	struct span name;
	int64_t id;		/* 0 = not known */
	bool sealed;		/* takes sealed messages only */
	int64_t read_ms;	/* when that was so */
};

struct names_part {
	struct names_queue *queue;
	struct span name;	/* borrowed by names_load until it answers */
	int64_t id;		/* 0 = not known */
};

/* e: NULL when all is known. */
typedef void (*names_fn)(void *arg, const struct err *e);

struct names *names_new(struct ctx *x);
/* What is being loaded is not answered any more. */
void names_free(struct names *n);

/* Lives as long as names; found or made. */
struct names_queue *names_queue(struct names *n, struct span name);
/* Fills in the ids; false when something has to be loaded first. */
bool names_known(struct names *n, struct names_part *parts, size_t parts_n);
/* The same with loading, one at a time; fn comes later. */
void names_load(struct names *n, struct names_part *parts, size_t parts_n,
	names_fn fn, void *arg);
/* These were there and are not: to be found or made again. */
void names_forget(struct names *n, struct names_part *parts, size_t parts_n);
/* What queues ask for is to be read again. */
void names_reread(struct names *n);
/* The 16 bytes transaction ids are hashed with; NULL before names_known. */
const uint8_t *names_hash_key(const struct names *n);

#endif

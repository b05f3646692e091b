/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names of queue and partition to the partition, created when missing: what
 * every writer needs before it can write.
 */
#ifndef QUEEND_RESOLVE_H
#define QUEEND_RESOLVE_H

#include <stdbool.h>
#include <stddef.h>

#include "qid.h"
#include "span.h"

struct cat_part;
struct ctx;
struct err;

struct resolve_item {
	struct span queue, partition;
	struct cat_part *part; /* NULL = not found (yet) */
};

/* e: the last failure of the database, or NULL; items tell what was found. */
typedef void (*resolve_fn)(void *arg, const struct err *e);

/* Looks in memory only; true when every item has its partition. */
bool resolve_known(struct ctx *x, const struct qid *tenant,
	struct resolve_item *items, size_t n);
/* Creates what is missing.  Items must live until done; always later. */
void resolve_start(struct ctx *x, const struct qid *tenant,
	struct resolve_item *items, size_t n, resolve_fn done, void *arg);

#endif

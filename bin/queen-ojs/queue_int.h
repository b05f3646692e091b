/* SPDX-License-Identifier: Apache-2.0 */
/* Between the files of queue*.c: the configuration of a queue. */
#ifndef QUEEN_OJS_QUEUE_INT_H
#define QUEEN_OJS_QUEUE_INT_H

#include <libpq-fe.h>
#include <stdbool.h>
#include <stdint.h>

#include "reply.h"
#include "span.h"

struct arena;
struct hsrv_req;
struct jwrite;

/* As in the columns of queen.ojs_queue_put_v1, in order. */
enum queue_key {
	QUEUE_VISIBILITY,
	QUEUE_JOB_RETENTION,
	QUEUE_DEAD_RETENTION,
	QUEUE_DEAD_MAX,
	QUEUE_MAX_JOBS,
	QUEUE_MAX_EVENTS,
	QUEUE_MAX_RETRIES,
	QUEUE_RETENTION,
	QUEUE_KEYS
};

/* What a body says; given without a value = back to the default. */
struct queue_conf {
	struct span name; /* of a create */
	bool given[QUEUE_KEYS], null[QUEUE_KEYS];
	int64_t value[QUEUE_KEYS]; /* numbers, or milliseconds */
};

/*
 * body: one JSON object, borrowed.  named: it has to have a `name` too.  -1
 * with 400 and `details.field`.
 */
int queue_conf_parse(struct span body, bool named, struct arena *a,
	struct queue_conf *c, struct problem *p)
	__attribute__((warn_unused_result));
/* The name of the column in queen.ojs_queue_put_v1. */
const char *queue_key_name(enum queue_key k);
/* The object `config`: what is set, and the defaults of the contract. */
void queue_conf_write(
	struct jwrite *w, const PGresult *res, int row, int first_column);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The query of a pop, typed (http-core 4.1).  Pure: where the values come
 * from is an argument.  Spans borrow from the source.
 */
#ifndef QUEEND_POP_QUERY_H
#define QUEEND_POP_QUERY_H

#include <stdbool.h>
#include <stdint.h>

#include "err.h"
#include "span.h"

enum {
	POP_BATCH_DEFAULT = 200,
	POP_TIMEOUT_MAX_MS = 300000,
	POP_CONFLATED_MAX = 64,
};

struct pop_query {
	int32_t batch; /* 1 and more */
	int32_t partitions; /* 0 = no cap */
	int32_t lease_s; /* 0 = the queue's */
	int64_t timeout_ms;
	bool partitions_given;
	bool auto_ack, wait, conflation;
	bool queue_mode; /* no consumer group */
	struct span group;
	const char *mode; /* all, new, timestamp */
	int64_t from_us; /* timestamp only */
	struct span namespace_name, task;
};

/* What a request that does not say gets. */
struct pop_defaults {
	int64_t timeout_ms;
	const char *subscription_mode;
};

typedef bool (*pop_query_get)(
	const void *src, const char *key, struct span *out);

/*
 * ERR_INPUT names the parameter; *code gets the word for the body, or NULL.
 */
int pop_query_parse(struct pop_query *q, const struct pop_defaults *d,
	pop_query_get get, const void *src, const char **code, struct err *e)
	__attribute__((warn_unused_result));

#endif

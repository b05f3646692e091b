/* SPDX-License-Identifier: Apache-2.0 */
/* The unique policy and the rate limit of a job, as the database wants them. */
#ifndef QUEEN_OJS_UNIQUE_H
#define QUEEN_OJS_UNIQUE_H

#include <stdbool.h>

#include "reply.h"
#include "span.h"

struct arena;

/* What of a job the key may be made of; spans as sent, p NULL = absent. */
struct unique_of {
	struct span type, queue;	/* text, decoded */
	struct span args, meta;		/* JSON */
};
/*
 * raw: the object `unique` as sent.  *out: JSON
 * {"key":CANONICAL,"period_ms":N|null,"states":[numbers],"on":"reject"},
 * CANONICAL a string that holds the RFC 8785 form of the chosen dimensions;
 * the database brings it to NFC and hashes it.  args_keys and meta_keys put
 * args and meta among the keys.  -1 with 400 invalid_request.
 */
int unique_parse(struct span raw, const struct unique_of *of, struct arena *a,
	struct span *out, struct problem *p) __attribute__((warn_unused_result));
/* A policy of unique_parse that shows and ends no other job. */
bool unique_rejects(struct span policy);
/*
 * raw: the object `rate_limit`.  *out: JSON {"key":"...","max":N|null,
 * "period_ms":N|null,"concurrency":N|null}; key "" = of the queue; max and
 * period_ms are both null when concurrency alone is limited.
 */
int rate_parse(struct span raw, struct arena *a, struct span *out,
	struct problem *p) __attribute__((warn_unused_result));

#endif

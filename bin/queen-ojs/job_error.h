/* SPDX-License-Identifier: Apache-2.0 */
/* The error of a failed attempt, as a worker reports it. */
#ifndef QUEEN_OJS_JOB_ERROR_H
#define QUEEN_OJS_JOB_ERROR_H

#include <stdbool.h>

#include "reply.h"
#include "span.h"

struct arena;

struct job_error {
	struct span stored;	/* members of the stored form; of what the
				   database adds (attempt, occurred_at) none */
	struct span type, code;	/* as stored */
	struct span class;	/* details.error_class; n = 0 = none */
	bool retryable;
};

/* raw: the object `error` as sent.  -1 with the problem. */
int job_error_parse(struct span raw, struct arena *a, struct job_error *e,
	struct problem *p) __attribute__((warn_unused_result));

#endif

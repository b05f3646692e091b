/* SPDX-License-Identifier: Apache-2.0 */
/* The retry policy of a push, checked (spec section 7.1). */
#ifndef QUEEN_OJS_RETRY_H
#define QUEEN_OJS_RETRY_H

#include "reply.h"
#include "span.h"

struct arena;

/*
 * raw: the object `retry` as sent.  *max_attempts and *out: JSON
 * {"initial_ms":N,"coefficient":X,"max_ms":N,"jitter":b,"strategy":"..",
 * "stop":["..."],"dead":b} with every member, or n = 0 when all is default.
 * -1 with 422 and type validation_error, the message names the field.
 */
int retry_parse(struct span raw, struct arena *a, int *max_attempts,
	struct span *out, struct problem *p) __attribute__((warn_unused_result));

#endif

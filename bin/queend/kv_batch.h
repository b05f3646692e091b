/* SPDX-License-Identifier: Apache-2.0 */
/* The operations of one request: read, sent, answered. */
#ifndef QUEEND_KV_BATCH_H
#define QUEEND_KV_BATCH_H

#include <stdbool.h>

#include "span.h"

struct hsrv_req;

/*
 * ops: JSON array, which lives as long as the request.  bare: a path route,
 * answered with the only element alone.
 */
void kv_batch_start(struct hsrv_req *r, struct span ops, bool bare);

#endif

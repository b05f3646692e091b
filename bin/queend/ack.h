/* SPDX-License-Identifier: Apache-2.0 */
/*
 * POST /api/v1/ack and /api/v1/ack/batch.  Items are grouped by partition and
 * lease; each group is one input of a coalesced call.
 */
#ifndef QUEEND_ACK_H
#define QUEEND_ACK_H

struct acks;
struct ctx;
struct hsrv_req;

struct acks *acks_new(struct ctx *x);
void acks_free(struct acks *k);

void ack_one(struct hsrv_req *r);
void ack_batch(struct hsrv_req *r);

#endif

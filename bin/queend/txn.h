/* SPDX-License-Identifier: Apache-2.0 */
/* POST /api/v1/transaction: pushes and acks, all or nothing. */
#ifndef QUEEND_TXN_H
#define QUEEND_TXN_H

struct ctx;
struct hsrv_req;
struct txns;

struct txns *txns_new(struct ctx *x);
void txns_free(struct txns *t);

void txn_post(struct hsrv_req *r);

#endif

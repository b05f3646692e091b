/* SPDX-License-Identifier: Apache-2.0 */
/* POST /api/v1/transaction: pushes and acks, all or nothing. */
#ifndef QUEEND_TXN_H
#define QUEEND_TXN_H

struct hsrv_req;

void txn_post(struct hsrv_req *r);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* Dead letters: list, replay, purge. */
#ifndef QUEEND_DEAD_H
#define QUEEND_DEAD_H

struct hsrv_req;

void dead_list(struct hsrv_req *r);	/* GET /dlq */
void dead_retry(struct hsrv_req *r);	/* POST /messages/:p/:txn/retry */
void dead_replay(struct hsrv_req *r);	/* POST /dlq/:id/replay */
void dead_purge(struct hsrv_req *r);	/* DELETE /dlq */

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* Looking at stored messages; deleting dead letters by address. */
#ifndef QUEEND_MESSAGE_H
#define QUEEND_MESSAGE_H

struct hsrv_req;

void message_list(struct hsrv_req *r);		/* GET /messages */
void message_get(struct hsrv_req *r);		/* GET .../:partition/:txn */
void message_delete(struct hsrv_req *r);	/* DELETE the same */

/* 404: no dead letter has the address of the path. */
void message_reply_gone(struct hsrv_req *r);

#endif

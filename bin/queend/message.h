/* SPDX-License-Identifier: Apache-2.0 */
/* Looking at stored messages; deleting dead letters by address. */
#ifndef QUEEND_MESSAGE_H
#define QUEEND_MESSAGE_H

#include <stdbool.h>

struct hsrv_req;
struct pgargs;

void message_list(struct hsrv_req *r);		/* GET /messages */
void message_get(struct hsrv_req *r);		/* GET .../:partition/:txn */
void message_delete(struct hsrv_req *r);	/* DELETE the same */

/*
 * Starts the arguments of a call with tenant, partition and hash of the path;
 * false: no such address can exist.
 */
bool message_args(struct hsrv_req *r, struct pgargs *a);
/* 404: no dead letter has the address of the path. */
void message_reply_gone(struct hsrv_req *r);

#endif

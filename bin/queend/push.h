/* SPDX-License-Identifier: Apache-2.0 */
/* POST /api/v1/push. */
#ifndef QUEEND_PUSH_H
#define QUEEND_PUSH_H

struct hsrv_req;

void push_post(struct hsrv_req *r);

#endif

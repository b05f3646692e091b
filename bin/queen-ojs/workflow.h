/* SPDX-License-Identifier: Apache-2.0 */
/* Chains, groups and batches of jobs. */
#ifndef QUEEN_OJS_WORKFLOW_H
#define QUEEN_OJS_WORKFLOW_H

struct hsrv_req;

void workflow_create(struct hsrv_req *r);
void workflow_list(struct hsrv_req *r);
void workflow_get(struct hsrv_req *r);
void workflow_cancel(struct hsrv_req *r);

#endif

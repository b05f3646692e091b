/* SPDX-License-Identifier: Apache-2.0 */
/* Queues: configure, list, describe, delete, and sums over them. */
#ifndef QUEEND_QUEUE_H
#define QUEEND_QUEUE_H

struct hsrv_req;

void queue_configure(struct hsrv_req *r);	/* POST /configure */
void queue_list(struct hsrv_req *r);		/* GET /resources/queues */
void queue_get(struct hsrv_req *r);		/* GET .../queues/:queue */
void queue_depth(struct hsrv_req *r);		/* GET .../:queue/depth */
void queue_delete(struct hsrv_req *r);		/* DELETE .../queues/:queue */
void queue_overview(struct hsrv_req *r);	/* GET /resources/overview */
void queue_namespaces(struct hsrv_req *r);	/* GET /resources/namespaces */
void queue_tasks(struct hsrv_req *r);		/* GET /resources/tasks */

#endif

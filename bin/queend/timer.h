/* SPDX-License-Identifier: Apache-2.0 */
/* The routes under /api/v1/timers. */
#ifndef QUEEND_TIMER_H
#define QUEEND_TIMER_H

struct hsrv_req;

void timer_post(struct hsrv_req *r);
void timer_get(struct hsrv_req *r);
void timer_delete(struct hsrv_req *r);
void timer_list(struct hsrv_req *r);

#endif

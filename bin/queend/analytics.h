/* SPDX-License-Identifier: Apache-2.0 */
/* Series over the per-minute counters. */
#ifndef QUEEND_ANALYTICS_H
#define QUEEND_ANALYTICS_H

struct hsrv_req;

void analytics_queue_lag(struct hsrv_req *r);
void analytics_queue_ops(struct hsrv_req *r);
void analytics_retention(struct hsrv_req *r);
void analytics_postgres(struct hsrv_req *r);

#endif

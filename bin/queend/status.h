/* SPDX-License-Identifier: Apache-2.0 */
/* Health, status and metrics of the cell and of this process. */
#ifndef QUEEND_STATUS_H
#define QUEEND_STATUS_H

struct hsrv_req;

#define STATUS_ENGINE "queend-postgres"

/* status.c: this process, and one round trip for health */
void status_health(struct hsrv_req *r);		/* GET /health */
void status_process(struct hsrv_req *r);	/* GET /status */
void status_buffers(struct hsrv_req *r);	/* GET .../status/buffers */
void status_metrics(struct hsrv_req *r);	/* GET /metrics */
/* prom.c */
void status_prometheus(struct hsrv_req *r);	/* GET /metrics/prometheus */
/* overview.c: computed from the tables */
void status_overview(struct hsrv_req *r);	/* GET /api/v1/status */
void status_queues(struct hsrv_req *r);		/* GET .../status/queues */
void status_queue(struct hsrv_req *r);		/* GET .../queues/:queue */
void status_analytics(struct hsrv_req *r);	/* GET .../status/analytics */

#endif

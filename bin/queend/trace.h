/* SPDX-License-Identifier: Apache-2.0 */
/* Traces: events of applications about messages. */
#ifndef QUEEND_TRACE_H
#define QUEEND_TRACE_H

struct hsrv_req;

void trace_post(struct hsrv_req *r);	/* POST /traces */
void trace_get(struct hsrv_req *r);	/* GET /traces/:partition/:txn */
void trace_names(struct hsrv_req *r);	/* GET /traces/names */
void trace_by_name(struct hsrv_req *r);	/* GET /traces/by-name/:name */

#endif

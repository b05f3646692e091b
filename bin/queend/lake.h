/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The S3 sinks of tenants: stored here, run by queen-s3.  A cluster is named
 * by the UUID of its tenant, or `default`.
 */
#ifndef QUEEND_LAKE_H
#define QUEEND_LAKE_H

struct hsrv_req;

void lake_get(struct hsrv_req *r); /* GET /clusters/:cluster/s3 */
void lake_put(struct hsrv_req *r); /* PUT /clusters/:cluster/s3 */
void lake_delete(struct hsrv_req *r); /* DELETE /clusters/:cluster/s3 */
void lake_resume(struct hsrv_req *r); /* POST /clusters/:cluster/s3/resume */

#endif

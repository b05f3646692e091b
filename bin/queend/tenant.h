/* SPDX-License-Identifier: Apache-2.0 */
/* DELETE /api/v1/resources/tenant: removes all that a tenant stored. */
#ifndef QUEEND_TENANT_H
#define QUEEND_TENANT_H

struct hsrv_req;

void tenant_purge(struct hsrv_req *r);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* Renewal of leases (http-core 6). */
#ifndef QUEEND_LEASE_H
#define QUEEND_LEASE_H

struct hsrv_req;

void lease_extend(struct hsrv_req *r);

#endif

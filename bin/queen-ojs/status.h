/* SPDX-License-Identifier: Apache-2.0 */
/* Manifest, health, metrics, and the reset of conformance tests. */
#ifndef QUEEN_OJS_STATUS_H
#define QUEEN_OJS_STATUS_H

struct hsrv_req;

void status_manifest(struct hsrv_req *r);
void status_health(struct hsrv_req *r);
void status_metrics(struct hsrv_req *r);
void status_reset(struct hsrv_req *r);

#endif

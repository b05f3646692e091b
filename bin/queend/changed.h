/* SPDX-License-Identifier: Apache-2.0 */
/* Partition discovery and the settled time (http-core 9). */
#ifndef QUEEND_CHANGED_H
#define QUEEND_CHANGED_H

struct hsrv_req;

void changed_post(struct hsrv_req *r);

#endif

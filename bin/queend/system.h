/* SPDX-License-Identifier: Apache-2.0 */
/* Switches, wake-ups and the few constant answers of the admin surface. */
#ifndef QUEEND_SYSTEM_H
#define QUEEND_SYSTEM_H

struct hsrv_req;

void system_maintenance_get(struct hsrv_req *r);
void system_maintenance_post(struct hsrv_req *r);
void system_pop_get(struct hsrv_req *r);
void system_pop_post(struct hsrv_req *r);
void system_kv_timers_get(struct hsrv_req *r);
void system_kv_timers_post(struct hsrv_req *r);
void system_shared_state(struct hsrv_req *r);
void system_stats_refresh(struct hsrv_req *r);
void system_notify(struct hsrv_req *r);
void system_peers(struct hsrv_req *r);

#endif

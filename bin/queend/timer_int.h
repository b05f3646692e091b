/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the routes of timers. */
#ifndef QUEEND_TIMER_INT_H
#define QUEEND_TIMER_INT_H

#include "timer_ops.h"

struct err;
struct hsrv_req;

/* For a connection; longer waits are 503 timers_pool_exhausted. */
enum { TIMER_WAIT_MS = 1000 };

/* 400 timers_bad_request. */
void timer_refuse(struct hsrv_req *r, const char *reason, const char *detail);
/* Answers a call or read that failed in the database. */
void timer_failed(struct hsrv_req *r, const struct err *e);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* Recurring jobs: expressions, and their routes. */
#ifndef QUEEN_OJS_CRON_H
#define QUEEN_OJS_CRON_H

#include <stdbool.h>
#include <stdint.h>

#include "span.h"

struct hsrv_req;

/* Bit n = value n; cron(5): the day matches either field when both are set. */
struct cron_expr {
	uint64_t minutes;	/* 0-59 */
	uint32_t hours;		/* 0-23 */
	uint32_t days;		/* 1-31 */
	uint32_t months;	/* 1-12 */
	uint32_t weekdays;	/* 0-6, Sunday 0 */
	bool any_day, any_weekday;	/* the field began with a star */
};
/* *why is a literal that says what is wrong. */
bool cron_parse(struct span s, struct cron_expr *e, const char **why);

void cron_list(struct hsrv_req *r);
void cron_put(struct hsrv_req *r);
void cron_get(struct hsrv_req *r);
void cron_delete(struct hsrv_req *r);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files of cron. */
#ifndef QUEEN_OJS_CRON_INT_H
#define QUEEN_OJS_CRON_INT_H

#include "cron.h"
#include "job.h"

/* A registration, read. */
struct cron_body {
	struct span name, expression, zone, overlap;
	struct cron_expr when;
	bool enabled;
	struct job_spec spec;	/* the template */
	struct span shown;	/* its members as they go into answers */
};
/*
 * Both forms: with `job_template`, or with its members beside ours.  The
 * database tells whether the zone exists.  -1 with the problem.
 */
int cron_body_parse(struct span body, size_t max_bytes, struct arena *a,
	int64_t now_us, struct cron_body *c, struct problem *p)
	__attribute__((warn_unused_result));

#endif

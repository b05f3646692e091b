/* SPDX-License-Identifier: Apache-2.0 */
/* An envelope while it is read: inside of job_spec. */
#ifndef QUEEN_OJS_JOB_SPEC_H
#define QUEEN_OJS_JOB_SPEC_H

#include "buf.h"
#include "job_int.h"
#include "jwrite.h"

/* From SPEC_RETRY on they are shown as sent. */
enum spec_field {
	SPEC_SPECVERSION, SPEC_ID, SPEC_TYPE, SPEC_ARGS, SPEC_META,
	SPEC_OPTIONS, SPEC_QUEUE, SPEC_PRIORITY, SPEC_TIMEOUT, SPEC_TIMEOUT_MS,
	SPEC_LEASE, SPEC_LEASE_MS, SPEC_SCHEDULED_AT, SPEC_DELAY_UNTIL,
	SPEC_EXPIRES_AT, SPEC_RETRY, SPEC_UNIQUE, SPEC_RATE, SPEC_SCHEMA,
	SPEC_TAGS, SPEC_PENDING, SPEC_FIELDS
};

struct spec {
	struct arena *a;
	struct problem *p;
	struct job_spec *out;
	int64_t now_us;
	struct jspan_val v[SPEC_FIELDS];
	bool option[SPEC_FIELDS];	/* it stood in `options` */
	struct buf rest, options;	/* members nobody knows */
	struct jwrite w;		/* the document */
};

/*
 * The moments of a job and its lengths: reads them, and writes what is shown.
 * The database looks for `scheduled_at` at the very beginning.
 */
int spec_moments(struct spec *s) __attribute__((warn_unused_result));
int spec_lengths(struct spec *s) __attribute__((warn_unused_result));

#endif

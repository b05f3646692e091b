/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files of job. */
#ifndef QUEEN_OJS_JOB_INT_H
#define QUEEN_OJS_JOB_INT_H

#include "job.h"
#include "jspan.h"

enum { JOB_DEPTH_MAX = 32, JOB_WORKER_MAX = 255 };
/* No time span is longer: 100 years. */
#define JOB_LENGTH_MAX_MS (INT64_C(100) * 366 * 86400 * 1000)

/* Lower-case UUIDv7 and nothing else. */
bool job_id_parse(struct span s, struct qid *id);
/* Is the JSON value, known to be one, nested no deeper than max? */
bool job_depth_ok(struct span raw, int max);

/* ---- fields of a body ---- */

/* v: type JSPAN_NONE when the field is absent or null. */
struct job_field {
	const char *name;
	struct jspan_val *v;
	bool keep_null;
};
/*
 * The values of some fields of an object, the last of each name; others are
 * skipped.  -1 with 400.
 */
int job_fields(struct span body, struct arena *a, const struct job_field *f,
	size_t n, struct problem *p) __attribute__((warn_unused_result));
/* *out stays when the field is absent. */
int job_text(const struct jspan_val *v, struct arena *a, const char *field,
	size_t max_bytes, struct span *out, struct problem *p)
	__attribute__((warn_unused_result));
int job_number(const struct jspan_val *v, struct arena *a, const char *field,
	int64_t min, int64_t max, int64_t *out, struct problem *p)
	__attribute__((warn_unused_result));
int job_flag(const struct jspan_val *v, struct arena *a, const char *field,
	bool *out, struct problem *p) __attribute__((warn_unused_result));

/* ---- answers ---- */

/* A verdict that is no success, as a problem; expected: the state it takes. */
void job_problem(struct arena *a, const PGresult *res, int row,
	const char *expected, struct problem *p);
/* The same, answered; JOB_MISSING names the id that was asked for. */
void job_refuse_to(struct hsrv_req *r, const PGresult *res, int row,
	const struct qid *id, const char *expected);
/* 404. */
void job_unknown(struct hsrv_req *r, struct span id);
/* 200 {"job":...}, extra as in job_write. */
void job_reply(struct hsrv_req *r, const PGresult *res, int row,
	struct span extra);
/* A time of the row, as a member; nothing when it is null. */
void job_write_at(struct jwrite *w, const char *key, const PGresult *res,
	int row, int col);

/* ---- calls ---- */

/* A call that takes tenant and id, and what it may be answered by. */
struct job_one {
	struct qid id;
	const char *resource;	/* what a 404 names; NULL = job */
	bool changes;		/* what its rows made available is told */
	const char *expected;
	void (*found)(struct hsrv_req *r, const PGresult *res);
};
struct pgstmt;
void job_one_run(struct hsrv_req *r, const struct pgstmt *stmt,
	const struct job_one *one);

#endif

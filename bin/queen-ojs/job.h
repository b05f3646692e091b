/* SPDX-License-Identifier: Apache-2.0 */
/* Jobs: what a push may say, what the database answers, and the routes. */
#ifndef QUEEN_OJS_JOB_H
#define QUEEN_OJS_JOB_H

#include <libpq-fe.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "pgbin.h"
#include "qid.h"
#include "reply.h"
#include "span.h"

struct arena;
struct hsrv_req;
struct jwrite;

/* As in queen.jobs.state. */
enum job_state {
	JOB_AVAILABLE, JOB_ACTIVE, JOB_SCHEDULED, JOB_RETRYABLE, JOB_PENDING,
	JOB_COMPLETED, JOB_CANCELLED, JOB_DISCARDED,
	JOB_HELD, /* of a workflow, not pushed yet: nobody sees it */
	JOB_STATES
};
const char *job_state_name(int state);

/* As in queen.job_out.verdict. */
enum job_verdict {
	JOB_OK,
	JOB_MISSING,	/* no such job */
	JOB_CONFLICT,	/* its state (in the row) forbids it */
	JOB_TAKEN,	/* the id is used: row of the other job */
	JOB_UNIQUE,	/* unique conflict, reject: row of the other job */
	JOB_KNOWN,	/* unique conflict, ignore: row of the other job */
	JOB_FULL,	/* quota of the queue */
	JOB_WORKER,	/* another worker holds it */
	JOB_ATTEMPT,	/* another attempt runs */
	JOB_QUEUE,	/* fetch: no job, but what queue idx is: queue_id (null =
			   none), attempt = 1 when it is paused */
};

/* Columns of queen.job_out, in order. */
enum {
	JOB_OUT_VERDICT, JOB_OUT_IDX, JOB_OUT_QUEUE_ID, JOB_OUT_SEQ,
	JOB_OUT_RANK, JOB_OUT_ID, JOB_OUT_TYPE, JOB_OUT_QUEUE, JOB_OUT_STATE,
	JOB_OUT_DOC, JOB_OUT_ATTEMPT, JOB_OUT_MAX_ATTEMPTS, JOB_OUT_CREATED_AT,
	JOB_OUT_ENQUEUED_AT, JOB_OUT_STARTED_AT, JOB_OUT_COMPLETED_AT,
	JOB_OUT_CANCELLED_AT, JOB_OUT_DISCARDED_AT, JOB_OUT_NEXT_ATTEMPT_AT,
	JOB_OUT_RETRY_DELAY_MS, JOB_OUT_ERROR, JOB_OUT_ERRORS, JOB_OUT_RESULT,
	JOB_OUT_WORKER, JOB_OUT_LEASE_UNTIL, JOB_OUT_PREVIOUS_STATE,
	JOB_OUT_PARENTS, JOB_OUT_WORKFLOW_ID, JOB_OUT_UNIQUE_KEY
};
#define JOB_OUT_SQL                                                            \
	"verdict, idx, queue_id, seq, rank, id, type, queue, state, doc, "     \
	"attempt, max_attempts, created_at, enqueued_at, started_at, "         \
	"completed_at, cancelled_at, discarded_at, next_attempt_at, "          \
	"retry_delay_ms, error, errors, result, worker, lease_until, "         \
	"previous_state, parents, workflow_id, unique_key"

/* ---- a push, parsed: queen.job_spec ---- */

struct job_spec {
	struct qid id;		/* generated when the client gave none */
	struct span type, queue;
	struct span doc;	/* members as they go into every answer */
	int rank;		/* -priority */
	int max_attempts;
	int64_t due_us;		/* 0 = none */
	bool pending;
	int64_t expires_us;	/* 0 = never */
	int64_t timeout_ms, lease_ms;	/* 0 = none given */
	struct span policy, unique, rate;	/* JSON; n = 0 = none */
};

/*
 * One envelope of at most max_bytes.  body: one JSON value, borrowed; now_us:
 * of the database, for relative times.  -1 with the problem.
 */
int job_spec_parse(struct span body, size_t max_bytes, struct arena *a,
	int64_t now_us, struct job_spec *s, struct problem *p)
	__attribute__((warn_unused_result));
/* The 14 arrays of queen.job_spec, in its order. */
void job_spec_args(
	struct pgargs *a, const struct job_spec *s, size_t n);

/* ---- a job, written ---- */

/* The whole job, an object; extra: more members, raw, or n = 0. */
void job_write(struct jwrite *w, const PGresult *res, int row,
	struct span extra);
/* The answer to a verdict that is no success (`details` and all). */
void job_refuse(struct hsrv_req *r, const PGresult *res, int row);
/* Tells who waits, when the row is a job that became available. */
void job_tell(struct hsrv_req *r, const PGresult *res, int row);

/* ---- routes ---- */

void job_push(struct hsrv_req *r);
void job_push_batch(struct hsrv_req *r);
void job_info(struct hsrv_req *r);
void job_cancel(struct hsrv_req *r);
void job_activate(struct hsrv_req *r);
void job_fetch(struct hsrv_req *r);
void job_ack(struct hsrv_req *r);
void job_nack(struct hsrv_req *r);
void job_heartbeat(struct hsrv_req *r);
void job_events(struct hsrv_req *r);
void job_dead_list(struct hsrv_req *r);
void job_dead_get(struct hsrv_req *r);
void job_dead_retry(struct hsrv_req *r);
void job_dead_delete(struct hsrv_req *r);

#endif

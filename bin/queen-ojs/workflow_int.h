/* SPDX-License-Identifier: Apache-2.0 */
/* Between the files of workflow*.c: a workflow as asked for, and as shown. */
#ifndef QUEEN_OJS_WORKFLOW_INT_H
#define QUEEN_OJS_WORKFLOW_INT_H

#include <libpq-fe.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "job.h"
#include "qid.h"
#include "reply.h"
#include "span.h"

struct arena;
struct jwrite;

enum { WORKFLOW_NAME_MAX = 255 };
enum workflow_kind {
	WORKFLOW_CHAIN,
	WORKFLOW_GROUP,
	WORKFLOW_BATCH,
	WORKFLOW_KINDS
};
/* As in queen.ojs_workflow_jobs.role. */
enum workflow_role {
	WORKFLOW_STEP,
	WORKFLOW_JOB,
	WORKFLOW_COMPLETE,
	WORKFLOW_SUCCESS,
	WORKFLOW_FAILURE,
	WORKFLOW_ROLES
};
const char *workflow_kind_name(enum workflow_kind k);
const char *workflow_role_name(enum workflow_role role);

struct workflow_limits {
	size_t envelope_bytes; /* of each job */
	size_t jobs; /* members and callbacks */
};

struct workflow_ask {
	struct qid id;
	enum workflow_kind kind;
	struct span name; /* n = 0 = none */
	struct job_spec *specs; /* members in order, then callbacks */
	enum workflow_role *roles;
	size_t n; /* of both */
	size_t members;
};

/*
 * body: one JSON object, borrowed.  -1 with the problem of the first job that
 * has one (`details.index` or `details.callback`), or with 422 for a shape
 * that is not served (workflows inside workflows, `depends_on`).
 */
int workflow_parse(struct span body, const struct workflow_limits *l,
	struct arena *a, int64_t now_us, struct workflow_ask *k,
	struct problem *p) __attribute__((warn_unused_result));

/* What every answer says of a workflow. */
struct workflow_head {
	struct qid id;
	struct span kind, name;
	int state; /* as in queen.ojs_workflows.state */
	int total, completed, failed;
	int64_t created_us, ended_us; /* 0 = it runs */
};
/* Columns of the functions that answer workflows; others follow. */
#define WORKFLOW_HEAD_SQL                                                      \
	"id, kind, name, state, total, completed, failed, created_at, "        \
	"ended_at"
enum { WORKFLOW_HEAD_STATE = 3, WORKFLOW_HEAD_COLUMNS = 9 };
struct workflow_head workflow_head(const PGresult *res, int row);
const char *workflow_state_name(int state);
/* The members of the object; then come the jobs, if at all. */
void workflow_head_write(struct jwrite *w, const struct workflow_head *h);

/* A job of a workflow; role a name; state of the job, JOB_HELD = waits. */
struct workflow_job {
	struct qid id;
	struct span role, type, queue;
	int state;
};
/*
 * In order of the rows: jobs first, then callbacks; begins and ends the list
 * and the object of callbacks by itself.
 */
struct workflow_jobs {
	struct jwrite *w;
	bool called;
};
void workflow_jobs_begin(
	struct workflow_jobs *l, struct jwrite *w, struct span kind);
void workflow_jobs_add(struct workflow_jobs *l, const struct workflow_job *j);
void workflow_jobs_end(struct workflow_jobs *l);

#endif

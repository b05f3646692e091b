/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The sink's calls on the cell, over one pool of connections.  Each answers
 * once and always later, unless cancelled; the error's kind says whether it
 * may be repeated.
 */
#ifndef QUEEN_S3_CELL_H
#define QUEEN_S3_CELL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "qid.h"
#include "span.h"

struct arena;
struct cell;
struct cell_call;
struct engine;
struct engine_found;
struct engine_step;
struct err;
struct loop;
struct seal;

struct cell_conf {
	const char *conninfo;
	const struct seal *seal; /* NULL: no keys; borrowed */
	int64_t guard_ms; /* of safeTime behind the clock */
	int64_t floor_ms; /* of a degraded one */
};
struct cell *cell_new(struct loop *l, const struct cell_conf *c);
void cell_free(struct cell *c);
bool cell_is_up(const struct cell *c);
bool cell_may_retry(const struct err *e);
void cell_cancel(struct cell_call *call);

/*
 * Does a step of an engine (DISCOVER, SEEK, FETCH) and tells the engine the
 * answer, engine_on_done and engine_on_failed included; then fn, e NULL when
 * it went well.  Cancelled: the engine hears nothing.
 */
typedef void (*cell_step_fn)(void *arg, const struct err *e);
struct cell_call *cell_step(struct cell *c, const struct qid *tenant,
	const char *queue, struct engine *engine, const struct engine_step *s,
	cell_step_fn fn, void *arg);

/* Names of all queues of a tenant, sorted. */
typedef void (*cell_queues_fn)(
	void *arg, const struct span *names, size_t n, const struct err *e);
struct cell_call *cell_queues(
	struct cell *c, const struct qid *tenant, cell_queues_fn fn, void *arg);

/* Documents of the sinks of tenants. */
struct cell_sink {
	struct qid tenant;
	struct span cluster; /* as it was named */
	bool enabled;
	struct span config; /* JSON text */
	struct span secret; /* sealed */
	int64_t updated_us;
};
typedef void (*cell_sinks_fn)(
	void *arg, const struct cell_sink *rows, size_t n, const struct err *e);
struct cell_call *cell_sinks(struct cell *c, cell_sinks_fn fn, void *arg);

/* ---- rows of namespace queen-s3 ---- */
enum { CELL_ABSENT = 0, CELL_ANY = -1 };
struct cell_row {
	struct span key; /* of a listing */
	bool found; /* put, delete: applied */
	int64_t version; /* 0 when there is none */
	struct span value;
};
typedef void (*cell_row_fn)(
	void *arg, const struct cell_row *r, const struct err *e);
typedef void (*cell_rows_fn)(
	void *arg, const struct cell_row *rows, size_t n, const struct err *e);
struct cell_call *cell_get(struct cell *c, const struct qid *tenant,
	struct span key, cell_row_fn fn, void *arg);
/* Several at once, answered in the order asked. */
struct cell_call *cell_get_many(struct cell *c, const struct qid *tenant,
	const struct span *keys, size_t n, cell_rows_fn fn, void *arg);
/* All live rows under a prefix. */
struct cell_call *cell_list(struct cell *c, const struct qid *tenant,
	struct span prefix, cell_rows_fn fn, void *arg);
/* ttl_s 0: for ever.  Lost: the row as it is now. */
struct cell_call *cell_put(struct cell *c, const struct qid *tenant,
	struct span key, struct span value, int64_t expect, int64_t ttl_s,
	cell_row_fn fn, void *arg);
struct cell_call *cell_delete(struct cell *c, const struct qid *tenant,
	struct span key, int64_t expect, cell_row_fn fn, void *arg);
/*
 * The fence, in one call that writes both or nothing: the lease row,
 * at the version this process wrote last, and a pointer at the version it read.
 * drop: a third row to delete with them, or empty.  Whose answer was lost sends
 * the same again; then it tells what became of the first.
 */
struct cell_fence {
	struct span lease_key, lease_value;
	int64_t lease_expect, lease_ttl_s;
	struct span key, value;
	int64_t expect;
	struct span drop;
};
enum cell_fenced {
	CELL_APPLIED, /* now, or by this very call whose answer was lost */
	CELL_LEASE_LOST,
	CELL_POINTER_LOST,
	CELL_LEASE_MOVED, /* nothing was done; ours, at the version that is told */
};
typedef void (*cell_fence_fn)(void *arg, enum cell_fenced verdict,
	int64_t lease_version, int64_t version, const struct err *e);
struct cell_call *cell_fence(struct cell *c, const struct qid *tenant,
	const struct cell_fence *f, cell_fence_fn fn, void *arg);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One sink of one tenant on this node: its bucket, its share of its queues,
 * their list when it is `*`, and what there is to tell of them.
 */
#ifndef QUEEN_S3_SINK_H
#define QUEEN_S3_SINK_H

#include <stdbool.h>
#include <stdint.h>

#include "health.h"
#include "qid.h"

struct arena;
struct ctx;
struct err;
struct jwrite;
struct metrics_sink;
struct metrics_tenant;
struct s3conf;
struct sink;

enum sink_end {
	SINK_STOPPED, /* as asked; every queue is handed over */
	SINK_TWIN, /* another process runs under this instance's name */
};
/* Called once; the sink may be freed out of it. */
typedef void (*sink_end_fn)(void *arg, enum sink_end why);

struct sink_conf {
	struct s3conf *conf; /* taken over, its secret included */
	struct qid tenant;
	bool env; /* the environment's */
	struct metrics_tenant *metrics; /* borrowed */
	sink_end_fn on_end;
	void *arg;
};
/* Nothing runs yet.  NULL with ERR_CONFIG. */
struct sink *sink_new(struct ctx *x, const struct sink_conf *c, struct err *e);
void sink_free(struct sink *s);

/* One probe of the bucket; text: why not, for the operator. */
typedef void (*sink_probe_fn)(void *arg, bool ok, const char *text);
void sink_probe(struct sink *s, sink_probe_fn fn, void *arg);
/*
 * Makes sure that no twin runs, waits for the bucket to answer, then runs the
 * queues.
 */
void sink_start(struct sink *s);
void sink_stop(struct sink *s);

bool sink_runs(const struct sink *s); /* past the waits of the start */
/* Writes the members of its object in /status that are the sink's. */
void sink_write_status(const struct sink *s, struct jwrite *w);
bool
sink_behind(const struct sink *s, int64_t now_ms, struct health_behind *out);
int sink_watched(const struct sink *s); /* queues health looks at */
void
sink_metrics(const struct sink *s, struct arena *a, struct metrics_sink *out);

#endif

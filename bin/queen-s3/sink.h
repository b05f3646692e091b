/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One sink of one tenant on this node: its bucket, its share of its queues,
 * their list when it is `*`, and what there is to tell of them.
 */
#ifndef QUEEN_S3_SINK_H
#define QUEEN_S3_SINK_H

#include <stdbool.h>
#include <stdint.h>

#include "qid.h"
#include "span.h"

struct buf;
struct ctx;
struct err;
struct s3conf;
struct sink;

/* Ended: every queue is handed over; may be freed out of it. */
typedef void (*sink_end_fn)(void *arg, struct sink *s);

/*
 * conf: taken over, secret included.  cluster: NULL for the environment's.
 * wait_bucket: no queue before the bucket has answered once.  NULL with
 * ERR_CONFIG.
 */
struct sink *sink_new(struct ctx *x, struct s3conf *conf,
	const struct qid *tenant, const char *cluster, bool wait_bucket,
	sink_end_fn on_end, void *arg, struct err *e);
void sink_free(struct sink *s);
void sink_start(struct sink *s);
void sink_stop(struct sink *s);
/* One probe of the bucket, at boot; text: why not, for the operator. */
void sink_probe(struct sink *s,
	void (*fn)(void *arg, bool ok, const char *text), void *arg);

const struct qid *sink_tenant(const struct sink *s);
/* Appends its object of /status (spec 17.1). */
void sink_write_status(const struct sink *s, struct buf *b);

/* The first queue beyond its limit, by name; false: all is well. */
struct sink_behind {
	struct span queue;
	int64_t stale_ms, limit_ms;
};
bool sink_behind(const struct sink *s, int64_t now_ms, struct sink_behind *out);
int sink_queues(const struct sink *s); /* that health looks at */

/* What the metrics are made of, one family after the other over all sinks. */
struct sink_series;
const struct sink_series *sink_series(const struct sink *s);

#endif

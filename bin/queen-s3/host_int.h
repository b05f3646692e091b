/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shared by the files of host:
 *	host.c		boot after the cell was met, signals, the end
 *	host_sink.c	a tenant's sink: made, replaced, ended
 *	host_rows.c	what the rows of the cell ask for
 *	host_http.c	/healthz, /status, /metrics
 */
#ifndef QUEEN_S3_HOST_INT_H
#define QUEEN_S3_HOST_INT_H

#include <sys/queue.h>

#include "cell.h"
#include "ctx.h"
#include "err.h"
#include "host.h"
#include "log.h"
#include "loop.h"
#include "metrics.h"
#include "sink.h"

struct hsrv;
struct s3conf;

/* One tenant's; it lives as long as its configuration. */
struct tenant {
	TAILQ_ENTRY(tenant) link; /* in the order of ids */
	struct host *host;
	struct qid id;
	char text[QID_TEXT_MAX];
	bool env;
	char *cluster; /* NULL: the environment's */
	int64_t updated_us; /* of the row that is in force */
	bool seen; /* in the rows just read */
	bool wanted, gone;
	struct s3conf *next; /* to run when the one before is gone */
	struct sink *sink;
	bool stopping;
	uint64_t restarts;
	char error[512]; /* why it does not run; "" = it may */
	struct metrics_tenant metrics;
};
TAILQ_HEAD(tenant_list, tenant);

struct host {
	struct ctx *x;
	struct hsrv *hsrv;
	struct tenant_list tenants;
	int64_t started_ms;
	/* the rows */
	struct cell_call *reading;
	struct loop_timer rows_timer;
	bool rows_read; /* once at least */
	int rows_enabled; /* sinks the rows want to run */
	char rows_error[256];
	struct log_sampler bad_rows;
	/* boot and end */
	bool begun, probed, stopping, quiet;
	struct loop_timer grace, watchdog;
	int code;
};

/* host.c */
/* Ends the process with a sentence. */
void host_fail(struct host *h, int code, const char *text);
void host_end_if_quiet(struct host *h);
/*
 * After the first read of the rows, whatever came of it: what a silent bucket
 * means depends on them.
 */
void host_begin(struct host *h);

/* host_sink.c */
struct tenant *
host_sink_add(struct host *h, const struct qid *id, const char *cluster);
struct tenant *host_sink_find(struct host *h, const struct qid *id);
/* Takes conf over: it runs once the one before has drained. */
void host_sink_set(struct tenant *t, struct s3conf *conf);
/* Stops; forget: and is then removed with all it counted. */
void host_sink_stop(struct tenant *t, bool forget);
void host_sink_error(struct tenant *t, const char *text);
void host_sink_free(struct tenant *t);
const char *host_sink_phase(const struct tenant *t);

/* host_rows.c */
void host_rows_read(void *host);

/* host_http.c */
int host_http_start(struct host *h, struct err *e)
	__attribute__((warn_unused_result));

#endif

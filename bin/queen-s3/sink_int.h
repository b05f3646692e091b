/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shared by the files of sink:
 *	sink.c		start and end
 *	sink_list.c	which queues there are, one task for each
 *	sink_probe.c	the bucket
 *	sink_tell.c	status, health, metrics
 */
#ifndef QUEEN_S3_SINK_INT_H
#define QUEEN_S3_SINK_INT_H

#include <sys/queue.h>

#include "cell.h"
#include "ctx.h"
#include "log.h"
#include "loop.h"
#include "queue.h"
#include "s3.h"
#include "sink.h"

struct sink_queue {
	TAILQ_ENTRY(sink_queue) link; /* in the order of names */
	struct sink *sink;
	struct queue *queue;
	bool leaving; /* told to stop */
};
TAILQ_HEAD(sink_queues, sink_queue);

enum sink_phase {
	SINK_NEW,
	SINK_WATCHING,
	SINK_WAITING,
	SINK_RUNNING,
	SINK_STOPPING
};

struct sink {
	struct sink_conf conf;
	struct s3conf s3conf;
	struct sink_ctx x;
	enum sink_phase phase;
	int64_t started_ms;
	struct sink_queues queues;
	int queues_n;
	/* is there a twin?  two looks at the presence row of our name */
	struct cell_call *look;
	struct loop_timer watch;
	int64_t seen_version; /* -1: not looked yet */
	/* the list of `*` */
	struct cell_call *listing;
	struct loop_timer list_timer;
	struct log_sampler bad_list;
	/* the bucket */
	struct s3_req *probing;
	struct loop_timer probe_timer;
	sink_probe_fn probe_fn;
	void *probe_arg;
	int64_t probe_wait_ms;
	bool checked, reachable;
	int64_t checked_us;
	char bucket_error[400];
	struct log_sampler bad_bucket;
	/* health */
	struct health health;
	struct loop_timer second;
	bool left; /* place_leave is under way */
};

/* sink.c */
void sink_bucket_answers(struct sink *s);
/* Every queue is gone, if so: leaves. */
void sink_end_if_quiet(struct sink *s);

/* sink_list.c */
void sink_list_init(struct sink *s);
void sink_list_run(struct sink *s);
void sink_list_stop(struct sink *s);
void sink_list_free(struct sink *s);
/* place asks for a queue of ours. */
void sink_list_give_back(void *sink);

/* sink_probe.c */
void sink_probe_again(void *sink);
void sink_probe_free(struct sink *s);

/* sink_tell.c */
void sink_tell_second(void *sink);

#endif

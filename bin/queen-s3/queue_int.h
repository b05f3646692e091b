/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of a queue share.  One thing is under way at a time (the main
 * flow: a request, a call, a fence or a wait, then the next function); beside
 * it run the reads of the engine, the upload of a checkpoint and the lease.
 * What ends a life is done in a turn of its own (queue_finish).
 */
#ifndef QUEEN_S3_QUEUE_INT_H
#define QUEEN_S3_QUEUE_INT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

#include "arena.h"
#include "budget.h"
#include "buf.h"
#include "ctx.h"
#include "doc.h"
#include "engine.h"
#include "key.h"
#include "lease.h"
#include "log.h"
#include "loop.h"
#include "map.h"
#include "object.h"
#include "queue.h"
#include "s3.h"
#include "settings.h"

struct cell_call;
struct cell_row;
struct err;
struct format;

enum {
	QUEUE_RETRY_FIRST_MS = 1000,
	QUEUE_RETRY_MAX_MS = 60000,
	QUEUE_HURRY_MS = 250, /* the longest wait of a drain */
	QUEUE_FAILED_MS = 60000,
	QUEUE_MISSING_MS = 5000,
	QUEUE_RESUME_POLL_MS = 3000,
	QUEUE_LOG_EVERY_MS = 5000,
	QUEUE_SLICE_US = 10000,
	QUEUE_MANIFEST_MAX = 512 << 20,
	QUEUE_CHECKPOINT_MAX = 512 << 20,
};

typedef void (*queue_next_fn)(struct queue *q);
/* a: NULL when a soft request failed. */
typedef void (*queue_answer_fn)(struct queue *q, const struct s3_answer *a);

/* Kinds of failures, each with its own silence in the log. */
enum queue_trouble {
	QUEUE_OF_PUT,
	QUEUE_OF_KV,
	QUEUE_OF_FETCH,
	QUEUE_OF_DISCOVERY,
	QUEUE_OF_CLAIM,
	QUEUE_OF_REST,
	QUEUE_TROUBLES
};

enum queue_phase {
	QUEUE_AWAY, /* not ours */
	QUEUE_START, /* ours; restoring or held */
	QUEUE_RUN, /* the engine reads */
	QUEUE_WINDOW, /* from a close to the next read */
};

/* A read of the engine. */
struct queue_read {
	struct queue *q;
	TAILQ_ENTRY(queue_read) link;
	struct cell_call *call;
	enum engine_what what;
};

/* The request of the main flow, to be sent again. */
struct queue_io {
	struct s3_req *req;
	struct s3 *s3;
	struct buf key, after;
	const struct object *object; /* a PUT */
	const char *type;
	s3_part_fn on_part;
	size_t max_bytes; /* a GET; 0: a LIST */
	bool soft; /* a failure is an answer */
	queue_answer_fn fn;
};

/* The fence of the main flow. */
struct queue_fencing {
	enum key_row pointer, drop;
	struct buf value;
	int64_t *version;
	queue_next_fn fn;
	bool busy; /* out, or waits for its next try */
};

/* One partition's object to be. */
struct queue_part {
	int64_t records, first, last;
};

/* A key of the plan of an earlier try. */
struct queue_planned {
	struct span key;
	bool rebuilt;
};

/* The window in its commit sequence. */
struct queue_window {
	struct arena arena;
	struct doc_intent intent; /* its bounds and its shape */
	struct key_of keys;
	struct s3 *s3, *s3_own; /* own: of another bucket than ours */
	bool redo, looked;
	queue_next_fn put_after_look;
	struct doc_manifest manifest;
	size_t objects_cap, lost_cap;
	struct buf manifest_key;
	/* the object that is built */
	struct object object;
	struct format *format;
	struct doc_object entry;
	/* per-partition */
	struct queue_part *parts;
	size_t parts_n, parts_cap, part;
	struct buf part_name, part_key, part_start;
	struct doc_plan_writer *plan;
	struct doc_plan_reader *old;
	struct buf old_text;
	struct map planned; /* keys of an earlier try: struct queue_planned */
	struct queue_planned **olds; /* in the order of the plan */
	size_t olds_n, olds_cap, old_at;
	struct queue_part part_now;
};

struct queue_checkpoint {
	struct s3_req *req;
	struct object object;
	struct doc_checkpoint_writer *writer;
	struct doc_checkpoint_reader *reader;
	struct buf key, text;
	struct doc_checkpoint doc;
	int64_t newest; /* of a listing; -1 */
	queue_next_fn after;
	uint64_t positions;
};

struct queue {
	const struct sink_ctx *x;
	char *name;
	queue_end_fn on_end;
	queue_window_fn on_window;
	void *arg;

	enum queue_state state;
	enum queue_phase phase;
	bool stopping, giving_back; /* a drain is on */
	bool ending; /* this life */
	enum queue_state end_state;
	struct loop_timer timer, end_timer, blocked_timer;
	queue_next_fn next; /* of the timer */
	int64_t retry_ms;

	/* claiming */
	struct lease *lease;
	bool claiming; /* a look or claim is out */
	bool slot, owned;
	int ahead;
	int64_t free_since_ms, jitter_ms, gave_back_ms;
	struct buf holder;

	/* what the rows say */
	struct arena rows, wish;
	int64_t intent_version, committed_version, resume_version;
	bool has_intent, intent_is_text, guarded;
	struct doc_intent intent;
	struct doc_committed committed; /* k 0: none */
	struct doc_resume resume;
	int64_t newest_manifest;
	char held_why[160]; /* "": it is not held */
	int64_t held_ms, look_at_ms; /* until it is looked at again, and when */

	struct cell_call *call;
	struct queue_io io;
	struct queue_fencing fence;
	struct engine *engine;
	TAILQ_HEAD(queue_reads, queue_read) reads;
	bool backing_off; /* reads wait */
	struct queue_window w;
	struct queue_checkpoint ckpt;
	struct budget_item budget;
	bool budgeted;

	/* what is told */
	struct queue_counts counts;
	struct engine_stats stats;
	bool has_stats;
	int64_t safe_ms; /* when stats.safe_us was first seen */
	int64_t known_k, known_us, checkpoint_k;
	char last_error[400];
	int64_t last_error_us;
	struct log_sampler samplers[QUEUE_TROUBLES];
	bool degraded_told, missing_told, ahead_told;
	int64_t blocked_told;
};

/* ---- queue.c: the main flow ---- */
void queue_wait(struct queue *q, int64_t ms, queue_next_fn fn);
void queue_turn(struct queue *q, queue_next_fn fn); /* the next slice */
int64_t queue_slice_end(void);
bool queue_slice_over(int64_t end_us);
bool queue_draining(const struct queue *q);
/*
 * What is not surely in the bucket is this old; -1: not known.  It grows while
 * no newer safeTime is read, as in the sequence of a window.
 */
int64_t queue_lag_us(const struct queue *q);
/* How long before the next try; a server's wish is taken exactly. */
int64_t queue_retry_ms(struct queue *q, int64_t wish_ms);
struct span queue_name_of(const struct queue *q);
struct span queue_tenant_of(const struct queue *q);
struct loop *queue_loop(const struct queue *q);
const struct settings *queue_settings(const struct queue *q);

/* ---- queue_say.c ---- */
void queue_say(struct queue *q, enum log_level level, const char *message,
	const char *fmt, ...) __attribute__((format(printf, 4, 5)));
/* Of the steps of a life; a queue that is still missing is told of once. */
enum log_level queue_level(const struct queue *q);
/* Sampled; remembered as the last error. */
void queue_trouble(struct queue *q, enum queue_trouble kind, const char *text);
void queue_remember(struct queue *q, const char *text);

/* ---- queue_io.c ---- */
/* Each again and again while it may be; what is final ends as failed. */
void queue_put(struct queue *q, struct s3 *s3, struct span key,
	const char *type, const struct object *o, s3_part_fn on_part,
	queue_answer_fn fn);
void queue_get(struct queue *q, struct s3 *s3, struct span key,
	size_t max_bytes, queue_answer_fn fn);
void queue_get_soft(struct queue *q, struct s3 *s3, struct span key,
	size_t max_bytes, queue_answer_fn fn);
/* Keys under a prefix, at most 1000, behind `after`. */
void queue_list(struct queue *q, struct span prefix, struct span after,
	bool soft, queue_answer_fn fn);
void queue_io_cancel(struct queue *q);
/* A failed call on the cell: true when it is tried again (wait, then fn). */
bool queue_again(struct queue *q, enum queue_trouble kind, const struct err *e,
	queue_next_fn fn);
/* value: taken.  A lost one ends as fenced. */
void queue_fence(struct queue *q, enum key_row pointer, struct buf *value,
	int64_t *version, enum key_row drop, queue_next_fn fn);

/* ---- queue_claim.c ---- */
void queue_claim(struct queue *q);
void queue_disown(struct queue *q); /* slot and share; the lease is freed */

/* ---- queue_restore.c ---- */
void queue_restore(struct queue *q);
/* Is the bucket ahead of the cell?  Else: queue_pump, or queue_load. */
void queue_guard(struct queue *q);
/* Is this manifest of this sink, tenant and queue? */
bool queue_owns_manifest(const struct queue *q, const struct doc_manifest *m);

/* ---- queue_hold.c ---- */
void queue_hold(struct queue *q, const char *why);
bool queue_is_foreign(const struct queue *q);
void queue_unhold(struct queue *q);

/* ---- queue_load.c ---- */
void queue_load(struct queue *q); /* positions, the engine, the first read */
void queue_engine_drop(struct queue *q);

/* ---- queue_run.c ---- */
void queue_pump(struct queue *q);
void queue_reads_cancel(struct queue *q);
void queue_observe(struct queue *q); /* the engine's figures, and the budget */
void queue_on_blocked(void *arg);

/* ---- queue_window.c ---- */
void queue_window_begin(struct queue *q);
/* A window's place: its keys, and its bucket; false: it ends as failed. */
bool queue_window_place(struct queue *q, const struct doc_intent *i);
void queue_window_drop(struct queue *q);
/* From the manifest in w to the pointer. */
void queue_window_commit(struct queue *q);
/* Takes over a manifest that was found; then commit. */
void queue_window_found(struct queue *q, const struct doc_manifest *m);
/* k 0: in no window */
void queue_say_lost(struct queue *q, int64_t k, const struct doc_lost *l);
/* Looks for the manifest of a redo; fn when it has to be built. */
void queue_window_look(struct queue *q, queue_next_fn fn);

/* ---- queue_build.c ---- */
void queue_build(struct queue *q); /* objects and manifest, then commit */
/* fn is the first PUT of a redo: it looks before that. */
void queue_build_put(struct queue *q, queue_next_fn fn);
void queue_build_objects(struct queue *q); /* the next one */
/* A format in w; -1: it has ended as failed. */
int queue_build_begin(struct queue *q);
void queue_build_end(struct queue *q); /* the object goes up */
/* What the keys of all partitions begin with. */
void queue_build_start(const struct queue *q, struct buf *out);
void queue_build_key(const struct queue *q, struct span partition,
	int64_t first, int64_t last, struct buf *out);

/* ---- queue_plan.c ---- */
void queue_plan(struct queue *q); /* then queue_build_objects */
void queue_plan_left(struct queue *q); /* the next key not built any more */

/* ---- queue_checkpoint.c ---- */
void queue_checkpoint(struct queue *q); /* then queue_pump */
void queue_checkpoint_empty(struct queue *q, int64_t k, int64_t end_us,
	queue_next_fn fn);
void queue_checkpoint_drop(struct queue *q);

/* ---- queue_drain.c ---- */
void queue_drain(struct queue *q);
/* Everything under way is dropped, as a crash would. */
void queue_call_off(struct queue *q);
/* The end of this life: everything is called off, the lease handed over. */
void queue_finish(struct queue *q, enum queue_state state);
void queue_fail(struct queue *q, const char *text);
void queue_on_lost(void *arg);
void queue_on_end_timer(void *arg);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The child's end of the pair of sockets a connector's process is started
 * with (descriptor 3): down come the document, marks of work and the word to
 * stop, up go status, metrics and announcements.  The other end going away
 * means stop.
 */
#ifndef QUEEN_CONNCHILD_H
#define QUEEN_CONNCHILD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "qid.h"
#include "span.h"

struct buf;
struct conndoc;
struct connchild;
struct connfault;
struct err;
struct jwrite;
struct loop;
struct seal;

/* What this process is to do; lives as long as the connchild. */
struct connchild_task {
	struct qid tenant;
	struct span name;
	const struct conndoc *doc;	/* checked, sealed */
	int64_t version;		/* of the document */
	struct span node;		/* QUEEN_SERVER_ID */
	struct span cell_tag;		/* 12 hex */
};

struct connchild_face {
	/* Members of the status block that are this kind's own. */
	void (*write_detail)(void *arg, struct jwrite *w);
	/*
	 * Metric family: number; counters of this process.  Not
	 * queen_pg_connector_errors_total and _owner: those come from the
	 * errors told here, and from the phase.
	 */
	void (*write_metrics)(void *arg, struct jwrite *w);
	/*
	 * Partitions with new messages, of the queue that was named by
	 * connchild_watch; n = 0: any may have.  NULL when not wanted.
	 */
	void (*on_marks)(void *arg, const int64_t *parts, size_t n);
	/* Finish what is in hand within grace_ms, then connchild_leave. */
	void (*on_stop)(void *arg, int64_t grace_ms);
	void *arg;
};

/*
 * Waits for the task, at boot only.  Signals are its business from then on:
 * SIGTERM and the end of the parent are a stop, and a process that has not
 * left when its grace is over ends itself.
 */
struct connchild *connchild_open(struct loop *l, int fd,
	const struct connchild_face *face, struct err *e);
/* The face's arg, which may need the connchild first; before the loop runs. */
void connchild_set_arg(struct connchild *c, void *arg);
const struct connchild_task *connchild_task(const struct connchild *c);
/*
 * The password of the document in the clear, for buf_wipe; nothing when it has
 * none.  -1: `unseal`, no other start on this node would open it.
 */
int connchild_unseal(const struct connchild_task *t, const struct seal *ring,
	struct buf *clear, struct connfault *f)
	__attribute__((warn_unused_result));
void connchild_free(struct connchild *c);

/* ---- status; sent on a change, at most every 200 ms, at least every 10 s */

/* A literal of queen-connector(5); streaming, snapshot, running: also well. */
void connchild_phase(struct connchild *c, const char *phase);
/* phase `error`; counted, logged, and kept as lastError. */
void connchild_error(struct connchild *c, const struct connfault *f,
	int64_t retry_in_ms);
/* An error that leaves the phase alone (a standby's claim). */
void connchild_complain(struct connchild *c, const struct connfault *f);
/* Only kept as lastError: a dead letter. */
void connchild_note(struct connchild *c, const struct connfault *f);
/* Works again. */
void connchild_well(struct connchild *c);
/* One more run after a failure. */
void connchild_restarted(struct connchild *c);
/* Something in the detail or the metrics changed. */
void connchild_touch(struct connchild *c);

/* ---- work ---- */

/* Marks of this queue are wanted. */
void connchild_watch(struct connchild *c, int64_t queue_id);
/* Messages were committed to these partitions: others may want to know. */
void connchild_announce(struct connchild *c, int64_t queue_id,
	const int64_t *parts, size_t n);

/*
 * Sends the last status and stops the loop; torn_down: the parent removes the
 * document.
 */
void connchild_leave(struct connchild *c, bool torn_down);

#endif

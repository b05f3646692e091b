/* SPDX-License-Identifier: Apache-2.0 */
/* Between the files of a run. */
#ifndef QUEEN_PGSRC_STREAM_INT_H
#define QUEEN_PGSRC_STREAM_INT_H

#include "buf.h"
#include "connfault.h"
#include "ctx.h"
#include "loop.h"
#include "pglink.h"
#include "pipeline.h"
#include "silence.h"
#include "start.h"
#include "stream.h"

enum stream_state {
	STREAM_RUNS,
	STREAM_SETTLES,		/* takes nothing; a bundle may be in flight */
	STREAM_CLOSES,		/* the server is told to end the stream */
	STREAM_OVER,
};

/* A table of the copy, described at its first chunk. */
struct stream_table {
	struct shape *shape;	/* NULL: not yet */
	uint32_t *oids;		/* types its chunks have */
};

/* Read from the slot now and then. */
struct stream_slot {
	bool known;
	uint64_t lag_bytes, confirmed_lsn;
	char wal_status[16];
	struct silence silence;
};

struct stream {
	struct ctx *x;
	struct start_found *found;
	struct stream_counts *counts;
	stream_end_fn on_end;
	void *arg;

	enum stream_state state;
	enum stream_end end;
	struct connfault fault;
	struct loop_timer late, done;

	struct pipeline_conf conf;
	struct pipeline pipeline;
	struct commit *commit;
	bool commit_over;	/* it sends nothing any more */
	struct loop_timer linger;
	/* of the bundle in flight, and of what is in */
	struct stream_counts flight;
	struct pointer_place in;	/* without its key */
	struct pointer_place flight_at;
	uint64_t truncates_told;

	/* the walsender */
	bool streaming, repl_gone, sql_gone, checking, drained, paused;
	bool skipping;		/* the server leaves changes out */
	uint64_t received_lsn, told_lsn;
	int64_t heard_ms, told_ms;
	/* a message that waits for an answer: its bytes, what it asked */
	bool waiting;
	enum pipeline_result asked;
	struct pipeline_ask ask;
	struct buf held, sql;
	struct loop_timer reread;	/* its row is not visible yet */

	/* the copy */
	struct stream_table *tables;
	bool reading;		/* something of it is on the SQL link */
	uint64_t reading_n;	/* number of the chunk */
	size_t reading_table;
	uint32_t ask_oid;
	PGresult *described;
	bool looking;
	uint64_t looking_waits;
	int64_t look_ms;
	struct loop_timer look;

	/* once a second */
	struct loop_timer tick;
	bool beating, measuring;
	int64_t beat_ms, measured_ms;
	struct stream_slot slot;
};

/* Whatever may be done now, is. */
void stream_step(struct stream *s);
/* The run ends, once the bundle in flight has settled. */
void stream_fail(struct stream *s, const struct connfault *why);
/* A failed query of ours: passes with another start. */
void stream_fail_sql(struct stream *s, const struct connfault *why);
void stream_restart(struct stream *s);
/* The server cannot decode its WAL with the publication. */
void stream_fail_publication(struct stream *s);
/* The stream was refused, or it ended. */
void stream_lost(struct stream *s, const struct connfault *why);
/* Tells the server what is committed. */
void stream_tell(struct stream *s);
/* Text in s->sql to the SQL link; empties it. */
void stream_query(struct stream *s, pglink_fn fn);
/* Learns a type from the answer to lookup_type_sql; false: the run ends. */
bool stream_learn(struct stream *s, uint32_t oid, PGresult *const *res, int n,
	const struct connfault *why);

/* stream_feed.c */
void stream_begin(struct stream *s);
bool stream_may_read(const struct stream *s);
void stream_send(struct stream *s);
void stream_on_linger(void *arg);
void stream_on_reread(void *arg);
/* What the held message asked for is there. */
void stream_answered(struct stream *s);

/* stream_copy.c */
void stream_copy(struct stream *s);
void stream_on_look(void *arg);
void stream_copy_fini(struct stream *s);

/* stream_tick.c */
void stream_on_tick(void *arg);

#endif

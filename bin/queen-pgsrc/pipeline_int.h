/* SPDX-License-Identifier: Apache-2.0 */
/* Between the files of the pipeline. */
#ifndef QUEEN_PGSRC_PIPELINE_INT_H
#define QUEEN_PGSRC_PIPELINE_INT_H

#include "pipeline.h"

enum { PIPELINE_NOT_IN_RUN = -1 };

/* What the stream has described; begins with its key, for map_is_i64. */
struct relation {
	int64_t oid;
	const struct shape_table *table;	/* NULL: not configured */
	struct shape *shape;
	int64_t run_table;	/* number in the snapshot run, or -1 */
};

struct relation *pipeline_relation(struct pipeline *p, uint32_t oid);
/* Is the table still to be read, in part or whole? */
bool pipeline_is_to_copy(const struct pipeline *p, const struct relation *r);
/* Queues the unit; the tail is at its cover then. */
void pipeline_queue(struct pipeline *p, struct unit *u,
	const struct pointer_place *cover);

/* Insert, update, delete; truncate.  Count as one change when taken. */
enum pipeline_result pipeline_change(struct pipeline *p, int64_t now_ms,
	struct pipeline_ask *ask, struct err *e);
enum pipeline_result pipeline_truncate(struct pipeline *p, int64_t now_ms,
	struct err *e);
/* A non-transactional message of this epoch. */
enum pipeline_result pipeline_mark(struct pipeline *p,
	const struct pgoutput_message *m, int64_t now_ms);

#endif

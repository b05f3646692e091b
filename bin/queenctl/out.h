/* SPDX-License-Identifier: Apache-2.0 */
/* An answer in the format that -o names. */
#ifndef QUEENCTL_OUT_H
#define QUEENCTL_OUT_H

#include <stdbool.h>
#include <stddef.h>

#include "span.h"

struct arena;
struct buf;
struct ctl;
struct jspan_val;

enum out_kind {
	OUT_TEXT,		/* by its type */
	OUT_COUNT,		/* comma-grouped */
	OUT_SECONDS,		/* a duration */
	OUT_LIST,		/* array of strings, joined */
};

struct out_col {
	const char *head;
	const char *path;	/* of doc_path, inside a row */
	enum out_kind kind;
	bool wide;		/* only with -o wide */
};

struct out_view {
	const char *rows;	/* of doc_path: an array, or one row */
	const struct out_col *cols;	/* none: a table becomes yaml */
	size_t cols_n;
	bool whole;		/* json and yaml print the whole answer */
};

/*
 * Prints doc; view NULL = an object command: table becomes yaml.  Returns an
 * exit code.
 */
int out_print(struct ctl *c, struct span doc, const struct out_view *view);

/* The parts, for the above and for tests. */
int out_table(struct ctl *c, struct span rows, const struct out_view *view);
const char *out_cell(const struct jspan_val *v, enum out_kind kind,
	struct arena *a);
void out_json(struct buf *b, struct span doc);
/* One row per line. */
void out_ndjson(struct buf *b, struct span rows);

#endif

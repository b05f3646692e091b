/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bodies of fetch and partitions/changed (http-core 8 and 9), and the cursor
 * of the latter.  Pure.  Errors are ERR_INPUT with the text for the client.
 */
#ifndef QUEEND_FETCH_BODY_H
#define QUEEND_FETCH_BODY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "err.h"
#include "span.h"

struct arena;

enum {
	FETCH_ENTRIES_MAX = 1024,
	FETCH_BYTES_DEFAULT = 1048576,
	FETCH_BYTES_MAX = 8388608,
	FETCH_WAIT_MAX_MS = 30000,
	CHANGED_ENTRIES_MAX = 64,
	CHANGED_LIMIT_MAX = 1000,
};

struct fetch_entry {
	struct span queue, partition;
	int64_t offset;
	int32_t max_bytes;
};

struct fetch_body {
	struct fetch_entry *entries;
	size_t n;
	int64_t min_bytes; /* 0 = never park */
	int32_t max_wait_ms;
};

int fetch_body_parse(struct span body, struct arena *a, struct fetch_body *out,
	struct err *e) __attribute__((warn_unused_result));

struct changed_entry {
	struct span queue, after; /* after empty = from the start */
	bool timed; /* since was given */
	int64_t since_us;
	int32_t limit;
	/* of the cursor */
	bool bad_cursor;
	bool has_cursor;
	int64_t cursor_us;
	struct span cursor_name;
};

struct changed_body {
	struct changed_entry *entries;
	size_t n;
};

/* A cursor that does not fit sets bad_cursor of its entry, no error. */
int
changed_body_parse(struct span body, struct arena *a, struct changed_body *out,
	struct err *e) __attribute__((warn_unused_result));

/*
 * `n|name` or `t|micros|name`; false when it is neither, or of the other kind
 * of sweep than timed says.
 */
bool changed_cursor_parse(
	struct span text, bool timed, int64_t *at_us, struct span *name);

#endif

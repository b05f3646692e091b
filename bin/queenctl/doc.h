/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A JSON document kept as its bytes: a value is a span, members are found by
 * scanning.  Numbers and payloads therefore print as the server sent them;
 * a tree would have made doubles of them.  Documents are checked once with
 * doc_check; the rest may rely on it.
 */
#ifndef QUEENCTL_DOC_H
#define QUEENCTL_DOC_H

#include <stdbool.h>
#include <stdint.h>

#include "jspan.h"
#include "span.h"

struct arena;
struct buf;
struct err;

/* One JSON value and nothing else; ERR_INPUT says where it is not. */
int doc_check(struct span s, struct err *e) __attribute__((warn_unused_result));
/* Reads the span as a value; JSPAN_NONE for an empty one. */
struct jspan_val doc_val(struct span s);
/* The member of an object, by its decoded key. */
bool doc_get(struct span object, struct span key, struct arena *a,
	struct jspan_val *v);
/*
 * The first of the `|`-separated dotted paths that is there and not null;
 * `.` is the value itself.
 */
bool doc_path(struct span doc, const char *path, struct arena *a,
	struct jspan_val *v);
/* For an array: open, then next until false. */
void doc_open(struct jspan *j, struct span array);
bool doc_next(struct jspan *j, struct jspan_val *v);
/* The element count of an array, member count of an object; 0 else. */
size_t doc_count(struct span s);
/* The value as NUL-terminated text: strings decoded, the rest as it is. */
const char *doc_text(const struct jspan_val *v, struct arena *a);
/* The text at a path, or dflt. */
const char *doc_str(struct span doc, const char *path, const char *dflt,
	struct arena *a);
/* The integer at a path, or dflt. */
int64_t doc_i64(struct span doc, const char *path, int64_t dflt,
	struct arena *a);
/* True only for a boolean true there. */
bool doc_true(struct span doc, const char *path, struct arena *a);
/* Re-indents by n spaces a level; n 0 puts it on one line. */
void doc_indent(struct buf *out, struct span s, int n);
/* A number without trailing zeros; integral ones without decimals. */
const char *doc_number(struct span raw, struct arena *a);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the parts of stream_body.h alone.  0, or -1 with the problem. */
#ifndef QUEEN_OJS_STREAM_BODY_INT_H
#define QUEEN_OJS_STREAM_BODY_INT_H

#include "jspan.h"
#include "stream_body.h"

struct stream_member {
	const char *key;
	struct jspan_val v; /* JSPAN_NONE = absent */
};

struct stream_reader {
	struct arena *a;
	struct problem *p;
	int64_t index; /* of the message in a batch, or -1 */
};

/* 400 that names the field, and the message in a batch: -1. */
int stream_body_bad(const struct stream_reader *r, const char *field,
	const char *fmt, ...) __attribute__((format(printf, 3, 4)));
int stream_body_bad_json(const struct stream_reader *r, const struct jspan *j);
int stream_body_not_object(const struct stream_reader *r);
int stream_body_too_deep(const struct stream_reader *r, int max);
int stream_body_too_large(const struct stream_reader *r, const char *field,
	size_t size, int64_t limit);

/* The object that comes next; what the table does not name is dropped. */
int stream_body_members(struct jspan *j, const struct stream_reader *r,
	struct stream_member *m, size_t n) __attribute__((warn_unused_result));
/* The same of a body that is nothing else. */
int stream_body_read(struct span body, const struct stream_reader *r,
	struct stream_member *m, size_t n) __attribute__((warn_unused_result));

/* There, and not null. */
bool stream_body_given(const struct stream_member *m);
size_t stream_body_characters(struct span s);
/* Text that is not empty; n = 0 = absent. */
int
stream_body_text(const struct stream_reader *r, const struct stream_member *m,
	struct span *out) __attribute__((warn_unused_result));
/* The same without control characters. */
int
stream_body_label(const struct stream_reader *r, const struct stream_member *m,
	struct span *out) __attribute__((warn_unused_result));
/* Of a consumer or a member. */
int
stream_body_name(const struct stream_reader *r, const struct stream_member *m,
	struct span *out) __attribute__((warn_unused_result));
/* Required. */
int
stream_body_queue(const struct stream_reader *r, const struct stream_member *m,
	struct span *out) __attribute__((warn_unused_result));
/* A number, or a string of digits; absent leaves *out. */
int stream_body_int(const struct stream_reader *r,
	const struct stream_member *m, int64_t low, int64_t high, int64_t *out)
	__attribute__((warn_unused_result));

#endif

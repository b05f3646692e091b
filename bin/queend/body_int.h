/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the parts of body.h alone.  0, or -1 with the text in *e. */
#ifndef QUEEND_BODY_INT_H
#define QUEEND_BODY_INT_H

#include "body.h"
#include "jspan.h"

/* Where in the body: `operations[2].items[0].` or nothing. */
struct body_where {
	const char *outer, *inner;
	size_t i, k;
};

/* ERR_INPUT `bad body: WHERE.FIELD TEXT`: -1. */
int body_bad(struct err *e, const struct body_where *w, const char *field,
	const char *fmt, ...) __attribute__((format(printf, 4, 5)));
/* The same for what is no JSON: -1. */
int body_bad_json(struct err *e, const struct jspan *j);
/* A list is read into memory that is many times its text: it has a bound. */
int body_has_room(size_t n, const struct body_where *w, const char *field,
	struct err *e) __attribute__((warn_unused_result));
/* Steps into the object or list that must come next. */
int body_enter(struct jspan *j, bool object, const struct body_where *w,
	const char *field, struct err *e) __attribute__((warn_unused_result));
/* A string or null (out empty, false); anything else is an error. */
int body_read_text(struct jspan *j, struct arena *a,
	const struct body_where *w, const char *field, struct span *out,
	bool *given, struct err *e) __attribute__((warn_unused_result));
/* The same, and a name. */
int body_read_name(struct jspan *j, struct arena *a,
	const struct body_where *w, const char *field, struct span *out,
	bool *given, struct err *e) __attribute__((warn_unused_result));
/* A consumerGroup; empty when absent. */
int body_read_group(struct jspan *j, struct arena *a,
	const struct body_where *w, struct span *group, struct err *e)
	__attribute__((warn_unused_result));

/* in_txn: with the fields that only a transaction knows. */
int body_push_item(struct jspan *j, struct arena *a,
	const struct body_where *w, bool in_txn, struct body_push *it,
	struct err *e) __attribute__((warn_unused_result));
/* w counts along: its inner index when it has one, else the outer. */
int body_push_items(struct jspan *j, struct arena *a, struct body_where *w,
	bool in_txn, struct body_push **items, size_t *n, struct err *e)
	__attribute__((warn_unused_result));
/* One member of an acknowledgment. */
int body_ack_field(struct jspan *j, struct arena *a,
	const struct body_where *w, struct span key, struct body_ack *k,
	struct err *e) __attribute__((warn_unused_result));

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the management routes share: one call of an SQL function that answers
 * with a status and a body, readers of query strings and path ids.  A reader
 * that returns false has replied already.
 */
#ifndef QUEEND_ADMIN_H
#define QUEEND_ADMIN_H

#include <libpq-fe.h>
#include <stdbool.h>
#include <stdint.h>

#include "pgpool.h"
#include "span.h"

struct arena;
struct err;
struct hsrv_req;
struct jspan;
struct jspan_val;

enum { ADMIN_PAGE_MAX = 10000 };

/* Rows of a call that worked; must end in a reply or another call. */
typedef void (*admin_fn)(struct hsrv_req *r, const PGresult *res);

/* Starts the arguments of a call with the tenant of the request. */
void admin_args(struct hsrv_req *r, struct pgargs *a);
/* A name, or null when it is empty. */
void admin_arg_name(struct pgargs *a, struct span name);
/* A time, or null for INT64_MIN. */
void admin_arg_time(struct pgargs *a, int64_t at_us);
/*
 * One call on the lane for the rest.  A failure is answered here: 500
 * `pool` or `<op> failed: <text>`.  op is a literal.
 */
void admin_call(struct hsrv_req *r, const struct pgstmt *s, struct pgargs *a,
	const char *op, admin_fn done);
/* That answer, for calls made in other ways. */
void admin_fail(struct hsrv_req *r, const char *op, const struct err *e);
/* As admin_call, for functions whose row is (status, body). */
void admin_pass(struct hsrv_req *r, const struct pgstmt *s, struct pgargs *a,
	const char *op);
/* Replies with columns 0 (status) and 1 (body) of the first row. */
void admin_reply(struct hsrv_req *r, const PGresult *res);

/* 400 `bad body: <text> at offset N`. */
void admin_bad_json(struct hsrv_req *r, const struct jspan *j);
/* 1 to 1024 bytes of UTF-8 without control characters, else 400 naming it. */
bool admin_name(struct hsrv_req *r, const char *what, struct span name);
/*
 * The text of a value: false (400) unless it is a string that can be stored.
 * null leaves *out empty.
 */
bool admin_text(struct hsrv_req *r, const char *what,
	const struct jspan_val *v, struct span *out);

/* true/false, 1/0, yes/no; absent or empty = dflt. */
bool admin_query_bool(struct hsrv_req *r, const char *key, bool dflt,
	bool *out);
/* An integer from 0 up; above max counts as max. */
bool admin_query_int(struct hsrv_req *r, const char *key, int32_t dflt,
	int32_t max, int32_t *out);
/* limit (0 = dflt) and offset of a page. */
bool admin_query_page(struct hsrv_req *r, int32_t dflt, int32_t *limit,
	int32_t *offset);
/* An ISO 8601 time; absent or empty leaves *at_us and returns true. */
bool admin_query_time(struct hsrv_req *r, const char *key, int64_t *at_us);
/* A name; absent or empty = empty. */
bool admin_query_name(struct hsrv_req *r, const char *key, struct span *out);
/* A partition id of this cell; no reply, the caller knows its 404. */
bool admin_part(struct hsrv_req *r, struct span text, int64_t *id);

#endif

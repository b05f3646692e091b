/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by lake.c (which, show, delete), lake_put.c and lake_resume.c. */
#ifndef QUEEND_LAKE_INT_H
#define QUEEND_LAKE_INT_H

#include <libpq-fe.h>
#include <stdbool.h>

#include "lake.h"
#include "pgbin.h"
#include "qid.h"
#include "span.h"

struct hsrv_req;
struct pgstmt;

typedef void (*lake_fn)(struct hsrv_req *r, const PGresult *res);

/* What a request names and brings. */
struct lake {
	struct hsrv_req *r;
	struct qid tenant;
	char text[QID_TEXT_MAX];
	lake_fn done;
	const char *too_large; /* what the database says no to as such */
	/* PUT */
	struct span config, secret; /* secret: p NULL = none came */
	bool enabled, enabled_given, secret_given;
};

void lake_refuse(struct hsrv_req *r, int status, const char *code,
	const char *fmt, ...) __attribute__((format(printf, 4, 5)));
/* NULL after having refused.  Who speaks for a tenant names no other one. */
struct lake *lake_begin(struct hsrv_req *r);
/* An answer of the database goes to done, an error is refused. */
void lake_call(struct lake *l, const struct pgstmt *s, struct pgargs *a,
	lake_fn done);
/* Answers with what is stored. */
void lake_show(struct lake *l);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Replies in the form of the binding: media type, OJS-Version, X-Request-Id,
 * and the error body of spec section 16 on every error, also on those of the
 * HTTP server itself.
 */
#ifndef QUEEN_OJS_REPLY_H
#define QUEEN_OJS_REPLY_H

#include <stdbool.h>

#include "hsrv.h"
#include "span.h"

/* What is wrong with a request; texts live in the arena or for ever. */
struct problem {
	int status;
	const char *code;	/* `invalid_request`, ... */
	const char *type;	/* `error.type`; NULL = none */
	const char *message;
	struct span details;	/* members, `"field":"x"`; n = 0 = none */
	int retry_after_s;	/* 0 = no header */
};

/* Fills *p, text into the arena; returns -1.  details NULL = none. */
int problem_set(struct problem *p, struct arena *a, int status,
	const char *code, const char *details, const char *fmt, ...)
	__attribute__((format(printf, 6, 7)));
/* 400 invalid_request with `details.field`. */
int problem_field(struct problem *p, struct arena *a, const char *field,
	const char *fmt, ...) __attribute__((format(printf, 4, 5)));

/* Answers; what was written before is dropped. */
void reply_problem(struct hsrv_req *r, const struct problem *p);
/* problem_set and reply_problem in one. */
void reply_no(struct hsrv_req *r, int status, const char *code,
	const char *details, const char *fmt, ...)
	__attribute__((format(printf, 5, 6)));
/* 404 with `details`, e.g. `"queue":"x"`; what = "queue", "job", ... */
void reply_missing(struct hsrv_req *r, const char *what, struct span name);

/* The body of a request as an object: false after 400 invalid_payload. */
bool reply_object(struct hsrv_req *r, struct span *body);

/* For hsrv_conf: the headers of every reply, and the server's own errors. */
void reply_begin(struct hsrv_req *r);
void reply_error(struct hsrv_req *r, int status, const char *text);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Refusals and failures as `{"error":..,"reason":..,"detail":..}`: the form of
 * key/value state and timers, by their own routes and in a transaction.
 */
#ifndef QUEEND_FAULT_H
#define QUEEND_FAULT_H

struct err;
struct hsrv_req;
struct kvlimit_no;

/* error and reason are literals, or reason is reason_text: not to be copied. */
struct fault {
	int status;
	const char *error, *reason;	/* reason NULL = none */
	int retry_after_s;		/* 0 = no header */
	char detail[256];		/* may be empty */
	char reason_text[256];		/* room for a reason of the database */
};

/* What a group of routes calls what an error of the database means. */
struct fault_words {
	const char *prefix;		/* of its reasons */
	const char *unavailable, *pool_exhausted, *timeout;
	const char *bad_request, *misconfigured, *error;
};

/* Fills all of *f, detail as printf; returns -1. */
int fault_set(struct fault *f, int status, const char *error,
	const char *reason, const char *fmt, ...)
	__attribute__((format(printf, 5, 6)));
/* What a limit says. */
void fault_of_limit(const struct kvlimit_no *no, struct fault *f);
/* What an error of the database means to the client. */
void fault_of_err(const struct err *e, const struct fault_words *w,
	struct fault *f);
/* Answers; what was written before is dropped. */
void fault_reply(struct hsrv_req *r, const struct fault *f);

#endif

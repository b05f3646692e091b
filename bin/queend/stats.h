/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Statistics: computed when asked, served again for as long as their cost
 * warrants, so that dashboards cannot load the database.  Answers carry their
 * age, in the Age header and in a trailing "statsAge".
 */
#ifndef QUEEND_STATS_H
#define QUEEND_STATS_H

struct ctx;
struct hsrv_req;
struct pgargs;
struct pgstmt;
struct stats;

struct stats *stats_new(struct ctx *x);
void stats_free(struct stats *s);

enum stats_kind {
	/* kept for max(STATS_INTERVAL_MS, 20 times what it took) */
	STATS_SUMMARY,
	/* live, but kept for 20 times what it took once that is long */
	STATS_LIVE,
	/* kept for RETAINED_BYTES_INTERVAL_MS: walks the segments */
	STATS_SIZES,
};

/*
 * As admin_pass, through the cache: the same statement with the same
 * arguments is one computation, however many ask meanwhile.
 */
void stats_pass(struct hsrv_req *r, enum stats_kind kind,
	const struct pgstmt *stmt, struct pgargs *a, const char *op);
/* Everything is computed anew from now on. */
void stats_forget(struct ctx *x);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One bucket: requests of S3, signed by us and carried by libcurl
 * on the loop.  Every request is tried six times here:
 * what comes back after that is the last failure.
 */
#ifndef QUEEN_S3_S3_H
#define QUEEN_S3_S3_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "s3conf.h"
#include "span.h"

struct buf;
struct err;
struct loop;
struct metric_label;
struct object;
struct s3;
struct s3_counts;
struct s3_req;

struct s3_conf {
	const struct s3conf *sink; /* copied as far as needed */
	const char *log_tenant; /* borrowed, in front of log lines; NULL: none */
	struct s3_counts *counts; /* borrowed; NULL: nothing is counted */
	const char *ca_file; /* NULL or empty: the distribution's */
	int64_t multipart_bytes; /* objects above go up in parts */
	int64_t part_bytes; /* 0: 16 MiB; for tests */
	int64_t retry_first_ms; /* 0: 1000; for tests */
};

enum s3_class { S3_TRANSPORT, S3_STATUS, S3_BODY, S3_INTEGRITY, S3_CONFIG };
struct s3_error {
	enum s3_class cls;
	int status; /* 0: no answer */
	char code[64]; /* of the answer's XML, or "" */
	bool retriable;
	int64_t retry_after_ms; /* the server's wish; 0: none */
	char text[400]; /* one line; no secret */
};
struct s3_answer {
	bool absent; /* GET, HEAD: 404 */
	int64_t size; /* HEAD; -1: it does not say */
	struct span etag; /* without quotes; may be empty */
	struct span body; /* GET */
	/* LIST: keys in order, more to come after the last one */
	const struct span *keys;
	size_t keys_n;
	bool truncated;
};
/* a: borrowed until the callback returns; NULL on failure. */
typedef void (*s3_fn)(
	void *arg, const struct s3_answer *a, const struct s3_error *e);
/* Between the parts of a multipart upload: n are done.  May cancel it. */
typedef void (*s3_part_fn)(void *arg, int n);

/* NULL with ERR_CONFIG. */
struct s3 *s3_new(struct loop *l, const struct s3_conf *c, struct err *e);
/* Ends what is under way without a callback; also out of one of its own. */
void s3_free(struct s3 *s);
/* From now on no wait between attempts is longer than 250 ms. */
void s3_hurry(struct s3 *s);

/*
 * Each answers once and always later, unless cancelled.  o is borrowed until
 * then, sealed; on_part may be NULL.
 */
struct s3_req *s3_put(struct s3 *s, struct span key, const char *type,
	const struct object *o, s3_part_fn on_part, s3_fn fn, void *arg);
struct s3_req *
s3_get(struct s3 *s, struct span key, size_t max_bytes, s3_fn fn, void *arg);
/* One attempt only: a probe. */
struct s3_req *s3_head(struct s3 *s, struct span key, s3_fn fn, void *arg);
/* Likewise, by GET: its answer has a text where that of HEAD has none. */
struct s3_req *s3_peek(struct s3 *s, struct span key, s3_fn fn, void *arg);
struct s3_req *s3_list(struct s3 *s, struct span prefix, struct span after,
	int max, s3_fn fn, void *arg);
/* The service is told to drop what was uploaded in parts. */
void s3_cancel(struct s3_req *r);

/*
 * Every attempt by operation and status; they outlive the buckets that share
 * them.  Written as queen_s3_s3_requests_total{op,code}, labels first.
 */
struct s3_counts *s3_counts_new(void);
void s3_counts_free(struct s3_counts *c);
void s3_counts_write(const struct s3_counts *c, struct buf *b,
	const struct metric_label *labels, int n);

#endif

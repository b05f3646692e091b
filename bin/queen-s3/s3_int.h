/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside of s3.  A call (s3_put ...) is one request of the service or, for a
 * multipart upload, a row of them.  Of each: s3_run sends it, again when that
 * may help (s3_request.c, s3_send.c), s3_judge says what the answer was (s3_answer.c), and
 * `then` goes on with it.
 */
#ifndef QUEEN_S3_S3_INT_H
#define QUEEN_S3_S3_INT_H

#include <sys/queue.h>

#include "s3.h"

#include "arena.h"
#include "buf.h"
#include "hcli.h"
#include "log.h"
#include "loop.h"
#include "object.h"

enum {
	S3_ATTEMPTS = 6,
	S3_ABORT_ATTEMPTS = 2,
	S3_WAIT_MAX_MS = 60000,
	S3_HURRY_MAX_MS = 250,
	S3_CONNECT_MS = 5000,
	S3_REQUEST_MS = 120000,
	/* attempts under way; what waits for its turn is not signed yet */
	S3_PARALLEL_MAX = 8,
	S3_TEXT_MAX_BYTES = 64 * 1024, /* of an answer that tells of a failure */
	S3_LIST_MAX_BYTES = 16 * 1024 * 1024,
	S3_RESTARTS = 2
};

/* In the order of /metrics. */
enum s3_op {
	S3_OP_PUT,
	S3_OP_CREATE,
	S3_OP_PART,
	S3_OP_COMPLETE,
	S3_OP_ABORT,
	S3_OP_HEAD,
	S3_OP_GET,
	S3_OP_LIST
};

TAILQ_HEAD(s3_reqs, s3_req);

struct s3 {
	struct loop *loop;
	struct hcli *hcli;
	const char *log_tenant;
	char *base, *host; /* scheme://host:port; the header Host */
	char *bucket, *region, *access, *secret, *kms_key_id;
	bool path_style, hurried;
	enum s3_sse sse;
	size_t multipart_bytes, part_bytes;
	int64_t first_ms;
	struct s3_reqs all, turns;
	int sending_n;
	struct s3_counts *counts;
	struct log_sampler skew_log;
};

/* What is sent, the same at every attempt but for date and signature. */
struct s3_send {
	enum s3_op op;
	struct buf query; /* encoded */
	const char *type; /* NULL: no body is described */
	const struct object *o; /* the body, from at on, n bytes; or text */
	size_t at, n;
	struct buf text;
	char sha256[65], md5[25]; /* hex; base64 or "" */
	uint8_t md5_raw[OBJECT_MD5_BYTES];
	int attempts, attempts_max;
	int64_t wait_ms;
	size_t sent; /* bytes of the body given to libcurl */
};

struct s3_reply {
	int status;
	struct buf body;
	size_t body_max;
	size_t held; /* of the body, counted for the process */
	bool too_large, too_many;
	int64_t size, retry_after_ms, date_s;
	char etag[128], sse[32], region[64];
};

struct s3_upload;

struct s3_req {
	TAILQ_ENTRY(s3_req) link, turn;
	bool has_turn;
	struct s3 *s;
	enum s3_op kind; /* what was asked for */
	struct buf key; /* for a list: the prefix */
	struct buf after; /* of a list */
	size_t max_bytes; /* of a get */
	char *type;
	const struct object *o;
	s3_part_fn on_part;
	s3_fn fn; /* NULL: nobody asks any more */
	void *arg;

	struct s3_send send;
	struct hcli_call call;
	struct curl_slist *headers;
	struct s3_reply reply;
	struct arena mem; /* of the reply */
	struct loop_timer timer;
	void (*next)(struct s3_req *r);
	void (*then)(struct s3_req *r, bool ok);
	bool waiting; /* between two attempts */
	struct s3_upload *up;

	bool failed;
	struct s3_answer answer;
	struct s3_error error;
};

const char *s3_op_name(enum s3_op op);

/* s3_count.c */
/* code: the status, 0 without an answer; c may be NULL. */
void s3_counts_add(struct s3_counts *c, enum s3_op op, int code);

/* ---- s3.c ---- */
/* From the loop, after so long; one at a time. */
void s3_later(struct s3_req *r, int64_t after_ms, void (*next)(struct s3_req *));
/* Tells who asked, and ends r. */
void s3_finish(struct s3_req *r, bool ok);

/* ---- s3_request.c ---- */
/* A new request of r: empties send; then body and query are set. */
void s3_prepare(
	struct s3_req *r, enum s3_op op, void (*then)(struct s3_req *, bool));
/* The body: all of the object, or a text whose digest is taken here. */
void s3_body_object(struct s3_req *r);
void s3_body_text(struct s3_req *r);
void s3_body_md5(struct s3_send *send, const uint8_t md5[OBJECT_MD5_BYTES]);
void s3_body_sha256(
	struct s3_send *send, const uint8_t sha256[OBJECT_SHA256_BYTES]);
void s3_put_path(struct buf *b, const struct s3_req *r);
/* Sets headers, as of now. */
void s3_sign(struct s3_req *r, struct span path);

/* ---- s3_send.c ---- */
void s3_run(struct s3_req *r);
/* Whatever is under way or waits. */
void s3_stop(struct s3_req *r);
/* Counts n bytes more of the answer; false: no room for them now. */
bool s3_hold(struct s3_req *r, size_t n);
void s3_release(struct s3_req *r);
extern size_t s3_held_max; /* of all answers of the process */

/* ---- s3_answer.c ---- */
/* libcurl's callbacks. */
size_t s3_on_header(char *p, size_t one, size_t n, void *arg);
size_t s3_on_body(char *p, size_t one, size_t n, void *arg);
/* Sets answer or error. */
bool s3_judge(struct s3_req *r, CURLcode rc, const char *why);
/* Do the ETag's shape and value fit the object?  Unknown shapes do. */
bool s3_etag_fits(const struct s3_req *r, struct span etag,
	const uint8_t md5[OBJECT_MD5_BYTES], size_t parts_n);

/* ---- s3_upload.c ---- */
void s3_upload_start(struct s3_req *r);
/* True when the upload is aborted first: r lives on, nobody is told. */
bool s3_upload_detach(struct s3_req *r);
size_t s3_upload_parts_n(const struct s3_req *r);
void s3_upload_free(struct s3_req *r);

#endif

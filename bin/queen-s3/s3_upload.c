/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An object in parts: created, each part digested in steps and sent, then
 * completed.  Whatever fails, the upload is aborted, for its parts cost until
 * then; one that the service does not know any more may have been completed
 * by a request whose answer was lost, which the object itself tells.
 */
#include "s3_int.h"

#include <stdio.h>
#include <stdlib.h>

#include "err.h"
#include "sigv4.h"

struct s3_upload {
	struct buf id; /* empty: there is none */
	struct buf list; /* the parts so far, as completing names them */
	size_t parts_n, done_n, digested_n;
	struct object_digest *digest;
	int restarts;
	struct s3_error why; /* while the upload is aborted */
};

static void create(struct s3_req *r);
static void start_part(struct s3_req *r);

size_t
s3_upload_parts_n(const struct s3_req *r)
{
	return r->up->parts_n;
}

void
s3_upload_free(struct s3_req *r)
{
	if (!r->up)
		return;
	object_digest_free(r->up->digest);
	buf_fini(&r->up->id);
	buf_fini(&r->up->list);
	free(r->up);
	r->up = NULL;
}

static void
set_query(struct s3_req *r)
{
	struct sigv4_pair q = { SPAN_LIT("uploadId"), buf_span(&r->up->id) };

	sigv4_query(&r->send.query, &q, 1);
}

/* ---- its end ---- */

static void
on_aborted(struct s3_req *r, bool ok)
{
	(void)ok; /* the bucket's rule for unfinished uploads is left */
	r->error = r->up->why;
	s3_finish(r, false);
}

static void
abort_upload(struct s3_req *r)
{
	r->up->why = r->error;
	s3_prepare(r, S3_OP_ABORT, on_aborted);
	r->send.attempts_max = S3_ABORT_ATTEMPTS;
	set_query(r);
	buf_reset(&r->up->id);
	s3_run(r);
}

static bool
is_unknown(const struct s3_req *r)
{
	return strcmp(r->error.code, "NoSuchUpload") == 0;
}

/* From the beginning: the parts that were sent are gone. */
static void
restart(struct s3_req *r)
{
	if (r->up->restarts++ < S3_RESTARTS) {
		create(r);
		return;
	}
	r->error.retriable = true;
	s3_finish(r, false);
}

static void
on_found(struct s3_req *r, bool ok)
{
	const struct s3_answer *a = &r->answer;

	if (!ok) {
		s3_finish(r, false);
		return;
	}
	if (!a->absent && a->size >= 0 && (size_t)a->size == r->o->len &&
		s3_etag_fits(r, a->etag, r->o->md5, r->up->parts_n)) {
		s3_finish(r, true);
		return;
	}
	r->error = r->up->why;
	restart(r);
}

static void
on_complete(struct s3_req *r, bool ok)
{
	if (!ok && !is_unknown(r)) {
		abort_upload(r);
		return;
	}
	buf_reset(&r->up->id);
	if (ok) {
		s3_finish(r, true);
		return;
	}
	r->up->why = r->error;
	s3_prepare(r, S3_OP_HEAD, on_found);
	s3_run(r);
}

static void
complete(struct s3_req *r)
{
	s3_prepare(r, S3_OP_COMPLETE, on_complete);
	r->send.type = "application/xml";
	set_query(r);
	buf_puts(&r->send.text, "<CompleteMultipartUpload>");
	buf_put_span(&r->send.text, buf_span(&r->up->list));
	buf_puts(&r->send.text, "</CompleteMultipartUpload>");
	s3_body_text(r);
	s3_run(r);
}

/* ---- its parts ---- */

static size_t
part_at(const struct s3_req *r)
{
	return r->up->done_n * r->s->part_bytes;
}

static size_t
part_len(const struct s3_req *r)
{
	size_t left = r->o->len - part_at(r);

	return left < r->s->part_bytes ? left : r->s->part_bytes;
}

static void
put_part(struct buf *b, size_t number, struct span etag)
{
	buf_printf(b, "<Part><PartNumber>%zu</PartNumber><ETag>\"", number);
	for (size_t i = 0; i < etag.n; i++) {
		if (etag.p[i] == '&' || etag.p[i] == '<' || etag.p[i] == '>')
			buf_printf(b, "&#%d;", etag.p[i]);
		else
			buf_putc(b, etag.p[i]);
	}
	buf_puts(b, "\"</ETag></Part>");
}

static void
next_part(struct s3_req *r)
{
	start_part(r);
	/* the last thing here: r may be cancelled, and the bucket freed */
	if (r->on_part)
		r->on_part(r->arg, (int)r->up->done_n);
}

static void
on_part(struct s3_req *r, bool ok)
{
	struct s3_upload *up = r->up;

	if (!ok && is_unknown(r)) {
		buf_reset(&up->id);
		restart(r);
		return;
	}
	if (!ok) {
		abort_upload(r);
		return;
	}
	put_part(&up->list, ++up->done_n, r->answer.etag);
	if (up->done_n == up->parts_n) {
		complete(r);
		return;
	}
	s3_later(r, 0, next_part);
}

static void
send_part(struct s3_req *r)
{
	uint8_t sha256[OBJECT_SHA256_BYTES], md5[OBJECT_MD5_BYTES];
	char number[24];
	struct sigv4_pair q[] = { { SPAN_LIT("partNumber"), SPAN_ZERO },
		{ SPAN_LIT("uploadId"), buf_span(&r->up->id) } };

	object_digest_end(r->up->digest, sha256, md5);
	r->up->digest = NULL;
	snprintf(number, sizeof(number), "%zu", r->up->done_n + 1);
	q[0].value = span_of(number);
	s3_prepare(r, S3_OP_PART, on_part);
	sigv4_query(&r->send.query, q, 2);
	r->send.o = r->o;
	r->send.at = part_at(r);
	r->send.n = part_len(r);
	s3_body_sha256(&r->send, sha256);
	s3_body_md5(&r->send, md5);
	s3_run(r);
}

/* One chunk per turn of the loop. */
static void
digest_step(struct s3_req *r)
{
	struct s3_upload *up = r->up;
	size_t n = part_len(r);

	up->digested_n += object_digest_add(up->digest, r->o,
		part_at(r) + up->digested_n, n - up->digested_n);
	if (up->digested_n < n)
		s3_later(r, 0, digest_step);
	else
		send_part(r);
}

static void
start_part(struct s3_req *r)
{
	r->up->digest = object_digest_new();
	r->up->digested_n = 0;
	s3_later(r, 0, digest_step);
}

/* ---- its beginning ---- */

static void
on_created(struct s3_req *r, bool ok)
{
	if (!ok) {
		s3_finish(r, false);
		return;
	}
	buf_put_span(&r->up->id, r->answer.body);
	start_part(r);
}

static void
create(struct s3_req *r)
{
	struct sigv4_pair q = { SPAN_LIT("uploads"), SPAN_ZERO };

	r->up->done_n = 0;
	buf_reset(&r->up->list);
	s3_prepare(r, S3_OP_CREATE, on_created);
	r->send.type = r->type;
	sigv4_query(&r->send.query, &q, 1);
	s3_run(r);
}

void
s3_upload_start(struct s3_req *r)
{
	struct s3_upload *up = calloc(1, sizeof(*up));

	BUG(!up);
	up->parts_n = (r->o->len + r->s->part_bytes - 1) / r->s->part_bytes;
	r->up = up;
	create(r);
}

bool
s3_upload_detach(struct s3_req *r)
{
	struct s3_upload *up = r->up;

	if (!up || (!up->id.len && r->send.op != S3_OP_ABORT))
		return false;
	r->fn = NULL;
	if (r->send.op == S3_OP_ABORT)
		return true;
	s3_stop(r);
	object_digest_free(up->digest);
	up->digest = NULL;
	abort_upload(r);
	return true;
}

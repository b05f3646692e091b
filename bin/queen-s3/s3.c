/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bucket, the calls on it, and what they counted.  Who asked is told out
 * of a timer of the call itself, when libcurl is not on the stack: the bucket
 * may be freed by whom it tells.
 */
#include "s3_int.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <openssl/crypto.h>

#include "err.h"
#include "sigv4.h"

enum {
	IDLE_MAX = 4,
	PART_BYTES = 16 << 20,
	FIRST_MS = 1000,
	PEEK_MAX = 64 << 10
};

static char *
copy(const char *s)
{
	char *to = s ? strdup(s) : NULL;

	BUG(s && !to);
	return to;
}

const char *
s3_op_name(enum s3_op op)
{
	static const char *const names[] = { "put", "multipart_create",
		"multipart_part", "multipart_complete", "multipart_abort",
		"head", "get", "list" };

	return names[op];
}

static void
req_free(struct s3_req *r)
{
	if (r->s)
		TAILQ_REMOVE(&r->s->all, r, link);
	s3_upload_free(r);
	loop_timer_fini(&r->timer);
	buf_fini(&r->key);
	buf_fini(&r->after);
	buf_fini(&r->send.query);
	buf_fini(&r->send.text);
	s3_release(r);
	buf_fini(&r->reply.body);
	arena_fini(&r->mem);
	free(r->type);
	free(r);
}

/* ---- the bucket ---- */

/* A port that the scheme implies is not in the header. */
static size_t
without_default_port(struct span host, bool tls)
{
	struct span port = span_of(tls ? ":443" : ":80");

	return host.n > port.n && memcmp(host.p + host.n - port.n, port.p,
					  port.n) == 0
		       ? host.n - port.n
		       : host.n;
}

static int
set_address(struct s3 *s, const struct s3conf *c, struct err *e)
{
	const char *host = strstr(c->endpoint, "://");
	bool tls = strncmp(c->endpoint, "https://", 8) == 0;
	struct buf b = BUF_ZERO;

	if (!host || (!tls && strncmp(c->endpoint, "http://", 7) != 0))
		return err_set(
			e, ERR_CONFIG, "the endpoint is no http or https URL");
	host += 3;
	if (!c->path_style) {
		buf_puts(&b, c->bucket);
		buf_putc(&b, '.');
	}
	buf_puts(&b, host);
	s->host = strndup(b.p, without_default_port(buf_span(&b), tls));
	buf_reset(&b);
	buf_printf(&b, "%s://%s%s%s", tls ? "https" : "http",
		c->path_style ? "" : c->bucket, c->path_style ? "" : ".", host);
	buf_putc(&b, '\0');
	s->base = copy(b.p);
	buf_fini(&b);
	BUG(!s->host);
	return 0;
}

static int
check_ca_file(const char *path, struct err *e)
{
	if (!path || !*path || access(path, R_OK) == 0)
		return 0;
	err_errno(e, "cannot read QUEEN_CA_FILE %s", path);
	e->kind = ERR_CONFIG;
	return -1;
}

struct s3 *
s3_new(struct loop *l, const struct s3_conf *c, struct err *e)
{
	struct hcli_conf curl = { .ca_file = c->ca_file, .idle_max = IDLE_MAX };
	struct s3 *s = calloc(1, sizeof(*s));

	BUG(!s);
	s->loop = l;
	s->counts = c->counts;
	s->log_tenant = c->log_tenant ? c->log_tenant : "";
	TAILQ_INIT(&s->all);
	TAILQ_INIT(&s->turns);
	s->bucket = copy(c->sink->bucket);
	s->region = copy(c->sink->region);
	s->access = copy(c->sink->access_key);
	s->secret = copy(c->sink->secret_key ? c->sink->secret_key : "");
	s->kms_key_id = copy(c->sink->kms_key_id);
	s->path_style = c->sink->path_style;
	s->sse = c->sink->sse;
	s->multipart_bytes = (size_t)c->multipart_bytes;
	s->part_bytes = c->part_bytes ? (size_t)c->part_bytes : PART_BYTES;
	s->first_ms = c->retry_first_ms ? c->retry_first_ms : FIRST_MS;
	s->skew_log.every_ms = 5000;
	if (check_ca_file(c->ca_file, e) != 0 ||
		set_address(s, c->sink, e) != 0 ||
		!(s->hcli = hcli_new(l, &curl, e))) {
		s3_free(s);
		return NULL;
	}
	return s;
}

void
s3_free(struct s3 *s)
{
	struct s3_req *r;

	if (!s)
		return;
	while ((r = TAILQ_FIRST(&s->all)) != NULL) {
		s3_stop(r);
		req_free(r);
	}
	hcli_free(s->hcli);
	OPENSSL_cleanse(s->secret, strlen(s->secret));
	free(s->base);
	free(s->host);
	free(s->bucket);
	free(s->region);
	free(s->access);
	free(s->secret);
	free(s->kms_key_id);
	free(s);
}

void
s3_hurry(struct s3 *s)
{
	struct s3_req *r;

	s->hurried = true;
	TAILQ_FOREACH (r, &s->all, link)
		if (r->waiting)
			loop_timer_start(&r->timer, S3_HURRY_MAX_MS);
}

/* ---- a call ---- */

static void
on_timer(void *arg)
{
	struct s3_req *r = arg;

	r->waiting = false;
	r->next(r);
}

void
s3_later(struct s3_req *r, int64_t after_ms, void (*next)(struct s3_req *))
{
	r->next = next;
	loop_timer_start(&r->timer, after_ms);
}

static struct s3_req *
req_new(struct s3 *s, enum s3_op kind, struct span key, s3_fn fn, void *arg)
{
	struct s3_req *r = calloc(1, sizeof(*r));

	BUG(!r);
	r->s = s;
	r->kind = kind;
	r->fn = fn;
	r->arg = arg;
	buf_put_span(&r->key, key);
	loop_timer_init(&r->timer, s->loop, on_timer, r);
	TAILQ_INSERT_TAIL(&s->all, r, link);
	return r;
}

static void
tell(struct s3_req *r)
{
	s3_fn fn = r->fn;

	TAILQ_REMOVE(&r->s->all, r, link);
	r->s = NULL;
	if (fn)
		fn(r->arg, r->failed ? NULL : &r->answer,
			r->failed ? &r->error : NULL);
	req_free(r);
}

void
s3_finish(struct s3_req *r, bool ok)
{
	r->failed = !ok;
	s3_later(r, 0, tell);
}

void
s3_cancel(struct s3_req *r)
{
	if (s3_upload_detach(r))
		return;
	s3_stop(r);
	req_free(r);
}

/* ---- the calls ---- */

struct s3_req *
s3_put(struct s3 *s, struct span key, const char *type, const struct object *o,
	s3_part_fn on_part, s3_fn fn, void *arg)
{
	struct s3_req *r = req_new(s, S3_OP_PUT, key, fn, arg);

	r->type = copy(type);
	r->o = o;
	r->on_part = on_part;
	if (o->len > s->multipart_bytes) {
		s3_upload_start(r);
		return r;
	}
	s3_prepare(r, S3_OP_PUT, s3_finish);
	s3_body_object(r);
	s3_run(r);
	return r;
}

struct s3_req *
s3_get(struct s3 *s, struct span key, size_t max_bytes, s3_fn fn, void *arg)
{
	struct s3_req *r = req_new(s, S3_OP_GET, key, fn, arg);

	r->max_bytes = max_bytes;
	s3_prepare(r, S3_OP_GET, s3_finish);
	s3_run(r);
	return r;
}

struct s3_req *
s3_head(struct s3 *s, struct span key, s3_fn fn, void *arg)
{
	struct s3_req *r = req_new(s, S3_OP_HEAD, key, fn, arg);

	s3_prepare(r, S3_OP_HEAD, s3_finish);
	r->send.attempts_max = 1;
	s3_run(r);
	return r;
}

struct s3_req *
s3_peek(struct s3 *s, struct span key, s3_fn fn, void *arg)
{
	struct s3_req *r = req_new(s, S3_OP_GET, key, fn, arg);

	r->max_bytes = PEEK_MAX;
	s3_prepare(r, S3_OP_GET, s3_finish);
	r->send.attempts_max = 1;
	s3_run(r);
	return r;
}

struct s3_req *
s3_list(struct s3 *s, struct span prefix, struct span after, int max, s3_fn fn,
	void *arg)
{
	struct s3_req *r = req_new(s, S3_OP_LIST, prefix, fn, arg);
	char keys[12];
	struct sigv4_pair q[] = { { SPAN_LIT("list-type"), SPAN_LIT("2") },
		{ SPAN_LIT("max-keys"), SPAN_ZERO },
		{ SPAN_LIT("prefix"), prefix },
		{ SPAN_LIT("start-after"), after } };

	buf_put_span(&r->after, after);
	snprintf(keys, sizeof(keys), "%d", max);
	q[1].value = span_of(keys);
	s3_prepare(r, S3_OP_LIST, s3_finish);
	sigv4_query(&r->send.query, q, after.n ? 4 : 3);
	s3_run(r);
	return r;
}

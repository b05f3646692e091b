/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What handlers see of a request, and the reply.  A reply is one head and one
 * body, sent in one write when the socket takes it.
 */
#include "hsrv_int.h"

#include <stdio.h>
#include <strings.h>

#include "jwrite.h"

enum hsrv_method
hsrv_method(const struct hsrv_req *r)
{
	return r->method;
}

struct span
hsrv_path(const struct hsrv_req *r)
{
	return r->path;
}

void
hsrv_set_who(struct hsrv_req *r, const void *who)
{
	r->who = who;
}

const void *
hsrv_who(const struct hsrv_req *r)
{
	return r->who;
}

void *
hsrv_ctx(const struct hsrv_req *r)
{
	return r->s->conf.ctx;
}

struct span
hsrv_param(const struct hsrv_req *r, int i)
{
	BUG(i < 0 || i >= r->params_n);
	return r->params[i];
}

bool
hsrv_query(const struct hsrv_req *r, const char *key, struct span *out)
{
	return hsrv_uri_query(r->query, key, r->arena, out);
}

bool
hsrv_has_query(const struct hsrv_req *r)
{
	return r->query.p != NULL;
}

static bool
is_named(const struct hsrv_field *f, const char *name)
{
	size_t n = strlen(name);

	return f->name.n == n && strncasecmp(f->name.p, name, n) == 0;
}

bool
hsrv_header(const struct hsrv_req *r, const char *name, struct span *out)
{
	for (int i = 0; i < r->fields_n; i++)
		if (is_named(&r->fields[i], name)) {
			*out = r->fields[i].value;
			return true;
		}
	return false;
}

int
hsrv_header_count(const struct hsrv_req *r, const char *name)
{
	int n = 0;

	for (int i = 0; i < r->fields_n; i++)
		n += is_named(&r->fields[i], name);
	return n;
}

struct span
hsrv_body(const struct hsrv_req *r)
{
	return buf_span(&r->body);
}

struct arena *
hsrv_arena(struct hsrv_req *r)
{
	return r->arena;
}

void
hsrv_set_user(struct hsrv_req *r, void *user)
{
	r->user = user;
}

void *
hsrv_user(const struct hsrv_req *r)
{
	return r->user;
}

struct buf *
hsrv_out(struct hsrv_req *r)
{
	return &r->out;
}

void
hsrv_set_type(struct hsrv_req *r, const char *content_type)
{
	r->type = content_type;
}

static bool
is_one_line(const char *s)
{
	for (; *s; s++)
		if ((unsigned char)*s < 0x20 || *s == 0x7f)
			return false;
	return true;
}

/* A value with line ends would forge headers; it is left out. */
void
hsrv_add_header(struct hsrv_req *r, const char *name, const char *value)
{
	BUG(r->extra_n == HSRV_EXTRA_HEADERS_MAX);
	if (!is_one_line(value))
		return;
	r->extra[r->extra_n].name = name;
	r->extra[r->extra_n++].value = value;
}

const char *
hsrv_added_header(const struct hsrv_req *r, const char *name)
{
	for (int i = 0; i < r->extra_n; i++)
		if (strcmp(r->extra[i].name, name) == 0)
			return r->extra[i].value;
	return NULL;
}

static const char *
reason(int status)
{
	static const struct {
		int status;
		const char *text;
	} known[] = {
		{ 200, "OK" },
		{ 201, "Created" },
		{ 202, "Accepted" },
		{ 204, "No Content" },
		{ 304, "Not Modified" },
		{ 400, "Bad Request" },
		{ 401, "Unauthorized" },
		{ 403, "Forbidden" },
		{ 404, "Not Found" },
		{ 405, "Method Not Allowed" },
		{ 406, "Not Acceptable" },
		{ 408, "Request Timeout" },
		{ 409, "Conflict" },
		{ 410, "Gone" },
		{ 412, "Precondition Failed" },
		{ 413, "Content Too Large" },
		{ 414, "URI Too Long" },
		{ 415, "Unsupported Media Type" },
		{ 417, "Expectation Failed" },
		{ 422, "Unprocessable Content" },
		{ 429, "Too Many Requests" },
		{ 431, "Request Header Fields Too Large" },
		{ 500, "Internal Server Error" },
		{ 501, "Not Implemented" },
		{ 503, "Service Unavailable" },
		{ 505, "HTTP Version Not Supported" },
	};

	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
		if (known[i].status == status)
			return known[i].text;
	return "Status";
}

/* The longest head our own parts can make, without the added headers. */
enum { HEAD_ROOM = 256 };

static void
put(char **p, const char *s)
{
	size_t n = strlen(s);

	memcpy(*p, s, n);
	*p += n;
}

static void
put_number(char **p, size_t v)
{
	char digits[24], *d = digits + sizeof(digits);

	do {
		*--d = (char)('0' + v % 10);
		v /= 10;
	} while (v);
	memcpy(*p, d, (size_t)(digits + sizeof(digits) - d));
	*p += digits + sizeof(digits) - d;
}

const char *
hsrv_allow(struct hsrv_req *r)
{
	static const char *const names[] = { [HSRV_GET] = "GET",
		[HSRV_HEAD] = "HEAD",
		[HSRV_POST] = "POST",
		[HSRV_PUT] = "PUT",
		[HSRV_DELETE] = "DELETE" };
	static const char all[] = "GET, HEAD, POST, PUT, DELETE";
	const struct hsrv_conf *conf = &r->s->conf;
	struct span params[HSRV_PARAMS_MAX];
	bool has[HSRV_OTHER + 1] = { false }, any = false;
	char *list, *p;

	for (size_t i = 0; i < conf->routes_n; i++) {
		const struct hsrv_route *t = &conf->routes[i];

		if (hsrv_uri_match(t->pattern, r->path, r->arena, params) < 0)
			continue;
		any = has[t->method] = true;
		has[HSRV_HEAD] |= t->method == HSRV_GET;
	}
	if (!any)
		return NULL;
	p = list = arena_zalloc(r->arena, sizeof(all));
	for (int m = 0; m < HSRV_OTHER; m++) {
		if (has[m] && p > list)
			put(&p, ", ");
		if (has[m])
			put(&p, names[m]);
	}
	return list;
}

static void
write_head(struct hsrv_req *r, int status, bool bodiless)
{
	struct hsrv_conn *c = r->c;
	size_t room = HEAD_ROOM + strlen(r->type);
	char *start, *p;

	for (int i = 0; i < r->extra_n; i++)
		room += strlen(r->extra[i].name) + strlen(r->extra[i].value) +
			4;
	p = start = arena_alloc(r->arena, room);
	put(&p, "HTTP/1.1 ");
	put_number(&p, (size_t)status);
	put(&p, " ");
	put(&p, reason(status));
	put(&p, "\r\n");
	if (!bodiless) {
		put(&p, "Content-Type: ");
		put(&p, r->type);
		put(&p, "\r\nContent-Length: ");
		put_number(&p, r->out.len);
		put(&p, "\r\n");
	}
	if (c->must_close || !c->keep_alive || r->s->draining)
		put(&p, "Connection: close\r\n");
	else if (c->http10)
		put(&p, "Connection: keep-alive\r\n");
	for (int i = 0; i < r->extra_n; i++) {
		put(&p, r->extra[i].name);
		put(&p, ": ");
		put(&p, r->extra[i].value);
		put(&p, "\r\n");
	}
	put(&p, "\r\n");
	BUG((size_t)(p - start) > room);
	r->head_out = span_make(start, (size_t)(p - start));
}

void
hsrv_reply(struct hsrv_req *r, int status)
{
	struct hsrv_conn *c = r->c;
	bool bodiless = status == 204 || status == 304;

	BUG(r->replied || status < 200 || status > 599);
	r->replied = true;
	hsrv_unpark(r);
	r->out_n = bodiless || r->method == HSRV_HEAD ? 0 : r->out.len;
	write_head(r, status, bodiless);
	hsrv_conn_send(c);
}

void
hsrv_reply_begin(struct hsrv_req *r)
{
	if (r->begun)
		return;
	r->begun = true;
	if (r->s->conf.begin)
		r->s->conf.begin(r);
}

static void
put_error(struct hsrv_req *r, int status, const char *text)
{
	struct jwrite w;

	buf_reset(&r->out);
	if (r->s->conf.error) {
		r->s->conf.error(r, status, text);
		return;
	}
	r->type = "application/json";
	jwrite_init(&w, &r->out);
	jwrite_object(&w);
	jwrite_kv_str(&w, "error", span_of(text));
	jwrite_end(&w);
}

void
hsrv_reply_error(struct hsrv_req *r, int status, const char *fmt, ...)
{
	char text[512];
	size_t n, at = 0;
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	/* What the text quotes, or its cut end, may not be UTF-8. */
	n = strlen(text);
	while ((at += hsrv_uri_utf8_prefix(span_make(text + at, n - at))) < n)
		text[at++] = '?';
	put_error(r, status, text);
	hsrv_reply(r, status);
}

void
hsrv_reply_refuse(struct hsrv_conn *c, int status, const char *text)
{
	c->must_close = true;
	hsrv_reply_begin(c->req);
	put_error(c->req, status, text);
	hsrv_reply(c->req, status);
}

void
hsrv_park(struct hsrv_req *r, hsrv_fn on_gone)
{
	struct hsrv_conn *c = r->c;

	BUG(c->state != HSRV_AT_HANDLER || r->replied);
	if (!c->parked) {
		c->parked = true;
		r->s->stats.parked++;
	}
	c->on_gone = c->gone_told ? NULL : on_gone;
	/* It may have left before; the answer comes after this call. */
	if (c->gone || hsrv_conn_hangs_up(c, true))
		hsrv_conn_later(c);
}

void
hsrv_unpark(struct hsrv_req *r)
{
	struct hsrv_conn *c = r->c;

	c->on_gone = NULL;
	if (c->parked) {
		c->parked = false;
		r->s->stats.parked--;
	}
}

bool
hsrv_is_gone(const struct hsrv_req *r)
{
	return r->c->gone;
}

void
hsrv_drop(struct hsrv_req *r)
{
	hsrv_conn_close(r->c);
}

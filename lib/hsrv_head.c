/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The request head of RFC 9112, read strictly: what two parsers could read
 * in two ways is refused, so that no proxy in front can be led to disagree
 * with us about where a request ends.
 */
#include "hsrv_int.h"

#include <strings.h>

static bool
refuse(struct hsrv_head *h, int status, const char *error)
{
	h->status = status;
	h->error = error;
	return false;
}

/* A token character of RFC 9110. */
static bool
is_token(unsigned char c)
{
	unsigned char lower = c | 0x20;

	return (lower >= 'a' && lower <= 'z') || (c >= '0' && c <= '9') ||
	       (c && strchr("!#$%&'*+-.^_`|~", c));
}

static bool
is_value_byte(unsigned char c)
{
	return (c >= 0x20 && c != 0x7f) || c == '\t';
}

/* Garbage (a TLS hello, say) is told at once, not after ten seconds. */
static bool
method_can_begin(struct span in)
{
	for (size_t i = 0; i < in.n && i < 64 && in.p[i] != ' '; i++)
		if (!is_token((unsigned char)in.p[i]))
			return false;
	return in.n == 0 || in.p[0] != ' ';
}

static bool
line_bounds(struct span in, struct hsrv_head *h)
{
	const char *lf = memchr(in.p, '\n', in.n);
	size_t line = lf ? (size_t)(lf - in.p) : in.n;

	if (line > HSRV_LINE_MAX)
		return refuse(h, 414, "request line too long");
	if (in.n > HSRV_HEAD_MAX)
		return refuse(h, 431, "request head too large");
	return true;
}

int
hsrv_head_end(struct span in, size_t *scanned, struct hsrv_head *h)
{
	size_t at = *scanned, skip;

	/* One empty line before the request line is forgiven (RFC 9112, 2.2) */
	skip = in.n >= 2 && in.p[0] == '\r' && in.p[1] == '\n' ? 2 : 0;
	if (at < skip)
		at = skip;
	while (at < in.n) {
		const char *lf = memchr(in.p + at, '\n', in.n - at);
		size_t i;

		if (!lf)
			break;
		i = (size_t)(lf - in.p);
		if (i == 0 || in.p[i - 1] != '\r') {
			refuse(h, 400, "bare LF in the request head");
			return -1;
		}
		at = i + 1;
		if (i >= 3 && i - 2 >= skip && in.p[i - 2] == '\n') {
			struct span head = { .p = in.p + skip, .n = at - skip };

			return line_bounds(head, h) ? (int)at : -1;
		}
		if (i == skip + 1) {
			refuse(h, 400, "empty request line");
			return -1;
		}
		if (at > HSRV_HEAD_MAX + 2)
			break;
	}
	*scanned = in.n;
	if (in.n > skip) {
		struct span head = { .p = in.p + skip, .n = in.n - skip };

		if (head.n == 1 && head.p[0] == '\r')
			return 0; /* half of an empty line */
		if (!method_can_begin(head)) {
			refuse(h, 400, "malformed request line");
			return -1;
		}
		if (!line_bounds(head, h))
			return -1;
	}
	return 0;
}

static enum hsrv_method
method_of(struct span m)
{
	static const struct {
		struct span name;
		enum hsrv_method method;
	} known[] = {
		{ { "GET", 3 }, HSRV_GET },
		{ { "POST", 4 }, HSRV_POST },
		{ { "HEAD", 4 }, HSRV_HEAD },
		{ { "PUT", 3 }, HSRV_PUT },
		{ { "DELETE", 6 }, HSRV_DELETE },
	};

	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
		if (span_eq(m, known[i].name))
			return known[i].method;
	return HSRV_OTHER;
}

static bool
parse_version(struct span v, struct hsrv_head *h)
{
	if (v.n != 8 || memcmp(v.p, "HTTP/", 5) != 0 || v.p[6] != '.' ||
		v.p[5] < '0' || v.p[5] > '9' || v.p[7] < '0' || v.p[7] > '9')
		return refuse(h, 400, "malformed HTTP version");
	if (v.p[5] != '1')
		return refuse(h, 505, "HTTP version not supported");
	h->minor = v.p[7] - '0';
	h->keep_alive = h->minor > 0;
	return true;
}

/* origin-form, http:// absolute-form, or * which no route matches. */
static bool
parse_target(struct span t, struct hsrv_head *h)
{
	const char *mark, *error;

	for (size_t i = 0; i < t.n; i++) {
		unsigned char c = (unsigned char)t.p[i];

		if (c <= 0x20 || c >= 0x7f || c == '#')
			return refuse(h, 400,
				"character not allowed in the request target");
	}
	if (t.n > 7 && strncasecmp(t.p, "http://", 7) == 0) {
		size_t i = 7;

		while (i < t.n && t.p[i] != '/' && t.p[i] != '?')
			i++;
		if (i == 7)
			return refuse(h, 400, "no host in the target");
		t = span_make(t.p + i, t.n - i);
		if (t.n == 0 || t.p[0] == '?') {
			h->path = SPAN_LIT("/");
			h->query = t.n ? span_make(t.p + 1, t.n - 1) : t;
			goto checks;
		}
	}
	if (t.n == 0 || (t.p[0] != '/' && !span_is(t, "*")))
		return refuse(h, 400, "malformed request target");
	mark = memchr(t.p, '?', t.n);
	h->path = span_make(t.p, mark ? (size_t)(mark - t.p) : t.n);
	if (mark)
		h->query = span_make(mark + 1, t.n - h->path.n - 1);
checks:
	error = hsrv_uri_check(h->path);
	if (!error)
		error = hsrv_uri_check(h->query);
	return error ? refuse(h, 400, error) : true;
}

static bool
parse_request_line(struct span l, struct hsrv_head *h)
{
	const char *sp1 = memchr(l.p, ' ', l.n), *sp2;
	struct span m, rest;

	if (!sp1 || sp1 == l.p)
		return refuse(h, 400, "malformed request line");
	m = span_make(l.p, (size_t)(sp1 - l.p));
	for (size_t i = 0; i < m.n; i++)
		if (!is_token((unsigned char)m.p[i]))
			return refuse(h, 400, "malformed request line");
	h->method = method_of(m);
	rest = span_make(sp1 + 1, l.n - m.n - 1);
	sp2 = memchr(rest.p, ' ', rest.n);
	if (!sp2 || sp2 == rest.p)
		return refuse(h, 400, "malformed request line");
	return parse_version(
		       span_make(sp2 + 1, rest.n - (size_t)(sp2 - rest.p) - 1),
		       h) &&
	       parse_target(span_make(rest.p, (size_t)(sp2 - rest.p)), h);
}

bool
hsrv_head_field(struct span l, struct hsrv_field *f)
{
	size_t i = 0, end = l.n;

	while (i < l.n && is_token((unsigned char)l.p[i]))
		i++;
	if (i == 0 || i == l.n || l.p[i] != ':')
		return false;
	f->name = span_make(l.p, i);
	for (i++; i < end && (l.p[i] == ' ' || l.p[i] == '\t'); i++)
		;
	while (end > i && (l.p[end - 1] == ' ' || l.p[end - 1] == '\t'))
		end--;
	f->value = span_make(l.p + i, end - i);
	for (; i < end; i++)
		if (!is_value_byte((unsigned char)l.p[i]))
			return false;
	return true;
}

static bool
name_is(struct span name, const char *lower)
{
	return name.n == strlen(lower) &&
	       strncasecmp(name.p, lower, name.n) == 0;
}

static bool
parse_length(struct span v, struct hsrv_head *h)
{
	int64_t n = 0;

	if (h->length >= 0)
		return refuse(h, 400, "repeated Content-Length");
	if (v.n == 0)
		return refuse(h, 400, "malformed Content-Length");
	for (size_t i = 0; i < v.n; i++) {
		if (v.p[i] < '0' || v.p[i] > '9')
			return refuse(h, 400, "malformed Content-Length");
		/* saturates: too large is 413, not malformed */
		if (n > (INT64_MAX - 9) / 10)
			n = INT64_MAX;
		else
			n = n * 10 + (v.p[i] - '0');
	}
	h->length = n;
	return true;
}

/* The next element of a comma list, without blanks; false at the end. */
static bool
list_next(struct span *rest, struct span *item)
{
	const char *comma;
	size_t n;

	if (!rest->p)
		return false;
	comma = memchr(rest->p, ',', rest->n);
	n = comma ? (size_t)(comma - rest->p) : rest->n;
	*item = span_make(rest->p, n);
	while (item->n && (item->p[0] == ' ' || item->p[0] == '\t'))
		*item = span_make(item->p + 1, item->n - 1);
	while (item->n &&
		(item->p[item->n - 1] == ' ' || item->p[item->n - 1] == '\t'))
		item->n--;
	*rest = comma ? span_make(comma + 1, rest->n - n - 1)
		      : (struct span)SPAN_ZERO;
	return true;
}

static bool
host_is_valid(struct span v)
{
	for (size_t i = 0; i < v.n; i++) {
		unsigned char c = (unsigned char)v.p[i];

		if (c <= 0x20 || c >= 0x7f || memchr("/\\?#@<>\"^`{|},", c, 14))
			return false;
	}
	return true;
}

struct fields_seen {
	bool host, te, closes, keeps;
};

static bool
use_field(const struct hsrv_field *f, struct fields_seen *seen,
	struct hsrv_head *h)
{
	struct span rest = f->value, item;

	switch (f->name.n) {
	case 4:
		if (!name_is(f->name, "host"))
			return true;
		if (seen->host)
			return refuse(h, 400, "repeated Host");
		seen->host = true;
		if (!host_is_valid(f->value))
			return refuse(h, 400, "malformed Host");
		return true;
	case 6:
		if (!name_is(f->name, "expect"))
			return true;
		if (!name_is(f->value, "100-continue"))
			return refuse(h, 417, "unknown expectation");
		h->expect_continue = true;
		return true;
	case 10:
		if (!name_is(f->name, "connection"))
			return true;
		while (list_next(&rest, &item)) {
			seen->closes |= name_is(item, "close");
			seen->keeps |= name_is(item, "keep-alive");
		}
		return true;
	case 14:
		return !name_is(f->name, "content-length") ||
		       parse_length(f->value, h);
	case 17:
		if (!name_is(f->name, "transfer-encoding"))
			return true;
		if (seen->te)
			return refuse(h, 400, "repeated Transfer-Encoding");
		seen->te = true;
		if (!name_is(f->value, "chunked"))
			return refuse(
				h, 501, "transfer encoding not supported");
		h->chunked = true;
		return true;
	}
	return true;
}

static bool
conclude(const struct fields_seen *seen, struct hsrv_head *h)
{
	if (!seen->host && h->minor > 0)
		return refuse(h, 400, "no Host");
	if (h->chunked && h->length >= 0)
		return refuse(
			h, 400, "both Content-Length and Transfer-Encoding");
	if (h->chunked && h->minor == 0)
		return refuse(
			h, 400, "Transfer-Encoding in an HTTP/1.0 request");
	if (h->minor == 0) {
		h->expect_continue = false;
		h->keep_alive = seen->keeps;
	}
	if (seen->closes)
		h->keep_alive = false;
	return true;
}

bool
hsrv_head_parse(struct span in, struct hsrv_field *fields, struct hsrv_head *h)
{
	const char *p = in.p, *end = in.p + in.n, *lf;
	struct fields_seen seen = { .host = false };
	bool first = true;

	*h = (struct hsrv_head){ .length = -1, .fields = fields };
	if (in.n >= 2 && p[0] == '\r' && p[1] == '\n')
		p += 2;
	for (; p < end; p = lf + 1) {
		struct span line;

		lf = memchr(p, '\n', (size_t)(end - p));
		if (!lf || lf == p || lf[-1] != '\r')
			return refuse(h, 400, "bare LF in the request head");
		line = span_make(p, (size_t)(lf - 1 - p));
		if (first) {
			first = false;
			if (!parse_request_line(line, h))
				return false;
			continue;
		}
		if (line.n == 0)
			break;
		if (line.p[0] == ' ' || line.p[0] == '\t')
			return refuse(h, 400, "folded header line");
		if (h->fields_n == HSRV_FIELDS_MAX)
			return refuse(h, 431, "too many header lines");
		if (!hsrv_head_field(line, &fields[h->fields_n]))
			return refuse(h, 400, "malformed header line");
		if (!use_field(&fields[h->fields_n++], &seen, h))
			return false;
	}
	if (first)
		return refuse(h, 400, "empty request line");
	return conclude(&seen, h);
}

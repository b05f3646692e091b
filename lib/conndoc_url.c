/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A connection URL taken apart and folded into the fields: what it names
 * wins, what it leaves out stays.  Nothing of it is ever repeated in a text:
 * an unescaped character can move the password into any part.
 */
#include <stdint.h>
#include <string.h>

#include "arena.h"
#include "conndoc_int.h"
#include "jspan.h"

static const struct span URL = SPAN_LIT("connection.url");

static bool
decode(struct conndoc_read *rd, struct span in, struct span *out)
{
	char *p = arena_alloc(rd->a, in.n + 1);
	size_t n = 0;

	for (size_t i = 0; i < in.n; i++) {
		if (in.p[i] != '%') {
			p[n++] = in.p[i];
			continue;
		}
		int hi = in.n - i > 2 ? span_hex(in.p[i + 1]) : -1;
		int lo = hi < 0 ? -1 : span_hex(in.p[i + 2]);

		if (lo < 0)
			return conndoc_refuse(rd, URL,
				"has a %% without two hex digits behind it; "
				"write %%25 for a percent sign");
		p[n++] = (char)(hi << 4 | lo);
		i += 2;
	}
	*out = span_make(p, n);
	if (!jspan_utf8(*out) || (n && memchr(p, 0, n)))
		return conndoc_refuse(rd, URL,
			"has escapes that are no UTF-8 text without zero "
			"bytes");
	return true;
}

/* Only what is there replaces the field. */
static bool
put(struct conndoc_read *rd, struct span in, struct span *field)
{
	struct span s;

	if (!decode(rd, in, &s))
		return false;
	if (s.n)
		*field = s;
	return true;
}

static bool
put_host(struct conndoc_read *rd, struct span in, struct conndoc_conn *c)
{
	if (!put(rd, in, &c->host))
		return false;
	if (c->host.n && memchr(c->host.p, ',', c->host.n))
		return conndoc_refuse(
			rd, URL, "names several hosts; write one");
	return true;
}

static bool
put_password(struct conndoc_read *rd, struct span in, struct conndoc_conn *c)
{
	struct span s;

	if (!decode(rd, in, &s))
		return false;
	if (s.n == 0)
		return true;
	conndoc_wipe_password(c);
	c->password = s;
	c->password_given = true;
	return true;
}

static bool
put_port(struct conndoc_read *rd, struct span in, struct conndoc_conn *c)
{
	struct span s;
	int64_t port;

	if (!decode(rd, in, &s))
		return false;
	if (s.n == 0)
		return true;
	if (!span_i64(s, &port) || port < 1 || port > 65535)
		return conndoc_refuse(rd, URL,
			"has a port outside 1..=65535 (write an IPv6 address "
			"in brackets, and %%40 %%3A %%2F for @ : / in a "
			"password)");
	c->port = port;
	return true;
}

/* ---- the parts ---- */

static bool
user_info(struct conndoc_read *rd, struct span s, struct conndoc_conn *c)
{
	const char *colon = s.n ? memchr(s.p, ':', s.n) : NULL;
	size_t n = colon ? (size_t)(colon - s.p) : s.n;

	if (!put(rd, span_make(s.p, n), &c->user))
		return false;
	return !colon || put_password(rd, span_make(colon + 1, s.n - n - 1), c);
}

static bool
host_port(struct conndoc_read *rd, struct span s, struct conndoc_conn *c)
{
	const char *end;
	size_t n;

	if (s.n && s.p[0] == '[') {
		end = memchr(s.p, ']', s.n);
		n = end ? (size_t)(end - s.p) + 1 : 0;
		if (!end || (n < s.n && s.p[n] != ':'))
			return conndoc_refuse(
				rd, URL, "has a bracket without end");
	} else {
		end = s.n ? memchr(s.p, ':', s.n) : NULL;
		n = end ? (size_t)(end - s.p) : s.n;
	}
	if (!put_host(rd, span_make(s.p, n), c))
		return false;
	return n >= s.n || put_port(rd, span_make(s.p + n + 1, s.n - n - 1), c);
}

static bool
authority(struct conndoc_read *rd, struct span s, struct conndoc_conn *c)
{
	const char *at = s.n ? memrchr(s.p, '@', s.n) : NULL;

	if (at) {
		size_t n = (size_t)(at - s.p);

		if (!user_info(rd, span_make(s.p, n), c))
			return false;
		s = span_make(at + 1, s.n - n - 1);
	}
	return host_port(rd, s, c);
}

/* ---- parameters ---- */

static bool
put_ssl(struct conndoc_read *rd, struct span in, struct conndoc_conn *c)
{
	struct span s;

	if (!decode(rd, in, &s))
		return false;
	for (unsigned i = 0; conndoc_ssls[i]; i++)
		if (span_is(s, conndoc_ssls[i])) {
			c->ssl = i;
			return true;
		}
	return conndoc_refuse(rd, URL,
		span_is(s, "verify-ca")
			? "has sslmode verify-ca, which does not exist; use "
			  "verify-full"
			: "has an unknown sslmode; write disable, prefer, "
			  "require or verify-full");
}

static bool
put_timeout(struct conndoc_read *rd, struct span in, struct conndoc_conn *c)
{
	struct span s;
	int64_t v;

	if (!decode(rd, in, &s))
		return false;
	if (!span_i64(s, &v) || v < 1 || v > 120)
		return conndoc_refuse(rd, URL,
			"has a connect_timeout outside 1..=120 seconds");
	c->connect_timeout_ms = v * 1000;
	return true;
}

static bool
parameter(struct conndoc_read *rd, struct span key, struct span v,
	struct conndoc_conn *c)
{
	if (span_is(key, "sslmode"))
		return put_ssl(rd, v, c);
	if (span_is(key, "connect_timeout"))
		return put_timeout(rd, v, c);
	if (span_is(key, "host"))
		return put_host(rd, v, c);
	if (span_is(key, "port"))
		return put_port(rd, v, c);
	if (span_is(key, "dbname"))
		return put(rd, v, &c->database);
	if (span_is(key, "user"))
		return put(rd, v, &c->user);
	if (span_is(key, "password"))
		return put_password(rd, v, c);
	if (span_is(key, "sslrootcert"))
		return conndoc_refuse(rd, URL,
			"has sslrootcert, which names a file; put the PEM "
			"text in connection.sslRootCert");
	return conndoc_refuse(rd, URL,
		"has an unknown parameter; there are sslmode, "
		"connect_timeout, host, port, dbname, user, password");
}

static bool
parameters(struct conndoc_read *rd, struct span s, struct conndoc_conn *c)
{
	while (s.n) {
		const char *amp = memchr(s.p, '&', s.n);
		size_t n = amp ? (size_t)(amp - s.p) : s.n;
		const char *eq = memchr(s.p, '=', n);
		size_t k = eq ? (size_t)(eq - s.p) : n;
		struct span key;

		if (n && !eq)
			return conndoc_refuse(
				rd, URL, "has a parameter without a value");
		if (n && (!decode(rd, span_make(s.p, k), &key) ||
				 !parameter(rd, key,
					 span_make(eq + 1, n - k - 1), c)))
			return false;
		s = span_make(s.p + n + (amp != NULL), s.n - n - (amp != NULL));
	}
	return true;
}

static bool
after(struct span *s, const char *prefix)
{
	size_t n = strlen(prefix);

	if (s->n < n || memcmp(s->p, prefix, n) != 0)
		return false;
	*s = span_make(s->p + n, s->n - n);
	return true;
}

bool
conndoc_fold(struct conndoc_read *rd, struct conndoc_conn *c)
{
	struct span s = rd->url;
	const char *q;
	size_t n;

	if (!after(&s, "postgres://") && !after(&s, "postgresql://"))
		return conndoc_refuse(rd, URL,
			"must start with postgres:// or postgresql://");
	q = s.n ? memchr(s.p, '?', s.n) : NULL;
	n = q ? (size_t)(q - s.p) : s.n;
	struct span rest =
		q ? span_make(q + 1, s.n - n - 1) : (struct span)SPAN_ZERO;
	struct span front = span_make(s.p, n);
	const char *slash = n ? memchr(front.p, '/', n) : NULL;
	size_t host_n = slash ? (size_t)(slash - front.p) : n;

	if (!authority(rd, span_make(front.p, host_n), c))
		return false;
	if (slash &&
		!put(rd, span_make(slash + 1, n - host_n - 1), &c->database))
		return false;
	return parameters(rd, rest, c);
}

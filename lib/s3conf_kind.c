/* SPDX-License-Identifier: Apache-2.0 */
/* How a value of each kind is judged and kept, and all of them in order. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "buf.h"
#include "clk.h"
#include "jspan.h"
#include "s3conf_int.h"

static void *
place(const struct s3conf_source *s, const struct s3conf_rule *r)
{
	return (char *)s->c + r->at;
}

/* It goes into a header, a host name or a path as it is. */
static int
set_text(struct s3conf_source *s, enum s3conf_key k)
{
	const char *t = s->v[k].text;

	for (const char *p = t; *p; p++)
		if (*p <= ' ' || *p > '~' ||
			(*p == '/' && k != S3CONF_KMS_KEY_ID))
			return s3conf_refuse(s, k,
				"must be one word of ASCII, no slash, no "
				"space. It is %s",
				s3conf_rules[k].what);
	*(char **)place(s, &s3conf_rules[k]) = s3conf_dup(span_of(t));
	return 0;
}

bool
s3conf_bucket_ok(struct span s)
{
	for (size_t i = 0; i < s.n; i++)
		if (!(s.p[i] >= 'a' && s.p[i] <= 'z') &&
			!(s.p[i] >= 'A' && s.p[i] <= 'Z') &&
			!(s.p[i] >= '0' && s.p[i] <= '9') &&
			!memchr("._-", s.p[i], 3))
			return false;
	return s.n > 0;
}

static int
set_bucket(struct s3conf_source *s)
{
	struct span t = span_of(s->v[S3CONF_BUCKET].text);

	if (!s3conf_bucket_ok(t))
		return s3conf_refuse(s, S3CONF_BUCKET,
			"must be one name, no slash, no space; a "
			"folder in the bucket is %s",
			s3conf_key_name(s, S3CONF_PREFIX));
	s->c->bucket = s3conf_dup(t);
	return 0;
}

static int
set_secret(struct s3conf_source *s, enum s3conf_key k)
{
	const char *t = s->v[k].text;

	if (strlen(t) > S3CONF_SECRET_MAX)
		return s3conf_refuse(
			s, k, "is longer than %d bytes", S3CONF_SECRET_MAX);
	s->c->secret_key = s3conf_dup(span_of(t));
	return 0;
}

/* `a (b, c), d`: what follows with the same meaning is an alias. */
static void
put_words(struct buf *b, const struct s3conf_word *w)
{
	for (const struct s3conf_word *p = w; p->name; p++) {
		bool alias = p > w && p[-1].value == p->value;
		bool more = p[1].name && p[1].value == p->value;
		bool first_alias =
			alias && (p - 1 == w || p[-2].value != p->value);

		if (p > w)
			buf_puts(b, first_alias ? " (" : ", ");
		buf_puts(b, p->name);
		if (alias && !more)
			buf_putc(b, ')');
	}
}

static const struct s3conf_word *
find_word(const struct s3conf_word *w, const char *text)
{
	while (w->name && strcasecmp(w->name, text) != 0)
		w++;
	return w->name ? w : NULL;
}

static int
no_word(struct s3conf_source *s, enum s3conf_key k,
	const struct s3conf_word *words, const char *more)
{
	struct buf b = BUF_ZERO;
	int rc;

	put_words(&b, words);
	buf_putc(&b, '\0');
	rc = s3conf_refuse(s, k, "is not one of %s%s. It is %s", b.p, more,
		s3conf_rules[k].what);
	buf_fini(&b);
	return rc;
}

static int
set_word(struct s3conf_source *s, enum s3conf_key k, const char *text)
{
	const struct s3conf_word *w = find_word(s3conf_rules[k].words, text);

	if (!w) {
		char more[64] = "";

		if (k == S3CONF_COMPRESSION)
			snprintf(more, sizeof(more), "; that of Parquet is %s",
				s3conf_key_name(s, S3CONF_PARQUET_CODEC));
		return no_word(s, k, s3conf_rules[k].words, more);
	}
	memcpy(place(s, &s3conf_rules[k]), &w->value, sizeof(w->value));
	return 0;
}

static int
set_number(struct s3conf_source *s, enum s3conf_key k, const char *text)
{
	const struct s3conf_rule *r = &s3conf_rules[k];
	int64_t n;

	if (!span_i64(span_of(text), &n))
		return s3conf_refuse(s, k,
			"is not a whole number. It is %s, in %" PRId64
			"..=%" PRId64,
			r->what, r->min, r->max);
	if (n < r->min || n > r->max)
		return s3conf_refuse(s, k,
			"is outside %" PRId64 "..=%" PRId64 ". It is %s",
			r->min, r->max, r->what);
	memcpy(place(s, r), &n, sizeof(n));
	return 0;
}

static int
set_boolean(struct s3conf_source *s, enum s3conf_key k, const char *text)
{
	static const struct s3conf_word words[] = { { "true", 1 }, { "1", 1 },
		{ "yes", 1 }, { "on", 1 }, { "false", 0 }, { "0", 0 },
		{ "no", 0 }, { "off", 0 }, { .name = NULL } };
	const struct s3conf_word *w = find_word(words, text);

	if (!w)
		return s3conf_refuse(s, k,
			"is not a boolean (true/false, 1/0, yes/no, on/off). "
			"It is %s",
			s3conf_rules[k].what);
	*(bool *)place(s, &s3conf_rules[k]) = w->value;
	return 0;
}

static int
set_start(struct s3conf_source *s, const char *text)
{
	static const char at[] = "timestamp:";
	enum { N = sizeof(at) - 1 };
	const struct s3conf_word *w = find_word(s3conf_starts, text);
	struct span t = span_of(text);

	if (w) {
		s->c->start = (enum s3_start)w->value;
		return 0;
	}
	if (t.n > N && strncasecmp(text, at, N) == 0 && t.p[t.n - 1] == 'Z' &&
		memchr(t.p + N, 'T', t.n - N) &&
		clk_parse_iso(span_make(t.p + N, t.n - N), &s->c->start_us)) {
		s->c->start = S3_TIMESTAMP;
		return 0;
	}
	return no_word(s, S3CONF_START, s3conf_starts,
		", timestamp:2026-01-31T00:00:00Z");
}

static int
set_sink(struct s3conf_source *s, const char *text)
{
	static const char alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
				       "abcdefghijklmnopqrstuvwxyz"
				       "0123456789._-";
	size_t n = strlen(text);

	if (n > S3CONF_SINK_MAX || strspn(text, alphabet) != n)
		return s3conf_refuse(s, S3CONF_SINK,
			"must be 1 to %d of A-Z a-z 0-9 . _ -. It is %s, so "
			"two sinks on one queue need different prefixes too",
			S3CONF_SINK_MAX, s3conf_rules[S3CONF_SINK].what);
	memcpy(s->c->sink, text, n + 1);
	return 0;
}

static int
set_one(struct s3conf_source *s, enum s3conf_key k, const char *text)
{
	const struct s3conf_rule *r = &s3conf_rules[k];

	switch (r->kind) {
	case S3CONF_IS_TEXT:
		return k == S3CONF_BUCKET ? set_bucket(s) : set_text(s, k);
	case S3CONF_IS_SECRET:
		return set_secret(s, k);
	case S3CONF_IS_WORD:
		return set_word(s, k, text);
	case S3CONF_IS_NUMBER:
		return set_number(s, k, text);
	case S3CONF_IS_BOOLEAN:
		return set_boolean(s, k, text);
	case S3CONF_IS_START:
		return set_start(s, text);
	case S3CONF_IS_SINK:
		return set_sink(s, text);
	case S3CONF_IS_OWN:
		return r->own(s);
	}
	return 0;
}

/* ---- all of them ---- */

/* JSON that is neither a text nor a list of them. */
static int
set_json(struct s3conf_source *s, enum s3conf_key k)
{
	const struct s3conf_rule *r = &s3conf_rules[k];
	const char *t = s->v[k].text;

	if (r->kind == S3CONF_IS_NUMBER)
		return set_number(s, k, t);
	if (r->kind == S3CONF_IS_BOOLEAN)
		return set_boolean(s, k, *t == 't' || *t == 'f' ? t : "");
	return s3conf_refuse(s, k, "is not a text. It is %s", r->what);
}

static int
apply_one(struct s3conf_source *s, enum s3conf_key k)
{
	const struct s3conf_rule *r = &s3conf_rules[k];
	const struct s3conf_value *v = &s->v[k];
	struct span t = span_of(v->text);

	if (s->doc && !r->field)
		return 0;
	if (v->is == S3CONF_UNSET && r->needed)
		return s3conf_refuse(s, k, "is not set: it is %s", r->what);
	if (v->is == S3CONF_UNSET)
		return r->dflt ? set_one(s, k, r->dflt) : 0;
	if (v->is == S3CONF_OTHER)
		return set_json(s, k);
	if (t.n && !jspan_utf8(t))
		return s3conf_refuse(s, k, "is no text");
	for (size_t i = 0; i < t.n; i++)
		if ((unsigned char)t.p[i] < 0x20 || t.p[i] == 0x7f)
			return s3conf_refuse(s, k, "holds a control character");
	return set_one(s, k, v->text);
}

/* The bucket goes in front of the host by itself; twice is a folder. */
static int
check_first_label(struct s3conf_source *s)
{
	const char *host = strstr(s->c->endpoint, "://") + 3;
	size_t n = strlen(s->c->bucket);

	if (strncasecmp(host, s->c->bucket, n) == 0 && host[n] == '.')
		return s3conf_refuse(s, S3CONF_ENDPOINT,
			"begins with the bucket: leave it out, %s alone says "
			"where the bucket is put",
			s3conf_key_name(s, S3CONF_PATH_STYLE));
	return 0;
}

int
s3conf_apply(struct s3conf_source *s)
{
	for (int k = 0; k < S3CONF_KEYS; k++)
		if (apply_one(s, (enum s3conf_key)k) < 0)
			return -1;
	if (s->c->kms_key_id && s->c->sse != S3_SSE_KMS)
		return s3conf_refuse(s, S3CONF_KMS_KEY_ID,
			"would be ignored: it is for %s=aws:kms alone",
			s3conf_key_name(s, S3CONF_SSE));
	return check_first_label(s);
}

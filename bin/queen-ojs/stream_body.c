/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the readers of bodies share.  The members of a flat object are put into
 * a table first, then each reader takes from there what it knows, so that
 * what is wrong is told in the order of the contract and not of the body.
 */
#include <stdarg.h>
#include <stdio.h>

#include "queue.h"
#include "stream_body_int.h"

enum { NAME_MAX_BYTES = 128 };

int
stream_body_bad(
	const struct stream_reader *r, const char *field, const char *fmt, ...)
{
	char text[160], details[96];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	if (r->index < 0)
		return problem_field(
			r->p, r->a, field, "`%s` %s.", field, text);
	snprintf(details, sizeof(details), "\"field\":\"%s\",\"index\":%lld",
		field, (long long)r->index);
	return problem_set(r->p, r->a, 400, "invalid_request", details,
		"`%s` of message %lld %s.", field, (long long)r->index, text);
}

int
stream_body_bad_json(const struct stream_reader *r, const struct jspan *j)
{
	return problem_set(r->p, r->a, 400, "invalid_payload", NULL,
		"The body is no JSON: %s at byte %zu.",
		j->error ? j->error : "unexpected value", j->error_at);
}

int
stream_body_not_object(const struct stream_reader *r)
{
	return problem_set(r->p, r->a, 400, "invalid_payload", NULL,
		"The body must be one JSON object.");
}

int
stream_body_too_deep(const struct stream_reader *r, int max)
{
	char details[48];

	snprintf(details, sizeof(details), "\"index\":%lld",
		(long long)r->index);
	return problem_set(r->p, r->a, 400, "invalid_payload",
		r->index < 0 ? NULL : details,
		"The message is nested deeper than %d.", max);
}

int
stream_body_too_large(const struct stream_reader *r, const char *field,
	size_t size, int64_t limit)
{
	char details[160], at[48] = "";

	if (r->index >= 0)
		snprintf(
			at, sizeof(at), ",\"index\":%lld", (long long)r->index);
	snprintf(details, sizeof(details),
		"\"field\":\"%s\",\"size\":%zu,\"limit\":%lld%s", field, size,
		(long long)limit, at);
	return problem_set(r->p, r->a, 413, "envelope_too_large", details,
		"`%s` has %zu bytes; the limit is %lld.", field, size,
		(long long)limit);
}

/* ---- members ---- */

int
stream_body_members(struct jspan *j, const struct stream_reader *r,
	struct stream_member *m, size_t n)
{
	struct span key;
	struct jspan_val v;

	if (!jspan_enter_object(j))
		return stream_body_bad_json(r, j);
	while (jspan_next_key(j, r->a, &key)) {
		if (!jspan_take(j, &v))
			break;
		for (size_t i = 0; i < n; i++)
			if (span_is(key, m[i].key))
				m[i].v = v;
	}
	return j->error ? stream_body_bad_json(r, j) : 0;
}

int
stream_body_read(struct span body, const struct stream_reader *r,
	struct stream_member *m, size_t n)
{
	struct jspan j;

	jspan_open(&j, body);
	if (jspan_peek(&j) != JSPAN_OBJECT)
		return stream_body_not_object(r);
	if (stream_body_members(&j, r, m, n) != 0)
		return -1;
	return jspan_end(&j) ? 0 : stream_body_bad_json(r, &j);
}

bool
stream_body_given(const struct stream_member *m)
{
	return m->v.type != JSPAN_NONE && m->v.type != JSPAN_NULL;
}

/* ---- values ---- */

size_t
stream_body_characters(struct span s)
{
	size_t n = 0;

	for (size_t i = 0; i < s.n; i++)
		n += ((unsigned char)s.p[i] & 0xc0) != 0x80;
	return n;
}

/* Of C0, DEL and C1; it is UTF-8. */
static bool
has_control(struct span s)
{
	for (size_t i = 0; i < s.n; i++) {
		unsigned char c = (unsigned char)s.p[i];

		if (c < 0x20 || c == 0x7f)
			return true;
		if (c == 0xc2 && i + 1 < s.n &&
			(unsigned char)s.p[i + 1] < 0xa0)
			return true;
	}
	return false;
}

/* Text that is not empty; n = 0 = absent. */
int
stream_body_text(const struct stream_reader *r, const struct stream_member *m,
	struct span *out)
{
	*out = (struct span)SPAN_ZERO;
	if (!stream_body_given(m))
		return 0;
	if (m->v.type != JSPAN_STRING)
		return stream_body_bad(r, m->key, "must be a string");
	if (!jspan_text(&m->v, r->a, out))
		return stream_body_bad(
			r, m->key, "holds half of a surrogate pair");
	if (out->n == 0)
		return stream_body_bad(r, m->key, "must not be empty");
	return 0;
}

int
stream_body_label(const struct stream_reader *r, const struct stream_member *m,
	struct span *out)
{
	if (stream_body_text(r, m, out) != 0)
		return -1;
	if (has_control(*out))
		return stream_body_bad(r, m->key, "holds a control character");
	return 0;
}

int
stream_body_name(const struct stream_reader *r, const struct stream_member *m,
	struct span *out)
{
	if (stream_body_text(r, m, out) != 0)
		return -1;
	if (out->n && !stream_body_name_ok(*out))
		return stream_body_bad(r, m->key,
			"must be 1 to 128 of A-Z a-z 0-9 _ -, and begin with a "
			"letter or digit");
	return 0;
}

int
stream_body_queue(const struct stream_reader *r, const struct stream_member *m,
	struct span *out)
{
	if (stream_body_text(r, m, out) != 0)
		return -1;
	if (!out->n)
		return stream_body_bad(r, m->key, "is required");
	if (!queue_name_ok(*out))
		return stream_body_bad(r, m->key,
			"must be 1 to 128 of a-z 0-9 - ., and begin with a "
			"letter or digit");
	return 0;
}

/* A number, or a string of digits; absent leaves *out. */
int
stream_body_int(const struct stream_reader *r, const struct stream_member *m,
	int64_t low, int64_t high, int64_t *out)
{
	struct span text;
	int64_t v;
	bool ok = false;

	if (!stream_body_given(m))
		return 0;
	if (m->v.type == JSPAN_NUMBER)
		ok = jspan_i64(&m->v, &v);
	else if (m->v.type == JSPAN_STRING)
		ok = jspan_text(&m->v, r->a, &text) && span_i64(text, &v);
	if (!ok)
		return stream_body_bad(r, m->key, "must be an integer");
	if (v < low || v > high) {
		if (high == INT64_MAX)
			return stream_body_bad(r, m->key,
				"must be at least %lld", (long long)low);
		return stream_body_bad(r, m->key, "must be from %lld to %lld",
			(long long)low, (long long)high);
	}
	*out = v;
	return 0;
}

bool
stream_body_name_ok(struct span s)
{
	for (size_t i = 0; i < s.n; i++) {
		char c = s.p[i], low = (char)(c | 0x20);

		if ((low >= 'a' && low <= 'z') || (c >= '0' && c <= '9'))
			continue;
		if (i == 0 || (c != '_' && c != '-'))
			return false;
	}
	return s.n > 0 && s.n <= NAME_MAX_BYTES;
}

bool
stream_body_number(struct span s, int64_t *v)
{
	return span_i64(s, v) && *v > 0;
}

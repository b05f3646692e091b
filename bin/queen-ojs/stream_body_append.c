/* SPDX-License-Identifier: Apache-2.0 */
/* Messages to append: one, or a list. */
#include <stdio.h>

#include "arena.h"
#include "job_int.h"
#include "stream_body_int.h"

enum { TYPE_MAX = 255, ID_MAX = 255 };

enum { M_TYPE, M_PAYLOAD, M_HEADERS, M_ID, M_N };

static int
take_headers(const struct stream_reader *r, const struct stream_member *m,
	struct span *out)
{
	*out = (struct span)SPAN_ZERO;
	if (!stream_body_given(m))
		return 0;
	if (m->v.type != JSPAN_OBJECT)
		return stream_body_bad(r, m->key, "must be an object");
	if (m->v.raw.n > STREAM_HEADERS_MAX)
		return stream_body_too_large(
			r, m->key, m->v.raw.n, STREAM_HEADERS_MAX);
	*out = m->v.raw;
	return 0;
}

/* The object that comes next. */
static int
take_message(struct jspan *j, const struct stream_reader *r, int64_t max_bytes,
	struct stream_message *m)
{
	struct stream_member in[M_N] = { [M_TYPE] = { .key = "type" },
		[M_PAYLOAD] = { .key = "payload" },
		[M_HEADERS] = { .key = "headers" },
		[M_ID] = { .key = "id" } };
	const char *start = j->p;
	size_t size;

	if (stream_body_members(j, r, in, M_N) != 0)
		return -1;
	size = (size_t)(j->p - start);
	if (size > (size_t)max_bytes)
		return stream_body_too_large(r, "message", size, max_bytes);
	if (!job_depth_ok(span_make(start, size), JOB_DEPTH_MAX))
		return stream_body_too_deep(r, JOB_DEPTH_MAX);
	if (stream_body_label(r, &in[M_TYPE], &m->type) != 0)
		return -1;
	if (!m->type.n)
		return stream_body_bad(r, "type", "is required");
	if (m->type.n > TYPE_MAX)
		return stream_body_bad(
			r, "type", "has more than %d bytes", TYPE_MAX);
	if (in[M_PAYLOAD].v.type == JSPAN_NONE)
		return stream_body_bad(r, "payload", "is required");
	m->payload = in[M_PAYLOAD].v.raw;
	if (take_headers(r, &in[M_HEADERS], &m->headers) != 0 ||
		stream_body_label(r, &in[M_ID], &m->id) != 0)
		return -1;
	if (stream_body_characters(m->id) > ID_MAX)
		return stream_body_bad(
			r, "id", "has more than %d characters", ID_MAX);
	return 0;
}

int
stream_body_append(struct span body, struct arena *a, int64_t max_bytes,
	struct stream_message *m, struct problem *p)
{
	struct stream_reader r = { .a = a, .p = p, .index = -1 };
	struct jspan j;

	jspan_open(&j, body);
	if (jspan_peek(&j) != JSPAN_OBJECT)
		return stream_body_not_object(&r);
	if (take_message(&j, &r, max_bytes, m) != 0)
		return -1;
	return jspan_end(&j) ? 0 : stream_body_bad_json(&r, &j);
}

/* One element of the list; what is beyond the limit is only counted. */
static int
take_element(struct jspan *j, struct stream_reader *r, int64_t max_bytes,
	struct stream_message *m)
{
	struct jspan_val v;

	if (jspan_peek(j) == JSPAN_OBJECT && m)
		return take_message(j, r, max_bytes, m);
	if (!jspan_take(j, &v))
		return stream_body_bad_json(r, j);
	return m ? stream_body_bad(r, "messages", "must be an object") : 0;
}

static int
take_list(struct jspan *j, struct stream_reader *r, int64_t max_bytes,
	struct stream_message **m, size_t *n)
{
	size_t cap = 0;

	*n = 0;
	if (jspan_peek(j) != JSPAN_ARRAY) {
		struct jspan_val v;

		if (!jspan_take(j, &v))
			return stream_body_bad_json(r, j);
		return stream_body_bad(r, "messages", "must be an array");
	}
	if (!jspan_enter_array(j))
		return stream_body_bad_json(r, j);
	while (jspan_next_item(j)) {
		bool fits = *n < STREAM_BATCH_MAX;

		if (fits)
			*m = arena_grown(r->a, *m, *n, &cap, sizeof(**m));
		r->index = (int64_t)*n;
		if (take_element(j, r, max_bytes, fits ? &(*m)[*n] : NULL) != 0)
			return -1;
		++*n;
	}
	r->index = -1;
	return j->error ? stream_body_bad_json(r, j) : 0;
}

static int
check_count(const struct stream_reader *r, size_t n)
{
	char details[64];

	if (n == 0)
		return stream_body_bad(
			r, "messages", "must hold at least one message");
	if (n <= STREAM_BATCH_MAX)
		return 0;
	snprintf(details, sizeof(details), "\"max\":%d,\"batch_size\":%zu",
		STREAM_BATCH_MAX, n);
	return problem_set(r->p, r->a, 413, "batch_too_large", details,
		"%zu messages at once are too many; the limit is %d.", n,
		STREAM_BATCH_MAX);
}

int
stream_body_append_batch(struct span body, struct arena *a, int64_t max_bytes,
	struct stream_message **m, size_t *n, struct problem *p)
{
	struct stream_reader r = { .a = a, .p = p, .index = -1 };
	struct span key;
	struct jspan_val v;
	struct jspan j;
	bool found = false;

	*m = NULL;
	*n = 0;
	jspan_open(&j, body);
	if (jspan_peek(&j) != JSPAN_OBJECT || !jspan_enter_object(&j))
		return stream_body_not_object(&r);
	while (jspan_next_key(&j, a, &key)) {
		if (span_is(key, "messages")) {
			found = true;
			*m = NULL;
			if (take_list(&j, &r, max_bytes, m, n) != 0)
				return -1;
		} else if (!jspan_take(&j, &v)) {
			break;
		}
	}
	if (!jspan_end(&j))
		return stream_body_bad_json(&r, &j);
	if (!found)
		return stream_body_bad(&r, "messages", "is required");
	return check_count(&r, *n);
}

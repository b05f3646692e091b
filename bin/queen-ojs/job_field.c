/* SPDX-License-Identifier: Apache-2.0 */
/* Fields of request bodies, and ids. */
#include <inttypes.h>
#include <string.h>

#include "hsrv.h"
#include "job_int.h"

bool
job_id_parse(struct span s, struct qid *id)
{
	for (size_t i = 0; i < s.n; i++)
		if (s.p[i] >= 'A' && s.p[i] <= 'F')
			return false;
	return qid_parse(s, id) && id->b[6] >> 4 == 7 && id->b[8] >> 6 == 2;
}

void
job_unknown(struct hsrv_req *r, struct span id)
{
	reply_missing(r, "job", id);
}

bool
job_depth_ok(struct span raw, int max)
{
	bool in_string = false;
	int depth = 0;

	for (size_t i = 0; i < raw.n; i++) {
		char c = raw.p[i];

		if (in_string) {
			if (c == '\\')
				i++;
			else if (c == '"')
				in_string = false;
		} else if (c == '"') {
			in_string = true;
		} else if (c == '{' || c == '[') {
			if (++depth > max)
				return false;
		} else if (c == '}' || c == ']') {
			depth--;
		}
	}
	return true;
}

static void
set_field(const struct job_field *f, size_t n, struct span name,
	const struct jspan_val *v)
{
	static const struct jspan_val none = { .type = JSPAN_NONE };

	for (size_t i = 0; i < n; i++) {
		bool gone = v->type == JSPAN_NULL && !f[i].keep_null;

		if (span_is(name, f[i].name))
			*f[i].v = gone ? none : *v;
	}
}

int
job_fields(struct span body, struct arena *a, const struct job_field *f,
	size_t n, struct problem *p)
{
	struct jspan_val v;
	struct span name;
	struct jspan j;

	for (size_t i = 0; i < n; i++)
		*f[i].v = (struct jspan_val){ .type = JSPAN_NONE };
	jspan_open(&j, body);
	if (jspan_enter_object(&j))
		while (jspan_next_key(&j, a, &name) && jspan_take(&j, &v))
			set_field(f, n, name, &v);
	if (jspan_end(&j))
		return 0;
	return problem_set(p, a, 400, "invalid_payload", NULL,
		"The body is no JSON object: %s at byte %zu.", j.error,
		j.error_at);
}

int
job_text(const struct jspan_val *v, struct arena *a, const char *field,
	size_t max_bytes, struct span *out, struct problem *p)
{
	if (v->type == JSPAN_NONE)
		return 0;
	if (!jspan_text(v, a, out) || out->n == 0 || out->n > max_bytes ||
		memchr(out->p, '\0', out->n))
		return problem_field(p, a, field,
			"`%s` must be a string of 1 to %zu bytes without NUL.",
			field, max_bytes);
	return 0;
}

int
job_number(const struct jspan_val *v, struct arena *a, const char *field,
	int64_t min, int64_t max, int64_t *out, struct problem *p)
{
	int64_t n;

	if (v->type == JSPAN_NONE)
		return 0;
	if (!jspan_i64(v, &n) || n < min || n > max)
		return problem_field(p, a, field,
			"`%s` must be an integer from %" PRId64 " to %" PRId64
			".",
			field, min, max);
	*out = n;
	return 0;
}

int
job_flag(const struct jspan_val *v, struct arena *a, const char *field,
	bool *out, struct problem *p)
{
	if (v->type == JSPAN_NONE)
		return 0;
	if (v->type != JSPAN_BOOL)
		return problem_field(
			p, a, field, "`%s` must be true or false.", field);
	*out = v->truth;
	return 0;
}

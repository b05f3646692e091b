/* SPDX-License-Identifier: Apache-2.0 */
#include "why.h"

#include <inttypes.h>
#include <string.h>

#include "arena.h"
#include "doc.h"

static bool
is_word(const char *s)
{
	return s[strspn(s, "abcdefghijklmnopqrstuvwxyz0123456789_")] == '\0';
}

const char *
why_refused(struct span answer, struct arena *a)
{
	const char *text =
		doc_str(answer, "error.message|error|message|reason", NULL, a);
	const char *more;

	if (!text)
		return doc_str(answer, "detail|code", NULL, a);
	more = doc_str(answer, "error.details.existing_job_id", NULL, a);
	if (more)
		return arena_cstr(
			a, arena_printf(a, "%s It is %s.", text, more));
	/* a sentence needs no word of explanation, a word does */
	more = doc_str(
		answer, is_word(text) ? "detail|reason" : "detail", NULL, a);
	if (!more || strstr(text, more))
		return text;
	return arena_cstr(a, arena_printf(a, "%s: %s", text, more));
}

/* Element n of an array; empty when it has fewer. */
static struct span
element(struct span list, int64_t n)
{
	struct jspan_val v;
	struct jspan j;

	if (n < 0 || doc_val(list).type != JSPAN_ARRAY)
		return (struct span)SPAN_ZERO;
	for (doc_open(&j, list); doc_next(&j, &v); n--)
		if (n == 0)
			return v.raw;
	return (struct span)SPAN_ZERO;
}

const char *
why_lost(struct span answer, struct span ops, int64_t first, struct arena *a)
{
	int64_t at = doc_i64(answer, "failedIndex", -1, a) - first;
	int64_t version = doc_i64(answer, "version", 0, a);
	const char *reason = doc_str(answer, "kvReason", NULL, a);
	struct span op = element(ops, at), s;

	if (!op.n || !reason) {
		reason = why_refused(answer, a);
		return reason ? reason : "?";
	}
	s = arena_printf(a, "kv[%" PRId64 "] %s %s/%s: %s", at,
		doc_str(op, "op", "?", a), doc_str(op, "ns|namespace", "?", a),
		doc_str(op, "key", "?", a), reason);
	if (version > 0)
		s = arena_printf(a, "%.*s, it has version %" PRId64,
			SPAN_ARG(s), version);
	return arena_cstr(a, s);
}

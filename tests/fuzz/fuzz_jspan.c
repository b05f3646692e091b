/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The scanner on any bytes: the two ways through a value (taken whole, walked
 * step by step) must agree on whether it is JSON, and decoded strings must be
 * UTF-8 that comes back from the writer.
 */
#include <stdint.h>
#include <stdlib.h>

#include "arena.h"
#include "buf.h"
#include "jspan.h"
#include "jwrite.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void walk(struct jspan *j, struct arena *a);

static void
walk_scalar(struct jspan *j, struct arena *a)
{
	struct jspan_val v;
	struct span text, again;
	int64_t n;

	if (!jspan_take(j, &v))
		return;
	if (v.raw.p < j->start || v.raw.p + v.raw.n > j->end)
		abort();
	jspan_i64(&v, &n);
	if (jspan_text(&v, a, &text)) {
		struct buf b = BUF_ZERO;
		struct jwrite w;
		struct jspan k;

		if (!jspan_utf8(text))
			abort();
		jwrite_init(&w, &b);
		jwrite_str(&w, text);
		jspan_open(&k, buf_span(&b));
		if (!jspan_take(&k, &v) || !jspan_end(&k) ||
			!jspan_text(&v, a, &again) || !span_eq(text, again))
			abort();
		buf_fini(&b);
	}
}

static void
walk(struct jspan *j, struct arena *a)
{
	struct span key;

	switch (jspan_peek(j)) {
	case JSPAN_OBJECT:
		if (!jspan_enter_object(j))
			return;
		while (jspan_next_key(j, a, &key))
			walk(j, a);
		break;
	case JSPAN_ARRAY:
		if (!jspan_enter_array(j))
			return;
		while (jspan_next_item(j))
			walk(j, a);
		break;
	default:
		walk_scalar(j, a);
	}
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct span s = span_make(data, size);
	struct arena a = ARENA_ZERO;
	const char *what = NULL;
	struct jspan j;
	size_t at = 0;
	bool whole, steps;

	whole = jspan_valid(s, &what, &at);
	if (!whole && (!what || at > size))
		abort();
	jspan_open(&j, s);
	walk(&j, &a);
	steps = jspan_end(&j);
	/* Only the walk looks into keys, so only it minds their surrogates. */
	if (whole != steps && !(whole && span_is(span_of(j.error),
						 "lone surrogate in a key")))
		abort();
	if (steps && j.depth != 0)
		abort();
	arena_fini(&a);
	return 0;
}

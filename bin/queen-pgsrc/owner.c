/* SPDX-License-Identifier: Apache-2.0 */
/* The lease document: who works on a source, in which life. */
#include "owner.h"

#include "buf.h"
#include "clk.h"
#include "jspan.h"
#include "jwrite.h"

enum { FLOOR_MS = 100 };

void
owner_write(struct buf *b, const struct owner *o)
{
	struct jwrite w;

	jwrite_init(&w, b);
	jwrite_object(&w);
	jwrite_kv_str(&w, "node", o->node);
	jwrite_kv_str(&w, "incarnation", o->incarnation);
	jwrite_key(&w, "since");
	jwrite_iso_us(&w, o->since_us);
	jwrite_end(&w);
}

static bool
take_text(struct jspan *j, struct arena *a, struct span *out)
{
	struct jspan_val v;
	struct span s;

	if (!jspan_take(j, &v) || !jspan_text(&v, a, &s))
		return false;
	*out = arena_dup(a, s);
	return true;
}

bool
owner_parse(struct span json, struct arena *a, struct owner *o)
{
	struct span key, since = SPAN_ZERO;
	struct jspan_val v;
	struct jspan j;
	bool ok = true;

	*o = (struct owner){ .since_us = 0 };
	jspan_open(&j, json);
	if (!jspan_enter_object(&j))
		return false;
	while (ok && jspan_next_key(&j, a, &key)) {
		if (span_is(key, "node"))
			ok = take_text(&j, a, &o->node);
		else if (span_is(key, "incarnation"))
			ok = take_text(&j, a, &o->incarnation);
		else if (span_is(key, "since"))
			ok = take_text(&j, a, &since);
		else
			ok = jspan_take(&j, &v);
	}
	return ok && jspan_end(&j) && o->node.n > 0 && o->incarnation.n > 0 &&
	       clk_parse_iso(since, &o->since_us);
}

enum owner_claim
owner_judge(const struct owner *row, const struct owner *me)
{
	if (!row || !span_eq(row->node, me->node))
		return OWNER_STANDBY;
	return span_eq(row->incarnation, me->incarnation) ? OWNER_MINE
							  : OWNER_EARLIER_LIFE;
}

static int64_t
at_least(int64_t v, int64_t floor)
{
	return v > floor ? v : floor;
}

int64_t
owner_ttl_s(int64_t ttl_ms)
{
	return at_least(ttl_ms / 1000, 1);
}

int64_t
owner_refresh_ms(int64_t ttl_ms)
{
	return at_least(ttl_ms / 3, FLOOR_MS);
}

int64_t
owner_claim_ms(int64_t ttl_ms, uint32_t random)
{
	int64_t ms = at_least(ttl_ms / 2, FLOOR_MS);

	/* 800 to 1200 thousandths */
	return ms * (800 + random % 401) / 1000;
}

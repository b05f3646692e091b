/* SPDX-License-Identifier: Apache-2.0 */
#include "page.h"

#include <sodium.h>

#include "arena.h"
#include "buf.h"
#include "hsrv.h"
#include "jwrite.h"

enum { CURSOR_MAX_BYTES = 1024 };

/* A query number from low; *v stays when it is absent. */
static int
number(struct hsrv_req *r, const char *key, int64_t low, int64_t *v,
	struct problem *p)
{
	struct span s;

	if (!hsrv_query(r, key, &s))
		return 0;
	if (!span_i64(s, v) || *v < low)
		return problem_field(p, hsrv_arena(r), key,
			"`%s` must be an integer of at least %d.", key,
			(int)low);
	return 0;
}

static int
cursor(struct hsrv_req *r, struct span *key, struct problem *p)
{
	unsigned char *bin;
	size_t n;
	struct span s;

	if (!hsrv_query(r, "cursor", &s) || s.n == 0)
		return 0;
	bin = arena_alloc(hsrv_arena(r), CURSOR_MAX_BYTES);
	if (sodium_base642bin(bin, CURSOR_MAX_BYTES, s.p, s.n, NULL, &n, NULL,
		    sodium_base64_VARIANT_URLSAFE_NO_PADDING) != 0 ||
		n == 0)
		return problem_field(p, hsrv_arena(r), "cursor",
			"`cursor` is none that this list gave.");
	*key = span_make(bin, n);
	return 0;
}

bool
page_time_ok(int64_t at_us)
{
	return at_us >= 0 && at_us < INT64_C(253370764800) * 1000000;
}

int
page_parse(struct hsrv_req *r, int limit_default, int limit_max, struct page *g,
	struct problem *p)
{
	int64_t limit = limit_default ? limit_default : 50;
	int max = limit_max ? limit_max : 200;

	*g = (struct page){ .offset = 0 };
	if (number(r, "limit", 1, &limit, p) != 0 ||
		number(r, "offset", 0, &g->offset, p) != 0 ||
		cursor(r, &g->cursor, p) != 0)
		return -1;
	g->limit = limit > max ? max : (int)limit;
	return 0;
}

static void
write_cursor(struct jwrite *w, struct span key)
{
	char text[CURSOR_MAX_BYTES * 4 / 3 + 4];

	if (key.n == 0 || key.n > CURSOR_MAX_BYTES)
		return;
	sodium_bin2base64(text, sizeof(text), (const unsigned char *)key.p,
		key.n, sodium_base64_VARIANT_URLSAFE_NO_PADDING);
	jwrite_kv_cstr(w, "next_cursor", text);
}

void
page_write(struct jwrite *w, const struct page *g, int64_t total, bool more,
	struct span last_key)
{
	jwrite_key(w, "pagination");
	jwrite_object(w);
	jwrite_kv_i64(w, "total", total);
	jwrite_kv_bool(w, "has_more", more);
	if (more)
		write_cursor(w, last_key);
	jwrite_kv_i64(w, "limit", g->limit);
	jwrite_kv_i64(w, "offset", g->offset);
	jwrite_end(w);
}

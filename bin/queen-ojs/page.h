/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pages of lists: limit, offset, and a cursor that is the base64url of the
 * last row's sort key.
 */
#ifndef QUEEN_OJS_PAGE_H
#define QUEEN_OJS_PAGE_H

#include <stdbool.h>
#include <stdint.h>

#include "reply.h"
#include "span.h"

struct arena;
struct hsrv_req;
struct jwrite;

struct page {
	int limit;	/* default 50, at most 200 */
	int64_t offset;
	struct span cursor;	/* decoded sort key; n = 0 = from the start */
};

/* Is it a time a sort key may have?  1970 to 9999. */
bool page_time_ok(int64_t at_us);
/* limit_default/limit_max 0 = 50/200.  -1 with the problem. */
int page_parse(struct hsrv_req *r, int limit_default, int limit_max,
	struct page *g, struct problem *p) __attribute__((warn_unused_result));
/* `"pagination":{total,has_more,next_cursor,limit,offset}`; last_key of the
   last row shown, used when more. */
void page_write(struct jwrite *w, const struct page *g, int64_t total,
	bool more, struct span last_key);

#endif

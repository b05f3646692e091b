/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The lease document of a source, and what to do about one that is there.
 * The lease only says who should work; who may write is the pointer's say.
 */
#ifndef QUEEN_PGSRC_OWNER_H
#define QUEEN_PGSRC_OWNER_H

#include <stdbool.h>
#include <stdint.h>

#include "arena.h"
#include "span.h"

struct buf;

struct owner {
	struct span node, incarnation;
	int64_t since_us;
};

void owner_write(struct buf *b, const struct owner *o);
/* False when it is no lease document; the texts live in the arena. */
bool owner_parse(struct span json, struct arena *a, struct owner *o);

enum owner_claim {
	OWNER_STANDBY,		/* another node's, or unreadable */
	OWNER_MINE,		/* this very life holds it */
	OWNER_EARLIER_LIFE,	/* my node, dead: put at its version, now */
};

/* What a live row means to me; NULL = unreadable. */
enum owner_claim owner_judge(const struct owner *row, const struct owner *me);

/* TTL in whole seconds from the setting, rounded down, at least 1. */
int64_t owner_ttl_s(int64_t ttl_ms);
int64_t owner_refresh_ms(int64_t ttl_ms);	/* a third, at least 100 */
/* Half, at least 100, +-20 % by `random`, any number. */
int64_t owner_claim_ms(int64_t ttl_ms, uint32_t random);

#endif

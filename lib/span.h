/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A borrowed slice of bytes: pointer and length, never NUL-terminated by
 * promise.  A span never outlives the arena or buffer it points into.
 */
#ifndef QUEEN_SPAN_H
#define QUEEN_SPAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct span {
	const char *p;
	size_t n;
};

#define SPAN_ZERO { .p = NULL, .n = 0 }
/* A span over a string literal. */
#define SPAN_LIT(s) ((struct span){ .p = (s), .n = sizeof(s) - 1 })
/* For printf with "%.*s". */
#define SPAN_ARG(s) (int)(s).n, (s).p

static inline struct span
span_of(const char *s)
{
	return (struct span){ .p = s, .n = s ? strlen(s) : 0 };
}

static inline struct span
span_make(const void *p, size_t n)
{
	return (struct span){ .p = p, .n = n };
}

static inline bool
span_eq(struct span a, struct span b)
{
	return a.n == b.n && (a.n == 0 || memcmp(a.p, b.p, a.n) == 0);
}

static inline bool
span_is(struct span a, const char *s)
{
	return span_eq(a, span_of(s));
}

/* A fast hash.  Of tables: map_hash_span; seed 0 is the same for ever. */
uint64_t span_hash(struct span s, uint64_t seed);

/* Without the white space of C (space, \t to \r) at both ends. */
struct span span_trim(struct span s);

/* At most max bytes of a UTF-8 text, cut between characters. */
struct span span_clip(struct span s, size_t max);

/* The value of a hexadecimal digit; -1 when it is none. */
int span_hex(char c);

/* Decimal, optional leading '-', whole span; false when it does not parse. */
bool span_i64(struct span s, int64_t *out);

#endif

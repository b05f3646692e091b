/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The newest set of public keys behind one URL: fetched at start, again every
 * period, and on demand when a token names a key that is not known.  One
 * fetch at a time; on demand at most one per 5 s, counted from the attempt,
 * so a dead host costs nothing.  A failed fetch keeps the keys there are.
 *
 * Only GET, no redirects, bodies up to 1 MiB, https verified.
 */
#ifndef QUEEN_JWKS_H
#define QUEEN_JWKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct err;
struct jwks;
struct jwt_keys;
struct loop;

enum { JWKS_THROTTLE_MS = 5000 };

struct jwks_conf {
	const char *url;	/* http or https; copied */
	const char *ca_file;	/* NULL or empty: the distribution's bundle */
	int64_t refresh_s;	/* at least 1 */
	int64_t timeout_ms;	/* of one fetch, at least 1 */
};

/* Embedded in who waits; fn runs once, unless cancelled. */
struct jwks_wait {
	void (*fn)(void *arg);
	void *arg;
	struct jwks_wait *next, **link;	/* link is NULL: does not wait */
};

struct jwks_stats {
	uint64_t fetches, failures;
	size_t keys_n;
};

/* -1: ERR_CONFIG for a URL of another scheme.  Warns about http. */
int jwks_new(struct loop *l, const struct jwks_conf *c, struct jwks **out,
	struct err *e) __attribute__((warn_unused_result));
/* Begins the first fetch; never fails, an unreachable host is logged. */
void jwks_start(struct jwks *j);
/* Not out of a callback.  Forgets a fetch under way and who waits for it. */
void jwks_free(struct jwks *j);

/* The set now: NULL before the first; borrowed, valid until the loop runs. */
const struct jwt_keys *jwks_keys(const struct jwks *j);
/*
 * Joins the fetch under way or begins one: true, and w->fn runs after it,
 * never inside this call, whether it succeeded or not.  False when the last
 * attempt is too young: the keys are as fresh as they get.
 */
bool jwks_refetch(struct jwks *j, struct jwks_wait *w);
/* No effect when it does not wait. */
void jwks_cancel(struct jwks_wait *w);
void jwks_stats(const struct jwks *j, struct jwks_stats *out);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* A ladder, and chance. */
#include "backoff.h"

#include <sodium.h>

int64_t
backoff_next_ms(int64_t last_ms, int64_t first_ms, int64_t max_ms)
{
	int64_t ms = last_ms > 0 ? last_ms * 2 : first_ms;

	return ms < max_ms ? ms : max_ms;
}

int64_t
backoff_spread_ms(int64_t ms, int percent)
{
	int64_t off_ms = ms * percent / 100;

	return ms - off_ms + randombytes_uniform((uint32_t)(2 * off_ms) + 1);
}

int64_t
backoff_jitter_ms(int64_t ms)
{
	int64_t least_ms = ms / 10;

	return least_ms + randombytes_uniform((uint32_t)(ms - least_ms) + 1);
}

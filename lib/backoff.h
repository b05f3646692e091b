/* SPDX-License-Identifier: Apache-2.0 */
/* How long to wait before what failed is tried again. */
#ifndef QUEEN_BACKOFF_H
#define QUEEN_BACKOFF_H

#include <stdint.h>

/* first_ms after 0, else twice as long as the last time, up to max_ms. */
int64_t backoff_next_ms(int64_t last_ms, int64_t first_ms, int64_t max_ms);
/* Up to `percent` more or less, by chance: so that nodes do not go in step. */
int64_t backoff_spread_ms(int64_t ms, int percent);
/* A tenth of ms up to ms, by chance: so that many do not come at once. */
int64_t backoff_jitter_ms(int64_t ms);

#endif

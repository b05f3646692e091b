/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Removes KV rows whose lifetime is over.  Every process sweeps; they skip
 * what another one holds.  Reads never see such rows, so nothing waits for it.
 */
#ifndef QUEEND_KV_SWEEP_H
#define QUEEND_KV_SWEEP_H

#include <stdint.h>

struct ctx;
struct kv_sweep;

struct kv_sweep *kv_sweep_new(struct ctx *x);
void kv_sweep_free(struct kv_sweep *s);
/* Of the last step: dead rows left and the age of the oldest. */
void kv_sweep_stats(const struct kv_sweep *s, int64_t *unpruned,
	int64_t *lag_ms);

#endif

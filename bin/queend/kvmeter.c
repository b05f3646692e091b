/* SPDX-License-Identifier: Apache-2.0 */
/* Buckets refill by the clock; meters only move by charges and measurements. */
#include "kvmeter.h"

#include <math.h>

static void
refill(struct kvmeter_bucket *b, int64_t rate_ps, int64_t burst, int64_t now_ms)
{
	if (!b->used) {
		b->used = true;
		b->tokens = (double)burst;
	} else if (now_ms > b->at_ms) {
		b->tokens +=
			(double)(now_ms - b->at_ms) * (double)rate_ps / 1000.0;
	}
	if (b->tokens > (double)burst)
		b->tokens = (double)burst;
	b->at_ms = now_ms;
}

int
kvmeter_spend(struct kvmeter_bucket *b, int64_t rate_ps, int64_t burst,
	int64_t now_ms)
{
	double wait_s;

	if (rate_ps == 0)
		return 0;
	if (burst < 1)
		burst = 1;
	refill(b, rate_ps, burst, now_ms);
	/* what is due by now must not fail for a rounding */
	if (b->tokens >= 1.0 - 1e-9) {
		b->tokens -= 1.0;
		return 0;
	}
	wait_s = ceil((1.0 - b->tokens) / (double)rate_ps);
	return wait_s < 1 ? 1 : (int)wait_s;
}

void
kvmeter_unspend(struct kvmeter_bucket *b, int64_t burst)
{
	b->tokens += 1.0;
	if (b->tokens > (double)burst)
		b->tokens = (double)burst;
}

static int64_t
held(const struct kvmeter *m)
{
	return m->measured > INT64_MAX - m->delta ? INT64_MAX
						  : m->measured + m->delta;
}

bool
kvmeter_fits(struct kvmeter *m, int64_t add)
{
	if (m->cap == KVMETER_NO_CAP || add == 0)
		return true;
	if (held(m) > m->cap || add > m->cap - held(m))
		m->blocked = true;
	return !m->blocked;
}

void
kvmeter_charge(struct kvmeter *m, int64_t add)
{
	m->delta = m->delta > INT64_MAX - add ? INT64_MAX : m->delta + add;
}

void
kvmeter_refund(struct kvmeter *m, int64_t add)
{
	/* a measurement in between has ended the charge already */
	m->delta = m->delta > add ? m->delta - add : 0;
}

void
kvmeter_measure(struct kvmeter *m, int64_t cap, int64_t measured, bool fresh,
	int64_t percent)
{
	m->cap = cap;
	m->measured = measured;
	if (fresh)
		m->delta = 0;
	if (cap == KVMETER_NO_CAP ||
		(fresh && (double)measured * 100.0 <=
				  (double)cap * (double)percent))
		m->blocked = false;
}

bool
kvmeter_hot(const struct kvmeter *m, int64_t percent)
{
	return m->cap != KVMETER_NO_CAP &&
	       (double)held(m) * 100.0 >= (double)m->cap * (double)percent;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The arithmetic of limits: token buckets, and occupancy as the last
 * measurement plus what was charged since.  Pure; time is an argument.
 */
#ifndef QUEEND_KVMETER_H
#define QUEEND_KVMETER_H

#include <stdbool.h>
#include <stdint.h>

/* Starts full.  rate_ps 0 = no limit. */
struct kvmeter_bucket {
	double tokens;
	int64_t at_ms;
	bool used;
};

/* Spends a token: 0, or the seconds (at least 1) until there is one. */
int kvmeter_spend(struct kvmeter_bucket *b, int64_t rate_ps, int64_t burst,
	int64_t now_ms);
/* Puts back what was spent for a call that another limit refused. */
void kvmeter_unspend(struct kvmeter_bucket *b, int64_t burst);

enum { KVMETER_NO_CAP = -1 };

struct kvmeter {
	int64_t cap;		/* KVMETER_NO_CAP = none */
	int64_t measured, delta;
	bool blocked;		/* until a measurement is low enough again */
};

#define KVMETER_ZERO { .cap = KVMETER_NO_CAP }

/* Would add pass?  Beyond the cap it blocks, and stays so. */
bool kvmeter_fits(struct kvmeter *m, int64_t add);
void kvmeter_charge(struct kvmeter *m, int64_t add);
void kvmeter_refund(struct kvmeter *m, int64_t add);
/*
 * What the database says now.  fresh: it was measured since the last time,
 * which ends the delta, and the block when it is at most percent of the cap.
 */
void kvmeter_measure(struct kvmeter *m, int64_t cap, int64_t measured,
	bool fresh, int64_t percent);
/* At percent of the cap or more? */
bool kvmeter_hot(const struct kvmeter *m, int64_t percent);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A server that says nothing while its slot falls behind: no error (a large
 * transaction of other tables does that), but worth a word after minutes.
 */
#ifndef QUEEN_PGSRC_SILENCE_H
#define QUEEN_PGSRC_SILENCE_H

#include <stdbool.h>
#include <stdint.h>

struct silence {
	uint64_t lag_when_heard;
	bool is;
};

/*
 * The slot's lag now, and for how long nothing has come.  True when the
 * silence begins.
 */
bool silence_judge(struct silence *s, uint64_t lag_bytes, int64_t quiet_ms);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* When silence is worth a word. */
#include "silence.h"

enum { SILENT_MS = 120000 };

bool
silence_judge(struct silence *s, uint64_t lag_bytes, int64_t quiet_ms)
{
	bool was = s->is;

	if (quiet_ms < SILENT_MS)
		s->lag_when_heard = lag_bytes;
	s->is = lag_bytes > s->lag_when_heard;
	return s->is && !was;
}

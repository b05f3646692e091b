/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The canonical form of any bytes: valid JSON, its own canonical form, and
 * there only for what is JSON.
 */
#include <stdint.h>
#include <stdlib.h>

#include "arena.h"
#include "buf.h"
#include "jcs.h"
#include "jspan.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct buf once = BUF_ZERO, twice = BUF_ZERO;
	struct span s = span_make(data, size);
	struct arena a = ARENA_ZERO;
	const char *why = NULL;
	size_t at;

	if (jcs_put(&once, s, &a, &why)) {
		if (!jspan_valid(s, &why, &at) ||
			!jspan_valid(buf_span(&once), &why, &at) ||
			!jcs_put(&twice, buf_span(&once), &a, &why) ||
			!span_eq(buf_span(&once), buf_span(&twice)))
			abort();
	} else if (!why || once.len != 0) {
		abort();
	}
	buf_fini(&once);
	buf_fini(&twice);
	arena_fini(&a);
	return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pointer and lease documents of any bytes: what is read is written so that
 * it is read as the same.
 */
#include <stdint.h>
#include <stdlib.h>

#include "buf.h"
#include "err.h"
#include "owner.h"
#include "pointer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void
try_pointer(struct span s)
{
	struct err e = ERR_ZERO;
	struct buf b = BUF_ZERO;
	struct pointer p, again;

	if (pointer_parse(s, &p, &e) != 0) {
		if (e.kind != ERR_INPUT || p.arena.head)
			abort();
		return;
	}
	pointer_write(&b, &p, &p.place, 0);
	if (pointer_parse(buf_span(&b), &again, &e) != 0)
		abort();
	if (!pointer_is_at(&again, &p, &p.place))
		abort();
	pointer_fini(&again);
	pointer_copy(&again, &p);
	if (!pointer_is_at(&again, &p, &p.place))
		abort();
	pointer_fini(&again);
	pointer_fini(&p);
	buf_fini(&b);
}

static void
try_owner(struct span s)
{
	struct arena a = ARENA_ZERO;
	struct buf b = BUF_ZERO;
	struct owner o, again;

	if (owner_parse(s, &a, &o)) {
		owner_write(&b, &o);
		if (!owner_parse(buf_span(&b), &a, &again) ||
			owner_judge(&again, &o) != OWNER_MINE)
			abort();
	}
	arena_fini(&a);
	buf_fini(&b);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	try_pointer(span_make(data, size));
	try_owner(span_make(data, size));
	return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Calls waiting per connection; without a connection it is high. */
#include "pressure.h"

#include "ctx.h"
#include "pgpool.h"

enum { SOME = 1, HIGH = 4 };

enum pressure
pressure_of(const struct pgpool_stats *s)
{
	if (s->up == 0 || s->waiting > s->size * HIGH)
		return PRESSURE_HIGH;
	return s->waiting > s->size * SOME ? PRESSURE_SOME : PRESSURE_NONE;
}

enum pressure
pressure_now(const struct ctx *x)
{
	struct pgpool_stats s;

	pgpool_stats(x->pool, &s);
	return pressure_of(&s);
}

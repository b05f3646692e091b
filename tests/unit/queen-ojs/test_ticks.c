/* SPDX-License-Identifier: Apache-2.0 */
/* When a log needs a tick, and which logs are remembered. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "ticks.h"

enum { MIB = 1 << 20, EACH = TICKS_HEAVY_BYTES / 8, ASKED_MAX = 64 };

struct asked {
	struct {
		struct ticks_log *log;
		int64_t queue_id;
		bool heavy;
	} all[ASKED_MAX];
	int n;
};

static void
note(void *arg, struct ticks_log *log, int64_t queue_id, bool heavy)
{
	struct asked *a = arg;

	assert_in_range(a->n, 0, ASKED_MAX - 1);
	a->all[a->n].log = log;
	a->all[a->n].queue_id = queue_id;
	a->all[a->n++].heavy = heavy;
}

/* The one that was asked for last. */
static void
end(const struct asked *a, bool made)
{
	ticks_asked(a->all[a->n - 1].log, made);
}

static void
a_log_is_cut_when_it_is_heavy(void **state)
{
	struct asked a = { .n = 0 };
	struct ticks *t = ticks_new(10, note, &a);

	(void)state;
	for (int i = 0; i < 8; i++) {
		ticks_grew(t, 1, EACH, false);
		ticks_grew(t, 2, EACH / 2, false);
	}
	assert_int_equal(a.n, 0);
	ticks_grew(t, 1, 1, false);
	assert_int_equal(a.n, 1);
	assert_int_equal(a.all[0].queue_id, 1);
	assert_true(a.all[0].heavy);
	/* what comes meanwhile counts towards the next one */
	ticks_grew(t, 1, TICKS_HEAVY_BYTES, true);
	assert_int_equal(a.n, 1);
	end(&a, true);
	ticks_grew(t, 1, 1, false);
	assert_int_equal(a.n, 2);
	/* and is asked for at once when it is enough: its writer may be done */
	ticks_grew(t, 1, TICKS_HEAVY_BYTES + 1, false);
	end(&a, true);
	assert_int_equal(a.n, 3);
	end(&a, true);
	ticks_grew(t, 1, TICKS_HEAVY_BYTES, false);
	assert_int_equal(a.n, 3);
	ticks_free(t);
}

static void
one_that_was_not_made_is_asked_for_again(void **state)
{
	struct asked a = { .n = 0 };
	struct ticks *t = ticks_new(10, note, &a);

	(void)state;
	ticks_grew(t, 1, TICKS_HEAVY_BYTES + 1, false);
	end(&a, false);
	assert_int_equal(a.n, 1);
	ticks_grew(t, 1, 1, false);
	assert_int_equal(a.n, 2);
	end(&a, true);
	ticks_grew(t, 1, TICKS_HEAVY_BYTES, false);
	assert_int_equal(a.n, 2);
	ticks_free(t);
}

static void
many_events_are_cut_too(void **state)
{
	struct asked a = { .n = 0 };
	struct ticks *t = ticks_new(10, note, &a);

	(void)state;
	ticks_grew(t, 1, TICKS_HEAVY_BYTES, false);
	ticks_grew(t, 1, 0, true);
	assert_int_equal(a.n, 1);
	assert_false(a.all[0].heavy);
	end(&a, true);
	ticks_grew(t, 1, TICKS_HEAVY_BYTES, false);
	assert_int_equal(a.n, 1);
	ticks_free(t);
}

static void
as_many_are_remembered_as_may_be(void **state)
{
	struct asked a = { .n = 0 };
	struct ticks *t = ticks_new(2, note, &a);

	(void)state;
	/* little is forgotten, more is cut first */
	ticks_grew(t, 1, MIB - 1, false);
	ticks_grew(t, 2, MIB, false);
	ticks_grew(t, 3, TICKS_HEAVY_BYTES, false);
	assert_int_equal(a.n, 0);
	ticks_grew(t, 1, TICKS_HEAVY_BYTES, false);
	assert_int_equal(a.n, 1);
	assert_int_equal(a.all[0].queue_id, 2);
	assert_true(a.all[0].heavy);
	/* one that cannot be cut has no room any more */
	end(&a, false);
	ticks_grew(t, 2, TICKS_HEAVY_BYTES, false);
	assert_int_equal(a.n, 2);
	assert_int_equal(a.all[1].queue_id, 3);
	ticks_free(t);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_log_is_cut_when_it_is_heavy),
		cmocka_unit_test(one_that_was_not_made_is_asked_for_again),
		cmocka_unit_test(many_events_are_cut_too),
		cmocka_unit_test(as_many_are_remembered_as_may_be),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

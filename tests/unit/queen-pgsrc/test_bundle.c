/* SPDX-License-Identifier: Apache-2.0 */
/* Units, what goes into a bundle and when, and what each answer means. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "bundle.h"
#include "pointer.h"
#include "unit.h"

static const struct bundle_limits limits = { 10, 10000, 20 };
static struct unit_queue q;

static int
setup(void **state)
{
	(void)state;
	unit_queue_init(&q);
	return 0;
}

static int
teardown(void **state)
{
	(void)state;
	unit_queue_fini(&q);
	return 0;
}

static void
put(size_t messages, uint64_t lsn, bool forced, int64_t now_ms)
{
	const struct message m = { SPAN_LIT("q"), SPAN_LIT("7"), SPAN_LIT("id"),
		SPAN_LIT("{}") };
	const struct pointer_place at = { .lsn = lsn };
	struct unit *u = unit_new();

	for (size_t i = 0; i < messages; i++)
		unit_add(u, &m, now_ms);
	u->forced = forced;
	unit_cover(u, &at);
	unit_queue_put(&q, u);
}

static uint64_t
last_lsn(void)
{
	return TAILQ_LAST(&q.list, unit_list)->cover.lsn;
}

static void
a_unit_gives_back_what_it_took(void **state)
{
	const struct message a = { SPAN_LIT("orders"), SPAN_LIT("7"),
		SPAN_LIT("pg:1"), SPAN_LIT("{\"a\":1}") };
	const struct message b = { SPAN_LIT("lines"), SPAN_LIT(""),
		SPAN_LIT("pg:2"), SPAN_LIT("{}") };
	const struct pointer_place at = { .in_snapshot = true,
		.has_after = true,
		.after = SPAN_LIT("17\0003") };
	struct unit *u = unit_new();
	struct message m;

	(void)state;
	unit_add(u, &a, 5);
	for (int i = 0; i < 99; i++)
		unit_add(u, &b, 6);
	unit_cover(u, &at);
	assert_int_equal(u->n, 100);
	assert_int_equal(u->at_ms, 5);
	assert_int_equal(unit_message_bytes(&a), 6 + 1 + 4 + 7 + 64);
	assert_int_equal(u->bytes, 82 + 99 * (5 + 0 + 4 + 2 + 64));
	m = unit_message(u, 0);
	assert_true(span_is(m.queue, "orders") && span_is(m.partition, "7") &&
		    span_is(m.id, "pg:1") && span_is(m.payload, "{\"a\":1}"));
	m = unit_message(u, 99);
	assert_true(span_is(m.queue, "lines") && span_is(m.partition, "") &&
		    span_is(m.id, "pg:2") && span_is(m.payload, "{}"));
	assert_true(span_eq(u->cover.after, at.after));
	assert_ptr_not_equal(u->cover.after.p, at.after.p);
	unit_free(u);
}

static void
position_units_merge_and_ride_along(void **state)
{
	(void)state;
	put(0, 1, false, 0);
	put(0, 2, false, 0);
	assert_int_equal(q.units, 1);
	assert_true(last_lsn() == 2);
	assert_false(bundle_due(&q, &limits, true, 1000000));
	assert_true(bundle_due_at_ms(&q, &limits) == INT64_MAX);
	put(10, 3, false, 50);
	put(0, 4, false, 0);
	put(0, 5, true, 0);
	put(0, 6, false, 0);
	assert_int_equal(q.units, 5);
	assert_true(bundle_due(&q, &limits, false, 50));
	assert_int_equal(bundle_take(&q, &limits), 5);
	assert_int_equal(q.forced, 0);
	assert_false(bundle_due(&q, &limits, true, 1000000));
	/* one in flight is not touched any more */
	put(0, 7, false, 0);
	assert_int_equal(q.units, 6);
	unit_queue_settle(&q);
	assert_int_equal(q.units, 1);
	assert_int_equal(q.messages, 0);
	assert_int_equal(q.bytes, 0);
	assert_true(last_lsn() == 7);
}

static void
whole_units_up_to_the_limit(void **state)
{
	(void)state;
	put(4, 1, false, 0);
	put(6, 2, false, 0);
	put(1, 3, false, 0);
	assert_int_equal(bundle_take(&q, &limits), 2);
	unit_queue_settle(&q);
	assert_int_equal(bundle_take(&q, &limits), 1);
	unit_queue_settle(&q);
	assert_int_equal(q.units, 0);
	/* bytes: a message of this test counts 70 */
	assert_true(TAILQ_EMPTY(&q.list));
	put(2, 4, false, 0);
	put(1, 5, false, 0);
	assert_int_equal(
		bundle_take(&q, &(struct bundle_limits){ 10, 209, 20 }), 1);
}

static void
an_oversized_unit_goes_alone(void **state)
{
	(void)state;
	put(25, 1, false, 0);
	put(1, 2, false, 0);
	assert_int_equal(bundle_take(&q, &limits), 1);
	unit_queue_settle(&q);
	put(25, 3, false, 0);
	assert_int_equal(bundle_take(&q, &limits), 1);
	unit_queue_settle(&q);
	assert_true(last_lsn() == 3);
}

static void
due_by_force_size_age_or_silence(void **state)
{
	const struct bundle_limits bytes = { 10, 70, 20 };

	(void)state;
	assert_false(bundle_due(&q, &limits, true, 0));
	put(1, 1, false, 100);
	put(1, 1, false, 115);
	assert_false(bundle_due(&q, &limits, false, 100));
	assert_true(bundle_due(&q, &limits, true, 100));
	assert_true(bundle_due(&q, &bytes, false, 100));
	assert_true(bundle_due_at_ms(&q, &limits) == 120);
	assert_false(bundle_due(&q, &limits, false, 119));
	assert_true(bundle_due(&q, &limits, false, 120));
	put(8, 2, false, 110);
	assert_true(bundle_due(&q, &limits, false, 110));
	unit_queue_fini(&q);
	put(0, 3, true, 0);
	assert_true(bundle_due(&q, &limits, false, 0));
}

static void
reading_stops_at_twice_a_limit(void **state)
{
	const struct bundle_limits bytes = { 1000, 70, 20 };

	(void)state;
	put(1, 1, false, 0);
	assert_false(bundle_backlogged(&q, &bytes));
	put(1, 1, false, 0);
	assert_true(bundle_backlogged(&q, &bytes));
	put(17, 1, false, 0);
	assert_false(bundle_backlogged(&q, &limits));
	put(1, 1, false, 0);
	assert_true(bundle_backlogged(&q, &limits));
	/* what is in flight counts */
	bundle_take(&q, &limits);
	assert_true(bundle_backlogged(&q, &limits));
}

/* ---- settling ---- */

/* The pointer as it was read, against ours at version 7, cover at lsn 20. */
enum found { OUR_COVER, UNCHANGED, FOREIGN, FOREIGN_EPOCH, ABSENT };

static enum bundle_act
found(struct bundle *b, enum found what)
{
	struct pointer ours = { .epoch = "7be01c4d", .place = { .lsn = 10 } };
	struct pointer p = ours;
	const struct pointer_place cover = { .lsn = 20 };
	int64_t version = what == UNCHANGED ? 7 : 8;

	if (what == OUR_COVER || what == FOREIGN_EPOCH)
		p.place = cover;
	else if (what == FOREIGN)
		p.place.lsn = 15;
	if (what == FOREIGN_EPOCH)
		p.epoch[0] = '0';
	return bundle_on_pointer(
		b, what == ABSENT ? NULL : &p, version, &ours, 7, &cover);
}

static void
the_decision_table(void **state)
{
	static const struct {
		enum bundle_answer answer;
		enum bundle_act act;
		enum bundle_act cover, unchanged, foreign;
	} rows[] = {
		{ BUNDLE_NO_VERSION, BUNDLE_READ, BUNDLE_GO_ON, BUNDLE_FENCED,
			BUNDLE_FENCED },
		{ BUNDLE_PRECONDITION, BUNDLE_READ, BUNDLE_GO_ON, BUNDLE_RESEND,
			BUNDLE_FENCED },
		{ BUNDLE_IN_DOUBT, BUNDLE_READ, BUNDLE_GO_ON, BUNDLE_RESEND,
			BUNDLE_FENCED },
	};
	struct bundle b = BUNDLE_ZERO;

	(void)state;
	assert_int_equal(
		bundle_on_answer(&b, BUNDLE_COMMITTED, 0), BUNDLE_GO_ON);
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		b = (struct bundle)BUNDLE_ZERO;
		assert_int_equal(
			bundle_on_answer(&b, rows[i].answer, 0), rows[i].act);
		assert_int_equal(found(&b, OUR_COVER), rows[i].cover);
		assert_int_equal(found(&b, UNCHANGED), rows[i].unchanged);
		assert_int_equal(found(&b, FOREIGN), rows[i].foreign);
		assert_int_equal(found(&b, FOREIGN_EPOCH), rows[i].foreign);
		assert_int_equal(found(&b, ABSENT), BUNDLE_FENCED);
	}
}

static void
a_lost_precondition_is_resent_three_times(void **state)
{
	struct bundle b = BUNDLE_ZERO;

	(void)state;
	for (int i = 0; i < 3; i++) {
		assert_int_equal(bundle_on_answer(&b, BUNDLE_PRECONDITION, 0),
			BUNDLE_READ);
		assert_int_equal(found(&b, UNCHANGED), BUNDLE_RESEND);
		assert_int_equal(b.wait_ms, 1000 << i);
	}
	bundle_on_answer(&b, BUNDLE_PRECONDITION, 0);
	assert_int_equal(found(&b, UNCHANGED), BUNDLE_FENCED);
}

static void
doubt_is_resent_without_end(void **state)
{
	static const int64_t waits[] = { 1000, 2000, 4000, 8000, 16000, 30000,
		30000 };
	struct bundle b = BUNDLE_ZERO;

	(void)state;
	for (size_t i = 0; i < sizeof(waits) / sizeof(*waits); i++) {
		bundle_on_answer(&b, BUNDLE_IN_DOUBT, 0);
		assert_int_equal(b.wait_ms, 0);
		assert_int_equal(found(&b, UNCHANGED), BUNDLE_RESEND);
		assert_int_equal(b.wait_ms, waits[i]);
	}
	assert_int_equal(bundle_on_no_answer(&b), BUNDLE_READ);
	assert_int_equal(b.wait_ms, 30000);
	/* the answer that was lost comes to light as the winner's */
	bundle_on_answer(&b, BUNDLE_PRECONDITION, 0);
	assert_int_equal(found(&b, OUR_COVER), BUNDLE_GO_ON);
}

static void
refusals_skip_nothing(void **state)
{
	struct bundle b = BUNDLE_ZERO;

	(void)state;
	assert_int_equal(
		bundle_on_answer(&b, BUNDLE_SLOW_DOWN, 777), BUNDLE_RESEND);
	assert_int_equal(b.wait_ms, 777);
	assert_int_equal(
		bundle_on_answer(&b, BUNDLE_SLOW_DOWN, 0), BUNDLE_RESEND);
	assert_int_equal(b.wait_ms, 1000);
	assert_int_equal(bundle_on_answer(&b, BUNDLE_GONE, 0), BUNDLE_ENSURE);
	assert_int_equal(b.wait_ms, 2000);
	/* sealed at once, and once */
	assert_int_equal(bundle_on_answer(&b, BUNDLE_UNSEALED, 0), BUNDLE_SEAL);
	assert_int_equal(b.wait_ms, 0);
	assert_int_equal(bundle_on_answer(&b, BUNDLE_UNSEALED, 0), BUNDLE_STOP);
	assert_int_equal(bundle_on_answer(&b, BUNDLE_REFUSED, 0), BUNDLE_STOP);
}

int
main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(a_unit_gives_back_what_it_took),
		T(position_units_merge_and_ride_along),
		T(whole_units_up_to_the_limit),
		T(an_oversized_unit_goes_alone),
		T(due_by_force_size_age_or_silence),
		T(reading_stops_at_twice_a_limit),
		T(the_decision_table),
		T(a_lost_precondition_is_resent_three_times),
		T(doubt_is_resent_without_end),
		T(refusals_skip_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

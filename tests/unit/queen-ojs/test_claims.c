/* SPDX-License-Identifier: Apache-2.0 */
/* Where claims begin: what is remembered, and when it is left aside. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <arpa/inet.h>
#include <cmocka.h>

#include "claims.h"

static const struct qid one = { { 1 } }, two = { { 2 } };

/* How many rows the four arrays hold; the same in all. */
static size_t
rows(struct claims *c, const struct qid *tenant, const char *queue,
	int64_t now_ms)
{
	static const size_t width[] = { 8, 2, 8, 8 };
	struct span name = span_of(queue);
	struct pgargs a;
	size_t n = 0;

	pgargs_init(&a);
	claims_args(c, &a, tenant, &name, 1, now_ms);
	assert_int_equal(a.n, 4);
	for (int i = 0; i < 4; i++) {
		uint32_t dims;
		size_t m;

		memcpy(&dims, a.data.p + a.at[i], 4);
		m = ntohl(dims) ? (a.len[i] - 20) / (4 + width[i]) : 0;
		if (i)
			assert_int_equal(m, n);
		n = m;
	}
	pgargs_fini(&a);
	return n;
}

static void
a_claim_begins_where_the_last_one_ended(void **state)
{
	struct claims *c = claims_new();

	(void)state;
	assert_int_equal(rows(c, &one, "q", 0), 0);
	claims_took(c, 7, 0, 100, 5); /* a queue nobody named */
	claims_queue(c, &one, span_of("q"), 7, 0);
	assert_int_equal(rows(c, &one, "q", 10), 0);
	for (int rank = -100; rank <= 100; rank++)
		claims_took(c, 7, rank, 100, 5);
	claims_took(c, 7, 0, 200, 6);
	assert_int_equal(rows(c, &one, "q", 10), 201);
	assert_int_equal(rows(c, &two, "q", 10), 0);
	assert_int_equal(rows(c, &one, "other", 10), 0);
	claims_free(c);
}

static void
once_a_second_and_after_a_reset_it_begins_at_the_start(void **state)
{
	struct claims *c = claims_new();

	(void)state;
	claims_queue(c, &one, span_of("q"), 7, 0);
	claims_took(c, 7, 0, 100, 5);
	assert_int_equal(rows(c, &one, "q", 999), 1);
	assert_int_equal(rows(c, &one, "q", 1000), 0);
	assert_int_equal(rows(c, &one, "q", 1001), 1);
	assert_int_equal(rows(c, &one, "q", 2000), 0);
	claims_reset(c, 7);
	claims_reset(c, 8);
	assert_int_equal(rows(c, &one, "q", 2001), 0);
	claims_took(c, 7, 0, 100, 5);
	assert_int_equal(rows(c, &one, "q", 2002), 1);
	claims_free(c);
}

static void
a_queue_made_anew_is_another_one(void **state)
{
	struct claims *c = claims_new();

	(void)state;
	claims_queue(c, &one, span_of("q"), 7, 0);
	claims_queue(c, &two, span_of("q"), 8, 0);
	claims_took(c, 7, 0, 100, 5);
	assert_int_equal(claims_queue_id(c, &one, span_of("q")), 7);
	assert_int_equal(claims_queue_id(c, &two, span_of("q")), 8);
	claims_queue(c, &one, span_of("q"), 7, 5);
	assert_int_equal(rows(c, &one, "q", 6), 1);
	claims_queue(c, &one, span_of("q"), 9, 5);
	assert_int_equal(claims_queue_id(c, &one, span_of("q")), 9);
	assert_int_equal(rows(c, &one, "q", 6), 0);
	claims_queue(c, &one, span_of("q"), 0, 5);
	assert_int_equal(claims_queue_id(c, &one, span_of("q")), 0);
	claims_free(c);
}

static void
who_is_not_asked_for_is_forgotten(void **state)
{
	struct claims *c = claims_new();
	const int64_t ten_min = 600000;

	(void)state;
	for (int64_t id = 1; id <= 100; id++) {
		char name[] = { 'q', (char)('0' + id / 10), (char)id, '\0' };

		claims_queue(c, &one, span_of(name), id, id % 2 ? 0 : 60000);
	}
	claims_queue(c, &two, span_of("q"), 101, ten_min - 1);
	assert_int_equal(claims_queue_id(c, &one, span_of("q0\1")), 1);
	claims_queue(c, &one, span_of("q0\3"), 3, ten_min - 1 + 60000);
	assert_int_equal(claims_queue_id(c, &one, span_of("q0\3")), 3);
	assert_int_equal(claims_queue_id(c, &one, span_of("q0\1")), 0);
	assert_int_equal(claims_queue_id(c, &one, span_of("q0\2")), 2);
	claims_free(c);
	claims_free(NULL);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_claim_begins_where_the_last_one_ended),
		cmocka_unit_test(
			once_a_second_and_after_a_reset_it_begins_at_the_start),
		cmocka_unit_test(a_queue_made_anew_is_another_one),
		cmocka_unit_test(who_is_not_asked_for_is_forgotten),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "qid.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static void
new_ids_are_v7_and_strictly_rising(void **state)
{
	struct qid last = qid_new();

	(void)state;
	for (int i = 0; i < 20000; i++) {
		struct qid q = qid_new();

		assert_int_equal(q.b[6] >> 4, 7);
		assert_int_equal(q.b[8] >> 6, 2);
		assert_true(memcmp(&last, &q, sizeof(q)) < 0);
		last = q;
	}
}

static void
entity_ids_are_arithmetic(void **state)
{
	const uint64_t tag = 0x0123456789ab;
	struct qid q = qid_entity(QID_PARTITION, tag, 77);
	char text[QID_TEXT_MAX];
	int64_t id = 0;

	(void)state;
	assert_string_equal(
		qid_text(&q, text), "01234567-89ab-8200-8000-00000000004d");
	assert_true(qid_is_entity(&q, QID_PARTITION, tag, &id));
	assert_true(id == 77);
	assert_false(qid_is_entity(&q, QID_QUEUE, tag, &id));
	assert_false(qid_is_entity(&q, QID_PARTITION, tag + 1, &id));
	q.b[7] = 1;
	assert_false(qid_is_entity(&q, QID_PARTITION, tag, &id));
	q = qid_new();
	assert_false(qid_is_entity(&q, QID_PARTITION, tag, &id));
}

static void
entity_ids_hold_62_bits(void **state)
{
	const int64_t big = (INT64_C(1) << 62) - 1;
	struct qid q = qid_entity(QID_QUEUE, 1, big);
	int64_t id = 0;

	(void)state;
	assert_int_equal(q.b[8] >> 6, 2);
	assert_true(qid_is_entity(&q, QID_QUEUE, 1, &id));
	assert_true(id == big);
}

static void
lease_ids_carry_their_three_numbers(void **state)
{
	static const struct qid_lease rows[] = {
		{ 1, 1, 1 },
		{ (INT64_C(1) << 46) - 1, (INT64_C(1) << 34) - 1,
			(INT64_C(1) << 42) - 1 },
		{ (INT64_C(1) << 46) - 1, 0, 0 },
		{ 0, (INT64_C(1) << 34) - 1, 0 },
		{ 0, 0, (INT64_C(1) << 42) - 1 },
		{ 123456789012, 9876543210, 2345678901234 },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct qid q = qid_of_lease(&rows[i]);
		struct qid_lease l;

		assert_int_equal(q.b[6] >> 4, 8);
		assert_int_equal(q.b[8] >> 6, 2);
		assert_true(qid_is_lease(&q, &l));
		assert_true(l.partition_id == rows[i].partition_id);
		assert_true(l.group_id == rows[i].group_id);
		assert_true(l.number == rows[i].number);
	}
}

static void
a_v7_is_no_lease(void **state)
{
	struct qid q = qid_new();
	struct qid_lease l;

	(void)state;
	assert_false(qid_is_lease(&q, &l));
}

static void
lease_numbers_are_below_2_to_42(void **state)
{
	int64_t all = 0;

	(void)state;
	for (int i = 0; i < 10000; i++) {
		int64_t n = qid_lease_number();

		assert_true(n >= 0 && n < INT64_C(1) << 42);
		all |= n;
	}
	assert_true(all == (INT64_C(1) << 42) - 1);
}

static void
text_parses_back_in_either_case(void **state)
{
	char text[QID_TEXT_MAX];
	struct qid q = qid_new(), r;

	(void)state;
	qid_text(&q, text);
	assert_true(qid_parse(span_of(text), &r));
	assert_memory_equal(&q, &r, sizeof(q));
	for (char *p = text; *p; p++)
		if (*p >= 'a' && *p <= 'f')
			*p = (char)(*p - 32);
	assert_true(qid_parse(span_of(text), &r));
	assert_memory_equal(&q, &r, sizeof(q));
}

static void
parse_refuses_other_shapes(void **state)
{
	static const char *const rows[] = { "", "0",
		"0123456789ab82008000000000000004d",
		"01234567-89ab-8200-8000-00000000004",
		"01234567-89ab-8200-8000-00000000004dd",
		"01234567-89ab-8200-8000-00000000004g",
		"01234567-89ab-8200-8000_00000000004d",
		"012345678-9ab-8200-8000-00000000004d",
		"{1234567-89ab-8200-8000-00000000004d",
		"01234567-89ab-8200-8000-0000000000 d" };
	struct qid q;

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		assert_false(qid_parse(span_of(rows[i]), &q));
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(new_ids_are_v7_and_strictly_rising),
		cmocka_unit_test(entity_ids_are_arithmetic),
		cmocka_unit_test(entity_ids_hold_62_bits),
		cmocka_unit_test(lease_ids_carry_their_three_numbers),
		cmocka_unit_test(a_v7_is_no_lease),
		cmocka_unit_test(lease_numbers_are_below_2_to_42),
		cmocka_unit_test(text_parses_back_in_either_case),
		cmocka_unit_test(parse_refuses_other_shapes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* The payload of hints: there and back, and from hostile senders. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "buf.h"
#include "err.h"
#include "hint.h"

struct got {
	struct hint_item items[4096];
	size_t n;
};

static void
collect(void *arg, const struct hint_item *i)
{
	struct got *g = arg;

	if (g->n < 4096)
		g->items[g->n] = *i;
	g->n++;
}

static int
parse(const char *payload, struct got *g)
{
	struct err e = ERR_ZERO;

	g->n = 0;
	return hint_parse(span_of(payload), SPAN_LIT("me"), collect, g, &e);
}

static void
assert_item(const struct hint_item *i, enum hint_kind kind, int64_t queue,
	int64_t group, int64_t part)
{
	assert_int_equal(i->kind, kind);
	assert_int_equal(i->queue_id, queue);
	assert_int_equal(i->group_id, group);
	assert_int_equal(i->part_id, part);
}

static void
test_payload_reads_as_documented(void **state)
{
	struct got *g = calloc(1, sizeof(*g));

	(void)state;
	assert_int_equal(parse("node-1 m2s..1a,1b ck f", g), 0);
	assert_int_equal(g->n, 4);
	assert_item(&g->items[0], HINT_MESSAGES, 100, 0, 46);
	assert_item(&g->items[1], HINT_MESSAGES, 100, 0, 47);
	assert_item(&g->items[2], HINT_CATALOG, 20, 0, 0);
	assert_item(&g->items[3], HINT_FLAGS, 0, 0, 0);
	assert_int_equal(parse("n r1.2.3 r1.2 v1 x d1.2.z", g), 0);
	assert_int_equal(g->n, 5);
	assert_item(&g->items[0], HINT_RELEASED, 1, 2, 3);
	assert_item(&g->items[1], HINT_RELEASED, 1, 2, 0);
	assert_item(&g->items[2], HINT_MOVED, 1, 0, 0);
	assert_item(&g->items[3], HINT_RESYNC, 0, 0, 0);
	assert_item(&g->items[4], HINT_DONE, 1, 2, 35);
	free(g);
}

static void
test_own_hints_are_skipped(void **state)
{
	struct got *g = calloc(1, sizeof(*g));

	(void)state;
	assert_int_equal(parse("me m1..1", g), 0);
	assert_int_equal(g->n, 0);
	assert_int_equal(parse("me2 m1..1", g), 0);
	assert_int_equal(g->n, 1);
	free(g);
}

static void
test_largest_ids_survive(void **state)
{
	struct got *g = calloc(1, sizeof(*g));
	struct buf b = BUF_ZERO;
	struct hint_item i = { HINT_RELEASED, INT64_MAX, INT64_MAX, INT64_MAX };

	(void)state;
	assert_int_equal(hint_write(&b, SPAN_LIT("n"), &i, 1), 1);
	buf_putc(&b, '\0');
	assert_int_equal(parse(b.p, g), 0);
	assert_int_equal(g->n, 1);
	assert_item(
		&g->items[0], HINT_RELEASED, INT64_MAX, INT64_MAX, INT64_MAX);
	buf_fini(&b);
	free(g);
}

static void
test_hostile_payloads_are_refused(void **state)
{
	static const char *const bad[] = { "", " ", " m1", "node", "n  m1",
		"n w1", "n m1.", "n m1..", "n m1..,", "n m1..1,", "n m1..0",
		"n m1..1,,2", "n m1.2.3.4", "n M1", "n m-1", "n m1 ",
		"n m99999999999999", "n m1..zzzzzzzzzzzzzz", "n m1..1\n",
		"n m1\tm2" };
	struct got *g = calloc(1, sizeof(*g));

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		/* an empty list of partitions is what it says it is */
		int rc = parse(bad[i], g);

		if (strcmp(bad[i], "n m1.") == 0)
			assert_int_equal(rc, 0);
		else
			assert_int_equal(rc, -1);
	}
	/* what came before the fault was fine and is kept */
	assert_int_equal(parse("n m1..1 ?", g), -1);
	assert_int_equal(g->n, 1);
	free(g);
}

static void
test_random_bytes_never_hang_or_crash(void **state)
{
	static const char alphabet[] = "mrdvcfjeqx019az., n%|\x7f";
	struct got *g = calloc(1, sizeof(*g));
	char text[64];
	struct err e = ERR_ZERO;

	(void)state;
	srand(1);
	for (int round = 0; round < 20000; round++) {
		size_t n = (size_t)rand() % sizeof(text);

		for (size_t i = 0; i < n; i++)
			text[i] = alphabet[(size_t)rand() %
					   (sizeof(alphabet) - 1)];
		g->n = 0;
		int rc = hint_parse(
			span_make(text, n), SPAN_LIT("me"), collect, g, &e);

		assert_true(rc == 0 || rc == -1);
	}
	free(g);
}

static void
test_batches_are_split_at_the_limit_and_lose_nothing(void **state)
{
	enum { N = 20000 };
	struct hint_item *items = calloc(N, sizeof(*items));
	struct got *g = calloc(1, sizeof(*g));
	struct buf b = BUF_ZERO;
	size_t at = 0, payloads = 0;

	(void)state;
	srand(3);
	for (int i = 0; i < N; i++)
		items[i] = (struct hint_item){ (enum hint_kind)(rand() % 4),
			1 + rand() % 5, rand() % 3, 1 + i };
	qsort(items, N, sizeof(*items), hint_item_cmp);
	while (at < N) {
		buf_reset(&b);
		size_t n = hint_write(&b, SPAN_LIT("n"), items + at, N - at);

		assert_true(n > 0);
		assert_true(b.len <= HINT_PAYLOAD_MAX);
		buf_putc(&b, '\0');
		assert_int_equal(parse(b.p, g), 0);
		assert_int_equal(g->n, n);
		for (size_t i = 0; i < n; i++)
			assert_item(&g->items[i], items[at + i].kind,
				items[at + i].queue_id, items[at + i].group_id,
				items[at + i].part_id);
		at += n;
		payloads++;
	}
	/* sorted, a partition costs its digits and a comma */
	assert_true(payloads <= N * 5 / HINT_PAYLOAD_MAX + 2);
	buf_fini(&b);
	free(g);
	free(items);
}

static void
test_names_of_any_bytes_are_one_word(void **state)
{
	struct buf b = BUF_ZERO;

	(void)state;
	hint_write_name(&b, SPAN_LIT("a b%\n\xc3\xa9"));
	assert_true(span_is(buf_span(&b), "a%20b%25%0A%C3%A9"));
	buf_reset(&b);
	hint_write_name(&b, SPAN_LIT(""));
	assert_true(b.len > 0);
	buf_fini(&b);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_payload_reads_as_documented),
		cmocka_unit_test(test_own_hints_are_skipped),
		cmocka_unit_test(test_largest_ids_survive),
		cmocka_unit_test(test_hostile_payloads_are_refused),
		cmocka_unit_test(test_random_bytes_never_hang_or_crash),
		cmocka_unit_test(
			test_batches_are_split_at_the_limit_and_lose_nothing),
		cmocka_unit_test(test_names_of_any_bytes_are_one_word),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

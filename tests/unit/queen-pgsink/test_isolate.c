/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "buf.h"
#include "feed.h"
#include "isolate.h"

enum { PARTS = 4, MESSAGES = 10 };

/* 3, 1, 4 and 2 messages. */
static struct feed_part parts[PARTS] = { { .first = 0, .n = 3 },
	{ .first = 3, .n = 1 }, { .first = 4, .n = 4 },
	{ .first = 8, .n = 2 } };
static struct feed_message messages[MESSAGES];
static struct feed_batch batch = {
	.parts = parts, .parts_n = PARTS, .messages = messages, .n = MESSAGES
};
static struct isolate *s;
static struct buf seen;

static void
start(int64_t max_attempts)
{
	for (size_t k = 0; k < PARTS; k++)
		for (size_t i = 0; i < parts[k].n; i++)
			messages[parts[k].first + i].part = k;
	s = isolate_new(&batch, max_attempts);
	buf_reset(&seen);
}

/* `first+n`, with `!` when alone and `@ms` when delayed. */
static void
note(const struct isolate_piece *p)
{
	buf_printf(&seen, "%zu+%zu%s", p->first, p->n, p->alone ? "!" : "");
	if (p->delay_ms)
		buf_printf(&seen, "@%d", (int)p->delay_ms);
	buf_putc(&seen, ' ');
}

static void
piece(const char *as)
{
	struct isolate_piece p;

	buf_reset(&seen);
	assert_true(isolate_next(s, &p));
	note(&p);
	seen.p[seen.len - 1] = '\0';
	assert_string_equal(seen.p, as);
}

static void
good(const char *as)
{
	piece(as);
	isolate_ended(s, ISOLATE_COMMITTED, NULL);
}

static void
bad(const char *as, size_t first, size_t n)
{
	struct isolate_culprit c = {
		.first = first, .n = n, .text = SPAN_LIT("22003: too large")
	};

	piece(as);
	isolate_ended(s, ISOLATE_DATA, &c);
}

/* `done` of each part, with `!` when a dead letter is its last. */
static void
results(const char *as)
{
	const struct feed_result *r = isolate_results(s);

	buf_reset(&seen);
	for (size_t k = 0; k < PARTS; k++)
		buf_printf(&seen, "%zu%s ", r[k].done, r[k].dlq ? "!" : "");
	seen.p[seen.len - 1] = '\0';
	assert_string_equal(seen.p, as);
}

static void
over(const char *as)
{
	struct isolate_piece p;

	assert_false(isolate_next(s, &p));
	results(as);
	isolate_free(s);
}

static void
a_good_batch_is_one_transaction(void **state)
{
	(void)state;
	start(3);
	results("0 0 0 0");
	piece("0+10");
	isolate_ended(s, ISOLATE_TRANSIENT, NULL);
	piece("0+10");
	isolate_ended(s, ISOLATE_ENVIRONMENT, NULL);
	good("0+10");
	over("3 1 4 2");
}

static void
a_culprit_is_cut_out(void **state)
{
	(void)state;
	start(3);
	bad("0+10", 5, 1);
	good("0+5!");
	results("3 1 1 0");
	bad("5+1!", 5, 1);
	bad("5+1!@200", 5, 1);
	/* a loss of the link is no try */
	piece("5+1!@400");
	isolate_ended(s, ISOLATE_TRANSIENT, NULL);
	bad("5+1!@400", 5, 1);
	/* the tail of its partition is left alone */
	results("3 1 2! 0");
	good("8+2!");
	assert_true(span_is(isolate_results(s)[2].text, "22003: too large"));
	over("3 1 2! 2");
}

static void
it_may_pass_at_a_later_try(void **state)
{
	(void)state;
	start(100);
	bad("0+10", 3, 1);
	good("0+3!");
	bad("3+1!", 3, 1);
	bad("3+1!@200", 3, 1);
	bad("3+1!@400", 3, 1);
	bad("3+1!@800", 3, 1);
	bad("3+1!@1600", 3, 1);
	bad("3+1!@2000", 0, 0);
	good("3+1!@2000");
	good("4+6!");
	over("3 1 4 2");
}

static void
what_is_not_known_is_halved(void **state)
{
	(void)state;
	start(1);
	bad("0+10", 0, 0);
	good("0+5!");
	/* the whole piece, and what is not in it, say as little */
	bad("5+5!", 5, 5);
	bad("5+2!", 0, 5);
	good("5+1!");
	bad("6+1!", 0, 0);
	good("8+2!");
	over("3 1 3! 2");
}

static void
a_statement_of_several_is_cut_out_as_a_whole(void **state)
{
	(void)state;
	start(1);
	/* reaches over the piece as far as a statement may */
	bad("0+10", 0, 4);
	bad("0+4!", 2, 2);
	good("0+2!");
	bad("2+2!", 2, 2);
	bad("2+1!", 2, 1);
	good("3+1!");
	good("4+6!");
	over("3! 1 4 2");
}

static void
each_partition_loses_its_own_tail(void **state)
{
	(void)state;
	start(1);
	bad("0+10", 0, 1);
	bad("0+1!", 0, 1);
	/* the rest of the first is gone from the next piece */
	bad("3+7!", 9, 1);
	bad("3+6!", 3, 1);
	bad("3+1!", 3, 1);
	good("4+5!");
	bad("9+1!", 9, 1);
	over("1! 1! 4 2!");
}

static void
no_server_is_asked_twice_about_a_payload(void **state)
{
	struct isolate_culprit c = { .first = 4,
		.n = 1,
		.unasked = true,
		.text = SPAN_LIT("payload: not an object") };

	(void)state;
	start(100);
	piece("0+10");
	isolate_ended(s, ISOLATE_DATA, &c);
	good("0+4!");
	piece("4+1!");
	isolate_ended(s, ISOLATE_DATA, &c);
	good("8+2!");
	over("3 1 1! 2");
}

static void
nothing_is_through_at_once(void **state)
{
	struct feed_batch none = { .n = 0 };
	struct isolate_piece p;
	struct isolate *empty = isolate_new(&none, 1);

	(void)state;
	assert_false(isolate_next(empty, &p));
	isolate_free(empty);
	isolate_free(NULL);
}

/*
 * Any poison, found by any kind of error: each partition is done up to its
 * first poison, which alone is filed, and nothing is committed twice.
 */
static void
round_of(unsigned poison, unsigned how)
{
	struct isolate_piece p;
	unsigned done = 0;
	int steps = 0;

	start(2);
	while (isolate_next(s, &p)) {
		size_t at = p.first, end = p.first + p.n;
		struct isolate_culprit c = { .text = SPAN_LIT("22000: x") };

		assert_true(++steps < 200);
		while (at < end && !(poison >> at & 1))
			at++;
		if (at == end) {
			for (size_t i = p.first; i < end; i++) {
				assert_false(done >> i & 1);
				done |= 1u << i;
			}
			isolate_ended(s, ISOLATE_COMMITTED, NULL);
			continue;
		}
		/* unknown, exact, or with up to two neighbours */
		c.first = how % 3 == 2 && at > p.first ? at - 1 : at;
		c.n = how % 3 == 0 ? 0 : at - c.first + 1 + (how % 3 == 2);
		how = how * 1103515245u + 12345u;
		isolate_ended(s,
			how >> 16 & 1 ? ISOLATE_DATA : ISOLATE_TRANSIENT,
			how >> 16 & 1 ? &c : NULL);
	}
	for (size_t k = 0; k < PARTS; k++) {
		const struct feed_result *r = &isolate_results(s)[k];
		size_t i = 0;

		while (i < parts[k].n && !(poison >> (parts[k].first + i) & 1))
			i++;
		assert_int_equal(r->dlq, i < parts[k].n);
		assert_int_equal(r->done, i + r->dlq);
		for (size_t m = 0; m < parts[k].n; m++)
			assert_int_equal(
				done >> (parts[k].first + m) & 1, m < i);
	}
	isolate_free(s);
}

static void
it_ends_and_finds_all_culprits(void **state)
{
	(void)state;
	for (unsigned poison = 0; poison < 1u << MESSAGES; poison++)
		for (unsigned how = 0; how < 3; how++)
			round_of(poison, how);
}

static void
sqlstates_decide(void **state)
{
	static const struct {
		const char *sqlstate;
		enum isolate_end own, other;
	} rows[] = {
		{ "21000", ISOLATE_DATA, ISOLATE_ENVIRONMENT },
		{ "22P02", ISOLATE_DATA, ISOLATE_ENVIRONMENT },
		{ "23505", ISOLATE_DATA, ISOLATE_ENVIRONMENT },
		{ "27000", ISOLATE_DATA, ISOLATE_ENVIRONMENT },
		{ "44000", ISOLATE_DATA, ISOLATE_ENVIRONMENT },
		{ "54000", ISOLATE_DATA, ISOLATE_ENVIRONMENT },
		{ "P0001", ISOLATE_DATA, ISOLATE_ENVIRONMENT },
		{ "42P01", ISOLATE_ENVIRONMENT, ISOLATE_ENVIRONMENT },
		{ "0A000", ISOLATE_ENVIRONMENT, ISOLATE_ENVIRONMENT },
		{ "25006", ISOLATE_ENVIRONMENT, ISOLATE_ENVIRONMENT },
		{ "28000", ISOLATE_ENVIRONMENT, ISOLATE_ENVIRONMENT },
		{ "428C9", ISOLATE_ENVIRONMENT, ISOLATE_ENVIRONMENT },
		{ "55000", ISOLATE_ENVIRONMENT, ISOLATE_ENVIRONMENT },
		{ "57014", ISOLATE_ENVIRONMENT, ISOLATE_ENVIRONMENT },
		{ "XX000", ISOLATE_ENVIRONMENT, ISOLATE_ENVIRONMENT },
		{ "08006", ISOLATE_TRANSIENT, ISOLATE_TRANSIENT },
		{ "53300", ISOLATE_TRANSIENT, ISOLATE_TRANSIENT },
		{ "57P01", ISOLATE_TRANSIENT, ISOLATE_TRANSIENT },
		{ "57P03", ISOLATE_TRANSIENT, ISOLATE_TRANSIENT },
		{ "40001", ISOLATE_TRANSIENT, ISOLATE_TRANSIENT },
		{ "40P01", ISOLATE_TRANSIENT, ISOLATE_TRANSIENT },
		{ "55006", ISOLATE_TRANSIENT, ISOLATE_TRANSIENT },
		{ "", ISOLATE_TRANSIENT, ISOLATE_TRANSIENT },
		{ NULL, ISOLATE_TRANSIENT, ISOLATE_TRANSIENT },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		assert_int_equal(
			isolate_class(rows[i].sqlstate, true), rows[i].own);
		assert_int_equal(
			isolate_class(rows[i].sqlstate, false), rows[i].other);
	}
}

static void
texts_are_cut_between_characters(void **state)
{
	struct isolate_culprit c = { .n = 0 };
	struct isolate_piece p;
	struct buf b = BUF_ZERO;

	(void)state;
	start(1);
	for (int i = 0; i < 3000; i++)
		buf_puts(&b, "\xc3\xa9");
	c.text = buf_span(&b);
	while (isolate_next(s, &p))
		isolate_ended(s, ISOLATE_DATA, &c);
	for (size_t k = 0; k < PARTS; k++) {
		assert_int_equal(
			isolate_results(s)[k].text.n, ISOLATE_TEXT_MAX * 2);
		assert_memory_equal(
			isolate_results(s)[k].text.p, b.p, ISOLATE_TEXT_MAX);
	}
	over("1! 1! 1! 1!");
	buf_fini(&b);
}

static int
end(void **state)
{
	(void)state;
	buf_fini(&seen);
	return 0;
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_good_batch_is_one_transaction),
		cmocka_unit_test(a_culprit_is_cut_out),
		cmocka_unit_test(it_may_pass_at_a_later_try),
		cmocka_unit_test(what_is_not_known_is_halved),
		cmocka_unit_test(a_statement_of_several_is_cut_out_as_a_whole),
		cmocka_unit_test(each_partition_loses_its_own_tail),
		cmocka_unit_test(no_server_is_asked_twice_about_a_payload),
		cmocka_unit_test(nothing_is_through_at_once),
		cmocka_unit_test(it_ends_and_finds_all_culprits),
		cmocka_unit_test(sqlstates_decide),
		cmocka_unit_test(texts_are_cut_between_characters),
	};

	return cmocka_run_group_tests(tests, NULL, end);
}

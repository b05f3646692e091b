/* SPDX-License-Identifier: Apache-2.0 */
/* The change scan over a link that a test answers for. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <arpa/inet.h>
#include <endian.h>
#include <stdlib.h>
#include <string.h>

#include "cellscan.h"
#include "clk.h"
#include "err.h"
#include "log.h"
#include "pgbin.h"

enum { CALLS = 8, TOLD = 16 };
static const int64_t second_us = 1000000;
/* 2000-01-01, where the server's times begin */
static const int64_t epoch_us = INT64_C(946684800000000);

struct call {
	const struct pgstmt *s;
	int64_t args[3]; /* integers; a time is of our epoch */
	pgconn_result_fn fn;
	void *fn_arg;
};

struct told {
	char what; /* 'm' mark, 'v' moved */
	int64_t queue, group, part;
};

struct fix {
	struct cellscan *scan;
	struct call calls[CALLS];
	int calls_n;
	struct told told[TOLD];
	int told_n, clocks;
	int64_t offset_us, now_ms;
	int64_t unwanted; /* queue */
};

/* ---- the other end ---- */

static int64_t
wide(const struct pgargs *a, int i)
{
	uint64_t v;
	uint32_t n;

	if (a->len[i] == sizeof(n)) {
		memcpy(&n, a->data.p + a->at[i], sizeof(n));
		return (int32_t)ntohl(n);
	}
	memcpy(&v, a->data.p + a->at[i], sizeof(v));
	return (int64_t)be64toh(v);
}

static void
on_call(void *arg, const struct pgstmt *s, struct pgargs *args,
	pgconn_result_fn fn, void *fn_arg)
{
	struct fix *f = arg;
	struct call *c = &f->calls[f->calls_n++];

	assert_true(f->calls_n <= CALLS);
	*c = (struct call){ .s = s, .fn = fn, .fn_arg = fn_arg };
	for (int i = 0; i < args->n; i++)
		c->args[i] = wide(args, i);
	if (strcmp(s->name, "change_scan") == 0)
		c->args[0] += epoch_us;
	pgargs_fini(args);
}

static bool
on_wants(void *arg, int64_t queue_id)
{
	return queue_id != ((struct fix *)arg)->unwanted;
}

static void
tell(struct fix *f, struct told t)
{
	assert_true(f->told_n < TOLD);
	f->told[f->told_n++] = t;
}

static void
on_mark(void *arg, int64_t queue_id, int64_t part_id)
{
	tell(arg, (struct told){ 'm', queue_id, 0, part_id });
}

static void
on_moved(void *arg, int64_t queue_id, int64_t group_id, int64_t part_id)
{
	tell(arg, (struct told){ 'v', queue_id, group_id, part_id });
}

static void
on_clock(void *arg, int64_t offset_us)
{
	struct fix *f = arg;

	f->clocks++;
	f->offset_us = offset_us;
}

/* A result of int8 columns; INT64_MIN = null. */
static PGresult *
rows_of(const int64_t *v, int rows, int cols)
{
	PGresult *r = PQmakeEmptyPGresult(NULL, PGRES_TUPLES_OK);
	PGresAttDesc d[4];

	memset(d, 0, sizeof(d));
	for (int i = 0; i < cols; i++) {
		d[i].name = (char *)(uintptr_t) "c";
		d[i].format = 1;
		d[i].typid = 20;
		d[i].typlen = 8;
	}
	assert_true(PQsetResultAttrs(r, cols, d));
	for (int i = 0; i < rows * cols; i++) {
		uint64_t wire = htobe64((uint64_t)v[i]);
		bool null = v[i] == INT64_MIN;

		assert_true(PQsetvalue(r, i / cols, i % cols,
			null ? NULL : (char *)&wire, null ? -1 : 8));
	}
	return r;
}

/* Answers the oldest call of this name. */
static void
answer(struct fix *f, const char *name, const int64_t *v, int rows, int cols)
{
	struct err e = ERR_ZERO;
	int at = 0;

	while (at < f->calls_n && strcmp(f->calls[at].s->name, name) != 0)
		at++;
	assert_true(at < f->calls_n);
	struct call c = f->calls[at];

	memmove(&f->calls[at], &f->calls[at + 1],
		(size_t)(--f->calls_n - at) * sizeof(c));
	if (!v) {
		err_set(&e, ERR_DB_RETRY, "no link");
		c.fn(c.fn_arg, NULL, &e);
		return;
	}
	PGresult *r = rows_of(v, rows, cols);

	c.fn(c.fn_arg, r, NULL);
	PQclear(r);
}

static int64_t
scan_since(struct fix *f)
{
	for (int i = 0; i < f->calls_n; i++)
		if (strcmp(f->calls[i].s->name, "change_scan") == 0)
			return f->calls[i].args[0];
	fail_msg("no scan is under way");
	return 0;
}

static void
assert_told(struct fix *f, const struct told *want, int n)
{
	assert_int_equal(f->told_n, n);
	for (int i = 0; i < n; i++) {
		assert_int_equal(f->told[i].what, want[i].what);
		assert_int_equal(f->told[i].queue, want[i].queue);
		assert_int_equal(f->told[i].group, want[i].group);
		assert_int_equal(f->told[i].part, want[i].part);
	}
	f->told_n = 0;
}
#define TOLD_NOTHING(f) assert_told(f, NULL, 0)

/* ---- a scan that knows its clock, an hour ahead of ours ---- */

static const int64_t ahead_us = 3600 * INT64_C(1000000);

static int64_t
db_now(void)
{
	return clk_wall_us() + ahead_us;
}

static void
tick(struct fix *f, int64_t ms)
{
	f->now_ms += ms;
	cellscan_tick(f->scan, f->now_ms);
}

static void
scan(struct fix *f, const int64_t *rows, int n)
{
	int64_t wire[12] = { 0 };

	for (int i = 0; i < n * 3; i++)
		wire[i] = i % 3 == 2 ? rows[i] - epoch_us : rows[i];
	answer(f, "change_scan", wire, n, 3);
}

static int
setup(void **state)
{
	struct fix *f = calloc(1, sizeof(*f));
	struct cellscan_face face = { .call = on_call,
		.wants = on_wants,
		.on_mark = on_mark,
		.on_moved = on_moved,
		.on_clock = on_clock,
		.arg = f };

	log_init("error", false);
	f->unwanted = 99;
	f->now_ms = 1000;
	f->scan = cellscan_new(&face, f->now_ms);
	*state = f;
	tick(f, 0);
	assert_int_equal(f->calls_n, 2); /* no scan without a clock */
	int64_t now = db_now() - epoch_us;

	answer(f, "change_clock", &now, 1, 1);
	answer(f, "repair_scan", &now, 0, 4);
	assert_int_equal(f->clocks, 1);
	assert_in_range(f->offset_us, ahead_us - 100000, ahead_us + 100000);
	return 0;
}

static int
teardown(void **state)
{
	struct fix *f = *state;

	cellscan_free(f->scan);
	free(f);
	return 0;
}

/* ---- tests ---- */

static void
test_a_write_is_marked_once_and_again_when_settled(void **state)
{
	struct fix *f = *state;
	int64_t old = db_now() - 2 * second_us, now = db_now();
	int64_t rows[] = { 7, 41, old, 99, 42, old, 7, 43, now };

	tick(f, 1000);
	assert_in_range(scan_since(f), db_now() - 4 * second_us,
		db_now() - 2 * second_us);
	scan(f, rows, 3);
	assert_told(
		f, (struct told[]){ { 'm', 7, 0, 41 }, { 'm', 7, 0, 43 } }, 2);
	answer(f, "repair_scan", &now, 0, 4);
	/* neither the settled one nor the one that is too young by far */
	tick(f, 1000);
	scan(f, rows, 3);
	TOLD_NOTHING(f);
	answer(f, "repair_scan", &now, 0, 4);
	/* a newer stamp is new, however soon */
	rows[2] += 3 * second_us / 2;
	tick(f, 1000);
	scan(f, rows, 1);
	assert_told(f, (struct told[]){ { 'm', 7, 0, 41 } }, 1);
}

static void
test_what_was_heard_of_is_not_marked(void **state)
{
	struct fix *f = *state;
	int64_t old = db_now() - 2 * second_us;
	int64_t rows[] = { 7, 41, old, 7, 42, old };

	cellscan_heard(f->scan, 7, 41);
	cellscan_heard(f->scan, 99, 42);
	tick(f, 1000);
	scan(f, rows, 2);
	assert_told(f, (struct told[]){ { 'm', 7, 0, 42 } }, 1);
}

static void
test_every_thirty_seconds_the_last_two_minutes_again(void **state)
{
	struct fix *f = *state;
	int64_t old = db_now() - 30 * second_us, none = 0;
	int64_t rows[] = { 7, 41, old };
	struct cellscan_stats s;

	tick(f, 1000);
	scan(f, rows, 1);
	assert_told(f, (struct told[]){ { 'm', 7, 0, 41 } }, 1);
	answer(f, "repair_scan", &none, 0, 4);
	tick(f, 29000);
	assert_in_range(scan_since(f), db_now() - 121 * second_us,
		db_now() - 119 * second_us);
	scan(f, rows, 1);
	assert_told(f, (struct told[]){ { 'm', 7, 0, 41 } }, 1);
	cellscan_stats(f->scan, &s);
	assert_int_equal(s.scans, 2);
	assert_int_equal(s.rows, 2);
	assert_int_equal(s.marks, 2);
	assert_int_equal(s.failures, 0);
}

static void
test_a_failed_scan_is_made_good(void **state)
{
	struct fix *f = *state;
	int64_t since, none = 0;
	struct cellscan_stats s;

	tick(f, 1000);
	since = scan_since(f);
	/* none is begun while one is under way */
	tick(f, 1000);
	assert_int_equal(f->calls_n, 2);
	answer(f, "change_scan", NULL, 0, 0);
	answer(f, "repair_scan", NULL, 0, 0);
	tick(f, 1000);
	assert_int_equal(scan_since(f), since);
	scan(f, &none, 0);
	cellscan_stats(f->scan, &s);
	assert_int_equal(s.failures, 2);
	assert_int_equal(s.scans, 1);
}

static void
test_notes_of_moved_cursors(void **state)
{
	struct fix *f = *state;
	int64_t rows[] = { 11, 7, 3, 41, 12, 7, 3, INT64_MIN };

	tick(f, 1000);
	answer(f, "repair_scan", rows, 2, 4);
	assert_told(
		f, (struct told[]){ { 'v', 7, 3, 41 }, { 'v', 7, 3, 0 } }, 2);
	tick(f, 1000);
	assert_int_equal(f->calls[f->calls_n - 1].args[0], 12);
}

static void
test_the_notes_of_before_are_nobodys_business(void **state)
{
	struct fix *f = calloc(1, sizeof(*f)), *keep = *state;
	struct cellscan_face face = { .call = on_call,
		.on_mark = on_mark,
		.on_moved = on_moved,
		.arg = f };
	int64_t rows[] = { 11, 7, 3, 41 };

	assert_non_null(keep);
	f->scan = cellscan_new(&face, 0);
	tick(f, 1000);
	answer(f, "repair_scan", rows, 1, 4);
	TOLD_NOTHING(f);
	rows[0] = 12;
	tick(f, 1000);
	answer(f, "repair_scan", rows, 1, 4);
	assert_told(f, (struct told[]){ { 'v', 7, 3, 41 } }, 1);
	cellscan_free(f->scan);
	free(f);
}

#define SCAN_TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int
main(void)
{
	const struct CMUnitTest tests[] = {
		SCAN_TEST(test_a_write_is_marked_once_and_again_when_settled),
		SCAN_TEST(test_what_was_heard_of_is_not_marked),
		SCAN_TEST(test_every_thirty_seconds_the_last_two_minutes_again),
		SCAN_TEST(test_a_failed_scan_is_made_good),
		SCAN_TEST(test_notes_of_moved_cursors),
		SCAN_TEST(test_the_notes_of_before_are_nobodys_business),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

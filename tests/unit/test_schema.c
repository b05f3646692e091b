/* SPDX-License-Identifier: Apache-2.0 */
/* Applying: once, twice, by several at once, and against locks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <sys/wait.h>
#include <unistd.h>

#include "clk.h"
#include "pgconn.h"
#include "pgserver.h"
#include "schema.h"

static struct pgserver server;
static int database_n;

/* The real shape of queen.cell, and marks of what ran. */
#define CELL_SQL                                                               \
	"create schema if not exists queen;"                                   \
	"create table if not exists queen.cell ("                              \
	" one boolean primary key default true check (one),"                   \
	" tag bigint not null, hash_key bytea not null, major int not null,"   \
	" number int not null, hash text not null,"                            \
	" created_at timestamptz not null default clock_timestamp(),"          \
	" applied_at timestamptz not null default clock_timestamp());"         \
	"create table if not exists queen.runs (n int);"                       \
	"create table if not exists queen.items (n int);"
#define RUN_SQL "insert into queen.runs values (1);"

static const struct schema_file files_v1[] = { { "010_cell.sql", CELL_SQL },
	{ "020_run.sql", RUN_SQL } };
static const struct schema_file files_v2[] = { { "010_cell.sql", CELL_SQL },
	{ "020_run.sql", RUN_SQL "-- changed\n" } };
static const struct schema_file files_alter[] = { { "010_cell.sql", CELL_SQL },
	{ "030_alter.sql",
		"alter table queen.items add if not exists m int" } };
static const struct schema_file files_bad[] = { { "010_cell.sql", CELL_SQL },
	{ "020_run.sql", RUN_SQL },
	{ "030_bad.sql", "select 1;\nselect 1/0" } };

static struct schema_set
set_of(const struct schema_file *files, int n, int major, int number)
{
	return (struct schema_set){
		.files = files, .n = n, .major = major, .number = number
	};
}

struct fix {
	char database[32];
	PGconn *c, *side;
	struct schema_cell cell;
	struct err e;
};

static PGconn *
open_link(const char *database)
{
	char info[320];
	struct err e;
	PGconn *c;

	snprintf(info, sizeof info, "%s dbname=%s", server.conninfo, database);
	c = pgconn_open_sync(info, "applier", 10000, &e);
	assert_non_null(c);
	return c;
}

static int
setup(void **state)
{
	struct fix *f = calloc(1, sizeof *f);
	PGconn *c = pgserver_connect(&server, "postgres");
	char sql[64];

	snprintf(f->database, sizeof f->database, "db%d", ++database_n);
	snprintf(sql, sizeof sql, "create database %s", f->database);
	pgserver_value(c, sql);
	PQfinish(c);
	f->c = open_link(f->database);
	f->side = pgserver_connect(&server, f->database);
	*state = f;
	return 0;
}

static int
teardown(void **state)
{
	struct fix *f = *state;

	PQfinish(f->c);
	PQfinish(f->side);
	free(f);
	return 0;
}

static int
apply(struct fix *f, const struct schema_set *set)
{
	return schema_apply_set(f->c, set, 20000, &f->cell, NULL, NULL, &f->e);
}

static int
runs(struct fix *f)
{
	return (int)strtol(
		pgserver_value(f->side, "select count(*) from queen.runs"),
		NULL, 10);
}

static void
test_empty_database_is_absent(void **state)
{
	struct fix *f = *state;
	struct schema_set v1 = set_of(files_v1, 2, 1, 1);

	assert_int_equal(schema_read_set(f->c, &v1, &f->cell, &f->e), 0);
	assert_int_equal(f->cell.state, SCHEMA_ABSENT);
	/* tables without the row are not ready either */
	pgserver_value(f->side, CELL_SQL);
	assert_int_equal(schema_read_set(f->c, &v1, &f->cell, &f->e), 0);
	assert_int_equal(f->cell.state, SCHEMA_ABSENT);
}

static void
test_equal_number_and_hash_runs_nothing(void **state)
{
	struct fix *f = *state;
	struct schema_set v1 = set_of(files_v1, 2, 1, 1);
	struct schema_cell first;

	assert_int_equal(apply(f, &v1), 0);
	first = f->cell;
	assert_int_equal(first.state, SCHEMA_SAME);
	assert_int_equal(first.major, 1);
	assert_int_equal(first.number, 1);
	assert_true(first.tag > 0 && first.tag < UINT64_C(1) << 48);
	assert_int_equal(runs(f), 1);
	assert_int_equal(apply(f, &v1), 0);
	assert_int_equal(runs(f), 1);
	assert_memory_equal(&first, &f->cell, sizeof first);
}

static void
test_other_hash_or_number_applies_and_keeps_the_identity(void **state)
{
	struct fix *f = *state;
	struct schema_set v1 = set_of(files_v1, 2, 1, 1);
	struct schema_set v2 = set_of(files_v2, 2, 1, 1);
	struct schema_set v3 = set_of(files_v2, 2, 1, 2);
	struct schema_cell first;

	assert_int_equal(apply(f, &v1), 0);
	first = f->cell;
	assert_int_equal(schema_read_set(f->c, &v2, &f->cell, &f->e), 0);
	assert_int_equal(f->cell.state, SCHEMA_OLDER);
	assert_int_equal(apply(f, &v2), 0);
	assert_int_equal(runs(f), 2);
	assert_int_equal(apply(f, &v3), 0);
	assert_int_equal(runs(f), 3);
	assert_int_equal(f->cell.number, 2);
	assert_int_equal(f->cell.tag, first.tag);
	assert_memory_equal(f->cell.hash_key, first.hash_key, 16);
}

static void
test_newer_database_is_left_alone(void **state)
{
	struct fix *f = *state;
	struct schema_set v2 = set_of(files_v2, 2, 1, 2);
	struct schema_set v1 = set_of(files_v1, 2, 1, 1);

	assert_int_equal(apply(f, &v2), 0);
	assert_int_equal(apply(f, &v1), 0);
	assert_int_equal(f->cell.state, SCHEMA_NEWER);
	assert_int_equal(f->cell.number, 2);
	assert_int_equal(runs(f), 1);
}

static void
test_other_major_is_a_matter_of_configuration(void **state)
{
	struct fix *f = *state;
	struct schema_set v1 = set_of(files_v1, 2, 1, 1);
	struct schema_set other = set_of(files_v1, 2, 2, 1);

	assert_int_equal(apply(f, &v1), 0);
	assert_int_equal(apply(f, &other), -1);
	assert_int_equal(f->e.kind, ERR_CONFIG);
	assert_string_equal(
		f->e.text, "database has schema major 1, this program needs 2");
	assert_int_equal(runs(f), 1);
}

static void
test_failed_statement_names_its_file_and_leaves_no_row(void **state)
{
	struct fix *f = *state;
	struct schema_set bad = set_of(files_bad, 3, 1, 1);
	struct schema_set v1 = set_of(files_v1, 2, 1, 1);

	assert_int_equal(apply(f, &bad), -1);
	assert_int_equal(f->e.kind, ERR_DB_DATA);
	assert_string_equal(f->e.text, "030_bad.sql: division by zero");
	/* one statement, one transaction: what came before stays */
	assert_int_equal(runs(f), 1);
	assert_int_equal(schema_read_set(f->c, &v1, &f->cell, &f->e), 0);
	assert_int_equal(f->cell.state, SCHEMA_ABSENT);
	/* the lock is free again */
	assert_int_equal(apply(f, &v1), 0);
}

static void
on_progress(void *arg, const char *file, int done, int total)
{
	struct fix *f = arg;
	static const char *const want[] = { "010_cell.sql", "020_run.sql", "" };

	(void)f;
	assert_int_equal(total, 2);
	assert_string_equal(file, want[done]);
}

static void
test_progress_is_told_per_file(void **state)
{
	struct fix *f = *state;
	struct schema_set v1 = set_of(files_v1, 2, 1, 1);

	assert_int_equal(schema_apply_set(f->c, &v1, 1000, &f->cell,
				 on_progress, f, &f->e),
		0);
}

static void
test_four_processes_at_once_apply_once(void **state)
{
	struct fix *f = *state;
	struct schema_set v1 = set_of(files_v1, 2, 1, 1);
	pid_t pids[4];
	int status;

	for (int i = 0; i < 4; i++) {
		pids[i] = fork();
		assert_true(pids[i] >= 0);
		if (pids[i] > 0)
			continue;
		struct schema_cell cell;
		struct err e;
		char info[320];

		snprintf(info, sizeof info, "%s dbname=%s", server.conninfo,
			f->database);
		PGconn *c = pgconn_open_sync(info, "applier", 10000, &e);

		_exit(c == NULL ||
			schema_apply_set(c, &v1, 20000, &cell, NULL, NULL, &e) <
				0 ||
			cell.state != SCHEMA_SAME);
	}
	for (int i = 0; i < 4; i++) {
		assert_int_equal(waitpid(pids[i], &status, 0), pids[i]);
		assert_int_equal(status, 0);
	}
	assert_int_equal(runs(f), 1);
}

static void
test_apply_waits_for_locks_in_slices_and_names_who_holds_them(void **state)
{
	struct fix *f = *state;
	struct schema_set v1 = set_of(files_v1, 2, 1, 1);
	struct schema_set alter = set_of(files_alter, 2, 1, 2);
	char want[128];
	int64_t start;

	assert_int_equal(apply(f, &v1), 0);
	pgserver_value(f->side, "set application_name = 'holder'");
	pgserver_value(f->side, "begin; lock table queen.items");
	start = clk_mono_ms();
	assert_int_equal(schema_apply_set(f->c, &alter, 2500, &f->cell, NULL,
				 NULL, &f->e),
		-1);
	assert_int_equal(f->e.kind, ERR_DB_RETRY);
	snprintf(want, sizeof want,
		"030_alter.sql blocked by locks of pid %d (holder, idle in "
		"transaction)",
		PQbackendPID(f->side));
	assert_string_equal(f->e.text, want);
	assert_true(clk_mono_ms() - start >= 2000);
	assert_true(clk_mono_ms() - start < 15000);
	/* and goes on when they let go */
	pgserver_value(f->side, "rollback");
	assert_int_equal(apply(f, &alter), 0);
	assert_int_equal(f->cell.number, 2);
}

static void
test_the_holder_of_the_schema_lock_is_named(void **state)
{
	struct fix *f = *state;
	struct schema_set v1 = set_of(files_v1, 2, 1, 1);
	char sql[64], want[96];

	snprintf(sql, sizeof sql, "select pg_advisory_lock(%lld)",
		(long long)SCHEMA_LOCK_KEY);
	pgserver_value(f->side, "set application_name = 'holder'");
	pgserver_value(f->side, sql);
	assert_int_equal(
		schema_apply_set(f->c, &v1, 200, &f->cell, NULL, NULL, &f->e),
		-1);
	assert_int_equal(f->e.kind, ERR_DB_RETRY);
	snprintf(want, sizeof want,
		"schema apply blocked by locks of pid %d (holder, idle)",
		PQbackendPID(f->side));
	assert_string_equal(f->e.text, want);
}

static void
test_other_encodings_are_refused(void **state)
{
	struct fix *f = *state;
	struct schema_set v1 = set_of(files_v1, 2, 1, 1);
	PGconn *c;

	pgserver_value(f->side,
		"create database latin encoding 'LATIN1' template template0");
	c = open_link("latin");
	assert_int_equal(
		schema_apply_set(c, &v1, 200, &f->cell, NULL, NULL, &f->e), -1);
	assert_int_equal(f->e.kind, ERR_CONFIG);
	assert_string_equal(
		f->e.text, "database encoding is LATIN1, UTF8 is needed");
	PQfinish(c);
}

static int
group_setup(void **state)
{
	(void)state;
	pgserver_init(&server);
	return 0;
}

static int
group_teardown(void **state)
{
	(void)state;
	pgserver_fini(&server);
	return 0;
}

#define DB_TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int
main(void)
{
	const struct CMUnitTest tests[] = {
		DB_TEST(test_empty_database_is_absent),
		DB_TEST(test_equal_number_and_hash_runs_nothing),
		DB_TEST(test_other_hash_or_number_applies_and_keeps_the_identity),
		DB_TEST(test_newer_database_is_left_alone),
		DB_TEST(test_other_major_is_a_matter_of_configuration),
		DB_TEST(test_failed_statement_names_its_file_and_leaves_no_row),
		DB_TEST(test_progress_is_told_per_file),
		DB_TEST(test_four_processes_at_once_apply_once),
		DB_TEST(test_apply_waits_for_locks_in_slices_and_names_who_holds_them),
		DB_TEST(test_the_holder_of_the_schema_lock_is_named),
		DB_TEST(test_other_encodings_are_refused),
	};

	return cmocka_run_group_tests_name(
		"schema", tests, group_setup, group_teardown);
}

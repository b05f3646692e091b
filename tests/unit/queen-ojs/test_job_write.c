/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of queen.job_out as answers: the whole job, and each refusal. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <arpa/inet.h>
#include <cmocka.h>
#include <endian.h>

#include "arena.h"
#include "buf.h"
#include "job.h"
#include "job_int.h"
#include "jwrite.h"

#define ID "019a0f10-6b20-7a01-8f3e-5d1c2b3a4950"
/* 2026-03-01T09:00:00.031Z, and microseconds between 1970 and 2000 */
#define AT INT64_C(1772355600031999)
#define EPOCH INT64_C(946684800000000)

enum { COLUMNS = JOB_OUT_UNIQUE_KEY + 1 };

static struct arena arena;
static PGresult *res;

static int
teardown(void **state)
{
	(void)state;
	PQclear(res);
	arena_fini(&arena);
	return 0;
}

static void
put(int col, const void *p, size_t n)
{
	assert_int_equal(
		PQsetvalue(res, 0, col, (char *)(uintptr_t)p, (int)n), 1);
}

static void
put_i16(int col, int v)
{
	uint16_t x = htons((uint16_t)v);

	put(col, &x, sizeof(x));
}

static void
put_i32(int col, int v)
{
	uint32_t x = htonl((uint32_t)v);

	put(col, &x, sizeof(x));
}

static void
put_i64(int col, int64_t v)
{
	uint64_t x = htobe64((uint64_t)v);

	put(col, &x, sizeof(x));
}

static void
put_at(int col, int64_t at_us)
{
	put_i64(col, at_us - EPOCH);
}

static void
put_text(int col, const char *s)
{
	put(col, s, strlen(s));
}

static void
put_id(int col)
{
	struct qid id;

	assert_true(qid_parse(SPAN_LIT(ID), &id));
	put(col, &id, sizeof(id));
}

/* An available job, all that may be null null. */
static void
row(int verdict, int state)
{
	static char name[] = "c";
	PGresAttDesc d[COLUMNS];

	PQclear(res);
	res = PQmakeEmptyPGresult(NULL, PGRES_TUPLES_OK);
	memset(d, 0, sizeof(d));
	for (int i = 0; i < COLUMNS; i++)
		d[i] = (PGresAttDesc){ .name = name, .format = 1 };
	assert_int_equal(PQsetResultAttrs(res, COLUMNS, d), 1);
	for (int i = 0; i < COLUMNS; i++)
		assert_int_equal(PQsetvalue(res, 0, i, NULL, -1), 1);
	put_i16(JOB_OUT_VERDICT, verdict);
	put_i32(JOB_OUT_IDX, 1);
	put_i64(JOB_OUT_QUEUE_ID, 7);
	put_i64(JOB_OUT_SEQ, 8);
	put_i16(JOB_OUT_RANK, -5);
	put_id(JOB_OUT_ID);
	put_text(JOB_OUT_TYPE, "a.b");
	put_text(JOB_OUT_QUEUE, "q");
	put_i16(JOB_OUT_STATE, state);
	put_text(JOB_OUT_DOC, "\"args\":[ 1.0],\"meta\":{}");
	put_i32(JOB_OUT_ATTEMPT, 0);
	put_i32(JOB_OUT_MAX_ATTEMPTS, 3);
	put_at(JOB_OUT_CREATED_AT, AT);
	put_at(JOB_OUT_ENQUEUED_AT, AT);
}

static void
written(struct span extra, const char *want)
{
	struct buf b = BUF_ZERO;
	struct jwrite w;

	jwrite_init(&w, &b);
	job_write(&w, res, 0, extra);
	assert_string_equal(arena_cstr(&arena, buf_span(&b)), want);
	buf_fini(&b);
}

#define HEAD(state)                                                            \
	"{\"specversion\":\"1.0\",\"id\":\"" ID "\",\"type\":\"a.b\","         \
	"\"queue\":\"q\",\"state\":\"" state                                   \
	"\",\"args\":[ 1.0],\"meta\":{},\"priority\":5,"
#define MADE                                                                   \
	"\"created_at\":\"2026-03-01T09:00:00.031Z\","                         \
	"\"enqueued_at\":\"2026-03-01T09:00:00.031Z\""

static void
what_is_not_there_is_left_out(void **state)
{
	(void)state;
	row(JOB_OK, JOB_AVAILABLE);
	/* of a lease that is over nothing is shown */
	put_text(JOB_OUT_WORKER, "w");
	put_at(JOB_OUT_LEASE_UNTIL, AT);
	written((struct span)SPAN_ZERO,
		HEAD("available") "\"attempt\":0,\"max_attempts\":3," MADE "}");
	written(SPAN_LIT("\"deduplicated\":true"),
		HEAD("available") "\"attempt\":0,\"max_attempts\":3," MADE
				  ",\"deduplicated\":true}");
}

static void
a_job_with_everything(void **state)
{
	(void)state;
	row(JOB_OK, JOB_ACTIVE);
	for (int c = JOB_OUT_STARTED_AT; c <= JOB_OUT_NEXT_ATTEMPT_AT; c++)
		put_at(c, AT + (c - JOB_OUT_STARTED_AT + 1) * 1000000);
	put_i32(JOB_OUT_ATTEMPT, 2);
	put_i64(JOB_OUT_RETRY_DELAY_MS, 2310);
	put_text(JOB_OUT_ERROR, "{\"code\":\"x\"}");
	put_text(JOB_OUT_ERRORS, "[{\"code\":\"x\"}]");
	put_text(JOB_OUT_RESULT, "null");
	put_text(JOB_OUT_WORKER, "w\"1");
	put_at(JOB_OUT_LEASE_UNTIL, AT + 60000000);
	put_text(JOB_OUT_PARENTS, "[1]");
	put_id(JOB_OUT_WORKFLOW_ID);
	written((struct span)SPAN_ZERO,
		HEAD("active") "\"attempt\":2,\"max_attempts\":3," MADE
			       ",\"started_at\":\"2026-03-01T09:00:01.031Z\","
			       "\"completed_at\":\"2026-03-01T09:00:02.031Z\","
			       "\"cancelled_at\":\"2026-03-01T09:00:03.031Z\","
			       "\"discarded_at\":\"2026-03-01T09:00:04.031Z\","
			       "\"next_attempt_at\":\"2026-03-01T09:00:05.031Z\","
			       "\"retry_delay_ms\":2310,\"error\":{\"code\":\"x\"},"
			       "\"errors\":[{\"code\":\"x\"}],\"result\":null,"
			       "\"worker_id\":\"w\\\"1\","
			       "\"lease_expires_at\":\"2026-03-01T09:01:00.031Z\","
			       "\"parent_results\":[1],\"workflow_id\":\"" ID
			       "\"}");
}

static void
a_cancelled_job_tells_what_it_was(void **state)
{
	(void)state;
	row(JOB_OK, JOB_CANCELLED);
	put_i16(JOB_OUT_PREVIOUS_STATE, JOB_RETRYABLE);
	written((struct span)SPAN_ZERO,
		HEAD("cancelled") "\"attempt\":0,\"max_attempts\":3," MADE
				  ",\"previous_state\":\"retryable\"}");
}

static void
states_have_their_names(void **state)
{
	static const char *const names[] = { "available", "active", "scheduled",
		"retryable", "pending", "completed", "cancelled", "discarded" };

	(void)state;
	for (int i = 0; i < 8; i++)
		assert_string_equal(job_state_name(i), names[i]);
	assert_string_equal(job_state_name(-1), "unknown");
	assert_string_equal(job_state_name(JOB_STATES), "unknown");
}

static void
refused(int status, const char *code, const char *message, const char *details)
{
	struct problem p;

	job_problem(&arena, res, 0, "active", &p);
	assert_int_equal(p.status, status);
	assert_string_equal(p.code, code);
	assert_string_equal(p.message, message);
	assert_string_equal(arena_cstr(&arena, p.details), details);
	assert_int_equal(p.retry_after_s, status == 429);
}

static void
each_verdict_has_its_error(void **state)
{
	(void)state;
	row(JOB_MISSING, JOB_AVAILABLE);
	refused(404, "not_found", "There is no such job.",
		"\"resource\":\"job\"");
	row(JOB_CONFLICT, JOB_COMPLETED);
	put_i32(JOB_OUT_ATTEMPT, 2);
	put_text(JOB_OUT_WORKER, "w");
	refused(409, "conflict", "Job is completed, not active.",
		"\"job_id\":\"" ID "\",\"current_state\":\"completed\","
		"\"expected_state\":\"active\",\"attempt\":2,"
		"\"worker_id\":\"w\"");
	row(JOB_WORKER, JOB_ACTIVE);
	refused(409, "conflict", "Another worker holds the job.",
		"\"job_id\":\"" ID "\",\"current_state\":\"active\","
		"\"expected_state\":\"active\",\"attempt\":0");
	row(JOB_ATTEMPT, JOB_ACTIVE);
	refused(409, "conflict", "Attempt 0 of the job runs, not this one.",
		"\"job_id\":\"" ID "\",\"current_state\":\"active\","
		"\"expected_state\":\"active\",\"attempt\":0");
	row(JOB_TAKEN, JOB_AVAILABLE);
	refused(409, "duplicate", "The id is used already.",
		"\"existing_job_id\":\"" ID "\"");
	row(JOB_UNIQUE, JOB_AVAILABLE);
	put_text(JOB_OUT_UNIQUE_KEY, "abc");
	refused(409, "duplicate", "A job with the same unique key exists.",
		"\"existing_job_id\":\"" ID "\",\"unique_key\":\"abc\"");
	row(JOB_FULL, JOB_AVAILABLE);
	refused(429, "queue_full", "The queue holds as many jobs as it may.",
		"\"queue\":\"q\"");
}

static void
a_state_alone_can_forbid(void **state)
{
	struct problem p;

	(void)state;
	row(JOB_CONFLICT, JOB_CANCELLED);
	job_problem(&arena, res, 0, NULL, &p);
	assert_string_equal(p.message, "Job is cancelled.");
	assert_string_equal(arena_cstr(&arena, p.details),
		"\"job_id\":\"" ID "\",\"current_state\":\"cancelled\","
		"\"attempt\":0");
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_is_not_there_is_left_out),
		cmocka_unit_test(a_job_with_everything),
		cmocka_unit_test(a_cancelled_job_tells_what_it_was),
		cmocka_unit_test(states_have_their_names),
		cmocka_unit_test(each_verdict_has_its_error),
		cmocka_unit_test(a_state_alone_can_forbid),
	};

	return cmocka_run_group_tests(tests, NULL, teardown);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* What /metrics says of sinks, queues that run, and queues that did. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "buf.h"
#include "clk.h"
#include "metrics.h"
#include "s3_int.h"
#include "stamp.h"

#define TENANT "00000000-0000-0000-0000-0000000000aa"

static struct metrics_tenant own, other;
static struct buf page;

static int
setup(void **state)
{
	(void)state;
	metrics_tenant_init(&own, span_make(NULL, 0));
	metrics_tenant_init(&other, SPAN_LIT(TENANT));
	return 0;
}

static int
teardown(void **state)
{
	(void)state;
	metrics_tenant_fini(&own);
	metrics_tenant_fini(&other);
	buf_fini(&page);
	return 0;
}

static void
write_page(const struct metrics_sink *s, size_t n)
{
	const struct metrics_node node = { .buffer_bytes = 4711,
		.cell_up = true,
		.started_ms = clk_mono_ms() - 5000 };

	buf_reset(&page);
	metrics_write(&page, s, n, &node);
	buf_putc(&page, '\0');
}

/* Lines that begin so. */
static int
lines(const char *start)
{
	int n = 0;

	for (const char *p = page.p; p; p = strchr(p, '\n')) {
		p += *p == '\n';
		n += strncmp(p, start, strlen(start)) == 0;
	}
	return n;
}

static void
assert_line(const char *line)
{
	if (lines(line) != 1)
		print_error("not once: %s\n%s", line, page.p);
	assert_int_equal(lines(line), 1);
}

static struct queue_status
queue(const char *name, bool owned)
{
	return (struct queue_status){ .name = span_of(name),
		.owned = owned,
		.k = 9,
		.lag_us = 2500000,
		.safe_us = clk_wall_us() - 3000000,
		.discovered = 7,
		.checkpoint_k = 4,
		.counts = { .windows = 1,
			.records = 10,
			.bytes = 100,
			.lost = 2,
			.given_back = 3,
			.fetch_ok = 5,
			.fetch_error = 6,
			.precondition_lost = 8 } };
}

static void
every_family_is_there_without_a_sink(void **state)
{
	(void)state;
	write_page(NULL, 0);
	assert_int_equal(lines("# HELP queen_"), 18);
	assert_int_equal(lines("# TYPE queen_"), 18);
	assert_line("queen_s3_buffer_bytes 4711\n");
	assert_line("queen_s3_cell_up 1\n");
	assert_line("queen_process_uptime_seconds 5\n");
	/* nothing runs: nobody knows a safeTime */
	assert_int_equal(lines("queen_s3_safe_lag_seconds"), 0);
	assert_int_equal(lines("queen_s3_"), 2);
}

static void
tenants_come_first_and_families_once(void **state)
{
	struct queue_status q[] = { queue("a\"\\\n", true), queue("b", false) };
	const struct metrics_sink s[] = {
		{ .tenant = &own, .queues = q, .queues_n = 2 },
		{ .tenant = &other,
			.queues = q,
			.queues_n = 1,
			.format = S3_PARQUET },
	};

	(void)state;
	q[0].lag_us = -1;
	write_page(s, 2);
	assert_int_equal(lines("# HELP queen_"), 18);
	/* gauges of what runs here, and is known */
	assert_int_equal(lines("queen_s3_lag_seconds"), 0);
	q[0].lag_us = 2500000;
	write_page(s, 2);
	assert_int_equal(lines("queen_s3_lag_seconds"), 2);
	assert_line("queen_s3_lag_seconds{queue=\"a\\\"\\\\\\n\"} 2.5\n");
	assert_line("queen_s3_lag_seconds{tenant=\"" TENANT
		    "\",queue=\"a\\\"\\\\\\n\"} 2.5\n");
	assert_line(
		"queen_s3_discovery_partitions{queue=\"a\\\"\\\\\\n\"} 7\n");
	assert_int_equal(lines("queen_s3_checkpoint_age_windows{"), 2);
	assert_int_equal(lines("queen_s3_safe_lag_seconds 3"), 1);
	/* counters of both */
	assert_line("queen_s3_windows_committed_total{queue=\"b\"} 1\n");
	assert_line(
		"queen_s3_bytes_written_total{queue=\"b\",format=\"jsonl\"} "
		"100\n");
	assert_line("queen_s3_bytes_written_total{tenant=\"" TENANT
		    "\",queue=\"a\\\"\\\\\\n\",format=\"parquet\"} 100\n");
	assert_line(
		"queen_s3_fetch_calls_total{queue=\"b\",result=\"ok\"} 5\n");
	assert_line(
		"queen_s3_fetch_calls_total{queue=\"b\",result=\"error\"} 6\n");
	/* and the sums of each sink */
	assert_line("queen_s3_commit_precondition_lost_total 16\n");
	assert_line("queen_s3_queues_given_back_total 6\n");
	assert_line(
		"queen_s3_queues_given_back_total{tenant=\"" TENANT "\"} 3\n");
}

static void
counters_outlive_their_queue(void **state)
{
	struct queue_status q = queue("q", true);
	struct metrics_sink s = { .tenant = &own, .queues = &q, .queues_n = 1 };

	(void)state;
	metrics_keep(&own, SPAN_LIT("q"), &q.counts);
	metrics_keep(&own, SPAN_LIT("q"), &q.counts);
	metrics_keep(&own, SPAN_LIT("gone"), &q.counts);
	/* one of the name runs again */
	write_page(&s, 1);
	assert_line("queen_s3_records_written_total{queue=\"q\"} 30\n");
	assert_line("queen_s3_records_written_total{queue=\"gone\"} 10\n");
	assert_line("queen_s3_records_lost_total{queue=\"q\"} 6\n");
	assert_line("queen_s3_commit_precondition_lost_total 32\n");
	assert_int_equal(lines("queen_s3_lag_seconds{queue="), 1);
	/* the sink does not run; what it asked the bucket stays, too */
	s3_counts_add(own.requests, S3_OP_PUT, 503);
	s3_counts_add(own.requests, S3_OP_PUT, 0);
	s3_counts_add(own.requests, S3_OP_PUT, 503);
	s.queues_n = 0;
	write_page(&s, 1);
	assert_line("queen_s3_records_written_total{queue=\"q\"} 20\n");
	assert_line("queen_s3_queues_given_back_total 9\n");
	assert_line("queen_s3_s3_requests_total{op=\"put\",code=\"0\"} 1\n"
		    "queen_s3_s3_requests_total{op=\"put\",code=\"503\"} 2\n");
	assert_int_equal(lines("queen_s3_lag_seconds{queue="), 0);
	assert_int_equal(lines("queen_s3_safe_lag_seconds"), 0);
}

static void
windows_are_counted_by_size(void **state)
{
	const struct metrics_sink s = { .tenant = &own };

	(void)state;
	metrics_window(&own, 0, 0);
	metrics_window(&own, 10, 1 << 20);
	metrics_window(&own, 11, (1 << 20) + 1);
	metrics_window(&own, 10000001, INT64_C(1025) << 20);
	write_page(&s, 1);
	assert_line("queen_s3_window_records_bucket{le=\"1\"} 1\n");
	assert_line("queen_s3_window_records_bucket{le=\"10\"} 2\n");
	assert_line("queen_s3_window_records_bucket{le=\"100\"} 3\n");
	assert_line("queen_s3_window_records_bucket{le=\"10000000\"} 3\n");
	assert_line("queen_s3_window_records_bucket{le=\"+Inf\"} 4\n");
	assert_line("queen_s3_window_records_sum 10000022\n");
	assert_line("queen_s3_window_records_count 4\n");
	assert_line("queen_s3_window_bytes_bucket{le=\"1048576\"} 2\n");
	assert_line("queen_s3_window_bytes_bucket{le=\"4194304\"} 3\n");
	assert_line("queen_s3_window_bytes_bucket{le=\"1073741824\"} 3\n");
	assert_line("queen_s3_window_bytes_bucket{le=\"+Inf\"} 4\n");
	assert_line("queen_s3_window_bytes_count 4\n");
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(
			every_family_is_there_without_a_sink, setup, teardown),
		cmocka_unit_test_setup_teardown(
			tenants_come_first_and_families_once, setup, teardown),
		cmocka_unit_test_setup_teardown(
			counters_outlive_their_queue, setup, teardown),
		cmocka_unit_test_setup_teardown(
			windows_are_counted_by_size, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "log.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "clk.h"
#include "jspan.h"

/* stderr of one log_line call. */
static char out[8192];

static int
capture_begin(int pipe_fd[2])
{
	int saved = dup(STDERR_FILENO);

	assert_int_equal(pipe(pipe_fd), 0);
	dup2(pipe_fd[1], STDERR_FILENO);
	close(pipe_fd[1]);
	return saved;
}

static void
capture_end(int pipe_fd[2], int saved)
{
	ssize_t n;

	dup2(saved, STDERR_FILENO);
	close(saved);
	n = read(pipe_fd[0], out, sizeof(out) - 1);
	close(pipe_fd[0]);
	out[n > 0 ? n : 0] = '\0';
}

#define CAPTURE(call)                                                          \
	do {                                                                   \
		int fds[2], saved = capture_begin(fds);                        \
		call;                                                          \
		capture_end(fds, saved);                                       \
	} while (0)

static void
a_line_is_time_level_target_message_pairs(void **state)
{
	int64_t at;

	(void)state;
	log_init("info", false);
	CAPTURE(log_line(LOG_INFO, "retention", "swept", "queues=%d q=%s", 12,
		log_quote("a b")));
	assert_true(clk_parse_iso(span_make(out, 27), &at));
	assert_string_equal(
		out + 27, "  INFO retention  swept queues=12 q=\"a b\"\n");
	CAPTURE(log_line(LOG_ERROR, "boot", "FATAL: no", NULL));
	assert_string_equal(out + 27, " ERROR boot  FATAL: no\n");
}

static void
a_value_cannot_open_a_second_line(void **state)
{
	(void)state;
	log_init(NULL, false);
	CAPTURE(log_line(LOG_WARN, "pool", "x", "why=%s", "a\nb\x1b[31m"));
	assert_string_equal(out + 27, "  WARN pool  x why=a b [31m\n");
	CAPTURE(log_line(
		LOG_WARN, "pool", "x", "why=%s", log_quote("a\n\"b\\")));
	assert_string_equal(
		out + 27, "  WARN pool  x why=\"a\\u000a\\\"b\\\\\"\n");
}

static void
the_filter_is_per_target(void **state)
{
	(void)state;
	log_init("warn,push=debug,pop=error", false);
	assert_true(log_on(LOG_WARN, "ack"));
	assert_false(log_on(LOG_INFO, "ack"));
	assert_true(log_on(LOG_DEBUG, "push"));
	assert_false(log_on(LOG_TRACE, "push"));
	assert_false(log_on(LOG_WARN, "pop"));
	CAPTURE(log_line(LOG_INFO, "ack", "hidden", NULL));
	assert_string_equal(out, "");
}

static void
an_unparsable_filter_means_info(void **state)
{
	static const char *const rows[] = { "loud", "info,push=loud", "=info",
		"push=", "warn,=",
		"a=info,b=info,c=info,d=info,e=info,f=info,"
		"g=info,h=info,i=info,j=info,k=info,l=info,m=info,n=info,"
		"o=info,p=info,q=debug" };

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		log_init(rows[i], false);
		assert_true(log_on(LOG_INFO, "push"));
		assert_false(log_on(LOG_DEBUG, "push"));
	}
}

static void
json_has_the_same_fields(void **state)
{
	const char *what;
	size_t at;

	(void)state;
	log_init("info", true);
	CAPTURE(log_line(LOG_WARN, "pool", "say \"hi\"",
		"n=3 f=0.25 s=abc q=%s ok=true v=00 ip=1.2.3.4 last=",
		log_quote("x\ty")));
	assert_true(jspan_valid(span_of(out), &what, &at));
	assert_string_equal(strstr(out, ",\"level\""),
		",\"level\":\"WARN\",\"target\":\"pool\",\"message\":"
		"\"say \\\"hi\\\"\",\"n\":3,\"f\":0.25,\"s\":\"abc\","
		"\"q\":\"x\\u0009y\",\"ok\":true,\"v\":\"00\","
		"\"ip\":\"1.2.3.4\",\"last\":\"\"}\n");
	log_init("info", false);
}

static void
errno_survives(void **state)
{
	(void)state;
	log_init("info", false);
	errno = EXDEV;
	CAPTURE(log_line(LOG_INFO, "boot", "x", NULL));
	errno = EXDEV;
	log_line(LOG_DEBUG, "boot", "x", NULL);
	assert_int_equal(errno, EXDEV);
}

static void
a_huge_value_is_cut_to_one_line(void **state)
{
	static char big[9000];

	(void)state;
	memset(big, 'y', sizeof(big) - 1);
	log_init("info", false);
	CAPTURE(log_line(LOG_INFO, "boot", "x", "v=%s", big));
	assert_in_range(strlen(out), 3000, 4096);
	assert_ptr_equal(strchr(out, '\n'), out + strlen(out) - 1);
}

static void
a_sampler_counts_what_it_swallows(void **state)
{
	struct log_sampler s = { .every_ms = 1000 };
	uint64_t n = 99;

	(void)state;
	assert_true(log_sample(&s, 5000, &n));
	assert_int_equal(n, 0);
	assert_false(log_sample(&s, 5001, &n));
	assert_false(log_sample(&s, 5999, &n));
	assert_true(log_sample(&s, 6000, &n));
	assert_int_equal(n, 2);
}

static void
journal_lines_have_a_priority_and_no_time(void **state)
{
	char id[64];
	struct stat st;

	(void)state;
	assert_int_equal(fstat(STDERR_FILENO, &st), 0);
	snprintf(id, sizeof(id), "%llu:%llu", (unsigned long long)st.st_dev,
		(unsigned long long)st.st_ino);
	setenv("JOURNAL_STREAM", id, 1);
	log_init("info", false);
	CAPTURE(log_line(LOG_WARN, "pool", "x", "a=1"));
	assert_string_equal(out, "<4>WARN pool  x a=1\n");
	setenv("JOURNAL_STREAM", "1:1", 1);
	log_init("info", false);
	CAPTURE(log_line(LOG_WARN, "pool", "x", "a=1"));
	assert_int_equal(out[0], '2');
	unsetenv("JOURNAL_STREAM");
	log_init("info", false);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_line_is_time_level_target_message_pairs),
		cmocka_unit_test(a_value_cannot_open_a_second_line),
		cmocka_unit_test(the_filter_is_per_target),
		cmocka_unit_test(an_unparsable_filter_means_info),
		cmocka_unit_test(json_has_the_same_fields),
		cmocka_unit_test(errno_survives),
		cmocka_unit_test(a_huge_value_is_cut_to_one_line),
		cmocka_unit_test(a_sampler_counts_what_it_swallows),
		cmocka_unit_test(journal_lines_have_a_priority_and_no_time),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

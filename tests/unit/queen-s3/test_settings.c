/* SPDX-License-Identifier: Apache-2.0 */
/* The environment: defaults, ranges, names of the node, what is printed. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "buf.h"
#include "err.h"
#include "settings.h"

static struct settings s;
static struct err e;
static char host[65];

/* Not all of the environment: cmocka has its own there. */
static void
clear(void)
{
	char file[128];

	for (size_t k = 0; k < conf_items_n; k++) {
		snprintf(file, sizeof(file), "%s_FILE", conf_items[k].name);
		unsetenv(conf_items[k].name);
		unsetenv(file);
	}
}

/* The smallest configuration, then name, value, ..., NULL. */
static int
load(const char *const *pairs)
{
	static const char *const smallest[] = { "QUEEN_S3_QUEUES", "orders",
		"QUEEN_S3_ENDPOINT", "https://s3.example.com",
		"QUEEN_S3_REGION", "us-east-1", "QUEEN_S3_BUCKET", "my-lake",
		"QUEEN_S3_ACCESS_KEY", "AKIAEXAMPLE", "QUEEN_S3_SECRET_KEY",
		"s3cr3t", NULL };

	clear();
	for (const char *const *p = smallest; *p; p += 2)
		setenv(p[0], p[1], 1);
	for (; *pairs; pairs += 2)
		setenv(pairs[0], pairs[1], 1);
	e = (struct err)ERR_ZERO;
	return settings_load(&s, &e);
}

#define LOAD(...) load((const char *const[]){ __VA_ARGS__, NULL })

static void
refused(const char *name, const char *value, const char *text)
{
	assert_int_equal(LOAD(name, value), -1);
	assert_int_equal(e.kind, ERR_CONFIG);
	assert_string_equal(e.text, text);
}

static char *
printed(void)
{
	static char text[8192];
	FILE *f = fmemopen(text, sizeof(text), "w");

	conf_print(conf_items, conf_items_n, &s, f);
	fclose(f);
	return text;
}

static void
the_smallest_has_every_default(void **state)
{
	(void)state;
	assert_int_equal(load((const char *const[]){ NULL }), 0);
	assert_true(s.has_sink);
	assert_string_equal(s.sink.bucket, "my-lake");
	assert_int_equal(s.memory_mb, 1024);
	assert_int_equal(s.fetch_concurrency, 4);
	assert_int_equal(s.discovery_interval_ms, 2000);
	assert_int_equal(s.safe_guard_ms, 5000);
	assert_int_equal(s.lease_ttl_ms, 30000);
	assert_int_equal(s.multipart_threshold_mb, 64);
	assert_int_equal(s.checkpoint_every, 20);
	assert_int_equal(s.threads, 1);
	assert_int_equal(s.shutdown_grace_ms, 30000);
	assert_int_equal(s.time_guard_ms, 5000);
	assert_int_equal(s.safe_floor_ms, 30000);
	assert_int_equal(s.crash_at, CRASH_NEVER);
	assert_string_equal(s.instance, host);
	assert_false(s.instance_generated);
	assert_string_equal(s.listen, "127.0.0.1:9333");
	assert_null(s.ca_file);
	assert_false(s.log_json);
	settings_fini(&s);
}

static void
without_a_sink(void **state)
{
	(void)state;
	clear();
	assert_int_equal(settings_load(&s, &e), 0);
	assert_false(s.has_sink);
	settings_fini(&s);
}

static const struct {
	const char *name, *lo, *hi;
} ranges[] = {
	{ "QUEEN_S3_MEMORY_MB", "1", "1048576" },
	{ "QUEEN_S3_FETCH_CONCURRENCY", "1", "256" },
	{ "QUEEN_S3_DISCOVERY_INTERVAL_MS", "10", "3600000" },
	{ "QUEEN_S3_SAFE_GUARD_MS", "0", "3600000" },
	{ "QUEEN_S3_LEASE_TTL_MS", "1000", "3600000" },
	{ "QUEEN_S3_MULTIPART_THRESHOLD_MB", "5", "5120" },
	{ "QUEEN_S3_CHECKPOINT_EVERY", "1", "100000" },
	{ "QUEEN_S3_THREADS", "1", "64" },
	{ "QUEEN_S3_SHUTDOWN_GRACE_MS", "100", "3600000" },
};

static void
ranges_of_the_node(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(ranges) / sizeof(ranges[0]); i++) {
		char over[32], range[64];
		long long lo = atoll(ranges[i].lo), hi = atoll(ranges[i].hi);

		assert_int_equal(LOAD(ranges[i].name, ranges[i].lo), 0);
		settings_fini(&s);
		assert_int_equal(LOAD(ranges[i].name, ranges[i].hi), 0);
		settings_fini(&s);
		snprintf(range, sizeof(range),
			" is outside %lld..=%lld. It is ", lo, hi);
		snprintf(over, sizeof(over), "%lld", hi + 1);
		assert_int_equal(LOAD(ranges[i].name, over), -1);
		assert_non_null(strstr(e.text, range));
		assert_non_null(strstr(e.text, ranges[i].name));
		snprintf(over, sizeof(over), "%lld", lo - 1);
		assert_int_equal(LOAD(ranges[i].name, over), -1);
		assert_non_null(strstr(e.text, range));
	}
	refused("QUEEN_S3_MEMORY_MB", "1GiB",
		"QUEEN_S3_MEMORY_MB=1GiB is not a whole number. It is the "
		"memory for records of all open windows, in MiB, in "
		"1..=1048576");
	refused("QUEEN_S3_LEASE_TTL_MS", "999",
		"QUEEN_S3_LEASE_TTL_MS=999 is outside 1000..=3600000. It is "
		"how long a dead node keeps its queues, in ms");
}

static void
refusals_of_the_tool(void **state)
{
	(void)state;
	refused("QUEEN_S3_CRASH_AT", "sometimes",
		"QUEEN_S3_CRASH_AT=sometimes is not one of never (off, none), "
		"after_intent, mid_upload, after_upload, before_commit, "
		"after_commit. It is where the process aborts, for tests");
	refused("QUEEN_S3_LISTEN", "9333",
		"QUEEN_S3_LISTEN=9333 is not host:port with a port of 1 to "
		"65535. It is where health and metrics are served, as "
		"127.0.0.1:9333");
	refused("QUEEN_S3_FORMAT", "csv",
		"QUEEN_S3_FORMAT=csv is not one of jsonl (json, ndjson), "
		"parquet. It is the format of the objects");
	refused("QUEEN_S3_INSTANCE", "a\nb",
		"QUEEN_S3_INSTANCE holds a control character");
	refused("QUEEN_SERVER_ID", "a\xff", "QUEEN_SERVER_ID is no text");
}

static void
crash_points_have_names(void **state)
{
	static const struct {
		const char *word;
		enum settings_crash at;
	} cases[] = { { "never", CRASH_NEVER }, { "OFF", CRASH_NEVER },
		{ "none", CRASH_NEVER }, { " ", CRASH_NEVER },
		{ "after_intent", CRASH_AFTER_INTENT },
		{ "Mid_Upload", CRASH_MID_UPLOAD },
		{ "after_upload", CRASH_AFTER_UPLOAD },
		{ "before_commit", CRASH_BEFORE_COMMIT },
		{ "after_commit", CRASH_AFTER_COMMIT } };
	(void)state;

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		assert_int_equal(LOAD("QUEEN_S3_CRASH_AT", cases[i].word), 0);
		assert_int_equal(s.crash_at, cases[i].at);
		settings_fini(&s);
	}
}

static void
the_process_ends_at_its_crash_point_alone(void **state)
{
	struct settings armed = { .crash_at = CRASH_AFTER_UPLOAD };
	int status;
	pid_t pid;
	(void)state;

	settings_crash(&armed, CRASH_AFTER_INTENT);
	settings_crash(&armed, CRASH_NEVER);
	armed.crash_at = CRASH_NEVER;
	settings_crash(&armed, CRASH_NEVER);
	pid = fork();
	if (pid == 0) {
		const struct rlimit none = { 0, 0 };

		setrlimit(RLIMIT_CORE, &none);
		close(STDERR_FILENO);
		armed.crash_at = CRASH_AFTER_UPLOAD;
		settings_crash(&armed, CRASH_AFTER_UPLOAD);
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFSIGNALED(status));
	assert_int_equal(WTERMSIG(status), SIGABRT);
}

static void
named(const char *given, const char *id, const char *of, const char *want)
{
	bool generated;
	char *name = settings_instance(given, id, of, &generated);

	assert_string_equal(name, want);
	assert_false(generated);
	free(name);
}

static void
names_of_an_instance(void **state)
{
	bool generated;
	char *name, *other;
	(void)state;

	named("lake", "queen-1", "web", "lake/web");
	named("lake/web", NULL, "web", "lake/web");
	named("web", NULL, "web", "web");
	named("myweb", NULL, "web", "myweb/web");
	named("lake", NULL, NULL, "lake");
	named(NULL, "queen-1", "web", "queen-1");
	named("", "", "web", "web");
	name = settings_instance(NULL, NULL, "", &generated);
	assert_true(generated);
	assert_int_equal(strlen(name), 3 + 16);
	assert_memory_equal(name, "s3-", 3);
	other = settings_instance(NULL, NULL, NULL, &generated);
	assert_string_not_equal(name, other);
	free(name);
	free(other);
	/* a blank one is none */
	assert_int_equal(
		LOAD("QUEEN_S3_INSTANCE", "  ", "QUEEN_SERVER_ID", " q-7 "), 0);
	assert_string_equal(s.instance, "q-7");
	settings_fini(&s);
}

static void
what_is_printed_is_in_force_and_holds_no_secret(void **state)
{
	char *text;
	(void)state;

	assert_int_equal(
		LOAD("QUEEN_S3_FORMAT", " NDJSON", "QUEEN_S3_LAYOUT",
			"perpartition", "QUEEN_S3_SSE", "aws:kms",
			"QUEEN_S3_SSE_KMS_KEY_ID", "1234-deadbeef",
			"QUEEN_S3_PREFIX", "/lake/", "QUEEN_S3_COMPRESSION",
			" ", "QUEEN_S3_LOG_FORMAT", "JSON"),
		0);
	assert_true(s.log_json);
	text = printed();
	assert_non_null(strstr(text, "QUEEN_S3_FORMAT=jsonl\n"));
	assert_non_null(strstr(text, "QUEEN_S3_LAYOUT=per-partition\n"));
	assert_non_null(strstr(text, "QUEEN_S3_COMPRESSION=zstd\n"));
	assert_non_null(strstr(text, "QUEEN_S3_PREFIX=lake\n"));
	assert_non_null(strstr(text, "QUEEN_S3_SECRET_KEY=<set:6 chars>\n"));
	assert_non_null(strstr(text, "QUEEN_S3_SSE_KMS_KEY_ID=\xe2\x80\xa6"
				     "beef\n"));
	assert_non_null(strstr(text, "QUEEN_S3_ACCESS_KEY=\xe2\x80\xa6MPLE\n"));
	assert_null(strstr(text, "s3cr3t"));
	assert_null(strstr(text, "dead"));
	/* what was hidden for the eye is whole where it is used */
	assert_string_equal(s.sink.kms_key_id, "1234-deadbeef");
	assert_string_equal(s.sink.access_key, "AKIAEXAMPLE");
	settings_fini(&s);
}

static void
the_secret_may_be_in_a_file(void **state)
{
	char path[] = "/tmp/test_settings.XXXXXX";
	int fd = mkstemp(path);
	(void)state;

	assert_int_equal(write(fd, "from a file\n", 12), 12);
	close(fd);
	assert_int_equal(LOAD("QUEEN_S3_SECRET_KEY", "",
				 "QUEEN_S3_SECRET_KEY_FILE", path),
		0);
	assert_string_equal(s.sink.secret_key, "from a file");
	settings_fini(&s);
	unlink(path);
	refused("QUEEN_S3_SECRET_KEY_FILE", "/nowhere",
		"QUEEN_S3_SECRET_KEY and QUEEN_S3_SECRET_KEY_FILE are both set");
}

static void
secrets_are_wiped_where_they_are_not_needed(void **state)
{
	(void)state;
	assert_int_equal(
		LOAD("QUEEN_ENCRYPTION_KEY", "abab", "PG_PASSWORD", "s3cr3t"),
		0);
	settings_wipe(&s);
	assert_string_equal(s.encryption_key, "");
	assert_string_equal(s.text.secret_key, "");
	assert_string_equal(getenv("QUEEN_S3_SECRET_KEY"), "");
	assert_string_equal(getenv("PG_PASSWORD"), "");
	/* of these there is no other copy */
	assert_string_equal(s.sink.secret_key, "s3cr3t");
	assert_string_equal(s.pg_password, "s3cr3t");
	settings_fini(&s);
}

static void
names_of_older_versions_are_accepted(void **state)
{
	static const char *const names[] = { "QUEEN_URL", "QUEEN_TOKEN",
		"QUEEN_S3_EMBEDDED", "QUEEN_S3_BIN" };
	(void)state;

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		int found = 0;

		for (size_t k = 0; k < conf_items_n; k++)
			found += strcmp(conf_items[k].name, names[i]) == 0 &&
				 conf_items[k].type == CONF_ACCEPT;
		assert_int_equal(found, 1);
		assert_int_equal(LOAD(names[i], "whatever"), 0);
		settings_fini(&s);
	}
}

static void
the_boot_line(void **state)
{
	struct buf b = BUF_ZERO;
	(void)state;

	assert_int_equal(
		LOAD("QUEEN_S3_QUEUES", "orders,clicks", "QUEEN_S3_INSTANCE",
			"sink-0", "QUEEN_S3_LAYOUT", "per_partition",
			"QUEEN_S3_SSE", "kms", "QUEEN_S3_SSE_KMS_KEY_ID",
			"1234-deadbeef", "QUEEN_S3_CRASH_AT", "mid_upload"),
		0);
	free(s.instance);
	s.instance = strdup("sink-0");
	settings_boot_line(&s, &s.sink, "00000000-0000-0000-0000-000000000001",
		"host=db1 dbname=queen user=queen_s3", &b);
	buf_putc(&b, '\0');
	assert_string_equal(b.p,
		"version=" QUEEN_VERSION
		" tenant=00000000-0000-0000-0000-000000000001 instance=sink-0 "
		"partitions=discovery pg=\"host=db1 dbname=queen user=queen_s3\""
		" sink=default queues=orders,clicks s3=https://s3.example.com "
		"bucket=my-lake prefix=queen region=us-east-1 "
		"addressing=virtual-host sse=aws:kms(\xe2\x80\xa6"
		"beef) "
		"format=jsonl compression=zstd layout=per-partition align=hour "
		"target_mb=128 max_window_ms=300000 start=latest "
		"checkpoint_every=20 memory_mb=1024 fetch_concurrency=4 "
		"discovery_interval_ms=2000 safe_guard_ms=5000 "
		"lease_ttl_ms=30000 multipart_threshold_mb=64 "
		"listen=127.0.0.1:9333 crash_at=mid_upload");
	buf_reset(&b);
	s.instance_generated = true;
	settings_boot_line(&s, &s.sink, "t", "", &b);
	buf_putc(&b, '\0');
	assert_non_null(strstr(b.p, " instance=sink-0(generated) "));
	buf_fini(&b);
	settings_fini(&s);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_smallest_has_every_default),
		cmocka_unit_test(without_a_sink),
		cmocka_unit_test(ranges_of_the_node),
		cmocka_unit_test(refusals_of_the_tool),
		cmocka_unit_test(crash_points_have_names),
		cmocka_unit_test(the_process_ends_at_its_crash_point_alone),
		cmocka_unit_test(names_of_an_instance),
		cmocka_unit_test(
			what_is_printed_is_in_force_and_holds_no_secret),
		cmocka_unit_test(the_secret_may_be_in_a_file),
		cmocka_unit_test(secrets_are_wiped_where_they_are_not_needed),
		cmocka_unit_test(names_of_older_versions_are_accepted),
		cmocka_unit_test(the_boot_line),
	};

	gethostname(host, sizeof(host) - 1);
	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The client against a real S3 server, behind the gate that checks signatures
 * and makes faults.  Both end with the pipe we hold: whatever becomes of us.
 */
#include "s3.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <event2/event.h>
#include <cmocka.h>

#include "buf.h"
#include "err.h"
#include "loop.h"
#include "object.h"

#define KEY                                                                    \
	"queen/tenant=00000000-0000-0000-0000-000000000001/queue=a%2Fb/"       \
	"dt=2026-09-04/hour=10/w-0000000001-1-2-p-caff%C3%A8-1-2.parquet"
#define MIB (1 << 20)

enum { TEST_MS = 100000 };

static const char script[] =
	"d=$(mktemp -d \"${TMPDIR:-/tmp}/queen-s3-XXXXXX\") || exit 1\n"
	"u=$(tests/s3/server start \"$d\" 0 AKID 's3cret/+' lake) &&\n"
	"	tests/s3/gate --control 0 \"$u\" AKID 's3cret/+'\n"
	"tests/s3/server stop \"$d\"\n"
	"rm -rf \"$d\"\n";

static struct {
	pid_t pid;
	FILE *orders, *said;
	char endpoint[64], log[64][400]; /* of the gate */
	int log_n;
	struct loop *loop;
	struct s3 *s;
	struct loop_timer deadline;
	struct object o;
	/* what the client said */
	int done;
	bool ok, absent, truncated;
	struct s3_error e;
	int64_t size;
	struct buf body;
	char etag[80], keys[16][256];
	size_t keys_n;
} t;

static char access_key[] = "AKID", secret[] = "s3cret/+", bucket[] = "lake",
	    region[] = "us-east-1";

static void
on_deadline(void *arg)
{
	(void)arg;
	fprintf(stderr, "nothing happened in time\n");
	abort();
}

static int
start(void **state)
{
	struct s3conf sink = { .endpoint = t.endpoint,
		.region = region,
		.bucket = bucket,
		.access_key = access_key,
		.secret_key = secret,
		.path_style = true };
	struct s3_conf c = { .sink = &sink,
		.multipart_bytes = 5 * MIB,
		.part_bytes = 5 * MIB,
		.retry_first_ms = 10 };
	struct err e = ERR_ZERO;
	int in[2], out[2];
	(void)state;

	assert_int_equal(pipe(in) | pipe(out), 0);
	t.pid = fork();
	assert_true(t.pid >= 0);
	if (t.pid == 0) {
		dup2(in[0], 0);
		dup2(out[1], 1);
		for (int fd = 3; fd < 64; fd++)
			close(fd);
		execl("/bin/sh", "sh", "-c", script, (char *)NULL);
		_exit(127);
	}
	close(in[0]);
	close(out[1]);
	t.orders = fdopen(in[1], "w");
	t.said = fdopen(out[0], "r");
	if (fscanf(t.said, "listening on %63s", t.endpoint) != 1)
		return -1;
	t.loop = loop_new();
	loop_timer_init(&t.deadline, t.loop, on_deadline, NULL);
	loop_timer_start(&t.deadline, TEST_MS);
	object_init(&t.o);
	t.s = s3_new(t.loop, &c, &e);
	return t.s ? 0 : -1;
}

static int
stop(void **state)
{
	int status = 0;
	(void)state;

	s3_free(t.s);
	object_fini(&t.o);
	buf_fini(&t.body);
	loop_timer_fini(&t.deadline);
	loop_free(t.loop);
	fclose(t.orders);
	waitpid(t.pid, &status, 0);
	fclose(t.said);
	return status;
}

/* Every line of the gate until its answer; the requests before it. */
static void
order(const char *what)
{
	char line[sizeof(t.log[0])];

	fprintf(t.orders, "%s\n", what);
	fflush(t.orders);
	t.log_n = 0;
	while (fgets(line, sizeof(line), t.said)) {
		line[strcspn(line, "\n")] = '\0';
		if (strcmp(line, "ok") == 0)
			return;
		assert_true(t.log_n < 64);
		memcpy(t.log[t.log_n++], line, sizeof(line));
	}
	fail_msg("the gate went away");
}

static void
fault(const char *spec)
{
	char line[128];

	order("clear");
	snprintf(line, sizeof(line), "fault %s", spec);
	order(line);
}

/* Lines of the gate since the last order that hold a text. */
static int
logged(const char *text)
{
	int n = 0;

	order("clear");
	for (int i = 0; i < t.log_n; i++)
		n += strstr(t.log[i], text) != NULL;
	return n;
}

static void
on_answer(void *arg, const struct s3_answer *a, const struct s3_error *e)
{
	(void)arg;
	t.done = 1;
	t.ok = e == NULL;
	if (e) {
		t.e = *e;
		assert_null(strstr(e->text, secret));
		return;
	}
	t.absent = a->absent;
	t.truncated = a->truncated;
	t.size = a->size;
	buf_reset(&t.body);
	buf_put_span(&t.body, a->body);
	snprintf(t.etag, sizeof(t.etag), "%.*s", SPAN_ARG(a->etag));
	t.keys_n = a->keys_n;
	for (size_t i = 0; i < a->keys_n && i < 16; i++)
		snprintf(t.keys[i], sizeof(t.keys[i]), "%.*s",
			SPAN_ARG(a->keys[i]));
}

static void
run(void)
{
	for (t.done = 0; !t.done;)
		event_base_loop(loop_base(t.loop), EVLOOP_ONCE);
	if (!t.ok)
		print_message("%s\n", t.e.text);
}

static void
fill(size_t n, unsigned seed)
{
	uint32_t x = seed + 1;

	object_fini(&t.o);
	object_init(&t.o);
	while (n > 0) {
		size_t room;
		uint8_t *to = object_room(&t.o, &room);

		if (room > n)
			room = n;
		for (size_t i = 0; i < room; i++) {
			x = x * 1664525 + 1013904223;
			to[i] = (uint8_t)(x >> 24);
		}
		object_took(&t.o, room);
		n -= room;
	}
	object_seal(&t.o);
}

static void
put(const char *key)
{
	s3_put(t.s, span_of(key), "application/octet-stream", &t.o, NULL,
		on_answer, NULL);
	run();
}

static void
get(const char *key)
{
	s3_get(t.s, span_of(key), 64 * MIB, on_answer, NULL);
	run();
}

static void
assert_there(const char *key)
{
	size_t at = 0;

	get(key);
	assert_true(t.ok);
	assert_int_equal(t.body.len, t.o.len);
	for (struct span s; (s = object_at(&t.o, at)).n > 0; at += s.n)
		assert_memory_equal(t.body.p + at, s.p, s.n);
}

static void
list(const char *prefix, const char *after, int max)
{
	s3_list(t.s, span_of(prefix), span_of(after), max, on_answer, NULL);
	run();
	assert_true(t.ok);
}

static void
five_verbs_with_hive_keys(void **state)
{
	char etag[80];
	(void)state;

	s3_head(t.s, SPAN_LIT("queen/"), on_answer, NULL);
	run();
	assert_true(t.ok && t.absent);
	get(KEY);
	assert_true(t.ok && t.absent);
	fill(100000, 1);
	put(KEY);
	assert_true(t.ok);
	snprintf(etag, sizeof(etag), "%s", t.etag);
	assert_int_equal(strlen(etag), 32);
	s3_head(t.s, SPAN_LIT(KEY), on_answer, NULL);
	run();
	assert_int_equal(t.size, 100000);
	assert_string_equal(t.etag, etag);
	assert_there(KEY);
	/* once more, the same: one key, the same ETag */
	put(KEY);
	assert_true(t.ok);
	assert_string_equal(t.etag, etag);
	list("queen/tenant=", "", 1000);
	assert_int_equal(t.keys_n, 1);
	assert_string_equal(t.keys[0], KEY);
	/* of nothing, and replaced */
	fill(0, 0);
	put(KEY);
	assert_true(t.ok);
	assert_there(KEY);
	assert_int_equal(logged(" 403 "), 0);
}

static void
twelve_mib_in_parts_read_back(void **state)
{
	(void)state;
	fill(12 * MIB, 2);
	put(KEY);
	assert_true(t.ok);
	assert_string_equal(t.etag + strlen(t.etag) - 2, "-3");
	s3_head(t.s, SPAN_LIT(KEY), on_answer, NULL);
	run();
	assert_int_equal(t.size, 12 * MIB);
	assert_there(KEY);
	assert_int_equal(logged("partNumber="), 3);
}

static void
pages_of_a_list_tile(void **state)
{
	char key[64], after[64] = "";
	int seen = 0;
	(void)state;

	fill(3, 3);
	for (int i = 0; i < 7; i++) {
		snprintf(key, sizeof(key), "tile/dt=%d/%%%d", i / 3, i);
		put(key);
		assert_true(t.ok);
	}
	do {
		list("tile/", after, 3);
		for (size_t i = 0; i < t.keys_n; i++, seen++) {
			snprintf(key, sizeof(key), "tile/dt=%d/%%%d", seen / 3,
				seen);
			assert_string_equal(t.keys[i], key);
		}
		snprintf(after, sizeof(after), "%.63s", t.keys[t.keys_n - 1]);
	} while (t.truncated);
	assert_int_equal(seen, 7);
	list("tile/", after, 3);
	assert_int_equal(t.keys_n, 0);
}

/* Each single one, and it is stored in the end. */
static void
single_faults_are_overcome(void **state)
{
	static const char *const all[] = { "503:@1", "500:@1-2", "429:@1",
		"drop:@1", "lost:@1", "cut:@1", "stall:@1" };
	char key[32];
	(void)state;

	order("stall 0.1");
	for (unsigned i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
		snprintf(key, sizeof(key), "fault/%u", i);
		fill(200000, 10 + i);
		fault(all[i]);
		put(key);
		assert_true(t.ok);
		fault(all[i]);
		assert_there(key);
		fault(all[i]);
		list(key, "", 10);
		assert_int_equal(t.keys_n, 1);
	}
	order("clear");
}

/* Of an upload; what is done twice is done once. */
static void
faults_of_an_upload_are_overcome(void **state)
{
	static const char *const all[] = { "lost:@1:POST:uploadId=",
		"cut:@1:POST:uploadId=", "drop:@1:PUT:partNumber=2",
		"lost:@1:PUT:partNumber=1", "503:@1:POST:uploads=" };
	(void)state;

	for (unsigned i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
		fill(6 * MIB, 20 + i);
		fault(all[i]);
		put("fault/parts");
		assert_true(t.ok);
		assert_there("fault/parts");
		/* the fault was there */
		assert_true(logged(i == 4    ? " 503"
				    : i == 2 ? " drop"
				    : i == 1 ? " cut"
					     : " lost") >= 1);
	}
	/* one that fails leaves no upload behind */
	fill(6 * MIB, 30);
	fault("403:1:PUT:partNumber=2");
	put("fault/aborted");
	assert_false(t.ok);
	assert_int_equal(t.e.status, 403);
	assert_int_equal(logged("DELETE /lake/fault/aborted?uploadId="), 1);
	get("fault/aborted");
	assert_true(t.ok && t.absent);
}

static void
refusals_are_told(void **state)
{
	(void)state;
	fill(10, 40);
	order("skew 1000");
	put("skew");
	assert_false(t.ok);
	assert_true(t.e.retriable);
	assert_string_equal(t.e.code, "RequestTimeTooSkewed");
	assert_non_null(strstr(t.e.text, "; this clock is "));
	assert_non_null(strstr(t.e.text, " s behind the server's"));
	order("skew 0");
	assert_int_equal(t.log_n, 6);
	fault("500:1");
	put("five");
	assert_false(t.ok);
	assert_string_equal(t.e.text,
		"put five: status 500 InternalError: fault on demand");
	assert_int_equal(logged("PUT /lake/five 500"), 6);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(five_verbs_with_hive_keys),
		cmocka_unit_test(twelve_mib_in_parts_read_back),
		cmocka_unit_test(pages_of_a_list_tile),
		cmocka_unit_test(single_faults_are_overcome),
		cmocka_unit_test(faults_of_an_upload_are_overcome),
		cmocka_unit_test(refusals_are_told),
	};

	return cmocka_run_group_tests(tests, start, stop);
}

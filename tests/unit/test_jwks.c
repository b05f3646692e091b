/* SPDX-License-Identifier: Apache-2.0 */
/* The fetcher against a real HTTP server on the same loop. */
#include "jwks.h"

#include <event2/buffer.h>
#include <event2/event.h>
#include <event2/http.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <netinet/in.h>
#include <cmocka.h>

#include "err.h"
#include "jwt.h"
#include "loop.h"

#define KEY                                                                    \
	"{\"kty\":\"OKP\",\"crv\":\"Ed25519\","                                \
	"\"x\":\"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo\"}"

enum { DEADLINE_MS = 10000 };

struct bed {
	struct loop *loop;
	struct evhttp *http;
	struct jwks *j;
	struct loop_timer deadline;
	struct jwks_wait wait[3];
	char order[16];
	char url[64];
	/* what the server answers */
	int status;
	const char *body;
	size_t filler_n;
	bool is_silent;
	/* what it saw */
	int hits, elsewhere, not_get;
};

static void
on_request(struct evhttp_request *r, void *arg)
{
	struct bed *b = arg;
	struct evbuffer *out = evbuffer_new();

	b->hits++;
	b->not_get += evhttp_request_get_command(r) != EVHTTP_REQ_GET;
	b->elsewhere += strcmp(evhttp_request_get_uri(r), "/keys?x=1") != 0;
	if (b->is_silent) {
		evbuffer_free(out);
		return;
	}
	if (b->status == 302)
		evhttp_add_header(evhttp_request_get_output_headers(r),
			"Location", "/other");
	evbuffer_add(out, b->body, strlen(b->body));
	for (size_t i = 0; i < b->filler_n; i++)
		evbuffer_add(out, " ", 1);
	evhttp_send_reply(r, b->status, "x", out);
	evbuffer_free(out);
}

static void
on_deadline(void *arg)
{
	(void)arg;
	fprintf(stderr, "nothing happened in time\n");
	abort();
}

static void
bed_up(struct bed *b, const char *ca_file, const char *scheme)
{
	struct evhttp_bound_socket *s;
	struct sockaddr_in at;
	socklen_t n = sizeof(at);
	struct jwks_conf c = { .url = b->url,
		.ca_file = ca_file,
		.refresh_s = 3600,
		.timeout_ms = 5000 };
	struct err e = ERR_ZERO;

	memset(b, 0, sizeof(*b));
	b->status = 200;
	b->body = "{\"keys\":[" KEY "]}";
	b->loop = loop_new();
	b->http = evhttp_new(loop_base(b->loop));
	s = evhttp_bind_socket_with_handle(b->http, "127.0.0.1", 0);
	assert_non_null(s);
	assert_int_equal(getsockname(evhttp_bound_socket_get_fd(s),
				 (struct sockaddr *)&at, &n),
		0);
	evhttp_set_gencb(b->http, on_request, b);
	snprintf(b->url, sizeof(b->url), "%s://127.0.0.1:%d/keys?x=1", scheme,
		ntohs(at.sin_port));
	loop_timer_init(&b->deadline, b->loop, on_deadline, b);
	loop_timer_start(&b->deadline, DEADLINE_MS);
	assert_int_equal(jwks_new(b->loop, &c, &b->j, &e), 0);
}

static void
bed_down(struct bed *b)
{
	jwks_free(b->j);
	loop_timer_fini(&b->deadline);
	evhttp_free(b->http);
	loop_free(b->loop);
}

static void
note(struct bed *b, char who)
{
	size_t n = strlen(b->order);

	assert_true(n + 1 < sizeof(b->order));
	b->order[n] = who;
}

static void
on_keys(void *arg)
{
	struct bed *b = arg;

	note(b, 'k');
}

static void
wait_for_keys(struct bed *b)
{
	size_t n = strlen(b->order);
	struct jwks_wait w = { .fn = on_keys, .arg = b };

	assert_true(jwks_refetch(b->j, &w));
	assert_int_equal(strlen(b->order), n); /* never inside the call */
	while (strlen(b->order) == n)
		event_base_loop(loop_base(b->loop), EVLOOP_ONCE);
}

static void
assert_stats(struct bed *b, uint64_t fetches, uint64_t failures, size_t keys)
{
	struct jwks_stats s;

	jwks_stats(b->j, &s);
	assert_int_equal(s.fetches, fetches);
	assert_int_equal(s.failures, failures);
	assert_int_equal(s.keys_n, keys);
	assert_int_equal(jwt_keys_count(jwks_keys(b->j)), keys);
}

static void
keys_arrive(void **state)
{
	struct jwks_wait w = { .fn = on_keys };
	struct bed b;
	(void)state;

	bed_up(&b, NULL, "http");
	assert_null(jwks_keys(b.j));
	jwks_start(b.j);
	/* joins the first fetch instead of beginning another */
	wait_for_keys(&b);
	assert_stats(&b, 1, 0, 1);
	assert_int_equal(b.hits, 1);
	assert_int_equal(b.elsewhere, 0);
	assert_int_equal(b.not_get, 0);
	/* and now the last attempt is too young */
	assert_false(jwks_refetch(b.j, &w));
	assert_null(w.link);
	assert_stats(&b, 1, 0, 1);
	bed_down(&b);
}

static void
on_first(void *arg)
{
	struct bed *b = arg;

	note(b, '1');
	jwks_cancel(&b->wait[1]);
	assert_false(jwks_refetch(b->j, &b->wait[0]));
}

static void
on_second(void *arg)
{
	struct bed *b = arg;

	note(b, '2');
}

static void
on_third(void *arg)
{
	struct bed *b = arg;

	note(b, '3');
}

static void
who_waits_is_told_in_order(void **state)
{
	struct bed b;
	(void)state;

	bed_up(&b, NULL, "http");
	b.wait[0] = (struct jwks_wait){ .fn = on_first, .arg = &b };
	b.wait[1] = (struct jwks_wait){ .fn = on_second, .arg = &b };
	b.wait[2] = (struct jwks_wait){ .fn = on_third, .arg = &b };
	for (int i = 0; i < 3; i++)
		assert_true(jwks_refetch(b.j, &b.wait[i]));
	while (!strchr(b.order, '3'))
		event_base_loop(loop_base(b.loop), EVLOOP_ONCE);
	/* the second was cancelled by the first */
	assert_string_equal(b.order, "13");
	assert_int_equal(b.hits, 1);
	jwks_cancel(&b.wait[0]);
	bed_down(&b);
}

/* One fetch with this answer: it fails, and who waits is told all the same. */
static void
assert_fails(int status, const char *body, size_t filler_n, int hits)
{
	struct jwks_wait w = { .fn = on_keys };
	struct bed b;

	bed_up(&b, NULL, "http");
	b.status = status;
	b.body = body;
	b.filler_n = filler_n;
	wait_for_keys(&b);
	assert_stats(&b, 1, 1, 0);
	assert_null(jwks_keys(b.j));
	assert_int_equal(b.hits, hits);
	assert_int_equal(b.elsewhere, 0);
	/* the attempt counts, not the success */
	assert_false(jwks_refetch(b.j, &w));
	bed_down(&b);
}

static void
bad_answers_are_no_keys(void **state)
{
	(void)state;
	assert_fails(500, "{\"keys\":[]}", 0, 1);
	assert_fails(404, "{\"keys\":[]}", 0, 1);
	assert_fails(201, "{\"keys\":[]}", 0, 1);
	assert_fails(302, "{\"keys\":[]}", 0, 1); /* not followed */
	assert_fails(200, "<html>", 0, 1);
	assert_fails(200, "", 0, 1);
	assert_fails(200, "{\"keys\":[]}", JWT_DOCUMENT_MAX_BYTES, 1);
}

static void
a_document_of_1_mib_is_read(void **state)
{
	struct bed b;
	(void)state;

	bed_up(&b, NULL, "http");
	b.filler_n = JWT_DOCUMENT_MAX_BYTES - strlen(b.body);
	wait_for_keys(&b);
	assert_stats(&b, 1, 0, 1);
	bed_down(&b);
}

static void
keys_survive_a_failed_refresh(void **state)
{
	struct bed b;
	struct jwks_conf c = { .refresh_s = 1, .timeout_ms = 5000 };
	struct jwks_stats s;
	struct err e = ERR_ZERO;
	(void)state;

	bed_up(&b, NULL, "http");
	jwks_free(b.j);
	c.url = b.url;
	assert_int_equal(jwks_new(b.loop, &c, &b.j, &e), 0);
	jwks_start(b.j);
	wait_for_keys(&b);
	b.status = 503;
	do {
		event_base_loop(loop_base(b.loop), EVLOOP_ONCE);
		jwks_stats(b.j, &s);
	} while (s.failures == 0);
	assert_stats(&b, 2, 1, 1);
	/* the next one brings two */
	b.status = 200;
	b.body = "{\"keys\":[" KEY "," KEY "]}";
	do {
		event_base_loop(loop_base(b.loop), EVLOOP_ONCE);
		jwks_stats(b.j, &s);
	} while (s.keys_n != 2);
	assert_stats(&b, 3, 1, 2);
	bed_down(&b);
}

static void
a_silent_host_times_out(void **state)
{
	struct bed b;
	struct jwks_conf c = { .refresh_s = 3600, .timeout_ms = 50 };
	struct err e = ERR_ZERO;
	(void)state;

	bed_up(&b, NULL, "http");
	jwks_free(b.j);
	c.url = b.url;
	assert_int_equal(jwks_new(b.loop, &c, &b.j, &e), 0);
	b.is_silent = true;
	wait_for_keys(&b);
	assert_stats(&b, 1, 1, 0);
	bed_down(&b);
}

static void
a_fetch_under_way_can_be_dropped(void **state)
{
	struct bed b;
	(void)state;

	bed_up(&b, NULL, "http");
	b.is_silent = true;
	b.wait[0] = (struct jwks_wait){ .fn = on_keys, .arg = &b };
	assert_true(jwks_refetch(b.j, &b.wait[0]));
	while (b.hits == 0)
		event_base_loop(loop_base(b.loop), EVLOOP_ONCE);
	bed_down(&b);
	assert_null(b.wait[0].link);
	assert_string_equal(b.order, "");
}

/* The server speaks no TLS, and a bundle that is not there verifies nobody. */
static void
https_is_not_http(void **state)
{
	struct bed b;
	(void)state;

	bed_up(&b, NULL, "https");
	wait_for_keys(&b);
	assert_stats(&b, 1, 1, 0);
	bed_down(&b);
	bed_up(&b, "/nonexistent/ca.pem", "https");
	wait_for_keys(&b);
	assert_stats(&b, 1, 1, 0);
	assert_int_equal(b.hits, 0);
	bed_down(&b);
}

static void
urls_of_other_schemes_are_refused(void **state)
{
	static const char *const urls[] = { "", "x", "file:///etc/passwd",
		"ftp://h/", "//h/", "http://", "unix:/x" };
	struct loop *l = loop_new();
	(void)state;

	for (size_t i = 0; i < sizeof(urls) / sizeof(*urls); i++) {
		struct jwks_conf c = { .url = urls[i] };
		struct err e = ERR_ZERO;
		struct jwks *j;

		assert_int_equal(jwks_new(l, &c, &j, &e), -1);
		assert_null(j);
		assert_int_equal(e.kind, ERR_CONFIG);
		assert_string_equal(
			e.text, "JWT_JWKS_URL is no http or https URL");
	}
	jwks_free(NULL);
	loop_free(l);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(keys_arrive),
		cmocka_unit_test(who_waits_is_told_in_order),
		cmocka_unit_test(bad_answers_are_no_keys),
		cmocka_unit_test(a_document_of_1_mib_is_read),
		cmocka_unit_test(keys_survive_a_failed_refresh),
		cmocka_unit_test(a_silent_host_times_out),
		cmocka_unit_test(a_fetch_under_way_can_be_dropped),
		cmocka_unit_test(https_is_not_http),
		cmocka_unit_test(urls_of_other_schemes_are_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

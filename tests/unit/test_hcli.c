/* SPDX-License-Identifier: Apache-2.0 */
/* Requests to a real HTTP server on the same loop. */
#include "hcli.h"

#include <event2/buffer.h>
#include <event2/event.h>
#include <event2/http.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <netinet/in.h>
#include <cmocka.h>

#include "err.h"
#include "loop.h"

enum { DEADLINE_MS = 10000, HITS_MAX = 8 };

struct bed {
	struct loop *loop;
	struct evhttp *http;
	struct hcli *h;
	struct hcli_call call[2];
	struct loop_timer deadline;
	char url[64];
	bool is_silent;
	int status; /* what the server answers */
	int more; /* requests to begin out of the callback */
	/* what the server saw, and what came back */
	int hits, done;
	uint16_t peer[HITS_MAX];
	bool agent;
	CURLcode rc;
	long got_status;
	char why[CURL_ERROR_SIZE];
};

static void
on_request(struct evhttp_request *r, void *arg)
{
	struct bed *b = arg;
	struct evkeyvalq *head = evhttp_request_get_input_headers(r);
	const char *agent = evhttp_find_header(head, "User-Agent");
	char *host;

	assert_true(b->hits < HITS_MAX);
	evhttp_connection_get_peer(
		evhttp_request_get_connection(r), &host, &b->peer[b->hits++]);
	b->agent = agent && strcmp(agent, "queen/" QUEEN_VERSION) == 0;
	evhttp_add_header(
		evhttp_request_get_output_headers(r), "Location", "/elsewhere");
	if (!b->is_silent)
		evhttp_send_reply(r, b->status, "x", NULL);
}

static void
on_deadline(void *arg)
{
	(void)arg;
	fprintf(stderr, "nothing happened in time\n");
	abort();
}

static void
bed_up(struct bed *b, const char *ca_file, long idle_max)
{
	struct hcli_conf c = { .ca_file = ca_file, .idle_max = idle_max };
	struct evhttp_bound_socket *s;
	struct sockaddr_in at;
	socklen_t n = sizeof(at);
	struct err e = ERR_ZERO;

	memset(b, 0, sizeof(*b));
	b->status = 200;
	b->loop = loop_new();
	b->http = evhttp_new(loop_base(b->loop));
	s = evhttp_bind_socket_with_handle(b->http, "127.0.0.1", 0);
	assert_non_null(s);
	assert_int_equal(getsockname(evhttp_bound_socket_get_fd(s),
				 (struct sockaddr *)&at, &n),
		0);
	evhttp_set_gencb(b->http, on_request, b);
	snprintf(b->url, sizeof(b->url), "http://127.0.0.1:%d/",
		ntohs(at.sin_port));
	loop_timer_init(&b->deadline, b->loop, on_deadline, b);
	loop_timer_start(&b->deadline, DEADLINE_MS);
	b->h = hcli_new(b->loop, &c, &e);
	assert_non_null(b->h);
}

static void
bed_down(struct bed *b)
{
	hcli_free(b->h);
	loop_timer_fini(&b->deadline);
	evhttp_free(b->http);
	loop_free(b->loop);
}

static void get(struct bed *b);

static void
on_done(void *arg, CURLcode rc, const char *why)
{
	struct bed *b = arg;

	b->rc = rc;
	snprintf(b->why, sizeof(b->why), "%s", why);
	curl_easy_getinfo(
		b->call[0].easy, CURLINFO_RESPONSE_CODE, &b->got_status);
	hcli_end(&b->call[0]);
	b->done++;
	if (b->more-- > 0)
		get(b);
}

static size_t
on_body(char *p, size_t one, size_t n, void *arg)
{
	(void)p;
	(void)arg;
	return one * n;
}

static void
get(struct bed *b)
{
	CURL *c = hcli_begin(b->h, &b->call[0], on_done, b);

	curl_easy_setopt(c, CURLOPT_URL, b->url);
	curl_easy_setopt(c, CURLOPT_WRITEFUNCTION, on_body);
	hcli_start(&b->call[0]);
}

static void
run(struct bed *b, int done)
{
	while (b->done < done)
		event_base_loop(loop_base(b->loop), EVLOOP_ONCE);
	assert_int_equal(b->done, done);
}

static void
connections_are_kept_when_asked_for(void **state)
{
	struct bed b;
	(void)state;

	bed_up(&b, NULL, 2);
	b.more = 2; /* each out of the callback of the one before */
	get(&b);
	run(&b, 3);
	assert_int_equal(b.rc, CURLE_OK);
	assert_string_equal(b.why, "");
	assert_true(b.agent);
	assert_int_equal(b.peer[0], b.peer[1]);
	assert_int_equal(b.peer[0], b.peer[2]);
	bed_down(&b);

	bed_up(&b, NULL, 0);
	b.more = 1;
	get(&b);
	run(&b, 2);
	assert_int_not_equal(b.peer[0], b.peer[1]);
	bed_down(&b);
}

static void
every_status_is_an_answer(void **state)
{
	static const int all[] = { 200, 302, 404, 503 };
	struct bed b;
	(void)state;

	bed_up(&b, NULL, 1);
	for (int i = 0; i < 4; i++) {
		b.status = all[i];
		get(&b);
		run(&b, i + 1);
		assert_int_equal(b.rc, CURLE_OK);
		assert_int_equal(b.got_status, all[i]);
	}
	/* no redirect was followed */
	assert_int_equal(b.hits, 4);
	bed_down(&b);
}

static void
failures_say_why(void **state)
{
	struct bed b;
	(void)state;

	bed_up(&b, NULL, 1);
	evhttp_free(b.http);
	b.http = evhttp_new(loop_base(b.loop));
	get(&b);
	run(&b, 1);
	assert_int_equal(b.rc, CURLE_COULDNT_CONNECT);
	assert_non_null(strstr(b.why, "127.0.0.1"));
	bed_down(&b);
	/* a bundle that is not there verifies nobody */
	bed_up(&b, "/nonexistent/ca.pem", 1);
	memmove(b.url + 5, b.url + 4, strlen(b.url + 4) + 1);
	b.url[4] = 's';
	get(&b);
	run(&b, 1);
	assert_int_not_equal(b.rc, CURLE_OK);
	assert_int_equal(b.hits, 0);
	assert_string_not_equal(b.why, "");
	bed_down(&b);
}

static void
a_call_may_end_at_any_time(void **state)
{
	struct bed b;
	(void)state;

	bed_up(&b, NULL, 1);
	hcli_end(&b.call[1]); /* never begun */
	hcli_begin(b.h, &b.call[1], on_done, &b);
	hcli_end(&b.call[1]); /* never started */
	get(&b);
	hcli_end(&b.call[0]); /* the loop did not run */
	b.is_silent = true;
	get(&b);
	while (b.hits == 0)
		event_base_loop(loop_base(b.loop), EVLOOP_ONCE);
	hcli_end(&b.call[0]); /* sent, not answered */
	hcli_end(&b.call[0]);
	assert_int_equal(b.done, 0);
	b.is_silent = false;
	get(&b);
	run(&b, 1);
	assert_int_equal(b.hits, 2);
	bed_down(&b);
	hcli_free(NULL);
}

/* ---- https, against a server of a certificate made here ---- */

struct tls {
	char dir[64], cert[96];
	pid_t pid;
	FILE *said;
	int port;
};

static void
tls_up(struct tls *t)
{
	char line[400];
	int out[2];

	snprintf(t->dir, sizeof(t->dir), "/tmp/queen-hcli-XXXXXX");
	assert_non_null(mkdtemp(t->dir));
	snprintf(t->cert, sizeof(t->cert), "%s/cert", t->dir);
	snprintf(line, sizeof(line),
		"cd %s && openssl req -x509 -newkey ec -pkeyopt "
		"ec_paramgen_curve:prime256v1 -nodes -keyout key -out cert "
		"-days 2 -subj /CN=x -addext subjectAltName=IP:127.0.0.1 "
		"2>/dev/null",
		t->dir);
	assert_int_equal(system(line), 0);
	assert_int_equal(pipe(out), 0);
	t->pid = fork();
	assert_true(t->pid >= 0);
	if (t->pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		dup2(out[1], 1);
		if (chdir(t->dir) == 0)
			execlp("openssl", "openssl", "s_server", "-www",
				"-cert", "cert", "-key", "key", "-accept",
				"127.0.0.1:0", (char *)NULL);
		_exit(127);
	}
	close(out[1]);
	t->said = fdopen(out[0], "r");
	t->port = 0;
	while (!t->port && fgets(line, sizeof(line), t->said))
		sscanf(line, "ACCEPT 127.0.0.1:%d", &t->port);
	assert_true(t->port > 0);
}

static void
tls_down(struct tls *t)
{
	char line[128];

	kill(t->pid, SIGKILL);
	waitpid(t->pid, NULL, 0);
	fclose(t->said);
	snprintf(line, sizeof(line), "rm -r %s", t->dir);
	assert_int_equal(system(line), 0);
}

static void
assert_https(struct tls *t, const char *ca_file, const char *host, CURLcode rc)
{
	struct bed b;

	bed_up(&b, ca_file, 1);
	snprintf(b.url, sizeof(b.url), "https://%s:%d/", host, t->port);
	get(&b);
	run(&b, 1);
	assert_int_equal(b.rc, rc);
	assert_int_equal(b.got_status, rc == CURLE_OK ? 200 : 0);
	bed_down(&b);
}

static void
servers_prove_who_they_are(void **state)
{
	struct tls t;
	(void)state;

	tls_up(&t);
	assert_https(&t, t.cert, "127.0.0.1", CURLE_OK);
	/* known, and another's name */
	assert_https(&t, t.cert, "localhost", CURLE_PEER_FAILED_VERIFICATION);
	assert_https(&t, NULL, "127.0.0.1", CURLE_PEER_FAILED_VERIFICATION);
	assert_https(&t, "", "127.0.0.1", CURLE_PEER_FAILED_VERIFICATION);
	tls_down(&t);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(connections_are_kept_when_asked_for),
		cmocka_unit_test(every_status_is_an_answer),
		cmocka_unit_test(failures_say_why),
		cmocka_unit_test(a_call_may_end_at_any_time),
		cmocka_unit_test(servers_prove_who_they_are),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Servers that are none, or stand before one: poolers, other protocols,
 * nonsense.  Each says its lines and never crashes the link.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <event2/event.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "buf.h"
#include "err.h"
#include "pglink_fix.h"

/* ---- a server on the same loop ---- */

static struct odd {
	int fd, one;
	struct event *ev, *one_ev;
	struct buf got;
	struct buf hello; /* in answer to the start-up packet */
	struct buf reply; /* in answer to what comes then */
	const char *tls; /* in answer to a request for TLS */
	bool greeted, hangs_up;
} O;

static void
say(const struct buf *b)
{
	if (b->len > 0)
		assert_int_equal(send(O.one, b->p, b->len, MSG_NOSIGNAL),
			(ssize_t)b->len);
}

static void
hang_up(void)
{
	if (O.one_ev)
		event_free(O.one_ev);
	O.one_ev = NULL;
	if (O.one >= 0)
		close(O.one);
	O.one = -1;
}

static void
on_bytes(evutil_socket_t fd, short what, void *arg)
{
	char bytes[65536];
	ssize_t n = recv(fd, bytes, sizeof(bytes), 0);
	uint32_t code = 0;

	(void)what;
	(void)arg;
	if (n <= 0) {
		hang_up();
		return;
	}
	if (n >= 8)
		memcpy(&code, bytes + 4, sizeof(code));
	if (!O.greeted && ntohl(code) == 80877103) {
		send(fd, O.tls, 1, MSG_NOSIGNAL);
	} else if (!O.greeted) {
		O.greeted = true;
		say(&O.hello);
		if (O.hangs_up)
			hang_up();
	} else {
		say(&O.reply);
		buf_reset(&O.reply);
	}
}

static void
on_caller(evutil_socket_t fd, short what, void *arg)
{
	struct fix *f = arg;

	(void)what;
	hang_up();
	O.one = accept4(fd, NULL, NULL, SOCK_CLOEXEC);
	O.greeted = false;
	O.one_ev = event_new(loop_base(f->loop), O.one, EV_READ | EV_PERSIST,
		on_bytes, NULL);
	event_add(O.one_ev, NULL);
}

static void
put(struct buf *b, char type, const void *p, size_t n)
{
	uint32_t len = htonl((uint32_t)n + 4);

	buf_putc(b, type);
	buf_put(b, &len, sizeof(len));
	buf_put(b, p, n);
}

/* fields: a letter and a text each, ended by an empty one */
static void
put_error(struct buf *b, const char *const *fields)
{
	struct buf m = BUF_ZERO;

	for (; *fields; fields++)
		buf_put(&m, *fields, strlen(*fields) + 1);
	buf_putc(&m, '\0');
	put(b, 'E', m.p, m.len);
	buf_fini(&m);
}

static void
put_status(struct buf *b, const char *name, const char *value)
{
	struct buf m = BUF_ZERO;

	buf_put(&m, name, strlen(name) + 1);
	buf_put(&m, value, strlen(value) + 1);
	put(b, 'S', m.p, m.len);
	buf_fini(&m);
}

static void
welcome(const char *zone)
{
	buf_reset(&O.hello);
	put(&O.hello, 'R', "\0\0\0\0", 4);
	if (zone)
		put_status(&O.hello, "TimeZone", zone);
	put_status(&O.hello, "DateStyle", "ISO, DMY");
	put_status(&O.hello, "IntervalStyle", "postgres");
	put_status(&O.hello, "client_encoding", "UTF8");
	put(&O.hello, 'Z', "I", 1);
}

static int
setup_odd(void **state)
{
	struct sockaddr_in a = { .sin_family = AF_INET,
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t n = sizeof(a);
	struct fix *f;

	setup(state);
	f = *state;
	O = (struct odd){ .one = -1, .tls = "N" };
	O.fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(bind(O.fd, (struct sockaddr *)&a, n), 0);
	assert_int_equal(listen(O.fd, 4), 0);
	assert_int_equal(getsockname(O.fd, (struct sockaddr *)&a, &n), 0);
	O.ev = event_new(
		loop_base(f->loop), O.fd, EV_READ | EV_PERSIST, on_caller, f);
	event_add(O.ev, NULL);
	f->conn.port = ntohs(a.sin_port);
	return 0;
}

static int
teardown_odd(void **state)
{
	hang_up();
	event_free(O.ev);
	close(O.fd);
	buf_fini(&O.hello);
	buf_fini(&O.reply);
	return teardown(state);
}

/* ---- refusals ---- */

static void
refuses(struct fix *f, const char *const *fields, bool retryable,
	const char *text)
{
	buf_reset(&O.hello);
	put_error(&O.hello, fields);
	O.hangs_up = true;
	refused(f, "postgres", retryable, "");
	assert_string_equal(f->why.text, text);
}

static void
test_refusals(void **state)
{
	struct fix *f = *state;

	refuses(f,
		(const char *const[]){ "SFATAL", "C3D000", "Mno such \"x\"",
			"Da\ndetail", "Hmake it", "Ffile.c", "L7", "Rfn",
			NULL },
		false, "3D000: no such \"x\" (a detail). make it");
	assert_string_equal(f->why.sqlstate, "3D000");
	/* in the language and encoding of the server */
	refuses(f,
		(const char *const[]){
			"SFATAL", "C57P03", "Mf\xe4hrt gerade hoch", NULL },
		true, "57P03: f?hrt gerade hoch");
	refuses(f, (const char *const[]){ "SFATAL", "C53300", "Mfull", NULL },
		true, "53300: full");
}

static void
test_poolers(void **state)
{
	static const char *const unsupported[] = { "SFATAL", "C08P01",
		"Munsupported startup parameter: options", NULL };
	struct fix *f = *state;

	refuses(f, unsupported, true,
		"08P01: unsupported startup parameter: options. If this is a "
		"connection pooler: connect directly to PostgreSQL");
	f->conf.use = PGLINK_REPLICATION;
	refuses(f, unsupported, true,
		"08P01: unsupported startup parameter: options. If this is a "
		"connection pooler, which cannot carry replication: connect "
		"directly to PostgreSQL");
	f->conf.use = PGLINK_SQL;
	O.hangs_up = false;
	welcome("Asia/Tokyo");
	refused(f, "postgres", false,
		"the session has TimeZone Asia/Tokyo instead of UTC: this is "
		"a connection pooler that drops start-up options, connect "
		"directly to PostgreSQL");
	welcome(NULL);
	refused(f, "postgres", false, "TimeZone unset instead of UTC");
	welcome("UTC");
	dial_up(f);
}

static void
test_passwords_that_are_asked_for(void **state)
{
	struct fix *f = *state;

	put(&O.hello, 'R', "\0\0\0\3", 4);
	refused(f, "postgres", false, "set connection.password");
	/* given, and then the server is gone */
	f->conf.password = SPAN_LIT("secret-91aa");
	dial(f);
	put(&O.reply, '?', "", 0);
	run_until(f, is_over);
	assert_null(strstr(f->why.text, "91aa"));
	assert_true(f->why.retryable);
}

static void
test_other_protocols(void **state)
{
	struct fix *f = *state;

	buf_puts(&O.hello, "HTTP/1.1 400 Bad Request\r\n\r\n");
	refused(f, "postgres", true, "failed");
	buf_reset(&O.hello);
	O.hangs_up = true;
	refused(f, "postgres", true, "server closed the connection");
	O.tls = "H";
	f->conn.ssl = CONNDOC_REQUIRE;
	refused(f, "postgres", true, "received invalid response");
	O.tls = "S";
	/* what follows is no TLS, the handshake fails */
	put(&O.hello, '?', "not TLS at all", 14);
	refused(f, "postgres", false, "TLS failed with sslMode require");
}

/* ---- nonsense in a session ---- */

static void
goes_wrong(struct fix *f, const char *words)
{
	run_until(f, is_over);
	assert_string_equal(f->why.code, "io");
	assert_true(f->why.retryable);
	if (!strstr(f->why.text, words))
		fail_msg("%s", f->why.text);
	assert_int_equal(f->a[0].n, 1);
	assert_false(f->a[0].ok);
}

static void
ask(struct fix *f)
{
	memset(f->a, 0, sizeof(f->a));
	welcome("UTC");
	dial_up(f);
	buf_reset(&O.reply);
	if (f->conf.use == PGLINK_PIPELINE) {
		pglink_exec(
			f->k, NULL, "select 1", NULL, 0, on_answer, &f->a[0]);
		pglink_sync(f->k);
	} else {
		pglink_query(f->k, "select 1", on_answer, &f->a[0]);
	}
}

static void
test_nonsense_in_a_session(void **state)
{
	struct fix *f = *state;

	ask(f);
	buf_puts(&O.reply, "HTTP/1.1 200 OK\r\n");
	goes_wrong(f, "lost synchronization");
	ask(f);
	put(&O.reply, 'D', "\0\2\0", 3); /* a row before its description */
	put(&O.reply, 'Z', "I", 1);
	wait_answer(f, &f->a[0]);
	assert_string_equal(f->a[0].why.code, "io");
	ask(f);
	put(&O.reply, 'G', "\0\0\0", 3); /* COPY IN, unasked */
	goes_wrong(f, "began to copy");
	ask(f);
	put(&O.reply, 'W', "\0\0\0", 3);
	goes_wrong(f, "began to copy");
	f->conf.use = PGLINK_PIPELINE;
	ask(f);
	put(&O.reply, 'Z', "I", 1); /* ready, without an answer */
	goes_wrong(f, "lost count");
	ask(f);
	put(&O.reply, 'G', "\0\0\0", 3);
	goes_wrong(f, "began to copy");
}

#define ODD_TEST(name)                                                         \
	cmocka_unit_test_setup_teardown(name, setup_odd, teardown_odd)

int
main(void)
{
	const struct CMUnitTest tests[] = {
		ODD_TEST(test_refusals),
		ODD_TEST(test_poolers),
		ODD_TEST(test_passwords_that_are_asked_for),
		ODD_TEST(test_other_protocols),
		ODD_TEST(test_nonsense_in_a_session),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

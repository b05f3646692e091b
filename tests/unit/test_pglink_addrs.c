/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A host of several addresses: which are tried, and which is told of.  The
 * look-up is a dummy of the test's, found before that of the library.
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "egress.h"
#include "err.h"
#include "pglink_fix.h"

static struct egress {
	struct egress_found found;
	egress_fn fn;
	void *arg;
	int starts, stops;
} E;

static void
answer_look(void *arg)
{
	struct egress *g = arg;
	egress_fn fn = g->fn;

	g->fn = NULL;
	if (fn)
		fn(g->arg, &g->found);
}

struct egress *
egress_start(struct loop *l, const char *host, int64_t limit_ms, egress_fn fn,
	void *arg)
{
	assert_string_equal(host, "db.example");
	assert_int_equal(limit_ms, F->conn.connect_timeout_ms);
	E.fn = fn;
	E.arg = arg;
	E.starts++;
	loop_later(l, answer_look, &E);
	return &E;
}

void
egress_stop(struct egress *g)
{
	g->fn = NULL;
	g->stops++;
}

static void
has_address(const char *a)
{
	snprintf(E.found.addr[E.found.n++], sizeof(E.found.addr[0]), "%s", a);
}

static int
setup_addrs(void **state)
{
	setup(state);
	E = (struct egress){ .starts = 0 };
	F->conn.host = SPAN_LIT("db.example");
	return 0;
}

/* A port where nobody answers. */
static int
silent(const char *address)
{
	struct sockaddr_in a = { .sin_family = AF_INET,
		.sin_port = htons((uint16_t)server.port) };
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	inet_pton(AF_INET, address, &a.sin_addr);
	assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof(a)), 0);
	assert_int_equal(listen(fd, 4), 0);
	return fd;
}

static void
test_the_next_address_may_do(void **state)
{
	struct fix *f = *state;
	int fd = silent("127.0.0.3");

	/* the server that answers has as long, so not too short */
	f->conn.connect_timeout_ms = 2000;
	has_address("127.0.0.2"); /* refuses */
	has_address("127.0.0.3");
	has_address("127.0.0.1");
	dial_up(f);
	value_is(f, "select host(inet_server_addr())", "127.0.0.1");
	assert_int_equal(E.starts, 1);
	assert_int_equal(E.stops, 0);
	close(fd);
}

static void
test_the_last_address_is_told_of(void **state)
{
	struct fix *f = *state;
	int fd = silent("127.0.0.3");

	f->conn.connect_timeout_ms = 300;
	has_address("127.0.0.2");
	has_address("127.0.0.3");
	refused(f, "postgres", true,
		"no connection to db.example (127.0.0.3) within "
		"connectTimeoutMs (300 ms)");
	close(fd);
}

static void
test_a_refusal_for_good_is_the_end(void **state)
{
	struct fix *f = *state;

	f->conn.database = SPAN_LIT("nowhere");
	has_address("127.0.0.1");
	has_address("127.0.0.2");
	refused(f, "postgres", false, "3D000: ");
}

static void
test_one_forbidden_address_refuses_all(void **state)
{
	struct fix *f = *state;

	has_address("127.0.0.1");
	E.found.forbidden = true;
	f->conf.allow_private = false;
	refused(f, "egress", false,
		"\"db.example\" has an address in a private network: use a "
		"public one, or set QUEEN_PG_ALLOW_PRIVATE_NETWORKS=true");
	f->conf.allow_private = true;
	dial_up(f);
	/* none: it was looked for all the same */
	E.found.n = 0;
	refused(f, "postgres", true, "host name \"db.example\" does not");
}

static void
test_a_look_up_may_be_given_up(void **state)
{
	struct fix *f = *state;

	has_address("127.0.0.1");
	dial(f);
	pglink_free(f->k);
	f->k = NULL;
	assert_int_equal(E.stops, 1);
	dial_up(f);
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

#define ADDRS_TEST(name)                                                       \
	cmocka_unit_test_setup_teardown(name, setup_addrs, teardown)

int
main(void)
{
	const struct CMUnitTest tests[] = {
		ADDRS_TEST(test_the_next_address_may_do),
		ADDRS_TEST(test_the_last_address_is_told_of),
		ADDRS_TEST(test_a_refusal_for_good_is_the_end),
		ADDRS_TEST(test_one_forbidden_address_refuses_all),
		ADDRS_TEST(test_a_look_up_may_be_given_up),
	};

	return cmocka_run_group_tests(tests, group_setup, group_teardown);
}

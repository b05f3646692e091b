/* SPDX-License-Identifier: Apache-2.0 */
#include "egress.h"

#include <arpa/inet.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <cmocka.h>

#include "loop.h"

static bool
is_private(const char *text)
{
	struct sockaddr_in6 v6 = { .sin6_family = AF_INET6 };
	struct sockaddr_in v4 = { .sin_family = AF_INET };

	if (inet_pton(AF_INET, text, &v4.sin_addr) == 1)
		return egress_is_private((struct sockaddr *)&v4);
	assert_int_equal(inet_pton(AF_INET6, text, &v6.sin6_addr), 1);
	return egress_is_private((struct sockaddr *)&v6);
}

static void
the_ends_of_every_range(void **state)
{
	static const char *const yes[] = { "0.0.0.0", "0.255.255.255",
		"127.0.0.0", "127.255.255.255", "10.0.0.0", "10.255.255.255",
		"172.16.0.0", "172.31.255.255", "192.168.0.0",
		"192.168.255.255", "100.64.0.0", "100.127.255.255",
		"169.254.0.0", "169.254.255.255", "::", "::1",
		"fe80::", "febf:ffff::", "fec0::", "feff:ffff::", "fc00::",
		"fdff:ffff::", "::ffff:10.0.0.1", "::ffff:127.0.0.1",
		"::10.0.0.1", "64:ff9b::192.168.0.1", "64:ff9b::7f00:1" };
	static const char *const no[] = { "1.0.0.0", "126.255.255.255",
		"128.0.0.0", "9.255.255.255", "11.0.0.0", "172.15.255.255",
		"172.32.0.0", "192.167.255.255", "192.169.0.0",
		"100.63.255.255", "100.128.0.0", "169.253.255.255",
		"169.255.0.0", "255.255.255.255",
		"fe7f:ffff::", "ff00::", "fbff:ffff::", "fe00::", "2001:db8::1",
		"::ffff:8.8.8.8", "::8.8.8.8", "64:ff9b::8.8.8.8",
		"64:ff9b:1::10.0.0.1" };
	struct sockaddr_un path = { .sun_family = AF_UNIX };
	(void)state;

	for (size_t i = 0; i < sizeof(yes) / sizeof(yes[0]); i++)
		if (!is_private(yes[i]))
			fail_msg("%s", yes[i]);
	for (size_t i = 0; i < sizeof(no) / sizeof(no[0]); i++)
		if (is_private(no[i]))
			fail_msg("%s", no[i]);
	assert_true(egress_is_private((struct sockaddr *)&path));
}

struct answer {
	struct loop *loop;
	int n;
	struct egress_found found;
};

static void
on_found(void *arg, const struct egress_found *f)
{
	struct answer *a = arg;

	a->n++;
	a->found = *f;
	loop_stop(a->loop);
}

static void
addresses_and_names_are_looked_at(void **state)
{
	static const struct {
		const char *host;
		bool forbidden;
	} v[] = {
		{ "127.0.0.1", true },
		{ "::1", true },
		{ "localhost", true },
		{ "8.8.8.8", false },
		{ "2001:db8::1", false },
	};
	(void)state;

	for (size_t i = 0; i < sizeof(v) / sizeof(v[0]); i++) {
		struct answer a = { .loop = loop_new() };

		egress_start(a.loop, v[i].host, 5000, on_found, &a);
		assert_int_equal(a.n, 0); /* always later */
		loop_run(a.loop);
		assert_int_equal(a.n, 1);
		assert_int_equal(a.found.forbidden, v[i].forbidden);
		assert_in_range(a.found.n, 1, EGRESS_ADDRS_MAX);
		if (inet_addr(v[i].host) != INADDR_NONE)
			assert_string_equal(a.found.addr[0], v[i].host);
		loop_free(a.loop);
	}
}

static void
on_end(void *arg)
{
	struct answer *a = arg;

	loop_stop(a->loop);
}

static void
one_that_was_stopped_says_nothing(void **state)
{
	struct answer a = { .loop = loop_new() };
	struct loop_timer end;
	(void)state;

	egress_stop(egress_start(
		a.loop, "no-such-host.invalid", 5000, on_found, &a));
	egress_stop(egress_start(a.loop, "127.0.0.1", 5000, on_found, &a));
	loop_timer_init(&end, a.loop, on_end, &a);
	loop_timer_start(&end, 50);
	loop_run(a.loop);
	assert_int_equal(a.n, 0);
	loop_timer_fini(&end);
	loop_free(a.loop);
}

static void
no_answer_in_time_is_none(void **state)
{
	struct answer a = { .loop = loop_new() };
	struct loop_timer end;
	(void)state;

	egress_start(a.loop, "no-such-host.invalid", 1, on_found, &a);
	loop_run(a.loop);
	assert_int_equal(a.n, 1);
	assert_int_equal(a.found.n, 0);
	assert_false(a.found.forbidden);
	/* the look-up ends by itself, and says nothing more */
	loop_timer_init(&end, a.loop, on_end, &a);
	loop_timer_start(&end, 50);
	loop_run(a.loop);
	assert_int_equal(a.n, 1);
	loop_timer_fini(&end);
	loop_free(a.loop);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_ends_of_every_range),
		cmocka_unit_test(addresses_and_names_are_looked_at),
		cmocka_unit_test(one_that_was_stopped_says_nothing),
		cmocka_unit_test(no_answer_in_time_is_none),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "notify.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include <cmocka.h>

static int
listen_on(const char *path)
{
	struct sockaddr_un at = { .sun_family = AF_UNIX };
	socklen_t len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) +
				    strlen(path));
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0);

	memcpy(at.sun_path, path, strlen(path));
	if (path[0] == '@')
		at.sun_path[0] = '\0';
	assert_int_equal(bind(fd, (const struct sockaddr *)&at, len), 0);
	setenv("NOTIFY_SOCKET", path, 1);
	return fd;
}

static void
expect(int fd, const char *text)
{
	char got[300];
	ssize_t n = recv(fd, got, sizeof(got) - 1, 0);

	assert_true(n >= 0);
	got[n] = '\0';
	assert_string_equal(got, text);
}

static void
messages_reach_the_socket(void **state)
{
	char path[64];
	int fd;

	(void)state;
	snprintf(path, sizeof(path), "@queen-notify-%d", (int)getpid());
	fd = listen_on(path);
	notify_ready();
	expect(fd, "READY=1");
	notify_alive();
	expect(fd, "WATCHDOG=1");
	notify_stopping();
	expect(fd, "STOPPING=1");
	close(fd);
	notify_alive();
}

static void
nothing_happens_without_systemd(void **state)
{
	(void)state;
	unsetenv("NOTIFY_SOCKET");
	notify_ready();
	setenv("NOTIFY_SOCKET", "relative", 1);
	notify_ready();
	setenv("NOTIFY_SOCKET", "/nonexistent/socket", 1);
	notify_ready();
	unsetenv("NOTIFY_SOCKET");
}

static void
the_watchdog_is_half_its_time_and_only_ours(void **state)
{
	char pid[32];

	(void)state;
	unsetenv("WATCHDOG_USEC");
	assert_int_equal(notify_watchdog_ms(), 0);
	setenv("WATCHDOG_USEC", "30000000", 1);
	assert_int_equal(notify_watchdog_ms(), 15000);
	setenv("WATCHDOG_PID", "1", 1);
	assert_int_equal(notify_watchdog_ms(), 0);
	snprintf(pid, sizeof(pid), "%d", (int)getpid());
	setenv("WATCHDOG_PID", pid, 1);
	assert_int_equal(notify_watchdog_ms(), 15000);
	setenv("WATCHDOG_USEC", "rubbish", 1);
	assert_int_equal(notify_watchdog_ms(), 0);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(messages_reach_the_socket),
		cmocka_unit_test(nothing_happens_without_systemd),
		cmocka_unit_test(the_watchdog_is_half_its_time_and_only_ours),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

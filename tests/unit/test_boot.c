/* SPDX-License-Identifier: Apache-2.0 */
/* What the boot of every server has in common. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>

#include "boot.h"
#include "err.h"
#include "exit.h"

static void
test_listen(void **state)
{
	static const char *const good[] = { "", "127.0.0.1:9334", "[::1]:0",
		"localhost:65535", NULL };
	static const char *const bad[] = { "9334", ":9334", "h:", "h:65536",
		"h:-1", "h:9334x", "h", "[]:", NULL };
	struct err e = ERR_ZERO;

	(void)state;
	assert_int_equal(boot_check_listen("X", NULL, &e), 0);
	for (int i = 0; good[i]; i++)
		assert_int_equal(boot_check_listen("X", good[i], &e), 0);
	for (int i = 0; bad[i]; i++) {
		assert_int_equal(boot_check_listen("X", bad[i], &e), -1);
		assert_int_equal(e.kind, ERR_CONFIG);
		assert_int_equal(strncmp(e.text, "X=\"", 3), 0);
	}
}

static void
test_exit_codes(void **state)
{
	static const struct {
		enum err_kind kind;
		int code;
	} cases[] = { { ERR_CONFIG, EXIT_CONFIG }, { ERR_IO, EXIT_DEPENDENCY },
		{ ERR_AUTH, EXIT_DEPENDENCY },
		{ ERR_DB_RETRY, EXIT_DEPENDENCY },
		{ ERR_DB_UNKNOWN, EXIT_DEPENDENCY },
		{ ERR_DB_DATA, EXIT_INTERNAL }, { ERR_BUG, EXIT_INTERNAL } };

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct err e = { .kind = cases[i].kind };

		assert_int_equal(boot_code(&e), cases[i].code);
	}
}

/* Passwords are in the memory of such a process. */
static void
test_no_core_is_left(void **state)
{
	struct rlimit lim;

	(void)state;
	boot_harden();
	assert_int_equal(prctl(PR_GET_DUMPABLE), 0);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &lim), 0);
	assert_true(lim.rlim_cur == lim.rlim_max);
	prctl(PR_SET_DUMPABLE, 1);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_listen),
		cmocka_unit_test(test_exit_codes),
		cmocka_unit_test(test_no_core_is_left),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

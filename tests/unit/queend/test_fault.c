/* SPDX-License-Identifier: Apache-2.0 */
/* What errors of the database become, in the words of either family. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "err.h"
#include "fault.h"
#include "kv_ops.h"
#include "timer_ops.h"

/* %s: kv or timers */
static const struct {
	const char *sqlstate, *text;
	int status;
	const char *error, *reason, *detail;
} BOTH[] = {
	{ "57014", "canceling", 503, "%s_unavailable", "%s_timeout", "" },
	{ "", "statement timeout after 9 ms", 503, "%s_unavailable",
		"%s_timeout", "" },
	{ "", "lost", 503, "%s_unavailable", "connection", "" },
	{ "40001", "again", 503, "%s_unavailable", "again", "" },
	{ "40P01", "again", 503, "%s_unavailable", "again", "" },
	{ "53100", "full", 503, "%s_unavailable", "full", "" },
	{ "57P05", "gone", 503, "%s_unavailable", "gone", "" },
	{ "58030", "disk", 503, "%s_unavailable", "disk", "" },
	{ "22023", "%s_bad_op", 400, "%s_bad_request", "%s_bad_op", "" },
	{ "22003", "out of range", 400, "%s_bad_request", "%s_bad_request",
		"out of range" },
	{ "22023", "%s_a is no word", 400, "%s_bad_request", "%s_bad_request",
		"%s_a is no word" },
	{ "42883", "no function", 500, "%s_misconfigured", "no function", "" },
	{ "42501", "not yours", 500, "%s_misconfigured", "not yours", "" },
	{ "23514", "a check", 500, "%s_error", "a check", "" },
	{ "P0001", "raised", 500, "%s_error", "raised", "" },
};

static const char *
said(const char *text, const char *family, char *room)
{
	const char *at = strstr(text, "%s");

	if (!at)
		return text;
	snprintf(room, 64, "%.*s%s%s", (int)(at - text), text, family, at + 2);
	return room;
}

static void
fault_of(const char *sqlstate, const char *text, bool kv, struct fault *f)
{
	struct err e = ERR_ZERO;

	err_set(&e, err_kind_of_sqlstate(sqlstate), "%s", text);
	snprintf(e.sqlstate, sizeof(e.sqlstate), "%s", sqlstate);
	if (kv)
		kv_ops_fault(&e, f);
	else
		timer_ops_fault(&e, f);
}

static void
check(const struct fault *f, int status, const char *error, const char *reason,
	const char *detail)
{
	assert_string_equal(f->error, error);
	assert_string_equal(f->reason, reason);
	assert_string_equal(f->detail, detail);
	assert_int_equal(f->status, status);
	assert_int_equal(f->retry_after_s, status == 503 ? 1 : 0);
}

static void
both_say_the_same_in_their_words(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(BOTH) / sizeof(*BOTH); i++)
		for (int kv = 0; kv < 2; kv++) {
			const char *fam = kv ? "kv" : "timers";
			char text[64], error[64], reason[64], detail[64];
			struct fault f;

			fault_of(BOTH[i].sqlstate,
				said(BOTH[i].text, fam, text), kv, &f);
			check(&f, BOTH[i].status,
				said(BOTH[i].error, fam, error),
				said(BOTH[i].reason, fam, reason),
				said(BOTH[i].detail, fam, detail));
		}
}

static void
no_connection_is_a_full_pool(void **state)
{
	struct fault f;
	struct err e = ERR_ZERO;

	(void)state;
	err_set(&e, ERR_LIMIT, "no connection");
	kv_ops_fault(&e, &f);
	check(&f, 503, "kv_unavailable", "kv_pool_exhausted", "");
	timer_ops_fault(&e, &f);
	check(&f, 503, "timers_unavailable", "timers_pool_exhausted", "");
}

static void
what_one_family_says_alone(void **state)
{
	struct fault f;

	(void)state;
	fault_of("22001", "kv_key_too_large", true, &f);
	check(&f, 413, "payload_too_large", "kv_key_too_large", "");
	fault_of("22023", "encryption_required: operation 3", false, &f);
	check(&f, 500, "timers_error", "encryption_required", "");
	fault_of("XX000", "broken", true, &f);
	check(&f, 500, "kv_error", "broken", "");
	fault_of("XX000", "broken", false, &f);
	check(&f, 500, "timers_error", "broken", "");
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(both_say_the_same_in_their_words),
		cmocka_unit_test(no_connection_is_a_full_pool),
		cmocka_unit_test(what_one_family_says_alone),
	};

	return cmocka_run_group_tests_name("fault", tests, NULL, NULL);
}

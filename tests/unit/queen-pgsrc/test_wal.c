/* SPDX-License-Identifier: Apache-2.0 */
/* LSNs, frames, and every byte of a status update. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "err.h"
#include "wal.h"

static void
an_lsn_is_two_halves_in_hex(void **state)
{
	char text[WAL_LSN_MAX];
	uint64_t lsn = 7;

	(void)state;
	assert_string_equal(
		wal_lsn_text(UINT64_C(0x16b374d848), text), "16/B374D848");
	assert_string_equal(wal_lsn_text(0, text), "0/0");
	assert_string_equal(
		wal_lsn_text(UINT64_MAX, text), "FFFFFFFF/FFFFFFFF");
	assert_true(wal_lsn_parse(span_of("16/b374D848"), &lsn));
	assert_true(lsn == UINT64_C(0x16b374d848));
	assert_true(wal_lsn_parse(span_of("FFFFFFFF/FFFFFFFF"), &lsn));
	assert_true(lsn == UINT64_MAX);
	assert_true(wal_lsn_parse(span_of("0/0"), &lsn));
	assert_true(lsn == 0);
}

static void
what_is_no_lsn_is_refused(void **state)
{
	static const char *const bad[] = { "", "/", "0/", "/0", "00", "0/0/",
		"0/0 ", " 0/0", "000000000/0", "0/000000001", "g/0", "-1/0",
		"0x1/0" };
	uint64_t lsn;

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		if (wal_lsn_parse(span_of(bad[i]), &lsn))
			fail_msg("'%s' parses", bad[i]);
	}
}

static void
times_are_clamped_not_overflowed(void **state)
{
	(void)state;
	assert_true(wal_time_us(0) == INT64_C(946684800000000));
	assert_true(wal_time_us(INT64_MAX) == INT64_MAX);
	assert_true(
		wal_time_us(INT64_MIN) == INT64_MIN + INT64_C(946684800000000));
}

static void
frames_are_taken_apart(void **state)
{
	static const char data[] = "w\0\0\0\x01\0\0\0\x02\0\0\0\x03\0\0\0\x04"
				   "\0\0\0\0\0\0\0\x05xyz";
	static const char empty[] = "w\0\0\0\x01\0\0\0\x02\0\0\0\x03\0\0\0\x04"
				    "\0\0\0\0\0\0\0\x05";
	static const char alive[] = "k\0\0\0\x01\0\0\0\x02"
				    "\0\0\0\0\0\0\0\x05\x01";
	struct err e = ERR_ZERO;
	struct wal_frame f;

	(void)state;
	assert_int_equal(wal_frame_parse(SPAN_LIT(data), &f, &e), 0);
	assert_int_equal(f.kind, WAL_DATA);
	assert_true(f.start_lsn == UINT64_C(0x100000002));
	assert_true(f.end_lsn == UINT64_C(0x300000004));
	assert_int_equal(f.data.n, 3);
	assert_memory_equal(f.data.p, "xyz", 3);
	assert_int_equal(wal_frame_parse(SPAN_LIT(empty), &f, &e), 0);
	assert_int_equal(f.data.n, 0);
	assert_int_equal(wal_frame_parse(SPAN_LIT(alive), &f, &e), 0);
	assert_int_equal(f.kind, WAL_KEEPALIVE);
	assert_true(f.end_lsn == UINT64_C(0x100000002));
	assert_true(f.reply_now);
}

static void
truncated_over_long_and_unknown_frames_are_io(void **state)
{
	char frame[40] = "w";
	struct err e = ERR_ZERO;
	struct wal_frame f;

	(void)state;
	assert_int_equal(wal_frame_parse(span_make(frame, 0), &f, &e), -1);
	assert_string_equal(e.text, "the stream sent an empty frame");
	for (size_t n = 1; n < 25; n++)
		assert_int_equal(
			wal_frame_parse(span_make(frame, n), &f, &e), -1);
	assert_int_equal(wal_frame_parse(span_make(frame, 25), &f, &e), 0);
	frame[0] = 'k';
	for (size_t n = 1; n <= sizeof(frame); n++)
		assert_int_equal(wal_frame_parse(span_make(frame, n), &f, &e),
			n == 18 ? 0 : -1);
	assert_string_equal(e.text, "the stream sent a frame 0x6b of 40 bytes");
	assert_int_equal(e.kind, ERR_IO);
	frame[0] = 's';
	assert_int_equal(wal_frame_parse(span_make(frame, 25), &f, &e), -1);
}

/* Pitfall 24.13: flush and apply are what is committed, never more. */
static void
a_status_update_confirms_what_is_committed_alone(void **state)
{
	static const char want[] = "r\0\0\0\x01\0\0\0\x09\0\0\0\x01\0\0\0\x05"
				   "\0\0\0\x01\0\0\0\x05\0\0\0\0\0\0\0\x07";
	static const char level[] = "r\0\0\0\0\0\0\0\x05\0\0\0\0\0\0\0\x05"
				    "\0\0\0\0\0\0\0\x05\xff\xff\xff\xff\xff\xff"
				    "\xff\xff";
	char got[WAL_STATUS_BYTES];

	(void)state;
	wal_status_write(got, UINT64_C(0x100000009), UINT64_C(0x100000005),
		INT64_C(946684800000007));
	assert_memory_equal(got, want, sizeof(want));
	assert_int_equal(sizeof(want), WAL_STATUS_BYTES);
	/* received is at least the pointer */
	wal_status_write(got, 3, 5, INT64_C(946684799999999));
	assert_memory_equal(got, level, sizeof(level));
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_lsn_is_two_halves_in_hex),
		cmocka_unit_test(what_is_no_lsn_is_refused),
		cmocka_unit_test(times_are_clamped_not_overflowed),
		cmocka_unit_test(frames_are_taken_apart),
		cmocka_unit_test(truncated_over_long_and_unknown_frames_are_io),
		cmocka_unit_test(
			a_status_update_confirms_what_is_committed_alone),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Durations and instants: what is read, what is refused, what is shown. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "clk.h"
#include "when.h"

static void
test_durations(void **state)
{
	static const struct {
		const char *text;
		int64_t ms;
	} good[] = { { "PT1S", 1000 }, { "PT0.5S", 500 }, { "PT0,5S", 500 },
		{ "PT1H30M", 5400000 }, { "P1D", 86400000 },
		{ "P1W2DT3H4M5S", 788645000 }, { "PT36H", 129600000 },
		{ "P0D", 0 }, { "PT0S", 0 }, { "PT0.0005S", 1 },
		{ "PT1.0005S", 1001 }, { "PT1.00049S", 1000 },
		{ "PT0.0000000001S", 1 }, { "P0.5D", 43200000 },
		{ "250ms", 250 }, { "30s", 30000 }, { "5m", 300000 },
		{ "2h", 7200000 }, { "1h30m", 5400000 }, { "2d", 172800000 },
		{ "720h", 2592000000 }, { "1d2h3m4s5ms", 93784005 },
		{ "0s", 0 }, { "1.5h", 5400000 }, { "0.1ms", 1 },
		{ "36525d", 3155760000000 } };

	(void)state;
	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
		int64_t ms = -1;

		print_message("# %s\n", good[i].text);
		assert_true(when_duration(span_of(good[i].text), &ms));
		assert_int_equal(ms, good[i].ms);
	}
}

static void
test_bad_durations(void **state)
{
	static const char *const bad[] = { "", "P", "PT", "P1DT", "T1S", "1",
		"s", "P1Y", "P1M", "P1Y2M", "pt1s", "PT1s", "P1H", "PT1D",
		"PT1S1M", "PT1S1S", "1m1h", "1s1s", "1H", "1 s", " 1s", "1s ",
		"-1s", "+1s", "-PT1S", "PT-1S", "PT.5S", "PT5.S", "PT1.5M1S",
		"1.5h1m", "1e3s", "0x1s", "1us", "1w", "P1D2H", "36525d1ms",
		"99999999999999999999s", "P99999999999999999999D",
		"9223372036854775807ms", "PT1STT", "P1DT1HT1M", "1ms1s" };

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		int64_t ms;

		print_message("# %s\n", bad[i]);
		assert_false(when_duration(span_of(bad[i]), &ms));
	}
	assert_false(when_duration(span_make("1s\0", 3), &(int64_t){ 0 }));
}

static void
test_instants(void **state)
{
	static const struct {
		const char *text, *shown;
	} good[] = { { "2026-03-01T09:00:00Z", "2026-03-01T09:00:00.000Z" },
		{ "2026-03-01t09:00:00.25z", "2026-03-01T09:00:00.250Z" },
		{ "2026-03-01T09:00:00+02:00", "2026-03-01T07:00:00.000Z" },
		{ "2026-03-01T09:00:00.5-01:30", "2026-03-01T10:30:00.500Z" },
		{ "+PT5S", "2026-01-01T00:00:05.000Z" },
		{ "+P1D", "2026-01-02T00:00:00.000Z" } };
	static const char *const bad[] = { "", "2026-03-01",
		"2026-03-01T09:00:00", "2026-03-01T09:00:00.000000",
		"2026-03-01T09:00:00+02", "2026-03-01T09:00:00+0200",
		"2026-03-01T09:00Z", "2026-02-30T09:00:00Z", "+", "+5s", "+P",
		"PT5S", "-PT5S", "now", "1772355600", "2026-03-01T09:00:00Zx" };
	int64_t now, at;

	(void)state;
	assert_true(clk_parse_iso(SPAN_LIT("2026-01-01T00:00:00Z"), &now));
	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
		char out[CLK_ISO_MAX];

		assert_true(when_instant(span_of(good[i].text), now, &at));
		assert_string_equal(clk_iso_ms(at, out), good[i].shown);
	}
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		print_message("# %s\n", bad[i]);
		assert_false(when_instant(span_of(bad[i]), now, &at));
	}
}

static void
test_text(void **state)
{
	static const struct {
		int64_t ms;
		const char *text;
	} shown[] = { { 0, "0s" }, { 250, "250ms" }, { 1000, "1s" },
		{ 1500, "1s500ms" }, { 60000, "1m" }, { 90000, "1m30s" },
		{ 302400000, "84h" }, { 604800000, "168h" },
		{ 5400000, "1h30m" }, { 3690000, "1h1m30s" },
		{ 3600001, "1h1ms" }, { 3155760000000, "876600h" } };

	(void)state;
	for (size_t i = 0; i < sizeof(shown) / sizeof(shown[0]); i++) {
		char out[WHEN_SPAN_MAX];
		int64_t ms;

		assert_string_equal(when_text(shown[i].ms, out), shown[i].text);
		assert_true(when_duration(span_of(out), &ms));
		assert_int_equal(ms, shown[i].ms);
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_durations),
		cmocka_unit_test(test_bad_durations),
		cmocka_unit_test(test_instants),
		cmocka_unit_test(test_text),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

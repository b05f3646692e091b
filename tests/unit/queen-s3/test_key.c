/* SPDX-License-Identifier: Apache-2.0 */
/* Names: escaping, the grammar of keys, numbers read back, rows. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "buf.h"
#include "key.h"

#define TENANT "00000000-0000-0000-0000-000000000001"

static struct buf out;

static int
teardown(void **state)
{
	(void)state;
	buf_fini(&out);
	return 0;
}

static const char *
text(void)
{
	buf_putc(&out, '\0');
	return out.p;
}

static const struct key_of orders = {
	.prefix = "queen",
	.tenant = { .p = TENANT, .n = sizeof(TENANT) - 1 },
	.queue = { .p = "orders", .n = 6 },
};
static const struct key_window window = {
	.k = 1842,
	.start_us = INT64_C(1788516000000000),
	.end_us = INT64_C(1788516300000000),
	.align = S3_HOUR,
	.format = S3_JSONL,
	.codec = S3_ZSTD,
};

static const char *
data(const struct key_of *o, const struct key_window *w,
	const struct key_part *p)
{
	buf_reset(&out);
	key_data(&out, o, w, p);
	return text();
}

static void
merged_key_is_the_documented_one(void **state)
{
	(void)state;
	assert_string_equal(data(&orders, &window, NULL),
		"queen/tenant=" TENANT "/queue=orders/dt=2026-09-04/hour=10/"
		"w-0000001842-1788516000000000-1788516300000000.jsonl.zst");
}

static void
partition_key_is_the_documented_one(void **state)
{
	struct key_window w = window;
	struct key_part p = { SPAN_LIT("cust-0420"), 1400, 1811 };
	(void)state;

	w.format = S3_PARQUET;
	assert_string_equal(data(&orders, &w, &p),
		"queen/tenant=" TENANT "/queue=orders/dt=2026-09-04/hour=10/"
		"w-0000001842-1788516000000000-1788516300000000-p-cust-0420-"
		"000000001400-000000001811.parquet");
}

/* S3 takes 1024 bytes; a name may have three times as many, escaped. */
static void
long_partitions_are_cut(void **state)
{
	char name[1025];
	struct key_part p = { SPAN_ZERO, 0, INT64_MAX }, q;
	char first[1100];
	struct key_of o = orders;
	(void)state;

	/* each place in an escape is cut at once */
	for (size_t n = 0; n < 3; n++) {
		memset(name, 'a', n);
		memset(name + n, '/', 1024 - n);
		p.partition = span_make(name, 1024);
		snprintf(
			first, sizeof(first), "%s", data(&orders, &window, &p));
		assert_in_range(strlen(first), 1020 - 7, 1024);
		assert_memory_equal(strchr(first, '~') - 3, "%2F", 3);
		/* the end tells them apart */
		name[1023] = '.';
		assert_string_not_equal(first, data(&orders, &window, &p));
	}
	assert_non_null(strstr(
		first, "%2F~1cd449b5baeacd50c977b75fdc370714-000000000000-"));
	/* what fits is as it was */
	memset(name, '-', 1024);
	q = (struct key_part){ span_make(name, 840), 0, 0 };
	assert_null(strchr(data(&orders, &window, &q), '~'));
	q.partition.n++;
	assert_non_null(strchr(data(&orders, &window, &q), '~'));
	/* and what never would is told */
	assert_true(key_fits(&orders, "default"));
	o.queue = span_make(name, 512 - 3 - 8 - 10);
	assert_true(key_fits(&o, "default"));
	o.queue.n++;
	assert_false(key_fits(&o, "default"));
	o.queue.n = 300;
	memset(first, 'p', 1000);
	first[490] = '\0';
	o.prefix = first;
	assert_true(key_fits(&o, "default"));
	first[490] = 'p';
	first[600] = '\0';
	assert_false(key_fits(&o, "default"));
}

static void
alignment_and_codec_show(void **state)
{
	struct key_window w = window;
	(void)state;

	w.align = S3_DAY;
	w.codec = S3_GZIP;
	assert_string_equal(data(&orders, &w, NULL),
		"queen/tenant=" TENANT "/queue=orders/dt=2026-09-04/"
		"w-0000001842-1788516000000000-1788516300000000.jsonl.gz");
	w.align = S3_UNALIGNED;
	w.codec = S3_PLAIN;
	w.start_us += 61000001;
	assert_string_equal(data(&orders, &w, NULL),
		"queen/tenant=" TENANT "/queue=orders/dt=2026-09-04/hour=10/"
		"w-0000001842-1788516061000001-1788516300000000.jsonl");
}

static void
keys_of_windows_sort(void **state)
{
	struct key_window w = window;
	char before[512];
	(void)state;

	snprintf(before, sizeof(before), "%s", data(&orders, &w, NULL));
	assert_string_equal(before, data(&orders, &w, NULL));
	for (int i = 0; i < 60; i++) {
		/* over hours and over the end of a day */
		w.k++;
		w.start_us = w.end_us;
		w.end_us += INT64_C(1800000000);
		assert_true(strcmp(before, data(&orders, &w, NULL)) < 0);
		snprintf(before, sizeof(before), "%s", out.p);
	}
}

static void
wide_and_negative_numbers(void **state)
{
	struct key_window w = window;
	(void)state;

	w.k = INT64_C(12345678901);
	w.start_us = -1;
	assert_string_equal(data(&orders, &w, NULL),
		"queen/tenant=" TENANT "/queue=orders/dt=1969-12-31/hour=23/"
		"w-12345678901-0000000000000000-1788516300000000.jsonl.zst");
}

static void
names_are_escaped_and_back(void **state)
{
	static const struct {
		const char *name, *text;
	} cases[] = {
		{ "orders", "orders" },
		{ "A-z_0.9", "A-z_0.9" },
		{ "a/b", "a%2Fb" },
		{ "a b", "a%20b" },
		{ "100%", "100%25" },
		{ "k=v", "k%3Dv" },
		{ "a:b", "a%3Ab" },
		{ "~", "%7E" },
		{ "caff\xc3\xa8", "caff%C3%A8" },
		{ "../../etc", "..%2F..%2Fetc" },
		{ "\x01\xff", "%01%FF" },
		{ "", "" },
	};
	(void)state;

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		buf_reset(&out);
		key_escape(&out, span_of(cases[i].name));
		assert_string_equal(text(), cases[i].text);
		buf_reset(&out);
		key_unescape(&out, span_of(cases[i].text));
		assert_string_equal(text(), cases[i].name);
	}
}

static void
malformed_escape_survives(void **state)
{
	static const char *const texts[] = { "%", "a%", "%4", "%zz", "%4g",
		"100%", "%%", "%\xc3\xa8" };
	(void)state;

	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		buf_reset(&out);
		key_unescape(&out, span_of(texts[i]));
		assert_string_equal(text(), texts[i]);
	}
	buf_reset(&out);
	key_unescape(&out, span_of("%%41%2f%"));
	assert_string_equal(text(), "%A/%");
}

static void
sidecars(const struct key_of *o, char *to, size_t n)
{
	buf_reset(&out);
	key_manifest(&out, o, 7);
	buf_putc(&out, '\n');
	key_plan(&out, o, 7);
	buf_putc(&out, '\n');
	key_checkpoint(&out, o, 7);
	buf_putc(&out, '\n');
	key_manifests(&out, o);
	buf_putc(&out, '\n');
	key_checkpoints(&out, o);
	snprintf(to, n, "%s", text());
}

#define SIDE "queen/_queen/tenant=" TENANT "/queue=orders/"

static void
sidecars_lie_beside_the_data(void **state)
{
	char got[1024];
	(void)state;

	sidecars(&orders, got, sizeof(got));
	assert_string_equal(got, SIDE "windows/0000000007.json\n" SIDE
				      "plans/0000000007.json.zst\n" SIDE
				      "checkpoint/0000000007.json.zst\n" SIDE
				      "windows/\n" SIDE "checkpoint/");
}

static void
tenants_share_no_key(void **state)
{
	struct key_of other = orders;
	char a[1024], b[1024];
	(void)state;

	other.tenant = SPAN_LIT("00000000-0000-0000-0000-000000000002");
	snprintf(a, sizeof(a), "%s", data(&orders, &window, NULL));
	assert_string_not_equal(a, data(&other, &window, NULL));
	/* each names its own tenant and no other */
	sidecars(&other, b, sizeof(b));
	assert_null(strstr(b, TENANT));
	sidecars(&orders, a, sizeof(a));
	assert_null(strstr(a, "000000000002"));
}

static void
numbers_read_back(void **state)
{
	static const char *const foreign[] = { "", "/", "windows/1.json",
		"q/windows/.json", "q/windows/-1.json", "q/windows/1",
		"q/windows/1x.json", "q/windows/1.json.zst",
		"q/windows/1/2.json", "q/windows/99999999999999999999.json",
		"q/xwindows/1.json", "q/checkpoint/1.json", "1.json" };
	int64_t k;
	(void)state;

	for (size_t i = 0; i < sizeof(foreign) / sizeof(foreign[0]); i++)
		assert_false(key_manifest_k(span_of(foreign[i]), &k));
	buf_reset(&out);
	key_manifest(&out, &orders, 1842);
	assert_true(key_manifest_k(buf_span(&out), &k));
	assert_int_equal(k, 1842);
	assert_false(key_checkpoint_k(buf_span(&out), &k));
	buf_reset(&out);
	key_checkpoint(&out, &orders, INT64_C(12345678901));
	assert_true(key_checkpoint_k(buf_span(&out), &k));
	assert_int_equal(k, INT64_C(12345678901));
	assert_false(key_manifest_k(buf_span(&out), &k));
}

static void
rows_escape_the_queue(void **state)
{
	static const struct {
		const char *sink, *queue;
		enum key_row what;
		const char *key;
	} cases[] = {
		{ "default", "orders", KEY_LEASE, "s3:default:orders:lease" },
		{ "sink-2", "a/b", KEY_INTENT, "s3:sink-2:a%2Fb:intent" },
		{ "default", "a b/\xc3\xbc:c", KEY_COMMITTED,
			"s3:default:a%20b%2F%C3%BC%3Ac:committed" },
		{ "default", "node=", KEY_RESUME, "s3:default:node%3D:resume" },
	};
	(void)state;

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		buf_reset(&out);
		key_row(&out, cases[i].sink, span_of(cases[i].queue),
			cases[i].what);
		assert_string_equal(text(), cases[i].key);
	}
	buf_reset(&out);
	key_node(&out, "default", span_of("lake/host 1"));
	assert_string_equal(text(), "s3:default:node=lake%2Fhost%201");
	buf_reset(&out);
	key_nodes(&out, "default");
	assert_string_equal(text(), "s3:default:node=");
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(merged_key_is_the_documented_one),
		cmocka_unit_test(partition_key_is_the_documented_one),
		cmocka_unit_test(long_partitions_are_cut),
		cmocka_unit_test(alignment_and_codec_show),
		cmocka_unit_test(keys_of_windows_sort),
		cmocka_unit_test(wide_and_negative_numbers),
		cmocka_unit_test(names_are_escaped_and_back),
		cmocka_unit_test(malformed_escape_survives),
		cmocka_unit_test(sidecars_lie_beside_the_data),
		cmocka_unit_test(tenants_share_no_key),
		cmocka_unit_test(numbers_read_back),
		cmocka_unit_test(rows_escape_the_queue),
	};

	return cmocka_run_group_tests(tests, NULL, teardown);
}

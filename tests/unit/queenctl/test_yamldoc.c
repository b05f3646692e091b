/* SPDX-License-Identifier: Apache-2.0 */
/* YAML in, YAML out, and back again. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "arena.h"
#include "buf.h"
#include "err.h"
#include "yamldoc.h"

/* Documents joined by `|`. */
static int
collect(void *arg, struct span json, struct err *e)
{
	struct buf *b = arg;

	(void)e;
	if (b->len)
		buf_putc(b, '|');
	buf_put_span(b, json);
	return 0;
}

static void
reads(const char *yaml, const char *want)
{
	struct buf b = BUF_ZERO;
	struct err e = ERR_ZERO;

	if (yamldoc_read(span_of(yaml), collect, &b, &e) != 0)
		fail_msg("%s: %s", yaml, e.text);
	buf_putc(&b, '\0');
	assert_string_equal(b.p, want);
	buf_fini(&b);
}

static void
refuses(const char *yaml, const char *want)
{
	struct buf b = BUF_ZERO;
	struct err e = ERR_ZERO;

	assert_int_equal(yamldoc_read(span_of(yaml), collect, &b, &e), -1);
	assert_int_equal(e.kind, ERR_INPUT);
	if (!strstr(e.text, want))
		fail_msg("%s: %s", yaml, e.text);
	buf_fini(&b);
}

static void
plain_scalars_have_types(void **state)
{
	(void)state;
	reads("a: 1\nb: -2\nc: 1_000\nd: 0x1f\ne: 0o17\nf: 017\ng: 0b101\n",
		"{\"a\":1,\"b\":-2,\"c\":1000,\"d\":31,\"e\":15,\"f\":15,"
		"\"g\":5}");
	reads("a: 1.5\nb: .5\nc: +3\nd: 1e3\n",
		"{\"a\":1.5,\"b\":0.5,\"c\":3,\"d\":1e3}");
	reads("a: yes\nb: Off\nc: TRUE\nd: ~\ne:\nf: Null\n",
		"{\"a\":true,\"b\":false,\"c\":true,\"d\":null,\"e\":null,"
		"\"f\":null}");
	reads("a: 2026-09-03\nb: 12:30:45\nc: 1.2.3\nd: -x\ne: hello 1\n"
	      "f: 0x\ng: y\n",
		"{\"a\":\"2026-09-03\",\"b\":\"12:30:45\",\"c\":\"1.2.3\","
		"\"d\":\"-x\",\"e\":\"hello 1\",\"f\":\"0x\",\"g\":\"y\"}");
}

static void
quoted_scalars_are_strings(void **state)
{
	(void)state;
	reads("a: '1'\nb: \"yes\\n\"\nc: !!int '5'\nd: |\n  x\n  y\n",
		"{\"a\":\"1\",\"b\":\"yes\\n\",\"c\":5,"
		"\"d\":\"x\\ny\\n\"}");
}

static void
structures_aliases_and_merges(void **state)
{
	(void)state;
	reads("- [a, {b: c}]\n- - 1\n", "[[\"a\",{\"b\":\"c\"}],[1]]");
	reads("base: &x {a: 1, b: 2}\nuse: {<<: *x, b: 3}\nsame: *x\n",
		"{\"base\":{\"a\":1,\"b\":2},\"use\":{\"a\":1,\"b\":3},"
		"\"same\":{\"a\":1,\"b\":2}}");
}

static void
streams_of_documents(void **state)
{
	(void)state;
	reads("", "");
	reads("a: 1\n---\nb: 2\n", "{\"a\":1}|{\"b\":2}");
	reads("{\"a\":1}\n{\"b\":\t2}\n", "{\"a\":1}|{\"b\":\t2}");
	reads("{\"a\":1}\n---\n{\"b\":2}\n", "{\"a\":1}|{\"b\":2}");
	reads("{\"n\": 12345678901234567890}", "{\"n\": 12345678901234567890}");
}

static void
bad_yaml_names_its_line(void **state)
{
	(void)state;
	refuses("a: 1\nb: [\n", "line");
	refuses("a: 1\na: 2\n", "line 2: a key is there twice");
	refuses("? [x]\n: 1\n", "line 1: a key is not a scalar");
	refuses("a: *nowhere\n", "line 1");
	refuses("a: \"\xff\"\n", "line");
}

/* A bomb of aliases, and a node inside itself, end at a bound. */
static void
expansion_is_bounded(void **state)
{
	struct buf b = BUF_ZERO;

	(void)state;
	buf_puts(&b, "a0: &a0 [xxxxxxxxxxxxxxxx]\n");
	for (int i = 1; i < 12; i++) {
		buf_printf(&b, "a%d: &a%d [", i, i);
		for (int k = 0; k < 10; k++)
			buf_printf(&b, "%s*a%d", k ? "," : "", i - 1);
		buf_puts(&b, "]\n");
	}
	buf_putc(&b, '\0');
	refuses(b.p, "grows beyond 16 MiB");
	buf_fini(&b);
	refuses("a: &x [*x]\n", "nested too deep");
}

static void
round_trip(const char *json)
{
	struct buf yaml = BUF_ZERO, back = BUF_ZERO;
	struct err e = ERR_ZERO;

	if (yamldoc_write(&yaml, span_of(json), &e) != 0)
		fail_msg("%s: %s", json, e.text);
	if (yamldoc_read(buf_span(&yaml), collect, &back, &e) != 0)
		fail_msg("%.*s: %s", (int)yaml.len, yaml.p, e.text);
	buf_putc(&back, '\0');
	assert_string_equal(back.p, json);
	buf_fini(&yaml);
	buf_fini(&back);
}

static void
what_is_written_reads_back(void **state)
{
	(void)state;
	round_trip("{\"a\":\"true\",\"b\":\"1\",\"c\":\"~\",\"d\":\"\","
		   "\"e\":\"null\",\"f\":\"0x10\",\"g\":\"1.5\",\"h\":\"<<\"}");
	round_trip("{\"a\":true,\"b\":1,\"c\":null,\"d\":1.25,"
		   "\"e\":12345678901234567890,\"f\":-0.0}");
	round_trip("{\"a\":\"line\\nbreak\",\"b\":\" lead\",\"c\":\"trail \","
		   "\"d\":\"# no\",\"e\":\"a: b\",\"f\":\"- x\",\"g\":\"é€\","
		   "\"h\":\"\\t\\u0001\",\"i\":\"'\\\"\",\"j\":\"@x\"}");
	round_trip("[[],{},[{}],{\"k\":[1,[2,\"3\"]]}]");
	round_trip("{\"yes\":1,\"1\":2,\"\":3,\"a b\":4}");
	round_trip("\"on\"");
}

static void
yaml_is_indented_by_two(void **state)
{
	struct buf b = BUF_ZERO;
	struct err e = ERR_ZERO;

	(void)state;
	assert_int_equal(
		yamldoc_write(
			&b, SPAN_LIT("{\"a\":{\"b\":[1,2],\"c\":\"x\"}}"), &e),
		0);
	buf_putc(&b, '\0');
	assert_string_equal(b.p, "a:\n  b:\n  - 1\n  - 2\n  c: x\n");
	buf_fini(&b);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(plain_scalars_have_types),
		cmocka_unit_test(quoted_scalars_are_strings),
		cmocka_unit_test(structures_aliases_and_merges),
		cmocka_unit_test(streams_of_documents),
		cmocka_unit_test(bad_yaml_names_its_line),
		cmocka_unit_test(expansion_is_bounded),
		cmocka_unit_test(what_is_written_reads_back),
		cmocka_unit_test(yaml_is_indented_by_two),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

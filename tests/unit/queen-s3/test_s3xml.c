/* SPDX-License-Identifier: Apache-2.0 */
#include "s3xml.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

#include "arena.h"
#include "buf.h"

static struct arena arena;
static struct s3xml x;

static void
read_text(const char *text)
{
	arena_reset(&arena);
	s3xml_read(&x, &arena, span_of(text));
}

static void
assert_span(struct span got, const char *want)
{
	assert_int_equal(got.n, strlen(want));
	assert_memory_equal(got.p, want, got.n);
}

static void
answers_are_read(void **state)
{
	(void)state;
	read_text("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
		  "<InitiateMultipartUploadResult xmlns=\"http://s3/doc/\">"
		  "<Bucket>b</Bucket><Key>k</Key>\n"
		  "<UploadId> x/y+z= </UploadId>"
		  "</InitiateMultipartUploadResult>\n");
	assert_true(x.whole);
	assert_span(x.root, "InitiateMultipartUploadResult");
	assert_span(x.upload_id, "x/y+z=");
	read_text("<Error><Code>SlowDown</Code><Message>Please &lt;wait&gt;."
		  "</Message><Region>eu-west-1</Region><Code>Two</Code>"
		  "</Error>");
	assert_true(x.whole);
	assert_span(x.root, "Error");
	assert_span(x.code, "SlowDown");
	assert_span(x.message, "Please <wait>.");
	assert_span(x.region, "eu-west-1");
	assert_int_equal(x.upload_id.n, 0);
	read_text("<s3:L xmlns:s3='x'><s3:IsTruncated>true</s3:IsTruncated>"
		  "<s3:Contents><s3:Key>a=1/b c</s3:Key><s3:Size>1</s3:Size>"
		  "</s3:Contents><s3:Prefix/><!-- <Key>no</Key> -->"
		  "<s3:Contents><s3:Key> d&amp;e</s3:Key></s3:Contents>"
		  "</s3:L>");
	assert_true(x.whole);
	assert_true(x.truncated);
	assert_span(x.root, "L");
	assert_int_equal(x.keys_n, 2);
	assert_span(x.keys[0], "a=1/b c");
	assert_span(x.keys[1], " d&e");
}

static void
entities_are_decoded(void **state)
{
	static const struct {
		const char *text, *want;
	} all[] = {
		{ "&quot;abc-3&quot;", "\"abc-3\"" },
		{ "&#34;abc-3&#34;", "\"abc-3\"" },
		{ "&#x22;abc-3&#X22;", "\"abc-3&#X22;" },
		{ "&amp;&lt;&gt;&apos;", "&<>'" },
		{ "&amp;quot;", "&quot;" },
		{ "&#232;&#x20AC;&#128640;", "\xc3\xa8\xe2\x82\xac\xf0\x9f\x9a"
					     "\x80" },
		{ "&nbsp;&;&#;&#x;&#xg;&", "&nbsp;&;&#;&#x;&#xg;&" },
		{ "&#0;&#xD800;&#x110000;", "&#0;&#xD800;&#x110000;" },
		{ "&#99999999999999;", "&#99999999999999;" },
	};
	char text[128];
	(void)state;

	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
		snprintf(text, sizeof(text), "<R><ETag>%s</ETag></R>",
			all[i].text);
		read_text(text);
		assert_true(x.whole);
		assert_span(x.etag, all[i].want);
	}
}

static void
half_an_answer_is_not_whole(void **state)
{
	static const char *const all[] = { "", " ", "x", "<", "<>", "</R>",
		"<R", "<R>", "<R><A>", "<R><A></A>", "<R><A></A></R",
		"<R></R><R></R>", "<R></R>x", "<R><A></B></R>",
		"<!DOCTYPE html><html></html>", "<R><![CDATA[x]]></R>",
		"<R><!-- ", "<?xml ", "{\"error\":1}" };
	(void)state;

	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
		read_text(all[i]);
		assert_false(x.whole);
	}
	read_text("<R/>");
	assert_true(x.whole);
}

/* An element with elements inside is not its text. */
static void
only_leaves_have_a_value(void **state)
{
	(void)state;
	read_text("<R><Code>a<b>c</b>d</Code><Code/><Code>e</Code></R>");
	assert_true(x.whole);
	assert_span(x.code, "e");
}

static void
sizes_are_bounded(void **state)
{
	struct buf b = BUF_ZERO;
	(void)state;

	buf_puts(&b, "<R><Code>");
	for (int i = 0; i < S3XML_VALUE_MAX + 10; i++)
		buf_putc(&b, 'c');
	buf_puts(&b, "</Code>");
	for (int i = 0; i < S3XML_KEYS_MAX + 3; i++)
		buf_printf(&b, "<Contents><Key>%d</Key></Contents>", i);
	buf_puts(&b, "<IsTruncated>false</IsTruncated></R>");
	s3xml_read(&x, &arena, buf_span(&b));
	assert_true(x.whole);
	assert_int_equal(x.code.n, S3XML_VALUE_MAX);
	assert_int_equal(x.keys_n, S3XML_KEYS_MAX);
	assert_span(x.keys[S3XML_KEYS_MAX - 1], "999");
	/* what was left out is asked for behind the last one */
	assert_true(x.truncated);
	buf_fini(&b);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(answers_are_read),
		cmocka_unit_test(entities_are_decoded),
		cmocka_unit_test(half_an_answer_is_not_whole),
		cmocka_unit_test(only_leaves_have_a_value),
		cmocka_unit_test(sizes_are_bounded),
	};
	int rc = cmocka_run_group_tests(tests, NULL, NULL);

	arena_fini(&arena);
	return rc;
}

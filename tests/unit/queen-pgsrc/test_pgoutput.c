/* SPDX-License-Identifier: Apache-2.0 */
/* The decoder: each message, and each way a message can lie. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "arena.h"
#include "err.h"
#include "pgoutput.h"
#include "pgwire.h"

static struct arena arena;
static struct buf wire;
static struct pgoutput m;

static int
teardown(void **state)
{
	(void)state;
	arena_fini(&arena);
	buf_fini(&wire);
	return 0;
}

#define ASSERT_SPAN(s, text)                                                   \
	do {                                                                   \
		assert_int_equal((s).n, strlen(text));                         \
		assert_memory_equal((s).p, text, strlen(text));                \
	} while (0)

static void
ok(enum pgoutput_kind kind)
{
	struct err e = ERR_ZERO;

	if (pgoutput_parse(buf_span(&wire), &arena, &m, &e) != 0)
		fail_msg("%s", e.text);
	assert_int_equal(m.kind, kind);
}

static const char *
refused(struct span s)
{
	static struct err e;
	/* exactly as large as it says, so that sanitizers see an overread */
	char *copy = malloc(s.n ? s.n : 1);
	int rc;

	memcpy(copy, s.p, s.n);
	e = (struct err)ERR_ZERO;
	rc = pgoutput_parse(span_make(copy, s.n), &arena, &m, &e);
	free(copy);
	assert_int_equal(rc, -1);
	assert_int_equal(e.kind, ERR_IO);
	return e.text;
}

/* Every proper prefix is refused, and one byte more too. */
static void
is_exact(void)
{
	for (size_t n = 1; n < wire.len; n++)
		refused(span_make(wire.p, n));
	buf_putc(&wire, 0);
	refused(buf_span(&wire));
	wire.len--;
}

static void
transactions_are_bracketed(void **state)
{
	(void)state;
	wire_begin(&wire, UINT64_C(0x1a2b3c8), 1000000, 912);
	ok(PGOUTPUT_BEGIN);
	assert_true(m.begin.final_lsn == UINT64_C(0x1a2b3c8));
	assert_true(m.begin.at_us == 1000000);
	assert_int_equal(m.begin.xid, 912);
	is_exact();
	wire_commit(&wire, 5, UINT64_C(0x100000000));
	ok(PGOUTPUT_COMMIT);
	assert_true(m.commit.commit_lsn == 5);
	assert_true(m.commit.end_lsn == UINT64_C(0x100000000));
	is_exact();
	buf_reset(&wire);
	buf_putc(&wire, 'O');
	wire_be(&wire, 77, 8);
	wire_cstr(&wire, "elsewhere");
	ok(PGOUTPUT_ORIGIN);
	assert_true(m.origin.lsn == 77);
	ASSERT_SPAN(m.origin.name, "elsewhere");
	is_exact();
}

static void
relations_carry_columns_and_key_flags(void **state)
{
	static const char *const columns[] = { "*id", "na\xc3\xafve", "" };
	static const uint32_t types[] = { 20, 25, 4000000000u };

	(void)state;
	wire_relation(&wire, 16400, "public", "orders", 'd', columns, types, 3);
	ok(PGOUTPUT_RELATION);
	assert_int_equal(m.relation.oid, 16400);
	ASSERT_SPAN(m.relation.schema, "public");
	ASSERT_SPAN(m.relation.name, "orders");
	assert_int_equal(m.relation.identity, 'd');
	assert_int_equal(m.relation.n, 3);
	assert_true(m.relation.columns[0].key);
	ASSERT_SPAN(m.relation.columns[0].name, "id");
	assert_int_equal(m.relation.columns[0].typmod, -1);
	assert_false(m.relation.columns[1].key);
	ASSERT_SPAN(m.relation.columns[1].name, "na\xc3\xafve");
	assert_true(m.relation.columns[2].type_oid == 4000000000u);
	is_exact();
	wire_relation(&wire, 1, "", "x", 'f', columns, types, 0);
	ok(PGOUTPUT_RELATION);
	ASSERT_SPAN(m.relation.schema, "pg_catalog");
	wire_relation(&wire, 1, "", "x", 'q', columns, types, 0);
	assert_string_equal(refused(buf_span(&wire)),
		"message 'R' of the stream has an unknown replica identity, "
		"at byte 9 of 11");
	buf_reset(&wire);
	buf_putc(&wire, 'Y');
	wire_be(&wire, 16500, 4);
	wire_cstr(&wire, "");
	wire_cstr(&wire, "mood");
	ok(PGOUTPUT_TYPE);
	assert_int_equal(m.type.oid, 16500);
	ASSERT_SPAN(m.type.schema, "pg_catalog");
	ASSERT_SPAN(m.type.name, "mood");
	is_exact();
}

static void
rows_hold_text_null_and_unchanged(void **state)
{
	(void)state;
	wire_insert(&wire, 9, "7", NULL, "", WIRE_UNCHANGED, WIRE_END);
	ok(PGOUTPUT_INSERT);
	assert_int_equal(m.change.relation, 9);
	assert_int_equal(m.change.old_kind, PGOUTPUT_OLD_NONE);
	assert_int_equal(m.change.old.n, 0);
	assert_int_equal(m.change.new.n, 4);
	assert_int_equal(m.change.new.d[0].state, DATUM_TEXT);
	ASSERT_SPAN(m.change.new.d[0].text, "7");
	assert_int_equal(m.change.new.d[1].state, DATUM_NULL);
	assert_int_equal(m.change.new.d[2].state, DATUM_TEXT);
	assert_int_equal(m.change.new.d[2].text.n, 0);
	assert_int_equal(m.change.new.d[3].state, DATUM_UNCHANGED);
	is_exact();
}

static void
updates_and_deletes_bring_key_or_row(void **state)
{
	(void)state;
	wire_change(&wire, 'U', 9);
	wire_row(&wire, 'N', "1", "a", WIRE_END);
	ok(PGOUTPUT_UPDATE);
	assert_int_equal(m.change.old_kind, PGOUTPUT_OLD_NONE);
	is_exact();
	wire_change(&wire, 'U', 9);
	wire_row(&wire, 'K', "1", NULL, WIRE_END);
	wire_row(&wire, 'N', "2", "a", WIRE_END);
	ok(PGOUTPUT_UPDATE);
	assert_int_equal(m.change.old_kind, PGOUTPUT_OLD_KEY);
	ASSERT_SPAN(m.change.old.d[0].text, "1");
	ASSERT_SPAN(m.change.new.d[0].text, "2");
	is_exact();
	wire_change(&wire, 'D', 9);
	wire_row(&wire, 'O', "1", "a", WIRE_END);
	ok(PGOUTPUT_DELETE);
	assert_int_equal(m.change.old_kind, PGOUTPUT_OLD_ROW);
	assert_int_equal(m.change.new.n, 0);
	is_exact();
}

static void
misplaced_rows_are_refused(void **state)
{
	(void)state;
	wire_change(&wire, 'I', 9);
	wire_row(&wire, 'K', "1", WIRE_END);
	assert_string_equal(refused(buf_span(&wire)),
		"message 'I' of the stream has an unknown row mark, at byte 6 "
		"of 14");
	wire_change(&wire, 'D', 9);
	wire_row(&wire, 'N', "1", WIRE_END);
	refused(buf_span(&wire));
	wire_change(&wire, 'U', 9);
	wire_row(&wire, 'K', "1", WIRE_END);
	wire_row(&wire, 'K', "1", WIRE_END);
	refused(buf_span(&wire));
	wire_change(&wire, 'U', 9);
	wire_row(&wire, 'K', "1", WIRE_END);
	wire_row(&wire, 'N', "1", "2", WIRE_END);
	assert_string_equal(refused(buf_span(&wire)),
		"message 'U' of the stream has rows of unequal width, at byte "
		"29 of 29");
}

static void
counts_are_checked_before_memory_is_taken(void **state)
{
	size_t before;

	(void)state;
	arena_reset(&arena);
	before = arena.total_bytes;
	wire_change(&wire, 'I', 9);
	buf_put(&wire, "N\xff\xff", 3);
	assert_string_equal(refused(buf_span(&wire)),
		"message 'I' of the stream counts more than it holds, at byte "
		"8 of 8");
	wire_change(&wire, 'I', 9);
	buf_put(&wire, "N\0\1t\xff\xff\xff\xff", 8);
	refused(buf_span(&wire));
	wire_change(&wire, 'I', 9);
	buf_put(&wire, "N\0\1b\0\0\0\0", 8);
	assert_string_equal(refused(buf_span(&wire)),
		"message 'I' of the stream has a value of unknown kind, at "
		"byte 9 of 13");
	wire_truncate(&wire, 0, NULL, 0);
	memset(wire.p + 1, 0xff, 4);
	refused(buf_span(&wire));
	buf_reset(&wire);
	buf_put(&wire, "R\0\0\0\1a\0b\0d\xff\xff", 12);
	refused(buf_span(&wire));
	assert_true(arena.total_bytes <= before + (64 << 10));
}

static void
text_that_is_not_utf8_is_refused(void **state)
{
	static const char *const columns[] = { "*\xff" };
	static const uint32_t types[] = { 25 };

	(void)state;
	wire_insert(&wire, 9, "a\xffz", WIRE_END);
	assert_string_equal(refused(buf_span(&wire)),
		"message 'I' of the stream has a value that is not UTF-8, at "
		"byte 16 of 16");
	wire_relation(&wire, 9, "s", "t", 'd', columns, types, 1);
	assert_string_equal(refused(buf_span(&wire)),
		"message 'R' of the stream has a name that is not UTF-8, at "
		"byte 15 of 23");
}

static void
truncates_and_logical_messages(void **state)
{
	static const uint32_t oids[] = { 5, 4000000000u };

	(void)state;
	wire_truncate(&wire, 3, oids, 2);
	ok(PGOUTPUT_TRUNCATE);
	assert_true(m.truncate.cascade);
	assert_true(m.truncate.restart_identity);
	assert_int_equal(m.truncate.n, 2);
	assert_int_equal(m.truncate.relations[0], 5);
	assert_true(m.truncate.relations[1] == 4000000000u);
	is_exact();
	wire_truncate(&wire, 1, oids, 1);
	ok(PGOUTPUT_TRUNCATE);
	assert_true(m.truncate.cascade);
	assert_false(m.truncate.restart_identity);
	wire_message(&wire, false, 99, "queen:7be01c4d", "hb");
	ok(PGOUTPUT_MESSAGE);
	assert_false(m.message.transactional);
	assert_true(m.message.lsn == 99);
	ASSERT_SPAN(m.message.prefix, "queen:7be01c4d");
	ASSERT_SPAN(m.message.content, "hb");
	is_exact();
	/* whose prefix it is, it may hold any bytes */
	wire_message(&wire, true, 99, "\xff", "\xfe");
	ok(PGOUTPUT_MESSAGE);
	assert_true(m.message.transactional);
}

static void
unknown_tags_are_not_looked_into(void **state)
{
	struct err e = ERR_ZERO;

	(void)state;
	for (int tag = 0; tag < 256; tag++) {
		char byte = (char)tag;

		if (tag != 0 && strchr("BCORYIUDTM", tag))
			continue;
		assert_int_equal(
			pgoutput_parse(span_make(&byte, 1), &arena, &m, &e), 0);
		assert_int_equal(m.kind, PGOUTPUT_OTHER);
	}
	assert_string_equal(
		refused(SPAN_LIT("")), "the stream sent an empty message");
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(transactions_are_bracketed),
		cmocka_unit_test(relations_carry_columns_and_key_flags),
		cmocka_unit_test(rows_hold_text_null_and_unchanged),
		cmocka_unit_test(updates_and_deletes_bring_key_or_row),
		cmocka_unit_test(misplaced_rows_are_refused),
		cmocka_unit_test(counts_are_checked_before_memory_is_taken),
		cmocka_unit_test(text_that_is_not_utf8_is_refused),
		cmocka_unit_test(truncates_and_logical_messages),
		cmocka_unit_test(unknown_tags_are_not_looked_into),
	};

	return cmocka_run_group_tests(tests, NULL, teardown);
}

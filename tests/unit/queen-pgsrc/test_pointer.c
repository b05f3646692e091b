/* SPDX-License-Identifier: Apache-2.0 */
/* Pointer and lease documents: shape, corruption, same place, claims. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "buf.h"
#include "err.h"
#include "owner.h"
#include "pointer.h"

#define HEAD                                                                   \
	"{\"v\":1,\"epoch\":\"7be01c4d\",\"cell\":\"0123456789ab\","           \
	"\"systemId\":\"7390011223344556677\",\"timeline\":3,"                 \
	"\"slot\":\"queen_orders_src\",\"publication\":\"queen_pub\","         \
	"\"lsn\":\"0/1A2B3C8\","
#define TAIL                                                                   \
	"\"resyncedAt\":\"2026-10-02T11:00:00.000000Z\","                      \
	"\"updatedAt\":\"2026-10-02T11:04:09.120001Z\"}"
#define WHOLE                                                                  \
	HEAD "\"inTxn\":{\"commitLsn\":\"0/1B00000\",\"done\":4000},"          \
	     "\"snapshot\":{\"tables\":[\"public.orders\",\"public.lines\"],"  \
	     "\"table\":\"public.lines\",\"after\":[\"17\",\"3\"],"            \
	     "\"key\":[\"id\",\"n\"],"                                         \
	     "\"keyTypes\":[\"bigint\",\"integer\"],\"rows\":51200}," TAIL

static struct buf out;

static int
teardown(void **state)
{
	(void)state;
	buf_fini(&out);
	return 0;
}

static void
parse(const char *json, struct pointer *p)
{
	struct err e = ERR_ZERO;

	if (pointer_parse(span_of(json), p, &e) != 0)
		fail_msg("%s", e.text);
}

static const char *
write(const struct pointer *p, const struct pointer_place *at)
{
	buf_reset(&out);
	pointer_write(&out, p, at, INT64_C(1790939049120001));
	buf_putc(&out, '\0');
	return out.p;
}

static void
a_pointer_is_read_and_written_whole(void **state)
{
	struct pointer p, copy;

	(void)state;
	parse(WHOLE, &p);
	assert_string_equal(p.epoch, "7be01c4d");
	assert_string_equal(p.cell, "0123456789ab");
	assert_int_equal(p.timeline, 3);
	assert_true(p.place.lsn == 0x1a2b3c8);
	assert_true(p.place.in_txn);
	assert_true(p.place.txn_commit_lsn == 0x1b00000);
	assert_true(p.place.txn_done == 4000);
	assert_true(p.place.in_snapshot);
	assert_int_equal(p.place.table, 1);
	assert_int_equal(p.place.after.n, 4);
	assert_memory_equal(p.place.after.p, "17\0003", 4);
	assert_int_equal(p.keys[0].columns.n, 0);
	assert_int_equal(p.keys[0].types.n, 0);
	assert_true(span_eq(p.keys[1].columns, SPAN_LIT("id\0n")));
	assert_true(span_eq(p.keys[1].types, SPAN_LIT("bigint\0integer")));
	assert_true(p.place.rows == 51200);
	assert_string_equal(write(&p, &p.place), WHOLE);
	pointer_copy(&copy, &p);
	pointer_fini(&p);
	assert_string_equal(write(&copy, &copy.place), WHOLE);
	pointer_fini(&copy);
}

static void
what_is_absent_stays_absent(void **state)
{
	static const char small[] =
		"{\"v\":1,\"epoch\":\"00000000\",\"systemId\":\"1\","
		"\"slot\":\"s\",\"lsn\":\"0/0\",\"inTxn\":null,"
		"\"snapshot\":null,"
		"\"updatedAt\":\"2026-10-02T11:04:09.120001Z\"}";
	struct pointer p;

	(void)state;
	/* as jsonb gives it back, with members of later versions */
	parse("{\"v\": 1, \"lsn\": \"0/0\", \"slot\": \"s\", \"epoch\": "
	      "\"00000000\", \"later\": {\"x\": [1]}, \"systemId\": \"1\"}",
		&p);
	assert_string_equal(write(&p, &p.place), small);
	pointer_fini(&p);
}

/* What an earlier version wrote is used, and told from what is known. */
static void
a_key_without_types_stays_one(void **state)
{
	struct pointer p;

	(void)state;
	parse(HEAD "\"snapshot\":{\"tables\":[\"a\"],\"table\":\"a\","
		   "\"after\":[\"7\"],\"key\":[\"id\"],\"rows\":1}}",
		&p);
	assert_true(span_eq(p.keys[0].columns, SPAN_LIT("id")));
	assert_int_equal(p.keys[0].types.n, 0);
	assert_non_null(strstr(write(&p, &p.place),
		"\"after\":[\"7\"],\"key\":[\"id\"],\"rows\":1}"));
	pointer_fini(&p);
}

static void
an_empty_key_is_not_the_start(void **state)
{
	struct pointer p;

	(void)state;
	parse(HEAD "\"snapshot\":{\"tables\":[\"a\"],\"table\":\"a\","
		   "\"after\":[\"\"],\"rows\":0}}",
		&p);
	assert_true(p.place.has_after);
	assert_int_equal(p.place.after.n, 0);
	assert_non_null(strstr(write(&p, &p.place), "\"after\":[\"\"]"));
	pointer_fini(&p);
	parse(HEAD "\"snapshot\":{\"tables\":[\"a\"],\"table\":\"a\","
		   "\"after\":[\"\",\"x\",\"\"],\"rows\":0}}",
		&p);
	assert_non_null(
		strstr(write(&p, &p.place), "\"after\":[\"\",\"x\",\"\"]"));
	pointer_fini(&p);
	parse(HEAD "\"snapshot\":{\"tables\":[\"a\"],\"table\":\"a\","
		   "\"after\":null,\"rows\":0}}",
		&p);
	assert_false(p.place.has_after);
	assert_non_null(strstr(write(&p, &p.place), "\"after\":null"));
	pointer_fini(&p);
}

static const char *const corrupt[] = { "", "null", "[]", "{}", "{\"v\":1}",
	"{\"v\":1,\"epoch\":\"00000000\",\"systemId\":\"1\",\"slot\":\"s\"}",
	"{\"v\":2,\"epoch\":\"00000000\",\"systemId\":\"1\",\"slot\":\"s\","
	"\"lsn\":\"0/0\"}",
	"{\"v\":1,\"epoch\":\"0000000\",\"systemId\":\"1\",\"slot\":\"s\","
	"\"lsn\":\"0/0\"}",
	"{\"v\":1,\"epoch\":\"0000000A\",\"systemId\":\"1\",\"slot\":\"s\","
	"\"lsn\":\"0/0\"}",
	"{\"v\":1,\"epoch\":\"00000000\",\"systemId\":1,\"slot\":\"s\","
	"\"lsn\":\"0/0\"}",
	"{\"v\":1,\"epoch\":\"00000000\",\"systemId\":\"1\",\"slot\":\"\","
	"\"lsn\":\"0/0\"}",
	"{\"v\":1,\"epoch\":\"00000000\",\"systemId\":\"1\",\"slot\":\"s\","
	"\"lsn\":\"0\"}",
	HEAD "\"inTxn\":{\"commitLsn\":\"0/1\"}}",
	HEAD "\"inTxn\":{\"commitLsn\":\"0/1\",\"done\":-1}}",
	HEAD "\"inTxn\":{\"commitLsn\":\"0/1\",\"done\":1.5}}",
	HEAD "\"inTxn\":[]}", HEAD "\"timeline\":0}",
	HEAD "\"timeline\":4294967296}", HEAD "\"cell\":\"\"}",
	HEAD "\"snapshot\":{}}", HEAD "\"snapshot\":7}",
	HEAD "\"snapshot\":{\"tables\":[\"a\"],\"table\":\"b\",\"rows\":0}}",
	HEAD "\"snapshot\":{\"tables\":[],\"table\":\"b\",\"rows\":0}}",
	HEAD "\"snapshot\":{\"tables\":[\"a\"],\"table\":\"a\"}}",
	HEAD "\"snapshot\":{\"tables\":[\"a\"],\"table\":\"a\",\"rows\":0,"
	     "\"after\":[]}}",
	HEAD "\"snapshot\":{\"tables\":[\"a\"],\"table\":\"a\",\"rows\":0,"
	     "\"after\":[7]}}",
	HEAD "\"snapshot\":{\"tables\":[\"a\"],\"table\":\"a\",\"rows\":0,"
	     "\"after\":[\"\\u0000\"]}}",
	HEAD "\"snapshot\":{\"tables\":[\"a\"],\"table\":\"a\",\"rows\":0,"
	     "\"key\":[\"id\"],\"keyTypes\":\"integer\"}}",
	HEAD "\"snapshot\":{\"tables\":[\"a\"],\"table\":\"a\",\"rows\":0,"
	     "\"key\":[\"id\"],\"keyTypes\":[23]}}",
	HEAD "\"snapshot\":{\"tables\":[\"a\"],\"table\":\"a\",\"rows\":0,"
	     "\"key\":[\"id\"],\"keyTypes\":[]}}",
	HEAD "\"snapshot\":{\"tables\":[\"a\"],\"table\":\"a\",\"rows\":0,"
	     "\"key\":{\"id\":1}}}",
	HEAD "\"snapshot\":{\"tables\":[1],\"table\":\"a\",\"rows\":0}}",
	HEAD "\"inTxn\":null", HEAD "\"inTxn\":null}}" };

static void
corruption_is_never_read_as_a_default(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(corrupt) / sizeof(*corrupt); i++) {
		struct err e = ERR_ZERO;
		struct pointer p;

		if (pointer_parse(span_of(corrupt[i]), &p, &e) != -1)
			fail_msg("parses: %s", corrupt[i]);
		assert_int_equal(e.kind, ERR_INPUT);
		assert_memory_equal(e.text, "the pointer cannot be read: ", 28);
		assert_null(p.arena.head);
	}
}

static void
the_same_place_is_epoch_lsn_txn_and_snapshot(void **state)
{
	struct pointer p, q;
	struct pointer_place at;

	(void)state;
	parse(WHOLE, &p);
	parse(WHOLE, &q);
	assert_true(pointer_is_at(&q, &p, &p.place));
	q.epoch[0] = '0';
	assert_false(pointer_is_at(&q, &p, &p.place));
	q.epoch[0] = '7';
	/* bookkeeping does not count */
	q.timeline = 9;
	q.resynced_at = SPAN_LIT("");
	assert_true(pointer_is_at(&q, &p, &p.place));
	q.tables_n = 1;
	assert_false(pointer_is_at(&q, &p, &p.place));
	q.tables_n = 2;
	q.tables[0] = SPAN_LIT("public.other");
	assert_false(pointer_is_at(&q, &p, &p.place));

#define DIFFERS(change)                                                        \
	at = p.place;                                                          \
	assert_true(pointer_place_same(&at, &p.place));                        \
	at.change;                                                             \
	assert_false(pointer_place_same(&at, &p.place))
	DIFFERS(lsn++);
	DIFFERS(in_txn = false);
	DIFFERS(txn_commit_lsn++);
	DIFFERS(txn_done++);
	DIFFERS(in_snapshot = false);
	DIFFERS(table = 0);
	DIFFERS(has_after = false);
	DIFFERS(after = SPAN_LIT("17"));
	DIFFERS(rows++);
	/* what is not there has no say */
	at = p.place;
	at.in_txn = p.place.in_txn = false;
	at.txn_done = 1;
	assert_true(pointer_place_same(&at, &p.place));
	pointer_fini(&p);
	pointer_fini(&q);
}

/* ---- lease ---- */

static void
a_lease_is_node_incarnation_and_since(void **state)
{
	static const char json[] = "{\"node\":\"node-a\",\"incarnation\":"
				   "\"5b0e\",\"since\":"
				   "\"2026-10-02T10:00:00.000000Z\"}";
	static const char *const bad[] = { "", "[]", "{}",
		"{\"node\":\"a\",\"incarnation\":\"b\"}",
		"{\"node\":\"a\",\"since\":\"2026-10-02T10:00:00Z\"}",
		"{\"node\":\"\",\"incarnation\":\"b\",\"since\":"
		"\"2026-10-02T10:00:00Z\"}",
		"{\"node\":1,\"incarnation\":\"b\",\"since\":"
		"\"2026-10-02T10:00:00Z\"}",
		"{\"node\":\"a\",\"incarnation\":\"b\",\"since\":\"now\"}" };
	struct arena a = ARENA_ZERO;
	struct owner o;

	(void)state;
	assert_true(owner_parse(SPAN_LIT(json), &a, &o));
	buf_reset(&out);
	owner_write(&out, &o);
	assert_int_equal(out.len, sizeof(json) - 1);
	assert_memory_equal(out.p, json, out.len);
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
		assert_false(owner_parse(span_of(bad[i]), &a, &o));
	arena_fini(&a);
}

static void
an_earlier_life_of_my_node_is_taken_over(void **state)
{
	const struct owner me = { SPAN_LIT("a"), SPAN_LIT("2"), 0 };
	struct owner row = me;

	(void)state;
	assert_int_equal(owner_judge(&row, &me), OWNER_MINE);
	row.incarnation = SPAN_LIT("1");
	assert_int_equal(owner_judge(&row, &me), OWNER_EARLIER_LIFE);
	row.node = SPAN_LIT("b");
	assert_int_equal(owner_judge(&row, &me), OWNER_STANDBY);
	row.incarnation = me.incarnation;
	assert_int_equal(owner_judge(&row, &me), OWNER_STANDBY);
	assert_int_equal(owner_judge(NULL, &me), OWNER_STANDBY);
}

static void
lease_times_follow_the_ttl(void **state)
{
	(void)state;
	assert_int_equal(owner_ttl_s(10999), 10);
	assert_int_equal(owner_ttl_s(999), 1);
	assert_int_equal(owner_refresh_ms(10000), 3333);
	assert_int_equal(owner_refresh_ms(200), 100);
	assert_int_equal(owner_claim_ms(10000, 0), 4000);
	assert_int_equal(owner_claim_ms(10000, 200), 5000);
	assert_int_equal(owner_claim_ms(10000, 400), 6000);
	assert_int_equal(owner_claim_ms(10000, 401), 4000);
	assert_in_range(owner_claim_ms(3000, UINT32_MAX), 1200, 1800);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_pointer_is_read_and_written_whole),
		cmocka_unit_test(what_is_absent_stays_absent),
		cmocka_unit_test(a_key_without_types_stays_one),
		cmocka_unit_test(an_empty_key_is_not_the_start),
		cmocka_unit_test(corruption_is_never_read_as_a_default),
		cmocka_unit_test(the_same_place_is_epoch_lsn_txn_and_snapshot),
		cmocka_unit_test(a_lease_is_node_incarnation_and_since),
		cmocka_unit_test(an_earlier_life_of_my_node_is_taken_over),
		cmocka_unit_test(lease_times_follow_the_ttl),
	};

	return cmocka_run_group_tests(tests, NULL, teardown);
}

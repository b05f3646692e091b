/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "op_fix.h"

static void
refuse(const struct conndoc_sink *doc, const struct span *key, const char *code,
	const char *text)
{
	struct plan_facts facts = op_fix_facts(key);
	struct connfault f = { .code = NULL };
	struct plan *p;

	assert_int_equal(plan_make(doc, &facts, &p, &f), -1);
	assert_null(p);
	assert_string_equal(f.code, code);
	assert_string_equal(f.text, text);
	assert_false(f.retryable);
}

static void
keys_are_columns_that_are_written(void **state)
{
	struct conndoc_sink doc = op_fix_doc(CONNDOC_UPSERT);
	struct span key[1];

	(void)state;
	refuse(&doc, NULL, "no_key",
		"table s.t has neither a primary key nor a replica identity "
		"index; add a primary key, or set sink.key to columns with a "
		"unique index");
	doc.key = (struct conndoc_list){ key, 1 };
	key[0] = SPAN_LIT("ID");
	refuse(&doc, op_fix_id, "no_key",
		"table s.t has no column \"ID\", which sink.key names; name "
		"columns of the table");
	key[0] = SPAN_LIT("twice");
	refuse(&doc, op_fix_id, "no_key",
		"column \"twice\" of table s.t is generated and cannot be part "
		"of sink.key; name other columns");
}

static void
metadata_go_to_columns_that_are_written(void **state)
{
	struct conndoc_sink doc = op_fix_doc(CONNDOC_APPEND);

	(void)state;
	doc.metadata[CONNDOC_META_OFFSET] = SPAN_LIT("off");
	refuse(&doc, NULL, "metadata_column",
		"sink.metadata names column \"off\", which is not in table "
		"s.t; name columns that can be written");
	doc.metadata[CONNDOC_META_OFFSET] = SPAN_LIT("twice");
	refuse(&doc, NULL, "metadata_column",
		"sink.metadata names column \"twice\", which is generated in "
		"table s.t; name columns that can be written");
	doc.metadata[CONNDOC_META_OFFSET] = SPAN_LIT("n");
	doc.metadata[CONNDOC_META_PAYLOAD] = SPAN_LIT("n");
	refuse(&doc, NULL, "metadata_column",
		"sink.metadata names column \"n\" twice; name each once");
}

static void
parameters_are_bounded(void **state)
{
	static struct span params[PLAN_PARAMS_MAX + 1];
	struct conndoc_sink doc = op_fix_doc(CONNDOC_SQL);
	struct plan_facts facts = op_fix_facts(NULL);
	struct connfault f = { .code = NULL };
	struct plan *p;

	(void)state;
	for (int i = 0; i <= PLAN_PARAMS_MAX; i++)
		params[i] = SPAN_LIT("$.a");
	doc.params = (struct conndoc_list){ params, PLAN_PARAMS_MAX + 1 };
	refuse(&doc, NULL, "statement",
		"sink.params has 1001 entries; at most 1000 are possible");
	params[1] = SPAN_LIT("$a");
	doc.params.n = 2;
	refuse(&doc, NULL, "statement",
		"sink.params[1] has no . or [ behind the $ or a step");
	params[1] = SPAN_LIT("$");
	assert_int_equal(plan_make(&doc, &facts, &p, &f), 0);
	assert_int_equal(p->params_n, 2);
	plan_free(p);
	plan_free(NULL);
}

static void
plans_are_the_same_when_their_statements_are(void **state)
{
	struct conndoc_sink doc = op_fix_doc(CONNDOC_CDC);
	struct plan_column columns[OP_FIX_N(op_fix_columns)];
	struct plan_facts facts = op_fix_facts(op_fix_id);
	struct connfault f = { .code = NULL };
	struct plan *a, *b;

	(void)state;
	memcpy(columns, op_fix_columns, sizeof(columns));
	assert_int_equal(plan_make(&doc, &facts, &a, &f), 0);
	assert_int_equal(a->key_n, 1);
	assert_int_equal(plan_column(a, SPAN_LIT("Odd \"name\"")), 2);
	assert_int_equal(plan_column(a, SPAN_LIT("odd")), -1);
	facts.columns = columns;
	for (int i = 0; i < 7; i++) {
		memcpy(columns, op_fix_columns, sizeof(columns));
		facts.oid = i == 1 ? 2 : 1;
		facts.key = i == 2 ? op_fix_no : op_fix_id;
		if (i == 3)
			columns[1].type = SPAN_LIT("numeric(10,3)");
		if (i == 4)
			columns[1].name = SPAN_LIT("m");
		if (i == 5)
			columns[1].generated = true;
		if (i == 6)
			columns[4].identity_always = false;
		assert_int_equal(plan_make(&doc, &facts, &b, &f), 0);
		assert_int_equal(plan_same(a, b), i == 0);
		plan_free(b);
	}
	plan_free(a);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(keys_are_columns_that_are_written),
		cmocka_unit_test(metadata_go_to_columns_that_are_written),
		cmocka_unit_test(parameters_are_bounded),
		cmocka_unit_test(plans_are_the_same_when_their_statements_are),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

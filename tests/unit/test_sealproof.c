/* SPDX-License-Identifier: Apache-2.0 */
/* Keys against those a cell knows; the cell is two functions here. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "err.h"
#include "pgserver.h"
#include "seal.h"
#include "sealproof.h"

#define K(c) c c c c c c c c c c c c c c c c
#define K1 K("1111")
#define K2 K("2222")

static const char cell_sql[] =
	"create schema queen;"
	"create table queen.proofs (n serial, id int unique, box bytea);"
	"create function queen.seal_proofs_v1(p int) returns table (key_id int,"
	" newest boolean, box bytea) language sql as $$ select id,"
	" n = (select max(n) from queen.proofs), box from queen.proofs"
	" where id = p or n = (select max(n) from queen.proofs) $$;"
	"create function queen.seal_prove_v1(p int, b bytea) returns void"
	" language sql as $$ insert into queen.proofs (id, box)"
	" values (p, b) on conflict do nothing $$;";

static int
check(PGconn *c, const char *key, const char *old, struct err *e)
{
	struct seal *s = NULL;
	int rc;

	*e = (struct err)ERR_ZERO;
	assert_int_equal(seal_new(key, old, &s, e), 0);
	rc = sealproof_check(s, c, e);
	seal_free(s);
	return rc;
}

static void
assert_refused(PGconn *c, const char *key, const char *old, const char *says)
{
	struct err e;

	assert_int_equal(check(c, key, old, &e), -1);
	assert_int_equal(e.kind, ERR_CONFIG);
	assert_non_null(strstr(e.text, says));
	assert_null(strstr(e.text, "1111"));
}

static void
test_keys_of_a_cell(void **state)
{
	PGconn *c = *state;
	struct err e;

	assert_int_equal(check(c, NULL, NULL, &e), 0);
	/* one that only opens makes nothing known */
	assert_int_equal(check(c, NULL, K2, &e), 0);
	assert_string_equal(
		pgserver_value(c, "select count(*) from queen.proofs"), "0");
	assert_int_equal(check(c, K1, NULL, &e), 0);
	assert_int_equal(check(c, K1, NULL, &e), 0);
	assert_string_equal(
		pgserver_value(c, "select count(*) from queen.proofs"), "1");
	assert_refused(c, K2, NULL, "the cell seals with key id");
	assert_int_equal(check(c, NULL, NULL, &e), 0);
	/* a new key beside the old one, which then is not the newest */
	assert_int_equal(check(c, K2, K1, &e), 0);
	assert_refused(c, K1, NULL, "the cell seals with key id");
	assert_int_equal(check(c, K1, K2, &e), 0);
	/* another key with our id */
	pgserver_value(c,
		"update queen.proofs set box = set_byte(box, 30, 255 -"
		" get_byte(box, 30))");
	assert_refused(c, K1, K2, "the cell has used another key id");
	pgserver_value(c, "drop table queen.proofs cascade");
	assert_int_equal(check(c, K1, NULL, &e), -1);
	assert_int_not_equal(e.kind, ERR_CONFIG);
}

static struct pgserver server;

static int
setup(void **state)
{
	pgserver_init(&server);
	*state = pgserver_connect(&server, "postgres");
	pgserver_value(*state, cell_sql);
	return 0;
}

static int
teardown(void **state)
{
	PQfinish(*state);
	pgserver_fini(&server);
	return 0;
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(
			test_keys_of_a_cell, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

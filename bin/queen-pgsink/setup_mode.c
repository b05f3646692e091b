/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a mode needs beyond the columns: a unique index on exactly the key, or
 * a statement that takes the parameters.  The server itself is asked, as it
 * would be for each message.
 */
#include <string.h>
#include <strings.h>

#include "buf.h"
#include "conndoc.h"
#include "op.h"
#include "pglink.h"
#include "pgquote.h"
#include "pgtext.h"
#include "plan.h"
#include "progress.h"
#include "setup_int.h"

/* ---- statement: does it take as many parameters as there are? ---- */

static int
refuse_count(struct setup *s, const char *what)
{
	return connfault_set(&s->fault, "statement", false,
		"sink.statement uses %s parameters than the %zu of "
		"sink.params: give each $n its entry",
		what, s->plan->params_n);
}

static void
describe(struct setup *s, size_t n, pglink_fn fn)
{
	pglink_describe(s->session.link,
		arena_cstr(&s->arena, s->doc->statement), (int)n, fn, s);
	pglink_sync(s->session.link);
}

static void
on_fewer(void *arg, PGresult *const *res, int n, const struct connfault *why)
{
	struct setup *s = arg;

	(void)n;
	if (why && why->retryable) {
		setup_fail(s, why);
		return;
	}
	/* that it does not prepare without a type for the last one is use */
	if (!why && PQnparams(res[0]) < (int)s->plan->params_n) {
		refuse_count(s, "fewer");
		setup_finish(s);
		return;
	}
	setup_take_over(s);
}

static void
on_described(
	void *arg, PGresult *const *res, int n, const struct connfault *why)
{
	struct setup *s = arg;
	size_t have = s->plan->params_n;
	struct connfault f;

	(void)n;
	if (why && why->retryable) {
		setup_fail(s, why);
	} else if (why) {
		connfault_set(&f, "statement", false,
			"sink.statement does not prepare%s: %s",
			connfault_is(why, "42804") || connfault_is(why, "42883")
				? " (parameters are text, to be cast as in "
				  "$1::bigint)"
				: "",
			why->text);
		setup_fail(s, &f);
	} else if (PQnparams(res[0]) > (int)have) {
		refuse_count(s, "more");
		setup_finish(s);
	} else if (have == 0) {
		setup_take_over(s);
	} else {
		describe(s, have - 1, on_fewer);
	}
}

/* ---- a unique index on exactly the key ---- */

static void
refuse_key(struct setup *s)
{
	struct buf key = BUF_ZERO;

	for (size_t i = 0; i < s->plan->key_n; i++) {
		if (i)
			buf_puts(&key, ", ");
		pgquote_ident(&key, s->plan->columns[s->plan->key[i]].name);
	}
	connfault_set(&s->fault, "no_key", false,
		"no unique index of %.*s that is not deferrable is on exactly "
		"(%.*s): run "
		"CREATE UNIQUE INDEX ON %.*s (%.*s), or name the columns of "
		"one that is in sink.key",
		SPAN_ARG(s->doc->table.text), (int)key.len, key.p,
		SPAN_ARG(s->doc->table.text), (int)key.len, key.p);
	buf_fini(&key);
}

static void
on_index(void *arg, PGresult *const *res, int n, const struct connfault *why)
{
	struct setup *s = arg;

	(void)n;
	if (why) {
		setup_fail(s, why);
	} else if (!pgtext_bool(res[0], 0, 0)) {
		refuse_key(s);
		setup_finish(s);
	} else {
		setup_take_over(s);
	}
}

/* The planner takes a deferrable one, the executor then refuses each row. */
static void
check_index(struct setup *s)
{
	const struct plan *p = s->plan;
	struct buf oid = BUF_ZERO, key = BUF_ZERO;
	struct pglink_param params[2];

	buf_printf(&oid, "%u", p->oid);
	progress_array_open(&key);
	for (size_t i = 0; i < p->key_n; i++)
		progress_array_text(&key, p->columns[p->key[i]].name);
	progress_array_close(&key);
	params[0].text = buf_span(&oid);
	params[1].text = buf_span(&key);
	pglink_exec(s->session.link, NULL,
		"select exists (select from pg_catalog.pg_index i"
		" where i.indrelid = $1::pg_catalog.oid and i.indisunique"
		" and i.indimmediate and i.indisvalid and i.indpred is null"
		" and i.indexprs is null"
		" and i.indnkeyatts ="
		" pg_catalog.cardinality($2::pg_catalog.text[])"
		" and i.indnkeyatts = (select pg_catalog.count(*)"
		" from pg_catalog.pg_attribute a where a.attrelid = i.indrelid"
		" and a.attnum = any ("
		"(i.indkey::pg_catalog.int2[])[0:i.indnkeyatts - 1])"
		" and a.attname = any ($2::pg_catalog.text[])))",
		params, 2, on_index, s);
	pglink_sync(s->session.link);
	buf_fini(&oid);
	buf_fini(&key);
}

static void
on_probe(void *arg, PGresult *const *res, int n, const struct connfault *why)
{
	struct setup *s = arg;

	(void)res;
	(void)n;
	if (connfault_is(why, "42P10")) {
		refuse_key(s);
		setup_finish(s);
	} else if (why) {
		setup_fail(s, why);
	} else {
		check_index(s);
	}
}

/* Comments nest. */
static struct span
behind_comment(struct span s)
{
	size_t depth = 0;

	do {
		size_t step = 1;

		if (s.n >= 2 && memcmp(s.p, "/*", 2) == 0) {
			depth++;
			step = 2;
		} else if (s.n >= 2 && memcmp(s.p, "*/", 2) == 0) {
			depth--;
			step = 2;
		}
		s = span_make(s.p + step, s.n - step);
	} while (depth > 0 && s.n > 0);
	return s;
}

/* Behind blanks, semicolons and comments. */
static struct span
first_word(struct span s)
{
	size_t n = 0;

	for (;;) {
		s = span_trim(s);
		if (s.n >= 1 && s.p[0] == ';') {
			s = span_make(s.p + 1, s.n - 1);
		} else if (s.n >= 2 && memcmp(s.p, "--", 2) == 0) {
			while (s.n > 0 && *s.p != '\n')
				s = span_make(s.p + 1, s.n - 1);
		} else if (s.n >= 2 && memcmp(s.p, "/*", 2) == 0) {
			s = behind_comment(s);
		} else {
			break;
		}
	}
	while (n < s.n && (s.p[n] | 32) >= 'a' && (s.p[n] | 32) <= 'z')
		n++;
	return span_make(s.p, n);
}

/*
 * Transactions: it would take the messages out of the one of their progress.
 * A copy is a conversation, not a statement with parameters.
 */
static bool
may_not_run(struct span sql)
{
	static const char *const words[] = { "abort", "begin", "commit", "copy",
		"end", "prepare", "release", "rollback", "savepoint", "start" };
	struct span word = first_word(sql);

	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
		if (strlen(words[i]) == word.n &&
			strncasecmp(word.p, words[i], word.n) == 0)
			return true;
	return false;
}

void
setup_check_mode(struct setup *s)
{
	struct buf sql = BUF_ZERO;

	if (s->doc->mode == CONNDOC_SQL && may_not_run(s->doc->statement)) {
		connfault_set(&s->fault, "statement", false,
			"sink.statement must not begin or end transactions, "
			"nor copy: it runs within the transaction of its "
			"progress");
		setup_finish(s);
	} else if (s->doc->mode == CONNDOC_SQL) {
		describe(s, s->plan->params_n, on_described);
	} else if (s->doc->mode != CONNDOC_APPEND) {
		op_sql_probe(s->plan, &sql);
		buf_putc(&sql, '\0');
		pglink_exec(s->session.link, NULL, sql.p, NULL, 0, on_probe, s);
		pglink_sync(s->session.link);
	} else {
		setup_take_over(s);
	}
	buf_fini(&sql);
}

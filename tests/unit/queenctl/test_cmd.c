/* SPDX-License-Identifier: Apache-2.0 */
/* The table of phrases and the parser that reads it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "buf.h"
#include "cmd.h"
#include "err.h"

/* Calls fn for the verb and each alias of a phrase. */
static bool
names_meet(const char *a, const char *a_more, const char *b, const char *b_more)
{
	if (strcmp(a, b) == 0 || cmd_is_word(b_more, a) ||
		cmd_is_word(a_more, b))
		return true;
	for (const char *p = a_more; p && *p; p += strspn(p, " ")) {
		size_t n = strcspn(p, " ");
		char word[40];

		snprintf(word, sizeof(word), "%.*s", (int)n, p);
		if (cmd_is_word(b_more, word))
			return true;
		p += n;
	}
	return false;
}

static void
no_two_phrases_collide(void **state)
{
	(void)state;
	for (size_t i = 0; i < cmd_phrases_n(); i++)
		for (size_t k = i + 1; k < cmd_phrases_n(); k++) {
			const struct cmd_phrase *a = cmd_phrase_at(i);
			const struct cmd_phrase *b = cmd_phrase_at(k);

			if (strcmp(a->group ? a->group : "",
				    b->group ? b->group : "") != 0)
				continue;
			if (names_meet(
				    a->verb, a->aliases, b->verb, b->aliases))
				fail_msg("%s %s and %s", a->group, a->verb,
					b->verb);
		}
}

static void
no_group_hides_another_or_a_word(void **state)
{
	(void)state;
	for (size_t i = 0; i < cmd_groups_n; i++) {
		const struct cmd_group *g = &cmd_groups[i];

		for (size_t k = i + 1; k < cmd_groups_n; k++)
			assert_false(names_meet(g->name, g->aliases,
				cmd_groups[k].name, cmd_groups[k].aliases));
		for (size_t k = 0; k < cmd_phrases_n(); k++)
			if (!cmd_phrase_at(k)->group &&
				names_meet(g->name, g->aliases,
					cmd_phrase_at(k)->verb,
					cmd_phrase_at(k)->aliases))
				fail_msg("%s", g->name);
	}
}

static void
every_phrase_has_a_group_help_and_handler(void **state)
{
	(void)state;
	for (size_t i = 0; i < cmd_phrases_n(); i++) {
		const struct cmd_phrase *p = cmd_phrase_at(i);
		bool known = !p->group;
		int min, max;

		for (size_t k = 0; k < cmd_groups_n; k++)
			known |= p->group &&
				 strcmp(p->group, cmd_groups[k].name) == 0;
		assert_true(known);
		assert_true(p->help && *p->help);
		assert_non_null(p->run);
		cmd_args_range(p->args, &min, &max);
		assert_in_range(max, 0, CMD_ARGS_MAX);
	}
}

static void
check_flags(const char *owner, const struct cmd_flag *list)
{
	for (int i = 0; list && list[i].name; i++) {
		const struct cmd_flag *f = &list[i];

		if (!f->help || !*f->help || i >= CMD_FLAGS_MAX)
			fail_msg("%s --%s", owner, f->name);
		for (int k = 0; k < i; k++)
			if (strcmp(list[k].name, f->name) == 0 ||
				(f->letter && f->letter == list[k].letter))
				fail_msg("%s --%s twice", owner, f->name);
		if (list == cmd_globals)
			continue;
		for (const struct cmd_flag *g = cmd_globals; g->name; g++)
			if (strcmp(g->name, f->name) == 0 ||
				(f->letter && f->letter == g->letter))
				fail_msg("%s --%s hides a global one", owner,
					f->name);
	}
}

static void
every_flag_has_help_and_its_own_name(void **state)
{
	(void)state;
	check_flags("global", cmd_globals);
	for (size_t i = 0; i < cmd_phrases_n(); i++)
		check_flags(cmd_phrase_at(i)->verb, cmd_phrase_at(i)->flags);
}

static void
every_default_parses(void **state)
{
	(void)state;
	for (size_t i = 0; i < cmd_phrases_n(); i++) {
		const struct cmd_phrase *p = cmd_phrase_at(i);
		char group[32], verb[32], help[] = "--help";
		char *argv[3];
		int n = 0;
		struct cmd_call a;
		struct err e = ERR_ZERO;

		if (p->group) {
			snprintf(group, sizeof(group), "%s", p->group);
			argv[n++] = group;
		}
		snprintf(verb, sizeof(verb), "%s", p->verb);
		argv[n++] = verb;
		argv[n++] = help;
		/* a bad default is a mistake of ours and aborts */
		assert_int_equal(cmd_parse(n, argv, &a, &e), 0);
		assert_ptr_equal(a.phrase, p);
		assert_true(a.help);
	}
}

/* ---- parsing ---- */

#define PARSE(a, e, ...) parse((const char *const[]){ __VA_ARGS__, NULL }, a, e)

static int
parse(const char *const *words, struct cmd_call *a, struct err *e)
{
	static char copies[16][64];
	static char *argv[17];
	int n = 0;

	for (; words[n]; n++) {
		snprintf(copies[n], sizeof(copies[n]), "%s", words[n]);
		argv[n] = copies[n];
	}
	argv[n] = NULL;
	*e = (struct err)ERR_ZERO;
	return cmd_parse(n, argv, a, e);
}

static void
flags_may_stand_anywhere(void **state)
{
	struct cmd_call a;
	struct err e;

	(void)state;
	assert_int_equal(PARSE(&a, &e, "-o", "json", "push", "--batch", "5",
				 "orders", "--partition=x", "-qf-"),
		0);
	assert_string_equal(a.phrase->verb, "push");
	assert_int_equal(a.args_n, 1);
	assert_string_equal(a.arg[0], "orders");
	assert_int_equal(cmd_int(&a, "batch"), 5);
	assert_true(cmd_typed(&a, "batch"));
	assert_false(cmd_typed(&a, "data"));
	assert_string_equal(cmd_str(&a, "partition"), "x");
	assert_string_equal(cmd_str(&a, "file"), "-");
	assert_string_equal(cmd_global(&a, "output")->text, "json");
	assert_true(cmd_global(&a, "quiet")->truth);
}

static void
aliases_mean_the_same(void **state)
{
	struct cmd_call a, b;
	struct err e;

	(void)state;
	assert_int_equal(PARSE(&a, &e, "queue", "list"), 0);
	assert_int_equal(PARSE(&b, &e, "q", "ls"), 0);
	assert_ptr_equal(a.phrase, b.phrase);
	assert_int_equal(PARSE(&b, &e, "consumer-groups", "rm", "g"), 0);
	assert_string_equal(b.phrase->verb, "delete");
}

static void
a_verb_of_two_words_may_be_typed_as_such(void **state)
{
	struct cmd_call a, b;
	struct err e;

	(void)state;
	assert_int_equal(PARSE(&a, &e, "job", "dead-list", "--type", "t"), 0);
	assert_int_equal(PARSE(&b, &e, "jobs", "dead", "ls", "--type", "t"), 0);
	assert_ptr_equal(a.phrase, b.phrase);
	assert_string_equal(cmd_str(&b, "type"), "t");
	assert_int_equal(PARSE(&a, &e, "stream", "dead", "purge", "q"), 0);
	assert_string_equal(a.phrase->verb, "dead-purge");
	assert_string_equal(a.arg[0], "q");
	assert_int_equal(PARSE(&a, &e, "job", "dead", "--yes"), -1);
	assert_int_equal(PARSE(&a, &e, "job", "dead", "quux"), -1);
	assert_string_equal(e.text,
		"unknown command \"dead quux\" for \"queenctl job\"; see "
		"queenctl job dead --help");
	assert_int_equal(PARSE(&a, &e, "job", "de", "list"), -1);
	assert_string_equal(e.text, "unknown command \"de\" for \"queenctl "
				    "job\"; see queenctl job --help");
}

static void
the_first_of_two_words_has_help_of_its_own(void **state)
{
	struct buf b = BUF_ZERO;
	struct cmd_call a;
	struct err e;

	(void)state;
	assert_int_equal(PARSE(&a, &e, "job", "dead"), 0);
	assert_true(a.help);
	assert_int_equal(PARSE(&a, &e, "jobs", "dead", "--help"), 0);
	cmd_help(&a, &b);
	buf_putc(&b, '\0');
	assert_string_equal(b.p,
		"Jobs of queen-ojs: push, fetch, ack, cancel.\n\n"
		"usage: queenctl job dead COMMAND [ARGUMENT]... [FLAG]...\n\n"
		"commands:\n"
		"  list                      dead letters, newest first\n"
		"  retry <job>               "
		"make a dead letter available again\n"
		"  delete <job>              "
		"delete a dead letter for good\n");
	buf_fini(&b);
	/* one that begins no other is but half a verb */
	assert_int_equal(PARSE(&a, &e, "schema", "rebase"), -1);
	assert_string_equal(e.text, "unknown command \"rebase\" for "
				    "\"queenctl schema\"; see queenctl "
				    "schema --help");
}

static void
booleans_can_be_denied(void **state)
{
	struct cmd_call a;
	struct err e;

	(void)state;
	assert_int_equal(PARSE(&a, &e, "pop", "q", "--wait=false"), 0);
	assert_false(cmd_bool(&a, "wait"));
	assert_int_equal(PARSE(&a, &e, "pop", "q"), 0);
	assert_true(cmd_bool(&a, "wait"));
	assert_int_equal(cmd_int(&a, "timeout"), 10000);
	assert_int_equal(PARSE(&a, &e, "pop", "q", "--wait=perhaps"), -1);
	assert_string_equal(
		e.text, "--wait=\"perhaps\": expected true or false");
}

static void
two_dashes_end_the_flags(void **state)
{
	struct cmd_call a;
	struct err e;

	(void)state;
	assert_int_equal(PARSE(&a, &e, "queue", "describe", "--", "--odd"), 0);
	assert_string_equal(a.arg[0], "--odd");
}

static void
a_command_follows_two_dashes(void **state)
{
	struct cmd_call a;
	struct err e;

	(void)state;
	assert_int_equal(PARSE(&a, &e, "lock", "l", "--ttl", "9s", "--", "sh",
				 "--ttl", "--"),
		0);
	assert_int_equal(a.args_n, 1);
	assert_string_equal(a.arg[0], "l");
	assert_int_equal(cmd_int(&a, "ttl"), 9000);
	assert_string_equal(a.rest[0], "sh");
	assert_string_equal(a.rest[1], "--ttl");
	assert_string_equal(a.rest[2], "--");
	assert_null(a.rest[3]);
	assert_int_equal(PARSE(&a, &e, "lock", "l", "--"), -1);
	assert_string_equal(e.text, "missing argument: queenctl lock <name> "
				    "-- <command> [argument]...");
	assert_int_equal(PARSE(&a, &e, "lock", "--", "sh"), -1);
	assert_int_equal(PARSE(&a, &e, "lock", "l", "sh", "--", "sh"), -1);
	assert_string_equal(e.text, "too many arguments: \"sh\"");
}

static void
wrong_lines_are_named(void **state)
{
	struct cmd_call a;
	struct err e;

	(void)state;
	assert_int_equal(PARSE(&a, &e, "quux"), -1);
	assert_string_equal(e.text, "unknown command \"quux\" for "
				    "\"queenctl\"; see queenctl --help");
	assert_int_equal(PARSE(&a, &e, "queue", "quux"), -1);
	assert_string_equal(e.text, "unknown command \"quux\" for \"queenctl "
				    "queue\"; see queenctl queue --help");
	assert_int_equal(PARSE(&a, &e, "ping", "--nope"), -1);
	assert_string_equal(e.text, "unknown flag --nope; see "
				    "queenctl ping --help");
	assert_int_equal(PARSE(&a, &e, "ping", "-Z"), -1);
	assert_string_equal(
		e.text, "unknown flag -Z; see queenctl ping --help");
	assert_int_equal(PARSE(&a, &e, "queue", "list", "--nope"), -1);
	assert_string_equal(e.text, "unknown flag --nope; see "
				    "queenctl queue list --help");
	assert_int_equal(PARSE(&a, &e, "--nope"), -1);
	assert_string_equal(e.text, "unknown flag --nope; see queenctl --help");
	assert_int_equal(PARSE(&a, &e, "ping", "--timeout"), -1);
	assert_string_equal(e.text, "--timeout needs a value");
	assert_int_equal(PARSE(&a, &e, "ping", "--timeout", "5"), -1);
	assert_string_equal(e.text, "--timeout: \"5\" is not a duration (as "
				    "500ms, 10s, 1m30s)");
	assert_int_equal(PARSE(&a, &e, "pop", "q", "-n", "x"), -1);
	assert_string_equal(e.text, "--limit \"x\": not an integer");
	assert_int_equal(PARSE(&a, &e, "queue", "describe"), -1);
	assert_string_equal(
		e.text, "missing argument: queenctl queue describe <queue>");
	assert_int_equal(PARSE(&a, &e, "ping", "x"), -1);
	assert_string_equal(e.text, "too many arguments: \"x\"");
}

static void
help_knows_its_level(void **state)
{
	struct buf b = BUF_ZERO;
	struct cmd_call a;
	struct err e;

	(void)state;
	assert_int_equal(PARSE(&a, &e, "help", "queue"), 0);
	assert_true(a.help);
	assert_null(a.phrase);
	cmd_help(&a, &b);
	buf_putc(&b, '\0');
	assert_non_null(strstr(b.p, "configure <queue>"));
	assert_null(strstr(b.p, "lease extend"));
	buf_fini(&b);
	assert_int_equal(PARSE(&a, &e, "--help"), 0);
	assert_null(a.help_group);
}

static void
completion_knows_every_phrase(void **state)
{
	struct buf bash = BUF_ZERO, zsh = BUF_ZERO;

	(void)state;
	cmd_complete_bash(&bash);
	cmd_complete_zsh(&zsh);
	for (size_t i = 0; i < cmd_phrases_n(); i++) {
		const struct cmd_phrase *p = cmd_phrase_at(i);
		char word[80];

		snprintf(word, sizeof(word), "'%s:%s') at=%s%s%s ;;",
			p->group ? p->group : "", p->verb,
			p->group ? p->group : "", p->group ? "_" : "", p->verb);
		if (!memmem(bash.p, bash.len, word, strlen(word)) ||
			!memmem(zsh.p, zsh.len, word, strlen(word)))
			fail_msg("%s", word);
	}
	buf_fini(&bash);
	buf_fini(&zsh);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(no_two_phrases_collide),
		cmocka_unit_test(no_group_hides_another_or_a_word),
		cmocka_unit_test(every_phrase_has_a_group_help_and_handler),
		cmocka_unit_test(every_flag_has_help_and_its_own_name),
		cmocka_unit_test(every_default_parses),
		cmocka_unit_test(flags_may_stand_anywhere),
		cmocka_unit_test(aliases_mean_the_same),
		cmocka_unit_test(a_verb_of_two_words_may_be_typed_as_such),
		cmocka_unit_test(the_first_of_two_words_has_help_of_its_own),
		cmocka_unit_test(booleans_can_be_denied),
		cmocka_unit_test(two_dashes_end_the_flags),
		cmocka_unit_test(a_command_follows_two_dashes),
		cmocka_unit_test(wrong_lines_are_named),
		cmocka_unit_test(help_knows_its_level),
		cmocka_unit_test(completion_knows_every_phrase),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading a command line after the table of phrases.  Flags may stand
 * anywhere after the words of the command, global ones anywhere at all; `--`
 * ends them.
 */
#include "cmd.h"

#include <stdio.h>
#include <string.h>

#include "err.h"
#include "span.h"
#include "timearg.h"

bool
cmd_is_word(const char *words, const char *word)
{
	size_t n = strlen(word);

	for (; words && *words; words += strspn(words, " ")) {
		size_t len = strcspn(words, " ");

		if (len == n && strncmp(words, word, n) == 0)
			return true;
		words += len;
	}
	return false;
}

size_t
cmd_phrases_n(void)
{
	return cmd_table_n + cmd_table_ojs_n;
}

const struct cmd_phrase *
cmd_phrase_at(size_t i)
{
	return i < cmd_table_n ? &cmd_table[i]
			       : &cmd_table_ojs[i - cmd_table_n];
}

static bool
is_verb(const struct cmd_phrase *p, const char *word)
{
	return strcmp(p->verb, word) == 0 || cmd_is_word(p->aliases, word);
}

static const struct cmd_group *
find_group(const char *word)
{
	for (size_t i = 0; i < cmd_groups_n; i++)
		if (strcmp(cmd_groups[i].name, word) == 0 ||
			cmd_is_word(cmd_groups[i].aliases, word))
			return &cmd_groups[i];
	return NULL;
}

static const struct cmd_phrase *
find_phrase(const struct cmd_group *g, const char *verb)
{
	for (size_t i = 0; i < cmd_phrases_n(); i++) {
		const struct cmd_phrase *p = cmd_phrase_at(i);

		if ((g ? p->group && strcmp(p->group, g->name) == 0
		       : !p->group) &&
			is_verb(p, verb))
			return p;
	}
	return NULL;
}

const char *
cmd_second_word(const struct cmd_phrase *p, const char *first)
{
	size_t n = strlen(first);

	return n && strncmp(p->verb, first, n) == 0 && p->verb[n] == '-'
		       ? p->verb + n + 1
		       : NULL;
}

bool
cmd_is_first_word(const char *group, const char *first)
{
	int n = 0;

	for (size_t i = 0; i < cmd_phrases_n(); i++) {
		const struct cmd_phrase *p = cmd_phrase_at(i);

		n += p->group && strcmp(p->group, group) == 0 &&
		     cmd_second_word(p, first);
	}
	return n > 1;
}

void
cmd_args_range(const char *args, int *min, int *max)
{
	*min = *max = 0;
	for (; args && *args && strncmp(args, " -- ", 4) != 0; args++) {
		*min += *args == '<';
		*max += *args == '<' || *args == '[';
	}
}

/* ---- flags ---- */

static int
find_flag(const struct cmd_flag *list, const char *name, size_t n, char letter)
{
	for (int i = 0; list && list[i].name; i++)
		if (n ? strlen(list[i].name) == n &&
					strncmp(list[i].name, name, n) == 0
		      : list[i].letter == letter)
			return i;
	return -1;
}

static bool
parse_bool(const char *text, bool *out)
{
	if (cmd_is_word("true t yes 1 on", text))
		*out = true;
	else if (cmd_is_word("false f no 0 off", text))
		*out = false;
	else
		return false;
	return true;
}

static int
set_value(const struct cmd_flag *f, struct cmd_value *v, const char *text,
	struct err *e)
{
	v->text = text;
	switch (f->type) {
	case CMD_STR:
		return 0;
	case CMD_BOOL:
		if (parse_bool(text, &v->truth))
			return 0;
		return err_set(e, ERR_INPUT,
			"--%s=\"%.60s\": expected true or false", f->name,
			text);
	case CMD_INT:
		if (span_i64(span_of(text), &v->number))
			return 0;
		return err_set(e, ERR_INPUT, "--%s \"%.60s\": not an integer",
			f->name, text);
	case CMD_DURATION:
		if (timearg_duration(text, &v->number, e) == 0)
			return 0;
		return err_wrap(e, "--%s", f->name);
	}
	return 0;
}

static void
set_defaults(const struct cmd_flag *list, struct cmd_value *v)
{
	struct err e = ERR_ZERO;

	for (int i = 0; list && list[i].name; i++) {
		BUG(i >= CMD_FLAGS_MAX);
		v[i] = (struct cmd_value){ .text = NULL };
		if (list[i].dflt)
			BUG(set_value(&list[i], &v[i], list[i].dflt, &e) != 0);
	}
}

struct line {
	int argc, at;
	char *const *argv;
	struct cmd_call *call;
	const struct cmd_flag *own; /* flags of the phrase, once known */
	struct err *e;
};

static int
unknown_flag(const struct line *l, const char *dash, const char *word, size_t n)
{
	const struct cmd_phrase *p = l->call->phrase;

	return err_set(l->e, ERR_INPUT,
		"unknown flag %s%.*s; see queenctl %s%s%s%s--help", dash,
		(int)(n > 60 ? 60 : n), word, p && p->group ? p->group : "",
		p && p->group ? " " : "", p ? p->verb : "", p ? " " : "");
}

/* One flag with the value in the same or the next word. */
static int
take_flag(struct line *l, const char *word, size_t n, char letter,
	const char *inline_value)
{
	const struct cmd_flag *list = l->own;
	struct cmd_value *values = l->call->flag;
	int i = find_flag(list, word, n, letter);

	if (i < 0) {
		list = cmd_globals;
		values = l->call->global;
		i = find_flag(list, word, n, letter);
	}
	if (i < 0)
		return n ? unknown_flag(l, "--", word, n)
			 : unknown_flag(l, "-", &letter, 1);
	values[i].typed = true;
	if (inline_value)
		return set_value(&list[i], &values[i], inline_value, l->e);
	if (list[i].type == CMD_BOOL)
		return set_value(&list[i], &values[i], "true", l->e);
	if (l->at >= l->argc)
		return err_set(
			l->e, ERR_INPUT, "--%s needs a value", list[i].name);
	return set_value(&list[i], &values[i], l->argv[l->at++], l->e);
}

static bool
letter_is_bool(const struct line *l, char letter)
{
	int i = find_flag(l->own, NULL, 0, letter);

	if (i >= 0)
		return l->own[i].type == CMD_BOOL;
	i = find_flag(cmd_globals, NULL, 0, letter);
	return i >= 0 && cmd_globals[i].type == CMD_BOOL;
}

/* `-qn5`, `-n 5`, `-n5`. */
static int
take_letters(struct line *l, const char *word)
{
	for (const char *p = word; *p; p++) {
		if (letter_is_bool(l, *p)) {
			if (take_flag(l, NULL, 0, *p, NULL) != 0)
				return -1;
			continue;
		}
		const char *rest = p[1] == '=' ? p + 2 : p + 1;

		return take_flag(l, NULL, 0, *p, *rest ? rest : NULL);
	}
	return 0;
}

static int
take_dashed(struct line *l, const char *word)
{
	if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0) {
		l->call->help = true;
		return 0;
	}
	if (word[1] != '-')
		return take_letters(l, word + 1);
	const char *eq = strchr(word, '=');

	return take_flag(l, word + 2,
		eq ? (size_t)(eq - word - 2) : strlen(word) - 2, 0,
		eq ? eq + 1 : NULL);
}

static bool
is_flag(const char *word)
{
	return word[0] == '-' && word[1] != '\0' &&
	       !(word[1] >= '0' && word[1] <= '9');
}

/* ---- words ---- */

static int
unknown(struct line *l, const struct cmd_group *g, const char *word)
{
	return err_set(l->e, ERR_INPUT,
		"unknown command \"%.60s\" for \"queenctl%s%s\"; see "
		"queenctl %s%s--help",
		word, g ? " " : "", g ? g->name : "", g ? g->name : "",
		g ? " " : "");
}

/* `dead list` for dead-list: takes the second word too. */
static int
take_joined(struct line *l, const struct cmd_group *g, const char *word)
{
	bool alone = l->at >= l->argc || is_flag(l->argv[l->at]);
	char both[64];

	if (!g)
		return unknown(l, g, word);
	if (!alone && snprintf(both, sizeof(both), "%s-%s", word,
			      l->argv[l->at]) < (int)sizeof(both))
		l->call->phrase = find_phrase(g, both);
	if (l->call->phrase) {
		l->at++;
		return 0;
	}
	if (!cmd_is_first_word(g->name, word))
		return unknown(l, g, word);
	if (!alone)
		return err_set(l->e, ERR_INPUT,
			"unknown command \"%s %.60s\" for \"queenctl %s\"; see "
			"queenctl %s %s --help",
			word, l->argv[l->at], g->name, g->name, word);
	/* as for a group without a verb */
	l->call->help_first = word;
	l->call->help = true;
	while (l->at < l->argc)
		if (!is_flag(l->argv[l->at]))
			return unknown(l, g, word);
		else if (take_dashed(l, l->argv[l->at++]) != 0)
			return -1;
	return 0;
}

/* The words that choose the phrase; flags between them are global ones. */
static int
take_phrase(struct line *l)
{
	const struct cmd_group *g = NULL;

	while (l->at < l->argc) {
		const char *word = l->argv[l->at++];

		if (is_flag(word)) {
			if (take_dashed(l, word) != 0)
				return -1;
			continue;
		}
		if (!g && strcmp(word, "help") == 0) {
			l->call->help = true;
			continue;
		}
		if (!g && (g = find_group(word))) {
			l->call->help_group = g;
			continue;
		}
		l->call->phrase = find_phrase(g, word);
		if (!l->call->phrase && take_joined(l, g, word) != 0)
			return -1;
		if (l->call->phrase)
			l->call->help_group = NULL;
		return 0;
	}
	/* no verb: tell what there is */
	if (!cmd_global(l->call, "version")->truth)
		l->call->help = true;
	return 0;
}

/* `lock NAME -- COMMAND`: words that are not ours. */
static bool
takes_command(const struct cmd_phrase *p)
{
	return p->args && strstr(p->args, " -- ");
}

static int
take_args(struct line *l)
{
	struct cmd_call *a = l->call;
	const struct cmd_phrase *p = a->phrase;
	bool flags = true;
	int min, max;

	cmd_args_range(p->args, &min, &max);
	BUG(max > CMD_ARGS_MAX);
	while (l->at < l->argc) {
		const char *word = l->argv[l->at++];

		if (flags && strcmp(word, "--") == 0) {
			flags = false;
			if (!takes_command(p))
				continue;
			if (l->at < l->argc)
				a->rest = l->argv + l->at;
			break;
		}
		if (flags && is_flag(word)) {
			if (take_dashed(l, word) != 0)
				return -1;
			continue;
		}
		if (a->args_n == max)
			return err_set(l->e, ERR_INPUT,
				"too many arguments: \"%.60s\"", word);
		a->arg[a->args_n++] = word;
	}
	if (a->help || (a->args_n >= min && (!takes_command(p) || a->rest)))
		return 0;
	return err_set(l->e, ERR_INPUT, "missing argument: queenctl %s%s%s %s",
		p->group ? p->group : "", p->group ? " " : "", p->verb,
		p->args);
}

int
cmd_parse(int argc, char *const argv[], struct cmd_call *a, struct err *e)
{
	struct line l = { .argc = argc, .argv = argv, .call = a, .e = e };

	*a = (struct cmd_call){ .args_n = 0 };
	set_defaults(cmd_globals, a->global);
	if (take_phrase(&l) != 0)
		return -1;
	if (!a->phrase)
		return 0;
	l.own = a->phrase->flags;
	set_defaults(l.own, a->flag);
	return take_args(&l);
}

/* ---- values ---- */

static const struct cmd_value *
own(const struct cmd_call *a, const char *name, enum cmd_type type)
{
	int i = find_flag(a->phrase->flags, name, strlen(name), 0);

	BUG(i < 0);
	BUG(a->phrase->flags[i].type != type &&
		!(type == CMD_INT && a->phrase->flags[i].type == CMD_DURATION));
	return &a->flag[i];
}

const char *
cmd_str(const struct cmd_call *a, const char *name)
{
	return own(a, name, CMD_STR)->text;
}

int64_t
cmd_int(const struct cmd_call *a, const char *name)
{
	return own(a, name, CMD_INT)->number;
}

bool
cmd_bool(const struct cmd_call *a, const char *name)
{
	return own(a, name, CMD_BOOL)->truth;
}

bool
cmd_typed(const struct cmd_call *a, const char *name)
{
	int i = find_flag(a->phrase->flags, name, strlen(name), 0);

	BUG(i < 0);
	return a->flag[i].typed;
}

const struct cmd_value *
cmd_global(const struct cmd_call *a, const char *name)
{
	int i = find_flag(cmd_globals, name, strlen(name), 0);

	BUG(i < 0);
	return &a->global[i];
}

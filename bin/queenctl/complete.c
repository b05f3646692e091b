/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Completion scripts made from the table of phrases.  Both shells get the same
 * tables: a word after a path of words, the flags of a path, the values of a
 * flag.
 */
#include <stdio.h>
#include <string.h>

#include "buf.h"
#include "cmd.h"

typedef void (*path_fn)(struct buf *b, const char *path, const char *alias);

/* The first word of a verb that may be typed as two; 0 = it has one. */
static int
first_of(const struct cmd_phrase *p)
{
	char word[64];
	int n = (int)strcspn(p->verb, "-");

	snprintf(word, sizeof(word), "%.*s", n, p->verb);
	return p->group && cmd_is_first_word(p->group, word) ? n : 0;
}

/* No phrase above has the same first word. */
static bool
is_first(size_t at)
{
	const struct cmd_phrase *p = cmd_phrase_at(at), *q;
	int n = first_of(p);

	for (size_t i = 0; n && i < at; i++) {
		q = cmd_phrase_at(i);
		if (q->group && strcmp(p->group, q->group) == 0 &&
			strncmp(p->verb, q->verb, (size_t)n + 1) == 0)
			return false;
	}
	return n != 0;
}

/* `job queue drop` leads where `job queue-drop` does. */
static void
joined(struct buf *b, path_fn fn, const struct cmd_phrase *p, const char *to)
{
	int n = first_of(p);
	char at[80];

	if (!n)
		return;
	snprintf(at, sizeof(at), "%s_%.*s:%s", p->group, n, p->verb,
		p->verb + n + 1);
	fn(b, at, to);
}

/* The first of two words, with the path that the second goes on from. */
static void
each_first_word(struct buf *b, path_fn fn)
{
	char at[64], to[64];

	for (size_t i = 0; i < cmd_phrases_n(); i++) {
		const struct cmd_phrase *p = cmd_phrase_at(i);
		int n = first_of(p);

		if (!is_first(i))
			continue;
		snprintf(at, sizeof(at), "%s:%.*s", p->group, n, p->verb);
		snprintf(to, sizeof(to), "%s_%.*s", p->group, n, p->verb);
		fn(b, at, to);
	}
}

/* Every word with the path it leads to, aliases too. */
static void
each_word(struct buf *b, path_fn fn)
{
	char at[64], to[64];

	for (size_t i = 0; i < cmd_groups_n; i++) {
		const struct cmd_group *g = &cmd_groups[i];

		snprintf(at, sizeof(at), ":%s", g->name);
		fn(b, at, g->name);
		for (const char *p = g->aliases; p && *p; p += strspn(p, " ")) {
			size_t n = strcspn(p, " ");

			snprintf(at, sizeof(at), ":%.*s", (int)n, p);
			fn(b, at, g->name);
			p += n;
		}
	}
	for (size_t i = 0; i < cmd_phrases_n(); i++) {
		const struct cmd_phrase *v = cmd_phrase_at(i);
		const char *group = v->group ? v->group : "";

		snprintf(to, sizeof(to), "%s%s%s", group, v->group ? "_" : "",
			v->verb);
		snprintf(at, sizeof(at), "%s:%s", group, v->verb);
		fn(b, at, to);
		joined(b, fn, v, to);
		for (const char *p = v->aliases; p && *p; p += strspn(p, " ")) {
			size_t n = strcspn(p, " ");

			snprintf(at, sizeof(at), "%s:%.*s", group, (int)n, p);
			fn(b, at, to);
			p += n;
		}
	}
	each_first_word(b, fn);
}

static void
step(struct buf *b, const char *path, const char *to)
{
	buf_printf(b, "\t\t'%s') at=%s ;;\n", path, to);
}

/* Flags that take the next word, so that it is not taken for a command. */
static void
valued(struct buf *b)
{
	struct buf seen = BUF_ZERO;

	buf_putc(&seen, ' ');
	for (size_t i = 0; i <= cmd_phrases_n(); i++) {
		const struct cmd_flag *f = i < cmd_phrases_n()
						   ? cmd_phrase_at(i)->flags
						   : cmd_globals;

		for (; f && f->name; f++) {
			char word[48];

			if (f->type == CMD_BOOL)
				continue;
			snprintf(word, sizeof(word), " --%s ", f->name);
			if (memmem(seen.p, seen.len, word, strlen(word)))
				continue;
			buf_printf(
				b, "%s--%s", seen.len > 1 ? "|" : "", f->name);
			buf_printf(&seen, "--%s ", f->name);
		}
	}
	buf_fini(&seen);
	buf_puts(b, "|-o");
}

static void
flag_names(struct buf *b, const struct cmd_flag *f)
{
	for (; f && f->name; f++)
		buf_printf(b, " --%s", f->name);
}

/* case lines: flags of each path. */
static void
flag_cases(struct buf *b, const char *set)
{
	for (size_t i = 0; i < cmd_phrases_n(); i++) {
		const struct cmd_phrase *p = cmd_phrase_at(i);

		if (!p->flags)
			continue;
		buf_printf(b, "\t%s%s%s) %s\"", p->group ? p->group : "",
			p->group ? "_" : "", p->verb, set);
		flag_names(b, p->flags);
		buf_puts(b, "\" ;;\n");
	}
}

/* case lines: values of a flag, by `path:--flag`. */
static void
value_cases(struct buf *b, const char *set)
{
	for (const struct cmd_flag *f = cmd_globals; f->name; f++)
		if (f->words)
			buf_printf(b, "\t*:--%s%s%c) %s\"%s\" ;;\n", f->name,
				f->letter ? "|*:-" : "",
				f->letter ? f->letter : ' ', set, f->words);
	for (size_t i = 0; i < cmd_phrases_n(); i++) {
		const struct cmd_phrase *p = cmd_phrase_at(i);

		for (const struct cmd_flag *f = p->flags; f && f->name; f++)
			if (f->words)
				buf_printf(b, "\t%s%s%s:--%s) %s\"%s\" ;;\n",
					p->group ? p->group : "",
					p->group ? "_" : "", p->verb, f->name,
					set, f->words);
	}
}

static void
word_list(struct buf *b, const char *group)
{
	for (size_t i = 0; i < cmd_phrases_n(); i++) {
		const struct cmd_phrase *p = cmd_phrase_at(i);

		if (group ? p->group && strcmp(p->group, group) == 0
			  : !p->group)
			buf_printf(b, " %s", p->verb);
	}
	if (!group)
		for (size_t i = 0; i < cmd_groups_n; i++)
			buf_printf(b, " %s", cmd_groups[i].name);
}

static void
second_cases(struct buf *b, const char *set)
{
	for (size_t i = 0; i < cmd_phrases_n(); i++) {
		const struct cmd_phrase *p = cmd_phrase_at(i);
		char first[64];

		if (!is_first(i))
			continue;
		snprintf(first, sizeof(first), "%.*s", first_of(p), p->verb);
		buf_printf(b, "\t%s_%s) %s\"", p->group, first, set);
		for (size_t k = i; k < cmd_phrases_n(); k++) {
			const struct cmd_phrase *q = cmd_phrase_at(k);
			const char *word = cmd_second_word(q, first);

			if (word && q->group && strcmp(q->group, p->group) == 0)
				buf_printf(b, " %s", word);
		}
		buf_puts(b, "\" ;;\n");
	}
}

static void
word_cases(struct buf *b, const char *set)
{
	buf_printf(b, "\t'') %s\"", set);
	word_list(b, NULL);
	buf_puts(b, "\" ;;\n");
	for (size_t i = 0; i < cmd_groups_n; i++) {
		buf_printf(b, "\t%s) %s\"", cmd_groups[i].name, set);
		word_list(b, cmd_groups[i].name);
		buf_puts(b, "\" ;;\n");
	}
	second_cases(b, set);
	buf_printf(b, "\tcompletion) %s\"bash zsh\" ;;\n", set);
}

void
cmd_complete_bash(struct buf *b)
{
	buf_puts(b,
		"# bash completion for queenctl; made by `queenctl "
		"completion bash`\n"
		"_queenctl() {\n"
		"\tlocal cur=${COMP_WORDS[COMP_CWORD]} at= words= i w last=\n"
		"\tfor ((i = 1; i < COMP_CWORD; i++)); do\n"
		"\t\tw=${COMP_WORDS[i]}\n"
		"\t\tlast=\n"
		"\t\tcase $w in\n\t\t");
	valued(b);
	buf_puts(b, ") last=$w; ((i++)); continue ;;\n"
		    "\t\t-*) continue ;;\n"
		    "\t\tesac\n"
		    "\t\tcase $at:$w in\n");
	each_word(b, step);
	buf_puts(b, "\t\tesac\n\tdone\n"
		    "\tif [[ -n $last && $i -gt $COMP_CWORD ]]; then\n"
		    "\t\tcase $at:$last in\n");
	value_cases(b, "words=");
	buf_puts(b, "\t\t*) COMPREPLY=($(compgen -f -- \"$cur\")); return ;;\n"
		    "\t\tesac\n"
		    "\telif [[ $cur == -* ]]; then\n"
		    "\t\tcase $at in\n");
	flag_cases(b, "words=");
	buf_puts(b, "\t\tesac\n\t\twords+=\"");
	flag_names(b, cmd_globals);
	buf_puts(b, "\"\n\telse\n\t\tcase $at in\n");
	word_cases(b, "words=");
	buf_puts(b, "\t\tesac\n\tfi\n"
		    "\tCOMPREPLY=($(compgen -W \"$words\" -- \"$cur\"))\n"
		    "}\n"
		    "complete -F _queenctl queenctl\n");
}

void
cmd_complete_zsh(struct buf *b)
{
	buf_puts(b, "#compdef queenctl\n"
		    "# made by `queenctl completion zsh`\n"
		    "_queenctl() {\n"
		    "\tlocal at= list= w last= i\n"
		    "\tfor ((i = 2; i < CURRENT; i++)); do\n"
		    "\t\tw=${words[i]}\n"
		    "\t\tlast=\n"
		    "\t\tcase $w in\n\t\t");
	valued(b);
	buf_puts(b, ") last=$w; ((i++)); continue ;;\n"
		    "\t\t-*) continue ;;\n"
		    "\t\tesac\n"
		    "\t\tcase $at:$w in\n");
	each_word(b, step);
	buf_puts(b, "\t\tesac\n\tdone\n"
		    "\tif [[ -n $last && $i -gt $CURRENT ]]; then\n"
		    "\t\tcase $at:$last in\n");
	value_cases(b, "list=");
	buf_puts(b, "\t\t*) _files; return ;;\n"
		    "\t\tesac\n"
		    "\telif [[ ${words[CURRENT]} == -* ]]; then\n"
		    "\t\tcase $at in\n");
	flag_cases(b, "list=");
	buf_puts(b, "\t\tesac\n\t\tlist+=\"");
	flag_names(b, cmd_globals);
	buf_puts(b, "\"\n\telse\n\t\tcase $at in\n");
	word_cases(b, "list=");
	buf_puts(b, "\t\tesac\n\tfi\n"
		    "\tcompadd -- ${=list}\n"
		    "}\n"
		    "if [[ ${zsh_eval_context[-1]} == loadautofunc ]]; then\n"
		    "\t_queenctl \"$@\"\n"
		    "else\n"
		    "\tcompdef _queenctl queenctl\n"
		    "fi\n");
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Help of every level, from the table of phrases. */
#include <stdio.h>
#include <string.h>

#include "buf.h"
#include "cmd.h"

enum { HELP_COLUMN = 26 };

static void
entry(struct buf *b, const char *left, const char *right)
{
	buf_printf(b, "  %-*s%s%s\n", HELP_COLUMN, left,
		strlen(left) >= HELP_COLUMN ? "  " : "", right);
}

static void
flags(struct buf *b, const struct cmd_flag *f)
{
	static const char *const kinds[] = { [CMD_BOOL] = "",
		[CMD_STR] = " TEXT",
		[CMD_INT] = " N",
		[CMD_DURATION] = " TIME" };

	for (; f->name; f++) {
		char left[80], letter[8] = "    ";
		const char *d = f->dflt;

		if (f->letter)
			snprintf(letter, sizeof(letter), "-%c, ", f->letter);
		snprintf(left, sizeof(left), "%s--%s%s%s", letter, f->name,
			f->arg ? " " : "", f->arg ? f->arg : kinds[f->type]);
		buf_printf(b, "  %-*s%s%s", HELP_COLUMN + 4, left,
			strlen(left) >= HELP_COLUMN + 4 ? "  " : "", f->help);
		if (d && *d &&
			!(f->type == CMD_BOOL && strcmp(d, "false") == 0))
			buf_printf(b, " (default %s)", d);
		buf_putc(b, '\n');
	}
}

static void
verb(struct buf *b, const struct cmd_phrase *p, const char *word)
{
	char left[120];

	snprintf(left, sizeof(left), "%s%s%s", word, p->args ? " " : "",
		p->args ? p->args : "");
	entry(b, left, p->help);
}

static void
help_top(struct buf *b)
{
	buf_puts(b, "Works a message-broker cell: data, queues, consumer "
		    "groups, dead letters,\nand a private cell of your own.\n\n"
		    "usage: queenctl COMMAND [ARGUMENT]... [FLAG]...\n\n"
		    "commands:\n");
	for (size_t i = 0; i < cmd_phrases_n(); i++)
		if (!cmd_phrase_at(i)->group)
			verb(b, cmd_phrase_at(i), cmd_phrase_at(i)->verb);
	buf_puts(b, "\ngroups (queenctl GROUP --help):\n");
	for (size_t i = 0; i < cmd_groups_n; i++)
		entry(b, cmd_groups[i].name, cmd_groups[i].help);
	buf_puts(b, "\nflags of every command:\n");
	flags(b, cmd_globals);
	buf_puts(b, "\nexit status: 0 done, 1 wrong use, 2 server error or "
		    "unreachable, 3 not allowed,\n4 done and there was nothing "
		    "to do. queenctl(1) has the rest.\n");
}

static void
help_group(struct buf *b, const struct cmd_group *g, const char *first)
{
	buf_printf(b,
		"%s\n\nusage: queenctl %s%s%s COMMAND [ARGUMENT]... "
		"[FLAG]...\n",
		g->help, g->name, first ? " " : "", first ? first : "");
	if (g->aliases && !first)
		buf_printf(b, "also: %s\n", g->aliases);
	buf_puts(b, "\ncommands:\n");
	for (size_t i = 0; i < cmd_phrases_n(); i++) {
		const struct cmd_phrase *p = cmd_phrase_at(i);
		const char *word = first ? cmd_second_word(p, first) : p->verb;

		if (word && p->group && strcmp(p->group, g->name) == 0)
			verb(b, p, word);
	}
}

/* Flags behind ` -- ` would be the command's. */
static void
usage(struct buf *b, const struct cmd_phrase *p)
{
	const char *args = p->args ? p->args : "";
	const char *rest = strstr(args, " -- ");

	if (!rest)
		rest = args + strlen(args);
	buf_printf(b, "\nusage: queenctl %s%s%s%s%.*s%s%s\n",
		p->group ? p->group : "", p->group ? " " : "", p->verb,
		*args ? " " : "", (int)(rest - args), args,
		p->flags ? " [FLAG]..." : "", rest);
}

static void
help_phrase(struct buf *b, const struct cmd_phrase *p)
{
	buf_printf(b, "%s\n", p->help);
	usage(b, p);
	if (p->aliases)
		buf_printf(b, "also: %s\n", p->aliases);
	if (p->flags) {
		buf_puts(b, "\nflags:\n");
		flags(b, p->flags);
	}
	buf_puts(b, "\nflags of every command:\n");
	flags(b, cmd_globals);
}

void
cmd_help(const struct cmd_call *a, struct buf *out)
{
	if (a->phrase)
		help_phrase(out, a->phrase);
	else if (a->help_group)
		help_group(out, a->help_group, a->help_first);
	else
		help_top(out);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SQL text into statements.  A semicolon ends one unless it stands in a
 * string, an identifier, a dollar quote, a comment or parentheses.  What is
 * never closed runs to the end of the text, and the server then says so.
 */
#include "schema.h"

#include <string.h>

struct cursor {
	const char *p, *end;
};

static bool
at(const struct cursor *c, const char *s)
{
	size_t n = strlen(s);

	return (size_t)(c->end - c->p) >= n && memcmp(c->p, s, n) == 0;
}

static bool
is_word(char ch)
{
	return (ch >= 'a' && ch <= 'z') || (ch >= 'A' && ch <= 'Z') ||
	       (ch >= '0' && ch <= '9') || ch == '_' ||
	       ((unsigned char)ch & 0x80) != 0;
}

/* Past the closing quote; a doubled one is part of the text. */
static void
skip_quoted(struct cursor *c, char quote, bool backslash)
{
	c->p++;
	while (c->p < c->end) {
		if (backslash && *c->p == '\\' && c->p + 1 < c->end) {
			c->p += 2;
			continue;
		}
		if (*c->p++ != quote)
			continue;
		if (c->p == c->end || *c->p != quote)
			return;
		c->p++;
	}
}

static void
skip_line(struct cursor *c)
{
	while (c->p < c->end && *c->p != '\n')
		c->p++;
}

/* Block comments nest in SQL. */
static void
skip_block(struct cursor *c)
{
	int depth = 0;

	while (c->p < c->end) {
		if (at(c, "/*")) {
			depth++;
			c->p += 2;
		} else if (at(c, "*/")) {
			c->p += 2;
			if (--depth == 0)
				return;
		} else {
			c->p++;
		}
	}
}

/* At `$`: past a dollar-quoted text, or past the `$` when it opens none. */
static void
skip_dollar(struct cursor *c)
{
	const char *open = c->p, *tag = c->p + 1;
	size_t n;

	while (tag < c->end && is_word(*tag))
		tag++;
	if (tag == c->end || *tag != '$' ||
		(open[1] >= '0' && open[1] <= '9')) {
		c->p++; /* $1 */
		return;
	}
	n = (size_t)(tag + 1 - open);
	for (c->p = tag + 1; c->p < c->end; c->p++)
		if (*c->p == '$' && (size_t)(c->end - c->p) >= n &&
			memcmp(c->p, open, n) == 0) {
			c->p += n;
			return;
		}
}

/* At a word: past it, or past the string that its E or e opens. */
static void
skip_word(struct cursor *c)
{
	const char *start = c->p;

	/* a dollar inside a word belongs to it */
	while (c->p < c->end && (is_word(*c->p) || *c->p == '$'))
		c->p++;
	if (c->p - start == 1 && (*start == 'e' || *start == 'E') &&
		c->p < c->end && *c->p == '\'')
		skip_quoted(c, '\'', true);
}

static void
skip_blank(struct cursor *c)
{
	while (c->p < c->end) {
		if (strchr(" \t\r\n\f\v", *c->p) != NULL && *c->p != '\0')
			c->p++;
		else if (at(c, "--"))
			skip_line(c);
		else if (at(c, "/*"))
			skip_block(c);
		else
			return;
	}
}

bool
schema_next_statement(struct span *rest, struct span *stmt)
{
	struct cursor c = { rest->p, rest->p + rest->n };
	const char *start, *last;
	int depth = 0;

	/* a lone semicolon is no statement */
	for (skip_blank(&c); c.p < c.end && *c.p == ';'; skip_blank(&c))
		c.p++;
	start = last = c.p;
	while (c.p < c.end && !(*c.p == ';' && depth == 0)) {
		skip_blank(&c);
		if (c.p == c.end || (*c.p == ';' && depth == 0))
			break;
		if (*c.p == '\'' || *c.p == '"')
			skip_quoted(&c, *c.p, false);
		else if (*c.p == '$')
			skip_dollar(&c);
		else if (is_word(*c.p))
			skip_word(&c);
		else {
			depth += *c.p == '(' || *c.p == '[';
			if ((*c.p == ')' || *c.p == ']') && depth > 0)
				depth--;
			c.p++;
		}
		last = c.p;
	}
	if (c.p < c.end)
		c.p++; /* the semicolon */
	*stmt = span_make(start, (size_t)(last - start));
	*rest = span_make(c.p, (size_t)(c.end - c.p));
	return stmt->n > 0;
}

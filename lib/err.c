/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The error value.  The text is always one line and always terminated; what
 * does not fit is cut at the end, so the most recent context survives.
 */
#include "err.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/*
 * One event is one line: a text from outside must not open a second one.  And
 * it is UTF-8 to its end, wherever it was cut: some go back to the database.
 */
static void
one_line(char *s)
{
	size_t n, at;

	for (n = 0; s[n]; n++)
		if ((unsigned char)s[n] < 0x20 || s[n] == 0x7f)
			s[n] = ' ';
	at = n;
	while (at > 0 && n - at < 3 && (s[at - 1] & 0xc0) == 0x80)
		at--;
	if (at == 0 || (s[at - 1] & 0xc0) != 0xc0)
		return;
	at--;
	/* a lead byte has as many ones as its character has bytes */
	if (n - at < 2 + (size_t)((s[at] & 0xe0) == 0xe0) +
			     (size_t)((s[at] & 0xf0) == 0xf0))
		s[at] = '\0';
}

int
err_set(struct err *e, enum err_kind kind, const char *fmt, ...)
{
	va_list ap;

	e->kind = kind;
	e->errnum = 0;
	e->sqlstate[0] = '\0';
	va_start(ap, fmt);
	vsnprintf(e->text, sizeof(e->text), fmt, ap);
	va_end(ap);
	one_line(e->text);
	return -1;
}

int
err_errno(struct err *e, const char *fmt, ...)
{
	int saved = errno;
	va_list ap;
	size_t n;

	e->kind = ERR_IO;
	e->errnum = saved;
	e->sqlstate[0] = '\0';
	va_start(ap, fmt);
	vsnprintf(e->text, sizeof(e->text), fmt, ap);
	va_end(ap);
	n = strlen(e->text);
	snprintf(e->text + n, sizeof(e->text) - n, ": %s", strerror(saved));
	one_line(e->text);
	errno = saved;
	return -1;
}

int
err_wrap(struct err *e, const char *fmt, ...)
{
	char old[sizeof(e->text)];
	va_list ap;
	size_t n;

	memcpy(old, e->text, sizeof(old));
	va_start(ap, fmt);
	vsnprintf(e->text, sizeof(e->text), fmt, ap);
	va_end(ap);
	n = strlen(e->text);
	snprintf(e->text + n, sizeof(e->text) - n, ": %s", old);
	one_line(e->text);
	return -1;
}

/*
 * What each code or class means for the caller.  Longest match first: full
 * codes stand before their class.  A shutdown (57P01, 57P02) can be reported
 * after the commit happened, so its outcome is unknown, not "not done".
 */
static const struct {
	char code[6];
	enum err_kind kind;
} sqlstates[] = {
	{ "08001", ERR_DB_RETRY }, /* could not connect: nothing was sent */
	{ "08004", ERR_DB_RETRY }, /* connection rejected */
	{ "08", ERR_DB_UNKNOWN },
	{ "0A", ERR_BUG }, /* feature not supported */
	{ "22", ERR_DB_DATA },
	{ "23", ERR_DB_DATA },
	{ "25006", ERR_DB_RETRY }, /* read only: a standby, for a while */
	{ "25P03", ERR_DB_RETRY }, /* idle in transaction timeout */
	{ "25", ERR_BUG },
	{ "26", ERR_DB_RETRY }, /* unknown statement: prepare again */
	{ "28", ERR_AUTH },
	{ "3D", ERR_CONFIG }, /* no such database */
	{ "3F", ERR_CONFIG }, /* no such schema */
	{ "40003", ERR_DB_UNKNOWN },
	{ "40", ERR_DB_RETRY },
	{ "42501", ERR_AUTH },
	{ "42", ERR_BUG },
	{ "44", ERR_DB_DATA },
	{ "53", ERR_DB_RETRY },
	{ "54", ERR_DB_DATA },
	{ "55", ERR_DB_RETRY },
	{ "57P01", ERR_DB_UNKNOWN },
	{ "57P02", ERR_DB_UNKNOWN },
	{ "57", ERR_DB_RETRY },
	{ "58", ERR_DB_RETRY },
	{ "P0", ERR_DB_DATA },
	{ "XX", ERR_DB_RETRY },
};

enum err_kind
err_kind_of_sqlstate(const char *sqlstate)
{
	size_t i, n = sizeof(sqlstates) / sizeof(sqlstates[0]);

	if (!sqlstate || !*sqlstate)
		return ERR_DB_UNKNOWN;
	for (i = 0; i < n; i++)
		if (strncmp(sqlstate, sqlstates[i].code,
			    strlen(sqlstates[i].code)) == 0)
			return sqlstates[i].kind;
	return ERR_DB_DATA;
}

void
err_bug(const char *file, int line, const char *what)
{
	fprintf(stderr, "BUG: %s:%d: %s\n", file, line, what);
	abort();
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Faults of connectors.  Their texts end in a status document, so they are one
 * line of UTF-8 whatever the server and its encoding said; what a fault means
 * is decided by SQLSTATE, never by words.
 */
#include "connfault.h"

#include <stdarg.h>
#include <string.h>

#include "buf.h"
#include "err.h"
#include "jspan.h"
#include "span.h"

/* ---- texts ---- */

/* Bytes of the character that s begins with; 0 when it is none. */
static size_t
char_len(struct span s)
{
	unsigned char c = (unsigned char)s.p[0];
	size_t n = c < 0x80 ? 1 : c < 0xe0 ? 2 : c < 0xf0 ? 3 : 4;

	if (n > s.n || !jspan_utf8(span_make(s.p, n)))
		return 0;
	return n;
}

/* Does libpq begin another sentence on the next line, of a hint or a host? */
static bool
is_sentence(struct span s)
{
	static const char host[] = "\nconnection to server";

	return s.n > 2 && s.p[0] == '\n' &&
	       (s.p[1] == '\t' ||
		       (s.n >= sizeof(host) - 1 &&
			       memcmp(s.p, host, sizeof(host) - 1) == 0));
}

/* Ends what is in the line, unless it is ended. */
static void
put_stop(struct buf *b)
{
	if (b->len > 0 && !strchr(" .:;,?!", b->p[b->len - 1]))
		buf_putc(b, '.');
}

/* Runs of white space and controls become a space, what is no UTF-8 a `?`. */
static void
put_line(struct buf *b, struct span s)
{
	size_t n;

	for (; s.n > 0; s = span_make(s.p + n, s.n - n)) {
		unsigned char c = (unsigned char)s.p[0];

		n = char_len(s);
		if (n == 0) {
			buf_putc(b, '?');
			n = 1;
		} else if (c <= ' ' || c == 0x7f) {
			if (is_sentence(s))
				put_stop(b);
			if (b->len > 0 && b->p[b->len - 1] != ' ')
				buf_putc(b, ' ');
		} else {
			buf_put(b, s.p, n);
		}
	}
	while (b->len > 0 && b->p[b->len - 1] == ' ')
		b->len--;
}

static int
keep(struct connfault *f, const char *code, bool retryable, const char *state,
	struct span text)
{
	struct buf line = BUF_ZERO;
	struct span cut;

	f->code = code;
	f->retryable = retryable;
	memset(f->sqlstate, 0, sizeof(f->sqlstate));
	if (state)
		memcpy(f->sqlstate, state, strnlen(state, 5));
	put_line(&line, text);
	cut = span_clip(buf_span(&line), CONNFAULT_TEXT_MAX);
	if (cut.n > 0)
		memcpy(f->text, cut.p, cut.n);
	f->text[cut.n] = '\0';
	buf_fini(&line);
	return -1;
}

int
connfault_set(struct connfault *f, const char *code, bool retryable,
	const char *fmt, ...)
{
	struct buf b = BUF_ZERO;
	va_list ap;

	va_start(ap, fmt);
	buf_vprintf(&b, fmt, ap);
	va_end(ap);
	keep(f, code, retryable, NULL, buf_span(&b));
	buf_fini(&b);
	return -1;
}

/* ---- servers ---- */

bool
connfault_is(const struct connfault *f, const char *sqlstate)
{
	return f && strcmp(f->sqlstate, sqlstate) == 0;
}

bool
connfault_is_transient(const char *sqlstate)
{
	static const char *const whole[] = { "57P01", "57P02", "57P03", "40001",
		"40P01", "55006" };

	if (sqlstate[0] == '\0' || strncmp(sqlstate, "08", 2) == 0 ||
		strncmp(sqlstate, "53", 2) == 0)
		return true;
	for (size_t i = 0; i < sizeof(whole) / sizeof(whole[0]); i++)
		if (strcmp(sqlstate, whole[i]) == 0)
			return true;
	return false;
}

int
connfault_result(struct connfault *f, const PGresult *res, const PGconn *conn)
{
	const char *state = PQresultErrorField(res, PG_DIAG_SQLSTATE);
	const char *text = PQresultErrorField(res, PG_DIAG_MESSAGE_PRIMARY);
	const char *detail = PQresultErrorField(res, PG_DIAG_MESSAGE_DETAIL);
	const char *hint = PQresultErrorField(res, PG_DIAG_MESSAGE_HINT);
	struct buf b = BUF_ZERO;

	if (!state) {
		/* libpq's own words: the socket's end, or nonsense on it */
		text = res ? PQresultErrorMessage(res) : NULL;
		if ((!text || !*text) && conn)
			text = PQerrorMessage(conn);
		return connfault_set(f, "io", true, "%s",
			text && *text ? text : "the connection was lost");
	}
	buf_printf(&b, "%s: %s", state, text ? text : "no message");
	if (detail)
		buf_printf(&b, " (%s)", detail);
	if (hint)
		buf_printf(&b, ". %s", hint);
	keep(f, "postgres", connfault_is_transient(state), state, buf_span(&b));
	buf_fini(&b);
	return -1;
}

/* ---- the cell ---- */

int
connfault_cell(struct connfault *f, const struct err *e)
{
	bool passes = e->kind == ERR_LIMIT || e->kind == ERR_DB_RETRY ||
		      e->kind == ERR_DB_UNKNOWN || e->kind == ERR_IO;

	return keep(f, "queen", passes, e->sqlstate, span_of(e->text));
}

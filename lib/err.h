/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The error value.  What can fail returns 0 or -1 and takes a struct err last.
 * Low layers fill it, upper layers add context with err_wrap, and the place
 * that decides what to do about it logs it.  Nothing both logs and returns.
 */
#ifndef QUEEN_ERR_H
#define QUEEN_ERR_H

/* Kinds are decisions the caller can take, not places where it went wrong. */
enum err_kind {
	ERR_NONE = 0,
	ERR_INPUT,	/* the other side sent something wrong: tell it */
	ERR_CONFIG,	/* the operator configured something wrong: exit 2 */
	ERR_AUTH,	/* not allowed */
	ERR_LIMIT,	/* a bound of ours was hit: try later or smaller */
	ERR_DB_RETRY,	/* the database did not do it: may be repeated */
	ERR_DB_DATA,	/* the database refused the data: do not repeat */
	ERR_DB_UNKNOWN,	/* sent, answer lost: it may or may not have happened */
	ERR_IO,		/* a system call failed, see errnum */
	ERR_BUG,	/* our own mistake */
};

struct err {
	enum err_kind kind;
	int errnum;		/* errno, 0 when none */
	char sqlstate[6];	/* SQLSTATE, "" when none */
	char text[256];		/* one line, always NUL-terminated */
};

#define ERR_ZERO { .kind = ERR_NONE }

/* Fills *e and returns -1, so that callers write `return err_set(...)`. */
int err_set(struct err *e, enum err_kind kind, const char *fmt, ...)
	__attribute__((format(printf, 3, 4), nonnull(1, 3)));

/* As err_set with kind ERR_IO and ": strerror(errno)" appended. */
int err_errno(struct err *e, const char *fmt, ...)
	__attribute__((format(printf, 2, 3), nonnull(1, 2)));

/* Puts "context: " in front of the text, keeps kind and codes; returns -1. */
int err_wrap(struct err *e, const char *fmt, ...)
	__attribute__((format(printf, 2, 3), nonnull(1, 2)));

/* Maps a five-letter SQLSTATE to a kind; NULL or "" means the link broke. */
enum err_kind err_kind_of_sqlstate(const char *sqlstate);

/* Prints where and aborts: for our mistakes only, unreachable from input. */
void err_bug(const char *file, int line, const char *what)
	__attribute__((noreturn, nonnull));

#define BUG(cond) \
	do { \
		if (cond) \
			err_bug(__FILE__, __LINE__, #cond); \
	} while (0)

#endif

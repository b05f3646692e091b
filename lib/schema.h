/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Applies the embedded sql/ files: under a session advisory lock, one
 * statement per transaction, lock_timeout slices with retries, blockers
 * named.  Synchronous: boot and queenctl only.
 */
#ifndef QUEEN_SCHEMA_H
#define QUEEN_SCHEMA_H

#include <libpq-fe.h>
#include <stdbool.h>
#include <stdint.h>

#include "err.h"
#include "span.h"

/* Made by the build from sql/NNN_concern.sql, in order. */
struct schema_file {
	const char *name;
	const char *text;
};
extern const struct schema_file schema_files[];
extern const int schema_files_n;

enum { SCHEMA_MAJOR = 1, SCHEMA_NUMBER = 1 };

/* Session advisory lock of an apply, held from first to last statement. */
#define SCHEMA_LOCK_KEY INT64_C(7783201)

enum schema_state {
	SCHEMA_ABSENT,		/* no queen.cell row */
	SCHEMA_SAME,		/* equal number and hash */
	SCHEMA_OLDER,		/* database older or same number, other hash */
	SCHEMA_NEWER,		/* same major, higher number: run, do not apply */
	SCHEMA_FOREIGN,		/* other major */
};

struct schema_cell {
	enum schema_state state;
	int major, number;
	char hash[65];
	uint64_t tag;
	uint8_t hash_key[16];
};

/* Reads queen.cell; also checks server version >= 15 and encoding UTF8. */
int schema_read(PGconn *c, struct schema_cell *out, struct err *e)
	__attribute__((warn_unused_result));
/*
 * Applies unless SAME or NEWER; fills *out.  ERR_CONFIG: other major or
 * unsuitable database (exit 2); ERR_DB_RETRY: blocked by locks after about
 * retry_ms, the text names the blockers (exit 3); else exit 1.
 * progress may be NULL.
 */
int schema_apply(PGconn *c, int64_t retry_ms, struct schema_cell *out,
	void (*progress)(void *arg, const char *file, int done, int total),
	void *arg, struct err *e) __attribute__((warn_unused_result));

/* The same for another set of files: tests, and tools that bring their own. */
struct schema_set {
	const struct schema_file *files;
	int n;
	int major, number;
};
int schema_read_set(PGconn *c, const struct schema_set *set,
	struct schema_cell *out, struct err *e)
	__attribute__((warn_unused_result));
int schema_apply_set(PGconn *c, const struct schema_set *set,
	int64_t retry_ms, struct schema_cell *out,
	void (*progress)(void *arg, const char *file, int done, int total),
	void *arg, struct err *e) __attribute__((warn_unused_result));
void schema_hash_set(const struct schema_set *set, char out[65]);

/* The hash of the embedded files. */
const char *schema_hash(void);
/* Splits SQL text into statements: quotes, dollar quotes, comments. */
bool schema_next_statement(struct span *rest, struct span *stmt);

#endif

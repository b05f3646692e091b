/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A queue of queen-ojs as lines: each has a check that depends on all lines
 * before it, and the last one tells how many there are of each kind.
 */
#ifndef QUEENCTL_CMD_BACKUP_H
#define QUEENCTL_CMD_BACKUP_H

#include <libpq-fe.h>
#include <stdbool.h>
#include <stdint.h>

#include "buf.h"
#include "qid.h"

struct ctl;

enum {
	BACKUP_CHECK = 16, /* hex digits of a check */
	BACKUP_KINDS = 16,
	BACKUP_KIND_BYTES = 24,
};

/* What a line begins with, before its check and `",`. */
extern const char backup_head[];

struct backup_chain {
	char check[65]; /* of the line before; BACKUP_CHECK digits of it */
	struct buf text;
	int64_t lines;
	struct {
		char name[BACKUP_KIND_BYTES];
		int64_t n;
	} kind[BACKUP_KINDS];
	int kinds_n;
};

/* Goes on to the check of a line, given without. */
void backup_chain_next(struct backup_chain *c, struct span line);
/* False: there are too many kinds, or it is none. */
bool backup_chain_count(struct backup_chain *c, struct span kind);
/* Appends the last line, which tells what was counted. */
void backup_chain_end(const struct backup_chain *c, struct buf *out);

/* The tenant of --tenant or QUEEN_TENANT; an exit code. */
int backup_tenant(const struct ctl *c, char out[QID_TEXT_MAX]);
/* Begins what may wait for a pipe as long as it likes; an exit code. */
int backup_begin(PGconn *pg, const char *how);
/* A line on stdout: what was done, and how much of each kind. */
void backup_say(const struct ctl *c, const char *did, const char *queue,
	const struct backup_chain *chain);

#endif

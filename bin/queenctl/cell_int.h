/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by cell.c (where, whether), cell_make.c, cell_run.c, cell_with.c. */
#ifndef QUEENCTL_CELL_INT_H
#define QUEENCTL_CELL_INT_H

#include "cell.h"

/* dir/name into out; ERR_CONFIG when it does not fit. */
int cell_path(const struct cell *c, const char *name, char out[CELL_PATH],
	struct err *e) __attribute__((warn_unused_result));
/* Folders, data directory and configuration, where missing. */
int cell_make(const struct cell *c, struct err *e)
	__attribute__((warn_unused_result));
/* A folder everyone may pass, where missing; -1 with errno. */
int cell_make_passable(const char *path) __attribute__((warn_unused_result));
/* Creates the database of the cell in the running server, where missing. */
int cell_make_database(const struct cell *c, struct err *e)
	__attribute__((warn_unused_result));
/*
 * The supervisor: holds the lock, starts PostgreSQL and queend, starts again
 * what dies, until SIGTERM or SIGINT.  ready_fd gets one line, `ready` or
 * `failed TEXT`, and is closed.  Returns the exit status.
 */
int cell_supervise(struct cell *c, int ready_fd);
/* After fork: the user of the cell, for good.  _exit on failure. */
void cell_become_user(const struct cell *c);
/* 1 when locked by us (fd), 0 when another holds it, -1 on error. */
int cell_lock(const struct cell *c, int *fd, struct err *e)
	__attribute__((warn_unused_result));
int cell_write_env(const struct cell *c, struct err *e)
	__attribute__((warn_unused_result));
/* host:port that takes connections? */
bool cell_answers(const char *host, const char *port);

/* ---- cell_with.c ---- */

/* A comma list of the words that are wanted. */
void cell_with_write(const struct cell *c, char *out, size_t cap);
/* Makes DIR/key where a tool is wanted and there is none. */
int cell_with_key(const struct cell *c, struct err *e)
	__attribute__((warn_unused_result));
/* In a child: DIR/key, if it is there and no key is set. */
void cell_with_env(const struct cell *c);
/* Is anybody on the port of a tool that is wanted? */
int cell_with_check(const struct cell *c, struct err *e)
	__attribute__((warn_unused_result));
/* Its listener takes connections, or it has none. */
bool cell_with_answers(const struct cell *c, int tool);
/* http://host:port of queen-ojs; empty when it is not wanted. */
void cell_with_ojs_url(const struct cell *c, char *out, size_t cap);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* Whole small files, and lines of large ones. */
#ifndef QUEENCTL_FILE_H
#define QUEENCTL_FILE_H

#include <stddef.h>
#include <stdio.h>

#include "span.h"

struct buf;
struct err;

enum {
	FILE_SMALL_BYTES = 16 << 20,
	FILE_LINE_MAX = 16 << 20,	/* bytes of one NDJSON line */
};

/*
 * Appends the file, `-` = stdin.  ERR_CONFIG with errnum when it cannot be
 * read or holds more than max bytes.
 */
int file_read(const char *path, size_t max, struct buf *out, struct err *e)
	__attribute__((warn_unused_result));
/*
 * Writes PATH.tmp, 0600, and moves it there; makes missing folders, 0700.
 */
int file_replace(const char *path, struct span content, struct err *e)
	__attribute__((warn_unused_result));

/* Lines of a stream; `-` = stdin. */
struct file_lines {
	FILE *f;
	char *line;
	size_t cap, number;	/* number of the line read last, from 1 */
	size_t max;		/* bytes of a line; FILE_LINE_MAX once open */
};
int file_lines_open(struct file_lines *l, const char *path, struct err *e)
	__attribute__((warn_unused_result));
/*
 * 1 with the next line that is not blank, without its end; 0 at the end;
 * -1 with ERR_INPUT when it is longer than max.
 */
int file_lines_next(struct file_lines *l, struct span *line, struct err *e)
	__attribute__((warn_unused_result));
void file_lines_close(struct file_lines *l);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* A secret typed or kept in a file: never an argument, which others see. */
#ifndef QUEENCTL_SECRET_H
#define QUEENCTL_SECRET_H

#include <stdbool.h>

struct buf;
struct err;

/* Somebody sits there who can be asked. */
bool secret_can_ask(void);
/* The line typed, without echo; empty when nothing was. */
int secret_ask(const char *what, struct buf *out, struct err *e)
	__attribute__((warn_unused_result));
/* A whole file without white space around; `-` = stdin, asked on a terminal. */
int secret_read(const char *path, const char *what, struct buf *out,
	struct err *e) __attribute__((warn_unused_result));

#endif

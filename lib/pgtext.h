/* SPDX-License-Identifier: Apache-2.0 */
/* Columns of a result in text form; a null, or no such row, is empty or 0. */
#ifndef QUEEN_PGTEXT_H
#define QUEEN_PGTEXT_H

#include <stdbool.h>
#include <stdint.h>

#include <libpq-fe.h>

#include "span.h"

struct arena;

/* Borrowed from the result; the other lies in the arena. */
struct span pgtext_get(const PGresult *r, int row, int col);
struct span pgtext_dup(const PGresult *r, int row, int col, struct arena *a);
bool pgtext_bool(const PGresult *r, int row, int col);
int64_t pgtext_i64(const PGresult *r, int row, int col);
/* A "char" column; 0 when it is empty. */
char pgtext_char(const PGresult *r, int row, int col);

#endif

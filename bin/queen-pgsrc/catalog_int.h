/* SPDX-License-Identifier: Apache-2.0 */
/* Reading results of text: what the files of catalog share. */
#ifndef QUEEN_PGSRC_CATALOG_INT_H
#define QUEEN_PGSRC_CATALOG_INT_H

#include <stdbool.h>
#include <stdint.h>

#include <libpq-fe.h>

#include "span.h"

struct arena;
struct connfault;

/* Is there a result number `at` with so many columns?  Else *f is set. */
bool catalog_shape(PGresult *const *res, int n, int at, int columns,
	struct connfault *f);
/* Borrowed, empty for null; the other in the arena. */
struct span catalog_value(const PGresult *r, int row, int col);
struct span catalog_text(const PGresult *r, int row, int col, struct arena *a);
bool catalog_bool(const PGresult *r, int row, int col);
int64_t catalog_i64(const PGresult *r, int row, int col);

#endif

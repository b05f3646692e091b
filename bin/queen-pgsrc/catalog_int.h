/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of catalog share. */
#ifndef QUEEN_PGSRC_CATALOG_INT_H
#define QUEEN_PGSRC_CATALOG_INT_H

#include <stdbool.h>

#include <libpq-fe.h>

struct connfault;

/* Is there a result number `at` with so many columns?  Else *f is set. */
bool catalog_shape(PGresult *const *res, int n, int at, int columns,
	struct connfault *f);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* What servers of users answer: the simple protocol knows no binary values. */
#include "pgtext.h"

#include "arena.h"

struct span
pgtext_get(const PGresult *r, int row, int col)
{
	if (row >= PQntuples(r) || col >= PQnfields(r))
		return (struct span)SPAN_ZERO;
	return span_make(
		PQgetvalue(r, row, col), (size_t)PQgetlength(r, row, col));
}

struct span
pgtext_dup(const PGresult *r, int row, int col, struct arena *a)
{
	return arena_dup(a, pgtext_get(r, row, col));
}

bool
pgtext_bool(const PGresult *r, int row, int col)
{
	return span_is(pgtext_get(r, row, col), "t");
}

int64_t
pgtext_i64(const PGresult *r, int row, int col)
{
	int64_t v = 0;

	return span_i64(pgtext_get(r, row, col), &v) ? v : 0;
}

char
pgtext_char(const PGresult *r, int row, int col)
{
	struct span s = pgtext_get(r, row, col);

	return s.n ? s.p[0] : '\0';
}

/* SPDX-License-Identifier: Apache-2.0 */
/* The keys of a process against those its cell was ever sealed with. */
#ifndef QUEEN_SEALPROOF_H
#define QUEEN_SEALPROOF_H

#include <libpq-fe.h>

struct err;
struct seal;

/*
 * Boot: ERR_CONFIG when the newest key of the cell is not among ours, or ours
 * is another than the cell knows under its id.  The first process with a key
 * makes it known.  A process without keys passes.
 */
int sealproof_check(const struct seal *s, PGconn *pg, struct err *e)
	__attribute__((warn_unused_result));

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* What stands in for limits as long as none are linked. */
#include "kvlimit.h"

bool __attribute__((weak))
kvlimit_admit(struct ctx *x, const struct qid *tenant,
	const struct kvlimit_ask *ask, struct kvlimit_no *no)
{
	(void)x, (void)tenant, (void)ask, (void)no;
	return true;
}

void __attribute__((weak))
kvlimit_refund(struct ctx *x, const struct qid *tenant,
	const struct kvlimit_ask *ask)
{
	(void)x, (void)tenant, (void)ask;
}

void __attribute__((weak))
kvlimit_lane(struct ctx *x, bool got_connection)
{
	(void)x, (void)got_connection;
}

void __attribute__((weak))
kvlimit_count(struct ctx *x, enum kvlimit_op op, enum kvlimit_result result)
{
	(void)x, (void)op, (void)result;
}

void __attribute__((weak))
kvlimit_read_refused(struct ctx *x, enum kvlimit_why why)
{
	(void)x, (void)why;
}

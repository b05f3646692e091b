/* SPDX-License-Identifier: Apache-2.0 */
/* Whose request it is. */
#include "ctx.h"

#include "hsrv.h"

static const struct ctx_who *
who_of(const struct hsrv_req *r)
{
	static const struct ctx_who nobody = CTX_NOBODY_INIT;
	const struct ctx_who *who = hsrv_who(r);

	return who ? who : &nobody;
}

struct ctx *
ctx_of(const struct hsrv_req *r)
{
	return hsrv_ctx(r);
}

const struct qid *
ctx_tenant(const struct hsrv_req *r)
{
	return &who_of(r)->tenant;
}

struct span
ctx_subject(const struct hsrv_req *r)
{
	return who_of(r)->subject;
}

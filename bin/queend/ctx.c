/* SPDX-License-Identifier: Apache-2.0 */
/* Whose request it is. */
#include "ctx.h"

#include "gate.h"

struct ctx *
ctx_of(const struct hsrv_req *r)
{
	return hsrv_ctx(r);
}

const struct qid *
ctx_tenant(const struct hsrv_req *r)
{
	return gate_tenant(r);
}

struct span
ctx_subject(const struct hsrv_req *r)
{
	return gate_subject(r);
}

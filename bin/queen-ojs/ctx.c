/* SPDX-License-Identifier: Apache-2.0 */
/* Whose request it is, and what time it is. */
#include "ctx.h"

#include "clk.h"
#include "gate.h"
#include "hsrv.h"

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

int64_t
ctx_now_us(const struct ctx *x)
{
	return clk_wall_us() + x->clock_offset_us;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Whose request it is. */
#include "ctx.h"

#include "hsrv.h"

/* The default tenant; 1.6 of http-core: without the header everyone is it. */
static const struct qid default_tenant = {
	.b = { [15] = 1 },
};

struct ctx *
ctx_of(const struct hsrv_req *r)
{
	return hsrv_ctx(r);
}

const struct qid *
ctx_tenant(const struct hsrv_req *r)
{
	(void)r;
	return &default_tenant;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* The bodies of refusals; see kv_reply.h. */
#include "kv_reply.h"

#include <stdio.h>

#include "fault.h"
#include "jspan.h"

static void
reply(struct hsrv_req *r, int status, const char *error, const char *reason,
	const char *detail)
{
	struct fault f;

	fault_set(&f, status, error, reason, "%s", detail);
	fault_reply(r, &f);
}

void
kv_reply_bad(struct hsrv_req *r, const char *reason, const char *detail)
{
	reply(r, 400, "kv_bad_request", reason, detail);
}

void
kv_reply_large(struct hsrv_req *r, const char *reason, const char *detail)
{
	reply(r, 413, "payload_too_large", reason, detail);
}

void
kv_reply_bad_body(struct hsrv_req *r, const struct jspan *j)
{
	char text[256];

	snprintf(text, sizeof(text), "%s at offset %zu",
		j->error ? j->error : "unexpected value", j->error_at);
	kv_reply_bad(r, "kv_bad_body", text);
}

void
kv_reply_tenant(struct hsrv_req *r)
{
	kv_reply_bad(r, "kv_tenant_not_an_input",
		"the tenant is that of the request");
}

void
kv_reply_missing(struct hsrv_req *r)
{
	struct fault f = { .status = 500,
		.error = "kv_error",
		.reason = "kv_result_missing" };

	fault_reply(r, &f);
}

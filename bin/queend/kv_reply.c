/* SPDX-License-Identifier: Apache-2.0 */
/* The bodies of refusals; see kv_reply.h. */
#include "kv_reply.h"

#include <stdio.h>

#include "arena.h"
#include "hsrv.h"
#include "jspan.h"
#include "jwrite.h"
#include "kv_ops.h"
#include "kvlimit.h"

void
kv_reply_fault(struct hsrv_req *r, const struct kv_fault *f)
{
	struct jwrite w;

	if (f->retry_after_s) {
		struct span s =
			arena_printf(hsrv_arena(r), "%d", f->retry_after_s);

		hsrv_add_header(r, "Retry-After", arena_cstr(hsrv_arena(r), s));
	}
	buf_reset(hsrv_out(r));
	jwrite_init(&w, hsrv_out(r));
	jwrite_object(&w);
	jwrite_kv_cstr(&w, "error", f->error);
	if (f->reason)
		jwrite_kv_cstr(&w, "reason", f->reason);
	if (f->detail[0])
		jwrite_kv_cstr(&w, "detail", f->detail);
	jwrite_end(&w);
	hsrv_reply(r, f->status);
}

void
kv_reply_limit(struct hsrv_req *r, const struct kvlimit_no *no)
{
	struct kv_fault f = { .status = no->status,
		.error = no->error,
		.reason = no->reason,
		.retry_after_s = no->retry_after_s };

	kv_reply_fault(r, &f);
}

static void
reply(struct hsrv_req *r, int status, const char *error, const char *reason,
	const char *detail)
{
	struct kv_fault f = {
		.status = status, .error = error, .reason = reason
	};

	snprintf(f.detail, sizeof(f.detail), "%s", detail);
	kv_reply_fault(r, &f);
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
	struct kv_fault f = { .status = 500,
		.error = "kv_error",
		.reason = "kv_result_missing" };

	kv_reply_fault(r, &f);
}

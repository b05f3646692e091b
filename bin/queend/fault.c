/* SPDX-License-Identifier: Apache-2.0 */
/* Made and answered; see fault.h. */
#include "fault.h"

#include <stdarg.h>
#include <stdio.h>

#include "arena.h"
#include "hsrv.h"
#include "jwrite.h"
#include "kvlimit.h"

int
fault_set(struct fault *f, int status, const char *error, const char *reason,
	const char *fmt, ...)
{
	va_list ap;

	*f = (struct fault){
		.status = status, .error = error, .reason = reason
	};
	va_start(ap, fmt);
	vsnprintf(f->detail, sizeof(f->detail), fmt, ap);
	va_end(ap);
	return -1;
}

void
fault_of_limit(const struct kvlimit_no *no, struct fault *f)
{
	*f = (struct fault){ .status = no->status,
		.error = no->error,
		.reason = no->reason,
		.retry_after_s = no->retry_after_s };
}

void
fault_reply(struct hsrv_req *r, const struct fault *f)
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

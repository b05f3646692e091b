/* SPDX-License-Identifier: Apache-2.0 */
/* Made and answered; see fault.h. */
#include "fault.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "arena.h"
#include "err.h"
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

static bool
is_class(const struct err *e, const char *two)
{
	return strncmp(e->sqlstate, two, 2) == 0;
}

static bool
is_passing(const struct err *e)
{
	return (e->kind == ERR_DB_RETRY || e->kind == ERR_DB_UNKNOWN) &&
	       !is_class(e, "XX");
}

static void
set(struct fault *f, int status, const char *error, const char *reason)
{
	f->status = status;
	f->error = error;
	f->reason = reason;
	f->retry_after_s = status == 503;
}

/* A reason of ours is a word; what PostgreSQL itself says is not. */
static void
set_bad(struct fault *f, const struct err *e, const struct fault_words *w)
{
	if (strncmp(e->text, w->prefix, strlen(w->prefix)) == 0 &&
		!strchr(e->text, ' ')) {
		set(f, 400, w->bad_request, f->reason_text);
		return;
	}
	set(f, 400, w->bad_request, w->bad_request);
	snprintf(f->detail, sizeof(f->detail), "%s", e->text);
}

void
fault_of_err(const struct err *e, const struct fault_words *w, struct fault *f)
{
	*f = (struct fault){ .status = 0 };
	snprintf(f->reason_text, sizeof(f->reason_text), "%s", e->text);
	if (e->kind == ERR_LIMIT)
		set(f, 503, w->unavailable, w->pool_exhausted);
	else if (strcmp(e->sqlstate, "57014") == 0 ||
		 strncmp(e->text, "statement timeout", 17) == 0)
		set(f, 503, w->unavailable, w->timeout);
	else if (e->sqlstate[0] == '\0')
		set(f, 503, w->unavailable, "connection");
	else if (is_class(e, "22"))
		set_bad(f, e, w);
	else if (is_passing(e))
		set(f, 503, w->unavailable, f->reason_text);
	else if (is_class(e, "42"))
		set(f, 500, w->misconfigured, f->reason_text);
	else
		set(f, 500, w->error, f->reason_text);
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

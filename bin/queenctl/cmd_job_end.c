/* SPDX-License-Identifier: Apache-2.0 */
/* How a job ends: ack, nack, cancel, activate, and its dead letter. */
#include <inttypes.h>
#include <string.h>

#include "client.h"
#include "cmd_ojs.h"
#include "cmds.h"
#include "ctl.h"
#include "doc.h"
#include "file.h"
#include "jwrite.h"
#include "out.h"

enum { RESULT_MAX_BYTES = 16 << 20 };

static const char *
text_of(struct ctl *c, const struct client_reply *r, const char *path)
{
	return doc_str(buf_span(&r->body), path, "-", &c->arena);
}

/* ---- ack, nack ---- */

/* The argument, or --file; nothing is fine too. */
static int
read_result(const struct cmd_call *a, struct buf *out)
{
	const char *file = cmd_str(a, "file");
	struct err e = ERR_ZERO;

	if (file && a->args_n > 1)
		return ctl_fail(CTL_USER, "one result: an argument or --file");
	if (a->args_n > 1)
		buf_puts(out, a->arg[1]);
	else if (!file)
		return CTL_OK;
	else if (file_read(file, RESULT_MAX_BYTES, out, &e) != 0)
		return ctl_fail_err(&e);
	return doc_check(buf_span(out), &e) == 0
		       ? CTL_OK
		       : ctl_fail(CTL_USER, "the result: %s", e.text);
}

int
cmd_job_ack(struct ctl *c, const struct cmd_call *a)
{
	struct client_reply r = { .body = BUF_ZERO };
	struct buf body = BUF_ZERO, result = BUF_ZERO;
	struct jwrite w;
	int code = read_result(a, &result);

	jwrite_init(&w, &body);
	jwrite_object(&w);
	jwrite_kv_cstr(&w, "job_id", a->arg[0]);
	ojs_write_flags(a, &w);
	ojs_write_json(&w, "result", buf_span(&result));
	jwrite_end(&w);
	if (code == 0)
		code = ojs_ask(c, a, "POST", NULL, buf_span(&body), &r);
	if (code == 0 && ctl_wants_answer(c))
		code = out_print(c, buf_span(&r.body), NULL);
	else if (code == 0)
		ctl_say(c, "%s %s", text_of(c, &r, "state"),
			text_of(c, &r, "job_id"));
	buf_fini(&result);
	buf_fini(&body);
	buf_fini(&r.body);
	return code;
}

static bool
says_why(const struct cmd_call *a)
{
	return a->args_n > 1 || cmd_str(a, "type") || cmd_str(a, "code") ||
	       cmd_str(a, "details") || cmd_bool(a, "final");
}

static void
write_error(const struct cmd_call *a, struct jwrite *w, struct span details)
{
	if (!says_why(a))
		return;
	jwrite_key(w, "error");
	jwrite_object(w);
	if (cmd_str(a, "type"))
		jwrite_kv_cstr(w, "type", cmd_str(a, "type"));
	if (cmd_str(a, "code"))
		jwrite_kv_cstr(w, "code", cmd_str(a, "code"));
	if (a->args_n > 1)
		jwrite_kv_cstr(w, "message", a->arg[1]);
	if (cmd_bool(a, "final"))
		jwrite_kv_bool(w, "retryable", false);
	ojs_write_json(w, "details", details);
	jwrite_end(w);
}

static void
tell_nack(struct ctl *c, const struct client_reply *r)
{
	const char *next = text_of(c, r, "next_attempt_at");

	ctl_say(c, "%s %s attempt=%s/%s%s%s", text_of(c, r, "state"),
		text_of(c, r, "job_id"), text_of(c, r, "attempt"),
		text_of(c, r, "max_attempts"),
		*next == '-' ? "" : " next=", *next == '-' ? "" : next);
}

int
cmd_job_nack(struct ctl *c, const struct cmd_call *a)
{
	struct client_reply r = { .body = BUF_ZERO };
	struct buf body = BUF_ZERO;
	struct span details;
	struct jwrite w;
	int code = ojs_json_flag(a, "details", &details);

	if (code == 0 && cmd_bool(a, "requeue") && says_why(a))
		code = ctl_fail(CTL_USER,
			"--requeue gives it back without an error: no message, "
			"--type, --code, --details or --final beside it");
	if (code == 0 && !says_why(a) && !cmd_bool(a, "requeue"))
		code = ctl_fail(CTL_USER, "why did it fail? name a message, or "
					  "give it back with --requeue");
	if (code != 0)
		return code;
	jwrite_init(&w, &body);
	jwrite_object(&w);
	jwrite_kv_cstr(&w, "job_id", a->arg[0]);
	ojs_write_flags(a, &w);
	write_error(a, &w, details);
	jwrite_end(&w);
	code = ojs_ask(c, a, "POST", NULL, buf_span(&body), &r);
	if (code == 0 && ctl_wants_answer(c))
		code = out_print(c, buf_span(&r.body), NULL);
	else if (code == 0)
		tell_nack(c, &r);
	buf_fini(&body);
	buf_fini(&r.body);
	return code;
}

/* ---- one job by its path ---- */

/* Tells the state it is in now, or that it is deleted, and the job. */
static int
act(struct ctl *c, const struct cmd_call *a, const char *method)
{
	struct client_reply r = { .body = BUF_ZERO };
	bool post = strcmp(method, "POST") == 0;
	int code = ojs_ask(c, a, method, NULL,
		post ? SPAN_LIT("{}") : (struct span)SPAN_ZERO, &r);

	if (code == 0 && ctl_wants_answer(c))
		code = out_print(c, buf_span(&r.body), a->phrase->view);
	else if (code == 0)
		ctl_say(c, "%s %s",
			a->phrase->view ? text_of(c, &r, "job.state")
					: "deleted",
			a->arg[0]);
	buf_fini(&r.body);
	return code;
}

int
cmd_job_cancel(struct ctl *c, const struct cmd_call *a)
{
	return act(c, a, "DELETE");
}

int
cmd_job_activate(struct ctl *c, const struct cmd_call *a)
{
	return act(c, a, "POST");
}

int
cmd_job_dead_retry(struct ctl *c, const struct cmd_call *a)
{
	if (!cmd_confirmed(a, "run a dead letter again"))
		return CTL_USER;
	return act(c, a, "POST");
}

int
cmd_job_dead_delete(struct ctl *c, const struct cmd_call *a)
{
	if (!cmd_confirmed(a, "delete a dead letter"))
		return CTL_USER;
	return act(c, a, "DELETE");
}

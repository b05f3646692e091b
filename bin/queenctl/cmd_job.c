/* SPDX-License-Identifier: Apache-2.0 */
/*
 * job push and fetch.  Arguments of jobs are spans of the input up to the
 * request; they are checked, never rewritten.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "client.h"
#include "clk.h"
#include "cmd_ojs.h"
#include "cmd_view.h"
#include "cmds.h"
#include "ctl.h"
#include "doc.h"
#include "jwrite.h"
#include "out.h"

#define API "/ojs/v1"

/* ---- push ---- */

/* What every job of the command has beside its arguments. */
struct push {
	struct span meta, retry, unique, rate;
};

static int
take_json(const struct cmd_call *a, struct push *p)
{
	int code = ojs_json_flag(a, "meta", &p->meta);

	if (code == 0)
		code = ojs_json_flag(a, "retry", &p->retry);
	if (code == 0)
		code = ojs_json_flag(a, "unique", &p->unique);
	if (code == 0)
		code = ojs_json_flag(a, "rate-limit", &p->rate);
	if (code == 0 && p->retry.n && cmd_typed(a, "max-attempts"))
		code = ctl_fail(CTL_USER,
			"--retry has max_attempts: it excludes --max-attempts");
	return code;
}

/* So long from the moment the server reads it. */
static void
write_from_now(const struct cmd_call *a, struct jwrite *w, const char *flag,
	const char *member)
{
	char text[40];
	int64_t ms;

	if (!cmd_typed(a, flag))
		return;
	ms = cmd_int(a, flag);
	snprintf(text, sizeof(text), "+PT%" PRId64 ".%03" PRId64 "S", ms / 1000,
		ms % 1000);
	jwrite_kv_cstr(w, member, text);
}

static void
write_job(const struct cmd_call *a, const struct push *p, struct jwrite *w,
	struct span args)
{
	jwrite_object(w);
	jwrite_kv_cstr(w, "type", a->arg[0]);
	jwrite_kv_raw(w, "args", args);
	if (cmd_str(a, "id"))
		jwrite_kv_cstr(w, "id", cmd_str(a, "id"));
	ojs_write_json(w, "meta", p->meta);
	jwrite_key(w, "options");
	jwrite_object(w);
	ojs_write_flags(a, w);
	write_from_now(a, w, "delay", "delay_until");
	write_from_now(a, w, "expires", "expires_at");
	ojs_write_json(w, "retry", p->retry);
	if (cmd_typed(a, "max-attempts")) {
		jwrite_key(w, "retry");
		jwrite_object(w);
		jwrite_kv_i64(w, "max_attempts", cmd_int(a, "max-attempts"));
		jwrite_end(w);
	}
	ojs_write_json(w, "unique", p->unique);
	ojs_write_json(w, "rate_limit", p->rate);
	jwrite_end(w);
	jwrite_end(w);
}

static int
write_line(struct ojs_lines *l, struct jwrite *w, struct span line)
{
	if (l->a->args_n == 0)
		jwrite_raw(w, line);
	else
		write_job(l->a, l->arg, w, line);
	return CTL_OK;
}

/* Flags say what lines hold themselves when no type is named. */
static int
check_whole(const struct cmd_call *a)
{
	const struct cmd_flag *f = a->phrase->flags;

	for (int i = 0; a->args_n == 0 && f[i].name; i++)
		if (a->flag[i].typed &&
			!cmd_is_word("batch file dry-run", f[i].name))
			return ctl_fail(CTL_USER,
				"--%s needs a type; without one, lines are "
				"whole jobs",
				f[i].name);
	return CTL_OK;
}

static int
push_one(struct ctl *c, const struct cmd_call *a, const struct push *p)
{
	struct client_req q = {
		.method = "POST", .path = API "/jobs", .kind = CLIENT_WRITE
	};
	struct client_reply r = { .body = BUF_ZERO };
	struct span args = span_of(a->arg[1]);
	struct buf body = BUF_ZERO;
	struct err e = ERR_ZERO;
	struct jwrite w;
	int code;

	if (cmd_str(a, "file"))
		return ctl_fail(CTL_USER, "one job or --file, not both");
	if (doc_check(args, &e) != 0)
		return ctl_fail(CTL_USER, "the arguments: %s", e.text);
	if (cmd_bool(a, "dry-run")) {
		ctl_say(c, "would send 1 jobs");
		return CTL_OK;
	}
	jwrite_init(&w, &body);
	write_job(a, p, &w, args);
	q.body = buf_span(&body);
	code = ctl_target_ojs(c);
	if (code == 0)
		code = client_ask(c, &q, &r);
	if (code == 0 && ctl_wants_answer(c))
		code = out_print(c, buf_span(&r.body), &cmd_view_job);
	else if (code == 0)
		ctl_say(c, "%s %s %s", r.status == 200 ? "there is" : "pushed",
			doc_str(buf_span(&r.body), "job.id", "-", &c->arena),
			doc_str(buf_span(&r.body), "job.state", "-",
				&c->arena));
	buf_fini(&body);
	buf_fini(&r.body);
	return code;
}

int
cmd_job_push(struct ctl *c, const struct cmd_call *a)
{
	struct push p = { .meta = SPAN_ZERO };
	struct ojs_lines l = { .c = c,
		.a = a,
		.path = API "/jobs/batch",
		.member = "jobs",
		.write = write_line,
		.arg = &p };
	int code = check_whole(a);

	if (code == 0)
		code = take_json(a, &p);
	if (code != 0)
		return code;
	if (a->args_n == 2)
		return push_one(c, a, &p);
	if (cmd_str(a, "id"))
		return ctl_fail(CTL_USER, "--id names one job: give its "
					  "arguments as an argument");
	return ojs_send_lines(&l);
}

/* ---- fetch ---- */

/* `a,b` as an array. */
static void
write_list(struct jwrite *w, const char *member, const char *list)
{
	jwrite_key(w, member);
	jwrite_array(w);
	while (*list) {
		size_t n = strcspn(list, ",");
		struct span one = span_trim(span_make(list, n));

		if (one.n)
			jwrite_str(w, one);
		list += n + (list[n] == ',');
	}
	jwrite_end(w);
}

static int
fetch_once(struct ctl *c, const struct cmd_call *a, int64_t wait_ms,
	struct client_reply *r)
{
	struct buf body = BUF_ZERO;
	struct jwrite w;
	int code;

	jwrite_init(&w, &body);
	jwrite_object(&w);
	write_list(&w, "queues", a->args_n ? a->arg[0] : "default");
	jwrite_kv_i64(&w, "count", cmd_int(a, "limit"));
	ojs_write_flags(a, &w);
	if (wait_ms > 0)
		jwrite_kv_i64(&w, "wait_ms", wait_ms);
	jwrite_end(&w);
	code = ojs_ask(c, a, "POST", NULL, buf_span(&body), r);
	buf_fini(&body);
	return code;
}

int
cmd_job_fetch(struct ctl *c, const struct cmd_call *a)
{
	int64_t until_ms = clk_mono_ms() + cmd_int(a, "wait"), left_ms;
	struct client_reply r = { .body = BUF_ZERO };
	struct jspan_val list, v;
	int64_t printed = 0;
	struct jspan j;
	int code;

	do {
		left_ms = until_ms - clk_mono_ms();
		code = fetch_once(c, a,
			left_ms < OJS_WAIT_MAX_MS ? left_ms : OJS_WAIT_MAX_MS,
			&r);
		if (code != 0 ||
			!doc_path(buf_span(&r.body), "jobs", &c->arena, &list))
			break;
		for (doc_open(&j, list.raw); doc_next(&j, &v); printed++)
			ojs_print_line(v.raw);
	} while (printed == 0 && left_ms > OJS_WAIT_MAX_MS);
	buf_fini(&r.body);
	return code ? code : printed ? CTL_OK : CTL_NOTHING;
}

/* ---- heartbeat ---- */

int
cmd_job_heartbeat(struct ctl *c, const struct cmd_call *a)
{
	struct client_reply r = { .body = BUF_ZERO };
	struct buf body = BUF_ZERO;
	struct jspan_val v;
	struct jwrite w;
	size_t kept = 0, lost = 0;
	int code;

	jwrite_init(&w, &body);
	jwrite_object(&w);
	jwrite_kv_cstr(&w, "worker_id", a->arg[0]);
	write_list(&w, "active_jobs", a->args_n > 1 ? a->arg[1] : "");
	ojs_write_flags(a, &w);
	jwrite_end(&w);
	code = ojs_ask(c, a, "POST", NULL, buf_span(&body), &r);
	if (code == 0 &&
		doc_path(buf_span(&r.body), "jobs_extended", &c->arena, &v))
		kept = doc_count(v.raw);
	if (code == 0 &&
		doc_path(buf_span(&r.body), "jobs_lost", &c->arena, &v))
		lost = doc_count(v.raw);
	if (code == 0 && ctl_wants_answer(c))
		code = out_print(c, buf_span(&r.body), NULL);
	else if (code == 0)
		ctl_say(c, "%s extended=%zu lost=%zu",
			doc_str(buf_span(&r.body), "state", "-", &c->arena),
			kept, lost);
	buf_fini(&body);
	buf_fini(&r.body);
	return code;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Recurring jobs, workflows and queues of queen-ojs. */
#include <stdio.h>
#include <string.h>

#include "client.h"
#include "cmd_ojs.h"
#include "cmds.h"
#include "ctl.h"
#include "doc.h"
#include "file.h"
#include "jwrite.h"
#include "out.h"
#include "yamldoc.h"

/* ---- documents ---- */

struct apply {
	struct ctl *c;
	const struct cmd_call *a;
	const char *what; /* a cron, a workflow: of the answer */
	const char *id; /* its member that is told */
	bool check; /* only look at what is there */
	bool many; /* say which one is refused */
	int documents, code;
};

static int
send_document(struct apply *p, struct span doc)
{
	struct client_reply r = { .body = BUF_ZERO };
	char path[32], where[32] = "";
	int code;

	if (p->many)
		snprintf(where, sizeof(where), "document %d: ", p->documents);
	code = ojs_ask_at(p->c, p->a, where, doc, &r);
	snprintf(path, sizeof(path), "%s.%s", p->what, p->id);
	if (code == 0 && ctl_wants_answer(p->c))
		code = out_print(p->c, buf_span(&r.body), NULL);
	else if (code == 0)
		ctl_say(p->c, "%s %s %s",
			r.status == 201 ? "created" : "changed", p->what,
			doc_str(buf_span(&r.body), path, "-", &p->c->arena));
	buf_fini(&r.body);
	return code;
}

static int on_document(void *arg, struct span doc, struct err *e);

/* As a list prints them. */
static int
on_array(struct apply *p, struct span array, struct err *e)
{
	struct jspan_val v;
	struct jspan j;

	for (doc_open(&j, array); doc_next(&j, &v);)
		if (on_document(p, v.raw, e) != 0)
			return -1;
	return 0;
}

static int
on_document(void *arg, struct span doc, struct err *e)
{
	struct apply *p = arg;

	if (doc_val(doc).type == JSPAN_NULL)
		return 0;
	if (doc_val(doc).type == JSPAN_ARRAY)
		return on_array(p, doc, e);
	p->documents++;
	if (doc_val(doc).type != JSPAN_OBJECT)
		p->code = ctl_fail(CTL_USER, "document %d: expected a mapping",
			p->documents);
	else if (!p->check)
		p->code = send_document(p, doc);
	return p->code ? err_set(e, ERR_INPUT, "told already") : 0;
}

/* Nothing is sent unless all of it can be read. */
static int
apply(struct ctl *c, const struct cmd_call *a, const char *what, const char *id)
{
	struct apply p = {
		.c = c, .a = a, .what = what, .id = id, .check = true
	};
	const char *file = cmd_str(a, "file");
	struct buf text = BUF_ZERO;
	struct err e = ERR_ZERO;
	int code = CTL_OK;

	if (!file)
		return ctl_fail(
			CTL_USER, "which document? name it with --file");
	if (file_read(file, FILE_SMALL_BYTES, &text, &e) != 0)
		code = ctl_fail_err(&e);
	else if (yamldoc_read(buf_span(&text), on_document, &p, &e) != 0)
		code = p.code ? p.code : ctl_fail(CTL_USER, "%s", e.text);
	else if (p.documents == 0)
		code = CTL_NOTHING;
	else if (cmd_bool(a, "dry-run"))
		ctl_say(c, "would send %d", p.documents);
	else {
		p.check = false;
		p.many = p.documents > 1;
		p.documents = 0;
		if (yamldoc_read(buf_span(&text), on_document, &p, &e) != 0)
			code = p.code;
	}
	buf_fini(&text);
	return code;
}

int
cmd_cron_apply(struct ctl *c, const struct cmd_call *a)
{
	return apply(c, a, "cron", "name");
}

int
cmd_workflow_apply(struct ctl *c, const struct cmd_call *a)
{
	return apply(c, a, "workflow", "id");
}

/* ---- one by its path ---- */

/* there: what is said of one that was there, NULL = as of a new one. */
static int
put(struct ctl *c, const struct cmd_call *a, const char *method,
	struct span body, const char *done, const char *there)
{
	struct client_reply r = { .body = BUF_ZERO };
	int code = ojs_ask(c, a, method, NULL, body, &r);

	if (code == 0 && ctl_wants_answer(c))
		code = out_print(c, buf_span(&r.body), a->phrase->view);
	else if (code == 0)
		ctl_say(c, "%s %s", there && r.status == 200 ? there : done,
			a->arg[0]);
	buf_fini(&r.body);
	return code;
}

static int
act(struct ctl *c, const struct cmd_call *a, const char *method,
	struct span body, const char *done)
{
	return put(c, a, method, body, done, NULL);
}

int
cmd_cron_delete(struct ctl *c, const struct cmd_call *a)
{
	if (!cmd_confirmed(a, "delete a recurring job"))
		return CTL_USER;
	return act(c, a, "DELETE", (struct span)SPAN_ZERO, "deleted");
}

int
cmd_workflow_cancel(struct ctl *c, const struct cmd_call *a)
{
	return act(c, a, "DELETE", (struct span)SPAN_ZERO, "cancelled");
}

int
cmd_ojs_queue_pause(struct ctl *c, const struct cmd_call *a)
{
	return act(c, a, "POST", SPAN_LIT("{}"), "paused");
}

int
cmd_ojs_queue_resume(struct ctl *c, const struct cmd_call *a)
{
	return act(c, a, "POST", SPAN_LIT("{}"), "resumed");
}

int
cmd_ojs_queue_drop(struct ctl *c, const struct cmd_call *a)
{
	if (!cmd_confirmed(
		    a, "drop a queue, its jobs, recurring jobs and stream"))
		return CTL_USER;
	return act(c, a, "DELETE", (struct span)SPAN_ZERO, "dropped");
}

/* ---- options of a queue ---- */

static bool
any_option(const struct cmd_call *a)
{
	const struct cmd_flag *f = a->phrase->flags;

	for (int i = 0; f[i].name; i++)
		if (a->flag[i].typed)
			return true;
	return false;
}

/* Null for each option in a comma list. */
static int
write_defaults(const struct cmd_call *a, struct jwrite *w, const char *list)
{
	const struct cmd_flag *f = a->phrase->flags;

	while (list && *list) {
		size_t n = strcspn(list, ",");
		struct span one = span_trim(span_make(list, n));
		int i = 0;

		while (f[i].name && !(f[i].query && span_is(one, f[i].name)))
			i++;
		if (!f[i].name)
			return ctl_fail(CTL_USER,
				"--default: no option is called \"%.*s\"",
				SPAN_ARG(one));
		if (a->flag[i].typed)
			return ctl_fail(CTL_USER,
				"--default and --%s exclude each other",
				f[i].name);
		jwrite_kv_null(w, f[i].query);
		list += n + (list[n] == ',');
	}
	return CTL_OK;
}

static int
write_options(struct ctl *c, const struct cmd_call *a, const char *name,
	const char *done, const char *there)
{
	struct buf body = BUF_ZERO;
	struct jwrite w;
	int code;

	jwrite_init(&w, &body);
	jwrite_object(&w);
	if (name)
		jwrite_kv_cstr(&w, "name", name);
	ojs_write_flags(a, &w);
	code = write_defaults(a, &w, cmd_str(a, "default"));
	jwrite_end(&w);
	if (code == 0)
		code = put(c, a, "POST", buf_span(&body), done, there);
	buf_fini(&body);
	return code;
}

int
cmd_ojs_queue_create(struct ctl *c, const struct cmd_call *a)
{
	return write_options(c, a, a->arg[0], "created",
		any_option(a) ? "changed" : "there is");
}

int
cmd_ojs_queue_config(struct ctl *c, const struct cmd_call *a)
{
	return any_option(a) ? write_options(c, a, NULL, "configured", NULL)
			     : cmd_ojs_get(c, a);
}

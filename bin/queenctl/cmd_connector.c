/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Connectors: their documents as the server shows them, written whole, and how
 * they run.  A document that was read can be applied again: what the server
 * added is passed over by it.
 */
#include <stdio.h>
#include <string.h>

#include "client.h"
#include "cmd_view.h"
#include "cmds.h"
#include "ctl.h"
#include "doc.h"
#include "file.h"
#include "jwrite.h"
#include "out.h"
#include "timearg.h"
#include "clk.h"
#include "yamldoc.h"

#define API "/api/v1/connectors"

static void
connector_path(const char *name, const char *rest, struct buf *path)
{
	buf_puts(path, API);
	client_segment(path, name);
	buf_puts(path, rest);
}

/* ---- apply ---- */

struct apply {
	struct ctl *c;
	const char *name; /* of the argument */
	bool dry;
	int documents, applied;
	int code; /* exit code of the first failure */
};

static void
tell_warnings(struct ctl *c, const char *name, struct span answer)
{
	struct jspan_val list, v;
	struct jspan j;

	if (!doc_path(answer, "warnings", &c->arena, &list))
		return;
	doc_open(&j, list.raw);
	while (doc_next(&j, &v))
		fprintf(stderr, "queenctl: warning: %s: %s\n", name,
			doc_text(&v, &c->arena));
}

static int
send_document(struct apply *p, const char *name, struct span doc)
{
	struct client_req q = { .method = "PUT", .kind = CLIENT_WRITE };
	struct client_reply r = { .body = BUF_ZERO };
	struct buf path = BUF_ZERO;
	int code;

	connector_path(name, "", &path);
	buf_putc(&path, '\0');
	q.path = path.p;
	q.body = doc;
	code = client_ask(p->c, &q, &r);
	if (code == 0)
		tell_warnings(p->c, name, buf_span(&r.body));
	if (code == 0 && ctl_wants_answer(p->c))
		code = out_print(p->c, buf_span(&r.body), NULL);
	buf_fini(&path);
	buf_fini(&r.body);
	return code;
}

static int
apply_document(struct apply *p, const char *name, struct span doc)
{
	int code = p->dry ? CTL_OK : send_document(p, name, doc);

	if (code != 0)
		return code;
	p->applied++;
	if (p->dry || !ctl_wants_answer(p->c))
		ctl_say(p->c, "%s connector \"%s\"",
			p->dry ? "[dry-run] would apply" : "applied", name);
	return CTL_OK;
}

/* The name to apply it under; NULL with p->code set. */
static const char *
name_of(struct apply *p, struct span doc)
{
	const char *own = doc_str(doc, "name", NULL, &p->c->arena);

	if (p->name && p->documents > 1)
		p->code = ctl_fail(CTL_USER,
			"a name goes with one document; name each inside");
	else if (p->name && own && strcmp(p->name, own) != 0)
		p->code = ctl_fail(CTL_USER,
			"the document is named \"%s\", not \"%s\"", own,
			p->name);
	else if (!p->name && (!own || !*own))
		p->code = ctl_fail(
			CTL_USER, "document %d has no name", p->documents);
	else
		return p->name ? p->name : own;
	return NULL;
}

static int
document(struct apply *p, struct span doc, bool send, struct err *e)
{
	const char *name;

	if (doc_val(doc).type == JSPAN_NULL)
		return 0;
	p->documents++;
	if (doc_val(doc).type != JSPAN_OBJECT) {
		p->code = ctl_fail(CTL_USER, "document %d: expected a mapping",
			p->documents);
		return err_set(e, ERR_INPUT, "told already");
	}
	name = name_of(p, doc);
	if (name && send)
		p->code = apply_document(p, name, doc);
	return p->code ? err_set(e, ERR_INPUT, "told already") : 0;
}

static int
on_check(void *arg, struct span doc, struct err *e)
{
	return document(arg, doc, false, e);
}

static int
on_apply(void *arg, struct span doc, struct err *e)
{
	return document(arg, doc, true, e);
}

int
cmd_connector_apply(struct ctl *c, const struct cmd_call *a)
{
	struct apply p = { .c = c,
		.name = a->args_n ? a->arg[0] : NULL,
		.dry = cmd_bool(a, "dry-run") };
	const char *file = cmd_str(a, "file");
	struct buf text = BUF_ZERO;
	struct err e = ERR_ZERO;

	if (!file)
		return ctl_fail(
			CTL_USER, "which document? name it with --file");
	if (file_read(file, FILE_SMALL_BYTES, &text, &e) != 0) {
		p.code = ctl_fail_err(&e);
	} else if (yamldoc_read(buf_span(&text), on_check, &p, &e) != 0) {
		if (!p.code)
			p.code = ctl_fail(CTL_USER, "%s: %s", file, e.text);
	} else {
		p.documents = 0;
		if (yamldoc_read(buf_span(&text), on_apply, &p, &e) == 0 &&
			p.applied == 0)
			p.code = CTL_NOTHING;
	}
	buf_fini(&text);
	return p.code;
}

/* ---- delete, resync ---- */

/* Consumes path and prints the answer, or says what was done. */
static int
change(struct ctl *c, const char *method, struct buf *path, struct span body,
	struct client_reply *r)
{
	struct client_req q = {
		.method = method, .kind = CLIENT_WRITE, .body = body
	};
	int code;

	buf_putc(path, '\0');
	q.path = path->p;
	code = client_ask(c, &q, r);
	if (code == 0 && ctl_wants_answer(c))
		code = out_print(c, buf_span(&r->body), NULL);
	buf_fini(path);
	return code;
}

int
cmd_connector_delete(struct ctl *c, const struct cmd_call *a)
{
	struct client_reply r = { .body = BUF_ZERO };
	struct buf path = BUF_ZERO;
	const char *warning;
	int code;

	if (!cmd_confirmed(a, "delete a connector"))
		return CTL_USER;
	connector_path(a->arg[0], "", &path);
	if (cmd_bool(a, "keep-slot"))
		client_query(&path, "dropSlot", "false");
	code = change(c, "DELETE", &path, (struct span)SPAN_ZERO, &r);
	if (code == 0) {
		bool gone = doc_true(buf_span(&r.body), "deleted", &c->arena);

		if (!ctl_wants_answer(c))
			ctl_say(c, "%s \"%s\"",
				gone ? "deleted" : "asked to delete",
				a->arg[0]);
		warning =
			doc_str(buf_span(&r.body), "warning", NULL, &c->arena);
		if (warning)
			fprintf(stderr, "queenctl: warning: %s\n", warning);
	}
	buf_fini(&r.body);
	return code;
}

/* {"from": ...} of a sink; CTL_USER when it is no place. */
static int
write_from(const char *from, struct buf *body)
{
	char iso[TIMEARG_TEXT];
	struct err e = ERR_ZERO;
	struct timearg t;
	struct jwrite w;

	if (strcmp(from, "beginning") != 0 && strcmp(from, "end") != 0) {
		if (timearg_parse(from, clk_wall_us(), &t, &e) != 0)
			return ctl_fail(CTL_USER, "--from %s", e.text);
		if (t.kind == TIMEARG_OFFSET)
			return ctl_fail(CTL_USER,
				"--from takes beginning, end or a time");
		from = timearg_text(t.at_us, iso);
	}
	jwrite_init(&w, body);
	jwrite_object(&w);
	jwrite_kv_cstr(&w, "from", from);
	jwrite_end(&w);
	return CTL_OK;
}

int
cmd_connector_resync(struct ctl *c, const struct cmd_call *a)
{
	struct buf path = BUF_ZERO, body = BUF_ZERO;
	struct client_reply r = { .body = BUF_ZERO };
	const char *from = cmd_str(a, "from");
	int code = CTL_OK;

	if (!cmd_confirmed(a, "start a connector over"))
		return CTL_USER;
	if (from)
		code = write_from(from, &body);
	if (code == 0) {
		connector_path(a->arg[0], "/resync", &path);
		code = change(c, "POST", &path, buf_span(&body), &r);
	}
	if (code == 0 && !ctl_wants_answer(c))
		ctl_say(c, "resync of \"%s\" is asked for", a->arg[0]);
	buf_fini(&body);
	buf_fini(&r.body);
	return code;
}

/* ---- adopt, reset ---- */

static int
takeover(struct ctl *c, const char *name, const char *what)
{
	struct client_reply r = { .body = BUF_ZERO };
	struct buf path = BUF_ZERO;
	char rest[16];
	int code;

	snprintf(rest, sizeof(rest), "/%s", what);
	connector_path(name, rest, &path);
	code = change(c, "POST", &path, (struct span)SPAN_ZERO, &r);
	if (code == 0 && !ctl_wants_answer(c))
		ctl_say(c, "%s of \"%s\" is asked for", what, name);
	buf_fini(&r.body);
	return code;
}

int
cmd_connector_adopt(struct ctl *c, const struct cmd_call *a)
{
	return takeover(c, a->arg[0], "adopt");
}

int
cmd_connector_reset(struct ctl *c, const struct cmd_call *a)
{
	if (!cmd_confirmed(a, "forget a connector's position"))
		return CTL_USER;
	return takeover(c, a->arg[0], "reset");
}

/* ---- pause, resume, restart ---- */

/* The document as it was shown, but for one member. */
static void
write_enabled(struct buf *out, struct span doc, bool enabled, struct arena *a)
{
	struct jspan_val v;
	struct jspan j;
	struct span key;
	struct jwrite w;

	jwrite_init(&w, out);
	jwrite_object(&w);
	jspan_open(&j, doc);
	jspan_enter_object(&j);
	while (jspan_next_key(&j, a, &key) && jspan_take(&j, &v)) {
		if (span_is(key, "enabled"))
			continue;
		jwrite_key_span(&w, key);
		jwrite_raw(&w, v.raw);
	}
	jwrite_kv_bool(&w, "enabled", enabled);
	jwrite_end(&w);
}

static int
show(struct ctl *c, const char *name, struct client_reply *r)
{
	struct client_req q = { .method = "GET" };
	struct buf path = BUF_ZERO;
	int code;

	connector_path(name, "", &path);
	buf_putc(&path, '\0');
	q.path = path.p;
	code = client_ask(c, &q, r);
	buf_fini(&path);
	return code;
}

static bool
is_enabled(struct ctl *c, struct span doc)
{
	return doc_true(doc, "enabled", &c->arena);
}

/* Writes what is stored again: a write starts the connector anew. */
static int
rewrite(struct ctl *c, const char *name, struct span doc, bool enabled,
	const char *done)
{
	struct apply p = { .c = c };
	struct buf body = BUF_ZERO;
	struct jspan_val v;
	int code;

	if (doc_path(doc, "deleting", &c->arena, &v))
		return ctl_fail(CTL_SERVER,
			"\"%s\" is being deleted, and a write would keep it; "
			"apply its document if that is meant",
			name);
	write_enabled(&body, doc, enabled, &c->arena);
	code = send_document(&p, name, buf_span(&body));
	if (code == 0 && !ctl_wants_answer(c))
		ctl_say(c, "%s \"%s\"", done, name);
	buf_fini(&body);
	return code;
}

static int
set_enabled(struct ctl *c, const char *name, bool enabled)
{
	struct client_reply r = { .body = BUF_ZERO };
	int code = show(c, name, &r);

	if (code == 0 && is_enabled(c, buf_span(&r.body)) == enabled)
		code = CTL_NOTHING;
	else if (code == 0)
		code = rewrite(c, name, buf_span(&r.body), enabled,
			enabled ? "resumed" : "paused");
	buf_fini(&r.body);
	return code;
}

int
cmd_connector_pause(struct ctl *c, const struct cmd_call *a)
{
	return set_enabled(c, a->arg[0], false);
}

int
cmd_connector_resume(struct ctl *c, const struct cmd_call *a)
{
	return set_enabled(c, a->arg[0], true);
}

int
cmd_connector_restart(struct ctl *c, const struct cmd_call *a)
{
	struct client_reply r = { .body = BUF_ZERO };
	int code = show(c, a->arg[0], &r);

	if (code == 0 && !is_enabled(c, buf_span(&r.body)))
		code = ctl_fail(CTL_SERVER,
			"\"%s\" is paused; resume starts it", a->arg[0]);
	else if (code == 0)
		code = rewrite(
			c, a->arg[0], buf_span(&r.body), true, "restarted");
	buf_fini(&r.body);
	return code;
}

/* ---- status ---- */

int
cmd_connector_status(struct ctl *c, const struct cmd_call *a)
{
	struct buf path = BUF_ZERO;

	if (a->args_n == 0)
		return cmd_get(c, a);
	connector_path(a->arg[0], "", &path);
	return cmd_get_print(c, &path, &cmd_view_connector_status);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Queues: what is more than one GET. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "client.h"
#include "cmd_view.h"
#include "cmds.h"
#include "ctl.h"
#include "doc.h"
#include "jwrite.h"
#include "out.h"

#define API "/api/v1"

/* The route knows neither filters nor pages: they are applied here. */
static void
filter(struct ctl *c, const struct cmd_call *a, struct span answer,
	struct buf *out)
{
	const char *ns = cmd_str(a, "namespace"), *task = cmd_str(a, "task");
	int64_t limit = cmd_int(a, "limit"), skip = cmd_int(a, "offset");
	struct jspan_val list, v;
	struct jwrite w;
	struct jspan j;

	jwrite_init(&w, out);
	jwrite_object(&w);
	jwrite_key(&w, "queues");
	jwrite_array(&w);
	if (doc_path(answer, "queues", &c->arena, &list))
		for (doc_open(&j, list.raw); doc_next(&j, &v);) {
			if (ns && strcmp(doc_str(v.raw, "namespace", "",
						 &c->arena),
					  ns) != 0)
				continue;
			if (task &&
				strcmp(doc_str(v.raw, "task", "", &c->arena),
					task) != 0)
				continue;
			if (skip-- > 0)
				continue;
			jwrite_raw(&w, v.raw);
			if (limit > 0 && --limit == 0)
				break;
		}
	jwrite_end(&w);
	jwrite_end(&w);
}

int
cmd_queue_list(struct ctl *c, const struct cmd_call *a)
{
	struct client_req q = { .method = "GET", .path = a->phrase->get };
	struct client_reply r = { .body = BUF_ZERO };
	struct buf out = BUF_ZERO;
	int code = client_ask(c, &q, &r);

	if (code == 0) {
		filter(c, a, buf_span(&r.body), &out);
		code = out_print(c, buf_span(&out), a->phrase->view);
	}
	buf_fini(&out);
	buf_fini(&r.body);
	return code;
}

int
cmd_queue_depth(struct ctl *c, const struct cmd_call *a)
{
	struct client_reply r = { .body = BUF_ZERO };
	struct client_req q = { .method = "GET" };
	struct buf path = BUF_ZERO;
	int code;

	cmd_get_path(a, &path);
	buf_putc(&path, '\0');
	q.path = path.p;
	code = client_ask(c, &q, &r);
	if (code == 0)
		code = out_print(c, buf_span(&r.body),
			doc_true(buf_span(&r.body), "conflation", &c->arena)
				? &cmd_view_depth_conflating
				: &cmd_view_depth);
	buf_fini(&path);
	buf_fini(&r.body);
	return code;
}

/* Exactly what was typed: zero and false are values. */
static void
write_options(const struct cmd_call *a, struct jwrite *w)
{
	const struct cmd_flag *f = a->phrase->flags;

	jwrite_key(w, "options");
	jwrite_object(w);
	for (int i = 0; f[i].name; i++) {
		const struct cmd_value *v = &a->flag[i];

		if (!v->typed)
			continue;
		if (f[i].type == CMD_BOOL)
			jwrite_kv_bool(w, f[i].query, v->truth);
		else if (f[i].type == CMD_INT)
			jwrite_kv_i64(w, f[i].query, v->number);
		else
			jwrite_kv_cstr(w, f[i].query, v->text);
	}
	/* each has a master switch beside it */
	if (cmd_typed(a, "dlq"))
		jwrite_kv_bool(w, "dlqAfterMaxRetries", cmd_bool(a, "dlq"));
	if ((cmd_typed(a, "retention") && cmd_int(a, "retention") > 0) ||
		(cmd_typed(a, "completed-retention") &&
			cmd_int(a, "completed-retention") > 0))
		jwrite_kv_bool(w, "retentionEnabled", true);
	jwrite_end(w);
}

/* A server that has no key takes the option and then refuses every push. */
static void
warn_no_key(struct ctl *c)
{
	struct client_req q = { .method = "GET",
		.path = "/metrics/prometheus",
		.kind = CLIENT_ONCE };
	struct client_reply r = { .body = BUF_ZERO };
	struct err e = ERR_ZERO;

	if (client_try(c, &q, &r, &e) == 0 && r.status == 200) {
		buf_putc(&r.body, '\0');
		if (strstr(r.body.p, "\nqueen_encryption_enabled 0\n"))
			ctl_fail(0, "this server has no QUEEN_ENCRYPTION_KEY: "
				    "until it has, pushes to the queue fail");
	}
	buf_fini(&r.body);
}

int
cmd_queue_configure(struct ctl *c, const struct cmd_call *a)
{
	struct client_req q = {
		.method = "POST", .path = API "/configure", .kind = CLIENT_WRITE
	};
	struct client_reply r = { .body = BUF_ZERO };
	struct buf body = BUF_ZERO;
	struct jwrite w;
	int code;

	jwrite_init(&w, &body);
	jwrite_object(&w);
	jwrite_kv_cstr(&w, "queue", a->arg[0]);
	write_options(a, &w);
	jwrite_end(&w);
	q.body = buf_span(&body);
	code = client_ask(c, &q, &r);
	if (code == 0 && ctl_wants_answer(c))
		code = out_print(c, buf_span(&r.body), NULL);
	else if (code == 0)
		ctl_say(c, "configured \"%s\"", a->arg[0]);
	if (code == 0 && cmd_bool(a, "encrypt"))
		warn_no_key(c);
	buf_fini(&body);
	buf_fini(&r.body);
	return code;
}

int
cmd_queue_delete(struct ctl *c, const struct cmd_call *a)
{
	struct client_req q = { .method = "DELETE", .kind = CLIENT_WRITE };
	struct client_reply r = { .body = BUF_ZERO };
	struct buf path = BUF_ZERO;
	int code;

	if (!cmd_confirmed(a, "delete a queue and all its messages"))
		return CTL_USER;
	buf_puts(&path, API "/resources/queues");
	client_segment(&path, a->arg[0]);
	buf_putc(&path, '\0');
	q.path = path.p;
	code = client_ask(c, &q, &r);
	if (code == 0 && ctl_wants_answer(c))
		code = out_print(c, buf_span(&r.body), NULL);
	if (code == 0 && !doc_true(buf_span(&r.body), "deleted", &c->arena))
		code = CTL_NOTHING;
	else if (code == 0 && !ctl_wants_answer(c))
		ctl_say(c, "deleted \"%s\"", a->arg[0]);
	buf_fini(&path);
	buf_fini(&r.body);
	return code;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Commands that are one GET and its answer printed. */
#include <stdio.h>
#include <string.h>

#include "client.h"
#include "clk.h"
#include "cmds.h"
#include "ctl.h"
#include "out.h"
#include "timearg.h"

static bool
is_set(const struct cmd_flag *f, const struct cmd_value *v)
{
	/* a default is sent too: it is ours, the server has another */
	return f->query && v->text && (v->typed || f->dflt) &&
	       !(f->type == CMD_INT && !v->typed && v->number == 0);
}

void
cmd_get_place(const struct cmd_call *a, struct buf *path)
{
	for (const char *p = a->phrase->get; *p; p++) {
		struct buf one = BUF_ZERO;

		if (p[0] != '{' || p[2] != '}') {
			buf_putc(path, *p);
			continue;
		}
		client_segment(&one, a->arg[p[1] - '0']);
		buf_put(path, one.p + 1, one.len - 1);
		buf_fini(&one);
		p += 2;
	}
}

void
cmd_get_path(const struct cmd_call *a, struct buf *path)
{
	const struct cmd_flag *f = a->phrase->flags;

	cmd_get_place(a, path);
	for (int i = 0; f && f[i].name; i++)
		if (is_set(&f[i], &a->flag[i]))
			client_query(path, f[i].query, a->flag[i].text);
}

int
cmd_get_time(const struct cmd_call *a, const char *flag, struct buf *path)
{
	const char *text = cmd_str(a, flag);
	char iso[TIMEARG_TEXT];
	struct err e = ERR_ZERO;
	struct timearg t;

	if (!text)
		return CTL_OK;
	if (timearg_parse(text, clk_wall_us(), &t, &e) != 0)
		return ctl_fail(CTL_USER, "--%s %s", flag, e.text);
	if (t.kind == TIMEARG_OFFSET)
		return ctl_fail(CTL_USER, "--%s takes a time, no offset", flag);
	client_query(path, flag, timearg_text(t.at_us, iso));
	return CTL_OK;
}

int
cmd_get_print(struct ctl *c, struct buf *path, const struct out_view *view)
{
	struct client_reply r = { .body = BUF_ZERO };
	struct client_req q = { .method = "GET" };
	int code;

	buf_putc(path, '\0');
	q.path = path->p;
	code = client_ask(c, &q, &r);
	if (code == 0)
		code = out_print(c, buf_span(&r.body), view);
	buf_fini(&r.body);
	buf_fini(path);
	return code;
}

int
cmd_get(struct ctl *c, const struct cmd_call *a)
{
	struct buf path = BUF_ZERO;

	cmd_get_path(a, &path);
	return cmd_get_print(c, &path, a->phrase->view);
}

bool
cmd_confirmed(const struct cmd_call *a, const char *what)
{
	if (cmd_bool(a, "yes"))
		return true;
	ctl_fail(CTL_USER, "refusing to %s without --yes", what);
	return false;
}

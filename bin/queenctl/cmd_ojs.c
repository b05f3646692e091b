/* SPDX-License-Identifier: Apache-2.0 */
/* Requests to queen-ojs: their path is the phrase's, their body its flags. */
#include "cmd_ojs.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arena.h"
#include "client.h"
#include "cmds.h"
#include "ctl.h"
#include "doc.h"
#include "file.h"
#include "jwrite.h"
#include "out.h"

enum { BATCH_BYTES = 8 << 20, BATCH_LINES = 100 };

/* One request to a path; consumes it.  There is an answer of whatever status. */
static int
send(struct ctl *c, const char *method, struct buf *path, struct span body,
	struct client_reply *r)
{
	struct client_req q = { .method = method,
		.body = body,
		.kind = strcmp(method, "GET") == 0 ? CLIENT_READ
						   : CLIENT_WRITE };
	int code = c->target.url ? CTL_OK : ctl_target_ojs(c);

	buf_putc(path, '\0');
	q.path = path->p;
	if (code == 0)
		code = client_send(c, &q, r);
	buf_fini(path);
	return code;
}

int
ojs_ask_at(struct ctl *c, const struct cmd_call *a, const char *where,
	struct span body, struct client_reply *r)
{
	struct buf path = BUF_ZERO;
	int code;

	cmd_get_place(a, &path);
	code = send(c, "POST", &path, body, r);
	return code ? code : client_answer(c, r, where);
}

int
ojs_ask(struct ctl *c, const struct cmd_call *a, const char *method,
	const char *rest, struct span body, struct client_reply *r)
{
	struct buf path = BUF_ZERO;
	int code;

	/* flags are a query where there is no body */
	if (strcmp(method, "POST") == 0)
		cmd_get_place(a, &path);
	else
		cmd_get_path(a, &path);
	if (rest)
		buf_puts(&path, rest);
	code = send(c, method, &path, body, r);
	return code ? code : client_answer(c, r, "");
}

/* Says on stderr how a page that was cut goes on. */
static void
tell_more(struct ctl *c, struct span answer)
{
	const char *cursor =
		doc_str(answer, "pagination.next_cursor", NULL, &c->arena);

	if (cursor)
		fprintf(stderr, "queenctl: there are more: --cursor %s\n",
			cursor);
	else if (doc_true(answer, "has_more", &c->arena))
		fprintf(stderr, "queenctl: there are more: --after %s\n",
			doc_str(answer, "cursor", "-", &c->arena));
}

int
cmd_ojs_get(struct ctl *c, const struct cmd_call *a)
{
	struct client_reply r = { .body = BUF_ZERO };
	int code = ojs_ask(c, a, "GET", NULL, (struct span)SPAN_ZERO, &r);

	if (code == 0)
		code = out_print(c, buf_span(&r.body), a->phrase->view);
	if (code == 0)
		tell_more(c, buf_span(&r.body));
	buf_fini(&r.body);
	return code;
}

/* ---- bodies ---- */

void
ojs_write_flags(const struct cmd_call *a, struct jwrite *w)
{
	const struct cmd_flag *f = a->phrase->flags;

	for (int i = 0; f && f[i].name; i++) {
		const struct cmd_value *v = &a->flag[i];

		if (!f[i].query || !v->typed)
			continue;
		if (f[i].type == CMD_BOOL)
			jwrite_kv_bool(w, f[i].query, v->truth);
		else if (f[i].type == CMD_STR)
			jwrite_kv_cstr(w, f[i].query, v->text);
		else
			jwrite_kv_i64(w, f[i].query, v->number);
	}
}

int
ojs_json_flag(const struct cmd_call *a, const char *flag, struct span *json)
{
	const char *text = cmd_str(a, flag);
	struct err e = ERR_ZERO;

	*json = (struct span)SPAN_ZERO;
	if (!text)
		return CTL_OK;
	*json = span_of(text);
	return doc_check(*json, &e) == 0
		       ? CTL_OK
		       : ctl_fail(CTL_USER, "--%s: %s", flag, e.text);
}

void
ojs_write_json(struct jwrite *w, const char *member, struct span json)
{
	if (json.n)
		jwrite_kv_raw(w, member, json);
}

void
ojs_print_line(struct span json)
{
	for (size_t i = 0; i < json.n; i++)
		putchar(json.p[i] == '\n' || json.p[i] == '\r' ? ' '
							       : json.p[i]);
	putchar('\n');
}

/* ---- lines ---- */

struct sending {
	struct ojs_lines *l;
	struct buf body, rows;
	struct jwrite w, shown;
	int64_t in_body, limit;
	size_t *numbers, cap; /* of the lines in the body */
	bool dry, keep;
};

static void
begin(struct sending *s)
{
	buf_reset(&s->body);
	jwrite_init(&s->w, &s->body);
	jwrite_object(&s->w);
	jwrite_key(&s->w, s->l->member);
	jwrite_array(&s->w);
	s->in_body = 0;
}

static void
count_rows(struct sending *s, struct span answer)
{
	struct arena *a = &s->l->c->arena;
	struct jspan_val list, v;
	struct jspan j;

	if (!doc_path(answer, s->l->member, a, &list))
		return;
	for (doc_open(&j, list.raw); doc_next(&j, &v);) {
		if (doc_true(v.raw, "deduplicated", a))
			s->l->known++;
		else
			s->l->sent++;
		if (s->keep)
			jwrite_raw(&s->shown, v.raw);
	}
}

/* Tells what is refused with the number of its line, if the answer says which. */
static int
answer(struct sending *s, const struct client_reply *r)
{
	struct arena *a = &s->l->c->arena;
	struct span body = buf_span(&r->body), where = SPAN_LIT("");
	struct err e = ERR_ZERO;
	int64_t at = -1;

	if (doc_check(body, &e) == 0)
		at = doc_i64(body, "error.details.index", -1, a);
	if (at >= 0 && at < s->in_body)
		where = arena_printf(a, "line %zu: ", s->numbers[at]);
	return client_answer(s->l->c, r, arena_cstr(a, where));
}

static int
flush(struct sending *s)
{
	struct client_reply r = { .body = BUF_ZERO };
	struct buf path = BUF_ZERO;
	int code = CTL_OK;

	if (s->in_body == 0)
		return CTL_OK;
	if (s->dry) {
		s->l->sent += s->in_body;
	} else {
		jwrite_end(&s->w);
		jwrite_end(&s->w);
		buf_puts(&path, s->l->path);
		code = send(s->l->c, "POST", &path, buf_span(&s->body), &r);
		if (code == 0)
			code = answer(s, &r);
		if (code == 0)
			count_rows(s, buf_span(&r.body));
	}
	buf_fini(&r.body);
	arena_reset(&s->l->c->arena);
	begin(s);
	return code;
}

static void
note_number(struct sending *s, size_t number)
{
	size_t n = (size_t)s->in_body;

	if (n == s->cap) {
		s->cap = s->cap ? s->cap * 2 : BATCH_LINES;
		s->numbers =
			reallocarray(s->numbers, s->cap, sizeof(*s->numbers));
		BUG(!s->numbers);
	}
	s->numbers[n] = number;
}

static int
add(struct sending *s, struct span line, size_t number)
{
	struct err e = ERR_ZERO;
	int code;

	if (doc_check(line, &e) != 0)
		return ctl_fail(CTL_USER, "line %zu: %s", number, e.text);
	if (s->in_body && s->body.len + line.n > BATCH_BYTES &&
		(code = flush(s)) != 0)
		return code;
	code = s->l->write(s->l, &s->w, line);
	if (code != 0)
		return code;
	note_number(s, number);
	return ++s->in_body >= s->limit ? flush(s) : CTL_OK;
}

static int
each_line(struct sending *s, const char *file)
{
	struct file_lines lines;
	struct err e = ERR_ZERO;
	struct span line;
	int rc = 0, code = CTL_OK;

	if (file_lines_open(&lines, file, &e) != 0)
		return ctl_fail_err(&e);
	while (code == 0 && (rc = file_lines_next(&lines, &line, &e)) > 0)
		code = add(s, line, lines.number);
	if (code == 0 && rc < 0)
		code = ctl_fail(CTL_USER, "%s", e.text);
	file_lines_close(&lines);
	return code ? code : flush(s);
}

static int
report(struct sending *s)
{
	struct ojs_lines *l = s->l;

	if (l->sent + l->known == 0)
		return CTL_NOTHING;
	if (s->dry)
		ctl_say(l->c, "would send %" PRId64 " %s", l->sent, l->member);
	else if (s->keep)
		return out_print(l->c, buf_span(&s->rows), l->a->phrase->view);
	else if (l->known)
		ctl_say(l->c, "sent=%" PRId64 " known=%" PRId64, l->sent,
			l->known);
	else
		ctl_say(l->c, "sent=%" PRId64, l->sent);
	return CTL_OK;
}

int
ojs_send_lines(struct ojs_lines *l)
{
	struct sending s = { .l = l,
		.limit = cmd_int(l->a, "batch"),
		.dry = cmd_bool(l->a, "dry-run"),
		.keep = ctl_wants_answer(l->c) };
	const char *file = cmd_str(l->a, "file");
	int code;

	if (s.limit <= 0)
		s.limit = BATCH_LINES;
	begin(&s);
	jwrite_init(&s.shown, &s.rows);
	jwrite_array(&s.shown);
	code = each_line(&s, file ? file : "-");
	jwrite_end(&s.shown);
	/* what an earlier batch brought is there, whatever came then */
	if (code == 0)
		code = report(&s);
	else if (l->sent + l->known)
		ctl_fail(code, "%" PRId64 " %s were sent before", l->sent,
			l->member);
	free(s.numbers);
	buf_fini(&s.body);
	buf_fini(&s.rows);
	return code;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Key/value rows: get, put, delete, incr, list.  A value is a span of the
 * input from its argument to the request; it is checked, never rewritten.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "client.h"
#include "cmds.h"
#include "ctl.h"
#include "doc.h"
#include "file.h"
#include "jwrite.h"
#include "out.h"
#include "why.h"

#define API "/api/v1"

enum { BATCH_MAX_BYTES = 64 << 20, VALUE_MAX_BYTES = 1 << 20 };

static void
key_path(const struct cmd_call *a, struct buf *path)
{
	buf_puts(path, API "/kv");
	client_segment(path, a->arg[0]);
	client_segment(path, a->arg[1]);
	buf_putc(path, '\0');
}

/* The lifetime every row that is made must declare. */
static int
check_lifetime(const struct cmd_call *a)
{
	bool ttl = cmd_typed(a, "ttl"), forever = cmd_bool(a, "forever");

	if (ttl == forever)
		return ctl_fail(CTL_USER, "how long is it kept? either --ttl "
					  "TIME or --forever");
	if (ttl && (cmd_int(a, "ttl") < 1000 || cmd_int(a, "ttl") % 1000))
		return ctl_fail(
			CTL_USER, "--ttl is in whole seconds, at least one");
	return CTL_OK;
}

static void
write_lifetime(const struct cmd_call *a, struct jwrite *w)
{
	if (cmd_typed(a, "ttl"))
		jwrite_kv_i64(w, "ttlSeconds", cmd_int(a, "ttl") / 1000);
	else
		jwrite_kv_bool(w, "forever", true);
}

static int
check_expect(const struct cmd_call *a)
{
	if (cmd_typed(a, "expect") && cmd_int(a, "expect") < 0)
		return ctl_fail(CTL_USER,
			"--expect is a version, or 0 for an absent key");
	return CTL_OK;
}

/* ---- get ---- */

int
cmd_kv_found(struct ctl *c, struct span answer)
{
	struct jspan_val v;

	if (!doc_path(answer, "found", &c->arena, &v) || v.type != JSPAN_BOOL)
		return ctl_fail(CTL_SERVER,
			"%s does not say whether it was found: is this a "
			"queend?",
			c->target.url);
	return doc_true(answer, "found", &c->arena) ? CTL_OK : CTL_NOTHING;
}

int
cmd_kv_get(struct ctl *c, const struct cmd_call *a)
{
	struct client_reply r = { .body = BUF_ZERO };
	struct client_req q = { .method = "GET" };
	struct buf path = BUF_ZERO;
	struct span answer;
	struct jspan_val v;
	int code;

	key_path(a, &path);
	q.path = path.p;
	code = client_ask(c, &q, &r);
	answer = buf_span(&r.body);
	if (code == 0)
		code = cmd_kv_found(c, answer);
	if (code == 0 && !cmd_bool(a, "value"))
		code = out_print(c, answer, a->phrase->view);
	else if (code == 0)
		printf("%s\n", doc_path(answer, "value", &c->arena, &v)
				       ? doc_text(&v, &c->arena)
				       : "null");
	buf_fini(&path);
	buf_fini(&r.body);
	return code;
}

/* ---- put, delete ---- */

/* Sends a write to the path of its key and tells `WORD ns/key version=N`. */
static int
send_write(struct ctl *c, const struct cmd_call *a, const char *method,
	struct span body, const char *word)
{
	struct client_req q = {
		.method = method, .kind = CLIENT_WRITE, .body = body
	};
	struct client_reply r = { .body = BUF_ZERO };
	struct buf path = BUF_ZERO;
	struct span answer;
	int code;

	key_path(a, &path);
	q.path = path.p;
	code = client_ask(c, &q, &r);
	answer = buf_span(&r.body);
	if (code == 0 && ctl_wants_answer(c))
		code = out_print(c, answer, NULL);
	if (code == 0 && !doc_true(answer, "applied", &c->arena))
		code = CTL_NOTHING;
	else if (code == 0 && !ctl_wants_answer(c))
		ctl_say(c, "%s %s/%s version=%" PRId64, word, a->arg[0],
			a->arg[1], doc_i64(answer, "version", 0, &c->arena));
	buf_fini(&path);
	buf_fini(&r.body);
	return code;
}

/* The value as JSON: the argument, --file, or stdin; --text quotes it. */
static int
read_value(const struct cmd_call *a, struct buf *out)
{
	const char *file = cmd_str(a, "file");
	struct buf text = BUF_ZERO;
	struct err e = ERR_ZERO;
	struct jwrite w;
	int code = CTL_OK;

	if (file && a->args_n > 2)
		return ctl_fail(CTL_USER, "one value: an argument or --file");
	if (a->args_n > 2)
		buf_puts(&text, a->arg[2]);
	else if (file_read(file ? file : "-", VALUE_MAX_BYTES, &text, &e) != 0)
		code = ctl_fail_err(&e);
	if (code == 0 && cmd_bool(a, "text")) {
		jwrite_init(&w, out);
		jwrite_str(&w, buf_span(&text));
	} else if (code == 0) {
		buf_put_span(out, buf_span(&text));
	}
	if (code == 0 && doc_check(buf_span(out), &e) != 0)
		code = ctl_fail(CTL_USER,
			"the value is %s; --text sends it as a string", e.text);
	buf_fini(&text);
	return code;
}

static int
put(struct ctl *c, const struct cmd_call *a, bool has_expect, int64_t expect)
{
	struct buf body = BUF_ZERO, value = BUF_ZERO;
	struct jwrite w;
	int code = check_lifetime(a);

	if (code == 0)
		code = read_value(a, &value);
	if (code == 0) {
		jwrite_init(&w, &body);
		jwrite_object(&w);
		jwrite_kv_raw(&w, "value", buf_span(&value));
		write_lifetime(a, &w);
		if (has_expect)
			jwrite_kv_i64(&w, "expect", expect);
		jwrite_end(&w);
		code = send_write(c, a, "PUT", buf_span(&body), "put");
	}
	buf_fini(&value);
	buf_fini(&body);
	return code;
}

int
cmd_kv_put(struct ctl *c, const struct cmd_call *a)
{
	int code = check_expect(a);

	if (code != 0)
		return code;
	return put(c, a, cmd_typed(a, "expect"), cmd_int(a, "expect"));
}

int
cmd_kv_put_if_absent(struct ctl *c, const struct cmd_call *a)
{
	return put(c, a, true, 0);
}

int
cmd_kv_delete(struct ctl *c, const struct cmd_call *a)
{
	char body[48] = "";
	int code = check_expect(a);

	if (code != 0)
		return code;
	if (!cmd_confirmed(a, "delete a key"))
		return CTL_USER;
	if (cmd_typed(a, "expect"))
		snprintf(body, sizeof(body), "{\"expect\":%" PRId64 "}",
			cmd_int(a, "expect"));
	return send_write(c, a, "DELETE", span_of(body), "deleted");
}

/* ---- incr, batch ---- */

static int
send_batch(struct ctl *c, struct span body, struct client_reply *r)
{
	struct client_req q = { .method = "POST",
		.path = API "/kv",
		.kind = CLIENT_WRITE,
		.body = body };

	return client_ask(c, &q, r);
}

static bool
put_number(struct jwrite *w, const char *key, const char *text)
{
	struct err e = ERR_ZERO;

	if (!text)
		return true;
	if (doc_check(span_of(text), &e) != 0 ||
		doc_val(span_of(text)).type != JSPAN_NUMBER)
		return false;
	jwrite_kv_raw(w, key, span_of(text));
	return true;
}

/* A bound was met, or there is nothing that could meet one. */
static int
incr_refused(struct ctl *c, const struct cmd_call *a, struct span result)
{
	const char *reason = doc_str(result, "reason", "?", &c->arena);

	if (strcmp(reason, "limit") == 0)
		return CTL_NOTHING;
	return ctl_fail(CTL_SERVER, "%s/%s is left as it was: %s", a->arg[0],
		a->arg[1],
		strcmp(reason, "type") == 0 ? "its value is not a number"
					    : reason);
}

int
cmd_kv_incr(struct ctl *c, const struct cmd_call *a)
{
	struct client_reply r = { .body = BUF_ZERO };
	struct buf body = BUF_ZERO;
	struct jspan_val list, one;
	struct jwrite w;
	struct jspan j;
	int code = check_lifetime(a);

	if (code != 0)
		return code;
	jwrite_init(&w, &body);
	jwrite_array(&w);
	jwrite_object(&w);
	jwrite_kv_cstr(&w, "op", "incr");
	jwrite_kv_cstr(&w, "ns", a->arg[0]);
	jwrite_kv_cstr(&w, "key", a->arg[1]);
	write_lifetime(a, &w);
	if (!put_number(&w, "delta", a->args_n > 2 ? a->arg[2] : "1") ||
		!put_number(&w, "min", cmd_str(a, "min")) ||
		!put_number(&w, "max", cmd_str(a, "max")))
		code = ctl_fail(
			CTL_USER, "the delta, --min and --max are numbers");
	jwrite_end(&w);
	jwrite_end(&w);
	if (code == 0)
		code = send_batch(c, buf_span(&body), &r);
	if (code == 0) {
		if (!doc_path(buf_span(&r.body), "results", &c->arena, &list) ||
			(doc_open(&j, list.raw), !doc_next(&j, &one)))
			code = ctl_fail(CTL_SERVER, "the answer has no result");
		else if (ctl_wants_answer(c))
			code = out_print(c, one.raw, NULL);
		if (code == 0 && !doc_true(one.raw, "applied", &c->arena))
			code = incr_refused(c, a, one.raw);
		else if (code == 0 && !ctl_wants_answer(c))
			printf("%s\n",
				doc_str(one.raw, "value", "-", &c->arena));
	}
	buf_fini(&body);
	buf_fini(&r.body);
	return code;
}

static int
batch_lost(struct ctl *c, struct span body, struct span answer)
{
	struct jspan_val ops = doc_val(body);
	int code = ctl_wants_answer(c) ? out_print(c, answer, NULL) : CTL_OK;

	if (code != 0)
		return code;
	doc_path(body, "operations", &c->arena, &ops);
	return ctl_fail(CTL_NOTHING, "nothing was written: %s",
		why_lost(answer, ops.raw, 0, &c->arena));
}

int
cmd_kv_batch(struct ctl *c, const struct cmd_call *a)
{
	struct client_reply r = { .body = BUF_ZERO };
	const char *file = cmd_str(a, "file");
	struct buf body = BUF_ZERO;
	struct err e = ERR_ZERO;
	struct span answer;
	int code;

	if (!file)
		return ctl_fail(
			CTL_USER, "which operations? name them with --file");
	if (file_read(file, BATCH_MAX_BYTES, &body, &e) != 0)
		code = ctl_fail_err(&e);
	else if (doc_check(buf_span(&body), &e) != 0)
		code = ctl_fail(CTL_USER, "%s is %s", file, e.text);
	else
		code = send_batch(c, buf_span(&body), &r);
	answer = buf_span(&r.body);
	/* a lost `required` is an answer, and nothing was written */
	if (code == 0 && doc_str(answer, "reason", NULL, &c->arena))
		code = batch_lost(c, buf_span(&body), answer);
	else if (code == 0)
		code = out_print(c, answer, a->phrase->view);
	buf_fini(&body);
	buf_fini(&r.body);
	return code;
}

/* ---- list ---- */

void
cmd_kv_tell_more(struct ctl *c, struct span answer)
{
	const char *after = doc_str(answer, "nextAfter", NULL, &c->arena);

	if (!after || c->quiet)
		return;
	fflush(stdout);
	fprintf(stderr, "there is more: --after '%s'\n", after);
}

int
cmd_kv_list(struct ctl *c, const struct cmd_call *a)
{
	struct client_req q = { .method = "POST",
		.path = API "/resources/kv/list" };
	struct client_reply r = { .body = BUF_ZERO };
	struct buf body = BUF_ZERO;
	struct jwrite w;
	int code;

	jwrite_init(&w, &body);
	jwrite_object(&w);
	jwrite_kv_cstr(&w, "namespace", a->arg[0]);
	if (cmd_str(a, "prefix"))
		jwrite_kv_cstr(&w, "prefix", cmd_str(a, "prefix"));
	if (cmd_str(a, "after"))
		jwrite_kv_cstr(&w, "after", cmd_str(a, "after"));
	jwrite_kv_i64(&w, "limit", cmd_int(a, "limit"));
	jwrite_kv_bool(&w, "keysOnly", cmd_bool(a, "keys-only"));
	jwrite_kv_bool(&w, "includeExpired", cmd_bool(a, "expired"));
	jwrite_end(&w);
	q.body = buf_span(&body);
	code = client_ask(c, &q, &r);
	if (code == 0)
		code = out_print(c, buf_span(&r.body), a->phrase->view);
	if (code == 0)
		cmd_kv_tell_more(c, buf_span(&r.body));
	buf_fini(&body);
	buf_fini(&r.body);
	return code;
}

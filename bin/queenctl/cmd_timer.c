/* SPDX-License-Identifier: Apache-2.0 */
/* Timers, and the switches of timers and key/value rows. */
#include <inttypes.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>

#include "client.h"
#include "cmds.h"
#include "ctl.h"
#include "doc.h"
#include "file.h"
#include "jwrite.h"
#include "out.h"
#include "qid.h"

#define API "/api/v1"

enum { PAYLOAD_MAX_BYTES = 16 << 20 };

static void
timer_path(const struct cmd_call *a, struct buf *path)
{
	buf_puts(path, API "/timers");
	client_segment(path, a->arg[0]);
	client_segment(path, a->arg[1]);
}

/* ---- schedule ---- */

static int
read_payload(const struct cmd_call *a, struct buf *out)
{
	const char *file = cmd_str(a, "file");
	struct err e = ERR_ZERO;

	if (file && a->args_n > 2)
		return ctl_fail(CTL_USER, "one payload: an argument or --file");
	if (a->args_n > 2)
		buf_puts(out, a->arg[2]);
	else if (file_read(file ? file : "-", PAYLOAD_MAX_BYTES, out, &e) != 0)
		return ctl_fail_err(&e);
	if (doc_check(buf_span(out), &e) != 0)
		return ctl_fail(CTL_USER, "the payload is %s", e.text);
	return CTL_OK;
}

static void
put_base64(struct jwrite *w, const char *key, const struct buf *in)
{
	size_t cap = sodium_base64_ENCODED_LEN(
		in->len, sodium_base64_VARIANT_ORIGINAL);
	struct buf b = BUF_ZERO;

	buf_reserve(&b, cap);
	sodium_bin2base64(b.p, cap, (const unsigned char *)in->p, in->len,
		sodium_base64_VARIANT_ORIGINAL);
	jwrite_kv_cstr(w, key, b.p);
	buf_fini(&b);
}

static void
write_schedule(
	const struct cmd_call *a, const struct buf *payload, struct buf *body)
{
	char minted[QID_TEXT_MAX];
	struct jwrite w;
	struct qid id;

	jwrite_init(&w, body);
	jwrite_array(&w);
	jwrite_object(&w);
	jwrite_kv_cstr(&w, "op", "schedule");
	jwrite_kv_cstr(&w, "queue", a->arg[0]);
	jwrite_kv_cstr(&w, "timerKey", a->arg[1]);
	jwrite_kv_i64(&w, "delayMs", cmd_int(a, "delay"));
	if (cmd_str(a, "txn")) {
		jwrite_kv_cstr(&w, "txn", cmd_str(a, "txn"));
	} else {
		id = qid_new();
		jwrite_kv_cstr(&w, "txn", qid_text(&id, minted));
	}
	if (cmd_str(a, "partition"))
		jwrite_kv_cstr(&w, "partition", cmd_str(a, "partition"));
	put_base64(&w, "payload", payload);
	jwrite_end(&w);
	jwrite_end(&w);
}

int
cmd_timer_schedule(struct ctl *c, const struct cmd_call *a)
{
	struct client_req q = {
		.method = "POST", .path = API "/timers", .kind = CLIENT_WRITE
	};
	struct client_reply r = { .body = BUF_ZERO };
	struct buf payload = BUF_ZERO, body = BUF_ZERO;
	struct jspan_val list, one = { .type = JSPAN_NONE };
	struct jspan j;
	int code = CTL_OK;

	if (!cmd_typed(a, "delay"))
		code = ctl_fail(CTL_USER, "when? --delay TIME from now");
	if (code == 0)
		code = read_payload(a, &payload);
	if (code == 0) {
		write_schedule(a, &payload, &body);
		q.body = buf_span(&body);
		code = client_ask(c, &q, &r);
	}
	if (code == 0 &&
		(!doc_path(buf_span(&r.body), "results", &c->arena, &list) ||
			(doc_open(&j, list.raw), !doc_next(&j, &one))))
		code = ctl_fail(CTL_SERVER, "the answer has no result");
	if (code == 0 && ctl_wants_answer(c))
		code = out_print(c, one.raw, NULL);
	if (code == 0 && !doc_true(one.raw, "ok", &c->arena))
		code = CTL_NOTHING;
	else if (code == 0 && !ctl_wants_answer(c))
		ctl_say(c, "%s %s/%s at=%s txn=%s",
			doc_str(one.raw, "status", "-", &c->arena), a->arg[0],
			a->arg[1],
			doc_str(one.raw, "deliverAt", "-", &c->arena),
			doc_str(one.raw, "txn", "-", &c->arena));
	buf_fini(&payload);
	buf_fini(&body);
	buf_fini(&r.body);
	return code;
}

/* ---- cancel, peek ---- */

int
cmd_timer_cancel(struct ctl *c, const struct cmd_call *a)
{
	struct client_req q = { .method = "DELETE", .kind = CLIENT_WRITE };
	struct client_reply r = { .body = BUF_ZERO };
	struct buf path = BUF_ZERO;
	int code;

	timer_path(a, &path);
	if (cmd_str(a, "txn"))
		client_query(&path, "txn", cmd_str(a, "txn"));
	buf_putc(&path, '\0');
	q.path = path.p;
	code = client_ask(c, &q, &r);
	if (code == 0 && ctl_wants_answer(c))
		code = out_print(c, buf_span(&r.body), NULL);
	if (code == 0 && !doc_true(buf_span(&r.body), "ok", &c->arena))
		code = CTL_NOTHING;
	else if (code == 0 && !ctl_wants_answer(c))
		ctl_say(c, "cancelled %s/%s", a->arg[0], a->arg[1]);
	buf_fini(&path);
	buf_fini(&r.body);
	return code;
}

static int
print_payload(struct ctl *c, struct span answer)
{
	const char *text = doc_str(answer, "payload", "", &c->arena);
	size_t cap = strlen(text) + 1, n = 0;
	struct buf b = BUF_ZERO;
	int code = CTL_OK;

	if (doc_true(answer, "encrypted", &c->arena))
		return ctl_fail(CTL_SERVER,
			"the payload is sealed until the timer fires");
	buf_reserve(&b, cap);
	if (sodium_base642bin((unsigned char *)b.p, cap, text, cap - 1, NULL,
		    &n, NULL, sodium_base64_VARIANT_ORIGINAL) != 0)
		code = ctl_fail(CTL_SERVER, "the payload is not base64");
	else
		printf("%.*s\n", (int)n, b.p);
	buf_fini(&b);
	return code;
}

int
cmd_timer_peek(struct ctl *c, const struct cmd_call *a)
{
	struct client_reply r = { .body = BUF_ZERO };
	struct client_req q = { .method = "GET" };
	struct buf path = BUF_ZERO;
	int code;

	timer_path(a, &path);
	buf_putc(&path, '\0');
	q.path = path.p;
	code = client_ask(c, &q, &r);
	if (code == 0)
		code = cmd_kv_found(c, buf_span(&r.body));
	if (code == 0 && cmd_bool(a, "payload"))
		code = print_payload(c, buf_span(&r.body));
	else if (code == 0)
		code = out_print(c, buf_span(&r.body), NULL);
	buf_fini(&path);
	buf_fini(&r.body);
	return code;
}

/* ---- list, count ---- */

int
cmd_timer_list(struct ctl *c, const struct cmd_call *a)
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
		code = out_print(c, buf_span(&r.body), a->phrase->view);
	if (code == 0)
		cmd_kv_tell_more(c, buf_span(&r.body));
	buf_fini(&path);
	buf_fini(&r.body);
	return code;
}

int
cmd_timer_count(struct ctl *c, const struct cmd_call *a)
{
	struct client_reply r = { .body = BUF_ZERO };
	struct client_req q = { .method = "GET" };
	struct buf path = BUF_ZERO;
	int code;

	cmd_get_path(a, &path);
	client_query(&path, "mode", "count");
	client_query(&path, "prefix", a->arg[1]);
	buf_putc(&path, '\0');
	q.path = path.p;
	code = client_ask(c, &q, &r);
	if (code == 0 && ctl_wants_answer(c))
		code = out_print(c, buf_span(&r.body), NULL);
	else if (code == 0)
		printf("%" PRId64 "\n",
			doc_i64(buf_span(&r.body), "count", 0, &c->arena));
	buf_fini(&path);
	buf_fini(&r.body);
	return code;
}

/* ---- switches ---- */

int
cmd_system_kv_timers(struct ctl *c, const struct cmd_call *a)
{
	struct client_req q = { .method = "GET",
		.path = API "/system/kv-timers" };
	const struct cmd_flag *f = a->phrase->flags;
	struct client_reply r = { .body = BUF_ZERO };
	struct buf body = BUF_ZERO;
	bool off = false, any = false;
	struct jwrite w;
	int code;

	jwrite_init(&w, &body);
	jwrite_object(&w);
	for (int i = 0; f[i].name; i++) {
		if (!f[i].query || !a->flag[i].typed)
			continue;
		jwrite_kv_bool(&w, f[i].query, a->flag[i].truth);
		off = off || !a->flag[i].truth;
		any = true;
	}
	jwrite_end(&w);
	if (any) {
		q.method = "POST";
		q.kind = CLIENT_WRITE;
		q.body = buf_span(&body);
	}
	if (off && !cmd_confirmed(a, "switch that off"))
		code = CTL_USER;
	else
		code = client_ask(c, &q, &r);
	if (code == 0)
		code = out_print(c, buf_span(&r.body), NULL);
	buf_fini(&body);
	buf_fini(&r.body);
	return code;
}

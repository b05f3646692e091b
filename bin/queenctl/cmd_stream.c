/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Streams of queen-ojs.  A payload is a span of the input up to the request;
 * it is checked, never rewritten.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "client.h"
#include "clk.h"
#include "cmd_ojs.h"
#include "cmds.h"
#include "ctl.h"
#include "doc.h"
#include "jwrite.h"
#include "out.h"

#define API "/ojs/v1"

/* ---- append ---- */

static void
write_event(const struct cmd_call *a, struct span headers, struct jwrite *w,
	struct span payload)
{
	jwrite_object(w);
	jwrite_kv_cstr(w, "type", a->arg[1]);
	jwrite_kv_raw(w, "payload", payload);
	ojs_write_json(w, "headers", headers);
	if (cmd_str(a, "id"))
		jwrite_kv_cstr(w, "id", cmd_str(a, "id"));
	jwrite_end(w);
}

static int
write_line(struct ojs_lines *l, struct jwrite *w, struct span line)
{
	const struct span *headers = l->arg;

	if (l->a->args_n == 1)
		jwrite_raw(w, line);
	else
		write_event(l->a, *headers, w, line);
	return CTL_OK;
}

static int
append_one(struct ctl *c, const struct cmd_call *a, struct span headers,
	const char *path)
{
	struct client_req q = {
		.method = "POST", .path = path, .kind = CLIENT_WRITE
	};
	struct client_reply r = { .body = BUF_ZERO };
	struct span payload = span_of(a->arg[2]);
	struct buf body = BUF_ZERO;
	struct err e = ERR_ZERO;
	struct jwrite w;
	int code;

	if (cmd_str(a, "file"))
		return ctl_fail(CTL_USER, "one event or --file, not both");
	if (doc_check(payload, &e) != 0)
		return ctl_fail(CTL_USER, "the payload: %s", e.text);
	if (cmd_bool(a, "dry-run")) {
		ctl_say(c, "would send 1 messages");
		return CTL_OK;
	}
	jwrite_init(&w, &body);
	write_event(a, headers, &w, payload);
	q.body = buf_span(&body);
	code = ctl_target_ojs(c);
	if (code == 0)
		code = client_ask(c, &q, &r);
	if (code == 0 && ctl_wants_answer(c))
		code = out_print(c, buf_span(&r.body), NULL);
	else if (code == 0)
		ctl_say(c, "appended %s seq=%s",
			doc_str(buf_span(&r.body), "message.id", "-",
				&c->arena),
			doc_str(buf_span(&r.body), "message.seq", "-",
				&c->arena));
	buf_fini(&body);
	buf_fini(&r.body);
	return code;
}

int
cmd_stream_append(struct ctl *c, const struct cmd_call *a)
{
	struct ojs_lines l = {
		.c = c, .a = a, .member = "messages", .write = write_line
	};
	struct buf path = BUF_ZERO;
	struct span headers;
	int code = ojs_json_flag(a, "headers", &headers);

	if (code == 0 && a->args_n == 1 && (headers.n || cmd_str(a, "id")))
		code = ctl_fail(CTL_USER,
			"--id and --headers need a type; "
			"without one, lines are whole events");
	else if (code == 0 && a->args_n == 2 && cmd_str(a, "id"))
		code = ctl_fail(CTL_USER, "--id names one event: give its "
					  "payload as an argument");
	if (code != 0)
		return code;
	buf_puts(&path, API "/queues");
	client_segment(&path, a->arg[0]);
	buf_puts(&path, a->args_n == 3 ? "/messages" : "/messages/batch");
	buf_putc(&path, '\0');
	l.path = path.p;
	l.arg = &headers;
	code = a->args_n == 3 ? append_one(c, a, headers, path.p)
			      : ojs_send_lines(&l);
	buf_fini(&path);
	return code;
}

/* ---- consumers ---- */

static void
say_consumer(struct ctl *c, const struct cmd_call *a, struct span answer)
{
	bool created = doc_true(answer, "consumer.created", &c->arena);

	ctl_say(c, "%s %s at tick %s",
		created              ? "created"
		: cmd_str(a, "from") ? "moved"
				     : "there is",
		doc_str(answer, "consumer.name", "-", &c->arena),
		doc_str(answer, "consumer.last_tick", "-", &c->arena));
}

int
cmd_stream_subscribe(struct ctl *c, const struct cmd_call *a)
{
	struct client_reply r = { .body = BUF_ZERO };
	struct buf body = BUF_ZERO;
	struct jwrite w;
	int code;

	jwrite_init(&w, &body);
	jwrite_object(&w);
	jwrite_kv_cstr(&w, "consumer", a->arg[1]);
	if (cmd_str(a, "from"))
		jwrite_kv_cstr(&w, "from_tick", cmd_str(a, "from"));
	jwrite_end(&w);
	code = ojs_ask(c, a, "POST", NULL, buf_span(&body), &r);
	if (code == 0 && ctl_wants_answer(c))
		code = out_print(c, buf_span(&r.body), NULL);
	else if (code == 0)
		say_consumer(c, a, buf_span(&r.body));
	buf_fini(&body);
	buf_fini(&r.body);
	return code;
}

int
cmd_stream_unsubscribe(struct ctl *c, const struct cmd_call *a)
{
	struct client_reply r = { .body = BUF_ZERO };
	int code;

	if (!cmd_confirmed(a, "delete a consumer"))
		return CTL_USER;
	code = ojs_ask(c, a, "DELETE", NULL, (struct span)SPAN_ZERO, &r);
	if (code == 0 && ctl_wants_answer(c))
		code = out_print(c, buf_span(&r.body), NULL);
	else if (code == 0)
		ctl_say(c, "deleted %s", a->arg[1]);
	buf_fini(&r.body);
	return code;
}

/* ---- receive ---- */

static int
receive_once(struct ctl *c, const struct cmd_call *a, int64_t wait_ms,
	struct client_reply *r)
{
	struct buf body = BUF_ZERO;
	struct jwrite w;
	int code;

	jwrite_init(&w, &body);
	jwrite_object(&w);
	jwrite_kv_cstr(&w, "consumer", a->arg[1]);
	ojs_write_flags(a, &w);
	if (wait_ms > 0)
		jwrite_kv_i64(&w, "wait_ms", wait_ms);
	jwrite_end(&w);
	code = ojs_ask(c, a, "POST", NULL, buf_span(&body), r);
	buf_fini(&body);
	return code;
}

/* One event, with the batch that is to be acknowledged in front. */
static void
print_event(struct span batch, struct span event)
{
	struct buf b = BUF_ZERO;

	buf_puts(&b, "{\"batch_id\":");
	buf_put_span(&b, batch);
	buf_putc(&b, ',');
	buf_put(&b, event.p + 1, event.n - 1);
	ojs_print_line(buf_span(&b));
	buf_fini(&b);
}

static int
send_ack(struct ctl *c, const struct cmd_call *a, const char *queue,
	const char *batch)
{
	struct client_req q = { .method = "POST",
		.path = API "/streams/ack",
		.kind = CLIENT_WRITE };
	struct client_reply r = { .body = BUF_ZERO };
	bool print = strcmp(a->phrase->verb, "ack") == 0;
	struct buf body = BUF_ZERO;
	struct jwrite w;
	int code = c->target.url ? CTL_OK : ctl_target_ojs(c);

	jwrite_init(&w, &body);
	jwrite_object(&w);
	jwrite_kv_cstr(&w, "queue", queue);
	jwrite_kv_cstr(&w, "batch_id", batch);
	if (print)
		ojs_write_flags(a, &w);
	jwrite_end(&w);
	q.body = buf_span(&body);
	if (code == 0)
		code = client_ask(c, &q, &r);
	if (code == 0 && print && ctl_wants_answer(c))
		code = out_print(c, buf_span(&r.body), NULL);
	else if (code == 0 && print)
		ctl_say(c, "acknowledged %s, %s is at tick %s", batch,
			doc_str(buf_span(&r.body), "consumer", "-", &c->arena),
			doc_str(buf_span(&r.body), "last_tick", "-",
				&c->arena));
	buf_fini(&body);
	buf_fini(&r.body);
	return code;
}

/* The events of an answer; true when there is a batch in it. */
static bool
print_batch(struct ctl *c, struct span answer)
{
	struct jspan_val id, list, v;
	struct jspan j;

	if (!doc_path(answer, "batch.id", &c->arena, &id) ||
		!doc_path(answer, "messages", &c->arena, &list))
		return false;
	for (doc_open(&j, list.raw); doc_next(&j, &v);)
		print_event(id.raw, v.raw);
	return true;
}

int
cmd_stream_receive(struct ctl *c, const struct cmd_call *a)
{
	int64_t until_ms = clk_mono_ms() + cmd_int(a, "wait"), left_ms;
	struct client_reply r = { .body = BUF_ZERO };
	bool got = false;
	int code;

	do {
		left_ms = until_ms - clk_mono_ms();
		code = receive_once(c, a,
			left_ms < OJS_WAIT_MAX_MS ? left_ms : OJS_WAIT_MAX_MS,
			&r);
		got = code == 0 && print_batch(c, buf_span(&r.body));
	} while (code == 0 && !got && left_ms > OJS_WAIT_MAX_MS);
	/* printed means on its way to a reader, not in our buffer */
	if (code == 0 && got && cmd_bool(a, "ack"))
		code = ctl_flush(code);
	if (code == 0 && got && cmd_bool(a, "ack"))
		code = send_ack(c, a, a->arg[0],
			doc_str(buf_span(&r.body), "batch.id", "-", &c->arena));
	buf_fini(&r.body);
	return code ? code : got ? CTL_OK : CTL_NOTHING;
}

/* ---- ack, nack ---- */

int
cmd_stream_ack(struct ctl *c, const struct cmd_call *a)
{
	return send_ack(c, a, a->arg[0], a->arg[1]);
}

static void
say_nack(struct ctl *c, struct span answer)
{
	const char *at = doc_str(answer, "deliver_at", NULL, &c->arena);

	ctl_say(c, "%s %s retries=%s/%s%s%s",
		doc_str(answer, "outcome", "-", &c->arena),
		doc_str(answer, "message_id", "-", &c->arena),
		doc_str(answer, "retry_count", "-", &c->arena),
		doc_str(answer, "max_retries", "-", &c->arena),
		at ? " next=" : "", at ? at : "");
}

int
cmd_stream_nack(struct ctl *c, const struct cmd_call *a)
{
	struct client_reply r = { .body = BUF_ZERO };
	struct buf body = BUF_ZERO;
	char after[32];
	struct jwrite w;
	int code;

	if (a->args_n < 3 && !cmd_typed(a, "seq"))
		return ctl_fail(
			CTL_USER, "which event? name its id, or its --seq");
	jwrite_init(&w, &body);
	jwrite_object(&w);
	jwrite_kv_cstr(&w, "queue", a->arg[0]);
	jwrite_kv_cstr(&w, "batch_id", a->arg[1]);
	if (a->args_n > 2)
		jwrite_kv_cstr(&w, "message_id", a->arg[2]);
	ojs_write_flags(a, &w);
	if (cmd_typed(a, "retry-after")) {
		snprintf(after, sizeof(after), "%" PRId64 "ms",
			cmd_int(a, "retry-after"));
		jwrite_kv_cstr(&w, "retry_after", after);
	}
	jwrite_end(&w);
	code = ojs_ask(c, a, "POST", NULL, buf_span(&body), &r);
	if (code == 0 && ctl_wants_answer(c))
		code = out_print(c, buf_span(&r.body), NULL);
	else if (code == 0)
		say_nack(c, buf_span(&r.body));
	buf_fini(&body);
	buf_fini(&r.body);
	return code;
}

/* ---- dead letters ---- */

/* Prints, or tells `WORD N`; nothing done is CTL_NOTHING. */
static int
tell_count(struct ctl *c, const struct client_reply *r, const char *member)
{
	int64_t n = doc_i64(buf_span(&r->body), member, 0, &c->arena);
	const char *why =
		doc_str(buf_span(&r->body), "first_error", NULL, &c->arena);
	int code = CTL_OK;

	if (ctl_wants_answer(c))
		code = out_print(c, buf_span(&r->body), NULL);
	else if (n > 0)
		ctl_say(c, "%s %" PRId64, member, n);
	if (code == 0 && why)
		return ctl_fail(CTL_SERVER, "not all: %s", why);
	return code == 0 && n == 0 ? CTL_NOTHING : code;
}

int
cmd_stream_replay(struct ctl *c, const struct cmd_call *a)
{
	struct client_reply r = { .body = BUF_ZERO };
	struct buf rest = BUF_ZERO;
	int code;

	if (!cmd_confirmed(a, "replay dead letters"))
		return CTL_USER;
	if (a->args_n > 1)
		client_segment(&rest, a->arg[1]);
	buf_puts(&rest, "/replay");
	buf_putc(&rest, '\0');
	code = ojs_ask(c, a, "POST", rest.p, SPAN_LIT("{}"), &r);
	if (code == 0)
		code = tell_count(c, &r, "replayed");
	buf_fini(&rest);
	buf_fini(&r.body);
	return code;
}

int
cmd_stream_purge(struct ctl *c, const struct cmd_call *a)
{
	struct client_reply r = { .body = BUF_ZERO };
	int code;

	if (!cmd_confirmed(a, "delete dead letters"))
		return CTL_USER;
	code = ojs_ask(c, a, "DELETE", NULL, (struct span)SPAN_ZERO, &r);
	if (code == 0)
		code = tell_count(c, &r, "purged");
	buf_fini(&r.body);
	return code;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * push, tx and lease.  A payload is a span of the input from its line to the
 * request; it is checked, never rewritten.
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
#include "qid.h"
#include "why.h"

#define API "/api/v1"

enum {
	PUSH_BATCH = 100,
	PUSH_BATCH_BYTES = 16 << 20, /* a request ends there at the latest */
	TX_MAX_BYTES = 64 << 20,
};

/* ---- push ---- */

struct push {
	struct ctl *c;
	const struct cmd_call *a;
	const char *queue, *partition, *key, *trace;
	bool wrapped, dry;
	int64_t batch;
	struct buf body;
	struct jwrite w;
	int64_t in_body; /* items of the request being made */
	int64_t items; /* of all requests */
	int64_t queued, duplicate, failed;
	char why[200]; /* first failure */
};

static void
begin_body(struct push *p)
{
	buf_reset(&p->body);
	jwrite_init(&p->w, &p->body);
	jwrite_object(&p->w);
	jwrite_key(&p->w, "items");
	jwrite_array(&p->w);
	p->in_body = 0;
}

static void
note_failure(struct push *p, struct span result)
{
	const char *why = why_refused(result, &p->c->arena);

	snprintf(p->why, sizeof(p->why), "%.190s", why ? why : "?");
}

static void
count_results(struct push *p, struct span results)
{
	struct arena *arena = &p->c->arena;
	struct jspan_val v;
	struct jspan j;

	for (doc_open(&j, results); doc_next(&j, &v);) {
		const char *s = doc_str(v.raw, "status", "", arena);

		if (strcmp(s, "queued") == 0 || strcmp(s, "buffered") == 0)
			p->queued++;
		else if (strcmp(s, "duplicate") == 0)
			p->duplicate++;
		else if (p->failed++ == 0)
			note_failure(p, v.raw);
	}
	arena_reset(arena);
}

static int
flush(struct push *p)
{
	struct client_reply r = { .body = BUF_ZERO };
	struct client_req q = {
		.method = "POST", .path = API "/push", .kind = CLIENT_WRITE
	};
	int code;

	if (p->in_body == 0)
		return CTL_OK;
	if (p->dry) {
		begin_body(p);
		return CTL_OK;
	}
	jwrite_end(&p->w);
	jwrite_end(&p->w);
	q.body = buf_span(&p->body);
	code = client_ask(p->c, &q, &r);
	if (code == 0)
		count_results(p, buf_span(&r.body));
	buf_fini(&r.body);
	begin_body(p);
	return code;
}

/* The partition an item names in its payload, else the fixed one. */
static const char *
partition_of(struct push *p, struct span payload)
{
	struct jspan_val v;

	if (p->key && doc_path(payload, p->key, &p->c->arena, &v) &&
		(v.type == JSPAN_STRING || v.type == JSPAN_NUMBER ||
			v.type == JSPAN_BOOL))
		return doc_text(&v, &p->c->arena);
	return p->partition;
}

struct item {
	struct span payload, txn, trace, partition; /* JSON or empty */
};

static int
unwrap(const struct push *p, struct span line, size_t number, struct item *it)
{
	static const char *const keys[] = { "data", "transactionId", "traceId",
		"partition" };
	struct span *to[] = { &it->payload, &it->txn, &it->trace,
		&it->partition };

	for (size_t i = 0; i < 4; i++) {
		struct jspan_val v;

		if (!doc_get(line, span_of(keys[i]), &p->c->arena, &v))
			continue;
		if (i == 0 || v.type == JSPAN_STRING)
			*to[i] = v.raw;
		else if (v.type != JSPAN_NULL)
			return ctl_fail(CTL_USER,
				"line %zu: %s is not a string", number,
				keys[i]);
	}
	return it->payload.n
		       ? CTL_OK
		       : ctl_fail(CTL_USER, "line %zu: no data in it", number);
}

static int
add_item(struct push *p, struct span line, size_t number)
{
	struct item it = { .payload = line };
	const char *id = cmd_str(p->a, "transaction-id");
	const char *partition;
	struct err e = ERR_ZERO;
	int code;

	if (doc_check(line, &e) != 0)
		return ctl_fail(CTL_USER, "line %zu: %s", number, e.text);
	it.payload = doc_val(line).raw;
	if (p->wrapped && (code = unwrap(p, line, number, &it)) != 0)
		return code;
	if (p->in_body && p->body.len + line.n > PUSH_BATCH_BYTES &&
		(code = flush(p)) != 0)
		return code;
	jwrite_object(&p->w);
	jwrite_kv_cstr(&p->w, "queue", p->queue);
	partition = it.partition.n ? NULL : partition_of(p, it.payload);
	if (it.partition.n)
		jwrite_kv_raw(&p->w, "partition", it.partition);
	else if (partition)
		jwrite_kv_cstr(&p->w, "partition", partition);
	if (it.txn.n)
		jwrite_kv_raw(&p->w, "transactionId", it.txn);
	else if (id && !p->wrapped && p->items == 0)
		jwrite_kv_cstr(&p->w, "transactionId", id);
	if (it.trace.n)
		jwrite_kv_raw(&p->w, "traceId", it.trace);
	else if (p->trace)
		jwrite_kv_cstr(&p->w, "traceId", p->trace);
	jwrite_kv_raw(&p->w, "payload", it.payload);
	jwrite_end(&p->w);
	arena_reset(&p->c->arena);
	p->items++;
	return ++p->in_body >= p->batch ? flush(p) : CTL_OK;
}

static int
push_lines(struct push *p, const char *file)
{
	struct file_lines lines;
	struct err e = ERR_ZERO;
	struct span line;
	int rc = 0, code = CTL_OK;

	if (file_lines_open(&lines, file, &e) != 0)
		return ctl_fail_err(&e);
	while (code == 0 && (rc = file_lines_next(&lines, &line, &e)) > 0)
		code = add_item(p, line, lines.number);
	if (code == 0 && rc < 0)
		code = ctl_fail(CTL_USER, "%s", e.text);
	file_lines_close(&lines);
	return code ? code : flush(p);
}

static int
push_report(struct push *p)
{
	struct buf b = BUF_ZERO;
	int code = CTL_OK;

	if (p->dry && p->items) {
		ctl_say(p->c, "would push %" PRId64 " items to \"%s\"",
			p->items, p->queue);
		return CTL_OK;
	}
	if (p->queued + p->duplicate + p->failed == 0)
		return CTL_NOTHING;
	if (ctl_wants_answer(p->c)) {
		struct jwrite w;

		jwrite_init(&w, &b);
		jwrite_object(&w);
		jwrite_kv_i64(&w, "queued", p->queued);
		jwrite_kv_i64(&w, "duplicate", p->duplicate);
		jwrite_kv_i64(&w, "failed", p->failed);
		jwrite_end(&w);
		code = out_print(p->c, buf_span(&b), NULL);
		buf_fini(&b);
	} else {
		ctl_say(p->c,
			"queued=%" PRId64 " duplicate=%" PRId64
			" failed=%" PRId64,
			p->queued, p->duplicate, p->failed);
	}
	if (p->failed)
		return ctl_fail(CTL_SERVER, "push failed: %s", p->why);
	return code;
}

int
cmd_push(struct ctl *c, const struct cmd_call *a)
{
	const char *data = cmd_str(a, "data"), *file = cmd_str(a, "file");
	struct push p = { .c = c,
		.a = a,
		.queue = a->arg[0],
		.partition = cmd_str(a, "partition"),
		.key = cmd_str(a, "partition-key"),
		.trace = cmd_str(a, "trace-id"),
		.wrapped = cmd_bool(a, "wrapped"),
		.dry = cmd_bool(a, "dry-run"),
		.batch = cmd_int(a, "batch") };
	int code;

	if (data && file)
		return ctl_fail(CTL_USER, "--data and --file exclude one "
					  "another");
	if (p.key && !*p.key)
		p.key = NULL;
	if (p.batch <= 0)
		p.batch = PUSH_BATCH;
	begin_body(&p);
	if (data) {
		code = add_item(&p, span_of(data), 1);
		if (code == 0)
			code = flush(&p);
	} else {
		code = push_lines(&p, file ? file : "-");
	}
	if (code == 0)
		code = push_report(&p);
	buf_fini(&p.body);
	return code;
}

/* ---- tx ---- */

/* Only what the broker would refuse for certain is refused here. */
static int
check_op(struct span op, struct arena *a, size_t n)
{
	const char *type = doc_str(op, "type", "", a);
	struct jspan_val v;

	if (strcmp(type, "ack") == 0)
		return CTL_OK;
	if (strcmp(type, "push") != 0)
		return ctl_fail(CTL_USER,
			"operations[%zu]: type \"%.60s\" is neither ack nor "
			"push",
			n, type);
	if (doc_path(op, "items", a, &v)
			? v.type == JSPAN_ARRAY && doc_count(v.raw) > 0
			: doc_path(op, "queue", a, &v))
		return CTL_OK;
	return ctl_fail(CTL_USER, "operations[%zu]: a push without items", n);
}

static int
check_bundle(struct ctl *c, struct span body, size_t *ops)
{
	struct err e = ERR_ZERO;
	static const char *const riders[] = { "kv", "timers" };
	struct jspan_val list = { .type = JSPAN_NONE }, v;
	struct jspan j;
	int code = CTL_OK;
	size_t at = 0;

	if (doc_check(body, &e) != 0)
		return ctl_fail(CTL_USER, "the bundle is %s", e.text);
	for (size_t i = 0; i < sizeof(riders) / sizeof(riders[0]); i++)
		if (doc_path(body, riders[i], &c->arena, &list) &&
			list.type == JSPAN_ARRAY)
			*ops += doc_count(list.raw);
	if (!doc_path(body, "operations", &c->arena, &list) && *ops)
		return CTL_OK;
	if (list.type != JSPAN_ARRAY || (doc_count(list.raw) == 0 && !*ops))
		return ctl_fail(CTL_USER, "the bundle has no operations");
	for (doc_open(&j, list.raw); code == 0 && doc_next(&j, &v); ++*ops)
		code = check_op(v.raw, &c->arena, at++);
	return code;
}

/* Messages pushed and acknowledged: so the server counts what it was sent. */
static int64_t
count_messages(struct ctl *c, struct span body)
{
	struct jspan_val list, v, items;
	struct jspan j;
	int64_t n = 0;

	if (!doc_path(body, "operations", &c->arena, &list) ||
		list.type != JSPAN_ARRAY)
		return 0;
	for (doc_open(&j, list.raw); doc_next(&j, &v);)
		n += doc_path(v.raw, "items", &c->arena, &items) &&
				     items.type == JSPAN_ARRAY
			     ? (int64_t)doc_count(items.raw)
			     : 1;
	return n;
}

/* Its text without what the line around it says already. */
static const char *
why_undone(struct ctl *c, struct span body, struct span answer)
{
	static const char code[] = "QTXN ", end[] = "; transaction rolled back";
	struct jspan_val kv = { .type = JSPAN_NONE };
	struct span s;
	const char *why;

	if (doc_path(body, "kv", &c->arena, &kv))
		why = why_lost(
			answer, kv.raw, count_messages(c, body), &c->arena);
	else
		why = why_refused(answer, &c->arena);
	s = span_of(why ? why : "?");
	if (s.n > sizeof(end) && strcmp(s.p + s.n - sizeof(end) + 1, end) == 0)
		s.n -= sizeof(end) - 1;
	if (s.n > sizeof(code) && strncmp(s.p, code, sizeof(code) - 1) == 0) {
		s.p += sizeof(code) - 1;
		s.n -= sizeof(code) - 1;
	}
	return arena_cstr(&c->arena, s);
}

static int
send_bundle(struct ctl *c, struct span body)
{
	struct client_req q = { .method = "POST",
		.path = API "/transaction",
		.body = body,
		.kind = CLIENT_WRITE };
	struct client_reply r = { .body = BUF_ZERO };
	int code = client_ask(c, &q, &r);
	struct span answer = buf_span(&r.body);

	if (code == 0 && ctl_wants_answer(c))
		code = out_print(c, answer, NULL);
	if (code == 0 && !doc_true(answer, "success", &c->arena))
		code = ctl_fail(CTL_SERVER, "transaction rolled back: %s",
			why_undone(c, body, answer));
	else if (code == 0 && !ctl_wants_answer(c))
		ctl_say(c, "transaction committed");
	buf_fini(&r.body);
	return code;
}

int
cmd_tx(struct ctl *c, const struct cmd_call *a)
{
	const char *file = cmd_str(a, "file");
	struct buf body = BUF_ZERO;
	struct err e = ERR_ZERO;
	size_t ops = 0;
	int code;

	if (!file)
		return ctl_fail(CTL_USER, "which bundle? name it with --file");
	if (file_read(file, TX_MAX_BYTES, &body, &e) != 0)
		code = ctl_fail_err(&e);
	else
		code = check_bundle(c, buf_span(&body), &ops);
	if (code == 0 && cmd_bool(a, "dry-run"))
		ctl_say(c, "would commit %zu operations", ops);
	else if (code == 0)
		code = send_bundle(c, buf_span(&body));
	buf_fini(&body);
	return code;
}

/* ---- lease ---- */

int
cmd_lease_extend(struct ctl *c, const struct cmd_call *a)
{
	struct buf path = BUF_ZERO, body = BUF_ZERO;
	struct client_req q = { .method = "POST", .kind = CLIENT_READ };
	struct client_reply r = { .body = BUF_ZERO };
	int code;

	buf_puts(&path, API "/lease");
	client_segment(&path, a->arg[0]);
	buf_puts(&path, "/extend");
	buf_putc(&path, '\0');
	buf_printf(&body, "{\"seconds\":%" PRId64 "}", cmd_int(a, "seconds"));
	q.path = path.p;
	q.body = buf_span(&body);
	code = client_ask(c, &q, &r);
	struct span answer = buf_span(&r.body);

	if (code == 0 && ctl_wants_answer(c))
		code = out_print(c, answer, NULL);
	if (code == 0 && !doc_true(answer, "success", &c->arena))
		code = ctl_fail(CTL_SERVER,
			"lease %s is not held any more, nothing was renewed",
			a->arg[0]);
	else if (code == 0 && !ctl_wants_answer(c))
		ctl_say(c, "renewed %s -> %s", a->arg[0],
			doc_str(answer, "newExpiresAt", "-", &c->arena));
	buf_fini(&r.body);
	buf_fini(&path);
	buf_fini(&body);
	return code;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* ack: one message by its flags, or lines as pop prints them. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
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

/* A request's worth: within one, a failure cannot end another's lease. */
enum { ACK_BATCH = 10000, ACK_BATCH_BYTES = 16 << 20 };

struct ack {
	struct ctl *c;
	const struct cmd_call *a;
	const char *cg;
	struct buf body; /* of the group in hand */
	struct buf group; /* its name, as JSON; empty = none */
	struct jwrite w;
	int64_t in_body, ok, failed;
	char why[200]; /* first failure */
};

static void
begin_body(struct ack *k)
{
	buf_reset(&k->body);
	jwrite_init(&k->w, &k->body);
	jwrite_object(&k->w);
	if (k->cg)
		jwrite_kv_cstr(&k->w, "consumerGroup", k->cg);
	else if (k->group.len)
		jwrite_kv_raw(&k->w, "consumerGroup", buf_span(&k->group));
	jwrite_key(&k->w, "acknowledgments");
	jwrite_array(&k->w);
	k->in_body = 0;
}

static void
count_results(struct ack *k, struct span results)
{
	struct arena *arena = &k->c->arena;
	struct jspan_val v;
	struct jspan j;

	for (doc_open(&j, results); doc_next(&j, &v);) {
		if (doc_true(v.raw, "success", arena)) {
			k->ok++;
			continue;
		}
		if (k->failed++ == 0) {
			const char *why = why_refused(v.raw, arena);

			snprintf(k->why, sizeof(k->why), "%.190s",
				why ? why : "?");
		}
	}
}

static int
send_body(struct ack *k, struct client_reply *r)
{
	struct client_req q = { .method = "POST",
		.path = API "/ack/batch",
		/* repeating a completed ack is harmless */
		.kind = cmd_bool(k->a, "failed") ? CLIENT_WRITE : CLIENT_READ };
	int code;

	jwrite_end(&k->w);
	jwrite_end(&k->w);
	q.body = buf_span(&k->body);
	code = client_ask(k->c, &q, r);
	if (code == 0)
		count_results(k, buf_span(&r->body));
	arena_reset(&k->c->arena);
	return code;
}

static int
flush(struct ack *k)
{
	struct client_reply r = { .body = BUF_ZERO };
	int code = CTL_OK;

	if (k->in_body)
		code = send_body(k, &r);
	buf_fini(&r.body);
	begin_body(k);
	return code;
}

static void
write_status(struct ack *k)
{
	const char *error = cmd_str(k->a, "error");
	bool failed = cmd_bool(k->a, "failed");

	jwrite_kv_cstr(&k->w, "status", failed ? "failed" : "completed");
	if (error)
		jwrite_kv_cstr(&k->w, "error", error);
}

static int
add_line(struct ack *k, struct span line, size_t number)
{
	static const char *const keys[] = { "transactionId", "partitionId",
		"leaseId" };
	struct arena *arena = &k->c->arena;
	struct jspan_val v[3], cg;
	struct err e = ERR_ZERO;
	int code;

	if (doc_check(line, &e) != 0)
		return ctl_fail(CTL_USER, "line %zu: %s", number, e.text);
	for (int i = 0; i < 3; i++) {
		bool got = doc_get(line, span_of(keys[i]), arena, &v[i]) &&
			   v[i].type == JSPAN_STRING;

		if (!got && i < 2)
			return ctl_fail(CTL_USER,
				"line %zu: %s is missing or not a string",
				number, keys[i]);
		if (!got)
			v[i].raw = (struct span)SPAN_ZERO;
	}
	if (!doc_get(line, SPAN_LIT("consumerGroup"), arena, &cg) ||
		cg.type != JSPAN_STRING)
		cg.raw = (struct span)SPAN_ZERO;
	/* a request has one group */
	bool other = !k->cg && !span_eq(cg.raw, buf_span(&k->group));

	if (other || k->in_body >= ACK_BATCH || k->body.len > ACK_BATCH_BYTES) {
		code = k->in_body ? flush(k) : CTL_OK;
		if (code != 0)
			return code;
		buf_reset(&k->group);
		buf_put_span(&k->group, cg.raw);
		begin_body(k);
	}
	jwrite_object(&k->w);
	for (int i = 0; i < 3; i++)
		if (v[i].raw.n)
			jwrite_kv_raw(&k->w, keys[i], v[i].raw);
	write_status(k);
	jwrite_end(&k->w);
	k->in_body++;
	return CTL_OK;
}

static int
ack_lines(struct ack *k, const char *file)
{
	struct file_lines lines;
	struct err e = ERR_ZERO;
	struct span line;
	int rc = 0, code = CTL_OK;

	if (file_lines_open(&lines, file, &e) != 0)
		return ctl_fail_err(&e);
	begin_body(k);
	while (code == 0 && (rc = file_lines_next(&lines, &line, &e)) > 0)
		code = add_line(k, line, lines.number);
	if (code == 0 && rc < 0)
		code = ctl_fail(CTL_USER, "%s", e.text);
	file_lines_close(&lines);
	if (code == 0)
		code = flush(k);
	if (code != 0)
		return code;
	if (k->ok + k->failed == 0)
		return CTL_NOTHING;
	if (ctl_wants_answer(k->c)) {
		struct buf b = BUF_ZERO;

		buf_printf(&b, "{\"ok\":%" PRId64 ",\"failed\":%" PRId64 "}",
			k->ok, k->failed);
		code = out_print(k->c, buf_span(&b), NULL);
		buf_fini(&b);
	} else {
		ctl_say(k->c, "ok=%" PRId64 " failed=%" PRId64, k->ok,
			k->failed);
	}
	if (k->failed)
		return ctl_fail(CTL_SERVER, "ack failed: %s", k->why);
	return code;
}

static int
ack_single(struct ack *k)
{
	struct client_reply r = { .body = BUF_ZERO };
	const char *lease = cmd_str(k->a, "lease-id");
	int code;

	begin_body(k);
	jwrite_object(&k->w);
	jwrite_kv_cstr(&k->w, "transactionId", k->a->arg[0]);
	jwrite_kv_cstr(&k->w, "partitionId", cmd_str(k->a, "partition-id"));
	if (lease)
		jwrite_kv_cstr(&k->w, "leaseId", lease);
	write_status(k);
	jwrite_end(&k->w);
	code = send_body(k, &r);
	if (code == 0 && ctl_wants_answer(k->c))
		code = out_print(k->c, buf_span(&r.body), NULL);
	if (code == 0 && k->failed)
		code = ctl_fail(CTL_SERVER, "ack failed: %s", k->why);
	else if (code == 0 && !ctl_wants_answer(k->c))
		ctl_say(k->c, "ack ok");
	buf_fini(&r.body);
	return code;
}

int
cmd_ack(struct ctl *c, const struct cmd_call *a)
{
	struct ack k = { .c = c, .a = a, .cg = cmd_str(a, "cg") };
	const char *batch = cmd_str(a, "batch");
	int code;

	if (batch && a->args_n)
		return ctl_fail(CTL_USER,
			"--batch and a transaction id exclude one another");
	if (batch)
		code = ack_lines(&k, batch);
	else if (!a->args_n)
		code = ctl_fail(CTL_USER,
			"what? name a transaction id, or --batch FILE");
	else if (!cmd_str(a, "partition-id"))
		code = ctl_fail(CTL_USER,
			"--partition-id is needed: a "
			"transaction id is unique in its partition only");
	else
		code = ack_single(&k);
	buf_fini(&k.body);
	buf_fini(&k.group);
	return code;
}

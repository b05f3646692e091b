/* SPDX-License-Identifier: Apache-2.0 */
/* Dead letters: list, move back, throw away. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "client.h"
#include "cmds.h"
#include "ctl.h"
#include "doc.h"
#include "jwrite.h"
#include "out.h"
#include "why.h"

#define API "/api/v1"

enum { DRAIN_PAGE = 200, DRAIN_PAGE_MAX = 10000 };

static int
list_path(const struct cmd_call *a, int64_t limit, int64_t offset,
	struct buf *path)
{
	char text[24];
	int code;

	cmd_get_path(a, path);
	if ((code = cmd_get_time(a, "from", path)) != 0 ||
		(code = cmd_get_time(a, "to", path)) != 0)
		return code;
	if (limit > 0) {
		snprintf(text, sizeof(text), "%" PRId64, limit);
		client_query(path, "limit", text);
	}
	if (offset > 0) {
		snprintf(text, sizeof(text), "%" PRId64, offset);
		client_query(path, "offset", text);
	}
	return CTL_OK;
}

int
cmd_dlq_list(struct ctl *c, const struct cmd_call *a)
{
	struct buf path = BUF_ZERO;
	int code =
		list_path(a, cmd_int(a, "limit"), cmd_int(a, "offset"), &path);

	if (code != 0) {
		buf_fini(&path);
		return code;
	}
	return cmd_get_print(c, &path, a->phrase->view);
}

/* ---- retry ---- */

static int
retry_failed(struct ctl *c, const struct client_reply *r)
{
	struct span body = buf_span(&r->body);
	struct err e = ERR_ZERO;
	struct jspan_val v;

	if (doc_check(body, &e) != 0)
		return client_check(r);
	if (r->status == 404)
		return ctl_fail(CTL_SERVER, "there is no such dead letter: it "
					    "was moved or deleted already");
	if (r->status == 503)
		return ctl_fail(CTL_SERVER,
			"pushes are stopped for "
			"maintenance; the dead letter is still there");
	if (r->status == 500 &&
		doc_get(body, SPAN_LIT("dlqRowRemoved"), &c->arena, &v) &&
		v.type == JSPAN_NULL)
		return ctl_fail(CTL_SERVER,
			"the outcome is unknown; look with "
			"'queenctl dlq list' before trying again");
	return client_check(r);
}

static int
retry_told(struct ctl *c, struct span answer)
{
	const char *why;

	if (doc_true(answer, "dlqRowRemoved", &c->arena)) {
		ctl_say(c, "moved to \"%s\"/\"%s\" as %s",
			doc_str(answer, "queue", "?", &c->arena),
			doc_str(answer, "partition", "?", &c->arena),
			doc_str(answer, "replayedAs.transaction_id", "?",
				&c->arena));
		return CTL_OK;
	}
	if (strcmp(doc_str(answer, "result", "", &c->arena), "duplicate") == 0)
		return ctl_fail(CTL_SERVER,
			"the queue holds it already, at "
			"offset %s; nothing was written, the dead letter "
			"stays",
			doc_str(answer, "replayedAs.offset", "?", &c->arena));
	why = why_refused(answer, &c->arena);
	return ctl_fail(CTL_SERVER, "not moved: %s", why ? why : "?");
}

static void
retry_request(const struct cmd_call *a, struct buf *path, struct buf *body)
{
	const char *id = cmd_str(a, "id"), *queue = cmd_str(a, "to-queue");
	const char *partition = cmd_str(a, "to-partition");
	struct jwrite w;

	if (id) {
		buf_puts(path, API "/dlq");
		client_segment(path, id);
		buf_puts(path, "/replay");
	} else {
		buf_puts(path, API "/messages");
		client_segment(path, a->arg[0]);
		client_segment(path, a->arg[1]);
		buf_puts(path, "/retry");
	}
	buf_putc(path, '\0');
	if (!queue && !partition)
		return;
	jwrite_init(&w, body);
	jwrite_object(&w);
	if (queue)
		jwrite_kv_cstr(&w, "queue", queue);
	if (partition)
		jwrite_kv_cstr(&w, "partition", partition);
	jwrite_end(&w);
}

int
cmd_dlq_retry(struct ctl *c, const struct cmd_call *a)
{
	struct client_req q = { .method = "POST", .kind = CLIENT_ONCE };
	struct client_reply r = { .body = BUF_ZERO };
	struct buf path = BUF_ZERO, body = BUF_ZERO;
	const char *id = cmd_str(a, "id");
	int code;

	if (id ? a->args_n != 0 : a->args_n != 2)
		return ctl_fail(CTL_USER,
			"name a partition id and a transaction id, or --id");
	if (!id && (cmd_str(a, "to-queue") || cmd_str(a, "to-partition")))
		return ctl_fail(CTL_USER, "--to-queue and --to-partition need "
					  "--id");
	if (cmd_bool(a, "dry-run")) {
		ctl_say(c, "[dry-run] would move the dead letter %s%s%s back",
			id ? id : a->arg[0], id ? "" : " ",
			id ? "" : a->arg[1]);
		return CTL_OK;
	}
	if (!cmd_confirmed(a, "move a dead letter"))
		return CTL_USER;
	retry_request(a, &path, &body);
	q.path = path.p;
	q.body = buf_span(&body);
	code = client_send(c, &q, &r);
	if (code == 0 && (r.status < 200 || r.status > 299))
		code = retry_failed(c, &r);
	else if (code == 0) {
		if (ctl_wants_answer(c))
			code = out_print(c, buf_span(&r.body), NULL);
		if (code == 0 && (!ctl_wants_answer(c) ||
					 !doc_true(buf_span(&r.body),
						 "dlqRowRemoved", &c->arena)))
			code = retry_told(c, buf_span(&r.body));
	}
	buf_fini(&path);
	buf_fini(&body);
	buf_fini(&r.body);
	return code;
}

/* ---- drain ---- */

struct drain {
	struct ctl *c;
	const struct cmd_call *a;
	int64_t processed, errors;
};

/* One request deletes exactly the rows of a queue (and group). */
static int
drain_queue(struct drain *d)
{
	struct client_req q = {
		.method = "DELETE", .kind = CLIENT_WRITE, .timeout_ms = 600000
	};
	struct client_reply r = { .body = BUF_ZERO };
	struct buf path = BUF_ZERO;
	int code;

	cmd_get_path(d->a, &path);
	buf_putc(&path, '\0');
	q.path = path.p;
	code = client_ask(d->c, &q, &r);
	if (code == 0)
		d->processed =
			doc_i64(buf_span(&r.body), "deleted", 0, &d->c->arena);
	buf_fini(&path);
	buf_fini(&r.body);
	return code;
}

static int
drain_row(struct drain *d, struct span row)
{
	struct client_req q = { .method = "DELETE", .kind = CLIENT_WRITE };
	struct client_reply r = { .body = BUF_ZERO };
	struct buf path = BUF_ZERO;
	int code;

	buf_puts(&path, API "/messages");
	client_segment(&path, doc_str(row, "partitionId", "", &d->c->arena));
	client_segment(&path, doc_str(row, "transactionId", "", &d->c->arena));
	buf_putc(&path, '\0');
	q.path = path.p;
	code = client_send(d->c, &q, &r);
	/* rows of other groups go with the address, so one may be gone */
	if (code == 0 && ((r.status >= 200 && r.status < 300)))
		d->processed++;
	else if (code == 0 && r.status != 404)
		d->errors++;
	buf_fini(&path);
	buf_fini(&r.body);
	return code;
}

/* One page from `offset`; *rows = how many it held. */
static int
drain_page(struct drain *d, int64_t offset, bool dry, int64_t *rows)
{
	struct client_reply r = { .body = BUF_ZERO };
	struct client_req q = { .method = "GET" };
	int64_t limit = cmd_int(d->a, "limit");
	struct buf path = BUF_ZERO;
	struct jspan_val list, v;
	struct jspan j;
	int code;

	*rows = 0;
	if (limit <= 0 || limit > DRAIN_PAGE_MAX)
		limit = DRAIN_PAGE;
	code = list_path(d->a, limit, offset, &path);
	buf_putc(&path, '\0');
	q.path = path.p;
	if (code == 0)
		code = client_ask(d->c, &q, &r);
	if (code != 0 ||
		!doc_path(buf_span(&r.body), "messages", &d->c->arena, &list))
		goto out;
	for (doc_open(&j, list.raw); code == 0 && doc_next(&j, &v); ++*rows) {
		if (dry)
			d->processed++;
		else
			code = drain_row(d, v.raw);
	}
out:
	buf_fini(&path);
	buf_fini(&r.body);
	return code;
}

/*
 * Deleting moves the pages, so the first one is read again and again until it
 * is empty or a round brought nothing.
 */
static int
drain_rows(struct drain *d, bool dry)
{
	int64_t rows, offset = 0;
	int code;

	for (;;) {
		int64_t before = d->processed;

		d->errors = 0;
		code = drain_page(d, offset, dry, &rows);
		if (code != 0 || rows == 0 || d->processed == before)
			return code;
		if (dry)
			offset += rows;
	}
}

int
cmd_dlq_drain(struct ctl *c, const struct cmd_call *a)
{
	struct drain d = { .c = c, .a = a };
	bool dry = cmd_bool(a, "dry-run");
	int code;

	if (!dry && !cmd_confirmed(a, "delete dead letters"))
		return CTL_USER;
	if (!dry && cmd_str(a, "queue") && !cmd_str(a, "partition") &&
		!cmd_str(a, "from") && !cmd_str(a, "to"))
		code = drain_queue(&d);
	else
		code = drain_rows(&d, dry);
	if (code != 0)
		return code;
	if (d.processed + d.errors == 0)
		return CTL_NOTHING;
	if (ctl_wants_answer(c)) {
		struct buf b = BUF_ZERO;

		buf_printf(&b,
			"{\"processed\":%" PRId64 ",\"errors\":%" PRId64
			",\"dryRun\":%s}",
			d.processed, d.errors, dry ? "true" : "false");
		code = out_print(c, buf_span(&b), NULL);
		buf_fini(&b);
	} else {
		ctl_say(c, "%sprocessed=%" PRId64 " errors=%" PRId64,
			dry ? "[dry-run] " : "", d.processed, d.errors);
	}
	return d.errors ? CTL_SERVER : code;
}

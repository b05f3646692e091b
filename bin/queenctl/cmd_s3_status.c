/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a node of queen-s3 says of its sinks.  It listens by itself, and knows
 * no tokens: none is sent there.
 */
#include <stdlib.h>
#include <string.h>

#include "buf.h"
#include "client.h"
#include "cmd_view.h"
#include "cmds.h"
#include "ctl.h"
#include "doc.h"
#include "err.h"
#include "jwrite.h"
#include "out.h"

#define STATUS_URL "http://127.0.0.1:9333"

static void
put(struct jwrite *w, const char *key, struct span from, const char *path,
	struct arena *a)
{
	struct jspan_val v;

	if (doc_path(from, path, a, &v))
		jwrite_kv_raw(w, key, v.raw);
	else
		jwrite_kv_null(w, key);
}

static void
put_sink(struct jwrite *w, struct span sink, struct arena *a)
{
	put(w, "tenant", sink, "tenant", a);
	put(w, "sink", sink, "sink", a);
	put(w, "bucket", sink, "bucket.name", a);
}

static void
put_queue(
	struct jwrite *w, struct span sink, struct span queue, struct arena *a)
{
	bool here = doc_true(queue, "ownedHere", a);

	jwrite_object(w);
	put_sink(w, sink, a);
	put(w, "queue", queue, "name", a);
	put(w, "state", queue, "state", a);
	put(w, "owner", here ? sink : queue, here ? "instance" : "heldBy", a);
	put(w, "k", queue, "k", a);
	put(w, "lagSeconds", queue, "lagSeconds", a);
	put(w, "records", queue, "records", a);
	put(w, "recordsLost", queue, "recordsLost", a);
	put(w, "bufferedBytes", queue, "bufferedBytes", a);
	put(w, "completeThrough", queue, "completeThrough", a);
	put(w, "error", queue, "lastError.message", a);
	put(w, "errorAt", queue, "lastError.at", a);
	jwrite_end(w);
}

/* A sink that has no queue to speak for it. */
static void
put_alone(struct jwrite *w, struct span sink, struct arena *a)
{
	jwrite_object(w);
	put_sink(w, sink, a);
	put(w, "state", sink, "phase", a);
	put(w, "error", sink, "error|bucket.error", a);
	jwrite_end(w);
}

static void
write_rows(struct buf *out, struct span status, struct arena *a)
{
	struct jspan_val sinks, queues, sink, queue;
	struct jspan j, k;
	struct jwrite w;

	jwrite_init(&w, out);
	jwrite_array(&w);
	if (doc_path(status, "sinks", a, &sinks))
		for (doc_open(&j, sinks.raw); doc_next(&j, &sink);) {
			if (!doc_path(sink.raw, "queues", a, &queues) ||
				doc_count(queues.raw) == 0) {
				put_alone(&w, sink.raw, a);
				continue;
			}
			for (doc_open(&k, queues.raw); doc_next(&k, &queue);)
				put_queue(&w, sink.raw, queue.raw, a);
		}
	jwrite_end(&w);
}

static int
print(struct ctl *c, struct span status)
{
	struct buf rows = BUF_ZERO;
	struct err e = ERR_ZERO;
	struct jspan_val sinks;
	int code;

	if (doc_check(status, &e) != 0 ||
		!doc_path(status, "sinks", &c->arena, &sinks))
		return ctl_fail(CTL_SERVER, "%s answers, but it is no queen-s3",
			c->target.url);
	if (c->format != CTL_TABLE && c->format != CTL_WIDE &&
		c->format != CTL_NDJSON)
		return out_print(c, status, NULL);
	write_rows(&rows, status, &c->arena);
	code = out_print(c, buf_span(&rows), &cmd_view_s3_status);
	buf_fini(&rows);
	return code;
}

int
cmd_s3_status(struct ctl *c, const struct cmd_call *a)
{
	struct client_req q = { .method = "GET", .path = "/status" };
	struct client_reply r = { .body = BUF_ZERO };
	const char *url = cmd_str(a, "url");
	int code;

	if (!url)
		url = getenv("QUEEN_S3_URL");
	if (!url || !*url)
		url = STATUS_URL;
	c->target.url =
		strndup(url, strlen(url) - (url[strlen(url) - 1] == '/'));
	BUG(!c->target.url);
	c->target.insecure = c->ask.insecure;
	code = client_send(c, &q, &r);
	if (code != 0)
		ctl_fail(code,
			"is queen-s3 running?  Its QUEEN_S3_LISTEN is named by "
			"--url or QUEEN_S3_URL");
	else
		code = client_check(&r);
	if (code == 0)
		code = print(c, buf_span(&r.body));
	buf_fini(&r.body);
	return code;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pop and tail: one JSON object per line, whatever -o says.  Payload bytes
 * are copied; only a line break between tokens becomes a space, so that a
 * message stays one line.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "client.h"
#include "clk.h"
#include "cmds.h"
#include "ctl.h"
#include "doc.h"
#include "jwrite.h"
#include "progress.h"

#define API "/api/v1"

enum { POP_GRACE_MS = 10000, TAIL_BATCH = 100 };

struct pop {
	struct ctl *c;
	const char *queue, *partition, *cg, *namespace, *task, *mode, *since;
	int64_t batch, partitions, timeout_ms;
	int64_t limit; /* lines still wanted */
	bool wait, auto_ack, conflation;
	int64_t printed, received;
	struct progress *progress;
};

static void
query_int(struct buf *b, const char *name, int64_t v)
{
	char text[24];

	snprintf(text, sizeof(text), "%" PRId64, v);
	client_query(b, name, text);
}

static void
pop_path(const struct pop *p, struct buf *b)
{
	buf_puts(b, API "/pop");
	if (p->queue) {
		buf_puts(b, "/queue");
		client_segment(b, p->queue);
	}
	if (p->queue && p->partition) {
		buf_puts(b, "/partition");
		client_segment(b, p->partition);
	}
	query_int(b, "batch", p->batch);
	query_int(b, "partitions", p->partitions);
	client_query(b, "wait", p->wait ? "true" : "false");
	if (p->wait)
		query_int(b, "timeout", p->timeout_ms);
	if (p->auto_ack)
		client_query(b, "autoAck", "true");
	if (p->conflation)
		client_query(b, "conflation", "true");
	if (p->cg)
		client_query(b, "consumerGroup", p->cg);
	if (p->mode)
		client_query(b, "subscriptionMode", p->mode);
	if (p->since)
		client_query(b, "subscriptionFrom", p->since);
	if (p->namespace)
		client_query(b, "namespace", p->namespace);
	if (p->task)
		client_query(b, "task", p->task);
	buf_putc(b, '\0');
}

static void
put_payload(struct buf *b, struct span s)
{
	size_t at = b->len;

	buf_put_span(b, s);
	for (char *p = b->p + at; p < b->p + b->len; p++)
		if (*p == '\n' || *p == '\r')
			*p = ' ';
}

static void
copy_member(struct jwrite *w, struct span m, const char *from, const char *to,
	bool always)
{
	struct arena a = ARENA_ZERO;
	struct jspan_val v;

	if (doc_get(m, span_of(from), &a, &v) && v.type != JSPAN_NULL &&
		!(v.type == JSPAN_STRING && v.raw.n == 2 && !always))
		jwrite_kv_raw(w, to, v.raw);
	else if (always)
		jwrite_kv_null(w, to);
	arena_fini(&a);
}

static void
put_line(const struct pop *p, struct span m, struct buf *b)
{
	struct arena *a = &p->c->arena;
	struct jspan_val data;
	struct jwrite w;
	int64_t attempt = doc_i64(m, "deliveryAttempt", 1, a);

	jwrite_init(&w, b);
	jwrite_object(&w);
	copy_member(&w, m, "queue", "queue", true);
	copy_member(&w, m, "partition", "partition", true);
	copy_member(&w, m, "transactionId", "transactionId", true);
	copy_member(&w, m, "partitionId", "partitionId", true);
	copy_member(&w, m, "createdAt", "createdAt", true);
	jwrite_kv_i64(&w, "retryCount", attempt > 0 ? attempt - 1 : 0);
	if (doc_get(m, SPAN_LIT("data"), a, &data)) {
		jwrite_kv_raw(&w, "data", SPAN_LIT(""));
		put_payload(b, data.raw);
	}
	copy_member(&w, m, "leaseId", "leaseId", false);
	copy_member(&w, m, "producerSub", "producerSub", false);
	/* so that a line can be acknowledged without naming the group again */
	if (p->cg)
		jwrite_kv_cstr(&w, "consumerGroup", p->cg);
	jwrite_end(&w);
	buf_putc(b, '\n');
}

static int
print_lines(struct pop *p, struct span answer)
{
	struct buf out = BUF_ZERO;
	struct jspan_val list, v;
	struct jspan j;

	if (!doc_path(answer, "messages", &p->c->arena, &list))
		return CTL_OK;
	progress_clear(p->progress);
	for (doc_open(&j, list.raw); doc_next(&j, &v);) {
		p->received++;
		if (p->limit == 0)
			continue; /* leased beyond the limit, not shown */
		p->limit -= p->limit > 0;
		p->printed++;
		buf_reset(&out);
		put_line(p, v.raw, &out);
		fwrite(out.p, 1, out.len, stdout);
		arena_reset(&p->c->arena);
	}
	buf_fini(&out);
	return ctl_flush(CTL_OK);
}

/* One request and its lines; *got = messages it brought. */
static int
pop_once(struct pop *p, int64_t *got)
{
	struct client_req q = { .method = "GET", .kind = CLIENT_POP };
	struct client_reply r = { .body = BUF_ZERO };
	struct buf path = BUF_ZERO;
	int64_t before = p->received;
	int code;

	pop_path(p, &path);
	q.path = path.p;
	q.timeout_ms = (p->wait ? p->timeout_ms : 20000) + POP_GRACE_MS;
	code = client_ask(p->c, &q, &r);
	if (code == 0 && r.body.len)
		code = print_lines(p, buf_span(&r.body));
	*got = p->received - before;
	buf_fini(&r.body);
	buf_fini(&path);
	return code;
}

static int
check_mode(const char *flag, const char **mode)
{
	if (!*mode || strcmp(*mode, "all") == 0 || strcmp(*mode, "new") == 0)
		return CTL_OK;
	if (strcmp(*mode, "new-only") == 0) {
		*mode = "new";
		return CTL_OK;
	}
	return ctl_fail(
		CTL_USER, "--%s \"%s\": expected all or new", flag, *mode);
}

static int
check_int(const struct cmd_call *a, const char *flag, int64_t min)
{
	int64_t v = cmd_int(a, flag);

	if (v >= min && v <= INT32_MAX)
		return CTL_OK;
	return ctl_fail(CTL_USER, "--%s %" PRId64 " is out of range", flag, v);
}

static int
check_conflation(const struct pop *p)
{
	if (p->conflation && (!p->cg || p->auto_ack))
		return ctl_fail(CTL_USER,
			p->auto_ack
				? "--conflation and --auto-ack exclude one another"
				: "--conflation needs a group: --cg GROUP");
	return CTL_OK;
}

int
cmd_pop(struct ctl *c, const struct cmd_call *a)
{
	struct pop p = { .c = c,
		.queue = a->arg[0],
		.partition = cmd_str(a, "partition"),
		.cg = cmd_str(a, "cg"),
		.namespace = cmd_str(a, "namespace"),
		.task = cmd_str(a, "task"),
		.mode = cmd_str(a, "from-mode"),
		.since = cmd_str(a, "since"),
		.limit = cmd_int(a, "limit"),
		.batch = cmd_typed(a, "batch") ? cmd_int(a, "batch")
					       : cmd_int(a, "limit"),
		.partitions = cmd_int(a, "max-partitions"),
		.timeout_ms = cmd_int(a, "timeout"),
		.wait = cmd_bool(a, "wait"),
		.auto_ack = cmd_bool(a, "auto-ack"),
		.conflation = cmd_bool(a, "conflation") };
	int64_t got;
	int code;

	if (!p.queue && !p.namespace && !p.task)
		return ctl_fail(CTL_USER,
			"which queue? name it, or use --namespace or --task");
	if ((code = check_int(a, "limit", 1)) != 0 ||
		(code = check_int(a, "max-partitions", INT32_MIN)) != 0 ||
		(code = check_mode("from-mode", &p.mode)) != 0 ||
		(code = check_conflation(&p)) != 0)
		return code;
	if (p.queue && (p.namespace || p.task))
		return ctl_fail(CTL_USER,
			"--namespace and --task search "
			"queues; they exclude a queue's name");
	if (!p.queue && p.partition)
		return ctl_fail(CTL_USER, "--partition needs a queue's name");
	code = pop_once(&p, &got);
	if (code != 0)
		return code;
	return got ? CTL_OK : CTL_NOTHING;
}

/* ---- tail ---- */

static int
tail_loop(struct pop *p, const struct cmd_call *a)
{
	bool follow = cmd_bool(a, "follow");
	int64_t limit = cmd_int(a, "limit"),
		idle_ms = cmd_int(a, "idle-millis");
	int64_t timeout_ms = p->timeout_ms, batch = p->batch;
	int64_t seen_ms = clk_mono_ms(), got;

	p->limit = limit > 0 ? limit : follow ? -1 : batch;
	for (;;) {
		int code;

		if (!cmd_typed(a, "batch") && p->limit > 0 && p->limit < batch)
			p->batch = p->limit;
		/* what has begun to come is not waited for twice */
		p->wait = follow || p->printed == 0;
		if (idle_ms > 0) {
			int64_t left = idle_ms - (clk_mono_ms() - seen_ms);

			p->wait = true;
			p->timeout_ms = left < 1            ? 1
					: left < timeout_ms ? left
							    : timeout_ms;
		}
		code = pop_once(p, &got);
		if (client_interrupted())
			return CTL_OK;
		if (code != 0)
			return code;
		if (got)
			seen_ms = clk_mono_ms();
		progress_show(p->progress, p->printed, -1);
		if (p->limit == 0)
			return CTL_OK;
		if (!got && !follow && (idle_ms <= 0 || p->timeout_ms <= 1))
			return CTL_OK;
		if (idle_ms > 0 && clk_mono_ms() - seen_ms >= idle_ms)
			return CTL_OK;
	}
}

int
cmd_tail(struct ctl *c, const struct cmd_call *a)
{
	struct progress progress;
	struct pop p = { .c = c,
		.queue = a->arg[0],
		.partition = cmd_str(a, "partition"),
		.cg = cmd_str(a, "cg"),
		.mode = cmd_str(a, "from"),
		.since = cmd_str(a, "since"),
		.batch = cmd_int(a, "batch") > 0 ? cmd_int(a, "batch")
						 : TAIL_BATCH,
		.partitions = cmd_int(a, "max-partitions"),
		.timeout_ms = cmd_int(a, "timeout"),
		.auto_ack = cmd_bool(a, "auto-ack"),
		.conflation = cmd_bool(a, "conflation"),
		.progress = &progress };
	int code;

	if ((code = check_int(a, "limit", 0)) != 0 ||
		(code = check_int(a, "idle-millis", 0)) != 0 ||
		(code = check_int(a, "max-partitions", INT32_MIN)) != 0 ||
		(code = check_mode("from", &p.mode)) != 0 ||
		(code = check_conflation(&p)) != 0)
		return code;
	progress_init(&progress, c->quiet, "messages");
	code = tail_loop(&p, a);
	progress_end(&progress);
	return code;
}

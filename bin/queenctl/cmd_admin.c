/* SPDX-License-Identifier: Apache-2.0 */
/* The cell as a whole: status, health, counters, maintenance. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "client.h"
#include "clk.h"
#include "cmd_view.h"
#include "cmds.h"
#include "ctl.h"
#include "doc.h"
#include "jwrite.h"
#include "out.h"
#include "version.h"

#define API "/api/v1"

/* ---- status ---- */

/* Age of the oldest message that waits. */
static int64_t
lag_of(struct ctl *c, struct span answer)
{
	int64_t oldest_us = INT64_MAX, at_us;
	struct jspan_val list, v;
	struct jspan j;

	if (!doc_path(answer, "partitions", &c->arena, &list))
		return 0;
	for (doc_open(&j, list.raw); doc_next(&j, &v);) {
		const char *s =
			doc_str(v.raw, "oldestMessage", NULL, &c->arena);

		if (s && clk_parse_iso(span_of(s), &at_us) && at_us < oldest_us)
			oldest_us = at_us;
	}
	int64_t age_us = clk_wall_us() - oldest_us;

	return oldest_us == INT64_MAX || age_us < 0 ? 0 : age_us / 1000000;
}

static void
one_row(struct ctl *c, struct span answer, struct buf *out)
{
	static const char *const counts[] = { "pending", "processing",
		"completed", "failed", "deadLetter" };
	struct jspan_val v;
	struct jwrite w;
	char path[48];

	jwrite_init(&w, out);
	jwrite_object(&w);
	jwrite_kv_cstr(
		&w, "queue", doc_str(answer, "queue.name", "", &c->arena));
	for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
		snprintf(path, sizeof(path), "totals.messages.%s", counts[i]);
		jwrite_kv_raw(&w, counts[i],
			doc_path(answer, path, &c->arena, &v)
				? v.raw
				: SPAN_LIT("null"));
	}
	jwrite_key(&w, "partitions");
	jwrite_i64(&w, doc_path(answer, "partitions", &c->arena, &v)
			       ? (int64_t)doc_count(v.raw)
			       : 0);
	jwrite_kv_i64(&w, "lagSeconds", lag_of(c, answer));
	jwrite_end(&w);
}

static int
status_one(struct ctl *c, const struct cmd_call *a)
{
	struct client_reply r = { .body = BUF_ZERO };
	struct client_req q = { .method = "GET" };
	struct buf path = BUF_ZERO, row = BUF_ZERO;
	int code;

	buf_puts(&path, API "/status/queues");
	client_segment(&path, a->arg[0]);
	buf_putc(&path, '\0');
	q.path = path.p;
	code = client_ask(c, &q, &r);
	if (code == 0 && cmd_bool(a, "partitions")) {
		code = out_print(c, buf_span(&r.body), &cmd_view_partitions);
	} else if (code == 0 &&
		   (c->format == CTL_RAW || c->format == CTL_JSONPATH)) {
		code = out_print(c, buf_span(&r.body), NULL);
	} else if (code == 0) {
		one_row(c, buf_span(&r.body), &row);
		code = out_print(c, buf_span(&row), &cmd_view_one_status);
	}
	buf_fini(&row);
	buf_fini(&path);
	buf_fini(&r.body);
	return code;
}

int
cmd_status(struct ctl *c, const struct cmd_call *a)
{
	if (a->args_n)
		return status_one(c, a);
	if (cmd_bool(a, "partitions"))
		return ctl_fail(CTL_USER, "--partitions needs a queue's name");
	return cmd_get(c, a);
}

/* ---- ping, version ---- */

static void
ping_row(struct ctl *c, struct span answer, int64_t us, struct buf *out)
{
	static const char *const keys[] = { "status", "database", "version" };
	char text[32];
	struct jwrite w;

	jwrite_init(&w, out);
	jwrite_object(&w);
	for (size_t i = 0; i < 3; i++)
		jwrite_kv_cstr(
			&w, keys[i], doc_str(answer, keys[i], "-", &c->arena));
	snprintf(text, sizeof(text), "%" PRId64 ".%" PRId64 "ms", us / 1000,
		us / 100 % 10);
	jwrite_kv_cstr(&w, "latency", text);
	jwrite_end(&w);
}

static bool
is_well(struct ctl *c, const struct client_reply *r)
{
	struct span s = buf_span(&r->body);

	return r->status == 200 &&
	       strcmp(doc_str(s, "status", "", &c->arena), "healthy") == 0 &&
	       strcmp(doc_str(s, "database", "", &c->arena), "connected") == 0;
}

int
cmd_ping(struct ctl *c, const struct cmd_call *a)
{
	struct client_req q = { .method = "GET",
		.path = "/health",
		.kind = CLIENT_ONCE,
		.timeout_ms = cmd_int(a, "timeout") };
	struct client_reply r = { .body = BUF_ZERO };
	struct err e = ERR_ZERO;
	struct buf row = BUF_ZERO;
	int64_t from_us = clk_mono_us();
	int code = client_send(c, &q, &r);

	if (code == 0 && (r.status == 200 || r.status == 503) &&
		doc_check(buf_span(&r.body), &e) == 0) {
		ping_row(c, buf_span(&r.body), clk_mono_us() - from_us, &row);
		code = out_print(c, buf_span(&row), a->phrase->view);
		if (code == 0 && !is_well(c, &r))
			code = CTL_SERVER;
	} else if (code == 0) {
		code = client_check(&r);
		code = code ? code : CTL_SERVER;
	}
	buf_fini(&row);
	buf_fini(&r.body);
	return code;
}

int
cmd_version(struct ctl *c, const struct cmd_call *a)
{
	struct client_req q = { .method = "GET",
		.path = "/health",
		.kind = CLIENT_ONCE,
		.timeout_ms = 5000 };
	struct client_reply r = { .body = BUF_ZERO };
	struct context_target probe;
	struct err e = ERR_ZERO;
	int code;

	printf("%s\n", version_line());
	if (cmd_bool(a, "short"))
		return CTL_OK;
	/* without a server there is nothing more to tell */
	if (context_resolve(&c->ask, &probe, &e) != 0)
		return c->ask.server || c->ask.context ? ctl_fail_err(&e)
						       : CTL_OK;
	context_target_fini(&c->target);
	c->target = probe;
	code = client_send(c, &q, &r);
	if (code == 0) {
		struct span s = buf_span(&r.body);

		printf("server: %s (%s)\nstatus: %s\ndatabase: %s\n"
		       "context: %s\n",
			c->target.url, doc_str(s, "version", "-", &c->arena),
			doc_str(s, "status", "-", &c->arena),
			doc_str(s, "database", "-", &c->arena),
			c->target.context ? c->target.context : "-");
		code = is_well(c, &r) ? CTL_OK : CTL_SERVER;
	}
	buf_fini(&r.body);
	return code;
}

/* ---- counters ---- */

int
cmd_metrics(struct ctl *c, const struct cmd_call *a)
{
	struct client_req q = { .method = "GET",
		.path = "/metrics/prometheus" };
	struct client_reply r = { .body = BUF_ZERO };
	int code;

	if (!cmd_bool(a, "prometheus"))
		return cmd_get(c, a);
	code = client_send(c, &q, &r);
	if (code == 0)
		code = client_check(&r);
	if (code == 0)
		fwrite(r.body.p, 1, r.body.len, stdout);
	buf_fini(&r.body);
	return code;
}

int
cmd_analytics(struct ctl *c, const struct cmd_call *a)
{
	struct buf path = BUF_ZERO;
	int code;

	cmd_get_path(a, &path);
	if ((code = cmd_get_time(a, "from", &path)) != 0 ||
		(code = cmd_get_time(a, "to", &path)) != 0) {
		buf_fini(&path);
		return code;
	}
	return cmd_get_print(c, &path, NULL);
}

/* ---- maintenance ---- */

static const char *
maintenance_path(const struct cmd_call *a)
{
	return cmd_bool(a, "pop") ? API "/system/maintenance/pop"
				  : API "/system/maintenance";
}

int
cmd_maintenance_get(struct ctl *c, const struct cmd_call *a)
{
	struct buf path = BUF_ZERO;

	buf_puts(&path, maintenance_path(a));
	return cmd_get_print(c, &path, NULL);
}

static int
maintenance_set(struct ctl *c, const struct cmd_call *a, bool on)
{
	struct client_req q = { .method = "POST",
		.path = maintenance_path(a),
		.kind = CLIENT_WRITE,
		.body = on ? SPAN_LIT("{\"enabled\":true}")
			   : SPAN_LIT("{\"enabled\":false}") };
	struct client_reply r = { .body = BUF_ZERO };
	int code = client_ask(c, &q, &r);

	if (code == 0 && ctl_wants_answer(c))
		code = out_print(c, buf_span(&r.body), NULL);
	else if (code == 0)
		ctl_say(c, "%smaintenance %s", cmd_bool(a, "pop") ? "pop-" : "",
			on ? "on" : "off");
	buf_fini(&r.body);
	return code;
}

int
cmd_maintenance_on(struct ctl *c, const struct cmd_call *a)
{
	if (!cmd_confirmed(a,
		    cmd_bool(a, "pop") ? "stop all pops" : "stop all pushes"))
		return CTL_USER;
	return maintenance_set(c, a, true);
}

int
cmd_maintenance_off(struct ctl *c, const struct cmd_call *a)
{
	return maintenance_set(c, a, false);
}

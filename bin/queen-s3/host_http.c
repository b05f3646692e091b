/* SPDX-License-Identifier: Apache-2.0 */
/* Health, status and metrics of all sinks, on loopback. */
#include "arena.h"
#include "boot.h"
#include "budget.h"
#include "clk.h"
#include "host_int.h"
#include "hsrv.h"
#include "jwrite.h"
#include "settings.h"

enum { BODY_MAX = 1024, MEMORY_BYTES = 4 << 20 };

static void
on_health(struct hsrv_req *r)
{
	struct host *h = hsrv_ctx(r);
	struct health_behind behind;
	const struct tenant *t;
	bool ok = true;
	struct jwrite w;
	int n = 0;

	TAILQ_FOREACH (t, &h->tenants, link) {
		if (!t->sink)
			continue;
		n += sink_watched(t->sink);
		if (ok)
			ok = !sink_behind(t->sink, clk_mono_ms(), &behind);
	}
	jwrite_init(&w, hsrv_out(r));
	jwrite_object(&w);
	jwrite_kv_bool(&w, "ok", ok);
	if (ok) {
		jwrite_kv_i64(&w, "queues", n);
	} else {
		jwrite_kv_str(&w, "queue", behind.queue);
		jwrite_kv_i64(&w, "staleMs", behind.stale_ms);
		jwrite_kv_i64(&w, "limitMs", behind.limit_ms);
	}
	jwrite_end(&w);
	hsrv_reply(r, ok ? 200 : 503);
}

static void
write_text(struct jwrite *w, const char *key, const char *text)
{
	if (text && text[0])
		jwrite_kv_cstr(w, key, text);
	else
		jwrite_kv_null(w, key);
}

static void
write_tenant(struct jwrite *w, const struct tenant *t)
{
	jwrite_object(w);
	jwrite_kv_cstr(w, "tenant", t->text);
	jwrite_kv_cstr(w, "source", t->env ? "env" : "cp");
	write_text(w, "cluster", t->cluster);
	jwrite_kv_cstr(w, "phase", host_sink_phase(t));
	write_text(w, "error", t->error);
	jwrite_kv_i64(w, "restarts", (int64_t)t->restarts);
	jwrite_kv_null(w, "lastExit");
	jwrite_kv_i64(w, "backoffMs", 0);
	if (t->sink) {
		sink_write_status(t->sink, w);
	} else {
		jwrite_kv_bool(w, "ok", !t->error[0]);
		jwrite_kv_bool(w, "running", false);
		jwrite_key(w, "queues");
		jwrite_array(w);
		jwrite_end(w);
	}
	jwrite_end(w);
}

static void
on_status(struct hsrv_req *r)
{
	struct host *h = hsrv_ctx(r);
	const struct tenant *t;
	struct jwrite w;

	jwrite_init(&w, hsrv_out(r));
	jwrite_object(&w);
	jwrite_kv_cstr(&w, "mode", "process");
	jwrite_kv_cstr(&w, "phase",
		h->stopping ? "stopped"
		: h->probed ? "running"
			    : "starting");
	jwrite_kv_i64(&w, "threads", 1);
	jwrite_kv_cstr(&w, "version", QUEEN_VERSION);
	jwrite_kv_cstr(&w, "instance", h->x->conf->instance);
	jwrite_kv_bool(&w, "cellUp", cell_is_up(h->x->cell));
	jwrite_key(&w, "controlPlane");
	jwrite_object(&w);
	write_text(&w, "error", h->rows_error);
	jwrite_end(&w);
	jwrite_key(&w, "sinks");
	jwrite_array(&w);
	TAILQ_FOREACH (t, &h->tenants, link)
		write_tenant(&w, t);
	jwrite_end(&w);
	jwrite_end(&w);
	hsrv_reply(r, 200);
}

static void
on_metrics(struct hsrv_req *r)
{
	struct host *h = hsrv_ctx(r);
	struct metrics_node node = { .buffer_bytes = budget_used(h->x->budget),
		.cell_up = cell_is_up(h->x->cell),
		.started_ms = h->started_ms };
	struct arena *a = hsrv_arena(r);
	struct metrics_sink *s = NULL;
	size_t n = 0, cap = 0;
	const struct tenant *t;

	TAILQ_FOREACH (t, &h->tenants, link) {
		s = arena_grown(a, s, n, &cap, sizeof(*s));
		s[n] = (struct metrics_sink){ .tenant = &t->metrics };
		if (t->sink)
			sink_metrics(t->sink, a, &s[n]);
		n++;
	}
	metrics_write(hsrv_out(r), s, n, &node);
	hsrv_set_type(r, "text/plain; version=0.0.4; charset=utf-8");
	hsrv_reply(r, 200);
}

static void
on_unmatched(struct hsrv_req *r)
{
	hsrv_reply_error(r, 404, "no such route: /healthz, /status, /metrics");
}

static const struct hsrv_route routes[] = {
	{ HSRV_GET, "/healthz", on_health, 0 },
	{ HSRV_GET, "/status", on_status, 0 },
	{ HSRV_GET, "/metrics", on_metrics, 0 },
};

int
host_http_start(struct host *h, struct err *e)
{
	struct hsrv_conf c = { .routes = routes,
		.routes_n = sizeof(routes) / sizeof(routes[0]),
		.unmatched = on_unmatched,
		.ctx = h,
		/* two nodes on one port would answer in turns */
		.own_port = true,
		.max_body_bytes = BODY_MAX,
		.memory_bytes = MEMORY_BYTES };
	const char *listen = h->x->conf->listen;
	char host[BOOT_HOST_MAX];
	int64_t port;

	if (!listen || !boot_listen(listen, host, &port))
		return 0;
	h->hsrv = hsrv_new(h->x->loop, &c);
	return hsrv_listen(h->hsrv, host, (int)port, e);
}

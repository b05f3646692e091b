/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Health and metrics of this node's connectors, on loopback.  A connector in
 * trouble is not the program in trouble: that is red only without the cell.
 */
#include "boot.h"
#include "clk.h"
#include "connhost_int.h"
#include "hint.h"
#include "hsrv.h"
#include "jwrite.h"
#include "metric.h"

enum { BODY_MAX = 1024, MEMORY_BYTES = 1 << 20 };

#define TENANT_DEFAULT "00000000-0000-0000-0000-000000000001"

static const char *
what_is_wrong(const struct connhost *h)
{
	if (!h->cell_up)
		return h->cell_why.text[0] ? h->cell_why.text
					   : "the cell is not reached yet";
	if (h->documents_why.kind != ERR_NONE)
		return h->documents_why.text;
	return h->documents_read ? NULL : "the documents are not read yet";
}

static void
on_health(struct hsrv_req *r)
{
	struct connhost *h = hsrv_ctx(r);
	const char *wrong = what_is_wrong(h);
	struct jwrite w;

	jwrite_init(&w, hsrv_out(r));
	jwrite_object(&w);
	jwrite_kv_cstr(&w, "status", wrong ? "unhealthy" : "ok");
	if (wrong)
		jwrite_kv_cstr(&w, "error", wrong);
	jwrite_kv_cstr(&w, "tool", h->conf.tool);
	jwrite_kv_cstr(&w, "version", QUEEN_VERSION);
	jwrite_kv_cstr(&w, "node", h->conf.node);
	jwrite_kv_cstr(&w, "cell", h->cell_up ? "up" : "down");
	jwrite_kv_i64(&w, "connectors", (int64_t)h->units_n);
	jwrite_kv_i64(&w, "processes", (int64_t)h->children);
	jwrite_key(&w, "documentsError");
	if (h->documents_why.kind != ERR_NONE)
		jwrite_str(&w, span_of(h->documents_why.text));
	else
		jwrite_null(&w);
	jwrite_end(&w);
	hsrv_reply(r, wrong ? 503 : 200);
}

/* ---- metrics ---- */

static void
write_unit(struct buf *b, const struct unit *u, const char *family, uint64_t v)
{
	char text[QID_TEXT_MAX];
	struct metric_label l[2];
	int n = 0;

	qid_text(&u->tenant, text);
	if (!span_is(SPAN_LIT(TENANT_DEFAULT), text))
		l[n++] = (struct metric_label){ "tenant", span_of(text) };
	l[n++] = (struct metric_label){ "connector", u->name };
	metric_u64(b, family, l, n, v);
}

static void
write_families(struct connhost *h, struct buf *b)
{
	const struct unit *u;

	for (int i = 0; i < CONNMETRIC_N; i++) {
		const struct connmetric *m = &connmetric_table[i];
		bool told = false, has;

		TAILQ_FOREACH (u, &h->list, link) {
			uint64_t v = connhost_status_metric(u, i, &has);

			if (!has)
				continue;
			if (!told)
				metric_head(b, m->name, m->type, m->help);
			told = true;
			write_unit(b, u, m->name, v);
		}
	}
}

static void
write_process(struct connhost *h, struct buf *b)
{
	struct hint_stats hints;

	hint_stats(h->hint, &hints);
	metric_one(b, "queen_process_uptime_seconds", "gauge",
		"Time since this process started.",
		(uint64_t)(clk_mono_ms() - h->started_ms) / 1000);
	metric_one(b, "queen_process_resident_memory_bytes", "gauge",
		"Resident set of this process.", metric_resident_bytes());
	metric_one(b, "queen_pg_cell_up", "gauge",
		"1 while the cell is reachable.", h->cell_up);
	metric_one(b, "queen_pg_documents_ok", "gauge",
		"1 when the documents could be read the last time.",
		h->documents_read && h->documents_why.kind == ERR_NONE);
	metric_one(b, "queen_pg_connectors", "gauge",
		"Connectors this process is responsible for.", h->units_n);
	metric_one(b, "queen_pg_processes", "gauge",
		"Processes of connectors that run.", h->children);
	metric_one(b, "queen_pg_crashes_total", "counter",
		"Processes of connectors that ended unasked.", h->crashes);
	metric_one(b, "queen_pg_status_failures_total", "counter",
		"Status rows that could not be written at once.",
		h->put_failures);
	metric_one(b, "queen_hints_sent_total", "counter",
		"Hints sent to other processes.", hints.sent);
	metric_one(b, "queen_hints_received_total", "counter",
		"Hints received from other processes.", hints.received);
	metric_one(b, "queen_hints_dropped_total", "counter",
		"Hints that were dropped, then made up for.", hints.dropped);
}

static void
on_metrics(struct hsrv_req *r)
{
	struct connhost *h = hsrv_ctx(r);

	write_process(h, hsrv_out(r));
	write_families(h, hsrv_out(r));
	hsrv_set_type(r, "text/plain; version=0.0.4; charset=utf-8");
	hsrv_reply(r, 200);
}

static void
on_unmatched(struct hsrv_req *r)
{
	hsrv_reply_error(r, 404, "no such route: /healthz, /metrics");
}

static const struct hsrv_route routes[] = {
	{ HSRV_GET, "/healthz", on_health, 0 },
	{ HSRV_GET, "/metrics", on_metrics, 0 },
};

int
connhost_http_start(struct connhost *h, struct err *e)
{
	struct hsrv_conf c = { .routes = routes,
		.routes_n = sizeof(routes) / sizeof(routes[0]),
		.unmatched = on_unmatched,
		.ctx = h,
		.max_body_bytes = BODY_MAX,
		.memory_bytes = MEMORY_BYTES };
	char host[BOOT_HOST_MAX];
	int64_t port;

	if (!h->conf.listen || !h->conf.listen[0] ||
		!boot_listen(h->conf.listen, host, &port))
		return 0;
	h->hsrv = hsrv_new(h->loop, &c);
	return hsrv_listen(h->hsrv, host, (int)port, e);
}

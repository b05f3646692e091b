/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tenant purge: asks again until the server says that nothing is left.  Each
 * request is bounded and may be repeated, so an interrupted purge goes on
 * where it was.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "clk.h"
#include "client.h"
#include "cmds.h"
#include "ctl.h"
#include "doc.h"
#include "jwrite.h"
#include "out.h"
#include "progress.h"
#include "qid.h"

enum {
	BUDGET_MS = 1000, /* of one request: progress comes in between */
	STUCK_PAUSE_MS = 250, /* rows are held by others */
	STUCK_MS = 60000, /* by then it is no passing lock */
	TABLES_MAX = 64,
};

static const struct qid default_tenant = { .b = { [15] = 1 } };

struct purge {
	struct ctl *c;
	struct buf path;
	char tenant[QID_TEXT_MAX];
	int64_t queues, total;
	struct {
		char name[64];
		int64_t n;
	} tables[TABLES_MAX];
	size_t tables_n;
	struct progress progress;
};

/* The tenant of the argument, which then is that of every request. */
static int
take_tenant(struct purge *p, const struct cmd_call *a)
{
	const char *typed = p->c->ask.tenant;
	struct qid id, other;

	if (!qid_parse(span_of(a->arg[0]), &id))
		return ctl_fail(
			CTL_USER, "tenant \"%.60s\" is no UUID", a->arg[0]);
	if (typed && *typed &&
		!(qid_parse(span_of(typed), &other) &&
			memcmp(&id, &other, sizeof(id)) == 0))
		return ctl_fail(CTL_USER, "--tenant names another tenant");
	if (memcmp(&id, &default_tenant, sizeof(id)) == 0 &&
		!cmd_bool(a, "allow-default-tenant"))
		return ctl_fail(CTL_USER,
			"this is the default tenant, of everyone who names "
			"none; purge it with --allow-default-tenant");
	p->c->ask.tenant = qid_text(&id, p->tenant);
	return CTL_OK;
}

/* On a terminal a person may say it there. */
static bool
confirm(const struct cmd_call *a, const struct purge *p)
{
	char line[QID_TEXT_MAX + 1];

	if (cmd_bool(a, "yes") || !isatty(STDIN_FILENO) ||
		!isatty(STDERR_FILENO))
		return cmd_confirmed(a, "remove all that a tenant stored");
	fprintf(stderr,
		"This removes every queue, message, row and timer of tenant "
		"%s\non %s.  Type the tenant to go on: ",
		p->tenant, p->c->target.url);
	if (fgets(line, sizeof(line), stdin)) {
		line[strcspn(line, "\r\n")] = '\0';
		if (strcasecmp(line, p->tenant) == 0)
			return true;
	}
	ctl_fail(CTL_USER, "not confirmed, nothing is removed");
	return false;
}

static void
add_table(struct purge *p, const char *name, int64_t n)
{
	size_t i = 0;

	while (i < p->tables_n && strcmp(p->tables[i].name, name) != 0)
		i++;
	if (i == TABLES_MAX)
		return;
	if (i == p->tables_n) {
		snprintf(p->tables[i].name, sizeof(p->tables[i].name), "%s",
			name);
		p->tables_n++;
	}
	p->tables[i].n += n;
}

/* What one answer removed. */
static int64_t
add_answer(struct purge *p, struct span answer)
{
	struct arena *a = &p->c->arena;
	struct jspan_val rows, v;
	struct span name;
	int64_t n, sum = 0;
	struct jspan j;

	p->queues += doc_i64(answer, "queues.deleted", 0, a);
	if (!doc_path(answer, "rows", a, &rows))
		return 0;
	jspan_open(&j, rows.raw);
	if (!jspan_enter_object(&j))
		return 0;
	while (jspan_next_key(&j, a, &name) && jspan_take(&j, &v)) {
		if (!jspan_i64(&v, &n))
			continue;
		add_table(p, arena_cstr(a, name), n);
		sum += n;
	}
	p->total += sum;
	return sum;
}

/* Until the server says done; an exit code. */
static int
run(struct purge *p)
{
	struct client_req q = { .method = "DELETE",
		.path = p->path.p,
		.kind = CLIENT_READ /* repeating a purge does no harm */ };
	struct client_reply r = { .body = BUF_ZERO };
	int64_t moved_ms = clk_mono_ms();
	bool done = false;
	int code = CTL_OK;

	while (code == 0 && !done) {
		arena_reset(&p->c->arena);
		code = client_ask(p->c, &q, &r);
		if (code != 0)
			break;
		done = doc_true(buf_span(&r.body), "done", &p->c->arena);
		if (add_answer(p, buf_span(&r.body)) > 0)
			moved_ms = clk_mono_ms();
		else if (!done && clk_mono_ms() - moved_ms > STUCK_MS)
			code = ctl_fail(CTL_SERVER,
				"nothing moved for a minute: others hold what "
				"is left; stop the tenant's traffic and try "
				"again");
		else if (!done)
			client_sleep_ms(STUCK_PAUSE_MS);
		progress_show(&p->progress, p->total, -1);
	}
	progress_end(&p->progress);
	buf_fini(&r.body);
	return code;
}

static int
tell(struct purge *p)
{
	struct buf b = BUF_ZERO;
	struct jwrite w;
	int code = CTL_OK;

	if (!ctl_wants_answer(p->c)) {
		ctl_say(p->c, "purged %s queues=%" PRId64 " rows=%" PRId64,
			p->tenant, p->queues, p->total);
		return code;
	}
	jwrite_init(&w, &b);
	jwrite_object(&w);
	jwrite_kv_cstr(&w, "tenant", p->tenant);
	jwrite_kv_bool(&w, "done", true);
	jwrite_kv_i64(&w, "queues", p->queues);
	jwrite_key(&w, "rows");
	jwrite_object(&w);
	for (size_t i = 0; i < p->tables_n; i++)
		jwrite_kv_i64(&w, p->tables[i].name, p->tables[i].n);
	jwrite_end(&w);
	jwrite_end(&w);
	code = out_print(p->c, buf_span(&b), NULL);
	buf_fini(&b);
	return code;
}

int
cmd_tenant_purge(struct ctl *c, const struct cmd_call *a)
{
	struct purge p = { .c = c, .path = BUF_ZERO };
	int code = take_tenant(&p, a);

	if (code == 0)
		code = ctl_target(c);
	if (code != 0)
		return code;
	if (!confirm(a, &p))
		return CTL_USER;
	buf_printf(&p.path, "/api/v1/resources/tenant?budgetMs=%d", BUDGET_MS);
	if (cmd_bool(a, "allow-default-tenant"))
		buf_puts(&p.path, "&allowDefaultTenant=true");
	buf_putc(&p.path, '\0');
	progress_init(&p.progress, c->quiet, "rows removed");
	code = run(&p);
	if (code == 0)
		code = p.total > 0 ? tell(&p) : CTL_NOTHING;
	buf_fini(&p.path);
	return code;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * doctor: 0 nothing to do, 1 a finding that wants something done, 2 the
 * database cannot be reached.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client.h"
#include "cmds.h"
#include "ctl.h"
#include "db.h"
#include "doc.h"
#include "doctor.h"
#include "jwrite.h"
#include "out.h"
#include "pgconn.h"

static const char *const level_words[] = {
	[DOCTOR_INFO] = "INFO", [DOCTOR_WARN] = "WARN", [DOCTOR_ERROR] = "ERROR"
};

void
doctor_fini(struct doctor *d)
{
	for (int i = 0; i < d->n; i++) {
		free(d->list[i].what);
		free(d->list[i].fix);
	}
	free(d->list);
}

void
doctor_find(struct doctor *d, enum doctor_level level, const char *fix,
	const char *what, ...)
{
	struct doctor_finding *list =
		realloc(d->list, (size_t)(d->n + 1) * sizeof(*list));
	struct doctor_finding *f;
	va_list ap;

	BUG(!list);
	d->list = list;
	f = &list[d->n++];
	*f = (struct doctor_finding){ .level = level };
	va_start(ap, what);
	BUG(vasprintf(&f->what, what, ap) < 0);
	va_end(ap);
	/* names come from the database: they must not steer the terminal */
	for (char *p = f->what; *p; p++)
		if ((unsigned char)*p < 0x20 || *p == 0x7f)
			*p = ' ';
	if (!fix)
		return;
	f->fix = strdup(fix);
	BUG(!f->fix);
	for (char *p = f->fix; *p; p++)
		if ((unsigned char)*p < 0x20 || *p == 0x7f)
			*p = ' ';
}

enum doctor_level
doctor_worst(const struct doctor *d)
{
	enum doctor_level worst = DOCTOR_INFO;

	for (int i = 0; i < d->n; i++)
		if (d->list[i].level > worst)
			worst = d->list[i].level;
	return worst;
}

PGresult *
doctor_ask(
	struct doctor *d, const char *what, const char *sql, const char *param)
{
	const char *params[] = { param };
	PGresult *r = PQexecParams(
		d->pg, sql, param ? 1 : 0, NULL, params, NULL, NULL, 0);
	struct err e = ERR_ZERO;

	d->checks++;
	if (PQresultStatus(r) == PGRES_TUPLES_OK)
		return r;
	pgconn_err(&e, r, d->pg);
	PQclear(r);
	doctor_find(d, DOCTOR_WARN,
		"queenctl schema apply, or connect as a "
		"role with more rights",
		"cannot look at %s: %s", what, e.text);
	return NULL;
}

/* The server, when one is configured: it may be down while the database is up. */
static void
check_health(struct ctl *c, struct doctor *d)
{
	struct client_req q = { .method = "GET",
		.path = "/health",
		.kind = CLIENT_ONCE,
		.timeout_ms = 5000 };
	struct client_reply r = { .body = BUF_ZERO };
	struct err e = ERR_ZERO;

	d->checks++;
	if (context_resolve(&c->ask, &c->target, &e) != 0) {
		doctor_find(d, DOCTOR_INFO, NULL, "/health was not asked: %s",
			e.text);
		return;
	}
	if (client_try(c, &q, &r, &e) != 0)
		doctor_find(d, DOCTOR_ERROR,
			"start it: systemctl start "
			"queend, or queenctl up --detach",
			"%s", e.text);
	else if (r.status == 503)
		doctor_find(d, DOCTOR_ERROR, "look into the log of queend",
			"%s answers, but has no database", c->target.url);
	else if (r.status != 200)
		doctor_find(d, DOCTOR_ERROR, "is this a queend? check --server",
			"%s/health answers HTTP %ld", c->target.url, r.status);
	buf_fini(&r.body);
}

static void
write_json(const struct doctor *d, struct buf *b)
{
	struct jwrite w;

	jwrite_init(&w, b);
	jwrite_object(&w);
	jwrite_kv_bool(&w, "ok", doctor_worst(d) == DOCTOR_INFO);
	jwrite_kv_i64(&w, "checks", d->checks);
	jwrite_key(&w, "findings");
	jwrite_array(&w);
	for (int i = 0; i < d->n; i++) {
		const struct doctor_finding *f = &d->list[i];

		jwrite_object(&w);
		jwrite_kv_cstr(&w, "level", level_words[f->level]);
		jwrite_kv_cstr(&w, "what", f->what);
		jwrite_kv_cstr(&w, "fix", f->fix);
		jwrite_end(&w);
	}
	jwrite_end(&w);
	jwrite_end(&w);
}

static int
print_findings(struct ctl *c, const struct doctor *d)
{
	struct buf b = BUF_ZERO;
	int code = CTL_OK;

	if (ctl_wants_answer(c)) {
		write_json(d, &b);
		code = out_print(c, buf_span(&b), NULL);
		buf_fini(&b);
		return code;
	}
	for (int i = 0; i < d->n; i++) {
		const struct doctor_finding *f = &d->list[i];

		printf("%-5s  %s%s%s\n", level_words[f->level], f->what,
			f->fix ? "  -> fix: " : "", f->fix ? f->fix : "");
	}
	if (doctor_worst(d) == DOCTOR_INFO)
		ctl_say(c, "OK     %d checks, nothing to fix", d->checks);
	return code;
}

int
cmd_doctor(struct ctl *c, const struct cmd_call *a)
{
	struct doctor d = { .max_lag_s = cmd_int(a, "max-lag") / 1000 };
	int code;

	d.pg = db_open(a, &code);
	if (!d.pg)
		return code;
	doctor_server(&d);
	doctor_cell(&d);
	PQfinish(d.pg);
	check_health(c, &d);
	code = print_findings(c, &d);
	if (code == 0 && doctor_worst(&d) != DOCTOR_INFO)
		code = CTL_USER;
	doctor_fini(&d);
	return code;
}

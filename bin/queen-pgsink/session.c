/* SPDX-License-Identifier: Apache-2.0 */
/* Dialling the target; the clear password lives no longer than the dial. */
#include "session.h"

#include <stdio.h>

#include "conndoc.h"
#include "connchild.h"
#include "connfault.h"
#include "connhost.h"
#include "ctx.h"
#include "err.h"

enum { IDLE_MIN_S = 30 };

static void
on_up(void *arg)
{
	struct session *s = arg;

	buf_wipe(&s->password);
	s->on_up(s->arg);
}

static void
on_end(void *arg, const struct connfault *why)
{
	struct session *s = arg;

	buf_wipe(&s->password);
	s->on_end(s->arg, why);
}

int
session_open(struct session *s, struct ctx *x, const char *who, pglink_up_fn up,
	pglink_end_fn end, void *arg, struct connfault *f)
{
	const struct conndoc_sink *d = &x->task->doc->sink;
	struct pglink_conf c = { .conn = &x->task->doc->conn,
		.settings = s->settings,
		.use = PGLINK_PIPELINE,
		.allow_private = x->conf->allow_private,
		.ca_file = x->conf->ca_file };
	char name[160];

	BUG(s->link);
	if (connchild_unseal(x->task, x->seal, &s->password, f) != 0)
		return -1;
	s->on_up = up;
	s->on_end = end;
	s->arg = arg;
	/* a worker that is half dead must not hold progress rows for ever */
	snprintf(s->idle, sizeof(s->idle),
		"idle_in_transaction_session_timeout=%llds",
		(long long)(d->lease_s > IDLE_MIN_S ? d->lease_s : IDLE_MIN_S));
	s->settings[0] = s->idle;
	/* waiting for another holder of a progress row is no failure */
	s->settings[1] = "statement_timeout=0";
	s->settings[2] = "lock_timeout=0";
	snprintf(name, sizeof(name), "queen-pg/" QUEEN_VERSION " sink:%.*s:%s",
		SPAN_ARG(x->task->name), who);
	c.password = buf_span(&s->password);
	c.application_name = name;
	s->link = pglink_new(x->loop, &c, on_up, on_end, s);
	return 0;
}

void
session_close(struct session *s)
{
	pglink_free(s->link);
	s->link = NULL;
	buf_wipe(&s->password);
}

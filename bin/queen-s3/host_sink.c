/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A tenant's sink.  Two of one tenant never run side by side: the next one
 * waits until the one before has drained.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "exit.h"
#include "host_int.h"
#include "s3conf.h"
#include "settings.h"

static void step(struct tenant *t);

struct tenant *
host_sink_find(struct host *h, const struct qid *id)
{
	struct tenant *t;

	TAILQ_FOREACH (t, &h->tenants, link)
		if (memcmp(t->id.b, id->b, sizeof(id->b)) == 0)
			return t;
	return NULL;
}

struct tenant *
host_sink_add(struct host *h, const struct qid *id, const char *cluster)
{
	struct tenant *t = calloc(1, sizeof(*t)), *at;

	BUG(!t);
	t->host = h;
	t->id = *id;
	t->env = cluster == NULL;
	if (cluster) {
		t->cluster = strdup(cluster);
		BUG(!t->cluster);
	}
	qid_text(id, t->text);
	metrics_tenant_init(&t->metrics,
		strcmp(t->text, CTX_TENANT_DEFAULT) == 0 ? span_make(NULL, 0)
							 : span_of(t->text));
	TAILQ_FOREACH (at, &h->tenants, link)
		if (memcmp(at->id.b, id->b, sizeof(id->b)) > 0) {
			TAILQ_INSERT_BEFORE(at, t, link);
			return t;
		}
	TAILQ_INSERT_TAIL(&h->tenants, t, link);
	return t;
}

static void
drop_next(struct tenant *t)
{
	if (!t->next)
		return;
	s3conf_fini(t->next);
	free(t->next);
	t->next = NULL;
}

void
host_sink_free(struct tenant *t)
{
	TAILQ_REMOVE(&t->host->tenants, t, link);
	sink_free(t->sink);
	drop_next(t);
	metrics_tenant_fini(&t->metrics);
	free(t->cluster);
	free(t);
}

void
host_sink_error(struct tenant *t, const char *text)
{
	if (strcmp(t->error, text) != 0)
		log_line(LOG_WARN, "queen-s3", "a sink does not run",
			"tenant=%s error=%s", t->text, log_quote(text));
	snprintf(t->error, sizeof(t->error), "%s", text);
}

static void
on_end(void *arg, enum sink_end why)
{
	struct tenant *t = arg;
	char text[300];

	sink_free(t->sink);
	t->sink = NULL;
	t->stopping = false;
	if (why == SINK_TWIN) {
		snprintf(text, sizeof(text),
			"another process runs under the instance name %s; "
			"give each its own QUEEN_S3_INSTANCE",
			t->host->x->conf->instance);
		if (t->env) {
			host_fail(t->host, EXIT_CONFIG, text);
			return;
		}
		host_sink_error(t, text);
		/* it may be gone when the rows are read again */
		t->updated_us = 0;
	}
	step(t);
}

static void
make(struct tenant *t)
{
	struct err e = ERR_ZERO;
	struct sink_conf c = { .conf = t->next,
		.tenant = t->id,
		.env = t->env,
		.metrics = &t->metrics,
		.on_end = on_end,
		.arg = t };

	t->sink = sink_new(t->host->x, &c, &e);
	drop_next(t);
	if (!t->sink) {
		host_sink_error(t, e.text);
		return;
	}
	t->error[0] = '\0';
	/* the environment's is started by host.c, after its first probe */
	if (!t->env)
		sink_start(t->sink);
}

/* Goes on from what is. */
static void
step(struct tenant *t)
{
	struct host *h = t->host;
	bool stop = t->gone || !t->wanted || t->next || h->stopping;

	if (t->sink && stop && !t->stopping) {
		t->stopping = true;
		sink_stop(t->sink);
		return;
	}
	if (t->sink)
		return;
	if (t->gone)
		host_sink_free(t);
	else if (t->next && t->wanted && !h->stopping)
		make(t);
	host_end_if_quiet(h);
}

void
host_sink_set(struct tenant *t, struct s3conf *conf)
{
	drop_next(t);
	t->restarts += t->sink != NULL;
	t->next = conf;
	t->wanted = true;
	t->error[0] = '\0';
	step(t);
}

void
host_sink_stop(struct tenant *t, bool forget)
{
	t->wanted = false;
	t->gone = forget;
	drop_next(t);
	step(t);
}

const char *
host_sink_phase(const struct tenant *t)
{
	if (t->error[0])
		return "error";
	if (!t->sink)
		return "stopped";
	return sink_runs(t->sink) ? "running" : "starting";
}

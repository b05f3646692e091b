/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rows to sinks.  The time of a row's last write is its version; a read that
 * fails changes nothing that runs.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "buf.h"
#include "clk.h"
#include "host_int.h"
#include "s3conf.h"
#include "seal.h"
#include "settings.h"

enum { ROWS_MS = 5000, QUIET_MS = 60000 };

/* -1: the sink may not run here, *e says why. */
static int
open_row(const struct tenant *t, const struct cell_sink *r, struct s3conf *c,
	struct err *e)
{
	struct buf secret = BUF_ZERO;
	char place[64];

	if (s3conf_from_doc(c, r->config, e) != 0)
		return -1;
	snprintf(place, sizeof(place), S3CONF_PLACE, t->text);
	if (seal_secret_open(t->host->x->seal, span_of(place), r->secret,
		    &secret, e) != 0) {
		s3conf_fini(c);
		buf_wipe(&secret);
		return -1;
	}
	buf_putc(&secret, '\0');
	c->secret_key = strdup(secret.p);
	BUG(!c->secret_key);
	buf_wipe(&secret);
	return 0;
}

static void
run(struct tenant *t, const struct cell_sink *r)
{
	struct s3conf *c = calloc(1, sizeof(*c));
	struct buf line = BUF_ZERO;
	struct err e = ERR_ZERO;

	BUG(!c);
	if (open_row(t, r, c, &e) != 0) {
		free(c);
		host_sink_stop(t, false);
		host_sink_error(t, e.text);
		return;
	}
	settings_boot_line(
		t->host->x->conf, c, t->text, t->host->x->pg_text, &line);
	log_line(LOG_INFO, "queen-s3", "a sink of a tenant", "%.*s",
		SPAN_ARG(buf_span(&line)));
	buf_fini(&line);
	host_sink_set(t, c);
}

static void
take_row(struct host *h, const struct cell_sink *r)
{
	struct tenant *t = host_sink_find(h, &r->tenant);
	char *cluster;

	if (t && t->env) {
		if (t->updated_us != r->updated_us)
			log_line(LOG_WARN, "queen-s3",
				"the stored sink of the default tenant does not run: "
				"QUEEN_S3_QUEUES is set",
				NULL);
		t->updated_us = r->updated_us;
		return;
	}
	if (!t) {
		cluster =
			strndup(r->cluster.p ? r->cluster.p : "", r->cluster.n);
		BUG(!cluster);
		t = host_sink_add(h, &r->tenant, cluster);
		free(cluster);
	}
	t->seen = true;
	h->rows_enabled += r->enabled;
	if (t->updated_us == r->updated_us)
		return;
	t->updated_us = r->updated_us;
	if (r->enabled) {
		run(t, r);
	} else {
		t->error[0] = '\0';
		host_sink_stop(t, false);
	}
}

static void
take(struct host *h, const struct cell_sink *rows, size_t n)
{
	struct tenant *t, *next;

	h->rows_read = true;
	h->rows_enabled = 0;
	h->rows_error[0] = '\0';
	TAILQ_FOREACH (t, &h->tenants, link)
		t->seen = t->env;
	for (size_t i = 0; i < n; i++)
		take_row(h, &rows[i]);
	for (t = TAILQ_FIRST(&h->tenants); t; t = next) {
		next = TAILQ_NEXT(t, link);
		if (!t->seen && !t->gone)
			host_sink_stop(t, true);
	}
}

static void
failed(struct host *h, const struct err *e)
{
	uint64_t suppressed;

	snprintf(h->rows_error, sizeof(h->rows_error), "%s", e->text);
	h->bad_rows.every_ms = QUIET_MS;
	if (log_sample(&h->bad_rows, clk_mono_ms(), &suppressed))
		log_line(LOG_WARN, "queen-s3",
			"the sinks of tenants cannot be read; what runs goes on",
			"error=%s suppressed=%llu", log_quote(e->text),
			(unsigned long long)suppressed);
}

static void
on_rows(void *arg, const struct cell_sink *rows, size_t n, const struct err *e)
{
	struct host *h = arg;

	h->reading = NULL;
	if (h->stopping)
		return;
	loop_timer_start(&h->rows_timer, ROWS_MS);
	if (e)
		failed(h, e);
	else
		take(h, rows, n);
	if (!h->begun)
		host_begin(h);
}

void
host_rows_read(void *arg)
{
	struct host *h = arg;

	if (!h->reading)
		h->reading = cell_sinks(h->x->cell, on_rows, h);
}

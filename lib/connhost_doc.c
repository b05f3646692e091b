/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Documents to units.  A document is looked at once per version; what cannot
 * run is known before a process is made for it.  A read that fails changes
 * nothing that runs.
 */
#include <string.h>

#include "arena.h"
#include "clk.h"
#include "connhost_int.h"
#include "jspan.h"
#include "pgbin.h"
#include "pgconn.h"

enum { QUIET_MS = 60000 };

static const struct pgstmt STMT_ALL = { "connector_all",
	"select key, version, document from queen.connector_all_v1()" };

/* `kind` of a document that may not parse; an empty span when there is none. */
static struct span
raw_kind(struct span json, struct arena *a)
{
	struct span key, kind = SPAN_ZERO;
	struct jspan_val v;
	struct jspan j;

	jspan_open(&j, json);
	if (!jspan_enter_object(&j))
		return kind;
	while (jspan_next_key(&j, a, &key) && jspan_take(&j, &v))
		if (span_is(key, "kind") && v.type == JSPAN_STRING &&
			!jspan_text(&v, a, &kind))
			break;
	return kind;
}

/* What is no connector of any kind is shown by the sources' program. */
static bool
is_ours(const struct connhost *h, struct span kind, bool *known)
{
	bool source = span_is(kind, "source"), sink = span_is(kind, "sink");

	*known = source || sink;
	return h->conf.kind == CONNDOC_SINK ? sink : !sink;
}

static void
set_print(struct unit *u, const struct conndoc *d)
{
	buf_reset(&u->print);
	buf_printf(&u->print, "%.*s\n%.*s\n%d%d %.*s", SPAN_ARG(d->updated_at),
		SPAN_ARG(d->resync_requested_at), d->deleting, d->drop_slot,
		SPAN_ARG(d->delete_requested_at));
}

static void
set_bad(struct unit *u, const char *code, const struct err *e)
{
	u->want = UNIT_BAD;
	u->code = code;
	buf_reset(&u->why);
	buf_puts(&u->why, e->text);
	buf_putc(&u->why, '\0');
}

/* Does its password open here? */
static bool
opens(const struct unit *u, const struct conndoc *d, struct err *e)
{
	struct buf clear = BUF_ZERO;
	bool ok = conndoc_unseal(d, &u->tenant, u->name, u->host->conf.seal,
			  &clear, e) == 0;

	buf_wipe(&clear);
	return ok;
}

static void
judge(struct unit *u)
{
	struct arena a = ARENA_ZERO;
	struct err e = ERR_ZERO;
	struct conndoc *d;

	if (conndoc_parse_stored(buf_span(&u->doc), &a, &d, &e) != 0) {
		buf_reset(&u->print);
		buf_printf(&u->print, "version %lld", (long long)u->version);
		set_bad(u, "config", &e);
	} else {
		set_print(u, d);
		if (!d->enabled &&
			!(d->deleting && u->host->conf.kind == CONNDOC_SOURCE))
			u->want = UNIT_REST;
		else if (opens(u, d, &e))
			u->want = UNIT_RUN;
		else
			set_bad(u, "unseal", &e);
	}
	arena_fini(&a);
}

static void
take_row(struct connhost *h, const PGresult *res, int i, struct arena *a)
{
	struct span key = pgbin_bytes(res, i, 0), name;
	int64_t version = pgbin_i64(res, i, 1);
	struct span doc = pgbin_bytes(res, i, 2);
	uint64_t suppressed;
	struct qid tenant;
	struct unit *u;
	bool known;

	if (!conndoc_key_parse(key, &tenant, &name)) {
		h->bad_key.every_ms = QUIET_MS;
		if (log_sample(&h->bad_key, clk_mono_ms(), &suppressed))
			log_line(LOG_WARN, "connectors",
				"a key that names no connector is passed over",
				"bytes=%zu suppressed=%llu", key.n,
				(unsigned long long)suppressed);
		return;
	}
	if (!is_ours(h, raw_kind(doc, a), &known))
		return;
	u = connhost_unit_get(h, key);
	u->seen = true;
	u->kind_known = known;
	if (u->version == version && u->want != UNIT_GONE)
		return;
	u->version = version;
	buf_reset(&u->doc);
	buf_put_span(&u->doc, doc);
	judge(u);
}

static void
take_all(struct connhost *h, const PGresult *res)
{
	struct arena a = ARENA_ZERO;
	struct unit *u, *next;

	TAILQ_FOREACH (u, &h->list, link)
		u->seen = false;
	for (int i = 0; i < PQntuples(res); i++) {
		take_row(h, res, i, &a);
		arena_reset(&a);
	}
	arena_fini(&a);
	for (u = TAILQ_FIRST(&h->list); u; u = next) {
		next = TAILQ_NEXT(u, link);
		if (!u->seen)
			u->want = UNIT_GONE;
		connhost_unit_step(u);
	}
}

static void
failed(struct connhost *h, const struct err *e)
{
	uint64_t suppressed;

	h->documents_why = *e;
	h->bad_read.every_ms = QUIET_MS;
	if (log_sample(&h->bad_read, clk_mono_ms(), &suppressed))
		log_line(LOG_WARN, "connectors",
			"the documents cannot be read; what runs goes on",
			"error=%s suppressed=%llu", log_quote(e->text),
			(unsigned long long)suppressed);
}

static void
on_all(void *arg, const PGresult *res, const struct err *e)
{
	struct connhost *h = arg;

	h->reading = false;
	if (h->stopping)
		return;
	if (e) {
		failed(h, e);
	} else {
		h->documents_why = (struct err)ERR_ZERO;
		h->documents_read = true;
		take_all(h, res);
	}
	if (h->read_again) {
		h->read_again = false;
		connhost_doc_read(h);
	}
}

void
connhost_doc_read(struct connhost *h)
{
	if (h->reading) {
		h->read_again = true;
		return;
	}
	h->reading = true;
	pgconn_call(h->conn, &STMT_ALL, false, NULL, on_all, h);
}

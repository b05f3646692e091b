/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The canonical form: every default filled in, what is optional and absent
 * left out.  It reads back as the same document.
 */
#include "arena.h"
#include "buf.h"
#include "conndoc_int.h"
#include "jspan.h"
#include "jwrite.h"

const char *
conndoc_kind_word(enum conndoc_kind k)
{
	return conndoc_kinds[k];
}

const char *
conndoc_ssl_word(enum conndoc_ssl s)
{
	return conndoc_ssls[s];
}

const char *
conndoc_mode_word(enum conndoc_mode m)
{
	return conndoc_modes[m];
}

enum conndoc_takeover
conndoc_takeover_in(const struct conndoc *d, struct span cell_tag)
{
	return d->takeover_cell.n && span_eq(d->takeover_cell, cell_tag)
		       ? d->takeover
		       : CONNDOC_STAY;
}

static struct span
named(const char *prefix, struct span name, char from, char to, struct arena *a)
{
	struct span s =
		arena_printf(a, "%s%.*s%c", prefix, SPAN_ARG(name), '\0');
	char *p = arena_cstr(a, s);

	for (size_t i = 0; p[i]; i++)
		if (p[i] == from)
			p[i] = to;
	return span_of(p);
}

struct span
conndoc_slot(const struct conndoc_source *d, struct span name, struct arena *a)
{
	return d->slot.n ? d->slot : named("queen_", name, '-', '_', a);
}

struct span
conndoc_publication(
	const struct conndoc_source *d, struct span name, struct arena *a)
{
	return d->publication.n ? d->publication
				: named("queen_", name, '-', '_', a);
}

struct span
conndoc_group(const struct conndoc_sink *d, struct span name, struct arena *a)
{
	return d->consumer_group.n ? d->consumer_group
				   : named("pg-", name, '-', '-', a);
}

/* ---- parts ---- */

static void
text(struct jwrite *w, const char *key, struct span s)
{
	if (s.p)
		jwrite_kv_str(w, key, s);
}

static void
list(struct jwrite *w, const char *key, const struct conndoc_list *l)
{
	if (!l->p)
		return;
	jwrite_key(w, key);
	jwrite_array(w);
	for (size_t i = 0; i < l->n; i++)
		jwrite_str(w, l->p[i]);
	jwrite_end(w);
}

static void
connection(
	struct jwrite *w, const struct conndoc_conn *c, enum conndoc_form form)
{
	jwrite_key(w, "connection");
	jwrite_object(w);
	jwrite_kv_str(w, "host", c->host);
	jwrite_kv_i64(w, "port", c->port);
	jwrite_kv_str(w, "database", c->database);
	jwrite_kv_str(w, "user", c->user);
	if (form == CONNDOC_STORED && c->password_sealed.n)
		jwrite_kv_str(w, "passwordSealed", c->password_sealed);
	jwrite_kv_cstr(w, "sslMode", conndoc_ssls[c->ssl]);
	text(w, "sslRootCert", c->ssl_root_cert);
	jwrite_kv_i64(w, "connectTimeoutMs", c->connect_timeout_ms);
	if (form == CONNDOC_SHOWN)
		jwrite_kv_bool(w, "passwordSet", c->password_sealed.n > 0);
	jwrite_end(w);
}

static void
table(struct jwrite *w, const struct conndoc_table *t)
{
	jwrite_object(w);
	jwrite_kv_str(w, "table", t->table.text);
	jwrite_kv_str(w, "queue", t->queue);
	if (t->by_given && t->by == CONNDOC_BY_COLUMNS)
		list(w, "partitionBy", &t->columns);
	else if (t->by_given)
		jwrite_kv_cstr(w, "partitionBy",
			t->by == CONNDOC_BY_KEY ? "key" : "single");
	jwrite_end(w);
}

static void
source(struct jwrite *w, const struct conndoc_source *s)
{
	jwrite_key(w, "source");
	jwrite_object(w);
	jwrite_key(w, "tables");
	jwrite_array(w);
	for (size_t i = 0; i < s->tables_n; i++)
		table(w, &s->tables[i]);
	jwrite_end(w);
	text(w, "slot", s->slot);
	text(w, "publication", s->publication);
	jwrite_kv_bool(w, "managePublication", s->manage_publication);
	jwrite_kv_cstr(w, "snapshot", conndoc_snapshots[s->snapshot]);
	jwrite_kv_i64(w, "snapshotChunkRows", s->snapshot_chunk_rows);
	jwrite_kv_i64(w, "maxBundleMessages", s->max_bundle_messages);
	jwrite_kv_i64(w, "maxBundleBytes", s->max_bundle_bytes);
	jwrite_kv_i64(w, "lingerMs", s->linger_ms);
	jwrite_kv_i64(w, "heartbeatSeconds", s->heartbeat_s);
	jwrite_kv_cstr(w, "onTruncate", conndoc_truncates[s->on_truncate]);
	jwrite_end(w);
}

static void
metadata(struct jwrite *w, const struct conndoc_sink *s)
{
	if (!s->metadata_given)
		return;
	jwrite_key(w, "metadata");
	jwrite_object(w);
	for (size_t i = 0; i < CONNDOC_METAS; i++)
		text(w, conndoc_metas[i], s->metadata[i]);
	jwrite_end(w);
}

static void
sink(struct jwrite *w, const struct conndoc_sink *s)
{
	jwrite_key(w, "sink");
	jwrite_object(w);
	jwrite_kv_str(w, "queue", s->queue);
	jwrite_kv_str(w, "table", s->table.text);
	jwrite_kv_cstr(w, "mode", conndoc_modes[s->mode]);
	text(w, "consumerGroup", s->consumer_group);
	jwrite_kv_cstr(w, "subscriptionMode", conndoc_starts[s->start]);
	list(w, "key", &s->key);
	text(w, "statement", s->statement);
	list(w, "params", &s->params);
	metadata(w, s);
	jwrite_kv_i64(w, "batch", s->batch);
	jwrite_kv_i64(w, "workers", s->workers);
	jwrite_kv_i64(w, "leaseSeconds", s->lease_s);
	jwrite_kv_i64(w, "maxAttempts", s->max_attempts);
	jwrite_kv_str(w, "progressTable", s->progress_table.text);
	jwrite_kv_bool(w, "createProgressTable", s->create_progress_table);
	jwrite_end(w);
}

static void
requests(struct jwrite *w, const struct conndoc *d)
{
	if (d->takeover != CONNDOC_STAY) {
		jwrite_key(w, "takeover");
		jwrite_object(w);
		jwrite_kv_cstr(w, "action", conndoc_takeovers[d->takeover]);
		jwrite_kv_str(w, "cell", d->takeover_cell);
		jwrite_kv_str(w, "requestedAt", d->takeover_requested_at);
		jwrite_end(w);
	}
	if (d->deleting) {
		jwrite_key(w, "deleting");
		jwrite_object(w);
		jwrite_kv_bool(w, "dropSlot", d->drop_slot);
		jwrite_kv_str(w, "requestedAt", d->delete_requested_at);
		jwrite_end(w);
	}
}

void
conndoc_write(const struct conndoc *d, enum conndoc_form form, struct jwrite *w)
{
	BUG(form == CONNDOC_STORED && d->conn.password.n);
	jwrite_kv_cstr(w, "kind", conndoc_kinds[d->kind]);
	jwrite_kv_bool(w, "enabled", d->enabled);
	connection(w, &d->conn, form);
	if (d->kind == CONNDOC_SOURCE)
		source(w, &d->source);
	else
		sink(w, &d->sink);
	text(w, "updatedAt", d->updated_at);
	text(w, "resyncRequestedAt", d->resync_requested_at);
	requests(w, d);
}

/* ---- what does not parse ---- */

static bool
is_secret(struct span key)
{
	return span_is(key, "password") || span_is(key, "passwordSealed") ||
	       span_is(key, "url") || span_is(key, "passwordSet");
}

static void
members(struct jwrite *w, struct span json, struct arena *a, bool top,
	bool *set)
{
	struct jspan_val v;
	struct jspan j;
	struct span key;

	jspan_open(&j, json);
	if (jspan_peek(&j) != JSPAN_OBJECT)
		return;
	jspan_enter_object(&j);
	while (jspan_next_key(&j, a, &key) && jspan_take(&j, &v)) {
		if (is_secret(key)) {
			/* a string with its quotes has three bytes or more */
			*set = *set ||
			       (v.type == JSPAN_STRING &&
				       !span_is(key, "url") && v.raw.n > 2);
			continue;
		}
		jwrite_key_span(w, key);
		if (!top || !span_is(key, "connection") ||
			v.type != JSPAN_OBJECT) {
			jwrite_raw(w, v.raw);
			continue;
		}
		jwrite_object(w);
		members(w, v.raw, a, false, set);
		jwrite_kv_bool(w, "passwordSet", *set);
		jwrite_end(w);
	}
}

void
conndoc_write_redacted(struct jwrite *w, struct span json, struct arena *a)
{
	bool set = false;

	if (jspan_valid(json, &(const char *){ NULL }, &(size_t){ 0 }))
		members(w, json, a, true, &set);
}

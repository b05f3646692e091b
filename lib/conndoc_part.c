/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The fields of a connection, a source and a sink.  Numbers are checked
 * against their range while they are read; what one field has to do with
 * another is for conndoc_rule.c.
 */
#include <string.h>

#include "arena.h"
#include "conndoc_int.h"
#include "jspan.h"

const char *const conndoc_ssls[] = { "disable", "prefer", "require",
	"verify-full", NULL };
const char *const conndoc_snapshots[] = { "initial", "never", NULL };
const char *const conndoc_truncates[] = { "skip", "emit", NULL };
const char *const conndoc_modes[] = { "append", "upsert", "cdc", "sql", NULL };
const char *const conndoc_starts[] = { "all", "new", NULL };
const char *const conndoc_metas[] = { "partition", "partitionId", "offset",
	"transactionId", "createdAt", "payload", NULL };

#define COUNT(table) (sizeof(table) / sizeof((table)[0]))
#define TEXT(field, at_)                                                       \
	{                                                                      \
		.name = field, .type = CONNDOC_TEXT, .at = (at_)               \
	}
#define BOOL(field, at_)                                                       \
	{                                                                      \
		.name = field, .type = CONNDOC_BOOL, .at = (at_)               \
	}
#define TEXTS(field, at_)                                                      \
	{                                                                      \
		.name = field, .type = CONNDOC_TEXTS, .at = (at_)              \
	}
#define INT(field, at_, lowest, highest)                                       \
	{                                                                      \
		.name = field, .type = CONNDOC_INT, .at = (at_),               \
		.min = (lowest), .max = (highest)                              \
	}
#define WORD(field, at_, list)                                                 \
	{                                                                      \
		.name = field, .type = CONNDOC_WORD, .at = (at_),              \
		.words = (list)                                                \
	}
#define OWN(field, at_, fn)                                                    \
	{                                                                      \
		.name = field, .type = CONNDOC_OWN, .at = (at_), .own = (fn)   \
	}

/* True when the field is there; else refused as missing. */
static bool
needs(struct conndoc_read *rd, struct span path, uint64_t seen,
	const struct conndoc_field *f, size_t i)
{
	if (seen >> i & 1)
		return true;
	return conndoc_refuse(rd,
		arena_printf(rd->a, "%.*s.%s", SPAN_ARG(path), f[i].name),
		"is missing");
}

static bool
take_text(struct conndoc_read *rd, struct jspan *j, struct span path,
	struct span *out)
{
	struct jspan_val v;

	if (!jspan_take(j, &v))
		return false;
	if (v.type != JSPAN_STRING || !jspan_text(&v, rd->a, out))
		return conndoc_refuse(rd, path, "must be a string");
	if (out->n && memchr(out->p, 0, out->n))
		return conndoc_refuse(rd, path, "holds a zero byte");
	return true;
}

/* ---- connection ---- */

/* Into the arena, so that conndoc_wipe may write there. */
static bool
read_password(
	struct conndoc_read *rd, struct jspan *j, struct span path, void *base)
{
	struct conndoc_conn *c = base;
	struct span s;

	if (!take_text(rd, j, path, &s))
		return false;
	c->password = arena_dup(rd->a, s);
	c->password_given = true;
	return true;
}

static bool
read_url(struct conndoc_read *rd, struct jspan *j, struct span path, void *base)
{
	(void)base;
	return take_text(rd, j, path, &rd->url);
}

#define C(member) offsetof(struct conndoc_conn, member)
static const struct conndoc_field conn_fields[] = {
	{ .name = "url",
		.type = CONNDOC_OWN,
		.own = read_url,
		.side = CONNDOC_CLIENT },
	TEXT("host", C(host)),
	INT("port", C(port), 1, 65535),
	TEXT("database", C(database)),
	TEXT("user", C(user)),
	{ .name = "password",
		.type = CONNDOC_OWN,
		.own = read_password,
		.side = CONNDOC_CLIENT },
	{ .name = "passwordSealed",
		.type = CONNDOC_TEXT,
		.at = C(password_sealed),
		.side = CONNDOC_QUEEND },
	{ .name = "passwordSet", .side = CONNDOC_READS },
	WORD("sslMode", C(ssl), conndoc_ssls),
	TEXT("sslRootCert", C(ssl_root_cert)),
	INT("connectTimeoutMs", C(connect_timeout_ms), 1000, 120000),
};
#undef C

bool
conndoc_read_conn(
	struct conndoc_read *rd, struct jspan *j, struct span path, void *base)
{
	uint64_t seen;

	return conndoc_object(
		rd, j, path, conn_fields, COUNT(conn_fields), base, &seen);
}

/* ---- source ---- */

static bool
read_partition_by(
	struct conndoc_read *rd, struct jspan *j, struct span path, void *base)
{
	static const struct conndoc_field list = TEXTS("", 0);
	struct conndoc_table *t = base;
	struct jspan_val v;
	struct span s;

	t->by_given = true;
	if (jspan_peek(j) == JSPAN_ARRAY) {
		t->by = CONNDOC_BY_COLUMNS;
		return conndoc_value(rd, j, path, &list, &t->columns);
	}
	if (!jspan_take(j, &v))
		return false;
	if (v.type == JSPAN_STRING && jspan_text(&v, rd->a, &s)) {
		t->by = span_is(s, "single") ? CONNDOC_BY_SINGLE
					     : CONNDOC_BY_KEY;
		if (span_is(s, "key") || span_is(s, "single"))
			return true;
	}
	return conndoc_refuse(
		rd, path, "must be key, single, or an array of column names");
}

#define T(member) offsetof(struct conndoc_table, member)
static const struct conndoc_field table_fields[] = {
	TEXT("table", T(table.text)),
	TEXT("queue", T(queue)),
	OWN("partitionBy", 0, read_partition_by),
};
#undef T

static bool
read_table(struct conndoc_read *rd, struct jspan *j, struct span path,
	struct conndoc_table *t)
{
	uint64_t seen;

	return conndoc_object(rd, j, path, table_fields, COUNT(table_fields), t,
		       &seen) &&
	       needs(rd, path, seen, table_fields, 0) &&
	       needs(rd, path, seen, table_fields, 1);
}

static bool
read_tables(
	struct conndoc_read *rd, struct jspan *j, struct span path, void *base)
{
	struct conndoc_source *s = base;
	size_t cap = 0;

	if (jspan_peek(j) != JSPAN_ARRAY)
		return conndoc_refuse(
			rd, path, "must be an array of {\"table\", \"queue\"}");
	jspan_enter_array(j);
	while (jspan_next_item(j)) {
		if (s->tables_n == CONNDOC_TABLES_MAX)
			return conndoc_refuse(rd, path,
				"holds more than %d tables; make a second "
				"connector for the rest",
				CONNDOC_TABLES_MAX);
		s->tables = arena_grown(rd->a, s->tables, s->tables_n, &cap,
			sizeof(*s->tables));
		memset(&s->tables[s->tables_n], 0, sizeof(*s->tables));
		if (!read_table(rd, j, conndoc_at(rd, path, s->tables_n),
			    &s->tables[s->tables_n]))
			return false;
		s->tables_n++;
	}
	return true;
}

#define S(member) offsetof(struct conndoc_source, member)
static const struct conndoc_field source_fields[] = {
	OWN("tables", 0, read_tables),
	TEXT("slot", S(slot)),
	TEXT("publication", S(publication)),
	BOOL("managePublication", S(manage_publication)),
	WORD("snapshot", S(snapshot), conndoc_snapshots),
	INT("snapshotChunkRows", S(snapshot_chunk_rows), 100, 100000),
	INT("maxBundleMessages", S(max_bundle_messages), 1, 50000),
	INT("maxBundleBytes", S(max_bundle_bytes), 65536, 67108864),
	INT("lingerMs", S(linger_ms), 0, 5000),
	INT("heartbeatSeconds", S(heartbeat_s), 1, 3600),
	WORD("onTruncate", S(on_truncate), conndoc_truncates),
};
#undef S

bool
conndoc_read_source(
	struct conndoc_read *rd, struct jspan *j, struct span path, void *base)
{
	uint64_t seen;

	return conndoc_object(rd, j, path, source_fields, COUNT(source_fields),
		       base, &seen) &&
	       needs(rd, path, seen, source_fields, 0);
}

/* ---- sink ---- */

static bool
read_metadata(
	struct conndoc_read *rd, struct jspan *j, struct span path, void *base)
{
	struct conndoc_field f[CONNDOC_METAS] = { { .name = NULL } };
	struct conndoc_sink *s = base;
	uint64_t seen;

	for (size_t i = 0; i < CONNDOC_METAS; i++) {
		f[i].name = conndoc_metas[i];
		f[i].type = CONNDOC_TEXT;
		f[i].at = i * sizeof(s->metadata[0]);
	}
	s->metadata_given = true;
	return conndoc_object(
		rd, j, path, f, CONNDOC_METAS, s->metadata, &seen);
}

enum { QUEUE, TABLE, MODE };
#define S(member) offsetof(struct conndoc_sink, member)
static const struct conndoc_field sink_fields[] = {
	[QUEUE] = TEXT("queue", S(queue)),
	[TABLE] = TEXT("table", S(table.text)),
	[MODE] = WORD("mode", S(mode), conndoc_modes),
	TEXT("consumerGroup", S(consumer_group)),
	WORD("subscriptionMode", S(start), conndoc_starts),
	TEXTS("key", S(key)),
	TEXT("statement", S(statement)),
	TEXTS("params", S(params)),
	OWN("metadata", 0, read_metadata),
	INT("batch", S(batch), 1, 10000),
	INT("workers", S(workers), 1, 32),
	INT("leaseSeconds", S(lease_s), 5, 3600),
	INT("maxAttempts", S(max_attempts), 1, 100),
	TEXT("progressTable", S(progress_table.text)),
	BOOL("createProgressTable", S(create_progress_table)),
};
#undef S

bool
conndoc_read_sink(
	struct conndoc_read *rd, struct jspan *j, struct span path, void *base)
{
	uint64_t seen;

	return conndoc_object(rd, j, path, sink_fields, COUNT(sink_fields),
		       base, &seen) &&
	       needs(rd, path, seen, sink_fields, QUEUE) &&
	       needs(rd, path, seen, sink_fields, TABLE) &&
	       needs(rd, path, seen, sink_fields, MODE);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the fields of a connector may say, alone and together.  The same for
 * a client's document and for a stored one.
 */
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <string.h>

#include "arena.h"
#include "conndoc_int.h"

enum {
	QUEUE_MAX_BYTES = 128,
	STATEMENT_MAX_BYTES = 65536,
	HOST_MAX_BYTES = 253,
	NAME_MAX_BYTES = 63
};

static bool
is_lower(char c)
{
	return c >= 'a' && c <= 'z';
}

static bool
is_digit(char c)
{
	return c >= '0' && c <= '9';
}

bool
conndoc_name_ok(struct span name)
{
	if (name.n == 0 || name.n > CONNDOC_NAME_MAX)
		return false;
	for (size_t i = 0; i < name.n; i++) {
		char c = name.p[i];

		if (!is_lower(c) && !is_digit(c) &&
			(i == 0 || (c != '_' && c != '-')))
			return false;
	}
	return true;
}

static bool
ident_ok(struct span s)
{
	if (s.n == 0 || s.n > CONNDOC_IDENT_MAX)
		return false;
	for (size_t i = 0; i < s.n; i++) {
		char c = s.p[i];

		if (!is_lower(c) && !(c >= 'A' && c <= 'Z') && c != '_' &&
			(i == 0 || (!is_digit(c) && c != '$')))
			return false;
	}
	return true;
}

static bool
ident(struct conndoc_read *rd, struct span path, struct span s)
{
	return ident_ok(s) ||
	       conndoc_refuse(rd, path,
		       "is no column name: 1 to %d of A-Z a-z 0-9 _ $, the "
		       "first no digit and no $",
		       CONNDOC_IDENT_MAX);
}

/* C0, DEL, C1. */
static bool
has_control(struct span s)
{
	for (size_t i = 0; i < s.n; i++) {
		unsigned char c = (unsigned char)s.p[i];

		if (c < 0x20 || c == 0x7f)
			return true;
		if (c == 0xc2 && i + 1 < s.n &&
			(unsigned char)s.p[i + 1] < 0xa0)
			return true;
	}
	return false;
}

static bool
text(struct conndoc_read *rd, struct span path, struct span s, size_t max_bytes)
{
	if (s.n == 0)
		return conndoc_refuse(rd, path, "is empty; it is required");
	if (s.n > max_bytes)
		return conndoc_refuse(
			rd, path, "is longer than %zu bytes", max_bytes);
	if (has_control(s))
		return conndoc_refuse(
			rd, path, "holds a control character; remove it");
	return true;
}

static bool
repeats(const struct conndoc_list *l, size_t i)
{
	for (size_t k = 0; k < i; k++)
		if (span_eq(l->p[k], l->p[i]))
			return true;
	return false;
}

static bool
columns(struct conndoc_read *rd, struct span path, const struct conndoc_list *l)
{
	if (l->n == 0)
		return conndoc_refuse(
			rd, path, "is empty; name a column, or leave it out");
	for (size_t i = 0; i < l->n; i++) {
		struct span at = conndoc_at(rd, path, i);

		if (!ident(rd, at, l->p[i]))
			return false;
		if (repeats(l, i))
			return conndoc_refuse(
				rd, at, "names a column twice; remove it");
	}
	return true;
}

static bool
qualified(struct conndoc_read *rd, struct span path, struct conndoc_name *n,
	bool schema_needed)
{
	const char *dot = n->text.n ? memchr(n->text.p, '.', n->text.n) : NULL;

	n->schema = SPAN_LIT("public");
	n->name = n->text;
	if (dot) {
		size_t len = (size_t)(dot - n->text.p);

		n->schema = span_make(n->text.p, len);
		n->name = span_make(dot + 1, n->text.n - len - 1);
	}
	if (ident_ok(n->schema) && ident_ok(n->name) && (dot || !schema_needed))
		return true;
	return conndoc_refuse(rd, path,
		"must be %s, each 1 to %d of A-Z a-z 0-9 _ $, the first no "
		"digit and no $",
		schema_needed ? "schema.name" : "schema.name or name",
		CONNDOC_IDENT_MAX);
}

static bool
same_table(const struct conndoc_name *a, const struct conndoc_name *b)
{
	return span_eq(a->schema, b->schema) && span_eq(a->name, b->name);
}

/* ---- connection ---- */

/* White space of Unicode beyond ASCII: U+0085, A0, 1680, 2000-200A, ... */
static bool
has_space(struct span s)
{
	static const char *const spaces[] = { " ", "\u00a0", "\u1680", "\u2028",
		"\u2029", "\u202f", "\u205f", "\u3000" };

	for (size_t i = 0; i < sizeof(spaces) / sizeof(spaces[0]); i++)
		if (s.n && memmem(s.p, s.n, spaces[i], strlen(spaces[i])))
			return true;
	for (size_t i = 0; i + 2 < s.n; i++)
		if (memcmp(&s.p[i], "\xe2\x80", 2) == 0 &&
			(unsigned char)s.p[i + 2] <= 0x8a)
			return true;
	return false;
}

static bool
host(struct conndoc_read *rd, struct span *h)
{
	struct span path = SPAN_LIT("connection.host");
	static const char wrong[] = "/,@[]";

	if (h->n > 2 && h->p[0] == '[' && h->p[h->n - 1] == ']')
		*h = span_make(h->p + 1, h->n - 2);
	if (h->n && h->p[0] == '/')
		return conndoc_refuse(rd, path,
			"is a Unix socket; a connector needs a host name or "
			"an IP address");
	if (!text(rd, path, *h, HOST_MAX_BYTES))
		return false;
	if (has_space(*h))
		return conndoc_refuse(rd, path, "holds white space; remove it");
	for (const char *c = wrong; *c; c++)
		if (memchr(h->p, *c, h->n))
			return conndoc_refuse(rd, path,
				"holds a '%c'; write one host name or IP "
				"address",
				*c);
	return true;
}

/* An encrypted block would otherwise ask the terminal for its password. */
static int
no_password(char *out, int n, int rwflag, void *arg)
{
	(void)out;
	(void)n;
	(void)rwflag;
	(void)arg;
	return -1;
}

static bool
is_pem(struct span pem)
{
	BIO *b = pem.n > INT32_MAX ? NULL : BIO_new_mem_buf(pem.p, (int)pem.n);
	X509 *x = b ? PEM_read_bio_X509(b, NULL, no_password, NULL) : NULL;
	bool good = x;

	X509_free(x);
	BIO_free(b);
	ERR_clear_error();
	return good;
}

static bool
connection(struct conndoc_read *rd, struct conndoc_conn *c)
{
	struct span cert = SPAN_LIT("connection.sslRootCert");

	if (!host(rd, &c->host) ||
		!text(rd, SPAN_LIT("connection.database"), c->database,
			NAME_MAX_BYTES) ||
		!text(rd, SPAN_LIT("connection.user"), c->user, NAME_MAX_BYTES))
		return false;
	if (!c->ssl_root_cert.p)
		return true;
	if (c->ssl != CONNDOC_VERIFY_FULL)
		return conndoc_refuse(rd, cert,
			"is only for sslMode verify-full; set that, or remove "
			"the certificate");
	return (c->ssl_root_cert.n && is_pem(c->ssl_root_cert)) ||
	       conndoc_refuse(rd, cert,
		       "holds no certificate; put the PEM text itself here");
}

/* ---- source ---- */

static bool
slot(struct conndoc_read *rd, struct span path, struct span s)
{
	bool good = s.n <= CONNDOC_IDENT_MAX;

	if (!s.p)
		return true;
	for (size_t i = 0; i < s.n; i++)
		good = good && (is_lower(s.p[i]) || s.p[i] == '_' ||
				       (i && is_digit(s.p[i])));
	return (good && s.n) ||
	       conndoc_refuse(rd, path,
		       "must be 1 to %d of a-z 0-9 _, the first no digit",
		       CONNDOC_IDENT_MAX);
}

static bool
table(struct conndoc_read *rd, struct conndoc_source *s, size_t i)
{
	struct span path = conndoc_at(rd, SPAN_LIT("source.tables"), i);
	struct conndoc_table *t = &s->tables[i];
	struct span at = arena_printf(rd->a, "%.*s.table", SPAN_ARG(path));

	if (!qualified(rd, at, &t->table, false) ||
		!text(rd, arena_printf(rd->a, "%.*s.queue", SPAN_ARG(path)),
			t->queue, QUEUE_MAX_BYTES))
		return false;
	for (size_t k = 0; k < i; k++)
		if (same_table(&t->table, &s->tables[k].table))
			return conndoc_refuse(rd, at,
				"is source.tables[%zu] again; remove one", k);
	at = arena_printf(rd->a, "%.*s.partitionBy", SPAN_ARG(path));
	if (t->by == CONNDOC_BY_COLUMNS)
		return columns(rd, at, &t->columns);
	return true;
}

static bool
source(struct conndoc_read *rd, struct conndoc_source *s)
{
	if (s->tables_n == 0)
		return conndoc_refuse(rd, SPAN_LIT("source.tables"),
			"is empty; name at least one table");
	for (size_t i = 0; i < s->tables_n; i++)
		if (!table(rd, s, i))
			return false;
	for (size_t i = 0; i < s->tables_n; i++)
		if (s->on_truncate == CONNDOC_EMIT &&
			s->tables[i].by != CONNDOC_BY_SINGLE)
			return conndoc_refuse(rd, SPAN_LIT("source.onTruncate"),
				"emit needs partitionBy single in every table; "
				"source.tables[%zu] has another",
				i);
	return slot(rd, SPAN_LIT("source.slot"), s->slot) &&
	       slot(rd, SPAN_LIT("source.publication"), s->publication);
}

/* ---- sink ---- */

static bool
only_for(struct conndoc_read *rd, struct span path, bool given, bool allowed,
	const char *modes)
{
	return !given || allowed ||
	       conndoc_refuse(
		       rd, path, "is only for mode %s; remove it", modes);
}

static bool
params(struct conndoc_read *rd, const struct conndoc_list *l)
{
	struct conndoc_param p;
	const char *why;

	for (size_t i = 0; i < l->n; i++)
		if (!conndoc_param_parse(l->p[i], rd->a, &p, &why))
			return conndoc_refuse(rd,
				conndoc_at(rd, SPAN_LIT("sink.params"), i),
				"%s; write $, $.a.b, $[\"key\"][0] or "
				"@partition, @partitionId, @offset, "
				"@transactionId, @createdAt",
				why);
	return true;
}

static bool
statement(struct conndoc_read *rd, const struct conndoc_sink *s)
{
	struct span at = SPAN_LIT("sink.statement"), st = s->statement;

	if (s->mode != CONNDOC_SQL)
		return true;
	while (st.n && memchr(" \t\r\n\f\v", *st.p, 6))
		st = span_make(st.p + 1, st.n - 1);
	if (st.n == 0)
		return conndoc_refuse(rd, at,
			"is missing or blank; mode sql needs the statement to "
			"run for each message");
	if (s->statement.n > STATEMENT_MAX_BYTES)
		return conndoc_refuse(
			rd, at, "is longer than %d bytes", STATEMENT_MAX_BYTES);
	if (!s->params.p)
		return conndoc_refuse(rd, SPAN_LIT("sink.params"),
			"is missing; mode sql needs the values of $1 and on, "
			"or []");
	return params(rd, &s->params);
}

static bool
metadata(struct conndoc_read *rd, const struct conndoc_sink *s)
{
	for (size_t i = 0; i < CONNDOC_METAS; i++) {
		struct span at = arena_printf(
			rd->a, "sink.metadata.%s", conndoc_metas[i]);

		if (!s->metadata[i].p)
			continue;
		if (!ident(rd, at, s->metadata[i]))
			return false;
		for (size_t k = 0; k < i; k++)
			if (s->metadata[k].p &&
				span_eq(s->metadata[k], s->metadata[i]))
				return conndoc_refuse(rd, at,
					"names the column of %s again; "
					"each needs its own",
					conndoc_metas[k]);
	}
	return true;
}

static bool
sink(struct conndoc_read *rd, struct conndoc_sink *s)
{
	bool keyed = s->mode == CONNDOC_UPSERT || s->mode == CONNDOC_CDC;
	bool sql = s->mode == CONNDOC_SQL;
	bool plain = s->mode == CONNDOC_APPEND || s->mode == CONNDOC_UPSERT;
	struct span progress = SPAN_LIT("sink.progressTable");

	if (!text(rd, SPAN_LIT("sink.queue"), s->queue, QUEUE_MAX_BYTES) ||
		!qualified(rd, SPAN_LIT("sink.table"), &s->table, false) ||
		!qualified(rd, progress, &s->progress_table, true))
		return false;
	if (same_table(&s->table, &s->progress_table))
		return conndoc_refuse(rd, progress,
			"is sink.table; progress needs a table of its own");
	if (s->consumer_group.p && !text(rd, SPAN_LIT("sink.consumerGroup"),
					   s->consumer_group, QUEUE_MAX_BYTES))
		return false;
	return only_for(rd, SPAN_LIT("sink.key"), s->key.p, keyed,
		       "upsert and cdc") &&
	       (!s->key.p || columns(rd, SPAN_LIT("sink.key"), &s->key)) &&
	       only_for(rd, SPAN_LIT("sink.statement"), s->statement.p, sql,
		       "sql") &&
	       only_for(rd, SPAN_LIT("sink.params"), s->params.p, sql, "sql") &&
	       statement(rd, s) &&
	       only_for(rd, SPAN_LIT("sink.metadata"), s->metadata_given, plain,
		       "append and upsert") &&
	       metadata(rd, s);
}

bool
conndoc_check(struct conndoc_read *rd, struct conndoc *d)
{
	return connection(rd, &d->conn) &&
	       (d->kind == CONNDOC_SINK ? sink(rd, &d->sink)
					: source(rd, &d->source));
}

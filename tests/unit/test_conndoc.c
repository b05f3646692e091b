/* SPDX-License-Identifier: Apache-2.0 */
#include "conndoc.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "arena.h"
#include "buf.h"
#include "err.h"
#include "jwrite.h"
#include "qid.h"
#include "seal.h"

#define CONN "'host':'h','database':'d','user':'u'"
#define TABLES "'tables':[{'table':'t','queue':'q'}]"
#define SINK "'queue':'q','table':'t','mode':'append'"
#define SOURCE_OF(conn, members)                                               \
	"{'kind':'source','connection':{" conn "},'source':{" members "}}"
#define SINK_OF(members)                                                       \
	"{'kind':'sink','connection':{" CONN "},'sink':{" members "}}"
#define KEY "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"
#define KEY2 "ff0102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"
#define X64 "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"
#define X128 X64 X64
/* Made once with openssl req -x509 -newkey ed25519. */
#define PEM                                                                    \
	"-----BEGIN CERTIFICATE-----\\n"                                       \
	"MIIBLjCB4aADAgECAhQoMS0qT0L+gvZPOIY5Lq/gz82cZTAFBgMrZXAwDDEKMAgG\\n"  \
	"A1UEAwwBdDAgFw0yNjExMzAwOTA3MzBaGA8yMTI2MTEwNjA5MDczMFowDDEKMAgG\\n"  \
	"A1UEAwwBdDAqMAUGAytlcAMhAO+ghIyRdGP66O6Tt1UgOd4POBPUo8Cuz4V7a5u+\\n"  \
	"a4fEo1MwUTAdBgNVHQ4EFgQUp5LWJ8M6oYRl2CmVUFoihU2cOy4wHwYDVR0jBBgw\\n"  \
	"FoAUp5LWJ8M6oYRl2CmVUFoihU2cOy4wDwYDVR0TAQH/BAUwAwEB/zAFBgMrZXAD\\n"  \
	"QQB1U4av2XFHEHQJ0Se6F9jxSbNgbuOJaZ551CGCdV7KgE3gCCauWxnSjB0ER+vy\\n"  \
	"0pdbA8biL/NKLf7HZBd6dq4L\\n"                                          \
	"-----END CERTIFICATE-----\\n"

static struct arena arena;
static struct err e;

/* A document with ' for ". */
static struct span
json(const char *text)
{
	char *p = arena_cstr(&arena, span_of(text));

	for (size_t i = 0; p[i]; i++)
		if (p[i] == '\'')
			p[i] = '"';
	return span_of(p);
}

static struct conndoc *
parse(const char *text)
{
	struct conndoc *d = NULL;

	if (conndoc_parse(json(text), SPAN_LIT("my-name"), &arena, &d, &e) != 0)
		fail_msg("%s\n%s", text, e.text);
	return d;
}

/* The refusal of a client's document begins with want. */
static void
refused(const char *text, const char *want)
{
	struct conndoc *d;

	e = (struct err)ERR_ZERO;
	if (conndoc_parse(json(text), SPAN_LIT("my-name"), &arena, &d, &e) == 0)
		fail_msg("accepted: %s", text);
	assert_null(d);
	assert_int_equal(e.kind, ERR_INPUT);
	if (strncmp(e.text, want, strlen(want)) != 0)
		fail_msg("%s\nsays    %s\nand not %s", text, e.text, want);
}

static const char *
written(const struct conndoc *d, enum conndoc_form form)
{
	struct buf b = BUF_ZERO;
	struct jwrite w;
	char *text;

	jwrite_init(&w, &b);
	jwrite_object(&w);
	conndoc_write(d, form, &w);
	jwrite_end(&w);
	text = arena_cstr(&arena, buf_span(&b));
	buf_fini(&b);
	for (size_t i = 0; text[i]; i++)
		if (text[i] == '"')
			text[i] = '\'';
	return text;
}

static int
reset(void **state)
{
	(void)state;
	arena_reset(&arena);
	return 0;
}

/* ---- shapes ---- */

static void
what_stands_in_a_document(void **state)
{
	(void)state;
	refused("", "document: is not JSON: ");
	refused("{'kind':'source'", "document: is not JSON: ");
	refused("[]", "document: must be an object");
	refused("{}", "kind: is missing; write source or sink");
	refused("{'kind':'source'}", "connection: is missing");
	refused("{'kind':'both'}",
		"kind: \"both\" is unknown; write source or sink");
	refused("{'kind':1}", "kind: must be a string");
	refused("{'kind':'source','kind':'source'}", "kind: stands twice");
	refused("{'more':1}", "more: unknown field; there are: kind enabled "
			      "connection source sink name");
	refused("{'kind':'source','connection':{},'sink':{" SINK "}}",
		"sink: a connector of kind source has none; remove it");
	refused("{'kind':'sink','connection':{},'source':{" TABLES "}}",
		"source: a connector of kind sink has none; remove it");
	refused("{'kind':'sink','connection':{}}",
		"sink: is missing; a connector of kind sink needs it");
	refused("{'enabled':'yes'}", "enabled: must be true or false");
	refused("{'connection':[]}", "connection: must be an object");
	refused("{'source':null}", "source: must be an object");
	refused("{'connection':{'hots':1}}",
		"connection.hots: unknown field; there are: url host port "
		"database user password sslMode sslRootCert connectTimeoutMs");
	refused("{'source':{" TABLES ",'x':1}}", "source.x: unknown field");
	refused("{'source':{'tables':[{'table':'t','queue':'q','q':1}]}}",
		"source.tables[0].q: unknown field; there are: table queue "
		"partitionBy");
	refused("{'sink':{" SINK ",'metadata':{'ts':'x'}}}",
		"sink.metadata.ts: unknown field; there are: partition "
		"partitionId offset transactionId createdAt payload");
	refused("{'sink':{'keyColumns':['id']}}",
		"sink.keyColumns: unknown field");
	refused("{'\\ud800':1}", "document: lone surrogate in a key");
	refused("{'connection':{'host':'\\ud800'}}",
		"connection.host: holds half of a surrogate pair");
	refused("{'connection':{'host':'a\\u0000'}}",
		"connection.host: holds a zero byte");
	refused("{'connection':{'password':'a\\u0000'}}",
		"connection.password: holds a zero byte");
}

static void
numbers_are_whole_and_within_their_range(void **state)
{
	static const struct {
		const char *name;
		bool source;
		long min, max;
	} v[] = {
		{ "snapshotChunkRows", true, 100, 100000 },
		{ "maxBundleMessages", true, 1, 50000 },
		{ "maxBundleBytes", true, 65536, 67108864 },
		{ "lingerMs", true, 0, 5000 },
		{ "heartbeatSeconds", true, 1, 3600 },
		{ "batch", false, 1, 10000 },
		{ "workers", false, 1, 32 },
		{ "leaseSeconds", false, 5, 3600 },
		{ "maxAttempts", false, 1, 100 },
	};
	static const char *const odd[] = { "-1", "0.5", "1e3", "5.0",
		"99999999999999999999" };
	char text[512], want[128];
	(void)state;

	for (size_t i = 0; i < sizeof(v) / sizeof(v[0]); i++) {
		for (int k = 0; k < 4; k++) {
			long n = k < 2 ? v[i].min - k : v[i].max + k - 2;

			snprintf(text, sizeof(text),
				v[i].source
					? SOURCE_OF(CONN, TABLES ",'%s':%ld")
					: SINK_OF(SINK ",'%s':%ld"),
				v[i].name, n);
			snprintf(want, sizeof(want),
				"%s.%s: %ld is outside %ld..=%ld",
				v[i].source ? "source" : "sink", v[i].name, n,
				v[i].min, v[i].max);
			if (k % 2)
				refused(text, want);
			else
				parse(text);
		}
		for (size_t k = 0; k < sizeof(odd) / sizeof(odd[0]); k++) {
			snprintf(text, sizeof(text), "{'%s':{'%s':%s}}",
				v[i].source ? "source" : "sink", v[i].name,
				odd[k]);
			snprintf(want, sizeof(want), "%s.%s: %s is outside",
				v[i].source ? "source" : "sink", v[i].name,
				odd[k]);
			refused(text, want);
		}
	}
	refused("{'source':{'lingerMs':'5'}}",
		"source.lingerMs: must be a whole number, 0..=5000");
	refused("{'source':{'lingerMs':null}}", "source.lingerMs: must be a");
	parse(SOURCE_OF(CONN ",'port':1,'connectTimeoutMs':1000", TABLES));
	parse(SOURCE_OF(
		CONN ",'port':65535,'connectTimeoutMs':120000", TABLES));
	refused("{'connection':{'port':0}}",
		"connection.port: 0 is outside 1..=65535");
	refused("{'connection':{'port':65536}}", "connection.port: 65536 is");
	refused("{'connection':{'connectTimeoutMs':999}}",
		"connection.connectTimeoutMs: 999 is outside 1000..=120000");
	refused("{'connection':{'connectTimeoutMs':120001}}",
		"connection.connectTimeoutMs: 120001 is");
}

static void
names_of_connectors(void **state)
{
	static const char *const good[] = { "a", "0", "a-b_c9",
		"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa" };
	static const char *const bad[] = { "", "-a", "_a", "A", "a.b", "a b",
		"\xc3\xa4",
		"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa" };
	(void)state;

	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++)
		assert_true(conndoc_name_ok(span_of(good[i])));
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		assert_false(conndoc_name_ok(span_of(bad[i])));
}

static void
names_that_were_not_given(void **state)
{
	struct conndoc_source src = { .slot = SPAN_ZERO };
	struct conndoc_sink snk = { .consumer_group = SPAN_ZERO };
	struct span name = SPAN_LIT("a-b_c");

	(void)state;
	assert_true(span_is(conndoc_slot(&src, name, &arena), "queen_a_b_c"));
	assert_true(span_is(
		conndoc_publication(&src, name, &arena), "queen_a_b_c"));
	assert_true(span_is(conndoc_group(&snk, name, &arena), "pg-a-b_c"));
	src.slot = SPAN_LIT("s");
	src.publication = SPAN_LIT("P");
	snk.consumer_group = SPAN_LIT("g");
	assert_true(span_is(conndoc_slot(&src, name, &arena), "s"));
	assert_true(span_is(conndoc_publication(&src, name, &arena), "P"));
	assert_true(span_is(conndoc_group(&snk, name, &arena), "g"));
}

static void
keys_of_documents(void **state)
{
#define T "00000000-0000-0000-0000-000000000001"
	static const char *const bad[] = { "", "conn:", "conn:" T,
		"conn:" T ":", "conn:" T ":A", "conn:" T ":a:b", "conn:x:a",
		"Conn:" T ":a", "conn:" T "/a", "src:a:pointer" };
	struct qid tenant;
	struct span name;
	(void)state;

	assert_true(conndoc_key_parse(
		SPAN_LIT("conn:" T ":my-name"), &tenant, &name));
	assert_int_equal(tenant.b[15], 1);
	assert_true(span_is(name, "my-name"));
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		assert_false(
			conndoc_key_parse(span_of(bad[i]), &tenant, &name));
#undef T
}

/* ---- rules ---- */

static void
hosts_databases_and_users(void **state)
{
	static const struct {
		const char *host, *want;
	} v[] = {
		{ "", "connection.host: is empty" },
		{ "a b", "connection.host: holds white space" },
		{ "a\\u00a0b", "connection.host: holds white space" },
		{ "a\\u2003b", "connection.host: holds white space" },
		{ "a\\u0085b", "connection.host: holds a control character" },
		{ "a\\tb", "connection.host: holds a control character" },
		{ "/run/postgresql", "connection.host: is a Unix socket" },
		{ "a/b", "connection.host: holds a '/'" },
		{ "a,b", "connection.host: holds a ','" },
		{ "u@h", "connection.host: holds a '@'" },
		{ "[::1", "connection.host: holds a '['" },
		{ X128 X64 X64, "connection.host: is longer than 253 bytes" },
	};
	char text[1024];
	struct conndoc *d;
	(void)state;

	for (size_t i = 0; i < sizeof(v) / sizeof(v[0]); i++) {
		snprintf(text, sizeof(text),
			SOURCE_OF("'host':'%s','database':'d','user':'u'",
				TABLES),
			v[i].host);
		refused(text, v[i].want);
	}
	d = parse(
		SOURCE_OF("'host':'[::1]','database':'d','user':'u'", TABLES));
	assert_true(span_is(d->conn.host, "::1"));
	refused(SOURCE_OF("'database':'d','user':'u'", TABLES),
		"connection.host: is empty; it is required");
	refused(SOURCE_OF("'host':'h','user':'u'", TABLES),
		"connection.database: is empty");
	refused(SOURCE_OF("'host':'h','database':'d'", TABLES),
		"connection.user: is empty");
	refused(SOURCE_OF("'host':'h','user':'u','database':'" X64 "'", TABLES),
		"connection.database: is longer than 63 bytes");
	refused(SOURCE_OF("'host':'h','database':'d','user':'" X64 "'", TABLES),
		"connection.user: is longer than 63 bytes");
	refused(SOURCE_OF("'host':'h','database':'d','user':'a\\nb'", TABLES),
		"connection.user: holds a control character");
}

static void
modes_of_tls_and_certificates(void **state)
{
	struct conndoc *d;
	(void)state;

	refused("{'connection':{'sslMode':'verify-ca'}}",
		"connection.sslMode: verify-ca does not exist; use "
		"verify-full");
	refused("{'connection':{'sslMode':'allow'}}",
		"connection.sslMode: \"allow\" is unknown; write disable, "
		"prefer, require or verify-full");
	d = parse(SOURCE_OF(CONN ",'sslMode':'verify-full','sslRootCert':'" PEM
				 "'",
		TABLES));
	assert_int_equal(d->conn.ssl, CONNDOC_VERIFY_FULL);
	refused(SOURCE_OF(CONN ",'sslRootCert':'" PEM "'", TABLES),
		"connection.sslRootCert: is only for sslMode verify-full");
	refused(SOURCE_OF(CONN ",'sslMode':'verify-full','sslRootCert':'x'",
			TABLES),
		"connection.sslRootCert: holds no certificate");
	refused(SOURCE_OF(CONN ",'sslMode':'verify-full','sslRootCert':''",
			TABLES),
		"connection.sslRootCert: holds no certificate");
	/* asks no terminal for a password */
	refused(SOURCE_OF(CONN ",'sslMode':'verify-full','sslRootCert':'"
			       "-----BEGIN CERTIFICATE-----\\n"
			       "Proc-Type: 4,ENCRYPTED\\n"
			       "DEK-Info: AES-128-CBC,"
			       "00000000000000000000000000000000\\n\\n"
			       "AAAA\\n-----END CERTIFICATE-----\\n'",
			TABLES),
		"connection.sslRootCert: holds no certificate");
}

static void
tables_of_a_source(void **state)
{
	static const struct {
		const char *tables, *want;
	} v[] = {
		{ "'tables':1", "source.tables: must be an array" },
		{ "'slot':'s'", "source.tables: is missing" },
		{ "'tables':[]", "source.tables: is empty" },
		{ "'tables':[1]", "source.tables[0]: must be an object" },
		{ "'tables':[{'queue':'q'}]",
			"source.tables[0].table: is mis" },
		{ "'tables':[{'table':'t'}]",
			"source.tables[0].queue: is mis" },
		{ "'tables':[{'table':'a.b.c','queue':'q'}]",
			"source.tables[0].table: must be schema.name or name" },
		{ "'tables':[{'table':'1a','queue':'q'}]",
			"source.tables[0].table: must be" },
		{ "'tables':[{'table':'a.','queue':'q'}]",
			"source.tables[0].table: must be" },
		{ "'tables':[{'table':'$a','queue':'q'}]",
			"source.tables[0].table: must be" },
		{ "'tables':[{'table':'" X64 "','queue':'q'}]",
			"source.tables[0].table: must be" },
		{ "'tables':[{'table':'t','queue':''}]",
			"source.tables[0].queue: is empty" },
		{ "'tables':[{'table':'t','queue':'" X128 "x'}]",
			"source.tables[0].queue: is longer than 128 bytes" },
		{ "'tables':[{'table':'t','queue':'a\\u007f'}]",
			"source.tables[0].queue: holds a control character" },
		{ "'tables':[{'table':'t','queue':'q'},"
		  "{'table':'public.t','queue':'r'}]",
			"source.tables[1].table: is source.tables[0] again" },
		{ "'tables':[{'table':'t','queue':'q','partitionBy':'all'}]",
			"source.tables[0].partitionBy: must be key, single, or "
			"an array of column names" },
		{ "'tables':[{'table':'t','queue':'q','partitionBy':null}]",
			"source.tables[0].partitionBy: must be" },
		{ "'tables':[{'table':'t','queue':'q','partitionBy':[]}]",
			"source.tables[0].partitionBy: is empty" },
		{ "'tables':[{'table':'t','queue':'q','partitionBy':[1]}]",
			"source.tables[0].partitionBy[0]: must be a string" },
		{ "'tables':[{'table':'t','queue':'q','partitionBy':['a-b']}]",
			"source.tables[0].partitionBy[0]: is no column name" },
		{ "'tables':[{'table':'t','queue':'q',"
		  "'partitionBy':['a','A','a']}]",
			"source.tables[0].partitionBy[2]: names a column "
			"twice" },
		{ TABLES ",'slot':'Slot'", "source.slot: must be 1 to 63 of" },
		{ TABLES ",'slot':''", "source.slot: must be" },
		{ TABLES ",'slot':'1a'", "source.slot: must be" },
		{ TABLES ",'slot':'" X64 "'", "source.slot: must be" },
		{ TABLES ",'publication':'a-b'",
			"source.publication: must be" },
		{ TABLES ",'snapshot':'always'",
			"source.snapshot: \"always\" is unknown; write initial "
			"or never" },
		{ TABLES ",'onTruncate':'emit'",
			"source.onTruncate: emit needs partitionBy single in "
			"every table; source.tables[0] has another" },
		{ TABLES ",'managePublication':1",
			"source.managePublication: must be true or false" },
	};
	char text[1024];
	(void)state;

	for (size_t i = 0; i < sizeof(v) / sizeof(v[0]); i++) {
		snprintf(
			text, sizeof(text), SOURCE_OF(CONN, "%s"), v[i].tables);
		refused(text, v[i].want);
	}
	parse(SOURCE_OF(CONN,
		"'tables':[{'table':'_a$9.T_','queue':'" X128
		"','partitionBy':'single'},{'table':'b','queue':'q',"
		"'partitionBy':'single'}],'onTruncate':'emit','slot':'_s1',"
		"'publication':'p'"));
}

static void
a_source_has_256_tables_at_most(void **state)
{
	struct conndoc *d;
	(void)state;

	for (int n = 256; n <= 257; n++) {
		struct buf b = BUF_ZERO;

		buf_puts(&b, "{'kind':'source','connection':{" CONN
			     "},'source':{'tables':[");
		for (int i = 0; i < n; i++)
			buf_printf(&b, "%s{'table':'t%d','queue':'q'}",
				i ? "," : "", i);
		buf_puts(&b, "]}}");
		buf_putc(&b, '\0');
		if (n == 257) {
			refused(b.p, "source.tables: holds more than 256");
		} else {
			d = parse(b.p);
			assert_int_equal(d->source.tables_n, 256);
			assert_true(span_is(
				d->source.tables[255].table.name, "t255"));
		}
		buf_fini(&b);
	}
}

static void
fields_of_a_sink(void **state)
{
#define MODE(m) "'queue':'q','table':'t','mode':'" m "'"
#define SQL MODE("sql") ",'statement':'x'"
	static const struct {
		const char *members, *want;
	} v[] = {
		{ "'table':'t','mode':'cdc'", "sink.queue: is missing" },
		{ "'queue':'q','mode':'sql'", "sink.table: is missing" },
		{ "'queue':'q','table':'t'", "sink.mode: is missing" },
		{ MODE("merge"),
			"sink.mode: \"merge\" is unknown; write append, "
			"upsert, cdc or sql" },
		{ SINK ",'consumerGroup':''", "sink.consumerGroup: is empty" },
		{ SINK ",'consumerGroup':'" X128 "x'",
			"sink.consumerGroup: is longer than 128 bytes" },
		{ SINK ",'subscriptionMode':'tail'",
			"sink.subscriptionMode: \"tail\" is unknown; write all "
			"or new" },
		{ SINK ",'key':['a']",
			"sink.key: is only for mode upsert and cdc" },
		{ MODE("cdc") ",'key':[]", "sink.key: is empty" },
		{ MODE("cdc") ",'key':'a'",
			"sink.key: must be an array of strings" },
		{ MODE("upsert") ",'key':['a','a']", "sink.key[1]: names a" },
		{ MODE("upsert") ",'key':['']", "sink.key[0]: is no column" },
		{ SINK ",'statement':'x'",
			"sink.statement: is only for mode sql" },
		{ SINK ",'params':[]", "sink.params: is only for mode sql" },
		{ MODE("sql"), "sink.statement: is missing or blank" },
		{ MODE("sql") ",'statement':' \\n\\t'",
			"sink.statement: is missing or blank" },
		{ SQL, "sink.params: is missing" },
		{ SQL ",'params':['$','$a']", "sink.params[1]: has no . or [" },
		{ SQL ",'params':[],'metadata':{}",
			"sink.metadata: is only for mode append and upsert" },
		{ MODE("cdc") ",'metadata':{'offset':'o'}",
			"sink.metadata: is only for" },
		{ SINK ",'metadata':{'offset':'a b'}",
			"sink.metadata.offset: is no column name" },
		{ SINK ",'metadata':{'payload':'a','offset':'a'}",
			"sink.metadata.payload: names the column of offset" },
		{ SINK ",'progressTable':'p'",
			"sink.progressTable: must be schema.name, each" },
		{ SINK ",'progressTable':'public.t'",
			"sink.progressTable: is sink.table" },
		{ SINK ",'createProgressTable':0",
			"sink.createProgressTable: must be true or false" },
	};
	char text[1024];
	(void)state;

	for (size_t i = 0; i < sizeof(v) / sizeof(v[0]); i++) {
		snprintf(text, sizeof(text), SINK_OF("%s"), v[i].members);
		refused(text, v[i].want);
	}
	parse(SINK_OF(SQL ",'params':[]"));
	parse(SINK_OF(MODE("upsert") ",'key':['a','B'],"
				     "'metadata':{'partition':'p'}"));
	parse(SINK_OF(SINK ",'metadata':{}"));
#undef SQL
#undef MODE
}

static void
a_statement_has_65536_bytes_at_most(void **state)
{
	(void)state;
	for (int n = 65536; n <= 65537; n++) {
		struct buf b = BUF_ZERO;

		buf_puts(&b, "{'kind':'sink','connection':{" CONN
			     "},'sink':{'queue':'q','table':'t','mode':'sql',"
			     "'params':[],'statement':'");
		for (int i = 0; i < n; i++)
			buf_putc(&b, 'x');
		buf_puts(&b, "'}}");
		buf_putc(&b, '\0');
		if (n == 65536)
			parse(b.p);
		else
			refused(b.p, "sink.statement: is longer than 65536");
		buf_fini(&b);
	}
}

/* ---- parameters ---- */

static void
paths_and_fields_as_parameters(void **state)
{
	static const struct {
		const char *text, *steps; /* NULL = refused */
	} v[] = {
		{ "$", "" },
		{ "$.a", ".a" },
		{ "$.a.b", ".a.b" },
		{ "$.a[2].c", ".a[2].c" },
		{ "$[0][10]", "[0][10]" },
		{ "$[\"odd.key\"]", ".odd.key" },
		{ "$[\"\\u00e4\\\"]\"].x", ".\xc3\xa4\"].x" },
		{ "$[\"\"]", "." },
		{ "", NULL },
		{ "a", NULL },
		{ "$a", NULL },
		{ "$.", NULL },
		{ "$..a", NULL },
		{ "$.a.", NULL },
		{ "$.[0]", NULL },
		{ "$[", NULL },
		{ "$[]", NULL },
		{ "$[-1]", NULL },
		{ "$[a]", NULL },
		{ "$[1.5]", NULL },
		{ "$[1", NULL },
		{ "$[99999999999999999999]", NULL },
		{ "$[\"a]", NULL },
		{ "$[\"a\"", NULL },
		{ "$[\"\\x\"]", NULL },
		{ "$[\"a\"]b", NULL },
		{ "@", NULL },
		{ "@payload", NULL },
		{ "@partition.x", NULL },
	};
	struct conndoc_param p;
	const char *why;
	(void)state;

	for (size_t i = 0; i < sizeof(v) / sizeof(v[0]); i++) {
		struct buf b = BUF_ZERO;
		bool good = conndoc_param_parse(
			span_of(v[i].text), &arena, &p, &why);

		if (good != (v[i].steps != NULL))
			fail_msg("%s", v[i].text);
		for (size_t k = 0; good && k < p.steps_n; k++)
			if (p.steps[k].is_index)
				buf_printf(&b, "[%jd]",
					(intmax_t)p.steps[k].index);
			else
				buf_printf(
					&b, ".%.*s", SPAN_ARG(p.steps[k].key));
		if (good && !span_is(buf_span(&b), v[i].steps))
			fail_msg("%s is %.*s", v[i].text,
				SPAN_ARG(buf_span(&b)));
		buf_fini(&b);
	}
	assert_true(conndoc_param_parse(
		SPAN_LIT("@partitionId"), &arena, &p, &why));
	assert_int_equal(p.kind, CONNDOC_PARAM_META);
	assert_int_equal(p.meta, CONNDOC_META_PARTITION_ID);
}

/* ---- URL ---- */

static void
a_url_is_folded_into_the_fields(void **state)
{
	static const struct {
		const char *url, *host, *database, *user, *password;
		int port, ms;
		enum conndoc_ssl ssl;
	} v[] = {
		{ "postgres://u2:p@h2:5433/d2?sslmode=require", "h2", "d2",
			"u2", "p", 5433, 10000, CONNDOC_REQUIRE },
		/* what it leaves out stays */
		{ "postgresql://h2", "h2", "d", "u", "old", 7, 10000,
			CONNDOC_PREFER },
		{ "postgres:///d2", "h", "d2", "u", "old", 7, 10000,
			CONNDOC_PREFER },
		{ "postgres://u2@", "h", "d", "u2", "old", 7, 10000,
			CONNDOC_PREFER },
		{ "postgres://u2:@h2:/", "h2", "d", "u2", "old", 7, 10000,
			CONNDOC_PREFER },
		/* the last @, the first : */
		{ "postgres://u2:p@ss:w@h2/d2", "h2", "d2", "u2", "p@ss:w", 7,
			10000, CONNDOC_PREFER },
		{ "postgres://u%40:s%3Ae%2Fc%25+x@h%2E2/d%C3%A4", "h.2",
			"d\xc3\xa4", "u@", "s:e/c%+x", 7, 10000,
			CONNDOC_PREFER },
		{ "postgres://[fe80::1]:99/d2", "fe80::1", "d2", "u", "old", 99,
			10000, CONNDOC_PREFER },
		{ "postgres://?host=h3&port=8&dbname=d3&user=u3&password=p%263"
		  "&connect_timeout=7&sslmode=disable&",
			"h3", "d3", "u3", "p&3", 8, 7000, CONNDOC_DISABLE },
	};
	char text[1024];
	(void)state;

	for (size_t i = 0; i < sizeof(v) / sizeof(v[0]); i++) {
		const struct conndoc_conn *c;

		snprintf(text, sizeof(text),
			SOURCE_OF("'url':'%s','port':7,'password':'old'," CONN,
				TABLES),
			v[i].url);
		c = &parse(text)->conn;
		if (!span_is(c->host, v[i].host) ||
			!span_is(c->database, v[i].database) ||
			!span_is(c->user, v[i].user) ||
			!span_is(c->password, v[i].password))
			fail_msg("%s", v[i].url);
		assert_int_equal(c->port, v[i].port);
		assert_int_equal(c->connect_timeout_ms, v[i].ms);
		assert_int_equal(c->ssl, v[i].ssl);
	}
}

static void
a_url_is_refused_without_being_repeated(void **state)
{
	static const char *const v[][2] = {
		{ "", "must start with postgres://" },
		{ "mysql://u:hunter2@h/d", "must start with postgres://" },
		{ "postgres://u:hunter2@a,b/d", "names several hosts" },
		{ "postgres://u:hunter2@h:0/d", "has a port outside" },
		{ "postgres://u:hunter2@h:65536/d", "has a port outside" },
		{ "postgres://u:hunter2@h:x/d", "has a port outside" },
		/* a slash that should have been escaped moves the password */
		{ "postgres://u:hunter2/x@h/d", "has a port outside" },
		{ "postgres://u:?hunter2@h/d", "has a parameter without" },
		{ "postgres://u:?hunter2=x@h/d", "has an unknown parameter" },
		{ "postgres://u:hunter2@::1/d", "has a port outside" },
		{ "postgres://u:hunter2@[::1/d", "has a bracket without end" },
		{ "postgres://u:hunter2@[::1]x/d",
			"has a bracket without end" },
		{ "postgres://u:hunter2%4@h/d", "has a % without two hex" },
		{ "postgres://u:hunter2%zz@h/d", "has a % without two hex" },
		{ "postgres://u:hunter2%@h/d", "has a % without two hex" },
		{ "postgres://u:hunter2%ff@h/d", "has escapes that are no" },
		{ "postgres://u:hunter2%00@h/d", "has escapes that are no" },
		{ "postgres://u:hunter2@h/d?sslmode=verify-ca",
			"has sslmode verify-ca, which does not exist; use "
			"verify-full" },
		{ "postgres://u:hunter2@h/d?sslmode=allow",
			"has an unknown sslmode" },
		{ "postgres://u:hunter2@h/d?sslrootcert=/x",
			"has sslrootcert, which names a file" },
		{ "postgres://u:hunter2@h/d?options=-c%20x",
			"has an unknown parameter" },
		{ "postgres://u:hunter2@h/d?connect_timeout=0",
			"has a connect_timeout outside" },
		{ "postgres://u:hunter2@h/d?connect_timeout=121",
			"has a connect_timeout outside" },
		{ "postgres://u:hunter2@h/d?port=70000", "has a port outside" },
		{ "postgres://u:hunter2@h/d?host=a,b", "names several hosts" },
	};
	char text[1024], want[256];
	(void)state;

	for (size_t i = 0; i < sizeof(v) / sizeof(v[0]); i++) {
		snprintf(text, sizeof(text),
			SOURCE_OF("'url':'%s'," CONN, TABLES), v[i][0]);
		snprintf(want, sizeof(want), "connection.url: %s", v[i][1]);
		refused(text, want);
		if (strstr(e.text, "hunter2"))
			fail_msg("%s", e.text);
	}
	/* what it yields passes the rules of the fields */
	refused(SOURCE_OF("'url':'postgres://u:hunter2@h%20x/d'", TABLES),
		"connection.host: holds white space");
	refused(SOURCE_OF("'url':'postgres://u:hunter2@%2Frun/d'", TABLES),
		"connection.host: is a Unix socket");
	refused(SOURCE_OF("'url':1", TABLES), "connection.url: must be a str");
}

/* ---- writing ---- */

#define SOURCE_FULL                                                            \
	"'source':{'tables':[{'table':'t','queue':'q'}],"                      \
	"'managePublication':true,'snapshot':'initial',"                       \
	"'snapshotChunkRows':2000,'maxBundleMessages':1000,"                   \
	"'maxBundleBytes':4194304,'lingerMs':20,'heartbeatSeconds':10,"        \
	"'onTruncate':'skip'}"

static void
the_canonical_form_has_every_default(void **state)
{
	(void)state;
	assert_string_equal(
		written(parse(SOURCE_OF(CONN, TABLES)), CONNDOC_STORED),
		"{'kind':'source','enabled':true,'connection':{'host':'h',"
		"'port':5432,'database':'d','user':'u','sslMode':'prefer',"
		"'connectTimeoutMs':10000}," SOURCE_FULL "}");
	assert_string_equal(written(parse(SINK_OF(SINK)), CONNDOC_SHOWN),
		"{'kind':'sink','enabled':true,'connection':{'host':'h',"
		"'port':5432,'database':'d','user':'u','sslMode':'prefer',"
		"'connectTimeoutMs':10000,'passwordSet':false},'sink':{"
		"'queue':'q','table':'t','mode':'append',"
		"'subscriptionMode':'all','batch':500,'workers':1,"
		"'leaseSeconds':60,'maxAttempts':3,"
		"'progressTable':'queen.sink_progress',"
		"'createProgressTable':true}}");
}

/* Everything that may stand in a document comes back from its form. */
static void
what_is_written_reads_back(void **state)
{
	static const char *const v[] = {
		"{'kind':'source','enabled':false,'connection':{'host':'h',"
		"'port':1,'database':'d','user':'u',"
		"'passwordSealed':'AAAA','sslMode':'verify-full',"
		"'sslRootCert':'" PEM "','connectTimeoutMs':1000},'source':{"
		"'tables':[{'table':'t','queue':'q','partitionBy':'key'},"
		"{'table':'s.t','queue':'q','partitionBy':['a','b']},"
		"{'table':'u','queue':'q','partitionBy':'single'}],"
		"'slot':'s','publication':'p','managePublication':false,"
		"'snapshot':'never','snapshotChunkRows':100,"
		"'maxBundleMessages':1,'maxBundleBytes':65536,'lingerMs':0,"
		"'heartbeatSeconds':1,'onTruncate':'skip'},'updatedAt':'u',"
		"'resyncRequestedAt':'r','takeover':{'action':'adopt',"
		"'cell':'c','requestedAt':'t'},'deleting':{'dropSlot':true,"
		"'requestedAt':'d'}}",
		SINK_OF("'queue':'q','table':'s.t','mode':'upsert',"
			"'consumerGroup':'g','subscriptionMode':'new',"
			"'key':['a'],'metadata':{'partition':'a',"
			"'partitionId':'b','offset':'c','transactionId':'d',"
			"'createdAt':'e','payload':'f'},'batch':1,"
			"'workers':32,'leaseSeconds':5,'maxAttempts':1,"
			"'progressTable':'a.b','createProgressTable':false"),
		SINK_OF("'queue':'q','table':'t','mode':'sql',"
			"'statement':'insert 1','params':['$.a','@offset']"),
	};
	struct conndoc *d, *again;
	(void)state;

	for (size_t i = 0; i < sizeof(v) / sizeof(v[0]); i++) {
		const char *once;

		assert_int_equal(
			conndoc_parse_stored(json(v[i]), &arena, &d, &e), 0);
		once = written(d, CONNDOC_STORED);
		assert_int_equal(
			conndoc_parse_stored(json(once), &arena, &again, &e),
			0);
		assert_string_equal(written(again, CONNDOC_STORED), once);
		if (i == 0) /* this one has every field */
			assert_string_equal(once, v[0]);
	}
}

static void
a_takeover_counts_in_its_cell_alone(void **state)
{
	struct conndoc d = { .takeover = CONNDOC_RESET,
		.takeover_cell = SPAN_LIT("0123456789ab") };
	(void)state;

	assert_int_equal(conndoc_takeover_in(&d, SPAN_LIT("0123456789ab")),
		CONNDOC_RESET);
	assert_int_equal(conndoc_takeover_in(&d, SPAN_LIT("0123456789ac")),
		CONNDOC_STAY);
	d.takeover_cell = (struct span)SPAN_ZERO;
	assert_int_equal(
		conndoc_takeover_in(&d, (struct span)SPAN_ZERO), CONNDOC_STAY);
}

static void
sides_write_their_own_fields(void **state)
{
	struct conndoc *d = parse(
		"{'kind':'sink','connection':{" CONN ",'passwordSealed':7,"
		"'passwordSet':true},'sink':{" SINK "},'updatedAt':1,"
		"'resyncRequestedAt':[],'deleting':{'x':1},'takeover':1,"
		"'name':'my-name',"
		"'status':{},'state':null,'warnings':[]}");
	static const char *const stored[][2] = {
		{ "{'kind':'sink','connection':{'password':'p'}}",
			"connection.password: unknown field" },
		{ "{'kind':'sink','connection':{'url':'p'}}",
			"connection.url: unknown field" },
		{ "{'kind':'sink','connection':{'passwordSet':true}}",
			"connection.passwordSet: unknown field" },
		{ "{'name':'x'}", "name: unknown field" },
		{ "{'status':1}", "status: unknown field" },
		{ "{'updatedAt':1}", "updatedAt: must be a string" },
		{ "{'deleting':{'dropSlot':true}}",
			"deleting: needs dropSlot and requestedAt" },
		{ "{'takeover':{'action':'adopt','cell':'c'}}",
			"takeover: needs action, cell and requestedAt" },
		{ "{'takeover':{'action':'keep'}}",
			"takeover.action: \"keep\" is unknown" },
	};
	(void)state;

	assert_int_equal(d->updated_at.n, 0);
	assert_int_equal(d->resync_requested_at.n, 0);
	assert_int_equal(d->conn.password_sealed.n, 0);
	assert_false(d->deleting);
	assert_int_equal(d->takeover, CONNDOC_STAY);
	assert_false(d->conn.password_given);
	refused("{'name':'other'}", "name: the path says my-name");
	for (size_t i = 0; i < sizeof(stored) / sizeof(stored[0]); i++) {
		assert_int_equal(conndoc_parse_stored(
					 json(stored[i][0]), &arena, &d, &e),
			-1);
		if (strncmp(e.text, stored[i][1], strlen(stored[i][1])) != 0)
			fail_msg("%s", e.text);
	}
}

static void
secrets_are_left_out_of_what_does_not_parse(void **state)
{
	static const char *const v[][2] = {
		{ "{'a':{'b':[1]},'connection':{'host':'h','password':'p',"
		  "'x':{'y':1},'passwordSealed':'s','url':'u',"
		  "'passwordSet':false}}",
			"{'a':{'b':[1]},'connection':{'host':'h','x':{'y':1},"
			"'passwordSet':true}}" },
		{ "{'connection':{'passwordSealed':''}}",
			"{'connection':{'passwordSet':false}}" },
		{ "{'connection':{'url':'postgres://u:p@h'}}",
			"{'connection':{'passwordSet':false}}" },
		{ "{'connection':7,'password':'p','kind':'x'}",
			"{'connection':7,'kind':'x'}" },
		{ "[1]", "{}" },
		{ "not JSON", "{}" },
	};
	(void)state;

	for (size_t i = 0; i < sizeof(v) / sizeof(v[0]); i++) {
		struct buf b = BUF_ZERO;
		struct jwrite w;

		jwrite_init(&w, &b);
		jwrite_object(&w);
		conndoc_write_redacted(&w, json(v[i][0]), &arena);
		jwrite_end(&w);
		if (!span_eq(buf_span(&b), json(v[i][1])))
			fail_msg("%.*s", SPAN_ARG(buf_span(&b)));
		buf_fini(&b);
	}
}

/* ---- sealing ---- */

static struct seal *
ring(const char *key)
{
	struct seal *s;

	assert_int_equal(seal_new(key, NULL, &s, &e), 0);
	return s;
}

static void
a_password_opens_in_its_place_alone(void **state)
{
	struct qid tenant = { .b = { [15] = 1 } },
		   other = { .b = { [15] = 2 } };
	struct conndoc *d =
		parse(SOURCE_OF(CONN ",'password':'geheim'", TABLES));
	struct span name = SPAN_LIT("my-name");
	struct seal *s = ring(KEY), *wrong = ring(KEY2);
	struct buf b = BUF_ZERO;
	const char *clear = d->conn.password.p;
	(void)state;

	assert_int_equal(conndoc_unseal(d, &tenant, name, s, &b, &e), 0);
	assert_int_equal(b.len, 0); /* none yet */
	conndoc_seal(d, &tenant, name, s, &arena);
	assert_int_equal(d->conn.password.n, 0);
	assert_memory_equal(clear, "\0\0\0\0\0\0", 6);
	assert_int_equal(conndoc_unseal(d, &tenant, name, s, &b, &e), 0);
	assert_true(span_is(buf_span(&b), "geheim"));
	buf_reset(&b);
	assert_int_equal(conndoc_unseal(d, &other, name, s, &b, &e), -1);
	assert_int_equal(
		conndoc_unseal(d, &tenant, SPAN_LIT("my-name2"), s, &b, &e),
		-1);
	assert_int_equal(conndoc_unseal(d, &tenant, name, wrong, &b, &e), -1);
	assert_non_null(strstr(e.text, "QUEEN_ENCRYPTION_KEY"));
	assert_null(strstr(e.text, "geheim"));
	assert_int_equal(conndoc_unseal(d, &tenant, name, NULL, &b, &e), -1);
	d->kind = CONNDOC_SINK;
	assert_int_equal(conndoc_unseal(d, &tenant, name, s, &b, &e), -1);
	assert_int_equal(b.len, 0);
	buf_fini(&b);
	seal_free(s);
	seal_free(wrong);
}

int
main(void)
{
#define TEST(fn) cmocka_unit_test_teardown(fn, reset)
	const struct CMUnitTest tests[] = {
		TEST(what_stands_in_a_document),
		TEST(numbers_are_whole_and_within_their_range),
		TEST(names_of_connectors),
		TEST(names_that_were_not_given),
		TEST(keys_of_documents),
		TEST(hosts_databases_and_users),
		TEST(modes_of_tls_and_certificates),
		TEST(tables_of_a_source),
		TEST(a_source_has_256_tables_at_most),
		TEST(fields_of_a_sink),
		TEST(a_statement_has_65536_bytes_at_most),
		TEST(paths_and_fields_as_parameters),
		TEST(a_url_is_folded_into_the_fields),
		TEST(a_url_is_refused_without_being_repeated),
		TEST(the_canonical_form_has_every_default),
		TEST(what_is_written_reads_back),
		TEST(a_takeover_counts_in_its_cell_alone),
		TEST(sides_write_their_own_fields),
		TEST(secrets_are_left_out_of_what_does_not_parse),
		TEST(a_password_opens_in_its_place_alone),
	};
	int failed = cmocka_run_group_tests(tests, NULL, NULL);

	arena_fini(&arena);
	return failed;
}

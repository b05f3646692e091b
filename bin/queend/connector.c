/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Documents of connectors, read: one or all of a tenant, as they are stored
 * but without their secrets, with what is known of how they run.
 */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "admin.h"
#include "arena.h"
#include "connector_int.h"
#include "count.h"
#include "ctx.h"
#include "err.h"
#include "hsrv.h"
#include "jspan.h"
#include "jwrite.h"
#include "settings.h"

static const struct pgstmt STMT_LIST = { "connector_list",
	"select name, version, document, kind, sealed, resync, status, pointer,"
	" lease from queen.connector_list_v1($1, $2)" };
static const struct pgstmt STMT_PUT = { "connector_put",
	"select verdict, version, document"
	" from queen.connector_put_v1($1, $2, $3, $4, $5)" };

void
connector_refuse(
	struct hsrv_req *r, int status, const char *code, const char *fmt, ...)
{
	char detail[1024];
	struct jwrite w;
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(detail, sizeof(detail), fmt, ap);
	va_end(ap);
	jwrite_init(&w, hsrv_out(r));
	jwrite_object(&w);
	jwrite_kv_cstr(&w, "error", code);
	jwrite_kv_cstr(&w, "detail", detail);
	jwrite_end(&w);
	hsrv_reply(r, status);
}

/* ---- rows ---- */

struct call {
	struct hsrv_req *r;
	connector_res_fn done;
	connector_row_fn row; /* instead of done */
	bool needed;
};

static struct span
column(struct hsrv_req *r, const PGresult *res, int row, int col)
{
	if (pgbin_null(res, row, col))
		return (struct span)SPAN_ZERO;
	return arena_dup(hsrv_arena(r), pgbin_bytes(res, row, col));
}

static void
read_row(struct hsrv_req *r, const PGresult *res, int row,
	struct connector_row *c)
{
	struct err e = ERR_ZERO;

	*c = (struct connector_row){
		.name = column(r, res, row, 0),
		.version = pgbin_i64(res, row, 1),
		.document = column(r, res, row, 2),
		.kind = column(r, res, row, 3),
		.sealed = column(r, res, row, 4),
		.resync = column(r, res, row, 5),
		.status = column(r, res, row, 6),
		.pointer = column(r, res, row, 7),
		.lease = column(r, res, row, 8),
	};
	if (conndoc_parse_stored(c->document, hsrv_arena(r), &c->doc, &e) != 0)
		c->doc = NULL;
}

static void
not_found(struct hsrv_req *r)
{
	connector_refuse(r, 404, "connector_not_found",
		"there is no connector of this name");
}

static void
on_row(struct call *c, const PGresult *res)
{
	struct connector_row *row = NULL;

	if (PQntuples(res) > 0) {
		row = arena_alloc(hsrv_arena(c->r), sizeof(*row));
		read_row(c->r, res, 0, row);
	}
	if (row || !c->needed)
		c->row(c->r, row);
	else
		not_found(c->r);
}

/* ---- what they wait for ---- */

/* A member of a stored object, as it stands; empty: there is none. */
static struct span
member(struct hsrv_req *r, struct span json, const char *name)
{
	struct jspan_val v;
	struct span key;
	struct jspan j;

	jspan_open(&j, json);
	if (json.n == 0 || jspan_peek(&j) != JSPAN_OBJECT ||
		!jspan_enter_object(&j))
		return (struct span)SPAN_ZERO;
	while (jspan_next_key(&j, hsrv_arena(r), &key) && jspan_take(&j, &v))
		if (span_is(key, name))
			return v.raw;
	return (struct span)SPAN_ZERO;
}

bool
connector_waits_for_a_word(struct hsrv_req *r, const struct connector_row *c)
{
	struct span code = member(r, member(r, c->status, "error"), "code");
	struct span cell = member(r, c->pointer, "cell");
	char mine[16];

	snprintf(mine, sizeof(mine), "\"%012" PRIx64 "\"", ctx_of(r)->cell_tag);
	return span_is(code, "\"cell_changed\"") ||
	       (cell.n && !span_is(cell, mine));
}

/* ---- calls ---- */

static void
too_large(struct hsrv_req *r)
{
	connector_refuse(r, 413, "document_too_large",
		"the document is stored in more than %jd bytes; name fewer "
		"tables, or make a second connector",
		(intmax_t)ctx_of(r)->conf->kv_max_value_bytes);
}

static void
on_done(void *arg, const PGresult *res, const struct err *e)
{
	struct call *c = arg;

	if (!e) {
		if (c->row)
			on_row(c, res);
		else
			c->done(c->r, res);
		return;
	}
	if (strcmp(e->sqlstate, "22001") == 0) {
		too_large(c->r);
		return;
	}
	count_db_error(ctx_of(c->r));
	connector_refuse(c->r, 503, "unavailable", "%s",
		e->kind == ERR_DB_UNKNOWN
			? "the answer of the database was lost; read the "
			  "connector again to see what is stored"
			: e->text);
}

void
connector_call(struct hsrv_req *r, const struct pgstmt *s, struct pgargs *a,
	connector_res_fn done)
{
	struct call *c = arena_alloc(hsrv_arena(r), sizeof(*c));

	*c = (struct call){ .r = r, .done = done, .row = NULL };
	pgpool_call(ctx_of(r)->pool, LANE_REST, s, a, on_done, c);
}

void
connector_store(struct hsrv_req *r, const struct conndoc *d, int64_t expect,
	const char *stamp, connector_res_fn done)
{
	struct buf b = BUF_ZERO;
	struct pgargs a;
	struct jwrite w;

	jwrite_init(&w, &b);
	jwrite_object(&w);
	conndoc_write(d, CONNDOC_STORED, &w);
	jwrite_end(&w);
	if (b.len > (size_t)ctx_of(r)->conf->kv_max_value_bytes) {
		too_large(r);
	} else {
		admin_args(r, &a);
		pgargs_text(&a, hsrv_param(r, 0));
		pgargs_text(&a, buf_span(&b));
		pgargs_i64(&a, expect);
		admin_arg_name(&a, span_of(stamp));
		connector_call(r, &STMT_PUT, &a, done);
	}
	buf_fini(&b);
}

bool
connector_won(struct hsrv_req *r, int verdict)
{
	if (verdict != 0)
		connector_refuse(r, 409, "conflict",
			"somebody else wrote this connector meanwhile; read "
			"it again and repeat");
	return verdict == 0;
}

/* ---- answers ---- */

static void
write_document(
	struct jwrite *w, const struct connector_row *c, struct hsrv_req *r)
{
	if (c->doc)
		conndoc_write(c->doc, CONNDOC_SHOWN, w);
	else
		conndoc_write_redacted(w, c->document, hsrv_arena(r));
}

static void
raw_or_null(struct jwrite *w, const char *key, struct span json)
{
	if (json.p)
		jwrite_kv_raw(w, key, json);
	else
		jwrite_kv_null(w, key);
}

static void
write_entry(struct jwrite *w, const struct connector_row *c, struct hsrv_req *r)
{
	jwrite_object(w);
	jwrite_kv_str(w, "name", c->name);
	write_document(w, c, r);
	jwrite_kv_raw(w, "status",
		c->status.p ? c->status : SPAN_LIT("{\"phase\":\"unknown\"}"));
	jwrite_key(w, "state");
	if (span_is(c->kind, "source")) {
		jwrite_object(w);
		raw_or_null(w, "pointer", c->pointer);
		raw_or_null(w, "lease", c->lease);
		jwrite_end(w);
	} else {
		jwrite_null(w);
	}
	jwrite_end(w);
}

static void
on_list(struct hsrv_req *r, const PGresult *res)
{
	struct connector_row c;
	struct jwrite w;

	jwrite_init(&w, hsrv_out(r));
	jwrite_object(&w);
	jwrite_key(&w, "connectors");
	jwrite_array(&w);
	for (int i = 0; i < PQntuples(res); i++) {
		read_row(r, res, i, &c);
		write_entry(&w, &c, r);
	}
	jwrite_end(&w);
	jwrite_end(&w);
	hsrv_reply(r, 200);
}

void
connector_list(struct hsrv_req *r)
{
	struct pgargs a;

	admin_args(r, &a);
	pgargs_null(&a);
	connector_call(r, &STMT_LIST, &a, on_list);
}

/* ---- one ---- */

static void
find(struct hsrv_req *r, bool needed, connector_row_fn row)
{
	struct call *c = arena_zalloc(hsrv_arena(r), sizeof(*c));
	struct pgargs a;

	c->r = r;
	c->row = row;
	c->needed = needed;
	admin_args(r, &a);
	pgargs_text(&a, hsrv_param(r, 0));
	pgpool_call(ctx_of(r)->pool, LANE_REST, &STMT_LIST, &a, on_done, c);
}

void
connector_find(struct hsrv_req *r, connector_row_fn done)
{
	find(r, false, done);
}

void
connector_need(struct hsrv_req *r, connector_row_fn done)
{
	if (conndoc_name_ok(hsrv_param(r, 0)))
		find(r, true, done);
	else
		not_found(r);
}

static void
on_get(struct hsrv_req *r, struct connector_row *c)
{
	struct jwrite w;

	jwrite_init(&w, hsrv_out(r));
	write_entry(&w, c, r);
	hsrv_reply(r, 200);
}

void
connector_get(struct hsrv_req *r)
{
	connector_need(r, on_get);
}

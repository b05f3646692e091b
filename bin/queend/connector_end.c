/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The end of a connector and its new beginning.  A source ends in two steps:
 * the request is written here, and whoever owns it drops the slot and then the
 * document, because a slot without a reader would hold the WAL for ever.
 */
#include <string.h>

#include "admin.h"
#include "arena.h"
#include "clk.h"
#include "connector_int.h"
#include "ctx.h"
#include "err.h"
#include "group.h"
#include "hsrv.h"
#include "jspan.h"
#include "jwrite.h"

static const struct pgstmt STMT_DELETE = { "connector_delete",
	"select queen.connector_delete_v1($1, $2, $3, $4)" };

struct ending {
	bool drop_slot;
	const struct connector_row *row;
};

/* ---- delete ---- */

static void
begin(struct hsrv_req *r, struct jwrite *w)
{
	jwrite_init(w, hsrv_out(r));
	jwrite_object(w);
	jwrite_kv_str(w, "name", hsrv_param(r, 0));
}

static void
finish(struct hsrv_req *r, struct jwrite *w, int status)
{
	jwrite_end(w);
	hsrv_reply(r, status);
}

/* What stays in the source's database, and how to end it there. */
static struct span
left_behind(struct hsrv_req *r, const struct conndoc *d)
{
	struct arena *a = hsrv_arena(r);
	struct span name = hsrv_param(r, 0);
	struct span slot = conndoc_slot(&d->source, name, a);
	struct span pub = conndoc_publication(&d->source, name, a);
	struct span text = arena_printf(a,
		"the slot %.*s stays and holds WAL until it is dropped: "
		"SELECT pg_drop_replication_slot('%.*s');",
		SPAN_ARG(slot), SPAN_ARG(slot));

	if (!d->source.manage_publication)
		return text;
	return arena_printf(a, "%.*s DROP PUBLICATION IF EXISTS \"%.*s\";",
		SPAN_ARG(text), SPAN_ARG(pub));
}

static void
on_deleted(struct hsrv_req *r, const PGresult *res)
{
	const struct ending *n = hsrv_user(r);
	const struct conndoc *d = n->row->doc;
	struct jwrite w;

	if (!connector_won(r, pgbin_i32(res, 0, 0)))
		return;
	begin(r, &w);
	jwrite_kv_bool(&w, "deleted", true);
	if (d && d->kind == CONNDOC_SOURCE)
		jwrite_kv_str(&w, "warning", left_behind(r, d));
	finish(r, &w, 200);
}

static void
reply_deleting(struct hsrv_req *r)
{
	struct jwrite w;

	begin(r, &w);
	jwrite_kv_bool(&w, "deleting", true);
	jwrite_kv_cstr(&w, "detail",
		"the node that runs the source drops its slot, then the "
		"connector is gone; writing the connector again takes this "
		"back");
	finish(r, &w, 202);
}

static void
on_marked(struct hsrv_req *r, const PGresult *res)
{
	if (connector_won(r, pgbin_i32(res, 0, 0)))
		reply_deleting(r);
}

static void
on_delete(struct hsrv_req *r, struct connector_row *row)
{
	struct ending *n = hsrv_user(r);
	bool source = row->doc && row->doc->kind == CONNDOC_SOURCE;
	struct pgargs a;

	n->row = row;
	if (source && n->drop_slot) {
		if (row->doc->deleting)
			reply_deleting(r);
		else
			connector_store(
				r, row->doc, row->version, "delete", on_marked);
		return;
	}
	admin_args(r, &a);
	pgargs_text(&a, hsrv_param(r, 0));
	pgargs_i64(&a, row->version);
	pgargs_bool(&a, source);
	connector_call(r, &STMT_DELETE, &a, on_deleted);
}

static bool
drop_slot(struct hsrv_req *r, bool *out)
{
	struct span s;

	*out = true;
	if (!hsrv_query(r, "dropSlot", &s))
		return true;
	*out = span_is(s, "true") || span_is(s, "1");
	if (*out || span_is(s, "false") || span_is(s, "0"))
		return true;
	connector_refuse(
		r, 400, "bad_request", "dropSlot: must be true, 1, false or 0");
	return false;
}

void
connector_delete(struct hsrv_req *r)
{
	struct ending *n = arena_zalloc(hsrv_arena(r), sizeof(*n));

	if (!drop_slot(r, &n->drop_slot))
		return;
	hsrv_set_user(r, n);
	connector_need(r, on_delete);
}

/* ---- resync ---- */

/* The document as it was written; NULL after a refusal. */
static const struct conndoc *
stored(struct hsrv_req *r, const PGresult *res)
{
	struct conndoc *d;
	struct err e = ERR_ZERO;

	if (!connector_won(r, pgbin_i32(res, 0, 0)))
		return NULL;
	BUG(conndoc_parse_stored(
		    pgbin_bytes(res, 0, 2), hsrv_arena(r), &d, &e) != 0);
	return d;
}

static void
on_resync_stored(struct hsrv_req *r, const PGresult *res)
{
	const struct conndoc *d = stored(r, res);
	struct jwrite w;

	if (!d)
		return;
	begin(r, &w);
	jwrite_kv_str(&w, "resyncRequestedAt", d->resync_requested_at);
	finish(r, &w, 202);
}

/* `from` of the body; empty when there is none.  False after a refusal. */
static bool
read_from(struct hsrv_req *r, struct span *from)
{
	struct jspan_val v;
	struct jspan j;
	struct span key;

	*from = (struct span)SPAN_ZERO;
	if (hsrv_body(r).n == 0)
		return true;
	jspan_open(&j, hsrv_body(r));
	if (jspan_enter_object(&j))
		while (jspan_next_key(&j, hsrv_arena(r), &key) &&
			jspan_take(&j, &v)) {
			if (!span_is(key, "from"))
				connector_refuse(r, 400, "bad_body",
					"%.*s: unknown field; there is from",
					SPAN_ARG(span_clip(key, 64)));
			else if (v.type != JSPAN_STRING ||
				 !jspan_text(&v, hsrv_arena(r), from))
				connector_refuse(r, 400, "bad_body",
					"from: must be beginning, end, or an "
					"ISO 8601 time");
			else
				continue;
			return false;
		}
	if (!j.error && jspan_end(&j))
		return true;
	connector_refuse(r, 400, "bad_body", "%s at offset %zu",
		j.error ? j.error : "unexpected value", j.error_at);
	return false;
}

static void
on_sought(struct hsrv_req *r, const PGresult *res)
{
	bool found = PQntuples(res) > 0 && pgbin_i32(res, 0, 0) == 0;
	struct jwrite w;

	if (!found) {
		connector_refuse(r, 404, "queue_not_found",
			"sink.queue: the queue does not exist or has no "
			"partitions");
		return;
	}
	group_sought(ctx_of(r), res);
	begin(r, &w);
	jwrite_kv_i64(&w, "partitionsUpdated", pgbin_i64(res, 0, 4));
	finish(r, &w, 202);
}

/*
 * A sink reads a queue: to start over is to move its group, which makes a new
 * group of it, so that its progress rows count as those of an older one.
 */
static void
resync_sink(struct hsrv_req *r, const struct conndoc *d, struct span from)
{
	int64_t at_us = INT64_MIN;
	struct pgargs a;

	if (from.n == 0) {
		connector_refuse(r, 400, "not_a_source",
			"kind: only a source starts over by itself; for a sink "
			"say from where: beginning, end or a time as \"from\" "
			"(queenctl: --from)");
		return;
	}
	if (span_is(from, "beginning"))
		at_us = 0;
	else if (!span_is(from, "end") && !clk_parse_iso(from, &at_us)) {
		connector_refuse(r, 400, "bad_request",
			"from: must be beginning, end, or an ISO 8601 time");
		return;
	}
	admin_args(r, &a);
	pgargs_text(
		&a, conndoc_group(&d->sink, hsrv_param(r, 0), hsrv_arena(r)));
	pgargs_text(&a, d->sink.queue);
	pgargs_text(&a,
		at_us == INT64_MIN ? SPAN_LIT("end") : SPAN_LIT("timestamp"));
	admin_arg_time(&a, at_us);
	connector_call(r, &group_seek_stmt, &a, on_sought);
}

/* False after 409: a request needs a document that this version reads. */
static bool
may_ask(struct hsrv_req *r, const struct connector_row *row)
{
	if (!row->doc)
		connector_refuse(r, 409, "unreadable_document",
			"the document was written by another version; write "
			"it again, or upgrade");
	else if (row->doc->deleting)
		connector_refuse(r, 409, "deleting",
			"the connector is being deleted; write it again to "
			"keep it");
	else
		return true;
	return false;
}

static void
on_resync(struct hsrv_req *r, struct connector_row *row)
{
	struct span from;

	if (!may_ask(r, row) || !read_from(r, &from))
		return;
	if (row->doc->kind == CONNDOC_SINK)
		resync_sink(r, row->doc, from);
	else if (from.n)
		connector_refuse(r, 400, "bad_request",
			"from: a source starts over with a snapshot; leave it "
			"out");
	else
		connector_store(
			r, row->doc, row->version, "resync", on_resync_stored);
}

void
connector_resync(struct hsrv_req *r)
{
	connector_need(r, on_resync);
}

/* ---- adopt, reset ---- */

static void
on_takeover_stored(struct hsrv_req *r, const PGresult *res)
{
	const struct conndoc *d = stored(r, res);
	struct jwrite w;

	if (!d)
		return;
	begin(r, &w);
	jwrite_kv_str(&w, "cell", d->takeover_cell);
	jwrite_kv_str(&w, "requestedAt", d->takeover_requested_at);
	finish(r, &w, 202);
}

/*
 * A word that nothing called for would lie in the document and come into force
 * with the next position of another cell, whatever that was.
 */
static void
take_over(
	struct hsrv_req *r, const struct connector_row *row, const char *action)
{
	if (!may_ask(r, row))
		return;
	if (connector_waits_for_a_word(r, row))
		connector_store(
			r, row->doc, row->version, action, on_takeover_stored);
	else
		connector_refuse(r, 409, "nothing_to_decide",
			"the connector reports no position of another cell "
			"(error cell_changed), so there is nothing to %s; a "
			"paused sink is resumed first",
			action);
}

static void
on_adopt(struct hsrv_req *r, struct connector_row *row)
{
	take_over(r, row, "adopt");
}

static void
on_reset(struct hsrv_req *r, struct connector_row *row)
{
	take_over(r, row, "reset");
}

void
connector_adopt(struct hsrv_req *r)
{
	connector_need(r, on_adopt);
}

void
connector_reset(struct hsrv_req *r)
{
	connector_need(r, on_reset);
}

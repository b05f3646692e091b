/* SPDX-License-Identifier: Apache-2.0 */
/*
 * PUT of a connector: checked, its password sealed, written only over what it
 * was compared with.  Nothing is stored before everything is checked, and no
 * answer, log line or error holds a password.
 */
#include <string.h>

#include "admin.h"
#include "arena.h"
#include "connector_int.h"
#include "ctx.h"
#include "egress.h"
#include "err.h"
#include "hsrv.h"
#include "jspan.h"
#include "jwrite.h"
#include "keyring.h"
#include "pgpool.h"
#include "settings.h"

enum { BODY_MAX_BYTES = 262144, EGRESS_MS = 5000, WARNINGS_MAX = 20 };

static const struct pgstmt STMT_OVERLAP = { "connector_overlap",
	"select what, name from queen.connector_overlap_v1($1, $2)" };

struct put {
	struct hsrv_req *r;
	struct conndoc *d;
	struct conndoc *stored;
};

/* The end of what is refused; the password must not outlive it. */
#define REFUSE(p, ...)                                                         \
	do {                                                                   \
		conndoc_wipe((p)->d);                                          \
		connector_refuse((p)->r, __VA_ARGS__);                         \
	} while (0)

/* ---- the answer ---- */

static void
write_warnings(struct jwrite *w, const struct conndoc *d, const PGresult *res)
{
	int n = PQntuples(res);
	char text[512];

	if (n == 0)
		return;
	jwrite_key(w, "warnings");
	jwrite_array(w);
	for (int i = 0; i < n && i < WARNINGS_MAX; i++) {
		struct span name = pgbin_null(res, i, 1)
					   ? SPAN_LIT("of another tenant")
					   : pgbin_bytes(res, i, 1);

		if (span_is(pgbin_bytes(res, i, 0), "slot"))
			snprintf(text, sizeof(text),
				"source.slot: the connector %.*s uses the same "
				"slot of the same database; give each its own",
				SPAN_ARG(name));
		else
			snprintf(text, sizeof(text),
				"%s: with the connector %.*s this is a loop: "
				"what the sink writes, the source reads into "
				"the sink's queue",
				d->kind == CONNDOC_SINK ? "sink.table"
							: "source.tables",
				SPAN_ARG(name));
		jwrite_str(w, span_of(text));
	}
	jwrite_end(w);
}

/* It is stored: without the warnings the answer is still true. */
static void
on_overlap(void *arg, const PGresult *res, const struct err *e)
{
	struct put *p = arg;
	struct jwrite w;

	jwrite_init(&w, hsrv_out(p->r));
	jwrite_object(&w);
	jwrite_kv_str(&w, "name", hsrv_param(p->r, 0));
	conndoc_write(p->stored, CONNDOC_SHOWN, &w);
	if (!e)
		write_warnings(&w, p->stored, res);
	jwrite_end(&w);
	hsrv_reply(p->r, 200);
}

static void
on_stored(struct hsrv_req *r, const PGresult *res)
{
	struct put *p = hsrv_user(r);
	struct err e = ERR_ZERO;
	struct pgargs a;

	if (!connector_won(r, pgbin_i32(res, 0, 0)))
		return;
	/* what was written by these rules is read by them */
	BUG(conndoc_parse_stored(
		    arena_dup(hsrv_arena(r), pgbin_bytes(res, 0, 2)),
		    hsrv_arena(r), &p->stored, &e) != 0);
	admin_args(r, &a);
	pgargs_text(&a, hsrv_param(r, 0));
	pgpool_call(
		ctx_of(r)->pool, LANE_REST, &STMT_OVERLAP, &a, on_overlap, p);
}

/* ---- the write ---- */

/* False after having refused. */
static bool
take_password(struct put *p, const struct connector_row *old)
{
	struct conndoc_conn *c = &p->d->conn;
	struct ctx *x = ctx_of(p->r);

	if (!c->password_given) {
		c->password_sealed = old ? old->sealed : (struct span)SPAN_ZERO;
		return true;
	}
	if (c->password.n == 0)
		return true;
	if (!keyring_seals(x)) {
		REFUSE(p, 400, "encryption_required",
			"connection.password: this node cannot seal it; set "
			"QUEEN_ENCRYPTION_KEY, the same on every node");
		return false;
	}
	conndoc_seal(p->d, ctx_tenant(p->r), hsrv_param(p->r, 0), x->seal,
		hsrv_arena(p->r));
	return true;
}

/* What was asked for and is not done yet outlives an edit. */
static void
keep_requests(struct put *p, const struct connector_row *old)
{
	struct conndoc *d = p->d;

	d->resync_requested_at = old->resync;
	if (!old->doc || !connector_waits_for_a_word(p->r, old))
		return;
	d->takeover = old->doc->takeover;
	d->takeover_cell = old->doc->takeover_cell;
	d->takeover_requested_at = old->doc->takeover_requested_at;
}

static void
on_old(struct hsrv_req *r, struct connector_row *old)
{
	struct put *p = hsrv_user(r);

	if (old && old->kind.p &&
		!span_is(old->kind, conndoc_kind_word(p->d->kind))) {
		REFUSE(p, 409, "kind_change",
			"kind: this connector is a %.*s and stays one; delete "
			"it first, or use another name",
			SPAN_ARG(span_clip(old->kind, 64)));
		return;
	}
	if (old)
		keep_requests(p, old);
	if (take_password(p, old))
		connector_store(
			r, p->d, old ? old->version : 0, NULL, on_stored);
}

static void
on_looked(void *arg, const struct egress_found *f)
{
	struct put *p = arg;

	/* a name that does not resolve now is looked at at every connect */
	if (f->forbidden)
		REFUSE(p, 400, "egress_refused",
			"connection.host: resolves to a private address; use a "
			"public one, or set QUEEN_PG_ALLOW_PRIVATE_NETWORKS="
			"true");
	else
		connector_find(p->r, on_old);
}

/* ---- the checks ---- */

static bool
read_body(struct put *p)
{
	struct hsrv_req *r = p->r;
	struct span body = hsrv_body(r);
	struct err e = ERR_ZERO;
	const char *what;
	size_t at;

	if (body.n > BODY_MAX_BYTES) {
		connector_refuse(r, 413, "body_too_large",
			"a connector has at most %d bytes", BODY_MAX_BYTES);
		return false;
	}
	if (!jspan_valid(body, &what, &at)) {
		connector_refuse(r, 400, "bad_body",
			"the body is not JSON: %s at offset %zu", what, at);
		return false;
	}
	if (conndoc_parse(body, hsrv_param(r, 0), hsrv_arena(r), &p->d, &e) !=
		0) {
		connector_refuse(r, 400, "invalid_connector", "%s", e.text);
		return false;
	}
	return true;
}

void
connector_put(struct hsrv_req *r)
{
	struct put *p = arena_zalloc(hsrv_arena(r), sizeof(*p));
	struct ctx *x = ctx_of(r);

	p->r = r;
	if (!conndoc_name_ok(hsrv_param(r, 0))) {
		connector_refuse(r, 400, "bad_connector_name",
			"name: must be 1 to %d of a-z 0-9 _ -, the first a "
			"letter or a digit",
			CONNDOC_NAME_MAX);
		return;
	}
	if (!read_body(p))
		return;
	hsrv_set_user(r, p);
	if (x->conf->pg_allow_private)
		connector_find(r, on_old);
	else
		egress_start(x->loop,
			arena_cstr(hsrv_arena(r), p->d->conn.host), EGRESS_MS,
			on_looked, p);
}

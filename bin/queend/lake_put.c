/* SPDX-License-Identifier: Apache-2.0 */
/*
 * PUT of a sink: checked by the sink's own rules before anything is stored, its
 * secret sealed.
 */
#include <sodium.h>
#include <stdio.h>
#include <string.h>

#include "arena.h"
#include "ctx.h"
#include "err.h"
#include "hsrv.h"
#include "jspan.h"
#include "jwrite.h"
#include "keyring.h"
#include "lake_int.h"
#include "pgpool.h"
#include "s3conf.h"
#include "seal.h"

enum { BODY_MAX_BYTES = 65536 };

static const struct pgstmt STMT_PUT = { "lake_sink_put",
	"select queen.lake_sink_put_v1($1, $2, $3, $4, $5)" };

static void
on_put(struct hsrv_req *r, const PGresult *res)
{
	if (pgbin_i32(res, 0, 0) != 0)
		lake_refuse(r, 400, "invalid",
			"secretKey: must come with the first write of a sink");
	else
		lake_show(hsrv_user(r));
}

/* It lies in the body or in the arena, which are ours to write. */
static void
wipe(struct lake *l)
{
	struct span body = hsrv_body(l->r);

	if (body.n)
		sodium_memzero((char *)(uintptr_t)body.p, body.n);
	if (l->secret.n)
		sodium_memzero((char *)(uintptr_t)l->secret.p, l->secret.n);
}

static void
store(struct lake *l)
{
	struct buf sealed = BUF_ZERO;
	char place[64];
	struct pgargs a;

	pgargs_init(&a);
	pgargs_uuid(&a, &l->tenant);
	pgargs_text(&a, hsrv_param(l->r, 0));
	pgargs_bool(&a, l->enabled);
	pgargs_text(&a, l->config);
	if (l->secret.p) {
		snprintf(place, sizeof(place), S3CONF_PLACE, l->text);
		seal_secret(
			ctx_of(l->r)->seal, span_of(place), l->secret, &sealed);
		pgargs_text(&a, buf_span(&sealed));
	} else {
		pgargs_null(&a);
	}
	wipe(l);
	lake_call(l, &STMT_PUT, &a, on_put);
	buf_fini(&sealed);
}

/* ---- the body ---- */

static int
take_enabled(struct lake *l, const struct jspan_val *v, struct err *e)
{
	if (l->enabled_given)
		return err_set(e, ERR_INPUT, "enabled: is there twice");
	if (v->type != JSPAN_BOOL && v->type != JSPAN_NULL)
		return err_set(e, ERR_INPUT, "enabled: is not a boolean");
	l->enabled_given = true;
	l->enabled = v->type == JSPAN_NULL || v->truth;
	return 0;
}

static int
take_secret(struct lake *l, const struct jspan_val *v, struct err *e)
{
	if (l->secret_given)
		return err_set(e, ERR_INPUT, "secretKey: is there twice");
	l->secret_given = true;
	if (v->type == JSPAN_NULL)
		return 0;
	if (!jspan_text(v, hsrv_arena(l->r), &l->secret) || l->secret.n == 0 ||
		l->secret.n > S3CONF_SECRET_MAX ||
		memchr(l->secret.p, '\0', l->secret.n))
		return err_set(e, ERR_INPUT,
			"secretKey: is not a string of 1 to %d bytes",
			S3CONF_SECRET_MAX);
	return 0;
}

static int
take_members(struct lake *l, struct jspan *j, struct buf *config, struct err *e)
{
	struct jspan_val v;
	struct span key;
	struct jwrite w;
	int rc = 0;

	jwrite_init(&w, config);
	jwrite_object(&w);
	while (rc == 0 && jspan_next_key(j, hsrv_arena(l->r), &key) &&
		jspan_take(j, &v)) {
		if (span_is(key, "enabled")) {
			rc = take_enabled(l, &v, e);
		} else if (span_is(key, "secretKey")) {
			rc = take_secret(l, &v, e);
		} else {
			jwrite_key_span(&w, key);
			jwrite_raw(&w, v.raw);
		}
	}
	jwrite_end(&w);
	return rc;
}

static int
read_body(struct lake *l, struct err *e)
{
	static const char *const types[] = { "nothing", "null", "a boolean",
		"a number", "a text", "a list" };
	struct buf config = BUF_ZERO;
	enum jspan_type type;
	struct jspan j;
	int rc;

	l->enabled = true;
	jspan_open(&j, hsrv_body(l->r));
	type = jspan_peek(&j);
	if (!j.error && type != JSPAN_OBJECT)
		return err_set(e, ERR_INPUT,
			"the settings are an object, not %s", types[type]);
	jspan_enter_object(&j);
	rc = take_members(l, &j, &config, e);
	l->config = arena_dup(hsrv_arena(l->r), buf_span(&config));
	buf_fini(&config);
	if (rc == 0 && !jspan_end(&j))
		rc = err_set(e, ERR_INPUT,
			"the body is not JSON: %s at offset %zu", j.error,
			j.error_at);
	return rc;
}

/*
 * The database writes a space behind every comma and colon, and who runs the
 * sink has the same limit for what it reads.
 */
static size_t
stored_bytes(struct span config)
{
	size_t n = config.n;

	for (size_t i = 0; i < config.n; i++)
		n += config.p[i] == ',' || config.p[i] == ':';
	return n;
}

/* In the sink's own words. */
static int
check_config(struct lake *l, struct err *e)
{
	struct s3conf c;

	if (stored_bytes(l->config) > S3CONF_DOC_MAX)
		return err_set(e, ERR_INPUT,
			"the settings, as they are stored, have more than %d "
			"bytes",
			S3CONF_DOC_MAX);
	if (s3conf_from_doc(&c, l->config, e) != 0)
		return -1;
	s3conf_fini(&c);
	return 0;
}

void
lake_put(struct hsrv_req *r)
{
	struct lake *l = lake_begin(r);
	struct err e = ERR_ZERO;

	if (!l)
		return;
	if (hsrv_body(r).n > BODY_MAX_BYTES) {
		wipe(l);
		lake_refuse(r, 413, "invalid", "a sink has at most %d bytes",
			BODY_MAX_BYTES);
	} else if (read_body(l, &e) != 0 || check_config(l, &e) != 0) {
		wipe(l);
		lake_refuse(r, 400, "invalid", "%s", e.text);
	} else if (l->secret.p && !keyring_seals(ctx_of(r))) {
		wipe(l);
		lake_refuse(r, 409, "encryption_required",
			"secretKey: this node cannot seal it; set "
			"QUEEN_ENCRYPTION_KEY, the same on every node");
	} else {
		store(l);
	}
}

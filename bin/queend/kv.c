/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The batch, and one key by its path: a batch of one, so there is one way
 * through.  What a request may, kv_call.c asks.
 */
#include "kv.h"

#include "arena.h"
#include "ctx.h"
#include "hsrv.h"
#include "jspan.h"
#include "jwrite.h"
#include "kv_batch.h"
#include "kv_reply.h"
#include "ops_body.h"

/* ---- the batch ---- */

void
kv_post(struct hsrv_req *r)
{
	struct span ops;
	const char *why;

	switch (ops_body_read(r, &ops, &why)) {
	case OPS_BODY_GOOD:
		kv_batch_start(r, ops, false);
		break;
	case OPS_BODY_TENANT:
		kv_reply_tenant(r);
		break;
	case OPS_BODY_BAD:
		kv_reply_bad(r, "kv_bad_body", why);
		break;
	}
}

/* ---- one key by its path ---- */

bool
kv_no_query(struct hsrv_req *r)
{
	if (!hsrv_has_query(r))
		return true;
	kv_reply_bad(r, "kv_no_query_string",
		"this route takes no query string, in no form");
	return false;
}

/* Copies the members of the body that the operation knows. */
static bool
copy_members(struct hsrv_req *r, struct jwrite *w, const char *const *names)
{
	struct jspan_val v;
	struct jspan j;
	struct span key;

	jspan_open(&j, hsrv_body(r));
	if (jspan_enter_object(&j))
		while (jspan_next_key(&j, hsrv_arena(r), &key) &&
			jspan_take(&j, &v)) {
			if (span_is(key, "op") || span_is(key, "ns") ||
				span_is(key, "namespace") ||
				span_is(key, "key")) {
				kv_reply_bad(r, "kv_field_in_path",
					"op, ns, namespace and key are not "
					"for the body of this route");
				return false;
			}
			if (ops_body_names_tenant(key)) {
				kv_reply_tenant(r);
				return false;
			}
			for (int i = 0; names[i]; i++)
				if (span_is(key, names[i]))
					jwrite_kv_raw(w, names[i], v.raw);
		}
	if (j.error || !jspan_end(&j)) {
		kv_reply_bad_body(r, &j);
		return false;
	}
	return true;
}

/* A batch of one from path and body; names NULL = no body is read. */
static void
start_path(struct hsrv_req *r, const char *op, const char *const *names)
{
	struct buf b = BUF_ZERO;
	struct jwrite w;
	struct span text;
	bool good;

	if (!kv_no_query(r))
		return;
	jwrite_init(&w, &b);
	jwrite_array(&w);
	jwrite_object(&w);
	jwrite_kv_cstr(&w, "op", op);
	jwrite_kv_str(&w, "ns", hsrv_param(r, 0));
	jwrite_kv_str(&w, "key", hsrv_param(r, 1));
	good = !names || copy_members(r, &w, names);
	if (good) {
		jwrite_end(&w);
		jwrite_end(&w);
	}
	text = arena_dup(hsrv_arena(r), buf_span(&b));
	buf_fini(&b);
	if (good)
		kv_batch_start(r, text, true);
}

void
kv_get(struct hsrv_req *r)
{
	start_path(r, "get", NULL);
}

void
kv_put(struct hsrv_req *r)
{
	static const char *const names[] = { "value", "ttlSeconds", "forever",
		"expect", "required", NULL };

	start_path(r, "put", names);
}

void
kv_delete(struct hsrv_req *r)
{
	static const char *const names[] = { "expect", "required", NULL };
	struct jspan j;

	jspan_open(&j, hsrv_body(r));
	start_path(r, "delete",
		hsrv_body(r).n == 0 || jspan_peek(&j) == JSPAN_NULL ? NULL
								    : names);
}

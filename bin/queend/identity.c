/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Without tokens everyone is the operator of the one cluster there is; with
 * them the process cannot know a user, because browsers send no token.
 */
#include "identity.h"

#include "ctx.h"
#include "gate.h"
#include "hsrv.h"
#include "jwrite.h"
#include "settings.h"

static const char login_page[] =
	"<!doctype html>\n"
	"<html lang=\"en\"><head><meta charset=\"utf-8\">"
	"<title>Login</title></head>\n"
	"<body><h1>No login here</h1>\n"
	"<p>This server takes bearer tokens only. Logging in with a browser "
	"needs the proxy in front of it.</p></body></html>\n";

static void
write_cluster(struct jwrite *w, const struct ctx *x)
{
	jwrite_object(w);
	jwrite_kv_cstr(w, "id", "local");
	jwrite_kv_cstr(w, "slug", "local");
	jwrite_kv_cstr(w, "role", "admin");
	jwrite_kv_cstr(w, "tenant_slug", "local");
	jwrite_kv_cstr(w, "tenant_id", GATE_TENANT_DEFAULT);
	jwrite_kv_cstr(w, "status", "active");
	jwrite_kv_cstr(w, "cell_slug", x->instance);
	jwrite_end(w);
}

void
identity_me(struct hsrv_req *r)
{
	struct ctx *x = ctx_of(r);
	struct jwrite w;

	jwrite_init(&w, hsrv_out(r));
	jwrite_object(&w);
	if (x->conf->jwt_enabled) {
		jwrite_kv_cstr(&w, "error", "auth_required");
		jwrite_kv_cstr(&w, "code", "auth_required");
		jwrite_end(&w);
		hsrv_reply(r, 401);
		return;
	}
	jwrite_kv_cstr(&w, "user_id", "standalone");
	jwrite_kv_cstr(&w, "email", NULL);
	jwrite_kv_cstr(&w, "tenant_slug", "local");
	jwrite_kv_bool(&w, "is_operator", true);
	jwrite_kv_bool(&w, "operator_enabled", true);
	jwrite_kv_bool(&w, "operator_live", true);
	jwrite_key(&w, "acting_cluster");
	jwrite_object(&w);
	jwrite_kv_cstr(&w, "id", "local");
	jwrite_kv_cstr(&w, "slug", "local");
	jwrite_end(&w);
	jwrite_key(&w, "clusters");
	jwrite_array(&w);
	write_cluster(&w, x);
	jwrite_end(&w);
	jwrite_kv_cstr(&w, "act_cluster_header", "x-queen-act-cluster");
	jwrite_kv_cstr(&w, "role", "admin");
	jwrite_kv_cstr(&w, "cluster", NULL);
	jwrite_kv_bool(&w, "standalone", true);
	jwrite_end(&w);
	hsrv_reply(r, 200);
}

void
identity_login(struct hsrv_req *r)
{
	if (!ctx_of(r)->conf->jwt_enabled) {
		hsrv_add_header(r, "Location", "/");
		hsrv_reply(r, 302);
		return;
	}
	hsrv_set_type(r, "text/html; charset=utf-8");
	buf_put(hsrv_out(r), login_page, sizeof(login_page) - 1);
	hsrv_reply(r, 200);
}

void
identity_logout(struct hsrv_req *r)
{
	struct jwrite w;

	jwrite_init(&w, hsrv_out(r));
	jwrite_object(&w);
	jwrite_kv_bool(&w, "ok", true);
	jwrite_end(&w);
	hsrv_reply(r, 200);
}

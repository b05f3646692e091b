/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The gate: token, then tenant.  Nothing of a token is ever logged, and a
 * request passes only by reaching pass().
 */
#include "gate.h"

#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#include "arena.h"
#include "clk.h"
#include "err.h"
#include "jwks.h"
#include "log.h"

struct who {
	struct qid tenant;
	struct span subject;
	bool writes_only;
};
/* GATE_TENANT_DEFAULT */
static const struct who nobody = { .tenant = { .b = { [15] = 1 } } };

/* A request that waits for keys; in its own arena. */
struct held {
	struct gate *gate;
	struct hsrv_req *req;
	struct span token;
	int level;
	struct jwks_wait wait;
	LIST_ENTRY(held) link;
};

struct gate {
	struct gate_conf conf;
	struct jwt *jwt; /* NULL = every caller may do everything */
	struct jwks *jwks;
	LIST_HEAD(, held) held;
};

int
gate_new(const struct gate_conf *c, struct gate **out, struct err *e)
{
	struct gate *g;

	if (c->tenancy_header && !c->trusted_proxy)
		return err_set(e, ERR_CONFIG,
			"QUEEN_TENANCY_HEADER=true needs "
			"QUEEN_KV_TRUSTED_PROXY=true: a proxy in front must "
			"set x-queen-tenant and strip the client's own");
	g = calloc(1, sizeof(*g));
	BUG(!g);
	g->conf = *c;
	LIST_INIT(&g->held);
	if (c->jwt_enabled && jwt_new(&c->jwt, &g->jwt, e) != 0) {
		free(g);
		return -1;
	}
	*out = g;
	return 0;
}

int
gate_start(struct gate *g, struct loop *l, struct err *e)
{
	struct jwks_conf c = {
		.url = g->conf.jwt.jwks_url,
		.ca_file = g->conf.ca_file,
		.refresh_s = g->conf.jwks_refresh_s,
		.timeout_ms = g->conf.jwks_timeout_ms,
	};

	if (!g->jwt)
		return 0;
	log_line(LOG_INFO, "auth", "tokens are required",
		"algorithm=%s skip=%s", g->conf.jwt.algorithm,
		log_quote(g->conf.skip_paths ? g->conf.skip_paths : ""));
	if (!jwt_wants_keys(g->jwt))
		return 0;
	if (jwks_new(l, &c, &g->jwks, e) != 0)
		return -1;
	jwks_start(g->jwks);
	return 0;
}

void
gate_stop(struct gate *g)
{
	struct held *h;

	while (g && (h = LIST_FIRST(&g->held))) {
		LIST_REMOVE(h, link);
		jwks_cancel(&h->wait);
	}
}

void
gate_free(struct gate *g)
{
	if (!g)
		return;
	gate_stop(g);
	if (g->jwks)
		jwks_free(g->jwks);
	jwt_free(g->jwt);
	free(g);
}

/* ---- tenant ---- */

/* Shape only: whose it is, the proxy has decided. */
static bool
parse_tenant(struct span s, struct qid *out)
{
	static const int dashes[] = { 8, 13, 18, 23 };

	if (s.n != QID_TEXT)
		return false;
	for (int i = 0; i < 4; i++)
		if (s.p[dashes[i]] != '-')
			return false;
	return qid_parse(s, out);
}

/* False after having answered. */
static bool
find_tenant(
	const struct gate *g, struct hsrv_req *r, int level, struct qid *tenant)
{
	static const struct qid nil = { .b = { 0 } };
	struct span s;

	/* health, metrics and paths nobody serves are no tenant's */
	if (!g->conf.tenancy_header || level == GATE_PUBLIC ||
		level == HSRV_NO_ROUTE || !hsrv_header(r, "x-queen-tenant", &s))
		return true;
	/* which of two did the proxy write? */
	if (s.n == 0 && hsrv_header_count(r, "x-queen-tenant") == 1)
		return true;
	if (hsrv_header_count(r, "x-queen-tenant") != 1 ||
		!parse_tenant(s, tenant)) {
		hsrv_reply_error(r, 400,
			"invalid x-queen-tenant header (must be a UUID)");
		return false;
	}
	if (memcmp(tenant, &nil, sizeof(nil)) == 0) {
		hsrv_reply_error(r, 403, "forbidden");
		return false;
	}
	return true;
}

/* False after having answered. */
static bool
pass(struct gate *g, struct hsrv_req *r, int level, struct span subject,
	unsigned roles)
{
	bool writes_only = (roles & gate_roles(GATE_READ)) == 0;
	struct qid tenant = nobody.tenant;
	enum hsrv_method m = hsrv_method(r);
	struct who *who;

	if (g->conf.read_only && level != HSRV_NO_ROUTE && m != HSRV_GET &&
		m != HSRV_HEAD) {
		hsrv_reply_error(r, 403, "This gateway is read-only");
		return false;
	}
	if (!find_tenant(g, r, level, &tenant))
		return false;
	if (!subject.n && !writes_only && gate_is_default(&tenant))
		return true;
	who = arena_alloc(hsrv_arena(r), sizeof(*who));
	who->tenant = tenant;
	who->subject = subject;
	who->writes_only = writes_only;
	hsrv_set_who(r, who);
	return true;
}

static const struct who *
who_of(const struct hsrv_req *r)
{
	const struct who *who = hsrv_who(r);

	return who ? who : &nobody;
}

const struct qid *
gate_tenant(const struct hsrv_req *r)
{
	return &who_of(r)->tenant;
}

struct span
gate_subject(const struct hsrv_req *r)
{
	return who_of(r)->subject;
}

bool
gate_writes_only(const struct hsrv_req *r)
{
	return who_of(r)->writes_only;
}

bool
gate_is_default(const struct qid *tenant)
{
	return memcmp(tenant, &nobody.tenant, sizeof(*tenant)) == 0;
}

/* ---- token ---- */

static enum jwt_verdict
verify(const struct gate *g, struct hsrv_req *r, struct span token,
	struct jwt_claims *c, struct jwt_fault *f)
{
	return jwt_verify(g->jwt, g->jwks ? jwks_keys(g->jwks) : NULL, token,
		clk_wall_us() / 1000000, hsrv_arena(r), c, f);
}

static enum gate_level
level_asked(const struct gate *g, const struct hsrv_req *r, int level)
{
	return level == HSRV_NO_ROUTE
		       ? g->conf.level(hsrv_method(r), hsrv_path(r))
		       : (enum gate_level)level;
}

/* The end of the matter; true = on to the handler. */
static bool
decide(struct gate *g, struct hsrv_req *r, int level, enum jwt_verdict v,
	const struct jwt_claims *c, const struct jwt_fault *f)
{
	unsigned need = gate_roles(level_asked(g, r, level));

	if (v != JWT_OK) {
		hsrv_reply_error(r, f->status, "%s", f->error);
		return false;
	}
	if ((c->roles & need) == 0) {
		hsrv_reply_error(r, 403, "Insufficient permissions");
		return false;
	}
	return pass(g, r, level, c->sub, c->roles);
}

static void
on_keys(void *arg)
{
	struct held *h = arg;
	struct jwt_claims c = { .roles = 0 };
	struct jwt_fault f = { .status = 401 };
	enum jwt_verdict v;

	LIST_REMOVE(h, link);
	v = verify(h->gate, h->req, h->token, &c, &f);
	if (decide(h->gate, h->req, h->level, v, &c, &f))
		hsrv_gate_pass(h->req);
}

/* True when the request waits for a fresh set of keys. */
static bool
hold(struct gate *g, struct hsrv_req *r, int level, struct span token)
{
	struct held *h;

	if (!g->jwks)
		return false;
	h = arena_zalloc(hsrv_arena(r), sizeof(*h));
	h->gate = g;
	h->req = r;
	h->token = token;
	h->level = level;
	h->wait.fn = on_keys;
	h->wait.arg = h;
	if (!jwks_refetch(g->jwks, &h->wait))
		return false;
	LIST_INSERT_HEAD(&g->held, h, link);
	return true;
}

static bool
is_ascii(struct span s)
{
	for (size_t i = 0; i < s.n; i++)
		if (s.p[i] < 0x20 || s.p[i] > 0x7e)
			return false;
	return s.n > 0;
}

bool
gate_ask(struct gate *g, struct hsrv_req *r, int level)
{
	struct jwt_claims c = { .roles = 0 };
	struct jwt_fault f = { .status = 401 };
	struct span value, token;
	enum jwt_verdict v;

	if (!g->jwt || gate_skips(g->conf.skip_paths, hsrv_path(r)) ||
		level_asked(g, r, level) == GATE_PUBLIC)
		return pass(g, r, level, SPAN_LIT(""), ~0U);
	if (!hsrv_header(r, "authorization", &value) || !is_ascii(value) ||
		hsrv_header_count(r, "authorization") != 1) {
		hsrv_reply_error(r, 401, "Authentication required");
		return false;
	}
	token = jwt_of_header(value);
	v = verify(g, r, token, &c, &f);
	if (v == JWT_UNKNOWN_KEY && hold(g, r, level, token))
		return false;
	return decide(g, r, level, v, &c, &f);
}

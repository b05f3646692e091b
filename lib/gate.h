/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who may ask what: tokens, levels of routes and the tenant header, decided
 * from the head of a request alone.  A token whose key is not known keeps its
 * request while the keys are fetched; its body is not read meanwhile.
 */
#ifndef QUEEN_GATE_H
#define QUEEN_GATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "hsrv.h"
#include "jwt.h"
#include "qid.h"
#include "span.h"

struct err;
struct gate;
struct loop;

/* The level of a route: sets of roles, not a ladder. */
enum gate_level {
	GATE_PUBLIC, GATE_READ, GATE_WRITE, GATE_READ_WRITE, GATE_ADMIN
};

struct gate_conf {
	bool jwt_enabled;	/* false: every caller may do everything */
	struct jwt_conf jwt;
	int64_t jwks_refresh_s, jwks_timeout_ms;
	const char *ca_file;
	const char *skip_paths;	/* comma list: these need no token */
	bool tenancy_header;	/* x-queen-tenant says whose a request is, */
	bool trusted_proxy;	/* and this says that a proxy sets it */
	bool read_only;		/* 403 for all but GET and HEAD */
	/*
	 * The level of a path by its form alone: for paths that have no route,
	 * so that a stranger learns nothing from a 404.
	 */
	enum gate_level (*level)(enum hsrv_method m, struct span path);
};

/* By the settings of a tool: their structs have these fields. */
#define GATE_CONF(s)                                                           \
	.jwt_enabled = (s)->jwt_enabled,                                       \
	.jwt = {                                                               \
		.algorithm = (s)->jwt_algorithm,                               \
		.secret = (s)->jwt_secret,                                     \
		.public_key = (s)->jwt_public_key,                             \
		.jwks_url = (s)->jwt_jwks_url,                                 \
		.issuer = (s)->jwt_issuer,                                     \
		.audience = (s)->jwt_audience,                                 \
		.roles_claim = (s)->jwt_roles_claim,                           \
		.roles_array_claim = (s)->jwt_roles_array_claim,               \
		.role_admin = (s)->jwt_role_admin,                             \
		.role_read_write = (s)->jwt_role_read_write,                   \
		.role_read_only = (s)->jwt_role_read_only,                     \
		.role_write_only = (s)->jwt_role_write_only,                   \
		.skew_s = (s)->jwt_clock_skew_s,                               \
	},                                                                     \
	.jwks_refresh_s = (s)->jwt_jwks_refresh_s,                             \
	.jwks_timeout_ms = (s)->jwt_jwks_timeout_ms,                           \
	.ca_file = (s)->ca_file, .skip_paths = (s)->jwt_skip_paths,            \
	.tenancy_header = (s)->tenancy_header,                                 \
	.trusted_proxy = (s)->kv_trusted_proxy

/* ERR_CONFIG for what must end the boot; texts are borrowed. */
int gate_new(const struct gate_conf *c, struct gate **out, struct err *e)
	__attribute__((warn_unused_result));
/* Begins to fetch keys, where there are any to fetch. */
int gate_start(struct gate *g, struct loop *l, struct err *e)
	__attribute__((warn_unused_result));
/* Lets go of the requests it keeps: before the server is freed. */
void gate_stop(struct gate *g);
void gate_free(struct gate *g);

/* What the gate of hsrv_conf has to answer. */
bool gate_ask(struct gate *g, struct hsrv_req *r, int level);

/* ---- whose request it is ---- */

#define GATE_TENANT_DEFAULT "00000000-0000-0000-0000-000000000001"

/* The default tenant, and no subject, where nothing said otherwise. */
const struct qid *gate_tenant(const struct hsrv_req *r);
/* `sub` of the token; n = 0 without.  Both live as long as the request. */
struct span gate_subject(const struct hsrv_req *r);
/* Its token lets it write and not read: an answer must not show what is stored. */
bool gate_writes_only(const struct hsrv_req *r);
bool gate_is_default(const struct qid *tenant);

/* ---- pure ---- */

enum {	/* methods of a rule; HEAD goes with GET */
	GATE_ANY = 1 << 0, GATE_GET = 1 << 1, GATE_POST = 1 << 2,
	GATE_DELETE = 1 << 3
};
/*
 * Pattern: a literal in which `:` is one segment, and a last `*` any rest,
 * even none.
 */
struct gate_rule {
	int methods;
	const char *pattern;
	enum gate_level level;
};
/* The first rule that fits decides; what none fits is read-write. */
enum gate_level gate_level(const struct gate_rule *rules, size_t n,
	enum hsrv_method m, struct span path);
/* True when a comma list of JWT_SKIP_PATHS lets the path by. */
bool gate_skips(const char *list, struct span path);
/* The roles (bits of enum jwt_role) one of which a level asks for; 0 = none. */
unsigned gate_roles(int level);

#endif

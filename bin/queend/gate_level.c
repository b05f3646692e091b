/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a path asks for.  Routes carry their level in the table of route.c; the
 * rules here give one to paths nobody serves, so that a stranger learns
 * nothing from a 404.  A test holds both together.
 */
#include <string.h>

#include "gate.h"
#include "jwt.h"
#include "route.h"

enum { ANY = 1 << 0, GET = 1 << 1, POST = 1 << 2, DELETE = 1 << 3 };
enum form { SAME, BEGINS };

#define API "/api/v1"

/* The first that fits decides; the rest is read-write. */
static const struct {
	int methods;
	enum form form;
	const char *text;
	enum route_level level;
} rules[] = {
	{ ANY, SAME, "/health", ROUTE_PUBLIC },
	{ ANY, SAME, "/healthz", ROUTE_PUBLIC },
	{ ANY, SAME, "/metrics", ROUTE_PUBLIC },
	{ ANY, SAME, "/metrics/prometheus", ROUTE_PUBLIC },
	{ ANY, SAME, "/", ROUTE_PUBLIC },
	{ ANY, BEGINS, "/assets/", ROUTE_PUBLIC },
	{ ANY, BEGINS, "/favicon", ROUTE_PUBLIC },
	{ ANY, SAME, "/auth/me", ROUTE_PUBLIC },
	{ ANY, SAME, "/auth/login", ROUTE_PUBLIC },
	{ ANY, SAME, "/auth/logout", ROUTE_PUBLIC },
	{ ANY, BEGINS, API "/system/", ROUTE_ADMIN },
	{ ANY, BEGINS, "/internal/", ROUTE_ADMIN },
	{ DELETE, BEGINS, API "/consumer-groups/", ROUTE_ADMIN },
	{ DELETE, BEGINS, API "/resources/queues/", ROUTE_ADMIN },
	{ DELETE, SAME, API "/resources/tenant", ROUTE_ADMIN },
	{ DELETE, SAME, API "/dlq", ROUTE_ADMIN },
	{ ANY, SAME, API "/stats/refresh", ROUTE_ADMIN },
	{ GET, BEGINS, API "/connectors", ROUTE_READ },
	{ ANY, BEGINS, API "/connectors", ROUTE_ADMIN },
	{ ANY, BEGINS, "/api/cp/", ROUTE_ADMIN },
	{ GET, SAME, "/status", ROUTE_READ },
	{ GET, BEGINS, API "/status", ROUTE_READ },
	{ GET, BEGINS, API "/analytics", ROUTE_READ },
	{ GET, BEGINS, API "/resources/", ROUTE_READ },
	{ GET, BEGINS, API "/messages", ROUTE_READ },
	{ GET, BEGINS, API "/consumer-groups", ROUTE_READ },
	{ GET, BEGINS, API "/dlq", ROUTE_READ },
	{ GET, BEGINS, API "/traces", ROUTE_READ },
	{ GET, BEGINS, API "/kv", ROUTE_READ },
	{ GET, BEGINS, API "/timers", ROUTE_READ },
	{ GET, BEGINS, API "/ephemeral/queues", ROUTE_READ },
	{ POST, SAME, API "/fetch", ROUTE_READ },
	{ POST, SAME, API "/partitions/changed", ROUTE_READ },
	{ POST, SAME, API "/resources/kv/list", ROUTE_READ },
	{ ANY, SAME, "/streams/v1/state/get", ROUTE_READ },
	{ ANY, SAME, API "/push", ROUTE_WRITE },
	{ POST, SAME, API "/timers", ROUTE_WRITE },
	{ POST, SAME, API "/ephemeral/push", ROUTE_WRITE },
};

static int
bit_of(enum hsrv_method m)
{
	switch (m) {
	case HSRV_GET:
	case HSRV_HEAD:
		return ANY | GET;
	case HSRV_POST:
		return ANY | POST;
	case HSRV_DELETE:
		return ANY | DELETE;
	default:
		return ANY;
	}
}

int
gate_level(enum hsrv_method m, struct span path)
{
	for (size_t i = 0; i < sizeof(rules) / sizeof(rules[0]); i++) {
		size_t n = strlen(rules[i].text);

		if ((rules[i].methods & bit_of(m)) == 0 || path.n < n ||
			(rules[i].form == SAME && path.n != n))
			continue;
		if (memcmp(path.p, rules[i].text, n) == 0)
			return rules[i].level;
	}
	return ROUTE_READ_WRITE;
}

static bool
entry_skips(struct span entry, struct span path)
{
	if (span_eq(entry, path))
		return true;
	return entry.n > 1 && entry.p[entry.n - 1] == '/' && path.n > entry.n &&
	       memcmp(path.p, entry.p, entry.n) == 0;
}

bool
gate_skips(const char *list, struct span path)
{
	while (list && *list) {
		size_t n = strcspn(list, ",");
		struct span entry = span_trim(span_make(list, n));

		if (entry.n && entry_skips(entry, path))
			return true;
		list += n + (list[n] == ',');
	}
	return false;
}

unsigned
gate_roles(int level)
{
	switch (level) {
	case ROUTE_PUBLIC:
		return 0;
	case ROUTE_READ:
		return JWT_READ_ONLY | JWT_READ_WRITE | JWT_ADMIN;
	case ROUTE_WRITE:
		return JWT_WRITE_ONLY | JWT_READ_WRITE | JWT_ADMIN;
	case ROUTE_READ_WRITE:
		return JWT_READ_WRITE | JWT_ADMIN;
	default:
		return JWT_ADMIN;
	}
}

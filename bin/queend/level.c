/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a path asks for.  Routes carry their level in the table of route.c; the
 * rules here give one to paths nobody serves.  A test holds both together.
 */
#include "level.h"

#define API "/api/v1"

static const struct gate_rule rules[] = {
	{ GATE_ANY, "/health", GATE_PUBLIC },
	{ GATE_ANY, "/healthz", GATE_PUBLIC },
	{ GATE_ANY, "/metrics", GATE_PUBLIC },
	{ GATE_ANY, "/metrics/prometheus", GATE_PUBLIC },
	{ GATE_ANY, "/", GATE_PUBLIC },
	{ GATE_ANY, "/assets/*", GATE_PUBLIC },
	{ GATE_ANY, "/favicon*", GATE_PUBLIC },
	{ GATE_ANY, "/auth/me", GATE_PUBLIC },
	{ GATE_ANY, "/auth/login", GATE_PUBLIC },
	{ GATE_ANY, "/auth/logout", GATE_PUBLIC },
	{ GATE_ANY, API "/system/*", GATE_ADMIN },
	{ GATE_ANY, "/internal/*", GATE_ADMIN },
	{ GATE_DELETE, API "/consumer-groups/*", GATE_ADMIN },
	{ GATE_DELETE, API "/resources/queues/*", GATE_ADMIN },
	{ GATE_DELETE, API "/resources/tenant", GATE_ADMIN },
	{ GATE_DELETE, API "/dlq", GATE_ADMIN },
	{ GATE_ANY, API "/stats/refresh", GATE_ADMIN },
	{ GATE_GET, API "/connectors*", GATE_READ },
	{ GATE_ANY, API "/connectors*", GATE_ADMIN },
	{ GATE_ANY, "/api/cp/*", GATE_ADMIN },
	{ GATE_GET, "/status", GATE_READ },
	{ GATE_GET, API "/status*", GATE_READ },
	{ GATE_GET, API "/analytics*", GATE_READ },
	{ GATE_GET, API "/resources/*", GATE_READ },
	{ GATE_GET, API "/messages*", GATE_READ },
	{ GATE_GET, API "/consumer-groups*", GATE_READ },
	{ GATE_GET, API "/dlq*", GATE_READ },
	{ GATE_GET, API "/traces*", GATE_READ },
	{ GATE_GET, API "/kv*", GATE_READ },
	{ GATE_GET, API "/timers*", GATE_READ },
	{ GATE_GET, API "/ephemeral/queues*", GATE_READ },
	{ GATE_POST, API "/fetch", GATE_READ },
	{ GATE_POST, API "/partitions/changed", GATE_READ },
	{ GATE_POST, API "/resources/kv/list", GATE_READ },
	{ GATE_ANY, "/streams/v1/state/get", GATE_READ },
	{ GATE_ANY, API "/push", GATE_WRITE },
	{ GATE_POST, API "/timers", GATE_WRITE },
	{ GATE_POST, API "/ephemeral/push", GATE_WRITE },
};

enum gate_level
level_of(enum hsrv_method m, struct span path)
{
	return gate_level(rules, sizeof(rules) / sizeof(rules[0]), m, path);
}

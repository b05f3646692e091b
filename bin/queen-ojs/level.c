/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a path asks for.  Routes carry their level in the table of route.c; the
 * rules here give one to paths nobody serves.  A test holds both together.
 */
#include "level.h"

#define API "/ojs/v1"
#define QUEUES API "/queues"

static const struct gate_rule rules[] = {
	{ GATE_ANY, "/ojs/manifest", GATE_PUBLIC },
	{ GATE_ANY, API "/health", GATE_PUBLIC },
	{ GATE_ANY, "/healthz", GATE_PUBLIC },
	{ GATE_ANY, "/metrics", GATE_PUBLIC },
	{ GATE_ANY, API "/admin/*", GATE_ADMIN },
	{ GATE_DELETE, QUEUES "/:", GATE_ADMIN },
	{ GATE_GET, "*", GATE_READ },
	{ GATE_POST, API "/jobs", GATE_WRITE },
	{ GATE_POST, API "/jobs/batch", GATE_WRITE },
	{ GATE_POST, QUEUES "/:/messages", GATE_WRITE },
	{ GATE_POST, QUEUES "/:/messages/batch", GATE_WRITE },
};

enum gate_level
level_of(enum hsrv_method m, struct span path)
{
	return gate_level(rules, sizeof(rules) / sizeof(rules[0]), m, path);
}

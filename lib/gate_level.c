/* SPDX-License-Identifier: Apache-2.0 */
/* Levels: of a path by a table of rules, and the roles each asks for. */
#include <string.h>

#include "gate.h"

static int
bit_of(enum hsrv_method m)
{
	switch (m) {
	case HSRV_GET:
	case HSRV_HEAD:
		return GATE_ANY | GATE_GET;
	case HSRV_POST:
		return GATE_ANY | GATE_POST;
	case HSRV_DELETE:
		return GATE_ANY | GATE_DELETE;
	default:
		return GATE_ANY;
	}
}

static bool
fits(const char *pattern, struct span path)
{
	const char *p = path.p, *end = path.p + path.n;

	for (; *pattern; pattern++) {
		if (pattern[0] == '*' && pattern[1] == '\0')
			return true;
		if (p == end)
			return false;
		if (*pattern != ':') {
			if (*p++ != *pattern)
				return false;
			continue;
		}
		if (*p == '/')
			return false;
		while (p < end && *p != '/')
			p++;
	}
	return p == end;
}

enum gate_level
gate_level(const struct gate_rule *rules, size_t n, enum hsrv_method m,
	struct span path)
{
	for (size_t i = 0; i < n; i++)
		if ((rules[i].methods & bit_of(m)) &&
			fits(rules[i].pattern, path))
			return rules[i].level;
	return GATE_READ_WRITE;
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
	case GATE_PUBLIC:
		return 0;
	case GATE_READ:
		return JWT_READ_ONLY | JWT_READ_WRITE | JWT_ADMIN;
	case GATE_WRITE:
		return JWT_WRITE_ONLY | JWT_READ_WRITE | JWT_ADMIN;
	case GATE_READ_WRITE:
		return JWT_READ_WRITE | JWT_ADMIN;
	default:
		return JWT_ADMIN;
	}
}

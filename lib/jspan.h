/* SPDX-License-Identifier: Apache-2.0 */
/*
 * JSON scanned in one pass without a tree (RFC 8259): values are spans of the
 * body, so payload bytes are never rewritten.  Each value is read exactly
 * once, and every byte read is checked: UTF-8, escapes, numbers, nesting.
 * The first error sticks; later calls return false or 0 until the end.
 */
#ifndef QUEEN_JSPAN_H
#define QUEEN_JSPAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "span.h"

struct arena;

enum { JSPAN_DEPTH_MAX = 1000 };

enum jspan_type {
	JSPAN_NONE, JSPAN_NULL, JSPAN_BOOL, JSPAN_NUMBER, JSPAN_STRING,
	JSPAN_ARRAY, JSPAN_OBJECT
};

struct jspan {
	const char *start, *p, *end;
	int depth;
	bool first;		/* no member read yet in the open container */
	const char *error;	/* NULL, or what is wrong */
	size_t error_at;	/* byte offset of it */
};

struct jspan_val {
	enum jspan_type type;
	bool truth;		/* JSPAN_BOOL */
	bool escaped;		/* JSPAN_STRING holds a backslash */
	struct span raw;	/* whole value as sent; strings with quotes */
};

void jspan_open(struct jspan *j, struct span body);
/* Type of the next value, nothing consumed; JSPAN_NONE on error or end. */
enum jspan_type jspan_peek(struct jspan *j);
/* Reads one whole value of any type, containers with all they hold. */
bool jspan_take(struct jspan *j, struct jspan_val *v);
/*
 * Steps into the object or array that comes next; error if it is another
 * type.  Then call the matching _next until it returns false.
 */
bool jspan_enter_object(struct jspan *j);
bool jspan_enter_array(struct jspan *j);
/*
 * True with the next key (decoded into the arena only when it has escapes);
 * its value must then be read.  False at the end of the object or on error.
 */
bool jspan_next_key(struct jspan *j, struct arena *a, struct span *key);
/* So too with the key as it stands, which may hold a lone surrogate. */
bool jspan_next_name(struct jspan *j, struct jspan_val *key);
/* True when another element follows; it must then be read. */
bool jspan_next_item(struct jspan *j);
/* False (with an error) when anything but white space follows. */
bool jspan_end(struct jspan *j);
/* Sets an error at the current place, unless one is set; returns false. */
bool jspan_fail(struct jspan *j, const char *what);

/*
 * The text of a string value: borrowed from the body when it has no escapes,
 * else decoded into the arena.  False for a lone surrogate.
 */
bool jspan_text(const struct jspan_val *v, struct arena *a, struct span *out);
/* An integer value within int64 (no fraction, no exponent); false else. */
bool jspan_i64(const struct jspan_val *v, int64_t *out);
/* Checks that the span is exactly one JSON value; *at gets the bad byte. */
bool jspan_valid(struct span s, const char **what, size_t *at);
/* Checks UTF-8 alone. */
bool jspan_utf8(struct span s);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the readers of request bodies share; see body.h.  The scanner checks
 * every byte, so what is left is which field must be what.
 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "body_int.h"
#include "name.h"

int
body_bad(struct err *e, const struct body_where *w, const char *field,
	const char *fmt, ...)
{
	char text[96], place[96];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	place[0] = '\0';
	if (w && w->inner)
		snprintf(place, sizeof(place), "%s[%zu].%s[%zu]%s", w->outer,
			w->i, w->inner, w->k, *field ? "." : "");
	else if (w && w->outer)
		snprintf(place, sizeof(place), "%s[%zu]%s", w->outer, w->i,
			*field ? "." : "");
	return err_set(e, ERR_INPUT, "bad body: %s%s %s", place, field, text);
}

int
body_bad_json(struct err *e, const struct jspan *j)
{
	return err_set(e, ERR_INPUT, "bad body: %s at offset %zu",
		j->error ? j->error : "unexpected value", j->error_at);
}

int
body_has_room(
	size_t n, const struct body_where *w, const char *field, struct err *e)
{
	if (n < BODY_LIST_MAX)
		return 0;
	return body_bad(e, w, field, "holds more than %d", BODY_LIST_MAX);
}

int
body_enter(struct jspan *j, bool object, const struct body_where *w,
	const char *field, struct err *e)
{
	enum jspan_type t = jspan_peek(j);
	struct jspan_val v;

	if (t != (object ? JSPAN_OBJECT : JSPAN_ARRAY)) {
		if (!jspan_take(j, &v)) /* it may be no value at all */
			return body_bad_json(e, j);
		if (!w && !*field)
			return err_set(e, ERR_INPUT,
				"bad body: it must be a JSON object");
		return body_bad(e, w, field, "must be an %s",
			object ? "object" : "array");
	}
	if (object ? !jspan_enter_object(j) : !jspan_enter_array(j))
		return body_bad_json(e, j);
	return 0;
}

int
body_read_text(struct jspan *j, struct arena *a, const struct body_where *w,
	const char *field, struct span *out, bool *given, struct err *e)
{
	struct jspan_val v;

	if (!jspan_take(j, &v))
		return body_bad_json(e, j);
	*out = (struct span)SPAN_ZERO;
	*given = v.type != JSPAN_NULL;
	if (!*given)
		return 0;
	if (v.type != JSPAN_STRING)
		return body_bad(e, w, field, "must be a string");
	if (!jspan_text(&v, a, out))
		return body_bad(e, w, field, "holds half of a surrogate pair");
	return 0;
}

/* The scanner has seen that it is UTF-8. */
static int
check_name(const struct body_where *w, const char *field, struct span name,
	struct err *e)
{
	int control;
	const char *fault = name_fault(name, true, &control);

	if (!fault)
		return 0;
	if (control >= 0)
		return body_bad(
			e, w, field, "%s (0x%02x)", fault, (unsigned)control);
	return body_bad(e, w, field, "%s", fault);
}

int
body_read_name(struct jspan *j, struct arena *a, const struct body_where *w,
	const char *field, struct span *out, bool *given, struct err *e)
{
	if (body_read_text(j, a, w, field, out, given, e) != 0)
		return -1;
	return *given ? check_name(w, field, *out, e) : 0;
}

int
body_read_group(struct jspan *j, struct arena *a, const struct body_where *w,
	struct span *group, struct err *e)
{
	bool given;

	if (body_read_text(j, a, w, "consumerGroup", group, &given, e) != 0)
		return -1;
	return group->n ? check_name(w, "consumerGroup", *group, e) : 0;
}

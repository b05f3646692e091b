/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Code, type and message always stand in the stored form; the rest when it was
 * given.  A backtrace is cut, everything else is kept as sent.
 */
#include "job_error.h"

#include "arena.h"
#include "buf.h"
#include "job_int.h"
#include "jwrite.h"

enum {
	FRAMES_MAX = 50,
	FRAME_CHARS_MAX = 10000, /* over all frames */
	NAME_MAX_BYTES = 1024,
};

struct reading {
	struct jspan_val type, code, message, retryable, details, backtrace;
};

static int
read_class(const struct jspan_val *details, struct arena *a,
	struct job_error *e, struct problem *p)
{
	struct jspan_val key, value;
	struct span name;
	struct jspan j;

	if (details->type == JSPAN_NONE)
		return 0;
	if (details->type != JSPAN_OBJECT)
		return problem_field(p, a, "error.details",
			"`error.details` must be an object.");
	jspan_open(&j, details->raw);
	(void)jspan_enter_object(&j);
	while (jspan_next_name(&j, &key) && jspan_take(&j, &value)) {
		if (!jspan_text(&key, a, &name) ||
			!span_is(name, "error_class") ||
			value.type == JSPAN_NULL)
			continue;
		if (job_text(&value, a, "error.details.error_class",
			    NAME_MAX_BYTES, &e->class, p) != 0)
			return -1;
	}
	return 0;
}

/* How many characters of s fit, as bytes; *left goes down by those. */
static size_t
fitting(struct span s, size_t *left)
{
	size_t i = 0;

	while (i < s.n) {
		if (((unsigned char)s.p[i] & 0xc0) != 0x80) {
			if (!*left)
				break;
			--*left;
		}
		i++;
	}
	return i;
}

/* Half a surrogate pair has no text: such a frame is left out. */
static int
write_backtrace(struct jwrite *w, const struct jspan_val *v, struct arena *a,
	struct problem *p)
{
	size_t left = FRAME_CHARS_MAX;
	struct jspan_val item;
	struct span text;
	struct jspan j;
	int n = 0;

	if (v->type == JSPAN_NONE)
		return 0;
	jspan_open(&j, v->raw);
	jwrite_key(w, "backtrace");
	jwrite_array(w);
	if (jspan_enter_array(&j))
		while (jspan_next_item(&j) && jspan_take(&j, &item)) {
			if (item.type != JSPAN_STRING)
				jspan_fail(&j, "no string");
			else if (n++ < FRAMES_MAX && left &&
				 jspan_text(&item, a, &text))
				jwrite_str(w, span_make(text.p,
						      fitting(text, &left)));
		}
	jwrite_end(w);
	if (jspan_end(&j))
		return 0;
	return problem_field(p, a, "error.backtrace",
		"`error.backtrace` must be an array of strings.");
}

static void
choose_names(struct job_error *e)
{
	struct span code = e->code;

	if (!e->code.n)
		e->code = SPAN_LIT("handler_error");
	if (!e->type.n)
		e->type = e->class.n ? e->class : code.n ? code : e->code;
}

static int
write_stored(struct jwrite *w, const struct reading *r, struct arena *a,
	const struct job_error *e, struct problem *p)
{
	jwrite_object(w);
	jwrite_kv_str(w, "code", e->code);
	jwrite_kv_str(w, "type", e->type);
	jwrite_kv_raw(w, "message",
		r->message.type == JSPAN_STRING ? r->message.raw
						: SPAN_LIT("\"\""));
	if (r->retryable.type != JSPAN_NONE)
		jwrite_kv_bool(w, "retryable", e->retryable);
	if (r->details.type != JSPAN_NONE)
		jwrite_kv_raw(w, "details", r->details.raw);
	return write_backtrace(w, &r->backtrace, a, p);
}

int
job_error_parse(struct span raw, struct arena *a, struct job_error *e,
	struct problem *p)
{
	struct reading r;
	const struct job_field fields[] = { { "type", &r.type, false },
		{ "code", &r.code, false }, { "message", &r.message, false },
		{ "retryable", &r.retryable, false },
		{ "details", &r.details, false },
		{ "backtrace", &r.backtrace, false } };
	struct buf b = BUF_ZERO;
	struct jwrite w;
	int rc;

	*e = (struct job_error){ .retryable = true };
	if (job_fields(raw, a, fields, 6, p) != 0 ||
		job_text(&r.type, a, "error.type", NAME_MAX_BYTES, &e->type,
			p) != 0 ||
		job_text(&r.code, a, "error.code", NAME_MAX_BYTES, &e->code,
			p) != 0 ||
		job_flag(&r.retryable, a, "error.retryable", &e->retryable,
			p) != 0 ||
		read_class(&r.details, a, e, p) != 0)
		return -1;
	if (r.message.type != JSPAN_NONE && r.message.type != JSPAN_STRING)
		return problem_field(p, a, "error.message",
			"`error.message` must be a string.");
	choose_names(e);
	jwrite_init(&w, &b);
	rc = write_stored(&w, &r, a, e, p);
	if (rc == 0)
		e->stored = arena_dup(a, span_make(b.p + 1, b.len - 1));
	buf_fini(&b);
	return rc;
}

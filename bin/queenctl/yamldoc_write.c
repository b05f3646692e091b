/* SPDX-License-Identifier: Apache-2.0 */
/* JSON to YAML through libyaml's emitter. */
#include "yamldoc.h"

#include <yaml.h>

#include "arena.h"
#include "buf.h"
#include "doc.h"
#include "err.h"

struct writer {
	yaml_emitter_t emitter;
	struct arena arena;
	bool failed;
};

static int
on_bytes(void *arg, unsigned char *p, size_t n)
{
	buf_put(arg, p, n);
	return 1;
}

static void
emit(struct writer *w, yaml_event_t *ev)
{
	/* the emitter owns the event, also when it fails */
	if (!yaml_emitter_emit(&w->emitter, ev))
		w->failed = true;
}

static void
emit_scalar(struct writer *w, struct span s, yaml_scalar_style_t style)
{
	static const yaml_char_t empty[] = "";
	yaml_event_t ev;

	if (!yaml_scalar_event_initialize(&ev, NULL, NULL,
		    s.n ? (const yaml_char_t *)s.p : empty, (int)s.n, 1, 1,
		    style))
		w->failed = true; /* not UTF-8 */
	else
		emit(w, &ev);
}

static void
emit_string(struct writer *w, struct span s)
{
	struct span json;

	/* a string that would read back as something else is quoted */
	if (s.n && memchr(s.p, '\n', s.n))
		emit_scalar(w, s, YAML_DOUBLE_QUOTED_SCALAR_STYLE);
	else if (yamldoc_resolve(s, &w->arena, &json) || span_is(s, "<<"))
		emit_scalar(w, s, YAML_SINGLE_QUOTED_SCALAR_STYLE);
	else
		emit_scalar(w, s, YAML_ANY_SCALAR_STYLE);
}

static void emit_value(struct writer *w, const struct jspan_val *v);

static void
emit_object(struct writer *w, struct span object)
{
	yaml_event_t ev;
	struct jspan_val v;
	struct jspan j;
	struct span key;
	bool none = doc_count(object) == 0;

	yaml_mapping_start_event_initialize(&ev, NULL, NULL, 1,
		none ? YAML_FLOW_MAPPING_STYLE : YAML_BLOCK_MAPPING_STYLE);
	emit(w, &ev);
	jspan_open(&j, object);
	if (jspan_enter_object(&j))
		while (!w->failed && jspan_next_key(&j, &w->arena, &key) &&
			jspan_take(&j, &v)) {
			emit_string(w, key);
			emit_value(w, &v);
		}
	yaml_mapping_end_event_initialize(&ev);
	emit(w, &ev);
}

static void
emit_array(struct writer *w, struct span array)
{
	yaml_event_t ev;
	struct jspan_val v;
	struct jspan j;
	bool none = doc_count(array) == 0;

	yaml_sequence_start_event_initialize(&ev, NULL, NULL, 1,
		none ? YAML_FLOW_SEQUENCE_STYLE : YAML_BLOCK_SEQUENCE_STYLE);
	emit(w, &ev);
	for (doc_open(&j, array); !w->failed && doc_next(&j, &v);)
		emit_value(w, &v);
	yaml_sequence_end_event_initialize(&ev);
	emit(w, &ev);
}

static void
emit_value(struct writer *w, const struct jspan_val *v)
{
	struct span s;

	switch (v->type) {
	case JSPAN_OBJECT:
		emit_object(w, v->raw);
		break;
	case JSPAN_ARRAY:
		emit_array(w, v->raw);
		break;
	case JSPAN_STRING:
		/* a lone surrogate has no UTF-8: it stays escaped */
		if (!jspan_text(v, &w->arena, &s))
			s = span_make(v->raw.p + 1, v->raw.n - 2);
		emit_string(w, s);
		break;
	default:
		emit_scalar(w, v->raw, YAML_PLAIN_SCALAR_STYLE);
	}
}

int
yamldoc_write(struct buf *out, struct span json, struct err *e)
{
	struct writer w = { .failed = false };
	struct jspan_val v = doc_val(json);
	yaml_event_t ev;

	if (!yaml_emitter_initialize(&w.emitter))
		return err_set(e, ERR_BUG, "cannot start the YAML emitter");
	yaml_emitter_set_output(&w.emitter, on_bytes, out);
	yaml_emitter_set_unicode(&w.emitter, 1);
	yaml_emitter_set_indent(&w.emitter, 2);
	yaml_emitter_set_width(&w.emitter, -1);
	yaml_stream_start_event_initialize(&ev, YAML_UTF8_ENCODING);
	emit(&w, &ev);
	yaml_document_start_event_initialize(&ev, NULL, NULL, NULL, 1);
	emit(&w, &ev);
	emit_value(&w, &v);
	yaml_document_end_event_initialize(&ev, 1);
	emit(&w, &ev);
	yaml_stream_end_event_initialize(&ev);
	emit(&w, &ev);
	yaml_emitter_delete(&w.emitter);
	arena_fini(&w.arena);
	return w.failed ? err_set(e, ERR_BUG, "cannot write YAML") : 0;
}

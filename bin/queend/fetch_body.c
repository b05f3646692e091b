/* SPDX-License-Identifier: Apache-2.0 */
/* Reading the bodies of fetch and partitions/changed in one pass. */
#include "fetch_body.h"

#include <string.h>

#include "arena.h"
#include "clk.h"
#include "jspan.h"
#include "name.h"

/* An absent or null value is left alone. */
struct reader {
	struct jspan j;
	struct arena *arena;
	size_t entry; /* index, for the texts */
};

static int
bad(const struct reader *rd, const char *field, const char *what, struct err *e)
{
	return err_set(e, ERR_INPUT, "bad body: entries[%zu].%s %s", rd->entry,
		field, what);
}

static int
bad_json(const struct reader *rd, struct err *e)
{
	return err_set(e, ERR_INPUT, "bad body: %s at offset %zu",
		rd->j.error ? rd->j.error : "unexpected value", rd->j.error_at);
}

static int
read_int(struct reader *rd, const struct jspan_val *v, const char *field,
	int64_t *out, struct err *e)
{
	if (v->type == JSPAN_NULL)
		return 0;
	if (v->type != JSPAN_NUMBER || !jspan_i64(v, out))
		return bad(rd, field, "is not an integer", e);
	return 0;
}

static int
read_text(struct reader *rd, const struct jspan_val *v, const char *field,
	struct span *out, struct err *e)
{
	if (v->type != JSPAN_STRING)
		return bad(rd, field, "is not a string", e);
	if (!jspan_text(v, rd->arena, out))
		return bad(rd, field, "holds half of a surrogate pair", e);
	return 0;
}

static int
read_name(struct reader *rd, const struct jspan_val *v, const char *field,
	struct span *out, struct err *e)
{
	if (v->type == JSPAN_NULL)
		return 0;
	if (read_text(rd, v, field, out, e) != 0)
		return -1;
	if (name_check(*out, field, e) != 0)
		return err_wrap(e, "bad body: entries[%zu]", rd->entry);
	return 0;
}

static int64_t
clamp(int64_t v, int64_t lo, int64_t hi)
{
	return v < lo ? lo : v > hi ? hi : v;
}

static int
fetch_field(struct reader *rd, struct span key, const struct jspan_val *v,
	struct fetch_entry *f, bool *has_offset, struct err *e)
{
	int64_t n = FETCH_BYTES_DEFAULT;

	if (span_is(key, "queue"))
		return read_name(rd, v, "queue", &f->queue, e);
	if (span_is(key, "partition")) {
		if (v->type != JSPAN_NUMBER)
			return read_name(rd, v, "partition", &f->partition, e);
		if (read_int(rd, v, "partition", &n, e) != 0)
			return -1;
		f->partition = arena_printf(rd->arena, "%lld", (long long)n);
		return 0;
	}
	if (span_is(key, "offset")) {
		*has_offset = v->type != JSPAN_NULL;
		if (read_int(rd, v, "offset", &f->offset, e) != 0)
			return -1;
		if (f->offset < 0)
			return bad(rd, "offset", "is negative", e);
		return 0;
	}
	if (span_is(key, "maxBytes")) {
		if (read_int(rd, v, "maxBytes", &n, e) != 0)
			return -1;
		f->max_bytes = (int32_t)clamp(n, 1, FETCH_BYTES_MAX);
	}
	return 0;
}

static int
fetch_entry(struct reader *rd, struct fetch_entry *f, struct err *e)
{
	struct jspan_val v;
	struct span key;
	bool has_offset = false;

	*f = (struct fetch_entry){ .partition = SPAN_LIT("Default"),
		.max_bytes = FETCH_BYTES_DEFAULT };
	if (!jspan_enter_object(&rd->j))
		return bad_json(rd, e);
	while (jspan_next_key(&rd->j, rd->arena, &key)) {
		if (!jspan_take(&rd->j, &v))
			return bad_json(rd, e);
		if (fetch_field(rd, key, &v, f, &has_offset, e) != 0)
			return -1;
	}
	if (rd->j.error)
		return bad_json(rd, e);
	if (!f->queue.n)
		return bad(rd, "queue", "is missing", e);
	if (!has_offset)
		return bad(rd, "offset", "is missing", e);
	return 0;
}

static int
read_top_int(struct reader *rd, const char *field, int64_t dflt, int64_t lo,
	int64_t hi, int64_t *out, struct err *e)
{
	struct jspan_val v;

	*out = dflt;
	if (!jspan_take(&rd->j, &v))
		return bad_json(rd, e);
	if (v.type == JSPAN_NULL)
		return 0;
	if (v.type != JSPAN_NUMBER || !jspan_i64(&v, out))
		return err_set(
			e, ERR_INPUT, "bad body: %s is not an integer", field);
	*out = clamp(*out, lo, hi);
	return 0;
}

/* entries may be null; else the array is open afterwards. */
static int
enter_entries(struct reader *rd, bool *is_null, struct err *e)
{
	struct jspan_val v;

	*is_null = jspan_peek(&rd->j) == JSPAN_NULL;
	if (*is_null)
		return jspan_take(&rd->j, &v) ? 0 : bad_json(rd, e);
	return jspan_enter_array(&rd->j) ? 0 : bad_json(rd, e);
}

static int
fetch_entries(struct reader *rd, struct fetch_body *out, struct err *e)
{
	size_t cap = 0;
	bool is_null;

	out->n = 0;
	if (enter_entries(rd, &is_null, e) != 0)
		return -1;
	if (is_null)
		return 0;
	while (jspan_next_item(&rd->j)) {
		if (out->n == FETCH_ENTRIES_MAX)
			return err_set(e, ERR_INPUT,
				"bad body: more than %d entries",
				FETCH_ENTRIES_MAX);
		rd->entry = out->n;
		out->entries = arena_grown(rd->arena, out->entries, out->n,
			&cap, sizeof(*out->entries));
		if (fetch_entry(rd, &out->entries[out->n++], e) != 0)
			return -1;
	}
	return rd->j.error ? bad_json(rd, e) : 0;
}

int
fetch_body_parse(struct span body, struct arena *a, struct fetch_body *out,
	struct err *e)
{
	struct reader rd = { .arena = a };
	struct jspan_val v;
	struct span key;
	int64_t n;

	*out = (struct fetch_body){ .min_bytes = 1 };
	jspan_open(&rd.j, body);
	if (!jspan_enter_object(&rd.j))
		return bad_json(&rd, e);
	while (jspan_next_key(&rd.j, a, &key)) {
		if (span_is(key, "entries")) {
			if (fetch_entries(&rd, out, e) != 0)
				return -1;
		} else if (span_is(key, "maxWaitMs")) {
			if (read_top_int(&rd, "maxWaitMs", 0, 0,
				    FETCH_WAIT_MAX_MS, &n, e) != 0)
				return -1;
			out->max_wait_ms = (int32_t)n;
		} else if (span_is(key, "minBytes")) {
			if (read_top_int(&rd, "minBytes", 1, 0, INT64_MAX,
				    &out->min_bytes, e) != 0)
				return -1;
		} else if (!jspan_take(&rd.j, &v)) {
			return bad_json(&rd, e);
		}
	}
	return jspan_end(&rd.j) ? 0 : bad_json(&rd, e);
}

/* ---- partitions/changed ---- */

bool
changed_cursor_parse(
	struct span text, bool timed, int64_t *at_us, struct span *name)
{
	const char *bar;

	if (text.n < 2 || text.p[1] != '|' || text.p[0] != (timed ? 't' : 'n'))
		return false;
	text = span_make(text.p + 2, text.n - 2);
	if (timed) {
		bar = text.n ? memchr(text.p, '|', text.n) : NULL;
		if (!bar)
			return false;
		size_t digits = (size_t)(bar - text.p);

		if (!span_i64(span_make(text.p, digits), at_us))
			return false;
		/* beyond what the database can hold */
		if (*at_us > INT64_C(9000000000000000) || *at_us < 0)
			return false;
		text = span_make(bar + 1, text.n - digits - 1);
	}
	*name = text;
	struct err e = ERR_ZERO;

	return name_check(text, "cursor", &e) == 0;
}

static int
read_since(struct reader *rd, const struct jspan_val *v,
	struct changed_entry *c, struct err *e)
{
	struct span s;

	if (v->type == JSPAN_NULL)
		return 0;
	if (v->type != JSPAN_STRING)
		return bad(rd, "since", "is not a string", e);
	if (!jspan_text(v, rd->arena, &s) || !clk_parse_iso(s, &c->since_us)) {
		struct span raw = v->raw;

		if (raw.n > 80)
			raw = SPAN_LIT("(a long text)");
		return err_set(e, ERR_INPUT,
			"bad body: since is not a timestamp: %.*s",
			SPAN_ARG(raw));
	}
	c->timed = true;
	return 0;
}

static int
changed_field(struct reader *rd, struct span key, const struct jspan_val *v,
	struct changed_entry *c, struct err *e)
{
	int64_t n = CHANGED_LIMIT_MAX;

	if (span_is(key, "queue"))
		return read_name(rd, v, "queue", &c->queue, e);
	if (span_is(key, "since"))
		return read_since(rd, v, c, e);
	if (span_is(key, "after") && v->type != JSPAN_NULL)
		return read_text(rd, v, "after", &c->after, e);
	if (span_is(key, "limit")) {
		if (read_int(rd, v, "limit", &n, e) != 0)
			return -1;
		c->limit = (int32_t)clamp(n, 1, CHANGED_LIMIT_MAX);
	}
	return 0;
}

static int
changed_entry(struct reader *rd, struct changed_entry *c, struct err *e)
{
	struct jspan_val v;
	struct span key;

	*c = (struct changed_entry){ .limit = CHANGED_LIMIT_MAX };
	if (!jspan_enter_object(&rd->j))
		return bad_json(rd, e);
	while (jspan_next_key(&rd->j, rd->arena, &key)) {
		if (!jspan_take(&rd->j, &v))
			return bad_json(rd, e);
		if (changed_field(rd, key, &v, c, e) != 0)
			return -1;
	}
	if (rd->j.error)
		return bad_json(rd, e);
	if (!c->queue.n)
		return bad(rd, "queue", "is missing", e);
	c->has_cursor = c->after.n > 0;
	if (c->has_cursor)
		c->bad_cursor = !changed_cursor_parse(
			c->after, c->timed, &c->cursor_us, &c->cursor_name);
	return 0;
}

static int
changed_entries(struct reader *rd, struct changed_body *out, struct err *e)
{
	size_t cap = 0;
	bool is_null;

	out->n = 0;
	if (enter_entries(rd, &is_null, e) != 0)
		return -1;
	if (is_null)
		return 0;
	while (jspan_next_item(&rd->j)) {
		if (out->n == CHANGED_ENTRIES_MAX)
			return err_set(e, ERR_INPUT,
				"bad body: more than %d entries",
				CHANGED_ENTRIES_MAX);
		rd->entry = out->n;
		out->entries = arena_grown(rd->arena, out->entries, out->n,
			&cap, sizeof(*out->entries));
		if (changed_entry(rd, &out->entries[out->n++], e) != 0)
			return -1;
	}
	return rd->j.error ? bad_json(rd, e) : 0;
}

int
changed_body_parse(struct span body, struct arena *a, struct changed_body *out,
	struct err *e)
{
	struct reader rd = { .arena = a };
	struct jspan_val v;
	struct span key;

	*out = (struct changed_body){ .n = 0 };
	jspan_open(&rd.j, body);
	if (!jspan_enter_object(&rd.j))
		return bad_json(&rd, e);
	while (jspan_next_key(&rd.j, a, &key)) {
		if (span_is(key, "entries")) {
			if (changed_entries(&rd, out, e) != 0)
				return -1;
		} else if (!jspan_take(&rd.j, &v)) {
			return bad_json(&rd, e);
		}
	}
	return jspan_end(&rd.j) ? 0 : bad_json(&rd, e);
}

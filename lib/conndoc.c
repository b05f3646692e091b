/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The shape of a connector document: which fields there are, of which type.
 * A field that stands twice is refused too, because two readers could take
 * different ones.  Texts hold no zero byte: neither jsonb nor libpq keeps it.
 */
#include "conndoc.h"

#include <sodium.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "arena.h"
#include "conndoc_int.h"
#include "jspan.h"

const char *const conndoc_kinds[] = { "source", "sink", NULL };
const char *const conndoc_takeovers[] = { "stay", "adopt", "reset", NULL };

bool
conndoc_refuse(struct conndoc_read *rd, struct span path, const char *fmt, ...)
{
	char text[sizeof(rd->e->text)];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	err_set(rd->e, ERR_INPUT, "%.*s: %s",
		SPAN_ARG(path.n ? path : SPAN_LIT("document")), text);
	return false;
}

static struct span
below(struct conndoc_read *rd, struct span path, struct span key)
{
	if (path.n == 0)
		return key;
	return arena_printf(rd->a, "%.*s.%.*s", SPAN_ARG(path), SPAN_ARG(key));
}

struct span
conndoc_at(struct conndoc_read *rd, struct span path, size_t i)
{
	return arena_printf(rd->a, "%.*s[%zu]", SPAN_ARG(path), i);
}

/* ---- values ---- */

static bool
text_of(struct conndoc_read *rd, struct span path, const struct jspan_val *v,
	struct span *out)
{
	if (v->type != JSPAN_STRING)
		return conndoc_refuse(rd, path, "must be a string");
	if (!jspan_text(v, rd->a, out))
		return conndoc_refuse(
			rd, path, "holds half of a surrogate pair");
	if (out->n && memchr(out->p, 0, out->n))
		return conndoc_refuse(rd, path, "holds a zero byte");
	return true;
}

static bool
int_of(struct conndoc_read *rd, struct span path, const struct jspan_val *v,
	const struct conndoc_field *f, int64_t *out)
{
	if (v->type != JSPAN_NUMBER)
		return conndoc_refuse(rd, path,
			"must be a whole number, %jd..=%jd", (intmax_t)f->min,
			(intmax_t)f->max);
	if (!jspan_i64(v, out) || *out < f->min || *out > f->max)
		return conndoc_refuse(rd, path, "%.*s is outside %jd..=%jd",
			SPAN_ARG(span_clip(v->raw, 24)), (intmax_t)f->min,
			(intmax_t)f->max);
	return true;
}

/* What may stand there, for the texts of refusals. */
static struct span
choices(struct conndoc_read *rd, const char *const *words)
{
	struct span all = span_of(words[0]);

	for (size_t i = 1; words[i]; i++)
		all = arena_printf(rd->a, "%.*s%s%s", SPAN_ARG(all),
			words[i + 1] ? ", " : " or ", words[i]);
	return all;
}

static bool
word_of(struct conndoc_read *rd, struct span path, const struct jspan_val *v,
	const struct conndoc_field *f, void *out)
{
	struct span s;

	if (!text_of(rd, path, v, &s))
		return false;
	for (unsigned i = 0; f->words[i]; i++)
		if (span_is(s, f->words[i])) {
			memcpy(out, &i, sizeof(i));
			return true;
		}
	if (f->words == conndoc_ssls && span_is(s, "verify-ca"))
		return conndoc_refuse(
			rd, path, "verify-ca does not exist; use verify-full");
	return conndoc_refuse(rd, path, "\"%.*s\" is unknown; write %.*s",
		SPAN_ARG(span_clip(s, 64)), SPAN_ARG(choices(rd, f->words)));
}

static bool
texts_of(struct conndoc_read *rd, struct jspan *j, struct span path,
	struct conndoc_list *out)
{
	struct jspan_val v;
	size_t cap = 0;

	if (jspan_peek(j) != JSPAN_ARRAY)
		return conndoc_refuse(rd, path, "must be an array of strings");
	out->n = 0;
	out->p = arena_grown(rd->a, NULL, 0, &cap, sizeof(*out->p));
	jspan_enter_array(j);
	while (jspan_next_item(j)) {
		out->p = arena_grown(
			rd->a, out->p, out->n, &cap, sizeof(*out->p));
		if (!jspan_take(j, &v) ||
			!text_of(rd, conndoc_at(rd, path, out->n), &v,
				&out->p[out->n]))
			return false;
		out->n++;
	}
	return true;
}

bool
conndoc_value(struct conndoc_read *rd, struct jspan *j, struct span path,
	const struct conndoc_field *f, void *object)
{
	char *base = object;
	struct jspan_val v;

	if (!rd->stored &&
		(f->side == CONNDOC_QUEEND || f->side == CONNDOC_READS))
		return jspan_take(j, &v);
	if (f->type == CONNDOC_OWN)
		return f->own(rd, j, path, base + f->at);
	if (f->type == CONNDOC_TEXTS)
		return texts_of(rd, j, path, (void *)(base + f->at));
	if (!jspan_take(j, &v))
		return false;
	switch (f->type) {
	case CONNDOC_TEXT:
		return text_of(rd, path, &v, (void *)(base + f->at));
	case CONNDOC_INT:
		return int_of(rd, path, &v, f, (void *)(base + f->at));
	case CONNDOC_WORD:
		return word_of(rd, path, &v, f, base + f->at);
	case CONNDOC_BOOL:
		if (v.type != JSPAN_BOOL)
			return conndoc_refuse(
				rd, path, "must be true or false");
		*(bool *)(base + f->at) = v.truth;
		return true;
	default:
		BUG(true);
	}
}

/* ---- objects ---- */

static bool
unknown(struct conndoc_read *rd, struct span path, struct span key,
	const struct conndoc_field *f, size_t n)
{
	struct span all = SPAN_ZERO;

	for (size_t i = 0; i < n; i++)
		if (f[i].side == CONNDOC_BOTH || f[i].side == CONNDOC_CLIENT)
			all = arena_printf(rd->a, "%.*s%s%s", SPAN_ARG(all),
				all.n ? " " : "", f[i].name);
	return conndoc_refuse(rd, below(rd, path, span_clip(key, 64)),
		"unknown field; there are: %.*s", SPAN_ARG(all));
}

bool
conndoc_object(struct conndoc_read *rd, struct jspan *j, struct span path,
	const struct conndoc_field *f, size_t n, void *base, uint64_t *seen)
{
	struct span key;
	size_t i;

	*seen = 0;
	if (jspan_peek(j) != JSPAN_OBJECT)
		return conndoc_refuse(rd, path, "must be an object");
	jspan_enter_object(j);
	while (jspan_next_key(j, rd->a, &key)) {
		for (i = 0; i < n && !span_is(key, f[i].name); i++)
			continue;
		if (i == n || (rd->stored && f[i].side >= CONNDOC_READS))
			return unknown(rd, path, key, f, n);
		if (*seen & UINT64_C(1) << i)
			return conndoc_refuse(
				rd, below(rd, path, key), "stands twice");
		*seen |= UINT64_C(1) << i;
		if (!conndoc_value(rd, j, below(rd, path, key), &f[i], base))
			return false;
	}
	return !j->error || conndoc_refuse(rd, path, "%s", j->error);
}

/* ---- the top ---- */

struct top {
	struct conndoc d;
	struct span name;
};

static bool
read_deleting(
	struct conndoc_read *rd, struct jspan *j, struct span path, void *base)
{
	static const struct conndoc_field f[] = {
		{ .name = "dropSlot",
			.type = CONNDOC_BOOL,
			.at = offsetof(struct conndoc, drop_slot) },
		{ .name = "requestedAt",
			.type = CONNDOC_TEXT,
			.at = offsetof(struct conndoc, delete_requested_at) },
	};
	struct conndoc *d = base;
	uint64_t seen;

	d->deleting = true;
	if (!conndoc_object(rd, j, path, f, 2, d, &seen))
		return false;
	return seen == 3 ||
	       conndoc_refuse(rd, path, "needs dropSlot and requestedAt");
}

static bool
read_takeover(
	struct conndoc_read *rd, struct jspan *j, struct span path, void *base)
{
	static const struct conndoc_field f[] = {
		{ .name = "action",
			.type = CONNDOC_WORD,
			.at = offsetof(struct conndoc, takeover),
			.words = conndoc_takeovers },
		{ .name = "cell",
			.type = CONNDOC_TEXT,
			.at = offsetof(struct conndoc, takeover_cell) },
		{ .name = "requestedAt",
			.type = CONNDOC_TEXT,
			.at = offsetof(struct conndoc, takeover_requested_at) },
	};
	struct conndoc *d = base;
	uint64_t seen;

	if (!conndoc_object(rd, j, path, f, 3, d, &seen))
		return false;
	return seen == 7 ||
	       conndoc_refuse(rd, path, "needs action, cell and requestedAt");
}

/* Reads name it; a document must not be stored under another name. */
static bool
read_name(
	struct conndoc_read *rd, struct jspan *j, struct span path, void *base)
{
	const struct span *name = base;
	struct jspan_val v;
	struct span s;

	if (!jspan_take(j, &v) || !text_of(rd, path, &v, &s))
		return false;
	return span_eq(s, *name) ||
	       conndoc_refuse(rd, path,
		       "the path says %.*s; write that, or leave it out",
		       SPAN_ARG(*name));
}

#define AT(member) .at = offsetof(struct top, member)
enum {
	KIND,
	ENABLED,
	CONNECTION,
	SOURCE,
	SINK,
	UPDATED,
	RESYNC,
	DELETING,
	TAKEOVER,
	NAME,
	STATUS,
	STATE,
	WARNINGS,
	FIELDS
};
/* clang-format off */
static const struct conndoc_field fields[FIELDS] = {
	[KIND] = { .name = "kind", .type = CONNDOC_WORD, AT(d.kind),
		.words = conndoc_kinds },
	[ENABLED] = { .name = "enabled", .type = CONNDOC_BOOL, AT(d.enabled) },
	[CONNECTION] = { .name = "connection", .type = CONNDOC_OWN, AT(d.conn),
		.own = conndoc_read_conn },
	[SOURCE] = { .name = "source", .type = CONNDOC_OWN, AT(d.source),
		.own = conndoc_read_source },
	[SINK] = { .name = "sink", .type = CONNDOC_OWN, AT(d.sink),
		.own = conndoc_read_sink },
	[UPDATED] = { .name = "updatedAt", .type = CONNDOC_TEXT,
		AT(d.updated_at), .side = CONNDOC_QUEEND },
	[RESYNC] = { .name = "resyncRequestedAt", .type = CONNDOC_TEXT,
		AT(d.resync_requested_at), .side = CONNDOC_QUEEND },
	[DELETING] = { .name = "deleting", .type = CONNDOC_OWN, AT(d),
		.own = read_deleting, .side = CONNDOC_QUEEND },
	[TAKEOVER] = { .name = "takeover", .type = CONNDOC_OWN, AT(d),
		.own = read_takeover, .side = CONNDOC_QUEEND },
	[NAME] = { .name = "name", .type = CONNDOC_OWN, AT(name),
		.own = read_name, .side = CONNDOC_CLIENT },
	[STATUS] = { .name = "status", .side = CONNDOC_READS },
	[STATE] = { .name = "state", .side = CONNDOC_READS },
	[WARNINGS] = { .name = "warnings", .side = CONNDOC_READS },
};
/* clang-format on */
#undef AT

static bool
has(uint64_t seen, int field)
{
	return seen >> field & 1;
}

static bool
check_top(struct conndoc_read *rd, const struct conndoc *d, uint64_t seen)
{
	bool sink = d->kind == CONNDOC_SINK;

	if (!has(seen, KIND))
		return conndoc_refuse(rd, SPAN_LIT("kind"),
			"is missing; write source or sink");
	if (!has(seen, CONNECTION))
		return conndoc_refuse(rd, SPAN_LIT("connection"),
			"is missing; say how to reach the database");
	if (has(seen, sink ? SOURCE : SINK))
		return conndoc_refuse(rd, span_of(conndoc_kinds[!sink]),
			"a connector of kind %s has none; remove it",
			conndoc_kinds[sink]);
	if (!has(seen, sink ? SINK : SOURCE))
		return conndoc_refuse(rd, span_of(conndoc_kinds[sink]),
			"is missing; a connector of kind %s needs it",
			conndoc_kinds[sink]);
	return true;
}

static void
set_defaults(struct conndoc *d)
{
	d->enabled = true;
	d->conn.port = 5432;
	d->conn.ssl = CONNDOC_PREFER;
	d->conn.connect_timeout_ms = 10000;
	d->source.manage_publication = true;
	d->source.snapshot_chunk_rows = 2000;
	d->source.max_bundle_messages = 1000;
	d->source.max_bundle_bytes = 4194304;
	d->source.linger_ms = 20;
	d->source.heartbeat_s = 10;
	d->sink.batch = 500;
	d->sink.workers = 1;
	d->sink.lease_s = 60;
	d->sink.max_attempts = 3;
	d->sink.progress_table.text = SPAN_LIT("queen.sink_progress");
	d->sink.create_progress_table = true;
}

static bool
read_top(struct conndoc_read *rd, struct span json, struct top *t)
{
	struct span root = SPAN_ZERO;
	struct jspan j;
	uint64_t seen;

	jspan_open(&j, json);
	if (!conndoc_object(rd, &j, root, fields, FIELDS, t, &seen) ||
		!check_top(rd, &t->d, seen))
		return false;
	if (rd->url.p && !conndoc_fold(rd, &t->d.conn))
		return false;
	return conndoc_check(rd, &t->d);
}

static int
parse(struct conndoc_read *rd, struct span json, struct span name,
	struct conndoc **out)
{
	struct top *t = arena_zalloc(rd->a, sizeof(*t));
	const char *what;
	size_t at;

	*out = NULL;
	if (!jspan_valid(json, &what, &at))
		return err_set(rd->e, ERR_INPUT,
			"document: is not JSON: %s at offset %zu", what, at);
	set_defaults(&t->d);
	t->name = name;
	if (!read_top(rd, json, t)) {
		conndoc_wipe(&t->d);
		return -1;
	}
	*out = &t->d;
	return 0;
}

int
conndoc_parse(struct span json, struct span name, struct arena *a,
	struct conndoc **out, struct err *e)
{
	struct conndoc_read rd = { .a = a, .e = e };

	return parse(&rd, json, name, out);
}

int
conndoc_parse_stored(
	struct span json, struct arena *a, struct conndoc **out, struct err *e)
{
	struct conndoc_read rd = { .a = a, .e = e, .stored = true };

	return parse(&rd, json, (struct span)SPAN_ZERO, out);
}

void
conndoc_wipe_password(struct conndoc_conn *c)
{
	/* its readers put it into the arena, which is ours to write */
	if (c->password.n)
		sodium_memzero((char *)(uintptr_t)c->password.p, c->password.n);
	c->password = (struct span)SPAN_ZERO;
}

void
conndoc_wipe(struct conndoc *d)
{
	conndoc_wipe_password(&d->conn);
}

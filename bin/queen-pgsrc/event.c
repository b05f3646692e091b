/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a change becomes: planning, by replica identity and partition.  Bytes
 * are written in event_write.c.
 */
#include "event.h"

#include "buf.h"
#include "err.h"
#include "pgoutput.h"
#include "shape.h"

static bool
same_key(const struct shape *s, const struct tuple *a, const struct tuple *b)
{
	for (size_t i = 0; i < s->key_n; i++) {
		size_t c = s->key[i];

		if (!datum_eq(&a->d[c], &b->d[c]))
			return false;
	}
	return true;
}

/* What the old row knows of columns the new one did not bring. */
static void
fill_from_old(const struct shape *s, struct pgoutput_change *c)
{
	if (c->old_kind == PGOUTPUT_OLD_ROW) {
		for (size_t i = 0; i < c->new.n; i++) {
			if (c->new.d[i].state == DATUM_UNCHANGED)
				c->new.d[i] = c->old.d[i];
		}
		return;
	}
	for (size_t i = 0; i < s->key_n; i++) {
		struct datum *d = &c->new.d[s->key[i]];

		if (d->state == DATUM_UNCHANGED)
			*d = c->old.d[s->key[i]];
	}
}

static bool
has_unchanged(const struct tuple *t)
{
	for (size_t i = 0; i < t->n; i++) {
		if (t->d[i].state == DATUM_UNCHANGED)
			return true;
	}
	return false;
}

bool
event_wants_row(const struct shape *s, struct pgoutput *m)
{
	struct pgoutput_change *c = &m->change;

	if (m->kind != PGOUTPUT_UPDATE || c->old_kind != PGOUTPUT_OLD_KEY ||
		c->old.n != s->n || c->new.n != s->n)
		return false;
	fill_from_old(s, c);
	return has_unchanged(&c->new) && !same_key(s, &c->old, &c->new);
}

/* The columns that tell key and partition must have a value or be NULL. */
static bool
is_named(const struct shape *s, const struct tuple *t)
{
	if (t->n != s->n)
		return false;
	for (size_t i = 0; i < s->key_n; i++) {
		if (t->d[s->key[i]].state != DATUM_TEXT)
			return false;
	}
	for (size_t i = 0; i < s->by_n; i++) {
		if (t->d[s->by[i]].state == DATUM_UNCHANGED)
			return false;
	}
	return true;
}

static size_t
refuse(const struct shape *s, struct err *e, const char *what)
{
	err_set(e, ERR_IO, "the stream sent a row of %.*s %s",
		SPAN_ARG(s->table->label), what);
	return 0;
}

static bool
same_partition(
	const struct shape *s, const struct tuple *a, const struct tuple *b)
{
	for (size_t i = 0; i < s->by_n; i++) {
		size_t c = s->by[i];

		if (!datum_eq(&a->d[c], &b->d[c]))
			return false;
	}
	return true;
}

static size_t
plan_update(const struct shape *s, struct pgoutput_change *c,
	struct event ev[2], struct err *e)
{
	bool key_only = c->old_kind == PGOUTPUT_OLD_KEY;

	if (c->old_kind == PGOUTPUT_OLD_NONE) {
		if (!is_named(s, &c->new))
			return refuse(s, e, "without its key");
		ev[0] = (struct event){
			.op = 'u', .key = &c->new, .after = &c->new
		};
		return 1;
	}
	fill_from_old(s, c);
	if (!is_named(s, &c->new) || !is_named(s, &c->old))
		return refuse(s, e, "without its key");
	if (same_partition(s, &c->old, &c->new)) {
		ev[0] = (struct event){ .op = 'u',
			.key = &c->new,
			.after = &c->new,
			.before = &c->old,
			.before_is_key = key_only };
		return 1;
	}
	ev[0] = (struct event){ .op = 'd',
		.key = &c->old,
		.before = &c->old,
		.before_is_key = key_only };
	ev[1] = (struct event){ .op = 'c', .key = &c->new, .after = &c->new };
	return 2;
}

size_t
event_plan(const struct shape *s, struct pgoutput *m, struct event ev[2],
	struct err *e)
{
	struct pgoutput_change *c = &m->change;

	if ((m->kind != PGOUTPUT_DELETE && c->new.n != s->n) ||
		(c->old_kind != PGOUTPUT_OLD_NONE && c->old.n != s->n))
		return refuse(s, e, "that has not its width");
	if (m->kind == PGOUTPUT_UPDATE)
		return plan_update(s, c, ev, e);
	if (m->kind == PGOUTPUT_INSERT) {
		if (!is_named(s, &c->new))
			return refuse(s, e, "without its key");
		ev[0] = (struct event){
			.op = 'c', .key = &c->new, .after = &c->new
		};
		return 1;
	}
	if (!is_named(s, &c->old))
		return refuse(s, e, "without its key");
	ev[0] = (struct event){ .op = 'd',
		.key = &c->old,
		.before = &c->old,
		.before_is_key = c->old_kind == PGOUTPUT_OLD_KEY };
	return 1;
}

bool
event_moves_key(const struct shape *s, const struct pgoutput *m)
{
	const struct pgoutput_change *c = &m->change;

	return m->kind == PGOUTPUT_UPDATE && c->old_kind != PGOUTPUT_OLD_NONE &&
	       !same_key(s, &c->old, &c->new);
}

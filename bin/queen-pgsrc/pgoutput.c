/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The decoder.  A cursor walks the message; the first thing wrong sticks and
 * later reads give zero, so the message functions read straight through and
 * the end is checked once.
 */
#include "pgoutput.h"

#include "arena.h"
#include "err.h"
#include "jspan.h"
#include "wal.h"

struct cursor {
	const char *start, *p, *end;
	const char *bad; /* NULL, or what is wrong */
};

static void
fail(struct cursor *c, const char *what)
{
	if (!c->bad)
		c->bad = what;
}

static size_t
left(const struct cursor *c)
{
	return (size_t)(c->end - c->p);
}

static uint64_t
take_be(struct cursor *c, size_t n)
{
	uint64_t v = 0;

	if (c->bad || left(c) < n) {
		fail(c, "is cut short");
		return 0;
	}
	for (size_t i = 0; i < n; i++)
		v = v << 8 | (unsigned char)c->p[i];
	c->p += n;
	return v;
}

static uint32_t
take_u32(struct cursor *c)
{
	return (uint32_t)take_be(c, 4);
}

static char
take_char(struct cursor *c)
{
	return (char)take_be(c, 1);
}

static int64_t
take_time(struct cursor *c)
{
	return wal_time_us((int64_t)take_be(c, 8));
}

static struct span
take_bytes(struct cursor *c, size_t n)
{
	struct span s = SPAN_ZERO;

	if (c->bad || left(c) < n) {
		fail(c, "is cut short");
		return s;
	}
	s = span_make(c->p, n);
	c->p += n;
	return s;
}

/* A NUL-terminated string, without the NUL. */
static struct span
take_cstr(struct cursor *c)
{
	struct span s = SPAN_ZERO;
	const char *nul;

	if (c->bad)
		return s;
	nul = memchr(c->p, '\0', left(c));
	if (!nul) {
		fail(c, "has a string without end");
		return s;
	}
	s = span_make(c->p, (size_t)(nul - c->p));
	c->p = nul + 1;
	return s;
}

static struct span
take_name(struct cursor *c)
{
	struct span s = take_cstr(c);

	if (!jspan_utf8(s))
		fail(c, "has a name that is not UTF-8");
	return s;
}

/* pgoutput sends nothing for pg_catalog. */
static struct span
take_schema(struct cursor *c)
{
	struct span s = take_name(c);

	return s.n > 0 ? s : SPAN_LIT("pg_catalog");
}

/*
 * A count of things that take at least min_bytes each; more than there can
 * be in the rest is refused before anybody allocates.
 */
static size_t
take_count(struct cursor *c, size_t width, size_t min_bytes)
{
	uint64_t n = take_be(c, width);

	if (n > left(c) / min_bytes)
		fail(c, "counts more than it holds");
	return c->bad ? 0 : (size_t)n;
}

/* ---- rows ---- */

static void
take_datum(struct cursor *c, struct datum *d)
{
	char kind = take_char(c);

	*d = (struct datum){ .state = DATUM_NULL };
	switch (kind) {
	case 'n':
		return;
	case 'u':
		d->state = DATUM_UNCHANGED;
		return;
	case 't':
		d->state = DATUM_TEXT;
		d->text = take_bytes(c, take_u32(c));
		/* an SQL_ASCII database converts nothing */
		if (!c->bad && !jspan_utf8(d->text))
			fail(c, "has a value that is not UTF-8");
		return;
	default:
		fail(c, "has a value of unknown kind");
	}
}

static struct tuple
take_tuple(struct cursor *c, struct arena *a)
{
	struct tuple t = { .n = take_count(c, 2, 1) };

	t.d = arena_alloc(a, t.n * sizeof(*t.d));
	for (size_t i = 0; i < t.n; i++)
		take_datum(c, &t.d[i]);
	return t;
}

static void
take_old(struct cursor *c, struct arena *a, char mark,
	struct pgoutput_change *ch)
{
	ch->old_kind = mark == 'O' ? PGOUTPUT_OLD_ROW : PGOUTPUT_OLD_KEY;
	ch->old = take_tuple(c, a);
}

static void
parse_change(struct cursor *c, struct arena *a, struct pgoutput *m)
{
	struct pgoutput_change *ch = &m->change;
	char mark;

	*ch = (struct pgoutput_change){ .relation = take_u32(c) };
	mark = take_char(c);
	if (m->kind != PGOUTPUT_INSERT && (mark == 'K' || mark == 'O')) {
		take_old(c, a, mark, ch);
		if (m->kind == PGOUTPUT_DELETE)
			return;
		mark = take_char(c);
	}
	if (m->kind == PGOUTPUT_DELETE || mark != 'N') {
		fail(c, "has an unknown row mark");
		return;
	}
	ch->new = take_tuple(c, a);
	if (ch->old_kind != PGOUTPUT_OLD_NONE && ch->old.n != ch->new.n)
		fail(c, "has rows of unequal width");
}

static void
parse_truncate(struct cursor *c, struct arena *a, struct pgoutput *m)
{
	struct pgoutput_truncate *t = &m->truncate;
	uint32_t n = take_u32(c);
	unsigned options = (unsigned)take_be(c, 1);

	if (n > left(c) / 4)
		fail(c, "counts more than it holds");
	t->n = c->bad ? 0 : n;
	t->cascade = options & 1;
	t->restart_identity = options & 2;
	t->relations = arena_alloc(a, t->n * sizeof(*t->relations));
	for (size_t i = 0; i < t->n; i++)
		t->relations[i] = take_u32(c);
}

/* ---- the others ---- */

static void
parse_begin(struct cursor *c, struct pgoutput_begin *b)
{
	b->final_lsn = take_be(c, 8);
	b->at_us = take_time(c);
	b->xid = take_u32(c);
}

static void
parse_commit(struct cursor *c, struct pgoutput_commit *m)
{
	take_char(c); /* flags, none defined */
	m->commit_lsn = take_be(c, 8);
	m->end_lsn = take_be(c, 8);
	m->at_us = take_time(c);
}

static void
parse_relation(struct cursor *c, struct arena *a, struct pgoutput_relation *r)
{
	r->oid = take_u32(c);
	r->schema = take_schema(c);
	r->name = take_name(c);
	r->identity = take_char(c);
	if (!c->bad && !memchr("dnfi", r->identity, 4))
		fail(c, "has an unknown replica identity");
	/* flags, an empty name, two numbers */
	r->n = take_count(c, 2, 10);
	r->columns = arena_alloc(a, r->n * sizeof(*r->columns));
	for (size_t i = 0; i < r->n; i++) {
		struct pgoutput_column *col = &r->columns[i];

		col->key = take_be(c, 1) & 1;
		col->name = take_name(c);
		col->type_oid = take_u32(c);
		col->typmod = (int32_t)take_u32(c);
	}
}

static void
parse_message(struct cursor *c, struct pgoutput_message *m)
{
	m->transactional = take_be(c, 1) & 1;
	m->lsn = take_be(c, 8);
	m->prefix = take_cstr(c);
	m->content = take_bytes(c, take_u32(c));
}

/* False: a tag we do not know. */
static bool
parse_body(struct cursor *c, char tag, struct arena *a, struct pgoutput *m)
{
	static const char tags[] = "?BCORYIUDTM";
	const char *at = memchr(tags + 1, tag, sizeof(tags) - 2);

	m->kind = at ? (enum pgoutput_kind)(at - tags) : PGOUTPUT_OTHER;
	switch (m->kind) {
	case PGOUTPUT_OTHER:
		return false;
	case PGOUTPUT_BEGIN:
		parse_begin(c, &m->begin);
		break;
	case PGOUTPUT_COMMIT:
		parse_commit(c, &m->commit);
		break;
	case PGOUTPUT_ORIGIN:
		m->origin.lsn = take_be(c, 8);
		m->origin.name = take_name(c);
		break;
	case PGOUTPUT_RELATION:
		parse_relation(c, a, &m->relation);
		break;
	case PGOUTPUT_TYPE:
		m->type.oid = take_u32(c);
		m->type.schema = take_schema(c);
		m->type.name = take_name(c);
		break;
	case PGOUTPUT_INSERT:
	case PGOUTPUT_UPDATE:
	case PGOUTPUT_DELETE:
		parse_change(c, a, m);
		break;
	case PGOUTPUT_TRUNCATE:
		parse_truncate(c, a, m);
		break;
	case PGOUTPUT_MESSAGE:
		parse_message(c, &m->message);
		break;
	}
	return true;
}

int
pgoutput_parse(
	struct span data, struct arena *a, struct pgoutput *m, struct err *e)
{
	struct cursor c = { .start = data.p, .p = data.p };
	char tag;

	if (data.n == 0)
		return err_set(e, ERR_IO, "the stream sent an empty message");
	c.end = data.p + data.n;
	tag = take_char(&c);
	if (!parse_body(&c, tag, a, m))
		return 0;
	if (!c.bad && c.p != c.end)
		fail(&c, "is too long");
	if (c.bad)
		return err_set(e, ERR_IO,
			"message '%c' of the stream %s, at byte %zu of %zu",
			tag, c.bad, (size_t)(c.p - c.start), data.n);
	return 0;
}

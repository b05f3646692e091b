/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Transactions of the stream as a copy sees them: what they touched, which of
 * them are remembered, and when nothing has to be remembered any more.  One is
 * kept as long as the last snapshot does not see it, in a bounded memory:
 * past the bound all is forgotten, the chunk too, and the copy waits until
 * what was forgotten is visible to everybody.
 */
#include "snapshot_int.h"

#include <stdio.h>
#include <stdlib.h>

#include "err.h"

void
snapshot_begin(struct snapshot *s)
{
	arena_reset(&s->open_arena);
	s->open = NULL;
	s->deaf = false;
}

static void
forget_all(struct snapshot *s)
{
	snapshot_trim(s, NULL);
	snapshot_begin(s);
	snapshot_forget(s);
	s->deaf = true;
	s->seen.xmax = 0;
	s->ready = false;
	s->wait_xid = 0;
	s->waits++;
}

void
snapshot_touch(struct snapshot *s, size_t table, enum snapshot_effect kind,
	struct span key_code, const struct span *unchanged, size_t unchanged_n)
{
	struct arena *a = &s->open_arena;
	struct snapshot_change *f;
	struct snapshot_txn *t;

	if (s->deaf)
		return;
	if (!s->open) {
		s->open = arena_zalloc(a, sizeof(*s->open));
		s->open->last = &s->open->first;
		s->open->bytes = sizeof(*s->open);
	}
	t = s->open;
	f = arena_zalloc(a, sizeof(*f));
	f->table = table;
	f->kind = kind;
	f->key = arena_dup(a, key_code);
	f->unchanged_n = unchanged_n;
	f->unchanged = arena_alloc(a, unchanged_n * sizeof(*f->unchanged));
	t->bytes += sizeof(*f) + key_code.n + unchanged_n * sizeof(*unchanged);
	for (size_t i = 0; i < unchanged_n; i++) {
		f->unchanged[i] = arena_dup(a, unchanged[i]);
		t->bytes += unchanged[i].n;
	}
	*t->last = f;
	t->last = &f->next;
	t->n++;
	if (s->open_arena.total_bytes + s->remembered_bytes > s->memory_bytes)
		forget_all(s);
}

static struct span
moved(char **to, struct span s)
{
	char *p = *to;

	if (s.n > 0)
		memcpy(p, s.p, s.n);
	*to += s.n;
	return span_make(p, s.n);
}

/* The open one as one block: there may be many, and most are small. */
static struct snapshot_txn *
packed(const struct snapshot_txn *open)
{
	struct snapshot_txn *t = malloc(open->bytes);
	struct snapshot_change *f;
	const struct snapshot_change *o;
	struct span *names;
	char *text;

	if (!t) {
		fprintf(stderr, "out of memory: %zu bytes\n", open->bytes);
		abort();
	}
	f = (struct snapshot_change *)(t + 1);
	names = (struct span *)(f + open->n);
	*t = *open;
	t->next = NULL;
	t->first = NULL;
	t->last = &t->first;
	text = (char *)names;
	for (o = open->first; o; o = o->next)
		text += o->unchanged_n * sizeof(*names);
	for (o = open->first; o; o = o->next, f++) {
		*f = *o;
		f->next = NULL;
		f->key = moved(&text, o->key);
		f->unchanged = names;
		for (size_t i = 0; i < o->unchanged_n; i++)
			*names++ = moved(&text, o->unchanged[i]);
		*t->last = f;
		t->last = &f->next;
	}
	return t;
}

void
snapshot_commit(struct snapshot *s, uint32_t xid)
{
	struct snapshot_chunk *c = s->chunk;
	struct snapshot_txn *t = s->open;
	bool seen;

	s->open = NULL;
	if (!t)
		return;
	/* before the first snapshot nothing is known: remember it */
	seen = s->seen.xmax > 0 && snapshot_sees(&s->seen, xid);
	if (c && c->held && (c->open || !seen))
		snapshot_apply(c, t);
	if (seen)
		return;
	t->xid = xid;
	t = packed(t);
	s->remembered_bytes += t->bytes;
	*s->last = t;
	s->last = &t->next;
}

void
snapshot_trim(struct snapshot *s, const struct snapshot_seen *seen)
{
	struct snapshot_txn *t, **at = &s->first;

	while ((t = *at)) {
		if (seen && !snapshot_sees(seen, t->xid)) {
			at = &t->next;
			continue;
		}
		*at = t->next;
		s->remembered_bytes -= t->bytes;
		free(t);
	}
	s->last = at;
}

int
snapshot_judge(struct snapshot *s, struct span seen_text, struct err *e)
{
	struct arena a = ARENA_ZERO;
	struct snapshot_seen seen;

	if (snapshot_seen_parse(seen_text, &a, &seen, e) != 0) {
		arena_fini(&a);
		return -1;
	}
	arena_fini(&s->seen_arena);
	s->seen_arena = a;
	s->seen = seen;
	snapshot_trim(s, &s->seen);
	return 0;
}

bool
snapshot_must_wait(const struct snapshot *s)
{
	return !s->ready;
}

void
snapshot_wait(struct snapshot *s, uint64_t xid)
{
	s->wait_xid = xid;
}

int
snapshot_look(struct snapshot *s, struct span seen_text, struct err *e)
{
	if (snapshot_judge(s, seen_text, e) != 0)
		return -1;
	s->ready |= s->wait_xid > 0 && s->seen.xmin >= s->wait_xid;
	return 0;
}

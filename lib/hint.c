/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The hint connection.  Invariant: what waits is a set without repeats of at
 * most HINT_WAITING_MAX items; beyond that, or when the link is down or slow,
 * the set is dropped as a whole and replaced by one HINT_RESYNC.
 */
#include "hint.h"

#include <stdlib.h>
#include <string.h>

#include "buf.h"
#include "err.h"
#include "log.h"
#include "loop.h"
#include "map.h"
#include "pgbin.h"
#include "pgconn.h"

enum {
	HINT_COALESCE_MS = 5,
	HINT_WAITING_MAX = 65536,
	HINT_LAG_MS = 10000, /* a NOTIFY that takes longer is lost */
	HINT_ECHO_MS = 5000, /* until one's own NOTIFY has to be heard */
};

struct hint {
	struct loop *loop;
	struct pgconn *conn;
	struct hint_events ev;
	struct buf name; /* as in a payload */
	struct hint_item *items;
	size_t items_n, items_cap;
	uint32_t *set; /* places: index of the item + 1, 0 = free */
	size_t set_cap; /* power of two, over 2 * items_n */
	struct loop_timer timer;
	struct loop_timer echo; /* runs until we heard ourselves */
	bool flying;
	bool lost; /* something was dropped */
	struct hint_stats stats;
};

static void hint_flush(void *arg);

static uint64_t
item_hash(const struct hint_item *i)
{
	return map_hash_i64(i->part_id) ^ map_hash_i64(i->queue_id) * 3 ^
	       map_hash_i64(i->group_id) * 5 ^ ((uint64_t)i->kind << 7);
}

static bool
item_eq(const struct hint_item *a, const struct hint_item *b)
{
	return a->kind == b->kind && a->queue_id == b->queue_id &&
	       a->group_id == b->group_id && a->part_id == b->part_id;
}

static void
set_grow(struct hint *h)
{
	size_t cap = h->set_cap ? h->set_cap * 2 : 256;

	free(h->set);
	h->set = calloc(cap, sizeof(*h->set));
	if (!h->set)
		abort();
	h->set_cap = cap;
	for (size_t i = 0; i < h->items_n; i++) {
		size_t at = item_hash(&h->items[i]) & (cap - 1);

		while (h->set[at])
			at = (at + 1) & (cap - 1);
		h->set[at] = (uint32_t)i + 1;
	}
}

/* False when it waits already. */
static bool
set_add(struct hint *h, const struct hint_item *i)
{
	if (h->set_cap < (h->items_n + 1) * 2)
		set_grow(h);
	size_t at = item_hash(i) & (h->set_cap - 1);

	while (h->set[at]) {
		if (item_eq(&h->items[h->set[at] - 1], i))
			return false;
		at = (at + 1) & (h->set_cap - 1);
	}
	if (h->items_n == h->items_cap) {
		h->items_cap = h->items_cap ? h->items_cap * 2 : 128;
		h->items =
			reallocarray(h->items, h->items_cap, sizeof(*h->items));
		if (!h->items)
			abort();
	}
	h->items[h->items_n++] = *i;
	h->set[at] = (uint32_t)h->items_n;
	return true;
}

/* After a burst the memory goes back. */
static void
set_clear(struct hint *h)
{
	if (h->items_cap > 4096) {
		free(h->items);
		free(h->set);
		h->items = NULL;
		h->set = NULL;
		h->items_cap = h->set_cap = 0;
	} else if (h->set_cap) {
		memset(h->set, 0, h->set_cap * sizeof(*h->set));
	}
	h->items_n = 0;
}

static void
drop_all(struct hint *h)
{
	h->stats.dropped += h->items_n;
	h->lost = true;
	set_clear(h);
}

static void
on_sent(void *arg, const PGresult *res, const struct err *e)
{
	struct hint *h = arg;

	(void)res;
	h->flying = false;
	if (e)
		h->lost = true;
	if (h->items_n || (h->lost && pgconn_is_up(h->conn)))
		hint_flush(h);
}

static void
hint_flush(void *arg)
{
	struct hint *h = arg;

	if (h->flying)
		return; /* on_sent comes back here */
	if (!pgconn_is_up(h->conn)) {
		drop_all(h);
		return;
	}
	if (h->lost) {
		struct hint_item all = { .kind = HINT_RESYNC };

		set_add(h, &all);
		h->lost = false;
	}
	if (!h->items_n)
		return;
	qsort(h->items, h->items_n, sizeof(*h->items), hint_item_cmp);
	struct pgargs a;
	struct buf b = BUF_ZERO;
	size_t at = 0;

	pgargs_init(&a);
	pgargs_array(&a, PGARGS_TEXT);
	while (at < h->items_n) {
		buf_reset(&b);
		at += hint_write(
			&b, buf_span(&h->name), h->items + at, h->items_n - at);
		pgargs_item_text(&a, buf_span(&b));
		h->stats.payloads++;
	}
	pgargs_close(&a);
	buf_fini(&b);
	h->stats.sent += h->items_n;
	set_clear(h);
	h->flying = true;
	pgconn_send(h->conn,
		"select pg_notify('queen_hint', p) from unnest($1::text[]) p",
		&a, on_sent, h);
}

void
hint_send(struct hint *h, enum hint_kind kind, int64_t queue_id,
	int64_t group_id, int64_t part_id)
{
	struct hint_item i = { .kind = kind,
		.queue_id = queue_id,
		.group_id = group_id,
		.part_id = part_id };

	if (!pgconn_is_up(h->conn)) {
		h->stats.dropped++;
		h->lost = true;
		return;
	}
	if (!set_add(h, &i))
		return;
	if (h->items_n > HINT_WAITING_MAX)
		drop_all(h);
	if (!h->flying && !loop_timer_pending(&h->timer))
		loop_timer_start(&h->timer, HINT_COALESCE_MS);
}

static void
count_and_pass(void *arg, const struct hint_item *i)
{
	struct hint *h = arg;

	h->stats.received++;
	h->ev.on_hint(h->ev.arg, i);
}

/* ---- is anything heard at all ---- */

static void
on_silence(void *arg)
{
	struct hint *h = arg;

	h->stats.deaf = true;
	log_line(LOG_WARN, "hint",
		"NOTIFY is not heard, not even our own: use a direct or a "
		"session-mode connection; looking once a second until then",
		NULL);
}

/* Our name and nothing more: to others it is no hint. */
static void
send_echo(struct hint *h)
{
	struct pgargs a;
	struct buf b = BUF_ZERO;

	buf_put(&b, h->name.p, h->name.len);
	buf_putc(&b, ' ');
	pgargs_init(&a);
	pgargs_text(&a, buf_span(&b));
	buf_fini(&b);
	h->flying = true;
	pgconn_send(
		h->conn, "select pg_notify('queen_hint', $1)", &a, on_sent, h);
}

static bool
is_own(const struct hint *h, struct span payload)
{
	return payload.n > h->name.len && payload.p[h->name.len] == ' ' &&
	       memcmp(payload.p, h->name.p, h->name.len) == 0;
}

static void
on_notify(void *arg, const PGnotify *n)
{
	struct hint *h = arg;
	struct err e = ERR_ZERO;

	if (strcmp(n->relname, "queen_hint") != 0)
		return;
	loop_timer_stop(&h->echo);
	h->stats.deaf = false;
	if (is_own(h, span_of(n->extra)))
		return;
	/* what does not parse was not sent by one of us: no harm, no word */
	if (hint_parse(span_of(n->extra), buf_span(&h->name), count_and_pass, h,
		    &e))
		return;
}

static void
on_event(void *arg, enum pgconn_event ev, const struct err *why)
{
	struct hint *h = arg;

	(void)why; /* the pool reports the state of the database */
	if (ev == PGCONN_UP) {
		if (h->lost)
			hint_flush(h);
		else if (!h->flying)
			send_echo(h);
		loop_timer_start(&h->echo, HINT_ECHO_MS);
		h->ev.on_up(h->ev.arg);
		return;
	}
	loop_timer_stop(&h->echo);
	if (h->items_n)
		drop_all(h);
}

struct hint *
hint_new(struct loop *l, const char *conninfo, const char *application_name,
	const char *instance, const struct hint_events *ev)
{
	struct hint *h = calloc(1, sizeof(*h));
	struct span name = span_of(instance);

	if (!h)
		abort();
	if (name.n > HINT_NAME_MAX)
		name.n = HINT_NAME_MAX;
	h->loop = l;
	h->ev = *ev;
	hint_write_name(&h->name, name);
	loop_timer_init(&h->timer, l, hint_flush, h);
	loop_timer_init(&h->echo, l, on_silence, h);
	h->conn = pgconn_new(l, conninfo, application_name, on_event, h);
	pgconn_session_add(h->conn, "listen queen_hint");
	pgconn_on_notify(h->conn, on_notify, h);
	pgconn_limit(h->conn, HINT_LAG_MS);
	return h;
}

void
hint_free(struct hint *h)
{
	if (!h)
		return;
	pgconn_free(h->conn);
	loop_timer_fini(&h->timer);
	loop_timer_fini(&h->echo);
	buf_fini(&h->name);
	free(h->items);
	free(h->set);
	free(h);
}

void
hint_stats(const struct hint *h, struct hint_stats *out)
{
	*out = h->stats;
	out->up = pgconn_is_up(h->conn) && !h->stats.deaf;
}

/* ---- the payload ---- */

static const char KIND_LETTERS[HINT_KINDS] = { 'm', 'r', 'd', 'v', 'c', 'f',
	'j', 'e', 'q', 'x' };

void
hint_write_name(struct buf *b, struct span name)
{
	for (size_t i = 0; i < name.n; i++) {
		unsigned char c = (unsigned char)name.p[i];

		if (c > 0x20 && c < 0x7f && c != '%')
			buf_putc(b, (char)c);
		else
			buf_printf(b, "%%%02X", c);
	}
	if (!name.n)
		buf_putc(b, '%'); /* an empty name is still a word */
}

/* 13 digits hold any id; ids are never negative. */
static size_t
write_36(char out[16], int64_t id)
{
	char tmp[16];
	size_t n = 0;
	uint64_t v = id > 0 ? (uint64_t)id : 0;

	do {
		tmp[n++] = "0123456789abcdefghijklmnopqrstuvwxyz"[v % 36];
		v /= 36;
	} while (v);
	for (size_t i = 0; i < n; i++)
		out[i] = tmp[n - 1 - i];
	return n;
}

static bool
same_head(const struct hint_item *a, const struct hint_item *b)
{
	return a->kind == b->kind && a->queue_id == b->queue_id &&
	       a->group_id == b->group_id && a->part_id && b->part_id;
}

size_t
hint_write(struct buf *b, struct span wire_name, const struct hint_item *items,
	size_t n)
{
	size_t start = b->len, i;

	buf_put_span(b, wire_name);
	for (i = 0; i < n; i++) {
		const struct hint_item *it = &items[i];
		char id[16];
		/* kind, three ids, four separators */
		char text[64];
		size_t len = 0, k;

		if (i && same_head(&items[i - 1], it)) {
			text[len++] = ',';
		} else {
			text[len++] = ' ';
			text[len++] = KIND_LETTERS[it->kind];
			k = write_36(id, it->queue_id);
			if (it->queue_id > 0) {
				memcpy(text + len, id, k);
				len += k;
			}
			if (it->group_id > 0 || it->part_id > 0)
				text[len++] = '.';
			if (it->group_id > 0) {
				k = write_36(id, it->group_id);
				memcpy(text + len, id, k);
				len += k;
			}
			if (it->part_id > 0)
				text[len++] = '.';
		}
		if (it->part_id > 0) {
			k = write_36(id, it->part_id);
			memcpy(text + len, id, k);
			len += k;
		}
		if (i && b->len - start + len > HINT_PAYLOAD_MAX)
			break;
		buf_put(b, text, len);
	}
	return i;
}

int
hint_item_cmp(const void *a, const void *b)
{
	const struct hint_item *x = a, *y = b;

	if (x->kind != y->kind)
		return x->kind < y->kind ? -1 : 1;
	if (x->queue_id != y->queue_id)
		return x->queue_id < y->queue_id ? -1 : 1;
	if (x->group_id != y->group_id)
		return x->group_id < y->group_id ? -1 : 1;
	if (x->part_id != y->part_id)
		return x->part_id < y->part_id ? -1 : 1;
	return 0;
}

/* Reads digits into *id, 0 when there are none; false on overflow. */
static bool
read_36(const char **p, const char *end, int64_t *id)
{
	int64_t v = 0;

	for (; *p < end; (*p)++) {
		char c = **p;
		int digit;

		if (c >= '0' && c <= '9')
			digit = c - '0';
		else if (c >= 'a' && c <= 'z')
			digit = c - 'a' + 10;
		else
			break;
		if (v > (INT64_MAX - digit) / 36)
			return false;
		v = v * 36 + digit;
	}
	*id = v;
	return true;
}

static bool
read_kind(char c, enum hint_kind *kind)
{
	for (int k = 0; k < HINT_KINDS; k++) {
		if (KIND_LETTERS[k] == c) {
			*kind = (enum hint_kind)k;
			return true;
		}
	}
	return false;
}

int
hint_parse(struct span payload, struct span own_wire_name,
	void (*fn)(void *arg, const struct hint_item *i), void *arg,
	struct err *e)
{
	const char *p = payload.p, *end = payload.p + payload.n;
	const char *space = payload.n ? memchr(p, ' ', payload.n) : NULL;

	if (!space || space == p)
		return err_set(e, ERR_INPUT, "hint without a name");
	if (span_eq(span_make(p, (size_t)(space - p)), own_wire_name))
		return 0;
	p = space;
	while (p < end) {
		struct hint_item i = { .queue_id = 0 };

		if (*p++ != ' ' || p == end || !read_kind(*p++, &i.kind) ||
			!read_36(&p, end, &i.queue_id))
			goto bad;
		if (p < end && *p == '.') {
			p++;
			if (!read_36(&p, end, &i.group_id))
				goto bad;
		}
		if (p == end || *p != '.') {
			fn(arg, &i);
			continue;
		}
		do {
			p++;
			if (!read_36(&p, end, &i.part_id) || !i.part_id)
				goto bad;
			fn(arg, &i);
		} while (p < end && *p == ',');
	}
	return 0;
bad:
	return err_set(e, ERR_INPUT, "hint does not parse at byte %zu",
		(size_t)(p - payload.p));
}

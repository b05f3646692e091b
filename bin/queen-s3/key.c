/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Keys are made of escaped names and numbers alone, so no name leaves its
 * prefix, and what is compared as text is in the order of windows.
 */
#include "key.h"

#include <inttypes.h>
#include <string.h>

#include "buf.h"
#include "format.h"
#include "hash.h"
#include "stamp.h"

enum {
	CUT_BYTES = 1 + 32,
	PART_END_BYTES = 2 * 20 + 1 + 9, /* -first-last.jsonl.zst */
	PART_BYTES = 3 + CUT_BYTES + PART_END_BYTES, /* of the shortest name */
};

static bool
is_plain(char c)
{
	return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') ||
	       (c >= '0' && c <= '9') || c == '.' || c == '_' || c == '-';
}

void
key_escape(struct buf *b, struct span name)
{
	static const char hex[] = "0123456789ABCDEF";

	for (size_t i = 0; i < name.n; i++) {
		unsigned char c = (unsigned char)name.p[i];

		if (is_plain((char)c)) {
			buf_putc(b, (char)c);
		} else {
			buf_putc(b, '%');
			buf_putc(b, hex[c >> 4]);
			buf_putc(b, hex[c & 15]);
		}
	}
}

void
key_unescape(struct buf *b, struct span text)
{
	for (size_t i = 0; i < text.n; i++) {
		int hi = -1, lo = -1;

		if (text.p[i] == '%' && text.n - i > 2) {
			hi = span_hex(text.p[i + 1]);
			lo = span_hex(text.p[i + 2]);
		}
		if (hi < 0 || lo < 0) {
			buf_putc(b, text.p[i]);
			continue;
		}
		buf_putc(b, (char)(hi << 4 | lo));
		i += 2;
	}
}

/* ---- objects ---- */

static void
put_number(struct buf *b, int width, int64_t v)
{
	buf_printf(b, "%0*" PRId64, width, v < 0 ? 0 : v);
}

static void
put_names(struct buf *b, const struct key_of *o)
{
	buf_puts(b, "/tenant=");
	key_escape(b, o->tenant);
	buf_puts(b, "/queue=");
	key_escape(b, o->queue);
}

/* Of the escaped name that begins at `at`; no escape is split. */
static void
cut(struct buf *b, size_t at, size_t room, struct span name)
{
	char hex[65];

	if (b->len - at <= room || room < CUT_BYTES)
		return;
	room -= CUT_BYTES;
	if (room >= 1 && b->p[at + room - 1] == '%')
		room--;
	else if (room >= 2 && b->p[at + room - 2] == '%')
		room -= 2;
	b->len = at + room;
	hash_sha256_hex(name, hex);
	buf_printf(b, "~%.32s", hex);
}

/* from: where the key begins. */
static void
put_part(struct buf *b, size_t from, const struct key_part *p)
{
	size_t at, used;

	buf_puts(b, "-p-");
	at = b->len;
	used = at - from + PART_END_BYTES;
	key_escape(b, p->partition);
	cut(b, at, used < KEY_MAX_BYTES ? KEY_MAX_BYTES - used : 0,
		p->partition);
	buf_putc(b, '-');
	put_number(b, 12, p->first);
	buf_putc(b, '-');
	put_number(b, 12, p->last);
}

void
key_data(struct buf *b, const struct key_of *o, const struct key_window *w,
	const struct key_part *p)
{
	struct stamp_parts t;
	size_t from = b->len;

	stamp_split(w->start_us, &t);
	buf_puts(b, o->prefix);
	put_names(b, o);
	buf_printf(b, "/dt=%04d-%02d-%02d", t.year, t.month, t.day);
	if (w->align != S3_DAY)
		buf_printf(b, "/hour=%02d", t.hour);
	buf_puts(b, "/w-");
	put_number(b, 10, w->k);
	buf_putc(b, '-');
	put_number(b, 16, w->start_us);
	buf_putc(b, '-');
	put_number(b, 16, w->end_us);
	if (p)
		put_part(b, from, p);
	buf_printf(b, ".%s", format_extension(w->format, w->codec));
}

bool
key_fits(const struct key_of *o, const char *sink)
{
	static const struct key_window longest = { .k = INT64_C(1) << 50,
		.end_us = INT64_C(1) << 53 };
	struct buf key = BUF_ZERO, row = BUF_ZERO;
	bool fits;

	key_data(&key, o, &longest, NULL);
	key_row(&row, sink, o->queue, KEY_COMMITTED);
	fits = key.len + PART_BYTES <= KEY_MAX_BYTES &&
	       row.len <= KEY_ROW_MAX_BYTES;
	buf_fini(&key);
	buf_fini(&row);
	return fits;
}

/* `_queen` is no Hive component: a glob over the data never sees it. */
static void
put_sidecars(struct buf *b, const struct key_of *o, const char *folder)
{
	buf_puts(b, o->prefix);
	buf_puts(b, "/_queen");
	put_names(b, o);
	buf_printf(b, "/%s/", folder);
}

static void
put_sidecar(struct buf *b, const struct key_of *o, const char *folder,
	int64_t k, const char *ext)
{
	put_sidecars(b, o, folder);
	put_number(b, 10, k);
	buf_puts(b, ext);
}

void
key_manifest(struct buf *b, const struct key_of *o, int64_t k)
{
	put_sidecar(b, o, "windows", k, ".json");
}

void
key_plan(struct buf *b, const struct key_of *o, int64_t k)
{
	put_sidecar(b, o, "plans", k, ".json.zst");
}

void
key_checkpoint(struct buf *b, const struct key_of *o, int64_t k)
{
	put_sidecar(b, o, "checkpoint", k, ".json.zst");
}

void
key_manifests(struct buf *b, const struct key_of *o)
{
	put_sidecars(b, o, "windows");
}

void
key_checkpoints(struct buf *b, const struct key_of *o)
{
	put_sidecars(b, o, "checkpoint");
}

/* The digits between the last folder and ext. */
static bool
number_of(struct span key, const char *folder, const char *ext, int64_t *k)
{
	size_t folder_n = strlen(folder), ext_n = strlen(ext);
	const char *at = memrchr(key.p, '/', key.n);
	struct span s;

	if (!at || (size_t)(at + 1 - key.p) < folder_n ||
		memcmp(at + 1 - folder_n, folder, folder_n) != 0)
		return false;
	s = span_make(at + 1, (size_t)(key.p + key.n - (at + 1)));
	if (s.n <= ext_n || memcmp(s.p + s.n - ext_n, ext, ext_n) != 0)
		return false;
	s.n -= ext_n;
	return *s.p != '-' && span_i64(s, k);
}

bool
key_manifest_k(struct span key, int64_t *k)
{
	return key.n > 0 && number_of(key, "/windows/", ".json", k);
}

bool
key_checkpoint_k(struct span key, int64_t *k)
{
	return key.n > 0 && number_of(key, "/checkpoint/", ".json.zst", k);
}

/* ---- rows ---- */

void
key_row(struct buf *b, const char *sink, struct span queue, enum key_row what)
{
	static const char *const names[] = {
		[KEY_LEASE] = "lease",
		[KEY_INTENT] = "intent",
		[KEY_COMMITTED] = "committed",
		[KEY_RESUME] = "resume",
	};

	buf_printf(b, "s3:%s:", sink);
	key_escape(b, queue);
	buf_printf(b, ":%s", names[what]);
}

/* `=` is escaped in the name of a queue: none lies under this prefix. */
void
key_nodes(struct buf *b, const char *sink)
{
	buf_printf(b, "s3:%s:node=", sink);
}

void
key_node(struct buf *b, const char *sink, struct span instance)
{
	key_nodes(b, sink);
	key_escape(b, instance);
}

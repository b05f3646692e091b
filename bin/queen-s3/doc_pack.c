/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One zstd frame of JSON, written and read as a stream: neither the plain text
 * nor a tree of it is ever in memory.  The frame is cut at the same places for
 * the same content, so the same content is the same bytes.
 */
#include <stdlib.h>
#include <string.h>
#include <zstd.h>

#include "doc_int.h"
#include "err.h"
#include "object.h"

enum {
	LEVEL = 1,
	STEP_BYTES = 64 << 10, /* plain, at a time */
	ITEM_MAX = 1 << 20, /* plain; of what is beside the list too */
	WINDOW_LOG_MAX = 24 /* older writers used level 3: 21 */
};

static void *
must(void *p)
{
	BUG(!p);
	return p;
}

/* ---- writing ---- */

struct doc_pack {
	ZSTD_CCtx *ctx;
	struct object *out;
	struct buf b;
};

struct doc_pack *
doc_pack_new(struct object *out)
{
	struct doc_pack *p = must(calloc(1, sizeof(*p)));

	p->ctx = must(ZSTD_createCCtx());
	p->out = out;
	BUG(ZSTD_isError(ZSTD_CCtx_setParameter(
		p->ctx, ZSTD_c_compressionLevel, LEVEL)));
	return p;
}

struct buf *
doc_pack_buf(struct doc_pack *p)
{
	return &p->b;
}

static void
pack(struct doc_pack *p, ZSTD_EndDirective how)
{
	ZSTD_inBuffer in = { .src = p->b.p, .size = p->b.len };
	size_t left;

	do {
		ZSTD_outBuffer out = { .pos = 0 };

		out.dst = object_room(p->out, &out.size);
		left = ZSTD_compressStream2(p->ctx, &out, &in, how);
		BUG(ZSTD_isError(left));
		object_took(p->out, out.pos);
	} while (how == ZSTD_e_end ? left > 0 : in.pos < in.size);
	buf_reset(&p->b);
}

void
doc_pack_more(struct doc_pack *p)
{
	if (p->b.len >= STEP_BYTES)
		pack(p, ZSTD_e_continue);
}

void
doc_pack_end(struct doc_pack *p)
{
	pack(p, ZSTD_e_end);
	ZSTD_freeCCtx(p->ctx);
	buf_fini(&p->b);
	free(p);
}

/* ---- reading ---- */

enum place { AT_START, IN_OBJECT, IN_LIST, AT_END };

struct doc_unpack {
	ZSTD_DCtx *ctx;
	ZSTD_inBuffer in;
	bool frame_ended;
	size_t decoded_bytes;
	const char *list;
	bool had_list;
	enum place place;
	bool first; /* nothing read yet in the list or object */
	struct buf b; /* plain, from `at` on not read yet */
	size_t at;
	struct buf rest;
};

struct doc_unpack *
doc_unpack_new(struct span packed, const char *list)
{
	struct doc_unpack *u = must(calloc(1, sizeof(*u)));

	u->ctx = must(ZSTD_createDCtx());
	BUG(ZSTD_isError(ZSTD_DCtx_setParameter(
		u->ctx, ZSTD_d_windowLogMax, WINDOW_LOG_MAX)));
	u->in = (ZSTD_inBuffer){ .src = packed.p, .size = packed.n };
	u->list = list;
	buf_putc(&u->rest, '{');
	return u;
}

void
doc_unpack_free(struct doc_unpack *u)
{
	if (!u)
		return;
	ZSTD_freeDCtx(u->ctx);
	buf_fini(&u->b);
	buf_fini(&u->rest);
	free(u);
}

struct span
doc_unpack_rest(const struct doc_unpack *u)
{
	return buf_span(&u->rest);
}

/* More plain bytes: 1, none left: 0. */
static int
refill(struct doc_unpack *u, struct err *e)
{
	ZSTD_outBuffer out = { .size = STEP_BYTES };
	size_t n, at = u->in.pos;

	if (u->frame_ended)
		return 0;
	buf_skip(&u->b, u->at);
	u->at = 0;
	out.dst = buf_reserve(&u->b, STEP_BYTES);
	n = ZSTD_decompressStream(u->ctx, &out, &u->in);
	if (ZSTD_isError(n))
		return err_set(e, ERR_INPUT, "corrupt zstd frame: %s",
			ZSTD_getErrorName(n));
	u->b.len += out.pos;
	u->decoded_bytes += out.pos;
	if (u->decoded_bytes > DOC_DECODED_MAX)
		return err_set(e, ERR_LIMIT, "unpacks to more than %d MiB",
			DOC_DECODED_MAX >> 20);
	u->frame_ended = n == 0;
	if (u->frame_ended && u->in.pos < u->in.size)
		return err_set(e, ERR_INPUT, "bytes behind the zstd frame");
	if (!u->frame_ended && out.pos == 0 && u->in.pos == at)
		return err_set(e, ERR_INPUT, "truncated zstd frame");
	return 1;
}

/* The next character that is no white space, not consumed; '\0' at the end. */
static int
peek(struct doc_unpack *u, char *c, struct err *e)
{
	int rc;

	for (;;) {
		for (; u->at < u->b.len; u->at++) {
			*c = u->b.p[u->at];
			if (*c != ' ' && *c != '\n' && *c != '\r' && *c != '\t')
				return *c ? 0
					  : err_set(e, ERR_INPUT,
						    "not JSON: a zero byte");
		}
		rc = refill(u, e);
		if (rc < 0)
			return -1;
		if (rc == 0) {
			*c = '\0';
			return 0;
		}
	}
}

/* Length of the value in front; 0: its end is not there yet. */
static size_t
value_len(const char *p, size_t n)
{
	bool in_text = false;
	int depth = 0;

	for (size_t i = 0; i < n; i++) {
		char c = p[i];

		if (in_text) {
			if (c == '\\')
				i++;
			else if (c == '"')
				in_text = false;
			if (!in_text && depth == 0)
				return i + 1;
		} else if (c == '"') {
			in_text = true;
		} else if (c == '[' || c == '{') {
			depth++;
		} else if (c == ']' || c == '}') {
			if (depth <= 1)
				return depth == 0 ? i : i + 1;
			depth--;
		} else if (depth == 0 && strchr(", \t\r\n", c)) {
			return i;
		}
	}
	return 0;
}

static int
take_value(struct doc_unpack *u, struct span *out, struct err *e)
{
	size_t n;
	char c;
	int rc;

	if (peek(u, &c, e) < 0)
		return -1;
	while ((n = value_len(u->b.p + u->at, u->b.len - u->at)) == 0) {
		if (u->b.len - u->at > ITEM_MAX)
			return err_set(e, ERR_INPUT, "a value without an end");
		rc = refill(u, e);
		if (rc < 0)
			return -1;
		if (rc == 0)
			return err_set(e, ERR_INPUT, "not JSON: it is cut");
	}
	*out = span_make(u->b.p + u->at, n);
	u->at += n;
	return 0;
}

static int
take_char(struct doc_unpack *u, char want, struct err *e)
{
	char c;

	if (peek(u, &c, e) < 0)
		return -1;
	if (c != want)
		return err_set(e, ERR_INPUT, "not JSON: no `%c`", want);
	u->at++;
	return 0;
}

/* True when `close` came and was taken; else what comes is a member. */
static int
ended(struct doc_unpack *u, char close, bool *yes, struct err *e)
{
	char c;

	if (peek(u, &c, e) < 0)
		return -1;
	*yes = c == close;
	if (*yes)
		u->at++;
	else if (!u->first && take_char(u, ',', e) < 0)
		return -1;
	u->first = false;
	return 0;
}

static bool
is_list(const struct doc_unpack *u, struct span key)
{
	size_t n = strlen(u->list);

	return key.n == n + 2 && memcmp(key.p + 1, u->list, n) == 0;
}

static int
member(struct doc_unpack *u, struct err *e)
{
	struct span s;
	char c;

	if (peek(u, &c, e) < 0)
		return -1;
	if (c != '"')
		return err_set(e, ERR_INPUT, "not JSON: no key");
	if (take_value(u, &s, e) < 0)
		return -1;
	if (is_list(u, s) && !u->had_list) {
		u->had_list = u->first = true;
		u->place = IN_LIST;
		return take_char(u, ':', e) < 0 || take_char(u, '[', e) < 0 ? -1
									    : 0;
	}
	if (u->rest.len > 1)
		buf_putc(&u->rest, ',');
	buf_put_span(&u->rest, s);
	buf_putc(&u->rest, ':');
	if (take_char(u, ':', e) < 0 || take_value(u, &s, e) < 0)
		return -1;
	buf_put_span(&u->rest, s);
	return u->rest.len > ITEM_MAX
		       ? err_set(e, ERR_INPUT, "too much beside the list")
		       : 0;
}

/* Nothing may stand behind the object. */
static int
finish(struct doc_unpack *u, struct err *e)
{
	char c;

	if (peek(u, &c, e) < 0)
		return -1;
	if (c != '\0')
		return err_set(e, ERR_INPUT, "not JSON: more behind it");
	if (!u->had_list)
		return err_set(e, ERR_INPUT, "%s are missing", u->list);
	buf_putc(&u->rest, '}');
	u->place = AT_END;
	return 0;
}

int
doc_unpack_item(struct doc_unpack *u, struct span *item, struct err *e)
{
	bool end;

	if (u->place == AT_START) {
		if (take_char(u, '{', e) < 0)
			return -1;
		u->place = IN_OBJECT;
		u->first = true;
	}
	while (u->place != AT_END) {
		if (ended(u, u->place == IN_LIST ? ']' : '}', &end, e) < 0)
			return -1;
		if (u->place == IN_LIST && !end)
			return take_value(u, item, e) < 0 ? -1 : 1;
		if (u->place == IN_LIST)
			u->place = IN_OBJECT;
		else if ((end ? finish(u, e) : member(u, e)) < 0)
			return -1;
	}
	return 0;
}

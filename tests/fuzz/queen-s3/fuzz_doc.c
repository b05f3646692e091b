/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Documents of any bytes, the reader by the first one: what is read is written
 * so that it is read as the same.
 */
#include <stdint.h>
#include <stdlib.h>
#include <zstd.h>

#include "arena.h"
#include "buf.h"
#include "doc.h"
#include "err.h"
#include "key.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Two writings of what was read twice. */
static void
same(struct buf *first, struct buf *again)
{
	if (!span_eq(buf_span(first), buf_span(again)))
		abort();
	buf_fini(first);
	buf_fini(again);
}

static void
try_lease(struct span s, struct arena *a)
{
	struct buf b = BUF_ZERO, c = BUF_ZERO;
	struct doc_lease l;

	if (!doc_lease_read(s, a, &l))
		return;
	doc_lease_write(&b, &l);
	if (!doc_lease_read(buf_span(&b), a, &l))
		abort();
	doc_lease_write(&c, &l);
	same(&b, &c);
}

static void
try_intent(struct span s, struct arena *a)
{
	struct buf b = BUF_ZERO, c = BUF_ZERO;
	struct doc_intent i;

	if (!doc_intent_read(s, a, &i))
		return;
	doc_intent_write(&b, &i);
	if (!doc_intent_read(buf_span(&b), a, &i))
		abort();
	doc_intent_write(&c, &i);
	same(&b, &c);
}

static void
try_committed(struct span s, struct arena *a)
{
	struct buf b = BUF_ZERO, c = BUF_ZERO;
	struct doc_committed x;

	if (!doc_committed_read(s, a, &x))
		return;
	doc_committed_write(&b, &x);
	if (!doc_committed_read(buf_span(&b), a, &x))
		abort();
	doc_committed_write(&c, &x);
	same(&b, &c);
}

static void
try_resume(struct span s, struct arena *a)
{
	struct doc_resume r;

	if (doc_resume_read(s, a, &r) && !r.newest &&
		!s3conf_prefix_ok(r.prefix))
		abort();
}

static void
try_manifest(struct span s, struct arena *a)
{
	struct buf b = BUF_ZERO, c = BUF_ZERO;
	struct doc_manifest m;
	struct err e = ERR_ZERO;

	if (doc_manifest_read(s, a, &m, &e) != 0) {
		if (e.kind != ERR_INPUT)
			abort();
		return;
	}
	doc_manifest_write(&b, &m);
	if (doc_manifest_read(buf_span(&b), a, &m, &e) != 0)
		abort();
	doc_manifest_write(&c, &m);
	same(&b, &c);
}

static void
try_checkpoint(struct span packed)
{
	struct doc_checkpoint_reader *r = doc_checkpoint_open(packed);
	struct doc_checkpoint c;
	struct doc_position p;
	struct err e = ERR_ZERO;
	int rc;

	while ((rc = doc_checkpoint_next(r, &p, &c, &e)) > 0)
		if (p.offset < 0 || p.part < -1)
			abort();
	if (rc < 0 && e.kind == ERR_NONE)
		abort();
	doc_checkpoint_close(r);
}

static void
try_plan(struct span packed)
{
	struct doc_plan_reader *r = doc_plan_open(packed);
	struct err e = ERR_ZERO;
	struct span key;
	int64_t k;
	int rc;

	while ((rc = doc_plan_next(r, &key, &k, &e)) > 0)
		key_manifest_k(key, &k);
	if (rc < 0 && e.kind == ERR_NONE)
		abort();
	doc_plan_close(r);
}

static void
try_packed(struct span s, void (*fn)(struct span))
{
	size_t max = ZSTD_compressBound(s.n);
	char *p = malloc(max);

	if (!p)
		abort();
	fn(span_make(p, ZSTD_compress(p, max, s.p, s.n, 1)));
	free(p);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct arena a = ARENA_ZERO;
	struct span s;

	if (size == 0)
		return 0;
	s = span_make(data + 1, size - 1);
	switch (data[0]) {
	case 'l':
		try_lease(s, &a);
		break;
	case 'i':
		try_intent(s, &a);
		break;
	case 'c':
		try_committed(s, &a);
		break;
	case 'r':
		try_resume(s, &a);
		break;
	case 'm':
		try_manifest(s, &a);
		break;
	case 'p':
		try_packed(s, try_plan);
		break;
	case 'z':
		try_checkpoint(s);
		break;
	default:
		try_packed(s, try_checkpoint);
	}
	arena_fini(&a);
	return 0;
}

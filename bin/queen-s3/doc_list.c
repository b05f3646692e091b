/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checkpoint and plan: lists as long as a queue has partitions.  A checkpoint
 * is a cache; whatever is wrong with one is an error and no more.
 */
#include <stdlib.h>

#include "arena.h"
#include "doc_int.h"
#include "err.h"
#include "jwrite.h"

static void *
must(void *p)
{
	BUG(!p);
	return p;
}

/* ---- checkpoint ---- */

struct doc_checkpoint_writer {
	struct doc_pack *pack;
	struct jwrite w;
};

struct doc_checkpoint_writer *
doc_checkpoint_begin(struct object *out, const struct doc_checkpoint *c)
{
	struct doc_checkpoint_writer *x = must(malloc(sizeof(*x)));

	x->pack = doc_pack_new(out);
	jwrite_init(&x->w, doc_pack_buf(x->pack));
	jwrite_object(&x->w);
	jwrite_kv_i64(&x->w, "k", c->k);
	jwrite_kv_i64(&x->w, "tEnd", c->end_us);
	if (c->cell[0])
		jwrite_kv_cstr(&x->w, "cell", c->cell);
	jwrite_key(&x->w, "positions");
	jwrite_array(&x->w);
	return x;
}

void
doc_checkpoint_add(
	struct doc_checkpoint_writer *x, const struct doc_position *p)
{
	jwrite_array(&x->w);
	jwrite_str(&x->w, p->name);
	jwrite_i64(&x->w, p->offset);
	if (p->part >= 0)
		jwrite_i64(&x->w, p->part);
	jwrite_end(&x->w);
	doc_pack_more(x->pack);
}

void
doc_checkpoint_end(struct doc_checkpoint_writer *x)
{
	jwrite_end(&x->w);
	jwrite_end(&x->w);
	doc_pack_end(x->pack);
	free(x);
}

struct doc_checkpoint_reader {
	struct doc_unpack *unpack;
	struct arena arena; /* of one item */
};

struct doc_checkpoint_reader *
doc_checkpoint_open(struct span packed)
{
	struct doc_checkpoint_reader *r = must(calloc(1, sizeof(*r)));

	r->unpack = doc_unpack_new(packed, "positions");
	return r;
}

void
doc_checkpoint_close(struct doc_checkpoint_reader *r)
{
	if (!r)
		return;
	doc_unpack_free(r->unpack);
	arena_fini(&r->arena);
	free(r);
}

/* [name, offset] or [name, offset, id, ...]; an id of another kind is none. */
static bool
read_position(struct span item, struct arena *a, struct doc_position *p)
{
	struct jspan_val v;
	struct jspan j;

	jspan_open(&j, item);
	if (!jspan_enter_array(&j) || !jspan_next_item(&j) ||
		!jspan_take(&j, &v) || !jspan_text(&v, a, &p->name))
		return false;
	if (!jspan_next_item(&j) || !jspan_take(&j, &v) ||
		!jspan_i64(&v, &p->offset) || p->offset < 0)
		return false;
	p->part = -1;
	for (bool id = true; jspan_next_item(&j); id = false) {
		int64_t n;

		if (jspan_take(&j, &v) && id && jspan_i64(&v, &n) && n >= 0)
			p->part = n;
	}
	return jspan_end(&j);
}

int
doc_checkpoint_next(struct doc_checkpoint_reader *r, struct doc_position *p,
	struct doc_checkpoint *c, struct err *e)
{
	static const struct doc_field fields[] = {
		DOC_FIELD(doc_checkpoint, "k", DOC_COUNT, true, k),
		DOC_FIELD(doc_checkpoint, "tEnd", DOC_I64, true, end_us),
		DOC_FIELD(doc_checkpoint, "cell", DOC_TAG, false, cell),
	};
	struct span item;
	int rc;

	arena_reset(&r->arena);
	rc = doc_unpack_item(r->unpack, &item, e);
	if (rc < 0)
		return -1;
	if (rc > 0)
		return read_position(item, &r->arena, p)
			       ? 1
			       : err_set(e, ERR_INPUT, "not a position");
	*c = (struct doc_checkpoint){ .k = 0 };
	return doc_text(doc_unpack_rest(r->unpack), &r->arena, fields,
		       DOC_COUNT_OF(fields), c, NULL)
		       ? 0
		       : err_set(e, ERR_INPUT, "not a checkpoint");
}

/* ---- plan ---- */

struct doc_plan_writer {
	struct doc_pack *pack;
	struct jwrite w;
};

struct doc_plan_writer *
doc_plan_begin(struct object *out, int64_t k)
{
	struct doc_plan_writer *x = must(malloc(sizeof(*x)));

	x->pack = doc_pack_new(out);
	jwrite_init(&x->w, doc_pack_buf(x->pack));
	jwrite_object(&x->w);
	jwrite_kv_i64(&x->w, "k", k);
	jwrite_key(&x->w, "keys");
	jwrite_array(&x->w);
	return x;
}

void
doc_plan_add(struct doc_plan_writer *x, struct span key)
{
	jwrite_str(&x->w, key);
	doc_pack_more(x->pack);
}

void
doc_plan_end(struct doc_plan_writer *x)
{
	jwrite_end(&x->w);
	jwrite_end(&x->w);
	doc_pack_end(x->pack);
	free(x);
}

struct doc_plan_reader {
	struct doc_unpack *unpack;
	struct arena arena;
};

struct doc_plan_reader *
doc_plan_open(struct span packed)
{
	struct doc_plan_reader *r = must(calloc(1, sizeof(*r)));

	r->unpack = doc_unpack_new(packed, "keys");
	return r;
}

void
doc_plan_close(struct doc_plan_reader *r)
{
	if (!r)
		return;
	doc_unpack_free(r->unpack);
	arena_fini(&r->arena);
	free(r);
}

static bool
read_key(struct span item, struct arena *a, struct span *key)
{
	struct jspan_val v;
	struct jspan j;

	jspan_open(&j, item);
	return jspan_take(&j, &v) && jspan_text(&v, a, key) && jspan_end(&j);
}

int
doc_plan_next(
	struct doc_plan_reader *r, struct span *key, int64_t *k, struct err *e)
{
	struct plan {
		int64_t k;
	} plan;
	static const struct doc_field fields[] = {
		DOC_FIELD(plan, "k", DOC_COUNT, true, k),
	};
	struct span item;
	int rc;

	arena_reset(&r->arena);
	rc = doc_unpack_item(r->unpack, &item, e);
	if (rc < 0)
		return -1;
	if (rc > 0)
		return read_key(item, &r->arena, key)
			       ? 1
			       : err_set(e, ERR_INPUT, "not a key");
	if (!doc_text(doc_unpack_rest(r->unpack), &r->arena, fields,
		    DOC_COUNT_OF(fields), &plan, NULL))
		return err_set(e, ERR_INPUT, "not a plan");
	*k = plan.k;
	return 0;
}

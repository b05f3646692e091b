/* SPDX-License-Identifier: Apache-2.0 */
/* Keys against the cell and on frames; see keyring.h. */
#include "keyring.h"

#include "buf.h"
#include "catalog.h"
#include "ctx.h"
#include "err.h"
#include "frame.h"
#include "pgbin.h"
#include "seal.h"
#include "sealproof.h"

int
keyring_prove(const struct ctx *x, PGconn *pg, struct err *e)
{
	return sealproof_check(x->seal, pg, e);
}

bool
keyring_seals(const struct ctx *x)
{
	return seal_key_id(x->seal) != SEAL_NO_KEY;
}

bool
keyring_must_seal(struct ctx *x, struct cat_queue *q)
{
	/* at once, since the same message is sent again in this turn */
	if (q)
		q->encrypted = true;
	catalog_refresh(x->catalog);
	return keyring_seals(x);
}

void
keyring_args(struct pgargs *a, const struct ctx *x)
{
	uint8_t ids[SEAL_KEYS_MAX];
	size_t n = seal_ids(x->seal, ids);

	pgargs_array(a, PGARGS_I16);
	for (size_t i = 0; i < n; i++)
		pgargs_item_i16(a, ids[i]);
	pgargs_close(a);
}

void
keyring_item(struct pgargs *a, const struct ctx *x, bool sealed)
{
	if (sealed)
		pgargs_item_i16(a, (int16_t)seal_key_id(x->seal));
	else
		pgargs_item_null(a);
}

void
keyring_seal(const struct ctx *x, struct frame *f, struct buf *room)
{
	buf_reset(room);
	seal_box(x->seal, &f->id, f->payload, room);
	f->payload = buf_span(room);
	f->flags |= FRAME_SEALED;
}

int
keyring_open(
	const struct ctx *x, struct frame *f, struct buf *room, struct err *e)
{
	if (!(f->flags & FRAME_SEALED))
		return 0;
	buf_reset(room);
	if (seal_open(x->seal, &f->id, f->payload, room, e) != 0)
		return -1;
	f->payload = buf_span(room);
	return 0;
}

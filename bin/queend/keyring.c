/* SPDX-License-Identifier: Apache-2.0 */
/* Keys against the cell and on frames; see keyring.h. */
#include "keyring.h"

#include <stdio.h>
#include <stdlib.h>

#include "buf.h"
#include "catalog.h"
#include "ctx.h"
#include "err.h"
#include "frame.h"
#include "pgbin.h"
#include "pgconn.h"
#include "seal.h"

static const char constant[] = "queen";
/* The constant is no message: its id is all zero. */
static const struct qid no_message;

static bool
is_constant(const struct ctx *x, struct span box)
{
	struct buf out = BUF_ZERO;
	struct err why = ERR_ZERO;
	bool yes = seal_open(x->seal, &no_message, box, &out, &why) == 0 &&
		   span_is(buf_span(&out), constant);

	buf_fini(&out);
	return yes;
}

/* 1 = our key is known here, 0 = not yet. */
static int
check_proofs(const struct ctx *x, const PGresult *res, struct err *e)
{
	int own = seal_key_id(x->seal), known = 0;

	for (int i = 0; i < PQntuples(res); i++) {
		int id = pgbin_i32(res, i, 0);

		if (!is_constant(x, pgbin_bytes(res, i, 2)))
			return err_set(e, ERR_CONFIG,
				"QUEEN_ENCRYPTION_KEY: the cell %s key id %d, "
				"which none of the keys here opens",
				pgbin_bool(res, i, 1) ? "seals with"
						      : "has used another",
				id);
		known |= id == own;
	}
	return known;
}

static int
read_proofs(const struct ctx *x, PGconn *pg, struct err *e)
{
	char id[16];
	const char *values[] = { id };
	int rc;

	snprintf(id, sizeof(id), "%d", seal_key_id(x->seal));
	PGresult *res = PQexecParams(pg,
		"select key_id, newest, box from queen.seal_proofs_v1($1)", 1,
		NULL, values, NULL, NULL, 1);

	rc = PQresultStatus(res) == PGRES_TUPLES_OK ? check_proofs(x, res, e)
						    : pgconn_err(e, res, pg);
	PQclear(res);
	return rc;
}

static int
file_proof(const struct ctx *x, PGconn *pg, struct err *e)
{
	struct buf box = BUF_ZERO;
	char id[16];
	int rc = 0;

	snprintf(id, sizeof(id), "%d", seal_key_id(x->seal));
	seal_box(x->seal, &no_message, span_of(constant), &box);
	const char *values[] = { id, box.p };
	int lengths[] = { 0, (int)box.len }, formats[] = { 0, 1 };
	PGresult *res = PQexecParams(pg, "select queen.seal_prove_v1($1, $2)",
		2, NULL, values, lengths, formats, 0);

	if (PQresultStatus(res) != PGRES_TUPLES_OK)
		rc = pgconn_err(e, res, pg);
	PQclear(res);
	buf_fini(&box);
	return rc;
}

int
keyring_prove(const struct ctx *x, PGconn *pg, struct err *e)
{
	int known;

	if (!x->seal)
		return 0;
	known = read_proofs(x, pg, e);
	if (known != 0 || !keyring_seals(x))
		return known < 0 ? -1 : 0;
	if (file_proof(x, pg, e) != 0)
		return -1;
	/* another process may have filed another key in this moment */
	return read_proofs(x, pg, e) < 0 ? -1 : 0;
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

/* SPDX-License-Identifier: Apache-2.0 */
/* A constant sealed with each key of the cell: queen.seal_proofs_v1. */
#include "sealproof.h"

#include <stdio.h>

#include "buf.h"
#include "err.h"
#include "pgbin.h"
#include "pgconn.h"
#include "qid.h"
#include "seal.h"

static const char constant[] = "queen";
/* The constant is no message: its id is all zero. */
static const struct qid no_message;

static bool
is_constant(const struct seal *s, struct span box)
{
	struct buf out = BUF_ZERO;
	struct err why = ERR_ZERO;
	bool yes = seal_open(s, &no_message, box, &out, &why) == 0 &&
		   span_is(buf_span(&out), constant);

	buf_fini(&out);
	return yes;
}

/* 1 = our key is known here, 0 = not yet. */
static int
check_proofs(const struct seal *s, const PGresult *res, struct err *e)
{
	int own = seal_key_id(s), known = 0;

	for (int i = 0; i < PQntuples(res); i++) {
		int id = pgbin_i32(res, i, 0);

		if (!is_constant(s, pgbin_bytes(res, i, 2)))
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
read_proofs(const struct seal *s, PGconn *pg, struct err *e)
{
	char id[16];
	const char *values[] = { id };
	int rc;

	snprintf(id, sizeof(id), "%d", seal_key_id(s));
	PGresult *res = PQexecParams(pg,
		"select key_id, newest, box from queen.seal_proofs_v1($1)", 1,
		NULL, values, NULL, NULL, 1);

	rc = PQresultStatus(res) == PGRES_TUPLES_OK ? check_proofs(s, res, e)
						    : pgconn_err(e, res, pg);
	PQclear(res);
	return rc;
}

static int
file_proof(const struct seal *s, PGconn *pg, struct err *e)
{
	struct buf box = BUF_ZERO;
	char id[16];
	int rc = 0;

	snprintf(id, sizeof(id), "%d", seal_key_id(s));
	seal_box(s, &no_message, span_of(constant), &box);
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
sealproof_check(const struct seal *s, PGconn *pg, struct err *e)
{
	int known;

	if (!s)
		return 0;
	known = read_proofs(s, pg, e);
	if (known != 0 || seal_key_id(s) == SEAL_NO_KEY)
		return known < 0 ? -1 : 0;
	if (file_proof(s, pg, e) != 0)
		return -1;
	/* another process may have filed another key in this moment */
	return read_proofs(s, pg, e) < 0 ? -1 : 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The place of a document: the key it lies under, and the seal of its password,
 * which does not open anywhere else.
 */
#include "arena.h"
#include "buf.h"
#include "conndoc_int.h"
#include "qid.h"
#include "seal.h"

static struct span
place(const struct conndoc *d, const struct qid *tenant, struct span name,
	struct arena *a)
{
	char text[QID_TEXT_MAX];

	return arena_printf(a, "%s/%s/%.*s", conndoc_kind_word(d->kind),
		qid_text(tenant, text), SPAN_ARG(name));
}

bool
conndoc_key_parse(struct span key, struct qid *tenant, struct span *name)
{
	enum { HEAD = 5, NAME = HEAD + QID_TEXT + 1 };

	if (key.n <= NAME || memcmp(key.p, "conn:", HEAD) != 0 ||
		key.p[NAME - 1] != ':')
		return false;
	*name = span_make(key.p + NAME, key.n - NAME);
	return qid_parse(span_make(key.p + HEAD, QID_TEXT), tenant) &&
	       conndoc_name_ok(*name);
}

void
conndoc_seal(struct conndoc *d, const struct qid *tenant, struct span name,
	const struct seal *s, struct arena *a)
{
	struct buf b = BUF_ZERO;

	seal_secret(s, place(d, tenant, name, a), d->conn.password, &b);
	d->conn.password_sealed = arena_dup(a, buf_span(&b));
	buf_fini(&b);
	conndoc_wipe(d);
}

int
conndoc_unseal(const struct conndoc *d, const struct qid *tenant,
	struct span name, const struct seal *s, struct buf *out, struct err *e)
{
	struct arena a = ARENA_ZERO;
	int rc = 0;

	if (d->conn.password_sealed.n)
		rc = seal_secret_open(s, place(d, tenant, name, &a),
			d->conn.password_sealed, out, e);
	if (rc != 0)
		err_wrap(e, "connection.passwordSealed: use the same "
			    "QUEEN_ENCRYPTION_KEY on every node");
	arena_fini(&a);
	return rc;
}

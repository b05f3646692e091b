/* SPDX-License-Identifier: Apache-2.0 */
/* Passwords, sealed for one connector: elsewhere the text does not open. */
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

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any payload under every mode: the first byte chooses.  What becomes of it
 * is a data error or parameters that are valid JSON wherever they were not
 * copied from beyond the scanner's depth.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "buf.h"
#include "jspan.h"
#include "queen-pgsink/op_fix.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char *const metas[CONNDOC_METAS] = { "no", "n", "id",
	"Odd \"name\"", "doc", "raw" };

static struct plan *
plan_of(unsigned kind)
{
	static const char *const paths[] = { "$", "$.a", "$.a.b", "$.a[1]",
		"$[0][\"a\"]", "@partition", "@offset", "@createdAt" };
	static struct span params[OP_FIX_N(paths)];
	static struct conndoc_sink docs[8];
	struct conndoc_sink *doc = &docs[kind];
	const struct span *key = kind % 2 ? op_fix_id : op_fix_no;
	struct plan_facts facts = op_fix_facts(key);
	struct connfault f;
	struct plan *p;

	*doc = op_fix_doc((enum conndoc_mode)(kind / 2));
	for (size_t i = 0; i < OP_FIX_N(paths); i++)
		params[i] = span_of(paths[i]);
	doc->params = (struct conndoc_list){ params, OP_FIX_N(paths) };
	/* one mode with all metadata, one with none */
	if (kind == 0)
		for (int m = 0; m < CONNDOC_METAS; m++)
			doc->metadata[m] = span_of(metas[m]);
	if (plan_make(doc, &facts, &p, &f) != 0)
		abort();
	return p;
}

static bool
is_json(struct span s)
{
	const char *what;
	size_t at;

	return jspan_valid(s, &what, &at) ||
	       span_is(span_of(what), "nested too deep");
}

/* What follows the scanner's depth is not looked at here, but by the server. */
static bool
is_deep(struct span s)
{
	size_t open = 0;

	for (size_t i = 0; i < s.n; i++)
		open += s.p[i] == '[' || s.p[i] == '{';
	return open >= JSPAN_DEPTH_MAX;
}

static void
check(const struct plan *p, const struct op *o, struct span payload)
{
	struct buf sql = BUF_ZERO;

	op_sql(p, o, &sql);
	if (o->kind != OP_STATEMENT && sql.len == 0)
		abort();
	for (size_t i = 0; i < o->params_n; i++) {
		if (o->kind == OP_STATEMENT) {
			if (o->params[i].p && !jspan_utf8(o->params[i]))
				abort();
		} else if (!is_json(o->params[i]) && !is_deep(payload)) {
			abort();
		}
	}
	if ((o->kind == OP_MOVE) != (o->otherwise != NULL))
		abort();
	if (op_run(o, 1) != 1)
		abort();
	buf_fini(&sql);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct plan *plans[8];
	struct arena a = ARENA_ZERO;
	struct feed_message m;
	struct span why;
	struct op o;

	if (size < 1)
		return 0;
	for (unsigned i = 0; !plans[7] && i < 8; i++)
		plans[i] = plan_of(i);
	m = op_fix_message(span_make(data + 1, size - 1));
	if (op_of(plans[data[0] % 8], &op_fix_part, &m, &a, &o, &why)) {
		check(plans[data[0] % 8], &o, m.payload);
		if (o.otherwise)
			check(plans[data[0] % 8], o.otherwise, m.payload);
	} else if (!why.p || why.n == 0 || why.n > 500) {
		abort();
	}
	arena_fini(&a);
	return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "out.h"

#include <stdio.h>

#include "buf.h"
#include "ctl.h"
#include "doc.h"
#include "jsonpath.h"
#include "yamldoc.h"

static struct span
find_rows(struct ctl *c, struct span doc, const struct out_view *view)
{
	struct jspan_val v;

	if (!view)
		return doc;
	if (doc_path(doc, view->rows, &c->arena, &v) ||
		doc_path(doc, "data", &c->arena, &v))
		return v.raw;
	return SPAN_LIT("[]");
}

void
out_json(struct buf *b, struct span doc)
{
	doc_indent(b, doc, 2);
	buf_putc(b, '\n');
}

void
out_ndjson(struct buf *b, struct span rows)
{
	struct jspan_val v;
	struct jspan j;

	if (doc_val(rows).type != JSPAN_ARRAY) {
		doc_indent(b, rows, 0);
		buf_putc(b, '\n');
		return;
	}
	for (doc_open(&j, rows); doc_next(&j, &v);) {
		doc_indent(b, v.raw, 0);
		buf_putc(b, '\n');
	}
}

int
out_print(struct ctl *c, struct span doc, const struct out_view *view)
{
	struct span rows = find_rows(c, doc, view);
	struct span shown = view && view->whole ? doc : rows;
	struct err e = ERR_ZERO;
	struct buf b = BUF_ZERO;
	int rc = 0;

	if ((c->format == CTL_TABLE || c->format == CTL_WIDE) && view &&
		view->cols_n)
		return out_table(c, rows, view);
	switch (c->format) {
	case CTL_JSON:
		out_json(&b, shown);
		break;
	case CTL_NDJSON:
		out_ndjson(&b, shown);
		break;
	case CTL_RAW:
		buf_put_span(&b, doc);
		if (doc.n && doc.p[doc.n - 1] != '\n')
			buf_putc(&b, '\n');
		break;
	case CTL_JSONPATH:
		rc = jsonpath_eval(c->jsonpath, doc, &c->arena, &b, &e);
		buf_putc(&b, '\n');
		break;
	default:
		rc = yamldoc_write(&b, shown, &e);
	}
	if (rc == 0)
		fwrite(b.p, 1, b.len, stdout);
	buf_fini(&b);
	return rc == 0 ? CTL_OK : ctl_fail_err(&e);
}

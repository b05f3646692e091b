/* SPDX-License-Identifier: Apache-2.0 */
#include "jsonpath.h"

#include "arena.h"
#include "buf.h"
#include "doc.h"
#include "err.h"

static int
step_key(struct span key, struct jspan_val *v, struct arena *a, struct err *e)
{
	if (v->type != JSPAN_OBJECT)
		return err_set(e, ERR_INPUT,
			"jsonpath: \"%.*s\" is asked of something that is not "
			"an object",
			(int)key.n, key.p);
	if (!doc_get(v->raw, key, a, v))
		*v = doc_val(SPAN_LIT("null"));
	return 0;
}

static int
step_index(int64_t want, struct jspan_val *v, struct err *e)
{
	struct jspan_val item;
	struct jspan j;
	int64_t i = 0;

	if (v->type != JSPAN_ARRAY)
		return err_set(e, ERR_INPUT,
			"jsonpath: [%lld] is asked of something that is not "
			"an array",
			(long long)want);
	for (doc_open(&j, v->raw); doc_next(&j, &item); i++)
		if (i == want) {
			*v = item;
			return 0;
		}
	return err_set(e, ERR_INPUT,
		"jsonpath: index %lld is out of range, there are %lld",
		(long long)want, (long long)i);
}

static void
print_value(const struct jspan_val *v, struct arena *a, struct buf *out)
{
	switch (v->type) {
	case JSPAN_NULL:
	case JSPAN_NONE:
		break;
	case JSPAN_STRING:
		buf_puts(out, doc_text(v, a));
		break;
	case JSPAN_NUMBER:
		buf_puts(out, doc_number(v->raw, a));
		break;
	default:
		doc_indent(out, v->raw, 2);
	}
}

static int
bad_syntax(const char *path, struct err *e)
{
	return err_set(e, ERR_INPUT,
		"bad jsonpath \"%.80s\": expected .key "
		"and [N] segments",
		path);
}

int
jsonpath_eval(const char *path, struct span doc, struct arena *a,
	struct buf *out, struct err *e)
{
	struct jspan_val v = doc_val(doc);
	const char *p = path;

	if (*p == '\0')
		return bad_syntax(path, e);
	if (strcmp(p, ".") == 0)
		p++;
	while (*p) {
		if (*p == '[') {
			size_t n = strcspn(++p, "]");
			int64_t i;

			if (p[n] != ']' || !span_i64(span_make(p, n), &i) ||
				i < 0)
				return bad_syntax(path, e);
			if (step_index(i, &v, e) != 0)
				return -1;
			p += n + 1;
			continue;
		}
		/* the first key may come without its dot */
		if (*p == '.')
			p++;
		else if (p != path)
			return bad_syntax(path, e);
		size_t n = strcspn(p, ".[]");

		if (p[n] == ']' || (n == 0 && !(p[n] == '[' && p == path + 1)))
			return bad_syntax(path, e);
		if (n && step_key(span_make(p, n), &v, a, e) != 0)
			return -1;
		p += n;
	}
	print_value(&v, a, out);
	return 0;
}

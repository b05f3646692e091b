/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tables by libsmartcols: it knows the width of what it prints and escapes
 * what would steer a terminal.
 */
#include <libsmartcols.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "arena.h"
#include "buf.h"
#include "clk.h"
#include "ctl.h"
#include "doc.h"
#include "out.h"
#include "timearg.h"

enum { CELL_TEXT = 64 };

/* ---- cells ---- */

static const char *
grouped(const char *n, struct arena *a)
{
	size_t digits = strspn(n + (*n == '-'), "0123456789");
	const char *p = n + (*n == '-');
	char out[CELL_TEXT], *o = out;

	if (p[digits] != '\0' || digits == 0 || digits > 20)
		return n;
	if (*n == '-')
		*o++ = '-';
	for (size_t i = 0; i < digits; i++) {
		if (i && (digits - i) % 3 == 0)
			*o++ = ',';
		*o++ = p[i];
	}
	*o = '\0';
	return arena_cstr(a, span_of(out));
}

static int
by_text(const void *x, const void *y)
{
	const char *const *a = x, *const *b = y;

	return strcmp(*a, *b);
}

static const char *
keys_of(struct span object, struct arena *a)
{
	size_t n = doc_count(object), i = 0;
	const char **keys = arena_alloc(a, (n + 1) * sizeof(*keys));
	struct buf b = BUF_ZERO;
	struct jspan_val v;
	struct jspan j;
	struct span key;
	char *out;

	jspan_open(&j, object);
	if (jspan_enter_object(&j))
		while (i < n && jspan_next_key(&j, a, &key) &&
			jspan_take(&j, &v))
			keys[i++] = arena_cstr(a, key);
	qsort(keys, i, sizeof(*keys), by_text);
	buf_putc(&b, '{');
	for (size_t k = 0; k < i; k++)
		buf_printf(&b, "%s%s", k ? "," : "", keys[k]);
	buf_putc(&b, '}');
	out = arena_cstr(a, buf_span(&b));
	buf_fini(&b);
	return out;
}

static const char *
joined(struct span array, struct arena *a)
{
	struct buf b = BUF_ZERO;
	struct jspan_val v;
	struct jspan j;
	char *out;

	for (doc_open(&j, array); doc_next(&j, &v);)
		buf_printf(&b, "%s%s", b.len ? "," : "", doc_text(&v, a));
	out = arena_cstr(a, buf_span(&b));
	buf_fini(&b);
	return *out ? out : "-";
}

/* A time is told as its age; only what looks like one is tried. */
static const char *
string_cell(const struct jspan_val *v, struct arena *a)
{
	const char *s = doc_text(v, a);
	size_t n = strlen(s);
	char age[CELL_TEXT];
	int64_t at_us;

	if (n >= 20 && n <= 35 && s[4] == '-' && s[10] == 'T' &&
		clk_parse_iso(span_of(s), &at_us)) {
		timearg_age(at_us, clk_wall_us(), age, sizeof(age));
		return arena_cstr(a, span_of(age));
	}
	return *s ? s : "-";
}

const char *
out_cell(const struct jspan_val *v, enum out_kind kind, struct arena *a)
{
	char text[CELL_TEXT];

	switch (v->type) {
	case JSPAN_NONE:
	case JSPAN_NULL:
		return "-";
	case JSPAN_STRING:
		return string_cell(v, a);
	case JSPAN_OBJECT:
		return keys_of(v->raw, a);
	case JSPAN_ARRAY:
		if (kind == OUT_LIST)
			return joined(v->raw, a);
		snprintf(text, sizeof(text), "%zu", doc_count(v->raw));
		break;
	case JSPAN_NUMBER:
		if (kind == OUT_SECONDS)
			timearg_span(strtod(arena_cstr(a, v->raw), NULL), text,
				sizeof(text));
		else
			return kind == OUT_COUNT
				       ? grouped(doc_number(v->raw, a), a)
				       : doc_number(v->raw, a);
		break;
	default:
		return arena_cstr(a, v->raw);
	}
	return kind == OUT_COUNT ? grouped(arena_cstr(a, span_of(text)), a)
				 : arena_cstr(a, span_of(text));
}

/* ---- the table ---- */

static bool
wants_color(const struct ctl *c)
{
	const char *no = getenv("NO_COLOR"), *cli = getenv("CLICOLOR");
	const char *force = getenv("CLICOLOR_FORCE");

	if (c->color != CTL_COLOR_AUTO)
		return c->color == CTL_COLOR_ON;
	if (no && *no)
		return false;
	if (cli && strcmp(cli, "0") == 0)
		return false;
	if (force && *force && strcmp(force, "0") != 0)
		return true;
	return isatty(STDOUT_FILENO);
}

static struct libscols_table *
make_table(const struct ctl *c, const struct out_view *view)
{
	struct libscols_table *t;
	bool color = wants_color(c);

	scols_init_debug(0);
	t = scols_new_table();
	BUG(!t);
	scols_table_set_column_separator(t, "  ");
	scols_table_set_stream(t, stdout);
	scols_table_enable_noheadings(t, c->no_headers);
	scols_table_enable_colors(t, color);
	/* never cut: a line that is too long wraps, and ids stay whole */
	scols_table_set_termforce(t, SCOLS_TERMFORCE_NEVER);
	for (size_t i = 0; i < view->cols_n; i++) {
		const struct out_col *col = &view->cols[i];
		struct libscols_column *cl;

		if (col->wide && c->format != CTL_WIDE)
			continue;
		cl = scols_table_new_column(t, col->head, 0, 0);
		BUG(!cl);
		if (color)
			scols_cell_set_color(
				scols_column_get_header(cl), "\033[1m");
	}
	return t;
}

static void
add_row(struct ctl *c, struct libscols_table *t, const struct out_view *view,
	struct span row)
{
	struct libscols_line *line = scols_table_new_line(t, NULL);
	size_t at = 0;

	BUG(!line);
	for (size_t i = 0; i < view->cols_n; i++) {
		const struct out_col *col = &view->cols[i];
		struct jspan_val v;

		if (col->wide && c->format != CTL_WIDE)
			continue;
		if (!doc_path(row, col->path, &c->arena, &v))
			v.type = JSPAN_NONE;
		BUG(scols_line_set_data(line, at++,
			    out_cell(&v, col->kind, &c->arena)) != 0);
	}
}

int
out_table(struct ctl *c, struct span rows, const struct out_view *view)
{
	struct libscols_table *t = make_table(c, view);
	struct jspan_val v;
	struct jspan j;
	int rc;

	if (doc_val(rows).type == JSPAN_ARRAY)
		for (doc_open(&j, rows); doc_next(&j, &v);)
			add_row(c, t, view, v.raw);
	else
		add_row(c, t, view, rows);
	if (scols_table_is_empty(t) && !c->no_headers) {
		/* the library prints nothing at all for no rows */
		const char *sep = "";

		for (size_t i = 0; i < view->cols_n; i++) {
			if (view->cols[i].wide && c->format != CTL_WIDE)
				continue;
			printf("%s%s", sep, view->cols[i].head);
			sep = "  ";
		}
		putchar('\n');
	}
	rc = scols_print_table(t);
	scols_unref_table(t);
	return rc < 0 ? ctl_fail(CTL_SERVER, "cannot print the table") : CTL_OK;
}

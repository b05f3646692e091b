/* SPDX-License-Identifier: Apache-2.0 */
/*
 * YAML to JSON through libyaml's document loader, which follows aliases to
 * their nodes.  Aliases can multiply a small text without bound or make it
 * hold itself: depth and size of what is written are capped.
 */
#include "yamldoc.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <yaml.h>

#include "arena.h"
#include "buf.h"
#include "err.h"
#include "jspan.h"
#include "jwrite.h"

enum { READ_DEPTH_MAX = 60, READ_BYTES_MAX = 16 << 20 };

struct reader {
	yaml_document_t *doc;
	struct arena arena;
	struct buf out;
	struct jwrite w;
	struct err *e;
};

/* ---- what a plain scalar means ---- */

static bool
one_of(const char *s, const char *const *words)
{
	for (; *words; words++)
		if (strcasecmp(s, *words) == 0)
			return true;
	return false;
}

static bool
read_digits(const char *s, int base, unsigned long long *v)
{
	char *end;

	if (*s == '\0' || *s == '-' || *s == '+' || *s == ' ')
		return false;
	*v = strtoull(s, &end, base);
	return *end == '\0' && *v != (unsigned long long)-1;
}

/* Hexadecimal, octal and binary; s has no sign and no underscores. */
static bool
other_base(const char *s, unsigned long long *v)
{
	if (s[0] != '0' || s[1] == '\0')
		return false;
	if (s[1] == 'x')
		return read_digits(s + 2, 16, v);
	if (s[1] == 'b')
		return read_digits(s + 2, 2, v);
	if (s[1] == 'o')
		return read_digits(s + 2, 8, v);
	return strspn(s, "01234567") == strlen(s) && read_digits(s, 8, v);
}

static bool
is_json_number(const char *s)
{
	const char *what;
	size_t at;

	return (*s == '-' || (*s >= '0' && *s <= '9')) &&
	       jspan_valid(span_of(s), &what, &at);
}

/* A decimal float that JSON spells otherwise: `.5`, `1.`, `+1.0`. */
static bool
loose_float(const char *s, struct arena *a, struct span *json)
{
	char *end;
	double d;

	if (!strchr(s, '.') || strspn(s, "0123456789.eE+-") != strlen(s) ||
		!strpbrk(s, "0123456789"))
		return false;
	d = strtod(s, &end);
	if (*end != '\0' || !isfinite(d))
		return false;
	*json = arena_printf(a, "%.17g", d);
	return true;
}

bool
yamldoc_resolve(struct span plain, struct arena *a, struct span *json)
{
	static const char *const nulls[] = { "", "~", "null", NULL };
	static const char *const yes[] = { "true", "yes", "on", NULL };
	static const char *const no[] = { "false", "no", "off", NULL };
	unsigned long long v;
	char *s, *to;
	bool minus;

	if (plain.n > 400 || (plain.n && memchr(plain.p, '\0', plain.n)))
		return false;
	s = arena_cstr(a, plain);
	if (one_of(s, nulls)) {
		*json = SPAN_LIT("null");
		return true;
	}
	if (one_of(s, yes)) {
		*json = SPAN_LIT("true");
		return true;
	}
	if (one_of(s, no)) {
		*json = SPAN_LIT("false");
		return true;
	}
	if (!strchr("+-.0123456789", s[0]))
		return false;
	if (s[0] >= '0' && s[0] <= '9') { /* 1_000 */
		to = s;
		for (const char *p = s; *p; p++)
			if (*p != '_')
				*to++ = *p;
		*to = '\0';
	}
	minus = s[0] == '-';
	if (other_base(s + (minus || s[0] == '+'), &v)) {
		*json = arena_printf(a, "%s%llu", minus ? "-" : "", v);
		return true;
	}
	if (is_json_number(s + (s[0] == '+'))) {
		*json = span_of(s + (s[0] == '+'));
		return true;
	}
	return loose_float(s, a, json);
}

/* ---- nodes ---- */

static int
node_fail(struct reader *r, const yaml_node_t *n, const char *what)
{
	return err_set(r->e, ERR_INPUT, "line %zu: %s",
		n ? n->start_mark.line + 1 : 0, what);
}

static struct span
scalar_text(const yaml_node_t *n)
{
	return span_make(n->data.scalar.value, n->data.scalar.length);
}

static int
write_scalar(struct reader *r, const yaml_node_t *n)
{
	struct span s = scalar_text(n), json;
	const char *tag = (const char *)n->tag;
	bool plain = n->data.scalar.style == YAML_PLAIN_SCALAR_STYLE;

	/*
	 * The loader gives an untagged scalar the tag !!str, so a written one
	 * on a plain scalar cannot be told from none.
	 */
	if ((plain || (tag && strcmp(tag, YAML_STR_TAG) != 0)) &&
		yamldoc_resolve(s, &r->arena, &json))
		jwrite_raw(&r->w, json);
	else
		jwrite_str(&r->w, s);
	return 0;
}

static int write_node(struct reader *r, int id, int depth);

static bool
has_key(const struct reader *r, const yaml_node_t *map,
	const yaml_node_pair_t *before, struct span key)
{
	const yaml_node_pair_t *p = map->data.mapping.pairs.start;

	for (; p < (before ? before : map->data.mapping.pairs.top); p++) {
		const yaml_node_t *k = yaml_document_get_node(r->doc, p->key);

		if (k && k->type == YAML_SCALAR_NODE &&
			span_eq(scalar_text(k), key))
			return true;
	}
	return false;
}

/* The members of a `<<` mapping that its holder does not have itself. */
static int
write_merge(struct reader *r, const yaml_node_t *holder, int id, int depth)
{
	const yaml_node_t *m = yaml_document_get_node(r->doc, id);

	if (!m || m->type != YAML_MAPPING_NODE)
		return node_fail(r, m, "<< needs one mapping");
	for (const yaml_node_pair_t *p = m->data.mapping.pairs.start;
		p < m->data.mapping.pairs.top; p++) {
		const yaml_node_t *k = yaml_document_get_node(r->doc, p->key);

		if (!k || k->type != YAML_SCALAR_NODE)
			return node_fail(r, k, "a key is not a scalar");
		if (has_key(r, holder, NULL, scalar_text(k)) ||
			span_is(scalar_text(k), "<<"))
			continue;
		jwrite_key_span(&r->w, scalar_text(k));
		if (write_node(r, p->value, depth) != 0)
			return -1;
	}
	return 0;
}

static int
write_mapping(struct reader *r, const yaml_node_t *n, int depth)
{
	jwrite_object(&r->w);
	for (const yaml_node_pair_t *p = n->data.mapping.pairs.start;
		p < n->data.mapping.pairs.top; p++) {
		const yaml_node_t *k = yaml_document_get_node(r->doc, p->key);
		struct span key;

		if (!k || k->type != YAML_SCALAR_NODE)
			return node_fail(r, k, "a key is not a scalar");
		key = scalar_text(k);
		if (has_key(r, n, p, key))
			return node_fail(r, k, "a key is there twice");
		if (span_is(key, "<<") &&
			k->data.scalar.style == YAML_PLAIN_SCALAR_STYLE) {
			if (write_merge(r, n, p->value, depth + 1) != 0)
				return -1;
			continue;
		}
		jwrite_key_span(&r->w, key);
		if (write_node(r, p->value, depth + 1) != 0)
			return -1;
	}
	jwrite_end(&r->w);
	return 0;
}

static int
write_node(struct reader *r, int id, int depth)
{
	const yaml_node_t *n = yaml_document_get_node(r->doc, id);

	if (depth > READ_DEPTH_MAX)
		return node_fail(r, n, "nested too deep");
	if (r->out.len > READ_BYTES_MAX)
		return node_fail(r, n, "the document grows beyond 16 MiB");
	switch (n ? n->type : YAML_NO_NODE) {
	case YAML_SCALAR_NODE:
		return write_scalar(r, n);
	case YAML_MAPPING_NODE:
		return write_mapping(r, n, depth);
	case YAML_SEQUENCE_NODE:
		jwrite_array(&r->w);
		for (const yaml_node_item_t *i = n->data.sequence.items.start;
			i < n->data.sequence.items.top; i++)
			if (write_node(r, *i, depth + 1) != 0)
				return -1;
		jwrite_end(&r->w);
		return 0;
	default:
		return node_fail(r, n, "an empty node");
	}
}

static int
read_document(yaml_document_t *doc, yamldoc_fn fn, void *arg, struct err *e)
{
	struct reader r = { .doc = doc, .e = e };
	int rc;

	jwrite_init(&r.w, &r.out);
	rc = write_node(&r, 1, 1);
	if (rc == 0)
		rc = fn(arg, buf_span(&r.out), e);
	buf_fini(&r.out);
	arena_fini(&r.arena);
	return rc;
}

static int
read_yaml(struct span text, yamldoc_fn fn, void *arg, struct err *e)
{
	yaml_parser_t parser;
	yaml_document_t doc;
	int rc = 0;

	if (!yaml_parser_initialize(&parser))
		return err_set(e, ERR_BUG, "cannot start the YAML parser");
	yaml_parser_set_input_string(
		&parser, (const unsigned char *)text.p, text.n);
	while (rc == 0) {
		if (!yaml_parser_load(&parser, &doc)) {
			rc = err_set(e, ERR_INPUT, "line %zu: %s",
				parser.problem_mark.line + 1,
				parser.problem ? parser.problem : "not YAML");
			break;
		}
		bool more = yaml_document_get_root_node(&doc) != NULL;

		if (more)
			rc = read_document(&doc, fn, arg, e);
		yaml_document_delete(&doc);
		if (!more)
			break;
	}
	yaml_parser_delete(&parser);
	return rc;
}

/* ---- JSON values one after another, `---` between them or not ---- */

static struct span
skip_between(struct span s)
{
	for (;;) {
		if (s.n && strchr(" \t\r\n", *s.p) && *s.p)
			s = span_make(s.p + 1, s.n - 1);
		else if (s.n >= 3 && memcmp(s.p, "---", 3) == 0)
			s = span_make(s.p + 3, s.n - 3);
		else
			return s;
	}
}

/* False when the text is not a sequence of JSON values. */
static bool
is_json(struct span s)
{
	struct jspan_val v;
	struct jspan j;

	while ((s = skip_between(s)).n) {
		jspan_open(&j, s);
		if (*s.p != '{' || !jspan_take(&j, &v))
			return false;
		s = span_make(j.p, (size_t)(j.end - j.p));
	}
	return true;
}

int
yamldoc_read(struct span text, yamldoc_fn fn, void *arg, struct err *e)
{
	struct jspan_val v;
	struct jspan j;
	int rc = 0;

	if (!is_json(text))
		return read_yaml(text, fn, arg, e);
	while (rc == 0 && (text = skip_between(text)).n) {
		jspan_open(&j, text);
		if (!jspan_take(&j, &v))
			break;
		rc = fn(arg, v.raw, e);
		text = span_make(j.p, (size_t)(j.end - j.p));
	}
	return rc;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Settings from the environment.  A value that does not parse is an error,
 * never a silent default; the value of a secret never reaches a text.
 */
#include "conf.h"

#include <errno.h>
#include <inttypes.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "buf.h"
#include "err.h"
#include "log.h"
#include "span.h"

enum { SECRET_FILE_MAX_BYTES = 1 << 20 };

static void *
field(void *base, const struct conf_item *i)
{
	return (char *)base + i->at;
}

static const void *
field_const(const void *base, const struct conf_item *i)
{
	return (const char *)base + i->at;
}

static char *
dup_bytes(const char *p, size_t n)
{
	char *s = malloc(n + 1);

	BUG(!s);
	memcpy(s, p, n);
	s[n] = '\0';
	return s;
}

static int
bad(struct err *e, const struct conf_item *i, const char *text, const char *why)
{
	if (i->secret)
		return err_set(e, ERR_CONFIG, "%s %s", i->name, why);
	return err_set(e, ERR_CONFIG, "%s=\"%.64s\" %s", i->name, text, why);
}

static bool
same_word(struct span v, const char *w, size_t n)
{
	return v.n == n && strncasecmp(v.p, w, n) == 0;
}

static bool
parse_bool(struct span v, bool *out)
{
	static const char *const yes[] = { "true", "1", "yes", "on" };
	static const char *const no[] = { "false", "0", "no", "off" };

	for (int k = 0; k < 4; k++) {
		if (same_word(v, yes[k], strlen(yes[k]))) {
			*out = true;
			return true;
		}
		if (same_word(v, no[k], strlen(no[k]))) {
			*out = false;
			return true;
		}
	}
	return false;
}

/* The word as the table spells it, allocated; NULL when it is none. */
static char *
find_word(const char *words, struct span v)
{
	while (*words) {
		size_t n = strcspn(words, " ");

		if (n > 0 && same_word(v, words, n))
			return dup_bytes(words, n);
		words += n;
		words += *words == ' ';
	}
	return NULL;
}

static int
set_int(const struct conf_item *i, void *base, const char *text, struct span v,
	struct err *e)
{
	char why[96];
	int64_t n;

	if (!span_i64(v, &n))
		return bad(e, i, text, "is not a whole number");
	if (n < i->min) {
		snprintf(why, sizeof(why), "is below the minimum %" PRId64,
			i->min);
		return bad(e, i, text, why);
	}
	if (n > i->max) {
		snprintf(why, sizeof(why), "is above the maximum %" PRId64,
			i->max);
		return bad(e, i, text, why);
	}
	*(int64_t *)field(base, i) = n;
	return 0;
}

/* text NULL = unset and no default: the field's zero. */
static int
set(const struct conf_item *i, void *base, const char *text, struct err *e)
{
	struct span v = span_trim(span_of(text));
	char why[192];
	char *word;

	switch (i->type) {
	case CONF_STR:
		*(char **)field(base, i) =
			text ? dup_bytes(text, strlen(text)) : NULL;
		return 0;
	case CONF_BOOL:
		*(bool *)field(base, i) = false;
		if (text && !parse_bool(v, field(base, i)))
			return bad(e, i, text,
				"is not a boolean (expected "
				"true/false, 1/0, yes/no, on/off)");
		return 0;
	case CONF_INT:
		*(int64_t *)field(base, i) = 0;
		return text ? set_int(i, base, text, v, e) : 0;
	case CONF_WORD:
		word = text ? find_word(i->words, v) : NULL;
		if (text && !word) {
			snprintf(why, sizeof(why), "is not one of: %s",
				i->words);
			return bad(e, i, text, why);
		}
		*(char **)field(base, i) = word;
		return 0;
	case CONF_ACCEPT:
		return 0;
	}
	return 0;
}

/* Content of the file, one line end at its end taken off; allocated. */
static char *
read_secret(const char *name, const char *path, struct err *e)
{
	FILE *f = fopen(path, "re");
	char *p = malloc(SECRET_FILE_MAX_BYTES + 1), *out = NULL;
	size_t n = 0;

	BUG(!p);
	if (!f) {
		err_set(e, ERR_CONFIG, "%s: cannot open \"%.100s\": %s", name,
			path, strerror(errno));
		goto out;
	}
	/* no buffer of stdio, which would keep a copy */
	setvbuf(f, NULL, _IONBF, 0);
	n = fread(p, 1, SECRET_FILE_MAX_BYTES + 1, f);
	if (ferror(f)) {
		err_set(e, ERR_CONFIG, "%s: cannot read \"%.100s\"", name,
			path);
		goto out;
	}
	if (n > SECRET_FILE_MAX_BYTES || memchr(p, '\0', n)) {
		err_set(e, ERR_CONFIG,
			"%s: \"%.100s\" is not a text file of "
			"at most 1 MiB",
			name, path);
		goto out;
	}
	if (n > 0 && p[n - 1] == '\n')
		n--;
	if (n > 0 && p[n - 1] == '\r')
		n--;
	out = dup_bytes(p, n);
out:
	if (f)
		fclose(f);
	sodium_memzero(p, n);
	free(p);
	return out;
}

static int
load_one(const struct conf_item *i, void *base, struct err *e)
{
	const char *text = getenv(i->name), *path = NULL;
	char file[128];
	char *secret;
	int rc;

	if (i->secret) {
		snprintf(file, sizeof(file), "%s_FILE", i->name);
		path = getenv(file);
	}
	if (path && *path) {
		if (text && *text)
			return err_set(e, ERR_CONFIG, "%s and %s are both set",
				i->name, file);
		secret = read_secret(file, path, e);
		if (!secret)
			return -1;
		rc = set(i, base, secret, e);
		sodium_memzero(secret, strlen(secret));
		free(secret);
		return rc;
	}
	/* An empty string is a value; an empty number or word is none. */
	if (text && i->type != CONF_STR && span_trim(span_of(text)).n == 0)
		text = NULL;
	return set(i, base, text ? text : i->dflt, e);
}

int
conf_load(const struct conf_item *items, size_t n, void *base, struct err *e)
{
	/* First all strings NULL, so that conf_fini works after a failure. */
	for (size_t k = 0; k < n; k++)
		if (items[k].type == CONF_STR || items[k].type == CONF_WORD)
			*(char **)field(base, &items[k]) = NULL;
	for (size_t k = 0; k < n; k++)
		if (items[k].type != CONF_ACCEPT &&
			load_one(&items[k], base, e) < 0)
			return -1;
	return 0;
}

void
conf_fini(const struct conf_item *items, size_t n, void *base)
{
	for (size_t k = 0; k < n; k++) {
		char **s;

		if (items[k].type != CONF_STR && items[k].type != CONF_WORD)
			continue;
		s = field(base, &items[k]);
		if (*s && items[k].secret)
			sodium_memzero(*s, strlen(*s));
		free(*s);
		*s = NULL;
	}
}

static void
put_value(struct buf *b, const struct conf_item *i, const void *base)
{
	const char *s;
	int64_t n;

	switch (i->type) {
	case CONF_BOOL:
		buf_puts(b,
			*(const bool *)field_const(base, i) ? "true" : "false");
		return;
	case CONF_INT:
		n = *(const int64_t *)field_const(base, i);
		/* without a default the field stays 0, which may be none */
		if (!i->dflt && n < i->min)
			buf_puts(b, "<unset>");
		else
			buf_printf(b, "%" PRId64, n);
		return;
	case CONF_STR:
	case CONF_WORD:
		s = *(char *const *)field_const(base, i);
		if (i->secret && s && *s)
			buf_printf(b, "<set:%zu chars>", strlen(s));
		else if (!s || i->secret)
			buf_puts(b, "<unset>");
		else
			buf_puts(b, s);
		return;
	case CONF_ACCEPT:
		return;
	}
}

void
conf_print(const struct conf_item *items, size_t n, const void *base, FILE *out)
{
	struct buf b = BUF_ZERO;

	for (size_t k = 0; k < n; k++) {
		if (items[k].type == CONF_ACCEPT)
			continue;
		buf_printf(&b, "%s=", items[k].name);
		put_value(&b, &items[k], base);
		buf_putc(&b, '\n');
	}
	fwrite(b.p, 1, b.len, out);
	buf_fini(&b);
}

static const char *
group_of(const struct conf_item *i)
{
	return i->type == CONF_ACCEPT || !i->group ? "" : i->group;
}

static bool
seen_before(const struct conf_item *items, size_t k)
{
	for (size_t j = 0; j < k; j++)
		if (strcmp(group_of(&items[j]), group_of(&items[k])) == 0)
			return true;
	return false;
}

/* NAME=value of one group, quoted where a space or a quote asks for it. */
static void
put_group(struct buf *b, const struct conf_item *items, size_t n,
	const char *group, const void *base)
{
	struct buf v = BUF_ZERO;

	for (size_t k = 0; k < n; k++) {
		if (strcmp(group_of(&items[k]), group) != 0)
			continue;
		buf_reset(&v);
		put_value(&v, &items[k], base);
		buf_putc(&v, '\0');
		if (b->len > 0)
			buf_putc(b, ' ');
		buf_printf(b, "%s=%s", items[k].name,
			v.p[0] == '\0' || strpbrk(v.p, " \"\\\n\t")
				? log_quote(v.p)
				: v.p);
	}
	buf_fini(&v);
}

void
conf_log(const struct conf_item *items, size_t n, const void *base)
{
	struct buf b = BUF_ZERO;
	char message[64];

	for (size_t k = 0; k < n; k++) {
		const char *group = group_of(&items[k]);

		if (!*group || seen_before(items, k))
			continue;
		buf_reset(&b);
		put_group(&b, items, n, group, base);
		buf_putc(&b, '\0');
		snprintf(message, sizeof(message), "config: %s", group);
		log_line(LOG_INFO, "boot", message, "%s", b.p);
	}
	buf_fini(&b);
}

void
conf_warn_ignored(const struct conf_item *items, size_t n)
{
	struct buf b = BUF_ZERO;

	for (size_t k = 0; k < n; k++) {
		const char *v = getenv(items[k].name);

		if (items[k].type != CONF_ACCEPT || !v || !*v)
			continue;
		if (b.len > 0)
			buf_putc(&b, ',');
		buf_puts(&b, items[k].name);
	}
	if (b.len > 0) {
		buf_putc(&b, '\0');
		log_line(LOG_WARN, "boot", "settings accepted but not needed",
			"names=%s", b.p);
	}
	buf_fini(&b);
}

static bool
is_known(const struct conf_item *items, size_t n, const char *name, size_t len)
{
	for (size_t k = 0; k < n; k++) {
		size_t have = strlen(items[k].name);

		if (len < have || memcmp(items[k].name, name, have) != 0)
			continue;
		if (len == have ||
			(items[k].secret && len == have + 5 &&
				memcmp(name + have, "_FILE", 5) == 0))
			return true;
	}
	return false;
}

void
conf_warn_unknown(const struct conf_item *items, size_t n, const char *prefix,
	const char *except)
{
	struct buf b = BUF_ZERO;

	for (char **v = environ; v && *v; v++) {
		size_t len = strcspn(*v, "=");

		if (strncmp(*v, prefix, strlen(prefix)) != 0 ||
			is_known(items, n, *v, len) ||
			span_is(span_make(*v, len), except))
			continue;
		if (b.len > 0)
			buf_putc(&b, ',');
		buf_put(&b, *v, len);
	}
	if (b.len > 0) {
		buf_putc(&b, '\0');
		log_line(LOG_WARN, "boot", "there are no such settings",
			"names=%s", log_quote(b.p));
	}
	buf_fini(&b);
}

void
conf_help(const struct conf_item *items, size_t n, FILE *out)
{
	for (size_t k = 0; k < n; k++) {
		const struct conf_item *i = &items[k];

		if (i->type == CONF_ACCEPT)
			continue;
		fprintf(out, "  %-32s %s", i->name, i->help);
		if (i->words)
			fprintf(out, "; one of: %s", i->words);
		if (i->dflt)
			fprintf(out, " [%s]", i->dflt);
		if (i->secret)
			fprintf(out, " (or %s_FILE)", i->name);
		fputc('\n', out);
	}
}

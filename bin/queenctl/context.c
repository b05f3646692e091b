/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The configuration file: contexts, the current one, references to tokens.
 * It is replaced as a whole, never edited in place.
 */
#include "context.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "arena.h"
#include "buf.h"
#include "doc.h"
#include "err.h"
#include "file.h"
#include "jwrite.h"
#include "yamldoc.h"

void
context_set(char **field, const char *value)
{
	char *copy = value ? strdup(value) : NULL;

	free(*field);
	*field = copy;
}

static void
drop(struct context *c)
{
	free(c->name);
	free(c->server);
	free(c->ojs_url);
	free(c->token_ref);
}

void
context_file_fini(struct context_file *f)
{
	for (size_t i = 0; i < f->n; i++)
		drop(&f->list[i]);
	free(f->list);
	free(f->path);
	free(f->current);
	*f = (struct context_file){ .path = NULL };
}

struct context *
context_find(const struct context_file *f, const char *name)
{
	for (size_t i = 0; i < f->n; i++)
		if (strcmp(f->list[i].name, name) == 0)
			return &f->list[i];
	return NULL;
}

static struct context *
append(struct context_file *f, const char *name)
{
	struct context *list = realloc(f->list, (f->n + 1) * sizeof(*f->list));

	BUG(!list);
	f->list = list;
	list[f->n] = (struct context){ .name = strdup(name) };
	return &list[f->n++];
}

struct context *
context_add(struct context_file *f, const char *name)
{
	struct context *c = context_find(f, name);

	if (c)
		return c;
	if (f->n == 0)
		context_set(&f->current, name);
	return append(f, name);
}

bool
context_remove(struct context_file *f, const char *name)
{
	struct context *c = context_find(f, name);

	if (!c)
		return false;
	/* name may be the context's own string */
	if (f->current && strcmp(f->current, name) == 0)
		context_set(&f->current, NULL);
	drop(c);
	f->n--;
	memmove(c, c + 1, (size_t)(&f->list[f->n] - c) * sizeof(*c));
	return true;
}

int
context_check_name(const char *name, struct err *e)
{
	if (*name == '\0' || *name == '.' || strchr(name, '/') ||
		strlen(name) > 100)
		return err_set(e, ERR_CONFIG,
			"\"%.60s\" cannot be the name of a context", name);
	for (const char *p = name; *p; p++)
		if ((unsigned char)*p < 0x20 || *p == 0x7f)
			return err_set(e, ERR_CONFIG,
				"a context's name holds a control character");
	return 0;
}

const char *
context_auth(const char *ref)
{
	if (!ref || !*ref)
		return "none";
	if (strcmp(ref, "env") == 0)
		return "env";
	if (strncmp(ref, "keychain://", 11) == 0)
		return "keychain";
	if (strncmp(ref, "file://", 7) == 0)
		return "file";
	return "literal";
}

/* ---- the file ---- */

static char *
choose_path(const struct context_ask *ask)
{
	const char *env = getenv("QUEEN_CONFIG"), *home = getenv("HOME");
	char *out = NULL;

	if (ask->config && *ask->config)
		return strdup(ask->config);
	if (env && *env)
		return strdup(env);
	if (asprintf(&out, "%s/.queen/config.yaml",
		    home && *home ? home : ".") < 0)
		return NULL;
	return out;
}

struct loading {
	struct context_file *f;
	struct arena arena;
};

static char *
take_str(struct loading *l, struct span doc, const char *key)
{
	const char *s = doc_str(doc, key, NULL, &l->arena);

	return s ? strdup(s) : NULL;
}

static int
on_document(void *arg, struct span json, struct err *e)
{
	struct loading *l = arg;
	struct jspan_val list, v;
	struct jspan j;

	if (doc_val(json).type == JSPAN_NULL)
		return 0;
	if (doc_val(json).type != JSPAN_OBJECT)
		return err_set(e, ERR_CONFIG, "expected a mapping");
	l->f->current = take_str(l, json, "current-context");
	if (!doc_path(json, "contexts", &l->arena, &list))
		return 0;
	if (list.type != JSPAN_ARRAY)
		return err_set(e, ERR_CONFIG, "contexts is not a list");
	for (doc_open(&j, list.raw); doc_next(&j, &v);) {
		const char *name = doc_str(v.raw, "name", NULL, &l->arena);
		struct context *c;

		if (!name || context_find(l->f, name))
			return err_set(e, ERR_CONFIG,
				name ? "context \"%s\" is there twice"
				     : "a context has no name%s",
				name ? name : "");
		c = append(l->f, name);
		c->server = take_str(l, v.raw, "server");
		c->ojs_url = take_str(l, v.raw, "ojs_url");
		c->token_ref = take_str(l, v.raw, "token-ref");
		c->insecure = doc_true(v.raw, "insecure", &l->arena);
	}
	return 0;
}

int
context_load(
	struct context_file *f, const struct context_ask *ask, struct err *e)
{
	struct loading l = { .f = f };
	struct buf text = BUF_ZERO;
	int rc;

	*f = (struct context_file){ .path = choose_path(ask) };
	BUG(!f->path);
	rc = file_read(f->path, FILE_SMALL_BYTES, &text, e);
	if (rc != 0 && e->errnum == ENOENT) {
		*e = (struct err)ERR_ZERO;
		return 0;
	}
	if (rc == 0)
		rc = yamldoc_read(buf_span(&text), on_document, &l, e);
	if (rc != 0) {
		err_wrap(e, "%s", f->path);
		e->kind = ERR_CONFIG;
	}
	arena_fini(&l.arena);
	buf_fini(&text);
	return rc;
}

static void
write_json(const struct context_file *f, struct buf *out)
{
	struct jwrite w;

	jwrite_init(&w, out);
	jwrite_object(&w);
	if (f->current)
		jwrite_kv_cstr(&w, "current-context", f->current);
	jwrite_key(&w, "contexts");
	jwrite_array(&w);
	for (size_t i = 0; i < f->n; i++) {
		const struct context *c = &f->list[i];

		jwrite_object(&w);
		jwrite_kv_cstr(&w, "name", c->name);
		if (c->server)
			jwrite_kv_cstr(&w, "server", c->server);
		if (c->ojs_url)
			jwrite_kv_cstr(&w, "ojs_url", c->ojs_url);
		if (c->token_ref)
			jwrite_kv_cstr(&w, "token-ref", c->token_ref);
		if (c->insecure)
			jwrite_kv_bool(&w, "insecure", true);
		jwrite_end(&w);
	}
	jwrite_end(&w);
	jwrite_end(&w);
}

int
context_save(const struct context_file *f, struct err *e)
{
	struct buf json = BUF_ZERO, yaml = BUF_ZERO;
	int rc;

	write_json(f, &json);
	rc = yamldoc_write(&yaml, buf_span(&json), e);
	if (rc == 0)
		rc = file_replace(f->path, buf_span(&yaml), e);
	buf_fini(&json);
	buf_fini(&yaml);
	return rc;
}

/* ---- tokens in files ---- */

char *
context_token_path(const struct context_file *f, const char *name)
{
	const char *slash = strrchr(f->path, '/');
	char *out = NULL, *cwd = NULL;
	int rc;

	if (f->path[0] != '/')
		cwd = getcwd(NULL, 0); /* a file:// reference is absolute */
	rc = asprintf(&out, "%s%s%.*s/tokens/%s", cwd ? cwd : "",
		cwd && slash ? "/" : "", slash ? (int)(slash - f->path) : 0,
		f->path, name);
	free(cwd);
	return rc < 0 ? NULL : out;
}

char *
context_keep_token(const struct context_file *f, const char *name,
	const char *token, struct err *e)
{
	char *path = context_token_path(f, name), *ref = NULL;
	struct buf line = BUF_ZERO;

	BUG(!path);
	buf_printf(&line, "%s\n", token);
	if (file_replace(path, buf_span(&line), e) == 0 &&
		asprintf(&ref, "file://%s", path) < 0)
		ref = NULL;
	explicit_bzero(line.p, line.len);
	buf_fini(&line);
	free(path);
	return ref;
}

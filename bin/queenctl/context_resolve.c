/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From flags, environment and file to one server and one token.  A token is
 * read only when it is going to be used, and never printed.
 */
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "buf.h"
#include "cell.h"
#include "context.h"
#include "err.h"
#include "file.h"
#include "qid.h"
#include "span.h"

enum { TOKEN_MAX_BYTES = 64 << 10 };

static const char *
env(const char *name)
{
	const char *v = getenv(name);

	return v && *v ? v : NULL;
}

void
context_target_fini(struct context_target *t)
{
	if (t->token)
		explicit_bzero(t->token, strlen(t->token));
	free(t->token);
	free(t->tenant);
	free(t->url);
	free(t->context);
	*t = (struct context_target){ .url = NULL };
}

/* The context in use, NULL = none. */
static int
choose(const struct context_file *f, const struct context_ask *ask,
	const struct context **out, struct err *e)
{
	const char *typed = ask->context && *ask->context
				    ? ask->context
				    : env("QUEEN_CONTEXT");

	*out = NULL;
	if (typed) {
		*out = context_find(f, typed);
		if (!*out)
			return err_set(e, ERR_CONFIG,
				"there is no context \"%.60s\" in %s", typed,
				f->path);
	} else if (f->current) {
		*out = context_find(f, f->current);
	}
	return 0;
}

int
context_check_url(const char *url, struct err *e)
{
	size_t n = strlen(url);

	if (strncmp(url, "http://", 7) != 0 && strncmp(url, "https://", 8) != 0)
		return err_set(e, ERR_CONFIG,
			"server \"%.100s\" must start with http:// or https://",
			url);
	for (size_t i = 0; i < n; i++)
		if ((unsigned char)url[i] <= 0x20 || url[i] == 0x7f)
			return err_set(e, ERR_CONFIG,
				"the server's URL holds a space or control "
				"character");
	return 0;
}

/* The cell that `up` last started, when it runs; ojs: its queen-ojs. */
static int
ask_cell(struct context_target *t, bool ojs, struct err *e)
{
	char dir[CELL_PATH];
	struct cell_running run;
	struct cell cell;

	if (!cell_last(dir) || cell_locate(&cell, dir, e) != 0)
		return err_set(e, ERR_CONFIG,
			"no server configured: set --server, QUEEN_SERVER, or "
			"run 'queenctl config set-context'");
	if (!cell_is_running(&cell, &run) || !run.url[0])
		return err_set(e, ERR_CONFIG,
			"no server configured, and the cell in %s is not up; "
			"start it: queenctl up --detach --dir %s",
			dir, dir);
	if (ojs && !run.ojs_url[0])
		return err_set(e, ERR_CONFIG,
			"the cell in %s runs without queen-ojs; stop it, then: "
			"queenctl up --with ojs --detach --dir %s",
			dir, dir);
	t->url = strdup(ojs ? run.ojs_url : run.url);
	return 0;
}

static int
set_url(struct context_target *t, const char *url, struct err *e)
{
	if (context_check_url(url, e) != 0)
		return -1;
	t->url = strdup(url);
	for (size_t n = strlen(t->url); n && t->url[n - 1] == '/'; n--)
		t->url[n - 1] = '\0';
	return 0;
}

/* Scheme and host of a server's URL, with the port of queen-ojs. */
static int
set_ojs_port(struct context_target *t, const char *url, struct err *e)
{
	const char *host;
	size_t n;

	if (context_check_url(url, e) != 0)
		return -1;
	host = strstr(url, "://") + 3;
	n = strcspn(host, host[0] == '[' ? "]/" : ":/");
	n += host[n] == ']';
	if (asprintf(&t->url, "%.*s:%d", (int)(host - url + (ptrdiff_t)n), url,
		    CELL_OJS_PORT) < 0)
		t->url = NULL;
	return 0;
}

/* ---- token ---- */

static char *
token_of_file(const char *path, struct err *e)
{
	struct buf text = BUF_ZERO;
	char *out = NULL;
	struct span s;

	if (file_read(path, TOKEN_MAX_BYTES, &text, e) == 0) {
		s = span_trim(buf_span(&text));
		out = strndup(s.n ? s.p : "", s.n);
	} else {
		err_wrap(e, "the token");
	}
	if (text.p)
		explicit_bzero(text.p, text.len);
	buf_fini(&text);
	return out;
}

static char *
token_of_ref(const char *ref, struct err *e)
{
	if (strcmp(ref, "env") == 0) {
		if (env("QUEEN_TOKEN"))
			return strdup(env("QUEEN_TOKEN"));
		err_set(e, ERR_CONFIG,
			"token-ref is env, and QUEEN_TOKEN is "
			"not set");
		return NULL;
	}
	if (strncmp(ref, "keychain://", 11) == 0) {
		err_set(e, ERR_CONFIG,
			"token-ref %.60s: keychains are not supported; keep "
			"the token in a file: queenctl config set-context "
			"NAME --token TOKEN",
			ref);
		return NULL;
	}
	if (strncmp(ref, "file://", 7) == 0)
		return token_of_file(ref + 7, e);
	return strdup(strncmp(ref, "literal:", 8) == 0 ? ref + 8 : ref);
}

static int
set_token(struct context_target *t, const struct context_ask *ask,
	const char *ref, struct err *e)
{
	if (ask->token && *ask->token)
		t->token = strdup(ask->token);
	else if (env("QUEEN_TOKEN"))
		t->token = strdup(env("QUEEN_TOKEN"));
	else if (env("QUEEN_TOKEN_FILE"))
		t->token = token_of_file(env("QUEEN_TOKEN_FILE"), e);
	else if (ref && *ref)
		t->token = token_of_ref(ref, e);
	else
		return 0;
	if (!t->token)
		return -1;
	/* it becomes a header line */
	for (const char *p = t->token; *p; p++)
		if ((unsigned char)*p <= 0x20 || *p == 0x7f)
			return err_set(e, ERR_CONFIG,
				"the token holds a space or control character");
	return 0;
}

static int
set_tenant(
	struct context_target *t, const struct context_ask *ask, struct err *e)
{
	const char *text =
		ask->tenant && *ask->tenant ? ask->tenant : env("QUEEN_TENANT");
	struct qid id;

	if (!text)
		return 0;
	if (!qid_parse(span_of(text), &id))
		return err_set(
			e, ERR_CONFIG, "tenant \"%.60s\" is no UUID", text);
	t->tenant = strdup(qid_text(&id, (char[QID_TEXT_MAX]){ 0 }));
	return 0;
}

static int
find_server(const struct context_ask *ask, const struct context *c,
	struct context_target *t, struct err *e)
{
	const char *url =
		ask->server && *ask->server ? ask->server : env("QUEEN_SERVER");

	if (!url && c)
		url = c->server;
	return url ? set_url(t, url, e) : ask_cell(t, false, e);
}

/* The same but for slashes at the end; one that is not named is the other. */
static bool
is_same(const char *named, const char *server)
{
	size_t n = named ? strlen(named) : 0, m = server ? strlen(server) : 0;

	while (n && named[n - 1] == '/')
		n--;
	while (m && server[m - 1] == '/')
		m--;
	return !named || (n == m && memcmp(named, server, n) == 0);
}

/* Who writes where the routes are means where they begin. */
static int
set_ojs_url(struct context_target *t, const char *url, struct err *e)
{
	static const char routes[] = "/ojs/v1";
	size_t n, m = sizeof(routes) - 1;

	if (set_url(t, url, e) != 0)
		return -1;
	n = strlen(t->url);
	if (n > m && strcmp(t->url + n - m, routes) == 0)
		t->url[n - m] = '\0';
	return 0;
}

static int
find_ojs(const struct context_ask *ask, const struct context *c,
	struct context_target *t, struct err *e)
{
	const char *url = env("QUEEN_OJS_URL"), *server = env("QUEEN_SERVER");
	const char *named = ask->server && *ask->server ? ask->server : NULL;

	/* each address of queen-ojs belongs to the server beside it */
	if (url && is_same(named, server || !c ? server : c->server))
		return set_ojs_url(t, url, e);
	if (named)
		server = named;
	if (c && c->ojs_url && is_same(server, c->server))
		return set_ojs_url(t, c->ojs_url, e);
	if (!server && c)
		server = c->server;
	return server ? set_ojs_port(t, server, e) : ask_cell(t, true, e);
}

typedef int (*find_fn)(const struct context_ask *ask, const struct context *c,
	struct context_target *t, struct err *e);

static int
resolve(find_fn find, const struct context_ask *ask, struct context_target *t,
	struct err *e)
{
	const struct context *c;
	struct context_file f;
	int rc = -1;

	*t = (struct context_target){ .url = NULL };
	if (context_load(&f, ask, e) != 0 || choose(&f, ask, &c, e) != 0)
		goto out;
	t->insecure = ask->insecure || (c && c->insecure);
	if (c)
		t->context = strdup(c->name);
	if (find(ask, c, t, e) != 0 || set_tenant(t, ask, e) != 0 ||
		set_token(t, ask, c ? c->token_ref : NULL, e) != 0)
		goto out;
	rc = 0;
out:
	if (rc != 0)
		context_target_fini(t);
	context_file_fini(&f);
	return rc;
}

int
context_resolve(
	const struct context_ask *ask, struct context_target *t, struct err *e)
{
	return resolve(find_server, ask, t, e);
}

int
context_resolve_ojs(
	const struct context_ask *ask, struct context_target *t, struct err *e)
{
	if (resolve(find_ojs, ask, t, e) != 0)
		return -1;
	t->ojs = true;
	return 0;
}

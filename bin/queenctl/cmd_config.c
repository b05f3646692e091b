/* SPDX-License-Identifier: Apache-2.0 */
/* Contexts in the config file, and the shells' completion. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "buf.h"
#include "cmds.h"
#include "ctl.h"
#include "jwrite.h"
#include "out.h"

/* A literal token is a secret, a reference is none. */
static const char *
shown_ref(const char *ref)
{
	return strcmp(context_auth(ref), "literal") == 0 ? "literal:<set>"
							 : ref;
}

int
cmd_config_view(struct ctl *c, const struct cmd_call *a)
{
	struct context_file f;
	struct err e = ERR_ZERO;
	struct buf b = BUF_ZERO;
	struct jwrite w;
	int code;

	(void)a;
	if (context_load(&f, &c->ask, &e) != 0) {
		code = ctl_fail_err(&e);
		goto out;
	}
	jwrite_init(&w, &b);
	jwrite_object(&w);
	if (f.current)
		jwrite_kv_cstr(&w, "current-context", f.current);
	jwrite_key(&w, "contexts");
	jwrite_array(&w);
	for (size_t i = 0; i < f.n; i++) {
		const struct context *x = &f.list[i];

		jwrite_object(&w);
		jwrite_kv_cstr(&w, "name", x->name);
		if (x->server)
			jwrite_kv_cstr(&w, "server", x->server);
		if (x->ojs_url)
			jwrite_kv_cstr(&w, "ojs_url", x->ojs_url);
		if (x->token_ref && *x->token_ref)
			jwrite_kv_cstr(
				&w, "token-ref", shown_ref(x->token_ref));
		if (x->insecure)
			jwrite_kv_bool(&w, "insecure", true);
		jwrite_end(&w);
	}
	jwrite_end(&w);
	jwrite_end(&w);
	/* the file is YAML, also when it is piped */
	if (!c->output)
		c->format = CTL_YAML;
	code = out_print(c, buf_span(&b), NULL);
out:
	buf_fini(&b);
	context_file_fini(&f);
	return code;
}

int
cmd_config_current(struct ctl *c, const struct cmd_call *a)
{
	struct context_file f;
	struct err e = ERR_ZERO;
	int code = CTL_OK;

	(void)a;
	if (context_load(&f, &c->ask, &e) != 0)
		code = ctl_fail_err(&e);
	else if (!f.current || !*f.current)
		code = CTL_NOTHING;
	else
		printf("%s\n", f.current);
	context_file_fini(&f);
	return code;
}

int
cmd_config_list(struct ctl *c, const struct cmd_call *a)
{
	struct context_file f;
	struct err e = ERR_ZERO;
	struct buf b = BUF_ZERO;
	struct jwrite w;
	int code;

	if (context_load(&f, &c->ask, &e) != 0) {
		code = ctl_fail_err(&e);
		goto out;
	}
	jwrite_init(&w, &b);
	jwrite_array(&w);
	for (size_t i = 0; i < f.n; i++) {
		const struct context *x = &f.list[i];

		jwrite_object(&w);
		jwrite_kv_cstr(&w, "current",
			f.current && strcmp(f.current, x->name) == 0 ? "*"
								     : "");
		jwrite_kv_cstr(&w, "name", x->name);
		jwrite_kv_cstr(&w, "server", x->server);
		if (x->ojs_url)
			jwrite_kv_cstr(&w, "ojsUrl", x->ojs_url);
		jwrite_kv_cstr(&w, "auth", context_auth(x->token_ref));
		jwrite_kv_bool(&w, "insecure", x->insecure);
		jwrite_end(&w);
	}
	jwrite_end(&w);
	code = out_print(c, buf_span(&b), a->phrase->view);
out:
	buf_fini(&b);
	context_file_fini(&f);
	return code;
}

/* ---- changes ---- */

static int
save(struct context_file *f, int code)
{
	struct err e = ERR_ZERO;

	if (code == 0 && context_save(f, &e) != 0)
		code = ctl_fail_err(&e);
	context_file_fini(f);
	return code;
}

static int
set_fields(struct ctl *c, const struct cmd_call *a, struct context_file *f,
	struct context *x)
{
	struct err e = ERR_ZERO;

	if (cmd_global(a, "server")->typed)
		context_set(&x->server, c->ask.server);
	if (cmd_global(a, "insecure")->typed)
		x->insecure = c->ask.insecure;
	if (cmd_typed(a, "ojs-url") && *cmd_str(a, "ojs-url") &&
		context_check_url(cmd_str(a, "ojs-url"), &e) != 0)
		return ctl_fail_err(&e);
	if (cmd_typed(a, "ojs-url"))
		context_set(&x->ojs_url, cmd_str(a, "ojs-url"));
	if (cmd_typed(a, "token-ref"))
		context_set(&x->token_ref, cmd_str(a, "token-ref"));
	if (cmd_global(a, "token")->typed) {
		char *ref = context_keep_token(f, x->name, c->ask.token, &e);

		if (!ref)
			return ctl_fail_err(&e);
		context_set(&x->token_ref, ref);
		free(ref);
	}
	return CTL_OK;
}

int
cmd_config_set(struct ctl *c, const struct cmd_call *a)
{
	struct context_file f = { .path = NULL };
	struct err e = ERR_ZERO;
	int code;

	if (cmd_global(a, "token")->typed && cmd_typed(a, "token-ref"))
		return ctl_fail(CTL_USER,
			"--token and --token-ref exclude one another");
	if (context_check_name(a->arg[0], &e) != 0 ||
		context_load(&f, &c->ask, &e) != 0) {
		context_file_fini(&f);
		return ctl_fail_err(&e);
	}
	code = save(&f, set_fields(c, a, &f, context_add(&f, a->arg[0])));
	if (code == 0)
		ctl_say(c, "context \"%s\" updated", a->arg[0]);
	return code;
}

/* Loads the file and finds the context that is named. */
static int
need_context(struct ctl *c, const char *name, struct context_file *f)
{
	struct err e = ERR_ZERO;

	if (context_load(f, &c->ask, &e) != 0)
		return ctl_fail_err(&e);
	if (context_find(f, name))
		return CTL_OK;
	return ctl_fail(
		CTL_USER, "there is no context \"%s\" in %s", name, f->path);
}

int
cmd_config_use(struct ctl *c, const struct cmd_call *a)
{
	struct context_file f;
	int code = need_context(c, a->arg[0], &f);

	if (code == 0)
		context_set(&f.current, a->arg[0]);
	code = save(&f, code);
	if (code == 0)
		ctl_say(c, "switched to context \"%s\"", a->arg[0]);
	return code;
}

int
cmd_config_delete(struct ctl *c, const struct cmd_call *a)
{
	struct context_file f;
	int code = need_context(c, a->arg[0], &f);

	if (code == 0) {
		const struct context *x = context_find(&f, a->arg[0]);
		char *path = context_token_path(&f, a->arg[0]);

		/* only the file we made; another one is not ours to remove */
		if (path && x->token_ref &&
			strncmp(x->token_ref, "file://", 7) == 0 &&
			strcmp(x->token_ref + 7, path) == 0)
			unlink(path);
		free(path);
		context_remove(&f, a->arg[0]);
	}
	code = save(&f, code);
	if (code == 0)
		ctl_say(c, "deleted context \"%s\"", a->arg[0]);
	return code;
}

/* ---- completion ---- */

int
cmd_completion(struct ctl *c, const struct cmd_call *a)
{
	struct buf b = BUF_ZERO;

	(void)c;
	if (strcmp(a->arg[0], "bash") == 0)
		cmd_complete_bash(&b);
	else if (strcmp(a->arg[0], "zsh") == 0)
		cmd_complete_zsh(&b);
	else if (cmd_is_word("fish powershell", a->arg[0]))
		return ctl_fail(CTL_USER,
			"there is no completion for %s, only "
			"for bash and zsh",
			a->arg[0]);
	else
		return ctl_fail(CTL_USER,
			"unknown shell \"%s\": expected bash "
			"or zsh",
			a->arg[0]);
	fwrite(b.p, 1, b.len, stdout);
	buf_fini(&b);
	return CTL_OK;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The configuration file and how a command finds its server: context, then
 * environment, then flags; without any, the private cell that `up` last
 * started.
 */
#ifndef QUEENCTL_CONTEXT_H
#define QUEENCTL_CONTEXT_H

#include <stdbool.h>
#include <stddef.h>

struct err;

/* The global flags as typed; NULL = not typed. */
struct context_ask {
	const char *config, *context, *server, *token, *tenant;
	bool insecure;
};

struct context {
	char *name;
	char *server;		/* NULL = none */
	char *ojs_url;		/* of queen-ojs; NULL = by the server's host */
	char *token_ref;	/* NULL = none */
	bool insecure;
};

/* The file in memory; owns its strings. */
struct context_file {
	char *path;
	char *current;		/* NULL = none */
	struct context *list;
	size_t n;
};

/* Where requests go; owns its strings. */
struct context_target {
	char *url;		/* no slash at the end */
	char *token;		/* NULL = none */
	char *tenant;		/* UUID, NULL = the default tenant */
	char *context;		/* name in use, NULL = none */
	bool insecure;
	bool ojs;		/* it is queen-ojs */
};

/*
 * Reads ~/.queen/config.yaml, $QUEEN_CONFIG or ask->config; a file that is not
 * there is an empty one.  ERR_CONFIG when it does not parse.
 */
int context_load(struct context_file *f, const struct context_ask *ask,
	struct err *e) __attribute__((warn_unused_result));
/* Writes it beside and moves it there: file 0600, folder 0700. */
int context_save(const struct context_file *f, struct err *e)
	__attribute__((warn_unused_result));
void context_file_fini(struct context_file *f);

struct context *context_find(const struct context_file *f, const char *name);
/* Finds or appends; the first one becomes the current one. */
struct context *context_add(struct context_file *f, const char *name);
/* False when there is none of this name. */
bool context_remove(struct context_file *f, const char *name);
/* Sets a string of a context; NULL clears it. */
void context_set(char **field, const char *value);
/* A name that can also be a file name; ERR_CONFIG else. */
int context_check_name(const char *name, struct err *e)
	__attribute__((warn_unused_result));
/* none, env, keychain, file or literal. */
const char *context_auth(const char *token_ref);
/* tokens/NAME beside the file; allocated. */
char *context_token_path(const struct context_file *f, const char *name);
/* Writes a token there, 0600, and returns its file:// reference, allocated. */
char *context_keep_token(const struct context_file *f, const char *name,
	const char *token, struct err *e);

/* ERR_CONFIG when requests cannot go there. */
int context_check_url(const char *url, struct err *e)
	__attribute__((warn_unused_result));
int context_resolve(const struct context_ask *ask, struct context_target *t,
	struct err *e) __attribute__((warn_unused_result));
/*
 * The same for queen-ojs: QUEEN_OJS_URL, else ojs_url of the context, neither
 * when another server is named; else the host of that server on port 6634.
 */
int context_resolve_ojs(const struct context_ask *ask,
	struct context_target *t, struct err *e)
	__attribute__((warn_unused_result));
void context_target_fini(struct context_target *t);

#endif

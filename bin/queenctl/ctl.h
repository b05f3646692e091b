/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One run of queenctl: the global flags as typed, what they resolve to, and
 * memory that lives as long as the command.  Passed, never global.
 */
#ifndef QUEENCTL_CTL_H
#define QUEENCTL_CTL_H

#include <stdbool.h>
#include <stdint.h>

#include "arena.h"
#include "context.h"
#include "err.h"

struct client;

/* The exit codes; scripts depend on them. */
enum {
	CTL_OK = 0,
	CTL_USER = 1,		/* bad flag, argument or input; no --yes */
	CTL_SERVER = 2,		/* server error or unreachable; the rest */
	CTL_AUTH = 3,		/* 401 and 403 */
	CTL_NOTHING = 4,	/* done, and there was nothing to do */
};

enum ctl_format {
	CTL_TABLE, CTL_WIDE, CTL_JSON, CTL_NDJSON, CTL_YAML, CTL_RAW,
	CTL_JSONPATH
};

enum ctl_color { CTL_COLOR_AUTO, CTL_COLOR_ON, CTL_COLOR_OFF };

struct ctl {
	struct context_ask ask;		/* global flags about the server */
	const char *output;		/* as typed, NULL = by the terminal */
	enum ctl_format format;
	const char *jsonpath;
	enum ctl_color color;
	bool quiet, no_headers;
	struct context_target target;	/* empty until ctl_target */
	struct client *client;		/* made by the first request */
	struct arena arena;
};

void ctl_fini(struct ctl *c);
/* Reads c->output; CTL_USER with a message for an unknown format. */
int ctl_set_format(struct ctl *c);
/* Resolves server and token, once; 0 or an exit code. */
int ctl_target(struct ctl *c);
/* The same for queen-ojs. */
int ctl_target_ojs(struct ctl *c);
/* `queenctl: TEXT` on stderr, control characters blanked; returns code. */
int ctl_fail(int code, const char *fmt, ...)
	__attribute__((format(printf, 2, 3), nonnull(2)));
/* The same for an error value: ERR_INPUT and ERR_CONFIG are the user's. */
int ctl_fail_err(const struct err *e);
/* A confirmation line on stdout, unless --quiet. */
void ctl_say(const struct ctl *c, const char *fmt, ...)
	__attribute__((format(printf, 2, 3), nonnull(1, 2)));
/* True when -o asks for the answer instead of a confirmation line. */
bool ctl_wants_answer(const struct ctl *c);
/* Flushes stdout; CTL_SERVER when it could not be written. */
int ctl_flush(int code);

#endif

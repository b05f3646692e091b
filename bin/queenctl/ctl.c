/* SPDX-License-Identifier: Apache-2.0 */
/* What every command needs: its messages, its format, its server. */
#include "ctl.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "client.h"

void
ctl_fini(struct ctl *c)
{
	client_free(c->client);
	context_target_fini(&c->target);
	arena_fini(&c->arena);
}

int
ctl_set_format(struct ctl *c)
{
	static const struct {
		const char *name;
		enum ctl_format format;
	} names[] = {
		{ "table", CTL_TABLE },
		{ "wide", CTL_WIDE },
		{ "json", CTL_JSON },
		{ "ndjson", CTL_NDJSON },
		{ "jsonl", CTL_NDJSON },
		{ "yaml", CTL_YAML },
		{ "raw", CTL_RAW },
	};
	const char *o = c->output;

	if (!o) {
		c->format = isatty(STDOUT_FILENO) ? CTL_TABLE : CTL_JSON;
		return CTL_OK;
	}
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (strcmp(o, names[i].name) == 0) {
			c->format = names[i].format;
			return CTL_OK;
		}
	if (strncmp(o, "jsonpath=", 9) == 0)
		c->jsonpath = o + 9;
	else if (strncmp(o, "json-path=", 10) == 0)
		c->jsonpath = o + 10;
	else
		return ctl_fail(CTL_USER,
			"unknown output format \"%.60s\": expected table, "
			"wide, json, ndjson, yaml, raw or jsonpath=PATH",
			o);
	c->format = CTL_JSONPATH;
	return CTL_OK;
}

int
ctl_target(struct ctl *c)
{
	struct err e = ERR_ZERO;

	if (c->target.url)
		return CTL_OK;
	if (context_resolve(&c->ask, &c->target, &e) != 0)
		return ctl_fail_err(&e);
	return CTL_OK;
}

int
ctl_target_ojs(struct ctl *c)
{
	struct err e = ERR_ZERO;

	if (context_resolve_ojs(&c->ask, &c->target, &e) != 0)
		return ctl_fail_err(&e);
	return CTL_OK;
}

/* Text of a server must not steer the terminal. */
static void
blank_controls(char *s)
{
	for (; *s; s++)
		if ((unsigned char)*s < 0x20 || *s == 0x7f)
			*s = ' ';
}

int
ctl_fail(int code, const char *fmt, ...)
{
	char text[1024];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	blank_controls(text);
	fflush(stdout); /* what was printed before comes before */
	fprintf(stderr, "queenctl: %s\n", text);
	return code;
}

int
ctl_fail_err(const struct err *e)
{
	switch (e->kind) {
	case ERR_INPUT:
	case ERR_CONFIG:
		return ctl_fail(CTL_USER, "%s", e->text);
	case ERR_AUTH:
		return ctl_fail(CTL_AUTH, "%s", e->text);
	default:
		return ctl_fail(CTL_SERVER, "%s", e->text);
	}
}

void
ctl_say(const struct ctl *c, const char *fmt, ...)
{
	va_list ap;

	if (c->quiet)
		return;
	va_start(ap, fmt);
	vprintf(fmt, ap);
	va_end(ap);
	putchar('\n');
}

bool
ctl_wants_answer(const struct ctl *c)
{
	return c->output && c->format != CTL_TABLE && c->format != CTL_WIDE;
}

int
ctl_flush(int code)
{
	if (fflush(stdout) == 0 && !ferror(stdout))
		return code;
	return ctl_fail(
		CTL_SERVER, "cannot write the output: %s", strerror(errno));
}

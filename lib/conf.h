/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Settings from the environment, read once, declared as one table per tool.
 * The table alone knows a variable: it feeds parsing, --help, --check-config
 * and the test against the man page.
 */
#ifndef QUEEN_CONF_H
#define QUEEN_CONF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

struct err;

enum conf_type {
	CONF_STR,	/* char *, allocated; NULL when unset and no default */
	CONF_BOOL,	/* bool: true/false 1/0 yes/no on/off, any case */
	CONF_INT,	/* int64_t within [min, max] */
	CONF_WORD,	/* char *; one of the words in `words`, space-separated */
	CONF_ACCEPT,	/* known to older brokers, not needed: one warning */
};

struct conf_item {
	const char *name;
	enum conf_type type;
	size_t at;		/* offset of the field in the settings struct */
	const char *dflt;	/* default as text; NULL = unset */
	int64_t min, max;	/* CONF_INT */
	const char *words;	/* CONF_WORD */
	bool secret;		/* printed as <set:N>; NAME_FILE may name a file */
	const char *group;	/* block of the boot print: server, postgres, ... */
	const char *help;	/* one line, with the unit */
};

/*
 * Fills the struct at base from the environment.  A present but empty string
 * stays empty; an empty number, boolean or word means the default.
 * Fails with ERR_CONFIG and a text that names the variable, e.g.
 * `JWT_ENABLED="maybe" is not a boolean (expected true/false, 1/0, yes/no, on/off)`.
 */
int conf_load(const struct conf_item *items, size_t n, void *base,
	struct err *e) __attribute__((warn_unused_result));
/* Frees strings; secrets are zeroed first. */
void conf_fini(const struct conf_item *items, size_t n, void *base);
/* `NAME=value` lines, effective values, secrets as <unset> or <set:N chars>. */
void conf_print(const struct conf_item *items, size_t n, const void *base,
	FILE *out);
/* One log line per group: target boot, message `config: GROUP`. */
void conf_log(const struct conf_item *items, size_t n, const void *base);
/* Names set in the environment that are CONF_ACCEPT, one warning in all. */
void conf_warn_ignored(const struct conf_item *items, size_t n);
/*
 * Names with the prefix that no item knows, one warning in all: misspelt.
 * except: one that another program reads.
 */
void conf_warn_unknown(const struct conf_item *items, size_t n,
	const char *prefix, const char *except);
/* The ENVIRONMENT part of --help. */
void conf_help(const struct conf_item *items, size_t n, FILE *out);

#endif

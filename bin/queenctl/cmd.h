/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Commands as data.  One table of phrases feeds parsing, the help of every
 * level and the shells' completion; nothing else knows a word or a flag.
 */
#ifndef QUEENCTL_CMD_H
#define QUEENCTL_CMD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct buf;
struct cmd_call;
struct ctl;
struct err;
struct out_view;

enum { CMD_ARGS_MAX = 4, CMD_FLAGS_MAX = 24 };

enum cmd_type { CMD_BOOL, CMD_STR, CMD_INT, CMD_DURATION };

struct cmd_flag {
	const char *name;	/* NULL ends a list */
	char letter;		/* 0 = none */
	enum cmd_type type;
	const char *dflt;	/* NULL = unset */
	const char *arg;	/* what help calls the value */
	const char *help;
	const char *query;	/* parameter of cmd_get it is sent as */
	const char *words;	/* completion: the values, space-separated */
};

typedef int (*cmd_fn)(struct ctl *c, const struct cmd_call *a);

struct cmd_phrase {
	const char *group;	/* NULL = a word of its own */
	const char *verb; /* one with a hyphen may be typed as two words */
	const char *aliases;	/* of the verb, space-separated, or NULL */
	/* `<queue> [partition]`, or NULL; ` -- ` = a command follows */
	const char *args;
	const struct cmd_flag *flags;
	cmd_fn run;
	const struct out_view *view;
	const char *get;	/* path of cmd_get; {N} = argument N */
	const char *help;
};

struct cmd_group {
	const char *name, *aliases, *help;
};

/* What queend serves and what needs no server; what queen-ojs serves. */
extern const struct cmd_phrase cmd_table[], cmd_table_ojs[];
extern const size_t cmd_table_n, cmd_table_ojs_n;
/* All of them, in one row. */
size_t cmd_phrases_n(void);
const struct cmd_phrase *cmd_phrase_at(size_t i);
extern const struct cmd_group cmd_groups[];
extern const size_t cmd_groups_n;
/* Valid with every command; ends with a NULL name. */
extern const struct cmd_flag cmd_globals[];

struct cmd_value {
	const char *text;	/* typed, else the default; NULL = unset */
	int64_t number;		/* CMD_INT; ms for CMD_DURATION */
	bool truth, typed;
};

/* A command line understood. */
struct cmd_call {
	const struct cmd_phrase *phrase;
	const char *arg[CMD_ARGS_MAX];
	int args_n;
	char *const *rest;	/* after ` -- `, ends with NULL */
	struct cmd_value flag[CMD_FLAGS_MAX];
	struct cmd_value global[CMD_FLAGS_MAX];
	bool help;
	const struct cmd_group *help_group;	/* help of a group */
	const char *help_first;	/* and in it of the verbs that begin so */
};

/*
 * argv without the program's name.  ERR_INPUT says what is wrong.  With
 * a->help set, phrase, help_group or neither says of what.
 */
int cmd_parse(int argc, char *const argv[], struct cmd_call *a, struct err *e)
	__attribute__((warn_unused_result));
void cmd_help(const struct cmd_call *a, struct buf *out);

/* Values of the phrase's own flags; a name it lacks is a mistake of ours. */
const char *cmd_str(const struct cmd_call *a, const char *name);
int64_t cmd_int(const struct cmd_call *a, const char *name);
bool cmd_bool(const struct cmd_call *a, const char *name);
bool cmd_typed(const struct cmd_call *a, const char *name);
const struct cmd_value *cmd_global(const struct cmd_call *a, const char *name);

/* True when word is one of the space-separated words. */
bool cmd_is_word(const char *words, const char *word);
/* What follows first and a hyphen in the verb; NULL = it begins otherwise. */
const char *cmd_second_word(const struct cmd_phrase *p, const char *first);
/* True when several verbs of the group begin with it. */
bool cmd_is_first_word(const char *group, const char *first);
/* `<queue> [partition]`: how many must and may be given. */
void cmd_args_range(const char *args, int *min, int *max);

/* complete.c */
void cmd_complete_bash(struct buf *out);
void cmd_complete_zsh(struct buf *out);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* What the commands of queen-ojs share. */
#ifndef QUEENCTL_CMD_OJS_H
#define QUEENCTL_CMD_OJS_H

#include <stdbool.h>
#include <stdint.h>

#include "span.h"

struct client_reply;
struct cmd_call;
struct ctl;
struct jwrite;

enum { OJS_WAIT_MAX_MS = 5000 }; /* of one request */

/*
 * Sends to the path of the phrase, or with rest behind it (NULL = nothing).
 * An exit code; the reply is the caller's to free.
 */
int ojs_ask(struct ctl *c, const struct cmd_call *a, const char *method,
	const char *rest, struct span body, struct client_reply *r);
/* The same as POST; where is said in front of what is refused. */
int ojs_ask_at(struct ctl *c, const struct cmd_call *a, const char *where,
	struct span body, struct client_reply *r);
/* The flags given that have a name in a body, as members. */
void ojs_write_flags(const struct cmd_call *a, struct jwrite *w);
/* The JSON of a text flag; CTL_USER when it is none.  Empty when not given. */
int ojs_json_flag(
	const struct cmd_call *a, const char *flag, struct span *json);
/* A member that holds it, when given. */
void ojs_write_json(struct jwrite *w, const char *member, struct span json);
/* One object per line, a line break within it is a space. */
void ojs_print_line(struct span json);

/* ---- one per line of a file, sent in batches ---- */

struct ojs_lines {
	struct ctl *c;
	const struct cmd_call *a;
	const char *path;	/* of a batch */
	const char *member;	/* its array, and that of the answer */
	/* Writes an element from its line. */
	int (*write)(struct ojs_lines *l, struct jwrite *w, struct span line);
	void *arg;
	int64_t sent, known;	/* known: it was there already */
};

/* The lines of --file or stdin; prints the rows, or tells how many. */
int ojs_send_lines(struct ojs_lines *l);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * HTTP for a client that has nothing else to do: one blocking request at a
 * time over one kept connection.  Reads are repeated after network errors
 * and 5xx, 429 is honoured everywhere unless a queue is full, nothing else is
 * ever sent twice.
 */
#ifndef QUEENCTL_CLIENT_H
#define QUEENCTL_CLIENT_H

#include <stdbool.h>
#include <stdint.h>

#include "buf.h"
#include "span.h"

struct client;
struct ctl;
struct err;

enum client_kind {
	CLIENT_READ,		/* idempotent: may be repeated */
	CLIENT_WRITE,		/* sent once; 429 = not taken, so again */
	CLIENT_POP,		/* as WRITE, and 429 is waited out for ever */
	CLIENT_ONCE,		/* sent once, whatever happens */
};

struct client_req {
	const char *method, *path;	/* path with its query */
	struct span body;
	enum client_kind kind;
	int64_t timeout_ms;		/* 0 = 30 s */
};

struct client_reply {
	long status;
	struct buf body;
};

void client_free(struct client *c);
/*
 * Sends to the server of ctl_target.  0 = there is an answer, whatever its
 * status; else an exit code, the message is printed.  The reply's buffer is
 * reset, and the caller's to free.
 */
int client_send(struct ctl *ctl, const struct client_req *q,
	struct client_reply *r);
/* The same for a server that is known already, without printing: 0 or -1. */
int client_try(struct ctl *ctl, const struct client_req *q,
	struct client_reply *r, struct err *e);
/* 0 for 2xx, else the exit code of the status, with the message printed. */
int client_check(const struct client_reply *r);
/*
 * The same, and the body of a 2xx is JSON (empty stays empty).  where is said in
 * front of what the server refuses: `line 3: `, or nothing.
 */
int client_answer(
	struct ctl *ctl, const struct client_reply *r, const char *where);
/* client_send, and client_answer. */
int client_ask(struct ctl *ctl, const struct client_req *q,
	struct client_reply *r);

/* True when it was ignored at our start (nohup, a shell's background job). */
bool client_ignores(int signo);
/* SIGINT and SIGTERM cancel the request in flight from now on. */
void client_catch_signals(void);
bool client_interrupted(void);
/* Ends the process by the signal that was caught, if any. */
void client_die_of_signal(void);
/* Sleeps, cut short by a signal. */
void client_sleep_ms(int64_t ms);

/* One path segment, percent-encoded, after a slash. */
void client_segment(struct buf *b, const char *text);
/* ?name=value or &name=value, percent-encoded. */
void client_query(struct buf *b, const char *name, const char *value);

#endif

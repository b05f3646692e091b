/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One command in a process group of its own, which does not outlive us: a
 * guard kills the group when we are gone, however that came about, or do nothing
 * until it is too late.  What left the group is out of reach.
 */
#ifndef QUEENCTL_CHILD_H
#define QUEENCTL_CHILD_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum { CHILD_FDS = 256 };

struct child {
	bool inherits[CHILD_FDS];	/* descriptors that were open */
	pid_t pid;		/* also the group's; ours until child_fini */
	pid_t guard;
	int leash;		/* the guard waits at its other end */
	int64_t until_ms;	/* CLOCK_BOOTTIME: the guard kills then */
	bool ended;		/* the first process; the group may live on */
	bool terminal;		/* it has the terminal we had */
	int status;		/* as of waitpid, when it ended */
};

/* Early: what is open now is what the command inherits. */
void child_init(struct child *c);
/* Until when the group may run; before the start, and whenever it changes. */
void child_until(struct child *c, int64_t at_ms);
/*
 * Runs argv with this signal mask.  0, or the errno of a command that could
 * not be run; child_fini is due either way.
 */
int child_start(struct child *c, char *const argv[], const sigset_t *mask);
/* Looks whether the first process ended; one that was stopped goes on. */
void child_poll(struct child *c);
/* To all of the group. */
void child_signal(const struct child *c, int signo);
/* True while a process of the group runs, the first one or another. */
bool child_group_runs(const struct child *c);
/* Takes the terminal back and lets go of what is left of the group. */
void child_fini(struct child *c);

#endif

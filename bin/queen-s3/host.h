/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The sinks of the process: the environment's, and those of the tenants as the
 * rows of the cell say; the listener; the end of all of them.
 */
#ifndef QUEEN_S3_HOST_H
#define QUEEN_S3_HOST_H

struct ctx;
struct err;
struct host;

/* Listens and takes signals; the loop does not run yet. */
struct host *host_new(struct ctx *x, struct err *e);
/*
 * The environment's bucket has to answer, unless tenants have sinks too; then
 * everything runs until a signal and a drain.  The exit code.
 */
int host_run(struct host *h);
void host_free(struct host *h);

#endif

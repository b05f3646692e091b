/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The sinks of the process: the environment's, and those of the tenants as the
 * rows of the cell say (spec 16.3); the listener; the end of all of them.
 */
#ifndef QUEEN_S3_HOST_H
#define QUEEN_S3_HOST_H

struct ctx;
struct err;
struct host;

/* Runs the loop until a signal and a drain; the exit code. */
int host_run(struct ctx *x);

#endif

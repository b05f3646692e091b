/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What stands before the workers: the target's table fits the document, the
 * progress table is there, its rows are of this cell.  The target itself is
 * never created or altered.
 */
#ifndef QUEEN_PGSINK_SETUP_H
#define QUEEN_PGSINK_SETUP_H

struct connfault;
struct ctx;
struct setup;

/* why NULL: workers may start. */
typedef void (*setup_fn)(void *arg, const struct connfault *why);

/* Goes through it once; fn comes later, once. */
struct setup *setup_new(struct ctx *x, setup_fn fn, void *arg);
/* Also before fn came, and within it. */
void setup_free(struct setup *s);

#endif

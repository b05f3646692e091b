/* SPDX-License-Identifier: Apache-2.0 */
/* The time window and filters that status and analytics routes share. */
#ifndef QUEEND_WINDOW_H
#define QUEEND_WINDOW_H

#include <stdbool.h>
#include <stdint.h>

#include "span.h"

struct hsrv_req;
struct pgargs;

struct window {
	int64_t from_us, to_us;
	struct span queue, namespace_name, task;	/* empty = any */
};

enum { WINDOW_HOUR_S = 3600, WINDOW_DAY_S = 86400 };

/*
 * Reads from, to, queue, namespace and task; without from the last dflt_s
 * seconds up to the next full ten, so that a page asked again soon is the
 * same computation.  False when it has replied 400.
 */
bool window_read(struct hsrv_req *r, int64_t dflt_s, struct window *w);
/* Appends from and to. */
void window_times(struct pgargs *a, const struct window *w);
/* Appends queue, namespace and task; null where there is no filter. */
void window_filters(struct pgargs *a, const struct window *w);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* The window of a status or analytics page, from its query string. */
#include "window.h"

#include "admin.h"
#include "clk.h"
#include "hsrv.h"

enum { WINDOW_GRAIN_US = 10000000 };

bool
window_read(struct hsrv_req *r, int64_t dflt_s, struct window *w)
{
	int64_t now_us = clk_wall_us();

	*w = (struct window){ 0 };
	w->to_us = now_us - now_us % WINDOW_GRAIN_US + WINDOW_GRAIN_US;
	if (!admin_query_time(r, "to", &w->to_us))
		return false;
	w->from_us = w->to_us - dflt_s * 1000000;
	return admin_query_time(r, "from", &w->from_us) &&
	       admin_query_name(r, "queue", &w->queue) &&
	       admin_query_name(r, "namespace", &w->namespace_name) &&
	       admin_query_name(r, "task", &w->task);
}

void
window_times(struct pgargs *a, const struct window *w)
{
	pgargs_time(a, w->from_us);
	pgargs_time(a, w->to_us);
}

void
window_filters(struct pgargs *a, const struct window *w)
{
	admin_arg_name(a, w->queue);
	admin_arg_name(a, w->namespace_name);
	admin_arg_name(a, w->task);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* The table of routes: which handler answers which path, for whom. */
#ifndef QUEEND_ROUTE_H
#define QUEEND_ROUTE_H

#include <stddef.h>

#include "hsrv.h"

extern const struct hsrv_route route_table[];
extern const size_t route_table_n;
/* Health and metrics only, for QUEEN_METRICS_BIND. */
extern const struct hsrv_route route_metrics_table[];
extern const size_t route_metrics_table_n;

/* The JSON 404. */
void route_unmatched(struct hsrv_req *r);

#endif

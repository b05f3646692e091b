/* SPDX-License-Identifier: Apache-2.0 */
/* The table of routes: which handler answers which path, for whom. */
#ifndef QUEEN_OJS_ROUTE_H
#define QUEEN_OJS_ROUTE_H

#include <stddef.h>

#include "hsrv.h"

extern const struct hsrv_route route_table[];
extern const size_t route_table_n;

/* Token, tenant, version, media type, read-only: the gate of hsrv_conf. */
bool route_gate(struct hsrv_req *r, int level);
/* 404, or 405 with Allow. */
void route_unmatched(struct hsrv_req *r);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* Connectors: their documents, and what the tools that run them report. */
#ifndef QUEEND_CONNECTOR_H
#define QUEEND_CONNECTOR_H

#include <libpq-fe.h>

#include "pgconn.h"
#include "span.h"

struct buf;
struct hsrv_req;

void connector_list(struct hsrv_req *r);   /* GET /connectors */
void connector_get(struct hsrv_req *r);	   /* GET /connectors/:name */
void connector_put(struct hsrv_req *r);	   /* PUT /connectors/:name */
void connector_delete(struct hsrv_req *r); /* DELETE /connectors/:name */
void connector_resync(struct hsrv_req *r); /* POST /connectors/:name/resync */
void connector_adopt(struct hsrv_req *r);  /* POST /connectors/:name/adopt */
void connector_reset(struct hsrv_req *r);  /* POST /connectors/:name/reset */

/*
 * The `pg` block of /status for the request's tenant; without a database its
 * connectors are null.  pg is borrowed.
 */
typedef void (*connector_pg_fn)(struct hsrv_req *r, struct span pg);
void connector_status(struct hsrv_req *r, connector_pg_fn done);

/* The rows of this call, as families of /metrics/prometheus. */
extern const struct pgstmt connector_metrics_stmt;
void connector_metrics_write(struct buf *b, const PGresult *res);

/*
 * Goes on with go unless a sink reads the queue (n = 0: any) as this group,
 * because what moves its cursor breaks its promise: then 409.
 */
void connector_guard(struct hsrv_req *r, struct span group,
	struct span queue, void (*go)(struct hsrv_req *r));

#endif

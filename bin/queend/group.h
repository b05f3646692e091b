/* SPDX-License-Identifier: Apache-2.0 */
/* Consumer groups: list, lag, subscription, seek, delete. */
#ifndef QUEEND_GROUP_H
#define QUEEND_GROUP_H

#include <libpq-fe.h>

#include "pgconn.h"

struct ctx;
struct hsrv_req;

/* All below /api/v1/consumer-groups. */
void group_list(struct hsrv_req *r);		/* GET */
void group_lagging(struct hsrv_req *r);		/* GET /lagging */
void group_get(struct hsrv_req *r);		/* GET /:group */
void group_subscription(struct hsrv_req *r);	/* POST .../subscription */
void group_seek(struct hsrv_req *r);		/* POST .../:queue/seek */
void group_seek_partition(struct hsrv_req *r);	/* .../:partition/seek */
void group_delete(struct hsrv_req *r);		/* DELETE /:group */
void group_delete_queue(struct hsrv_req *r);	/* DELETE .../queues/:queue */

/* For other routes that seek: the call, and what to tell when it found one. */
extern const struct pgstmt group_seek_stmt;
void group_sought(struct ctx *x, const PGresult *res);

#endif

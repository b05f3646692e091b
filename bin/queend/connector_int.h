/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside connector: connector.c reads, connector_put.c stores,
 * connector_end.c deletes and asks for a resync, connector_show.c is for
 * /status and the metrics.
 */
#ifndef QUEEND_CONNECTOR_INT_H
#define QUEEND_CONNECTOR_INT_H

#include <libpq-fe.h>
#include <stdbool.h>
#include <stdint.h>

#include "conndoc.h"
#include "connector.h"
#include "pgbin.h"

struct err;
struct hsrv_req;
struct jwrite;

/* A row of connector_list_v1, copied into the arena of the request. */
struct connector_row {
	struct span name, document, kind, sealed, resync;
	struct span status, pointer, lease;	/* p NULL = none */
	int64_t version;
	struct conndoc *doc;			/* NULL: does not parse */
};

/*
 * Does it meet a position of another cell?  Its tool says so, or the pointer
 * of a source, which may be paused.
 */
bool connector_waits_for_a_word(struct hsrv_req *r,
	const struct connector_row *c);

/* {"error": code, "detail": text} */
void connector_refuse(struct hsrv_req *r, int status, const char *code,
	const char *fmt, ...) __attribute__((format(printf, 4, 5)));

typedef void (*connector_row_fn)(struct hsrv_req *r, struct connector_row *c);
typedef void (*connector_res_fn)(struct hsrv_req *r, const PGresult *res);
/* 503 unavailable when it fails, 413 when the document is too large. */
void connector_call(struct hsrv_req *r, const struct pgstmt *s,
	struct pgargs *a, connector_res_fn done);
/* The row of the path's name; NULL when there is none. */
void connector_find(struct hsrv_req *r, connector_row_fn done);
/* The same for those who need one: 404. */
void connector_need(struct hsrv_req *r, connector_row_fn done);
/*
 * connector_put_v1 of a stored form, with the time of a request stamped into
 * it (NULL = none); done sees (verdict, version, document).
 */
void connector_store(struct hsrv_req *r, const struct conndoc *d,
	int64_t expect, const char *stamp, connector_res_fn done);
/* False after 409 conflict: somebody else wrote meanwhile. */
bool connector_won(struct hsrv_req *r, int verdict);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* Where the body of a batch of key or timer operations has them. */
#ifndef QUEEND_OPS_BODY_H
#define QUEEND_OPS_BODY_H

#include <stdbool.h>

#include "span.h"

struct hsrv_req;

enum ops_body {
	OPS_BODY_GOOD,
	OPS_BODY_BAD,
	OPS_BODY_TENANT		/* it names a tenant: not an input */
};

/*
 * The body is the array, or an object with `operations`.  GOOD: *ops is an
 * array, not yet checked when it is the body.  Else *why tells a client.
 */
enum ops_body ops_body_read(struct hsrv_req *r, struct span *ops,
	const char **why);
/* Is it one of the names by which a body must not choose a tenant? */
bool ops_body_names_tenant(struct span member);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Routes of key/value state: the batch, one key by its path, and the lists
 * for people.  The status tells about the call, never about the predicate.
 */
#ifndef QUEEND_KV_H
#define QUEEND_KV_H

#include <stdbool.h>

struct hsrv_req;

void kv_post(struct hsrv_req *r);
void kv_get(struct hsrv_req *r);
void kv_put(struct hsrv_req *r);
void kv_delete(struct hsrv_req *r);
void kv_namespaces(struct hsrv_req *r);
void kv_list(struct hsrv_req *r);

/*
 * False (replied) with any query string: names of keys must not reach the
 * logs of what stands before us.
 */
bool kv_no_query(struct hsrv_req *r);

#endif

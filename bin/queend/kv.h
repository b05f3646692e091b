/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Routes of key/value state: the batch, one key by its path, and the lists
 * for people.  The status tells about the call, never about the predicate.
 */
#ifndef QUEEND_KV_H
#define QUEEND_KV_H

struct hsrv_req;
struct kv_fault;

void kv_post(struct hsrv_req *r);
void kv_get(struct hsrv_req *r);
void kv_put(struct hsrv_req *r);
void kv_delete(struct hsrv_req *r);
void kv_namespaces(struct hsrv_req *r);
void kv_list(struct hsrv_req *r);

/* Answers `{"error":..,"reason":..,"detail":..}`. */
void kv_reply_fault(struct hsrv_req *r, const struct kv_fault *f);

#endif

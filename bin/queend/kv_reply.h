/* SPDX-License-Identifier: Apache-2.0 */
/* The refusals of key/value routes in their own words. */
#ifndef QUEEND_KV_REPLY_H
#define QUEEND_KV_REPLY_H

struct hsrv_req;
struct jspan;

/* 400 kv_bad_request. */
void kv_reply_bad(struct hsrv_req *r, const char *reason, const char *detail);
/* 413 payload_too_large. */
void kv_reply_large(struct hsrv_req *r, const char *reason, const char *detail);
/* 400 for a body that stopped making sense at some offset. */
void kv_reply_bad_body(struct hsrv_req *r, const struct jspan *j);
/* 400: a body never names the tenant. */
void kv_reply_tenant(struct hsrv_req *r);
/* 500: the database answered, but not to what was asked. */
void kv_reply_missing(struct hsrv_req *r);

#endif

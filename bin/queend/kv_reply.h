/* SPDX-License-Identifier: Apache-2.0 */
/* Refusals and faults of key/value routes (timers use the same form). */
#ifndef QUEEND_KV_REPLY_H
#define QUEEND_KV_REPLY_H

struct hsrv_req;
struct jspan;
struct kv_fault;
struct kvlimit_no;

/* Answers `{"error":..,"reason":..,"detail":..}`. */
void kv_reply_fault(struct hsrv_req *r, const struct kv_fault *f);
/* What a limit says. */
void kv_reply_limit(struct hsrv_req *r, const struct kvlimit_no *no);
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

/* SPDX-License-Identifier: Apache-2.0 */
/* Streams: append, consumers, batches, retries, dead letters. */
#ifndef QUEEN_OJS_STREAM_H
#define QUEEN_OJS_STREAM_H

#include <stdbool.h>
#include <stdint.h>

struct hsrv_req;
struct ticks_log;

void stream_append(struct hsrv_req *r);
void stream_append_batch(struct hsrv_req *r);
void stream_subscribe(struct hsrv_req *r);
void stream_consumers(struct hsrv_req *r);
void stream_unsubscribe(struct hsrv_req *r);
void stream_touch(struct hsrv_req *r);
void stream_receive(struct hsrv_req *r);
void stream_batch(struct hsrv_req *r);
void stream_ack(struct hsrv_req *r);
void stream_nack(struct hsrv_req *r);
void stream_info(struct hsrv_req *r);
void stream_dead_list(struct hsrv_req *r);
void stream_dead_replay(struct hsrv_req *r);
void stream_dead_replay_all(struct hsrv_req *r);
void stream_dead_purge(struct hsrv_req *r);

/* A ticks_fn; arg is the struct ctx. */
void
stream_tick(void *arg, struct ticks_log *log, int64_t queue_id, bool heavy);

#endif

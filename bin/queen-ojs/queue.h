/* SPDX-License-Identifier: Apache-2.0 */
/* The catalogue of queues, for jobs and streams alike. */
#ifndef QUEEN_OJS_QUEUE_H
#define QUEEN_OJS_QUEUE_H

#include <stdbool.h>

#include "span.h"

struct hsrv_req;

/* `^[a-z0-9][a-z0-9.-]*$`, 1 to 128 characters. */
bool queue_name_ok(struct span s);
/* The queue of the path; false after 400. */
bool queue_of_path(struct hsrv_req *r, struct span *name);

void queue_list(struct hsrv_req *r);
void queue_create(struct hsrv_req *r);
void queue_drop(struct hsrv_req *r);
void queue_stats(struct hsrv_req *r);
void queue_pause(struct hsrv_req *r);
void queue_resume(struct hsrv_req *r);
void queue_config_get(struct hsrv_req *r);
void queue_config_set(struct hsrv_req *r);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* Reading by offset (http-core 8): no lease, no cursor, no write. */
#ifndef QUEEND_FETCH_H
#define QUEEND_FETCH_H

struct fetches;
struct hsrv_req;

void fetch_post(struct hsrv_req *r);
/* NULL is fine. */
void fetches_free(struct fetches *f);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* The families of kv and of what limits refuse. */
#ifndef QUEEND_PROM_KV_H
#define QUEEND_PROM_KV_H

struct buf;
struct ctx;

void prom_kv_write(struct buf *b, struct ctx *x);

#endif

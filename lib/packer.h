/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages of a partition packed into segments, in order, and the arrays in
 * which source_bundle_v1 takes those of many partitions.  Bytes are made once:
 * sending them again sends the same.
 */
#ifndef QUEEN_PACKER_H
#define QUEEN_PACKER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "buf.h"

struct frame;
struct hash_id;
struct packer_seg;
struct pgargs;
struct seal;

/* One partition's; embedded. */
struct packer {
	int64_t part;			/* its id, for packer_args */
	const struct seal *seal;	/* NULL: payloads stay plain */
	struct packer_seg *first, *last;
	size_t segs_n;
};

/* seal: NULL, or a ring with a key that seals; borrowed. */
void packer_init(struct packer *p, const struct seal *seal);
void packer_fini(struct packer *p);
/*
 * Copies the message, sealed if that is wanted.  Returns about how many bytes
 * it had to go through, for who counts what a turn of the loop costs.
 */
size_t packer_add(struct packer *p, const struct frame *f,
	const struct hash_id *h);
/* Nothing is added any more.  Returns as packer_add. */
size_t packer_close(struct packer *p);
/*
 * Appends the parameters p_ends to p_blob of these partitions, all closed, not
 * empty and each another one, in whatever order.
 */
void packer_args(struct pgargs *a, struct packer *const *p, size_t n);

#endif

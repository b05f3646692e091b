/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The messages of a bundle in flight, by partition, as the cell takes them.
 * Their ids are made once, and so are their bytes, except that a queue may ask
 * for them sealed.
 */
#ifndef QUEEN_PGSRC_BATCH_H
#define QUEEN_PGSRC_BATCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct batch_part;
struct connchild;
struct err;
struct names;
struct names_part;
struct packer;
struct pgargs;
struct qid;
struct seal;
struct unit;
struct unit_queue;

/* What one message of a queue may have; as much as HTTP lets in. */
enum { BATCH_MESSAGE_MAX = 64 << 20 };

struct batch {
	const struct unit_queue *queue;
	size_t n;		/* messages */
	struct qid *ids;
	uint32_t *part_of;	/* place in parts, of each */
	struct names_part *parts;
	struct packer *packers;	/* of the part at the same place */
	bool *packed;
	size_t parts_n;
	/* how far packing is */
	const struct unit *unit;
	size_t unit_i, message_i, part_i;
};

/*
 * Of the units in flight, which stay until batch_fini.  ERR_LIMIT: a message
 * is too large; there is nothing to fini then.
 */
int batch_init(struct batch *b, const struct unit_queue *q, struct names *n,
	struct err *e) __attribute__((warn_unused_result));
void batch_fini(struct batch *b);
/* A queue that wants sealed messages while ring has no key; or NULL. */
const struct names_part *batch_unsealable(const struct batch *b,
	const struct seal *ring);
/*
 * A turn's worth of packing; false: there is more.  When done, again packs
 * those anew whose queue has come to want them sealed.
 */
bool batch_pack(struct batch *b, const struct seal *ring,
	const uint8_t *hash_key);
/* The arrays of source_bundle_v1; the parts are known, all is packed. */
void batch_args(struct pgargs *a, struct batch *b);
/* Tells of the partitions that have new messages. */
void batch_announce(const struct batch *b, struct connchild *child);

#endif

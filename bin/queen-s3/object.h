/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bytes of one object to be, in chunks of 1 MiB, so that growing copies
 * nothing; and their digests.
 */
#ifndef QUEEN_S3_OBJECT_H
#define QUEEN_S3_OBJECT_H

#include <stddef.h>
#include <stdint.h>

#include "span.h"

enum {
	OBJECT_CHUNK_BYTES = 1 << 20,
	OBJECT_SHA256_BYTES = 32,
	OBJECT_MD5_BYTES = 16
};

struct object_chunk;
struct object {
	struct object_chunk **chunks;
	size_t chunks_n, chunks_cap;
	size_t len;
	struct object_digest *digest; /* SHA-256 and MD5 as it grows */
	uint8_t sha256[OBJECT_SHA256_BYTES], md5[OBJECT_MD5_BYTES];
};

void object_init(struct object *o);
void object_fini(struct object *o);
void object_put(struct object *o, const void *p, size_t n);
/* Room to write into: *n is set to what there is, at least 1; then commit. */
void *object_room(struct object *o, size_t *n);
void object_took(struct object *o, size_t n);
/* Nothing is added any more; sets the digests. */
void object_seal(struct object *o);
/* What lies in one piece from at on; empty at the end. */
struct span object_at(const struct object *o, size_t at);
/* SHA-256 and MD5 of one part of it, in steps. */
struct object_digest *object_digest_new(void);
/* What lies in one piece from at on, but max at most; how much that was. */
size_t object_digest_add(struct object_digest *d, const struct object *o,
	size_t at, size_t max);
/* Frees it too. */
void object_digest_end(struct object_digest *d,
	uint8_t sha256[OBJECT_SHA256_BYTES], uint8_t md5[OBJECT_MD5_BYTES]);
void object_digest_free(struct object_digest *d);

#endif

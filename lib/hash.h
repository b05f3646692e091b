/* SPDX-License-Identifier: Apache-2.0 */
/* Keyed hashes of transaction ids: SipHash-2-4-128, key from queen.cell. */
#ifndef QUEEN_HASH_H
#define QUEEN_HASH_H

#include <stdint.h>

#include "span.h"

enum { HASH_ID_BYTES = 16, HASH_KEY_BYTES = 16 };

struct hash_id {
	uint8_t b[HASH_ID_BYTES];
};

void hash_id(const uint8_t key[HASH_KEY_BYTES], struct span text,
	struct hash_id *out);
/* SHA-256 as 64 lower-case hex characters and a NUL. */
void hash_sha256_hex(struct span data, char out[65]);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* Digests of libsodium in our shapes. */
#include "hash.h"

#include <sodium.h>

_Static_assert(crypto_shorthash_siphashx24_BYTES == HASH_ID_BYTES,
	"SipHash-2-4 with 128 bits of output");
_Static_assert(crypto_shorthash_siphashx24_KEYBYTES == HASH_KEY_BYTES,
	"a 128-bit key");

void
hash_id(const uint8_t key[HASH_KEY_BYTES], struct span text,
	struct hash_id *out)
{
	crypto_shorthash_siphashx24(out->b,
		(const unsigned char *)(text.n ? text.p : ""), text.n, key);
}

void
hash_sha256_hex(struct span data, char out[65])
{
	unsigned char d[crypto_hash_sha256_BYTES];

	crypto_hash_sha256(
		d, (const unsigned char *)(data.n ? data.p : ""), data.n);
	sodium_bin2hex(out, 65, d, sizeof(d));
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bytes in chunks.  The digests run along while the bytes are still in the
 * cache; the last chunk gives back its rest at the end, so that a thousand
 * small objects cost what they hold.
 */
#include "object.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <openssl/evp.h>

#include "err.h"

struct object_chunk {
	uint8_t b[OBJECT_CHUNK_BYTES];
};

struct object_digest {
	EVP_MD_CTX *sha256, *md5;
};

static void *
must(void *p)
{
	if (!p) {
		fputs("out of memory: an object\n", stderr);
		abort();
	}
	return p;
}

struct object_digest *
object_digest_new(void)
{
	struct object_digest *d = must(malloc(sizeof(*d)));

	d->sha256 = must(EVP_MD_CTX_new());
	d->md5 = must(EVP_MD_CTX_new());
	BUG(EVP_DigestInit_ex(d->sha256, EVP_sha256(), NULL) != 1);
	BUG(EVP_DigestInit_ex(d->md5, EVP_md5(), NULL) != 1);
	return d;
}

void
object_digest_free(struct object_digest *d)
{
	if (!d)
		return;
	EVP_MD_CTX_free(d->sha256);
	EVP_MD_CTX_free(d->md5);
	free(d);
}

static void
digest_add(struct object_digest *d, const void *p, size_t n)
{
	BUG(EVP_DigestUpdate(d->sha256, p, n) != 1);
	BUG(EVP_DigestUpdate(d->md5, p, n) != 1);
}

void
object_digest_end(struct object_digest *d, uint8_t sha256[OBJECT_SHA256_BYTES],
	uint8_t md5[OBJECT_MD5_BYTES])
{
	BUG(EVP_DigestFinal_ex(d->sha256, sha256, NULL) != 1);
	BUG(EVP_DigestFinal_ex(d->md5, md5, NULL) != 1);
	object_digest_free(d);
}

void
object_init(struct object *o)
{
	*o = (struct object){ .digest = object_digest_new() };
}

void
object_fini(struct object *o)
{
	for (size_t i = 0; i < o->chunks_n; i++)
		free(o->chunks[i]);
	free(o->chunks);
	object_digest_free(o->digest);
	*o = (struct object){ .len = 0 };
}

static void
chunk_add(struct object *o)
{
	if (o->chunks_n == o->chunks_cap) {
		o->chunks_cap = o->chunks_cap ? 2 * o->chunks_cap : 4;
		o->chunks = must(realloc(o->chunks,
			o->chunks_cap * sizeof(struct object_chunk *)));
	}
	o->chunks[o->chunks_n++] = must(malloc(sizeof(struct object_chunk)));
}

void *
object_room(struct object *o, size_t *n)
{
	size_t used = o->len % OBJECT_CHUNK_BYTES;

	BUG(!o->digest);
	if (o->len == o->chunks_n * OBJECT_CHUNK_BYTES)
		chunk_add(o);
	*n = OBJECT_CHUNK_BYTES - used;
	return o->chunks[o->len / OBJECT_CHUNK_BYTES]->b + used;
}

void
object_took(struct object *o, size_t n)
{
	size_t used = o->len % OBJECT_CHUNK_BYTES;

	if (n == 0)
		return;
	BUG(!o->digest || n > OBJECT_CHUNK_BYTES - used ||
		o->len == o->chunks_n * OBJECT_CHUNK_BYTES);
	digest_add(
		o->digest, o->chunks[o->len / OBJECT_CHUNK_BYTES]->b + used, n);
	o->len += n;
}

void
object_put(struct object *o, const void *p, size_t n)
{
	const char *from = p;
	size_t room;

	while (n > 0) {
		void *to = object_room(o, &room);

		if (room > n)
			room = n;
		memcpy(to, from, room);
		object_took(o, room);
		from += room;
		n -= room;
	}
}

void
object_seal(struct object *o)
{
	size_t used = o->len % OBJECT_CHUNK_BYTES;
	struct object_chunk **last;

	BUG(!o->digest);
	object_digest_end(o->digest, o->sha256, o->md5);
	o->digest = NULL;
	if (o->chunks_n * OBJECT_CHUNK_BYTES - o->len == OBJECT_CHUNK_BYTES)
		free(o->chunks[--o->chunks_n]);
	if (used > 0) {
		last = &o->chunks[o->chunks_n - 1];
		*last = must(realloc(*last, used));
	}
}

struct span
object_at(const struct object *o, size_t at)
{
	size_t used = at % OBJECT_CHUNK_BYTES, n = OBJECT_CHUNK_BYTES - used;

	if (at >= o->len)
		return (struct span)SPAN_ZERO;
	if (n > o->len - at)
		n = o->len - at;
	return span_make(o->chunks[at / OBJECT_CHUNK_BYTES]->b + used, n);
}

size_t
object_digest_add(
	struct object_digest *d, const struct object *o, size_t at, size_t max)
{
	struct span s = object_at(o, at);

	if (s.n > max)
		s.n = max;
	digest_add(d, s.p, s.n);
	return s.n;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Payloads encrypted at rest: XChaCha20-Poly1305 with the message id as
 * associated data, so that a sealed payload opens in no other message.
 *	u8 key id, 24 nonce, box (16 bytes longer than the payload)
 * The key id is the first byte of the key's SHA-256.  One key seals, any
 * number open; a sealed payload is told by its frame's flag, never by shape.
 * A secret inside a document is sealed the same way, bound to its place in text,
 * and written as base64 of
 *	u8 version 1, u8 key id, 24 nonce, box
 *
 * A NULL ring is a process without keys: it seals and opens nothing.
 */
#ifndef QUEEN_SEAL_H
#define QUEEN_SEAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "span.h"

struct buf;
struct err;
struct qid;
struct seal;

enum {
	SEAL_KEYS_MAX = 64,
	SEAL_NONCE_BYTES = 24,
	SEAL_OVERHEAD_BYTES = 1 + SEAL_NONCE_BYTES + 16,
	SEAL_SECRET_VERSION = 1,
	SEAL_NO_KEY = -1
};

/*
 * key: 64 hex characters; old: a comma list of such, which only open.  Either
 * may be NULL or empty; both: *out is NULL.  ERR_CONFIG names the variable and
 * the place in the list, never what stands there.
 */
int seal_new(const char *key, const char *old, struct seal **out,
	struct err *e) __attribute__((warn_unused_result));
void seal_free(struct seal *s);

/* Id of the key that seals, or SEAL_NO_KEY. */
int seal_key_id(const struct seal *s);
/* Ids of all keys that open; returns how many. */
size_t seal_ids(const struct seal *s, uint8_t out[SEAL_KEYS_MAX]);

/* Appends the sealed payload; BUG without a key that seals. */
void seal_box(const struct seal *s, const struct qid *message_id,
	struct span payload, struct buf *out);
/*
 * Appends the payload.  -1 and nothing appended: too short, a key that is not
 * here, another message's, or tampered with; ERR_DB_DATA tells which.
 */
int seal_open(const struct seal *s, const struct qid *message_id,
	struct span sealed, struct buf *out, struct err *e)
	__attribute__((warn_unused_result));

/*
 * Appends the text of a sealed secret; place says whose it is, as in
 * `source/<tenant>/<name>`.  BUG without a key that seals.
 */
void seal_secret(const struct seal *s, struct span place, struct span secret,
	struct buf *out);
/*
 * Appends the secret; the caller zeroes it after use.  -1 and nothing
 * appended: no base64, another version, a key that is not here, another
 * place's, or tampered with; ERR_DB_DATA tells which.
 */
int seal_secret_open(const struct seal *s, struct span place,
	struct span text, struct buf *out, struct err *e)
	__attribute__((warn_unused_result));

#endif

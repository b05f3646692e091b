/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Identifiers on the wire (RFC 9562).
 *
 * Message, dead letter and trace ids are UUIDv7.  Queues and partitions are
 * bigints in the database and UUIDv8 outside, so parsing is arithmetic:
 *	bytes 0-5   the cell's 48-bit tag
 *	byte 6      version 8, kind in the low nibble
 *	byte 7      zero
 *	bytes 8-15  variant, then the id as 62 bits, big-endian
 * Lease ids are UUIDv8 too, all 122 free bits in use: 46 partition id,
 * 34 group id (of the pop's first partition), 42 random.
 */
#ifndef QUEEN_QID_H
#define QUEEN_QID_H

#include <stdbool.h>
#include <stdint.h>

#include "span.h"

struct qid {
	uint8_t b[16];
};

enum { QID_TEXT = 36, QID_TEXT_MAX = 37 };
enum qid_kind { QID_QUEUE = 1, QID_PARTITION = 2 };

struct qid_lease {
	int64_t partition_id, group_id, number;
};

/* A new UUIDv7: wall clock in ms, then random bits, monotonic in a process. */
struct qid qid_new(void);
struct qid qid_entity(enum qid_kind kind, uint64_t cell_tag, int64_t id);
/* False when it is no id of this kind and cell. */
bool qid_is_entity(const struct qid *q, enum qid_kind kind, uint64_t cell_tag,
	int64_t *id);
struct qid qid_of_lease(const struct qid_lease *l);
bool qid_is_lease(const struct qid *q, struct qid_lease *l);
/* A random lease number below 2^42. */
int64_t qid_lease_number(void);

/* Canonical lower-case text, NUL-terminated; returns out. */
char *qid_text(const struct qid *q, char out[QID_TEXT_MAX]);
/* Exactly 36 characters, either case; false otherwise. */
bool qid_parse(struct span s, struct qid *out);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names: keys of objects and of rows in queen.kv.  A data
 * key is a function of the intent alone; keys sort in the order of windows.
 */
#ifndef QUEEN_S3_KEY_H
#define QUEEN_S3_KEY_H

#include <stdbool.h>
#include <stdint.h>

#include "s3conf.h"
#include "span.h"

struct buf;

enum {
	KEY_MAX_BYTES = 1024, /* of an object: what S3 takes */
	KEY_ROW_MAX_BYTES = 512,
};

/* Appends name percent-encoded: A-Z a-z 0-9 . _ - stay, else %XX. */
void key_escape(struct buf *b, struct span name);
/* The reverse; a malformed escape stays as it is. */
void key_unescape(struct buf *b, struct span text);

/* Whose keys; all borrowed. */
struct key_of {
	const char *prefix; /* of the bucket */
	struct span tenant, queue; /* raw */
};

/* What a data key is a function of. */
struct key_window {
	int64_t k, start_us, end_us;
	enum s3_align align;
	enum s3_format format;
	enum s3_codec codec;
};
/* One partition's object in the layout per-partition; NULL: merged. */
struct key_part {
	struct span partition;
	int64_t first, last; /* offsets */
};

/*
 * Each appends one key, without NUL.  Where the name of a partition would make
 * it longer than S3 takes, the name is cut, then `~`, which is in no escaped
 * name, and 32 digits of its SHA-256.
 */
void key_data(struct buf *b, const struct key_of *o, const struct key_window *w,
	const struct key_part *p);
void key_manifest(struct buf *b, const struct key_of *o, int64_t k);
void key_plan(struct buf *b, const struct key_of *o, int64_t k);
void key_checkpoint(struct buf *b, const struct key_of *o, int64_t k);
/* Do keys and rows of this queue fit, whatever its window and partitions? */
bool key_fits(const struct key_of *o, const char *sink);
/* The prefix of all of them, to list. */
void key_manifests(struct buf *b, const struct key_of *o);
void key_checkpoints(struct buf *b, const struct key_of *o);
/* The number of such a key; false when it is none. */
bool key_manifest_k(struct span key, int64_t *k);
bool key_checkpoint_k(struct span key, int64_t *k);

/* Rows in namespace queen-s3 of the tenant: s3:<sink>:<queue>:<what>. */
enum key_row { KEY_LEASE, KEY_INTENT, KEY_COMMITTED, KEY_RESUME };
#define KEY_NAMESPACE "queen-s3"
void
key_row(struct buf *b, const char *sink, struct span queue, enum key_row what);
/* s3:<sink>:node=<instance>, and the prefix s3:<sink>:node= */
void key_node(struct buf *b, const char *sink, struct span instance);
void key_nodes(struct buf *b, const char *sink);

#endif

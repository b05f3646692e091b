/* SPDX-License-Identifier: Apache-2.0 */
/* What the parts of s3conf share: a value given, and the rules. */
#ifndef QUEEN_S3CONF_INT_H
#define QUEEN_S3CONF_INT_H

#include "s3conf.h"

struct buf;
struct err;

enum s3conf_is { S3CONF_UNSET, S3CONF_TEXT, S3CONF_LIST, S3CONF_OTHER };
struct s3conf_value {
	enum s3conf_is is;
	/* trimmed; S3CONF_OTHER: as JSON */
	char *text;
	char **list; /* S3CONF_LIST: trimmed, none empty */
	size_t list_n;
};

enum s3conf_key {
	S3CONF_QUEUES,
	S3CONF_ENDPOINT,
	S3CONF_REGION,
	S3CONF_BUCKET,
	S3CONF_ACCESS_KEY,
	S3CONF_SECRET_KEY,
	S3CONF_PREFIX,
	S3CONF_PATH_STYLE,
	S3CONF_SSE,
	S3CONF_KMS_KEY_ID,
	S3CONF_FORMAT,
	S3CONF_COMPRESSION,
	S3CONF_PARQUET_CODEC,
	S3CONF_LAYOUT,
	S3CONF_ALIGN,
	S3CONF_START,
	S3CONF_TARGET_MB,
	S3CONF_MAX_WINDOW_MS,
	S3CONF_SINK,
	S3CONF_KEYS
};

enum s3conf_kind {
	S3CONF_IS_TEXT,
	S3CONF_IS_SECRET,
	S3CONF_IS_WORD,
	S3CONF_IS_NUMBER,
	S3CONF_IS_BOOLEAN,
	S3CONF_IS_START,
	S3CONF_IS_SINK,
	S3CONF_IS_OWN
};
/* What one means; the aliases of a word follow it; name NULL ends. */
struct s3conf_word {
	const char *name;
	int value;
};
struct s3conf_source;
struct s3conf_rule {
	const char *env, *field; /* NULL: not in a document */
	const char *what; /* It is ... */
	enum s3conf_kind kind;
	bool needed;
	const char *dflt;
	size_t at; /* in struct s3conf */
	const struct s3conf_word *words;
	int64_t min, max;
	int (*own)(struct s3conf_source *s);
};
extern const struct s3conf_rule s3conf_rules[S3CONF_KEYS];
extern const struct s3conf_word s3conf_starts[];

/* The values of one source, and how it spells the names. */
struct s3conf_source {
	bool doc;
	struct s3conf_value v[S3CONF_KEYS];
	struct s3conf *c;
	struct err *e;
};

/* The name as the source spells it. */
const char *
s3conf_key_name(const struct s3conf_source *s, enum s3conf_key k);
/* `bucket` -> S3CONF_BUCKET; S3CONF_KEYS: none of a document. */
enum s3conf_key s3conf_key_of(struct span field);
/* Appends the fields of a document, `a, b, c`. */
void s3conf_put_fields(struct buf *b);
/* The whole; -1 with what is wrong. */
int s3conf_apply(struct s3conf_source *s);
/* -1: NAME=VALUE and the text; the value of a secret never. */
int s3conf_refuse(struct s3conf_source *s, enum s3conf_key k, const char *fmt,
	...) __attribute__((format(printf, 3, 4)));
void s3conf_source_fini(struct s3conf_source *s);

char *s3conf_dup(struct span s);

/* The rules that are more than a word or a number. */
int s3conf_set_queues(struct s3conf_source *s);
int s3conf_set_endpoint(struct s3conf_source *s);
int s3conf_set_prefix(struct s3conf_source *s);
/* The static list, which is read so that its own mistakes are named. */
int s3conf_refuse_partitions(struct span text, struct err *e);

#endif

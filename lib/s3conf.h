/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The settings of one S3 sink, from the environment or from the document of a
 * tenant: one rule per setting, whichever source states it; a refusal names
 * the setting as its source spells it (QUEEN_S3_BUCKET, or bucket).
 */
#ifndef QUEEN_S3CONF_H
#define QUEEN_S3CONF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "span.h"

struct buf;
struct err;

enum s3_format { S3_JSONL, S3_PARQUET };
enum s3_codec { S3_ZSTD, S3_GZIP, S3_PLAIN, S3_SNAPPY };
enum s3_layout { S3_MERGED, S3_PER_PARTITION };
enum s3_align { S3_HOUR, S3_DAY, S3_UNALIGNED };
enum s3_start { S3_LATEST, S3_EARLIEST, S3_TIMESTAMP };
enum s3_sse { S3_SSE_NONE, S3_SSE_AES256, S3_SSE_KMS };

/* Of a tenant's id: the place that its sealed secret is bound to. */
#define S3CONF_PLACE "s3/%s/sink"

enum { S3CONF_SINK_MAX = 64, S3CONF_SECRET_MAX = 4096, S3CONF_DOC_MAX = 32768 };

/* All strings allocated, never NULL unless said. */
struct s3conf {
	bool all_queues; /* `*`; then queues_n is 0 */
	char **queues;
	size_t queues_n;
	char *endpoint; /* scheme://host[:port], no slash */
	char *region, *bucket, *access_key;
	char *secret_key; /* NULL: kept elsewhere; zeroed by fini */
	char *prefix; /* without outer slashes */
	bool path_style;
	enum s3_sse sse;
	char *kms_key_id; /* NULL when none */
	enum s3_format format;
	enum s3_codec text_codec, parquet_codec;
	enum s3_layout layout;
	enum s3_align align;
	enum s3_start start;
	int64_t start_us; /* S3_TIMESTAMP */
	int64_t target_mb, max_window_ms;
	char sink[S3CONF_SINK_MAX + 1];
};

/* The text of one variable of the environment; NULL when it is not set. */
typedef const char *(*s3conf_get_fn)(void *arg, const char *name);

/*
 * The sink of the environment.  1: there is none (QUEEN_S3_QUEUES is unset,
 * and so is every other variable of a sink); -1 with ERR_CONFIG.
 */
int s3conf_from_env(struct s3conf *c, s3conf_get_fn get, void *arg,
	struct err *e) __attribute__((warn_unused_result));
/* The sink of a document, without its secret; -1 with ERR_INPUT. */
int s3conf_from_doc(struct s3conf *c, struct span doc, struct err *e)
	__attribute__((warn_unused_result));
void s3conf_fini(struct s3conf *c);

/* The codec in force: of the text, or of the pages of Parquet. */
enum s3_codec s3conf_codec(const struct s3conf *c);

/* As the environment spells them. */
const char *s3conf_format_name(enum s3_format f);
const char *s3conf_codec_name(enum s3_codec c);
const char *s3conf_layout_name(enum s3_layout l);
const char *s3conf_align_name(enum s3_align a);
const char *s3conf_sse_name(enum s3_sse s); /* none: NULL */
/* Appends latest, earliest, or timestamp: and the time. */
void s3conf_put_start(const struct s3conf *c, struct buf *b);
/* The reverse, canonical spellings alone; false when it is none. */
bool s3conf_format_of(struct span s, enum s3_format *out);
bool s3conf_codec_of(struct span s, enum s3_codec *out);
bool s3conf_layout_of(struct span s, enum s3_layout *out);
bool s3conf_align_of(struct span s, enum s3_align *out);

/* A prefix as it is kept: no outer slash, no segment empty, `.` or `..`. */
bool s3conf_prefix_ok(struct span s);
/* One name that is safe in a host and in a path. */
bool s3conf_bucket_ok(struct span s);

/*
 * Appends ` sink=... start=...`, the part of the boot line that is of this
 * sink: no secret, four characters at most of a key id.
 */
void s3conf_line(const struct s3conf *c, struct buf *out);

/*
 * Appends `...` and the last four bytes of the id of a key, as far as they are
 * whole characters; of an id of four bytes or less nothing but the dots.
 */
void s3conf_put_id(struct buf *b, const char *id);

#endif

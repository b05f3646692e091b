/* SPDX-License-Identifier: Apache-2.0 */
/* Words of the settings that documents carry too, canonical spellings. */
#include "s3conf.h"

static const char *const formats[] = {
	[S3_JSONL] = "jsonl",
	[S3_PARQUET] = "parquet",
};
static const char *const codecs[] = {
	[S3_ZSTD] = "zstd",
	[S3_GZIP] = "gzip",
	[S3_PLAIN] = "none",
	[S3_SNAPPY] = "snappy",
};
static const char *const layouts[] = {
	[S3_MERGED] = "merged",
	[S3_PER_PARTITION] = "per-partition",
};
static const char *const aligns[] = {
	[S3_HOUR] = "hour",
	[S3_DAY] = "day",
	[S3_UNALIGNED] = "none",
};

static const char *const sses[] = {
	[S3_SSE_NONE] = NULL,
	[S3_SSE_AES256] = "AES256",
	[S3_SSE_KMS] = "aws:kms",
};

#define COUNT(names) (sizeof(names) / sizeof((names)[0]))

/* The place of the word; -1 when it is none. */
static int
find(const char *const *names, size_t n, struct span s)
{
	for (size_t i = 0; i < n; i++)
		if (span_is(s, names[i]))
			return (int)i;
	return -1;
}

const char *
s3conf_format_name(enum s3_format f)
{
	return formats[f];
}

const char *
s3conf_codec_name(enum s3_codec c)
{
	return codecs[c];
}

const char *
s3conf_layout_name(enum s3_layout l)
{
	return layouts[l];
}

const char *
s3conf_align_name(enum s3_align a)
{
	return aligns[a];
}

const char *
s3conf_sse_name(enum s3_sse s)
{
	return sses[s];
}

bool
s3conf_format_of(struct span s, enum s3_format *out)
{
	int i = find(formats, COUNT(formats), s);

	if (i >= 0)
		*out = (enum s3_format)i;
	return i >= 0;
}

bool
s3conf_codec_of(struct span s, enum s3_codec *out)
{
	int i = find(codecs, COUNT(codecs), s);

	if (i >= 0)
		*out = (enum s3_codec)i;
	return i >= 0;
}

bool
s3conf_layout_of(struct span s, enum s3_layout *out)
{
	int i = find(layouts, COUNT(layouts), s);

	if (i >= 0)
		*out = (enum s3_layout)i;
	return i >= 0;
}

bool
s3conf_align_of(struct span s, enum s3_align *out)
{
	int i = find(aligns, COUNT(aligns), s);

	if (i >= 0)
		*out = (enum s3_align)i;
	return i >= 0;
}

enum s3_codec
s3conf_codec(const struct s3conf *c)
{
	return c->format == S3_PARQUET ? c->parquet_codec : c->text_codec;
}

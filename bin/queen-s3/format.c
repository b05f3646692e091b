/* SPDX-License-Identifier: Apache-2.0 */
/* The two formats behind one face; the order of records; names of writers. */
#include "format.h"

#include <archive.h>
#include <dlfcn.h>
#include <limits.h>
#include <snappy-c.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "buf.h"
#include "err.h"
#include "format_int.h"
#include "jsonl.h"
#include "object.h"
#include "parquet.h"

struct format {
	struct jsonl *jsonl; /* one of the two */
	struct parquet *parquet;
	struct object *out;
	bool finished;
	int64_t records;
	struct buf partition; /* of the record before, with the two below */
	int64_t ts_us, offset;
};

static ZSTD_CCtx *spare;

ZSTD_CCtx *
format_zstd_take(void)
{
	ZSTD_CCtx *z = spare ? spare : ZSTD_createCCtx();

	spare = NULL;
	BUG(!z);
	BUG(ZSTD_isError(
		ZSTD_CCtx_reset(z, ZSTD_reset_session_and_parameters)));
	BUG(ZSTD_isError(ZSTD_CCtx_setParameter(
		z, ZSTD_c_compressionLevel, FORMAT_ZSTD_LEVEL)));
	return z;
}

void
format_zstd_give(ZSTD_CCtx *z)
{
	if (spare)
		ZSTD_freeCCtx(z);
	else
		spare = z;
}

/*
 * libsnappy tells its version nowhere but in a C++ header and in the name of
 * its file; the file is what runs.
 */
static const char *
snappy_version(void)
{
	static char path[PATH_MAX];
	static const char *version;
	Dl_info at;
	const char *so;

	if (version)
		return version;
	version = "?";
	if (dladdr((const void *)snappy_compress, &at) && at.dli_fname &&
		realpath(at.dli_fname, path) && (so = strstr(path, ".so.")))
		version = so + strlen(".so.");
	return version;
}

char *
format_writer(enum s3_format f, enum s3_codec c, char out[FORMAT_WRITER_MAX])
{
	static const char *const names[] = {
		[S3_ZSTD] = "zstd", [S3_GZIP] = "gzip", [S3_SNAPPY] = "snappy"
	};
	const char *version = c == S3_ZSTD   ? ZSTD_versionString()
			      : c == S3_GZIP ? archive_zlib_version()
					     : snappy_version();

	if (f == S3_PARQUET)
		snprintf(out, FORMAT_WRITER_MAX,
			"queen-s3/" QUEEN_VERSION " parquet/%d %s/%.24s",
			PARQUET_REVISION, names[c], version);
	else if (c == S3_PLAIN)
		snprintf(out, FORMAT_WRITER_MAX,
			"queen-s3/" QUEEN_VERSION " jsonl");
	else
		snprintf(out, FORMAT_WRITER_MAX,
			"queen-s3/" QUEEN_VERSION " jsonl+%s/%.24s", names[c],
			version);
	return out;
}

const char *
format_extension(enum s3_format f, enum s3_codec c)
{
	if (f == S3_PARQUET)
		return "parquet";
	return c == S3_ZSTD ? "jsonl.zst" : c == S3_GZIP ? "jsonl.gz" : "jsonl";
}

const char *
format_content_type(enum s3_format f)
{
	return f == S3_PARQUET ? "application/vnd.apache.parquet"
			       : "application/x-ndjson";
}

struct format *
format_new(const struct format_of *o, struct object *out, struct err *e)
{
	struct format *f = calloc(1, sizeof(*f));

	BUG(!f);
	f->out = out;
	if (o->format == S3_PARQUET)
		f->parquet = parquet_new(o, PARQUET_GROUP_ROWS, out, e);
	else
		f->jsonl = jsonl_new(o->codec, out, e);
	if (f->parquet || f->jsonl)
		return f;
	free(f);
	return NULL;
}

void
format_free(struct format *f)
{
	if (!f)
		return;
	jsonl_free(f->jsonl);
	parquet_free(f->parquet);
	buf_fini(&f->partition);
	free(f);
}

/* Below 0: the record before comes first. */
static int
by_partition(const struct format *f, const struct record *r)
{
	struct span a = buf_span(&f->partition), b = r->partition;
	size_t n = a.n < b.n ? a.n : b.n;
	int c = n > 0 ? memcmp(a.p, b.p, n) : 0;

	return c ? c : (a.n > b.n) - (a.n < b.n);
}

static bool
in_order(const struct format *f, const struct record *r, int by)
{
	if (f->records == 0 || by != 0)
		return by <= 0;
	if (f->ts_us != r->ts_us)
		return f->ts_us < r->ts_us;
	return f->offset < r->offset;
}

int
format_add(struct format *f, const struct record *r, struct err *e)
{
	int rc, by = by_partition(f, r);

	if (f->finished)
		return err_set(e, ERR_BUG, "the object is finished");
	if (!in_order(f, r, by))
		return err_set(e, ERR_BUG,
			"record out of order: partition %.*s, offset %lld",
			SPAN_ARG(span_clip(r->partition, 128)),
			(long long)r->offset);
	if (by != 0) {
		buf_reset(&f->partition);
		buf_put_span(&f->partition, r->partition);
	}
	f->ts_us = r->ts_us;
	f->offset = r->offset;
	rc = f->jsonl ? jsonl_add(f->jsonl, r, e)
		      : parquet_add(f->parquet, r, e);
	if (rc == 0)
		f->records++;
	return rc;
}

int
format_finish(struct format *f, struct err *e)
{
	int rc;

	if (f->finished)
		return err_set(e, ERR_BUG, "the object is finished");
	rc = f->jsonl ? jsonl_finish(f->jsonl, e)
		      : parquet_finish(f->parquet, e);
	if (rc != 0)
		return rc;
	f->finished = true;
	object_seal(f->out);
	return 0;
}

int64_t
format_records(const struct format *f)
{
	return f->records;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every variable queen-s3 reads.  The table alone knows a name: it feeds
 * parsing, --help, --check-config and the test against queen-s3(8).  Those of
 * a sink are texts here, because documents state them too: lib/s3conf judges.
 */
#include "settings.h"

#define CONF_OF struct settings
#include "conf_rows.h"

/* clang-format off */
const struct conf_item conf_items[] = {
	STR("QUEEN_S3_QUEUES", text.queues, NULL, "sink",
	    "queues to mirror, a comma list, or * for all; turns the sink on"),
	STR("QUEEN_S3_ENDPOINT", text.endpoint, NULL, "sink",
	    "address of the store: scheme, host, port, no path"),
	STR("QUEEN_S3_REGION", text.region, NULL, "sink",
	    "region that requests are signed for"),
	STR("QUEEN_S3_BUCKET", text.bucket, NULL, "sink",
	    "bucket that is written to"),
	STR("QUEEN_S3_ACCESS_KEY", text.access_key, NULL, "sink",
	    "id of the access key"),
	SECRET("QUEEN_S3_SECRET_KEY", text.secret_key, "sink",
	    "secret of the access key"),
	STR("QUEEN_S3_PREFIX", text.prefix, "queen", "sink",
	    "path that every key begins with"),
	STR("QUEEN_S3_PATH_STYLE", text.path_style, "false", "sink",
	    "the bucket is in the path, not in the host name"),
	STR("QUEEN_S3_SSE", text.sse, NULL, "sink",
	    "encryption asked of the store: AES256 or aws:kms"),
	STR("QUEEN_S3_SSE_KMS_KEY_ID", text.kms_key_id, NULL, "sink",
	    "key of aws:kms"),
	STR("QUEEN_S3_FORMAT", text.format, "jsonl", "sink",
	    "jsonl or parquet"),
	STR("QUEEN_S3_COMPRESSION", text.compression, "zstd", "sink",
	    "codec of JSONL: zstd, gzip or none"),
	STR("QUEEN_S3_PARQUET_CODEC", text.parquet_codec, "zstd", "sink",
	    "codec of the pages of Parquet: zstd or snappy"),
	STR("QUEEN_S3_LAYOUT", text.layout, "merged", "sink",
	    "merged, or per-partition: an object for each partition"),
	STR("QUEEN_S3_ALIGN", text.align, "hour", "sink",
	    "boundary no window crosses, in UTC: hour, day or none"),
	STR("QUEEN_S3_START", text.start, "latest", "sink",
	    "where a new queue begins: latest, earliest, timestamp:TIME"),
	STR("QUEEN_S3_TARGET_MB", text.target_mb, "128", "sink",
	    "size at which a window closes, before compression, in MiB"),
	STR("QUEEN_S3_MAX_WINDOW_MS", text.max_window_ms, "300000", "sink",
	    "longest that a window stays open, in ms"),
	STR("QUEEN_S3_SINK", text.sink, "default", "sink",
	    "name in the rows of this sink; retentionSinkHold refers to it"),
	STR("QUEEN_S3_PARTITIONS", text.partitions, NULL, "sink",
	    "refused when set: there is no static list of partitions"),

	INT("QUEEN_S3_MEMORY_MB", memory_mb, "1024", 1, 1048576, "node",
	    "the memory for records of all open windows, in MiB"),
	INT("QUEEN_S3_FETCH_CONCURRENCY", fetch_concurrency, "4", 1, 256,
	    "node", "the number of reads in flight for one queue"),
	INT("QUEEN_S3_DISCOVERY_INTERVAL_MS", discovery_interval_ms, "2000",
	    10, 3600000, "node",
	    "how often an idle queue asks which partitions moved, in ms"),
	INT("QUEEN_S3_SAFE_GUARD_MS", safe_guard_ms, "5000", 0, 3600000, "node",
	    "what a window keeps away from safeTime, in ms"),
	INT("QUEEN_S3_LEASE_TTL_MS", lease_ttl_ms, "30000", 1000, 3600000,
	    "node", "how long a dead node keeps its queues, in ms"),
	INT("QUEEN_S3_MULTIPART_THRESHOLD_MB", multipart_threshold_mb, "64", 5,
	    5120, "node", "the largest object that goes up whole, in MiB"),
	INT("QUEEN_S3_CHECKPOINT_EVERY", checkpoint_every, "20", 1, 100000,
	    "node", "the number of windows from one checkpoint to the next"),
	STR("QUEEN_S3_INSTANCE", text.instance, NULL, "node",
	    "name of this node; default: QUEEN_SERVER_ID, else the host name"),
	STR("QUEEN_S3_CRASH_AT", text.crash_at, "never", "node",
	    "for tests: abort at this point of a window"),
	INT("QUEEN_S3_THREADS", threads, "1", 1, 64, "node",
	    "known to older versions; one process is one thread"),
	INT("QUEEN_S3_SHUTDOWN_GRACE_MS", shutdown_grace_ms, "30000", 100,
	    3600000, "node", "the time for work in hand after SIGTERM, in ms"),
	INT("QUEEN_FETCH_SAFE_GUARD_MS", time_guard_ms, "5000", 500, 3600000,
	    "node", "how far safeTime is kept behind the clock, in ms"),
	INT("QUEEN_FETCH_SAFE_FLOOR_MS", safe_floor_ms, "30000", 1, 86400000,
	    "node",
	    "age of safeTime while other sessions cannot be seen, in ms"),

	STR("QUEEN_S3_LISTEN", listen, "127.0.0.1:9333", "server",
	    "host:port of health, metrics and status"),
	STR("QUEEN_SERVER_ID", server_id, NULL, "server",
	    "name of this node where QUEEN_S3_INSTANCE gives none"),

	CONF_PG_ROWS,

	CONF_KEY_ROWS("payloads and of tenants' secrets"),
	STR("QUEEN_CA_FILE", ca_file, NULL, "security",
	    "certificate authorities of the store, else the distribution's"),

	CONF_LOG_ROWS,
	STR("QUEEN_S3_LOG_FORMAT", text.log_format, NULL, "logging",
	    "json: the same as QUEEN_LOG_JSON"),

	ACCEPT("QUEEN_URL"), ACCEPT("QUEEN_TOKEN"), ACCEPT("QUEEN_S3_EMBEDDED"),
	ACCEPT("QUEEN_S3_BIN"),
};
/* clang-format on */

const size_t conf_items_n = sizeof(conf_items) / sizeof(conf_items[0]);

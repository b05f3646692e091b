/* SPDX-License-Identifier: Apache-2.0 */
/* What the environment says, read once. */
#ifndef QUEEN_S3_SETTINGS_H
#define QUEEN_S3_SETTINGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "conf.h"
#include "s3conf.h"

struct buf;
struct err;

enum settings_crash {
	CRASH_NEVER,
	CRASH_AFTER_INTENT,
	CRASH_MID_UPLOAD,
	CRASH_AFTER_UPLOAD,
	CRASH_BEFORE_COMMIT,
	CRASH_AFTER_COMMIT
};

/* Settings that are judged elsewhere, as texts; of keys only the end. */
struct settings_text {
	char *queues, *endpoint, *region, *bucket, *access_key, *secret_key;
	char *prefix, *path_style, *sse, *kms_key_id, *format, *compression;
	char *parquet_codec, *layout, *align, *start, *target_mb;
	char *max_window_ms, *sink, *partitions;
	char *instance, *crash_at, *log_format;
};

struct settings {
	/* the sink of the environment; see lib/s3conf.h */
	bool has_sink;
	struct s3conf sink;
	struct settings_text text;
	/* of the node */
	int64_t memory_mb, fetch_concurrency, discovery_interval_ms;
	int64_t safe_guard_ms, lease_ttl_ms, multipart_threshold_mb;
	int64_t checkpoint_every, threads, shutdown_grace_ms;
	int64_t time_guard_ms, safe_floor_ms; /* QUEEN_FETCH_SAFE_... */
	char *instance; /* as rows have it: with the host */
	bool instance_generated;
	enum settings_crash crash_at;
	/* of the process */
	char *server_id, *listen, *ca_file;
	/* the cell's */
	char *pg_conninfo, *pg_host, *pg_user, *pg_password, *pg_database;
	char *pg_db, *pg_ssl_root_cert;
	int64_t pg_port;
	bool pg_use_ssl, pg_ssl_reject_unauthorized;
	/* security, logging */
	char *encryption_key, *encryption_old_keys;
	char *rust_log, *log_level;
	bool log_json;
};

extern const struct conf_item conf_items[];
extern const size_t conf_items_n;

/* -1 with ERR_CONFIG: one line that names the variable. */
int settings_load(struct settings *s, struct err *e)
	__attribute__((warn_unused_result));
/*
 * Secrets that others have copies of are gone from here and from the
 * environment: after what prints that they are set.
 */
void settings_wipe(struct settings *s);
void settings_fini(struct settings *s);
const char *settings_crash_name(enum settings_crash c);
/*
 * The process is over at this point if it is the one asked for (tests); what
 * was logged is on stderr by then.
 */
void settings_crash(const struct settings *s, enum settings_crash at);

/*
 * The name in lease and presence rows, allocated: a given one with the host
 * behind it, else the server's id, else the host, else a random one.  NULL or
 * "": there is none.
 */
char *settings_instance(const char *given, const char *server_id,
	const char *host, bool *generated);
/*
 * Appends `version=... crash_at=...`: what runs one sink, as the
 * environment spells it.  pg: the connection without its password.
 */
void settings_boot_line(const struct settings *s, const struct s3conf *c,
	const char *tenant, const char *pg, struct buf *out);

#endif

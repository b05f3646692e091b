/* SPDX-License-Identifier: Apache-2.0 */
/* What the environment says (spec 2), read once. */
#ifndef QUEEN_S3_SETTINGS_H
#define QUEEN_S3_SETTINGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "conf.h"
#include "s3conf.h"

struct err;

enum settings_crash {
	CRASH_NEVER,
	CRASH_AFTER_INTENT,
	CRASH_MID_UPLOAD,
	CRASH_AFTER_UPLOAD,
	CRASH_BEFORE_COMMIT,
	CRASH_AFTER_COMMIT
};

struct settings {
	/* the sink of the environment; see lib/s3conf.h */
	bool has_sink;
	struct s3conf sink;
	/* of the node */
	int64_t memory_mb, fetch_concurrency, discovery_interval_ms;
	int64_t safe_guard_ms, lease_ttl_ms, multipart_threshold_mb;
	int64_t checkpoint_every, threads, shutdown_grace_ms;
	int64_t safe_floor_ms; /* QUEEN_FETCH_SAFE_FLOOR_MS */
	char *instance; /* final (spec 7.5) */
	bool instance_generated;
	enum settings_crash crash_at;
	/* of the process */
	char *listen, *ca_file;
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
void settings_fini(struct settings *s);
const char *settings_crash_name(enum settings_crash c);
/*
 * The process is over at this point if it is the one asked for (tests); what
 * was logged is on stderr by then.
 */
void settings_crash(const struct settings *s, enum settings_crash at);

#endif

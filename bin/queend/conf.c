/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every variable queend reads.  The table alone knows a name: it feeds
 * parsing, --help, --check-config and the test against queend(8).
 */
#include "settings.h"

#include "conf.h"

#define AT(field) offsetof(struct settings, field)

#define STR(nm, field, def, grp, hlp)                                          \
	{                                                                      \
		.name = nm, .type = CONF_STR, .at = AT(field), .dflt = def,    \
		.group = grp, .help = hlp                                      \
	}
#define SECRET(nm, field, grp, hlp)                                            \
	{                                                                      \
		.name = nm, .type = CONF_STR, .at = AT(field), .secret = true, \
		.group = grp, .help = hlp                                      \
	}
#define INT(nm, field, def, lo, hi, grp, hlp)                                  \
	{                                                                      \
		.name = nm, .type = CONF_INT, .at = AT(field), .dflt = def,    \
		.min = lo, .max = hi, .group = grp, .help = hlp                \
	}
#define BOOL(nm, field, def, grp, hlp)                                         \
	{                                                                      \
		.name = nm, .type = CONF_BOOL, .at = AT(field), .dflt = def,   \
		.group = grp, .help = hlp                                      \
	}
#define WORD(nm, field, def, set, grp, hlp)                                    \
	{                                                                      \
		.name = nm, .type = CONF_WORD, .at = AT(field), .dflt = def,   \
		.words = set, .group = grp, .help = hlp                        \
	}
#define ACCEPT(nm)                                                             \
	{                                                                      \
		.name = nm, .type = CONF_ACCEPT                                \
	}

enum { DAY_MS = 86400000 };

/* clang-format off */
const struct conf_item conf_items[] = {
	INT("PORT", port, "6632", 0, 65535, "server",
	    "port of the HTTP listener; 0 takes any free one"),
	STR("QUEEN_BIND_ADDR", bind_addr, "0.0.0.0", "server",
	    "host or IP to listen on, without a port"),
	STR("QUEEN_METRICS_BIND", metrics_bind, NULL, "server",
	    "host:port of a further listener for health and metrics only"),
	STR("QUEEN_SERVER_ID", server_id, NULL, "server",
	    "name of this instance; default: host name and slot"),
	STR("QUEEN_RUN_DIR", run_dir, NULL, "server",
	    "folder of the slot files; default: the runtime directory"),
	INT("QUEEN_MAX_BODY_BYTES", max_body_bytes, "67108864", 1024,
	    1073741824, "server", "largest request body in bytes; more is 413"),
	INT("QUEEN_HTTP_MEMORY_MB", http_memory_mb, "256", 1, 65536, "server",
	    "request bodies held in memory at once, in MiB"),
	INT("QUEEN_SHUTDOWN_GRACE_MS", shutdown_grace_ms, "10000", 1, 600000,
	    "server", "time for requests in hand after SIGTERM, in ms"),

	SECRET("QUEEN_PG_CONNINFO", pg_conninfo, "postgres",
	    "libpq connection string; wins over all PG_ variables"),
	STR("PG_HOST", pg_host, NULL, "postgres",
	    "host, IP or socket folder; default: libpq's, else localhost"),
	INT("PG_PORT", pg_port, NULL, 1, 65535, "postgres",
	    "port; default: libpq's, else 5432"),
	STR("PG_USER", pg_user, NULL, "postgres",
	    "role; default: libpq's, else postgres"),
	SECRET("PG_PASSWORD", pg_password, "postgres",
	    "password; default: libpq's, else postgres when asked for one"),
	STR("PG_DATABASE", pg_database, NULL, "postgres",
	    "database; default: PG_DB, libpq's, else postgres"),
	STR("PG_DB", pg_db, NULL, "postgres", "older name of PG_DATABASE"),
	BOOL("PG_USE_SSL", pg_use_ssl, "false", "postgres",
	    "require TLS to the database"),
	BOOL("PG_SSL_REJECT_UNAUTHORIZED", pg_ssl_reject_unauthorized, "true",
	    "postgres", "verify the certificate of the database server"),
	STR("PG_SSL_ROOT_CERT", pg_ssl_root_cert, NULL, "postgres",
	    "PEM text of a private certificate authority"),
	INT("DB_POOL_SIZE", pool_size, "16", 4, 1000, "postgres",
	    "connections in the lanes; two more listen and cancel"),
	INT("QUEEN_STMT_TIMEOUT_MS", stmt_timeout_ms, "30000", 100, 3600000,
	    "postgres", "a statement is cancelled after this, in ms"),
	BOOL("QUEEN_APPLY_SCHEMA", apply_schema, "true", "postgres",
	    "apply the schema at boot; false: wait until another has"),

	BOOL("JWT_ENABLED", jwt_enabled, "false", "auth",
	    "require bearer tokens; not in this release, true is refused"),
	BOOL("QUEEN_TENANCY_HEADER", tenancy_header, "false", "auth",
	    "honour x-queen-tenant; not in this release, true is refused"),
	SECRET("QUEEN_ENCRYPTION_KEY", encryption_key, "security",
	    "key of sealed payloads, 64 hex characters"),
	SECRET("QUEEN_ENCRYPTION_OLD_KEYS", encryption_old_keys, "security",
	    "former keys, which only open: a comma list"),

	INT("DEFAULT_TIMEOUT", default_timeout_ms, NULL, 1, 300000, "engine",
	    "how long a waiting pop parks unless it says, in ms"),
	INT("POP_DEFAULT_TIMEOUT_MS", pop_default_timeout_ms, "30000", 1,
	    300000, "engine", "the same, when DEFAULT_TIMEOUT is unset"),
	WORD("DEFAULT_SUBSCRIPTION_MODE", default_subscription_mode, "new",
	    "new all", "engine", "where a new consumer group starts"),
	INT("QUEEN_FETCH_SAFE_FLOOR_MS", fetch_safe_floor_ms, "30000", 1,
	    86400000, "engine",
	    "age of safeTime while other sessions cannot be seen, in ms"),
	INT("QUEEN_CACHE_REFRESH_INTERVAL_MS", cache_refresh_ms, "60000", 1,
	    DAY_MS, "engine", "flags and options are re-read this often, in ms"),
	INT("QUEEN_DEDUP_CACHE_MB", dedup_cache_mb, "512", 1, 1048576,
	    "engine", "memory of the duplicate filters in MiB"),

	INT("QUEEN_KV_MAX_OPS_PER_CALL", kv_max_ops, "256", 1, 4096, "kv",
	    "operations in one KV call; 64 in a transaction, always"),
	INT("QUEEN_KV_MAX_KEYS_PER_CALL", kv_max_keys, "1024", 1, 4096, "kv",
	    "keys in one KV call; 256 in a transaction, always"),
	INT("QUEEN_KV_MAX_VALUE_BYTES", kv_max_value_bytes, "65536", 1, 65536,
	    "kv", "largest KV value in bytes"),
	INT("QUEEN_KV_MAX_KEY_BYTES", kv_max_key_bytes, "512", 1, 512, "kv",
	    "longest KV key in bytes"),
	INT("QUEEN_KV_MAX_READ_BYTES", kv_max_read_bytes, "4194304", 1,
	    67108864, "kv", "values read by one KV call, in bytes"),
	INT("QUEEN_KV_PREFIX_LIMIT", kv_prefix_limit, "1000", 1, 1000, "kv",
	    "largest page of getPrefix"),
	INT("QUEEN_KV_READ_RATE", kv_read_rate, "200", 0, 1000000, "kv",
	    "reading KV calls a second, per tenant; 0 = no limit"),
	INT("QUEEN_KV_READ_BURST", kv_read_burst, "400", 1, 1000000, "kv",
	    "reading KV calls at once, per tenant"),
	INT("QUEEN_KV_WRITE_RATE", kv_write_rate, "100", 0, 1000000, "kv",
	    "writing KV and timer calls a second, per tenant; 0 = no limit"),
	INT("QUEEN_KV_WRITE_BURST", kv_write_burst, "200", 1, 1000000, "kv",
	    "writing KV and timer calls at once, per tenant"),
	INT("QUEEN_KV_CELL_RATE", kv_cell_rate, "2000", 0, 10000000, "kv",
	    "KV and timer calls a second, all tenants; 0 = no limit"),
	WORD("QUEEN_KV_REQUIRE_GRANT", kv_require_grant, NULL,
	    "true false 1 0 yes no on off", "kv",
	    "only tenants with a quota row write; default: with tenancy"),
	INT("QUEEN_KV_MAX_TENANTS", kv_max_tenants, "10000", 1, 10000000,
	    "kv", "tenants with limits in memory; others are refused"),
	INT("QUEEN_KV_QUOTA_REFRESH_MS", kv_quota_refresh_ms, "30000", 100,
	    DAY_MS, "kv", "quotas are re-read this often, in ms"),
	INT("QUEEN_KV_QUOTA_RELEASE_PERCENT", kv_quota_release_percent, "90",
	    1, 99, "kv", "a full tenant may write again at this part of it"),
	INT("QUEEN_KV_QUOTA_HOT_PERCENT", kv_quota_hot_percent, "80", 1, 100,
	    "kv", "from here on usage is measured every 30 seconds"),
	INT("QUEEN_KV_USAGE_EVERY_MS", kv_usage_every_ms, "300000", 100,
	    DAY_MS, "kv", "usage of tenants is measured this often, in ms"),
	INT("QUEEN_KV_STANDALONE_SHED_AFTER", kv_shed_after, "5", 1, 1000000,
	    "kv", "calls in a row without a connection that pause KV writes"),
	INT("QUEEN_KV_EXPIRE_EVERY_MS", kv_expire_every_ms, "1000", 10,
	    DAY_MS, "kv", "dead KV rows are removed this often, in ms"),
	INT("QUEEN_KV_EXPIRE_BATCH", kv_expire_batch, "1000", 1, 100000, "kv",
	    "KV rows removed in one step"),
	BOOL("QUEEN_SWEEPER", sweeper, "true", "kv",
	    "remove dead KV rows at all; reads never see them"),

	INT("QUEEN_TIMERS_MAX_OPS_PER_CALL", timers_max_ops, "256", 1, 256,
	    "timers", "timer operations in one call or transaction"),
	INT("QUEEN_TIMERS_MAX_HORIZON_S", timers_max_horizon_s, "7776000", 1,
	    315360000, "timers", "longest delay of a timer, in seconds"),
	INT("QUEEN_TIMERS_MAX_PAYLOAD_BYTES", timers_max_payload_bytes,
	    "1048576", 1, 67108864, "timers",
	    "largest payload of a timer in bytes"),
	INT("QUEEN_SWEEPER_MIN_SLEEP_MS", sweeper_min_sleep_ms, "5", 1, 60000,
	    "timers", "shortest sleep between two looks for due timers, in ms"),
	INT("QUEEN_SWEEPER_MAX_SLEEP_MS", sweeper_max_sleep_ms, "1000", 1,
	    600000, "timers", "longest sleep while there are timers, in ms"),
	INT("QUEEN_SWEEPER_IDLE_MAX_SLEEP_MS", sweeper_idle_max_sleep_ms,
	    "30000", 1, 600000, "timers",
	    "longest sleep while there are none, in ms"),
	INT("QUEEN_SWEEPER_IDLE_AFTER_CYCLES", sweeper_idle_after, "5", 0,
	    1000, "timers", "looks that find none before the sleep grows"),
	INT("QUEEN_SWEEPER_CYCLE_MAX_ROWS", sweeper_cycle_max_rows, "5000", 1,
	    1000000, "timers", "timers fired before the next sleep"),
	INT("QUEEN_SWEEPER_DUE_CAP", sweeper_due_cap, "2000", 1, 1000000,
	    "timers", "due timers are counted up to this"),
	INT("QUEEN_SWEEPER_MAX_FIRE_BYTES", sweeper_max_fire_bytes, "8388608",
	    1, 1073741824, "timers",
	    "bytes fired in one commit; one timer always goes"),
	INT("QUEEN_SWEEPER_MAX_ATTEMPTS", sweeper_max_attempts, "5", 1, 1000,
	    "timers", "failed fires before a timer is a dead letter"),
	INT("QUEEN_SWEEPER_BACKOFF_MIN_MS", sweeper_backoff_min_ms, "1000", 1,
	    DAY_MS, "timers", "wait after the first failed fire, in ms"),
	INT("QUEEN_SWEEPER_BACKOFF_MAX_MS", sweeper_backoff_max_ms, "60000", 1,
	    DAY_MS, "timers", "it doubles with each, up to this, in ms"),
	INT("QUEEN_SWEEPER_TRANSIENT_BACKOFF_MS", sweeper_transient_backoff_ms,
	    "1000", 1, DAY_MS, "timers",
	    "wait after a fault of the database that passes, in ms"),
	BOOL("QUEEN_SWEEPER_ISOLATE_ON_PERMANENT", sweeper_isolate, "true",
	    "timers", "after a failed fire, fire one by one to find the cause"),

	INT("RETENTION_INTERVAL", retention_interval_ms, "5000", 1, DAY_MS,
	    "jobs", "period of the retention cycle, in ms"),
	INT("RETENTION_BATCH_SIZE", retention_batch_size, "1000", 1, 100000,
	    "jobs", "segments deleted in one step"),
	INT("QUEEN_RETENTION_DUE_CAP", retention_due_cap, "0", 0, 1000000,
	    "jobs", "partitions per rule and cycle; 0 = five times the batch"),
	INT("PARTITION_CLEANUP_DAYS", cleanup_days, "30", 1, 36500, "jobs",
	    "an empty partition goes after this many idle days"),
	BOOL("QUEEN_PARTITION_CLEANUP_ENABLED", cleanup_enabled, "true",
	    "jobs", "remove empty idle partitions at all"),
	INT("METRICS_RETENTION_DAYS", metrics_retention_days, "90", 1, 36500,
	    "jobs", "per-minute counters are kept this many days"),
	INT("METRICS_FLUSH_MS", metrics_flush_ms, "60000", 1000, DAY_MS,
	    "jobs", "per-minute counters are written this often, in ms"),
	INT("STATS_INTERVAL_MS", stats_interval_ms, "10000", 1000, DAY_MS,
	    "jobs", "computed statistics are served this long, in ms"),
	INT("RETAINED_BYTES_INTERVAL_MS", retained_bytes_interval_ms,
	    "600000", 1000, DAY_MS, "jobs",
	    "storage sizes are served this long, in ms"),

	STR("FILE_BUFFER_DIR", file_buffer_dir, NULL, "file_buffer",
	    "folder of the outage spool; not in this release, ignored"),

	STR("RUST_LOG", rust_log, NULL, "logging",
	    "log filter: level or level,target=level,...; wins"),
	STR("LOG_LEVEL", log_level, "info", "logging", "the same"),
	BOOL("QUEEN_LOG_JSON", log_json, "false", "logging",
	    "one JSON object per log line"),
	INT("QUEEN_LOG_RATES_MS", log_rates_ms, "10000", 1000, DAY_MS,
	    "logging", "period of the rates lines, in ms"),
	INT("QUEEN_LOG_TOPN_QUEUES", log_topn_queues, "10", 1, 1000,
	    "logging", "queues named in the rates lines"),

	/* older brokers tuned mechanisms with these that do not exist here */
	ACCEPT("POP_WAIT_INITIAL_INTERVAL_MS"),
	ACCEPT("POP_WAIT_BACKOFF_THRESHOLD"),
	ACCEPT("POP_WAIT_BACKOFF_MULTIPLIER"),
	ACCEPT("POP_WAIT_MAX_INTERVAL_MS"),
	ACCEPT("QUEEN_POP_PENDING_GATE"),
	ACCEPT("QUEEN_DEDUP_CACHE"),
	ACCEPT("QUEEN_ACK_REGISTRY"), ACCEPT("QUEEN_ACK_REGISTRY_MB"),
	ACCEPT("QUEEN_ACK_FUSION"), ACCEPT("QUEEN_ACK_FUSION_SHARDS"),
	ACCEPT("QUEEN_ACK_FUSION_HOLD_MS"), ACCEPT("QUEEN_POP_FUSION"),
	ACCEPT("QUEEN_V2_FUSION_SHARDS"), ACCEPT("QUEEN_V2_FUSION_FRAMES"),
	ACCEPT("QUEEN_V2_FUSION_HOLD_MS"), ACCEPT("QUEEN_V2_BUNDLE_MAX"),
	ACCEPT("QUEEN_V2_ZSTD_LEVEL"),
	ACCEPT("QUEEN_HOTLIST"), ACCEPT("QUEEN_HOTLIST_SHARDS"),
	ACCEPT("QUEEN_HOTLIST_WINDOW_BATCH"),
	ACCEPT("QUEEN_HOTLIST_RESEED_MS"),
	ACCEPT("QUEEN_HOTLIST_RESEED_FULL_MS"),
	ACCEPT("QUEEN_HOTLIST_RESEED_WINDOW_MS"),
	ACCEPT("QUEEN_HOTLIST_UNSERVED_TRIM_MS"),
	ACCEPT("QUEEN_POP_AUTOPILOT"), ACCEPT("QUEEN_POP_AUTOPILOT_BATCH"),
	ACCEPT("QUEEN_POP_AUTOPILOT_TARGET_AGE_MS"),
	ACCEPT("QUEEN_POP_AUTOPILOT_DWELL_MS"),
	ACCEPT("QUEEN_POP_AUTOPILOT_DWELL_POPS"),
	ACCEPT("QUEEN_POP_AUTOPILOT_MAX_LANES"),
	ACCEPT("QUEEN_POP_AUTOPILOT_BURST_CAP"),
	ACCEPT("QUEEN_ADMISSION_MIN"), ACCEPT("QUEEN_ADMISSION_MAX"),
	ACCEPT("QUEEN_ADMISSION_INIT"),
	ACCEPT("QUEEN_ADMISSION_POOL_RESERVE"),
	ACCEPT("QUEEN_ADMISSION_SHARE_PUSH"),
	ACCEPT("QUEEN_ADMISSION_SHARE_POP"),
	ACCEPT("QUEEN_ADMISSION_SHARE_ACK"),
	ACCEPT("QUEEN_ADMISSION_SHARE_MAINT"),
	ACCEPT("QUEEN_ADMISSION_TICK_MS"),
	ACCEPT("QUEEN_ADMISSION_TRAIN_GAP_US"),
	ACCEPT("QUEEN_ADMISSION_NOSYNC_BUDGET"),
	ACCEPT("QUEEN_ADMISSION_TRACE"),
	ACCEPT("QUEEN_KV_POOL_SIZE"),
	ACCEPT("QUEEN_SWEEPER_EMPTY_CLAIM_MIN_MS"),
	ACCEPT("QUEEN_SWEEPER_EMPTY_CLAIM_MAX_MS"),
	ACCEPT("QUEEN_SWEEPER_LEASE_MS"), ACCEPT("QUEEN_SWEEPER_CLAIM_BATCH"),
	ACCEPT("QUEEN_SWEEPER_FIRE_RATE_PER_TENANT"),
	ACCEPT("QUEEN_SWEEPER_PARALLELISM"),
	ACCEPT("RETENTION_PARALLELISM"),
	ACCEPT("QUEEN_RETENTION_SAFETY_WALK_MS"),
	ACCEPT("FILE_BUFFER_FLUSH_MS"), ACCEPT("FILE_BUFFER_MAX_BATCH"),
	ACCEPT("FILE_BUFFER_EVENTS_PER_FILE"),
	ACCEPT("QUEEN_SYNC_ENABLED"), ACCEPT("QUEEN_MESH_PEERS"),
	ACCEPT("QUEEN_UDP_PEERS"), ACCEPT("QUEEN_MESH_PORT"),
	ACCEPT("QUEEN_UDP_NOTIFY_PORT"), ACCEPT("QUEEN_MESH_BIND_ADDR"),
	ACCEPT("QUEEN_MESH_ADVERTISE_HOST"),
	ACCEPT("QUEEN_SYNC_SECRET"), ACCEPT("QUEEN_SYNC_HEARTBEAT_MS"),
	ACCEPT("QUEEN_SYNC_DEAD_THRESHOLD_MS"),
	ACCEPT("QUEEN_S3_EMBEDDED"), ACCEPT("QUEEN_KAFKA_EMBEDDED"),
	ACCEPT("QUEEN_SQS_EMBEDDED"),
};
/* clang-format on */

const size_t conf_items_n = sizeof(conf_items) / sizeof(conf_items[0]);

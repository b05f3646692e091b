/* SPDX-License-Identifier: Apache-2.0 */
/* The settings of queend; conf.c holds the table, lib/conf.h the parser. */
#ifndef QUEEND_SETTINGS_H
#define QUEEND_SETTINGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "conf.h"

struct settings {
	/* server */
	int64_t port;
	char *bind_addr;
	char *metrics_bind;		/* host:port; NULL = none */
	char *server_id;		/* NULL = host name and slot */
	char *run_dir;			/* slot files; NULL = found at boot */
	int64_t max_body_bytes, http_memory_mb;
	int64_t shutdown_grace_ms;
	/* postgres */
	char *pg_conninfo, *pg_host, *pg_user, *pg_password, *pg_database;
	char *pg_db;
	int64_t pg_port;
	bool pg_use_ssl, pg_ssl_reject_unauthorized;
	char *pg_ssl_root_cert;
	int64_t pool_size;
	int64_t stmt_timeout_ms;
	bool apply_schema;
	/* security */
	char *encryption_key, *encryption_old_keys;
	bool pg_allow_private;
	/* engine */
	int64_t default_timeout_ms;	/* DEFAULT_TIMEOUT, else POP_DEFAULT_... */
	int64_t pop_default_timeout_ms;
	char *default_subscription_mode;
	int64_t fetch_safe_floor_ms;
	int64_t cache_refresh_ms;
	int64_t dedup_cache_mb;
	/* kv */
	int64_t kv_max_ops, kv_max_keys, kv_max_value_bytes, kv_max_key_bytes;
	int64_t kv_max_read_bytes, kv_prefix_limit;
	int64_t kv_expire_every_ms, kv_expire_batch;
	int64_t kv_read_rate, kv_read_burst, kv_write_rate, kv_write_burst;
	int64_t kv_cell_rate, kv_max_tenants, kv_shed_after;
	char *kv_require_grant;		/* NULL = as tenancy_header */
	int64_t kv_quota_refresh_ms, kv_quota_release_percent;
	int64_t kv_quota_hot_percent, kv_usage_every_ms;
	bool sweeper;
	/* timers */
	int64_t timers_max_ops, timers_max_horizon_s, timers_max_payload_bytes;
	bool sweeper_isolate;
	int64_t sweeper_min_sleep_ms, sweeper_max_sleep_ms;
	int64_t sweeper_cycle_max_rows, sweeper_due_cap, sweeper_max_fire_bytes;
	int64_t sweeper_max_attempts, sweeper_backoff_min_ms;
	int64_t sweeper_backoff_max_ms, sweeper_transient_backoff_ms;
	/* jobs */
	int64_t retention_interval_ms, retention_batch_size, retention_due_cap;
	int64_t cleanup_days;
	bool cleanup_enabled;
	int64_t metrics_retention_days;
	int64_t metrics_flush_ms, stats_interval_ms, retained_bytes_interval_ms;
	/* auth */
	bool jwt_enabled;
	char *jwt_algorithm, *jwt_secret, *jwt_public_key, *jwt_jwks_url;
	int64_t jwt_jwks_refresh_s, jwt_jwks_timeout_ms;
	char *ca_file;
	char *jwt_issuer, *jwt_audience;
	int64_t jwt_clock_skew_s;
	char *jwt_skip_paths;
	char *jwt_roles_claim, *jwt_roles_array_claim;
	char *jwt_role_admin, *jwt_role_read_write;
	char *jwt_role_read_only, *jwt_role_write_only;
	bool tenancy_header, kv_trusted_proxy;
	/* named by the settings, served by a later release: warned */
	char *file_buffer_dir;
	/* logging */
	char *rust_log, *log_level;
	bool log_json;
	int64_t log_rates_ms, log_topn_queues;
};

extern const struct conf_item conf_items[];
extern const size_t conf_items_n;

#endif

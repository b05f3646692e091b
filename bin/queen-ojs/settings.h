/* SPDX-License-Identifier: Apache-2.0 */
/* The settings of queen-ojs; conf.c holds the table, lib/conf.h the parser. */
#ifndef QUEEN_OJS_SETTINGS_H
#define QUEEN_OJS_SETTINGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "conf.h"

struct settings {
	/* server */
	int64_t port;
	char *bind_addr;
	char *server_id;		/* NULL = host name */
	int64_t max_body_bytes, http_memory_mb;
	int64_t shutdown_grace_ms;
	/* ojs */
	bool read_only, test;
	int64_t max_envelope_bytes, max_batch;
	int64_t visibility_timeout_ms;
	bool sweeper;
	int64_t sweep_ms;
	/* postgres */
	char *pg_conninfo, *pg_host, *pg_user, *pg_password, *pg_database;
	char *pg_db;
	int64_t pg_port;
	bool pg_use_ssl, pg_ssl_reject_unauthorized;
	char *pg_ssl_root_cert;
	int64_t pool_size;
	int64_t stmt_timeout_ms;
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
	/* logging */
	char *rust_log, *log_level;
	bool log_json;
};

extern const struct conf_item conf_items[];
extern const size_t conf_items_n;

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The settings that several tools have in common, as rows of their tables; the
 * structs have these fields under the same names.
 */
#ifndef QUEEN_CONF_ROWS_H
#define QUEEN_CONF_ROWS_H

#include "conf_table.h"

/* How to reach the cell; BOOT_PGCONN_CONF reads them. */
#define CONF_PG_ROWS                                                           \
	SECRET("QUEEN_PG_CONNINFO", pg_conninfo, "postgres",                   \
	    "libpq connection string; wins over all PG_ variables"),           \
	STR("PG_HOST", pg_host, NULL, "postgres",                              \
	    "host, IP or socket folder; default: libpq's, else localhost"),    \
	INT("PG_PORT", pg_port, NULL, 1, 65535, "postgres",                    \
	    "port; default: libpq's, else 5432"),                              \
	STR("PG_USER", pg_user, NULL, "postgres",                              \
	    "role; default: libpq's, else postgres"),                          \
	SECRET("PG_PASSWORD", pg_password, "postgres",                         \
	    "password; default: libpq's, else postgres when asked for one"),   \
	STR("PG_DATABASE", pg_database, NULL, "postgres",                      \
	    "database; default: PG_DB, libpq's, else postgres"),               \
	STR("PG_DB", pg_db, NULL, "postgres", "older name of PG_DATABASE"),    \
	BOOL("PG_USE_SSL", pg_use_ssl, "false", "postgres",                    \
	    "require TLS to the database"),                                    \
	BOOL("PG_SSL_REJECT_UNAUTHORIZED", pg_ssl_reject_unauthorized, "true", \
	    "postgres", "verify the certificate of the database server"),      \
	STR("PG_SSL_ROOT_CERT", pg_ssl_root_cert, NULL, "postgres",            \
	    "PEM text of a private certificate authority")

/* Tokens and tenants; GATE_CONF reads them. */
#define CONF_AUTH_ROWS                                                         \
	BOOL("JWT_ENABLED", jwt_enabled, "false", "auth",                      \
	    "require bearer tokens"),                                          \
	STR("JWT_ALGORITHM", jwt_algorithm, "HS256", "auth",                   \
	    "HS256 HS384 HS512 RS256 RS384 RS512 EdDSA or auto"),              \
	SECRET("JWT_SECRET", jwt_secret, "auth", "key of HS* tokens, as it is"),\
	SECRET("JWT_PUBLIC_KEY", jwt_public_key, "auth",                       \
	    "PEM text of an RSA or Ed25519 public key"),                       \
	SECRET("JWT_JWKS_URL", jwt_jwks_url, "auth",                           \
	    "http or https address of the public keys"),                       \
	INT("JWT_JWKS_REFRESH_INTERVAL", jwt_jwks_refresh_s, "3600", 1,        \
	    31536000, "auth", "they are fetched again this often, in s"),      \
	INT("JWT_JWKS_TIMEOUT_MS", jwt_jwks_timeout_ms, "5000", 1, 600000,     \
	    "auth", "one fetch may take this long, in ms"),                    \
	STR("QUEEN_CA_FILE", ca_file, NULL, "auth",                            \
	    "certificate authorities for https, else the distribution's"),     \
	STR("JWT_ISSUER", jwt_issuer, NULL, "auth", "iss must be this"),       \
	STR("JWT_AUDIENCE", jwt_audience, NULL, "auth",                        \
	    "aud must be or hold this"),                                       \
	INT("JWT_CLOCK_SKEW", jwt_clock_skew_s, "30", 0, 86400, "auth",        \
	    "tolerance of exp, nbf and iat, in s"),                            \
	STR("JWT_SKIP_PATHS", jwt_skip_paths,                                  \
	    "/health,/metrics/prometheus,/metrics,/", "auth",                  \
	    "a comma list of paths that need no token"),                       \
	STR("JWT_ROLES_CLAIM", jwt_roles_claim, "role", "auth",                \
	    "claim with one role"),                                            \
	STR("JWT_ROLES_ARRAY_CLAIM", jwt_roles_array_claim, "roles", "auth",   \
	    "claim with a list of roles"),                                     \
	STR("JWT_ROLE_ADMIN", jwt_role_admin, "admin", "auth",                 \
	    "the value that means admin"),                                     \
	STR("JWT_ROLE_READ_WRITE", jwt_role_read_write, "read-write", "auth",  \
	    "the value that means read-write"),                                \
	STR("JWT_ROLE_READ_ONLY", jwt_role_read_only, "read-only", "auth",     \
	    "the value that means read-only"),                                 \
	STR("JWT_ROLE_WRITE_ONLY", jwt_role_write_only, "write-only", "auth",  \
	    "the value that means write-only"),                                \
	BOOL("QUEEN_TENANCY_HEADER", tenancy_header, "false", "auth",          \
	    "the header x-queen-tenant says whose a request is"),              \
	BOOL("QUEEN_KV_TRUSTED_PROXY", kv_trusted_proxy, "false", "auth",      \
	    "a proxy sets that header and strips the clients' own")

/* The keys of what is stored sealed; of: what that is. */
#define CONF_KEY_ROWS(of)                                                      \
	SECRET("QUEEN_ENCRYPTION_KEY", encryption_key, "security",             \
	    "key of " of ", 64 hex characters"),                               \
	SECRET("QUEEN_ENCRYPTION_OLD_KEYS", encryption_old_keys, "security",   \
	    "former keys, which only open: a comma list")

#define CONF_LOG_ROWS                                                          \
	STR("RUST_LOG", rust_log, NULL, "logging",                             \
	    "log filter: level or level,target=level,...; wins"),              \
	STR("LOG_LEVEL", log_level, "info", "logging", "the same"),            \
	BOOL("QUEEN_LOG_JSON", log_json, "false", "logging",                   \
	    "one JSON object per log line")

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every variable queen-pgsink reads.  The table alone knows a name: it feeds
 * parsing, --help, --check-config and the test against queen-pgsink(8).
 */
#include "settings.h"

#define CONF_OF struct connhost_settings
#include "conf_table.h"

/* clang-format off */
const struct conf_item conf_items[] = {
	BOOL("QUEEN_PG_CONNECTORS", connectors, "true", "connectors",
	    "run connectors on this node; false: end at once"),
	INT("QUEEN_PG_THREADS", threads, "2", 1, 16, "connectors",
	    "known to older brokers; a process per connector, no threads"),
	INT("QUEEN_PG_RELOAD_MS", reload_ms, "5000", 500, 60000, "connectors",
	    "how often the documents are read, in ms"),
	INT("QUEEN_PG_LEASE_TTL_MS", lease_ttl_ms, "10000", 3000, 120000,
	    "connectors", "of queen-pgsrc; without effect here"),
	INT("QUEEN_PG_SHUTDOWN_GRACE_MS", shutdown_grace_ms, "10000", 0, 120000,
	    "connectors", "time for work in hand after SIGTERM, in ms"),
	BOOL("QUEEN_PG_ALLOW_PRIVATE_NETWORKS", allow_private, "true",
	    "connectors", "connect to hosts with private addresses"),

	STR("QUEEN_PGSINK_LISTEN", listen, "127.0.0.1:9335", "server",
	    "host:port of health and metrics; empty: no listener"),
	STR("QUEEN_SERVER_ID", server_id, NULL, "server",
	    "name of this node; default: host name"),

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

	SECRET("QUEEN_ENCRYPTION_KEY", encryption_key, "security",
	    "key of payloads and passwords, 64 hex characters"),
	SECRET("QUEEN_ENCRYPTION_OLD_KEYS", encryption_old_keys, "security",
	    "former keys, which only open: a comma list"),
	STR("QUEEN_CA_FILE", ca_file, NULL, "security",
	    "certificate authorities of target databases, else the distribution's"),

	STR("RUST_LOG", rust_log, NULL, "logging",
	    "log filter: level or level,target=level,...; wins"),
	STR("LOG_LEVEL", log_level, "info", "logging", "the same"),
	BOOL("QUEEN_LOG_JSON", log_json, "false", "logging",
	    "one JSON object per log line"),
};
/* clang-format on */

const size_t conf_items_n = sizeof(conf_items) / sizeof(conf_items[0]);

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every variable queen-pgsrc reads.  The table alone knows a name: it feeds
 * parsing, --help, --check-config and the test against queen-pgsrc(8).
 */
#include "settings.h"

#define CONF_OF struct connhost_settings
#include "conf_rows.h"

/* clang-format off */
const struct conf_item conf_items[] = {
	BOOL("QUEEN_PG_CONNECTORS", connectors, "true", "connectors",
	    "run connectors on this node; false: end at once"),
	INT("QUEEN_PG_THREADS", threads, "2", 1, 16, "connectors",
	    "known to older brokers; a process per connector, no threads"),
	INT("QUEEN_PG_RELOAD_MS", reload_ms, "5000", 500, 60000, "connectors",
	    "how often the documents are read, in ms"),
	INT("QUEEN_PG_LEASE_TTL_MS", lease_ttl_ms, "10000", 3000, 120000,
	    "connectors", "how long a dead owner keeps a source, in ms"),
	INT("QUEEN_PG_SHUTDOWN_GRACE_MS", shutdown_grace_ms, "10000", 0, 120000,
	    "connectors", "time for work in hand after SIGTERM, in ms"),
	BOOL("QUEEN_PG_ALLOW_PRIVATE_NETWORKS", allow_private, "true",
	    "connectors", "connect to hosts with private addresses"),

	STR("QUEEN_PGSRC_LISTEN", listen, "127.0.0.1:9334", "server",
	    "host:port of health and metrics; empty: no listener"),
	STR("QUEEN_SERVER_ID", server_id, NULL, "server",
	    "name of this node; default: host name"),

	CONF_PG_ROWS,

	CONF_KEY_ROWS("payloads and passwords"),
	STR("QUEEN_CA_FILE", ca_file, NULL, "security",
	    "certificate authorities of source databases, else the distribution's"),

	CONF_LOG_ROWS,
};
/* clang-format on */

const size_t conf_items_n = sizeof(conf_items) / sizeof(conf_items[0]);

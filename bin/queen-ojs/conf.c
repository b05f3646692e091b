/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every variable queen-ojs reads.  The table alone knows a name: it feeds
 * parsing, --help, --check-config and the test against queen-ojs(8).
 */
#include "settings.h"

#define CONF_OF struct settings
#include "conf_rows.h"

/* clang-format off */
const struct conf_item conf_items[] = {
	INT("QUEEN_OJS_PORT", port, "6634", 0, 65535, "server",
	    "port of the HTTP listener; 0 takes any free one"),
	STR("QUEEN_BIND_ADDR", bind_addr, "0.0.0.0", "server",
	    "host or IP to listen on, without a port"),
	STR("QUEEN_SERVER_ID", server_id, NULL, "server",
	    "name of this instance; default: the host name"),
	INT("QUEEN_OJS_MAX_BODY_BYTES", max_body_bytes, "16777216", 1048576,
	    1073741824, "server", "largest request body in bytes; more is 413"),
	INT("QUEEN_HTTP_MEMORY_MB", http_memory_mb, "256", 1, 65536, "server",
	    "request bodies held in memory at once, in MiB"),
	INT("QUEEN_SHUTDOWN_GRACE_MS", shutdown_grace_ms, "10000", 1, 600000,
	    "server", "time for requests in hand after SIGTERM, in ms"),

	BOOL("QUEEN_OJS_READ_ONLY", read_only, "false", "ojs",
	    "refuse every request that changes anything"),
	BOOL("QUEEN_OJS_TEST", test, "false", "ojs",
	    "for conformance tests: worker directives in jobs, admin/reset"),
	INT("QUEEN_OJS_MAX_ENVELOPE_BYTES", max_envelope_bytes, "1048576",
	    1048576, 67108864, "ojs",
	    "largest job, result or stream message in bytes"),
	INT("QUEEN_OJS_MAX_BATCH", max_batch, "10000", 1000, 100000, "ojs",
	    "jobs in one batch"),
	INT("QUEEN_OJS_VISIBILITY_TIMEOUT_MS", visibility_timeout_ms,
	    "1800000", 1, 604800000, "ojs",
	    "lease of a job where neither it nor its queue says, in ms"),
	BOOL("QUEEN_OJS_SWEEPER", sweeper, "true", "ojs",
	    "do due work: promotions, leases, crons, ticks, rotation, removal"),
	INT("QUEEN_OJS_SWEEP_MS", sweep_ms, "250", 10, 60000, "ojs",
	    "how often it is looked for, in ms"),

	CONF_PG_ROWS,
	INT("QUEEN_OJS_POOL_SIZE", pool_size, "8", 4, 1000, "postgres",
	    "connections in the lanes; two more listen and cancel"),
	INT("QUEEN_STMT_TIMEOUT_MS", stmt_timeout_ms, "30000", 100, 3600000,
	    "postgres", "a statement is cancelled after this, in ms"),

	CONF_AUTH_ROWS,

	CONF_LOG_ROWS,
};
/* clang-format on */

const size_t conf_items_n = sizeof(conf_items) / sizeof(conf_items[0]);

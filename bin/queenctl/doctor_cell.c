/* SPDX-License-Identifier: Apache-2.0 */
/* The cell inside: schema, lag, leases, jobs, dead letters, connectors, lake. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "doctor.h"
#include "schema.h"
#include "timearg.h"

enum {
	EXPIRED_S = 600, /* a batch nobody took up again */
	HELD_S = 3600, /* a lease extended over and over */
	OVERDUE_S = 60,
	UNSHIPPED_S = 3600,
	SPAN_TEXT = 32,
};

static const char *
ago(const char *seconds, char out[SPAN_TEXT])
{
	timearg_span(strtod(seconds, NULL), out, SPAN_TEXT);
	return out;
}

/* False when the rest cannot be asked. */
static bool
check_schema(struct doctor *d)
{
	struct schema_cell cell;
	struct err e = ERR_ZERO;

	d->checks++;
	memset(&cell, 0, sizeof(cell));
	if (schema_read(d->pg, &cell, &e) != 0) {
		doctor_find(d, DOCTOR_ERROR,
			"connect as a role that may read "
			"it, or: queenctl schema grant ROLE",
			"cannot read the schema: %s", e.text);
		return false;
	}
	switch (cell.state) {
	case SCHEMA_SAME:
		return true;
	case SCHEMA_ABSENT:
		doctor_find(d, DOCTOR_ERROR, "queenctl schema apply",
			"the database has no schema");
		return false;
	case SCHEMA_OLDER:
		doctor_find(d, DOCTOR_WARN, "queenctl schema apply",
			"the database's schema is another one than this "
			"program's (%d.%d, hash %.8s)",
			cell.major, cell.number, cell.hash);
		return true;
	case SCHEMA_NEWER:
		doctor_find(d, DOCTOR_INFO, NULL,
			"the database's schema %d.%d "
			"is newer than this program's %d.%d",
			cell.major, cell.number, SCHEMA_MAJOR, SCHEMA_NUMBER);
		return true;
	case SCHEMA_FOREIGN:
		break;
	}
	doctor_find(d, DOCTOR_ERROR, "use the programs of that release",
		"the schema has major %d, this program knows %d", cell.major,
		SCHEMA_MAJOR);
	return false;
}

static void
check_lag(struct doctor *d)
{
	char max[24], age[SPAN_TEXT], fix[400];
	PGresult *r;

	snprintf(max, sizeof(max), "%" PRId64, d->max_lag_s);
	r = doctor_ask(d, "the lag",
		"select queue, group_name, messages, age_s "
		"from queen.doctor_lag_v1($1)",
		max);
	for (int i = 0; r && i < PQntuples(r); i++) {
		const char *group = PQgetvalue(r, i, 1);
		bool none = strcmp(group, "__QUEUE_MODE__") == 0;

		snprintf(fix, sizeof(fix),
			"start more consumers, or give the "
			"messages up: queenctl cg seek %.80s %.80s --to end",
			group, PQgetvalue(r, i, 0));
		doctor_find(d, DOCTOR_WARN, fix,
			"%s %.80s of queue %.80s is %s behind (%s messages)",
			none ? "the group-less consumer" : "group",
			none ? "" : group, PQgetvalue(r, i, 0),
			ago(PQgetvalue(r, i, 3), age), PQgetvalue(r, i, 2));
	}
	PQclear(r);
}

static void
check_leases(struct doctor *d)
{
	char age[SPAN_TEXT], sql[160], fix[400];
	PGresult *r;

	snprintf(sql, sizeof(sql),
		"select queue, group_name, expired, held, age_s "
		"from queen.doctor_leases_v1(%d, %d)",
		EXPIRED_S, HELD_S);
	r = doctor_ask(d, "the leases", sql, NULL);
	for (int i = 0; r && i < PQntuples(r); i++) {
		const char *queue = PQgetvalue(r, i, 0);
		const char *group = PQgetvalue(r, i, 1);
		bool held = strcmp(PQgetvalue(r, i, 3), "0") != 0;

		if (held)
			snprintf(fix, sizeof(fix),
				"look at the worker; to "
				"free a partition: queenctl partition seek "
				"%.80s PARTITION --cg %.80s --to offset:N",
				queue, group);
		else
			snprintf(fix, sizeof(fix),
				"start a consumer of group "
				"%.80s, or: queenctl cg delete %.80s --queue "
				"%.80s --yes",
				group, group, queue);
		doctor_find(d, DOCTOR_WARN, fix,
			"queue %.80s, group %.80s: %s leases held and %s run "
			"out with their batch unfinished, the oldest for %s",
			queue, group, PQgetvalue(r, i, 3), PQgetvalue(r, i, 2),
			ago(PQgetvalue(r, i, 4), age));
	}
	PQclear(r);
}

static void
check_claims(struct doctor *d)
{
	PGresult *r = doctor_ask(d, "the jobs",
		"select task, enabled, coalesce(holder, '-'), period_s, "
		"overdue_s, dead_s from queen.doctor_claims_v1()",
		NULL);
	char late[SPAN_TEXT], dead[SPAN_TEXT];

	for (int i = 0; r && i < PQntuples(r); i++) {
		const char *task = PQgetvalue(r, i, 0);
		int64_t overdue = strtoll(PQgetvalue(r, i, 4), NULL, 10);
		int64_t gone = strtoll(PQgetvalue(r, i, 5), NULL, 10);

		if (strcmp(PQgetvalue(r, i, 1), "t") != 0)
			doctor_find(d, DOCTOR_WARN,
				"psql -c \"update "
				"queen.claims set enabled = true where task = "
				"'...'\"",
				"job %.60s is switched off", task);
		else if (overdue > OVERDUE_S && gone > 0)
			doctor_find(d, DOCTOR_WARN,
				"start a queend (see "
				"systemctl status queend)",
				"job %.60s is %s "
				"late: its holder %.80s died %s ago and nobody "
				"took over",
				task, ago(PQgetvalue(r, i, 4), late),
				PQgetvalue(r, i, 2),
				ago(PQgetvalue(r, i, 5), dead));
		else if (overdue > OVERDUE_S)
			doctor_find(d, DOCTOR_WARN,
				"start a queend, or look "
				"into its log",
				"job %.60s is %s late: no queend runs it", task,
				ago(PQgetvalue(r, i, 4), late));
	}
	PQclear(r);
}

static void
check_dead(struct doctor *d)
{
	PGresult *r = doctor_ask(d, "the dead letters",
		"select queue, recent, total from queen.doctor_dead_v1()",
		NULL);
	char fix[160];

	for (int i = 0; r && i < PQntuples(r); i++) {
		snprintf(fix, sizeof(fix), "queenctl dlq list --queue %.100s",
			PQgetvalue(r, i, 0));
		doctor_find(d, DOCTOR_WARN, fix,
			"queue %.80s got %s dead "
			"letters within the last hour, it has %s",
			PQgetvalue(r, i, 0), PQgetvalue(r, i, 1),
			PQgetvalue(r, i, 2));
	}
	PQclear(r);
}

/* What no consumer gets until somebody does something about it. */
static void
check_sealed(struct doctor *d)
{
	PGresult *r = doctor_ask(d, "the sealed messages",
		"select queue, partition, key_id, off, damaged, off + 1 "
		"from queen.seal_blocks_v1(null)",
		NULL);
	char fix[400];

	for (int i = 0; r && i < PQntuples(r); i++) {
		const char *queue = PQgetvalue(r, i, 0);
		const char *part = PQgetvalue(r, i, 1);
		bool damaged = strcmp(PQgetvalue(r, i, 4), "t") == 0;

		snprintf(fix, sizeof(fix),
			"%s, or step over it: queenctl partition seek %.80s "
			"%.80s --cg GROUP --to offset:%.20s",
			damaged ? "restore it from a backup"
				: "name that key in QUEEN_ENCRYPTION_OLD_KEYS "
				  "of every queend",
			queue, part, PQgetvalue(r, i, 5));
		doctor_find(d, DOCTOR_ERROR, fix,
			"queue %.80s, partition %.80s: the message at offset "
			"%s is sealed with key id %s, %s; consumers do not "
			"get past it",
			queue, part, PQgetvalue(r, i, 3), PQgetvalue(r, i, 2),
			damaged ? "but does not open with it"
				: "which a queend does not have");
	}
	PQclear(r);
}

static void
check_connectors(struct doctor *d)
{
	PGresult *r = doctor_ask(d, "the connectors",
		"select name, kind, code, message "
		"from queen.doctor_connectors_v1()",
		NULL);
	char fix[160];

	for (int i = 0; r && i < PQntuples(r); i++) {
		const char *name = PQgetvalue(r, i, 0);
		bool sink = strcmp(PQgetvalue(r, i, 1), "sink") == 0;

		if (PQgetisnull(r, i, 2)) {
			snprintf(fix, sizeof(fix),
				"start %s on a node, or look into its log",
				sink ? "queen-pgsink" : "queen-pgsrc");
			doctor_find(d, DOCTOR_WARN, fix,
				"connector %.60s is reported by no node", name);
			continue;
		}
		snprintf(fix, sizeof(fix),
			"as it says; then: queenctl connector status %.60s",
			name);
		doctor_find(d, DOCTOR_ERROR, fix, "connector %.60s: %s: %s",
			name, PQgetvalue(r, i, 2), PQgetvalue(r, i, 3));
	}
	PQclear(r);
}

static void
check_lake(struct doctor *d)
{
	char sql[160], age[SPAN_TEXT];
	PGresult *r;

	snprintf(sql, sizeof(sql),
		"select sink, queue, holder, moved, age_s "
		"from queen.doctor_lake_v1(%d)",
		UNSHIPPED_S);
	r = doctor_ask(d, "the queues of queen-s3", sql, NULL);
	for (int i = 0; r && i < PQntuples(r); i++) {
		const char *fix = "look into /status of the node that has it";

		if (strcmp(PQgetvalue(r, i, 3), "t") == 0)
			fix = "its pointer is of another cell: queenctl s3 "
			      "resume";
		else if (PQgetisnull(r, i, 2))
			fix = "start queen-s3 on a node, or look into its log";
		doctor_find(d, DOCTOR_WARN, fix,
			"queue %.80s is %s behind in the lake (sink %.64s, %s)",
			PQgetvalue(r, i, 1), ago(PQgetvalue(r, i, 4), age),
			PQgetvalue(r, i, 0),
			PQgetisnull(r, i, 2) ? "no node has it"
					     : PQgetvalue(r, i, 2));
	}
	PQclear(r);
}

void
doctor_cell(struct doctor *d)
{
	if (!check_schema(d))
		return;
	check_lag(d);
	check_leases(d);
	check_claims(d);
	check_dead(d);
	check_sealed(d);
	check_connectors(d);
	check_lake(d);
	doctor_ojs(d);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the examination found.  A finding says what is wrong and what to do
 * about it.
 */
#ifndef QUEENCTL_DOCTOR_H
#define QUEENCTL_DOCTOR_H

#include <libpq-fe.h>
#include <stdint.h>

enum doctor_level { DOCTOR_INFO, DOCTOR_WARN, DOCTOR_ERROR };

struct doctor_finding {
	enum doctor_level level;
	char *what, *fix;	/* fix NULL for an info */
};

struct doctor {
	struct doctor_finding *list;
	int n, checks;
	PGconn *pg;
	int64_t max_lag_s;
};

void doctor_fini(struct doctor *d);
/* Adds a finding; what is a format of what follows fix. */
void doctor_find(struct doctor *d, enum doctor_level level, const char *fix,
	const char *what, ...) __attribute__((format(printf, 4, 5)));
enum doctor_level doctor_worst(const struct doctor *d);
/* Rows of a query, or NULL after a finding about its failure. */
PGresult *doctor_ask(struct doctor *d, const char *what, const char *sql,
	const char *param);

/* doctor_server.c: the server and its settings */
void doctor_server(struct doctor *d);
/* doctor_cell.c: the schema and what is in it */
void doctor_cell(struct doctor *d);
/* doctor_ojs.c: of doctor_cell, jobs and streams */
void doctor_ojs(struct doctor *d);

#endif

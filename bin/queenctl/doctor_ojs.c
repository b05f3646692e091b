/* SPDX-License-Identifier: Apache-2.0 */
/* Jobs and streams of queen-ojs: what nobody does, and who holds a log. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "doctor.h"
#include "timearg.h"

enum { OVERDUE_S = 60, SPAN_TEXT = 32 };

enum { KIND, QUEUE, DETAIL, AGE };

static void
pinned(struct doctor *d, const PGresult *r, int row, const char *age)
{
	const char *queue = PQgetvalue(r, row, QUEUE);
	const char *consumer = PQgetvalue(r, row, DETAIL);
	char fix[400];

	snprintf(fix, sizeof(fix),
		"let it receive, or give up what it has not read: queenctl "
		"stream unsubscribe %.128s %.128s --yes",
		queue, consumer);
	doctor_find(d, DOCTOR_WARN, fix,
		"the stream of queue %.128s is held by consumer %.128s: what "
		"it has not read for %s is kept",
		queue, consumer, age);
}

void
doctor_ojs(struct doctor *d)
{
	char sql[120], age[SPAN_TEXT];
	PGresult *r;

	snprintf(sql, sizeof(sql),
		"select kind, queue, detail, age_s "
		"from queen.doctor_ojs_v1(%d)",
		OVERDUE_S);
	r = doctor_ask(d, "the queues of queen-ojs", sql, NULL);
	for (int i = 0; r && i < PQntuples(r); i++) {
		const char *kind = PQgetvalue(r, i, KIND);

		timearg_span(
			strtod(PQgetvalue(r, i, AGE), NULL), age, SPAN_TEXT);
		if (strcmp(kind, "restored") == 0)
			doctor_find(d, DOCTOR_ERROR,
				"queenctl schema rebase-streams",
				"the stream of queue %.128s was restored into "
				"another server: it is not served",
				PQgetvalue(r, i, QUEUE));
		else if (strcmp(kind, "missing") == 0)
			doctor_find(d, DOCTOR_ERROR,
				"restore it too, or drop the queue",
				"the stream of queue %.128s is not served: "
				"its schema is missing",
				PQgetvalue(r, i, QUEUE));
		else if (strcmp(kind, "pinned") == 0)
			pinned(d, r, i, age);
		else
			doctor_find(d, DOCTOR_WARN,
				"start a queen-ojs, or look into its log",
				"%s of queen-ojs are due since %s: nobody "
				"does it",
				PQgetvalue(r, i, DETAIL), age);
	}
	PQclear(r);
}

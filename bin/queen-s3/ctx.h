/* SPDX-License-Identifier: Apache-2.0 */
/* What the parts of one process and of one sink share; all borrowed. */
#ifndef QUEEN_S3_CTX_H
#define QUEEN_S3_CTX_H

#include <stdbool.h>
#include <stdint.h>

#include "qid.h"
#include "s3conf.h"

/* Not named in logs and metrics. */
#define CTX_TENANT_DEFAULT "00000000-0000-0000-0000-000000000001"

struct budget;
struct cell;
struct loop;
struct place;
struct s3;
struct s3_counts;
struct seal;
struct settings;

/* Of the process. */
struct ctx {
	struct loop *loop;
	struct settings *conf;
	const struct seal *seal;
	struct cell *cell;
	struct budget *budget;
	char cell_tag[13];
	const char *pg_text;		/* where the cell is, without a password */
};

/* Of one sink: what its queues need. */
struct sink_ctx {
	struct ctx *x;
	const struct s3conf *conf;
	struct qid tenant;
	char tenant_text[QID_TEXT_MAX];
	/* `tenant=ID ` in front of what is logged; the default's: nothing */
	char log_tenant[sizeof("tenant= ") + QID_TEXT_MAX];
	bool env; /* the sink of the environment */
	struct s3 *s3;
	struct s3_counts *requests;
	struct place *place;
};

#endif

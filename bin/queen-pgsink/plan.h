/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a sink does to its target: the table's facts, checked against the
 * document.  Pure: setup.h reads the facts.
 */
#ifndef QUEEN_PGSINK_PLAN_H
#define QUEEN_PGSINK_PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "arena.h"
#include "buf.h"
#include "conndoc.h"
#include "map.h"
#include "span.h"

struct connfault;

enum { PLAN_PARAMS_MAX = 1000 };

struct plan_column {
	/* facts */
	struct span name;
	struct span type;	/* format_type, ready for SQL */
	bool generated;		/* never written */
	bool identity_always;	/* left out of SET lists */
	/* of the plan; no business of who reads facts */
	bool is_key;		/* of the sink's key */
	bool verbatim;		/* its JSON comes as text, not as a value */
	struct span json_key;	/* `"name":` */
};

/* One step of the paths that are parameters: what is below, what ends here. */
struct plan_path {
	const struct conndoc_step *step;	/* NULL: the payload itself */
	struct plan_path **below;
	size_t below_n;
	size_t *params, params_n;
	size_t below_cap, params_cap;
};

struct plan {
	struct arena arena;
	const struct conndoc_sink *doc;	/* borrowed */
	uint32_t oid;
	int64_t size_bytes;		/* of the table, when it was read */
	struct plan_column *columns;	/* live ones, in table order */
	size_t columns_n;
	struct map by_name;
	size_t *key, key_n;		/* column numbers, in key order */
	bool key_is_identity;		/* one of them is identity_always */
	/* column number of each metadata column, or -1 */
	int metadata[CONNDOC_METAS];
	struct conndoc_param *params;	/* sql */
	size_t params_n;
	struct plan_path paths;
	struct plan_scratch *scratch;
};

/* What an op needs while it is made; of no meaning between two. */
struct plan_scratch {
	struct span *values;		/* one per column */
	struct buf json;
};

/*
 * The facts, as setup reads them: live columns (attisdropped false) in table
 * order; key: the columns of the primary key, else of the replica identity
 * index, in its order; none: key_n = 0.  All is copied.
 */
struct plan_facts {
	uint32_t oid;
	int64_t size_bytes;
	const struct plan_column *columns;
	size_t columns_n;
	const struct span *key;
	size_t key_n;
};
/*
 * table_missing is the caller's; here no_key, metadata_column, statement.
 * doc must outlive the plan.
 */
int plan_make(const struct conndoc_sink *doc, const struct plan_facts *facts,
	struct plan **out, struct connfault *f)
	__attribute__((warn_unused_result));
void plan_free(struct plan *p);
/* Same columns and key: statements prepared for one fit the other. */
bool plan_same(const struct plan *a, const struct plan *b);
/*
 * The table grew so much that the server's plans for the old one may be wrong:
 * it keeps one that walks a small table, until somebody analyzes it.
 */
bool plan_outgrown(const struct plan *old, const struct plan *now);
/* The number of the column of exactly that name; -1 when there is none. */
int plan_column(const struct plan *p, struct span name);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a sink does to its target: the table's facts, checked against the
 * document.  Pure: setup.h reads the facts.
 */
#ifndef PGSINK_PLAN_H
#define PGSINK_PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "arena.h"
#include "conndoc.h"
#include "span.h"

struct connfault;

struct plan_column {
	struct span name;
	struct span type;	/* format_type, ready for SQL */
	bool generated;		/* never written */
	bool identity_always;	/* left out of SET lists */
	bool has_default, not_null;
	bool is_key;		/* of the sink's key */
};

struct plan {
	struct arena arena;
	const struct conndoc_sink *doc;	/* borrowed */
	uint32_t oid;
	struct plan_column *columns;	/* live ones, in table order */
	size_t columns_n;
	size_t *key, key_n;		/* column numbers, in key order */
	/* column number of each metadata column, or -1 */
	int metadata[CONNDOC_METAS];
	struct conndoc_param *params;	/* sql */
	size_t params_n;
};

/* The facts, as setup reads them; key_*: primary key, else identity index. */
struct plan_facts {
	uint32_t oid;
	const struct plan_column *columns;
	size_t columns_n;
	const struct span *key;
	size_t key_n;
};
/* table_missing is the caller's; no_key, metadata_column, statement. */
int plan_make(const struct conndoc_sink *doc, const struct plan_facts *facts,
	struct plan **out, struct connfault *f);
void plan_free(struct plan *p);
/* Same columns and key: statements prepared for one fit the other. */
bool plan_same(const struct plan *a, const struct plan *b);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* A pipeline of two tables, what is fed to it, and what it queued. */
#ifndef QUEEN_TEST_PIPELINE_FIX_H
#define QUEEN_TEST_PIPELINE_FIX_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "err.h"
#include "pgwire.h"
#include "pipeline.h"
#include "shape.h"

enum { ORDERS = 100, LINES = 101, OTHER = 102 };

static const struct span key_id[] = { { "id", 2 } };
static struct shape_table tables[] = {
	{ .schema = { "public", 6 },
		.name = { "orders", 6 },
		.label = { "public.orders", 13 },
		.queue = { "orders", 6 },
		.key = key_id,
		.key_n = 1 },
	{ .schema = { "public", 6 },
		.name = { "lines", 5 },
		.label = { "public.lines", 12 },
		.queue = { "lines", 5 },
		.key = key_id,
		.key_n = 1 },
};
static const char *const columns[] = { "*id", "v" };
static const uint32_t oids[] = { 20, 25 };

static struct pipeline_conf conf;
static struct pipeline p;
static struct buf wire, out;
static struct pipeline_ask ask;
static struct err e;
static struct shape *orders_shape;
static uint64_t first_chunk = 41;

#define POINTER(rest)                                                          \
	"{\"v\":1,\"epoch\":\"7be01c4d\",\"systemId\":\"1\",\"slot\":\"s\","   \
	"\"lsn\":\"0/64\"" rest "}"
#define COPY(table, after)                                                     \
	",\"snapshot\":{\"tables\":[\"public.orders\",\"public.gone\","        \
	"\"public.lines\"],\"table\":\"" table "\",\"after\":" after           \
	",\"rows\":5}"

static inline void
start(const char *json)
{
	struct pointer at;

	if (pointer_parse(span_of(json), &at, &e) != 0)
		fail_msg("%s", e.text);
	pipeline_init(&p, &conf, &at, first_chunk);
	pointer_fini(&at);
}

static inline int
setup(void **state)
{
	(void)state;
	conf = (struct pipeline_conf){ .tables = tables,
		.tables_n = 2,
		.limits = { 3, 100000, 20 },
		.chunk_rows = 4 };
	tables[0].by = tables[1].by = SHAPE_BY_KEY;
	tables[1].queue = SPAN_LIT("lines");
	e = (struct err)ERR_ZERO;
	return 0;
}

static inline int
teardown(void **state)
{
	(void)state;
	pipeline_fini(&p);
	shape_free(orders_shape);
	orders_shape = NULL;
	buf_fini(&wire);
	buf_fini(&out);
	return 0;
}

static inline enum pipeline_result
feed(void)
{
	return pipeline_feed(&p, buf_span(&wire), 1000, &ask, &e);
}

static inline void
feed_ok(void)
{
	if (feed() != PIPELINE_OK)
		fail_msg("%s", e.text);
}

static inline void
describe(uint32_t oid, const char *name)
{
	wire_relation(&wire, oid, "public", name, 'd', columns, oids, 2);
	feed_ok();
}

static inline void
begin(uint64_t lsn, uint32_t xid)
{
	wire_begin(&wire, lsn, 0, xid);
	feed_ok();
}

/* Commits end one byte behind their record here. */
static inline void
commit(uint64_t lsn)
{
	wire_commit(&wire, lsn, lsn + 1);
	feed_ok();
}

static inline void
insert(uint32_t oid, const char *id)
{
	wire_insert(&wire, oid, id, "x", WIRE_END);
	feed_ok();
}

static inline void
mark(uint64_t lsn, const char *content)
{
	wire_message(&wire, false, lsn, "queen:7be01c4d", content);
	feed_ok();
}

/*
 * The queue in short: per unit the ids of its messages behind `pg:<epoch>:`
 * and LSN zeroes, then its cover.
 */
static inline const char *
queued(void)
{
	const struct unit *u;

	buf_reset(&out);
	TAILQ_FOREACH (u, &p.queue.list, link) {
		const struct pointer_place *at = &u->cover;

		for (size_t i = 0; i < u->n; i++) {
			struct message m = unit_message(u, i);
			const char *id = m.id.p + 12;
			bool copy = *id == 's';

			buf_printf(&out, "%.*s/%.*s:%s%.*s ", SPAN_ARG(m.queue),
				SPAN_ARG(m.partition), copy ? "s" : "",
				(int)(m.id.n - 12 - 14 - (copy ? 2 : 0)),
				id + 14 + (copy ? 2 : 0));
		}
		buf_printf(&out, "@%x", (unsigned)at->lsn);
		if (at->in_txn)
			buf_printf(&out, "+%x:%u", (unsigned)at->txn_commit_lsn,
				(unsigned)at->txn_done);
		if (at->in_snapshot)
			buf_printf(&out, " t%zu>%.*s=%u", at->table,
				at->has_after ? (int)at->after.n : 1,
				at->has_after ? at->after.p : "-",
				(unsigned)at->rows);
		buf_puts(&out, u->forced ? "!;" : ";");
	}
	buf_putc(&out, '\0');
	return out.p;
}

static inline bool
holds(const struct message *m, const char *text)
{
	return memmem(m->payload.p, m->payload.n, text, strlen(text)) != NULL;
}

#endif

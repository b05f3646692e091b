/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The copy of a run: one thing at a time on the SQL link.  First it waits for
 * what nobody remembers to be visible, then each table is described at its
 * first chunk, then chunk by chunk is read while the stream goes on.
 */
#include <inttypes.h>
#include <stdlib.h>

#include "backoff.h"
#include "chunk.h"
#include "clk.h"
#include "err.h"
#include "lookup.h"
#include "pgtext.h"
#include "shape.h"
#include "stream_int.h"
#include "wal.h"

enum { LOOK_FIRST_MS = 20, LOOK_MAX_MS = 1000 };

static void
fail_io(struct stream *s, const struct err *e)
{
	struct connfault f;

	connfault_set(&f, "io", true, "%s", e->text);
	stream_fail(s, &f);
}

/* ---- before the first chunk ---- */

static void
on_xid(void *arg, PGresult *const *res, int n, const struct connfault *why)
{
	struct stream *s = arg;
	struct snapshot *p = &s->pipeline.snapshot;
	uint64_t lsn;

	s->looking = false;
	if (why || n != 1) {
		if (why)
			stream_fail_sql(s, why);
		return;
	}
	if (wal_lsn_parse(pgtext_get(res[0], 0, 1), &lsn) &&
		!s->pipeline.found_lsn)
		pipeline_found_at(&s->pipeline, lsn);
	if (p->waits == s->looking_waits)
		snapshot_wait(p, (uint64_t)pgtext_i64(res[0], 0, 0));
	s->look_ms = LOOK_FIRST_MS;
	stream_step(s);
}

static void
on_looked(void *arg, PGresult *const *res, int n, const struct connfault *why)
{
	struct stream *s = arg;
	struct snapshot *p = &s->pipeline.snapshot;
	struct err e = ERR_ZERO;

	s->looking = false;
	if (why || n != 1) {
		if (why)
			stream_fail_sql(s, why);
		return;
	}
	if (p->waits == s->looking_waits &&
		snapshot_look(p, pgtext_get(res[0], 0, 0), &e) != 0) {
		fail_io(s, &e);
		return;
	}
	if (snapshot_must_wait(p)) {
		loop_timer_start(&s->look, s->look_ms);
		s->look_ms =
			backoff_next_ms(s->look_ms, LOOK_FIRST_MS, LOOK_MAX_MS);
	}
	stream_step(s);
}

static void
look(struct stream *s)
{
	struct snapshot *p = &s->pipeline.snapshot;

	if (s->looking || loop_timer_pending(&s->look))
		return;
	s->looking = true;
	s->looking_waits = p->waits;
	buf_puts(&s->sql, p->wait_xid == 0
				  ? "select pg_catalog.pg_current_xact_id(), "
				    "pg_catalog.pg_current_wal_insert_lsn()"
				  : "select pg_catalog.pg_current_snapshot()");
	stream_query(s, p->wait_xid == 0 ? on_xid : on_looked);
}

void
stream_on_look(void *arg)
{
	stream_step(arg);
}

/* ---- describing ---- */

static void make_shape(struct stream *s);

static void
on_type(void *arg, PGresult *const *res, int n, const struct connfault *why)
{
	struct stream *s = arg;

	if (stream_learn(s, s->ask_oid, res, n, why))
		make_shape(s);
}

static void
make_shape(struct stream *s)
{
	struct stream_table *t = &s->tables[s->reading_table];
	struct err e = ERR_ZERO;
	struct connfault f;

	switch (chunk_shape(s->described, &s->found->tables[s->reading_table],
		&s->pipeline.types, &t->shape, &t->oids, &s->found->arena,
		&s->ask_oid, &e)) {
	case SHAPE_ASK:
		lookup_type_sql(&s->sql, s->ask_oid);
		stream_query(s, on_type);
		return;
	case SHAPE_CHANGED:
		connfault_set(&f, "relation_changed", true, "%s", e.text);
		stream_fail(s, &f);
		return;
	case SHAPE_OK:
		break;
	}
	PQclear(s->described);
	s->described = NULL;
	s->reading = false;
	stream_step(s);
}

static void
on_described(
	void *arg, PGresult *const *res, int n, const struct connfault *why)
{
	struct stream *s = arg;

	if (why || n != 1) {
		if (why)
			stream_fail_sql(s, why);
		return;
	}
	s->described = PQcopyResult(res[0], PG_COPYRES_ATTRS);
	BUG(!s->described);
	make_shape(s);
}

static void
describe(struct stream *s, size_t table)
{
	s->reading = true;
	s->reading_table = table;
	chunk_describe_sql(
		&s->sql, &s->found->tables[table], &s->found->about[table]);
	stream_query(s, on_described);
}

/* ---- reading ---- */

static void
on_chunk(void *arg, PGresult *const *res, int n, const struct connfault *why)
{
	struct stream *s = arg;
	struct snapshot *p = &s->pipeline.snapshot;
	struct err e = ERR_ZERO;

	s->reading = false;
	if (why) {
		stream_fail_sql(s, why);
		return;
	}
	/* it may have been given up meanwhile */
	if (p->chunk && p->chunk->n == s->reading_n &&
		chunk_install(p, res, n, s->tables[s->reading_table].oids,
			clk_wall_us(), &e) != 0) {
		if (e.kind == ERR_DB_DATA && s->state == STREAM_RUNS)
			stream_restart(s);
		else
			fail_io(s, &e);
		return;
	}
	if (s->waiting && s->asked == PIPELINE_ASK_CHUNK)
		stream_answered(s);
	else
		stream_step(s);
}

static void
read_chunk(struct stream *s, size_t table, const struct pipeline_chunk *c)
{
	const struct start_found *f = s->found;
	const char *epoch = s->pipeline.pointer.epoch;
	char mark[32];

	s->reading = true;
	s->reading_table = table;
	s->reading_n = snapshot_ask(&s->pipeline.snapshot, c->run_table,
		s->tables[table].shape, c->limit_rows);
	snprintf(mark, sizeof(mark), "lw:%" PRIu64, s->reading_n);
	chunk_mark_sql(&s->sql, epoch, mark, false, f->server_version);
	stream_query(s, NULL);
	chunk_read_sql(&s->sql, c->table, &f->about[table], c, epoch,
		s->reading_n, f->server_version);
	stream_query(s, on_chunk);
}

void
stream_copy(struct stream *s)
{
	struct pipeline *p = &s->pipeline;
	struct pipeline_chunk c;
	size_t table;

	if (!p->tail.in_snapshot || s->reading)
		return;
	if (snapshot_must_wait(&p->snapshot)) {
		look(s);
		return;
	}
	if (!pipeline_next_chunk(p, &c))
		return;
	table = (size_t)(c.table - s->found->tables);
	if (!s->tables[table].shape)
		describe(s, table);
	else
		read_chunk(s, table, &c);
}

void
stream_copy_fini(struct stream *s)
{
	for (size_t i = 0; i < s->found->tables_n; i++)
		shape_free(s->tables[i].shape);
	free(s->tables);
	PQclear(s->described);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A stream of any bytes: frames of two length bytes each, fed to a pipeline
 * that copies a table meanwhile.  It may refuse, never crash; what reaches
 * the queue is JSON, and the position never goes back.
 */
#include <stdint.h>
#include <stdlib.h>

#include "err.h"
#include "jspan.h"
#include "pipeline.h"
#include "shape.h"
#include "wal.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct span key[] = { { "id", 2 } };
static const struct shape_table tables[] = {
	{ .schema = { "s", 1 },
		.name = { "a", 1 },
		.label = { "s.a", 3 },
		.queue = { "qa", 2 },
		.key = key,
		.key_n = 1 },
	{ .schema = { "s", 1 },
		.name = { "b", 1 },
		.label = { "s.b", 3 },
		.queue = { "qb", 2 },
		.by = SHAPE_BY_NOTHING,
		.key = key,
		.key_n = 1 },
};
static const struct pipeline_conf conf = { .tables = tables,
	.tables_n = 2,
	.limits = { 3, 2000, 20 },
	.chunk_rows = 2,
	.emit_truncate = true };

/* A chunk of two rows of a shape as the catalogue would give it. */
static struct shape *
ask_chunk(struct pipeline *p)
{
	struct pgoutput_column columns[2] = {
		{ .name = key[0], .type_oid = 20, .key = true },
		{ .name = { "v", 1 }, .type_oid = 25 }
	};
	struct pgoutput_relation r = {
		.identity = 'd', .columns = columns, .n = 2
	};
	struct datum d[2] = { { .state = DATUM_TEXT },
		{ .state = DATUM_TEXT, .text = { "w", 1 } } };
	struct pipeline_chunk c;
	struct err e = ERR_ZERO;
	struct shape *s = NULL;
	uint32_t oid;

	if (!pipeline_next_chunk(p, &c))
		return NULL;
	if (shape_new(c.table, &r, &p->types, &s, &oid, &e) != SHAPE_OK)
		abort();
	snapshot_ask(&p->snapshot, c.run_table, s, c.limit_rows);
	for (int i = 1; i <= 2; i++) {
		d[0].text = span_make(i == 1 ? "1" : "2", 1);
		snapshot_row(&p->snapshot, &(struct tuple){ d, 2 });
	}
	if (snapshot_install(&p->snapshot, SPAN_LIT("5:9:7"), 0, &e) != 0)
		abort();
	return s;
}

static bool
feed(struct pipeline *p, struct span data)
{
	struct pipeline_ask ask;
	struct err e = ERR_ZERO;
	enum pipeline_result rc = pipeline_feed(p, data, 0, &ask, &e);
	int asked = 0;

	while (rc == PIPELINE_ASK_TYPE || rc == PIPELINE_ASK_ROW) {
		struct types_row row = { .oid = ask.type_oid };

		if (++asked > 5000)
			abort();
		if (rc == PIPELINE_ASK_TYPE)
			types_learn(&p->types, &row);
		rc = pipeline_resume(p, 0, &ask, &e);
	}
	return rc == PIPELINE_OK;
}

static void
check_queue(struct pipeline *p)
{
	uint64_t lsn = p->pointer.place.lsn;
	const struct unit *u;

	TAILQ_FOREACH (u, &p->queue.list, link) {
		if (u->cover.lsn < lsn)
			abort();
		lsn = u->cover.lsn;
		for (size_t i = 0; i < u->n; i++) {
			struct message m = unit_message(u, i);
			const char *what;
			size_t at;

			if (!jspan_valid(m.payload, &what, &at) ||
				m.partition.n > SHAPE_PARTITION_MAX)
				abort();
		}
	}
	if (lsn != p->tail.lsn)
		abort();
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const char start[] =
		"{\"v\":1,\"epoch\":\"00000000\",\"systemId\":\"1\","
		"\"slot\":\"s\",\"lsn\":\"0/10\",\"snapshot\":{\"tables\":"
		"[\"s.a\",\"s.b\"],\"table\":\"s.a\",\"after\":null,"
		"\"rows\":0}}";
	struct pointer at;
	struct shape *shape;
	struct err e = ERR_ZERO;
	struct pipeline p;
	struct wal_frame f;

	if (wal_frame_parse(span_make(data, size), &f, &e) == 0 &&
		f.data.n > size)
		abort();
	if (pointer_parse(SPAN_LIT(start), &at, &e) != 0)
		abort();
	pipeline_init(&p, &conf, &at, 0);
	pointer_fini(&at);
	shape = ask_chunk(&p);
	while (size >= 2) {
		size_t n = (size_t)data[0] << 8 | data[1];

		data += 2;
		size -= 2;
		if (n > size)
			n = size;
		if (!feed(&p, span_make(data, n)))
			break;
		data += n;
		size -= n;
	}
	check_queue(&p);
	pipeline_fini(&p);
	shape_free(shape);
	return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fills the catalogue from the database.  Each kind of question is a line:
 * loads wait in it, and when no call of the kind is in flight the next call
 * takes everything that waits, up to a cap.  A load ends with one callback.
 */
#include <stdlib.h>
#include <string.h>

#include "announce.h"
#include "catalog_int.h"
#include "count.h"
#include "err.h"
#include "pgpool.h"

enum {
	LOAD_ITEMS_MAX = 2000, /* names in one call, about */
	LOAD_RETRY_MS = 3, /* another session creates the name */
	SCAN_PAGE = 1000,
	SCAN_SLACK_US = 5000000, /* a commit may show up this late */
	SCAN_OVERLAP_US = 120000000,
	SCAN_OVERLAP_EVERY_MS = 30000,
};

static const struct pgstmt STMT_QUEUES = { "queue_resolve",
	"select ord, id, created, namespace, task, lease_time_s, "
	"delayed_processing_s, window_buffer_s, min_pop_wait_ms, "
	"dedup_window_s, encryption_enabled, changed_at "
	"from queen.queue_resolve_v1($1, $2, $3)" };
static const struct pgstmt STMT_SCAN = { "queue_scan",
	"select id, tenant, name, namespace, task, lease_time_s, "
	"delayed_processing_s, window_buffer_s, min_pop_wait_ms, "
	"dedup_window_s, encryption_enabled, changed_at, deleted "
	"from queen.queue_scan_v1($1, $2, $3)" };
static const struct pgstmt STMT_ENSURE = { "partitions_ensure",
	"select ord, verdict, id from queen.partitions_ensure_v1($1, $2, $3)" };
static const struct pgstmt STMT_FIND = { "partitions_find",
	"select ord, id from queen.partitions_find_v1($1, $2, $3)" };
static const struct pgstmt STMT_NAMES = { "partitions_names",
	"select id, queue_id, queue, name "
	"from queen.partitions_names_v1($1, $2)" };
static const struct pgstmt STMT_GROUPS = { "groups_find",
	"select ord, id, conflated from queen.groups_find_v1($1, $2, $3)" };
static const struct pgstmt STMT_REGISTER = { "group_register",
	"select ord, verdict, id, conflated "
	"from queen.group_register_v1($1, $2, $3, $4, $5, $6)" };

/* Verdicts of partitions_ensure_v1 and group_register_v1. */
enum { VERDICT_THERE, VERDICT_CREATED, VERDICT_BUSY, VERDICT_GONE };

struct catalog_load {
	struct catalog_load *next;
	struct qid tenant;
	bool create;
	size_t n;
	struct cat_queue **queues; /* NULL for queues and ids */
	const struct span *names; /* borrowed arrays, see catalog.h */
	int64_t *ids;
	/* registering: one name for all queues */
	struct span group;
	const char *mode;
	int64_t from_us;
	bool conflated;
	bool again; /* a creator was busy: stays in line */
	catalog_fn done;
	void *arg;
};

static void line_fire(struct catalog_line *line);

static enum catalog_ask
line_ask(const struct catalog_line *line)
{
	return (enum catalog_ask)(line - line->catalog->lines);
}

static void
load_free(struct catalog_load *l)
{
	free(l->queues);
	free(l->ids);
	free(l);
}

static void
line_append(struct catalog_line *line, struct catalog_load *l)
{
	l->next = NULL;
	*line->last = l;
	line->last = &l->next;
}

static void
line_later(void *arg)
{
	struct catalog_line *line = arg;

	line->stalled = false;
	line_fire(line);
}

/* Ends every load of the call; busy ones go back into the line. */
static void
line_finish(struct catalog_line *line, const struct err *e)
{
	struct catalog_load *l = line->flying, *next;

	line->flying = NULL;
	for (; l; l = next) {
		next = l->next;
		if (!e && l->again) {
			l->again = false;
			line_append(line, l);
			line->stalled = true;
			continue;
		}
		l->done(l->arg, e);
		load_free(l);
	}
	if (line->stalled)
		loop_timer_start(&line->retry, LOAD_RETRY_MS);
	else
		line_fire(line);
}

/* The load and index in it of the n-th item of the call. */
static struct catalog_load *
flying_at(struct catalog_line *line, int32_t ord, size_t *index)
{
	struct catalog_load *l = line->flying;
	size_t at = (size_t)ord - 1;

	for (; l && at >= l->n; l = l->next)
		at -= l->n;
	*index = at;
	return l;
}

static void
read_queue_options(
	const PGresult *res, int row, int col, struct catalog_queue_row *q)
{
	q->namespace_name = pgbin_bytes(res, row, col);
	q->task = pgbin_bytes(res, row, col + 1);
	q->lease_time_s = pgbin_i32(res, row, col + 2);
	q->delayed_processing_s = pgbin_i32(res, row, col + 3);
	q->window_buffer_s = pgbin_i32(res, row, col + 4);
	q->min_pop_wait_ms = pgbin_i32(res, row, col + 5);
	q->dedup_window_s = pgbin_i32(res, row, col + 6);
	q->encrypted = pgbin_bool(res, row, col + 7);
	q->changed_at_us = pgbin_time(res, row, col + 8);
}

static void
on_queues(struct catalog_line *line, const PGresult *res)
{
	struct catalog *c = line->catalog;

	for (int i = 0; i < PQntuples(res); i++) {
		size_t at;
		struct catalog_load *l =
			flying_at(line, pgbin_i32(res, i, 0), &at);
		struct catalog_queue_row row = { .tenant = l->tenant,
			.id = pgbin_i64(res, i, 1),
			.name = l->names[at] };

		read_queue_options(res, i, 3, &row);
		catalog_put_queue(c, &row);
		if (pgbin_bool(res, i, 2))
			announce_catalog(c->x, row.id);
	}
}

static void
on_ensured(struct catalog_line *line, const PGresult *res)
{
	struct catalog *c = line->catalog;

	for (int i = 0; i < PQntuples(res); i++) {
		size_t at;
		struct catalog_load *l =
			flying_at(line, pgbin_i32(res, i, 0), &at);
		int32_t verdict = pgbin_i32(res, i, 1);

		switch (verdict) {
		case VERDICT_BUSY:
			l->again = true;
			break;
		case VERDICT_GONE:
			catalog_forget_queue(c, l->queues[at]->id);
			break;
		default:
			if (verdict == VERDICT_CREATED)
				count_partitions(c->x, l->queues[at]->id, 1, 0);
			if (!l->queues[at]->gone)
				catalog_put_part(c, l->queues[at],
					pgbin_i64(res, i, 2), l->names[at]);
		}
	}
}

static void
on_found(struct catalog_line *line, const PGresult *res)
{
	for (int i = 0; i < PQntuples(res); i++) {
		size_t at;
		struct catalog_load *l =
			flying_at(line, pgbin_i32(res, i, 0), &at);

		if (!l->queues[at]->gone)
			catalog_put_part(line->catalog, l->queues[at],
				pgbin_i64(res, i, 1), l->names[at]);
	}
}

/* A queue the scan has not brought yet is named by id; it comes soon. */
static void
on_named(struct catalog_line *line, const PGresult *res)
{
	struct catalog *c = line->catalog;

	for (int i = 0; i < PQntuples(res); i++) {
		struct cat_queue *q =
			catalog_queue_by_id(c, pgbin_i64(res, i, 1));

		if (!q) {
			struct catalog_queue_row row = {
				.id = pgbin_i64(res, i, 1),
				.tenant = line->flying->tenant,
				.name = pgbin_bytes(res, i, 2),
				.lease_time_s = 60,
				.changed_at_us = INT64_MIN,
			};

			q = catalog_put_queue(c, &row);
			catalog_refresh(c);
		}
		catalog_put_part(
			c, q, pgbin_i64(res, i, 0), pgbin_bytes(res, i, 3));
	}
}

static void
on_groups(struct catalog_line *line, const PGresult *res)
{
	for (int i = 0; i < PQntuples(res); i++) {
		size_t at;
		struct catalog_load *l =
			flying_at(line, pgbin_i32(res, i, 0), &at);

		if (!l->queues[at]->gone)
			catalog_put_group(line->catalog, l->queues[at],
				pgbin_i64(res, i, 1), l->names[at],
				pgbin_bool(res, i, 2));
	}
}

static void
on_registered(struct catalog_line *line, const PGresult *res)
{
	for (int i = 0; i < PQntuples(res); i++) {
		size_t at;
		struct catalog_load *l =
			flying_at(line, pgbin_i32(res, i, 0), &at);
		int32_t verdict = pgbin_i32(res, i, 1);
		struct cat_queue *q = l->queues[at];

		if (verdict == VERDICT_BUSY)
			l->again = true;
		else if (verdict == VERDICT_GONE)
			catalog_forget_queue(line->catalog, q->id);
		else if (!q->gone)
			catalog_put_group(line->catalog, q,
				pgbin_i64(res, i, 2), l->group,
				pgbin_bool(res, i, 3));
	}
}

static void
on_answer(void *arg, const PGresult *res, const struct err *e)
{
	struct catalog_line *line = arg;

	if (!e) {
		switch (line_ask(line)) {
		case CATALOG_ASK_QUEUES:
			on_queues(line, res);
			break;
		case CATALOG_ASK_PARTS:
			if (line->flying->create)
				on_ensured(line, res);
			else
				on_found(line, res);
			break;
		case CATALOG_ASK_PARTS_BY_ID:
			on_named(line, res);
			break;
		case CATALOG_ASK_GROUPS:
			on_groups(line, res);
			break;
		case CATALOG_ASK_REGISTER:
			on_registered(line, res);
			break;
		case CATALOG_ASKS:
			break;
		}
	}
	line_finish(line, e);
}

/* ---- building the call ---- */

static void
put_queue_ids(struct pgargs *a, const struct catalog_load *first)
{
	pgargs_array(a, PGARGS_I64);
	for (const struct catalog_load *l = first; l; l = l->next)
		for (size_t i = 0; i < l->n; i++)
			pgargs_item_i64(a, l->queues[i]->id);
	pgargs_close(a);
}

static void
put_names(struct pgargs *a, const struct catalog_load *first)
{
	pgargs_array(a, PGARGS_TEXT);
	for (const struct catalog_load *l = first; l; l = l->next)
		for (size_t i = 0; i < l->n; i++)
			pgargs_item_text(a, l->names ? l->names[i] : l->group);
	pgargs_close(a);
}

static void
put_registration(struct pgargs *a, const struct catalog_load *first)
{
	const struct catalog_load *l;

	pgargs_array(a, PGARGS_TEXT);
	for (l = first; l; l = l->next)
		for (size_t i = 0; i < l->n; i++)
			pgargs_item_text(a, span_of(l->mode));
	pgargs_close(a);
	pgargs_array(a, PGARGS_TIMESTAMPTZ);
	for (l = first; l; l = l->next)
		for (size_t i = 0; i < l->n; i++) {
			if (strcmp(l->mode, "timestamp") == 0)
				pgargs_item_time(a, l->from_us);
			else
				pgargs_item_null(a);
		}
	pgargs_close(a);
	pgargs_array(a, PGARGS_BOOL);
	for (l = first; l; l = l->next)
		for (size_t i = 0; i < l->n; i++)
			pgargs_item_bool(a, l->conflated);
	pgargs_close(a);
}

static const struct pgstmt *
line_build(struct catalog_line *line, struct pgargs *a)
{
	const struct catalog_load *first = line->flying;

	pgargs_uuid(a, &first->tenant);
	switch (line_ask(line)) {
	case CATALOG_ASK_QUEUES:
		put_names(a, first);
		pgargs_bool(a, first->create);
		return &STMT_QUEUES;
	case CATALOG_ASK_PARTS:
		put_queue_ids(a, first);
		put_names(a, first);
		return first->create ? &STMT_ENSURE : &STMT_FIND;
	case CATALOG_ASK_PARTS_BY_ID:
		pgargs_array(a, PGARGS_I64);
		for (const struct catalog_load *l = first; l; l = l->next)
			for (size_t i = 0; i < l->n; i++)
				pgargs_item_i64(a, l->ids[i]);
		pgargs_close(a);
		return &STMT_NAMES;
	case CATALOG_ASK_GROUPS:
		put_queue_ids(a, first);
		put_names(a, first);
		return &STMT_GROUPS;
	case CATALOG_ASK_REGISTER:
		put_queue_ids(a, first);
		put_names(a, first);
		put_registration(a, first);
		return &STMT_REGISTER;
	case CATALOG_ASKS:
		break;
	}
	BUG(true);
	return NULL;
}

/* May l join a call that starts with first? */
static bool
fits_together(const struct catalog_load *first, const struct catalog_load *l)
{
	return memcmp(&first->tenant, &l->tenant, sizeof(l->tenant)) == 0 &&
	       first->create == l->create;
}

static void
line_fire(struct catalog_line *line)
{
	if (line->flying || line->stalled || !line->first)
		return;
	struct catalog_load *l = line->first, **end = &line->flying;
	size_t items = 0;

	while (l &&
		(!line->flying || (fits_together(line->flying, l) &&
					  items + l->n <= LOAD_ITEMS_MAX))) {
		items += l->n;
		*end = l;
		end = &l->next;
		l = l->next;
	}
	*end = NULL;
	line->first = l;
	if (!l)
		line->last = &line->first;
	struct pgargs a;

	pgargs_init(&a);
	const struct pgstmt *s = line_build(line, &a);

	pgpool_call(line->catalog->x->pool, LANE_REST, s, &a, on_answer, line);
}

static void
later_done(void *arg)
{
	struct catalog_load *l = arg;

	l->done(l->arg, NULL);
	load_free(l);
}

static void
ask(struct catalog *c, enum catalog_ask kind, struct catalog_load *l)
{
	if (l->n == 0) {
		loop_later(c->x->loop, later_done, l);
		return;
	}
	line_append(&c->lines[kind], l);
	line_fire(&c->lines[kind]);
}

static struct catalog_load *
load_new(const struct qid *tenant, size_t n, bool create, catalog_fn done,
	void *arg)
{
	struct catalog_load *l = calloc(1, sizeof(*l));

	if (!l)
		abort();
	l->tenant = *tenant;
	l->n = n;
	l->create = create;
	l->done = done;
	l->arg = arg;
	return l;
}

/* Copies the array of queues; they all belong to one tenant. */
static struct catalog_load *
load_of_queues(struct cat_queue *const *queues, size_t n, bool create,
	catalog_fn done, void *arg)
{
	static const struct qid nil;
	struct catalog_load *l =
		load_new(n ? &queues[0]->tenant : &nil, n, create, done, arg);

	l->queues = malloc((n + 1) * sizeof(struct cat_queue *));
	if (!l->queues)
		abort();
	for (size_t i = 0; i < n; i++)
		l->queues[i] = queues[i];
	return l;
}

void
catalog_load_queues(struct catalog *c, const struct qid *tenant,
	const struct span *names, size_t n, bool create, catalog_fn done,
	void *arg)
{
	struct catalog_load *l = load_new(tenant, n, create, done, arg);

	l->names = names;
	ask(c, CATALOG_ASK_QUEUES, l);
}

void
catalog_load_parts(struct catalog *c, struct cat_queue *const *queues,
	const struct span *names, size_t n, bool create, catalog_fn done,
	void *arg)
{
	struct catalog_load *l = load_of_queues(queues, n, create, done, arg);

	l->names = names;
	ask(c, CATALOG_ASK_PARTS, l);
}

void
catalog_load_parts_by_id(struct catalog *c, const struct qid *tenant,
	const int64_t *ids, size_t n, catalog_fn done, void *arg)
{
	struct catalog_load *l = load_new(tenant, n, false, done, arg);

	l->ids = malloc((n + 1) * sizeof(*ids));
	if (!l->ids)
		abort();
	if (n)
		memcpy(l->ids, ids, n * sizeof(*ids));
	ask(c, CATALOG_ASK_PARTS_BY_ID, l);
}

void
catalog_load_groups(struct catalog *c, struct cat_queue *const *queues,
	const struct span *names, size_t n, catalog_fn done, void *arg)
{
	struct catalog_load *l = load_of_queues(queues, n, false, done, arg);

	l->names = names;
	ask(c, CATALOG_ASK_GROUPS, l);
}

void
catalog_register_groups(struct catalog *c, struct cat_queue *const *queues,
	size_t n, struct span name, const char *mode, int64_t from_us,
	bool conflated, catalog_fn done, void *arg)
{
	struct catalog_load *l = load_of_queues(queues, n, true, done, arg);

	l->group = name;
	l->mode = mode;
	l->from_us = from_us;
	l->conflated = conflated;
	ask(c, CATALOG_ASK_REGISTER, l);
}

/* ---- the scan of all queues ---- */

static void scan_page(struct catalog *c);

static void
scan_end(struct catalog *c, const struct err *e)
{
	c->scanning = false;
	if (!c->loaded) {
		catalog_fn fn = c->on_loaded;

		c->loaded = !e;
		if (fn)
			fn(c->on_loaded_arg, e);
	}
	if (c->scan_again && !e) {
		c->scan_again = false;
		catalog_refresh(c);
	}
}

static void
on_scan(void *arg, const PGresult *res, const struct err *e)
{
	struct catalog *c = arg;

	if (e) {
		scan_end(c, e);
		return;
	}
	int rows = PQntuples(res);

	for (int i = 0; i < rows; i++) {
		struct catalog_queue_row row = {
			.id = pgbin_i64(res, i, 0),
			.tenant = pgbin_uuid(res, i, 1),
			.name = pgbin_bytes(res, i, 2),
		};

		read_queue_options(res, i, 3, &row);
		if (pgbin_bool(res, i, 12))
			catalog_forget_queue(c, row.id);
		else
			catalog_put_queue(c, &row);
		c->scan_since_us = row.changed_at_us;
		c->scan_after = row.id;
		if (row.changed_at_us > c->scan_newest_us)
			c->scan_newest_us = row.changed_at_us;
	}
	if (rows == SCAN_PAGE)
		scan_page(c);
	else
		scan_end(c, NULL);
}

static void
scan_page(struct catalog *c)
{
	struct pgargs a;

	pgargs_init(&a);
	pgargs_time(&a, c->scan_since_us);
	pgargs_i64(&a, c->scan_after);
	pgargs_i32(&a, SCAN_PAGE);
	pgpool_call(c->x->pool, LANE_REST, &STMT_SCAN, &a, on_scan, c);
}

void
catalog_refresh(struct catalog *c)
{
	if (c->scanning) {
		c->scan_again = true;
		return;
	}
	int64_t now_ms = loop_now_ms(c->x->loop);
	int64_t back_us = SCAN_SLACK_US;

	if (now_ms >= c->overlap_next_ms) {
		c->overlap_next_ms = now_ms + SCAN_OVERLAP_EVERY_MS;
		back_us = SCAN_OVERLAP_US;
	}
	c->scanning = true;
	c->scan_since_us = c->scan_newest_us == INT64_MIN
				   ? INT64_MIN
				   : c->scan_newest_us - back_us;
	c->scan_after = 0;
	scan_page(c);
}

void
catalog_start(struct catalog *c, catalog_fn done, void *arg)
{
	c->on_loaded = done;
	c->on_loaded_arg = arg;
	catalog_refresh(c);
}

void
catalog_load_init(struct catalog *c)
{
	c->scan_newest_us = INT64_MIN;
	for (int i = 0; i < CATALOG_ASKS; i++) {
		struct catalog_line *line = &c->lines[i];

		line->catalog = c;
		line->last = &line->first;
		loop_timer_init(&line->retry, c->x->loop, line_later, line);
	}
}

void
catalog_load_fini(struct catalog *c)
{
	for (int i = 0; i < CATALOG_ASKS; i++) {
		struct catalog_line *line = &c->lines[i];
		struct catalog_load *l, *next;

		loop_timer_fini(&line->retry);
		for (l = line->flying; l; l = next) {
			next = l->next;
			load_free(l);
		}
		for (l = line->first; l; l = next) {
			next = l->next;
			load_free(l);
		}
	}
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A copy against a model of the server, in thousands of random orders: writes
 * that are in the WAL before others can see them, marks before rows, keys that
 * move, values out of line, truncates, restarts, a memory too small for what
 * is to be remembered.  Whatever the order, what is queued replays to the
 * table, and no id comes twice.
 */
#include <stdlib.h>

#include "pipeline_fix.h"

enum { IDS = 8, WAL_MAX = 4000, TXNS = 60, LIMIT = 3, ABSENT = -1 };
enum { QUEUED_MAX = 2000, LIVES = 8, SHORT_BYTES = 150 };
#ifdef __SANITIZE_ADDRESS__ /* slow, and more are the same code */
enum { ROUNDS = 750 };
#else
enum { ROUNDS = 3000 };
#endif

struct row {
	bool exists;
	int n, body;
};

struct txn {
	uint64_t xid;
	bool hidden; /* in the WAL, not yet visible */
	bool locks[IDS];
	struct row before[IDS]; /* what others see meanwhile */
};

static const char *const model_columns[] = { "*id", "n", "body" };
static const uint32_t model_oids[] = { 23, 23, 25 };

static struct row rows[IDS], copy[IDS];
static struct txn txns[TXNS];
static size_t txns_n, wal_n, fed;
static struct buf wal[WAL_MAX];
static uint64_t ends[WAL_MAX]; /* of the transaction, or the mark */
static uint64_t ids[QUEUED_MAX]; /* hashes of those in the queue */
static size_t ids_n;
static struct buf saved; /* the pointer as it committed */
static uint64_t sent_from; /* where the server begins */
static uint64_t lsn, mark_number;
static unsigned seed;
static enum { IDLE, LOW, READ, HIGH } reading;
static bool installed, is_short;
static char seen[900];
static struct shape *chunk_shape;

static unsigned
dice(unsigned n)
{
	seed = seed * 1103515245u + 12345u;
	return (seed >> 16) % n;
}

static void
log_wire(void)
{
	assert_true(wal_n < WAL_MAX);
	buf_reset(&wal[wal_n]);
	ends[wal_n] = lsn + 16;
	buf_put_span(&wal[wal_n++], buf_span(&wire));
	lsn += 16;
}

/* ---- the server ---- */

static bool
is_locked(int id)
{
	for (size_t i = 0; i < txns_n; i++) {
		if (txns[i].hidden && txns[i].locks[id])
			return true;
	}
	return false;
}

static bool
any_hidden(void)
{
	for (size_t i = 0; i < txns_n; i++) {
		if (txns[i].hidden)
			return true;
	}
	return false;
}

static const char *
number(int v, char out_text[12])
{
	snprintf(out_text, 12, "%d", v);
	return out_text;
}

static void
log_row(char tag, int old_id, int id, bool body)
{
	char a[12], b[12], c[12], d[12];

	wire_change(&wire, tag, ORDERS);
	if (old_id >= 0)
		wire_row(&wire, 'K', number(old_id, a), NULL, NULL, WIRE_END);
	if (id >= 0)
		wire_row(&wire, 'N', number(id, b), number(rows[id].n, c),
			body ? number(rows[id].body, d) : WIRE_UNCHANGED,
			WIRE_END);
	log_wire();
}

static void
write_row(struct txn *t, int id)
{
	bool body = dice(3) == 0;
	int to = (int)dice(IDS);

	t->locks[id] = true;
	if (!rows[id].exists) {
		rows[id] =
			(struct row){ true, (int)dice(1000), (int)dice(1000) };
		log_row('I', -1, id, true);
	} else if (dice(5) == 0) {
		rows[id].exists = false;
		log_row('D', id, -1, false);
	} else if (dice(4) == 0 && !rows[to].exists && !is_locked(to)) {
		t->locks[to] = true;
		rows[to] = rows[id];
		rows[id].exists = false;
		log_row('U', id, to, false);
	} else {
		rows[id].n = (int)dice(1000);
		if (body)
			rows[id].body = (int)dice(1000);
		log_row('U', -1, id, body);
	}
}

static void
truncate_all(struct txn *t)
{
	for (int i = 0; i < IDS; i++) {
		rows[i].exists = false;
		t->locks[i] = true;
	}
	wire_truncate(&wire, 0, (const uint32_t[]){ ORDERS }, 1);
	log_wire();
}

static void
do_txn(void)
{
	struct txn *t = &txns[txns_n];
	uint64_t at = lsn + 0x1000;
	size_t first = wal_n;

	if (txns_n == TXNS)
		return;
	*t = (struct txn){ .xid = UINT64_C(0x1fffffff0) + txns_n };
	memcpy(t->before, rows, sizeof(rows));
	wire_begin(&wire, at, 0, (uint32_t)t->xid);
	log_wire();
	if (dice(20) == 0 && !any_hidden()) {
		truncate_all(t);
	} else {
		for (unsigned i = 1 + dice(4); i > 0; i--) {
			int id = (int)dice(IDS);

			if (!is_locked(id))
				write_row(t, id);
		}
	}
	lsn = at;
	wire_commit(&wire, at, at + 8);
	log_wire();
	for (; first < wal_n; first++)
		ends[first] = at + 8;
	t->hidden = dice(2) == 0;
	txns_n++;
}

static void
reveal(void)
{
	size_t i = txns_n ? dice((unsigned)txns_n) : 0;

	if (txns_n)
		txns[i].hidden = false;
}

/* What a new snapshot sees of a row: its locker's before, while hidden. */
static struct row
visible(int id)
{
	for (size_t i = 0; i < txns_n; i++) {
		if (txns[i].hidden && txns[i].locks[id])
			return txns[i].before[id];
	}
	return rows[id];
}

/* As the server does: xmax is behind the last one that has ended. */
static void
print_seen(char *to, size_t to_n)
{
	size_t ended = txns_n;
	uint64_t xmax, xmin;
	int n = 0;
	char list[800] = "";

	while (ended > 0 && txns[ended - 1].hidden)
		ended--;
	xmin = xmax = UINT64_C(0x1fffffff0) + ended;
	for (size_t i = 0; i < ended; i++) {
		if (!txns[i].hidden)
			continue;
		if (xmin == xmax)
			xmin = txns[i].xid;
		n += snprintf(list + n, sizeof(list) - (size_t)n, "%s%llu",
			n ? "," : "", (unsigned long long)txns[i].xid);
		assert_true(n < 780);
	}
	snprintf(to, to_n, "%llu:%llu:%s", (unsigned long long)xmin,
		(unsigned long long)xmax, list);
}

/* ---- the copy ---- */

static void
log_mark(const char *kind)
{
	char text[40];

	snprintf(text, sizeof(text), "%s:%llu", kind,
		(unsigned long long)mark_number);
	wire_message(&wire, false, lsn, "queen:7be01c4d", text);
	log_wire();
}

/* Everything has ended that nobody remembers. */
static bool
may_copy(void)
{
	char text[900];

	if (!snapshot_must_wait(&p.snapshot))
		return true;
	if (p.snapshot.wait_xid == 0) {
		snapshot_wait(&p.snapshot, UINT64_C(0x1fffffff0) + txns_n);
		return false;
	}
	print_seen(text, sizeof(text));
	assert_int_equal(snapshot_look(&p.snapshot, span_of(text), &e), 0);
	return !snapshot_must_wait(&p.snapshot);
}

static void
ask_chunk(void)
{
	struct pgoutput m;
	struct pipeline_chunk c;
	struct arena a = ARENA_ZERO;
	uint32_t oid;

	if (!may_copy() || !pipeline_next_chunk(&p, &c))
		return;
	wire_relation(&wire, ORDERS, "public", "orders", 'd', model_columns,
		model_oids, 3);
	assert_int_equal(pgoutput_parse(buf_span(&wire), &a, &m, &e), 0);
	if (!chunk_shape)
		assert_int_equal(shape_new(c.table, &m.relation, &p.types,
					 &chunk_shape, &oid, &e),
			SHAPE_OK);
	arena_fini(&a);
	mark_number = snapshot_ask(&p.snapshot, 0, chunk_shape, c.limit_rows);
	log_mark("lw");
	reading = LOW;
	installed = false;
}

static void
read_rows(void)
{
	int after = p.tail.has_after ? p.tail.after.p[0] - '0' : -1;
	uint64_t left = p.snapshot.chunk->limit_rows;

	print_seen(seen, sizeof(seen));
	for (int id = after + 1; id < IDS && left > 0; id++) {
		struct row r = visible(id);
		char a[12], b[12], c[12];
		struct datum d[3] = {
			{ DATUM_TEXT, span_of(number(id, a)) },
			{ DATUM_TEXT, span_of(number(r.n, b)) },
			{ DATUM_TEXT, span_of(number(r.body, c)) },
		};

		if (!r.exists)
			continue;
		snapshot_row(&p.snapshot, &(struct tuple){ d, 3 });
		left--;
	}
	reading = READ;
}

static void
install(void)
{
	if (installed || reading < READ || !p.snapshot.chunk)
		return;
	assert_int_equal(
		snapshot_install(&p.snapshot, span_of(seen), 0, &e), 0);
	installed = true;
}

static void
step_copy(void)
{
	if (!p.snapshot.chunk)
		reading = IDLE;
	switch (reading) {
	case IDLE:
		ask_chunk();
		break;
	case LOW:
		read_rows();
		break;
	case READ:
		log_mark("hw");
		reading = HIGH;
		break;
	case HIGH:
		install();
		break;
	}
}

/* The row as it is by now, if it is still there. */
static void
answer_row(void)
{
	static char body[12];
	int id = ask.row->d[0].text.p[0] - '0';

	if (!rows[id].exists)
		return;
	ask.row->d[2] = (struct datum){ DATUM_TEXT,
		span_of(number(rows[id].body, body)) };
}

static void
feed_next(void)
{
	enum pipeline_result rc;

	/* the server leaves out what ends before the place it was asked for */
	while (fed < wal_n && ends[fed] <= sent_from)
		fed++;
	if (fed == wal_n)
		return;
	rc = pipeline_feed(&p, buf_span(&wal[fed++]), 0, &ask, &e);
	while (rc == PIPELINE_ASK_ROW || rc == PIPELINE_ASK_CHUNK) {
		if (rc == PIPELINE_ASK_ROW)
			answer_row();
		else
			install();
		rc = pipeline_resume(&p, 0, &ask, &e);
	}
	if (rc != PIPELINE_OK)
		fail_msg("%s", e.text);
	if (!p.snapshot.chunk)
		reading = IDLE;
}

/* ---- the queue, replayed ---- */

static void
set_member(const char *after, const char *name, int *v)
{
	const char *end = strchr(after, '}'), *at = strstr(after, name);

	if (at && at < end)
		*v = (int)strtol(at + strlen(name), NULL, 10);
}

static void
note_id(struct span id)
{
	uint64_t hash = span_hash(id, 0);

	for (size_t i = 0; i < ids_n; i++) {
		if (ids[i] == hash)
			fail_msg("%.*s twice", SPAN_ARG(id));
	}
	assert_true(ids_n < QUEUED_MAX);
	ids[ids_n++] = hash;
}

static void
replay_one(const struct message *m)
{
	char text[512];
	const char *after;
	int id = 0;

	snprintf(text, sizeof(text), "%.*s", SPAN_ARG(m->payload));
	if (text[7] == 't') {
		memset(copy, 0, sizeof(copy));
		return;
	}
	set_member(strstr(text, "\"key\":{"), "\"id\":", &id);
	after = strstr(text, "\"after\":") + 8;
	if (!copy[id].exists)
		copy[id] = (struct row){ false, ABSENT, ABSENT };
	copy[id].exists = text[7] != 'd';
	if (text[7] == 'd')
		return;
	set_member(after, "\"n\":", &copy[id].n);
	set_member(after, "\"body\":\"", &copy[id].body);
}

static void
replay(size_t bundles)
{
	const struct unit *u;

	while (bundles-- > 0 && (u = TAILQ_FIRST(&p.queue.list))) {
		bundle_take(&p.queue, &conf.limits);
		for (size_t i = 0; i < p.queue.in_flight;
			i++, u = TAILQ_NEXT(u, link)) {
			for (size_t k = 0; k < u->n; k++) {
				struct message m = unit_message(u, k);

				note_id(m.id);
				replay_one(&m);
			}
			buf_reset(&saved);
			pointer_write(&saved, &p.pointer, &u->cover, 0);
		}
		unit_queue_settle(&p.queue);
	}
}

static void
compare(unsigned round)
{
	for (int i = 0; i < IDS; i++) {
		if (rows[i].exists == copy[i].exists &&
			(!rows[i].exists ||
				(rows[i].n == copy[i].n &&
					rows[i].body == copy[i].body)))
			continue;
		fail_msg("round %u row %d: %d %d %d, copied %d %d %d", round, i,
			rows[i].exists, rows[i].n, rows[i].body, copy[i].exists,
			copy[i].n, copy[i].body);
	}
}

/* A new life, from the pointer alone. */
static void
begin_life(void)
{
	buf_putc(&saved, '\0');
	first_chunk += 1000;
	reading = IDLE;
	start(saved.p);
	saved.len--;
	sent_from = p.tail.lsn;
	fed = 0;
	wire_relation(&wire, ORDERS, "public", "orders", 'd', model_columns,
		model_oids, 3);
	assert_int_equal(feed(), PIPELINE_OK);
	if (is_short)
		p.snapshot.memory_bytes = (16 << 10) + SHORT_BYTES;
}

static void
end_life(void)
{
	pipeline_fini(&p);
	shape_free(chunk_shape);
	chunk_shape = NULL;
}

static void
one_round(unsigned round)
{
	int lives = LIVES;

	seed = round;
	is_short = round % 4 == 0;
	txns_n = wal_n = ids_n = 0;
	lsn = 0x100000;
	memset(copy, 0, sizeof(copy));
	for (int i = 0; i < IDS; i++)
		rows[i] = (struct row){ dice(3) > 0, (int)dice(1000),
			(int)dice(1000) };
	buf_reset(&saved);
	buf_puts(&saved, POINTER(COPY("public.orders", "null")));
	begin_life();
	while (p.tail.in_snapshot || fed < wal_n) {
		switch (lives > 0 && dice(40) == 0 ? 8 : dice(8)) {
		case 8:
			lives--;
			end_life();
			begin_life();
			break;
		case 0:
		case 1:
			do_txn();
			break;
		case 2:
			reveal();
			break;
		case 3:
		case 4:
			step_copy();
			break;
		case 5:
			replay(1 + dice(3));
			break;
		default:
			feed_next();
		}
	}
	replay(SIZE_MAX);
	compare(round);
	end_life();
}

static void
any_order_replays_to_the_table(void **state)
{
	(void)state;
	conf.chunk_rows = LIMIT;
	conf.tables_n = 1;
	conf.emit_truncate = true;
	for (unsigned round = 0; round < ROUNDS; round++)
		one_round(round);
	start(POINTER(""));
	for (int i = 0; i < WAL_MAX; i++)
		buf_fini(&wal[i]);
	buf_fini(&saved);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(
			any_order_replays_to_the_table, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

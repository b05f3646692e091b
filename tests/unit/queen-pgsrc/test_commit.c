/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bundles of a source into a real cell: what is in after each way a bundle
 * may end, and that it is in once.
 */
#include "commit.h"

#include "cell_fix.h"

#include <libpq-fe.h>
#include <sys/socket.h>
#include <time.h>

#include "buf.h"
#include "bundle.h"
#include "connchild.h"
#include "connfault.h"
#include "connpipe.h"
#include "ctx.h"
#include "frame.h"
#include "hash.h"
#include "pointer.h"
#include "seal.h"
#include "seg.h"
#include "unit.h"

#define TENANT "'01020300-0000-0000-0000-000000000000'"
#define KEY "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"

/* One owner of the source. */
struct owner_end {
	struct loop *loop;
	struct ctx x;
	struct unit_queue queue;
	struct commit *commit;
	int settled, troubles;
	bool troubled, failed;
	struct connfault fault, trouble;
};

static struct owner_end A, F; /* F can be frozen: its loop is its own */
static struct connchild *child;
static struct connpipe *parent;
static struct seal *ring;
static struct loop *first_loop;
static struct { /* what the parent has heard of the last queue */
	size_t parts_n;
	int64_t queue_id, part, wanted_id;
} heard;

static const struct bundle_limits LIMITS = { 50000, 64 << 20, 20 };

/* ---- ends ---- */

static void
on_settled(void *arg)
{
	((struct owner_end *)arg)->settled++;
}

static void
on_fault(void *arg, const struct connfault *f)
{
	struct owner_end *o = arg;

	assert_false(o->failed);
	o->failed = true;
	o->fault = *f;
}

static void
on_trouble(void *arg, const struct connfault *f)
{
	struct owner_end *o = arg;

	o->troubled = f != NULL;
	o->troubles += f != NULL;
	if (f)
		o->trouble = *f;
}

static void
begin(struct owner_end *o, int64_t version, const char *lsn)
{
	struct commit_events ev = { on_settled, on_fault, on_trouble, o };
	struct pointer p = POINTER_ZERO;
	struct err e = ERR_ZERO;
	char text[200];

	snprintf(text, sizeof(text),
		"{\"v\":1,\"epoch\":\"7be01c4d\",\"systemId\":\"1\","
		"\"slot\":\"s\",\"lsn\":\"%s\"}",
		lsn);
	assert_int_equal(pointer_parse(span_of(text), &p, &e), 0);
	o->commit = commit_new(&o->x, &o->queue, &LIMITS, &p, version, &ev);
	pointer_fini(&p);
	o->settled = o->troubles = 0;
	o->troubled = o->failed = false;
}

static void
end_use(struct owner_end *o)
{
	commit_free(o->commit);
	o->commit = NULL;
	unit_queue_fini(&o->queue);
	/* in flight were some perhaps */
	unit_queue_init(&o->queue);
}

static struct unit *
unit_at(uint64_t lsn)
{
	struct pointer_place at = { .lsn = lsn };
	struct unit *u = unit_new();

	unit_cover(u, &at);
	return u;
}

static void
add(struct unit *u, const char *queue, const char *part, const char *id,
	const char *payload)
{
	struct message m = { .queue = span_of(queue),
		.partition = span_of(part),
		.id = span_of(id),
		.payload = span_of(payload) };

	unit_add(u, &m, 1);
}

/* One message as a unit of its own. */
static void
put(struct owner_end *o, uint64_t lsn, const char *queue, const char *part,
	const char *id)
{
	struct unit *u = unit_at(lsn);

	add(u, queue, part, id, "{}");
	unit_queue_put(&o->queue, u);
}

static bool
is_over(void *arg)
{
	const struct owner_end *o = arg;

	return o->failed || !commit_is_busy(o->commit);
}

static void
start_send(struct owner_end *o)
{
	commit_send(o->commit);
	assert_true(commit_is_busy(o->commit));
}

static void
finish(struct owner_end *o)
{
	loop = o->loop;
	run_until(is_over, o);
	loop = first_loop;
}

/* Sends and sees it settled. */
static void
commit(struct owner_end *o)
{
	int before = o->settled;

	start_send(o);
	finish(o);
	if (o->failed)
		fail_msg("%s", o->fault.text);
	assert_int_equal(o->settled, before + 1);
	assert_false(o->troubled);
}

/* ---- what the cell has ---- */

static int64_t
number_of(const char *text)
{
	return strtoll(text, NULL, 10);
}

static int64_t
pointer_version(void)
{
	return number_of(value_of("select version from queen.kv "
				  "where key = 'src:s:pointer'"));
}

static const char *
pointer_lsn(void)
{
	return value_of("select value->>'lsn' from queen.kv "
			"where key = 'src:s:pointer'");
}

static int64_t
messages(void)
{
	return number_of(value_of("select coalesce(sum(end_offset - "
				  "base_offset + 1), 0) from queen.segments"));
}

/* "id=payload id=payload" of a partition; *seen: the last message's id. */
static const char *
stored(const char *queue, const char *part, struct qid *seen)
{
	const char *values[] = { queue, part };
	static char text[1024];
	PGresult *r = PQexecParams(sql,
		"select s.blob from queen.segments s "
		"join queen.partitions p on p.id = s.partition_id "
		"join queen.queues q on q.id = p.queue_id "
		"where q.name = $1 and p.name = $2 and q.deleted_at is null "
		"order by s.base_offset",
		2, NULL, values, NULL, NULL, 1);
	struct buf out = BUF_ZERO, open = BUF_ZERO;
	struct err e = ERR_ZERO;
	struct frame f;

	for (int i = 0; i < PQntuples(r); i++) {
		struct buf raw = BUF_ZERO;
		struct span rest;

		assert_int_equal(
			seg_unpack(span_make(PQgetvalue(r, i, 0),
					   (size_t)PQgetlength(r, i, 0)),
				&raw, &e),
			0);
		rest = buf_span(&raw);
		while (frame_next(&rest, &f, &e) == 1) {
			buf_reset(&open);
			if (f.flags & FRAME_SEALED) {
				assert_int_equal(seal_open(ring, &f.id,
							 f.payload, &open, &e),
					0);
				f.payload = buf_span(&open);
			}
			buf_printf(&out, "%s%.*s=%.*s", out.len ? " " : "",
				SPAN_ARG(f.txn), SPAN_ARG(f.payload));
			if (seen)
				*seen = f.id;
		}
		buf_fini(&raw);
	}
	PQclear(r);
	snprintf(text, sizeof(text), "%.*s", (int)out.len, out.p ? out.p : "");
	buf_fini(&out);
	buf_fini(&open);
	return text;
}

/* ---- faults of the server ---- */

static bool
waits_for_lock(void *arg)
{
	(void)arg;
	return strcmp(value_of("select count(*) from pg_locks "
			       "where not granted"),
		       "0") != 0;
}

static bool
two_wait_for_locks(void *arg)
{
	(void)arg;
	return strcmp(value_of("select count(*) from pg_locks "
			       "where not granted"),
		       "2") == 0;
}

/*
 * COMMIT stands still, with all its locks, until sql gives the lock back: as
 * behind a slow disk or a standby.
 */
static void
hold_commits(void)
{
	value_of("select pg_advisory_lock(77)");
	value_of("create constraint trigger slow after insert or update on "
		 "queen.kv deferrable initially deferred for each row "
		 "execute function slow()");
}

static void
let_commits(void)
{
	value_of("select pg_advisory_unlock(77)");
}

static void
no_more_slow(void)
{
	value_of("drop trigger slow on queen.kv");
}

/* ---- tests ---- */

/* Messages of two queues and three partitions, and a step without any. */
static void
test_a_bundle(void **state)
{
	struct unit *u = unit_at(0x20);
	uint8_t key[HASH_KEY_BYTES];
	struct hash_id h;
	char hex[33] = "";
	int64_t version;

	(void)state;
	begin(&A, 0, "0/1");
	add(u, "q1", "a", "pg:1", "{\"n\":1}");
	add(u, "q1", "b", "pg:2", "{\"n\":2}");
	add(u, "q1", "a", "pg:3", "{\"n\":12345678901234567890}");
	unit_queue_put(&A.queue, u);
	put(&A, 0x30, "q2", "a", "pg:4");
	commit(&A);
	assert_int_equal(commit_lsn(A.commit), 0x30);
	assert_int_equal(A.queue.units, 0);
	assert_string_equal(pointer_lsn(), "0/30");
	assert_string_equal(stored("q1", "a", NULL),
		"pg:1={\"n\":1} pg:3={\"n\":12345678901234567890}");
	assert_string_equal(stored("q1", "b", NULL), "pg:2={\"n\":2}");
	assert_string_equal(stored("q2", "a", NULL), "pg:4={}");

	/* found by their ids */
	snprintf(hex, sizeof(hex), "%s",
		value_of("select encode(hash_key, 'hex') from queen.cell"));
	for (int i = 0; i < HASH_KEY_BYTES; i++) {
		unsigned byte;

		assert_int_equal(sscanf(hex + 2 * i, "%2x", &byte), 1);
		key[i] = (uint8_t)byte;
	}
	hash_id(key, SPAN_LIT("pg:2"), &h);
	for (int i = 0; i < HASH_ID_BYTES; i++)
		snprintf(hex + 2 * i, 3, "%02x", h.b[i]);
	assert_string_equal(
		value_of("select p.name from queen.segment_ids s "
			 "join queen.partitions p on p.id = s.partition_id "
			 "where s.ids = decode('%s', 'hex')",
			hex),
		"b");

	version = pointer_version();
	unit_queue_put(&A.queue, unit_at(0x40));
	commit(&A);
	assert_true(pointer_version() > version);
	assert_string_equal(pointer_lsn(), "0/40");
	assert_int_equal(messages(), 4);
	/* the partition goes on where it was */
	put(&A, 0x50, "q1", "b", "pg:5");
	commit(&A);
	assert_string_equal(stored("q1", "b", NULL), "pg:2={\"n\":2} pg:5={}");
}

/* Words about earlier queues may still come before. */
static bool
heard_all(void *arg)
{
	return heard.queue_id == heard.wanted_id &&
	       heard.parts_n == *(const size_t *)arg;
}

static void
wait_until_told(const char *queue, size_t n)
{
	heard.wanted_id = number_of(value_of(
		"select id from queen.queues where name = '%s'", queue));
	run_until(heard_all, &n);
}

static void
test_others_are_told(void **state)
{
	(void)state;
	begin(&A, 0, "0/1");
	put(&A, 0x20, "told", "a", "pg:1");
	commit(&A);
	wait_until_told("told", 1);
	assert_int_equal(heard.part,
		number_of(value_of("select p.id from queen.partitions p join "
				   "queen.queues q on q.id = p.queue_id "
				   "where q.name = 'told'")));
}

/* The answer to COMMIT is lost while it still goes on: it is waited for. */
static void
lose_the_answer(int64_t version)
{
	hold_commits();
	begin(&A, version, "0/1");
	put(&A, 0x20, "q1", "a", "pg:1");
	start_send(&A);
	run_until(waits_for_lock, NULL);
	pgconn_reset(A.x.work);
	run_until(two_wait_for_locks, NULL);
	assert_int_equal(A.troubles, 1);
	assert_string_equal(A.trouble.code, "queen");
	assert_true(A.trouble.retryable);
	assert_true(commit_is_busy(A.commit));
	let_commits();
	finish(&A);
	no_more_slow();
	assert_false(A.failed);
	assert_int_equal(A.settled, 1);
	assert_false(A.troubled);
	assert_string_equal(pointer_lsn(), "0/20");
	assert_int_equal(commit_lsn(A.commit), 0x20);
	assert_string_equal(stored("q1", "a", NULL), "pg:1={}");
	/* and it goes on with the version it found */
	put(&A, 0x30, "q1", "a", "pg:2");
	commit(&A);
	assert_string_equal(stored("q1", "a", NULL), "pg:1={} pg:2={}");
}

static void
test_lost_answer_of_the_first(void **state)
{
	(void)state;
	lose_the_answer(0);
}

static void
test_lost_answer(void **state)
{
	(void)state;
	begin(&A, 0, "0/1");
	unit_queue_put(&A.queue, unit_at(2));
	commit(&A);
	end_use(&A);
	lose_the_answer(pointer_version());
}

/* COMMIT was sent and failed: the same again, once. */
static void
test_a_commit_that_failed(void **state)
{
	(void)state;
	hold_commits();
	begin(&A, 0, "0/1");
	put(&A, 0x20, "q1", "a", "pg:1");
	start_send(&A);
	run_until(waits_for_lock, NULL);
	value_of("select pg_terminate_backend(pid) from pg_stat_activity "
		 "where wait_event_type = 'Lock'");
	let_commits();
	finish(&A);
	no_more_slow();
	assert_int_equal(A.settled, 1);
	assert_true(A.troubles > 0);
	assert_string_equal(stored("q1", "a", NULL), "pg:1={}");
	assert_string_equal(pointer_lsn(), "0/20");
}

static bool
has_sent(void *arg)
{
	return pgconn_pending(((struct owner_end *)arg)->x.work) > 0;
}

static void
nap(void)
{
	nanosleep(&(struct timespec){ .tv_nsec = 5000000 }, NULL);
}

/*
 * An owner frozen between the verdict and its COMMIT; another commits as soon
 * as the server gives the first one up.
 */
static void
test_a_frozen_owner(void **state)
{
	PGconn *holder = pgserver_connect(&server, "postgres");
	int64_t version;

	(void)state;
	begin(&F, 0, "0/1");
	put(&F, 0x20, "q1", "a", "pg:1");
	commit(&F);
	version = pointer_version();

	/* the call waits for a partition; its loop does not run any more */
	pgserver_value(holder, "begin");
	pgserver_value(
		holder, "select 1 from queen.partition_heads for update");
	put(&F, 0x30, "q1", "a", "pg:2");
	start_send(&F);
	loop = F.loop;
	run_until(has_sent, &F);
	loop = first_loop;
	while (!waits_for_lock(NULL))
		nap();
	pgserver_value(holder, "commit");
	while (number_of(value_of("select count(*) from pg_stat_activity where "
				  "state = 'idle in transaction'")) == 0)
		nap();

	begin(&A, version, "0/20");
	put(&A, 0x30, "q1", "a", "pg:2");
	put(&A, 0x40, "q1", "a", "pg:3");
	commit(&A);
	assert_string_equal(stored("q1", "a", NULL), "pg:1={} pg:2={} pg:3={}");

	finish(&F);
	assert_true(F.failed);
	assert_string_equal(F.fault.code, "fenced");
	assert_true(F.fault.retryable);
	assert_int_equal(F.settled, 1);
	assert_string_equal(stored("q1", "a", NULL), "pg:1={} pg:2={} pg:3={}");
	assert_string_equal(pointer_lsn(), "0/40");
	PQfinish(holder);
}

/* Another moved it: nothing of ours is written.  Unless it was ourselves. */
static void
test_precondition(void **state)
{
	int64_t version;

	(void)state;
	begin(&A, 0, "0/1");
	put(&A, 0x20, "q1", "a", "pg:1");
	commit(&A);
	version = pointer_version();
	end_use(&A);

	begin(&A, version - 1, "0/1");
	put(&A, 0x20, "q1", "a", "pg:1");
	start_send(&A);
	finish(&A);
	assert_false(A.failed);
	assert_int_equal(A.settled, 1);
	assert_int_equal(messages(), 1);
	put(&A, 0x30, "q1", "a", "pg:2");
	commit(&A);
	end_use(&A);

	begin(&A, version, "0/20");
	put(&A, 0x28, "q1", "a", "pg:x");
	start_send(&A);
	finish(&A);
	assert_true(A.failed);
	assert_string_equal(A.fault.code, "fenced");
	assert_string_equal(stored("q1", "a", NULL), "pg:1={} pg:2={}");
	end_use(&A);

	/* nor when it is gone altogether */
	version = pointer_version();
	value_of("delete from queen.kv where key = 'src:s:pointer'");
	begin(&A, version, "0/30");
	put(&A, 0x40, "q1", "a", "pg:3");
	start_send(&A);
	finish(&A);
	assert_string_equal(A.fault.code, "fenced");
	assert_int_equal(messages(), 2);
}

/* The flag changes between two bundles of an owner that read it just now. */
static void
test_encryption(void **state)
{
	(void)state;
	A.x.seal = ring;
	begin(&A, 0, "0/1");
	put(&A, 0x20, "q1", "a", "pg:1");
	commit(&A);
	value_of("update queen.queues set encryption_enabled = true "
		 "where name = 'q1'");
	put(&A, 0x30, "q1", "a", "pg:2");
	put(&A, 0x38, "q2", "a", "pg:3");
	commit(&A);
	put(&A, 0x40, "q1", "a", "pg:4");
	commit(&A);
	assert_int_equal(A.troubles, 0);
	assert_string_equal(stored("q1", "a", NULL), "pg:1={} pg:2={} pg:4={}");
	assert_string_equal(
		value_of("select string_agg(coalesce(key_id::text, "
			 "'-'), ' ' order by q.name, base_offset) "
			 "from queen.segments s join "
			 "queen.partitions p on "
			 "p.id = s.partition_id join queen.queues q "
			 "on q.id = p.queue_id"),
		value_of("select '- ' || %d || ' ' || %d || ' -'",
			seal_key_id(ring), seal_key_id(ring)));
	end_use(&A);

	/* without a key */
	A.x.seal = NULL;
	begin(&A, pointer_version(), "0/40");
	put(&A, 0x50, "q1", "a", "pg:5");
	start_send(&A);
	finish(&A);
	assert_true(A.failed);
	assert_string_equal(A.fault.code, "queen_refused");
	assert_false(A.fault.retryable);
	assert_non_null(strstr(A.fault.text, "QUEEN_ENCRYPTION_KEY"));
	assert_non_null(strstr(A.fault.text, "queue q1"));
	assert_int_equal(messages(), 4);
	assert_string_equal(pointer_lsn(), "0/40");
	end_use(&A);

	/* nor when it believes the queue takes anything */
	value_of("update queen.queues set encryption_enabled = false");
	begin(&A, pointer_version(), "0/40");
	put(&A, 0x50, "q1", "a", "pg:5");
	commit(&A);
	value_of("update queen.queues set encryption_enabled = true");
	put(&A, 0x60, "q1", "a", "pg:6");
	start_send(&A);
	finish(&A);
	assert_string_equal(A.fault.code, "queen_refused");
	assert_int_equal(messages(), 5);
}

/* What it knows by id is deleted: made again, and all is in the new one. */
static void
test_gone(void **state)
{
	struct qid one, two;

	(void)state;
	begin(&A, 0, "0/1");
	put(&A, 0x20, "q1", "a", "pg:1");
	put(&A, 0x28, "q2", "a", "pg:2");
	commit(&A);
	stored("q2", "a", &one);
	value_of("select * from queen.queue_delete_v1(" TENANT ", 'q1')");
	put(&A, 0x30, "q1", "a", "pg:3");
	put(&A, 0x38, "q2", "a", "pg:4");
	put(&A, 0x39, "q1", "b", "pg:5");
	commit(&A);
	assert_string_equal(stored("q1", "a", NULL), "pg:3={}");
	assert_string_equal(stored("q1", "b", NULL), "pg:5={}");
	assert_string_equal(stored("q2", "a", &two), "pg:2={} pg:4={}");
	assert_memory_not_equal(&one, &two, sizeof(one));
	assert_string_equal(pointer_lsn(), "0/39");
}

static bool
is_in_trouble(void *arg)
{
	return ((const struct owner_end *)arg)->troubled;
}

/* Pushes are suspended, but not the position. */
static void
test_maintenance(void **state)
{
	(void)state;
	begin(&A, 0, "0/1");
	value_of("select queen.flag_set_v1('maintenance_mode', true)");
	unit_queue_put(&A.queue, unit_at(0x18));
	commit(&A);
	put(&A, 0x20, "q1", "a", "pg:1");
	start_send(&A);
	run_until(is_in_trouble, &A);
	assert_string_equal(A.trouble.code, "queen");
	assert_non_null(strstr(A.trouble.text, "/api/v1/system/maintenance"));
	assert_int_equal(messages(), 0);
	value_of("select queen.flag_set_v1('maintenance_mode', false)");
	finish(&A);
	assert_int_equal(A.settled, 2);
	assert_false(A.troubled);
	assert_int_equal(messages(), 1);
}

static void
test_too_large(void **state)
{
	size_t n = (64 << 20) + 1;
	char *payload = malloc(n);
	struct message m = { .queue = SPAN_LIT("q1"),
		.partition = SPAN_LIT("a"),
		.id = SPAN_LIT("pg:1"),
		.payload = { payload, n } };
	struct unit *u = unit_at(0x20);

	(void)state;
	memset(payload, ' ', n);
	begin(&A, 0, "0/1");
	unit_add(u, &m, 1);
	unit_queue_put(&A.queue, u);
	start_send(&A);
	finish(&A);
	assert_string_equal(A.fault.code, "queen_refused");
	assert_non_null(strstr(A.fault.text, "queue q1 has 67108865 bytes"));
	assert_int_equal(A.queue.in_flight, 1);
	end_use(&A);

	/* what is just not too large is in, in a segment of its own */
	m.payload.n = 3 << 20;
	begin(&A, 0, "0/1");
	u = unit_at(0x20);
	add(u, "q1", "a", "pg:0", "{}");
	unit_add(u, &m, 1);
	add(u, "q1", "a", "pg:2", "{}");
	unit_queue_put(&A.queue, u);
	commit(&A);
	assert_string_equal(value_of("select string_agg(base_offset || ':' || "
				     "end_offset, ' ' order by base_offset) "
				     "from queen.segments"),
		"0:0 1:1 2:2");
	free(payload);
}

/* Left in the middle: what it had begun does not stay. */
static void
test_freed_in_flight(void **state)
{
	PGconn *holder = pgserver_connect(&server, "postgres");

	(void)state;
	begin(&A, 0, "0/1");
	put(&A, 0x20, "q1", "a", "pg:1");
	commit(&A);
	pgserver_value(holder, "begin");
	pgserver_value(
		holder, "select 1 from queen.partition_heads for update");
	put(&A, 0x30, "q1", "a", "pg:2");
	start_send(&A);
	run_until(waits_for_lock, NULL);
	end_use(&A);
	pgserver_value(holder, "commit");
	PQfinish(holder);
	begin(&A, pointer_version(), "0/20");
	put(&A, 0x40, "q1", "a", "pg:3");
	commit(&A);
	assert_string_equal(stored("q1", "a", NULL), "pg:1={} pg:3={}");
}

static void
test_50000_partitions(void **state)
{
	size_t n = 50000;

	(void)state;
	begin(&A, 0, "0/1");
	for (int round = 0; round < 2; round++) {
		struct unit *u = unit_at(0x20 + (unsigned)round);
		char part[16], id[32];

		for (size_t i = 0; i < n; i++) {
			snprintf(part, sizeof(part), "p%05zu", i);
			snprintf(id, sizeof(id), "pg:%d:%zu", round, i);
			add(u, "wide", part, id, "{\"some\":\"payload\"}");
		}
		unit_queue_put(&A.queue, u);
		commit(&A);
		assert_int_equal(messages(), n * (size_t)(round + 1));
	}
	wait_until_told("wide", 2 * n);
	assert_string_equal(
		value_of("select min(c) || ' ' || max(c) from (select "
			 "count(*) c from queen.segments group by "
			 "partition_id) x"),
		"2 2");
}

/* The cell goes away amid a bundle and comes back. */
static void
test_the_cell_restarts(void **state)
{
	(void)state;
	begin(&A, 0, "0/1");
	put(&A, 0x20, "q1", "a", "pg:1");
	commit(&A);
	PQfinish(sql);
	pgserver_stop(&server);
	put(&A, 0x30, "q1", "a", "pg:2");
	start_send(&A);
	run_until(is_in_trouble, &A);
	pgserver_start(&server);
	sql = pgserver_connect(&server, "postgres");
	finish(&A);
	assert_int_equal(A.settled, 2);
	assert_false(A.troubled);
	assert_string_equal(stored("q1", "a", NULL), "pg:1={} pg:2={}");
}

/* ---- the group ---- */

static void
on_up(void *arg, enum connpipe_kind kind, struct span body)
{
	int64_t parts[CONNPIPE_PARTS_MAX], queue_id;
	size_t n;

	(void)arg;
	if (kind != CONNPIPE_ANNOUNCE)
		return;
	assert_true(connpipe_read_parts(body, &queue_id, parts, &n));
	/* of a test before this one perhaps */
	if (queue_id != heard.queue_id)
		heard.parts_n = 0;
	heard.queue_id = queue_id;
	heard.parts_n += n;
	heard.part = parts[0];
}

static void
on_pipe_end(void *arg)
{
	(void)arg;
}

static void
on_stop(void *arg, int64_t grace_ms)
{
	(void)arg;
	(void)grace_ms;
}

static void
write_nothing(void *arg, struct jwrite *w)
{
	(void)arg;
	(void)w;
}

static int
open_child(void)
{
	static const char doc[] =
		"{\"kind\":\"source\",\"enabled\":true,\"connection\":"
		"{\"host\":\"127.0.0.1\",\"database\":\"d\",\"user\":\"u\"},"
		"\"source\":{\"tables\":[{\"table\":\"t\",\"queue\":\"q\"}]}}";
	struct connchild_face face = { .on_stop = on_stop,
		.write_detail = write_nothing,
		.write_metrics = write_nothing };
	struct connpipe_events ev = { .on_frame = on_up,
		.on_end = on_pipe_end };
	struct connpipe_task t = { .tenant = tenant,
		.version = 1,
		.grace_ms = 1000,
		.name = SPAN_LIT("s"),
		.node = SPAN_LIT("n"),
		.cell_tag = SPAN_LIT("0123456789ab"),
		.doc = span_of(doc) };
	struct buf b = BUF_ZERO;
	struct err e = ERR_ZERO;
	int fds[2];

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0,
		    fds) != 0)
		return -1;
	parent = connpipe_new(loop, fds[0], &ev);
	connpipe_write_task(&b, &t);
	connpipe_send(parent, CONNPIPE_TASK, buf_span(&b));
	connpipe_flush(parent, 1000);
	child = connchild_open(loop, fds[1], &face, &e);
	if (!child)
		fprintf(stderr, "child: %s\n", e.text);
	buf_fini(&b);
	return child ? 0 : -1;
}

static void
open_end(struct owner_end *o, struct loop *l, const char *more)
{
	loop = o->loop = l;
	o->x = (struct ctx){ .loop = l,
		.child = child,
		.task = connchild_task(child),
		.pointer_key = SPAN_LIT("src:s:pointer") };
	unit_queue_init(&o->queue);
	o->x.work = link_new(server.conninfo, more);
	o->x.side = link_new(server.conninfo, NULL);
	loop = first_loop;
}

static int
start(void **state)
{
	struct err e = ERR_ZERO;

	if (cell_start(state) != 0 || seal_new(KEY, NULL, &ring, &e) != 0)
		return -1;
	first_loop = loop;
	if (open_child() != 0)
		return -1;
	value_of("create function slow() returns trigger language plpgsql as "
		 "'begin perform pg_advisory_xact_lock_shared(77); "
		 "return null; end'");
	open_end(&A, loop, NULL);
	open_end(&F, loop_new(),
		"set idle_in_transaction_session_timeout = '300ms'");
	return 0;
}

static int
stop(void **state)
{
	pgconn_free(A.x.work);
	pgconn_free(A.x.side);
	pgconn_free(F.x.work);
	pgconn_free(F.x.side);
	loop_free(F.loop);
	connchild_free(child);
	connpipe_free(parent);
	seal_free(ring);
	return cell_stop(state);
}

static int
clean(void **state)
{
	(void)state;
	loop = first_loop;
	end_use(&A);
	end_use(&F);
	value_of("truncate queen.kv, queen.segments, queen.segment_ids, "
		 "queen.partitions, queen.partition_heads, queen.queues");
	return 0;
}

#define T(name) cmocka_unit_test_teardown(name, clean)

int
main(void)
{
	const struct CMUnitTest tests[] = {
		T(test_a_bundle),
		T(test_others_are_told),
		T(test_lost_answer_of_the_first),
		T(test_lost_answer),
		T(test_a_commit_that_failed),
		T(test_a_frozen_owner),
		T(test_precondition),
		T(test_encryption),
		T(test_gone),
		T(test_maintenance),
		T(test_too_large),
		T(test_freed_in_flight),
		T(test_50000_partitions),
		T(test_the_cell_restarts),
	};

	return cmocka_run_group_tests(tests, start, stop);
}

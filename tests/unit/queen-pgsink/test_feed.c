/* SPDX-License-Identifier: Apache-2.0 */
/* The queue's side of a sink against a cell: claims, acks, sealed ones. */
#include "feed_fix.h"

/* ---- pop, extend, ack ---- */

static void
test_a_pop_is_leased_extended_acked_and_the_cursor_moves(void **state)
{
	const char *q = new_queue();
	struct feed_batch *got;

	(void)state;
	push(q, "zebra", 0, 3);
	push(q, "ant", 0, 2);
	node_open(a, q, 0, 0);
	got = pop();
	assert_int_equal(a->watches, 1);
	assert_int_equal(a->watched,
		number("select id from queen.queues where name = '%s'", q));
	/* by id, not by name; exact digits; the segment's time */
	assert_int_equal(got->parts_n, 2);
	assert_int_equal(got->n, 5);
	assert_part(got, 0, q, "zebra", 0, 3);
	assert_part(got, 1, q, "ant", 0, 2);
	int64_t zebra = got->parts[0].id, ant = got->parts[1].id;

	assert_int_equal(got->messages[0].created_at_us,
		number("select extract(epoch from created_at) * 1000000"
		       " from queen.segments where partition_id = %lld",
			(long long)zebra));
	assert_int_equal(got->group_id,
		number("select g.id from queen.groups g join queen.queues q on"
		       " q.id = g.queue_id where q.name = '%s'",
			q));
	assert_string_equal(consumer(zebra), "-1|t|0");
	/* the lease ends later when it is extended */
	static const char until[] =
		"select extract(epoch from expires_at) * 1000000"
		" from queen.consumers where partition_id = %lld";
	int64_t was_ms = got->lease_until_ms,
		was = number(until, (long long)ant);

	assert_in_range(was_ms, clk_mono_ms() + 50000, clk_mono_ms() + 60000);
	feed_extend(a->x.feed, got, on_extend, a);
	run_until(a_extended);
	assert_true(a->extended);
	assert_true(number(until, (long long)ant) > was);
	assert_true(got->lease_until_ms > was_ms);
	assert_int_equal(ack_all(got), 0);
	assert_string_equal(consumer(zebra), "2|f|0");
	assert_string_equal(consumer(ant), "1|f|0");
	/* nothing is asked while nothing is marked */
	feed_pop(a->x.feed, on_batch, a);
	run_until(a_is_idle);
	assert_int_equal(hot_count(a->x.feed->hot), 0);
	assert_int_equal(pgconn_pending(a->x.work), 0);
	push(q, "ant", 2, 1);
	feed_mark(a->x.feed, &ant, 1);
	run_until(a_got);
	got = take_batch(a);
	assert_int_equal(got->parts_n, 1);
	assert_part(got, 0, q, "ant", 2, 1);
	assert_int_equal(ack_all(got), 0);
	assert_string_equal(consumer(ant), "2|f|0");
}

static void
test_an_extension_of_what_is_over_says_so(void **state)
{
	const char *q = new_queue();
	struct feed_batch *got;

	(void)state;
	push(q, "p", 0, 1);
	node_open(a, q, 0, 0);
	got = pop();
	value("update queen.consumers set expires_at = clock_timestamp()"
	      " where partition_id = %lld",
		(long long)got->parts[0].id);
	feed_extend(a->x.feed, got, on_extend, a);
	run_until(a_extended);
	assert_false(a->extended);
	feed_batch_free(got);
}

static void
test_a_batch_is_bounded_by_messages_and_partitions(void **state)
{
	const char *q = new_queue();
	struct feed_batch *got;
	size_t parts = 0;

	(void)state;
	push(q, "dense", 0, 30);
	for (int i = 0; i < 70; i++) {
		char part[16];

		snprintf(part, sizeof(part), "p%02d", i);
		push(q, part, 0, 1);
	}
	node_open(a, q, 25, 0);
	got = pop();
	assert_int_equal(got->n, 25);
	assert_part(got, 0, q, "dense", 0, 25);
	ack_all(got);
	/* few fit, so few more are asked for the next time */
	assert_int_equal(a->x.feed->width, 4);
	while (parts < 71) {
		got = pop();
		assert_true(got->n <= 25);
		assert_true(got->parts_n <= FEED_CANDIDATES);
		for (size_t i = 1; i < got->parts_n; i++)
			assert_true(got->parts[i - 1].id < got->parts[i].id);
		parts += got->parts_n;
		ack_all(got);
	}
	assert_int_equal(parts, 71);
}

static void
test_a_dead_letter_ends_its_partition_and_the_tail_comes_at_once(void **state)
{
	const char *q = new_queue();
	struct feed_batch *got;
	struct buf frame = BUF_ZERO;

	(void)state;
	push(q, "bad", 0, 6);
	push(q, "good", 0, 2);
	push(q, "slow", 0, 3);
	push(q, "none", 0, 2);
	node_open(a, q, 0, 0);
	got = pop();
	assert_int_equal(got->parts_n, 4);
	hex_of(got->messages[2].frame, &frame);
	buf_putc(&frame, '\0');
	assert_int_equal(
		ack(got,
			(struct feed_result[]){
				{ 3, true, SPAN_LIT("22P02: no \xffnumber") },
				{ .done = 2 }, { .done = 1 }, { .done = 0 } }),
		1);
	assert_string_equal(
		value("select string_agg(concat_ws('|', d.partition_id,"
		      " d.group_name, d.message_offset, d.error, d.retries,"
		      " d.created_at = s.created_at, d.frame = %s), ',')"
		      " from queen.dead_letters d join queen.segments s"
		      " using (partition_id) where d.queue_id = %lld",
			frame.p, (long long)a->watched),
		value("select '%lld|g|2|22P02: no ?number|0|t|t'",
			(long long)part_id(q, "bad")));
	buf_fini(&frame);
	/* what was left is leased to nobody, and comes without a mark */
	got = pop();
	assert_int_equal(got->parts_n, 3);
	assert_part(got, 0, q, "bad", 3, 3);
	assert_part(got, 1, q, "slow", 1, 2);
	assert_part(got, 2, q, "none", 0, 2);
	assert_string_equal(consumer(part_id(q, "bad")), "2|t|0");
	assert_string_equal(consumer(part_id(q, "good")), "1|f|0");
	assert_string_equal(consumer(part_id(q, "slow")), "0|t|0");
	assert_string_equal(consumer(part_id(q, "none")), "-1|t|0");
	assert_int_equal(ack_all(got), 0);
	assert_string_equal(consumer(part_id(q, "bad")), "5|f|0");
}

/* ---- answers that are lost, acks that are refused ---- */

static bool
ack_is_blocked(void)
{
	return strcmp(value("select count(*) from pg_stat_activity where"
			    " wait_event_type = 'Lock' and query like"
			    " '%%ack_v1%%'"),
		       "1") == 0;
}

static void
test_an_ack_whose_answer_is_lost_is_sent_again(void **state)
{
	const char *q = new_queue();
	PGconn *other = pgserver_connect(&server, "postgres");
	struct feed_batch *got;
	char lock[128];

	(void)state;
	push(q, "p", 0, 4);
	push(q, "r", 0, 1);
	node_open(a, q, 0, 0);
	got = pop();
	pgserver_value(other, "begin");
	snprintf(lock, sizeof(lock),
		"select 1 from queen.consumers where partition_id = %lld"
		" for update",
		(long long)got->parts[0].id);
	pgserver_value(other, lock);
	feed_ack(a->x.feed, got,
		(struct feed_result[]){
			{ 2, true, SPAN_LIT("payload: no") }, { .done = 1 } },
		on_ack, a);
	run_until(ack_is_blocked);
	/* the link goes, the call goes on and commits */
	pgconn_reset(a->x.work);
	pgserver_value(other, "commit");
	run_until(a_acked);
	assert_int_equal(a->filed, 1);
	assert_string_equal(value("select count(*) from queen.dead_letters"
				  " where queue_id = %lld",
				    (long long)a->watched),
		"1");
	assert_string_equal(consumer(part_id(q, "r")), "0|f|0");
	feed_batch_free(got);
	got = pop();
	assert_int_equal(got->parts_n, 1);
	assert_part(got, 0, q, "p", 2, 2);
	feed_batch_free(got);
	PQfinish(other);
}

static void
test_a_refused_ack_leads_to_another_delivery(void **state)
{
	const char *q = new_queue();
	struct feed_batch *got;

	(void)state;
	push(q, "p", 0, 3);
	node_open(a, q, 0, 0);
	got = pop();
	value("update queen.consumers set expires_at = clock_timestamp()"
	      " where partition_id = %lld",
		(long long)got->parts[0].id);
	assert_int_equal(
		ack(got, (struct feed_result[]){ { 1, true, SPAN_LIT("no") } }),
		0);
	assert_string_equal(value("select count(*) from queen.dead_letters"
				  " where queue_id = %lld",
				    (long long)a->watched),
		"0");
	got = pop();
	assert_part(got, 0, q, "p", 0, 3);
	assert_int_equal(ack_all(got), 0);
	assert_string_equal(consumer(part_id(q, "p")), "2|f|0");
}

/* ---- what is sealed ---- */

static bool
a_complains(void)
{
	return a->complaints > 0;
}

static bool
block_is_filed(void)
{
	return *value("select 1 from queen.seal_blocks_v1('" TENANT
		      "') where queue_id = %lld",
		       (long long)a->watched) == '1';
}

static void
test_what_cannot_be_opened_is_left_alone(void **state)
{
	const char *q = new_queue();
	struct seal *ours, *theirs;
	struct err e = ERR_ZERO;
	struct feed_batch *got;

	(void)state;
	assert_int_equal(seal_new(K1, NULL, &ours, &e), 0);
	assert_int_equal(seal_new(K2, NULL, &theirs, &e), 0);
	push_what((struct pushed){ q, "theirs", 0, 2, theirs, 0 });
	push_what((struct pushed){ q, "ours", 0, 2, ours, 0 });
	push_what((struct pushed){ q, "torn", 0, 3, ours, 2 });
	push_what((struct pushed){ q, "lost", 0, 1, ours, 1 });
	node_open(a, q, 0, 0);
	a->x.seal = ours;
	got = pop();
	assert_int_equal(got->parts_n, 2);
	assert_part(got, 0, q, "ours", 0, 2);
	/* up to the message that was tampered with */
	assert_part(got, 1, q, "torn", 0, 1);
	struct span whole = got->messages[0].frame;
	struct frame f;

	assert_int_equal(frame_next(&whole, &f, &e), 1);
	assert_true(f.flags & FRAME_SEALED);
	ack_all(got);
	assert_string_equal(consumer(part_id(q, "ours")), "1|f|0");
	assert_string_equal(consumer(part_id(q, "torn")), "0|t|0");
	assert_string_equal(consumer(part_id(q, "theirs")), "-1|f|0");
	assert_string_equal(consumer(part_id(q, "lost")), "-1|t|0");
	assert_int_equal(a->complaints, 2);
	run_until(block_is_filed);
	assert_string_equal(
		value("select string_agg(concat_ws('|', partition, key_id, off,"
		      " damaged, instance), ',' order by key_id) from"
		      " queen.seal_blocks_v1('" TENANT
		      "') where queue_id = %lld and not damaged",
			(long long)a->watched),
		value("select 'theirs|%d|0|f|node-a'", seal_key_id(theirs)));
	node_close(a);
	/* what it says */
	node_open(a, q, 0, 0);
	feed_pop(a->x.feed, on_batch, a);
	run_until(a_complains);
	char want[64];

	snprintf(want, sizeof(want), "sealed with key id %d,",
		seal_key_id(theirs));
	assert_non_null(strstr(a->complaint.text, want));
	assert_non_null(strstr(a->complaint.text, "OLD_KEYS"));
	assert_string_equal(a->complaint.code, "queen");
	assert_int_equal(a->got_n, 0);
	node_close(a);
	seal_free(ours);
	seal_free(theirs);
}

/* ---- more than one ---- */

enum { MANY_PARTS = 40, MANY_EACH = 5 };

static struct {
	int seen[MANY_PARTS];
	int64_t first;
	int acked;
} many;

static void
on_many(void *arg, struct feed_batch *batch, const struct connfault *why);

static void
on_many_acked(void *arg, size_t filed)
{
	struct feed_batch *batch = arg;

	assert_int_equal(filed, 0);
	many.acked += (int)batch->n;
	feed_batch_free(batch);
}

static void
on_many(void *arg, struct feed_batch *batch, const struct connfault *why)
{
	struct node *n = arg;
	struct feed_result results[FEED_CANDIDATES] = { { 0 } };

	assert_null(why);
	for (size_t i = 0; i < batch->parts_n; i++) {
		const struct feed_part *p = &batch->parts[i];
		int at = (int)(p->id - many.first);

		/* the one before was acknowledged, so its row says where */
		assert_int_equal(
			batch->messages[p->first].offset, many.seen[at]);
		many.seen[at] += (int)p->n;
		results[i].done = p->n;
	}
	feed_ack(n->x.feed, batch, results, on_many_acked, batch);
	feed_pop(n->x.feed, on_many, n);
}

static bool
all_acked(void)
{
	return many.acked == MANY_PARTS * MANY_EACH * 2;
}

static bool
b_knows(void)
{
	return b->x.feed->group_id != 0 && !b->x.feed->walking;
}

static void
test_feeds_of_one_group_never_hold_one_partition_at_once(void **state)
{
	const char *q = new_queue();
	char part[16];

	(void)state;
	for (int i = 0; i < MANY_PARTS; i++) {
		snprintf(part, sizeof(part), "p%02d", i);
		push(q, part, 0, MANY_EACH);
	}
	many.first = part_id(q, "p00");
	assert_int_equal(part_id(q, "p39"), many.first + MANY_PARTS - 1);
	node_open(a, q, 7, 0);
	node_open(b, q, 7, 0);
	run_until(a_knows);
	run_until(b_knows);
	for (int i = 0; i < 2; i++) {
		feed_pop(a->x.feed, on_many, a);
		feed_pop(b->x.feed, on_many, b);
	}
	/* more of each while they are at it, told to both */
	for (int i = 0; i < MANY_PARTS; i++) {
		int64_t id = many.first + i;

		snprintf(part, sizeof(part), "p%02d", i);
		push(q, part, MANY_EACH, MANY_EACH);
		feed_mark(a->x.feed, &id, 1);
		feed_mark(b->x.feed, &id, 1);
	}
	run_until(all_acked);
	for (int i = 0; i < MANY_PARTS; i++)
		assert_int_equal(many.seen[i], MANY_EACH * 2);
	assert_string_equal(value("select count(*) from queen.consumers c join"
				  " queen.groups g on g.id = c.group_id where"
				  " g.queue_id = %lld and c.committed = %d",
				    (long long)a->watched, MANY_EACH * 2 - 1),
		"40");
}

/* ---- lives of queues, groups and cells ---- */

static void
test_a_queue_is_waited_for_and_followed_to_its_next_life(void **state)
{
	const char *q = new_queue();
	struct feed_batch *got;

	(void)state;
	node_open(a, q, 0, 0);
	feed_pop(a->x.feed, on_batch, a);
	run_until(a_fails);
	assert_string_equal(a->why.code, "queen");
	assert_true(a->why.retryable);
	assert_string_equal(a->why.text,
		value("select 'queue \"%s\" does not exist yet: push to it or"
		      " create it, the sink waits for it'",
			q));
	assert_int_equal(a->watches, 0);
	push(q, "p", 0, 2);
	feed_mark(a->x.feed, NULL, 0);
	run_until(a_got);
	assert_true(a_is_well());
	assert_int_equal(a->whys, 2);
	got = take_batch(a);
	assert_part(got, 0, q, "p", 0, 2);
	int64_t old_group = got->group_id, old_part = got->parts[0].id;

	assert_int_equal(a->watches, 1);
	value("select status from queen.queue_delete_v1('" TENANT "', '%s')",
		q);
	feed_pop(a->x.feed, on_batch, a);
	feed_mark(a->x.feed, NULL, 0);
	run_until(a_fails);
	/* an ack of the old life harms nobody */
	assert_int_equal(ack_all(got), 0);
	push(q, "p", 0, 3);
	feed_mark(a->x.feed, NULL, 0);
	run_until(a_got);
	got = take_batch(a);
	assert_part(got, 0, q, "p", 0, 3);
	assert_true(got->group_id > old_group);
	assert_true(got->parts[0].id > old_part);
	assert_int_equal(a->watches, 2);
	assert_int_equal(ack_all(got), 0);
	assert_string_equal(consumer(part_id(q, "p")), "2|f|0");
}

static void
test_a_group_that_was_deleted_begins_again(void **state)
{
	const char *q = new_queue();
	struct feed_batch *old, *got;

	(void)state;
	push(q, "p", 0, 2);
	node_open(a, q, 0, 0);
	ack_all(pop());
	push(q, "p", 2, 1);
	feed_mark(a->x.feed, (int64_t[]){ part_id(q, "p") }, 1);
	old = pop();
	assert_part(old, 0, q, "p", 2, 1);
	value("select group_id from queen.group_delete_v1('" TENANT
	      "', 'g', '%s', true)",
		q);
	/* found out by a claim that is told `gone`, without a word of others */
	hot_release_all(a->x.feed->hot);
	got = pop();
	assert_part(got, 0, q, "p", 0, 3);
	assert_true(got->group_id > old->group_id);
	assert_int_equal(a->watches, 1);
	assert_int_equal(ack_all(old), 0);
	assert_string_equal(consumer(got->parts[0].id), "-1|t|0");
	assert_int_equal(ack_all(got), 0);
	assert_string_equal(consumer(part_id(q, "p")), "2|f|0");
}

static void
test_a_new_group_takes_what_comes_after_it(void **state)
{
	const char *q = new_queue();
	struct feed_batch *got;

	(void)state;
	push(q, "p", 0, 2);
	node_open_from(a, q, 0, 0, CONNDOC_NEW);
	feed_pop(a->x.feed, on_batch, a);
	run_until(a_is_idle);
	push(q, "p", 2, 1);
	feed_mark(a->x.feed, (int64_t[]){ part_id(q, "p") }, 1);
	run_until(a_got);
	got = take_batch(a);
	assert_part(got, 0, q, "p", 2, 1);
	ack_all(got);
	node_close(a);
	/* of a queue that was waited for, everything */
	q = new_queue();
	node_open_from(a, q, 0, 0, CONNDOC_NEW);
	feed_pop(a->x.feed, on_batch, a);
	run_until(a_fails);
	push(q, "p", 0, 2);
	feed_mark(a->x.feed, NULL, 0);
	run_until(a_got);
	got = take_batch(a);
	assert_part(got, 0, q, "p", 0, 2);
	ack_all(got);
}

static void
test_a_delayed_queue_shows_its_messages_in_time(void **state)
{
	const char *q = new_queue();
	struct feed_batch *got;

	(void)state;
	push(q, "p", 0, 1);
	value("update queen.queues set delayed_processing_s = 1 where name ="
	      " '%s'",
		q);
	node_open(a, q, 0, 0);
	got = pop();
	assert_part(got, 0, q, "p", 0, 1);
	assert_string_equal(
		value("select clock_timestamp() - created_at between '1 s' and"
		      " '5 s' from queen.segments where partition_id = %lld",
			(long long)got->parts[0].id),
		"t");
	ack_all(got);
}

static bool
a_is_popping(void)
{
	return a->x.feed->call != NULL;
}

static bool
a_settled(void)
{
	return a->settled > 0;
}

static void
test_what_a_dropped_pop_leased_comes_back(void **state)
{
	const char *q = new_queue();
	struct feed_batch *got;
	struct feed_wait *w;

	(void)state;
	push(q, "p", 0, 2);
	push(q, "r", 0, 2);
	node_open(a, q, 0, 0);
	feed_settle(a->x.feed, on_settled, a);
	run_until(a_settled);
	w = feed_pop(a->x.feed, on_batch, a);
	run_until(a_is_popping);
	feed_cancel(w);
	a->settled = 0;
	feed_settle(a->x.feed, on_settled, a);
	run_until(a_settled);
	assert_int_equal(a->got_n, 0);
	assert_string_equal(consumer(part_id(q, "p")), "-1|f|0");
	assert_string_equal(consumer(part_id(q, "r")), "-1|f|0");
	assert_string_equal(
		value("select sum(attempts) from queen.consumers"
		      " where partition_id in (%lld, %lld)",
			(long long)part_id(q, "p"), (long long)part_id(q, "r")),
		"0");
	got = pop();
	assert_int_equal(got->parts_n, 2);
	ack_all(got);
}

static void
test_a_restart_of_the_cell_is_lived_through(void **state)
{
	const char *q = new_queue();
	struct feed_batch *got;

	(void)state;
	push(q, "p", 0, 2);
	node_open(a, q, 0, 0);
	got = pop();
	feed_pop(a->x.feed, on_batch, a);
	pgserver_stop(&server);
	PQfinish(sql);
	feed_mark(a->x.feed, (int64_t[]){ got->parts[0].id }, 1);
	a->acks = 0;
	feed_ack(a->x.feed, got, (struct feed_result[]){ { .done = 2 } },
		on_ack, a);
	feed_mark(a->x.feed, NULL, 0);
	run_until(a_fails);
	assert_string_equal(a->why.code, "queen");
	assert_true(a->why.retryable);
	pgserver_start(&server);
	sql = pgserver_connect(&server, "postgres");
	run_until(a_acked);
	feed_batch_free(got);
	assert_string_equal(consumer(part_id(q, "p")), "1|f|0");
	push(q, "p", 2, 1);
	feed_mark(a->x.feed, (int64_t[]){ part_id(q, "p") }, 1);
	run_until(a_got);
	got = take_batch(a);
	assert_part(got, 0, q, "p", 2, 1);
	ack_all(got);
	feed_pop(a->x.feed, on_batch, a);
	run_until(a_is_well);
}

#define FEED_TEST(name) cmocka_unit_test_teardown(name, teardown)

int
main(void)
{
	const struct CMUnitTest tests[] = {
		FEED_TEST(
			test_a_pop_is_leased_extended_acked_and_the_cursor_moves),
		FEED_TEST(test_an_extension_of_what_is_over_says_so),
		FEED_TEST(test_a_batch_is_bounded_by_messages_and_partitions),
		FEED_TEST(
			test_a_dead_letter_ends_its_partition_and_the_tail_comes_at_once),
		FEED_TEST(test_an_ack_whose_answer_is_lost_is_sent_again),
		FEED_TEST(test_a_refused_ack_leads_to_another_delivery),
		FEED_TEST(test_what_cannot_be_opened_is_left_alone),
		FEED_TEST(
			test_feeds_of_one_group_never_hold_one_partition_at_once),
		FEED_TEST(
			test_a_queue_is_waited_for_and_followed_to_its_next_life),
		FEED_TEST(test_a_group_that_was_deleted_begins_again),
		FEED_TEST(test_a_new_group_takes_what_comes_after_it),
		FEED_TEST(test_a_delayed_queue_shows_its_messages_in_time),
		FEED_TEST(test_what_a_dropped_pop_leased_comes_back),
		FEED_TEST(test_a_restart_of_the_cell_is_lived_through),
	};

	return cmocka_run_group_tests(tests, group_setup, group_teardown);
}

# SPDX-License-Identifier: Apache-2.0
"""210_pop.sql: claims, gates, limits; 230_lease.sql: leases by their id."""
import datetime

import pytest

from hotkit import Hot, g, hot, p, q, refused, together  # noqa: F401
from queenlib import OTHER_TENANT, TENANT
from sqlkit import at

pytestmark = pytest.mark.allpg
MIB = 1 << 20


def slices(rows):
    return [(r.cand, r.base, r.skip, r.take) for r in rows if r.verdict == 0]


def verdicts(rows):
    return [(r.req, r.cand, r.verdict) for r in rows]


def conflate(hot, group):
    hot.rows("update queen.groups set conflated = true where id = %s", group)


# Took

def test_a_batch_spans_segments_and_stops_at_the_budget(hot, p, g):
    for n in (3, 2, 4):
        hot.push(p, n, now=at(0))
    rows = hot.take(p, g, 7, budget=7, secs=30, now=at(10))
    assert slices(rows) == [(1, 0, 0, 3), (1, 3, 0, 2), (1, 5, 0, 2)]
    assert {(r.lease_at, r.lease_group, r.last, r.attempt, r.expires_at,
             r.at) for r in rows} == {(p, g, 8, 1, at(40), at(0))}
    assert [r.span for r in rows] == [7, None, None]
    row = hot.consumer(g, p)
    assert (row.committed, row.batch_end, row.lease_at, row.lease_group,
            row.lease_no, row.expires_at, row.acquired_at, row.attempts,
            row.attempt_offset, row.consumed) == (
                -1, 6, p, g, 7, at(40), at(10), 1, 0, 0)


def test_the_next_batch_begins_inside_a_segment(hot, p, g):
    hot.push(p, 5)
    hot.took(p, g, 1, budget=2)
    hot.rows("update queen.consumers set committed = 1, batch_end = null,"
             " lease_no = null, lease_at = null, expires_at = null")
    rows = hot.take(p, g, 2, budget=2)
    assert slices(rows) == [(1, 0, 2, 2)]
    assert (rows[0].span, rows[0].last) == (2, 4)


def test_the_budget_is_shared_in_the_order_of_candidates(hot, q, g):
    a, b, c, d = hot.parts(q, ["a", "b", "c", "d"])
    for x in (a, b, d):
        hot.push(x, 4)
    rows = hot.pop_all([dict(no=1, budget=6)],
                       [(1, d, g), (1, c, g), (1, a, g), (1, b, g)])
    assert slices(rows) == [(1, 0, 0, 4), (3, 0, 0, 2)]
    assert verdicts(rows) == [(1, 1, 0), (1, 2, 5), (1, 3, 0)]
    assert {r.lease_at for r in rows if r.verdict == 0} == {d}
    assert hot.consumer(g, b).lease_no is None


def test_width_caps_the_partitions_that_yield(hot, q, g):
    parts = hot.parts(q, ["a", "b", "c", "d"])
    for x in parts[1:]:
        hot.push(x)
    cands = [(1, x, g) for x in parts]
    rows = hot.pop_all([dict(no=1, width=2)], cands)
    assert verdicts(rows) == [(1, 1, 5), (1, 2, 0), (1, 3, 0)]
    rows = hot.pop_all([dict(no=2, width=0)], [(1, parts[3], g)])
    assert verdicts(rows) == [(1, 1, 0)]


def test_requests_of_one_call_are_served_apart(hot, q, g):
    a, b, c = hot.parts(q, ["a", "b", "c"])
    for x in (a, b, c):
        hot.push(x, 3)
    rows = hot.pop_all(
        [dict(no=11, budget=2), dict(no=12, auto=True), dict(no=13, secs=5)],
        [(3, c, g), (1, a, g), (2, b, g)], now=at(0))
    assert [(r.req, r.cand, r.take, r.lease_at, r.expires_at)
            for r in rows] == [(1, 2, 2, a, at(60)), (2, 3, 3, None, None),
                               (3, 1, 3, c, at(5))]
    assert [hot.consumer(g, x).lease_no for x in (a, b, c)] == [11, None, 13]


def test_lease_seconds_come_from_the_request_else_the_queue(hot, q, p, g):
    hot.option(q, lease_time_s=17)
    hot.push(p)
    assert hot.take(p, g, 1, secs=0, now=at(0))[0].expires_at == at(17)
    assert hot.take(p, g, 1, secs=3, now=at(17))[0].expires_at == at(20)


def test_a_lease_number_of_42_bits_is_kept(hot, p, g):
    hot.push(p)
    number = (1 << 42) - 1
    hot.took(p, g, number)
    assert hot.consumer(g, p).lease_no == number


def test_auto_ack_moves_the_cursor_and_leaves_no_lease(hot, p, g):
    hot.push(p, 5)
    assert hot.took(p, g, 1, budget=3, auto=True) == (0, 2, 1)
    row = hot.consumer(g, p)
    assert (row.committed, row.batch_end, row.lease_no, row.expires_at,
            row.consumed) == (2, None, None, None, 3)
    assert hot.took(p, g, 1, auto=True) == (3, 4, 1)
    assert [r.verdict for r in hot.take(p, g, 1, auto=True)] == [5]


def test_arrays_of_unequal_length_are_refused(hot, p, g):
    with refused("22023"):
        hot.rows("select queen.pop_v1(%s, '{1}', '{1}', '{1}', '{1}',"
                 " '{f,f}', '{1}', '{1}', '{1}', '{}')", TENANT)
    with refused("22023"):
        hot.rows("select queen.pop_v1(%s, '{1}', '{1}', '{1}', '{1}',"
                 " '{f}', '{1}', '{1,2}', '{1}', '{}')", TENANT)


# Not took

def test_a_live_lease_answers_until(hot, p, g):
    hot.push(p)
    hot.took(p, g, 1, now=at(0))
    (row,) = hot.take(p, g, 2, now=at(59))
    assert (row.verdict, row.until, row.base) == (1, at(60), None)
    assert hot.took(p, hot.group(hot.queue("q"), "h"), 3, now=at(59))


def test_an_expired_lease_is_taken_over(hot, p, g):
    hot.push(p, 2)
    hot.took(p, g, 1, now=at(0))
    assert hot.took(p, g, 2, now=at(60)) == (0, 1, 2)
    row = hot.consumer(g, p)
    assert (row.lease_no, row.last_lease_at, row.last_lease_no) == (2, p, 1)
    assert hot.took(p, g, 3, now=at(130), auto=True) == (0, 1, 1)
    row = hot.consumer(g, p)
    assert (row.lease_no, row.last_lease_no, row.retries) == (None, 2, 0)


def test_expiry_never_charges_the_budget(hot, p, g):
    hot.push(p)
    for n in range(4):
        assert hot.took(p, g, n, now=at(100 * n))[2] == n + 1
    assert hot.consumer(g, p).retries == 0


def test_the_attempt_counts_deliveries_of_one_start(hot, p, g):
    hot.push(p, 4)
    assert hot.took(p, g, 1, budget=2, now=at(0)) == (0, 1, 1)
    assert hot.took(p, g, 2, budget=4, now=at(100)) == (0, 3, 2)
    hot.rows("update queen.consumers set committed = 1, expires_at = null")
    assert hot.took(p, g, 3, now=at(200)) == (2, 3, 1)


def test_a_row_locked_by_another_session_is_locked_not_waited_for(
        db, hot, p, g):
    hot.push(p)
    hot.took(p, g, 1, now=at(0))
    other = db.connect(autocommit=False)
    with other.cursor() as cur:
        cur.execute("select 1 from queen.consumers for update")
        (row,) = hot.take(p, g, 2, now=at(100))
    assert (row.verdict, row.until) == (3, None)
    other.rollback()
    assert hot.took(p, g, 2, now=at(100))


def test_a_row_another_session_creates_is_locked(db, hot, p, g):
    hot.push(p)
    other = Hot(db.connect(autocommit=False))
    assert other.took(p, g, 1) == (0, 0, 1)
    assert [r.verdict for r in hot.take(p, g, 2)] == [3]
    other.conn.rollback()
    assert hot.took(p, g, 2) == (0, 0, 1)
    assert hot.value("select count(*) from queen.consumers") == 1


def test_empty_partitions_answer_empty(hot, p, g):
    assert [r.verdict for r in hot.take(p, g, 1)] == [5]
    hot.push(p)
    hot.took(p, g, 1, auto=True)
    assert [r.verdict for r in hot.take(p, g, 1)] == [5]


def test_what_does_not_exist_is_gone(hot, q, p, g):
    hot.push(p)
    assert [r.verdict for r in hot.take(p + 1000, g, 1)] == [6]
    assert [r.verdict for r in hot.take(p, g + 1000, 1)] == [6]
    assert [r.verdict for r in hot.pop_all(
        [dict(no=1)], [(1, p, g)], tenant=OTHER_TENANT)] == [6]
    elsewhere = hot.part(hot.queue("other"), "x")
    hot.push(elsewhere)
    assert [r.verdict for r in hot.take(elsewhere, g, 1)] == [6]
    hot.rows("update queen.groups set deleted_at = now() where id = %s", g)
    assert [r.verdict for r in hot.take(p, g, 1)] == [6]
    h = hot.group(q, "h")
    hot.option(q, deleted_at=at(0))
    assert [r.verdict for r in hot.take(p, h, 1)] == [6]
    assert hot.value("select count(*) from queen.consumers") == 0


def test_after_a_retention_gap_the_next_message_is_delivered(hot, p, g):
    hot.push(p, 3)
    hot.took(p, g, 1, budget=1, auto=True)
    for n in range(3):
        hot.push(p, 2)
    hot.drop_segments(p, 4)
    assert hot.took(p, g, 2, budget=3, now=at(0)) == (5, 7, 1)
    row = hot.consumer(g, p)
    assert (row.committed, row.batch_end, row.attempt_offset) == (0, 7, 5)
    hot.drop_segments(p, 8)
    assert [r.verdict for r in hot.take(p, g, 3, now=at(100))] == [5]


# First contact

def test_a_group_starts_at_the_log_or_at_its_time(hot, q, p):
    for t in (10, 20, 30):
        hot.push(p, 2, now=at(t))
    every = hot.group(q, "every")
    assert hot.took(p, every, 1) == (0, 5, 1)
    since = hot.group(q, "since", "timestamp", at(20))
    assert hot.took(p, since, 1) == (2, 5, 1)
    late = hot.group(q, "late", "timestamp", at(10.5))
    assert hot.took(p, late, 1) == (2, 5, 1)
    new = hot.group(q, "new", "new", now=at(35))
    assert [r.verdict for r in hot.take(p, new, 1)] == [5]
    assert hot.consumer(new, p).committed == 5
    hot.push(p, 1, now=at(40))
    assert hot.took(p, new, 1) == (6, 6, 1)


def test_a_new_group_gets_all_of_a_partition_made_later(hot, q):
    new = hot.group(q, "new", "new", now=at(5))
    later = hot.part(q, "later")
    hot.push(later, 3, now=at(6))
    assert hot.took(later, new, 1) == (0, 2, 1)


def test_a_group_starts_behind_what_retention_removed(hot, q, p):
    hot.push(p, 2, now=at(10))
    hot.push(p, 2, now=at(20))
    hot.drop_segments(p, 1)
    g = hot.group(q, "g")
    assert hot.took(p, g, 1) == (2, 3, 1)
    assert hot.consumer(g, p).committed == 1
    old = hot.group(q, "old", "timestamp", at(1))
    assert hot.took(p, old, 1) == (2, 3, 1)
    hot.drop_segments(p, 3)
    for mode, start in (("all", None), ("timestamp", at(1)), ("new", None)):
        group = hot.group(q, "empty " + mode, mode, start)
        assert [r.verdict for r in hot.take(p, group, 1)] == [5]
        assert hot.consumer(group, p).committed == 3


def test_first_contact_and_known_rows_share_one_budget(hot, q, g):
    a, b = hot.parts(q, ["a", "b"])
    hot.push(a, 3)
    hot.push(b, 3)
    hot.took(b, g, 1, budget=1, auto=True)
    rows = hot.pop_all([dict(no=2, budget=4)], [(1, a, g), (1, b, g)])
    assert slices(rows) == [(1, 0, 0, 3), (2, 0, 1, 1)]


# delayedProcessing and windowBuffer

def test_delayed_messages_are_hidden_until_their_time(hot, q, p, g):
    hot.option(q, delayed_processing_s=10)
    hot.push(p, 1, now=at(0))
    hot.push(p, 2, now=at(5))
    hot.push(p, 3, now=at(6))
    (row,) = hot.take(p, g, 1, now=at(9.9))
    assert (row.verdict, row.until, row.last) == (2, at(10), 5)
    assert hot.took(p, g, 1, now=at(10), auto=True) == (0, 0, 1)
    rows = hot.take(p, g, 1, now=at(15.5), auto=True)
    assert slices(rows) == [(1, 1, 0, 2)] and rows[0].last == 5
    (row,) = hot.take(p, g, 1, now=at(15.5))
    assert (row.verdict, row.until) == (2, at(16))
    assert hot.took(p, g, 1, now=at(16)) == (3, 5, 1)


def test_hidden_messages_take_no_budget_from_others(hot, q, g):
    hot.option(q, delayed_processing_s=10)
    a, b = hot.parts(q, ["a", "b"])
    hot.push(a, 1, now=at(0))
    hot.push(a, 50, now=at(9))
    hot.push(b, 5, now=at(0))
    rows = hot.pop_all([dict(no=1, budget=4)], [(1, a, g), (1, b, g)],
                       now=at(10))
    assert slices(rows) == [(1, 0, 0, 1), (2, 0, 0, 3)]


def test_the_window_opens_when_the_oldest_pending_is_old_enough(
        hot, q, p, g):
    hot.option(q, window_buffer_s=10)
    for t in range(0, 11, 2):
        hot.push(p, 1, now=at(t))
    (row,) = hot.take(p, g, 1, now=at(9.9))
    assert (row.verdict, row.until) == (2, at(10))
    # written more often than the window, and delivered all the same
    assert hot.took(p, g, 1, now=at(10)) == (0, 5, 1)


def test_the_window_opens_at_100_pending(hot, q, p, g):
    hot.option(q, window_buffer_s=10)
    hot.push(p, 99, now=at(0))
    (row,) = hot.take(p, g, 1, now=at(1))
    assert (row.verdict, row.until) == (2, at(10))
    hot.push(p, 1, now=at(1))
    assert hot.took(p, g, 1, now=at(1)) == (0, 99, 1)


def test_the_window_counts_from_what_is_pending(hot, q, p, g):
    hot.option(q, window_buffer_s=10)
    hot.push(p, 60, now=at(0))
    assert hot.took(p, g, 1, now=at(10), auto=True) == (0, 59, 1)
    hot.push(p, 60, now=at(11))
    (row,) = hot.take(p, g, 1, now=at(12))
    assert (row.verdict, row.until) == (2, at(21))


def test_window_and_delay_both_hold(hot, q, p, g):
    hot.option(q, window_buffer_s=10, delayed_processing_s=4)
    hot.push(p, 1, now=at(0))
    (row,) = hot.take(p, g, 1, now=at(5))
    assert (row.verdict, row.until) == (2, at(10))
    hot.push(p, 1, now=at(9))
    assert hot.took(p, g, 1, now=at(10), auto=True) == (0, 0, 1)
    hot.option(q, window_buffer_s=2, delayed_processing_s=30)
    (row,) = hot.take(p, g, 1, now=at(12))
    assert (row.verdict, row.until) == (2, at(39))
    hot.option(q, window_buffer_s=60, delayed_processing_s=1)
    hot.push(p, 99, now=at(12))
    assert hot.took(p, g, 1, now=at(12.5), auto=True) == (1, 1, 1)


# Conflation

def test_conflation_delivers_the_newest_and_leases_the_span(hot, p, g):
    conflate(hot, g)
    hot.push(p, 3)
    hot.push(p, 4)
    rows = hot.take(p, g, 1, now=at(0))
    assert slices(rows) == [(1, 3, 3, 1)]
    assert (rows[0].span, rows[0].last) == (7, 6)
    row = hot.consumer(g, p)
    assert (row.committed, row.batch_end, row.conflated) == (-1, 6, True)
    hot.push(p, 1)
    rows = hot.take(p, g, 2, now=at(100))
    # the span still begins at the same offset: another attempt at it
    assert (rows[0].base, rows[0].span, rows[0].attempt) == (7, 8, 2)
    assert hot.take(p, g, 3, now=at(200))[0].attempt == 3


def test_conflation_with_a_delay_delivers_the_newest_visible(hot, q, p, g):
    conflate(hot, g)
    hot.option(q, delayed_processing_s=10)
    for t in (0, 3, 6):
        hot.push(p, 2, now=at(t))
    (row,) = hot.take(p, g, 1, now=at(9))
    assert (row.verdict, row.until) == (2, at(10))
    rows = hot.take(p, g, 1, now=at(13))
    assert slices(rows) == [(1, 2, 1, 1)]
    assert (rows[0].span, rows[0].last) == (4, 5)
    assert hot.consumer(g, p).batch_end == 3


def test_conflation_with_a_window_waits_for_the_oldest(hot, q, p, g):
    conflate(hot, g)
    hot.option(q, window_buffer_s=10)
    hot.push(p, 1, now=at(0))
    hot.push(p, 1, now=at(9))
    assert hot.take(p, g, 1, now=at(9))[0].until == at(10)
    rows = hot.take(p, g, 1, now=at(10))
    assert (slices(rows), rows[0].span) == ([(1, 1, 0, 1)], 2)


def test_conflation_takes_one_message_of_the_budget_per_partition(hot, q, g):
    conflate(hot, g)
    parts = hot.parts(q, ["a", "b", "c"])
    for x in parts:
        hot.push(x, 10)
    rows = hot.pop_all([dict(no=1, budget=2)], [(1, x, g) for x in parts])
    assert slices(rows) == [(1, 0, 9, 1), (2, 0, 9, 1)]


# Bytes and keys

def test_a_request_stops_at_16_mib_of_frames(hot, q, g):
    a, b = hot.parts(q, ["a", "b"])
    for n in range(3):
        hot.push(a, 1, raw=6 * MIB)
    hot.push(b, 1, raw=1)
    rows = hot.pop_all([dict(no=1), dict(no=2)], [(1, a, g), (2, b, g)])
    assert slices(rows) == [(1, 0, 0, 1), (1, 1, 0, 1), (2, 0, 0, 1)]
    assert hot.consumer(g, a).batch_end == 1
    c = hot.part(q, "c")
    hot.push(c, 1, raw=4 * MIB)
    hot.push(c, 1, raw=12 * MIB)
    assert len(hot.take(c, g, 3)) == 2


def test_one_segment_always_passes(hot, q, g):
    a, b = hot.parts(q, ["a", "b"])
    hot.push(a, 1, raw=40 * MIB)
    hot.push(a, 1, raw=1)
    hot.push(b, 1, raw=1)
    rows = hot.pop_all([dict(no=1)], [(1, a, g), (1, b, g)])
    assert slices(rows) == [(1, 0, 0, 1)]
    assert hot.consumer(g, b).lease_no is None


def test_what_no_key_opens_is_blocked_and_not_claimed(hot, q, p, g):
    hot.push(p, 1, key=3)
    (row,) = hot.take(p, g, 1, keys=[1, 2])
    assert (row.verdict, row.base, row.blob) == (4, 0, None)
    assert hot.consumer(g, p).lease_no is None
    assert slices(hot.take(p, g, 1, keys=[2, 3])) == [(1, 0, 0, 1)]


def test_a_batch_ends_before_a_segment_no_key_opens(hot, p, g):
    hot.push(p, 2)
    hot.push(p, 1, key=9)
    hot.push(p, 1)
    assert hot.took(p, g, 1, auto=True) == (0, 1, 1)
    assert [r.verdict for r in hot.take(p, g, 1)] == [4]


# Leases over several partitions and groups

def test_a_lease_over_two_queues_carries_the_first_group(hot, q, g):
    a = hot.part(q, "a")
    q2 = hot.queue("q2")
    b, h = hot.part(q2, "b"), hot.group(q2, "g")
    hot.option(q2, lease_time_s=7)
    hot.push(a)
    hot.push(b)
    rows = hot.pop_all([dict(no=5, secs=0)], [(1, b, h), (1, a, g)],
                       now=at(0))
    assert [(r.lease_at, r.lease_group, r.expires_at) for r in rows] == [
        (b, h, at(7)), (b, h, at(60))]
    for group, part in ((g, a), (h, b)):
        row = hot.consumer(group, part)
        assert (row.lease_at, row.lease_group, row.lease_no) == (b, h, 5)
    assert extend(hot, b, h, 5, 100, at(1)) == (2, at(101))


def extend(hot, part, group, no, secs, now, tenant=TENANT):
    return hot.rows("select * from queen.lease_extend_v1(%s, %s, %s, %s, %s,"
                    " %s)", tenant, part, group, no, secs, now)[0]


def live(hot, leases, now):
    return [r[0] for r in hot.rows(
        "select live from queen.leases_live_v1(%s, %s::bigint[],"
        " %s::bigint[], %s::bigint[], %s) order by ord", TENANT,
        [v[0] for v in leases], [v[1] for v in leases],
        [v[2] for v in leases], now)]


def test_extend_renews_live_leases_and_never_shortens(hot, p, g):
    hot.push(p)
    hot.took(p, g, 1, secs=50, now=at(0))
    assert extend(hot, p, g, 1, 10, at(5)) == (1, at(50))
    assert extend(hot, p, g, 1, 60, at(5)) == (1, at(65))
    assert hot.consumer(g, p).expires_at == at(65)
    assert extend(hot, p, g, 1, -9, at(64.5)) == (1, at(65.5))
    assert extend(hot, p, g, 1, 60, at(66)) == (0, None)
    assert extend(hot, p, g, 2, 60, at(6)) == (0, None)
    assert extend(hot, p, g, 1, 60, at(6), OTHER_TENANT) == (0, None)


def test_a_lease_lives_on_without_its_first_partition(hot, q, g):
    a, b = hot.parts(q, ["a", "b"])
    hot.push_one(a, ["a"])
    hot.push_one(b, ["b"])
    hot.pop_all([dict(no=1)], [(1, a, g), (1, b, g)], now=at(0))
    assert live(hot, [(a, g, 1), (b, g, 1)], at(1)) == [True, False]
    assert hot.ack(a, g, 1, ["a"], now=at(2)).verdict == 0
    hot.push(a)
    hot.took(a, g, 2, now=at(3))
    assert extend(hot, a, g, 1, 100, at(4)) == (1, at(104))
    assert hot.consumer(g, a).expires_at == at(63)
    assert live(hot, [(a, g, 1), (a, g, 2), (a, g, 3)],
                at(5)) == [True, True, False]
    row = hot.ack(b, g, 1, ["b"], lease=(a, g, 1), now=at(90))
    assert row.verdict == 0
    assert live(hot, [(a, g, 1)], at(90)) == [False]
    assert extend(hot, a, g, 1, 100, at(90)) == (0, None)


def test_lists_of_ended_leases_are_swept(hot, q, g):
    a, b = hot.parts(q, ["a", "b"])
    hot.push(a)
    hot.push(b)
    hot.pop_all([dict(no=1)], [(1, a, g), (1, b, g)], now=at(0))
    sweep = "select queen.lease_sweep_v1(%s, %s)"
    assert hot.value(sweep, 10, at(600)) == 0
    assert hot.value(sweep, 0, at(100000)) == 0
    assert hot.value(sweep, 10, at(100000)) == 1
    assert hot.value("select count(*) from queen.lease_sets") == 0


def test_the_generation_moves_every_32_changes(hot, p, g):
    hot.push(p, 200)
    for n in range(70):
        hot.took(p, g, n, budget=1, auto=True)
    row = hot.consumer(g, p)
    assert (row.gen, row.turn, row.committed) == (2, 70, 69)
    assert hot.value("select count(*) from queen.consumers") == 1


# Sessions at once

def test_of_eight_pops_at_once_one_leases(db, hot, q, g):
    parts = hot.parts(q, ["p%d" % i for i in range(10)])
    ones = [Hot(db.connect()) for _ in range(8)]
    for known in (False, True):
        for x in parts:
            hot.push(x)
        now = datetime.datetime.now(datetime.timezone.utc) \
            + datetime.timedelta(hours=int(known))
        for x in parts:
            rows = together(8, lambda i: ones[i].take(x, g, i, now=now))
            found = sorted(r[0].verdict for r in rows)
            assert found[0] == 0 and set(found[1:]) <= {1, 3}, found
    assert hot.value("select count(*) from queen.consumers") == 10


def test_auto_acks_at_once_deliver_everything_once(db, hot, q, g):
    parts = hot.parts(q, ["a", "b", "c"])
    for x in parts:
        for n in range(30):
            hot.push(x, 3)
    ones = [Hot(db.connect()) for _ in range(6)]

    def drain(i):
        got = []
        while True:
            rows = ones[i].pop_all([dict(no=1, budget=7, auto=True)],
                                   [(1, x, g) for x in parts[i % 3:]
                                    + parts[:i % 3]])
            got += [(parts[(i + r.cand - 1) % 3], r.base + r.skip + k)
                    for r in rows if r.verdict == 0 for k in range(r.take)]
            if [r.verdict for r in rows] == [5, 5, 5]:
                return got

    got = sum(together(6, drain), [])
    assert sorted(got) == [(x, o) for x in sorted(parts) for o in range(90)]


def test_first_pops_of_many_groups_do_not_deadlock(db, hot):
    """200 first pops of 50 groups over 20 queues: each seeded once."""
    queues = [hot.queue("q%d" % i) for i in range(20)]
    parts = [hot.parts(x, ["a", "b", "c"]) for x in queues]
    for three in parts:
        for x in three:
            hot.push(x, 2, now=at(0))
    ones = [Hot(db.connect()) for _ in range(20)]

    def contact(i):
        won = 0
        for n in range(10):
            k = (i + n) % 20
            order = [k, (k + 7) % 20]
            names = ["g%d" % ((i * 10 + n) % 50)] * 2
            groups = [r[0] for r in ones[i].rows(
                "select id from queen.group_register_v1(%s, %s, %s,"
                " array['all', 'all'], array[null, null]::timestamptz[],"
                " array[false, false]) order by ord", TENANT,
                [queues[x] for x in order], names)]
            rows = ones[i].pop_all(
                [dict(no=i * 10 + n)],
                [(1, part, groups[j]) for j, x in enumerate(order)
                 for part in parts[x]])
            won += sum(r.verdict == 0 for r in rows)
        return won

    won = sum(together(20, contact))
    seeded = hot.value("select count(*) from queen.consumers")
    assert seeded == hot.value(
        "select count(distinct (group_id, partition_id)) from queen.consumers")
    assert won == hot.value("select count(*) from queen.consumers"
                            " where lease_no is not null") <= seeded

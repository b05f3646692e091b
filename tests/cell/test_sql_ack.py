# SPDX-License-Identifier: Apache-2.0
"""220_ack.sql: the ack table, its paths, its races."""
import datetime
import uuid

import pytest

from hotkit import Hot, g, hot, items, p, q, refused, together  # noqa: F401
from queenlib import OTHER_TENANT, TENANT
from sqlkit import at, mid

pytestmark = pytest.mark.allpg
RELEASED, KEPT, NO_ROW, STALE, NEEDS_FRAME, GONE = range(6)


@pytest.fixture
def five(hot, p, g):
    """Five messages a..e in two segments, leased as number 1 at 0 s."""
    hot.push_one(p, ["a", "b"], now=at(0))
    hot.push_one(p, ["c", "d", "e"], now=at(0))
    assert hot.took(p, g, 1, now=at(0)) == (0, 4, 1)


def state(hot, g, p):
    row = hot.consumer(g, p)
    return row.committed, row.batch_end, row.lease_no, row.retries


# Completed

def test_the_whole_batch_releases(hot, p, g, five):
    row = hot.ack(p, g, 1, "abcde", now=at(1))
    assert (row.verdict, row.committed, row.items, row.more) == (
        RELEASED, 4, None, False)
    c = hot.consumer(g, p)
    assert (c.committed, c.batch_end, c.lease_at, c.lease_group, c.lease_no,
            c.expires_at, c.attempts, c.attempt_offset, c.consumed,
            c.last_lease_at, c.last_lease_no) == (
                4, None, None, None, None, None, 0, None, 5, p, 1)


def test_more_tells_of_messages_behind_the_batch(hot, p, g, five):
    hot.push_one(p, ["f"], now=at(1))
    assert hot.ack(p, g, 1, "abcde", now=at(1)).more is True


def test_the_last_message_completes_the_batch(hot, p, g, five):
    row = hot.ack(p, g, 1, "e", now=at(1))
    assert (row.verdict, row.committed, items(row)) == (
        RELEASED, 4, ["success"])
    assert hot.consumer(g, p).consumed == 5


def test_the_middle_completes_what_is_before_and_keeps_the_lease(
        hot, p, g, five):
    row = hot.ack(p, g, 1, "c", now=at(1))
    assert (row.verdict, row.committed, row.more) == (KEPT, 2, False)
    assert state(hot, g, p) == (2, 4, 1, 0)
    assert hot.took(p, g, 2, now=at(100)) == (3, 4, 2)


def test_an_acked_prefix_keeps_the_lease_and_the_tail_is_attempt_2(
        hot, p, g, five):
    row = hot.ack(p, g, 1, "abc", now=at(1))
    assert (row.verdict, row.committed, row.items) == (KEPT, 2, None)
    row = hot.consumer(g, p)
    assert (row.attempt_offset, row.attempts, row.expires_at) == (
        3, 1, at(60))
    assert hot.took(p, g, 2, now=at(100)) == (3, 4, 2)


def test_any_order_of_a_complete_batch_releases(hot, p, g, five):
    row = hot.ack(p, g, 1, "ecadb", now=at(1))
    assert (row.verdict, row.committed) == (RELEASED, 4)
    assert items(row) == ["success"] * 5


def test_an_id_sent_twice_completes_as_once(hot, p, g, five):
    row = hot.ack(p, g, 1, "aabb", now=at(1))
    assert (row.verdict, row.committed) == (KEPT, 1)
    assert items(row) == ["success"] * 4


def test_the_kth_occurrence_takes_the_kth_match(hot, p, g):
    hot.push_one(p, "aba", now=at(0))
    hot.took(p, g, 1, now=at(0))
    row = hot.ack(p, g, 1, "baa", now=at(1))
    assert (row.verdict, row.committed, items(row)) == (
        RELEASED, 2, ["success"] * 3)
    hot.push_one(p, "aba", now=at(2))
    hot.took(p, g, 2, now=at(2))
    row = hot.ack(p, g, 2, "a", now=at(3))
    assert (row.verdict, row.committed) == (KEPT, 3)
    row = hot.ack(p, g, 2, "baaa", now=at(3))
    assert (row.verdict, row.committed) == (RELEASED, 5)


def test_a_batch_larger_than_a_segment_is_positional(hot, p, g):
    texts = ["n%d" % i for i in range(600)]
    hot.push_one(p, texts[:250], now=at(0))
    hot.push_one(p, texts[250:], now=at(0))
    assert hot.took(p, g, 1, budget=400, now=at(0)) == (0, 399, 1)
    row = hot.ack(p, g, 1, texts[:300], now=at(1))
    assert (row.verdict, row.committed, row.items) == (KEPT, 299, None)
    row = hot.ack(p, g, 1, texts[300:400], now=at(1))
    assert (row.verdict, row.committed, row.items, row.more) == (
        RELEASED, 399, None, True)


# Signals

def test_failed_stops_the_cursor_and_charges_one(hot, p, g, five):
    row = hot.ack(p, g, 1, "abcde", ["completed", "failed"]
                  + ["completed"] * 3, now=at(1))
    assert (row.verdict, row.committed, row.dead, row.more) == (
        RELEASED, 0, None, True)
    assert items(row) == ["success"] * 5
    assert state(hot, g, p) == (0, None, None, 1)
    assert hot.took(p, g, 2, now=at(1)) == (1, 4, 2)


def test_retry_is_free(hot, p, g, five):
    for n in range(6):
        row = hot.ack(p, g, n + 1, "a", "retry", now=at(1))
        assert (row.verdict, row.committed) == (RELEASED, -1)
        assert hot.consumer(g, p).retries == 0
        assert hot.took(p, g, n + 2, now=at(1)) == (0, 4, n + 2)


def test_the_lowest_signal_decides(hot, p, g, five):
    row = hot.ack(p, g, 1, "ecb", ["dlq", "failed", "retry"], now=at(1))
    assert (row.verdict, row.committed, row.dead) == (RELEASED, -1, None)
    assert hot.consumer(g, p).retries == 0


@pytest.mark.parametrize("words, dead, retries", [
    (["retry", "failed", "dlq"], 0, 0), (["retry", "failed"], None, 1),
    (["failed", "completed"], None, 1)])
def test_at_one_offset_dlq_then_failed_then_retry(hot, p, g, five, words,
                                                  dead, retries):
    row = hot.ack(p, g, 1, "a" * len(words), words, now=at(1),
                  frames=[(0, b"frame", at(0))])
    assert (row.verdict, row.dead) == (RELEASED, dead)
    assert hot.consumer(g, p).retries == retries


def test_the_budget_spent_files_a_dead_letter(hot, q, p, g, five):
    hot.option(q, retry_limit=1)
    hot.ack(p, g, 1, "a", "failed", now=at(1))
    hot.took(p, g, 2, now=at(1))
    row = hot.ack(p, g, 2, "ab", ["completed", "failed"], now=at(2),
                  errors={1: "boom"})
    assert (row.verdict, row.committed, row.off, row.base, row.blob) == (
        NEEDS_FRAME, -1, 1, 0, b"\x01\x00" + b"f" * 8)
    assert row.items is None
    assert state(hot, g, p) == (-1, 4, 2, 1)
    dead_id = uuid.uuid4()
    row = hot.ack(p, g, 2, "ab", ["completed", "failed"], now=at(3),
                  errors={1: "boom"}, frames=[(1, b"frame b", at(0))],
                  dead_id=dead_id)
    assert (row.verdict, row.committed, row.dead, row.dropped, row.more) == (
        RELEASED, 1, 1, None, True)
    assert state(hot, g, p) == (1, None, None, 0)
    (d,) = hot.named("select * from queen.dead_letters", [])
    assert (d.id, d.queue_id, d.partition_id, d.group_name, d.message_offset,
            d.id_hash, d.frame, d.error, d.retries, d.created_at,
            d.failed_at) == (str(dead_id), q, p, "g", 1, mid("b"), b"frame b",
                             "boom", 1, at(0), at(3))
    assert hot.took(p, g, 3, now=at(4)) == (2, 4, 1)


def test_a_frame_of_another_offset_is_asked_for_again(hot, p, g, five):
    row = hot.ack(p, g, 1, "b", "dlq", now=at(1),
                  frames=[(0, b"of a", at(0))])
    assert (row.verdict, row.off) == (NEEDS_FRAME, 1)
    row = hot.ack(p, g, 1, "b", "dlq", now=at(1),
                  frames=[(0, b"of a", at(0)), (1, b"of b", at(0))])
    assert (row.verdict, row.dead) == (RELEASED, 1)
    assert hot.value("select frame from queen.dead_letters").tobytes() \
        == b"of b"


def test_a_removed_message_is_filed_without_a_frame(hot, p, g, five):
    hot.drop_segments(p, 4)
    row = hot.ack(p, g, 1, "d", "dlq", now=at(1))
    assert (row.verdict, row.committed, row.dead, row.more) == (
        RELEASED, 3, 3, False)
    assert hot.rows("select frame, message_offset, created_at, error from"
                    " queen.dead_letters") == [(None, 3, at(0),
                                                "Retries exhausted")]


def test_dlq_bypasses_the_budget_and_the_flags(hot, q, p, g, five):
    hot.option(q, dead_letter_queue=False, dlq_after_max_retries=False)
    row = hot.ack(p, g, 1, "a", "dlq", now=at(1),
                  frames=[(0, b"x", at(0))])
    assert (row.verdict, row.dead, row.dropped) == (RELEASED, 0, None)
    assert hot.value("select retries from queen.dead_letters") == 0


@pytest.mark.parametrize("one, other", [(True, False), (False, True)])
def test_either_flag_keeps_dead_letters_on(hot, q, p, g, five, one, other):
    hot.option(q, retry_limit=0, dead_letter_queue=one,
               dlq_after_max_retries=other)
    assert hot.ack(p, g, 1, "a", "failed", now=at(1)).verdict == NEEDS_FRAME


def test_with_dead_letters_off_the_message_is_dropped(hot, q, p, g, five):
    hot.option(q, retry_limit=0, dead_letter_queue=False,
               dlq_after_max_retries=False)
    row = hot.ack(p, g, 1, "ab", ["completed", "failed"], now=at(1))
    assert (row.verdict, row.committed, row.dead, row.dropped) == (
        RELEASED, 1, None, 1)
    assert state(hot, g, p) == (1, None, None, 0)
    assert hot.consumer(g, p).consumed == 2
    assert hot.value("select count(*) from queen.dead_letters") == 0


def test_the_reason_is_the_poisons_own_then_the_first(hot, p, g):
    cases = [({0: "of a", 1: "of b"}, "of b"), ({0: "of a"}, "of a"),
             ({0: "", 2: "of c", 1: ""}, "of c"),
             ({}, "Retries exhausted")]
    for n, (errors, want) in enumerate(cases):
        texts = [x + str(n) for x in "abc"]
        hot.push_one(p, texts, now=at(n))
        first = hot.took(p, g, n, now=at(n))[0]
        row = hot.ack(p, g, n, texts, ["completed", "dlq", "failed"],
                      now=at(n), errors=errors,
                      frames=[(first + 1, b"x", at(0))])
        assert row.dead == first + 1
        assert hot.value("select error from queen.dead_letters where"
                         " message_offset = %s", first + 1) == want
        hot.took(p, g, 100 + n, auto=True, now=at(n))


def test_every_way_to_the_end_of_the_batch_resets_the_budget(hot, p, g):
    ways = [("ab", None), ("ba", None), ("b", None),
            ("ab", ["completed", "completed"])]
    for n, (sent, status) in enumerate(ways):
        texts = [x + str(n) for x in "ab"]
        hot.push_one(p, texts, now=at(n))
        hot.took(p, g, 2 * n, now=at(n))
        hot.ack(p, g, 2 * n, texts[:1], "failed", now=at(n))
        assert hot.consumer(g, p).retries == 1
        hot.took(p, g, 2 * n + 1, now=at(n))
        row = hot.ack(p, g, 2 * n + 1, [x + str(n) for x in sent], status,
                      now=at(n))
        assert row.verdict == RELEASED
        assert hot.consumer(g, p).retries == 0


def test_a_partial_ack_does_not_reset_the_budget(hot, p, g, five):
    hot.ack(p, g, 1, "a", "failed", now=at(1))
    hot.took(p, g, 2, now=at(1))
    assert hot.ack(p, g, 2, "abc", now=at(1)).verdict == KEPT
    assert hot.ack(p, g, 2, "d", "completed", now=at(1)).verdict == KEPT
    assert hot.consumer(g, p).retries == 1


# Items

def test_items_below_the_cursor_and_unknown_ones(hot, p, g, five):
    hot.ack(p, g, 1, "ab", now=at(1))
    row = hot.ack(p, g, 1, ["a", "b", "c", "zz", "zz"],
                  ["completed", "failed", "completed", "completed", "dlq"],
                  now=at(1))
    assert items(row) == ["noop", "committed", "success", "unresolvable",
                          "unresolvable"]
    assert (row.verdict, row.committed) == (KEPT, 2)
    for word in ("failed", "retry", "dlq"):
        row = hot.ack(p, g, 1, "a", word, now=at(1))
        assert (row.verdict, items(row)) == (KEPT, ["committed"])
    assert state(hot, g, p) == (2, 4, 1, 0)


def test_an_ack_without_effect_writes_nothing(hot, p, g, five):
    before = hot.consumer(g, p)
    row = hot.ack(p, g, 1, ["zz"], now=at(1))
    assert (row.verdict, items(row)) == (KEPT, ["unresolvable"])
    assert hot.consumer(g, p) == before


def test_above_the_batch_is_unresolvable_under_a_lease(hot, p, g):
    hot.push_one(p, "abc", now=at(0))
    hot.took(p, g, 1, budget=2, now=at(0))
    row = hot.ack(p, g, 1, "c", now=at(1))
    assert (items(row), row.committed) == (["unresolvable"], -1)
    row = hot.ack(p, g, None, "c", now=at(1))
    assert (items(row), row.committed) == (["unresolvable"], -1)


def test_purged_ids_are_unresolvable_not_ok(hot, p, g, five):
    hot.rows("delete from queen.segment_ids")
    for status in (None, "failed"):
        row = hot.ack(p, g, 1, "abcde", status, now=at(1))
        assert (row.verdict, items(row)) == (KEPT, ["unresolvable"] * 5)
    assert state(hot, g, p) == (-1, 4, 1, 0)


def test_noop_is_searched_65536_positions_back(hot, p, g):
    for n in range(7):
        hot.push_one(p, ["m%d" % (n * 10000 + i) for i in range(10000)],
                     now=at(0))
    hot.took(p, g, 1, budget=70000, auto=True, now=at(0))
    row = hot.ack(p, g, None, ["m69999", "m66000", "m4464", "m4463"],
                  now=at(1))
    assert items(row) == ["noop", "noop", "noop", "unresolvable"]


def test_removed_messages_can_still_be_acked(hot, p, g, five):
    hot.drop_segments(p, 4)
    row = hot.ack(p, g, 1, "abcde", now=at(1))
    assert (row.verdict, row.committed, row.items) == (RELEASED, 4, None)


def test_after_a_gap_the_full_algorithm_advances(hot, p, g):
    for texts in ("ab", "cd", "ef"):
        hot.push_one(p, texts, now=at(0))
    hot.took(p, g, 1, budget=1, auto=True, now=at(0))
    hot.drop_segments(p, 3)
    hot.rows("delete from queen.segment_ids where end_offset <= 3")
    assert hot.took(p, g, 2, now=at(0)) == (4, 5, 1)
    row = hot.ack(p, g, 2, "ef", now=at(1))
    assert (row.verdict, row.committed) == (RELEASED, 5)


# Leases

def test_no_row_is_consumer_not_found_and_none_is_made(hot, p, g):
    hot.push_one(p, "a")
    row = hot.ack(p, g, None, "a")
    assert (row.verdict, row.items) == (NO_ROW, None)
    assert hot.consumer(g, p) is None


def test_a_foreign_or_deleted_group_is_gone(hot, q, p, g, five):
    ack = [dict(part=p, group=g, ids="a", lease=(p, g, 1))]
    assert hot.ack_all(ack, at(1), OTHER_TENANT)[0].verdict == GONE
    hot.rows("update queen.groups set deleted_at = now()")
    assert hot.ack_all(ack, at(1))[0].verdict == GONE
    hot.rows("update queen.groups set deleted_at = null")
    hot.option(q, deleted_at=at(0))
    assert hot.ack_all(ack, at(1))[0].verdict == GONE
    assert hot.consumer(g, p).committed == -1


@pytest.mark.parametrize("part", range(3))
def test_each_part_of_the_lease_must_match(hot, p, g, five, part):
    lease = [p, g, 1]
    lease[part] += 1
    row = hot.ack(p, g, None, "abcde", lease=tuple(lease), now=at(1))
    assert (row.verdict, items(row)) == (STALE, ["stale"] * 5)
    assert state(hot, g, p) == (-1, 4, 1, 0)


def test_an_expired_lease_is_refused_and_lease_less_goes_on(hot, p, g, five):
    row = hot.ack(p, g, 1, "ab", now=at(60))
    assert (row.verdict, items(row)) == (STALE, ["stale", "stale"])
    row = hot.ack(p, g, None, "ab", now=at(60))
    assert (row.verdict, row.committed, row.items) == (KEPT, 1, None)
    row = hot.ack(p, g, None, "cde", now=at(61))
    assert (row.verdict, row.committed) == (RELEASED, 4)


def test_a_lease_less_nack_releases_a_live_lease(hot, p, g, five):
    row = hot.ack(p, g, None, "b", "failed", now=at(1))
    assert (row.verdict, row.committed, row.more) == (RELEASED, -1, True)
    assert state(hot, g, p) == (-1, None, None, 1)


def test_a_repeated_ack_of_the_lease_before_is_a_noop(hot, p, g, five):
    hot.ack(p, g, 1, "abcde", now=at(1))
    hot.push_one(p, ["f"], now=at(2))
    hot.took(p, g, 2, now=at(2))
    row = hot.ack(p, g, 1, ["a", "e", "f", "b"],
                  ["completed", "completed", "completed", "failed"],
                  now=at(3))
    assert row.verdict == STALE
    assert items(row) == ["noop", "noop", "stale", "stale"]
    assert state(hot, g, p) == (4, 5, 2, 0)
    hot.ack(p, g, 2, ["f"], now=at(3))
    row = hot.ack(p, g, 1, ["a"], now=at(3))
    assert (row.verdict, items(row)) == (STALE, ["stale"])


def test_a_partial_ack_repeated_after_a_takeover_is_a_noop(hot, p, g, five):
    hot.ack(p, g, 1, "ab", now=at(1))
    hot.took(p, g, 2, now=at(61))
    row = hot.ack(p, g, 1, "ab", now=at(62))
    assert (row.verdict, items(row)) == (STALE, ["noop", "noop"])


def test_lease_less_without_a_batch_moves_and_may_jump(hot, p, g, five):
    hot.ack(p, g, 1, "abcde", now=at(1))
    hot.push_one(p, "fghi", now=at(1))
    row = hot.ack(p, g, None, "f", now=at(2))
    assert (row.verdict, row.committed, row.items) == (KEPT, 5, None)
    row = hot.ack(p, g, None, "hg", ["completed", "failed"], now=at(2))
    assert (row.verdict, row.committed) == (KEPT, 5)
    assert items(row) == ["success", "success"]
    assert state(hot, g, p) == (5, None, None, 0)
    row = hot.ack(p, g, None, "i", now=at(2))
    assert (row.committed, items(row)) == (8, ["success"])
    assert hot.consumer(g, p).consumed == 9


def test_lease_less_without_a_batch_finds_far_ahead(hot, p, g, five):
    hot.ack(p, g, 1, "abcde", now=at(1))
    for n in range(8):
        hot.push_one(p, ["m%d" % (n * 10000 + i) for i in range(10000)],
                     now=at(1))
    row = hot.ack(p, g, None, ["m79999", "nowhere"], now=at(2))
    assert items(row) == ["success", "unresolvable"]
    assert row.committed == 80004


# Conflation

@pytest.fixture
def conflated(hot, p, g):
    hot.rows("update queen.groups set conflated = true")
    hot.push_one(p, "abcd", now=at(0))
    assert hot.took(p, g, 1, now=at(0)) == (3, 3, 1)


def test_a_conflated_ack_commits_the_span(hot, p, g, conflated):
    row = hot.ack(p, g, 1, "d", now=at(1))
    assert (row.verdict, row.committed, row.conflated, row.items) == (
        RELEASED, 3, 3, None)
    c = hot.consumer(g, p)
    assert (c.consumed, c.conflated, c.retries) == (4, False, 0)


def test_a_conflated_ack_the_long_way(hot, p, g, conflated):
    row = hot.ack(p, g, 1, "dz", ["completed", "completed"], now=at(1))
    assert (row.verdict, row.committed, row.conflated) == (RELEASED, 3, 3)
    assert items(row) == ["success", "unresolvable"]


def test_a_conflated_nack_redelivers_the_newest(hot, p, g, conflated):
    row = hot.ack(p, g, 1, "d", "failed", now=at(1))
    assert (row.verdict, row.committed, row.conflated, row.more) == (
        RELEASED, -1, None, True)
    assert hot.took(p, g, 2, now=at(1)) == (3, 3, 2)
    row = hot.ack(p, g, 2, "d", "dlq", now=at(1),
                  frames=[(3, b"x", at(0))])
    assert (row.dead, row.committed) == (3, 3)


def test_an_id_repeated_under_conflation_is_the_delivered_one(hot, p, g):
    hot.rows("update queen.groups set conflated = true")
    hot.push_one(p, "aba", now=at(0))
    assert hot.took(p, g, 1, now=at(0)) == (2, 2, 1)
    assert hot.ack(p, g, 1, "a", "dlq", now=at(1)).off == 2
    row = hot.ack(p, g, 1, "a", now=at(1))
    assert (row.verdict, row.committed, row.conflated) == (RELEASED, 2, 2)


# Calls

def test_one_call_takes_many_acks_and_keeps_their_order(hot, q, g):
    a, b, c, d = hot.parts(q, ["a", "b", "c", "d"])
    for x in (a, b, c):
        hot.push_one(x, "xyz", now=at(0))
        hot.took(x, g, x, now=at(0))
    rows = hot.ack_all([
        dict(part=a, group=g, lease=(a, g, a), ids="xyz"),
        dict(part=b, group=g, lease=(b, g, b), ids="x", status="failed"),
        dict(part=c, group=g, lease=(c, g, 99), ids="x"),
        dict(part=d, group=g, ids="x"),
    ], at(1))
    assert [(r.ord, r.verdict, r.committed) for r in rows] == [
        (1, RELEASED, 2), (2, RELEASED, -1), (3, STALE, -1),
        (4, NO_ROW, None)]


def test_two_leases_of_one_row_in_a_call(hot, p, g, five):
    rows = hot.ack_all([
        dict(part=p, group=g, lease=(p, g, 9), ids="a"),
        dict(part=p, group=g, lease=(p, g, 1), ids="abcde")], at(1))
    assert [r.verdict for r in rows] == [STALE, RELEASED]


def test_bad_arrays_are_refused(hot, p, g, five):
    args = hot.ack_args([dict(part=p, group=g, ids="a", errors={0: "x"},
                              frames=[(0, b"x", at(0))])])
    for place in range(15):
        bad = list(args)
        bad[place] = bad[place] + bad[place]
        with refused("22023"):
            hot.named("select * from queen.ack_v1(%s, " + hot.ACK + ")",
                      [TENANT] + bad)
    bad = list(args)
    bad[6] = [b"\x00\x01"]
    with refused("22023"):
        hot.named("select * from queen.ack_v1(%s, " + hot.ACK + ")",
                  [TENANT] + bad)
    assert hot.consumer(g, p).committed == -1


# Sessions at once

def test_an_ack_sent_twice_at_once_counts_once(db, hot, p, g):
    ones = [Hot(db.connect()) for _ in range(4)]
    for n in range(10):
        texts = ["%d-%d" % (n, i) for i in range(5)]
        hot.push_one(p, texts)
        hot.took(p, g, n)
        rows = together(4, lambda i: ones[i].ack(p, g, n, texts))
        found = sorted((r.verdict, items(r)) for r in rows
                       if r.verdict == RELEASED)
        assert len(found) == 1
        assert all(items(r) == ["noop"] * 5 for r in rows
                   if r.verdict == STALE)
        assert hot.consumer(g, p).consumed == 5 * (n + 1)


def test_pops_acks_and_seeks_at_once_hold_the_invariants(db, hot, q, g):
    """Poppers ack what they got, one session seeks: no deadlock, no error,
    a lease in one hand at a time, cursors inside the log."""
    parts = hot.parts(q, ["a", "b", "c"])
    for x in parts:
        for n in range(20):
            hot.push_one(x, ["%d-%d" % (n, k) for k in range(5)])
    ones = [Hot(db.connect()) for _ in range(5)]
    names = {x: ["%d-%d" % (n, k) for n in range(20) for k in range(5)]
             for x in parts}

    def run(i):
        one = ones[i]
        if i == 4:
            for n in range(30):
                one.rows("select * from queen.partition_seek_v1(%s, 'g', 'q',"
                         " %s, 'offset', null, %s)", TENANT, "abc"[n % 3],
                         n % 7)
            return
        for n in range(60):
            no = i * 1000 + n
            rows = [r for r in one.pop_all(
                [dict(no=no, budget=12, width=2)],
                [(1, x, g) for x in parts]) if r.verdict == 0]
            if not rows:
                continue
            lease, acks = (rows[0].lease_at, g, no), {}
            for r in rows:
                first = r.base + r.skip
                acks.setdefault(parts[r.cand - 1], []).extend(
                    names[parts[r.cand - 1]][first:first + r.take])
            answer = one.ack_all([
                dict(part=x, group=g, lease=lease, ids=acks[x],
                     status=None if n % 5 else "retry")
                for x in sorted(acks)])
            assert {r.verdict for r in answer} <= {RELEASED, STALE}

    together(5, run)
    for x in parts:
        row = hot.consumer(g, x)
        assert -1 <= row.committed <= 99
    assert hot.value("select count(*) from queen.consumers") == 3


def test_the_clock_of_the_database_decides_the_lease(hot, p, g):
    hot.push_one(p, "a")
    hot.took(p, g, 1, secs=3600)
    later = datetime.datetime.now(datetime.timezone.utc) \
        + datetime.timedelta(hours=2)
    assert hot.ack(p, g, 1, "a", now=later).verdict == STALE
    assert hot.ack(p, g, 1, "a").verdict == RELEASED

# SPDX-License-Identifier: Apache-2.0
"""200_push.sql: allocation, order of time, duplicates."""
import datetime

import pytest

from hotkit import Hot, hot, p, q, refused, together  # noqa: F401
from queenlib import OTHER_TENANT
from sqlkit import at, mid

pytestmark = pytest.mark.allpg
HOUR = 3600
US = datetime.timedelta(microseconds=1)


def test_offsets_start_at_0_and_are_contiguous(hot, q, p):
    other = hot.part(q, "other")
    rows = hot.push_all([dict(part=p, ids=["a", "b"]),
                         dict(part=other, ids=["c"])])
    assert [(r.ord, r.verdict, r.base) for r in rows] == [(1, 0, 0),
                                                          (2, 0, 0)]
    rows = hot.push_all([dict(part=p, ids=["d"]),
                         dict(part=other, ids=["e", "f", "g"])])
    assert [r.base for r in rows] == [2, 1]
    assert hot.rows("select base_offset, end_offset from queen.segments where"
                    " partition_id = %s order by 1", p) == [(0, 1), (2, 2)]
    assert hot.rows("select base_offset, end_offset, ids from"
                    " queen.segment_ids where partition_id = %s order by 1",
                    other)[1][:2] == (1, 3)


def test_the_segment_is_stored_as_given(hot, q, p):
    hot.option(q, encryption_enabled=True)
    hot.push_one(p, ["a"], raw=12345, key=7, blob=b"\x01\x00sealed",
                 now=at(5))
    (row,) = hot.named("select * from queen.segments", [])
    assert (row.partition_id, row.base_offset, row.end_offset, row.raw_bytes,
            row.key_id, row.blob, row.created_at) == (
                p, 0, 0, 12345, 7, b"\x01\x00sealed", at(5))
    (row,) = hot.named("select * from queen.segment_ids", [])
    assert (row.ids, row.created_at) == (mid("a"), at(5))


def test_created_at_never_decreases_when_the_clock_steps_back(hot, p):
    assert hot.push_one(p, ["a"], now=at(100)).at == at(100)
    assert hot.push_one(p, ["b"], now=at(40)).at == at(100)
    assert hot.push_one(p, ["c"], now=at(101)).at == at(101)


def test_created_at_and_offset_go_on_after_retention_emptied_the_log(hot, p):
    hot.push_one(p, ["a", "b"], now=at(100))
    hot.drop_segments(p, 1)
    row = hot.push_one(p, ["c"], now=at(40))
    assert (row.base, row.at) == (2, at(100))


def test_the_head_is_written_at_most_once_a_second(hot, p):
    hot.push_one(p, ["a"], now=at(10))
    head = hot.head(p)
    assert (head.last_write_at, head.last_at, head.oldest_live_at) == (
        at(10),) * 3
    hot.push_one(p, ["b"], now=at(11))
    assert hot.head(p) == head
    hot.push_one(p, ["c"], now=at(11) + US)
    head = hot.head(p)
    assert head.last_write_at == head.last_at == at(11) + US
    assert head.oldest_live_at == at(10)


def test_the_head_learns_the_oldest_again_after_retention(hot, p):
    hot.push_one(p, ["a"], now=at(10))
    hot.rows("update queen.partition_heads set oldest_live_at = null")
    hot.push_one(p, ["b"], now=at(10.5))
    assert hot.head(p).oldest_live_at == at(10.5)


@pytest.mark.parametrize("place", range(12))
def test_arrays_of_unequal_length_are_refused(hot, p, place):
    args = hot.push_args([dict(part=p, ids=["a"])], [(1, 0, 0, 0)])
    args[place] = args[place] + args[place]
    with refused("22023"):
        hot.named("select * from queen.push_v1(%s, " + hot.PUSH + ")",
                  [hot.tenant] + args)
    assert hot.value("select count(*) from queen.segments") == 0


@pytest.mark.parametrize("n, texts", [(2, ["a"]), (1, ["a", "b"]), (0, []),
                                      (-1, [])])
def test_a_count_that_does_not_match_the_ids_is_refused(hot, p, n, texts):
    with refused("22023"):
        hot.push_one(p, texts, n=n)
    assert hot.value("select count(*) from queen.segments") == 0


def test_two_segments_of_one_partition_are_refused(hot, p):
    with refused("22023"):
        hot.push_all([dict(part=p, ids=["a"]), dict(part=p, ids=["b"])])
    assert hot.value("select count(*) from queen.segments") == 0


def test_partitions_out_of_order_are_refused(hot, q):
    a, b = hot.parts(q, ["a", "b"])
    with refused("22023"):
        hot.push_all([dict(part=b, ids=["x"]), dict(part=a, ids=["y"])])
    with refused("22023"):
        hot.push_all([dict(part=None, ids=["x"])])
    assert hot.value("select count(*) from queen.segments") == 0


def test_a_vanished_partition_is_gone_and_the_rest_is_written(hot, q):
    a, b, c = hot.parts(q, ["a", "b", "c"])
    hot.rows("delete from queen.partition_heads where id = %s", b)
    rows = hot.push_all([dict(part=x, ids=["m"]) for x in (a, b, c)])
    assert [(r.ord, r.verdict, r.base) for r in rows] == [
        (1, 0, 0), (2, 2, None), (3, 0, 0)]
    assert rows[1].at is None
    assert hot.rows("select partition_id from queen.segments order by 1") == [
        (a,), (c,)]


def test_a_partition_of_a_deleted_queue_or_another_tenant_is_gone(hot, q, p):
    assert [r.verdict for r in hot.push_all(
        [dict(part=p, ids=["m"])], tenant=OTHER_TENANT)] == [2]
    hot.option(q, deleted_at=at(0))
    assert hot.push_one(p, ["m"]).verdict == 2
    assert hot.value("select count(*) from queen.segments") == 0


def test_a_flagged_queue_takes_only_sealed_segments(hot, q, p):
    hot.option(q, encryption_enabled=True)
    plain = hot.part(hot.queue("plain"), "x")
    rows = hot.push_all([dict(part=p, ids=["a"]), dict(part=plain, ids=["b"])])
    assert [r.verdict for r in rows] == [4, 0]
    assert hot.push_one(p, ["a"], key=3).verdict == 0
    assert hot.push_one(plain, ["c"], key=3).verdict == 0


# Duplicates

def test_a_segment_with_duplicates_is_refused_whole_and_lists_them(hot, q, p):
    other = hot.part(q, "other")
    hot.push_one(p, ["a", "b", "c"], verified=-1)
    rows = hot.push_all([
        dict(part=p, ids=["x", "c", "y", "a"], verified=-1),
        dict(part=other, ids=["a"], verified=-1)])
    assert (rows[0].verdict, rows[0].base, rows[0].at) == (1, None, None)
    assert (rows[0].dup_pos, rows[0].dup_off) == ([1, 3], [2, 0])
    assert (rows[1].verdict, rows[1].base) == (0, 0)
    assert (rows[1].dup_pos, rows[1].dup_off) == (None, None)
    assert hot.push_one(p, ["x", "y"], verified=-1).base == 3


def test_the_lowest_offset_in_the_window_is_the_original(hot, q, p):
    hot.option(q, dedup_window_s=0)
    for t in (0, 100, 200):
        hot.push_one(p, ["a"], now=at(t))
    hot.option(q, dedup_window_s=150)
    row = hot.push_one(p, ["a"], verified=-1, now=at(210))
    assert (row.verdict, row.dup_off) == (1, [1])


def test_the_window_begins_inclusive(hot, p):
    hot.push_one(p, ["a"], now=at(0))
    row = hot.push_one(p, ["a"], verified=-1, now=at(HOUR))
    assert (row.verdict, row.dup_off) == (1, [0])
    assert hot.push_one(p, ["a"], verified=-1,
                        now=at(HOUR) + US).verdict == 0


def test_a_duplicate_does_not_extend_the_window(hot, p):
    hot.push_one(p, ["a"], now=at(0))
    assert hot.push_one(p, ["a"], verified=-1, now=at(3000)).verdict == 1
    assert hot.push_one(p, ["a"], verified=-1, now=at(3700)).verdict == 0


def test_window_0_never_probes(hot, q, p):
    hot.option(q, dedup_window_s=0)
    assert hot.push_one(p, ["a"], verified=-1).verdict == 0
    row = hot.push_one(p, ["a"], verified=-1, suspects=[(1, 0, 0, 5)])
    assert (row.verdict, row.gap) == (0, None)


def test_minted_ids_are_not_probed(hot, p):
    hot.push_one(p, ["a"])
    row = hot.push_one(p, ["a"])
    assert (row.verdict, row.base, row.gap) == (0, 1, None)


def test_what_is_vouched_for_is_not_probed(hot, p):
    hot.push_one(p, ["a", "b"], verified=-1)
    row = hot.push_one(p, ["a"], verified=1)
    assert (row.verdict, row.gap_base, row.gap) == (0, None, None)


def test_a_filter_that_does_not_cover_the_window_vouches_nothing(hot, p):
    hot.push_one(p, ["a"], now=at(0))
    edge = at(100 - HOUR)
    assert hot.push_one(p, ["a"], verified=0, covered=edge + US,
                        now=at(100)).verdict == 1
    assert hot.push_one(p, ["a"], verified=0, covered=None,
                        now=at(100)).verdict == 1
    assert hot.push_one(p, ["a"], verified=0, covered=edge,
                        now=at(100)).verdict == 0


def test_the_gap_is_probed_and_returned(hot, p):
    hot.push_one(p, ["a", "b"])
    hot.push_one(p, ["c", "d"])
    row = hot.push_one(p, ["x"], verified=0)
    assert (row.verdict, row.base, row.gap_base) == (0, 4, 1)
    assert row.gap == mid("b") + mid("c") + mid("d")
    row = hot.push_one(p, ["y", "d"], verified=2)
    assert (row.verdict, row.dup_pos, row.dup_off) == (1, [1], [3])
    assert (row.gap_base, row.gap) == (3, mid("d") + mid("x"))


def test_a_gap_of_4096_is_probed_one_more_is_behind(hot, p):
    hot.push_one(p, ["n%d" % i for i in range(4097)])
    row = hot.push_one(p, ["x", "n0"], verified=-1)
    assert (row.verdict, row.base, row.gap_base, row.gap) == (
        3, None, None, None)
    assert hot.value("select count(*) from queen.segments") == 1
    row = hot.push_one(p, ["n0"], verified=0)
    assert (row.verdict, row.gap_base, len(row.gap)) == (0, 1, 4096 * 16)
    row = hot.push_one(p, ["n4096"], verified=4095)
    assert (row.verdict, row.dup_off) == (1, [4096])


def test_a_suspect_is_looked_for_in_its_range(hot, p):
    hot.push_one(p, ["a", "b"], now=at(0))
    hot.push_one(p, ["c", "d"], now=at(1))
    row = hot.push_one(p, ["x", "d", "b"], verified=3, now=at(2),
                       suspects=[(1, 1, 2, 3), (1, 2, 0, 1)])
    assert (row.verdict, row.dup_pos, row.dup_off) == (1, [1, 2], [3, 1])
    assert row.gap is None
    row = hot.push_one(p, ["x", "y"], verified=3, now=at(2),
                       suspects=[(1, 0, 0, 3), (1, 1, 0, 3)])
    assert (row.verdict, row.base) == (0, 4)


def test_a_suspect_older_than_the_window_is_none(hot, p):
    hot.push_one(p, ["a"], now=at(0))
    row = hot.push_one(p, ["a"], verified=0, suspects=[(1, 0, 0, 0)],
                       now=at(HOUR) + US)
    assert row.verdict == 0
    hot.push_one(p, ["b"], now=at(HOUR))
    row = hot.push_one(p, ["b"], verified=2, suspects=[(1, 0, 0, 2)],
                       now=at(2 * HOUR))
    assert (row.verdict, row.dup_off) == (1, [2])


def test_bytes_across_two_ids_are_no_suspect_found(hot, p):
    a, b = mid("a"), mid("b")
    shifted = a[8:] + b[:8]
    hot.rows("select * from queen.push_v1(%s, %s, array[3], %s, array[1],"
             " array[null]::smallint[], array['x']::bytea[],"
             " array[null]::bigint[], array[null]::timestamptz[], '{}', '{}',"
             " '{}', '{}')", hot.tenant, [p], [a + b + shifted])
    found = "select queen.push_suspect_hit(%s, 0, 9, '-infinity', %s)"
    assert hot.value(found, p, shifted) == 2
    assert hot.value(found, p, a[8:] + b[8:]) is None
    assert hot.value(found, p, b) == 1


def test_ids_outlive_the_messages_for_duplicates(hot, p):
    hot.push_one(p, ["a", "b"])
    hot.drop_segments(p, 1)
    row = hot.push_one(p, ["b"], verified=-1)
    assert (row.verdict, row.dup_off) == (1, [1])


def test_purged_ids_are_not_part_of_the_gap(hot, p):
    for n in range(3):
        hot.push_one(p, ["a%d" % n])
    hot.rows("delete from queen.segment_ids where base_offset = 0")
    hot.rows("update queen.partition_heads set ids_start = 1")
    row = hot.push_one(p, ["a0"], verified=-1)
    assert (row.verdict, row.gap_base, row.gap) == (
        0, 1, mid("a1") + mid("a2"))


def test_verdicts_of_one_call_are_independent(hot, q):
    parts = hot.parts(q, ["a", "b", "c", "d"])
    hot.option(hot.queue("s"), encryption_enabled=True)
    sealed = hot.part(hot.queue("s"), "x")
    hot.push_one(parts[1], ["dup"])
    hot.push_one(parts[2], ["n%d" % i for i in range(5000)])
    hot.rows("delete from queen.partition_heads where id = %s", parts[3])
    rows = hot.push_all([dict(part=x, ids=["dup"], verified=-1)
                         for x in parts + [sealed]])
    assert [r.verdict for r in rows] == [0, 1, 3, 2, 4]
    assert hot.value("select count(*) from queen.segments where partition_id"
                     " = %s", parts[0]) == 1
    assert hot.head(parts[0]).oldest_live_at == rows[0].at


# Sessions at once

def test_one_id_pushed_by_eight_is_queued_once(db, hot, p):
    ones = [Hot(db.connect()) for _ in range(8)]
    rows = together(8, lambda i: ones[i].push_one(p, ["same"], verified=-1))
    assert sorted(r.verdict for r in rows) == [0] + [1] * 7
    assert {tuple(r.dup_off) for r in rows if r.verdict} == {(0,)}


def test_eight_writers_and_retention_leave_no_gap(db, hot, q):
    """Offsets contiguous, times monotone, while a ninth session removes all
    that is stored again and again."""
    parts = hot.parts(q, ["a", "b", "c"])
    ones = [Hot(db.connect()) for _ in range(9)]
    got = {x: [] for x in parts}
    left = [8]

    def write(i):
        one = ones[i]
        if i == 8:
            while left[0]:
                for x in parts:
                    one.conn.autocommit = False
                    with one.conn, one.conn.cursor() as cur:
                        cur.execute("select 1 from queen.partition_heads where"
                                    " id = %s for no key update", (x,))
                        cur.execute(
                            "with d as (delete from queen.segments where"
                            " partition_id = %s returning end_offset,"
                            " created_at) update queen.partition_heads set"
                            " log_start = m.off, last_at = m.at,"
                            " oldest_live_at = null from (select"
                            " max(end_offset) + 1 off, max(created_at) at"
                            " from d) m where id = %s and m.off is not null",
                            (x, x))
                    one.conn.autocommit = True
            return
        try:
            for n in range(40):
                rows = one.push_all([dict(part=x, ids=[
                    "%d-%d-%d" % (i, n, k) for k in range(1 + n % 3)],
                    verified=-1) for x in parts])
                for x, r in zip(parts, rows):
                    assert r.verdict == 0
                    got[x].append((r.base, 1 + n % 3, r.at))
        finally:
            left[0] -= 1

    together(9, write)
    for x in parts:
        want, newest = 0, None
        for base, n, stamp in sorted(got[x]):
            assert base == want
            assert newest is None or stamp >= newest
            want, newest = base + n, stamp

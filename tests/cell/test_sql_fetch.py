# SPDX-License-Identifier: Apache-2.0
"""320_fetch.sql: reading by offset."""
import threading

import pytest

from queenlib import OTHER_TENANT, TENANT
from sqlkit import Kit, at

MIB = 1 << 20


pytestmark = pytest.mark.allpg


@pytest.fixture
def kit(db):
    return Kit(db.connect())


def fetch(kit, entries, budget=64 * MIB, tenant=TENANT):
    """entries: (queue, partition, offset[, max_bytes]); the answer per entry:
    (verdict, high, log_start, [(base, last)])."""
    entries = [e if len(e) == 4 else e + (MIB,) for e in entries]
    answer = []
    for row in kit.rows("select * from queen.fetch_v1("
                        "%s, %s, %s, %s, %s, %s)", tenant,
                        *[list(c) for c in zip(*entries)], budget):
        ord_, verdict, high, start, base, last = row[:6]
        if ord_ > len(answer):
            answer.append((verdict, high, start, []))
        assert ord_ == len(answer), "rows come entry by entry"
        assert answer[-1][:3] == (verdict, high, start)
        if base is not None:
            answer[-1][3].append((base, last))
    assert len(answer) == len(entries)
    return answer


def size(kit, part, n_segments, n_bytes, n=1, raw=10):
    """Segments of exactly n_bytes stored each."""
    for _ in range(n_segments):
        kit.push(part, n, raw=raw, blob=b"\x01\x00" + b"z" * (n_bytes - 2))


def test_fetch_from_every_offset(kit):
    a = kit.part(kit.queue("q"), "a")
    for n in (3, 1, 2):
        kit.push(a, n)
    segments = [(0, 2), (3, 3), (4, 5)]
    for offset, first in ((0, 0), (1, 0), (2, 0), (3, 1), (4, 2), (5, 2)):
        assert fetch(kit, [("q", "a", offset)]) == [
            (0, 6, 0, segments[first:])], offset
    assert fetch(kit, [("q", "a", 6)]) == [(0, 6, 0, [])]
    assert fetch(kit, [("q", "a", 7)]) == [(2, 6, 0, [])]
    assert fetch(kit, [("q", "a", 2 ** 62)]) == [(2, 6, 0, [])]


def test_fetch_carries_the_segment(kit):
    a = kit.part(kit.queue("q"), "a")
    kit.push(a, 2, now=at(5), raw=77, key=9, blob=b"\x01\x00sealed")
    row = kit.rows("select at, raw_bytes, key_id, blob from queen.fetch_v1("
                   "%s, '{q}', '{a}', '{0}', '{100}', 1000)", TENANT)[0]
    assert row[:3] + (bytes(row[3]),) == (at(5), 77, 9, b"\x01\x00sealed")


def test_fetch_is_bounded_by_retention(kit):
    a = kit.part(kit.queue("q"), "a")
    for _ in range(4):
        kit.push(a, 5)
    kit.drop_segments(a, 9)
    assert fetch(kit, [("q", "a", 9)]) == [(2, 20, 10, [])]
    assert fetch(kit, [("q", "a", 10)]) == [(0, 20, 10, [(10, 14),
                                                         (15, 19)])]
    kit.drop_segments(a, 19)
    assert fetch(kit, [("q", "a", 19)]) == [(2, 20, 20, [])]
    assert fetch(kit, [("q", "a", 20)]) == [(0, 20, 20, [])]
    assert fetch(kit, [("q", "a", 21)]) == [(2, 20, 20, [])]


def test_unwritten_partition_is_an_empty_log(kit):
    q = kit.queue("q")
    kit.part(q, "made")
    for name in ("made", "never"):
        assert fetch(kit, [("q", name, 0), ("q", name, 1)]) == [
            (0, 0, 0, []), (2, 0, 0, [])]


def test_unknown_deleted_and_foreign_queues_look_alike(kit):
    q = kit.queue("q")
    kit.push(kit.part(q, "a"), 1)
    unknown = [(1, 0, 0, [])]
    assert fetch(kit, [("nope", "a", 0)]) == unknown
    assert fetch(kit, [("nope", "a", 7)]) == unknown
    assert fetch(kit, [("q", "a", 0)], tenant=OTHER_TENANT) == unknown
    kit.rows("update queen.queues set deleted_at = now() where id = %s", q)
    assert fetch(kit, [("q", "a", 0)]) == unknown


def test_answer_is_aligned_with_the_request(kit):
    q = kit.queue("q")
    a, b = kit.parts(q, ["a", "b"])
    kit.push(a, 2)
    kit.push(b, 3)
    assert fetch(kit, [("q", "b", 0), ("nope", "x", 0), ("q", "a", 9),
                       ("q", "a", 0), ("q", "b", 0), ("q", "b", 3)]) == [
        (0, 3, 0, [(0, 2)]), (1, 0, 0, []), (2, 2, 0, []),
        (0, 2, 0, [(0, 1)]), (0, 3, 0, [(0, 2)]), (0, 3, 0, [])]
    assert kit.rows("select * from queen.fetch_v1(%s, '{}', '{}', '{}',"
                    " '{}', 1)", TENANT) == []


def test_entry_budget_counts_stored_bytes(kit):
    a = kit.part(kit.queue("q"), "a")
    size(kit, a, 5, 1000)
    for max_bytes, n in ((1, 1), (999, 1), (1000, 1), (1999, 1), (2000, 2),
                         (4999, 4), (5000, 5)):
        assert len(fetch(kit, [("q", "a", 0, max_bytes)])[0][3]) == n, \
            max_bytes


def test_exactly_one_segment_escapes_the_budgets(kit):
    """The first of the call; a later entry may stay empty but keeps its
    bounds, and a small segment does not jump over a large one."""
    q = kit.queue("q")
    a, b = kit.parts(q, ["a", "b"])
    size(kit, a, 2, 1000)
    size(kit, b, 1, 1000)
    size(kit, b, 1, 10)
    assert fetch(kit, [("q", "a", 0, 1), ("q", "b", 0, 1)]) == [
        (0, 2, 0, [(0, 0)]), (0, 2, 0, [])]
    assert fetch(kit, [("q", "a", 2, 1), ("q", "b", 0, 1)]) == [
        (0, 2, 0, []), (0, 2, 0, [(0, 0)])]
    assert fetch(kit, [("q", "a", 0, 1), ("q", "b", 0, 999)])[1][3] == []
    assert fetch(kit, [("q", "a", 0), ("q", "b", 0)], budget=1) == [
        (0, 2, 0, [(0, 0)]), (0, 2, 0, [])]


def test_call_budget_is_spent_in_entry_order(kit):
    q = kit.queue("q")
    a, b, c = kit.parts(q, ["a", "b", "c"])
    for part in (a, b, c):
        size(kit, part, 3, 1000)

    def counts(budget):
        return [len(e[3]) for e in fetch(
            kit, [("q", "a", 0), ("q", "b", 0), ("q", "c", 0)], budget)]

    assert counts(9000) == [3, 3, 3]
    assert counts(8999) == [3, 3, 2]
    assert counts(4500) == [3, 1, 0]
    assert counts(3000) == [3, 0, 0]
    assert counts(10) == [1, 0, 0]


def test_call_budget_also_bounds_raw_bytes(kit):
    """A call does not blow up when it is decompressed."""
    a = kit.part(kit.queue("q"), "a")
    size(kit, a, 5, 100, raw=1000)
    assert len(fetch(kit, [("q", "a", 0)], budget=3500)[0][3]) == 3
    assert len(fetch(kit, [("q", "a", 0)], budget=5000)[0][3]) == 5


def test_entry_ends_at_10000_records(kit):
    a = kit.part(kit.queue("q"), "a")
    for _ in range(4):
        kit.push(a, 4000)
    assert fetch(kit, [("q", "a", 0)])[0][3] == [
        (0, 3999), (4000, 7999), (8000, 11999)]
    # records before the asked offset do not count
    assert fetch(kit, [("q", "a", 3000)])[0][3] == [
        (0, 3999), (4000, 7999), (8000, 11999), (12000, 15999)]
    assert fetch(kit, [("q", "a", 2000)])[0][3] == [
        (0, 3999), (4000, 7999), (8000, 11999)]


def test_fetch_writes_nothing(db, kit):
    a = kit.part(kit.queue("q"), "a")
    kit.push(a, 3)
    conn = db.connect()
    conn.set_session(readonly=True)
    assert fetch(Kit(conn), [("q", "a", 0)])[0][3] == [(0, 2)]


def test_bounds_and_records_agree_during_pushes_and_retention(db, kit):
    """One snapshot per call: an ok entry begins at its offset and has no
    hole, and ends where `high` says."""
    a = kit.part(kit.queue("q"), "a")
    for _ in range(50):
        kit.push(a, 2)
    done = threading.Event()

    def churn():
        mine = Kit(db.connect())
        n = 100
        while not done.is_set():
            mine.push(a, 2)
            n += 2
            mine.drop_segments(a, n - 60)

    writer = threading.Thread(target=churn)
    writer.start()
    try:
        offset, seen = 0, 0
        for _ in range(300):
            verdict, high, start, found = fetch(kit, [("q", "a", offset)])[0]
            if verdict == 2:
                assert start > offset
                offset = start
                continue
            assert verdict == 0 and start <= offset <= high
            if found:
                assert found[0][0] <= offset <= found[0][1]
                assert [f[0] for f in found[1:]] == \
                    [f[1] + 1 for f in found[:-1]]
                assert found[-1][1] == high - 1
                seen += 1
            offset = max(start, high - 30)
        assert seen > 50
    finally:
        done.set()
        writer.join()


def test_fetch_high_is_the_next_offset(kit):
    q = kit.queue("q")
    a, b = kit.parts(q, ["a", "b"])
    kit.push(a, 3)
    kit.push(b, 2)
    kit.drop_segments(b, 1)
    args = (["q", "q", "nope", "q", "q"], ["a", "b", "a", "never", "a"])
    sql = "select * from queen.fetch_high_v1(%s, %s, %s)"
    assert kit.rows(sql, TENANT, *args) == [
        (1, 3), (2, 2), (3, None), (4, 0), (5, 3)]
    assert kit.rows(sql, OTHER_TENANT, *args) == [
        (n, None) for n in range(1, 6)]

# SPDX-License-Identifier: Apache-2.0
"""330_changed.sql: changed partitions and settled time."""
import datetime
import random
import threading
import time

import pytest

from queenlib import OTHER_TENANT, TENANT, rows, wait_until
from sqlkit import Kit, at

pytestmark = pytest.mark.allpg


@pytest.fixture
def kit(db):
    return Kit(db.connect())


def changed(kit, queue, since=None, cursor=(None, None), limit=1000,
            tenant=TENANT):
    found = kit.rows("select * from queen.partitions_changed_v1("
                     "%s, %s, %s::timestamptz[], %s::timestamptz[],"
                     " %s::text[], %s::int[])", tenant, [queue], [since],
                     [cursor[0]], [cursor[1]], [limit])
    assert found and {r[0] for r in found} == {1}
    return [r[1:] for r in found]


def sweep(kit, queue, since=None, limit=1000):
    """All pages, as (name, last_offset, log_start, last_write_at)."""
    all_rows, cursor = [], (None, None)
    while True:
        page = changed(kit, queue, since, cursor, limit)
        if page[0][0] == 2:
            assert page == [(2, None, None, None, None)]
            return all_rows
        assert {r[0] for r in page} == {0}
        all_rows += [r[1:] for r in page]
        if len(page) < limit:
            return all_rows
        cursor = (page[-1][4] if since else None, page[-1][1])


def test_without_since_all_by_name(kit):
    q, other = kit.queue("q"), kit.queue("other")
    for name in ("b", "a", "C", "aa"):
        kit.push(kit.part(q, name), 2, now=at(1))
    kit.push(kit.part(other, "ab"), 1, now=at(1))
    part = kit.part(q, "a")
    kit.push(part, 3, now=at(9))
    kit.drop_segments(part, 1)
    want = [("C", 1, 0, at(1)), ("a", 4, 2, at(9)), ("aa", 1, 0, at(1)),
            ("b", 1, 0, at(1))]
    assert sweep(kit, "q") == want
    for limit in (1, 2, 3, 4, 5):
        assert sweep(kit, "q", limit=limit) == want


def test_since_takes_those_written_then(kit):
    q, other = kit.queue("q"), kit.queue("other")
    for i, name in enumerate(("d", "a", "c", "b")):
        kit.push(kit.part(q, name), 1, now=at(10 * (i // 2)))
    kit.push(kit.part(other, "x"), 1, now=at(10))
    want = [("a", 0, 0, at(0)), ("d", 0, 0, at(0)),
            ("b", 0, 0, at(10)), ("c", 0, 0, at(10))]
    for limit in (1, 2, 3, 4, 5):
        assert sweep(kit, "q", at(0), limit) == want
        assert sweep(kit, "q", at(0.001), limit) == want[2:]
        assert sweep(kit, "q", at(10), limit) == want[2:]
        assert sweep(kit, "q", at(11), limit) == []


def test_large_queues_are_swept_by_the_index_on_time(kit):
    """More partitions than are read whole: same rows, same order."""
    q = kit.queue("q")
    names = ["p%04d" % i for i in range(1200)]
    ids = kit.parts(q, names[:600]) + kit.parts(q, names[600:])
    for i in range(0, 1200, 3):
        kit.push(ids[i], 1, now=at(i % 5))
    other = kit.queue("other")
    for part in kit.parts(other, ["x%d" % i for i in range(20)]):
        kit.push(part, 1, now=at(3))
    for since in (0, 2, 4):
        want = sorted((at(i % 5), names[i]) for i in range(0, 1200, 3)
                      if i % 5 >= since)
        found = [(r[3], r[0]) for r in sweep(kit, "q", at(since), 77)]
        assert found == want
    assert len(sweep(kit, "q", limit=1000)) == 1200


def test_sweep_by_time_walks_no_other_index(kit):
    q = kit.queue("q")
    kit.parts(q, ["p%04d" % i for i in range(600)])
    kit.parts(q, ["q%04d" % i for i in range(600)])
    kit.rows("insert into queen.partition_heads (id, queue_id, last_write_at)"
             " select 1000000 + i, 999, %s::timestamptz from"
             " generate_series(1, 30000) i", at(1))
    kit.rows("analyze queen.partition_heads")
    kit.push(kit.part(q, "p0000"), 1, now=at(50))
    for option in ("plan_cache_mode = force_generic_plan",
                   "enable_seqscan = off", "enable_bitmapscan = off"):
        kit.rows("set " + option)
    assert [r[0] for r in sweep(kit, "q", at(40))] == ["p0000"]
    plan = "\n".join(r[0] for r in kit.rows(
        "explain (analyze, buffers, timing off, costs off) select * from"
        " queen.changed_by_time(%s, %s, null, null, 1000)", q, at(40)))
    assert int(plan.split("shared hit=")[1].split()[0]) < 200, plan


def test_never_written_partition_shows_its_birth(kit):
    q = kit.queue("q")
    kit.part(q, "a")
    born = kit.value("select created_at from queen.partitions")
    assert sweep(kit, "q") == [("a", -1, 0, born)]
    assert sweep(kit, "q", at(-1000000)) == []


def test_emptied_partition_keeps_its_offsets(kit):
    part = kit.part(kit.queue("q"), "a")
    kit.push(part, 3, now=at(0))
    kit.drop_segments(part, 2)
    assert sweep(kit, "q") == [("a", 2, 3, at(0))]


def test_limit_is_clamped(kit):
    q = kit.queue("q")
    kit.parts(q, ["p%d" % i for i in range(3)])
    assert len(changed(kit, "q", limit=0)) == 1
    assert len(changed(kit, "q", limit=-5)) == 1
    assert len(changed(kit, "q", limit=None)) == 3
    kit.parts(q, ["q%d" % i for i in range(1000)])
    assert len(changed(kit, "q", limit=5000)) == 1000


def test_unknown_deleted_and_foreign_queues_are_verdict_1(kit):
    q = kit.queue("q")
    kit.part(q, "a")
    unknown = [(1, None, None, None, None)]
    assert changed(kit, "nope") == unknown
    assert changed(kit, "q", tenant=OTHER_TENANT) == unknown
    kit.rows("update queen.queues set deleted_at = now() where id = %s", q)
    assert changed(kit, "q") == unknown


def test_entries_are_answered_in_order(kit):
    kit.part(kit.queue("q1"), "a")
    kit.part(kit.queue("q2"), "b")
    kit.queue("q3")
    found = kit.rows(
        "select ord, verdict, name from queen.partitions_changed_v1(%s,"
        " '{q2,nope,q3,q1}', array_fill(null::timestamptz, '{4}'),"
        " array_fill(null::timestamptz, '{4}'), array_fill(null::text, '{4}'),"
        " '{9,9,9,9}')", TENANT)
    assert found == [(1, 0, "b"), (2, 1, None), (3, 2, None), (4, 0, "a")]


@pytest.mark.parametrize("n_parts, limit", [(150, 7), (1100, 60)])
def test_sweep_meets_every_partition_while_rows_move(db, kit, n_parts, limit):
    """In small queues, read whole, and in large ones, walked by time."""
    q = kit.queue("q")
    names = ["p%04d" % i for i in range(n_parts)]
    ids = kit.parts(q, names[:600]) + kit.parts(q, names[600:])
    for part in ids:
        kit.push(part, 1, now=at(0))
    done = threading.Event()

    def write():
        mine = Kit(db.connect())
        n = 0
        while not done.is_set():
            n += 1
            mine.push(ids[n * 7 % n_parts], 1, now=at(10 + n))

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for since in (None, at(0)):
            seen, cursor = set(), (None, None)
            for _ in range(1000):
                page = changed(kit, "q", since, cursor, limit)
                seen |= {r[1] for r in page if r[0] == 0}
                if len(page) < limit or seen == set(names):
                    break
                cursor = (page[-1][4] if since else None, page[-1][1])
            assert seen == set(names)
    finally:
        done.set()
        writer.join()


# safeTime

GUARD_MS, FLOOR_MS = 5000, 30000


def safe(conn, guard=GUARD_MS, floor=FLOOR_MS):
    return rows(conn, "select * from queen.safe_time_v1(%s, %s)",
                (guard, floor))[0]


def behind_s(conn, **kw):
    """How far safeTime is behind the clock, and degraded."""
    got = rows(conn, "select extract(epoch from clock_timestamp() - s"
               ".safe_time)::float8, s.degraded from queen.safe_time_v1("
               "%s, %s) s", (kw.get("guard", GUARD_MS),
                             kw.get("floor", FLOOR_MS)))[0]
    return got


def test_safe_time_is_the_clock_less_the_guard(kit):
    late, degraded = behind_s(kit.conn)
    assert 5 <= late < 7 and degraded is False
    late, degraded = behind_s(kit.conn, guard=250)
    assert 0.25 <= late < 2 and degraded is False


def test_safe_time_waits_for_a_writing_transaction(db, kit):
    part = kit.part(kit.queue("q"), "a")
    writer = Kit(db.connect(autocommit=False))
    start = writer.value("select now()")
    writer.push(part, 1)
    assert safe(kit.conn, guard=0) == (start, False)
    writer.conn.commit()
    assert safe(kit.conn, guard=0)[0] > start


def test_safe_time_ignores_readers_and_idle_sessions(db, kit):
    part = kit.part(kit.queue("q"), "a")
    kit.push(part, 1)
    reader = Kit(db.connect(autocommit=False))
    reader.value("select count(*) from queen.segments")
    start = reader.value("select now()")
    got = safe(kit.conn, guard=0)
    assert got[0] > start and got[1] is False
    # from the moment it holds a partition it counts
    reader.push(part, 1)
    assert safe(kit.conn, guard=0) == (start, False)


def test_safe_time_ignores_other_databases(pg, db, kit):
    other = pg.new_db()
    try:
        writer = Kit(other.connect(autocommit=False))
        start = writer.value("select now()")
        writer.queue("q")
        assert safe(kit.conn, guard=0)[0] > start
    finally:
        other.drop()


def test_safe_time_sees_activity_anew_inside_a_transaction(db, kit):
    """Even where an earlier statement left a copy of the activity."""
    part = kit.part(kit.queue("q"), "a")
    conn = db.connect(autocommit=False)
    rows(conn, "select count(*) from pg_stat_activity")
    writer = Kit(db.connect(autocommit=False))
    writer.push(part, 1)
    start = writer.value("select now()")
    assert safe(conn, guard=0) == (start, False)


def test_safe_time_is_volatile(kit):
    assert kit.value("select provolatile from pg_proc"
                     " where proname = 'safe_time_v1'") == "v"


def test_role_without_stats_privilege_is_degraded(db, kit):
    """Only while another role writes; the grant is the remedy."""
    part = kit.part(kit.queue("q"), "a")
    role = db.role("plain")
    kit.rows("grant usage on schema queen to %s" % role)
    plain = db.connect(user=role)
    # (autovacuum is another role, too)
    wait_until(lambda: not safe(plain)[1])
    writer = Kit(db.connect(autocommit=False))
    writer.push(part, 1)
    late, degraded = behind_s(plain)
    assert 30 <= late < 33 and degraded is True
    # the floor is rounded up to whole seconds
    late, degraded = behind_s(plain, floor=30001)
    assert 31 <= late < 34 and degraded is True
    kit.rows("grant pg_read_all_stats to %s" % role)
    late, degraded = behind_s(plain, guard=0)
    assert late < 5 and degraded is False
    writer.conn.commit()
    kit.rows("revoke pg_read_all_stats from %s" % role)
    wait_until(lambda: not safe(plain)[1])
    plain.close()
    kit.rows("drop owned by %s" % role)


def test_prepared_transaction_on_segments_makes_it_null(db, kit):
    part = kit.part(kit.queue("q"), "a")
    name = "p_" + db.name
    for write, finish, want in (
            (lambda k: k.push(part, 1), "commit", True),
            # one that wrote no segment does not count
            (lambda k: k.rows("insert into queen.flags (key, value)"
                              " values ('x', '1')"), "rollback", False)):
        writer = Kit(db.connect(autocommit=False))
        write(writer)
        writer.rows("prepare transaction '%s'" % name)
        try:
            got, degraded = safe(kit.conn)
            assert (got is None, degraded) == (want, want)
        finally:
            kit.rows("%s prepared '%s'" % (finish, name))
        assert safe(kit.conn)[1] is False


def test_no_record_appears_before_an_earlier_safe_time(db, kit):
    """B17: 20 writers, transactions of 0 to 3 s; what was read as settled at
    some time is still all there is of that time at the end."""
    q = kit.queue("q")
    ids = kit.parts(q, ["p%d" % i for i in range(40)])
    stop = threading.Event()
    faults = []

    def write(n):
        rng = random.Random(n)
        try:
            mine = Kit(db.connect(autocommit=False))
            while not stop.is_set():
                # some wait before they write, some after
                if rng.random() < 0.5:
                    mine.value("select 1")
                    stop.wait(rng.random())
                # own partitions: no lock waits that would outlast the test
                mine.push(ids[2 * n + rng.randrange(2)], 1)
                stop.wait(rng.choice((0, 0, 0.01, 0.3, 3 * rng.random())))
                mine.conn.commit()
        except Exception as e:
            faults.append(e)

    read_sql = ("select partition_id, base_offset from queen.segments"
                " where created_at < %s")
    writers = [threading.Thread(target=write, args=(n,)) for n in range(20)]
    for w in writers:
        w.start()
    kept = []
    try:
        # guard 0: only the transactions' starts protect
        end = time.monotonic() + 7
        while time.monotonic() < end:
            settled, degraded = safe(kit.conn, guard=0)
            assert degraded is False
            kept.append((settled, set(kit.rows(read_sql, settled))))
            time.sleep(0.01)
    finally:
        stop.set()
        for w in writers:
            w.join()
    assert faults == []
    for settled, seen in kept:
        assert set(kit.rows(read_sql, settled)) == seen, settled
    n_rows = kit.value("select count(*) from queen.segments")
    assert n_rows > 100 and len(kept) > 100
    # and it moved on: the last one is younger than most records
    assert len(kept[-1][1]) > n_rows / 4
    assert kept[-1][0] - kept[0][0] > datetime.timedelta(seconds=2)
    wait_until(lambda: safe(kit.conn, guard=0)[0] > kept[-1][0], 10,
               "safeTime after the writers ended")


def test_what_takes_several_looks_has_one_snapshot(kit):
    """Stable functions use the snapshot of the call for every statement."""
    assert kit.rows(
        "select proname from pg_proc where provolatile = 's' and proname in"
        " ('changed_by_time', 'fetch_v1', 'fetch_high_v1') order by 1") == [
            ("changed_by_time",), ("fetch_high_v1",), ("fetch_v1",)]

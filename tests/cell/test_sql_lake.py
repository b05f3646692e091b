# SPDX-License-Identifier: Apache-2.0
"""What queen-s3 asks of the cell: 760_lake.sql, and its reads in 300_find,
320_fetch and 330_changed."""
import datetime
import json
import re
import threading

import psycopg2
import pytest

from queenlib import OTHER_TENANT, TENANT, rows, wait_until
from sqlkit import Kit, at
from test_sql_changed import safe

pytestmark = pytest.mark.allpg
MIB = 1 << 20
NIL = "00000000-0000-0000-0000-000000000000"
LEASE, DONE, OPEN, ASK = ("s3:sink:q:" + what for what in (
    "lease", "committed", "intent", "resume"))


@pytest.fixture
def kit(db):
    return Kit(db.connect())


# Reading by partition id

def fetch(kit, entries, queue="q", budget=64 * MIB, tenant=TENANT):
    """entries: (part, offset[, max_bytes]); per entry (verdict, high,
    log_start, [(base, last)])."""
    entries = [e if len(e) == 3 else e + (MIB,) for e in entries]
    answer = []
    for row in kit.rows("select * from queen.fetch_parts_v1("
                        "%s, %s, %s, %s, %s, %s)", tenant, queue,
                        *[list(c) for c in zip(*entries)], budget):
        ord_, verdict, high, start, base, last = row[:6]
        if ord_ > len(answer):
            answer.append((verdict, high, start, []))
        assert ord_ == len(answer)
        if base is not None:
            answer[-1][3].append((base, last))
    assert len(answer) == len(entries)
    return answer


def test_fetch_by_id_has_the_rules_of_fetch(kit):
    q = kit.queue("q")
    a, b, c = kit.parts(q, ["a", "b", "c"])
    for n in (3, 1, 2):
        kit.push(a, n)
    kit.push(b, 5, blob=b"\x01\x00" + b"z" * 998)
    kit.push(b, 5, blob=b"\x01\x00" + b"z" * 998)
    assert fetch(kit, [(a, 1), (b, 10), (c, 0), (a, 7), (c, 1), (a, 4)]) == [
        (0, 6, 0, [(0, 2), (3, 3), (4, 5)]), (0, 10, 0, []), (0, 0, 0, []),
        (2, 6, 0, []), (2, 0, 0, []), (0, 6, 0, [(4, 5)])]
    kit.drop_segments(a, 2)
    assert fetch(kit, [(a, 2), (a, 3)]) == [
        (2, 6, 3, []), (0, 6, 3, [(3, 3), (4, 5)])]
    # the first segment of an entry escapes its bound, that of the call both
    assert fetch(kit, [(b, 0, 1), (a, 3, 1)]) == [
        (0, 10, 0, [(0, 4)]), (0, 6, 3, [(3, 3)])]
    assert fetch(kit, [(b, 0), (a, 3)], budget=1) == [
        (0, 10, 0, [(0, 4)]), (0, 6, 3, [])]
    assert fetch(kit, [(b, 0), (a, 3)], budget=2020) == [
        (0, 10, 0, [(0, 4), (5, 9)]), (0, 6, 3, [(3, 3)])]


def test_fetch_by_id_tells_what_is_gone(kit):
    """Of this tenant, this name, this incarnation, or not at all."""
    q = kit.queue("q")
    a, x = kit.part(q, "a"), kit.part(kit.queue("other"), "x")
    kit.push(a, 1)
    kit.push(x, 1)
    gone = (1, 0, 0, [])
    here = (0, 1, 0, [(0, 0)])
    assert fetch(kit, [(x, 0), (a, 0), (10 ** 12, 0), (a, 1)]) == [
        gone, here, gone, (0, 1, 0, [])]
    assert fetch(kit, [(x, 0)], "other") == [here]
    assert fetch(kit, [(a, 0)], tenant=OTHER_TENANT) == [gone]
    kit.rows("delete from queen.partition_heads where id = %s", a)
    kit.rows("delete from queen.partitions where id = %s", a)
    anew = kit.part(q, "a")
    assert fetch(kit, [(a, 0), (anew, 0)]) == [gone, (0, 0, 0, [])]
    kit.rows("update queen.queues set deleted_at = now() where id = %s", q)
    again = kit.part(kit.queue("q"), "a")
    assert fetch(kit, [(anew, 0), (again, 0)]) == [gone, (0, 0, 0, [])]


def seek(kit, parts, when, queue="q", tenant=TENANT):
    return [r[1] for r in kit.rows(
        "select * from queen.offsets_at_v1(%s, %s, %s::bigint[], %s)",
        tenant, queue, parts, when)]


def test_seek_answers_for_every_partition_in_its_order(kit):
    q = kit.queue("q")
    a, b, c = kit.parts(q, ["a", "b", "c"])
    for i in range(10):
        kit.push(a, 2, now=at(i))
    kit.push(b, 3, now=at(5))
    kit.drop_segments(a, 5)
    alien = kit.part(kit.queue("other"), "x")
    assert seek(kit, [b, a, c, alien, 10 ** 12, a], at(5)) == [
        0, 10, 0, None, None, 10]
    assert seek(kit, [a, b], at(0)) == [6, 0]
    assert seek(kit, [a, b], at(4.5)) == [10, 0]
    assert seek(kit, [a, b], at(99)) == [20, 3]
    assert seek(kit, [a], at(0), tenant=OTHER_TENANT) == [None]
    assert seek(kit, [a], at(0), "nope") == [None]
    assert seek(kit, [], at(0)) == []


# Discovery

def page(kit, since=None, after=(None, None), limit=1000, queue="q",
         tenant=TENANT):
    """(verdict, part, name, last_offset, log_start, last_write_at)"""
    return kit.rows("select * from queen.changed_parts_v1("
                    "%s, %s, %s, %s, %s, %s)", tenant, queue, since,
                    *after, limit)


def sweep(kit, since=None, limit=1000):
    found, after = [], (None, None)
    while True:
        got = page(kit, since, after, limit)
        assert {r[0] for r in got} <= {0}
        found += [r[1:] for r in got]
        if len(got) < limit:
            return found
        after = (got[-1][5] if since else None, got[-1][1])


def test_discovery_of_all_goes_by_id(kit):
    q = kit.queue("q")
    b, a, c = (kit.part(q, n) for n in ("b", "a", "C"))
    kit.push(kit.part(kit.queue("other"), "x"), 1)
    born = kit.value("select created_at from queen.partitions where id = %s",
                     c)
    kit.push(b, 2, now=at(1))
    kit.push(a, 2, now=at(1))
    kit.push(a, 3, now=at(9))
    kit.drop_segments(a, 1)
    want = [(b, "b", 1, 0, at(1)), (a, "a", 4, 2, at(9)), (c, "C", -1, 0, born)]
    for limit in (1, 2, 3, 4):
        assert sweep(kit, limit=limit) == want
    assert page(kit, queue="none") == page(kit, tenant=OTHER_TENANT) == [
        (1, None, None, None, None, None)]
    kit.rows("update queen.queues set deleted_at = now() where id = %s", q)
    assert page(kit)[0][0] == 1
    kit.queue("q")
    assert page(kit) == []


@pytest.mark.parametrize("n_parts, others", [(40, 5), (40, 1100), (1100, 1100)])
def test_discovery_since_goes_by_time_and_id(kit, n_parts, others):
    """Walked by time, read whole, and walked for it is large."""
    q, other = kit.queue("q"), kit.queue("other")
    names = ["p%04d" % i for i in range(n_parts)]
    ids = kit.parts(q, names[:600]) + kit.parts(q, names[600:])
    written = {part: at(i % 5) for i, part in enumerate(
        kit.parts(other, ["x%d" % i for i in range(others)]))}
    written.update((ids[i], at(i % 5)) for i in range(0, n_parts, 3))
    kit.rows("update queen.partition_heads h set last_write_at = w.at"
             " from unnest(%s, %s) w(id, at) where w.id = h.id",
             list(written), list(written.values()))
    for since in (0, 2, 4):
        want = sorted((at(i % 5), ids[i]) for i in range(0, n_parts, 3)
                      if i % 5 >= since)
        for limit in (7 if n_parts < 100 else 100, 1000):
            assert [(r[4], r[0]) for r in sweep(kit, at(since), limit)] == want
    assert sweep(kit, at(5)) == []
    # a cursor behind `since` takes nothing away
    assert len(page(kit, at(3), (at(1), 10 ** 12))) == sum(
        i % 5 >= 3 for i in range(0, n_parts, 3))


def test_discovery_clamps_its_limit(kit):
    kit.parts(kit.queue("q"), ["p%d" % i for i in range(1002)])
    assert [len(page(kit, limit=n)) for n in (-5, 0, 2, None, 5000)] == [
        1, 1, 2, 1000, 1000]


def test_times_do_not_depend_on_the_session(kit):
    """151: neither what a page shows nor what a document says."""
    kit.push(kit.part(kit.queue("q"), "a"), 1, now=at(7))
    for zone, style in (("UTC", "ISO, MDY"), ("Asia/Kolkata", "German"),
                        ("America/St_Johns", "SQL, DMY")):
        kit.rows("select set_config('timezone', %s, false),"
                 " set_config('datestyle', %s, false)", zone, style)
        assert kit.value("select extract(epoch from last_write_at)::bigint"
                         " from queen.changed_parts_v1(%s, 'q', null, null,"
                         " null, 9)", TENANT) == int(at(7).timestamp())
        for text in '"2026-01-01T00:00:07.000000Z"', "1767225607000000":
            assert kit.value("select extract(epoch from queen.lake_time(%s))"
                             "::bigint", text) == int(at(7).timestamp())


def pages_read(kit, call, *args):
    plan = "\n".join(r[0] for r in kit.rows(
        "explain (analyze, buffers, timing off, costs off)"
        " select * from queen." + call, *args))
    return sum(int(n) for n in re.findall(
        r"shared (?:hit|read)=(\d+)", plan.split("Planning")[0]))


def test_reads_cost_what_they_return(kit):
    """Plans made on an empty cell, as pooled sessions keep them: an idle page of
    a large queue reads next to nothing, another what it returns."""
    for option in ("plan_cache_mode = force_generic_plan",
                   "enable_seqscan = off", "enable_bitmapscan = off",
                   "jit = off"):
        kit.rows("set " + option)
    q, small = kit.queue("q"), kit.queue("small")
    few = kit.parts(small, ["a", "b"])
    changed = "changed_parts_v1(%s, %s, %s, %s, %s, %s)"
    calls = [
        (changed, (TENANT, "q", at(500), None, None, 1000), 10),
        (changed, (TENANT, "small", at(500), None, None, 1000), 10),
        (changed, (TENANT, "q", at(0), at(1), 500, 10), 300),
        (changed, (TENANT, "small", at(0), None, None, 10), 150),
        (changed, (TENANT, "q", None, None, 500, 10), 150),
        ("fetch_parts_v1(%s, 'small', %s::bigint[], '{45000,3}',"
         " '{2000,2000}', 2000)", (TENANT, few), 100),
        ("offsets_at_v1(%s, 'small', %s::bigint[], %s)",
         (TENANT, few, at(7777)), 400),
        ("lake_queues_v1(%s)", (TENANT,), 10),
        ("lake_rows_v1(%s, array['a', 'b'])", (TENANT,), 60),
        ("lake_fence_v1(%s, 's3:a', '1', 5, 9, 's3:b', '1', 0, 's3:c')",
         (TENANT,), 60),
        ("lake_sink_get_v1(%s)", (TENANT,), 60),
        ("lake_sinks_v1()", (), 60),
    ]
    for _ in range(3):
        for call, args, _ in calls:
            kit.rows("select * from queen." + call, *args)
    kit.rows("with p as (insert into queen.partitions (queue_id, name,"
             " created_at) select %s, 'p' || i, now() from"
             " generate_series(1, 20000) i returning id, queue_id)"
             " insert into queen.partition_heads (id, queue_id,"
             " last_write_at) select id, queue_id, %s from p", q, at(1))
    kit.rows("insert into queen.segments select %s, i * 3, i * 3 + 2,"
             " %s::timestamptz + make_interval(secs => i), 10, null, '\\x0100'"
             " from generate_series(0, 19999) i", few[0], at(0))
    kit.rows("insert into queen.kv (tenant, namespace, key, value, version,"
             " created_at, updated_at) select %s, 'queen-s3', 'x' || i, '1', 1,"
             " now(), now() from generate_series(1, 20000) i", TENANT)
    for call, args, most in calls:
        assert pages_read(kit, call, *args) <= most, (call, args)


@pytest.mark.parametrize("n_parts", [150, 1100])
def test_discovery_meets_every_partition_while_rows_move(db, kit, n_parts):
    q = kit.queue("q")
    names = ["p%04d" % i for i in range(n_parts)]
    ids = kit.parts(q, names[:600]) + kit.parts(q, names[600:])
    kit.rows("update queen.partition_heads set last_write_at = %s", at(0))
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
            seen, after = set(), (None, None)
            while seen != set(ids):
                got = page(kit, since, after, 60)
                seen |= {r[1] for r in got}
                assert len(got) == 60 or seen == set(ids)
                after = (got[-1][5] if since else None, got[-1][1])
    finally:
        done.set()
        writer.join()


def test_no_record_appears_before_a_safe_time_of_discovery(db, kit):
    """150: a pass whose first statement was safeTime finds every partition with
    records up to it, and a fetch after it all of those records."""
    q = kit.queue("q")
    ids = kit.parts(q, ["p%d" % i for i in range(12)])
    stop = threading.Event()
    faults = []

    def write(n):
        try:
            mine = Kit(db.connect(autocommit=False))
            turn = 0
            while not stop.is_set():
                turn += 1
                mine.value("select 1")
                stop.wait(0.02 * ((turn + n) % 3))
                mine.push(ids[2 * n + turn % 2], 1)
                stop.wait(0.05 * (turn % (n + 2)))
                mine.conn.commit()
        except Exception as e:
            faults.append(e)

    writers = [threading.Thread(target=write, args=(n,)) for n in range(6)]
    for w in writers:
        w.start()
    passes, since = [], at(-10 ** 6)
    end = datetime.datetime.now() + datetime.timedelta(seconds=2)
    try:
        while datetime.datetime.now() < end:
            settled, degraded = safe(kit.conn, guard=0)
            assert degraded is False
            found = [r[1] for r in page(kit, since)]
            segments = set()
            for part, (verdict, _, _, got) in zip(found, fetch(
                    kit, [(p, 0) for p in found]) if found else ()):
                assert verdict == 0
                segments |= {(part, base) for base, _ in got}
            passes.append((since, settled, segments))
            # last_write_at is behind by up to a second: hence the slack
            since = settled - datetime.timedelta(seconds=2)
    finally:
        stop.set()
        for w in writers:
            w.join()
    assert faults == [] and len(passes) > 10
    stamped = kit.rows("select partition_id, base_offset, created_at"
                       " from queen.segments")
    assert len(stamped) > 30
    for since, settled, segments in passes:
        slack = since + datetime.timedelta(seconds=2)
        assert {(p, b) for p, b, t in stamped
                if slack <= t < settled} <= segments
    assert passes[-1][1] - passes[0][1] > datetime.timedelta(seconds=1)


# The state of a queue

def put(kit, key, value, ttl=None, tenant=TENANT, expect=None, now=None):
    """(verdict, version) of one put in namespace queen-s3."""
    return kit.rows("select verdict, version from queen.kv_one_v1(%s, 3,"
                    " 'queen-s3', %s, %s, %s, %s, false, null, null, null,"
                    " %s)", tenant, key, json.dumps(value), expect, ttl,
                    now)[0]


def fence(kit, lease, expect, value=2, key=DONE, lease_value=1, ttl=30,
          drop=None, now=None, lease_key=LEASE, tenant=TENANT):
    return kit.rows("select * from queen.lake_fence_v1(%s, %s, %s, %s, %s,"
                    " %s, %s, %s, %s, %s)", tenant, lease_key,
                    json.dumps(lease_value), lease, ttl, key,
                    json.dumps(value), expect, drop, now)[0]


def state(kit, *keys, tenant=TENANT, now=None):
    return [(v, json.loads(x) if x else None) for v, x in kit.rows(
        "select version, value from queen.lake_rows_v1(%s, %s, %s)", tenant,
        list(keys) or [LEASE, DONE], now)]


def test_rows_come_in_the_order_asked(kit):
    _, one = put(kit, DONE, {"k": 1})
    _, two = put(kit, LEASE, {"a": [2]}, ttl=10)
    put(kit, OPEN, 3, tenant=OTHER_TENANT)
    assert state(kit, LEASE, OPEN, DONE, LEASE) == [
        (two, {"a": [2]}), (0, None), (one, {"k": 1}), (two, {"a": [2]})]
    assert state(kit, LEASE, now=at(10 ** 9)) == [(0, None)]


def test_fence_writes_both_or_nothing(kit):
    """91, 149: versions are new each time; a stale one of either row loses the
    whole of it."""
    _, v1 = put(kit, LEASE, "mine", ttl=30)
    verdict, lease, done = fence(kit, v1, 0)
    assert verdict == 0 and lease > v1 and done > v1 and lease != done
    assert state(kit) == [(lease, 1), (done, 2)]
    left = kit.value("select expires_at - updated_at from queen.kv"
                     " where key = %s", LEASE)
    assert left == datetime.timedelta(seconds=30)
    assert kit.value("select expires_at from queen.kv where key = %s",
                     DONE) is None
    before = state(kit)
    assert fence(kit, v1, done) == (1, lease, done)
    assert fence(kit, lease, 0) == (2, lease, done)
    assert fence(kit, lease, v1) == (2, lease, done)
    assert fence(kit, lease, 0, key=OPEN)[0] == 0
    lease = state(kit)[0][0]
    assert fence(kit, lease, v1, key=ASK) == (2, lease, 0)
    assert state(kit)[1] == before[1]
    # another's, of another tenant
    assert fence(kit, lease, 0, tenant=OTHER_TENANT) == (1, 0, 0)
    assert state(kit, LEASE, DONE, tenant=OTHER_TENANT) == [(0, None)] * 2


def test_fence_whose_answer_was_lost_is_sent_again(kit):
    """114: what it wrote counts; a lease that moved otherwise is told."""
    mine, other = ({"incarnation": i, "sinceMs": 1} for i in ("a", "b"))
    _, v0 = put(kit, LEASE, mine, ttl=30)
    verdict, v1, done = fence(kit, v0, 0, {"k": 1}, lease_value=mine)
    assert verdict == 0
    before = state(kit)
    assert fence(kit, v0, 0, {"k": 1.0}, lease_value=mine) == (3, v1, done)
    assert fence(kit, v0, done, {"k": 1}, lease_value=mine) == (3, v1, done)
    assert fence(kit, v0, 0, {"k": 2}, lease_value=mine) == (4, v1, done)
    assert fence(kit, v0, done, {"k": 2}, lease_value=mine) == (4, v1, done)
    assert fence(kit, v1, 0, {"k": 2}, lease_value=mine) == (2, v1, done)
    assert fence(kit, v0, 0, {"k": 1}, lease_value=other) == (1, v1, done)
    assert fence(kit, v0, 0, {"k": 1}, lease_value=1) == (1, v1, done)
    assert state(kit) == before


def test_fence_of_a_lease_that_is_over_loses(kit):
    """92: also while nobody has taken it."""
    _, v = put(kit, LEASE, "mine", ttl=10, now=at(0))
    assert fence(kit, v, 0, now=at(10)) == (1, 0, 0)
    verdict, lease, _ = fence(kit, v, 0, now=at(9.9))
    assert verdict == 0
    assert kit.value("select expires_at from queen.kv where key = %s",
                     LEASE) == at(39.9)
    assert fence(kit, lease, 0, now=at(100), key=OPEN) == (1, 0, 0)
    assert put(kit, LEASE, "other", ttl=10, expect=0, now=at(100))[0] == 0


def test_fence_takes_a_pointer_that_died_for_absent(kit):
    _, v = put(kit, LEASE, "mine", ttl=100, now=at(0))
    put(kit, DONE, "old", ttl=1, now=at(0))
    verdict, _, done = fence(kit, v, 0, now=at(5))
    assert verdict == 0
    assert state(kit, DONE, now=at(5)) == [(done, 2)]


def test_fence_drops_a_third_row_with_them(kit):
    _, v = put(kit, LEASE, "mine", ttl=30)
    put(kit, ASK, "please")
    assert fence(kit, v, 7, drop=ASK)[0] == 2
    assert state(kit, ASK)[0][1] == "please"
    verdict, v, done = fence(kit, v, 0, drop=ASK)
    assert verdict == 0 and state(kit, ASK) == [(0, None)]
    assert fence(kit, v, done, drop=ASK)[0] == 0


@pytest.mark.parametrize("bad", [
    dict(key="x"), dict(key="s3:"), dict(key=LEASE), dict(lease_key="lease"),
    dict(drop="other"), dict(drop=DONE), dict(drop=LEASE), dict(ttl=0),
    dict(key="a s3:x"), dict(lease=0), dict(expect=-1)])
def test_fence_keeps_to_rows_of_a_queue(kit, bad):
    """Fails closed: nothing outside s3: is written, lease or not."""
    _, v = put(kit, LEASE, "mine", ttl=30)
    before = kit.rows("select * from queen.kv")
    with pytest.raises(psycopg2.errors.InvalidParameterValue):
        fence(kit, **{**dict(lease=v, expect=0), **bad})
    assert kit.rows("select * from queen.kv") == before


def test_two_fences_at_once_have_one_winner(db, kit):
    """The other one waits for the row and finds it changed."""
    _, v = put(kit, LEASE, "mine", ttl=30)
    first = Kit(db.connect(autocommit=False))
    verdict, lease, done = fence(first, v, 0)
    assert verdict == 0
    answer = []
    other = Kit(db.connect())
    thread = threading.Thread(target=lambda: answer.append(fence(other, v, 0)))
    thread.start()
    wait_until(lambda: kit.value(
        "select count(*) from pg_locks where not granted") == 1)
    first.conn.commit()
    thread.join()
    assert [a[:2] for a in answer] == [(1, lease)]
    assert state(kit) == [(lease, 1), (done, 2)]


def test_names_of_queues(kit):
    for name in ("b", "a", "C", "gone"):
        kit.queue(name)
    Kit(kit.conn, OTHER_TENANT).queue("other")
    kit.rows("update queen.queues set deleted_at = now() where name = 'gone'")
    assert kit.rows("select * from queen.lake_queues_v1(%s)", TENANT) == [
        ("C",), ("a",), ("b",)]


def test_a_deleted_queue_keeps_its_rows(kit):
    q = kit.queue("q")
    kit.push(kit.part(q, "a"), 1)
    put(kit, DONE, {"k": 4})
    put(kit, OPEN, {"k": 5})
    kit.rows("select * from queen.queue_delete_v1(%s, 'q')", TENANT)
    assert [x for _, x in state(kit, DONE, OPEN)] == [{"k": 4}, {"k": 5}]


def resume(kit, queue="q", prefix=None, sink="sink", tenant=TENANT):
    return kit.value("select queen.lake_resume_v1(%s, %s, %s, %s)", tenant,
                     sink, queue, prefix)


def test_resume_leaves_a_request_for_an_hour(kit):
    kit.queue("q")
    kit.queue("a/b")
    assert resume(kit) is True
    got = state(kit, ASK)[0][1]
    assert set(got) == {"resume", "atMs"} and got["resume"] == "newest"
    assert kit.value("select expires_at - updated_at from queen.kv"
                     ) == datetime.timedelta(hours=1)
    assert resume(kit, prefix="anew/2") is True
    got = state(kit, ASK)[0][1]
    assert (got["resume"], got["prefix"]) == ("prefix", "anew/2")
    assert resume(kit, "a/b") is True
    assert state(kit, "s3:sink:a%2Fb:resume")[0][0] > 0
    for wrong in (dict(queue="none"), dict(sink="a:b"), dict(sink=""),
                  dict(tenant=OTHER_TENANT)):
        assert resume(kit, **wrong) is False
    assert kit.value("select count(*) from queen.kv") == 2


# Sinks of tenants

def sink_put(kit, tenant, config=None, secret=None, enabled=True, now=None,
             cluster="acme"):
    return kit.value("select queen.lake_sink_put_v1(%s, %s, %s, %s, %s, %s)",
                     tenant, cluster, enabled, json.dumps(config or {}),
                     secret, now)


def sinks(kit):
    return [(t, c, e, json.loads(d), s, u) for t, c, e, d, s, u in kit.rows(
        "select * from queen.lake_sinks_v1()")]


def test_sinks_are_rows_of_the_internal_tenant(kit):
    assert sink_put(kit, OTHER_TENANT, {"bucket": "b"}) == 1
    assert sinks(kit) == []
    assert sink_put(kit, OTHER_TENANT, {"bucket": "b"}, "sealed", now=at(1)) == 0
    assert sink_put(kit, TENANT, {"bucket": "c"}, "two", False, at(1), "c") == 0
    put(kit, "sink:nonsense", 1, tenant=NIL)
    one = (OTHER_TENANT, "acme", True, {"bucket": "b"}, "sealed", at(1))
    two = (TENANT, "c", False, {"bucket": "c"}, "two", at(1))
    assert sorted(sinks(kit)) == sorted([one, two])
    shown = kit.rows("select * from queen.lake_sink_get_v1(%s)", OTHER_TENANT)
    assert shown == [("acme", True, '{"bucket": "b"}', at(1))]
    assert {r[0] for r in kit.rows("select tenant::text from queen.kv")} == {NIL}
    assert kit.value("select queen.lake_sink_delete_v1(%s)", TENANT) is True
    assert kit.value("select queen.lake_sink_delete_v1(%s)", TENANT) is False
    assert sinks(kit) == [one]


def test_a_sink_is_written_when_it_changes_or_a_secret_comes(kit):
    """Every write moves updated_at, even within its microsecond."""
    def updated():
        return sinks(kit)[0][5]

    a = {"bucket": "b", "queues": ["x"]}
    sink_put(kit, TENANT, a, "s1", now=at(1))
    sink_put(kit, TENANT, dict(reversed(a.items())), now=at(2))
    assert updated() == at(1)
    sink_put(kit, TENANT, a, enabled=False, now=at(3))
    assert (updated(), sinks(kit)[0][2], sinks(kit)[0][4]) == (at(3), False, "s1")
    sink_put(kit, TENANT, dict(a, bucket="c"), enabled=False, now=at(4))
    assert updated() == at(4)
    sink_put(kit, TENANT, dict(a, bucket="c"), "s1", False, now=at(4))
    assert updated() == at(4) + datetime.timedelta(microseconds=1)
    sink_put(kit, TENANT, dict(a, bucket="c"), "s2", False, now=at(5))
    assert (updated(), sinks(kit)[0][4]) == (at(5), "s2")
    with pytest.raises(psycopg2.errors.StringDataRightTruncation):
        sink_put(kit, TENANT, {"x": "y" * 70000})
    assert updated() == at(5)


def test_two_puts_at_once_keep_the_newer_secret(db, kit):
    first = Kit(db.connect(autocommit=False))
    sink_put(first, TENANT, {"bucket": "a"}, "s1")
    done = []
    other = Kit(db.connect())
    thread = threading.Thread(target=lambda: done.append(
        sink_put(other, TENANT, {"bucket": "b"}, "s2")))
    thread.start()
    wait_until(lambda: kit.value(
        "select count(*) from pg_locks where not granted") == 1)
    first.conn.commit()
    thread.join()
    assert done == [0]
    assert [s[3:5] for s in sinks(kit)] == [({"bucket": "b"}, "s2")]


# The doctor

def behind(kit, now, secs=3600):
    return kit.rows("select * from queen.doctor_lake_v1(%s, %s)", secs, at(now))


def test_doctor_names_queues_that_are_not_shipped(kit):
    """By the age of what is not in the lake, not of the pointer alone."""
    odd, idle = kit.queue("a/b"), kit.queue("idle")
    part = kit.part(odd, "x")
    kit.part(odd, "never written")
    kit.push(kit.part(idle, "x"), 1, now=at(0))
    done = {"k": 3, "tEnd": "2026-01-01T00:16:40.000000Z"}      # at(1000)
    put(kit, "s3:sink:a%2Fb:committed", done)
    put(kit, "s3:sink:idle:committed", done)
    put(kit, "s3:sink:none:committed", done)
    put(kit, "s3:two:a%2Fb:committed", 5)
    kit.push(part, 1, now=at(900))
    assert behind(kit, 100000) == []
    kit.push(part, 1, now=at(50000))
    kit.push(part, 1, now=at(60000))
    assert behind(kit, 53600) == []
    assert behind(kit, 53700) == [("sink", "a/b", None, False, 3700)]
    put(kit, "s3:sink:a%2Fb:lease", {"instance": "n1"}, ttl=30, now=at(53700))
    put(kit, "s3:sink:a%2Fb:committed", dict(done, cell="0123456789ab"))
    assert behind(kit, 53700) == [("sink", "a/b", "n1", True, 3700)]
    tag = kit.value("select lpad(to_hex(tag), 12, '0') from queen.cell")
    put(kit, "s3:sink:a%2Fb:committed", dict(done, cell=tag))
    assert behind(kit, 53700)[0][3] is False
    put(kit, "s3:sink:a%2Fb:committed",
        {"k": 4, "tEnd": "2026-01-01T16:00:00.000000Z"})
    assert behind(kit, 63000) == []
    assert behind(kit, 63700) == [("sink", "a/b", None, False, 3700)]

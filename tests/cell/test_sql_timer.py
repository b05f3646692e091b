# SPDX-License-Identifier: Apache-2.0
"""queen.timer_*: what is promised, what fires, each once and with its row."""
import struct
import threading
import uuid

import psycopg2
import pytest

from queenlib import TENANT, rows, wait_until
from sqlkit import Kit, at, mid
from test_sql_catalog import notices, walks  # noqa: F401

pytestmark = pytest.mark.allpg

OTHER = "00000000-0000-0000-0000-0000000000b2"
MIB = 1 << 20


def frame(txn, payload=b'{"n":1}', sub=None, sealed=False, no=None):
    """A message as lib/frame.h lays it out; its id from the text."""
    flags = (2 if sub is not None else 0) | (4 if sealed else 0)
    body = bytes([flags]) + mid("id-" + (no or txn))
    body += struct.pack("<H", len(txn.encode())) + txn.encode()
    if sub is not None:
        body += struct.pack("<H", len(sub.encode())) + sub.encode()
    body += payload
    return struct.pack("<I", len(body)) + body


def message_id(txn):
    return str(uuid.UUID(bytes=mid("id-" + txn)))


class Timers(Kit):
    def apply(self, ops, now=at(0)):
        """ops: (op, queue, key, fields); rows (ord, status, txn) by ord."""
        full = [(o, q, k, dict({"partition": "Default", "delay": 0,
                                "txn": k, "seal": None, "frame": {}}, **f))
                for o, q, k, f in ops]
        return self.rows(
            "select ord, status, txn, message_id, deliver_at"
            " from queen.timer_apply_v1(%s, %s::smallint[], %s, %s, %s,"
            " %s::bigint[], %s::bytea[], %s::bytea[], %s::smallint[], %s)"
            " order by ord", self.tenant,
            [o for o, _, _, _ in full], [q for _, q, _, _ in full],
            [k for _, _, k, _ in full], [f["partition"] for *_, f in full],
            [int(f["delay"] * 1000000) for *_, f in full],
            [mid(f["txn"]) if o == 0 else None for o, *_, f in full],
            [frame(f["txn"], sealed=f["seal"] is not None, **f["frame"])
             if o == 0 else None for o, *_, f in full],
            [f["seal"] for *_, f in full], now)

    def schedule(self, queue, key, now=at(0), **fields):
        return self.apply([(0, queue, key, fields)], now)[0]

    def cancel(self, queue, key):
        return self.apply([(1, queue, key, {})])[0]

    def fire(self, now=at(100), n=1000, n_bytes=8 * MIB):
        """(verdict, part, n) sorted."""
        return sorted(self.rows(
            "select verdict, part_id, n from queen.timer_fire_v1(%s, %s, %s)",
            n, n_bytes, now))

    def fire_one(self, queue, key, message=None, now=at(100)):
        return self.rows(
            "select verdict, n from queen.timer_fire_one_v1(%s, %s, %s, %s,"
            " %s)", self.tenant, queue, key,
            message or message_id(key), now)

    def fail(self, queue, key, message=None, counted=True, now=at(100),
             attempts=5):
        return self.value(
            "select queen.timer_fail_v1(%s, %s, %s, %s, %s, 'no luck', %s,"
            " 1000, 60000, %s)", self.tenant, queue, key,
            message or message_id(key), counted, attempts, now)

    def pending(self):
        return [r[0] for r in self.rows(
            "select timer_key from queen.timers order by tenant, timer_key")]

    def log(self, part):
        """(base, end, raw, key, blob, ids) of the partition's segments."""
        return [tuple(bytes(v) if isinstance(v, memoryview) else v for v in r)
                for r in self.rows(
                    "select s.base_offset, s.end_offset, s.raw_bytes, s.key_id,"
                    " s.blob, i.ids from queen.segments s join"
                    " queen.segment_ids i using (partition_id, base_offset)"
                    " where partition_id = %s order by base_offset", part)]

    def find(self, queue, partition="Default"):
        return self.value(
            "select p.id from queen.partitions p join queen.queues q"
            " on q.id = p.queue_id where q.tenant = %s and q.name = %s"
            " and p.name = %s and q.deleted_at is null",
            self.tenant, queue, partition)


@pytest.fixture
def timers(db):
    return Timers(db.connect())


def test_schedule_reschedule_cancel(timers):
    assert timers.schedule("q", "k", txn="t1", delay=5) \
        == (1, 0, "t1", message_id("t1"), at(5))
    assert timers.schedule("q", "k", now=at(1), txn="t2", delay=0.25,
                           partition="p") \
        == (1, 1, "t2", message_id("t2"), at(1.25))
    assert timers.rows("select partition, deliver_at, due_at, created_at,"
                       " updated_at, attempts from queen.timers") \
        == [("p", at(1.25), at(1.25), at(0), at(1), 0)]
    assert timers.cancel("q", "k")[:3] == (1, 2, "t2")
    assert timers.cancel("q", "k") == (1, 3, None, None, None)
    assert timers.pending() == []


def test_results_by_position_whatever_the_order(timers):
    timers.schedule("b", "1", txn="old")
    assert [r[:3] for r in timers.apply(
        [(0, "z", "1", {"txn": "z1"}), (1, "b", "1", {}),
         (0, "a", "9", {"txn": "a9"}), (1, "b", "2", {})])] \
        == [(1, 0, "z1"), (2, 2, "old"), (3, 0, "a9"), (4, 3, None)]


@pytest.mark.parametrize("second", [0, 1])
def test_one_name_once_in_a_call(timers, second):
    with pytest.raises(psycopg2.Error) as e:
        timers.apply([(0, "q", "k", {}), (0, "q", "j", {}),
                      (second, "q", "k", {})])
    assert e.value.pgcode == "22023"
    assert "timers_duplicate_key_in_call" in str(e.value)
    assert timers.pending() == []


def test_tenants_apart(db, timers):
    other = Timers(db.connect(), OTHER)
    timers.schedule("q", "k", txn="mine")
    assert other.cancel("q", "k")[1] == 3
    assert other.schedule("q", "k", txn="theirs")[1] == 0
    for t, txn in ((timers, "mine"), (other, "theirs")):
        assert t.rows("select txn from queen.timer_list_v1(%s, 'q', null, 9)",
                      t.tenant) == [(txn,)]
        assert t.value("select queen.timer_count_v1(%s, 'q', 'k')",
                       t.tenant) == 1
    timers.fire()
    assert bytes(timers.log(timers.find("q"))[0][5]) == mid("mine")
    assert bytes(other.log(other.find("q"))[0][5]) == mid("theirs")


def test_fire_appends_and_deletes(timers):
    timers.schedule("orders.eu", "late", delay=2, partition="p")
    timers.schedule("orders.eu", "early", delay=1, partition="p")
    timers.schedule("orders.eu", "never", delay=1000, partition="p")
    fired = timers.fire()
    part = timers.find("orders.eu", "p")
    assert fired == [(0, part, 2)]
    assert timers.pending() == ["never"]
    want = frame("early") + frame("late")
    assert timers.log(part) == [(0, 1, len(want), None, b"\x01\x00" + want,
                                 mid("early") + mid("late"))]
    assert timers.rows("select namespace, task from queen.queues") \
        == [("orders", "eu")]
    assert timers.rows("select last_write_at, oldest_live_at, log_start from"
                       " queen.partition_heads where id = %s", part) \
        == [(at(100), at(100), 0)]
    assert timers.fire() == []


def test_fire_goes_behind_what_is_there(timers):
    part = timers.part(timers.queue("q"), "Default")
    timers.push(part, 3, now=at(50))
    timers.schedule("q", "k")
    timers.fire()
    assert [(r[0], r[1]) for r in timers.log(part)] == [(0, 2), (3, 3)]


def test_fire_by_rows_and_bytes_oldest_first(timers):
    for i in range(6):
        timers.schedule("q", "k%d" % i, delay=i)
    timers.fire(n=2)
    assert timers.pending() == ["k2", "k3", "k4", "k5"]
    timers.fire(n_bytes=2 * len(frame("k2")))
    assert timers.pending() == ["k4", "k5"]
    timers.fire(n_bytes=1)
    assert timers.pending() == ["k5"]


def test_segments_of_one_mebibyte_and_one_key(timers):
    big = {"payload": b'"' + b"x" * (400 << 10) + b'"'}
    for i in range(6):
        timers.schedule("q", "k%d" % i, delay=i, frame=big)
    timers.schedule("q", "k6", delay=6, seal=7)
    timers.schedule("q", "k7", delay=7, seal=7)
    timers.schedule("q", "k8", delay=8, seal=9)
    timers.schedule("q", "k9", delay=9,
                    frame={"payload": b'"' + b"y" * MIB + b'"'})
    timers.fire()
    log = timers.log(timers.find("q"))
    assert [(r[0], r[1], r[3]) for r in log] == [
        (0, 1, None), (2, 3, None), (4, 5, None), (6, 7, 7), (8, 8, 9),
        (9, 9, None)]
    assert b"".join(r[5] for r in log) \
        == b"".join(mid("k%d" % i) for i in range(10))
    assert timers.pending() == []


def test_many_partitions_in_one_fire(timers):
    timers.apply([(0, "q%d" % (i % 3), "k%03d" % i,
                   {"partition": "p%d" % (i % 50)}) for i in range(200)])
    fired = timers.fire()
    assert sum(r[2] for r in fired) == 200
    assert len(fired) == 150
    assert timers.value("select count(*) from queen.segments") == 150


def test_locked_timers_are_left(db, timers):
    timers.schedule("q", "held")
    timers.schedule("q", "free")
    other = db.connect(autocommit=False)
    rows(other, "select 1 from queen.timers where timer_key = 'held'"
         " for update")
    timers.fire()
    assert timers.pending() == ["held"]
    assert timers.fire_one("q", "held") == []
    other.rollback()
    timers.fire()
    assert timers.pending() == []


def test_rolled_back_fire_leaves_all(db, timers):
    timers.schedule("q", "k")
    conn = db.connect(autocommit=False)
    Timers(conn).fire()
    conn.rollback()
    assert timers.pending() == ["k"]
    assert timers.value("select count(*) from queen.segments") == 0
    assert timers.find("q") is None


def test_cancel_waits_for_the_fire_and_is_absent(db, timers):
    timers.schedule("q", "k")
    conn = db.connect(autocommit=False)
    Timers(conn).fire()
    got = []
    t = threading.Thread(target=lambda: got.append(
        Timers(db.connect()).cancel("q", "k")))
    t.start()
    wait_until(lambda: timers.value(
        "select count(*) from pg_locks where not granted") > 0,
        what="the cancel to wait")
    conn.commit()
    t.join()
    assert got == [(1, 3, None, None, None)]


def test_a_reschedule_waits_for_the_fire_and_is_new(db, timers):
    timers.schedule("q", "k", txn="first")
    conn = db.connect(autocommit=False)
    Timers(conn).fire()
    got = []
    t = threading.Thread(target=lambda: got.append(
        Timers(db.connect()).schedule("q", "k", txn="second", delay=500)))
    t.start()
    wait_until(lambda: timers.value(
        "select count(*) from pg_locks where not granted") > 0,
        what="the schedule to wait")
    conn.commit()
    t.join()
    assert [r[:3] for r in got] == [(1, 0, "second")]
    assert [bytes(r[5]) for r in timers.log(timers.find("q"))] \
        == [mid("first")]
    assert timers.pending() == ["k"]


def test_a_rescheduled_timer_is_not_fired_as_it_was(db, timers):
    """The fire skips what is being replaced, and it is not due any more."""
    timers.schedule("q", "k", txn="first")
    conn = db.connect(autocommit=False)
    Timers(conn).schedule("q", "k", txn="second", delay=500)
    assert timers.fire() == []
    conn.commit()
    assert timers.fire() == [] and timers.find("q") is None
    timers.fire(at(501))
    assert [bytes(r[5]) for r in timers.log(timers.find("q"))] \
        == [mid("second")]


def test_two_fires_at_once_each_timer_once(db, timers):
    timers.apply([(0, "q", "k%03d" % i, {"partition": "p%d" % (i % 7)})
                  for i in range(256)])

    def run():
        mine = Timers(db.connect())
        while timers_left():
            mine.fire(n=20)

    def timers_left():
        return rows(db.connect(), "select 1 from queen.timers limit 1")

    workers = [threading.Thread(target=run) for _ in range(3)]
    for w in workers:
        w.start()
    for w in workers:
        w.join()
    found = b"".join(
        r[5] for i in range(7) for r in timers.log(timers.find("q", "p%d" % i)))
    ids = [found[i:i + 16] for i in range(0, len(found), 16)]
    assert sorted(ids) == sorted(mid("k%03d" % i) for i in range(256))


def test_a_timer_is_sealed_or_not_by_the_flag_at_its_schedule(timers):
    timers.schedule("q", "bare", txn="t")
    timers.schedule("q", "sealed", seal=3)
    part = timers.part(timers.queue("q"), "Default")
    timers.rows("update queen.queues set encryption_enabled = true"
                " returning 1")
    assert timers.fire() == [(0, part, 1), (0, part, 1)]
    assert timers.pending() == []
    assert timers.rows("select base_offset, key_id from queen.segments"
                       " order by 1") == [(0, None), (1, 3)]
    with pytest.raises(psycopg2.Error, match="encryption_required"):
        timers.schedule("q", "bare", txn="t")


def test_fail_counts_backs_off_and_buries(timers):
    timers.schedule("q", "k")
    assert timers.fail("q", "k", counted=False) == 0
    assert timers.rows("select attempts, due_at, deliver_at, last_error"
                       " from queen.timers") == [(0, at(101), at(0), None)]
    assert timers.fail("q", "k", now=at(100)) == 2, "it is not due"
    assert timers.fail("q", "k", message_id("other"), now=at(200)) == 2
    for n in range(1, 5):
        assert timers.fail("q", "k", now=at(1000 * n)) == 0
    assert timers.rows("select attempts, last_error from queen.timers") \
        == [(4, "no luck")]
    assert timers.schedule("q", "k")[1] == 1, "a reschedule starts anew"
    assert timers.rows("select attempts, last_error from queen.timers") \
        == [(0, None)]
    for n in range(1, 5):
        assert timers.fail("q", "k", now=at(10000 * n)) == 0
    assert timers.fail("q", "k", now=at(50000)) == 1
    assert timers.pending() == []
    row, = timers.rows("select id, partition_id, group_name, message_offset,"
                       " id_hash, frame, error, retries, created_at, failed_at"
                       " from queen.dead_letters")
    assert uuid.UUID(row[0]).version == 7
    assert [bytes(v) if isinstance(v, memoryview) else v for v in row[1:]] \
        == [timers.find("q"), "__timer__", -1, mid("k"), frame("k"),
            "no luck", 5, at(0), at(50000)]


def test_backoff_has_an_end(timers):
    timers.schedule("q", "k")
    for n in range(9):
        timers.fail("q", "k", now=at(1000 * (n + 1)), attempts=100)
    assert timers.value("select due_at from queen.timers") == at(9060)


def test_fire_one(timers):
    timers.schedule("q", "a")
    timers.schedule("q", "b")
    assert timers.fire_one("q", "a", message_id("b")) == []
    assert timers.fire_one("q", "a", now=at(-1)) == []
    assert timers.fire_one("q", "a") == [(0, 1)]
    assert timers.pending() == ["b"]


def test_a_destination_being_made_is_left(db, timers):
    timers.schedule("q", "k", partition="p")
    queue = timers.queue("q")
    conn = db.connect(autocommit=False)
    rows(conn, "select pg_advisory_xact_lock(hashtextextended('p', %s))",
         (queue,))
    assert [r[0] for r in timers.fire()] == [1]
    assert timers.pending() == ["k"]
    conn.rollback()
    assert [r[0] for r in timers.fire()] == [0]


def test_due(timers):
    def due(now, cap=10):
        return timers.rows("select next_us, due, late_ms from"
                           " queen.timer_due_v1(%s, %s)", cap, now)[0]

    assert due(at(0)) == (None, 0, 0)
    timers.schedule("q", "a", delay=1.5)
    timers.schedule("q", "b", delay=2)
    assert due(at(0)) == (1500000, 0, 0)
    assert due(at(3)) == (-1500000, 2, 1500)
    assert due(at(3), 1) == (-1500000, 1, 1500)
    assert timers.rows("select queue, timer_key, message_id, partition from"
                       " queen.timer_next_v1(5, %s)", at(3)) \
        == [("q", "a", message_id("a"), "Default"),
            ("q", "b", message_id("b"), "Default")]


def test_reads(timers):
    for k in ("b", "a", "B", "aé"):
        timers.schedule("q", k, txn="t-" + k, frame={"sub": "élan"})
    timers.schedule("r", "c", seal=5, txn="t-c")

    def page(after, limit):
        return [r[0] for r in timers.rows(
            "select timer_key from queen.timer_list_v1(%s, 'q', %s, %s)",
            TENANT, after, limit)]

    assert page(None, 10) == ["B", "a", "aé", "b"]
    assert page("a", 1) == ["aé", "b"], "one more tells that there are more"
    assert page("b", 5) == []
    assert timers.rows("select txn, message_id, sealed, producer_sub from"
                       " queen.timer_list_v1(%s, 'q', 'a', 0)", TENANT) \
        == [("t-aé", message_id("t-aé"), False, "élan")]
    assert timers.rows("select txn, sealed, producer_sub from"
                       " queen.timer_list_v1(%s, 'r', null, 9)", TENANT) \
        == [("t-c", True, None)]
    assert [timers.value("select queen.timer_count_v1(%s, 'q', %s)", TENANT, p)
            for p in ("a", "aé", "%", "", chr(1114111))] == [2, 1, 0, 4, 0]
    assert bytes(timers.value("select frame from queen.timer_peek_v1(%s, 'q',"
                              " 'b')", TENANT)) == frame("t-b", sub="élan")
    assert timers.value("select frame from queen.timer_peek_v1(%s, 'q', 'x')",
                        TENANT) is None


@pytest.mark.parametrize("planned", ["empty", "one row", "full"])
def test_no_call_walks_what_is_not_due(db, notices, planned):  # noqa: F811
    """60 000 timers of two tenants are pending; the plans were made on empty
    tables, on a table of one analysed row, or afterwards."""
    timers, fill = Timers(notices), Timers(db.connect())

    def traffic(no):
        names = ["t%d-%02d" % (no, i) for i in range(64)]
        timers.apply([(0, "q", k, {"partition": "p%d" % (i % 32)})
                      for i, k in enumerate(names)], now=at(50))
        assert [r[:2] for r in timers.apply(
            [(1, "q", k, {}) for k in names[:4]], now=at(50))] == [
            (i + 1, 2) for i in range(4)]
        assert timers.rows("select due from queen.timer_due_v1(2000, %s)",
                           at(60)) == [(60,)]
        assert len(timers.rows("select * from queen.timer_next_v1(9, %s)",
                               at(60))) == 9
        for call, n in (("peek_v1(%s, 'q', %s)", 1),
                        ("list_v1(%s, 'q', %s, 9)", 10)):
            assert len(timers.rows("select * from queen.timer_" + call,
                                   TENANT, names[20])) == n
        assert timers.value("select queen.timer_count_v1(%s, 'q', %s)",
                            TENANT, "t%d-1" % no) == 10
        assert timers.fail("q", names[5], message_id(names[5]),
                           now=at(60)) == 0
        assert timers.fire_one("q", names[6], now=at(60)) == [(0, 1)]
        assert sum(r[2] for r in timers.fire(now=at(60))) == 58
        timers.cancel("q", names[5])

    if planned == "one row":
        fill.schedule("q", "one", now=at(9000000))
        fill.rows("analyze queen.timers")
    if planned != "full":
        traffic(1)
    for tenant in (TENANT, OTHER):
        fill.rows(
            "insert into queen.timers (tenant, queue, timer_key, partition,"
            " deliver_at, due_at, message_id, frame, hash, created_at,"
            " updated_at) select %s, case when i %% 2 = 0 then 'q' else 'r'"
            " end, 'k' || i, 'p', d, d, gen_random_uuid(), %s, %s, d, d"
            " from (select i, %s::timestamptz + i * interval '1 s' d"
            " from generate_series(1, 30000) i) x", tenant, frame("x"),
            mid("x"), at(8000000))
    if planned == "full":
        fill.rows("analyze queen.timers")
    notices.notices.clear()
    traffic(2)
    seen = "\n".join(notices.notices)
    for part in ("delete from queen.timers", "for update skip locked",
                 "insert into queen.segments", "count(*) from queen.timers"):
        assert part in seen, part
    found = walks(notices, 300)
    assert not found, found[0]


def test_a_fire_waits_for_nobody_long(db, timers):
    part = timers.part(timers.queue("q"), "Default")
    timers.schedule("q", "k")
    conn = db.connect(autocommit=False)
    rows(conn, "select 1 from queen.partition_heads where id = %s for update",
         (part,))
    for fire in (timers.fire, lambda: timers.fire_one("q", "k")):
        with pytest.raises(psycopg2.errors.LockNotAvailable):
            fire()
    assert timers.pending() == ["k"]
    assert timers.value("show lock_timeout") == "0"
    conn.rollback()
    assert timers.fire() == [(0, part, 1)]

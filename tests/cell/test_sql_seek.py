# SPDX-License-Identifier: Apache-2.0
"""310_seek.sql: positions moved by hand, alone and against pops."""
import threading
import time

import psycopg2
import pytest

from queenlib import OTHER_TENANT, TENANT, wait_until
from sqlkit import Kit, at, mid
from test_sql_find import pending


pytestmark = pytest.mark.allpg


@pytest.fixture
def kit(db):
    return Kit(db.connect())


def seek(kit, part, to, when=None, offset=None, group="g", queue="q",
         now=None, tenant=TENANT):
    return kit.rows("select * from queen.partition_seek_v1("
                    "%s, %s, %s, %s, %s, %s, %s, %s)", tenant, group, queue,
                    part, to, when, offset, now)[0]


def seek_all(kit, to, when=None, group="g", queue="q", now=None,
             tenant=TENANT):
    return kit.rows("select * from queen.group_seek_v1("
                    "%s, %s, %s, %s, %s, %s)", tenant, group, queue, to,
                    when, now)[0]


def delete(kit, queue="q", metadata=True, group="g", tenant=TENANT):
    return kit.rows("select * from queen.group_delete_v1(%s, %s, %s, %s)",
                    tenant, group, queue, metadata)


def notes(kit):
    return [r[1:] for r in kit.rows("select * from queen.repair_scan_v1(0)")]


def taken(rows):
    """Offsets claimed, as a list."""
    return [o for r in rows if r[2] == 0
            for o in range(r[3] + r[4], r[3] + r[4] + r[5])]


def ack(kit, group, part, no, ids, when=None):
    """(verdict, committed) of an ack under the lease `no`; 0 = lease-less."""
    return kit.rows(
        "select verdict, committed from queen.ack_v1(%s, %s, %s,"
        " %s::bigint[], %s::bigint[], %s::bigint[], %s::bytea[],"
        " array[null]::bytea[], '{}', '{}', '{}', '{}', '{}', '{}', '{}',"
        " array['00000000-0000-7000-8000-000000000001']::uuid[], %s)",
        TENANT, [group], [part], [part if no else None],
        [group if no else None], [no or None],
        [b"".join(mid(i) for i in ids)], when)[0]


# One partition

def test_partition_seek_to_each_target(kit):
    q = kit.queue("q")
    a = kit.part(q, "a")
    for i in range(4):
        kit.push(a, 5, now=at(10 * i))
    g = kit.group(q, "g")
    assert seek(kit, "a", "end") == (0, q, g, a, 19)
    assert kit.cursor(g, a) == (19, None, None, 0)
    for when, want in ((-1, -1), (0, -1), (0.1, 4), (10, 4), (30, 14),
                       (31, 19)):
        assert seek(kit, "a", "timestamp", at(when))[4] == want, when
    for offset, want in ((0, -1), (1, 0), (7, 6), (19, 18), (20, 19),
                         (1000, 19)):
        assert seek(kit, "a", "offset", offset=offset)[4] == want, offset
    assert kit.cursor(g, a)[0] == 19


def test_partition_seek_is_clamped_to_what_is_retained(kit):
    q = kit.queue("q")
    a = kit.part(q, "a")
    for i in range(4):
        kit.push(a, 5, now=at(10 * i))
    kit.drop_segments(a, 9)
    assert seek(kit, "a", "offset", offset=0)[4] == 9
    assert seek(kit, "a", "timestamp", at(0))[4] == 9
    kit.drop_segments(a, 19)
    assert seek(kit, "a", "offset", offset=0)[4] == 19
    assert seek(kit, "a", "timestamp", at(0))[4] == 19
    assert seek(kit, "a", "end")[4] == 19


def test_partition_seek_on_an_empty_partition(kit):
    kit.part(kit.queue("q"), "a")
    for args in (("end",), ("timestamp", at(0)), ("offset", None, 0),
                 ("offset", None, 5)):
        assert seek(kit, "a", *args)[4] == -1, args


def test_partition_seek_of_unknown_names_is_verdict_1(kit):
    kit.part(kit.queue("q"), "a")
    none = (1, None, None, None, None)
    assert seek(kit, "zz", "end") == none
    assert seek(kit, "a", "end", queue="zz") == none
    assert seek(kit, "a", "end", tenant=OTHER_TENANT) == none
    assert kit.value("select count(*) from queen.groups") == 0
    kit.rows("update queen.queues set deleted_at = now()")
    assert seek(kit, "a", "end") == none
    assert notes(kit) == []


@pytest.mark.parametrize("args", [("start",), ("timestamp",), ("offset",),
                                  ("offset", None, -1), (None,)])
def test_partition_seek_without_a_target_is_an_error(kit, args):
    kit.part(kit.queue("q"), "a")
    with pytest.raises(psycopg2.Error) as e:
        seek(kit, "a", *args)
    assert e.value.pgcode == "22023"


def test_partition_seek_registers_the_group(kit):
    q = kit.queue("q")
    a, b = kit.parts(q, ["a", "b"])
    kit.push(a, 3, now=at(0))
    kit.push(b, 3, now=at(0))
    g = seek(kit, "a", "offset", offset=1, now=at(50))[2]
    assert kit.rows("select name, mode, subscribed_at, start_at, conflated"
                    " from queen.groups where id = %s", g) == [
                        ("g", "new", at(50), at(50), False)]
    assert pending(kit, g)[0] == [a]
    kit.push(b, 1, now=at(60))
    assert pending(kit, g)[0] == [a, b]
    g = seek(kit, "a", "end", group="__QUEUE_MODE__", now=at(70))[2]
    assert kit.rows("select mode, start_at from queen.groups where id = %s",
                    g) == [("all", None)]
    assert pending(kit, g)[0] == [b]


def test_partition_seek_ends_lease_and_budget(kit):
    q = kit.queue("q")
    a = kit.part(q, "a")
    kit.push(a, ids=["x", "y", "z"])
    g = kit.group(q, "g")
    assert taken(kit.pop([a], g, 11)) == [0, 1, 2]
    kit.rows("update queen.consumers set retries = 2")
    assert seek(kit, "a", "offset", offset=1)[4] == 0
    assert kit.cursor(g, a) == (0, None, None, 0)
    # the old lease is void, for its own message and for repeats
    assert ack(kit, g, a, 11, ["x"])[0] == 3
    assert ack(kit, g, a, 11, ["z"])[0] == 3
    assert kit.cursor(g, a)[0] == 0
    rows = kit.pop([a], g, 12)
    assert taken(rows) == [1, 2]
    assert rows[0][7] == 1, "attempts start anew"


def test_partition_seek_leaves_other_cursors_alone(kit):
    q = kit.queue("q")
    a, b = kit.parts(q, ["a", "b"])
    g, h = kit.group(q, "g"), kit.group(q, "h")
    for part in (a, b):
        kit.push(part, 3)
        for group in (g, h):
            kit.pop([part], group, 1, auto=True)
    seek(kit, "a", "offset", offset=0)
    assert kit.cursor(g, a)[0] == -1
    assert [kit.cursor(*k)[0] for k in ((g, b), (h, a), (h, b))] == [2, 2, 2]


def test_partition_seek_writes_a_note(kit):
    q = kit.queue("q")
    a = kit.part(q, "a")
    g = seek(kit, "a", "end")[2]
    assert notes(kit) == [(q, g, a)]


def test_partition_seek_moves_generations_on(kit):
    q = kit.queue("q")
    a = kit.part(q, "a")
    kit.push(a, 50)
    for i in range(100):
        assert seek(kit, "a", "offset", offset=i % 50)[4] == i % 50 - 1
    assert kit.rows("select gen, turn from queen.consumers") == [(3, 99)]


# A whole queue

def test_group_seek_to_the_end_and_back(kit):
    q = kit.queue("q")
    a, b, c = kit.parts(q, ["a", "b", "c"])
    kit.push(a, 3, now=at(10))
    kit.push(b, 3, now=at(20))
    g = kit.group(q, "g")
    verdict, queue, new, old, n = seek_all(kit, "end", now=at(30))
    assert (verdict, queue, old, n) == (0, q, g, 3)
    assert new != g
    assert pending(kit, new)[0] == []
    kit.push(c, 1, now=at(31))
    assert taken(kit.pop([a, b, c], new, 1, auto=True)) == [0]
    last = seek_all(kit, "timestamp", at(20), now=at(40))
    assert last[3] == new
    assert pending(kit, last[2])[0] == [b, c]
    assert pending(kit, seek_all(kit, "timestamp", at(0),
                                 now=at(50))[2])[0] == [a, b, c]


def test_group_seek_is_one_row_and_one_note(kit):
    q = kit.queue("q")
    for part in kit.parts(q, ["p%d" % i for i in range(50)]):
        kit.push(part, 1)
    g = kit.group(q, "g")
    new = seek_all(kit, "timestamp", at(0))[2]
    assert notes(kit) == [(q, new, None)]
    assert kit.value("select count(*) from queen.consumers") == 0
    assert len(pending(kit, new)[0]) == 50
    assert kit.rows("select id, deleted_at is null from queen.groups"
                    " order by id") == [(g, False), (new, True)]


def test_group_seek_keeps_the_subscription(kit):
    q = kit.queue("q")
    kit.part(q, "a")
    g = kit.group(q, "g", "timestamp", at(5))
    kit.rows("update queen.groups set conflated = true where id = %s", g)
    new = seek_all(kit, "timestamp", at(1), now=at(9))[2]
    assert kit.rows("select name, mode, subscribed_at, start_at, conflated"
                    " from queen.groups where id = %s", new) == [
                        ("g", "timestamp", at(5), at(1), True)]


def test_group_seek_to_a_time_to_come_means_now(kit):
    q = kit.queue("q")
    a = kit.part(q, "a")
    kit.push(a, 1, now=at(0))
    new = seek_all(kit, "timestamp", at(1000), now=at(10))[2]
    assert pending(kit, new)[0] == []
    kit.push(a, 1, now=at(11))
    assert pending(kit, new)[0] == [a]


def test_group_seek_registers_a_missing_group(kit):
    q = kit.queue("q")
    a = kit.part(q, "a")
    kit.push(a, 1, now=at(0))
    new = seek_all(kit, "timestamp", at(0), now=at(10))[2]
    assert kit.rows("select id from queen.groups_find_v1(%s, %s, %s)",
                    TENANT, [q], ["g"]) == [(new,)]
    assert pending(kit, new)[0] == [a]


def test_group_seek_without_partitions_is_verdict_1(kit):
    kit.queue("q")
    none = (1, None, None, None, None)
    assert seek_all(kit, "end") == none
    assert seek_all(kit, "end", queue="zz") == none
    kit.part(kit.queue("q"), "a")
    assert seek_all(kit, "end", tenant=OTHER_TENANT) == none
    assert kit.value("select count(*) from queen.groups") == 0
    assert notes(kit) == []


@pytest.mark.parametrize("args", [("offset",), ("timestamp",), (None,)])
def test_group_seek_without_a_target_is_an_error(kit, args):
    kit.part(kit.queue("q"), "a")
    with pytest.raises(psycopg2.Error) as e:
        seek_all(kit, *args)
    assert e.value.pgcode == "22023"


def test_old_leases_are_gone_after_group_seek(kit):
    q = kit.queue("q")
    a = kit.part(q, "a")
    kit.push(a, ids=["x", "y"])
    g = kit.group(q, "g")
    assert taken(kit.pop([a], g, 11)) == [0, 1]
    new = seek_all(kit, "timestamp", at(0))[2]
    assert ack(kit, g, a, 11, ["x", "y"])[0] == 5
    assert [r[2] for r in kit.pop([a], g, 12)] == [6]
    assert taken(kit.pop([a], new, 13)) == [0, 1]
    assert kit.rows("select renewed from queen.lease_extend_v1("
                    "%s, %s, %s, 11, 60)", TENANT, a, g) == [(0,)]
    assert kit.rows("select live from queen.leases_live_v1(%s, %s, %s, %s)",
                    TENANT, [a, a], [g, new], [11, 13]) == [(False,), (True,)]


# Delete

def test_delete_of_a_group_starts_it_anew(kit):
    q = kit.queue("q")
    a, b = kit.parts(q, ["a", "b"])
    kit.push(a, 3, now=at(0))
    g = kit.group(q, "g")
    kit.pop([a, b], g, 1, auto=True)
    assert delete(kit) == [(q, g, 2)]
    assert delete(kit) == []
    assert notes(kit) == [(q, g, None)]
    assert kit.rows("select 1 from queen.groups_find_v1(%s, %s, %s)", TENANT,
                    [q], ["g"]) == []
    new = kit.group(q, "g", "new", now=at(60))
    assert pending(kit, new)[0] == []


def test_delete_keeping_metadata_seeds_from_the_subscription(kit):
    q = kit.queue("q")
    a = kit.part(q, "a")
    for when in (10, 20, 30):
        kit.push(a, 1, now=at(when))
    for mode, start, want in (("all", None, [0, 1, 2]),
                              ("timestamp", at(20), [1, 2])):
        g = kit.group(q, mode, mode, start)
        kit.pop([a], g, 1, auto=True)
        seek_all(kit, "end", group=mode)
        dead = delete(kit, metadata=False, group=mode)[0][1]
        again = kit.group(q, mode, "new")
        assert notes(kit)[-2:] == [(q, dead, None), (q, again, None)]
        assert taken(kit.pop([a], again, 1)) == want, mode
        assert kit.rows("select mode, subscribed_at from queen.groups"
                        " where id = %s", again) == [
                            (mode, start or at(0).fromtimestamp(
                                0, at(0).tzinfo))]


def test_delete_on_all_queues_of_the_tenant(kit):
    ids = {}
    for name in ("q1", "q2", "q3"):
        q = kit.queue(name)
        ids[q] = kit.group(q, "g")
    other = Kit(kit.conn, OTHER_TENANT)
    foreign = other.group(other.queue("q1"), "g")
    kit.group(kit.queue("q1"), "h")
    found = delete(kit, queue=None)
    assert found == [(q, g, 0) for q, g in sorted(ids.items())]
    assert kit.rows("select id from queen.groups where deleted_at is null"
                    " and name = 'g'") == [(foreign,)]
    assert kit.value("select count(*) from queen.groups"
                     " where deleted_at is null") == 2
    assert sorted(notes(kit)) == [(q, g, None)
                                  for q, g in sorted(ids.items())]


def test_delete_on_one_queue_leaves_the_others(kit):
    q1, q2 = kit.queue("q1"), kit.queue("q2")
    g1, g2 = kit.group(q1, "g"), kit.group(q2, "g")
    assert delete(kit, queue="q1") == [(q1, g1, 0)]
    assert kit.rows("select id from queen.groups where deleted_at is null"
                    ) == [(g2,)]


def test_delete_keeps_dead_letters(kit):
    q = kit.queue("q")
    a = kit.part(q, "a")
    kit.group(q, "g")
    kit.rows("insert into queen.dead_letters (id, queue_id, partition_id,"
             " group_name, message_offset, id_hash, retries, failed_at)"
             " values (gen_random_uuid(), %s, %s, 'g', 0, '\\x00', 0, now())",
             q, a)
    delete(kit)
    assert kit.value("select count(*) from queen.dead_letters") == 1


# Races

def test_seek_waits_for_a_claim_and_moves_what_it_left(db, kit):
    """A cursor row that a pop is making is waited for, not made twice."""
    q = kit.queue("q")
    a = kit.part(q, "a")
    kit.push(a, 5)
    g = kit.group(q, "g")
    popper = Kit(db.connect(autocommit=False))
    assert taken(popper.pop([a], g, 1)) == [0, 1, 2, 3, 4]
    found = []
    seeker = Kit(db.connect())
    thread = threading.Thread(target=lambda: found.append(
        seek(seeker, "a", "offset", offset=2)))
    thread.start()
    wait_until(lambda: kit.value(
        "select count(*) from pg_locks where not granted") == 1)
    popper.conn.commit()
    thread.join()
    assert found == [(0, q, g, a, 1)]
    assert kit.rows("select committed, batch_end from queen.consumers"
                    ) == [(1, None)]


def test_pop_passes_by_while_a_seek_makes_the_row(db, kit):
    q = kit.queue("q")
    a = kit.part(q, "a")
    kit.push(a, 5)
    g = kit.group(q, "g")
    seeker = Kit(db.connect(autocommit=False))
    seek(seeker, "a", "offset", offset=2)
    assert [r[2] for r in kit.pop([a], g, 1)] == [3]
    seeker.conn.commit()
    assert taken(kit.pop([a], g, 1)) == [2, 3, 4]
    assert kit.value("select count(*) from queen.consumers") == 1


def test_seek_during_pops(db, kit):
    """Pops and acks go on while a cursor is moved back and forth: one row, no
    error, and after the last seek everything is delivered."""
    q = kit.queue("q")
    a = kit.part(q, "a")
    for _ in range(10):
        kit.push(a, 5)
    g = kit.group(q, "g")
    stop = threading.Event()
    faults = []

    def consume(n):
        mine = Kit(db.connect())
        no = n * 1000000
        try:
            while not stop.is_set():
                no += 1
                mine.pop([a], g, no, budget=7, auto=no % 2 == 0, secs=1)
        except psycopg2.Error as e:
            faults.append(e)

    threads = [threading.Thread(target=consume, args=(n,))
               for n in range(1, 4)]
    for t in threads:
        t.start()
    end = time.monotonic() + 2
    n_seeks = 0
    while time.monotonic() < end:
        n_seeks += 1
        assert seek(kit, "a", "offset", offset=n_seeks * 7 % 50)[0] == 0
    stop.set()
    for t in threads:
        t.join()
    assert faults == []
    assert n_seeks > 20
    assert kit.value("select count(*) from queen.consumers") == 1
    assert seek(kit, "a", "offset", offset=0)[4] == -1
    assert taken(kit.pop([a], g, 1)) == list(range(50))


def test_group_delete_during_pops_is_gone(db, kit):
    """Consumers of a deleted group get `gone`, register again and go on; no
    row of the dead group is made after that."""
    q = kit.queue("q")
    parts = kit.parts(q, ["a", "b", "c"])
    for part in parts:
        kit.push(part, 20)
    stop = threading.Event()
    faults, gone = [], []

    def consume(n):
        mine = Kit(db.connect())
        no = n * 1000000
        try:
            g = mine.group(q, "g")
            while not stop.is_set():
                no += 1
                verdicts = {r[2] for r in mine.pop(parts, g, no, budget=5,
                                                   auto=True)}
                if 6 in verdicts:
                    gone.append(n)
                    g = mine.group(q, "g")
        except psycopg2.Error as e:
            faults.append(e)

    threads = [threading.Thread(target=consume, args=(n,))
               for n in range(1, 4)]
    for t in threads:
        t.start()
    deleted = 0
    end = time.monotonic() + 2
    while time.monotonic() < end or not gone:
        deleted += len(delete(kit, metadata=deleted % 2 == 0))
        assert time.monotonic() < end + 30
    stop.set()
    for t in threads:
        t.join()
    assert faults == []
    assert deleted >= 1 and gone
    assert kit.value("select count(*) from queen.groups"
                     " where deleted_at is null") <= 1
    assert kit.value("select count(*) from (select group_id, partition_id"
                     " from queen.consumers group by 1, 2"
                     " having count(*) > 1) x") == 0


def test_seeks_deletes_and_registrations_meet(db, kit):
    """No deadlock, never two live groups of one name."""
    names = ["q1", "q2", "q3"]
    queues = [kit.queue(n) for n in names]
    for q in queues:
        for part in kit.parts(q, ["a", "b"]):
            kit.push(part, 2)
    stop = threading.Event()
    faults = []

    def run(step):
        mine = Kit(db.connect())
        n = 0
        try:
            while not stop.is_set():
                n += 1
                step(mine, n)
        except psycopg2.Error as e:
            faults.append(e)

    steps = [
        lambda k, n: seek(k, "ab"[n % 2], "end", queue=names[n % 3]),
        lambda k, n: seek(k, "ab"[n % 2], "end", queue=names[-n % 3]),
        lambda k, n: seek_all(k, "end", queue=names[n % 3]),
        lambda k, n: delete(k, queue=None),
        lambda k, n: k.group(queues[n % 3], "g"),
    ]
    threads = [threading.Thread(target=run, args=(s,)) for s in steps]
    for t in threads:
        t.start()
    stop.wait(2)
    stop.set()
    for t in threads:
        t.join()
    assert faults == []
    assert kit.rows("select queue_id from queen.groups"
                    " where deleted_at is null group by 1"
                    " having count(*) > 1") == []

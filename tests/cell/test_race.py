# SPDX-License-Identifier: Apache-2.0
"""
Many clients at once: what they see is checked message by message, the tables
by the invariants.  Scaled here, at full length with QUEEN_SOAK=1.
"""
import collections
import os
import random
import threading
import time

import pytest

from loadkit import Client, Load, Workers, invariants, together
from queenlib import wait_until

SOAK = bool(os.environ.get("QUEEN_SOAK"))


def soaked(scaled, full):
    """Both lengths: the full one runs under the marker soak."""
    return [pytest.param(scaled), pytest.param(full, marks=pytest.mark.soak)]


def consumed_after(db, queue):
    return db.value("select coalesce(sum(c.consumed), 0)::int"
                    " from queen.consumers c join queen.groups g"
                    " on g.id = c.group_id join queen.queues q"
                    " on q.id = g.queue_id where q.name = %s", (queue,))


def terminate(db, share=1.0):
    """Ends backends of the database that are not ours."""
    return db.rows(
        "select pg_terminate_backend(pid) from pg_stat_activity"
        " where datname = current_database() and pid <> pg_backend_pid()"
        " and backend_type = 'client backend' and random() < %s", (share,))


@pytest.mark.allpg
@pytest.mark.parametrize("seconds", soaked(6, 60))
def test_eight_pushers_and_eight_poppers_lose_and_repeat_nothing(
        new_cell, db, seconds):
    """Nacks, expiries, kills of queend and of backends all the while."""
    cells = [new_cell().start(), new_cell().start()]
    load = Load(db, cells).start()
    rng = random.Random(7)
    end = time.monotonic() + seconds
    kills = 0
    try:
        while time.monotonic() < end:
            load.workers.stop.wait(max(1, seconds / 12))
            kills += 1
            if kills % 2:
                terminate(db, 0.3)
            else:
                victim = rng.choice(cells)
                victim.kill9()
                victim.start()
        load.finish()
    finally:
        load.workers.stop.set()
        load.workers.join()
    # it was a load, and all its kinds came up
    assert len(load.stored) > 20 * seconds, len(load.stored)
    assert load.acks["ok"] > 0 and load.acks["invalid or expired lease"] > 0
    assert len(load.seen) > len(load.stored)


@pytest.mark.allpg
def test_fifty_pops_of_one_partition_and_one_gets_it(cell):
    """A7"""
    for i in range(4):
        cell.push("q", list(range(25 * i, 25 * i + 25)), partition="p")
    got = together(50, lambda i: cell.pop(
        "q", group="g", batch=10, subscriptionMode="all"))
    assert [[m["data"] for m in g] for g in got if g] == [list(range(10))]
    assert [m["data"] for g in together(50, lambda i: cell.pop(
        "q", group="h", partition="p", batch=10, subscriptionMode="all"))
            for m in g] == list(range(10))


@pytest.mark.parametrize("seconds", soaked(4, 90))
def test_one_batch_in_flight_per_partition_and_group(cell, db, seconds):
    """A9: 64 loops on 8 partitions, each message is worked on 20 ms."""
    parts = ["p%d" % i for i in range(8)]
    for part in parts:
        for _ in range(max(1, seconds // 8)):
            cell.push("q", list(range(500)), partition=part)
    cell.pop("q", group="g", partition="none", subscriptionMode="all")
    spans, lock = collections.defaultdict(list), threading.Lock()
    end = time.monotonic() + seconds

    def loop(_):
        client = Client([cell])
        while time.monotonic() < end:
            status, body = client.call(
                "GET", "/api/v1/pop/queue/q?consumerGroup=g&batch=1&wait=true"
                "&timeout=500&subscriptionMode=all")
            if status != 200:
                continue
            start = time.monotonic()
            m, = body["messages"]
            time.sleep(0.02)
            with lock:
                spans[m["partition"]].append(
                    (start, time.monotonic(), m["offset"]))
            status, body = client.call("POST", "/api/v1/ack", {
                "transactionId": m["transactionId"], "consumerGroup": "g",
                "partitionId": m["partitionId"], "leaseId": m["leaseId"]})
            assert status == 200 and body[0]["success"], body
        client.close()

    together(64, loop)
    assert sorted(spans) == parts
    for part, seen in spans.items():
        seen.sort()
        assert [s[2] for s in seen] == list(range(len(seen)))
        for (_, a, _), (b, _, _) in zip(seen, seen[1:]):
            assert a <= b, (part, a, b)
    invariants(db)


def test_the_tail_is_not_left_behind_by_locked_partitions(cell, db):
    """A17: 64 waiting autoAck pops take all that is pushed, at once."""
    got, lock = collections.Counter(), threading.Lock()
    stop = threading.Event()

    def loop():
        client = Client([cell])
        while not stop.is_set():
            status, body = client.call(
                "GET", "/api/v1/pop/queue/q?batch=7&wait=true&timeout=1000"
                "&autoAck=true")
            if status == 200:
                with lock:
                    got.update((m["partition"], m["offset"])
                               for m in body["messages"])
        client.close()

    cell.pop("q")
    with Workers() as w:
        for _ in range(64):
            w.start(loop)
        for i in range(25):
            reply = cell.post("/api/v1/push", {"items": [
                {"queue": "q", "partition": "p%d" % p, "payload": i}
                for p in range(40)]})
            assert reply.status == 201
        pushed = time.monotonic()
        wait_until(lambda: len(got) == 1000, 30, what="all of them")
        took = time.monotonic() - pushed
        stop.set()
    assert set(got.values()) == {1}
    assert took < 5, took       # 2 s on a quiet machine
    assert consumed_after(db, "q") == 1000


@pytest.mark.allpg
def test_first_pops_of_many_groups_register_each_once(cells, db):
    """C9: 200 at once, 50 groups on 20 queues, through two queends."""
    both = cells(2)
    for q in range(20):
        both[0].push("q%d" % q, [q], partition="p")
    got = together(200, lambda i: both[i % 2].pop(
        "q%d" % (i % 20), group="g%d" % (i % 50), subscriptionMode="all",
        partitions=0))
    pairs = {(i % 20, i % 50) for i in range(200)}
    assert db.rows("select q.name, g.name, count(*) from queen.groups g"
                   " join queen.queues q on q.id = g.queue_id group by 1, 2"
                   " having count(*) > 1") == []
    assert db.value("select count(*) from queen.groups") == len(pairs)
    assert sum(map(len, got)) == len(pairs)
    with open(db.server.log, errors="replace") as f:
        assert "deadlock detected" not in f.read()
    invariants(db)


@pytest.mark.allpg
@pytest.mark.parametrize("parts", soaked(1500, 20000))
def test_mass_creation_of_partitions_waits_for_nobody(cell, db, parts):
    """B3"""
    got, lock = set(), threading.Lock()
    waits = []
    stop = threading.Event()
    pushers = 16

    def pop():
        client = Client([cell])
        while not stop.is_set():
            status, body = client.call(
                "GET", "/api/v1/pop/queue/q?batch=500&partitions=0&wait=true"
                "&timeout=500&autoAck=true")
            if status == 200:
                with lock:
                    got.update(m["data"] for m in body["messages"])
        client.close()

    def push(who):
        client = Client([cell])
        for at in range(who, parts, pushers * 10):
            mine = range(at, min(parts, at + pushers * 10), pushers)
            status, body = client.call("POST", "/api/v1/push", {"items": [
                {"queue": "q", "partition": "p%d" % i, "payload": i}
                for i in mine]})
            assert status == 201
            assert {r["status"] for r in body} == {"queued"}, body
        client.close()

    def watch():
        conn = db.connect()
        while not stop.is_set():
            with conn.cursor() as cur:
                cur.execute(
                    "select pid, clock_timestamp() - waitstart from pg_locks"
                    " where not granted and locktype = 'transactionid'"
                    " and waitstart < clock_timestamp() - interval '1 s'")
                waits.extend(cur.fetchall())
            stop.wait(0.1)

    cell.pop("q")
    with Workers() as w:
        w.start(watch)
        for _ in range(24):
            w.start(pop)
        together(pushers, push)
        wait_until(lambda: len(got) == parts, 60, what="all delivered")
        stop.set()
    assert waits == []
    assert db.value("select count(*) from queen.partitions") == parts


@pytest.mark.allpg
def test_a_queue_deleted_and_made_again_under_load(cells, db):
    both = cells(2, RETENTION_INTERVAL=200)
    stop = threading.Event()
    last, lock = {}, threading.Lock()

    def push(who):
        client = Client(both)
        number = 0
        while not stop.is_set():
            status, body = client.call("POST", "/api/v1/push", {"items": [
                {"queue": "q", "partition": "p%d" % (number % 3),
                 "transactionId": "%d.%d" % (who, number),
                 "payload": [who, number]}]})
            assert status == 201
            assert body[0]["status"] == "queued", body
            number += 1
        client.close()

    def pop(who):
        client = Client(both)
        while not stop.is_set():
            status, body = client.call(
                "GET", "/api/v1/pop/queue/q?batch=20&wait=true&timeout=200"
                "&consumerGroup=g%d&subscriptionMode=all" % (who % 2))
            if status == 204:
                continue
            assert status == 200, body
            ms = body["messages"]
            with lock:
                for m in ms:
                    # offsets of one partition id of one group only go up
                    key = (m["partitionId"], who % 2)
                    assert m["offset"] > last.get(key, -1), m
                    last[key] = m["offset"]
            status, body = client.call("POST", "/api/v1/ack/batch", {
                "consumerGroup": "g%d" % (who % 2), "acknowledgments": [
                    {"transactionId": m["transactionId"],
                     "partitionId": m["partitionId"],
                     "leaseId": m["leaseId"]} for m in ms]})
            assert status == 200, body
        client.close()

    with Workers() as w:
        for i in range(4):
            w.start(push, i)
            w.start(pop, i)
        for i in range(6):
            w.stop.wait(0.6)
            if w.errors:
                break
            reply = both[i % 2].delete("/api/v1/resources/queues/q")
            assert reply.status == 200 and reply.body["existed"] is True
        stop.set()
    assert both[0].delete("/api/v1/resources/queues/q").status == 200
    for one in both:
        assert one.push("q", [1], partition="p0")[0]["status"] == "queued"
    got = both[1].pop("q", group="g0", subscriptionMode="all")
    assert [(m["data"], m["offset"]) for m in got] == [(1, 0), (1, 1)]
    # what was deleted goes away in steps, the row of its queue last
    wait_until(lambda: db.value(
        "select count(*) from queen.queues") == 1, 30, what="purge")
    assert db.value("select count(*) from queen.partitions") == 1
    assert db.value("select count(*) from queen.segments") == 2
    invariants(db)


def test_seeks_and_group_deletes_during_pops(cells, db):
    """Pops see runs of the log, whatever moves the cursor."""
    both = cells(2)
    parts, each = 4, 60
    for p in range(parts):
        both[0].push("q", list(range(each)), partition="p%d" % p)
    where = "/api/v1/consumer-groups/g/queues/q"
    stop = threading.Event()
    lock = threading.Lock()
    runs = collections.Counter()

    def pop(who):
        client = Client(both)
        rng = random.Random(who)
        while not stop.is_set():
            got = client.call(
                "GET", "/api/v1/pop/queue/q?consumerGroup=g&batch=13&wait=true"
                "&timeout=200&partitions=2&subscriptionMode=all"
                + rng.choice(("", "&autoAck=true")))
            assert got is not None and got[0] in (200, 204), got
            if got[0] == 204:
                continue
            of = collections.defaultdict(list)
            for m in got[1]["messages"]:
                assert m["data"] == m["offset"]
                of[m["partition"]].append(m)
            for part, ms in of.items():
                offsets = [m["offset"] for m in ms]
                assert offsets == list(range(
                    offsets[0], offsets[0] + len(offsets)))
                with lock:
                    runs[part] += 1
                if ms[0]["leaseId"]:
                    got = client.call("POST", "/api/v1/ack/batch", {
                        "consumerGroup": "g", "acknowledgments": [
                            {"transactionId": m["transactionId"],
                             "partitionId": m["partitionId"],
                             "leaseId": m["leaseId"],
                             "status": rng.choice(("completed", "retry"))}
                            for m in ms]})
                    assert got is not None and got[0] == 200, got
                    errors = {r["error"] for r in got[1]}
                    # all of one lease or none of it
                    assert errors <= {None, "invalid or expired lease",
                                      "consumer not found"}, errors
        client.close()

    def move(who):
        client = Client(both)
        rng = random.Random(100 + who)
        while not stop.is_set():
            at = rng.randrange(4)
            if at == 0:
                got = client.call("POST", where + "/seek", {
                    "timestamp": "2020-01-01T00:00:00Z"})
            elif at == 1:
                got = client.call("POST", where + "/seek", {"toEnd": True})
            elif at == 2:
                got = client.call(
                    "POST", where + "/partitions/p%d/seek"
                    % rng.randrange(parts), {"offset": rng.randrange(each)})
            else:
                got = client.call("DELETE", where + "?deleteMetadata="
                                  + rng.choice(("true", "false")))
            assert got is not None and got[0] == 200, (at, got)
            stop.wait(0.03)
        client.close()

    with Workers() as w:
        for i in range(8):
            w.start(pop, i)
        for i in range(2):
            w.start(move, i)
        w.stop.wait(4)
        stop.set()
    assert len(runs) == parts and sum(runs.values()) > 20, runs
    invariants(db)
    # and afterwards the group reads the whole log once, in order
    reply = both[0].post(where + "/seek", {
        "timestamp": "2020-01-01T00:00:00Z"})
    assert reply.status == 200, reply
    seen = collections.defaultdict(list)
    while sum(map(len, seen.values())) < parts * each:
        ms = both[1].pop("q", group="g", autoAck=True, batch=50, wait=True,
                         wait_ms=5000, subscriptionMode="all")
        assert ms, {k: len(v) for k, v in seen.items()}
        for m in ms:
            seen[m["partition"]].append(m["offset"])
    assert all(v == list(range(each)) for v in seen.values())
    assert both[1].pop("q", group="g") == []


@pytest.mark.parametrize("parts", soaked(10000, 100000))
@pytest.mark.amount
def test_a_new_group_on_an_old_queue_of_many_partitions(cell, db, parts):
    """STORE 2: found in bounded time, all of them, by a waiting pop too."""
    cell.push("q", [1], partition="p0")
    db.rows("insert into queen.partitions (queue_id, name, created_at)"
            " select p.queue_id, 'p' || n, p.created_at"
            " from queen.partitions p, generate_series(1, %s) n",
            (parts - 1,))
    # written long ago, so that no change scan tells of them
    db.rows("update queen.partition_heads set last_write_at ="
            " now() - interval '1 day'")
    db.rows("insert into queen.partition_heads (id, queue_id, last_at,"
            " last_write_at, oldest_live_at) select p.id, p.queue_id,"
            " h.last_at, h.last_write_at, h.oldest_live_at"
            " from queen.partitions p, queen.partition_heads h"
            " where p.id <> h.id")
    db.rows("insert into queen.segments select p.id, s.base_offset,"
            " s.end_offset, s.created_at, s.raw_bytes, s.key_id, s.blob"
            " from queen.partitions p, queen.segments s"
            " where p.id <> s.partition_id")
    db.rows("insert into queen.segment_ids select p.id, s.base_offset,"
            " s.end_offset, s.created_at, s.ids"
            " from queen.partitions p, queen.segment_ids s"
            " where p.id <> s.partition_id")
    got = collections.Counter()
    start = time.monotonic()
    first = None
    while len(got) < parts:
        ms = cell.pop("q", group="g", subscriptionMode="all", autoAck=True,
                      batch=500, partitions=0, wait=True, wait_ms=5000)
        assert ms, "%d of %d found" % (len(got), parts)
        first = first or time.monotonic() - start
        got.update(m["partition"] for m in ms)
    took = time.monotonic() - start
    assert set(got.values()) == {1}
    assert first < 5, first
    assert took < 15 + parts / 250, took
    assert cell.pop("q", group="g", batch=500, partitions=0) == []


def test_only_transactions_hold_advisory_locks(cells, db):
    """C3: none outlives its transaction, whatever goes on."""
    both = cells(2, RETENTION_INTERVAL=200)
    load = Load(db, both, parts=4, n=4).start()
    held = []
    try:
        end = time.monotonic() + 3
        while time.monotonic() < end and not load.workers.errors:
            both[0].push("new%f" % time.monotonic(), [1])
            held += db.rows(
                "select l.objid, a.query from pg_locks l"
                " join pg_stat_activity a using (pid)"
                " where l.locktype = 'advisory' and l.granted"
                " and l.database = (select oid from pg_database"
                " where datname = current_database())"
                " and a.state = 'idle'"
                " and a.state_change < clock_timestamp() - interval '500 ms'")
        load.finish()
    finally:
        load.workers.stop.set()
        load.workers.join()
    assert held == []
    # those below run out while the jobs go on: a look finds none at all
    wait_until(lambda: not db.rows(
        "select 1 from pg_locks where locktype = 'advisory' and database ="
        " (select oid from pg_database where datname = current_database())"))

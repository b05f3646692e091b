# SPDX-License-Identifier: Apache-2.0
"""
Random transactions from 16 connections, with everything else the cell does
going on beside them: no deadlock, and each of them whole or absent.
"""
import collections
import random
import re
import time

import pytest

from bundlekit import (COUNTERS, KEYS, PARTS, Bundler, History, Maker,
                       check_acks, check_chain, check_timers, check_versions,
                       drain, marks_of)
from conftest import log_since
from loadkit import Workers
from queenlib import rows
from riderkit import put
from test_transaction import count

BUSY = {"QUEEN_KV_EXPIRE_EVERY_MS": 20, "RETENTION_INTERVAL": 100,
        "QUEEN_KV_USAGE_EVERY_MS": 100, "QUEEN_KV_WRITE_RATE": 0,
        "QUEEN_KV_CELL_RATE": 0}
ONE_SNAPSHOT = (
    "select (select count(*) from queen.kv where key like 'm-%'),"
    " (select count(*) from queen.timers where queue = 'later'),"
    " (select coalesce(sum(s.end_offset - s.base_offset + 1), 0)"
    "  from queen.segments s join queen.partitions p on p.id = s.partition_id"
    "  join queen.queues q on q.id = p.queue_id where q.name = 'marks')")


def prepare(cell):
    for i in range(3):
        assert cell.post("/api/v1/configure", {
            "queue": "out%d" % i, "options": {
                "retentionEnabled": True, "retentionSeconds": 1}}
        ).status < 300
    for part in PARTS:
        cell.push("in", list(range(20)), partition=part,
                  ids=["in-%d" % i for i in range(20)])
    cell.post("/api/v1/kv", [put("gate%d" % i) for i in range(3)])


def beside(cell, history, stop, seed):
    """The same names through the other routes."""
    rng = random.Random(seed)
    make, conn, n = Maker(rng, history), cell.http(), 0
    while not stop.is_set():
        n += 1
        kind = rng.randrange(4)
        if kind == 0:
            ops = [{k: v for k, v in op.items() if k != "required"}
                   for op in make.kv(set())]
            rng.shuffle(ops)
            sent = time.monotonic()
            reply = cell.post("/api/v1/kv", ops, conn=conn)
            assert reply.status == 200, reply
            history.learn(sent, ops, reply.body["results"])
        elif kind == 1:
            ops = make.timers()
            reply = cell.post("/api/v1/timers", ops, conn=conn)
            assert reply.status == 200, reply
            history.learn(0, ops, reply.body["results"])
        elif kind == 2:
            cell.push("in", [n], partition=rng.choice(PARTS),
                      ids=["b-%d-%d" % (seed, n)], conn=conn)
        else:
            cell.pop("out%d" % rng.randrange(3), "o", batch=50, conn=conn,
                     partitions=4, autoAck=True)


def watch(db, stop, waits):
    """From outside: whatever the moment, all marks of a bundle or none."""
    conn = db.connect()
    while not stop.wait(0.05):
        (keys, timers, messages), = rows(conn, ONE_SNAPSHOT)
        assert keys == timers == messages
        waits.append(rows(conn, "select count(*) from pg_locks"
                          " where not granted")[0][0])


def churn(cells, db, seconds, seed):
    history, waits = History(), []

    def run(b):
        n = 0
        while not w.stop.is_set():
            b.run_one(n)
            n += 1

    with Workers() as w:
        w.start(watch, db, w.stop, waits)
        for i in range(2):
            w.start(beside, cells[i], history, w.stop, seed * 10 + i)
        for i in range(16):
            w.start(run, Bundler(history, cells[i % len(cells)], i, seed))
        w.stop.wait(seconds)
    # the test is of no use unless they stand in each other's way
    assert sum(waits) > 5, waits
    return history


def deadlocks(db, pg, start):
    log = log_since(pg.log, start, 1 << 30)
    return (db.value("select deadlocks from pg_stat_database where datname ="
                     " current_database()"),
            log.count("deadlock detected"))


def check(cells, db, pg, seconds, seed):
    start = len(log_since(pg.log, 0, 1 << 30))
    prepare(cells[0])
    history = churn(cells, db, seconds, seed)
    ends = collections.Counter("committed" if b.ok else b.reason
                               for b in history.bundles)
    print(dict(ends))
    assert set(ends) == {"committed", "kv_precondition", "duplicate",
                         "ack_rejected"}
    assert deadlocks(db, pg, start) == (0, 0)

    done = {b.mark for b in history.bundles if b.ok}
    assert marks_of(db) == (done, done)
    assert {m["transactionId"] for m in drain(
        cells[0], "marks", count(db, "marks"))} == done
    assert count(db, "marks") == len(done)
    check_versions(history.writes)
    for key in KEYS:
        check_chain(db, key, [w for w in history.writes if w.key == key])
    for key in COUNTERS:
        assert db.value("select value from queen.kv where key = %s",
                        (key,)) == history.sums[key]
    check_acks(db, history.bundles)
    check_timers(db, cells[1], history.timers)
    for cell in cells:
        text = cell.get("/metrics/prometheus").body.decode()
        assert re.search(r"^queen_db_errors_total 0$", text, re.M)


def test_random_bundles_all_or_nothing(cells, db, pg):
    check(cells(4, **BUSY), db, pg, 6, 1)


@pytest.mark.soak
def test_random_bundles_for_a_minute(cells, db, pg):
    check(cells(4, **BUSY), db, pg, 60, 2)

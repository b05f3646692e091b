# SPDX-License-Identifier: Apache-2.0
"""
What shows only after a while.  Each test has a scaled form that always runs
and its full length, which `make soak` (QUEEN_SOAK=1) runs.
"""
import os
import socket
import time

import pytest

from loadkit import Client
from queenlib import SAN, wait_until

API = "/api/v1"


def soaked(scaled, full):
    return [pytest.param(*scaled, id="scaled"),
            pytest.param(*full, id="full", marks=pytest.mark.soak)]


def rss_mb(cell):
    with open("/proc/%d/statm" % cell.proc.pid) as f:
        return int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def configure(cell, queue, **options):
    reply = cell.post(API + "/configure", {"queue": queue,
                                           "options": options})
    assert reply.status == 200, reply


# B1

@pytest.mark.skipif(SAN, reason="memory of a sanitized binary says nothing")
@pytest.mark.parametrize("window_s, lanes, active, seconds", soaked(
    (3, 4000, 100, 11), (60, 200000, 1000, 1200)))
def test_duplicate_filters_follow_the_window(
        cell, window_s, lanes, active, seconds):
    """Rotating lanes, ids in each; memory is flat, suppression exact."""
    configure(cell, "q", dedupWindowSeconds=window_s)
    client = Client([cell])
    start = time.monotonic()
    at = number = 0
    marks = []
    probe, probed = None, []

    def push(lane, txn):
        got = client.call("POST", API + "/push", {"items": [
            {"queue": "q", "partition": lane, "transactionId": txn,
             "payload": 1}]})
        return got[1][0]["status"]

    while time.monotonic() - start < seconds:
        items = []
        for lane in range(at, at + active // 10):
            for _ in range(10):
                items.append({"queue": "q", "partition": "p%d"
                              % (lane % lanes), "payload": 1,
                              "transactionId": "t%d" % number})
                number += 1
        at += active // 10
        got = client.call("POST", API + "/push", {"items": items})
        assert {r["status"] for r in got[1]} == {"queued"}
        now = time.monotonic() - start
        marks.append((now, rss_mb(cell)))
        if probe is None:
            probe = (now, "probe%d" % number)
            assert push("probe", probe[1]) == "queued"
        elif len(probed) < 1 and now - probe[0] > window_s / 2:
            probed.append(push("probe", probe[1]))
        elif len(probed) == 1 and now - probe[0] > window_s * 1.5:
            probed.append(push("probe", probe[1]))
    client.close()
    assert probed == ["duplicate", "queued"], probed
    early = max(m for t, m in marks if t < seconds * 0.6)
    late = max(m for t, m in marks)
    # known partitions cost up to 1 KiB each; the filters nothing more
    assert late - early < 8 + lanes / 1000, (early, late, number)


# B15

@pytest.mark.parametrize("queues, seconds", soaked((100, 4), (1000, 600)))
def test_an_idle_cell_writes_next_to_nothing(new_cell, db, queues, seconds):
    cell = new_cell(METRICS_FLUSH_MS=1000).start()
    waits = []
    try:
        for i in range(queues):
            configure(cell, "q%d" % i)
            s = socket.create_connection(("127.0.0.1", cell.port.number))
            s.sendall(b"GET /api/v1/pop/queue/q%d?wait=true&timeout=300000"
                      b"&consumerGroup=g HTTP/1.1\r\nHost: h\r\n\r\n" % i)
            waits.append(s)
        wait_until(lambda: b"\nqueen_parked_pops %d\n" % queues in cell.get(
            "/metrics/prometheus").body)

        def rows():
            return db.row("select (select count(*) from queen.queue_minutes),"
                          " (select count(*) from queen.retention_log),"
                          " (select count(*) from queen.repairs)")

        def commits():
            return db.value("select xact_commit from pg_stat_database"
                            " where datname = current_database()")

        # what making them wrote is flushed, and the minute is over or not
        time.sleep(3)
        db.rows("checkpoint")
        at, before, done = time.monotonic(), rows(), commits()
        lsn = db.value("select pg_current_wal_lsn()")
        time.sleep(seconds)
        took = time.monotonic() - at
        wrote = db.value("select pg_current_wal_lsn() - %s::pg_lsn", (lsn,))
        assert rows() == before
        # behind a checkpoint each page is logged whole once
        assert wrote < 1e6 * took / 60 + 32 * 8192, (wrote, took)
        # scans and jobs, however many wait
        assert (commits() - done) / took < 15
    finally:
        for s in waits:
            s.close()


# A held snapshot

def cpu_s(db):
    """CPU time of the sessions of queend."""
    total = 0
    for pid, in db.rows("select pid from pg_stat_activity where"
                        " datname = current_database()"
                        " and application_name like 'queend%%'"):
        with open("/proc/%d/stat" % pid) as f:
            fields = f.read().rsplit(") ", 1)[1].split()
        total += int(fields[11]) + int(fields[12])
    return total / os.sysconf("SC_CLK_TCK")


@pytest.mark.parametrize("seconds, times", soaked((5, 2), (600, 1.5)))
def test_a_held_snapshot_does_not_make_work_dearer(
        pg, db, new_cell, seconds, times):
    """Against a database without one, turn by turn: the machine is shared."""
    other = pg.new_db()
    held, free = ((d, new_cell(_db=d).start()) for d in (db, other))
    try:
        def work(where, seconds_):
            """CPU seconds per message, pushed, popped and acked singly."""
            client = Client([where[1]])
            end, n, before = time.monotonic() + seconds_, 0, cpu_s(where[0])
            while time.monotonic() < end:
                for _ in range(20):
                    client.call("POST", API + "/push", {"items": [
                        {"queue": "q", "payload": n,
                         "transactionId": "%f.%d" % (end, n)}]})
                    m, = client.call(
                        "GET", API + "/pop/queue/q?wait=true")[1]["messages"]
                    got = client.call("POST", API + "/ack", {
                        "transactionId": m["transactionId"],
                        "partitionId": m["partitionId"],
                        "leaseId": m["leaseId"]})[1]
                    assert got[0]["success"]
                    n += 1
            client.close()
            return (cpu_s(where[0]) - before) / n

        work(held, 1)
        work(free, 1)
        conn = db.connect(autocommit=False)
        with conn.cursor() as cur:
            cur.execute("set transaction isolation level repeatable read")
            cur.execute("select count(*) from queen.consumers")
        work(held, seconds)
        pairs = [(work(held, 1), work(free, 1)) for _ in range(5)]
        conn.rollback()
        ratio = sorted(h / f for h, f in pairs)[2]
        assert ratio < times, pairs
    finally:
        free[1].term()
        other.drop()

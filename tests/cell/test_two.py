# SPDX-License-Identifier: Apache-2.0
"""
Two queends on one database: with the hint channel blocked nothing is lost and
little is late; leases and jobs belong to no process.
"""
import contextlib
import os
import random
import signal
import socket
import threading
import time

import pytest

from loadkit import Load, Workers, invariants
from queenlib import Port, wait_until

API = "/api/v1"


@pytest.fixture
def pair(cells):
    return cells(2)


@contextlib.contextmanager
def no_hints(db):
    """The sessions that send and receive hints stand still."""
    pids = [r[0] for r in db.rows(
        "select pid from pg_stat_activity where application_name ="
        " 'queend listen' and datname = current_database()")]
    assert len(pids) == 2
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


def later(w, fn):
    """fn in the background: a list that gets (answer, seconds)."""
    out = []

    def run():
        start = time.monotonic()
        got = fn()
        out.append((got, time.monotonic() - start))

    w.start(run)
    return out


def parked(cell, n):
    wait_until(lambda: b"\nqueen_parked_pops %d\n" % n in cell.get(
        "/metrics/prometheus").body, what="%d parked pops" % n)


# Hints blocked

def test_a_push_is_found_by_the_change_scan_while_hints_are_blocked(
        pair, db):
    """STORE 2: ten seconds without a hint, and none is later than the scan."""
    a, b = pair
    b.pop("q")
    late = []
    with no_hints(db), Workers() as w:
        end = time.monotonic() + 10
        number = 0
        while time.monotonic() < end:
            out = later(w, lambda: b.pop("q", wait=True, wait_ms=20000,
                                         autoAck=True))
            parked(b, 1)
            time.sleep(random.random())     # any phase of the scan
            pushed = time.monotonic()
            a.push("q", [number], partition="p%d" % (number % 3))
            wait_until(lambda: out, every_s=0.005)
            late.append(time.monotonic() - pushed)
            assert [m["data"] for m in out[0][0]] == [number]
            number += 1
    assert len(late) >= 3
    assert min(late) < 2 and max(late) < 4, late    # 1 s on a quiet machine


def test_a_push_is_heard_of_again_once_hints_flow(pair, db):
    a, b = pair
    b.pop("q")
    with no_hints(db):
        a.push("q", [0])
        assert wait_until(lambda: b.pop("q", autoAck=True))
    quick = []
    with Workers() as w:
        for i in range(10):
            out = later(w, lambda: b.pop("q", wait=True, wait_ms=20000,
                                         autoAck=True))
            parked(b, 1)
            pushed = time.monotonic()
            a.push("q", [i])
            wait_until(lambda: out, every_s=0.005)
            quick.append(time.monotonic() - pushed)
    assert sorted(quick)[5] < 0.5, quick


def test_listeners_ended_again_and_again_lose_no_message(pair, db):
    a, b = pair
    b.pop("q")
    got, n = [], 40
    with Workers() as w:
        def take():
            while len(got) < n and not w.stop.is_set():
                got.extend(m["data"] for m in b.pop(
                    "q", wait=True, wait_ms=1000, autoAck=True, batch=10))
        w.start(take)
        for i in range(n):
            a.push("q", [i])
            if i % 4 == 0:
                db.rows("select pg_terminate_backend(pid)"
                        " from pg_stat_activity where application_name ="
                        " 'queend listen' and datname = current_database()")
            time.sleep(0.05)
        wait_until(lambda: len(got) == n, 20)
    assert got == list(range(n))


def test_seek_and_group_delete_are_seen_elsewhere_without_a_hint(pair, db):
    """A19"""
    a, b = pair
    a.push("q", [1, 2, 3])
    for one in pair:
        while one.pop("q", group="g", subscriptionMode="all", autoAck=True):
            pass
    with no_hints(db), Workers() as w:
        out = later(w, lambda: b.pop("q", group="g", wait=True,
                                     wait_ms=20000, batch=10))
        parked(b, 1)
        moved = time.monotonic()
        reply = a.post(API + "/consumer-groups/g/queues/q/seek",
                       {"timestamp": "2020-01-01T00:00:00Z"})
        assert reply.status == 200, reply
        wait_until(lambda: out)
        assert time.monotonic() - moved < 6
        assert [m["data"] for m in out[0][0]] == [1, 2, 3]
        assert all(r["success"] for r in a.ack(out[0][0], group="g"))
        # deleted with its subscription: the next pop is a first contact
        assert a.delete(API + "/consumer-groups/g").status == 200
        got = wait_until(lambda: b.pop("q", group="g", batch=10,
                                       subscriptionMode="all"), 10)
        assert [m["data"] for m in got] == [1, 2, 3]


def test_a_lease_released_elsewhere_is_noticed_without_a_hint(pair, db):
    a, b = pair
    a.push("q", [1], partition="p")
    got = a.pop("q", leaseSeconds=300)
    with no_hints(db), Workers() as w:
        out = later(w, lambda: b.pop("q", wait=True, wait_ms=40000))
        parked(b, 1)
        a.push("q", [2], partition="p")     # waits for the batch before it
        time.sleep(1.5)                     # b has looked and met the lease
        assert a.ack(got)[0]["success"]
        acked = time.monotonic()
        wait_until(lambda: out, 30)
        assert time.monotonic() - acked < 15
        assert [m["data"] for m in out[0][0]] == [2]


def test_flags_are_reread_without_a_hint(cells, db):
    a, b = cells(2, QUEEN_CACHE_REFRESH_INTERVAL_MS=1000)
    body = {"items": [{"queue": "q", "payload": 1}]}

    def switch(on):
        for path in ("", "/pop"):
            assert a.post(API + "/system/maintenance" + path,
                          {"enabled": on}).status == 200

    b.pop("empty")
    with no_hints(db), Workers() as w:
        out = later(w, lambda: b.pop("empty", wait=True, wait_ms=30000))
        parked(b, 1)
        switch(True)
        wait_until(lambda: b.post(API + "/push", body).status == 503, 15)
        # a parked pop is answered, too
        wait_until(lambda: out, 15)
        assert out[0][0] == []
        switch(False)
        wait_until(lambda: b.post(API + "/push", body).status == 201, 15)
        wait_until(lambda: b.pop("q", autoAck=True), 15)


# Leases belong to no process

def test_a_lease_of_one_is_used_in_a_transaction_on_the_other(pair, db):
    a, b = pair
    a.push("in", [1, 2, 3], partition="p")
    got = a.pop("in", batch=10)

    def txn(cell, m, lease, result):
        return cell.post(API + "/transaction", {
            "operations": [
                {"type": "ack", "transactionId": m["transactionId"],
                 "partitionId": m["partitionId"]},
                {"type": "push", "queue": "out", "payload": result}],
            "requiredLeases": [lease]}).body

    assert txn(b, got[0], got[0]["leaseId"], 1)["success"] is True
    reply = b.post(API + "/lease/%s/extend" % got[0]["leaseId"],
                   {"seconds": 500}).body
    assert (reply["success"], reply["renewed"]) == (True, 1)
    # b gives it back, a takes it: the first lease is worth nothing on b
    assert b.ack(got[1:2], status="retry")[0]["leaseReleased"] is True
    again = wait_until(lambda: a.pop("in", batch=10))
    assert [m["data"] for m in again] == [2, 3]
    refused = txn(b, got[1], got[0]["leaseId"], 2)
    assert (refused["success"], refused["reason"]) == (False, "ack_rejected")
    assert txn(b, again[1], again[0]["leaseId"], 3)["success"] is True
    out = wait_until(lambda: b.pop("out", batch=10))
    assert [m["data"] for m in out] == [1, 3]
    invariants(db)


# One port

def test_two_on_one_port_share_the_work_without_duplicates(new_cell, db):
    port = Port()
    both = [new_cell(_port=port).start(), new_cell(_port=port)]

    def start(cell):
        """Its health proves nothing: the other one answers too."""
        boots = cell.log_text().count(" serving ") if cell.proc else 0
        cell.start()
        wait_until(lambda: cell.log_text().count(" serving ") > boots)

    start(both[1])
    idle = []
    try:
        for _ in range(64):
            idle.append(socket.create_connection(
                ("127.0.0.1", port.number), timeout=10))

        def sockets(cell):
            folder = "/proc/%d/fd" % cell.proc.pid
            return sum(os.readlink(os.path.join(folder, f)).startswith(
                "socket:") for f in os.listdir(folder))

        # some twenty of its own each; the kernel spreads the rest
        wait_until(lambda: min(map(sockets, both)) > 28)
    finally:
        for s in idle:
            s.close()
    load = Load(db, both, n=4).start()
    try:
        load.workers.stop.wait(1.5)
        # one leaves; the port is served on
        assert both[0].term() == 0
        for i in range(20):
            assert both[1].push("other", [i])[0]["status"] == "queued"
        start(both[0])
        load.workers.stop.wait(1)
        load.finish()
    finally:
        load.workers.stop.set()
        load.workers.join()
    for one in both:
        if one.proc.poll() is None:
            one.term()
    port.give()


# Jobs run once

def test_retention_runs_once_per_period_in_total(cells, db):
    """ha 12: two queends, and the row counts one run per period."""
    cells(2, RETENTION_INTERVAL=1000)
    runs = lambda: db.value("select coalesce(sum(runs), 0)"     # noqa: E731
                            " from queen.claims where task = 'retention'")
    wait_until(lambda: runs() > 0)
    first, start = runs(), time.monotonic()
    time.sleep(4)
    n, took = runs() - first, time.monotonic() - start
    assert 2 <= n <= took + 1, (n, took)


def test_retention_goes_on_when_its_holder_stands_still(cells, db):
    """A claim that ran out is taken over; the old holder's word is void."""
    a, b = cells(2, RETENTION_INTERVAL=1000)
    wait_until(lambda: db.value("select count(*) from queen.claims"
                                " where task = 'retention' and runs > 0"))
    # somebody took it and stopped: no one may run before its lease is over
    db.rows("update queen.claims set holder = 'elsewhere', fence = fence + 1,"
            " lease_until = clock_timestamp() + interval '3 s',"
            " next_due_at = clock_timestamp() where task = 'retention'")
    fence, runs = db.row("select fence, runs from queen.claims"
                         " where task = 'retention'")
    start = time.monotonic()
    wait_until(lambda: db.value("select runs from queen.claims where task ="
                                " 'retention'") > runs)
    assert time.monotonic() - start > 2
    assert db.value("select fence from queen.claims"
                    " where task = 'retention'") > fence
    assert db.value("select queen.claim_give_v1('retention', %s, true)"
                    % fence) in (False, None)


def test_an_explicit_server_id_twice_is_a_fatal_boot(new_cell, folder):
    one = new_cell(QUEEN_SERVER_ID="same", QUEEN_RUN_DIR=folder).start()
    two = new_cell(QUEEN_SERVER_ID="same", QUEEN_RUN_DIR=folder)
    two.start(wait=False)
    assert two.wait_exit() in (1, 2)
    assert "same" in [x for x in two.log_text().splitlines()
                      if " ERROR " in x][-1]
    assert one.get("/health").status == 200


def test_both_stay_up_through_each_others_restarts(pair):
    a, b = pair
    stop = threading.Event()
    seen = []
    with Workers() as w:
        def push():
            while not stop.is_set():
                seen.append(b.push("q", [1])[0]["status"])
        w.start(push)
        for _ in range(2):
            assert a.term() == 0
            a.start()
        stop.set()
    assert set(seen) == {"queued"}

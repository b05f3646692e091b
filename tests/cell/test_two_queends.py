# SPDX-License-Identifier: Apache-2.0
"""Two queends on one database share the work through hints alone."""
import signal
import threading
import time

import pytest

from queenlib import wait_until


def background(fn):
    found = {}

    def run():
        start = time.monotonic()
        try:
            found["got"] = fn()
        except BaseException as e:
            found["error"] = e
        found["took"] = time.monotonic() - start

    t = threading.Thread(target=run)
    t.start()
    return t, found


def parked(cell, n):
    def look():
        text = cell.get("/metrics/prometheus").body
        text = text.decode() if isinstance(text, bytes) else text
        return "\nqueen_parked_pops %d\n" % n in text
    wait_until(look, what="%d parked pops" % n)


@pytest.fixture
def pair(cells):
    return cells(2)


def datas(found):
    if "error" in found:
        raise found["error"]
    return [m["data"] for m in found["got"]]


def test_push_on_one_wakes_a_pop_on_the_other(pair):
    a, b = pair
    b.pop("q")
    t, found = background(lambda: b.pop("q", wait=True, wait_ms=15000))
    parked(b, 1)
    start = time.monotonic()
    a.push("q", [1])
    t.join(20)
    assert datas(found) == [1]
    assert time.monotonic() - start < 2


def test_pop_parked_by_name_on_the_other(pair):
    a, b = pair
    t, found = background(lambda: b.pop("later", partition="p", wait=True,
                                        wait_ms=15000))
    parked(b, 1)
    a.push("later", [1], partition="p")
    t.join(20)
    assert datas(found) == [1]
    t, found = background(lambda: b.pop("later", partition="p2", wait=True,
                                        wait_ms=15000))
    parked(b, 1)
    a.push("later", [2], partition="p2")
    t.join(20)
    assert datas(found) == [2]


def test_ack_and_extend_reach_the_other_process(pair, db):
    a, b = pair
    a.push("q", [1, 2])
    got = a.pop("q", batch=1)
    t, found = background(lambda: a.pop("q", wait=True, wait_ms=15000))
    parked(a, 1)
    assert b.post("/api/v1/lease/%s/extend" % got[0]["leaseId"],
                  {"seconds": 200}).body["renewed"] == 1
    assert b.ack(got)[0]["success"] is True
    t.join(20)
    assert datas(found) == [2]
    assert found["took"] < 8


def test_nack_on_one_wakes_the_other(pair):
    a, b = pair
    a.push("q", [1])
    got = a.pop("q")
    t, found = background(lambda: b.pop("q", wait=True, wait_ms=15000))
    parked(b, 1)
    a.ack(got, status="retry")
    t.join(20)
    assert datas(found) == [1]
    assert found["took"] < 8


def test_message_behind_a_lease_acked_elsewhere(pair):
    """The ack left nothing; what comes then must still wake."""
    a, b = pair
    a.push("q", [1])
    got = a.pop("q")
    t, found = background(lambda: a.pop("q", wait=True, wait_ms=15000))
    parked(a, 1)
    b.ack(got)
    time.sleep(0.1)
    b.push("q", [2])
    t.join(20)
    assert datas(found) == [2]
    assert found["took"] < 8


def test_seek_on_one_wakes_the_other(pair):
    a, b = pair
    a.push("q", [1], partition="p")
    a.ack(a.pop("q", group="g", subscriptionMode="all"), group="g")
    wait_until(lambda: b.pop("q", group="g") == [])
    t, found = background(lambda: b.pop("q", group="g", wait=True,
                                        wait_ms=15000))
    parked(b, 1)
    reply = a.post("/api/v1/consumer-groups/g/queues/q/seek",
                   {"timestamp": "2020-01-01T00:00:00Z"})
    assert reply.status == 200
    t.join(20)
    assert datas(found) == [1]
    assert found["took"] < 8


def test_pop_maintenance_reaches_the_other(pair):
    a, b = pair
    a.push("q", [1])
    a.post("/api/v1/system/maintenance/pop", {"enabled": True})
    wait_until(lambda: b.get("/api/v1/system/maintenance/pop").body[
        "popMaintenanceMode"] is True)
    wait_until(lambda: b.pop("q") == [])
    a.post("/api/v1/system/maintenance/pop", {"enabled": False})
    wait_until(lambda: b.pop("q") != [])


def test_deleted_queue_is_forgotten_by_the_other(pair):
    a, b = pair
    a.push("q", ["old"])
    wait_until(lambda: [m["data"] for m in b.pop("q")] == ["old"])
    assert a.delete("/api/v1/resources/queues/q").status == 200
    a.push("q", ["new"])
    wait_until(lambda: [m["data"] for m in b.pop("q")] == ["new"])


def test_both_share_the_work_without_duplicates(pair):
    a, b = pair
    n = 200
    a.post("/api/v1/push", {"items": [
        {"queue": "q", "partition": "p%d" % (i % 40), "payload": i}
        for i in range(n)]})
    seen, lock = [], threading.Lock()

    def work(cell):
        idle = 0
        while idle < 3:
            got = cell.pop("q", partitions=2, wait=True, wait_ms=300)
            idle = 0 if got else idle + 1
            with lock:
                seen.extend(m["data"] for m in got)
            if got:
                cell.ack(got)

    threads = [threading.Thread(target=work, args=(c,))
               for c in (a, b) for _ in range(3)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert sorted(seen) == list(range(n))


def test_lost_hint_is_made_good_by_the_change_scan(pair, db):
    """b cannot listen while a pushes."""
    a, b = pair
    b.pop("q")
    t, found = background(lambda: b.pop("q", wait=True, wait_ms=20000))
    parked(b, 1)
    killed = db.rows(
        "select pg_terminate_backend(pid) from pg_stat_activity where"
        " application_name = 'queend listen'"
        " and datname = current_database()")
    assert len(killed) == 2
    a.push("q", [1])
    t.join(25)
    assert datas(found) == [1]
    assert found["took"] < 15


def test_killed_queend_leaves_its_lease_to_the_clock(pair):
    a, b = pair
    a.push("q", [1])
    got = a.pop("q", leaseSeconds=2)
    assert [m["data"] for m in got] == [1]
    a.kill9()
    got = b.pop("q", wait=True, wait_ms=15000)
    assert [m["data"] for m in got] == [1]
    assert got[0]["deliveryAttempt"] == 2
    assert b.ack(got)[0]["success"] is True


def test_stopped_peer_does_not_hold_the_other(pair):
    a, b = pair
    a.push("q", [0])
    b.signal(signal.SIGSTOP)
    try:
        for i in range(20):
            a.push("q", [i], partition="p%d" % i)
        assert len(a.pop("q", partitions=0)) == 21
    finally:
        b.signal(signal.SIGCONT)


@pytest.mark.parametrize("auto", [False, True])
def test_vanished_client_on_the_other_claims_nothing(pair, auto):
    a, b = pair
    b.pop("q")
    c = b.http()
    c.request("GET", "/api/v1/pop/queue/q?wait=true&timeout=60000&autoAck=%s"
              % str(auto).lower())
    parked(b, 1)
    c.sock.close()
    c.close()
    parked(b, 0)
    a.push("q", [1])
    assert [m["data"] for m in a.pop("q", wait=True, wait_ms=5000)] == [1]

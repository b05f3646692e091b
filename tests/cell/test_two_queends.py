# SPDX-License-Identifier: Apache-2.0
"""Two queends on one database share the work through hints; leases belong to
neither, and neither needs the other."""
import signal
import time

import pytest

from loadkit import Workers, invariants, together
from popkit import Popper, wait_parked
from queenlib import wait_until

API = "/api/v1"


def test_push_on_one_wakes_a_pop_on_the_other(pair):
    a, b = pair
    b.pop("q")
    p = Popper(b, "q")
    wait_parked(b, 1)
    start = time.monotonic()
    a.push("q", [1])
    assert p.result() == [1]
    assert time.monotonic() - start < 2


def test_pop_parked_by_name_on_the_other(pair):
    a, b = pair
    p = Popper(b, "later", partition="p")
    wait_parked(b, 1)
    a.push("later", [1], partition="p")
    assert p.result() == [1]
    p = Popper(b, "later", partition="p2")
    wait_parked(b, 1)
    a.push("later", [2], partition="p2")
    assert p.result() == [2]


def test_ack_and_extend_reach_the_other_process(pair, db):
    a, b = pair
    a.push("q", [1, 2])
    got = a.pop("q", batch=1)
    p = Popper(a, "q")
    wait_parked(a, 1)
    assert b.post(API + "/lease/%s/extend" % got[0]["leaseId"],
                  {"seconds": 200}).body["renewed"] == 1
    assert b.ack(got)[0]["success"] is True
    assert p.result() == [2]
    assert p.took < 8


def test_nack_on_one_wakes_the_other(pair):
    a, b = pair
    a.push("q", [1])
    got = a.pop("q")
    p = Popper(b, "q")
    wait_parked(b, 1)
    a.ack(got, status="retry")
    assert p.result() == [1]
    assert p.took < 8


def test_message_behind_a_lease_acked_elsewhere(pair):
    """The ack left nothing; what comes then must still wake."""
    a, b = pair
    a.push("q", [1])
    got = a.pop("q")
    p = Popper(a, "q")
    wait_parked(a, 1)
    b.ack(got)
    time.sleep(0.1)
    b.push("q", [2])
    assert p.result() == [2]
    assert p.took < 8


def test_pop_maintenance_reaches_the_other(pair):
    a, b = pair
    a.push("q", [1])
    a.post(API + "/system/maintenance/pop", {"enabled": True})
    wait_until(lambda: b.get(API + "/system/maintenance/pop").body[
        "popMaintenanceMode"] is True)
    wait_until(lambda: b.pop("q") == [])
    a.post(API + "/system/maintenance/pop", {"enabled": False})
    wait_until(lambda: b.pop("q") != [])


def test_deleted_queue_is_forgotten_by_the_other(pair):
    a, b = pair
    a.push("q", ["old"])
    wait_until(lambda: [m["data"] for m in b.pop("q")] == ["old"])
    assert a.delete(API + "/resources/queues/q").status == 200
    a.push("q", ["new"])
    wait_until(lambda: [m["data"] for m in b.pop("q")] == ["new"])


def test_both_share_the_work_without_duplicates(pair):
    n = 200
    pair[0].post(API + "/push", {"items": [
        {"queue": "q", "partition": "p%d" % (i % 40), "payload": i}
        for i in range(n)]})

    def work(i):
        seen, idle = [], 0
        while idle < 3:
            got = pair[i % 2].pop("q", partitions=2, wait=True, wait_ms=300)
            idle = 0 if got else idle + 1
            seen += [m["data"] for m in got]
            if got:
                pair[i % 2].ack(got)
        return seen

    assert sorted(sum(together(6, work), [])) == list(range(n))


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
    c.request("GET", API + "/pop/queue/q?wait=true&timeout=60000&autoAck=%s"
              % str(auto).lower())
    wait_parked(b, 1)
    c.sock.close()
    c.close()
    wait_parked(b, 0)
    a.push("q", [1])
    assert [m["data"] for m in a.pop("q", wait=True, wait_ms=5000)] == [1]


def test_both_stay_up_through_each_others_restarts(pair):
    a, b = pair
    seen = []
    with Workers() as w:
        def push():
            while not w.stop.is_set():
                seen.append(b.push("q", [1])[0]["status"])
        w.start(push)
        for _ in range(2):
            assert a.term() == 0
            a.start()
    assert set(seen) == {"queued"}


def test_an_explicit_server_id_twice_is_a_fatal_boot(new_cell, folder):
    one = new_cell(QUEEN_SERVER_ID="same", QUEEN_RUN_DIR=folder).start()
    two = new_cell(QUEEN_SERVER_ID="same", QUEEN_RUN_DIR=folder)
    two.start(wait=False)
    assert two.wait_exit() in (1, 2)
    assert "same" in [x for x in two.log_text().splitlines()
                      if " ERROR " in x][-1]
    assert one.get("/health").status == 200

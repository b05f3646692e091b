# SPDX-License-Identifier: Apache-2.0
"""Two queends on one database while the hint channel is blocked: nothing is
lost and little is late."""
import random
import time

from loadkit import Workers
from popkit import Popper, no_hints, wait_parked
from queenlib import wait_until

API = "/api/v1"


def test_a_push_is_found_by_the_change_scan_while_hints_are_blocked(
        pair, db):
    """STORE 2: ten seconds without a hint, and none is later than the scan."""
    a, b = pair
    b.pop("q")
    late = []
    with no_hints(db):
        end = time.monotonic() + 10
        number = 0
        while time.monotonic() < end:
            p = Popper(b, "q", wait_ms=20000, autoAck=True)
            wait_parked(b, 1)
            time.sleep(random.random())     # any phase of the scan
            pushed = time.monotonic()
            a.push("q", [number], partition="p%d" % (number % 3))
            assert p.result() == [number]
            late.append(time.monotonic() - pushed)
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
    for i in range(10):
        p = Popper(b, "q", wait_ms=20000, autoAck=True)
        wait_parked(b, 1)
        pushed = time.monotonic()
        a.push("q", [i])
        assert p.result() == [i]
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
    with no_hints(db):
        p = Popper(b, "q", group="g", wait_ms=20000, batch=10)
        wait_parked(b, 1)
        moved = time.monotonic()
        reply = a.post(API + "/consumer-groups/g/queues/q/seek",
                       {"timestamp": "2020-01-01T00:00:00Z"})
        assert reply.status == 200, reply
        assert p.result() == [1, 2, 3]
        assert time.monotonic() - moved < 6
        assert all(r["success"] for r in a.ack(p.got, group="g"))
        # deleted with its subscription: the next pop is a first contact
        assert a.delete(API + "/consumer-groups/g").status == 200
        got = wait_until(lambda: b.pop("q", group="g", batch=10,
                                       subscriptionMode="all"), 10)
        assert [m["data"] for m in got] == [1, 2, 3]


def test_a_lease_released_elsewhere_is_noticed_without_a_hint(pair, db):
    a, b = pair
    a.push("q", [1], partition="p")
    got = a.pop("q", leaseSeconds=300)
    with no_hints(db):
        p = Popper(b, "q", wait_ms=40000)
        wait_parked(b, 1)
        a.push("q", [2], partition="p")     # waits for the batch before it
        time.sleep(1.5)                     # b has looked and met the lease
        assert a.ack(got)[0]["success"]
        acked = time.monotonic()
        assert p.result() == [2]
        assert time.monotonic() - acked < 15


def test_flags_are_reread_without_a_hint(cells, db):
    a, b = cells(2, QUEEN_CACHE_REFRESH_INTERVAL_MS=1000)
    body = {"items": [{"queue": "q", "payload": 1}]}

    def switch(on):
        for path in ("", "/pop"):
            assert a.post(API + "/system/maintenance" + path,
                          {"enabled": on}).status == 200

    b.pop("empty")
    with no_hints(db):
        p = Popper(b, "empty", wait_ms=30000)
        wait_parked(b, 1)
        switch(True)
        wait_until(lambda: b.post(API + "/push", body).status == 503, 15)
        # a parked pop is answered, too
        assert p.result(15) == []
        switch(False)
        wait_until(lambda: b.post(API + "/push", body).status == 201, 15)
        wait_until(lambda: b.pop("q", autoAck=True), 15)

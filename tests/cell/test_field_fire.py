# SPDX-License-Identifier: Apache-2.0
"""
Timers whose database was away or whose switch was off: each comes once, soon
after the end of the trouble, also to a pop that was parked through it.
"""
import base64
import time

from loadkit import Workers
from queenlib import SAN, metric, wait_until

TIMERS = "/api/v1/timers"
SWITCHES = "/api/v1/system/kv-timers"
# what a busy machine adds
SLACK_S = 10 if SAN else 4


def schedule(cell, key, delay_ms, queue="q", **fields):
    reply = cell.post(TIMERS, [dict({
        "op": "schedule", "queue": queue, "timerKey": key,
        "delayMs": delay_ms, "txn": "t-" + key,
        "payload": base64.b64encode(b"1").decode()}, **fields)])
    assert reply.status == 200, reply


def test_what_was_due_while_the_database_was_away_comes_after(new_cell, pg):
    """B9: the pop was parked all the while; each comes once, in its order."""
    cell = new_cell().start()
    cell.pop("q", group="g", subscriptionMode="all")
    for i in range(3):
        schedule(cell, "k%d" % i, 900 - 300 * i)
    got = []
    with Workers() as w:
        w.start(lambda: got.append((cell.pop(
            "q", group="g", wait=True, batch=10, wait_ms=60000, timeout=90),
            time.monotonic())))
        wait_until(lambda: metric(cell, "queen_parked_pops") == 1)
        pg.stop("immediate")
        down = time.monotonic()
        wait_until(lambda: time.monotonic() - down > 1)     # all are due
        pg.start()
        up = time.monotonic()
        w.join()
    (messages, came), = got
    assert came - up < 2 + SLACK_S, came - up
    while len(messages) < 3:
        messages += wait_until(lambda: cell.pop("q", group="g", batch=10)
                               or cell.ack(messages, group="g") and None)
    assert [m["transactionId"] for m in messages] == ["t-k2", "t-k1", "t-k0"]


def test_switched_off_and_on_again_on_the_other_process(cells, db):
    """Nothing is lost, nothing comes meanwhile, both obey."""
    a, b = cells(2)
    a.post(SWITCHES, {"timersFire": False})
    wait_until(lambda: b.get(SWITCHES).body["timersFireEnabled"] is False)
    for cell, key in ((a, "a"), (b, "b")):
        schedule(cell, key, 0)
    assert a.delete(TIMERS + "/q/none").body["status"] == "absent"
    cancelled = schedule(a, "c", 0) or a.delete(TIMERS + "/q/c").body
    assert cancelled["status"] == "cancelled"
    wait_until(lambda: db.value("select max(due_at) < clock_timestamp()"
                                " - interval '1500 ms' from queen.timers"))
    assert db.value("select count(*) from queen.timers") == 2
    assert db.value("select count(*) from queen.segments") == 0
    b.post(SWITCHES, {"timersFire": True})
    wait_until(lambda: db.value("select count(*) from queen.timers") == 0,
               deadline_s=2 + SLACK_S)
    found = []
    wait_until(lambda: found.extend(m["transactionId"] for m in a.pop(
        "q", subscriptionMode="all", batch=10)) or len(found) == 2)
    assert sorted(found) == ["t-a", "t-b"]

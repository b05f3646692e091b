# SPDX-License-Identifier: Apache-2.0
"""
Cards charged once: each order's marker, its charge message, its reminder and
the ack of the order are one transaction.  Workers are killed while they work,
or the broker under them, and orders come again; a charge never does.
"""
import random
import signal
import subprocess
import sys
import time

import pytest

ORDERS, WORKERS, LEASE_S = 1000, 4, 2

WORKER = r"""
import http.client, json, sys
port, batch = int(sys.argv[1]), 10
c = http.client.HTTPConnection("127.0.0.1", port, timeout=30)

def call(method, path, body=None):
    c.request(method, path, body=body and json.dumps(body))
    r = c.getresponse()
    text = r.read()
    assert r.status in (200, 204), (r.status, text)
    return json.loads(text) if text else None

while True:
    got = call("GET", "/api/v1/pop/queue/orders?wait=true&timeout=500&batch=%d"
               % batch)
    for m in (got or {}).get("messages", []):
        key = str(m["data"]["order"])
        ack = {"type": "ack", "transactionId": m["transactionId"],
               "partitionId": m["partitionId"], "leaseId": m["leaseId"]}
        made = call("POST", "/api/v1/transaction", {
            "operations": [ack, {"type": "push", "queue": "charges",
                                 "payload": {"order": key}}],
            "kv": [{"op": "putIfAbsent", "ns": "charged", "key": key,
                    "value": True, "ttlSeconds": 86400, "required": True}],
            "timers": [{"op": "schedule", "queue": "reminders",
                        "timerKey": key, "delayMs": 86400000,
                        "txn": "remind-" + key, "payload": "e30="}]})
        if not made["success"] and made["reason"] == "kv_precondition":
            # charged already: what remains is the ack
            made = call("POST", "/api/v1/transaction", {"operations": [ack]})
"""


def worker(cell):
    return subprocess.Popen(
        [sys.executable, "-c", WORKER, str(cell.port.number)],
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL)


def charges(db):
    return db.value(
        "select coalesce(sum(s.end_offset - s.base_offset + 1), 0)::int"
        " from queen.segments s join queen.partitions p on p.id ="
        " s.partition_id join queen.queues q on q.id = p.queue_id"
        " where q.name = 'charges'")


def left(db):
    """Partitions of orders that are not acked to their end."""
    return db.value(
        "select count(*) from queen.partitions p join queen.queues q"
        " on q.id = p.queue_id where q.name = 'orders'"
        " and (select max(s.end_offset) from queen.segments s"
        "  where s.partition_id = p.id) > coalesce((select max(c.committed)"
        "  from queen.consumers c where c.partition_id = p.id), -1)")


def send_orders(cell):
    assert cell.post("/api/v1/configure", {
        "queue": "orders", "options": {"leaseTime": LEASE_S,
                                       "retryLimit": 1000}}).status < 300
    # every tenth order is sent twice
    orders = list(range(ORDERS)) + list(range(0, ORDERS, 10))
    for part in range(20):
        cell.push("orders", [{"order": o} for o in orders[part::20]],
                  partition=str(part))


@pytest.mark.parametrize("victim", ["workers", "queend"])
def test_each_card_is_charged_once(cell, db, victim):
    rng = random.Random(7)
    send_orders(cell)
    running = [worker(cell) for _ in range(WORKERS)]
    killed, end = 0, time.monotonic() + 45
    try:
        while left(db) and time.monotonic() < end:
            time.sleep(rng.uniform(0.05, 0.2))  # at no moment in particular
            if victim == "queend" and killed < 5 and \
                    charges(db) > killed * ORDERS // 6:
                cell.kill9()
                cell.start()
                killed += 1
            i = rng.randrange(WORKERS)
            if victim == "workers" and charges(db) < ORDERS:
                running[i].send_signal(signal.SIGKILL)
                running[i].wait()
                killed += 1
            for i, one in enumerate(running):
                if one.poll() is not None:      # it lost its broker, or more
                    running[i] = worker(cell)
    finally:
        for one in running:
            one.kill()
            one.wait()
    assert killed > (4 if victim == "queend" else 3)
    assert (left(db), charges(db)) == (0, ORDERS)
    wanted = {str(i) for i in range(ORDERS)}
    found = []
    while len(found) < ORDERS:
        found += [m["data"]["order"] for m in cell.pop(
            "charges", batch=1000, autoAck=True, wait=True)]
    assert sorted(found) == sorted(wanted)
    assert {r[0] for r in db.rows(
        "select key from queen.kv where namespace = 'charged'")} == wanted
    assert {r[0] for r in db.rows("select timer_key from queen.timers")} \
        == wanted

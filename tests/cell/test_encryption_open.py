# SPDX-License-Identifier: Apache-2.0
"""Messages that cannot be opened: an error that names them, no lease and no
cursor that moved, and a way for the operator to see it."""
import re
import threading

import pytest

from ctlkit import Ctl
from queenlib import metric, wait_until
from sealkit import (K1, K2, PAYLOAD, WORD, consumers, damage, faulty, flag,
                     key_id, keyed, popped, statuses)

DAMAGED = "sealed with key id %d, but does not open with it" % key_id(K1)


def names(text, offset=0, part="Default", queue="q"):
    return 'pop failed: %s: offset %d of partition "%s" of queue "%s"' % (
        text, offset, part, queue)


# Leases

@keyed
def test_a_lease_of_what_does_not_open_is_given_back(cell, db):
    flag(cell, "q")
    cell.push("q", [PAYLOAD])
    damage(db)
    for _ in range(3):
        assert faulty(cell, "queue/q") == names(DAMAGED)
        assert consumers(db) == [(-1, False, 0)]
    assert metric(cell, "queen_pop_damaged_total") == 3
    damage(db)
    m, = popped(cell)
    assert (m["data"], m["deliveryAttempt"]) == (PAYLOAD, 1)
    assert cell.ack([m])[0]["success"]
    assert WORD not in cell.log_text() and K1 not in cell.log_text()


@keyed
def test_attempts_are_as_if_the_failed_pop_never_was(cell, db):
    flag(cell, "q")
    cell.push("q", [PAYLOAD])
    m, = popped(cell)
    cell.ack([m], status="retry")
    damage(db)
    assert faulty(cell, "queue/q") == names(DAMAGED)
    assert consumers(db) == [(-1, False, 1)]
    damage(db)
    m, = popped(cell)
    assert m["deliveryAttempt"] == 2


@keyed
def test_a_pop_of_two_partitions_gives_both_back(cell, db):
    flag(cell, "q")
    cell.push("q", [1], partition="a")
    cell.push("q", [2], partition="b")
    damage(db, "partition_id = (select id from queen.partitions"
               " where name = 'b')")
    assert faulty(cell, "queue/q?partitions=2&batch=10") == names(
        DAMAGED, part="b")
    assert wait_until(lambda: consumers(db)) == [(-1, False, 0)] * 2
    assert db.value("select count(*) from queen.lease_sets") == 0
    # the sound one is not held back
    assert [m["data"] for m in popped(cell, partition="a")] == [1]


@keyed
def test_messages_before_the_damaged_one_are_delivered(cell, db):
    flag(cell, "q")
    cell.push("q", [1, 2, 3])
    damage(db)  # the last frame of the segment
    assert faulty(cell, "queue/q?batch=10") == names(DAMAGED, offset=2)
    got = popped(cell, batch=2)
    assert [m["data"] for m in got] == [1, 2]
    cell.ack(got)
    assert faulty(cell, "queue/q?batch=2") == names(DAMAGED, offset=2)


@keyed
def test_a_conflated_pop_gives_its_lease_back(cell, db):
    flag(cell, "q")
    cell.push("q", [1, 2])
    path = "queue/q?consumerGroup=g&conflation=true&subscriptionMode=all"
    assert [m["data"] for m in popped(
        cell, group="g", conflation=True, subscriptionMode="all",
        leaseSeconds=1)] == [2]
    damage(db)
    assert faulty(cell, path) == names(DAMAGED, offset=1)
    assert consumers(db)[0][:2] == (-1, False)
    damage(db)
    assert [m["data"] for m in popped(cell, group="g", conflation=True)] == [2]


@keyed
def test_a_waiting_pop_gets_the_error_too(cell, db):
    flag(cell, "q")
    cell.push("q", [PAYLOAD])
    damage(db)
    for auto in ("false", "true"):
        reply = cell.get("/api/v1/pop/queue/q/partition/Default?wait=true"
                         "&timeout=20000&autoAck=" + auto)
        assert (reply.status, reply.body["error"]) == (500, names(DAMAGED))
    assert consumers(db) == [(-1, False, 0)]


# autoAck

@keyed
@pytest.mark.parametrize("path", [
    "queue/q?autoAck=true", "queue/q/partition/Default?autoAck=true",
    "queue/q?autoAck=true&consumerGroup=g&subscriptionMode=all"])
def test_auto_ack_does_not_lose_what_does_not_open(cell, db, path):
    flag(cell, "q")
    cell.push("q", [PAYLOAD])
    damage(db)
    for _ in range(2):
        assert faulty(cell, path) == names(DAMAGED)
        # the row itself is made by what was rolled back
        assert consumers(db) == []
    damage(db)
    reply = wait_until(lambda: [r for r in [cell.get(
        "/api/v1/pop/" + path)] if r.status == 200])[0]
    assert [m["data"] for m in reply.body["messages"]] == [PAYLOAD]
    assert [c[:2] for c in consumers(db)] == [(0, False)]
    assert cell.pop("q", autoAck=True, group="g" if "g&" in path else None) \
        == []


def test_auto_ack_without_the_key_and_with_it_again(new_cell, db):
    """A segment that names one key and holds a frame of another."""
    a = new_cell(QUEEN_ENCRYPTION_KEY=K2).start()
    flag(a, "q")
    a.push("q", [PAYLOAD])
    a.term()
    db.rows("update queen.segments set key_id = %s", (key_id(K1),))
    db.rows("delete from queen.flags where key like 'seal:%%'")
    b = new_cell(QUEEN_ENCRYPTION_KEY=K1).start()
    for path, rows in (("queue/q?autoAck=true", []),
                       ("queue/q", [(-1, False, 0)])):
        assert faulty(b, path) == names(
            "sealed with key id %d, which is not loaded" % key_id(K2))
        assert consumers(db) == rows
    b.term()
    b.extra["QUEEN_ENCRYPTION_OLD_KEYS"] = K2
    b.start()
    assert [m["data"] for m in popped(b, autoAck=True)] == [PAYLOAD]
    assert [c[:2] for c in consumers(db)] == [(0, False)]


def test_auto_ack_waits_for_a_key_that_is_not_there(new_cell, db):
    a = new_cell(QUEEN_ENCRYPTION_KEY=K1).start()
    flag(a, "q")
    a.push("q", [PAYLOAD])
    a.term()
    b = new_cell().start()
    assert b.pop("q", autoAck=True, wait=True, wait_ms=1000) == []
    assert [c[:2] for c in consumers(db)] == [(-1, False)]
    b.term()
    b.extra["QUEEN_ENCRYPTION_OLD_KEYS"] = K1
    b.start()
    assert [m["data"] for m in popped(b, autoAck=True)] == [PAYLOAD]


def test_auto_ack_of_a_process_that_does_not_know_the_flag(new_cell, db):
    a = new_cell(QUEEN_ENCRYPTION_KEY=K1).start()
    a.push("q", [0])
    assert [m["data"] for m in popped(a, autoAck=True)] == [0]
    a.push("q", [1])
    # sealed behind its back, and damaged
    blob = db.value("select blob from queen.segments where base_offset = 1")
    db.rows("update queen.segments set key_id = %s where base_offset = 1",
            (key_id(K1),))
    db.rows("update queen.segments set blob = set_byte(blob, 6,"
            " get_byte(blob, 6) | 4) where base_offset = 1")
    assert faulty(a, "queue/q?autoAck=true").startswith("pop failed: sealed")
    assert [c[:2] for c in consumers(db)] == [(0, False)]
    db.rows("update queen.segments set key_id = null, blob = %s"
            " where base_offset = 1", (blob,))
    assert [m["data"] for m in popped(a, autoAck=True)] == [1]


@keyed
def test_auto_ack_takes_the_sound_partitions(cell, db):
    flag(cell, "q")
    for i in range(20):
        cell.push("q", [i], partition="p%d" % i)
    damage(db, "partition_id = (select id from queen.partitions"
               " where name = 'p7')")
    got, errors = [], set()

    def done():
        reply = cell.get("/api/v1/pop/queue/q?autoAck=true&partitions=4"
                         "&batch=8")
        if reply.status == 200:
            got.extend(m["data"] for m in reply.body["messages"])
        elif reply.status == 500:
            errors.add(reply.body["error"])
        return len(got) >= 19

    wait_until(done)
    assert sorted(got) == [i for i in range(20) if i != 7]
    assert errors == {names(DAMAGED, part="p7")}


@keyed
def test_auto_ack_by_label_over_sealed_and_clear_queues(cell, db):
    for name, on in ("one", True), ("two", False):
        assert cell.post("/api/v1/configure", {
            "queue": name, "namespace": "n",
            "options": {"encryptionEnabled": on}}).status in (200, 201)
        assert statuses(cell.push(name, [name])) == ["queued"]
    damage(db, "key_id is not null")
    seen = set()

    def done():
        reply = cell.get("/api/v1/pop?namespace=n&autoAck=true"
                         "&consumerGroup=g&subscriptionMode=all")
        if reply.status == 200:
            seen.update(m["data"] for m in reply.body["messages"])
        elif reply.status == 500:
            seen.add(reply.body["error"])
        return len(seen) == 2

    wait_until(done)
    assert seen == {"two", names(DAMAGED, queue="one")}
    damage(db, "key_id is not null")
    reply = wait_until(lambda: [r for r in [cell.get(
        "/api/v1/pop?namespace=n&autoAck=true&consumerGroup=g")]
        if r.status == 200])[0]
    assert [m["data"] for m in reply.body["messages"]] == ["one"]


@keyed
def test_many_at_once_take_each_message_once(cell):
    """autoAck and leases, sealed and clear, drawn from at the same time."""
    flag(cell, "sealed")
    n, got, lock = 400, {}, threading.Lock()
    want = {(q, g): list(range(n)) for q in ("sealed", "clear") for g in "ab"}

    def pusher(queue):
        for i in range(0, n, 8):
            items = [{"queue": queue, "partition": "p%d" % (j % 13),
                      "payload": j} for j in range(i, i + 8)]
            assert set(statuses(cell.post("/api/v1/push", {
                "items": items}).body)) == {"queued"}

    def popper(i):
        queue, group = ("sealed", "clear")[i & 1], "ab"[i >> 1 & 1]
        key = (queue, group)
        while len(got.get(key, ())) < n:
            ms = cell.pop(queue, group=group, autoAck=group == "a", batch=20,
                          partitions=3, wait=True, wait_ms=300,
                          subscriptionMode="all")
            with lock:
                got.setdefault(key, []).extend(m["data"] for m in ms)
            if ms and group == "b":
                assert all(r["success"] for r in cell.ack(ms, group=group))

    threads = [threading.Thread(target=pusher, args=(q,))
               for q in ("sealed", "clear")]
    threads += [threading.Thread(target=popper, args=(i,)) for i in range(12)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(60)
        assert not t.is_alive()
    assert {k: sorted(v) for k, v in got.items()} == want


@pytest.mark.parametrize("sealed", [False, True])
def test_only_sealed_queues_pay_for_it(new_cell, db, sealed):
    """What the server's log shows before the call on its connection."""
    db.server.admin("alter database %s set log_statement = 'all'" % db.name)
    cell = new_cell(QUEEN_ENCRYPTION_KEY=K1).start()
    if sealed:
        flag(cell, "q")
    cell.push("q", [1])
    assert [m["data"] for m in popped(cell, autoAck=True)] == [1]
    before, found = {}, []
    with open(db.server.log, errors="replace") as f:
        for line in f:
            if " %s LOG:  execute" % db.name not in line:
                continue
            pid = re.search(r"\[(\d+)\]", line).group(1)
            if "queen.pop_v2" in line:
                found.append(before.get(pid, "").rstrip().endswith(": begin"))
            before[pid] = line
    assert found and set(found) == {sealed}


# What the operator sees

@keyed
def test_long_names_are_named_whole(cell, db):
    queue, part = "q" * 700, "ä" * 500
    flag(cell, queue)
    cell.push(queue, [PAYLOAD], partition=part)
    damage(db)
    assert faulty(cell, "queue/" + queue) == names(
        DAMAGED, part=part, queue=queue)


def doctor(folder, db):
    return Ctl(folder).json("doctor", "--conninfo", db.conninfo(),
                            code=1)["findings"]


def test_status_and_doctor_name_a_key_that_is_missing(new_cell, db, folder):
    a = new_cell(QUEEN_ENCRYPTION_KEY=K1).start()
    b = new_cell(QUEEN_SERVER_ID="b").start()
    flag(a, "q")
    a.push("q", [PAYLOAD], partition="p")
    assert b.get("/api/v1/status").body["blocked"] == []
    assert b.pop("q", wait=True, wait_ms=500) == []
    row, = wait_until(lambda: b.get("/api/v1/status").body["blocked"])
    assert row.pop("seenAt").endswith("Z")
    assert row == {"queue": "q", "partition": "p", "offset": 0,
                   "keyId": key_id(K1), "reason": "no_key", "hostname": "b"}
    assert b.get("/api/v1/status?queue=x").body["blocked"] == []
    found = doctor(folder, db)
    assert {"level": "ERROR",
            "what": "queue q, partition p: the message at offset 0 is sealed"
            " with key id %d, which a queend does not have; consumers do not"
            " get past it" % key_id(K1),
            "fix": "name that key in QUEEN_ENCRYPTION_OLD_KEYS of every"
            " queend, or step over it: queenctl partition seek q p --cg GROUP"
            " --to offset:1"} in found
    m, = popped(a)
    assert len(b.get("/api/v1/status").body["blocked"]) == 1
    a.ack([m])
    wait_until(lambda: b.get("/api/v1/status").body["blocked"] == [])


@keyed
def test_status_and_doctor_name_what_is_damaged(cell, db, folder):
    flag(cell, "q")
    cell.push("q", [PAYLOAD])
    damage(db)
    faulty(cell, "queue/q?autoAck=true")
    row, = wait_until(lambda: cell.get("/api/v1/status").body["blocked"])
    assert (row["queue"], row["partition"], row["offset"], row["keyId"],
            row["reason"]) == ("q", "Default", 0, key_id(K1), "damaged")
    found, = [f for f in doctor(folder, db) if "sealed" in f["what"]]
    assert found["level"] == "ERROR"
    assert "but does not open with it" in found["what"]
    assert found["fix"].startswith("restore it from a backup, or step over")
    # the way out that it names
    reply = cell.post("/api/v1/consumer-groups/__QUEUE_MODE__/queues/q"
                      "/partitions/Default/seek", {"offset": 1})
    assert reply.status == 200, reply
    cell.push("q", [2])
    assert [m["data"] for m in popped(cell)] == [2]
    assert wait_until(lambda: cell.get("/api/v1/status").body["blocked"] == [])
    assert [f for f in doctor(folder, db) if "sealed" in f["what"]] == []

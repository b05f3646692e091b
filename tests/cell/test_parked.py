# SPDX-License-Identifier: Apache-2.0
"""Parked pops: what wakes them, when they end, what they must not do."""
import threading
import time

import pytest

from popkit import Popper, parked, wait_parked
from queenlib import wait_until


def test_push_wakes_a_parked_pop_at_once(cell):
    cell.pop("q")
    p = Popper(cell, "q")
    wait_parked(cell, 1)
    start = time.monotonic()
    cell.push("q", [1])
    assert p.result() == [1]
    assert time.monotonic() - start < 2


def test_timeout_answers_204_at_the_deadline(cell):
    start = time.monotonic()
    assert cell.pop("q", wait=True, wait_ms=600) == []
    assert 0.55 <= time.monotonic() - start < 3
    assert cell.pop("q", wait=True, wait_ms=0) == []


def test_one_push_serves_one_of_many(cell):
    cell.pop("q")
    pops = [Popper(cell, "q", wait_ms=4000) for _ in range(5)]
    wait_parked(cell, 5)
    cell.push("q", [1])
    wait_until(lambda: sum(not p.is_alive() for p in pops) >= 1)
    assert sorted(sum((p.result() for p in pops), [])) == [1]


def test_pushes_to_many_partitions_serve_many(cell):
    cell.pop("q")
    pops = [Popper(cell, "q") for _ in range(8)]
    wait_parked(cell, 8)
    cell.post("/api/v1/push", {"items": [
        {"queue": "q", "partition": "p%d" % i, "payload": i}
        for i in range(8)]})
    assert sorted(sum((p.result() for p in pops), [])) == list(range(8))


def test_pinned_pop_waits_for_its_partition_only(cell):
    cell.push("q", [0], partition="mine")
    cell.pop("q", partition="mine", autoAck=True)
    p = Popper(cell, "q", partition="mine")
    wait_parked(cell, 1)
    cell.push("q", [1], partition="other")
    cell.push("q", [2], partition="mine")
    assert p.result() == [2]


def test_pinned_pop_waits_for_a_name_that_does_not_exist(cell, db):
    a = Popper(cell, "later", partition="p")
    cell.push("there", [0], partition="x")
    b = Popper(cell, "there", partition="p")
    wait_parked(cell, 2)
    assert db.value("select count(*) from queen.queues") == 1
    cell.push("there", [2], partition="other")
    cell.push("there", [3], partition="p")
    cell.push("later", [4], partition="p")
    assert b.result() == [3]
    assert a.result() == [4]


def test_new_group_parked_by_name_misses_nothing(cell):
    """It subscribed before the queue was there."""
    p = Popper(cell, "later", group="g", partition="p")
    wait_parked(cell, 1)
    cell.push("later", [1, 2], partition="p")
    assert p.result() == [1, 2]


def test_nack_wakes_a_parked_pop(cell):
    cell.push("q", [1])
    got = cell.pop("q")
    p = Popper(cell, "q")
    wait_parked(cell, 1)
    cell.ack(got, status="retry")
    assert p.result() == [1]
    assert p.got[0]["deliveryAttempt"] == 2


def test_ack_with_more_behind_wakes_a_parked_pop(cell):
    cell.push("q", [1, 2])
    got = cell.pop("q", batch=1)
    p = Popper(cell, "q")
    wait_parked(cell, 1)
    cell.ack(got)
    assert p.result() == [2]


def test_lease_that_expires_wakes_a_parked_pop(cell):
    cell.push("q", [1])
    assert len(cell.pop("q", leaseSeconds=1)) == 1
    p = Popper(cell, "q")
    assert p.result() == [1]
    assert 0.5 < p.took < 5


def test_message_behind_a_lease_waits_for_it(cell):
    cell.push("q", [1])
    got = cell.pop("q")
    p = Popper(cell, "q")
    wait_parked(cell, 1)
    cell.push("q", [2])
    time.sleep(0.3)
    assert p.is_alive()
    cell.ack(got)
    assert p.result() == [2]


def test_seek_back_wakes_a_parked_pop(cell):
    cell.push("q", [1, 2], partition="p")
    cell.ack(cell.pop("q", group="g", subscriptionMode="all"), group="g")
    p = Popper(cell, "q", group="g")
    wait_parked(cell, 1)
    reply = cell.post("/api/v1/consumer-groups/g/queues/q/seek",
                      {"timestamp": "2020-01-01T00:00:00Z"})
    assert reply.status == 200, reply
    assert p.result() == [1, 2]


def test_partition_seek_wakes_a_parked_pop(cell):
    cell.push("q", [1, 2], partition="p")
    cell.ack(cell.pop("q", group="g", subscriptionMode="all"), group="g")
    p = Popper(cell, "q", group="g")
    wait_parked(cell, 1)
    reply = cell.post(
        "/api/v1/consumer-groups/g/queues/q/partitions/p/seek",
        {"timestamp": "2020-01-01T00:00:00Z"})
    assert reply.status == 200, reply
    assert p.result() == [1, 2]


def test_discovery_pop_wakes_for_any_matching_queue(cell):
    cell.push("ns.a", [0])
    found = {}

    def run():
        found["r"] = cell.get("/api/v1/pop?namespace=ns&consumerGroup=g"
                              "&wait=true&timeout=15000", timeout=60)

    t = threading.Thread(target=run)
    t.start()
    wait_parked(cell, 1)
    cell.push("zz.b", [1])
    cell.push("ns.a", [2])
    t.join()
    assert found["r"].status == 200
    assert [m["data"] for m in found["r"].body["messages"]] == [2]


def test_discovery_pop_sees_a_queue_that_came_later(cell):
    found = {}

    def run():
        found["r"] = cell.get("/api/v1/pop?task=t&consumerGroup=g"
                              "&wait=true&timeout=15000", timeout=60)

    t = threading.Thread(target=run)
    t.start()
    wait_parked(cell, 1)
    cell.push("ns.t", ["first"])
    t.join()
    assert found["r"].status == 200
    assert [m["data"] for m in found["r"].body["messages"]] == ["first"]


def test_queue_deleted_under_a_parked_pop(cell):
    cell.pop("q", group="g")
    p = Popper(cell, "q", group="g")
    wait_parked(cell, 1)
    cell.delete("/api/v1/resources/queues/q")
    cell.push("q", ["new"])
    assert p.result() == ["new"]


def test_group_deleted_under_a_parked_pop_loses_nothing(cell):
    cell.push("q", [0])
    cell.pop("q", group="g")
    p = Popper(cell, "q", group="g")
    wait_parked(cell, 1)
    assert cell.delete("/api/v1/consumer-groups/g").status == 200
    cell.push("q", [1])
    assert 1 in p.result()


def test_pop_maintenance_ends_parked_pops(cell):
    p = Popper(cell, "q")
    wait_parked(cell, 1)
    cell.post("/api/v1/system/maintenance/pop", {"enabled": True})
    assert p.result() == []
    assert p.took < 10


def test_drain_answers_parked_pops_204(cell):
    pops = [Popper(cell, "q"), Popper(cell, "nope", partition="p")]
    wait_parked(cell, 2)
    assert cell.term() == 0
    for p in pops:
        assert p.result() == []
        assert p.took < 14


def test_notify_route_finds_what_nobody_announced(cell, db):
    cell.push("q", [1], partition="p")
    got = cell.pop("q")
    cell.ack(got)
    p = Popper(cell, "q")
    wait_parked(cell, 1)
    db.rows("update queen.consumers set committed = -1")
    reply = cell.post("/internal/api/notify", {"queue": "q"})
    assert (reply.status, reply.body) == (200, {"status": "ok"})
    assert p.result() == [1]


def test_repair_note_alone_wakes_a_parked_pop(cell, db):
    """Somebody else's SQL moved the cursor; no hint was sent."""
    cell.push("q", [1], partition="p")
    cell.ack(cell.pop("q", group="g", subscriptionMode="all"), group="g")
    p = Popper(cell, "q", group="g")
    wait_parked(cell, 1)
    assert db.value(
        "select verdict from queen.partition_seek_v1("
        "'00000000-0000-0000-0000-000000000001', 'g', 'q', 'p',"
        " 'timestamp', '2020-01-01', null)") == 0
    assert p.result() == [1]
    assert p.took < 8


def test_change_scan_finds_a_write_without_a_hint(cell, db):
    """A writer that died between its commit and its hint."""
    cell.push("q", [1], partition="p")
    cell.ack(cell.pop("q"))
    time.sleep(1.2)     # so that last_write_at may move
    p = Popper(cell, "q")
    wait_parked(cell, 1)
    db.rows("with s as (insert into queen.segments select partition_id,"
            " end_offset + 1, end_offset + 1, clock_timestamp(), raw_bytes,"
            " key_id, blob from queen.segments returning partition_id,"
            " base_offset, created_at), i as (insert into queen.segment_ids"
            " select partition_id, base_offset, base_offset, created_at,"
            " '\\x000102030405060708090a0b0c0d0e0f' from s)"
            " update queen.partition_heads h set last_write_at ="
            " clock_timestamp() from s where h.id = s.partition_id")
    assert p.result() == [1]
    assert p.took < 6


def test_min_pop_wait_holds_an_underfull_batch(cell):
    cell.post("/api/v1/configure",
              {"queue": "q", "options": {"minPopWaitTime": 800}})
    cell.push("q", [1], partition="a")
    start = time.monotonic()
    assert [m["data"] for m in cell.pop("q", wait=True, batch=10,
                                        autoAck=True)] == [1]
    assert 0.7 < time.monotonic() - start < 4
    # not without wait, not for one message, not past the timeout
    cell.push("q", [2], partition="a")
    start = time.monotonic()
    assert [m["data"] for m in cell.pop("q", autoAck=True)] == [2]
    cell.push("q", [3], partition="a")
    assert [m["data"] for m in cell.pop("q", wait=True, batch=1,
                                        autoAck=True)] == [3]
    cell.push("q", [4], partition="a")
    assert [m["data"] for m in cell.pop("q", wait=True, wait_ms=100,
                                        batch=5, autoAck=True)] == [4]
    assert time.monotonic() - start < 0.75 * 3


def test_min_pop_wait_collects_what_comes_meanwhile(cell):
    cell.post("/api/v1/configure",
              {"queue": "q", "options": {"minPopWaitTime": 1500}})
    cell.pop("q")
    p = Popper(cell, "q", batch=10)
    wait_parked(cell, 1)
    for i in range(3):
        cell.push("q", [i])
    assert p.result() == [0, 1, 2]


def test_min_pop_wait_ends_when_the_batch_is_full(cell):
    cell.post("/api/v1/configure",
              {"queue": "q", "options": {"minPopWaitTime": 20000}})
    cell.pop("q")
    p = Popper(cell, "q", batch=2, partitions=5)
    wait_parked(cell, 1)
    cell.push("q", [1], partition="a")
    cell.push("q", [2], partition="b")
    assert sorted(p.result()) == [1, 2]
    assert p.took < 12


@pytest.mark.parametrize("auto", [False, True])
def test_vanished_client_gets_nothing_claimed(cell, db, auto):
    cell.pop("q")
    conns = []
    for _ in range(3):
        c = cell.http()
        c.request("GET", "/api/v1/pop/queue/q?wait=true&timeout=60000"
                  "&autoAck=%s" % str(auto).lower())
        conns.append(c)
    wait_parked(cell, 3)
    for c in conns:
        c.sock.close()
        c.close()
    wait_parked(cell, 0)
    cell.push("q", [1])
    assert [m["data"] for m in cell.pop("q")] == [1]
    assert db.value("select count(*) from queen.consumers"
                    " where batch_end is null") == 0


@pytest.mark.amount
def test_parked_pops_do_not_query(cell, db):
    """What an idle cell asks does not depend on who waits."""
    def calls():
        start = db.value("select xact_commit from pg_stat_database"
                         " where datname = current_database()")
        time.sleep(4)
        return db.value("select xact_commit from pg_stat_database"
                        " where datname = current_database()") - start

    for i in range(20):
        cell.pop("q%d" % i)
    calls()
    idle = calls()
    pops = [Popper(cell, "q%d" % (i % 20), wait_ms=14000)
            for i in range(60)]
    wait_parked(cell, 60)
    calls()     # what the look at the metrics asked is over then
    assert calls() < idle + 15
    for p in pops:
        assert p.result() == []


def test_a_parked_pop_by_label_outlives_thousands_of_other_labels(cell):
    """Labels cost the client nothing; queend keeps 4096 of them at most."""
    found = {}

    def pop():
        found["r"] = cell.get("/api/v1/pop?namespace=mine&consumerGroup=g"
                              "&subscriptionMode=all&wait=true&timeout=120000",
                              timeout=150)

    waiter = threading.Thread(target=pop)
    waiter.start()
    wait_parked(cell, 1)
    conn = cell.http()
    for i in range(4200):
        reply = cell.get("/api/v1/pop?namespace=other-%d" % i, conn=conn)
        assert reply.status == 204
    conn.close()
    assert parked(cell) == 1
    assert cell.post("/api/v1/configure", {
        "queue": "q", "namespace": "mine"}).status in (200, 201)
    cell.push("q", [1])
    waiter.join(60)
    assert [m["data"] for m in found["r"].body["messages"]] == [1]

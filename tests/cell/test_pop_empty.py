# SPDX-License-Identifier: Apache-2.0
"""A pop that does not wait says "empty" by the word of the database: not by
what was leased, locked or out of reach a moment ago."""
import threading

import pytest

from loadkit import together
from popkit import no_hints
from queenlib import metric, wait_until

API = "/api/v1"


def by_queue(cell):
    return cell.pop("q", batch=1)


def by_partition(cell):
    return cell.pop("q", batch=1, partition="p")


def by_label(cell):
    reply = cell.get(API + "/pop?namespace=ns&batch=1")
    assert reply.status in (200, 204), reply
    return reply.body["messages"] if reply.status == 200 else []


@pytest.fixture(params=[by_queue, by_partition, by_label])
def pop(request):
    return request.param


def fill(cell, *payloads, partition="p"):
    reply = cell.post(API + "/configure", {"queue": "q", "namespace": "ns"})
    assert reply.status == 200, reply
    cell.push("q", payloads, partition=partition)


def data(messages):
    return [m["data"] for m in messages]


def test_what_was_locked_by_another_claim(cell, db, pop):
    fill(cell, 1, 2)
    assert cell.ack(pop(cell))[0]["success"]
    other = db.connect(autocommit=False)
    with other.cursor() as cur:
        cur.execute("select from queen.consumers for update")
    assert pop(cell) == []
    other.rollback()
    assert data(pop(cell)) == [2]


def test_what_another_claim_was_about_to_create(cell, db, pop):
    fill(cell, 1)
    assert cell.pop("q", partition="none") == []      # the group is there
    other = db.connect(autocommit=False)
    with other.cursor() as cur:
        cur.execute("select pg_advisory_xact_lock(hashint8extended(h.id, g.id))"
                    " from queen.partition_heads h, queen.groups g")
    assert pop(cell) == []
    other.rollback()
    assert data(pop(cell)) == [1]


@pytest.mark.parametrize("status,left", [("completed", [2]), ("retry", [1])])
def test_a_lease_that_ended_elsewhere(pair, db, pop, status, left):
    a, b = pair
    fill(a, 1, 2)
    got = a.pop("q", batch=1, leaseSeconds=300)
    assert data(got) == [1]
    # that it is leased is met here, not heard of
    assert wait_until(lambda: pop(b) == [])
    with no_hints(db):
        assert a.ack(got, status=status)[0]["success"]
        assert data(pop(b)) == left


def test_a_lease_of_ours_that_ended_elsewhere(pair, db, pop):
    a, b = pair
    fill(a, 1, 2)
    got = pop(a)
    assert data(got) == [1] and pop(a) == []
    with no_hints(db):
        assert b.ack(got)[0]["success"]
        assert data(pop(a)) == [2]


def test_a_claim_that_failed(cell, db, pop):
    fill(cell, 1, 2)
    assert cell.ack(pop(cell))[0]["success"]
    other = db.connect(autocommit=False)
    with other.cursor() as cur:
        cur.execute("lock table queen.consumers in access exclusive mode")
    failed = []
    thread = threading.Thread(target=lambda: failed.append(
        cell.get(API + "/pop/queue/q")))
    thread.start()
    wait_until(lambda: db.value(
        "select count(pg_cancel_backend(pid)) from pg_stat_activity"
        " where wait_event_type = 'Lock' and query like '%%pop_v2%%'"
        " and datname = current_database()"))
    thread.join(60)
    assert failed[0].status == 500, failed
    other.rollback()
    assert data(pop(cell)) == [2]


def test_what_is_leased_costs_a_pop_few_looks(cell):
    """And one that waits none."""
    n = 300
    cell.post(API + "/push", {"items": [
        {"queue": "q", "partition": "p%d" % i, "payload": i}
        for i in range(n)]})
    got = []
    while len(got) < n:
        some = cell.pop("q", batch=1000, partitions=0, leaseSeconds=300)
        assert some
        got += data(some)
    assert sorted(got) == list(range(n))

    def looked(**kw):
        before = metric(cell, "queen_pop_candidates_total")
        assert cell.pop("q", **kw) == []
        return metric(cell, "queen_pop_candidates_total") - before

    assert 0 < looked() <= 64
    assert looked(wait=True, wait_ms=300) == 0


def test_one_after_many_leaves_nothing(cells):
    """Pops beside each other may find nothing; one alone finds all."""
    three = cells(3)
    for turn in range(10):
        queue = "q%d" % turn
        three[0].post(API + "/push", {"items": [
            {"queue": queue, "partition": "p%d" % (i % 8), "payload": i}
            for i in range(96)]})
        got = []

        def drain(cell):
            while True:
                some = cell.pop(queue, batch=5, partitions=2)
                if not some:
                    return
                got.extend(data(some))
                assert all(a["success"] for a in cell.ack(some))

        together(6, lambda i: drain(three[i % 3]))
        drain(three[turn % 3])
        assert sorted(got) == list(range(96))

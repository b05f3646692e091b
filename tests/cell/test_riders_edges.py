# SPDX-License-Identifier: Apache-2.0
"""
Transactions with riders where it matters what was not done: sealed queues,
answers that are missing, names that a rollback leaves.
"""
import re

import pytest

from queenlib import wait_until
from riderkit import (absent, cancel, get, get_many, incr, put, queues,
                      rejected, schedule, timers, untouched, values)
from test_encryption import (K1, PAYLOAD, WORD, assert_not_in_the_database,
                             flag, key_id, key_ids, keyed)
from test_riders_limits import granted
from test_tenancy import ON as TENANTS
from test_tenancy import A, B
from test_transaction import TXN, ack, committed, count, fill, pop, push, txn

RIDERS = {"kv": [put("a")], "timers": [schedule()]}


@pytest.fixture
def ready(cell, db):
    """One message in hand, one key, and nothing else."""
    fill(cell, 1)
    txn(cell, kv=[put("old")])
    return pop(cell)[0]


# Sealed queues

def sealed_timer(key="s", delay_ms=0):
    return schedule(key, delay_ms, "q",
                    payload=b'{"note":"%s"}' % WORD.encode())


@keyed
def test_what_goes_to_a_flagged_queue_is_sealed(cell, db, ready):
    flag(cell, "q")
    body = txn(cell, ack(ready), push("q", "m", PAYLOAD), push(),
               kv=[put("a")], timers=[sealed_timer(), schedule()])
    assert body["success"] is True, body
    got = []
    while len(got) < 2:
        got += pop(cell, "q", wait=True, autoAck=True)
    assert {m["transactionId"]: m["data"] for m in got} == {
        "m": PAYLOAD, "x-s": {"note": WORD}}
    assert (key_ids(db), key_ids(db, "out")) == ([key_id(K1)] * 2, [None])
    assert_not_in_the_database(db, WORD)


@keyed
def test_a_pending_timer_is_sealed_too(cell, db, ready):
    flag(cell, "q")
    txn(cell, ack(ready), timers=[sealed_timer(delay_ms=10 ** 6)])
    assert db.value("select key_id from queen.timers") == key_id(K1)
    assert_not_in_the_database(db, WORD)


def test_without_a_key_all_of_it_is_refused(cell, db, ready):
    flag(cell, "q")
    for ops, riders, error in (
            ([push("q")], RIDERS, 'queue "q" takes only encrypted messages; '
             "transaction rolled back"),
            ([push()], {"kv": [put("a")],
                        "timers": [schedule(), sealed_timer()]},
             "encryption_required: operation 1: the queue wants sealed "
             "payloads and there is no key")):
        reply = cell.post(TXN, {"operations": [ack(ready)] + ops, **riders})
        rejected(reply, 200, "encryption_required", error)
        untouched(db)
    # a cancel carries nothing to seal
    assert txn(cell, push(), ack(ready), kv=[put("a")],
               timers=[cancel("s", "q")])["success"] is True


def flag_unseen(db, queue):
    db.rows("update queen.queues set encryption_enabled = true"
            " where name = %s returning 1", (queue,))


@pytest.mark.parametrize("op, riders", [
    ([push("q", payload=WORD)], RIDERS),
    ([push()], {"kv": [put("a")], "timers": [sealed_timer(delay_ms=10 ** 6)]}),
    ([push("q")], {"timers": [sealed_timer(delay_ms=10 ** 6)]})])
def test_a_flag_set_behind_our_back(new_cell, db, op, riders):
    """Without a key: refused whole.  With it: sealed and sent again."""
    for env, good in (({}, False), ({"QUEEN_ENCRYPTION_KEY": K1}, True)):
        db.rows("update queen.queues set encryption_enabled = false"
                " where name = 'q' returning 1")
        cell = new_cell(**env).start()
        cell.push("q", [0])
        flag_unseen(db, "q")
        body = cell.post(TXN, {"operations": op, **riders}).body
        if good:
            assert body["success"] is True, body
        else:
            assert body["reason"] == "encryption_required", body
            assert body["results"] == []
            assert (values(db), timers(db), count(db), count(db, "q")) == (
                {}, [], 0, 1)
        cell.term()
    assert [k for k in key_ids(db) if k is not None] == (
        [key_id(K1)] if op[0]["queue"] == "q" else [])
    assert set(db.rows("select key_id from queen.timers where queue = 'q'")
               ) <= {(key_id(K1),)}
    assert_not_in_the_database(db, WORD)


# Answers that are missing

def lose_answers(db, function, but):
    """The function gives only rows that are `but` any more."""
    args, result, n = db.row(
        "select pg_get_function_arguments(oid),"
        " pg_get_function_result(oid), pronargs from pg_proc"
        " where oid = ('queen.' || %s)::regproc", (function,))
    db.psql("-c", "alter function queen.%s rename to whole_bundle" % function,
            "-c", "create function queen.%s(%s) returns %s language sql"
            " volatile as 'select * from queen.whole_bundle(%s) r"
            " where %s'" % (
                function, args, result,
                ", ".join("$%d" % (i + 1) for i in range(n)), but))


KINDS = {"lease": 0, "push": 1, "ack": 2, "kv": 3, "timer": 4}


@pytest.mark.parametrize("kind", KINDS)
def test_a_missing_answer_rolls_back(new_cell, db, kind):
    lose_answers(db, "bundle_riders_v1", "kind <> %d" % KINDS[kind])
    cell = new_cell().start()
    fill(cell, 1)
    assert cell.post("/api/v1/kv", [put("old")]).status == 200
    m = pop(cell)[0]
    reply = cell.post(TXN, {
        "operations": [push(), ack(m)], "requiredLeases": [m["leaseId"]],
        "kv": [put("a"), get("old")], "timers": [schedule(), cancel("x")]})
    rejected(reply, 200, "misaligned",
             "answers are missing; transaction rolled back")
    untouched(db)


def test_a_missing_answer_without_riders_rolls_back(new_cell, db):
    lose_answers(db, "bundle_v1", "kind <> %d" % KINDS["push"])
    cell = new_cell().start()
    reply = cell.post(TXN, {"operations": [push()]})
    rejected(reply, 200, "misaligned",
             "answers are missing; transaction rolled back")
    assert count(db) == 0


def test_a_missing_answer_of_kv_alone_rolls_back(new_cell, db):
    lose_answers(db, "kv_apply_v1", "ord <> 2")
    cell = new_cell().start()
    reply = cell.post(TXN, {"kv": [put("a"), put("b")]})
    rejected(reply, 200, "misaligned",
             "answers are missing; transaction rolled back")
    assert values(db) == {}
    assert txn(cell, kv=[put("a")])["success"] is True


def test_kv_alone_is_answered_as_in_a_bundle(cell, db):
    """It goes another way: the function of rows is called itself."""
    kv = [put("a"), absent("b", required=True), get("a"), get("no"),
          get_many("a", "no"), incr("c", 2)]
    alone = txn(cell, kv=kv)["results"]
    db.rows("delete from queen.kv returning 1")
    more = txn(cell, kv=kv, timers=[cancel()])["results"][:-1]
    for r in alone + more:
        for row in [r] + r.get("rows", []):
            for name in "version", "updatedAt":
                assert row.pop(name, None) != 0
    assert [list(r) for r in alone] == [list(r) for r in more]
    assert alone == more and len(alone) == 6
    body = txn(cell, kv=[put("z"), absent("b", required=True)])
    assert (body["reason"], body["failedIndex"], body["kvReason"],
            body["value"]) == ("kv_precondition", 1, "exists", 1)
    assert values(db) == {"a": 1, "b": 1, "c": 2}
    for op, status, reason in ((put("c", "x" * 65535), 413,
                                "payload_too_large"),
                               (incr("s", 1), 200, "payload_too_large")):
        db.rows("update queen.kv set value = to_jsonb(repeat('9', 65536)"
                "::numeric) where key = 'c' returning 1")
        reply = cell.post(TXN, {"kv": [put("z"), dict(op, key="c")]})
        assert (reply.status, reply.body["reason"]) == (status, reason)
    assert db.rows("select key from queen.kv order by 1") == [
        ("a",), ("b",), ("c",)]


# Names

def partitions(db, queue):
    return [r[0] for r in db.rows(
        "select p.name from queen.partitions p join queen.queues q"
        " on q.id = p.queue_id where q.name = %s order by 1", (queue,))]


def test_a_rollback_leaves_the_names_and_nothing_in_them(cell, db, ready):
    """Queues and partitions are made before the bundle, in a commit of their
    own; timers make them when they fire."""
    body = txn(cell, push("new", "n", partition="p"), ack(ready),
               kv=[absent("old", required=True)], timers=[schedule()])
    assert body["reason"] == "kv_precondition"
    untouched(db)
    assert queues(db) == ["in", "new"]
    assert (partitions(db, "new"), count(db, "new")) == (["p"], 0)
    # the id it had is not taken
    body = txn(cell, push("new", "n", partition="p"), ack(ready), **RIDERS)
    assert body["success"] is True, body
    assert (count(db, "new"), committed(db), queues(db)) == (
        1, 0, ["in", "new"])


UNSENT = [
    {"kv": 1}, {"kv": [put("x" * 600)]}, {"timers": [schedule(delay_ms="x")]},
    {"timers": [schedule(delay_ms=10 ** 13)]},
    {"requiredLeases": ["no"]},
    {"operations": [push("new"), {"type": "ack", "transactionId": "t",
                                  "partitionId": "no"}]}]


def test_what_is_refused_unsent_leaves_no_name(cell, db):
    for body in UNSENT:
        reply = cell.post(TXN, {"operations": [push("new")], **body})
        assert reply.body["success"] is False, body
        assert queues(db) == []


def test_a_name_is_made_once_by_bundles_that_race(cells, db):
    """Losers look again and wait for nobody."""
    a, b = cells(2)
    conns = [c.http() for c in (a, b)]
    for n in range(20):
        name = "new%d" % n
        for conn in conns:
            conn.request("POST", TXN, body='{"operations":[{"type":"push",'
                         '"queue":"%s","partition":"p","payload":1}],"kv":'
                         '[{"op":"incr","ns":"n","key":"sum","delta":1,'
                         '"forever":true}]}' % name)
        for conn in conns:
            answer = conn.getresponse()
            assert b'"success":true' in answer.read()
        assert (queues(db).count(name), partitions(db, name),
                count(db, name)) == (1, ["p"], 2)
    assert values(db) == {"sum": 40}
    wait_until(lambda: db.value("select count(*) from pg_locks"
                                " where not granted") == 0)


# Locks that do not come

HELD = {"kv": "queen.kv where key = 'old'",
        "timers": "queen.timers where timer_key = 'held'",
        "partition_heads": "queen.partition_heads"}


@pytest.mark.cellenv(QUEEN_STMT_TIMEOUT_MS=700,
                     QUEEN_KV_QUOTA_REFRESH_MS=100,
                     QUEEN_KV_USAGE_EVERY_MS=86400000)
@pytest.mark.parametrize("table", HELD)
def test_a_bundle_that_waits_too_long_is_undone(cell, db, ready, table):
    body = txn(cell, push("out", "first"), timers=[schedule("held")])
    assert body["success"] is True
    granted(cell, max_rows=4)
    conn = db.connect(autocommit=False)
    conn.cursor().execute("select 1 from %s for update" % HELD[table])
    body = {"operations": [push(), ack(ready)],
            "kv": [put("a"), put("old", 2)],
            "timers": [schedule("b"), schedule("held", txn="2")]}
    for _ in range(2):
        reply = cell.post(TXN, body)
        rejected(reply, 200, "db_error",
                 "statement timeout after 700 ms; transaction rolled back")
    conn.rollback()
    assert (values(db), timers(db), count(db), committed(db)) == (
        {"old": 1}, ["held"], 1, -1)
    # nothing of it is held or charged any more
    assert cell.post(TXN, body).body["success"] is True
    assert (values(db), timers(db), count(db), committed(db)) == (
        {"old": 2, "a": 1}, ["b", "held"], 2, 0)


# Tenants

@pytest.mark.cellenv(**TENANTS)
def test_no_bundle_reaches_into_another_tenant(cell, db):
    cell.push("in", [1], partition="p", ids=["t"], headers=A)
    m, = cell.pop("in", subscriptionMode="all", headers=A)

    def bundle(headers):
        return cell.post(TXN, {"operations": [push(), ack(m)], "kv": [
            absent(required=True)], "timers": [schedule()]}, headers=headers)

    reply = bundle(B)
    rejected(reply, 200, "ack_rejected", "QTXN ack failed for partition %s"
             ' group "__QUEUE_MODE__": partition not found; transaction'
             " rolled back" % m["partitionId"])
    reply = cell.post(TXN, {"requiredLeases": [m["leaseId"]], "kv": [put()]},
                      headers=B)
    rejected(reply, 200, "ack_rejected", 'QTXN required lease "%s": invalid or'
             " expired lease; transaction rolled back" % m["leaseId"])
    assert (values(db), timers(db), count(db)) == ({}, [], 0)
    assert bundle(A).body["success"] is True
    # the names are free for the other
    assert cell.post(TXN, {"operations": [push()], "kv": [
        absent(required=True)], "timers": [schedule()]},
        headers=B).body["success"] is True
    for table in "kv", "timers":
        assert {r[0] for r in db.rows("select tenant::text from queen."
                                      + table)} == {
            A["x-queen-tenant"], B["x-queen-tenant"]}


# Metrics

def kv_ops(cell):
    """(op, result) -> how many, of those that are not 0."""
    text = cell.get("/metrics/prometheus").body.decode()
    return {m[:2]: int(m[2]) for m in re.findall(
        r'^queen_kv_ops_total\{op="(\w+)",result="(\w+)"\} ([1-9]\d*)$',
        text, re.M)}


def test_operations_are_counted_by_what_became_of_them(cell, db):
    txn(cell, push(), kv=[put("a"), absent("b"), get("a"), incr("c")])
    txn(cell, kv=[absent("b"), get("no")])
    want = {("put", "applied"): 2, ("get", "applied"): 2,
            ("incr", "applied"): 1, ("put", "rejected"): 1}
    assert kv_ops(cell) == want
    # a lost bundle: none of it was applied
    txn(cell, push(), kv=[put("z"), get("a"), absent("b", required=True)])
    want["put", "rejected"] += 2
    want["get", "rejected"] = 1
    assert kv_ops(cell) == want
    # a fault of the database
    for ops in [push()], []:
        body = txn(cell, *ops, kv=[put("y"), put("big", [1] * 30000)])
        assert body["reason"] == "payload_too_large"
    want["put", "error"] = 4
    assert kv_ops(cell) == want

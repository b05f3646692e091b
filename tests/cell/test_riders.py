# SPDX-License-Identifier: Apache-2.0
"""The `kv` and `timers` of POST /api/v1/transaction: with the rest or not."""
import threading

import pytest

from queenlib import wait_until
from riderkit import (absent, cancel, get_many, put, rejected, schedule,
                      timers, untouched, values)
from test_transaction import TXN, ack, committed, count, fill, pop, push, txn


@pytest.fixture
def ready(cell, db):
    """One message in hand, one key, and nothing else."""
    fill(cell, 1)
    txn(cell, kv=[put("old")])
    return pop(cell)[0]


def test_results_stand_behind_those_of_the_operations(cell, db, ready):
    body = txn(cell, ack(ready), push(txn="p"), kv=[
        absent("c", {"charge": 1}, required=True),
        {"op": "get", "ns": "n", "key": "none"}],
        timers=[schedule(), cancel("no")])
    assert list(body) == ["transactionId", "success", "results"]
    a, b, c, d, e, f = body["results"]
    assert [a["type"], b["type"]] == ["ack", "push"]
    assert list(c)[:3] == ["index", "type", "opIndex"]
    assert c == {"index": 2, "type": "kv", "opIndex": 0, "op": "putIfAbsent",
                 "applied": True, "key": "c", "value": {"charge": 1},
                 "version": c["version"]}
    assert d == {"index": 3, "type": "kv", "opIndex": 1, "op": "get",
                 "found": False, "key": "none"}
    assert e == {"index": 4, "type": "timer", "opIndex": 0,
                 "status": "scheduled", "ok": True, "queue": "later",
                 "timerKey": "t", "txn": "x-t", "messageId": e["messageId"],
                 "deliverAt": e["deliverAt"]}
    assert f == {"index": 5, "type": "timer", "opIndex": 1,
                 "status": "absent", "ok": False, "queue": "later",
                 "timerKey": "no", "txn": None}
    assert values(db) == {"old": 1, "c": {"charge": 1}}
    assert timers(db) == ["t"]
    assert (count(db), committed(db)) == (1, 0)


def test_riders_alone_and_none(cell, db):
    reply = cell.post(TXN, {"kv": [put()]})
    assert (reply.status, reply.body["results"][0]["index"]) == (200, 0)
    reply = cell.post(TXN, {"timers": [schedule()], "kv": None})
    assert reply.body["results"][0]["status"] == "scheduled"
    assert txn(cell, kv=None, timers=None)["results"] == []
    assert txn(cell, kv=[], timers=[])["results"] == []
    assert cell.post(TXN, {"kv": []}).body["results"] == []
    assert cell.post(TXN, {"kv": None}).status == 400
    assert values(db) == {"k": 1} and timers(db) == ["t"]


def test_a_lost_condition_that_is_not_required_commits(cell, db, ready):
    body = txn(cell, ack(ready), push(), kv=[absent("old", 2)])
    assert body["success"] is True
    assert body["results"][2]["applied"] is False
    assert body["results"][2]["reason"] == "exists"
    assert values(db) == {"old": 1}
    assert (count(db), committed(db)) == (1, 0)


def test_a_lost_required_undoes_everything(cell, db, ready):
    body = txn(cell, ack(ready), push(), timers=[schedule()], kv=[
        put("a"), absent("old", 2, required=True)])
    assert list(body) == ["transactionId", "success", "ok", "reason", "error",
                          "failedIndex", "kvReason", "version", "value",
                          "results"]
    version = db.value("select version from queen.kv where key = 'old'")
    del body["transactionId"]
    assert body == {"success": False, "ok": False, "reason":
                    "kv_precondition", "error": "kv_precondition_failed",
                    "failedIndex": 3, "kvReason": "exists",
                    "version": version, "value": 1, "results": []}
    untouched(db)
    assert txn(cell, ack(ready))["success"] is True


def test_a_large_winner_is_not_told(cell):
    txn(cell, kv=[put("big", "x" * 5000)])
    body = txn(cell, kv=[absent("big", 2, required=True)])
    assert list(body) == ["transactionId", "success", "ok", "reason", "error",
                          "results"]


RIDERS = {"kv": [put("a"), put("old", 2)], "timers": [schedule()]}


def test_every_other_rollback_leaves_riders_undone(cell, db, ready):
    cell.push("dups", [1], ids=["d"])
    for ops, reason in (
            ([push(), push("dups", txn="d"), ack(ready)], "duplicate"),
            ([push(), {**ack(ready), "transactionId": "nowhere"}],
             "ack_rejected"),
            ([push(), {**ack(ready), "leaseId": "x"}], "ack_rejected"),
            ([push(), {**ack(ready), "consumerGroup": "no"}],
             "ack_rejected"),
            ([push(), {**ack(ready), "partitionId": "x"}], "ack_rejected")):
        body = txn(cell, *ops, **RIDERS)
        assert (body["success"], body["reason"]) == (False, reason), body
        untouched(db)
    assert txn(cell, push(), ack(ready), **RIDERS)["success"] is True
    assert values(db) == {"old": 2, "a": 1}
    assert (timers(db), count(db), committed(db)) == (["t"], 1, 0)


def but(made, **fields):
    """An operation with other fields; None takes one away."""
    return {k: v for k, v in dict(made, **fields).items() if v is not None}


NO_TRANSACTION = [
    ({"kv": 3}, "bad body: kv must be an array"),
    ({"kv": {}}, "bad body: kv must be an array"),
    ({"timers": "x"}, "bad body: timers must be an array"),
    ({"requiredLeases": 3, "kv": [put()]},
     "bad body: requiredLeases must be an array"),
    ({"operations": {}, "kv": [put()]},
     "bad body: operations must be an array"),
    ({"operations": [{"type": "kv"}]},
     'bad body: operations[0].type must be "push" or "ack", not "kv"')]


def test_bodies_that_are_no_transaction(cell, db, ready):
    for more, error in NO_TRANSACTION:
        reply = cell.post(TXN, {"operations": [push(), ack(ready)], **more})
        rejected(reply, 400, "bad_request", error)
        untouched(db)


KV_FAULTS = [
    (1, "kv_bad_request: operation 1: must be an object"),
    (put(), "kv_duplicate_key_in_call: operation 1 writes a key that an"
     " earlier one writes"),
    (but(put("a"), tenant="x"),
     "kv_tenant_not_an_input: operation 1: the tenant is that of the request"),
    (but(put("a"), forever=None), "kv_expiry_not_specified: operation 1: give"
     " either ttlSeconds or forever:true"),
    (but(put("a"), ttlSeconds=5), "kv_expiry_not_specified: operation 1: give"
     " either ttlSeconds or forever:true"),
    (put("a", ttlSeconds=0), "kv_bad_ttl: operation 1: ttlSeconds must be an"
     " integer from 1 to 3153600000"),
    (put("a", expect="1"), "kv_bad_expect: operation 1: expect must be an"
     " integer from 0 up"),
    (absent("a", expect=3), "kv_bad_expect: operation 1: expect must be 0 or"
     " absent"),
    (put("a", required=1), "kv_bad_request: operation 1: required must be"
     " true or false"),
    (put("a", ns="A"), "kv_bad_namespace: operation 1: ns must match"
     " [a-z0-9][a-z0-9._-]{0,63}"),
    (put(""), "kv_bad_key: operation 1: key must be a string that is not"
     " empty, without NUL"),
    (put("a", op="check"), "kv_unknown_op: operation 1: op must be get,"
     " getMany, getPrefix, put, putIfAbsent, delete or incr"),
    ({"op": "getPrefix", "ns": "n", "prefix": "a"},
     "kv_get_prefix_not_allowed_in_transaction: operation 1: getPrefix is not"
     " for transactions")]


def test_kv_of_a_wrong_shape(cell, db, ready):
    for op, error in KV_FAULTS:
        reply = cell.post(TXN, {"operations": [push(), ack(ready)],
                                "kv": [put(), op], "timers": [schedule()]})
        rejected(reply, 400, "bad_request", error)
        untouched(db)


TIMER_FAULTS = [
    (1, "timers_bad_body: operation 1: it must be an object"),
    (but(schedule(), op="fire"), "timers_bad_op: operation 1: op must be"
     " schedule, reschedule or cancel"),
    (but(schedule(), queue=None), "timers_queue_required: operation 1: queue"
     " must be a string of 1 to 512 bytes without control characters"),
    (but(schedule(), timerKey=None), "timers_key_required: operation 1:"
     " timerKey must be a string of 1 to 512 bytes without control"
     " characters"),
    (but(schedule(), delayMs=None), "timers_delay_required: operation 1:"
     " delayMs must be a number"),
    (but(schedule(), txn=None), "timers_txn_required: operation 1: txn must"
     " be a string of 1 to 1024 bytes without control characters"),
    (but(schedule(), payload=None), "timers_payload_required: operation 1:"
     " payload must be a base64 string"),
    (but(schedule(), payload="!"), "timers_payload_not_base64: operation 1:"
     " payload must be standard base64 with padding"),
    (schedule(encrypted=True), "timers_encrypted_conflict: operation 1:"
     " payloads are sealed by the broker, where the queue wants it"),
    (schedule(producerSub="x"), "timers_server_owned_field: operation 1: it"
     " holds a field that only the server sets"),
    (schedule(_messageId="x"), "timers_server_owned_field: operation 1: it"
     " holds a field that only the server sets"),
    (schedule(delaySeconds=1), "timers_server_owned_field: operation 1: it"
     " holds a field that only the server sets"),
    (cancel("a"), "timers_duplicate_key_in_call: one timer is named twice")]


def test_timers_of_a_wrong_shape(cell, db, ready):
    for op, error in TIMER_FAULTS:
        reply = cell.post(TXN, {"operations": [push(), ack(ready)],
                                "kv": [put()], "timers": [schedule("a"), op]})
        rejected(reply, 400, "bad_request", error)
        untouched(db)


def test_edge_refusals_in_the_envelope(cell, db, ready):
    for more, error in (
            ({"kv": [put(str(i)) for i in range(65)]},
             "kv_too_many_ops: 65 operations in one call, at most 64"),
            ({"kv": [get_many(*map(str, range(257)))]},
             "kv_too_many_keys: 257 keys in one call, at most 256"),
            ({"kv": [put("a"), get_many(*map(str, range(256)))]},
             "kv_too_many_keys: 257 keys in one call, at most 256"),
            ({"timers": [schedule(str(i)) for i in range(257)]},
             "timers_too_many_ops: a call has at most 256 operations")):
        reply = cell.post(TXN, {"operations": [push(), ack(ready)], **more})
        rejected(reply, 400, "bad_request", error)
        untouched(db)


def test_as_many_as_may_be(cell, db):
    kv = [put("k%d" % i) for i in range(63)]
    kv.append(get_many(*["k%d" % i for i in range(193)]))
    timers_ = [schedule("%03d" % i) for i in range(256)]
    body = txn(cell, *[push(partition=str(i), payload=i) for i in range(100)],
               kv=kv, timers=timers_)
    assert [r["index"] for r in body["results"]] == list(range(420))
    assert [len(body["results"][163][n]) for n in ("rows", "missing")] == [
        63, 130]
    assert (len(values(db)), count(db)) == (63, 100)
    assert timers(db) == ["%03d" % i for i in range(256)]


def test_timers_in_a_bundle_that_is_lost(cell, db, ready):
    """Neither scheduled, replaced nor cancelled."""
    txn(cell, timers=[schedule("a", txn="1"), schedule("b", txn="1")])
    before = db.rows("select * from queen.timers order by timer_key")
    changes = [cancel("a"), schedule("b", 0, txn="2"), schedule("c", 0)]
    body = txn(cell, push(), ack(ready), timers=changes,
               kv=[absent("old", required=True)])
    assert body["reason"] == "kv_precondition"
    assert db.rows("select * from queen.timers order by timer_key") == before
    assert (count(db), committed(db), count(db, "later")) == (0, -1, 0)
    body = txn(cell, push(), ack(ready), timers=changes)
    assert [r.get("status") for r in body["results"]] == [
        None, None, "cancelled", "rescheduled", "scheduled"]
    assert {m["transactionId"] for m in pop(cell, "later", wait=True)} | {
        m["transactionId"] for m in cell.pop("later")} <= {"2", "x-c"}
    wait_until(lambda: count(db, "later") == 2)
    assert timers(db) == []


def test_an_absent_cancel_commits(cell, db, ready):
    body = txn(cell, push(), ack(ready), timers=[cancel("none")])
    assert body["success"] is True
    assert body["results"][2] == {
        "index": 2, "type": "timer", "opIndex": 0, "status": "absent",
        "ok": False, "queue": "later", "timerKey": "none", "txn": None}
    assert (count(db), committed(db)) == (1, 0)


def test_a_timer_of_a_bundle_fires_soon(cell):
    txn(cell, kv=[put()], timers=[schedule(delay_ms=50)])
    assert pop(cell, "later")[0]["transactionId"] == "x-t"


@pytest.mark.parametrize("whom", ["queend", "backend"])
def test_killed_at_any_moment_all_or_nothing(cell, db, whom):
    for n in range(6):
        stop = threading.Event()

        def run(who):
            for i in range(1000):
                if stop.is_set():
                    return
                mark = "%d-%d-%d" % (n, who, i)
                try:
                    cell.post(TXN, {"operations": [push(txn=mark)],
                                    "kv": [put(mark)],
                                    "timers": [schedule(mark)]})
                except OSError:
                    return
                except Exception:  # the answer was cut
                    return

        threads = [threading.Thread(target=run, args=(w,)) for w in range(4)]
        before = len(values(db))
        for t in threads:
            t.start()
        wait_until(lambda: len(values(db)) > before + 5)
        if whom == "queend":
            cell.kill9()
        else:
            db.rows("select pg_terminate_backend(pid) from pg_stat_activity"
                    " where datname = current_database()"
                    " and application_name <> '' and pid <>"
                    " pg_backend_pid()")
        stop.set()
        for t in threads:
            t.join()
        if whom == "queend":
            cell.start()
        wait_until(lambda: db.value(
            "select count(*) from pg_stat_activity where datname ="
            " current_database() and state like 'idle in transaction%'"
            ) == 0)
        marks = values(db)
        assert sorted(marks) == timers(db)
        assert count(db) == len(marks)

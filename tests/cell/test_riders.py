# SPDX-License-Identifier: Apache-2.0
"""The `kv` and `timers` of POST /api/v1/transaction: with the rest or not."""
import threading

import pytest

from queenlib import wait_until
from riderkit import (absent, cancel, put, rejected, schedule, timers,
                      untouched, values)
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


@pytest.mark.parametrize("more, status, reason, error", [
    ({"kv": 3}, 400, "bad_request", "bad body: kv must be an array"),
    ({"timers": {}}, 400, "bad_request",
     "bad body: timers must be an array"),
    ({"operations": [{"type": "kv"}]}, 400, "bad_request",
     'bad body: operations[0].type must be "push" or "ack", not "kv"'),
    ({"kv": [put(str(i)) for i in range(65)]}, 400, "bad_request",
     "kv_too_many_ops"),
    ({"kv": [{"op": "getMany", "ns": "n",
              "keys": [str(i) for i in range(257)]}]}, 400, "bad_request",
     "kv_too_many_keys"),
    ({"kv": [{"op": "getPrefix", "ns": "n", "prefix": "a"}]}, 400,
     "bad_request", "kv_get_prefix_not_allowed_in_transaction"),
    ({"kv": [1]}, 400, "bad_request", None),
    ({"kv": [put(value="x" * 70000)]}, 413, "payload_too_large", None),
    ({"timers": [schedule(str(i)) for i in range(257)]}, 400, "bad_request",
     None),
    ({"timers": [schedule(delay_ms=10 ** 13)]}, 403,
     "timer_horizon_exceeded", None),
])
def test_edge_refusals_in_the_envelope(cell, db, ready, more, status, reason,
                                       error):
    body = {"operations": [push(), ack(ready)], **more}
    reply = cell.post(TXN, body)
    if error is None or reply.body["error"].startswith(error + ": "):
        error = reply.body["error"]
    rejected(reply, status, reason, error)
    untouched(db)


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

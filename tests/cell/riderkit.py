# SPDX-License-Identifier: Apache-2.0
"""Parts of transactions that carry `kv` and `timers`, and what they left."""
import base64

from test_transaction import committed, count

DAY_MS = 86400 * 1000


def put(key="k", value=1, **more):
    made = {"op": "put", "ns": "n", "key": key, "value": value, **more}
    if "ttlSeconds" not in more:
        made["forever"] = True
    return made


def absent(key="k", value=1, **more):
    return put(key, value, op="putIfAbsent", **more)


def get(key="k"):
    return {"op": "get", "ns": "n", "key": key}


def get_many(*keys):
    return {"op": "getMany", "ns": "n", "keys": list(keys)}


def delete(key="k", **more):
    return {"op": "delete", "ns": "n", "key": key, **more}


def incr(key="c", delta=1, **more):
    return {"op": "incr", "ns": "n", "key": key, "delta": delta,
            "forever": True, **more}


def schedule(key="t", delay_ms=DAY_MS, queue="later", txn=None, payload=b"1",
             **more):
    return {"op": "schedule", "queue": queue, "timerKey": key,
            "delayMs": delay_ms, "txn": txn or "x-" + key,
            "payload": base64.b64encode(payload).decode(), **more}


def cancel(key="t", queue="later"):
    return {"op": "cancel", "queue": queue, "timerKey": key}


def values(db):
    return dict(db.rows("select key, value from queen.kv"
                        " where namespace = 'n'"))


def timers(db):
    return [r[0] for r in db.rows("select timer_key from queen.timers"
                                  " order by 1")]


def queues(db):
    return [r[0] for r in db.rows("select name from queen.queues"
                                  " where deleted_at is null order by 1")]


def untouched(db):
    """Nothing but the key `old` and the message that was popped."""
    assert values(db) == {"old": 1}
    assert timers(db) == []
    assert count(db) == 0
    assert committed(db) in (None, -1)


def rejected(reply, status, reason, error):
    """The envelope of a transaction that was not done, member by member."""
    assert reply.status == status, reply
    assert list(reply.body) == ["transactionId", "success", "reason", "error",
                                "results"]
    told = (reply.body["success"], reply.body["reason"], reply.body["error"],
            reply.body["results"])
    assert told == (False, reason, error, [])

# SPDX-License-Identifier: Apache-2.0
"""Every way a payload gets into a flagged queue: sealed, refused without a
key, nowhere on the disk in clear, and the same bytes when it comes back."""
import base64
import http.client
import json
import threading
import uuid

import pytest

from queenlib import wait_until
from sealkit import (K1, K2, PAYLOAD, assert_not_in_the_database, damage, flag,
                     key_id, key_ids, keyed, on_disk, popped, statuses)


def timer(queue, key, payload, **kw):
    return dict({"op": "schedule", "queue": queue, "timerKey": key,
                 "txn": "t-" + key, "delayMs": 3600000,
                 "payload": base64.b64encode(
                     json.dumps(payload).encode()).decode()}, **kw)


def txn_push(queue, payload, **kw):
    return {"type": "push", "items": [dict(
        {"queue": queue, "payload": payload}, **kw)]}


# Nothing in clear

@keyed
def test_no_path_leaves_the_payload_on_the_disk(cell, db):
    word = "plain-" + uuid.uuid4().hex
    data = {"word": word}
    for q in "a", "b":
        flag(cell, q)
    cell.post("/api/v1/configure", {"queue": "a", "options": {
        "retryLimit": 0, "deadLetterQueue": True,
        "dlqAfterMaxRetries": True}})
    # push: one, a batch over two queues and one that is not flagged
    assert statuses(cell.push("a", [data], ids=["one"])) == ["queued"]
    reply = cell.post("/api/v1/push", {"items": [
        {"queue": q, "payload": p} for q, p in
        (("a", data), ("clear", {"n": 1}), ("b", data))]})
    assert statuses(reply.body) == ["queued"] * 3
    # a transaction with a push and a timer, timers of their own
    reply = cell.post("/api/v1/transaction", {
        "operations": [txn_push("b", data)],
        "timers": [timer("b", "rider", data)]})
    assert reply.body["success"], reply
    reply = cell.post("/api/v1/timers", {"operations": [
        timer("a", "late", data), timer("a", "soon", data, delayMs=0)]})
    assert reply.status == 200, reply
    # dead letters: asked for, and by retries used up
    for status in "dlq", "failed":
        m, = popped(cell, "a", batch=1)
        assert m["data"] == data
        assert cell.ack([m], status=status, error="no")[0]["dlq"]
        assert cell.post("/api/v1/traces", {
            "transactionId": m["transactionId"],
            "partitionId": m["partitionId"], "data": {"seen": 1}}
        ).status == 201
    rows = cell.get("/api/v1/dlq?queue=a").body["messages"]
    assert [r["data"] for r in rows] == [data] * 2
    reply = cell.post("/api/v1/dlq/%s/replay" % rows[0]["id"], {"queue": "b"})
    assert reply.status == 200, reply
    # a cursor moved back leaves its note
    assert cell.post("/api/v1/consumer-groups/__QUEUE_MODE__/queues/a/seek",
                     {"timestamp": "2020-01-01T00:00:00Z"}).status == 200
    wait_until(lambda: db.value(
        "select count(*) from queen.timers") == 2)
    assert None not in key_ids(db, "a") + key_ids(db, "b")
    assert key_ids(db, "clear") == [None]
    assert_not_in_the_database(db, word)
    assert on_disk(db, word) == set()
    assert word not in cell.log_text()


@keyed
def test_the_search_of_the_disk_finds_what_is_clear(cell, db):
    word = "plain-" + uuid.uuid4().hex
    cell.push("clear", [{"word": word}])
    assert {p.split("/data/")[-1].split("/")[0]
            for p in on_disk(db, word)} == {"base", "pg_wal"}


# The same bytes

TEXTS = [
    "{}", "[]", '""', "0", "null", ' { "a" : 1.50e+10 } ',
    r'{"a":"\u0000\ud800\/\u00e9"}', '{"a":1,"a":2}',
    "[" * 990 + "]" * 990,
    '{"big":"%s"}' % ("0123456789abcdef" * (1 << 16)),
]


@keyed
@pytest.mark.parametrize("auto", [False, True])
def test_payloads_come_back_byte_for_byte(cell, db, auto):
    flag(cell, "q")
    for text in TEXTS:
        reply = cell.post("/api/v1/push", '{"items":[{"queue":"q",'
                          '"payload":%s}]}' % text)
        assert statuses(reply.body) == ["queued"], text[:40]
    assert set(key_ids(db)) == {key_id(K1)}
    got = []
    while len(got) < len(TEXTS):
        conn = http.client.HTTPConnection("127.0.0.1", cell.port.number,
                                          timeout=30)
        conn.request("GET", "/api/v1/pop/queue/q?wait=true&batch=1&autoAck=%s"
                     % str(auto).lower())
        body = conn.getresponse().read().decode()
        conn.close()
        at = body.index('"data":') + 7
        end = body.index(',"producerSub"', at)
        got.append(body[at:end])
        if not auto:
            # too deep for the parser here
            cell.ack(json.loads(body[:at] + "0" + body[end:])["messages"])
    assert got == [t.strip() for t in TEXTS]
    # and by the route that does not consume
    conn = http.client.HTTPConnection("127.0.0.1", cell.port.number,
                                      timeout=30)
    conn.request("POST", "/api/v1/fetch", json.dumps({"entries": [
        {"queue": "q", "partition": "Default", "offset": 0}],
        "maxBytes": 1 << 24}))
    body = conn.getresponse().read().decode()
    conn.close()
    assert all('"payload":' + t.strip() in body for t in TEXTS[:-1])


# Order, duplicates, parts of a batch

@keyed
def test_order_and_parts_of_a_batch(cell, db):
    flag(cell, "q")
    ids = ["id%03d" % i for i in range(60)]
    for i in range(0, 60, 20):
        assert statuses(cell.push("q", list(range(i, i + 20)),
                                  ids=ids[i:i + 20])) == ["queued"] * 20
    assert statuses(cell.push("q", [0, 0], ids=[ids[0], ids[59]])) == [
        "duplicate"] * 2
    got = popped(cell, batch=50)
    assert [m["data"] for m in got] == list(range(50))
    cell.ack(got[:7])
    cell.ack([got[9]], status="retry")
    again = popped(cell, batch=100)
    assert [m["data"] for m in again] == list(range(7, 60))
    assert again[2]["transactionId"] == ids[9]
    cell.ack(again)
    assert cell.pop("q") == []


@keyed
def test_the_newest_of_a_sealed_partition(cell, db):
    flag(cell, "q")
    cell.push("q", [1, 2, 3])
    m, = popped(cell, group="g", conflation=True, subscriptionMode="all")
    assert m["data"] == 3
    cell.push("q", [4])
    cell.ack([m], group="g")
    m, = popped(cell, group="g", conflation=True)
    assert m["data"] == 4


# Reading what does not open

@keyed
def test_readers_show_null_for_what_is_damaged(cell, db):
    flag(cell, "q")
    cell.push("q", [PAYLOAD], ids=["a"])
    m, = popped(cell)
    part = m["partitionId"]
    cell.ack([m], status="retry")
    damage(db)
    row, = cell.get("/api/v1/messages").body["messages"]
    one = cell.get("/api/v1/messages/%s/a" % part).body
    for r in row, one:
        assert (r["transactionId"], r["data"], r["payload"],
                r["isEncrypted"]) == ("a", None, None, True), r
    assert row["payloadAvailable"] is False
    record, = cell.post("/api/v1/fetch", {"entries": [
        {"queue": "q", "partition": "Default", "offset": 0}]}
    ).body["entries"][0]["records"]
    assert (record["payload"], record["isEncrypted"]) == (None, True)


@keyed
def test_traces_of_a_sealed_message_stay_as_they_are(cell, db):
    flag(cell, "q")
    cell.push("q", [PAYLOAD], ids=["a"])
    part = popped(cell)[0]["partitionId"]
    assert cell.post("/api/v1/traces", {
        "transactionId": "a", "partitionId": part,
        "data": {"step": 1}}).status == 201
    trace, = cell.get("/api/v1/traces/%s/a" % part).body["traces"]
    assert trace["data"] == {"step": 1}


# Two processes

def test_two_newest_keys_at_once(new_cell, db):
    a = new_cell(QUEEN_ENCRYPTION_KEY=K1,
                 QUEEN_ENCRYPTION_OLD_KEYS=K2).start()
    b = new_cell(QUEEN_ENCRYPTION_KEY=K2,
                 QUEEN_ENCRYPTION_OLD_KEYS=K1).start()
    flag(a, "q")
    faults = []

    def pusher(cell, name):
        for i in range(40):
            got = statuses(cell.push("q", ["%s%d" % (name, i)],
                                     ids=["%s%d" % (name, i)]))
            if got != ["queued"]:
                faults.append(got)

    threads = [threading.Thread(target=pusher, args=x)
               for x in ((a, "a"), (b, "b"))]
    for t in threads:
        t.start()
    got = {"x": [], "y": []}

    def drained():
        for cell, auto, g in ((a, True, "x"), (b, False, "y")):
            ms = cell.pop("q", group=g, batch=30, autoAck=auto,
                          subscriptionMode="all")
            got[g] += [m["data"] for m in ms]
            if not auto:
                cell.ack(ms, group=g)
        return len(got["x"]) >= 80 and len(got["y"]) >= 80

    wait_until(drained)
    for t in threads:
        t.join()
    assert faults == []
    assert set(key_ids(db)) == {key_id(K1), key_id(K2)}
    assert got["x"] == got["y"]
    for name in "ab":
        assert [d for d in got["x"] if d[0] == name] == [
            "%s%d" % (name, i) for i in range(40)]


def test_what_waits_is_opened_after_a_rotation(new_cell, db):
    """A pending timer and a dead letter of the former key."""
    a = new_cell(QUEEN_ENCRYPTION_KEY=K1).start()
    flag(a, "q")
    a.push("q", [PAYLOAD])
    m, = popped(a)
    a.ack([m], status="dlq", error="x")
    reply = a.post("/api/v1/timers", {"operations": [
        timer("q", "k", {"late": 1})]})
    assert reply.body["results"][0]["status"] == "scheduled", reply
    a.term()
    db.rows("update queen.timers set due_at = now(), deliver_at = now()")
    a.extra.update(QUEEN_ENCRYPTION_KEY=K2, QUEEN_ENCRYPTION_OLD_KEYS=K1)
    a.start()
    assert [m["data"] for m in popped(a, wait=True)] == [{"late": 1}]
    assert key_ids(db) == [key_id(K1)] * 2
    row, = a.get("/api/v1/dlq").body["messages"]
    assert row["data"] == PAYLOAD
    reply = a.post("/api/v1/dlq/%s/replay" % row["id"])
    assert reply.status == 200, reply
    assert key_ids(db) == [key_id(K1)] * 2 + [key_id(K2)]


def test_the_flag_of_one_process_holds_at_once_on_another(cells, db):
    a, b = cells(2, QUEEN_ENCRYPTION_KEY=K1)
    for i in range(10):
        q = "q%d" % i
        assert statuses(b.push(q, [0])) == ["queued"]
        flag(a, q)
        assert statuses(b.push(q, [PAYLOAD])) == ["queued"]
        assert key_ids(db, q) == [None, key_id(K1)]


def test_the_flag_of_one_process_is_heeded_by_one_without_a_key(new_cell, db):
    a = new_cell(QUEEN_ENCRYPTION_KEY=K1).start()
    b = new_cell().start()
    for i in range(10):
        q = "q%d" % i
        b.push(q, [0])
        flag(a, q)
        item, = b.push(q, [PAYLOAD])
        assert (item["status"], item["error"]) == ("failed",
                                                   "encryption_required")
        assert key_ids(db, q) == [None]


# Refused without a key

@pytest.fixture
def bare(new_cell, db):
    """A process without a key, a queue it knows to be flagged, and one that
    was flagged behind its back; a dead letter of a third."""
    cell = new_cell().start()
    for q in "known", "stale", "clear":
        cell.push(q, [0])
    m, = popped(cell, "clear")
    assert cell.ack([m], status="dlq", error="x")[0]["dlq"]
    flag(cell, "known")
    wait_until(lambda: statuses(cell.push("known", [0])) == ["failed"])
    db.rows("update queen.queues set encryption_enabled = true"
            " where name = 'stale'")
    return cell


@pytest.mark.parametrize("q", ["known", "stale"])
def test_every_write_is_refused_without_a_key(bare, db, q):
    before = db.rows("select count(*), max(created_at) from queen.segments")
    # a batch: only the items of that queue
    reply = bare.post("/api/v1/push", {"items": [
        {"queue": q, "payload": PAYLOAD, "transactionId": "a"},
        {"queue": q, "payload": PAYLOAD, "partition": "p"}]})
    assert reply.status == 201
    assert [(r["status"], r["error"]) for r in reply.body] == [
        ("failed", "encryption_required")] * 2
    reply = bare.post("/api/v1/transaction", {"operations": [
        txn_push("clear", {"n": 1}), txn_push(q, PAYLOAD)]})
    assert reply.status == 200
    assert (reply.body["success"], reply.body["reason"], reply.body["error"]
            ) == (False, "encryption_required", 'queue "%s" takes only'
                  ' encrypted messages; transaction rolled back' % q)
    reply = bare.post("/api/v1/timers", {"operations": [
        timer(q, "k", PAYLOAD)]})
    assert reply.status == 500
    assert reply.body == {
        "error": "timers_error", "reason": "encryption_required",
        "detail": "operation 0: the queue wants sealed payloads and there is"
        " no key"}
    reply = bare.post("/api/v1/transaction", {
        "operations": [txn_push("clear", {"n": 1})],
        "timers": [timer(q, "k", PAYLOAD)]})
    assert reply.status == 200
    assert (reply.body["success"], reply.body["reason"]) == (
        False, "encryption_required")
    row, = bare.get("/api/v1/dlq").body["messages"]
    reply = bare.post("/api/v1/dlq/%s/replay" % row["id"], {"queue": q})
    assert (reply.status, reply.body["error"]) == (500, "encryption_required")
    # back to its own queue, flagged now: by either route
    db.rows("update queen.queues set encryption_enabled = true")
    for path in ("dlq/%s/replay" % row["id"], "messages/%s/%s/retry" % (
            row["partitionId"], row["transactionId"])):
        reply = bare.post("/api/v1/" + path)
        assert (reply.status, reply.body["error"]) == (
            500, "encryption_required"), path
    assert db.rows("select count(*), max(created_at) from queen.segments"
                   ) == before
    assert db.value("select count(*) from queen.timers") == 0
    assert db.value("select count(*) from queen.dead_letters") == 1


def test_a_batch_of_several_queues_without_a_key(bare, db):
    reply = bare.post("/api/v1/push", {"items": [
        {"queue": q, "payload": {"q": q}}
        for q in ("clear", "known", "clear", "stale", "new")]})
    assert [(r["status"], r.get("error")) for r in reply.body] == [
        ("queued", None), ("failed", "encryption_required"), ("queued", None),
        ("failed", "encryption_required"), ("queued", None)]


@keyed
def test_with_the_key_a_stale_flag_is_sealed_on_every_path(cell, db):
    for q in "a", "b", "c", "d":
        cell.push(q, [0])
    m, = popped(cell, "a")
    cell.ack([m], status="dlq", error="x")
    db.rows("update queen.queues set encryption_enabled = true")
    row, = cell.get("/api/v1/dlq").body["messages"]
    assert statuses(cell.push("b", [1])) == ["queued"]
    reply = cell.post("/api/v1/transaction", {"operations": [
        txn_push("c", 1)]})
    assert reply.body["success"], reply
    reply = cell.post("/api/v1/timers", {"operations": [
        timer("d", "k", 1, delayMs=0)]})
    assert reply.status == 200, reply
    reply = cell.post("/api/v1/dlq/%s/replay" % row["id"])
    assert reply.status == 200, reply
    for q in "a", "b", "c", "d":
        assert wait_until(lambda q=q: key_ids(db, q)[1:]) == [key_id(K1)], q

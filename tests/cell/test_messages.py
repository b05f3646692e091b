# SPDX-License-Identifier: Apache-2.0
"""GET and DELETE /messages: pages, filters, states, payload bytes."""
import hashlib
import json
import struct
import urllib.parse
import uuid

KEYS = {"id", "transactionId", "txnHash", "partitionId", "queuePath", "queue",
        "partition", "namespace", "task", "status", "queueStatus",
        "busStatus", "traceId", "producerSub", "payloadAvailable", "segment",
        "createdAt", "leaseExpiresAt", "data", "payload", "isEncrypted",
        "queuePriority", "offset"}
PAYLOADS = ['{"b":1.50,"a":"\\u0041\\/é","a":[ ]}', "null", "-0.0", "1e400",
            '"\\ud83d"', '"\\u0000"', "123456789012345678901234567890"]


def messages(cell, **query):
    reply = cell.get("/api/v1/messages?" + urllib.parse.urlencode(query))
    assert reply.status == 200, reply
    return reply.body


def one(cell, part, txn, status=200):
    reply = cell.get("/api/v1/messages/%s/%s" % (
        part, urllib.parse.quote(txn, safe="")))
    assert reply.status == status, reply
    return reply.body


def raw(cell, path):
    """The body as bytes, whatever its type."""
    conn = cell.http()
    conn.request("GET", path)
    answer = conn.getresponse()
    body = answer.read()
    conn.close()
    assert answer.status == 200, body
    return body.decode()


def push_raw(cell, queue, payloads, ids):
    items = ",".join('{"queue":"%s","transactionId":"%s","payload":%s}'
                     % (queue, i, p) for i, p in zip(ids, payloads))
    reply = cell.post("/api/v1/push", '{"items":[%s]}' % items)
    assert reply.status == 201, reply
    return reply.body


def test_a_row_has_every_key(cell):
    pushed = cell.push("n.t", [{"a": 1}], ids=["o-77"])
    body = messages(cell, queue="n.t")
    assert body["mode"] == {"hasQueueMode": False, "busGroupsCount": 0,
                            "type": "none"}
    assert body["total"] == 1
    row, = body["messages"]
    assert set(row) == KEYS
    assert row["id"] == pushed[0]["message_id"]
    assert len(row["txnHash"]) == 32
    assert row["createdAt"].endswith("Z") and len(row["createdAt"]) == 24
    for key in ("id", "txnHash", "partitionId", "createdAt"):
        row.pop(key)
    assert row == {
        "transactionId": "o-77", "queuePath": "n.t/Default", "queue": "n.t",
        "partition": "Default", "namespace": "n", "task": "t",
        "status": "pending", "queueStatus": "pending",
        "busStatus": {"consumedBy": 0, "totalGroups": 0}, "traceId": None,
        "producerSub": None, "payloadAvailable": True, "offset": 0,
        "segment": {"seq": 0, "frameIdx": 0}, "leaseExpiresAt": None,
        "data": {"a": 1}, "payload": {"a": 1}, "isEncrypted": False,
        "queuePriority": 0}


def test_payloads_come_back_byte_for_byte(cell):
    ids = ["t%d" % i for i in range(len(PAYLOADS))]
    push_raw(cell, "q", PAYLOADS, ids)
    text = raw(cell, "/api/v1/messages?queue=q")
    for payload in PAYLOADS:
        assert '"data":%s,"payload":%s,' % (payload, payload) in text
    part = json.loads(text)["messages"][0]["partitionId"]
    for i, payload in zip(ids, PAYLOADS):
        text = raw(cell, "/api/v1/messages/%s/%s" % (part, i))
        assert '"data":%s,"payload":%s,' % (payload, payload) in text


def test_pages_newest_first(cell):
    for start in range(0, 30, 10):
        cell.push("q", list(range(start, start + 10)))
    rows = messages(cell)["messages"]
    assert [r["data"] for r in rows] == list(range(29, -1, -1))
    assert rows[0]["segment"] == {"seq": 20, "frameIdx": 9}
    got = []
    for offset in range(0, 35, 7):
        page = messages(cell, queue="q", limit=7, offset=offset)
        assert page["total"] == len(page["messages"])
        got += [r["data"] for r in page["messages"]]
    assert got == list(range(29, -1, -1))
    # 0 is what some clients send for "the default"
    assert messages(cell, limit=0)["total"] == 30


def test_filters(cell):
    cell.push("a.x", [1], partition="p")
    cell.push("a.y", [2], partition="p")
    cell.push("b.x", [3], partition="r")
    for query, want in (
            ({"queue": "a.x"}, [1]), ({"namespace": "a"}, [2, 1]),
            ({"ns": "a"}, [2, 1]), ({"task": "x"}, [3, 1]),
            ({"namespace": "a", "task": "x"}, [1]),
            ({"partition": "p"}, [2, 1]), ({"queue": "nope"}, []),
            ({"queue": "a.x", "partition": "r"}, []),
            ({"queue": "", "status": ""}, [3, 2, 1]),
            ({"from": "2020-01-01", "to": "2020-01-02"}, []),
            ({"from": "2020-01-01"}, [3, 2, 1])):
        assert [r["data"] for r in messages(cell, **query)["messages"]] == \
            want, query


def test_states(cell):
    cell.push("q", list(range(6)), ids=["t%d" % i for i in range(6)])
    cell.post("/api/v1/configure", {"queue": "q", "options": {
        "retryLimit": 0}})
    got = cell.pop("q", batch=2)
    assert cell.ack(got, status="failed", error="boom")[0]["dlq"] is True
    got = cell.pop("q", batch=2, leaseSeconds=600)
    cell.pop("q", group="g", subscriptionMode="all", batch=3, autoAck=True)
    body = messages(cell)
    assert body["mode"] == {"hasQueueMode": True, "busGroupsCount": 1,
                            "type": "hybrid"}
    assert [(r["data"], r["status"], r["busStatus"]["consumedBy"],
             r["leaseExpiresAt"] is not None) for r in body["messages"]] == [
        (5, "pending", 0, False), (4, "pending", 0, False),
        (3, "pending", 0, False), (2, "processing", 1, True),
        (1, "processing", 1, True), (0, "dead_letter", 1, False)]
    for status, want in (("pending", [5, 4, 3]), ("processing", [2, 1]),
                         ("completed", []), ("dead_letter", [0]), ("failed", [0])):
        assert [r["data"] for r in messages(cell, status=status)["messages"]
                ] == want
    cell.ack(got)
    assert [r["data"] for r in messages(cell, status="completed")["messages"]
            ] == [2, 1]


def test_one_message_has_the_contract_keys(cell):
    cell.push("n.t", [7, 8], ids=["a/b c", "t"])
    got = cell.pop("n.t", batch=1, leaseSeconds=600)
    cell.pop("n.t", group="g", subscriptionMode="all", batch=1, autoAck=True)
    part = got[0]["partitionId"]
    body = one(cell, part, "a/b c")
    assert set(body) >= {
        "id", "transactionId", "data", "payload", "traceId", "producerSub",
        "createdAt", "partitionId", "partition", "isEncrypted", "queue",
        "queuePath", "namespace", "task", "status", "errorMessage",
        "retryCount", "leaseExpiresAt", "queueConfig", "consumerGroups",
        "mode"}
    assert body["id"] == got[0]["id"]
    assert (body["transactionId"], body["data"], body["status"]) == \
        ("a/b c", 7, "processing")
    assert (body["errorMessage"], body["retryCount"]) == (None, 0)
    assert body["leaseExpiresAt"].endswith("Z")
    assert body["queueConfig"] == {"leaseTime": 60, "retryLimit": 3,
                                   "retryDelay": 1000, "ttl": 3600,
                                   "priority": 0}
    assert [(g["name"], g["group"], g["consumed"])
            for g in body["consumerGroups"]] == [
        ("__QUEUE_MODE__", "__QUEUE_MODE__", False), ("g", "g", True)]
    assert body["mode"]["type"] == "hybrid"
    assert one(cell, part, "t")["status"] == "pending"


def test_addresses_that_lead_nowhere(cell):
    cell.push("q", [1], ids=["t"])
    part = cell.pop("q", batch=1)[0]["partitionId"]
    foreign = part[:3] + ("0" if part[3] != "0" else "1") + part[4:]
    queue = cell.get("/api/v1/resources/queues/q").body["id"]
    for address in (part, foreign, queue, "x", str(uuid.uuid4())):
        txn = "nope" if address == part else "t"
        assert one(cell, address, txn, 404) == {"error": "Message not found"}
        reply = cell.delete("/api/v1/messages/%s/%s" % (address, txn))
        assert reply.status == 404
        assert reply.body["message"].startswith(
            "No dead-letter row for this address. ")
        assert (reply.body["success"], reply.body["error"]) == \
            (False, "Message not found")


def test_delete_takes_dead_letters_only(cell):
    cell.push("q", [1, 2], ids=["a", "b"])
    for group in ("g", "h"):
        got = cell.pop("q", group=group, subscriptionMode="all", batch=1)
        assert cell.ack(got, group=group, status="dlq")[0]["dlq"] is True
    part = got[0]["partitionId"]
    assert cell.delete("/api/v1/messages/%s/b" % part).status == 404
    reply = cell.delete("/api/v1/messages/%s/a" % part)
    assert (reply.status, reply.body) == (200, {
        "success": True, "partitionId": part, "transactionId": "a",
        "message": "Message deleted successfully"})
    assert cell.get("/api/v1/dlq").body["total"] == 0
    assert cell.delete("/api/v1/messages/%s/a" % part).status == 404
    assert one(cell, part, "a")["status"] == "pending"


def test_bad_queries(common):
    for query, text in (
            ("limit=x", "limit must be an integer from 0 up, got 'x'"),
            ("limit=-1", "limit must be an integer from 0 up, got '-1'"),
            ("offset=1.5", "offset must be an integer from 0 up, got '1.5'"),
            ("from=soon", "from must be an ISO 8601 time, got 'soon'"),
            ("to=%0A", "to must be an ISO 8601 time, got '\n'"),
            ("status=acked", "status must be pending, processing, completed "
             "or dead_letter, got 'acked'"),
            ("queue=%01", "queue holds a control character")):
        reply = common.get("/api/v1/messages?" + query)
        assert (reply.status, reply.body) == (400, {"error": text})
    big = "9" * 18
    assert common.get("/api/v1/messages?limit=%s&offset=%s" % (big, big)
                      ).status == 200


def test_a_sealed_message_shows_no_payload(cell):
    cell.push("q", [1], ids=["clear"])
    txn, sealed = b"secret", b"\x01\x02\x03"
    body = struct.pack("<B", 4) + uuid.uuid4().bytes \
        + struct.pack("<H", len(txn)) + txn + sealed
    frame = struct.pack("<I", len(body)) + body
    cell.db.rows("insert into queen.segments select id, 1, 1, now(), %s, 7,"
                 " %s from queen.partitions",
                 (len(frame), b"\x01\x00" + frame))
    cell.db.rows("insert into queen.dead_letters (id, queue_id, partition_id,"
                 " group_name, message_offset, id_hash, frame, error,"
                 " retries, failed_at) select %s, queue_id, id, 'g', 1, %s,"
                 " %s, 'x', 0, now() from queen.partitions",
                 (str(uuid.uuid4()), hashlib.md5(txn).digest(), frame))
    row = messages(cell)["messages"][0]
    assert (row["transactionId"], row["data"], row["payload"],
            row["isEncrypted"], row["payloadAvailable"]) == \
        ("secret", None, None, True, False)
    row, = cell.get("/api/v1/dlq").body["messages"]
    assert (row["transactionId"], row["data"], row["isEncrypted"]) == \
        ("secret", None, True)

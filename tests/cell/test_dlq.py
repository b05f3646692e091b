# SPDX-License-Identifier: Apache-2.0
"""Dead letters over HTTP: list, retry by address, replay by id, purge."""
import json
import re
import uuid

DLQ = "/api/v1/dlq"
STAMP = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")


def bury(cell, queue="q", payloads=({"a": 1},), ids=("o-77",), group="g",
         partition=None, error="smtp 451"):
    """Pushes and dead-letters each message at once."""
    cell.push(queue, list(payloads), ids=list(ids), partition=partition)
    for _ in payloads:
        got = cell.pop(queue, group=group, subscriptionMode="all", batch=1)
        assert cell.ack(got, group=group, status="dlq", error=error
                        )[0]["dlq"] is True
    return got[0]["partitionId"]


def listed(cell, query="", status=200):
    reply = cell.get(DLQ + query)
    assert reply.status == status, reply
    return reply.body


def test_the_list(cell):
    assert listed(cell) == {"messages": [], "total": 0,
                            "pagination": {"limit": 100, "offset": 0}}
    part = bury(cell, partition="eu-1")
    created = cell.get("/api/v1/messages").body["messages"][0]["createdAt"]
    body = listed(cell)
    assert (body["total"], body["pagination"]) == \
        (1, {"limit": 100, "offset": 0})
    row, = body["messages"]
    assert uuid.UUID(row.pop("id")).version == 7
    assert STAMP.fullmatch(row.pop("failedAt"))
    assert row == {
        "transactionId": "o-77", "partitionId": part, "queue": "q",
        "partition": "eu-1", "consumerGroup": "g",
        "errorMessage": "smtp 451", "retryCount": 0, "data": {"a": 1},
        "producerSub": None, "createdAt": created}


def test_filters_and_pages(cell):
    bury(cell, payloads=[1, 2], ids=["a", "b"])
    bury(cell, "r", [3], ["c"], "h", "p")
    for query, want in (
            ("", [3, 2, 1]), ("?queue=q", [2, 1]), ("?queue=nope", []),
            ("?consumerGroup=h", [3]), ("?partition=p", [3]),
            ("?queue=q&partition=p", []), ("?limit=1", [3]),
            ("?limit=1&offset=1", [2]), ("?limit=0", [3, 2, 1]),
            ("?from=2020-01-01", [3, 2, 1]), ("?to=2020-01-01", []),
            ("?from=2100-01-01", [])):
        assert [m["data"] for m in listed(cell, query)["messages"]] == want
    assert listed(cell, "?limit=x", 400) == {
        "error": "limit must be an integer from 0 up, got 'x'"}
    assert listed(cell, "?from=x", 400) == {
        "error": "from must be an ISO 8601 time, got 'x'"}


def test_payload_bytes_and_a_removed_message(cell):
    text = '{"b":1.50,"a":"\\u0041\\/","a":[ ]}'
    cell.post("/api/v1/push", '{"items":[{"queue":"q","transactionId":"x",'
              '"payload":%s}]}' % text)
    got = cell.pop("q", batch=1)
    cell.ack(got, status="dlq")
    conn = cell.http()
    conn.request("GET", DLQ)
    body = conn.getresponse().read().decode()
    conn.close()
    assert '"data":%s,' % text in body
    assert json.loads(body)["messages"][0]["errorMessage"] == \
        "Retries exhausted"
    cell.db.rows("update queen.dead_letters set frame = null")
    row, = listed(cell)["messages"]
    assert (row["data"], row["transactionId"], row["producerSub"]) == \
        (None, None, None)


def test_retry_by_address_moves_the_newest_row(cell):
    part = bury(cell, partition="eu-1")
    got = cell.pop("q", group="h", subscriptionMode="all", batch=1)
    cell.ack(got, group="h", status="dlq")
    rows = listed(cell)["messages"]
    reply = cell.post("/api/v1/messages/%s/o-77/retry" % part)
    assert reply.status == 200, reply
    body = reply.body
    again = body.pop("replayedAs")
    assert uuid.UUID(again.pop("message_id")).version == 7
    assert body == {
        "success": True, "result": "moved", "queue": "q", "partition": "eu-1",
        "consumerGroup": "h", "dlqId": rows[0]["id"],
        "originalTransactionId": "o-77", "dlqRowRemoved": True}
    assert again == {"index": 0, "transaction_id": "dlq:" + rows[0]["id"],
                     "queueName": "q", "status": "queued", "offset": 1}
    left, = listed(cell)["messages"]
    assert left["id"] == rows[1]["id"]
    for group in ("g", "h"):
        new, = cell.pop("q", group=group)
        assert (new["data"], new["transactionId"]) == \
            ({"a": 1}, again["transaction_id"])
    assert cell.post("/api/v1/messages/%s/o-77/retry" % part
                     ).body["dlqId"] == rows[1]["id"]
    reply = cell.post("/api/v1/messages/%s/o-77/retry" % part)
    assert reply.status == 404
    assert (reply.body["success"], reply.body["error"]) == \
        (False, "Message not found")
    assert reply.body["message"].startswith(
        "No dead-letter row for this address. ")


def test_replay_by_id_to_the_origin_and_elsewhere(cell):
    bury(cell, payloads=[1, 2], ids=["a", "b"], partition="eu-1")
    two, one = listed(cell)["messages"]
    for row, body, want in (
            (one, None, ("q", "eu-1")),
            (two, {"queue": " other ", "partition": " p "},
             ("other", "p"))):
        reply = cell.post("%s/%s/replay" % (DLQ, row["id"]), body)
        assert (reply.status, reply.body["result"]) == (200, "moved")
        assert (reply.body["queue"], reply.body["partition"]) == want
        assert reply.body["replayedAs"]["queueName"] == want[0]
    assert [m["data"] for m in cell.pop("other", partition="p",
                                        subscriptionMode="all")] == [2]
    assert listed(cell)["total"] == 0


def test_a_duplicate_keeps_the_row(cell):
    part = bury(cell)
    row, = listed(cell)["messages"]
    cell.push("q", [9], ids=["dlq:" + row["id"]])
    reply = cell.post("/api/v1/messages/%s/o-77/retry" % part)
    assert reply.status == 200
    assert (reply.body["success"], reply.body["result"],
            reply.body["dlqRowRemoved"]) == (True, "duplicate", False)
    assert reply.body["replayedAs"]["message_id"] == \
        "00000000-0000-0000-0000-000000000000"
    assert reply.body["replayedAs"]["status"] == "duplicate"
    assert listed(cell)["total"] == 1


def test_replay_refusals(cell):
    part = bury(cell)
    row, = listed(cell)["messages"]
    for bad in ("x", str(uuid.uuid4())):
        reply = cell.post("%s/%s/replay" % (DLQ, bad))
        assert reply.status == 404
        assert reply.body.pop("message")
        assert reply.body == {"success": False, "result": "gone",
                              "dlqId": bad, "error": "Message not found"}
    path = "%s/%s/replay" % (DLQ, row["id"])
    for body, text in (
            ({"queue": " "}, "queue is empty"),
            ({"partition": ""}, "partition is empty"),
            ({"queue": 5}, "bad body: queue must be a string"),
            ({"queue": "x" * 1025}, "queue is longer than 1024 bytes")):
        reply = cell.post(path, body)
        assert (reply.status, reply.body) == (400, {"error": text})
    for body in (b"{", b"[]"):
        reply = cell.post(path, body)
        assert reply.status == 400
        assert reply.body["error"].startswith("bad body: ")
    assert cell.post("/api/v1/system/maintenance", {"enabled": True}
                     ).status == 200
    for path in (path, "/api/v1/messages/%s/o-77/retry" % part):
        reply = cell.post(path)
        assert (reply.status, reply.body["result"],
                reply.body["dlqRowRemoved"]) == (503, "maintenance", False)
    cell.post("/api/v1/system/maintenance", {"enabled": False})
    assert listed(cell)["total"] == 1


def test_purge(cell):
    bury(cell, payloads=[1, 2], ids=["a", "b"])
    got = cell.pop("q", group="h", subscriptionMode="all", batch=1)
    cell.ack(got, group="h", status="dlq")
    assert cell.delete(DLQ).status == 400
    assert cell.delete(DLQ).body == {"error": "queue is required"}
    for query, want in (
            ("?queue=nope", (0, "nope", None)),
            ("?queue=q&consumerGroup=h", (1, "q", "h")),
            ("?queue=q", (2, "q", None)), ("?queue=q", (0, "q", None))):
        reply = cell.delete(DLQ + query)
        assert (reply.status, reply.body) == (200, {
            "success": True, "deleted": want[0], "queue": want[1],
            "consumerGroup": want[2]})


def test_purge_of_more_rows_than_one_step(cell):
    bury(cell)
    cell.db.rows("insert into queen.dead_letters select gen_random_uuid(),"
                 " queue_id, partition_id, group_name, message_offset,"
                 " id_hash, frame, error, retries, created_at, failed_at"
                 " from queen.dead_letters, generate_series(1, 10000)")
    reply = cell.delete(DLQ + "?queue=q")
    assert reply.body["deleted"] == 10001
    assert cell.db.value("select count(*) from queen.dead_letters") == 0

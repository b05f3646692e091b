# SPDX-License-Identifier: Apache-2.0
"""Traces over HTTP."""
import json
import re
import uuid

TRACES = "/api/v1/traces"
STAMP = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")


def address(cell):
    cell.push("q", [1], ids=["t"])
    return cell.pop("q")[0]["partitionId"]


def post(cell, status=201, **body):
    reply = cell.post(TRACES, body)
    assert reply.status == status, reply
    return reply.body


def get(cell, path, status=200):
    reply = cell.get(TRACES + path)
    assert reply.status == status, reply
    return reply.body


def test_write_and_read(cell):
    part = address(cell)
    made = post(cell, transactionId="t", partitionId=part, data={"x": 1})
    assert made == {"success": True, "traceId": made["traceId"]}
    assert uuid.UUID(made["traceId"]).version == 7
    post(cell, transactionId="t", partitionId=part, data=[2],
         consumerGroup="g", eventType="warn", traceNames=["b", "a"])
    body = get(cell, "/%s/t" % part)
    assert [STAMP.fullmatch(t.pop("created_at")) is not None
            for t in body["traces"]] == [True, True]
    one, two = body["traces"]
    two.pop("id")
    assert one == {"id": made["traceId"], "event_type": "info",
                   "data": {"x": 1}, "consumer_group": "__QUEUE_MODE__",
                   "worker_id": None, "trace_names": []}
    assert two == {"event_type": "warn", "data": [2], "consumer_group": "g",
                   "worker_id": None, "trace_names": ["a", "b"]}
    assert get(cell, "/%s/other" % part) == {"traces": []}
    assert get(cell, "/x/t") == {"traces": []}


def test_data_comes_back_as_sent(cell):
    part = address(cell)
    data = '{"b":1.50,"a":"\\u0000\\ud800","a":[ ],"n":1e999}'
    reply = cell.post(TRACES, '{"transactionId":"t","partitionId":"%s",'
                      '"data":%s,"traceNames":"n"}' % (part, data))
    assert reply.status == 201, reply
    for path in ("/%s/t" % part, "/by-name/n"):
        conn = cell.http()
        conn.request("GET", TRACES + path)
        body = conn.getresponse().read().decode()
        conn.close()
        assert data in body
        json.loads(body)


def test_names_as_array_string_or_anything_else(cell):
    part = address(cell)
    for sent, want in ((["b", "a", "b", "", 5, None, ["c"]], ["a", "b"]),
                       ("one", ["one"]), (5, []), ({"a": 1}, []), (None, []),
                       ("", [])):
        post(cell, transactionId="t%s" % want, partitionId=part, data=1,
             traceNames=sent)
    assert [t["trace_name"] for t in get(cell, "/names")["trace_names"]] == [
        "one", "a", "b"]


def test_by_name_and_names(cell):
    part = address(cell)
    for txn, names in (("t", ["n"]), ("t", ["n"]), ("u", ["n", "m"])):
        post(cell, transactionId=txn, partitionId=part, data=txn,
             traceNames=names)
    body = get(cell, "/by-name/n?limit=2&offset=1")
    assert (body["total"], body["pagination"]) == \
        (3, {"limit": 2, "offset": 1})
    assert [t["transaction_id"] for t in body["traces"]] == ["t", "t"]
    one = body["traces"][0]
    assert (one["partition_id"], one["queue_name"], one["partition_name"],
            one["message_payload"]) == (part, "q", "Default", None)
    assert get(cell, "/by-name/nope") == {
        "traces": [], "total": 0, "pagination": {"limit": 100, "offset": 0}}
    body = get(cell, "/names")
    assert (body["total"], body["pagination"]) == \
        (2, {"limit": 50, "offset": 0})
    assert [(t["trace_name"], t["trace_count"], t["message_count"])
            for t in body["trace_names"]] == [("m", 1, 1), ("n", 3, 2)]
    assert all(STAMP.fullmatch(t["last_seen"]) for t in body["trace_names"])
    assert get(cell, "/names?limit=1&offset=1")["trace_names"] == \
        body["trace_names"][1:]


def test_refusals(cell):
    part = address(cell)
    good = {"transactionId": "t", "partitionId": part, "data": 1}
    both = "transactionId and partitionId are required"
    for change, text in (
            ({"transactionId": None}, both), ({"transactionId": ""}, both),
            ({"partitionId": None}, both), ({"partitionId": ""}, both),
            ({"data": None}, "data is required"),
            ({"transactionId": 5},
             "bad body: transactionId must be a string"),
            ({"transactionId": "x" * 1025},
             "bad body: transactionId is longer than 1024 bytes"),
            ({"partitionId": "x"}, "bad body: partitionId is not a UUID"),
            ({"eventType": 5}, "bad body: eventType must be a string"),
            ({"consumerGroup": "a\u0000"},
             "bad body: consumerGroup holds a control character"),
            ({"traceNames": ["x" * 1025]},
             "bad body: traceNames is longer than 1024 bytes"),
            ({"traceNames": ["n%d" % i for i in range(101)]},
             "bad body: traceNames holds more than 100 names")):
        reply = cell.post(TRACES, dict(good, **change))
        assert (reply.status, reply.body) == (400, {"error": text}), change
    for body in (b"", b"{", b"[]", b'{"traceNames":['):
        reply = cell.post(TRACES, body)
        assert reply.status == 400
        assert re.fullmatch(r"bad body: .+ at offset \d+",
                            reply.body["error"])
    queue = cell.get("/api/v1/resources/queues/q").body["id"]
    for other in (queue, str(uuid.uuid4())):
        reply = cell.post(TRACES, dict(good, partitionId=other))
        assert (reply.status, reply.body) == (404, {
            "success": False, "error": "Message not found"})
    assert get(cell, "/names")["total"] == 0
    assert get(cell, "/%s/t" % part) == {"traces": []}


def test_a_name_with_a_slash_and_the_order_of_routes(cell):
    part = address(cell)
    post(cell, transactionId="names", partitionId=part, data=1,
         traceNames=["a/b"])
    assert get(cell, "/by-name/a%2Fb")["total"] == 1
    assert len(get(cell, "/%s/names" % part)["traces"]) == 1

# SPDX-License-Identifier: Apache-2.0
"""What the stream routes refuse, and with which words."""
import json

import pytest

from queenlib import OTHER_TENANT
from rawhttp import Raw

LONG = "n" * 129
GOOD = {"type": "t", "payload": 1}


def message(**more):
    return {k: v for k, v in {**GOOD, **more}.items() if v is not ...}


# path below /queues/q, body; the fields that details.field may name
FIELDS = [
    ("messages", {}, "type"),
    ("messages", message(type=...), "type"),
    ("messages", message(type=""), "type"),
    ("messages", message(type=["t"]), "type"),
    ("messages", message(type="t" * 256), "type"),
    ("messages", message(type="a\tb"), "type"),
    ("messages", message(payload=...), "payload"),
    ("messages", message(headers="h"), "headers"),
    ("messages", message(id=7), "id"),
    ("messages", message(id="i" * 256), "id"),
    ("messages/batch", {}, "messages"),
    ("messages/batch", {"messages": []}, "messages"),
    ("messages/batch", {"messages": "m"}, "messages"),
    ("messages/batch", {"messages": [GOOD, 7]}, "messages"),
    ("messages/batch", {"messages": [GOOD, {"type": "t"}]}, "payload"),
    ("consumers", {}, "consumer"),
    ("consumers", {"consumer": "a.b"}, "consumer"),
    ("consumers", {"consumer": LONG}, "consumer"),
    ("consumers", {"consumer": "-a"}, "consumer"),
    ("consumers", {"consumer": "a", "from_tick": -1}, "from_tick"),
    ("consumers", {"consumer": "a", "from_tick": 1.5}, "from_tick"),
    ("consumers", {"consumer": "a", "from_tick": "then"}, "from_tick"),
    ("receive", {}, "consumer"),
    ("receive", {"consumer": "a b"}, "consumer"),
    ("receive", {"consumer": "c", "max": 0}, "max"),
    ("receive", {"consumer": "c", "max": 100001}, "max"),
    ("receive", {"consumer": "c", "max": True}, "max"),
    ("receive", {"consumer": "c", "wait_ms": -1}, "wait_ms"),
    ("receive", {"consumer": "c", "member": "m.1"}, "member"),
    ("receive", {"consumer": "c", "member": "m", "dead_interval_ms": 999},
     "dead_interval_ms"),
    ("config", {"max_retries": -1}, "max_retries"),
    ("config", {"max_retries": 1001}, "max_retries"),
    ("config", {"max_retries": "many"}, "max_retries"),
    ("config", {"retention": "1ms"}, "retention"),
    ("config", {"retention": "87661h"}, "retention"),
    ("config", {"retention": 1.5}, "retention"),
    ("config", {"colour": "red"}, "colour"),
]
ENDS = [
    ("ack", {}, "queue"),
    ("ack", {"queue": "Q", "batch_id": 1}, "queue"),
    ("ack", {"queue": "q"}, "batch_id"),
    ("ack", {"queue": "q", "batch_id": "x"}, "batch_id"),
    ("ack", {"queue": "q", "batch_id": 0}, "batch_id"),
    ("ack", {"queue": "q", "batch_id": 1, "consumer": "."}, "consumer"),
    ("nack", {"queue": "q", "batch_id": 1}, "message_id"),
    ("nack", {"queue": "q", "batch_id": 1, "seq": -1}, "seq"),
    ("nack", {"queue": "q", "batch_id": 1, "seq": 1, "retry_after": "x"},
     "retry_after"),
    ("nack", {"queue": "q", "batch_id": 1, "seq": 1, "retry_after": "721h"},
     "retry_after"),
    ("nack", {"queue": "q", "batch_id": 1, "seq": 1, "reason": "r" * 2001},
     "reason"),
]
# what a path or a query may get wrong
PATHS = [
    ("GET", "/queues/Q/info", "queue"),
    ("POST", "/queues/a_b/messages", "queue"),
    ("GET", "/queues/%s/consumers" % LONG, "queue"),
    ("DELETE", "/queues/q/consumers/a.b", "consumer"),
    ("POST", "/queues/q/consumers/c/members/a.b/touch", "member"),
    ("GET", "/queues/q/batches/x", "batch_id"),
    ("GET", "/queues/q/batches/0", "batch_id"),
    ("GET", "/queues/q/batches/1?payload=yes", "payload"),
    ("GET", "/queues/q/dlq?limit=0", "limit"),
    ("GET", "/queues/q/dlq?limit=x", "limit"),
    ("GET", "/queues/q/dlq?offset=-1", "offset"),
    ("GET", "/queues/q/dlq?cursor=!", "cursor"),
    ("GET", "/queues/q/dlq?cursor=eA", "cursor"),
    ("GET", "/queues/q/dlq?consumer=a.b", "consumer"),
    ("POST", "/queues/q/dlq/x/replay", "id"),
    ("DELETE", "/queues/q/dlq?older_than=soon", "older_than"),
    ("DELETE", "/queues/q/dlq?older_than=-1", "older_than"),
]
# nothing there: method, path, body, what is missing, its name
MISSING = [
    ("GET", "/queues/none/info", None, "queue", "none"),
    ("GET", "/queues/none/consumers", None, "queue", "none"),
    ("DELETE", "/queues/none/consumers/c", None, "queue", "none"),
    ("POST", "/queues/none/consumers/c/members/m/touch", None, "queue",
     "none"),
    ("POST", "/queues/none/receive", {"consumer": "c"}, "queue", "none"),
    ("GET", "/queues/none/batches/1", None, "queue", "none"),
    ("GET", "/queues/none/dlq", None, "queue", "none"),
    ("GET", "/queues/none/config", None, "queue", "none"),
    ("POST", "/queues/none/dlq/1/replay", None, "queue", "none"),
    ("POST", "/queues/none/dlq/replay", None, "queue", "none"),
    ("DELETE", "/queues/none/dlq", None, "queue", "none"),
    ("POST", "/streams/ack", {"queue": "none", "batch_id": 1}, "queue",
     "none"),
    ("POST", "/streams/nack", {"queue": "none", "batch_id": 1, "seq": 1},
     "queue", "none"),
    ("DELETE", "/queues/q/consumers/d", None, "consumer", "d"),
    ("POST", "/queues/q/consumers/d/members/m/touch", None, "consumer", "d"),
    ("POST", "/queues/q/receive", {"consumer": "d", "wait_ms": 5000},
     "consumer", "d"),
    ("POST", "/queues/q/consumers", {"consumer": "d", "from_tick": 77},
     "tick", "77"),
    ("GET", "/queues/q/batches/77", None, "batch", "77"),
    ("POST", "/streams/ack", {"queue": "q", "batch_id": 77}, "batch", "77"),
    ("POST", "/streams/nack", {"queue": "q", "batch_id": "77", "seq": "1"},
     "batch", "77"),
    ("POST", "/queues/q/dlq/77/replay", None, "dead_letter", "77"),
]


def test_bad_requests(ojs):
    ojs.append("q", GOOD)
    asked = [("POST", "/queues/q/" + where, body, field)
             for where, body, field in FIELDS]
    asked += [("POST", "/streams/" + where, body, field)
              for where, body, field in ENDS]
    asked += [(method, where, GOOD if method == "POST" else None, field)
              for method, where, field in PATHS]
    for method, where, body, field in asked:
        error = ojs.refused(method, where, body, 400, "invalid_request")
        assert error["details"]["field"] == field, (where, body, error)
        assert error["message"] and error["retryable"] is False
    error = ojs.refused("POST", "/queues/q/messages/batch",
                        {"messages": [GOOD] * 5 + [{}] + [GOOD]}, 400,
                        "invalid_request")
    assert error["details"] == {"field": "type", "index": 5}
    routes = ["/queues/q/" + w for w in (
        "messages", "messages/batch", "consumers", "receive", "config")]
    for where in routes + ["/streams/ack", "/streams/nack"]:
        for body in b"", b"[]", b"{", b"7", b'{"a":\xff}', b'{"a":1}}':
            ojs.refused("POST", where, body, 400, "invalid_payload")
    # none of it left a trace
    assert ojs.ask("GET", "/queues/q/info")["stream"]["last_seq"] == 1
    assert ojs.ask("GET", "/queues/q/consumers") == {"consumers": []}


def test_what_is_missing_is_named(ojs):
    ojs.append("q", GOOD)
    for method, where, body, what, name in MISSING:
        error = ojs.refused(method, where, body, 404, "not_found")
        assert error["details"] == {"resource": what, what: name}, where
        assert error["hint"] and error["docs_url"]
    for method, where in (("GET", "/queues/q/receive"),
                          ("DELETE", "/queues/q/messages"),
                          ("POST", "/queues/q/info"),
                          ("GET", "/streams/ack")):
        body = "{}" if method == "POST" else None
        reply = ojs.request(method, "/ojs/v1" + where, body)
        assert reply.status == 405 and reply.headers["Allow"]
        assert reply.body["error"]["code"] == "invalid_request"


def test_too_large(ojs):
    limit = 1 << 20

    def sized(n):
        body = {"type": "t", "payload": "p"}
        body["payload"] *= n - len(json.dumps(body)) + 1
        assert len(json.dumps(body)) == n
        return body

    ojs.ask("POST", "/queues/q/messages", sized(limit), 201)
    error = ojs.refused("POST", "/queues/q/messages", sized(limit + 1), 413,
                        "envelope_too_large")
    assert error["details"] == {"field": "message", "size": limit + 1,
                                "limit": limit}
    error = ojs.refused("POST", "/queues/q/messages/batch",
                        {"messages": [GOOD, sized(limit + 1)]}, 413,
                        "envelope_too_large")
    assert error["details"]["index"] == 1
    error = ojs.refused("POST", "/queues/q/messages",
                        {**GOOD, "headers": {"h": "x" * 65536}}, 413,
                        "envelope_too_large")
    assert error["details"]["field"] == "headers"
    # a body of many that fit is bounded as a whole
    with Raw(ojs) as raw:
        raw.send(b"POST /ojs/v1/queues/q/messages/batch HTTP/1.1\r\n"
                 b"Host: x\r\nContent-Length: %d\r\n\r\n"
                 % ((16 << 20) + 1))
        status, _, body = raw.answer()
        error = json.loads(body)["error"]
        assert (status, error["code"]) == (413, "envelope_too_large")


def test_quota(ojs):
    ojs.append("q", GOOD)
    ojs.db.rows("update queen.ojs_queues set max_events = 3")
    ojs.append("q", GOOD, GOOD)
    reply = ojs.request("POST", "/ojs/v1/queues/q/messages", GOOD)
    assert (reply.status, reply.body["error"]["code"]) == (429, "queue_full")
    assert reply.body["error"]["retryable"] is True
    assert int(reply.headers["Retry-After"]) > 0


def test_names_that_schemas_could_not_bear(ojs):
    for name in "a.b-c.0", "9" * 128, "select", "x--y..z":
        ojs.subscribe(name, "C_1-x")
        ojs.append(name, GOOD)
        assert ojs.receive(name, "C_1-x")["batch"]["size"] == 1
        ojs.ask("DELETE", "/queues/" + name)


@pytest.mark.cellenv(QUEEN_TENANCY_HEADER="true",
                     QUEEN_KV_TRUSTED_PROXY="true")
def test_ids_are_nothing_to_another_tenant(ojs):
    other = {"headers": {"x-queen-tenant": OTHER_TENANT}}
    ojs.subscribe("q", "c")
    ojs.append("q", GOOD)
    batch = ojs.receive("q", "c")["batch"]["id"]
    end = {"queue": "q", "batch_id": batch, "seq": 1}
    receive = {"consumer": "c"}
    ojs.refused("POST", "/queues/q/receive", receive, 404, "not_found",
                **other)
    # nor when it has a queue of that name
    ojs.ask("POST", "/queues/q/consumers", receive, 201, **other)
    assert ojs.ask("POST", "/queues/q/receive", receive, **other)[
        "batch"] is None
    for what in "ack", "nack":
        error = ojs.refused("POST", "/streams/" + what, end, 404, "not_found",
                            **other)
        assert error["details"]["resource"] == "batch"
    ojs.refused("GET", "/queues/q/batches/%d" % batch, None, 404, "not_found",
                **other)
    assert ojs.receive("q", "c")["batch"]["id"] == batch


@pytest.mark.cellenv(QUEEN_OJS_READ_ONLY="true")
def test_read_only(ojs, new_ojs):
    writer = new_ojs().start()
    writer.subscribe("q", "c")
    writer.append("q", GOOD)
    batch = writer.receive("q", "c")["batch"]["id"]
    for what in "info", "consumers", "config", "dlq", "batches/%d" % batch:
        ojs.ask("GET", "/queues/q/" + what)
    asked = [("POST", "/queues/q/" + w, b) for w, b in (
        ("messages", GOOD), ("messages/batch", {"messages": [GOOD]}),
        ("consumers", {"consumer": "d"}), ("receive", {"consumer": "c"}),
        ("config", {"max_retries": 1}), ("dlq/1/replay", None),
        ("dlq/replay", None), ("consumers/c/members/m/touch", None))]
    asked += [("POST", "/streams/" + w, {"queue": "q", "batch_id": batch,
                                         "seq": 1}) for w in ("ack", "nack")]
    asked += [("DELETE", "/queues/q/" + w, None) for w in (
        "consumers/c", "dlq?older_than=0")]
    for method, where, body in asked:
        ojs.refused(method, where, body, 403, "permission_denied")
    assert writer.receive("q", "c")["batch"]["id"] == batch

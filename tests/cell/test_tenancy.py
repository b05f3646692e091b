# SPDX-License-Identifier: Apache-2.0
"""Two tenants with the same names never meet; what one names of the other's
answers like a missing one."""
import re
import threading
import time

import pytest

from queenlib import NIL_TENANT, OTHER_TENANT, SAN, TENANT, wait_until
from rawhttp import Raw, error_of, exchange, request
from test_auth import table

ON = dict(QUEEN_TENANCY_HEADER="true", QUEEN_KV_TRUSTED_PROXY="true",
          QUEEN_KV_REQUIRE_GRANT="false")
A = {"x-queen-tenant": OTHER_TENANT}
B = {"x-queen-tenant": "00000000-0000-0000-0000-0000000000bb"}
NEVER = "019a0000-0000-7000-8000-000000000000"

pytestmark = pytest.mark.cellenv(**ON)


def bodies(messages):
    return [m["data"] for m in messages]


def test_the_header(cell):
    upper = {"x-queen-tenant": "AABBCCDD-1122-3344-5566-778899AABBCC"}
    cell.push("q", [1], headers=upper)
    lower = {"x-queen-tenant": "aabbccdd-1122-3344-5566-778899aabbcc"}
    assert cell.get("/api/v1/resources/queues/q", headers=lower).status == 200
    bad = {"error": "invalid x-queen-tenant header (must be a UUID)"}
    for text in ("x", "aabbccdd112233445566778899aabbcc",
                 "aabbccdd-1122-3344-5566-778899aabbcg",
                 "{aabbccdd-1122-3344-5566-778899aabbcc}"):
        reply = cell.get("/api/v1/resources/queues",
                         headers={"x-queen-tenant": text})
        assert (reply.status, reply.body) == (400, bad)
    reply = cell.get("/api/v1/resources/queues",
                     headers={"x-queen-tenant": NIL_TENANT})
    assert (reply.status, reply.body) == (403, {"error": "forbidden"})
    answer = exchange(cell, request("GET", "/api/v1/resources/queues", None,
                                    "x-queen-tenant: caf\xe9"))
    assert (answer[0], error_of(answer)) == (400, bad["error"])
    # a proxy that adds its own must have taken the client's away
    mine = "x-queen-tenant: " + OTHER_TENANT
    for fields in ([mine, mine], [mine, "X-Queen-Tenant: " + TENANT],
                   ["x-queen-tenant:", mine], [mine, "x-queen-tenant: "]):
        answer = exchange(cell, request("GET", "/api/v1/resources/queues",
                                        None, *fields))
        assert (answer[0], error_of(answer)) == (400, bad["error"]), fields
    cell.push("mine", [1])
    for headers in ({}, {"x-queen-tenant": ""}, {"x-queen-tenant": " "},
                    {"x-queen-tenant": TENANT}):
        assert cell.get("/api/v1/resources/queues/mine",
                        headers=headers).status == 200


def test_same_names_never_meet(cell):
    cell.push("q", ["a"], ids=["t"], headers=A)
    cell.push("q", ["b"], ids=["t"], headers=B)
    for group in (None, "g"):
        for headers, body in ((A, ["a"]), (B, ["b"]), ({}, [])):
            got = cell.pop("q", group=group, subscriptionMode="all",
                           batch=10, headers=headers)
            assert bodies(got) == body
    # the default tenant's queue is its own, made by its pop
    mine, = cell.get("/api/v1/resources/queues").body["queues"]
    assert (mine["name"], mine["messages"]["total"]) == ("q", 0)


def test_ids_of_another_tenant(cell):
    cell.push("q", ["a"], ids=["t"], headers=A)
    m, = cell.pop("q", group="g", subscriptionMode="all", headers=A)
    part, lease = m["partitionId"], m["leaseId"]
    cell.push("q", ["b"], headers=B)
    cell.pop("q", group="g", subscriptionMode="all", headers=B)
    # extend renews nothing
    path = "/api/v1/lease/%s/extend" % lease
    assert cell.post(path, {"seconds": 90}, headers=B).body["renewed"] == 0
    assert cell.post(path, {"seconds": 90}, headers=A).body["renewed"] == 1
    # messages and traces
    for method in ("GET", "DELETE"):
        reply = cell.request(method, "/api/v1/messages/%s/t" % part,
                             headers=B)
        assert reply.status == 404, reply
    assert cell.get("/api/v1/messages/%s/t" % part, headers=A).status == 200
    trace = {"partitionId": part, "transactionId": "t", "data": {"text": "x"}}
    assert cell.post("/api/v1/traces", trace, headers=B).status >= 400
    # ack alone, in a batch and in a transaction
    assert not cell.ack([m], group="g", headers=B)[0]["success"]
    reply = cell.post("/api/v1/transaction", {"operations": [
        {"type": "ack", "partitionId": part, "transactionId": "t",
         "consumerGroup": "g", "leaseId": lease}]}, headers=B)
    assert reply.body["success"] is False
    assert "partition not found" in reply.body["error"]
    assert cell.ack([m], group="g", headers=A)[0]["success"]


def test_no_route_shows_the_other_tenant(cell):
    """Every GET of a tenant's own data, asked as the other."""
    cell.push("secretqueue", ["secretbody"], ids=["secretid"],
              partition="secretpart", headers=A)
    m, = cell.pop("secretqueue", group="secretgroup", subscriptionMode="all",
                  headers=A)
    cell.post("/api/v1/traces", {
        "partitionId": m["partitionId"], "transactionId": "secretid",
        "traceNames": ["secrettrace"], "data": {"text": "secretdata"}},
        headers=A)
    cell.ack([m], group="secretgroup", status="dlq", error="secreterror",
             headers=A)
    seen = 0
    names = {"queue": "secretqueue", "group": "secretgroup",
             "partition": "secretpart", "partitionId": m["partitionId"],
             "transactionId": "secretid", "traceName": "secrettrace"}
    for method, pattern, _ in table():
        # a pop makes a queue of that name, of its own
        if method != "GET" or "/pop" in pattern or pattern.startswith(
                ("/metrics", "/auth")):
            continue
        path = re.sub(r"[:*](\w+)", lambda m: names.get(m.group(1), "x"),
                      pattern)
        reply = cell.get(path, headers=B)
        assert reply.status in (200, 401, 404), (path, reply)
        text = str(reply.body)
        for s in names.values():
            text = text.replace(s, "") if s in path else text
        assert "secret" not in text, (path, reply)
        seen += 1
    assert seen > 30


def test_rows_and_timers_of_two_tenants(cell):
    for headers, value in ((A, "a"), (B, "b")):
        reply = cell.post("/api/v1/kv", {"operations": [
            {"op": "put", "ns": "n", "key": "k", "value": value,
             "forever": True}]}, headers=headers)
        assert reply.body["results"][0]["applied"] is True, reply
        reply = cell.post("/api/v1/timers", {"operations": [
            {"op": "schedule", "queue": "q", "timerKey": "t",
             "delayMs": 3600000, "txn": "t", "payload": "ImEi"}]},
            headers=headers)
        assert reply.status == 200, reply
    for headers, value in ((A, "a"), (B, "b")):
        assert cell.get("/api/v1/kv/n/k", headers=headers).body[
            "value"] == value
        assert cell.get("/api/v1/timers/q/t", headers=headers).body["found"]
    assert cell.get("/api/v1/kv/n/k").body["found"] is False
    assert cell.get("/api/v1/timers/q/t").body["found"] is False
    assert cell.delete("/api/v1/timers/q/t", headers=A).status == 200
    assert not cell.get("/api/v1/timers/q/t", headers=A).body["found"]
    assert cell.get("/api/v1/timers/q/t", headers=B).body["found"]


@pytest.mark.cellenv(QUEEN_ENCRYPTION_KEY="ab" * 32)
def test_options_of_the_same_queue_name(cell, db):
    """Lease and sealing as each tenant has set them, whoever came first."""
    for headers, seconds, sealed in ((A, 600, True), (B, 60, False)):
        assert cell.post("/api/v1/configure", {"queue": "q", "options": {
            "leaseTime": seconds, "encryptionEnabled": sealed}},
            headers=headers).status == 200
    for _ in range(2):
        for headers in (A, B):
            cell.push("q", ["payload"], headers=headers)
    for headers in (A, B):
        assert bodies(cell.pop("q", group="g", subscriptionMode="all",
                               batch=10, headers=headers)) == ["payload"] * 2
    found = db.rows(
        "select q.tenant::text, bool_and(s.key_id is not null),"
        " bool_or(s.key_id is not null), max(extract(epoch from"
        " c.expires_at - c.acquired_at))::int from queen.queues q"
        " join queen.partitions p on p.queue_id = q.id"
        " join queen.segments s on s.partition_id = p.id"
        " join queen.consumers c on c.partition_id = p.id group by 1")
    assert sorted(found) == sorted([
        (A["x-queen-tenant"], True, True, 600),
        (B["x-queen-tenant"], False, False, 60)])


def gauge(cell, name):
    text = cell.get("/metrics/prometheus").body.decode()
    return int(re.search(r"^%s (\d+)$" % name, text, re.M).group(1))


@pytest.mark.amount
def test_naming_much_pins_no_memory(cell):
    """What a tenant has asked about once is forgotten within seconds when
    there is too much of it, and forgetting holds nobody up."""
    cell.push("q", [1], headers=A)
    asks = [("GET /api/v1/pop/queue/q?consumerGroup=g%d&wait=false HTTP/1.1"
             "\r\nHost: h\r\nx-queen-tenant: %s\r\n\r\n"
             % (i, A["x-queen-tenant"])).encode() for i in range(20100)]
    faults = []

    def ask(part):
        with Raw(cell, 60) as raw:
            raw.send(b"".join(part))
            seen = b""
            for _ in part:
                while b"\r\n\r\n" not in seen:
                    more = raw.sock.recv(65536)
                    if not more:
                        faults.append("closed")
                        return
                    seen += more
                head, seen = seen.split(b"\r\n\r\n", 1)
                if b" 204 " not in head.split(b"\r\n")[0]:
                    faults.append(head)
    threads = [threading.Thread(target=ask, args=(asks[n::16],))
               for n in range(16)]
    for t in threads:
        t.start()
    slowest = 0.0

    def swept():
        """Asked without the database: how long does the loop stand?"""
        nonlocal slowest
        began = time.monotonic()
        assert cell.get("/status").status == 200
        slowest = max(slowest, time.monotonic() - began)
        return not any(t.is_alive() for t in threads) and \
            gauge(cell, "queen_pop_rings") < 20000
    wait_until(swept, deadline_s=120)
    for t in threads:
        t.join()
    assert faults == []
    # there were more, and those of the last seconds are kept
    assert gauge(cell, "queen_pop_rings") > 0
    assert slowest < (10 if SAN else 1), "the loop stood still"
    # and all of it works as before
    assert bodies(cell.pop("q", group="fresh", subscriptionMode="all",
                           headers=A)) == [1]

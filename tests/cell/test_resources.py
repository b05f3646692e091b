# SPDX-License-Identifier: Apache-2.0
"""GET and DELETE below /resources: shapes, numbers, statuses."""
import re

from queenlib import OTHER_TENANT, wait_until

STAMP = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")
SIX = {"total", "pending", "processing", "completed", "failed", "deadLetter"}
RES = "/api/v1/resources"


def get(cell, path, status=200):
    # an answer that took long is served again for a while: ask anew
    cell.post("/api/v1/stats/refresh")
    reply = cell.get(RES + path)
    assert reply.status == status, reply
    return reply.body


def test_an_empty_cell(cell):
    assert get(cell, "/queues") == {"queues": []}
    assert get(cell, "/namespaces") == {"namespaces": []}
    assert get(cell, "/tasks") == {"tasks": []}
    body = get(cell, "/overview")
    assert STAMP.fullmatch(body.pop("timestamp"))
    assert body == {
        "queues": 0, "partitions": 0, "namespaces": 0, "tasks": 0,
        "messages": {"total": 0, "pending": 0, "processing": 0,
                     "completed": 0, "failed": None, "deadLetter": 0},
        "lag": {"time": {"avg": 0, "median": 0, "min": 0, "max": 0},
                "offset": {"avg": 0, "median": 0, "min": 0, "max": 0}},
        "throughput": {"ingestedPerSecond": 0, "processedPerSecond": 0},
        "statsAge": 0}


def test_list_and_describe(cell):
    cell.push("shop.orders", list(range(10)), partition="b")
    cell.push("shop.orders", [0], partition="a")
    cell.post("/api/v1/configure", {"queue": "empty"})
    taken = cell.pop("shop.orders", partition="b", batch=4)
    cell.ack(taken[:1])
    body = get(cell, "/queues")["queues"]
    assert [q["name"] for q in body] == ["empty", "shop.orders"]
    one = body[1]
    assert STAMP.fullmatch(one["createdAt"])
    assert one["retainedBytes"] > 0
    assert (one["namespace"], one["task"], one["partitions"]) == \
        ("shop", "orders", 2)
    assert one["messages"] == {"total": 11, "pending": 10, "processing": 3}
    assert one["segments"] == {"segments": 2, "messages": 11}
    assert set(one) == {"id", "name", "namespace", "task", "createdAt",
                        "options", "partitions", "retainedBytes", "segments",
                        "messages"}
    assert len(one["options"]) == 21
    assert get(cell, "/queues?namespace=nope&task=nope")["queues"] == body
    cheap = get(cell, "/queues?stats=cached")["queues"]
    assert [set(q) for q in cheap] == [set(q) for q in body]

    body = get(cell, "/queues/shop.orders")
    assert body["id"] == one["id"] and len(body["options"]) == 21
    assert [p["name"] for p in body["partitions"]] == ["a", "b"]
    a, b = body["partitions"]
    assert b["id"] == taken[0]["partitionId"]
    assert set(b) == {"id", "name", "createdAt", "stats", "oldestMessage",
                      "newestMessage"}
    assert b["stats"] == {"total": 10, "pending": 9, "processing": 3,
                          "completed": 1, "failed": None, "deadLetter": 0}
    assert a["stats"]["pending"] == 1
    assert b["oldestMessage"] == b["newestMessage"] == \
        taken[0]["createdAt"][:23] + "Z"
    assert body["totals"] == {"total": 11, "pending": 10, "processing": 3,
                              "completed": 1, "failed": None, "deadLetter": 0}


def test_depth(cell):
    cell.push("q", list(range(5)))
    cell.pop("q", group="g", subscriptionMode="all", batch=2)
    body = get(cell, "/queues/q/depth?group=g")
    assert body == {
        "queue": "q", "group": "g", "pending": 5, "processing": 2, "ready": 3,
        "partitionsPending": 1, "partitionsReady": 1, "conflation": False,
        "effectivePending": 5, "effectiveReady": 3,
        "partitions": [{"partition": "Default", "pending": 5, "processing": 2,
                        "ready": 3}]}
    assert get(cell, "/queues/q/depth") == dict(body, group=None)
    assert get(cell, "/queues/q/depth?group=") == dict(body, group=None)
    unknown = get(cell, "/queues/q/depth?group=other")
    assert (unknown["pending"], unknown["processing"]) == (5, 0)
    assert get(cell, "/queues/nope/depth", 404) == {"error": "Queue not found"}


def test_depth_of_a_conflating_group_counts_partitions(cell):
    for part in ("a", "b"):
        cell.push("q", list(range(5)), partition=part)
    assert cell.pop("q", group="c", subscriptionMode="all", conflation=True,
                    partitions=1)
    body = get(cell, "/queues/q/depth?group=c")
    assert body["conflation"] is True
    assert (body["pending"], body["effectivePending"]) == (10, 2)
    assert (body["ready"], body["effectiveReady"]) == (5, 1)


def test_delete_is_always_200_and_frees_the_name(cell):
    first = cell.push("q", [1], ids=["x"])
    old = get(cell, "/queues/q")["id"]
    reply = cell.delete(RES + "/queues/q")
    assert (reply.status, reply.body) == (
        200, {"deleted": True, "queue": "q", "existed": True})
    reply = cell.delete(RES + "/queues/q")
    assert (reply.status, reply.body) == (200, {
        "deleted": False, "queue": "q", "existed": False,
        "message": "Queue not found, nothing was deleted"})
    get(cell, "/queues/q", 404)
    again = cell.push("q", [2], ids=["x"])
    assert again[0]["status"] == "queued"
    assert again[0]["message_id"] != first[0]["message_id"]
    assert [m["data"] for m in cell.pop("q")] == [2]
    assert get(cell, "/queues/q")["id"] != old


def test_delete_on_one_process_is_seen_by_the_other(cells):
    one, two = cells(2)
    one.push("q", [1])
    two.push("q", [2])
    one.delete(RES + "/queues/q")
    assert two.push("q", [3])[0]["status"] == "queued"
    assert [m["data"] for m in two.pop("q")] == [3]
    assert get(two, "/queues/q")["totals"]["total"] == 1


def test_labels_and_overview(cell):
    for queue in ("a.x", "a.y", "b.x"):
        cell.push(queue, [1, 2])
    cell.pop("a.x", batch=2, autoAck=True)
    assert get(cell, "/namespaces") == {"namespaces": [
        {"namespace": "a", "queues": 2, "partitions": 2,
         "messages": {"total": 4, "pending": 2}},
        {"namespace": "b", "queues": 1, "partitions": 1,
         "messages": {"total": 2, "pending": 2}}]}
    assert get(cell, "/tasks") == {"tasks": [
        {"task": "x", "queues": 2, "partitions": 2,
         "messages": {"total": 4, "pending": 2}},
        {"task": "y", "queues": 1, "partitions": 1,
         "messages": {"total": 2, "pending": 2}}]}
    body = get(cell, "/overview")
    assert (body["queues"], body["partitions"], body["namespaces"],
            body["tasks"]) == (3, 3, 2, 2)
    assert set(body["messages"]) == SIX
    assert body["messages"]["completed"] == 2
    assert body["lag"]["offset"] == {"avg": 2, "median": 0, "min": 0,
                                     "max": 2}


def test_the_overview_carries_its_age_and_refresh_renews_it(cell):
    assert get(cell, "/overview")["queues"] == 0
    cell.push("q", [1])
    old = wait_until(lambda: (lambda b: b["statsAge"] > 0 and b)(
        cell.get(RES + "/overview").body))
    assert old["queues"] == 0
    new = get(cell, "/overview")
    assert (new["queues"], new["statsAge"]) == (1, 0)


def test_percent_encoded_names_and_bad_ones(cell):
    cell.push("a/b", [1])
    assert get(cell, "/queues/a%2Fb")["name"] == "a/b"
    assert get(cell, "/queues/a%2Fb/depth")["pending"] == 1
    for path, text in (("/queues/a%0Ab", "queue holds a control character"),
                       ("/queues/%FF", "percent-encoding is not UTF-8"),
                       ("/queues/" + "x" * 1025,
                        "queue is longer than 1024 bytes"),
                       ("/queues/a%2Fb/depth?group=%01",
                        "group holds a control character")):
        assert get(cell, path, 400) == {"error": text}, path
    assert get(cell, "/queues/nope", 404) == {"error": "Queue not found"}


def test_the_database_away_is_a_500(cell):
    cell.db.server.stop()
    reply = cell.get(RES + "/queues")
    assert reply.status == 500
    assert set(reply.body) == {"error"}


def test_other_tenants_see_nothing(cell):
    cell.push("q", [1])
    assert cell.db.value("select body from queen.queue_list_v1(%s, true)",
                         (OTHER_TENANT,)) == '{"queues" : []}'

# SPDX-License-Identifier: Apache-2.0
"""Pop: what is delivered, in which shape, and what is refused."""
import json
import re
import threading
import time

import pytest

from queenlib import wait_until

UUID = re.compile(r"^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")
STAMP = re.compile(r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z$")
ALL = {"subscriptionMode": "all"}


def raw_pop(cell, path, **kw):
    return cell.get("/api/v1/pop" + path, **kw)


def test_pop_answers_exact_keys_in_order(cell):
    cell.push("orders", [{"id": 77}], partition="cust-42", ids=["o-77"])
    reply = raw_pop(cell, "/queue/orders?consumerGroup=billing"
                    "&subscriptionMode=all")
    assert reply.status == 200
    top = reply.body
    assert list(top) == ["success", "queue", "partition", "partitionId",
                         "leaseId", "consumerGroup", "messages",
                         "partitionsClaimed"]
    assert (top["success"], top["queue"], top["partition"],
            top["consumerGroup"], top["partitionsClaimed"]) == (
                True, "orders", "cust-42", "billing", 1)
    m = top["messages"][0]
    assert list(m) == ["id", "transactionId", "traceId", "data",
                       "producerSub", "createdAt", "partitionId",
                       "partition", "leaseId", "consumerGroup",
                       "deliveryAttempt", "offset", "queue"]
    assert UUID.match(m["id"]) and UUID.match(m["partitionId"])
    assert UUID.match(m["leaseId"]) and STAMP.match(m["createdAt"])
    assert m["partitionId"] == top["partitionId"]
    assert m["leaseId"] == top["leaseId"]
    assert (m["transactionId"], m["traceId"], m["data"], m["producerSub"],
            m["partition"], m["consumerGroup"], m["deliveryAttempt"],
            m["offset"], m["queue"]) == (
                "o-77", None, {"id": 77}, None, "cust-42", "billing", 1, 0,
                "orders")


def test_group_less_pop_starts_at_the_beginning(cell):
    cell.push("q", [1, 2, 3])
    got = cell.pop("q")
    assert [m["data"] for m in got] == [1, 2, 3]
    assert got[0]["consumerGroup"] == "__QUEUE_MODE__"
    assert [m["offset"] for m in got] == [0, 1, 2]


def test_payload_bytes_come_back_verbatim(cell):
    text = '{"a" : 1.0e+2,\t"b":[ "\\u0000\\ud800é" ], "a":2}'
    body = '{"items":[{"queue":"q","payload":%s}]}' % text
    assert cell.post("/api/v1/push", body).status == 201
    conn = cell.http()
    try:
        conn.request("GET", "/api/v1/pop/queue/q")
        data = conn.getresponse().read().decode()
    finally:
        conn.close()
    assert '"data":%s,"producerSub"' % text in data


def test_leased_partition_is_skipped_until_acked(cell):
    cell.push("q", [1], partition="p")
    first = cell.pop("q")
    assert [m["data"] for m in first] == [1]
    cell.push("q", [2], partition="p")
    assert cell.pop("q") == []
    assert all(a["success"] for a in cell.ack(first))
    assert [m["data"] for m in cell.pop("q")] == [2]


def test_budget_is_shared_by_the_claimed_partitions(cell):
    for p in "abc":
        cell.push("q", [1, 2, 3], partition=p)
    got = cell.pop("q", batch=4, partitions=3)
    assert len(got) == 4
    assert len({m["partition"] for m in got}) == 2
    assert len({m["leaseId"] for m in got}) == 1


def test_partitions_zero_means_no_cap(cell):
    for p in range(10):
        cell.push("q", [p], partition="p%d" % p)
    got = cell.pop("q", partitions=0)
    assert sorted(m["data"] for m in got) == list(range(10))


def test_partitions_caps_the_claim(cell):
    for p in range(5):
        cell.push("q", [p], partition="p%d" % p)
    top = raw_pop(cell, "/queue/q?partitions=2").body
    assert top["partitionsClaimed"] == 2
    assert len(top["messages"]) == 2


def test_batch_below_one_is_one(cell):
    cell.push("q", [1, 2])
    assert [m["data"] for m in cell.pop("q", batch=0, autoAck=True)] == [1]
    assert [m["data"] for m in cell.pop("q", batch=-5, autoAck=True)] == [2]


def test_auto_ack_commits_and_gives_no_lease(cell):
    cell.push("q", [1, 2, 3])
    top = raw_pop(cell, "/queue/q?autoAck=true&batch=2").body
    assert top["leaseId"] == ""
    assert [m["data"] for m in top["messages"]] == [1, 2]
    assert {m["leaseId"] for m in top["messages"]} == {""}
    assert {m["deliveryAttempt"] for m in top["messages"]} == {1}
    assert [m["data"] for m in cell.pop("q", autoAck=True)] == [3]
    assert cell.pop("q", autoAck=True) == []


def test_pinned_pop_takes_only_its_partition(cell):
    cell.push("q", ["a"], partition="a/x")
    cell.push("q", ["b"], partition="b")
    got = cell.pop("q", partition="a/x")
    assert [(m["data"], m["partition"]) for m in got] == [("a", "a/x")]
    assert cell.pop("q", partition="a/x") == []
    assert [m["data"] for m in cell.pop("q", partition="b")] == ["b"]


def test_pinned_pop_of_missing_names_is_204_and_creates_nothing(cell, db):
    assert cell.pop("nope", partition="p") == []
    assert db.value("select count(*) from queen.queues") == 0
    cell.push("q", [1], partition="there")
    assert cell.pop("q", partition="nope") == []
    assert db.value("select count(*) from queen.partitions") == 1


def test_pinned_first_contact_registers_the_group(cell, db):
    cell.push("q", [1], partition="p")
    assert cell.pop("q", group="g", partition="p") == []
    assert db.rows("select name, mode from queen.groups") == [("g", "new")]
    cell.push("q", [2], partition="other")
    assert [m["data"] for m in cell.pop("q", group="g",
                                        partition="other")] == [2]


def test_wildcard_pop_on_missing_queue_creates_it_and_registers(cell, db):
    assert cell.pop("ns.task", group="g") == []
    assert db.rows("select name, namespace, task from queen.queues") == [
        ("ns.task", "ns", "task")]
    assert db.rows("select name, mode from queen.groups") == [("g", "new")]
    cell.push("ns.task", [1])
    assert [m["data"] for m in cell.pop("ns.task", group="g")] == [1]


STARTS = [
    ({}, "new", []),
    ({"subscriptionMode": "new"}, "new", []),
    ({"subscriptionMode": "new-only"}, "new", []),
    ({"subscriptionMode": "all"}, "all", [1]),
    ({"subscriptionMode": "banana"}, "all", [1]),
    ({"subscriptionFrom": "now"}, "new", []),
    ({"subscriptionFrom": "banana"}, "new", []),
    ({"subscriptionFrom": "2020-01-01T00:00:00Z",
      "subscriptionMode": "new"}, "timestamp", [1]),
    ({"subscriptionFrom": "2100-01-01T00:00:00Z",
      "subscriptionMode": "all"}, "timestamp", []),
]


@pytest.mark.parametrize("pinned", [False, True])
def test_first_contact_decides_where_a_group_starts(cell, db, pinned):
    cell.push("q", [1], partition="p")
    for i, (query, mode, seen) in enumerate(STARTS):
        group = "g%d" % i
        got = cell.pop("q", group=group, partition="p" if pinned else None,
                       **query)
        assert [m["data"] for m in got] == seen, query
        assert db.value("select mode from queen.groups where name = %s",
                        (group,)) == mode, query


@pytest.mark.cellenv(DEFAULT_SUBSCRIPTION_MODE="all")
def test_default_subscription_mode_is_a_setting(cell):
    cell.push("q", [1])
    assert [m["data"] for m in cell.pop("q", group="g")] == [1]
    assert cell.pop("q", group="h", subscriptionMode="new") == []


def test_later_modes_do_not_change_a_registered_group(cell, db):
    cell.push("q", [1])
    assert cell.pop("q", group="g") == []
    assert cell.pop("q", group="g", subscriptionMode="all") == []
    assert db.value("select mode from queen.groups") == "new"


def test_groups_read_independently(cell):
    cell.push("q", [1])
    for g in ("a", "b"):
        assert [m["data"] for m in cell.pop("q", group=g, **ALL)] == [1]


def test_discovery_spans_queues_with_the_label(cell, db):
    cell.push("ns.a", [1])
    cell.push("ns.b", [2])
    cell.push("other.a", [3])
    reply = raw_pop(cell, "?namespace=ns&consumerGroup=g"
                    "&subscriptionMode=all&partitions=10")
    assert reply.status == 200
    assert reply.body["queue"] == ""
    seen = {(m["queue"], m["data"]) for m in reply.body["messages"]}
    # at first contact the queues are met one after the other
    while len(seen) < 2:
        reply = raw_pop(cell, "?namespace=ns&consumerGroup=g&partitions=10")
        assert reply.status == 200
        seen |= {(m["queue"], m["data"]) for m in reply.body["messages"]}
    assert seen == {("ns.a", 1), ("ns.b", 2)}
    cell.push("ns.a", [3], partition="x")
    cell.push("ns.b", [4], partition="x")
    more = raw_pop(cell, "?namespace=ns&consumerGroup=g&partitions=10").body
    assert {(m["queue"], m["data"]) for m in more["messages"]} == {
        ("ns.a", 3), ("ns.b", 4)}
    assert more["partitionsClaimed"] == 2
    names = db.rows("select q.name from queen.groups g join queen.queues q"
                    " on q.id = g.queue_id order by 1")
    assert names == [("ns.a",), ("ns.b",)]
    both = raw_pop(cell, "?namespace=other&task=a&consumerGroup=g"
                   "&subscriptionMode=all").body
    assert [m["data"] for m in both["messages"]] == [3]
    assert raw_pop(cell, "?namespace=other&task=b").status == 204
    assert raw_pop(cell, "?namespace=nope").status == 204


def test_discovery_without_label_is_refused(common):
    for query in ("", "?namespace=", "?task=&namespace="):
        reply = raw_pop(common, query)
        assert (reply.status, reply.body) == (400, {
            "success": False, "error": "namespace or task is required",
            "messages": []})


WRONG = [
    ("batch=x", "bad query: batch is not an integer"),
    ("batch=1.5", "bad query: batch is not an integer"),
    ("batch=99999999999", "bad query: batch is out of range"),
    ("partitions=", "bad query: partitions is not an integer"),
    ("timeout=-1", "bad query: timeout is out of range"),
    ("leaseSeconds=ten", "bad query: leaseSeconds is not an integer"),
    ("wait=1", "bad query: wait is neither true nor false"),
    ("wait=TRUE", "bad query: wait is neither true nor false"),
    ("autoAck=yes", "bad query: autoAck is neither true nor false"),
    ("conflation=", "bad query: conflation is neither true nor false"),
    ("autopilot=on", "bad query: autopilot is neither true nor false"),
    ("consumerGroup=a%01b",
     "consumerGroup holds a control character (0x01)"),
]


def test_query_value_of_the_wrong_type_is_400_naming_it(common):
    for query, error in WRONG:
        for path in ("/queue/q", "/queue/q/partition/p", ""):
            reply = raw_pop(common, "%s?%s&task=t" % (path, query))
            assert (reply.status, reply.body) == (400, {"error": error})
    for query in ("consumerGroup=a%00b", "consumerGroup=%ff"):
        assert raw_pop(common, "/queue/q?" + query).status == 400


def test_unknown_parameters_and_autopilot_are_ignored(cell):
    cell.push("q", [1])
    got = raw_pop(cell, "/queue/q?autopilot=true&banana=1&consumerGroup=g"
                  "&subscriptionMode=all")
    assert got.status == 200
    assert "autopilot" not in got.body


def test_names_that_cannot_exist_are_400(common):
    assert raw_pop(common, "/queue/%07").status == 400
    assert raw_pop(common, "/queue/q/partition/" + "x" * 1025).status == 400
    assert raw_pop(common, "/queue/%c3%28").status == 400


def test_empty_pop_is_a_bodiless_204(cell):
    reply = raw_pop(cell, "/queue/q")
    assert reply.status == 204
    assert reply.body == b""
    assert reply.headers.get("Content-Length") is None


def test_pop_maintenance_answers_204_at_once(cell):
    cell.push("q", [1])
    on = cell.post("/api/v1/system/maintenance/pop", {"enabled": True})
    assert on.status == 200
    assert cell.pop("q", wait=True, wait_ms=20000) == []
    reply = raw_pop(cell, "/queue/q?consumerGroup=g&conflation=true")
    assert (reply.status, reply.body) == (200, {
        "messages": [], "paused": True, "conflation": True})
    cell.post("/api/v1/system/maintenance/pop", {"enabled": False})
    assert [m["data"] for m in cell.pop("q")] == [1]


def test_delayed_processing_hides_and_then_delivers(cell):
    cell.post("/api/v1/configure",
              {"queue": "q", "options": {"delayedProcessing": 2}})
    cell.push("q", [1, 2])
    assert cell.pop("q") == []
    assert cell.pop("q", partition="Default") == []
    start = time.monotonic()
    got = cell.pop("q", wait=True, wait_ms=10000)
    took = time.monotonic() - start
    assert [m["data"] for m in got] == [1, 2]
    assert 0.5 < took < 4


def test_taking_a_delay_away_shows_messages_at_once(cell):
    cell.post("/api/v1/configure",
              {"queue": "q", "options": {"delayedProcessing": 3600}})
    cell.push("q", [1])
    assert cell.pop("q") == []
    cell.post("/api/v1/configure",
              {"queue": "q", "options": {"delayedProcessing": 0}})
    wait_until(lambda: [m["data"] for m in cell.pop("q")] == [1],
               what="the message that was delayed")


def test_window_buffer_debounces_and_never_starves(cell):
    cell.post("/api/v1/configure",
              {"queue": "q", "options": {"windowBuffer": 2}})
    cell.push("q", [0])
    assert cell.pop("q") == []
    stop = threading.Event()

    def pusher():
        n = 1
        while not stop.wait(0.2):
            cell.push("q", [n])
            n += 1

    t = threading.Thread(target=pusher)
    t.start()
    try:
        got = cell.pop("q", wait=True, wait_ms=10000)
    finally:
        stop.set()
        t.join()
    assert got and got[0]["data"] == 0


def test_many_partitions_of_an_old_queue_are_all_found(cell):
    n = 500
    items = [{"queue": "q", "partition": "p%d" % i, "payload": i}
             for i in range(n)]
    assert cell.post("/api/v1/push", {"items": items}).status == 201
    seen = []
    while True:
        got = cell.pop("q", group="late", partitions=40, autoAck=True, **ALL)
        if not got:
            break
        seen += [m["data"] for m in got]
    assert sorted(seen) == list(range(n))


def test_no_partition_starves(cell):
    """One partition is always full; the others get their turn."""
    for p in range(8):
        cell.push("q", list(range(3)), partition="p%d" % p)
    cell.push("q", list(range(100)), partition="p0")
    order = []
    for _ in range(16):
        got = cell.pop("q", batch=1)
        order.append(got[0]["partition"])
        cell.ack(got)
    assert {order.count(p) for p in set(order)} == {2}


def test_concurrent_pops_never_share_a_partition(cell):
    n = 40
    items = [{"queue": "q", "partition": "p%d" % i, "payload": i}
             for i in range(n)]
    cell.post("/api/v1/push", {"items": items})
    got, lock = [], threading.Lock()

    def popper():
        while True:
            batch = cell.pop("q", partitions=3)
            if not batch:
                return
            with lock:
                got.extend(m["data"] for m in batch)

    threads = [threading.Thread(target=popper) for _ in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert sorted(got) == list(range(n))


def test_corrupt_segment_is_a_500_that_names_it(cell, db):
    cell.push("q", [1])
    db.rows("update queen.segments set blob = '\\x0100ff'")
    reply = raw_pop(cell, "/queue/q")
    assert reply.status == 500
    assert reply.body == {
        "error": "pop failed: frame longer than its segment: offset 0 of"
        ' partition "Default" of queue "q"'}
    assert db.value("select count(*) from queen.consumers"
                    " where lease_no is not null") == 0
    cell.push("q2", [1])
    assert [m["data"] for m in cell.pop("q2")] == [1]


def test_head_of_pop_claims_nothing_for_unknown_methods(cell):
    assert cell.post("/api/v1/pop/queue/q", {}).status in (404, 405)


def test_queue_deleted_and_created_anew_is_read_from_the_new_one(cell):
    cell.push("q", ["old"])
    assert [m["data"] for m in cell.pop("q")] == ["old"]
    assert cell.delete("/api/v1/resources/queues/q").status == 200
    cell.push("q", ["new"])
    wait_until(lambda: [m["data"] for m in cell.pop("q")] == ["new"],
               what="the message of the new queue")


def test_answer_is_json_for_hostile_names(cell):
    name = 'q"\\/é'
    cell.push(name, [1], partition='p"\\')
    got = cell.pop(name)
    assert (got[0]["queue"], got[0]["partition"]) == (name, 'p"\\')
    json.dumps(got)

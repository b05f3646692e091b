# SPDX-License-Identifier: Apache-2.0
"""Below /consumer-groups: listing, lag, subscription, delete."""
import re

from queenlib import wait_until

CG = "/api/v1/consumer-groups"
STAMP = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")


def get(cell, path="", status=200):
    # an answer that took long is served again for a while: ask anew
    cell.post("/api/v1/stats/refresh")
    reply = cell.get(CG + path)
    assert reply.status == status, reply
    return reply.body


def test_no_groups(cell):
    assert get(cell) == []
    assert get(cell, "/lagging") == []
    assert get(cell, "/nope") == {}


def test_the_list(cell):
    for part in ("a", "b"):
        cell.push("q", [1, 2, 3], partition=part)
    got = cell.pop("q", group="g", subscriptionMode="all", batch=2,
                   partition="a")
    cell.ack(got, group="g")
    body = get(cell)
    assert len(body) == 1
    one = body[0]
    assert one.pop("maxTimeLag") < 60
    assert STAMP.fullmatch(one.pop("subscriptionCreatedAt"))
    assert one == {
        "name": "g", "topics": ["q"], "queueName": "q", "members": 2,
        "partitionCursors": 2, "partitionsWithLag": 2, "totalLag": 4,
        "state": "Stable", "storage": "segments", "subscriptionMode": "all",
        "subscriptionTimestamp": "1970-01-01T00:00:00.000Z",
        "conflation": False}
    cell.pop("q", partition="b", batch=1)
    assert [(x["name"], x["state"]) for x in get(cell)] == [
        ("__QUEUE_MODE__", "Dead"), ("g", "Stable")]


def test_one_group_on_all_its_queues(cell):
    for queue in ("q", "r"):
        cell.push(queue, [1, 2])
    got = cell.pop("q", group="g", subscriptionMode="all", batch=1)
    cell.pop("r", group="g", subscriptionMode="all", batch=2, autoAck=True)
    body = get(cell, "/g")
    assert set(body) == {"q", "r"}
    one, = body["q"]["partitions"]
    assert one.pop("timeLagSeconds") < 60
    assert one == {"partition": "Default", "workerId": got[0]["leaseId"],
                   "lastConsumedAt": None, "totalConsumed": 0, "offsetLag": 2,
                   "leaseActive": True}
    assert body["r"] == {"conflation": False, "partitions": [
        {"partition": "Default", "workerId": None, "lastConsumedAt": None,
         "totalConsumed": 2, "offsetLag": 0, "timeLagSeconds": 0,
         "leaseActive": False}]}


def test_lagging(cell):
    cell.push("q", [1, 2])
    got = cell.pop("q", group="g", subscriptionMode="all", batch=1)
    assert get(cell, "/lagging") == []
    one, = get(cell, "/lagging?minLagSeconds=0")
    assert STAMP.fullmatch(one.pop("oldest_unconsumed_at"))
    assert one.pop("time_lag_seconds") < 60
    assert one == {
        "consumer_group": "g", "queue_name": "q", "partition_name": "Default",
        "partition_id": got[0]["partitionId"],
        "worker_id": got[0]["leaseId"], "offset_lag": 2,
        "lag_hours": one["lag_hours"], "last_consumed_at": None}
    for bad in ("x", "-1", "1.5"):
        assert get(cell, "/lagging?minLagSeconds=" + bad, 400) == {
            "error": "minLagSeconds must be an integer from 0 up, got '%s'"
            % bad}


def test_subscription(cell):
    cell.push("q", [1])
    cell.pop("q", group="g")
    path = CG + "/g/subscription"
    reply = cell.post(path, {"subscriptionTimestamp": "2026-09-01T10:00:00+02:00"})
    assert (reply.status, reply.body) == (200, {
        "success": True, "consumerGroup": "g",
        "newTimestamp": "2026-09-01T08:00:00.000Z", "rowsUpdated": 1})
    assert get(cell)[0]["subscriptionTimestamp"] == "2026-09-01T08:00:00.000Z"
    reply = cell.post(CG + "/nope/subscription",
                      {"subscriptionTimestamp": "2026-09-01"})
    assert (reply.status, reply.body["rowsUpdated"]) == (200, 0)
    for body, text in (
            ({}, "subscriptionTimestamp is required"),
            ({"subscriptionTimestamp": ""},
             "subscriptionTimestamp is required"),
            ({"subscriptionTimestamp": None},
             "subscriptionTimestamp is required"),
            ({"subscriptionTimestamp": 5},
             "bad body: subscriptionTimestamp must be a string"),
            ({"subscriptionTimestamp": "soon"},
             "subscriptionTimestamp must be an ISO 8601 time, got 'soon'")):
        reply = cell.post(path, body)
        assert (reply.status, reply.body) == (400, {"error": text})
    for body in (b"", b"{", b"[]"):
        reply = cell.post(path, body)
        assert reply.status == 400
        assert re.fullmatch(r"bad body: .+ at offset \d+",
                            reply.body["error"])


def test_delete_makes_the_next_pop_a_first_contact(cell):
    cell.push("q", [1, 2])
    cell.push("r", [3])
    for queue in ("q", "r"):
        assert cell.pop(queue, group="g", subscriptionMode="all", batch=1,
                        autoAck=True)
    reply = cell.delete(CG + "/g/queues/q")
    assert (reply.status, reply.body) == (200, {
        "success": True, "consumerGroup": "g", "queueName": "q",
        "deletedPartitions": 1, "metadataDeleted": True})
    assert set(get(cell, "/g")) == {"r"}
    assert [m["data"] for m in cell.pop("q", group="g",
                                        subscriptionMode="all")] == [1, 2]
    reply = cell.delete(CG + "/g")
    assert (reply.status, reply.body) == (200, {
        "success": True, "consumerGroup": "g", "deletedPartitions": 2,
        "metadataDeleted": True})
    assert get(cell, "/g") == {}
    reply = cell.delete(CG + "/g")
    assert reply.body["deletedPartitions"] == 0


def test_delete_keeping_metadata_seeds_from_the_subscription(cell):
    cell.push("q", [1])
    assert cell.pop("q", group="g", subscriptionMode="all", autoAck=True)
    for word in ("false", "0", "no"):
        reply = cell.delete(CG + "/g?deleteMetadata=" + word)
        assert reply.body["metadataDeleted"] is False
        assert get(cell)[0]["subscriptionMode"] == "all"
        # asked for `new`, but it is no first contact
        assert cell.pop("q", group="g", subscriptionMode="new", autoAck=True)
    reply = cell.delete(CG + "/g?deleteMetadata=maybe")
    assert (reply.status, reply.body) == (400, {
        "error": "deleteMetadata must be true or false, got 'maybe'"})


def test_delete_ends_leases_and_wakes_parked_pops_everywhere(cells):
    one, two = cells(2)
    one.push("q", [1])
    assert one.pop("q", group="g", subscriptionMode="all", leaseSeconds=600)
    one.delete(CG + "/g?deleteMetadata=false")
    assert wait_until(lambda: two.pop("q", group="g"))


def test_bad_names_in_paths(cell):
    for path in ("/%FF", "/a%00"):
        assert cell.get(CG + path).status == 400
        assert cell.delete(CG + path).status == 400
        assert cell.delete(CG + "/g/queues" + path).status == 400

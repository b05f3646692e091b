# SPDX-License-Identifier: Apache-2.0
"""Seek of a queue and of one partition, to end, timestamp and offset."""
import re
import threading

from queenlib import wait_until

CG = "/api/v1/consumer-groups"


def seek(cell, body, queue="q", partition=None, group="g"):
    path = "%s/%s/queues/%s" % (CG, group, queue)
    if partition is not None:
        path += "/partitions/" + partition
    return cell.post(path + "/seek", body)


def data(messages):
    return [m["data"] for m in messages]


def filled(cell, parts=("Default",)):
    for part in parts:
        for i in range(3):
            cell.push("q", [3 * i, 3 * i + 1, 3 * i + 2], partition=part)
    assert len(cell.pop("q", group="g", subscriptionMode="all", batch=100,
                        partitions=10, autoAck=True)) == 9 * len(parts)


def test_queue_to_a_timestamp_and_to_the_end(cell):
    filled(cell, ("a", "b"))
    reply = seek(cell, {"timestamp": "2020-01-01T00:00:00+01:00"})
    assert (reply.status, reply.body) == (200, {
        "success": True, "consumerGroup": "g", "queueName": "q",
        "seekToEnd": False, "targetTimestamp": "2019-12-31T23:00:00.000Z",
        "partitionsUpdated": 2})
    assert len(cell.pop("q", group="g", batch=100, partitions=10)) == 18
    reply = seek(cell, {"toEnd": True})
    assert (reply.status, reply.body) == (200, {
        "success": True, "consumerGroup": "g", "queueName": "q",
        "seekToEnd": True, "targetTimestamp": None, "partitionsUpdated": 2})
    assert cell.pop("q", group="g", batch=100, partitions=10) == []
    cell.push("q", ["new"], partition="a")
    assert data(cell.pop("q", group="g")) == ["new"]


def test_partition_to_each_target(cell):
    filled(cell, ("a", "b"))
    at = cell.get("/api/v1/messages?queue=q&partition=a").body["messages"]
    stamp = cell.db.value(
        "select queen.iso_us_v1(s.created_at) from queen.segments s"
        " join queen.partitions p on p.id = s.partition_id"
        " where p.name = 'a' and s.base_offset = 3")
    assert len(at) == 9
    reply = seek(cell, {"timestamp": stamp}, partition="a")
    assert (reply.status, reply.body) == (200, {
        "success": True, "consumerGroup": "g", "queueName": "q",
        "partitionName": "a", "seekToEnd": False,
        "targetTimestamp": stamp[:23] + "Z", "updated": True})
    assert data(cell.pop("q", group="g", batch=100)) == [3, 4, 5, 6, 7, 8]
    reply = seek(cell, {"offset": 7}, partition="a")
    assert (reply.status, reply.body) == (200, {
        "success": True, "consumerGroup": "g", "queueName": "q",
        "partitionName": "a", "seekToEnd": False, "targetTimestamp": None,
        "targetOffset": 7, "updated": True})
    assert data(cell.pop("q", group="g", batch=100)) == [7, 8]
    for body in ({"toEnd": True}, b"", {"offset": 9}, {"offset": 10 ** 15},
                 {"toEnd": True, "timestamp": "2020-01-01", "offset": 0}):
        seek(cell, {"offset": 0}, partition="a")
        reply = seek(cell, body, partition="a")
        assert reply.status == 200
        assert cell.pop("q", group="g") == []
    assert seek(cell, b"", partition="a").body["seekToEnd"] is True


def test_refusals(cell):
    filled(cell)
    must = {"error": "Must specify toEnd=true or a timestamp"}
    for part in (None, "Default"):
        for body, want in (
                ({}, must), ({"toEnd": False}, must),
                ({"toEnd": None, "timestamp": None, "offset": None}, must),
                ({"timestamp": ""}, must),
                ({"toEnd": "true"},
                 {"error": "bad body: toEnd must be a boolean"}),
                ({"toEnd": 1}, {"error": "bad body: toEnd must be a boolean"}),
                ({"timestamp": 5},
                 {"error": "bad body: timestamp must be a string"}),
                ({"timestamp": "yesterday"},
                 {"error": "timestamp must be an ISO 8601 time, got "
                  "'yesterday'"}),
                ({"offset": -1},
                 {"error": "bad body: offset must be an integer from 0 up"}),
                ({"offset": 1.5},
                 {"error": "bad body: offset must be an integer from 0 up"}),
                ({"offset": "1"},
                 {"error": "bad body: offset must be an integer from 0 up"})):
            reply = seek(cell, body, partition=part)
            assert (reply.status, reply.body) == (400, want), body
        for body in (b"{", b"[]", b'{"toEnd":true'):
            reply = seek(cell, body, partition=part)
            assert reply.status == 400
            assert re.fullmatch(r"bad body: .+ at offset \d+",
                                reply.body["error"])
    assert seek(cell, {"offset": 1}).body == must
    reply = seek(cell, b"")
    assert reply.status == 400
    assert reply.body["error"].startswith("bad body: ")


def test_unknown_targets_are_404(cell):
    cell.post("/api/v1/configure", {"queue": "bare"})
    cell.push("q", [1])
    for queue in ("nope", "bare"):
        reply = seek(cell, {"toEnd": True}, queue)
        assert (reply.status, reply.body) == (404, {
            "success": False,
            "error": "Queue not found or has no partitions",
            "consumerGroup": "g", "queueName": queue,
            "partitionsUpdated": 0})
    for queue, part in (("nope", "Default"), ("q", "nope")):
        reply = seek(cell, {"toEnd": True}, queue, part)
        assert (reply.status, reply.body) == (404, {
            "success": False, "error": "Partition not found"})


def test_a_seek_ends_the_lease(cell):
    filled(cell)
    for part in ("Default", None):
        seek(cell, {"timestamp": "2020-01-01"}, partition=part)
        got = cell.pop("q", group="g", batch=4, leaseSeconds=600)
        assert data(got) == [0, 1, 2, 3]
        seek(cell, {"timestamp": "2020-01-01"}, partition=part)
        refused, = cell.ack(got[:1], group="g")
        assert refused["success"] is False
        if part:
            assert refused["error"] == "invalid or expired lease"
        assert data(cell.pop("q", group="g", batch=2)) == [0, 1]


def test_a_seek_wakes_parked_pops_here_and_there(cells):
    one, two = cells(2)
    filled(one)
    for cell, part in ((one, None), (two, None), (one, "Default"),
                       (two, "Default")):
        got = []
        thread = threading.Thread(target=lambda: got.extend(
            two.pop("q", group="g", batch=100, wait=True, wait_ms=20000,
                    autoAck=True)))
        thread.start()
        wait_until(lambda: b'queen_parked_long_polls{queue="q"' in two.get(
            "/metrics/prometheus").body)
        assert seek(cell, {"timestamp": "2020-01-01"},
                    partition=part).status == 200
        thread.join(20)
        assert data(got) == list(range(9)), (cell.name, part)


def test_other_groups_are_untouched(cell):
    filled(cell)
    assert len(cell.pop("q", group="h", subscriptionMode="all", batch=5,
                        autoAck=True)) == 5
    seek(cell, {"timestamp": "2020-01-01"})
    assert data(cell.pop("q", group="h", batch=100)) == [5, 6, 7, 8]

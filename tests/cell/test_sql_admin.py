# SPDX-License-Identifier: Apache-2.0
"""490 to 540: what the management routes read and write, without HTTP."""
import datetime
import json
import threading
import uuid

import pytest

from queenlib import OTHER_TENANT, TENANT, wait_until
from sqlkit import Kit, at, mid

TAG = 0x5eed00c0ffee


@pytest.fixture
def kit(db):
    return Kit(db.connect())


def call(kit, sql, *args):
    """(status, body) of a route's function."""
    status, body = kit.rows("select status, body from queen." + sql, *args)[0]
    return status, json.loads(body)


def configure(kit, name="q", replace=False, tenant=TENANT, **options):
    kinds = {bool: "bool", int: "number", float: "number", str: "string",
             type(None): "null", list: "other", dict: "other"}
    return call(
        kit, "queue_configure_v1(%s, %s, %s::text[], %s::text[], %s::text[],"
        " %s)", tenant, name, list(options),
        [kinds[type(v)] for v in options.values()],
        [v if isinstance(v, str) else json.dumps(v)
         for v in options.values()], replace)


def entity(kind, number):
    return str(uuid.UUID(int=TAG << 80 | (0x8000 | kind << 8) << 64
                         | 1 << 63 | number))


def dead(kit, queue, part, offset, group="g", txn="t", when=None,
         frame=None, row=None):
    kit.rows("insert into queen.dead_letters (id, queue_id, partition_id,"
             " group_name, message_offset, id_hash, frame, error, retries,"
             " created_at, failed_at) values (%s, %s, %s, %s, %s, %s, %s,"
             " 'boom', 3, %s, %s)", row or str(uuid.uuid4()), queue, part,
             group, offset, mid(txn), frame, when or at(0), when or at(0))


# Wire forms

def test_ids_are_built_as_the_library_builds_them(kit):
    assert str(kit.value("select queen.wire_id_v1(1, 7)")) == entity(1, 7)
    assert str(kit.value("select queen.wire_id_v1(2, (1::bigint << 61) + 5)")
               ) == entity(2, (1 << 61) + 5)
    part, group, no = (1 << 46) - 3, (1 << 34) - 5, (1 << 42) - 7
    free = part << 76 | group << 42 | no
    want = uuid.UUID(int=(free >> 74) << 80 | 8 << 76
                     | (free >> 62 & 0xfff) << 64 | 2 << 62
                     | free & ((1 << 62) - 1))
    assert str(kit.value("select queen.wire_lease_v1(%s, %s, %s)",
                         part, group, no)) == str(want)


def test_times_are_utc_whatever_the_zone(kit):
    kit.rows("set timezone = 'Asia/Kolkata'")
    assert kit.rows(
        "select queen.iso_ms_v1(t), queen.iso_us_v1(t) from (values"
        " (timestamptz '2026-09-03 11:02:44.512873+00')) v(t)") == [
            ("2026-09-03T11:02:44.512Z", "2026-09-03T11:02:44.512873Z")]
    assert kit.value("select queen.iso_ms_v1('infinity')") is None


# Configure

DEFAULTS = {
    "leaseTime": 300, "retryLimit": 3, "deadLetterQueue": True,
    "dlqAfterMaxRetries": True, "delayedProcessing": 0, "windowBuffer": 0,
    "minPopWaitTime": 0, "retentionEnabled": False, "retentionSeconds": 0,
    "completedRetentionSeconds": 0, "maxWaitTimeSeconds": 0,
    "encryptionEnabled": False, "dedupWindowSeconds": 3600,
    "retentionSinkHold": "", "retentionSinkHoldMaxSeconds": 604800,
    "priority": 0, "ttl": 3600, "maxSize": 0, "retryDelay": 1000}


def test_a_new_queue_has_the_defaults_of_configure(kit):
    status, body = configure(kit)
    row = kit.value("select id from queen.queues")
    assert status == 200
    assert body == {
        "configured": True, "queueId": entity(1, row), "partitionId": None,
        "queue": "q", "namespace": "", "task": "", "storage": "segments",
        "options": DEFAULTS}


def test_merge_keeps_what_is_absent_and_null_restores_the_default(kit):
    kit.queue("ns.task")     # made by a push: lease 60, labels of the name
    status, body = configure(kit, "ns.task", retentionSeconds=5, priority=9)
    assert (status, body["namespace"], body["task"]) == (200, "ns", "task")
    assert body["options"] == dict(DEFAULTS, leaseTime=60, priority=9,
                                   retentionSeconds=5)
    status, body = configure(kit, "ns.task", priority=None, ttl=1)
    assert body["options"] == dict(DEFAULTS, leaseTime=60, retentionSeconds=5,
                                   ttl=1)


def test_replace_sets_what_is_absent_to_its_default(kit):
    kit.queue("ns.task")
    status, body = configure(kit, "ns.task", True, priority=9)
    assert (body["namespace"], body["task"]) == ("", "")
    assert body["options"] == dict(DEFAULTS, priority=9)


def test_a_bad_value_writes_nothing(kit):
    configure(kit, ttl=5)
    assert configure(kit, ttl=7, leaseTime="abc") == (400, {
        "error": "leaseTime must be an integer, got 'abc'",
        "invalid": "leaseTime"})
    assert configure(kit, "fresh", leaseTime=0)[0] == 400
    assert kit.rows("select name, ttl_s from queen.queues") == [("q", 5)]


def test_configure_moves_changed_at_so_that_scans_see_it(kit):
    configure(kit)
    before = kit.value("select changed_at from queen.queues")
    configure(kit, ttl=1)
    assert kit.value("select changed_at from queen.queues") > before


def test_edits_of_one_queue_come_one_after_the_other(kit, db):
    configure(kit)
    other = Kit(db.connect())
    kit.conn.autocommit = False
    configure(kit, ttl=1)
    done = []
    thread = threading.Thread(
        target=lambda: done.append(configure(other, priority=2)))
    thread.start()
    wait_until(lambda: db.value("select count(*) from pg_locks"
                                " where not granted"))
    kit.conn.commit()
    thread.join(30)
    options = done[0][1]["options"]
    assert (options["ttl"], options["priority"]) == (1, 2)


def test_two_creates_of_one_name_make_one_queue(kit, db):
    other = Kit(db.connect())
    kit.conn.autocommit = False
    first = configure(kit, ttl=1)[1]
    done = []
    thread = threading.Thread(
        target=lambda: done.append(configure(other, priority=2)))
    thread.start()
    wait_until(lambda: db.value("select count(*) from pg_locks"
                                " where not granted"))
    kit.conn.commit()
    thread.join(30)
    body = done[0][1]
    assert body["queueId"] == first["queueId"]
    assert (body["options"]["ttl"], body["options"]["priority"]) == (1, 2)


# Delete

def test_delete_frees_the_name_and_hides_the_queue(kit):
    q = kit.queue("q")
    a = kit.part(q, "a")
    kit.push(a)
    dead(kit, q, a, 0)
    assert call(kit, "queue_delete_v1(%s, 'q')", TENANT) == (
        200, {"deleted": True, "queue": "q", "existed": True})
    assert call(kit, "queue_get_v1(%s, 'q')", TENANT) == (
        404, {"error": "Queue not found"})
    assert call(kit, "queue_list_v1(%s, true)", TENANT)[1] == {"queues": []}
    assert kit.rows("select * from queen.dead_list_v1(%s, null, null, null,"
                    " null, null, 10, 0)", TENANT) == []
    assert call(kit, "queue_delete_v1(%s, 'q')", TENANT) == (200, {
        "deleted": False, "queue": "q", "existed": False,
        "message": "Queue not found, nothing was deleted"})
    assert kit.queue("q") != q


# The arithmetic

def stats(kit, now=None):
    body = call(kit, "queue_get_v1(%s, 'q', %s)", TENANT, now)[1]
    return {p["name"]: p["stats"] for p in body["partitions"]}


def six(total, pending, processing, completed, dead_n=0):
    return {"total": total, "pending": pending, "processing": processing,
            "completed": completed, "failed": None, "deadLetter": dead_n}


def test_without_a_group_everything_is_pending(kit):
    kit.push(kit.part(kit.queue("q"), "a"), 5)
    assert stats(kit) == {"a": six(5, 5, 0, 0)}


def test_the_slowest_named_group_counts_and_queue_mode_only_alone(kit):
    q = kit.queue("q")
    a = kit.part(q, "a")
    kit.push(a, 10, now=at(0))
    own = kit.group(q, "__QUEUE_MODE__")
    assert kit.pop([a], own, 1, 4, auto=True)
    assert stats(kit) == {"a": six(10, 6, 0, 4)}
    g = kit.group(q, "g")
    assert stats(kit) == {"a": six(10, 10, 0, 0)}   # derived: log_start - 1
    kit.pop([a], g, 2, 7, auto=True)
    kit.group(q, "h")
    kit.pop([a], kit.group(q, "h"), 3, 2, auto=True)
    assert stats(kit) == {"a": six(10, 8, 0, 2)}


def test_a_group_without_a_row_counts_from_its_start(kit):
    q = kit.queue("q")
    a, b, c = kit.parts(q, ["a", "b", "c"])
    for i in range(4):
        kit.push(a, 5, now=at(10 * i))
    kit.push(b, 3, now=at(0))
    kit.push(c, 2, now=at(60))
    kit.group(q, "g", "timestamp", at(15), now=at(100))
    assert stats(kit) == {"a": six(20, 10, 0, 10), "b": six(3, 0, 0, 3),
                          "c": six(2, 2, 0, 0)}


def test_processing_is_what_live_leases_hold(kit):
    q = kit.queue("q")
    a = kit.part(q, "a")
    kit.push(a, 10, now=at(0))
    g = kit.group(q, "g")
    kit.pop([a], g, 1, 4, secs=30, now=at(10))
    assert stats(kit, at(11)) == {"a": six(10, 10, 4, 0)}
    assert stats(kit, at(41)) == {"a": six(10, 10, 0, 0)}
    h = kit.group(q, "h")
    kit.pop([a], h, 2, 9, secs=30, now=at(10))
    # never more than pending
    assert stats(kit, at(11)) == {"a": six(10, 10, 10, 0)}


def test_only_the_newest_generation_of_a_cursor_counts(kit):
    q = kit.queue("q")
    a = kit.part(q, "a")
    kit.push(a, 100)
    g = kit.group(q, "g")
    for _ in range(70):
        kit.pop([a], g, 1, 1, auto=True)
    assert kit.value("select max(gen) from queen.consumers") > 0
    assert stats(kit) == {"a": six(100, 30, 0, 70)}
    kit.rows("insert into queen.consumers (group_id, partition_id, gen,"
             " committed) select group_id, partition_id, gen - 1, 3"
             " from queen.consumers")
    assert stats(kit) == {"a": six(100, 30, 0, 70)}


def test_retention_and_dead_letters_in_the_numbers(kit):
    q = kit.queue("q")
    a = kit.part(q, "a")
    kit.push(a, 4, now=at(0))
    kit.push(a, 6, now=at(5))
    g = kit.group(q, "g")
    kit.drop_segments(a, 3)
    assert stats(kit) == {"a": six(6, 6, 0, 0)}
    kit.pop([a], g, 1, 5, auto=True)
    dead(kit, q, a, 5)
    assert stats(kit) == {"a": six(6, 1, 0, 4, 1)}
    kit.drop_segments(a, 9)
    assert stats(kit) == {"a": six(0, 0, 0, 0, 1)}


def test_queue_get_sorts_partitions_and_names_the_oldest_pending(kit):
    q = kit.queue("q")
    z, a = kit.parts(q, ["z", "a"])
    kit.push(a, 4, now=at(0))
    kit.push(a, 4, now=at(7))
    g = kit.group(q, "g")
    kit.pop([a], g, 1, 4, auto=True, now=at(8))
    body = call(kit, "queue_get_v1(%s, 'q')", TENANT)[1]
    assert [p["name"] for p in body["partitions"]] == ["a", "z"]
    one, none = body["partitions"]
    assert one["id"] == entity(2, a)
    assert one["oldestMessage"] == one["newestMessage"] == \
        "2026-01-01T00:00:07.000Z"
    assert none["oldestMessage"] is None and none["newestMessage"] is None
    assert body["totals"] == six(8, 4, 0, 4)
    assert body["segments"] == {"segments": 2, "messages": 8}
    assert body["retainedBytes"] == 24
    assert body["options"] == dict(DEFAULTS, leaseTime=60, namespace="q",
                                   task="")
    assert set(body) == {"id", "name", "namespace", "task", "createdAt",
                         "options", "partitions", "totals", "retainedBytes",
                         "segments"}


def test_queue_list_numbers_and_the_cheap_variant(kit):
    q = kit.queue("b.x")
    a = kit.part(q, "a")
    kit.push(a, 5)
    configure(kit, "a")
    body = call(kit, "queue_list_v1(%s, true)", TENANT)[1]["queues"]
    assert [x["name"] for x in body] == ["a", "b.x"]
    created = body[1].pop("createdAt")
    assert len(created) == 24 and created.endswith("Z")
    options = body[1].pop("options")
    assert (options["leaseTime"], options["priority"]) == (60, 0)
    assert body[1] == {
        "id": entity(1, q), "name": "b.x", "namespace": "b", "task": "x",
        "partitions": 1, "retainedBytes": 12,
        "segments": {"segments": 1, "messages": 5},
        "messages": {"total": 5, "pending": 5, "processing": 0}}
    body = call(kit, "queue_list_v1(%s, false)", TENANT)[1]["queues"]
    assert body[1]["partitions"] == 1
    assert body[1]["messages"] == {"total": 0, "pending": 0, "processing": 0}
    assert call(kit, "queue_list_v1(%s, true)", OTHER_TENANT)[1] == \
        {"queues": []}


def test_depth_of_a_group_and_of_the_slowest(kit):
    q = kit.queue("q")
    a, b = kit.parts(q, ["a", "b"])
    kit.push(a, 6, now=at(0))
    kit.push(b, 2, now=at(0))
    g = kit.group(q, "g")
    kit.pop([a], g, 1, 4, auto=True, now=at(1))
    kit.pop([b], g, 2, 2, secs=60, now=at(1))
    want = {"queue": "q", "group": "g", "pending": 4, "processing": 2,
            "ready": 2, "partitionsPending": 2, "partitionsReady": 1,
            "conflation": False, "effectivePending": 4, "effectiveReady": 2,
            "partitions": [
                {"partition": "a", "pending": 2, "processing": 0, "ready": 2},
                {"partition": "b", "pending": 2, "processing": 2,
                 "ready": 0}]}
    assert call(kit, "depth_v1(%s, 'q', 'g', %s)", TENANT, at(2)) == \
        (200, want)
    assert call(kit, "depth_v1(%s, 'q', null, %s)", TENANT, at(2)) == \
        (200, dict(want, group=None))
    kit.rows("update queen.groups set conflated = true")
    body = call(kit, "depth_v1(%s, 'q', 'g', %s)", TENANT, at(2))[1]
    assert (body["conflation"], body["effectivePending"],
            body["effectiveReady"]) == (True, 2, 1)
    # a group nobody registered: the whole log
    body = call(kit, "depth_v1(%s, 'q', 'x', %s)", TENANT, at(2))[1]
    assert (body["pending"], body["processing"], body["group"]) == (8, 0, "x")
    assert call(kit, "depth_v1(%s, 'nope', null)", TENANT) == \
        (404, {"error": "Queue not found"})


def test_overview_and_labels(kit):
    q = kit.queue("n.t")
    a = kit.part(q, "a")
    kit.push(a, 5, now=at(0))
    configure(kit, "bare")
    g = kit.group(q, "g")
    kit.pop([a], g, 1, 2, secs=60, now=at(30))
    kit.rows("insert into queen.queue_minutes (minute, queue_id,"
             " push_messages, ack_success) values (%s, %s, 600, 150)",
             at(0), q)
    status, body = call(kit, "overview_v1(%s, %s)", TENANT, at(40))
    assert status == 200
    assert body == {
        "queues": 2, "partitions": 1, "namespaces": 1, "tasks": 1,
        "messages": {"total": 5, "pending": 3, "processing": 2,
                     "completed": 0, "failed": None, "deadLetter": 0},
        "lag": {"time": {"avg": 40, "median": 40, "min": 0, "max": 40},
                "offset": {"avg": 5, "median": 0, "min": 0, "max": 5}},
        "throughput": {"ingestedPerSecond": 2, "processedPerSecond": 0.5},
        "timestamp": "2026-01-01T00:00:40.000Z", "statsAge": 0}
    assert call(kit, "labels_v1(%s, 'namespace')", TENANT) == (200, {
        "namespaces": [{"namespace": "n", "queues": 1, "partitions": 1,
                        "messages": {"total": 5, "pending": 5}}]})
    assert call(kit, "labels_v1(%s, 'task')", TENANT) == (200, {
        "tasks": [{"task": "t", "queues": 1, "partitions": 1,
                   "messages": {"total": 5, "pending": 5}}]})


# Groups

def test_group_list_states(kit):
    q = kit.queue("q")
    a, b = kit.parts(q, ["a", "b"])
    kit.push(a, 5, now=at(0))
    kit.push(b, 2, now=at(90))
    g = kit.group(q, "g", "new", now=at(50))
    kit.group(q, "all", now=at(50))
    kit.pop([b], g, 1, 1, auto=True, now=at(100))
    body = call(kit, "group_list_v1(%s, %s)", TENANT, at(100))[1]
    assert body == [
        {"name": "all", "topics": ["q"], "queueName": "q", "members": 2,
         "partitionCursors": 2, "partitionsWithLag": 2, "totalLag": 7,
         "maxTimeLag": 100, "state": "Dead", "storage": "segments",
         "subscriptionMode": "all",
         "subscriptionTimestamp": "1970-01-01T00:00:00.000Z",
         "subscriptionCreatedAt": "2026-01-01T00:00:50.000Z",
         "conflation": False},
        {"name": "g", "topics": ["q"], "queueName": "q", "members": 2,
         "partitionCursors": 2, "partitionsWithLag": 1, "totalLag": 1,
         "maxTimeLag": 10, "state": "Stable", "storage": "segments",
         "subscriptionMode": "new",
         "subscriptionTimestamp": "2026-01-01T00:00:50.000Z",
         "subscriptionCreatedAt": "2026-01-01T00:00:50.000Z",
         "conflation": False}]
    body = call(kit, "group_list_v1(%s, %s)", TENANT, at(391))[1]
    assert [x["state"] for x in body] == ["Lagging", "Lagging"]


def test_lagging_lists_partitions_longest_first(kit):
    q = kit.queue("q")
    a, b = kit.parts(q, ["a", "b"])
    kit.push(a, 5, now=at(1000))
    kit.push(b, 2, now=at(0))
    kit.group(q, "g")
    body = call(kit, "group_lagging_v1(%s, 3600, %s)", TENANT, at(3599))[1]
    assert body == []
    status, body = call(kit, "group_lagging_v1(%s, 3600, %s)", TENANT,
                        at(5400))
    assert status == 200
    assert body == [
        {"consumer_group": "g", "queue_name": "q", "partition_name": "b",
         "partition_id": entity(2, b), "worker_id": None, "offset_lag": 2,
         "time_lag_seconds": 5400, "lag_hours": 1.5,
         "oldest_unconsumed_at": "2026-01-01T00:00:00.000Z",
         "last_consumed_at": None},
        {"consumer_group": "g", "queue_name": "q", "partition_name": "a",
         "partition_id": entity(2, a), "worker_id": None, "offset_lag": 5,
         "time_lag_seconds": 4400, "lag_hours": 1.22,
         "oldest_unconsumed_at": "2026-01-01T00:16:40.000Z",
         "last_consumed_at": None}]


def test_group_get_by_queue(kit):
    q = kit.queue("q")
    a = kit.part(q, "a")
    kit.push(a, 5, now=at(0))
    g = kit.group(q, "g")
    kit.pop([a], g, 77, 2, secs=60, now=at(10))
    lease = str(kit.value("select queen.wire_lease_v1(%s, %s, 77)", a, g))
    assert call(kit, "group_get_v1(%s, 'g', %s)", TENANT, at(20)) == (200, {
        "q": {"conflation": False, "partitions": [
            {"partition": "a", "workerId": lease, "lastConsumedAt": None,
             "totalConsumed": 0, "offsetLag": 5, "timeLagSeconds": 20,
             "leaseActive": True}]}})
    assert call(kit, "group_get_v1(%s, 'x')", TENANT) == (200, {})
    assert call(kit, "group_get_v1(%s, 'g')", OTHER_TENANT) == (200, {})


def test_subscription_moves_no_cursor(kit):
    q = kit.queue("q")
    a = kit.part(q, "a")
    kit.push(a, 5, now=at(0))
    kit.group(q, "g", now=at(10))
    kit.group(kit.queue("r"), "g", now=at(10))
    assert call(kit, "group_subscription_v1(%s, 'g', %s)", TENANT, at(20)) \
        == (200, {"success": True, "consumerGroup": "g",
                  "newTimestamp": "2026-01-01T00:00:20.000Z",
                  "rowsUpdated": 2})
    assert stats(kit) == {"a": six(5, 5, 0, 0)}
    assert call(kit, "group_subscription_v1(%s, 'x', %s)", TENANT, at(20)
                )[1]["rowsUpdated"] == 0
    # deleted with its subscription kept, it starts there
    kit.rows("select * from queen.group_delete_v1(%s, 'g', 'q', false)",
             TENANT)
    assert stats(kit) == {"a": six(5, 0, 0, 5)}


# Messages

def listed(kit, queue="q", part=None, ns=None, task=None, status=None,
           start=at(0), end=at(3600), limit=200, offset=0, now=at(100),
           tenant=TENANT):
    found = kit.rows(
        "select partition, off, status, blob is not null, consumed_by,"
        " total_groups, mode, base from queen.message_list_v1(%s, %s, %s, %s,"
        " %s, %s, %s, %s, %s, %s, %s)", tenant, queue, part, ns, task, status,
        start, end, limit, offset, now)
    assert found[0][0] is None
    return json.loads(found[0][6]), found[1:]


def spread(kit):
    q = kit.queue("q")
    a, b = kit.parts(q, ["a", "b"])
    for i in range(3):
        kit.push(a, 3, now=at(10 * i))
    kit.push(b, 2, now=at(15))
    return q, a, b


def test_messages_newest_first_across_partitions(kit):
    spread(kit)
    mode, found = listed(kit)
    assert mode == {"hasQueueMode": False, "busGroupsCount": 0,
                    "type": "none"}
    want = [("a", 8), ("a", 7), ("a", 6), ("b", 1), ("b", 0), ("a", 5),
            ("a", 4), ("a", 3), ("a", 2), ("a", 1), ("a", 0)]
    assert [r[:2] for r in found] == want
    # the blob stands once per segment
    assert [r[1] for r in found if r[3]] == [8, 1, 5, 2]
    for limit in (1, 2, 4):
        pages = []
        for offset in range(0, 12, limit):
            pages += [r[:2] for r in listed(kit, limit=limit,
                                            offset=offset)[1]]
        assert pages == want


def test_messages_window_and_filters(kit):
    spread(kit)
    kit.push(kit.part(kit.queue("n.t"), "a"), 1, now=at(20))
    assert [r[:2] for r in listed(kit, start=at(10), end=at(20))[1]] == [
        ("b", 1), ("b", 0), ("a", 5), ("a", 4), ("a", 3)]
    assert [r[:2] for r in listed(kit, part="b")[1]] == [("b", 1), ("b", 0)]
    assert [r[:2] for r in listed(kit, queue=None, ns="n")[1]] == [("a", 0)]
    assert [r[:2] for r in listed(kit, queue=None, task="t")[1]] == [("a", 0)]
    assert len(listed(kit, queue=None)[1]) == 12
    assert listed(kit, queue="nope")[1] == []
    assert listed(kit, tenant=OTHER_TENANT)[1] == []
    assert listed(kit, start=at(50))[1] == []


def test_messages_of_the_last_hour_by_default(kit):
    a = kit.part(kit.queue("q"), "a")
    for when in (0, 30, 90, 119, 120):
        kit.push(a, 1, now=at(when))
    found = listed(kit, start=None, end=None, now=at(3660))[1]
    assert [r[1] for r in found] == [4, 3, 2]
    found = listed(kit, start=None, end=None, now=at(119))[1]
    assert [r[1] for r in found] == [3, 2, 1, 0]


def test_message_status_follows_the_groupless_cursor(kit):
    q, a, b = spread(kit)
    own = kit.group(q, "__QUEUE_MODE__", now=at(50))
    g = kit.group(q, "g", now=at(50))
    kit.pop([a], own, 1, 4, auto=True, now=at(60))
    kit.pop([a], own, 2, 2, secs=600, now=at(60))
    kit.pop([a], g, 3, 6, auto=True, now=at(60))
    dead(kit, q, a, 1)
    mode, found = listed(kit, part="a")
    assert mode == {"hasQueueMode": True, "busGroupsCount": 1,
                    "type": "hybrid"}
    assert [(r[1], r[2], r[4], r[5]) for r in found] == [
        (8, "pending", 0, 1), (7, "pending", 0, 1), (6, "pending", 0, 1),
        (5, "processing", 1, 1), (4, "processing", 1, 1),
        (3, "completed", 1, 1), (2, "completed", 1, 1),
        (1, "dead_letter", 1, 1), (0, "completed", 1, 1)]
    for status in ("pending", "processing", "completed", "dead_letter"):
        assert [r[1] for r in listed(kit, part="a", status=status)[1]] == \
            [r[1] for r in found if r[2] == status]
    assert [r[1] for r in listed(kit, part="a", status="completed", limit=2,
                                 offset=1)[1]] == [2, 0]


def test_an_id_is_found_aligned_and_newest_first(kit):
    q = kit.queue("q")
    a = kit.part(q, "a")
    kit.push(a, ids=["x", "y", "z"], now=at(0))
    kit.rows("update queen.queues set dedup_window_s = 0")
    kit.push(a, ids=["y", "w"], now=at(10))
    find = "select queen.message_find_v1(%s, %s, %s)"
    assert kit.value(find, TENANT, a, mid("y")) == 3
    assert kit.value(find, TENANT, a, mid("z")) == 2
    assert kit.value(find, TENANT, a, mid("x")[8:] + mid("y")[:8]) is None
    assert kit.value(find, OTHER_TENANT, a, mid("y")) is None
    kit.drop_segments(a, 2)
    assert kit.value(find, TENANT, a, mid("z")) is None


def test_message_get_from_the_log_and_from_the_dead_letter(kit):
    q = kit.queue("q")
    a = kit.part(q, "a")
    kit.push(a, ids=["x", "y"], now=at(0))
    g = kit.group(q, "g", now=at(1))
    kit.pop([a], g, 1, 1, auto=True, now=at(2))
    sql = ("select base, off, blob is not null, dead_frame, error, retries,"
           " status, groups from queen.message_get_v1(%s, %s, %s)")
    one = kit.rows(sql, TENANT, a, mid("y"))[0]
    assert one[:7] == (0, 1, True, None, None, 0, "pending")
    assert json.loads(one[7]) == [{"name": "g", "group": "g",
                                   "consumed": False, "leaseExpiresAt": None}]
    dead(kit, q, a, 0, txn="x", frame=b"F")
    one = kit.rows(sql, TENANT, a, mid("x"))[0]
    assert one[:3] == (0, 0, True)
    assert one[4:7] == ("boom", 3, "dead_letter")
    assert json.loads(one[7])[0]["consumed"] is True
    kit.drop_segments(a, 1)
    one = kit.rows(sql, TENANT, a, mid("x"))[0]
    assert one[0] is None and one[2] is False and bytes(one[3]) == b"F"
    assert kit.rows(sql, TENANT, a, mid("y")) == []
    assert kit.rows(sql, OTHER_TENANT, a, mid("x")) == []


# Dead letters

def dlq(kit, queue=None, group=None, part=None, start=None, end=None,
        limit=100, offset=0, tenant=TENANT):
    return [r[0] for r in kit.rows(
        "select error || '/' || queue || '/' || partition || '/' ||"
        " group_name || '/' || extract(epoch from failed_at -"
        " timestamptz '2026-01-01Z')::int from queen.dead_list_v1(%s, %s, %s,"
        " %s, %s, %s, %s, %s)", tenant, queue, group, part, start, end,
        limit, offset)]


def test_dead_letters_newest_first_with_filters(kit):
    q, r = kit.queue("q"), kit.queue("r")
    a, b = kit.parts(q, ["a", "b"])
    c = kit.part(r, "a")
    dead(kit, q, a, 0, "g", when=at(1))
    dead(kit, q, b, 0, "h", when=at(3))
    dead(kit, r, c, 0, "g", when=at(2))
    assert dlq(kit) == ["boom/q/b/h/3", "boom/r/a/g/2", "boom/q/a/g/1"]
    assert dlq(kit, "q") == ["boom/q/b/h/3", "boom/q/a/g/1"]
    assert dlq(kit, group="g") == ["boom/r/a/g/2", "boom/q/a/g/1"]
    assert dlq(kit, part="a") == ["boom/r/a/g/2", "boom/q/a/g/1"]
    assert dlq(kit, start=at(2)) == ["boom/q/b/h/3", "boom/r/a/g/2"]
    assert dlq(kit, end=at(2)) == ["boom/q/a/g/1"]
    assert dlq(kit, limit=1, offset=1) == ["boom/r/a/g/2"]
    assert dlq(kit, tenant=OTHER_TENANT) == []


def test_find_takes_the_newest_and_delete_takes_all(kit):
    q = kit.queue("q")
    a = kit.part(q, "a")
    old, new = str(uuid.uuid4()), str(uuid.uuid4())
    dead(kit, q, a, 0, "g", "t", at(1), row=old)
    dead(kit, q, a, 0, "h", "t", at(2), row=new)
    dead(kit, q, a, 1, "h", "u", at(3))
    find = "select queen.dead_find_v1(%s, %s, %s)::text"
    assert kit.value(find, TENANT, a, mid("t")) == new
    assert kit.value(find, OTHER_TENANT, a, mid("t")) is None
    gone = "select queen.message_delete_v1(%s, %s, %s)"
    assert kit.value(gone, OTHER_TENANT, a, mid("t")) == 0
    assert kit.value(gone, TENANT, a, mid("t")) == 2
    assert kit.value(gone, TENANT, a, mid("t")) == 0
    assert len(dlq(kit)) == 1


def test_purge_in_steps_of_one_group_or_all(kit):
    q = kit.queue("q")
    a = kit.part(q, "a")
    for i in range(5):
        dead(kit, q, a, i, "g" if i < 2 else "h")
    purge = "select queen.dead_purge_v1(%s, %s, %s, %s)"
    assert kit.value(purge, OTHER_TENANT, "q", None, 10) == 0
    assert kit.value(purge, TENANT, "nope", None, 10) == 0
    assert kit.value(purge, TENANT, "q", "g", 10) == 2
    assert [kit.value(purge, TENANT, "q", None, 2) for _ in range(3)] == \
        [2, 1, 0]


# Traces

def trace(kit, part, txn, names=(), data="{}", when=None, tenant=TENANT):
    return kit.value("select queen.trace_add_v1(%s, %s, %s, %s, 'g', 'info',"
                     " %s, %s::text[], %s)", tenant, str(uuid.uuid4()), part,
                     txn, data, list(names), when)


def test_trace_data_is_kept_as_it_was_sent(kit):
    a = kit.part(kit.queue("q"), "a")
    data = '{"b":1.50, "a":"\\u0000\\ud800","a":[ ]}'
    assert trace(kit, a, "t", ["n"], data) is True
    raw = kit.value("select body from queen.trace_list_v1(%s, %s, 't')",
                    TENANT, a)
    assert data in raw
    assert data in kit.value(
        "select body from queen.trace_by_name_v1(%s, 'n', 10, 0)", TENANT)
    assert trace(kit, a, "t", tenant=OTHER_TENANT) is False
    assert trace(kit, a + 1000, "t") is False


def test_traces_by_address_by_name_and_names(kit):
    q = kit.queue("q")
    a = kit.part(q, "a")
    trace(kit, a, "t", ["x", "y"], when=at(1))
    trace(kit, a, "t", ["x", "x"], when=at(2))
    trace(kit, a, "u", ["z"], when=at(3))
    status, body = call(kit, "trace_list_v1(%s, %s, 't')", TENANT, a)
    assert status == 200
    assert [(x["created_at"], x["trace_names"]) for x in body["traces"]] == [
        ("2026-01-01T00:00:01.000Z", ["x", "y"]),
        ("2026-01-01T00:00:02.000Z", ["x"])]
    body = call(kit, "trace_by_name_v1(%s, 'x', 1, 1)", TENANT)[1]
    assert body["total"] == 2
    assert body["pagination"] == {"limit": 1, "offset": 1}
    one, = body["traces"]
    uuid.UUID(one.pop("id"))
    assert one == {
        "event_type": "info", "data": {}, "consumer_group": "g",
        "worker_id": None, "created_at": "2026-01-01T00:00:01.000Z",
        "trace_names": ["x", "y"], "transaction_id": "t",
        "partition_id": entity(2, a), "queue_name": "q",
        "partition_name": "a", "message_payload": None}
    body = call(kit, "trace_names_v1(%s, 2, 0)", TENANT)[1]
    assert body == {
        "trace_names": [
            {"trace_name": "z", "trace_count": 1, "message_count": 1,
             "last_seen": "2026-01-01T00:00:03.000Z"},
            {"trace_name": "x", "trace_count": 2, "message_count": 1,
             "last_seen": "2026-01-01T00:00:02.000Z"}],
        "total": 3, "pagination": {"limit": 2, "offset": 0}}
    assert call(kit, "trace_names_v1(%s, 2, 0)", OTHER_TENANT)[1] == {
        "trace_names": [], "total": 0,
        "pagination": {"limit": 2, "offset": 0}}


def test_traces_outlive_their_queue(kit):
    a = kit.part(kit.queue("q"), "a")
    trace(kit, a, "t", ["n"], when=at(1))
    kit.rows("select * from queen.queue_delete_v1(%s, 'q')", TENANT)
    kit.rows("delete from queen.partitions")
    body = call(kit, "trace_by_name_v1(%s, 'n', 10, 0)", TENANT)[1]
    assert body["traces"][0]["queue_name"] is None
    assert len(call(kit, "trace_list_v1(%s, %s, 't')", TENANT, a)[1]
               ["traces"]) == 1


# Cost

def test_listing_many_partitions_is_set_based(kit):
    kit.rows(
        "insert into queen.queues (tenant, name) select %s, 'q' || i"
        " from generate_series(1, 1000) i", TENANT)
    kit.rows(
        "with p as (insert into queen.partitions (queue_id, name, created_at)"
        " select q.id, 'p' || i, now() from queen.queues q,"
        " generate_series(1, 10) i returning id, queue_id)"
        " insert into queen.partition_heads (id, queue_id, last_at,"
        " last_write_at, oldest_live_at) select id, queue_id, now(), now(),"
        " now() from p")
    kit.rows("insert into queen.segments select id, 0, 9, now(), 1000, null,"
             " '\\x0100' from queen.partitions")
    kit.rows("insert into queen.groups (queue_id, name, mode, subscribed_at)"
             " select id, 'g', 'all', 'epoch' from queen.queues")
    kit.rows("set enable_seqscan = off; set enable_bitmapscan = off;"
             " set jit = off; set statement_timeout = '20s'")
    begin = datetime.datetime.now()
    body = call(kit, "queue_list_v1(%s, true)", TENANT)[1]["queues"]
    assert len(body) == 1000
    assert body[0]["messages"]["pending"] == 100
    assert len(call(kit, "group_list_v1(%s)", TENANT)[1]) == 1000
    call(kit, "overview_v1(%s)", TENANT)
    print("three listings over 10 000 partitions:",
          datetime.datetime.now() - begin)

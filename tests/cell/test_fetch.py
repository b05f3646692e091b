# SPDX-License-Identifier: Apache-2.0
"""Fetch: reading by offset, bounds, budgets, parking."""
import re
import threading
import time

from queenlib import wait_until

STAMP = re.compile(r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z$")


def fetch(cell, entries, timeout=30, **body):
    return cell.post("/api/v1/fetch", dict(body, entries=entries),
                     timeout=timeout)


def one(cell, offset=0, queue="q", partition="Default", **more):
    reply = fetch(cell, [dict(more, queue=queue, partition=partition,
                              offset=offset)])
    assert reply.status == 200, reply
    return reply.body["entries"][0]


def test_fetch_answers_exact_keys_in_request_order(cell):
    cell.push("orders", [{"id": 77}], partition="cust-42", ids=["o-77"])
    reply = fetch(cell, [
        {"queue": "nope", "partition": 7, "offset": 0},
        {"queue": "orders", "partition": "cust-42", "offset": 0}])
    assert reply.status == 200
    assert list(reply.body) == ["entries"]
    bad, good = reply.body["entries"]
    assert bad == {"queue": "nope", "partition": "7", "records": [],
                   "highWatermark": 0, "logStartOffset": 0,
                   "error": "UNKNOWN_TOPIC_OR_PARTITION"}
    assert list(good) == ["queue", "partition", "records", "highWatermark",
                          "logStartOffset"]
    assert (good["highWatermark"], good["logStartOffset"]) == (1, 0)
    r = good["records"][0]
    assert list(r) == ["offset", "transactionId", "payload", "ts"]
    assert (r["offset"], r["transactionId"], r["payload"]) == (
        0, "o-77", {"id": 77})
    assert STAMP.match(r["ts"])


def test_fetch_reads_from_the_offset_inside_a_segment(cell):
    cell.push("q", list(range(10)))
    cell.push("q", list(range(10, 13)))
    e = one(cell, 4)
    assert [(r["offset"], r["payload"]) for r in e["records"]] == [
        (i, i) for i in range(4, 13)]
    assert one(cell, 12)["records"][0]["payload"] == 12


def test_bounds(cell):
    cell.push("q", [1, 2])
    e = one(cell, 2)
    assert (e["records"], e["highWatermark"], "error" in e) == ([], 2, False)
    e = one(cell, 3)
    assert (e["records"], e["error"], e["highWatermark"],
            e["logStartOffset"]) == ([], "OFFSET_OUT_OF_RANGE", 2, 0)


def test_partition_never_written_is_an_empty_log(cell):
    cell.push("q", [1])
    e = one(cell, 0, partition="nope")
    assert e == {"queue": "q", "partition": "nope", "records": [],
                 "highWatermark": 0, "logStartOffset": 0}
    assert one(cell, 5, partition="nope")["error"] == "OFFSET_OUT_OF_RANGE"


def test_offset_below_the_log_start_is_out_of_range(cell, db):
    for i in range(3):
        cell.push("q", [i])
    db.rows("delete from queen.segments where base_offset < 2")
    db.rows("update queen.partition_heads set log_start = 2")
    e = one(cell, 0)
    assert (e["error"], e["logStartOffset"], e["highWatermark"]) == (
        "OFFSET_OUT_OF_RANGE", 2, 3)
    assert [r["payload"] for r in one(cell, 2)["records"]] == [2]


def test_empty_and_refused_bodies(cell):
    for body in ({}, {"entries": []}, {"entries": None}):
        reply = cell.post("/api/v1/fetch", body)
        assert (reply.status, reply.body) == (200, {"entries": []})
    entry = {"queue": "q", "offset": 0}
    assert fetch(cell, [entry] * 1024).status == 200
    reply = fetch(cell, [entry] * 1025)
    assert (reply.status, reply.body) == (
        400, {"error": "bad body: more than 1024 entries"})
    reply = fetch(cell, [entry, {"queue": "q", "offset": -1}])
    assert (reply.status, reply.body) == (
        400, {"error": "bad body: entries[1].offset is negative"})
    reply = cell.post("/api/v1/fetch", "{\"entries\":[")
    assert reply.status == 400
    assert reply.body["error"].startswith("bad body: ")


def test_max_bytes_bounds_an_entry_but_never_the_first_unit(cell):
    for i in range(5):
        cell.push("q", ["%d%s" % (i, "x" * 300)])
    cell.push("big", ["y" * 200000], partition="p")
    assert len(one(cell, 0, maxBytes=1)["records"]) == 1
    assert len(one(cell, 0, maxBytes=1000)["records"]) < 5
    assert len(one(cell, 0)["records"]) == 5
    a, b = fetch(cell, [
        {"queue": "big", "partition": "p", "offset": 0, "maxBytes": 1},
        {"queue": "q", "offset": 0, "maxBytes": 1}]).body["entries"]
    assert len(a["records"]) == 1
    assert (b["records"], b["highWatermark"]) == ([], 5)


def test_records_per_entry_are_bounded(cell):
    for _ in range(3):
        cell.push("q", [0] * 4000)
    e = one(cell, 100)
    assert len(e["records"]) == 10000
    assert e["records"][-1]["offset"] == 10099
    assert [r["offset"] for r in e["records"]] == list(range(100, 10100))


def test_payload_bytes_are_verbatim(cell):
    text = '{"a" : 1.0e+2,"b":[ "\\u0000\\ud800" ],"a":2}'
    assert cell.post("/api/v1/push", '{"items":[{"queue":"q","payload":%s}'
                     ']}' % text).status == 201
    conn = cell.http()
    try:
        conn.request("POST", "/api/v1/fetch",
                     '{"entries":[{"queue":"q","offset":0}]}')
        data = conn.getresponse().read().decode()
    finally:
        conn.close()
    assert '"payload":%s,"ts":"' % text in data


def test_fetch_writes_nothing_and_ignores_leases_and_maintenance(cell, db):
    cell.push("q", [1])
    cell.pop("q")
    before = db.rows("select * from queen.consumers")
    cell.post("/api/v1/system/maintenance/pop", {"enabled": True})
    assert [r["payload"] for r in one(cell)["records"]] == [1]
    cell.post("/api/v1/system/maintenance/pop", {"enabled": False})
    assert db.rows("select * from queen.consumers") == before


def in_background(fn):
    found = {}

    def run():
        start = time.monotonic()
        found["reply"] = fn()
        found["took"] = time.monotonic() - start

    t = threading.Thread(target=run)
    t.start()
    return t, found




def test_parked_fetch_ends_with_a_push(cell):
    cell.push("q", [0])
    t, found = in_background(lambda: fetch(
        cell, [{"queue": "q", "offset": 1}], maxWaitMs=15000))
    time.sleep(0.3)
    cell.push("other", [0])
    assert t.is_alive()
    cell.push("q", [1])
    t.join(20)
    assert [r["payload"] for r in
            found["reply"].body["entries"][0]["records"]] == [1]
    assert found["took"] < 6


def test_parked_fetch_finds_a_partition_that_comes(cell):
    cell.push("q", [0])
    t, found = in_background(lambda: fetch(
        cell, [{"queue": "q", "partition": "new", "offset": 0}],
        maxWaitMs=15000))
    time.sleep(0.3)
    cell.push("q", [1], partition="new")
    t.join(20)
    assert found["reply"].body["entries"][0]["highWatermark"] == 1
    assert found["took"] < 6


def test_parked_fetch_returns_an_entry_error_at_once(cell):
    entry, = fetch(cell, [{"queue": "q", "offset": 0}], maxWaitMs=20000,
                   minBytes=20).body["entries"]
    assert entry["error"] == "UNKNOWN_TOPIC_OR_PARTITION"


def test_parked_fetch_waits_for_min_bytes(cell):
    cell.push("q", [0])
    t, found = in_background(lambda: fetch(
        cell, [{"queue": "q", "offset": 0}], maxWaitMs=20000, minBytes=20))
    cell.push("q", ["x" * 5])
    time.sleep(0.5)
    assert t.is_alive()
    cell.push("q", ["y" * 20])
    t.join(25)
    assert len(found["reply"].body["entries"][0]["records"]) == 3
    assert found["took"] < 15


def test_fetch_answers_at_its_deadline(cell):
    cell.push("q", [0])
    start = time.monotonic()
    reply = fetch(cell, [{"queue": "q", "offset": 1}], maxWaitMs=500)
    assert reply.body["entries"][0]["records"] == []
    assert 0.45 < time.monotonic() - start < 3
    start = time.monotonic()
    for body in ({"maxWaitMs": 0}, {"maxWaitMs": 20000, "minBytes": 0}):
        fetch(cell, [{"queue": "q", "offset": 1}], **body)
    fetch(cell, [{"queue": "q", "offset": 1},
                 {"queue": "q", "offset": 99}], maxWaitMs=20000)
    assert time.monotonic() - start < 5


def test_vanished_client_of_a_parked_fetch(cell):
    cell.push("q", [0])
    for _ in range(5):
        c = cell.http()
        c.request("POST", "/api/v1/fetch",
                  '{"entries":[{"queue":"q","offset":1}],'
                  '"maxWaitMs":20000}')
        time.sleep(0.05)
        c.sock.close()
        c.close()
    cell.push("q", [1])
    assert [r["payload"] for r in one(cell, 1)["records"]] == [1]


def test_drain_ends_parked_fetches(cell):
    cell.push("q", [0])
    t, found = in_background(lambda: fetch(
        cell, [{"queue": "q", "offset": 1}], maxWaitMs=25000))
    time.sleep(0.4)
    assert cell.term() == 0
    t.join(10)
    assert found["reply"].status == 200
    assert found["took"] < 20


def test_corrupt_segment_is_a_500(cell, db):
    cell.push("q", [1])
    db.rows("update queen.segments set blob = '\\x0177'")
    reply = fetch(cell, [{"queue": "q", "offset": 0}])
    assert (reply.status, reply.body) == (500,
                                          {"error": "fetch decode failed"})


def test_unknown_queue_that_appears_is_found(cell):
    assert one(cell, 0, queue="later")["error"] == \
        "UNKNOWN_TOPIC_OR_PARTITION"
    cell.push("later", [1])
    wait_until(lambda: one(cell, 0, queue="later")["records"] != [])

# SPDX-License-Identifier: Apache-2.0
"""POST /api/v1/push: shape, rules, refusals, what ends up in the store."""
import json
import threading
import time
import uuid

import pytest

from queenlib import wait_until

PUSH = "/api/v1/push"
NIL = "00000000-0000-0000-0000-000000000000"


def push(cell, *items):
    reply = cell.post(PUSH, {"items": list(items)})
    assert reply.status == 201, reply
    return reply.body


def item(queue, txn=None, payload=1, partition=None):
    made = {"queue": queue, "payload": payload}
    if txn is not None:
        made["transactionId"] = txn
    if partition is not None:
        made["partition"] = partition
    return made


def segments(db, queue, partition="Default"):
    return db.rows(
        "select s.base_offset, s.end_offset, s.created_at"
        " from queen.segments s join queen.partitions p on"
        " p.id = s.partition_id join queen.queues q on q.id = p.queue_id"
        " where q.name = %s and q.deleted_at is null and p.name = %s"
        " order by s.base_offset", (queue, partition))


def offsets(db, queue, partition="Default"):
    got = []
    for base, end, _ in segments(db, queue, partition):
        got += range(base, end + 1)
    return got


def raw(cell, method, path, body=None):
    conn = cell.http()
    try:
        conn.request(method, path, body=body)
        answer = conn.getresponse()
        return answer.status, answer.read()
    finally:
        conn.close()


# Shape

def test_answer_has_exactly_these_keys_in_this_order(cell):
    status, body = raw(cell, "POST", PUSH, json.dumps(
        {"items": [item("orders", "o-77"), item("audit", payload=None)]}))
    assert status == 201
    first, second = json.loads(body)
    assert body.decode() == json.dumps([first, second],
                                       separators=(",", ":"))
    assert list(first) == ["index", "message_id", "transaction_id",
                           "queueName", "status"]
    assert (first["index"], first["transaction_id"], first["queueName"],
            first["status"]) == (0, "o-77", "orders", "queued")
    assert uuid.UUID(first["message_id"]).version == 7
    # an omitted id is the message id
    assert second["transaction_id"] == second["message_id"]
    assert (second["index"], second["queueName"], second["status"]) == (
        1, "audit", "queued")


def test_empty_list_is_201_and_empty(common):
    assert raw(common, "POST", PUSH, '{"items":[]}') == (201, b"[]")


def test_unknown_keys_are_ignored_and_null_is_absent(cell, db):
    got = push(cell, {"queue": "q", "payload": 1, "partition": None,
                      "transactionId": None, "traceId": 7, "x": {"y": []}})
    assert got[0]["status"] == "queued"
    assert got[0]["transaction_id"] == got[0]["message_id"]
    assert offsets(db, "q", "Default") == [0]


# Refusals

NAME = "n" * 1025

REFUSED = [
    ("", "bad body: unexpected end at offset 0"),
    ('{"items":[', "bad body: unexpected end of an array at offset 10"),
    ("[]", "bad body: it must be a JSON object"),
    ("{}", "bad body: items is required"),
    ('{"items":{}}', "bad body: items must be an array"),
    ('{"items":[1]}', "bad body: items[0] must be an object"),
    ('{"items":[{"payload":1}]}', "bad body: items[0].queue is required"),
    ('{"items":[{"queue":"","payload":1}]}',
     "bad body: items[0].queue is empty"),
    ('{"items":[{"queue":1,"payload":1}]}',
     "bad body: items[0].queue must be a string"),
    ('{"items":[{"queue":"q","payload":1},{"queue":"q"}]}',
     "bad body: items[1].payload is required"),
    ('{"items":[{"queue":"q","data":1}]}',
     "bad body: items[0].payload is required"),
    ('{"items":[{"queue":"q","payload":1,"partition":""}]}',
     "bad body: items[0].partition is empty"),
    ('{"items":[{"queue":"q","payload":1,"transactionId":""}]}',
     "bad body: items[0].transactionId is empty"),
    ('{"items":[{"queue":"q","payload":1,"transactionId":true}]}',
     "bad body: items[0].transactionId must be a string"),
    ('{"items":[{"queue":"q","payload":1,"transactionId":"a\\u001fb"}]}',
     "bad body: items[0].transactionId holds a control character (0x1f)"),
    ('{"items":[{"queue":"a\\u0000","payload":1}]}',
     "bad body: items[0].queue holds a control character (0x00)"),
    ('{"items":[{"queue":"\\udc00","payload":1}]}',
     "bad body: items[0].queue holds half of a surrogate pair"),
    ('{"items":[{"queue":"%s","payload":1}]}' % NAME,
     "bad body: items[0].queue is longer than 1024 bytes"),
    ('{"items":[{"queue":"q","payload":1,"partition":"%s"}]}' % NAME,
     "bad body: items[0].partition is longer than 1024 bytes"),
    ('{"items":[{"queue":"q","payload":1,"transactionId":"%s"}]}'
     % ("t" * 65536),
     "bad body: items[0].transactionId is longer than 1024 bytes"),
]


def test_bad_bodies_are_400_and_say_what_is_wrong(cell, db):
    for body, text in REFUSED:
        reply = cell.post(PUSH, body)
        assert (reply.status, reply.body) == (400, {"error": text}), body[:80]
    # nothing of a refused request is stored
    assert db.value("select count(*) from queen.segments") == 0


@pytest.mark.parametrize("body", [
    b'{"items":[{"queue":"q\xff","payload":1}]}',
    b'{"items":[{"queue":"q","payload":"\xc3"}]}',
    b'{"items":[{"queue":"q","payload":' + b"[" * 10000,
    b'{"items":[{"queue":"q","payload":1e}]}',
    b'{"items":[{"queue":"q","payload":1}]} x'])
def test_what_is_no_json_is_400_with_the_offset(common, body):
    reply = common.post(PUSH, body)
    assert reply.status == 400
    assert reply.body["error"].startswith("bad body: ")
    assert " at offset " in reply.body["error"]


# Names and payloads

def test_any_escape_is_legal_in_an_id_and_comes_back_equal(cell):
    ids = ["Bed&Breakfast-771", "2026/07/BK-11", 'a"b\\c', "\u00e9\u4e2d",
           "\U0001f600", "t" * 1024]
    got = push(cell, *[item("q", t) for t in ids])
    assert [r["transaction_id"] for r in got] == ids
    popped = cell.pop("q", batch=10)
    assert [m["transactionId"] for m in popped] == ids
    assert all(a["success"] for a in cell.ack(popped))


def test_payload_bytes_come_back_verbatim(cell):
    payloads = ['{"b":1.50,"a":1e400,"b":2}', '"\\u0000\\ud800"', "[ 1 ,2 ]",
                "-0.0", "null", "true", '{"z":{"\\/":"\\u00e9\u00e9"}}',
                "12345678901234567890123"]
    body = '{"items":[%s]}' % ",".join(
        '{"queue":"q","payload":%s}' % p for p in payloads)
    assert cell.post(PUSH, body).status == 201
    status, answer = raw(cell, "GET", "/api/v1/pop/queue/q?batch=100")
    assert status == 200
    for p in payloads:
        assert ('"data":%s,' % p).encode() in answer


def test_large_messages_and_groups_keep_their_order(cell, db):
    big = "x" * (3 << 20)
    got = push(cell, item("q", "a", big), *[
        item("q", "b%d" % i, "y" * 50000) for i in range(60)])
    assert {r["status"] for r in got} == {"queued"}
    assert offsets(db, "q") == list(range(61))
    ids = []
    while len(ids) < 61:
        popped = cell.pop("q", batch=100)
        assert popped
        ids += [m["transactionId"] for m in popped]
        cell.ack(popped)
    assert ids == ["a"] + ["b%d" % i for i in range(60)]


# Groups and duplicates

def test_groups_are_contiguous_in_request_order_with_one_stamp(cell, db):
    items = [item("q", "t%d" % i, i, "p%d" % (i % 7)) for i in range(700)]
    push(cell, *items)
    for k in range(7):
        rows = segments(db, "q", "p%d" % k)
        assert offsets(db, "q", "p%d" % k) == list(range(100))
        assert len({r[2] for r in rows}) == 1
        popped = cell.pop("q", partition="p%d" % k, batch=200)
        assert [m["data"] for m in popped] == list(range(k, 700, 7))


def test_in_a_request_the_first_of_an_id_wins(cell, db):
    got = push(cell, item("q", "a", 1), item("q", "a", 2),
               item("q", "a", 3, "other"), item("r", "a", 4),
               item("q", "b", 5))
    assert [r["status"] for r in got] == [
        "queued", "duplicate", "queued", "queued", "queued"]
    assert got[1]["message_id"] == got[0]["message_id"]
    assert len({r["message_id"] for r in got}) == 4
    assert [m["data"] for m in cell.pop("q", partition="Default",
                                        batch=10)] == [1, 5]


def test_a_duplicate_names_the_original_and_the_rest_is_stored(cell, db):
    first = push(cell, *[item("q", "t%d" % i, i) for i in range(5)])
    again = push(cell, *[item("q", "t%d" % i, i) for i in range(3, 8)])
    assert [r["status"] for r in again] == [
        "duplicate", "duplicate", "queued", "queued", "queued"]
    assert [r["message_id"] for r in again[:2]] == [
        r["message_id"] for r in first[3:]]
    assert offsets(db, "q") == list(range(8))
    assert [m["data"] for m in cell.pop("q", batch=20)] == list(range(8))


def test_followers_share_a_duplicate_leaders_original(cell):
    first = push(cell, item("q", "a"))
    again = push(cell, item("q", "a"), item("q", "a"))
    assert [r["status"] for r in again] == ["duplicate", "duplicate"]
    assert {r["message_id"] for r in again} == {first[0]["message_id"]}


def test_first_push_makes_queue_with_defaults_and_labels(cell, db):
    push(cell, item("billing.invoice.x"))
    assert db.row("select namespace, task, lease_time_s, dedup_window_s"
                  " from queen.queues where name = 'billing.invoice.x'") == (
        "billing", "invoice", 60, 3600)


# Refused by state

def test_encrypted_queue_refuses_every_item(cell, db):
    reply = cell.post("/api/v1/configure", {
        "queue": "secret", "options": {"encryptionEnabled": True}})
    assert reply.status in (200, 201), reply
    wait_until(lambda: push(cell, item("secret"))[0]["status"] == "failed")
    got = push(cell, item("secret", "a"), item("secret", "a"),
               item("open", "a"))
    assert [r["status"] for r in got] == ["failed", "failed", "queued"]
    assert offsets(db, "secret") == []


def test_a_stale_flag_stores_no_plaintext(cell, db):
    push(cell, item("secret"))
    # behind the process's back: no hint, no newer changed_at
    db.rows("update queen.queues set encryption_enabled = true")
    assert push(cell, item("secret"))[0]["status"] == "failed"
    assert offsets(db, "secret") == [0]


def test_push_maintenance_answers_503(cell, db):
    reply = cell.post("/api/v1/system/maintenance", {"enabled": True})
    assert reply.status == 200, reply
    reply = cell.post(PUSH, {"items": [item("q")]})
    assert (reply.status, reply.body) == (
        503, {"error": "push maintenance is on"})
    assert cell.post("/api/v1/system/maintenance",
                     {"enabled": False}).status == 200
    assert push(cell, item("q"))[0]["status"] == "queued"


def test_without_database_items_fail_and_service_resumes(cell, pg):
    assert push(cell, item("q", "a"))[0]["status"] == "queued"
    pg.stop("immediate")
    got = push(cell, item("q", "b"), item("q", "b"), item("new", "c"))
    assert [r["status"] for r in got] == ["failed"] * 3
    pg.start()
    wait_until(lambda: push(cell, item("q", "d"))[0]["status"] != "failed")
    assert push(cell, item("q", "a"))[0]["status"] == "duplicate"


# Gone

def test_a_queue_deleted_behind_our_back_is_made_again(cell, db):
    push(cell, item("q", "a"), item("q", "b", 1, "x"))
    db.rows("update queen.queues set deleted_at = now()")
    got = push(cell, item("q", "a"), item("q", "b", 1, "x"))
    assert [r["status"] for r in got] == ["queued", "queued"]
    assert offsets(db, "q") == [0]
    assert offsets(db, "q", "x") == [0]


def test_a_partition_removed_behind_our_back_is_made_again(cell, db):
    push(cell, item("q", "a"))
    for table in ("segments", "segment_ids"):
        db.rows("delete from queen.%s" % table)
    for table in ("partition_heads", "partitions"):
        db.rows("delete from queen.%s" % table)
    assert push(cell, item("q", "a"))[0]["status"] == "queued"
    assert offsets(db, "q") == [0]


# Together

def concurrently(n, fn):
    faults = []

    def run(i):
        try:
            fn(i)
        except BaseException as e:      # noqa: B902 seen by the test
            faults.append(e)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(n)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not faults, faults


def test_concurrent_requests_share_segments_without_gap(cell, db):
    def run(i):
        conn = cell.http()
        for k in range(25):
            reply = cell.post(PUSH, {"items": [item("q", "%d-%d" % (i, k),
                                                    [i, k])]}, conn=conn)
            assert reply.body[0]["status"] == "queued"
        conn.close()

    concurrently(24, run)
    assert offsets(db, "q") == list(range(600))
    got = [m["data"] for m in cell.pop("q", batch=1000)]
    assert len(got) == 600
    # each producer's messages in its own order
    for i in range(24):
        assert [k for j, k in got if j == i] == list(range(25))


def test_equal_ids_from_many_clients_are_queued_once(cell, db):
    answers = []

    def run(_):
        got = push(cell, *[item("q", "t%d" % k, k) for k in range(20)])
        answers.extend((r["transaction_id"], r["status"], r["message_id"])
                       for r in got)

    concurrently(16, run)
    for k in range(20):
        mine = [a for a in answers if a[0] == "t%d" % k]
        assert sorted(a[1] for a in mine) == ["duplicate"] * 15 + ["queued"]
        assert len({a[2] for a in mine}) == 1
    assert offsets(db, "q") == list(range(20))


def test_two_queends_write_one_partition_in_turn(cells, db):
    a, b = cells(2)
    for k in range(50):
        one = a if k % 2 else b
        got = push(one, item("q", "t%d" % k, k), item("q", "t%d" % (k - 1)))
        assert [r["status"] for r in got] == [
            "queued", "duplicate" if k else "queued"]
    # 50 and t-1
    assert offsets(db, "q") == list(range(51))


def test_two_queends_race_for_the_same_ids(cells, db):
    both = cells(2)
    answers = []

    def run(i):
        for k in range(40):
            got = push(both[i % 2], item("q", "t%d" % k, k))
            answers.append((k, got[0]["status"], got[0]["message_id"]))

    concurrently(8, run)
    for k in range(40):
        mine = [a for a in answers if a[0] == k]
        assert sorted(a[1] for a in mine) == ["duplicate"] * 7 + ["queued"]
        assert len({a[2] for a in mine}) == 1
    assert offsets(db, "q") == list(range(40))


def test_many_partitions_in_one_request(cell, db):
    got = push(cell, *[item("q", "t", i, "p%d" % i) for i in range(500)])
    assert {r["status"] for r in got} == {"queued"}
    assert db.value("select count(*) from queen.segments") == 500
    got = push(cell, *[item("q", "t", i, "p%d" % i) for i in range(500)])
    assert {r["status"] for r in got} == {"duplicate"}
    assert NIL not in {r["message_id"] for r in got}


@pytest.mark.amount
def test_killed_sessions_lose_and_repeat_nothing(cell, db):
    """Whatever was in doubt answers failed; the retry tells the truth."""
    done, killed, batches = threading.Event(), [], {}

    def kill():
        while not done.wait(0.05):
            killed.extend(db.rows(
                "select pg_terminate_backend(pid) from pg_stat_activity"
                " where datname = current_database()"
                " and application_name like 'queend%'"
                " and query like '%push_v1%' limit 2"))

    killer = threading.Thread(target=kill)
    killer.start()
    deadline = time.monotonic() + 20

    def run(i):
        conn = cell.http()
        k = 0
        while k < 20 or len(killed) < 8 and time.monotonic() < deadline:
            def stored(k=k):
                reply = cell.post(PUSH, {"items": [
                    item("q", "%d-%d-%d" % (i, k, j), [i, k, j], "p%d" % i)
                    for j in range(5)]}, conn=conn)
                return "failed" not in {r["status"] for r in reply.body}

            wait_until(stored)
            k += 1
        batches[i] = k
        conn.close()

    try:
        concurrently(4, run)
    finally:
        done.set()
        killer.join()
    assert len(killed) >= 8
    for i, n in batches.items():
        got = []
        while len(got) < 5 * n:
            m = wait_until(lambda i=i: cell.pop("q", partition="p%d" % i,
                                                batch=5000))
            got += [x["data"] for x in m]
            cell.ack(m)
        assert got == [[i, k, j] for k in range(n) for j in range(5)]
        assert offsets(db, "q", "p%d" % i) == list(range(5 * n))


@pytest.mark.parametrize("path, head, item, tail, text", [
    ("push", '{"items":[', '{"queue":"q","payload":1}', "]}", "items"),
    ("ack/batch", '{"acknowledgments":[', "{}", "]}", "acknowledgments"),
    ("transaction", '{"operations":[', '{"type":"ack"}', "]}", "operations"),
    ("transaction", '{"operations":[],"requiredLeases":[', '""', "]}",
     "requiredLeases")])
def test_a_list_has_at_most_100000_members(common, path, head, item, tail,
                                           text):
    reply = common.post("/api/v1/" + path,
                        head + ",".join([item] * 100001) + tail)
    assert reply.status == 400
    assert reply.body["error"] == "bad body: %s holds more than 100000" % text

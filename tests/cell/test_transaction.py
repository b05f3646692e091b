# SPDX-License-Identifier: Apache-2.0
"""POST /api/v1/transaction: all or nothing, and what it says of either."""
import threading
import time
import uuid

import pytest

from queenlib import wait_until

TXN = "/api/v1/transaction"
BAD_LEASE = "invalid or expired lease"


def fill(cell, n, queue="in", partition="p"):
    cell.push(queue, list(range(n)), partition=partition,
              ids=["t%d" % i for i in range(n)])


def pop(cell, queue="in", n=100, **kw):
    return wait_until(lambda: cell.pop(queue, batch=n, **kw))


def txn(cell, *ops, **more):
    reply = cell.post(TXN, {"operations": list(ops), **more})
    assert reply.status == 200, reply
    uuid.UUID(reply.body["transactionId"])
    return reply.body


def ack(message, status=None, lease=True, **more):
    made = {"type": "ack", "transactionId": message["transactionId"],
            "partitionId": message["partitionId"], **more}
    if lease:
        made["leaseId"] = message["leaseId"]
    if status:
        made["status"] = status
    return made


def push(queue="out", txn=None, payload=1, **more):
    made = {"type": "push", "queue": queue, "payload": payload, **more}
    if txn:
        made["transactionId"] = txn
    return made


def refused(answer, reason, error):
    assert list(answer) == ["transactionId", "success", "reason", "error",
                            "results"]
    assert (answer["success"], answer["reason"], answer["results"]) == (
        False, reason, [])
    assert error in answer["error"], answer["error"]


def count(db, queue="out"):
    return db.value(
        "select coalesce(sum(s.end_offset - s.base_offset + 1), 0)::int"
        " from queen.segments s join queen.partitions p on"
        " p.id = s.partition_id join queen.queues q on q.id = p.queue_id"
        " where q.name = %s", (queue,))


def committed(db, queue="in", group="__QUEUE_MODE__"):
    return db.value(
        "select c.committed from queen.consumers c join queen.groups g"
        " on g.id = c.group_id join queen.queues q on q.id = g.queue_id"
        " where q.name = %s and g.name = %s order by c.gen desc limit 1",
        (queue, group))


# Shape

def test_answer_has_one_slot_per_item_in_request_order(cell, db):
    fill(cell, 1)
    m = pop(cell)[0]
    answer = txn(cell, ack(m), {"type": "push", "items": [
        {"queue": "invoices", "partition": "c", "transactionId": "inv-77",
         "payload": {"o": 77}}]}, {"type": "push", "queue": "audit",
                                   "data": {"o": 77}})
    assert list(answer) == ["transactionId", "success", "results"]
    assert answer["success"] is True
    a, b, c = answer["results"]
    assert a == {"index": 0, "type": "ack", "success": True,
                 "transactionId": "t0", "error": None, "dlq": False}
    assert b == {"index": 1, "type": "push", "success": True,
                 "transactionId": "inv-77", "messageId": b["messageId"],
                 "queueName": "invoices"}
    assert c["index"] == 2 and c["queueName"] == "audit"
    assert c["transactionId"] == c["messageId"]
    assert committed(db) == 0
    assert pop(cell, "audit")[0]["data"] == {"o": 77}
    assert pop(cell, "invoices")[0]["partition"] == "c"


def test_payload_wins_over_data_and_neither_is_an_empty_object(cell):
    txn(cell, {"type": "push", "items": [
        {"queue": "out", "payload": 1, "data": 2}, {"queue": "out"},
        {"queue": "out", "data": None}, {"queue": "out", "payload": None}]})
    assert [m["data"] for m in pop(cell, "out")] == [1, {}, None, None]


def test_trace_ids_are_stored_and_others_dropped_silently(cell):
    trace = str(uuid.uuid4())
    txn(cell, push(traceId=trace), push(traceId="no"), push(traceId=7),
        push(traceId=None))
    assert [m["traceId"] for m in pop(cell, "out")] == [trace, None, None,
                                                        None]


def test_no_operations_commit_as_nothing(common):
    assert txn(common)["results"] == []
    assert txn(common, kv=None, timers=None, requiredLeases=None)["success"]


@pytest.mark.parametrize("body,text", [
    ("", "bad body: unexpected end at offset 0"),
    ("{}", "bad body: operations is required"),
    ('{"operations":{}}', "bad body: operations must be an array"),
    ('{"operations":[{}]}', "bad body: operations[0].type is required"),
    ('{"operations":[{"type":"pop"}]}',
     'bad body: operations[0].type must be "push" or "ack", not "pop"'),
    ('{"operations":[{"type":"push"}]}',
     "bad body: operations[0].queue is required"),
    ('{"operations":[{"type":"push","queue":""}]}',
     "bad body: operations[0].queue is empty"),
    ('{"operations":[{"type":"push","items":[{"queue":"a\\n"}]}]}',
     "bad body: operations[0].items[0].queue holds a control character"
     " (0x0a)"),
    ('{"operations":[{"type":"ack","status":1}]}',
     "bad body: operations[0].status must be a string"),
    ('{"operations":[],"requiredLeases":"x"}',
     "bad body: requiredLeases must be an array"),
    ('{"operations":[],"kv":{}}', "bad body: kv must be an array"),
    ('{"operations":[],"timers":3}', "bad body: timers must be an array"),
])
def test_a_bad_body_is_400_in_the_failure_shape(common, body, text):
    reply = common.post(TXN, body)
    assert reply.status == 400
    refused(reply.body, "bad_request", text)
    assert reply.body["error"] == text


def test_an_unknown_operation_runs_nothing(cell, db):
    reply = cell.post(TXN, {"operations": [push(), {"type": "kv"}]})
    assert reply.status == 400
    assert count(db) == 0


# Rollbacks

def test_a_duplicate_rolls_everything_back(cell, db):
    fill(cell, 1)
    cell.push("out", [1], ids=["dup"])
    m = pop(cell)[0]
    for _ in range(2):
        answer = txn(cell, ack(m), push("other", "x"), push("out", "dup"))
        refused(answer, "duplicate", "QDUP")
        assert answer["error"].startswith("QDUP")
        assert answer["error"].endswith("; transaction rolled back")
    assert (count(db, "other"), count(db), committed(db)) == (0, 1, -1)
    assert txn(cell, ack(m), push("out", "new"))["success"]


def test_an_id_pushed_by_a_transaction_is_known_to_pushes(cell):
    txn(cell, push(txn="a"))
    assert cell.push("out", [1], ids=["a"])[0]["status"] == "duplicate"
    assert cell.push("out", [1], ids=["b"])[0]["status"] == "queued"
    refused(txn(cell, push(txn="b")), "duplicate", "QDUP")


def test_a_repeat_inside_the_bundle_is_echoed_as_duplicate(cell, db):
    got = txn(cell, push(txn="a"), push(txn="a"),
              push(txn="a", partition="p"))["results"]
    assert ["duplicate" in r for r in got] == [False, True, False]
    assert got[1]["duplicate"] is True
    assert got[1]["messageId"] == got[0]["messageId"]
    assert count(db) == 2


def test_an_unknown_acked_id_rolls_back(cell, db):
    fill(cell, 2)
    m = pop(cell)
    refused(txn(cell, ack({**m[0], "transactionId": "nope"}), push()),
            "ack_rejected", "QTXN ack references unknown transactionId;"
            " transaction rolled back")
    assert (count(db), committed(db)) == (0, -1)


REFUSED_ACKS = [
    ({"leaseId": str(uuid.UUID(int=1))}, BAD_LEASE),
    ({"leaseId": "nope"}, BAD_LEASE),
    ({"consumerGroup": "stranger"}, "consumer not found"),
    ({"partitionId": "nope"}, "invalid partitionId"),
    ({"partitionId": str(uuid.uuid4())}, "invalid partitionId"),
]


def test_an_ack_that_is_refused_says_why(cell, db):
    fill(cell, 1)
    m = pop(cell)[0]
    for change, cause in REFUSED_ACKS:
        answer = txn(cell, push(), {**ack(m), **change})
        refused(answer, "ack_rejected", "QTXN ack failed for partition ")
        assert ": %s; transaction rolled back" % cause in answer["error"]
        assert 'group "%s"' % change.get("consumerGroup", "__QUEUE_MODE__") \
            in answer["error"]
        assert count(db) == 0


def test_a_partition_that_is_not_there_is_refused(cell):
    fill(cell, 1)
    m = pop(cell)[0]
    refused(txn(cell, {**ack(m),
                       "partitionId": m["partitionId"][:-4] + "ffff"}),
            "ack_rejected", "partition not found")


def test_an_encrypted_queue_is_refused(cell, db):
    cell.post("/api/v1/configure", {"queue": "out", "options": {
        "encryptionEnabled": True}})
    refused(txn(cell, push(), push("other")), "encryption_required", "out")
    assert count(db, "other") == 0


# Leases

def test_required_leases_carry_acks_without_lease(cell, db):
    fill(cell, 2)
    m = pop(cell)
    assert txn(cell, *[ack(x, lease=False) for x in m],
               requiredLeases=[m[0]["leaseId"]])["success"]
    assert committed(db) == 1


def test_every_required_lease_must_be_live(cell, db):
    fill(cell, 2)
    m = pop(cell)
    cell.ack(m)
    refused(txn(cell, push(), requiredLeases=[m[0]["leaseId"]]),
            "ack_rejected", BAD_LEASE)
    refused(txn(cell, push(), requiredLeases=["nope"]), "ack_rejected",
            BAD_LEASE)
    refused(txn(cell, requiredLeases=[m[0]["leaseId"]]), "ack_rejected",
            BAD_LEASE)
    assert count(db) == 0


def test_a_bundle_does_not_ride_on_another_workers_lease(cell, db):
    fill(cell, 1, partition="a")
    fill(cell, 1, partition="b")
    mine = pop(cell, partition="a")[0]
    theirs = pop(cell, partition="b")[0]
    refused(txn(cell, push(), ack(theirs, lease=False),
                requiredLeases=[mine["leaseId"]]), "ack_rejected", BAD_LEASE)
    assert count(db) == 0
    # with its own lease id it is valid
    assert txn(cell, push(), ack(theirs), ack(mine, lease=False),
               requiredLeases=[mine["leaseId"]])["success"]


def test_without_required_leases_a_lease_less_ack_is_not_checked(cell, db):
    fill(cell, 1)
    m = pop(cell)[0]
    assert txn(cell, ack(m, lease=False))["success"]
    assert committed(db) == 0


def test_an_empty_required_lease_asks_for_nothing(cell, db):
    fill(cell, 1)
    m = pop(cell, autoAck=True)[0]
    assert m["leaseId"] == ""
    assert txn(cell, push(), requiredLeases=[""])["success"]


def test_two_leases_for_one_partition_are_refused(cell):
    fill(cell, 2)
    a, b = pop(cell)
    other = str(uuid.UUID(a["leaseId"][:-4] + "abcd"))
    refused(txn(cell, ack(a), {**ack(b), "leaseId": other}), "ack_rejected",
            BAD_LEASE)


def test_a_lease_taken_over_loses(cell, db):
    fill(cell, 1)
    mine = pop(cell, leaseSeconds=1)[0]
    theirs = wait_until(lambda: cell.pop("in", batch=1), deadline_s=15)[0]
    refused(txn(cell, push(), ack(mine)), "ack_rejected", BAD_LEASE)
    refused(txn(cell, push(), ack(mine, lease=False),
                requiredLeases=[mine["leaseId"]]), "ack_rejected", BAD_LEASE)
    assert txn(cell, push(), ack(theirs))["success"]
    assert count(db) == 1


# What is no rollback

def test_at_or_below_the_cursor_is_tolerated(cell, db):
    fill(cell, 3)
    m = pop(cell)
    cell.ack(m[:2])
    got = txn(cell, ack(m[0]), ack(m[1], "failed"), push())["results"]
    assert got[0] == {"index": 0, "type": "ack", "success": True,
                      "transactionId": "t0", "error": None, "dlq": False,
                      "noop": True}
    assert got[1]["success"] is False
    assert got[1]["error"].startswith("already committed")
    assert count(db) == 1


def test_statuses_execute(cell, db):
    fill(cell, 3)
    m = pop(cell)
    got = txn(cell, ack(m[0]), ack(m[1], "failed"), ack(m[2]),
              push())["results"]
    assert [r["success"] for r in got] == [True] * 4
    assert committed(db) == 0
    assert [x["transactionId"] for x in pop(cell)] == ["t1", "t2"]


def test_a_dead_letter_is_filed_in_the_bundle(cell, db):
    fill(cell, 3)
    m = pop(cell)
    got = txn(cell, ack(m[0]), ack(m[1], "dlq", error="broken"), push(),
              push(txn="x"))["results"]
    assert [r.get("dlq") for r in got] == [False, True, None, None]
    assert db.rows("select message_offset, error, frame is not null"
                   " from queen.dead_letters") == [(1, "broken", True)]
    assert (count(db), committed(db)) == (2, 1)


def test_a_rolled_back_dead_letter_is_not_filed(cell, db):
    fill(cell, 1)
    cell.push("out", [1], ids=["dup"])
    m = pop(cell)[0]
    refused(txn(cell, ack(m, "dlq"), push(txn="dup")), "duplicate", "QDUP")
    assert db.value("select count(*) from queen.dead_letters") == 0


# Gone, behind, down

def test_a_target_deleted_behind_our_back_is_made_again(cell, db):
    txn(cell, push(txn="a"))
    db.rows("update queen.queues set deleted_at = now()")
    assert txn(cell, push(txn="a"))["success"]
    assert db.value("select count(*) from queen.queues"
                    " where name = 'out'") == 2


def test_more_foreign_ids_than_a_gap_are_paged_in(cells):
    a, b = cells(2)
    txn(a, push(txn="a0"))
    for k in range(5):
        b.push("out", [1] * 1000, ids=["b%d-%d" % (k, i)
                                       for i in range(1000)])
    refused(txn(a, push(txn="b0-0")), "duplicate", "QDUP")
    refused(txn(a, push(txn="b4-999")), "duplicate", "QDUP")
    assert txn(a, push(txn="a1"))["success"]
    refused(txn(a, push(txn="a1")), "duplicate", "QDUP")


def test_without_database_it_is_500_pool_or_db_error(cell, pg, db):
    txn(cell, push(txn="a"))
    pg.stop("immediate")
    for _ in range(3):
        reply = cell.post(TXN, {"operations": [push(txn="b")]})
        if reply.status == 500:
            assert reply.body == {"error": "pool"}
        else:
            refused(reply.body, "db_error", "")
    pg.start()

    def works():
        reply = cell.post(TXN, {"operations": [push(txn="b")]})
        return reply.status == 200 and reply.body["success"]

    wait_until(works)
    assert count(db) == 2


def test_maintenance_refuses_pushes_but_not_acks(cell):
    fill(cell, 1)
    m = pop(cell)[0]
    assert cell.post("/api/v1/system/maintenance",
                     {"enabled": True}).status == 200
    reply = cell.post(TXN, {"operations": [ack(m), push()]})
    assert (reply.status, reply.body) == (
        503, {"error": "push maintenance is on"})
    assert txn(cell, ack(m))["success"]


# Together

def test_transactions_and_pushes_share_partitions_without_gap(cell, db):
    faults = []

    def run(i):
        try:
            for k in range(20):
                name = "%d-%d" % (i, k)
                if i % 2:
                    assert txn(cell, push(txn=name),
                               push(txn=name, partition="x"))["success"]
                else:
                    assert cell.push("out", [1], ids=[name])[0][
                        "status"] == "queued"
                refused(txn(cell, push(txn=name)), "duplicate", "QDUP")
        except AssertionError as e:
            faults.append(e)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not faults, faults
    assert count(db) == 160 + 80
    got = []
    for base, end in db.rows(
            "select base_offset, end_offset from queen.segments s"
            " join queen.partitions p on p.id = s.partition_id"
            " where p.name = 'Default' order by 1"):
        got += range(base, end + 1)
    assert got == list(range(160))


def test_crossing_bundles_do_not_deadlock(cell, db):
    for p in "ab":
        fill(cell, 40, queue="in", partition=p)
    faults = []
    stop = time.monotonic() + 3

    def run(i):
        try:
            k = 0
            order = ["a", "b"] if i % 2 else ["b", "a"]
            while time.monotonic() < stop:
                k += 1
                assert txn(cell, *[
                    push("out", "%d-%d" % (i, k), partition=p)
                    for p in order])["success"]
        except AssertionError as e:
            faults.append(e)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not faults, faults
    assert "deadlock" not in cell.log_text()

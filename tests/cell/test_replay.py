# SPDX-License-Identifier: Apache-2.0
"""The move of a dead letter: what lands, what goes, and exactly once."""
import http.client
import threading
import uuid

from queenlib import wait_until

NIL = "00000000-0000-0000-0000-000000000000"


def bury(cell, queue="q", n=1, partition="p"):
    """n dead letters of one partition; their row ids, oldest offset first."""
    body = '{"items":[%s]}' % ",".join(
        '{"queue":"%s","partition":"%s","transactionId":"t%d",'
        '"payload":{"b":1.50,"a":%d}}' % (queue, partition, i, i)
        for i in range(n))
    assert cell.post("/api/v1/push", body).status == 201
    for _ in range(n):
        m = wait_until(lambda: cell.pop(queue, batch=n, partition=partition))
        assert cell.ack(m[:1], status="dlq", error="broken")[0]["dlq"]
    return [str(r[0]) for r in cell.db.rows(
        "select id from queen.dead_letters order by message_offset")]


def replay(cell, row, **to):
    return cell.post("/api/v1/dlq/%s/replay" % row, to or None)


def rows_left(cell):
    return cell.db.value("select count(*) from queen.dead_letters")


def test_a_replay_lands_at_the_tail_and_the_row_goes(cell):
    a, b, c = bury(cell, n=3)
    reply = replay(cell, b)
    assert reply.status == 200, reply
    got = reply.body
    assert (got["result"], got["dlqRowRemoved"], got["queue"],
            got["partition"], got["originalTransactionId"],
            got["consumerGroup"]) == (
        "moved", True, "q", "p", "t1", "__QUEUE_MODE__")
    as_ = got["replayedAs"]
    assert (as_["transaction_id"], as_["status"], as_["offset"]) == (
        "dlq:" + b, "queued", 3)
    assert uuid.UUID(as_["message_id"]).version == 7
    assert rows_left(cell) == 2
    m = wait_until(lambda: cell.pop("q"))
    assert [(x["id"], x["transactionId"], x["offset"]) for x in m] == [
        (as_["message_id"], "dlq:" + b, 3)]


def test_the_payload_is_moved_byte_for_byte(cell):
    row, = bury(cell)
    assert replay(cell, row).status == 200
    wait_until(lambda: cell.db.value("select max(end_offset)"
                                     " from queen.segments") == 1)
    conn = http.client.HTTPConnection("127.0.0.1", cell.port.number,
                                      timeout=30)

    def popped():
        conn.request("GET", "/api/v1/pop/queue/q")
        return conn.getresponse().read()

    assert b'"data":{"b":1.50,"a":0}' in wait_until(popped)
    conn.close()


def test_a_destination_that_is_not_there_is_made(cell):
    a, b, c = bury(cell, n=3)
    assert replay(cell, a, queue="fresh").body["replayedAs"]["offset"] == 0
    assert replay(cell, b, queue="fresh",
                  partition="other").body["partition"] == "other"
    assert replay(cell, c, partition="third").body["queue"] == "q"
    assert rows_left(cell) == 0
    got = cell.db.rows(
        "select q.name, p.name from queen.partitions p join queen.queues q"
        " on q.id = p.queue_id order by 1, 2")
    assert got == [("fresh", "other"), ("fresh", "p"), ("q", "p"),
                   ("q", "third")]


def test_an_id_the_destination_holds_keeps_the_row(cell):
    row, = bury(cell)
    cell.push("q", [1], partition="p", ids=["dlq:" + row])
    got = replay(cell, row).body
    assert (got["result"], got["dlqRowRemoved"],
            got["replayedAs"]["message_id"]) == ("duplicate", False, NIL)
    assert rows_left(cell) == 1


def test_pushes_know_the_replayed_id(cell):
    row, = bury(cell)
    moved = replay(cell, row).body["replayedAs"]
    again = cell.push("q", [1], partition="p", ids=["dlq:" + row])
    assert (again[0]["status"], again[0]["message_id"]) == (
        "duplicate", moved["message_id"])
    assert cell.push("q", [1], partition="p", ids=["n"])[0][
        "status"] == "queued"


def test_a_row_that_is_gone_is_404(cell):
    row, = bury(cell)
    assert replay(cell, row).status == 200
    for unknown in (row, str(uuid.uuid4())):
        reply = replay(cell, unknown)
        assert (reply.status, reply.body["result"]) == (404, "gone")


def test_maintenance_leaves_it_untouched(cell):
    row, = bury(cell)
    cell.post("/api/v1/system/maintenance", {"enabled": True})
    reply = replay(cell, row)
    assert (reply.status, reply.body["result"]) == (503, "maintenance")
    assert rows_left(cell) == 1


def test_a_row_without_a_message_cannot_be_replayed(cell):
    row, = bury(cell)
    cell.db.rows("update queen.dead_letters set frame = null")
    reply = replay(cell, row)
    assert (reply.status, reply.body["dlqRowRemoved"]) == (500, False)
    assert "removed by retention" in reply.body["error"]
    assert rows_left(cell) == 1


def test_an_encrypted_destination_is_refused(cell):
    row, = bury(cell)
    cell.post("/api/v1/configure", {"queue": "secret", "options": {
        "encryptionEnabled": True}})
    reply = replay(cell, row, queue="secret")
    assert (reply.status, reply.body["error"]) == (500,
                                                   "encryption_required")
    assert rows_left(cell) == 1


def test_a_deleted_destination_is_made_again(cell):
    row, = bury(cell)
    cell.push("out", [1], partition="p")
    cell.db.rows("update queen.queues set deleted_at = now()"
                 " where name = 'out'")
    got = replay(cell, row, queue="out").body
    assert (got["result"], got["replayedAs"]["offset"]) == ("moved", 0)


def test_racing_replays_move_it_once(cells):
    a, b = cells(2)
    row, = bury(a)
    answers = []

    def run(cell):
        reply = replay(cell, row)
        answers.append((reply.status, reply.body["result"]))

    threads = [threading.Thread(target=run, args=(c,)) for c in [a, b] * 4]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert sorted(answers) == [(200, "moved")] + [(404, "gone")] * 7
    assert rows_left(a) == 0
    assert a.db.value("select max(end_offset) from queen.segments") == 1

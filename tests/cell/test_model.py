# SPDX-License-Identifier: Apache-2.0
"""Rules of the model that span several routes."""
import threading
import urllib.parse

import pytest

from queenlib import wait_until

ACK = "/api/v1/ack/batch"


def configure(cell, queue, **options):
    reply = cell.post("/api/v1/configure",
                      {"queue": queue, "options": options})
    assert reply.status == 200, reply


def consumed(cell, group, queue="q"):
    body = cell.get("/api/v1/consumer-groups/" + group).body
    return sum(p["totalConsumed"] for p in body[queue]["partitions"])


def status_ack(cell, group, message, status, **more):
    body = {"consumerGroup": group, "acknowledgments": [
        dict(more, transactionId=message["transactionId"],
             partitionId=message["partitionId"],
             leaseId=message["leaseId"], status=status)]}
    reply = cell.post(ACK, body)
    assert reply.status == 200 and reply.body[0]["success"], reply
    return reply.body[0]


def test_consumed_equals_the_acked_positions(cell):
    """Every way to pass a message counts it once; a nack counts nothing."""
    configure(cell, "q", retryLimit=0)
    cell.push("q", list(range(10)), ids=["m%d" % i for i in range(10)])
    messages = cell.pop("q", group="g", subscriptionMode="all", batch=6)
    assert consumed(cell, "g") == 0
    status_ack(cell, "g", messages[1], "completed")
    assert consumed(cell, "g") == 2
    status_ack(cell, "g", messages[3], "retry")
    assert consumed(cell, "g") == 2
    messages = cell.pop("q", group="g", batch=4)
    assert [m["offset"] for m in messages] == [2, 3, 4, 5]
    assert status_ack(cell, "g", messages[0], "dlq")["dlq"]
    assert consumed(cell, "g") == 3
    messages = cell.pop("q", group="g", batch=3)
    assert status_ack(cell, "g", messages[0], "failed")["dlq"]
    assert consumed(cell, "g") == 4
    configure(cell, "q", retryLimit=0, deadLetterQueue=False,
              dlqAfterMaxRetries=False)
    messages = cell.pop("q", group="g", batch=3)
    assert not status_ack(cell, "g", messages[0], "failed")["dlq"]
    assert consumed(cell, "g") == 5
    cell.ack(cell.pop("q", group="g", batch=3), group="g")
    assert consumed(cell, "g") == 8
    assert len(cell.pop("q", group="g", autoAck=True)) == 2
    assert consumed(cell, "g") == 10
    message, = cell.pop("q", group="last", subscriptionMode="all",
                        conflation=True)
    status_ack(cell, "last", message, "completed")
    assert consumed(cell, "last") == 10


def test_a_seek_back_delivers_a_dead_letter_again_and_its_row_stays(cell):
    cell.push("q", [1], ids=["m"])
    message, = cell.pop("q", group="g", subscriptionMode="all")
    assert status_ack(cell, "g", message, "dlq", error="broken")["dlq"]
    assert cell.pop("q", group="g") == []
    reply = cell.post("/api/v1/consumer-groups/g/queues/q/seek",
                      {"timestamp": "1970-01-01T00:00:00Z"})
    assert reply.status == 200, reply
    message, = cell.pop("q", group="g")
    assert (message["transactionId"], message["data"]) == ("m", 1)
    cell.ack([message], group="g")
    row, = cell.get("/api/v1/dlq?queue=q").body["messages"]
    assert (row["transactionId"], row["errorMessage"]) == ("m", "broken")


@pytest.mark.parametrize("partition", [None, "Default"])
def test_the_default_partition_is_found_by_every_pop(cell, partition):
    """Clients pop `Default` over the queue's route."""
    cell.push("a.b", [1], partition=partition)
    message, = cell.pop("a.b", autoAck=True)
    assert (message["partition"], message["data"]) == ("Default", 1)
    cell.push("a.b", [2])
    message, = cell.pop("a.b", partition="Default", autoAck=True)
    assert message["data"] == 2
    cell.push("a.b", [3])
    reply = cell.get("/api/v1/pop?namespace=a&task=b&autoAck=true")
    assert [m["data"] for m in reply.body["messages"]] == [3]


def parked(cell):
    for line in cell.get("/metrics/prometheus").body.decode().splitlines():
        if line.startswith("queen_parked_pops "):
            return float(line.split()[1]) == 1
    return False


def while_parked(cell, queue, act):
    """What a pop parked on queue gets once act has run."""
    got = []
    cell.pop(queue)
    waiter = threading.Thread(target=lambda: got.extend(cell.pop(
        queue, wait=True, wait_ms=20000, autoAck=True)))
    waiter.start()
    try:
        wait_until(lambda: parked(cell), what="a parked pop")
        act()
        waiter.join(2)
        assert not waiter.is_alive(), "not woken within 2 s"
    finally:
        waiter.join(25)
    return got


def test_every_way_to_store_a_message_wakes_parked_pops(cell):
    def transaction():
        reply = cell.post("/api/v1/transaction", {"operations": [
            {"type": "push", "queue": "txn", "payload": 1}]})
        assert reply.body["success"], reply

    message, = while_parked(cell, "txn", transaction)
    assert message["data"] == 1

    cell.push("src", [2], ids=["x/y"])
    message, = cell.pop("src", group="g", subscriptionMode="all")
    assert status_ack(cell, "g", message, "dlq")["dlq"]
    cell.pop("src", autoAck=True)

    def retry():
        reply = cell.post("/api/v1/messages/%s/%s/retry" % (
            message["partitionId"], urllib.parse.quote("x/y", safe="")))
        assert reply.body["result"] == "moved", reply

    replayed, = while_parked(cell, "src", retry)
    assert replayed["data"] == 2

    message, = cell.pop("src", group="h", subscriptionMode="all", batch=1)
    assert status_ack(cell, "h", message, "dlq")["dlq"]
    row, = cell.get("/api/v1/dlq?queue=src&consumerGroup=h").body["messages"]

    def replay():
        reply = cell.post("/api/v1/dlq/%s/replay" % row["id"],
                          {"queue": "elsewhere"})
        assert reply.body["result"] == "moved", reply

    replayed, = while_parked(cell, "elsewhere", replay)
    assert replayed["data"] == 2

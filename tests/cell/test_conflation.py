# SPDX-License-Identifier: Apache-2.0
"""Conflation: last value per partition, a policy of the group."""
import pytest

LAST = {"conflation": True, "subscriptionMode": "all"}


def raw(cell, path):
    return cell.get("/api/v1/pop" + path)


def test_delivers_the_newest_and_a_clean_ack_commits_the_span(cell, db):
    cell.push("q", list(range(100)))
    got = cell.pop("q", group="g", **LAST)
    assert [(m["data"], m["offset"]) for m in got] == [(99, 99)]
    result = cell.ack(got, group="g")
    assert result[0]["success"] is True
    assert result[0]["conflated"] == 99
    assert db.value("select committed from queen.consumers"
                    " order by gen desc limit 1") == 99


def test_push_during_handling_is_delivered_next(cell):
    cell.push("q", [1, 2])
    got = cell.pop("q", group="g", **LAST)
    assert [m["data"] for m in got] == [2]
    cell.push("q", [3, 4])
    cell.ack(got, group="g")
    assert [m["data"] for m in cell.pop("q", group="g", **LAST)] == [4]


def test_nack_redelivers_the_then_newest(cell):
    cell.push("q", [1])
    got = cell.pop("q", group="g", **LAST)
    cell.push("q", [2])
    cell.ack(got, group="g", status="retry")
    got = cell.pop("q", group="g", **LAST)
    assert [m["data"] for m in got] == [2]
    assert got[0]["deliveryAttempt"] == 2


def test_batch_is_a_budget_of_partitions(cell):
    for p in range(70):
        cell.push("q", [p, 1000 + p], partition="p%d" % p)
    reply = raw(cell, "/queue/q?consumerGroup=g&conflation=true&batch=5"
                "&subscriptionMode=all")
    assert reply.body["partitionsClaimed"] == 5
    assert len(reply.body["messages"]) == 5
    assert all(m["data"] >= 1000 for m in reply.body["messages"])
    reply = raw(cell, "/queue/q?consumerGroup=g&conflation=true&batch=500")
    assert len(reply.body["messages"]) == 64
    reply = raw(cell, "/queue/q?consumerGroup=h&conflation=true&batch=500"
                "&partitions=2&subscriptionMode=all")
    assert len(reply.body["messages"]) == 2


def test_answers_say_so_also_when_empty(cell):
    cell.push("q", [1])
    full = raw(cell, "/queue/q?consumerGroup=g&conflation=true"
               "&subscriptionMode=all").body
    assert full["conflation"] is True
    assert "conflationConflict" not in full
    empty = raw(cell, "/queue/q?consumerGroup=g&conflation=true")
    assert (empty.status, empty.body) == (
        200, {"messages": [], "conflation": True})


@pytest.mark.parametrize("path", ["/queue/q", "/queue/q/partition/p"])
def test_first_registration_decides_and_conflicts_are_told(cell, path):
    cell.push("q", [1, 2], partition="p")
    query = path + "?subscriptionMode=all&consumerGroup="
    first = raw(cell, query + "last&conflation=true").body
    assert [m["data"] for m in first["messages"]] == [2]
    cell.ack(first["messages"], group="last")
    cell.push("q", [3, 4], partition="p")
    clash = raw(cell, query + "last").body
    assert [m["data"] for m in clash["messages"]] == [4]
    assert (clash["conflation"], clash["conflationConflict"]) == (True, True)

    plain = raw(cell, query + "plain").body
    assert [m["data"] for m in plain["messages"]] == [1, 2, 3, 4]
    assert "conflation" not in plain and "conflationConflict" not in plain
    clash = raw(cell, query + "plain&conflation=true")
    assert (clash.status, clash.body) == (
        200, {"messages": [], "conflationConflict": True})


def test_refusals(cell):
    reply = raw(cell, "/queue/q?conflation=true")
    assert (reply.status, reply.body) == (400, {
        "error": "conflation requires a consumer group",
        "code": "conflation_requires_group"})
    reply = raw(cell, "/queue/q?conflation=true&consumerGroup=g"
                "&autoAck=true")
    assert (reply.status, reply.body) == (400, {
        "error": "conflation cannot be used with autoAck",
        "code": "conflation_with_auto_ack"})


def test_delay_counts_only_what_is_visible(cell):
    cell.push("q", [1])
    cell.post("/api/v1/configure",
              {"queue": "q", "options": {"delayedProcessing": 2}})
    cell.push("q", [2])
    # everything is young: nothing yet, and the cursor stays
    first = cell.pop("q", group="g", **LAST)
    assert [m["data"] for m in first] in ([], [1])
    got = cell.pop("q", group="h", wait=True, wait_ms=10000, **LAST)
    assert got[-1]["data"] in (1, 2)


def test_other_groups_read_everything(cell):
    cell.push("q", [1, 2, 3])
    cell.ack(cell.pop("q", group="g", **LAST), group="g")
    assert [m["data"] for m in cell.pop("q", group="h",
                                        subscriptionMode="all")] == [1, 2, 3]

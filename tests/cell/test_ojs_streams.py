# SPDX-License-Identifier: Apache-2.0
"""Streams over HTTP: appends, consumers, batches, retries, dead letters."""
import collections
import re
import threading

import pytest

from ojskit import quoted
from queenlib import wait_until

ISO = re.compile(r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$")
V7 = re.compile(r"^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-"
                r"[0-9a-f]{12}$")
NOTHING = {"batch": None, "messages": []}

# due work at once, so that a retry is there when it is due
pytestmark = pytest.mark.cellenv(QUEEN_OJS_SWEEP_MS="10")


def path(queue, *rest):
    return "/".join(["/queues", quoted(queue), *map(quoted, rest)])


def event(n, **more):
    return {"type": "n", "payload": n, **more}


def events(*numbers):
    return [event(n) for n in numbers]


def numbers(batch):
    return [m["payload"] for m in batch["messages"]]


def nack(ojs, queue, batch, message, status=200, **more):
    body = {"queue": queue, "batch_id": batch["batch"]["id"],
            "seq": message["seq"], "retry_after": 0, **more}
    return ojs.ask("POST", "/streams/nack", body, status)


def take(ojs, queue, consumer, **more):
    """A batch that has to come, waited for."""
    got = ojs.receive(queue, consumer, wait_ms=5000, **more)
    assert got["batch"], "nothing came"
    return got


def drain(ojs, queue, consumer):
    """The payloads of one batch, acked."""
    got = take(ojs, queue, consumer)
    ojs.stream_ack(queue, got["batch"]["id"])
    return numbers(got)


def info(ojs, queue):
    return ojs.ask("GET", path(queue, "info"))["stream"]


def consumer(ojs, queue, name):
    listed = ojs.ask("GET", path(queue, "consumers"))["consumers"]
    return next(c for c in listed if c["name"] == name)


def test_append_receive_ack(ojs):
    made = ojs.subscribe("orders", "billing")
    assert ISO.match(made["consumer"].pop("created_at"))
    assert made == {"consumer": {"name": "billing", "last_tick": 1,
                                 "next_tick": 1, "created": True}}
    sent = ojs.ask("POST", path("orders", "messages"),
                   {"type": "order.paid", "payload": {"order": 771},
                    "headers": {"trace": "c0ffee"}, "else": 1}, 201)["message"]
    assert V7.match(sent["id"]) and ISO.match(sent["created_at"])
    assert sent == {"id": sent["id"], "seq": 1, "type": "order.paid",
                    "created_at": sent["created_at"]}
    got = ojs.receive("orders", "billing")
    batch = got["batch"]
    assert ISO.match(batch["created_at"])
    assert got == {
        "batch": {"id": batch["id"], "queue": "orders", "consumer": "billing",
                  "start_tick": 1, "end_tick": 2, "size": 1,
                  "redelivered": False, "created_at": batch["created_at"]},
        "messages": [{"id": sent["id"], "seq": 1, "type": "order.paid",
                      "payload": {"order": 771},
                      "headers": {"trace": "c0ffee"}, "retry_count": 0,
                      "created_at": sent["created_at"]}]}
    assert ojs.stream_ack("orders", str(batch["id"])) == {
        "acknowledged": True, "queue": "orders", "batch_id": batch["id"],
        "consumer": "billing", "last_tick": 2, "next_tick": 2}
    assert ojs.receive("orders", "billing") == NOTHING
    # polls of nobody's interest leave nothing behind
    assert info(ojs, "orders")["last_tick"] == 2


def test_batches_keep_order_and_bytes(ojs):
    odd = '{ "b": 1.50,"a":[1e2 , -0.0,"\\u0000\\ud800é"],"a":{}}'
    head = '{"trace" : "x","trace":null}'
    ojs.subscribe("q", "c")
    body = ('{"messages":[{"type":"o","payload":%s,"headers":%s,"id":"é/1"},'
            '{"type":"null","payload":null},{"type":"s","payload":"%s"}]}'
            % (odd, head, "x" * 900000))
    sent = ojs.ask("POST", path("q", "messages", "batch"), body, 201)
    assert sent["count"] == 3
    assert [(m["seq"], m["type"]) for m in sent["messages"]] == [
        (1, "o"), (2, "null"), (3, "s")]
    assert sent["messages"][0]["id"] == "é/1"
    raw = super(type(ojs), ojs).request(
        "POST", "/ojs/v1" + path("q", "receive"), {"consumer": "c"}).body
    assert ('"payload":%s,"headers":%s,' % (odd, head)).encode() in raw
    got = ojs.receive("q", "c")
    assert [m["id"] for m in got["messages"]] == [
        m["id"] for m in sent["messages"]]
    assert got["messages"][1]["payload"] is None
    assert "headers" not in got["messages"][1]
    assert got["messages"][2]["payload"] == "x" * 900000
    ojs.stream_ack("q", got["batch"]["id"])
    # a thousand at once, not one more
    sent = ojs.append("q", *events(*range(1000)))
    assert sent["count"] == 1000
    assert [m["seq"] for m in sent["messages"]] == list(range(4, 1004))
    # shown the same, though it takes some turns to write
    batch = ojs.receive("q", "c")
    assert ojs.ask("GET", "/queues/q/batches/%d?payload=true"
                   % batch["batch"]["id"])["messages"] == batch["messages"]
    assert drain(ojs, "q", "c") == list(range(1000))
    error = ojs.refused("POST", path("q", "messages", "batch"),
                        {"messages": events(*range(1200))}, 413,
                        "batch_too_large")
    assert error["details"] == {"max": 1000, "batch_size": 1200}
    assert ojs.receive("q", "c") == NOTHING


def test_each_consumer_gets_all(ojs):
    for name in "abc":
        ojs.subscribe("q", name)
    ojs.append("q", *events(*range(5)))
    assert drain(ojs, "q", "a") == [0, 1, 2, 3, 4]
    ojs.append("q", *events(5))
    assert drain(ojs, "q", "a") == [5]
    assert drain(ojs, "q", "b") == [0, 1, 2, 3, 4, 5]
    held = ojs.receive("q", "c")
    assert numbers(held) == [0, 1, 2, 3, 4, 5]
    assert ojs.receive("q", "b") == NOTHING
    ticks = {n: consumer(ojs, "q", n)["last_tick"] for n in "abc"}
    assert ticks == {"a": 3, "b": 3, "c": 1}


def test_the_same_until_it_is_acked(ojs):
    ojs.subscribe("q", "c")
    ojs.append("q", *events(1, 2, 3))
    first = ojs.receive("q", "c")
    ojs.append("q", *events(4))
    again = ojs.receive("q", "c")
    assert again["batch"] == {**first["batch"], "redelivered": True}
    assert again["messages"] == first["messages"]
    said = nack(ojs, "q", first, first["messages"][1], reason="not now")
    assert ISO.match(said.pop("deliver_at"))
    assert said == {
        "queue": "q", "batch_id": first["batch"]["id"],
        "message_id": first["messages"][1]["id"], "seq": 2,
        "outcome": "retry", "retry_count": 1, "max_retries": 5}
    marked = ojs.receive("q", "c")["messages"]
    assert [m.get("outcome") for m in marked] == [None, "retry", None]
    ojs.stream_ack("q", first["batch"]["id"])
    # the one that was nacked, with a new seq, after or beside what came since
    seen = []
    while len(seen) < 2:
        got = take(ojs, "q", "c")
        assert not got["batch"]["redelivered"]
        seen += [(m["payload"], m["retry_count"]) for m in got["messages"]]
        back = [m for m in got["messages"] if m["retry_count"]]
        ojs.stream_ack("q", got["batch"]["id"])
    assert sorted(seen) == [(2, 1), (4, 0)]
    assert back[0]["id"] == first["messages"][1]["id"]
    assert back[0]["seq"] > 4
    assert back[0]["created_at"] == first["messages"][1]["created_at"]
    assert ojs.receive("q", "c") == NOTHING


def test_retries_are_the_consumers_own(ojs):
    ojs.subscribe("q", "a")
    ojs.subscribe("q", "b")
    ojs.append("q", *events(1, 2, 3))
    got = ojs.receive("q", "a")
    for i in 0, 2:
        nack(ojs, "q", got, got["messages"][i], retry_after="PT0S")
    ojs.stream_ack("q", got["batch"]["id"])
    assert drain(ojs, "q", "b") == [1, 2, 3]
    seen = {}
    while len(seen) < 2:
        got = take(ojs, "q", "a")
        seen.update((m["payload"], m["retry_count"]) for m in got["messages"])
        ojs.stream_ack("q", got["batch"]["id"])
    assert seen == {1: 1, 3: 1}
    assert ojs.receive("q", "b") == NOTHING
    # after what was asked for and not before
    ojs.append("q", *events(4))
    got = ojs.receive("q", "a")
    said = nack(ojs, "q", got, got["messages"][0], retry_after="1h30m")
    ojs.stream_ack("q", got["batch"]["id"])
    assert ojs.db.value(
        "select extract(epoch from (%s::timestamptz - now()))::int / 60",
        (said["deliver_at"],)) in (89, 90)
    assert info(ojs, "q")["retries"] == 1
    assert consumer(ojs, "q", "a")["retries"] == 1


def test_ends_that_are_refused(ojs):
    ojs.subscribe("q", "c")
    ojs.append("q", event(1, id="same"), event(2, id="same"), event(3))
    got = ojs.receive("q", "c")
    batch = got["batch"]["id"]

    def refused(what, body, status=404, code="not_found"):
        body = {"queue": "q", "batch_id": batch, **body}
        return ojs.refused("POST", "/streams/" + what, body, status, code)

    error = refused("nack", {"message_id": "same"}, 409, "conflict")
    assert error["details"] == {"message": "same", "seqs": [1, 2]}
    error = refused("nack", {"message_id": "forged"})
    assert error["details"] == {"resource": "message", "message": "forged"}
    error = refused("nack", {"seq": 99})
    assert error["details"] == {"resource": "message", "message": "99"}
    # both have to fit
    refused("nack", {"message_id": got["messages"][2]["id"], "seq": 1})
    error = refused("nack", {"seq": 1, "batch_id": batch + 7})
    assert error["details"] == {"resource": "batch",
                                "batch": str(batch + 7)}
    error = refused("ack", {"consumer": "other"}, 409, "conflict")
    assert error["details"]["batch_id"] == batch
    refused("ack", {"member": "m"}, 409, "conflict")
    # said twice: one row, one answer; what a caller adds is not stored
    forged = {"payload": "forged", "type": "forged", "retry_count": 99}
    first = nack(ojs, "q", got, got["messages"][0], message_id="same",
                 **forged)
    assert nack(ojs, "q", got, got["messages"][0], retry_after="1h") == first
    ojs.stream_ack("q", batch, consumer="c")
    error = refused("ack", {})
    assert error["details"] == {"resource": "batch", "batch": str(batch)}
    refused("nack", {"seq": 1})
    back = take(ojs, "q", "c")["messages"]
    assert [(m["id"], m["type"], m["payload"], m["retry_count"])
            for m in back] == [("same", "n", 1, 1)]


def test_dead_letters(ojs):
    ojs.subscribe("q", "c")
    ojs.subscribe("q", "other", from_tick="now")
    config = ojs.ask("POST", path("q", "config"), {"max_retries": 2})
    assert config["config"]["max_retries"] == 2
    sent = ojs.append("q", event(7, headers={"h": 1}))["messages"][0]
    for count in range(3):
        got = take(ojs, "q", "c")
        assert [m["retry_count"] for m in got["messages"]] == [count]
        said = nack(ojs, "q", got, got["messages"][0], reason="down")
        ojs.stream_ack("q", got["batch"]["id"])
    assert said == {"queue": "q", "batch_id": got["batch"]["id"],
                    "message_id": sent["id"], "seq": said["seq"],
                    "outcome": "dead_letter", "retry_count": 2,
                    "max_retries": 2, "dead_letter_id": 1}
    listed = ojs.ask("GET", path("q", "dlq"))
    dead = listed["dead_letters"][0]
    assert ISO.match(dead.pop("failed_at"))
    assert listed == {
        "dead_letters": [{
            "id": 1, "consumer": "c", "message_id": sent["id"],
            "seq": said["seq"], "type": "n", "payload": 7,
            "headers": {"h": 1}, "retry_count": 2, "reason": "down",
            "created_at": sent["created_at"]}],
        "pagination": {"total": 1, "has_more": False, "limit": 50,
                       "offset": 0}}
    back = ojs.ask("POST", path("q", "dlq", 1, "replay"))
    assert back["replayed"] == 1
    assert back["message"]["id"] == sent["id"]
    got = take(ojs, "q", "c")
    assert [(m["payload"], m["retry_count"], m["headers"], m["seq"])
            for m in got["messages"]] == [
        (7, 0, {"h": 1}, back["message"]["seq"])]
    # to the consumer that gave it up, and once
    assert drain(ojs, "q", "other") == [7]
    assert ojs.receive("q", "other") == NOTHING
    for number in 1, 99:
        error = ojs.refused("POST", path("q", "dlq", number, "replay"), None,
                            404, "not_found")
        assert error["details"] == {"resource": "dead_letter",
                                    "dead_letter": str(number)}


def test_dead_letters_in_number(ojs):
    for name in "ab":
        ojs.subscribe("q", name)
    ojs.ask("POST", path("q", "config"), {"max_retries": 0})
    assert ojs.ask("POST", path("q", "dlq", "replay")) == {
        "replayed": 0, "failed": 0}
    ojs.append("q", *events(*range(5)))
    for name in "ab":
        got = ojs.receive("q", name)
        for m in got["messages"]:
            said = nack(ojs, "q", got, m)
            assert (said["outcome"], said["retry_count"]) == (
                "dead_letter", 0)
        ojs.stream_ack("q", got["batch"]["id"])

    def page(query):
        return ojs.ask("GET", path("q", "dlq") + query)

    listed = page("?consumer=b")
    assert [d["payload"] for d in listed["dead_letters"]] == [4, 3, 2, 1, 0]
    assert listed["pagination"]["total"] == 5
    assert {d["reason"] for d in listed["dead_letters"]} == {
        "max retries exceeded"}
    seen, query = [], "?limit=4"
    while query:
        listed = page(query)
        seen += [d["id"] for d in listed["dead_letters"]]
        more = listed["pagination"].get("next_cursor")
        assert listed["pagination"]["has_more"] == bool(more)
        query = more and "?limit=4&cursor=" + more
    assert seen == list(range(10, 0, -1))
    assert [d["id"] for d in page("?limit=3&offset=8")["dead_letters"]] == [
        2, 1]
    # by age: ours are of today
    def purge(query):
        return ojs.ask("DELETE", path("q", "dlq") + query)["purged"]

    assert purge("") == 0
    assert purge("?older_than=720h") == 0
    assert purge("?older_than=PT1H") == 0
    assert ojs.ask("POST", path("q", "dlq", 10, "replay"))["replayed"] == 1
    assert ojs.ask("POST", path("q", "dlq", "replay")) == {
        "replayed": 9, "failed": 0}
    assert drain(ojs, "q", "a") == [0, 1, 2, 3, 4]
    got = take(ojs, "q", "b")
    assert sorted(numbers(got)) == [0, 1, 2, 3, 4]
    nack(ojs, "q", got, got["messages"][0])
    assert purge("?older_than=0") == 1
    assert info(ojs, "q")["dead_letters"] == 0


def test_where_a_consumer_begins(ojs):
    ojs.subscribe("q", "first")
    ojs.append("q", *events(1))
    assert drain(ojs, "q", "first") == [1]
    ojs.append("q", *events(2))
    # the newest tick is older than the second event
    assert ojs.subscribe("q", "latest")["consumer"]["last_tick"] == 2
    assert ojs.subscribe("q", "now", from_tick="now")["consumer"][
        "last_tick"] == 3
    assert ojs.subscribe("q", "all", from_tick=0)["consumer"]["last_tick"] == 1
    assert ojs.subscribe("q", "two", from_tick="2")["consumer"][
        "next_tick"] == 2
    error = ojs.refused("POST", path("q", "consumers"),
                        {"consumer": "late", "from_tick": 99}, 404,
                        "not_found")
    assert error["details"] == {"resource": "tick", "tick": "99"}
    assert [drain(ojs, "q", n) for n in ("latest", "all", "two")] == [
        [2], [1, 2], [2]]
    assert ojs.receive("q", "now") == NOTHING
    # again: nothing changes without a tick, the cursor moves with one
    at = consumer(ojs, "q", "all")["last_tick"]
    same = ojs.subscribe("q", "all", status=200)["consumer"]
    assert (same["created"], same["last_tick"]) == (False, at)
    ojs.append("q", *events(3))
    held = ojs.receive("q", "all")
    assert numbers(held) == [3]
    moved = ojs.subscribe("q", "all", status=200, from_tick=1)["consumer"]
    assert (moved["created"], moved["last_tick"]) == (False, 1)
    assert ojs.stream_ack("q", held["batch"]["id"], 404)["error"][
        "details"]["resource"] == "batch"
    assert drain(ojs, "q", "all") == [1, 2, 3]


def test_an_end_and_a_new_beginning(ojs):
    ojs.subscribe("q", "c")
    ojs.append("q", *events(1, 2))
    got = ojs.receive("q", "c")
    nack(ojs, "q", got, got["messages"][0], retry_after=0)
    assert ojs.ask("DELETE", path("q", "consumers", "c")) == {
        "deleted": True, "consumer": "c"}
    error = ojs.refused("DELETE", path("q", "consumers", "c"), None, 404,
                        "not_found")
    assert error["details"] == {"resource": "consumer", "consumer": "c"}
    ojs.stream_ack("q", got["batch"]["id"], 404)
    assert ojs.ask("GET", path("q", "consumers")) == {"consumers": []}
    assert ojs.subscribe("q", "c")["consumer"]["created"]
    ojs.append("q", *events(3))
    assert drain(ojs, "q", "c") == [3]
    assert ojs.receive("q", "c") == NOTHING


def test_max_is_a_ceiling(ojs):
    ojs.subscribe("q", "c")
    ojs.append("q", *events(*range(30)))
    before = info(ojs, "q"), ojs.ask("GET", path("q", "consumers"))
    error = ojs.refused("POST", path("q", "receive"),
                        {"consumer": "c", "max": 10, "wait_ms": 5000}, 413,
                        "batch_too_large")
    assert error["details"] == {"max": 10, "batch_size": 30,
                                "smallest_max": 30}
    after = info(ojs, "q"), ojs.ask("GET", path("q", "consumers"))
    for listed in before[1], after[1]:
        listed["consumers"][0].pop("lag_ms")
    assert before == after
    got = ojs.receive("q", "c", max=30)
    assert got["batch"]["size"] == 30
    # also for a batch that is there already
    error = ojs.refused("POST", path("q", "receive"),
                        {"consumer": "c", "max": 29}, 413, "batch_too_large")
    assert error["details"] == {"max": 29, "batch_size": 30,
                                "smallest_max": 30}
    assert "active batch has 30 messages" in error["message"]
    ojs.stream_ack("q", got["batch"]["id"])
    # a tick in between is a place to stop at
    ojs.append("q", *events(1, 2))
    ojs.subscribe("q", "mark", from_tick="now")
    ojs.append("q", *events(3, 4, 5))
    ojs.subscribe("q", "mark", status=200, from_tick="now")
    error = ojs.refused("POST", path("q", "receive"),
                        {"consumer": "c", "max": 1}, 413, "batch_too_large")
    assert error["details"] == {"max": 1, "batch_size": 5, "smallest_max": 2}
    assert "next batch has 2 messages" in error["message"]
    got = ojs.receive("q", "c", max=3)
    assert numbers(got) == [1, 2]
    ojs.stream_ack("q", got["batch"]["id"])
    assert drain(ojs, "q", "c") == [3, 4, 5]


def test_members_share_the_work(ojs):
    ojs.subscribe("q", "group")
    ojs.subscribe("q", "alone")
    got = {}
    for i, member in enumerate("abc"):
        ojs.append("q", *events(i))
        got[member] = ojs.receive("q", "group", member=member)
        assert got[member]["batch"]["member"] == member
        again = ojs.receive("q", "group", member=member)
        assert again["batch"]["id"] == got[member]["batch"]["id"]
    assert [numbers(got[m]) for m in "abc"] == [[0], [1], [2]]
    error = ojs.refused("POST", path("q", "receive"), {"consumer": "group"},
                        409, "conflict")
    assert error["details"] == {"queue": "q", "consumer": "group"}
    held = ojs.receive("q", "alone")
    assert numbers(held) == [0, 1, 2]
    ojs.refused("POST", path("q", "receive"),
                {"consumer": "alone", "member": "m"}, 409, "conflict")
    ojs.stream_ack("q", held["batch"]["id"])
    # the group's cursor moves over what is contiguous
    ends = [ojs.stream_ack("q", got[m]["batch"]["id"], member=m)["last_tick"]
            for m in "ca"]
    assert ends == [1, 2]
    error = ojs.stream_ack("q", got["c"]["batch"]["id"], 409)["error"]
    assert error["code"] == "conflict"
    assert "waits" in error["message"]
    assert ojs.stream_ack("q", got["b"]["batch"]["id"])["last_tick"] == 4
    assert ojs.receive("q", "group", member="a") == NOTHING
    assert ojs.receive("q", "group") == NOTHING


def test_eight_members_at_once(ojs):
    total = 400
    ojs.subscribe("q", "group")
    seen, starts = collections.Counter(), []

    def work(member):
        while sum(seen.values()) < total:
            got = ojs.receive("q", "group", member=member, wait_ms=20)
            if got["batch"]:
                starts.append(got["batch"]["start_tick"])
                seen.update(numbers(got))
                ojs.stream_ack("q", got["batch"]["id"], member=member)

    members = [threading.Thread(target=work, args=("m%d" % i,))
               for i in range(8)]
    for m in members:
        m.start()
    for n in range(0, total, 5):
        ojs.append("q", *events(*range(n, n + 5)))
    for m in members:
        m.join(30)
    assert seen == collections.Counter(range(total))
    # no two had the same part of the log
    assert len(starts) == len(set(starts)) > 1
    group = consumer(ojs, "q", "group")
    assert group["last_tick"] == group["next_tick"]
    assert group["batches"] == []


def test_a_silent_member_is_taken_over(ojs):
    ojs.subscribe("q", "group")
    ojs.append("q", *events(1, 2))
    dead = ojs.receive("q", "group", member="dead")
    nack(ojs, "q", dead, dead["messages"][0], retry_after="1h")

    def receive(member="new"):
        return ojs.receive("q", "group", member=member,
                           dead_interval_ms=1000)

    assert receive() == NOTHING
    silent = ("update queen_ojs_%d.stream_batches set active_at = "
              "active_at - interval '1 hour'" % ojs.db.value(
                  "select id from queen.ojs_queues where name = 'q'"))
    ojs.db.rows(silent)
    assert ojs.ask("POST", path("q", "consumers", "group", "members", "dead",
                                "touch")) == {
        "touched": True, "consumer": "group", "member": "dead", "batches": 1}
    assert receive() == NOTHING
    ojs.db.rows(silent)
    got = receive()
    assert got["batch"]["id"] != dead["batch"]["id"]
    assert numbers(got) == [1, 2]
    assert [m.get("outcome") for m in got["messages"]] == ["retry", None]
    ojs.stream_ack("q", dead["batch"]["id"], 404)
    nack(ojs, "q", dead, dead["messages"][1], status=404)
    said = ojs.stream_ack("q", got["batch"]["id"], member="new")
    assert said["last_tick"] == said["next_tick"] == got["batch"]["end_tick"]


def test_numbers_are_true(ojs):
    empty = ojs.ask("POST", "/queues", {"name": "jobs"}, 201)
    assert empty
    assert ojs.ask("GET", path("jobs", "info")) == {"queue": "jobs", "stream": {
        "events": 0, "consumers": 0, "active_batches": 0, "retries": 0,
        "dead_letters": 0, "ticks": 0, "rotation_period": "84h",
        "rotation_period_ms": 302400000, "segments": []}}
    assert ojs.ask("GET", path("jobs", "consumers")) == {"consumers": []}
    assert ojs.ask("GET", path("jobs", "dlq"))["pagination"]["total"] == 0
    ojs.subscribe("q", "a")
    ojs.subscribe("q", "b")
    ojs.append("q", *events(*range(7)))
    got = ojs.receive("q", "a")
    nack(ojs, "q", got, got["messages"][3], retry_after="1h")
    seen = info(ojs, "q")
    assert {k: seen[k] for k in (
        "events", "consumers", "active_batches", "retries", "dead_letters",
        "first_seq", "last_seq", "first_tick", "last_tick", "ticks",
        "segment", "watermark")} == {
        "events": 7, "consumers": 2, "active_batches": 1, "retries": 1,
        "dead_letters": 0, "first_seq": 1, "last_seq": 7, "first_tick": 1,
        "last_tick": 2, "ticks": 2, "segment": 0,
        "watermark": {"tick": 1, "consumer": "a"}}
    assert [s["state"] for s in seen["segments"]] == [
        "current", "empty", "empty"]
    assert ISO.match(seen["last_tick_at"])
    listed = ojs.ask("GET", path("q", "consumers"))["consumers"]
    assert [c["name"] for c in listed] == ["a", "b"]
    a, b = listed
    assert ISO.match(a.pop("active_at"))
    assert ISO.match(a["batches"][0].pop("created_at"))
    assert a.pop("lag_ms") > 0 and b["lag_ms"] > 0
    assert a == {
        "name": "a", "last_tick": 1, "next_tick": 1, "lag_ticks": 1,
        "lag_events": 7, "retries": 1, "batches": [
            {"id": got["batch"]["id"], "member": "", "start_tick": 1,
             "end_tick": 2, "size": 7, "nacked": 1}]}
    assert b["batches"] == [] and b["lag_events"] == 7
    shown = ojs.ask("GET", path("q", "batches", got["batch"]["id"]))
    assert shown["batch"] == {**got["batch"], "redelivered": True,
                              "nacked": 1}
    assert shown["messages"] == [
        {k: v for k, v in m.items() if k not in ("payload", "headers")}
        for m in ojs.receive("q", "a")["messages"]]
    shown = ojs.ask("GET", path("q", "batches", got["batch"]["id"])
                    + "?payload=true")
    assert numbers(shown) == list(range(7))
    ojs.stream_ack("q", got["batch"]["id"])
    error = ojs.refused("GET", path("q", "batches", got["batch"]["id"]), None,
                        404, "not_found")
    assert error["details"]["resource"] == "batch"
    assert consumer(ojs, "q", "a")["lag_events"] == 0
    assert consumer(ojs, "q", "a")["lag_ms"] == 0


def test_jobs_and_stream_share_a_queue(ojs):
    for i in range(3):
        ojs.push_job(args=[i], options={"queue": "both"})
    ojs.subscribe("both", "c")
    ojs.append("both", *events(1, 2, 3))
    # what is paused is the jobs
    ojs.ask("POST", path("both", "pause"))
    assert numbers(ojs.receive("both", "c")) == [1, 2, 3]
    ojs.ask("POST", path("both", "resume"))
    jobs = ojs.fetch("both", count=10)
    assert [j["args"] for j in jobs] == [[0], [1], [2]]

    def counts():
        seen = ojs.ask("GET", path("both", "stats"))
        return [seen["queue"][k] for k in ("available", "active",
                                           "completed")] + [
            seen["stats"]["stream_" + k] for k in ("events", "consumers",
                                                   "dead_letters")]

    assert counts() == [0, 3, 0, 3, 1, 0]
    for j in jobs:
        ojs.ack(j["id"])
    assert counts() == [0, 0, 3, 3, 1, 0]
    assert drain(ojs, "both", "c") == [1, 2, 3]
    assert counts() == [0, 0, 3, 3, 1, 0]
    queue_id = ojs.db.value(
        "select id from queen.ojs_queues where name = 'both'")
    ojs.ask("DELETE", path("both"))
    assert ojs.refused("GET", path("both", "info"), None, 404, "not_found")[
        "details"] == {"resource": "queue", "queue": "both"}
    wait_until(lambda: not ojs.db.rows(
        "select from queen.jobs union all select from queen.ojs_queues"))
    assert not ojs.db.value("select to_regnamespace(%s)",
                            ("queen_ojs_%d" % queue_id,))
    # a new one of that name knows nothing of it
    ojs.append("both", *events(9))
    assert ojs.receive("both", "c", status=404)["error"]["details"] == {
        "resource": "consumer", "consumer": "c"}

# SPDX-License-Identifier: Apache-2.0
"""
What a schedule takes and answers, at its edges: names, delays, payloads, what
only the server sets, limits by settings, switches, faults, and the message
that comes of it.
"""
import base64
import re
import struct

import pytest

from queenlib import SAN, metric, rows, wait_until
from test_auth import SECRET, bearer, token

PATH = "/api/v1/timers"
TXN = "/api/v1/transaction"
SWITCHES = "/api/v1/system/kv-timers"
HOUR_MS = 3600000
STAMP = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z\Z")


def b64(data):
    return base64.b64encode(data.encode() if isinstance(data, str)
                            else data).decode()


def op(key="k", delay=HOUR_MS, queue="q", **fields):
    return dict({"op": "schedule", "queue": queue, "timerKey": key,
                 "delayMs": delay, "txn": "t-" + key, "payload": b64("1")},
                **fields)


def send(cell, *ops, status=200, **kw):
    reply = cell.post(PATH, list(ops), **kw)
    assert reply.status == status, reply
    return reply.body["results"] if status == 200 else reply.body


def refused(cell, status, error, reason, *ops):
    body = send(cell, *ops, status=status)
    assert (body["error"], body["reason"]) == (error, reason), body


def count(db):
    return db.value("select count(*) from queen.timers")


# Names and delays

def test_names_at_their_limits(cell, db):
    long = "\u00e9" * 256
    done, = send(cell, op(long, queue=long))
    assert (done["timerKey"], done["queue"]) == (long, long)
    assert send(cell, {"op": "cancel", "queue": long,
                       "timerKey": long})[0]["status"] == "cancelled"
    for fields, reason in (
            ({"timerKey": long + "x"}, "timers_key_required"),
            ({"timerKey": ""}, "timers_key_required"),
            ({"timerKey": "a\x7f"}, "timers_key_required"),
            ({"queue": long + "x"}, "timers_queue_required"),
            ({"queue": "a\n"}, "timers_queue_required")):
        refused(cell, 400, "timers_bad_request", reason, op(**fields))
    # nothing is made before its time
    assert db.value("select count(*) from queen.queues") == 0
    assert count(db) == 0


DELAYS = [
    ("1500.5", 1500.5), ("1e3", 1000), ("0.25e4", 2500), ("3600000", 3.6e6),
    ("7776000000", 7776e6), ("-1e300", -1e9), ("-0.0", 0), ("0", 0)]


def test_a_delay_counts_from_the_clock_of_the_database(cell, db):
    cell.post(SWITCHES, {"timersFire": False})
    for delay, ms in DELAYS:
        text = '[{"op":"schedule","queue":"q","timerKey":"%s","txn":"t",' \
            '"payload":"MQ==","delayMs":%s}]' % (delay, delay)
        reply = cell.post(PATH, text)
        assert reply.status == 200, reply
        due, = reply.body["results"]
        assert STAMP.match(due["deliverAt"])
        assert db.value("select extract(epoch from deliver_at - created_at)"
                        " * 1000 from queen.timers where timer_key = %s",
                        (delay,)) == pytest.approx(ms)


# What only the server sets

OWNED = ["producerSub", "producer_sub", "messageId", "message_id", "tenant",
         "tenantId", "tenant_id", "_tenant", "deliverAt", "deliver_at",
         "delaySeconds", "delay_seconds", "attempts", "claimToken",
         "claim_token", "claimedUntil", "claimed_until", "_", "_x"]


def test_every_field_of_the_server_is_refused_everywhere(cell, db):
    assert send(cell, op(more=1))[0]["status"] == "scheduled"
    for name in OWNED:
        for bad in (op(**{name: None}), {"op": "cancel", "queue": "q",
                                         "timerKey": "k", name: "x"}):
            refused(cell, 400, "timers_bad_request",
                    "timers_server_owned_field", op("other"), bad)
            reply = cell.post(TXN, {"operations": [], "timers": [bad]})
            assert (reply.status, reply.body["reason"]) == (
                400, "bad_request"), name
            assert "timers_server_owned_field" in reply.body["error"]
    assert db.rows("select timer_key from queen.timers") == [("k",)]


@pytest.mark.cellenv(JWT_ENABLED="true", JWT_SECRET=SECRET)
def test_the_scheduler_is_the_producer(cell):
    clock = bearer(token(role="read-write", sub="clock"))
    send(cell, op(), op("now", 0), headers=clock)
    assert cell.get(PATH + "/q/k", headers=clock).body[
        "producerSub"] == "clock"
    assert cell.get(PATH + "/q", headers=clock).body["rows"][0][
        "producerSub"] == "clock"
    m, = wait_until(lambda: cell.pop("q", headers=clock,
                                     subscriptionMode="all"))
    assert m["producerSub"] == "clock"


# Payloads

def stored(data):
    """A zstd frame of raw blocks, at most 128 KiB each; for small things."""
    assert len(data) < 1 << 17
    return (b"\x28\xb5\x2f\xfd" + bytes([0xa0]) + struct.pack("<I", len(data))
            + struct.pack("<I", len(data) << 3 | 1)[:3] + data)


def bomb(n):
    """A frame of n bytes of the letter x, as runs."""
    out, left = b"\x28\xb5\x2f\xfd" + bytes([0xa0]) + struct.pack("<I", n), n
    while left:
        run = min(left, 1 << 17)
        left -= run
        out += struct.pack("<I", run << 3 | 2 | (left == 0))[:3] + b"x"
    return out


def test_a_compressed_payload_is_delivered_plain(cell):
    text = b'{"b":1.50,  "a":[1e2, null]}'
    send(cell, op(payload=b64(stored(text)), payloadZstd=True))
    peeked = cell.get(PATH + "/q/k").body
    assert (peeked["payload"], peeked["payloadZstd"]) == (b64(text), False)
    send(cell, op(delay=0, payload=b64(stored(text)), payloadZstd=True))
    m, = wait_until(lambda: cell.pop("q", subscriptionMode="all"))
    assert m["data"] == {"b": 1.5, "a": [100.0, None]}


def test_what_inflates_too_far_is_413(cell, db):
    for n in (1048577, 64 << 20):
        refused(cell, 413, "payload_too_large", "timers_payload_too_large",
                op("good"), op(payload=b64(bomb(n)), payloadZstd=True))
    refused(cell, 400, "timers_bad_request", "timers_payload_not_json",
            op(payload=b64(bomb(1048576)), payloadZstd=True))
    refused(cell, 400, "timers_bad_request", "timers_payload_not_zstd",
            op(payload=b64(stored(b"1")[:-1]), payloadZstd=True))
    assert count(db) == 0


def test_a_payload_at_its_limit(cell, db):
    edge = '"' + "x" * 1048574 + '"'
    send(cell, op(payload=b64(edge)))
    refused(cell, 413, "payload_too_large", "timers_payload_too_large",
            op("l", payload=b64(edge + " ")))
    reply = cell.post(TXN, {"operations": [], "timers": [
        op("l", payload=b64(edge + " "))]})
    assert (reply.status, reply.body["reason"]) == (413, "payload_too_large")
    assert cell.get(PATH + "/q/k").body["payload"] == b64(edge)
    assert count(db) == 1


@pytest.mark.cellenv(QUEEN_TIMERS_MAX_OPS_PER_CALL=2,
                     QUEEN_TIMERS_MAX_HORIZON_S=10,
                     QUEEN_TIMERS_MAX_PAYLOAD_BYTES=8)
def test_limits_are_settings(cell, db):
    refused(cell, 400, "timers_bad_request", "timers_too_many_ops",
            *[op(k, 1000) for k in "abc"])
    refused(cell, 403, "timer_horizon_exceeded", "timers_horizon",
            op(delay=10001))
    refused(cell, 413, "payload_too_large", "timers_payload_too_large",
            op(delay=1000, payload=b64('"1234567"')))
    assert [r["status"] for r in send(
        cell, op("a", 10000), op("b", 10000, payload=b64('"123456"')))] == [
            "scheduled"] * 2


# Reads

def test_pages_of_many(cell):
    for at in range(0, 1250, 250):
        send(cell, *[op("k%04d" % i) for i in range(at, at + 250)])
    for query, n in (("", 100), ("?limit=x", 100), ("?limit=", 100),
                     ("?mode=list&limit=1000", 1000), ("?limit=99999", 1000),
                     ("?limit=0", 1), ("?limit=-5", 1), ("?mode=", 100)):
        page = cell.get(PATH + "/q" + query).body
        assert [r["timerKey"] for r in page["rows"]] == [
            "k%04d" % i for i in range(n)], query
        assert (page["truncated"], page["nextAfter"]) == (
            True, "k%04d" % (n - 1))
        assert set(page["rows"][0]) == {
            "queue", "timerKey", "partition", "deliverAt", "txn", "messageId",
            "payloadZstd", "encrypted", "producerSub", "attempts",
            "lastError", "claimed", "createdAt", "updatedAt"}
    assert cell.get(PATH + "/q?mode=count&prefix=k").body == {"count": 1250}
    assert cell.get(PATH + "/q?mode=count&prefix=k%25").body == {"count": 0}
    # a NUL is no part of any request, of no text UTF-8 that is none
    assert cell.get(PATH + "/q?mode=count&prefix=a%00").status == 400
    assert cell.get(PATH + "/q?mode=count&prefix=%ff").status == 400
    assert cell.get(PATH + "/none").body == {
        "rows": [], "truncated": False, "nextAfter": None}


# Switches

def test_paused_schedules_leave_the_rest(cell, db):
    """12.10: POST 503, DELETE 200, reads 200, what is pending fires."""
    send(cell, op("later"), op("soon", 300))
    cell.post(SWITCHES, {"timersSchedule": False})
    reply = cell.post(PATH, [op("new")])
    assert (reply.status, reply.body["error"]) == (503, "timers_disabled")
    assert int(reply.headers["Retry-After"]) >= 1
    assert reply.headers["x-queen-timers-hint"] is None
    # a cancel beside it shares its fate, and is told where it would not
    reply = cell.post(PATH, [op("new"), {"op": "cancel", "queue": "q",
                                         "timerKey": "later"}])
    assert reply.status == 503
    assert reply.headers["x-queen-timers-hint"] == \
        "DELETE /api/v1/timers/:queue/*timerKey"
    assert cell.get(PATH + "/q/later").body["found"] is True
    assert cell.delete(PATH + "/q/later").body["status"] == "cancelled"
    assert send(cell, {"op": "cancel", "queue": "q", "timerKey": "later"})[
        0]["status"] == "absent"
    assert [m["transactionId"] for m in wait_until(
        lambda: cell.pop("q", subscriptionMode="all"))] == ["t-soon"]
    assert metric(cell, 'queen_timers_schedule_rejected_total'
                  '{reason="disabled"}') == 2
    cell.post(SWITCHES, {"timersSchedule": True})
    assert send(cell, op("new"))[0]["status"] == "scheduled"


# Faults

def test_faults_of_the_database_have_their_words(cell, db, pg):
    db.rows("alter table queen.timers rename to timers_away")
    reply = cell.post(PATH, [op()])
    assert (reply.status, reply.body["error"]) == (
        500, "timers_misconfigured"), reply
    db.rows("alter table queen.timers_away rename to timers")
    send(cell, op())
    pg.stop("immediate")
    for method, path, body in (("POST", PATH, [op()]),
                               ("GET", PATH + "/q/k", None),
                               ("GET", PATH + "/q", None),
                               ("DELETE", PATH + "/q/k", None)):
        reply = cell.request(method, path, body)
        assert (reply.status, reply.body["error"]) == (
            503, "timers_unavailable"), (method, reply)
        assert int(reply.headers["Retry-After"]) >= 1


@pytest.mark.cellenv(QUEEN_STMT_TIMEOUT_MS=300)
def test_a_held_timer_is_a_timeout(cell, db):
    send(cell, op())
    held = db.connect(autocommit=False)
    rows(held, "select 1 from queen.timers for update")
    for reply in (cell.post(PATH, [op()]), cell.delete(PATH + "/q/k")):
        assert (reply.status, reply.body["error"], reply.body["reason"]) == (
            503, "timers_unavailable", "timers_timeout"), reply
    held.rollback()
    assert cell.delete(PATH + "/q/k").body["status"] == "cancelled"


def test_a_passing_fault_costs_no_attempt(cell, db):
    db.psql("-c", """
        create table gate (shut boolean); insert into gate values (true);
        create function refuse() returns trigger language plpgsql as $$
        begin
            if (select shut from gate) then
                raise exception 'again' using errcode = '40001';
            end if;
            return new;
        end $$;
        create trigger refuse before insert on queen.segments
        for each row execute function refuse()""")
    send(cell, op(delay=0))
    wait_until(lambda: "a call failed and is repeated" in cell.log_text())
    peeked = cell.get(PATH + "/q/k").body
    assert (peeked["attempts"], peeked["claimed"]) == (0, False)
    db.rows("update gate set shut = false")
    assert [m["transactionId"] for m in wait_until(
        lambda: cell.pop("q", subscriptionMode="all"))] == ["t-k"]


@pytest.mark.cellenv(QUEEN_SWEEPER_BACKOFF_MIN_MS=60000)
def test_who_waits_after_a_failure_can_be_cancelled_or_replaced(cell, db):
    db.psql("-c", """
        create function refuse() returns trigger language plpgsql as $$
        begin raise exception 'no' using errcode = '22000'; end $$;
        create trigger refuse before insert on queen.segments
        for each row execute function refuse()""")
    send(cell, op("a", 0), op("b", 0))
    wait_until(lambda: db.value(
        "select bool_and(attempts = 1) from queen.timers"))
    peeked = cell.get(PATH + "/q/a").body
    assert (peeked["attempts"], peeked["claimed"]) == (1, False)
    assert "no" in peeked["lastError"]
    assert cell.delete(PATH + "/q/a").body["status"] == "cancelled"
    db.rows("drop trigger refuse on queen.segments")
    assert send(cell, op("b", 0))[0]["status"] == "rescheduled"
    assert [m["transactionId"] for m in wait_until(
        lambda: cell.pop("q", subscriptionMode="all"))] == ["t-b"]


# The message

def test_the_message_is_of_now_and_known_to_later_pushes(cell):
    promised, = send(cell, op(delay=300, queue="orders.eu", partition="p"))
    time_of = promised["deliverAt"][:-4] + "Z"
    m, = wait_until(lambda: cell.pop("orders.eu", subscriptionMode="all"))
    assert (m["id"], m["transactionId"], m["partition"]) == (
        promised["messageId"], "t-k", "p")
    assert m["createdAt"] >= time_of
    row = cell.get("/api/v1/resources/queues/orders.eu").body
    assert (row["namespace"], row["task"]) == ("orders", "eu")
    # a push with its id is a duplicate; a timer with it is another message
    again, = cell.push("orders.eu", [2], partition="p", ids=["t-k"])
    assert (again["status"], again["message_id"]) == (
        "duplicate", promised["messageId"])
    cell.ack([m])
    send(cell, op(delay=0, queue="orders.eu", partition="p"))
    assert [m["transactionId"] for m in wait_until(
        lambda: cell.pop("orders.eu"))] == ["t-k"]


def lateness_ms(cell, queue):
    """Of fifty timers, by the clock of the database, sorted."""
    send(cell, *[op("k%02d" % i, 200 + 40 * i, queue, partition=str(i))
                 for i in range(50)])
    due = dict(cell.db.rows("select partition, deliver_at from queen.timers"))
    wait_until(lambda: cell.db.value("select count(*) from queen.timers") == 0)
    came = cell.db.rows(
        "select p.name, s.created_at from queen.segments s"
        " join queen.partitions p on p.id = s.partition_id"
        " join queen.queues q on q.id = p.queue_id where q.name = %s",
        (queue,))
    assert len(came) == 50
    # those that came before we looked were in time
    return sorted((at - due.get(name, at)).total_seconds() * 1000
                  for name, at in came)


def test_it_comes_soon_after_its_time(cell):
    """Never before, most within 50 ms, each within 1 s; once in three on a
    machine that is busy with other things."""
    rounds = []
    while len(rounds) < 3 and (not rounds or rounds[-1][25] >= 50
                               or rounds[-1][-1] >= 1000):
        rounds.append(lateness_ms(cell, "q%d" % len(rounds)))
        assert rounds[-1][0] >= 0
        assert rounds[-1][-1] < 10000, rounds
    assert SAN or (rounds[-1][25] < 50 and rounds[-1][-1] < 1000), rounds

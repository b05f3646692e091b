# SPDX-License-Identifier: Apache-2.0
"""/api/v1/timers: promised, replaced, taken back, fired once."""
import base64
import datetime
import json
import time
import uuid

import pytest

from queenlib import wait_until
from test_auth import SECRET, bearer, token

PATH = "/api/v1/timers"


def b64(text):
    return base64.b64encode(text.encode()).decode()


def op(key, delay=60000, queue="q", **fields):
    return dict({"op": "schedule", "queue": queue, "timerKey": key,
                 "delayMs": delay, "txn": "t-" + key,
                 "payload": b64('{"k":"%s","n":1.50}' % key)}, **fields)


def cancel(key, queue="q", **fields):
    return dict({"op": "cancel", "queue": queue, "timerKey": key}, **fields)


def send(cell, *ops):
    reply = cell.post(PATH, {"operations": list(ops)})
    assert reply.status == 200, reply
    return reply.body["results"]


def moment(text):
    return datetime.datetime.strptime(text, "%Y-%m-%dT%H:%M:%S.%fZ")


def statuses(results):
    return [r["status"] for r in results]


def log_ids(db):
    """Message count over all segments."""
    return db.value("select coalesce(sum(end_offset - base_offset + 1), 0)"
                    "::bigint from queen.segments")


def pending(db):
    return db.value("select count(*) from queen.timers")


def drain(cell, queue, n):
    """n messages popped and acked, by partition."""
    got = []

    def more():
        m = cell.pop(queue, batch=1000)
        if m:
            cell.ack(m)
            got.extend(m)
        return len(got) >= n

    wait_until(more, what="%d messages" % n)
    return got


def test_reschedule_replaces_and_one_fires(cell):
    first, = send(cell, op("k", 60000, txn="one"))
    assert (first["status"], first["ok"], first["queue"], first["timerKey"],
            first["txn"]) == ("scheduled", True, "q", "k", "one")
    assert uuid.UUID(first["messageId"]).version == 7
    again, = send(cell, op("k", 100, txn="two", payload=b64('{"x":2.0}')))
    assert again["status"] == "rescheduled"
    assert again["messageId"] != first["messageId"]
    m, = wait_until(lambda: cell.pop("q"))
    assert (m["id"], m["transactionId"], m["data"], m["partition"]) \
        == (again["messageId"], "two", {"x": 2.0}, "Default")
    assert pending(cell.db) == 0 and log_ids(cell.db) == 1


def test_cancel(cell):
    send(cell, op("k", 400000))
    assert send(cell, cancel("k", txn="mine"))[0] == {
        "status": "cancelled", "ok": True, "queue": "q", "timerKey": "k",
        "txn": "t-k"}
    assert send(cell, cancel("k", txn="mine"))[0] == {
        "status": "absent", "ok": False, "queue": "q", "timerKey": "k",
        "txn": "mine"}
    send(cell, op("tenant/42"))
    assert cell.delete(PATH + "/q/tenant/42").body["status"] == "cancelled"
    assert cell.delete(PATH + "/q/tenant/42?txn=x").body == {
        "status": "absent", "ok": False, "queue": "q",
        "timerKey": "tenant/42", "txn": "x"}


def test_what_is_due_fires_at_once_and_wakes_a_parked_pop(cell):
    before = time.monotonic()
    send(cell, op("k", -5, queue="past", partition="p"))
    m, = wait_until(lambda: cell.pop("past", wait="true"))
    assert time.monotonic() - before < 5
    assert m["partition"] == "p" and m["transactionId"] == "t-k"


def test_peek_list_count(cell):
    assert cell.post(PATH, []).body == {"results": []}
    done, = send(cell, op("b", partition="p"))
    send(cell, op("a"), op("a/1"))
    found = cell.get(PATH + "/q/b").body
    assert found.pop("createdAt") == found.pop("updatedAt")
    assert found == {
        "found": True, "queue": "q", "timerKey": "b", "partition": "p",
        "deliverAt": done["deliverAt"], "txn": "t-b",
        "messageId": done["messageId"],
        "payload": b64('{"k":"b","n":1.50}'), "payloadZstd": False,
        "encrypted": False, "producerSub": None, "attempts": 0,
        "lastError": None, "claimed": False}
    assert cell.get(PATH + "/q/none").body == {
        "found": False, "queue": "q", "timerKey": "none"}
    page = cell.get(PATH + "/q?limit=2").body
    assert [r["timerKey"] for r in page["rows"]] == ["a", "a/1"]
    assert (page["truncated"], page["nextAfter"]) == (True, "a/1")
    page = cell.get(PATH + "/q?after=a/1&limit=x").body
    assert [r["timerKey"] for r in page["rows"]] == ["b"]
    assert (page["truncated"], page["nextAfter"]) == (False, None)
    assert cell.get(PATH + "/q?mode=count&prefix=a").body == {"count": 2}


@pytest.mark.parametrize("query,reason", [
    ("mode=count", "timers_count_prefix_required"),
    ("mode=count&prefix=", "timers_count_prefix_required"),
    ("mode=count&prefix=" + "x" * 129, "timers_count_prefix_too_long"),
    ("mode=count&prefix=x&limit=1", "timers_count_page_parameters"),
    ("mode=count&prefix=x&after=a", "timers_count_page_parameters"),
    ("mode=all", "timers_read_mode_unknown"),
])
def test_bad_reads(common, query, reason):
    reply = common.get(PATH + "/q?" + query)
    assert (reply.status, reply.body["error"], reply.body["reason"]) \
        == (400, "timers_bad_request", reason)


SCHEDULE_FAULTS = [
    ({"op": "later"}, 400, "timers_bad_op"),
    ({"op": 1}, 400, "timers_bad_op"),
    ({"queue": ""}, 400, "timers_queue_required"),
    ({"queue": None}, 400, "timers_queue_required"),
    ({"queue": "q" * 513}, 400, "timers_queue_required"),
    ({"timerKey": "a\x01"}, 400, "timers_key_required"),
    ({"timerKey": 5}, 400, "timers_key_required"),
    ({"delayMs": "5"}, 400, "timers_delay_required"),
    ({"delayMs": None}, 400, "timers_delay_required"),
    ({"delayMs": 7776000001}, 403, "timers_horizon"),
    ({"delayMs": 1e300}, 403, "timers_horizon"),
    ({"txn": None}, 400, "timers_txn_required"),
    ({"txn": ""}, 400, "timers_txn_required"),
    ({"partition": ""}, 400, "timers_partition_required"),
    ({"partition": 3}, 400, "timers_partition_required"),
    ({"payload": None}, 400, "timers_payload_required"),
    ({"payload": {"a": 1}}, 400, "timers_payload_required"),
    ({"payload": "e30"}, 400, "timers_payload_not_base64"),
    ({"payload": "!!"}, 400, "timers_payload_not_base64"),
    ({"payload": b64("{")}, 400, "timers_payload_not_json"),
    ({"payload": ""}, 400, "timers_payload_not_json"),
    ({"payloadZstd": True}, 400, "timers_payload_not_zstd"),
    ({"payloadZstd": 1}, 400, "timers_bad_request"),
    ({"encrypted": True}, 400, "timers_encrypted_conflict"),
    ({"payload": b64('"' + "x" * 1048576 + '"')}, 413,
     "timers_payload_too_large"),
    ({"producerSub": "me"}, 400, "timers_server_owned_field"),
    ({"_messageId": "x"}, 400, "timers_server_owned_field"),
    ({"delaySeconds": 1}, 400, "timers_server_owned_field"),
]


def test_every_bad_field_is_named_and_nothing_is_kept(cell):
    errors = {400: "timers_bad_request", 403: "timer_horizon_exceeded",
              413: "payload_too_large"}
    for fields, status, reason in SCHEDULE_FAULTS:
        reply = cell.post(PATH, [op("good"), op("bad", **fields)])
        assert (reply.status, reply.body["error"], reply.body["reason"]) \
            == (status, errors[status], reason), fields
    for body, reason in (("{", "timers_bad_body"), ("5", "timers_bad_body"),
                         ("{}", "timers_bad_body"), ("[5]", "timers_bad_body"),
                         (json.dumps([op("a"), cancel("a")]),
                          "timers_duplicate_key_in_call"),
                         (json.dumps([op("k%d" % i) for i in range(257)]),
                          "timers_too_many_ops")):
        reply = cell.post(PATH, body)
        assert (reply.status, reply.body["reason"]) == (400, reason), body[:40]
    assert pending(cell.db) == 0


def fill(cell, n, delay_ms, parts=20, queue="q"):
    for at in range(0, n, 250):
        send(cell, *[op("k%05d" % i, delay_ms, queue,
                        partition="p%d" % (i % parts))
                     for i in range(at, min(at + 250, n))])


def test_two_queends_fire_each_once(cells):
    a, b = cells(2)
    fill(a, 1000, -1)
    got = drain(b, "q", 1000)
    assert sorted(m["transactionId"] for m in got) \
        == ["t-k%05d" % i for i in range(1000)]
    assert log_ids(a.db) == 1000 and pending(a.db) == 0


def test_downtime_then_oldest_first(cell):
    send(cell, *[op("k%d" % i, 2000 - 100 * i) for i in range(3)])
    cell.kill9()
    wait_until(lambda: cell.db.value(
        "select bool_and(due_at < clock_timestamp()) from queen.timers"))
    assert pending(cell.db) == 3
    cell.restart()
    got = drain(cell, "q", 3)
    assert [m["transactionId"] for m in got] == ["t-k2", "t-k1", "t-k0"]


def poison(db):
    """From now on no segment with this word in it can be stored."""
    db.psql("-c", """
        create function refuse() returns trigger language plpgsql as $$
        begin
            if position('poison'::bytea in new.blob) > 0 then
                raise exception 'poisoned' using errcode = '22000';
            end if;
            return new;
        end $$;
        create trigger refuse before insert on queen.segments
        for each row execute function refuse()""")


def test_a_poison_timer_hurts_no_other_and_is_filed(new_cell):
    cell = new_cell(QUEEN_SWEEPER_BACKOFF_MIN_MS="10",
                    QUEEN_SWEEPER_BACKOFF_MAX_MS="20").start()
    poison(cell.db)
    send(cell, op("poison", -1), op("good1", -1), op("good2", -1))
    got = drain(cell, "q", 2)
    assert sorted(m["transactionId"] for m in got) == ["t-good1", "t-good2"]
    wait_until(lambda: pending(cell.db) == 0)
    assert cell.db.rows(
        "select group_name, message_offset, retries from queen.dead_letters") \
        == [("__timer__", -1, 5)]
    page = cell.get("/metrics/prometheus").body.decode()
    assert 'queen_timers_fired_total{result="fired"} 2\n' in page
    assert 'queen_timers_fired_total{result="failed"} 4\n' in page
    assert 'queen_timers_fired_total{result="dead_letter"} 1\n' in page


@pytest.mark.cellenv(QUEEN_SWEEPER_MAX_ATTEMPTS=1)
def test_what_a_timer_became_is_listed_and_purged_but_not_replayed(cell):
    poison(cell.db)
    send(cell, op("poison", -1, partition="p"))
    row, = wait_until(lambda: cell.get("/api/v1/dlq").body["messages"])
    assert (row["transactionId"], row["queue"], row["partition"],
            row["consumerGroup"], row["retryCount"], row["data"]) == (
        "t-poison", "q", "p", "__timer__", 1, {"k": "poison", "n": 1.5})
    assert "poisoned" in row["errorMessage"]
    want = {"success": False, "result": "refused", "dlqId": row["id"],
            "consumerGroup": "__timer__", "dlqRowRemoved": False,
            "error": "a dead letter of a reserved group is not replayed; "
                     "schedule the timer again"}
    for path, body in (
            ("/api/v1/dlq/%s/replay" % row["id"], None),
            ("/api/v1/dlq/%s/replay" % row["id"], {"queue": "elsewhere"}),
            ("/api/v1/messages/%s/t-poison/retry" % row["partitionId"],
             None)):
        reply = cell.post(path, body)
        assert (reply.status, reply.body) == (409, want), path
    db = cell.db
    assert log_ids(db) == 0
    assert db.rows("select name from queen.queues") == [("q",)]
    # of any name of this form but the queue mode's; others are moved
    move = "/api/v1/dlq/%s/replay" % row["id"]
    for group, status in (("__x__", 409), ("____", 409), ("__x", 500),
                          ("x__", 500), ("___", 500), ("__QUEUE_MODE__", 500)):
        db.rows("update queen.dead_letters set group_name = %s returning 1",
                (group,))
        assert cell.post(move).status == status, group
    db.rows("update queen.dead_letters set group_name = '__timer__'"
            " returning 1")
    assert cell.delete("/api/v1/dlq?queue=q&consumerGroup=other").body[
        "deleted"] == 0
    assert cell.delete("/api/v1/dlq?queue=q&consumerGroup=__timer__").body[
        "deleted"] == 1
    assert cell.get("/api/v1/dlq").body["messages"] == []


def test_killed_in_the_middle_all_or_nothing(cell):
    fill(cell, 500, -1, parts=5)
    cell.kill9()
    db = cell.db
    wait_until(lambda: db.value(
        "select count(*) from pg_stat_activity where datname ="
        " current_database() and pid <> pg_backend_pid()"
        " and state <> 'idle'") == 0)
    assert log_ids(db) + pending(db) == 500
    cell.restart()
    got = drain(cell, "q", 500)
    assert len({m["transactionId"] for m in got}) == len(got) == 500


@pytest.mark.amount
def test_ten_thousand_in_one_second(cells):
    """All within five seconds of their promise, each once."""
    a, b = cells(2)
    n, due_s = 10000, time.monotonic() + 10
    for at in range(0, n, 250):
        left_ms = (due_s - time.monotonic()) * 1000
        send(a, *[op("k%05d" % i, left_ms, partition="p%d" % (i % 100))
                  for i in range(at, at + 250)])
    db = a.db
    first, last = db.row("select min(deliver_at), max(deliver_at)"
                         " from queen.timers")
    assert pending(db) == n, "the machine is too slow for this test"
    assert (last - first).total_seconds() < 1
    wait_until(lambda: pending(db) == 0, deadline_s=60)
    fired = db.value("select max(created_at) from queen.segments")
    assert (fired - first).total_seconds() < 5
    assert log_ids(db) == n
    got = drain(b, "q", n)
    assert len({m["transactionId"] for m in got}) == len(got) == n


# What the message is

def test_a_fired_id_is_seen_by_pushes_but_not_sought_by_fires(cell, db):
    """Scheduling again after the fire, or with a used id, is a message more."""
    send(cell, op("k", -1, txn="t"))
    wait_until(lambda: pending(db) == 0)
    assert cell.push("q", [1], ids=["t"])[0]["status"] == "duplicate"
    assert statuses(send(cell, op("k", -1, txn="t"), op("j", -1, txn="t"))) \
        == ["scheduled"] * 2
    assert [m["transactionId"] for m in drain(cell, "q", 3)] == ["t"] * 3
    assert send(cell, cancel("k", txn="t"))[0]["status"] == "absent"


@pytest.mark.cellenv(JWT_ENABLED="true", JWT_SECRET=SECRET)
def test_who_schedules_is_the_producer(cell, db):
    """A token that may only produce may schedule; nobody says who he is."""
    write = bearer(token(role="write-only", sub="svc-é"))
    read = bearer(token(role="read-write", sub="other"))
    made = cell.post(PATH, [op("k"), op("soon", -1)], headers=write)
    assert statuses(made.body["results"]) == ["scheduled"] * 2
    for path in ("/q/k", "/q"):
        assert cell.get(PATH + path, headers=write).status == 403
    assert cell.delete(PATH + "/q/k", headers=write).status == 403
    found = cell.get(PATH + "/q/k", headers=read).body
    assert (found["producerSub"], found["txn"]) == ("svc-é", "t-k")
    row, = wait_until(lambda: [r for r in [cell.get(
        PATH + "/q", headers=read).body["rows"]] if len(r) == 1])[0]
    assert (row["timerKey"], row["producerSub"]) == ("k", "svc-é")
    m, = wait_until(lambda: cell.pop("q", headers=read))
    assert (m["transactionId"], m["producerSub"]) == ("t-soon", "svc-é")


def test_never_early_and_within_a_second(cells, db):
    """Each by the database's clock, whichever process scheduled it."""
    both = cells(2)
    promised = {}
    for i in range(40):
        r, = send(both[i % 2], op("k%d" % i, 37 * i, partition="p%d" % i))
        promised["p%d" % i] = r["deliverAt"]
    wait_until(lambda: pending(db) == 0)
    found = db.rows(
        "select p.name, to_char(s.created_at at time zone 'UTC',"
        " 'YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"') from queen.segments s"
        " join queen.partitions p on p.id = s.partition_id")
    assert len(found) == 40
    for name, fired_at in found:
        late = moment(fired_at) - moment(promised[name])
        assert 0 <= late.total_seconds() < 1, (name, late)


# Sealing behind the back of a process

K1 = "11" * 32
sealing = pytest.mark.cellenv(QUEEN_ENCRYPTION_KEY=K1)


def key_ids(db):
    """(timer, its frame is sealed) by key."""
    return db.rows("select timer_key, key_id is not null from queen.timers"
                   " order by queue, timer_key")


def flag_unseen(db, *queues):
    """As another process would, before any word of it came here."""
    db.rows("update queen.queues set encryption_enabled = true"
            " where name = any (%s) returning 1", (list(queues),))


@sealing
def test_a_stale_flag_is_corrected_and_the_schedule_sealed(cell, db):
    for queue in ("q", "r", "s"):
        cell.push(queue, [0])
    flag_unseen(db, "q", "r")
    made = send(cell, op("a"), op("b", queue="r"), op("c", queue="s"),
                op("d"), cancel("none", queue="r"))
    assert statuses(made) == ["scheduled"] * 4 + ["absent"]
    assert key_ids(db) == [("a", True), ("d", True), ("b", True),
                           ("c", False)]
    # the ids promised are those of the frames that were kept
    assert {m["messageId"] for m in made[:4]} == {
        str(r[0]) for r in db.rows("select message_id from queen.timers")}
    assert statuses(send(cell, op("a", -1))) == ["rescheduled"]
    m = wait_until(lambda: [x for x in cell.pop("q", batch=9)
                            if x["transactionId"] == "t-a"])
    assert m[0]["data"] == {"k": "a", "n": 1.5}
    # and it knows by now
    assert cell.get(PATH + "/q/d").body["encrypted"] is True


@sealing
def test_a_stale_flag_in_a_transaction(cell, db):
    cell.push("q", [0])
    flag_unseen(db, "q")
    reply = cell.post("/api/v1/transaction", {
        "operations": [{"type": "push", "items": [
            {"queue": "q", "payload": 1}, {"queue": "out", "payload": 2}]}],
        "timers": [op("a"), op("b", queue="new")]})
    assert reply.body["success"] is True, reply
    assert key_ids(db) == [("b", False), ("a", True)]
    assert [m["data"] for m in cell.pop("out")] == [2]


def test_a_stale_flag_without_a_key_is_refused(cell, db):
    cell.push("q", [0])
    flag_unseen(db, "q")
    for _ in range(2):
        reply = cell.post(PATH, [op("fine", queue="r"), op("a")])
        assert (reply.status, reply.body["error"], reply.body["reason"]) == (
            500, "timers_error", "encryption_required")
    reply = cell.post("/api/v1/transaction", {"timers": [op("a")]})
    assert (reply.body["success"], reply.body["reason"]) == (
        False, "encryption_required")
    assert pending(db) == 0


def test_a_flag_turned_on_by_the_other_process_holds_at_once(cells):
    a, b = cells(2, QUEEN_ENCRYPTION_KEY=K1)
    for i in range(10):
        queue = "q%d" % i
        if i % 2:
            b.push(queue, [0])
        reply = a.post("/api/v1/configure", {
            "queue": queue, "options": {"encryptionEnabled": True}})
        assert reply.status in (200, 201), reply
        # b may not have heard of it, or of the queue at all
        if i < 5:
            assert statuses(send(b, op("k", queue=queue))) == ["scheduled"]
        else:
            assert b.post("/api/v1/transaction", {
                "timers": [op("k", queue=queue)]}).body["success"] is True
    assert key_ids(a.db) == [("k", True)] * 10

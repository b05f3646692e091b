# SPDX-License-Identifier: Apache-2.0
"""Payloads of flagged queues: sealed in the database, clear at every route,
refused rather than stored in clear, blocked rather than lost."""
import base64
import http.client
import json
import subprocess
import threading

import pytest

from queenlib import binary, metric, wait_until
from sealkit import (K1, K2, K3, PAYLOAD, WORD, assert_not_in_the_database,
                     bury, fails_at_boot, flag, key_id, key_ids, keyed,
                     popped, statuses)

# Through every route

@keyed
def test_a_push_is_sealed_and_pops_byte_for_byte(cell, db):
    flag(cell, "q")
    text = '{"b":1.50,  "a":"%s", "é":[1e2,null]}' % WORD
    reply = cell.post("/api/v1/push",
                      '{"items":[{"queue":"q","payload":%s}]}' % text)
    assert statuses(reply.body) == ["queued"]
    assert key_ids(db) == [key_id(K1)]
    conn = http.client.HTTPConnection("127.0.0.1", cell.port.number,
                                      timeout=30)
    conn.request("GET", "/api/v1/pop/queue/q?wait=true")
    body = conn.getresponse().read().decode()
    conn.close()
    assert '"data":' + text + "," in body
    assert_not_in_the_database(db, WORD)


@keyed
def test_a_dump_shows_what_is_not_sealed(cell, db):
    """The search of the other tests finds what there is to find."""
    cell.push("q", [PAYLOAD])
    assert key_ids(db) == [None]
    with pytest.raises(AssertionError):
        assert_not_in_the_database(db, WORD)


@keyed
def test_duplicates_and_auto_ack_work_on_a_sealed_queue(cell, db):
    flag(cell, "q")
    assert statuses(cell.push("q", [1, 2, 3], ids=["a", "b", "a"])) == [
        "queued", "queued", "duplicate"]
    assert statuses(cell.push("q", [4, 5], ids=["b", "c"])) == [
        "duplicate", "queued"]
    got = popped(cell, batch=10, autoAck=True)
    assert [(m["transactionId"], m["data"]) for m in got] == [
        ("a", 1), ("b", 2), ("c", 5)]
    assert key_ids(db) == [key_id(K1)] * 2


@keyed
def test_a_transaction_seals_what_it_pushes(cell, db):
    flag(cell, "q")
    reply = cell.post("/api/v1/transaction", {"operations": [
        {"type": "push", "items": [
            {"queue": "q", "payload": PAYLOAD},
            {"queue": "open", "payload": {"n": 2}}]}]})
    assert reply.status == 200 and reply.body["success"], reply
    assert (key_ids(db), key_ids(db, "open")) == ([key_id(K1)], [None])
    assert [m["data"] for m in popped(cell)] == [PAYLOAD]
    assert [m["data"] for m in popped(cell, "open")] == [{"n": 2}]
    assert_not_in_the_database(db, WORD)


@keyed
def test_a_transaction_heeds_a_flag_it_did_not_know(cell, db):
    cell.push("q", [0])
    db.rows("update queen.queues set encryption_enabled = true")
    reply = cell.post("/api/v1/transaction", {"operations": [
        {"type": "push", "items": [{"queue": "q", "payload": PAYLOAD}]}]})
    assert reply.body["success"], reply
    assert key_ids(db) == [None, key_id(K1)]
    assert_not_in_the_database(db, WORD)


@keyed
def test_fetch_opens(cell):
    flag(cell, "q")
    cell.push("q", [PAYLOAD], partition="p")
    reply = cell.post("/api/v1/fetch", {"entries": [
        {"queue": "q", "partition": "p", "offset": 0}]})
    record, = reply.body["entries"][0]["records"]
    assert record["payload"] == PAYLOAD and "isEncrypted" not in record


@keyed
def test_messages_open_and_say_that_it_was_sealed(cell):
    flag(cell, "q")
    cell.push("q", [PAYLOAD], ids=["a"])
    row, = cell.get("/api/v1/messages").body["messages"]
    assert (row["data"], row["payload"], row["isEncrypted"],
            row["payloadAvailable"]) == (PAYLOAD, PAYLOAD, True, True)
    one = cell.get("/api/v1/messages/%s/a" % row["partitionId"]).body
    assert (one["data"], one["isEncrypted"]) == (PAYLOAD, True)


@keyed
def test_a_timer_is_sealed_when_it_is_scheduled(cell, db):
    flag(cell, "q")
    text = json.dumps(PAYLOAD).encode()
    op = {"op": "schedule", "queue": "q", "timerKey": "k", "txn": "t",
          "payload": base64.b64encode(text).decode(), "delayMs": 3600000}
    cell.push("q", [0])  # the flag is known here
    assert len(popped(cell, autoAck=True)) == 1
    reply = cell.post("/api/v1/timers", {"operations": [op]})
    assert reply.status == 200, reply
    assert reply.body["results"][0]["status"] == "scheduled"
    assert_not_in_the_database(db, WORD)
    assert cell.post("/api/v1/timers", {"operations": [dict(
        op, delayMs=0)]}).body["results"][0]["status"] == "rescheduled"
    assert [(m["transactionId"], m["data"]) for m in popped(cell)] == [
        ("t", PAYLOAD)]
    assert key_ids(db) == [key_id(K1)] * 2
    assert_not_in_the_database(db, WORD)


@keyed
def test_a_timer_of_before_the_flag_fires_as_it_was_promised(cell, db):
    op = {"op": "schedule", "queue": "q", "timerKey": "k", "txn": "t",
          "payload": base64.b64encode(b'{"a":1}').decode(), "delayMs": 1500}
    reply = cell.post("/api/v1/timers", {"operations": [op]})
    assert reply.body["results"][0]["status"] == "scheduled", reply
    flag(cell, "q")
    m, = cell.pop("q", group="g", subscriptionMode="all", wait=True,
                  wait_ms=10000)
    assert (m["transactionId"], m["data"]) == ("t", {"a": 1})
    assert cell.ack([m], group="g")[0]["success"] is True
    assert key_ids(db) == [None]


# Dead letters

@keyed
def test_a_dead_letter_stays_sealed_and_opens_in_the_list(cell, db):
    flag(cell, "q")
    bury(cell)
    row, = cell.get("/api/v1/dlq").body["messages"]
    assert (row["data"], row["isEncrypted"]) == (dict(PAYLOAD, n=0), True)
    assert_not_in_the_database(db, WORD)


@keyed
def test_a_replay_seals_anew_for_its_destination(cell, db):
    flag(cell, "q")
    first, second = bury(cell, 2)
    row, = [r["id"] for r in cell.get("/api/v1/dlq").body["messages"]
            if r["transactionId"] == "t0"]
    reply = cell.post("/api/v1/dlq/%s/replay" % row)
    assert (reply.status, reply.body["result"]) == (200, "moved"), reply
    m, = popped(cell)
    assert m["id"] == reply.body["replayedAs"]["message_id"] != first["id"]
    assert m["data"] == dict(PAYLOAD, n=0)
    cell.ack([m])
    reply = cell.post("/api/v1/messages/%s/t1/retry"
                      % second["partitionId"])
    assert reply.status == 200, reply
    assert popped(cell)[0]["data"] == dict(PAYLOAD, n=1)
    assert key_ids(db) == [key_id(K1)] * 3
    assert_not_in_the_database(db, WORD)


@keyed
def test_a_replay_follows_the_flag_of_where_it_goes(cell, db):
    flag(cell, "q")
    bury(cell)
    row, = cell.get("/api/v1/dlq").body["messages"]
    reply = cell.post("/api/v1/dlq/%s/replay" % row["id"], {"queue": "open"})
    assert reply.status == 200, reply
    assert key_ids(db, "open") == [None]
    assert popped(cell, "open")[0]["data"] == dict(PAYLOAD, n=0)


@keyed
def test_a_replay_heeds_a_flag_it_did_not_know(cell, db):
    bury(cell)
    row, = cell.get("/api/v1/dlq").body["messages"]
    db.rows("update queen.queues set encryption_enabled = true")
    reply = cell.post("/api/v1/dlq/%s/replay" % row["id"])
    assert reply.status == 200, reply
    assert key_ids(db)[-1] == key_id(K1)
    assert popped(cell)[0]["data"] == dict(PAYLOAD, n=0)


def test_a_replay_without_the_key_moves_nothing(cells, db):
    a, = cells(1, QUEEN_ENCRYPTION_KEY=K1)
    flag(a, "q")
    bury(a)
    a.term()
    a.extra.clear()
    a.start()
    row, = a.get("/api/v1/dlq").body["messages"]
    assert (row["data"], row["isEncrypted"]) == (None, True)
    reply = a.post("/api/v1/dlq/%s/replay" % row["id"], {"queue": "open"})
    assert (reply.status, reply.body["error"]) == (
        500, "sealed with key id %d, which is not loaded" % key_id(K1))
    assert db.value("select count(*) from queen.dead_letters") == 1


# The flag

@keyed
def test_a_queue_flagged_behind_our_back_is_sealed_at_once(cell, db):
    cell.push("q", [0])
    db.rows("update queen.queues set encryption_enabled = true")
    assert statuses(cell.push("q", [PAYLOAD, 2])) == ["queued"] * 2
    assert key_ids(db) == [None, key_id(K1)]
    assert [m["data"] for m in popped(cell, batch=10)] == [0, PAYLOAD, 2]


@keyed
def test_the_flag_turned_on_and_off_while_pushing(cell, db):
    stop, sent, faults = threading.Event(), [], []

    def pusher(name):
        n = 0
        while not stop.is_set():
            ids = ["%s-%d" % (name, n + i) for i in range(3)]
            got = statuses(cell.push("q", ids, partition=name, ids=ids))
            if got != ["queued"] * 3:
                faults.append(got)
            sent.extend(ids)
            n += 3

    threads = [threading.Thread(target=pusher, args=("p%d" % i,))
               for i in range(3)]
    cell.push("q", [0], partition="x")
    for t in threads:
        t.start()
    for on in (True, False, True):
        before = len(sent)
        wait_until(lambda: len(sent) > before + 60)
        flag(cell, "q", on)
    last = db.value("select max(created_at) from queen.segments")
    before = len(sent)
    wait_until(lambda: len(sent) > before + 60)
    stop.set()
    for t in threads:
        t.join()
    assert faults == []
    assert db.value("select count(*) from queen.segments where key_id is null"
                    " and created_at > %s", (last,)) == 0
    got = []
    while True:
        m = cell.pop("q", batch=1000, partitions=10, autoAck=True)
        if not m and len(got) > len(sent):
            break
        got += [x["data"] for x in m]
    assert sorted(map(str, got)) == sorted(["0"] + sent)
    assert [g for g in got if str(g).startswith("p1-")] == [
        s for s in sent if s.startswith("p1-")]


@keyed
def test_what_was_sealed_opens_after_the_flag_is_off(cell, db):
    flag(cell, "q")
    cell.push("q", [1])
    flag(cell, "q", False)
    wait_until(lambda: cell.push("q", [2]) and key_ids(db)[-1] is None)
    assert [m["data"] for m in popped(cell, batch=2)] == [1, 2]


# Without the key

def test_without_a_key_every_write_is_refused(cell, db):
    flag(cell, "q")
    got = wait_until(lambda: [r for r in cell.push("q", [PAYLOAD])
                              if r["status"] == "failed"])
    assert got[0]["error"] == "encryption_required"
    reply = cell.post("/api/v1/transaction", {"operations": [
        {"type": "push", "items": [{"queue": "q", "payload": PAYLOAD}]}]})
    assert (reply.body["success"], reply.body["reason"]) == (
        False, "encryption_required")
    assert key_ids(db) == []


def test_a_stale_flag_without_a_key_is_refused_by_name(cell, db):
    cell.push("q", [0])
    db.rows("update queen.queues set encryption_enabled = true")
    item, = cell.push("q", [PAYLOAD])
    assert (item["status"], item["error"]) == ("failed",
                                               "encryption_required")
    assert_not_in_the_database(db, WORD)


def test_only_the_process_with_the_key_takes_it(new_cell, db):
    a = new_cell(QUEEN_ENCRYPTION_KEY=K1).start()
    b = new_cell().start()
    flag(a, "q")
    a.push("q", [PAYLOAD], ids=["a"])
    assert (metric(a, "queen_encryption_enabled"),
            metric(b, "queen_encryption_enabled")) == (1, 0)
    assert b.pop("q", wait=True, wait_ms=1000) == []
    assert metric(b, "queen_pop_blocked_total") > 0
    assert db.value("select count(*) from queen.consumers"
                    " where lease_no is not null") == 0
    row, = b.get("/api/v1/messages").body["messages"]
    assert (row["transactionId"], row["data"], row["isEncrypted"],
            row["payloadAvailable"]) == ("a", None, True, False)
    reply = b.post("/api/v1/fetch", {"entries": [
        {"queue": "q", "partition": "Default", "offset": 0}]})
    record, = reply.body["entries"][0]["records"]
    assert (record["payload"], record["isEncrypted"]) == (None, True)
    assert [m["data"] for m in popped(a)] == [PAYLOAD]


def test_what_lies_before_the_sealed_one_is_delivered(new_cell):
    a = new_cell(QUEEN_ENCRYPTION_KEY=K1).start()
    b = new_cell().start()
    a.push("q", [1])
    flag(a, "q")
    a.push("q", [2])
    got = popped(b, batch=10)
    assert [m["data"] for m in got] == [1]
    b.ack(got)
    assert b.pop("q", batch=10) == []
    assert [m["data"] for m in popped(a, batch=10)] == [2]


@keyed
def test_a_damaged_message_is_an_error_that_names_it(cell, db):
    flag(cell, "q")
    cell.push("q", [1])
    db.rows("update queen.segments set blob = set_byte(blob,"
            " length(blob) - 1, get_byte(blob, length(blob) - 1) # 1)")
    reply = wait_until(lambda: [r for r in [cell.get(
        "/api/v1/pop/queue/q")] if r.status != 204])[0]
    assert (reply.status, reply.body) == (500, {
        "error": "pop failed: sealed with key id %d, but does not open with it"
        ': offset 0 of partition "Default" of queue "q"' % key_id(K1)})


# Keys

def test_rotation(new_cell, db):
    a = new_cell(QUEEN_ENCRYPTION_KEY=K1).start()
    flag(a, "q")
    a.push("q", [1])
    a.term()
    # first every process learns the new key, then they seal with it
    b = new_cell(QUEEN_ENCRYPTION_KEY=K1,
                 QUEEN_ENCRYPTION_OLD_KEYS=K2).start()
    c = new_cell(QUEEN_ENCRYPTION_KEY=K2,
                 QUEEN_ENCRYPTION_OLD_KEYS="%s, %s" % (K3, K1)).start()
    b.push("q", [2])
    c.push("q", [3])
    assert key_ids(db) == [key_id(K1), key_id(K1), key_id(K2)]
    assert [m["data"] for m in popped(b, "q", group="g1", batch=9,
                                      subscriptionMode="all")] == [1, 2, 3]
    assert [m["data"] for m in popped(c, "q", group="g2", batch=9,
                                      subscriptionMode="all")] == [1, 2, 3]


def test_a_key_the_cell_does_not_know_ends_the_boot(new_cell, db):
    new_cell(QUEEN_ENCRYPTION_KEY=K1).start()
    fails_at_boot(new_cell(QUEEN_ENCRYPTION_KEY=K2),
                  "the cell seals with key id %d, which none of the keys"
                  " here opens" % key_id(K1))
    assert [r[0] for r in db.rows("select key from queen.flags where key"
                                  " like 'seal:%%'")] == [
        "seal:%d" % key_id(K1)]
    new_cell(QUEEN_ENCRYPTION_KEY=K1).start()


def test_another_key_of_the_same_id_ends_the_boot(new_cell, db):
    twin = next(k for k in ("%064x" % i for i in range(10000))
                if key_id(k) == key_id(K1))
    new_cell(QUEEN_ENCRYPTION_KEY=K1).start()
    fails_at_boot(new_cell(QUEEN_ENCRYPTION_KEY=twin),
                  "key id %d, which none" % key_id(K1))
    fails_at_boot(new_cell(QUEEN_ENCRYPTION_KEY=K1,
                           QUEEN_ENCRYPTION_OLD_KEYS=twin),
                  "QUEEN_ENCRYPTION_OLD_KEYS (key 1) has the key id")


@pytest.mark.parametrize("env, text", [
    ({"QUEEN_ENCRYPTION_KEY": "1" * 63}, "QUEEN_ENCRYPTION_KEY is not a key"),
    ({"QUEEN_ENCRYPTION_KEY": "x" * 64}, "QUEEN_ENCRYPTION_KEY is not a key"),
    ({"QUEEN_ENCRYPTION_OLD_KEYS": K2 + ",,"},
     "QUEEN_ENCRYPTION_OLD_KEYS (key 2) is not a key")])
def test_a_malformed_key_is_a_fatal_boot(new_cell, env, text):
    fails_at_boot(new_cell(**env), text)


def test_keys_from_files_and_never_printed(new_cell, folder):
    with open(folder + "/key", "w") as f:
        f.write(K1 + "\n")
    with open(folder + "/old", "w") as f:
        f.write("%s,%s\n" % (K2, K3))
    one = new_cell(QUEEN_ENCRYPTION_KEY_FILE=folder + "/key",
                   QUEEN_ENCRYPTION_OLD_KEYS_FILE=folder + "/old")
    out = subprocess.run([binary("queend"), "--check-config"], check=True,
                         env=one.env(), stdout=subprocess.PIPE,
                         text=True).stdout
    assert "QUEEN_ENCRYPTION_KEY=<set:64 chars>\n" in out
    assert "QUEEN_ENCRYPTION_OLD_KEYS=<set:129 chars>\n" in out
    one.start()
    flag(one, "q")
    assert statuses(one.push("q", [PAYLOAD])) == ["queued"]
    assert popped(one)[0]["data"] == PAYLOAD
    for key in (K1, K2, K3):
        assert key not in one.log_text() + out


def test_former_keys_alone_only_open(new_cell):
    a = new_cell(QUEEN_ENCRYPTION_KEY=K1).start()
    flag(a, "q")
    a.push("q", [PAYLOAD])
    a.term()
    b = new_cell(QUEEN_ENCRYPTION_OLD_KEYS=K1).start()
    assert statuses(b.push("q", [2])) == ["failed"]
    assert [m["data"] for m in popped(b)] == [PAYLOAD]

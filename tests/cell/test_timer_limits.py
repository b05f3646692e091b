# SPDX-License-Identifier: Apache-2.0
"""Timers over HTTP at their limits: what is refused and how it is said, what
passes all the same, what is counted, what the settings take."""
import base64
import ctypes
import json
import re
import subprocess
import threading
import urllib.parse

import pytest

from queenlib import SAN, TENANT, binary, rows, wait_until
from test_timer import (PATH, b64, cancel, drain, key_ids, log_ids, op,
                        pending, send, statuses)

SWITCHES = "/api/v1/system/kv-timers"
TXN = "/api/v1/transaction"
FAST = {"QUEEN_KV_QUOTA_REFRESH_MS": 100,
        "QUEEN_KV_USAGE_EVERY_MS": 86400000}
OTHER = {"x-queen-tenant": "00000000-0000-0000-0000-0000000000bb"}
REASONS = ["rate_limited", "quota", "unavailable", "disabled", "gated",
           "horizon", "shape", "payload_too_large"]


def refusals(cell):
    """What was refused so far, by reason, without the zeros."""
    text = cell.get("/metrics/prometheus").body.decode()
    found = dict(re.findall(
        r'^queen_timers_schedule_rejected_total\{reason="(\w+)"\} (\d+)$',
        text, re.M))
    assert sorted(found) == sorted(REASONS)
    return {k: int(v) for k, v in found.items() if v != "0"}


def refused(reply, status, error, reason=None, retry=False):
    assert (reply.status, reply.body["error"], reply.body["reason"]) == (
        status, error, reason or error), reply
    assert ("Retry-After" in reply.headers) == retry
    if retry:
        assert int(reply.headers["Retry-After"]) >= 1


def grant(cell, **caps):
    names = ["tenant"] + list(caps)
    cell.db.rows(
        "insert into queen.kv_quota (%s) values (%s) on conflict (tenant)"
        " do update set %s returning 1" % (
            ", ".join(names), ", ".join(["%s"] * len(names)),
            ", ".join("%s = excluded.%s" % (n, n) for n in names)),
        [TENANT] + list(caps.values()))
    wait_until(lambda: cell.get(SWITCHES).body["quotaTenants"] == 1,
               what="the refresh")


def always_served(cell):
    """What no limit may refuse."""
    assert cell.get(PATH + "/q/held").body["found"] is True
    assert "held" in [r["timerKey"]
                      for r in cell.get(PATH + "/q").body["rows"]]
    assert cell.get(PATH + "/q?mode=count&prefix=h").body == {"count": 1}
    assert cell.delete(PATH + "/q/none").body["status"] == "absent"
    reply = cell.post(PATH, [cancel("none")])
    assert (reply.status, reply.body["results"][0]["status"]) == (
        200, "absent")
    assert cell.delete(PATH + "/q/held").body["status"] == "cancelled"


def hinted(cell, reply):
    """A cancel rode on what was refused: it is told where it can go."""
    assert reply.headers["x-queen-timers-hint"] \
        == "DELETE /api/v1/timers/:queue/*timerKey"
    assert cell.get(PATH + "/q/held").body["found"] is True


# The ladder

def test_a_paused_schedule_refuses_and_the_rest_goes_on(cell):
    send(cell, op("held", 3600000), op("soon", 400))
    assert cell.post(SWITCHES, {"timersSchedule": False}).body[
        "timersScheduleEnabled"] is False
    reply = cell.post(PATH, [op("a")])
    refused(reply, 503, "timers_disabled", retry=True)
    assert "x-queen-timers-hint" not in reply.headers
    reply = cell.post(PATH, [op("a"), cancel("held")])
    refused(reply, 503, "timers_disabled", retry=True)
    hinted(cell, reply)
    reply = cell.post(TXN, {"timers": [op("a")]})
    assert (reply.status, reply.body["success"], reply.body["reason"]) == (
        403, False, "timers_disabled")
    reply = cell.post(TXN, {"timers": [cancel("none")]})
    assert reply.body["success"] is True
    always_served(cell)
    # what is pending fires
    assert [m["transactionId"] for m in drain(cell, "q", 1)] == ["t-soon"]
    assert refusals(cell) == {"disabled": 3}
    cell.post(SWITCHES, {"timersSchedule": True})
    assert statuses(send(cell, op("a"))) == ["scheduled"]


@pytest.mark.cellenv(QUEEN_KV_WRITE_RATE=1, QUEEN_KV_WRITE_BURST=3)
def test_over_the_rate_is_429(cell):
    send(cell, op("held", 3600000))
    replies = [cell.post(PATH, [op("a"), cancel("none")]) for _ in range(8)]
    assert [r.status for r in replies[:2]] == [200] * 2
    late = [r for r in replies if r.status != 200]
    assert late
    for reply in late:
        refused(reply, 429, "rate_limited", retry=True)
        hinted(cell, reply)
    assert refusals(cell) == {"rate_limited": len(late)}
    # a call of 256 operations costs one token
    wait_until(lambda: cell.post(PATH, [op("k%d" % i) for i in range(256)]
                                 ).status == 200, what="the next token")
    always_served(cell)
    # a rider is no call of its own
    assert [cell.post(TXN, {"timers": [op("r")]}).status
            for _ in range(5)] == [200] * 5


@pytest.mark.cellenv(**FAST)
def test_over_the_quota_is_403(cell, db):
    grant(cell, max_timers=3)
    assert statuses(send(cell, op("held", 3600000), op("b"))) \
        == ["scheduled"] * 2
    reply = cell.post(PATH, [op("c"), op("d"), cancel("held")])
    refused(reply, 403, "timers_quota_exceeded")
    hinted(cell, reply)
    reply = cell.post(TXN, {"timers": [op("c"), op("d")]})
    assert (reply.status, reply.body["reason"]) == (
        403, "timers_quota_exceeded")
    assert refusals(cell) == {"quota": 2}
    always_served(cell)
    assert pending(db) == 1


@pytest.mark.cellenv(QUEEN_KV_REQUIRE_GRANT="true", **FAST)
def test_without_a_grant_is_403(cell, db):
    db.rows("insert into queen.kv_quota (tenant) values (%s) returning 1",
            (TENANT,))
    wait_until(lambda: cell.post(PATH, [op("held", 3600000)]).status == 200)
    before = refusals(cell).get("gated", 0)
    db.rows("update queen.kv_quota set enabled = false returning 1")
    wait_until(lambda: cell.post(PATH, [op("a")]).status == 403)
    reply = cell.post(PATH, [op("a"), cancel("held")])
    refused(reply, 403, "feature_gated")
    hinted(cell, reply)
    assert cell.post(TXN, {"timers": [op("a")]}).body["reason"] \
        == "feature_gated"
    assert refusals(cell)["gated"] - before == 3
    always_served(cell)


@pytest.mark.cellenv(QUEEN_TIMERS_MAX_HORIZON_S=100, **FAST)
def test_the_horizon_of_the_cell_and_the_narrower_one(cell):
    assert statuses(send(cell, op("held", 100000))) == ["scheduled"]
    refused(cell.post(PATH, [op("a", 100000.5)]), 403,
            "timer_horizon_exceeded", "timers_horizon")
    reply = cell.post(TXN, {"timers": [op("a", 100001)]})
    assert (reply.status, reply.body["reason"]) == (
        403, "timer_horizon_exceeded")
    grant(cell, max_timer_horizon_s=10)
    assert statuses(send(cell, op("b", 10000))) == ["scheduled"]
    reply = cell.post(PATH, [op("a", 10001), cancel("held")])
    refused(reply, 403, "timer_horizon_exceeded", "timers_horizon")
    hinted(cell, reply)
    reply = cell.post(TXN, {"timers": [op("a", 10001)]})
    assert (reply.status, reply.body["reason"]) == (
        403, "timer_horizon_exceeded")
    # a tenant's cannot widen the cell's
    cell.db.rows("update queen.kv_quota set max_timer_horizon_s = 1000"
                 " returning 1")
    wait_until(lambda: cell.post(PATH, [op("c", 99000)]).status == 200)
    refused(cell.post(PATH, [op("a", 100001)]), 403,
            "timer_horizon_exceeded", "timers_horizon")
    always_served(cell)


def test_refused_shapes_are_counted(cell):
    for body, status in (("{", 400), ('{"operations":5}', 400),
                         (json.dumps([op("a", op="no")]), 400),
                         (json.dumps([op("a", 1e300)]), 403),
                         (json.dumps([op("a", payload=b64(
                             '"%s"' % ("x" * 1048576)))]), 413)):
        assert cell.post(PATH, body).status == status
    assert refusals(cell) == {"shape": 3, "horizon": 1,
                              "payload_too_large": 1}
    for one, status in ((op("a", op="no"), 400), (op("a", 1e300), 403)):
        assert cell.post(TXN, {"timers": [one]}).status == status
    assert refusals(cell) == {"shape": 4, "horizon": 2,
                              "payload_too_large": 1}


# The database

@pytest.mark.cellenv(DB_POOL_SIZE=4, QUEEN_SWEEPER="false")
def test_no_free_connection_is_503(cell, db):
    """The timer is held, so the lane's only connection is too."""
    send(cell, op("held"))
    held = db.connect(autocommit=False)
    rows(held, "select 1 from queen.timers for update")
    waiting = threading.Thread(target=send, args=(cell, op("held")))
    waiting.start()
    try:
        wait_until(lambda: db.value(
            "select count(*) from pg_stat_activity where wait_event_type ="
            " 'Lock' and datname = current_database()") == 1)
        for reply in (cell.post(PATH, [op("b")]), cell.get(PATH + "/q/b"),
                      cell.get(PATH + "/q"), cell.delete(PATH + "/q/b"),
                      cell.get(PATH + "/q?mode=count&prefix=b")):
            refused(reply, 503, "timers_unavailable",
                    "timers_pool_exhausted", retry=True)
    finally:
        held.rollback()
        waiting.join()
    # the schedule; reads and cancels are not counted
    assert refusals(cell) == {"unavailable": 1}
    assert pending(db) == 1


@pytest.mark.cellenv(QUEEN_STMT_TIMEOUT_MS=300)
def test_a_statement_that_takes_too_long_is_503(cell, db):
    send(cell, op("held"))
    held = db.connect(autocommit=False)
    rows(held, "select 1 from queen.timers for update")
    for reply in (cell.post(PATH, [op("held")]),
                  cell.delete(PATH + "/q/held")):
        refused(reply, 503, "timers_unavailable", "timers_timeout",
                retry=True)
    held.rollback()
    assert refusals(cell) == {"unavailable": 1}
    assert cell.delete(PATH + "/q/held").body["status"] == "cancelled"


def test_no_database_is_503(cell, pg):
    pg.stop("immediate")
    for reply in (cell.post(PATH, [op("a")]), cell.get(PATH + "/q/a"),
                  cell.delete(PATH + "/q/a")):
        refused(reply, 503, "timers_unavailable", "connection", retry=True)
    pg.start()
    wait_until(lambda: cell.post(PATH, [op("a")]).status == 200)


@pytest.mark.cellenv(QUEEN_SWEEPER="false")
def test_a_frame_that_is_none_harms_nobody(cell, db):
    assert cell.post(PATH, [op("k")]).status == 200
    db.rows("update queen.timers set frame = '\\x0100' returning 1")
    for _ in range(2):
        refused(cell.get("/api/v1/timers/q/k"), 500, "timers_error",
                "timers_frame_unreadable")
    assert cell.get("/health").status == 200


@pytest.mark.parametrize("row", ["", "select 1, 9, 't', null::uuid,"
                                 " now()", "select 2, 0, 't', null::uuid,"
                                 " now()"])
def test_results_that_do_not_fit_harm_nobody(cell, db, row):
    db.psql("-c", """
        drop function queen.timer_apply_v1;
        create function queen.timer_apply_v1(p_tenant uuid, t_op smallint[],
            t_queue text[], t_key text[], t_partition text[],
            t_delay_us bigint[], t_hash bytea[], t_frame bytea[],
            t_key_id smallint[], p_now timestamptz default null)
        returns table (ord int, status int, txn text, message_id uuid,
            deliver_at timestamptz)
        language plpgsql as $$ begin %s; end $$"""
            % ("return query " + row if row else "return"))
    refused(cell.delete("/api/v1/timers/q/k"), 500, "timers_error",
            "timers_result_missing")
    assert cell.get("/health").status == 200


def test_a_missing_function_is_misconfigured(cell, db):
    for name, call in (
            ("timer_apply_v1", lambda: cell.post(PATH, [op("a")])),
            ("timer_apply_v1", lambda: cell.delete(PATH + "/q/a")),
            ("timer_peek_v1", lambda: cell.get(PATH + "/q/a")),
            ("timer_list_v1", lambda: cell.get(PATH + "/q")),
            ("timer_count_v1",
             lambda: cell.get(PATH + "/q?mode=count&prefix=a"))):
        db.rows("alter function queen.%s rename to away" % name)
        reply = call()
        db.rows("alter function queen.away rename to %s" % name)
        refused(reply, 500, "timers_misconfigured", reply.body["reason"])
        assert name in reply.body["reason"]
        assert call().status == 200


# what PostgreSQL itself says of the data is a sentence, where a word is due
@pytest.mark.parametrize("state,text,status,error,told", [
    ("22023", "timers_new", 400, "timers_bad_request",
     {"reason": "timers_new"}),
    ("22000", 'not this "one"', 400, "timers_bad_request",
     {"reason": "timers_bad_request", "detail": 'not this "one"'}),
    ("23514", 'not this "one"', 500, "timers_error",
     {"reason": 'not this "one"'}),
    ("P0001", 'not this "one"', 500, "timers_error",
     {"reason": 'not this "one"'})])
@pytest.mark.cellenv(QUEEN_SWEEPER="false")
def test_what_sql_says_is_the_reason(cell, db, state, text, status, error,
                                     told):
    db.psql("-c", """
        create function refuse() returns trigger language plpgsql as $$
        begin
            raise exception '%s' using errcode = '%s';
        end $$;
        create trigger refuse before insert on queen.timers
        for each row execute function refuse()""" % (text, state))
    reply = cell.post(PATH, [op("a")])
    assert (reply.status, reply.body) == (status, dict(told, error=error))
    assert pending(db) == 0


# Payloads

ZSTD = ctypes.CDLL("libzstd.so.1")
ZSTD.ZSTD_createCCtx.restype = ctypes.c_void_p
ZSTD.ZSTD_compress2.restype = ZSTD.ZSTD_compressBound.restype \
    = ctypes.c_size_t
CONTENT_SIZE = 200      # ZSTD_c_contentSizeFlag


def zstd(data, says_size=True):
    how = ctypes.c_void_p(ZSTD.ZSTD_createCCtx())
    ZSTD.ZSTD_CCtx_setParameter(how, CONTENT_SIZE, int(says_size))
    room = ctypes.create_string_buffer(
        ZSTD.ZSTD_compressBound(ctypes.c_size_t(len(data))))
    n = ZSTD.ZSTD_compress2(how, room, ctypes.c_size_t(len(room)), data,
                            ctypes.c_size_t(len(data)))
    ZSTD.ZSTD_freeCCtx(how)
    assert n <= len(room)
    return room.raw[:n]


def packed(key, data, delay=60000, says_size=True, **fields):
    return op(key, delay, payloadZstd=True, payload=base64.b64encode(
        zstd(data, says_size)).decode(), **fields)


def rss_kib(cell, what="VmRSS"):
    with open("/proc/%d/status" % cell.proc.pid) as f:
        return int(re.search(what + r":\s+(\d+)", f.read()).group(1))


def test_a_compressed_payload_is_kept_plain(cell):
    text = b'{"a": 1.50, "b": "' + b"x" * 5000 + b'"}'
    send(cell, packed("late", text), packed("soon", text, -1))
    # one written as a stream does not tell its size
    assert statuses(send(cell, packed("late", text, says_size=False))) \
        == ["rescheduled"]
    seen = cell.get(PATH + "/q/late").body
    assert base64.b64decode(seen["payload"]) == text
    assert seen["payloadZstd"] is False
    m, = drain(cell, "q", 1)
    assert m["data"] == json.loads(text)
    for bad in (b"", b"no", b"[", zstd(b"1")[:-1], zstd(b"1") + b"x"):
        refused(cell.post(PATH, [dict(packed("bad", b"1"), payload=(
            base64.b64encode(bad).decode()))]), 400, "timers_bad_request",
            "timers_payload_not_zstd")
    refused(cell.post(PATH, [packed("bad", b"{")]), 400,
            "timers_bad_request", "timers_payload_not_json")


def test_the_cap_is_that_of_the_plain_payload(cell):
    full = b'"' + b"x" * (1048576 - 2) + b'"'
    assert statuses(send(cell, packed("a", full), op(
        "b", payload=base64.b64encode(full).decode()))) == ["scheduled"] * 2
    over = full[:-1] + b'x"'
    for one in (packed("c", over), packed("c", over, says_size=False),
                op("c", payload=base64.b64encode(over).decode())):
        refused(cell.post(PATH, [one]), 413, "payload_too_large",
                "timers_payload_too_large")


@pytest.mark.parametrize("says_size", [True, False])
def test_a_bomb_is_refused_with_little_memory(cell, says_size):
    """256 MiB of blanks in a few KiB, whether the head tells or not."""
    bomb = packed("a", b" " * (256 << 20), says_size=says_size)
    assert len(bomb["payload"]) < 50000
    before = rss_kib(cell)
    for _ in range(5):
        refused(cell.post(PATH, [bomb]), 413, "payload_too_large",
                "timers_payload_too_large")
    if not SAN:     # whose memory is not ours
        assert rss_kib(cell, "VmHWM") - before < 16384
    assert refusals(cell) == {"payload_too_large": 5}


@pytest.mark.cellenv(QUEEN_MAX_BODY_BYTES=1 << 20)
def test_what_a_call_inflates_to_is_bounded_too(cell):
    """Each is below the cap of a payload, together they are above a body."""
    text = b'"' + b"x" * 500000 + b'"'
    refused(cell.post(PATH, [packed("k%d" % i, text) for i in range(3)]),
            413, "payload_too_large", "timers_payload_too_large")
    assert statuses(send(cell, packed("a", text), packed("b", text))) \
        == ["scheduled"] * 2


# In a transaction

def test_an_absent_cancel_commits_the_bundle(cell, db):
    send(cell, op("a"))
    reply = cell.post(TXN, {
        "operations": [{"type": "push", "items": [
            {"queue": "out", "payload": 1}]}],
        "kv": [{"op": "put", "ns": "n", "key": "k", "value": 1,
                "forever": True}],
        "timers": [cancel("none", txn="mine"), cancel("a"), op("b")]})
    assert reply.body["success"] is True
    none, gone, made = reply.body["results"][2:]
    assert none == {"index": 2, "type": "timer", "opIndex": 0,
                    "status": "absent", "ok": False, "queue": "q",
                    "timerKey": "none", "txn": "mine"}
    assert gone == {"index": 3, "type": "timer", "opIndex": 1,
                    "status": "cancelled", "ok": True, "queue": "q",
                    "timerKey": "a", "txn": "t-a"}
    assert (made["index"], made["opIndex"], made["status"]) == (
        4, 2, "scheduled")
    assert [m["data"] for m in cell.pop("out")] == [1]
    assert key_ids(db) == [("b", False)]


def test_a_lost_gate_undoes_timers(cell, db):
    send(cell, op("old", txn="first"))
    put = {"op": "put", "ns": "n", "key": "k", "value": 1, "forever": True}
    assert cell.post("/api/v1/kv", [put]).status == 200
    reply = cell.post(TXN, {
        "kv": [dict(put, expect=0, required=True)],
        "timers": [op("new"), cancel("old"), op("old2")]})
    assert reply.body["success"] is False
    assert db.rows("select timer_key from queen.timers") == [("old",)]


@pytest.mark.parametrize("field", [
    "producerSub", "producer_sub", "messageId", "message_id", "tenant",
    "tenantId", "tenant_id", "_tenant", "deliverAt", "deliver_at",
    "delaySeconds", "delay_seconds", "attempts", "claimToken", "claim_token",
    "claimedUntil", "claimed_until", "_", "_messageId"])
def test_server_owned_fields_are_refused_in_both_places(common, own_name,
                                                        field):
    for one in (op("a", queue=own_name, **{field: 1}),
                cancel("a", queue=own_name, **{field: None})):
        refused(common.post(PATH, [one]), 400, "timers_bad_request",
                "timers_server_owned_field")
        reply = common.post(TXN, {"timers": [one]})
        assert (reply.status, reply.body["reason"]) == (400, "bad_request")
        assert reply.body["error"].startswith("timers_server_owned_field")
    assert common.get("%s/%s" % (PATH, own_name)).body["rows"] == []


@pytest.mark.parametrize("field", ["tenant", "tenantId", "_tenant"])
def test_a_body_around_the_operations_names_no_tenant(cell, db, field):
    for path, error, reason, one in (
            (PATH, "timers_bad_request", "timers_server_owned_field",
             op("a")),
            ("/api/v1/kv", "kv_bad_request", "kv_tenant_not_an_input",
             {"op": "get", "ns": "n", "key": "k"})):
        reply = cell.post(path, {field: TENANT, "operations": [one]})
        assert (reply.status, reply.body) == (400, {
            "error": error, "reason": reason,
            "detail": "the tenant is that of the request"})
    assert refusals(cell) == {"shape": 1}
    assert pending(db) == 0


# Two tenants

@pytest.mark.cellenv(QUEEN_TENANCY_HEADER="true",
                     QUEEN_KV_TRUSTED_PROXY="true",
                     QUEEN_KV_REQUIRE_GRANT="false")
def test_two_tenants_with_the_same_names(cell, db):
    for headers, txn in (({}, "mine"), (OTHER, "theirs")):
        reply = cell.post(PATH, [op("k", txn=txn), op("soon", 300, txn=txn)],
                          headers=headers)
        assert statuses(reply.body["results"]) == ["scheduled"] * 2
    cell.post(PATH, [op("more")], headers=OTHER)
    for headers, txn, keys in (({}, "mine", ["k"]),
                               (OTHER, "theirs", ["k", "more"])):
        assert cell.get(PATH + "/q/k", headers=headers).body["txn"] == txn
        m, = wait_until(lambda: cell.pop("q", headers=headers,
                                         subscriptionMode="all"))
        assert m["transactionId"] == txn
        wait_until(lambda: [r["timerKey"] for r in cell.get(
            PATH + "/q", headers=headers).body["rows"]] == keys)
        assert cell.get(PATH + "/q?mode=count&prefix=k",
                        headers=headers).body == {"count": 1}
    # what is not one's own is not there
    assert cell.get(PATH + "/q/more").body["found"] is False
    assert cell.delete(PATH + "/q/more?txn=x").body["status"] == "absent"
    assert cell.post(PATH, [op("k", txn="again")]).body["results"][0][
        "status"] == "rescheduled"
    assert cell.delete(PATH + "/q/k").body["txn"] == "again"
    assert cell.get(PATH + "/q/k", headers=OTHER).body["txn"] == "theirs"
    assert pending(db) == 2 and log_ids(db) == 2


# Types

WRONG = {
    "string": [True, 1, 1.5, [], {}, ["x"]],
    "name": ["", "x" * 2000, "a\x00", "a\x1f", "\x7f"],
    "number": [True, "1", "", [], {}, "x", [1]],
    "bool": [1, 0, "true", "", [], {}],
}
FIELDS = {"op": "string", "queue": "string", "timerKey": "string",
          "txn": "string", "partition": "string", "payload": "string",
          "delayMs": "number", "payloadZstd": "bool", "encrypted": "bool"}
REQUIRED = ["op", "queue", "timerKey", "txn", "payload", "delayMs"]
LONE = '"\\ud800"'


def wrong_values():
    """(field, JSON text)"""
    for field, kind in FIELDS.items():
        for value in WRONG[kind]:
            yield field, json.dumps(value)
        if field in REQUIRED:
            yield field, "null"
        if kind == "string":
            yield field, LONE
        if field in ("queue", "timerKey", "txn", "partition"):
            for value in WRONG["name"]:
                yield field, json.dumps(value)
    for text in ("1e999", "9" * 65, "-", "01", "1.", "NaN", "Infinity"):
        yield "delayMs", text


def test_every_field_of_every_wrong_type(cell, db):
    good = json.dumps(op("good"))
    for field, text in wrong_values():
        one = dict(op("k"), **{field: "@"})
        raw = json.dumps(one).replace('"@"', text)
        for path, body in ((PATH, "[%s,%s]" % (good, raw)),
                           (TXN, '{"timers":[%s,%s]}' % (good, raw))):
            reply = cell.post(path, body)
            assert reply.status in (400, 403), (field, text, reply)
            assert reply.body["error"], (field, text)
            if path == PATH and reply.status == 400:
                assert reply.body["error"] == "timers_bad_request"
                assert reply.body["reason"].startswith("timers_"), reply
    for field in REQUIRED:
        one = op("k")
        del one[field]
        assert cell.post(PATH, [one]).status == 400, field
    # optional ones may be null or missing
    assert statuses(send(cell, op("k", partition=None, payloadZstd=None,
                                  encrypted=None))) == ["scheduled"]
    assert statuses(send(cell, cancel("k", txn=None, payload=5, delayMs="x"))
                    ) == ["cancelled"]
    for bad in (1, True, [], {}):
        assert cell.post(PATH, [cancel("k", txn=bad)]).status == 400
    assert pending(db) == 0


def quoted(value):
    return urllib.parse.quote(value, safe="")


@pytest.mark.parametrize("query,status,found", [
    # limit: clamped to 1 to 1000; what is no number counts as 100
    ("limit=0", 200, 1), ("limit=-5", 200, 1), ("limit=1", 200, 1),
    ("limit=2", 200, 2), ("limit=1000", 200, 120), ("limit=1001", 200, 120),
    ("limit=9223372036854775807", 200, 120),
    ("limit=9223372036854775808", 200, 100), ("limit=1.5", 200, 100),
    ("limit=", 200, 100), ("limit=%00", 400, None), ("limit=true", 200, 100),
    ("limit=%ff", 400, None), ("", 200, 100),
    ("after=", 200, 100), ("after=k119", 200, 0), ("after=k118", 200, 1),
    ("after=" + "z" * 5000, 200, 0), ("after=%ff", 400, None),
    ("after=a%00b", 400, None), ("after=%ed%a0%80", 400, None),
    ("mode=list", 200, 100), ("mode=", 200, 100), ("mode=LIST", 400, None),
    ("mode=%00", 400, None), ("mode=%ff", 400, None), ("mode=1", 400, None),
    ("mode=count&prefix=k11", 200, {"count": 10}),
    ("mode=count&prefix=" + quoted("é"), 200, {"count": 0}),
    ("mode=count&prefix=%25", 200, {"count": 0}),
    ("mode=count&prefix=" + "x" * 128, 200, {"count": 0}),
    ("mode=count&prefix=%00", 400, None),
    ("mode=count&prefix=k%00", 400, None),
    ("mode=count&prefix=%ff", 400, None),
    ("mode=count&prefix=" + quoted("é" * 65), 400, None),
    ("mode=count&prefix=k&after=", 400, None),
    ("mode=count&prefix=k&limit=x", 400, None),
])
def test_every_query_of_the_list(common, query, status, found):
    # all cases read these; they are due when nobody runs any more
    common.db.rows(
        "insert into queen.timers (tenant, queue, timer_key, partition,"
        " deliver_at, due_at, message_id, frame, hash, created_at, updated_at)"
        " select %s, 'all-cases', 'k' || lpad(i::text, 3, '0'), 'p', due, due,"
        " gen_random_uuid(), decode('1600000000' || repeat('00', 16) ||"
        " '010078' || '3131', 'hex'), decode(repeat('00', 16), 'hex'), now(),"
        " now() from generate_series(0, 119) i, (select now() + '1 day' due) d"
        " on conflict do nothing", (TENANT,))
    reply = common.get(PATH + "/all-cases?" + query)
    assert reply.status == status, reply
    if status == 400 and re.search("%00|%ff|%ed", query):
        # no path or query of any route has these
        assert reply.body["error"] in ("%00 is not allowed",
                                       "percent-encoding is not UTF-8")
    elif status == 400:
        assert reply.body["error"] == "timers_bad_request", reply
        assert reply.body["reason"].startswith("timers_"), reply
    elif isinstance(found, dict):
        assert reply.body == found
    else:
        got = reply.body
        assert len(got["rows"]) == found
        more = found > 0 and got["rows"][-1]["timerKey"] < "k119"
        assert got["truncated"] is more
        assert got["nextAfter"] == (
            got["rows"][-1]["timerKey"] if more else None)


def test_names_and_txn_of_a_path(cell):
    for method in ("GET", "DELETE"):
        for path in ("/q/%00", "/q/%ff", "/%00/k", "/%ff/k"):
            assert cell.request(method, PATH + path).status == 400
        for path in ("/q/a%1f", "/q/%7f", "/q/" + "k" * 513,
                     "/%1f/k", "/" + "q" * 513 + "/k"):
            reply = cell.request(method, PATH + path)
            assert (reply.status, reply.body["error"]) == (
                400, "timers_bad_request"), (method, path, reply)
            assert reply.body["reason"] == (
                "timers_key_required" if path.startswith("/q/")
                else "timers_queue_required")
    assert cell.get(PATH + "/%1f").body["reason"] == "timers_queue_required"
    for text, status in (("%ff", 400), ("", 200), ("a%00b", 400),
                         (quoted("é" * 2000), 200)):
        reply = cell.delete(PATH + "/q/k?txn=" + text)
        assert reply.status == status, text
        if status == 200:
            assert reply.body["txn"] == (urllib.parse.unquote(text) or None)
    # the longest names there are, also in a path
    for name in ("k" * 512, "é" * 256, "a/b//c", "%", "?&#", " k "):
        assert statuses(send(cell, op(name, queue=name))) == ["scheduled"]
        path = "%s/%s/%s" % (PATH, quoted(name), quoted(name))
        found = cell.get(path).body
        assert (found["found"], found["queue"], found["timerKey"]) == (
            True, name, name)
        assert cell.delete(path).body["status"] == "cancelled"


# Settings

NUMBERS = {"QUEEN_TIMERS_MAX_OPS_PER_CALL": (1, 256),
           "QUEEN_TIMERS_MAX_HORIZON_S": (1, 315360000),
           "QUEEN_TIMERS_MAX_PAYLOAD_BYTES": (1, 67108864),
           "QUEEN_SWEEPER_MIN_SLEEP_MS": (1, 60000),
           "QUEEN_SWEEPER_MAX_SLEEP_MS": (1, 600000),
           "QUEEN_SWEEPER_CYCLE_MAX_ROWS": (1, 1000000),
           "QUEEN_SWEEPER_DUE_CAP": (1, 1000000),
           "QUEEN_SWEEPER_MAX_FIRE_BYTES": (1, 1073741824),
           "QUEEN_SWEEPER_MAX_ATTEMPTS": (1, 1000),
           "QUEEN_SWEEPER_BACKOFF_MIN_MS": (1, 86400000),
           "QUEEN_SWEEPER_BACKOFF_MAX_MS": (1, 86400000),
           "QUEEN_SWEEPER_TRANSIENT_BACKOFF_MS": (1, 86400000)}
SWITCH = ["QUEEN_SWEEPER", "QUEEN_SWEEPER_ISOLATE_ON_PERMANENT"]
NO_EFFECT = ["QUEEN_SWEEPER_IDLE_MAX_SLEEP_MS",
             "QUEEN_SWEEPER_IDLE_AFTER_CYCLES",
             "QUEEN_SWEEPER_EMPTY_CLAIM_MIN_MS",
             "QUEEN_SWEEPER_EMPTY_CLAIM_MAX_MS", "QUEEN_SWEEPER_LEASE_MS",
             "QUEEN_SWEEPER_CLAIM_BATCH", "QUEEN_SWEEPER_PARALLELISM",
             "QUEEN_SWEEPER_FIRE_RATE_PER_TENANT"]


def checked(name, value):
    return subprocess.run(
        [binary("queend"), "--check-config"], env={name: value},
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60,
        check=False)


def test_every_setting_has_its_range():
    text = subprocess.run([binary("queend"), "--help"], check=True, text=True,
                          capture_output=True, timeout=60).stdout
    known = set(re.findall(r"QUEEN_(?:TIMERS|SWEEPER)\w*", text))
    assert known == set(NUMBERS) | set(SWITCH)
    for name, (least, most) in NUMBERS.items():
        for value in (least, most):
            done = checked(name, str(value))
            assert done.returncode == 0, done.stderr
            assert "%s=%d\n" % (name, value) in done.stdout
        for value in (str(least - 1), str(most + 1), "-1", "x", "1x", "1.5",
                      "0x10", "9" * 30):
            done = checked(name, value)
            assert (done.returncode, name in done.stderr) == (2, True), (
                name, value, done)
    for name in SWITCH:
        assert checked(name, "maybe").returncode == 2
        assert "%s=false\n" % name in checked(name, "false").stdout
    for name in NO_EFFECT:
        assert checked(name, "x").returncode == 0


@pytest.mark.cellenv(QUEEN_TIMERS_MAX_OPS_PER_CALL=2,
                     QUEEN_TIMERS_MAX_PAYLOAD_BYTES=5)
def test_narrower_settings_hold_in_both_places(cell):
    ops = [op("k%d" % i, payload=b64("12345")) for i in range(3)]
    refused(cell.post(PATH, ops), 400, "timers_bad_request",
            "timers_too_many_ops")
    assert cell.post(TXN, {"timers": ops}).body["reason"] == "bad_request"
    big = [op("k", payload=b64("123456"))]
    refused(cell.post(PATH, big), 413, "payload_too_large",
            "timers_payload_too_large")
    reply = cell.post(TXN, {"timers": big})
    assert (reply.status, reply.body["reason"]) == (413, "payload_too_large")
    assert statuses(send(cell, *ops[:2])) == ["scheduled"] * 2

# SPDX-License-Identifier: Apache-2.0
"""
Switches, grants, quotas and horizons inside a transaction: the whole bundle is
refused with 403 before anything is sent, and rates do not count.
"""
import pytest

from queenlib import OTHER_TENANT, wait_until
from riderkit import (DAY_MS, absent, cancel, delete, get, get_many, incr,
                      put, queues, rejected, schedule, timers, untouched,
                      values)
from test_kv_limits import SWITCHES, grant, tenants
from test_transaction import TXN, ack, committed, count, fill, pop, push, txn

ONE_REFRESH = {"QUEEN_KV_QUOTA_REFRESH_MS": 100,
               "QUEEN_KV_USAGE_EVERY_MS": 86400000}
quota = pytest.mark.cellenv(**ONE_REFRESH)


@pytest.fixture
def ready(cell, db):
    """One message in hand, one key, and nothing else."""
    fill(cell, 1)
    txn(cell, kv=[put("old")])
    return pop(cell)[0]


def granted(cell, **caps):
    grant(cell, **caps)
    wait_until(lambda: tenants(cell) == 1, what="the refresh")


def refuses(cell, db, m, status, reason, error=None, **riders):
    """The bundle with a push, an ack and these riders is refused; nothing is
    left of it, not even a name."""
    before = queues(db)
    reply = cell.post(TXN, {"operations": [push(), ack(m)], **riders})
    rejected(reply, status, reason, error or reason)
    assert reply.headers["Retry-After"] is None
    untouched(db)
    assert queues(db) == before == ["in"]


# Switches

@pytest.mark.parametrize("kv", [
    [put()], [absent(required=True)], [get("old")], [get_many("old", "k")],
    [delete("old")], [incr()], [get("old"), put()]])
def test_kv_paused_refuses_reads_and_writes(cell, db, ready, kv):
    cell.post(SWITCHES, {"kv": False})
    refuses(cell, db, ready, 403, "kv_disabled", kv=kv)
    refuses(cell, db, ready, 403, "kv_disabled", kv=kv, timers=[schedule()])
    # what carries no kv goes on
    assert txn(cell, push(), timers=[schedule()])["success"] is True
    cell.post(SWITCHES, {"kv": True})
    assert txn(cell, ack(ready), kv=kv)["success"] is True


def test_timers_paused_refuses_schedules_and_lets_cancels_go(cell, db, ready):
    cell.post(SWITCHES, {"timersSchedule": False})
    refuses(cell, db, ready, 403, "timers_disabled", timers=[schedule()])
    refuses(cell, db, ready, 403, "timers_disabled", kv=[put()],
            timers=[cancel("a"), schedule()])
    body = txn(cell, ack(ready), push(), kv=[put()], timers=[cancel("a")])
    assert body["results"][3]["status"] == "absent"
    assert (values(db), count(db), committed(db)) == ({"old": 1, "k": 1}, 1, 0)
    cell.post(SWITCHES, {"timersSchedule": True})
    assert txn(cell, timers=[schedule()])["success"] is True


# Grants

@pytest.mark.cellenv(QUEEN_KV_REQUIRE_GRANT="true", **ONE_REFRESH)
def test_without_a_grant_no_write_and_no_schedule(cell, db):
    wait_until(lambda: cell.get(SWITCHES).body["quotaAgeMs"] is not None)
    fill(cell, 1)
    m = pop(cell)[0]
    for riders in ({"kv": [put()]}, {"kv": [incr()]},
                   {"timers": [schedule()]},
                   {"kv": [get()], "timers": [cancel("a"), schedule()]}):
        reply = cell.post(TXN, {"operations": [push(), ack(m)], **riders})
        rejected(reply, 403, "feature_gated", "feature_gated")
    assert (queues(db), values(db), timers(db), committed(db)) == (
        ["in"], {}, [], -1)
    # reads, deletes and cancels are nobody's to grant
    assert txn(cell, ack(m), kv=[get(), delete("x")],
               timers=[cancel()])["success"] is True
    granted(cell)
    assert txn(cell, kv=[put()], timers=[schedule()])["success"] is True


@quota
def test_a_disabled_row_denies(cell, db, ready):
    granted(cell, enabled=False)
    refuses(cell, db, ready, 403, "feature_gated", kv=[put()])
    refuses(cell, db, ready, 403, "feature_gated", timers=[schedule()])
    assert txn(cell, ack(ready), kv=[get("old")])["success"] is True


# Occupancy

@quota
def test_over_the_quota_of_rows(cell, db, ready):
    granted(cell, max_rows=3)
    # one is charged already; an upper bound: nobody knows which exist
    refuses(cell, db, ready, 403, "kv_quota_exceeded",
            kv=[put("a"), absent("b"), incr("c"), put("old")])
    # it sticks until it is measured; what adds nothing goes on
    refuses(cell, db, ready, 403, "kv_quota_exceeded", kv=[put("old")])
    assert txn(cell, ack(ready), kv=[get("old"), delete("x")],
               timers=[schedule()])["success"] is True


@quota
def test_over_the_quota_of_bytes(cell, db, ready):
    granted(cell, max_bytes=1000)
    refuses(cell, db, ready, 403, "kv_quota_exceeded",
            kv=[put("a", "x" * 400), put("b", "x" * 700)])


@quota
def test_over_the_quota_of_timers(cell, db, ready):
    granted(cell, max_timers=2)
    refuses(cell, db, ready, 403, "timers_quota_exceeded",
            timers=[schedule(str(i)) for i in range(3)], kv=[put()])
    refuses(cell, db, ready, 403, "timers_quota_exceeded",
            timers=[schedule()])
    assert txn(cell, ack(ready), kv=[put()],
               timers=[cancel()])["success"] is True


@quota
def test_every_rollback_gives_back_what_was_charged(cell, db, ready):
    """Room for two rows and two timers: no cause may eat it up."""
    cell.push("dups", [1], ids=["d"])
    granted(cell, max_rows=3, max_timers=2)
    riders = {"kv": [put("a"), put("b")],
              "timers": [schedule("a"), schedule("b")]}
    lost = dict(riders, kv=[put("a"), absent("old", required=True)])
    for _ in range(3):
        for ops, more, reason in (
                ([push()], lost, "kv_precondition"),
                ([push("dups", txn="d")], riders, "duplicate"),
                ([{**ack(ready), "transactionId": "nowhere"}], riders,
                 "ack_rejected"),
                ([{**ack(ready), "consumerGroup": "no"}], riders,
                 "ack_rejected"),
                ([{**ack(ready), "partitionId": "no"}], riders,
                 "ack_rejected")):
            body = txn(cell, *ops, **more)
            assert (body["success"], body["reason"]) == (False, reason), body
        rejected(cell.post(TXN, {"kv": riders["kv"], "timers": [
            schedule(delay_ms=91 * DAY_MS)]}), 403,
            "timer_horizon_exceeded",
            "timers_horizon: operation 0: delayMs is beyond the horizon")
    assert txn(cell, push(), ack(ready), **riders)["success"] is True
    reply = cell.post(TXN, {"kv": [put("c")]})
    rejected(reply, 403, "kv_quota_exceeded", "kv_quota_exceeded")


# Horizon and sizes

@quota
def test_a_narrower_horizon_of_the_tenant(cell, db, ready):
    granted(cell, max_timer_horizon_s=60)
    refuses(cell, db, ready, 403, "timer_horizon_exceeded", "timers_horizon",
            kv=[put()], timers=[schedule("a", 1000), schedule("b", 60001)])
    assert txn(cell, timers=[schedule(delay_ms=60000)])["success"] is True
    # of the cell: found where the delay is read
    assert cell.post(TXN, {"timers": [schedule(
        delay_ms=91 * DAY_MS)]}).body["reason"] == "timer_horizon_exceeded"


@pytest.mark.cellenv(QUEEN_TIMERS_MAX_HORIZON_S=60)
def test_the_horizon_of_the_cell(cell, db, ready):
    refuses(cell, db, ready, 403, "timer_horizon_exceeded",
            "timers_horizon: operation 1: delayMs is beyond the horizon",
            kv=[put()], timers=[schedule("a", 60000), schedule("b", 60001)])


@pytest.mark.cellenv(QUEEN_TIMERS_MAX_PAYLOAD_BYTES=100)
def test_what_is_too_large_is_413(cell, db, ready):
    refuses(cell, db, ready, 413, "payload_too_large",
            "kv_value_too_large: operation 1: value has more than 65536 bytes",
            kv=[put("a", "x" * 65534), put("b", "x" * 65535)])
    refuses(cell, db, ready, 413, "payload_too_large",
            "kv_key_too_large: operation 0: key has more than 512 bytes",
            kv=[put("k" * 513)])
    refuses(cell, db, ready, 413, "payload_too_large",
            "timers_payload_too_large: operation 1: the payload is too large",
            timers=[schedule("a", payload=b"1" * 100),
                    schedule("b", payload=b"1" * 101)])


def test_what_only_the_database_finds_too_large(cell, db, ready):
    """Its canonical text is longer: 200, rolled back."""
    value = [1] * 30000     # a byte more per comma in the database
    reply = cell.post(TXN, {"operations": [push(), ack(ready)],
                            "kv": [put("a"), put("b", value)],
                            "timers": [schedule()]})
    rejected(reply, 200, "payload_too_large",
             "kv_value_too_large; transaction rolled back")
    untouched(db)


# Rates

@pytest.mark.cellenv(QUEEN_KV_READ_RATE=1, QUEEN_KV_READ_BURST=1,
                     QUEEN_KV_WRITE_RATE=1, QUEEN_KV_WRITE_BURST=1)
def test_bundles_spend_no_token(cell, db):
    for i in range(20):
        assert txn(cell, kv=[put("k%d" % i)], timers=[schedule()])[
            "success"] is True
        assert txn(cell, kv=[get("k")])["success"] is True
    assert cell.post("/api/v1/kv", [put()]).status == 200
    assert cell.get("/api/v1/kv/n/k").status == 200
    assert 429 in [cell.post("/api/v1/kv", [put()]).status for _ in range(5)]
    # nor does an empty bucket stop them
    assert txn(cell, kv=[put("last")])["success"] is True


@pytest.mark.cellenv(QUEEN_KV_MAX_TENANTS=1, **ONE_REFRESH)
def test_a_tenant_beyond_the_map_is_told_when_to_come_again(cell, db):
    db.rows("insert into queen.kv_quota (tenant) values (%s) returning 1",
            (OTHER_TENANT,))
    wait_until(lambda: tenants(cell) == 1, what="the refresh")
    reply = cell.post(TXN, {"operations": [push()], "kv": [put()]})
    rejected(reply, 503, "kv_unavailable", "kv_too_many_tenants")
    assert reply.headers["Retry-After"] == "1"
    assert (queues(db), values(db)) == ([], {})

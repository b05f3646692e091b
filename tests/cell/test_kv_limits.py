# SPDX-License-Identifier: Apache-2.0
"""Switches, rates, quotas and usage of kv; the sweep of dead rows."""
import re

import pytest

from queenlib import TENANT, wait_until

SWITCHES = "/api/v1/system/kv-timers"
FAST = {"QUEEN_KV_QUOTA_REFRESH_MS": 100, "QUEEN_KV_USAGE_EVERY_MS": 100}


def put(cell, key, value=1, **fields):
    return cell.post("/api/v1/kv", [dict(
        {"op": "put", "ns": "n", "key": key, "value": value,
         "forever": True}, **fields)])


def get(cell, key):
    return cell.get("/api/v1/kv/n/" + key)


def delete(cell, key):
    return cell.post("/api/v1/kv", [{"op": "delete", "ns": "n", "key": key}])


def grant(cell, **caps):
    names = ["tenant"] + list(caps)
    cell.db.rows(
        "insert into queen.kv_quota (%s) values (%s) on conflict (tenant)"
        " do update set %s returning 1" % (
            ", ".join(names), ", ".join(["%s"] * len(names)),
            ", ".join("%s = excluded.%s" % (n, n) for n in names)),
        [TENANT] + list(caps.values()))


def tenants(cell):
    return cell.get(SWITCHES).body["quotaTenants"]


def refused(reply, status, error, reason=None):
    assert (reply.status, reply.body["error"], reply.body["reason"]) == (
        status, error, reason or error)


# Switches

def test_the_switches_are_on_without_rows(cell):
    wait_until(lambda: cell.get(SWITCHES).body["quotaAgeMs"] is not None,
               what="the first refresh")
    body = cell.get(SWITCHES).body
    assert 0 <= body.pop("quotaAgeMs") < 60000
    assert body == {
        "kvEnabled": True, "timersScheduleEnabled": True,
        "timersFireEnabled": True, "quotaTenants": 0, "quotaHot": False}


def test_post_changes_what_it_names_and_mirrors_it(cell):
    body = cell.post(SWITCHES, {"kv": False, "timersFire": False}).body
    assert (body["kvEnabled"], body["timersScheduleEnabled"],
            body["timersFireEnabled"], body["mirrored"]) == (
        False, True, False, True)
    assert cell.db.rows("select key, value ->> 'enabled' from queen.flags"
                        " order by key") == [
        ("kv_enabled", "false"), ("timers_fire_enabled", "false")]
    body = cell.post(SWITCHES, {"timersSchedule": False, "kv": True}).body
    assert (body["kvEnabled"], body["timersScheduleEnabled"],
            body["timersFireEnabled"]) == (True, False, False)
    cell.restart()
    body = cell.get(SWITCHES).body
    assert (body["kvEnabled"], body["timersScheduleEnabled"],
            body["timersFireEnabled"]) == (True, False, False)


@pytest.mark.parametrize("body", [
    "", "{}", "[]", '{"other":true}', '{"kv":1}', '{"kv":"false"}',
    '{"kv":null}', '{"kv":false,"timersFire":0}', '{"kv":false'])
def test_a_switch_is_a_boolean(common, body):
    reply = common.post(SWITCHES, body)
    assert (reply.status, reply.body) == (400, {
        "error": "kv, timersSchedule or timersFire (boolean) is required"})
    assert common.get(SWITCHES).body["kvEnabled"] is True


def test_kv_off_refuses_reads_too(cell):
    put(cell, "a")
    cell.post(SWITCHES, {"kv": False})
    for reply in (put(cell, "a"), get(cell, "a"), delete(cell, "a")):
        refused(reply, 503, "kv_disabled")
        assert int(reply.headers["Retry-After"]) >= 1
    cell.post(SWITCHES, {"kv": True})
    assert get(cell, "a").body["value"] == 1


def test_a_switch_reaches_the_other_process(cells):
    a, b = cells(2)
    a.post(SWITCHES, {"kv": False})
    wait_until(lambda: get(b, "a").status == 503, deadline_s=5,
               what="the hint")


# Rates

@pytest.mark.cellenv(QUEEN_KV_WRITE_RATE=1, QUEEN_KV_WRITE_BURST=3)
def test_over_the_write_rate_is_429_and_reads_go_on(cell):
    replies = [put(cell, "a") for _ in range(8)]
    assert [r.status for r in replies[:3]] == [200] * 3
    late = [r for r in replies if r.status != 200]
    assert late
    for reply in late:
        refused(reply, 429, "rate_limited")
        assert int(reply.headers["Retry-After"]) == 1
    assert get(cell, "a").status == 200
    wait_until(lambda: put(cell, "b").status == 200, what="the next token")


@pytest.mark.cellenv(QUEEN_KV_READ_RATE=1, QUEEN_KV_READ_BURST=2)
def test_over_the_read_rate_is_429_and_counted(cell):
    replies = [get(cell, "a") for _ in range(6)]
    assert [r.status for r in replies[:2]] == [200] * 2
    n = sum(r.status == 429 for r in replies)
    assert n >= 1 and put(cell, "a").status == 200
    text = cell.get("/metrics/prometheus").body.decode()
    assert int(re.search(r'^queen_kv_read_rejected_total'
                         r'\{reason="rate_limited"\} (\d+)$', text,
                         re.M).group(1)) == n


@pytest.mark.cellenv(QUEEN_KV_CELL_RATE=2)
def test_the_cell_has_a_bucket_of_its_own(cell):
    replies = [get(cell, "a") for _ in range(6)]
    assert [r.status for r in replies[:2]] == [200] * 2
    assert 429 in [r.status for r in replies]


@pytest.mark.cellenv(**FAST)
def test_a_quota_row_has_its_own_rate(cell):
    grant(cell, max_writes_per_sec=2)
    wait_until(lambda: tenants(cell) == 1, what="the refresh")
    replies = [put(cell, "a") for _ in range(8)]
    assert [r.status for r in replies[:2]] == [200] * 2
    assert 429 in [r.status for r in replies]


# Grants and occupancy

@pytest.mark.cellenv(QUEEN_KV_REQUIRE_GRANT="true", **FAST)
def test_without_a_grant_only_reads_and_deletes(cell):
    wait_until(lambda: put(cell, "a").status == 403, what="the refresh")
    refused(put(cell, "a"), 403, "feature_gated")
    assert get(cell, "a").status == 200
    assert delete(cell, "a").status == 200
    grant(cell)
    wait_until(lambda: put(cell, "a").status == 200, what="the grant")


@pytest.mark.cellenv(**FAST)
def test_a_disabled_row_denies_writes(cell):
    put(cell, "a")
    grant(cell, enabled=False)
    wait_until(lambda: put(cell, "a").status == 403, what="the refresh")
    refused(put(cell, "a"), 403, "feature_gated")
    assert get(cell, "a").body["value"] == 1
    assert delete(cell, "a").body["results"][0]["applied"] is True


@pytest.mark.cellenv(QUEEN_KV_QUOTA_REFRESH_MS=100,
                     QUEEN_KV_USAGE_EVERY_MS=86400000)
def test_a_full_tenant_is_blocked_until_it_is_measured_low(cell):
    """One process, one measurement: its own charges decide."""
    grant(cell, max_rows=10)
    wait_until(lambda: tenants(cell) == 1, what="the refresh")
    for i in range(10):
        assert put(cell, "k%d" % i).status == 200
    refused(put(cell, "k10"), 403, "kv_quota_exceeded")
    for i in range(2):
        assert delete(cell, "k%d" % i).status == 200
    refused(put(cell, "k0"), 403, "kv_quota_exceeded")
    assert get(cell, "k5").body["found"] is True
    assert cell.get(SWITCHES).body["quotaHot"] is True
    cell.db.rows("select * from queen.kv_usage_step_v1(0, 0, 80, true)")
    wait_until(lambda: put(cell, "k0").status == 200, what="the release")


@pytest.mark.cellenv(QUEEN_KV_QUOTA_REFRESH_MS=100,
                     QUEEN_KV_USAGE_EVERY_MS=86400000)
def test_what_was_rolled_back_is_given_back(cell):
    put(cell, "held")
    grant(cell, max_rows=3)
    wait_until(lambda: tenants(cell) == 1, what="the refresh")
    for _ in range(10):
        reply = put(cell, "held", expect=0, required=True)
        assert (reply.status, reply.body["ok"]) == (200, False)
    assert put(cell, "a").status == 200


@pytest.mark.cellenv(**FAST)
def test_bytes_have_a_cap_too(cell):
    grant(cell, max_bytes=1000)
    wait_until(lambda: tenants(cell) == 1, what="the refresh")
    refused(put(cell, "a", "x" * 1001), 403, "kv_quota_exceeded")


@pytest.mark.cellenv(QUEEN_KV_MAX_TENANTS=1, **FAST)
def test_a_tenant_beyond_the_map_is_refused(cell):
    cell.db.rows("insert into queen.kv_quota (tenant) values"
                 " ('00000000-0000-0000-0000-0000000000ff') returning 1")
    wait_until(lambda: tenants(cell) == 1, what="the refresh")
    refused(get(cell, "a"), 503, "kv_unavailable", "kv_too_many_tenants")


# Usage

def usage(db):
    return db.rows("select kv_rows, kv_bytes, timer_rows, sampled"
                   " from queen.kv_usage where tenant = %s", (TENANT,))


@pytest.mark.cellenv(QUEEN_SWEEPER="false")
def test_usage_counts_live_rows_and_stored_bytes(cell):
    for i in range(5):
        put(cell, "k%d" % i, {"n": i})
    cell.db.rows("update queen.kv set expires_at = now() - interval '1 s'"
                 " where key = 'k4' returning 1")
    bytes_n = cell.db.value("select sum(pg_column_size(value)) from queen.kv"
                            " where key <> 'k4'")
    step = "select * from queen.kv_usage_step_v1(60000, 60000, 80, false)"
    assert cell.db.rows(step) == [(True, 1)]
    assert usage(cell.db) == [(4, bytes_n, 0, False)]
    # not yet due; hot is due earlier
    assert cell.db.rows(step) == [(False, 0)]
    assert cell.db.rows("select * from queen.kv_usage_step_v1(60000, 0, 80,"
                        " false)") == [(False, 0)]
    grant(cell, max_rows=5)
    assert cell.db.rows("select * from queen.kv_usage_step_v1(60000, 0, 80,"
                        " false)") == [(True, 1)]
    assert cell.db.rows("select * from queen.kv_usage_step_v1(60000, 0, 81,"
                        " false)") == [(False, 0)]


def test_many_rows_are_sampled(db):
    db.rows("insert into queen.kv (tenant, namespace, key, value, version,"
            " created_at, updated_at) select %s, 'n', 'k' || i, '1', i, now(),"
            " now() from generate_series(1, 4000) i returning 1", (TENANT,))
    want = 8 * db.value("select count(*) from queen.kv where shard % 8 = 0")
    assert db.rows("select * from queen.kv_usage_step_v1(0, 0, 80, false,"
                   " 3999)") == [(True, 1)]
    (rows_n, bytes_n, _, sampled), = usage(db)
    assert (rows_n, sampled) == (want, True) and 3000 < rows_n < 5000
    assert bytes_n == rows_n * db.value(
        "select pg_column_size(value) from queen.kv limit 1")
    assert db.rows("select * from queen.kv_usage_step_v1(0, 0, 80, false,"
                   " 4000)") == [(True, 1)]
    assert usage(db)[0][0] == 4000


def test_one_that_is_gone_loses_its_row_unless_granted(db):
    db.rows("insert into queen.kv (tenant, namespace, key, value, version,"
            " created_at, updated_at) values (%s, 'n', 'k', '1', 1, now(),"
            " now()) returning 1", (TENANT,))
    step = "select * from queen.kv_usage_step_v1(0, 0, 80, false)"
    assert db.rows(step) == [(True, 1)]
    db.rows("delete from queen.kv returning 1")
    assert db.rows(step) == [(True, 0)] and usage(db) == []
    db.rows("insert into queen.kv_quota (tenant) values (%s) returning 1",
            (TENANT,))
    assert db.rows(step) == [(True, 1)]
    assert usage(db) == [(0, 0, 0, False)]


# The sweep

@pytest.mark.cellenv(QUEEN_KV_EXPIRE_EVERY_MS=50)
def test_dead_rows_go_and_rewritten_ones_stay(cell):
    for i in range(20):
        put(cell, "k%d" % i, forever=False, ttlSeconds=1)
    put(cell, "k7", "again")
    wait_until(lambda: cell.db.value("select count(*) from queen.kv") == 1,
               what="the sweep")
    assert get(cell, "k7").body["value"] == "again"


@pytest.mark.cellenv(QUEEN_SWEEPER="false", QUEEN_KV_EXPIRE_EVERY_MS=50)
def test_without_a_sweeper_reads_are_still_right(cell):
    put(cell, "a", forever=False, ttlSeconds=1)
    wait_until(lambda: get(cell, "a").body["found"] is False, what="the end")
    assert cell.db.value("select count(*) from queen.kv") == 1


def test_two_processes_sweep_without_error(cells):
    a, b = cells(2, QUEEN_KV_EXPIRE_EVERY_MS=20, QUEEN_KV_EXPIRE_BATCH=50,
                 **FAST)
    a.db.rows("insert into queen.kv (tenant, namespace, key, value, version,"
              " expires_at, created_at, updated_at) select %s, 'n', 'k' || i,"
              " '1', i, now(), now(), now() from generate_series(1, 3000) i"
              " returning 1", (TENANT,))
    wait_until(lambda: a.db.value("select count(*) from queen.kv") == 0,
               what="the sweep")
    for cell in (a, b):
        text = cell.get("/metrics/prometheus").body.decode()
        assert re.search(r"^queen_db_errors_total 0$", text, re.M)

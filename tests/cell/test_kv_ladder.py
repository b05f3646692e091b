# SPDX-License-Identifier: Apache-2.0
"""Every standalone KV route climbs the same ladder: shed, switch, rate,
occupancy, connection; and what is left undone under pressure."""
import contextlib
import os
import re
import threading

import pytest

from kvkit import Kv, busy_lane, held, kv  # noqa: F401
from queenlib import OTHER_TENANT, ROOT, TENANT, metric, wait_until
from test_kv_limits import SWITCHES, get, grant, put, refused, tenants
from test_timer import cancel, op

# (method, pattern, path, body, does it write)
ROUTES = [
    ("POST", "/kv", "/api/v1/kv", [{"op": "get", "ns": "n", "key": "a"}],
     False),
    ("POST", "/kv", "/api/v1/kv", [{"op": "getMany", "ns": "n",
                                    "keys": ["a"]}], False),
    ("POST", "/kv", "/api/v1/kv", [{"op": "getPrefix", "ns": "n",
                                    "prefix": "a"}], False),
    ("POST", "/kv", "/api/v1/kv", [{"op": "put", "ns": "n", "key": "a",
                                    "value": 1, "forever": True}], True),
    ("POST", "/kv", "/api/v1/kv", [{"op": "delete", "ns": "n", "key": "a"}],
     True),
    ("POST", "/kv", "/api/v1/kv", [{"op": "incr", "ns": "n", "key": "c",
                                    "delta": 1, "forever": True}], True),
    ("GET", "/kv/:ns/*key", "/api/v1/kv/n/a", None, False),
    ("PUT", "/kv/:ns/*key", "/api/v1/kv/n/a", {"value": 1, "forever": True},
     True),
    ("DELETE", "/kv/:ns/*key", "/api/v1/kv/n/a", None, True),
    ("GET", "/kv/namespaces", "/api/v1/resources/kv/namespaces", None, False),
    ("POST", "/kv/list", "/api/v1/resources/kv/list", {"ns": "n"}, False),
]
READS = [r for r in ROUTES if not r[4]]


def call(cell, route, **kw):
    return cell.request(route[0], route[2], route[3], **kw)


def test_the_walk_has_every_route():
    with open(os.path.join(ROOT, "bin", "queend", "route.c")) as f:
        table = re.findall(r'HSRV_(\w+), \w+ "(/[^"]*)", kv_\w+,', f.read())
    assert len(table) == 6
    assert set(table) == {r[:2] for r in ROUTES}


def test_the_walk_has_the_only_way_to_the_rows():
    """No route calls the pool by itself."""
    folder = os.path.join(ROOT, "bin", "queend")
    for name in os.listdir(folder):
        if not re.match(r"kv(_.*)?\.c$", name):
            continue
        with open(os.path.join(folder, name)) as f:
            calls = re.findall(r"\bpgpool_(?:call|bundle|within)\(",
                               f.read())
        # the sweep is no route
        assert len(calls) == (name in ("kv_call.c", "kv_sweep.c")), name


def test_off_is_503_on_every_route(cell):
    cell.post(SWITCHES, {"kv": False})
    for route in ROUTES:
        reply = call(cell, route)
        refused(reply, 503, "kv_disabled")
        assert set(reply.body) == {"error", "reason"}
        assert int(reply.headers["Retry-After"]) >= 1
    assert metric(cell, 'queen_kv_read_rejected_total{reason="disabled"}'
                  ) == len(READS)
    cell.post(SWITCHES, {"kv": True})
    for route in ROUTES:
        assert call(cell, route).status == 200, route


# a second is nothing to a slow machine: tokens come one an hour
@pytest.mark.cellenv(QUEEN_KV_QUOTA_REFRESH_MS=100)
def test_over_the_read_rate_is_429_on_every_read(cell):
    grant(cell, max_reads_per_sec=0)
    wait_until(lambda: tenants(cell) == 1, what="the refresh")
    for route in READS:
        reply = call(cell, route)
        refused(reply, 429, "rate_limited")
        assert set(reply.body) == {"error", "reason"}
        assert int(reply.headers["Retry-After"]) >= 1
    assert metric(cell, 'queen_kv_read_rejected_total'
                  '{reason="rate_limited"}') == len(READS)
    for route in ROUTES:
        if route[4]:
            assert call(cell, route).status == 200, route


@pytest.mark.cellenv(QUEEN_KV_QUOTA_REFRESH_MS=100)
def test_over_the_write_rate_is_429_on_every_write(cell):
    grant(cell, max_writes_per_sec=0)
    wait_until(lambda: tenants(cell) == 1, what="the refresh")
    for route in ROUTES:
        if route[4]:
            refused(call(cell, route), 429, "rate_limited")
        else:
            assert call(cell, route).status == 200, route
    reply = cell.post("/api/v1/timers", {"operations": [op("k")]})
    assert (reply.status, reply.body["error"]) == (429, "rate_limited")
    assert int(reply.headers["Retry-After"]) >= 1
    # riders spend no token
    reply = cell.post("/api/v1/transaction", {"kv": ROUTES[3][3],
                                              "timers": [op("k")]})
    assert (reply.status, reply.body["success"]) == (200, True)


@pytest.mark.cellenv(DB_POOL_SIZE=4, QUEEN_KV_STANDALONE_SHED_AFTER=1000)
def test_no_connection_is_503_on_every_route_and_counted(cell):
    with busy_lane(cell):
        replies = []
        threads = [threading.Thread(target=lambda r=r: replies.append(
            call(cell, r))) for r in ROUTES]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        assert len(replies) == len(ROUTES)
        for reply in replies:
            refused(reply, 503, "kv_unavailable", "kv_pool_exhausted")
            assert reply.headers["Retry-After"] == "1"
    assert metric(cell, 'queen_kv_read_rejected_total{reason="pool"}'
                  ) == len(READS)


# Standalone shed

@pytest.mark.cellenv(DB_POOL_SIZE=4, QUEEN_KV_STANDALONE_SHED_AFTER=2)
def test_writes_are_shed_and_come_back(cell):
    bundle = []
    with busy_lane(cell):
        for _ in range(2):
            refused(get(cell, "a"), 503, "kv_unavailable",
                    "kv_pool_exhausted")
        for route in ROUTES:
            if route[4]:
                reply = call(cell, route)
                refused(reply, 503, "kv_unavailable", "kv_standalone_paused")
                assert reply.headers["Retry-After"] == "1"
        # a read still tries, and a bundle waits for its turn
        refused(get(cell, "a"), 503, "kv_unavailable", "kv_pool_exhausted")
        rider = threading.Thread(target=lambda: bundle.append(cell.post(
            "/api/v1/transaction", {"kv": [dict(
                ROUTES[3][3][0], key="rider")]})))
        rider.start()
    rider.join()
    assert (bundle[0].status, bundle[0].body["success"]) == (200, True)
    assert get(cell, "rider").body["found"] is True
    assert put(cell, "a").status == 200


@pytest.mark.cellenv(DB_POOL_SIZE=4, QUEEN_KV_STANDALONE_SHED_AFTER=1)
def test_shed_ends_without_any_read(cell, pg):
    """Nobody calls: the process finds out by itself."""
    pg.stop("immediate")
    wait_until(lambda: put(cell, "a").body.get("reason") ==
               "kv_standalone_paused", what="the shed")
    pg.start()
    wait_until(lambda: put(cell, "a").status == 200, what="the return")


# Unknown outcomes, occupancy

@pytest.mark.cellenv(QUEEN_STMT_TIMEOUT_MS=300, QUEEN_KV_QUOTA_REFRESH_MS=100,
                     QUEEN_KV_USAGE_EVERY_MS=86400000)
def test_an_unknown_outcome_is_not_given_back(cell):
    put(cell, "a")
    grant(cell, max_rows=2)
    wait_until(lambda: tenants(cell) == 1, what="the refresh")
    with held(cell.db):
        refused(put(cell, "a", 2), 503, "kv_unavailable", "kv_timeout")
    assert put(cell, "b").status == 200
    refused(put(cell, "c"), 403, "kv_quota_exceeded")


@pytest.mark.cellenv(QUEEN_KV_QUOTA_REFRESH_MS=100,
                     QUEEN_KV_USAGE_EVERY_MS=86400000)
def test_a_fault_of_the_call_is_given_back(cell):
    """A counter that grew too long: 413, and nothing was stored."""
    grant(cell, max_rows=2)
    wait_until(lambda: tenants(cell) == 1, what="the refresh")
    long = '[{"op":"incr","ns":"n","key":"c","forever":true,"delta":1e70000}]'
    for _ in range(5):
        assert cell.post("/api/v1/kv", long).status == 413
    assert put(cell, "a").status == 200 and put(cell, "b").status == 200
    refused(put(cell, "c"), 403, "kv_quota_exceeded")


@pytest.mark.cellenv(QUEEN_KV_QUOTA_REFRESH_MS=100,
                     QUEEN_KV_USAGE_EVERY_MS=86400000,
                     QUEEN_KV_QUOTA_RELEASE_PERCENT=50)
def test_release_at_the_percentage(cell):
    grant(cell, max_rows=4)
    wait_until(lambda: tenants(cell) == 1, what="the refresh")
    for i in range(4):
        assert put(cell, "k%d" % i).status == 200
    refused(put(cell, "k4"), 403, "kv_quota_exceeded")

    def measured(rows_n):
        """As the rollup would find it; the process has read it."""
        cell.db.rows("insert into queen.kv_usage (tenant, computed_at,"
                     " kv_rows, kv_bytes, timer_rows, timer_bytes) values"
                     " (%s, clock_timestamp(), %s, 0, 0, 0) on conflict"
                     " (tenant) do update set kv_rows = excluded.kv_rows,"
                     " computed_at = excluded.computed_at returning 1",
                     (TENANT, rows_n))
        ages = [10 ** 9]

        def refreshed_twice():
            age = cell.get(SWITCHES).body["quotaAgeMs"]
            if age < ages[-1]:
                ages.append(age)
            else:
                ages[-1] = age
            return len(ages) > 3
        wait_until(refreshed_twice, what="two refreshes")

    measured(3)
    refused(put(cell, "k4"), 403, "kv_quota_exceeded")
    measured(2)
    assert put(cell, "k4").status == 200


# Timers

def schedule(cell, *ops):
    return cell.post("/api/v1/timers", {"operations": list(ops)})


@pytest.mark.cellenv(QUEEN_KV_QUOTA_REFRESH_MS=100,
                     QUEEN_KV_USAGE_EVERY_MS=86400000)
def test_timers_have_a_quota(cell):
    grant(cell, max_timers=2)
    wait_until(lambda: tenants(cell) == 1, what="the refresh")
    refused(schedule(cell, op("a"), op("b"), op("c")), 403,
            "timers_quota_exceeded")
    assert cell.db.value("select count(*) from queen.timers") == 0
    # one call beyond the cap blocks until a measurement
    refused(schedule(cell, op("a")), 403, "timers_quota_exceeded")
    reply = cell.post("/api/v1/transaction", {"timers": [op("a")]})
    assert (reply.status, reply.body["reason"]) == (
        403, "timers_quota_exceeded")
    assert schedule(cell, cancel("a")).status == 200
    assert put(cell, "a").status == 200
    cell.db.rows("select * from queen.kv_usage_step_v1(0, 0, 80, true)")
    wait_until(lambda: schedule(cell, op("a"), op("b")).status == 200,
               what="the release")
    assert metric(cell, 'queen_timers_schedule_rejected_total'
                  '{reason="quota"}') >= 3


@pytest.mark.cellenv(QUEEN_KV_QUOTA_REFRESH_MS=100)
def test_the_horizon_of_a_quota_row(cell):
    grant(cell, max_timer_horizon_s=60)
    wait_until(lambda: tenants(cell) == 1, what="the refresh")
    assert schedule(cell, op("a", 60000)).status == 200
    refused(schedule(cell, op("b", 60001)), 403, "timer_horizon_exceeded",
            "timers_horizon")
    assert metric(cell, 'queen_timers_schedule_rejected_total'
                  '{reason="horizon"}') == 1


def test_paused_schedules(cell):
    assert schedule(cell, op("a")).status == 200
    cell.post(SWITCHES, {"timersSchedule": False})
    reply = schedule(cell, op("b"))
    refused(reply, 503, "timers_disabled")
    assert int(reply.headers["Retry-After"]) >= 1
    reply = cell.post("/api/v1/transaction", {"timers": [op("b")]})
    assert (reply.status, reply.body["reason"]) == (403, "timers_disabled")
    assert "Retry-After" not in reply.headers
    # what was promised stays, and can be taken back
    assert put(cell, "a").status == 200
    assert schedule(cell, cancel("a")).body["results"][0]["status"] == \
        "cancelled"
    assert metric(cell, 'queen_timers_schedule_rejected_total'
                  '{reason="disabled"}') == 2


# Grants

@pytest.mark.cellenv(QUEEN_TENANCY_HEADER="true", QUEEN_KV_TRUSTED_PROXY="1",
                     QUEEN_KV_QUOTA_REFRESH_MS=100)
def test_with_tenancy_a_grant_is_wanted_unless_told(cell):
    """The default tenant is exempt, until it is asked of everybody."""
    head = {"x-queen-tenant": OTHER_TENANT}

    def write(headers=head):
        return call(cell, ROUTES[3], headers=headers)

    wait_until(lambda: write().status == 403, what="the refresh")
    refused(write(), 403, "feature_gated")
    assert call(cell, ROUTES[0], headers=head).status == 200
    assert write({"x-queen-tenant": TENANT}).status == write({}).status == 200
    cell.db.rows("insert into queen.kv_quota (tenant) values (%s)"
                 " returning 1", (OTHER_TENANT,))
    wait_until(lambda: write().status == 200, what="the grant")
    cell.db.rows("delete from queen.kv_quota returning 1")
    cell.extra["QUEEN_KV_REQUIRE_GRANT"] = "false"
    cell.restart()
    assert write().status == 200
    cell.extra["QUEEN_KV_REQUIRE_GRANT"] = "true"
    cell.restart()
    wait_until(lambda: write({}).status == 403, what="the refresh")
    refused(write({}), 403, "feature_gated")


# Pressure

@contextlib.contextmanager
def waiting(cell, lease, n):
    """One call holds the only connection of the ack lane, n - 1 wait."""
    threads = [threading.Thread(target=cell.post, args=(
        "/api/v1/lease/%s/extend" % lease, {"seconds": 60}))
        for _ in range(n)]
    with held(cell.db, "queen.consumers"):
        for t in threads:
            t.start()
        yield
    for t in threads:
        t.join()


@pytest.mark.cellenv(DB_POOL_SIZE=4, QUEEN_KV_EXPIRE_EVERY_MS=20,
                     QUEEN_KV_USAGE_EVERY_MS=100)
def test_pruning_is_left_first_then_the_measurement(cell):
    cell.push("q", [1])
    lease = cell.pop("q")[0]["leaseId"]

    def said(what):
        return cell.log_text().count("  sweep " + what)

    def measured():
        return cell.db.value("select max(computed_at) from queen.kv_usage")

    def dead_row(key):
        cell.db.rows("insert into queen.kv (tenant, namespace, key, value,"
                     " version, expires_at, created_at, updated_at) values"
                     " (%s, 'n', %s, '1', 1, now(), now(), now())"
                     " returning 1", (TENANT, key))

    def rows_n():
        return cell.db.value("select count(*) from queen.kv")

    def measured_twice():
        first = measured()
        second = wait_until(lambda: measured() if measured() != first
                            else None, what="a measurement")
        wait_until(lambda: measured() != second, what="another")

    # somebody is there to be measured
    grant(cell)
    with waiting(cell, lease, 6):       # 5 wait for 4 connections
        wait_until(lambda: said("suspended"), what="the pressure")
        dead_row("a")
        measured_twice()
        assert rows_n() == 1
        assert get(cell, "a").body["found"] is False
    wait_until(lambda: rows_n() == 0, what="the sweep")
    before = wait_until(lambda: said("suspended") == said("resumed")
                        and said("resumed"), what="a line for each")
    with waiting(cell, lease, 18):      # 17 are more than 4 each
        wait_until(lambda: said("suspended") > before, what="the pressure")
        dead_row("b")
        wait_until(lambda: cell.db.value(
            "select clock_timestamp() - max(computed_at) > interval '1 s'"
            " from queen.kv_usage"), what="a second without measurement")
        assert rows_n() == 1
        assert put(cell, "c").status == 200
    wait_until(lambda: rows_n() == 1
               and said("resumed") == said("suspended"), what="the sweep")
    measured_twice()

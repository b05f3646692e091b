# SPDX-License-Identifier: Apache-2.0
"""
What `queenctl schema grant` gives is enough: a cell runs as a role that owns
nothing, and every route and every job works; no statement is refused.
"""
import base64
import re

import pytest

from ctlkit import home_of
from lakekit import Objects
from queenlib import OTHER_TENANT, TENANT, wait_until
from test_badinput import bodies, served

API = "/api/v1"
FAST = dict(QUEEN_KV_EXPIRE_EVERY_MS=50, QUEEN_KV_USAGE_EVERY_MS=100,
            QUEEN_KV_QUOTA_REFRESH_MS=100, RETENTION_INTERVAL=100,
            METRICS_FLUSH_MS=1000, QUEEN_CACHE_REFRESH_INTERVAL_MS=200,
            PARTITION_CLEANUP_DAYS=1)


@pytest.fixture
def granted(db, folder):
    """The name of a role that has been granted what it needs."""
    role = db.role("worker")
    ctl = home_of(folder)
    env = {"PG_HOST": "127.0.0.1", "PG_PORT": str(db.server.port.number),
           "PG_USER": "queen", "PG_DATABASE": db.name}
    assert ctl.run("schema", "grant", role, **env) == \
        'granted to "%s"\n' % role
    assert not db.value("select rolsuper or rolcreatedb or rolcreaterole"
                        " from pg_roles where rolname = %s", (role,))
    yield role
    db.rows("drop owned by %s cascade" % role)


def start(new_cell, role, **env):
    return new_cell(PG_USER=role, QUEEN_APPLY_SCHEMA="false",
                    **{**FAST, **env}).start()


def healthy(cell):
    """Nothing was refused and nothing was warned of."""
    log = cell.log_text()
    assert "permission denied" not in log, log
    assert not re.search(r" (WARN|ERROR) ", log), log
    text = cell.get("/metrics/prometheus").body.decode()
    assert re.search(r"^queen_db_errors_total 0$", text, re.M)


def ok(reply, status=200):
    assert reply.status == status, reply
    return reply.body


def test_every_route_works(new_cell, db, granted):
    cell = start(new_cell, granted)
    made = 0
    for method, pattern in served():
        path = re.sub(r"[:*]\w+", "x", pattern)
        body = None
        if method == "POST" and pattern in bodies():
            path, body = bodies()[pattern]
        elif method == "PUT":
            body = {"value": 1, "forever": True}
        elif method == "DELETE" and pattern == API + "/dlq":
            path += "?queue=q"
        elif pattern == API + "/pop":
            path += "?namespace=n"
        reply = cell.request(method, path, body)
        assert reply.status < 500, (method, path, reply)
        made += 1
    assert made > 60
    healthy(cell)


def test_rows_timers_and_bundles_work(new_cell, db, granted):
    cell = start(new_cell, granted)
    db.rows("insert into queen.kv_quota (tenant, max_rows) values (%s, 1000)",
            (TENANT,))
    ops = [{"op": "put", "ns": "n", "key": "a", "value": 1, "forever": True},
           {"op": "putIfAbsent", "ns": "n", "key": "b", "value": 1,
            "ttlSeconds": 1},
           {"op": "incr", "ns": "n", "key": "c", "delta": 1, "forever": True},
           {"op": "delete", "ns": "n", "key": "d"},
           {"op": "getMany", "ns": "n", "keys": ["a"]},
           {"op": "getPrefix", "ns": "n", "prefix": "a"}]
    assert [r.get("applied") for r in ok(cell.post(
        API + "/kv", ops))["results"]] == [True] * 3 + [False] + [None] * 2
    payload = base64.b64encode(b"1").decode()
    assert [r["status"] for r in ok(cell.post(API + "/timers", [
        {"op": "schedule", "queue": "fired", "timerKey": "now", "delayMs": 0,
         "txn": "t", "payload": payload},
        {"op": "schedule", "queue": "fired", "timerKey": "later",
         "delayMs": 3600000, "txn": "t2", "payload": payload}]))[
             "results"]] == ["scheduled"] * 2
    assert [m["transactionId"] for m in wait_until(
        lambda: cell.pop("fired", subscriptionMode="all"))] == ["t"]
    cell.push("q", [1])
    m, = cell.pop("q", subscriptionMode="all")
    assert ok(cell.post(API + "/transaction", {
        "operations": [{"type": "ack", "partitionId": m["partitionId"],
                        "transactionId": m["transactionId"],
                        "leaseId": m["leaseId"]},
                       {"type": "push", "queue": "out", "payload": 2}],
        "kv": [dict(ops[1], key="done", required=True)],
        "timers": [{"op": "cancel", "queue": "fired", "timerKey": "later"}],
        }))["success"] is True
    # the jobs: dead rows go, usage is measured, quotas are read
    wait_until(lambda: db.rows("select key from queen.kv order by 1") ==
               [("a",), ("c",)])
    wait_until(lambda: db.rows("select kv_rows, timer_rows from"
                               " queen.kv_usage") == [(2, 0)])
    wait_until(lambda: ok(cell.get(API + "/system/kv-timers"))[
        "quotaTenants"] == 1)
    wait_until(lambda: db.value("select count(*) from queen.claims where"
                                " runs > 1") > 0)
    healthy(cell)


def test_a_poison_timer_is_filed(new_cell, db, granted):
    """The rarer ways of a fire: one by one, put back, a dead letter."""
    cell = start(new_cell, granted, QUEEN_SWEEPER_BACKOFF_MIN_MS=1,
                 QUEEN_SWEEPER_BACKOFF_MAX_MS=2)
    db.psql("-c", """
        create function refuse() returns trigger language plpgsql as $$
        begin raise exception 'poisoned' using errcode = '22000'; end $$;
        create trigger refuse before insert on queen.segments
        for each row execute function refuse()""")
    ok(cell.post(API + "/timers", [{
        "op": "schedule", "queue": "q", "timerKey": "k", "delayMs": 0,
        "txn": "t", "payload": base64.b64encode(b"1").decode()}]))
    wait_until(lambda: db.rows("select group_name, error like '%poisoned%'"
                               " from queen.dead_letters")
               == [("__timer__", True)])
    assert "permission denied" not in cell.log_text()


def test_sealed_queues_and_a_purge_work(new_cell, db, granted):
    cell = start(new_cell, granted, QUEEN_ENCRYPTION_KEY="11" * 32,
                 QUEEN_TENANCY_HEADER="true", QUEEN_KV_TRUSTED_PROXY="true",
                 QUEEN_KV_REQUIRE_GRANT="false")
    mine = {"x-queen-tenant": OTHER_TENANT}
    ok(cell.post(API + "/configure", {"queue": "q", "options": {
        "encryptionEnabled": True}}, headers=mine))
    cell.push("q", ["secret"], headers=mine)
    assert [m["data"] for m in cell.pop("q", subscriptionMode="all",
                                        headers=mine)] == ["secret"]
    ok(cell.post(API + "/kv", [{"op": "put", "ns": "n", "key": "k",
                                "value": 1, "forever": True}], headers=mine))
    wait_until(lambda: ok(cell.delete(API + "/resources/tenant",
                                      headers=mine))["done"])
    assert db.value("select count(*) from queen.kv") == 0
    assert db.value("select count(*) from queen.queues") == 0
    healthy(cell)


def test_who_was_granted_nothing_is_told(new_cell, db):
    """Not a cell that half works: it does not start, and says why."""
    cell = new_cell(PG_USER=db.role("nobody"),
                    QUEEN_APPLY_SCHEMA="false").start(wait=False)
    assert cell.wait_exit(90) != 0
    assert "permission denied" in cell.log_text()


def test_a_sink_of_a_bucket_works(log, bucket, new_lake, granted):
    """Its presence, windows, checkpoints and hand-over; and the stats of other
    sessions, without which safeTime would be degraded while the owner writes."""
    node = new_lake(bucket, QUEEN_S3_QUEUES="*", QUEEN_S3_ALIGN="none",
                    QUEEN_S3_MAX_WINDOW_MS="100", PG_USER=granted,
                    QUEEN_S3_CHECKPOINT_EVERY="1").start()
    writer = log.db.connect(autocommit=False)
    with writer.cursor() as cur:
        cur.execute("insert into queen.flags (key, value) values ('x', '1')")
    log.push("q", "a", ["1", "2"])
    block = node.await_queue("q", state="filling")
    assert block["safeTimeDegraded"] is False, block
    writer.rollback()
    log.await_k("default", "q", 1, node)
    assert Objects(bucket, "queen", "q").records() == log.records["q"]
    assert node.term() == 0
    assert log.row("default", "q", "lease") is None
    text = node.log_text()
    assert "permission denied" not in text, text
    assert not re.search(r" (WARN|ERROR) ", text), text

# SPDX-License-Identifier: Apache-2.0
"""
Keys and values at the edges: what is ignored, what is refused in which order,
who holds a row, what settings narrow, what is counted and never logged.
"""

import pytest

from queenlib import metric, rows, wait_until
from sqlkit import at
from test_sql_kv import Kv as Sql

KV = "/api/v1/kv"
SWITCHES = "/api/v1/system/kv-timers"


def put(key, value=1, **fields):
    life = {} if "ttlSeconds" in fields else {"forever": True}
    return dict({"op": "put", "ns": "n", "key": key, "value": value}, **life,
                **fields)


def get(key):
    return {"op": "get", "ns": "n", "key": key}


def call(cell, *ops, status=200):
    reply = cell.post(KV, list(ops))
    assert reply.status == status, reply
    return reply.body["results"] if status == 200 else reply.body


def reason(cell, *ops, status=400):
    body = call(cell, *ops, status=status)
    return body["error"], body.get("reason")


# What is ignored

def test_what_an_operation_does_not_know_is_ignored(cell):
    assert call(cell, put("a", more={"x": [1]}, keys=5, delta="x"))[0][
        "applied"] is True
    assert call(cell, dict(get("a"), expect="x", value=2))[0]["value"] == 1
    for word in ("yes", 1, 0, None, "true", [], {}):
        assert reason(cell, dict(put("a"), forever=word)) == (
            "kv_bad_request", "kv_expiry_not_specified"), word
        assert call(cell, put("b", ttlSeconds=60, forever=word))[0][
            "applied"] is True


def test_conditional_headers_mean_nothing(cell):
    """The ETag is for people; conditions are `expect`."""
    version = call(cell, put("a"))[0]["version"]
    for name in ("If-None-Match", "If-Match"):
        for tag in ('"%d"' % version, "*", '"0"'):
            got = cell.get(KV + "/n/a", headers={name: tag})
            assert (got.status, got.body["value"]) == (200, 1)
            assert got.headers["ETag"] == '"%d"' % version
    done = cell.request("PUT", KV + "/n/a", {"value": 2, "forever": True},
                        headers={"If-Match": '"0"'})
    assert done.body["applied"] is True


def test_what_is_not_served(cell):
    """Locks are made of rows; there is no route and no operation for them."""
    for path in ("/api/v1/locks", KV + "/n", KV):
        assert cell.get(path).status == 404, path
    assert cell.post("/api/v1/locks", [{"op": "acquire", "name": "x"}]
                     ).status == 404
    for op in ("check", "merge", "deletePrefix", "PUT", "getmany", ""):
        assert reason(cell, dict(get("a"), op=op)) == (
            "kv_bad_request", "kv_unknown_op")


def test_a_key_of_nothing(cell):
    for path in (KV + "/n/", KV + "//a", KV + "/N/a"):
        reply = cell.get(path)
        assert reply.status in (400, 404), (path, reply)
    prefix = {"op": "getPrefix", "ns": "n", "prefix": "p" * 513}
    assert reason(cell, prefix, status=413) == (
        "payload_too_large", "kv_key_too_large")


# Budget

@pytest.mark.cellenv(QUEEN_KV_MAX_READ_BYTES=100)
def test_a_get_always_comes_and_spends(cell):
    """Phase 0 reads its row with nothing left; the lists get what remains."""
    call(cell, put("a", "x" * 150), put("b", "y" * 150), put("c", 1))
    got = call(cell, get("a"), get("b"),
               {"op": "getMany", "ns": "n", "keys": ["c", "nope"]},
               {"op": "getPrefix", "ns": "n", "prefix": "c"})
    assert [len(r["value"]) for r in got[:2]] == [150, 150]
    assert (got[2]["rows"], got[2]["missing"], got[2]["truncated"]) == (
        [], ["nope"], True)
    assert (got[3]["rows"], got[3]["truncated"]) == ([], True)
    got = call(cell, {"op": "getMany", "ns": "n", "keys": ["a", "b", "c"]})
    assert [r["key"] for r in got[0]["rows"]] == ["a"]


# Settings

@pytest.mark.cellenv(QUEEN_KV_MAX_OPS_PER_CALL=3, QUEEN_KV_MAX_KEYS_PER_CALL=4,
                     QUEEN_KV_MAX_VALUE_BYTES=10, QUEEN_KV_MAX_KEY_BYTES=5,
                     QUEEN_KV_PREFIX_LIMIT=2)
def test_limits_are_settings(cell):
    assert reason(cell, *[get("a")] * 4) == (
        "kv_bad_request", "kv_too_many_ops")
    assert reason(cell, {"op": "getMany", "ns": "n", "keys": list("abcde")}
                  ) == ("kv_bad_request", "kv_too_many_keys")
    assert reason(cell, put("a", "x" * 9), status=413) == (
        "payload_too_large", "kv_value_too_large")
    assert reason(cell, put("a" * 6), status=413) == (
        "payload_too_large", "kv_key_too_large")
    call(cell, put("aaaaa", "x" * 8), put("b"), put("c"))
    page, = call(cell, {"op": "getPrefix", "ns": "n", "prefix": "a",
                        "limit": 1000})
    assert len(page["rows"]) == 1
    # two pages of two keys are four
    assert len(call(cell, *[{"op": "getPrefix", "ns": "n", "prefix": "a",
                             "limit": 9}] * 2)) == 2


# The order of what is wrong

@pytest.mark.cellenv(QUEEN_KV_WRITE_RATE=1, QUEEN_KV_WRITE_BURST=1,
                     QUEEN_KV_QUOTA_REFRESH_MS=100,
                     QUEEN_KV_USAGE_EVERY_MS=86400000)
def test_faults_answer_in_their_order(cell, db):
    """JSON, shape, operations, keys, bytes, switch, grant, rate, quota."""
    big = put("big", "x" * 65536)
    many = {"op": "getMany", "ns": "n", "keys": ["k%d" % i
                                                 for i in range(1025)]}
    bad = {"op": "no"}
    assert cell.post(KV, "[{]").body["reason"] == "kv_bad_body"
    assert reason(cell, *[bad] * 257)[1] == "kv_too_many_ops"
    assert reason(cell, bad, many, big)[1] == "kv_unknown_op"
    assert reason(cell, many, big)[1] == "kv_too_many_keys"
    cell.post(SWITCHES, {"kv": False})
    assert reason(cell, big, status=413)[1] == "kv_value_too_large"
    assert reason(cell, put("a"), status=503)[1] == "kv_disabled"
    cell.post(SWITCHES, {"kv": True})
    db.rows("insert into queen.kv_quota (tenant, enabled, max_rows)"
            " values ('00000000-0000-0000-0000-000000000001', false, 0)")
    wait_until(lambda: cell.get(SWITCHES).body["quotaTenants"] == 1)
    assert reason(cell, put("a"), status=403)[0] == "feature_gated"
    db.rows("update queen.kv_quota set enabled = true, updated_at = now()")
    wait_until(lambda: cell.post(KV, [put("a")]).body["error"]
               != "feature_gated")
    # over its rate a client hears 429, though it is full as well
    replies = [cell.post(KV, [put("a")]) for _ in range(5)]
    assert {r.status for r in replies} <= {403, 429}
    assert 429 in {r.status for r in replies}
    for reply in replies:
        assert reply.body["error"] in ("kv_quota_exceeded", "rate_limited")
        assert (reply.status == 429) == (
            reply.body["error"] == "rate_limited")
    # a delete is a write for the rate, and never too much for the quota
    statuses = {cell.request("DELETE", KV + "/n/a").status for _ in range(5)}
    assert statuses <= {200, 429} and 429 in statuses


def test_an_empty_call_needs_no_database(cell, pg):
    pg.stop("immediate")
    assert cell.post(KV, []).body == {"results": []}
    assert cell.post("/api/v1/timers", []).body == {"results": []}
    for method, path, body in (
            ("POST", KV, [get("a")]), ("PUT", KV + "/n/a", {
                "value": 1, "forever": True}), ("GET", KV + "/n/a", None),
            ("DELETE", KV + "/n/a", None),
            ("GET", "/api/v1/resources/kv/namespaces", None),
            ("POST", "/api/v1/resources/kv/list", {"ns": "n"})):
        reply = cell.request(method, path, body)
        assert (reply.status, reply.body["error"],
                reply.headers["Retry-After"]) == (
                    503, "kv_unavailable", "1"), (method, path, reply)


def test_a_switch_without_a_database_is_local(cell, pg):
    """The process obeys at once; the answer says that the row did not."""
    pg.stop("immediate")
    body = cell.post(SWITCHES, {"kv": False}).body
    assert (body["kvEnabled"], body["mirrored"]) == (False, False)
    assert reason(cell, get("a"), status=503) == ("kv_disabled",
                                                  "kv_disabled")


# Who holds a row

def locked(db, key):
    """Does someone hold the row against a writer?"""
    conn = db.connect(autocommit=False)
    found = rows(conn, "select 1 from queen.kv where key = %s"
                 " for update skip locked", (key,))
    conn.rollback()
    conn.close()
    return not found


@pytest.mark.parametrize("fields, wanted", [
    (dict(op="put", value=2, expect=0), True),
    (dict(op="incr", delta=1, max=0), True),
    (dict(op="put", value=2, expect=99999), False),
    (dict(op="delete", expect=99999), False),
    (dict(op="delete", expect=0), False),
    (dict(op="get"), False)])
def test_who_loses_holds_the_row_or_not(db, fields, wanted):
    Sql(db.connect())("put", "a", value=1)
    conn = db.connect(autocommit=False)
    op = fields.pop("op")
    assert Sql(conn)(op, "a", **fields)[0] == (0 if op == "get" else 1)
    assert locked(db, "a") is wanted
    conn.rollback()
    assert not locked(db, "a")


# Storage

def test_the_table_is_made_for_counters(db):
    """No index covers what a write changes: updates stay on their page."""
    options = db.value("select reloptions from pg_class where oid ="
                       " 'queen.kv'::regclass")
    assert "fillfactor=70" in options
    assert "vacuum_truncate=off" in options or \
        "vacuum_truncate=false" in options
    indexes = dict(db.rows("select indexrelid::regclass::text,"
                           " pg_get_indexdef(indexrelid) from pg_index"
                           " where indrelid = 'queen.kv'::regclass"))
    assert sorted(i.split(" USING ")[1] for i in indexes.values()) == [
        "btree (shard, expires_at) WHERE (expires_at IS NOT NULL)",
        "btree (tenant, namespace, key)"]
    sql = Sql(db.connect())
    for i in range(500):
        sql("incr", "c%d" % (i % 5), delta=1)
    rows(sql.conn, "select pg_stat_force_next_flush()")
    wait_until(lambda: db.value(
        "select n_tup_upd from pg_stat_user_tables where relname = 'kv'")
        >= 495)
    hot, all_ = db.row("select n_tup_hot_upd, n_tup_upd from"
                       " pg_stat_user_tables where relname = 'kv'")
    assert hot > 0.95 * all_, (hot, all_)


def test_one_instant_for_a_call_and_its_lifetimes(db):
    sql = Sql(db.connect())
    sql.raw([{"op": "put", "key": k, "value": 1, "ttl": t}
             for k, t in (("a", 1), ("b", 60), ("c", 3153600000))], now=at(5))
    assert db.rows("select key, extract(epoch from expires_at - %s)::bigint"
                   " from queen.kv order by 1", (at(5),)) == [
        ("a", 1), ("b", 60), ("c", 3153600000)]


# Counters and logs

def test_operations_are_counted_by_what_became_of_them(cell, db):
    call(cell, put("a"), get("a"), get("none"),
         {"op": "incr", "ns": "n", "key": "c", "delta": 1, "forever": True})
    call(cell, put("a", expect=0), {"op": "delete", "ns": "n", "key": "no"},
         {"op": "incr", "ns": "n", "key": "c", "delta": 9, "max": 5,
          "forever": True})
    cell.post(KV, [put("b"), dict(put("a", expect=0), required=True)])
    wanted = {("put", "applied"): 1, ("put", "rejected"): 3,
              ("get", "applied"): 2, ("delete", "rejected"): 1,
              ("incr", "applied"): 1, ("incr", "rejected"): 1}
    for op in ("get", "getMany", "getPrefix", "put", "delete", "incr"):
        for result in ("applied", "rejected", "error"):
            assert metric(cell, 'queen_kv_ops_total{op="%s",result="%s"}'
                          % (op, result)) == wanted.get((op, result), 0), (
                              op, result)
    db.rows("alter table queen.kv rename to kv_away")
    call(cell, put("a"), status=500)
    assert metric(cell, 'queen_kv_ops_total{op="put",result="error"}') == 1


def test_dead_rows_are_seen_in_the_metrics(cell, db):
    call(cell, put("held", ttlSeconds=3600))
    conn = db.connect(autocommit=False)
    rows(conn, "update queen.kv set expires_at = now() - interval '90 s'"
         " returning 1")
    conn.commit()
    rows(conn, "select 1 from queen.kv for update")
    wait_until(lambda: metric(cell, "queen_kv_expired_not_pruned") == 1)
    assert metric(cell, "queen_kv_expiry_lag_seconds") >= 90
    conn.rollback()
    wait_until(lambda: metric(cell, "queen_kv_expired_not_pruned") == 0)
    assert db.value("select count(*) from queen.kv") == 0


@pytest.mark.cellenv(LOG_LEVEL="debug")
def test_names_and_values_are_in_no_log(cell, db):
    name, space, value = "k-Geheimnis", "ns-geheim", "v-Geheimnis"
    ops = [dict(op, ns=space) for op in (
        put(name, value), get(name), dict(put(name, value), expect=0,
                                          required=True))]
    for op in ops:
        cell.post(KV, [op])
        cell.post("/api/v1/transaction", {"operations": [], "kv": [op]})
    cell.get(KV + "/%s/%s" % (space, name))
    cell.post(KV, [dict(ops[0], value="x" * 70000)])
    cell.post("/api/v1/resources/kv/list", {"ns": space, "prefix": name})
    db.rows("create function refuse() returns trigger language plpgsql as $$"
            " begin raise exception 'no' using errcode = 'P0001'; end $$;"
            "create trigger refuse before insert on queen.kv"
            " for each row execute function refuse()")
    assert reason(cell, dict(ops[0], key=name + "2"), status=500) == (
        "kv_error", "no")
    log = cell.log_text()
    for word in (name, space, value):
        assert word not in log, word

# SPDX-License-Identifier: Apache-2.0
"""Key/value state over HTTP: operations, lifetimes, versions, refusals."""
import json
import threading

import pytest

from kvkit import TIME, Kv, kill, kv, path, reason, common_kv  # noqa: F401
from queenlib import rows, wait_until

# Operations

def test_put_get_delete(common_kv):
    first = common_kv.put("a", {"b": [1, 2.50, None]})
    version = first["version"]
    assert first == {"index": 0, "op": "put", "applied": True, "key": "a",
                     "value": {"b": [1, 2.50, None]}, "version": version}
    assert version > 0
    got = common_kv.one("get", "a")
    assert TIME.match(got.pop("updatedAt"))
    assert got == {"index": 0, "op": "get", "found": True, "key": "a",
                   "value": {"b": [1, 2.50, None]}, "version": version,
                   "expiresAt": None}
    assert common_kv.one("delete", "a") == dict(first, op="delete")
    assert common_kv.one("get", "a") == {
        "index": 0, "op": "get", "found": False, "key": "a"}
    assert common_kv.one("delete", "a") == {
        "index": 0, "op": "delete", "applied": False, "reason": "absent",
        "key": "a", "value": None, "version": 0}


def test_null_is_a_value(common_kv):
    assert common_kv.put("a", None)["value"] is None
    got = common_kv.one("get", "a")
    assert got["found"] is True and got["value"] is None


def test_bare_array_and_empty_calls(kv, cell):
    body = kv.post([{"op": "get", "ns": "n", "key": "a"}])
    assert body == {"results": [{"index": 0, "op": "get", "found": False,
                                 "key": "a"}]}
    assert kv.post([]) == {"results": []}
    assert kv.post({"operations": []}) == {"results": []}


@pytest.mark.parametrize("life,wanted", [
    ({}, "kv_expiry_not_specified"),
    ({"ttlSeconds": 5, "forever": True}, "kv_expiry_not_specified"),
    ({"forever": False}, "kv_expiry_not_specified"),
    ({"ttlSeconds": 0}, "kv_bad_ttl"),
    ({"ttlSeconds": -1}, "kv_bad_ttl"),
    ({"ttlSeconds": 1.5}, "kv_bad_ttl"),
    ({"ttlSeconds": "5"}, "kv_bad_ttl"),
    ({"ttlSeconds": 3153600001}, "kv_bad_ttl"),
    ({"ttlSeconds": 1e300}, "kv_bad_ttl"),
    ({"forever": False, "ttlSeconds": 5}, None),
    ({"ttlSeconds": 5.0}, None),
    ({"ttlSeconds": 3153600000}, None),
])
def test_lifetimes(common_kv, life, wanted):
    for op in ({"op": "put", "value": 1}, {"op": "putIfAbsent", "value": 1},
               {"op": "incr", "delta": 1}):
        call = dict(op, key=op["op"], **life)
        if wanted:
            assert common_kv.bad(call) == reason(wanted)
        else:
            assert common_kv.ops(call)[0]["applied"] is True
            assert TIME.match(common_kv.one("get", op["op"])["expiresAt"])


def test_expect(common_kv):
    assert common_kv.put("a", 1, expect=7) == {
        "index": 0, "op": "put", "applied": False, "reason": "absent",
        "key": "a", "value": None, "version": 0}
    assert common_kv.one("get", "a")["found"] is False
    v = common_kv.put("a", 1, expect=0)["version"]
    lost = common_kv.put("a", 2, expect=0)
    assert (lost["reason"], lost["value"], lost["version"]) == ("exists", 1, v)
    lost = common_kv.put("a", 2, expect=v + 1000)
    assert (lost["reason"], lost["value"], lost["version"]) == \
        ("version", 1, v)
    w = common_kv.put("a", 2, expect=v)
    assert w["applied"] and w["version"] > v
    assert common_kv.one("delete", "a", expect=v)["reason"] == "version"
    assert common_kv.one("delete", "a", expect=0)["reason"] == "exists"
    assert common_kv.one("delete", "a", expect=w["version"])["applied"] is True
    gone = common_kv.one("delete", "a", expect=0)
    assert (gone["applied"], gone["value"], gone["version"]) == \
        (True, None, 0)
    assert common_kv.one("delete", "a", expect=5)["reason"] == "absent"


@pytest.mark.parametrize("value", ['null', '"5"', '-1', '1.5',
                                   '9223372036854775808', '1e30', 'true'])
def test_bad_expect(common_kv, value):
    for call in ({"op": "put", "value": 1, "forever": True},
                 {"op": "delete"}):
        assert common_kv.bad(dict(call, key="a", expect=json.loads(value))
                             ) == reason("kv_bad_expect")


def test_expect_where_it_has_no_place(common_kv):
    for call in ({"op": "putIfAbsent", "value": 1, "expect": 3},
                 {"op": "incr", "delta": 1, "expect": 0}):
        assert common_kv.bad(dict(call, key="a", forever=True)) == \
            reason("kv_bad_expect")
    assert common_kv.one("putIfAbsent", "a", value=1, expect=0, forever=True)[
        "op"] == "putIfAbsent"
    assert common_kv.put("b", 1, expect=9223372036854775807)["reason"] \
        == "absent"


def test_put_if_absent_over_a_dead_row(kv, db):
    old = kv.put("a", 1, ttlSeconds=60)["version"]
    kill(db, "a")
    assert kv.one("get", "a")["found"] is False
    won = kv.one("putIfAbsent", "a", value=2, ttlSeconds=60)
    assert won["applied"] and won["version"] > old


# incr

def test_incr(kv, db):
    assert kv.one("incr", "a", delta=2, ttlSeconds=60)["value"] == 2
    expires = kv.one("get", "a")["expiresAt"]
    assert kv.one("incr", "a", delta=-0.5, ttlSeconds=999)["value"] == 1.5
    assert kv.one("get", "a")["expiresAt"] == expires
    over = kv.one("incr", "a", delta=9, max=10, forever=True)
    assert (over["applied"], over["reason"], over["value"]) == \
        (False, "limit", 1.5)
    assert kv.one("incr", "b", delta=5, max=4, forever=True) == {
        "index": 0, "op": "incr", "applied": False, "reason": "limit",
        "key": "b", "value": 0, "version": 0}
    assert kv.one("incr", "b", delta=-5, min=-4, forever=True)[
        "reason"] == "limit"
    assert kv.one("get", "b")["found"] is False
    v = kv.put("o", {"x": 1}, ttlSeconds=60)["version"]
    bad = kv.one("incr", "o", delta=1, forever=True)
    assert (bad["reason"], bad["value"], bad["version"]) == ("type", 0, v)
    kill(db, "o")
    assert kv.one("incr", "o", delta=1, forever=True)["value"] == 1


def test_incr_keeps_all_digits(kv, cell, db):
    digits = "123456789012345678901234567890"
    body = '[{"op":"incr","ns":"n","key":"a","forever":true,"delta":%s}]'
    for delta, wanted in ((digits, digits),
                          ("0.50", digits + ".5"),
                          ("5e-1", "123456789012345678901234567891")):
        reply = cell.post("/api/v1/kv", body % delta)
        assert reply.status == 200
        assert db.value("select value::text from queen.kv") == wanted


def test_numbers_without_end_are_refused(common):
    for delta in ("1e999999999", "1e131073"):
        reply = common.post("/api/v1/kv", '[{"op":"incr","ns":"n","key":"a",'
                            '"forever":true,"delta":%s}]' % delta)
        assert (reply.status, reply.body["error"]) == \
            (400, "kv_bad_request"), reply.body
    reply = common.post("/api/v1/kv", '[{"op":"incr","ns":"n","key":"a",'
                        '"forever":true,"delta":1e70000}]')
    assert (reply.status, reply.body["reason"]) == \
        (413, "kv_value_too_large")


# Lists

def test_get_many(common_kv):
    for key in ("b", "a", "c"):
        common_kv.put(key, key)
    got = common_kv.ops({"op": "getMany",
                         "keys": ["z", "c", "a", "y", "a"]})[0]
    assert [r["key"] for r in got["rows"]] == ["a", "c"]
    assert set(got["rows"][0]) == {"key", "value", "version", "expiresAt",
                                   "updatedAt"}
    assert (got["missing"], got["truncated"]) == (["z", "y"], False)
    assert common_kv.ops({"op": "getMany", "keys": []})[0] == {
        "index": 0, "op": "getMany", "rows": [], "missing": [],
        "truncated": False}


def test_a_list_sees_the_writes_of_its_call(common_kv):
    got = common_kv.ops({"op": "getMany", "keys": ["a"]},
                        {"op": "getPrefix", "prefix": "a"},
                        {"op": "put", "key": "a", "value": 7, "forever": True})
    assert got[0]["rows"][0]["value"] == 7
    assert got[1]["rows"][0]["version"] == got[2]["version"]


def test_get_prefix_pages(common_kv):
    common_kv.ops(*({"op": "put", "key": "p%02d" % i, "value": i,
                     "forever": True} for i in range(25)))
    common_kv.put("q", 1)
    seen, after = [], None
    for want in (10, 10, 5):
        page = common_kv.ops({"op": "getPrefix", "prefix": "p", "limit": 10,
                              "after": after or "", "keysOnly": True})[0]
        assert len(page["rows"]) == want
        assert set(page["rows"][0]) == {"key", "version", "expiresAt",
                                        "updatedAt"}
        seen += [r["key"] for r in page["rows"]]
        after = page["nextAfter"]
        assert page["truncated"] is (want == 10 and len(seen) < 25)
    assert after is None
    assert seen == ["p%02d" % i for i in range(25)]
    page = common_kv.ops({"op": "getPrefix", "prefix": "p", "limit": -3})[0]
    assert [r["key"] for r in page["rows"]] == ["p00"]


def test_prefix_is_no_pattern(common_kv):
    for key in ("a%x", "abx", "a_y", "aby"):
        common_kv.put(key, 1)

    def under(prefix):
        return [r["key"] for r in common_kv.ops(
            {"op": "getPrefix", "prefix": prefix})[0]["rows"]]

    assert under("a%") == ["a%x"]
    assert under("a_") == ["a_y"]
    assert under("a") == ["a%x", "a_y", "abx", "aby"]


def test_read_budget(common_kv):
    big = "x" * 65000
    for n in range(0, 80, 20):
        common_kv.ops(*({"op": "put", "key": "k%02d" % i, "value": big,
                         "forever": True} for i in range(n, n + 20)))
    page = common_kv.ops({"op": "getPrefix", "prefix": "k"})[0]
    # the row that crosses 4 MiB is still there
    assert len(page["rows"]) == 65 and page["truncated"] is True
    assert page["nextAfter"] == "k64"
    many = common_kv.ops({"op": "getMany", "keys": ["nope"] + [
        "k%02d" % i for i in range(80)]})[0]
    assert (len(many["rows"]), many["missing"], many["truncated"]) == \
        (65, ["nope"], True)


# Bounds

def test_sizes(kv, cell):
    edge = "x" * 65534
    assert kv.put("a", edge)["value"] == edge
    assert kv.bad({"op": "put", "key": "a", "value": edge + "x",
                   "forever": True}, status=413) == \
        ("payload_too_large", "kv_value_too_large")
    # spaces and escapes of the sender do not count
    body = '[{"op":"put","ns":"n","key":"a","forever":true,"value": [ %s ]}]'
    for inner, status in (('"' + "\\u0041" * 65532 + '"', 200),
                          ('"' + "\\u0041" * 65533 + '"', 413)):
        assert cell.post("/api/v1/kv", body % inner).status == status
    # compact it fits, as it would be stored it does not
    wide = [0] * 32767
    assert len(json.dumps(wide, separators=(",", ":"))) == 65535
    assert kv.bad({"op": "put", "key": "a", "value": wide, "forever": True},
                  status=413) == ("payload_too_large", "kv_value_too_large")
    # jsonb writes numbers out: 64 KiB would become a gigabyte
    assert cell.post("/api/v1/kv", body % ",".join(["1e131071"] * 7000)
                     ).status == 413
    assert cell.post("/api/v1/kv", body % "1e65534").status == 413
    key = "\u00e9" * 256
    assert kv.put(key, 1)["key"] == key
    for op in ("get", "delete"):
        assert kv.bad({"op": op, "key": key + "k"}, status=413) == \
            ("payload_too_large", "kv_key_too_large")


def test_counts(common_kv):
    get = {"op": "get", "key": "a"}
    assert len(common_kv.ops(*[get] * 256)) == 256
    assert common_kv.bad(*[get] * 257) == reason("kv_too_many_ops")
    keys = ["k%d" % i for i in range(1024)]
    got = common_kv.ops({"op": "getMany", "keys": keys})[0]
    assert len(got["missing"]) == 1024
    assert common_kv.bad({"op": "getMany", "keys": keys}, get) == \
        reason("kv_too_many_keys")
    page = {"op": "getPrefix", "prefix": "p", "limit": 5000}
    assert common_kv.bad(page, dict(page, limit=25)) == \
        reason("kv_too_many_keys")
    common_kv.ops(page, dict(page, limit=24))


@pytest.mark.parametrize("call,wanted", [
    ({"op": "frob", "key": "a"}, "kv_unknown_op"),
    ({"key": "a"}, "kv_unknown_op"),
    ({"op": "get", "key": "a", "ns": "N"}, "kv_bad_namespace"),
    ({"op": "get", "key": "a", "ns": ""}, "kv_bad_namespace"),
    ({"op": "get", "key": "a", "ns": "-a"}, "kv_bad_namespace"),
    ({"op": "get", "key": "a", "ns": "a\n"}, "kv_bad_namespace"),
    ({"op": "get", "key": "a", "ns": "a" * 65}, "kv_bad_namespace"),
    ({"op": "get", "key": "a", "ns": None}, "kv_bad_namespace"),
    ({"op": "get"}, "kv_bad_key"),
    ({"op": "get", "key": ""}, "kv_bad_key"),
    ({"op": "get", "key": 5}, "kv_bad_key"),
    ({"op": "get", "key": "a\0b"}, "kv_bad_key"),
    ({"op": "get", "key": "a", "tenant": "x"}, "kv_tenant_not_an_input"),
    ({"op": "get", "key": "a", "tenantId": 1}, "kv_tenant_not_an_input"),
    ({"op": "get", "key": "a", "_tenant": None}, "kv_tenant_not_an_input"),
    ({"op": "getMany"}, "kv_bad_request"),
    ({"op": "getMany", "keys": "a"}, "kv_bad_request"),
    ({"op": "getMany", "keys": ["a", ""]}, "kv_bad_key"),
    ({"op": "getPrefix"}, "kv_prefix_required"),
    ({"op": "getPrefix", "prefix": ""}, "kv_prefix_required"),
    ({"op": "getPrefix", "prefix": "a", "limit": 1.5}, "kv_bad_request"),
    ({"op": "getPrefix", "prefix": "a", "limit": "1"}, "kv_bad_request"),
    ({"op": "getPrefix", "prefix": "a", "after": 1}, "kv_bad_request"),
    ({"op": "put", "key": "a", "forever": True}, "kv_bad_request"),
    ({"op": "put", "key": "a", "forever": True, "value": "a\0"},
     "kv_bad_request"),
    ({"op": "put", "key": "a", "forever": True, "value": 1, "required": 1},
     "kv_bad_request"),
    ({"op": "incr", "key": "a", "forever": True}, "kv_bad_request"),
    ({"op": "incr", "key": "a", "forever": True, "delta": "1"},
     "kv_bad_request"),
    ({"op": "incr", "key": "a", "forever": True, "delta": 1, "max": "1"},
     "kv_bad_request"),
])
def test_malformed_operations(common_kv, call, wanted):
    good = {"op": "put", "key": "good", "value": 1, "forever": True}
    assert common_kv.bad(good, call) == reason(wanted)
    assert common_kv.one("get", "good")["found"] is False


@pytest.mark.parametrize("body", [
    "", "{", "1", "null", '"x"', "{}", '{"operations":{}}', "[1]", "[[]]",
    '{"operations":null}', "[] x", '[{"op":"get","ns":"n","key":"\\ud800"}]'])
def test_malformed_bodies(common, body):
    reply = common.post("/api/v1/kv", body)
    assert reply.status == 400, reply.body
    assert reply.body["error"] == "kv_bad_request"
    assert reply.body["reason"] in ("kv_bad_body", "kv_bad_request",
                                      "kv_bad_key")


def test_half_a_surrogate_in_a_value(common):
    for value in ('"\\ud800"', '"\\udc00x"', '["\\ud800\\u0041"]'):
        reply = common.post("/api/v1/kv", '[{"op":"put","ns":"n","key":"a",'
                            '"forever":true,"value":%s}]' % value)
        assert (reply.status, reply.body["reason"]) == \
            (400, "kv_bad_request")


def test_a_key_is_written_once_in_a_call(kv, db):
    put = {"op": "put", "key": "a", "value": 1, "forever": True}
    for other in ({"op": "delete", "key": "a"},
                  {"op": "incr", "key": "a", "delta": 1, "forever": True},
                  dict(put, op="putIfAbsent")):
        assert kv.bad(put, other) == reason("kv_duplicate_key_in_call")
    assert db.value("select count(*) from queen.kv") == 0
    got = kv.ops({"op": "get", "key": "a"}, put, {"op": "get", "key": "a"},
                 dict(put, ns="m"))
    assert [r.get("found") for r in got] == [False, None, True, None]


# required

def test_lost_required_undoes_the_call(kv, db):
    v = kv.put("b", {"state": "paid"})["version"]
    call = [{"op": "put", "key": "a", "value": 1, "forever": True},
            {"op": "incr", "key": "z", "delta": 1, "forever": True},
            {"op": "putIfAbsent", "key": "b", "value": 2, "forever": True,
             "required": True}]
    for order in (call, call[::-1]):
        body = kv.post([dict(o, ns="n") for o in order])
        assert body == {
            "ok": False, "reason": "kv_precondition",
            "failedIndex": order.index(call[2]), "kvReason": "exists",
            "version": v, "value": {"state": "paid"}}
    assert db.rows("select key from queen.kv") == [("b",)]
    call[2]["key"] = "c"
    assert [r["applied"] for r in kv.ops(*call)] == [True] * 3


def test_large_winner_is_not_told(common_kv):
    common_kv.put("a", "x" * 5000)
    assert common_kv.post([{
        "op": "putIfAbsent", "ns": common_kv.ns, "key": "a", "value": 1,
        "forever": True, "required": True}]) == \
        {"ok": False, "reason": "kv_precondition"}


# Paths

def test_path_routes(kv, cell):
    made = cell.request("PUT", path("orders/9f1/items"),
                        {"value": 1, "forever": True, "more": 1})
    body = made.body
    assert made.status == 200
    assert body == {"index": 0, "op": "put", "applied": True,
                    "key": "orders/9f1/items", "value": 1,
                    "version": body["version"]}
    for name in ("orders/9f1/items", "orders%2F9f1/items"):
        got = cell.request("GET", "/api/v1/kv/n/" + name)
        assert got.headers["ETag"] == '"%d"' % body["version"]
        assert got.body["key"] == "orders/9f1/items"
    lost = cell.request("PUT", path("orders/9f1/items"),
                        {"value": 2, "ttlSeconds": 5, "expect": 0,
                         "required": True})
    assert lost.body == {
        "ok": False, "reason": "kv_precondition", "failedIndex": 0,
        "kvReason": "exists", "version": body["version"], "value": 1}
    gone = cell.request("DELETE", path("orders/9f1/items"),
                        {"expect": body["version"]})
    assert gone.body["applied"] is True
    got = cell.request("GET", path("orders/9f1/items"))
    assert got.status == 200 and got.headers["ETag"] is None
    assert got.body == {"index": 0, "op": "get", "found": False,
                                    "key": "orders/9f1/items"}


@pytest.mark.parametrize("body", ["", "null"])
def test_delete_without_a_body(kv, cell, body):
    kv.put("a", 1)
    got = cell.request("DELETE", path("a"), body)
    assert got.body["applied"] is True


@pytest.mark.parametrize("name", ["op", "ns", "namespace", "key"])
def test_fields_of_the_path_in_the_body(common, name):
    reply = common.request("PUT", path("a"), {"value": 1, "forever": True,
                                              name: "x"})
    assert (reply.status, reply.body["reason"]) == \
        (400, "kv_field_in_path")
    reply = common.request("DELETE", path("a"), {name: None})
    assert (reply.status, reply.body["reason"]) == \
        (400, "kv_field_in_path")


def test_no_query_string(common):
    for method, route, body in (
            ("GET", path("a"), None), ("PUT", path("a"), {"value": 1}),
            ("DELETE", path("a"), None),
            ("GET", "/api/v1/resources/kv/namespaces", None),
            ("POST", "/api/v1/resources/kv/list", {"ns": "n"})):
        for query in ("?x=1", "?"):
            reply = common.request(method, route + query, body)
            assert (reply.status, reply.body["reason"]) == \
                (400, "kv_no_query_string"), (method, query)
            assert reply.body["error"] == "kv_bad_request"
    reply = common.request("POST", "/api/v1/kv?x=1", [])
    assert reply.status == 200


# Lists for people

def test_namespaces_and_list(kv, cell, db):
    for ns, key in (("b", "1"), ("a", "1"), ("a", "2")):
        kv.ops({"op": "put", "ns": ns, "key": key, "value": key,
                "ttlSeconds": 60})
    assert cell.get("/api/v1/resources/kv/namespaces").body == {
        "namespaces": [{"namespace": "a", "keys": 2},
                       {"namespace": "b", "keys": 1}]}

    def listed(**fields):
        reply = cell.post("/api/v1/resources/kv/list", fields)
        assert reply.status == 200, reply.body
        return reply.body

    page = listed(ns="a")
    assert set(page) == {"rows", "truncated", "nextAfter", "bytes"}
    assert [(r["key"], r["value"], r["expired"]) for r in page["rows"]] == \
        [("1", "1", False), ("2", "2", False)]
    assert (page["truncated"], page["nextAfter"], page["bytes"]) == \
        (False, None, 6)
    page = listed(ns="a", limit=1, keysOnly=True)
    assert (page["truncated"], page["nextAfter"], page["bytes"]) == \
        (True, "1", 0)
    assert "value" not in page["rows"][0]
    assert [r["key"] for r in listed(ns="a", after="1")["rows"]] == ["2"]
    assert listed(ns="nope")["rows"] == []
    reply = cell.post("/api/v1/resources/kv/list", {"ns": "A"})
    assert (reply.status, reply.body["reason"]) == \
        (400, "kv_bad_namespace")


@pytest.mark.cellenv(QUEEN_SWEEPER="false")
def test_dead_rows_are_listed_when_asked(kv, cell, db):
    kv.put("a", 1, ttlSeconds=60)
    kill(db, "a")
    assert cell.post("/api/v1/resources/kv/list", {"ns": "n"}).body[
        "rows"] == []
    found = cell.post("/api/v1/resources/kv/list",
                      {"ns": "n", "includeExpired": True}).body["rows"]
    assert [(r["key"], r["expired"]) for r in found] == [("a", True)]


# Processes and failures

@pytest.mark.cellenv(QUEEN_KV_EXPIRE_EVERY_MS="50",
                     QUEEN_KV_EXPIRE_BATCH="7")
def test_dead_rows_are_removed(kv, db):
    kv.ops(*({"op": "put", "key": "k%d" % i, "value": i, "ttlSeconds": 60}
             for i in range(50)))
    kv.put("stay", 1)
    db.rows("update queen.kv set expires_at = clock_timestamp()"
            " where key like 'k%%'")
    wait_until(lambda: db.value("select count(*) from queen.kv") == 1,
               what="the sweep")
    assert kv.one("get", "stay")["found"] is True


def test_one_of_many_wins(cells):
    kvs = [Kv(c) for c in cells(2)]
    barrier, got = threading.Barrier(8), []

    def race(n):
        barrier.wait()
        got.append((n, kvs[n % 2].one("putIfAbsent", "lock", value=n,
                                      ttlSeconds=60)))

    threads = [threading.Thread(target=race, args=(n,)) for n in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    (winner, won), = [g for g in got if g[1]["applied"]]
    for n, lost in got:
        if n != winner:
            assert (lost["reason"], lost["value"], lost["version"]) == \
                ("exists", winner, won["version"])


@pytest.mark.cellenv(DB_POOL_SIZE="4")
def test_no_free_connection_is_503(kv, db):
    """The row is held, so the lane's only connection is too."""
    kv.put("a", 1)
    held = db.connect()
    held.autocommit = False
    rows(held, "select 1 from queen.kv for update")
    waiting = threading.Thread(target=kv.put, args=("a", 2))
    waiting.start()
    try:
        wait_until(lambda: db.value(
            "select count(*) from pg_stat_activity where wait_event_type ="
            " 'Lock' and datname = current_database()") == 1,
            what="the writer")
        reply = kv.cell.post("/api/v1/kv", [{"op": "get", "ns": "n",
                                             "key": "b"}])
        assert reply.status == 503
        assert reply.headers["Retry-After"] == "1"
        assert reply.body == {"error": "kv_unavailable",
                                "reason": "kv_pool_exhausted"}
    finally:
        held.rollback()
        waiting.join()
    assert kv.one("get", "a")["value"] == 2


@pytest.mark.cellenv(QUEEN_STMT_TIMEOUT_MS="300")
def test_statement_timeout_is_503(kv, db):
    kv.put("a", 1)
    held = db.connect()
    held.autocommit = False
    rows(held, "select 1 from queen.kv for update")
    try:
        reply = kv.cell.post("/api/v1/kv", [
            {"op": "put", "ns": "n", "key": "a", "value": 2,
             "forever": True}])
        assert reply.status == 503
        assert reply.body == {"error": "kv_unavailable",
                                "reason": "kv_timeout"}
    finally:
        held.rollback()


def test_missing_function_is_misconfigured(kv, db):
    db.rows("alter table queen.kv rename to kv_away")
    reply = kv.cell.post("/api/v1/kv", [{"op": "get", "ns": "n",
                                         "key": "b"}])
    db.rows("alter table queen.kv_away rename to kv")
    assert (reply.status, reply.body["error"]) == (500, "kv_misconfigured")


def test_no_database_is_503(kv, pg):
    pg.stop("immediate")
    reply = kv.cell.post("/api/v1/kv", [{"op": "get", "ns": "n",
                                         "key": "b"}])
    assert reply.status == 503
    assert reply.body == {"error": "kv_unavailable",
                            "reason": "connection"}

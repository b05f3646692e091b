# SPDX-License-Identifier: Apache-2.0
"""The error table of key/value state: status, error and reason, word by word;
each field with each wrong kind; sizes at their edges."""
import json

import pytest

from kvkit import Kv, kv, path, reason, common_kv  # noqa: F401
from queenlib import NIL_TENANT

KINDS = {"null": None, "bool": True, "false": False, "number": 7,
         "fraction": 1.5, "string": "7", "empty": "", "array": ["7"],
         "object": {"a": 7}}
BASE = {
    "get": {"key": "k"},
    "getMany": {"keys": ["k"]},
    "getPrefix": {"prefix": "k"},
    "put": {"key": "k", "value": 1, "forever": True},
    "putIfAbsent": {"key": "k", "value": 1, "forever": True},
    "delete": {"key": "k"},
    "incr": {"key": "k", "delta": 1, "forever": True},
}
WRITES = ("put", "putIfAbsent", "delete", "incr")
# field, the ops that have it, the kinds it takes, reason for all others
FIELDS = [
    ("op", list(BASE), (), "kv_unknown_op"),
    ("ns", list(BASE), ("string",), "kv_bad_namespace"),
    ("namespace", list(BASE), ("string",), "kv_bad_namespace"),
    ("key", ("get", "put", "putIfAbsent", "delete", "incr"), ("string",),
     "kv_bad_key"),
    ("keys", ("getMany",), ("array",), "kv_bad_request"),
    ("prefix", ("getPrefix",), ("string",), "kv_prefix_required"),
    ("after", ("getPrefix",), ("null", "string", "empty"), "kv_bad_request"),
    ("limit", ("getPrefix",), ("null", "number"), "kv_bad_request"),
    ("keysOnly", ("getPrefix",), ("null", "bool", "false"),
     "kv_bad_request"),
    ("value", ("put", "putIfAbsent"), tuple(KINDS), None),
    ("ttlSeconds", ("put", "putIfAbsent", "incr"), ("null",), "kv_bad_ttl"),
    ("forever", ("put", "putIfAbsent", "incr"), ("bool",),
     "kv_expiry_not_specified"),
    ("expect", ("put", "delete"), ("number",), "kv_bad_expect"),
    ("expect", ("putIfAbsent", "incr"), (), "kv_bad_expect"),
    ("required", WRITES, ("bool", "false"), "kv_bad_request"),
    ("delta", ("incr",), ("number", "fraction"), "kv_bad_request"),
    ("min", ("incr",), ("null", "number", "fraction"), "kv_bad_request"),
    ("max", ("incr",), ("null", "number", "fraction"), "kv_bad_request"),
    ("tenant", list(BASE), (), "kv_tenant_not_an_input"),
    ("tenantId", list(BASE), (), "kv_tenant_not_an_input"),
    ("_tenant", list(BASE), (), "kv_tenant_not_an_input"),
]


@pytest.mark.parametrize("field,ops,takes,wanted", FIELDS)
def test_kinds_of_fields(common_kv, field, ops, takes, wanted):
    for op in ops:
        for kind, value in KINDS.items():
            call = dict({"op": op, "ns": common_kv.ns}, **BASE[op])
            if field == "namespace":
                call.pop("ns")
            if field == "ttlSeconds" and kind == "number":
                continue            # a lifetime beside forever: below
            call[field] = value
            if field in ("ns", "namespace") and kind == "string":
                call[field] = common_kv.ns      # what it takes is kept
            reply = common_kv.cell.post("/api/v1/kv", [call])
            at = (op, field, kind, reply.body)
            if kind in takes:
                assert reply.status == 200, at
            else:
                assert reply.status == 400, at
                assert (reply.body["error"], reply.body["reason"]) == \
                    ("kv_bad_request", wanted), at
                assert reply.body["detail"], at


@pytest.mark.parametrize("call,wanted", [
    ({"op": "ge\0t", "key": "k"}, "kv_unknown_op"),
    ({"op": "get", "ns": "n\0", "key": "k"}, "kv_bad_namespace"),
    ({"op": "get", "key": "\0"}, "kv_bad_key"),
    ({"op": "getMany", "keys": ["k", "k\0"]}, "kv_bad_key"),
    ({"op": "getPrefix", "prefix": "k\0"}, "kv_bad_key"),
    ({"op": "getPrefix", "prefix": "k", "after": "\0"}, "kv_bad_request"),
    ({"op": "put", "key": "k", "value": "\0", "forever": True},
     "kv_bad_request"),
    ({"op": "put", "key": "k", "value": {"a\0": 1}, "forever": True},
     "kv_bad_request"),
    ({"op": "put", "key": "k", "value": [[["\0"]]], "forever": True},
     "kv_bad_request"),
])
def test_nul_in_a_string(common_kv, call, wanted):
    assert common_kv.bad(call) == reason(wanted)


@pytest.mark.parametrize("body", [
    {"ns": "n\0"}, {"ns": "n", "prefix": "\0"}, {"ns": "n", "after": "\0"}])
def test_nul_in_the_list_for_people(common, body):
    reply = common.post("/api/v1/resources/kv/list", body)
    assert (reply.status, reply.body["error"], reply.body["reason"]) == \
        (400, "kv_bad_request", "kv_bad_request")


@pytest.mark.parametrize("body", [
    "", "{", "1", "null", '"x"', "{}", '{"operations":{}}',
    '{"operations":null}', '{"operations":[],}', "[] x", "[}", "[1,]",
    '[{"op":"get","ns":"n","key":"\\ud8"}]', "\xff", "[" * 5000])
def test_bodies_that_are_none(common, body):
    reply = common.post("/api/v1/kv", body.encode("latin-1"))
    assert (reply.status, reply.body["error"], reply.body["reason"]) == \
        (400, "kv_bad_request", "kv_bad_body"), reply.body


@pytest.mark.parametrize("body", ["[1]", "[[]]", "[null]", '["get"]'])
def test_operations_that_are_none(common, body):
    reply = common.post("/api/v1/kv", body)
    assert (reply.status, reply.body) == (400, {
        "error": "kv_bad_request", "reason": "kv_bad_request",
        "detail": "operation 0: must be an object"})


@pytest.mark.parametrize("method,body,wanted", [
    ("PUT", "", "kv_bad_body"), ("PUT", "[]", "kv_bad_body"),
    ("PUT", "null", "kv_bad_body"), ("PUT", '{"value":1', "kv_bad_body"),
    ("PUT", "{}", "kv_bad_request"),
    ("PUT", '{"value":1}', "kv_expiry_not_specified"),
    ("PUT", '{"value":1,"forever":true,"tenant":1}',
     "kv_tenant_not_an_input"),
    ("DELETE", "[]", "kv_bad_body"), ("DELETE", "{", "kv_bad_body"),
    ("DELETE", '{"expect":"1"}', "kv_bad_expect"),
    ("DELETE", '{"required":1}', "kv_bad_request")])
def test_bodies_of_path_routes(common, method, body, wanted):
    reply = common.request(method, path("a"), body)
    assert (reply.status, reply.body["error"], reply.body["reason"]) == \
        (400, "kv_bad_request", wanted)


@pytest.mark.parametrize("name,wanted", [
    ("N/a", (400, "kv_bad_request", "kv_bad_namespace")),
    ("n%20/a", (400, "kv_bad_request", "kv_bad_namespace")),
    ("n/" + "k" * 513, (413, "payload_too_large", "kv_key_too_large")),
    ("n/" + "%C3%A9" * 257, (413, "payload_too_large", "kv_key_too_large")),
])
def test_names_in_the_path(common, name, wanted):
    for method, body in (("GET", None), ("DELETE", None),
                         ("PUT", {"value": 1, "forever": True})):
        reply = common.request(method, "/api/v1/kv/" + name, body)
        assert (reply.status, reply.body["error"],
                reply.body["reason"]) == wanted
    assert common.request("GET", "/api/v1/kv/n/" + "%C3%A9" * 256
                          ).body["found"] is False


@pytest.mark.parametrize("body,status,wanted", [
    ("", 400, "kv_bad_body"), ("[]", 400, "kv_bad_body"),
    ("{}", 400, "kv_bad_namespace"),
    ('{"ns":null}', 400, "kv_bad_namespace"),
    ('{"ns":"a b"}', 400, "kv_bad_namespace"),
    ('{"ns":5}', 400, "kv_bad_request"),
    ('{"ns":"n","prefix":5}', 400, "kv_bad_request"),
    ('{"ns":"n","after":[]}', 400, "kv_bad_request"),
    ('{"ns":"n","limit":"5"}', 400, "kv_bad_request"),
    ('{"ns":"n","limit":1.5}', 400, "kv_bad_request"),
    ('{"ns":"n","keysOnly":1}', 400, "kv_bad_request"),
    ('{"ns":"n","includeExpired":"no"}', 400, "kv_bad_request"),
    ('{"ns":"n","tenant":"x"}', 400, "kv_tenant_not_an_input"),
    ('{"ns":"n","prefix":"%s"}' % ("k" * 513), 413, "kv_key_too_large"),
    ('{"ns":"n","after":"%s"}' % ("k" * 513), 413, "kv_key_too_large")])
def test_bodies_of_the_list(common, body, status, wanted):
    reply = common.post("/api/v1/resources/kv/list", body)
    assert (reply.status, reply.body["reason"]) == (status, wanted)
    assert reply.body["error"] == (
        "kv_bad_request" if status == 400 else "payload_too_large")


def test_limits_are_clamped(kv, cell):
    kv.ops(*({"op": "put", "key": "k%03d" % i, "value": i, "forever": True}
             for i in range(120)))
    for limit, rows_n in (
            ("0", 1), ("-1", 1), ("-1e300", 1), ("1", 1), ("2.0", 2),
            ("2e0", 2), ("null", 100), ("1000", 120), ("1001", 120),
            ("1e300", 120), ("9223372036854775808", 120),
            ("99999999999999999999999999", 120)):
        reply = cell.post("/api/v1/kv", '[{"op":"getPrefix","ns":"n",'
                          '"prefix":"k","limit":%s}]' % limit)
        assert reply.status == 200, reply.body
        assert len(reply.body["results"][0]["rows"]) == rows_n, limit
        reply = cell.post("/api/v1/resources/kv/list",
                          '{"ns":"n","limit":%s}' % limit)
        assert reply.status == 200, reply.body
        assert len(reply.body["rows"]) == rows_n, limit


@pytest.mark.parametrize("limit", ["1.5", "1e-1", "99999999999999999999.5",
                                   "5e-99999999999999999999"])
def test_a_limit_is_an_integer(common, limit):
    for route, body in (("/api/v1/kv", '[{"op":"getPrefix","ns":"n",'
                         '"prefix":"k","limit":%s}]'),
                        ("/api/v1/resources/kv/list",
                         '{"ns":"n","limit":%s}')):
        reply = common.post(route, body % limit)
        assert (reply.status, reply.body["reason"]) == \
            (400, "kv_bad_request"), route


# Sizes

def test_values_at_the_edge_by_both_measures(kv, cell):
    """65536 bytes compact; 65536 bytes as PostgreSQL prints it."""
    too_large = ("payload_too_large", "kv_value_too_large")

    def sized(n):
        return {"op": "put", "key": "k", "value": "x" * (n - 2),
                "forever": True}

    assert kv.ops(sized(65536))[0]["applied"] is True
    assert kv.bad(sized(65537), status=413) == too_large
    # ", " and ": " of the stored text: [0, 0, ...] has 3n bytes
    for n, status in ((21845, 200), (21846, 413)):
        value = [0] * n
        assert len(json.dumps(value, separators=(",", ":"))) < 65536
        assert len(json.dumps(value)) == 3 * n
        reply = cell.post("/api/v1/kv", [{"op": "put", "ns": "n", "key": "k",
                                          "value": value, "forever": True}])
        assert reply.status == status
    # a short spelling of a long number: only PostgreSQL knows
    for spelled, status in (("1e65535", 200), ("1e65536", 413)):
        conn = cell.http()
        conn.request("POST", "/api/v1/kv", '[{"op":"put","ns":"n","key":"k",'
                     '"forever":true,"value":%s}]' % spelled)
        answer = conn.getresponse()
        text = answer.read()
        conn.close()
        assert answer.status == status
        if status == 413:
            body = json.loads(text)
            assert (body["error"], body["reason"]) == too_large
        else:
            assert b'"value":1' + b"0" * 65535 + b"," in text


def test_keys_at_the_edge(common_kv):
    too_large = ("payload_too_large", "kv_key_too_large")
    for key in ("k" * 512, "\u00e9" * 256, "\u20ac" * 170 + "kk",
                "\U0001f600" * 128):
        assert len(key.encode()) == 512
        assert common_kv.put(key, 1)["key"] == key
        assert common_kv.one("get", key)["key"] == key
        for call in ({"op": "get", "key": key + "k"},
                     {"op": "getMany", "keys": ["k", key + "k"]},
                     {"op": "getPrefix", "prefix": key + "k"},
                     {"op": "getPrefix", "prefix": "k", "after": key + "k"},
                     {"op": "delete", "key": key + "k"},
                     dict(BASE["put"], op="put", key=key + "k"),
                     dict(BASE["incr"], op="incr", key=key + "k")):
            assert common_kv.bad(call, status=413) == too_large, call["op"]
        assert common_kv.ops({"op": "getPrefix", "prefix": key})[0]["rows"][0][
            "key"] == key


def test_digits(kv, cell):
    """Of values and of counters: none is lost, none rounded."""
    n = "123456789012345678901234567890.000000000000000000000000000001"
    reply = cell.post("/api/v1/kv", '[{"op":"put","ns":"n","key":"v",'
                      '"forever":true,"value":{"a":%s}},{"op":"incr",'
                      '"ns":"n","key":"c","forever":true,"delta":%s,"min":'
                      '-%s,"max":%s}]' % (n, n, n, n),
                      headers={"Accept": "x"})
    assert reply.status == 200
    assert [r["applied"] for r in reply.body["results"]] == [True, True]
    assert kv.cell.db.rows("select key, value::text from queen.kv order by"
                           " key") == [("c", n), ("v", '{"a": %s}' % n)]
    # one more in the last place is over the limit
    reply = cell.post("/api/v1/kv", '[{"op":"incr","ns":"n","key":"c",'
                      '"forever":true,"delta":1e-30,"max":%s}]' % n)
    assert reply.body["results"][0]["reason"] == "limit"


def test_reads_may_repeat(common_kv):
    v = common_kv.put("a", 1)["version"]
    got = common_kv.ops({"op": "get", "key": "a"},
                        {"op": "getMany", "keys": ["a", "b", "a", "b"]},
                        {"op": "get", "key": "a"},
                        {"op": "getMany", "keys": ["a"]})
    assert [r["version"] for r in (got[0], got[2])] == [v, v]
    assert [[r["version"] for r in got[i]["rows"]] for i in (1, 3)] == \
        [[v], [v]]
    assert got[1]["missing"] == ["b"]


# Faults of the database

def raising(db, code, text):
    """Every write of a key fails like this."""
    db.rows("create or replace function fail() returns trigger language"
            " plpgsql as $$ begin raise exception '%s' using errcode = '%s';"
            " end $$; drop trigger if exists fail on queen.kv;"
            " create trigger fail before insert on queen.kv for each row"
            " execute function fail()" % (text, code))


STATES = [
    ("40001", 503, "kv_unavailable", "the text"),
    ("40P01", 503, "kv_unavailable", "the text"),
    ("53100", 503, "kv_unavailable", "the text"),
    ("57P05", 503, "kv_unavailable", "the text"),
    ("58030", 503, "kv_unavailable", "the text"),
    ("57014", 503, "kv_unavailable", "kv_timeout"),
    ("42883", 500, "kv_misconfigured", "the text"),
    ("42501", 500, "kv_misconfigured", "the text"),
    ("P0001", 500, "kv_error", "the text"),
    ("23514", 500, "kv_error", "the text"),
    ("XX000", 500, "kv_error", "the text"),
]


def test_states_of_the_database(kv, db):
    for code, status, error, wanted in STATES:
        raising(db, code, "the text")
        for required in (False, True):
            reply = kv.cell.post("/api/v1/kv", [dict(
                BASE["put"], op="put", ns="n", key="secret-key",
                required=required)])
            assert (reply.status, reply.body) == (
                status, {"error": error, "reason": wanted}), code
            assert reply.headers.get("Retry-After") == (
                "1" if status == 503 else None)
        # others go on
        assert kv.one("get", "k")["found"] is False
        assert "secret-key" not in kv.cell.log_text()


def test_a_number_too_long_is_the_callers_fault(kv, cell):
    reply = cell.post("/api/v1/kv", '[{"op":"put","ns":"n","key":"k",'
                      '"forever":true,"value":1e200000}]')
    assert (reply.status, reply.body["error"], reply.body["reason"]) == \
        (400, "kv_bad_request", "kv_bad_request")
    assert reply.body["detail"]


MISSING = (500, {"error": "kv_error", "reason": "kv_result_missing"})


@pytest.mark.parametrize("body", [
    "return;",                                  # nothing
    "ord := 1; row_no := 0; verdict := 0; version := 7; return next;",
    "ord := 1; row_no := 0; verdict := 0; version := 7; return next;"
    "return next;",                             # the first twice
    "ord := 3; row_no := 0; verdict := 0; return next;",    # one too many
    "ord := 0; row_no := 0; verdict := 0; return next;",
    "ord := 2; row_no := 1; verdict := 0; return next;",    # no end of it
])
def test_an_answer_to_something_else(kv, db, body):
    db.rows("create or replace function queen.kv_apply_v1(p_tenant uuid,"
            " p_in_bundle boolean, p_read_bytes bigint, k_op smallint[],"
            " k_ns text[], k_key text[], k_value text[], k_expect bigint[],"
            " k_ttl_s bigint[], k_required boolean[], k_delta text[],"
            " k_min text[], k_max text[], k_after text[], k_limit int[],"
            " k_keys_only boolean[], m_op int[], m_key text[],"
            " p_now timestamptz default null)"
            " returns table (ord int, row_no int, verdict int, reason text,"
            " key text, value text, version bigint, expires_at timestamptz,"
            " updated_at timestamptz) language plpgsql as $$ begin"
            " insert into queen.kv (tenant, namespace, key, value, version,"
            " created_at, updated_at) values (p_tenant, 'n', 'trace', '1', 1,"
            " now(), now()) on conflict do nothing; %s end $$" % body)
    for required in (False, True):
        reply = kv.cell.post("/api/v1/kv", [
            dict(BASE["put"], op="put", ns="n", required=required),
            {"op": "get", "ns": "n", "key": "k"}])
        assert (reply.status, reply.body) == MISSING
        # a bundle that is not understood is not committed
        assert db.value("select count(*) from queen.kv") == (not required)
        db.rows("delete from queen.kv")
    assert kv.post([]) == {"results": []}


def test_a_list_without_its_end(cell, db):
    db.rows("create or replace function queen.kv_list_v1(p_tenant uuid,"
            " p_ns text, p_prefix text, p_after text, p_limit int,"
            " p_keys_only boolean, p_include_expired boolean,"
            " p_read_bytes bigint, p_now timestamptz default null)"
            " returns table (row_no int, verdict int, key text, value text,"
            " version bigint, expires_at timestamptz, updated_at timestamptz,"
            " expired boolean) language sql as $$ select 1, 0, 'k', '1', 1,"
            " now(), now(), false where p_prefix = 'a' $$")
    for prefix in ("a", "b"):
        reply = cell.post("/api/v1/resources/kv/list",
                          {"ns": "n", "prefix": prefix})
        assert (reply.status, reply.body) == MISSING


def test_no_request_names_the_rows_of_the_cell_itself(kv, cell, db):
    """Leases of the cell's own lie in the tenant that is all zeros."""
    db.rows("insert into queen.kv (tenant, namespace, key, value, version,"
            " created_at, updated_at) values (%s, 'n', 'eph', '1', 1, now(),"
            " now())", (NIL_TENANT,))
    assert kv.one("get", "eph")["found"] is False
    assert cell.get("/api/v1/resources/kv/namespaces").body == {
        "namespaces": []}

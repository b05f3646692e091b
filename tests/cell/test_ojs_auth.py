# SPDX-License-Identifier: Apache-2.0
"""
Who may ask queen-ojs what: each route for each role, two tenants with the same
names, a gateway that only reads.
"""
import json
import re

import pytest

from ojskit import MEDIA
from ojsroutes import API, PUBLIC, ROUTES, SECRET, Names, problem, settle, table
from queenlib import OTHER_TENANT
from rawhttp import exchange, request
from test_auth import ON, ROLES, role
from test_purge import B_TENANT

QUIET = dict(QUEEN_OJS_SWEEPER="false")
TENANTS = dict(QUEEN_TENANCY_HEADER="true", QUEEN_KV_TRUSTED_PROXY="true")
A, B = ({"x-queen-tenant": t} for t in (OTHER_TENANT, B_TENANT))
READS = [r for r in ROUTES if r[0] == "GET"]
REST = [r for r in ROUTES if r[0] != "GET"]


def test_every_route_is_stated():
    served = {(method, path) for method, path, _ in table()}
    stated = {(method, API + path) for method, path in ROUTES}
    assert served == stated | {("GET", path) for path in PUBLIC}


def denied(reply, status, text):
    assert problem(reply, status, "permission_denied")["message"] == text


@pytest.mark.cellenv(**ON, **QUIET)
def test_every_route_for_every_role(ojs):
    for method, pattern, level in table():
        path = re.sub(r":\w+", "x", pattern)
        body = None if method == "GET" else b""
        for name in (None, "read-only", "write-only", "read-write", "admin"):
            at = (method, pattern, name)
            reply = ojs.request(method, path, body, headers=role(name))
            if name in ROLES[level]:
                assert reply.status not in (401, 403), (at, reply)
            elif name is None:
                denied(reply, 401, "Authentication required")
            else:
                denied(reply, 403, "Insufficient permissions")
            if method == "GET":
                assert ojs.request("HEAD", path, headers=role(name)).status \
                    == reply.status, at


@pytest.mark.cellenv(**ON, **QUIET)
def test_who_only_writes_learns_nothing_of_a_job_and_ends_none(ojs):
    """A unique push may show the job that is there, or cancel it."""
    job = {"type": "u.x", "args": ["secret"], "unique": {"keys": ["type"]}}
    writer, both = role("write-only"), role("read-write")
    first = ojs.ask("POST", "/jobs", job, 201, headers=both)["job"]
    for on in ("ignore", "replace", "replace_except_schedule"):
        again = {**job, "args": [], "unique": {"on_conflict": on}}
        for path, body in (("/jobs", again), ("/jobs/batch",
                                              {"jobs": [again]})):
            error = ojs.refused("POST", path, body, 403, "permission_denied",
                                headers=writer)
            assert error["details"]["field"] == "unique.on_conflict"
    error = ojs.refused("POST", "/jobs", job, 409, "duplicate",
                        headers=writer)
    assert "secret" not in str(error)
    got = ojs.ask("GET", "/jobs/" + first["id"], headers=both)["job"]
    assert got["state"] == "available"
    again = {**job, "unique": {"on_conflict": "ignore"}}
    there = ojs.ask("POST", "/jobs", again, 200, headers=both)["job"]
    assert there == {**got, "deduplicated": True}


@pytest.mark.cellenv(**ON, **QUIET)
def test_a_stranger_learns_no_path(ojs):
    """What nobody serves asks for the right that it would need."""
    for method, path, who, status, code in (
            ("GET", "/ojs/v1/nope", None, 401, "permission_denied"),
            ("GET", "/ojs/v1/nope", "write-only", 403, "permission_denied"),
            ("GET", "/ojs/v1/nope", "read-only", 404, "not_found"),
            ("GET", "/ojs/v1/admin/nope", "read-write", 403,
             "permission_denied"),
            ("GET", "/ojs/v1/admin/nope", "admin", 404, "not_found"),
            ("PUT", "/ojs/v1/jobs", None, 401, "permission_denied"),
            ("PUT", "/ojs/v1/jobs", "write-only", 403, "permission_denied"),
            ("PUT", "/ojs/v1/jobs", "read-write", 405, "invalid_request"),
            ("ASSERT", "/x", None, 401, "permission_denied"),
            ("PUT", "/ojs/manifest", None, 405, "invalid_request")):
        problem(ojs.request(method, path, headers=role(who)), status, code)
    for text, status, said in (
            ("Bearer x", 401, "Bad token header"),
            (role("none")["Authorization"], 403, "Insufficient permissions")):
        denied(ojs.get("/ojs/v1/queues", headers={"Authorization": text}),
               status, said)


# Tenants

def state(db, tenant):
    """Every row of a tenant, as text: of the tables that name it, and of the
    schemas of its streams."""
    found = {}
    for table_, in db.rows(
            "select table_name from information_schema.columns join"
            " information_schema.tables using (table_schema, table_name)"
            " where table_schema = 'queen' and column_name = 'tenant'"
            " and table_type = 'BASE TABLE' and table_name like any"
            " (array['ojs%', 'job%', 'stream%', 'workflow%', 'cron%'])"):
        found[table_] = db.rows("select x::text from queen.%s x"
                                " where tenant = %%s order by 1" % table_,
                                (tenant,))
    for schema, name in db.rows(
            "select n.nspname, c.relname from pg_class c"
            " join pg_namespace n on n.oid = c.relnamespace"
            " join queen.ojs_queues q on n.nspname = 'queen_ojs_' || q.id"
            " where q.tenant = %s and c.relkind = 'r' and c.relpersistence ="
            " 'p'", (tenant,)):
        found[schema, name] = db.rows("select x::text from %s.%s x order by 1"
                                      % (schema, name))
    return found


def plain(reply, n):
    """(status, body) without the names asked for, ids and times."""
    text = json.dumps(reply.body) if not isinstance(reply.body, bytes) \
        else reply.body.decode()
    for name, value in n.words():
        if isinstance(value, str):
            text = text.replace(value, "<%s>" % name)
        elif reply.status >= 400:
            text = re.sub(r"\b%d\b" % value, "<number>", text)
    text = re.sub(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "<id>", text)
    text = re.sub(r"\d{4}-\d\d-\d\dT[0-9:.]+Z", "<time>", text)
    # of a sequence of the cell; how long ago
    text = re.sub(r'("batch": \{"id": )\d+', r"\1<batch>", text)
    return reply.status, re.sub(r'(_ms": )\d+', r"\1<ms>", text)


def asked(ojs, route, n, headers):
    path, body = ROUTES[route](n)
    reply = ojs.request(route[0], API + path, body, headers=headers)
    # 400 would be about the request, not about whose it is
    assert reply.status < 500 and reply.status != 400, (route, reply)
    assert headers is A or SECRET not in str(reply.body), (route, reply)
    return plain(reply, n)


@pytest.mark.cellenv(**TENANTS, **QUIET)
def test_two_tenants_never_meet(ojs, db):
    """B asks every route by A's names and ids: each answer is that for names
    nobody has, shows nothing A wrote, and changes no row of A."""
    real = settle(ojs, A)
    none = Names(False).like(real)
    before = state(db, OTHER_TENANT)
    full = {t if isinstance(t, str) else t[1] for t in before if before[t]}
    assert {"ojs_queues", "ojs_crons", "stream_dead_letters",
            "stream_batches", "stream_subscriptions"} <= full, full
    for route in READS:
        mine = asked(ojs, route, real, A)
        theirs = asked(ojs, route, real, B)
        assert theirs == asked(ojs, route, none, B), route
        assert mine != theirs, route
    assert state(db, OTHER_TENANT) == before
    for route in REST:
        assert asked(ojs, route, real, B) == asked(ojs, route, none, B), route
        assert state(db, OTHER_TENANT) == before, route
    # the default tenant saw nothing of either
    assert ojs.ask("GET", "/queues")["queues"] == []


@pytest.mark.cellenv(**TENANTS, **QUIET)
def test_the_header_of_tenants(ojs):
    for text, status, code in (("x", 400, "invalid_request"),
                               ("0" * 32, 400, "invalid_request"),
                               ("00000000-0000-0000-0000-000000000000", 403,
                                "permission_denied")):
        problem(ojs.get(API + "/queues", headers={"x-queen-tenant": text}),
                status, code)
    for path in PUBLIC:  # no tenant's
        assert ojs.get(path, headers={"x-queen-tenant": "x"}).status == 200
    mine = "x-queen-tenant: " + OTHER_TENANT
    assert exchange(ojs, request("GET", API + "/queues", None, mine,
                                 mine))[0] == 400


def test_the_header_needs_the_promise_of_a_proxy(new_ojs):
    one = new_ojs(QUEEN_TENANCY_HEADER="true").start(wait=False)
    assert one.wait_exit() == 2
    assert "QUEEN_KV_TRUSTED_PROXY=true" in one.log_text()
    # and is not read when nothing is said of tenants
    two = new_ojs(**QUIET).start()
    two.ask("POST", "/queues", {"name": "q"}, 201, headers=A)
    assert [q["name"] for q in two.ask("GET", "/queues")["queues"]] == ["q"]


# Read only

def test_a_gateway_that_only_reads(new_ojs, db):
    """Every GET as of any other; every mutation is refused and does nothing."""
    writer = new_ojs(**QUIET).start()
    reader = new_ojs(QUEEN_OJS_READ_ONLY="true", **QUIET).start()
    n = settle(writer)
    before = state(db, "00000000-0000-0000-0000-000000000001")
    for route in READS:
        path = API + ROUTES[route](n)[0]
        reply = reader.get(path)
        assert reply.status == 200, (route, reply)
        assert plain(reply, n) == plain(writer.get(path), n), route
        assert reader.request("HEAD", path).status == 200
    for path in PUBLIC:
        assert reader.get(path).status == 200
    for method, pattern in REST:
        path, body = ROUTES[method, pattern](n)
        error = problem(reader.request(method, API + path, body), 403,
                        "permission_denied")
        assert error["message"] == "This gateway is read-only", pattern
    assert state(db, "00000000-0000-0000-0000-000000000001") == before
    assert writer.job(n.active)["state"] == "active"
    assert reader.get("/ojs/manifest").headers["Content-Type"] == MEDIA

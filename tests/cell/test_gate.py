# SPDX-License-Identifier: Apache-2.0
"""
The way through the gate: skip list, level, token, tenant, size, in this order;
what is compared to the letter, what is never sent, what a boot says.
"""
import json
import re
import time

import pytest

import queenlib
from queenlib import OTHER_TENANT, TENANT, wait_until
from rawhttp import Raw, error_of
from test_auth import (SECRET, VECTOR_RW, bearer, refused, role, table,
                       token)

ON = dict(JWT_ENABLED="true", JWT_SECRET=SECRET)
TENANTS = dict(QUEEN_TENANCY_HEADER="true", QUEEN_KV_TRUSTED_PROXY="true",
               QUEEN_KV_REQUIRE_GRANT="false")
READ = "/api/v1/resources/queues"


# Order

def head(path, length, *lines):
    return ("POST %s HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\n"
            "Content-Length: %d\r\n%s\r\n" % (path, length, "".join(
                line + "\r\n" for line in lines))).encode()


@pytest.mark.cellenv(QUEEN_MAX_BODY_BYTES=4096, **ON, **TENANTS)
def test_token_then_tenant_then_size_before_any_body(cell):
    """Not a byte of the body has been sent when the answer comes."""
    auth = "Authorization: Bearer " + token(role="read-write")
    weak = "Authorization: Bearer " + token(role="read-only")
    good, bad = ("x-queen-tenant: " + t for t in (OTHER_TENANT, "junk"))
    shape = "invalid x-queen-tenant header (must be a UUID)"
    for lines, status, text in (
            ([bad], 401, "Authentication required"),
            ([weak, bad], 403, "Insufficient permissions"),
            ([auth, bad], 400, shape),
            ([auth, good], 413, None)):
        with Raw(cell) as raw:
            assert raw.send(head("/api/v1/push", 1 << 30, *lines))
            answer = raw.answer()
            assert answer[0] == status, (lines, answer)
            assert text is None or error_of(answer) == text
    # what nobody serves asks for a token before it says so
    with Raw(cell) as raw:
        assert raw.send(head("/nowhere", 1 << 30))
        assert raw.answer()[0] == 401


@pytest.mark.cellenv(**ON)
def test_a_body_of_a_stranger_is_not_kept(cell):
    """64 MiB are announced by 40 strangers: memory does not grow."""
    def rss_mb():
        with open("/proc/%d/statm" % cell.proc.pid) as f:
            return int(f.read().split()[1]) * 4096 / 1e6

    before = rss_mb()
    raws = [Raw(cell) for _ in range(40)]
    try:
        for raw in raws:
            raw.send(head("/api/v1/push", 64 << 20) + b"x" * 65536)
        assert {raw.answer()[0] for raw in raws} == {401}
        assert rss_mb() - before < 40
    finally:
        for raw in raws:
            raw.sock.close()


# Headers

@pytest.mark.cellenv(**ON)
def test_what_is_no_usable_authorization(cell):
    def ask(value):
        with Raw(cell) as raw:
            raw.send(b"GET %s HTTP/1.1\r\nHost: h\r\nAuthorization: %s\r\n\r\n"
                     % (READ.encode(), value))
            answer = raw.answer()
            return answer[0], error_of(answer), answer[1]

    for value in (b"", b"Bearer \xc3\xa9", b"\xff"):
        assert ask(value)[:2] == (401, "Authentication required"), value
    for value in (b"Basic dXNlcjpwdw==", b"bearer", b"Bearer x.y.z"):
        assert ask(value)[:2] == (401, "Bad token header"), value
    for value in ("Bearer ", "bearer ", "BEARER ", "bEaReR ", ""):
        assert cell.get(READ, headers={
            "Authorization": value + VECTOR_RW}).status == 200, value
    # nothing that makes a browser ask, and no door for its scripts
    _, _, headers = ask(b"Bearer x.y.z")
    for name in headers:
        assert name != "www-authenticate" \
            and not name.startswith("access-control-"), name


@pytest.mark.cellenv(**ON)
def test_paths_are_taken_as_they_are(cell):
    """No case folding and no tidying up: what differs is no public path."""
    assert cell.get("/health").status == 200
    assert cell.get("/health?x=1").status == 200
    for path in ("/Health", "/HEALTH", "//health", "/health/", "/./health",
                 "/x/../health", "/%68ealth/x", "/metrics/", "/auth/mE",
                 "/api/v1/../../health"):
        reply = cell.get(path)
        assert reply.status in (400, 401), (path, reply)
    assert cell.get("/api/v1/PUSH", headers=role("write-only")).status == 403


@pytest.mark.cellenv(JWT_SKIP_PATHS="", **ON)
def test_an_empty_skip_list_is_empty(cell):
    """Public are the levels; nothing more is skipped, and / is public too."""
    assert cell.get("/health").status == 200
    assert cell.get("/").status == 404
    assert cell.get(READ).status == 401


@pytest.mark.cellenv(JWT_SKIP_PATHS=READ + ", /api/v1/system/ ,/", **ON)
def test_skipping_goes_before_levels_and_tokens(cell):
    assert cell.get(READ, headers=bearer("junk")).status == 200
    assert cell.get(READ + "/q").status == 401
    # a prefix lets even administration by
    assert cell.get("/api/v1/system/kv-timers").status == 200
    assert cell.get("/api/v1/system").status == 401
    # skipped is nobody: no name is taken from the token
    assert cell.get("/api/v1/systems/").status == 401


@pytest.mark.cellenv(JWT_SKIP_PATHS="/api/v1/push", **ON)
def test_who_is_skipped_has_no_name(cell):
    reply = cell.post("/api/v1/push", {"items": [
        {"queue": "q", "payload": 1}]}, headers=bearer(VECTOR_RW))
    assert reply.status == 201
    m, = cell.pop("q", subscriptionMode="all", headers=bearer(VECTOR_RW))
    assert m.get("producerSub") is None


@pytest.mark.cellenv(**ON)
def test_head_asks_for_what_get_asks(cell):
    levels = {"public": None, "read": "read-only", "admin": "admin",
              "read_write": "read-write"}
    seen = 0
    for method, pattern, level in table():
        if method != "GET" or "/pop" in pattern:
            continue
        path = re.sub(r"[:*]\w+", "x", pattern)
        if level != "public":
            assert cell.request("HEAD", path).status == 401, path
        if level == "admin":
            assert cell.request("HEAD", path, headers=role(
                "read-write")).status == 403, path
        one, other = (cell.request(verb, path, headers=role(levels[level]))
                      for verb in ("HEAD", "GET"))
        assert (one.status, one.body) == (other.status, b""), path
        seen += 1
    assert seen > 30


# Claims

@pytest.mark.cellenv(JWT_CLOCK_SKEW=30, **ON)
def test_times_within_the_skew(cell):
    def ask(**claims):
        return cell.get(READ, headers=bearer(token(role="admin", **claims)))

    def at(**offsets):
        now = int(time.time())
        return ask(**{k: now + v for k, v in offsets.items()})

    assert at(exp=-28).status == 200
    refused(at(exp=-31), 401, "Token has expired")
    assert at(nbf=30).status == 200
    refused(at(nbf=33), 401, "Token not yet valid")
    assert at(iat=30).status == 200
    refused(at(iat=33), 401, "Token issued in the future")
    assert at(exp=3600.9, nbf=-0.5, iat=-0.5).status == 200
    assert ask().status == 200      # no exp: for ever
    for name in ("exp", "nbf", "iat"):
        for value in ("soon", None, True, [1], {"a": 1}, "1700000000"):
            reply = ask(**{name: value})
            assert reply.status == 401, (name, value)
    # the first fault answers
    refused(at(exp=-60, nbf=60, iat=60), 401, "Token has expired")
    refused(at(nbf=60, iat=60), 401, "Token not yet valid")


@pytest.mark.cellenv(JWT_ROLES_CLAIM="realm.role", JWT_ROLES_ARRAY_CLAIM="can",
                     JWT_ROLE_ADMIN="boss", JWT_ROLE_READ_ONLY="viewer", **ON)
def test_roles_have_the_names_they_are_given(cell):
    def ask(method="GET", path=READ, **claims):
        return cell.request(method, path, headers=bearer(token(claims)))

    assert ask(**{"realm.role": "viewer"}).status == 200
    assert ask(can=["nothing", 5, None, "viewer"]).status == 200
    assert ask(realm={"role": "viewer"}).status == 403     # literal keys
    assert ask(role="admin", roles=["admin"]).status == 403
    system = "/api/v1/system/kv-timers"
    assert ask(path=system, can=["boss"]).status == 200
    assert ask(path=system, **{"realm.role": "viewer"}).status == 403
    # a set, not a ladder: both of a token's claims count
    assert ask(path=system, can=["boss"], **{"realm.role": "viewer"}
               ).status == 200


# Tenants

@pytest.mark.cellenv(**TENANTS, **ON)
def test_a_token_is_of_no_tenant(cell):
    for tenant in (TENANT, OTHER_TENANT):
        headers = {**role("admin"), "x-queen-tenant": tenant}
        assert cell.get(READ, headers=headers).body == {"queues": []}
        cell.push("q", [1], headers=headers)
        assert len(cell.get(READ, headers=headers).body["queues"]) == 1


def test_the_header_is_not_read_unless_told(cell):
    cell.push("q", [1])
    for text in ("junk", OTHER_TENANT, "00000000-0000-0000-0000-000000000000"):
        reply = cell.get(READ, headers={"x-queen-tenant": text})
        assert reply.status == 200
        assert [q["name"] for q in reply.body["queues"]] == ["q"]


@pytest.mark.cellenv(**TENANTS)
def test_headers_that_are_no_uuid(cell):
    for value, status in ((b"\xc3\xa9", 400), (b"0" * 36, 400),
                          (b"  " + OTHER_TENANT.encode() + b"  ", 200)):
        with Raw(cell) as raw:
            raw.send(b"GET %s HTTP/1.1\r\nHost: h\r\nX-Queen-Tenant: %s\r\n\r\n"
                     % (READ.encode(), value))
            assert raw.answer()[0] == status, value
    # health and metrics are no tenant's
    assert cell.get("/health", headers={"x-queen-tenant": "x"}).status == 200


# Who am I

@pytest.mark.cellenv(QUEEN_SERVER_ID="cell-7")
def test_the_standalone_identity_is_exactly_this(cell):
    assert cell.get("/auth/me").body == {
        "user_id": "standalone", "email": None, "tenant_slug": "local",
        "is_operator": True, "operator_enabled": True, "operator_live": True,
        "acting_cluster": {"id": "local", "slug": "local"},
        "clusters": [{"id": "local", "slug": "local", "role": "admin",
                      "tenant_slug": "local", "tenant_id": TENANT,
                      "status": "active", "cell_slug": "cell-7"}],
        "act_cluster_header": "x-queen-act-cluster", "role": "admin",
        "cluster": None, "standalone": True}


# What a boot says

def test_secrets_are_printed_as_their_length(new_cell):
    one = new_cell(QUEEN_ENCRYPTION_KEY="11" * 32, **ON).start()
    text = one.log_text()
    assert re.search(r' JWT_SECRET="?<set:%d chars>' % len(SECRET), text)
    assert re.search(r' QUEEN_ENCRYPTION_KEY="?<set:64 chars>', text)
    assert SECRET not in text and "11" * 32 not in text
    assert re.search(r"INFO auth +tokens are required algorithm=HS256"
                     r' skip="?/health,/metrics/prometheus,/metrics,/"?\n',
                     text)
    one.get(READ, headers=bearer(VECTOR_RW))
    one.get(READ, headers=bearer("junk." + VECTOR_RW))
    text = one.log_text()
    assert VECTOR_RW not in text and VECTOR_RW.split(".")[2] not in text


def test_key_hosts_in_clear_or_away(new_cell):
    """http is warned of; a host that is not there is no reason not to start,
    and HS tokens go on."""
    port = queenlib.Port()
    try:
        one = new_cell(JWT_ALGORITHM="auto", JWT_JWKS_URL="http://127.0.0.1:%d/"
                       % port.number, **ON).start()
        assert one.get(READ, headers=bearer(VECTOR_RW)).status == 200
        wait_until(lambda: re.search(r" WARN +jwks .*http", one.log_text())
                   or re.search(r" WARN +auth .*http", one.log_text()),
                   what=one.log_text())
    finally:
        port.give()


@pytest.mark.parametrize("algorithm", [
    "HS256", "HS384", "HS512", "RS256", "RS384", "RS512", "EdDSA", "auto",
    "none", "ES256", "hs256", "HS257", "", "*", "HS256,RS256"])
def test_the_set_of_algorithms_at_boot(new_cell, algorithm):
    """Exactly those that requests know; a refusal lists them all."""
    one = new_cell(JWT_ALGORITHM=algorithm, JWT_PUBLIC_KEY="x", **ON).start(
        wait=False)
    if algorithm in ("HS256", "HS384", "HS512", "RS256", "RS384", "RS512",
                     "EdDSA", "auto"):
        one.expected_end = False
        wait_until(one._healthy)
        return
    assert one.wait_exit() == 2
    for name in ("HS256", "HS384", "HS512", "RS256", "RS384", "RS512", "EdDSA",
                 "auto"):
        assert name in one.log_text(), name


# Reads by POST

@pytest.mark.cellenv(**ON)
def test_posts_that_read_are_for_readers(cell):
    cell.push("q", [1], headers=role("admin"))
    cell.post("/api/v1/kv", [{"op": "put", "ns": "n", "key": "k", "value": 1,
                              "forever": True}], headers=role("admin"))
    for path, body in (
            ("/api/v1/fetch", {"entries": [{"queue": "q", "offset": 0}]}),
            ("/api/v1/partitions/changed", {"entries": [{"queue": "q"}]}),
            ("/api/v1/resources/kv/list", {"ns": "n"})):
        assert cell.post(path, body, headers=role("read-only")).status == 200
        refused(cell.post(path, body, headers=role("write-only")), 403,
                "Insufficient permissions")
    for method, path, body in (
            ("POST", "/api/v1/kv", [{"op": "get", "ns": "n", "key": "k"}]),
            ("PUT", "/api/v1/kv/n/k", {"value": 1, "forever": True}),
            ("DELETE", "/api/v1/timers/q/k", None)):
        for name in ("read-only", "write-only"):
            refused(cell.request(method, path, body, headers=role(name)), 403,
                    "Insufficient permissions")
    assert cell.post("/api/v1/timers", [{
        "op": "schedule", "queue": "q", "timerKey": "k", "delayMs": 3600000,
        "txn": "t", "payload": "MQ=="}], headers=bearer(
            token(role="write-only", sub="clock"))).status == 200
    assert cell.get("/api/v1/timers/q/k", headers=role("read-only")).body[
        "producerSub"] == "clock"
    assert json.dumps(cell.get("/api/v1/kv/n/k", headers=role(
        "read-only")).body["value"]) == "1"

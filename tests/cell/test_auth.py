# SPDX-License-Identifier: Apache-2.0
"""Tokens: every route against every role, the texts of refusals, paths that
skip, keys that are fetched."""
import contextlib
import hashlib
import hmac
import json
import os
import re
import time

import pytest

import queenlib
from keykit import Authority, EdKey, KeyServer, b64
from queenlib import wait_until
from rawhttp import Raw, error_of, exchange, request
from test_encryption_keys import holders

SECRET = "cell-test-secret-0123456789abcdef"
VECTOR_RW = (
    "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9."
    "eyJzdWIiOiJzdmMtb3JkZXJzIiwicm9sZSI6InJlYWQtd3JpdGUifQ."
    "JIy87w66i5Ygvf_NDDh5JpEiNljgfA-px2AIm7Nd2Lg")
VECTOR_512 = (
    "eyJhbGciOiJIUzUxMiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiJzdmMtb3JkZXJzIiwicm9sZX"
    "MiOlsid3JpdGUtb25seSJdLCJpYXQiOjE3MDAwMDAwMDAsImV4cCI6NDEwMjQ0NDgwMH0."
    "gGYjd_zSh8hZLJL4Axpt4EIKXDHGWVOxoqpGOIEFPSD7l6xBOXl_OxNWZ80Z9wFotd1chFd5"
    "RG_sxXeB-Bty8w")
ROLES = {
    "public": {None, "read-only", "write-only", "read-write", "admin"},
    "read": {"read-only", "read-write", "admin"},
    "write": {"write-only", "read-write", "admin"},
    "read_write": {"read-write", "admin"},
    "admin": {"admin"},
}
ON = dict(JWT_ENABLED="true", JWT_SECRET=SECRET)
PUSH = "/api/v1/push"
ITEM = {"items": [{"queue": "q", "payload": 1}]}


def token(claims=None, secret=SECRET, **more):
    head = b64(json.dumps({"alg": "HS256", "typ": "JWT"}).encode())
    body = b64(json.dumps({**(claims or {}), **more}).encode())
    mac = hmac.new(secret.encode(), (head + "." + body).encode(),
                   hashlib.sha256).digest()
    return head + "." + body + "." + b64(mac)


def bearer(text):
    return {"Authorization": "Bearer " + text}


def role(name):
    return bearer(token(role=name)) if name else {}


def table():
    """(method, pattern, level) as served."""
    with open(os.path.join(queenlib.ROOT, "bin/queend/route.c")) as f:
        src = f.read()
    names = dict(re.findall(r"#define (\w+) (.*)", src))

    def text(expr):
        return "".join(text(names[w]) if w in names else w.strip('"')
                       for w in expr.split())

    src = src[src.index("route_table[] = {"):src.index("};")]
    for m, expr, level in re.findall(
            r'\{ HSRV_(\w+), ([^}]*?),\s*\w+,\s*GATE_(\w+) \}', src):
        yield m, text(expr), level.lower()


def refused(reply, status, text):
    assert reply.status == status, reply
    assert reply.body == {"error": text}


@pytest.mark.cellenv(**ON)
def test_every_route_for_every_role(cell):
    routes = list(table())
    assert len(routes) > 60
    for method, pattern, level in routes:
        path = re.sub(r"[:*]\w+", "x", pattern)
        for name in (None, "read-only", "write-only", "read-write", "admin"):
            reply = cell.request(method, path, b"" if method != "GET" else
                                 None, headers=role(name))
            at = (method, pattern, name, reply)
            if name in ROLES[level]:
                assert reply.status != 403, at
                assert path.startswith("/auth/") or reply.status != 401, at
            elif name is None:
                assert (reply.status, reply.body) == (
                    401, {"error": "Authentication required"}), at
            else:
                assert (reply.status, reply.body) == (
                    403, {"error": "Insufficient permissions"}), at


# Families of later releases, and of tools beside queend: their paths ask for
# the right they will need, so a token can be made before they are there.
ABSENT = [
    ("GET", "/api/v1/analytics/dlq-signatures", "read"),
    ("GET", "/api/v1/analytics/partition-liveness", "read"),
    ("GET", "/api/v1/analytics/queue-parked-replicas", "read"),
    ("GET", "/api/v1/analytics/system-metrics", "read"),
    ("GET", "/api/v1/analytics/worker-metrics", "read"),
    ("GET", "/api/v1/analytics/workload", "read"),
    ("POST", "/api/v1/connectors", "admin"),
    ("GET", "/api/v1/ephemeral/queues", "read"),
    ("GET", "/api/v1/ephemeral/queues/x", "read"),
    ("POST", "/api/v1/ephemeral/push", "write"),
    ("POST", "/api/v1/ephemeral/ack", "read_write"),
    ("POST", "/api/v1/ephemeral/configure", "read_write"),
    ("GET", "/api/v1/ephemeral/pop/x", "read_write"),
    ("POST", "/api/v1/ephemeral/queues/x/reset", "read_write"),
    ("DELETE", "/api/v1/ephemeral/queues/x", "read_write"),
    ("POST", "/api/v1/locks", "read_write"),
    ("GET", "/api/v1/system/ephemeral", "admin"),
    ("POST", "/api/v1/system/ephemeral", "admin"),
    ("GET", "/internal/api/x", "admin"),
    ("POST", "/streams/v1/queries", "read_write"),
    ("POST", "/streams/v1/cycle", "read_write"),
    ("POST", "/streams/v1/state/get", "read"),
    ("GET", "/favicon.ico", "public"),
    ("GET", "/assets/x.js", "public"),
]


@pytest.mark.cellenv(**ON)
def test_families_that_are_not_here_ask_for_their_right(cell):
    served = {(m, re.sub(r"[:*]\w+", "x", p)) for m, p, _ in table()}
    for method, path, level in ABSENT:
        assert (method, path) not in served, "it is here now"
        for name in (None, "read-only", "write-only", "read-write", "admin"):
            reply = cell.request(method, path, headers=role(name))
            at = (method, path, name, reply)
            if name in ROLES[level]:
                assert reply.status == 404, at
            elif name is None:
                assert (reply.status, reply.body) == (
                    401, {"error": "Authentication required"}), at
            else:
                assert (reply.status, reply.body) == (
                    403, {"error": "Insufficient permissions"}), at


@pytest.mark.cellenv(**ON)
def test_unknown_paths_ask_for_a_token_first(cell):
    refused(cell.get("/nonexistent"), 401, "Authentication required")
    refused(cell.get("/nonexistent", headers=role("read-only")), 403,
            "Insufficient permissions")
    assert cell.get("/nonexistent", headers=role("read-write")).status == 404
    refused(cell.post("/api/v1/system/x", {}, headers=role("read-write")), 403,
            "Insufficient permissions")
    assert cell.get("/favicon.ico").status == 404


@pytest.mark.cellenv(**ON)
def test_refusals(cell):
    now = int(time.time())
    path = "/api/v1/status/buffers"
    for headers, text in (
            ({}, "Authentication required"),
            (bearer("x"), "Bad token header"),
            (bearer(VECTOR_512), "Unsupported token algorithm"),
            (bearer(token(role="admin", secret="other")),
             "Invalid token signature"),
            (bearer(token(role="admin", exp=now - 40)), "Token has expired"),
            (bearer(token(role="admin", nbf=now + 60)), "Token not yet valid"),
            (bearer(token(role="admin", iat=now + 60)),
             "Token issued in the future")):
        refused(cell.get(path, headers=headers), 401, text)
    assert cell.get(path, headers=bearer(
        token(role="admin", exp=now - 20))).status == 200
    refused(cell.get(path, headers=bearer(token(role="none"))), 403,
            "Insufficient permissions")
    # HEAD is GET; a bare token is a token
    assert cell.request("HEAD", path, headers=role("read-only")).status == 200
    assert cell.get(path, headers={"Authorization": VECTOR_RW}).status == 200


@pytest.mark.cellenv(**ON)
def test_headers_that_stand_twice(cell):
    """Which of two would count is nobody's to guess."""
    good = "Authorization: Bearer " + VECTOR_RW
    for fields, status in (
            ([good], 200), ([good, good], 401),
            ([good, "authorization: x"], 401),
            (["Authorization:", good], 401)):
        answer = exchange(cell, request("GET", "/status", None, *fields))
        assert answer[0] == status, fields
        if status == 401:
            assert error_of(answer) == "Authentication required"


def token_of_bytes(n):
    """A good token of that many bytes."""
    for head in range(4):
        for pad in range(n * 3 // 4 - 100, n * 3 // 4):
            parts = [b64(json.dumps({"alg": "HS256"}).encode() + b" " * head),
                     b64(b'{"role":"admin"}' + b" " * pad)]
            text = ".".join(parts)
            if len(text) + 1 + 43 == n:
                mac = hmac.new(SECRET.encode(), text.encode(),
                               hashlib.sha256).digest()
                return text + "." + b64(mac)
    raise AssertionError(n)


@pytest.mark.cellenv(**ON)
def test_the_longest_token(cell):
    assert cell.get("/status", headers=bearer(
        token_of_bytes(16384))).status == 200
    refused(cell.get("/status", headers=bearer(token_of_bytes(16385))), 401,
            "Bad token header")
    # beyond what any head may hold
    answer = exchange(cell, request("GET", "/status", None, "Authorization: "
                                    + "x" * 40000))
    assert answer[0] == 431


@pytest.mark.parametrize("in_file", [False, True])
def test_the_secret_lies_in_guarded_memory_alone(new_cell, folder, in_file):
    """As the keys of payloads: locked, not in a core dump, not in what /proc
    shows of the environment, also after it has been used."""
    secret = "a-jwt-secret-that-is-nowhere-else-0123456789"
    env = {"JWT_SECRET": secret}
    if in_file:
        path = os.path.join(folder, "secret")
        with open(path, "w") as f:
            f.write(secret + "\n")
        env = {"JWT_SECRET_FILE": path}
    one = new_cell(JWT_ENABLED="true", PG_PASSWORD="not-asked-for-0123",
                   **env).start()
    for _ in range(10):
        assert one.get("/status", headers=bearer(
            token(role="admin", secret=secret))).status == 200
    refused(one.get("/status", headers=bearer(token(role="admin"))), 401,
            "Invalid token signature")
    if not queenlib.SAN:  # which locks nothing and copies the environment
        flags, = holders(one.proc.pid, secret.encode())
        assert "dd" in flags and "lo" in flags and "wr" not in flags, flags
    with open("/proc/%d/environ" % one.proc.pid, "rb") as f:
        shown = f.read()
    assert b"PG_DATABASE=" in shown
    assert secret.encode() not in shown and b"not-asked-for" not in shown
    assert secret not in one.log_text()


@pytest.mark.cellenv(JWT_ALGORITHM="auto", **ON)
def test_vectors(cell):
    body = {"items": [{"queue": "q", "payload": 1, "producerSub": "forged"}]}
    for text in (VECTOR_512, VECTOR_RW):
        assert cell.post("/api/v1/push", body,
                         headers=bearer(text)).status == 201
    refused(cell.get("/api/v1/pop/queue/q", headers=bearer(VECTOR_512)), 403,
            "Insufficient permissions")
    reply = cell.post("/api/v1/transaction", {"operations": [
        {"type": "push", "items": body["items"]}]}, headers=bearer(VECTOR_RW))
    assert reply.body["success"] is True
    messages = cell.pop("q", batch=10, subscriptionMode="all",
                        headers=bearer(VECTOR_RW))
    assert [m["producerSub"] for m in messages] == ["svc-orders"] * 3


def test_without_tokens_nobody_is_named(cell):
    cell.post("/api/v1/push", {"items": [
        {"queue": "q", "payload": 1, "producerSub": "forged"}]})
    assert not cell.pop("q", subscriptionMode="all")[0].get("producerSub")


@pytest.mark.cellenv(JWT_SKIP_PATHS="/status,/api/v1/analytics/", **ON)
def test_skip_list(cell):
    assert cell.get("/status").status == 200
    assert cell.get("/status", headers=bearer("junk")).status == 200
    assert cell.get("/api/v1/analytics/queue-lag").status == 200
    assert cell.get("/api/v1/status/buffers").status == 401
    assert cell.get("/health").status == 200


@pytest.mark.cellenv(**ON)
def test_an_escaped_path_has_the_level_of_its_route(cell):
    assert cell.get("/%68ealth").status == 200
    for path in ("/api/v1/system/%6daintenance", "/api/v1/%73ystem/maintenance"):
        refused(cell.get(path, headers=role("read-write")), 403,
                "Insufficient permissions")
        assert cell.get(path, headers=role("admin")).status == 200


@pytest.mark.cellenv(JWT_ISSUER="me", JWT_AUDIENCE="you", **ON)
def test_issuer_and_audience(cell):
    path = "/api/v1/status/buffers"
    refused(cell.get(path, headers=bearer(token(role="admin"))), 401,
            "Invalid token issuer")
    refused(cell.get(path, headers=bearer(
        token(role="admin", iss="me", aud=["x"]))), 401,
        "Invalid token audience")
    assert cell.get(path, headers=bearer(
        token(role="admin", iss="me", aud=["x", "you"]))).status == 200


@pytest.mark.parametrize("env, text", [
    (dict(JWT_ENABLED="true"), "JWT_SECRET"),
    (dict(JWT_ENABLED="true", JWT_ALGORITHM="RS256", JWT_SECRET="x"),
     "JWT_PUBLIC_KEY"),
    (dict(JWT_ENABLED="true", JWT_ALGORITHM="hs256", JWT_SECRET="x"),
     "EdDSA"),
    (dict(JWT_ENABLED="maybe"), "JWT_ENABLED"),
    (dict(QUEEN_TENANCY_HEADER="true"), "QUEEN_KV_TRUSTED_PROXY"),
])
def test_settings_that_end_the_boot(new_cell, env, text):
    one = new_cell(**env).start(wait=False)
    assert one.wait_exit() == 2
    assert text in one.log_text()


def test_the_secret_may_be_in_a_file(new_cell, folder):
    path = os.path.join(folder, "secret")
    with open(path, "w") as f:
        f.write(SECRET + "\n")
    one = new_cell(JWT_ENABLED="true", JWT_SECRET_FILE=path).start()
    assert one.get("/status", headers=bearer(VECTOR_RW)).status == 200
    assert SECRET not in one.log_text()


@pytest.mark.cellenv(JWT_ENABLED="true", JWT_ALGORITHM="RS256",
                     JWT_PUBLIC_KEY="no pem")
def test_a_key_that_is_none_is_an_error_per_request(cell):
    head = b64(b'{"alg":"RS256"}')
    refused(cell.get("/status", headers=bearer(
        head + "." + b64(b"{}") + "." + b64(b"x"))), 500,
        "invalid RSA public key PEM")


def test_identity_without_tokens(cell):
    reply = cell.get("/auth/me")
    assert reply.status == 200
    assert reply.body["user_id"] == "standalone"
    assert reply.body["standalone"] is True and reply.body["email"] is None
    assert reply.body["clusters"][0]["tenant_id"] == queenlib.TENANT
    reply = cell.get("/auth/login")
    assert (reply.status, reply.headers["Location"]) == (302, "/")
    assert cell.post("/auth/logout").body == {"ok": True}


@pytest.mark.cellenv(**ON)
def test_identity_with_tokens(cell):
    reply = cell.get("/auth/me")
    assert (reply.status, reply.body) == (
        401, {"error": "auth_required", "code": "auth_required"})
    reply = cell.get("/auth/login")
    assert reply.status == 200
    assert reply.headers["Content-Type"].startswith("text/html")
    assert cell.post("/auth/logout").body == {"ok": True}


@pytest.fixture
def key_server():
    """key_server(context) -> a running KeyServer."""
    made = []

    def start(context=None):
        made.append(KeyServer(context))
        return made[-1]
    yield start
    for one in made:
        one.close()


def test_fetched_keys(new_cell, key_server, folder):
    """A new key is fetched when a token names it, while the request waits;
    with the host down the old ones serve, and it is left alone."""
    first, second = EdKey(folder, "one"), EdKey(folder, "two")
    keys = key_server()
    keys.keys = [first]
    one = new_cell(JWT_ENABLED="true", JWT_ALGORITHM="EdDSA",
                   JWT_JWKS_URL=keys.url).start()
    good, new = first.token(role="admin"), second.token(role="admin")
    wait_until(lambda: keys.hits == 1)
    wait_until(lambda: one.post(PUSH, ITEM,
                                headers=bearer(good)).status == 201)
    keys.keys = [first, second]
    wait_until(lambda: one.post(PUSH, ITEM,
                                headers=bearer(new)).status == 201)
    assert keys.hits == 2
    keys.up = False
    lost = first.token(kid="three", role="admin")
    for _ in range(20):
        refused(one.post(PUSH, ITEM, headers=bearer(lost)), 401,
                "Unknown key ID")
        assert one.post(PUSH, ITEM, headers=bearer(good)).status == 201
    assert keys.hits <= 4


def test_who_waits_for_keys_may_leave(new_cell, key_server, folder):
    """Requests wait for one fetch together; some of their clients are gone
    before it ends, and a server that stops answers none of them."""
    key = EdKey(folder, "k")
    keys = key_server()
    keys.keys = [key]
    keys.go.clear()
    one = new_cell(JWT_ENABLED="true", JWT_ALGORITHM="EdDSA",
                   JWT_JWKS_URL=keys.url, JWT_JWKS_TIMEOUT_MS="30000",
                   QUEEN_SHUTDOWN_GRACE_MS="100").start()
    wait_until(lambda: keys.hits == 1)
    asks = request("POST", PUSH, json.dumps(ITEM).encode(),
                   "Authorization: " + key.token(role="admin"))
    with contextlib.ExitStack() as stack:
        waiting = [stack.enter_context(Raw(one)) for _ in range(20)]
        for raw in waiting:
            raw.send(asks)
        # a later request of each is not looked at before
        assert one.get("/health").status == 200
        for raw in waiting[::2]:
            raw.sock.close()
        keys.go.set()
        for raw in waiting[1::2]:
            assert raw.answer()[0] == 201
    assert keys.hits == 1
    assert one.proc.poll() is None
    # and while it waits the server may end
    keys.go.clear()
    other = EdKey(folder, "other")
    lost = request("POST", PUSH, json.dumps(ITEM).encode(),
                   "Authorization: " + other.token(role="admin"))

    def asked_again():
        with Raw(one) as raw:
            raw.sock.settimeout(1)
            raw.send(lost)
            try:
                raw.answer()
            except OSError:  # it waits
                pass
        return keys.hits == 2
    wait_until(asked_again)
    assert one.term() == 0


def test_keys_that_are_not_there_at_boot(new_cell, key_server, folder):
    """Not fatal: said once, asked for when a token comes.  Over http there is
    a warning."""
    key = EdKey(folder, "k")
    keys = key_server()
    keys.up, keys.keys = False, [key]
    one = new_cell(JWT_ENABLED="true", JWT_ALGORITHM="auto", JWT_SECRET=SECRET,
                   JWT_JWKS_URL=keys.url, JWT_SKIP_PATHS="/a,/b/").start()
    wait_until(lambda: "cannot fetch the keys" in one.log_text())
    headers = bearer(key.token(role="admin"))
    refused(one.post(PUSH, ITEM, headers=headers), 401, "Unknown key ID")
    # the other family has what it needs
    assert one.post(PUSH, ITEM, headers=bearer(VECTOR_RW)).status == 201
    keys.up = True
    wait_until(lambda: one.post(PUSH, ITEM, headers=headers).status == 201)
    log = one.log_text()
    assert log.count("cannot fetch the keys") == 1
    assert "WARN jwks  keys of tokens fetched in clear can be forged" in log
    assert "fetched the keys of tokens host=127.0.0.1 keys=1" in log
    assert 'tokens are required algorithm=auto skip="/a,/b/"' in log
    assert 'JWT_SECRET="<set:%d chars>"' % len(SECRET) in log
    assert SECRET not in log


def test_keys_over_https_of_a_private_authority(new_cell, key_server, folder):
    """QUEEN_CA_FILE says who is trusted: with it the fetch succeeds, and
    nobody else's certificate does, nor one for another name, nor an old one.
    Without it the distribution's authorities count, and none of them."""
    key, ours = EdKey(folder, "k"), Authority(folder, "ours")
    theirs = Authority(folder, "theirs")
    headers = bearer(key.token(role="admin"))
    here = "IP:127.0.0.1,DNS:localhost"
    cases = (
        (ours.pem, ours.issue("good", here), None),
        (None, ours.issue("good2", here), "issuer certificate"),
        (theirs.pem, ours.issue("good3", here), "issuer certificate"),
        (ours.pem, ours.issue("name", "DNS:other.example"),
         "127.0.0.1"),
        (ours.pem, ours.issue("old", here, until="20210101000000Z"),
         "certificate has expired"))
    for ca, context, fault in cases:
        keys = key_server(context)
        keys.keys = [key]
        one = new_cell(JWT_ENABLED="true", JWT_ALGORITHM="EdDSA",
                       JWT_JWKS_URL=keys.url, QUEEN_CA_FILE=ca).start()
        if fault is None:
            wait_until(lambda: one.post(
                PUSH, ITEM, headers=headers).status == 201)
            assert keys.hits == 1
            assert "fetched the keys of tokens" in one.log_text()
        else:
            wait_until(lambda: "cannot fetch the keys" in one.log_text())
            line, = [x for x in one.log_text().splitlines()
                     if "cannot fetch the keys" in x]
            assert fault in line, line
            refused(one.post(PUSH, ITEM, headers=headers), 401,
                    "Unknown key ID")
            assert (keys.tries, keys.hits) == (1, 0)
        one.term()

# SPDX-License-Identifier: Apache-2.0
"""
field-faults B7: two tenants with everything by the same names, real tokens, and
the whole table of routes.  A reader changes nothing; what one tenant asks with
the other's ids and names is answered to the byte as if there were none, and
leaves every row of the other as it was.
"""
import base64
import json
import re
import threading

import pytest

from queenlib import OTHER_TENANT, wait_until
from test_auth import SECRET, bearer, token
from test_badinput import bodies, served

A, B = OTHER_TENANT, "00000000-0000-0000-0000-0000000000bb"
API = "/api/v1"
ON = dict(JWT_ENABLED="true", JWT_SECRET=SECRET, QUEEN_TENANCY_HEADER="true",
          QUEEN_KV_TRUSTED_PROXY="true", QUEEN_KV_REQUIRE_GRANT="false",
          QUEEN_KV_READ_RATE=0, QUEEN_KV_WRITE_RATE=0, QUEEN_KV_CELL_RATE=0,
          QUEEN_SWEEPER="false", STATS_INTERVAL_MS=1000)
# reads that are sent with POST
READS = {API + "/fetch", API + "/partitions/changed",
         API + "/resources/kv/list"}
# of the cell or of nobody, not of a tenant
OF_NOBODY = {"/auth/logout", API + "/stats/refresh",
             API + "/system/maintenance", API + "/system/maintenance/pop",
             API + "/system/kv-timers"}
OF_CELL = {API + "/status", API + "/status/buffers",
           API + "/analytics/postgres-stats"}
OWN = ("kv_quota", "kv_usage", "kv", "timers", "traces", "trace_names",
       "queues")
SINK = {"kind": "sink", "enabled": False,
        "connection": {"host": "h", "database": "d", "user": "u"},
        "sink": {"queue": "orders", "table": "t", "mode": "append"}}
BY_QUEUE = ("partitions", "partition_heads", "groups", "dead_letters")
BY_PART = ("segments", "segment_ids", "consumers")

pytestmark = pytest.mark.cellenv(**ON)


def who(tenant, role="admin"):
    return {**bearer(token(role=role, sub="svc")), "x-queen-tenant": tenant}


class Tenant:
    """What one has, and where."""

    def __init__(self, cell, uuid):
        self.cell, self.uuid = cell, uuid
        self.headers = who(uuid)
        self.fill()

    def call(self, method, path, body=None, status=200):
        reply = self.cell.request(method, path, body, headers=self.headers)
        assert reply.status == status, reply
        return reply.body

    def pop(self, **query):
        m, = self.cell.pop("orders", group="billing", subscriptionMode="all",
                           headers=self.headers, batch=1, **query)
        return m

    def fill(self):
        cell, h = self.cell, self.headers
        mine = self.uuid[-2:]
        cell.push("orders", [mine + "0", mine + "1", mine + "2"],
                  ids=["t0", "t1", "t2"], partition="p", headers=h)
        m = self.pop()
        cell.ack([m], group="billing", status="dlq", error="why", headers=h)
        m = self.pop(leaseSeconds=3600)
        assert m["transactionId"] == "t1" and m["data"] == mine + "1"
        self.part, self.lease = m["partitionId"], m["leaseId"]
        self.dead, = [d["id"] for d in self.call(
            "GET", API + "/dlq?queue=orders")["messages"]]
        self.call("POST", API + "/traces", {
            "partitionId": self.part, "transactionId": "t1",
            "traceNames": ["trace"], "data": {"text": mine}}, 201)
        self.call("POST", API + "/kv", [{
            "op": "put", "ns": "n", "key": "k", "value": mine,
            "forever": True}])
        self.call("POST", API + "/timers", [{
            "op": "schedule", "queue": "later", "timerKey": "k",
            "delayMs": 3600000, "txn": "t",
            "payload": base64.b64encode(json.dumps(mine).encode()).decode()}])
        self.call("PUT", API + "/connectors/copy", SINK)

    def rows(self):
        """Every row of the tenant, whole, by table."""
        db, found = self.cell.db, {}
        where = [(t, "x.tenant = %s") for t in OWN]
        mine = " in (select id from queen.queues where tenant = %s)"
        where += [(t, "x.queue_id" + mine) for t in BY_QUEUE]
        where += [(t, "x.partition_id in (select id from queen.partitions"
                   " where queue_id" + mine + ")") for t in BY_PART]
        for table, cond in where:
            found[table] = [r[0] for r in db.rows(
                "select to_jsonb(x)::text from queen.%s x where %s order by 1"
                % (table, cond), (self.uuid,))]
        found["connectors"] = db.rows(
            "select key, value::text from queen.kv where namespace = 'queen-pg'"
            " and key like 'conn:' || %s || ':%%'", (self.uuid,))
        return found


@pytest.fixture
def two(cell):
    a, b = Tenant(cell, A), Tenant(cell, B)
    for t in a, b:
        for table in OWN[2:] + BY_QUEUE + BY_PART + ("connectors",):
            assert t.rows()[table], table
    return a, b


def requests(names, ids):
    """(method, pattern, path, body) of every route, with these names and ids
    where a route takes one."""
    posts = bodies(ids["partitionId"], ids["id"], ids["leaseId"])
    renamed = {"q": names["queue"], "g": names["group"], "t": "t1",
               "n": names["ns"], "k": names["key"], "later": names["timers"]}

    def rename(v):
        if isinstance(v, dict):
            return {key: rename(x) for key, x in v.items()}
        if isinstance(v, list):
            return [rename(x) for x in v]
        return renamed.get(v, v) if isinstance(v, str) else v

    for method, pattern in served():
        path = []
        for word in pattern.split("/"):
            if word[:1] not in (":", "*"):
                path.append(word)
            elif word[1:] == "queue" and "/timers/" in pattern:
                path.append(names["timers"])
            else:
                path.append({**names, **ids}.get(word[1:]))
        assert None not in path, pattern
        body = None
        if method == "POST" and pattern in posts:
            body = rename(posts[pattern][1])
        elif method == "PUT":
            sink = {**SINK["sink"], "queue": names["queue"]}
            body = {**SINK, "sink": sink} if "/connectors/" in pattern \
                else {"value": "forged", "forever": True}
        elif pattern == API + "/dlq" and method in ("GET", "DELETE"):
            path[-1] += "?queue=" + names["queue"]
        yield method, pattern, "/".join(path), body


def of(t):
    return {"partitionId": t.part, "leaseId": t.lease, "id": t.dead,
            "transactionId": "t1"}


NAMES = {"queue": "orders", "group": "billing", "partition": "p", "ns": "n",
         "key": "k", "timers": "later", "timerKey": "k", "traceName": "trace",
         "name": "copy", "cluster": A}


def test_a_reader_changes_nothing(cell, two):
    """403 on everything that is no read, for both tenants."""
    before = [t.rows() for t in two]
    seen = 0
    for t in two:
        for method, pattern, path, body in requests(NAMES, of(t)):
            reply = cell.request(method, path, body,
                                 headers=who(t.uuid, "read-only"))
            if method == "GET" or pattern in READS:
                continue
            if pattern == "/auth/logout":
                assert reply.status == 200
                continue
            assert (reply.status, reply.body) == (
                403, {"error": "Insufficient permissions"}), (method, path)
            seen += 1
    assert seen > 50
    assert [t.rows() for t in two] == before


def test_a_reader_reads(cell, two):
    """What it may do it can: its own rows come back."""
    a, _ = two
    h = who(A, "read-only")
    fetched = cell.post(API + "/fetch", {"entries": [
        {"queue": "orders", "partition": "p", "offset": 0}]}, headers=h)
    assert [r["payload"] for r in fetched.body["entries"][0]["records"]] == [
        "aa0", "aa1", "aa2"]
    assert cell.post(API + "/resources/kv/list", {"ns": "n"}, headers=h).body[
        "rows"][0]["value"] == "aa"
    assert cell.get(API + "/kv/n/k", headers=h).body["value"] == "aa"
    assert cell.get(API + "/timers/later/k", headers=h).body["found"] is True
    assert cell.get(API + "/messages/%s/t1" % a.part, headers=h).body[
        "data"] == "aa1"
    for method, path in (("GET", API + "/pop/queue/orders"),
                         ("DELETE", API + "/kv/n/k"),
                         ("DELETE", API + "/timers/later/k")):
        assert cell.request(method, path, headers=h).status == 403


def test_no_route_changes_the_other_tenant(cell, two):
    """The whole table with admin rights and all the other's ids and names."""
    a, b = two
    before = a.rows()
    for method, pattern, path, body in requests(NAMES, of(a)):
        if pattern in OF_NOBODY:
            continue
        cell.request(method, path, body, headers=b.headers)
        assert a.rows() == before, (method, path, body)
    # it did change its own
    assert b.rows()["queues"] == b.rows()["connectors"] == []
    # and what is a's is still served
    assert cell.get(API + "/kv/n/k", headers=a.headers).body["value"] == "aa"
    assert cell.ack([{"transactionId": "t1", "partitionId": a.part,
                      "leaseId": a.lease}], group="billing",
                    headers=a.headers)[0]["success"] is True


NOW = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|\+00:00)")
UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
TICKS = re.compile(r'"(computedAgeMs|ageMs|uptime\w*|\w*[lL]ag\w*|version)"'
                   r': [0-9.]+')


def plain(reply, names, ids):
    """Status, headers that matter and body, without what was asked for."""
    text = json.dumps(reply.body, sort_keys=True) \
        if not isinstance(reply.body, bytes) else repr(reply.body)
    for value in sorted(list(ids.values()) + list(names.values()), key=len,
                        reverse=True):
        if len(value) > 4:
            text = text.replace(value, "#")
    for pattern in (NOW, UUID):
        text = pattern.sub("#", text)
    return (reply.status, reply.headers["Content-Type"],
            TICKS.sub(r"\1", text))


def test_what_is_anothers_is_what_is_not(cell, two):
    """To the byte, whether there is such a thing elsewhere or nowhere."""
    a, _ = two
    stranger = who("00000000-0000-0000-0000-0000000000cc")
    nobody = who("00000000-0000-0000-0000-0000000000dd")
    lost = dict(NAMES, queue="ordera", group="billinh")
    # of the same kind and form, of a partition that never was
    part = a.part[:-4] + "%04x" % (int(a.part[-4:], 16) ^ 0x0ff0)
    lease = "%s%s" % (a.lease[:-4], "0000")
    never = dict(of(a), partitionId=part, leaseId=lease,
                 id="019a0000-0000-7000-8000-000000000000")
    # while nothing is theirs first the reads, which make nothing
    there, nowhere = (sorted(requests(*x), key=lambda r: (
        r[0] != "GET" or "/pop" in r[1])) for x in (
        (NAMES, of(a)), (lost, never)))
    seen = 0
    for (method, pattern, path, body), (_, _, path2, body2) in zip(
            there, nowhere):
        if pattern in OF_NOBODY | OF_CELL or pattern.startswith((
                "/metrics", "/auth", "/health", "/status", "/internal",
                API + "/system")):
            continue
        one = cell.request(method, path, body, headers=stranger)
        two_ = cell.request(method, path2, body2, headers=nobody)
        if pattern == API + "/resources/tenant":
            # jobs take from what it counts
            assert one.status == two_.status == 200
            continue
        assert plain(one, NAMES, of(a)) == plain(two_, lost, never), (
            method, path)
        seen += 1
    assert seen > 45


def test_a_push_wakes_the_pops_of_its_tenant_alone(cell, two):
    """Parked pops on one name; the other tenant's stays parked."""
    got = {A: [], B: []}

    def wait_for(uuid):
        got[uuid] += cell.pop("jobs", group="g", wait=True, wait_ms=20000,
                              subscriptionMode="all", headers=who(uuid))

    threads = [threading.Thread(target=wait_for, args=(u,)) for u in (A, B)]
    for t in threads:
        t.start()

    def parked(n):
        return b"\nqueen_parked_pops %d\n" % n in cell.get(
            "/metrics/prometheus").body

    wait_until(lambda: parked(2))
    cell.push("jobs", ["for a"], headers=who(A))
    wait_until(lambda: got[A] and parked(1))
    assert got[B] == []
    cell.push("jobs", ["for b"], headers=who(B))
    for t in threads:
        t.join()
    assert [[m["data"] for m in got[u]] for u in (A, B)] == [
        ["for a"], ["for b"]]


def test_fired_timers_stay_with_their_tenant(new_cell, db):
    """One fire of both tenants' due timers, all names alike."""
    cell = new_cell(**dict(ON, QUEEN_SWEEPER="true")).start()
    cell.post(API + "/system/kv-timers", {"timersFire": False},
              headers=who(A))
    for uuid in (A, B):
        assert cell.post(API + "/timers", [{
            "op": "schedule", "queue": "q", "timerKey": "k", "txn": "t",
            "delayMs": 0, "payload": base64.b64encode(
                json.dumps(uuid).encode()).decode()}],
            headers=who(uuid)).status == 200
    cell.post(API + "/system/kv-timers", {"timersFire": True},
              headers=who(A))
    for uuid in (A, B):
        m, = wait_until(lambda: cell.pop("q", group="g", headers=who(uuid),
                                         subscriptionMode="all"))
        assert (m["data"], m["producerSub"]) == (uuid, "svc")
    assert cell.pop("q", group="g", headers=bearer(token(role="admin")),
                    subscriptionMode="all") == []
    assert db.value("select count(*) from queen.segments") == 2


def test_the_overview_is_of_who_asks(cell, two):
    """A tenant sees its own; the operator, who names none, the cell."""
    cell.push("mine", [1], headers=who(A))
    nobody = bearer(token(role="admin"))

    def seen(headers):
        body = cell.get(API + "/status", headers=headers).body
        return ([q["name"] for q in body["queues"]],
                body["messages"]["total"], body["leases"]["active"])

    assert seen(who(A, "read-only")) == (["mine", "orders"], 4, 1)
    assert seen(who(B, "read-only")) == (["orders"], 3, 1)
    assert seen(who("00000000-0000-0000-0000-0000000000ee")) == ([], 0, 0)
    for headers in (nobody, {**nobody, "x-queen-tenant": " "}):
        assert seen(headers) == (["mine", "orders", "orders"], 7, 2)

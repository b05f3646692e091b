# SPDX-License-Identifier: Apache-2.0
"""
The whole route table asked by a stranger: tenant B with every name and id of
tenant A.  Each route is stated here as one of

  PUBLIC, CELL   about the process or the cell, the same for every tenant
  a function     a request that names what is A's

so that a new route fails until somebody has said which.  A request of B
  - answers as the same request for what does not exist,
  - shows nothing that A wrote,
  - changes no row of A.
"""
import json
import re

import pytest

from queenlib import OTHER_TENANT
from test_auth import table
from test_purge import B_TENANT, HANGS_OFF, ON, lasting, rows_of

pytestmark = pytest.mark.cellenv(**ON)

API = "/api/v1"
CG, RES = API + "/consumer-groups", API + "/resources"
S3 = "/api/cp/clusters/"
A, B = ({"x-queen-tenant": t} for t in (OTHER_TENANT, B_TENANT))
PUBLIC, CELL = "public", "cell"


class Names:
    """What a request may name.  `real` is A's, else nothing of that kind
    exists; values are of the same length, so that answers can be compared."""

    def __init__(self, real, message=None, dead=None):
        end = "" if real else "x"
        self.queue, self.part = "queue-a" + end, "part-a" + end
        self.group, self.key = "group-a" + end, "key-a" + end
        self.ns, self.trace = "ns-a" + end, "trace-a" + end
        self.timer, self.txn = "timer-a" + end, "txn-a" + end
        self.label, self.connector = "label-a" + end, "connector-a" + end
        self.cluster = OTHER_TENANT if real else OTHER_TENANT[:-4] + "9999"
        if real:
            self.pid, self.lease = message["partitionId"], message["leaseId"]
            self.dead = dead

    def like(self, other):
        """Ids of this cell that nobody has."""
        self.pid = other.pid[:-6] + "fffffe"
        self.lease = other.lease[:-6] + "fffffe"
        self.dead = other.dead[:-6] + "fffffe"
        return self

    def words(self):
        """Longest first: a name that does not exist begins as a real one."""
        return sorted(vars(self).items(), key=lambda x: -len(x[1]))


def get(path):
    return lambda n: [("GET", path.format(n=n), None)]


def post(path, body):
    return lambda n: [("POST", path.format(n=n), body(n))]


def ack(n):
    return {"transactionId": n.txn, "partitionId": n.pid, "leaseId": n.lease,
            "consumerGroup": n.group, "status": "completed"}


def item(n):
    return {"queue": n.queue, "partition": n.part, "transactionId": n.txn,
            "payload": 1}


def transactions(n):
    """An ack of A's, A's lease as a condition, riders on A's names."""
    yield {"operations": [dict(ack(n), type="ack")]}
    yield {"operations": [{"type": "push", "items": [item(n)]}],
           "requiredLeases": [n.lease]}
    yield {"operations": [{"type": "push", "items": [item(n)]}],
           "kv": [{"op": "put", "ns": n.ns, "key": n.key, "value": 1,
                   "forever": True, "expect": 1, "required": True}]}
    yield {"operations": [{"type": "push", "items": [item(n)]}],
           "timers": [{"op": "cancel", "queue": n.queue,
                       "timerKey": n.timer}]}


def connector(n, host):
    return {"kind": "source", "connection": {
        "host": host, "database": "d", "user": "u"}, "source": {
        "tables": [{"table": "t", "queue": n.queue}]}}


LAKE = {"queues": "*", "endpoint": "http://h", "region": "r",
        "bucket": "bucket", "accessKey": "a"}


def kv_batches(n):
    key = {"ns": n.ns, "key": n.key}
    yield [dict(key, op="get"),
           {"op": "getMany", "ns": n.ns, "keys": [n.key]},
           {"op": "getPrefix", "ns": n.ns, "prefix": "k"}]
    yield [dict(key, op="delete")]
    yield [dict(key, op="put", value=2, forever=True, expect=1)]
    yield [dict(key, op="putIfAbsent", value=2, forever=True)]
    yield [dict(key, op="incr", delta=1, forever=True)]


ROUTES = {
    ("POST", API + "/push"): post(API + "/push", lambda n: {
        "items": [item(n)]}),
    ("GET", API + "/pop/queue/:queue"): get(
        API + "/pop/queue/{n.queue}?consumerGroup={n.group}&wait=false"),
    ("GET", API + "/pop/queue/:queue/partition/:partition"): get(
        API + "/pop/queue/{n.queue}/partition/{n.part}?wait=false"),
    ("GET", API + "/pop"): get(API + "/pop?namespace={n.label}&wait=false"),
    ("POST", API + "/ack"): post(API + "/ack", ack),
    ("POST", API + "/ack/batch"): post(API + "/ack/batch", lambda n: {
        "acknowledgments": [ack(n)], "consumerGroup": n.group}),
    ("POST", API + "/lease/:leaseId/extend"): post(
        API + "/lease/{n.lease}/extend", lambda n: {"seconds": 600}),
    ("POST", API + "/transaction"): lambda n: [
        ("POST", API + "/transaction", body) for body in transactions(n)],
    ("POST", API + "/fetch"): post(API + "/fetch", lambda n: {"entries": [
        {"queue": n.queue, "partition": n.part, "offset": 0}]}),
    ("POST", API + "/partitions/changed"): post(
        API + "/partitions/changed",
        lambda n: {"entries": [{"queue": n.queue}]}),

    ("POST", API + "/kv"): lambda n: [
        ("POST", API + "/kv", {"operations": ops}) for ops in kv_batches(n)],
    ("GET", API + "/kv/:ns/*key"): get(API + "/kv/{n.ns}/{n.key}"),
    ("PUT", API + "/kv/:ns/*key"): lambda n: [
        ("PUT", API + "/kv/%s/%s" % (n.ns, n.key),
         {"value": 2, "forever": True, "expect": 1})],
    ("DELETE", API + "/kv/:ns/*key"): lambda n: [
        ("DELETE", API + "/kv/%s/%s" % (n.ns, n.key), None)],
    ("GET", RES + "/kv/namespaces"): get(RES + "/kv/namespaces"),
    ("POST", RES + "/kv/list"): post(RES + "/kv/list",
                                     lambda n: {"namespace": n.ns}),

    ("POST", API + "/timers"): lambda n: [
        ("POST", API + "/timers", {"operations": [
            {"op": "cancel", "queue": n.queue, "timerKey": n.timer}]}),
        ("POST", API + "/timers", {"operations": [
            {"op": "schedule", "queue": n.queue, "timerKey": n.timer,
             "delayMs": 3600000, "txn": n.txn, "payload": "ImIi"}]})],
    ("GET", API + "/timers/:queue"): get(API + "/timers/{n.queue}"),
    ("GET", API + "/timers/:queue/*timerKey"): get(
        API + "/timers/{n.queue}/{n.timer}"),
    ("DELETE", API + "/timers/:queue/*timerKey"): lambda n: [
        ("DELETE", API + "/timers/%s/%s" % (n.queue, n.timer), None)],

    ("POST", API + "/configure"): post(API + "/configure", lambda n: {
        "queue": n.queue, "options": {"leaseTime": 7}}),
    ("GET", RES + "/queues"): get(RES + "/queues"),
    ("GET", RES + "/queues/:queue"): get(RES + "/queues/{n.queue}"),
    ("GET", RES + "/queues/:queue/depth"): get(
        RES + "/queues/{n.queue}/depth?group={n.group}"),
    ("DELETE", RES + "/queues/:queue"): lambda n: [
        ("DELETE", RES + "/queues/" + n.queue, None)],
    ("DELETE", RES + "/tenant"): lambda n: [
        ("DELETE", RES + "/tenant", None)],
    ("GET", RES + "/overview"): get(RES + "/overview"),
    ("GET", RES + "/namespaces"): get(RES + "/namespaces"),
    ("GET", RES + "/tasks"): get(RES + "/tasks"),

    ("GET", API + "/connectors"): get(API + "/connectors"),
    ("GET", API + "/connectors/:name"): get(API + "/connectors/{n.connector}"),
    ("PUT", API + "/connectors/:name"): lambda n: [
        ("PUT", API + "/connectors/" + n.connector, connector(n, "host-b"))],
    ("DELETE", API + "/connectors/:name"): lambda n: [
        ("DELETE", API + "/connectors/" + n.connector, None)],
    ("POST", API + "/connectors/:name/resync"): post(
        API + "/connectors/{n.connector}/resync", lambda n: None),
    ("POST", API + "/connectors/:name/adopt"): post(
        API + "/connectors/{n.connector}/adopt", lambda n: None),
    ("POST", API + "/connectors/:name/reset"): post(
        API + "/connectors/{n.connector}/reset", lambda n: None),

    ("GET", S3 + ":cluster/s3"): get(S3 + "{n.cluster}/s3"),
    ("PUT", S3 + ":cluster/s3"): lambda n: [
        ("PUT", S3 + n.cluster + "/s3", dict(LAKE, enabled=False))],
    ("DELETE", S3 + ":cluster/s3"): lambda n: [
        ("DELETE", S3 + n.cluster + "/s3", None)],
    ("POST", S3 + ":cluster/s3/resume"): post(
        S3 + "{n.cluster}/s3/resume", lambda n: {"queue": n.queue}),

    ("GET", CG): get(CG),
    ("GET", CG + "/lagging"): get(CG + "/lagging?minLagSeconds=0"),
    ("GET", CG + "/:group"): get(CG + "/{n.group}"),
    ("POST", CG + "/:group/subscription"): post(
        CG + "/{n.group}/subscription",
        lambda n: {"subscriptionTimestamp": "2026-01-01T00:00:00Z"}),
    ("POST", CG + "/:group/queues/:queue/seek"): post(
        CG + "/{n.group}/queues/{n.queue}/seek", lambda n: {"toEnd": True}),
    ("POST", CG + "/:group/queues/:queue/partitions/:partition/seek"): post(
        CG + "/{n.group}/queues/{n.queue}/partitions/{n.part}/seek",
        lambda n: {"toEnd": True}),
    ("DELETE", CG + "/:group"): lambda n: [
        ("DELETE", CG + "/" + n.group, None)],
    ("DELETE", CG + "/:group/queues/:queue"): lambda n: [
        ("DELETE", CG + "/%s/queues/%s" % (n.group, n.queue), None)],

    ("GET", API + "/messages"): lambda n: [
        ("GET", API + "/messages?queue=" + n.queue, None),
        ("GET", API + "/messages", None)],
    ("GET", API + "/messages/:partitionId/:transactionId"): get(
        API + "/messages/{n.pid}/{n.txn}"),
    ("DELETE", API + "/messages/:partitionId/:transactionId"): lambda n: [
        ("DELETE", API + "/messages/%s/%s" % (n.pid, n.txn), None)],
    ("POST", API + "/messages/:partitionId/:transactionId/retry"): post(
        API + "/messages/{n.pid}/{n.txn}/retry", lambda n: None),
    ("GET", API + "/dlq"): lambda n: [
        ("GET", API + "/dlq?queue=" + n.queue, None),
        ("GET", API + "/dlq", None)],
    ("POST", API + "/dlq/:id/replay"): post(API + "/dlq/{n.dead}/replay",
                                            lambda n: None),
    ("DELETE", API + "/dlq"): lambda n: [
        ("DELETE", API + "/dlq?queue=" + n.queue, None)],

    ("POST", API + "/traces"): post(API + "/traces", lambda n: {
        "partitionId": n.pid, "transactionId": n.txn,
        "traceNames": [n.trace], "data": {"text": "b"}}),
    ("GET", API + "/traces/names"): get(API + "/traces/names"),
    ("GET", API + "/traces/by-name/:traceName"): get(
        API + "/traces/by-name/{n.trace}"),
    ("GET", API + "/traces/:partitionId/:transactionId"): get(
        API + "/traces/{n.pid}/{n.txn}"),

    ("GET", "/auth/me"): PUBLIC, ("GET", "/auth/login"): PUBLIC,
    ("POST", "/auth/logout"): PUBLIC,
    ("GET", "/health"): PUBLIC, ("GET", "/healthz"): PUBLIC,
    ("GET", "/metrics"): PUBLIC, ("GET", "/metrics/prometheus"): PUBLIC,
    ("GET", "/status"): get("/status"), ("GET", API + "/status/buffers"): CELL,
    ("GET", API + "/status"): lambda n: [
        ("GET", API + "/status?queue=" + n.queue, None),
        ("GET", API + "/status", None)],
    ("GET", API + "/status/queues"): get(API + "/status/queues"),
    ("GET", API + "/status/queues/:queue"): get(
        API + "/status/queues/{n.queue}?includePartitions=true"),
    ("GET", API + "/status/analytics"): get(
        API + "/status/analytics?queue={n.queue}"),
    ("GET", API + "/analytics/queue-lag"): get(
        API + "/analytics/queue-lag?queue={n.queue}"),
    ("GET", API + "/analytics/queue-ops"): get(
        API + "/analytics/queue-ops?queue={n.queue}"),
    ("GET", API + "/analytics/retention"): get(
        API + "/analytics/retention?queue={n.queue}"),
    ("GET", API + "/analytics/postgres-stats"): CELL,
    ("GET", API + "/system/maintenance"): CELL,
    ("POST", API + "/system/maintenance"): CELL,
    ("GET", API + "/system/maintenance/pop"): CELL,
    ("POST", API + "/system/maintenance/pop"): CELL,
    ("GET", API + "/system/kv-timers"): CELL,
    ("POST", API + "/system/kv-timers"): CELL,
    ("GET", API + "/system/shared-state"): CELL,
    ("POST", API + "/stats/refresh"): CELL,
    # a hint: it wakes pops, which look for themselves
    ("POST", "/internal/api/notify"): post(
        "/internal/api/notify",
        lambda n: {"queue": n.queue, "partition": n.part}),
    ("GET", "/internal/api/shared-state/stats"): CELL,
    ("GET", "/internal/api/inter-instance/stats"): CELL,
}

# what only A wrote, in bodies and values that B never sends
SECRET = "secret-of-a"


def settle(cell, db, n):
    """A's state: a message leased, one dead, one waiting; a row, a timer, a
    trace, a connector.  The message as popped, the id of the dead letter."""
    assert cell.post(API + "/configure", {
        "queue": n.queue, "namespace": n.label, "task": n.label,
        "options": {"leaseTime": 3600}}, headers=A).status == 200
    cell.push(n.queue, [SECRET + str(i) for i in range(3)], headers=A,
              partition=n.part, ids=["dead", n.txn, "waiting"])
    first, = cell.pop(n.queue, group=n.group, subscriptionMode="all",
                      batch=1, headers=A)
    cell.ack([first], group=n.group, status="dlq", error=SECRET, headers=A)
    dead, = cell.get(API + "/dlq", headers=A).body["messages"]
    held, = cell.pop(n.queue, group=n.group, batch=1, headers=A)
    assert (first["transactionId"], held["transactionId"]) == ("dead", n.txn)
    assert cell.post(API + "/traces", {
        "partitionId": held["partitionId"], "transactionId": n.txn,
        "traceNames": [n.trace], "data": {"text": SECRET}},
        headers=A).status == 201
    for path, op in (
            ("/kv", {"op": "put", "ns": n.ns, "key": n.key, "value": SECRET,
                     "forever": True}),
            ("/timers", {"op": "schedule", "queue": n.queue, "txn": n.txn,
                         "timerKey": n.timer, "delayMs": 3600000,
                         "payload": "InNlY3JldC1vZi1hIg=="})):
        reply = cell.post(API + path, {"operations": [op]}, headers=A)
        assert reply.status == 200, reply
    assert cell.request("PUT", API + "/connectors/" + n.connector, connector(
        n, SECRET), headers=A).status == 200
    db.rows("select queen.connector_status_put_v1('n', %s::uuid[], %s,"
            " '{source}', %s, array['{}'])", (
                [OTHER_TENANT], [n.connector],
                [json.dumps({"phase": SECRET})]))
    db.rows("select queen.lake_sink_put_v1(%s, %s, false, %s, 'sealed')", (
        OTHER_TENANT, OTHER_TENANT, json.dumps(dict(LAKE, bucket=SECRET))))
    return held, dead["id"]


def state(db):
    """Every row of A, as text; what is counted comes by itself."""
    found = {}
    for table_ in lasting(db, OTHER_TENANT):
        found[table_] = db.rows(
            "select x::text from queen.%s x where tenant = %%s order by 1"
            % table_, (OTHER_TENANT,))
    for table_, at in HANGS_OFF.items():
        if table_ != "queue_minutes":
            found[table_] = db.rows(
                "select x::text from queen.%s x where %s in (select q.id from"
                " queen.queues q where q.tenant = %%s) order by 1"
                % (table_, at), (OTHER_TENANT,))
    # documents of connectors and sinks lie with the internal tenant
    found["connectors"], found["sinks"] = [db.rows(
        "select x::text from queen.kv x where key like %s order by 1",
        (key % OTHER_TENANT,)) for key in ("conn:%s:%%", "sink:%s")]
    return found


def plain(reply, n):
    """(status, body) without the names asked for, ids and times."""
    text = json.dumps(reply.body) if not isinstance(reply.body, bytes) \
        else reply.body.decode()
    for name, value in n.words():
        text = text.replace(value, "<%s>" % name)
    text = re.sub(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "<id>", text)
    text = re.sub(r"\d{4}-\d\d-\d\dT[0-9:.]+Z", "<time>", text)
    # drawn from one sequence of the cell; 0 = there is no such row
    text = re.sub(r'"version": [1-9]\d*', '"version": <n>', text)
    return reply.status, text


@pytest.fixture
def two(cell, db):
    real = Names(True, {"partitionId": "", "leaseId": ""}, "")
    message, dead = settle(cell, db, real)
    real = Names(True, message, dead)
    return real, Names(False).like(real)


def test_every_route_is_stated():
    served = {(method, pattern) for method, pattern, _ in table()}
    assert len(served) > 70
    assert served - set(ROUTES) == set(), \
        "whose data does it show?  Say so in ROUTES"
    assert set(ROUTES) - served == set()


def asked(cell, route, n, headers=B):
    """Answers to the requests of a route; nothing of A's is in one of B's."""
    answers = []
    for method, path, body in ROUTES[route](n):
        reply = cell.request(method, path, body, headers=headers)
        # 400 would be about the request, not about whose it is
        assert reply.status < 500 and reply.status != 400, (path, reply)
        assert headers is A or SECRET not in str(reply.body), (path, reply)
        answers.append(plain(reply, n))
    return answers


READS = {(API + "/fetch"), (API + "/partitions/changed"),
         (RES + "/kv/list")}
# B's own doings under A's names, which follow one another
LAST = [("DELETE", RES + "/queues/:queue"), ("DELETE", RES + "/tenant")]


READ_ROUTES = [r for r, ask in ROUTES.items() if callable(ask)
               and (r[0] == "GET" or r[1] in READS) and "/pop" not in r[1]]
# counters are written once a minute: A's own answer has none yet
NO_COUNTERS = {API + "/analytics/queue-lag", API + "/analytics/queue-ops",
               API + "/analytics/retention", API + "/status/analytics"}


def test_the_owner_reads_what_is_asked_for(cell, two):
    """So the questions are good ones."""
    for route in READ_ROUTES:
        mine = asked(cell, route, two[0], A)
        for one, other in zip(mine, asked(cell, route, two[0], B)):
            assert (one != other) == (route[1] not in NO_COUNTERS), route


def test_a_stranger_reads_nothing(cell, db, two):
    """Before B has anything of its own: every read, and every answer that
    would be another if it looked at A's."""
    real, none = two
    before = state(db)
    assert all(before[t] for t in (
        "queues", "kv", "timers", "traces", "trace_names", "segments",
        "consumers", "groups", "dead_letters", "partitions", "connectors",
        "sinks"))
    for route in READ_ROUTES:
        assert asked(cell, route, real) == asked(cell, route, none), route
    assert state(db) == before


def test_a_stranger_changes_nothing(cell, db, two):
    """The rest, by A's names and ids: B works on its own, and each answer is
    that of a cell without A."""
    real, none = two
    before = state(db)
    rest = [r for r, ask in ROUTES.items() if callable(ask)
            and r not in READ_ROUTES and r not in LAST]
    assert len(rest) > 20
    for route in rest + LAST[:1]:
        assert asked(cell, route, real) == asked(cell, route, none), route
        assert state(db) == before, route
    assert asked(cell, LAST[1], real)[0][0] == 200
    assert state(db) == before
    assert set(rows_of(db, B_TENANT).values()) == {0}
    # A goes on where it was
    acked, = cell.ack([{"transactionId": real.txn, "partitionId": real.pid,
                        "leaseId": real.lease}], group=real.group, headers=A)
    assert acked["success"] is True, acked
    left, = cell.pop(real.queue, group=real.group, headers=A)
    assert left["data"] == SECRET + "2"

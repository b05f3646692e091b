# SPDX-License-Identifier: Apache-2.0
"""
The SQL calls of jobs with all their arguments, for tests that move time: now is
in seconds (sqlkit.at), answers are named tuples with names of states.

jobs  the calls on db, as a process makes them: generic plans
"""
import collections
import datetime
import json
import uuid

import pytest

from queenlib import TENANT, rows
from sqlkit import at

STATES = ("available active scheduled retryable pending completed cancelled"
          " discarded held").split()
VERDICTS = "ok missing conflict taken unique known full worker attempt".split()
ARRAYS = ("uuid text text text smallint int timestamptz boolean timestamptz"
          " bigint bigint text text text").split()
PLAIN = {"jitter": False, "initial_ms": 1000, "coefficient": 2,
         "max_ms": 300000, "strategy": "exponential", "stop": [],
         "dead": False}
SESSION = ("plan_cache_mode = force_generic_plan", "enable_seqscan = off",
           "enable_bitmapscan = off", "jit = off", "timezone = 'UTC'")


def moment(value):
    if value is None or isinstance(value, (str, datetime.datetime)):
        return value
    return at(value)


def seconds(value):
    """Of a moment, counted from the start of 2026."""
    return None if value is None else round((value - at(0)).total_seconds(), 6)


def policy(**kw):
    return json.dumps({**PLAIN, **kw})


def unique(key, on="reject", states=(0, 1, 2, 3, 4), period_ms=None):
    return json.dumps({"key": key, "period_ms": period_ms,
                       "states": list(states), "on": on})


def spec(queue="q", id=None, **kw):
    """One element of a push."""
    return [id or str(uuid.uuid4()), kw.get("type", "t"), queue,
            kw.get("doc", '"args":[]'), -kw.get("priority", 0),
            kw.get("max_attempts", 3), moment(kw.get("due")),
            kw.get("pending", False), moment(kw.get("expires")),
            kw.get("timeout_ms"), kw.get("lease_ms"),
            kw.get("policy", policy()), kw.get("unique"), kw.get("rate")]


class Jobs:
    def __init__(self, conn, tenant=TENANT):
        self.conn, self.tenant = conn, tenant
        for option in SESSION:
            rows(conn, "set " + option)

    def rows(self, sql, *args):
        return rows(self.conn, sql, args or None)

    def value(self, sql, *args):
        return self.rows(sql, *args)[0][0]

    def named(self, sql, *args):
        with self.conn.cursor() as cur:
            cur.execute(sql, args)
            names = [c.name for c in cur.description]
            row = collections.namedtuple("Row", names)
            out = []
            for found in cur.fetchall():
                r = dict(zip(names, found))
                for name in "state", "previous_state":
                    if r.get(name) is not None:
                        r[name] = STATES[r[name]]
                if "verdict" in r:
                    r["verdict"] = (VERDICTS + ["queue"])[r["verdict"]]
                for name in "error", "errors":
                    if r.get(name) is not None:
                        r[name] = json.loads(r[name])
                out.append(row(**r))
            return out

    def call(self, name, *args, now=None):
        """A function that answers one row."""
        found = self.named("select * from queen.%s(%s, %s)" % (
            name, "%s, " * len(args) + "%s", "%s"),
            self.tenant, *args, moment(now))
        assert len(found) == 1, found
        return found[0]

    def push(self, *specs, now=None):
        """Rows of the answer."""
        columns = list(zip(*(specs or [spec()])))
        return self.named(
            "select * from queen.jobs_push_v1(%%s, %s, %%s)"
            % ", ".join("%%s::%s[]" % t for t in ARRAYS),
            self.tenant, *[list(c) for c in columns], moment(now))

    def put(self, queue="q", now=None, **kw):
        """One job; its id."""
        (row,) = self.push(spec(queue, **kw), now=now)
        assert row.verdict == "ok", row
        return row.id

    def workflow(self, kind, roles, *specs, now=None):
        """Rows of the answer."""
        return self.named(
            "select * from queen.workflow_create_v1(%%s, %%s, %%s, null,"
            " %%s::text[], %s, %%s)" % ", ".join("%%s::%s[]" % t for t in ARRAYS),
            self.tenant, str(uuid.uuid4()), kind, roles,
            *[list(c) for c in zip(*specs)], moment(now))

    def fetch_all(self, *queues, n=1, worker=None, lease_ms=None, seen=(),
                  now=None):
        """Rows of jobs, rows of queues."""
        seen = list(zip(*seen)) or [[], [], [], []]
        found = self.named(
            "select * from queen.jobs_fetch_v1(%s, %s::text[], %s, %s, %s,"
            " 1800000, %s::bigint[], %s::smallint[], %s::timestamptz[],"
            " %s::bigint[], %s)", self.tenant, list(queues or ["q"]), n, worker,
            lease_ms, *[list(s) for s in seen], moment(now))
        jobs = [r for r in found if r.verdict == "ok"]
        assert found[:len(jobs)] == jobs
        return jobs, found[len(jobs):]

    def fetch(self, *queues, **kw):
        return self.fetch_all(*queues, **kw)[0]

    def ids(self, *queues, **kw):
        return [r.id for r in self.fetch(*queues, **kw)]

    def ack(self, id, worker=None, attempt=None, result=None, now=None):
        return self.call("jobs_ack_v1", id, worker, attempt, result, now=now)

    def nack(self, id, worker=None, attempt=None, type="boom", cls=None,
             code="handler_error", retryable=None, requeue=False, random=0.5,
             error='"code":"handler_error"', now=None):
        return self.call("jobs_nack_v1", id, worker, attempt,
                         None if requeue else error, type, cls, code, retryable,
                         requeue, random, now=now)

    def cancel(self, id, now=None):
        return self.call("jobs_cancel_v1", id, now=now)

    def activate(self, id, now=None):
        return self.call("jobs_activate_v1", id, now=now)

    def get(self, id, now=None):
        return self.call("jobs_get_v1", id, now=now)

    def beat(self, ids, worker="w", lease_ms=None, test=True, now=None):
        return self.named("select * from queen.jobs_heartbeat_v1(%s, %s,"
                          " %s::uuid[], %s, %s, %s)", self.tenant, worker,
                          list(ids), lease_ms, test, moment(now))

    def sweep(self, now=None, limit=100):
        """{queue id: (became, steps, more)}"""
        return {r[0]: r[1:] for r in self.rows(
            "select * from queen.jobs_sweep_v1(%s, %s)", limit, moment(now))}

    def events(self, after=None, types=None, queues=None, job_types=None,
               limit=100, now=None):
        return self.named(
            "select * from queen.jobs_events_v1(%s, %s, %s, %s::text[],"
            " %s::text[], %s::text[], %s, %s)", self.tenant,
            after and after.at, after and after.key, types, queues, job_types,
            limit, moment(now))

    def dead(self, queue=None, type=None, limit=50, offset=0, after=None):
        return self.named(
            "select * from queen.jobs_dead_v1(%s, %s, %s, %s, %s, %s, %s)",
            self.tenant, queue, type, limit, offset,
            after and after.discarded_at, after and after.seq)

    def queue_id(self, name="q"):
        return self.value("select queue_id from queen.ojs_queue_ensure(%s,"
                          " %s)", self.tenant, [name])

    def queue(self, name="q", **columns):
        """Makes a queue, sets columns of it; its id."""
        id = self.queue_id(name)
        for column, value in columns.items():
            self.rows("update queen.ojs_queues set %s = %%s where id = %%s"
                      % column, value, id)
        return id


@pytest.fixture
def jobs(db):
    return Jobs(db.connect())

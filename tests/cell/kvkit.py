# SPDX-License-Identifier: Apache-2.0
"""Calls of /api/v1/kv, and a lane that is busy, for the tests of both."""
import contextlib
import re
import threading
import urllib.parse

import pytest

from queenlib import rows, wait_until

TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z\Z")


class Kv:
    def __init__(self, cell, ns="n"):
        self.cell, self.ns = cell, ns

    def post(self, ops, status=200):
        reply = self.cell.post("/api/v1/kv", ops)
        assert reply.status == status, reply.body
        return reply.body

    def ops(self, *ops):
        """Results of operations in its namespace unless they say."""
        body = self.post({"operations": [dict({"ns": self.ns}, **o)
                                         for o in ops]})
        assert set(body) == {"results"}, body
        assert [r["index"] for r in body["results"]] == \
            list(range(len(ops)))
        return body["results"]

    def one(self, op, key, **fields):
        return self.ops(dict(fields, op=op, key=key))[0]

    def put(self, key, value, **fields):
        if "ttlSeconds" not in fields:
            fields["forever"] = True
        return self.one("put", key, value=value, **fields)

    def bad(self, *ops, status=400):
        """(error, reason) of a refused call."""
        body = self.post({"operations": [dict({"ns": self.ns}, **o)
                                         for o in ops]}, status)
        assert set(body) <= {"error", "reason", "detail"}, body
        return body["error"], body["reason"]


@pytest.fixture
def kv(cell):
    return Kv(cell)


@pytest.fixture
def common_kv(common, own_name):
    """In a namespace of its own, on the common queend."""
    return Kv(common, own_name)


def waiting_for_locks(db):
    return db.value(
        "select count(*) from pg_stat_activity where wait_event_type ="
        " 'Lock' and datname = current_database()")


@contextlib.contextmanager
def held(db, table="queen.kv"):
    """Its rows are locked for the time of the block."""
    conn = db.connect()
    conn.autocommit = False
    rows(conn, "select 1 from %s for update" % table)
    try:
        yield
    finally:
        conn.rollback()


@contextlib.contextmanager
def busy_lane(cell, n=1):
    """Of a cell with DB_POOL_SIZE=4: n writers of a locked row, the first has
    the only connection of the lane, the rest wait for it."""
    Kv(cell).put("locked", 0)
    db = cell.db
    threads = [threading.Thread(target=cell.post, args=("/api/v1/kv", [
        {"op": "put", "ns": "n", "key": "locked", "value": i,
         "forever": True}])) for i in range(n)]
    with held(db):
        threads[0].start()
        wait_until(lambda: waiting_for_locks(db) == 1, what="the writer")
        for t in threads[1:]:
            t.start()
        yield
    for t in threads:
        t.join()


def path(key, ns="n"):
    return "/api/v1/kv/%s/%s" % (ns, urllib.parse.quote(key))


def kill(db, key):
    """The row is dead from now on, and stays."""
    db.rows("update queen.kv set expires_at = clock_timestamp()"
            " - interval '1 hour' where key = %s", (key,))


def reason(name):
    return ("kv_bad_request", name)

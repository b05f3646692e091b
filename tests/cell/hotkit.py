# SPDX-License-Identifier: Apache-2.0
"""
The hot SQL calls with all their arguments and all their columns, for the tests
of push, pop, ack and bundle.  Arguments are plain dicts, answers are named
tuples.
"""
import collections
import contextlib
import threading
import uuid

import psycopg2
import pytest

from queenlib import TENANT
from sqlkit import Kit, mid

FRAMES = b"\x01\x00" + b"f" * 8
STATUS = {"completed": 0, "failed": 1, "retry": 2, "dlq": 3}
ITEMS = {0: "success", 1: "noop", 2: "committed", 3: "unresolvable",
         4: "stale"}


def ids(texts):
    return b"".join(mid(t) for t in texts)


class Hot(Kit):
    def named(self, sql, args):
        with self.conn.cursor() as cur:
            cur.execute(sql, args)
            row = collections.namedtuple(
                "Row", [c.name for c in cur.description])
            return [row(*(bytes(v) if isinstance(v, memoryview) else v
                          for v in r)) for r in cur.fetchall()]

    # One segment: part, ids (texts), and what push_v1 may be told about it.

    PUSH = ("%s::bigint[], %s::int[], %s::bytea[], %s::int[],"
            " %s::smallint[], %s::bytea[], %s::bigint[], %s::timestamptz[],"
            " %s::int[], %s::int[], %s::bigint[], %s::bigint[]")

    @staticmethod
    def push_args(segs, suspects=()):
        return [[s["part"] for s in segs],
                [s.get("n", len(s["ids"])) for s in segs],
                [ids(s["ids"]) for s in segs],
                [s.get("raw", 100) for s in segs],
                [s.get("key") for s in segs],
                [s.get("blob", FRAMES) for s in segs],
                [s.get("verified") for s in segs],
                [s.get("covered", "-infinity") for s in segs],
                [s[0] for s in suspects], [s[1] for s in suspects],
                [s[2] for s in suspects], [s[3] for s in suspects]]

    def push_all(self, segs, suspects=(), now=None, tenant=TENANT):
        return self.named(
            "select * from queen.push_v1(%s, " + self.PUSH + ", %s)"
            " order by ord", [tenant] + self.push_args(segs, suspects) + [now])

    def push_one(self, part, texts, now=None, suspects=(), **seg):
        (row,) = self.push_all([dict(seg, part=part, ids=texts)], suspects,
                               now)
        return row

    # reqs: dicts no, budget, width, secs, auto; cands: (req, part, group).

    def pop_all(self, reqs, cands, keys=(), now=None, tenant=TENANT):
        return self.named(
            "select * from queen.pop_v1(%s, %s::bigint[], %s::int[],"
            " %s::int[], %s::int[], %s::boolean[], %s::int[], %s::bigint[],"
            " %s::bigint[], %s::smallint[], %s)",
            [tenant, [r["no"] for r in reqs],
             [r.get("secs", 60) for r in reqs],
             [r.get("budget", 1000) for r in reqs],
             [r.get("width", 0) for r in reqs],
             [r.get("auto", False) for r in reqs],
             [c[0] for c in cands], [c[1] for c in cands],
             [c[2] for c in cands], list(keys), now])

    def take(self, part, group, no, now=None, keys=(), **req):
        """One request for one partition."""
        return self.pop_all([dict(req, no=no)], [(1, part, group)], keys, now)

    def took(self, part, group, no, now=None, **req):
        """(first offset, last offset, attempt) of a pop that must deliver."""
        rows = self.take(part, group, no, now, **req)
        assert rows and all(r.verdict == 0 for r in rows), rows
        return (rows[0].base + rows[0].skip,
                rows[-1].base + rows[-1].skip + rows[-1].take - 1,
                rows[0].attempt)

    # acks: dicts group, part, ids; lease = (at, group, no) or None; status =
    # word or list of words; errors {item: text}; frames [(off, frame, at)].

    ACK = ("%s::bigint[], %s::bigint[], %s::bigint[], %s::bigint[],"
           " %s::bigint[], %s::bytea[], %s::bytea[], %s::int[], %s::int[],"
           " %s::text[], %s::int[], %s::bigint[], %s::bytea[],"
           " %s::timestamptz[], %s::uuid[]")

    @staticmethod
    def ack_args(acks):
        status, errors, frames = [], [], []
        for i, a in enumerate(acks):
            word = a.get("status")
            if isinstance(word, str):
                word = [word] * len(a["ids"])
            status.append(None if word is None
                          else bytes(STATUS[w] for w in word))
            errors += [(i + 1, item, text)
                       for item, text in sorted(a.get("errors", {}).items())]
            frames += [(i + 1,) + f for f in a.get("frames", [])]
        lease = [a.get("lease") or (None, None, None) for a in acks]
        return [[a["group"] for a in acks], [a["part"] for a in acks],
                [v[0] for v in lease], [v[1] for v in lease],
                [v[2] for v in lease], [ids(a["ids"]) for a in acks], status,
                [e[0] for e in errors], [e[1] for e in errors],
                [e[2] for e in errors], [f[0] for f in frames],
                [f[1] for f in frames], [f[2] for f in frames],
                [f[3] for f in frames],
                [str(a.get("dead_id") or uuid.uuid4()) for a in acks]]

    def ack_all(self, acks, now=None, tenant=TENANT):
        return self.named("select * from queen.ack_v1(%s, " + self.ACK
                          + ", %s) order by ord",
                          [tenant] + self.ack_args(acks) + [now])

    def ack(self, part, group, no, texts, status=None, now=None, **more):
        """One ack; no = the lease number of a pop of this one partition."""
        lease = None if no is None else (part, group, no)
        (row,) = self.ack_all([dict(more, part=part, group=group,
                                    lease=more.get("lease", lease),
                                    ids=texts, status=status)], now)
        return row

    def bundle(self, leases=(), segs=(), acks=(), strict=False, suspects=(),
               now=None, tenant=TENANT):
        return self.named(
            "select * from queen.bundle_v1(%s, %s::bigint[], %s::bigint[],"
            " %s::bigint[], " + self.PUSH + ", " + self.ACK + ", %s, %s)"
            " order by kind, ord",
            [tenant, [v[0] for v in leases], [v[1] for v in leases],
             [v[2] for v in leases]] + self.push_args(segs, suspects)
            + self.ack_args(acks) + [strict, now])

    def consumer(self, group, part):
        """The consumer row as a named tuple, or None."""
        found = self.named("select * from queen.consumers where group_id = %s"
                           " and partition_id = %s order by gen desc limit 1",
                           [group, part])
        return found[0] if found else None

    def head(self, part):
        (row,) = self.named("select * from queen.partition_heads"
                            " where id = %s", [part])
        return row

    def option(self, queue, **options):
        for name, value in options.items():
            self.rows("update queen.queues set " + name + " = %s where id ="
                      " %s", value, queue)

    def stamp(self, part, off):
        return self.value("select created_at from queen.segments where"
                          " partition_id = %s and %s between base_offset and"
                          " end_offset", part, off)


def items(row):
    """The item verdicts of an ack in words; None = all success."""
    return row.items and [ITEMS[b] for b in row.items]


def together(n, fn):
    """fn(i) in n threads that start at once; their results, or the first
    exception."""
    barrier, out = threading.Barrier(n), [None] * n

    def run(i):
        try:
            barrier.wait(30)
            out[i] = fn(i)
        except BaseException as e:  # noqa: B902 - handed to the caller
            out[i] = e

    threads = [threading.Thread(target=run, args=(i,)) for i in range(n)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(60)
        assert not t.is_alive(), "still running"
    for v in out:
        if isinstance(v, BaseException):
            raise v
    return out


@contextlib.contextmanager
def refused(sqlstate):
    """The statement inside fails with this SQLSTATE."""
    try:
        yield
    except psycopg2.Error as e:
        assert e.pgcode == sqlstate, (e.pgcode, str(e))
        return
    raise AssertionError("no error, expected " + sqlstate)


# Fixtures, for those who import them

@pytest.fixture
def hot(db):
    return Hot(db.connect())


@pytest.fixture
def q(hot):
    return hot.queue("q")


@pytest.fixture
def p(hot, q):
    return hot.part(q, "p")


@pytest.fixture
def g(hot, q):
    return hot.group(q, "g")

# SPDX-License-Identifier: Apache-2.0
"""
Sources end to end: a cell's database, processes of queen-pgsrc, a database it
reads.

src  src(name, **document) -> a Source, put and running on one Tool; more
     Tools: src.tool(**env)

A queue is read from the tables, in order, as events; check() says whether
they are what a source may write, and replays them:

Event   one message: queue, partition, offset, id, payload (as parsed)
replay  events -> {table: {key: {column: value}}}
"""
import collections
import contextlib
import ctypes
import json
import random
import re
import struct
import threading
from decimal import Decimal

import pytest

from queenlib import TENANT, wait_until

Event = collections.namedtuple("Event", "queue partition offset id payload")
ZSTD = ctypes.CDLL("libzstd.so.1")
ZSTD.ZSTD_decompress.restype = ctypes.c_size_t


# ---- a queue ----

def unzstd(data, size):
    out = ctypes.create_string_buffer(size)
    n = ZSTD.ZSTD_decompress(out, ctypes.c_size_t(size), data,
                             ctypes.c_size_t(len(data)))
    assert n == size
    return out.raw


def frames(blob, raw_bytes):
    """(transaction id, payload text) of each message; lib/frame.h."""
    rest = blob[2:] if blob[1] == 0 else unzstd(blob[2:], raw_bytes)
    while rest:
        n, flags = struct.unpack_from("<IB", rest)
        body, rest = rest[4:4 + n], rest[4 + n:]
        at = 17 + (16 if flags & 1 else 0)
        size, = struct.unpack_from("<H", body, at)
        txn, at = body[at + 2:at + 2 + size].decode(), at + 2 + size
        if flags & 2:
            at += 2 + struct.unpack_from("<H", body, at)[0]
        yield txn, body[at:].decode()


def parse(text):
    """Numbers exactly, members in order."""
    return json.loads(text, parse_float=Decimal, parse_int=int)


def raw_events(db, queue, tenant=TENANT):
    """(partition, offset, id, payload text), partition by partition."""
    found = db.rows(
        "select p.name, s.base_offset, s.end_offset, s.raw_bytes, s.blob"
        " from queen.queues q join queen.partitions p on p.queue_id = q.id"
        " join queen.segments s on s.partition_id = p.id"
        " where q.tenant = %s and q.name = %s and q.deleted_at is null"
        " order by p.name, s.base_offset", (tenant, queue))
    for name, base, end, raw_bytes, blob in found:
        got = list(frames(bytes(blob), raw_bytes))
        assert len(got) == end - base + 1
        for i, (txn, text) in enumerate(got):
            yield name, base + i, txn, text


def events(db, queue, tenant=TENANT):
    return [Event(queue, p, o, txn, parse(text))
            for p, o, txn, text in raw_events(db, queue, tenant)]


# ---- the checker ----

ID = re.compile(r"pg:([0-9a-f]{8}):(s:)?([0-9A-F]{16}):(f?)(\d+)(\.\d+)?$")
STAMP = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z$")
FIELDS = ["op", "table", "key", "after", "before", "unchanged", "lsn", "xid",
          "ts", "seq"]
TRUNCATE = ["op", "tables", "cascade", "restartIdentity", "lsn", "xid", "ts",
            "seq"]


class Damage(AssertionError):
    pass


def claim(ok, *what):
    if not ok:
        raise Damage(" ".join(str(w) for w in what))


def number_of(lsn):
    high, low = lsn.split("/")
    return int(high, 16) << 32 | int(low, 16)


def check_event(e):
    """Fields, their order, and an id that says what they say."""
    p, m = e.payload, ID.match(e.id)
    claim(m, "id", e.id)
    wanted = [f for f in (TRUNCATE if p.get("op") == "t" else FIELDS)
              if f in p]
    claim(list(p) == wanted, "members", list(p))
    claim(p["op"] in "cudrt", p["op"])
    copied = bool(m[2])
    claim(copied == ("xid" not in p), "xid", e)
    claim(copied == (p["op"] == "r" or m[4] == "f"), "op of a copy", e)
    claim(m[4] != "f" or p["op"] == "u", "op of a fill", e)
    claim("%016X" % number_of(p["lsn"]) == m[3], "lsn", e)
    claim(str(p["seq"]) == m[5], "seq", e)
    claim(STAMP.match(p["ts"]), "ts", e)
    if p["op"] == "t":
        claim(e.partition == "all", "partition of a truncate", e)
        return
    claim((p["after"] is None) == (p["op"] == "d"), "after", e)
    claim(p["op"] != "d" or p["before"] is not None, "before", e)
    claim("unchanged" not in p or p["unchanged"], "unchanged", e)
    for name, value in p["key"].items():
        row = p["after"] or p["before"]
        claim(row.get(name) == value, "key", e)


def key_of(p):
    return tuple(p["key"].values())


def fills(found):
    return [e for e in found if ID.match(e.id)[4]]


def ops(found):
    """`c:1 u:1~`: op, partition, ~ when something is unchanged; in order of
    the stream."""
    found = sorted(found, key=lambda e: (
        number_of(e.payload["lsn"]), e.payload["seq"], e.id))
    return " ".join("%s:%s%s" % (e.payload["op"], e.partition, "~" if
                                 "unchanged" in e.payload else "")
                    for e in found)


class Replay:
    """Events of one partition after another, into tables.  What a copy has
    not brought yet may be missing, and nothing else."""

    def __init__(self):
        self.tables = collections.defaultdict(dict)
        self.dead = set()       # (table, key) whose last event is a delete

    def take(self, e):
        p = e.payload
        if p["op"] == "t":
            for name in p["tables"]:
                self.tables[name].clear()
            return
        rows, key = self.tables[p["table"]], key_of(p)
        if p["op"] == "d":
            rows.pop(key, None)
            self.dead.add((p["table"], key))
            return
        gone = (p["table"], key) in self.dead
        self.dead.discard((p["table"], key))
        if p["op"] == "c":
            claim(key not in rows, "inserted twice", e)
        if p["op"] == "r":
            claim(not gone, "copied after its delete", e)
        old = key
        if p["op"] == "u" and p["before"]:
            old = tuple(p["before"][name] for name in p["key"])
        if old != key:
            rows[key] = rows.pop(old, {})
            self.dead.add((p["table"], old))
        row = rows.setdefault(key, {})
        for name in p.get("unchanged", []):
            row.setdefault(name, Missing)
        for name, value in p["after"].items():
            row[name] = value


class Missing:
    """A value that an event calls unchanged and none has brought."""


def replay(found):
    r = Replay()
    for e in found:
        r.take(e)
    for table, rows in r.tables.items():
        for key, row in rows.items():
            for name, value in row.items():
                claim(value is not Missing, "no value of", table, key, name)
    return dict(r.tables)


def check(found, rows=None, by_key=True, epochs=1):
    """All that holds of the events of a queue; rows: {table: {key: row}} as
    the source has them.  Returns what they replay to."""
    seen, homes, at, lsns = set(), {}, {}, collections.defaultdict(int)
    for e in found:
        check_event(e)
        claim(e.id not in seen, "id twice", e)
        seen.add(e.id)
        claim(e.offset == at.get(e.partition, 0), "offset", e)
        at[e.partition] = e.offset + 1
        lsn = number_of(e.payload["lsn"])
        claim(lsn >= lsns[e.partition], "lsn goes back", e)
        lsns[e.partition] = lsn
        if by_key and e.payload["op"] != "t":
            home = e.payload["table"], key_of(e.payload)
            claim(homes.setdefault(home, e.partition) == e.partition,
                  "two partitions", e)
    claim(len({e.id[3:11] for e in found}) <= epochs, "epochs")
    made = replay(found)
    if rows is not None:
        compare(made, rows)
    return made


def compare(made, rows):
    for table in set(made) | set(rows):
        a, b = made.get(table, {}), rows.get(table, {})
        for key in set(a) | set(b):
            claim(key in a, "lost", table, key)
            claim(key in b, "not deleted", table, key, a.get(key))
            claim(same(a[key], b[key]), "differs", table, key, a[key], b[key])


def same(a, b):
    """Exact: 1.50 is not 1.5, and true is not 1."""
    return a.keys() == b.keys() and all(
        type(a[k]) is type(b[k]) and str(a[k]) == str(b[k]) for k in a)


# ---- a source ----

def table_rows(far, table, key=("id",), columns="*"):
    """{key: row} of the table as it is; columns of int, numeric, text, bool
    and arrays of them."""
    conn = far.connect()
    with contextlib.closing(conn), conn.cursor() as cur:
        cur.execute("select %s from %s" % (columns, table))
        names = [c.name for c in cur.description]
        made = [dict(zip(names, r)) for r in cur.fetchall()]
    return {tuple(r[k] for k in key): r for r in made}


class Source:
    """One connector: its document, its tables, what came of them."""

    def __init__(self, tool, far, name, tables, tenant=TENANT,
                 connection=None, **more):
        self.tool_, self.far, self.name, self.tenant = tool, far, name, tenant
        self.document = {
            "kind": "source", "enabled": True,
            "connection": connection or far.connection(),
            "source": {"tables": tables, **more}}
        self.version = tool.put(name, self.document, tenant=tenant)

    def change(self, **source):
        self.document["source"].update(source)
        self.version = self.tool_.put(self.name, self.document,
                                      tenant=self.tenant)

    def enable(self, on):
        self.document["enabled"] = on
        self.change()
        if not on:
            self.await_phase("disabled")

    @property
    def slot(self):
        return "queen_" + self.name.replace("-", "_")

    def pointer(self):
        """The stored pointer, None when there is none."""
        found = self.tool_.db.rows(
            "select pointer, lease from queen.connector_list_v1(%s, %s)",
            (self.tenant, self.name))
        return json.loads(found[0][0]) if found and found[0][0] else None

    def is_copying(self):
        """Some of it is in the queue."""
        p = self.pointer()
        return p is not None and p["snapshot"]["rows"] > 0

    def lease(self):
        """The node that holds it, None when nobody does."""
        found = self.tool_.db.value(
            "select lease from queen.connector_list_v1(%s, %s)",
            (self.tenant, self.name))
        return json.loads(found)["node"] if found else None

    def status(self):
        return self.tool_.status(self.name, self.tenant)

    def await_phase(self, phase, **more):
        return self.tool_.await_status(self.name, self.tenant, phase=phase,
                                       **more)

    def queues(self):
        return sorted({t["queue"] for t in self.document["source"]["tables"]})

    def raw(self):
        return [e for q in self.queues()
                for e in raw_events(self.tool_.db, q, self.tenant)]

    def events(self):
        return [e for q in self.queues()
                for e in events(self.tool_.db, q, self.tenant)]

    def until(self, fn):
        """The events, once fn says so of them."""
        found = []

        def holds():
            found[:] = self.events()
            return fn(found)
        wait_until(holds, every_s=0.1)
        return found

    def await_ops(self, text):
        with contextlib.suppress(AssertionError):
            self.until(lambda found: ops(found) == text)
        found = self.events()
        assert ops(found) == text, (ops(found), self.status())
        return found

    def confirmed(self):
        found = self.far.slots().get(self.slot)
        return number_of(found) if found else 0

    def check(self, *tables, key=("id",), **more):
        """Until the events replay to the tables, which nobody changes."""
        rows = {"public." + t: table_rows(self.far, t, key) for t in tables}

        def replays(found):
            with contextlib.suppress(Damage):
                return check(found, rows, **more)
        with contextlib.suppress(AssertionError):
            return self.until(replays)
        check(self.events(), rows, **more)
        raise AssertionError(self.status())


class Writers:
    """Threads that call fn(cursor, rng) again and again, each with a
    connection of its own."""

    def __init__(self, far, n, fn):
        self.far, self.fn = far, fn
        self.over, self.faults, self.turns = threading.Event(), [], [0] * n
        self.threads = [threading.Thread(target=self.run, args=(i,))
                        for i in range(n)]
        for t in self.threads:
            t.start()

    def run(self, i):
        conn, rng = self.far.connect(), random.Random(i)
        try:
            with conn.cursor() as cur:
                while not self.over.is_set():
                    self.fn(cur, rng)
                    self.turns[i] += 1
        except Exception as e:  # whatever it is, the test must fail
            self.faults.append(e)

    def stop(self):
        self.over.set()
        for t in self.threads:
            t.join()
        assert not self.faults, self.faults

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()


def waiting_for_lock(far):
    """Pids of the sessions of this database that wait for one."""
    return [r[0] for r in far.rows(
        "select pid from pg_stat_activity where datname = current_database()"
        " and wait_event_type = 'Lock'")]


@contextlib.contextmanager
def held_copy(far, source, table):
    """The copy of the table stands: its next chunk has its snapshot, and
    waits to read the rows.  Gives the cursor that holds it up."""
    conn = far.connect(autocommit=False)
    wait_until(source.is_copying, every_s=0.002)
    with conn.cursor() as cur:
        cur.execute("lock table %s in access exclusive mode" % table)
        wait_until(lambda: waiting_for_lock(far), what="a waiting chunk")
        yield cur
        conn.commit()


class Sources:
    """Factory of the sources of one test; the first Tool is started with the
    first of them."""

    def __init__(self, far, new_tool, watch):
        self.far, self.new_tool, self.watch = far, new_tool, watch
        self.tools = []

    def tool(self, **env):
        one = self.new_tool("queen-pgsrc", **{
            "QUEEN_PG_ALLOW_PRIVATE_NETWORKS": "true",
            "QUEEN_PG_LEASE_TTL_MS": "3000",
            **env}).start()
        self.tools.append(one)
        return one

    def __call__(self, name, tables, _tool=None, _far=None, **more):
        tool = _tool or (self.tools or [self.tool()])[0]
        made = Source(tool, _far or self.far, name, [
            {"table": t, "queue": q, **rest} for t, q, rest in
            (t if len(t) == 3 else (*t, {}) for t in tables)], **more)
        self.watch.add(made)
        return made


class Watch(threading.Thread):
    """Looks at every slot and its pointer, as long as the test runs: a slot
    is never beyond what the queue has."""

    def __init__(self, far):
        super().__init__(daemon=True)
        self.far, self.sources = far, []
        self.over = threading.Event()
        self.beyond = []

    def add(self, source):
        self.sources.append(source)
        if not self.is_alive():
            self.start()

    def run(self):
        while not self.over.wait(0.25):
            with contextlib.suppress(Exception):
                self.look()

    def look(self):
        for s in list(self.sources):
            confirmed, pointer = s.confirmed(), s.pointer()
            if pointer and confirmed > number_of(pointer["lsn"]):
                self.beyond.append((s.name, confirmed, pointer["lsn"]))

    def end(self):
        self.over.set()
        if self.is_alive():
            self.join()
        assert not self.beyond


@pytest.fixture
def src(far, new_tool):
    watch = Watch(far)
    yield Sources(far, new_tool, watch)
    watch.end()


__all__ = ["TENANT", "Damage", "Event", "Source", "Writers", "check",
           "check_event", "compare", "events", "fills", "held_copy",
           "number_of", "ops", "parse", "raw_events", "replay", "src",
           "table_rows", "waiting_for_lock"]

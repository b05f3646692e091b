# SPDX-License-Identifier: Apache-2.0
"""
Processes of queen-s3, a log whose stamps a test chooses, and the lake as a
reader sees it.

new_lake  new_lake(bucket, **env) -> a Lake on db, not yet started: one node
log       a Log on db
"""
import collections
import collections.abc
import ctypes
import datetime
import gzip
import hashlib
import json
import os
import re
import signal
import struct
import subprocess

import pytest

import queenlib
from connkit import Tool
from queenlib import TENANT, binary, tail, wait_until
from sqlkit import Kit, at, mid
from srckit import ZSTD

BASE = int(at(0).timestamp()) * 10**6   # where Log counts from, in us
Record = collections.namedtuple("Record", "offset ts txn payload")
Window = collections.namedtuple("Window", "k start end objects lost manifest")


def stamp(seconds):
    return BASE + round(seconds * 10**6)


class Log:
    """Pushes with the stamps asked for; what was pushed is `records`."""

    def __init__(self, db):
        self.db, self.kit = db, Kit(db.connect())
        self.records = collections.defaultdict(dict)  # queue, partition
        self.part_ids = {}

    def push(self, queue, part, payloads, seconds=None):
        """One segment, stamped so many seconds after the base, or now."""
        if (queue, part) not in self.part_ids:
            self.part_ids[queue, part] = self.kit.part(
                self.kit.queue(queue), part)
        ids = ["%s-%d" % (part, self.kit.serial + i)
               for i in range(len(payloads))]
        self.kit.serial += len(payloads)
        frames = b"".join(frame(i, p) for i, p in zip(ids, payloads))
        base = self.kit.push(
            self.part_ids[queue, part], ids=ids, raw=len(frames),
            now=None if seconds is None else at(seconds),
            blob=b"\x01\x00" + frames)
        when = self.db.value(
            "select created_at from queen.segments where partition_id = %s"
            " and base_offset = %s", (self.part_ids[queue, part], base))
        us = round(when.timestamp() * 10**6)
        for i, (txn, payload) in enumerate(zip(ids, payloads)):
            self.records[queue].setdefault(part, []).append(
                Record(base + i, us, txn, payload))

    def row(self, sink, queue, what):
        """A row of the sink, None when there is none."""
        found = self.db.rows(
            "select value from queen.kv where namespace = 'queen-s3' and"
            " key = %s and tenant = %s",
            ("s3:%s:%s:%s" % (sink, queue, what), TENANT))
        return found[0][0] if found else None

    def k(self, sink, queue):
        return (self.row(sink, queue, "committed") or {"k": 0})["k"]

    def await_k(self, sink, queue, k, lake):
        try:
            wait_until(lambda: self.k(sink, queue) >= k)
        except AssertionError:
            raise AssertionError("no window %d of %s: %s\n%s" % (
                k, sink, lake.queue(queue), tail(lake.log))) from None


def frame(txn, payload):
    """lib/frame.h"""
    text = txn.encode()
    body = b"\0" + mid(txn) + struct.pack("<H", len(text)) + text \
        + payload.encode()
    return struct.pack("<I", len(body)) + body


class Lake(Tool):
    """One node of one sink of the environment."""

    def __init__(self, db, folder, env, node):
        super().__init__(db, folder, "queen-s3", env, node)

    def env(self):
        env = queenlib.Cell.env(self)
        for name in "PORT", "QUEEN_BIND_ADDR", "DB_POOL_SIZE":
            env.pop(name)
        return {"QUEEN_S3_LISTEN": "127.0.0.1:%d" % self.port.number,
                "QUEEN_S3_INSTANCE": self.node,
                "QUEEN_S3_START": "earliest",
                "QUEEN_S3_SAFE_GUARD_MS": "0",
                "QUEEN_FETCH_SAFE_GUARD_MS": "500",
                "QUEEN_S3_DISCOVERY_INTERVAL_MS": "50",
                "QUEEN_S3_LEASE_TTL_MS": "3000", **env}

    def queue(self, name):
        """Its block of /status, {} when there is none yet."""
        for sink in self.get("/status").body["sinks"]:
            for block in sink["queues"]:
                if block["name"] == name:
                    return block
        return {}

    def await_queue(self, name, **want):
        def reached():
            block = self.queue(name)
            return block if want.items() <= block.items() else None
        try:
            return wait_until(reached)
        except AssertionError:
            raise AssertionError("not %s of %s: %s\n%s" % (
                want, name, self.queue(name), tail(self.log))) from None

    def await_crash(self):
        code = self.wait_exit()
        assert code == -signal.SIGABRT, (code, tail(self.log))

    def healthy(self):
        if self.proc.poll() is not None:
            self.expected_end = True
            raise AssertionError("%s ended with %d at boot:\n%s" % (
                self.name, self.proc.returncode, tail(self.log)))
        try:
            return self.get("/status", timeout=5).status == 200
        except OSError:
            return False

    def start(self, wait=True):
        assert self.proc is None or self.proc.poll() is not None
        with open(self.log, "ab") as log:
            self.proc = subprocess.Popen(
                [binary("queen-s3")], stdin=subprocess.DEVNULL, stdout=log,
                stderr=log, env=self.env(), cwd=self.folder)
        self.expected_end = not wait
        if wait:
            wait_until(self.healthy, what="status of %s:\n%s"
                       % (self.name, tail(self.log)))
        return self


# ---- the lake ----

class Bytes(collections.abc.Mapping):
    """Entries of a listing by name, each read when it is looked at."""

    def __init__(self, bucket, entries):
        self.bucket, self.all = bucket, entries

    def __getitem__(self, name):
        return self.bucket.read(self.all[name])

    def __iter__(self):
        return iter(self.all)

    def __len__(self):
        return len(self.all)


class Objects:
    """What lies below a prefix of a bucket, for one queue, as of now."""

    def __init__(self, bucket, prefix, queue, tenant=TENANT):
        below = "tenant=%s/queue=%s/" % (tenant, queue)
        self.data_below = "%s/%s" % (prefix, below)
        self.side_below = "%s/_queen/%s" % (prefix, below)
        self.bucket, self.prefix = bucket, prefix
        entries = bucket.list(prefix + "/")
        self.keys = [e.key for e in entries]
        self.data = Bytes(bucket, {
            e.key: e for e in entries if e.key.startswith(self.data_below)})
        self.side = Bytes(bucket, {
            e.key[len(self.side_below):]: e for e in entries
            if e.key.startswith(self.side_below)})

    def bytes(self):
        return {k: self.bucket.get(k) for k in self.keys}

    def windows(self):
        """In order of k, each checked against its objects."""
        found, listed = [], set()
        for name in sorted(self.side):
            if not name.startswith("windows/"):
                continue
            m = json.loads(self.side[name])
            assert name == "windows/%010d.json" % m["k"]
            for o in m["objects"]:
                data = self.data[o["key"]]
                assert o["bytes"] == len(data)
                assert o["sha256"] == hashlib.sha256(data).hexdigest()
                listed.add(o["key"])
            assert m["records"] == sum(o["records"] for o in m["objects"])
            assert m["bytes"] == sum(o["bytes"] for o in m["objects"])
            found.append(Window(m["k"], m["tStart"], m["tEnd"], m["objects"],
                                m["lost"], m))
        assert listed == set(self.data), "objects no manifest names"
        assert [w.k for w in found] == list(range(1, len(found) + 1))
        for a, b in zip(found, found[1:]):
            assert a.end <= b.start < b.end
        return found

    def records(self):
        """{partition: [Record]} of all windows, JSONL alone."""
        found = collections.defaultdict(list)
        for w in self.windows():
            rows = []
            for o in w.objects:
                lines = plain(o["key"], self.data[o["key"]]).split("\n")
                assert lines.pop() == ""
                assert len(lines) == o["records"]
                rows += [fields(line) for line in lines]
            assert rows == sorted(rows, key=lambda r: (
                r[0].encode(), r[1].ts, r[1].offset))
            for part, r in rows:
                assert w.start <= r.ts < w.end
                found[part].append(r)
        return dict(found)

    def comparable(self):
        """Every byte but what tells runs apart: sink, prefix, wall clock."""
        cut = len(self.prefix) + 1
        found = {k[cut:]: v for k, v in self.data.items()}
        for name in self.side:
            if name.startswith("windows/"):
                m = json.loads(self.side[name])
                del m["committedAt"], m["sink"]
                for o in m["objects"]:
                    o["key"] = o["key"][cut:]
                found[name] = json.dumps(m)
        return found


LINE = re.compile(
    r'\{"partition":("(?:[^"\\]|\\.)*"),"offset":(-?\d+),'
    r'"transactionId":("(?:[^"\\]|\\.)*"),"ts":"([^"]*)","payload":(.*)\}')


def fields(line):
    """(partition, Record) of one line; the payload as it lies there."""
    m = LINE.fullmatch(line)
    assert m, line
    return json.loads(m[1]), Record(int(m[2]), micros(m[4]),
                                    json.loads(m[3]), m[5])


def micros(text):
    when = datetime.datetime.strptime(text, "%Y-%m-%dT%H:%M:%S.%fZ")
    return round((when - datetime.datetime(1970, 1, 1))
                 / datetime.timedelta(microseconds=1))


def plain(key, data):
    if key.endswith(".zst"):
        return unzstd_stream(data).decode()
    if key.endswith(".gz"):
        return gzip.decompress(data).decode()
    assert key.endswith(".jsonl")
    return data.decode()


def unzstd_stream(data):
    """Of a frame that does not say how long its content is."""
    room = 1 << 20
    while True:
        out = ctypes.create_string_buffer(room)
        n = ZSTD.ZSTD_decompress(out, ctypes.c_size_t(room), data,
                                 ctypes.c_size_t(len(data)))
        if n <= room:
            return out.raw[:n]
        assert room < 1 << 30, "no zstd frame"
        room *= 8


def after_commits(db, there, tenant=TENANT):
    """there(), but asked once after each commit: it lists a bucket, which
    costs the server as much as an upload."""
    seen = [None]

    def again():
        found = db.rows("select key, value from queen.kv where tenant = %s and"
                        " namespace = 'queen-s3' and key like '%%:committed'"
                        " order by key", (tenant,))
        if found == seen[0]:
            return False
        seen[0] = found
        return there()
    return again


def await_records(bucket, prefix, queue, want, lake):
    """All of them and nothing else, as soon as no window is under way."""
    def there():
        try:
            return Objects(bucket, prefix, queue).records() == want
        except AssertionError:
            return False
    try:
        wait_until(after_commits(lake.db, there))
    except AssertionError:
        raise AssertionError("not the records of %s under %s\n%s" % (
            queue, prefix, tail(lake.log))) from None


# ---- fixtures ----

@pytest.fixture
def log(db):
    return Log(db)


@pytest.fixture
def new_lake(db, folder, keep_log):
    made = []

    def make(bucket, _db=None, **env):
        node = env.pop("QUEEN_S3_INSTANCE", "node%d" % len(made))
        one = Lake(_db or db, folder, {**bucket.env(), **env}, node)
        made.append(one)
        keep_log(one.name, one.log)
        return one

    yield make
    faults = []
    for one in made:
        try:
            one.close()
        except AssertionError as e:
            faults.append(str(e))
    assert not faults, "\n".join(faults)

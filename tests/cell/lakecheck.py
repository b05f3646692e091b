# SPDX-License-Identifier: Apache-2.0
"""
The lake, judged by what a reader finds in it.

Tree     the objects below a prefix, copied into files
check    reads a tree as a reader does, by globbing, and compares it with what
         the producers sent and with the manifests; Damage says what is wrong,
         its first word which kind it is

What was sent is {partition: [Sent]}; an offset of None is the place in the
list.  Nothing here shares code with the product.
"""
import collections
import datetime
import glob
import hashlib
import json
import os
import re
import subprocess
from urllib.parse import quote

import queenlib
from lakekit import Record, fields, plain
from queenlib import TENANT
from srckit import Damage, claim

__all__ = ["Damage", "Lake", "Sent", "Tree", "check"]

Sent = collections.namedtuple("Sent", "txn payload offset ts",
                              defaults=(None, None))
Lake = collections.namedtuple("Lake", "windows records lost")
NAME = re.compile(
    r"dt=(\d{4}-\d\d-\d\d)(?:/hour=(\d\d))?/w-(\d{10,})-(\d{16,})-(\d{16,})"
    r"(?:-p-([A-Za-z0-9._%-]*)-(\d{12,})-(\d{12,}))?"
    r"\.(jsonl\.zst|jsonl\.gz|jsonl|parquet)")
EXT = {("jsonl", "zstd"): "jsonl.zst", ("jsonl", "gzip"): "jsonl.gz",
       ("jsonl", "none"): "jsonl", ("parquet", "zstd"): "parquet",
       ("parquet", "snappy"): "parquet"}


def escape(name):
    return quote(name, safe="").replace("~", "%7E")


class Tree:
    """
    Files named by their keys.  What was copied is not copied again, and a
    Parquet file that did not change is not read again.
    """

    def __init__(self, folder, bucket=None, prefix="queen"):
        self.folder, self.bucket, self.prefix = folder, bucket, prefix
        self.etags, self.read = {}, {}

    def path(self, key):
        path = os.path.normpath(os.path.join(self.folder, key))
        assert path.startswith(os.path.abspath(self.folder) + os.sep), key
        return path

    def pull(self):
        """As of now; a manifest that is there has its objects there."""
        found = {}
        for below in "/_queen/", "/tenant=":
            found.update((e.key, e.etag) for e in self.bucket.list(
                self.prefix + below) if below == "/tenant="
                or "/windows/" in e.key)
        for key in set(self.etags) - set(found):
            os.unlink(self.path(key))
        for key, etag in found.items():
            if self.etags.get(key) != etag:
                os.makedirs(os.path.dirname(self.path(key)), exist_ok=True)
                self.write(key, self.bucket.get(key))
        self.etags = found
        return self

    def write(self, key, data):
        with open(self.path(key), "wb") as f:
            f.write(data)

    def bytes(self, key):
        with open(self.path(key), "rb") as f:
            return f.read()

    def glob(self, pattern):
        """Keys in their order; **/ is one level or none."""
        root = os.path.join(glob.escape(self.folder),
                            glob.escape(self.prefix))
        found = {p for depth in ("", "*/") for p in glob.glob(os.path.join(
            root, pattern.replace("**/", depth))) if os.path.isfile(p)}
        return sorted(os.path.relpath(p, self.folder) for p in found)

    def pages(self, keys):
        """The rows of Parquet files: {key: [(partition, Record)]}."""
        ask = {k: hashlib.sha256(self.bytes(k)).hexdigest() for k in keys}
        new = sorted({d: k for k, d in ask.items()
                      if d not in self.read}.items())
        if new:
            done = subprocess.run(
                ["node", os.path.join(queenlib.ROOT, "tests", "s3",
                                      "read.mjs")],
                input="".join(json.dumps({"parquet": self.path(k)}) + "\n"
                              for _, k in new).encode(),
                stdout=subprocess.PIPE, check=True, timeout=120)
            for (digest, key), line in zip(new, done.stdout.decode()
                                           .split("\n")):
                answer = json.loads(line)
                claim("rows" in answer, "form", key, answer)
                self.read[digest] = [
                    (p, Record(int(o), int(ts), txn, payload))
                    for p, o, txn, ts, payload in answer["rows"]]
        return {k: self.read[d] for k, d in ask.items()}


def check(tree, queue, sent, sink="default", tenant=TENANT, floor=None,
          live=False, lost=False, first=1):
    """
    floor   {partition: n}: of what was sent at least the first n are there;
            without it, all
    live    windows are being written: the objects behind the newest manifest
            may be there in part
    lost    what is missing may be so if a manifest says it is lost
    first   number of the first window, under a prefix that is a later one
    """
    below = "tenant=%s/queue=%s/" % (tenant, escape(queue))
    windows = manifests(tree, below, (sink, tenant, queue), first)
    data = objects(tree, below, windows, first + len(windows)
                   if live else None)
    records = {}
    for m, rows in contents(tree, windows, data):
        add(records, m, rows)
    gone = losses(windows)
    claim(lost or not gone, "lost", gone)
    compare(records, sent, floor, gone)
    return Lake(windows, records, gone)


# ---- keys and manifests ----

def manifests(tree, below, names, first):
    found = []
    for key in tree.glob("_queen/" + below + "windows/*"):
        m = json.loads(tree.bytes(key))
        claim(os.path.basename(key) == "%010d.json" % m["k"], "key", key)
        claim((m["sink"], m["tenant"], m["queue"]) == names, "key", m)
        found.append(m)
    claim([m["k"] for m in found] == list(range(first, first + len(found))),
          "tiling", "windows", [m["k"] for m in found])
    for m in found:
        claim(m["tStart"] < m["tEnd"], "tiling", m)
    for a, b in zip(found, found[1:]):
        claim(a["tEnd"] <= b["tStart"], "tiling", a["k"], a["tEnd"],
              b["tStart"])
    return found


def objects(tree, below, windows, under_way):
    """Keys of data that one manifest lists, {key: match of NAME}."""
    found, listed = {}, collections.Counter(
        o["key"] for m in windows for o in m["objects"])
    for key in tree.glob(below + "dt=*/**/*"):
        m = NAME.fullmatch(key[len(tree.prefix) + 1 + len(below):])
        claim(m, "key", key)
        if int(m[3]) == under_way:
            continue
        claim(listed[key] == 1, "orphan", key)
        found[key] = m
    for key in listed:
        claim(key in found, "missing", "object", key)
    return found


def agrees(m, o, name, data):
    """An object with its entry in the manifest, and its key with both."""
    key = o["key"]
    start = datetime.datetime(1970, 1, 1) + datetime.timedelta(
        microseconds=m["tStart"])
    day, hour, k, *bounds = name.groups()[:5]
    claim((int(k), *map(int, bounds)) == (m["k"], m["tStart"], m["tEnd"]),
          "key", key)
    claim(day == start.strftime("%Y-%m-%d"), "key", key)
    claim(hour in (None, start.strftime("%H")), "key", key)
    claim(name[9] == EXT[m["format"], m["compression"]], "key", key)
    claim((name[6] is None) == (m["layout"] == "merged"), "key", key)
    claim(o["bytes"] == len(data), "bytes", key)
    claim(o["sha256"] == hashlib.sha256(data).hexdigest(), "bytes", key)


# ---- contents ----

def contents(tree, windows, data):
    """(manifest, its rows as they lie there), in the order of windows."""
    paged = tree.pages(
        [o["key"] for m in windows if m["format"] == "parquet"
         for o in m["objects"]])
    for m in windows:
        rows = []
        for o in m["objects"]:
            key = o["key"]
            text = tree.bytes(key)
            agrees(m, o, data[key], text)
            mine = paged[key] if key in paged else lines(key, text)
            claim(len(mine) == o["records"], "count", key, len(mine))
            if m["layout"] == "per-partition":
                own_part(o, data[key], mine)
            rows.append(mine)
        whole(m, [r for mine in rows for r in mine])
        for mine in rows:
            in_order(m, mine)
        yield m, [r for mine in rows for r in mine]


def lines(key, data):
    text = plain(key, data).split("\n")
    claim(text.pop() == "", "form", key)
    for line in text:
        claim(list(json.loads(line)) == ["partition", "offset",
                                         "transactionId", "ts", "payload"],
              "form", line)
    return [fields(line) for line in text]


def in_key(name, part):
    """Escaped, and cut where the key would have more than 1024 bytes."""
    whole, cut = escape(part), name.groups()[5].partition("~")
    if not cut[1]:
        return whole
    claim(whole.startswith(cut[0]) and len(name.string) <= 1024
          and len(name.string) + len(whole) - len(name.groups()[5]) > 980,
          "key", name.string)
    return cut[0] + "~" + hashlib.sha256(part.encode()).hexdigest()[:32]


def own_part(o, name, rows):
    part, first, last = o["partition"], o["firstOffset"], o["lastOffset"]
    claim(name.groups()[5:8] == (in_key(name, part), "%012d" % first,
                                 "%012d" % last), "key", o)
    claim(all(p == part for p, _ in rows), "partition", o)
    claim(not rows or (rows[0][1].offset, rows[-1][1].offset)
          == (first, last), "offsets", o)


def whole(m, rows):
    stamps = [r.ts for _, r in rows]
    claim(m["records"] == len(rows), "count", m)
    claim(m["bytes"] == sum(o["bytes"] for o in m["objects"]), "bytes", m)
    claim(m["partitions"] == len({p for p, _ in rows}), "count", m)
    for p, r in rows:
        claim(m["tStart"] <= r.ts < m["tEnd"], "stamp", p, r, m["tStart"],
              m["tEnd"])
    claim((m.get("minTs"), m.get("maxTs")) == (
        (min(stamps), max(stamps)) if stamps else (None, None)), "count", m)


def in_order(m, rows):
    """Of one object; what is twice in it is so in order."""
    def place(row):
        return row[0].encode(), row[1].ts, row[1].offset
    claim(rows == sorted(rows, key=place), "order", "in window", m["k"])


def add(records, m, rows):
    for part, r in rows:
        mine = records.setdefault(part, [])
        if mine:
            # a partition made again begins again, later
            again = r.offset < mine[-1].offset and r.ts > mine[-1].ts
            claim((r.offset, r.ts) != (mine[-1].offset, mine[-1].ts),
                  "duplicate", part, r)
            claim(r.offset > mine[-1].offset or again, "duplicate",
                  part, r, "in window", m["k"])
            claim(r.ts >= mine[-1].ts, "order", part, r)
        mine.append(r)


def losses(windows):
    found = collections.defaultdict(list)
    for m in windows:
        for gap in m["lost"]:
            found[gap["partition"]].append((gap["from"], gap["to"]))
    return dict(found)


# ---- against the producers ----

def compare(records, sent, floor, gone):
    claim(set(records) <= set(sent), "alien", set(records) - set(sent))
    for part, list_sent in sent.items():
        there = records.get(part, [])
        least = len(list_sent) if floor is None else floor.get(part, 0)
        stamped = any(s.ts is not None for s in list_sent)
        got = {(r.offset, r.ts if stamped else None): r for r in there}
        claim(len(got) == len(there), "duplicate", part)
        for n, s in enumerate(list_sent):
            offset = n if s.offset is None else s.offset
            r = got.pop((offset, s.ts), None)
            missed = any(a <= offset <= b for a, b in gone.get(part, ()))
            if r is None:
                claim(n >= least or missed, "missing", part, offset, s)
                continue
            claim(stamped or not missed, "lost", "but there", part, offset)
            claim(r.txn == s.txn, "id", part, offset, r.txn, s.txn)
            claim(same(r.payload, s.payload), "payload", part, offset,
                  r.payload, s.payload)
        claim(not got, "alien", part, list(got)[:5])


def same(there, payload):
    """Lines have spaces for the line breaks that lie between tokens."""
    return there == payload or there == payload.replace(
        "\n", " ").replace("\r", " ")

# SPDX-License-Identifier: Apache-2.0
"""Who judges the lake sees what he is there for: each kind of damage is
refused, and for what it is."""
import copy
import datetime
import hashlib
import json
import os
import shutil

import pytest

from lakecheck import Damage, Sent, Tree, check
from lakekit import Record
from queenlib import TENANT

T0 = 1788516000000000                   # 2026-09-04T10:00Z
BELOW = "queen/tenant=%s/queue=a%%2Fb/dt=2026-09-04/hour=10/" % TENANT
SIDE = "queen/_queen/tenant=%s/queue=a%%2Fb/windows/" % TENANT
PAYLOADS = ('{"n": 1,\n"n": 1E+400}', '"\u2028\x7f"', "-0")


class Made:
    """Three windows of three partitions, as they may lie in a bucket."""

    def __init__(self, root):
        self.root, self.tree = root, Tree(root)
        self.windows, self.sent = [], {p: [] for p in ("p", "q/ü", "r")}
        for k in (1, 2, 3):
            rows = []
            for part, sent in self.sent.items():
                for n, payload in enumerate(PAYLOADS):
                    one = Record(len(sent), T0 + k * 1000 + n // 2,
                                 "%s-%d" % (part, len(sent)), payload)
                    sent.append(Sent(one.txn, payload))
                    rows.append((part, one))
            self.windows.append((k, T0 + k * 1000, T0 + k * 1000 + 900, rows))

    def write(self):
        for k, start, end, rows in self.windows:
            key = BELOW + "w-%010d-%016d-%016d.jsonl" % (k, start, end)
            data = "".join(map(line, rows)).encode()
            stamps = [r.ts for _, r in rows]
            self.file(key, data)
            self.file(SIDE + "%010d.json" % k, json.dumps({
                "sink": "default", "tenant": TENANT, "queue": "a/b", "k": k,
                "tStart": start, "tEnd": end, "format": "jsonl",
                "compression": "none", "layout": "merged", "objects": [{
                    "key": key, "bytes": len(data), "records": len(rows),
                    "sha256": hashlib.sha256(data).hexdigest()}],
                "records": len(rows), "bytes": len(data),
                "partitions": len({p for p, _ in rows}),
                "minTs": min(stamps), "maxTs": max(stamps),
                "lost": []}).encode())
        return self

    def file(self, key, data):
        path = self.tree.path(key)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as f:
            f.write(data)

    def check(self, **kw):
        return check(self.tree, "a/b", self.sent, **kw)


def line(row):
    part, r = row
    when = datetime.datetime(1970, 1, 1) + datetime.timedelta(
        microseconds=r.ts)
    return '{"partition":%s,"offset":%d,"transactionId":%s,"ts":"%sZ",' \
        '"payload":%s}\n' % (
            json.dumps(part, ensure_ascii=False), r.offset,
            json.dumps(r.txn, ensure_ascii=False),
            when.isoformat(timespec="microseconds"),
            r.payload.replace("\n", " "))


def edit(n, **fields):
    """Of the second window."""
    def do(made):
        part, r = made.windows[1][3][n]
        made.windows[1][3][n] = part, r._replace(**fields)
    return do


def repeated(made):
    """In a later window, stamped to fit in there."""
    part, r = made.windows[1][3][2]
    made.windows[2][3].insert(0, (part, r._replace(ts=T0 + 3000)))


def swapped(made):
    rows = made.windows[1][3]
    rows[0], rows[1] = rows[1], rows[0]


def overlapping(made):
    k, start, end, rows = made.windows[1]
    made.windows[1] = k, start, end + 200, rows


def orphan(made):
    made.file(BELOW + "w-%010d-%016d-%016d.jsonl.gz" % (
        2, T0 + 2000, T0 + 2900), b"")


def changed(made):
    key = made.tree.glob(SIDE[len("queen/"):] + "*")[1]
    m = json.loads(made.tree.bytes(key))
    m["objects"][0]["sha256"] = hashlib.sha256(b"").hexdigest()
    made.file(key, json.dumps(m).encode())


DAMAGE = {
    "payload": edit(1, payload='"\u2028\x7e"'),
    "id": edit(1, txn="p-4 "),
    "duplicate": repeated,
    "missing": lambda made: made.windows[1][3].pop(1),
    "order": swapped,
    "stamp": edit(8, ts=T0 + 2900),
    "tiling": overlapping,
    "orphan": orphan,
    "bytes": changed,
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_each_damage_is_refused_for_what_it_is(tmp_path, kind):
    made = Made(str(tmp_path)).write()
    assert len(made.check().windows) == 3
    if kind not in ("orphan", "bytes"):
        DAMAGE[kind](made)
        shutil.rmtree(made.tree.path("queen"))
        made.write()
    else:
        DAMAGE[kind](made)
    with pytest.raises(Damage, match="^%s " % kind):
        made.check()


def test_what_is_not_asked_for_yet_may_be_missing(tmp_path):
    """A record not answered, one that is told lost, a window under way; but
    nothing that nobody sent, and nothing lost that is there."""
    made = Made(str(tmp_path)).write()
    late = copy.deepcopy(made.sent)
    late["p"].append(Sent("p-9", "1"))
    made.sent = late
    with pytest.raises(Damage, match="^missing "):
        made.check()
    made.check(floor={"p": 9, "q/ü": 9, "r": 9})
    key = made.tree.glob(SIDE[len("queen/"):] + "*")[2]
    last = json.loads(made.tree.bytes(key))
    last["lost"] = [{"partition": "p", "from": 9, "to": 9}]
    made.file(key, json.dumps(last).encode())
    with pytest.raises(Damage, match="^lost "):
        made.check()
    assert made.check(lost=True).lost == {"p": [(9, 9)]}
    last["lost"][0]["from"] = 8
    made.file(key, json.dumps(last).encode())
    with pytest.raises(Damage, match="^lost but there"):
        made.check(lost=True)
    os.unlink(made.tree.path(key))
    with pytest.raises(Damage, match="^orphan "):
        made.check(lost=True)
    made.check(live=True, floor={})
    del made.sent["r"]
    with pytest.raises(Damage, match="^alien "):
        made.check(live=True, floor={})

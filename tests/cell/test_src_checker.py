# SPDX-License-Identifier: Apache-2.0
"""The checker of events: what it must refuse, and what it must not."""
from decimal import Decimal

import pytest

from srckit import Damage, Event, check, parse

TS = "2026-10-02T10:00:00.000001Z"


class Queue:
    """Events of one table, written by hand as a source writes them."""

    def __init__(self):
        self.events, self.offsets = [], {}

    def add(self, op, lsn, key, after=None, seq=0, fill=False, **more):
        copied = op == "r" or fill
        p = {"op": op, "table": "public.t", "key": {"id": key},
             "after": after if op == "d" else {"id": key, **(after or {})},
             "before": {"id": key} if op == "d" else None}
        p.update(more)
        p["lsn"] = "0/%X" % lsn
        if not copied:
            p["xid"] = 700
        p.update(ts=TS, seq=seq)
        part = str(key)
        at = self.offsets.get(part, 0)
        self.offsets[part] = at + 1
        self.events.append(Event("q", part, at, "pg:7be01c4d:%s%016X:%s%d" % (
            "s:" if copied else "", lsn, "f" if fill else "", seq), p))
        return self

    def change(self, i, **more):
        self.events[i] = self.events[i]._replace(**more)
        return self


def good():
    """Keys 1 to 4; 4 is deleted."""
    return (Queue().add("r", 0x50, 1, {"n": 1, "body": "a"})
            .add("r", 0x50, 2, {"n": 1, "body": "b"}, seq=1)
            .add("c", 0x60, 3, {"n": Decimal("1.50"), "body": "c"})
            .add("u", 0x70, 1, {"n": 2}, unchanged=["body"])
            .add("c", 0x80, 4, {"n": 1, "body": "d"})
            .add("d", 0x90, 4))


ROWS = {"public.t": {
    (1,): {"id": 1, "n": 2, "body": "a"},
    (2,): {"id": 2, "n": 1, "body": "b"},
    (3,): {"id": 3, "n": Decimal("1.50"), "body": "c"}}}


def test_a_correct_queue_is_accepted():
    assert check(good().events, ROWS) == ROWS


def without(q, i):
    del q.events[i]
    return q


def two_epochs(q):
    return q.change(0, id=q.events[0].id.replace("7be01c4d", "00000000"))


@pytest.mark.parametrize("damage, says", [
    (lambda q: q.change(1, id=q.events[0].id), "seq"),
    (lambda q: q.add("u", 0x60, 3, {"n": 2, "body": "c"}), "id twice"),
    (lambda q: q.add("u", 0x55, 3, {"n": 2, "body": "c"}), "lsn goes back"),
    (lambda q: without(q, 2), "lost"),
    (lambda q: without(q, 5), "not deleted"),
    (lambda q: q.change(1, payload=dict(
        q.events[1].payload, after={"id": 2, "n": 7, "body": "b"})),
     "differs"),
    (lambda q: q.change(2, payload=dict(
        q.events[2].payload,
        after={"id": 3, "n": Decimal("1.5"), "body": "c"})), "differs"),
    (lambda q: q.change(3, partition="2", offset=1), "two partitions"),
    (lambda q: q.add("u", 0xa0, 5, {"n": 1}, unchanged=["body"]),
     "no value"),
    (lambda q: q.add("r", 0xa0, 4, {"n": 1, "body": "d"}),
     "copied after its delete"),
    (lambda q: q.change(3, offset=0), "offset"),
    (lambda q: q.add("c", 0xa0, 3, {"n": 1, "body": "c"}),
     "inserted twice"),
    (two_epochs, "epochs"),
    (lambda q: q.change(2, payload=parse('{"op":"c"}')), "xid"),
], ids=lambda v: v.replace(" ", "-") if isinstance(v, str) else "")
def test_damage_is_refused(damage, says):
    with pytest.raises((Damage, KeyError), match=says):
        check(damage(good()).events, ROWS)


def test_a_row_of_a_copy_is_repaired_by_its_fill():
    q = Queue().add("u", 0x60, 1, {"n": 2}, unchanged=["body"])
    with pytest.raises(Damage, match="no value"):
        check(q.events)
    q.add("u", 0x70, 1, {"body": "a"}, fill=True, unchanged=["n"])
    rows = {"public.t": {(1,): {"id": 1, "n": 2, "body": "a"}}}
    assert check(q.events, rows) == rows

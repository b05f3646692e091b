# SPDX-License-Identifier: Apache-2.0
"""
Random transactions over a few shared names, so that their locks collide, and
what must hold of those that were committed.

Every bundle carries three marks of its own: a key, a message and a timer.  All
of them are there afterwards, or none, as its answer said.
"""
import collections
import random
import threading
import time

from queenlib import wait_until
from riderkit import (absent, cancel, delete, get, get_many, incr, put,
                      schedule)

GROUPS = ["g1", "g2"]
PARTS = [str(i) for i in range(8)]
KEYS, COUNTERS, SHORT = list("abcd"), ["c0", "c1", "c2"], ["s0", "s1"]
TIMERS = ["t0", "t1", "t2"]
NAMES = [(q, t) for q in ("fired0", "fired1") for t in TIMERS]

Write = collections.namedtuple("Write", "sent got key op expect version value")
Done = collections.namedtuple("Done", "mark ok reason acks")


class History:
    """What all clients were told."""

    def __init__(self):
        self.lock = threading.Lock()
        self.bundles, self.writes = [], []
        self.timers = collections.Counter()     # (queue, key, status)
        self.sums = collections.Counter()       # counter -> applied deltas
        self.versions = {}                      # key -> last version told
        self.marks = []                         # committed, for duplicates
        self.leases = {}                        # (group, partition id) -> id

    def learn(self, sent, ops, results):
        """Results of kv and timer operations of a call that committed."""
        now = time.monotonic()
        with self.lock:
            for op, r in zip(ops, results):
                if "status" in r:
                    self.timers[r["queue"], r["timerKey"], r["status"]] += 1
                elif r.get("applied"):
                    self.writes.append(Write(
                        sent, now, r["key"], r["op"], op.get("expect"),
                        r["version"], r["value"]))
                    if r["op"] == "incr":
                        self.sums[r["key"]] += op["delta"]
                    self.versions[r["key"]] = r["version"]


def own_writes_are_seen(ops, results):
    """A getMany reads what the same call wrote."""
    wrote = {r["key"]: r for r in results
             if r["op"] in ("put", "putIfAbsent", "incr") and r["applied"]}
    gone = {r["key"] for r in results if r["op"] == "delete" and r["applied"]}
    for op, r in zip(ops, results):
        if r["op"] != "getMany":
            continue
        assert {row["key"] for row in r["rows"]} | set(r["missing"]) == \
            set(op["keys"])
        for row in r["rows"]:
            assert row["key"] not in gone
            if row["key"] in wrote:
                assert (row["value"], row["version"]) == (
                    wrote[row["key"]]["value"], wrote[row["key"]]["version"])


class Maker:
    """Makes operations; `sure` causes of a rollback, `maybe` ones."""

    def __init__(self, rng, history):
        self.rng, self.history = rng, history

    def expect(self, key):
        return self.history.versions.get(key) or 1

    def shared_write(self, key, maybe):
        rng = self.rng
        kind = rng.randrange(6)
        more = {}
        if kind in (1, 2, 4):
            more["required"] = rng.random() < 0.3
        if kind == 2 or kind == 4:
            more["expect"] = self.expect(key)
        if more.get("required"):
            maybe.add("kv_precondition")
        if kind == 1:
            return absent(key, rng.randrange(1000), **more)
        if kind < 3:
            return put(key, rng.randrange(1000), **more)
        if kind < 5:
            return delete(key, **more)
        return get(key)

    def kv(self, maybe):
        rng = self.rng
        ops = [self.shared_write(k, maybe)
               for k in rng.sample(KEYS, rng.randrange(4))]
        for k in rng.sample(COUNTERS, rng.randrange(3)):
            more = {"max": 10 ** 6} if rng.random() < 0.3 else {}
            ops.append(incr(k, rng.randrange(1, 5), **more))
        for k in rng.sample(SHORT, rng.randrange(2)):
            ops.append(rng.choice([put, absent])(k, 1, ttlSeconds=1))
        if rng.random() < 0.5:
            ops.append(get_many(*rng.sample(KEYS + COUNTERS, 3)))
        return ops

    def timers(self):
        made = []
        for queue, key in self.rng.sample(NAMES, self.rng.randrange(5)):
            made.append(cancel(key, queue) if self.rng.random() < 0.3 else
                        schedule(key, self.rng.choice([0, 50, 200]), queue,
                                 partition=key))
        return made

    def pushes(self, mark):
        for i in range(self.rng.randrange(3)):
            into_in = self.rng.random() < 0.4
            yield {"type": "push", "transactionId": "%s-%d" % (mark, i),
                   "queue": "in" if into_in else
                   "out%d" % self.rng.randrange(3), "payload": i,
                   "partition": self.rng.choice(PARTS)}


class Bundler:
    """One connection that sends bundles and acks what it popped."""

    def __init__(self, history, cell, number, seed):
        self.history, self.cell, self.number = history, cell, number
        self.rng = random.Random(seed * 1000 + number)
        self.make = Maker(self.rng, history)
        self.hands = {}             # (group, partition id) -> messages
        self.conn = cell.http()

    def refill(self):
        if len(self.hands) < 2 and self.rng.random() < 0.7:
            group = self.rng.choice(GROUPS)
            got = self.cell.pop("in", group, batch=self.rng.randrange(1, 6),
                                leaseSeconds=600, conn=self.conn,
                                subscriptionMode="all")
            if got:
                at = (group, got[0]["partitionId"])
                assert at not in self.hands
                self.hands[at] = got
                with self.history.lock:
                    self.history.leases[at] = got[0]["leaseId"]

    def acks(self):
        """(operations, requiredLeases, {hand: how many})"""
        ops, leases, took = [], [], {}
        listed = self.rng.random() < 0.4
        for at, hand in self.hands.items():
            if self.rng.random() < 0.3:
                continue
            took[at] = self.rng.randrange(1, len(hand) + 1)
            for m in hand[:took[at]]:
                op = {"type": "ack", "transactionId": m["transactionId"],
                      "partitionId": at[1], "consumerGroup": at[0]}
                if not listed:
                    op["leaseId"] = m["leaseId"]
                ops.append(op)
            if listed:
                leases.append(hand[0]["leaseId"])
        return ops, leases, took

    def spoil(self, ops, kv, sure):
        """Something that must roll the bundle back."""
        kind = self.rng.randrange(4)
        with self.history.lock:
            marks = self.history.marks[-50:]
            others = sorted(set(self.history.leases) - set(self.hands))
        if kind == 0 and marks:
            mark, part = self.rng.choice(marks)
            ops.append({"type": "push", "queue": "marks", "partition": part,
                        "transactionId": mark, "payload": 0})
            sure.add("duplicate")
        elif kind == 1 and others:
            # another's partition: its row is locked for nothing
            group, part = self.rng.choice(others)
            own = next(iter(self.hands.values()), [{"leaseId": "none"}])
            ops.append({"type": "ack", "transactionId": "in-0",
                        "partitionId": part, "consumerGroup": group,
                        "leaseId": own[0]["leaseId"]})
            sure.add("ack_rejected")
        elif kind == 2 and self.hands:
            (group, part), hand = self.rng.choice(list(self.hands.items()))
            ops.append({"type": "ack", "transactionId": "nowhere",
                        "partitionId": part, "consumerGroup": group,
                        "leaseId": hand[0]["leaseId"]})
            sure.add("ack_rejected")
        else:
            kv.append(absent("gate%d" % self.rng.randrange(3), required=True))
            sure.add("kv_precondition")

    def bundle(self, mark):
        sure, maybe = set(), set()
        ops, leases, took = self.acks()
        part = self.rng.choice("0123")
        ops += self.make.pushes(mark)
        ops.append({"type": "push", "queue": "marks", "partition": part,
                    "transactionId": mark, "payload": 0})
        kv = self.make.kv(maybe) + [put(mark, 1)]
        timers = self.make.timers() + [schedule(mark)]
        if self.rng.random() < 0.3:
            self.spoil(ops, kv, sure)
        for part_of in ops, kv, timers:
            self.rng.shuffle(part_of)
        # acks of one partition keep their order
        at = [i for i, o in enumerate(ops) if o["type"] == "ack"
              and o["transactionId"] != "nowhere"]
        order = {m["transactionId"]: n for hand in self.hands.values()
                 for n, m in enumerate(hand)}
        for i, op in zip(at, sorted((ops[i] for i in at), key=lambda o:
                                    order.get(o["transactionId"], -1))):
            ops[i] = op
        body = {"operations": ops, "kv": kv, "timers": timers}
        if leases:
            body["requiredLeases"] = leases
        return body, took, part, sure, maybe

    def run_one(self, n):
        self.refill()
        mark = "m-%d-%d" % (self.number, n)
        body, took, part, sure, maybe = self.bundle(mark)
        sent = time.monotonic()
        reply = self.cell.post("/api/v1/transaction", body, conn=self.conn)
        assert reply.status == 200, (reply, body)
        ok = reply.body["success"]
        assert not (ok and sure), (sure, body)
        assert ok or reply.body["reason"] in sure | maybe, (reply.body, body)
        acks = []
        if ok:
            self.check_results(sent, body, reply.body["results"])
            for at, count in took.items():
                acks += [(at, m["offset"]) for m in self.hands[at][:count]]
        with self.history.lock:
            self.history.bundles.append(
                Done(mark, ok, reply.body.get("reason"), acks))
            if ok:
                self.history.marks.append((mark, part))
        for at, count in took.items() if ok else ():
            self.hands[at] = self.hands[at][count:]
            if not self.hands[at]:
                with self.history.lock:
                    self.history.leases.pop(at, None)
                del self.hands[at]

    def check_results(self, sent, body, results):
        n = len(body["operations"])
        kv = results[n:n + len(body["kv"])]
        assert [r["index"] for r in results] == list(range(
            n + len(kv) + len(body["timers"])))
        for op, r in zip(body["operations"], results):
            assert (r["type"], r["success"]) == (op["type"], True)
            assert "noop" not in r and "duplicate" not in r, r
        own_writes_are_seen(body["kv"], kv)
        self.history.learn(sent, body["kv"] + body["timers"], results[n:])


# What must hold

def marks_of(db):
    """Marks that are there: (keys, timers); messages are popped."""
    return ({r[0] for r in db.rows("select key from queen.kv where key like"
                                   " 'm-%'")},
            {r[0] for r in db.rows("select timer_key from queen.timers"
                                   " where queue = 'later'")})


def drain(cell, queue, n):
    found = []
    while len(found) < n:
        found += wait_until(lambda: cell.pop(queue, batch=1000, wait=True,
                                             autoAck=True))
    assert len(found) == n
    return found


def check_versions(writes):
    """Whoever sent a write after another was answered has a higher one."""
    by_key = collections.defaultdict(list)
    for w in writes:
        if w.op != "delete":
            by_key[w.key].append(w)
    for key, found in by_key.items():
        found.sort(key=lambda w: w.version)
        assert len({w.version for w in found}) == len(found), key
        latest_sent = 0
        for w in found:
            assert latest_sent <= w.got, (key, w)
            latest_sent = max(latest_sent, w.sent)


def check_chain(db, key, writes):
    """Each condition that was met was met by the write before it."""
    removed = [w.version for w in writes
               if w.op == "delete" and w.version > 0]
    assert len(set(removed)) == len(removed)
    puts = sorted((w for w in writes if w.op != "delete"),
                  key=lambda w: w.version)
    assert set(removed) <= {w.version for w in puts}
    before = None
    for w in puts:
        if w.op == "putIfAbsent":
            assert before is None or before in removed, (key, w)
        elif w.expect:
            assert before == w.expect and before not in removed, (key, w)
        before = w.version
    row = db.rows("select value, version from queen.kv where namespace = 'n'"
                  " and key = %s", (key,))
    assert row == ([] if before is None or before in removed
                   else [(puts[-1].value, before)])


def check_acks(db, bundles):
    """The cursors stand where the committed acks put them, and no message was
    acked by two of them."""
    acked = collections.defaultdict(list)
    for b in bundles:
        for (group, _), offset, part in (
                (at, offset, at[1]) for at, offset in b.acks):
            acked[group, part].append(offset)
    assert acked
    for (group, part), offsets in acked.items():
        assert sorted(offsets) == list(range(len(offsets))), (group, part)
    want = sorted(len(v) - 1 for v in acked.values())
    assert want == sorted(r[0] for r in db.rows(
        "select c.committed from queen.consumers c join queen.groups g on"
        " g.id = c.group_id where g.name = any (%s) and c.committed >= 0",
        (GROUPS,)))


def check_timers(db, cell, counts):
    """Each timer scheduled was fired, was cancelled or is pending."""
    wait_until(lambda: db.value("select count(*) from queen.timers"
                                " where queue <> 'later'") == 0,
               what="the last fires")
    for queue in "fired0", "fired1":
        want = {key: counts[queue, key, "scheduled"]
                - counts[queue, key, "cancelled"] for key in TIMERS}
        got = collections.Counter(
            m["partition"] for m in drain(cell, queue, sum(want.values())))
        assert {k: got[k] for k in TIMERS} == want

# SPDX-License-Identifier: Apache-2.0
"""
Producers and consumers that go on through every fault, what they saw written
down, and the invariants of the store.  A message is known by (pusher, number);
the transaction id says both, so a push is repeated until it is answered.
"""
import collections
import http.client
import json
import random
import socket
import threading
import time
import urllib.parse

from queenlib import wait_until

Delivery = collections.namedtuple(
    "Delivery", "part offset who number asked got lease")
LOST = (OSError, http.client.HTTPException)


class Client:
    """A connection that is dialled again; None = no answer came."""

    def __init__(self, cells, timeout=30):
        self.cells, self.timeout, self.conn = cells, timeout, None
        self.faults = collections.Counter()

    def call(self, method, path, body=None):
        if self.conn is None:
            self.conn = random.choice(self.cells).http(self.timeout)
        try:
            text = body if isinstance(body, str) else json.dumps(body)
            self.conn.request(method, path,
                              None if body is None else text.encode())
            answer = self.conn.getresponse()
            data = answer.read()
        except LOST as e:
            self.conn.close()
            self.conn = None
            self.faults[type(e).__name__] += 1
            assert not isinstance(e, socket.timeout), "no answer: " + path
            return None
        if answer.status >= 500:
            self.faults[answer.status] += 1
            return None
        return answer.status, json.loads(data) if data else None

    def close(self):
        if self.conn:
            self.conn.close()


class Workers:
    """Threads that all end when told; the first exception is raised."""

    def __init__(self):
        self.stop = threading.Event()
        self.threads, self.errors = [], []

    def start(self, fn, *args):
        def run():
            try:
                fn(*args)
            except BaseException as e:
                self.errors.append(e)
                self.stop.set()

        t = threading.Thread(target=run)
        self.threads.append(t)
        t.start()

    def join(self, deadline_s=120):
        end = time.monotonic() + deadline_s
        for t in self.threads:
            t.join(max(0.1, end - time.monotonic()))
        assert not any(t.is_alive() for t in self.threads), "still at work"
        if self.errors:
            raise self.errors[0]

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        self.stop.set()
        for t in self.threads:
            t.join(60)
        if self.errors and kind is None:
            raise self.errors[0]


def together(n, fn):
    """fn(i) on n threads at once; what they returned, in order."""
    out = [None] * n
    gate = threading.Barrier(n)

    def run(i):
        gate.wait(60)
        out[i] = fn(i)

    with Workers() as w:
        for i in range(n):
            w.start(run, i)
        w.join()
    return out


class Load:
    """n pushers and n poppers on the partitions of one queue."""

    def __init__(self, db, cells, queue="load", parts=8, n=8, seed=1,
                 lease_s=(1, 2), group="g"):
        self.db, self.cells, self.queue, self.n = db, cells, queue, n
        self.parts, self.seed, self.lease_s = parts, seed, lease_s
        self.group = group
        self.workers = Workers()
        self.pushing = threading.Event()
        self.pushing.set()
        self.lock = threading.Lock()
        self.next = collections.Counter()       # (pusher, part) -> number
        self.stored = set()                     # answered queued
        self.seen = []                          # Delivery
        self.sent = collections.Counter()       # part -> acked up to, sent
        self.done = {}                          # part -> (offset, when)
        self.holds = []                         # part, from, to
        self.acks = collections.Counter()
        self.faults = collections.Counter()

    def start(self):
        cell = self.cells[0]
        reply = cell.post("/api/v1/configure", {
            "queue": self.queue, "options": {"retryLimit": 1000000}})
        assert reply.status == 200, reply
        # so that the group starts at the beginning
        cell.pop(self.queue, group=self.group, subscriptionMode="all")
        for i in range(self.n):
            self.workers.start(self.push, i)
            self.workers.start(self.pop, i)
        return self

    # Producers

    def push(self, who):
        rng = random.Random(self.seed * 1000 + who)
        client = Client(self.cells)
        while self.pushing.is_set() and not self.workers.stop.is_set():
            items = []
            for part in rng.sample(range(self.parts), rng.choice((1, 1, 3))):
                for _ in range(rng.choice((1, 2, 10))):
                    number = self.next[who, part]
                    self.next[who, part] += 1
                    items.append({
                        "queue": self.queue, "partition": "p%d" % part,
                        "transactionId": "%d.%d.%d" % (who, part, number),
                        "payload": [who, number]})
            self.push_all(client, items)
            # producers that outrun the consumers only lengthen the end
            while self.backlog() > 500 and self.pushing.is_set() \
                    and not self.workers.stop.is_set():
                time.sleep(0.01)
        self.faults.update(client.faults)
        client.close()

    def push_all(self, client, items):
        """Repeats what failed until all is stored, keeping the order."""
        while items and not self.workers.stop.is_set():
            got = client.call("POST", "/api/v1/push", {"items": items})
            if got is None:
                time.sleep(0.05)
                continue
            assert got[0] == 201, got
            left = []
            for item, result in zip(items, got[1]):
                assert result["transaction_id"] == item["transactionId"]
                if result["status"] == "failed":
                    left.append(item)
                else:
                    assert result["status"] in ("queued", "duplicate"), result
                    self.stored.add(item["transactionId"])
            if left:
                self.faults["failed"] += 1
                time.sleep(0.05)
            items = left

    def backlog(self):
        with self.lock:
            return len(self.stored) - sum(
                upto + 1 for upto, _ in self.done.values())

    # Consumers

    def pop(self, who):
        rng = random.Random(self.seed * 1000 + 500 + who)
        client = Client(self.cells)
        while not self.workers.stop.is_set():
            lease = rng.choice(self.lease_s)
            query = urllib.parse.urlencode({
                "consumerGroup": self.group, "batch": rng.choice((1, 7, 50)),
                "partitions": rng.choice((1, 2, 0)), "leaseSeconds": lease,
                "wait": "true", "timeout": 300, "subscriptionMode": "all"})
            asked = time.monotonic()
            got = client.call("GET", "/api/v1/pop/queue/%s?%s"
                              % (self.queue, query))
            now = time.monotonic()
            if got is None:
                time.sleep(0.05)
            elif got[0] == 200:
                self.got(rng, client, got[1]["messages"], asked, now, lease)
            else:
                assert got[0] == 204, got
        self.faults.update(client.faults)
        client.close()

    def got(self, rng, client, messages, asked, now, lease):
        parts = collections.OrderedDict()
        for m in messages:
            parts.setdefault(m["partition"], []).append(m)
        with self.lock:
            for part, ms in parts.items():
                offsets = [m["offset"] for m in ms]
                assert offsets == list(range(offsets[0], offsets[-1] + 1))
                # nothing is passed over
                assert offsets[0] <= self.sent.get(part, -1) + 1, (
                    part, offsets[0], self.sent.get(part))
                # what was acked before we asked does not come again
                upto, when = self.done.get(part, (-1, 0))
                assert when > asked or offsets[0] > upto, (part, offsets[0],
                                                           upto)
                for m in ms:
                    assert m["transactionId"] == "%d.%s.%d" % (
                        m["data"][0], part[1:], m["data"][1])
                    self.seen.append(Delivery(
                        part, m["offset"], m["data"][0], m["data"][1],
                        asked, now, m["leaseId"]))
        # at the end all goes well
        fate = rng.random() if self.pushing.is_set() else 1
        if fate < 0.04:
            sent = asked + lease        # we die: the lease runs out
        else:
            if fate < 0.08:             # we are late: it has run out
                self.workers.stop.wait(lease + 0.1)
            sent = self.ack(rng, client, parts, fate)
        with self.lock:
            for part in parts:
                self.holds.append((part, now, min(sent, asked + lease)))

    def ack(self, rng, client, parts, fate):
        acks, upto = [], {}
        for part, ms in parts.items():
            word, cut = "completed", len(ms)
            if fate < 0.25:
                word, cut = rng.choice(("failed", "retry")), rng.randrange(
                    len(ms))
            elif fate < 0.35:
                cut = rng.randrange(len(ms)) + 1    # only the first of them
            for i, m in enumerate(ms[:cut + 1]):
                if i == cut and word == "completed":
                    break
                acks.append({"transactionId": m["transactionId"],
                             "partitionId": m["partitionId"],
                             "leaseId": m["leaseId"],
                             "status": "completed" if i < cut else word})
            if cut:
                upto[part] = ms[cut - 1]["offset"]
        with self.lock:
            for part, offset in upto.items():
                self.sent[part] = max(self.sent.get(part, -1), offset)
        sent = time.monotonic()
        got = client.call("POST", "/api/v1/ack/batch", {
            "consumerGroup": self.group, "acknowledgments": acks})
        if got is None:
            return sent
        assert got[0] == 200, got
        at = {m["transactionId"]: (part, m["offset"])
              for part, ms in parts.items() for m in ms}
        with self.lock:
            for a, r in zip(acks, got[1]):
                self.acks[r["error"] or "ok"] += 1
                if r["success"] and a["status"] == "completed":
                    # of a late ack some may be done by another's lease
                    part, offset = at[a["transactionId"]]
                    if offset > self.done.get(part, (-1, 0))[0]:
                        self.done[part] = (offset, time.monotonic())
        return sent

    # The end

    def finish(self, deadline_s=60):
        """No more pushes; everything is consumed; all is checked."""
        self.pushing.clear()
        try:
            wait_until(self._consumed, deadline_s, every_s=0.2,
                       what="all consumed (%s)" % self.acks)
        finally:
            self.workers.stop.set()
            self.workers.join()
        self.check()

    def _consumed(self):
        if self.workers.errors:
            raise self.workers.errors[0]
        if sum(self.next.values()) != len(self.stored):
            return False
        return self.db.value(
            "select coalesce(sum(c.committed + 1), 0)::int"
            " from queen.consumers c join queen.groups g on g.id = c.group_id"
            " where g.name = %s and g.deleted_at is null",
            (self.group,)) == len(self.stored)

    def check(self):
        # every accepted push is there, once, in the order it was pushed
        log = collections.defaultdict(dict)
        for d in self.seen:
            assert log[d.part].setdefault(d.offset, (d.who, d.number)) == (
                d.who, d.number), d
        total = 0
        for part, found in log.items():
            assert sorted(found) == list(range(len(found))), part
            total += len(found)
            numbers = collections.defaultdict(list)
            for offset in sorted(found):
                who, number = found[offset]
                numbers[who].append(number)
            for who, got in numbers.items():
                assert got == list(range(len(got))), (part, who)
        assert total == len(self.stored)
        # one holder of a partition at any time
        by_part = collections.defaultdict(list)
        for part, since, until in self.holds:
            if until > since:
                by_part[part].append((since, until))
        for part, spans in by_part.items():
            spans.sort()
            for (_, a), (b, _) in zip(spans, spans[1:]):
                assert a <= b, "two held %s at once" % part
        # one lease id in one answer
        asked = collections.defaultdict(set)
        for d in self.seen:
            asked[d.lease].add((d.asked, d.got))
        assert all(len(v) == 1 for v in asked.values())
        # acked positions are counted once
        for committed, consumed in self.db.rows(
                "select c.committed, c.consumed from queen.consumers c"
                " join queen.groups g on g.id = c.group_id"
                " where g.name = %s", (self.group,)):
            assert consumed == committed + 1
        invariants(self.db)


def invariants(db, dedup=True):
    """Of semantics 12: what must be true of the tables at any time."""
    def none(sql):
        found = db.rows(sql)
        assert found == [], (sql, found[:5])

    # 1: contiguous from log_start
    none("select * from (select s.partition_id, s.base_offset,"
         " coalesce(lag(s.end_offset) over w + 1, h.log_start) as want"
         " from queen.segments s join queen.partition_heads h"
         " on h.id = s.partition_id"
         " window w as (partition by s.partition_id order by s.base_offset))"
         " x where base_offset <> want")
    none("select s.partition_id, s.base_offset from queen.segments s"
         " left join queen.segment_ids i using (partition_id, base_offset)"
         " where i.end_offset is distinct from s.end_offset")
    # 2 and 3: cursor and lease
    none("select * from (select c.*, coalesce((select max(s.end_offset)"
         " from queen.segments s where s.partition_id = c.partition_id),"
         " h.log_start - 1) as last from queen.consumers c"
         " join queen.partition_heads h on h.id = c.partition_id) x"
         " where committed < -1 or committed > last or batch_end < committed"
         " or batch_end > last or (batch_end is not null and (lease_no is null"
         " or expires_at is null))")
    none("select group_id, partition_id from queen.consumers"
         " group by 1, 2 having count(*) > 1")
    # 6: stamps
    none("select * from (select created_at, lag(created_at) over (partition"
         " by partition_id order by base_offset) as before"
         " from queen.segments) x where created_at < before")
    if dedup:
        # 7: one id once (no window is as short as a test)
        none("select partition_id, substr(ids, 16 * n + 1, 16)"
             " from queen.segment_ids,"
             " generate_series(0, octet_length(ids) / 16 - 1) n"
             " group by 1, 2 having count(*) > 1")

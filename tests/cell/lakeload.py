# SPDX-License-Identifier: Apache-2.0
"""
Producers for the lake, which write down what they sent, and the moments at
which it must be there.

Producers  threads that push through queend, each to partitions of its own, so
           that their order is known
mark       what was answered by now, and the clock of the database after it
settled    the node says that all of it is in the bucket
"""
import collections
import json
import random
import threading
import time

from lakecheck import Sent
from loadkit import Client, Workers
from queenlib import tail, wait_until

Mark = collections.namedtuple("Mark", "floor clock")
ODD = (
    "null", "-0", "0", '""', "[]", "{}", "true", "1E+400", "-1e-400",
    "123456789012345678901234567890", "1.500", '{"a":1,"a":2}',
    '{ "b" :\t1.500 , "a":12345678901234567890 }', '[1,\r\n 2,\n3]',
    '"caffè 🐝 \u2028 \u0085 \x7f"', r'"\u0001 \" \\ \/ \ud83d\udc1d"',
    '{"k":"%s"}' % ("x" * 4096))


class Producers:
    """parts: {queue: names of partitions}"""

    def __init__(self, db, cells, parts, n=4, seed=1, pause_s=0.02):
        self.db, self.cells, self.n, self.seed = db, cells, n, seed
        self.pause_s = pause_s
        self.places = [(q, p) for q, names in parts.items() for p in names]
        self.sent = {q: {p: [] for p in names} for q, names in parts.items()}
        self.answered = {q: dict.fromkeys(names, 0)
                         for q, names in parts.items()}
        self.lock = threading.Lock()
        self.workers = Workers()
        self.faults = collections.Counter()

    def __enter__(self):
        for i in range(self.n):
            self.workers.start(self.run, i)
        return self

    def __exit__(self, kind, *_):
        self.workers.__exit__(kind)

    def stop(self):
        """No more; all that was sent is answered."""
        self.workers.stop.set()
        self.workers.join()
        for queue, parts in self.sent.items():
            for part, sent in parts.items():
                assert self.answered[queue][part] == len(sent)

    def run(self, who):
        rng = random.Random(self.seed * 1000 + who)
        client = Client(self.cells)
        mine = self.places[who::self.n]
        while not self.workers.stop.wait(self.pause_s):
            self.push(client, [
                (q, p, [rng.choice(ODD) for _ in range(rng.randrange(1, 6))])
                for q, p in rng.sample(mine, min(4, len(mine)))])
        self.faults.update(client.faults)
        client.close()

    def push(self, client, batch):
        """[(queue, partition, payload texts)] until it is answered."""
        items = []
        with self.lock:
            for queue, part, payloads in batch:
                sent = self.sent[queue][part]
                for payload in payloads:
                    one = Sent("%s/%s/%d" % (queue, part, len(sent)), payload)
                    sent.append(one)
                    items.append((queue, part, one))
        while items:
            got = client.call("POST", "/api/v1/push", '{"items":[%s]}' %
                              ",".join(item(*i) for i in items))
            if got is None:
                time.sleep(0.1)
                continue
            assert got[0] == 201, got
            left = [i for i, r in zip(items, got[1])
                    if r["status"] == "failed"]
            assert all(r["status"] in ("queued", "duplicate", "failed")
                       for r in got[1]), got
            with self.lock:
                for queue, part, one in items:
                    self.answered[queue][part] += 1
                for queue, part, one in left:
                    self.answered[queue][part] -= 1
            items = left
            if items:  # not stored: no use to ask at once
                time.sleep(0.1)

    def mark(self):
        with self.lock:
            floor = {q: dict(parts) for q, parts in self.answered.items()}
        return Mark(floor, clock(self.db))

    def snapshot(self, queue):
        """What was sent by now, for check."""
        with self.lock:
            return {p: list(s) for p, s in self.sent[queue].items() if s}

    def total(self):
        with self.lock:
            return sum(map(sum, (a.values() for a in self.answered.values())))


def item(queue, part, one):
    return '{"queue":%s,"partition":%s,"transactionId":%s,"payload":%s}' % (
        json.dumps(queue), json.dumps(part), json.dumps(one.txn), one.payload)


def clock(db):
    return db.value("select to_char(clock_timestamp() at time zone 'UTC',"
                    " 'YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"')")


def settled(node, queues, until, deadline_s=30):
    """All that was stamped before is in the bucket, if what it says is so."""
    for queue in queues:
        def there():
            return (node.queue(queue).get("completeThrough") or "") >= until
        try:
            wait_until(there, deadline_s, every_s=0.1)
        except AssertionError:
            raise AssertionError("%s is not complete up to %s: %s\n%s" % (
                queue, until, node.queue(queue), tail(node.log))) from None

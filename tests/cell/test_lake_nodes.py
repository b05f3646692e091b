# SPDX-License-Identifier: Apache-2.0
"""Several nodes on one sink: who runs what, how queues move, and that nobody
who lost one writes on.  What they wrote is read at the end, with the eyes of a
reader who knows what was sent."""
import collections
import contextlib
import re
import signal
import threading
import time

import pytest

from lakecheck import Tree, check
from lakeload import Client, Producers
from queenlib import TENANT, rows, tail, wait_until

TTL_S = 2
LOST = "queen_s3_commit_precondition_lost_total"
LEASES = ("select substring(key from '^s3:s:(.*):lease$'), value->>'instance'"
          " from queen.kv where namespace = 'queen-s3' and key like"
          " 's3:s:%:lease' and expires_at > clock_timestamp()")
COMMITTED = re.compile(r'window committed queue="(\w+)" k=(\d+) ')


def env(queues, **more):
    """One sink, whose windows are short."""
    return {"QUEEN_S3_SINK": "s", "QUEEN_S3_PREFIX": "s",
            "QUEEN_S3_QUEUES": ",".join(queues), "QUEEN_S3_ALIGN": "none",
            "QUEEN_S3_MAX_WINDOW_MS": "300",
            "QUEEN_S3_DISCOVERY_INTERVAL_MS": "100",
            "QUEEN_S3_LEASE_TTL_MS": str(TTL_S * 1000),
            **{"QUEEN_S3_" + k: str(v) for k, v in more.items()}}


class Nodes:
    """Nodes of one sink, and the leases of its queues."""

    def __init__(self, db, new_lake, queues, **more):
        self.db, self.new_lake, self.queues = db, new_lake, queues
        self.more = more
        self.all = []

    def new(self, bucket, **more):
        self.all.append(self.new_lake(bucket, **env(
            self.queues, **self.more, **more)))
        return self.all[-1]

    def owners(self):
        return {q: i.partition("/")[0] for q, i in self.db.rows(LEASES)}

    def counts(self):
        """{node: queues it holds}, once each of them is held."""
        owners = self.owners()
        return collections.Counter(owners.values()) \
            if len(owners) == len(self.queues) else {}

    def await_counts(self, want, deadline_s=30):
        try:
            wait_until(lambda: self.counts() == want, deadline_s)
        except AssertionError:
            raise AssertionError("%s, not %s\n%s" % (
                self.owners(), want, "\n".join(
                    tail(n.log, 2000) for n in self.all))) from None
        return self.owners()

    def owner(self, queue):
        """The node that runs it, once there is one."""
        def found():
            name = self.owners().get(queue)
            return next((n for n in self.all if n.node == name), None)
        return wait_until(found)

    def agree(self):
        """Each queue: its owner says so, and all others name that one."""
        def same():
            owners = self.owners()
            for node in self.all:
                if node.proc.poll() is not None:
                    continue
                for b in node.get("/status").body["sinks"][0]["queues"]:
                    holder = (b["heldBy"] or "").partition("/")[0]
                    if b["ownedHere"]:
                        holder = node.node
                    if holder != owners.get(b["name"]):
                        return False
            return True
        wait_until(same, every_s=0.1)

    def gave(self, node):
        return node.metrics()["queen_s3_queues_given_back_total"]

    def present(self):
        return sorted(r[0] for r in self.db.rows(
            "select substring(key from 'node=([a-z0-9]*)') from queen.kv"
            " where key like 's3:s:node=%' and expires_at >"
            " clock_timestamp()"))

    def settled(self, made, bucket, folder):
        """All that was sent is in the lake once, each window by one node."""
        made.stop()
        until = made.mark().clock
        for q in self.queues:
            wait_until(lambda q=q: (self.owner(q).queue(q).get(
                "completeThrough") or "") >= until, 60, every_s=0.1)
        tree = Tree(folder, bucket, "s").pull()
        by = collections.Counter(
            w for n in self.all for w in COMMITTED.findall(n.log_text()))
        for q in self.queues:
            lake = check(tree, q, made.snapshot(q), "s")
            assert lake.windows
            said = [k for name, k in by if name == q]
            assert {int(k) for k in said} <= {
                m["k"] for m in lake.windows} and said
        assert set(by.values()) == {1}, "a window two nodes committed"


@contextlib.contextmanager
def watching(db):
    """How many leases there are, again and again; the list of changes."""
    conn, stop, seen = db.connect(), threading.Event(), []

    def run():
        while not stop.wait(0.02):
            n = len(rows(conn, LEASES))
            if not seen or seen[-1] != n:
                seen.append(n)
    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield seen
    finally:
        stop.set()
        thread.join()


def made_by(db, cell, queues, **kw):
    return Producers(db, [cell], {q: ["a", "b"] for q in queues}, n=1,
                     pause_s=0.1, **kw)


def test_queues_are_shared_and_move(db, new_cell, bucket, new_lake, tmp_path):
    """Acceptance 121, 127 to 130, 158, 164: 2/2/2 from one that had all; the
    first gives back exactly four, one at a time; then nothing moves.  One is
    killed and comes back, one is seen for a second, one is stopped: under
    traffic, all of it exactly once."""
    queues = ["q%d" % n for n in range(6)]
    nodes = Nodes(db, new_lake, queues, MAX_WINDOW_MS=4000,
                  DISCOVERY_INTERVAL_MS=250)
    cell = new_cell().start()
    with made_by(db, cell, queues) as made:
        wait_until(lambda: made.total() > 60)
        one = nodes.new(bucket).start()
        nodes.await_counts({"node0": 6})
        assert nodes.present() == ["node0"]
        wait_until(lambda: one.queue(queues[0])["windowsCommitted"] > 0)
        with watching(db) as seen:
            two, three = (nodes.new(bucket).start() for _ in range(2))
            nodes.await_counts({"node0": 2, "node1": 2, "node2": 2})
        assert set(seen) == {5, 6}, "leases: %s" % seen
        assert [nodes.gave(n) for n in nodes.all] == [4, 0, 0]
        nodes.agree()
        # three TTLs of nothing
        owners = nodes.owners()
        end = time.monotonic() + 3 * TTL_S
        while time.monotonic() < end:
            assert nodes.owners() == owners
            time.sleep(0.1)
        for node in nodes.all:
            place = node.get("/status").body["sinks"][0]["placement"]
            assert place == {"nodes": 3, "queues": 6, "share": 2, "held": 2,
                             "givingBack": None}
            assert node.get("/healthz").body == {"ok": True, "queues": 2}
        # killed: it is noticed by its silence
        two.kill9()
        nodes.await_counts({"node0": 3, "node2": 3}, 3 * TTL_S + 1)
        nodes.agree()
        # seen for a second: nothing moves
        db.rows("select queen.kv_put(%s, 'queen-s3', 's3:s:node=ghost', '{}',"
                " null, now() + interval '1 s', now())", (TENANT,))
        wait_until(lambda: one.get("/status").body["sinks"][0]["placement"][
            "nodes"] == 3)
        # back: its share, one queue of each of the others
        two.start()
        nodes.await_counts({"node0": 2, "node1": 2, "node2": 2})
        assert [nodes.gave(n) for n in nodes.all] == [5, 0, 1]
        # stopped: its leases are gone when it is, and its row
        assert three.term() == 0
        assert not db.rows("select 1 from queen.kv where value->>'instance'"
                           " like 'node2%' and key ~ ':(lease|node=.*)$'")
        nodes.await_counts({"node0": 3, "node1": 3}, TTL_S + 3)
        assert nodes.present() == ["node0", "node1"]
        nodes.agree()
        nodes.settled(made, bucket, str(tmp_path))


def test_nodes_that_start_together_spread(db, log, bucket, new_lake):
    """Acceptance 126: seven queues, nobody above the share and one more."""
    queues = ["q%d" % n for n in range(7)]
    for q in queues:
        log.kit.queue(q)
    nodes = Nodes(db, new_lake, queues, LEASE_TTL_MS=4000)
    for _ in range(3):
        nodes.new(bucket).start(wait=False)
    wait_until(lambda: (c := nodes.counts()) and max(c.values()) <= 4,
               what=tail(nodes.all[0].log))
    for node in nodes.all:
        node.expected_end = False
        wait_until(node.healthy)


def fenced(node):
    return node.log_text().count("queue fenced: another node has it")


def freeze(nodes, one, two, until):
    """One sleeps longer than its lease lives, two takes over meanwhile."""
    was = fenced(one)
    one.signal(signal.SIGSTOP)
    two.start()
    until()
    one.signal(signal.SIGCONT)
    wait_until(lambda: fenced(one) == was + 1, what=tail(one.log))
    assert nodes.owners() == {"q": "node1"}


def back(nodes, two):
    nodes.agree()
    assert two.term() == 0
    nodes.await_counts({"node0": 1})


def test_who_was_frozen_is_fenced(db, new_cell, bucket, new_gate, new_lake,
                                  tmp_path):
    """Acceptance 92, 104, 108, 109, E5: frozen while it waits for records, in
    the middle of an upload, and before its commit; when it wakes another has
    the queue.  It writes no object, or the same one, and no row."""
    nodes = Nodes(db, new_lake, ["q"], LEASE_TTL_MS=1000)
    gate = new_gate(bucket)
    one, two = nodes.new(gate), nodes.new(bucket)
    made = made_by(db, new_cell().start(), ["q"])
    client = Client(made.cells)

    def push():
        made.push(client, [("q", "a", ["1", "2"]), ("q", "b", ["3"])])

    def k():
        found = db.rows("select (value->>'k')::int from queen.kv where key ="
                        " 's3:s:q:committed'")
        return found[0][0] if found else 0

    def more():
        """Two windows of the other one."""
        for n in k() + 1, k() + 2:
            push()
            wait_until(lambda n=n: k() >= n)
    push()
    one.start()
    nodes.await_counts({"node0": 1})
    wait_until(lambda: k() == 1)
    puts = len(gate.seen("PUT"))
    freeze(nodes, one, two, more)
    assert len(gate.seen("PUT")) == puts
    gate.stall_for(1)
    back(nodes, two)
    gate.fault("stall:@1:PUT:/dt=")
    push()
    bucket.await_keys("/w-%010d-" % (k() + 1))
    freeze(nodes, one, two, more)
    back(nodes, two)
    # one that does not look at its lease by itself has all but the commit
    assert one.term() == 0
    one.extra["QUEEN_S3_LEASE_TTL_MS"] = "60000"
    gate.fault("stall:@1:PUT:/windows/")
    at = k()
    one.start()
    nodes.await_counts({"node0": 1})
    push()
    bucket.await_keys("/%010d.json" % (at + 1))
    one.signal(signal.SIGSTOP)
    db.rows("update queen.kv set expires_at = clock_timestamp() where key ="
            " 's3:s:q:lease'")
    freeze(nodes, one, two, more)
    assert one.metrics()[LOST] == 1
    client.close()
    nodes.settled(made, bucket, str(tmp_path))


def hand_over(nodes, n):
    """The owner stops, each fourth time at once; the other one goes on."""
    owner = nodes.owner("q")
    was = nodes.owners()["q"]
    assert was == owner.node
    if n % 4 == 3:
        owner.kill9()
    else:
        assert owner.term() == 0
    wait_until(lambda: nodes.owners().get("q", was) != was)
    owner.start()


@pytest.mark.parametrize("times", [
    10, pytest.param(50, marks=pytest.mark.soak)])
def test_a_queue_handed_over_again_and_again(times, db, new_cell, bucket,
                                             new_lake, tmp_path):
    """E5: under load, each record in one object."""
    nodes = Nodes(db, new_lake, ["q"], LEASE_TTL_MS=1000, MAX_WINDOW_MS=100)
    with made_by(db, new_cell().start(), ["q"]) as made:
        for _ in range(2):
            nodes.new(bucket).start()
        for n in range(times):
            hand_over(nodes, n)
        nodes.settled(made, bucket, str(tmp_path))

# SPDX-License-Identifier: Apache-2.0
"""A bucket that fails in every way it can, while producers go on: after each
the lake is right."""
import pytest

from lakecheck import Sent, Tree, check
from lakekit import Log
from lakeload import Producers, settled
from queenlib import Port, wait_until
from test_lake_e2e import shape

QUEUES = ("q", "w")
LOADED = {"q": ["p%d" % n for n in range(12)]}


@pytest.fixture
def port():
    one = Port()
    yield one.number
    one.give()


@pytest.fixture
def loaded(db, new_cell):
    """Producers at work, until the test has asked for the end."""
    with Producers(db, [new_cell().start()], LOADED, n=2, pause_s=0.2) as made:
        yield made


class Judge:
    """One sink of what is loaded, in the layout merged."""

    def __init__(self, node, bucket, made, folder, name):
        self.node, self.made, self.name = node, made, name
        self.tree = Tree(str(folder / name), bucket, name)

    def now(self):
        """All that was answered before is there."""
        mark = self.made.mark()
        settled(self.node, LOADED, mark.clock, 60)
        sent = {q: self.made.snapshot(q) for q in LOADED}
        self.tree.pull()
        for queue in LOADED:
            check(self.tree, queue, sent[queue], self.name,
                  floor=mark.floor[queue], live=True)

    def end(self):
        self.made.stop()
        settled(self.node, LOADED, self.made.mark().clock, 60)
        self.tree.pull()
        return [check(self.tree, q, self.made.snapshot(q), self.name)
                for q in LOADED]


# what is asked of the gate, and a request that is hit by it
FAULTS = {
    "slow": (["stall:2:PUT"], dict(method="PUT", fault="stall")),
    "500": (["500:2"], dict(fault="500")),
    "503": (["503:2:PUT"], dict(fault="503")),
    "dropped": (["drop:2"], dict(method="PUT", fault="drop")),
    "lost": (["lost:2"], dict(method="PUT", fault="lost")),
    "cut": (["cut:1:GET", "cut:2:PUT"], dict(method="PUT", fault="cut")),
    "false": (["false:2:PUT"], dict(method="PUT", fault="false")),
}


def test_each_fault_of_the_bucket_costs_time_alone(
        loaded, bucket, new_gate, new_lake, tmp_path, port):
    """Acceptance 160, 165: nobody there at boot and later, slow, 500, 503 with
    Retry-After, connections reset before and after the deed, half an answer,
    a false one, a clock that is off."""
    gate = new_gate(bucket, port=port)
    env = shape("s", LOADED, CHECKPOINT_EVERY=2, SHUTDOWN_GRACE_MS=2000,
                DISCOVERY_INTERVAL_MS=500)
    node = new_lake(gate, **env)
    gate.close()
    node.start(wait=False)
    assert node.wait_exit() == 3
    assert "bucket %s at http://127.0.0.1:%d: " % (bucket.name, port) \
        in node.log_text()
    down = new_lake(bucket, PG_PORT=str(port), **env).start(wait=False)
    assert down.wait_exit() == 3
    gate = new_gate(bucket, port=port)
    node.start()
    judge = Judge(node, bucket, loaded, tmp_path, "s")
    judge.now()
    gate.stall_for(0.5)
    gate.retry_after(2)
    for faults, seen in FAULTS.values():
        before = len(gate.seen(**seen))
        gate.fault(*faults)
        gate.await_seen(before + 2, **seen)
        gate.clear()
        judge.now()
    gate.skew(5000)
    gate.await_seen(2, "PUT", code="RequestTimeTooSkewed")
    gate.skew(0)
    judge.now()
    # nothing but the skew was held against us
    assert {n.code for n in gate.refused()} == {"RequestTimeTooSkewed"}
    gate.close()
    wait_until(lambda: node.queue("q")["lagSeconds"] > 2)
    assert node.get("/healthz").status == 200
    gate = new_gate(bucket, port=port)
    for lake in judge.end():
        assert len(lake.windows) > len(FAULTS) and not lake.lost
    assert gate.refused() == []


def test_a_bucket_that_refuses_stops_a_queue_for_a_while(
        db, bucket, new_gate, new_lake, tmp_path):
    """Acceptance 123: one queue is stopped, told in status, log and health,
    and comes back by itself; the other goes on."""
    gate = new_gate(bucket, "403:1:PUT:queue%3Dq/")
    log = Log(db)
    node = new_lake(gate, **shape("s", QUEUES,
                                  DISCOVERY_INTERVAL_MS=500)).start()
    for queue in QUEUES:
        log.push(queue, "a", ["1", "2"])
    block = node.await_queue("q", state="failed")
    assert "403" in block["lastError"]["message"]
    log.await_k("s", "w", 1, node)
    log.push("q", "a", ["3"])
    gate.clear()

    def red():
        reply = node.get("/healthz")
        return reply.status == 503 and reply
    assert wait_until(red, 60, every_s=0.5).body["queue"] == "q"
    wait_until(lambda: node.get("/healthz").status == 200, 60, every_s=0.5)
    tree = Tree(str(tmp_path / "s"), bucket, "s").pull()
    for queue in QUEUES:
        check(tree, queue, sent_of(log, queue), "s")
    assert node.log_text().count("queue stopped") == 1


def sent_of(log, queue):
    """Of what was pushed past queend: with offsets and stamps."""
    return {part: [Sent(r.txn, r.payload, r.offset, r.ts) for r in list_sent]
            for part, list_sent in log.records[queue].items()}


# what hits each window of two parts
PARTED = (
    ["drop:@1:PUT:partNumber=2", "lost:@1:PUT:partNumber=1",
     "false:@1:POST:uploadId="],
    ["cut:@1:POST:uploads", "cut:@1:POST:uploadId="],
    ["500:@1:POST:uploads", "lost:@1:POST:uploadId="])


def test_uploads_in_parts_under_every_fault(db, bucket, new_gate, new_lake,
                                            tmp_path):
    """Whatever happens to a window of two parts it is there once."""
    gate, log = new_gate(bucket), Log(db)
    env = dict(COMPRESSION="none", MULTIPART_THRESHOLD_MB=5)
    node = new_lake(gate, **shape("s", ["q"], **env)).start()
    payloads = ['"%s"' % (chr(97 + n) * 999000) for n in range(18)]
    for k, faults in enumerate(PARTED):
        gate.fault(*faults)
        log.push("q", "a", payloads)
        log.await_k("s", "q", k + 1, node)
        for fault in faults:
            assert gate.seen(fault=fault.split(":")[0])
        gate.clear()
    # what has no name that we know is left to the lifecycle of the bucket
    assert gate.refused() == [] and len(bucket.uploads()) == 1
    tree = Tree(str(tmp_path / "s"), bucket, "s").pull()
    lake = check(tree, "q", sent_of(log, "q"), "s")
    assert [m["records"] for m in lake.windows] == [18] * len(PARTED)

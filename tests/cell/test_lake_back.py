# SPDX-License-Identifier: Apache-2.0
"""A cell that went back in time, and records that no key here opens: what is
in the lake stays right, and what must not be there is not."""
import json

from lakecheck import Sent, Tree, check
from lakekit import Log, Objects
from lakeload import Client, Producers, clock, settled
from queenlib import TENANT, wait_until
from sealkit import K1, WORD, flag, key_id
from test_lake_e2e import shape
from test_lake_faults import sent_of


def copy_of(db, name):
    """The database as it is, under another name; nobody may be connected."""
    for conn in db.conns:
        conn.close()
    db.server.admin("create database %s template %s strategy file_copy" % (
        name, db.name))


def back_to(db, name):
    for conn in db.conns:
        conn.close()
    db.server.admin("drop database %s with (force)" % db.name)
    db.server.admin("alter database %s rename to %s" % (name, db.name))


def test_a_cell_that_went_back_writes_no_window_twice(db, bucket, new_lake,
                                                      tmp_path):
    """Held until an operator has spoken: on from the newest window, or under
    a new prefix."""
    sinks = {n: new_lake(bucket, **shape(n, ["q"], CHECKPOINT_EVERY=1,
                                         MAX_WINDOW_MS=200))
             for n in ("newest", "moved")}
    log = Log(db)

    def push(n):
        for i in range(n):
            log.push("q", "ab"[i % 2], ['{"n": %d}' % i, "1"])

    def ship():
        until = clock(db)
        for node in sinks.values():
            if node.proc is None or node.proc.poll() is not None:
                node.start()
            settled(node, ["q"], until)

    push(6)
    ship()
    for node in sinks.values():
        assert node.term() == 0
    copy_of(db, db.name + "_old")
    log.kit = Log(db).kit
    first = {n: log.k(n, "q") for n in sinks}
    for _ in range(2):
        push(4)
        ship()
    for node in sinks.values():
        assert node.term() == 0
    shipped = sent_of(log, "q")
    before = {n: Objects(bucket, n, "q").bytes() for n in sinks}
    back_to(db, db.name + "_old")
    log.kit = Log(db).kit
    assert {n: log.k(n, "q") for n in sinks} == first
    # other records at offsets that the lake has already
    push(6)
    for name, node in sinks.items():
        node.start()
        block = node.await_queue("q", state="held")
        assert "later window" in block["lastError"]["message"]
    push(2)
    for name in sinks:
        assert Objects(bucket, name, "q").bytes() == before[name]
    assert sinks["moved"].term() == 0
    sinks["moved"].extra["QUEEN_S3_PREFIX"] = "moved/new"
    for name, prefix in ("newest", None), ("moved", "moved/new"):
        assert db.value("select queen.lake_resume_v1(%s, %s, 'q', %s)",
                        (TENANT, name, prefix))
    ship()
    sent = sent_of(log, "q")
    tree = Tree(str(tmp_path / "n"), bucket, "newest").pull()
    check(tree, "q", sent, "newest")
    # what was there is as it was; beside it, what is new
    tree = Tree(str(tmp_path / "m"), bucket, "moved/new").pull()
    check(tree, "q", {p: [s for s in one if s not in shipped[p]]
                      for p, one in sent.items()}, "moved",
          first=first["moved"] + 1)
    assert {k: bucket.get(k) for k in before["moved"]} == before["moved"]


def test_what_no_key_here_opens_is_not_in_the_lake(
        db, bucket, new_cell, new_lake, tmp_path):
    """The windows end before it, the other queue goes on; the queue is given
    back after a TTL, to a node that has the key."""
    cell = new_cell(QUEEN_ENCRYPTION_KEY=K1).start()
    made = Producers(db, [cell], {"q": ["a", "b"], "plain": ["a"]}, n=2)
    with made:
        wait_until(lambda: all(sum(made.answered[q].values()) > 20
                               for q in made.answered))
        made.stop()
    node = new_lake(bucket, **shape("s", ["q", "plain"], LEASE_TTL_MS=2000))
    node.start()
    settled(node, ["q", "plain"], clock(db))
    flag(cell, "q")
    cell.push("q", [WORD], partition="a", ids=["sealed"])
    client = Client([cell])
    made.push(client, [("plain", "a", ["1", "2"])])
    client.close()
    block = node.await_queue("q", state="blocked")
    assert "key %d" % key_id(K1) in block["lastError"]["message"]
    settled(node, ["plain"], clock(db))
    node.await_queue("q", state="released")
    tree = Tree(str(tmp_path / "s"), bucket, "s").pull()
    for queue in "q", "plain":
        check(tree, queue, made.snapshot(queue), "s")
    # the node that has the key takes it; the other one is still there
    keyed = new_lake(bucket, **shape("s", ["q", "plain"], LEASE_TTL_MS=2000),
                     QUEEN_ENCRYPTION_KEY=K1)
    keyed.start()
    settled(keyed, ["q"], clock(db))
    sent = made.snapshot("q")
    sent["a"].append(Sent("sealed", json.dumps(WORD)))
    check(tree.pull(), "q", sent, "s")

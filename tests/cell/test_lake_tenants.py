# SPDX-License-Identifier: Apache-2.0
"""Sinks of tenants in processes of queen-s3, stored by queend: what each
ships, how they come and go, what is told of them, and that no secret is."""
import collections
import json
import re

import pytest

from lakekit import Objects, after_commits
from queenlib import TENANT, tail, wait_until
from s3kit import SECRET
from sealkit import K1, K2, assert_not_in_the_database

A, B, C = ("00000000-0000-0000-0000-0000000000%s" % x
           for x in ("aa", "bb", "cc"))
WRONG = "Rotkohl/4711+wrong"
SOON = {"start": "earliest", "align": "none", "maxWindowMs": 200}
LINE = re.compile(r"^\S+ +(\w+) (\S+) +(.*)$", re.M)


class NoSink:
    """For a process without a sink of the environment."""

    @staticmethod
    def env():
        return {"QUEEN_S3_START": ""}


def path(who):
    return "/api/cp/clusters/%s/s3" % who


class Shared:
    """A cell of several tenants; what they pushed to q."""

    def __init__(self, queend):
        self.queend = queend
        self.pushed = collections.defaultdict(lambda: collections.defaultdict(
            list))

    def push(self, who, payloads, queue="q", part="p"):
        self.queend.push(queue, payloads, partition=part,
                         headers={"x-queen-tenant": who})
        self.pushed[who, queue][part] += payloads

    def store(self, who, where, secret=SECRET, status=200, queend=None,
              **members):
        document = {**where.document(), "queues": "q", "prefix": "lake",
                    **SOON, **members}
        if secret:
            document["secretKey"] = secret
        reply = (queend or self.queend).request("PUT", path(who), document)
        assert reply.status == status, reply
        return reply.body

    def shipped(self, who, bucket, queue="q"):
        """Exactly once, and nothing else is there, as of now."""
        try:
            found = Objects(bucket, "lake", queue, tenant=who).records()
        except AssertionError:  # a window is under way
            return False
        return {part: [json.loads(r.payload) for r in records]
                for part, records in found.items()} == \
            self.pushed[who, queue]

    def await_shipped(self, who, bucket, *nodes, queue="q"):
        wait_until(after_commits(
            self.queend.db, lambda: self.shipped(who, bucket, queue), who),
            what="the records of %s\n%s" % (
                who, "\n".join(tail(n.log) for n in nodes)))


@pytest.fixture
def shared(new_cell):
    return Shared(new_cell(QUEEN_TENANCY_HEADER="true",
                           QUEEN_KV_TRUSTED_PROXY="true",
                           QUEEN_ENCRYPTION_KEY=K1).start())


def sinks(node):
    return {s["tenant"]: s for s in node.get("/status").body["sinks"]}


def await_sink(node, who, ok):
    """The block of a tenant once it is as asked; None = it is gone."""
    def there():
        block = sinks(node).get(who)
        return (block or True) if ok(block) else None
    return wait_until(there, what="%s\n%s" % (who, tail(node.log)))


def gauges(node, who):
    return {name for name in node.metrics() if 'tenant="%s"' % who in name
            and re.match("queen_s3_(lag_seconds|discovery|checkpoint)", name)}


def lines(node):
    """(message and fields) of its own lines."""
    return [text for _, target, text in LINE.findall(node.log_text())
            if target == "queen-s3"]


# ---- one process ----

def test_tenants_come_and_go(db, shared, new_bucket, new_lake):
    """Acceptance 131, 132, 162: four tenants on one queue name, three of them
    in one bucket and prefix."""
    one, two = new_bucket(), new_bucket()
    node = new_lake(one, QUEEN_ENCRYPTION_KEY=K1, QUEEN_S3_QUEUES="q",
                    QUEEN_S3_PREFIX="lake", QUEEN_S3_ALIGN="none",
                    QUEEN_S3_MAX_WINDOW_MS="200",
                    QUEEN_S3_DISCOVERY_INTERVAL_MS="200").start()
    where = {TENANT: one, A: one, B: one, C: two}
    for who in where:
        shared.push(who, ["%s-%d" % (who[-2:], i) for i in range(3)])
    shared.store(A, one)
    shared.store(B, one, WRONG)
    shared.store(C, two)
    for who in TENANT, A, C:
        shared.await_shipped(who, where[who], node)
    # what the bucket refuses hinders no other, and ships with a new secret
    block = await_sink(node, B, lambda s: s["bucket"]["error"])
    assert (block["phase"], block["ok"], block["queues"]) == (
        "starting", False, [])
    assert "403" in block["bucket"]["error"]
    at = shared.store(B, one)["updatedAt"]
    shared.await_shipped(B, one, node)
    assert sinks(node)[B]["restarts"] == 1
    # a document that is refused changes nothing
    reply = shared.store(B, one, status=400, bucket="a/b")
    assert "bucket" in reply["detail"]
    assert shared.queend.get(path(B)).body["updatedAt"] == at
    exposition(node)
    # stopped: gauges go, counters stay; on again, the windows go on
    shared.store(C, two, None, enabled=False)
    await_sink(node, C, lambda s: s["phase"] == "stopped")
    assert gauges(node, C) == set() and gauges(node, A) != set()
    records = 'queen_s3_records_written_total{tenant="%s",queue="q"}'
    assert node.metrics()[records % C] == 3
    shared.push(C, ["more"])
    shared.store(C, two, None)
    shared.await_shipped(C, two, node)
    assert node.metrics()[records % C] == 4
    # deleted: nothing is told of it any more, and its bucket is left alone
    before = one.list("lake/")
    assert shared.queend.delete(path(A)).body["removed"] is True
    await_sink(node, A, lambda s: s is None)
    assert A not in node.get("/metrics").body.decode()
    assert one.list("lake/") == before
    shared.push(A, ["more"])
    shared.store(A, one)
    shared.await_shipped(A, one, node)
    for who in where:
        assert shared.shipped(who, where[who])
    told = node.get("/status").body, node.get("/metrics").body.decode(), [
        shared.queend.get(path(who)).body for who in where]
    assert node.term() == 0
    assert not db.rows("select key from queen.kv where key like '%:lease'"
                       " or key like '%:node=%'")
    whose(node)
    for secret in SECRET, WRONG:
        assert secret not in json.dumps(told)
        assert secret not in node.log_text() + shared.queend.log_text()
        assert_not_in_the_database(db, secret)


def exposition(node):
    """Each family once; tenants by id, the tenant first, the default's
    without; one gauge of memory for all."""
    text = node.get("/metrics").body.decode()
    for word in "HELP", "TYPE":
        names = re.findall(r"^# %s (\S+)" % word, text, re.M)
        assert len(names) == len(set(names)) > 15
    labels = re.findall(r"^queen_s3_records_written_total(\{.*\}) (\S+)$",
                        text, re.M)
    assert labels == [('{queue="q"}', "3")] + [
        ('{tenant="%s",queue="q"}' % who, "3") for who in (A, B, C)]
    assert re.findall(r"^queen_s3_buffer_bytes(.*) \d+$", text, re.M) == [""]
    for line in text.splitlines():
        assert "tenant=" not in line or re.match(
            r'\w+\{tenant="00000000-0000-0000-0000-0000000000(aa|bb|cc)"',
            line), line
    assert gauges(node, A) >= {
        'queen_s3_%s{tenant="%s",queue="q"}' % (name, A) for name in
        ("lag_seconds", "discovery_partitions")}


def whose(node):
    """Lines of a queue name it and its tenant, those of the default tenant
    no tenant."""
    seen = collections.defaultdict(set)
    for text in lines(node):
        if "a sink of a tenant" in text or "sink of the environment" in text:
            continue  # what is set, by the names of its settings
        who = re.search(r" tenant=(\S+)", text)
        assert not who or who[1] in (A, B, C), text
        seen[who and who[1]].add(re.split(r" \w+=", text)[0])
    assert set(seen) == {None, A, B, C}
    for who in seen:
        assert {"the bucket answers", "starting a queue",
                "this node owns the queue", "queue restored",
                "window committed"} <= seen[who], who
    for text in lines(node):
        assert "queue=" in text or not re.search(r"queue |window ", text), text


def test_one_memory_for_all_tenants(shared, bucket, new_lake):
    """Acceptance 131: neither fills the memory alone; both together do, and
    the one that holds more closes its window."""
    mib = 1 << 20
    node = new_lake(NoSink, QUEEN_ENCRYPTION_KEY=K1,
                    QUEEN_S3_MEMORY_MB=1).start()
    for who in A, B:  # the first window closes with what there is
        shared.store(who, bucket, maxWindowMs=86400000)
        shared.push(who, ["first"])
        shared.await_shipped(who, bucket, node)

    def queue(who, **want):
        return await_sink(node, who, lambda s: want.items() <= s["queues"][
            0].items() and s)
    for who, n in (A, 60), (B, 50):
        assert "memory budget reached" not in node.log_text()
        assert queue(who)["queues"][0]["k"] == 1
        shared.push(who, ["%05d" % k + "x" * 10000 for k in range(n)])
        await_sink(node, who, lambda s: s["queues"][0]["k"] == 2
                   or s["queues"][0]["bufferedBytes"] > 500000)
    blocks = queue(A, k=2, bufferedBytes=0), queue(B, k=1)
    assert [b["memory"]["limitBytes"] for b in blocks] == [mib, mib]
    assert 500000 < node.metrics()["queen_s3_buffer_bytes"] < mib
    assert re.findall(r"memory budget reached tenant=(\S+)",
                      node.log_text()) == [A]
    assert shared.shipped(A, bucket)
    # the process has no sink of its own: each line says whose it is
    for text in lines(node):
        assert re.search(r"tenant=(%s|%s) " % (A, B), text), text
    assert node.term() == 0


# ---- several ----

def test_tenants_over_three_nodes(db, shared, bucket, new_lake, new_cell):
    """Acceptance 163: rows reach every node; a secret under a key that a node
    lacks is an error of that node alone; queues move when a node dies; deleted
    is deleted everywhere."""
    both = {"QUEEN_ENCRYPTION_KEY": K2, "QUEEN_ENCRYPTION_OLD_KEYS": K1}
    late = new_cell(QUEEN_TENANCY_HEADER="true",
                    QUEEN_KV_TRUSTED_PROXY="true", **both).start()
    for who, queend in (A, shared.queend), (B, late):
        shared.store(who, bucket, queend=queend, queues=["q", "r"])
        for queue in "q", "r":
            shared.push(who, [queue + "1", queue + "2"], queue)
    nodes = [new_lake(NoSink, QUEEN_S3_LEASE_TTL_MS="1500",
                      QUEEN_S3_DISCOVERY_INTERVAL_MS="200", **env).start()
             for env in (both, both, {"QUEEN_ENCRYPTION_KEY": K2})]
    first, second, third = nodes
    for who in A, B:
        for queue in "q", "r":
            shared.await_shipped(who, bucket, *nodes, queue=queue)
    block = await_sink(third, A, lambda s: s["error"])
    assert block["phase"] == "error" and block["queues"] == []
    assert third.get("/healthz").status == 200
    # its queues are shared by those who can; each node knows of the other's
    for node in first, second:
        await_sink(node, A, lambda s: s["placement"]["nodes"] == 2
                   and [q["ownedHere"] for q in s["queues"]].count(True) == 1)
        await_sink(node, B, lambda s: s["placement"]["nodes"] == 3)
    first.kill9()
    await_sink(second, A, lambda s: [
        q["ownedHere"] for q in s["queues"]] == [True, True])
    for who in A, B:
        shared.push(who, ["q3"])
        shared.await_shipped(who, bucket, second, third)
    shared.queend.delete(path(A))
    for node in second, third:
        await_sink(node, A, lambda s: s is None)
        assert set(sinks(node)) == {B}
        assert node.term() == 0
    for node in nodes:
        assert SECRET not in node.log_text()

# SPDX-License-Identifier: Apache-2.0
"""The whole way: producers, queend, queen-s3, a bucket, and a reader who
compares what is there with what was sent."""
import time

import pytest

from lakecheck import Sent, Tree, check, escape
from lakeload import ODD, Client, Producers, clock, settled
from queenlib import TENANT, wait_until

WINDOWS = {"QUEEN_S3_ALIGN": "none", "QUEEN_S3_MAX_WINDOW_MS": "1000"}
ODD_QUEUE = "caffè 50%/~x"
LARGE = "[\n%s\n]" % ",\n".join(['  "%s"' % ("y" * 50000)] * 30)


def shape(name, queues, **env):
    return {"QUEEN_S3_SINK": name, "QUEEN_S3_PREFIX": name,
            "QUEEN_S3_QUEUES": ",".join(queues), **WINDOWS,
            **{"QUEEN_S3_" + k: str(v) for k, v in env.items()}}


def agree(db, node, queue, sink, lake):
    """Pointer, status and metrics with what the reader found."""
    n = sum(m["records"] for m in lake.windows)
    last = lake.windows[-1]
    row = db.value("select value from queen.kv where tenant = %s and namespace"
                   " = 'queen-s3' and key = %s", (
                       TENANT, "s3:%s:%s:committed" % (sink, escape(queue))))
    assert (row["k"], row["records"], row["bytes"]) == (
        last["k"], last["records"], last["bytes"])
    assert row["manifest"].endswith("/windows/%010d.json" % last["k"])
    block = node.queue(queue)
    assert (block["k"], block["windowsCommitted"], block["records"],
            block["bytes"], block["recordsLost"], block["bufferedBytes"]) == (
        last["k"], last["k"], n, sum(m["bytes"] for m in lake.windows), 0, 0)
    numbers = node.metrics()
    assert numbers['queen_s3_records_written_total{queue="%s"}' % queue] == n


def test_all_that_was_sent_is_there_once(db, new_cell, bucket, new_gate,
                                         new_lake, tmp_path):
    """Acceptance 155, 159: 13 500 records of 1 350 partitions, past one page
    of discovery and one call of fetch; four producers at once; odd payloads,
    one of them larger than the answer of a fetch is to be; an odd name; lines,
    Parquet, an object per partition."""
    cell = new_cell().start()
    gate = new_gate(bucket)
    parts = {"wide": ["p%04d" % n for n in range(1100)],
             "some": ["caffè %d/~" % n for n in range(240)],
             ODD_QUEUE: list("abcdefghij")}
    sinks = {"lines": new_lake(gate, **shape("lines", parts)),
             "pages": new_lake(gate, **shape("pages", parts,
                                             FORMAT="parquet")),
             "each": new_lake(gate, **shape("each", [ODD_QUEUE], FORMAT="parquet",
                                            PARQUET_CODEC="snappy",
                                            LAYOUT="per-partition"))}
    for node in sinks.values():
        node.start()
    made = Producers(db, [cell], parts)

    def share(who):
        """Each of its partitions gets 10 records, five at a time."""
        client = Client([cell])
        mine = made.places[who::made.n]
        for turn in range(2):
            for i in range(0, len(mine), 100):
                made.push(client, [(q, p, [
                    ODD[(i + n + turn * 5 + who) % len(ODD)]
                    for n in range(5)]) for q, p in mine[i:i + 100]])
        if who == 0:
            made.push(client, [(*mine[-1], [LARGE])])
        client.close()

    for who in range(made.n):
        made.workers.start(share, who)
    made.workers.join()
    assert made.total() == 13501
    until = clock(db)
    for name, node in sinks.items():
        queues = [ODD_QUEUE] if name == "each" else list(parts)
        settled(node, queues, until)
        tree = Tree(str(tmp_path / name), bucket, name).pull()
        for queue in queues:
            lake = check(tree, queue, made.snapshot(queue), name)
            agree(db, node, queue, name, lake)
    assert gate.refused() == []


def short(db, cell, bucket, new_lake, folder, seconds, ttl_ms, window_ms):
    node = new_lake(bucket, **shape("s", ["q"], LEASE_TTL_MS=ttl_ms,
                                    MAX_WINDOW_MS=window_ms)).start()
    with Producers(db, [cell], {"q": list("abc")}, n=1, pause_s=0.1) as made:
        made.workers.stop.wait(seconds)
        made.stop()
    settled(node, ["q"], clock(db))
    lake = check(Tree(str(folder), bucket, "s").pull(), "q",
                 made.snapshot("q"), "s")
    assert len(lake.windows) > seconds / 2
    assert "fenced" not in node.log_text()
    assert not any(v for n, v in node.metrics().items()
                   if n.startswith("queen_s3_commit_precondition_lost_total"))


def test_a_short_lease_does_not_fence_its_owner(db, new_cell, bucket,
                                                new_lake, tmp_path):
    """Acceptance 161: refreshes and fences of many windows, one lease."""
    short(db, new_cell().start(), bucket, new_lake, tmp_path, 6, 2000, 200)


@pytest.mark.soak
def test_the_shortest_lease_does_not_fence_its_owner(db, new_cell, bucket,
                                                     new_lake, tmp_path):
    short(db, new_cell().start(), bucket, new_lake, tmp_path, 40, 1000, 100)


def test_a_burst_after_a_lull_is_few_objects(db, new_cell, bucket, new_lake,
                                             tmp_path):
    """E3: one record, three windows of nothing, a thousand within less than a
    window."""
    cell = new_cell().start()
    node = new_lake(bucket, **shape("s", ["q"], MAX_WINDOW_MS=2000)).start()
    cell.push("q", [0], ids=["0"])
    settled(node, ["q"], clock(db))
    first = node.queue("q")["k"]
    lull = time.monotonic()
    wait_until(lambda: time.monotonic() >= lull + 6, every_s=0.2)
    start = time.monotonic()
    for n in range(10):
        cell.push("q", list(range(100)),
                  ids=[str(100 * n + i + 1) for i in range(100)])
        time.sleep(0.1)
    windows = int((time.monotonic() - start) / 2) + 2
    settled(node, ["q"], clock(db))
    tree = Tree(str(tmp_path), bucket, "s").pull()
    sent = [Sent("0", "0")] + [Sent(str(i + 1), str(i % 100))
                               for i in range(1000)]
    lake = check(tree, "q", {"Default": sent}, "s")
    assert first == 1 and len(lake.windows) - first <= windows

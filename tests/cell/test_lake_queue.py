# SPDX-License-Identifier: Apache-2.0
"""The life of one queue: its windows, its rows, and who may write them."""
import os

from lakekit import Objects, stamp
from proxykit import Proxy
from queenlib import TENANT, wait_until
from sqlkit import at
from test_lake_queue_crash import HOUR, fill

MANIFEST = "windows/%010d.json"


def env(name="s", **more):
    return {"QUEEN_S3_QUEUES": "q", "QUEEN_S3_SINK": name,
            "QUEEN_S3_PREFIX": name,
            **{"QUEEN_S3_" + k: str(v) for k, v in more.items()}}


def counter(node, name, **labels):
    text = ",".join('%s="%s"' % i for i in labels.items())
    return node.metrics()["%s{%s}" % (name, text)]


def test_two_hours_become_two_windows(log, bucket, new_lake):
    """Acceptance 96 to 100: documented keys, manifests, checkpoints at their
    cadence, metrics; a restart goes on; `latest` ships nothing of before; one
    object per partition; whole days, Parquet."""
    fill(log)
    hours = new_lake(bucket, **env(
        CHECKPOINT_EVERY=2, COMPRESSION="none")).start()
    late = new_lake(bucket, **env(
        "late", START="latest", ALIGN="none", MAX_WINDOW_MS=500)).start()
    parts = new_lake(bucket, **env("parts", LAYOUT="per-partition")).start()
    days = new_lake(bucket, **env("days", ALIGN="day", FORMAT="parquet")) \
        .start()
    log.await_k("s", "q", 2, hours)
    o = Objects(bucket, "s", "q")
    below = "s/tenant=%s/queue=q/dt=2026-01-01/" % TENANT
    assert sorted(o.data) == [below + "hour=%02d/w-%010d-%016d-%016d.jsonl" % (
        k - 1, k, stamp(HOUR * (k - 1)), stamp(HOUR * k)) for k in (1, 2)]
    for w in o.windows():
        m = w.manifest
        assert (m["sink"], m["tenant"], m["queue"], m["writer"].split()[1]) \
            == ("s", TENANT, "q", "jsonl")
        assert (m["records"], m["partitions"], m["lost"]) == (27, 3, [])
        assert (m["minTs"], m["maxTs"]) == (w.start + 10**7,
                                            w.start + 11 * 10**6)
        assert m["committedAt"].endswith("000Z")
    wait_until(lambda: [n for n in Objects(bucket, "s", "q").side
                        if n.startswith("checkpoint/")]
               == ["checkpoint/0000000002.json.zst"])
    row = log.row("s", "q", "committed")
    assert (row["k"], row["tEnd"], row["records"], row["manifest"]) == (
        2, "2026-01-01T02:00:00.000000Z", 27,
        o.side_below + MANIFEST % 2)
    assert o.records() == log.records["q"]
    block = hours.await_queue("q", state="filling", k=2)
    assert (block["windowsCommitted"], block["records"], block["bytes"]) == (
        2, 54, sum(map(len, o.data.values())))
    assert counter(hours, "queen_s3_records_written_total", queue="q") == 54
    assert counter(hours, "queen_s3_discovery_partitions", queue="q") == 3
    # restarted, it goes on where the pointer stands
    assert hours.term() == 0
    log.push("q", "a", ["1"], 2 * HOUR + 5)
    hours.start()
    log.await_k("s", "q", 3, hours)
    assert Objects(bucket, "s", "q").records() == log.records["q"]
    assert "checkpoint_k=2 positions=3" in hours.log_text()
    # what was there before `latest` is not shipped
    late.await_queue("q", state="filling")
    wait_until(lambda: late.queue("q")["completeThrough"])
    log.push("q", "a", ["2", "3"])
    log.await_k("late", "q", 1, late)
    assert Objects(bucket, "late", "q").records() == {
        "a": log.records["q"]["a"][-2:]}
    # one object per partition, its offsets in key and manifest
    log.await_k("parts", "q", 2, parts)
    o = Objects(bucket, "parts", "q")
    first = o.windows()[0]
    assert [(e["partition"], e["firstOffset"], e["lastOffset"], e["records"])
            for e in first.objects] == [(p, 0, 8, 9)
                                        for p in ("a", "b/ü", "c")]
    assert first.objects[1]["key"].endswith(
        "-p-b%2F%C3%BC-000000000000-000000000008.jsonl.zst")
    # a day has one window, and no hour in its key
    log.await_k("days", "q", 1, days)
    (key, data), = Objects(bucket, "days", "q").data.items()
    assert "/dt=2026-01-01/w-0000000001-%016d-%016d.parquet" % (
        stamp(0), stamp(24 * HOUR)) in key
    assert data[:4] == data[-4:] == b"PAR1"


def test_a_queue_that_is_not_there(log, bucket, new_lake):
    """Acceptance 101: missing, with the reason, and nothing is written; it is
    looked for again."""
    node = new_lake(bucket, **env()).start()
    block = node.await_queue("q", state="missing")
    assert "no such queue" in block["lastError"]["message"]
    assert bucket.keys() == [] and log.row("s", "q", "intent") is None
    fill(log, hours=1)
    log.await_k("s", "q", 1, node)
    assert node.log_text().count("there is no such queue") == 1


def test_failures_cost_time_alone(db, log, bucket, new_lake, new_gate):
    """Acceptance 102, 114: uploads refused, answers lost, every connection to
    the cell cut again and again."""
    fill(log)
    gate = new_gate(bucket, "503:@1:PUT:/plans/", "lost:@1:PUT:-p-a-",
                    "500:@1:PUT:/windows/", "drop:@1:PUT:/checkpoint/",
                    "lost:@2:PUT:/windows/", "cut:@1:GET:/windows/")
    node = new_lake(gate, **env(CHECKPOINT_EVERY=1, LAYOUT="per-partition"))
    node.start()
    conn = db.connect()

    def cut():
        with conn.cursor() as c:
            c.execute("select pg_terminate_backend(pid) from pg_stat_activity"
                      " where datname = %s and application_name like"
                      " 'queen-s3%%'", (db.name,))
        return log.k("s", "q") == 2
    wait_until(cut, 60, every_s=0.7)
    gate.await_seen(1, "PUT", "/checkpoint/", status=200)
    o = Objects(bucket, "s", "q")
    assert [w.k for w in o.windows()] == [1, 2]
    assert o.records() == log.records["q"]
    assert gate.refused() == [] and gate.seen(fault="lost")
    assert "queue fenced" not in node.log_text()


def test_an_answer_of_the_fence_that_is_lost(db, log, bucket, new_lake):
    """Acceptance 114: intent and pointer are written, and nobody is told: the
    window is committed once, and the queue goes on."""
    fill(log, hours=1)
    proxy = Proxy(db.server.port.number)
    node = new_lake(bucket, PG_PORT=proxy.port.number, **env())
    for n, marker in enumerate((b'"tStart":', b'"manifest":')):
        proxy.cut_after = marker
        if n == 0:
            node.start()
        wait_until(lambda n=n: proxy.cuts > n)
    block = node.await_queue("q", state="filling", k=1)
    assert (block["windowsCommitted"], block["records"]) == (1, 27)
    assert "queue fenced" not in node.log_text()
    assert Objects(bucket, "s", "q").records() == log.records["q"]
    assert node.term() == 0
    proxy.close()


def test_a_lost_lease_ends_it_before_it_writes(log, bucket, new_lake,
                                               new_gate):
    """Acceptance 104, 108, 109: the second node is told the owner; an owner
    whose lease was taken in the middle of a window leaves the pointer."""
    gate = new_gate(bucket)
    first = new_lake(gate, **env(LEASE_TTL_MS=60000, ALIGN="none",
                                 MAX_WINDOW_MS=100))
    log.push("q", "a", ["0"])
    first.start()
    idle = new_lake(bucket, **env("idle", LEASE_TTL_MS=60000, ALIGN="none",
                                  MAX_WINDOW_MS=100)).start()
    log.await_k("s", "q", 1, first)
    log.await_k("idle", "q", 1, idle)
    second = new_lake(bucket, **env(LEASE_TTL_MS=60000))
    second.start()
    block = second.await_queue("q", state="elsewhere")
    assert block["heldBy"].startswith("node0")
    assert not block["ownedHere"] and first.queue("q")["ownedHere"]
    # an upload that hangs while the lease is taken away
    gate.stall_for(0.5)
    gate.fault("stall:@1:PUT:/dt")
    log.push("q", "a", ["1"])
    wait_until(lambda: log.row("s", "q", "intent")["k"] == 2)
    take_lease(log, "s")
    first.await_queue("q", state="fenced")
    assert log.k("s", "q") == 1
    assert counter_of(first, "queen_s3_commit_precondition_lost_total") == 1
    # nobody else's row is taken away by a stop
    assert first.term() == 0
    assert log.row("s", "q", "lease")["instance"] == "third"
    # taken between two windows: the intent is refused, nothing goes up
    log.await_k("idle", "q", 2, idle)
    before = bucket.keys("idle/")
    take_lease(log, "idle")
    log.push("q", "a", ["2"])
    idle.await_queue("q", state="fenced")
    assert bucket.keys("idle/") == before
    assert log.row("idle", "q", "intent")["k"] == log.k("idle", "q") == 2


def take_lease(log, sink):
    """As another node would, once it is over."""
    log.db.rows("update queen.kv set version = version + 1, value = %s"
                " where key = %s", (
                    '{"instance":"third","incarnation":"0123456789abcdef",'
                    '"sinceMs":1}', "s3:%s:q:lease" % sink))


def counter_of(node, name):
    return sum(v for n, v in node.metrics().items() if n.startswith(name))


def test_rows_that_cannot_be_read(log, bucket, new_lake):
    """Acceptance 110, and 9.3: an unreadable pointer is ignored, its version
    is not; a window whose intent is unreadable is committed from its
    manifest."""
    fill(log)
    nodes = {n: new_lake(bucket, **env(n, **more)) for n, more in (
        ("pointer", {}), ("intent", {"CRASH_AT": "after_upload"}),
        ("fresh", {"CRASH_AT": "after_intent"}))}
    log.kit.rows("select queen.kv_put(%s, 'queen-s3', 's3:pointer:q:committed',"
                 " '\"x\"', null, null, clock_timestamp())", TENANT)
    for name, node in nodes.items():
        node.start(wait=name == "pointer")
    for name in "intent", "fresh":
        nodes[name].await_crash()
        log.db.rows("update queen.kv set value = '7' where key ="
                    " 's3:%s:q:intent'" % name)
        del nodes[name].extra["QUEEN_S3_CRASH_AT"]
        nodes[name].start()
    for name, node in nodes.items():
        log.await_k(name, "q", 2, node)
        assert Objects(bucket, name, "q").records() == log.records["q"]
    assert "pointer not readable" in nodes["pointer"].log_text()
    assert "window was uploaded already" in nodes["intent"].log_text()


def test_what_retention_took_is_told_once(log, bucket, new_lake):
    """Acceptance 107: seen live and seen at a restart, counted, and named in
    the one window that found it."""
    fill(log, hours=1)
    node = new_lake(bucket, **env(CHECKPOINT_EVERY=1)).start()
    log.await_k("s", "q", 1, node)
    wait_until(lambda: "checkpoint/0000000001.json.zst"
               in Objects(bucket, "s", "q").side)
    assert node.term() == 0
    log.push("q", "a", ["1", "2"], HOUR + 5)
    log.push("q", "a", ["3"], HOUR + 6)
    log.kit.drop_segments(log.part_ids["q", "a"], 10)
    node.start()
    log.await_k("s", "q", 2, node)
    windows = Objects(bucket, "s", "q").windows()
    assert [w.lost for w in windows] == [
        [], [{"partition": "a", "from": 9, "to": 10}]]
    assert node.queue("q")["recordsLost"] == 2
    assert node.log_text().count("records lost before they were read") == 1


def test_the_memory_budget_closes_the_largest(log, bucket, new_lake):
    """Acceptance 103: with nothing else to end a window, the budget of the
    process does, of the largest queue."""
    for queue in "big", "small":
        log.kit.queue(queue)
    free, tight = (new_lake(bucket, **{
        **env(name, START="latest", ALIGN="none", MAX_WINDOW_MS=86400000,
              MEMORY_MB=mb), "QUEEN_S3_QUEUES": "small,big"}).start()
        for name, mb in (("free", 1000), ("tight", 1)))
    for node in free, tight:
        for queue in "big", "small":
            wait_until(lambda n=node, q=queue: n.queue(q).get(
                "completeThrough"))
    log.push("small", "p", ["1"])
    for p in range(24):
        log.push("big", "p%d" % p, ['"%s"' % ("x" * 99000)])
    log.await_k("tight", "big", 1, tight)
    assert "memory budget reached" in tight.log_text()
    wait_until(lambda: tight.queue("big")["bufferedBytes"] < 1 << 20)
    wait_until(lambda: free.queue("big")["bufferedBytes"] > 2 << 20)
    assert log.k("free", "big") == log.k("tight", "small") == 0
    found = Objects(bucket, "tight", "big").records()
    assert found.items() <= log.records["big"].items() and len(found) > 12


def test_a_frame_that_cannot_be_opened(log, bucket, new_lake):
    """The windows end before it; the state names the key; after one TTL the
    queue is given back."""
    fill(log, hours=1)
    log.push("q", "b/ü", ["1"], HOUR + 5)
    log.push("q", "a", ["2"], HOUR + 6)
    log.db.rows("update queen.segments set key_id = 7, blob = %s where"
                " created_at = %s", (bytes.fromhex("0100") + sealed_frame(),
                                     at(HOUR + 5)))
    node = new_lake(bucket, **env(LEASE_TTL_MS=2000)).start()
    log.await_k("s", "q", 1, node)
    node.await_queue("q", state="blocked")
    assert "key 7" in node.queue("q")["lastError"]["message"]
    node.await_queue("q", state="released")
    windows = Objects(bucket, "s", "q").windows()
    assert windows[0].end == stamp(HOUR)
    assert all(w.end <= stamp(HOUR + 5) for w in windows)
    assert counter_of(node, "queen_s3_queues_given_back_total") == 1


def sealed_frame():
    """Of key 7, whatever it holds."""
    body = b"\x04" + os.urandom(16) + b"\x01\x00x" + os.urandom(80)
    return len(body).to_bytes(4, "little") + body

# SPDX-License-Identifier: Apache-2.0
"""A window begun and not committed: whatever is done of it, the lake is that
of a run nobody disturbed, byte for byte."""
import json

import pytest

from lakekit import Objects, stamp

POINTS = ("after_intent", "mid_upload", "after_upload", "before_commit",
          "after_commit")
SHAPES = [("jsonl", "merged"), ("jsonl", "per-partition"),
          ("parquet", "merged"), ("parquet", "per-partition")]
HOUR = 3600


def half(shape):
    """0 or 1: the shapes of each half have both formats and both layouts."""
    return (shape[0] == "parquet") ^ (shape[1] == "per-partition")


def fill(log, queue="q", parts=("a", "b/ü", "c"), hours=2):
    """In each hour some pushes to each partition, some of them of one stamp."""
    for hour in range(hours):
        for n in range(3):
            for p in parts:
                log.push(queue, p, ['{"n": %d, "of": "%s"}' % (i, p)
                                    for i in range(2 + n)],
                         HOUR * hour + 10 + n // 2)


@pytest.fixture
def run(new_lake, bucket):
    """run(name, **env) -> a node whose sink and prefix have that name."""
    def make(name, **env):
        return new_lake(bucket, QUEEN_S3_QUEUES="q", QUEEN_S3_SINK=name,
                        QUEEN_S3_PREFIX=name,
                        **{"QUEEN_S3_" + k: v for k, v in env.items()})
    return make


def objects(bucket, name):
    return Objects(bucket, name, "q")


def left_behind(log, bucket, name, layout):
    """What a crash at that point is to leave, and no more."""
    o = objects(bucket, name)
    intent, committed = log.row(name, "q", "intent"), log.k(name, "q")
    assert (intent["k"], intent["tStart"], intent["tEnd"]) == (
        1, stamp(0), stamp(HOUR))
    plans = [n for n in o.side if n.startswith("plans/")]
    manifests = [n for n in o.side if n.startswith("windows/")]
    whole = 3 if layout == "per-partition" else 1
    assert (committed, len(o.data), len(manifests)) == {
        "after_intent": (0, 0, 0), "mid_upload": (0, 1, 0),
        "after_upload": (0, whole, 1), "before_commit": (0, whole, 1),
        "after_commit": (1, whole, 1)}[name]
    assert len(plans) == (layout == "per-partition" and len(o.data) > 0)


@pytest.mark.parametrize("shape", SHAPES, ids="-".join)
def test_a_crash_at_each_point_leaves_no_trace(log, bucket, run, shape):
    """Acceptance 106: each point with both formats and with both layouts; with
    each pair of them in test_lake_redo.py, and here by make soak."""
    no_trace(log, bucket, run, shape, POINTS[half(shape)::2])


@pytest.mark.soak
@pytest.mark.parametrize("shape", SHAPES, ids="-".join)
def test_a_crash_at_every_point_leaves_no_trace(log, bucket, run, shape):
    no_trace(log, bucket, run, shape, POINTS)


def no_trace(log, bucket, run, shape, points):
    fill(log)
    env = dict(FORMAT=shape[0], LAYOUT=shape[1])
    nodes = {p: run(p, CRASH_AT=p, **env).start(wait=False) for p in points}
    clean = run("clean", **env).start()
    for name, node in nodes.items():
        node.await_crash()
        left_behind(log, bucket, name, shape[1])
        # the row of the dead one names this instance: it is taken at once
        del node.extra["QUEEN_S3_CRASH_AT"]
        node.start()
    want = None
    for name, node in [("clean", clean), *nodes.items()]:
        log.await_k(name, "q", 2, node)
        o = objects(bucket, name)
        assert [(w.start, w.end) for w in o.windows()] == [
            (stamp(0), stamp(HOUR)), (stamp(HOUR), stamp(2 * HOUR))]
        if shape[0] == "jsonl":
            assert o.records() == log.records["q"]
        want = want or o.comparable()
        assert o.comparable() == want
    for name, node in nodes.items():
        counts = node.queue("q")
        # found whole in the bucket, it is committed as it is
        assert counts["windowsCommitted"] == 2 - (name == "after_commit")
        assert counts["recordsLost"] == 0


def test_a_crash_between_the_parts_of_an_upload(log, bucket, run):
    """What was up of it is in no listing; the redo makes the same object."""
    for n in range(18):
        log.push("q", "a", ['"%s"' % (chr(97 + n) * (1 << 20))], 10 + n)
    node = run("s", CRASH_AT="mid_upload", COMPRESSION="none",
               MULTIPART_THRESHOLD_MB=5).start(wait=False)
    node.await_crash()
    key, = bucket.uploads()
    assert objects(bucket, "s").keys == []
    del node.extra["QUEEN_S3_CRASH_AT"]
    node.start()
    log.await_k("s", "q", 1, node)
    o = objects(bucket, "s")
    assert list(o.data) == [key] and o.records() == log.records["q"]


def test_a_redo_whose_upload_is_whole_writes_nothing(
        db, log, bucket, run, new_gate):
    """Acceptance 112: found at the start, it is committed without a read; one
    that lands while the redo reads is taken before any PUT."""
    fill(log, hours=1)
    names, gates, whole = ("found", "lands"), {}, {}
    nodes = {n: run(n, CRASH_AT="after_upload", PARQUET_CODEC="snappy",
                    FORMAT="parquet").start(wait=False) for n in names}
    for name, node in nodes.items():
        node.await_crash()
        gates[name] = new_gate(bucket)
        node.extra.update(gates[name].env())
        del node.extra["QUEEN_S3_CRASH_AT"]
        o = objects(bucket, name)
        key = o.side_below + "windows/0000000001.json"
        whole[name] = o.bytes()
        assert json.loads(whole[name][key])["compression"] == "snappy"
    bucket.delete(key)
    with db.connect(autocommit=False) as conn:
        # nothing can be read from the log, the rows of the sink can
        with conn.cursor() as c:
            c.execute("lock table queen.partition_heads in access exclusive"
                      " mode")
        for node in nodes.values():
            node.start()
        log.await_k("found", "q", 1, nodes["found"])
        gates["lands"].await_seen(1, "GET", "/windows/", status=404)
        nodes["lands"].await_queue("q", state="filling", redo=True)
        bucket.put(key, whole["lands"][key])
    log.await_k("lands", "q", 1, nodes["lands"])
    for name, node in nodes.items():
        assert gates[name].seen("PUT") == gates[name].refused() == []
        assert objects(bucket, name).bytes() == whole[name]
        assert node.queue("q")["records"] == 27


def test_what_an_upload_that_landed_does_not_tell_is_told(
        db, log, bucket, run):
    """A redo that lost records finds the manifest of another after that, which
    tells some of them: the next window tells the rest."""
    fill(log, hours=1)
    node = run("s", CHECKPOINT_EVERY="1").start()
    log.await_k("s", "q", 1, node)
    assert node.term() == 0
    log.push("q", "a", ["1"] * 6, HOUR + 1)
    log.push("q", "c", ["1"], HOUR + 1)
    node.extra["QUEEN_S3_CRASH_AT"] = "after_upload"
    node.start(wait=False)
    node.await_crash()
    del node.extra["QUEEN_S3_CRASH_AT"]
    key = objects(bucket, "s").side_below + "windows/0000000002.json"
    manifest = json.loads(bucket.get(key))
    bucket.delete(key)
    manifest["lost"] = [{"partition": "a", "from": 11, "to": 12}]
    log.kit.drop_segments(log.part_ids["q", "a"], 14)
    log.push("q", "c", ["1"], 2 * HOUR + 1)
    with db.connect(autocommit=False) as conn:
        with conn.cursor() as c:
            c.execute("lock table queen.partition_heads in access exclusive"
                      " mode")
        node.start()
        node.await_queue("q", state="filling", redo=True)
        bucket.put(key, json.dumps(manifest).encode())
    log.await_k("s", "q", 3, node)
    assert [w.manifest["lost"] for w in objects(bucket, "s").windows()] == [
        [], manifest["lost"], [{"partition": "a", "from": 9, "to": 10},
                               {"partition": "a", "from": 13, "to": 14}]]


def test_a_redo_replaces_what_is_not_its_own(log, bucket, run):
    """A manifest of other bounds, or of another writer; a half upload."""
    fill(log, hours=1)
    nodes = {}
    for name in "bounds", "writer", "gone":
        nodes[name] = run(name, CRASH_AT="after_upload").start(wait=False)
    want = {}
    for name, node in nodes.items():
        node.await_crash()
        o = objects(bucket, name)
        want[name] = o.comparable()
        key = o.side_below + "windows/0000000001.json"
        m = json.loads(bucket.get(key))
        if name == "gone":
            bucket.delete(key)
        else:
            m.update({"bounds": {"tEnd": m["tEnd"] - 1},
                      "writer": {"writer": "queen-s3/0.0.1"}}[name])
            bucket.put(key, json.dumps(m).encode())
        bucket.put(next(iter(o.data)), b"half")
        del node.extra["QUEEN_S3_CRASH_AT"]
        node.start()
    for name, node in nodes.items():
        log.await_k(name, "q", 1, node)
        assert objects(bucket, name).comparable() == want[name]
        assert objects(bucket, name).records() == log.records["q"]


def test_a_redo_has_the_shape_of_its_intent(
        log, bucket, run, new_bucket):
    """Acceptance 113: other format, codec, layout, alignment, prefix and
    bucket in the settings; the window goes where it was begun."""
    fill(log)
    node = run("s", CRASH_AT="mid_upload", LAYOUT="per-partition",
               COMPRESSION="gzip").start(wait=False)
    node.await_crash()
    other = new_bucket()
    del node.extra["QUEEN_S3_CRASH_AT"]
    node.extra.update({
        "QUEEN_S3_BUCKET": other.name, "QUEEN_S3_PREFIX": "moved",
        "QUEEN_S3_LAYOUT": "merged", "QUEEN_S3_ALIGN": "day",
        "QUEEN_S3_FORMAT": "jsonl", "QUEEN_S3_COMPRESSION": "none"})
    node.start()
    log.await_k("s", "q", 2, node)
    first, = objects(bucket, "s").windows()
    assert len(first.objects) == 3 and all(
        o["key"].endswith(".jsonl.gz") and "/hour=00/" in o["key"]
        for o in first.objects)
    o = Objects(other, "moved", "q")
    assert [n for n in o.side] == ["windows/0000000002.json"]
    key, = o.data
    assert key.endswith(".jsonl") and "hour=" not in key
    assert o.data[key].count(b"\n") == 27
    assert "window goes on in the bucket it was begun in" in node.log_text()


def test_what_a_redo_does_not_build_again_is_emptied(log, bucket, run):
    """A plan names its keys first; a partition that retention took between
    crash and restart leaves an empty object, which the manifest lists."""
    fill(log, hours=1)
    names = ("some", "all")
    nodes = {n: run(n, CRASH_AT="before_commit", LAYOUT="per-partition")
             .start(wait=False) for n in names}
    merged = run("merged", CRASH_AT="mid_upload").start(wait=False)
    wrong = run("wrong", CRASH_AT="mid_upload", LAYOUT="per-partition") \
        .start(wait=False)
    for node in (*nodes.values(), merged, wrong):
        node.await_crash()
    # a plan that names what is not of its window is not carried out
    o = objects(bucket, "wrong")
    key = o.side_below + "plans/0000000001.json.zst"
    bucket.put(key, objects(bucket, "all").side["plans/0000000001.json.zst"])
    del wrong.extra["QUEEN_S3_CRASH_AT"]
    wrong.start()
    block = wrong.await_queue("q", state="failed")
    assert "names what is not of it" in block["lastError"]["message"]
    assert objects(bucket, "wrong").keys == o.keys
    keys = {n: set(objects(bucket, n).data) for n in names}
    for n in names:
        bucket.delete(objects(bucket, n).side_below
                      + "windows/0000000001.json")
    a, b, c = (log.part_ids["q", p] for p in ("a", "b/ü", "c"))
    log.kit.drop_segments(a, 8)
    log.kit.drop_segments(b, 1)
    some = nodes["some"]
    # the second try dies, too, and it is its plan that the third one reads
    some.extra["QUEEN_S3_CRASH_AT"] = "mid_upload"
    some.start(wait=False)
    some.await_crash()
    del some.extra["QUEEN_S3_CRASH_AT"]
    some.start()
    log.await_k("some", "q", 1, some)
    o = objects(bucket, "some")
    window, = o.windows()
    # b's object has another first offset now: the old key is left empty
    by_key = {e["key"]: e for e in window.objects}
    assert keys["some"] < set(o.data) == set(by_key) and len(by_key) == 4
    sizes = {(e["partition"], e["firstOffset"]): e["records"]
             for e in window.objects}
    assert sizes == {("a", 0): 0, ("b/ü", 0): 0, ("b/ü", 2): 7, ("c", 0): 9}
    want = dict(log.records["q"])
    del want["a"]
    want["b/ü"] = want["b/ü"][2:]
    assert o.records() == want
    # nothing at all is left: still every object of the first try
    log.kit.drop_segments(b, 8)
    log.kit.drop_segments(c, 8)
    for name, node in ("all", nodes["all"]), ("merged", merged):
        del node.extra["QUEEN_S3_CRASH_AT"]
        node.start()
        log.await_k(name, "q", 1, node)
        o = objects(bucket, name)
        window, = o.windows()
        assert window.manifest["records"] == 0 and o.records() == {}
        assert "minTs" not in window.manifest
        assert name == "merged" or set(o.data) == keys["all"]

# SPDX-License-Identifier: Apache-2.0
"""The cell went back in time, or is a copy: nothing is written before an
operator has said from where to go on."""
import json

from lakekit import Objects, stamp
from queenlib import TENANT, wait_until
from test_lake_queue import MANIFEST, env
from test_lake_queue_crash import HOUR, fill


def resume(log, sink, prefix=None):
    assert log.db.value("select queen.lake_resume_v1(%s, %s, 'q', %s)",
                        (TENANT, sink, prefix))


def back_to(log, sink, k, rows):
    """The pointers as they were after window k; the lease is nobody's."""
    for what in "committed", "intent":
        key = "s3:%s:q:%s" % (sink, what)
        if rows.get(what) is None:
            log.db.rows("delete from queen.kv where key = %s", (key,))
        else:
            log.db.rows("update queen.kv set value = %s, version = version + 7"
                        " where key = %s", (json.dumps(rows[what]), key))
    assert log.k(sink, "q") == k


def test_a_bucket_ahead_of_the_cell(log, bucket, new_lake):
    """Held until `newest`; then from the newest manifest, no window twice; the
    positions of windows the cell never had are not used."""
    log.push("q", "a", ["1", "2"])
    node = new_lake(bucket, **env(CHECKPOINT_EVERY=1, ALIGN="none",
                                  MAX_WINDOW_MS=100)).start()
    log.await_k("s", "q", 1, node)
    old = {w: log.row("s", "q", w) for w in ("committed", "intent")}
    for k in 2, 3:
        log.push("q", "a", ["3", "4"])
        log.await_k("s", "q", k, node)
    wait_until(lambda: "checkpoint/0000000003.json.zst"
               in Objects(bucket, "s", "q").side)
    assert node.term() == 0
    # the log is back, too: what was pushed after window 1 is not there
    part = log.part_ids["q", "a"]
    for table in "segments", "segment_ids":
        log.db.rows("delete from queen.%s where partition_id = %d and"
                    " base_offset > 1" % (table, part))
    back_to(log, "s", 1, old)
    before = Objects(bucket, "s", "q").bytes()
    node.start()
    block = node.await_queue("q", state="held")
    assert "later window" in block["lastError"]["message"]
    assert block["ownedHere"] and block["k"] == 1
    # other records at the same offsets
    log.push("q", "a", ["5", "6", "7"])
    assert Objects(bucket, "s", "q").bytes() == before
    resume(log, "s")
    log.await_k("s", "q", 4, node)
    assert log.row("s", "q", "resume") is None
    assert log.row("s", "q", "committed")["cell"] == old["committed"]["cell"]
    o = Objects(bucket, "s", "q")
    now = o.bytes()
    assert [k for k in before if now[k] != before[k]] == [
        o.side_below + "checkpoint/0000000003.json.zst"]
    assert o.records()["a"] == log.records["q"]["a"]
    assert [w.lost for w in o.windows()] == [[]] * 4


def test_rows_of_another_cell(log, bucket, new_lake):
    """Held, pointer or intent; a new prefix takes both over, and only the
    one that is configured, when it holds nothing of the queue."""
    fill(log)
    one = new_lake(bucket, **env("one", CRASH_AT="before_commit"))
    two = new_lake(bucket, **env("two"))
    one.start(wait=False)
    two.start()
    one.await_crash()
    log.await_k("two", "q", 2, two)
    assert two.term() == 0
    log.db.rows("update queen.kv set value = value ||"
                " '{\"cell\": \"00000000beef\"}' where key ~"
                " ':(intent|committed)$'")
    before = {n: Objects(bucket, n, "q").bytes() for n in ("one", "two")}
    log.push("q", "a", ["1"], 2 * HOUR + 5)
    del one.extra["QUEEN_S3_CRASH_AT"]
    for node in one, two:
        node.start()
        block = node.await_queue("q", state="held")
        assert "another cell" in block["lastError"]["message"]
    resume(log, "two", "elsewhere")
    wait_until(lambda: "not the one" in two.queue("q")["lastError"]["message"])
    for name, node in ("one", one), ("two", two):
        assert node.term() == 0
        node.extra["QUEEN_S3_PREFIX"] = name + "/new"
        resume(log, name, name + "/new")
        node.start()
        log.await_k(name, "q", 3, node)
        assert log.row(name, "q", "resume") is None
        assert {k: bucket.get(k) for k in before[name]} == before[name]
    # the window of the other cell is built again under the new prefix
    o = Objects(bucket, "one/new", "q")
    assert o.records() == log.records["q"]
    o = Objects(bucket, "two/new", "q")
    assert list(o.side) == [MANIFEST % 3]
    m = json.loads(o.side[MANIFEST % 3])
    assert (m["tStart"], m["records"]) == (stamp(2 * HOUR), 1)


def test_a_pointer_that_is_lost(log, bucket, new_lake):
    """The lake holds more than nothing: held, and nothing twice."""
    fill(log)
    node = new_lake(bucket, **env()).start()
    log.await_k("s", "q", 2, node)
    assert node.term() == 0
    log.db.rows("update queen.kv set value = '[]' where key ="
                " 's3:s:q:committed'")
    log.push("q", "a", ["1"], 2 * HOUR + 5)
    resume(log, "s")
    node.start()
    log.await_k("s", "q", 3, node)
    assert "queue held until `queenctl s3 resume`" in node.log_text()
    assert Objects(bucket, "s", "q").records() == log.records["q"]


def test_a_hold_ends_with_its_reason(log, bucket, new_lake):
    """A page of a gateway in place of the manifest, or a foreign object: once
    it is gone the queue goes on without a word of an operator."""
    fill(log)
    key = Objects(bucket, "s", "q").side_below + MANIFEST % 1
    bucket.put(key, b"<html>sign in</html>")
    node = new_lake(bucket, **env()).start()
    block = node.await_queue("q", state="held")
    assert "would is none" in block["lastError"]["message"]
    assert bucket.keys() == [key]
    bucket.delete(key)
    log.await_k("s", "q", 2, node)
    assert Objects(bucket, "s", "q").records() == log.records["q"]
    assert node.log_text().count("queue held") == 1

# SPDX-License-Identifier: Apache-2.0
"""Names of any byte and length: in the lake, or said to be too long."""
from lakekit import Objects, stamp
from queenlib import wait_until
from test_lake_queue import env
from test_lake_queue_crash import HOUR

PARTS = ["ü" * 512, "ü" * 511 + "a/", "%" * 1024, "../" * 341, "a", "..",
         "-", "~", "a\tb\n\"\\", "\u2028\U0001f980", "%41", "A", "a" * 840]
QUEUE = "../q/%41~ ü\"\\"


def test_names(log, bucket, new_lake):
    """A partition's name is cut in keys alone; a queue whose rows cannot be
    named fails by itself, and others are shipped."""
    too_long = "ü" * 200
    for hour in range(2):
        for part in PARTS:
            log.push(QUEUE, part, ["1", "2"], HOUR * hour + 10)
        log.push(too_long, "a", ["1"], HOUR * hour + 10)
    node = new_lake(bucket, **env(QUEUES="*", LAYOUT="per-partition",
                                  CRASH_AT="mid_upload"))
    node.start(wait=False)
    node.await_crash()
    del node.extra["QUEEN_S3_CRASH_AT"]
    node.start()
    log.await_k("s", "..%2Fq%2F%2541%7E%20%C3%BC%22%5C", 2, node)
    o = Objects(bucket, "s", "..%2Fq%2F%2541%7E%20%C3%BC%22%5C")
    assert o.records() == log.records[QUEUE]
    assert max(len(k) for k in bucket.keys()) <= 1024
    assert len({k for k in o.data}) == 2 * len(PARTS)
    block = node.await_queue(too_long, state="failed")
    assert "too long" in block["lastError"]["message"]
    # once by each of the two processes: it is not tried without a pause
    assert node.log_text().count("queue stopped, tried again in 60 s") == 2
    wait_until(lambda: node.queue(QUEUE)["state"] == "filling")
    assert stamp(2 * HOUR) == o.windows()[-1].end

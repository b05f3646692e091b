# SPDX-License-Identifier: Apache-2.0
"""Rows of namespace queen-s3 that a tenant wrote: what they say may cost it
windows of its own, and leads nowhere else."""
import json

from lakekit import Objects, stamp
from queenlib import TENANT, wait_until
from test_lake_queue import env
from test_lake_queue_crash import HOUR, fill

INTENT = {"k": 3, "tStart": stamp(2 * HOUR), "tEnd": stamp(3 * HOUR),
          "format": "jsonl", "compression": "zstd", "layout": "merged",
          "writer": "w"}
# of the third window, after two were shipped
INTENTS = {
    "overlap": {"tStart": stamp(HOUR)},
    "host": {"bucket": "127.0.0.1:9/"},
    "path": {"prefix": "../up"},
    "far": {"tEnd": 2**63 - 1},
    "last": {"k": 2**63 - 1},
    "negative": {"k": -3},
    "deep": {"k": [[[{"k": 3}]]]},
    "codec": {"compression": 7},
}


def test_intents_of_a_tenant(log, bucket, new_lake):
    """Acceptance 110: not readable is not there; every record once."""
    queues = list(INTENTS)
    for queue in queues:
        fill(log, queue, parts=("a",))
    node = new_lake(bucket, **env(QUEUES="*")).start()
    for queue in queues:
        log.await_k("s", queue, 2, node)
    assert node.term() == 0
    for queue, fields in INTENTS.items():
        log.push(queue, "a", ["1"], 2 * HOUR + 5)
        log.kit.rows(
            "select queen.kv_put(%s, 'queen-s3', %s, %s, null, null,"
            " clock_timestamp())", TENANT, "s3:s:%s:intent" % queue,
            json.dumps({**INTENT, **fields}))
    node.start()
    for queue in queues:
        log.await_k("s", queue, 3, node)
        assert Objects(bucket, "s", queue).records() == log.records[queue]
        third = log.row("s", queue, "intent")
        assert (third["k"], third["tStart"], third["bucket"]) == (
            3, stamp(2 * HOUR), bucket.name)
    # of the last k all that can be told is that it is not the next one
    assert node.log_text().count("intent not readable") == len(queues)
    assert {k.split("/")[0] for k in bucket.keys()} == {"s"}


def test_a_window_that_ends_in_the_future(log, bucket, new_lake):
    """It may be a clock that went back: waited for, and said."""
    fill(log, parts=("a",))
    node = new_lake(bucket, **env())
    log.kit.rows(
        "select queen.kv_put(%s, 'queen-s3', 's3:s:q:intent', %s, null, null,"
        " clock_timestamp())", TENANT, json.dumps(
            {**INTENT, "k": 1, "tStart": stamp(0), "tEnd": stamp(10**9)}))
    node.start()
    block = node.await_queue("q", state="filling", redo=True)
    wait_until(lambda: "with an end that is" in (
        node.queue("q")["lastError"] or {}).get("message", ""))
    assert bucket.keys() == [] and block["k"] is None
    assert node.log_text().count("queue waits for a time to come") == 1

# SPDX-License-Identifier: Apache-2.0
"""SIGTERM: what is worth finishing is finished, the rest is the next owner's,
and the lease is free at once."""
import datetime
import signal

from lakekit import Objects, await_records
from queenlib import TENANT, wait_until
from test_lake_queue import env

PLAIN = {"ALIGN": "none", "MAX_WINDOW_MS": 86400000, "START": "latest",
         "LEASE_TTL_MS": 60000}


def ready(node):
    """`latest` has found its start."""
    wait_until(lambda: node.queue("q").get("completeThrough"))


def clock(us):
    return (datetime.datetime(1970, 1, 1) + datetime.timedelta(
        microseconds=us)).isoformat() + "Z"


def free(log, sink="s"):
    return log.row(sink, "q", "lease") is None and not log.db.rows(
        "select 1 from queen.kv where namespace = 'queen-s3' and key like"
        " 's3:%s:node=%%'" % sink)


def test_what_a_drain_finishes(log, bucket, new_lake):
    """Acceptance 115, 116, 118: 1 MiB is worth a window, and one alone; a
    small young one is left, exactly once in the next run."""
    log.kit.queue("q")
    large, small = (new_lake(bucket, **env(n, **PLAIN)).start()
                    for n in ("large", "small"))
    ready(large)
    ready(small)
    log.push("q", "a", ["1"])
    wait_until(lambda: small.queue("q")["bufferedBytes"] > 0)
    assert small.term() == 0
    assert bucket.keys("small/") == [] and free(log, "small")
    for n in range(11):
        log.push("q", "b", ['"%s"' % ("x" * 99000)])
    last = clock(log.records["q"]["b"][-1].ts)
    wait_until(lambda: (s := large.queue("q"))["bufferedBytes"] > 1 << 20
               and s["safeTime"] > last)
    assert large.term() == 0
    assert log.k("large", "q") == 1 and free(log, "large")
    assert Objects(bucket, "large", "q").records() == log.records["q"]
    # the rest is picked up later: by age, now
    log.push("q", "a", ["2"])
    for name, node in ("large", large), ("small", small):
        node.extra.update({"QUEEN_S3_MAX_WINDOW_MS": "500",
                           "QUEEN_S3_START": "earliest"})
        node.start()
        await_records(bucket, name, "q", log.records["q"], node)
        # one window of the next run alone
        assert log.k(name, "q") <= 3


def test_a_window_under_way_is_finished(db, log, bucket, new_lake, new_gate):
    """Acceptance 117: SIGTERM with an upload out, and the cell's connections
    cut meanwhile."""
    gate = new_gate(bucket, "stall:@1:PUT:/dt")
    gate.stall_for(1)
    log.push("q", "a", ["1"])
    node = new_lake(gate, **env(**{**PLAIN, "START": "earliest",
                                   "MAX_WINDOW_MS": 100}))
    node.start()
    wait_until(lambda: log.row("s", "q", "intent"))
    node.signal(signal.SIGTERM)
    db.rows("select pg_terminate_backend(pid) from pg_stat_activity where"
            " datname = %s and application_name like 'queen-s3%%'",
            (db.name,))
    assert node.wait_exit() == 0
    assert log.k("s", "q") == 1 and free(log)
    assert Objects(bucket, "s", "q").records() == log.records["q"]


def test_what_was_read_of_a_deleted_queue_ships(log, bucket, new_lake):
    """As soon as safeTime has passed it, though the window is young; then the
    queue is missing, or gone from `*`."""
    log.kit.queue("q")
    named = new_lake(bucket, **env("named", **PLAIN)).start()
    star = new_lake(bucket, **{**env("star", **PLAIN),
                               "QUEEN_S3_QUEUES": "*"}).start()
    for node in named, star:
        ready(node)
    log.push("q", "a", ["1", "2", "3"])
    for node in named, star:
        wait_until(lambda: node.queue("q")["bufferedBytes"] > 0)
    log.db.rows("select * from queen.queue_delete_v1(%s, 'q')", (TENANT,))
    named.await_queue("q", state="missing", k=1)
    wait_until(lambda: star.queue("q") == {})
    for name, node in ("named", named), ("star", star):
        assert Objects(bucket, name, "q").records() == log.records["q"]
        assert log.k(name, "q") == 1
        assert "not shipped" not in node.log_text()

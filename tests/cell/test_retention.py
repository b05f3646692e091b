# SPDX-License-Identifier: Apache-2.0
"""The retention cycle as queend runs it: on its own, once per period in a
cell, handed over when its holder stops."""
import signal
import time

import pytest

from queenlib import wait_until

EVERY = {"RETENTION_INTERVAL": "1000"}


def configure(cell, queue, **options):
    reply = cell.post("/api/v1/configure",
                      {"queue": queue, "options": options})
    assert reply.status == 200, reply


def bounds(cell, queue, partition="Default"):
    entry, = cell.post("/api/v1/fetch", {"entries": [
        {"queue": queue, "partition": partition, "offset": 0}]}
    ).body["entries"]
    return entry["logStartOffset"], entry["highWatermark"]


def runs(db):
    return db.value("select coalesce((select runs from queen.claims"
                    " where task = 'retention'), 0)")


def wait_cycles(db, n=2):
    """n cycles that began after now."""
    target = runs(db) + n
    wait_until(lambda: runs(db) >= target, what="cycles of retention")


@pytest.mark.cellenv(**EVERY)
def test_rules_delete_on_their_own(cell, db):
    configure(cell, "old", retentionEnabled=True, retentionSeconds=1)
    configure(cell, "done", retentionEnabled=True,
              completedRetentionSeconds=1)
    configure(cell, "wait", maxWaitTimeSeconds=1)
    configure(cell, "off", retentionSeconds=1, completedRetentionSeconds=1)
    for queue in ("old", "done", "wait", "off", "plain"):
        cell.push(queue, [1, 2], ids=["a", "b"])
    leased = cell.pop("wait")
    assert len(leased) == 2
    first = cell.pop("done", group="g", subscriptionMode="all", batch=1)
    cell.ack(first, group="g")
    wait_until(lambda: bounds(cell, "old") == (2, 2) == bounds(cell, "wait"),
               what="rules 1 and 3")
    wait_cycles(db)
    assert bounds(cell, "done") == (0, 2)
    assert bounds(cell, "off") == bounds(cell, "plain") == (0, 2)
    cell.ack(cell.pop("done", group="g"), group="g")
    wait_until(lambda: bounds(cell, "done") == (2, 2), what="rule 2")
    # the leased messages are gone; their acks still resolve by the id rows
    assert [a["success"] for a in cell.ack(leased)] == [True, True]
    # offsets go on, and the ids are remembered for the dedup window
    assert cell.push("old", [1], ids=["a"])[0]["status"] == "duplicate"
    assert cell.push("old", [3])[0]["status"] == "queued"
    assert bounds(cell, "old")[1] == 3


@pytest.mark.cellenv(**EVERY)
def test_a_sink_hold_keeps_what_is_not_shipped(cell, db):
    configure(cell, "a/b", retentionEnabled=True, retentionSeconds=1,
              retentionSinkHold="lake")
    configure(cell, "free", retentionEnabled=True, retentionSeconds=1)
    for queue in ("a/b", "free"):
        cell.push(queue, [1])

    def pointer(value):
        reply = cell.post("/api/v1/kv", {"operations": [{
            "op": "put", "ns": "queen-s3", "key": "s3:lake:a%2Fb:committed",
            "value": value, "forever": True}]})
        assert reply.status == 200, reply

    pointer({"tEnd": {"not": "a time"}})
    wait_until(lambda: bounds(cell, "free") == (1, 1), what="no hold")
    wait_cycles(db)
    assert bounds(cell, "a/b") == (0, 1)
    pointer({"k": 1, "tEnd": "2125-01-01T00:00:00.000000Z"})
    wait_until(lambda: bounds(cell, "a/b") == (1, 1), what="what is shipped")


@pytest.mark.cellenv(**EVERY)
def test_dead_letters_and_traces_stay(cell, db):
    configure(cell, "q", maxWaitTimeSeconds=1, dedupWindowSeconds=0)
    cell.push("q", [{"keep": 1}], ids=["m"])
    message, = cell.pop("q")
    cell.ack([message], status="dlq", error="broken")
    reply = cell.post("/api/v1/traces", {
        "transactionId": "m", "partitionId": message["partitionId"],
        "data": 1, "traceNames": ["t"]})
    assert reply.status == 201, reply
    wait_until(lambda: bounds(cell, "q") == (1, 1), what="rule 3")
    wait_cycles(db)
    row, = cell.get("/api/v1/dlq?queue=q").body["messages"]
    assert row["data"] == {"keep": 1}
    assert cell.get("/api/v1/traces/by-name/t").body["total"] == 1


def test_an_idle_partition_is_removed_and_made_anew(new_cell, db):
    one = new_cell(PARTITION_CLEANUP_DAYS="1", **EVERY).start()
    configure(one, "q", maxWaitTimeSeconds=1)
    one.push("q", [1, 2], partition="p")
    old, = one.pop("q", batch=1)
    one.ack([old])
    wait_until(lambda: bounds(one, "q", "p") == (2, 2), what="rule 3")
    db.rows("update queen.partitions set created_at = now() - interval '9 d'")
    db.rows("update queen.partition_heads set last_at = now() - interval"
            " '9 d', last_write_at = now() - interval '9 d'")
    db.rows("update queen.groups set created_at = now() - interval '9 d'")
    db.rows("update queen.consumers set acquired_at = now() - interval '9 d',"
            " expires_at = now() - interval '9 d'")
    one.restart()  # the walk begins with the first cycle
    wait_until(lambda: db.value("select count(*) from queen.partitions") == 0,
               what="cleanup")
    one.push("q", [3], partition="p")
    new, = one.pop("q")
    assert (new["offset"], new["data"]) == (0, 3)
    assert new["partitionId"] != old["partitionId"]


def test_two_queends_run_it_once_per_period(cells, db):
    cells(2, **EVERY)
    wait_cycles(db, 1)
    began, before = time.monotonic(), runs(db)
    wait_until(lambda: runs(db) >= before + 4, what="four cycles")
    assert time.monotonic() - began >= 2.9
    assert db.value("select max(fence) - max(runs) from queen.claims"
                    " where task = 'retention'") <= 1


@pytest.mark.cellenv(**EVERY)
def test_a_task_switched_off_rests(cell, db):
    configure(cell, "q", maxWaitTimeSeconds=1)
    wait_cycles(db, 1)
    db.rows("update queen.claims set enabled = false")
    cell.push("q", [1])
    wait_until(lambda: db.value(
        "select lease_until is null and next_due_at < now() - interval '2 s'"
        " from queen.claims where task = 'retention'"))
    assert bounds(cell, "q") == (0, 1)
    db.rows("update queen.claims set enabled = true")
    wait_until(lambda: bounds(cell, "q") == (1, 1), what="rule 3")


def test_a_stopped_holder_is_taken_over(new_cell, db, connect):
    """The holder is stopped in the middle of a cycle; when it goes on, its
    fence is stale and it changes nothing."""
    a = new_cell(**EVERY).start()
    configure(a, "q", maxWaitTimeSeconds=1)
    a.push("q", [1])
    blocker = connect(db, autocommit=False)
    with blocker.cursor() as cur:
        cur.execute("select 1 from queen.partition_heads for update")
    holds = ("select fence from queen.claims where task = 'retention'"
             " and lease_until > now()")
    wait_until(lambda: db.value(
        "select exists (select from pg_stat_activity where query like"
        " '%retention_step_v1%' and wait_event_type = 'Lock'"
        " and datname = current_database())"),
        what="a step that waits for the lock")
    fence = db.value(holds)
    a.signal(signal.SIGSTOP)
    db.rows("update queen.claims set lease_until = now() - interval '1 s'")
    b = new_cell(**EVERY).start()
    wait_until(lambda: (db.rows(holds) or [(0,)])[0][0] > fence,
               what="takeover")
    blocker.rollback()
    wait_until(lambda: bounds(b, "q") == (1, 1), what="the other's cycle")
    a.signal(signal.SIGCONT)
    wait_until(lambda: "the claim was taken over" in a.log_text(),
               what="the warning of the old holder")
    wait_cycles(db)
    assert a.push("q", [2])[0]["status"] == "queued"


def test_retention_goes_on_when_its_holder_stands_still(cells, db):
    """A claim that ran out is taken over; the old holder's word is void."""
    a, b = cells(2, RETENTION_INTERVAL=1000)
    wait_until(lambda: db.value("select count(*) from queen.claims"
                                " where task = 'retention' and runs > 0"))
    # somebody took it and stopped: no one may run before its lease is over
    db.rows("update queen.claims set holder = 'elsewhere', fence = fence + 1,"
            " lease_until = clock_timestamp() + interval '3 s',"
            " next_due_at = clock_timestamp() where task = 'retention'")
    fence, runs = db.row("select fence, runs from queen.claims"
                         " where task = 'retention'")
    start = time.monotonic()
    wait_until(lambda: db.value("select runs from queen.claims where task ="
                                " 'retention'") > runs)
    assert time.monotonic() - start > 2
    assert db.value("select fence from queen.claims"
                    " where task = 'retention'") > fence
    assert db.value("select queen.claim_give_v1('retention', %s, true)"
                    % fence) in (False, None)

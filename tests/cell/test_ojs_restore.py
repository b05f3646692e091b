# SPDX-License-Identifier: Apache-2.0
"""
A cell that is dumped and restored on another server: jobs, recurring jobs,
workflows and options of queues are there as before, streams are refused until
queenctl schema rebase-streams, and lose and repeat nothing.
"""
import subprocess

import pytest

from ctlkit import NOTHING, USER
from queenlib import client_bin, wait_until
from test_ctl_database import findings, matching

XID = "select pg_current_xact_id()::text::bigint"


@pytest.fixture
def ahead(db, far):
    """The server of db has given out more transaction ids than the other."""
    with db.connect().cursor() as cur:
        cur.execute("do $$ begin for i in 1..%s loop perform"
                    " pg_current_xact_id(); commit; end loop; end $$"
                    % max(far.value(XID) - db.value(XID) + 2000, 1))


def restore(db, copy):
    dump = subprocess.run(
        [client_bin("pg_dump"), "-Fc", "-Z0", "-d", db.conninfo()],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=True)
    subprocess.run(
        [client_bin("pg_restore"), "-1", "-d", copy.conninfo()],
        input=dump.stdout, check=True)


def fill(ojs):
    """Something of everything; what a look at it says."""
    jobs = [ojs.push_job(queue="q", args=[n], retry={
        "max_attempts": 1, "on_exhaustion": "dead_letter"}) for n in range(3)]
    ojs.push_job(queue="q", scheduled_at="+PT1H")
    ojs.fetch("q", count=2, worker_id="w", visibility_timeout_ms=3600000)
    ojs.nack(jobs[0]["id"], {"message": "no"})
    ojs.ask("POST", "/queues/q/config", {"max_jobs": 9, "retention": "3h"})
    ojs.ask("POST", "/cron", {"name": "c", "expression": "0 3 1 1 *",
                              "job_template": {"type": "t", "args": []}}, 201)
    ojs.ask("POST", "/workflows", {"type": "chain", "steps": [
        {"type": "a", "args": [], "options": {"queue": "w"}},
        {"type": "b", "args": [], "options": {"queue": "w"}}]}, 201)
    return jobs


def look(ojs):
    seen = [ojs.ask("GET", path) for path in (
        "/queues/q/stats", "/queues/q/config", "/cron", "/workflows",
        "/dead-letter")]
    del seen[0]["computed_at"]
    return seen


def payloads(got):
    return [m["payload"] for m in got["messages"]]


def test_a_cell_on_another_server(db, far, ahead, new_ojs, alone):
    ojs = new_ojs().start()
    jobs = fill(ojs)
    for name in "busy", "away":
        ojs.subscribe("s", name)
    ojs.append("s", *({"type": "t", "payload": n} for n in range(3)))
    held = ojs.receive("s", "busy")
    assert payloads(held) == [0, 1, 2]
    ojs.ask("POST", "/streams/nack", {
        "queue": "s", "batch_id": held["batch"]["id"], "retry_after": "0s",
        "message_id": held["messages"][1]["id"]})
    ojs.append("s", {"type": "t", "payload": 3})
    before = look(ojs)
    ojs.term()
    restore(db, far)

    there = new_ojs(far).start(wait=False)
    wait_until(lambda: answers(there))
    health = wait_until(lambda: there.ask("GET", "/health").get("streams")
                        and there.ask("GET", "/health"))
    assert (health["status"], health["backend"]["status"]) == (
        "degraded", "connected")
    assert "rebase" in health["streams"]
    error = there.refused("POST", "/queues/s/receive", {"consumer": "away"},
                          503, "backend_error")
    assert "rebase" in error["message"]
    there.refused("POST", "/queues/s/messages", {"type": "t", "payload": 1},
                  503, "backend_error")
    # who was there is to be seen, how far behind is not
    seen = there.ask("GET", "/queues/s/consumers")["consumers"]
    assert [(c["name"], c["last_tick"], len(c["batches"]), c.get("lag_ms"),
             c.get("lag_events")) for c in seen] == [
                 ("away", 1, 0, None, None), ("busy", 1, 1, None, None)]
    # jobs need nothing of it
    assert look(there) == before
    assert there.ack(jobs[1]["id"], worker_id="w")["state"] == "completed"

    alone.env["QUEEN_PG_CONNINFO"] = far.conninfo()
    said = matching(findings(alone, code=USER),
                    "the stream of queue s was restored into another server")
    assert (said["level"], said["fix"]) == (
        "ERROR", "queenctl schema rebase-streams")
    assert alone.run("schema", "rebase-streams") == \
        'rebased the stream of "s"\n'
    assert alone.fails(NOTHING, "schema", "rebase-streams") == ""
    assert there.get("/ojs/v1/health").status == 200

    there.append("s", {"type": "t", "payload": 4})
    again = there.receive("s", "busy")
    assert again["batch"]["id"] == held["batch"]["id"]
    assert [m.get("outcome") for m in again["messages"]] == [
        None, "retry", None]
    there.stream_ack("s", again["batch"]["id"])
    seen = {"busy": [], "away": []}
    wait_until(lambda: collect(there, seen) and (
        sorted(seen["busy"]), sorted(seen["away"])) == (
            [1, 3, 4], [0, 1, 2, 3, 4]))


def answers(ojs):
    try:
        return ojs.get("/ojs/v1/health", timeout=5)
    except OSError:
        return None


def collect(ojs, seen):
    """Takes and acknowledges all there is."""
    for name, got in seen.items():
        while True:
            batch = ojs.receive("s", name)
            if not batch["batch"]:
                break
            got += payloads(batch)
            ojs.stream_ack("s", batch["batch"]["id"])
    return True

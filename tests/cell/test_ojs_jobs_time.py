# SPDX-License-Identifier: Apache-2.0
"""
Jobs and time over HTTP: backoffs, exhaustion, dead letters, the two clocks of
an active job, heartbeats, delays, expiry.  Time is moved in the rows.
"""
import datetime

import pytest

from queenlib import wait_until

ERROR = {"code": "handler_error", "message": "no"}
STEADY = {"jitter": False, "max_attempts": 99}
alone = pytest.mark.cellenv(QUEEN_OJS_SWEEPER="false")


def move(ojs, seconds, job_id=None):
    """All jobs, or one, as they are so much later."""
    ojs.db.rows(
        "update queen.jobs set (created_at, enqueued_at, started_at, ended_at,"
        " failed_at, due_at, expires_at, lease_until, wake_at) = (select"
        " created_at - s, enqueued_at - s, started_at - s, ended_at - s,"
        " failed_at - s, due_at - s, expires_at - s, lease_until - s,"
        " wake_at - s from (select %s * interval '1 s') x(s))"
        " where %s::uuid is null or id = %s", (seconds, job_id, job_id))


def state(ojs, job):
    return ojs.job(job["id"])["state"]


def delays(ojs, n, **retry):
    """What n failures in a row say of the wait after each."""
    queue = "d%d" % ojs.db.value("select count(*) from queen.jobs")
    job = ojs.push_job(queue=queue, retry={**STEADY, **retry})
    out = []
    for i in range(n):
        got, = ojs.fetch(queue)
        assert got["attempt"] == i + 1
        out.append(ojs.nack(job["id"], ERROR)["retry_delay_ms"])
        ojs.db.rows("update queen.jobs set due_at = now() where id = %s",
                    (job["id"],))
    return out


# ---- retry ----

def test_backoffs(ojs):
    assert delays(ojs, 11) == [1000, 2000, 4000, 8000, 16000, 32000, 64000,
                               128000, 256000, 300000, 300000]
    assert delays(ojs, 3, initial_interval="PT10M") == [600000] * 3
    assert delays(ojs, 4, initial_interval="PT0.5S", backoff_coefficient=3,
                  max_interval="PT10S") == [500, 1500, 4500, 10000]
    assert delays(ojs, 3, backoff_coefficient=1.0) == [1000] * 3
    for same in "none", "constant":
        assert delays(ojs, 3, backoff_strategy=same) == [1000] * 3
    assert delays(ojs, 4, backoff_strategy="linear",
                  max_interval="PT3S") == [1000, 2000, 3000, 3000]
    assert delays(ojs, 4, backoff_strategy="polynomial",
                  initial_interval_ms=100) == [100, 400, 900, 1600]
    assert delays(ojs, 3, backoff_coefficient=1e300) == [
        1000, 300000, 300000]


def test_jitter(ojs):
    seen = delays(ojs, 30, jitter=True, backoff_strategy="none",
                  max_interval="PT1.2S")
    assert all(500 <= d <= 1200 for d in seen) and len(set(seen)) > 5
    assert max(seen) > 1000 > min(seen)
    assert all(500 <= d < 1500 for d in delays(
        ojs, 5, jitter=True, backoff_strategy="none"))


@alone
def test_a_backoff_ends_in_the_fetch(ojs):
    job = ojs.push_job(retry={**STEADY, "initial_interval": "PT1M"})
    ojs.fetch()
    ojs.nack(job["id"], ERROR)
    move(ojs, 59)
    assert ojs.fetch() == [] and state(ojs, job) == "retryable"
    move(ojs, 1)
    assert state(ojs, job) == "available"
    got, = ojs.fetch()
    assert got["attempt"] == 2 and "next_attempt_at" not in got


def test_when_there_is_no_next_attempt(ojs):
    """max_attempts 0, 1 and the default; what a worker says; what the policy
    names: whole names, and all below a name."""
    def end(error, attempts=1, **retry):
        queue = "x%d" % ojs.db.value("select count(*) from queen.jobs")
        job = ojs.push_job(queue=queue, **({"retry": retry} if retry else {}))
        for _ in range(attempts):
            ojs.db.rows("update queen.jobs set due_at = now()"
                        " where state = 3")
            ojs.fetch(queue)
            got = ojs.nack(job["id"], error)
        return got["state"]

    assert end(ERROR, max_attempts=0) == "discarded"
    assert end(ERROR, max_attempts=1) == "discarded"
    assert end(ERROR, 2) == "retryable"
    assert end(ERROR, 3) == "discarded"
    assert end({**ERROR, "retryable": False}) == "discarded"
    assert end({**ERROR, "retryable": True}) == "retryable"
    names = ["auth.*", "Bad.Input", "E42"]
    for error, want in (
            ({"type": "auth.expired"}, "discarded"),
            ({"type": "auth"}, "retryable"),
            ({"type": "author"}, "retryable"),
            ({"type": "Auth.expired"}, "retryable"),
            ({"type": "Bad.Input"}, "discarded"),
            ({"type": "Bad.Input.x"}, "retryable"),
            ({"type": "x", "code": "E42"}, "discarded"),
            ({"details": {"error_class": "auth.x"}}, "discarded")):
        assert end(error, non_retryable_errors=names) == want, error
    # directives
    assert end({"code": "RETRY", "retryable": False}) == "retryable"
    for code in "DISCARD", "FAIL", "DEAD_LETTER":
        assert end({"code": code}) == "discarded"


def test_which_of_the_discarded_are_dead_letters(ojs):
    def dead(code=None, **retry):
        job = ojs.push_job(retry={"max_attempts": 1, **retry})
        ojs.fetch()
        ojs.nack(job["id"], {"code": code or "timeout"})
        assert state(ojs, job) == "discarded"
        listed = ojs.ask("GET", "/dead-letter")["jobs"]
        there = job["id"] in [j["id"] for j in listed]
        ojs.ask("GET", "/dead-letter/" + job["id"],
                status=200 if there else 404)
        return there

    assert not dead()
    assert not dead(on_exhaustion="discard")
    assert dead(on_exhaustion="dead_letter")
    for code in "DISCARD", "FAIL":
        assert not dead(code, on_exhaustion="dead_letter")
    for how in "discard", "dead_letter":
        assert dead("DEAD_LETTER", on_exhaustion=how)


def test_the_history_keeps_the_newest_errors(ojs):
    job = ojs.push_job(retry=STEADY)
    for n in range(1, 28):
        ojs.fetch()
        ojs.nack(job["id"], {"type": "E%d" % n, "message": "m"})
        ojs.db.rows("update queen.jobs set due_at = now()")
    got = ojs.job(job["id"])
    assert [e["type"] for e in got["errors"]] == [
        "E%d" % n for n in range(3, 28)]
    assert [e["attempt"] for e in got["errors"]] == list(range(3, 28))
    assert got["error"] == got["errors"][-1]


# ---- dead letters ----

def bury(ojs, **more):
    job = ojs.push_job(**more)
    ojs.fetch(job["queue"])
    ojs.nack(job["id"], {"code": "DEAD_LETTER", "type": "E"})
    return job


def test_dead_letters(ojs):
    jobs = [bury(ojs, queue="q%d" % (i % 2), type="t.n%d" % (i % 3))
            for i in range(7)]
    newest = [j["id"] for j in jobs[::-1]]

    def ids(**query):
        path = "/dead-letter?" + "&".join("%s=%s" % q for q in query.items())
        got = ojs.ask("GET", path)
        return [j["id"] for j in got["jobs"]], got["pagination"]

    assert ids() == (newest, {"total": 7, "has_more": False, "limit": 50,
                              "offset": 0})
    assert ids(queue="q1")[0] == newest[1::2]
    assert ids(type="t.n0")[0] == newest[::3]
    assert ids(queue="q0", type="t.n0") == ([newest[0], newest[6]], {
        "total": 2, "has_more": False, "limit": 50, "offset": 0})
    assert ids(queue="none")[1]["total"] == 0
    assert ids(limit=500)[1]["limit"] == 200
    got, page = ids(limit=3)
    assert got == newest[:3] and page["has_more"] and page["total"] == 7
    more, page = ids(limit=3, cursor=page["next_cursor"])
    assert more == newest[3:6] and page["has_more"]
    last, page = ids(limit=3, cursor=page["next_cursor"])
    assert last == newest[6:] and "next_cursor" not in page
    assert ids(limit=2, offset=4) == (newest[4:6], {
        "total": 7, "has_more": True, "limit": 2, "offset": 4,
        "next_cursor": ids(limit=2, offset=4)[1]["next_cursor"]})
    for bad in "limit=0", "limit=x", "offset=-1", "cursor=!", "cursor=AAAA":
        ojs.refused("GET", "/dead-letter?" + bad, None, 400,
                    "invalid_request")


def test_a_dead_letter_is_tried_again_or_deleted(ojs):
    job = bury(ojs, args=[1])
    dead = ojs.ask("GET", "/dead-letter/" + job["id"])["job"]
    assert dead == ojs.job(job["id"]) and dead["state"] == "discarded"
    back = ojs.ask("POST", "/dead-letter/%s/retry" % job["id"])["job"]
    assert back["state"] == "available" and back["attempt"] == 0
    assert back["errors"] == dead["errors"]
    assert back["enqueued_at"] > dead["enqueued_at"]
    for gone in "error", "completed_at", "discarded_at", "started_at":
        assert gone not in back
    assert ojs.job(job["id"]) == back
    got, = ojs.fetch()
    assert got["attempt"] == 1 and got["args"] == [1]
    ojs.ack(job["id"])
    job = bury(ojs)
    assert ojs.ask("DELETE", "/dead-letter/" + job["id"]) == {
        "deleted": True, "job_id": job["id"]}
    ojs.job(job["id"], 404)
    for method, path in (("DELETE", ""), ("GET", ""), ("POST", "/retry")):
        for name in job["id"], "nope":
            ojs.refused(method, "/dead-letter/" + name + path, None, 404,
                        "not_found")


# ---- the two clocks ----

def test_a_lease_that_ends(ojs):
    job = ojs.push_job(retry={"max_attempts": 2})
    ojs.fetch(worker_id="w1", visibility_timeout_ms=60000)
    move(ojs, 61)
    wait_until(lambda: state(ojs, job) == "available")
    got = ojs.job(job["id"])
    assert got["attempt"] == 1 and "started_at" not in got
    assert got["error"]["type"] == got["error"]["code"] == \
        "visibility_timeout"
    assert got["error"]["details"] == {"lease_ms": 60000}
    assert "retry_delay_ms" not in got and "next_attempt_at" not in got
    ojs.ack(job["id"], 409, worker_id="w1")
    again, = ojs.fetch(worker_id="w2", visibility_timeout_ms=60000)
    assert again["attempt"] == 2
    # who lost it has no more say
    ojs.ack(job["id"], 409, worker_id="w1")
    ojs.nack(job["id"], ERROR, 409, attempt=1)
    move(ojs, 61)
    wait_until(lambda: state(ojs, job) == "discarded")
    got = ojs.job(job["id"])
    assert len(got["errors"]) == 2 and got["discarded_at"]


def test_an_execution_timeout(ojs):
    job = ojs.push_job(timeout_ms=5000, visibility_timeout_ms=60000,
                       retry={**STEADY, "initial_interval": "PT1H"})
    ojs.fetch(worker_id="w")
    move(ojs, 4)
    assert ojs.ask("POST", "/workers/heartbeat", {
        "worker_id": "w", "active_jobs": [job["id"]]})["jobs_extended"] == [
            job["id"]]
    move(ojs, 2)
    wait_until(lambda: state(ojs, job) == "retryable")
    got = ojs.job(job["id"])
    assert got["retry_delay_ms"] == 3600000
    assert got["error"]["type"] == got["error"]["code"] == "timeout"
    details = got["error"]["details"]
    assert details.pop("elapsed_ms") >= 6000
    assert details == {"timeout_kind": "execution", "limit_ms": 5000}
    # both clocks at once: the timeout, with its backoff
    job = ojs.push_job(timeout=5, visibility_timeout=5, queue="both")
    ojs.fetch("both")
    move(ojs, 6, job["id"])
    wait_until(lambda: state(ojs, job) == "retryable")
    assert ojs.job(job["id"])["error"]["type"] == "timeout"


# ---- heartbeats ----

def test_heartbeats(ojs):
    held, named, other, done = [ojs.push_job(queue="h%d" % i, args=[i])
                                for i in range(4)]
    ojs.fetch("h0", worker_id="w", visibility_timeout_ms=60000)
    ojs.fetch("h1", visibility_timeout_ms=60000)
    ojs.fetch("h2", worker_id="x")
    ojs.fetch("h3", worker_id="w")
    ojs.ack(done["id"])
    ids = [j["id"] for j in (held, named, other, done)]
    unknown = "019a0f10-6b20-7a01-8f3e-00000000ffff"

    def left(job):
        return ojs.db.value("select extract(epoch from lease_until - now())"
                            " from queen.jobs where id = %s", (job["id"],))

    move(ojs, 30)
    assert 25 < left(held) <= 30
    beat = ojs.ask("POST", "/workers/heartbeat", {
        "worker_id": "w", "active_jobs": ["no\u00e9", *ids, unknown, ""]})
    assert list(beat) == ["state", "jobs_extended", "jobs_lost",
                          "server_time"]
    assert beat["state"] == "running"
    assert beat["jobs_extended"] == ids[:2]
    # what can be the id of no job is lost, and costs the others nothing
    assert beat["jobs_lost"] == ids[2:] + [unknown, "no\u00e9", ""]
    stamp = datetime.datetime.fromisoformat(
        beat["server_time"].replace("Z", "+00:00"))
    now = ojs.db.value("select now()")
    assert abs((now - stamp).total_seconds()) < 60
    assert 55 < left(held) <= 60 and 55 < left(named) <= 60
    beat = ojs.ask("POST", "/workers/heartbeat", {
        "worker_id": "w", "state": "running", "active_jobs": 2,
        "active_job_ids": ids[:1], "queues": ["pdf"], "hostname": "n3",
        "pid": 811, "concurrency": 10, "labels": ["v7"],
        "visibility_timeout_ms": 90000})
    assert beat["jobs_extended"] == ids[:1] and beat["jobs_lost"] == []
    assert 85 < left(held) <= 90 and left(named) <= 60
    # so a worker hears of a cancellation
    ojs.ask("DELETE", "/jobs/" + ids[0])
    beat = ojs.ask("POST", "/workers/heartbeat",
                   {"worker_id": "w", "active_jobs": ids[:1]})
    assert beat["jobs_lost"] == ids[:1]
    beat = ojs.ask("POST", "/workers/heartbeat", {"worker_id": "w"})
    assert beat["jobs_extended"] == beat["jobs_lost"] == []
    for body in ({}, {"worker_id": None}, {"worker_id": 7},
                 {"worker_id": "w", "active_jobs": "x"},
                 {"worker_id": "w", "active_jobs": [7]},
                 {"worker_id": "w", "active_jobs": [None]},
                 {"worker_id": "w", "active_job_ids": 7},
                 {"worker_id": "w", "visibility_timeout_ms": 0}):
        ojs.refused("POST", "/workers/heartbeat", body, 400,
                    "invalid_request")


@pytest.mark.parametrize("test", ["true", "false"])
def test_directives_are_for_tests_alone(new_ojs, test):
    ojs = new_ojs(QUEEN_OJS_TEST=test).start()
    jobs = [ojs.push_job(options={"metadata": {"test_directive": d}})
            for d in ("quiet", "terminate", "other")]
    ojs.fetch(worker_id="w", count=9)

    def beat(*held):
        return ojs.ask("POST", "/workers/heartbeat", {
            "worker_id": "w",
            "active_jobs": [jobs[i]["id"] for i in held]})["state"]

    want = ["quiet", "terminate", "running", "terminate"]
    assert [beat(0), beat(1), beat(2), beat(0, 1)] == (
        want if test == "true" else ["running"] * 4)


# ---- delay and expiry ----

@alone
def test_delayed_jobs(ojs):
    at = "2099-12-31T23:59:59+01:00"
    job = ojs.push_job(queue="f", scheduled_at=at)
    assert job["state"] == "scheduled" and job["scheduled_at"] == at
    job = ojs.push_job(options={"delay_until": "+PT60S"})
    assert job["state"] == "scheduled"
    made, due = (datetime.datetime.fromisoformat(job[k].replace("Z", "+00:00"))
                 for k in ("created_at", "scheduled_at"))
    assert abs((due - made).total_seconds() - 60) < 1
    move(ojs, 55)
    assert ojs.fetch() == [] and state(ojs, job) == "scheduled"
    ojs.ack(job["id"], 409)
    move(ojs, 6)
    assert state(ojs, job) == "available"
    got, = ojs.fetch()
    assert got["id"] == job["id"]
    assert got["scheduled_at"] == job["scheduled_at"]
    past = ojs.push_job(scheduled_at="2020-01-01T00:00:00Z")
    assert past["state"] == "available"
    assert past["scheduled_at"] == "2020-01-01T00:00:00Z"
    assert [j["id"] for j in ojs.fetch()] == [past["id"]]


@pytest.mark.parametrize("sweeper", ["true", "false"])
def test_jobs_that_expire(new_ojs, sweeper):
    ojs = new_ojs(QUEEN_OJS_SWEEPER=sweeper).start()
    jobs = [ojs.push_job(expires_at="+PT30S", **more) for more in (
        {}, {"pending": True}, {"scheduled_at": "+PT1H"},
        {"queue": "e", "retry": {**STEADY, "initial_interval": "PT1H"}})]
    ojs.fetch("e")
    ojs.nack(jobs[3]["id"], ERROR)
    kept = ojs.push_job(expires_at="2099-12-31T23:59:59Z")
    assert kept["expires_at"] == "2099-12-31T23:59:59Z"
    started = ojs.push_job(queue="started", expires_at="+PT30S")
    ojs.fetch("started")
    move(ojs, 31)
    for job in jobs:
        got = wait_until(lambda: state(ojs, job) == "discarded"
                         and ojs.job(job["id"]))
        assert got["discarded_at"] and "completed_at" not in got
        ojs.refused("DELETE", "/jobs/" + job["id"], None, 409, "conflict")
    assert [j["id"] for j in ojs.fetch(count=9)] == [kept["id"]]
    ojs.ack(started["id"])

# SPDX-License-Identifier: Apache-2.0
"""
Jobs over HTTP: envelopes, pushes and their errors, states and transitions,
fetch, ack, nack, cancel, activate, info, batches.
"""
import json
import re
import uuid
from concurrent.futures import ThreadPoolExecutor

import pytest

from ojskit import MEDIA
from queenlib import wait_until

STAMP = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$")
V7 = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}"
                r"-[0-9a-f]{12}$")
ERROR = {"code": "handler_error", "type": "Boom", "message": "no"}


def v7(n):
    return "019a0f10-6b20-7a01-8f3e-%012x" % n


def put(ojs, body, status=201):
    """POST /jobs of bytes as they are."""
    reply = ojs.post("/ojs/v1/jobs", body)
    assert reply.status == status, reply
    return reply


def in_state(ojs, state):
    """A fresh job in that state, on a queue of its own."""
    queue = "only-" + uuid.uuid4().hex
    more = {"scheduled": {"scheduled_at": "+PT1H"},
            "pending": {"pending": True}}.get(state, {})
    job = ojs.push_job(queue=queue, **more)
    if state in ("active", "completed", "retryable", "discarded"):
        ojs.fetch(queue, worker_id="w")
    if state == "completed":
        ojs.ack(job["id"])
    elif state == "retryable":
        ojs.nack(job["id"], ERROR)
    elif state == "discarded":
        ojs.nack(job["id"], {**ERROR, "retryable": False})
    elif state == "cancelled":
        ojs.ask("DELETE", "/jobs/" + job["id"])
    job = ojs.job(job["id"])
    assert job["state"] == state
    return job


# ---- push ----

def test_a_push_and_what_is_shown_of_it(ojs):
    reply = put(ojs, {"type": "a.b", "args": []})
    job = reply.body["job"]
    assert reply.headers["Location"] == "/ojs/v1/jobs/" + job["id"]
    assert reply.headers["Content-Type"] == MEDIA
    assert V7.match(job["id"]) and STAMP.match(job["created_at"])
    assert job == {
        "specversion": "1.0", "id": job["id"], "type": "a.b",
        "queue": "default", "state": "available", "args": [], "meta": {},
        "priority": 0, "attempt": 0, "max_attempts": 3,
        "created_at": job["created_at"], "enqueued_at": job["created_at"]}
    assert ojs.job(job["id"]) == job
    full = {"type": "invoice.render", "args": [8812, {"lang": "it"}],
            "meta": {"tenant_id": "t-40"}, "x_origin": "billing",
            "id": v7(1), "specversion": "1.0", "schema": "urn:s",
            "options": {"queue": "pdf", "priority": 5, "timeout_ms": 120000,
                        "visibility_timeout_ms": 180000, "tags": ["nightly"],
                        "expires_at": "2099-12-31T23:59:59Z",
                        "retry": {"max_attempts": 4,
                                  "initial_interval": "PT2S",
                                  "max_interval": "PT1M"}}}
    job = put(ojs, full).body["job"]
    assert job == {
        "specversion": "1.0", "state": "available", "attempt": 0,
        "max_attempts": 4, "created_at": job["created_at"],
        "enqueued_at": job["created_at"], **full["options"],
        **{k: v for k, v in full.items() if k != "options"}}


def test_bytes_of_the_client_come_back_through_the_whole_life(ojs):
    kept = ('"args":[ 1.0, 1e400, "\\u0000\\ud800", {"b":1,"a":2,"a":3} ]',
            '"meta":{ "k" : null , "k":12345678901234567890}',
            '"x":{"z":[],"\\u0061":"\\u00e4\u00e4"}', '"x":null')
    put(ojs, '{"type":"t","id":"%s",%s, "state":"completed","attempt":7}'
        % (v7(2), ",".join(kept)))

    def shown(method, path, body=None):
        with_raw = ojs.http()
        with_raw.request(method, "/ojs/v1" + path, body)
        text = with_raw.getresponse().read().decode()
        with_raw.close()
        for part in kept:
            assert part in text, text
        return text

    assert '"state":"available"' in shown("GET", "/jobs/" + v7(2))
    fetch = json.dumps({"queues": ["default"]})
    assert '"attempt":1' in shown("POST", "/workers/fetch", fetch)
    result = '{"r":[ 1.50 ,"\\u0000"],"r":2}'
    ojs.ask("POST", "/workers/ack",
            '{"job_id":"%s","result":%s}' % (v7(2), result))
    assert '"result":' + result in shown("GET", "/jobs/" + v7(2))


def test_pushes_that_are_refused(ojs):
    for body in (b"", b"{", b"\xff", b'{"type":"t","args":[],}', b"[]",
                 b"null", b'"x"', b'{"a":"\xff"}',
                 b'\f{"type":"t","args":[]}', b'{"type":"t","args":[]}\v',
                 b"\f"):
        ojs.refused("POST", "/jobs", body, 400, "invalid_payload")
    good = {"type": "t", "args": []}
    for field, values in {
            "type": [None, "", "A", "1a", "a b", "a@b", "a!", "x" * 256, 7],
            "args": [None, {}, "x"], "queue": ["", "A", "a_b", "x" * 129],
            "id": ["", "x", str(uuid.uuid4()), v7(10).upper()],
            "priority": [101, -101, 1.5, "1"], "meta": [[]],
            "scheduled_at": ["2026-01-01T00:00:00", "soon", 7],
            "expires_at": ["2026-01-01T00:00:00"], "timeout_ms": [0, "x"],
            "tags": ["x"], "pending": [1], "options": [[]]}.items():
        for value in values:
            error = ojs.refused("POST", "/jobs", {**good, field: value}, 400,
                                "invalid_request")
            assert error["details"]["field"] == field, (error, value)
    for field in "type", "args":
        ojs.refused("POST", "/jobs",
                    {k: v for k, v in good.items() if k != field},
                    400, "invalid_request")
    for field, value in (("max_attempts", -1), ("backoff_coefficient", 0.5),
                         ("initial_interval", "PT0S"), ("max_interval", "x"),
                         ("jitter", 1), ("on_exhaustion", "x"),
                         ("non_retryable_errors", [""])):
        error = ojs.refused("POST", "/jobs", {**good, "retry": {field: value}},
                            422, "invalid_payload")
        assert error["type"] == "validation_error"
        assert field in error["message"]
    ojs.refused("POST", "/jobs", {**good, "specversion": "2.0"}, 422,
                "unsupported")
    ojs.refused("POST", "/jobs", {**good, "unique": {"keys": ["meta"]}}, 400,
                "invalid_request")
    deep = json.loads("[" * 32 + "]" * 32)
    ojs.refused("POST", "/jobs", {**good, "args": deep}, 400,
                "invalid_payload")
    put(ojs, {**good, "args": deep[0]})


def test_limits_of_size(ojs):
    def envelope(n):
        text = '{"type":"t","args":["%s"]}'
        return text % ("x" * (n - len(text) + 2))

    put(ojs, envelope(1048576))
    error = ojs.refused("POST", "/jobs", envelope(1048577), 413,
                        "envelope_too_large")
    assert error["details"] == {"size": 1048577, "limit": 1048576}
    meta = {"type": "t", "args": [], "meta": {"k": "x" * 65536}}
    ojs.refused("POST", "/jobs", meta, 413, "envelope_too_large")
    error = ojs.refused("POST", "/jobs/batch", {"jobs": [
        {"type": "t", "args": []}, json.loads(envelope(1048580))]}, 413,
        "envelope_too_large")
    assert error["details"]["index"] == 1
    ojs.fetch()
    job = ojs.push_job(queue="r")
    ojs.fetch("r")
    ojs.ack(job["id"], result="x" * 1048576, status=413)
    ojs.ack(job["id"], result="x" * 1048574)
    assert len(ojs.job(job["id"])["result"]) == 1048574


def test_ids_are_used_once(ojs):
    ojs.push_job(id=v7(20))
    for queue in "default", "other":
        error = ojs.refused(
            "POST", "/jobs", {"type": "t", "args": [], "id": v7(20),
                              "queue": queue}, 409, "duplicate")
        assert error["details"] == {"existing_job_id": v7(20)}
    assert len(ojs.fetch("default", "other", count=9)) == 1


def test_a_batch_is_all_or_nothing(ojs):
    jobs = [{"type": "t", "args": [i], "id": v7(30 + i),
             "options": {"queue": "b%d" % (i % 2)}} for i in range(6)]
    got = ojs.ask("POST", "/jobs/batch", {"jobs": jobs}, 201)
    assert got["count"] == 6
    assert [j["id"] for j in got["jobs"]] == [j["id"] for j in jobs]
    assert [j["state"] for j in got["jobs"]] == ["available"] * 6
    fresh = [{"type": "t", "args": [], "queue": "fresh"}]
    for bad, status, code in (
            ({"type": "T", "args": []}, 400, "invalid_request"),
            ({"type": "t", "args": [], "id": v7(30)}, 409, "duplicate"),
            ({"type": "t", "args": [], "retry": {"max_attempts": -1}}, 422,
             "invalid_payload"), (7, 400, "invalid_payload")):
        error = ojs.refused("POST", "/jobs/batch", {"jobs": fresh * 2 + [bad]},
                            status, code)
        assert error["details"]["index"] == 2
    same = {"type": "t", "args": [], "id": v7(40)}
    error = ojs.refused("POST", "/jobs/batch", {"jobs": [same, same]}, 409,
                        "duplicate")
    assert error["details"] == {"index": 1, "existing_job_id": v7(40)}
    for body in ({}, {"jobs": []}, {"jobs": {}}, {"jobs": None}):
        ojs.refused("POST", "/jobs/batch", body, 400, "invalid_request")
    ojs.refused("POST", "/jobs/batch", {"jobs": fresh * 10001}, 400,
                "invalid_request")
    assert ojs.fetch("fresh") == []
    ojs.job(v7(40), 404)
    got = ojs.ask("POST", "/jobs/batch", {"jobs": fresh * 1000}, 201)
    assert got["count"] == 1000


def test_equal_unique_jobs(ojs):
    job = {"type": "u", "args": [], "unique": {"on_conflict": "ignore"}}
    first = put(ojs, job).body["job"]
    again = ojs.ask("POST", "/jobs", job, 200)
    assert again == {"job": {**first, "deduplicated": True},
                     "deduplicated": True}
    got = ojs.ask("POST", "/jobs/batch",
                  {"jobs": [{**job, "type": "v"}, job]}, 201)
    assert [j.get("deduplicated") for j in got["jobs"]] == [None, True]
    assert got["jobs"][1]["id"] == first["id"]
    error = ojs.refused("POST", "/jobs", {**job, "unique": {}}, 409,
                        "duplicate")
    assert error["details"]["existing_job_id"] == first["id"]
    assert re.match(r"[0-9a-f]{64}$", error["details"]["unique_key"])


def test_a_full_queue_and_a_paused_one(ojs):
    ojs.ask("POST", "/queues", {"name": "full", "max_jobs": 2}, 201)
    for _ in range(2):
        ojs.push_job(queue="full")
    reply = put(ojs, {"type": "t", "args": [], "queue": "full"}, 429)
    assert reply.headers["Retry-After"] == "1"
    assert reply.body["error"]["code"] == "queue_full"
    assert reply.body["error"]["retryable"] is True
    assert reply.body["error"]["details"] == {"queue": "full"}
    ojs.ask("POST", "/queues/held/pause")
    job = ojs.push_job(queue="held")
    assert job["state"] == "available"
    assert ojs.fetch("held") == []
    ojs.ask("POST", "/queues/held/resume")
    got, = ojs.fetch("held")
    ojs.ask("POST", "/queues/held/pause")
    ojs.ack(got["id"])


# ---- states ----

def test_every_illegal_transition_is_a_conflict(ojs):
    """Who may do what: ack and nack from active, activate from pending, cancel
    from all that have not ended."""
    states = ("available", "active", "scheduled", "retryable", "pending",
              "completed", "cancelled", "discarded")
    asks = {"ack": lambda i: ("POST", "/workers/ack", {"job_id": i}),
            "nack": lambda i: ("POST", "/workers/nack",
                               {"job_id": i, "error": ERROR}),
            "requeue": lambda i: ("POST", "/workers/nack",
                                  {"job_id": i, "requeue": True}),
            "activate": lambda i: ("POST", "/jobs/%s/activate" % i, None),
            "cancel": lambda i: ("DELETE", "/jobs/" + i, None)}
    legal = {"ack": {"active"}, "nack": {"active"}, "requeue": {"active"},
             "activate": {"pending"},
             "cancel": set(states) - {"completed", "cancelled", "discarded"}}
    expected = {"activate": "pending", "cancel": None}
    for state in states:
        job = in_state(ojs, state)
        for verb, ask in asks.items():
            if state in legal[verb]:
                continue
            error = ojs.refused(*ask(job["id"]), 409, "conflict")
            details = error["details"]
            assert details["job_id"] == job["id"]
            assert details["current_state"] == state
            assert details.get("expected_state") == expected.get(
                verb, "active")
            assert ojs.job(job["id"]) == job, (state, verb)
        # a job, but no dead letter
        for method, end in ("POST", "/retry"), ("DELETE", ""), ("GET", ""):
            error = ojs.refused(method, "/dead-letter/%s%s" % (
                job["id"], end), None, 404, "not_found")
            assert error["details"] == {"resource": "dead_letter",
                                        "dead_letter": job["id"]}
    for ask in asks.values():
        error = ojs.refused(*ask(v7(99)), 404, "not_found")
        assert error["details"]["job"] == v7(99)
        assert error["hint"] and error["docs_url"]


def test_a_completed_job(ojs):
    job = ojs.push_job()
    got, = ojs.fetch(worker_id="w-17", visibility_timeout_ms=60000)
    assert got["state"] == "active" and got["attempt"] == 1
    assert got["worker_id"] == "w-17"
    assert STAMP.match(got["started_at"])
    assert got["lease_expires_at"] > got["started_at"]
    assert "completed_at" not in got and "error" not in got
    assert ojs.job(job["id"]) == got
    done = ojs.ack(job["id"], result={"n": 1}, worker_id="w-17", attempt=1)
    assert done == {"acknowledged": True, "id": job["id"],
                    "job_id": job["id"], "state": "completed",
                    "completed_at": done["completed_at"]}
    got = {**got, "state": "completed", "result": {"n": 1},
           "completed_at": done["completed_at"]}
    del got["worker_id"], got["lease_expires_at"]
    assert ojs.job(job["id"]) == got
    # whose answer was lost learns what became of it
    error = ojs.refused("POST", "/workers/ack", {"id": job["id"]}, 409,
                        "conflict")
    assert error["message"] == "Job is completed, not active."
    assert error["details"] == {
        "job_id": job["id"], "current_state": "completed",
        "expected_state": "active", "attempt": 1, "worker_id": "w-17"}


def test_results_of_every_kind(ojs):
    for n, result in enumerate((None, False, 0, "", [], {})):
        job = ojs.push_job(queue="r")
        ojs.fetch("r")
        ojs.ack(job["id"], result=result)
        got = ojs.job(job["id"])
        assert got["result"] == result, n
    job = ojs.push_job(queue="r")
    ojs.fetch("r")
    ojs.ack(job["id"])
    assert "result" not in ojs.job(job["id"])


def test_a_failed_job(ojs):
    job = ojs.push_job(retry={"max_attempts": 2, "jitter": False,
                              "initial_interval": "PT1H",
                              "max_interval": "PT2H"})
    ojs.fetch()
    error = {"code": "handler_error", "type": "Oops", "message": "\u00e4",
             "retryable": True, "details": {"error_class": "C"},
             "backtrace": ["a", "b"]}
    failed = ojs.nack(job["id"], {**error, "other": 1})
    assert failed == {
        "id": job["id"], "job_id": job["id"], "state": "retryable",
        "attempt": 1, "max_attempts": 2, "retry_delay_ms": 3600000,
        "next_attempt_at": failed["next_attempt_at"]}
    got = ojs.job(job["id"])
    stamp = got["error"]["occurred_at"]
    assert STAMP.match(stamp)
    first = {**error, "attempt": 1, "occurred_at": stamp}
    assert got["error"] == first and got["errors"] == [first]
    assert got["next_attempt_at"] == failed["next_attempt_at"] > stamp
    assert got["retry_delay_ms"] == 3600000 and "worker_id" not in got
    ojs.db.rows("update queen.jobs set due_at = now()")
    again, = ojs.fetch()
    assert again["id"] == job["id"] and again["attempt"] == 2
    assert again["retry_delay_ms"] == 3600000
    assert again["error"] == first
    over = ojs.nack(job["id"], {"code": "timeout"})
    assert over["state"] == "discarded" and over["attempt"] == 2
    assert over["discarded_at"] == over["completed_at"]
    got = ojs.job(job["id"])
    assert got["discarded_at"] == got["completed_at"] == over["discarded_at"]
    assert got["errors"] == [first, got["error"]]
    assert got["error"] == {"code": "timeout", "type": "timeout",
                            "message": "", "attempt": 2,
                            "occurred_at": got["error"]["occurred_at"]}


def test_an_ack_forgets_the_error_and_keeps_the_history(ojs):
    job = ojs.push_job(retry={"initial_interval": "PT0.001S"})
    ojs.fetch()
    ojs.nack(job["id"], ERROR)
    ojs.db.rows("update queen.jobs set due_at = now()")
    ojs.fetch()
    ojs.ack(job["id"])
    got = ojs.job(job["id"])
    assert "error" not in got and len(got["errors"]) == 1


def test_requeue_gives_it_back_at_once(ojs):
    job = ojs.push_job()
    ojs.fetch(worker_id="w")
    assert ojs.nack(job["id"], requeue=True) == {
        "id": job["id"], "job_id": job["id"], "state": "available",
        "attempt": 1, "max_attempts": 3}
    got = ojs.job(job["id"])
    for gone in "started_at", "worker_id", "error", "errors":
        assert gone not in got
    assert got["enqueued_at"] > job["enqueued_at"]
    assert ojs.fetch()[0]["attempt"] == 2


def test_ends_that_are_refused(ojs):
    job = ojs.push_job()
    ojs.fetch(worker_id="w")
    for verb, more in ("ack", {}), ("nack", {"error": ERROR}):
        path, body = "/workers/" + verb, {"job_id": job["id"], **more}
        error = ojs.refused("POST", path, {**body, "worker_id": "x"}, 409,
                            "conflict")
        assert error["message"] == "Another worker holds the job."
        assert error["details"]["worker_id"] == "w"
        error = ojs.refused("POST", path, {**body, "attempt": 2}, 409,
                            "conflict")
        assert error["details"]["attempt"] == 1
        ojs.refused("POST", path, more, 400, "invalid_request")
        ojs.refused("POST", path, {**body, "job_id": 7}, 400,
                    "invalid_request")
        ojs.refused("POST", path, {**body, "attempt": "1"}, 400,
                    "invalid_request")
        ojs.refused("POST", path, {**body, "worker_id": ""}, 400,
                    "invalid_request")
        ojs.refused("POST", path, {**body, "job_id": "nope"}, 404,
                    "not_found")
        ojs.refused("POST", path, b"", 400, "invalid_payload")
    for error in None, "x", []:
        ojs.refused("POST", "/workers/nack",
                    {"job_id": job["id"], "error": error}, 400,
                    "invalid_request")
    ojs.refused("POST", "/workers/ack", '{"job_id":"%s","result":%s}' % (
        job["id"], "[" * 33 + "]" * 33), 400, "invalid_payload")
    # a fetch without a name binds nobody
    assert ojs.job(job["id"])["state"] == "active"
    ojs.ack(job["id"], worker_id="w", attempt=1)
    job = ojs.push_job()
    ojs.fetch()
    ojs.ack(job["id"], worker_id="anybody")


def test_cancel(ojs):
    for state in "available", "active", "scheduled", "retryable", "pending":
        job = in_state(ojs, state)
        got = ojs.ask("DELETE", "/jobs/" + job["id"])["job"]
        assert got["state"] == "cancelled"
        assert got["previous_state"] == state
        assert STAMP.match(got["cancelled_at"])
        assert "completed_at" not in got and "worker_id" not in got
        assert ojs.job(job["id"]) == got
        if state == "active":
            error = ojs.refused("POST", "/workers/ack",
                                {"job_id": job["id"]}, 409, "conflict")
            assert error["details"]["current_state"] == "cancelled"
    assert ojs.fetch(job["queue"]) == []


def test_of_ends_at_the_same_time_one_wins(new_ojs):
    """Ack, nack and cancel of one job at once, through two processes."""
    pair = [new_ojs(), new_ojs()]
    for one in pair:
        one.start()
    ids = [pair[0].push_job(args=[i])["id"] for i in range(30)]
    pair[0].fetch(count=30)
    asks = [("POST", "/workers/ack", lambda i: {"job_id": i}),
            ("POST", "/workers/nack", lambda i: {"job_id": i, "error": ERROR}),
            ("DELETE", "/jobs/", None)]
    won = {i: [] for i in ids}

    def run(one, method, path, body):
        for i in ids:
            reply = one.request(
                method, "/ojs/v1" + path + ("" if body else i),
                body(i) if body else None)
            assert reply.status in (200, 409), reply
            if reply.status == 200:
                got = reply.body.get("job", reply.body)
                won[i].append(got["state"])

    with ThreadPoolExecutor(6) as pool:
        for done in [pool.submit(run, one, *ask) for one in pair
                     for ask in asks]:
            done.result()
    for i, states in won.items():
        # a job that failed waits for its next attempt, and may be cancelled;
        # which of the two answers comes first is chance
        assert sorted(states) in (["completed"], ["cancelled"],
                                  ["cancelled", "retryable"]), states
        assert pair[0].job(i)["state"] == min(states)


def test_activate(ojs):
    job = ojs.push_job(pending=True, scheduled_at="+PT0.001S", queue="p")
    assert job["state"] == "pending" and ojs.fetch("p") == []
    got = ojs.ask("POST", "/jobs/%s/activate" % job["id"])["job"]
    assert got["state"] == "available" and got["previous_state"] == "pending"
    assert got["activated_at"] == got["enqueued_at"]
    assert [j["id"] for j in ojs.fetch("p")] == [job["id"]]
    job = ojs.push_job(pending=True, scheduled_at="+PT1H", queue="p")
    got = ojs.ask("POST", "/jobs/%s/activate" % job["id"])["job"]
    assert got["state"] == "scheduled" and STAMP.match(got["activated_at"])


def test_info_of_what_is_not_there(ojs):
    for name in v7(50), "nope", v7(50).upper(), "a%2Fb":
        error = ojs.refused("GET", "/jobs/" + name, None, 404, "not_found")
        assert isinstance(error["hint"], str)
        assert isinstance(error["docs_url"], str)


# ---- fetch ----

def test_fetch_takes_by_queue_then_priority_then_age(ojs):
    for n, (queue, priority) in enumerate(
            (("b", 0), ("a", -10), ("a", 0), ("b", 100), ("a", 10), ("a", 0),
             ("a", -100), ("a", 100), ("a", 10))):
        ojs.push_job(args=[n], queue=queue, priority=priority)
    seen = [j["args"][0] for j in ojs.fetch("a", "none", "a", "b", count=4)]
    seen += [j["args"][0] for _ in range(5) for j in ojs.fetch("a", "b")]
    assert seen == [7, 4, 8, 2, 5, 1, 6, 3, 0]
    assert ojs.fetch("a", "b", count=100) == []
    # what comes later with a higher priority is not passed over
    for n, priority in enumerate((0, 5, 0, 7)):
        ojs.push_job(args=[n], queue="a", priority=priority)
    assert [ojs.fetch("a")[0]["args"][0] for _ in range(3)] == [3, 1, 0]
    ojs.push_job(args=[9], queue="a", priority=9)
    assert [ojs.fetch("a")[0]["args"][0] for _ in range(2)] == [9, 2]


def test_fetches_at_their_limits(ojs):
    ojs.ask("POST", "/jobs/batch", {"jobs": [
        {"type": "t", "args": [i]} for i in range(120)]}, 201)
    first = ojs.fetch(count=1000)
    assert [j["args"][0] for j in first] == list(range(100))
    assert len(ojs.fetch(count=1000)) == 20
    for body in ({}, {"queues": []}, {"queues": "x"}, {"queues": [7]},
                 {"queues": ["A"]}, {"queues": ["a", "a\0"]},
                 {"queues": ["q%d" % i for i in range(257)]},
                 {"queues": ["q"], "count": 0},
                 {"queues": ["q"], "count": "1"},
                 {"queues": ["q"], "worker_id": 7},
                 {"queues": ["q"], "worker_id": "x" * 256},
                 {"queues": ["q"], "worker_id": "a\0"},
                 {"queues": ["q"], "visibility_timeout_ms": 0},
                 {"queues": ["q"], "wait_ms": -1}):
        ojs.refused("POST", "/workers/fetch", body, 400, "invalid_request")
    ojs.refused("POST", "/workers/fetch", b"", 400, "invalid_payload")


def test_which_lease_counts(ojs):
    """The fetch's, else the job's, else the queue's, else the server's."""
    def lease(queue, **more):
        got, = ojs.fetch(queue, **more)
        return ojs.db.value(
            "select extract(epoch from lease_until - started_at)::int"
            " from queen.jobs where id = %s", (got["id"],))

    ojs.push_job(queue="l")
    assert lease("l") == 1800
    ojs.ask("POST", "/queues/l/config", {"visibility_timeout_ms": 50000})
    ojs.push_job(queue="l")
    assert lease("l") == 50
    ojs.push_job(queue="l", options={"visibility_timeout": 40})
    ojs.push_job(queue="l", visibility_timeout_ms=40000)
    assert lease("l") == 40
    assert lease("l", visibility_timeout_ms=30000) == 30


# ---- events ----

def events(ojs, **query):
    path = "/events?" + "&".join("%s=%s" % q for q in query.items())
    return ojs.ask("GET", path)


def test_events_are_read_off_the_jobs(ojs):
    kinds = {"completed": {}, "discarded": {"queue": "other"},
             "retrying": {}, "cancelled": {}}
    jobs = {k: ojs.push_job(type="e." + k, **more)
            for k, more in kinds.items()}
    for job in ojs.fetch("default", "other", count=9):
        verb = job["type"][2:]
        if verb == "completed":
            ojs.ack(job["id"])
        elif verb != "cancelled":
            ojs.nack(job["id"], {**ERROR, "retryable": verb == "retrying"})
    ojs.ask("DELETE", "/jobs/" + jobs["cancelled"]["id"])
    ojs.db.rows("select pg_sleep(0.11)")
    got = events(ojs)
    assert not got["has_more"]
    assert len(got["events"]) == 4 + 4 + 2 + 4
    assert sorted(e["time"] for e in got["events"]) == [
        e["time"] for e in got["events"]]
    ids = {e["id"] for e in got["events"]}
    assert len(ids) == 14 and all(i.startswith("evt_") for i in ids)
    one = events(ojs, types="job.completed")["events"][0]
    assert one == {
        "specversion": "1.0", "id": one["id"], "type": "job.completed",
        "source": "ojs://queen-ojs/api", "subject": jobs["completed"]["id"],
        "time": ojs.job(jobs["completed"]["id"])["completed_at"],
        "data": {"job_type": "e.completed", "queue": "default", "attempt": 1,
                 "duration_ms": one["data"]["duration_ms"]}}
    assert one["data"]["duration_ms"] >= 0
    enqueued = events(ojs, types="job.enqueued")["events"]
    assert enqueued[0]["data"] == {"job_type": "e.completed",
                                   "queue": "default"}

    def names(**query):
        return sorted(e["type"][4:] for e in events(ojs, **query)["events"])

    assert names(queues="other") == ["discarded", "enqueued", "failed",
                                     "started"]
    assert names(job_types="e.cancelled,e.none") == [
        "cancelled", "enqueued", "started"]
    assert names(types="job.failed,job.retrying") == ["failed", "failed",
                                                      "retrying"]
    assert names(queues="nobody") == []
    # page by page, and from the end on
    seen, after = [], ""
    while True:
        page = events(ojs, limit=3, after=after)
        seen += page["events"]
        after = page["cursor"]
        if not page["has_more"]:
            break
    assert seen == got["events"] and after == got["cursor"]
    assert events(ojs, after=after) == {"events": [], "cursor": after,
                                        "has_more": False}
    failed = events(ojs, types="job.failed", queues="other")["events"][0]
    assert failed["data"]["error"]["code"] == "handler_error"
    for query in ({"limit": 0}, {"limit": "x"}, {"after": "!"},
                  {"after": "AAAA"}, {"types": "%FF"}):
        path = "/events?" + "&".join("%s=%s" % q for q in query.items())
        ojs.refused("GET", path, None, 400, "invalid_request")


@pytest.mark.cellenv(QUEEN_OJS_SWEEPER="false")
def test_a_page_of_events_may_end_before_the_first(ojs):
    """Of many that are not shown some are looked at; the cursor goes on."""
    for queue in ["gone"] * 5 + ["kept"]:
        job = ojs.push_job(queue=queue)
    ojs.ask("DELETE", "/queues/gone")
    wait_until(lambda: events(ojs, queues="kept")["events"])
    seen, pages, page = [], 0, {"cursor": "", "has_more": True}
    while page["has_more"]:
        page = events(ojs, limit=1, after=page["cursor"])
        seen += page["events"]
        pages += 1
    assert [e["subject"] for e in seen] == [job["id"]] and 1 < pages < 9

# SPDX-License-Identifier: Apache-2.0
"""
Queues of queen-ojs: made, listed, configured, paused, counted, filled to their
quota, and dropped under load without a deadlock and without leftovers.
"""
import datetime
import threading

import pytest

from ctlkit import home_of
from queenlib import OTHER_TENANT, TENANT, rows, wait_until

RETENTION = {"retention": "168h", "retention_ms": 604800000}
DEFAULTS = {"max_retries": 5, "dead_letter_max": 10000,
            "job_retention": "168h", "job_retention_ms": 604800000,
            "dead_letter_retention": "4320h",
            "dead_letter_retention_ms": 15552000000, **RETENTION}


def stats(ojs, name):
    body = ojs.ask("GET", "/queues/%s/stats" % name)
    assert body["queue"]["name"] == body["stats"]["queue"] == name
    return body


def counts(ojs, name, **expected):
    """The numbers of a queue that are not zero."""
    found = stats(ojs, name)["queue"]
    assert {k: v for k, v in found.items()
            if v and k not in ("name", "paused")} == expected


def config(ojs, name, body=None, status=200):
    method = "GET" if body is None else "POST"
    return ojs.ask(method, "/queues/%s/config" % name, body, status).get(
        "config")


def test_made_and_listed(ojs):
    """One entry for both views; pages by cursor and by offset."""
    assert ojs.ask("GET", "/queues") == {"queues": [], "pagination": {
        "total": 0, "has_more": False, "limit": 50, "offset": 0}}
    made = ojs.ask("POST", "/queues", {"name": "b.x-1", "max_retries": 0,
                                       "retention": "84h"}, 201)
    assert made["queue"].pop("created_at").endswith("Z")
    assert made["queue"] == {"name": "b.x-1", "status": "active",
                             "paused": False}
    assert made["config"] == {**DEFAULTS, "max_retries": 0,
                              "retention": "84h", "retention_ms": 302400000}
    again = ojs.ask("POST", "/queues", {"name": "b.x-1", "max_jobs": 9})
    assert again["config"] == {**made["config"], "max_jobs": 9}
    for i in range(3):
        ojs.push_job(queue="a", n=i)
    assert len(ojs.fetch("a", count=1)) == 1
    ojs.append("c", {"type": "t", "payload": 1}, {"type": "t", "payload": 2})
    ojs.subscribe("c", "one")
    ojs.ask("POST", "/queues/c/pause")
    body = ojs.ask("GET", "/queues")
    assert [(q["name"], q["status"], q["jobs"], q["stream"])
            for q in body["queues"]] == [
        ("a", "active", {"available": 2, "active": 1},
         {"events": 0, "consumers": 0, "dead_letters": 0}),
        ("b.x-1", "active", {"available": 0, "active": 0},
         {"events": 0, "consumers": 0, "dead_letters": 0}),
        ("c", "paused", {"available": 0, "active": 0},
         {"events": 2, "consumers": 1, "dead_letters": 0})]
    names, query = [], "?limit=1"
    while True:
        page = ojs.ask("GET", "/queues" + query)
        names += [q["name"] for q in page["queues"]]
        assert page["pagination"]["total"] == 3
        if not page["pagination"]["has_more"]:
            assert "next_cursor" not in page["pagination"]
            break
        query = "?limit=1&cursor=" + page["pagination"]["next_cursor"]
    assert names == ["a", "b.x-1", "c"]
    page = ojs.ask("GET", "/queues?limit=9999&offset=2")
    assert [q["name"] for q in page["queues"]] == ["c"]
    assert page["pagination"] == {"total": 3, "has_more": False,
                                  "limit": 200, "offset": 2}
    for bad, field in (("limit=0", "limit"), ("limit=x", "limit"),
                       ("offset=-1", "offset"), ("cursor=%20", "cursor"),
                       ("cursor=_w", "cursor")):
        error = ojs.refused("GET", "/queues?" + bad, None, 400,
                            "invalid_request")
        assert error["details"] == {"field": field}


def test_counts_are_exact(ojs, db):
    """After every single operation, in every state."""
    counts(ojs, "s")
    assert stats(ojs, "none")["queue"]["paused"] is False
    assert "none" not in [q["name"] for q in ojs.ask("GET", "/queues")[
        "queues"]]
    for _ in range(3):
        ojs.push_job(queue="s")
    counts(ojs, "s", available=3)
    first, = ojs.fetch("s")
    counts(ojs, "s", available=2, active=1)
    ojs.ack(first["id"])
    counts(ojs, "s", available=2, completed=1)
    ojs.push_job(queue="s", scheduled_at="2099-01-01T00:00:00Z")
    ojs.push_job(queue="s", pending=True)
    counts(ojs, "s", available=2, completed=1, scheduled=1, pending=1)
    second, = ojs.fetch("s")
    ojs.nack(second["id"], {"code": "handler_error", "message": "m"})
    counts(ojs, "s", available=1, completed=1, scheduled=1, pending=1,
           retryable=1)
    ojs.ask("DELETE", "/jobs/" + second["id"])
    counts(ojs, "s", available=1, completed=1, scheduled=1, pending=1,
           cancelled=1)
    third, = ojs.fetch("s")
    ojs.nack(third["id"], {"code": "handler_error", "message": "m",
                           "retryable": False})
    dead = ojs.push_job(queue="s", retry={
        "max_attempts": 1, "on_exhaustion": "dead_letter"})
    assert ojs.fetch("s")[0]["id"] == dead["id"]
    ojs.nack(dead["id"], {"code": "handler_error", "message": "m"})
    counts(ojs, "s", completed=1, scheduled=1, pending=1, cancelled=1,
           discarded=2, dead_letter=1)
    found = stats(ojs, "s")["stats"]
    assert found["depth"] == 1
    assert found["completed_last_hour"] == 1
    assert found["failed_last_hour"] == 2
    assert found["avg_duration_ms"] >= 0 and found["avg_wait_ms"] >= 0
    # known durations, and what is older than an hour is not counted
    db.rows("update queen.jobs set enqueued_at = ended_at - interval '3 s',"
            " started_at = ended_at - interval '2 s' where state = 5")
    found = stats(ojs, "s")["stats"]
    assert (found["avg_duration_ms"], found["avg_wait_ms"]) == (2000, 1000)
    db.rows("update queen.jobs set ended_at = ended_at - interval '61 min'"
            " where ended_at is not null")
    found = stats(ojs, "s")["stats"]
    assert (found["completed_last_hour"], found["failed_last_hour"]) == (0, 0)
    ojs.append("s", {"type": "t", "payload": 1})
    ojs.subscribe("s", "c")
    found = stats(ojs, "s")["stats"]
    assert (found["stream_events"], found["stream_consumers"],
            found["stream_dead_letters"]) == (1, 1, 0)


def test_pause_and_resume(ojs):
    """Makes the queue, may be repeated; stops fetches alone, and wakes who
    waits at its end."""
    first = ojs.ask("POST", "/queues/p/pause")["queue"]
    assert (first["name"], first["paused"]) == ("p", True)
    assert ojs.ask("POST", "/queues/p/pause")["queue"] == first
    job = ojs.push_job(queue="p")
    assert job["state"] == "available"
    assert ojs.fetch("p") == []
    ojs.append("p", {"type": "t", "payload": 1})
    assert stats(ojs, "p")["queue"]["paused"] is True
    found = []
    waiter = threading.Thread(target=lambda: found.extend(
        ojs.fetch("p", wait_ms=5000)))
    waiter.start()
    wait_until(lambda: ojs.metrics()["queen_ojs_parked"] == 1)
    assert ojs.ask("POST", "/queues/p/resume")["queue"] == {
        "name": "p", "paused": False}
    waiter.join()
    assert [j["id"] for j in found] == [job["id"]]
    assert ojs.ask("POST", "/queues/new/resume")["queue"] == {
        "name": "new", "paused": False}


def test_configuration(ojs):
    """Merged, cleared by null, made with the queue; nothing else is taken."""
    error = ojs.refused("GET", "/queues/q/config", None, 404, "not_found")
    assert error["details"]["queue"] == "q"
    assert config(ojs, "q", {"max_retries": 1000}) == {
        **DEFAULTS, "max_retries": 1000}
    assert config(ojs, "q", {"retention": "1s", "visibility_timeout_ms": 70,
                             "job_retention": "90m", "dead_letter_max": 0,
                             "dead_letter_retention": "P1D", "max_events": 7,
                             "max_jobs": 0}) == {
        "max_retries": 1000, "retention": "1s", "retention_ms": 1000,
        "visibility_timeout_ms": 70, "job_retention": "1h30m",
        "job_retention_ms": 5400000, "dead_letter_max": 0,
        "dead_letter_retention": "24h", "dead_letter_retention_ms": 86400000,
        "max_events": 7, "max_jobs": 0}
    shown = config(ojs, "q")
    assert config(ojs, "q", {}) == shown
    assert config(ojs, "q", dict.fromkeys(
        ("max_retries", "retention", "visibility_timeout_ms", "job_retention",
         "dead_letter_max", "dead_letter_retention", "max_events",
         "max_jobs"))) == DEFAULTS == config(ojs, "q")
    assert config(ojs, "q", {"retention": 604800, "job_retention": 90})[
        "retention_ms"] == 604800000
    config(ojs, "q", {"retention": None, "job_retention": None})
    for body, field in (({"max_retries": 1001}, "max_retries"),
                        ({"retention": 9223372036854776}, "retention"),
                        ({"retention": 1.5}, "retention"),
                        ({"max_retries": 1, "retention": "0s"}, "retention"),
                        ({"max_retries": 1, "rotation": 1}, "rotation"),
                        ({"retention": "3651d"}, "retention")):
        error = ojs.refused("POST", "/queues/q/config", body, 400,
                            "invalid_request")
        assert error["details"] == {"field": field}
    assert config(ojs, "q") == DEFAULTS
    ojs.refused("POST", "/queues/q/config", [], 400, "invalid_payload")
    ojs.refused("POST", "/queues/Q/config", {}, 400, "invalid_request")
    ojs.refused("POST", "/queues", {"name": "A"}, 400, "invalid_request")
    # the lease of jobs that name none
    assert config(ojs, "q", {"visibility_timeout_ms": 5000})
    ojs.push_job(queue="q")
    job, = ojs.fetch("q")
    lease = [datetime.datetime.fromisoformat(job[k][:-1]) for k in (
        "started_at", "lease_expires_at")]
    assert lease[1] - lease[0] == datetime.timedelta(seconds=5)


def test_quotas(ojs):
    """429 with Retry-After; a batch is refused as a whole."""
    ojs.ask("POST", "/queues", {"name": "q", "max_jobs": 2, "max_events": 3},
            201)
    ojs.push_job(queue="q")
    two = {"jobs": [{"type": "t", "args": [], "queue": "q"}] * 2}
    reply = ojs.request("POST", "/ojs/v1/jobs/batch", two)
    assert (reply.status, reply.body["error"]["code"]) == (429, "queue_full")
    assert int(reply.headers["Retry-After"]) >= 1
    assert reply.body["error"]["retryable"] is True
    ojs.push_job(queue="q")
    ojs.refused("POST", "/jobs", {"type": "t", "args": [], "queue": "q"}, 429,
                "queue_full")
    ojs.ack(ojs.fetch("q")[0]["id"])
    ojs.push_job(queue="q")
    ojs.append("q", *[{"type": "t", "payload": i} for i in range(3)])
    ojs.refused("POST", "/queues/q/messages", {"type": "t", "payload": 1},
                429, "queue_full")
    ojs.refused("POST", "/workflows", {
        "type": "chain", "steps": [{"type": "t", "args": [], "queue": "q"}]},
        429, "queue_full")
    counts(ojs, "q", available=2, completed=1)


def test_two_views_of_one_queue(ojs):
    """Job workers and stream consumers side by side: neither count disturbs
    the other, and what one does is nothing to the other."""
    jobs = [ojs.push_job(queue="both", n=i) for i in range(3)]
    ojs.subscribe("both", "c")
    ojs.append("both", *[{"type": "t", "payload": i} for i in range(3)])
    assert [j["id"] for j in ojs.fetch("both", count=9)] == [
        j["id"] for j in jobs]
    batch = ojs.receive("both", "c")
    assert [m["payload"] for m in batch["messages"]] == [0, 1, 2]
    counts(ojs, "both", active=3)
    ojs.ack(jobs[0]["id"])
    ojs.stream_ack("both", batch["batch"]["id"])
    counts(ojs, "both", active=2, completed=1)
    found = stats(ojs, "both")["stats"]
    assert (found["stream_events"], found["stream_consumers"]) == (3, 1)
    assert ojs.receive("both", "c") == {"batch": None, "messages": []}
    for job in jobs[1:]:
        ojs.ack(job["id"])
    # what is configured holds at once: the next nack is the last
    config(ojs, "both", {"max_retries": 0})
    ojs.append("both", {"type": "t", "payload": 3})
    batch = ojs.receive("both", "c")
    ojs.ask("POST", "/streams/nack", {
        "queue": "both", "batch_id": batch["batch"]["id"],
        "message_id": batch["messages"][0]["id"]})
    assert stats(ojs, "both")["stats"]["stream_dead_letters"] == 1
    counts(ojs, "both", completed=3)
    for _ in range(2):
        ojs.ask("DELETE", "/queues/both")
        counts(ojs, "both")
        assert stats(ojs, "both")["stats"]["stream_events"] == 0
        for route in "info", "consumers", "dlq":
            error = ojs.refused("GET", "/queues/both/" + route, None, 404,
                                "not_found")
            assert error["details"]["queue"] == "both"
        ojs.push_job(queue="both")
        ojs.append("both", {"type": "t", "payload": 4})
        counts(ojs, "both", available=1)


@pytest.mark.cellenv(QUEEN_TENANCY_HEADER="true",
                     QUEEN_KV_TRUSTED_PROXY="true")
def test_tenants_do_not_meet(ojs):
    """The same names are other queues, and ids of one are nothing to the
    other."""
    other = {"headers": {"x-queen-tenant": OTHER_TENANT}}
    ojs.push_job(queue="q")
    flow = ojs.ask("POST", "/workflows", {"type": "group", "jobs": [
        {"type": "t", "args": [], "queue": "q"}]}, 201)["workflow"]
    assert ojs.ask("GET", "/queues", **other)["queues"] == []
    assert ojs.ask("GET", "/workflows", **other)["workflows"] == []
    for method in ("GET", "DELETE"):
        ojs.refused(method, "/workflows/" + flow["id"], None, 404,
                    "not_found", **other)
    ojs.refused("DELETE", "/queues/q", None, 404, "not_found", **other)
    ojs.ask("POST", "/queues/q/pause", **other)
    assert stats(ojs, "q")["queue"]["paused"] is False
    ojs.ask("DELETE", "/queues/q", **other)
    counts(ojs, "q", available=2)


def test_what_a_role_needs(new_ojs, db, folder):
    """`schema grant --streams` is enough for all of it, the drop of what the
    role made included."""
    role = db.role("worker")
    assert home_of(folder).run(
        "schema", "grant", role, "--streams", PG_HOST="127.0.0.1",
        PG_PORT=str(db.server.port.number), PG_USER="queen",
        PG_DATABASE=db.name) == 'granted to "%s"\n' % role
    ojs = new_ojs(PG_USER=role).start()
    ojs.push_job(queue="q")
    ojs.append("q", {"type": "t", "payload": 1})
    ojs.subscribe("q", "c")
    made = ojs.ask("POST", "/workflows", {"type": "group", "jobs": [
        {"type": "t", "args": [], "queue": "q"}]}, 201)["workflow"]
    ojs.ask("DELETE", "/workflows/" + made["id"])
    queue_id = id_of(db, "q")
    ojs.ask("DELETE", "/queues/q")
    wait_until(lambda: left_of(db, queue_id) == {})
    assert "permission denied" not in ojs.log_text()
    db.rows("drop owned by %s cascade" % role)


def left_of(db, queue_id):
    """What a dropped queue has left, table by table."""
    found = {t: db.value("select count(*) from queen.%s where %s = %%s" % (
        t, "id" if t == "ojs_queues" else "queue_id"), (queue_id,))
        for t in ("jobs", "ojs_rates", "ojs_job_counts", "ojs_streams",
                  "ojs_stream_work", "ojs_queues")}
    found["schema"] = db.value("select count(*) from pg_namespace where"
                               " nspname = 'queen_ojs_%d'" % queue_id)
    return {t: n for t, n in found.items() if n}


def id_of(db, name):
    return db.value("select id from queen.ojs_queues where name = %s and"
                    " deleted_at is null", (name,))


def test_drop(ojs, db):
    """Both views go with one call; whoever still works on it finds nothing,
    and the name begins anew."""
    ojs.refused("DELETE", "/queues/q", None, 404, "not_found")
    jobs = [ojs.push_job(queue="q") for _ in range(3)]
    ojs.append("q", {"type": "t", "payload": 1})
    ojs.subscribe("q", "c", from_tick=0)
    batch = ojs.receive("q", "c")["batch"]
    active, = ojs.fetch("q")
    ojs.ask("POST", "/cron", {"name": "n", "expression": "* * * * *",
                              "job_template": {"type": "t", "args": [],
                                               "options": {"queue": "q"}}},
            201)
    chain = ojs.ask("POST", "/workflows", {"type": "chain", "steps": [
        {"type": "t", "args": [], "queue": "stays"},
        {"type": "t", "args": [], "queue": "q"}]}, 201)["workflow"]
    queue_id = id_of(db, "q")
    assert ojs.ask("DELETE", "/queues/q") == {"deleted": True, "queue": "q"}
    # clean refusals, from the moment it answered
    assert ojs.ack(active["id"], 404)["error"]["code"] == "not_found"
    ojs.nack(active["id"], {"code": "x", "message": "m"}, 404)
    ojs.job(jobs[1]["id"], 404)
    ojs.refused("DELETE", "/jobs/" + jobs[1]["id"], None, 404, "not_found")
    ojs.refused("DELETE", "/queues/q", None, 404, "not_found")
    ojs.refused("GET", "/queues/q/config", None, 404, "not_found")
    for route in "info", "consumers", "dlq":
        error = ojs.refused("GET", "/queues/q/" + route, None, 404,
                            "not_found")
        assert error["details"]["queue"] == "q"
    ojs.stream_ack("q", batch["id"], 404)
    ojs.receive("q", "c", 404)
    assert ojs.fetch("q") == []
    assert [q["name"] for q in ojs.ask("GET", "/queues")["queues"]] == [
        "stays"]
    assert ojs.ask("GET", "/cron")["crons"] == []
    # a new one of the same name has nothing of the old one
    fresh = ojs.push_job(queue="q")
    assert [j["id"] for j in ojs.fetch("q", count=10)] == [fresh["id"]]
    counts(ojs, "q", active=1)
    assert ojs.append("q", {"type": "t", "payload": 2})
    ojs.receive("q", "c", 404)
    assert id_of(db, "q") != queue_id
    wait_until(lambda: left_of(db, queue_id) == {},
               what="%r" % left_of(db, queue_id))
    # to a workflow the job that went is a failed one
    found = ojs.ask("GET", "/workflows/" + chain["id"])["workflow"]
    assert (found["state"], found["jobs_failed"]) == ("failed", 1)
    assert ojs.job(fresh["id"])["state"] == "active"


@pytest.mark.amount
def test_drop_under_load(new_ojs, db):
    """Producers, workers and consumers on three queues, each dropped again and
    again through two processes: nobody sees anything but success, nothing to
    do, or a clean 404; no deadlock, and nothing is left."""
    pair = [new_ojs(QUEEN_OJS_SWEEP_MS="50").start() for _ in range(2)]
    before = db.value("select deadlocks from pg_stat_database"
                      " where datname = current_database()")
    names = ["q1", "q2", "q3"]
    stop, faults, done = threading.Event(), [], {"drop": 0, "ack": 0,
                                                 "batch": 0}

    def post(ojs, path, body, *allowed):
        reply = ojs.request("POST", "/ojs/v1" + path, body)
        if reply.status not in allowed:
            faults.append((path, reply.status, reply.body))
            stop.set()
        return reply

    def produce(ojs, n):
        """Two queues in one batch, in either order; chains across them."""
        i = 0
        while not stop.is_set():
            i += 1
            a, b = names[i % 3], names[(i + n) % 3]
            job = {"type": "t", "args": [i]}
            post(ojs, "/jobs/batch", {"jobs": [{**job, "queue": a},
                                               {**job, "queue": b}]}, 201)
            post(ojs, "/workflows", {"type": "chain", "steps": [
                {**job, "queue": a}, {**job, "queue": b}]}, 201)
            # 503: it was dropped whenever it had been made
            post(ojs, "/queues/%s/messages" % b,
                 {"type": "t", "payload": i}, 201, 503)

    def work(ojs):
        while not stop.is_set():
            reply = post(ojs, "/workers/fetch", {"queues": names, "count": 5},
                         200)
            ids = [j["id"] for j in reply.body.get("jobs", ())]
            if ids:
                post(ojs, "/workers/heartbeat", {"worker_id": "w",
                                                 "active_jobs": ids}, 200)
            for i, job_id in enumerate(ids):
                if i % 3:
                    post(ojs, "/workers/ack", {"job_id": job_id}, 200, 404)
                    done["ack"] += 1
                else:
                    post(ojs, "/workers/nack", {
                        "job_id": job_id, "error": {"code": "c",
                                                    "message": "m"}},
                        200, 404)

    def consume(ojs):
        while not stop.is_set():
            for name in names:
                path = "/queues/%s" % name
                post(ojs, path + "/consumers", {"consumer": "c"},
                     200, 201, 503)
                reply = post(ojs, path + "/receive", {"consumer": "c"},
                             200, 404)
                if reply.status == 200 and reply.body.get("batch"):
                    post(ojs, "/streams/ack", {
                        "queue": name, "batch_id":
                        reply.body["batch"]["id"]}, 200, 404)
                    done["batch"] += 1

    def drop(ojs, n):
        """Whenever some of what is in the queues was done."""
        i, seen = n, 0
        while not stop.is_set():
            if done["ack"] < seen + 5:
                stop.wait(0.005)
                continue
            i, seen = i + 1, done["ack"]
            reply = ojs.request("DELETE", "/ojs/v1/queues/" + names[i % 3])
            if reply.status not in (200, 404):
                faults.append(("drop", reply.status, reply.body))
                stop.set()
            done["drop"] += reply.status == 200

    threads = [threading.Thread(target=f, args=a) for f, a in (
        (produce, (pair[0], 1)), (produce, (pair[1], 2)), (work, (pair[0],)),
        (work, (pair[1],)), (consume, (pair[0],)), (drop, (pair[0], 0)),
        (drop, (pair[1], 1)))]
    for t in threads:
        t.start()
    try:
        wait_until(lambda: faults or min(
            done["drop"] - 30, done["ack"] - 150, done["batch"] - 5) >= 0,
            deadline_s=40, what="%r" % done)
    finally:
        stop.set()
        for t in threads:
            t.join()
    assert faults == []
    for name in names:
        pair[0].request("DELETE", "/ojs/v1/queues/" + name)
    wait_until(lambda: db.value("select count(*) from queen.ojs_queues") == 0,
               what="queues that stay")
    for table in ("jobs", "ojs_streams", "ojs_stream_work", "ojs_rates"):
        assert db.value("select count(*) from queen." + table) == 0, table
    assert db.value("select count(*) from pg_namespace where nspname like"
                    " 'queen\\_ojs\\_%%'") == 0
    # no workflow waits for a job that is gone
    assert db.value("select count(*) from queen.ojs_workflows"
                    " where state = 0") == 0
    assert db.value("select deadlocks from pg_stat_database"
                    " where datname = current_database()") == before


@pytest.mark.parametrize("path", ["", "/q/config", "/q/pause", "/q/resume"])
def test_what_a_drop_overtakes_makes_a_new_one(ojs, db, path):
    ojs.ask("POST", "/queues", {"name": "q"}, 201)
    conn = db.connect(autocommit=False)
    rows(conn, "select queen.ojs_queue_drop_v1(%s, 'q')", (TENANT,))
    got = []
    thread = threading.Thread(target=lambda: got.append(ojs.post(
        "/ojs/v1/queues" + path, {"max_jobs": 7} if path == "/q/config" else
        {} if path else {"name": "q"})))
    thread.start()
    wait_until(lambda: db.value(
        "select count(*) from pg_stat_activity where wait_event_type = 'Lock'"
        " and datname = current_database()") == 1, every_s=0.005)
    conn.commit()
    conn.close()
    thread.join()
    assert got[0].status == (200 if path else 201), got
    assert db.rows("select id, max_jobs, paused_at is not null from"
                   " queen.ojs_queues where deleted_at is null") == [
        (2, 7 if path == "/q/config" else None, path == "/q/pause")]


@pytest.mark.allpg
def test_a_put_in_flight_is_not_forgotten(db):
    """Who put a job while the queue was dropped holds the purge off; then the
    job goes as well.  Nobody waits for anybody."""
    put = ("select verdict, queue_id from queen.jobs_put(%s, array[row("
           "gen_random_uuid(), 't', 'q', '', 0, 3, null, false, null, null,"
           " null, null, null, null)::queen.job_spec], false, null)")
    conn = db.connect(autocommit=False)
    (verdict, queue_id), = rows(conn, put, (TENANT,))
    assert verdict == 0
    other = db.connect(autocommit=False)
    # not committed, it is not there for the drop: made by a second one
    conn.commit()
    rows(conn, put, (TENANT,))
    assert rows(other, "select queue_id from queen.ojs_queue_drop_v1(%s,"
                " 'q')", (TENANT,)) == [(queue_id,)]
    other.commit()
    assert db.value("select queen.ojs_purge_v1(100)") == 0
    assert rows(other, put, (TENANT,))[0][1] > queue_id
    other.commit()
    conn.commit()
    assert db.value("select queen.ojs_purge_v1(100)") == 3
    assert left_of(db, queue_id) == {}
    assert db.value("select count(*) from queen.jobs") == 1
    conn.close()
    other.close()

# SPDX-License-Identifier: Apache-2.0
"""
Workflows of queen-ojs: chains, groups, and batches with callbacks, each job
pushed once, each end counted once, whoever ends what at the same time.
"""
import itertools
import json
import threading
import uuid

import psycopg2.extras
import pytest

from ojsjobkit import Jobs, policy, spec
from queenlib import TENANT, rows, wait_until
from sqlkit import at

pytestmark = pytest.mark.cellenv(QUEEN_OJS_SWEEPER="false")


def job(queue, type="t", **more):
    return {"type": type, "args": [], "queue": queue, **more}


def made(ojs, status=201, **body):
    return ojs.ask("POST", "/workflows", body, status)["workflow"]


def shown(ojs, workflow):
    return ojs.ask("GET", "/workflows/" + workflow["id"])["workflow"]


def states(workflow, key="jobs"):
    return [j["state"] for j in workflow[key]]


def done(ojs, queue, result=None):
    """Fetches one job of a queue and acks it; the job as fetched."""
    found, = ojs.fetch(queue)
    ojs.ack(found["id"], **({} if result is None else {"result": result}))
    return found


def lost(ojs, queue):
    found, = ojs.fetch(queue)
    ojs.nack(found["id"], {"code": "handler_error", "message": "m",
                           "retryable": False})
    return found


def test_chain(ojs, db):
    """One step at a time; each has the results of those before it, the moment
    of its push, and whoever waits for it is woken."""
    w = made(ojs, type="chain", name="order", steps=[
        job("a", "first", options={"queue": "a", "priority": 3}),
        job("b", "second"), job("a", "third")])
    assert uuid.UUID(w["id"]).version == 7
    assert {k: w[k] for k in ("type", "name", "state", "steps_total",
                              "steps_completed")} == {
        "type": "chain", "name": "order", "state": "running",
        "steps_total": 3, "steps_completed": 0}
    assert states(w, "steps") == ["available", "waiting", "waiting"]
    assert [s["type"] for s in w["steps"]] == ["first", "second", "third"]
    assert shown(ojs, w) == w
    # the others are nowhere
    assert ojs.fetch("b") == []
    ojs.job(w["steps"][1]["id"], 404)
    assert ojs.ask("GET", "/queues/b/stats")["queue"]["available"] == 0
    waited = []
    waiter = threading.Thread(target=lambda: waited.extend(
        ojs.fetch("b", wait_ms=5000)))
    waiter.start()
    wait_until(lambda: ojs.metrics()["queen_ojs_parked"] == 1)
    first = done(ojs, "a", {"n": [1, "\u00e9"], "z": 1.0})
    assert "parent_results" not in first
    assert first["workflow_id"] == w["id"]
    waiter.join()
    second, = waited
    assert second["id"] == w["steps"][1]["id"]
    assert second["parent_results"] == [{"n": [1, "\u00e9"], "z": 1.0}]
    assert second["created_at"] == second["enqueued_at"] > first["created_at"]
    assert states(shown(ojs, w), "steps") == ["completed", "active",
                                              "waiting"]
    assert shown(ojs, w)["steps_completed"] == 1
    ojs.ack(second["id"])
    third = done(ojs, "a", "last")
    assert third["parent_results"] == [{"n": [1, "\u00e9"], "z": 1.0}, None]
    end = shown(ojs, w)
    assert (end["state"], end["steps_completed"]) == ("completed", 3)
    assert end["completed_at"] >= third["enqueued_at"]
    # over: it cannot be cancelled, and its jobs are as all others
    error = ojs.refused("DELETE", "/workflows/" + w["id"], None, 409,
                        "conflict")
    assert error["details"] == {"workflow_id": w["id"],
                                "current_state": "completed"}
    assert ojs.job(third["id"])["result"] == "last"


def test_a_step_that_fails_ends_its_chain(ojs):
    """Retries are no end; what comes after never runs."""
    w = made(ojs, type="chain", steps=[
        job("q", retry={"max_attempts": 2, "initial_interval": "PT0.01S",
                        "jitter": False}), job("q"), job("q")])
    found, = ojs.fetch("q")
    ojs.nack(found["id"], {"code": "handler_error", "message": "m"})
    assert shown(ojs, w)["state"] == "running"
    again = []
    wait_until(lambda: again.extend(ojs.fetch("q")) or again)
    ojs.nack(again[0]["id"], {"code": "handler_error", "message": "m"})
    end = shown(ojs, w)
    assert (end["state"], end["jobs_failed"], end["steps_completed"]) == (
        "failed", 1, 0)
    assert states(end, "steps") == ["discarded", "cancelled", "cancelled"]
    assert ojs.fetch("q", count=10) == []
    # a cancelled step is a failed one
    w = made(ojs, type="chain", steps=[job("q"), job("q")])
    ojs.ask("DELETE", "/jobs/" + w["steps"][0]["id"])
    assert shown(ojs, w)["state"] == "failed"


def test_group(ojs):
    """All at once; failed when all are over and one failed."""
    w = made(ojs, type="group", jobs=[job("g") for _ in range(3)])
    assert (w["jobs_total"], w["jobs_completed"], w["jobs_failed"]) == (
        3, 0, 0)
    assert states(w) == ["available"] * 3 and "steps_total" not in w
    lost(ojs, "g")
    done(ojs, "g")
    running = shown(ojs, w)
    assert (running["state"], running["jobs_completed"],
            running["jobs_failed"]) == ("running", 1, 1)
    done(ojs, "g")
    assert shown(ojs, w)["state"] == "failed"
    w = made(ojs, type="group", jobs=[job("g")])
    done(ojs, "g")
    assert shown(ojs, w)["state"] == "completed"


@pytest.mark.parametrize("fails", [False, True])
def test_batch(ojs, fails):
    """Each callback that is due once, with the results of all; the others
    never run, and their own ends are of no account."""
    w = made(ojs, type="batch", jobs=[job("b"), job("b")], callbacks={
        "on_complete": job("cb", "complete"),
        "on_success": job("cb", "success"),
        "on_failure": job("cb", "failure")})
    assert w["jobs_total"] == 2
    assert {k: c["state"] for k, c in w["callbacks"].items()} == dict.fromkeys(
        ("on_complete", "on_success", "on_failure"), "waiting")
    first = done(ojs, "b", 1)
    assert ojs.fetch("cb", count=9) == []
    (lost if fails else done)(ojs, "b")
    due = "failure" if fails else "success"
    end = shown(ojs, w)
    assert (end["state"], end["jobs_completed"], end["jobs_failed"]) == (
        ("failed", 1, 1) if fails else ("completed", 2, 0))
    found = ojs.fetch("cb", count=9)
    assert sorted(j["type"] for j in found) == ["complete", due]
    for callback in found:
        assert callback["parent_results"] == [1, None]
        assert callback["workflow_id"] == w["id"]
    ojs.ack(found[0]["id"])
    ojs.nack(found[1]["id"], {"code": "c", "message": "m",
                              "retryable": False})
    again = shown(ojs, w)
    assert (again["state"], again["jobs_failed"]) == (end["state"],
                                                      end["jobs_failed"])
    assert ojs.fetch("cb", count=9) == []
    assert ojs.job(first["id"])["state"] == "completed"


def test_what_jobs_may_say(ojs):
    """Envelope and options as in a push; a job that shall wait waits when it
    is its turn."""
    w = made(ojs, type="chain", steps=[
        job("q"), job("q", scheduled_at="2099-01-01T00:00:00Z"), job("q")])
    done(ojs, "q")
    assert states(shown(ojs, w), "steps") == ["completed", "scheduled",
                                              "waiting"]
    assert ojs.job(w["steps"][1]["id"])["scheduled_at"] == \
        "2099-01-01T00:00:00Z"
    w = made(ojs, type="chain", steps=[job("q"), job("q", pending=True)])
    done(ojs, "q")
    pending = w["steps"][1]["id"]
    assert ojs.job(pending)["state"] == "pending"
    assert ojs.ask("POST", "/jobs/%s/activate" % pending)["job"]["state"] == \
        "available"
    done(ojs, "q")
    assert shown(ojs, w)["state"] == "completed"
    # all or nothing: an id that is used, in another job or in this workflow
    used = ojs.push_job(queue="z")["id"]
    fresh = used[:-12] + "0" * 12
    for ids in ((fresh, used), (fresh, fresh)):
        error = ojs.refused("POST", "/workflows", {
            "type": "chain", "steps": [job("new", id=i) for i in ids]}, 409,
            "duplicate")
        assert error["details"]["existing_job_id"] == ids[1]
    ojs.job(fresh, 404)
    assert "new" not in [q["name"] for q in ojs.ask("GET", "/queues")[
        "queues"]]
    unique = {"keys": ["type"], "on_conflict": "ignore"}
    ojs.push_job("u", queue="z", unique=unique)
    ojs.refused("POST", "/workflows", {"type": "group", "jobs": [
        job("new"), job("z", "u", unique=unique)]}, 409, "duplicate")
    # one that waits is pending to others, who are told where
    w = made(ojs, type="chain", steps=[job("q"), job("q", "v", unique=unique)])
    error = ojs.refused("POST", "/jobs", job("z", "v", unique=unique), 409,
                        "duplicate")
    assert error["details"].pop("unique_key")
    assert error["details"] == {"existing_job_id": w["steps"][1]["id"],
                                "workflow_id": w["id"]}


def test_refusals(ojs):
    for body, status, code, details in (
            ({}, 400, "invalid_request", {"field": "type"}),
            ({"type": "dag", "steps": []}, 400, "invalid_request",
             {"field": "type"}),
            ({"type": "chain", "steps": []}, 400, "invalid_request",
             {"field": "steps"}),
            ({"type": "batch", "jobs": [job("q")]}, 400, "invalid_request",
             {"field": "callbacks"}),
            ({"type": "group", "jobs": [job("q"), job("Q")]}, 400,
             "invalid_request", {"field": "queue", "index": 1}),
            ({"type": "group", "jobs": [job("q"), job(
                "q", retry={"max_attempts": -1})]}, 422, "invalid_payload",
             None),
            ({"type": "chain", "steps": [job("q"), {
                "type": "group", "jobs": [job("q")]}]}, 422, "unsupported",
             {"index": 1})):
        error = ojs.refused("POST", "/workflows", body, status, code)
        if details is not None:
            assert error["details"] == details
    assert ojs.ask("GET", "/workflows")["pagination"]["total"] == 0
    assert ojs.ask("GET", "/queues")["queues"] == []
    nobody = "/workflows/019a0f10-6b20-7a01-8f3e-5d1c2b3a4950"
    for path in (nobody, "/workflows/x"):
        for method in ("GET", "DELETE"):
            error = ojs.refused(method, path, None, 404, "not_found")
            assert error["details"]["workflow"] == path[11:]


def test_cancel(ojs):
    """What waits is cancelled, what is worked on finishes; no callback."""
    w = made(ojs, type="batch", jobs=[
        job("q"), job("q"), job("q", scheduled_at="2099-01-01T00:00:00Z")],
        callbacks={"on_complete": job("cb")})
    active, = ojs.fetch("q")
    end = ojs.ask("DELETE", "/workflows/" + w["id"])["workflow"]
    assert end["state"] == "cancelled" and "cancelled_at" in end
    assert sorted(states(end)) == ["active", "cancelled", "cancelled"]
    assert end["callbacks"]["on_complete"]["state"] == "cancelled"
    ojs.refused("DELETE", "/workflows/" + w["id"], None, 409, "conflict")
    ojs.ack(active["id"])
    assert ojs.fetch("q", "cb", count=9) == []
    again = shown(ojs, w)
    assert (again["state"], again["jobs_completed"]) == ("cancelled", 1)


def test_list(ojs):
    """The newest first, by cursor."""
    ids = [made(ojs, type="group", name="n%d" % i, jobs=[job("q")])["id"]
           for i in range(3)]
    page = ojs.ask("GET", "/workflows")
    assert [w["name"] for w in page["workflows"]] == ["n2", "n1", "n0"]
    assert page["pagination"] == {"total": 3, "has_more": False, "limit": 50,
                                  "offset": 0}
    found, query = [], "?limit=1"
    while query:
        page = ojs.ask("GET", "/workflows" + query)
        found += [w["id"] for w in page["workflows"]]
        query = page["pagination"]["has_more"] and "?limit=1&cursor=%s" \
            % page["pagination"]["next_cursor"]
    assert found == ids[::-1]
    assert [w["id"] for w in ojs.ask("GET", "/workflows?offset=2")[
        "workflows"]] == ids[:1]
    ojs.refused("GET", "/workflows?cursor=YQ", None, 400, "invalid_request")


# ---- two sessions at once ----

class Sql:
    """A session that calls as a process does."""

    def __init__(self, db):
        self.conn = db.connect(autocommit=False)
        psycopg2.extras.register_uuid(conn_or_curs=self.conn)

    def rows(self, sql, *args):
        return rows(self.conn, sql, args)

    def create(self, kind, roles, queue="q"):
        n, self.id = len(roles), uuid.uuid4()
        self.jobs = [uuid.uuid4() for _ in roles]
        none = [None] * n
        found = self.rows(
            "select verdict, state from queen.workflow_create_v1(%s, %s, %s,"
            " null, %s, %s::uuid[], %s, %s, %s, %s::smallint[], %s,"
            " %s::timestamptz[], %s, %s::timestamptz[], %s::bigint[],"
            " %s::bigint[], %s::text[], %s::text[], %s::text[])",
            TENANT, self.id, kind, roles, self.jobs, ["t"] * n, [queue] * n,
            [""] * n, [0] * n, [1] * n, none, [False] * n, none, none, none,
            none, none, none)
        assert [v for v, _ in found] == [0] * n
        self.conn.commit()
        return self

    def fetch(self, n):
        return [r[0] for r in self.rows(
            "select id from queen.jobs_fetch_v1(%s, '{q}', %s, 'w', null,"
            " 60000, '{}', '{}', '{}', '{}') where verdict = 0", TENANT, n)]

    def ack(self, job_id, result="1"):
        return self.rows("select verdict, state, id from queen.jobs_ack_v1("
                         "%s, %s, 'w', null, %s)", TENANT, job_id, result)

    def nack(self, job_id):
        return self.rows(
            "select verdict, state, id from queen.jobs_nack_v1(%s, %s, 'w',"
            " null, '\"code\":\"c\"', 'e', null, 'c', false, false)", TENANT,
            job_id)

    def cancel(self, workflow):
        return self.rows("select verdict, state from"
                         " queen.workflow_cancel_v1(%s, %s)", TENANT,
                         workflow)

    def row(self, workflow):
        return self.rows("select state, completed, failed from"
                         " queen.ojs_workflows where id = %s", workflow)[0]


@pytest.fixture
def sessions(db):
    made_ = []

    def make():
        made_.append(Sql(db))
        return made_[-1]

    yield make
    for one in made_:
        one.conn.close()


def blocked(db, n=1):
    """That many sessions wait for a lock."""
    wait_until(lambda: db.value(
        "select count(*) from pg_stat_activity where wait_event_type = 'Lock'"
        " and datname = current_database()") == n)


def beside(call):
    """A thread that runs it; its result, or what it raised."""
    found = []

    def run():
        try:
            found.append(call())
        except psycopg2.Error as e:
            found.append(e)

    thread = threading.Thread(target=run)
    thread.start()
    return lambda: thread.join() or found[0]


@pytest.mark.parametrize("first, second", itertools.product("an", repeat=2))
def test_two_last_ends_at_once(db, sessions, first, second):
    """The second waits for the first to commit, and then it is the last: each
    callback once."""
    one, two = sessions(), sessions()
    one.create("batch", ["job", "job", "on_complete", "on_success",
                         "on_failure"])
    one.fetch(2)
    one.conn.commit()
    ends = {"a": Sql.ack, "n": Sql.nack}
    assert len(ends[first](one, one.jobs[0])) == 1
    other = beside(lambda: ends[second](two, one.jobs[1]))
    blocked(db)
    one.conn.commit()
    assert len(other()) == 3
    two.conn.commit()
    good = (first + second).count("a")
    assert one.row(one.id) == (1 if good == 2 else 2, good, 2 - good)
    due = {one.jobs[2], one.jobs[3] if good == 2 else one.jobs[4]}
    assert set(one.fetch(9)) == due


def test_an_end_and_a_cancel_at_once(db, sessions):
    """In either order one waits for the other, and both agree."""
    one, two = sessions(), sessions()
    one.create("chain", ["step"] * 3)
    one.fetch(1)
    one.conn.commit()
    # the ack first: its successor is there to be cancelled
    assert [s for _, s, _ in one.ack(one.jobs[0])] == [5, 0]
    other = beside(lambda: two.cancel(one.id))
    blocked(db)
    one.conn.commit()
    assert other() == [(0, 3)] * 3
    two.conn.commit()
    assert one.fetch(9) == [] and one.row(one.id) == (3, 1, 1)
    assert db.rows("select distinct state from queen.jobs where id <> %s",
                   (str(one.jobs[0]),)) == [(6,)]
    # the cancel first: the ack counts, and releases nothing
    one.create("chain", ["step"] * 3)
    one.fetch(1)
    one.conn.commit()
    assert two.cancel(one.id) == [(0, 3)] * 3
    other = beside(lambda: one.ack(one.jobs[0]))
    blocked(db)
    two.conn.commit()
    assert [s for _, s, _ in other()] == [5]
    one.conn.commit()
    assert one.row(one.id) == (3, 1, 0)
    # two at once: one of them did it
    one.create("group", ["job"] * 2)
    assert one.cancel(one.id) == [(0, 3)] * 2
    other = beside(lambda: two.cancel(one.id))
    blocked(db)
    one.conn.commit()
    assert other() == [(2, 3)] * 2


@pytest.mark.allpg
def test_ends_and_cancels_by_chance(db, sessions):
    """Four sessions end and cancel at random: no deadlock, every count agrees
    with the jobs, every callback was released once or never."""
    before = db.value("select deadlocks from pg_stat_database"
                      " where datname = current_database()")
    maker = sessions()
    flows = [maker.create("batch", ["job"] * 4 + [
        "on_complete", "on_success", "on_failure"]).id for _ in range(12)]
    stop, faults = threading.Event(), []

    def work(one, n):
        try:
            while not stop.is_set():
                ids = one.fetch(2)
                one.conn.commit()
                for i, job_id in enumerate(ids):
                    (one.ack if (i + n) % 3 else one.nack)(job_id)
                    one.conn.commit()
                if not ids:
                    return
        except psycopg2.Error as e:
            faults.append(e)

    def cancel(one):
        for i in flows[::3]:
            while True:
                try:
                    one.cancel(i)
                    one.conn.commit()
                    break
                except psycopg2.errors.LockNotAvailable:
                    one.conn.rollback()
                except psycopg2.Error as e:
                    faults.append(e)
                    return

    threads = [threading.Thread(target=work, args=(sessions(), n))
               for n in range(3)] + [
        threading.Thread(target=cancel, args=(sessions(),))]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    stop.set()
    assert faults == []
    work(sessions(), 1)
    assert faults == []
    assert db.value("select deadlocks from pg_stat_database"
                    " where datname = current_database()") == before
    for state, completed, failed, n_completed, n_failed, ran in db.rows(
            "select w.state, w.completed, w.failed,"
            " count(*) filter (where m.role = 'job' and j.state = 5),"
            " count(*) filter (where m.role = 'job' and j.state in (6, 7)),"
            " array_agg(m.role order by m.role)"
            "  filter (where m.role <> 'job' and j.started_at is not null)"
            " from queen.ojs_workflows w"
            " join queen.ojs_workflow_jobs m on m.workflow_id = w.id"
            " join queen.jobs j on j.id = m.job_id"
            " group by w.tenant, w.id"):
        assert (completed, failed) == (n_completed, n_failed)
        assert completed + failed == 4
        assert ran == {1: ["on_complete", "on_success"],
                       2: ["on_complete", "on_failure"], 3: None}[state]


def test_pruned(db, sessions):
    """Seven days after its end a workflow is gone, its jobs have their own
    time; one that runs stays."""
    one = sessions()
    one.create("group", ["job"])
    one.fetch(1)
    one.ack(one.jobs[0])
    running = one.create("group", ["job"] * 2).id
    prune = "select queen.ojs_purge_v1(100, now() + %s::interval)"
    assert db.value(prune, ("6 days 23 hours",)) == 0
    assert db.value(prune, ("7 days 1 minute",)) == 2
    assert db.rows("select id::text from queen.ojs_workflows") == [
        (str(running),)]
    assert db.value("select count(*) from queen.ojs_workflow_jobs") == 2
    assert db.value("select count(*) from queen.jobs") == 3
    # many jobs go in parts
    for _ in range(2):
        one.cancel(one.create("group", ["job"] * 130).id)
        one.conn.commit()
    left = [db.value(prune, ("7 days 1 minute",)) for _ in range(4)]
    assert left[0] == 100 and sum(left) == 262 and left[3] == 0
    assert db.value("select count(*) from queen.ojs_workflow_jobs") == 2


def test_each_result_is_stored_once(db):
    """However many steps are shown it; who may run again after its workflow
    is gone has them for itself."""
    jobs = Jobs(db.connect())
    steps = [spec(policy=policy(dead=True), max_attempts=1)
             for _ in range(20)]
    jobs.workflow("chain", ["step"] * 20, *steps, now=1)
    results = []
    for n in range(19):
        (row,) = jobs.fetch(now=2)
        assert (json.loads(row.parents) if n else row.parents) == (
            results or None)
        results.append("%d" % n + "x" * 999)
        jobs.rows("select queen.jobs_ack_v1(%s, %s, null, null, %s, %s)",
                  TENANT, row.id, json.dumps(results[-1]), at(3))
    assert db.row("select (select sum(length(result)) from"
                  " queen.ojs_workflow_jobs), (select count(parents) from"
                  " queen.jobs)") == (sum(len(r) + 2 for r in results), 0)
    (last,) = jobs.fetch(now=4)
    jobs.nack(last.id, now=5)
    # a backup without the workflow has them with the job
    kept = db.rows("select b.parents, b.parents_of::text from queen.jobs j,"
                   " unnest(array[null, j.workflow_id]) w,"
                   " queen.ojs_backup_job(j, w) b where j.id = %s"
                   " order by 2", (last.id,))
    assert kept == [(None, last.workflow_id), (last.parents, None)]
    while db.value("select queen.ojs_purge_v1(7, %s)", (at(8 * 86400),)):
        pass
    assert db.value("select count(*) from queen.ojs_workflow_jobs") == 0
    assert jobs.call("jobs_dead_retry_v1", last.id).verdict == "ok"
    (again,) = jobs.fetch()
    assert (again.id, json.loads(again.parents)) == (last.id, results)
    assert jobs.get(row.id).parents is None

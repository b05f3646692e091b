# SPDX-License-Identifier: Apache-2.0
"""Unique jobs over HTTP: what counts as the same, and what happens then."""
import threading

import pytest

import queenlib


@pytest.fixture(name="push")
def push_of(ojs):
    """push(unique, args, ..) -> (status, job or error)."""
    def push(unique, args=(), type="mail.send", options=None, **more):
        reply = ojs.post("/ojs/v1/jobs", {
            "type": type, "args": list(args),
            "options": {"unique": unique, **(options or {})}, **more})
        body = reply.body
        if "deduplicated" in body:
            assert body["deduplicated"] is True and reply.status == 200
        return reply.status, body.get("job") or body["error"]
    return push


def conflict(found, job):
    """The refusal that names the job."""
    status, error = found
    assert (status, error["code"]) == (409, "duplicate"), error
    assert error["details"]["existing_job_id"] == job["id"]
    key = error["details"]["unique_key"]
    assert len(key) == 64 and set(key) <= set("0123456789abcdef")
    return key


def fresh(found):
    status, job = found
    assert status == 201, job
    return job


def test_keys(push):
    # the type alone, then with other dimensions; each key is another
    first = fresh(push({}))
    keys = {conflict(push({}, [1], meta={"a": 1}), first)}
    assert fresh(push({}, type="mail.other"))["id"] != first["id"]
    by_queue = fresh(push({"keys": ["queue"]}))
    keys.add(conflict(push({"key": ["type", "queue"]}, [2]), by_queue))
    fresh(push({"keys": ["queue"]}, options={"queue": "q2"}))

    by_args = {"keys": ["type", "args"]}
    args = [1.0, {"b": [True, None], "a": "x"}]
    one = fresh(push(by_args, args))
    # the same value, written otherwise
    keys.add(conflict(push(by_args, [1, {"a": "x", "b": [True, None]}]), one))
    fresh(push(by_args, [1, {"a": "x", "b": [None, True]}]))

    by_id = {"keys": ["args"], "args_keys": ["user", "list"]}
    one = fresh(push(by_id, ["head", {"user": 7, "n": 1}, {"user": 8}]))
    keys.add(conflict(push(by_id, [{"n": 2, "user": 7.0}]), one))
    fresh(push(by_id, [{"user": 8}]))
    fresh(push(by_id, [{"user": 7, "list": 1}]))

    by_meta = {"keys": ["meta"], "meta_keys": ["tenant"]}
    one = fresh(push(by_meta, meta={"tenant": "t", "trace": 1}))
    keys.add(conflict(push(by_meta, [1], meta={"tenant": "t"}), one))
    fresh(push(by_meta, meta={"tenant": "u"}))
    assert len(keys) == 5

    # e with an accent in one character and in two; names of members too
    one = fresh(push(by_args, [{"caf\u00e9": "\u00e9t\u00e9"}]))
    conflict(push(by_args, [{"cafe\u0301": "e\u0301te\u0301"}]), one)


def test_on_conflict(ojs, push):
    one = fresh(push({"on_conflict": "ignore"}, [1]))
    status, same = push({"on_conflict": "ignore"}, [2])
    assert status == 200
    assert same.pop("deduplicated", True) is True
    assert same["id"] == one["id"] and same["args"] == [1]

    two = fresh(push({"on_conflict": "replace"}, [2]))
    assert ojs.job(one["id"])["state"] == "cancelled"
    assert two["state"] == "available" and two["id"] != one["id"]

    when = "2099-12-31T23:59:59Z"
    later = fresh(push({}, type="a.b", options={"scheduled_at": when}))
    moved = fresh(push({"on_conflict": "replace_except_schedule"}, [2],
                       type="a.b", options={
                           "scheduled_at": "2098-01-01T00:00:00Z"}))
    assert ojs.job(later["id"])["state"] == "cancelled"
    assert moved["state"] == "scheduled" and moved["args"] == [2]
    assert moved["scheduled_at"] == when
    now = fresh(push({"on_conflict": "replace"}, type="a.b"))
    assert now["state"] == "available"
    assert ojs.job(moved["id"])["state"] == "cancelled"
    # an active one is replaced too, and its worker is told by a 409
    taken = ojs.fetch("default", count=10)
    assert now["id"] in [j["id"] for j in taken]
    fresh(push({"on_conflict": "replace"}, type="a.b"))
    ojs.ack(now["id"], status=409)


def test_states_and_period(ojs, push, db):
    def end(job):
        assert [j["id"] for j in ojs.fetch("default")] == [job["id"]]
        ojs.ack(job["id"])

    one = fresh(push({}))
    taken = ojs.fetch("default")
    assert [j["id"] for j in taken] == [one["id"]]
    conflict(push({}), one)
    fresh(push({"states": ["available", "pending"]}))
    ojs.ack(one["id"])
    two = ojs.fetch("default")[0]
    ojs.ack(two["id"])
    # what has ended counts only when its state is named
    third = fresh(push({}))
    end(third)
    ended = {"states": ["completed"]}
    conflict(push(ended), third)
    # only for a while after it was made
    ended["period"] = "PT1H"
    conflict(push(ended), third)
    db.rows("update queen.jobs set created_at = created_at"
            " - interval '1 hour 1 second'")
    fourth = fresh(push(ended))
    end(fourth)
    ended["period"] = "PT3H"
    conflict(push(ended), fourth)
    # a scheduled and a pending job stand in the way
    for options in {"scheduled_at": "+PT1H"}, {"pending": True}:
        kind = "k." + next(iter(options))
        waits = fresh(push({}, type=kind, options=options))
        conflict(push({}, type=kind), waits)


def test_batches(ojs):
    def batch(*jobs, status=201):
        return ojs.ask("POST", "/jobs/batch", {"jobs": [
            {"type": t, "args": [], "options": {"unique": u}}
            for t, u in jobs]}, status)

    made = batch(("b.a", {}), ("b.b", {}), ("b.a", {"on_conflict": "ignore"}),
                 ("b.a", {"on_conflict": "replace"}))["jobs"]
    assert [j["type"] for j in made] == ["b.a", "b.b", "b.a", "b.a"]
    assert made[2]["id"] == made[0]["id"] != made[3]["id"]
    assert made[2]["deduplicated"] is True
    # all or nothing, and the first that fails is named
    error = batch(("b.c", {}), ("b.d", {}), ("b.c", {}), status=409)["error"]
    assert error["code"] == "duplicate" and error["details"]["index"] == 2
    left = ojs.fetch("default", count=10)
    assert [(j["id"], j["type"]) for j in left] == [
        (made[1]["id"], "b.b"), (made[3]["id"], "b.a")]


def test_bad_policies(ojs):
    for unique, field in (({"keys": ["id"]}, "keys"), ([], "unique"),
                          ({"keys": ["meta"]}, "meta_keys"),
                          ({"period": "1 hour"}, "period"),
                          ({"states": ["held"]}, "states"),
                          ({"on_conflict": "merge"}, "on_conflict")):
        error = ojs.refused("POST", "/jobs", {
            "type": "a", "args": [], "options": {"unique": unique}},
            400, "invalid_request")
        assert error["details"] == {"field": field}
    assert ojs.fetch("default") == []


def test_one_of_many_at_once(ojs):
    answers, ready = [], threading.Barrier(8)

    def push():
        ready.wait(queenlib.DEADLINE_S)
        for n in range(5):
            answers.append(ojs.post("/ojs/v1/jobs", {
                "type": "race.n%d" % n, "args": [],
                "unique": {"on_conflict": "ignore"}}))

    threads = [threading.Thread(target=push) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(a.status for a in answers) == [200] * 35 + [201] * 5
    assert len({a.body["job"]["id"] for a in answers}) == 5

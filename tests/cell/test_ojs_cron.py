# SPDX-License-Identifier: Apache-2.0
"""
Recurring jobs over HTTP: registration in both forms, lists, and firing by the
process, with due times moved in the database.
"""
import datetime

from queenlib import wait_until

CASE = {"name": "nightly", "expression": "0 3 * * *",
        "timezone": "Europe/Rome", "overlap_policy": "allow",
        "job_template": {"type": "report.build", "args": [1, {"x": 2}],
                         "options": {"queue": "reports", "priority": 4}}}
FLAT = {"name": "flat", "cron": "@hourly", "type": "a.b", "args": [],
        "meta": {"m": 1}, "options": {"queue": "q"}}


def moment(text):
    return datetime.datetime.fromisoformat(text.replace("Z", "+00:00"))


def make_due(db, name):
    db.rows("update queen.ojs_crons set next_at = now(), look_at = now()"
            " where name = %s", (name,))


def test_both_forms(ojs):
    cron = ojs.ask("POST", "/cron", CASE, 201)["cron"]
    assert cron["name"] == "nightly"
    assert cron["expression"] == cron["cron"] == "0 3 * * *"
    assert cron["timezone"] == "Europe/Rome"
    assert cron["overlap_policy"] == "allow" and cron["enabled"] is True
    assert cron["job_template"] == CASE["job_template"]
    assert cron["type"] == "report.build" and cron["args"] == [1, {"x": 2}]
    assert cron["options"] == {"queue": "reports", "priority": 4}
    assert "last_run_at" not in cron and "last_job_id" not in cron
    due = moment(cron["next_run_at"])
    assert (due.hour, due.minute) in ((1, 0), (2, 0))
    assert moment(cron["created_at"]) < due

    flat = ojs.ask("POST", "/cron", FLAT, 201)["cron"]
    assert flat["expression"] == "@hourly" and flat["timezone"] == "UTC"
    assert flat["overlap_policy"] == "skip"
    assert flat["job_template"] == {"type": "a.b", "args": [],
                                    "meta": {"m": 1},
                                    "options": {"queue": "q"}}
    assert moment(flat["next_run_at"]).minute == 0

    # the same again, and changed
    assert ojs.ask("POST", "/cron", CASE)["cron"] == {
        **cron, "updated_at": ojs.ask("GET", "/cron/nightly")["cron"][
            "updated_at"]}
    off = ojs.ask("POST", "/cron", {**CASE, "enabled": False})["cron"]
    assert off["enabled"] is False and "next_run_at" not in off
    assert off["created_at"] == cron["created_at"]


def test_list_get_delete(ojs):
    for i in range(3):
        ojs.ask("POST", "/cron", {**FLAT, "name": "c/%d" % i}, 201)
    page = ojs.ask("GET", "/cron?limit=2")
    assert [c["name"] for c in page["crons"]] == ["c/0", "c/1"]
    assert page["cron_jobs"] == page["crons"]
    assert page["pagination"]["total"] == 3
    assert page["pagination"]["has_more"] is True
    rest = ojs.ask("GET", "/cron?limit=2&cursor="
                   + page["pagination"]["next_cursor"])
    assert [c["name"] for c in rest["crons"]] == ["c/2"]
    assert rest["pagination"]["has_more"] is False
    assert [c["name"] for c in ojs.ask("GET", "/cron?offset=1")["crons"]] == [
        "c/1", "c/2"]
    ojs.refused("GET", "/cron?cursor=_w", None, 400, "invalid_request")

    one = ojs.ask("GET", "/cron/c%2F1")["cron"]
    gone = ojs.ask("DELETE", "/cron/c%2F1")
    assert gone == {"cron": one, "deleted": True, "name": "c/1"}
    for method in "GET", "DELETE":
        ojs.refused(method, "/cron/c%2F1", None, 404, "not_found")
    assert ojs.ask("GET", "/cron")["pagination"]["total"] == 2


def test_refusals(ojs):
    def field(status=400, **more):
        body = {k: v for k, v in {**CASE, **more}.items() if v is not ...}
        error = ojs.refused("POST", "/cron", body, status, "invalid_request")
        return error["details"]["field"]

    assert field(name=...) == "name"
    assert field(expression=...) == "expression"
    for wrong in ("0 0 * * * * *", "60 * * * *", "*/0 * * * *", "* 9-5 * * *",
                  "0 0 30 2 *", "@reboot", "", "* * * * FOO"):
        assert field(expression=wrong) == "expression", wrong
    for wrong in "Mars/Olympus", "EST5EDT4", "+01:00", "europe/rome":
        assert field(timezone=wrong) == "timezone", wrong
    assert field(overlap_policy="queue") == "overlap_policy"
    assert field(job_template=...) == "type"
    assert field(job_template={"type": "A B", "args": []}) == "type"
    assert field(job_template={"type": "a", "args": [], "options": {
        "scheduled_at": "+PT1H"}}) == "scheduled_at"
    ojs.refused("POST", "/cron", b"", 400, "invalid_payload")
    ojs.refused("POST", "/cron", b"[]", 400, "invalid_payload")
    retry = {"type": "a", "args": [], "options": {
        "retry": {"max_attempts": -1}}}
    assert ojs.ask("POST", "/cron", {**CASE, "job_template": retry},
                   422)["error"]["type"] == "validation_error"
    assert ojs.ask("GET", "/cron")["crons"] == []


def test_firing(ojs, db):
    ojs.ask("POST", "/cron", CASE, 201)
    make_due(db, "nightly")
    # a fetch that waits is woken by it
    job, = ojs.fetch("reports", wait_ms=5000)
    assert job["type"] == "report.build" and job["args"] == [1, {"x": 2}]
    assert job["priority"] == 4
    cron = ojs.ask("GET", "/cron/nightly")["cron"]
    assert cron["last_job_id"] == job["id"]
    assert moment(cron["next_run_at"]) > moment(cron["last_run_at"])
    # skip: as long as that one has not ended
    ojs.ask("POST", "/cron", {**CASE, "overlap_policy": "skip"})
    make_due(db, "nightly")
    wait_until(lambda: moment(ojs.ask("GET", "/cron/nightly")["cron"][
        "next_run_at"]) == moment(cron["next_run_at"]))
    assert ojs.fetch("reports") == []
    # enqueue: once it has
    ojs.ask("POST", "/cron", {**CASE, "overlap_policy": "enqueue"})
    make_due(db, "nightly")
    wait_until(lambda: db.value("select owed from queen.ojs_crons"))
    ojs.ack(job["id"])
    second, = ojs.fetch("reports", wait_ms=5000)
    # cancel_previous
    ojs.ask("POST", "/cron", {**CASE, "overlap_policy": "cancel_previous"})
    make_due(db, "nightly")
    third, = ojs.fetch("reports", wait_ms=5000)
    assert ojs.job(second["id"])["state"] == "cancelled"
    assert len({job["id"], second["id"], third["id"]}) == 3
    assert ojs.metrics()["queen_ojs_cron_jobs_total"] == 3
    # deleted, its jobs stay
    ojs.ask("DELETE", "/cron/nightly")
    ojs.ack(third["id"])


def test_two_processes_fire_once(new_ojs, db):
    one, two = (new_ojs().start() for _ in range(2))
    for i in range(10):
        one.ask("POST", "/cron", {**FLAT, "name": "c%d" % i,
                                  "overlap_policy": "allow"}, 201)
    for n in range(1, 4):
        db.rows("update queen.ojs_crons set next_at = now(), look_at = now()")
        wait_until(lambda: db.value(
            "select min(look_at) > now() from queen.ojs_crons"))
        assert db.value("select count(*) from queen.jobs") == 10 * n
    made = sum(o.metrics()["queen_ojs_cron_jobs_total"] for o in (one, two))
    assert made == 30

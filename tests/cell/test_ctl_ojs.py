# SPDX-License-Identifier: Apache-2.0
"""queenctl job and stream against a queen-ojs: lines, columns, exit codes."""
import json
import os
import re

import pytest

from ctlkit import AUTH, NOTHING, SERVER, USER, Ctl, answer, table
from queenlib import wait_until

ID = r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}"


@pytest.fixture
def octl(ojs, folder):
    home = os.path.join(folder, "home")
    os.makedirs(home, exist_ok=True)
    return Ctl(home, QUEEN_OJS_URL="http://127.0.0.1:%d" % ojs.port.number)


def push(ctl, *args):
    said = ctl.run("job", "push", *args)
    found = re.fullmatch(r"pushed (%s) (\w+)\n" % ID, said)
    assert found, said
    return found.groups()


def test_a_job_from_push_to_its_end(octl):
    job, state = push(octl, "mail.send", '["ada"]', "--queue", "mail",
                      "--priority", "5", "--max-attempts", "3", "--timeout",
                      "2m", "--lease", "90s", "--meta", '{"m":1}')
    assert state == "available"
    seen = octl.json("job", "get", job)
    assert (seen["args"], seen["priority"], seen["max_attempts"],
            seen["timeout_ms"], seen["visibility_timeout_ms"],
            seen["meta"]) == (["ada"], 5, 3, 120000, 90000, {"m": 1})
    assert table(octl.run("job", "get", job, "-o", "table"))[1][:5] == [
        job, "mail.send", "mail", "available", "0"]

    assert octl.run("job", "fetch", "empty", code=NOTHING) == ""
    got, = octl.lines("job", "fetch", "none, mail", "--worker", "w", "-n", "9")
    assert (got["id"], got["worker_id"], got["attempt"]) == (job, "w", 1)
    other = job[:-1] + ("1" if job[-1] == "0" else "0")
    assert octl.run("job", "heartbeat", "w", job + "," + other,
                    "--lease", "1h") == "running extended=1 lost=1\n"
    said = octl.run("job", "nack", job, "no way", "--type", "smtp.down",
                    "--details", '{"d":1}', "--worker", "w")
    assert re.fullmatch(r"retryable %s attempt=1/3 next=2\S+Z\n" % job, said)
    error = octl.json("job", "get", job)["error"]
    assert (error["type"], error["message"], error["details"]) == (
        "smtp.down", "no way", {"d": 1})
    got, = octl.lines("job", "fetch", "mail", "--wait", "20s")
    for why in ("why",), ("--final",), ("--type", "t"), ("--details", "1"), \
            ("--code", "FAIL"):
        assert octl.fails(USER, "job", "nack", job, *why, "--requeue") == (
            "queenctl: --requeue gives it back without an error: no message, "
            "--type, --code, --details or --final beside it\n")
    assert octl.run("job", "nack", job, "--requeue") == \
        "available %s attempt=2/3\n" % job
    got, = octl.lines("job", "fetch", "mail")
    assert octl.run("job", "ack", job, '{"sent":true}', "--attempt", "3") == \
        "completed %s\n" % job
    assert octl.json("job", "get", job)["result"] == {"sent": True}
    assert "Job is completed, not active" in octl.fails(
        SERVER, "job", "ack", job)
    wait_until(lambda: {"job.enqueued", "job.started", "job.completed"} <= {
        e["type"] for e in octl.json("job", "events", "--job-types",
                                     "mail.send")})
    row = table(octl.run("job", "events", "--types", "job.completed", "-o",
                         "table"))[1]
    assert row[1:] == ["job.completed", job, "mail.send", "mail", "3"]


def test_who_is_asked_is_queen_ojs(octl, ojs, cell):
    url = octl.env["QUEEN_OJS_URL"]
    at = "http://127.0.0.1:%d" % cell.port.number
    assert octl.json("job", "queue-list", QUEEN_OJS_URL=url + "/ojs/v1/") == []
    for command in (("job", "queue-list"), ("job", "push", "t", "[]"),
                    ("stream", "info", "s")):
        assert octl.fails(SERVER, *command, QUEEN_OJS_URL=at) == \
            "queenctl: %s is no queen-ojs (HTTP 404)\n" % at
    assert octl.fails(SERVER, "job", "push", "t", stdin="[]\n",
                      QUEEN_OJS_URL=at) == \
        "queenctl: %s is no queen-ojs (HTTP 404)\n" % at
    assert "cannot reach http://127.0.0.9:6634: " in octl.fails(
        SERVER, "job", "queue-list", "--server", "http://127.0.0.9:1")
    assert octl.fails(USER, "config", "set-context", "c", "--ojs-url",
                      "nonsense") == (
        'queenctl: server "nonsense" must start with http:// or https://\n')


def test_lines_become_jobs(octl):
    assert octl.run("job", "push", "t", "--batch", "2", stdin="[1]\n\n[2]\n"
                    "[3]\n") == "sent=3\n"
    assert octl.run("job", "push", stdin='{"type":"u","args":[4],'
                    '"queue":"other","x":1}\n') == "sent=1\n"
    assert [j["args"] for j in octl.lines("job", "fetch", "-n", "9")] == \
        [[1], [2], [3]]
    assert octl.lines("job", "fetch", "other")[0]["x"] == 1
    rows = octl.json("job", "push", "t", "--unique", '{"keys":["type"],'
                     '"on_conflict":"ignore"}', stdin="[5]\n")
    assert [r["args"] for r in rows] == [[5]]
    assert octl.run("job", "push", "t", "--unique", '{"keys":["type"],'
                    '"on_conflict":"ignore"}', stdin="[5]\n") == \
        "sent=0 known=1\n"
    assert octl.run("job", "push", "t", "--dry-run", stdin="[1]\n[2]\n") == \
        "would send 2 jobs\n"
    assert octl.fails(NOTHING, "job", "push", "t") == ""
    assert "line 2: " in octl.fails(USER, "job", "push", "t",
                                    stdin="[1]\n[2\n")
    # blank lines count, and what was sent before
    assert octl.fails(SERVER, "job", "push", "t", "--batch", "2",
                      stdin="[1]\n\n[2]\n[3]\n\n{}\n").startswith(
        "queenctl: line 6: `args` must be an array")
    assert octl.fails(SERVER, "stream", "append", "s", stdin='{"type":"t",'
                      '"payload":1}\n\n{"type":"t"}\n').startswith(
        "queenctl: line 3: `payload` of message 1 ")
    one = ("one", "[]", "--unique", '{"keys":["type"]}')
    job, _ = push(octl, *one)
    assert "It is %s." % job in octl.fails(SERVER, "job", "push", *one)
    assert "--queue needs a type" in octl.fails(USER, "job", "push",
                                                "--queue", "q", stdin="{}")
    assert "`args` must be an array" in octl.fails(SERVER, "job", "push", "t",
                                                   "{}")
    assert "not JSON" in octl.fails(USER, "job", "push", "t", "[")


def test_waiting_pending_and_cancelled_jobs(octl):
    job, state = push(octl, "t", "[]", "--delay", "1h", "--expires", "2h")
    assert state == "scheduled"
    assert octl.run("job", "cancel", job) == "cancelled %s\n" % job
    assert "Job is cancelled" in octl.fails(SERVER, "job", "cancel", job)
    job, state = push(octl, "t", "[]", "--pending")
    assert state == "pending"
    assert octl.run("job", "activate", job) == "available %s\n" % job


def test_dead_letters_of_jobs(octl):
    job, _ = push(octl, "t", "[]", "--retry", '{"max_attempts":1,'
                  '"on_exhaustion":"dead_letter"}')
    other, _ = push(octl, "t", "[]", "--queue", "q2")
    octl.run("job", "fetch", "default,q2", "-n", "2")
    assert octl.run("job", "nack", job, "x").startswith("discarded ")
    octl.run("job", "nack", other, "--code", "DEAD_LETTER")
    page = octl.json("job", "dead", "list", "--limit", "1")
    assert page[0]["id"] == other
    cursor = re.match(r"queenctl: there are more: --cursor (\S+)\n\Z",
                      octl.err).group(1)
    page = octl.json("job", "dead-list", "--cursor", cursor)
    assert [x["id"] for x in page] == [job] and octl.err == ""
    assert octl.fails(USER, "job", "dead-retry", job) == (
        "queenctl: refusing to run a dead letter again without --yes\n")
    assert octl.run("job", "dead", "retry", job, "--yes") == \
        "available %s\n" % job
    assert octl.run("job", "dead", "delete", other, "--yes") == \
        "deleted %s\n" % other
    assert "HTTP 404" in octl.fails(SERVER, "job", "get", other)
    assert octl.json("job", "dead-list") == []


def test_recurring_jobs_and_workflows(octl):
    text = ("name: nightly\nexpression: '0 3 * * *'\ntimezone: Europe/Rome\n"
            "job_template:\n  type: report\n  args: [1]\n")
    assert octl.run("job", "cron-apply", "-f", "-", stdin=text) == \
        "created cron nightly\n"
    assert octl.run("job", "cron", "apply", "-f", "-", stdin=text) == \
        "changed cron nightly\n"
    row = table(octl.run("job", "cron-list", "-o", "table"))[1]
    assert row[:3] == ["nightly", "0 3 * * *", "Europe/Rome"]
    # what is shown can be applied, one and all
    one = octl.run("job", "cron-get", "nightly", "-o", "json")
    assert octl.run("job", "cron-apply", "-f", "-", stdin=one) == \
        "changed cron nightly\n"
    assert octl.run("job", "cron-apply", "-f", "-", stdin=octl.run(
        "job", "cron-list", "-o", "yaml")) == "changed cron nightly\n"
    assert "job_template:\n" in octl.run("job", "cron-get", "nightly", "-o",
                                         "table")
    assert json.loads(one)["name"] == "nightly"
    assert "expression" in octl.fails(SERVER, "job", "cron-apply", "-f", "-",
                                      stdin=text.replace("0 3", "99 3"))
    octl.run("job", "cron-apply", "-f", "-", code=SERVER, stdin=text
             + "---\n" + text.replace("0 3", "99 3"))
    assert octl.err.startswith("queenctl: document 2: ")
    assert octl.run("job", "cron-delete", "nightly", "--yes") == \
        "deleted nightly\n"
    assert octl.json("job", "cron-list") == []
    assert octl.fails(NOTHING, "job", "cron-apply", "-f", "-") == ""
    assert "--file" in octl.fails(USER, "job", "workflow-apply")

    text = json.dumps({"type": "chain", "name": "two", "steps": [
        {"type": "a", "args": []}, {"type": "b", "args": []}]})
    assert octl.run("job", "workflow-apply", "-f", "-", "--dry-run",
                    stdin=text) == "would send 1\n"
    said = octl.run("job", "workflow-apply", "-f", "-", stdin=text)
    flow = re.fullmatch(r"created workflow (%s)\n" % ID, said).group(1)
    row = table(octl.run("job", "workflow-list", "-o", "table"))[1]
    assert row[:5] == [flow, "chain", "two", "running", "2"]
    assert octl.run("job", "workflow-cancel", flow) == "cancelled %s\n" % flow
    assert octl.json("job", "workflow-get", flow)["state"] == "cancelled"


def test_queues_of_jobs_and_streams(octl):
    assert octl.run("job", "queue-create", "q", "--max-jobs", "2") == \
        "created q\n"
    assert octl.run("job", "queue-config", "q", "--lease", "5m",
                    "--job-retention", "1h", "--retention", "2h",
                    "--max-retries", "7") == "configured q\n"
    assert octl.run("job", "queue-create", "q") == "there is q\n"
    assert octl.run("job", "queue-create", "q", "--dead-letter-max", "4") == \
        "changed q\n"
    config = octl.json("job", "queue-config", "q", "--default",
                       "max-events, dead-letter-max")
    assert config["dead_letter_max"] == 10000 and "max_events" not in config
    for wrong in "max_jobs", "default", "":
        octl.run("job", "queue-config", "q", "--default", wrong + ",x",
                 code=USER)
        assert 'no option is called "%s"' % wrong in octl.err
    assert "exclude" in octl.fails(USER, "job", "queue-config", "q",
                                   "--default", "lease", "--lease", "1s")
    config = octl.json("job", "queue-config", "q")
    assert (config["max_jobs"], config["visibility_timeout_ms"],
            config["job_retention"], config["retention_ms"],
            config["max_retries"]) == (2, 300000, "1h", 7200000, 7)
    octl.run("job", "push", "t", "--queue", "q", stdin="[]\n[]\n")
    assert octl.run("job", "queue-pause", "q") == "paused q\n"
    assert octl.fails(NOTHING, "job", "fetch", "q") == ""
    assert table(octl.run("job", "queue", "list", "-o", "table"))[1][:4] == [
        "q", "paused", "2", "0"]
    assert octl.run("job", "queue-resume", "q") == "resumed q\n"
    octl.run("job", "fetch", "q")
    stats = octl.json("job", "queue-stats", "q")["queue"]
    assert (stats["available"], stats["active"]) == (1, 1)
    octl.run("job", "cron-apply", "-f", "-", stdin="name: n\nexpression: "
             "'@daily'\njob_template: {type: t, args: [], options: {queue: q}}")
    assert [x["name"] for x in octl.json("job", "cron-list")] == ["n"]
    assert octl.fails(USER, "job", "queue-drop", "q") == (
        "queenctl: refusing to drop a queue, its jobs, recurring jobs and "
        "stream without --yes\n")
    assert octl.run("job", "queue-drop", "q", "--yes") == "dropped q\n"
    assert octl.json("job", "queue-list") == []
    assert octl.json("job", "cron-list") == []


def test_a_stream_from_append_to_its_end(octl):
    assert re.fullmatch(r"created billing at tick \d+\n", octl.run(
        "stream", "subscribe", "orders", "billing"))
    assert octl.run("stream", "subscribe", "orders", "billing").startswith(
        "there is billing at tick ")
    assert re.fullmatch(r"appended e-1 seq=1\n", octl.run(
        "stream", "append", "orders", "order.paid", '{ "n": 1 }', "--id",
        "e-1", "--headers", '{"h":1}'))
    assert octl.run("stream", "append", "orders", "t", stdin="2\n3\n") == \
        "sent=2\n"
    assert octl.run("stream", "append", "orders", stdin='{"type":"u",'
                    '"payload":null,"id":"e-4"}\n') == "sent=1\n"
    lines = octl.run("stream", "receive", "orders", "billing").splitlines()
    got = [json.loads(x) for x in lines]
    assert '"payload":{ "n": 1 }' in lines[0]
    assert [(m["type"], m["payload"]) for m in got] == [
        ("order.paid", {"n": 1}), ("t", 2), ("t", 3), ("u", None)]
    batch = str(got[0]["batch_id"])
    rows = table(octl.run("stream", "batch", "orders", batch, "-o", "wide"))
    assert rows[0][0] == "ID" and len(rows) == 5
    assert octl.json("stream", "batch", "orders", batch, "--payload")[
        "messages"][1]["payload"] == 2
    assert re.fullmatch(r"retry e-4 retries=1/5 next=2\S+Z\n", octl.run(
        "stream", "nack", "orders", batch, "e-4", "--retry-after", "1ms",
        "--reason", "r"))
    assert re.fullmatch(
        r"acknowledged %s, billing is at tick \d+\n" % batch,
        octl.run("stream", "ack", "orders", batch, "--consumer", "billing"))
    assert "HTTP 404" in octl.fails(SERVER, "stream", "ack", "orders", batch)
    again, = octl.lines("stream", "receive", "orders", "billing", "--ack",
                        "--wait", "20s")
    assert (again["id"], again["retry_count"]) == ("e-4", 1)
    assert octl.fails(NOTHING, "stream", "receive", "orders", "billing") == ""
    row, = octl.json("stream", "consumers", "orders")
    assert (row["name"], row["lag_events"], row["batches"]) == (
        "billing", 0, [])
    assert octl.json("stream", "info", "orders")["stream"]["consumers"] == 1
    assert octl.run("stream", "subscribe", "orders", "billing", "--from",
                    "0").startswith("moved billing at tick ")
    assert len(octl.lines("stream", "receive", "orders", "billing",
                          "--member", "m1")) >= 4
    assert "HTTP 413" in octl.fails(SERVER, "stream", "receive", "orders",
                                    "billing", "--member", "m2", "--max", "0"
                                    ) or "`max`" in octl.err
    assert octl.run("stream", "unsubscribe", "orders", "billing",
                    "--yes") == "deleted billing\n"


def test_dead_letters_of_streams(octl):
    octl.run("job", "queue-create", "s", "--max-retries", "0")
    octl.run("stream", "subscribe", "s", "c")
    octl.run("stream", "append", "s", "t", stdin="1\n2\n")
    first, second = octl.lines("stream", "receive", "s", "c")
    batch = str(first["batch_id"])
    assert octl.run("stream", "nack", "s", batch, "--seq", str(first["seq"]),
                    "--reason", "bad") == \
        "dead_letter %s retries=0/0\n" % first["id"]
    octl.run("stream", "nack", "s", batch, second["id"])
    octl.run("stream", "ack", "s", batch)
    rows = octl.json("stream", "dead", "list", "s", "--consumer", "c")
    assert {r["message_id"]: r["reason"] for r in rows}[first["id"]] == "bad"
    assert "without --yes" in octl.fails(USER, "stream", "dead-replay", "s")
    one = [str(r["id"]) for r in rows if r["message_id"] == first["id"]]
    assert octl.run("stream", "dead-replay", "s", *one, "--yes") == \
        "replayed 1\n"
    assert "HTTP 404" in octl.fails(SERVER, "stream", "dead-replay", "s",
                                    *one, "--yes")
    assert octl.run("stream", "dead-replay", "s", "--yes") == "replayed 1\n"
    assert octl.fails(NOTHING, "stream", "dead-replay", "s", "--yes") == ""
    got = octl.lines("stream", "receive", "s", "c")
    assert sorted(m["payload"] for m in got) == [1, 2]
    octl.run("stream", "nack", "s", str(got[0]["batch_id"]), got[0]["id"])
    assert octl.fails(NOTHING, "stream", "dead-purge", "s", "--yes") == ""
    assert octl.run("stream", "dead-purge", "s", "--older-than", "0s",
                    "--yes") == "purged 1\n"


def test_a_refusal_tells_why_and_how_to_go_on(stub, octl):
    ctl = stub(answer(401, {"error": {"code": "permission_denied",
                                      "message": "No token."}}))
    url = ctl.env["QUEEN_SERVER"]
    assert ctl.fails(AUTH, "job", "get", "x", QUEEN_OJS_URL=url,
                     QUEEN_TOKEN="t") == "queenctl: No token. (HTTP 401)\n"
    assert ctl.seen[0][2]["Authorization"] == "Bearer t"
    assert "name a message" in octl.fails(USER, "job", "nack", "x")
    assert "--seq" in octl.fails(USER, "stream", "nack", "q", "1")
    assert "exclude" in octl.fails(USER, "job", "push", "t", "[]", "--retry",
                                   "{}", "--max-attempts", "2")
    assert "--meta: " in octl.fails(USER, "job", "push", "t", "[]", "--meta",
                                    "{")
    assert "cannot reach http://127.0.0.1:1" in octl.fails(
        SERVER, "job", "queue-list", QUEEN_OJS_URL="http://127.0.0.1:1")


def test_the_context_may_name_it(octl):
    url = octl.env.pop("QUEEN_OJS_URL")
    octl.run("config", "set-context", "c", "--server", "http://127.0.0.1:1",
             "--ojs-url", url)
    assert octl.json("job", "queue-list") == []
    assert octl.json("config", "get-contexts")[0]["ojsUrl"] == url
    assert "ojs_url: " in octl.run("config", "view")


def test_a_granted_role_serves_jobs_and_streams(db, new_ojs, octl):
    role = db.role("o")
    url = "postgresql://queen@127.0.0.1:%d/%s" % (db.server.port.number,
                                                  db.name)
    said = octl.run("schema", "grant", role, "--streams", "--dry-run",
                    "--conninfo", url)
    assert said.endswith('grant create on database "%s" to "%s";\n' % (
        db.name, role))
    octl.run("schema", "grant", role, "--streams", "--conninfo", url)
    one = new_ojs(PG_USER=role).start()
    one.push_job(queue="granted")
    one.subscribe("granted", "c")
    one.append("granted", {"type": "t", "payload": 1})
    got = one.receive("granted", "c")
    assert [m["payload"] for m in got["messages"]] == [1]
    one.stream_ack("granted", got["batch"]["id"])
    assert len(one.fetch("granted")) == 1
    assert wait_until(lambda: one.metrics()["queen_ojs_sweeps_total"] > 1)
    assert one.metrics()["queen_ojs_sweep_failures_total"] == 0
    one.ask("DELETE", "/queues/granted")
    one.term()
    db.rows("drop owned by %s cascade" % role)

# SPDX-License-Identifier: Apache-2.0
"""
queenctl job queue-backup and queue-restore: a queue with all it holds, into
another server or under another name, from which work goes on; what was changed
or cut off leaves nothing behind.
"""
import collections
import hashlib
import json
import os
import re
import subprocess
import threading
import time

import pytest

from ctlkit import SERVER, USER, Ctl
from queenlib import TENANT, wait_until

LATER = "2099-01-01T00:00:00Z"


def ctl_of(folder, db):
    """A queenctl that knows the database and no server."""
    home = os.path.join(folder, "home")
    os.makedirs(home, exist_ok=True)
    return Ctl(home, QUEEN_PG_CONNINFO=db.conninfo())


@pytest.fixture
def dbctl(folder, db):
    return ctl_of(folder, db)


@pytest.fixture
def there(folder, far):
    """The same for another server."""
    ctl = ctl_of(folder, far)
    ctl.run("schema", "apply")
    return ctl


@pytest.fixture
def copy(pg):
    """Another database."""
    made = pg.new_db()
    yield made
    made.drop()


def backup(ctl, queue):
    return ctl.run("job", "queue-backup", queue).splitlines()


def restore(ctl, lines, *args, code=0):
    """Its words."""
    out = ctl.run("job", "queue-restore", *args, code=code,
                  stdin="".join(x + "\n" for x in lines))
    return out if code == 0 else ctl.err


def kinds(lines):
    """Kind -> its rows."""
    found = collections.defaultdict(list)
    for line in lines:
        doc = json.loads(line)
        assert re.fullmatch("[0-9a-f]{16}", doc.pop("check"))
        (kind, row), = doc.items()
        found[kind].append(row)
    return found


def sealed(bodies):
    """Lines with checks that are right, the last with the right counts."""
    check, lines, counts = "", [], {}
    for body in bodies:
        kind = next(iter(json.loads(body)))
        if kind == "end":
            body = json.dumps({"end": {"lines": len(lines), **counts}},
                              separators=(",", ":"))
        counts[kind] = counts.get(kind, 0) + 1
        check = hashlib.sha256((check + body).encode()).hexdigest()[:16]
        lines.append('{"check":"%s",%s' % (check, body[1:]))
    return lines


def bodies(lines):
    return ["{" + line[len('{"check":"0123456789abcdef",'):]
            for line in lines]


def kept(lines):
    """Kind -> rows, but for numbers that are given anew."""
    found = kinds(lines)
    del found["header"], found["stream"][0]["segment_started_at"]
    for job in found["job"]:
        del job["seq"], job["queue_id"]
    for cron in found["cron"]:
        cron["template"] = json.dumps(cron["template"])
    for batch in found["batch"]:
        del batch["row"]["batch_id"]
        for row in (batch["events"] or []) + (batch["nacks"] or []):
            del row["batch_id"]
    for rows in found.values():
        rows.sort(key=json.dumps)
    return found


def left(db):
    """What a queue would leave in a database."""
    return db.rows("select name from queen.ojs_queues where deleted_at is null"
                   " order by name"), db.rows(
        "select nspname from pg_namespace where nspname like 'queen_ojs_%'"
        " order by nspname"), db.value("select count(*) from queen.jobs"), \
        db.value("select count(*) from queen.ojs_workflows")


def payloads(got):
    return [m["payload"] for m in got["messages"]]


def drained(ojs, queue, consumer, **more):
    """(id, payload) of all there is, acknowledged."""
    seen = []
    while True:
        got = ojs.receive(queue, consumer, **more)
        if not got["batch"]:
            return seen
        seen += [(m["id"], m["payload"]) for m in got["messages"]
                 if m.get("outcome") is None]
        ojs.stream_ack(queue, got["batch"]["id"])


# ---- everything a queue holds ----

def fill(ojs):
    """A queue with something of everything; ids of its jobs by what they are."""
    ojs.ask("POST", "/queues/q/config", {
        "max_jobs": 99, "retention": "3h", "max_retries": 0,
        "visibility_timeout_ms": 7000})
    once = {"max_attempts": 1, "on_exhaustion": "dead_letter"}
    ids = {"dead": ojs.push_job(queue="q", retry=once)["id"],
           "active": ojs.push_job(queue="q", priority=9)["id"]}
    got = ojs.fetch("q", count=2, worker_id="w")
    assert [j["id"] for j in got] == [ids["active"], ids["dead"]]
    ojs.nack(ids["dead"], {"message": "no"})
    ids["done"] = ojs.push_job(queue="q", priority=99, meta={"a": "\u00e9\n"}
                               )["id"]
    ojs.fetch("q")
    ojs.ack(ids["done"], result={"x": [1.50, "\t"]})
    ids["again"] = ojs.push_job(queue="q", priority=98, retry={
        "initial_interval": "PT1H", "max_interval": "PT1H"})["id"]
    ojs.fetch("q")
    ojs.nack(ids["again"], {"message": "later"})
    ids["cancelled"] = ojs.push_job(queue="q")["id"]
    ojs.ask("DELETE", "/jobs/" + ids["cancelled"])
    ids["pending"] = ojs.push_job(queue="q", pending=True)["id"]
    ids["scheduled"] = ojs.push_job(queue="q", scheduled_at=LATER)["id"]
    ids["unique"] = ojs.push_job("u", queue="q", unique={
        "keys": ["type"], "on_conflict": "ignore"})["id"]
    ojs.ask("POST", "/cron", {
        "name": "c", "expression": "0 3 1 1 *", "overlap_policy": "allow",
        "job_template": {"type": "t", "args": [1.0, "\0"],
                         "options": {"queue": "q"}}}, 201)

    def flow(queue, first):
        return ojs.ask("POST", "/workflows", {"type": "chain", "steps": [
            {"type": "a", "args": [], "options": {"queue": "q",
                                                  "priority": first}},
            {"type": "b", "args": [], "options": {"queue": queue}},
            {"type": "c", "args": [], "options": {"queue": "q"}}]},
            201)["workflow"]
    whole, split = flow("q", 97), flow("z", 0)
    # the second step is shown the result of the first
    ojs.ack(ojs.fetch("q")[0]["id"], result={"r": 1})
    ids["whole"] = [s["id"] for s in whole["steps"]]
    ids["split"] = [s["id"] for s in split["steps"]]
    ids["flow"] = whole["id"]
    return ids


def fill_stream(ojs):
    """Consumers at all places; the batches they hold."""
    for name in "plain", "away", "group", "dead":
        ojs.subscribe("q", name)
    ojs.append("q", *({"type": "t", "id": "e%d" % n, "payload": [n, "\n"],
                       "headers": {"h": "1"}} for n in range(3)))
    held = ojs.receive("q", "plain")
    ojs.ask("POST", "/streams/nack", {
        "queue": "q", "batch_id": ojs.receive("q", "dead")["batch"]["id"],
        "message_id": "e0"})
    one = ojs.receive("q", "group", member="one")
    ojs.append("q", {"type": "t", "id": "e3", "payload": 3})
    two = ojs.receive("q", "group", member="two")
    assert (len(one["messages"]), len(two["messages"])) == (3, 1)
    # acknowledged, but not the first
    ojs.stream_ack("q", two["batch"]["id"])
    ojs.append("q", {"type": "t", "id": "e4", "payload": 4})
    return held


def look(ojs, ids, queue="q"):
    """What a person sees of it, job by job, consumer by consumer."""
    at = "/queues/" + queue
    seen = {path: ojs.ask("GET", at + path) for path in (
        "/config", "/consumers", "/dlq", "/info", "/stats")}
    seen["cron"] = ojs.ask("GET", "/cron")
    seen["dead"] = ojs.ask("GET", "/dead-letter")
    seen["flow"] = ojs.ask("GET", "/workflows/" + ids["flow"])
    for name in ("dead", "done", "again", "cancelled", "pending", "scheduled",
                 "unique"):
        seen["job " + name] = ojs.job(ids[name])
    seen["job step"] = ojs.job(ids["whole"][1])
    assert '[{"r": 1}]' in json.dumps(seen["job step"])
    del seen["/stats"]["computed_at"]
    for consumer in seen["/consumers"]["consumers"]:
        consumer.pop("lag_ms", None)
        for batch in consumer["batches"]:
            batch.pop("id", None)
            batch.pop("batch_id", None)
    return seen


def test_all_of_a_queue_goes_on_in_another_server(ojs, dbctl, far, there,
                                                  new_ojs):
    ids = fill(ojs)
    fill_stream(ojs)
    lines = backup(dbctl, "q")
    assert dbctl.err == (
        "queenctl: workflows with jobs in other queues: 1;"
        " their jobs here are backed up without them\n")
    before = look(ojs, ids)
    found = kinds(lines)
    assert [len(found[k]) for k in ("job", "workflow", "cron", "event",
                                    "subscription", "batch",
                                    "dead_letter")] == [
        len(found["job"]), 1, 1, 5, 4, 4, 1]
    said = restore(there, lines)
    assert said.startswith('restored "q" workflow=1 job=') and \
        " event=5 " in said
    assert kept(backup(there, "q")) == kept(lines)
    moved = new_ojs(far, QUEEN_OJS_TEST="true").start()
    after = look(moved, ids)
    # the active one is available again, and was tried once
    job = moved.job(ids["active"])
    assert (job["state"], job["attempt"], job["priority"]) == (
        "available", 1, 9)
    shown = before["/stats"]["queue"]
    shown["active"] -= 1
    shown["available"] += 1
    before["/stats"]["stats"]["depth"] += 1
    # the held step of the split workflow waits for a person
    shown["pending"] += 1
    assert after == before
    assert moved.job(ids["split"][2])["state"] == "pending"
    assert "workflow_id" not in moved.job(ids["split"][0])

    # unique, workflow and order go on; each job runs once
    assert moved.push_job("u", queue="q", status=200, unique={
        "keys": ["type"], "on_conflict": "ignore"})["id"] == ids["unique"]
    ran = []

    def run():
        for one in moved.fetch("q", count=9):
            ran.append(one["id"])
            moved.ack(one["id"])
        return len(ran) >= 5
    wait_until(run)
    assert ran[0] == ids["active"]
    assert sorted(ran) == sorted([ids["active"], ids["unique"],
                                  ids["split"][0], *ids["whole"][1:]])
    assert [ran.index(x) for x in ids["whole"][1:]] == sorted(
        ran.index(x) for x in ids["whole"][1:])
    assert moved.ask("GET", "/workflows/" + ids["flow"])["workflow"][
        "state"] == "completed"

    # every event that was not acknowledged comes once
    again = moved.receive("q", "plain")
    assert [m["id"] for m in again["messages"]] == ["e0", "e1", "e2"]
    assert (again["messages"][0]["payload"],
            again["messages"][0]["headers"]) == ([0, "\n"], {"h": "1"})
    moved.append("q", {"type": "t", "id": "e5", "payload": 5})
    assert [x[0] for x in drained(moved, "q", "plain")] == [
        "e0", "e1", "e2", "e3", "e4", "e5"]
    assert [x[0] for x in drained(moved, "q", "away")] == [
        "e0", "e1", "e2", "e3", "e4", "e5"]
    assert [x[0] for x in drained(moved, "q", "group", member="one")] == [
        "e0", "e1", "e2", "e4", "e5"]
    assert [x[0] for x in drained(moved, "q", "dead")] == [
        "e1", "e2", "e3", "e4", "e5"]
    # and once more is too often
    was = left(far)
    assert restore(there, lines, code=SERVER) == (
        'queenctl: there is a queue "q" already; --as gives another name\n')
    assert left(far) == was


# ---- while it is used ----

class Load:
    """Producers, a worker and a consumer of a queue, until stop."""

    def __init__(self, ojs):
        self.ojs, self.stopped = ojs, threading.Event()
        self.events_acked, self.jobs_acked, self.faults = [], [], []
        self.threads = [threading.Thread(target=self.guarded, args=(f,))
                        for f in (self.produce, self.work, self.consume)]
        for thread in self.threads:
            thread.start()

    def guarded(self, step):
        n = 0
        try:
            while not self.stopped.is_set():
                step(n)
                n += 1
        except Exception as e:  # pylint: disable=broad-except
            self.faults.append(repr(e))

    def produce(self, n):
        self.ojs.append("q", *({"type": "t", "payload": [n, k]}
                               for k in range(7)))
        self.ojs.push_job(queue="q", args=[n])

    def work(self, _):
        for job in self.ojs.fetch("q", count=2):
            self.ojs.ack(job["id"])
            self.jobs_acked.append(job["id"])

    def consume(self, _):
        got = self.ojs.receive("q", "c")
        if got["batch"]:
            self.ojs.stream_ack("q", got["batch"]["id"])
            self.events_acked += [m["id"] for m in got["messages"]]

    def stop(self):
        self.stopped.set()
        for thread in self.threads:
            thread.join()
        assert not self.faults


def test_a_queue_in_use_is_of_one_moment(ojs, dbctl, far, there, folder,
                                         new_ojs):
    ojs.subscribe("q", "c")
    load = Load(ojs)
    try:
        wait_until(lambda: len(load.events_acked) > 100
                   and len(load.jobs_acked) > 10)
        sure = set(load.events_acked), set(load.jobs_acked)
        lines = backup(dbctl, "q")
        wait_until(lambda: len(load.events_acked) > len(sure[0]) + 20)
    finally:
        load.stop()
    found = kinds(lines)
    events = [e["event_id"] for e in found["event"]]
    jobs = {j["id"]: j["state"] for j in found["job"]}
    assert len(set(events)) == len(events) and sure[0] <= set(events)
    # what is appended in one call is there as a whole
    assert set(collections.Counter(
        json.loads(e["payload"])[0] for e in found["event"]).values()) == {7}
    assert {i for i, state in jobs.items() if state == 5} >= sure[1]

    path = os.path.join(folder, "q.jsonl")
    with open(path, "w") as f:
        f.write("".join(x + "\n" for x in lines))
    assert there.run("job", "queue-restore", path).startswith('restored "q"')
    moved = new_ojs(far, QUEEN_OJS_TEST="true").start()
    fresh = moved.append("q", {"type": "t", "id": "new", "payload": 0})
    assert fresh
    came = [x[0] for x in drained(moved, "q", "c")]
    assert len(set(came)) == len(came) and came[-1] == "new"
    before = set(events) - set(came)
    assert sure[0] <= before <= set(load.events_acked)
    ran = []
    while True:
        got = moved.fetch("q", count=9)
        if not got:
            break
        for job in got:
            ran.append(job["id"])
            moved.ack(job["id"])
    assert sorted(ran) == sorted(i for i, s in jobs.items() if s != 5)


@pytest.mark.allpg
def test_what_commits_late_is_in_its_tick(dbctl, db, copy, folder):
    def append(cur, *names):
        cur.execute("select verdict from queen.stream_append_v1(%s, 'q', %s,"
                    " array_fill('t'::text, array[%s]), %s,"
                    " array_fill(null::text, array[%s]))",
                    (TENANT, list(names), len(names),
                     [json.dumps(n) for n in names], len(names)))
        assert cur.fetchone() == (0,)

    queue = db.value("select queen.stream_ensure_v1(%s, 'q')", (TENANT,))
    db.value("select verdict from queen.stream_subscribe_v1(%s, 'q', 'c',"
             " '0')", (TENANT,))
    tick = "select queen.stream_tick_v1(%s, true)" % queue
    late, never = (db.connect(autocommit=False) for _ in range(2))
    with db.connect().cursor() as cur, late.cursor() as cur_late, \
            never.cursor() as cur_never:
        append(cur_late, "late")
        append(cur, "soon")
        assert db.value(tick) == 2
        late.commit()
        append(cur, "then")
        assert db.value(tick) == 3
        append(cur, "last")
        append(cur_never, "never")
        lines = backup(dbctl, "q")
        never.rollback()
    assert {e["event_id"]: e["tick"] for e in kinds(lines)["event"]} == {
        "late": 3, "soon": 2, "then": 3, "last": 0}
    restore(ctl_of(folder, copy), lines)
    seen = []
    while True:
        got = copy.rows("select batch_id, event_id from"
                        " queen.stream_receive_v1(%s, 'q', 'c', null, 2, null,"
                        " null)", (TENANT,))
        if got[0][0] is None:
            break
        seen.append([x[1] for x in got[1:]])
        copy.value("select verdict from queen.stream_ack_v1(%s, 'q', %s,"
                   " null, null)", (TENANT, got[0][0]))
    assert seen == [["soon"], ["late", "then"], ["last"]]


def test_what_a_cron_shows_is_kept_as_it_was_written(db):
    """Nothing of it goes through jsonb: order, doubles, numbers, blanks in
    values, and what PostgreSQL has no character for."""
    args = (r'"args":[{"b":1,"a":"\u0000","b":1e2}, 1.50, "\ud800\\", "\\\"",'
            '"\ufdd0 \\u00e9"]')
    rest = ('"type":"t",%s,"options":{"z": 1,%s"\\u0000":"\\/"},"job_template":'
            '{"x":{"b":1,"a":2},%s,"options":{"z":1,%s"\\u0000":"\\/"}}')
    shown = "select queen.ojs_restore_shown(%s, 'r')"
    assert db.value(shown, (rest % (args, '"queue":"q",', args,
                                    '"queue":"q",'),)) == rest.replace(
        '"z": 1', '"z":1') % (args, '"queue":"r",', args, '"queue":"r",')
    assert db.value(shown, ('"type":"t","args":[],"job_template":'
                            '{"type":"t"}',)) == (
        '"type":"t","args":[],"job_template":{"type":"t","options":'
        '{"queue":"r"}},"options":{"queue":"r"}')


# ---- the same cell ----

def test_another_name_in_the_same_cell(ojs, dbctl, db, folder):
    ids = fill(ojs)
    held = fill_stream(ojs)
    path = os.path.join(folder, "b.jsonl")
    assert dbctl.run("job", "queue-backup", "q", "--out", path).startswith(
        'backed up "q" workflow=1 job=')
    assert os.stat(path).st_mode & 0o777 == 0o600
    was = left(db)
    error = dbctl.fails(SERVER, "job", "queue-restore", path, "--as", "r")
    assert error == ('queenctl: line 3: there is a workflow "%s" already\n'
                     % ids["flow"])
    assert "line 1: a queue's name must match" in dbctl.fails(
        USER, "job", "queue-restore", path, "--as", "No")
    assert left(db) == was
    before = look(ojs, ids)
    # another tenant has ids of its own
    assert dbctl.run("job", "queue-restore", path, "--tenant",
                     "00000000-0000-0000-0000-0000000000aa")
    assert db.value("select count(*) from queen.jobs j join queen.ojs_queues q"
                    " on q.id = j.queue_id where q.tenant <> %s", (TENANT,)
                    ) == sum('"job":{' in x for x in open(path))

    ojs.ask("DELETE", "/queues/q")
    restored = wait_until(lambda: try_restore(dbctl, path))
    assert restored.startswith('restored "r" workflow=1 job=')
    after = look(ojs, ids, "r")
    template = after["cron"]["crons"][0]["job_template"]
    assert template["options"]["queue"] == "r"
    assert ojs.job(ids["active"])["queue"] == "r"
    for seen in before, after:
        del seen["cron"], seen["flow"], seen["/stats"]
    text = json.dumps(before).replace('"queue": "q"', '"queue": "r"').replace(
        '"name": "q"', '"name": "r"')
    assert after == json.loads(text)
    # what was held under the old number is held under a new one
    again = ojs.receive("r", "plain")
    assert again["messages"] == held["messages"]
    assert again["batch"]["id"] != held["batch"]["id"]
    ojs.stream_ack("r", held["batch"]["id"], 404)
    assert len(drained(ojs, "r", "plain")) == 5


def try_restore(ctl, path):
    """None while rows of the dropped queue are still being removed."""
    try:
        return ctl.run("job", "queue-restore", path, "--as", "r")
    except AssertionError:
        assert " already" in ctl.err
        return None


# ---- what is refused ----

@pytest.mark.allpg
def test_what_is_not_whole_leaves_nothing(ojs, dbctl, copy, folder):
    fill(ojs)
    fill_stream(ojs)
    there = ctl_of(folder, copy)
    lines = backup(dbctl, "q")
    plain = bodies(lines)
    assert sealed(plain) == lines
    n = len(lines)
    was = left(copy)
    assert was == ([], [], 0, 0)

    def refused(changed, *words):
        error = restore(there, changed, code=USER)
        assert all(w in error for w in words), error
        assert left(copy) == was

    for cut in range(1, n, 7):
        refused(lines[:cut], "cut off: line %d is the last" % cut)
    refused(lines[:-1], "cut off: line %d is the last" % (n - 1))
    refused([], "cut off: line 0 is the last")
    refused(lines[:4] + [lines[4][:-9]], "line 5 was changed or cut off")
    refused(lines[:4] + [lines[4][:20]], "line 5 is no line of a backup")
    refused(lines + [lines[-1]], "line %d: the backup ended" % (n + 1))
    refused(lines[:3] + [""] + lines[3:], "a line before line 5 is blank")
    for i in range(0, n, 5):
        text = lines[i]
        at = len(text) - 4 - i % 9
        swap = "1" if text[at] == "0" else "0"
        refused(lines[:i] + [text[:at] + swap + text[at + 1:]]
                + lines[i + 1:], "line %d was changed" % (i + 1))
    refused(lines[:2] + lines[3:], "line 3 was changed")
    refused(lines[:2] + [lines[3], lines[2]] + lines[4:], "line 3 was changed")
    refused(lines[1:], "line 1 was changed")
    refused(['{"a":1}'], "line 1 is no line of a backup")
    refused(sealed(plain[1:]), "line 1: this is no backup of a queue")

    # right checks, wrong words
    def told(i, old, new, *words):
        assert old in plain[i], plain[i]
        refused(sealed(plain[:i] + [plain[i].replace(old, new, 1)]
                       + plain[i + 1:]), *words)

    def first(kind):
        return next(i for i, x in enumerate(plain)
                    if x.startswith('{"%s":' % kind))

    told(0, '"version":1', '"version":2',
         "line 1: version 2 is not known, only 1")
    told(0, '"queue":"q"', '"queue":"Q!"', "line 1: Q!")
    i = first("job") + 1
    told(i, '"max_attempts":', '"max_attempts":"x","y":',
         "line %d: invalid input" % (i + 1))
    told(i, '{"job":', '{"jab":', 'line %d: unknown kind "jab"' % (i + 1))
    i = first("event") + 2
    told(i, '"tick":', '"tick":99,"x":',
         "line %d: an event names a tick that is not there" % (i + 1))
    told(i, '"payload":"', '"payload":"{', "line %d: invalid input" % (i + 1))
    told(first("subscription"), '"next_tick":', '"next_tick":77,"x":',
         "does not fit together: there is no tick 77")
    assert dbctl.fails(SERVER, "job", "queue-backup", "none") == \
        'queenctl: there is no queue "none"\n'
    assert "cannot open" in there.fails(USER, "job", "queue-restore", "/none")
    # and as it is, it is taken
    assert restore(there, lines).startswith('restored "q"')


# ---- much ----

def peak_kib(ctl, args, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL):
    """Most memory a queenctl was seen with."""
    with subprocess.Popen(ctl.argv(*args), env=ctl.env, stdin=stdin,
                          stdout=stdout) as proc:
        peak = 0
        while proc.poll() is None:
            with open("/proc/%d/status" % proc.pid) as f:
                found = re.search(r"VmHWM:\s+(\d+) kB", f.read())
            peak = max(peak, int(found.group(1)) if found else 0)
            time.sleep(0.001)
        assert proc.returncode == 0
    return peak


def filled(db, queue, calls):
    """So many appends of 2000 events of 2 KiB, a tick after each; its id."""
    found = db.value("select queen.stream_ensure_v1(%s, %s)", (TENANT, queue))
    for k in range(calls):
        assert db.value(
            "select verdict from queen.stream_append_v1(%s, %s, array(select"
            " 'e' || i from generate_series(%s, %s) i), array_fill('t'::text,"
            " array[2000]), array(select '\"' || repeat(md5(i::text), 64) ||"
            " '\"' from generate_series(1, 2000) i),"
            " array_fill(null::text, array[2000]))",
            (TENANT, queue, 2000 * k + 1, 2000 * k + 2000)) == 0
        assert db.value("select queen.stream_tick_v1(%s)", (found,))
    return found


def test_memory_stays_flat(dbctl, db, copy, folder):
    queues = {"few": filled(db, "few", 2), "many": filled(db, "many", 10)}
    there = ctl_of(folder, copy)
    out, back = {}, {}
    for queue in queues:
        path = os.path.join(folder, queue)
        with open(path, "w") as f:
            out[queue] = peak_kib(dbctl, ("job", "queue-backup", queue),
                                  stdout=f)
        with open(path) as f:
            back[queue] = peak_kib(there, ("job", "queue-restore"), f)
    assert os.path.getsize(path) > 40 << 20
    assert max(out["many"] - out["few"], back["many"] - back["few"]) < \
        4 << 10, (out, back)
    count = ("select count(*), max(event_id collate \"C\"), sum(bytes),"
             " md5(string_agg(payload::text, '' order by seq)) from"
             " queen_ojs_%s.stream_events")
    assert copy.rows(count % copy.value(
        "select id from queen.ojs_queues where name = 'many'")) == \
        db.rows(count % queues["many"])
    # each tick sees what it saw
    assert copy.value("select verdict from queen.stream_subscribe_v1("
                      "%s, 'many', 'c', '0')", (TENANT,)) == 0
    assert copy.rows(
        "select verdict, start_tick, end_tick, size from"
        " queen.stream_receive_v1(%s, 'many', 'c', null, 5000, null, null)"
        " where seq is null", (TENANT,)) == [(0, 1, 3, 4000)]

# SPDX-License-Identifier: Apache-2.0
"""queenctl connector: documents in YAML and JSON, tables, exit codes."""
import json

import pytest

from ctlkit import NOTHING, SERVER, USER
from queenlib import TENANT
from sealkit import K1
from test_connectors import DEFAULT, SINK, SOURCE, raw, report, state

YAML = """\
name: orders-src
kind: source
connection:
  url: postgres://cdc:%s@db1/shop?sslmode=require
source:
  tables:
    - {table: public.orders, queue: orders, partitionBy: single}
---
name: copy
kind: sink
connection: {host: warehouse, database: dw, user: writer}
sink: {queue: orders, table: public.orders_copy, mode: cdc, workers: 4}
"""


def cells(text):
    return [line.split() for line in text.splitlines()]


@pytest.mark.cellenv(QUEEN_ENCRYPTION_KEY=K1)
def test_apply_and_show(ctl, db):
    secret = "geheim-4711"
    assert ctl.run("connector", "apply", "--dry-run", "-f", "-",
                   stdin=YAML % secret).splitlines() == [
        '[dry-run] would apply connector "orders-src"',
        '[dry-run] would apply connector "copy"']
    assert raw(db, "copy") is None
    assert ctl.run("connectors", "apply", "-f", "-",
                   stdin=YAML % secret).splitlines() == [
        'applied connector "orders-src"', 'applied connector "copy"']
    assert cells(ctl.run("connector", "list", "-o", "table")) == [
        ["NAME", "KIND", "ENABLED", "PHASE", "HOST", "DATABASE"],
        ["copy", "sink", "true", "unknown", "warehouse", "dw"],
        ["orders-src", "source", "true", "unknown", "db1", "shop"]]
    one = ctl.json("connector", "get", "orders-src")
    assert one["connection"]["passwordSet"] is True
    assert one["source"]["tables"] == [{
        "table": "public.orders", "queue": "orders", "partitionBy": "single"}]
    # what is shown can be applied again, whatever the form
    for form in "yaml", "json":
        text = ctl.run("connector", "get", "orders-src", "-o", form)
        assert secret not in text
        ctl.run("connector", "apply", "-f", "-", stdin=text)
    again = ctl.json("connector", "get", "orders-src")
    assert again.pop("updatedAt") > one.pop("updatedAt")
    assert again == one
    ctl.run("connector", "apply", "other", "-f", "-", stdin=json.dumps(SINK))
    assert ctl.json("connector", "get", "other")["kind"] == "sink"
    answer = ctl.json("connector", "apply", "other", "-f", "-",
                      stdin=json.dumps(SINK))
    assert (answer["name"], answer["sink"]["batch"]) == ("other", 500)


def test_apply_refuses_before_it_sends(ctl, db):
    for args, stdin, words in (
            ([], None, "name it with --file"),
            (["-f", "-"], json.dumps(SINK), "document 1 has no name"),
            (["-f", "-"], "- 1", "document 1: expected a mapping"),
            (["-f", "-"], "a: [", "-: "),
            (["x", "-f", "-"], json.dumps(dict(SINK, name="y")),
             'named "y", not "x"'),
            (["x", "-f", "-"], "---\na: 1\n---\na: 2\n",
             "a name goes with one document"),
            (["-f", "-"], json.dumps(dict(SINK, name="a")) + "\n---\nb: 1\n",
             "document 2 has no name")):
        assert words in ctl.fails(USER, "connector", "apply", *args,
                                  stdin=stdin or "")
    assert db.value("select count(*) from queen.kv") == 0
    assert ctl.run("connector", "apply", "-f", "-", stdin="---\n",
                   code=NOTHING) == ""
    # the server's refusal is told with the field
    bad = dict(SINK, name="a", sink=dict(SINK["sink"], batch=0))
    assert "invalid_connector: sink.batch: 0 is outside 1..=10000" in \
        ctl.fails(SERVER, "connector", "apply", "-f", "-",
                  stdin=json.dumps(bad))


def test_apply_tells_warnings(ctl):
    for name in "a", "b":
        ctl.run("connector", "apply", name, "-f", "-", stdin=json.dumps(
            dict(SOURCE, source=dict(SOURCE["source"], slot="s"))))
    assert ctl.err == (
        "queenctl: warning: b: source.slot: the connector a uses the same "
        "slot of the same database; give each its own\n")


def test_delete(ctl, db):
    for name in "a", "b", "c":
        ctl.run("connector", "apply", name, "-f", "-",
                stdin=json.dumps(SINK if name == "a" else SOURCE))
    assert "without --yes" in ctl.fails(USER, "connector", "delete", "a")
    assert ctl.run("connector", "delete", "a", "--yes") == 'deleted "a"\n'
    assert ctl.run("connector", "rm", "b", "-y") == 'asked to delete "b"\n'
    assert raw(db, "b")["deleting"]["dropSlot"] is True
    assert ctl.run("connector", "delete", "b", "-y", "--keep-slot") == \
        'deleted "b"\n'
    assert "queenctl: warning: the slot queen_b stays" in ctl.err
    assert ctl.json("connector", "delete", "c", "-y")["deleting"] is True
    assert "connector_not_found" in ctl.fails(SERVER, "connector", "delete",
                                              "a", "-y")


def test_resync(cell, ctl, db):
    cell.push("orders", [1])
    for name, document in ("src", SOURCE), ("snk", SINK):
        ctl.run("connector", "apply", name, "-f", "-",
                stdin=json.dumps(document))
    assert "without --yes" in ctl.fails(USER, "connector", "resync", "src")
    assert ctl.run("connector", "resync", "src", "-y") == \
        'resync of "src" is asked for\n'
    assert raw(db, "src")["resyncRequestedAt"]
    assert "not_a_source" in ctl.fails(SERVER, "connector", "resync", "snk",
                                       "-y")
    for place in "beginning", "end", "1h", "2026-01-01T00:00:00Z":
        assert ctl.json("connector", "resync", "snk", "-y", "--from",
                        place)["partitionsUpdated"] == 1
    assert "--from takes beginning, end or a time" in ctl.fails(
        USER, "connector", "resync", "snk", "-y", "--from", "offset:1")
    ctl.fails(USER, "connector", "resync", "snk", "-y", "--from", "now-ish")


def test_adopt_and_reset(ctl, db):
    ctl.run("connector", "apply", "src", "-f", "-", stdin=json.dumps(SOURCE))
    assert "nothing_to_decide" in ctl.fails(SERVER, "connector", "adopt",
                                            "src")
    report(db, "src", phase="error", error={"code": "cell_changed"})
    assert ctl.run("connector", "adopt", "src") == \
        'adopt of "src" is asked for\n'
    assert raw(db, "src")["takeover"]["action"] == "adopt"
    assert "without --yes" in ctl.fails(USER, "connector", "reset", "src")
    assert ctl.json("connector", "reset", "src", "-y") == {
        "name": "src", "cell": raw(db, "src")["takeover"]["cell"],
        "requestedAt": raw(db, "src")["takeover"]["requestedAt"]}
    assert raw(db, "src")["takeover"]["action"] == "reset"


@pytest.mark.cellenv(QUEEN_ENCRYPTION_KEY=K1)
def test_pause_resume_and_restart_keep_the_document(ctl, db):
    pause = "connector", "pause", "orders-src"
    ctl.run("connector", "apply", "-f", "-",
            stdin=YAML.split("---")[0] % "geheim")
    before = raw(db, "orders-src")
    assert ctl.run(*pause) == 'paused "orders-src"\n'
    after = raw(db, "orders-src")
    assert after.pop("updatedAt") > before.pop("updatedAt")
    assert after == dict(before, enabled=False)
    ctl.run(*pause, code=NOTHING)
    assert "is paused; resume starts it" in ctl.fails(
        SERVER, "connector", "restart", "orders-src")
    assert ctl.run("connector", "resume", "orders-src") == \
        'resumed "orders-src"\n'
    again = raw(db, "orders-src")
    at = again.pop("updatedAt")
    assert again == before
    assert ctl.json("connector", "restart", "orders-src")["updatedAt"] > at
    ctl.run("connector", "delete", "orders-src", "-y")
    for verb in "pause", "restart":  # a write would take the deletion back
        assert "is being deleted" in ctl.fails(SERVER, "connector", verb,
                                               "orders-src")
    assert raw(db, "orders-src")["deleting"]
    assert "connector_not_found" in ctl.fails(SERVER, "connector", "pause",
                                              "none")


def test_status(ctl, db):
    for name, document in ("src", SOURCE), ("snk", SINK):
        ctl.run("connector", "apply", name, "-f", "-",
                stdin=json.dumps(document))
    report(db, "src", phase="streaming", since="then", messages=1234,
           slotLagBytes=56, error=None, restarts=2)
    report(db, "snk", kind="sink", phase="error", applied=7, error={
        "code": "no_key", "message": "set sink.key"})
    state(db, "src", "lease", {"node": "node-a"}, DEFAULT)
    state(db, "src", "pointer", {"lsn": "0/1A2B"}, DEFAULT)
    assert cells(ctl.run("connector", "status", "-o", "table")) == [
        ["NAME", "KIND", "PHASE", "SINCE", "MESSAGES", "LAGBYTES", "ERROR"],
        ["snk", "sink", "error", "-", "7", "-", "no_key"],
        ["src", "source", "streaming", "then", "1,234", "56", "-"]]
    wide = cells(ctl.run("connector", "status", "src", "-o", "wide"))
    assert len(wide) == 2
    assert wide[1][-4:] == ["2", "node-a", "0/1A2B", "-"]
    assert ctl.json("connector", "status", "snk")["status"]["error"][
        "code"] == "no_key"
    assert "connector_not_found" in ctl.fails(SERVER, "connector", "status",
                                              "none")


def test_doctor_finds_connectors_that_do_not_work(ctl, db):
    ctl.env.update(PG_HOST="127.0.0.1", PG_PORT=str(db.server.port.number),
                   PG_USER="queen", PG_DATABASE=db.name)
    for name, document in (
            ("bad", SINK), ("fine", SOURCE), ("off", dict(SINK, enabled=False)),
            ("nobody", SOURCE), ("old", SINK)):
        ctl.run("connector", "apply", name, "-f", "-",
                stdin=json.dumps(document))
    report(db, "bad", kind="sink", phase="error", error={
        "code": "no_key", "message": "set sink.key"})
    report(db, "fine", phase="streaming", error=None,
           lastError={"code": "io", "message": "gone"})
    report(db, "old", kind="sink", phase="running", error=None, age_s=60)
    found = [f for f in ctl.json("doctor", code=USER)["findings"]
             if f["what"].startswith("connector ")]
    assert found == [
        {"level": "ERROR", "what": "connector bad: no_key: set sink.key",
         "fix": "as it says; then: queenctl connector status bad"},
        {"level": "WARN", "what": "connector nobody is reported by no node",
         "fix": "start queen-pgsrc on a node, or look into its log"},
        {"level": "WARN", "what": "connector old is reported by no node",
         "fix": "start queen-pgsink on a node, or look into its log"}]


def test_doctor_finds_queues_that_are_not_shipped(ctl, db):
    ctl.env.update(PG_HOST="127.0.0.1", PG_PORT=str(db.server.port.number),
                   PG_USER="queen", PG_DATABASE=db.name)
    for name, cell, leased in (("a", None, True), ("b", None, False),
                               ("c", "0123456789ab", True)):
        ctl.run("push", name, "--data", "1")
        db.rows("update queen.segments set created_at = now() - interval"
                " '2 h'")
        for what, value in (("committed", {
                "k": 1, "tEnd": "2020-01-01T00:00:00Z", "cell": cell}),
                ("lease", {"instance": "n1"})):
            if what == "committed" or leased:
                db.rows("select queen.kv_put(%s, 'queen-s3', %s, %s, null,"
                        " null, now())", (TENANT, "s3:s:%s:%s" % (name, what),
                                          json.dumps(value)))
    found = [f for f in ctl.json("doctor", code=USER)["findings"]
             if "in the lake" in f["what"]]
    assert found == [
        {"level": "WARN", "what":
         "queue a is 2h0m0s behind in the lake (sink s, n1)",
         "fix": "look into /status of the node that has it"},
        {"level": "WARN", "what":
         "queue b is 2h0m0s behind in the lake (sink s, no node has it)",
         "fix": "start queen-s3 on a node, or look into its log"},
        {"level": "WARN", "what":
         "queue c is 2h0m0s behind in the lake (sink s, n1)",
         "fix": "its pointer is of another cell: queenctl s3 resume"}]

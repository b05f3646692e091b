# SPDX-License-Identifier: Apache-2.0
"""queenctl s3: documents, where a secret may come from, tables, exit codes."""
import contextlib
import json
import os
import pty
import select
import time

from ctlkit import NOTHING, SERVER, USER, answer, table
from queenlib import DEADLINE_S
from sealkit import keyed
from test_lake_routes import A, DOC, SECRET, row, tenants

FLAGS = ["--queues", "orders", "--endpoint", "https://s3.test", "--region",
         "r1", "--bucket", "lake", "--access-key", "AK"]
YAML = """\
queues: [orders, clicks]
endpoint: https://s3.test
region: r1
bucket: lake
accessKey: AK
targetMb: 64
enabled: false
"""


def secret_file(ctl, text=SECRET + "\n"):
    path = os.path.join(ctl.home, "secret")
    with open(path, "w") as f:
        f.write(text)
    return path


def sink(ctl, *args, **kw):
    return ctl.json("s3", "get", *args, **kw)


@keyed
def test_set_by_flags_and_by_file(ctl, cell, db):
    assert "this cluster has no S3 sink (HTTP 404)" in \
        ctl.fails(SERVER, "s3", "get")
    assert "its secret key is needed: in --secret-file or" in \
        ctl.fails(USER, "s3", "set", *FLAGS)
    assert ctl.run("s3", "set", *FLAGS, "--secret-file",
                   secret_file(ctl)) == "stored the S3 sink of default\n"
    first = sink(ctl)
    assert (first["config"], first["enabled"]) == (DOC, True)
    # what is given is laid over what is stored; an empty text takes away
    ctl.run("lake", "set", "--target-mb", "64", "--path-style", "--prefix",
            "a/b", "--bucket", "b2", "--quiet")
    assert sink(ctl)["config"] == dict(DOC, targetMb=64, pathStyle=True,
                                       prefix="a/b", bucket="b2")
    view = ctl.json("s3", "set", "--prefix", "", "--path-style=false")
    assert view["config"] == dict(DOC, targetMb=64, pathStyle=False,
                                  bucket="b2")
    # a file is the whole of it
    ctl.run("s3", "set", "--file", "-", "--region", "r2", stdin=YAML)
    view = sink(ctl)
    assert view["enabled"] is False and view["config"] == dict(
        DOC, queues=["orders", "clicks"], targetMb=64, region="r2")
    # what is shown can be stored again, whatever the form: nothing changes
    for form in "yaml", "json":
        text = ctl.run("s3", "get", "-o", form)
        ctl.run("s3", "set", "-f", "-", stdin=text)
    assert sink(ctl) == view
    # on, off, and nothing to do
    assert ctl.run("s3", "enable") == "enabled the S3 sink of default\n"
    assert ctl.run("s3", "enable", code=NOTHING) == ""
    assert ctl.run("s3", "disable") == "disabled the S3 sink of default\n"
    assert ctl.run("s3", "disable", code=NOTHING) == ""
    # a sink that is off stays off when its settings change
    ctl.run("s3", "set", "--align", "day")
    assert sink(ctl)["enabled"] is False
    assert "without --yes" in ctl.fails(USER, "s3", "delete")
    assert ctl.run("s3", "delete", "--yes") == \
        "deleted the S3 sink of default\n"
    assert ctl.run("s3", "delete", "--yes", code=NOTHING) == ""
    assert "no S3 sink" in ctl.fails(SERVER, "s3", "enable")


@keyed
def test_where_a_secret_may_come_from(ctl, cell, db):
    def seals(*args, **kw):
        """Whether the secret was stored anew."""
        before = (row(db) or {}).get("secret")
        ctl.run("s3", "set", *args, **kw)
        return row(db)["secret"] != before
    path = secret_file(ctl)
    assert seals(*FLAGS, QUEEN_S3_SECRET_KEY=SECRET)
    assert not seals("--align", "day")
    assert seals(QUEEN_S3_SECRET_KEY_FILE=path)
    assert seals("--secret-file", "-", stdin=SECRET + "\n")
    assert seals("--secret-file", path, QUEEN_S3_SECRET_KEY="")
    for args, stdin, words in (
            (["--secret-file", path + "x"], "", "cannot open"),
            (["--secret-file", "-"], " \n", "- holds no secret"),
            (["--secret-file", "-", "-f", "-"], "", "cannot both be stdin"),
            (["-f", "-"], YAML + "secretKey: %s\n" % SECRET,
             "-: secretKey: give it with --secret-file"),
            (["-f", "-"], YAML + "---\na: 1\n", "more than one document"),
            (["-f", "-"], "---\n", "there is no document"),
            (["-f", "-"], "- 1", "expected a mapping"),
            (["-f", "-"], YAML.replace("false", "maybe"), "enabled: is not"),
            (["-f", path + "x"], "", "cannot open")):
        err = ctl.fails(USER, "s3", "set", *args, stdin=stdin)
        assert words in err and SECRET not in err
    assert ctl.fails(USER, "s3", "set", "--secret-key", SECRET)
    assert "bucket" in ctl.fails(SERVER, "s3", "set", "--bucket", "a/b")


@keyed
def test_a_person_is_asked_for_the_secret(ctl, cell, db):
    def typed(*args):
        """What the terminal showed; the line is typed once it is asked."""
        pid, fd = pty.fork()
        if pid == 0:
            os.execve(ctl.argv()[0], ctl.argv("s3", "set", *args), ctl.env)
        seen = b""

        def more():
            """False once the other end is closed."""
            nonlocal seen
            assert select.select([fd], [], [], DEADLINE_S)[0], seen
            with contextlib.suppress(OSError):
                got = os.read(fd, 4096)
                seen += got
                return got != b""
            return False
        while b"secret access key: " not in seen:
            assert more(), seen
        os.write(fd, SECRET.encode() + b"\n")
        while more():
            pass
        os.close(fd)
        assert os.waitpid(pid, 0)[1] == 0, seen
        return seen.decode()
    # for the first one, and when the key is to be another
    for args in FLAGS, ["--secret-file", "-"]:
        before = row(db)
        shown = typed(*args)
        assert "stored the S3 sink of default" in shown
        assert SECRET not in shown
        assert row(db) != before


@tenants
def test_the_sink_of_a_tenant(ctl, cell, db):
    args = ["s3", "set", *FLAGS, "--secret-file", secret_file(ctl)]
    ctl.run(*args, "--cluster", A)
    assert sink(ctl, "--cluster", A)["tenant"] == A
    # who names a tenant means its sink
    assert sink(ctl, "--tenant", A)["tenant"] == A
    assert sink(ctl, QUEEN_TENANT=A)["tenant"] == A
    assert "no S3 sink" in ctl.fails(SERVER, "s3", "get")
    assert "a cluster is named by" in \
        ctl.fails(SERVER, "s3", "get", "--cluster", "acme")


@keyed
def test_resume(ctl, cell, db):
    ctl.run("queue", "configure", "q")
    for args, want in (
            (["--newest"], {"resume": "newest"}),
            (["--prefix", "p/q"], {"resume": "prefix", "prefix": "p/q"})):
        assert ctl.run("s3", "resume", "q", *args) == \
            'resume of "q" is asked for\n'
        value = db.value("select value from queen.kv where key ="
                         " 's3:default:q:resume'")
        assert value.pop("atMs") and value == want
    assert ctl.json("s3", "resume", "q", "--newest", "--sink", "lake") == {
        "cluster": "default", "requested": True}
    for args in [], ["--newest", "--prefix", "p"]:
        assert "how to go on?" in ctl.fails(USER, "s3", "resume", "q", *args)
    assert "no such queue" in ctl.fails(SERVER, "s3", "resume", "none",
                                        "--newest")


LONG_AGO = time.strftime("%Y-%m-%dT%H:%M:%SZ",
                         time.gmtime(time.time() - 3.5 * 3600))
STATUS = {"mode": "process", "sinks": [
    {"tenant": A, "phase": "running", "sink": "lake", "instance": "n1",
     "error": None, "bucket": {"name": "b", "error": None}, "queues": [
         {"name": "orders", "ownedHere": True, "heldBy": None,
          "state": "filling", "k": 7, "lagSeconds": 6.4, "records": 81234,
          "recordsLost": 0, "bufferedBytes": 1024, "completeThrough": None,
          "lastError": {"at": LONG_AGO, "message": "put: status 503"}},
         {"name": "clicks", "ownedHere": False, "heldBy": "n2",
          "state": "claiming", "k": None, "lagSeconds": None, "records": 0,
          "lastError": None}]},
    {"tenant": "t2", "phase": "error", "error": "cannot be opened"}]}


def test_status(stub):
    ctl = stub(answer(200, STATUS), QUEEN_TOKEN="not-for-this-one")
    url = ctl.env.pop("QUEEN_SERVER")
    head = ["TENANT", "QUEUE", "STATE", "OWNER", "K", "LAG", "RECORDS",
            "ERROR", "AT"]
    rows = [[A, "orders", "filling", "n1", "7", "6s", "81,234",
             "put: status 503", "3 hours ago"],
            [A, "clicks", "claiming", "n2", "-", "-", "0", "-", "-"],
            ["t2", "-", "error", "-", "-", "-", "-", "cannot be opened",
             "-"]]
    assert table(ctl.run("s3", "status", "--url", url + "/", "-o",
                         "table")) == [head] + rows
    assert table(ctl.run("s3", "status", "-o", "wide",
                         QUEEN_S3_URL=url))[0][9:] == [
        "SINK", "BUCKET", "LOST", "BUFFERED", "COMPLETE"]
    assert ctl.json("s3", "status", "--url", url) == STATUS
    assert [r["state"] for r in ctl.lines(
        "s3", "status", "--url", url, "-o", "ndjson")] == [
        "filling", "claiming", "error"]
    assert {path for _, path, _, _ in ctl.seen} == {"/status"}
    assert not any("Authorization" in h for _, _, h, _ in ctl.seen)


def test_status_of_nobody(alone):
    said = alone.fails(SERVER, "s3", "status", "--url", "http://127.0.0.1:1")
    assert "cannot reach http://127.0.0.1:1" in said
    assert "QUEEN_S3_LISTEN" in said


def test_status_of_another(stub):
    ctl = stub(answer(200, {"status": "healthy"}), answer(200, []))
    for _ in range(2):
        assert "is no queen-s3" in ctl.fails(
            SERVER, "s3", "status", "--url", ctl.env["QUEEN_SERVER"])


def test_answers_are_checked(stub):
    assert "HTTP 503" in stub(answer(503, {
        "error": "unavailable", "detail": "down"})).fails(
        SERVER, "s3", "set", *FLAGS)
    ctl = stub(answer(404, {"error": "s3_unset"}),
               answer(409, {"error": "encryption_required",
                            "detail": "set QUEEN_ENCRYPTION_KEY"}),
               QUEEN_S3_SECRET_KEY=SECRET)
    assert "set QUEEN_ENCRYPTION_KEY (HTTP 409)" in ctl.fails(
        SERVER, "s3", "set", *FLAGS)
    assert json.loads(ctl.seen[1][3]) == dict(DOC, enabled=True,
                                              secretKey=SECRET)

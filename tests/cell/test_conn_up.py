# SPDX-License-Identifier: Apache-2.0
"""queenctl up --with: the tools of a private cell, and their key."""
import contextlib
import json
import os
import shutil
import signal
import subprocess
import tempfile
import urllib.request

import pytest

import queenlib
from ctlkit import NOTHING, SERVER, USER, Ctl
from queenlib import wait_until

PASSWORD = "Zwetschge-4711"
SINK = {"kind": "sink", "connection": {
    "host": "127.0.0.1", "port": 1, "database": "d", "user": "u",
    "password": PASSWORD}, "sink": {
        "queue": "q", "table": "public.t", "mode": "append"}}


@pytest.fixture
def home_cell(no_last_cell):
    """A home, and ports of one cell with tools; it is down afterwards."""
    home = tempfile.mkdtemp(prefix="queen-c-", dir="/tmp")
    os.chmod(home, 0o755)
    ports = [queenlib.Port() for _ in range(5)]
    ctl = Ctl(home)
    ctl.dir = os.path.join(home, "cell")
    ctl.port, ctl.src, ctl.sink, ctl.s3, ctl.ojs = (p.number for p in ports)
    ctl.env["QUEEN_PGSRC_LISTEN"] = "127.0.0.1:%d" % ctl.src
    ctl.env["QUEEN_PGSINK_LISTEN"] = "127.0.0.1:%d" % ctl.sink
    ctl.env["QUEEN_S3_LISTEN"] = "127.0.0.1:%d" % ctl.s3
    ctl.env["QUEEN_OJS_PORT"] = str(ctl.ojs)
    ctl.env["QUEEN_S3_INSTANCE"] = "the-only-one"
    ctl.env["QUEEN_PG_RELOAD_MS"] = "500"
    ctl.up = ("up", "--detach", "--dir", ctl.dir, "--port", str(ctl.port))
    yield ctl
    subprocess.run(ctl.argv("down", "--dir", ctl.dir), env=ctl.env,
                   check=False, timeout=120)
    for port in ports:
        port.give()
    shutil.rmtree(home, ignore_errors=True)


def health(port, path="healthz"):
    with contextlib.suppress(OSError):
        with urllib.request.urlopen(
                "http://127.0.0.1:%d/%s" % (port, path), timeout=5) as reply:
            return json.load(reply)
    return {}


def below(supervisor):
    """{name: pid} of the programs it holds up."""
    path = "/proc/%d/task/%d/children" % (supervisor, supervisor)
    found = {}
    with open(path) as f:
        for pid in f.read().split():
            with contextlib.suppress(FileNotFoundError, ProcessLookupError), \
                    open("/proc/%s/comm" % pid) as name:  # just gone
                found[name.read().strip()] = int(pid)
    return found


def test_a_private_cell_with_tools(home_cell):
    ctl = home_cell
    assert "there are pgsrc, pgsink, s3 and ojs" in ctl.fails(
        USER, *ctl.up, "--with", "pgsrc,kafka")
    up = ctl.json(*ctl.up, "--with", "pgsrc,pgsink,s3,ojs")
    assert (up["with"], up["reused"], up["ojsUrl"]) == (
        ["pgsrc", "pgsink", "s3", "ojs"], False,
        "http://127.0.0.1:%d" % ctl.ojs)
    # one key for all of them, which nobody else can read
    path = os.path.join(ctl.dir, "key")
    with open(path) as f:
        key = f.read()
    assert os.stat(path).st_mode & 0o777 == 0o600
    assert len(key) == 65 and int(key, 16) > 0
    running = below(up["pid"])
    assert {"postgres", "queend", "queen-pgsrc", "queen-pgsink",
            "queen-s3", "queen-ojs"} <= set(running)
    for name in set(running) - {"postgres"}:
        with open("/proc/%d/status" % running[name]) as f:
            assert "\nUid:\t0\t" not in f.read(), name
    wait_until(lambda: health(ctl.src).get("status") == "ok")
    wait_until(lambda: health(ctl.s3) == {"ok": True, "queues": 0})
    assert health(ctl.s3, "status")["instance"].split("/")[0] == \
        "the-only-one"
    # without a server, jobs are asked of the cell too
    ctl.run("job", "push", "t", "[]", "--queue", "q")
    assert ctl.json("job", "queue-list")[0]["jobs"]["available"] == 1
    assert "ojs:      http://127.0.0.1:%d\n" % ctl.ojs in ctl.run(*ctl.up)
    # the password that queend sealed opens in the tool
    ctl.run("connector", "apply", "s", "-f", "-",
            stdin=json.dumps(SINK))

    ctl.env["QUEEN_S3_URL"] = "http://127.0.0.1:%d" % ctl.s3
    ctl.run("s3", "set", "--queues", "q", "--endpoint", "http://127.0.0.1:1",
            "--region", "r", "--bucket", "b", "--access-key", "a",
            "--path-style",
            QUEEN_S3_SECRET_KEY=PASSWORD)

    def failed():
        found = ctl.json("connector", "get", "s")["status"]
        return found if found.get("phase") == "error" else None
    block = wait_until(failed)
    assert block["error"]["code"] == "postgres"
    assert wait_until(lambda: health(ctl.sink)["processes"] == 1)

    def refused():
        return [s["bucket"]["error"] for s in
                ctl.json("s3", "status")["sinks"]
                if s["phase"] == "starting" and s["bucket"]["error"]]
    assert "onnect" in wait_until(refused)[0]
    # a tool that dies is started again
    os.kill(running["queen-pgsrc"], signal.SIGKILL)
    wait_until(lambda: below(up["pid"]).get("queen-pgsrc",
                                            running["queen-pgsrc"])
               != running["queen-pgsrc"])
    wait_until(lambda: health(ctl.src).get("status") == "ok")
    assert "with:     pgsrc,pgsink,s3" in ctl.run(*ctl.up, "--with", "pgsrc")
    running = below(up["pid"])
    ctl.run("down", "--dir", ctl.dir)
    assert not any(os.path.exists("/proc/%d" % p) for p in running.values())
    # without tools: the key is still queend's, and the file the same
    up = ctl.json(*ctl.up)
    assert up["with"] == [] and set(below(up["pid"])) == {
        "postgres", "queend"}
    assert "it runs without queen-pgsink" in \
        ctl.run(*ctl.up, "--with", "pgsink")
    ctl.run("connector", "apply", "s", "-f", "-",
            stdin=json.dumps(SINK))
    with open(path) as f:
        assert f.read() == key
    for name in os.listdir(os.path.join(ctl.dir, "log")):
        with open(os.path.join(ctl.dir, "log", name)) as f:
            text = f.read()
            assert PASSWORD not in text and key.strip() not in text, name


def test_a_port_of_a_tool_that_is_taken(home_cell, cell):
    ctl = home_cell
    ctl.env["QUEEN_PGSINK_LISTEN"] = "127.0.0.1:%d" % cell.port.number
    assert ctl.fails(SERVER, *ctl.up, "--with", "pgsink") == (
        "queenctl: port %d of 127.0.0.1 is in use by another program; set "
        "QUEEN_PGSINK_LISTEN to another, or to nothing\n"
        % cell.port.number)
    assert not os.path.exists(ctl.dir)
    ctl.fails(NOTHING, "down", "--quiet", "--dir", ctl.dir)

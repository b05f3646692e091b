# SPDX-License-Identifier: Apache-2.0
"""`make demo` after the build: the tour through a cell of one's own."""
import json
import os
import re
import shutil
import subprocess
import urllib.request

import pytest

from queenlib import DEADLINE_S, ROOT, Port, binary, pg_user


def people():
    """Root (who drops to another user for the servers) and a user."""
    return ["root", "user"] if os.getuid() == 0 else ["user"]


@pytest.fixture(params=people())
def tour(request, folder, no_last_cell):
    """tour() runs it; its programs and its cell are below folder."""
    user = pg_user() if request.param == "user" else None
    home = os.path.join(folder, "home")
    bins = os.path.join(folder, "tree", "bin")
    script = os.path.join(folder, "tree", "tests", "demo", "tour")
    os.makedirs(home)
    os.makedirs(bins)
    os.makedirs(os.path.dirname(script))
    shutil.copy(os.path.join(ROOT, "tests", "demo", "tour"), script)
    for name in ("queend", "queenctl"):
        shutil.copy(binary(name), bins)
    os.chmod(folder, 0o755)
    port, cell = Port(), os.path.join(home, "cell")
    # a plain machine: the servers of PostgreSQL are in no PATH
    env = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": home,
           "TMPDIR": home,
           "LC_ALL": "C.UTF-8", "DEMO_PORT": str(port.number)}
    drop = []
    if user:
        os.chown(home, user.pw_uid, user.pw_gid)
        drop = ["setpriv", "--reuid=%d" % user.pw_uid,
                "--regid=%d" % user.pw_gid, "--clear-groups"]

    def run(*argv):
        # to a file: the cell keeps what it is given
        path = os.path.join(folder, "out")
        with open(path, "w+") as out:
            done = subprocess.run(
                drop + list(argv), env=env, cwd="/", stdout=out,
                stdin=subprocess.DEVNULL, stderr=subprocess.STDOUT,
                timeout=6 * DEADLINE_S, check=False)
        with open(path) as out:
            text = out.read()
        assert done.returncode == 0, text
        return text

    def go():
        return run("sh", script, bins, cell)

    go.url = "http://127.0.0.1:%d" % port.number
    go.pid_file = os.path.join(cell, "cell.lock")
    yield go
    if os.path.exists(cell):
        run(os.path.join(bins, "queenctl"), "down", "--dir", cell)
    port.give()


def health(url):
    with urllib.request.urlopen(url + "/health", timeout=DEADLINE_S) as reply:
        return json.load(reply)["status"]


def test_the_tour_runs_twice_and_leaves_the_cell_running(tour):
    first = tour()
    commands = re.findall(r"^\$ (.*)", first, re.M)
    assert commands[0].startswith("queenctl up")
    for word in ("push", "pop", "ack", "dlq", "replay", "lag", "status"):
        assert "queenctl " + word in first, word
    assert "queued=3 duplicate=0 failed=0" in first
    assert "550 no such user" in first
    last = first[first.index("The cell keeps running."):]
    assert tour.url in last and "down --dir" in last and "README.md" in last
    assert health(tour.url) == "healthy"
    with open(tour.pid_file) as f:
        supervisor = f.read()
    second = tour()
    assert "The cell keeps running." in second
    with open(tour.pid_file) as f:
        assert f.read() == supervisor
    assert health(tour.url) == "healthy"

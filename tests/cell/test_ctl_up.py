# SPDX-License-Identifier: Apache-2.0
"""queenctl up and down: a private cell."""
import contextlib
import json
import os
import shutil
import signal
import subprocess
import tempfile

import pytest

import queenlib
from ctlkit import NOTHING, SERVER, USER, Ctl
from queenlib import wait_until


@pytest.fixture
def home_cell(no_last_cell):
    """A home and a port for one cell; it is down afterwards."""
    home = tempfile.mkdtemp(prefix="queen-c-", dir="/tmp")
    os.chmod(home, 0o755)
    port = queenlib.Port()
    ctl = Ctl(home)
    ctl.dir = os.path.join(home, "cell")
    ctl.port = port.number
    yield ctl
    subprocess.run(ctl.argv("down", "--dir", ctl.dir), env=ctl.env,
                   check=False, timeout=120)
    port.give()
    shutil.rmtree(home, ignore_errors=True)


def test_a_private_cell_from_up_to_down(home_cell):
    ctl = home_cell
    up = ("up", "--detach", "--dir", ctl.dir, "--port", str(ctl.port))
    assert ctl.run("down", "--dir", ctl.dir, code=NOTHING) == \
        "no cell runs in %s\n" % ctl.dir
    out = ctl.run(*up)
    assert out.splitlines()[0] == \
        "the cell is up: http://127.0.0.1:%d" % ctl.port
    assert "stop it:  queenctl down --dir %s" % ctl.dir in out
    again = ctl.json(*up)
    assert (again["reused"], again["url"], again["dir"]) == \
        (True, "http://127.0.0.1:%d" % ctl.port, ctl.dir)
    assert "it keeps its port" not in ctl.run(*up)
    assert "it keeps its port; for another one, stop it first" in \
        ctl.run(*up[:-1], str(ctl.port + 1))
    # without a server, commands ask the cell
    ctl.run("push", "q", "--data", "1")
    assert ctl.json("status")[0]["name"] == "q"
    assert ctl.json("schema", "status")["state"] == "same"
    assert ctl.json("doctor")["ok"] is True
    assert ctl.json("doctor", "--dir", ctl.dir)["findings"] == []
    assert os.stat("/proc/%d" % queend_pid(again["pid"])).st_uid != 0
    assert "the cell in %s is down" % ctl.dir in ctl.run("down")
    assert "is not up; start it" in ctl.fails(USER, "status")
    # what was pushed is still there
    ctl.run(*up)
    assert ctl.lines("pop", "q")[0]["data"] == 1


def queend_pid(supervisor):
    for entry in os.listdir("/proc"):
        with contextlib.suppress(OSError, ValueError):
            with open("/proc/%s/stat" % int(entry)) as f:
                name, rest = f.read().rsplit(")", 1)
            if name.endswith("(queend") and \
                    int(rest.split()[1]) == supervisor:
                return int(entry)
    raise AssertionError("no queend below %d" % supervisor)


def test_up_in_the_foreground_ends_with_a_signal(home_cell):
    ctl = home_cell
    proc = subprocess.Popen(
        ctl.argv("up", "--dir", ctl.dir, "--port", str(ctl.port), "-o",
                 "ndjson"), env=ctl.env, stdout=subprocess.PIPE,
        cwd=ctl.home)
    try:
        said = json.loads(proc.stdout.readline())
        assert said["detached"] is False
        ctl.run("ping")
        proc.send_signal(signal.SIGINT)
        assert proc.wait(60) == 0
    finally:
        proc.kill()
        proc.communicate()
    wait_until(lambda: not os.path.exists("/proc/%d" % said["pid"]))
    ctl.fails(NOTHING, "down", "--quiet", "--dir", ctl.dir)


def test_up_on_a_port_in_use_says_so(home_cell, cell):
    assert home_cell.fails(
        SERVER, "up", "--detach", "--dir", home_cell.dir, "--port",
        str(cell.port.number)) == (
            "queenctl: port %d of 127.0.0.1 is in use by another program; "
            "choose another with --port\n" % cell.port.number)


def test_up_where_it_cannot_listen_makes_nothing(home_cell):
    up = ("up", "--detach", "--dir", home_cell.dir)
    # of the documentation's network: no machine has it
    assert home_cell.fails(USER, *up, "--bind", "192.0.2.1") == (
        "queenctl: --bind 192.0.2.1 is no address of this machine\n")
    with open("/proc/sys/net/ipv4/ip_unprivileged_port_start") as f:
        first = int(f.read())
    if first > 1:
        said = home_cell.fails(USER, *up, "--port", "1")
        assert "may not listen on port 1; choose one from %d on" % first \
            in said
    assert not os.path.exists(home_cell.dir)


def test_up_passes_on_why_a_server_ended(home_cell):
    ctl = home_cell
    up = ("up", "--detach", "--dir", ctl.dir, "--port", str(ctl.port))
    ctl.run(*up)
    ctl.run("down", "--dir", ctl.dir)
    with open(os.path.join(ctl.dir, "data", "postgresql.conf"), "a") as f:
        f.write("no_such_setting = 1\n")
    assert ctl.fails(SERVER, *up).startswith(
        "queenctl: postgres ended at start; see %s/log/postgres.log: "
        "FATAL:  configuration file" % ctl.dir)


FIRST_UP = """
can=$(unshare -m true 2>/dev/null && echo yes)
if [ "$can" ]; then exec unshare -m sh -ec '
    mount -t tmpfs none /var/lib
    umask 077
    "$@" up --detach --quiet --dir "$CELL" --port "$PORT"
    stat -c %a /var/lib/queen
    "$@" down --dir "$CELL"' sh "$@"
fi
echo none
"""


def test_the_first_cell_shuts_no_door_to_others(home_cell):
    """What is remembered of a cell elsewhere lies on the way to the cell that
    root gets without --dir."""
    ctl = home_cell
    if os.getuid() != 0:
        ctl.run("up", "--detach", "--dir", ctl.dir, "--port", str(ctl.port))
        assert os.stat(os.path.join(ctl.home, ".queen")).st_mode & 0o777 == \
            0o700
        return
    done = subprocess.run(
        ["sh", "-c", FIRST_UP, "sh", *ctl.argv()], stdout=subprocess.PIPE,
        env={**ctl.env, "CELL": ctl.dir, "PORT": str(ctl.port)}, text=True,
        timeout=120, check=True)
    # without the right to mount there is no clean /var/lib to look at
    assert done.stdout.splitlines() in (
        ["755", "the cell in %s is down" % ctl.dir], ["none"])


def test_up_names_the_folder_that_is_in_the_way(home_cell):
    ctl = home_cell
    shut = os.path.join(ctl.home, "a", "shut")
    os.makedirs(shut)
    os.chmod(shut, 0o700 if os.getuid() == 0 else 0o500)
    said = ctl.fails(USER, "up", "--detach", "--dir",
                     os.path.join(shut, "b", "cell"))
    if os.getuid() == 0:
        assert said.endswith(
            " cannot reach %s/b/cell: %s is closed to others; open it (chmod"
            " a+x) or choose another folder with --dir\n" % (shut, shut))
    else:
        assert "cannot make folder %s/b" % shut in said

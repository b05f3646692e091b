# SPDX-License-Identifier: Apache-2.0
"""queenctl lock: one command at a time, also when processes, brokers and
answers get lost.  Faults come from a small key/value server of our own."""
import contextlib
import http.server
import json
import os
import pty
import re
import select
import signal
import subprocess
import threading
import time

import pytest

from ctlkit import NOTHING, SERVER, USER, home_of
from queenlib import wait_until

LOCKS = "/api/v1/kv/queen-locks/"


class Rows(http.server.ThreadingHTTPServer):
    """One namespace of rows; `fault(method, n)` may lose the n-th request."""

    daemon_threads = True

    def __init__(self):
        self.rows, self.version, self.guard = {}, 0, threading.Lock()
        self.seen, self.asked = [], []
        self.fault = lambda method, n: None
        super().__init__(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def live(self, path):
        row = self.rows.get(path)
        return row if row and row[2] > time.monotonic() else None

    def apply(self, method, path, ask):
        with self.guard:
            self.seen.append(method)
            row = self.live(path)
            if method == "GET":
                return {"op": "get", "found": bool(row), "key": path,
                        **({"value": row[0], "version": row[1]}
                           if row else {})}
            expect = ask["expect"]
            if (row[1] if row else 0) != expect:
                return {"applied": False, "key": path,
                        "reason": "exists" if expect == 0 else
                        "version" if row else "absent",
                        "value": row and row[0],
                        "version": row[1] if row else 0}
            if method == "DELETE":
                del self.rows[path]
                return {"applied": True, "value": row[0], "version": row[1]}
            self.version += 1
            self.rows[path] = (ask["value"], self.version,
                               time.monotonic() + ask["ttlSeconds"])
            return {"applied": True, "version": self.version}

    @property
    def url(self):
        return "http://127.0.0.1:%d" % self.server_address[1]


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def answer(self):
        n = int(self.headers.get("Content-Length") or 0)
        ask = json.loads(self.rfile.read(n) or b"{}")
        rows = self.server
        rows.asked.append(self.command)
        fault = rows.fault(self.command, rows.asked.count(self.command))
        if fault == "refuse":
            self.send_response(503)
            body = b'{"error":"kv_disabled"}'
        elif fault == "busy":
            self.send_response(429)
            body = b'{"error":"rate_limited"}'
        elif fault == "drop":
            self.close_connection = True
            return
        else:
            body = json.dumps(rows.apply(self.command, self.path,
                                         ask)).encode()
            if fault == "lose":
                self.close_connection = True
                return
            self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_PUT = do_DELETE = answer

    def log_message(self, *args):
        pass


@pytest.fixture
def rows():
    server = Rows()
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture
def ctl(rows, folder):
    return home_of(folder, rows.url)


@pytest.fixture
def spawn():
    """spawn(ctl, *args) -> a queenctl that is ended with the test."""
    made = []

    def start(ctl, *args):
        made.append(subprocess.Popen(
            ctl.argv(*args), stdin=subprocess.DEVNULL, cwd=ctl.home,
            env=ctl.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True))
        return made[-1]

    yield start
    for one in made:
        if one.poll() is None:
            one.kill()
        one.communicate()


def exists(ctl, name):
    return os.path.exists(os.path.join(ctl.home, name))


def read(ctl, name):
    with open(os.path.join(ctl.home, name)) as f:
        return f.read()


def alive(pid):
    """A process that is neither gone nor waits to be reaped."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        with open("/proc/%d/stat" % pid) as f:
            return f.read().rsplit(")", 1)[1].split()[0] not in "ZX"
    return False


# Exit codes and environment

@pytest.mark.parametrize("script, code", [
    ("true", 0), ("exit 7", 7), ("kill -TERM $$", 143),
    ("kill -KILL $$", 137)])
def test_the_exit_code_is_the_commands(ctl, rows, script, code):
    assert ctl.run("lock", "l", "--", "sh", "-c", script, code=code) == ""
    assert rows.rows == {}
    assert rows.seen == ["PUT", "DELETE"]


def test_a_command_that_cannot_run(ctl, rows):
    assert ctl.fails(127, "lock", "l", "--", "./nothing") == \
        "queenctl: cannot run ./nothing: No such file or directory\n"
    assert ctl.fails(126, "lock", "l", "--", "/") == \
        "queenctl: cannot run /: Permission denied\n"
    assert rows.rows == {}


def test_wrong_use_sends_nothing(ctl, rows):
    for args in (["l"], ["l", "--"], ["--", "true"],
                 ["l", "--ttl", "2s", "--", "true"],
                 ["l", "--ttl", "3500ms", "--", "true"],
                 ["l", "--ttl", "6s", "--grace", "3s", "--", "true"],
                 ["l", "--held-code", "256", "--", "true"],
                 ["l", "--wait", "1s", "--no-wait", "--", "true"]):
        ctl.fails(USER, "lock", *args)
    assert rows.seen == []


def test_the_command_learns_its_fencing_token(ctl, rows):
    rows.version = 40
    show = ("sh", "-c", "echo $QUEEN_LOCK_NAMESPACE $QUEEN_LOCK_NAME "
            "$QUEEN_LOCK_TOKEN \"$@\"", "sh")
    assert ctl.run("lock", "a b", "--", *show, "-x", "--ttl", "--") == \
        "queen-locks a b 41 -x --ttl --\n"
    assert ctl.run("lock", "a b", "--namespace", "mine", "--", *show) == \
        "mine a b 42\n"


def test_the_row_says_who_holds_it(ctl, rows):
    out = ctl.run("lock", "a/b", "--", "queenctl-nothing", code=127)
    assert out == ""
    seen = []
    rows.fault = lambda method, n: seen.append(dict(rows.rows))
    ctl.run("lock", "a/b", "--", "true")
    (path, (value, _, _)), = seen[-1].items()
    assert path == LOCKS + "a%2Fb"
    assert sorted(value) == ["command", "holder", "host", "pid"]
    assert value["command"] == "true"


def test_descriptors_of_the_connection_are_not_inherited(ctl):
    out = ctl.run("lock", "l", "--", "sh", "-c", "ls -l /proc/self/fd")
    assert "socket" not in out


def test_unreachable_and_not_allowed(ctl, rows, folder):
    dead = home_of(folder, "http://127.0.0.1:1")
    assert "cannot lock" in dead.fails(SERVER, "lock", "l", "--", "true")
    rows.fault = lambda method, n: "refuse"
    assert ctl.fails(SERVER, "lock", "l", "--", "true") == \
        'queenctl: cannot lock "l": kv_disabled\n'
    assert rows.asked == ["PUT"]


def test_waiting_is_also_for_the_server(ctl, rows, folder):
    dead = home_of(folder, "http://127.0.0.1:1")
    began = time.monotonic()
    assert 'cannot lock "l": cannot reach' in dead.fails(
        SERVER, "lock", "l", "--wait", "1s", "--", "touch", "ran")
    assert time.monotonic() - began >= 1
    assert not exists(ctl, "ran")
    rows.fault = lambda method, n: "refuse" if len(rows.asked) < 4 else None
    assert ctl.run("lock", "l", "--wait", "60s", "--", "echo", "ran") == \
        "ran\n"


def test_an_answer_without_a_version_is_no_lease(ctl, rows):
    def without(method, path, ask):
        return {"applied": True, "version": version}

    rows.apply = without
    for version in (None, 0, -5, "7"):
        assert ctl.fails(SERVER, "lock", "l", "--", "touch", "ran") == \
            'queenctl: cannot lock "l": the answer has no version\n'
    assert not exists(ctl, "ran")


def test_a_lock_that_was_taken_unheard_is_given_back(ctl, rows):
    rows.fault = lambda method, n: "lose" if method == "PUT" else None
    assert "cannot lock" in ctl.fails(SERVER, "lock", "l", "--", "true")
    assert rows.seen == ["PUT", "GET", "DELETE"] and rows.rows == {}


def test_flags_stand_before_the_command(ctl):
    assert "usage: queenctl lock <name> [FLAG]... -- <command>" \
        " [argument]...\n" in ctl.run("lock", "--help")
    assert "usage: queenctl kv get <namespace> <key> [FLAG]...\n" in \
        ctl.run("kv", "get", "--help")


# Held by another

def held(rows, name="l", seconds=60):
    rows.version += 1
    rows.rows[LOCKS + name] = ({"holder": "other"}, rows.version,
                               time.monotonic() + seconds)


def test_a_held_lock_without_waiting(ctl, rows):
    held(rows)
    never = ("--", "touch", "ran")
    assert ctl.fails(NOTHING, "lock", "l", "--no-wait", *never) == ""
    assert ctl.fails(NOTHING, "lock", "l", "--wait", "100ms", *never) == ""
    assert ctl.fails(75, "lock", "l", "--no-wait", "--held-code", "75",
                     *never) == ""
    assert not exists(ctl, "ran")


def test_waiting_ends_when_the_lease_does(ctl, rows):
    held(rows, seconds=0.5)
    assert ctl.run("lock", "l", "--", "echo", "ran") == "ran\n"


def test_a_signal_ends_the_wait(ctl, rows, spawn):
    held(rows)
    one = spawn(ctl, "lock", "l", "--", "touch", "ran")
    wait_until(lambda: "GET" in rows.seen)
    one.terminate()
    assert one.wait(30) == -signal.SIGTERM
    assert not exists(ctl, "ran") and rows.live(LOCKS + "l")


def test_what_is_ignored_stays_ignored(ctl, rows):
    """As with nohup and in the background jobs of a script."""
    ignored = signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGCHLD
    held(rows)
    one = subprocess.Popen(
        ctl.argv("lock", "l", "--", "sh", "-c",
                 "kill -HUP $$; kill -INT $$; kill -TERM $$; echo done"),
        cwd=ctl.home, env=ctl.env, stdout=subprocess.PIPE, text=True,
        preexec_fn=lambda: [signal.signal(s, signal.SIG_IGN)
                            for s in ignored])
    wait_until(lambda: "GET" in rows.seen)
    for signo in ignored:
        one.send_signal(signo)
    seen = len(rows.seen)
    wait_until(lambda: len(rows.seen) > seen + 1)
    rows.rows.clear()
    assert one.communicate(timeout=30) == ("done\n", None)
    assert one.returncode == 0


# Keeping it

def test_it_is_renewed_for_as_long_as_the_command_runs(ctl, rows, spawn):
    one = spawn(ctl, "lock", "l", "--ttl", "3s", "--", "sh", "-c",
                "while [ ! -e end ]; do sleep 0.1; done")
    wait_until(lambda: rows.seen.count("PUT") >= 5)
    assert rows.live(LOCKS + "l")[0]["pid"] == one.pid
    open(os.path.join(ctl.home, "end"), "w").close()
    assert one.wait(30) == 0
    assert rows.rows == {}


@pytest.mark.parametrize("fault", ["lose", "drop", "refuse"])
def test_a_lost_answer_does_not_lose_the_lease(ctl, rows, spawn, fault):
    rows.fault = lambda method, n: fault if (method, n) in (
        ("PUT", 2), ("PUT", 3), ("DELETE", 1)) else None
    one = spawn(ctl, "lock", "l", "--ttl", "3s", "--", "sh", "-c",
                "while [ ! -e end ]; do sleep 0.1; done")
    wait_until(lambda: rows.seen.count("PUT") >= 6)
    open(os.path.join(ctl.home, "end"), "w").close()
    assert one.wait(30) == 0
    assert rows.rows == {}
    assert rows.asked.count("DELETE") == 2


def test_signals_reach_the_command_and_the_lock_is_given_back(
        ctl, rows, spawn):
    for signo in (signal.SIGINT, signal.SIGTERM):
        one = spawn(ctl, "lock", "l", "--", "sh", "-c",
                    "trap 'exit %d' INT TERM; echo $$ >up;"
                    "while :; do sleep 0.1; done" % (signo + 50))
        wait_until(lambda: exists(ctl, "up"))
        one.send_signal(signo)
        assert one.wait(30) == signo + 50
        assert rows.rows == {}
        os.unlink(os.path.join(ctl.home, "up"))


def test_a_stolen_lease_ends_the_command(ctl, rows, spawn):
    one = spawn(ctl, "lock", "l", "--ttl", "3s", "--", "sh", "-c",
                "trap 'echo told >told; exit 0' TERM; echo $$ >up;"
                "while :; do sleep 0.1; done")
    wait_until(lambda: exists(ctl, "up"))
    held(rows)
    mine = dict(rows.rows)
    assert one.wait(30) == SERVER
    assert "the lease of \"l\" was lost" in one.stderr.read()
    assert exists(ctl, "told")
    assert rows.rows == mine


def test_who_ignores_the_end_is_killed_after_the_grace(ctl, rows, spawn):
    one = spawn(ctl, "lock", "l", "--ttl", "3s", "--grace", "200ms", "--",
                "sh", "-c", "trap '' TERM; echo $$ >up;"
                "while :; do sleep 0.1; done")
    wait_until(lambda: exists(ctl, "up") and read(ctl, "up"))
    pid = int(read(ctl, "up"))
    held(rows)
    assert one.wait(30) == SERVER
    assert not alive(pid)


def test_without_a_server_the_command_ends_before_the_lease(
        ctl, rows, spawn):
    one = spawn(ctl, "lock", "l", "--ttl", "3s", "--", "sh", "-c",
                "trap '' TERM; echo $$ >up; while :; do sleep 0.1; done")
    wait_until(lambda: exists(ctl, "up") and read(ctl, "up"))
    pid = int(read(ctl, "up"))
    rows.fault = lambda method, n: "drop"
    wait_until(lambda: not alive(pid), every_s=0.005)
    assert rows.live(LOCKS + "l"), "ran on after the lease"
    assert one.wait(30) == SERVER
    assert re.match('queenctl: "l" is not given back, .*\n|'
                    'queenctl: the lease of "l" was lost and the command'
                    " ended: cannot reach", one.stderr.read())


def test_a_refused_renewal_is_tried_often(ctl, rows, spawn):
    """Tries compete with others for what a tenant may write."""
    one = spawn(ctl, "lock", "l", "--ttl", "6s", "--grace", "0", "--", "sh",
                "-c", "touch up; while [ ! -e end ]; do sleep 0.1; done")
    wait_until(lambda: exists(ctl, "up"))
    rows.fault = lambda method, n: "busy" if method == "PUT" and n <= 20 \
        else None
    began = wait_until(lambda: rows.asked.count("PUT") > 1 and
                       time.monotonic(), every_s=0.005)
    wait_until(lambda: rows.seen.count("PUT") == 2, every_s=0.005)
    # 19 tries of 50 to 100 ms, before the end of the lease
    assert 0.9 < time.monotonic() - began < 3.5
    open(os.path.join(ctl.home, "end"), "w").close()
    assert one.wait(30) == 0


def test_a_stopped_keeper_does_not_let_the_command_run_on(ctl, rows, spawn):
    """The guard knows when the lease ends, also of a lease that was renewed,
    and the keeper says what happened when it goes on."""
    one = spawn(ctl, "lock", "l", "--ttl", "3s", "--", "sh", "-c",
                "trap '' TERM; echo $$ >up; while :; do sleep 0.1; done")
    pid, = numbers(ctl, "up")
    wait_until(lambda: rows.seen.count("PUT") >= 3)
    one.send_signal(signal.SIGSTOP)
    stopped = time.monotonic()
    wait_until(lambda: not alive(pid), every_s=0.005)
    assert rows.live(LOCKS + "l"), "ran on after the lease"
    assert time.monotonic() - stopped > 1
    one.send_signal(signal.SIGCONT)
    assert one.wait(30) == SERVER
    head, why = one.stderr.read().split(" and the command ended: ")
    assert head == 'queenctl: the lease of "l" was lost'
    # the second when a renewal was under way
    assert why == "it was not renewed in time\n" or "timed out" in why


# a process below the command: writes its number when it has set its trap
BELOW = "sh -c 'trap \"%s\" TERM; echo $$ >%s; while :; do sleep 0.1; done' & "


def numbers(ctl, *names):
    for name in names:
        wait_until(lambda name=name: exists(ctl, name) and read(ctl, name))
    return [int(read(ctl, name)) for name in names]


def test_a_killed_keeper_takes_its_command_along(ctl, rows, spawn):
    """And what the command has started, however deep."""
    one = spawn(ctl, "lock", "l", "--ttl", "3s", "--", "sh", "-c",
                BELOW % ("", "below") +
                "(sh -c 'echo $$ >deep; trap \"\" TERM; while :; do"
                " sleep 0.1; done' &) ;"
                "echo $$ >up; while :; do sleep 0.1; done")
    pids = numbers(ctl, "up", "below", "deep")
    one.kill()
    for pid in pids:
        wait_until(lambda pid=pid: not alive(pid))
    assert rows.live(LOCKS + "l")
    # the lease runs out by itself
    assert ctl.run("lock", "l", "--", "echo", "mine") == "mine\n"


def test_the_guard_ends_with_the_command(ctl, rows, spawn):
    """It is of no further use then, and what the command left behind on
    purpose lives."""
    one = spawn(ctl, "lock", "l", "--", "sh", "-c",
                "(sh -c 'echo $$ >left; while [ ! -e end ]; do sleep 0.1;"
                " done' >/dev/null 2>&1 &); echo $$ >up;"
                "while [ ! -e left ]; do sleep 0.1; done")
    up, left = numbers(ctl, "up", "left")
    assert one.wait(30) == 0
    assert not alive(up) and alive(left)
    assert rows.rows == {}
    # nothing of queenctl holds the pipes open
    assert one.communicate(timeout=30) == ("", "")
    open(os.path.join(ctl.home, "end"), "w").close()
    wait_until(lambda: not alive(left))


def test_a_lost_lease_ends_the_whole_group(ctl, rows, spawn):
    """All of it is told, those that take their time get the grace even when
    the command itself has ended, and nobody gets more."""
    one = spawn(ctl, "lock", "l", "--ttl", "9s", "--grace", "3s", "--",
                "sh", "-c", BELOW % ("sleep 0.5; echo done >tidied; exit",
                                     "below") +
                "echo $$ >up; while :; do sleep 0.1; done")
    up, below = numbers(ctl, "up", "below")
    held(rows)
    wait_until(lambda: not alive(up))
    began = time.monotonic()
    assert one.wait(40) == SERVER
    assert read(ctl, "tidied") == "done\n"
    assert not alive(below)
    # it did not sit out the grace when nobody was left
    assert time.monotonic() - began < 2.5


def test_a_group_that_ignores_the_end_is_killed(ctl, rows, spawn):
    one = spawn(ctl, "lock", "l", "--ttl", "3s", "--grace", "500ms", "--",
                "sh", "-c", BELOW % ("", "below") +
                "echo $$ >up; while :; do sleep 0.1; done")
    up, below = numbers(ctl, "up", "below")
    held(rows)
    assert one.wait(30) == SERVER
    assert not alive(up) and not alive(below)


# On a terminal

class Terminal:
    """queenctl as the leader of a session with a terminal of its own."""

    def __init__(self, ctl, *args):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.chdir(ctl.home)
            os.execve(ctl.argv()[0], ctl.argv(*args), ctl.env)
        self.text = ""

    def read(self):
        assert select.select([self.fd], [], [], 60)[0], self.text
        with contextlib.suppress(OSError):  # the other end is closed
            more = os.read(self.fd, 4096).decode()
            self.text += more
            return bool(more)
        return False

    def until(self, text):
        while text not in self.text:
            assert self.read(), self.text

    def type(self, text):
        os.write(self.fd, text)

    def finish(self):
        """The exit status."""
        while self.read():
            pass
        os.close(self.fd)
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def test_the_command_has_the_terminal(ctl, rows):
    """It reads from it; a stop key does not stop it, for its lease runs on."""
    term = Terminal(ctl, "lock", "l", "--", "sh", "-c",
                    "echo up; read x; echo got $x; read y; echo and $y")
    term.until("up")
    assert rows.live(LOCKS + "l")
    term.type(b"one\n")
    term.until("got one")
    term.type(b"\x1a")
    term.until("^Z")
    term.type(b"two\n")
    term.until("and two")
    assert term.finish() == 0
    assert rows.rows == {}


def test_the_interrupt_key_ends_the_command(ctl, rows):
    term = Terminal(ctl, "lock", "l", "--", "sh", "-c",
                    "echo up; while :; do sleep 0.1; done")
    term.until("up")
    term.type(b"\x03")
    assert term.finish() == 128 + signal.SIGINT
    assert rows.rows == {}


# Against a cell

@pytest.fixture
def real(cell, folder):
    return home_of(folder, "http://127.0.0.1:%d" % cell.port.number)


COUNT = ("test ! -e busy || echo broken >broken; touch busy;"
         "n=$(cat n); sleep 0.02; echo $((n + 1)) >n; rm busy")


def test_eight_at_once_count_right(real, spawn):
    with open(os.path.join(real.home, "n"), "w") as f:
        f.write("0\n")
    loop = "for i in 1 2 3 4 5; do %s lock count -- sh -c '%s' || exit; done" \
        % (real.argv()[0], COUNT)
    many = [subprocess.Popen(["sh", "-c", loop], env=real.env, cwd=real.home,
                             stdin=subprocess.DEVNULL) for _ in range(8)]
    assert [one.wait(120) for one in many] == [0] * 8
    assert read(real, "n") == "40\n"
    assert not exists(real, "broken")


def test_tokens_grow(real):
    tokens = [int(real.run("lock", "l", "--", "sh", "-c",
                           "echo $QUEEN_LOCK_TOKEN")) for _ in range(4)]
    assert tokens == sorted(set(tokens))


def test_a_broker_restarted_in_between_is_not_noticed(cell, real, spawn):
    one = spawn(real, "lock", "l", "--ttl", "20s", "--", "sh", "-c",
                "touch up; while [ ! -e end ]; do sleep 0.1; done; exit 3")
    wait_until(lambda: exists(real, "up"))

    def version():
        return real.json("kv", "get", "queen-locks", "l")["version"]

    before = version()
    cell.kill9()
    cell.start()
    wait_until(lambda: version() > before)
    assert real.fails(NOTHING, "lock", "l", "--no-wait", "--", "true") == ""
    open(os.path.join(real.home, "end"), "w").close()
    assert one.wait(30) == 3
    assert real.fails(NOTHING, "kv", "get", "queen-locks", "l") == ""


def test_a_lock_that_was_deleted_is_lost(real, spawn):
    one = spawn(real, "lock", "l", "--ttl", "3s", "--", "sh", "-c",
                "touch up; while :; do sleep 0.1; done")
    wait_until(lambda: exists(real, "up"))
    assert re.match(r"deleted queen-locks/l version=\d+\n\Z",
                    real.run("kv", "delete", "queen-locks", "l", "--yes"))
    assert one.wait(30) == SERVER

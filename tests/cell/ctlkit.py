# SPDX-License-Identifier: Apache-2.0
"""Runs queenctl as scripts do.  The fixtures are in every test's reach
(conftest.py):

ctl    queenctl that asks the running queend (cell)
alone  queenctl without a server
stub   stub(answer, ...) -> queenctl that gets these answers
"""
import http.server
import json
import os
import re
import subprocess
import threading

import pytest

import queenlib

OK, USER, SERVER, AUTH, NOTHING = range(5)


class Ctl:
    """Runs queenctl in a home of its own."""

    def __init__(self, home, **env):
        self.home = home
        self.env = {"PATH": os.environ["PATH"], "HOME": home,
                    "LC_ALL": "C.UTF-8", "XDG_RUNTIME_DIR": home,
                    "ASAN_OPTIONS": "detect_leaks=1:exitcode=99",
                    "UBSAN_OPTIONS": "print_stacktrace=1"}
        self.env.update(env)

    def argv(self, *args):
        return [queenlib.binary("queenctl"), *args]

    def run(self, *args, stdin="", code=OK, **env):
        """stdout; the exit status must be the one expected."""
        done = subprocess.run(
            self.argv(*args), input=stdin.encode(), stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, env={**self.env, **env}, cwd=self.home,
            timeout=120, check=False)
        self.err = done.stderr.decode()
        out = done.stdout.decode()
        assert done.returncode == code, "%s: %d instead of %d\n%s%s" % (
            args, done.returncode, code, out, self.err)
        return out

    def json(self, *args, **kw):
        return json.loads(self.run(*args, "-o", "json", **kw))

    def lines(self, *args, **kw):
        return [json.loads(x) for x in self.run(*args, **kw).splitlines()]

    def fails(self, code, *args, **kw):
        """stderr of a failure, which prints nothing else."""
        assert self.run(*args, code=code, **kw) == ""
        return self.err


def home_of(folder, url=None):
    """A Ctl in a home below the folder, asking that server."""
    home = os.path.join(folder, "home")
    os.makedirs(home, exist_ok=True)
    return Ctl(home, **({"QUEEN_SERVER": url} if url else {}))


@pytest.fixture
def ctl(cell, folder):
    return home_of(folder, "http://127.0.0.1:%d" % cell.port.number)


@pytest.fixture
def alone(folder):
    """Without a server."""
    return home_of(folder)


class Answers(http.server.BaseHTTPRequestHandler):
    """Answers by a script of (status, headers, body)."""

    protocol_version = "HTTP/1.1"

    def answer(self):
        n = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(n)
        self.server.seen.append((self.command, self.path, self.headers, body))
        script = self.server.script
        status, headers, text = script.pop(0) if len(script) > 1 else \
            script[0]
        self.send_response(status)
        for k, v in headers.items():
            self.send_header(k, v)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    do_GET = do_PUT = do_POST = do_DELETE = answer

    def log_message(self, *args):
        pass


def answer(status, body=None, **headers):
    return status, headers, json.dumps(body)


@pytest.fixture
def stub(alone):
    """stub(answer, ...) -> a Ctl whose server gives these; the last repeats."""
    servers = []

    def make(*script, **env):
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answers)
        server.script, server.seen = list(script), []
        threading.Thread(target=server.serve_forever, daemon=True).start()
        servers.append(server)
        one = Ctl(alone.home, QUEEN_SERVER="http://127.0.0.1:%d"
                  % server.server_address[1], **env)
        one.seen = server.seen
        return one

    yield make
    for server in servers:
        server.shutdown()
        server.server_close()


def table(text):
    """Lines as lists of cells."""
    return [re.split(r" {2,}", x.rstrip()) for x in text.splitlines()]


def three(ctl, queue="orders"):
    ctl.run("push", queue, "--partition-key", "c", stdin=(
        '{"c":"a","n":1}\n{"c":"b","n":2}\n\n{"c":"a","n":3}\n'))

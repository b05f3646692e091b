# SPDX-License-Identifier: Apache-2.0
"""
Processes of the connectors.

new_tool  new_tool("queen-pgsrc", **env) -> a Tool on db, not yet started
"""
import contextlib
import json
import os
import re
import subprocess

import pytest

import queenlib
from queenlib import TENANT, binary, tail, wait_until

PORTS = {"queen-pgsrc": "QUEEN_PGSRC_LISTEN",
         "queen-pgsink": "QUEEN_PGSINK_LISTEN"}


class Tool(queenlib.Cell):
    """One queen-pgsrc or queen-pgsink on a database.  The documents it reads
    are put by queend (Cell.request) or, without one, by put()."""

    def __init__(self, db, folder, tool, env, node):
        super().__init__(db, folder, env, name="%s-%s" % (tool, node))
        self.tool, self.node = tool, node

    def env(self):
        env = super().env()
        for name in "PORT", "QUEEN_BIND_ADDR", "DB_POOL_SIZE":
            env.pop(name)
        env = {PORTS[self.tool]: "127.0.0.1:%d" % self.port.number,
               "QUEEN_SERVER_ID": self.node, "QUEEN_PG_RELOAD_MS": "500",
               **env}
        return {k: v for k, v in env.items() if v != ""}

    def start(self, wait=True):
        assert self.proc is None or self.proc.poll() is not None
        with open(self.log, "ab") as log:
            self.proc = subprocess.Popen(
                [binary(self.tool)], stdin=subprocess.DEVNULL, stdout=log,
                stderr=log, env=self.env(), cwd=self.folder)
        self.expected_end = not wait
        if wait:
            wait_until(self.healthy, what="health of %s:\n%s"
                       % (self.name, tail(self.log)))
        return self

    def health(self):
        """The reply of /healthz, None without an answer."""
        try:
            return self.get("/healthz", timeout=5)
        except OSError:
            return None

    def healthy(self):
        if self.proc.poll() is not None:
            self.expected_end = True
            raise AssertionError("%s ended with %d at boot:\n%s" % (
                self.name, self.proc.returncode, tail(self.log)))
        reply = self.health()
        return reply is not None and reply.status == 200

    def metrics(self):
        """{name with labels: value} of /metrics."""
        text = self.get("/metrics").body.decode()
        return {m[1]: float(m[2]) for m in re.finditer(
            r"^([a-z][^# ]*(?:\{.*\})?) (\S+)$", text, re.M)}

    def children(self):
        """Pids of the processes of its connectors."""
        path = "/proc/%d/task/%d/children" % (self.proc.pid, self.proc.pid)
        with contextlib.suppress(OSError):
            with open(path) as f:
                return [int(p) for p in f.read().split()]
        return []

    def child(self, name):
        """The pid of the running process of a connector, from the log."""
        def last():
            found = re.findall(r"started connector=%s pid=(\d+)"
                               % re.escape(name), self.log_text())
            pid = int(found[-1]) if found else 0
            return pid if pid in self.children() else 0
        return wait_until(last, what="a process of " + name)

    def put(self, name, document, expect=None, stamp=None, tenant=TENANT):
        """Stores a document as queend does; its version."""
        if expect is None:
            expect = self.version(name, tenant)
        verdict, version = self.db.row(
            "select verdict, version from queen.connector_put_v1(%s, %s, %s,"
            " %s, %s)", (tenant, name, json.dumps(document), expect, stamp))
        assert verdict == 0
        return version

    def version(self, name, tenant=TENANT):
        """Of the stored document; 0 = there is none."""
        found = self.db.rows(
            "select version from queen.connector_list_v1(%s, %s)",
            (tenant, name))
        return found[0][0] if found else 0

    def remove(self, name, tenant=TENANT):
        assert self.db.value(
            "select queen.connector_delete_v1(%s, %s, %s, true)",
            (tenant, name, self.version(name, tenant))) == 0

    def status(self, name, tenant=TENANT):
        """The block this node wrote, {} when there is none."""
        found = self.db.rows(
            "select status from queen.connector_status where node = %s and"
            " tenant = %s and name = %s", (self.node, tenant, name))
        return found[0][0] if found else {}

    def await_status(self, name, tenant=TENANT, deadline_s=None, **want):
        """The block once its members are those of want; error: the code."""
        def reached():
            block = self.status(name, tenant)
            seen = dict(block, error=(block.get("error") or {}).get("code"))
            return block if want.items() <= seen.items() else None
        try:
            return wait_until(reached, deadline_s or queenlib.DEADLINE_S)
        except AssertionError:
            raise AssertionError("not %s of %s: %s\n%s" % (
                want, name, self.status(name, tenant),
                tail(self.log, 2000))) from None


@pytest.fixture
def new_tool(request, db, folder, keep_log):
    made = []

    def make(tool, _db=None, **env):
        node = env.pop("QUEEN_SERVER_ID", "node%d" % len(made))
        one = Tool(_db or db, folder, tool, env, node)
        made.append(one)
        keep_log(one.name, one.log)
        return one

    yield make
    faults = []
    for one in made:
        try:
            one.close()
        except AssertionError as e:
            faults.append(str(e))
    assert not faults, "\n".join(faults)

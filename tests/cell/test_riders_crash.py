# SPDX-License-Identifier: Apache-2.0
"""
A transaction with riders cut at every message between queend and PostgreSQL,
and either of them killed between its statements (begin, call, commit): all of
it or nothing, as the answer said, and once repeated it was done once.
"""
import http.client
import os
import signal

import psycopg2
import pytest

from proxykit import StepProxy
from queenlib import wait_until
from riderkit import absent, incr, schedule, timers, values
from test_transaction import TXN, ack, committed, count, pop, push

DONE = 1000     # more messages than a bundle has


@pytest.fixture
def proxy(pg):
    made = StepProxy(pg.port.number)
    yield made
    made.close()


def anyhow(fn):
    """fn(), tried again while the database recovers."""
    def once():
        try:
            return (fn(),)
        except psycopg2.Error:
            return None
    return wait_until(once, what="the database")[0]


class Steps:
    """One bundle per step, each with names of its own."""

    def __init__(self, cell, db, proxy):
        self.cell, self.db, self.proxy = cell, db, proxy
        self.n = 0
        cell.push("out", [0], ids=["warm"])

    def prepare(self):
        name = "mark-%d-" % self.n
        self.cell.push("in-" + name, [1], ids=["t"])
        self.cell.push("other", [1])
        m = self.cell.pop("in-" + name, wait=True, leaseSeconds=600)[0]
        body = {"operations": [ack(m), push(txn=name)],
                "kv": [absent(name, required=True), incr("sum")],
                "timers": [schedule(name)]}
        return name, body

    def whole(self, name):
        """True, False; anything between fails."""
        self.db.own = None
        kv, n = values(self.db), self.n
        done = name in kv
        assert (name in timers(self.db)) == done
        assert count(self.db) == 1 + n + done
        assert kv.get("sum", 0) == n + done
        assert committed(self.db, "in-" + name) == (0 if done else -1)
        return done

    def post(self, body):
        try:
            return self.cell.post(TXN, body)
        except (OSError, http.client.HTTPException):
            return None     # killed before it answered

    def ended(self, pid):
        """The server has noticed: what it was sent is done or undone."""
        self.db.own = None
        return self.db.value("select count(*) from pg_stat_activity"
                             " where pid = %s", (pid,)) == 0

    def run(self, after, strike=None):
        """True when the bundle was struck, False when it ended before."""
        name, body = self.prepare()
        self.proxy.arm(name.encode(), after, strike)
        reply = self.post(body)
        if not self.proxy.struck.is_set():
            assert reply.body["success"] is True, reply
            assert self.whole(name)
            self.n += 1
            return False
        assert self.proxy.cut.wait(30)
        if strike:
            wait_until(lambda: self.cell.proc.poll() is None
                       or self.cell.start())
        anyhow(lambda: wait_until(lambda: self.ended(self.proxy.pid)))
        done = anyhow(lambda: self.whole(name))
        agrees(reply, done)
        again = wait_until(lambda: self.settled(body))
        if done:
            assert again["reason"] == "kv_precondition", again
        else:
            assert again["success"] is True, again
        assert self.whole(name) is True
        self.n += 1
        return True

    def settled(self, body):
        reply = self.cell.post(TXN, body)
        if reply.status != 200 or reply.body.get("reason") == "db_error":
            return None
        return reply.body


def agrees(reply, done):
    if reply is None or "is unknown" in reply.body.get("error", ""):
        return
    if reply.status == 200 and reply.body["success"]:
        assert done
    else:
        assert not done, reply


def test_cut_behind_any_message(new_cell, db, proxy):
    # one link per lane would be dialled anew behind each cut
    cell = new_cell(PG_PORT=proxy.port.number, DB_POOL_SIZE=16).start()
    steps = Steps(cell, db, proxy)
    assert not steps.run(DONE)
    after = 0
    while steps.run(after):
        after += 1
    kinds = [t for _, t in proxy.trace]
    # begin and the call are one flush; then commit
    assert kinds.count("S") == kinds.count("Z") == 2
    assert kinds.count("E") == kinds.count("C") == 3
    assert after == len(kinds)
    assert count(db) == 1 + steps.n == 1 + after + 2


def between_statements(trace):
    """Behind which messages: nothing sent, each command sent, each flush, each
    command done, each end."""
    return [0] + [i + 1 for i, (_, t) in enumerate(trace) if t in "ESCZ"]


@pytest.mark.parametrize("whom", ["queend", "backend"])
def test_killed_between_any_two_statements(new_cell, db, proxy, whom):
    cell = new_cell(PG_PORT=proxy.port.number).start()
    steps = Steps(cell, db, proxy)

    def kill(pid):
        if whom == "backend":
            os.kill(pid, signal.SIGKILL)
        else:
            cell.kill9()

    for _ in range(4):
        steps.run(DONE)     # statements are prepared on every connection
    points = between_statements(proxy.trace)
    assert len(points) == 11
    struck = [steps.run(after, kill) for after in points[:-1]]
    # a connection that had prepared less is through before the last of them
    assert struck[:9] == [True] * 9

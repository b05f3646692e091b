# SPDX-License-Identifier: Apache-2.0
"""
What proofs with several nodes share: nodes that freeze and die, a sink that
writes down every message it applies, and what they are compared with.
"""
import contextlib
import os
import signal
import threading

import queenlib
from proxykit import StepProxy
from srckit import raw_events

LEDGER = "create table public.%s (seq bigserial, part text, at bigint," \
    " txn text)"


# ---- nodes ----

def signal_node(tool, number):
    """To all of its processes; the parent first, which restarts the rest."""
    pids = [tool.proc.pid] + tool.children()
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def freeze(tool):
    signal_node(tool, signal.SIGSTOP)


def wake(tool):
    signal_node(tool, signal.SIGCONT)


def kill_node(tool):
    """All at once, as when the machine is gone: nobody drains."""
    freeze(tool)
    for pid in tool.children() + [tool.proc.pid]:
        os.kill(pid, signal.SIGKILL)
    tool.wait_exit()


class Holding(StepProxy):
    """Keeps the COMMIT of the transaction whose request holds the marker
    until free is set, then cuts the link."""

    def __init__(self, target):
        self.free = threading.Event()
        super().__init__(target)

    def _pass(self, link, to, way, m):
        if link["armed"] and way == ">" and b"commit" in m.lower():
            self.struck.set()
            self.strike()
            while not self.free.wait(0.05) and not self.stop.is_set():
                pass
            return False
        to.sendall(m)
        return True


# ---- sinks that write down what they apply ----

def ledger(sinks, name, queue, **more):
    return sinks(name, "sql", LEDGER, queue=queue, statement="insert into %s"
                 " (part, at, txn) values ($1, $2::bigint, $3)" % name,
                 params=["@partition", "@offset", "@transactionId"], **more)


def applied(sink):
    """[(partition, offset, id)], each partition in the order it came."""
    return sink.far.rows("select part, at, txn from %s order by part"
                         " collate \"C\", seq" % sink.name)


def held(db, queue):
    """The same of what the queue holds."""
    return sorted((p, at, txn) for p, at, txn, _ in raw_events(db, queue))


def await_applied(sink, want):
    queenlib.wait_until(lambda: applied(sink) == want, what="%s: %s" % (
        sink.name, sink.status()))


@contextlib.contextmanager
def transaction(db, statement):
    """One that has done this and ends with the block, without effect."""
    conn = db.connect(autocommit=False)
    try:
        queenlib.rows(conn, statement)
        yield
    finally:
        conn.rollback()
        conn.close()

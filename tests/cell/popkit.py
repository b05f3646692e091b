# SPDX-License-Identifier: Apache-2.0
"""Pops that park, and hints that do not come."""
import contextlib
import os
import signal
import threading
import time

from queenlib import wait_until


class Popper(threading.Thread):
    """One pop in the background: .got are its messages, .took its seconds."""

    def __init__(self, cell, *args, **kw):
        super().__init__()
        self.cell, self.args, self.kw = cell, args, kw
        self.kw.setdefault("wait", True)
        self.kw.setdefault("wait_ms", 15000)
        self.got = self.error = None
        self.start()

    def run(self):
        start = time.monotonic()
        try:
            self.got = self.cell.pop(*self.args, timeout=60, **self.kw)
        except BaseException as e:
            self.error = e
        self.took = time.monotonic() - start

    def result(self, deadline_s=60):
        """The payloads it got."""
        self.join(deadline_s)
        assert not self.is_alive()
        if self.error:
            raise self.error
        return [m["data"] for m in self.got]


def parked(cell):
    """Connections whose request hangs, whatever it waits for."""
    text = cell.get("/metrics/prometheus").body
    text = text.decode() if isinstance(text, bytes) else text
    line = [x for x in text.splitlines() if x.startswith("queen_parked_pops ")]
    return int(float(line[0].split()[-1]))


def wait_parked(cell, n):
    wait_until(lambda: parked(cell) == n, what="%d parked pops" % n)


@contextlib.contextmanager
def no_hints(db):
    """The sessions of two queends that send and receive hints stand still."""
    pids = [r[0] for r in db.rows(
        "select pid from pg_stat_activity where application_name ="
        " 'queend listen' and datname = current_database()")]
    assert len(pids) == 2
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)

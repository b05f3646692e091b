# SPDX-License-Identifier: Apache-2.0
"""
What the benches of the connectors share: CPU time of processes, their memory
while something runs, and a row that is like a user's.

The machine may be busy: CPU time counts, not the time that passes, and a ratio
within one run means more than a figure of two runs.
"""
import argparse
import contextlib
import json
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                "..", "cell"))
import connkit  # noqa: E402
import pgkit  # noqa: E402
import queenlib  # noqa: E402

STARTED = time.monotonic()
FSYNC = {"fsync": "on", "synchronous_commit": "on", "max_wal_size": "4GB",
         "shared_buffers": "512MB", "checkpoint_timeout": "15min"}
# about 256 bytes as JSON; numbers say nothing of their neighbours
COLUMNS = ("id bigint not null, part int not null, customer text, email text,"
           " status text, amount numeric(12, 2), paid boolean,"
           " created timestamptz, note text, attributes jsonb")
ROW = ("i, i %% %(parts)d, 'customer ' || hashint8(i) %% 100000,"
       " 'user.' || hashint8(i + 7) || '@example.com',"
       " (array['new', 'paid', 'packed', 'sent'])[1 + (i %% 4)::int],"
       " (hashint8(i) %% 1000000) / 100.0, i %% 3 = 0,"
       " timestamptz '2026-01-01Z' + i * interval '1.7 s',"
       " 'leave at the door, ring twice',"
       " jsonb_build_object('sku', 'A-' || hashint8(i + 3) %% 10000,"
       " 'quantity', i %% 9, 'gift', i %% 5 = 0)")


def note(text):
    if sys.stderr.isatty() or os.environ.get("BENCH_VERBOSE"):
        print("bench: %5.1f s  %s" % (time.monotonic() - STARTED, text),
              file=sys.stderr, flush=True)


def insert(table, first, rows, parts):
    return "insert into %s select %s from generate_series(%d::bigint, %d) i" \
        % (table, ROW % {"parts": parts}, first, first + rows - 1)


def cpu_us(pids):
    """CPU time of single-threaded processes so far."""
    total = 0
    for pid in pids:
        with open("/proc/%d/schedstat" % pid) as f:
            total += int(f.read().split()[0]) / 1000
    return total


class Cpu:
    """CPU per row of processes by role, from now on."""

    def __init__(self, **pids):
        self.pids = pids
        self.before = {k: cpu_us(v) for k, v in pids.items()}
        self.at = time.monotonic()

    def per_row(self, rows):
        made = {"rows_per_second": rows / (time.monotonic() - self.at)}
        for k, v in self.pids.items():
            made[k + "_us_per_row"] = (cpu_us(v) - self.before[k]) / rows
        return made


class Memory(threading.Thread):
    """RSS of a process while a block runs, four times a second."""

    def __init__(self, pid):
        super().__init__(daemon=True)
        self.pid, self.seen, self.over = pid, [], threading.Event()

    def run(self):
        while not self.over.is_set():
            with contextlib.suppress(OSError), \
                    open("/proc/%d/status" % self.pid) as f:
                kib = re.search(r"VmRSS:\s+(\d+)", f.read())
                if kib:
                    self.seen.append(int(kib.group(1)) / 1024)
            self.over.wait(0.25)

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.join()

    def result(self):
        """The first fifth is to warm up in."""
        warm = self.seen[len(self.seen) // 5:]
        return {"mib_min": min(warm), "mib_max": max(warm),
                "mib_end": warm[-1], "samples": len(warm)}


@contextlib.contextmanager
def perf(folder, name, pid):
    """perf on one process while a block runs; off without a folder."""
    if not folder:
        yield
        return
    proc = subprocess.Popen(
        ["perf", "record", "-q", "-F", "1999", "-g", "-o",
         os.path.join(folder, name + ".perf"), "-p", str(pid)],
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        proc.send_signal(signal.SIGINT)
        proc.wait(60)


def until(fn, what):
    return queenlib.wait_until(fn, 300, what, every_s=0.05)


def median(rounds):
    made = {k: statistics.median(r[k] for r in rounds) for k in rounds[0]}
    return dict(made, rounds=len(rounds))


def judged(made, ratio, target):
    return dict(made, ratio=ratio, target=target,
                verdict="met" if ratio <= target else "missed")


def rounded(x):
    if isinstance(x, dict):
        return {k: rounded(v) for k, v in x.items()}
    return round(x, 3) if isinstance(x, float) else x


class Stage:
    """A server with fsync and a cell on it."""

    def __init__(self, stack):
        self.folder = tempfile.mkdtemp(prefix="queen-bench-", dir="/tmp")
        stack.callback(shutil.rmtree, self.folder, ignore_errors=True)
        server = queenlib.Server("dist", **FSYNC)
        stack.callback(server.close)
        self.db = server.new_db()
        self.cell = queenlib.Cell(self.db, self.folder, {"LOG_LEVEL": "warn"})
        stack.callback(self.cell.close)
        self.cell.start()

    def sessions(self, application):
        """Pids of sessions with the cell."""
        return [r[0] for r in self.db.rows(
            "select pid from pg_stat_activity where datname ="
            " current_database() and application_name like %s",
            (application,))]


class Between(Stage):
    """Also a server with a database of a user's, and a tool between them."""

    def __init__(self, stack, tool):
        super().__init__(stack)
        far_server = pgkit.FarServer("dist", **FSYNC)
        stack.callback(far_server.close)
        self.far = far_server.new_far()
        self.tool = connkit.Tool(self.db, self.folder, tool, {
            "QUEEN_PG_ALLOW_PRIVATE_NETWORKS": "true"}, "bench")
        stack.callback(self.tool.close)
        self.tool.start()


def arguments(doc, rows):
    p = argparse.ArgumentParser(description=doc.split("\n\n")[0])
    p.add_argument("--rows", type=int, default=rows,
                   help="rows of the run that memory is measured in,"
                   " default %d" % rows)
    p.add_argument("--rounds", type=int, default=5,
                   help="rounds per shape, default 5")
    p.add_argument("--round-rows", type=int, default=10000,
                   help="rows of a round, default 10000")
    p.add_argument("--perf", metavar="DIR",
                   help="perf records of the tool's process go here")
    return p.parse_args()


def main(bench, doc, rows):
    args = arguments(doc, rows)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    try:
        with contextlib.ExitStack() as stack:
            out = bench(args, stack)
    except AssertionError as e:
        print("bench: %s" % e, file=sys.stderr)
        return 1
    print(json.dumps(rounded(out), indent=2))
    return 0

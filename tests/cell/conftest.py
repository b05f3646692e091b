# SPDX-License-Identifier: Apache-2.0
"""
Fixtures of the cell tests.

pg        the running server of this test (Server)
db        a fresh database with the schema (Db); marker allpg = once on each of
          the distribution's PostgreSQL, 17 and 18; marker durable = fsync on
empty_db  a fresh database without the schema
connect   connect(db) -> an autocommit connection, closed at the end
cell      a running queend on db (Cell); marker cellenv(NAME="value") adds
          environment
cells     cells(n, **env) -> n running queends on db, one per instance
pair      two of them
common    a running queend that the tests of this worker share: for those that
          need no setting and leave nothing, or only under names of their own
own_name  a name that no other test of this worker has
new_cell  new_cell(**env) -> a queend not yet started
ctl, alone, stub  queenctl in three surroundings (ctlkit.py)
new_tool  new_tool("queen-pgsrc", **env) -> a tool not yet started (connkit.py)
far, far_too, far_server  databases connectors read and write (pgkit.py)
bucket, new_bucket, new_gate  on a real S3 server (s3kit.py)
log, new_lake  a log with chosen stamps, processes of queen-s3 (lakekit.py)
new_ojs, ojs  processes of queen-ojs (ojskit.py)
no_last_cell  queenctl remembers no private cell; one test at a time has it
"""
import contextlib
import fcntl
import itertools
import os
import random
import shutil
import signal
import sys
import tempfile

import pytest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import queenlib  # noqa: E402
from connkit import new_tool  # noqa: E402, F401
from ctlkit import alone, ctl, stub  # noqa: E402, F401
from lakekit import log, new_lake  # noqa: E402, F401
from ojskit import new_ojs, ojs  # noqa: E402, F401
from pgkit import (far, far_server, far_servers, far_too,  # noqa: E402, F401
                   far_version)
from s3kit import bucket, new_bucket, new_gate, s3_server  # noqa: E402, F401
from sinkkit import sinks  # noqa: E402, F401
from srckit import src  # noqa: E402, F401

# Files that have tests of many seconds.
LONG = """auth badinput changed charge conn_back conn_e2e conn_faults conn_host
conn_nodes conn_standby conn_up crash ctl_lock ctl_up dedup demo docs
encryption_open field_fire field_state lake_back lake_e2e lake_faults lake_kill
lake_nodes lake_race lake_redo lake_tenants ojs_absent ojs_sql_streams_race
ojs_streams_crash ojs_streams_wait one_port parked purge push race retention
riders_crash riders_race schema sink_faults sink_modes soak sql_changed
sql_source src_snapshot src_start src_stream tenancy timer timer_fire
timer_limits two""".split()
LOGS = pytest.StashKey()
SERVERS = {}
REPORT = {}
NAMES = itertools.count()
RANK = {"passed": 0, "skipped": 1, "xfailed": 1, "failed": 2}


def pytest_configure(config):
    for line in (
            "allpg: run on the distribution's PostgreSQL, on 17 and on 18",
            "farpg: far on the distribution's PostgreSQL, on 17 and on 18",
            "durable: a server with fsync on",
            "amount: of much or of long; sanitizers see nothing new in it",
            "soak: long; runs only with QUEEN_SOAK=1",
            "cellenv(**env): environment of the cell fixture's queend"):
        config.addinivalue_line("markers", line)

    def on_term(*_):
        # so that a killed run still ends its servers
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, on_term)
    # in the background they are ignored, and what we start would keep it so
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGQUIT, signal.SIG_DFL)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


def pytest_collection_modifyitems(config, items):
    if not os.environ.get("QUEEN_SOAK"):
        soak = [i for i in items if i.get_closest_marker("soak")]
        if soak:
            config.hook.pytest_deselected(items=soak)
            items[:] = [i for i in items if i not in soak]
    if hasattr(config, "workerinput"):
        # What is long begins early, mixed with as much that is short for each
        # worker to get its share; all workers must come to the same order.
        long = [i for i in items if i.path.stem[5:] in LONG]
        rest = [i for i in items if i.path.stem[5:] not in LONG]
        first, last = long + rest[:len(long)], rest[len(long):]
        random.Random(0).shuffle(first)
        items[:] = first + last


def pytest_generate_tests(metafunc):
    # sanitizers look at our C, which is the same with each of them
    found = ["dist"] if os.environ.get("QUEEN_SAN") else ["dist", "17", "18"]
    for mark, name in (("allpg", "pg_version"), ("farpg", "far_version")):
        if metafunc.definition.get_closest_marker(mark) \
                and name in metafunc.fixturenames:
            metafunc.parametrize(name, found, indirect=True)


@pytest.fixture(scope="session")
def servers():
    """One server per version and durability, started when first asked."""
    yield SERVERS
    for server in SERVERS.values():
        server.close()
    SERVERS.clear()


@pytest.fixture
def pg_version(request):
    return getattr(request, "param", "dist")


@pytest.fixture
def pg(request, servers, pg_version):
    durable = request.node.get_closest_marker("durable") is not None
    key = (pg_version, durable)
    if key not in servers:
        servers[key] = queenlib.Server(
            pg_version, **({"fsync": "on"} if durable else {}))
    server = servers[key]
    if not server.running:
        server.start()
    keep_log(request.node, "PostgreSQL " + pg_version, server.log)
    yield server
    if not server.running:
        server.start()


@pytest.fixture
def db(pg):
    made = pg.new_db()
    yield made
    made.drop()


@pytest.fixture
def empty_db(pg):
    made = pg.new_db(schema=False)
    yield made
    made.drop()


@pytest.fixture
def connect():
    """Connections to a Db, closed with it."""
    return lambda db, **kw: db.connect(**kw)


@pytest.fixture
def folder():
    path = tempfile.mkdtemp(prefix="queen-t-", dir="/tmp")
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def new_cell(request, db, folder):
    made = []

    def make(_db=None, _port=None, **env):
        one = queenlib.Cell(_db or db, folder, env, _port,
                            "queend%d" % len(made))
        made.append(one)
        keep_log(request.node, one.name, one.log)
        return one

    yield make
    faults = []
    for one in made:
        try:
            one.close()
        except AssertionError as e:
            faults.append(str(e))
    assert not faults, "\n".join(faults)


@pytest.fixture
def cell(request, new_cell):
    env = {}
    for mark in request.node.iter_markers("cellenv"):
        env.update(mark.kwargs)
    return new_cell(**env).start()


@pytest.fixture
def cells(new_cell):
    def start(n, **env):
        return [new_cell(**env).start() for _ in range(n)]
    return start


@pytest.fixture
def pair(cells):
    return cells(2)


def close_common(made):
    one = made.pop()
    try:
        one.close()
    finally:
        shutil.rmtree(one.folder, ignore_errors=True)


@pytest.fixture(scope="session")
def cell_of_worker(servers):
    """[that of `common`]; empty until a test asks for it."""
    made = []
    yield made
    if made:
        close_common(made)


@pytest.fixture
def common(request, pg, cell_of_worker):
    assert not request.node.get_closest_marker("cellenv")
    assert "db" not in request.fixturenames, "that is another one's"
    if not cell_of_worker:
        cell_of_worker.append(queenlib.Cell(
            pg.new_db(), tempfile.mkdtemp(prefix="queen-t-", dir="/tmp"),
            name="common"))
    one, = cell_of_worker
    assert one.db.server is pg
    keep_log(request.node, one.name, one.log)
    if one.proc is None:
        one.start()

    def runs():
        # who sees it first complains of its end, the next has another
        if one.proc.poll() is not None:
            close_common(cell_of_worker)

    def serves():
        runs()
        # each lane: the test before may have stopped the server
        return one.get("/health").status == 200 and queenlib.metric(
            one, "queen_db_pool_idle") == 4

    queenlib.wait_until(serves, what="health of the common queend")
    yield one
    runs()


@pytest.fixture
def own_name():
    return "own-%d" % next(NAMES)


# Tails of the logs of a failed test

@pytest.fixture(name="keep_log")
def keep_log_of_test(request):
    return lambda label, path: keep_log(request.node, label, path)


def keep_log(node, label, path):
    start = os.path.getsize(path) if os.path.exists(path) else 0
    node.stash.setdefault(LOGS, []).append((label, path, start))


def log_since(path, start, max_bytes=6000):
    try:
        size = os.path.getsize(path)
        with open(path, "rb") as f:
            f.seek(max(start, size - max_bytes))
            return f.read().decode("utf-8", "replace")
    except OSError as e:
        return str(e)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    outcome = yield
    report = outcome.get_result()
    if report.failed:
        for label, path, start in item.stash.get(LOGS, []):
            report.sections.append(
                ("log of " + label, log_since(path, start)))


# test-report.tsv of the build: every test of this run and how it ended; read by
# tests/acceptance_check.py.  Under xdist only the controller writes it.

def pytest_runtest_logreport(report):
    if report.when == "call" or report.outcome != "passed":
        outcome = "xfailed" if hasattr(report, "wasxfail") else report.outcome
        old = REPORT.get(report.nodeid, "passed")
        REPORT[report.nodeid] = max(old, outcome, key=RANK.__getitem__)


def pytest_sessionfinish(session):
    if hasattr(session.config, "workerinput") or not REPORT \
            or session.config.option.collectonly:
        return
    path = os.environ.get("QUEEN_TEST_REPORT") or os.path.join(
        queenlib.BUILD, "test-report.tsv")
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w") as f:
        for nodeid in sorted(REPORT):
            f.write("%s\t%s\n" % (nodeid, REPORT[nodeid]))


LAST_CELL = "/var/lib/queen/last-cell"  # root's; others have it in HOME


@pytest.fixture
def no_last_cell():
    """
    What root's `up` remembers is one file for the whole machine, which other
    workers' tests write too; what it held before is put back.
    """
    if os.getuid() != 0:
        yield
        return
    os.makedirs(queenlib.Port.folder, exist_ok=True)
    with open(os.path.join(queenlib.Port.folder, "last-cell"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        before = None
        with contextlib.suppress(FileNotFoundError):
            with open(LAST_CELL) as f:
                before = f.read()
            os.unlink(LAST_CELL)
        yield
        if before is not None:
            with open(LAST_CELL, "w") as f:
                f.write(before)
        else:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(LAST_CELL)

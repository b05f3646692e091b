# SPDX-License-Identifier: Apache-2.0
"""The parent of connectors: its boot, the processes it keeps, what it shows.
The databases of these connectors do not exist: their processes run and
fail, which is all a parent needs."""
import os
import re
import signal
import subprocess
import time

import pytest

import queenlib
from queenlib import TENANT, binary, wait_until
from sealkit import K1, K2
from sqlkit import Kit
from test_grant import granted  # noqa: F401

TOOLS = ["queen-pgsrc", "queen-pgsink"]
both = pytest.mark.parametrize("tool", TOOLS)
# nothing listens on port 1
CONNECTION = {"host": "127.0.0.1", "port": 1, "database": "shop",
              "user": "cdc"}
SOURCE = {"kind": "source", "connection": CONNECTION, "source": {
    "tables": [{"table": "public.orders", "queue": "orders"}]}}
SINK = {"kind": "sink", "connection": CONNECTION, "sink": {
    "queue": "orders", "table": "public.copy", "mode": "cdc"}}
DOCUMENT = {"queen-pgsrc": SOURCE, "queen-pgsink": SINK}


def run(tool, *args, **env):
    """(exit status, output) of a tool that ends by itself."""
    done = subprocess.run(
        [binary(tool), *args], stdin=subprocess.DEVNULL, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60,
        env={"PATH": os.environ["PATH"], "LC_ALL": "C", **env}, check=False)
    return done.returncode, done.stdout


def alive(pid):
    """Not gone, nor waiting for somebody to collect its status."""
    try:
        with open("/proc/%d/stat" % pid) as f:
            return f.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


# ---- boot ----

@both
def test_words_and_settings_end_with_their_status(tool):
    name = tool.replace("queen-", "QUEEN_").upper() + "_LISTEN"
    code, text = run(tool, "--help")
    assert code == 0 and name in text and "QUEEN_PG_RELOAD_MS" in text
    assert run(tool, "--version")[1].startswith(tool + " ")
    code, text = run(tool, "--check-config", QUEEN_ENCRYPTION_KEY=K1)
    assert code == 0 and "QUEEN_PG_SHUTDOWN_GRACE_MS=10000\n" in text
    assert "QUEEN_ENCRYPTION_KEY=<set:64 chars>" in text and K1 not in text
    assert run(tool, "--nonsense")[0] == 2
    for env, says in (
            ({"QUEEN_PG_RELOAD_MS": "499"}, 'QUEEN_PG_RELOAD_MS="499"'),
            ({"QUEEN_PG_LEASE_TTL_MS": "120001"}, "QUEEN_PG_LEASE_TTL_MS"),
            ({"QUEEN_PG_THREADS": "17"}, "QUEEN_PG_THREADS"),
            ({"QUEEN_PG_SHUTDOWN_GRACE_MS": "-1"}, "SHUTDOWN_GRACE_MS"),
            ({"QUEEN_PG_CONNECTORS": "maybe"}, "QUEEN_PG_CONNECTORS"),
            ({name: "9334"}, name + '="9334"'),
            ({"QUEEN_SERVER_ID": "x" * 129}, "QUEEN_SERVER_ID"),
            ({"QUEEN_ENCRYPTION_KEY": "abc"}, "QUEEN_ENCRYPTION_KEY")):
        code, text = run(tool, **env)
        assert code == 2 and says in text, (env, text)
    code, text = run(tool, QUEEN_PG_CONNECTORS="false", PG_HOST="127.0.0.1",
                     PG_PORT="1")
    assert code == 0 and text.count("\n") == 1, text
    assert run(tool, PG_HOST="127.0.0.1", PG_PORT="1")[0] == 3


def test_a_cell_that_does_not_fit_ends_the_boot(new_tool, db):
    one = new_tool("queen-pgsink", QUEEN_ENCRYPTION_KEY=K1).start()
    assert one.term() == 0  # its key is known from here on
    other = new_tool("queen-pgsrc", QUEEN_ENCRYPTION_KEY=K2)
    assert other.start(wait=False).wait_exit() == 2
    assert "QUEEN_ENCRYPTION_KEY: the cell seals with key id" in \
        other.log_text()
    old = new_tool("queen-pgsrc", QUEEN_ENCRYPTION_KEY=K2,
                   QUEEN_ENCRYPTION_OLD_KEYS=K1).start()
    assert old.term() == 0
    db.rows("update queen.cell set major = major + 1")
    foreign = new_tool("queen-pgsrc")
    assert foreign.start(wait=False).wait_exit() == 2
    assert "schema major 2" in foreign.log_text()


def test_a_name_is_held_by_one_process(new_tool):
    first = new_tool("queen-pgsrc", QUEEN_SERVER_ID="one").start()
    second = new_tool("queen-pgsrc", QUEEN_SERVER_ID="one")
    assert second.start(wait=False).wait_exit() == 2
    assert 'QUEEN_SERVER_ID="one" is in use' in second.log_text()
    other = new_tool("queen-pgsink", QUEEN_SERVER_ID="one").start()
    first.kill9()
    assert second.start().term() == other.term() == 0


def test_it_waits_for_the_schema(new_tool, empty_db):
    tool = new_tool("queen-pgsrc", _db=empty_db).start(wait=False)
    wait_until(lambda: empty_db.value(
        "select count(*) from pg_stat_activity where application_name ="
        " 'queen-pgsrc boot' and datname = current_database()"))
    assert tool.health() is None and tool.proc.poll() is None
    empty_db.server.apply_schema(empty_db.name)
    wait_until(tool.healthy)
    assert tool.term() == 0


# ---- a connector ----

@both
def test_a_connector_has_a_process_a_block_and_metrics(tool, new_tool, db):
    one = new_tool(tool, QUEEN_ENCRYPTION_KEY=K1)
    one.put("a", DOCUMENT[tool])
    one.put("b", DOCUMENT[tool], tenant=queenlib.OTHER_TENANT)
    # another tool's, and nobody's
    one.put("c", DOCUMENT[TOOLS[tool == TOOLS[0]]])
    db.rows("select queen.kv_put(%s, 'queen-pg', 'conn:what', '{}', null,"
            " null, now())", (queenlib.NIL_TENANT,))
    one.start()
    block = one.await_status("a", phase="error", error="postgres")
    assert (block["tenant"], block["name"], block["kind"],
            block["generation"]) == (TENANT, "a", DOCUMENT[tool]["kind"], 1)
    assert block["lastError"]["code"] == "postgres"
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z",
                        block["since"])
    one.await_status("b", queenlib.OTHER_TENANT, phase="error")
    assert one.status("c") == {}
    pid = one.child("a")
    assert len(one.children()) == 2
    assert one.log_text().count("a key that names no connector") == 1

    def shown():
        found = one.metrics()
        return found if found.get(
            'queen_pg_connector_errors_total{connector="a"}') else None
    found = wait_until(shown)
    assert found["queen_pg_connectors"] == found["queen_pg_processes"] == 2
    assert found["queen_pg_cell_up"] == found["queen_pg_documents_ok"] == 1
    assert found['queen_pg_connector_errors_total{tenant="%s",'
                 'connector="b"}' % queenlib.OTHER_TENANT] >= 1
    text = one.get("/metrics").body.decode()
    assert text.count("# TYPE queen_pg_connector_errors_total counter") == 1
    health = one.health()
    assert health.body == dict(
        health.body, status="ok", tool=tool, node=one.node, cell="up",
        connectors=2, processes=2, documentsError=None)
    assert one.get("/nothing").status == 404
    # its name alone on its command line, no key in its environment
    with open("/proc/%d/cmdline" % pid, "rb") as f:
        assert f.read() == tool.encode() + b"\0--child\0a\0"
    with open("/proc/%d/comm" % pid) as f:
        assert f.read() == tool + "\n"
    with open("/proc/%d/environ" % pid, "rb") as f:
        assert K1.encode() not in f.read()
    fds = {os.readlink("/proc/%d/fd/%d" % (pid, n)) for n in (0, 1)}
    assert fds == {"/dev/null"}
    with open("/proc/%d/limits" % pid) as f:
        soft, hard = re.search(r"Max open files +(\d+) +(\d+)",
                               f.read()).groups()
    assert soft == hard
    assert one.term() == 0 and not alive(pid)
    assert one.status("a")["phase"] == "stopped"


def test_a_document_that_changes_is_a_new_generation(new_tool):
    tool = new_tool("queen-pgsrc").start()
    tool.put("a", SOURCE)
    tool.await_status("a", phase="error", generation=1)
    first = tool.child("a")
    tool.get("/healthz")
    for stamp, generation in (None, 2), ("resync", 3):
        tool.put("a", SOURCE, stamp=stamp)
        tool.await_status("a", generation=generation, phase="error")
    # a write that changes none of the three restarts nothing
    second = tool.child("a")
    tool.db.rows("update queen.kv set version = version + 1000000 where"
                 " namespace = 'queen-pg' and key like 'conn:%%:a'")
    tool.put("b", dict(SOURCE, enabled=False))
    tool.await_status("b", phase="disabled", generation=1, error=None)
    assert tool.child("a") == second != first and not alive(first)
    assert tool.status("a")["generation"] == 3
    # enabled, and disabled again
    tool.put("b", SOURCE)
    tool.await_status("b", phase="error", generation=2)
    tool.put("b", dict(SOURCE, enabled=False))
    tool.await_status("b", phase="disabled", generation=3)
    assert tool.children() == [second]
    # as often as it changes: one starts after the other has ended
    for i in range(5):
        tool.put("a", SOURCE)
    tool.await_status("a", phase="error", error="postgres")
    events = re.findall(r" (started|ended) connector=a\b", tool.log_text())
    assert events == ["started", "ended"] * (len(events) // 2) + ["started"]
    tool.remove("a")
    wait_until(lambda: tool.status("a") == {} and not tool.children())
    assert 'connector="a"' not in tool.get("/metrics").body.decode()
    assert tool.health().body["connectors"] == 1


def test_what_cannot_run_has_no_process(new_tool):
    tool = new_tool("queen-pgsink", QUEEN_ENCRYPTION_KEY=K1).start()
    tool.put("odd", dict(SINK, colour="red"))
    block = tool.await_status("odd", phase="error", error="config")
    assert "colour" in block["error"]["message"]
    sealed = dict(SINK, connection=dict(
        CONNECTION, passwordSealed="AbCdEfGhIjKlMnOpQrStUvWxYz0123456789"))
    tool.put("foreign", sealed)
    block = tool.await_status("foreign", phase="error", error="unseal")
    assert "QUEEN_ENCRYPTION_KEY on every node" in block["error"]["message"]
    assert "retryInMs" not in block and tool.children() == []
    assert tool.metrics()[
        'queen_pg_connector_errors_total{connector="odd"}'] == 1
    tool.put("odd", SINK)
    tool.await_status("odd", phase="error", error="postgres", generation=2)
    # a document without a kind is shown by the other tool, as it is
    source = new_tool("queen-pgsrc").start()
    source.put("none", {"what": "ever"})
    source.await_status("none", phase="error", error="config", kind=None)
    assert tool.status("none") == {}


def test_a_crash_is_one_connectors_own(new_tool):
    tool = new_tool("queen-pgsrc").start()
    tool.put("a", SOURCE)
    tool.put("b", SOURCE)
    tool.await_status("a", error="postgres")
    tool.await_status("b", error="postgres")
    a, b = tool.child("a"), tool.child("b")
    errors = 'queen_pg_connector_errors_total{connector="a"}'
    before = wait_until(lambda: tool.metrics().get(errors))
    os.kill(a, signal.SIGKILL)
    block = tool.await_status("a", error="crashed", phase="error")
    assert block["restarts"] >= 1
    assert "signal 9" in block["error"]["message"]
    assert 0 < block["retryInMs"] <= 1000
    again = wait_until(lambda: tool.child("a"))
    assert again != a and tool.child("b") == b
    block = tool.await_status("a", error="postgres")
    assert (block["generation"], block["restarts"] >= 1) == (1, True)
    assert tool.metrics()[errors] >= before + 1
    assert tool.metrics()["queen_pg_crashes_total"] == 1
    # the second rung
    os.kill(again, signal.SIGKILL)
    wait_until(lambda: tool.status("a").get("retryInMs", 0) > 1000)
    tool.put("a", SOURCE)  # a new document waits for no ladder
    tool.await_status("a", generation=2, error="postgres")
    assert tool.child("b") == b


def test_a_teardown_removes_the_document(
        new_tool, far, granted):  # noqa: F811
    """All with the rights that `schema grant` gives, and no more."""
    far.run("create table orders (id bigint primary key, v text)",
            "create table copy (id bigint primary key, v text)",
            "insert into orders values (1, 'a')")
    source = new_tool("queen-pgsrc", PG_USER=granted).start()
    sink = new_tool("queen-pgsink", PG_USER=granted).start()
    source.put("a", dict(SOURCE, connection=far.connection()))
    sink.put("k", dict(SINK, connection=far.connection()))
    source.await_status("a", phase="streaming", error=None)
    wait_until(lambda: far.rows("select * from copy") == [(1, "a")])
    sink.await_status("k", phase="running", applied=1)
    assert source.metrics()[
        'queen_pg_connector_owner{connector="a"}'] == 1
    assert list(far.slots()) == ["queen_a"]
    source.put("a", dict(SOURCE, connection=far.connection()),
               stamp="delete")
    wait_until(lambda: source.version("a") == 0)
    wait_until(lambda: source.status("a") == {})
    assert far.slots() == {} and source.children() == []
    # written again, it is a new connector
    source.put("a", dict(SOURCE, connection=far.connection()))
    source.await_status("a", phase="streaming", generation=1)


def test_work_is_found_with_a_hint_and_without(new_tool, far, cell, db):
    far.run("create table copy (id int)")
    tool = new_tool("queen-pgsink").start()
    cell.push("orders", [{"id": 1}])
    tool.put("k", {"kind": "sink", "connection": far.connection(), "sink": {
        "queue": "orders", "table": "public.copy", "mode": "append"}})
    wait_until(lambda: far.rows("select count(*) from copy") == [(1,)])
    hints = tool.metrics()["queen_hints_received_total"]
    cell.push("orders", [{"id": 2}])
    wait_until(lambda: far.rows("select count(*) from copy") == [(2,)])
    assert tool.metrics()["queen_hints_received_total"] > hints
    # the same blob again, by a writer that tells nobody
    queue, blob, raw = db.row(
        "select p.queue_id, s.blob, s.raw_bytes from queen.segments s join"
        " queen.partitions p on p.id = s.partition_id"
        " order by s.base_offset desc limit 1")
    kit = Kit(db.connect())
    kit.push(kit.part(queue, "quiet"), ids=["quiet"], blob=bytes(blob),
             raw=raw)
    wait_until(lambda: far.rows("select id from copy order by id")
               == [(1,), (2,), (2,)])


# ---- the end ----

@both
def test_the_grace_counts_from_the_signal(tool, new_tool):
    one = new_tool(tool, QUEEN_PG_SHUTDOWN_GRACE_MS="2000")
    one.put("a", DOCUMENT[tool])
    one.put("b", DOCUMENT[tool])
    one.start()
    one.await_status("a", phase="error")
    one.await_status("b", phase="error")
    a = one.child("a")
    one.signal(signal.SIGHUP)
    os.kill(a, signal.SIGSTOP)
    began = time.monotonic()
    assert one.term() == 0
    assert 2 <= time.monotonic() - began < 6
    assert not alive(a)
    assert "reason=grace" in one.log_text()


def test_a_second_signal_means_now(new_tool):
    tool = new_tool("queen-pgsrc", QUEEN_PG_SHUTDOWN_GRACE_MS="60000").start()
    tool.put("a", SOURCE)
    pid = tool.child("a")
    tool.await_status("a", phase="error")
    os.kill(pid, signal.SIGSTOP)
    tool.signal(signal.SIGTERM)
    wait_until(lambda: "stopping" in tool.log_text())
    tool.signal(signal.SIGTERM)
    assert tool.wait_exit() == 1
    wait_until(lambda: not alive(pid))


@both
def test_children_do_not_outlive_a_killed_parent(tool, new_tool):
    one = new_tool(tool)
    one.put("a", DOCUMENT[tool])
    one.start()
    one.await_status("a", phase="error")
    pid = one.child("a")
    one.kill9()
    wait_until(lambda: not alive(pid))
    one.start()
    one.await_status("a", phase="error", generation=1)
    assert one.child("a") != pid


def test_a_cell_that_goes_and_comes_back(new_tool, pg):
    tool = new_tool("queen-pgsrc").start()
    tool.put("a", SOURCE)
    tool.await_status("a", error="postgres")
    pid = tool.child("a")
    pg.stop("immediate")
    reply = wait_until(lambda: (lambda r: r if r.status == 503 else None)(
        tool.health()))
    assert reply.body["status"] == "unhealthy" and reply.body["error"]
    assert reply.body["cell"] == "down"
    wait_until(lambda: tool.health().body["documentsError"])
    assert tool.child("a") == pid
    pg.start()
    wait_until(tool.healthy)
    tool.put("b", SOURCE)
    tool.await_status("b", error="postgres")
    assert tool.child("a") == pid
    assert tool.metrics()["queen_pg_documents_ok"] == 1


def test_many_documents_and_a_teardown(new_tool):
    """Each gets its process in turn; a source that is being deleted gets one
    even while it is disabled."""
    tool = new_tool("queen-pgsrc")
    names = ["s%02d" % i for i in range(20)]
    for name in names:
        tool.put(name, SOURCE)
    tool.put("off", dict(SOURCE, enabled=False), stamp="delete")
    tool.start()
    for name in names + ["off"]:
        tool.await_status(name, phase="error", error="postgres")
    assert len(tool.children()) == 21
    assert tool.term() == 0

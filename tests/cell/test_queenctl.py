# SPDX-License-Identifier: Apache-2.0
"""queenctl as scripts use it: exit codes, columns, formats, pipelines, the
private cell.  One HTTP server of our own plays answers that queend does not
give (401, 429, a proxy)."""
import contextlib
import http.server
import json
import os
import re
import shutil
import signal
import socket
import stat
import subprocess
import tempfile
import threading

import pytest

import queenlib
from queenlib import wait_until

OK, USER, SERVER, AUTH, NOTHING = range(5)
UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-"
                  r"[0-9a-f]{12}\Z")


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


@pytest.fixture
def ctl(cell, folder):
    home = os.path.join(folder, "home")
    os.mkdir(home)
    return Ctl(home, QUEEN_SERVER="http://127.0.0.1:%d" % cell.port.number)


@pytest.fixture
def alone(folder):
    """Without a server."""
    home = os.path.join(folder, "home")
    os.mkdir(home)
    return Ctl(home)


def table(text):
    """Lines as lists of cells."""
    return [re.split(r" {2,}", x.rstrip()) for x in text.splitlines()]


def three(ctl, queue="orders"):
    ctl.run("push", queue, "--partition-key", "c", stdin=(
        '{"c":"a","n":1}\n{"c":"b","n":2}\n\n{"c":"a","n":3}\n'))


# The commands, one after another

def test_push_counts_and_says_so(ctl):
    assert ctl.run("push", "q", stdin='{"a":1}\n[2]\n"three"\n') == \
        "queued=3 duplicate=0 failed=0\n"
    assert ctl.run("push", "q", "--data", "4", "--transaction-id", "t") == \
        "queued=1 duplicate=0 failed=0\n"
    assert ctl.json("push", "q", "--data", "4", "--transaction-id", "t") == \
        {"queued": 0, "duplicate": 1, "failed": 0}
    assert ctl.run("push", "q", "-q", "--data", "5") == ""


def test_push_of_nothing_is_a_no_op(ctl):
    assert ctl.fails(NOTHING, "push", "q", stdin="\n \n") == ""
    assert ctl.fails(NOTHING, "push", "q", "--dry-run") == ""


def test_push_keeps_batches_before_a_bad_line(ctl, cell):
    err = ctl.fails(USER, "push", "q", "--batch", "2",
                    stdin="1\n2\n3\n{bad\n4\n")
    assert err.startswith("queenctl: line 4: not JSON: ")
    assert [m["data"] for m in cell.pop("q", batch=10)] == [1, 2]


def test_push_that_cannot_be_stored_is_a_server_error(ctl):
    ctl.run("queue", "configure", "sealed", "--encrypt")
    assert ctl.run("push", "sealed", "--data", "1", code=SERVER) == \
        "queued=0 duplicate=0 failed=1\n"


def test_push_dry_run_sends_nothing(ctl, cell):
    assert ctl.run("push", "q", "--dry-run", stdin="1\n2\n") == \
        'would push 2 items to "q"\n'
    assert cell.get("/api/v1/resources/queues").body == {"queues": []}


def test_payload_bytes_pass_unchanged(ctl):
    payload = ('{"big":12345678901234567890,"f":1.500,"e":1E400,'
               '"z":"\\u0000","k":"\\ud800", "s" : "é" , "k":2}')
    ctl.run("push", "q", stdin=payload + "\n")
    line = ctl.run("pop", "q")
    assert '"data":%s,' % payload in line
    assert line.count("\n") == 1


def test_a_line_break_in_a_payload_becomes_a_space(ctl, cell):
    reply = cell.post("/api/v1/push", '{"items":[{"queue":"q","payload":'
                                      '{"a":[1,\n2],\r\n"b":"x\\ny"}}]}')
    assert reply.status == 201
    assert '"data":{"a":[1, 2],  "b":"x\\ny"},' in ctl.run("pop", "q")


def test_pop_prints_the_agreed_line(ctl):
    ctl.run("push", "q", "--data", '{"a":1}', "--partition", "p",
            "--transaction-id", "t")
    line = ctl.lines("pop", "q", "--cg", "g", "--from-mode", "all")[0]
    assert list(line) == ["queue", "partition", "transactionId",
                          "partitionId", "createdAt", "retryCount", "data",
                          "leaseId", "consumerGroup"]
    assert UUID.match(line.pop("leaseId"))
    assert UUID.match(line.pop("partitionId"))
    assert line.pop("createdAt").endswith("Z")
    assert line == {"queue": "q", "partition": "p", "transactionId": "t",
                    "retryCount": 0, "data": {"a": 1}, "consumerGroup": "g"}


def test_pop_of_nothing_is_a_no_op(ctl):
    assert ctl.fails(NOTHING, "pop", "q", "--wait=false") == ""
    assert ctl.fails(NOTHING, "pop", "q", "--timeout", "50ms") == ""


def test_pop_prints_ndjson_whatever_the_format(ctl):
    three(ctl)
    assert len(ctl.lines("pop", "orders", "-n", "3", "--max-partitions", "2",
                         "-o", "yaml")) == 3


def test_pop_by_label(ctl):
    three(ctl, "shop.orders")
    assert ctl.lines("pop", "--namespace", "shop", "--cg", "g", "--from-mode",
                     "all")[0]["queue"] == "shop.orders"


def test_pop_leases_a_batch_beyond_the_limit(ctl):
    ctl.run("push", "q", stdin="1\n2\n3\n")
    assert len(ctl.lines("pop", "q", "--batch", "3")) == 1
    assert ctl.fails(NOTHING, "pop", "q", "--wait=false") == ""


def test_ack_of_one_message(ctl):
    ctl.run("push", "q", "--data", "1")
    m = ctl.lines("pop", "q")[0]
    where = ("--partition-id", m["partitionId"], "--lease-id", m["leaseId"])
    assert ctl.run("ack", m["transactionId"], *where) == "ack ok\n"
    assert "no such" not in ctl.err
    assert "ack failed: " in ctl.fails(
        SERVER, "ack", "never", "--partition-id", m["partitionId"])
    assert "--partition-id is needed" in ctl.fails(USER, "ack", "t")


def test_acks_in_a_pipe_find_their_group(ctl):
    three(ctl)
    popped = ctl.run("pop", "orders", "--cg", "g", "--from-mode", "all", "-n",
                     "9", "--max-partitions", "9")
    popped += ctl.run("pop", "orders", "-n", "9", "--max-partitions", "9")
    assert ctl.run("ack", "--batch", "-", stdin=popped) == "ok=6 failed=0\n"
    assert ctl.fails(NOTHING, "ack", "--batch", "-") == ""
    assert ctl.fails(USER, "ack", "--batch", "-", stdin='{"a":1}') == \
        "queenctl: line 1: transactionId is missing or not a string\n"
    # acknowledged before: told as no failure
    assert ctl.run("ack", "--batch", "-", stdin=popped) == "ok=6 failed=0\n"


def test_failed_ack_dead_letters_and_retry_moves_back(ctl):
    ctl.run("queue", "configure", "q", "--retry-limit", "0")
    ctl.run("push", "q", "--data", '{"x":1}', "--transaction-id", "t")
    popped = ctl.run("pop", "q", "--cg", "g", "--from-mode", "all")
    assert ctl.run("ack", "--batch", "-", "--failed", "--error", "smtp 550",
                   stdin=popped) == "ok=1 failed=0\n"
    dead = ctl.json("dlq", "list", "--queue", "q")[0]
    assert dead["errorMessage"] == "smtp 550"
    where = (dead["partitionId"], "t")
    assert ctl.json("dlq", "describe", *where)["status"] == "dead_letter"
    assert ctl.json("messages", "list", "--status", "failed", "--queue",
                    "q")[0]["transactionId"] == "t"
    assert "refusing to move" in ctl.fails(USER, "dlq", "retry", *where)
    assert ctl.run("dlq", "retry", *where, "--dry-run").startswith(
        "[dry-run] would move")
    assert ctl.run("dlq", "retry", *where, "--yes") == \
        'moved to "q"/"Default" as dlq:%s\n' % dead["id"]
    assert ctl.fails(SERVER, "dlq", "retry", *where, "--yes") == \
        "queenctl: there is no such dead letter: it was moved or deleted " \
        "already\n"
    assert ctl.lines("pop", "q", "--cg", "g")[0]["data"] == {"x": 1}


def test_dlq_retry_by_row_to_another_queue(ctl):
    make_dead(ctl, 1)
    row = ctl.json("dlq", "list")[0]
    assert ctl.run("dlq", "retry", "--id", row["id"], "--to-queue", "other",
                   "--to-partition", "p", "--yes") == \
        'moved to "other"/"p" as dlq:%s\n' % row["id"]
    assert ctl.lines("pop", "other")[0]["partition"] == "p"


def make_dead(ctl, n, queue="q", partition="Default"):
    ctl.run("queue", "configure", queue, "--retry-limit", "0")
    for i in range(n):
        ctl.run("push", queue, "--data", str(i), "--partition", partition)
        popped = ctl.run("pop", queue, "--partition", partition)
        ctl.run("ack", "--batch", "-", "--failed", stdin=popped)


@pytest.mark.parametrize("by", ["queue", "partition"])
def test_dlq_drain(ctl, by):
    make_dead(ctl, 3)
    make_dead(ctl, 1, "q", "other")
    if by == "queue":
        args, n = ["--queue", "q"], 4
    else:
        args, n = ["--partition", "Default", "--limit", "2"], 3
    assert ctl.run("dlq", "drain", *args, "--dry-run") == \
        "[dry-run] processed=%d errors=0\n" % n
    assert "refusing to delete" in ctl.fails(USER, "dlq", "drain", *args)
    assert ctl.run("dlq", "drain", *args, "--yes") == \
        "processed=%d errors=0\n" % n
    assert ctl.fails(NOTHING, "dlq", "drain", *args, "--yes") == ""
    assert len(ctl.json("dlq", "list")) == 4 - n


def test_transaction_is_posted_as_given(ctl):
    ctl.run("push", "q", "--data", "1")
    m = ctl.lines("pop", "q")[0]
    bundle = json.dumps({
        "operations": [
            {"type": "ack", "transactionId": m["transactionId"],
             "partitionId": m["partitionId"]},
            {"type": "push", "items": [{"queue": "out", "transactionId": "d1",
                                        "payload": {"id": 1}}]}],
        "requiredLeases": [m["leaseId"]]})
    assert ctl.run("tx", "-f", "-", "--dry-run", stdin=bundle) == \
        "would commit 2 operations\n"
    assert ctl.run("tx", "-f", "-", stdin=bundle) == "transaction committed\n"
    assert "rolled back: " in ctl.fails(SERVER, "tx", "-f", "-", stdin=bundle)
    assert ctl.lines("pop", "out")[0]["transactionId"] == "d1"
    for bad, why in (
            ("{", "not JSON"), ("{}", "no operations"),
            ('{"operations":[{"type":"kv"}]}', "neither ack nor push"),
            ('{"operations":[{"type":"push","items":[]}]}', "without items")):
        assert why in ctl.fails(USER, "tx", "-f", "-", stdin=bad)


def test_lease_extend(ctl):
    ctl.run("push", "q", "--data", "1")
    lease = ctl.lines("pop", "q")[0]["leaseId"]
    assert re.match(r"renewed %s -> 20\d\d-" % lease,
                    ctl.run("lease", "extend", lease, "--seconds", "90"))
    ctl.fails(SERVER, "lease", "extend", lease[:-1] + "x")


def test_tail_stops_at_its_batch_and_leaves_the_leases(ctl):
    three(ctl)
    tail = ("tail", "orders", "--from", "all", "--max-partitions", "0")
    lines = ctl.lines(*tail, "-n", "100", "--timeout", "5s")
    assert [m["data"]["n"] for m in lines if m["partition"] == "a"] == [1, 3]
    assert {m["consumerGroup"] for m in lines} == {"queenctl-tail"}
    assert ctl.lines(*tail, "--idle-millis", "50") == []


def test_tail_into_push_and_into_ack(ctl):
    three(ctl)
    done = subprocess.run(
        ["/bin/sh", "-c",
         '"$0" tail orders --cg copy --from all -n 9 --max-partitions 0 |'
         ' tee lines | "$0" push copy --wrapped && '
         '"$0" ack --batch lines && "$0" tail orders -n 100 --from all '
         '--max-partitions 0 | "$0" ack --batch -',
         queenlib.binary("queenctl")], env=ctl.env, cwd=ctl.home,
        stdout=subprocess.PIPE, check=True, timeout=120)
    assert done.stdout.decode() == (
        "queued=3 duplicate=0 failed=0\nok=3 failed=0\nok=3 failed=0\n")
    lines = ctl.lines("pop", "copy", "-n", "9", "--max-partitions", "2")
    assert {(m["partition"], m["data"]["n"]) for m in lines} == \
        {("a", 1), ("a", 3), ("b", 2)}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_tail_ends_well_by_a_signal(ctl, cell, number):
    proc = subprocess.Popen(
        ctl.argv("tail", "q", "-f"), env=ctl.env, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, cwd=ctl.home)
    try:
        wait_until(lambda: any(g["name"] == "queenctl-tail" for g in
                               cell.get("/api/v1/consumer-groups").body))
        cell.push("q", [{"n": 1}])
        assert json.loads(proc.stdout.readline())["data"] == {"n": 1}
        proc.send_signal(number)
        out, err = proc.communicate(timeout=30)
        assert (proc.returncode, out, err) == (0, b"", b"")
    finally:
        proc.kill()
        proc.wait()


def test_a_waiting_pop_dies_of_its_signal(ctl, cell):
    proc = subprocess.Popen(
        ctl.argv("pop", "q", "--cg", "g", "--timeout", "60s"), env=ctl.env,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ctl.home)
    try:
        wait_until(lambda: cell.get("/api/v1/consumer-groups").body)
        proc.send_signal(signal.SIGTERM)
        assert proc.communicate(timeout=30) == (b"", b"")
        assert proc.returncode == -signal.SIGTERM
    finally:
        proc.kill()
        proc.wait()


# Resources and their columns

def test_golden_columns(ctl):
    """The headers scripts cut by."""
    three(ctl)
    ctl.lines("pop", "orders", "--cg", "g", "--from-mode", "all")
    heads = {
        ("queue", "list"): "NAME NAMESPACE TASK PARTITIONS PRIORITY LEASE",
        ("queue", "depth", "orders"): "PENDING PARTITIONS PARTITIONSPENDING",
        ("partition", "list", "orders"): "PARTITION PENDING PROCESSING",
        ("namespace", "list"): "NAMESPACE QUEUES",
        ("task", "list"): "TASK QUEUES",
        ("lag",): "CG QUEUE MESSAGES LAG",
        ("cg", "list"): "CG QUEUE MESSAGES LAG",
        ("cg", "lag"): "CG QUEUE MESSAGES LAG",
        ("messages", "list"): "TX QUEUE PARTITION STATUS RETRIES CREATED",
        ("traces", "names"): "NAME EVENTS FIRST LAST",
        ("traces", "by-name", "x"): "AT EVENT TX PARTITION DATA",
        ("dlq", "list"): "TX QUEUE PARTITION CG RETRIES ERROR",
        ("status",):
            "QUEUE NAMESPACE PENDING PROCESSING COMPLETED FAILED DLQ LAG",
        ("status", "orders"): "QUEUE PENDING PROCESSING COMPLETED FAILED DLQ "
                              "PARTITIONS LAG",
        ("ping",): "STATUS DATABASE VERSION LATENCY",
        ("config", "get-contexts"): "CURRENT NAME SERVER AUTH",
    }
    for args, want in heads.items():
        out = ctl.run(*args, "-o", "table")
        assert out.splitlines()[0].split() == want.split(), args
    wide = {
        ("queue", "list"): "RETRY MAXSIZE ENCRYPTED MESSAGES PENDING",
        ("partition", "list", "orders"):
            "COMPLETED FAILED DLQ TOTAL MESSAGES",
        ("lag",): "PARTITIONS SUBSCRIBED",
        ("messages", "list"): "PARTITIONID PRODUCER",
        ("dlq", "list"): "FAILED-AT PARTITIONID",
    }
    for args, want in wide.items():
        out = ctl.run(*args, "-o", "wide")
        assert out.splitlines()[0].split() == \
            heads[args].split() + want.split(), args


def test_table_cells(ctl):
    three(ctl, "shop.orders")
    assert table(ctl.run("queue", "list", "-o", "table")) == [
        ["NAME", "NAMESPACE", "TASK", "PARTITIONS", "PRIORITY", "LEASE"],
        ["shop.orders", "shop", "orders", "2", "0", "60"]]
    assert ctl.run("queue", "list", "-o", "table", "--no-headers").split() \
        == ["shop.orders", "shop", "orders", "2", "0", "60"]
    assert table(ctl.run("partition", "list", "shop.orders", "-o",
                         "table"))[1:] == [["a", "2", "0"], ["b", "1", "0"]]
    assert table(ctl.run("status", "shop.orders", "-o", "table"))[1][:7] == \
        ["shop.orders", "3", "0", "0", "-", "0", "2"]
    assert table(ctl.run("status", "shop.orders", "--partitions", "-o",
                         "table"))[0] == ["PARTITION", "PENDING",
                                          "PROCESSING"]
    assert table(ctl.run("namespace", "list", "-o", "table"))[1] == \
        ["shop", "1"]
    row = table(ctl.run("messages", "list", "-o", "table"))[1]
    assert row[1:5] == ["shop.orders", row[2], "pending", "-"]
    assert row[5] == "now" or row[5].endswith(" ago")


def test_colour_only_when_it_is_wanted(ctl):
    bold = "\033[1m"
    args = ("queue", "list", "-o", "table")
    three(ctl)
    assert bold not in ctl.run(*args)
    assert ctl.run(*args, "--color").startswith(bold)
    assert bold not in ctl.run(*args, CLICOLOR_FORCE="1", NO_COLOR="1")
    assert bold in ctl.run(*args, CLICOLOR_FORCE="1")


def test_formats(ctl):
    three(ctl)
    rows = json.loads(ctl.run("queue", "list"))
    assert [q["name"] for q in rows] == ["orders"]
    assert ctl.run("queue", "list", "-o", "json").startswith(
        '[\n  {\n    "id": "')
    assert json.loads(ctl.run("queue", "list", "-o", "ndjson")) == rows[0]
    assert ctl.run("queue", "list", "-o", "yaml").startswith("- id: ")
    raw = json.loads(ctl.run("status", "-o", "raw"))
    assert set(raw) == {"queues", "pagination"}
    assert ctl.run("queue", "list", "-o", "jsonpath=.queues[0].name") == \
        "orders\n"
    assert ctl.run("status", "-o", "json-path=.pagination.limit") == "100\n"
    assert "out of range" in ctl.fails(
        USER, "queue", "list", "-o", "jsonpath=.queues[7]")
    # an object command shows yaml where a table was asked for
    assert ctl.run("queue", "describe", "orders", "-o", "table").startswith(
        "id: ")
    assert "unknown output format \"xml\"" in ctl.fails(
        USER, "queue", "list", "-o", "xml")


def test_configure_sends_what_was_typed(ctl):
    assert ctl.run("queue", "configure", "q", "--lease-time", "30") == \
        'configured "q"\n'
    options = ctl.json("queue", "configure", "q", "--retry-limit", "0",
                       "--dlq=false", "--retention", "60")["options"]
    assert (options["leaseTime"], options["retryLimit"],
            options["deadLetterQueue"], options["dlqAfterMaxRetries"],
            options["retentionEnabled"], options["retentionSeconds"]) == \
        (30, 0, False, False, True, 60)
    assert "(HTTP 400)" in ctl.fails(
        SERVER, "queue", "configure", "q", "--lease-time", "-1")


def test_queue_list_filters(ctl):
    for name in ("a.x", "a.y", "b.x"):
        ctl.run("push", name, "--data", "1")

    def names(*args):
        return [q["name"] for q in ctl.json("queue", "list", *args)]
    assert names() == ["a.x", "a.y", "b.x"]
    assert names("--namespace", "a") == ["a.x", "a.y"]
    assert names("--task", "x") == ["a.x", "b.x"]
    assert names("--limit", "1", "--offset", "1") == ["a.y"]


def test_destructive_commands_ask_first(alone):
    """Before any call: there is no server here."""
    for args in (("queue", "delete", "q"), ("cg", "delete", "g"),
                 ("messages", "delete", "p", "t"), ("dlq", "drain"),
                 ("dlq", "retry", "p", "t"), ("maintenance", "on"),
                 ("maintenance", "on", "--pop")):
        assert re.match(r"queenctl: refusing to .* without --yes\n",
                        alone.fails(USER, *args)), args


def test_the_whole_surface(ctl):
    """Every command once, as the acceptance list goes."""
    ctl.run("ping")
    assert re.match(r"queenctl \S+ \(commit \S+, built \S+\)\n\Z",
                    ctl.run("version", "--short"))
    assert ctl.run("version").splitlines()[2] == "status: healthy"
    three(ctl)
    assert ctl.json("queue", "describe", "orders")["name"] == "orders"
    ctl.run("queue", "configure", "orders", "--lease-time", "30")
    assert ctl.json("queue", "stats")["queues"][0]["name"] == "orders"
    assert len(ctl.json("partition", "describe", "orders", "a")) == 2
    m = ctl.lines("pop", "orders", "-n", "1", "--cg", "g", "--from-mode",
                  "all")[0]
    where = (m["partitionId"], m["transactionId"])
    assert ctl.json("messages", "get", *where)["data"] == m["data"]
    assert ctl.json("messages", "traces", *where) == []
    assert ctl.json("traces", "by-message", *where) == []
    assert ctl.json("traces", "names") == []
    assert ctl.run("cg", "refresh-stats") == "refreshed\n"
    assert ctl.run("cg", "seek", "g", "orders", "--to", "now") == \
        "sought cg=g queue=orders to=now\n"
    assert list(ctl.json("cg", "describe", "g")) == ["orders"]
    assert ctl.json("lag")[0]["name"] == "g"
    assert ctl.json("lag", "--min-seconds", "3600") == []
    ctl.fails(NOTHING, "dlq", "drain", "--dry-run")
    assert ctl.json("namespace", "list")[0]["namespace"] == "orders"
    ctl.json("task", "list")
    assert ctl.json("status")[0]["name"] == "orders"
    assert ctl.json("status", "orders")["queue"] == "orders"
    assert ctl.json("maintenance", "get")["maintenanceMode"] is False
    assert ctl.json("maintenance", "get", "--pop")["popMaintenanceMode"] \
        is False
    assert "uptime" in ctl.json("metrics")
    assert "# TYPE" in ctl.run("metrics", "--prometheus")
    for sub in ("overview", "queue-lag", "queue-ops", "retention",
                "postgres"):
        ctl.json("analytics", sub, "--from", "1h ago", "--to", "now")
    assert ctl.run("replay", "orders", "--cg", "g", "--to", "beginning") == \
        "replayed cg=g queue=orders to=beginning\n"
    assert ctl.json("queue", "depth", "orders", "--group", "g")["pending"] \
        == 3
    assert ctl.run("cg", "delete", "g", "--yes") == 'deleted "g"\n'
    assert ctl.run("queue", "delete", "orders", "--yes") == \
        'deleted "orders"\n'
    assert ctl.fails(NOTHING, "queue", "delete", "orders", "--yes") == ""


def test_seek_of_one_partition(ctl):
    three(ctl)
    ctl.run("partition", "seek", "orders", "a", "--cg", "g")
    depth = ("queue", "depth", "orders", "--group", "g")
    assert {p["partition"]: p["pending"] for p in
            ctl.json(*depth)["partitions"]}["a"] == 0
    ctl.run("partition", "seek", "orders", "a", "--cg", "g", "--to",
            "offset:1")
    assert {p["partition"]: p["pending"] for p in
            ctl.json(*depth)["partitions"]}["a"] == 1
    ctl.run("partition", "seek", "orders", "a", "--cg", "g", "--to", "start")
    assert "(HTTP 404)" in ctl.fails(
        SERVER, "partition", "seek", "orders", "zz", "--cg", "g")
    assert "which group?" in ctl.fails(USER, "partition", "seek", "q", "p")
    assert "belongs to one partition" in ctl.fails(
        USER, "replay", "orders", "--cg", "g", "--to", "offset:1")
    assert "is not a time" in ctl.fails(
        USER, "replay", "orders", "--cg", "g", "--to", "tomorrow")


def test_replay_follows_until_caught_up(ctl):
    three(ctl)
    ctl.run("tail", "orders", "--cg", "g", "--from", "all", "-n", "9",
            "--max-partitions", "0", "--auto-ack")
    ctl.run("replay", "orders", "--cg", "g", "--to", "beginning")
    proc = subprocess.Popen(
        ctl.argv("replay", "orders", "--cg", "g", "--to", "beginning", "-f"),
        env=ctl.env, stdout=subprocess.PIPE, cwd=ctl.home)
    try:
        assert proc.stdout.readline().startswith(b"replayed cg=g")
        assert len(ctl.lines("tail", "orders", "--cg", "g", "-n", "3",
                             "--max-partitions", "0", "--auto-ack")) == 3
        assert proc.wait(60) == 0
    finally:
        proc.kill()
        proc.communicate()


def test_maintenance_on_and_off(ctl):
    assert ctl.run("maintenance", "on", "--yes") == "maintenance on\n"
    assert ctl.json("maintenance", "get")["maintenanceMode"] is True
    ctl.run("push", "q", "--data", "1", code=SERVER)
    assert ctl.run("maintenance", "off") == "maintenance off\n"
    assert ctl.run("maint", "on", "--pop", "--yes") == "pop-maintenance on\n"
    ctl.fails(NOTHING, "pop", "q", "--wait=false")
    assert ctl.run("maint", "off", "--pop") == "pop-maintenance off\n"
    assert ctl.run("push", "q", "--data", "1")


def test_names_are_encoded_in_paths(ctl):
    for name in ("a/b", "..", "q ?&#%", "é€"):
        ctl.run("push", name, "--data", "1")
        assert ctl.json("queue", "describe", name)["name"] == name


# apply

MANIFEST = """\
kind: Queue
name: orders
namespace: billing
config:
  leaseTime: 77
  deadLetterQueue: false
  retryLimit: 0
---
namespace: nobody
---
kind: ConsumerGroup
name: analyzer
queue: orders
seek-to: beginning
---
kind: cg
name: other
queue: orders
"""


def test_apply_replaces_and_seeks(ctl):
    ctl.run("push", "orders", "--data", "1")
    ctl.run("queue", "configure", "orders", "--retention", "60")
    assert ctl.run("apply", "-f", "-", "--dry-run", stdin=MANIFEST) == (
        '[dry-run] would apply Queue "orders"\n'
        '[skip] document 2 has no name\n'
        '[dry-run] would apply ConsumerGroup "analyzer"\n'
        '[skip] ConsumerGroup "other" has no seek-to\n')
    path = os.path.join(ctl.home, "m.yaml")
    with open(path, "w") as f:
        f.write(MANIFEST)
    assert ctl.run("apply", "-f", path).splitlines()[::2] == [
        'applied Queue "orders"', 'applied ConsumerGroup "analyzer"']
    options = ctl.json("queue", "describe", "orders")["options"]
    assert (options["leaseTime"], options["deadLetterQueue"],
            options["retryLimit"], options["namespace"],
            options["retentionSeconds"], options["retentionEnabled"]) == \
        (77, False, 0, "billing", 0, False)
    assert ctl.json("lag")[0]["totalLag"] == 1
    assert ctl.run("apply", "-f", "-", "-q", stdin=json.dumps(
        {"name": "orders", "config": {"leaseTime": None}})) == ""
    assert ctl.json("queue", "describe", "orders")["options"]["leaseTime"] \
        == 300


@pytest.mark.parametrize("text,why", [
    ("kind: Topic\nname: x\n", 'document 2: unknown kind "Topic"'),
    ("name: x\nconfig: {lease-time: 1}\n",
     'document 2: "lease-time" is spelled "leaseTime"'),
    ("name: x\nconfg: {}\n", 'document 2: unknown key "confg"; there are: '),
    ("kind: ConsumerGroup\nname: g\n", "document 2: a ConsumerGroup needs "),
    ("kind: cg\nname: g\nqueue: q\nseekTo: now\n",
     'document 2: "seekTo" is spelled "seek-to"'),
    ("kind: cg\nname: g\nqueue: q\nseek-to: soon\n", "is not a time"),
    ("[1]\n", "expected a mapping"),
    ("name: [\n", "-: line "),
])
def test_apply_refuses_before_it_sends(ctl, text, why):
    assert why in ctl.fails(USER, "apply", "-f", "-",
                            stdin="name: first\n---\n" + text)
    assert ctl.json("queue", "list") == []


def test_apply_of_nothing_is_a_no_op(ctl):
    assert ctl.fails(NOTHING, "apply", "-f", "-", stdin="# empty\n") == ""
    assert "--file" in ctl.fails(USER, "apply")
    assert "cannot open" in ctl.fails(USER, "apply", "-f", "/nowhere")


def test_apply_stops_at_a_server_error(ctl):
    assert ctl.run("apply", "-f", "-", code=SERVER, stdin=(
        "name: a\n---\nname: b\nconfig: {leaseTime: 0}\n---\nname: c\n")) == \
        'applied Queue "a"\n'
    assert [q["name"] for q in ctl.json("queue", "list")] == ["a"]


# Servers that are not there or say no

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

    do_GET = do_POST = do_DELETE = answer

    def log_message(self, *args):
        pass


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


def answer(status, body=None, **headers):
    return status, headers, json.dumps(body)


def test_unreachable_server(alone):
    with contextlib.closing(socket.socket()) as s:
        s.bind(("127.0.0.1", 0))  # bound, not listening: refused
        url = "http://127.0.0.1:%d" % s.getsockname()[1]
        for args in (("ping",), ("queue", "list"), ("push", "q", "--data",
                                                    "1"), ("tail", "q")):
            assert alone.fails(SERVER, "--server", url, *args).startswith(
                "queenctl: cannot reach %s: " % url)


@pytest.mark.parametrize("status", [401, 403])
def test_refused_tokens(stub, status):
    ctl = stub(answer(status, {"error": "Invalid token signature"}))
    for args in (("queue", "list"), ("push", "q", "--data", "1"), ("ping",),
                 ("tail", "q"), ("dlq", "retry", "p", "t", "--yes")):
        assert ctl.fails(AUTH, *args, "--token", "bad") == \
            "queenctl: Invalid token signature (HTTP %d)\n" % status
    assert len(ctl.seen) == 5  # never again
    assert ctl.seen[0][2]["Authorization"] == "Bearer bad"


def test_route_blocked_by_a_proxy(stub):
    ctl = stub(answer(404, {"error": "x", "code": "route_blocked"}))
    assert "operator-only behind the proxy" in ctl.fails(USER, "metrics")


def test_reads_are_repeated_writes_are_not(stub):
    ctl = stub(answer(500, {"error": "pool"}), answer(200, {"queues": []}))
    assert ctl.json("queue", "list") == []
    assert len(ctl.seen) == 2
    ctl = stub(answer(500, {"error": "pool"}))
    assert ctl.fails(SERVER, "queue", "list") == \
        "queenctl: pool (HTTP 500)\n"
    assert len(ctl.seen) == 3
    for args in (("push", "q", "--data", "1"), ("pop", "q"),
                 ("dlq", "retry", "p", "t", "--yes"),
                 ("queue", "configure", "q")):
        ctl = stub(answer(500, {"error": "pool"}), answer(200, {}))
        ctl.fails(SERVER, *args)
        assert len(ctl.seen) == 1, args


def test_429_is_waited_out(stub):
    busy = (429, {"Retry-After": "0"}, "{}")
    ctl = stub(busy, busy, answer(201, [{"status": "queued"}]))
    assert ctl.run("push", "q", "--data", "1") == \
        "queued=1 duplicate=0 failed=0\n"
    assert len(ctl.seen) == 3
    ctl = stub(busy)
    ctl.fails(SERVER, "queue", "list")
    assert len(ctl.seen) == 11
    ctl = stub(busy, answer(200, {}))
    ctl.fails(SERVER, "dlq", "retry", "p", "t", "--yes")
    assert len(ctl.seen) == 1


def test_answers_that_are_not_json(stub):
    ctl = stub((200, {}, "<html>"))
    assert "is not JSON" in ctl.fails(SERVER, "queue", "list")
    ctl = stub((502, {}, "<html>\x1b[31m"))
    assert ctl.fails(SERVER, "queue", "delete", "q", "--yes") == \
        "queenctl: the server refused (HTTP 502)\n"
    ctl = stub(answer(400, {"error": "a\x1b[31m\nb"}))
    assert ctl.fails(SERVER, "queue", "describe", "q") == \
        "queenctl: a [31m b (HTTP 400)\n"


def test_ping_tells_ill_health(stub):
    ctl = stub(answer(503, {"status": "unhealthy",
                            "database": "disconnected", "version": "1"}))
    out = json.loads(ctl.run("ping", code=SERVER))
    assert (out["status"], out["database"]) == ("unhealthy", "disconnected")


def test_dlq_retry_outcomes(stub):
    retry = ("dlq", "retry", "p", "t", "--yes")
    ctl = stub(answer(200, {"success": False, "result": "duplicate",
                            "dlqRowRemoved": False,
                            "replayedAs": {"offset": 41}}))
    assert "at offset 41; nothing was written" in ctl.fails(SERVER, *retry)
    ctl = stub(answer(500, {"dlqRowRemoved": None, "error": "x"}))
    assert "the outcome is unknown" in ctl.fails(SERVER, *retry)
    ctl = stub(answer(503, {"result": "maintenance", "error": "x"}))
    assert "stopped for maintenance" in ctl.fails(SERVER, *retry)


def test_a_proxy_of_the_environment_is_no_detour_to_loopback(ctl):
    ctl.run("ping", http_proxy="http://127.0.0.1:1",
            ALL_PROXY="http://127.0.0.1:1")


# Wrong use, contexts

@pytest.mark.parametrize("args,why", [
    (("--nope",), "unknown flag --nope; see queenctl --help"),
    (("queue", "list", "--nope"),
     "unknown flag --nope; see queenctl queue list --help"),
    (("push", "-Z"), "unknown flag -Z; see queenctl push --help"),
    (("nope",), 'unknown command "nope"'),
    (("queue", "describe"), "missing argument"),
    (("ping", "x"), "too many arguments"),
    (("pop", "q", "--limit", "x"), "not an integer"),
    (("pop", "q", "--limit", "0"), "out of range"),
    (("pop",), "which queue?"),
    (("pop", "q", "--conflation"), "needs a group"),
    (("pop", "q", "--cg", "g", "--conflation", "--auto-ack"), "exclude"),
    (("pop", "q", "--from-mode", "some"), "expected all or new"),
    (("push", "q", "--data", "{"), "not JSON"),
    (("replay", "q"), "needs --cg"),
    (("messages", "list", "--status", "odd"), "expected pending"),
    (("completion", "fish"), "no completion for fish"),
    (("up", "--port", "70000"), "out of range"),
    (("--server", "localhost:1", "ping"), "must start with http://"),
    (("--context", "nope", "ping"), 'there is no context "nope"'),
])
def test_wrong_use(alone, args, why):
    assert why in alone.fails(USER, *args)


def test_no_server_at_all(alone, no_last_cell):
    assert alone.fails(USER, "queue", "list") == (
        "queenctl: no server configured: set --server, QUEEN_SERVER, or run "
        "'queenctl config set-context'\n")
    assert alone.run("version").count("\n") == 1


def test_help_at_every_level(alone):
    assert "usage: queenctl COMMAND" in alone.run()
    assert alone.run("--help") == alone.run("help") == alone.run()
    assert "usage: queenctl queue COMMAND" in alone.run("queue")
    assert "usage: queenctl queue configure <queue>" in \
        alone.run("q", "set", "--help")
    assert "--retry-limit N" in alone.run("help", "queue", "configure")


def test_contexts(alone):
    with_config = os.path.join(alone.home, ".queen", "config.yaml")
    assert alone.fails(NOTHING, "config", "current-context") == ""
    assert alone.run("config", "set-context", "prod", "--server",
                     "https://prod:6632", "--token", "s3cret") == \
        'context "prod" updated\n'
    alone.run("config", "set-context", "local", "--server",
              "http://localhost:1", "--token-ref", "literal:abc",
              "--insecure")
    assert stat.S_IMODE(os.stat(with_config).st_mode) == 0o600
    assert stat.S_IMODE(os.stat(os.path.dirname(with_config)).st_mode) == \
        0o700
    token = os.path.join(alone.home, ".queen", "tokens", "prod")
    assert stat.S_IMODE(os.stat(token).st_mode) == 0o600
    with open(with_config) as f:
        assert "s3cret" not in f.read()
    assert alone.run("config", "current") == "prod\n"
    shown = alone.run("config", "view")
    assert "current-context: prod\n" in shown
    assert "token-ref: file://%s\n" % token in shown
    assert "abc" not in shown and "literal:<set>" in shown
    assert table(alone.run("config", "get-contexts", "-o", "wide"))[1:] == [
        ["*", "prod", "https://prod:6632", "file", "false"],
        ["-", "local", "http://localhost:1", "literal", "true"]]
    assert alone.run("config", "use-context", "local") == \
        'switched to context "local"\n'
    assert 'no context "x"' in alone.fails(USER, "config", "use-context", "x")
    # only what is typed changes
    alone.run("config", "set-context", "local", "--server", "http://l:2")
    assert json.loads(alone.run("config", "get-contexts"))[1] == {
        "current": "*", "name": "local", "server": "http://l:2",
        "auth": "literal", "insecure": True}
    alone.run("config", "delete-context", "prod")
    assert not os.path.exists(token)
    alone.run("config", "delete-context", "local")
    alone.fails(NOTHING, "config", "current-context")
    assert "cannot be the name" in alone.fails(
        USER, "config", "set-context", "../x")


def test_context_names_the_server_and_token(stub, alone):
    ctl = stub(answer(200, {"queues": []}))
    url = ctl.env.pop("QUEEN_SERVER")
    ctl.run("config", "set-context", "c", "--server", url, "--token-ref",
            "env")
    assert ctl.json("queue", "list", QUEEN_TOKEN="tok") == []
    assert ctl.seen[0][2]["Authorization"] == "Bearer tok"
    ctl.run("config", "set-context", "k", "--server", url, "--token-ref",
            "keychain://k")
    assert "keychains are not supported" in ctl.fails(
        USER, "--context", "k", "ping")
    assert "no context" in ctl.fails(USER, "ping", QUEEN_CONTEXT="zz")


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_completion_scripts_load(alone, shell):
    path = os.path.join(alone.home, "script")
    with open(path, "w") as f:
        f.write(alone.run("completion", shell))
    if not shutil.which(shell):
        pytest.skip("no %s here" % shell)
    done = subprocess.run([shell, "-n", path], stderr=subprocess.PIPE,
                          check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    if shell == "bash":
        ask = ('. "$0"; COMP_WORDS=(queenctl -o json queue des); '
               'COMP_CWORD=4; _queenctl; echo "${COMPREPLY[@]}"')
        assert subprocess.check_output(["bash", "-c", ask, path]) == \
            b"describe\n"


# The database directly

@pytest.fixture
def pgctl(alone):
    def make(db):
        return Ctl(alone.home, PG_HOST="127.0.0.1",
                   PG_PORT=str(db.server.port.number), PG_USER="queen",
                   PG_DATABASE=db.name)
    return make


def test_schema_apply_and_status(pgctl, empty_db):
    ctl = pgctl(empty_db)
    assert ctl.json("schema", "status")["state"] == "absent"
    assert "run: queenctl schema apply" in ctl.fails(
        USER, "schema", "grant", "nobody")
    assert re.match(r"applied schema \d+\.\d+\n", ctl.run("schema", "apply"))
    status = ctl.json("schema", "status")
    assert status["state"] == "same"
    assert status["database"] == status["program"]
    assert re.match(r"schema \d+\.\d+ is there already\n",
                    ctl.run("schema", "apply"))
    assert alone_conninfo(ctl, empty_db) == "same"


def alone_conninfo(ctl, db):
    bare = Ctl(ctl.home)
    return bare.json("schema", "status", "--conninfo", db.conninfo())["state"]


def test_unreachable_database(alone):
    for args in (("schema", "status"), ("schema", "apply"), ("doctor",)):
        assert alone.fails(SERVER, *args, PG_HOST="127.0.0.1", PG_PORT="1")
    assert "PG_PORT" in alone.fails(USER, "doctor", PG_PORT="x")


def test_schema_grant_is_enough_to_run_queend(pgctl, db, new_cell):
    ctl = pgctl(db)
    role = db.role("r")
    out = ctl.run("schema", "grant", 'a"b', "--dry-run")
    assert 'grant usage on schema queen to "a""b";\n' in out
    assert ctl.run("schema", "grant", role) == 'granted to "%s"\n' % role
    cell = new_cell(PG_USER=role, QUEEN_APPLY_SCHEMA="false").start()
    cell.push("q", [1])
    assert cell.ack(cell.pop("q"))[0]["success"]
    assert db.value("select pg_has_role(%s, 'pg_read_all_stats', 'usage')",
                    (role,))
    db.rows("drop owned by %s cascade" % role)


def findings(ctl, *args, code=USER):
    out = ctl.json("doctor", *args, code=code)
    assert out["ok"] is (code == OK)
    assert out["checks"] > 15
    for f in out["findings"]:
        assert f["level"] in ("INFO", "WARN", "ERROR")
        assert f["level"] == "INFO" or f["fix"], f
    return {f["what"]: f for f in out["findings"]}


def matching(found, pattern):
    hits = [f for what, f in found.items() if re.search(pattern, what)]
    assert len(hits) == 1, found
    return hits[0]


def test_doctor_names_what_hurts_and_its_fix(no_last_cell, pgctl, db):
    ctl = pgctl(db)
    kit_rows(db)
    found = findings(ctl)
    fsync = matching(found, "^fsync is off")
    assert fsync["level"] == "ERROR"
    assert "alter system set fsync = on" in fsync["fix"]
    assert matching(found, "shared_buffers is only 64 MiB")
    assert matching(found, "max_wal_size is 1024 MiB")
    assert matching(found, "group slow of queue old is .* behind")
    assert matching(found, "queue old, group slow: 0 leases held and 1 run "
                           "out")
    assert matching(found, "queue old got 2 dead letters")
    assert matching(found, "job late is .* its holder x died")
    assert matching(found, "/health was not asked")["level"] == "INFO"
    text = ctl.run("doctor", "-o", "table", code=USER)
    assert re.search(r"^ERROR  fsync is off: .*  -> fix: psql -c ", text,
                     re.M)


def kit_rows(db):
    """A queue whose group stopped long ago."""
    q = db.value("insert into queen.queues (tenant, name) values (%s, 'old')"
                 " returning id", (queenlib.TENANT,))
    p = db.value("insert into queen.partitions (queue_id, name, created_at)"
                 " values (%s, 'p', now()) returning id", (q,))
    db.rows("insert into queen.partition_heads (id, queue_id, last_at,"
            " last_write_at, oldest_live_at) select %s, %s, t, t, t from"
            " (select now() - interval '3 h' t) x", (p, q))
    db.rows("insert into queen.segments (partition_id, base_offset,"
            " end_offset, created_at, raw_bytes, blob) values"
            " (%s, 0, 4, now() - interval '3 h', 1, '')", (p,))
    g = db.value("insert into queen.groups (queue_id, name, mode,"
                 " subscribed_at) values (%s, 'slow', 'all', now())"
                 " returning id", (q,))
    db.rows("insert into queen.consumers (group_id, partition_id, committed,"
            " batch_end, expires_at, acquired_at) values (%s, %s, 1, 2,"
            " now() - interval '1 h', now() - interval '2 h')", (g, p))
    db.rows("insert into queen.dead_letters (id, queue_id, partition_id,"
            " group_name, message_offset, id_hash, retries, failed_at)"
            " select gen_random_uuid(), %s, %s, 'slow', n, '', 0, now()"
            " from generate_series(0, 1) n", (q, p))
    db.rows("insert into queen.claims (task, period_ms, next_due_at,"
            " lease_until, holder) values ('late', 1000,"
            " now() - interval '1 h', now() - interval '50 min', 'x')")


def test_doctor_leaves_short_transactions_alone(pgctl, db):
    ctl = pgctl(db)
    conn = db.connect(autocommit=False)
    conn.cursor().execute("select pg_current_xact_id()")
    assert not [w for w in findings(ctl) if "in a transaction" in w]
    conn.rollback()


def test_doctor_without_schema(pgctl, empty_db):
    found = findings(pgctl(empty_db))
    assert matching(found, "the database has no schema")["fix"] == \
        "queenctl schema apply"


def test_doctor_asks_the_server_too(pgctl, db, cell):
    ctl = pgctl(db)
    found = findings(ctl, "--server",
                     "http://127.0.0.1:%d" % cell.port.number)
    assert not [w for w in found if "health" in w or "reach" in w]
    found = findings(ctl, "--server", "http://127.0.0.1:1")
    assert matching(found, "cannot reach http://127.0.0.1:1")["level"] == \
        "ERROR"


def test_doctor_tells_a_lacking_grant(pgctl, db):
    role = db.role("plain")
    ctl = pgctl(db)
    ctl.env["PG_USER"] = role
    found = findings(ctl)
    assert "queenctl schema grant %s" % role in matching(
        found, "lacks pg_read_all_stats")["fix"]


# A private cell

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

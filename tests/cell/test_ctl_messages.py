# SPDX-License-Identifier: Apache-2.0
"""queenctl push, pop, ack, tx, lease, tail and dlq: lines and pipelines."""
import json
import re
import signal
import subprocess

import pytest

import queenlib
from ctlkit import NOTHING, SERVER, USER, three
from queenlib import wait_until

UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-"
                  r"[0-9a-f]{12}\Z")


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
    assert ctl.fails(SERVER, "tx", "-f", "-", stdin=bundle) == (
        'queenctl: transaction rolled back: required lease "%s": invalid or '
        'expired lease\n' % m["leaseId"])
    assert ctl.lines("pop", "out")[0]["transactionId"] == "d1"
    for bad, why in (
            ("{", "not JSON"), ("{}", "no operations"),
            ('{"operations":[{"type":"kv"}]}',
             'operations[0]: type "kv" is neither ack nor push'),
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

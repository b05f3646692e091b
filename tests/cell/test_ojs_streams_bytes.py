# SPDX-License-Identifier: Apache-2.0
"""
Events so large that a few hundred of them would not fit in memory: who was
absent gets them in batches of a bounded size, and is never refused.
"""
import re

import pytest

from queenlib import wait_until

KIB, MIB = 1 << 10, 1 << 20
SIZE = 512 * KIB
# a receive chooses a batch for 64 MiB; one append, and what is around
ANSWER_MAX = 80 * MIB
# the batch as the database sent it and as it is answered, and the rest
PEAK_MAX = 200 * MIB
S = "queen_ojs_1."


def peak(one):
    """The most memory it ever had."""
    with open("/proc/%d/status" % one.proc.pid) as f:
        return int(re.search(r"VmHWM:\s+(\d+) kB", f.read())[1]) * KIB


def append(one, numbers):
    messages = [{"type": "t", "payload": "%06d" % n + "x" * SIZE}
                for n in numbers]
    if len(messages) > 1:
        one.append("q", *messages)
    else:
        one.ask("POST", "/queues/q/messages", messages[0], 201)


def receive(one, consumer, **more):
    """The batch, or None, and its messages; its size is looked at."""
    reply = one.post("/ojs/v1/queues/q/receive",
                     {"consumer": consumer, **more})
    assert reply.status == 200
    assert int(reply.headers["Content-Length"]) <= ANSWER_MAX
    return reply.body["batch"], reply.body["messages"]


def drain(cells, consumer):
    """All that is there, acked, from each process in turn: the numbers, and
    how many batches it took."""
    seen, turn = [], 0
    while True:
        one = cells[turn % len(cells)]
        batch, messages = receive(one, consumer)
        if not batch:
            return seen, turn
        seen += [int(m["payload"][:6]) for m in messages]
        turn += 1
        one.stream_ack("q", batch["id"])


def give_back(one, consumer):
    """All of a batch that has to come; how many."""
    batch, messages = receive(one, consumer, wait_ms=5000)
    assert batch, "nothing came"
    for m in messages:
        one.ask("POST", "/streams/nack", {
            "queue": "q", "batch_id": batch["id"], "seq": m["seq"],
            "retry_after": 0})
    one.stream_ack("q", batch["id"])
    return len(messages)


def heavy(db):
    return db.value("select count(*)::int from %sstream_ticks where heavy" % S)


@pytest.mark.amount
@pytest.mark.parametrize("processes", [1, 2])
@pytest.mark.parametrize("total", [
    pytest.param(200, id="short"),
    pytest.param(2000, id="long", marks=pytest.mark.soak)])
def test_what_an_absent_consumer_gets_has_an_end(new_ojs, db, total,
                                                 processes):
    cells = [new_ojs(QUEEN_OJS_SWEEP_MS="10").start()
             for _ in range(processes)]
    cells[0].subscribe("q", "c")
    for n in range(total // 2):
        append(cells[n % processes], [n])
    for n in range(total // 2, total, 25):
        append(cells[n // 25 % processes], range(n, min(n + 25, total)))
    seen, batches = drain(cells, "c")
    assert seen == list(range(total))
    assert batches <= total * SIZE / (48 * MIB) + 1
    assert max(peak(one) for one in cells) <= PEAK_MAX


def test_what_comes_back_counts(new_ojs, db):
    """Retries and dead letters are moved a few at a time, with ticks."""
    ojs = new_ojs(QUEEN_OJS_SWEEP_MS="10").start()
    ojs.subscribe("q", "c")
    ojs.ask("POST", "/queues/q/config", {"max_retries": 1})
    append(ojs, range(20))
    append(ojs, range(20, 40))
    wait_until(lambda: heavy(db) == 2)
    given = 0
    while given < 80:
        given += give_back(ojs, "c")
    wait_until(lambda: heavy(db) > 2)
    before = heavy(db)
    assert ojs.ask("POST", "/queues/q/dlq/replay") == {
        "replayed": 40, "failed": 0}
    wait_until(lambda: heavy(db) > before)
    assert sorted(drain([ojs], "c")[0]) == list(range(40))

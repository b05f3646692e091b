# SPDX-License-Identifier: Apache-2.0
"""Several queends on one port (SO_REUSEPORT): every connection may meet
another process, and nobody notices."""
import http.client
import re
import threading

import pytest

from loadkit import Load, together
from queenlib import Port, wait_until

N = 3


@pytest.fixture
def shared(new_cell):
    """N queends on one port, each with a metrics listener of its own."""
    ports = [Port() for _ in range(N + 1)]
    made = [new_cell(_port=ports[0], QUEEN_METRICS_BIND="127.0.0.1:%d"
                     % port.number) for port in ports[1:]]
    for one, port in zip(made, ports[1:]):
        one.metrics_port = port.number
        start(one)
    yield made
    # a port that is given may be another test's at once
    for one in made:
        if one.proc.poll() is None:
            one.term()
    for port in ports:
        port.give()


def start(one):
    """Its health proves nothing: another one answers too."""
    one.start(wait=False)
    wait_until(lambda: answers(one), what="metrics of " + one.name)
    one.expected_end = False


def metrics(one):
    conn = http.client.HTTPConnection("127.0.0.1", one.metrics_port,
                                      timeout=30)
    try:
        conn.request("GET", "/metrics/prometheus")
        return conn.getresponse().read().decode()
    finally:
        conn.close()


def answers(one):
    try:
        return metrics(one)
    except OSError:
        assert one.proc.poll() is None, one.log_text()
        return None


def counter(one, name):
    return int(re.search(r"^%s (\d+)$" % name, metrics(one), re.M).group(1))


def test_each_serves_and_none_repeats_or_loses(shared):
    """A connection per request: push, pop and ack land anywhere."""
    one, got, lock = shared[0], [], threading.Lock()

    def push(i):
        for k in range(12):
            found, = one.push("q", [[i, k]], partition="p%d" % i,
                              ids=["%d-%d" % (i, k)])
            assert found["status"] == "queued"

    def drain(_):
        while True:
            messages = one.pop("q", batch=5, partitions=2)
            if not messages:
                return
            with lock:
                got.extend(tuple(m["data"]) for m in messages)
            assert all(a["success"] for a in one.ack(messages))

    together(8, push)
    together(6, drain)
    drain(0)
    assert sorted(got) == [(i, k) for i in range(8) for k in range(12)]
    for i in range(8):
        assert [k for p, k in got if p == i] == list(range(12))
    for other in shared:
        assert counter(other, "queen_process_push_requests_total") > 0
        assert counter(other, "queen_process_ack_requests_total") > 0


def test_one_leaves_and_comes_back_under_load(shared, db):
    """Who repeats what broke off loses and doubles nothing."""
    load = Load(db, shared, n=4).start()
    try:
        load.workers.stop.wait(1.5)
        # one leaves; the port is served on
        assert shared[-1].term() == 0
        for i in range(20):
            assert shared[0].push("other", [i])[0]["status"] == "queued"
        start(shared[-1])
        load.workers.stop.wait(1)
        load.finish()
    finally:
        load.workers.stop.set()
        load.workers.join()

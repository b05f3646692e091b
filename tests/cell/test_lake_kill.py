# SPDX-License-Identifier: Apache-2.0
"""Whoever is killed, whenever: the lake is right afterwards."""
import random
import signal
import time

import pytest

from e2ekit import kill_server
from lakecheck import Tree, check
from lakeload import Producers, settled
from queenlib import wait_until
from test_lake_e2e import shape

durable = pytest.mark.durable
PARTS = {"q": ["a", "b", "c"], "w": ["a"]}
SHAPES = {"lines": {"MAX_WINDOW_MS": 400}, "each": {
    "FORMAT": "parquet", "LAYOUT": "per-partition"}}


class Run:
    """Producers, a cell, and a node for each of two sinks of its queues."""

    def __init__(self, db, cell, bucket, new_lake, folder, seed):
        self.rng = random.Random(seed)
        self.cell = cell
        self.nodes = {name: new_lake(bucket, **shape(
            name, PARTS, LEASE_TTL_MS=1000, CHECKPOINT_EVERY=3,
            DISCOVERY_INTERVAL_MS=100, **more))
            for name, more in SHAPES.items()}
        self.trees = {name: Tree(str(folder / name), bucket, name)
                      for name in SHAPES}
        self.made = Producers(db, [cell], PARTS, n=2, pause_s=0.2)

    def kill(self, number):
        """One node, at any moment; it comes back."""
        node = self.nodes[self.rng.choice(list(self.nodes))]
        time.sleep(self.rng.random() * 1.5)
        node.signal(number)
        assert node.wait_exit() == (0 if number == signal.SIGTERM
                                    else -number)
        node.start()

    def await_windows(self):
        """They go on: each has committed one from now."""
        seen = {n: self.k(n) for n in self.nodes}
        wait_until(lambda: all(self.k(n) > seen[n] for n in self.nodes),
                   every_s=0.2)

    def k(self, name):
        return self.nodes[name].queue("q").get("k") or 0

    def end(self):
        self.made.stop()
        until = self.made.mark().clock
        for name, node in self.nodes.items():
            settled(node, PARTS, until, 60)
            self.trees[name].pull()
            for queue in PARTS:
                lake = check(self.trees[name], queue,
                             self.made.snapshot(queue), name)
                assert lake.windows


@pytest.fixture
def run(db, new_cell, bucket, new_lake, tmp_path):
    one = Run(db, new_cell().start(), bucket, new_lake, tmp_path, 7)
    for node in one.nodes.values():
        node.start()
    with one.made:
        yield one


def nodes_killed(run, n):
    for i in range(n):
        run.kill(signal.SIGKILL if i % 3 < 2 else signal.SIGTERM)
    run.end()


def test_a_node_killed_at_any_moment(run):
    nodes_killed(run, 6)


@pytest.mark.soak
def test_a_node_killed_many_times(run):
    nodes_killed(run, 60)


@durable
def test_the_database_and_queend_killed(run, db):
    """With a node killed while the database is away, too."""
    run.await_windows()
    for _ in range(2):
        time.sleep(run.rng.random())
        kill_server(db.server)
        time.sleep(run.rng.random())
        run.cell.kill9()
        run.cell.start()
        run.await_windows()
    run.kill(signal.SIGKILL)
    run.end()
    assert sum(run.made.faults.values()) > 0

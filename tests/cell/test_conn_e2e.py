# SPDX-License-Identifier: Apache-2.0
"""
A table to a queue to a table, exactly once, whatever is killed: the processes
of both tools, queend, and either PostgreSQL; and whatever answers are lost.
"""
import random
import time

import pytest

import e2ekit
from e2ekit import LARGE, SETTLE_S, Losing, World, Writers, kill9
from pgkit import FarServer
from queenlib import wait_until
from sealkit import keyed
from srckit import number_of

durable = pytest.mark.durable
FEW = ["pgsrc", "cell", "pgsink", "queend"]
INSIDE = ["pgsrc child", "far", "pgsrc parent", "pgsrc"]
REST = ["pgsink child", "queend", "far", "pgsink parent", "cell", "queend",
        "pgsink child"]


@pytest.fixture
def pg_version():
    return "17"


@pytest.fixture
def far_server(far_servers, keep_log):
    """Beside the cell's, on a disk too."""
    key = "17 durable"
    if key not in far_servers:
        far_servers[key] = FarServer("17", fsync="on",
                                     wal_sender_timeout="2s")
    keep_log("far PostgreSQL", far_servers[key].log)
    return far_servers[key]


@pytest.fixture
def new_world(cell, far, far_too, new_tool):
    made = []

    def make(**ports):
        made.append(World(cell, far, far_too, new_tool, **ports))
        return made[-1]

    yield make
    for one in made:
        one.end()


def plan(kills):
    """Before, inside and behind the large transaction; 15 is each of them
    once, whatever is more comes by chance."""
    rest = REST + random.Random(kills).choices(
        FEW + INSIDE + REST, k=kills - len(FEW + INSIDE + REST))
    return FEW, INSIDE, rest


@durable
@keyed
@pytest.mark.parametrize("kills, rows", [
    pytest.param(15, 20000, id="scaled"),
    pytest.param(60, 200000, id="full", marks=pytest.mark.soak)])
def test_kills_lose_and_double_nothing(new_world, kills, rows):
    few, inside, rest = plan(kills)
    world = new_world()
    world.begin(20000, snapshotChunkRows=250, maxBundleMessages=250)
    assert world.pointer()["snapshot"]
    with Writers(world.far, 2) as writers:
        for victim in few:
            world.await_commits()
            world.kill(victim)
        world.await_commits()
        world.far.run(LARGE % rows)
        at = [0]
        for victim in inside:
            at.append(world.in_large(at[-1] + rows // 50))
            world.kill(victim)
        assert at == sorted(set(at)) and at[-1] < rows
        for victim in rest:
            world.await_commits()
            world.kill(victim)
        over = time.monotonic()
    world.settled(SETTLE_S - (time.monotonic() - over))
    assert len(world.kills) == kills
    world.check(writers, rows)
    world.check_secrets()

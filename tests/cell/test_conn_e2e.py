# SPDX-License-Identifier: Apache-2.0
"""
A table to a queue to a table, exactly once, whatever is killed: the processes
of both tools, queend, and either PostgreSQL; and whatever answers are lost.
"""
import random
import time

import pytest

from e2ekit import Losing, Says, World
from pgkit import FarServer
from queenlib import wait_until
from sealkit import keyed
from srckit import number_of
from writekit import LARGE, SETTLE_S, Writers

durable = pytest.mark.durable
FIRST = 20000
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


@pytest.fixture
def proxies():
    made = []

    def make(server, every_s, *marks):
        made.append(Losing(server.port.number, every_s, *marks))
        return made[-1]

    yield make
    for one in made:
        one.close()


def plan(kills):
    """Before, inside and behind the large transaction; 15 is each of them
    once, whatever is more comes by chance."""
    rest = REST + random.Random(kills).choices(
        FEW + INSIDE + REST, k=kills - len(FEW + INSIDE + REST))
    return FEW, list(INSIDE), rest


@durable
@keyed
@pytest.mark.parametrize("kills, rows", [
    pytest.param(15, 20000, id="scaled"),
    pytest.param(60, 200000, id="full", marks=pytest.mark.soak)])
def test_kills_lose_and_double_nothing(new_world, kills, rows):
    few, inside, rest = plan(kills)
    world = new_world()
    world.begin(FIRST, snapshotChunkRows=250, maxBundleMessages=120)
    assert world.pointer()["snapshot"]
    with Writers(world.far, 2, FIRST) as writers:
        for victim in few:
            world.await_commits()
            world.kill(victim)
        world.await_commits()
        world.far.run(LARGE % rows)
        lsn, cuts = world.far.lsn(), [0]
        while inside:
            at = world.in_large(cuts[-1] + rows // 50, lsn)
            if at is None:
                break
            cuts.append(at)
            world.kill(inside.pop(0))
        assert len(cuts) > 3 and cuts == sorted(set(cuts)), cuts
        for victim in inside + rest:
            world.await_commits()
            world.kill(victim)
        over = time.monotonic()
    world.settled(SETTLE_S - (time.monotonic() - over))
    assert len(world.kills) == kills
    assert sum(copying for _, copying in world.kills) >= 2
    world.check(writers, rows)
    world.check_secrets()


def feedback(far):
    """(what was confirmed last, when it was said)"""
    return far.row("select (flush_lsn - '0/0')::bigint, reply_time from"
                   " pg_stat_replication r join pg_replication_slots s on"
                   " s.active_pid = r.pid where slot_name = 'queen_ledger'")


@durable
@keyed
def test_lost_answers_change_nothing(proxies, new_world, pg, far_server):
    """Answers to commits of both tools are lost, that to the first pointer's
    too; then a commit is held back until its owner is dead."""
    pointer = b"cellkv_one", b":pointer"
    src_cell = proxies(pg, 1.5, pointer, (b"commit\0",))
    sink_cell = proxies(pg, 1.5, (b"feed_ack",))
    target = proxies(far_server, 1.5, (b"commit.",))
    every = src_cell, sink_cell, target
    world = new_world(src_cell=src_cell.port.number,
                      sink_cell=sink_cell.port.number,
                      target=target.port.number)
    world.begin(2000, maxBundleMessages=200)
    assert src_cell.lost[0] == pointer
    with Writers(world.far, 2, 2000) as writers:
        wait_until(lambda: all(len(p.lost) > 4 for p in every),
                   what=Says("lost answers: %s", world.statuses))
        # what had committed is met again, and skipped
        wait_until(lambda: any(s["skipped"] for s in world.statuses()[1:]),
                   what=Says("a repetition: %s", world.statuses))
        # confirmed is what has committed, however much has been received
        src_cell.free.clear()
        wait_until(lambda: src_cell.held)
        lsn = number_of(world.pointer()["lsn"])
        turns, said = writers.turns(), feedback(world.far)[1]
        wait_until(lambda: writers.turns() > turns + 20)
        for _ in range(2):
            said = wait_until(lambda: max(said, feedback(world.far)[1])
                              > said and feedback(world.far)[1])
        assert feedback(world.far)[0] <= lsn
        assert world.confirmed() <= lsn
        world.kill("pgsrc")
        src_cell.free.set()
    for one in every:
        one.next = float("inf")
    world.settled()
    world.check(writers)

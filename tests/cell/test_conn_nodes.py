# SPDX-License-Identifier: Apache-2.0
"""Several nodes run the same connectors: who works, who takes over when, and
what a node is told that slept too long."""
import time

import pytest

import queenlib
from nodekit import Holding, freeze, kill_node, transaction, wake
from queenlib import wait_until
from srckit import Writers, held_copy, table_rows

TTL_S = 3
pytestmark = pytest.mark.parametrize(
    "far_version", ["dist" if queenlib.SAN else "17"], indirect=True)


def churn(cur, rng):
    one = rng.randrange(1, 2000)
    cur.execute("select pg_sleep(0.005);" + rng.choice((
        "update t set n = n + 1 where id = %d",
        "delete from t where id = %d",
        "insert into t values (%d, 0) on conflict do nothing",
        "update t set id = id + 10000 where id = %d"
        " and not exists (select from t x where x.id = t.id + 10000)")) % one)


def owner_of(source, nodes):
    """(the node that has the lease, the others)"""
    name = wait_until(source.lease)
    return ([n for n in nodes if n.node == name][0],
            [n for n in nodes if n.node != name])


def test_three_nodes_take_over_from_each_other(src, sinks, far, far_too):
    far.run("create table t (id int primary key, n int)",
            "insert into t select generate_series(1, 2000), 0")
    nodes = [src.tool(QUEEN_SERVER_ID=n) for n in "abc"]
    one = src("trio", [("t", "t")], snapshotChunkRows=100)
    with held_copy(far, one, "t"):
        first, others = owner_of(one, nodes)
        for n in others:
            n.await_status("trio", phase="standby", owner=first.node,
                           error=None)
        kill_node(first)
        began = time.monotonic()
    with Writers(far, 1, churn):
        wait_until(lambda: one.lease() != first.node)
        second, (third,) = owner_of(one, others)
        second.await_status("trio", phase="streaming",
                            deadline_s=2 * TTL_S + 10)
        took_s = time.monotonic() - began
        assert took_s < 2 * TTL_S + 10
        assert second.term() == 0
        began = time.monotonic()
        # given back, so that nobody waits for its end
        assert one.lease() != second.node
        third.await_status("trio", phase="streaming", deadline_s=TTL_S)
        assert time.monotonic() - began < TTL_S
    one.tool_ = third
    first.start()
    second.start()
    found = one.check("t")
    assert len({e.id for e in found}) == len(found)
    for n in first, second:
        n.await_status("trio", phase="standby", owner=third.node)

    # the same nodes copy it: each is held at its first row, so none has all
    far_too.run("create table t (id int primary key, n int)",
                "create table mine (like t)")
    for n in nodes:
        sinks.tool(QUEEN_SERVER_ID=n.node)
    rows = table_rows(far, "t")
    with transaction(far_too, "insert into t select generate_series(1,"
                     " 12000), 0"):
        copy = sinks("copy", "cdc", None, queue="t", table_name="t",
                     workers=2, batch=100, _far=far_too)
        wait_until(lambda: len(blocked(far_too)) > 2,
                   what="workers of two nodes")
    copy.drained()
    assert table_rows(far_too, "t") == rows
    counts = []

    def all_told():
        counts[:] = [n.status("copy").get("applied", 0)
                     for n in sinks.tools]
        return sum(counts) == len(found)
    wait_until(all_told, what="counts of all")
    assert sum(c > 0 for c in counts) >= 2
    assert all(n.status("copy")["skipped"] == 0 for n in sinks.tools)


def blocked(far):
    return far.rows("select pid from pg_stat_activity where datname ="
                    " current_database() and wait_event_type = 'Lock'")


def test_an_owner_that_slept_is_refused(src, far, pg):
    """One process is idle, one between verdict and COMMIT, when their node
    stands still.  Others commit before it wakes."""
    far.run("create table calm (id int primary key)",
            "create table torn (id int primary key)")
    # the server gives the slot of a frozen process away
    far.server.admin("alter role queen in database %s set"
                     " wal_sender_timeout = '2s'" % far.name)
    proxy = Holding(pg.port.number)
    try:
        run_sleeper(src, far, proxy)
    finally:
        proxy.free.set()
        proxy.close()


def run_sleeper(src, far, proxy):
    a = src.tool(QUEEN_SERVER_ID="a", PG_PORT=proxy.port.number)
    calm, torn = (src(n, [(n, n)], snapshot="never") for n in ("calm", "torn"))
    for one in calm, torn:
        one.await_phase("streaming")
    rest = [src.tool(QUEEN_SERVER_ID=n) for n in "bc"]
    for one in calm, torn:
        for n in rest:
            n.await_status(one.name, phase="standby", owner="a", error=None)
    proxy.strike = lambda: freeze(a)
    proxy.marker = b"src:torn:pointer"
    far.run("insert into torn values (1), (2)")
    assert proxy.struck.wait(queenlib.DEADLINE_S)
    assert torn.events() == []
    far.run("insert into torn values (3)", "insert into calm values (1)")
    for one, rows in (torn, 3), (calm, 1):
        wait_until(lambda: len(one.events()) == rows, what="%s: %s" % (
            one.name, [n.status(one.name) for n in rest]))
        assert one.lease() in "bc"
    pointers = [one.pointer() for one in (calm, torn)]
    proxy.free.set()
    wake(a)
    for one in calm, torn:
        a.await_status(one.name, phase="standby", owner=one.lease())
    said = [line for line in a.log_text().splitlines()
            if "code=fenced" in line]
    assert any("connector=calm " in line for line in said)
    assert any("connector=torn " in line and "another owner moved the pointer"
               in line for line in said), said
    far.run("insert into torn values (4)", "insert into calm values (2)")
    for one, rows, before in (calm, 2, pointers[0]), (torn, 4, pointers[1]):
        found = one.check(one.name)
        assert [e.payload["after"]["id"] for e in sorted(
            found, key=lambda e: (e.payload["lsn"], e.payload["seq"]))] \
            == list(range(1, rows + 1))
        assert one.pointer()["epoch"] == before["epoch"]
    assert a.term() == 0


def test_a_deletion_is_final_on_every_node(src, far, cell):
    """A node that has not read the documents since must not make anew what
    has just been removed, nor begin again from a slot that was left."""
    far.run("create table t (id int primary key)", "insert into t values (1)")
    nodes = [src.tool(QUEEN_SERVER_ID="a"),
             src.tool(QUEEN_SERVER_ID="b", QUEEN_PG_RELOAD_MS="3000")]
    both = brief, kept = src("brief", [("t", "brief")]), src("kept",
                                                            [("t", "kept")])
    for one in both:
        one.check("t")
        other = [n for n in nodes if n.node != one.lease()]
        assert len(other) == 1
        other[0].await_status(one.name, phase="standby", owner=one.lease())
    url = "/api/v1/connectors/"
    assert cell.delete(url + "brief").status == 202
    assert cell.delete(url + "kept?dropSlot=false").status == 200
    far.run("insert into t values (2)")
    wait_until(lambda: not any(n.children() for n in nodes))
    wait_until(lambda: all(n.status(one.name) == {} for n in nodes
                           for one in both))
    assert list(far.slots()) == ["queen_kept"]
    assert cell.db.rows("select key from queen.kv where namespace ="
                        " 'queen-pg'") == []
    for one in both:
        assert [e.payload["op"] for e in one.events()] in (["r"], ["r", "c"])

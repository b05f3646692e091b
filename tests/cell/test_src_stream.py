# SPDX-License-Identifier: Apache-2.0
"""A source's stream: what becomes of changes, and what holds it up."""
import os
import signal

import pytest

from queenlib import OTHER_TENANT, rows, wait_until
from srckit import check, held_copy, number_of, ops, table_rows

def test_what_becomes_of_changes(src, far, far_too):
    """One process of each kind of document, all on one server."""
    make = ("create table %s (id int primary key, n int, body text);"
            "alter table %s alter body set storage external;"
            "insert into %s values (1, 1, repeat('x', 3000)),"
            " (2, 2, repeat('y', 3000))")
    for table in "skip", "emit1", "emit2", "never", "tenant":
        far.run(make % (table, table, table))
    far.run("create table cols (a int, b text, c int, primary key (a, b));"
            "insert into cols values (1, 'x|y', 1), (2, '', 2)",
            "create table leafs (id int, at int, v text, primary key (id, at))"
            " partition by range (at);"
            "create table leaf1 partition of leafs for values from (0) to (9);"
            "create table leaf2 partition of leafs for values from (9)"
            " to (99)",
            "insert into leafs values (1, 1, 'a'), (2, 10, 'b')")
    skip = src("skip", [("skip", "skip")])
    emit = src("emit", [("emit1", "emit", {"partitionBy": "single"}),
                        ("emit2", "emit", {"partitionBy": "single"})],
               onTruncate="emit")
    never = src("never", [("never", "never")], snapshot="never")
    cols = src("cols", [("cols", "cols", {"partitionBy": ["b"]})])
    leafs = src("leafs", [("leafs", "leafs")])
    theirs = src("theirs", [("tenant", "skip")], tenant=OTHER_TENANT)
    every = skip, emit, never, cols, leafs, theirs
    for one in every:
        one.await_phase("streaming")

    # a value out of line that is left alone, moved, and lost on the way
    far.run("update skip set n = 3 where id = 1",
            "update skip set id = 3 where id = 2")
    skip.await_ops("r:1 r:2 u:1~ d:2 c:3")
    far.run("begin; update skip set id = 5 where id = 1; "
            "delete from skip where id = 5; commit",
            "truncate skip", "insert into skip values (9, 9, 'z')")
    found = skip.await_ops("r:1 r:2 u:1~ d:2 c:3 d:1 c:5~ d:5 c:9")
    by = {(e.payload["op"], e.partition): e.payload for e in found}
    assert by["u", "1"]["unchanged"] == ["body"]
    assert "body" not in by["u", "1"]["after"]
    assert by["c", "3"]["after"] == {"id": 3, "n": 2, "body": "y" * 3000}
    assert by["c", "5"]["unchanged"] == ["body"]
    assert len({e.id[3:11] for e in found}) == 1
    skip.await_phase("streaming", truncatesSkipped=1)

    far.run("truncate emit1, emit2 restart identity cascade",
            "insert into emit2 values (3, 3, 'z')")
    found = emit.check("emit1", "emit2", by_key=False)
    assert ops(found) == "r:all r:all r:all r:all t:all c:all"
    cut = [e.payload for e in found if e.payload["op"] == "t"][0]
    assert cut["tables"] == ["public.emit1", "public.emit2"]
    assert cut["cascade"] and cut["restartIdentity"]

    far.run("update never set n = n + 1", "delete from never where id = 2",
            "insert into never values (3, 3, 'z')")
    never.await_ops("u:1~ u:2~ d:2 c:3")

    far.run("update cols set c = 5 where a = 1",
            "update cols set b = 'z' where a = 2",
            "update cols set a = 7 where a = 1")
    found = cols.await_ops("r:x|y r: u:x|y d: c:z u:x|y")
    assert found[-1].payload["key"] == {"a": 2, "b": "z"}
    last = [e.payload for e in found if e.partition == "x|y"][-1]
    assert last["key"] == {"a": 7, "b": "x|y"}
    assert last["before"] == {"a": 1, "b": "x|y"}

    far.run("update leafs set v = 'c'", "insert into leafs values (3, 3, 'd')",
            "update leafs set at = 20 where id = 1",
            "delete from leaf2 where id = 2")
    found = leafs.check("leafs", key=("id", "at"))
    assert {e.payload["table"] for e in found} == {"public.leafs"}
    assert {e.partition for e in found} == {"1|1", "2|10", "3|3", "1|20"}

    theirs.check("tenant")
    assert ops(theirs.events()) == "r:1 r:2"
    for one in every:
        s = one.status()
        assert s["phase"] == "streaming" and s["error"] is None
        assert s["lastError"] is None and s["restarts"] == 0


@pytest.mark.amount
def test_a_large_transaction_goes_in_pieces_and_survives_a_stop(src, far):
    far.run("create table big (id int primary key)",
            "create table other (id int primary key)")
    one = src("big", [("big", "big")], maxBundleMessages=100, lingerMs=0)
    one.await_phase("streaming")
    far.run("begin; insert into other select generate_series(1, 500);"
            "insert into big select generate_series(1, 20000); commit")
    tool = src.tools[0]
    wait_until(lambda: one.pointer()["inTxn"], every_s=0.001)
    assert tool.term() == 0
    at = one.pointer()["inTxn"]
    n = len(one.events())
    assert 0 < n < 20000 and n % 100 == 0
    # only mapped tables are in the publication: the others are not counted
    assert at["done"] == n
    assert one.confirmed() < number_of(at["commitLsn"])
    tool.start()
    wait_until(lambda: len(one.events()) > n)
    os.kill(tool.child("big"), signal.SIGKILL)
    found = one.check("big")
    assert sorted(e.payload["seq"] for e in found) == list(range(20000))
    assert len({e.payload["lsn"] for e in found}) == 1
    one.await_phase("streaming")


def test_two_nodes_one_streams_and_a_stop_hands_over(src, far):
    far.run("create table t (id int primary key)",
            "insert into t select generate_series(1, 10)")
    a, b = src.tool(QUEEN_SERVER_ID="a"), src.tool(QUEEN_SERVER_ID="b")
    one = src("two", [("t", "t")])
    wait_until(lambda: one.lease())
    first, second = (a, b) if one.lease() == "a" else (b, a)
    first.await_status("two", phase="streaming")
    s = second.await_status("two", phase="standby", owner=first.node)
    assert s["error"] is None
    far.run("insert into t select generate_series(11, 20)")
    assert first.term() == 0
    second.await_status("two", phase="streaming", deadline_s=10)
    assert "owner" not in second.status("two")
    far.run("insert into t select generate_series(21, 30)")
    found = one.check("t")
    assert len(found) == 30
    # a life that is killed is taken over when its lease ends, here at once
    os.kill(second.child("two"), signal.SIGKILL)
    far.run("insert into t select generate_series(31, 40)")
    assert len(one.check("t")) == 40


@pytest.mark.amount
def test_nothing_holds_up_a_source_for_long(src, far, far_too, db):
    """Idle while other databases write, a cell that stands still, a cell and
    a source that are one database."""
    far.run("create table idle (id int primary key)",
            "create table busy (id int primary key, body text)")
    # what is not answered within a second is an end of the stream
    far.server.admin("alter role queen in database %s set"
                     " wal_sender_timeout = '2s'" % far.name)
    db.rows("create table public.mine (id int primary key)")
    idle = src("idle", [("idle", "idle")], heartbeatSeconds=1,
               snapshot="never")
    busy = src("busy", [("busy", "busy")], maxBundleMessages=10,
               snapshot="never")
    mine = src("mine", [("mine", "mine")], heartbeatSeconds=1,
               connection=own(db))
    for one in idle, busy, mine:
        one.await_phase("streaming")
    before = {one.name: one.status()["bundles"] for one in (idle, mine)}

    conn = db.connect(autocommit=False)
    key = rows(conn, "select key from queen.kv where namespace = 'queen-pg'"
               " and key like '%busy:pointer' for update")
    assert len(key) == 1
    far.run("insert into busy select i, repeat('x', 1000)"
            " from generate_series(1, 5000) i")
    sender = busy_sender(far)
    far_too.run("create table noise as select i, repeat('x', 100) t"
                " from generate_series(1, 10000) i")
    lsn = far_too.lsn()
    # idle steps come ten seconds apart at most; meanwhile nothing is told
    # of `busy`, whose server asks for an answer every second
    wait_until(lambda: idle.confirmed() > lsn, deadline_s=25)
    assert busy_sender(far) == sender
    assert busy.status()["error"] is None
    conn.rollback()
    conn.close()
    busy.check("busy")
    assert idle.events() == []
    assert number_of(idle.pointer()["lsn"]) >= lsn
    for one in idle, mine:
        assert one.status()["bundles"] - before[one.name] <= 3
    db.rows("insert into public.mine values (1)")
    wait_until(lambda: len(mine.events()) == 1)
    mine.enable(False)


def own(db):
    return {"host": "127.0.0.1", "port": db.server.port.number,
            "database": db.name, "user": "queen"}


def busy_sender(far):
    return far.value("select active_pid from pg_replication_slots"
                     " where slot_name = 'queen_busy'")


@pytest.mark.farpg
def test_wal_from_before_the_publication_wants_a_resync(src, far):
    far.run("create table t (id int primary key)")
    one = src("late", [("t", "t")], snapshot="never")
    one.await_phase("streaming")
    one.enable(False)
    far.run("drop publication queen_late", "insert into t values (1)",
            "create publication queen_late for table t")
    one.enable(True)
    s = one.await_phase("error", error="publication")
    assert s["error"]["message"].endswith("queenctl connector resync late")
    assert number_of(s["pointerLsn"]) == number_of(one.pointer()["lsn"])
    assert s["epoch"] == one.pointer()["epoch"]
    assert one.events() == []
    # nothing was passed over: the next start says the same
    assert number_of(one.pointer()["lsn"]) < far.lsn()


def test_a_column_that_comes_during_a_copy_starts_it_anew(src, far):
    far.run("create table t (id int primary key, n int)",
            "insert into t select i, i from generate_series(1, 3000) i")
    one = src("wide", [("t", "t")], snapshotChunkRows=100,
              maxBundleMessages=150)
    with held_copy(far, one, "t") as cur:
        cur.execute("alter table t add more text default 'm';"
                    "update t set n = 0 where id = 3000")
    one.await_phase("streaming")
    found = one.until(lambda f: len(f) >= 3000 and "more" in (
        f[-1].payload["after"] or ()))
    made = check(found)["public.t"]
    assert made[(3000,)] == {"id": 3000, "n": 0, "more": "m"}
    assert {k: v["n"] for k, v in made.items()} == {
        k: v["n"] for k, v in table_rows(far, "t").items()}
    # what was copied before may lack it, what came behind may not
    first = min(k for k, v in made.items() if "more" in v)
    assert all("more" in v for k, v in made.items() if k >= first)
    assert first < (2900,)
    assert one.status()["restarts"] == 0

# SPDX-License-Identifier: Apache-2.0
"""How a source begins: what it refuses, waits for, makes and removes."""
import contextlib
import os
import signal

import psycopg2
from psycopg2.extras import LogicalReplicationConnection

from queenlib import wait_until
from srckit import Damage, check, table_rows


@contextlib.contextmanager
def occupied(far, slot, publication):
    """Somebody else's walsender on the slot; gives its pid."""
    conn = psycopg2.connect(
        far.conninfo(), connection_factory=LogicalReplicationConnection)
    try:
        conn.cursor().start_replication(slot_name=slot, options={
            "proto_version": "1", "publication_names": publication})
        yield conn.info.backend_pid
    finally:
        conn.close()


def publications(far):
    return [r[0] for r in far.rows("select pubname from pg_publication"
                                   " order by 1")]


def epoch_of(event):
    return event.id[3:11]


def stamp(one, what):
    one.tool_.put(one.name, one.document, stamp=what)


def refused(one, code, *words):
    s = one.await_phase("error", error=code)
    for word in words:
        assert word in s["error"]["message"]
    return s


def test_a_lost_slot_stops_and_a_resync_copies_again_once(src, far):
    far.run("create table t (id int primary key, n int)",
            "insert into t select g, 0 from generate_series(1, 300) g")
    one = src("lost", [("t", "t")], snapshotChunkRows=100)
    one.await_phase("streaming")
    far.run("update t set n = 1 where id = 1")
    one.check("t")
    first = one.pointer()["epoch"]

    far.run("select pg_terminate_backend(active_pid) from"
            " pg_replication_slots where slot_name = 'queen_lost'")
    # the next walsender may be faster than the drop
    wait_until(lambda: not far.rows(
        "select pg_terminate_backend(active_pid) from pg_replication_slots"
        " where slot_name = 'queen_lost' and active_pid is not null")
        and dropped(far, "queen_lost"))
    far.run("update t set n = 2 where id < 10", "delete from t where id = 300")
    refused(one, "slot_lost", "the slot queen_lost is gone",
            "queenctl connector resync lost")
    assert far.slots() == {}
    assert one.pointer()["epoch"] == first

    stamp(one, "resync")
    one.await_phase("streaming")
    assert one.pointer()["epoch"] != first
    far.run("insert into t values (301, 1)")
    second = one.pointer()["epoch"]
    rows = {"public.t": table_rows(far, "t")}

    # the new epoch alone replays to the table; ids are unique over both
    def whole():
        found = one.events()
        mine = renumbered([e for e in found if epoch_of(e) == second])
        with contextlib.suppress(Damage):
            check(mine, rows)
            return found
    found = wait_until(whole)
    assert {epoch_of(e) for e in found} == {first, second}
    assert len({e.id for e in found}) == len(found)
    # the same request again is none
    one.tool_.put(one.name, dict(
        one.document, resyncRequestedAt=one.pointer()["resyncedAt"]))
    one.await_phase("streaming", generation=3)
    assert one.pointer()["epoch"] == second


def dropped(far, slot):
    with contextlib.suppress(psycopg2.Error):
        far.run("select pg_drop_replication_slot('%s')" % slot)
        return True


def renumbered(found):
    """Events as if their partitions had begun with them."""
    at, made = {}, []
    for e in found:
        at[e.partition] = at.get(e.partition, -1) + 1
        made.append(e._replace(offset=at[e.partition]))
    return made


def test_a_deletion_removes_what_was_made_even_when_paused(src, far):
    far.run("create table t (id int primary key)",
            "create table u (id int primary key)",
            "insert into t values (1)", "create publication own for table u")
    one = src("gone", [("t", "gone")])
    kept = src("kept", [("t", "kept")])
    other = src("other", [("u", "other")], publication="own",
                managePublication=False)
    for each in one, kept, other:
        each.await_phase("streaming")
    assert publications(far) == ["own", "queen_gone", "queen_kept"]

    one.enable(False)
    stamp(one, "delete")
    stamp(other, "delete")
    wait_until(lambda: not one.tool_.version("gone")
               and not other.tool_.version("other"))
    assert list(far.slots()) == ["queen_kept"]
    assert publications(far) == ["own", "queen_kept"]
    assert one.tool_.db.value(
        "select count(*) from queen.kv where key like 'src:gone:%%'"
        " or key like 'src:other:%%'") == 0
    # without dropping the slot: pointer and lease alone
    kept.tool_.remove("kept")
    wait_until(lambda: not far.walsenders())
    assert list(far.slots()) == ["queen_kept"]
    assert publications(far) == ["own", "queen_kept"]
    assert one.tool_.db.value(
        "select count(*) from queen.kv where key like 'src:kept:%%'") == 0


def test_a_held_slot_is_waited_for_adopted_and_foreign_ones_are_refused(
        src, far):
    far.run("create table t (id int primary key)", "insert into t values (1)",
            "create publication queen_held for table t",
            "select pg_create_logical_replication_slot('queen_held',"
            " 'pgoutput')",
            "select pg_create_physical_replication_slot('queen_phys')",
            "insert into t values (2)")
    with occupied(far, "queen_held", "queen_held") as pid:
        one = src("held", [("t", "held")])
        phys = src("phys", [("t", "phys")])
        one.await_phase("waiting_for_slot", activePid=pid)
        refused(phys, "slot_mismatch", "is a physical one")
        assert one.pointer() is None
    one.await_phase("streaming", failover=False)
    one.check("t")
    phys.enable(False)
    far.run("select pg_drop_replication_slot('queen_phys')")

    one.enable(False)
    wait_until(lambda: not far.walsenders())
    n = len(one.events())
    src.watch.sources.remove(one)
    far.run("insert into t values (3)",
            "select pg_replication_slot_advance('queen_held',"
            " pg_current_wal_lsn())")
    one.document["enabled"] = True
    one.change()
    refused(one, "slot_ahead", "queenctl connector resync held")
    db = one.tool_.db
    db.rows("update queen.kv set version = version + 1, value = value ||"
            " '{\"systemId\": \"7\"}' where key = 'src:held:pointer'")
    one.change()
    refused(one, "system_changed", "the database system 7")
    assert len(one.events()) == n
    stamp(one, "resync")  # mends all of it
    one.await_phase("streaming")


def test_unusable_tables_and_narrowed_publications_publish_nothing(src, far):
    far.run("create table bare (id int)",
            "create table nothing (id int primary key, n int)",
            "alter table nothing replica identity nothing",
            "create table t (id int primary key, n int)",
            "insert into bare values (1); insert into nothing values (1, 1)",
            "create publication filtered for table t where (id > 3)",
            "create publication listed for table t (id)",
            "create publication queen_managed for table t where (id > 3)")
    bad = {
        "bare": (src("bare", [("bare", "q")]), "replica_identity"),
        "nothing": (src("nothing", [("nothing", "q")]), "replica_identity"),
        "by": (src("by", [("t", "q", {"partitionBy": ["n"]})]),
               "partition_by"),
        "missing": (src("missing", [("Bare", "q")]), "table_missing"),
        "filtered": (src("filtered", [("t", "q")], publication="filtered",
                         managePublication=False), "publication"),
        "listed": (src("listed", [("t", "q")], publication="listed",
                       managePublication=False), "publication"),
    }
    managed = src("managed", [("t", "managed")])
    for one, code in bad.values():
        refused(one, code)
    assert "the row filter (id > 3)" in \
        bad["filtered"][0].status()["error"]["message"]
    assert "a column list without n" in \
        bad["listed"][0].status()["error"]["message"]
    managed.await_phase("streaming")
    assert publications(far) == ["filtered", "listed", "queen_managed"]
    assert list(far.slots()) == ["queen_managed"]
    assert far.row("select attnames, rowfilter from pg_publication_tables"
                   " where pubname = 'queen_managed'") == (["id", "n"], None)
    # the application's own updates go on
    far.run("update nothing set n = 2", "update bare set id = 2",
            "delete from bare", "insert into t values (1, 1)")
    managed.check("t")
    # mended, it runs
    far.run("alter table nothing replica identity default")
    bad["nothing"][0].change()
    bad["nothing"][0].await_phase("streaming")


def test_tables_come_and_go_with_document_and_database(src, far):
    far.run("create schema ext; create extension citext schema ext",
            # chunks go on in its own order, in which `b` is before `C`
            "create table people (nick ext.citext primary key, n int)",
            "insert into people select case g & 1 when 0 then md5(g::text)"
            " else upper(md5(g::text)) end, g from generate_series(1, 350) g",
            "create table child () inherits (people)",
            "insert into child values ('not ours', 1)",
            "create table added (id int primary key)",
            "insert into added values (1)")
    one = src("come", [("people", "people")], snapshotChunkRows=100)
    one.await_phase("streaming")

    def same():
        found = one.events()
        rows = {r[0]: r[1] for r in far.rows("select * from only people")}
        return {e.payload["key"]["nick"]: e.payload["after"]["n"]
                for e in found if e.queue == "people"} == rows and found
    assert len(wait_until(same)) == 350
    # added: streamed from now on, not copied
    tables = one.document["source"]["tables"]
    one.change(tables=tables + [{"table": "added", "queue": "added"}])
    one.await_phase("streaming", generation=2)
    far.run("insert into added values (2)", "insert into people values "
            "('z2', 7)", "insert into child values ('nor this', 1)")
    one.until(lambda found: [e.payload["key"] for e in found
                             if e.queue == "added"] == [{"id": 2}])
    wait_until(same)
    # dropped and made again: a managed publication takes it back
    far.run("drop table added; create table added (id int primary key)")
    one.change()
    one.await_phase("streaming", generation=3)
    far.run("insert into added values (3)")
    one.until(lambda found: [e.payload["key"] for e in found
                             if e.queue == "added"] == [{"id": 2}, {"id": 3}])
    # renamed, it is another table to the next start
    far.run("alter table added rename to moved")
    one.change()
    refused(one, "table_missing", '"public"."added"')
    # no longer named
    one.change(tables=tables)
    one.await_phase("streaming")
    assert far.rows("select tablename from pg_publication_tables"
                    " where pubname = 'queen_come'") == [("people",)]


def test_a_role_that_has_no_more_than_it_needs(src, far):
    role = far.role("cdc")
    far.server.admin("alter role %s replication" % role)
    far.run("create table t (id int primary key)", "insert into t values (1)",
            "create table secret (id int primary key)",
            "insert into secret values (1)",
            "alter table secret enable row level security",
            "create publication theirs for table t",
            "create publication hidden for table secret",
            "grant select on t, secret to %s" % role)
    one, rls, managed = [
        src(name, [(table, name)], publication=pub, managePublication=manage,
            connection=far.connection(role))
        for name, table, pub, manage in (
            ("plain", "t", "theirs", False),
            ("rls", "secret", "hidden", False),
            ("own", "t", "another", True))]
    refused(managed, "publication", "42501: permission denied",
            "managePublication", 'CREATE PUBLICATION "another" FOR TABLE'
            ' "public"."t"')
    # a policy would hide rows of the copy, and nobody would know
    refused(rls, "postgres", "42501: query would be affected by row-level"
            " security policy")
    one.await_phase("streaming")
    far.run("insert into t values (2)")
    one.check("t")
    assert far.value("select usename from pg_stat_activity where pid = %d"
                     % far.walsenders()[0]) == role


def test_a_slot_that_waits_for_a_transaction_says_so_and_can_be_stopped(
        src, far):
    far.run("create table t (id int primary key)")
    writer = far.connect(autocommit=False)
    pid = writer.info.backend_pid
    with writer.cursor() as cur:
        cur.execute("insert into t values (1)")
    one = src("slow", [("t", "t")])
    s = one.await_phase("connecting", activePid=pid)
    assert "waits for a running transaction" in s["doing"]
    one.enable(False)
    wait_until(lambda: not far.rows("select 1 from pg_replication_slots"))
    # killed while it waits: the half-made slot goes, and nothing is lost
    one.document["enabled"] = True
    one.change()
    one.await_phase("connecting", activePid=pid)
    os.kill(one.tool_.child("slow"), signal.SIGKILL)
    wait_until(lambda: one.status()["phase"] in ("waiting_for_slot",
                                                 "connecting")
               and one.status()["restarts"] == 1)
    writer.commit()
    one.await_phase("streaming")
    far.run("insert into t values (2)")
    one.check("t")


def test_a_slot_that_lost_its_wal_while_it_ran_is_told(src, far, far_server):
    far.run("create table t (id int primary key)", "insert into t values (1)")
    one = src("stale", [("t", "t")])
    one.await_phase("streaming")
    one.check("t")
    first, child = one.pointer()["epoch"], one.tool_.child("stale")
    with far_server.setting(max_slot_wal_keep_size="1MB"):
        os.kill(child, signal.SIGSTOP)
        try:
            for _ in range(4):
                far.run("select pg_logical_emit_message(true, 'x', 'y')",
                        "select pg_switch_wal()")
            far.run("checkpoint")
            wait_until(lambda: far.value(
                "select wal_status from pg_replication_slots") == "lost")
        finally:
            os.kill(child, signal.SIGCONT)
        s = refused(one, "slot_invalidated", "raise max_slot_wal_keep_size",
                    "queenctl connector resync stale")
        assert s["retryInMs"] > 20000
        assert one.pointer()["epoch"] == first
    far.run("insert into t values (2)")
    stamp(one, "resync")
    one.await_phase("streaming")
    one.until(lambda found: len(found) == 3)


def test_a_restored_cell_asks_before_it_goes_on(src, far):
    far.run("create table t (id int primary key)",
            "insert into t select generate_series(1, 50)")
    one = src("back", [("t", "t")])
    one.await_phase("streaming")
    one.check("t")
    first = one.pointer()["epoch"]
    one.enable(False)
    db = one.tool_.db
    # a restore makes another cell of it, with a tag of its own
    db.rows("update queen.cell set tag = 281474976710000")
    one.tool_.restart()
    one.document["enabled"] = True
    one.change()
    refused(one, "cell_changed", "by the cell 5eed00c0ffee",
            "queenctl connector adopt back", "queenctl connector reset back")
    far.run("insert into t values (51)")
    stamp(one, "adopt")
    one.await_phase("streaming")
    found = one.check("t")
    assert len(found) == 51 and one.pointer()["epoch"] == first
    assert one.pointer()["cell"] == "fffffffffd70"

    db.rows("update queen.kv set version = version + 1, value = value ||"
            " '{\"cell\": \"5eed00c0ffee\"}' where key = 'src:back:pointer'")
    stamp(one, "reset")
    wait_until(lambda: one.pointer()["epoch"] != first)
    one.await_phase("streaming")
    one.until(lambda found: len(found) == 51 + 51)

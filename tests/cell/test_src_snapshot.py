# SPDX-License-Identifier: Apache-2.0
"""A source's copy of tables that were there before it, under writes."""
import os
import signal
import threading

import pytest

from queenlib import wait_until
from srckit import Writers, fills, held_copy, number_of

ORDERS = ("create table orders (id int primary key, n int,"
          " price numeric(10,2), note text)",
          "insert into orders select i, 0, i / 100.0, 'x'"
          " from generate_series(1, 4000) i")
DOCS = ("create table docs (id int primary key, n int, body text)",
        "alter table docs alter body set storage external")


def churn(cur, rng):
    """One transaction on orders: inserts, updates, deletes, moves."""
    one = rng.randrange(1, 4000)
    statements = []
    for _ in range(rng.choice((1, 1, 3))):
        statements.append(rng.choice((
            "update orders set n = n + 1 where id = %d" % one,
            "update orders set price = price + 0.01, note = null"
            " where id = %d" % rng.randrange(1, 4000),
            "delete from orders where id = %d" % rng.randrange(1, 4000),
            "insert into orders values (%d, 1, 2.50, 'new')"
            " on conflict do nothing" % rng.randrange(1, 5000),
            "update orders set id = %d where id = %d and not exists"
            " (select from orders where id = %d)" % (
                one + 5000, one, one + 5000))))
    cur.execute("; ".join(statements))


def of_op(found, op):
    return [e for e in found if e.payload["op"] == op]


def test_a_copy_under_writers_replays_to_the_table(src, far):
    far.run(*ORDERS)
    with Writers(far, 2, churn) as writers:
        one = src("copy", [("orders", "orders")], snapshotChunkRows=500)
        one.await_phase("streaming")
        turns = sum(writers.turns)
        wait_until(lambda: sum(writers.turns) > turns + 200)
    found = one.check("orders")
    assert len(of_op(found, "r")) > 1000
    assert len(of_op(found, "u")) > 10
    s = one.await_phase("streaming", messages=len(found))
    assert s["snapshot"] is None and s["error"] is None
    tool = src.tools[0]
    label = '{connector="copy"}'
    assert wait_until(lambda: tool.metrics().get(
        "queen_pg_source_messages_total" + label) == len(found))
    assert tool.metrics()["queen_pg_source_snapshot_rows_total" + label] \
        == len(of_op(found, "r"))
    wait_until(lambda: one.confirmed() == number_of(one.pointer()["lsn"]))
    tool.term()
    assert not far.walsenders() and one.lease() is None
    assert one.status()["phase"] == "stopped"


def test_rows_changed_while_they_are_copied_keep_what_is_out_of_line(src, far):
    far.run(*DOCS, "insert into docs select i, 0, repeat(chr(65 + i % 26),"
            " 3000) from generate_series(1, 3000) i")
    one = src("docs", [("docs", "docs")], snapshotChunkRows=100,
              maxBundleMessages=150)
    with held_copy(far, one, "docs") as cur:
        cur.execute("update docs set n = 1 where id % 3 = 0;"
                    "delete from docs where id % 30 = 1;"
                    "update docs set id = id + 10000 where id % 30 = 2;"
                    "update docs set body = 'short', n = 2"
                    " where id % 30 = 3")
    one.await_phase("streaming")
    found = one.check("docs")
    filled = fills(found)
    assert filled
    for e in filled:
        p = e.payload
        assert list(p["after"]) == ["id", "body"]
        assert (p["op"], p["before"], p["unchanged"]) == ("u", None, ["n"])
        assert len(p["after"]["body"]) == 3000
    # each row came by the copy, or by a fill, or as another key
    assert len(of_op(found, "r")) + len(filled) < 3000


def test_the_copy_goes_on_behind_what_everybody_sees(src, far, far_server):
    """A commit is in the WAL and in the stream, and yet not visible: a chunk
    read now would bring back the row as it was."""
    far.run("create table slow (id int primary key, n int)",
            "insert into slow select i, 0 from generate_series(1, 3000) i")
    one = src("slow", [("slow", "slow")], snapshotChunkRows=100,
              maxBundleMessages=150)
    with held_copy(far, one, "slow"):
        one.enable(False)
    at = one.pointer()["snapshot"]
    assert 0 < at["rows"] < 3000

    def write():
        conn = far.connect()
        with conn.cursor() as cur:
            cur.execute("update slow set n = 7 where id = 3000")

    with far_server.setting(synchronous_standby_names="nobody"):
        slow = threading.Thread(target=write)
        slow.start()
        wait_until(lambda: far.rows(
            "select pid from pg_stat_activity where wait_event = 'SyncRep'"))
        one.enable(True)
        wait_until(lambda: of_op(one.events(), "u"))
        s = one.await_phase("snapshot")
        assert s["snapshot"]["waiting"] and s["snapshot"]["done"] == 0
        assert one.pointer()["snapshot"]["rows"] == at["rows"]
        assert far.value("select n from slow where id = 3000") == 0
    slow.join()
    one.await_phase("streaming")
    one.check("slow")


def test_a_moved_row_is_read_back_once_everybody_sees_it(
        src, far, far_server):
    far.run(*DOCS, "insert into docs select i, 0, repeat('x', 3000) from"
            " generate_series(1, 2) i")
    one = src("moved", [("docs", "docs")])
    one.await_phase("streaming")
    backend = []

    def write():
        conn = far.connect()
        backend.append(conn.get_backend_pid())
        with conn.cursor() as cur:
            cur.execute("update docs set id = 3 where id = 1")

    with far_server.setting(synchronous_standby_names="nobody"):
        slow = threading.Thread(target=write)
        slow.start()
        wait_until(lambda: far.rows(
            "select pid from pg_stat_activity where wait_event = 'SyncRep' and"
            " pid = any (%s)", (backend,)))
        wait_until(lambda: of_op(one.events(), "c") or far.rows(
            "select pid from pg_stat_activity where datname ="
            " current_database() and pid <> pg_backend_pid() and query like"
            " '%select \"body\" from%'"))
        assert of_op(one.events(), "c") == []
    slow.join()
    assert [e.payload["after"]["body"] for e in of_op(
        one.check("docs"), "c")] == ["x" * 3000]


def test_whatever_ends_during_a_copy_and_a_stream_repeats_nothing(
        src, far, db):
    far.run(*ORDERS)
    with Writers(far, 2, churn):
        one = src("ends", [("orders", "orders")], snapshotChunkRows=100,
                  maxBundleMessages=100)
        tool = src.tools[0]

        def kill_all():
            assert one.pointer()["snapshot"]
            os.kill(tool.child("ends"), signal.SIGKILL)
            tool.kill9()
            tool.start()

        def end_walsender():
            far.rows("select pg_terminate_backend(pid)"
                     " from unnest(%s::int[]) pid", (far.walsenders(),))

        for end in (kill_all, end_walsender,
                    lambda: db.server.restart("immediate"),
                    lambda: os.kill(tool.child("ends"), signal.SIGKILL)):
            n = len(one.events())
            wait_until(lambda: len(one.events()) > n + 300)
            end()
    one.await_phase("streaming")
    one.check("orders")


VALUES = [
    ("bool", "true"), ("int2", "-32768"), ("int8", "9223372036854775807"),
    ("oid", "4294967295"), ("numeric", "123.4500"), ("numeric", "'NaN'"),
    ("numeric", "repeat('9', 400)::numeric"), ("float8", "1e100"),
    ("float8", "'-0'"), ("float4", "0.1"), ("float8", "'-Infinity'"),
    ("json", "' {\"a\": 1, \"a\":2} '"), ("jsonb", "'[1e3, null]'"),
    ("timestamptz", "'2026-10-02 10:00:00.000001+02'"),
    ("timestamptz", "'infinity'"), ("timestamp", "'0044-03-15 12:00 BC'"),
    ("date", "'10000-01-01'"), ("time", "'24:00'"),
    ("timetz", "'10:00+00:09:21'"), ("interval", "'1 day 2 hours'"),
    ("uuid", "'00000000-0000-0000-0000-00000000000A'"),
    ("inet", "'10.0.0.1'"), ("cidr", "'10.0.0.0/8'"),
    ("macaddr8", "'08:00:2b:01:02:03:04:05'"), ("bytea", "'\\x00ff'"),
    ("text", "E'a\"\\\\\\n\\x01é'"), ("text", "null"), ("text", "''"),
    ("char(5)", "'ab'"), ("name", "'n'"), ("\"char\"", "'x'"),
    ("bit(4)", "'0101'"), ("money", "1000"), ("tsvector", "'b a'"),
    ("xml", "'<?xml version=\"1.0\" encoding=\"UTF-8\"?><a/>'"),
    ("xid8", "'7'"), ("point", "'1,2'"), ("int4range", "'[1,2]'"),
    ("int4multirange", "'{[1,2]}'"), ("int4[]", "'[0:1]={1,NULL}'"),
    ("text[]", "array['a b', 'NULL', null, '']"),
    ("timestamptz[]", "array['2026-10-02 10:00+00'::timestamptz]"),
    ("box[]", "array['0,0,1,1'::box, '1,1,2,2']"), ("mood", "'sad'"),
    ("mood[]", "'{sad,NULL}'"), ("price", "1.5"), ("price[]", "'{1.5}'"),
    ("ints", "'{1,2}'"), ("pair", "row(1,'x y')"),
    ("pair[]", "array[row(1,'x')::pair]"), ("mood", "null")]


@pytest.mark.farpg
def test_a_value_is_the_same_by_copy_and_by_stream(src, far):
    far.run("create type mood as enum ('sad', 'ok');"
            "create domain price as numeric(10,2);"
            "create domain ints as int[];"
            "create type pair as (a int, b text)",
            "create table v (id int primary key%s)" % "".join(
                ", c%d %s" % (i, t) for i, (t, _) in enumerate(VALUES)))
    row = ", ".join(v for _, v in VALUES)
    far.run("insert into v values (1, %s)" % row)
    one = src("values", [("v", "v")])
    one.await_phase("streaming")
    far.run("insert into v values (2, %s)" % row)
    one.until(lambda found: len(found) == 2)
    copied, streamed = [
        text[text.index('"after":{"id":') + 16:text.index('},"before"')]
        for _, _, _, text in one.raw()]
    assert copied == streamed
    assert copied.startswith('"c0":true,"c1":-32768,')

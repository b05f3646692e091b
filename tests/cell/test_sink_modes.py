# SPDX-License-Identifier: Apache-2.0
"""
What the modes of a sink make of messages, through the whole tool.  Values and
shapes in all their variety are tests/unit/queen-pgsink's.
"""
from decimal import Decimal

import pytest

from pgkit import PASSWORD
from queenlib import OTHER_TENANT, TENANT, wait_until
from sealkit import K1, keyed

DIGITS = "123456789012345678901234567890.123"
TWICE = "246913578024691357802469135780.246"


def test_append_in_order_with_metadata(sinks, cell, connect, db):
    s = sinks("log", "append", metadata={
        "partition": "part", "partitionId": "part_id", "offset": "at",
        "transactionId": "txn", "createdAt": "made", "payload": "doc"},
        table="create table public.%s (seq int generated always as identity, part"
        " text, part_id bigint, at bigint, txn text, made timestamptz, doc"
        " json, n numeric, twice numeric generated always as (n * 2) stored,"
        " word text default 'none')", batch=10)
    assert s.await_status(phase="running")["workers"] == 1
    a = s.push([{"n": i} for i in range(25)], "a",
               ids=["a-%d" % i for i in range(25)])
    b = s.push(["no object", {"n": 1.5, "word": None, "twice": 9, "x": 1}],
               "b", ids=["b-0", "b-1"])
    big = '{"items":[{"queue":"log","partition":"c","transactionId":"c-0",' \
        '"payload":{"n":%s}}]}' % DIGITS
    assert cell.post("/api/v1/push", big).status == 201
    wait_until(lambda: len(s.rows()) == 28, what=s.status)

    # in order, each with its place in the queue
    assert [(r[0], r[1]) for r in s.rows("txn, n", "seq")
            if r[0].startswith("a")] == [
        ("a-%d" % i, i) for i in range(25)]
    ids = {"a": a, "b": b}
    for part, made in ids.items():
        assert s.far.rows("select at, part_id from log where part = %s"
                          " order by seq", (part,)) == [
            (i, partition_id(db, "log", part)) for i in range(len(made))]
    assert s.far.rows("select txn, n, twice, word, doc::text from log where"
                      " part <> 'a' order by txn") == [
        ("b-0", None, None, "none", '"no object"'),
        ("b-1", Decimal("1.5"), Decimal("3.0"), None,
         '{"n": 1.5, "word": null, "twice": 9, "x": 1}'),
        ("c-0", Decimal(DIGITS), Decimal(TWICE), "none",
         '{"n":%s}' % DIGITS)]
    assert s.far.value("select count(*) from log where made > now()"
                       " - interval '1 minute' and made <= now()") == 28

    # progress: offsets, times, the group's life and the cell
    s.drained()
    assert s.progress("partition, last_offset, group_id, cell") == [
        (p, at, group_id(db, "log"), "5eed00c0ffee")
        for p, at in (("a", 24), ("b", 1), ("c", 0))]
    assert s.far.value("select count(*) from queen.sink_progress p join"
                       " log l on l.part_id = p.partition_id and l.at ="
                       " p.last_offset and l.made = p.last_created_at") == 3
    block = s.await_status(applied=28, skipped=0, dlq=0)
    assert (block["queue"], block["group"], block["table"], block["mode"]) \
        == ("log", "pg-log", "log", "append")
    assert block["batches"] >= 3 and block["error"] is None
    assert block["lastAppliedAt"].endswith("Z") and not block["lastError"]
    metrics = s.tool.metrics()
    assert metrics['queen_pg_sink_applied_total{connector="log"}'] == 28
    assert metrics['queen_pg_connector_owner{connector="log"}'] == 1


def partition_id(db, queue, name):
    return db.value("select p.id from queen.partitions p join queen.queues q"
                    " on q.id = p.queue_id where q.name = %s and p.name = %s"
                    " and q.tenant = %s", (queue, name, TENANT))


def group_id(db, queue):
    return db.value("select g.id from queen.groups g join queen.queues q on"
                    " q.id = g.queue_id where q.name = %s and g.name = %s and"
                    " g.deleted_at is null", (queue, "pg-" + queue))


@pytest.mark.farpg
def test_upsert_touches_what_the_payload_names(sinks):
    s = sinks("stock", "upsert", table="create table public.%s (place text, id int,"
              " n int default 7, note text, primary key (id, place))")
    s.push([{"id": 1, "place": "a", "n": 1, "note": "x"},
            {"id": 2, "place": "a"},
            {"id": 1, "place": "a", "n": None},
            {"id": 1, "place": "a"},
            {"place": "a", "id": 2, "note": "y"},
            {"id": 1, "place": "b", "n": 3}])
    s.await_rows([("a", 1, None, "x"), ("a", 2, 7, "y"), ("b", 1, 3, None)],
                 order="place, id")


def test_cdc_follows_its_source(sinks, far):
    clerk = far.role("clerk")
    far.run("create schema queen", "grant all on schema queen to " + clerk,
            TABLE_CDC, "grant select, insert, update, delete on copy to "
            + clerk)
    s = sinks("copy", "cdc", table=None, connection={"user": clerk})

    def event(op, key, after=None, **more):
        return {"op": op, "table": "public.copy", "key": {"id": key},
                **({"after": {"id": key, **after}} if after is not None
                   else {}), **more}

    s.push([event("r", 1, {"n": 1, "big": "one"}),
            event("c", 2, {"n": 2, "big": "two"}),
            event("c", 2, {"n": 2, "big": "two"}),
            event("u", 1, {"n": 10, "big": None}, unchanged=["big"])])
    s.await_rows([(1, 10, "one", "own"), (2, 2, "two", "own")])
    far.run("update copy set ours = 'kept' where id = 2")
    s.push([event("u", 3, {"n": 3}, before={"id": 2}, unchanged=["big"]),
            event("u", 9, {"n": 9}, before={"id": 8}),
            event("d", 1), event("d", 77)])
    s.await_rows([(3, 3, "two", "kept"), (9, 9, None, "own")])

    # the right it lacks is an operator's to give; nothing is filed, or lost
    s.push([{"op": "t", "tables": ["public.copy"]}, event("c", 4, {"n": 4})])
    s.await_error("postgres", "42501")
    assert s.dead() == []
    far.run("grant truncate on copy to " + clerk)
    s.await_rows([(4, 4, None, "own")])
    block = s.await_status(phase="running", error=None, dlq=0)
    assert block["lastError"]["message"].startswith("42501: ")


TABLE_CDC = "create table public.copy (id int primary key, n int, big text, ours" \
    " text default 'own')"


@pytest.mark.amount
def test_a_table_that_grew_is_not_walked(sinks):
    """The server keeps the plan it made for a small table."""
    s = sinks("grown", "cdc", table="create table public.%s (id int primary"
              " key, t text) with (autovacuum_enabled = off)")

    def delete(*ids):
        s.push([{"op": "d", "table": "t", "key": {"id": i}, "after": None,
                 "before": {"id": i}, "lsn": "0/1", "ts": "", "seq": 0}
                for i in ids])

    s.far.rows("insert into grown values (1, 'x'), (0, 'last')")
    s.far.rows("analyze grown")
    delete(*range(100, 120), 1)
    s.await_rows([(0, "last")])
    s.far.rows("insert into grown select n, repeat('x', 100)"
               " from generate_series(1, 30000) n")
    # the table is looked at with the first batch after a second
    wait_until(lambda: delete(200) or s.far.rows(
        "select count(*) from pg_stat_user_tables where relname = 'grown'"
        " and idx_scan > 0")[0][0], every_s=0.5)
    walked = "select seq_scan, idx_scan from pg_stat_user_tables" \
        " where relname = 'grown'"
    wait_until(lambda: s.lag() == 0)
    (seq, idx), = s.far.rows(walked)
    delete(*range(300, 350))
    wait_until(lambda: s.far.rows(walked)[0][1] >= idx + 50)
    assert s.far.rows(walked)[0][0] == seq


def test_sql_runs_once_for_each_message(sinks, far):
    far.run("create table public.account (id text primary key, sum numeric)",
            "insert into account values ('x', 0), ('y', 0)")
    s = sinks("moves", "sql", table=None,
              statement="update account set sum = sum + $2::numeric"
              " where id = $1 and $3 is not null",
              params=["$.to[0]", '$["the amount"]', "@transactionId"])
    s.document["sink"]["table"] = "account"
    s.put()
    for part in "pq":
        s.push([{"to": ["xy"[i % 2]], "the amount": i}
                for i in range(100)], part)
    s.await_rows([("x", 4900), ("y", 5000)])


@pytest.mark.cellenv(QUEEN_TENANCY_HEADER="true",
                     QUEEN_KV_TRUSTED_PROXY="true")
def test_new_group_starts_now_and_tenants_are_apart(sinks, cell, db):
    theirs = {"x-queen-tenant": OTHER_TENANT}
    cell.push("old", [{"id": 1}])
    cell.push("old", [{"id": 11}], headers=theirs)
    s = sinks("old", "append", subscriptionMode="new")
    t = sinks("old", "append", tenant=OTHER_TENANT, queue="old",
              table="create table public.theirs (id int)", table_name="theirs")
    wait_until(lambda: db.value("select count(*) from queen.groups where"
                                " name = 'pg-old'") == 2, what="both groups")
    s.push([{"id": 2}])
    s.await_rows([(2, None)])
    t.await_rows([(11,)])
    assert s.progress() == [("Default", 1)]
    assert t.progress() == [("Default", 0)]
    wait_until(lambda: s.tool.metrics()[
        'queen_pg_sink_applied_total{tenant="%s",connector="old"}'
        % OTHER_TENANT] == 1, what="the other tenant's counter")


@keyed
def test_sealed_messages_and_a_sealed_password(sinks, cell, far):
    """Both keys are the cell's; neither clear text is in any log."""
    clerk = far.guarded_role("clerk")
    far.run("create schema queen", "grant all on schema queen to " + clerk,
            "create table public.vault (id int, secret text)",
            "grant select, insert on vault to " + clerk)
    tool = sinks.tool(QUEEN_ENCRYPTION_KEY=K1)
    s = sinks("vault", "append", table=None,
              _options={"encryptionEnabled": True},
              connection={"user": clerk, "password": PASSWORD}, _put=cell)
    s.push([{"id": i, "secret": "hush-%d" % i} for i in range(3)])
    s.await_rows([(i, "hush-%d" % i) for i in range(3)])
    for word in "hush", PASSWORD:
        assert word not in tool.log_text()
        assert word not in str(s.status())

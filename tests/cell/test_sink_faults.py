# SPDX-License-Identifier: Apache-2.0
"""
What goes wrong around a sink, through the whole tool: nothing is lost, nothing
is applied twice, and the status says what happened.
"""
import contextlib
import os
import random
import signal
import threading
import time
import uuid

import pytest

import queenlib
from queenlib import TENANT, wait_until
from sinkkit import go_back, keep

SUMS = "create table public.%s (id int primary key, sum bigint not null," \
    " times int not null)"
ADD = "insert into public.%s values ($1::int, $2::bigint, 1) on conflict" \
    " (id) do update set sum = %s.sum + excluded.sum, times = %s.times + 1"


def adder(sinks, name, **more):
    """A sink whose effect shows every repetition."""
    return sinks(name, "sql", SUMS, statement=ADD % (name, name, name),
                 params=["$.id", "$.n"], **more)


# ---- what an operator must mend ----

@pytest.mark.farpg
def test_what_setup_refuses_is_in_the_status(sinks, far):
    far.run("create table public.loose (id int, n int)", OLD_PROGRESS)
    wrong = sinks("orders", "append", None, table_name="Orders")
    keyless = sinks("loose", "upsert", None, key=["id"])
    older = sinks("parts", "append", progressTable="public.progress")
    for s in wrong, keyless, older:
        s.push([{"id": 1}])
    wrong.await_error("table_missing", 'no table "public"."Orders"')
    block = keyless.await_error(
        "no_key", 'CREATE UNIQUE INDEX ON loose ("id")')
    assert 20000 < block["retryInMs"] <= 30000
    block = older.await_error("progress_table", "run: ALTER TABLE")
    # what they say mends it; a document that is put again is tried at once
    far.run("create unique index on loose (id)",
            block["error"]["message"].split("run: ")[1])
    keyless.put()
    older.put()
    keyless.await_rows([(1, None)])
    older.await_rows([(1, None)])
    older.await_status(phase="running", error=None, applied=1)
    assert far.rows("select last_offset, cell from progress") == [
        (0, "5eed00c0ffee")]


def test_what_a_statement_may_not_be(sinks, far):
    """It shares the transaction of its progress, and is no conversation."""
    for i, statement in enumerate((
            "commit", " ;;BEGIN", "/* a /* b */ c */-- d\n\tRollback to x",
            "copy public.%s from stdin", "--\nCOPY (select 1) to stdout")):
        s = sinks("word%d" % i, "sql", params=[], statement=statement)
        s.await_error("statement", "must not begin or end transactions")
    fine = sinks("fine", "sql", params=["$.id"], statement="/* commit */ --\n"
                 " insert into public.fine values ($1::int, 0)")
    fine.push([{"id": 1}])
    fine.await_rows([(1, 0)])


# of before times, groups and cells were kept in it
OLD_PROGRESS = "create table public.progress (sink text, partition_id" \
    " bigint, partition text, last_offset bigint, updated_at timestamptz" \
    " default now(), primary key (sink, partition_id))"


# ---- dead letters ----

def test_poison_is_filed_once_and_its_partition_goes_on(sinks, cell):
    s = sinks("parcels", "append", "create table public.%s (id int check"
              " (id % 10 <> 7), n int)".replace("% 10", "%% 10") % "parcels",
              maxAttempts=2)
    for at, part in enumerate("abc"):
        s.push([{"id": at * 100 + i if i != 3 else at * 100 + 7, "n": i}
                for i in range(6)], part)
    s.push(["no object"], "d")
    s.drained()
    s.await_rows([(at * 100 + i, i) for at in range(3) for i in range(6)
                  if i != 3])
    found = s.dead()
    assert [(p, o) for p, o, _ in found] == [
        ("a", 3), ("b", 3), ("c", 3), ("d", 0)]
    for _, _, text in found[:3]:
        assert text.startswith("23514: new row for relation \"parcels\"")
    assert found[3][2].startswith("payload: ")
    block = s.await_status(phase="running", dlq=4, applied=15, error=None)
    assert block["lastError"]["code"] == "dlq"
    assert block["lastError"]["message"].startswith("partition ")
    # a dead letter's offset is not progress until one behind it is
    assert s.progress() == [("a", 5), ("b", 5), ("c", 5)]
    assert cell.get("/api/v1/dlq?queue=parcels").body["total"] == 4


# ---- the target away ----

def test_a_target_that_goes_and_comes_back(sinks, far, far_server):
    s = adder(sinks, "away", leaseSeconds=5)
    s.push([{"id": 1, "n": 1}])
    s.await_rows([(1, 1, 1)])
    far_server.stop("immediate")
    s.push([{"id": 1, "n": 10}])
    block = s.await_status(phase="error")
    assert block["error"]["code"] in ("io", "postgres")
    assert 0 < block["retryInMs"] <= 1100
    far_server.start()
    s.await_rows([(1, 11, 2)])
    block = s.await_status(phase="running", error=None, applied=2, skipped=0)
    assert block["lastError"]["code"] in ("io", "postgres")

    # amid a batch
    with hold(far, "select * from away for update"):
        s.push([{"id": 1, "n": 100}])
        far.rows("select pg_terminate_backend(%s)", await_blocked(s)[:1])
        block = s.await_error("postgres", "57P01")
    s.await_rows([(1, 111, 3)])
    s.await_status(phase="running", error=None, applied=3, skipped=0)


@contextlib.contextmanager
def hold(db, statement, args=None):
    """A transaction beside that has locked what the statement takes."""
    conn = db.connect(autocommit=False)
    try:
        queenlib.rows(conn, statement, args)
        yield conn
    finally:
        conn.rollback()
        conn.close()


def blocked(s):
    """Pids of its sessions with the target that wait for a lock."""
    return [r[0] for r in s.far.rows(
        "select pid from pg_stat_activity where datname = current_database()"
        " and application_name like %s and wait_event_type = 'Lock'",
        ("queen-pg/%%sink:%s:%%" % s.name,))]


def await_blocked(s):
    return wait_until(lambda: blocked(s), what="a worker that waits")


# ---- acks ----

def test_a_process_killed_before_its_ack_is_no_repetition(sinks, db):
    s = adder(sinks, "killed", leaseSeconds=5)
    s.push([{"id": i, "n": 0} for i in range(20)], "p")
    s.drained()
    part = db.value("select partition_id from queen.consumers where committed"
                    " = 19")
    with hold(s.far, "select * from killed where id = 0 for update"):
        s.push([{"id": i, "n": 1} for i in range(20)], "p")
        await_blocked(s)
        # the ack will wait for the row; the pop has been before
        keeper = db.connect(autocommit=False)
        queenlib.rows(keeper, "select * from queen.consumers where"
                      " partition_id = %s for update", (part,))
    s.await_rows([(i, 1, 2) for i in range(20)])
    os.kill(s.tool.child("killed"), signal.SIGKILL)
    db.rows("select pg_terminate_backend(pid) from pg_stat_activity where"
            " datname = current_database() and wait_event_type = 'Lock'")
    keeper.rollback()
    # instead of waiting for its end
    db.rows("update queen.consumers set expires_at = now()")
    s.drained()
    block = s.await_status(phase="running", applied=0, skipped=20, restarts=1)
    assert s.rows() == [(i, 1, 2) for i in range(20)]
    assert block["dlq"] == 0 and s.progress() == [("p", 39)]


# ---- two nodes ----

def test_leases_that_run_out_and_one_that_is_kept(sinks, far):
    """Both nodes hold the frozen one's partition: the first, late, finds that
    all is done.  A transaction that takes longer than its lease keeps it."""
    one, slow = (adder(sinks, name, leaseSeconds=5)
                 for name in ("frozen", "slow"))
    for s in one, slow:
        s.push([{"id": 1, "n": 1}], "p")
        s.await_rows([(1, 1, 1)])
        s.drained()
    child = one.tool.child("frozen")
    with contextlib.ExitStack() as slowly:
        slowly.enter_context(hold(far, "select * from slow for update"))
        slow.push([{"id": 1, "n": 10}] * 3, "p")
        await_blocked(slow)
        # frozen with its transaction still to begin: another has its rows
        with hold(far, "select * from queen.sink_progress where sink like"
                  " '%%frozen' for update"):
            one.push([{"id": 1, "n": 10}] * 3, "p")
            await_blocked(one)
            os.kill(child, signal.SIGSTOP)
        slowly.callback(os.kill, child, signal.SIGCONT)
        two = sinks.tool()
        one.await_status(two, phase="running")
        # its session holds the row until the server ends it as idle
        waits = await_blocked(one)[0]
        far.rows("select pg_terminate_backend(pid) from pg_stat_activity where"
                 " application_name like 'queen-pg/%%sink:frozen:1' and pid"
                 " <> %s", (waits,))
        one.await_rows([(1, 31, 4)])
        one.drained()
        one.await_status(two, applied=3, skipped=0)
        assert len(blocked(slow)) == 1 and slow.lag() == 3
    one.await_status(phase="running", applied=1, skipped=3)
    one.push([{"id": 1, "n": 100}], "p")
    one.await_rows([(1, 131, 5)])
    slow.await_rows([(1, 31, 4)])
    slow.await_status(applied=4, skipped=0)
    assert slow.status(two)["skipped"] == 0
    assert one.dead() == [] and slow.dead() == []


def test_increments_are_exact_under_every_fault(sinks, far, db):
    """Two nodes of two workers; poison here and there."""
    n, parts, rng = 1500, 20, random.Random(5)
    s = adder(sinks, "many", workers=2, batch=40, leaseSeconds=5,
              maxAttempts=1)
    two = sinks.tool()
    s.await_status(phase="running")
    s.await_status(two, phase="running")
    over = threading.Event()

    def disturb():
        kinds = [
            lambda: far.rows("select pg_terminate_backend(pid) from"
                             " pg_stat_activity where application_name like"
                             " 'queen-pg/%%sink:many:%%' limit 2"),
            lambda: db.rows("select pg_terminate_backend(pid) from"
                            " pg_stat_activity where application_name ="
                            " 'queen-pgsink many' and random() < 0.5"),
            lambda: os.kill(rng.choice(
                s.tool.children() + two.children()), signal.SIGKILL),
            s.put]
        while not over.wait(0.15):
            with contextlib.suppress(IndexError, ProcessLookupError):
                rng.choice(kinds)()

    sums = {i: [0, 0] for i in range(10)}
    for part in range(parts):
        made = []
        for i in range(n // parts):
            if i == 37 and part % 10 == 3:
                made.append({"id": 0, "n": "poison"})
                continue
            made.append({"id": rng.randrange(10), "n": rng.randrange(1000)})
            sums[made[-1]["id"]][0] += made[-1]["n"]
            sums[made[-1]["id"]][1] += 1
        s.push(made, "p%02d" % part)
    trouble = threading.Thread(target=disturb)
    trouble.start()
    time.sleep(3)  # how long it is disturbed, not what is waited for
    over.set()
    trouble.join()
    s.drained(60)
    assert s.rows() == [(i, *sums[i]) for i in sorted(sums)]
    assert [(p, o) for p, o, _ in s.dead()] == [("p03", 37), ("p13", 37)]
    assert s.progress() == [("p%02d" % i, n // parts - 1)
                            for i in range(parts)]
    s.await_status(phase="running", error=None)
    s.await_status(two, phase="running", error=None)


# ---- other cells, other times ----

def test_a_cell_that_goes_back_in_time(sinks, cell, db):
    """What was applied of the lost future stays; what comes at its offsets is
    applied once."""
    s = adder(sinks, "back")
    s.push([{"id": 1, "n": 1}] * 5, "p")
    s.drained()
    keep(db)
    push_at_last(s, [{"id": 2, "n": 1}] * 4)
    s.await_rows([(1, 5, 5), (2, 4, 4)])
    s.drained()
    go_back(db)
    push_at_last(s, [{"id": 3, "n": 1}] * 2)
    s.await_rows([(1, 5, 5), (2, 4, 4), (3, 2, 2)])
    s.drained()
    assert s.progress() == [("p", 6)]
    s.push([{"id": 3, "n": 1}] * 4, "p")
    s.await_rows([(1, 5, 5), (2, 4, 4), (3, 6, 6)])
    s.drained()
    assert s.progress() == [("p", 10)]


def push_at_last(s, payloads):
    """By a queend whose database has just been away."""
    items = [{"queue": s.queue, "partition": "p", "payload": p,
              "transactionId": uuid.uuid4().hex} for p in payloads]

    def stored():
        reply = s.cell.post("/api/v1/push", {"items": items})
        return reply.status == 201 and all(
            r["status"] in ("queued", "duplicate") for r in reply.body)
    wait_until(stored, what="a push")


def test_rows_of_another_cell_wait_for_a_word(sinks, cell, far):
    """As after a restore: other partition ids, the same offsets and times."""
    for queue in "adopted", "renewed":
        for part in "ab":
            cell.push(queue, [{"id": 1, "n": 1}] * 3, part)
    far.run("create schema queen", "create table queen.sink_progress (sink"
            " text, partition_id bigint, partition text, last_offset bigint,"
            " last_created_at timestamptz, group_id bigint, cell text,"
            " updated_at timestamptz not null default now(), primary key"
            " (sink, partition_id))",
            "insert into queen.sink_progress select '%s/' || s, 1000000 + n,"
            " p, n, now(), 77, 'feedfeedfeed' from unnest(array['adopted',"
            " 'renewed']) s, (values ('a', 1), ('b', 2), ('gone', 9))"
            " v(p, n)" % TENANT)
    both = [adder(sinks, name) for name in ("adopted", "renewed")]
    for s, word in zip(both, ("adopt", "reset")):
        s.await_error("cell_changed", "queenctl connector %s %s" % (
            word, s.name))
        assert s.rows() == []
        reply = cell.post("/api/v1/connectors/%s/%s" % (s.name, word))
        assert reply.status == 202, reply
    for s, times in zip(both, (1, 6)):
        s.await_rows([(1, times, times)])
        s.drained()
        s.await_status(phase="running", applied=times, skipped=6 - times)
        assert s.progress("partition, last_offset, cell") == [
            ("a", 2, "5eed00c0ffee"), ("b", 2, "5eed00c0ffee")]


def test_a_new_life_of_the_group_applies_again(sinks, db):
    s = adder(sinks, "again")
    s.push([{"id": 1, "n": 1}] * 3, "p")
    s.await_rows([(1, 3, 3)])
    s.drained()
    before = s.progress("group_id")[0][0]
    reply = s.cell.post("/api/v1/connectors/again/resync", {"from": "beginning"})
    assert reply.status == 202, reply
    s.await_rows([(1, 6, 6)])
    s.drained()
    assert s.progress("group_id")[0][0] > before


# ---- stops ----

def test_a_stop_ends_what_is_in_flight_and_nothing_more(sinks, far):
    s = adder(sinks, "stopped", batch=1, leaseSeconds=60)
    s.push([{"id": 1, "n": 1}] * 3, "p")
    s.await_rows([(1, 3, 3)])
    s.drained()
    with hold(far, "select * from stopped for update"):
        s.push([{"id": 1, "n": 10}] * 3, "p")
        await_blocked(s)
        s.tool.signal(signal.SIGTERM)
        wait_until(lambda: s.status()["phase"] == "running", what="its word")
    assert s.tool.wait_exit() == 0
    assert s.rows() == [(1, 13, 4)]
    # what was done is acknowledged: the rest is there at once, not leased
    assert s.lag() == 2
    s.tool.start()
    s.await_rows([(1, 33, 6)])
    assert s.await_status(phase="running", applied=2, skipped=0)

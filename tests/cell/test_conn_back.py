# SPDX-License-Identifier: Apache-2.0
"""Positions that do not fit: a cell that went back in time or was restored, a
group that starts over, a queue that asks for sealed messages from now on."""
import pytest

import queenlib
from nodekit import (SEALED, applied, await_applied, held, ledger, restore,
                     segments)
from queenlib import wait_until
from sealkit import K1, flag, key_id, keyed
from sinkkit import go_back, keep
from srckit import Writers, compare, number_of, replay, table_rows

pytestmark = pytest.mark.parametrize(
    "far_version", ["dist" if queenlib.SAN else "17"], indirect=True)
CDC = "create table public.%s (id int primary key, n int)"


def rows_of(far, table):
    return far.rows("select * from %s order by 1" % table)


def push(cell, queue, part, *numbers):
    """As soon as the cell takes it."""
    last = []

    def taken():
        reply = cell.post("/api/v1/push", {"items": [
            {"queue": queue, "partition": part, "payload": {"id": n}}
            for n in numbers]})
        last[:] = [reply]
        return reply.status == 201 and all(
            r["status"] == "queued" for r in reply.body)
    try:
        wait_until(taken)
    except AssertionError:
        raise AssertionError(last) from None


def await_error(tool, name, code, word):
    block = tool.await_status(name, phase="error", error=code)
    assert word in block["error"]["message"], block["error"]
    return block


def asked(cell, name, what, body=None):
    reply = cell.post("/api/v1/connectors/%s/%s" % (name, what), body)
    assert reply.status == 202, reply


# ---- back in time ----

def test_a_cell_that_went_back_in_time(src, sinks, cell, db, far, far_too):
    far.run("create table t (id int primary key, n int)",
            "insert into t values (1, 1), (2, 2)")
    one = src("t", [("t", "t")])
    copy = sinks("copy", "cdc", CDC, queue="t", _far=far_too)
    for part in "pq":
        push(cell, "plain", part, 1, 2, 3)
    seen, anew = (ledger(sinks, name, "plain", leaseSeconds=5)
                  for name in ("seen", "anew"))
    past = [(p, at) for p in "pq" for at in range(3)]
    for s in seen, anew:
        wait_until(lambda: [r[:2] for r in applied(s)] == past)
        s.drained()
    one.check("t")
    src.watch.sources.clear()
    keep(db)

    # a future that will not have been: a partition whose id comes again, a
    # group of a later life, a source that was read further
    push(cell, "plain", "p", 4, 5)
    push(cell, "plain", "y", 1, 2)
    for s in seen, anew:
        wait_until(lambda: len(applied(s)) == 10)
        s.drained()
    asked(cell, "anew", "resync", {"from": "beginning"})
    wait_until(lambda: len(applied(anew)) == 20)
    anew.drained()
    lost = [applied(s) for s in (seen, anew)]
    far.run("insert into t values (3, 3)", "update t set n = 9 where id = 1")
    copy.await_rows([(1, 9), (2, 2), (3, 3)])
    wait_until(lambda: one.confirmed() == number_of(one.pointer()["lsn"]))
    go_back(db)

    push(cell, "plain", "p", 6, 7)
    push(cell, "plain", "z", 1)
    push(cell, "plain", "y", 3)
    new = [("p", 3), ("p", 4), ("y", 0), ("z", 0)]
    for s, before in zip((seen, anew), lost):
        wait_until(lambda: len(applied(s)) == len(before) + 4)
        s.drained()
        rest = applied(s)
        for r in before:
            rest.remove(r)
        assert [r[:2] for r in rest] == new
        assert {r[2] for r in rest} <= {r[2] for r in held(db, "plain")}
    assert seen.progress() == [("p", 4), ("q", 2), ("y", 0), ("z", 0)]

    # the changes in between are nowhere any more: no way but a copy
    far.run("insert into t values (4, 4)")
    await_error(src.tools[0], "t", "slot_ahead",
                "queenctl connector resync t")
    asked(cell, "t", "resync")
    one.await_phase("streaming")
    # a phase may be of before; the row tells that the copy was made
    copy.await_rows([(1, 9), (2, 2), (3, 3), (4, 4)])
    far.run("delete from t where id = 2")
    copy.await_rows([(1, 9), (3, 3), (4, 4)])
    copy.drained()
    assert copy.dead() == []


# ---- a group that starts over ----

def test_a_sink_starts_over_on_demand_alone(sinks, cell, far):
    made = {"app": sinks("app", "append", "create table %s (id int, n int)",
                         queue="plain"),
            "ups": sinks("ups", "upsert", CDC, queue="plain"),
            "cdc": sinks("cdc", "cdc", CDC, queue="events"),
            "led": ledger(sinks, "led", "plain")}
    for i in range(30):
        push(cell, "plain", "p%d" % (i % 3), i)
    changes = [{"op": op, "table": "t", "key": {"id": i},
                "after": {"id": i, "n": i} if op != "d" else None,
                "before": {"id": i} if op == "d" else None}
               for i in range(9) for op in "cud"[:1 + i % 3]]
    for c in changes:
        cell.push("events", [c], "k%d" % c["key"]["id"])
    once = [(i, None) for i in range(30)]
    copied = [(i, i) for i in range(9) if i % 3 != 2]
    want = {"app": once, "ups": once, "cdc": copied}
    for name, rows in want.items():
        made[name].await_rows(rows)
    await_applied(made["led"], held(cell.db, "plain"))
    for s in made.values():
        s.drained()

    for name in made:
        queue = made[name].queue
        at = "/api/v1/consumer-groups/pg-%s" % name
        for reply in (
                cell.post("%s/queues/%s/seek" % (at, queue),
                          {"timestamp": "2020-01-01T00:00:00Z"}),
                cell.post("%s/queues/%s/partitions/p1/seek" % (at, queue),
                          {"toEnd": True}),
                cell.delete("%s/queues/%s" % (at, queue))):
            assert reply.status == 409, reply
            assert reply.body["error"] == "connector_group", reply
    for name in made:
        asked(cell, name, "resync", {"from": "beginning"})
    want["app"] = sorted(once * 2)
    for name, rows in want.items():
        made[name].await_rows(rows)
    await_applied(made["led"], twice(held(cell.db, "plain")))
    for name, s in made.items():
        s.drained()
        assert s.dead() == []
        s.await_status(phase="running", error=None, skipped=0, dlq=0)
    assert {n: s.rows() for n, s in made.items() if n != "led"} == want


def twice(rows):
    """Each partition from its beginning to its end, and again."""
    parts = sorted({r[0] for r in rows})
    return [r for p in parts for _ in range(2) for r in rows if r[0] == p]


# ---- restored ----

def resumed(ctl, of, word):
    """All are told to go on and say what they wait for."""
    for name in of:
        ctl.run("connector", "resume", name)
    for name, tool in of.items():
        await_error(tool, name, "cell_changed",
                    "queenctl connector %s %s" % (word, name))


def test_a_restored_cell_waits_for_a_word(src, sinks, cell, db, far, ctl):
    far.run("create table t (id int primary key, n int)",
            "insert into t values (1, 1), (2, 2)")
    one = src("t", [("t", "t")])
    seen = ledger(sinks, "seen", "t")
    plain = ledger(sinks, "plain", "plain")
    push(cell, "plain", "p", 1)
    one.check("t")
    await_applied(seen, held(db, "t"))
    for s in seen, plain:
        s.drained()
    tools = src.tools + sinks.tools
    for tool in tools:
        assert tool.term() == 0
    # the target gets ahead of the backup, by offsets and by what is in it
    push(cell, "plain", "p", 2, 3)
    keep(db)
    push(cell, "plain", "p", 4, 5)
    sinks.tools[0].start()
    await_applied(plain, held(db, "plain"))
    plain.drained()
    lost = applied(plain)
    assert sinks.tools[0].term() == 0
    cell.term()
    go_back(db)
    restore(db, 0xfeedfeedfeed)

    far.run("insert into t values (3, 3)", "delete from t where id = 1")
    cell.start()
    push(cell, "plain", "p", 6)
    for tool in tools:
        tool.start()
    of = {"t": src.tools[0], "seen": sinks.tools[0], "plain": sinks.tools[0]}
    for name, tool in of.items():
        tool.await_status(name, phase="disabled")
    resumed(ctl, of, "adopt")
    assert len(one.events()) == 2 and applied(plain) == lost
    for name in of:
        ctl.run("connector", "adopt", name)
    await_applied(plain, lost + [r for r in held(db, "plain") if r[1] == 3])
    found = one.check("t")
    assert len(found) == 4
    await_applied(seen, held(db, "t"))
    plain.await_status(phase="running", error=None, applied=1, skipped=2)
    assert plain.progress("partition, last_offset, cell, partition_id > 1 << 30"
                          ) == [("p", 3, "feedfeedfeed", True)]
    assert one.pointer()["cell"] == "feedfeedfeed"

    # once more, and this time from the start
    for s in seen, plain:
        s.drained()
    epoch = one.pointer()["epoch"]
    for tool in tools:
        assert tool.term() == 0
    cell.term()
    restore(db, 0xc0ffee)
    cell.start()
    for tool in tools:
        tool.start()
    resumed(ctl, of, "reset")
    for name in of:
        ctl.run("connector", "reset", name, "--yes")
    push(cell, "plain", "p", 7)
    await_applied(plain, lost + [r for r in held(db, "plain") if r[1] > 2])
    wait_until(lambda: one.pointer()["epoch"] != epoch
               and not one.pointer()["snapshot"])
    fresh = [e for e in one.events() if e.id[3:11] == one.pointer()["epoch"]]
    compare(replay(fresh), {"public.t": table_rows(far, "t")})
    await_applied(seen, held(db, "t"))


# ---- sealed from now on ----

WORD = b"Rhabarber-0815"


def note(cur, rng):
    one = rng.randrange(1, 300)
    cur.execute("select pg_sleep(0.002); insert into secrets values (%d, '%s')"
                " on conflict (id) do update set n = secrets.n + 1"
                % (one, WORD.decode()))


@keyed
def test_a_queue_that_wants_sealed_messages_from_now_on(src, sinks, cell, far,
                                                        far_too, db):
    far.run("create table secrets (id int primary key, word text, n int"
            " default 0)")
    src.tool(QUEEN_ENCRYPTION_KEY=K1)
    one = src("secrets", [("secrets", "secrets")])
    one.await_phase("streaming")
    sinks.tool(QUEEN_ENCRYPTION_KEY=K1)
    copy = sinks("copy", "cdc", "create table %s (id int primary key,"
                 " word text, n int)", queue="secrets", _far=far_too)
    seen = ledger(sinks, "seen", "secrets", _far=far_too)
    with Writers(far, 2, note) as writers:
        wait_until(lambda: len(segments(db, "secrets")) > 20)
        flag(cell, "secrets")
        flipped = db.value("select clock_timestamp()")
        turns = sum(writers.turns)
        wait_until(lambda: sum(writers.turns) > turns + 100)
    assert one.status()["error"] is None
    copy.await_rows(rows_of(far, "secrets"))
    for s in copy, seen:
        s.drained()
    before, after = [], []
    for x in segments(db, "secrets"):
        (after if x.at > flipped else before).append(x)
    assert before[0].key_id is None and WORD in before[0].frames[0][2]
    assert len(after) > 20 and {x.key_id for x in after} == {key_id(K1)}
    for x in after:
        assert all(flags & SEALED and WORD not in payload
                   for flags, _, payload in x.frames)
    await_applied(seen, held(db, "secrets"))
    assert len({r[2] for r in applied(seen)}) == len(applied(seen))
    one.await_phase("streaming", restarts=0)

    # who has no key writes nothing, says what is missing, and loses nothing
    assert src.tools[0].term() == 0
    keyless = src.tool(QUEEN_SERVER_ID="keyless")
    n = len(held(db, "secrets"))
    far.run("insert into secrets values (1000, '%s')" % WORD.decode())
    block = await_error(keyless, "secrets", "queen_refused",
                        "QUEEN_ENCRYPTION_KEY")
    assert "queue secrets" in block["error"]["message"]
    assert len(held(db, "secrets")) == n
    assert keyless.term() == 0
    src.tools[0].start()
    copy.await_rows(rows_of(far, "secrets"))
    await_applied(seen, held(db, "secrets"))
    assert len(held(db, "secrets")) == n + 1

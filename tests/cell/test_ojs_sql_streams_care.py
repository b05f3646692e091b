# SPDX-License-Identifier: Apache-2.0
"""854 and 858: rotation, ticks that are thinned, due work, and what a restore
on another server needs.  Time is moved by the argument."""
import os
import subprocess

import pytest

import queenlib
from loadkit import Workers
from queenlib import wait_until
from sqlkit import at
from streamkit import (NO_TICK, NOTHING, OK, REBASE, Log, log,  # noqa: F401
                       values)


def rotating(log, retention_s=100):
    """Retention 100 s, so segments change every 50 s from at(0) on."""
    log.configure(retention_ms=retention_s * 1000)
    log.rows("update queen.ojs_streams set segment_started_at = %s"
             " returning 1", at(0))
    return log


def due(log, seconds):
    log.rows("update queen.ojs_stream_work set due_at = %s returning 1",
             at(seconds))


def waits(log):
    """Until somebody waits for an advisory key."""
    wait_until(lambda: log.rows(
        "select 1 from pg_locks where locktype = 'advisory' and not granted"),
        what="somebody to wait")


def state(log):
    return [(g["state"], g["events"]) for g in log.info()["segments"]]


def present(log):
    """What a replay from the beginning gives."""
    log.subscribe("replay", "0")
    found = []
    while True:
        more = log.got("replay")
        if not more:
            log.call("stream_unsubscribe_v1", "replay")
            return found
        found += more


# Rotation

@pytest.mark.allpg
def test_segments_take_turns(log):
    """An event lives from R to 1.5 R; the floor is before the first left."""
    rotating(log)
    for turn in range(7):
        log.append(turn, now=at(50 * turn + 1))
        assert log.got() == [turn]
        assert log.step(3, at(50 * turn + 49)).events == 0
        found = log.step(3, at(50 * turn + 50))
        assert found.events == (1 if turn >= 2 else 0)
        segment = log.info()["segment"]
        assert segment == (turn + 1) % 3
        assert present(log) == list(range(max(0, turn - 1), turn + 1))
    assert log.step(3, at(350)).events == 0  # done; not due again
    assert log.got() == []
    found = log.info()
    assert found["segments"][2]["pinned_by"] == []
    assert found["segment_started_at"] == "2026-01-01T00:05:50.000Z"
    assert found["next_rotation_at"] == "2026-01-01T00:06:40.000Z"


def test_an_empty_log_only_moves_its_time(log):
    rotating(log)
    log.step(3, at(50))
    assert log.info()["segment"] == 0
    assert log.info()["segment_started_at"] == "2026-01-01T00:00:50.000Z"
    log.append(1)
    log.step(3, at(100))
    log.step(3, at(150))  # the current one is empty, the old one must go
    log.got()
    log.step(3, at(200))
    assert state(log) == [("current", 0), ("sealed", 0), ("sealed", 0)]


def test_a_slow_consumer_pins_its_segment_not_the_others(log):
    rotating(log)
    log.subscribe("slow")
    log.append("old")
    batch = log.receive("slow")
    assert log.got() == ["old"]
    for turn in (1, 2):
        log.step(3, at(50 * turn))
        log.append("new%d" % turn)
        assert log.got() == ["new%d" % turn]
    found = log.step(3, at(150))
    assert (found.events, found.note) == (0, 'stream "q" is held by slow')
    assert log.info()["segment"] == 2
    assert log.info()["segments"][0]["pinned_by"] == ["slow"]
    assert log.step(3, at(151)).note is None  # said once per period
    due(log, 152)
    assert log.care(at(152)) == [0]  # and does not hold up who appends
    log.append("grows")
    assert log.got() == ["grows"]
    log.ack(batch)
    assert log.info()["segments"][0]["pinned_by"] == ["slow"]
    assert log.got("slow") == ["new1", "new2", "grows"]
    assert log.step(3, at(153)).events == 1
    assert log.info()["segment"] == 0
    assert log.got("slow") == [] and log.got() == []


def test_a_member_s_batch_pins(log):
    rotating(log)
    log.append(1)
    one = log.receive(member="A")
    log.step(3, at(50))
    log.append(2)
    assert log.got(member="B") == [2]
    log.step(3, at(100))
    assert log.step(3, at(150)).note == 'stream "q" is held by c'
    assert log.ack(one).last_tick == 4
    assert log.step(3, at(151)).events == 1
    assert present(log) == [2]


def test_retention_raised_before_an_emptying(log):
    rotating(log)
    log.append(1)
    log.got()
    log.step(3, at(50))
    log.step(3, at(100))
    assert log.got() == []
    log.configure(retention_ms=110 * 1000)
    assert log.step(3, at(159)).events == 0  # sealed at 50: 109 s old
    due(log, 159)
    assert log.care(at(159)) == [0]
    assert log.step(3, at(160)).events == 1


def test_a_reader_of_a_partition_is_not_queued_behind(db, log):
    """Nor does a dump stop appends."""
    rotating(log)
    log.append(1)
    log.got()
    log.step(3, at(50))
    log.step(3, at(100))
    assert log.got() == []
    reader = log.beside(db, autocommit=False)
    reader.table("select 1 from {}.stream_events_0")
    assert log.step(3, at(150)).events == 0
    log.append(2)
    assert log.got() == [2] and log.info()["segment"] == 2
    reader.conn.rollback()
    assert log.step(3, at(150)).events == 1


def test_a_slow_append_delays_rotation_not_other_appends(db, log):
    rotating(log)
    slow = log.beside(db, autocommit=False)
    slow.append("slow")
    carer, done = log.beside(db), []
    with Workers() as w:
        w.start(lambda: done.append(carer.step(3, at(50)).events))
        waits(log)
        log.append("beside")  # at most until the rotation gives up
        w.join()
    assert done == [0] and log.info()["segment"] == 0
    slow.conn.commit()
    assert log.got() == ["slow", "beside"]
    log.step(3, at(50))
    assert log.info()["segment"] == 1


def test_a_seal_is_above_those_it_waited_for(db, log):
    """Though the transaction that rotates began before them."""
    rotating(log)
    log.append(1)
    carer = log.beside(db, autocommit=False)
    carer.rows("select pg_current_xact_id()")
    slow = log.beside(db, autocommit=False)
    slow.append(2)
    with Workers() as w:
        w.start(carer.step, 3, at(50))
        waits(log)
        slow.conn.commit()
        w.join()
    carer.conn.commit()
    assert state(log)[0] == ("sealed", 2)
    assert log.table("select count(*) from {}.stream_events e join"
                     " {}.stream_segments g using (segment)"
                     " where e.txid < g.sealed_xid") == [(2,)]
    assert log.got() == [1, 2] and log.got() == []
    for turn in (2, 3):
        log.step(3, at(50 * turn))
        assert log.got() == []
    assert state(log) == [("current", 0), ("sealed", 0), ("sealed", 0)]


def test_a_long_writer_elsewhere_does_not_pin(db, log):
    rotating(log)
    other = db.connect(autocommit=False)
    queenlib.rows(other, "select pg_current_xact_id()")
    log.append(1)
    assert log.got() == [1]
    for turn in (1, 2):
        log.step(3, at(50 * turn))
    assert log.got() == []
    assert log.step(3, at(150)).events == 1
    other.rollback()


def test_appends_during_rotation_are_delivered_once(db, log):
    """And none lands in a segment that is sealed."""
    rotating(log, 2)
    sent, got = [], []

    def produce(one):
        while not w.stop.is_set():
            sent.extend(one.append(0))

    def consume():
        batch = log.receive()
        got.extend(m.seq for m in batch.messages)
        return batch.head.verdict == OK and log.ack(batch)

    with Workers() as w:
        for _ in range(3):
            w.start(produce, log.beside(db))
        for turn in range(1, 31):
            log.step(3, at(turn))
            consume()
    while consume():
        pass
    assert sorted(got) == sorted(sent) and len(set(got)) == len(got)
    assert sum(r[0] for r in log.table(
        "select count(*) from {}.stream_events e join {}.stream_segments g"
        " using (segment) join {}.stream_ticks t on t.tick_id = g.seal_tick"
        " where not pg_visible_in_snapshot(e.txid, t.snapshot)"
        " or e.txid >= g.sealed_xid")) == 0
    assert log.info()["last_tick"] > 30


def test_no_dead_tuples_in_the_events(db, log):
    """10 000 events through a consumer, an old snapshot open."""
    old = db.connect(autocommit=False)
    queenlib.rows(old, "set transaction isolation level repeatable read;"
                  " select 1 from queen.cell")
    rotating(log)
    for turn in range(10):
        log.append(*range(1000))
        log.got()
        log.step(3, at(50 * turn + 50))
    log.rows("select pg_stat_force_next_flush()")
    assert log.rows(
        "select sum(n_tup_upd), sum(n_tup_del), sum(n_dead_tup) from"
        " pg_stat_user_tables where schemaname = %s and relname like"
        " 'stream_events%%'", log.schema) == [(0, 0, 0)]
    old.rollback()


# Ticks

def test_ticks_are_thinned_not_lost(log):
    """From 300 000 events of an absent consumer on, in small: no gap of more
    than 500 events or one append, whatever their age."""
    log.subscribe("away", now=at(0))
    log.table("update {}.stream_ticks set created_at = %s returning 1", at(0))
    for n in range(40):
        log.append(*range(n * 50, n * 50 + 50), now=at(n))
        log.got(now=at(n))
    log.append(*range(2000, 2700), now=at(40))
    log.got(now=at(40))
    assert len(log.ticks()) == 42
    assert log.step(4, at(600)).events == 0
    assert log.step(4, at(641)).events == 36
    assert log.table("select max_seq from {}.stream_ticks order by 1") == [
        (0,), (500,), (1000,), (1500,), (2000,), (2700,)]
    assert log.step(4, at(10**8)).events == 0
    got = []
    while True:
        batch = log.receive("away", most=700)
        if batch.head.verdict == NOTHING:
            break
        got += values(batch)
        log.ack(batch)
    assert got == list(range(2700))


def test_a_log_ticks_by_itself_every_500_events(log):
    assert log.append_row(*range(500)).since_tick == 500
    assert log.value("select queen.stream_tick_v1(%s)", log.id) is None
    assert log.append_row(500).since_tick == 501
    assert log.value("select queen.stream_tick_v1(%s)", log.id) == 2
    assert log.append_row(501).since_tick == 1
    log.append(*range(1000))
    due(log, 0)
    assert log.care(at(1)) == [2]
    assert log.ticks() == [1, 2, 3]


def test_a_heavy_tick_stays(log):
    """Made whatever is there; thinning takes those around it."""
    log.subscribe("away", now=at(0))
    log.table("update {}.stream_ticks set created_at = %s returning 1", at(0))
    kept = []
    for n in range(12):
        log.append(n, now=at(n))
        log.got(now=at(n))
        if n % 4 == 3:
            kept.append(log.value("select queen.stream_tick_v1(%s, true, 500,"
                                  " %s)", log.id, at(n)))
    assert None not in kept and len(log.ticks()) == 1 + 12 + 3
    assert log.step(4, at(10**8)).events == 11
    # the first is under who is away, the last is the newest
    assert log.ticks() == [1] + sorted({*kept, log.cursor()[0]})
    assert log.got("away") == list(range(12))


@pytest.mark.allpg
def test_what_comes_back_is_bounded_by_bytes(log):
    """8 MiB in one transaction, or the one that is more."""
    log.configure(max_retries=1)
    size = 3 * 2**20
    big = ["%d" % n + "x" * size for n in range(5)]
    big[2] *= 3
    log.append(*big, ids=[text[0] for text in big])

    def give_back():
        batch = log.receive()
        assert [m.event_id for m in batch.messages] == list("01234")
        for n in range(5):
            assert log.nack(batch, "%d" % n, now=at(n)).verdict == OK
        log.ack(batch)

    def slices(move):
        """(messages, MiB, whether there are more) of each."""
        rows = [move(None)]
        while rows[-1].more:
            rows.append(move(rows[-1]))
        return [(getattr(r, "events", None) or r.replayed, r.bytes >> 20,
                 r.more) for r in rows]

    # two, the large one, two
    expected = [(2, 6, True), (1, 9, True), (2, 6, False)]
    give_back()
    assert slices(lambda last: log.step(1)) == expected
    give_back()
    assert slices(lambda last: log.call(
        "stream_dead_replay_all_v1", 1000, last and last.after)) == expected
    assert len(log.got()) == 5


def test_ticks_before_the_floor_go(log):
    rotating(log)
    for turn in range(5):
        log.append(turn, now=at(50 * turn + 1))
        log.got(now=at(50 * turn + 1))
        log.step(3, at(50 * turn + 50))
    floor = log.value("select floor_tick from queen.ojs_streams")
    assert floor == 7 and log.ticks() == list(range(1, 12))
    log.step(4, at(251))
    assert log.ticks() == list(range(7, 12))
    assert log.subscribe("x", "3").verdict == NO_TICK
    assert present(log) == [3, 4]


# Due work

def test_idle_logs_cost_nothing(db, log):
    """Once looked at they are due at their rotation; users move that up."""
    due(log, 0)
    log.rows("update queen.ojs_streams set segment_started_at = %s"
             " returning 1", at(0))
    next_due = "select due_at from queen.ojs_stream_work"
    assert log.care(at(1)) == [0]
    assert log.value(next_due) == at(6)  # the first look saw something new
    assert log.care(at(6)) == [0]
    assert log.value(next_due) == at(302400)
    assert log.care(at(302399)) == []
    log.append(1, now=at(100))
    assert log.value(next_due) == at(105)
    log.append(2, now=at(103))
    assert log.value(next_due) == at(105)
    batch = log.receive(now=at(103))
    log.nack(batch, "e1", retry_ms=1000, now=at(103))
    assert log.value(next_due) == at(104)
    log.nack(batch, "e2", retry_ms=60000, now=at(103))
    assert log.care(at(104)) == [1]
    assert log.value(next_due) == at(109)
    log.ack(batch, now=at(104))
    for steps, after in (([0], at(163)), ([1], at(168)), ([0], at(302400))):
        assert log.care(log.value(next_due)) == steps
        assert log.value(next_due) == after
    log.call("stream_unsubscribe_v1", "c")
    # 10 000 that are not due: one index, one row
    log.rows("insert into queen.ojs_stream_work select g, 'infinity' from"
             " generate_series(1000000, 1010000) g returning 1")
    log.rows("analyze queen.ojs_stream_work; select 1")
    plan = log.rows(
        "explain (analyze, costs off, timing off, summary off)"
        " select queue_id from queen.ojs_stream_work where due_at <= %s"
        " order by due_at limit 100", at(10**7))
    assert "ojs_stream_work_due" in str(plan) and "rows=1 " in str(plan[1])


def test_a_claim_is_one_s_until_it_is_given_back(db, log):
    due(log, 0)
    take = "select queue_id, fence, step from queen.stream_work_v1(%s, 9, %s)"
    (one,) = log.rows(take, "a", at(0))
    assert one == (log.id, 1, 0) and log.rows(take, "b", at(4)) == []
    (two,) = log.rows(take, "b", at(5))
    give = "select queen.stream_worked_v1(%s, %s, %s)"
    assert log.value(give, log.id, 1, at(5)) is False
    assert log.value(give, log.id, 2, at(5)) is True


def test_work_waits_for_nacks_under_way(db, log):
    """A retry filed while the next due time is computed is not forgotten."""
    log.append(1, now=at(0))
    batch = log.receive(now=at(0))
    log.care(at(1))
    due(log, 2)
    (fence,) = log.rows("select fence from queen.stream_work_v1('t', 9, %s)",
                        at(2))[0]
    other = log.beside(db, autocommit=False)
    other.nack(batch, "e1", retry_ms=30000, now=at(2))
    carer = log.beside(db)
    with Workers() as w:
        w.start(lambda: carer.value(
            "select queen.stream_worked_v1(%s, %s, %s)", log.id, fence, at(3)))
        waits(log)
        other.conn.commit()
        w.join()
    for moment in (8, 13):
        log.care(at(moment))
    assert log.value("select due_at from queen.ojs_stream_work") == at(32)


def test_news_come_with_the_commit_whatever_the_seq(db, log):
    news = "select queue_id, xid from queen.stream_news_v1(%s, %s)"
    late = log.beside(db, autocommit=False)
    log.append(1)
    ((queue, token),) = log.rows(news, [log.id, 99], [0, 0])
    assert queue == log.id
    late.append(2)
    log.append(3)
    ((_, token),) = log.rows(news, [log.id], [token])
    late.conn.commit()
    ((_, token),) = log.rows(news, [log.id], [token])
    assert log.rows(news, [log.id], [token]) == []


# A restore on another server

def test_a_restored_log_is_refused_until_its_rebase(db, log, folder):
    """A44: pg_dump into a server that gave out fewer transaction ids."""
    log.subscribe("away")
    with log.conn.cursor() as cur:
        cur.execute("do $$ begin for i in 1..6000 loop perform"
                    " pg_current_xact_id(); commit; end loop; end $$")
    late = log.beside(db, autocommit=False)
    log.append(1, 2)
    late.append("late")
    batch = log.receive()
    log.nack(batch, "e1", retry_ms=0)
    log.append(3)
    log.tick()
    late.conn.commit()
    log.append(4)
    path = os.path.join(folder, "dump")
    with open(path, "w") as f:
        subprocess.run([os.path.join(db.server.bin, "pg_dump"), "-h",
                        db.server.dir, "-p", str(db.server.port.number),
                        "-U", "queen", db.name], stdout=f, check=True)
    fresh = queenlib.Server()
    try:
        fresh.admin("create database back")
        subprocess.run([os.path.join(fresh.bin, "psql"), "-qX1", "-h",
                        fresh.dir, "-p", str(fresh.port.number), "-U",
                        "queen", "-d", "back", "-f", path], check=True,
                       stdout=subprocess.DEVNULL)
        there = Log(queenlib.Db(fresh, "back").connect())
        check = "select queue_id, why from queen.stream_check_v1()"
        assert there.rows(check) == [(log.id, "restored")]
        assert there.append_row(5).verdict == REBASE
        assert there.receive().head.verdict == REBASE
        assert there.ack(batch).verdict == REBASE
        assert there.step(1).events == 0
        assert there.value("select queen.stream_rebase_v1(%s)", log.id) == 3
        assert there.rows(check) == []
        again = there.receive()
        assert again.head.batch_id == batch.head.batch_id
        assert [m.outcome for m in again.messages] == [1, 0]
        assert there.ack(again).verdict == OK
        there.append(5)
        assert there.step(1).events == 1
        assert there.got() == [3] and there.got() == ["late", 4, 5, 1]
        assert there.got("away") == [1, 2, "late", 3, 4, 5]
        ids = "select pg_current_xact_id()::text::bigint"
        before = there.value(ids)
        there.rows("select queen.stream_spend(%s, 50)", log.id)
        assert there.value(ids) == before + 52
    finally:
        fresh.close()

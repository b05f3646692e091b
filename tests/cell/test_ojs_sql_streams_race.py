# SPDX-License-Identifier: Apache-2.0
"""Streams with several sessions: appends that commit late, ticks in order,
what two sessions do at once.  Scaled here, at full length with QUEEN_SOAK=1."""
import collections
import json
import random

import psycopg2
import pytest

from loadkit import Workers, together
from queenlib import wait_until
from sqlkit import at
from streamkit import (NO_BATCH, NO_CONSUMER, NO_DEAD, NO_QUEUE, NOTHING, OK,
                       log, logged, values)  # noqa: F401


def soaked(scaled, full):
    return [pytest.param(*scaled), pytest.param(*full,
                                                marks=pytest.mark.soak)]


def blocked(log):
    wait_until(lambda: log.rows(
        "select 1 from pg_stat_activity where wait_event_type = 'Lock' and"
        " datname = current_database()"), what="a session to wait")


def beside_open(log, db, first, second):
    """first in a transaction held open until second, in another session,
    waits for it; what both answered."""
    one, two, out = log.beside(db, autocommit=False), log.beside(db), []
    before = first(one)
    with Workers() as w:
        w.start(lambda: out.append(second(two)))
        blocked(log)
        one.conn.commit()
        w.join()
    return before, out[0]


class Ledger:
    """What a consumer got in batches that it acked."""

    def __init__(self):
        self.seen, self.highest, self.late = collections.Counter(), 0, 0

    def add(self, messages):
        self.seen.update(json.loads(m.payload) for m in messages)
        self.late += sum(m.seq < self.highest for m in messages)
        self.highest = max([self.highest] + [m.seq for m in messages])

    def check(self, committed):
        """Every committed event exactly once, and nothing else."""
        assert max(self.seen.values()) == 1
        assert set(self.seen) == set(committed)


def nested(log):
    """What is visible in a tick is visible in all later ones."""
    assert log.table(
        "select a.tick_id from {}.stream_ticks a join {}.stream_ticks b on"
        " b.tick_id = a.tick_id + 1 where pg_snapshot_xmin(a.snapshot) >"
        " pg_snapshot_xmin(b.snapshot) or pg_snapshot_xmax(a.snapshot) >"
        " pg_snapshot_xmax(b.snapshot) or exists (select from"
        " {}.stream_events e where pg_visible_in_snapshot(e.txid, a.snapshot)"
        " and not pg_visible_in_snapshot(e.txid, b.snapshot))") == []


def drain(log, ledger, consumer, member=None):
    while True:
        batch = log.receive(consumer, member)
        if batch.head.verdict == NOTHING:
            return
        assert log.ack(batch).verdict == OK
        ledger.add(batch.messages)


# Late commits

@pytest.mark.allpg
def test_a_late_commit_is_delivered_late(db, log):
    late = log.beside(db, autocommit=False)
    gone = log.beside(db, autocommit=False)
    assert late.append("late") == [1] and gone.append("gone") == [2]
    log.append("early")
    assert log.got() == ["early"]
    gone.conn.rollback()
    assert log.got() == []
    late.conn.commit()
    (m,) = log.receive().messages
    assert (m.seq, m.payload) == (1, '"late"')
    assert log.got() == ["late"] and log.got() == []


def test_a_prepared_append_is_delivered_when_it_commits(db, log):
    with log.conn.cursor() as cur:
        cur.execute("begin")
        log.append("late")
        cur.execute("prepare transaction 'p'")
        log.append("early")
        assert log.got() == ["early"]
        cur.execute("commit prepared 'p'")
    assert log.got() == ["late"]


def test_far_and_near_ids_are_both_found(db, log):
    """One that ran for long is looked up, those near the range widen it."""
    old = log.beside(db, autocommit=False)
    old.append("old")
    with log.conn.cursor() as cur:
        cur.execute("do $$ begin for i in 1..300 loop perform"
                    " pg_current_xact_id(); commit; end loop; end $$")
    near = [log.beside(db, autocommit=False) for _ in range(25)]
    for n, one in enumerate(near):
        one.append(n)
    log.append("first")
    assert log.got() == ["first"]
    for one in near[:5] + [old]:
        one.conn.commit()
    assert log.got() == ["old", 0, 1, 2, 3, 4]
    for one in near[5:]:
        one.conn.commit()
    log.append("last")
    assert log.got() == list(range(5, 25)) + ["last"]


def produce(one, hold_s, stop, committed, name):
    """Appends held open, a third of them rolled back."""
    n = 0
    while not stop.is_set():
        payloads = ["%s-%d-%d" % (name, n, i)
                    for i in range(random.randint(1, 3))]
        n += 1
        one.append(*payloads)
        stop.wait(random.uniform(0, hold_s))
        if random.random() < 1 / 3:
            one.conn.rollback()
        else:
            one.conn.commit()
            committed.extend(payloads)


def consume(one, ledger, stop):
    while not stop.is_set():
        batch = one.receive("fan")
        if batch.head.verdict == OK:
            assert one.ack(batch).verdict == OK
            ledger.add(batch.messages)
        stop.wait(0.02)


def cooperate(db, log, member, ledger, stop, deaths):
    """A member that dies again and again: in its receive, or with a batch in
    hand.  Then it comes back, or another takes its batch over."""
    one, name = log.beside(db), member
    while not stop.is_set():
        dies = random.choice(["", "", "", "in receive", "with a batch"])
        one.conn.autocommit = dies != "in receive"
        batch = one.receive("group", name, dead_ms=1000)
        if dies and batch.head.verdict == OK:
            deaths.append(dies)
            one.conn.close()
            one = log.beside(db)
            if random.random() < 0.5:
                name = "%s-%d" % (member, len(deaths))
        elif batch.head.verdict == OK:
            # late: taken over meanwhile, the new holder counts it
            if one.ack(batch, "group", name).verdict == OK:
                ledger.add(batch.messages)
        else:
            assert batch.head.verdict == NOTHING
            one.conn.rollback()
        stop.wait(random.uniform(0, 0.05))


def by_seq(one, ledger, stop):
    """A consumer as one would write it: everything above the highest seq."""
    cursor, done = 0, False
    while not done:
        done = stop.is_set()
        with one.conn.cursor() as cur:
            cur.execute("select seq, payload::text from %s.stream_events where"
                        " seq > %d order by seq" % (one.schema, cursor))
            found = [Row(*r) for r in cur.fetchall()]
        ledger.add(found)
        cursor = max([cursor] + [m.seq for m in found])
        stop.wait(0.02)


Row = collections.namedtuple("Row", "seq payload")


@pytest.mark.parametrize("seconds, hold_s", soaked((5, 0.5), (40, 3)))
def test_late_commits_from_sixteen_sessions(db, log, seconds, hold_s):
    """Fan-out and a group of four whose members die; and to prove that the
    check sees the fault, a plain cursor by seq fails it."""
    log.subscribe("fan")
    log.subscribe("group")
    committed, deaths = [], []
    fan, group, plain = Ledger(), Ledger(), Ledger()
    with Workers() as w, Workers() as quiet:
        for i in range(16):
            w.start(produce, log.beside(db, autocommit=False), hold_s, w.stop,
                    committed, "p%d" % i)
        quiet.start(consume, log.beside(db), fan, quiet.stop)
        for i in range(4):
            quiet.start(cooperate, db, log, "m%d" % i, group, quiet.stop,
                        deaths)
        quiet.start(by_seq, log.beside(db), plain, quiet.stop)
        w.stop.wait(seconds)
        w.stop.set()
        w.join()
    drain(log, fan, "fan")
    for name in log.table("select member from {}.stream_batches where acked_at"
                          " is null and member <> '' order by start_tick"):
        drain(log, group, "group", name[0])
    drain(log, group, "group", "last")
    assert len(committed) > 100 and len(set(deaths)) == 2
    fan.check(committed)
    group.check(committed)
    assert fan.late >= 100 and group.late >= 100
    assert log.cursor("group")[0] == log.cursor("group")[1]
    nested(log)
    with pytest.raises(AssertionError):
        plain.check(committed)


@pytest.mark.parametrize("seconds", soaked((3,), (30,)))
def test_appends_and_receives_with_pauses(db, log, seconds):
    """Eight sessions that pause before each commit, three consumers."""
    ledgers = {name: Ledger() for name in "xyz"}
    for name in ledgers:
        log.subscribe(name)
    committed = []

    def work(i):
        one, n = log.beside(db, autocommit=False), 0
        while not w.stop.is_set():
            n += 1
            payload = "%d-%d" % (i, n)
            one.append(payload)
            w.stop.wait(random.choice([0, 0, 0.01, 0.1]))
            if random.random() < 0.2:
                one.conn.rollback()
            else:
                one.conn.commit()
                committed.append(payload)
            name = random.choice("xyz")
            batch = one.receive(name)
            w.stop.wait(random.choice([0, 0, 0.01, 0.03]))
            one.conn.commit()
            if batch.head.verdict == OK:
                mine = one.ack(batch).verdict
                one.conn.commit()
                if mine == OK:
                    ledgers[name].add(batch.messages)
                else:
                    assert mine == NO_BATCH

    with Workers() as w:
        for i in range(8):
            w.start(work, i)
        w.stop.wait(seconds)
    for name, ledger in ledgers.items():
        drain(log, ledger, name)
        ledger.check(committed)
    nested(log)


# Two at once

def test_an_append_that_wakes_an_idle_log_holds_up_no_other(db, log):
    log.rows("update queen.ojs_stream_work set due_at = 'infinity'"
             " returning 1")
    slow = log.beside(db, autocommit=False)
    slow.append("slow")
    log.rows("set lock_timeout = '5s'; select 1")
    log.append("beside")
    assert log.got() == ["beside"]
    slow.conn.commit()
    assert log.got() == ["slow"]
    assert log.value("select isfinite(due_at) from queen.ojs_stream_work")


def test_two_receives_of_one_consumer_get_one_batch(db, log):
    log.append(1)
    one, two = beside_open(log, db, lambda a: a.receive(),
                           lambda b: b.receive())
    assert two.head.batch_id == one.head.batch_id and two.head.redelivered
    assert two.messages == one.messages


def test_a_tick_made_meanwhile_is_used(db, log):
    """The second waits for the tick key, then looks again."""
    log.subscribe("d")
    log.append(1)
    one, two = beside_open(log, db, lambda a: a.receive(),
                           lambda b: b.receive("d"))
    assert two.head.end_tick == one.head.end_tick == 2
    assert log.ticks() == [1, 2]


def test_two_acks_at_once_close_the_chain(db, log):
    log.append(1)
    a = log.receive(member="A")
    log.append(2)
    b = log.receive(member="B")
    one, two = beside_open(log, db, lambda s: s.ack(a), lambda s: s.ack(b))
    assert (one.last_tick, two.last_tick, two.next_tick) == (2, 3, 3)
    log.append(3)
    assert log.got() == [3]


def test_an_ack_beside_a_reposition(db, log):
    log.append(1)
    batch = log.receive()
    _, late = beside_open(log, db, lambda a: a.subscribe(start="0"),
                          lambda b: b.ack(batch))
    assert late.verdict == NO_BATCH and log.cursor() == (1, 1)
    batch = log.receive()
    done, moved = beside_open(log, db, lambda a: a.ack(batch),
                              lambda b: b.subscribe(start="0"))
    assert (done.verdict, moved.last_tick) == (OK, 1)
    assert log.cursor() == (1, 1) and log.got() == [1]


def test_two_acks_of_one_batch(db, log):
    log.append(1)
    batch = log.receive()
    one, two = beside_open(log, db, lambda a: a.ack(batch),
                           lambda b: b.ack(batch))
    assert (one.verdict, two.verdict) == (OK, NO_BATCH)


def test_two_replays_of_one_dead_letter(db, log):
    log.configure(max_retries=0)
    log.append(1)
    batch = log.receive()
    dead = log.nack(batch, "e1").dead_letter_id
    log.ack(batch)
    one, two = beside_open(
        log, db, lambda a: a.call("stream_dead_replay_v1", dead),
        lambda b: b.call("stream_dead_replay_v1", dead))
    assert (one.verdict, two.verdict) == (OK, NO_DEAD)
    assert log.got() == [1] and log.got() == []


def test_eight_members_at_once(db, log):
    """Allocation is serial: no event twice, none lost."""
    ones = [log.beside(db) for _ in range(8)]

    def work(i):
        got = []
        for n in range(10):
            ones[i].append("%d-%d" % (i, n))
            got.append(ones[i].receive(member="m%d" % i))
            assert got[-1].head.verdict in (OK, NOTHING)
            if got[-1].head.verdict == OK:
                assert ones[i].ack(got[-1]).verdict == OK
        return got

    batches = [b for found in together(8, work) for b in found
               if b.head.verdict == OK]
    assert len({b.head.batch_id for b in batches}) == len(batches)
    seen = [v for b in batches for v in values(b)] + log.got(member="m0")
    assert sorted(seen) == sorted("%d-%d" % (i, n) for i in range(8)
                                  for n in range(10))
    assert log.cursor()[0] == log.cursor()[1]


def test_a_log_is_made_once(db):
    first = logged(db, "other")
    ones = [first.beside(db) for _ in range(8)]
    for one in ones:
        one.queue = "q"
    assert len(set(together(8, lambda i: ones[i].ensure()))) == 1


def test_a_session_that_dies_leaves_nothing(db, log):
    """At each step, in its transaction; then it is done again."""
    log.configure(max_retries=0, retention_ms=2000)
    log.append(1)
    batch = log.receive()
    log.nack(batch, "e1")
    log.append(2)
    log.rows("update queen.ojs_streams set segment_started_at = %s"
             " returning 1", at(0))
    steps = [lambda s: s.append(3), lambda s: s.receive(),
             lambda s: s.nack(batch, "e1"), lambda s: s.ack(batch),
             lambda s: s.receive(), lambda s: s.step(3, at(9)),
             lambda s: s.call("stream_dead_replay_v1", 1),
             lambda s: s.subscribe(start="0"), lambda s: s.step(4, at(10**9)),
             lambda s: s.call("stream_unsubscribe_v1", "c")]

    def everything():
        return [log.table("select x::text from {}.%s x order by 1" % t)
                for t in ("stream_ticks", "stream_segments", "stream_events",
                          "stream_subscriptions", "stream_batches",
                          "stream_batch_events", "stream_nacks",
                          "stream_dead_letters")] + log.rows(
            "select s, w.due_at from queen.ojs_streams s,"
            " queen.ojs_stream_work w")

    for step in steps:
        before = everything()
        dying = log.beside(db, autocommit=False)
        step(dying)
        log.rows("select pg_terminate_backend(%s)",
                 dying.conn.get_backend_pid())
        wait_until(lambda: not log.rows(
            "select 1 from pg_stat_activity where pid = %s",
            dying.conn.get_backend_pid()), what="the session to end")
        assert everything() == before
        step(log)
    assert log.receive().head.verdict == NO_CONSUMER
    # the replay was for the consumer that is gone
    assert present(log) == [1, 2, 3]
    assert log.table("select count(*) from {}.stream_events") == [(4,)]


def present(log):
    log.subscribe("replay", "0")
    found = []
    while True:
        more = log.got("replay")
        if not more:
            return found
        found += more


@pytest.mark.allpg
def test_two_drop_a_log_at_once(db, log):
    """Who comes second has dropped others, has seen the schema, and finds it
    gone."""
    drop = "select queue_id from queen.ojs_queue_drop_v1(%s, %s)"
    one, two, out = log.beside(db, autocommit=False), log.beside(db), []
    two.rows("select queen.stream_drop(0)")
    two.append(1)
    assert one.rows(drop, log.tenant, log.queue) == [(log.id,)]
    with Workers() as w:
        w.start(lambda: out.append(two.rows(drop, log.tenant, log.queue)))
        blocked(log)
        one.conn.commit()
        w.join()
    assert out == [[]]


def test_options_beside_a_drop(db, log):
    """Both wait for a third; the rows are locked in one order."""
    queue_id = log.id
    one, two = log.beside(db), log.beside(db)
    third = log.beside(db, autocommit=False)
    third.rows("select from queen.ojs_streams for update")
    with Workers() as w:
        w.start(lambda: one.configure(max_retries=3))
        blocked(log)
        w.start(lambda: two.rows("select queen.stream_drop(%s)", queue_id))
        wait_until(lambda: log.value(
            "select count(*) from pg_stat_activity where wait_event_type ="
            " 'Lock' and datname = current_database()") == 2)
        third.conn.commit()
        w.join()
    assert log.rows("select from queen.ojs_streams union all"
                    " select from queen.ojs_stream_work") == []


@pytest.mark.allpg
def test_a_log_is_dropped_under_load(db, log):
    """Clean verdicts, no deadlock, nothing left; three times."""
    gone = {NO_QUEUE}

    def send(one):
        while not w.stop.is_set():
            verdict = one.append_row(1, 2).verdict
            assert verdict in (OK, 1)
            if verdict == 1:
                return

    def take(one, consumer):
        while not w.stop.is_set():
            batch = one.receive(consumer)
            if batch.head.verdict in gone:
                return
            assert batch.head.verdict in (OK, NOTHING)
            if batch.head.verdict == OK:
                assert one.nack(batch, seq=batch.messages[0].seq).verdict \
                    in gone | {OK}
                assert one.ack(batch).verdict in gone | {OK}

    def care(one, queue_id):
        while not w.stop.is_set():
            for step in (1, 2, 3, 4):
                one.rows("select * from queen.stream_step_v1(%s,"
                         " %s::smallint)", queue_id, step)
            for r in one.rows("select queue_id, fence from"
                              " queen.stream_work_v1('t', 9, %s)",
                              at(10**9)):
                one.rows("select queen.stream_worked_v1(%s, %s)", *r)
            one.info()

    for _ in range(3):
        log.ensure()
        log.subscribe()
        log.subscribe("d")
        log.configure(retention_ms=100)
        with Workers() as w:
            for fn, args in ((send, ()), (send, ()), (take, ("c",)),
                             (take, ("d",)), (care, (log.id,))):
                w.start(fn, log.beside(db), *args)
            wait_until(lambda: log.value("select last_value from %s.stream_seq"
                                         % log.schema) > 100, what="some load")
            dropper = log.beside(db)
            wait_until(lambda: dropped(dropper), what="the log to go")
            for t in w.threads[:4]:
                t.join(30)
            assert not any(t.is_alive() for t in w.threads[:4])
        assert w.errors == []
        assert db.rows("select nspname from pg_namespace where nspname like"
                       " 'queen\\_ojs%%'") == []
        assert db.rows("select 1 from queen.ojs_stream_work") == []


def dropped(log):
    """False when it could not be had within a second."""
    try:
        log.drop()
        return True
    except psycopg2.errors.LockNotAvailable:
        log.rows("rollback; select 1")
        return False

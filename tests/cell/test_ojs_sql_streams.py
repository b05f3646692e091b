# SPDX-License-Identifier: Apache-2.0
"""850 to 856: logs, consumers, batches, retries and dead letters, one session
at a time; time is moved by the argument."""
import json

import pytest

from queenlib import OTHER_TENANT
from sqlkit import at
from streamkit import (AMBIGUOUS, HOLDER, MIXED, NO_BATCH, NO_CONSUMER,
                       NO_DEAD, NO_MESSAGE, NO_QUEUE, NO_TICK, NOTHING, OK,
                       TOO_LARGE, WAITS, Log, log, logged,  # noqa: F401
                       refused, values)

# Append

@pytest.mark.allpg
def test_append_receive_ack(log):
    assert log.receive().head.verdict == NOTHING
    assert log.append("x") == [1]
    batch = log.receive()
    assert (batch.head.verdict, batch.head.size, batch.head.redelivered) == (
        OK, 1, False)
    (m,) = batch.messages
    assert (m.seq, m.event_id, m.type, m.payload, m.headers, m.retry_count,
            m.outcome) == (1, "ex", "t", '"x"', None, 0, 0)
    row = log.ack(batch)
    assert (row.verdict, row.consumer, row.last_tick, row.next_tick) == (
        OK, "c", batch.head.end_tick, batch.head.end_tick)
    assert log.receive().head == (NOTHING, log.id) + (None,) * 15


def test_order_size_and_bytes(log):
    assert log.append(*range(1000)) == list(range(1, 1001))
    assert log.got() == list(range(1000))
    odd = [' {"b" :1,"a":1.10, "a":1e999,"u":"\\u0000\\ud800"} ', "null",
           json.dumps("x" * 900000)]
    row = log.call("stream_append_v1", ["same"] * 3, ["t"] * 3, odd,
                   [None, '{"h": 1 }', None], at(7))
    assert (row.verdict, row.created_at) == (OK, at(7))
    batch = log.receive()
    assert [m.payload for m in batch.messages] == odd
    assert [m.headers for m in batch.messages] == [None, '{"h": 1 }', None]
    assert {(m.event_id, m.created_at) for m in batch.messages} == {
        ("same", at(7))}


def test_a_queue_without_a_log(db):
    log = Log(db.connect())
    assert (log.append_row(1).verdict, log.append_row(1).queue_id) == (1, None)
    assert log.subscribe().verdict == 1
    assert log.receive().head.verdict == NO_QUEUE
    assert log.ack(1).verdict == log.nack(1, "x").verdict == NO_QUEUE
    assert log.info() is None and log.consumers() == {}
    assert log.value("select queen.stream_dead_count_v1(%s, 'q', null)",
                     log.tenant) is None
    log.rows("insert into queen.ojs_queues (tenant, name) values (%s, 'q')"
             " returning id", log.tenant)
    assert log.receive().head.verdict == NO_CONSUMER
    assert log.ack(1).verdict == NO_BATCH
    assert log.info() == {
        "events": 0, "consumers": 0, "active_batches": 0, "retries": 0,
        "dead_letters": 0, "ticks": 0, "rotation_period": "84h",
        "rotation_period_ms": 302400000, "segments": []}
    assert log.call("stream_dead_replay_v1", 1).verdict == NO_DEAD
    assert log.rows("select * from queen.stream_counts(%s)", log.id) == [
        (0, 0, 0)]
    log.configure(max_retries=2)
    log.ensure()
    assert log.append(1) == [1]
    assert log.rows("select * from queen.stream_config_get(%s)", log.id) == [
        (2, 604800000)]


def test_quota(log):
    log.rows("update queen.ojs_queues set max_events = 3 returning 1")
    log.append(1, 2)
    assert log.append_row(3, 4).verdict == 2
    assert log.append_row(3).verdict == OK
    assert log.append_row(4).verdict == 2
    assert log.got() == [1, 2, 3]


def test_tenants_have_logs_of_their_own(db, log):
    other = Log(db.connect(), tenant=OTHER_TENANT)
    assert other.append_row(1).verdict == 1
    other.ensure()
    other.subscribe()
    other.append("theirs")
    log.append("ours")
    assert (other.got(), log.got()) == (["theirs"], ["ours"])
    log.append("x")
    batch = log.receive()
    assert other.ack(batch).verdict == NO_BATCH


# Consumers

def test_consumers_are_independent(log):
    for name in "ab":
        assert log.subscribe(name).created
    log.append(*range(5))
    assert log.got("a") == log.got("b") == [0, 1, 2, 3, 4]
    log.append(5)
    assert log.got("a") == [5] and log.got("a") == []
    assert log.got("c") == [0, 1, 2, 3, 4, 5] and log.got("c") == []
    assert log.got("b") == [5] and log.got("b") == []


def test_where_a_cursor_begins(log):
    log.append(1)
    assert log.subscribe("newest").last_tick == 1
    assert log.subscribe("now", "now").last_tick == 2
    assert log.got("now") == [] and log.got("newest") == [1]
    log.append(2)
    assert log.got("c") == [1] and log.got("c") == [2]
    assert log.subscribe("first", "0").last_tick == 1
    assert log.got("first") == [1, 2]
    assert log.subscribe("second", "2").last_tick == 2
    assert log.got("second") == [2]
    for gone in "9", "99999999999999999999":
        assert log.subscribe("never", gone).verdict == NO_TICK
    assert "never" not in log.consumers()


def test_subscribing_again_moves_only_when_told(log):
    log.append(1)
    batch = log.receive()
    again = log.subscribe()
    assert (again.created, again.last_tick) == (False, 1)
    assert log.receive().head.batch_id == batch.head.batch_id
    moved = log.subscribe(start="0")
    assert (moved.verdict, moved.created, moved.last_tick, moved.next_tick) \
        == (OK, False, 1, 1)
    assert log.ack(batch).verdict == log.nack(batch, "e1").verdict == NO_BATCH
    assert log.got() == [1] and log.got() == []
    assert log.subscribe(start="0").last_tick == 1
    assert log.got() == [1]


def test_unsubscribe(log):
    log.append(1)
    log.nack(log.receive(), "e1")
    assert log.call("stream_unsubscribe_v1", "c").verdict == OK
    assert log.call("stream_unsubscribe_v1", "c").verdict == NO_CONSUMER
    assert log.receive().head.verdict == NO_CONSUMER
    assert log.table("select (select count(*) from {}.stream_batches),"
                     " (select count(*) from {}.stream_batch_events),"
                     " (select count(*) from {}.stream_nacks),"
                     " (select count(*) from {}.stream_retry_events)") == [
                         (0, 0, 0, 0)]
    assert log.subscribe().created
    log.step(1)
    assert log.got() == []


# Batches

def test_a_batch_comes_again_until_it_is_acked(log):
    log.append(1, 2)
    one = log.receive()
    log.append(3)
    two = log.receive()
    assert two.head.redelivered and two.head.batch_id == one.head.batch_id
    assert two.messages == one.messages
    assert (two.head.start_tick, two.head.end_tick, two.head.size) == (
        one.head.start_tick, one.head.end_tick, 2)
    assert log.ack(one).verdict == OK
    assert log.ack(one).verdict == NO_BATCH
    assert log.ack(99).verdict == log.nack(99, "x").verdict == NO_BATCH
    assert log.batch(one).head.verdict == NO_BATCH
    assert log.got() == [3] and log.got() == []
    assert log.table("select (select count(*) from {}.stream_batches),"
                     " (select count(*) from {}.stream_batch_events)") == [
                         (0, 0)]


def test_an_idle_poll_writes_nothing(log):
    log.append(1)
    log.got()
    log.rows("select pg_current_xact_id()")
    before = log.value("select pg_snapshot_xmax(pg_current_snapshot())")
    rows = log.table("select (select count(*) from {}.stream_ticks),"
                     " (select xmin::text from {}.stream_subscriptions)")
    for member in (None, "m"):
        for _ in range(5):
            assert log.receive(member=member).head.verdict == NOTHING
    assert log.value(
        "select pg_snapshot_xmax(pg_current_snapshot())") == before
    assert log.table("select (select count(*) from {}.stream_ticks), (select"
                     " xmin::text from {}.stream_subscriptions)") == rows


def test_another_s_ticks_are_used(log):
    """An idle cursor follows a tick that is there; the newest is the end."""
    log.subscribe("d")
    log.append(1)
    log.got("d")
    log.append(2)
    log.got("d")
    assert log.ticks() == [1, 2, 3]
    assert log.got() == [1, 2]
    assert log.ticks() == [1, 2, 3]
    log.tick()
    assert log.receive().head.verdict == NOTHING
    assert log.cursor() == (4, 4)


def test_what_is_too_large_is_refused_and_leaves_nothing(log):
    log.append(*range(5))
    before = (log.ticks(), log.cursor(), log.info()["active_batches"])
    head = log.receive(most=4).head
    assert (head.verdict, head.size, head.need) == (TOO_LARGE, 5, 5)
    assert (log.ticks(), log.cursor(), log.info()["active_batches"]) == before
    batch = log.receive(most=5)
    assert values(batch) == list(range(5))
    head = log.receive(most=4).head  # active: the same ceiling
    assert (head.verdict, head.size, head.need) == (TOO_LARGE, 5, 5)


def test_a_long_absence_ends_in_batches_that_fit(log):
    """Up to the greatest tick that fits, by count and by bytes."""
    log.tick()  # nothing before it
    for n in range(10):
        log.append(*range(n * 100, n * 100 + 100))
        log.tick()
    head = log.receive(most=99).head
    assert (head.verdict, head.size, head.need) == (TOO_LARGE, 1000, 100)
    assert log.cursor() == (1, 1)
    batch = log.receive(most=350)
    assert values(batch) == list(range(300)) and log.ack(batch).verdict == OK
    # of an event: three digits, the id with one more, a type of one
    batch = log.receive(most_bytes=250 * 8)
    assert values(batch) == list(range(300, 500))
    assert log.ack(batch).verdict == OK
    batch = log.receive(most_bytes=1)  # bytes never refuse
    assert batch.head.size == 100 and log.ack(batch).verdict == OK
    assert log.got() == list(range(600, 1000))


def test_estimates_do_not_hide_what_fits(db, log):
    """Numbers that were rolled back make the estimate too high, late commits
    too low: it is counted."""
    late = log.beside(db, autocommit=False)
    late.append(*range(50))
    lost = log.beside(db, autocommit=False)
    lost.append(*range(100))
    lost.conn.rollback()
    log.append("a")
    log.tick()
    late.conn.commit()
    log.append("b")
    log.tick()
    log.append("c")
    log.tick()
    batch = log.receive(most=10)
    assert values(batch) == ["a"] and log.ack(batch).verdict == OK
    assert log.receive(most=10).head.need == 51
    batch = log.receive(most=51)
    assert values(batch) == list(range(50)) + ["b"]
    log.ack(batch)
    assert log.got(most=1) == ["c"]


# Retries

def test_a_nacked_message_returns_to_its_consumer_alone(log):
    log.subscribe("d")
    log.append(1, 2, 3, now=at(0))
    batch = log.receive(now=at(1))
    row = log.nack(batch, "e2", retry_ms=5000, now=at(2))
    assert (row.verdict, row.message_id, row.seq, row.outcome, row.retry_count,
            row.max_retries, row.deliver_at, row.dead_letter_id) == (
                OK, "e2", 2, 1, 1, 5, at(7), None)
    assert [m.outcome for m in log.receive().messages] == [0, 1, 0]
    assert [m.outcome for m in log.batch(batch).messages] == [0, 1, 0]
    assert [m.payload for m in log.batch(batch).messages] == [None] * 3
    assert [m.payload for m in log.batch(batch, True).messages] == [
        "1", "2", "3"]
    log.ack(batch)
    assert log.got("d") == [1, 2, 3]
    log.step(1, at(6))
    assert log.got() == []
    assert log.step(1, at(7)).events == 1
    assert log.got("d") == []
    (m,) = log.receive().messages
    assert (m.seq, m.event_id, m.payload, m.retry_count, m.created_at) == (
        4, "e2", "2", 1, at(0))


def test_a_nack_said_again_writes_nothing(log):
    log.append(1, 2)
    batch = log.receive()
    one = log.nack(batch, "e1", retry_ms=1000, now=at(1))
    assert log.nack(batch, "e1", retry_ms=9000, now=at(5)) == one
    assert log.step(1, at(9)).events == 1
    assert log.nack(batch, seq=1, now=at(10)) == one
    assert log.table("select count(*) from {}.stream_retry_events") == [(0,)]
    assert log.nack(batch, "e9").verdict == NO_MESSAGE
    assert log.nack(batch, "e1", seq=2).verdict == NO_MESSAGE
    assert log.nack(batch, "e1", seq=1) == one
    log.nack(batch, "e2", retry_ms=None, now=at(20))
    assert log.table("select deliver_at, payload::text from"
                     " {}.stream_retry_events") == [(at(80), "2")]


def test_messages_with_one_id_need_a_seq(log):
    log.append(1, 2, ids=["x", "x"])
    batch = log.receive()
    row = log.nack(batch, "x")
    assert (row.verdict, row.seqs) == (AMBIGUOUS, [1, 2])
    assert log.nack(batch, "x", seq=2).verdict == OK
    log.append(3, ids=["x"])
    log.subscribe("d")
    assert log.nack(batch, "x", seq=3).verdict == NO_MESSAGE


def test_too_many_retries_make_a_dead_letter(log):
    log.configure(max_retries=2)
    log.append(1, now=at(0))
    for n in (1, 2):
        batch = log.receive()
        row = log.nack(batch, "e1")
        assert (row.outcome, row.retry_count, row.max_retries) == (1, n, 2)
        log.ack(batch)
        assert log.step(1, at(10**9)).events == 1
    batch = log.receive()
    row = log.nack(batch, "e1", reason="broken", now=at(9))
    assert (row.outcome, row.retry_count, row.deliver_at) == (2, 2, None)
    assert log.nack(batch, "e1") == row
    assert [m.outcome for m in log.receive().messages] == [2]
    (dead,) = log.dead()
    assert dead == (row.dead_letter_id, "c", "e1", 3, "t", "1", None, 2,
                    "broken", at(0), at(9), False)
    log.ack(batch)
    log.subscribe("d", "now")
    back = log.call("stream_dead_replay_v1", dead.id)
    assert (back.verdict, back.message_id, back.type, back.created_at) == (
        OK, "e1", "t", at(0))
    assert log.call("stream_dead_replay_v1", dead.id).verdict == NO_DEAD
    (m,) = log.receive().messages
    assert (m.event_id, m.retry_count, m.seq) == ("e1", 0, back.seq)
    assert log.got("d") == []


def test_without_retries_the_first_nack_is_dead(log):
    log.configure(max_retries=0)
    log.append(1)
    row = log.nack(log.receive(), "e1")
    assert (row.outcome, row.retry_count, row.max_retries) == (2, 0, 0)
    assert log.dead()[0].reason == "max retries exceeded"


def test_a_consumer_moved_back_may_nack_again(log):
    """Its retries stay; the same message is filed once."""
    log.append(1)
    log.nack(log.receive(), "e1", retry_ms=9000, now=at(0))
    log.subscribe(start="0")
    row = log.nack(log.receive(), "e1", retry_ms=1000, now=at(0))
    assert (row.outcome, row.deliver_at) == (1, at(1))
    assert log.table("select count(*), min(deliver_at) from"
                     " {}.stream_retry_events") == [(1, at(1))]
    log.configure(max_retries=0)
    for n in (1, 2):
        log.subscribe(start="0")
        log.nack(log.receive(), "e1", reason="r%d" % n)
    assert [d.reason for d in log.dead()] == ["r2"]


# Dead letters

def test_dead_letters_are_listed_replayed_purged(log):
    log.configure(max_retries=0)
    log.subscribe("d")
    log.append(*range(4))
    for name in "cd":
        batch = log.receive(name)
        for n in range(4):
            log.nack(batch, "e%d" % n, now=at(n))
        log.ack(batch)
    assert [(d.consumer, d.message_id) for d in log.dead()] == [
        (c, "e%d" % n) for c in "dc" for n in (3, 2, 1, 0)]
    assert [d.message_id for d in log.dead("c", limit=2)] == ["e3", "e2"]
    second = log.dead("c", limit=2)[1].id
    assert [d.message_id for d in log.dead("c", after=second)] == ["e1", "e0"]
    assert [d.message_id for d in log.dead("c", offset=3)] == ["e0"]
    assert log.value("select queen.stream_dead_count_v1(%s, 'q', 'c')",
                     log.tenant) == 4
    assert log.call("stream_dead_purge_v1", 10000, 9, at(9)).purged == 0
    assert [log.call("stream_dead_purge_v1", 2000, 3, at(3))[2:]
            for _ in range(2)] == [(3, True), (1, False)]
    assert log.call("stream_unsubscribe_v1", "d").verdict == OK
    one = log.call("stream_dead_replay_all_v1", 3, None)
    assert (one.verdict, one.replayed, one.failed, one.more) == (OK, 3, 0,
                                                                True)
    two = log.call("stream_dead_replay_all_v1", 3, one.after)
    assert (two.replayed, two.more) == (1, False)
    none = log.call("stream_dead_replay_all_v1", 3, None)
    assert (none.replayed, none.failed, none.first_error, none.more) == (
        0, 0, None, False)
    # the consumer d is gone: its messages are for everybody
    assert log.got() == [2, 3, 2, 3]
    assert log.call("stream_dead_replay_v1", 77).verdict == NO_DEAD
    assert log.call("stream_dead_purge_v1", 0, 9).purged == 0


def test_a_page_of_dead_letters_is_not_beyond_memory(log):
    log.configure(max_retries=0)
    ids = ["e%d" % n for n in range(4)]
    log.append(*["x" * (3 << 20)] * 4, ids=ids)
    batch = log.receive()
    for i in ids:
        log.nack(batch, i)
    page = log.dead()
    assert [(d.message_id, d.more) for d in page] == [
        ("e3", True), ("e2", True), ("e1", True)]
    assert [(d.message_id, d.more) for d in log.dead(after=page[2].id)] == [
        ("e0", False)]
    assert [d.more for d in log.dead(limit=1)] == [True]


def test_one_dead_letter_that_fails_stops_no_other(log):
    log.configure(max_retries=0)
    log.append(1, 2, 3)
    batch = log.receive()
    for n in (1, 2, 3):
        log.nack(batch, "e%d" % n)
    log.ack(batch)
    log.table("alter table {}.stream_events add constraint no check"
              " (event_id <> 'e2' or retry_count > 0) not valid;"
              " select 1")
    row = log.call("stream_dead_replay_all_v1", 9, None)
    # of what the database says nothing but the class
    assert (row.replayed, row.failed, row.first_error) == (
        2, 1, "dead letter 2 was not stored: SQLSTATE 23514")
    assert log.got() == [1, 3]
    assert [d.message_id for d in log.dead()] == ["e2"]


# Cooperative members

@pytest.mark.allpg
def test_members_share_and_the_group_advances_over_what_is_contiguous(log):
    batches = {}
    for member in "ABC":
        log.append(member)
        batches[member] = log.receive(member=member)
        assert values(batches[member]) == [member]
    assert [b.head.start_tick for b in batches.values()] == [1, 2, 3]
    assert log.receive(member="B").messages == batches["B"].messages
    assert log.receive().head.verdict == MIXED
    assert log.cursor() == (1, 4)
    assert log.ack(batches["C"]).last_tick == 1
    assert log.ack(batches["C"]).verdict == WAITS
    assert log.nack(batches["C"], "eC").verdict == WAITS
    assert [b["id"] for b in json.loads(log.consumers()["c"].batches)
            if "acked_at" in b] == [batches["C"].head.batch_id]
    assert log.ack(batches["A"]).last_tick == 2
    assert log.ack(batches["A"]).verdict == NO_BATCH
    row = log.ack(batches["B"])
    assert (row.last_tick, row.next_tick) == (4, 4)
    assert log.table("select count(*) from {}.stream_batches") == [(0,)]
    log.append("plain")
    plain = log.receive()
    assert log.receive(member="A").head.verdict == MIXED
    log.ack(plain)
    log.append("again")
    assert log.got(member="A") == ["again"]


def test_an_empty_stretch_leaves_no_hole(log):
    """Ticks without events for a group with batches under way."""
    log.append(1)
    one = log.receive(member="A")
    log.tick()
    assert log.receive(member="B").head.verdict == NOTHING
    assert log.cursor() == (1, 3)
    log.append(2)
    two = log.receive(member="B")
    assert values(two) == [2] and two.head.start_tick == 3
    assert log.ack(two).last_tick == 1
    row = log.ack(one)
    assert (row.last_tick, row.next_tick) == (4, 4)
    log.tick()
    assert log.receive(member="A").head.verdict == NOTHING
    assert log.cursor() == (5, 5)


def test_a_group_beside_fan_out(log):
    log.subscribe("group")
    log.append(1)
    a = log.receive("group", "A")
    log.append(2)
    b = log.receive("group", "B")
    assert sorted(values(a) + values(b)) == [1, 2] and log.got() == [1, 2]
    log.nack(b, "e2")
    assert log.ack(b, "group", "A").verdict == HOLDER
    assert log.ack(b, "c", None).verdict == HOLDER
    assert log.ack(b, "group", "B").verdict == OK
    assert log.ack(a).verdict == OK
    log.step(1)
    assert log.got() == [] and log.got("group", "A") == [2]


def test_a_silent_member_loses_its_batch(log):
    log.append(1, 2)
    old = log.receive(member="A", now=at(0))
    log.nack(old, "e1", now=at(0))
    assert log.call("stream_touch_v1", "c", "A", at(5)).batches == 1
    assert log.call("stream_touch_v1", "c", "B", at(5)).batches == 0
    assert log.receive(member="B", dead_ms=2000,
                       now=at(6)).head.verdict == NOTHING
    new = log.receive(member="B", dead_ms=2000, now=at(8))
    assert new.head.batch_id != old.head.batch_id and new.head.redelivered
    assert [m.outcome for m in new.messages] == [1, 0]
    assert log.ack(old).verdict == log.nack(old, "e2").verdict == NO_BATCH
    assert log.batch(old).head.verdict == NO_BATCH
    assert log.receive(member="A", dead_ms=2000,
                       now=at(9)).head.verdict == NOTHING
    assert log.nack(new, "e2").verdict == OK
    assert log.ack(new).verdict == OK
    assert log.cursor() == (2, 2)


def test_what_is_refused_changes_nothing(log):
    """Neither whose batch it is nor that its member lives; in a transaction
    that commits."""
    log.append(1, 2)
    held = log.receive(member="A", now=at(0))
    kept = log.table("select * from {}.stream_batches")
    for member in "A", "B":
        head = log.receive(member=member, most=1, dead_ms=2000,
                           now=at(8)).head
        assert (head.verdict, head.size, head.need) == (TOO_LARGE, 2, 2)
        assert log.table("select * from {}.stream_batches") == kept
    assert log.ack(held).verdict == OK


# What is shown

def test_info_and_consumers_tell_the_truth(log):
    log.configure(max_retries=1)
    log.append(1, 2, 3, now=at(0))
    batch = log.receive(now=at(1))
    log.nack(batch, "e2", now=at(1))
    found = log.info()
    assert {k: found[k] for k in (
        "events", "consumers", "active_batches", "retries", "dead_letters",
        "first_seq", "last_seq", "first_tick", "last_tick", "ticks",
        "last_tick_at", "watermark", "segment")} == {
            "events": 3, "consumers": 1, "active_batches": 1, "retries": 1,
            "dead_letters": 0, "first_seq": 1, "last_seq": 3, "first_tick": 1,
            "last_tick": 2, "ticks": 2,
            "last_tick_at": "2026-01-01T00:00:01.000Z",
            "watermark": {"tick": 1, "consumer": "c"}, "segment": 0}
    assert found["segments"] == [
        {"segment": 0, "state": "current", "events": 3},
        {"segment": 1, "state": "empty", "events": 0},
        {"segment": 2, "state": "empty", "events": 0}]
    row = log.consumers(now=at(3))["c"]
    assert (row.last_tick, row.next_tick, row.lag_ticks, row.lag_events,
            row.lag_ms, row.retries, row.active_at) == (
                1, 1, 1, 3, 3000, 1, at(1))
    assert json.loads(row.batches) == [
        {"id": batch.head.batch_id, "member": "", "start_tick": 1,
         "end_tick": 2, "size": 3, "nacked": 1,
         "created_at": "2026-01-01T00:00:01.000Z"}]
    log.ack(batch)
    row = log.consumers(now=at(3))["c"]
    assert (row.lag_ticks, row.lag_events, row.lag_ms, row.batches) == (
        0, 0, 0, "[]")
    assert log.rows("select * from queen.stream_counts(%s)", log.id) == [
        (3, 1, 0)]


def test_configuration_holds_at_once(log):
    log.append(1, 2)
    batch = log.receive()
    assert log.nack(batch, "e1").max_retries == 5
    log.configure(max_retries=0)
    assert log.nack(batch, "e2").outcome == 2
    log.configure(retention_ms=90000)
    assert log.rows("select * from queen.stream_config_get(%s)", log.id) == [
        (0, 90000)]
    assert log.info()["rotation_period"] == "45s"
    refused("23514", lambda: log.configure(max_retries=-1))
    refused("23514", lambda: log.configure(retention_ms=0))


# A log's life

@pytest.mark.allpg
def test_made_twice_dropped_made_again(db, log):
    schemas = "select nspname from pg_namespace where nspname like" \
        " 'queen\\_ojs%%' order by 1"
    first = log.id
    assert log.ensure() == first and len(db.rows(schemas)) == 1
    log.append(1)
    batch = log.receive()
    log.drop()
    assert db.rows(schemas) == [] and log.id is None
    assert log.receive().head.verdict == log.ack(batch).verdict == NO_QUEUE
    assert db.rows("select 1 from queen.ojs_streams union all"
                   " select 1 from queen.ojs_stream_work") == []
    assert log.ensure() == log.id != first
    log.subscribe()
    log.append(2)
    # a batch of the old queue names none of the new one
    assert log.receive().head.batch_id > batch.head.batch_id
    assert log.ack(batch).verdict == NO_BATCH


def test_repeatable_read_is_refused(db, log):
    log.append(1)
    other = log.beside(db)
    other.conn.set_session(isolation_level="REPEATABLE READ")
    for call in (lambda: other.append(1), other.receive, other.subscribe,
                 lambda: other.ack(1), lambda: other.nack(1, "x"),
                 other.ensure, other.info, lambda: other.step(3), other.tick,
                 lambda: other.rows("select queen.stream_drop(1)")):
        refused("25000", call)
    assert logged(db, "other").got() == []

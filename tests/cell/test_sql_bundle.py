# SPDX-License-Identifier: Apache-2.0
"""240_bundle.sql: transactions; 250_replay.sql: dead letters moved."""
import uuid

import pytest

from hotkit import (FRAMES, Hot, hot, ids, items, p, q, refused,  # noqa: F401
                    together)
from queenlib import OTHER_TENANT, TENANT
from sqlkit import at

pytestmark = pytest.mark.allpg


@pytest.fixture
def out(hot):
    return hot.part(hot.queue("out"), "x")


@pytest.fixture
def g(hot, q, p):
    group = hot.group(q, "g")
    hot.push_one(p, "abc", now=at(0))
    hot.took(p, group, 1, now=at(0))
    return group


def kinds(rows):
    return [(r.kind, r.ord, r.verdict) for r in rows]


def test_pushes_and_acks_in_one_call(hot, p, out, g):
    rows = hot.bundle([(p, g, 1)], [dict(part=out, ids="xy")],
                      [dict(part=p, group=g, ids="abc", lease=(p, g, 1))],
                      now=at(1))
    assert kinds(rows) == [(0, 1, 0), (1, 1, 0), (2, 1, 0)]
    assert (rows[1].base, rows[1].at) == (0, at(1))
    assert (rows[2].committed, rows[2].items, rows[2].at) == (2, None, None)
    assert hot.consumer(g, p).committed == 2


def test_each_part_may_be_missing(hot, p, out, g):
    assert kinds(hot.bundle()) == []
    assert kinds(hot.bundle(segs=[dict(part=out, ids="x")])) == [(1, 1, 0)]
    assert kinds(hot.bundle([(p, g, 1)], now=at(1))) == [(0, 1, 0)]
    assert kinds(hot.bundle(acks=[dict(part=p, group=g, ids="a")])) == [
        (2, 1, 1)]


def test_a_dead_lease_stops_everything(hot, q, p, out, g):
    rows = hot.bundle([(p, g, 1), (p, g, 2)], [dict(part=out, ids="x")],
                      [dict(part=p, group=g, ids="a", lease=(p, g, 1))],
                      now=at(1))
    assert kinds(rows) == [(0, 1, 0), (0, 2, 1)]
    assert kinds(hot.bundle([(p, g, 1)], [dict(part=out, ids="x")],
                            now=at(60))) == [(0, 1, 1)]
    assert kinds(hot.bundle([(p, g, 1)], now=at(1),
                            tenant=OTHER_TENANT)) == [(0, 1, 1)]
    assert hot.value("select count(*) from queen.segments where"
                     " partition_id = %s", out) == 0
    assert hot.consumer(g, p).committed == -1


def test_a_push_verdict_stops_the_acks(hot, q, p, out, g):
    hot.push_one(out, "x")
    gone = out + 1000
    rows = hot.bundle([], [dict(part=out, ids="xz", verified=-1),
                           dict(part=gone, ids="x")],
                      [dict(part=p, group=g, ids="a", lease=(p, g, 1))],
                      now=at(1))
    assert kinds(rows) == [(1, 1, 1), (1, 2, 2)]
    assert (rows[0].dup_pos, rows[0].dup_off) == ([0], [0])
    assert hot.consumer(g, p).committed == -1


def test_gaps_and_suspects_pass_through(hot, out):
    hot.push_one(out, "xy")
    (row,) = hot.bundle(segs=[dict(part=out, ids="z", verified=0)])
    assert (row.verdict, row.gap_base, row.gap) == (0, 1, ids("y"))
    (row,) = hot.bundle(segs=[dict(part=out, ids="ky", verified=2)],
                        suspects=[(1, 1, 0, 2)])
    assert (row.verdict, row.dup_pos, row.dup_off) == (1, [1], [1])


def test_a_strict_lease_less_ack_rides_on_a_required_lease(hot, p, out, g):
    ack = dict(part=p, group=g, ids="abc")
    rows = hot.bundle([(p, g, 1)], [], [ack], strict=True, now=at(1))
    assert kinds(rows) == [(0, 1, 0), (2, 1, 0)]
    assert hot.consumer(g, p).committed == 2


def test_a_strict_lease_less_ack_refuses_a_foreign_holder(hot, q, p, g):
    other = hot.part(q, "other")
    hot.push_one(other, "k", now=at(0))
    hot.took(other, g, 2, now=at(0))
    rows = hot.bundle([(other, g, 2)], [], [
        dict(part=p, group=g, ids="abc"), dict(part=other, group=g, ids="k")],
        strict=True, now=at(1))
    assert kinds(rows) == [(0, 1, 0), (2, 1, 3), (2, 2, 0)]
    assert items(rows[1]) == ["stale"] * 3
    # an own lease on the ack is checked as ever, required or not
    rows = hot.bundle([(p, g, 1)], [], [
        dict(part=p, group=g, ids="a", lease=(p, g, 9))], strict=True,
        now=at(1))
    assert kinds(rows) == [(0, 1, 0), (2, 1, 3)]
    rows = hot.bundle([], [], [dict(part=p, group=g, ids="a")], strict=True,
                      now=at(1))
    assert kinds(rows) == [(2, 1, 3)]
    # an expired holder is no holder
    rows = hot.bundle([], [], [dict(part=p, group=g, ids="a")], strict=True,
                      now=at(100))
    assert kinds(rows) == [(2, 1, 3)]
    assert kinds(hot.bundle([], [], [dict(part=p, group=g, ids="a")],
                            now=at(100))) == [(2, 1, 1)]


def test_strict_without_a_row_is_consumer_not_found(hot, q, g):
    other = hot.part(q, "other")
    assert kinds(hot.bundle([], [], [dict(part=other, group=g, ids="a")],
                            strict=True)) == [(2, 1, 2)]


def test_a_required_lease_lives_on_its_other_partitions(hot, q, g):
    a, b = hot.parts(q, ["a", "b"])
    for x in (a, b):
        hot.push_one(x, "k", now=at(0))
    hot.pop_all([dict(no=7)], [(1, a, g), (1, b, g)], now=at(0))
    for x in (a, b):
        rows = hot.bundle([(a, g, 7)], [], [dict(part=x, group=g, ids="k")],
                          strict=True, now=at(1))
        assert kinds(rows) == [(0, 1, 0), (2, 1, 0)]
    assert kinds(hot.bundle([(a, g, 7)], now=at(1))) == [(0, 1, 1)]


def test_acks_below_the_cursor_are_told_not_refused(hot, p, g):
    hot.ack(p, g, 1, "ab", now=at(1))
    (row,) = hot.bundle(acks=[dict(part=p, group=g, lease=(p, g, 1),
                                   ids=["a", "b", "zz"],
                                   status=["completed", "failed",
                                           "completed"])], now=at(1))
    assert (row.verdict, items(row)) == (1, ["noop", "committed",
                                             "unresolvable"])


def test_needs_frame_comes_with_the_covering_blob(hot, p, g):
    ack = dict(part=p, group=g, lease=(p, g, 1), ids="b", status="dlq")
    (row,) = hot.bundle(acks=[ack], now=at(1))
    assert (row.verdict, row.off, row.base, row.blob) == (4, 1, 0, FRAMES)
    ack["frames"] = [(1, b"frame", at(0))]
    (row,) = hot.bundle(acks=[ack], now=at(1))
    assert (row.verdict, row.dead) == (0, 1)


def test_a_rollback_leaves_nothing(db, hot, p, out, g):
    one = Hot(db.connect(autocommit=False))
    rows = one.bundle([(p, g, 1)], [dict(part=out, ids="x")],
                      [dict(part=p, group=g, ids="abc")], strict=True,
                      now=at(1))
    assert [r.verdict for r in rows] == [0, 0, 0]
    one.conn.rollback()
    assert hot.consumer(g, p).committed == -1
    assert hot.value("select count(*) from queen.segments where"
                     " partition_id = %s", out) == 0


def test_bad_arrays_are_refused(hot, p, g):
    with refused("22023"):
        hot.bundle([], [dict(part=p, ids="x"), dict(part=p, ids="y")])
    with refused("22023"):
        hot.named("select * from queen.bundle_v1(%s, '{1}', '{}', '{}', "
                  + hot.PUSH + ", " + hot.ACK + ", false)",
                  [TENANT] + hot.push_args([]) + hot.ack_args([]))


def test_a_held_lease_cannot_be_taken_over_before_the_commit(
        db, hot, p, out, g):
    """The fence: while the bundle is open, the row it rides on is locked."""
    one = Hot(db.connect(autocommit=False))
    rows = one.bundle([(p, g, 1)], [dict(part=out, ids="x")], now=at(59))
    assert [r.verdict for r in rows] == [0, 0]
    assert [r.verdict for r in hot.take(p, g, 2, now=at(100))] == [3]
    one.conn.commit()
    assert hot.took(p, g, 2, now=at(100)) == (0, 2, 2)


def test_bundles_pushes_and_acks_at_once_do_not_deadlock(db, hot, q, g):
    """Every session pushes to and acks two partitions in its own order of
    roles; the functions keep one order of locks."""
    parts = hot.parts(q, ["a", "b", "c", "d"])
    ones = [Hot(db.connect()) for _ in range(6)]
    for x in parts:
        hot.push_one(x, ["0-%d" % k for k in range(200)])
        hot.took(x, g, x, budget=1000, secs=3600)

    def run(i):
        one = ones[i]
        done = 0
        for n in range(25):
            x, y = parts[(i + n) % 4], parts[(i + n + 1 + n % 2) % 4]
            segs = sorted([x, y])
            acks = sorted([parts[n % 4], parts[(n + 2) % 4]])
            kind = (i + n) % 3
            one.conn.autocommit = False
            if kind == 0:
                rows = one.bundle(
                    [(acks[0], g, acks[0])],
                    [dict(part=s, ids=["%d-%d" % (i, n)]) for s in segs],
                    [dict(part=a, group=g, ids=["0-%d" % n])
                     for a in acks])
                assert {r.verdict for r in rows} <= {0, 1}, rows
            elif kind == 1:
                rows = one.push_all([dict(part=s, ids=["%d-%d" % (i, n)])
                                     for s in segs])
                assert {r.verdict for r in rows} == {0}
            else:
                rows = one.ack_all([dict(part=a, group=g, lease=(a, g, a),
                                         ids=["0-%d" % n]) for a in acks])
                assert {r.verdict for r in rows} <= {0, 1}, rows
            one.conn.commit()
            done += 1
        return done

    assert together(6, run) == [25] * 6


# Replay

MOVE = ("select * from queen.dead_move_v1(%s, %s, %s, %s, 10,"
        " %s::smallint, 'blob', %s)")


@pytest.fixture
def dead(hot, p, g):
    dead_id = uuid.uuid4()
    row = hot.ack(p, g, 1, "a", "dlq", now=at(1), dead_id=dead_id,
                  frames=[(0, b"frame", at(0))])
    assert row.dead == 0
    return str(dead_id)


def move(hot, dead, part, text, key=None, now=None, tenant=TENANT):
    return hot.named(MOVE, [tenant, dead, part, ids([text]), key, now])[0]


def test_replay_moves_the_dead_letter_in_one_commit(hot, p, out, dead):
    row = move(hot, dead, out, "dlq:1", now=at(5))
    assert (row.verdict, row.base, row.at) == (0, 0, at(5))
    assert hot.value("select count(*) from queen.dead_letters") == 0
    assert hot.rows("select base_offset, end_offset, created_at from"
                    " queen.segments where partition_id = %s", out) == [
                        (0, 0, at(5))]
    assert move(hot, dead, out, "dlq:1", now=at(6)).verdict == 2


def test_replay_of_an_id_that_is_there_keeps_the_row(hot, p, out, dead):
    for n in range(50):
        hot.push_one(out, ["n%d-%d" % (n, k) for k in range(100)],
                     now=at(n))
    hot.push_one(out, ["dlq:1"], now=at(100))
    row = move(hot, dead, out, "dlq:1", now=at(3700))
    assert (row.verdict, row.base, row.at) == (1, None, None)
    assert hot.value("select count(*) from queen.dead_letters") == 1
    row = move(hot, dead, out, "dlq:1", now=at(3701))
    assert (row.verdict, row.base) == (0, 5001)


def test_replay_finds_the_id_of_a_removed_message(hot, out, dead):
    hot.push_one(out, ["dlq:1"], now=at(0))
    hot.drop_segments(out, 0)
    assert move(hot, dead, out, "dlq:1", now=at(2)).verdict == 1


def test_replay_to_nowhere_or_into_a_sealed_queue(hot, p, out, dead):
    assert move(hot, dead, out + 1000, "dlq:1").verdict == 3
    hot.rows("update queen.queues set encryption_enabled = true"
             " where name = 'out'")
    assert move(hot, dead, out, "dlq:1").verdict == 4
    assert hot.value("select count(*) from queen.dead_letters") == 1
    assert move(hot, dead, out, "dlq:1", key=5).verdict == 0


def test_replay_is_per_tenant(hot, p, out, dead):
    assert move(hot, dead, out, "dlq:1", tenant=OTHER_TENANT).verdict == 3
    theirs = hot.value("select id from queen.queue_resolve_v1(%s, "
                       "array['t'], true)", OTHER_TENANT)
    part = hot.value("select id from queen.partitions_ensure_v1(%s, %s,"
                     " array['x'])", OTHER_TENANT, [theirs])
    assert move(hot, dead, part, "dlq:1", tenant=OTHER_TENANT).verdict == 2
    assert move(hot, dead, part, "dlq:1").verdict == 3


def test_two_replays_at_once_move_once(db, hot, out, dead):
    ones = [Hot(db.connect()) for _ in range(4)]
    rows = together(4, lambda i: move(ones[i], dead, out, "dlq:1"))
    assert sorted(r.verdict for r in rows) == [0, 2, 2, 2]
    assert hot.value("select count(*) from queen.segments where"
                     " partition_id = %s", out) == 1

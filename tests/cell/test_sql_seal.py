# SPDX-License-Identifier: Apache-2.0
"""605_seal.sql: leases given back, what is stuck; pop_v2 of what is sealed."""
import pytest

from hotkit import g, hot, items, p, q  # noqa: F401
from queenlib import OTHER_TENANT, TENANT
from sqlkit import at

pytestmark = pytest.mark.allpg


def pop2(hot, reqs, cands, keys=(), opens=False, now=None):
    """reqs: (number, autoAck); cands: (request, part, group)."""
    return hot.named(
        "select * from queen.pop_v2(%s, %s::bigint[], %s::int[], %s::int[],"
        " %s::int[], %s::boolean[], %s::int[], %s::bigint[], %s::bigint[],"
        " %s::smallint[], %s, %s)",
        [TENANT, [r[0] for r in reqs], [60] * len(reqs), [1000] * len(reqs),
         [0] * len(reqs), [r[1] for r in reqs], [c[0] for c in cands],
         [c[1] for c in cands], [c[2] for c in cands], list(keys), opens,
         now])


def give(hot, part, group, no, now=None, tenant=TENANT):
    return [tuple(r) for r in hot.named(
        "select * from queen.lease_return_v1(%s, %s, %s, %s, %s)",
        [tenant, part, group, no, now])]


# pop_v2

def test_auto_ack_takes_nothing_sealed_unless_it_is_opened(hot, p, g):
    hot.push_one(p, ["a", "b"], key=7)
    row, = pop2(hot, [(1, True)], [(1, p, g)], keys=[7])
    assert (row.verdict, row.base, row.key_id, row.last, row.take,
            row.blob) == (4, 0, 7, 1, None, None)
    assert hot.consumer(g, p).committed == -1
    row, = pop2(hot, [(1, True)], [(1, p, g)], keys=[7], opens=True)
    assert (row.verdict, row.base, row.take, row.key_id) == (0, 0, 2, 7)
    assert hot.consumer(g, p).committed == 1


def test_auto_ack_takes_what_lies_before_the_sealed(hot, p, g):
    hot.push_one(p, ["a"])
    hot.push_one(p, ["b"], key=7)
    row, = pop2(hot, [(1, True)], [(1, p, g)], keys=[7])
    assert (row.verdict, row.base, row.take, row.last) == (0, 0, 1, 1)
    row, = pop2(hot, [(1, True)], [(1, p, g)], keys=[7])
    assert (row.verdict, row.base, row.key_id) == (4, 1, 7)


def test_leases_of_the_same_call_take_what_is_sealed(hot, q, p, g):
    other = hot.part(q, "other")
    hot.push_one(p, ["a"], key=7)
    hot.push_one(other, ["a"], key=7)
    rows = pop2(hot, [(1, True), (2, False)], [(1, p, g), (2, other, g)],
                keys=[7])
    assert [(r.req, r.verdict) for r in rows] == [(1, 4), (2, 0)]


@pytest.mark.parametrize("auto", [False, True])
@pytest.mark.parametrize("opens", [False, True])
def test_an_unknown_key_blocks_and_is_named(hot, p, g, auto, opens):
    hot.push_one(p, ["a"], key=9)
    row, = pop2(hot, [(1, auto)], [(1, p, g)], keys=[7], opens=opens)
    assert (row.verdict, row.base, row.key_id, row.blob) == (4, 0, 9, None)


def test_pop_v1_takes_what_is_sealed(hot, p, g):
    hot.push_one(p, ["a"], key=7)
    row, = hot.take(p, g, 1, keys=[7], auto=True)
    assert (row.verdict, row.key_id) == (0, 7)


# Leases given back

def test_a_lease_given_back_leaves_no_trace(hot, q, p, g):
    hot.push(p, 3, now=at(0))
    assert hot.took(p, g, 1, now=at(1)) == (0, 2, 1)
    assert give(hot, p, g, 1, now=at(2)) == [(q, p, g)]
    row = hot.consumer(g, p)
    assert (row.committed, row.batch_end, row.lease_at, row.lease_group,
            row.lease_no, row.expires_at, row.retries, row.attempts,
            row.consumed, row.conflated) == (
        -1, None, None, None, None, None, 0, 0, 0, False)
    assert give(hot, p, g, 1, now=at(2)) == []
    assert hot.took(p, g, 2, now=at(2)) == (0, 2, 1)


def test_attempts_count_only_deliveries(hot, p, g):
    hot.push(p, 1, now=at(0))
    assert hot.took(p, g, 1, now=at(1)) == (0, 0, 1)
    assert hot.took(p, g, 2, now=at(100)) == (0, 0, 2)
    give(hot, p, g, 2, now=at(101))
    assert hot.took(p, g, 3, now=at(102)) == (0, 0, 2)


def test_a_lease_of_several_partitions_goes_back_whole(hot, q, p, g):
    other = hot.part(q, "other")
    hot.push(p, 1, now=at(0))
    hot.push(other, 1, now=at(0))
    rows = hot.pop_all([{"no": 1}], [(1, other, g), (1, p, g)], now=at(1))
    assert {r.lease_at for r in rows} == {other}
    assert hot.value("select count(*) from queen.lease_sets") == 1
    assert give(hot, other, g, 1, now=at(2)) == sorted(
        [(q, p, g), (q, other, g)])
    assert hot.value("select count(*) from queen.lease_sets") == 0
    assert {hot.consumer(g, x).lease_no for x in (p, other)} == {None}


def test_only_a_live_lease_of_the_tenant_goes_back(hot, p, g):
    hot.push(p, 1, now=at(0))
    hot.took(p, g, 1, now=at(1))
    assert give(hot, p, g, 2, now=at(2)) == []
    assert give(hot, p, g, 1, now=at(2), tenant=OTHER_TENANT) == []
    assert give(hot, p, g, 1, now=at(61)) == []
    assert hot.consumer(g, p).lease_no == 1


def test_the_lease_before_is_still_known(hot, p, g):
    hot.push_one(p, ["a", "b"], now=at(0))
    hot.took(p, g, 1, now=at(1), budget=1)
    hot.ack(p, g, 1, ["a"], now=at(2))
    hot.took(p, g, 2, now=at(3))
    give(hot, p, g, 2, now=at(4))
    # an ack repeated for its lost answer
    assert items(hot.ack(p, g, 1, ["a"], now=at(5))) == ["noop"]


# What is stuck

def block(hot, queue, part, key=7, off=3, damaged=False, now=None,
          tenant=TENANT, who="i"):
    hot.rows("select queen.seal_block_v1(%s, %s, %s, %s, %s, %s, %s, %s)",
             tenant, queue, part, key, off, damaged, who, now)


def blocks(hot, now=None, tenant=TENANT):
    return [tuple(r) for r in hot.named(
        "select queue, partition, key_id, off, damaged, instance, seen_at"
        " from queen.seal_blocks_v1(%s, %s)", [tenant, now])]


def test_the_newest_of_a_queue_and_key_is_shown(hot, q, p, g):
    other = hot.part(q, "other")
    block(hot, q, p, now=at(0))
    block(hot, q, other, off=5, damaged=True, now=at(10), who="j")
    block(hot, q, p, off=1, now=at(5))  # late
    block(hot, q, p, key=8, now=at(10))
    assert blocks(hot, at(11)) == [
        ("q", "other", 7, 5, True, "j", at(10)),
        ("q", "p", 8, 3, False, "i", at(10))]
    assert blocks(hot, at(11), None) == blocks(hot, at(11))
    assert blocks(hot, at(11), OTHER_TENANT) == []
    assert blocks(hot, at(609)) != [] and blocks(hot, at(611)) == []


def test_another_tenant_files_nothing(hot, q, p):
    block(hot, q, p, now=at(0), tenant=OTHER_TENANT)
    assert blocks(hot, at(1), None) == []


def test_what_a_group_got_past_is_not_shown(hot, q, p, g):
    hot.push(p, 4, now=at(0))
    block(hot, q, p, off=2, now=at(0))
    assert len(blocks(hot, at(1))) == 1  # no cursor yet: at the start
    assert hot.took(p, g, 1, budget=2, auto=True) == (0, 1, 1)
    assert len(blocks(hot, at(1))) == 1
    assert hot.took(p, g, 1, budget=1, auto=True) == (2, 2, 1)
    assert blocks(hot, at(1)) == []
    hot.group(q, "h")
    assert len(blocks(hot, at(1))) == 1
    hot.rows("update queen.groups set deleted_at = now() where name = 'h'")
    assert blocks(hot, at(1)) == []


def test_what_was_filed_goes_with_its_queue_or_after_a_day(hot, q, p, g):
    block(hot, q, p, now=at(0))
    block(hot, q, p, key=8, now=at(86402))
    assert hot.value("select count(*) from queen.flags"
                     " where key like 'blocked:%%'") == 1
    hot.rows("update queen.queues set deleted_at = now()")
    assert blocks(hot, at(86403)) == []
    block(hot, q, p, key=9, now=at(86403))
    assert hot.value("select count(*) from queen.flags"
                     " where key = %s", "blocked:%d:9" % q) == 0


@pytest.mark.parametrize("purge, left", [
    ("select queen.purge_queue_v1(100)", 1),
    ("select queen.tenant_purge_v1('%s', p_allow_default => true)" % TENANT,
     0)], ids=["queue", "tenant"])
def test_what_was_filed_is_purged_with_its_queue(hot, q, p, g, purge, left):
    other = hot.queue("other")
    for key in (7, 8):
        block(hot, q, p, key=key)
    block(hot, other, hot.part(other, "p"))
    hot.rows("update queen.queues set deleted_at = now() where id = %s", q)
    hot.rows("update queen.groups set deleted_at = now() where queue_id = %s",
             q)
    while hot.value("select count(*) from queen.queues"
                    " where deleted_at is not null"):
        hot.rows("select queen.purge_group_v1(100)")
        hot.rows(purge)
    assert hot.value("select count(*) from queen.flags where key like"
                     " 'blocked:%%'") == left

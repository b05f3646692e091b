# SPDX-License-Identifier: Apache-2.0
"""812: which jobs a fetch claims, in what order, and at what cost."""
import itertools
import uuid

import pytest

from hotkit import together
from ojsjobkit import Jobs, jobs, policy, seconds, spec  # noqa: F401
from queenlib import TENANT, rows
from sqlkit import at

ROWS = 20000
QUEUES = 20
STAY = "update queen.jobs set state = 1, wake_at = 'infinity' where id = %s"


def place(row):
    """What a process remembers of a claim."""
    return row.queue_id, row.rank, row.enqueued_at, row.seq


@pytest.mark.allpg
def test_order_over_queues_priority_and_age(jobs):
    late = [jobs.put("b", now=n) for n in (5, 6)]
    high = jobs.put("a", priority=10, now=9)
    low = jobs.put("a", priority=-10, now=1)
    old = jobs.put("a", now=3)
    same = [r.id for r in jobs.push(spec("a"), spec("a"), now=4)]
    first = jobs.put("b", priority=1, now=8)
    new = jobs.put("a", due=7, now=2)       # became available at 10
    want = [high, old, *same, new, low, first, *late]
    got = jobs.fetch("a", "nowhere", "b", "a", n=20, now=10)
    assert [r.id for r in got] == want
    assert {r.attempt for r in got} == {1}
    jobs.rows("update queen.jobs set state = 0")
    assert jobs.ids("b", "a", n=4, now=10) == [first, *late, high]


@pytest.mark.allpg
def test_what_a_fetch_tells_of_queues(jobs):
    mine, other = jobs.put("a", now=1), jobs.put("b", now=1)
    a, b = jobs.queue_id("a"), jobs.queue("b", paused_at=at(2))
    got, queues = jobs.fetch_all("b", "x", "a", "b", n=9, now=3)
    assert [r.id for r in got] == [mine]
    assert [(r.idx, r.queue, r.queue_id, r.attempt) for r in queues] == [
        (1, "b", b, 1), (2, "x", None, None), (3, "a", a, 0), (4, "b", b, 1)]
    # active jobs of a paused queue go on; pushes are taken
    jobs.queue("a", paused_at=at(4))
    assert jobs.ack(mine, now=5).verdict == "ok"
    jobs.put("a", now=5)
    assert jobs.ids("a", "b", now=6) == []
    jobs.queue("b", paused_at=None)
    assert jobs.ids("a", "b", n=0, now=6) == []
    assert jobs.ids("a", "b", now=6) == [other]


@pytest.mark.allpg
def test_leases_come_from_fetch_job_queue_and_caller(jobs):
    def lease(**kw):
        (row,) = jobs.fetch(now=100, **kw)
        return seconds(row.lease_until) - 100

    jobs.queue()
    for n in range(4):
        jobs.put(lease_ms=7000 if n < 2 else None, now=n)
    assert lease(lease_ms=3000) == 3
    assert lease() == 7
    assert lease() == 1800
    jobs.queue(visibility_timeout_ms=9000)
    assert lease() == 9


@pytest.mark.allpg
def test_a_fetch_promotes_what_is_due_and_passes_over_what_expired(jobs):
    long_due = jobs.put(due=10, now=1)
    just_due = jobs.put(due=99, now=2)
    expired = [jobs.put(expires=50, now=n) for n in (3, 4)]
    never = jobs.put(due=101, now=5)
    lost = jobs.put(due=98, expires=99, now=6)
    assert jobs.get(long_due, now=100).state == "available"
    assert jobs.get(lost, now=100).state == "discarded"
    assert jobs.ids(n=9, now=100) == [just_due]     # of the last seconds
    assert jobs.ids(n=9, now=100) == [long_due]     # nothing there: of all
    assert jobs.ids(n=9, now=100) == []
    assert [jobs.get(e, now=100).state for e in expired] == ["discarded"] * 2
    assert jobs.cancel(expired[0], now=100).verdict == "conflict"
    assert jobs.ids(n=9, now=101) == [never]
    # those of one moment stay in the order of their times
    due = {n: jobs.put(due=200 + n, now=150) for n in (3, 1, 2)}
    assert jobs.ids(n=3, now=205) == [due[1], due[2], due[3]]


@pytest.mark.allpg
def test_claims_go_on_where_the_last_ones_ended(jobs):
    ids = [jobs.put(priority=p, now=n)
           for n, p in enumerate([0, 5, 0, -5, 5, 9, 0])]
    other = jobs.put("other", now=9)
    seen = {}

    def claim(n=1, queues=("q",)):
        found = jobs.fetch(*queues, n=n, seen=seen.values(), now=50)
        for r in found:
            seen[r.queue_id, r.rank] = place(r)
        return [ids.index(r.id) if r.id in ids else r.id for r in found]

    assert claim() == [5]
    assert claim() == [1]
    assert claim(2) == [4, 0]
    # one that came back in front of the places is seen when nothing is behind
    jobs.rows("update queen.jobs set state = 0 where id = %s", ids[1])
    assert claim(2, ["q", "other"]) == [2, 6]
    new = jobs.put(priority=7, now=10)      # a rank nothing is known of
    assert claim(3, ["other", "q"]) == [other, new, 3]
    assert claim() == [1]
    assert claim() == []
    # and of each rank what came later, before lower ones
    late = [jobs.put(priority=p, now=60) for p in (0, 9, 3)]
    assert claim(3) == [late[1], late[2], late[0]]


@pytest.mark.allpg
def test_eight_fetch_and_no_job_goes_twice(jobs, connect, db):
    ids = {r.id for r in jobs.push(*[spec(priority=n % 3)
                                     for n in range(400)])}
    due = {r.id for r in jobs.push(*[spec(due=1000) for n in range(100)],
                                   now=1)}
    workers = [Jobs(connect(db)) for _ in range(8)]

    def work(i):
        got, seen = [], {}
        while True:
            found = workers[i].fetch(n=3, seen=seen.values())
            if not found:
                return got
            for r in found:
                seen[r.queue_id, r.rank] = place(r)
                got.append(r.id)
                assert workers[i].ack(r.id).verdict == "ok"

    got = list(itertools.chain(*together(8, work)))
    got += jobs.ids(n=100)      # what others held when they looked
    assert len(got) == len(set(got)) == 500
    assert set(got) == ids | due


@pytest.mark.allpg
def test_of_two_transitions_at_once_one_wins(jobs, connect, db):
    """Each on its own connection; both clocks have run out."""
    racers = [Jobs(connect(db)) for _ in range(5)]
    calls = [lambda j, i: j.ack(i).verdict == "ok",
             lambda j, i: j.nack(i).verdict == "ok",
             lambda j, i: j.cancel(i).verdict == "ok",
             lambda j, i: j.sweep() != {}]
    for first in range(4):
        id = jobs.put(lease_ms=1, timeout_ms=1 + first, max_attempts=1)
        assert jobs.ids() == [id]
        order = calls[first:] + calls[:first]
        won = together(4, lambda i: order[i](racers[i], id))
        assert sum(won) == 1
        assert jobs.get(id).state in ("completed", "discarded", "cancelled")
        jobs.rows("delete from queen.jobs")
    # sweeps of several processes and an ack
    ids = [jobs.put(lease_ms=1, max_attempts=1) for _ in range(40)]
    jobs.fetch(n=40)
    together(5, lambda i: [racers[i].ack(x) for x in ids[:20]] if i == 4
             else [racers[i].sweep(limit=7) for _ in range(6)])
    jobs.sweep()
    assert jobs.ids(n=40) == []
    ended = jobs.rows("select state, cardinality(errors), count(*) from"
                      " queen.jobs group by 1, 2 order by 1")
    assert sum(r[2] for r in ended) == 40
    assert all(r[:2] in ((5, None), (7, 1)) for r in ended), ended


@pytest.mark.allpg
def test_who_holds_a_row_keeps_sweeps_and_fetches_from_it(jobs, connect, db):
    held, free = jobs.put(now=1), jobs.put(now=2)
    lost = [jobs.put("l", lease_ms=1, now=n) for n in (1, 2)]
    jobs.fetch("l", n=2, now=3)
    due = [jobs.put("d", due=10, now=n) for n in (1, 2)]
    old = [jobs.put("e", expires=10, now=n) for n in (1, 2)]
    conn = db.connect(autocommit=False)
    for id in held, lost[0], due[0], old[0]:
        rows(conn, "select from queen.jobs where id = %s for update", (id,))
    assert jobs.ids(n=5, now=20) == [free]
    assert sorted(jobs.sweep(now=20).values()) == [
        (0, 1, False), (1, 1, False), (1, 1, False)]
    conn.rollback()
    assert jobs.ids(n=5, now=20) == [held]
    assert jobs.ids("l", "d", n=5, now=20) == [lost[1], due[1]]
    assert sorted(jobs.sweep(now=20).values()) == [
        (0, 1, False), (1, 1, False), (1, 1, False)]
    # nor does it wait for a workflow
    w = jobs.queue_id("w")
    flows = [jobs.workflow("chain", ["step"] * 2, spec("w", expires=30),
                           spec("w"), now=21)[0] for _ in range(2)]
    rows(conn, "select from queen.ojs_workflows where id = %s for update",
         (flows[0].workflow_id,))
    assert jobs.sweep(now=31)[w] == (0, 1, False)
    conn.rollback()
    assert jobs.sweep(now=31)[w] == (0, 1, False)
    assert w not in jobs.sweep(now=31)
    assert jobs.rows("select state, count(*) from queen.ojs_workflows"
                     " group by 1") == [(2, 2)]


# ---- what calls read ----

def reads(jobs):
    """(rows by whole scans, entries of indexes) of jobs and queues so far."""
    jobs.rows("select pg_stat_force_next_flush()")
    seq, = jobs.rows("select sum(seq_tup_read)::bigint from"
                     " pg_stat_user_tables where schemaname = 'queen' and"
                     " relname in ('jobs', 'ojs_queues')")[0]
    idx, = jobs.rows("select sum(idx_tup_read)::bigint from"
                     " pg_stat_user_indexes where schemaname = 'queen' and"
                     " relname in ('jobs', 'ojs_queues')")[0]
    return seq, idx


def fill(jobs):
    """Of every state many, spread over queues; of queue 0 the job itself."""
    ids = [jobs.queue("q%d" % n) for n in range(QUEUES)]
    jobs.rows("insert into queen.ojs_queues (tenant, name) select %s, 'x' || i"
              " from generate_series(1, 3000) i returning 1", TENANT)
    jobs.rows(
        "insert into queen.jobs (tenant, id, queue_id, created_at,"
        " enqueued_at, started_at, ended_at, failed_at, due_at, expires_at,"
        " wake_at, max_attempts, state, rank, type, doc, dead, unique_key)"
        " select %s, gen_random_uuid(), (%s::bigint[])[i %% %s + 1],"
        " b.at, b.at, b.at, case when s in (5, 6, 7) then b.at end,"
        " case when s = 7 then b.at end,"
        " case when s in (2, 3) then b.at + interval '1 d' end,"
        " case when i %% 3 = 0 then b.at + interval '1 d' end,"
        " case when s = 1 then b.at + interval '1 d' end, 3, s, i %% 5, 't',"
        " '\"args\":[]', s = 7 and i %% 2 = 0, sha256(i::text::bytea)"
        " from generate_series(1, %s) i cross join lateral"
        " (select (i / %s %% 8)::smallint s, %s + i * interval '1 ms' as at) b"
        " returning 1", TENANT, ids, QUEUES, ROWS, QUEUES, at(1000))


@pytest.mark.allpg
def test_what_each_call_reads_of_a_full_table(jobs):
    """Plans made while the table was empty hold when it is full."""
    keys = [r.id for r in jobs.push(*[spec("own") for _ in range(6)], now=500)]

    def work(now):
        """name, call, entries of indexes it may read"""
        uniq = '{"key":"k%d","period_ms":null,"states":[0],"on":"ignore"}' % now
        yield "push", lambda: jobs.put("q3", now=now), 4
        yield "push of ten", lambda: jobs.push(
            *[spec("q%d" % n) for n in range(10)], now=now), 44
        yield "unique", lambda: jobs.put("q3", unique=uniq, now=now), 8
        yield "known", lambda: jobs.push(spec("q3", unique=uniq), now=now), 8
        yield "fetch", lambda: jobs.fetch("q1", now=now), 8
        yield "fetch of five", lambda: jobs.fetch("q1", "q2", n=5, now=now), 20
        yield "fetch of nothing", lambda: jobs.fetch("own2", now=now), 4
        jobs.rows("update queen.jobs set state = 1, worker = 'w',"
                  " granted_ms = 1000 where id = any (%s::uuid[])", keys)
        yield "ack", lambda: jobs.ack(keys[0], now=now), 4
        yield "ack of none", lambda: jobs.ack(str(uuid.uuid4()), now=now), 4
        yield "nack", lambda: jobs.nack(keys[1], now=now), 4
        yield "requeue", lambda: jobs.nack(keys[2], requeue=True, now=now), 4
        yield "cancel", lambda: jobs.cancel(keys[3], now=now), 4
        yield "beat", lambda: jobs.beat(keys, now=now), 14
        yield "activate", lambda: jobs.activate(keys[3], now=now), 6
        yield "get", lambda: jobs.get(keys[4], now=now), 4
        yield "sweep of nothing", lambda: jobs.sweep(now=now), 4
        yield "dead letters", lambda: jobs.dead(limit=10), 34
        yield "of a queue", lambda: jobs.dead("q8", limit=10), 34
        yield "dead retry", lambda: jobs.call(
            "jobs_dead_retry_v1", keys[0], now=now), 4
        yield "dead delete", lambda: jobs.call(
            "jobs_dead_delete_v1", keys[0], now=now), 4
        yield "events", lambda: jobs.events(limit=10, now=now + 1), 190
        # a hundred queues, from anywhere on, and the dead letters of five
        yield "prune of nothing", lambda: jobs.rows(
            "select queen.jobs_prune_v1(100, %s)", at(now)), \
            400 + 5 * (ROWS // QUEUES // 8)
        yield "ready", lambda: jobs.rows(
            "select * from queen.jobs_ready_v1(%s, %s)", [1, 2, 3], at(now)), 9

    for _, call, _ in work(600):
        call()                          # the plans of an empty table
    fill(jobs)
    jobs.rows("update queen.jobs set ended_at = %s where ended_at < %s",
              at(1000), at(1000))
    jobs.rows("vacuum analyze queen.jobs, queen.ojs_queues")
    over = []
    for name, call, most in work(1030):
        before = reads(jobs)
        call()
        seq, idx = (b - a for a, b in zip(before, reads(jobs)))
        if seq or idx > most:
            over.append((name, seq, idx, most))
    assert not over, over
    # a sweep of a part of what is due reads that part
    jobs.rows("update queen.jobs set expires_at = null where expires_at < %s",
              at(1000))
    before = reads(jobs)
    done = jobs.sweep(now=1000 + 3 * 86400, limit=20)
    assert sum(d[1] for d in done.values()) == 60
    assert reads(jobs)[1] - before[1] < 400


def test_dead_entries_are_not_walked_again(jobs, connect, db):
    """Under a held snapshot claims begin where the last ones ended."""
    jobs.push(*[spec() for _ in range(600)])
    jobs.rows("vacuum analyze queen.jobs")
    holder = db.connect(autocommit=False)
    rows(holder, "set transaction isolation level repeatable read")
    rows(holder, "select count(*) from queen.jobs")
    seen, cost = {}, []
    for n in range(500):
        before = reads(jobs) if n in (2, 498) else None
        for r in jobs.fetch(seen=seen.values()):
            seen[r.queue_id, r.rank] = place(r)
        if before:
            cost.append(reads(jobs)[1] - before[1])
    before = reads(jobs)
    assert len(jobs.fetch()) == 1
    assert cost[1] <= cost[0] + 2 and cost[1] < 10, cost
    assert reads(jobs)[1] - before[1] > 450     # as all of them would be
    holder.rollback()

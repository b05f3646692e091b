# SPDX-License-Identifier: Apache-2.0
"""810 and 812: unique jobs, rate limits, and the quota of a queue."""
import hashlib
import json
import unicodedata

import psycopg2.errors
import pytest

from hotkit import together
from ojsjobkit import Jobs, jobs, seconds, spec, unique  # noqa: F401
from queenlib import OTHER_TENANT
from sqlkit import at


def rate(max=1, period_ms=1000, key="", concurrency=None):
    return json.dumps({"key": key, "max": max, "period_ms": period_ms,
                       "concurrency": concurrency})


# ---- unique ----

@pytest.mark.allpg
def test_the_key_is_the_hash_of_the_normal_form(jobs):
    text = '{"args":["e\u0301\\u0000"],"type":"a"}'
    (row,) = jobs.push(spec(unique=unique(text)))
    normal = unicodedata.normalize("NFC", text)
    assert normal != text
    assert row.unique_key == hashlib.sha256(normal.encode()).hexdigest()
    (again,) = jobs.push(spec(unique=unique(normal)))
    assert (again.verdict, again.id, again.unique_key) == (
        "unique", row.id, row.unique_key)
    other = Jobs(jobs.conn, OTHER_TENANT)
    assert other.push(spec(unique=unique(text)))[0].verdict == "ok"
    assert jobs.push(spec(unique=unique(text + " ")))[0].verdict == "ok"


@pytest.mark.allpg
def test_conflicts_depend_on_states_and_period(jobs):
    def verdict(key, now=10, **kw):
        found = jobs.push(spec(unique=unique(key, **kw)), now=now)[0]
        jobs.rows("delete from queen.jobs where id = %s and created_at = %s",
                  found.id, at(now))
        return found.verdict

    jobs.put(unique=unique("a"), due=20, expires=30, now=1)
    assert verdict("a", states=[2]) == "unique"
    assert verdict("a", states=[0, 1]) == "ok"
    # as a sweep would leave it
    assert verdict("a", now=20, states=[0]) == "unique"
    assert verdict("a", now=20, states=[2]) == "ok"
    assert verdict("a", now=30, states=[0, 2]) == "ok"
    assert verdict("a", now=30, states=[7]) == "unique"
    # a period counts from when it was made
    assert verdict("a", period_ms=9001) == "unique"
    assert verdict("a", period_ms=9000) == "ok"
    id = jobs.put(unique=unique("b"), now=5)
    jobs.cancel(id, now=6)
    assert verdict("b") == "ok"
    assert verdict("b", states=[6]) == "unique"


@pytest.mark.allpg
def test_what_a_conflict_does(jobs):
    old = jobs.put(unique=unique("a"), type="old", now=1)
    (row,) = jobs.push(spec(unique=unique("a", "ignore")), now=2)
    assert (row.verdict, row.id, row.type, row.state) == (
        "known", old, "old", "available")
    (row,) = jobs.push(spec(unique=unique("a", "replace"), due=50), now=3)
    assert row.verdict == "ok" and row.state == "scheduled"
    assert jobs.get(old).state == "cancelled"
    # one that is worked on is replaced too, one that ended stays what it is
    jobs.rows("update queen.jobs set state = 1 where id = %s", row.id)
    (new,) = jobs.push(spec(unique=unique("a", "replace", range(8))), now=4)
    assert jobs.get(row.id).previous_state == "active"
    jobs.fetch(now=5)
    jobs.ack(new.id, now=6)
    assert jobs.push(spec(unique=unique("a", "replace", range(8))),
                     now=7)[0].verdict == "ok"
    assert jobs.get(new.id).state == "completed"

    kept = "replace_except_schedule"
    old = jobs.put(unique=unique("b"), due=90, now=10,
                   doc='"scheduled_at":"soon","args":[1]')
    (row,) = jobs.push(spec(unique=unique("b", kept), due=70,
                            doc='"scheduled_at":"now","args":[2]'), now=11)
    assert (row.state, row.doc) == ("scheduled",
                                    '"scheduled_at":"soon","args":[2]')
    assert jobs.get(row.id, now=89).state == "scheduled"
    assert jobs.get(row.id, now=90).state == "available"
    (row,) = jobs.push(spec(unique=unique("b", kept), doc='"args":[3]'), now=12)
    assert row.doc == '"scheduled_at":"soon","args":[3]'
    # nothing to keep once its time has come
    (row,) = jobs.push(spec(unique=unique("b", kept), doc='"args":[4]'), now=91)
    assert (row.state, row.doc) == ("available", '"args":[4]')


@pytest.mark.allpg
def test_unique_within_a_batch_and_between_sessions(jobs, connect, db):
    rows = jobs.push(spec(type="x", unique=unique("k")), spec(),
                     spec(unique=unique("k", "ignore")),
                     spec(type="z", unique=unique("k", "replace")), now=1)
    assert [(r.verdict, r.idx) for r in rows] == [
        ("ok", 1), ("ok", 2), ("known", 3), ("ok", 4)]
    assert rows[2].id == rows[0].id
    assert jobs.get(rows[0].id).state == "cancelled"
    last = jobs.push(spec(unique=unique("m")), spec(unique=unique("m")))[-1]
    assert (last.verdict, last.idx) == ("unique", 2)
    (taken,) = jobs.push(spec(unique=unique("n"), id=rows[3].id))
    assert (taken.verdict, taken.id, taken.type) == ("taken", rows[3].id, "z")
    others = [Jobs(connect(db)) for _ in range(6)]
    keys = ["a%d" % n for n in range(5)]

    def push(i):        # in orders of their own: no deadlock
        order = keys[i % 5:] + keys[:i % 5]
        return others[i].push(*[spec(unique=unique(k, "ignore"))
                                for k in order])

    rows = [r for found in together(6, push) for r in found]
    assert sorted(r.verdict for r in rows) == ["known"] * 25 + ["ok"] * 5
    assert len({r.id for r in rows}) == 5


def entries(jobs):
    """Of the indexes of jobs, as many as were read so far."""
    jobs.rows("select pg_stat_force_next_flush()")
    return jobs.value("select sum(idx_tup_read)::bigint from"
                      " pg_stat_user_indexes where relid ="
                      " 'queen.jobs'::regclass")


def test_those_that_ended_do_not_make_a_unique_push_dear(jobs):
    """With plans that were made before there were any."""
    def push(**kw):
        before = entries(jobs)
        row = jobs.push(spec(unique=unique("k", **kw)), now=50)[0]
        return row, entries(jobs) - before

    ended = {"states": range(8)}
    for _ in range(2):
        jobs.push(spec(unique=unique("k", "replace", **ended)), now=1)
    jobs.rows("delete from queen.jobs")
    queue = jobs.queue_id()
    jobs.rows("insert into queen.jobs (tenant, id, queue_id, created_at,"
              " ended_at, max_attempts, state, rank, type, doc, unique_key)"
              " select %s, gen_random_uuid(), %s, %s::timestamptz + i *"
              " interval '1 ms', %s, 1, 5 + (i = 2000)::int, 0, 't', '',"
              " queen.job_unique_key('k') from generate_series(1, 5000) i",
              jobs.tenant, queue, at(10), at(40))
    for kw in {"states": [7]}, {"states": [6], "period_ms": 37999}:
        row, n = push(on="reject", **kw)
        assert row.verdict == "ok" and n <= 20
        jobs.rows("delete from queen.jobs where id = %s", row.id)
    for kw, want in (({"states": [6], "period_ms": 38001}, 12),
                     (ended, 15), ({"states": [5, 6]}, 15)):
        row, n = push(on="reject", **kw)
        assert (row.verdict, seconds(row.created_at)) == ("unique", want)
        assert n <= 20
    row, n = push()
    assert row.verdict == "ok" and n <= 20
    again, n = push(**ended)
    assert (again.verdict, again.id) == ("unique", row.id) and n <= 20


@pytest.mark.allpg
@pytest.mark.parametrize("on", ["reject", "ignore", "replace",
                                "replace_except_schedule"])
def test_what_a_workflow_holds_keeps_its_key(jobs, on):
    """It cannot be replaced, nor be an answer; with its end the key is free.
    Jobs of one workflow do not replace each other."""
    same = spec(unique=unique("k", on))
    for kind, roles, specs in (
            ("chain", ["step"] * 2, [same, same]),
            ("chain", ["step"] * 3, [spec(), same, same]),
            ("group", ["job"] * 2, [same, same]),
            ("batch", ["job", "on_complete"], [same, same])):
        specs = [spec(id=None)[:1] + s[1:] for s in specs]
        jobs.rows("begin")
        last = jobs.workflow(kind, roles, *specs, now=1)[-1]
        jobs.rows("rollback")
        assert (last.verdict, last.id, last.workflow_id) == (
            "unique", specs[-2][0], None)
    first, held = jobs.workflow(
        "chain", ["step"] * 2, spec("w"), spec(unique=unique("k", on)), now=2)
    (row,) = jobs.push(spec(unique=unique("k", on)), now=3)
    assert (row.verdict, row.id, row.state, row.workflow_id) == (
        "unique", held.id, "held", first.workflow_id)
    assert jobs.push(spec(unique=unique("k", on, states=[0, 1])),
                     now=3)[0].verdict == "ok"
    jobs.cancel(first.id, now=4)
    assert jobs.rows("select state, count(*) from queen.jobs where"
                     " workflow_id = %s group by 1",
                     first.workflow_id) == [(6, 2)]


def test_workflows_take_their_keys_in_one_order(jobs, connect, db):
    """Or each pair that meets is a deadlock."""
    others = [Jobs(connect(db)) for _ in range(2)]

    def make(i):
        for n in range(40):
            rows = others[i].workflow("chain", ["step"] * 2, *[
                spec("w%d" % i, unique=unique("%d.%d" % (n, k ^ i)))
                for k in range(2)])
            assert rows[-1].verdict in ("ok", "unique")

    together(2, make)


@pytest.mark.allpg
def test_a_job_of_a_dropped_queue_keeps_no_key(jobs):
    for n, on in enumerate(["reject", "ignore", "replace"]):
        old = jobs.put("gone", unique=unique("k"), now=1)
        jobs.rows("select queen.ojs_queue_drop_v1(%s, 'gone', %s)",
                  jobs.tenant, at(2))
        (row,) = jobs.push(spec("gone", unique=unique("k", on)), now=3)
        assert row.verdict == "ok" and row.id != old
        assert jobs.value("select state from queen.jobs where id = %s",
                          old) == 0
        jobs.cancel(row.id, now=4)


# ---- rate limits ----

@pytest.mark.allpg
def test_a_limit_holds_back_its_own_jobs_only(jobs):
    limited = [jobs.put(rate=rate(), priority=5, now=n) for n in range(3)]
    free = [jobs.put(now=n) for n in range(3)]
    assert jobs.ids(n=2, now=100) == [limited[0], free[0]]
    assert jobs.ids(now=100.5) == [free[1]]
    assert jobs.ids(n=9, now=100.999) == [free[2]]
    assert jobs.ids(n=9, now=100.999) == []
    queue = jobs.queue_id()
    ready = ("select queue_id from queen.jobs_ready_v1(%s, %s)", [queue])
    assert jobs.rows(*ready, at(100.999)) == []
    assert jobs.rows(*ready, at(101)) == [(queue,)]
    assert jobs.ids(n=9, now=101) == [limited[1]]
    assert jobs.ids(n=9, now=101.5) == []
    assert jobs.ids(n=9, now=109) == [limited[2]]


@pytest.mark.allpg
def test_windows_slide_keys_are_apart_and_concurrency_counts(jobs):
    jobs.push(*[spec(rate=rate(5, 10000, "k%d" % (n % 2))) for n in range(40)],
              now=1)
    assert len(jobs.ids(n=3, now=10)) == 3      # either key
    assert len(jobs.ids(n=20, now=12)) == 7     # in any case the rest of both
    assert jobs.ids(n=20, now=19.9) == []
    assert len(jobs.ids(n=20, now=20.1)) == 3
    assert len(jobs.ids(n=20, now=22.1)) == 7
    assert jobs.rows("select cardinality(taken_at) <= 3 from queen.ojs_rates"
                     ) == [(True,)] * 2
    # one period later nothing of it is kept
    jobs.rows("select queen.jobs_prune_v1(10, %s)", at(33))
    assert jobs.rows("select * from queen.ojs_rates") == []

    limit = rate(None, None, "c", 2)
    ids = [jobs.put("c", rate=limit, now=n) for n in range(5)]
    assert jobs.ids("c", n=9, now=50) == ids[:2]
    assert jobs.ids("c", n=9, now=60) == []
    jobs.ack(ids[0], now=61)
    assert jobs.ids("c", n=9, now=62) == [ids[2]]
    # of a limit that a hundred claims a period wore out no more is kept
    jobs.push(*[spec("d", rate=rate(1000, 1000, "d")) for _ in range(300)])
    for n in range(150):
        jobs.fetch("d", now=1000 + n * 0.006)
    most = jobs.value("select cardinality(taken_at) from queen.ojs_rates"
                      " where queue_id = %s", jobs.queue_id("d"))
    assert 50 < most <= 101


@pytest.mark.allpg
def test_many_fetch_under_one_limit(jobs, connect, db):
    jobs.push(*[spec(rate=rate(7, 3600000)) for _ in range(40)], now=1)
    others = [Jobs(connect(db)) for _ in range(6)]
    got = together(6, lambda i: [x for _ in range(8) for x in others[i].ids(
        n=2, now=100)])
    got = sum(got, []) + jobs.ids(n=9, now=100)
    assert len(got) == len(set(got)) == 7


def test_thousands_of_limited_jobs_stand_in_nobodys_way(jobs):
    jobs.push(*[spec(rate=rate(1, 3600000, "k"), priority=9)
                for _ in range(2000)], now=1)
    free = jobs.put(now=2)
    jobs.rows("vacuum analyze queen.jobs")
    reads = ("select sum(idx_tup_read)::bigint from pg_stat_user_indexes"
             " where relid = 'queen.jobs'::regclass")
    assert len(jobs.ids(now=3)) == 1
    jobs.rows("select pg_stat_force_next_flush()")
    before = jobs.value(reads)
    assert jobs.ids(n=5, now=4) == [free]
    jobs.rows("select pg_stat_force_next_flush()")
    assert jobs.value(reads) - before < 20
    # nor do many keys keep each other from their turn
    jobs.push(*[spec("m", rate=rate(1, 3600000, "k%d" % n))
                for n in range(200)], now=1)
    got = []
    for n in range(60):
        got += jobs.ids("m", n=20, now=5)
    assert len(got) == 200


@pytest.mark.allpg
def test_a_fetch_locks_what_it_gives(jobs, connect, db):
    """Not a hundred jobs of many keys to choose ten; who comes meanwhile has
    the next ones."""
    ids = [r.id for n in range(3) for r in jobs.push(*[
        spec(rate=rate(50, 3600000, "k%d" % k)) for k in range(40)], now=n)]
    other = Jobs(connect(db))
    jobs.rows("begin")
    assert jobs.ids(n=10, now=100) == ids[:10]
    # xmax of a row that waits: who locked it
    assert jobs.rows(
        "select (select count(*) from queen.jobs where state = 0 and xmax ="
        " pg_current_xact_id()::xid), (select count(*) from queen.ojs_rates)"
        ) == [(0, 10)]
    assert other.ids(n=10, now=100) == ids[10:20]
    other.rows("begin")
    assert other.ids(n=20, now=100) == ids[20:40]
    assert jobs.ids(n=9, now=100) == ids[40:49]
    for one in other, jobs:
        one.rows("commit")
    assert other.ids(n=40, now=101) == ids[49:89]


# ---- quota ----

@pytest.mark.allpg
def test_the_quota_counts_what_has_not_ended(jobs):
    jobs.queue(max_jobs=6)
    ids = [jobs.put(now=1), jobs.put(now=1), jobs.put(due=90, now=1),
           jobs.put(pending=True, now=1), jobs.put(rate=rate(), now=1)]
    jobs.fetch(now=2)
    (row,) = jobs.push(spec("free"), spec(), spec(), now=3)
    assert (row.verdict, row.idx, row.queue) == ("full", 2, "q")
    ids.append(jobs.put(now=3))
    assert jobs.push(spec(), now=3)[0].verdict == "full"
    assert jobs.push(spec("free"), now=3)[0].verdict == "ok"
    for id in ids:
        jobs.cancel(id, now=4)
        jobs.put(now=4)
        assert jobs.push(spec(), now=4)[0].verdict == "full"
    # what a workflow holds is to come
    jobs.queue("flow", max_jobs=3)
    steps = [spec("flow") for _ in range(4)]
    jobs.rows("begin")
    assert jobs.workflow("chain", ["step"] * 4, *steps,
                         now=5)[-1].verdict == "full"
    jobs.rows("rollback")
    jobs.workflow("chain", ["step"] * 3, *steps[:3], now=5)
    assert jobs.push(spec("flow"), now=6)[0].verdict == "full"


@pytest.mark.allpg
def test_who_waits_for_a_key_is_refused_in_time(jobs, connect, db):
    jobs.put()      # who makes a queue is waited for
    holder = Jobs(connect(db))
    holder.rows("begin")
    holder.put(unique=unique("k"))
    with pytest.raises(psycopg2.errors.LockNotAvailable):
        jobs.put(unique=unique("k"))


@pytest.mark.allpg
def test_a_large_quota_is_counted_now_and_then(jobs):
    queue = jobs.queue(max_jobs=2000)
    jobs.push(*[spec() for _ in range(1990)], now=1)
    counted = ("select jobs from queen.ojs_job_counts where queue_id = %s")
    assert jobs.value(counted, queue) == 0
    for n in range(20):         # what was counted a second ago is good enough
        jobs.put(now=1.5)
    assert jobs.value(counted, queue) == 0
    assert jobs.push(spec(), now=2.5)[0].verdict == "full"
    assert jobs.value(counted, queue) == 2001       # the quota and one
    jobs.rows("update queen.jobs set state = 5, ended_at = %s", at(2))
    assert jobs.push(spec(), now=3)[0].verdict == "full"
    assert jobs.push(spec(), now=4)[0].verdict == "ok"

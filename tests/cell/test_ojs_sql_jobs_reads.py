# SPDX-License-Identifier: Apache-2.0
"""815 and 817: dead letters, events, what is ready, what is kept, and nothing."""
import threading

import pytest

from ojsjobkit import Jobs, jobs, policy, seconds, spec, unique  # noqa: F401
from queenlib import OTHER_TENANT, wait_until
from sqlkit import at

pytestmark = pytest.mark.allpg
DAY = 86400


def die(jobs, queue="q", now=10, dead=True, **kw):
    """A job that was discarded at a moment."""
    id = jobs.put(queue, policy=policy(dead=dead), max_attempts=1, now=now - 2,
                  **kw)
    assert jobs.ids(queue, now=now - 1) == [id]
    jobs.nack(id, now=now)
    return id


def test_dead_letters(jobs):
    ids = [die(jobs, "ab"[n % 2], now=10 + n, type="t%d" % (n % 3))
           for n in range(6)]
    die(jobs, "a", now=30, dead=False)
    newest = ids[::-1]
    page = jobs.dead()
    assert [r.id for r in page] == newest
    assert {(r.verdict, r.state, len(r.errors)) for r in page} == {
        ("ok", "discarded", 1)}
    assert [r.id for r in jobs.dead(limit=2, offset=3)] == newest[3:5]
    assert [r.id for r in jobs.dead(after=page[1], limit=3)] == newest[2:5]
    assert [r.id for r in jobs.dead("a")] == newest[1::2]
    assert [r.id for r in jobs.dead("a", after=page[1])] == newest[3::2]
    assert [r.id for r in jobs.dead(type="t1")] == [ids[4], ids[1]]
    assert [r.id for r in jobs.dead("b", "t0")] == [ids[3]]
    assert jobs.dead("nowhere") == []
    count = "select queen.jobs_dead_count_v1(%s, %s, %s)"
    for args, want in (((None, None), 6), (("a", None), 3), (("b", "t0"), 1),
                       ((None, "t2"), 2), (("nowhere", None), 0)):
        assert jobs.value(count, jobs.tenant, *args) == want
    assert jobs.call("jobs_dead_get_v1", ids[0]).type == "t0"

    row = jobs.call("jobs_dead_delete_v1", ids[0])
    assert (row.verdict, row.id) == ("ok", ids[0])
    assert jobs.get(ids[0]).verdict == "missing"
    # it came back: out of the set, and it cannot expire any more
    jobs.rows("update queen.jobs set expires_at = %s", at(20))
    row = jobs.call("jobs_dead_retry_v1", ids[1], now=40)
    assert (row.verdict, row.state, row.previous_state) == (
        "ok", "available", "discarded")
    assert jobs.ids("b", now=41) == [ids[1]]
    for name in "get", "retry", "delete":
        for id in ids[:2]:
            row = jobs.call("jobs_dead_%s_v1" % name, id)
            assert (row.verdict, row.id) == ("missing", id)
    other = Jobs(jobs.conn, OTHER_TENANT)
    assert other.dead() == []
    assert other.call("jobs_dead_delete_v1", ids[2]).verdict == "missing"
    jobs.queue("a", deleted_at=at(50))
    assert [r.id for r in jobs.dead()] == [ids[5], ids[3]]
    assert jobs.call("jobs_dead_get_v1", ids[2]).verdict == "missing"


def test_events_in_order(jobs):
    a = jobs.put("a", type="x", now=1)
    b = jobs.put("b", type="y", now=2)
    c = jobs.put("a", type="y", max_attempts=1, now=3)
    assert jobs.ids("a", now=4) == [a]
    jobs.ack(a, now=5.5)
    jobs.ids("b", now=6)
    jobs.nack(b, now=7)
    jobs.ids("a", now=8)
    jobs.nack(c, now=9)
    jobs.cancel(b, now=10)
    d = jobs.put("a", expires=12, now=11)
    jobs.sweep(now=13)
    want = [(1, "enqueued", a), (2, "enqueued", b), (3, "enqueued", c),
            (4, "started", a), (5.5, "completed", a), (6, "started", b),
            (7, "failed", b), (7, "retrying", b), (8, "started", c),
            (9, "failed", c), (9, "discarded", c), (10, "cancelled", b),
            (11, "enqueued", d), (13, "discarded", d)]

    def brief(rows):
        return [(seconds(r.at), r.event.removeprefix("job."), r.id)
                for r in rows]

    rows = jobs.events(now=20)
    assert brief(rows) == want
    done = rows[4]
    assert (done.type, done.queue, done.attempt, done.duration_ms) == (
        "x", "a", 1, 1500)
    assert '"attempt":1' in rows[6].detail
    assert (rows[6].duration_ms, rows[11].duration_ms) == (1000, None)
    assert (rows[10].duration_ms, rows[13].duration_ms) == (1000, None)
    # page by page the same, whatever the size
    for limit in 1, 2, 5:
        got, after = [], None
        while page := jobs.events(after, limit=limit, now=20):
            assert len(page) <= limit
            got += brief(page)
            after = page[-1]
        assert got == want, limit
    # too young to be sure that nothing comes before it
    assert brief(jobs.events(rows[10], now=10.09)) == []
    assert brief(jobs.events(rows[10], now=10.1)) == want[11:12]
    # filters, each page as full as there are
    types = ["job.discarded", "job.retrying", "job.unheard"]
    assert brief(jobs.events(types=types, limit=2, now=20)) == [
        want[7], want[10]]
    assert brief(jobs.events(types=["job.failed"], now=20)) == [
        want[6], want[9]]
    assert brief(jobs.events(types=[], now=20)) == []
    assert {r.id for r in jobs.events(queues=["b", "no"], now=20)} == {b}
    assert jobs.events(queues=["no"], now=20) == []
    assert {r.id for r in jobs.events(queues=["a"], job_types=["y"],
                                      now=20)} == {c}
    assert Jobs(jobs.conn, OTHER_TENANT).events(now=20) == []
    # of one moment, and with a cursor nobody gave
    many = [r.id for r in jobs.push(*[spec() for _ in range(50)], now=30)]
    got, after = [], rows[-1]
    while page := jobs.events(after, limit=7, now=40):
        got += [r.id for r in page]
        after = page[-1]
    assert got == sorted(many)
    odd = after._replace(key="\u00e9'--" * 20, at=at(13))
    assert len(jobs.events(odd, now=40)) == 50


def test_events_of_an_attempt_stay_those_of_it(jobs):
    def of(*names):
        return [(r.event[4:], seconds(r.at), r.attempt)
                for r in jobs.events(types=["job." + n for n in names],
                                     now=99)]

    jobs.put(max_attempts=2, policy=policy(dead=True), now=1)
    (id,) = jobs.ids(now=2)
    jobs.nack(id, now=3)
    first = [("failed", 3, 1), ("retrying", 3, 1)]
    assert of("failed", "retrying") == first
    assert jobs.ids(now=5) == [id]
    assert of("failed", "retrying") == first
    jobs.nack(id, now=6)
    last = [("failed", 6, 2)]
    assert of("failed", "retrying") == last
    # an operator's retry makes what led to it undone
    jobs.call("jobs_dead_retry_v1", id, now=7)
    assert of("failed", "retrying", "discarded") == []


def test_events_wait_for_what_may_commit_before_them(jobs, connect, db):
    """A push that is held up is behind no cursor when it comes."""
    slow = Jobs(connect(db))
    slow.rows("begin")
    first = slow.put("a")
    # without a row yet: it waits for the key
    holder = Jobs(connect(db))
    holder.rows("begin")
    holder.put("b", unique=unique("k"))
    waiter = threading.Thread(target=lambda: slow.put(
        "b", unique=unique("k", "replace")))
    waiter.start()
    wait_until(lambda: db.value(
        "select count(*) from pg_stat_activity where wait_event_type = 'Lock'"
        " and datname = current_database()") == 1)
    jobs.put("c")
    wait_until(lambda: db.value(
        "select created_at < clock_timestamp() - interval '100 ms'"
        " from queen.jobs"))
    assert jobs.events() == []
    holder.rows("commit")
    waiter.join()
    slow.rows("commit")
    wait_until(lambda: len(jobs.events(types=["job.enqueued"])) == 4)
    assert jobs.events()[0].id == first


def test_events_that_match_little_are_looked_for_in_parts(jobs):
    """And the place reached is where the next call goes on."""
    reads = ("select sum(idx_tup_read)::bigint from pg_stat_user_indexes"
             " where relid = 'queen.jobs'::regclass")

    def entries():
        jobs.rows("select pg_stat_force_next_flush()")
        return jobs.value(reads)

    jobs.events(job_types=["rare"], now=9)      # a plan of nothing
    queue, gone = jobs.queue(), jobs.queue("gone", deleted_at=at(5))
    jobs.rows("insert into queen.jobs (tenant, id, queue_id, created_at,"
              " ended_at, max_attempts, state, rank, type, doc) select %s,"
              " gen_random_uuid(), %s, %s::timestamptz + i / 10000 * interval"
              " '1 s', %s::timestamptz + i * interval '1 ms', 1, 5, 0, case i"
              " when 21000 then 'rare' else 't' end, '' from"
              " generate_series(1, 24000) i", jobs.tenant, queue, at(10), at(50))
    jobs.rows("vacuum analyze queen.jobs")
    pages, after = [], None
    while not pages or pages[-1] and pages[-1][-1].event is None:
        before = entries()
        pages.append(jobs.events(after, job_types=["rare"], now=200))
        assert entries() - before < 4 * 20000 + 2000
        after = pages[-1] and pages[-1][-1]
    assert 2 <= len(pages) <= 3
    assert [r.event for page in pages for r in page if r.event] == [
        "job.enqueued", "job.completed"]
    before = entries()
    first = jobs.events(limit=10, now=200)
    assert len(first) == 10 and first[-1].event == "job.enqueued"
    assert entries() - before < 200
    # of a queue that is gone none is shown
    jobs.rows("update queen.jobs set queue_id = %s", gone)
    before = entries()
    (row,) = jobs.events(limit=10, now=200)
    assert (row.event, row.id, row.at) == (None, None, first[-1].at)
    assert row.key > first[-1].key and entries() - before < 200


def test_which_queues_have_something(jobs):
    ids = {name: jobs.queue(name) for name in (
        "empty", "free", "paused", "due", "later", "old", "busy", "gone")}
    jobs.put("free", now=1)
    jobs.put("paused", now=1)
    jobs.put("due", due=50, now=1)
    jobs.put("later", due=51, now=1)
    jobs.put("old", expires=50, now=1)
    jobs.put("busy", now=1)
    jobs.put("gone", now=1)
    jobs.fetch("busy", now=2)
    jobs.queue("paused", paused_at=at(1))
    jobs.rows("update queen.ojs_queues set deleted_at = %s where id = %s",
              at(1), ids["gone"])
    found = jobs.rows("select queue_id from queen.jobs_ready_v1(%s, %s)",
                      [*ids.values(), 999], at(50))
    names = {id: name for name, id in ids.items()}
    assert {names[r[0]] for r in found} == {"free", "due"}


def prune(jobs, now, limit=100):
    return jobs.value("select queen.jobs_prune_v1(%s, %s)", limit, at(now))


def test_what_ended_is_kept_for_a_while(jobs):
    short = jobs.queue("short", job_retention_ms=1000,
                       dead_letter_retention_ms=5000)
    few = jobs.queue("few", dead_letter_max=2)
    for queue in "q", "short":
        die(jobs, queue, dead=False)
        die(jobs, queue)
        id = jobs.put(queue, now=8)
        jobs.cancel(id, now=10)
        jobs.put(queue, now=8)
    assert prune(jobs, 11) == 0
    assert prune(jobs, 11.5) == 2
    assert prune(jobs, 16) == 1
    assert prune(jobs, 10 + 7 * DAY) == 0
    assert prune(jobs, 11 + 7 * DAY, limit=1) == 1
    assert prune(jobs, 11 + 7 * DAY) == 1
    assert prune(jobs, 10 + 180 * DAY) == 0
    assert prune(jobs, 11 + 180 * DAY) == 1
    left = jobs.rows("select queue_id, count(*) from queen.jobs group by 1"
                     " order by 1")
    assert left == [(short, 1), (jobs.queue_id(), 1)]
    # beyond their number the oldest go
    ids = [die(jobs, "few", now=20 + n) for n in range(5)]
    die(jobs, "few", now=19, dead=False)
    assert prune(jobs, 30, limit=2) == 2
    assert [r.id for r in jobs.dead("few")] == ids[:1:-1]
    assert prune(jobs, 30) == 1
    assert [r.id for r in jobs.dead("few")] == ids[:2:-1]
    assert prune(jobs, 30) == 0
    # what a workflow may still hand on stays
    jobs.rows("update queen.jobs set workflow_id = %s where queue_id = %s",
              ids[0], few)
    jobs.rows("insert into queen.ojs_workflows (tenant, id, kind, total,"
              " created_at) values (%s, %s, 'chain', 1, now())", jobs.tenant,
              ids[0])
    assert prune(jobs, 400 * DAY) == 0
    jobs.rows("update queen.ojs_workflows set ended_at = now()")
    assert prune(jobs, 400 * DAY) == 3


def test_a_reset_empties_one_tenant(jobs):
    other = Jobs(jobs.conn, OTHER_TENANT)
    for who in jobs, other:
        who.put(rate='{"key":"","max":1,"period_ms":1000}')
        who.fetch()
        who.put("r", pending=True)
        who.value("select queen.stream_ensure_v1(%s, 's')", who.tenant)
    jobs.rows("select queen.jobs_reset_v1(%s)", jobs.tenant)
    counts = jobs.rows("select (select count(*) from queen.jobs),"
                       " (select count(*) from queen.ojs_queues),"
                       " (select count(*) from queen.ojs_rates),"
                       " (select count(*) from pg_namespace"
                       " where nspname like 'queen_ojs_%%')")
    assert counts == [(2, 3, 1, 1)]
    assert other.ids(now=999) == [] and jobs.events() == []
    assert jobs.put() and jobs.ids()

# SPDX-License-Identifier: Apache-2.0
"""810 and 815: what becomes of a job, by whom and when."""
import uuid

import psycopg2.errors
import pytest

from ojsjobkit import Jobs, jobs, policy, seconds, spec  # noqa: F401
from queenlib import OTHER_TENANT
from sqlkit import at

pytestmark = pytest.mark.allpg
FIELDS = ("created enqueued started completed cancelled discarded"
          " next_attempt").split()
ENDED = "completed", "cancelled", "discarded"


def times(row):
    """The stamps a job has."""
    return {f: seconds(getattr(row, f + "_at")) for f in FIELDS
            if getattr(row, f + "_at") is not None}


def make(jobs, state):
    """A job that came to a state by second 10; due, expiring at 1000."""
    kw = dict(expires=1000, policy=policy(dead=True, initial_ms=990000,
                                          max_ms=990000))
    if state == "scheduled":
        return jobs.put(due=1000, now=0, **kw)
    if state == "pending":
        return jobs.put(pending=True, now=0, **kw)
    id = jobs.put(now=0, lease_ms=990000, **kw)
    if state == "available":
        return id
    if state == "cancelled":
        assert jobs.cancel(id, now=5).verdict == "ok"
        return id
    assert jobs.ids(now=10) == [id]
    if state == "completed":
        jobs.ack(id, now=10)
    elif state == "retryable":
        jobs.nack(id, now=10)
    elif state == "discarded":
        jobs.nack(id, retryable=False, now=10)
    return id


def swept(jobs, id, now):
    jobs.sweep(now=now)


OPERATIONS = {
    "fetch": lambda j, id: j.ids(n=9, now=20),
    "ack": lambda j, id: j.ack(id, now=20),
    "nack": lambda j, id: j.nack(id, now=20),
    "nack for good": lambda j, id: j.nack(id, retryable=False, now=20),
    "requeue": lambda j, id: j.nack(id, requeue=True, now=20),
    "cancel": lambda j, id: j.cancel(id, now=20),
    "activate": lambda j, id: j.activate(id, now=20),
    "beat": lambda j, id: j.beat([id], now=20),
    "dead retry": lambda j, id: j.call("jobs_dead_retry_v1", id, now=20),
    "sweep": lambda j, id: swept(j, id, 20),
    "sweep at 1000": lambda j, id: swept(j, id, 1000),
}
# state: what an operation makes of it; all others leave it as it is
LEGAL = {
    "available": {"fetch": "active", "cancel": "cancelled",
                  "sweep at 1000": "discarded"},
    "active": {"ack": "completed", "nack": "retryable",
               "nack for good": "discarded", "requeue": "available",
               "cancel": "cancelled", "sweep at 1000": "available"},
    "scheduled": {"cancel": "cancelled", "sweep at 1000": "discarded"},
    "retryable": {"cancel": "cancelled", "sweep at 1000": "discarded"},
    "pending": {"activate": "available", "cancel": "cancelled",
                "sweep at 1000": "discarded"},
    "completed": {}, "cancelled": {}, "discarded": {"dead retry": "available"},
}


def test_every_operation_on_every_state(jobs):
    for state, legal in LEGAL.items():
        for name, operation in OPERATIONS.items():
            id = make(jobs, state)
            assert jobs.get(id, now=11).state == state
            answer = operation(jobs, id)
            now = 1000 if name == "sweep at 1000" else 20
            row, what = jobs.named("select * from queen.jobs_get_v1(%s, %s, %s)",
                                   jobs.tenant, id, at(15))[0], (state, name)
            want = legal.get(name, state)
            assert row.state == want, what
            if hasattr(answer, "verdict"):
                assert answer.verdict == (
                    "ok" if name in legal else
                    "missing" if name == "dead retry" else "conflict"), what
                if answer.verdict != "missing":
                    assert answer.state == want, what
            if name == "beat":
                assert answer[0].held == (state == "active"), what
            if want == state and now == 20 and name != "beat":
                assert row == jobs.get(id, now=15), what
            jobs.rows("delete from queen.jobs")
    # who is asked for and is not there, or is another's
    id = jobs.put(now=0)
    other = Jobs(jobs.conn, OTHER_TENANT)
    for who, asked in ((jobs, str(uuid.uuid4())), (other, id)):
        for name in "ack", "nack", "requeue", "cancel", "activate":
            row = OPERATIONS[name](who, asked)
            assert (row.verdict, row.id, row.state) == ("missing", asked, None)
        assert who.get(asked).verdict == "missing"
    # held by its workflow: nobody sees it; a queue that is gone has no jobs
    for change in ("update queen.jobs set state = 8",
                   "update queen.ojs_queues set deleted_at = now()"):
        jobs.rows(change)
        assert jobs.get(id).verdict == "missing"
        assert jobs.ack(id).verdict == jobs.cancel(id).verdict == "missing"
        assert jobs.ids(now=20) == []
        jobs.rows("update queen.jobs set state = 0")


def test_stamps_of_each_transition(jobs):
    a = jobs.put(now=1)
    assert times(jobs.get(a)) == {"created": 1, "enqueued": 1}
    b = jobs.put(due=50, now=2)
    assert times(jobs.get(b, now=3)) == {"created": 2}
    (row,) = jobs.fetch(worker="w", now=5)
    assert times(row) == {"created": 1, "enqueued": 1, "started": 5}
    assert (row.worker, row.attempt, seconds(row.lease_until)) == ("w", 1, 1805)
    row = jobs.nack(a, now=8)
    assert times(row) == {"created": 1, "enqueued": 1, "started": 5,
                          "next_attempt": 9}
    assert (row.retry_delay_ms, row.worker, row.lease_until) == (1000, None,
                                                                 None)
    assert row.errors == [row.error] == [{
        "code": "handler_error", "attempt": 1,
        "occurred_at": "2026-01-01T00:00:08.000Z"}]
    (row,) = jobs.fetch(now=9)          # promoted; the delay is still told
    assert times(row) == {"created": 1, "enqueued": 9, "started": 9}
    assert (row.retry_delay_ms, row.attempt) == (1000, 2)
    assert row.error["attempt"] == 1
    row = jobs.nack(a, requeue=True, now=10)
    assert times(row) == {"created": 1, "enqueued": 10}
    assert (row.attempt, len(row.errors), row.state) == (2, 1, "available")
    jobs.fetch(now=11)
    row = jobs.ack(a, result='{"x": 1}', now=12)
    assert times(row) == {"created": 1, "enqueued": 10, "started": 11,
                          "completed": 12}
    assert (row.result, row.error, len(row.errors)) == ('{"x": 1}', None, 1)
    # said again: where it stands, and who did it
    jobs.rows("update queen.jobs set worker = 'w' where id = %s", a)
    row = jobs.ack(a, now=13)
    assert (row.verdict, row.state, row.worker, row.attempt) == (
        "conflict", "completed", "w", 3)

    row = jobs.cancel(b, now=20)
    assert times(row) == {"created": 2, "cancelled": 20}
    assert row.previous_state == jobs.get(b).previous_state == "scheduled"

    c = jobs.put(max_attempts=1, policy=policy(dead=True), now=30)
    jobs.fetch(now=31)
    row = jobs.nack(c, now=32)
    assert times(row) == {"created": 30, "enqueued": 30, "started": 31,
                          "completed": 32, "discarded": 32}
    row = jobs.call("jobs_dead_retry_v1", c, now=33)
    assert times(row) == {"created": 30, "enqueued": 33}
    assert (row.attempt, row.error, len(row.errors)) == (0, None, 1)
    (row,) = jobs.fetch(now=34)
    assert (row.id, row.attempt, row.error) == (c, 1, None)

    d = jobs.put(expires=41, now=40)
    assert times(jobs.get(d, now=41)) == {"created": 40, "enqueued": 40,
                                          "discarded": 41}
    jobs.sweep(now=42)
    assert times(jobs.get(d, now=43)) == {"created": 40, "enqueued": 40,
                                          "discarded": 42}
    e = jobs.put(pending=True, due=60, now=50)
    row = jobs.activate(e, now=55)
    assert (row.state, row.previous_state) == ("scheduled", "pending")
    assert jobs.get(e, now=60).state == "available"
    assert seconds(jobs.get(e, now=60).enqueued_at) == 60


def test_who_holds_a_job_may_end_it(jobs):
    a, b = jobs.put(now=1), jobs.put(now=2)
    jobs.fetch(worker="w1", now=3)
    jobs.fetch(now=3)
    for call in jobs.ack, jobs.nack:
        assert call(a, worker="w2", now=4).verdict == "worker"
        assert call(a, worker="w1", attempt=2, now=4).verdict == "attempt"
        assert call(b, attempt=0, now=4).verdict == "attempt"
    row = jobs.ack(a, worker="w2", now=4)
    assert (row.worker, row.attempt, row.state) == ("w1", 1, "active")
    # of the two one names no worker
    assert jobs.ack(a, attempt=1, now=5).verdict == "ok"
    assert jobs.nack(b, worker="w9", now=5).verdict == "ok"


def test_delays(jobs):
    def delay(attempt, random=None, **kw):
        return jobs.value("select queen.job_delay(%s, %s, %s)",
                          policy(jitter=random is not None, **kw), attempt,
                          random)

    whole = [delay(n) for n in range(1, 12)]
    assert whole == [1000 * 2 ** n for n in range(9)] + [300000, 300000]
    assert [delay(n, coefficient=1) for n in (1, 5)] == [1000, 1000]
    for name in "none", "constant":
        assert [delay(n, strategy=name) for n in (1, 9)] == [1000, 1000]
    assert [delay(n, strategy="linear") for n in (1, 2, 7, 500)] == [
        1000, 2000, 7000, 300000]
    assert [delay(n, strategy="polynomial") for n in (1, 2, 3, 99)] == [
        1000, 4000, 9000, 300000]
    assert delay(2, strategy="polynomial", coefficient=1.5) == 2828
    # the jitter, capped again; nothing overflows
    assert [delay(3, random=r) for r in (0, 0.5, 0.999999)] == [
        2000, 4000, 6000]
    assert [delay(9, random=r) for r in (0, 0.999999)] == [128000, 300000]
    for strategy in "linear", "exponential", "polynomial":
        for coefficient in 1.0, 2, 1e6, 1e300:
            top = delay(2147483647, strategy=strategy, max_ms=3 * 10 ** 12,
                        initial_ms=3 * 10 ** 12, coefficient=coefficient)
            assert top == 3 * 10 ** 12
    # no policy: the default, jittered
    assert [jobs.value("select queen.job_delay(null, 2, %s)", r)
            for r in (None, 0, 0.75)] == [2000, 1000, 2500]


# policy, nack, discarded (None = retryable), a dead letter
DECISIONS = [
    (dict(), dict(), None, False),
    (dict(dead=True), dict(retryable=False), True, True),
    (dict(), dict(retryable=False), True, False),
    (dict(dead=True), dict(code="DISCARD"), True, False),
    (dict(dead=True), dict(code="FAIL", retryable=True), True, False),
    (dict(), dict(code="DEAD_LETTER"), True, True),
    (dict(), dict(code="RETRY", retryable=False), None, False),
    (dict(stop=["boom"]), dict(), True, False),
    (dict(stop=["boom"], dead=True), dict(code="RETRY"), True, True),
    (dict(stop=["Boom"]), dict(), None, False),
    (dict(stop=["handler_error"]), dict(), True, False),
    (dict(stop=["pkg.Err"]), dict(cls="pkg.Err"), True, False),
    (dict(stop=["x", "auth.*"]), dict(type="auth.expired"), True, False),
    (dict(stop=["auth.*"]), dict(type="auth"), None, False),
    (dict(stop=["auth.*"]), dict(type="author.x"), None, False),
    (dict(stop=["auth.*"]), dict(type="auth.*"), True, False),
    (dict(stop=["auth.*"]), dict(type="Auth.x"), None, False),
    (dict(dead=True), dict(last=True), True, True),
    (dict(), dict(last=True, code="RETRY"), True, False),
]


def test_what_a_failure_decides(jobs):
    for rule, nack, discarded, dead in DECISIONS:
        nack = dict(nack)
        id = jobs.put(policy=policy(**rule),
                      max_attempts=1 if nack.pop("last", False) else 2, now=0)
        jobs.fetch(now=1)
        row, what = jobs.nack(id, now=2, **nack), (rule, nack)
        assert row.state == ("discarded" if discarded else "retryable"), what
        assert (jobs.call("jobs_dead_get_v1", id).verdict == "ok") == dead, what
        jobs.rows("delete from queen.jobs")
    # 0 and 1 are one run; the default policy has no dead letters
    id = jobs.put(policy=None, max_attempts=0, now=0)
    jobs.fetch(now=1)
    assert jobs.nack(id, now=2).state == "discarded"
    assert jobs.dead() == []


def test_the_newest_25_errors_are_kept(jobs):
    id = jobs.put(max_attempts=100, policy=policy(strategy="none"), now=0)
    for n in range(1, 31):
        assert jobs.ids(now=10 * n) == [id]
        jobs.nack(id, error='"message":"\\u0000\\"%d"' % n, now=10 * n + 1)
    row = jobs.get(id, now=302)
    assert [e["attempt"] for e in row.errors] == list(range(6, 31))
    assert row.error == row.errors[-1]
    assert row.error["message"] == '\0"30'


def test_two_clocks_of_an_active_job(jobs):
    a = jobs.put(lease_ms=10000, now=0)
    b = jobs.put(lease_ms=10000, timeout_ms=10000, now=1)
    c = jobs.put(lease_ms=10000, timeout_ms=4000, max_attempts=1, now=2)
    d = jobs.put(lease_ms=10000, max_attempts=1, now=3)
    queue = jobs.queue_id()
    assert jobs.ids(n=4, worker="w", now=10) == [a, b, c, d]
    assert jobs.sweep(now=13.999) == {}
    assert jobs.sweep(now=14.5) == {queue: (0, 1, False)}
    row = jobs.get(c)
    assert (row.state, seconds(row.completed_at)) == ("discarded", 14.5)
    assert row.error["type"] == row.error["code"] == "timeout"
    assert row.error["details"] == {"timeout_kind": "execution",
                                    "limit_ms": 4000, "elapsed_ms": 4500}
    assert jobs.sweep(now=20, limit=2) == {queue: (1, 2, True)}
    assert jobs.sweep(now=20, limit=2) == {queue: (0, 1, False)}
    row = jobs.get(a, now=20)           # at once, without a delay
    assert (row.state, row.attempt, row.worker) == ("available", 1, None)
    assert (seconds(row.enqueued_at), row.started_at) == (20, None)
    assert row.error["type"] == "visibility_timeout"
    assert row.error["details"] == {"lease_ms": 10000}
    row = jobs.get(b, now=20)           # both at once: with a delay
    assert (row.state, row.error["type"]) == ("retryable", "timeout")
    assert row.retry_delay_ms == 1000
    assert jobs.get(d).state == "discarded"
    # the policy has no say in what a lost lease does, attempts have
    e = jobs.put(policy=policy(stop=["visibility_timeout", "timeout"]),
                 lease_ms=10, timeout_ms=20, now=30)
    jobs.rows("delete from queen.jobs where id <> %s", e)
    assert jobs.ids(now=31) == [e]
    jobs.sweep(now=31.015)
    assert jobs.get(e, now=32).state == "available"
    assert jobs.ids(now=33) == [e]
    jobs.sweep(now=33.5)
    assert jobs.get(e, now=34).state == "discarded"


def test_heartbeats(jobs):
    a = jobs.put(lease_ms=5000, doc='"args":[],"options":'
                 '{"metadata":{"test_directive": "quiet"}}', now=0)
    b = jobs.put(timeout_ms=20000, now=1)
    c = jobs.put(now=2)
    jobs.ids(n=2, worker="w", now=10)
    gone = str(uuid.uuid4())
    rows = jobs.beat([c, b, gone, a, a], now=12)
    assert [(r.id, r.held, r.directive) for r in rows] == [
        (c, False, None), (b, True, None), (gone, False, None),
        (a, True, "quiet"), (a, True, "quiet")]
    assert {seconds(r.server_time) for r in rows} == {12}
    # the job's own length again, or what is asked for
    assert seconds(jobs.get(a).lease_until) == 17
    assert seconds(jobs.get(b).lease_until) == 1812
    (row, _) = jobs.beat([a, b], lease_ms=60000, test=False, now=13)
    assert (row.held, row.directive) == (True, None)
    assert seconds(jobs.get(a).lease_until) == 73
    # the execution timeout stays where it was
    assert jobs.sweep(now=29) == {}
    assert list(jobs.sweep(now=30).values()) == [(0, 1, False)]
    assert jobs.get(b).error["type"] == "timeout"
    assert [r.held for r in jobs.beat([a], worker="v", now=31)] == [False]
    (row,) = jobs.beat([], now=32)
    assert (row.id, row.held, seconds(row.server_time)) == (None, False, 32)
    # who fetched without a name is anybody
    assert jobs.ids(now=40) == [c]
    assert [r.held for r in jobs.beat([c], worker="v", now=41)] == [True]


def test_one_push_of_many(jobs):
    specs = [spec("q%d" % (i % 3), type="t%d" % i, doc='"args":[%d]' % i,
                  priority=i % 2) for i in range(1000)]
    rows = jobs.push(*specs, now=1)
    assert [(r.verdict, r.idx, r.id, r.type, r.queue, r.doc, r.rank)
            for r in rows] == [("ok", i + 1, s[0], s[1], s[2], s[3], s[4])
                               for i, s in enumerate(specs)]
    seqs = [r.seq for r in rows]
    assert seqs == sorted(seqs) and len(set(seqs)) == 1000
    # one that is taken fails all; within a batch, too
    with_old = [spec(), spec(id=specs[7][0]), spec()]
    (row,) = jobs.push(*with_old, now=2)
    assert (row.verdict, row.idx, row.type, row.state) == (
        "taken", 2, "t7", "available")
    twice = [spec(id=str(uuid.UUID(int=n))) for n in (5, 6, 5)]
    (row,) = jobs.push(*twice, now=2)
    assert (row.verdict, row.idx, row.id) == ("taken", 3, twice[0][0])
    # the same id of another tenant is another job
    other = Jobs(jobs.conn, OTHER_TENANT)
    assert other.push(spec(id=specs[7][0]), now=3)[0].verdict == "ok"
    # times behind us are now
    row = jobs.push(spec(due=3), now=5)[0]
    assert (row.state, seconds(row.enqueued_at)) == ("available", 5)
    assert jobs.push(spec(due=9, pending=True), now=5)[0].state == "pending"


def test_who_had_the_id_is_gone(jobs):
    """Deleted after it was in the way: the push is to be sent again."""
    with pytest.raises(psycopg2.errors.SerializationFailure):
        jobs.rows("select queen.jobs_taken(%s, array[row(%s, 't', 'q', '', 0,"
                  " 3, null, false, null, null, null, null, null,"
                  " null)::queen.job_spec], 1)", jobs.tenant,
                  str(uuid.uuid4()))


def test_what_ends_tells_its_workflow(jobs):
    """Whoever ends the job, the callback behind it becomes available."""
    def batch(now, **kw):
        specs = [spec("a", **kw), spec("b")]
        rows = jobs.workflow("batch", ["job", "on_complete"], *specs, now=now)
        assert rows[0].state == "available"
        return [s[0] for s in specs]

    calls = {
        "completed": ("jobs_ack_v1(%s, %s, null, null, '1', %s)", True),
        "discarded": ("jobs_nack_v1(%s, %s, null, null, '\"code\":\"x\"', 'x',"
                      " null, null, false, false, 0, %s)", True),
        "cancelled": ("jobs_cancel_v1(%s, %s, %s)", False)}
    for n, (state, (call, fetched)) in enumerate(calls.items()):
        job, callback = batch(100 * n)
        assert jobs.get(callback).verdict == "missing"
        if fetched:
            assert jobs.ids("a", "b", n=2, now=100 * n + 1) == [job]
        rows = jobs.named("select * from queen." + call, jobs.tenant, job,
                          at(100 * n + 2))
        assert [(r.id, r.state, r.queue) for r in rows] == [
            (job, state, "a"), (callback, "available", "b")]
        assert jobs.ids("b", now=100 * n + 3) == [callback]
    b = jobs.queue_id("b")
    for kw in dict(expires=510), dict(lease_ms=1000, max_attempts=1):
        job, callback = batch(500, **kw)
        if "lease_ms" in kw:
            assert jobs.ids("a", now=501) == [job]
        assert jobs.sweep(now=520)[b] == (1, 0, False)
        assert jobs.get(job).state == "discarded"
        assert jobs.ids("b", now=521) == [callback]

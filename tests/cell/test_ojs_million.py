# SPDX-License-Identifier: Apache-2.0
"""
Many waiting jobs, mixed priorities, eight workers: each job runs once, the
order is priority, then age.
"""
import collections
import threading

import pytest

from loadkit import Workers
from queenlib import TENANT

WORKERS = 8
RANKS = (-20, -5, 0, 5)     # rank = -priority


def fill(db, n):
    """Through the function that every push goes through, 10 000 a call."""
    db.rows(
        "select queen.jobs_push_v1(%s, array_agg(gen_random_uuid()),"
        " array_agg('many.run'::text), array_agg('many'::text),"
        " array_agg('\"args\":[' || i || ']'),"
        " array_agg(((%s::smallint[])[1 + (i * 7) %% 4])::smallint),"
        " array_agg(3), array_agg(null::timestamptz), array_agg(false),"
        " array_agg(null::timestamptz), array_agg(null::bigint),"
        " array_agg(null::bigint), array_agg("
        "'{\"initial_ms\":1,\"coefficient\":1,\"max_ms\":1,\"jitter\":false,"
        "\"strategy\":\"none\",\"stop\":[],\"dead\":false}'::text),"
        " array_agg(null::text), array_agg(null::text)) from"
        " generate_series(1, %s) i", (TENANT, list(RANKS), n))


def claim(cur, seen, count):
    """One fetch as the process makes it, with its memory of last claims."""
    cur.execute(
        "select verdict, queue_id, rank, enqueued_at, seq, id, attempt from"
        " queen.jobs_fetch_v1(%s, array['many'], %s, null, null, 1800000,"
        " %s::bigint[], %s::smallint[], %s::timestamptz[], %s::bigint[])",
        (TENANT, count, [k[0] for k in seen], [k[1] for k in seen],
         [v[0] for v in seen.values()], [v[1] for v in seen.values()]))
    jobs = [r for r in cur.fetchall() if r[0] == 0]
    for _, queue, rank, at, seq, _, _ in jobs:
        seen[queue, rank] = (at, seq)
    return jobs


@pytest.mark.amount
@pytest.mark.parametrize("amount, within_s", [
    pytest.param(100000, 240, id="short"),
    pytest.param(1000000, 1800, id="long", marks=pytest.mark.soak)])
def test_each_job_runs_once_in_its_order(db, amount, within_s):
    for _ in range(amount // 10000):
        fill(db, 10000)
    runs, lock = collections.Counter(), threading.Lock()
    wrong, retried = [], set()

    def work(no):
        conn, seen, last = db.connect(), {}, None
        with conn.cursor() as cur:
            while not wrong:
                jobs = claim(cur, seen, 100)
                if not jobs:
                    # those that were nacked come back a moment later
                    with lock:
                        if sum(runs.values()) == amount:
                            return
                    seen.clear()
                    continue
                done = []
                for _, _, rank, at, seq, ident, attempt in jobs:
                    if attempt == 1:
                        here = (rank, at, seq)
                        if last and here <= last:
                            wrong.append((no, last, here))
                        last = here
                    if attempt == 1 and seq % 100 == 0:
                        cur.execute(
                            "select verdict from queen.jobs_nack_v1(%s, %s,"
                            " null, null, '\"code\":\"x\"', 'x', null, 'x',"
                            " null, false)", (TENANT, ident))
                        assert cur.fetchall() == [(0,)]
                        with lock:
                            retried.add(ident)
                    else:
                        done.append(ident)
                cur.execute(
                    "select array_agg(distinct v.verdict) from"
                    " unnest(%s::uuid[]) i cross join lateral"
                    " queen.jobs_ack_v1(%s, i, null, null, null) v",
                    (done, TENANT))
                assert not done or cur.fetchall() == [([0],)]
                with lock:
                    runs.update(done)
        conn.close()

    with Workers() as w:
        for no in range(WORKERS):
            w.start(lambda no=no: work(no))
        w.join(within_s)
    assert not wrong
    assert len(runs) == amount and set(runs.values()) == {1}
    assert len(retried) >= amount // 200
    assert db.value("select count(*) from queen.jobs where state <> 5") == 0

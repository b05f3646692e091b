# SPDX-License-Identifier: Apache-2.0
"""What doctor and metrics ask of queen-ojs, in SQL and through queenctl."""
import datetime

import pytest

from ctlkit import USER, Ctl
from queenlib import TENANT
from sqlkit import at
from test_ctl_database import findings, matching

DAY = datetime.timedelta(days=1)


@pytest.fixture
def pgctl(alone, db):
    return Ctl(alone.home, PG_HOST="127.0.0.1",
               PG_PORT=str(db.server.port.number), PG_USER="queen",
               PG_DATABASE=db.name)


def doctor(db, now, overdue_s=60):
    return db.rows("select kind, queue, detail, age_s from"
                   " queen.doctor_ojs_v1(%s, %s)", (overdue_s, now))


def metrics(db, now):
    return dict(db.rows("select name, value from queen.metrics_ojs_v1(%s)",
                        (now,)))


def push(db, job, now, due=None, pending=False):
    db.rows("select queen.jobs_push_v1(%s, array[%s]::uuid[], array['t'],"
            " array['q'], array['\"args\":[]'], array[0]::smallint[],"
            " array[3], array[%s]::timestamptz[], array[%s],"
            " array[null]::timestamptz[], array[null]::bigint[],"
            " array[null]::bigint[], array[null]::text[],"
            " array[null]::text[], array[null]::text[], %s)",
            (TENANT, "0190a000-0000-7000-8000-%012d" % job, due, pending,
             now))


def append(db, queue, now):
    return db.rows("select verdict from queen.stream_append_v1(%s, %s,"
                   " array['i'], array['t'], array['1'],"
                   " array[null]::text[], %s)", (TENANT, queue, now))


@pytest.mark.allpg
def test_what_nobody_sweeps_is_found_and_counted(db):
    assert doctor(db, at(0)) == []
    push(db, 1, at(0))
    push(db, 2, at(0), due=at(100))
    push(db, 3, at(0), due=at(200))
    push(db, 4, at(0), pending=True)
    assert doctor(db, at(160)) == []
    assert doctor(db, at(161)) == [("overdue", None, "jobs", 61)]
    seen = metrics(db, at(161))
    assert (seen["queues"], seen["jobs_available"], seen["jobs_waiting"],
            seen["jobs_overdue_seconds"], seen["streams"]) == (1, 1, 3, 61, 0)
    assert metrics(db, at(99))["jobs_overdue_seconds"] == 0
    db.rows("select * from queen.jobs_fetch_v1(%s, array['q'], 1, 'w', null,"
            " 1000, '{}', '{}', '{}', '{}', %s)", (TENANT, at(10)))
    seen = metrics(db, at(20))
    assert (seen["jobs_available"], seen["jobs_active"],
            seen["jobs_overdue_seconds"], seen["jobs_dead"]) == (0, 1, 9, 0)
    assert doctor(db, at(161)) == [("overdue", None, "jobs", 61),
                                   ("overdue", None, "leases", 150)]


def test_a_consumer_that_holds_a_log_is_named(db, pgctl):
    assert append(db, "s", at(0)) == [(1,)]
    db.rows("select queen.stream_ensure_v1(%s, 's', %s)", (TENANT, at(0)))
    db.rows("select queen.stream_subscribe_v1(%s, 's', 'slow', null, %s)",
            (TENANT, at(0)))
    log, = db.rows("select queue_id from queen.ojs_streams")[0]
    quiet, second = 100 * 86400, datetime.timedelta(seconds=1)
    # a rotation every half of seven days; the third would empty what waits
    for days, pins in ((0, 0), (3.5, 0), (7, 0), (10.5, 1)):
        append(db, "s", at(1) + days * DAY)
        db.rows("select queen.stream_step_v1(%s, 3::smallint, %s)",
                (log, at(1) + days * DAY))
        assert db.value("select count(pinned_at) from queen.ojs_streams") == \
            pins, days
    late = at(1) + 14 * DAY
    assert doctor(db, late, quiet) == []
    assert doctor(db, late + second, quiet) == [
        ("pinned", "s", "slow", 14 * 86400 + 1)]
    assert metrics(db, late)["streams"] == 1
    assert [metrics(db, at(1) + days * DAY)["stream_pinned"]
            for days in (10.5, 14, 14.1)] == [0, 0, 1]
    found = findings(pgctl)
    said = matching(found, 'stream of queue s is held by consumer slow')
    assert said["level"] == "WARN"
    assert said["fix"] == ("let it receive, or give up what it has not read: "
                           "queenctl stream unsubscribe s slow --yes")
    assert matching(found, "streams of queen-ojs are due since")["fix"] == \
        "start a queen-ojs, or look into its log"


def test_a_cell_without_jobs_has_no_such_findings(db, pgctl):
    found = findings(pgctl, code=USER)
    assert not [w for w in found if "ojs" in w or "stream" in w], found


def test_totals_are_counted_by_indexes(db):
    """Forced off, a scan of the jobs would still be taken where no index
    serves."""
    push(db, 1, at(0))
    conn = db.connect()
    scans = "select seq_scan from pg_stat_xact_user_tables" \
        " where relid = 'queen.jobs'::regclass"
    with conn.cursor() as cur:
        cur.execute("set plan_cache_mode = force_generic_plan;"
                    " set enable_seqscan = off; set enable_bitmapscan = off")
        cur.execute("begin; select name, value from queen.metrics_ojs_v1(%s)",
                    (at(1),))
        assert dict(cur.fetchall())["jobs_available"] == 1
        cur.execute(scans)
        assert cur.fetchone() == (0,)
        cur.execute("commit; begin; select * from queen.doctor_ojs_v1(60, %s)",
                    (at(1),))
        cur.execute(scans)
        assert cur.fetchone() == (0,)
        cur.execute("commit")

# SPDX-License-Identifier: Apache-2.0
"""Generic plans of queues and workflows, made while the tables are empty, hold
when they are not: what each call reads is counted by the server."""
import uuid

import psycopg2.extras
import pytest

from queenlib import TENANT, rows
from sqlkit import at

pytestmark = pytest.mark.allpg
NOW = at(100000)
TABLES = ("jobs", "ojs_queues", "ojs_workflows", "ojs_workflow_jobs",
          "ojs_crons")
N = 1000


class Calls:
    """A session as a pool has it."""

    def __init__(self, db):
        self.conn = db.connect()
        psycopg2.extras.register_uuid(conn_or_curs=self.conn)
        for option in ("plan_cache_mode = force_generic_plan",
                       "enable_seqscan = off", "enable_bitmapscan = off",
                       "jit = off"):
            self.rows("set " + option)

    def rows(self, sql, *args):
        return rows(self.conn, sql, args)

    def reads(self):
        """Rows of whole scans, and entries of indexes."""
        self.rows("select pg_stat_force_next_flush()")
        return self.rows(
            "select (select sum(seq_tup_read) from pg_stat_user_tables"
            " where relname = any (%s)), (select sum(idx_tup_read) from"
            " pg_stat_user_indexes where relname = any (%s))",
            list(TABLES), list(TABLES))[0]

    def create(self, kind, roles):
        n = len(roles)
        flow, jobs, none = uuid.uuid4(), [uuid.uuid4() for _ in roles], \
            [None] * n
        self.rows("select from queen.workflow_create_v1(%s, %s, %s, null, %s,"
                  " %s::uuid[], %s, %s, %s, %s::smallint[], %s,"
                  " %s::timestamptz[], %s, %s::timestamptz[], %s::bigint[],"
                  " %s::bigint[], %s::text[], %s::text[], %s::text[], %s)",
                  TENANT, flow, kind, roles, jobs, ["t"] * n, ["q"] * n,
                  [""] * n, [0] * n, [1] * n, none, [False] * n, none, none,
                  none, none, none, none, NOW)
        return flow, jobs

    def ack(self, jobs):
        for job in jobs:
            self.rows("update queen.jobs set state = 1, started_at = %s where"
                      " tenant = %s and id = %s", NOW, TENANT, job)
            self.rows("select from queen.jobs_ack_v1(%s, %s, null, null, '1',"
                      " %s)", TENANT, job, NOW)

    def each(self):
        """(name, index entries it may read, the call), in order."""
        chain = ["step"] * 3
        batch = ["job", "job", "on_complete"]
        one = [None, None]
        new = "q%d" % len(one)

        def keep(kind, roles):
            one[:] = self.create(kind, roles)

        def queue(sql, name, *args):
            return lambda: self.rows("select * from queen." + sql, TENANT,
                                     name, *args)

        def flow(sql):
            return lambda: self.rows("select * from queen." + sql, TENANT,
                                     one[0], NOW)

        yield "ensure", 6, queue("ojs_queue_ensure(%s, array[%s])", "q")
        yield "put", 12, queue("ojs_queue_put_v1(%s, %s, '{max_jobs}',"
                               " '{7000}', %s)", "q", NOW)
        yield "get", 3, queue("ojs_queue_get_v1(%s, %s)", "q")
        yield "pause", 10, queue("ojs_queue_pause_v1(%s, %s, false)", "q")
        yield "stats", 60, queue("ojs_queue_stats_v1(%s, %s, %s)", "x1", NOW)
        yield "chain", 60, lambda: keep("chain", chain)
        yield "get of a chain", 20, flow("workflow_get_v1(%s, %s, %s)")
        yield "ends of a chain", 120, lambda: self.ack(one[1])
        yield "batch", 60, lambda: keep("batch", batch)
        yield "ends of a batch", 120, lambda: self.ack(one[1][:2])
        yield "cancel too late", 40, flow("workflow_cancel_v1(%s, %s, %s)")
        keep("batch", batch)
        yield "cancel", 120, flow("workflow_cancel_v1(%s, %s, %s)")
        keep("group", ["job"] * 500)
        yield "end of one of many", 50, lambda: self.ack(one[1][:1])
        yield "cancel of many", 500 * 20, flow(
            "workflow_cancel_v1(%s, %s, %s)")
        self.rows("select from queen.ojs_queue_ensure(%s, array[%s])", TENANT,
                  new)
        yield "drop", 12, queue("ojs_queue_drop_v1(%s, %s, %s)", new, NOW)
        yield "purge", 12, lambda: self.rows(
            "select queen.ojs_purge_v1(100, %s)", NOW)
        yield "nothing to purge", 2, lambda: self.rows(
            "select queen.ojs_purge_v1(100, %s)", NOW)


def fill(calls):
    """Queues, jobs in all states and workflows of this tenant."""
    calls.rows("insert into queen.ojs_queues (tenant, name, deleted_at) select"
               " %s, 'x' || i, null from generate_series(1, %s) i", TENANT, N)
    calls.rows("insert into queen.jobs (tenant, id, queue_id, created_at,"
               " enqueued_at, due_at, wake_at, ended_at, max_attempts, state,"
               " rank, type, doc, dead, workflow_id) select %s,"
               " gen_random_uuid(), q.id, %s, %s, %s, %s, case when i >= 5"
               " and i < 8 then %s::timestamptz end, 1, i, 0, 't', '', i = 7,"
               " gen_random_uuid() from queen.ojs_queues q,"
               " generate_series(0, 8) i where q.name like 'x%%'",
               TENANT, at(0), at(0), at(900000), at(900000), NOW)
    calls.rows("insert into queen.ojs_workflows (tenant, id, kind, total,"
               " created_at, ended_at) select tenant, workflow_id, 'group', 1,"
               " created_at, case when state = 5 then created_at"
               " + interval '27 hours' end from queen.jobs"
               " where state in (0, 5) and queue_id in (select id from"
               " queen.ojs_queues where name like 'x%%')")
    calls.rows("insert into queen.ojs_workflow_jobs select j.tenant,"
               " j.workflow_id, 1, 'job', j.id, false from queen.jobs j"
               " join queen.ojs_workflows w on w.id = j.workflow_id"
               " where w.kind = 'group'")


def test_each_call_reads_what_it_names(db):
    calls = Calls(db)
    for _, _, call in calls.each():
        call()                          # the plans of empty tables
    calls.rows("delete from queen.jobs")
    fill(calls)
    over = []
    for name, most, call in calls.each():
        before = calls.reads()
        call()
        after = calls.reads()
        if after[0] > before[0] or after[1] > before[1] + most:
            over.append((name, after[0] - before[0], after[1] - before[1],
                         most))
    assert over == []


def test_a_page_reads_its_rows(db):
    """But the number of all, which is counted."""
    calls = Calls(db)
    pages = (
        ("select count(available) from queen.ojs_queue_list_v1(%s, 'x2', 0,"
         " 10)", N + 100),
        ("select count(id) from queen.workflow_list_v1(%%s, '%s',"
         " '00000000-0000-0000-0000-000000000000', 0, 10)" % at(50),
         2 * N + 20))
    for sql, _ in pages:
        calls.rows(sql, TENANT)
    fill(calls)
    for sql, most in pages:
        before = calls.reads()
        assert calls.rows(sql, TENANT) == [(10,)]
        after = calls.reads()
        assert after[0] == before[0]
        assert after[1] - before[1] <= most, sql


def test_indexes_cover_the_jobs_of_a_queue(db):
    """Whatever is said of a queue finds a job in each state it may have: a
    queue is purged when its last one is gone."""
    calls = Calls(db)
    for state, limited, dead in [
            (s, l, d) for s in range(9) for l in (False, True)
            for d in (False, True) if s == 7 or not d]:
        (queue,), = calls.rows("select queue_id from queen.ojs_queue_ensure("
                               "%s, '{q}')", TENANT)
        calls.rows("insert into queen.jobs (tenant, id, queue_id, created_at,"
                   " enqueued_at, due_at, wake_at, ended_at, max_attempts,"
                   " state, rank, type, doc, dead, rate_key) select %s,"
                   " gen_random_uuid(), %s, %s, %s, %s, %s, case when i in"
                   " (5, 6, 7) then %s::timestamptz end, 1, i, 0, 't', '', %s,"
                   " %s from generate_series(%s, %s) i", TENANT, queue, at(0),
                   at(0), at(0), at(0), at(0), dead, "k" if limited else None,
                   state, state)
        found = calls.rows(
            "select queen.ojs_queue_has_jobs(%s), available, active"
            " from queen.ojs_queue_ready(%s, %s, 9)", queue, queue, NOW)
        assert found == [(True, int(state in (0, 2, 3)), int(state == 1))]
        assert calls.rows("select queen.jobs_open(%s, 9)", queue) == [
            (int(state < 5 or state == 8),)]
        stats, = calls.rows(
            "select available + pending + active + completed + cancelled"
            " + discarded from queen.ojs_queue_stats_v1(%s, 'q', %s)", TENANT,
            NOW)
        assert stats == (int(state != 8),)
        calls.rows("select queen.ojs_queue_drop_v1(%s, 'q', %s)", TENANT, NOW)
        assert calls.rows("select queen.ojs_purge_v1(9, %s)", NOW) == [(2,)]
        assert calls.rows("select count(*) from queen.jobs") == [(0,)]
        assert calls.rows("select queen.ojs_queue_has_jobs(%s)",
                          queue) == [(False,)]


def test_a_list_counts_so_far_and_keeps_no_lock(db):
    """Of 40 logs, of which one is being rotated, and of a queue with more
    than a list has to tell."""
    calls, other = Calls(db), Calls(db)
    ids = [calls.rows("select queen.stream_ensure_v1(%s, %s)", TENANT,
                      "s%02d" % n)[0][0] for n in range(40)]
    calls.rows("insert into queen.ojs_queues (tenant, name) values (%s, 'j')",
               TENANT)
    calls.rows("insert into queen.jobs (tenant, id, queue_id, created_at,"
               " enqueued_at, max_attempts, state, rank, type, doc) select %s,"
               " gen_random_uuid(), q.id, %s, %s, 1, case when i > 60 then 0"
               " when i > 30 then 1 else 4 end, 0, 't', '' from"
               " generate_series(1, 12000) i, queen.ojs_queues q"
               " where q.name = 'j'", TENANT, at(0), at(0))
    calls.rows("insert into queen_ojs_%d.stream_dead_letters (consumer,"
               " event_id, seq, type, payload, retry_count, reason, created_at,"
               " failed_at, bytes) select 'c', i::text, i, 't', '1', 1, 'r',"
               " %%s, %%s, 1 from generate_series(1, 10001) i" % ids[3], at(0),
               at(0))
    other.rows("begin")
    other.rows("select pg_advisory_xact_lock(1869247281,"
               " queen.stream_key(%s))", ids[7])
    calls.rows("begin")
    found = calls.rows("select name, available, active, events, consumers,"
                       " dead_letters from queen.ojs_queue_list_v1(%s, null,"
                       " 0, 200) where name is not null", TENANT)
    (locks,), = calls.rows("select count(*) from pg_locks where pid ="
                           " pg_backend_pid()")
    assert locks < 60
    found = {r[0]: r[1:] for r in found}
    assert found.pop("j") == (10000, 30, 0, 0, 0)
    assert found.pop("s03") == (0, 0, 0, 0, 10000)
    assert found.pop("s07") == (0, 0, None, None, None)
    assert set(found.values()) == {(0, 0, 0, 0, 0)} and len(found) == 38
    calls.rows("rollback")
    calls.rows("drop schema queen_ojs_%d cascade" % ids[9])
    assert calls.rows("select events from queen.ojs_queue_list_v1(%s, 's08', 0,"
                      " 1) where name is not null", TENANT) == [(None,)]

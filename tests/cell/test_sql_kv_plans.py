# SPDX-License-Identifier: Apache-2.0
"""Generic plans of queen.kv_*, made while the tables are small, hold when they
are not: what each call reads is counted by the server."""
import json
import uuid

import pytest

from queenlib import TENANT, rows
from sqlkit import at
from test_sql_kv import Kv

pytestmark = pytest.mark.allpg
NOW = at(1000)
ROWS = 20000
PUT = {"op": "put", "key": "x5", "value": 1}
# name, the operations, entries of indexes it may read
CALLS = [
    ("put", [dict(PUT, ttl=60)], 4),
    ("put of a new key", [dict(PUT, key="new")], 4),
    ("put expect", [dict(PUT, expect=3)], 8),
    ("putIfAbsent lost", [dict(PUT, key="x6", expect=0)], 6),
    ("putIfAbsent of a new key", [dict(PUT, key="new2", expect=0)], 4),
    ("get", [{"op": "get", "key": "x7"}], 2),
    ("get of none", [{"op": "get", "key": "none"}], 1),
    ("delete", [{"op": "delete", "key": "x8"}], 3),
    ("delete expect", [{"op": "delete", "key": "x9", "expect": 3}], 6),
    ("delete expect 0", [{"op": "delete", "key": "x10", "expect": 0}], 3),
    ("incr", [{"op": "incr", "key": "x11", "delta": 1}], 4),
    ("incr over its limit", [{"op": "incr", "key": "x12", "delta": 9,
                              "max": 8}], 8),
    ("incr of a new key", [{"op": "incr", "key": "new3", "delta": 1}], 4),
    ("getMany", [{"op": "getMany", "keys": ["x%d" % i for i in range(20)]
                  + ["none"]}], 24),
    ("getPrefix", [{"op": "getPrefix", "key": "x1", "limit": 10}], 14),
    ("getPrefix after", [{"op": "getPrefix", "key": "x1", "limit": 10,
                          "after": "x15"}], 14),
    ("many", [dict(PUT, key="x%d" % i) for i in range(100, 150)]
     + [{"op": "get", "key": "x%d" % i} for i in range(100, 150)], 320),
]
LIST = "select * from queen.kv_list_v1(%s, 'n', %s, %s, 10, false, %s, null, %s)"
ONE = ("select * from queen.kv_one_v1(%s, %s, 'n', %s, %s, %s, null, false, %s,"
       " null, %s)")
OTHER = [
    ("one get", ONE, (TENANT, 0, "x20", None, None, None, None), 2),
    ("one put", ONE, (TENANT, 3, "x21", "1", None, None, None), 4),
    ("one put expect", ONE, (TENANT, 3, "x22", "1", 3, None, None), 8),
    ("one delete", ONE, (TENANT, 4, "x23", None, None, None, None), 3),
    ("one incr", ONE, (TENANT, 5, "x24", None, None, "1", "0"), 8),
    ("list", LIST, (TENANT, "x1", "x15", False, NOW), 14),
    ("list of all", LIST, (TENANT, "", "", True, NOW), 14),
    ("namespaces", "select * from queen.kv_namespaces_v1(%s)",
     (str(uuid.UUID(int=9)),), 1),
    # two shards, a batch of 5: those, and 8 times as many counted
    ("expire", "select * from queen.kv_expire_step_v1('{1,2}', 5, %s)",
     (at(3 * ROWS),), 60),
    ("refresh", "select * from queen.kv_quota_refresh_v1(100)", (), 0),
    ("usage too soon", "select * from queen.kv_usage_step_v1(3600000,"
     " 3600000, 80, false)", (), 0),
]


def fill(conn):
    rows(conn, "insert into queen.kv (tenant, namespace, key, value, version,"
         " expires_at, created_at, updated_at) select %s, 'n', 'x' || i, '1',"
         " nextval('queen.kv_version'), case when i %% 2 = 0 then"
         " %s + (1000 + i) * interval '1 s' end, %s, %s"
         " from generate_series(1, %s) i returning 1",
         (TENANT, NOW, NOW, NOW, ROWS))


def reads(conn):
    """(rows by whole scans, entries of indexes) of queen.kv so far."""
    rows(conn, "select pg_stat_force_next_flush()")
    seq, = rows(conn, "select seq_tup_read from pg_stat_user_tables"
                " where relid = 'queen.kv'::regclass")[0]
    idx, = rows(conn, "select sum(idx_tup_read)::bigint from"
                " pg_stat_user_indexes where relid = 'queen.kv'::regclass")[0]
    return seq, idx


@pytest.fixture
def kv(db):
    conn = db.connect()
    for option in ("plan_cache_mode = force_generic_plan",
                   "enable_seqscan = off", "jit = off"):
        rows(conn, "set " + option)
    return Kv(conn)


def test_each_operation_reads_what_it_names(kv):
    for _, call, _ in CALLS:
        kv.raw(call)                    # the plans of an empty table
    for _, sql, args, _ in OTHER:
        rows(kv.conn, sql, args)
    rows(kv.conn, "delete from queen.kv")
    rows(kv.conn, "delete from queen.kv_usage")
    fill(kv.conn)
    rows(kv.conn, "vacuum queen.kv")
    rows(kv.conn, "select * from queen.kv_usage_step_v1(0, 0, 80, false)")
    over = []
    for name, call, most in CALLS:
        before = reads(kv.conn)
        kv.raw(call)
        after = reads(kv.conn)
        over.append((name, after[0] - before[0], after[1] - before[1], most))
    for name, sql, args, most in OTHER:
        before = reads(kv.conn)
        rows(kv.conn, sql, args)
        after = reads(kv.conn)
        over.append((name, after[0] - before[0], after[1] - before[1], most))
    assert [o for o in over if o[1] > 0 or o[2] > o[3]] == []


def test_a_measurement_is_one_pass(kv):
    """It counts everything, once; the question how much there is ends early."""
    step = ("select measured from queen.kv_usage_step_v1(0, 0, 80, false,"
            " %s)")
    rows(kv.conn, step, (100,))
    fill(kv.conn)
    before = reads(kv.conn)
    assert rows(kv.conn, step, (100,)) == [(True,)]
    after = reads(kv.conn)
    assert sum(after) - sum(before) <= ROWS + 101
    assert rows(kv.conn, "select kv_rows / 8 * 8 = kv_rows, sampled"
                " from queen.kv_usage") == [(True, True)]


def test_a_refresh_of_many_tenants_is_a_join(kv):
    """Ten thousand quotas and as many measurements: no loop in a loop."""
    rows(kv.conn, "insert into queen.kv_quota (tenant, max_rows) select"
         " lpad(i::text, 32, '0')::uuid, i from generate_series(1, 9000) i"
         " returning 1")
    rows(kv.conn, "insert into queen.kv_usage (tenant, computed_at, kv_rows,"
         " kv_bytes, timer_rows, timer_bytes) select"
         " lpad(i::text, 32, '0')::uuid, now(), 8000, 0, 0, 0"
         " from generate_series(2001, 11000) i returning 1")
    rows(kv.conn, "prepare r(int) as select * from"
         " queen.kv_quota_refresh_v1($1)")
    plan = rows(kv.conn, "explain (format json) execute r(10000)")[0][0]
    text = json.dumps(plan)
    assert "Nested Loop" not in text
    assert "Hash Full Join" in text or '"Join Type": "Full"' in text
    got = rows(kv.conn, "execute r(10000)")
    assert len(got) == 10000
    # granted first, then who is nearest to a cap
    assert [r[1] for r in got] == [True] * 9000 + [False] * 1000
    parts = [8000 / r[3] for r in got[:9000] if r[10]]
    assert parts == sorted(parts, reverse=True)

# SPDX-License-Identifier: Apache-2.0
"""The schema: applied again and again, by several, under load; and what the
catalogue must look like."""
import re
import threading
import time

import psycopg2
import pytest

import queenlib
from queenlib import TENANT, wait_until
from sqlkit import Kit

# Functions of routes and tools that are not a tenant's: about the whole cell
# (scans, maintenance, boot, metrics) or about values alone.
CELL_WIDE = {
    "analytics_postgres_v1", "cell_key_v1", "change_scan_v1",
    "claim_ensure_v1",
    "claim_give_v1", "claim_take_v1", "cleanup_step_v1", "clock_v1",
    "connector_all_v1", "connector_metrics_v1", "connector_status_drop_v1",
    "connector_status_put_v1", "crons_fire_v1",
    "doctor_claims_v1", "doctor_connectors_v1", "doctor_dead_v1",
    "doctor_lag_v1", "doctor_lake_v1", "doctor_leases_v1", "doctor_ojs_v1",
    "flag_set_v1", "flags_read_v1", "ids_due_v1", "ids_step_v1",
    "instance_add_v1", "iso_ms_v1", "iso_us_v1",
    "jobs_prune_v1", "jobs_ready_v1", "jobs_sweep_v1",
    "kv_check_names_v1", "kv_expire_step_v1", "kv_live_v1", "kv_num_v1",
    "kv_prefix_end_v1", "kv_ver_v1", "lease_sweep_v1",
    "kv_quota_refresh_v1", "kv_usage_step_v1", "lake_sinks_v1",
    "metrics_ojs_v1", "minutes_add_v1", "ojs_purge_v1", "ojs_restored_v1",
    "prometheus_dead_v1", "prometheus_queues_v1",
    "prometheus_totals_v1", "prune_v1", "purge_group_v1", "purge_queue_v1",
    "queue_scan_v1", "repair_scan_v1", "retention_due_v1",
    "retention_step_v1", "safe_time_v1", "seal_proofs_v1", "seal_prove_v1",
    "stream_check_v1", "stream_news_v1", "stream_rebase_v1", "stream_step_v1",
    "stream_tick_v1", "stream_work_v1", "stream_worked_v1",
    "status_v1", "timer_due_v1", "timer_fire_v1", "timer_next_v1",
    "timer_sub_v1", "timer_txn_v1",
    "wire_id_of_v1", "wire_id_v1", "wire_lease_v1",
}


def sources():
    """(file name, text) of sql/, comments kept."""
    for path in queenlib.sql_files():
        with open(path) as f:
            yield path.rsplit("/", 1)[1], f.read()


def bare(text):
    """Without comments and string literals."""
    text = re.sub(r"--[^\n]*", "", text)
    return re.sub(r"'(?:[^']|'')*'", "''", text)


def catalogue(db):
    """All that an apply could change."""
    return {
        "columns": db.rows(
            "select attrelid::regclass::text, attname, atttypid, attnotnull,"
            " attstorage from pg_attribute where attnum > 0 and attrelid in"
            " (select oid from pg_class where relnamespace ="
            " 'queen'::regnamespace) order by 1, attnum"),
        "indexes": db.rows("select indexdef from pg_indexes"
                           " where schemaname = 'queen' order by 1"),
        "functions": db.rows(
            "select oid::regprocedure::text, md5(pg_get_functiondef(oid))"
            " from pg_proc where pronamespace = 'queen'::regnamespace"
            " order by 1"),
        "constraints": db.rows(
            "select conrelid::regclass::text, conname,"
            " pg_get_constraintdef(oid) from pg_constraint"
            " where connamespace = 'queen'::regnamespace order by 1, 2"),
    }


# Applying

@pytest.mark.allpg
def test_apply_twice_keeps_data(pg, empty_db):
    pg.apply_schema(empty_db.name)
    kit = Kit(empty_db.connect())
    q = kit.queue("q")
    part = kit.part(q, "a")
    kit.push(part, 3)
    g = kit.group(q, "g")
    kit.pop([part], g, 1, budget=2)
    data = {t: empty_db.rows("select x::text from queen.%s x order by 1" % t)
            for t in ("cell", "queues", "partitions", "partition_heads",
                      "segments", "segment_ids", "groups", "consumers")}
    before = catalogue(empty_db)
    assert all(data.values()) and all(before.values())
    pg.apply_schema(empty_db.name)
    assert catalogue(empty_db) == before
    for table, found in data.items():
        assert empty_db.rows("select x::text from queen.%s x order by 1"
                             % table) == found, table


def test_several_queends_boot_on_an_empty_database(empty_db, new_cell):
    """One of them applies, the others wait for it; one cell row."""
    made = [new_cell(_db=empty_db) for _ in range(4)]
    for one in made:
        one.start(wait=False)
    for one in made:
        wait_until(one._healthy, what="health of " + one.name)
        one.expected_end = False
    assert empty_db.value("select count(*) from queen.cell") == 1
    made[0].push("q", [1], ids=["x"])
    assert made[1].push("q", [1], ids=["x"])[0]["status"] == "duplicate"


def test_boot_keeps_the_data_of_an_older_schema(db, new_cell):
    one = new_cell().start()
    one.push("q", [{"n": 1}], partition="a")
    one.term()
    tag = db.value("select tag from queen.cell")
    db.rows("update queen.cell set hash = 'older'")
    one.start()
    assert db.value("select hash from queen.cell") != "older"
    assert db.value("select tag from queen.cell") == tag
    messages = one.pop("q")
    assert [m["data"] for m in messages] == [{"n": 1}]


def test_same_schema_is_not_applied_again(db, new_cell):
    """Equal number and hash: nothing runs, no lock is taken."""
    new_cell().start().term()
    before = db.value("select applied_at from queen.cell")
    xmin = db.rows("select proname, xmin::text from pg_proc"
                   " where pronamespace = 'queen'::regnamespace order by 1")
    new_cell().start()
    assert db.value("select applied_at from queen.cell") == before
    assert db.rows("select proname, xmin::text from pg_proc where"
                   " pronamespace = 'queen'::regnamespace order by 1") == xmin


def test_boots_do_not_block_pushes(db, cell, new_cell):
    """B11: an instance with another schema boots ten times beside a push load;
    no push takes 2 s, none fails."""
    stop = threading.Event()
    slowest, faults, count = [0.0], [], [0]

    def load(n):
        conn = cell.http()
        i = 0
        while not stop.is_set():
            i += 1
            began = time.monotonic()
            try:
                reply = cell.push("load", [i] * 5, partition="p%d" % n,
                                  conn=conn)
                if {r["status"] for r in reply} != {"queued"}:
                    faults.append(reply)
            except (OSError, AssertionError) as e:
                faults.append(e)
                conn.close()
            slowest[0] = max(slowest[0], time.monotonic() - began)
            count[0] += 1
        conn.close()

    threads = [threading.Thread(target=load, args=(n,)) for n in range(4)]
    for t in threads:
        t.start()
    try:
        for _ in range(10):
            db.rows("update queen.cell set hash = 'other'")
            other = new_cell().start()
            assert db.value("select hash from queen.cell") != "other"
            assert other.term() == 0
    finally:
        stop.set()
        for t in threads:
            t.join()
    assert faults == []
    assert count[0] > 50
    limit = 10 if queenlib.SAN else 2
    assert slowest[0] < limit


# The catalogue

def test_every_function_has_a_comment_above():
    """Twins (iso_ms, iso_us) may share one."""
    missing = []
    for name, text in sources():
        above, twin = "", None
        for line in text.split("\n"):
            m = re.match(r"create (?:or replace )?function queen\.([a-z]+)",
                         line)
            if m and not above.startswith("--") and m.group(1) != twin:
                missing.append("%s: %s" % (name, line))
            if m:
                twin = m.group(1)
            above = line
    assert missing == []


def test_files_begin_with_licence_and_purpose():
    for name, text in sources():
        lines = text.split("\n")
        assert lines[0] == "-- SPDX-License-Identifier: Apache-2.0", name
        assert lines[1].startswith("-- "), name


def test_tenant_is_the_first_argument(db):
    """Of every function that has a version, but for the named cell-wide."""
    found = db.rows("select proname, proargnames[1], proargtypes[0]::regtype"
                    "::text from pg_proc where pronamespace ="
                    " 'queen'::regnamespace and proname ~ '_v[0-9]+$'")
    wrong = {name for name, arg, kind in found
             if (arg, kind) != ("p_tenant", "uuid")}
    assert wrong - CELL_WIDE == set()
    assert CELL_WIDE - wrong - {n for n, _, _ in found} == set(), \
        "named, but not there"
    assert CELL_WIDE - wrong == set(), "named, but takes a tenant"


def test_now_is_the_last_argument_with_a_default(db):
    """Where time is an argument a caller may leave it out."""
    found = db.rows(
        "select proname, proargnames[pronargs], pronargdefaults from pg_proc"
        " where pronamespace = 'queen'::regnamespace"
        " and proname ~ '_v[0-9]+$' and 'p_now' = any (proargnames)")
    assert found
    assert [f for f in found if f[1] != "p_now" or f[2] < 1] == []


def test_no_definer_function_without_search_path(db):
    assert db.rows(
        "select proname from pg_proc where pronamespace ="
        " 'queen'::regnamespace and prosecdef and not exists (select from"
        " unnest(proconfig) c where c like 'search_path=%%')") == []


def test_no_dynamic_sql():
    """Only the logs of streams have schemas of their own."""
    for name, text in sources():
        if not name.startswith("85"):
            assert not re.search(r"\bexecute\b", bare(text), re.I), name


def test_no_exception_blocks_on_the_hot_path():
    """A block with a handler is a subtransaction; 000 to 399 are hot."""
    for name, text in sources():
        if name < "400":
            assert not re.search(r"^\s*exception\s*$|\bexception\s+when\b",
                                 bare(text), re.I | re.M), name


def test_keywords_are_lower_case():
    words = r"\b(SELECT|INSERT|UPDATE|DELETE|FROM|WHERE|CREATE|RETURNS|BEGIN)\b"
    for name, text in sources():
        assert not re.search(words, bare(text)), name


def test_changes_are_additive():
    """An old instance runs on while a newer one applies its schema."""
    for name, text in sources():
        assert not re.search(
            r"\bdrop\s+(table|column|schema|view|sequence)\b|\brename\b"
            r"|\btruncate\s+(table\s+)?queen", bare(text), re.I), name


def test_names_are_qualified():
    """Our tables are never found through search_path."""
    tables = set()
    for _, text in sources():
        tables |= set(re.findall(
            r"create table if not exists queen\.(\w+)", text))
    assert len(tables) > 10
    pattern = re.compile(r"\b(?:from|join|insert into|update)\s+"
                         r"(?:only\s+)?(?:%s)\b" % "|".join(sorted(tables)))
    for name, text in sources():
        assert not pattern.search(bare(text)), name


def test_hot_tables_have_no_foreign_keys_or_triggers(db):
    assert db.rows("select conname from pg_constraint where contype = 'f'"
                   " and connamespace = 'queen'::regnamespace") == []
    assert db.rows("select tgname from pg_trigger where not tgisinternal"
                   ) == []


def test_other_roles_see_nothing(db):
    conn = db.connect(user=db.role("stranger"))
    for sql in ("select * from queen.cell", "select queen.clock_v1()"):
        with pytest.raises(psycopg2.errors.InsufficientPrivilege):
            queenlib.rows(conn, sql)


def test_functions_plan_with_generic_settings(db):
    """The settings of pooled sessions change no answer."""
    kit = Kit(db.connect())
    for option in ("plan_cache_mode = force_generic_plan",
                   "enable_seqscan = off", "enable_bitmapscan = off",
                   "jit = off"):
        kit.rows("set " + option)
    q = kit.queue("q")
    part = kit.part(q, "a")
    for n in range(8):
        assert kit.push(part, 2) == 2 * n
    g = kit.group(q, "g")
    assert sum(r[5] for r in kit.pop([part], g, 1)) == 16
    assert kit.rows("select part from queen.group_pending_v1(%s, %s, 0, 10)",
                    TENANT, g) == [(part,)]

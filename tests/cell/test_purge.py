# SPDX-License-Identifier: Apache-2.0
"""The end of a tenant: no row of it is left in any table, nothing of another
is touched, in bounded steps that may be interrupted at any time."""
import threading

import psycopg2
import pytest

from queenlib import OTHER_TENANT, TENANT, rows, wait_until
from sqlkit import Kit, at

PATH = "/api/v1/resources/tenant"
A = {"x-queen-tenant": OTHER_TENANT}
B_TENANT = "00000000-0000-0000-0000-0000000000bb"
B = {"x-queen-tenant": B_TENANT}
ON = dict(QUEEN_TENANCY_HEADER="true", QUEEN_KV_TRUSTED_PROXY="true",
          QUEEN_KV_REQUIRE_GRANT="false", QUEEN_KV_WRITE_RATE="0")
pytestmark = pytest.mark.usefixtures("no_jobs")

# what has no column of its own for the tenant, and how it is known to belong
HANGS_OFF = {
    "partitions": "x.queue_id", "partition_heads": "x.queue_id",
    "groups": "x.queue_id", "dead_letters": "x.queue_id",
    "queue_minutes": "x.queue_id", "retention_log": "x.queue_id",
    "repairs": "x.queue_id",
    "segments": "(select p.queue_id from queen.partitions p"
                " where p.id = x.partition_id)",
    "segment_ids": "(select p.queue_id from queen.partitions p"
                   " where p.id = x.partition_id)",
    "consumers": "(select p.queue_id from queen.partitions p"
                 " where p.id = x.partition_id)",
    "lease_sets": "(select p.queue_id from queen.partitions p"
                  " where p.id = x.lease_at)",
}
# the same of queen-ojs, by its own queues
HANGS_OFF_OJS = {"ojs_rates", "ojs_job_counts", "ojs_streams",
                 "ojs_stream_work"}
CELL_WIDE = {"cell", "claims", "flags", "instance_minutes", "totals"}


@pytest.fixture
def no_jobs(db):
    """Retention would remove deleted queues beside the purge, uncounted, and
    its first run comes with the server, whatever the interval."""
    db.rows("select queen.claim_ensure_v1('retention', 3600000)")
    db.rows("update queen.claims set enabled = false")


def rows_of(db, tenant):
    """(table, rows) of every table that has a tenant."""
    tables = db.rows(
        "select c.relname from pg_class c join pg_attribute a"
        " on a.attrelid = c.oid and a.attname = 'tenant'"
        " where c.relnamespace = 'queen'::regnamespace"
        " and c.relkind in ('r', 'p') order by 1")
    return {t: db.value("select count(*) from queen.%s where tenant = %%s"
                        % t, (tenant,)) for t, in tables}


def lasting(db, tenant):
    """Of them those that nothing but its owner changes: usage is measured."""
    return {t: n for t, n in rows_of(db, tenant).items() if t != "kv_usage"}


def hanging(db):
    """{table: queue ids} of what hangs off queues."""
    return {t: {r[0] for r in db.rows("select distinct %s from queen.%s x"
                                      % (at_, t))}
            for t, at_ in HANGS_OFF.items()}


def fill(cell, headers, queues=("q1", "q2")):
    """A row in every table that a tenant's requests write."""
    for queue in queues:
        for part in ("p1", "p2"):
            cell.push(queue, [{"n": i} for i in range(5)], partition=part,
                      headers=headers)
        found = cell.pop(queue, group="g", subscriptionMode="all", batch=20,
                         partitions=2, headers=headers)
        assert {m["partition"] for m in found} == {"p1", "p2"}
        m = found[0]
        cell.post("/api/v1/traces", {
            "partitionId": m["partitionId"], "traceNames": ["n"],
            "transactionId": m["transactionId"], "data": {"text": "x"}},
            headers=headers)
        cell.ack([m], group="g", status="dlq", headers=headers)
        assert cell.post("/api/v1/consumer-groups/g/queues/%s/seek" % queue,
                         {"toEnd": True}, headers=headers).status == 200
    assert cell.post("/api/v1/timers", {"operations": [
        {"op": "schedule", "queue": "q", "timerKey": "t",
         "delayMs": 3600000, "txn": "t", "payload": "ImEi"}]},
        headers=headers).status == 200
    assert cell.post("/api/v1/kv", {"operations": [
        {"op": "put", "ns": "n", "key": "k", "value": 1, "forever": True}]},
        headers=headers).status == 200
    assert cell.request("PUT", "/api/v1/connectors/c", {
        "kind": "sink", "connection": {"host": "h", "database": "d",
                                       "user": "u"},
        "sink": {"queue": "q", "table": "t", "mode": "append"}},
        headers=headers).status == 200


def fill_by_sql(db, tenant):
    """The rows that jobs and operators write."""
    db.rows("insert into queen.kv_quota (tenant) values (%s)", (tenant,))
    # a busy server may have measured by now
    db.rows("insert into queen.kv_usage values (%s, now(), 1, 1, 1, 1)"
            " on conflict do nothing", (tenant,))
    db.rows("select queen.connector_status_put_v1('n', %s::uuid[], '{c}',"
            " '{sink}', array['{}'], array['{}'])", ([tenant],))
    db.rows("select queen.lake_sink_put_v1(%s, 'c', true, '{}', 'sealed')",
            (tenant,))
    db.rows("select queen.stream_ensure_v1(%s, 'jobs')", (tenant,))
    db.rows("select queen.jobs_put(%s, array[row(gen_random_uuid(), 't',"
            " 'jobs', '', 0, 3, null, false, null, null, null, null, null,"
            " null)::queen.job_spec], false, null)", (tenant,))
    db.rows("insert into queen.ojs_workflows (tenant, id, kind, total,"
            " created_at) values (%s, gen_random_uuid(), 'group', 1, now())",
            (tenant,))
    db.rows("insert into queen.ojs_workflow_jobs select tenant, id, 1, 'job',"
            " id, false from queen.ojs_workflows where tenant = %s",
            (tenant,))
    db.rows("insert into queen.ojs_crons (tenant, name, queue, expression,"
            " zone, minutes, hours, days, months, weekdays, any_day,"
            " any_weekday, overlap, enabled, shown, template, created_at,"
            " changed_at) values (%s, 'c', 'jobs', '', 'UTC', 1, 1, 1, 1, 1,"
            " true, true, 'skip', false, '', row(null, 't', 'jobs', '', 0, 3,"
            " null, false, null, null, null, null, null, null)::queen.job_spec,"
            " now(),"
            " now())", (tenant,))
    for table in ("ojs_rates (queue_id, key, until) select id, 'k', now()",
                  "ojs_job_counts select id, 1, now()"):
        db.rows("insert into queen.%s from queen.ojs_queues"
                " where tenant = %%s" % table, (tenant,))
    db.rows("insert into queen.queue_minutes (minute, queue_id) select"
            " now() - i * interval '1 day', q.id from queen.queues q,"
            " generate_series(1, 3) i where q.tenant = %s", (tenant,))
    db.rows("insert into queen.retention_log select now(), q.id, 1,"
            " 'retention', 1 from queen.queues q where q.tenant = %s",
            (tenant,))


def purge(cell, headers=A, query="", tries=50):
    """Repeats the request until it is done; all answers."""
    answers = []
    while not answers or not answers[-1]["done"]:
        reply = cell.delete(PATH + query, headers=headers)
        assert reply.status == 200, reply
        answers.append(reply.body)
        assert len(answers) <= tries, answers
    return answers


@pytest.mark.cellenv(**ON)
def test_no_row_is_left(cell, db):
    known = set(HANGS_OFF) | HANGS_OFF_OJS | CELL_WIDE \
        | set(rows_of(db, TENANT))
    assert {t for t, in db.rows(
        "select relname from pg_class where relnamespace ="
        " 'queen'::regnamespace and relkind in ('r', 'p')")} == known
    for headers, tenant in ((A, OTHER_TENANT), (B, B_TENANT)):
        fill(cell, headers)
        fill_by_sql(db, tenant)
    assert min(rows_of(db, OTHER_TENANT).values()) > 0
    mine = {r[0] for r in db.rows("select id from queen.queues where"
                                  " tenant = %s", (OTHER_TENANT,))}
    before = hanging(db)
    for table, ids in before.items():
        assert ids & mine, table
    others = lasting(db, B_TENANT)
    answer, = purge(cell)
    assert answer["phase"] == "complete" and answer["tenant"] == OTHER_TENANT
    assert answer["queues"] == {"deleted": 2, "remaining": 0}
    assert answer["rows"] == {
        "queen." + t: n for t, n in dict(
            timers=1, segments=4, segment_ids=4, lease_sets=2, consumers=4,
            partition_heads=4, partitions=4, dead_letters=2,
            queue_minutes=6, retention_log=2, repairs=2, groups=4, queues=2,
            trace_names=2, traces=2, kv=3, kv_usage=1, kv_quota=1,
            connector_status=1, jobs=1, ojs_crons=1, ojs_workflows=1,
            ojs_workflow_jobs=1, ojs_rates=1, ojs_job_counts=1,
            ojs_streams=1, ojs_queues=1).items()}
    assert cell.get("/api/v1/connectors", headers=A).body["connectors"] == []
    assert len(cell.get("/api/v1/connectors", headers=B).body[
        "connectors"]) == 1
    # of queen-ojs the other tenant's queue is left alone, with its stream
    kept, = db.rows("select id from queen.ojs_queues")
    for table in HANGS_OFF_OJS:
        assert db.rows("select queue_id from queen.%s" % table) == [kept]
    assert db.rows("select nspname from pg_namespace where nspname like"
                   " 'queen\\_ojs\\_%%'") == [("queen_ojs_%d" % kept,)]
    # the sink too; its bucket is not looked at
    assert db.rows("select tenant::text from queen.lake_sinks_v1()") == [
        (B_TENANT,)]
    assert set(rows_of(db, OTHER_TENANT).values()) == {0}
    assert lasting(db, B_TENANT) == others
    for table, ids in hanging(db).items():
        assert ids == before[table] - mine, table
    # again there is nothing to do, and the names are free
    again, = purge(cell)
    assert set(again["rows"].values()) == {0}
    cell.push("q1", ["new"], headers=A)
    assert [m["data"] for m in cell.pop("q1", subscriptionMode="all",
                                        headers=A)] == ["new"]
    assert len(cell.pop("q1", group="h", subscriptionMode="all", batch=20,
                        partitions=2, headers=B)) == 10


@pytest.mark.cellenv(**ON)
def test_the_default_tenant_needs_its_flag(cell, db):
    fill(cell, {})
    fill(cell, A)
    kept = lasting(db, OTHER_TENANT)
    for headers in ({}, {"x-queen-tenant": TENANT}):
        reply = cell.delete(PATH, headers=headers)
        assert (reply.status, reply.body) == (400, {"error":
            "no x-queen-tenant header names another tenant: purging the"
            " default tenant needs allowDefaultTenant=true"})
    reply = cell.delete(PATH + "?allowDefaultTenant=maybe")
    assert reply.status == 400
    assert rows_of(db, TENANT)["queues"] == 2
    answer, = purge(cell, {}, "?allowDefaultTenant=true")
    assert answer["queues"]["deleted"] == 2
    assert set(rows_of(db, TENANT).values()) == {0}
    assert lasting(db, OTHER_TENANT) == kept


def test_a_server_without_tenants_says_so(cell, db):
    cell.push("q", [1])
    reply = cell.delete(PATH, headers=A)
    assert (reply.status, reply.body) == (400, {"error":
        "this server reads no x-queen-tenant header: purging the default"
        " tenant needs allowDefaultTenant=true"})
    assert db.value("select count(*) from queen.segments") == 1


@pytest.mark.cellenv(**ON)
def test_the_budget_of_a_request(cell, db):
    """Without time one pass is all; what the passes of a request removed is
    added up."""
    many = ["q%d" % i for i in range(25)]
    for queue in many:
        cell.push(queue, [1], headers=A)
    answers = purge(cell, query="?budgetMs=0")
    assert [a["done"] for a in answers[:3]] == [False] * 3
    # a pass takes ten queues
    assert answers[0]["queues"] == {"deleted": 10, "remaining": 15}
    assert answers[0]["phase"] == "queues"
    assert [a["queues"]["deleted"] for a in answers] == [10, 10, 5, 0]
    for queue in many:
        cell.push(queue, [1], headers=A)
    answer, = purge(cell)
    assert answer["queues"] == {"deleted": 25, "remaining": 0}
    assert answer["rows"]["queen.segments"] == 25
    for bad in ("-1", "x"):
        assert cell.delete(PATH + "?budgetMs=" + bad,
                           headers=A).status == 400


@pytest.mark.cellenv(**ON)
def test_what_others_hold_is_left_for_later(cell, db):
    """Nobody is waited for, and it is not done before all is gone."""
    fill(cell, A)
    conn = db.connect(autocommit=False)
    part = rows(conn, "select p.id from queen.partitions p join queen.queues"
                " q on q.id = p.queue_id where q.tenant = %s and q.name ="
                " 'q1' order by 1", (OTHER_TENANT,))[0][0]
    rows(conn, "select from queen.partition_heads where id = %s for update",
         (part,))
    rows(conn, "select from queen.kv where tenant = %s for update",
         (OTHER_TENANT,))
    reply = cell.delete(PATH, headers=A)
    assert reply.body["done"] is False
    assert (reply.body["phase"], reply.body["queues"]) == (
        "queue-residue", {"deleted": 1, "remaining": 1})
    assert reply.body["rows"]["queen.partitions"] == 3
    reply = cell.delete(PATH, headers=A)
    assert reply.body["done"] is False
    assert set(reply.body["rows"].values()) == {0}
    conn.commit()
    rows(conn, "select from queen.kv where tenant = %s for update",
         (OTHER_TENANT,))
    reply = cell.delete(PATH, headers=A)
    assert (reply.body["done"], reply.body["phase"]) == (False, "sweep")
    assert reply.body["queues"] == {"deleted": 1, "remaining": 0}
    conn.commit()
    conn.close()
    purge(cell)
    assert set(rows_of(db, OTHER_TENANT).values()) == {0}


@pytest.mark.parametrize("table", ["queue_minutes", "retention_log",
                                   "repairs"])
@pytest.mark.cellenv(**ON)
def test_a_queue_waits_for_its_histories(cell, db, table):
    fill(cell, A)
    fill_by_sql(db, OTHER_TENANT)
    conn = db.connect(autocommit=False)
    rows(conn, "select from queen.%s h join queen.queues q on q.id ="
         " h.queue_id where q.tenant = %%s for update of h" % table,
         (OTHER_TENANT,))
    for _ in range(2):
        reply = cell.delete(PATH, headers=A)
        assert reply.body["done"] is False
        assert reply.body["queues"]["deleted"] == 0
    conn.commit()
    conn.close()
    before = db.value("select count(*) from queen.%s" % table)
    assert before > 0
    purge(cell)
    assert db.value("select count(*) from queen.%s" % table) == 0
    assert set(rows_of(db, OTHER_TENANT).values()) == {0}


@pytest.mark.cellenv(**ON)
def test_the_other_tenant_works_on(cell, db):
    """While one is purged, each message of the other is pushed, popped and
    acknowledged once, under the same names."""
    for queue in ["q%d" % i for i in range(30)]:
        for part in ("a", "b"):
            cell.push(queue, [1, 2], partition=part, headers=A)
    stop, faults, pushed, popped = threading.Event(), [], [], []

    def traffic():
        n = 0
        try:
            while not stop.is_set() or n < 50:
                n += 1
                cell.push("q%d" % (n % 30), [n], partition="a", headers=B)
                pushed.append(n)
                found = cell.pop("q%d" % (n % 30), group="g", headers=B,
                                 subscriptionMode="all", wait="false")
                popped.extend(m["data"] for m in found)
                if found and not cell.ack(found, group="g",
                                          headers=B)[0]["success"]:
                    faults.append(n)
        except (AssertionError, OSError) as e:
            faults.append(e)

    thread = threading.Thread(target=traffic)
    thread.start()
    try:
        purge(cell, query="?budgetMs=0")
    finally:
        stop.set()
        thread.join()
    assert faults == []
    assert popped == pushed
    assert set(rows_of(db, OTHER_TENANT).values()) == {0}


@pytest.mark.cellenv(**ON)
def test_a_tenant_that_goes_on_is_purged_when_it_stops(cell, db):
    """Its own pushes, bundles, due timers and acks meanwhile: no request
    fails of it, no deadlock, and at the end nothing is left."""
    stop, faults = threading.Event(), []

    def traffic(n):
        i = 0
        while not stop.is_set():
            i += 1
            queue = "q%d" % (i % 5)
            body = {"operations": [{"type": "push", "items": [
                {"queue": queue, "partition": "p%d" % n, "payload": i}]}],
                "kv": [{"op": "put", "ns": "n", "key": "k%d" % (i % 20),
                        "value": i, "forever": True}],
                "timers": [{"op": "schedule", "queue": queue, "txn": "t",
                            "timerKey": "t%d-%d" % (n, i), "delayMs": 0,
                            "payload": "ImEi"}]}
            try:
                reply = cell.post("/api/v1/transaction", body, headers=A)
                # one that lost its queue in between says so
                if reply.status >= 500:
                    faults.append(reply)
                found = cell.pop(queue, group="g", subscriptionMode="all",
                                 batch=10, wait="false", headers=A)
                if found:
                    cell.ack(found, group="g", headers=A)
            except (AssertionError, OSError) as e:
                faults.append(e)

    threads = [threading.Thread(target=traffic, args=(n,)) for n in range(3)]
    for t in threads:
        t.start()
    removed = passes = 0
    try:
        while passes < 15 or removed < 20:
            reply = cell.delete(PATH + "?budgetMs=100", headers=A)
            assert reply.status == 200, reply
            removed += reply.body["rows"]["queen.segments"]
            passes += 1
            assert passes < 5000 and not faults, faults
    finally:
        stop.set()
        for t in threads:
            t.join()
    assert faults == []
    # timers that are due may still become messages of a new queue
    wait_until(lambda: db.value("select count(*) from queen.timers") == 0)
    purge(cell)
    assert set(rows_of(db, OTHER_TENANT).values()) == {0}
    assert db.value("select deadlocks from pg_stat_database where datname ="
                    " current_database()") == 0


@pytest.mark.cellenv(**ON)
def test_a_purge_survives_the_death_of_its_server(cell, db):
    """Between two passes and in the middle of one."""
    many = ["m%d" % i for i in range(15)]
    for queue in many:
        cell.push(queue, [1], headers=A)
    fill(cell, A)
    reply = cell.delete(PATH + "?budgetMs=0", headers=A)
    assert reply.body["queues"] == {"deleted": 10, "remaining": 7}
    cell.kill9()
    cell.start()
    conn = db.connect(autocommit=False)
    rows(conn, "lock table queen.kv in access exclusive mode")
    lost = []

    def ask():
        try:
            lost.append(cell.delete(PATH, headers=A))
        except OSError:
            pass

    thread = threading.Thread(target=ask)
    thread.start()
    wait_until(lambda: db.value(
        "select count(*) from pg_stat_activity where wait_event_type ="
        " 'Lock' and query like '%%tenant_purge%%'"
        " and datname = current_database()") == 1)
    cell.kill9()
    thread.join()
    assert lost == []
    conn.commit()
    conn.close()
    cell.start()
    answer, = purge(cell)
    assert answer["phase"] == "complete"
    assert set(rows_of(db, OTHER_TENANT).values()) == {0}
    assert db.value("select count(*) from queen.segments") == 0


def test_another_server_goes_on_after_a_purge(cells):
    """It knew queues and partitions that are gone: what is pushed there then
    is a queue of its own, and nothing is lost or taken for a duplicate."""
    one, other = cells(2, **ON)
    for cell in (one, other):
        cell.push("q", ["old"], ids=["t"], partition="p", headers=A)
    purge(one)
    assert [r["status"] for r in other.push(
        "q", ["new"], ids=["t"], partition="p", headers=A)] == ["queued"]
    assert [r["status"] for r in one.push(
        "q", ["new"], ids=["t"], partition="p", headers=A)] == ["duplicate"]
    for cell in (other, one):
        assert [m["data"] for m in cell.pop(
            "q", group="g" + cell.name, subscriptionMode="all", batch=10,
            headers=A)] == ["new"]


# The SQL alone

def test_small_steps_and_guards(db):
    kit = Kit(db.connect(), OTHER_TENANT)
    for queue in ("a", "b", "c"):
        q = kit.queue(queue)
        for part in kit.parts(q, ["p1", "p2", "p3"]):
            kit.push(part, 1)
            kit.push(part, 1)
    answers = []
    while not answers or not answers[-1]["done"]:
        answers.append(kit.value("select queen.tenant_purge_v1(%s, 1, 2)",
                                 OTHER_TENANT))
        assert len(answers) < 100
    # three steps of two for segments, three for ids, then the partitions
    assert [a["phase"] for a in answers[:6]] == ["queue-residue"] * 6
    assert answers[-1]["phase"] == "complete"
    assert sum(a["rows"]["queen.segments"] for a in answers) == 18
    assert max(a["rows"]["queen.segments"] for a in answers) == 2
    assert set(rows_of(db, OTHER_TENANT).values()) == {0}
    for args in ("null", "'%s'" % TENANT, "'%s', 0" % OTHER_TENANT,
                 "'%s', 1, 0" % OTHER_TENANT, "'%s', null" % OTHER_TENANT,
                 "'%s', 1, 1, null" % TENANT):
        with pytest.raises(psycopg2.errors.InvalidParameterValue):
            kit.rows("select queen.tenant_purge_v1(%s)" % args)
    assert kit.value("select queen.tenant_purge_v1(%s, 1, 1, true)",
                     TENANT)["done"] is True
    kit.rows("create table queen.forgotten (tenant uuid)")
    with pytest.raises(psycopg2.errors.FeatureNotSupported,
                       match="queen.forgotten is not covered"):
        kit.rows("select queen.tenant_purge_v1(%s)", OTHER_TENANT)


@pytest.mark.allpg
def test_a_step_reads_nothing_of_others(db):
    """Generic plans, and a history of others that is long: a step touches the
    tenant's own rows."""
    conn = db.connect()
    for option in ("plan_cache_mode = force_generic_plan",
                   "enable_seqscan = off", "enable_bitmapscan = off",
                   "jit = off"):
        rows(conn, "set " + option)
    kit = Kit(conn, OTHER_TENANT)
    # plans are made while there is next to nothing
    rows(conn, "select queen.tenant_purge_v1(%s)", (OTHER_TENANT,))
    kit.push(kit.part(kit.queue("first"), "p"), 1)
    rows(conn, "select queen.tenant_purge_v1(%s)", (OTHER_TENANT,))
    other = Kit(conn, B_TENANT)
    q = other.queue("q")
    part = other.part(q, "p")
    group = other.group(q, "g")
    n = 20000
    rows(conn, "insert into queen.queue_minutes (minute, queue_id) select"
         " %s + i * interval '1 minute', %s from generate_series(1, %s) i",
         (at(0), q, n))
    rows(conn, "insert into queen.retention_log select %s, %s, %s,"
         " 'retention', 1 from generate_series(1, %s)", (at(0), q, part, n))
    rows(conn, "insert into queen.repairs (queue_id, group_id, at) select %s,"
         " %s, now() from generate_series(1, %s)", (q, group, n))
    rows(conn, "insert into queen.lease_sets select %s, %s, i, '{}', '{}',"
         " now() from generate_series(1, %s) i", (part, group, n))
    rows(conn, "insert into queen.traces (id, tenant, partition_id,"
         " transaction_id, consumer_group, event_type, data) select"
         " gen_random_uuid(), %s, %s, 't', 'g', 'e', '{}'"
         " from generate_series(1, %s)", (B_TENANT, part, n))
    rows(conn, "insert into queen.queues (tenant, name, deleted_at) select"
         " %s, 'x' || i, now() from generate_series(1, %s) i", (B_TENANT, n))
    rows(conn, "insert into queen.groups (queue_id, name, mode, subscribed_at,"
         " deleted_at) select %s, 'g' || i, 'all', now(), now()"
         " from generate_series(1, %s) i", (q, n))
    mine = kit.queue("q")
    kit.push(kit.part(mine, "p"), 1)
    kit.group(mine, "g")

    def reads():
        rows(conn, "select pg_stat_force_next_flush()")
        return {t: (s, i) for t, s, i in rows(
            conn, "select relname, seq_tup_read, coalesce(idx_tup_fetch, 0)"
            " from pg_stat_user_tables where schemaname = 'queen'")}

    before = reads()
    answer = rows(conn, "select queen.tenant_purge_v1(%s)",
                  (OTHER_TENANT,))[0][0]
    assert answer["queues"] == {"deleted": 1, "remaining": 0}
    rows(conn, "select queen.tenant_purge_v1(%s)", (OTHER_TENANT,))
    after = reads()
    for table in before:
        assert after[table][0] - before[table][0] == 0, table
        assert after[table][1] - before[table][1] < 100, table

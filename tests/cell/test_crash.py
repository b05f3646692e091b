# SPDX-License-Identifier: Apache-2.0
"""
PostgreSQL or queend gone at any instant: clients get an answer or an error in
bounded time, service resumes by itself, and nothing is lost, doubled or out of
order beyond what the rules allow.
"""
import os
import signal
import socket
import threading
import time

import pytest

from loadkit import Client, Load, Workers, invariants
from popkit import Popper, wait_parked
from proxykit import Proxy
from queenlib import Port, metric, wait_until

durable = pytest.mark.durable
PUSH = "/api/v1/push"


@pytest.fixture
def proxy(pg):
    made = Proxy(pg.port.number)
    yield made
    made.close()


def healthy(cell):
    try:
        return cell.get("/health", timeout=5).status == 200
    except OSError:
        return False


def run_load(load, faults, every_s):
    """The load with each fault in turn, then the end."""
    try:
        for fault in faults:
            load.workers.stop.wait(every_s)
            if load.workers.errors:
                break
            fault()
        load.workers.stop.wait(every_s)
        load.finish()
    finally:
        load.workers.stop.set()
        load.workers.join()


# Under load

@durable
def test_a_killed_database_loses_nothing_and_service_resumes(
        new_cell, db, pg):
    cells = [new_cell().start(), new_cell().start()]
    load = Load(db, cells, n=6).start()
    run_load(load, [lambda: pg.restart("immediate")] * 2, 1.5)
    assert load.faults["failed"] + load.faults[500] > 0, load.faults


@durable
def test_a_killed_queend_loses_nothing_and_service_resumes(new_cell, db):
    cell = new_cell().start()

    def kill():
        cell.kill9()
        cell.start()

    load = Load(db, [cell], n=6).start()
    run_load(load, [kill] * 3, 1)
    assert sum(load.faults.values()) > 0


@durable
def test_a_lease_outlives_queend_and_ends_by_the_clock(new_cell, db):
    """C1"""
    cell = new_cell().start()
    cell.push("q", [1])
    start = time.monotonic()
    first = cell.pop("q", leaseSeconds=5)
    assert len(first) == 1
    cell.kill9()
    cell.start()
    held = time.monotonic()
    assert cell.pop("q") == [] or time.monotonic() - start > 5
    got = cell.pop("q", wait=True, wait_ms=20000)
    took = time.monotonic() - start
    assert [m["deliveryAttempt"] for m in got] == [2]
    assert took >= 4.9, took
    assert time.monotonic() - held < 15


# All or nothing at any instant

def in_one_snapshot(db, sql, want):
    """Both sides of an invariant, read by one statement."""
    found = db.rows(sql)
    assert all(want(*row) for row in found), found
    return found


def count_of(queue):
    return ("(select coalesce(sum(s.end_offset - s.base_offset + 1), 0)::int"
            " from queen.segments s join queen.partitions p"
            " on p.id = s.partition_id join queen.queues q"
            " on q.id = p.queue_id where q.name = '%s')" % queue)


COMMITTED = ("(select coalesce(max(c.committed), -1)::int"
             " from queen.consumers c join queen.groups g"
             " on g.id = c.group_id join queen.queues q"
             " on q.id = g.queue_id where q.name = 'in')")


@durable
@pytest.mark.parametrize("victim", ["queend", "postgres"])
def test_a_transaction_is_whole_or_absent_at_any_instant(
        new_cell, db, pg, victim):
    """Each one acks message n and pushes result n."""
    cell = new_cell().start()
    total = 300
    for i in range(0, total, 100):
        cell.push("in", list(range(i, i + 100)), partition="p")

    def work():
        client = Client([cell])
        while not w.stop.is_set():
            got = client.call("GET", "/api/v1/pop/queue/in?batch=20"
                              "&leaseSeconds=1")
            if got is None:
                time.sleep(0.02)
                continue
            for m in (got[1] or {"messages": []})["messages"]:
                got = client.call("POST", "/api/v1/transaction", {
                    "operations": [
                        {"type": "ack", "transactionId": m["transactionId"],
                         "partitionId": m["partitionId"]},
                        {"type": "push", "queue": "out",
                         "transactionId": "r%d" % m["data"],
                         "payload": m["data"]}],
                    "requiredLeases": [m["leaseId"]]})
                if got is None:
                    break
                assert got[0] == 200, got
                if not got[1]["success"]:
                    # ours was done though we saw no answer, or taken over
                    assert got[1]["reason"] in (
                        "duplicate", "ack_rejected", "db_error"), got
                    break
        client.close()

    both = "select %s, %s + 1" % (count_of("out"), COMMITTED)
    with Workers() as w:
        w.start(work)
        kills = 0
        end = time.monotonic() + 60
        while db.value("select " + COMMITTED) < total - 1:
            assert not w.errors and time.monotonic() < end
            time.sleep(0.15)
            in_one_snapshot(db, both, lambda out, acked: out == acked)
            if kills < 4:
                kills += 1
                if victim == "queend":
                    cell.kill9()
                    cell.start()
                else:
                    pg.restart("immediate")
                in_one_snapshot(db, both, lambda out, acked: out == acked)
        w.stop.set()
    in_one_snapshot(db, both, lambda out, acked: out == acked == total)
    wait_until(lambda: healthy(cell))
    got = []
    while len(got) < total:
        ms = cell.pop("out", batch=500, autoAck=True, wait=True)
        assert ms
        got += [m["data"] for m in ms]
    assert got == list(range(total))
    invariants(db)


@durable
@pytest.mark.parametrize("victim", ["queend", "postgres"])
def test_a_dead_letter_is_moved_or_kept_never_both(new_cell, db, pg, victim):
    cell = new_cell().start()
    total = 60
    cell.push("q", list(range(total)), partition="p",
              ids=["t%d" % i for i in range(total)])
    for _ in range(total):
        got = cell.pop("q", group="g", subscriptionMode="all", batch=1)
        assert cell.ack(got, group="g", status="dlq")[0]["dlq"]
    rows = [m["id"] for m in cell.get("/api/v1/dlq").body["messages"]]
    assert len(rows) == total

    def work():
        client = Client([cell])
        for row in rows:
            while not w.stop.is_set():
                got = client.call("POST", "/api/v1/dlq/%s/replay" % row,
                                  {"queue": "again", "partition": "p"})
                if got is not None:
                    # 404: the move we had no answer of was done
                    assert got[0] in (200, 404), got
                    break
                time.sleep(0.02)
        client.close()

    both = ("select (select count(*) from queen.dead_letters)::int, %s"
            % count_of("again"))
    whole = lambda kept, moved: kept + moved == total   # noqa: E731
    with Workers() as w:
        w.start(work)
        for _ in range(4):
            time.sleep(0.1)
            in_one_snapshot(db, both, whole)
            if victim == "queend":
                cell.kill9()
                cell.start()
            else:
                pg.restart("immediate")
            in_one_snapshot(db, both, whole)
        w.join()
    in_one_snapshot(db, both, lambda kept, moved: (kept, moved) == (0, total))
    wait_until(lambda: healthy(cell))
    got = cell.pop("again", batch=200, autoAck=True)
    assert sorted(m["data"] for m in got) == list(range(total))
    assert sorted(m["transactionId"] for m in got) == sorted(
        "dlq:" + row for row in rows)


# What the client cannot know

def copies(db, queue):
    return db.value("select " + count_of(queue))


def test_an_ambiguous_commit_leaves_one_copy(new_cell, db, proxy):
    cell = new_cell(PG_PORT=proxy.port.number).start()
    cell.push("q", [0], ids=["warm"])
    for i in range(5):
        proxy.cut_after = b"\0push"
        first = cell.push("q", [i], ids=["t%d" % i])[0]
        assert proxy.cuts == i + 1
        assert first["status"] in ("failed", "queued", "duplicate"), first
        again = wait_until(lambda: next(
            (r for r in cell.push("q", [i], ids=["t%d" % i])
             if r["status"] != "failed"), None))
        assert again["status"] == "duplicate"
        assert copies(db, "q") == i + 2
    got = cell.pop("q", batch=100)
    assert [m["transactionId"] for m in got] == [
        "warm"] + ["t%d" % i for i in range(5)]


def test_an_ambiguous_commit_of_a_minted_id_is_not_stored_twice(
        new_cell, db, proxy):
    cell = new_cell(PG_PORT=proxy.port.number).start()
    cell.push("q", [0])
    for i in range(3):
        proxy.cut_after = b"\0push"
        status = cell.push("q", [i])[0]["status"]
        assert proxy.cuts == i + 1
        assert status in ("failed", "queued")
        assert copies(db, "q") == i + 2


def test_an_ambiguous_ack_can_be_repeated(new_cell, db, proxy):
    cell = new_cell(PG_PORT=proxy.port.number).start()
    for i in range(3):
        cell.push("q", [i])
        # also when its acked lease was not heard of: no wait for its end
        got = cell.pop("q", wait=True, wait_ms=3000)
        assert [m["data"] for m in got] == [i]
        proxy.cut_after = b"\0ack"
        first = cell.post("/api/v1/ack", {
            "transactionId": got[0]["transactionId"],
            "partitionId": got[0]["partitionId"],
            "leaseId": got[0]["leaseId"]})
        assert proxy.cuts == i + 1
        assert first.status == 200
        if not first.body[0]["success"]:
            assert first.body[0]["error"] == \
                "ack flush failed; lease will expire and redeliver"
        again = wait_until(lambda: next(
            (r for r in cell.ack(got) if r["success"]), None))
        assert again["error"] is None
    assert cell.pop("q") == []
    assert db.value("select consumed from queen.consumers") == 3


def test_an_ambiguous_transaction_says_so_and_is_whole(new_cell, db, proxy):
    cell = new_cell(PG_PORT=proxy.port.number).start()
    for i in range(3):
        cell.push("in", [i], partition="p")
        m, = cell.pop("in", wait=True, wait_ms=3000)
        body = {"operations": [
            {"type": "ack", "transactionId": m["transactionId"],
             "partitionId": m["partitionId"], "leaseId": m["leaseId"]},
            {"type": "push", "queue": "out", "transactionId": "r%d" % i,
             "payload": i}]}
        # sent behind the verdict of the bundle
        proxy.cut_after = b"\0queen_commit\0"
        first = cell.post("/api/v1/transaction", body)
        assert first.status == 200 and first.body["success"] is False
        assert first.body["reason"] == "db_error"
        assert "unknown" in first.body["error"], first.body
        assert proxy.cuts == i + 1
        in_one_snapshot(db, "select %s, %s + 1" % (count_of("out"), COMMITTED),
                        lambda out, acked: out == acked == i + 1)
        # what the caller does then: the ids tell that it was done
        again = cell.post("/api/v1/transaction", body)
        assert (again.body["success"], again.body["reason"]) == (
            False, "duplicate")
    # a waiting pop had them at once
    assert [m["data"] for m in cell.pop("out", batch=9, wait=True,
                                        wait_ms=3000)] == [0, 1, 2]


def test_an_ambiguous_replay_says_so_and_moved_once(new_cell, db, proxy):
    cell = new_cell(PG_PORT=proxy.port.number).start()
    cell.push("q", [1], ids=["t"])
    got = cell.pop("q")
    assert cell.ack(got, status="dlq")[0]["dlq"]
    row, = cell.get("/api/v1/dlq").body["messages"]
    proxy.cut_after = b"\0dead_move"
    first = cell.post("/api/v1/dlq/%s/replay" % row["id"], {})
    assert proxy.cuts == 1
    assert first.status == 500 and first.body["dlqRowRemoved"] is None, first
    assert cell.post("/api/v1/dlq/%s/replay" % row["id"], {}).status == 404
    assert copies(db, "q") == 2
    assert [m["transactionId"] for m in cell.pop(
        "q", wait=True, wait_ms=3000)] == ["dlq:" + row["id"]]


# Hanging and slow

@pytest.mark.cellenv(QUEEN_STMT_TIMEOUT_MS=700)
def test_a_hanging_statement_is_cancelled_and_others_are_served(cell, db):
    cell.push("q", [1], partition="held")
    cell.push("q", [1], partition="free")
    conn = db.connect(autocommit=False)
    before = {r[0] for r in db.rows(
        "select pid from pg_stat_activity where datname = current_database()")}
    with conn.cursor() as cur:
        cur.execute("select h.id from queen.partition_heads h join"
                    " queen.partitions p on p.id = h.id"
                    " where p.name = 'held' for update of h")
    start = time.monotonic()
    got = []
    with Workers() as w:
        w.start(lambda: got.append(
            cell.push("q", [2], partition="held")[0]["status"]))
        wait_until(lambda: db.rows("select 1 from pg_locks where not granted"))
        for i in range(10):
            one = time.monotonic()
            assert cell.push("q", [i], partition="free")[0][
                "status"] == "queued"
            assert time.monotonic() - one < 5
        w.join()
    took = time.monotonic() - start
    assert got == ["failed"]
    assert 0.6 < took < 15, took
    conn.rollback()
    assert wait_until(lambda: cell.push("q", [2], partition="held")[0][
        "status"] == "queued")
    assert [m["data"] for m in cell.pop("q", partition="held", batch=9)] == [
        1, 2]
    # nobody waits for ever, and the pool is whole again
    assert db.rows("select 1 from pg_locks where not granted") == []
    assert before


@pytest.mark.cellenv(QUEEN_STMT_TIMEOUT_MS=700)
def test_a_backend_that_does_not_listen_is_replaced(cell, db):
    """A stopped process takes no cancel: the connection goes."""
    cell.push("q", [0])
    conn = db.connect(autocommit=False)
    with conn.cursor() as cur:
        cur.execute("lock table queen.partition_heads in exclusive mode")
    got = []
    with Workers() as w:
        w.start(lambda: got.append(cell.push("q", [1])[0]["status"]))
        pid = wait_until(lambda: db.rows(
            "select pid from pg_locks where not granted"))[0][0]
        os.kill(pid, signal.SIGSTOP)
        try:
            w.join(60)
            assert got == ["failed"]
            conn.rollback()
            # it may hold nothing that stops the others
            assert wait_until(lambda: cell.push("r", [1])[0][
                "status"] == "queued")
        finally:
            os.kill(pid, signal.SIGCONT)
    assert wait_until(lambda: cell.push("q", [2])[0]["status"] == "queued")


def test_a_slow_database_delays_answers_and_loses_none(new_cell, db, proxy):
    """C5 (scaled): acks answer; what comes again was not confirmed."""
    cell = new_cell(PG_PORT=proxy.port.number).start()
    for i in range(5):
        cell.push("q", list(range(10 * i, 10 * i + 10)), partition="p%d" % i)
    got = cell.pop("q", batch=100, partitions=0, leaseSeconds=3)
    assert len(got) == 50
    proxy.delay_s = 0.7
    confirmed, lock = set(), threading.Lock()

    def ack(part):
        mine = [m for m in got if m["partition"] == "p%d" % part]
        for m in mine[:2 + part]:
            result = cell.ack([m], timeout=60)[0]
            if result["success"]:
                with lock:
                    confirmed.add((m["partition"], m["data"]))
            else:
                assert result["error"] in (
                    "invalid or expired lease", "pool",
                    "ack flush failed; lease will expire and redeliver")

    with Workers() as w:
        for i in range(5):
            w.start(ack, i)
        w.join()
    proxy.delay_s = 0
    assert confirmed
    again = set()
    while len(again) + len(confirmed) < 50:
        ms = cell.pop("q", batch=100, partitions=0, autoAck=True, wait=True,
                      wait_ms=15000)
        assert ms, (len(again), len(confirmed))
        again |= {(m["partition"], m["data"]) for m in ms}
    assert not again & confirmed
    assert len(again) + len(confirmed) == 50


def children(pid):
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open("/proc/%s/stat" % name) as f:
                    if int(f.read().rsplit(") ", 1)[1].split()[1]) == pid:
                        found.append(int(name))
            except OSError:
                continue
    return found


@pytest.mark.cellenv(QUEEN_STMT_TIMEOUT_MS=700)
def test_a_database_that_stands_still_is_a_bounded_wait(cell, pg):
    """No error, no reset: connections open and nobody answers."""
    cell.push("q", [0])
    stopped = [pg.pid()] + children(pg.pid())
    for pid in stopped:
        os.kill(pid, signal.SIGSTOP)
    try:
        start = time.monotonic()
        assert cell.push("q", [1])[0]["status"] == "failed"
        reply = cell.get("/api/v1/pop/queue/other")
        assert reply.status == 500 and reply.body["error"], reply
        assert cell.get("/health").status == 503
        assert cell.get("/status").status == 200
        assert time.monotonic() - start < 30
    finally:
        for pid in stopped:
            os.kill(pid, signal.SIGCONT)
    wait_until(lambda: healthy(cell))
    assert wait_until(lambda: next(
        (r for r in cell.push("q", [2]) if r["status"] == "queued"), None))
    # what was sent and never answered may be there; it is in order
    got = [m["data"] for m in wait_until(lambda: cell.pop("q", batch=10))]
    assert got[0] == 0 and got[-1] == 2 and sorted(got) == got, got


# The database away

def test_each_route_says_so_while_the_database_is_down(cell, pg):
    cell.push("q", [1])
    cell.push("r", [1], partition="p")
    m, = cell.pop("q")
    pg.stop("immediate")
    wait_until(lambda: not healthy(cell))
    got = cell.push("q", [2])
    assert [r["status"] for r in got] == ["failed"]

    def answer(method, path, body=None):
        reply = cell.request(method, path, body)
        return reply.status, reply.body

    pool = (500, {"error": "pool"})
    for path in ("/queue/r", "/queue/r/partition/p", "/queue/unknown",
                 "/queue/q?consumerGroup=new"):
        assert answer("GET", "/api/v1/pop" + path) == pool, path
    status, body = answer("POST", "/api/v1/ack", {
        "transactionId": m["transactionId"], "partitionId": m["partitionId"],
        "leaseId": m["leaseId"]})
    assert (status == 200 and body[0]["success"] is False
            and body[0]["error"] in ("pool", "ack flush failed; lease will"
                                     " expire and redeliver")) or (
        (status, body) == pool)
    for method, path, body in (
            ("POST", "/api/v1/lease/%s/extend" % m["leaseId"], {}),
            ("POST", "/api/v1/transaction", {"operations": [
                {"type": "push", "queue": "q", "payload": 1}]}),
            ("POST", "/api/v1/fetch", {"entries": [
                {"queue": "q", "offset": 0}]}),
            ("POST", "/api/v1/partitions/changed", {}),
            ("POST", "/api/v1/configure", {"queue": "z"}),
            ("GET", "/api/v1/resources/queues", None),
            ("GET", "/api/v1/messages", None), ("GET", "/api/v1/dlq", None),
            ("GET", "/api/v1/consumer-groups", None)):
        status, got = answer(method, path, body)
        assert status == 500 and got["error"], (path, status, got)
    status, body = answer("GET", "/health")
    assert (status, body["status"], body["database"]) == (
        503, "unhealthy", "disconnected")
    assert answer("GET", "/status")[0] == 200
    assert answer("GET", "/api/v1/system/maintenance")[0] == 200
    status, text = answer("GET", "/metrics/prometheus")
    assert status == 200 and b"queen_uptime_seconds" in text
    pg.start()
    wait_until(lambda: healthy(cell))
    assert cell.push("q", [3])[0]["status"] == "queued"


def test_pops_parked_through_an_outage_get_what_comes_after(cells, pg, db):
    """B9: both processes, with no hint sent while nobody listened."""
    both = cells(2)
    for i, one in enumerate(both):
        one.pop("q%d" % i)
    got = {}
    with Workers() as w:
        for i, one in enumerate(both):
            w.start(lambda i=i, one=one: got.setdefault(i, one.pop(
                "q%d" % i, wait=True, wait_ms=60000, timeout=90)))
        wait_until(lambda: all(
            b"queen_parked_pops 1\n" in one.get("/metrics/prometheus").body
            for one in both), what="parked")
        pg.stop("immediate")
        assert both[0].push("q1", [0])[0]["status"] == "failed"
        wait_until(lambda: not healthy(both[0]))
        assert got == {}
        pg.start()
        # to each through the other
        for i, one in enumerate(both):
            wait_until(lambda: one.push("q%d" % (1 - i), [i])[0][
                "status"] == "queued")
        start = time.monotonic()
        w.join(60)
    assert [m["data"] for m in got[0]] == [1]
    assert [m["data"] for m in got[1]] == [0]
    assert time.monotonic() - start < 30


def test_a_parked_pop_outlives_its_lane(new_cell, db):
    """What wakes it finds no connection of the pops, only of the others."""
    cell = new_cell(DB_POOL_SIZE=4).start()
    cell.push("q", [0])
    assert len(cell.pop("q", autoAck="true")) == 1
    one = Popper(cell, "q", wait_ms=50000)
    wait_parked(cell, 1)
    db.rows("select 1")     # a session that is there already
    db.server.admin("alter database %s allow_connections false" % db.name)
    try:
        killed = db.rows(
            "select pg_terminate_backend(pid) from pg_stat_activity"
            " where datname = current_database() and application_name ="
            " 'queend' and query like '%queen.pop\\_v%'")
        assert killed == [(True,)]
        wait_until(lambda: metric(cell, "queen_db_pool_idle") == 3)
        before = metric(cell, "queen_db_errors_total")
        assert cell.push("q", [1])[0]["status"] == "queued"
        wait_until(lambda: metric(cell, "queen_db_errors_total") > before
                   or not one.is_alive())
    finally:
        db.server.admin("alter database %s allow_connections true" % db.name)
    assert one.result() == [1]


# Boot and end

def test_a_database_that_refuses_at_boot_is_exit_3_and_one_line(new_cell):
    port = Port()
    cell = new_cell(PG_PORT=port.number)
    cell.start(wait=False)
    assert cell.wait_exit() == 3
    port.give()
    errors = [x for x in cell.log_text().splitlines() if " ERROR " in x]
    assert len(errors) == 1 and str(port.number) in errors[0], errors


def test_a_role_that_may_not_connect_is_exit_3(new_cell, db):
    cell = new_cell(PG_USER="no_such_role")
    cell.start(wait=False)
    assert cell.wait_exit() == 3
    assert "no_such_role" in cell.log_text()


def test_a_bad_setting_is_exit_2_and_names_it(new_cell):
    cell = new_cell(DB_POOL_SIZE="many")
    cell.start(wait=False)
    assert cell.wait_exit() == 2
    assert "DB_POOL_SIZE" in cell.log_text()


def test_a_taken_port_is_exit_1(new_cell):
    port = Port()
    with socket.socket() as s:
        s.bind(("127.0.0.1", port.number))
        s.listen()
        cell = new_cell(_port=port)
        cell.start(wait=False)
        assert cell.wait_exit() == 1
    port.give()


def test_sigterm_answers_what_is_in_hand_and_exits_0(cell, db):
    cell.pop("q")
    conn = db.connect(autocommit=False)
    cell.push("q", [0], partition="held")
    with conn.cursor() as cur:
        cur.execute("select 1 from queen.partition_heads for update")
    out = {}
    with Workers() as w:
        w.start(lambda: out.setdefault("push", cell.push(
            "q", [1], partition="held")[0]["status"]))
        w.start(lambda: out.setdefault("pop", cell.pop(
            "none", wait=True, wait_ms=30000)))
        wait_until(lambda: db.rows("select 1 from pg_locks where not granted"))
        wait_until(lambda: b"queen_parked_pops 1\n" in cell.get(
            "/metrics/prometheus").body)
        cell.signal(signal.SIGHUP)      # ignored
        assert cell.get("/status").status == 200
        cell.signal(signal.SIGTERM)
        wait_until(lambda: out.get("pop") == [])
        assert cell.proc.poll() is None and "push" not in out
        conn.rollback()
        w.join()
    assert out["push"] == "queued"
    assert cell.wait_exit() == 0


def test_a_second_sigterm_ends_at_once(cell, db):
    cell.push("q", [0], partition="held")
    conn = db.connect(autocommit=False)
    with conn.cursor() as cur:
        cur.execute("select 1 from queen.partition_heads for update")
    with Workers() as w:
        client = Client([cell])
        w.start(lambda: client.call("POST", PUSH, {"items": [
            {"queue": "q", "partition": "held", "payload": 1}]}))
        wait_until(lambda: db.rows("select 1 from pg_locks where not granted"))
        cell.signal(signal.SIGTERM)
        wait_until(lambda: "drain" in cell.log_text().lower()
                   or "stopping" in cell.log_text().lower())
        start = time.monotonic()
        cell.signal(signal.SIGTERM)
        code = cell.wait_exit()
        assert time.monotonic() - start < 5
        w.join()
    assert code in (0, 1, -signal.SIGTERM)
    conn.rollback()

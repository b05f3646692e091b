# SPDX-License-Identifier: Apache-2.0
"""Switches of the cell, wake-ups, constant answers, boot and shutdown."""
import http.client
import json
import signal
import socket
import subprocess
import threading

import pytest

from queenlib import binary, wait_until

ON = "Maintenance mode ENABLED. All PUSHes routing to file buffer."
OFF = ("Maintenance mode DISABLED. Background processor will drain buffer"
       " to DB.")
POP_ON = ("Pop maintenance mode ENABLED. All POP operations will return"
          " empty arrays.")
POP_OFF = "Pop maintenance mode DISABLED. Normal operation."
POP_IS_ON = ("Pop maintenance mode is ON. All POP operations return empty"
             " arrays.")
POP_IS_OFF = "Pop maintenance mode is OFF. Normal operation."
PUSH, POP = "/api/v1/system/maintenance", "/api/v1/system/maintenance/pop"


# Maintenance

def test_push_maintenance_texts(cell):
    want = {"maintenanceMode": True, "bufferedMessages": 0,
            "bufferHealthy": True, "message": ON}
    assert cell.post(PUSH, {"enabled": True}).body == want
    assert cell.get(PUSH).body == {
        "maintenanceMode": True, "popMaintenanceMode": False,
        "bufferedMessages": 0, "bufferHealthy": True,
        "bufferStats": {"pendingCount": 0, "failedCount": 0,
                        "dbHealthy": True,
                        "failedFiles": {"count": 0, "totalBytes": 0,
                                        "totalMB": 0.0, "failoverCount": 0,
                                        "qos0Count": 0}}}
    assert cell.post(PUSH, {"enabled": False}).body["message"] == OFF


def test_pop_maintenance_texts(cell):
    assert cell.get(POP).body == {"popMaintenanceMode": False,
                                  "message": POP_IS_OFF}
    assert cell.post(POP, {"enabled": True}).body == {
        "popMaintenanceMode": True, "message": POP_ON}
    assert cell.get(POP).body["message"] == POP_IS_ON
    assert cell.post(POP, {"enabled": False}).body == {
        "popMaintenanceMode": False, "message": POP_OFF}


@pytest.mark.parametrize("path", [PUSH, POP])
@pytest.mark.parametrize("body", [
    "", "x", "{}", "[]", '{"enabled":1}', '{"enabled":"true"}',
    '{"enabled":null}', '{"enabled":true', "true"])
def test_a_switch_needs_a_boolean(common, path, body):
    reply = common.post(path, body)
    assert (reply.status, reply.body) == (
        400, {"error": "enabled (boolean) is required"})


def test_push_maintenance_refuses_pushes_and_replays(cell):
    """There is no spool in this release."""
    cell.post(PUSH, {"enabled": True})
    reply = cell.post("/api/v1/push", {"items": [
        {"queue": "q", "payload": 1}]})
    assert reply.status == 503 and list(reply.body) == ["error"]
    cell.post(PUSH, {"enabled": False})
    assert cell.push("q", [1])[0]["status"] == "queued"


def test_pop_maintenance_answers_204_at_once(cell):
    cell.push("q", [1])
    cell.post(POP, {"enabled": True})
    for path in ("/api/v1/pop/queue/q?wait=true&timeout=60000",
                 "/api/v1/pop/queue/q/partition/Default",
                 "/api/v1/pop?namespace=q"):
        reply = cell.get(path, timeout=10)
        assert (reply.status, reply.body) == (204, b"")
        assert "Content-Length" not in reply.headers
    told = cell.get("/api/v1/pop/queue/q?consumerGroup=g&conflation=true")
    assert told.body == {"messages": [], "paused": True, "conflation": True}
    # reading goes on
    assert cell.post("/api/v1/fetch", {"entries": [
        {"queue": "q", "offset": 0}]}).body["entries"][0]["highWatermark"] == 1
    cell.post(POP, {"enabled": False})
    assert len(cell.pop("q")) == 1


def test_switches_outlive_a_restart(cell):
    cell.post(POP, {"enabled": True})
    wait_until(lambda: cell.db.value(
        "select value ->> 'enabled' from queen.flags"
        " where key = 'pop_maintenance_mode'") == "true", what="the row")
    cell.restart()
    assert cell.get(POP).body["popMaintenanceMode"] is True


def test_a_switch_reaches_the_other_process(cells):
    a, b = cells(2)
    a.post(POP, {"enabled": True})
    wait_until(lambda: b.get(POP).body["popMaintenanceMode"],
               deadline_s=5, what="the hint")


@pytest.mark.cellenv(QUEEN_CACHE_REFRESH_INTERVAL_MS=1000)
def test_a_switch_set_in_the_row_is_read_again(cell):
    cell.db.rows("select queen.flag_set_v1('pop_maintenance_mode', true)")
    wait_until(lambda: cell.get(POP).body["popMaintenanceMode"],
               what="the re-read")


# Constant answers

def test_shared_state_and_peers(common):
    flags = {"maintenance_mode": False, "pop_maintenance_mode": False}
    assert common.get("/api/v1/system/shared-state").body == dict(
        enabled=False, reason="single_node_segments_broker", **flags)
    for name in ("shared-state", "inter-instance"):
        assert common.get("/internal/api/%s/stats" % name).body == dict(
            enabled=False, reason="no_peers", **flags)


@pytest.mark.parametrize("method, path", [
    ("GET", "/api/v1/nope"),
    ("POST", "/streams/v1/queries"), ("POST", "/api/v1/ephemeral/push"),
    ("POST", "/api/v1/connectors"),
    ("DELETE", "/api/v1/queues/q/clear"),
    ("GET", "/api/v1/resources/partitions"),
    ("POST", "/api/v1/messages/p/t/dlq"), ("GET", "/api/v1/messages/t"),
    ("GET", "/api/v1/migration/status"), ("PUT", "/api/v1/push"),
    ("PATCH", "/anything"), ("DELETE", "/health")])
def test_what_is_not_there_is_the_json_404(common, method, path):
    reply = common.request(method, path)
    assert (reply.status, reply.body) == (
        404, {"error": "Not Found", "code": "no_such_route"})


# Notify

def test_notify_wakes_what_sql_wrote(cell):
    cell.push("q", [1])
    assert len(cell.pop("q", autoAck=True)) == 1
    got = []
    waiter = threading.Thread(target=lambda: got.extend(
        cell.pop("q", autoAck=True, wait=True, wait_ms=20000)))
    waiter.start()
    wait_until(lambda: b'queen_parked_long_polls{queue="q"} 1' in
               cell.get("/metrics/prometheus").body, what="the parked pop")
    cell.push("q", [2])
    assert cell.post("/internal/api/notify", {"queue": "q"}).body \
        == {"status": "ok"}
    waiter.join(10)
    assert [m["data"] for m in got] == [2]


@pytest.mark.parametrize("body", ["", "{}", "[1]", '{"queue":""}',
                                  '{"queue":5}', '{"queue":"q"'])
def test_notify_needs_a_queue(common, body):
    reply = common.post("/internal/api/notify", body)
    assert (reply.status, reply.body) == (400,
                                          {"error": "queue is required"})


def test_notify_of_an_unknown_queue_is_fine(common):
    assert common.post("/internal/api/notify", {"queue": "x"}).status == 200


# Boot

def run(cell, *args, **env):
    """One queend that is expected to end by itself."""
    return subprocess.run(
        [binary("queend"), *args], env={**cell.env(), **env}, timeout=60,
        stdin=subprocess.DEVNULL, capture_output=True, text=True,
        cwd=cell.folder, check=False)


def test_help_version_and_check_config(new_cell):
    cell = new_cell()
    assert run(cell, "--version").stdout.startswith("queend ")
    assert "QUEEN_STMT_TIMEOUT_MS" in run(cell, "--help").stdout
    out = run(cell, "--check-config", PG_PASSWORD="sesame")
    assert out.returncode == 0
    assert "PG_PASSWORD=<set:6 chars>" in out.stdout
    assert "sesame" not in out.stdout + out.stderr
    assert run(cell, "--nope").returncode == 2


@pytest.mark.parametrize("name, value, text", [
    ("JWT_ENABLED", "maybe", 'JWT_ENABLED="maybe" is not a boolean'
     " (expected true/false, 1/0, yes/no, on/off)"),
    ("JWT_ENABLED", "true", "JWT_SECRET"),
    ("QUEEN_TENANCY_HEADER", "1", "QUEEN_KV_TRUSTED_PROXY"),
    ("QUEEN_ENCRYPTION_KEY", "0" * 63, "QUEEN_ENCRYPTION_KEY"),
    ("PORT", "abc", "PORT"), ("PORT", "65536", "PORT"),
    ("PORT", "-1", "PORT"), ("DB_POOL_SIZE", "3", "DB_POOL_SIZE"),
    ("QUEEN_STMT_TIMEOUT_MS", "9" * 30, "QUEEN_STMT_TIMEOUT_MS"),
    ("DEFAULT_SUBSCRIPTION_MODE", "old", "DEFAULT_SUBSCRIPTION_MODE"),
    ("QUEEN_BIND_ADDR", "127.0.0.1:6632", "QUEEN_BIND_ADDR"),
    ("METRICS_FLUSH_MS", "999", "METRICS_FLUSH_MS"),
    ("QUEEN_PG_CONNINFO", "nonsense", "QUEEN_PG_CONNINFO")])
def test_a_bad_setting_is_exit_2_with_one_line_that_names_it(
        new_cell, name, value, text):
    out = run(new_cell(), **{name: value})
    assert out.returncode == 2
    fatal = [x for x in out.stderr.splitlines() if "FATAL" in x]
    assert len(fatal) == 1 and text in fatal[0], out.stderr
    assert "0" * 63 not in out.stderr


def test_no_database_at_boot_is_exit_3_with_one_line(new_cell):
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        out = run(new_cell(), PG_PORT=str(s.getsockname()[1]),
                  PG_PASSWORD="sesame")
    assert out.returncode == 3
    fatal = [x for x in out.stderr.splitlines() if "FATAL" in x]
    assert len(fatal) == 1 and "sesame" not in out.stderr


def test_a_taken_port_is_exit_1(new_cell):
    with socket.socket() as s:      # without SO_REUSEPORT
        s.bind(("127.0.0.1", 0))
        s.listen()
        out = run(new_cell(), PORT=str(s.getsockname()[1]))
    assert out.returncode == 1
    assert len([x for x in out.stderr.splitlines() if "FATAL" in x]) == 1


def test_an_instance_name_used_twice_is_exit_2(cell, new_cell):
    cell.term()
    first = new_cell(_db=cell.db, QUEEN_SERVER_ID="one").start()
    out = run(new_cell(_db=cell.db), QUEEN_SERVER_ID="one")
    assert out.returncode == 2 and "QUEEN_SERVER_ID" in out.stderr
    first.kill9()                   # the name is free again at once
    again = new_cell(_db=cell.db, QUEEN_SERVER_ID="one").start()
    assert again.get("/health").status == 200


def test_unknown_older_settings_warn_once(new_cell):
    cell = new_cell(QUEEN_MESH_PEERS="a,b", QUEEN_POP_FUSION="perhaps")
    cell.start()
    lines = [x for x in cell.log_text().splitlines()
             if "QUEEN_MESH_PEERS" in x]
    assert len(lines) == 1 and "QUEEN_POP_FUSION" in lines[0]


def test_metrics_listener_of_its_own(new_cell):
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    cell = new_cell(QUEEN_METRICS_BIND="127.0.0.1:%d" % port).start()
    conn = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    for path, status in (("/health", 200), ("/metrics", 200),
                         ("/metrics/prometheus", 200),
                         ("/api/v1/resources/queues", 404)):
        conn.request("GET", path)
        answer = conn.getresponse()
        answer.read()
        assert answer.status == status, path
    conn.close()
    assert cell.get("/health").status == 200


# Shutdown

def test_term_answers_parked_pops_and_exits_0(cell):
    cell.push("q", [1])
    cell.pop("q", autoAck=True)
    replies = []
    waiter = threading.Thread(target=lambda: replies.append(cell.get(
        "/api/v1/pop/queue/q?wait=true&timeout=60000", timeout=60)))
    waiter.start()
    wait_until(lambda: b'queen_parked_long_polls{queue="q"} 1' in
               cell.get("/metrics/prometheus").body, what="the parked pop")
    assert cell.term() == 0
    waiter.join(10)
    assert [r.status for r in replies] == [204]


def test_hup_changes_nothing(cell):
    cell.signal(signal.SIGHUP)
    assert cell.get("/health").status == 200


def test_a_second_term_ends_at_once(new_cell, db):
    cell = new_cell(QUEEN_SHUTDOWN_GRACE_MS=60000).start()
    cell.push("q", [1])
    lock = db.connect(autocommit=False)
    lock.cursor().execute("lock table queen.segments")
    conn = cell.http(timeout=60)
    conn.request("POST", "/api/v1/push", json.dumps(
        {"items": [{"queue": "q", "payload": 2}]}))
    wait_until(lambda: db.value(
        "select count(*) from pg_stat_activity where wait_event_type = 'Lock'"
        " and datname = current_database()") > 0, what="the push in hand")
    cell.signal(signal.SIGTERM)
    wait_until(lambda: "draining" in cell.log_text(), what="the drain")
    assert cell.proc.poll() is None     # the push is still in hand
    cell.signal(signal.SIGTERM)
    assert cell.wait_exit(5) != 0
    lock.rollback()
    conn.close()


def test_calls_that_never_return_are_given_up(new_cell, db):
    """Their owners hear of it, so nothing of theirs is left (sanitizers)."""
    cell = new_cell(QUEEN_SHUTDOWN_GRACE_MS=200, DB_POOL_SIZE=16).start()
    cell.push("q", [1])
    lock = db.connect(autocommit=False)
    lock.cursor().execute(
        "lock table queen.segments, queen.consumers, queen.groups, "
        "queen.dead_letters")
    conns = []
    for method, path, body in (
            ("POST", "/api/v1/push", {"items": [
                {"queue": "q", "payload": 2}, {"queue": "new", "payload": 3}]}),
            ("GET", "/api/v1/pop/queue/q?consumerGroup=g", None),
            ("POST", "/api/v1/fetch", {"entries": [
                {"queue": "q", "offset": 0}]}),
            ("POST", "/api/v1/transaction", {"operations": [
                {"type": "push", "queue": "q", "payload": 4}]}),
            ("GET", "/metrics/prometheus", None),
            ("GET", "/api/v1/dlq", None),
            ("GET", "/api/v1/resources/queues/q", None)):
        conn = cell.http(timeout=60)
        conn.request(method, path, body and json.dumps(body))
        conns.append(conn)
    wait_until(lambda: db.value(
        "select count(*) from pg_stat_activity where wait_event_type = 'Lock'"
        " and datname = current_database()") > 3, what="the calls in hand")
    cell.signal(signal.SIGTERM)
    assert cell.wait_exit(20) == 0
    lock.rollback()
    for conn in conns:
        conn.close()

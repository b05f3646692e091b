# SPDX-License-Identifier: Apache-2.0
"""The process of queen-s3: its boot and how it ends, what it shows of itself,
and what it does when the cell or the bucket is away."""
import json
import re
import signal
import socket

from lakekit import Objects, await_records
from queenlib import DEADLINE_S, OTHER_TENANT, TENANT, tail, wait_until
from sealkit import K1
from test_lake_queue import counter, env
from test_lake_queue_crash import HOUR

FAMILIES = [
    ("queen_process_uptime_seconds", "gauge"),
    ("queen_process_resident_memory_bytes", "gauge"),
    ("queen_s3_cell_up", "gauge"),
    ("queen_s3_buffer_bytes", "gauge"),
    ("queen_s3_safe_lag_seconds", "gauge"),
    ("queen_s3_lag_seconds", "gauge"),
    ("queen_s3_windows_committed_total", "counter"),
    ("queen_s3_records_written_total", "counter"),
    ("queen_s3_bytes_written_total", "counter"),
    ("queen_s3_records_lost_total", "counter"),
    ("queen_s3_window_records", "histogram"),
    ("queen_s3_window_bytes", "histogram"),
    ("queen_s3_fetch_calls_total", "counter"),
    ("queen_s3_discovery_partitions", "gauge"),
    ("queen_s3_checkpoint_age_windows", "gauge"),
    ("queen_s3_s3_requests_total", "counter"),
    ("queen_s3_commit_precondition_lost_total", "counter"),
    ("queen_s3_queues_given_back_total", "counter")]
NOW = {"ALIGN": "none", "MAX_WINDOW_MS": 100}
TIME = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z"


def ends(node, code, says):
    """Its last words, and no queue was begun before."""
    before = len(node.log_text()) if node.proc else 0
    assert node.start(wait=False).wait_exit() == code, tail(node.log)
    text = node.log_text()[before:]
    assert says in text and "starting a queue" not in text, text


def health(node):
    reply = node.get("/healthz")
    return reply.status, reply.body


# ---- boot ----

def test_it_says_what_it_is_before_it_runs(log, bucket, new_lake):
    """The boot line, then the bucket, then the queues; drained is 0.  A port
    that is taken is 1."""
    log.kit.queue("q")
    node = new_lake(bucket, **env()).start()
    node.await_queue("q", ownedHere=True)
    text = node.log_text()
    line, = re.findall(r"the sink of the environment .*", text)
    for word in ("tenant=" + TENANT, "sink=s", "instance=node0", "queues=q",
                 "partitions=discovery", "dbname=" + log.db.name,
                 "bucket=" + bucket.name, "addressing=path",
                 "compression=zstd", "layout=merged", "start=earliest",
                 "crash_at=never", "listen="):
        assert word in line, (word, line)
    order = ["the sink of the environment", "the bucket answers",
             "running instance=", "starting a queue",
             "this node owns the queue"]
    assert sorted(order, key=text.index) == order
    taken = new_lake(bucket, QUEEN_S3_LISTEN="127.0.0.1:%d"
                     % node.port.number, **env())
    ends(taken, 1, "127.0.0.1:%d" % node.port.number)
    assert node.term() == 0
    assert "drained" in node.log_text()


def test_one_process_has_a_name(db, log, bucket, new_lake):
    """7.5: the second ends, the first is not disturbed; an earlier life that
    left no trace but its rows is none."""
    log.kit.queue("q")
    first = new_lake(bucket, **env(LEASE_TTL_MS=1500)).start()
    first.await_queue("q", ownedHere=True)
    second = new_lake(bucket, **env(LEASE_TTL_MS=1500))
    second.extra["QUEEN_S3_INSTANCE"] = first.node
    ends(second, 2, "another process runs under the instance name node0")
    assert first.queue("q")["ownedHere"]
    first.kill9()
    assert db.value("select count(*) from queen.kv where key like"
                    " 's3:s:node=%'") == 1
    first.start().await_queue("q", ownedHere=True)


def test_a_bucket_that_refuses_at_boot(db, log, bucket, new_lake, new_gate):
    """3, with bucket, endpoint, rights and the hint; but with a sink of a
    tenant it waits, and claims nothing while it does."""
    log.push("q", "a", ["1"])
    gate = new_gate(bucket, "403:1")
    node = new_lake(gate, **env())
    ends(node, 3, "the key needs s3:PutObject, s3:GetObject and "
                  "s3:ListBucket on s/*")
    assert "bucket %s at %s: " % (bucket.name, gate.endpoint) in \
        node.log_text()
    # what the store says is told, which no answer to HEAD has room for
    for wrong, why in (("BUCKET", "404 NoSuchBucket"),
                       ("SECRET_KEY", "403 SignatureDoesNotMatch"),
                       ("REGION", "400 AuthorizationHeaderMalformed")):
        ends(new_lake(bucket, **env(**{wrong: "none"})), 3, why)
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))  # and nobody listens
        down = new_lake(bucket)
        down.extra.update(env(
            ENDPOINT="http://localhost:%d" % s.getsockname()[1],
            PATH_STYLE="false"))
        ends(down, 3, "most gateways need QUEEN_S3_PATH_STYLE=true")
    assert "bucket %s at http://localhost:" % bucket.name in down.log_text()
    assert db.value("select queen.lake_sink_put_v1(%s, 'other', true, %s,"
                    " 'no secret')", (OTHER_TENANT, json.dumps(
                        {**bucket.document(), "queues": "q"}))) == 0
    node.start()
    wait_until(lambda: len(gate.seen("HEAD", status=403)) >= 3)
    reply = node.get("/status").body
    mine, other = reply["sinks"]
    assert (mine["phase"], mine["ok"], mine["running"], mine["queues"]) == (
        "starting", False, False, [])
    assert mine["bucket"]["reachable"] is False
    assert "403" in mine["bucket"]["error"]
    assert (other["tenant"], other["source"], other["cluster"],
            other["phase"]) == (OTHER_TENANT, "cp", "other", "error")
    assert "no secret" not in other["error"]
    assert (other["ok"], other["running"], other["queues"]) == (
        False, False, [])
    assert log.row("s", "q", "lease") is None
    gate.clear()
    await_records(bucket, "s", "q", log.records["q"], node)
    assert node.get("/status").body["sinks"][0]["bucket"]["error"] is None


def test_a_cell_that_is_not_ready(empty_db, db, bucket, new_lake):
    """The schema is waited for; a role without rights is told which."""
    node = new_lake(bucket, _db=empty_db, **env()).start(wait=False)
    wait_until(lambda: empty_db.value(
        "select count(*) from pg_stat_activity where application_name ="
        " 'queen-s3 boot' and datname = current_database()"))
    empty_db.server.apply_schema(empty_db.name)
    wait_until(node.healthy)
    assert node.term() == 0
    role = db.role("reader")
    ends(new_lake(bucket, PG_USER=role, **env()), 3,
         "permission denied for schema queen")
    db.rows("grant usage on schema queen to %s" % role)
    db.rows("grant select on all tables in schema queen to %s" % role)
    ends(new_lake(bucket, PG_USER=role, **env()), 3,
         "the role may not write queen.kv")


# ---- what it shows ----

def test_status_and_metrics(db, log, bucket, new_lake, new_cell):
    """Acceptance 119: every field; every family once with help and type; the
    tenant first among the labels.  124: no gauge when a queue does not run
    here any more, counters stay."""
    queend = new_cell(QUEEN_ENCRYPTION_KEY=K1, QUEEN_TENANCY_HEADER="true",
                      QUEEN_KV_TRUSTED_PROXY="true").start()
    reply = queend.request("PUT", "/api/cp/clusters/%s/s3" % OTHER_TENANT, {
        **bucket.document(), "secretKey": bucket.env()["QUEEN_S3_SECRET_KEY"],
        "queues": "t", "prefix": "t"})
    assert reply.status == 200, reply
    node = new_lake(bucket, QUEEN_ENCRYPTION_KEY=K1,
                    **{**env(**NOW), "QUEEN_S3_QUEUES": "*"}).start()
    log.push("q", "a", ["1", "2", "3"])
    log.await_k("s", "q", 1, node)
    block = node.await_queue("q", state="filling", k=1)
    wait_until(lambda: health(node)[1]["queues"] == 1)
    top = node.get("/status").body
    sinks = top.pop("sinks")
    assert set(top) == {"mode", "phase", "threads", "version", "instance",
                        "cellUp", "controlPlane"}
    assert (top["mode"], top["phase"], top["cellUp"],
            top["controlPlane"]) == ("process", "running", True,
                                     {"error": None})
    assert [s["tenant"] for s in sinks] == [TENANT, OTHER_TENANT]
    mine, other = sinks
    assert re.fullmatch(TIME, mine["bucket"].pop("checkedAt"))
    assert mine.pop("uptimeMs") > 0 and mine.pop("version") == top["version"]
    mine["memory"].pop("bufferedBytes")
    facts = bucket.document()
    assert mine == {
        "tenant": TENANT, "source": "env", "cluster": None,
        "phase": "running", "error": None, "restarts": 0, "lastExit": None,
        "backoffMs": 0, "ok": True, "sink": "s", "instance": top["instance"],
        "running": True, "format": "jsonl", "compression": "zstd",
        "layout": "merged", "align": "none",
        "bucket": {"reachable": True, "error": None, "name": bucket.name,
                   "endpoint": facts["endpoint"], "region": facts["region"],
                   "prefix": "s"},
        "health": {"ok": True, "queues": 1},
        "placement": {"nodes": 1, "queues": 1, "share": 1, "held": 1,
                      "givingBack": None},
        "memory": {"limitBytes": 1 << 30}, "queues": mine["queues"]}
    assert (other["source"], other["cluster"], other["phase"]) == (
        "cp", OTHER_TENANT, "running")
    for name in "tEnd", "completeThrough", "safeTime":
        assert re.fullmatch(TIME, block.pop(name))
    assert 0 <= block.pop("lagSeconds") < DEADLINE_S
    (key, data), = Objects(bucket, "s", "q").data.items()
    assert block == {
        "name": "q", "ownedHere": True, "heldBy": None, "state": "filling",
        "k": 1, "safeTimeDegraded": False, "redo": False, "bufferedBytes": 0,
        "partitions": 1, "windowsCommitted": 1, "records": 3,
        "bytes": len(data), "recordsLost": 0, "lastError": None}, key

    def text():
        return node.get("/metrics").body.decode()
    found = re.findall(r"^# HELP (\S+) .+\.\n# TYPE \1 (\S+)$", text(), re.M)
    assert found == FAMILIES and text().count("# ") == 2 * len(FAMILIES)
    value = node.metrics()
    assert value["queen_s3_cell_up"] == 1
    assert value["queen_s3_safe_lag_seconds"] >= 0
    assert value['queen_s3_lag_seconds{queue="q"}'] >= 0
    assert value['queen_s3_discovery_partitions{queue="q"}'] == 1
    assert value['queen_s3_window_records_bucket{le="1"}'] == 0
    assert value['queen_s3_window_records_bucket{le="10"}'] == 1
    assert value["queen_s3_window_bytes_sum"] == len(data)
    assert value['queen_s3_bytes_written_total{queue="q",format="jsonl"}'] \
        == len(data)
    assert value['queen_s3_fetch_calls_total{queue="q",result="ok"}'] >= 1
    assert value['queen_s3_s3_requests_total{op="put",code="200"}'] == 2
    label = 'queen_s3_records_written_total{tenant="%s",queue="t"}' \
        % OTHER_TENANT
    assert value[label] == 0
    for line in text().splitlines():
        assert "partition=" not in line
        assert "tenant=" not in line or '{tenant="%s"' % OTHER_TENANT in line
    # a queue that is deleted: `*` drops it, and its gauges go
    assert queend.delete("/api/v1/resources/queues/q").status == 200
    wait_until(lambda: node.queue("q") == {})
    value = node.metrics()
    assert 'queen_s3_lag_seconds{queue="q"}' not in value
    assert 'queen_s3_discovery_partitions{queue="q"}' not in value
    assert "queen_s3_safe_lag_seconds" not in value
    assert value['queen_s3_records_written_total{queue="q"}'] == 3
    # the tenant's sink goes, with all it counted
    assert queend.delete("/api/cp/clusters/%s/s3" % OTHER_TENANT).status \
        == 200
    wait_until(lambda: "tenant=" not in text())


def test_queues_come_and_go(log, bucket, new_lake):
    """Acceptance 122, 125: `*` picks up what is made later; one that was
    named before it was made ships a few seconds after it is."""
    star = new_lake(bucket, **{**env("star", **NOW),
                               "QUEEN_S3_QUEUES": "*"}).start()
    named = new_lake(bucket, **{**env("named", **NOW),
                                "QUEEN_S3_QUEUES": "late,q"}).start()
    named.await_queue("late", state="missing")
    for queue in "q", "late":
        log.push(queue, "a", ["1"])
        for sink, node in ("star", star), ("named", named):
            await_records(bucket, sink, queue, log.records[queue], node)
    wait_until(lambda: health(star) == (200, {"ok": True, "queues": 2}))
    for node in star, named:
        assert node.term() == 0
    assert not log.db.rows("select key from queen.kv where key like"
                           " '%:lease' or key like '%:node=%'")


# ---- health, and what is away ----

def test_a_bucket_that_goes_away(log, bucket, new_lake, new_gate):
    """Acceptance 123: an idle queue is green; writes refused, for a while or
    for good, are red once it is behind, with the first by name; then green.
    The process runs on."""
    second = "1:PUT:/w-0000000002"  # months behind, from the first window on
    gate = new_gate(bucket, "503:" + second)
    node = new_lake(gate, **{**env(), "QUEEN_S3_QUEUES": "*"})
    log.kit.queue("a")
    node.start()
    wait_until(lambda: health(node) == (200, {"ok": True, "queues": 1}))
    for queue in "c", "b":
        for hour in 0, 1:
            log.push(queue, "p", ["1"], hour * HOUR)

    def behind(queue):
        status, body = health(node)
        return status == 503 and body["queue"] == queue and body
    body = wait_until(lambda: behind("b"))
    assert body.pop("staleMs") > 10**9
    assert body == {"ok": False, "queue": "b", "limitMs": 900000}
    sink = node.get("/status").body["sinks"][0]
    assert not sink["ok"] and not sink["health"]["ok"]
    gate.clear()
    for queue in "b", "c":
        await_records(bucket, "s", queue, log.records[queue], node)
    wait_until(lambda: health(node) == (200, {"ok": True, "queues": 3}))
    # a refusal stops the queue, and health does not forget it
    gate.fault("403:" + second)
    for hour in 0, 1:
        log.push("d", "p", ["1"], hour * HOUR)
    block = node.await_queue("d", state="failed", ownedHere=False)
    assert "403" in block["lastError"]["message"]
    wait_until(lambda: behind("d"))
    assert health(node)[0] == 503
    gate.clear()
    assert node.term() == 0
    node.start()
    await_records(bucket, "s", "d", log.records["d"], node)
    wait_until(lambda: health(node) == (200, {"ok": True, "queues": 4}))


def test_a_cell_that_goes_away(db, log, bucket, new_lake):
    """PostgreSQL killed and started again: the process waits and goes on."""
    log.push("q", "a", ["1"])
    node = new_lake(bucket, **env(**NOW)).start()
    log.await_k("s", "q", 1, node)
    db.server.stop("immediate")
    wait_until(lambda: not node.get("/status").body["cellUp"])
    assert health(node)[0] == 200
    wait_until(lambda: (node.queue("q")["lastError"] or {}).get("message")
               == "no connection to the cell")
    assert node.metrics()["queen_s3_cell_up"] == 0
    db.server.start()
    log.kit.conn = db.connect()
    log.push("q", "a", ["2"])
    await_records(bucket, "s", "q", log.records["q"], node)
    assert node.metrics()["queen_s3_cell_up"] == 1
    assert node.term() == 0
    assert log.row("s", "q", "lease") is None


# ---- the end ----

def test_a_drain_has_its_time(log, bucket, new_lake, new_gate):
    """Acceptance 157: beyond the grace the intent stays and the end is 0; what
    lands late is what the next run would have written.  A second signal ends
    it at once."""
    gate = new_gate(bucket)
    log.push("q", "a", ["1", "2"])
    more = {**NOW, "LEASE_TTL_MS": 4000}
    node = new_lake(gate, **env(SHUTDOWN_GRACE_MS=300, **more))
    gate.stall_for(3)
    gate.fault("stall:@1:PUT:/dt")
    node.start()
    wait_until(lambda: log.row("s", "q", "intent"))
    wait_until(lambda: bucket.keys("s/tenant"))
    assert node.term(10) == 0
    assert "the time to drain is over" in node.log_text()
    assert log.k("s", "q") == 0 and log.row("s", "q", "lease")
    key, = bucket.keys("s/tenant")
    late = bucket.get(key)
    gate.clear()
    node.start()
    log.await_k("s", "q", 1, node)
    assert bucket.get(key) == late
    assert Objects(bucket, "s", "q").records() == log.records["q"]
    gate.stall_for(20)
    gate.fault("stall:1:PUT:/dt")
    node.extra["QUEEN_S3_SHUTDOWN_GRACE_MS"] = "60000"
    assert node.term() == 0
    node.start()
    log.push("q", "a", ["3"])
    wait_until(lambda: log.row("s", "q", "intent")["k"] == 2)
    node.signal(signal.SIGTERM)
    wait_until(lambda: "draining" in node.log_text().rpartition("running")[2])
    assert node.term(10) == 1
    assert log.k("s", "q") == 1


def test_uploads_are_counted_by_what_came_of_them(log, bucket, new_lake,
                                                  new_gate):
    """Every attempt; code 0 is no answer."""
    gate = new_gate(bucket, "503:@1:PUT", "drop:@2:PUT")
    log.push("q", "a", ["1"])
    node = new_lake(gate, **env(**NOW)).start()
    log.await_k("s", "q", 1, node)
    for code, n in ("200", 2), ("503", 1), ("0", 1):
        assert counter(node, "queen_s3_s3_requests_total", op="put",
                       code=code) == n

# SPDX-License-Identifier: Apache-2.0
"""Health, status pages, metrics in both forms, analytics over HTTP."""
import datetime
import re

import pytest

from queenlib import wait_until

SIX = ["total", "pending", "processing", "completed", "failed", "deadLetter"]
STAMP = re.compile(r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$")


def keys(obj):
    return list(obj)


def flushed(cell, queue="q"):
    """Waits until the counters of a queue have reached the database."""
    def there():
        rows = cell.db.rows(
            "select sum(push_messages), sum(pop_messages), sum(ack_success)"
            " from queen.queue_minutes m join queen.queues q"
            " on q.id = m.queue_id where q.name = %s", (queue,))
        return rows[0] if rows and rows[0][0] else None
    return wait_until(there, what="minute rows of %s" % queue)


@pytest.fixture
def busy(new_cell):
    """Three messages pushed, two delivered, one of them acked."""
    cell = new_cell(METRICS_FLUSH_MS=1000).start()
    cell.push("q", [1, 2, 3], partition="p")
    got = cell.pop("q", group="g", subscriptionMode="all", batch=2)
    assert len(got) == 2
    cell.ack(got[:1], group="g")
    flushed(cell)
    return cell


# Health

def test_health_answers_after_a_round_trip(cell):
    reply = cell.get("/health")
    assert reply.status == 200
    assert keys(reply.body) == ["status", "database", "engine", "version"]
    assert reply.body["status"] == "healthy"
    assert reply.body["database"] == "connected"
    assert cell.get("/healthz").body == reply.body


def test_health_is_503_without_a_database_and_recovers(new_cell, pg):
    cell = new_cell().start()
    pg.stop("immediate")
    try:
        reply = wait_until(lambda: (lambda r: r.status == 503 and r)(
            cell.get("/health")), what="503")
        assert reply.body["status"] == "unhealthy"
        assert reply.body["database"] == "disconnected"
        assert cell.get("/status").status == 200
        page = cell.get("/metrics/prometheus")
        assert page.status == 200
        assert b"queen_uptime_seconds" in page.body
        assert b"queen_cluster_" not in page.body
        assert cell.get("/api/v1/status/buffers").body["dbHealthy"] is False
        assert cell.get("/api/v1/system/maintenance").status == 200
    finally:
        pg.start()
    wait_until(lambda: cell.get("/health").status == 200, what="recovery")


def test_status_needs_no_database(cell, pg):
    plain = {"status": "ok", "engine": "queend-postgres"}
    assert cell.get("/status").body == dict(
        plain, pg={"mode": "process", "connectors": []})
    pg.stop("immediate")
    try:
        assert cell.get("/status").body == dict(
            plain, pg={"mode": "process", "connectors": None})
    finally:
        pg.start()


def test_buffers_are_empty_in_a_release_without_a_spool(cell):
    assert cell.get("/api/v1/status/buffers").body == {
        "pending": 0, "failed": 0, "dbHealthy": True, "worker": 0}


# Metrics

def test_metrics_json_counts_this_process(busy):
    m = busy.get("/metrics").body
    assert keys(m) == ["uptime", "requests", "messages", "database",
                       "memory", "cpu"]
    assert m["requests"] == {"total": 3, "rate": 0}
    assert m["messages"] == {"total": 6, "rate": 0}   # 3 + 2 + 1
    assert m["database"]["poolSize"] == 4
    assert m["memory"]["rss"] > 1 << 20


def parse_page(text):
    """{family: {labels: value}}; every line must be well formed."""
    families, typed = {}, {}
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            assert name not in typed, "family %s twice" % name
            typed[name] = kind
            last = name
            continue
        if line.startswith("# HELP ") or not line:
            continue
        found = re.match(r'^([a-z_]+)(\{[^}]*\})? ([-+0-9.eE]+|NaN)$', line)
        assert found, line
        assert found[1] == last, "%s outside of its family" % line
        families.setdefault(found[1], {})[found[2] or ""] = float(found[3])
    return families


def test_prometheus_page_is_well_formed_and_complete(busy):
    reply = busy.get("/metrics/prometheus")
    assert reply.headers["Content-Type"] \
        == "text/plain; version=0.0.4; charset=utf-8"
    assert reply.headers["Cache-Control"] == "no-cache"
    page = parse_page(reply.body.decode())
    assert page["queen_process_push_messages_total"] == {"": 3}
    assert page["queen_process_pop_messages_total"] == {"": 2}
    assert page["queen_process_ack_messages_total"] == {"": 1}
    assert page["queen_cluster_push_messages_total"] \
        == {'{scope="cluster"}': 3}
    assert page["queen_cluster_ack_total"] == {
        '{scope="cluster",result="failed"}': 0,
        '{scope="cluster",result="success"}': 1}
    assert page["queen_queue_push_messages_per_minute"]['{queue="q"}'] > 0
    assert page["queen_dlq_depth"] == {'{scope="cluster"}': 0}
    for name in ("queen_uptime_seconds",
                 "queen_process_resident_memory_bytes",
                 "queen_db_pool_size", "queen_db_pool_idle",
                 "queen_maintenance_mode_enabled",
                 "queen_batches_fired_total",
                 "queen_event_loop_lag_avg_milliseconds"):
        assert name in page, name
    for name in ("queen_queue_depth_total", "queen_queue_depth_pending"):
        assert name not in page


def test_prometheus_escapes_label_values(new_cell):
    cell = new_cell(METRICS_FLUSH_MS=1000).start()
    cell.push('a"b\\c', [1])
    flushed(cell, 'a"b\\c')
    page = cell.get("/metrics/prometheus").body.decode()
    assert 'queue="a\\"b\\\\c"' in page


def test_metrics_is_text_for_who_asks_for_text(cell):
    kind = {"Accept": "text/plain;version=0.0.4"}
    assert cell.get("/metrics", headers=kind).headers["Content-Type"] \
        .startswith("text/plain")
    for accept in ("*/*", "application/json"):
        assert cell.get("/metrics", headers={"Accept": accept}).headers[
            "Content-Type"] == "application/json"


# Status pages

def test_overview_of_the_cell(busy):
    body = busy.get("/api/v1/status").body
    assert keys(body) == ["timeRange", "bucketMinutes", "pointCount",
                          "throughput", "queues", "messages", "leases",
                          "deadLetterQueue", "workers", "errors", "blocked",
                          "statsAge"]
    assert body["bucketMinutes"] == 1
    assert body["pointCount"] == len(body["throughput"])
    stamps = [p["timestamp"] for p in body["throughput"]]
    assert stamps == sorted(stamps, reverse=True)
    assert sum(p["ingested"] for p in body["throughput"]) == 3
    assert sum(p["popMessages"] for p in body["throughput"]) == 2
    assert sum(p["processed"] for p in body["throughput"]) == 1
    assert [q["name"] for q in body["queues"]] == ["q"]
    assert body["queues"][0]["totalConsumed"] == 1
    m = body["messages"]
    # 3 stored, 1 committed, 1 leased: pending leaves out what is in work
    assert [m[k] for k in SIX] == [3, 1, 1, 1, None, 0]
    assert m["requests"] == {"push": 1, "pop": 1, "ack": 1}
    assert m["batchEfficiency"] == {"push": 3, "pop": 2, "ack": 1}
    assert body["leases"] == {"active": 1, "partitions": 1}
    assert body["deadLetterQueue"] == {"total": 0, "queues": 0}
    assert (body["blocked"], body["statsAge"]) == ([], 0)


OVERVIEWS = [
    ("queue=q", 3), ("queue=nope", 0), ("namespace=q", 3),
    ("namespace=x", 0)]


def test_overview_filters(busy):
    for filters, total in OVERVIEWS:
        assert busy.get("/api/v1/status?" + filters).body[
            "messages"]["total"] == total, filters


@pytest.mark.parametrize("hours, minutes", [
    (1, 1), (6, 5), (24, 15), (7 * 24, 60), (8 * 24, 360)])
def test_buckets_widen_with_the_window(common, hours, minutes):
    to = datetime.datetime(2026, 1, 10, tzinfo=datetime.timezone.utc)
    since = to - datetime.timedelta(hours=hours)
    body = common.get("/api/v1/status?from=%s&to=%s" % tuple(
        t.strftime("%Y-%m-%dT%H:%M:%SZ") for t in (since, to))).body
    assert body["bucketMinutes"] == minutes


def test_a_computed_page_is_served_again_with_its_age(busy):
    first = busy.get("/api/v1/resources/overview")
    assert first.headers["Age"] == "0"
    busy.push("q", [4], partition="p")
    again = wait_until(lambda: (lambda r: r.headers["Age"] != "0" and r)(
        busy.get("/api/v1/resources/overview")), what="an aged answer")
    assert again.body["messages"] == first.body["messages"]
    assert again.body["statsAge"] == int(again.headers["Age"])
    fresh = busy.post("/api/v1/stats/refresh")
    assert fresh.status == 200 and fresh.body["messages"]["total"] == 4
    assert busy.get("/api/v1/resources/overview").body[
        "messages"]["total"] == 4


def test_status_queues_page(busy):
    busy.push("billing.invoice", [1])
    body = busy.get("/api/v1/status/queues").body
    assert keys(body) == ["queues", "pagination"]
    assert body["pagination"] == {"limit": 100, "offset": 0}
    names = [q["name"] for q in body["queues"]]
    assert names == ["billing.invoice", "q"]
    q = body["queues"][1]
    assert q["messages"] == {"total": 3, "pending": 2, "processing": 1,
                             "completed": 1, "deadLetter": 0}
    assert STAMP.match(q["createdAt"])
    page = busy.get("/api/v1/status/queues?limit=1&offset=1").body
    assert [x["name"] for x in page["queues"]] == ["q"]
    only = busy.get("/api/v1/status/queues?namespace=billing&task=invoice")
    assert [x["name"] for x in only.body["queues"]] == ["billing.invoice"]


@pytest.mark.parametrize("query", ["limit=x", "limit=-1", "offset=1e3",
                                   "from=yesterday", "to=%00"])
def test_status_refuses_bad_parameters(common, query):
    reply = common.get("/api/v1/status/queues?" + query)
    assert reply.status == 400 and keys(reply.body) == ["error"]


def test_status_queue_page(busy):
    body = busy.get("/api/v1/status/queues/q").body
    assert keys(body) == ["queue", "partitions", "totals"]
    assert body["queue"]["config"] == {
        "leaseTime": 60, "retryLimit": 3, "retryDelay": 1000, "ttl": 3600,
        "maxQueueSize": 0, "deadLetterQueue": True}
    part, = body["partitions"]
    assert part["name"] == "p"
    assert [part["messages"][k] for k in SIX] == [3, 2, 1, 1, None, 0]
    assert part["stats"] == part["messages"]
    assert part["cursor"] == {"totalConsumed": 1, "batchesConsumed": 0}
    for key in ("oldestMessage", "newestMessage", "lastActivity"):
        assert STAMP.match(part[key])
    assert [body["totals"]["messages"][k] for k in SIX] \
        == [3, 2, 1, 1, None, 0]
    missing = busy.get("/api/v1/status/queues/nope")
    assert (missing.status, missing.body) == (404,
                                              {"error": "Queue not found"})


def test_status_analytics_is_zero_filled(busy):
    body = busy.get("/api/v1/status/analytics?interval=hour").body
    assert keys(body) == ["dataPoints", "interval", "from", "to"]
    assert body["interval"] == "hour"
    assert len(body["dataPoints"]) in (24, 25)
    assert sum(p["messages"] for p in body["dataPoints"]) == 3
    assert busy.get("/api/v1/status/analytics?interval=word").body[
        "interval"] == "hour"
    assert len(busy.get("/api/v1/status/analytics?interval=day").body[
        "dataPoints"]) in (1, 2)


# Analytics

def test_queue_lag(busy):
    row, = busy.get("/api/v1/analytics/queue-lag?queue=q").body
    assert keys(row) == ["queueName", "popCount", "avgLagMs", "maxLagMs",
                         "bucketMinutes", "bucketTime"]
    assert row["queueName"] == "q" and row["popCount"] == 1
    assert 0 <= row["avgLagMs"] <= row["maxLagMs"] < 60000
    assert busy.get("/api/v1/analytics/queue-lag?queue=nope").body == []


def test_queue_ops(busy):
    body = busy.get("/api/v1/analytics/queue-ops").body
    assert keys(body) == ["timeRange", "bucketMinutes", "series", "queues"]
    assert body["queues"] == ["q"]
    total = {k: sum(p[k] for p in body["series"]) for k in (
        "pushRequests", "pushMessages", "popMessages", "ackRequests",
        "ackSuccess", "ackFailed", "partitionsCreated")}
    assert total == {"pushRequests": 1, "pushMessages": 3, "popMessages": 2,
                     "ackRequests": 1, "ackSuccess": 1, "ackFailed": 0,
                     "partitionsCreated": 1}


def test_retention_series(busy):
    busy.db.rows("insert into queen.retention_log select now(), q.id, 1,"
                 " k, n from queen.queues q, (values ('retention', 5),"
                 " ('completed_retention', 3),"
                 " ('max_wait_time_eviction', 2)) v(k, n)")
    url = "/api/v1/analytics/retention"
    body = busy.get(url + "?groupBy=queue").body
    want = {"retentionMsgs": 5, "completedRetentionMsgs": 3,
            "evictionMsgs": 2, "totalMsgs": 10, "eventCount": 3}
    assert body["totals"] == want
    assert body["rows"] == [dict(want, key="q", queues=1)]
    assert "rows" not in busy.get(url).body
    bad = busy.get(url + "?groupBy=colour")
    assert (bad.status, bad.body) == (400, {"error": "bad groupBy"})


def test_postgres_stats(busy):
    body = busy.get("/api/v1/analytics/postgres-stats").body
    assert keys(body) == [
        "timestamp", "database", "databaseCache", "tableCache", "indexCache",
        "cacheSummary", "deadTuples", "hotUpdates", "activeQueries",
        "autovacuumStatus", "bufferConfig", "bufferUsage", "tableSizes"]
    assert "segments" in [t["table"] for t in body["tableSizes"]]


def test_stamps_are_utc_whatever_the_session_zone(new_cell, db):
    """field-faults B13"""
    db.rows("alter database %s set timezone = 'Asia/Kolkata'" % db.name)
    cell = new_cell().start()
    cell.push("q", [1])
    message, = cell.pop("q")
    now = datetime.datetime.now(datetime.timezone.utc)
    stamps = [message["createdAt"],
              cell.get("/api/v1/resources/queues/q").body["createdAt"],
              cell.get("/api/v1/status/queues/q").body["partitions"][0][
                  "newestMessage"],
              cell.get("/api/v1/analytics/postgres-stats").body["timestamp"],
              cell.post("/api/v1/fetch", {"entries": [
                  {"queue": "q", "offset": 0}]}).body["entries"][0][
                      "records"][0]["ts"]]
    for stamp in stamps:
        assert stamp.endswith("Z")
        at = datetime.datetime.fromisoformat(stamp.replace("Z", "+00:00"))
        assert abs((now - at).total_seconds()) < 30, stamp

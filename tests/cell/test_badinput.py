# SPDX-License-Identifier: Apache-2.0
"""
What comes in from outside may be anything: a precise error or a plain answer,
never a 5xx, a hang or a lost process, and the next request is served.
"""
import json
import os
import random
import re
import resource
import socket
import threading
import time
import urllib.parse

import pytest

from queenlib import SAN, wait_until
from rawhttp import Raw, alive, error_of, exchange, request
from sealkit import keyed
from test_auth import table

pytestmark = keyed      # secrets of documents are sealed

API = "/api/v1"
S3 = "/api/cp/clusters/:cluster/s3"
NIL = "00000000-0000-0000-0000-000000000000"
OPTIONS = {
    "leaseTime": 60, "retryLimit": 3, "deadLetterQueue": True,
    "dlqAfterMaxRetries": True, "delayedProcessing": 0, "windowBuffer": 0,
    "minPopWaitTime": 0, "retentionEnabled": False, "retentionSeconds": 0,
    "completedRetentionSeconds": 0, "maxWaitTimeSeconds": 0,
    "encryptionEnabled": False, "dedupWindowSeconds": 3600,
    "retentionSinkHold": "", "retentionSinkHoldMaxSeconds": 604800,
    "priority": 0, "ttl": 3600, "maxSize": 0, "retryDelay": 1000}


class Text(str):
    """JSON text to be put into a document as it is."""


def dump(value):
    """json.dumps that lets numbers no float can hold through."""
    if isinstance(value, Text):
        return str(value)
    if isinstance(value, dict):
        return "{%s}" % ",".join("%s:%s" % (json.dumps(k), dump(v))
                                 for k, v in value.items())
    if isinstance(value, list):
        return "[%s]" % ",".join(map(dump, value))
    return json.dumps(value)


def bodies(part=NIL, dead=NIL, lease=NIL):
    """Every POST route: pattern -> (path, a valid body)."""
    push = {"queue": "q", "partition": "p", "transactionId": "t",
            "payload": {"a": [1]}, "traceId": NIL}
    ack = {"transactionId": "t", "partitionId": part, "leaseId": lease,
           "status": "completed", "error": "e"}
    seek = API + "/consumer-groups/g/queues/q"
    return {
        API + "/push": (API + "/push", {"items": [push]}),
        API + "/ack": (API + "/ack", dict(ack, consumerGroup="g")),
        API + "/ack/batch": (API + "/ack/batch", {
            "consumerGroup": "g", "acknowledgments": [ack]}),
        API + "/lease/:leaseId/extend": (
            API + "/lease/%s/extend" % lease, {"seconds": 5}),
        API + "/transaction": (API + "/transaction", {"operations": [
            dict(push, type="push"), {"type": "push", "items": [push]},
            dict(ack, type="ack", consumerGroup="g")],
            "requiredLeases": [lease],
            "kv": [{"op": "put", "ns": "n", "key": "r", "value": 1,
                    "ttlSeconds": 60}],
            "timers": [{"op": "cancel", "queue": "later", "timerKey": "r",
                        "txn": "t"}]}),
        API + "/fetch": (API + "/fetch", {"entries": [
            {"queue": "q", "partition": "p", "offset": 0, "maxBytes": 9}],
            "maxWaitMs": 0, "minBytes": 1}),
        API + "/partitions/changed": (API + "/partitions/changed", {
            "entries": [{"queue": "q", "since": "2026-01-01T00:00:00Z",
                         "after": "", "limit": 10}]}),
        API + "/kv": (API + "/kv", {"operations": [
            {"op": "put", "ns": "n", "key": "k", "value": [1],
             "ttlSeconds": 60, "expect": 0, "required": False},
            {"op": "putIfAbsent", "ns": "n", "key": "l", "value": None,
             "forever": True},
            {"op": "incr", "ns": "n", "key": "m", "delta": 1, "min": 0,
             "max": 9, "ttlSeconds": 60},
            {"op": "delete", "ns": "n", "key": "o", "expect": 1},
            {"op": "get", "ns": "n", "key": "k"},
            {"op": "getMany", "ns": "n", "keys": ["k", "l"]},
            {"op": "getPrefix", "ns": "n", "prefix": "k", "after": "",
             "limit": 5, "keysOnly": True}]}),
        API + "/resources/kv/list": (API + "/resources/kv/list", {
            "namespace": "n", "prefix": "k", "after": "", "limit": 5,
            "keysOnly": True, "includeExpired": True}),
        API + "/timers": (API + "/timers", {"operations": [
            {"op": "schedule", "queue": "later", "timerKey": "k",
             "delayMs": 3600000, "txn": "t", "payload": "MQ==",
             "partition": "p", "payloadZstd": False, "encrypted": False},
            {"op": "cancel", "queue": "later", "timerKey": "l",
             "txn": "t"}]}),
        API + "/connectors/:name/resync": (
            API + "/connectors/sink/resync", {"from": "end"}),
        API + "/connectors/:name/adopt": (
            API + "/connectors/sink/adopt", {"x": 1}),
        API + "/connectors/:name/reset": (
            API + "/connectors/sink/reset", {"x": 1}),
        S3 + "/resume": ("/api/cp/clusters/default/s3/resume", {
            "queue": "q", "sink": "default", "prefix": "a/b"}),
        API + "/configure": (API + "/configure", {
            "queue": "c", "namespace": "n", "task": "t", "mode": "merge",
            "options": OPTIONS}),
        API + "/consumer-groups/:group/subscription": (
            API + "/consumer-groups/g/subscription",
            {"subscriptionTimestamp": "2026-01-01T00:00:00Z"}),
        API + "/consumer-groups/:group/queues/:queue/seek": (
            seek + "/seek", {"toEnd": True, "timestamp": None}),
        API + "/consumer-groups/:group/queues/:queue/partitions/:partition"
        "/seek": (seek + "/partitions/p/seek", {
            "toEnd": None, "timestamp": None, "offset": 0}),
        API + "/messages/:partitionId/:transactionId/retry": (
            API + "/messages/%s/t/retry" % part, {"x": 1}),
        API + "/dlq/:id/replay": (API + "/dlq/%s/replay" % dead, {
            "queue": "r", "partition": "p"}),
        API + "/traces": (API + "/traces", {
            "transactionId": "t", "partitionId": part, "data": {"a": 1},
            "consumerGroup": "g", "eventType": "info", "traceNames": ["n"]}),
        API + "/system/maintenance": (API + "/system/maintenance", {
            "enabled": False}),
        API + "/system/maintenance/pop": (API + "/system/maintenance/pop", {
            "enabled": False}),
        API + "/system/kv-timers": (API + "/system/kv-timers", {
            "kv": True, "timersSchedule": True, "timersFire": True}),
        API + "/stats/refresh": (API + "/stats/refresh", {"x": 1}),
        "/auth/logout": ("/auth/logout", {"x": 1}),
        # the wake covers all partitions whatever else it says
        "/internal/api/notify": ("/internal/api/notify", {
            "queue": "q", "x": "p"}),
    }


CONNECTION = {"url": "postgres://u@h:1/d?sslmode=require", "host": "h",
              "port": 5432, "database": "d", "user": "u", "password": "",
              "sslMode": "prefer", "connectTimeoutMs": 10000}
SINK = {"queue": "q", "table": "t", "consumerGroup": "s",
        "subscriptionMode": "all", "batch": 500, "workers": 1,
        "leaseSeconds": 60, "maxAttempts": 3, "progressTable": "a.b",
        "createProgressTable": True}


def puts():
    """Every PUT route: pattern -> [(path, a valid body)]."""
    one = API + "/connectors/"
    connection = {k: v for k, v in CONNECTION.items() if k != "url"}
    return {
        API + "/kv/:ns/*key": [(API + "/kv/n/k", {
            "value": {"a": [1]}, "ttlSeconds": 60})],
        S3: [("/api/cp/clusters/default/s3", {
            "queues": "q", "endpoint": "http://h:1", "region": "r",
            "bucket": "b", "accessKey": "a", "secretKey": "s",
            "prefix": "p/q", "pathStyle": True, "sse": "aws:kms",
            "sseKmsKeyId": "k", "format": "parquet", "compression": "gzip",
            "parquetCodec": "snappy", "layout": "per-partition",
            "align": "day", "start": "earliest", "targetMb": 64,
            "maxWindowMs": 60000, "sink": "lake", "enabled": False})],
        API + "/connectors/:name": [
            (one + "source", {
                "kind": "source", "enabled": True, "connection": connection,
                "source": {
                    "tables": [{"table": "public.t", "queue": "q",
                                "partitionBy": ["a"]},
                               {"table": "u", "queue": "q"}],
                    "slot": "s", "publication": "p",
                    "managePublication": True, "snapshot": "never",
                    "snapshotChunkRows": 2000, "maxBundleMessages": 1000,
                    "maxBundleBytes": 4194304, "lingerMs": 20,
                    "heartbeatSeconds": 10, "onTruncate": "skip"}}),
            (one + "sink", {
                "kind": "sink", "connection": CONNECTION, "sink": dict(
                    SINK, mode="upsert", key=["a"],
                    metadata={"partition": "b", "partitionId": "c",
                              "offset": "d", "transactionId": "e",
                              "createdAt": "f", "payload": "g"})}),
            (one + "statement", {
                "kind": "sink", "connection": connection, "sink": dict(
                    SINK, mode="sql", statement="select $1",
                    params=["$.a"])})],
    }


def served():
    """(method, pattern) of every route in the table of queend."""
    return [(method, pattern) for method, pattern, _ in table()]


def test_the_table_of_valid_bodies_names_every_post_route():
    posts = {path for method, path in served() if method == "POST"}
    assert len(posts) == 27
    assert set(bodies()) == posts
    assert set(puts()) == {path for method, path in served()
                           if method == "PUT"}


@pytest.fixture
def stored(cell):
    """A cell with a leased message, a dead letter and their ids."""
    cell.push("q", [1], partition="p", ids=["t"])
    dead = cell.pop("q", group="d", partition="p", subscriptionMode="all")
    assert cell.ack(dead, group="d", status="dlq")[0]["dlq"]
    row = cell.get(API + "/dlq").body["messages"][0]["id"]
    m = cell.pop("q", group="g", partition="p", subscriptionMode="all")[0]
    for path, body in puts()[API + "/connectors/:name"]:
        assert cell.request("PUT", path, body).status == 200, path
    return cell, bodies(m["partitionId"], row, m["leaseId"])


def check(reply, what):
    """An answer a caller can live with: JSON, and never our fault."""
    assert reply.status < 500, (what, reply)
    if reply.status != 204:
        assert isinstance(reply.body, (dict, list)), (what, reply)
    if reply.status >= 400:
        assert isinstance(reply.body["error"], str), (what, reply)


# Bodies

NOT_JSON = [b"{", b'{"items":', b"nul", b"\x00", b"\xff\xfe{}", b"{}{}",
            b"{'a':1}", b'{"a":1,}', b"[1,]", b'{"a":01}', b'{"a":+1}',
            b'{"a":"\n"}', b'{"a":"\\x"}', b'{"a":"\xc3\x28"}',
            b'{"a":"\xed\xa0\x80"}', b"\xef\xbb\xbf{}", b'{"a":NaN}',
            b'{"a"}', b"a=1&b=2", b"[" * 10000, b'{"a":' * 10000]
# These read no body, or none that could be refused.
LENIENT = {"extend", "retry", "refresh", "logout", "adopt", "reset"}
# Here an array is a call, so an empty one is an empty call.
ARRAYS = {"kv", "timers"}


def test_what_is_not_json_is_400_on_every_post_route(stored):
    cell, table = stored
    conn = cell.http()
    for pattern, (path, _) in table.items():
        for body in NOT_JSON + [b""]:
            reply = cell.post(path, body, conn=conn)
            check(reply, (path, body[:20]))
            name = pattern.rsplit("/", 1)[1]
            if name not in LENIENT and body:
                assert reply.status == 400, (path, body[:20], reply)
    conn.close()
    alive(cell)


def test_json_of_another_kind_is_400_on_every_post_route(stored):
    cell, table = stored
    conn = cell.http()
    for pattern, (path, _) in table.items():
        for body in (b"null", b"1", b'"x"', b"[]", b"true", b"[{}]"):
            reply = cell.post(path, body, conn=conn)
            check(reply, (path, body))
            name = pattern.rsplit("/", 1)[1]
            if body == b"[]" and name in ARRAYS:
                assert (reply.status, reply.body) == (200, {"results": []})
            elif name not in LENIENT:
                assert reply.status == 400, (path, body, reply)
    conn.close()
    alive(cell)


def places(value, at=()):
    """Every (path, value) inside a document, containers included."""
    found = [(at, value)] if at else []
    pairs = value.items() if isinstance(value, dict) else \
        enumerate(value) if isinstance(value, list) else ()
    for key, inner in pairs:
        found += places(inner, at + (key,))
    return found


def put(value, at, new):
    """A copy of value with the place at changed to new."""
    if not at:
        return new
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[at[0]] = put(copy[at[0]], at[1:], new)
    return copy


KINDS = [None, True, False, 0, 7, "x", "", [], {}, [[]], {"a": 1}, [None]]
NUMBERS = [Text(n) for n in (
    "-1", "0.5", "1e308", "-1e308", "1e999", "-0", "2147483648",
    "-2147483649", "9223372036854775807", "9223372036854775808",
    "-9223372036854775808", "-9223372036854775809", "18446744073709551616",
    "1e-999", "1" * 400)]
# Their values are anything, or a wrong kind has its own meaning.
ANYTHING = {"payload", "data", "status", "seconds", "traceNames", "x",
            "traceId", "error", "a", "value"}


def sweep(stored, values):
    """Replaces each place of each valid body by each value."""
    cell, table = stored
    conn = cell.http()
    seen = []
    for pattern, (path, body) in table.items():
        if path.endswith(("/ack", "/batch")):
            # so that what is broken is not hidden by a lease that ended
            body = put(body, ("leaseId",) if path.endswith("/ack") else
                       ("acknowledgments", 0, "leaseId"), None)
        for at, old in places(body):
            for new in values:
                text = dump(put(body, at, new))
                reply = cell.post(path, text, conn=conn)
                check(reply, (path, text))
                seen.append((at, old, new, reply, text))
                if "/system/" in path:
                    cell.post(path, body, conn=conn)
    conn.close()
    alive(cell)
    return seen


def test_a_wrong_type_in_any_field_is_an_answer_and_never_a_fault(stored):
    seen = sweep(stored, KINDS)
    assert len(seen) > 1000
    for at, old, new, reply, text in seen:
        names = {w for w in at if isinstance(w, str)}
        # an object where a word, a number or a flag belongs
        if isinstance(old, (str, bool, int)) and not names & ANYTHING \
                and isinstance(new, dict):
            refused = reply.status == 400 or (
                isinstance(reply.body, dict)
                and reply.body.get("success") is False)
            assert refused, (at, text, reply)


def test_any_number_in_any_field_is_an_answer_and_never_a_fault(stored):
    sweep(stored, NUMBERS)


def put_sweep(cell, values):
    """The same for each body of a PUT."""
    conn = cell.http()
    seen = []
    for pattern, valid in puts().items():
        for path, body in valid:
            reply = cell.request("PUT", path, body, conn=conn)
            assert reply.status == 200, (path, reply)
            for at, old in places(body):
                for new in values:
                    text = dump(put(body, at, new))
                    reply = cell.request("PUT", path, text, conn=conn)
                    check(reply, (path, text))
                    seen.append((pattern, at, old, new, reply))
    conn.close()
    alive(cell)
    return seen


def named(at):
    """The place as a refusal spells it."""
    return "".join("[%d]" % w if isinstance(w, int) else "." + w
                   for w in at)[1:]


def test_a_wrong_type_in_any_field_of_a_connector_is_refused_by_name(cell):
    seen = put_sweep(cell, KINDS)
    assert len(seen) > 800
    n = 0
    for pattern, at, old, new, reply in seen:
        if "connectors" not in pattern or type(new) is type(old):
            continue
        if at[-1] == "partitionBy" and isinstance(new, str):
            continue
        assert (reply.status, reply.body["error"]) == (
            400, "invalid_connector"), (at, new, reply)
        assert reply.body["detail"].startswith(named(at) + ": "), (at, reply)
        n += 1
    assert n > 600


def test_any_number_in_any_field_of_a_connector_is_refused_by_name(cell):
    for pattern, at, old, new, reply in put_sweep(cell, NUMBERS):
        if "connectors" not in pattern:
            continue
        if at[-1] == "lingerMs" and new == "-0":
            assert reply.status == 200, (at, new, reply)
            continue
        assert (reply.status, reply.body["error"]) == (
            400, "invalid_connector"), (at, new, reply)
        assert reply.body["detail"].startswith(named(at) + ": "), (at, reply)


def test_a_field_that_is_missing_or_unknown_is_named(cell):
    for path, body in puts()[API + "/connectors/:name"]:
        for at, _ in places(body):
            holder = at[:-1]
            inner = body
            for word in holder:
                inner = inner[word]
            if isinstance(inner, dict):
                text = dump(put(body, holder, dict(inner, zzz=1)))
                detail = cell.request("PUT", path, text).body["detail"]
                assert detail.startswith(
                    named(holder + ("zzz",)) + ": unknown field"), detail
                less = {k: v for k, v in inner.items() if k != at[-1]}
                reply = cell.request("PUT", path, dump(
                    put(body, holder, less)))
                check(reply, (path, at))
                if reply.status != 200:
                    assert reply.body["detail"].startswith(
                        named(at) + ": "), (at, reply)


def queries():
    """Query parameters of every GET route that has some."""
    times = ("from", "to")
    labels = ("queue", "namespace", "task")
    return {
        API + "/pop": labels[1:] + ("batch", "partitions", "autoAck"),
        API + "/pop/queue/q": (
            "batch", "partitions", "autoAck", "wait", "timeout",
            "leaseSeconds", "consumerGroup", "subscriptionMode",
            "subscriptionFrom", "conflation", "autopilot"),
        API + "/pop/queue/q/partition/p": ("batch", "leaseSeconds",
                                           "subscriptionFrom"),
        API + "/resources/queues": ("stats",) + labels[1:],
        API + "/resources/queues/q/depth": ("group",),
        API + "/consumer-groups/lagging": ("minLagSeconds",),
        API + "/messages": times + labels + ("partition", "ns", "status",
                                             "limit", "offset"),
        API + "/dlq": times + ("queue", "partition", "consumerGroup",
                               "limit", "offset"),
        API + "/traces/names": ("limit", "offset"),
        API + "/traces/by-name/n": ("limit", "offset"),
        API + "/status": times + labels,
        API + "/status/queues": times + labels + ("limit", "offset"),
        API + "/status/analytics": times + labels + ("interval",),
        API + "/analytics/queue-lag": times + ("queue",),
        API + "/analytics/queue-ops": times + ("queue",),
        API + "/analytics/retention": times + ("queue", "groupBy"),
    }


QUERY = ["", "x", "-1", "0", "0.5", "1e3", "2147483648", "9" * 19, "9" * 20,
         "9" * 400, "true", "1", "TRUE", "%00", "%ZZ", "%", "%C3", "%2F",
         "%22%5C", "%ED%A0%80", "now", "2026-01-01", "9999-12-31T23:59:59Z",
         "294276-12-31T00:00:00Z", "infinity", "-infinity", "0001-01-01",
         "2026-13-45T99:99:99Z", "'%20or%201=1--", "n" * 1025, "[]", "null"]


def test_any_word_in_any_query_parameter_is_an_answer(stored):
    cell, _ = stored
    conn = cell.http()
    for path, names in queries().items():
        for name in names:
            for word in QUERY:
                query = "?%s=%s" % (name, word)
                if name in ("wait", "timeout"):
                    query += "&timeout=1" if name == "wait" else ""
                reply = cell.get(path + query, conn=conn)
                if reply.status == 500 and path.endswith("/pop"):
                    raise AssertionError((path + query, reply))
                check(reply, path + query)
    conn.close()
    alive(cell)


# Names and paths

def test_names_up_to_1024_bytes_work_in_paths_and_longer_ones_are_400(cell):
    name = "\u00e9" * 512
    cell.push(name, [1], partition=name, ids=[name])
    got = cell.pop(name, group=name, partition=name, subscriptionMode="all")
    assert [m["transactionId"] for m in got] == [name]
    assert cell.ack(got, group=name)[0]["success"] is True
    quoted = urllib.parse.quote(name)
    assert cell.get(API + "/resources/queues/%s/depth?group=%s"
                    % (quoted, quoted)).body["pending"] == 0
    for path in ("/pop/queue/%sx", "/pop/queue/q/partition/%sx",
                 "/pop/queue/q?consumerGroup=%sx", "/resources/queues/%sx",
                 "/consumer-groups/%sx"):
        reply = cell.get(API + path % quoted)
        assert reply.status in (400, 404), (path, reply)
        assert reply.body["error"], path
    alive(cell)


def test_control_characters_in_names_of_paths_create_nothing(cell, db):
    for byte in ("00", "01", "0A", "1F", "7F"):
        for path in ("/pop/queue/a%%%sb", "/pop/queue/q?consumerGroup=a%%%sb"):
            reply = cell.get(API + path % byte)
            assert reply.status == 400, (path, byte, reply)
        reply = cell.post(API + "/configure", '{"queue":"a\\u00%sb"}' % byte)
        assert reply.status == 400, (byte, reply)
    assert db.rows("select 1 from queen.queues") == []
    alive(cell)


def test_a_slash_in_a_segment_is_part_of_the_name(cell):
    cell.push("a/b", [1], partition="c/d")
    got = cell.pop("a/b", partition="c/d")
    assert [(m["queue"], m["partition"]) for m in got] == [("a/b", "c/d")]
    assert cell.get(API + "/resources/queues/a/b").status == 404
    assert cell.get(API + "/resources/queues/a%2Fb").status == 200
    assert cell.get(API + "/resources/queues/a%2fb").status == 200


def test_escapes_that_mean_nothing_are_400(cell):
    for escape in ("%ZZ", "%", "%C", "%C3", "%C3%28", "%ED%A0%80", "%FF",
                   "%F8%88%80%80%80"):
        for path in ("/pop/queue/", "/resources/queues/", "/consumer-groups/",
                     "/traces/by-name/"):
            answer = exchange(cell, request("GET", API + path + escape))
            assert answer[0] == 400, (path, escape, answer)
            error_of(answer)
    alive(cell)


NOWHERE = [
    "/api/v1/pop/queue/../../../etc/passwd", "/../../etc/passwd", "//",
    "/api/v1//push", "/api/v1/queues/q/clear",
    "/api/v1/kv/only-ns", "/api/v1/timers/", "/streams/v1/cycle", "/", "/assets/x",
    "/api/v1/" + "x/" * 500, "/api/v1/messages/only-one"]


def test_paths_nobody_serves_are_the_json_404(cell):
    for path in NOWHERE:
        for method in ("GET", "POST", "PUT", "DELETE", "PATCH", "BREW"):
            status, _, body = exchange(cell, request(method, path, b""))
            assert (status, json.loads(body)) == (404, {
                "error": "Not Found", "code": "no_such_route"}), (method, path)
    alive(cell)


# Payloads

def test_escapes_in_payloads_pass_verbatim(cell):
    for text in (r'"\u0000"', r'"\ud800"', r'"\udc00\ud800"', r'"\/\b"',
                 '1.0E+2', '-0.0', '1' * 400, '{"a":1,"a":2}',
                 "[" * 900 + "]" * 900, '"\x7f\u2028"'):
        body = '{"items":[{"queue":"q","payload":%s}]}' % text
        assert cell.post(API + "/push", body).status == 201, text[:20]
        conn = cell.http()
        conn.request("GET", API + "/pop/queue/q?autoAck=true")
        raw = conn.getresponse().read()
        conn.close()
        assert b'"data":' + text.encode() + b"," in raw, (text[:20], raw)


def test_nesting_is_bounded_for_the_whole_body(cell):
    def push(depth):
        return cell.post(API + "/push", '{"items":[{"queue":"q","payload":'
                         + "[" * depth + "]" * depth + "}]}")

    # 1000 levels, three of them around the payload
    assert push(997).status == 201
    assert push(998).status == 400
    assert push(10000).status == 400
    assert "deep" in push(10000).body["error"]
    assert push(200000).status == 400
    alive(cell)


# Sizes

def test_100_mb_are_refused_before_they_are_read(cell):
    head = request("POST", API + "/push", None, "Content-Length: 104857600")
    with Raw(cell) as raw:
        start = time.monotonic()
        raw.send(head)
        answer = raw.answer()
        assert answer[0] == 413 and time.monotonic() - start < 5
        assert error_of(answer)
    alive(cell)


def test_the_413_arrives_though_the_client_sends_on(cell):
    with Raw(cell) as raw:
        raw.send(request("POST", API + "/push", None,
                         "Content-Length: 104857600"))
        sent, part = 0, b"x" * 65536
        while sent < 192 * 1024 and raw.send(part):
            sent += len(part)
        answer = raw.answer()
        assert answer[0] == 413, answer
        error_of(answer)
    alive(cell)


def test_100_mb_in_chunks_are_refused_at_the_limit(cell):
    chunk = b"40000\r\n" + b"x" * 0x40000 + b"\r\n"
    with Raw(cell, timeout=60) as raw:
        raw.send(request("POST", API + "/push", None,
                         "Transfer-Encoding: chunked"))
        sent = 0
        while sent < 400 and raw.send(chunk):
            sent += 1
        assert sent < 400
        answer = raw.answer()
        # a client that goes on writing into a closed connection may see
        # the reset first
        assert answer is None or answer[0] == 413, answer
    alive(cell)


@pytest.mark.cellenv(QUEEN_MAX_BODY_BYTES=4096)
def test_the_limit_is_exact(cell):
    body = b'{"items":[{"queue":"q","payload":"%s"}]}'
    fill = 4096 - len(body) + 2
    assert cell.post(API + "/push", body % (b"x" * fill)).status == 201
    reply = cell.post(API + "/push", body % (b"x" * (fill + 1)))
    assert reply.status == 413 and reply.body["error"], reply


# Framing: each once from end to end; the unit tests have the rest

def chunked(body):
    return request("POST", API + "/push", None,
                   "Transfer-Encoding: chunked") + body


def post(*headers):
    return request("POST", API + "/push", None, *headers) + b'{"items":[]}'


FRAMING = {
    "two lengths": (post("Content-Length: 12", "Content-Length: 13"), 400),
    "one length twice": (
        post("Content-Length: 12", "Content-Length: 12"), 400),
    "a list of lengths": (post("Content-Length: 12, 12"), 400),
    "a signed length": (post("Content-Length: +12"), 400),
    "a negative length": (post("Content-Length: -1"), 400),
    "a length in hex": (post("Content-Length: 0xc"), 400),
    "a length of 2^64": (post("Content-Length: 18446744073709551616"), 413),
    "length and chunks": (
        post("Content-Length: 12", "Transfer-Encoding: chunked"), 400),
    "an unknown coding": (post("Transfer-Encoding: gzip"), 501),
    "a chunk size that is none": (chunked(b"zz\r\n"), 400),
    "a chunk size of 2^64": (chunked(b"1" + b"0" * 16 + b"\r\n"), 400),
    "a chunk longer than said": (chunked(b"1\r\nxx\r\n0\r\n\r\n"), 400),
    "a bare LF": (b"GET /health HTTP/1.1\nHost: h\n\n", 400),
    "a folded line": (
        b"GET /health HTTP/1.1\r\nHost: h\r\nA: b\r\n c\r\n\r\n", 400),
    "a NUL in the head": (
        b"GET /health HTTP/1.1\r\nHost: h\r\nA: \x00\r\n\r\n", 400),
    "a space before the colon": (
        b"GET /health HTTP/1.1\r\nHost : h\r\n\r\n", 400),
    "no host": (b"GET /health HTTP/1.1\r\n\r\n", 400),
    "two hosts": (
        b"GET /health HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400),
    "a head of 100 KB": (
        b"GET /health HTTP/1.1\r\nA: " + b"x" * 100000 + b"\r\n\r\n", 431),
    "a target of 100 KB": (
        b"GET /" + b"x" * 100000 + b" HTTP/1.1\r\nHost: h\r\n\r\n", 414),
    "HTTP/0.9": (b"GET /health\r\n\r\n", 400),
    "HTTP/2.0": (b"GET /health HTTP/2.0\r\nHost: h\r\n\r\n", 505),
    "the preface of HTTP/2": (
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505),
    "a TLS hello": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"
                    + b"\x00" * 40 + b"\r\n\r\n", 400),
    "an unknown method": (b"BREW /health HTTP/1.1\r\nHost: h\r\n\r\n", 404),
}


def test_requests_framed_wrongly_get_a_json_error_and_the_connection_ends(
        cell):
    for what, (data, status) in FRAMING.items():
        with Raw(cell) as raw:
            raw.send(data)
            answer = raw.answer()
            assert answer and answer[0] == status, (what, answer)
            error_of(answer)
            if status != 404:
                # no second request may be read out of the rest
                raw.end()
                assert raw.closed(), what
    alive(cell)


def test_pipelined_requests_are_answered_in_order(cell):
    one = request("POST", API + "/push",
                  b'{"items":[{"queue":"q","payload":1}]}')
    with Raw(cell) as raw:
        raw.send(one * 20 + request("GET", "/status"))
        statuses = [raw.answer()[0] for _ in range(21)]
    assert statuses == [201] * 20 + [200]
    assert len(cell.pop("q", batch=100)) == 20


def test_a_body_that_ends_early_stores_nothing(cell, db):
    body = b'{"items":[{"queue":"q","payload":1}]}'
    for data in (request("POST", API + "/push", body)[:-1],
                 chunked(b"%x\r\n%s\r\n" % (len(body), body)),
                 chunked(b"%x\r\n%s\r\n0\r\n" % (len(body), body))):
        answer = exchange(cell, data, end=True)
        assert answer is None or answer[0] == 400, answer
    alive(cell)
    assert db.value("select count(*) from queen.queues"
                    " where name = 'q'") == 0


def test_a_byte_per_second_is_cut_off(cell):
    """10 s for a head, 10 s and 1 s per 64 KiB for a body."""
    def drip(start, rest, out):
        with Raw(cell, timeout=30) as raw:
            raw.send(start)
            begun = time.monotonic()
            raw.sock.settimeout(1)
            for byte in rest:
                if not raw.send(bytes([byte])):
                    break
                try:
                    # an answer instead of the next second
                    out["answer"] = raw.answer()
                    break
                except socket.timeout:
                    continue
            out["took"] = time.monotonic() - begun

    got = [{}, {}]
    jobs = [
        threading.Thread(target=drip, args=(
            b"POST /api/v1/push HTTP/1.1\r\nHost: h\r\n", b"A: " + b"b" * 60,
            got[0])),
        threading.Thread(target=drip, args=(
            request("POST", API + "/push", None, "Content-Length: 500"),
            b"{" * 60, got[1]))]
    for job in jobs:
        job.start()
    # others are served meanwhile
    alive(cell)
    for job in jobs:
        job.join()
    for one in got:
        assert one["answer"][0] == 408, one
        error_of(one["answer"])
        assert 9 < one["took"] < 20, one


# Many connections

def test_5000_idle_connections_while_traffic_goes_on(cell):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    idle = []
    try:
        for i in range(5000):
            s = socket.create_connection(("127.0.0.1", cell.port.number),
                                         timeout=30)
            if i % 2:
                s.sendall(b"GET /status HT")    # half of them begin
            idle.append(s)
        for i in range(100):
            cell.push("q", [i])
        assert [m["data"] for m in cell.pop("q", batch=1000)] == list(
            range(100))
        # and one of the idle ones is still good
        idle[1].sendall(b"TP/1.1\r\nHost: h\r\n\r\n")
        assert idle[1].recv(4096).startswith(b"HTTP/1.1 200 ")
        with open("/proc/%d/status" % cell.proc.pid) as f:
            rss = int(re.search(r"VmRSS:\s+(\d+)", f.read()).group(1))
        if not SAN:
            assert rss < (64 + 5000 * 8 // 1024) * 1024 + 32768, rss
    finally:
        for s in idle:
            s.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    wait_until(lambda: len(os.listdir("/proc/%d/fd" % cell.proc.pid)) < 200,
               what="connections closed")
    alive(cell)


# Mutation

def mutate(rng, data, alphabet):
    data = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 4, 16))):
        at = rng.randrange(len(data) + 1)
        end = min(len(data), at + rng.choice((1, 1, 4, 32)))
        how = rng.randrange(6)
        if how == 0:
            data[at:end] = b""
        elif how == 1:
            data[at:at] = data[at:end] * rng.choice((1, 2, 50))
        elif how == 2:
            data[at:at] = rng.choice(alphabet)
        elif how == 3:
            data[at:end] = rng.choice(alphabet)
        elif how == 4 and at < len(data):
            data[at] ^= 1 << rng.randrange(8)
        elif how == 5 and rng.random() < 0.2:
            del data[at:]
    return bytes(data)


HEAD_WORDS = [b"\r\n", b"\n", b"\r", b"\0", b" ", b":", b"%00", b"%", b"/",
              b"?", b"&", b"=", b"\xff", b"HTTP/1.0", b"Content-Length: 5",
              b"\r\nTransfer-Encoding: chunked", b"\r\nExpect: 100-continue",
              b"\r\nConnection: close", b"-1", b"99999999999999999999"]
BODY_WORDS = [b"{", b"}", b"[", b"]", b'"', b"\\", b"\\u0000", b"\\ud800",
              b"null", b"true", b"-1", b"1e999", b"99999999999999999999",
              b",", b":", b"\0", b"\xff", b"\xc3\xa9", b'"queue":', b"[" * 999,
              b'"x":1,', b"\\\\", b"0.5", b'""']
SEED = int(os.environ.get("QUEEN_FUZZ_SEED", "20260801"))


def test_2000_mutated_requests_do_no_harm(stored):
    cell, table = stored
    rng = random.Random(SEED)
    routes = [("POST", path, json.dumps(body).encode())
              for path, body in table.values()]
    routes += [("PUT", path, json.dumps(body).encode())
               for bodies_ in puts().values() for path, body in bodies_]
    # long polls would only wait; a waiting pop is cut short by its client
    part = table[API + "/ack"][1]["partitionId"]
    names = {":queue": "q", ":partition": "p", ":group": "g",
             ":transactionId": "t", ":traceName": "n", ":partitionId": part,
             ":ns": "n", "*key": "k", "*timerKey": "k", ":name": "sink",
             ":cluster": "default"}
    for method, pattern in served():
        if method not in ("POST", "PUT"):
            path = re.sub(r"[:*]\w+", lambda m: names[m.group()], pattern)
            routes.append((method, path, None))
    counts = {}
    for i in range(2000):
        method, path, body = rng.choice(routes)
        if body is not None and i % 2:
            data = request(method, path, mutate(rng, body, BODY_WORDS))
        else:
            data = mutate(rng, request(method, path, body), HEAD_WORDS)
        try:
            answer = exchange(cell, data, end=True)
        except socket.timeout:
            raise AssertionError("no answer (seed %d, %d): %r"
                                 % (SEED, i, data)) from None
        assert cell.proc.poll() is None, (SEED, i, data)
        if answer is None:
            counts[0] = counts.get(0, 0) + 1
            continue
        status = answer[0]
        counts[status] = counts.get(status, 0) + 1
        # 501 an unknown coding, 505 a version, 503 while pushes are off
        assert status < 500 or status in (501, 503, 505), (
            SEED, i, data, answer)
        if status >= 400 and method != "HEAD":
            error_of(answer)
        if b"maintenance" in data:
            for where in ("", "/pop"):
                cell.post(API + "/system/maintenance" + where,
                          {"enabled": False})
        if b"kv-timers" in data:
            cell.post(API + "/system/kv-timers",
                      table[API + "/system/kv-timers"][1])
    # most were understood well enough to be judged
    assert counts.get(400, 0) > 300, counts
    assert sum(counts.get(s, 0) for s in (200, 201, 204)) > 100, counts
    alive(cell)

# SPDX-License-Identifier: Apache-2.0
"""
The binding on the wire: media type and headers of every answer, methods and
paths nobody serves, framing, and what is too large.
"""
import base64
import contextlib
import json
import re

import pytest

from ojskit import MEDIA
from ojsroutes import API, problem
from queenlib import Reply, wait_until
from rawhttp import Raw, exchange, request

QUIET = dict(QUEEN_OJS_SWEEPER="false")
MADE = r"req_[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-" \
       r"[0-9a-f]{12}"
MIB = 1 << 20

pytestmark = pytest.mark.cellenv(**QUIET)


class Headers(dict):
    def __getitem__(self, name):
        return super().__getitem__(name.lower())


def sent(ojs, data, end=False):
    """An answer to bytes, as a Reply."""
    answer = exchange(ojs, data, end)
    assert answer, "closed without an answer"
    return Reply(answer[0], Headers(answer[1]), answer[2])


def text_of(reply):
    """Id of the request as answered; the headers are those of each answer."""
    assert reply.headers["Content-Type"] == MEDIA, reply
    assert reply.headers["OJS-Version"] == "1.0", reply
    return reply.headers["X-Request-Id"]


def test_every_answer_has_the_headers(ojs):
    """Type exactly, without charset; the id of the request, the client's when
    it is a sane one."""
    made = set()
    for method, path, body, status in (
            ("GET", "/ojs/manifest", None, 200),
            ("HEAD", "/ojs/manifest", None, 200),
            ("GET", API + "/health", None, 200),
            ("GET", API + "/queues", None, 200),
            ("POST", API + "/jobs", {"type": "a.b", "args": []}, 201),
            ("POST", API + "/jobs", {"args": []}, 400),
            ("GET", API + "/nope", None, 404),
            ("PUT", API + "/jobs", {}, 405)):
        reply = ojs.request(method, path, body)
        assert reply.status == status, reply
        made.add(text_of(reply))
        assert re.fullmatch(MADE, text_of(reply)), reply
        for text in "my-id", "x" * 200, "! ~":
            reply = ojs.request(method, path, body,
                                headers={"X-Request-Id": text,
                                         "Accept": "text/html"})
            assert text_of(reply) == text
            if status >= 400:
                assert reply.body["error"]["request_id"] == text
    assert len(made) == 8
    for text in "x" * 201, "caf\xe9", "a\tb", "":
        reply = sent(ojs, request("GET", "/ojs/manifest", None,
                                  "X-Request-Id: " + text))
        assert re.fullmatch(MADE, text_of(reply)), text


def test_bodies_are_compact(ojs):
    for path in "/ojs/manifest", API + "/queues", API + "/jobs/x":
        raw = sent(ojs, request("GET", path)).body
        assert raw == json.dumps(json.loads(raw), ensure_ascii=False,
                                 separators=(",", ":")).encode(), raw


def test_other_versions_are_refused(ojs):
    def versions(*texts):
        return sent(ojs, request("GET", API + "/queues", None,
                                 *("OJS-Version: " + t for t in texts)))
    for text in "1.0", "1.0.3":
        assert versions(text).status == 200
    for text in "2.0", "1.1", "1", "1.00", "1.0.", "v1.0", "":
        assert "1.0" in problem(versions(text), 422, "unsupported")["message"]
    # decided before the body
    problem(sent(ojs, request(
        "POST", API + "/jobs", b'{"type":"a.b","args":[]}',
        "OJS-Version: 2.0")), 422, "unsupported")
    assert ojs.fetch() == []


def test_paths_and_methods_nobody_serves(ojs):
    """404 and 405 with Allow, and the connection lives on."""
    with Raw(ojs) as raw:
        def ask(method, path):
            raw.send(request(method, path))
            answer = raw.answer()
            return Reply(answer[0], Headers(answer[1]), answer[2])
        for method, path in (("ASSERT", "/"), ("OPTIONS", "*"),
                             ("PATCH", API + "/nope")):
            reply = ask(method, path)
            problem(reply, 405, "invalid_request")
            assert reply.headers["allow"].upper() == "GET, HEAD, POST, DELETE"
        for method, path in (("GET", "/"), ("POST", "/ojs"),
                             ("GET", API), ("GET", API + "/jobs/a/b"),
                             ("GET", API + "/queues/"),
                             ("DELETE", API + "/nope")):
            reply = ask(method, path)
            problem(reply, 404, "not_found", resource="path")
            assert "allow" not in reply.headers
        for method, path, allow in (
                ("GET", "/jobs", "POST"), ("ASSERT", "/jobs", "POST"),
                ("PUT", "/jobs/x", "GET, HEAD, DELETE"),
                ("PATCH", "/queues", "GET, HEAD, POST"),
                ("post", "/queues", "GET, HEAD, POST"),
                ("TRACE", "/queues/q/config", "GET, HEAD, POST"),
                ("HEAD", "/workers/fetch", "POST"),
                ("DELETE", "/queues/q/dlq/1/replay", "POST")):
            if method == "HEAD":  # without a body, so on its own
                reply = ojs.request(method, API + path)
                assert (reply.status, reply.body) == (405, b"")
            else:
                reply = ask(method, API + path)
                problem(reply, 405, "invalid_request")
            assert reply.headers["Allow"].upper() == allow, path


def test_types_of_bodies(ojs):
    """Ours, JSON, or none said; any parameters.  Those of GET and DELETE are
    not looked at."""
    body = b'{"type":"a.b","args":[]}'
    for text in (MEDIA, "application/json", "application/json; charset=utf-8",
                 MEDIA + ";charset=utf-8", "Application/JSON"):
        assert sent(ojs, request("POST", API + "/jobs", body,
                                 "Content-Type: " + text)).status == 201, text
    assert sent(ojs, request("POST", API + "/jobs", body)).status == 201
    for text in ("text/plain", "application/jsonl", "application/xml",
                 "application/x-www-form-urlencoded", "json"):
        problem(sent(ojs, request("POST", API + "/jobs", body,
                                  "Content-Type: " + text)),
                400, "invalid_request", field="Content-Type")
    other = "Content-Type: text/plain"
    pause = API + "/queues/q/pause"
    assert sent(ojs, request("POST", pause, None, other)).status == 200
    assert sent(ojs, request("POST", pause, b"", other)).status == 200
    job = ojs.fetch(count=1)[0]["id"]
    for method in "GET", "DELETE":
        reply = sent(ojs, request(method, API + "/jobs/" + job, b"\xff{", other))
        assert reply.status == 200, reply
    assert sent(ojs, b"DELETE " + API.encode() + b"/jobs/x HTTP/1.1\r\nHost: h"
                b"\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n"
                ).status in (400, 404)
    assert len(ojs.fetch(count=100)) == 5


def test_bodies_that_are_no_object(ojs):
    for path in "/jobs", "/jobs/batch", "/workers/fetch", "/queues/q/receive":
        for body in (b"", b" ", b"{", b"[]", b"1", b"null", b'"x"', b"{} {}",
                     b"{'a':1}", b'{"a":1,}', b'{"a":"\xff"}', b'{"a":NaN}',
                     b"\xef\xbb\xbf{}"):
            problem(sent(ojs, request("POST", API + path, body)), 400,
                    "invalid_payload")


def test_framing_nobody_can_mistake(ojs):
    """One answer in our form, then the end; nothing behind it is a request."""
    job = b'{"type":"a.b","args":[]}'
    post = b"POST " + API.encode() + b"/jobs HTTP/1.1\r\nHost: h\r\n"
    for data, status, code in (
            (post + b"Content-Length: 24\r\nTransfer-Encoding: chunked\r\n\r\n"
             + job, 400, "invalid_request"),
            (post + b"Content-Length: 24\r\nContent-Length: 24\r\n\r\n" + job,
             400, "invalid_request"),
            (post + b"Content-Length: 1\r\nContent-Length: 24\r\n\r\n" + job,
             400, "invalid_request"),
            (post + b"Content-Length: +24\r\n\r\n" + job, 400,
             "invalid_request"),
            (post + b"Content-Length : 24\r\n\r\n" + job, 400,
             "invalid_request"),
            (post + b"Transfer-Encoding: chunked\r\n\r\nx\r\n", 400,
             "invalid_request"),
            (post + b"Transfer-Encoding: gzip\r\n\r\n", 501, "invalid_request"),
            (post + b"Content-Length: 99\r\n\r\n" + job, 400,
             "invalid_request"),
            (b"GET /%zz HTTP/1.1\r\nHost: h\r\n\r\n", 400, "invalid_request"),
            (b"GET / HTTP/2.0\r\nHost: h\r\n\r\n", 505, "invalid_request"),
            (b"GET /\r\n\r\n", 400, "invalid_request"),
            (b"GET / HTTP/1.1\r\n\r\n", 400, "invalid_request"),
            (b"GET / HTTP/1.1\r\nHost: h\r\nX: " + b"x" * 40000 + b"\r\n\r\n",
             431, "invalid_request"),
            (b"GET /" + b"x" * 20000 + b" HTTP/1.1\r\nHost: h\r\n\r\n", 414,
             "invalid_request")):
        with Raw(ojs) as raw:
            raw.send(data)
            raw.end()
            answer = raw.answer()
            reply = Reply(answer[0], Headers(answer[1]), answer[2])
            problem(reply, status, code)
            assert re.fullmatch(MADE, reply.headers["X-Request-Id"])
            assert reply.headers["Connection"] == "close"
            assert raw.closed()
    assert ojs.fetch() == []


def job(**more):
    return {"type": "a.b", "args": [], **more}


def nested(depth):
    return json.loads("[" * depth + "]" * depth)


def test_what_is_too_large(ojs):
    def refused(path, body, status, code, **details):
        return problem(ojs.request("POST", API + path, body), status, code,
                       **details)
    # the whole body, before it is read; chunks have no size
    head = request("POST", API + "/jobs/batch", None,
                   "Content-Length: %d" % (16 * MIB + 1))
    problem(sent(ojs, head), 413, "envelope_too_large", size=16 * MIB + 1,
            limit=16 * MIB)
    error = problem(sent(ojs, request(
        "POST", API + "/jobs", None, "Transfer-Encoding: chunked")
        + b"1000001\r\n"), 413, "envelope_too_large", limit=16 * MIB)
    assert "size" not in error["details"]
    # one job, alone and in a batch
    big = job(args=["x" * MIB])
    size = len(json.dumps(big))
    error = refused("/jobs", big, 413, "envelope_too_large", limit=MIB)
    assert MIB < error["details"]["size"] <= size
    refused("/jobs/batch", {"jobs": [job(), big]}, 413, "envelope_too_large",
            limit=MIB, index=1)
    assert ojs.push_job(args=["x" * (MIB - 4096)])["state"] == "available"
    refused("/jobs", job(meta={"m": "x" * 65536}), 413, "envelope_too_large")
    ojs.push_job(meta={"m": "x" * 65000})
    # names and depth
    for over, fine in ((job(type="a." + "b" * 254), job(type="a." + "b" * 253)),
                       (job(options={"queue": "q" * 129}),
                        job(options={"queue": "q" * 128}))):
        refused("/jobs", over, 400, "invalid_request")
        ojs.ask("POST", "/jobs", fine, 201)
    refused("/jobs", job(args=nested(40)), 400, "invalid_payload")
    ojs.ask("POST", "/jobs", job(args=nested(30)), 201)
    # how many
    many = b'{"jobs":[' + b",".join([b'{"type":"a.b","args":[]}'] * 10001) \
        + b"]}"
    refused("/jobs/batch", many, 400, "invalid_request")
    assert len(ojs.fetch("default", count=200)) == 4
    ojs.ask("POST", "/jobs/batch", {"jobs": [
        job(options={"queue": "many"})] * 150}, 201)
    got = ojs.fetch("many", count=200)
    assert len(got) == 100
    # results
    problem(ojs.request("POST", API + "/workers/ack", {
        "job_id": got[0]["id"], "result": "x" * (MIB + 1)}), 413,
        "envelope_too_large")
    assert ojs.job(got[0]["id"])["state"] == "active"
    ojs.ack(got[0]["id"], result="x" * (MIB - 4096))


def test_a_head_that_expects_to_be_asked(ojs):
    """100 only where the body will be read."""
    head = request("POST", API + "/jobs", None, "Expect: 100-continue",
                   "Content-Length: 24")
    with Raw(ojs) as raw:
        raw.send(head)
        assert raw.answer()[0] == 100
        raw.send(b'{"type":"a.b","args":[]}')
        status, headers, _ = raw.answer()
        assert status == 201
        assert headers["location"].startswith(API + "/jobs/")
    with Raw(ojs) as raw, contextlib.suppress(OSError):
        raw.send(head.replace(b"/jobs ", b"/nope "))
        assert raw.answer()[0] == 404


@pytest.mark.cellenv(QUEEN_HTTP_MEMORY_MB=1)
def test_too_many_bodies_in_hand(ojs):
    """Who waits for room in vain is told to come again, as streams 13 says."""
    def turned_away():
        """A body that comes behind its head."""
        with Raw(ojs) as raw:
            raw.send(request("POST", API + "/jobs", None, "Content-Length: 24",
                             "Expect: 100-continue"))
            assert raw.answer()[0] == 100
            raw.send(b'{"type":"a.b","args":[]}')
            status, headers, body = raw.answer()
        return status != 201 and Reply(status, Headers(headers), body)

    with Raw(ojs) as held:
        held.send(request("POST", API + "/jobs", None,
                          "Content-Length: %d" % (2 * MIB)))
        held.send(b" " * MIB)
        reply = wait_until(turned_away)
        assert problem(reply, 429, "rate_limited")
        assert reply.headers["Retry-After"] == "1"
    wait_until(lambda: not turned_away())


def test_cursors_nobody_gave_are_refused(ojs):
    """Whatever they hold: none comes to the database as it is."""
    def forged(text):
        return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")

    for path, key in (("/events", "after"), ("/dead-letter", "cursor"),
                      ("/workflows", "cursor")):
        for text in ("9223372036854775000.1", "-9223372036854775808.1",
                     "-1.1", "1", ".", "x.y", "1.\0", "9" * 40 + ".1"):
            ojs.refused("GET", "%s?%s=%s" % (path, key, forged(text)), None,
                        400, "invalid_request")


@pytest.mark.cellenv(QUEEN_OJS_MAX_ENVELOPE_BYTES=2097152)
def test_what_may_be_larger_may_be_so_everywhere(ojs):
    big = "x" * 1500000
    job = ojs.push_job(queue="q", args=[big])
    ojs.fetch("q")
    assert ojs.ack(job["id"], result=big)["state"] == "completed"
    ojs.push_job(queue="q")
    job, = ojs.fetch("q")
    error = ojs.nack(job["id"], {"code": "x", "details": {"a": "x" * 2097152}},
                     413)["error"]
    assert error["code"] == "envelope_too_large"
    assert error["details"]["limit"] == 2097152

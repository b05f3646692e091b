# SPDX-License-Identifier: Apache-2.0
"""What queenctl makes of servers that are not there or say no: answers that
queend does not give (401, 429, a proxy) come from one of our own."""
import contextlib
import json
import socket

import pytest

from ctlkit import AUTH, SERVER, USER, answer


def test_unreachable_server(alone):
    with contextlib.closing(socket.socket()) as s:
        s.bind(("127.0.0.1", 0))  # bound, not listening: refused
        url = "http://127.0.0.1:%d" % s.getsockname()[1]
        for args in (("ping",), ("queue", "list"), ("push", "q", "--data",
                                                    "1"), ("tail", "q")):
            assert alone.fails(SERVER, "--server", url, *args).startswith(
                "queenctl: cannot reach %s: " % url)


@pytest.mark.parametrize("status", [401, 403])
def test_refused_tokens(stub, status):
    ctl = stub(answer(status, {"error": "Invalid token signature"}))
    for args in (("queue", "list"), ("push", "q", "--data", "1"), ("ping",),
                 ("tail", "q"), ("dlq", "retry", "p", "t", "--yes")):
        assert ctl.fails(AUTH, *args, "--token", "bad") == \
            "queenctl: Invalid token signature (HTTP %d)\n" % status
    assert len(ctl.seen) == 5  # never again
    assert ctl.seen[0][2]["Authorization"] == "Bearer bad"


def test_route_blocked_by_a_proxy(stub):
    ctl = stub(answer(404, {"error": "x", "code": "route_blocked"}))
    assert "operator-only behind the proxy" in ctl.fails(USER, "metrics")


def test_reads_are_repeated_writes_are_not(stub):
    ctl = stub(answer(500, {"error": "pool"}), answer(200, {"queues": []}))
    assert ctl.json("queue", "list") == []
    assert len(ctl.seen) == 2
    ctl = stub(answer(500, {"error": "pool"}))
    assert ctl.fails(SERVER, "queue", "list") == \
        "queenctl: pool (HTTP 500)\n"
    assert len(ctl.seen) == 3
    for args in (("push", "q", "--data", "1"), ("pop", "q"),
                 ("dlq", "retry", "p", "t", "--yes"),
                 ("queue", "configure", "q")):
        ctl = stub(answer(500, {"error": "pool"}), answer(200, {}))
        ctl.fails(SERVER, *args)
        assert len(ctl.seen) == 1, args


def test_429_is_waited_out(stub):
    busy = (429, {"Retry-After": "0"}, "{}")
    ctl = stub(busy, busy, answer(201, [{"status": "queued"}]))
    assert ctl.run("push", "q", "--data", "1") == \
        "queued=1 duplicate=0 failed=0\n"
    assert len(ctl.seen) == 3
    ctl = stub(busy)
    ctl.fails(SERVER, "queue", "list")
    assert len(ctl.seen) == 11
    ctl = stub(busy, answer(200, {}))
    ctl.fails(SERVER, "dlq", "retry", "p", "t", "--yes")
    assert len(ctl.seen) == 1


def test_a_full_queue_is_not_waited_for(stub):
    ctl = stub(answer(429, {"error": {"code": "queue_full", "message": "Full."
                                      }}, **{"Retry-After": "1"}))
    url = ctl.env["QUEEN_SERVER"]
    for args in (("job", "push", "t", "[]"), ("stream", "append", "q", "t",
                                              "1")):
        assert ctl.fails(SERVER, *args, QUEEN_OJS_URL=url) == \
            "queenctl: Full. (HTTP 429)\n"
    assert len(ctl.seen) == 2


def test_answers_that_are_not_json(stub):
    ctl = stub((200, {}, "<html>"))
    assert "is not JSON" in ctl.fails(SERVER, "queue", "list")
    ctl = stub((502, {}, "<html>\x1b[31m"))
    assert ctl.fails(SERVER, "queue", "delete", "q", "--yes") == \
        "queenctl: the server refused (HTTP 502)\n"
    ctl = stub(answer(400, {"error": "a\x1b[31m\nb"}))
    assert ctl.fails(SERVER, "queue", "describe", "q") == \
        "queenctl: a [31m b (HTTP 400)\n"


def test_ping_tells_ill_health(stub):
    ctl = stub(answer(503, {"status": "unhealthy",
                            "database": "disconnected", "version": "1"}))
    out = json.loads(ctl.run("ping", code=SERVER))
    assert (out["status"], out["database"]) == ("unhealthy", "disconnected")


def test_dlq_retry_outcomes(stub):
    retry = ("dlq", "retry", "p", "t", "--yes")
    ctl = stub(answer(200, {"success": False, "result": "duplicate",
                            "dlqRowRemoved": False,
                            "replayedAs": {"offset": 41}}))
    assert "at offset 41; nothing was written" in ctl.fails(SERVER, *retry)
    ctl = stub(answer(500, {"dlqRowRemoved": None, "error": "x"}))
    assert "the outcome is unknown" in ctl.fails(SERVER, *retry)
    ctl = stub(answer(503, {"result": "maintenance", "error": "x"}))
    assert "stopped for maintenance" in ctl.fails(SERVER, *retry)


def test_a_proxy_of_the_environment_is_no_detour_to_loopback(ctl):
    ctl.run("ping", http_proxy="http://127.0.0.1:1",
            ALL_PROXY="http://127.0.0.1:1")

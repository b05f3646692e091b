# SPDX-License-Identifier: Apache-2.0
"""Rate limits over HTTP: what a fetch gives, and what it leaves available."""
import time

from queenlib import wait_until


def limited(ojs, limit, n=1, queue="q", **more):
    return [ojs.push_job(options={"queue": queue, "rate_limit": limit},
                         **more)["id"] for _ in range(n)]


def ids(jobs):
    return [j["id"] for j in jobs]


def test_max_per_second(ojs):
    first, second = limited(ojs, {"max_per_second": 1}, 2)
    start = time.monotonic()
    assert ids(ojs.fetch("q", count=5)) == [first]
    assert ojs.fetch("q", count=5) == []
    assert time.monotonic() - start < 0.9, "empty at once"
    assert ojs.job(second)["state"] == "available"
    # others of the queue pass, and other queues
    free = ojs.push_job(options={"queue": "q"})["id"]
    other = limited(ojs, {"max_per_second": 1}, queue="q2")
    assert ids(ojs.fetch("q", "q2", count=5)) == [free] + other
    found = wait_until(lambda: ojs.fetch("q", count=5), every_s=0.05)
    assert ids(found) == [second]
    assert time.monotonic() - start >= 1
    # it counts what was fetched, whatever became of it
    third = limited(ojs, {"max_per_second": 1})
    ojs.ack(first)
    ojs.ack(second)
    assert ojs.fetch("q") == []
    # who waits gets it when its time has come
    assert ids(ojs.fetch("q", wait_ms=5000)) == third


def test_rate_of_a_period_and_throttle(ojs):
    made = limited(ojs, {"rate": {"limit": 3, "period": "PT1H"}}, 5)
    assert ids(ojs.fetch("q", count=2)) == made[:2]
    assert ids(ojs.fetch("q", count=9)) == made[2:3]
    assert ojs.fetch("q") == []
    # as many, but one by one
    made = limited(ojs, {"throttle": {"limit": 2, "period": "PT1S"}}, 2, "t")
    start = time.monotonic()
    assert ids(ojs.fetch("t", count=2)) == made[:1]
    found = wait_until(lambda: ojs.fetch("t", count=2), every_s=0.02)
    assert ids(found) == made[1:] and time.monotonic() - start >= 0.5


def test_concurrency_and_keys(ojs):
    a = limited(ojs, {"key": "a", "concurrency": 2}, 3)
    b = limited(ojs, {"key": "b", "concurrency": 1}, 2)
    got = ids(ojs.fetch("q", count=9))
    assert sorted(got) == sorted(a[:2] + b[:1])
    assert ojs.fetch("q", count=9) == []
    # each end makes room for one of the same key
    ojs.ack(a[0])
    assert ids(ojs.fetch("q", count=9)) == a[2:]
    ojs.nack(b[0], {"code": "DISCARD"})
    assert ids(ojs.fetch("q", count=9)) == b[1:]
    ojs.ask("DELETE", "/jobs/" + b[1])
    b = limited(ojs, {"key": "b", "concurrency": 1})
    assert ids(ojs.fetch("q", count=9)) == b


def test_bad_limits(ojs):
    for limit, field in (({}, "rate_limit"), (5, "rate_limit"),
                         ({"max_per_second": 0}, "max_per_second"),
                         ({"key": "", "concurrency": 1}, "key"),
                         ({"concurrency": -1}, "concurrency"),
                         ({"rate": {"limit": 1}}, "rate"),
                         ({"throttle": 1}, "throttle"),
                         ({"concurrency": 1, "on_limit": "drop"}, "on_limit")):
        error = ojs.refused("POST", "/jobs", {
            "type": "a", "args": [], "options": {"rate_limit": limit}},
            400, "invalid_request")
        assert error["details"] == {"field": field}
        assert field in error["message"]

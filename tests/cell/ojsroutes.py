# SPDX-License-Identifier: Apache-2.0
"""
The whole route table of queen-ojs as requests: what each asks by the names of
a Names.  A new route is missing here until somebody has said what it asks.
"""
import json
import os
import re

import queenlib
from ojskit import MEDIA
from queenlib import wait_until

API = "/ojs/v1"
SECRET = "secret-of-a"
RETRYABLE = {"rate_limited", "queue_full", "backend_error"}


def table():
    """(method, pattern, level) as served."""
    with open(os.path.join(queenlib.ROOT, "bin/queen-ojs/route.c")) as f:
        src = f.read()
    names = dict(re.findall(r"#define (\w+) (.*)", src))

    def text(expr):
        return "".join(text(names[w]) if w in names else w.strip('"')
                       for w in expr.split())

    src = src[src.index("route_table[] = {"):]
    src = src[:src.index("};")]
    found = [(m, text(expr), level.lower()) for m, expr, level in re.findall(
        r"\{ HSRV_(\w+), ([^}]*?),\s*\w+,\s*GATE_(\w+) \}", src)]
    assert len(found) == src.count("HSRV_") > 40
    return found


def problem(reply, status, code, **details):
    """An error in the form of the binding; the error itself."""
    assert reply.status == status, reply
    assert reply.headers["Content-Type"] == MEDIA, reply
    assert reply.headers["OJS-Version"] == "1.0", reply
    body = reply.body if isinstance(reply.body, dict) \
        else json.loads(reply.body)
    assert list(body) == ["error"], body
    error = body["error"]
    must = {"code", "message", "retryable", "hint", "docs_url", "request_id"}
    assert must <= set(error) <= must | {"details", "type"}, error
    assert error["code"] == code, error
    assert error["retryable"] is (code in RETRYABLE), error
    assert error["request_id"] == reply.headers["X-Request-Id"], error
    assert error["docs_url"] == "https://openjobspec.org/errors/" + code
    assert error["message"] and error["hint"], error
    for name, value in details.items():
        assert error["details"][name] == value, error
    return error


class Names:
    """What a request may name: what settle made, or nothing of that kind;
    values are of the same length, so that answers can be compared."""

    def __init__(self, real=True):
        end = "1" if real else "2"
        self.queue, self.worker = "queue-a" + end, "worker-a" + end
        self.consumer, self.member = "consumer-a" + end, "member-a" + end
        self.group, self.cron = "group-a" + end, "cron-a" + end

    def like(self, other):
        """Ids of this cell that nobody has."""
        for name in ("job", "pending", "active", "dead", "flow", "message"):
            text = getattr(other, name)
            setattr(self, name, text[:-6] + "fffffe")
        self.batch, self.dlq = 900000 + other.batch, 900000 + other.dlq
        return self

    def words(self):
        return vars(self).items()


def job(n, **more):
    return {"type": "test.job", "args": [n.queue],
            "options": {"queue": n.queue, **more}}


def flow(n):
    step = {"type": "test.step", "args": [n.queue],
            "options": {"queue": n.queue}}
    return {"type": "group", "name": n.queue, "jobs": [step, step]}


def cron(n):
    return {"name": n.cron, "expression": "0 0 1 1 *", "timezone": "UTC",
            "job_template": job(n)}


# (method, pattern) -> the path and the body of a request
ROUTES = {
    ("POST", "/jobs"): lambda n: ("/jobs", {**job(n), "id": n.job}),
    ("POST", "/jobs/batch"): lambda n: (
        "/jobs/batch", {"jobs": [job(n), job(n, priority=3)]}),
    ("GET", "/jobs/:id"): lambda n: ("/jobs/%s" % n.active, None),
    ("DELETE", "/jobs/:id"): lambda n: ("/jobs/%s" % n.active, None),
    ("POST", "/jobs/:id/activate"): lambda n: (
        "/jobs/%s/activate" % n.pending, None),
    ("POST", "/workers/fetch"): lambda n: (
        "/workers/fetch", {"queues": [n.queue], "count": 9,
                           "worker_id": n.worker}),
    ("POST", "/workers/ack"): lambda n: (
        "/workers/ack", {"job_id": n.active, "worker_id": n.worker}),
    ("POST", "/workers/nack"): lambda n: (
        "/workers/nack", {"job_id": n.active, "error": {"message": "no"}}),
    ("POST", "/workers/heartbeat"): lambda n: (
        "/workers/heartbeat", {"worker_id": n.worker,
                               "active_jobs": [n.active]}),
    ("GET", "/events"): lambda n: ("/events?queues=" + n.queue, None),
    ("GET", "/dead-letter"): lambda n: (
        "/dead-letter?queue=" + n.queue, None),
    ("GET", "/dead-letter/:id"): lambda n: ("/dead-letter/" + n.dead, None),
    ("DELETE", "/dead-letter/:id"): lambda n: (
        "/dead-letter/" + n.dead, None),
    ("POST", "/dead-letter/:id/retry"): lambda n: (
        "/dead-letter/%s/retry" % n.dead, None),

    ("GET", "/cron"): lambda n: ("/cron", None),
    ("POST", "/cron"): lambda n: ("/cron", cron(n)),
    ("GET", "/cron/:name"): lambda n: ("/cron/" + n.cron, None),
    ("DELETE", "/cron/:name"): lambda n: ("/cron/" + n.cron, None),
    ("GET", "/workflows"): lambda n: ("/workflows", None),
    ("POST", "/workflows"): lambda n: ("/workflows", flow(n)),
    ("GET", "/workflows/:id"): lambda n: ("/workflows/" + n.flow, None),
    ("DELETE", "/workflows/:id"): lambda n: ("/workflows/" + n.flow, None),

    ("GET", "/queues"): lambda n: ("/queues", None),
    ("POST", "/queues"): lambda n: ("/queues", {"name": n.queue}),
    ("GET", "/queues/:queue/stats"): lambda n: (
        "/queues/%s/stats" % n.queue, None),
    ("POST", "/queues/:queue/pause"): lambda n: (
        "/queues/%s/pause" % n.queue, None),
    ("POST", "/queues/:queue/resume"): lambda n: (
        "/queues/%s/resume" % n.queue, None),
    ("GET", "/queues/:queue/config"): lambda n: (
        "/queues/%s/config" % n.queue, None),
    ("POST", "/queues/:queue/config"): lambda n: (
        "/queues/%s/config" % n.queue, {"max_retries": 7}),

    ("GET", "/queues/:queue/consumers"): lambda n: (
        "/queues/%s/consumers" % n.queue, None),
    ("GET", "/queues/:queue/batches/:id"): lambda n: (
        "/queues/%s/batches/%d?payload=true" % (n.queue, n.batch), None),
    ("GET", "/queues/:queue/info"): lambda n: (
        "/queues/%s/info" % n.queue, None),
    ("GET", "/queues/:queue/dlq"): lambda n: (
        "/queues/%s/dlq" % n.queue, None),
    ("POST", "/queues/:queue/consumers/:consumer/members/:member/touch"):
        lambda n: ("/queues/%s/consumers/%s/members/%s/touch" % (
            n.queue, n.group, n.member), None),
    ("POST", "/streams/ack"): lambda n: (
        "/streams/ack", {"queue": n.queue, "batch_id": n.batch}),
    ("POST", "/streams/nack"): lambda n: (
        "/streams/nack", {"queue": n.queue, "batch_id": n.batch,
                          "message_id": n.message}),
    ("POST", "/queues/:queue/dlq/:id/replay"): lambda n: (
        "/queues/%s/dlq/%d/replay" % (n.queue, n.dlq), None),
    ("POST", "/queues/:queue/dlq/replay"): lambda n: (
        "/queues/%s/dlq/replay" % n.queue, None),
    ("DELETE", "/queues/:queue/dlq"): lambda n: (
        "/queues/%s/dlq?older_than=1s" % n.queue, None),
    ("POST", "/queues/:queue/consumers"): lambda n: (
        "/queues/%s/consumers" % n.queue, {"consumer": n.consumer,
                                           "from_tick": 0}),
    ("POST", "/queues/:queue/messages"): lambda n: (
        "/queues/%s/messages" % n.queue, {"type": "t", "payload": 1}),
    ("POST", "/queues/:queue/messages/batch"): lambda n: (
        "/queues/%s/messages/batch" % n.queue,
        {"messages": [{"type": "t", "payload": 2}]}),
    ("POST", "/queues/:queue/receive"): lambda n: (
        "/queues/%s/receive" % n.queue, {"consumer": n.consumer}),
    ("DELETE", "/queues/:queue/consumers/:consumer"): lambda n: (
        "/queues/%s/consumers/%s" % (n.queue, n.consumer), None),
    ("DELETE", "/queues/:queue"): lambda n: ("/queues/" + n.queue, None),
    ("POST", "/admin/reset"): lambda n: ("/admin/reset", None),
}
PUBLIC = ["/ojs/manifest", API + "/health", "/healthz", "/metrics"]


def settle(ojs, headers=None):
    """One of everything: a job available, one active, one pending, one dead,
    a cron, a workflow; a stream with two consumers, a batch and a dead
    letter.  The names of it all."""
    n = Names()

    def ask(method, path, body=None):
        reply = ojs.request(method, API + path, body, headers=headers)
        assert reply.status in (200, 201), (path, reply)
        return reply.body

    def push(**more):
        return ask("POST", "/jobs", {
            "type": "test.job", "args": [SECRET],
            "options": {"queue": n.queue, **more}})["job"]["id"]

    def fetch():
        return ask("POST", "/workers/fetch", {
            "queues": [n.queue], "worker_id": n.worker})["jobs"][0]["id"]

    n.dead = push(retry={"max_attempts": 1, "on_exhaustion": "dead_letter"})
    assert fetch() == n.dead
    ask("POST", "/workers/nack", {"job_id": n.dead,
                                  "error": {"message": SECRET}})
    n.active = push()
    assert fetch() == n.active
    n.job, n.pending = push(), push(pending=True)
    ask("POST", "/cron", {**cron(n), "job_template": {
        "type": "test.job", "args": [SECRET]}})
    n.flow = ask("POST", "/workflows", {
        **flow(n), "name": SECRET})["workflow"]["id"]

    at = "/queues/" + n.queue
    ask("POST", at + "/config", {"max_retries": 0})
    for consumer in (n.consumer, n.group):
        ask("POST", at + "/consumers", {"consumer": consumer})
    sent = ask("POST", at + "/messages/batch", {"messages": [
        {"type": "t", "payload": SECRET + str(i)} for i in range(2)]})
    first, second = sent["messages"]
    got = ask("POST", at + "/receive", {"consumer": n.consumer})
    n.batch, n.message = got["batch"]["id"], second["id"]
    assert ask("POST", "/streams/nack", {
        "queue": n.queue, "batch_id": n.batch, "message_id": first["id"],
        "reason": SECRET})["outcome"] == "dead_letter"
    n.dlq = ask("GET", at + "/dlq")["dead_letters"][0]["id"]
    ask("POST", at + "/receive", {"consumer": n.group, "member": n.member})
    # events are told a little later; these are the last
    wait_until(lambda: len(ask("GET", "/events?job_types=test.step")[
        "events"]) == 2)
    return n

# SPDX-License-Identifier: Apache-2.0
"""
Processes of queen-ojs, and short words for their requests.

new_ojs  new_ojs(**env) -> an Ojs on db, not yet started
ojs      one that serves, with the test switch on
"""
import json
import re
import subprocess
import urllib.parse

import pytest

import queenlib
from queenlib import binary, tail, wait_until

MEDIA = "application/openjobspec+json"


def quoted(name):
    return urllib.parse.quote(str(name), safe="")


class Ojs(queenlib.Cell):
    """One queen-ojs on a database."""

    def env(self):
        env = super().env()
        for name in "PORT", "DB_POOL_SIZE":
            env.pop(name)
        return {"QUEEN_OJS_PORT": str(self.port.number),
                "QUEEN_OJS_POOL_SIZE": "4", **env}

    def start(self, wait=True):
        assert self.proc is None or self.proc.poll() is not None
        with open(self.log, "ab") as log:
            self.proc = subprocess.Popen(
                [binary("queen-ojs")], stdin=subprocess.DEVNULL, stdout=log,
                stderr=log, env=self.env(), cwd=self.folder)
        self.expected_end = not wait
        if wait:
            wait_until(self.healthy, what="health of %s:\n%s"
                       % (self.name, tail(self.log)))
        return self

    def healthy(self):
        if self.proc.poll() is not None:
            self.expected_end = True
            raise AssertionError("%s ended with %d at boot:\n%s" % (
                self.name, self.proc.returncode, tail(self.log)))
        try:
            return self.get("/ojs/manifest", timeout=5).status == 200
        except OSError:
            return False

    def request(self, method, path, body=None, headers=None, **kw):
        """As of a cell; bodies of the binding are decoded."""
        reply = super().request(method, path, body, headers, **kw)
        kind = reply.headers.get("Content-Type", "")
        if reply.body and kind == MEDIA:
            return reply._replace(body=json.loads(reply.body))
        return reply

    def metrics(self):
        """{name: value} of /metrics."""
        text = self.get("/metrics").body.decode()
        return {m[1]: float(m[2]) for m in re.finditer(
            r"^([a-z]\S*) (\S+)$", text, re.M)}

    # one word per route: the body of the answer, its status checked

    def ask(self, method, path, body=None, status=200, **kw):
        reply = self.request(method, "/ojs/v1" + path, body, **kw)
        assert reply.status == status, reply
        return reply.body

    def refused(self, method, path, body, status, code, **kw):
        """The error of an answer that has to be one."""
        error = self.ask(method, path, body, status, **kw)["error"]
        assert error["code"] == code, error
        return error

    def push_job(self, type="test.job", args=(), status=201, **more):
        """more: attributes of the envelope, as they are."""
        return self.ask("POST", "/jobs", {"type": type, "args": list(args),
                                          **more}, status)["job"]

    def fetch(self, *queues, count=1, **more):
        body = {"queues": list(queues) or ["default"], "count": count, **more}
        return self.ask("POST", "/workers/fetch", body)["jobs"]

    def ack(self, job_id, status=200, **more):
        return self.ask("POST", "/workers/ack", {"job_id": job_id, **more},
                        status)

    def nack(self, job_id, error=None, status=200, **more):
        body = {"job_id": job_id, **more}
        if error is not None:
            body["error"] = error
        return self.ask("POST", "/workers/nack", body, status)

    def job(self, job_id, status=200):
        body = self.ask("GET", "/jobs/" + quoted(job_id), status=status)
        return body["job"] if status == 200 else body["error"]

    def append(self, queue, *messages, status=201):
        """Messages as the batch route takes them; what it answers."""
        return self.ask("POST", "/queues/%s/messages/batch" % quoted(queue),
                        {"messages": list(messages)}, status)

    def subscribe(self, queue, consumer, status=201, **more):
        return self.ask("POST", "/queues/%s/consumers" % quoted(queue),
                        {"consumer": consumer, **more}, status)

    def receive(self, queue, consumer, status=200, **more):
        return self.ask("POST", "/queues/%s/receive" % quoted(queue),
                        {"consumer": consumer, **more}, status)

    def stream_ack(self, queue, batch_id, status=200, **more):
        return self.ask("POST", "/streams/ack",
                        {"queue": queue, "batch_id": batch_id, **more}, status)


@pytest.fixture
def new_ojs(db, folder, keep_log):
    made = []

    def make(_db=None, **env):
        one = Ojs(_db or db, folder, env, name="ojs%d" % len(made))
        made.append(one)
        keep_log(one.name, one.log)
        return one

    yield make
    faults = []
    for one in made:
        try:
            one.close()
        except AssertionError as e:
            faults.append(str(e))
    assert not faults, "\n".join(faults)


@pytest.fixture
def ojs(request, new_ojs):
    env = {"QUEEN_OJS_TEST": "true"}
    for mark in request.node.iter_markers("cellenv"):
        env.update(mark.kwargs)
    return new_ojs(**env).start()

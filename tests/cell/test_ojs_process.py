# SPDX-License-Identifier: Apache-2.0
"""
queen-ojs as a process: boot and exit codes, manifest, health, metrics, the
database away and back, due work shared by two of them, and the drain.
"""
import select
import signal
import socket
import struct
import subprocess
import time

import pytest

from loadkit import Workers
from ojskit import MEDIA
from proxykit import NO_MESSAGE, Proxy, Side
from queenlib import Port, binary, wait_until


def run(*args, **env):
    return subprocess.run([binary("queen-ojs"), *args], env=env,
                          capture_output=True, text=True, timeout=30)


# ---- boot ----

def test_the_command_line():
    out = run("--version")
    assert (out.returncode, out.stdout.split()[0]) == (0, "queen-ojs")
    out = run("--help")
    assert out.returncode == 0 and "QUEEN_OJS_PORT" in out.stdout
    out = run("--port", "7")
    assert (out.returncode, out.stdout) == (2, "")
    assert "--help" in out.stderr
    out = run("--check-config", JWT_SECRET="s3cr3t")
    assert out.returncode == 0 and "s3cr3t" not in out.stdout
    assert "QUEEN_OJS_PORT=6634\n" in out.stdout


@pytest.mark.parametrize("name, value", [
    ("QUEEN_OJS_PORT", "many"), ("QUEEN_OJS_PORT", "-1"),
    ("QUEEN_OJS_MAX_ENVELOPE_BYTES", "1048575"),
    ("QUEEN_OJS_SWEEP_MS", "0"), ("QUEEN_OJS_READ_ONLY", "perhaps"),
    ("JWT_ENABLED", "true"), ("QUEEN_TENANCY_HEADER", "true")])
def test_a_bad_setting_is_exit_2_and_names_it(name, value):
    out = run("--check-config", **{name: value})
    assert out.returncode == 2
    assert len(out.stderr.splitlines()) == 1
    assert {"JWT_ENABLED": "JWT_SECRET"}.get(name, name) in out.stderr


def test_a_taken_port_is_exit_1_and_no_database_is_exit_3(new_ojs):
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        s.listen()
        one = new_ojs(QUEEN_OJS_PORT=s.getsockname()[1])
        # two processes may share a port, a stranger's is taken
        one.start(wait=False)
        assert one.wait_exit() == 1
    port = Port()
    one = new_ojs(PG_PORT=port.number)
    one.start(wait=False)
    assert one.wait_exit() == 3
    port.give()
    errors = [x for x in one.log_text().splitlines() if " ERROR " in x]
    assert len(errors) == 1 and str(port.number) in errors[0], errors


# ---- what it says of itself ----

def test_the_manifest(ojs):
    reply = ojs.get("/ojs/manifest")
    assert reply.status == 200
    assert reply.headers["Content-Type"] == MEDIA
    got = reply.body
    assert got["specversion"] == got["ojs_version"] == "1.0"
    assert got["implementation"]["name"] == "queen-ojs"
    assert got["implementation"]["language"] == "c"
    assert got["conformance_level"] == 4
    assert got["protocols"] == ["http"]
    off = [k for k, v in got["capabilities"].items() if not v]
    assert off == ["schema_validation"] and len(got["capabilities"]) == 11
    assert got["limits"] == {"max_envelope_bytes": 1048576,
                             "max_meta_bytes": 65536, "max_batch": 10000}
    assert got["endpoints"] == {"base_url": "/ojs/v1",
                                "manifest": "/ojs/manifest",
                                "health": "/ojs/v1/health"}


def test_health_and_metrics(ojs):
    got = ojs.ask("GET", "/health")
    assert got["status"] == "ok" and got["version"] == "1.0"
    assert got["uptime_seconds"] >= 0
    assert got["backend"]["type"] == "postgres"
    assert got["backend"]["status"] == "connected"
    assert 0 < got["backend"]["latency_ms"] < 5000
    assert ojs.get("/healthz").status == 200
    ojs.push_job(queue="m")
    ojs.push_job(queue="m", scheduled_at="+PT1H")
    ojs.fetch("m")
    ojs.append("m", {"type": "x", "payload": 1})
    got = ojs.metrics()
    assert got["queen_ojs_jobs_active"] == 1
    assert got["queen_ojs_jobs_available"] == 0
    assert got["queen_ojs_jobs_waiting"] == 1
    assert got["queen_ojs_queues"] == got["queen_ojs_streams"] == 1
    assert got["queen_ojs_db_up"] == 4
    assert got["queen_ojs_requests_total"] >= 6
    wait_until(lambda: ojs.metrics()["queen_ojs_sweeps_total"] > 2)
    assert ojs.metrics()["queen_ojs_sweep_failures_total"] == 0


def test_reset_is_for_tests_alone(new_ojs):
    plain = new_ojs().start()
    plain.push_job(queue="r")
    plain.refused("POST", "/admin/reset", None, 404, "not_found")
    assert len(plain.fetch("r")) == 1
    test = new_ojs(QUEEN_OJS_TEST="true").start()
    job = test.push_job(queue="r")
    test.append("s", {"type": "x", "payload": 1})
    assert test.ask("POST", "/admin/reset") == {"reset": True}
    assert test.fetch("r") == []
    test.job(job["id"], 404)
    assert test.ask("GET", "/queues")["queues"] == []
    # and everything is as new
    test.push_job(queue="r")
    assert len(test.fetch("r")) == 1


# ---- the database away ----

def test_an_outage_is_503_and_passes(ojs, pg):
    job = ojs.push_job(queue="a")
    parked = []
    with Workers() as w:
        w.start(lambda: parked.append(ojs.ask(
            "POST", "/workers/fetch", {"queues": ["b"], "wait_ms": 3000},
            status=200)))
        wait_until(lambda: ojs.metrics()["queen_ojs_parked"] == 1)
        pg.stop("immediate")
        wait_until(lambda: ojs.request("GET", "/ojs/v1/health").status == 503)
        got = ojs.request("GET", "/ojs/v1/health").body
        assert got["status"] == "degraded"
        assert got["backend"]["status"] == "disconnected"
        assert got["backend"]["error"]
        for method, path, body in (
                ("POST", "/jobs", {"type": "a.b", "args": []}),
                ("GET", "/jobs/" + job["id"], None),
                ("POST", "/workers/fetch", {"queues": ["a"]}),
                ("POST", "/workers/ack", {"job_id": job["id"]}),
                ("GET", "/queues", None),
                ("POST", "/queues/s/messages", {"type": "x", "payload": 1})):
            reply = ojs.request(method, "/ojs/v1" + path, body)
            assert reply.status == 503, (path, reply)
            error = reply.body["error"]
            assert error["code"] == "backend_error" and error["retryable"]
            assert reply.headers["Retry-After"] == "1"
        assert ojs.get("/metrics").status == 200
        pg.start()
        wait_until(ojs.healthy)
        w.join(30)
    assert parked == [{"jobs": []}]
    assert [j["id"] for j in ojs.fetch("a")] == [job["id"]]


class Mute(Proxy):
    """A pooler that gives its connections to whoever asks: no NOTIFY."""

    def _pipe(self, one, two):
        front, back = Side(False), Side(True)
        try:
            while not self.stop.is_set():
                for s in select.select([one, two], [], [], 0.1)[0]:
                    data = s.recv(1 << 20)
                    if not data:
                        return
                    side = front if s is one else back
                    side.data += data
                    while (m := side.next()) is not None:
                        if s is one and not side.typed:
                            code = struct.unpack_from("!I", m, 4)[0]
                            side.typed = code not in NO_MESSAGE
                            back.bytes_due += code in NO_MESSAGE
                        if s is one:
                            two.sendall(m)
                        elif m[:1] != b"A":
                            one.sendall(m)
        except OSError:
            pass
        finally:
            one.close()
            two.close()


def test_who_hears_no_notify_says_so_and_looks(new_ojs, pg):
    mute = Mute(pg.port.number)
    try:
        deaf = new_ojs(PG_PORT=mute.port.number).start()
        other = new_ojs().start()
        wait_until(lambda: deaf.metrics()["queen_ojs_hints_up"] == 0)
        assert other.metrics()["queen_ojs_hints_up"] == 1
        assert "session-mode" in deaf.log_text()
        other.push_job(queue="q")
        other.fetch("q")
        with Workers() as w:
            got = []
            w.start(lambda: got.extend(deaf.fetch("q", wait_ms=5000)))
            wait_until(lambda: deaf.metrics()["queen_ojs_parked"] == 1)
            start = time.monotonic()
            job = other.push_job(queue="q")
            w.join(10)
        assert [j["id"] for j in got] == [job["id"]]
        assert time.monotonic() - start < 3
    finally:
        mute.close()


# ---- due work ----

def test_due_work_is_done_by_any_process(new_ojs, db):
    """Promotion, lease, timeout, expiry: by whoever sweeps first."""
    two = [new_ojs(QUEEN_OJS_SWEEP_MS=50).start() for _ in range(2)]
    still = new_ojs(QUEEN_OJS_SWEEPER="false").start()
    late = still.push_job(queue="late", scheduled_at="+PT0.2S")
    held = still.push_job(queue="held")
    slow = still.push_job(queue="slow", timeout_ms=200, retry={
        "max_attempts": 2, "initial_interval": "PT30S", "jitter": False})
    gone = still.push_job(queue="gone", expires_at="+PT0.2S")
    assert late["state"] == "scheduled"
    still.fetch("held", visibility_timeout_ms=200)
    still.fetch("slow")
    wait_until(lambda: still.job(late["id"])["state"] == "available")
    wait_until(lambda: still.job(held["id"])["state"] == "available")
    assert still.job(held["id"])["error"]["type"] == "visibility_timeout"
    wait_until(lambda: still.job(slow["id"])["state"] == "retryable")
    got = still.job(slow["id"])
    assert got["error"]["type"] == "timeout"
    assert got["error"]["details"]["timeout_kind"] == "execution"
    assert got["retry_delay_ms"] == 30000
    wait_until(lambda: still.job(gone["id"])["state"] == "discarded")
    assert "completed_at" not in still.job(gone["id"])
    done = sum(o.metrics()["queen_ojs_sweep_jobs_total"] for o in two)
    assert done >= 4
    assert still.metrics()["queen_ojs_sweep_jobs_total"] == 0
    assert all(o.metrics()["queen_ojs_sweep_failures_total"] == 0
               for o in two)


def test_a_promotion_wakes_those_who_wait(ojs):
    with Workers() as w:
        got = []
        w.start(lambda: got.extend(ojs.fetch("w", wait_ms=5000)))
        wait_until(lambda: ojs.metrics()["queen_ojs_parked"] == 1)
        start = time.monotonic()
        ojs.push_job(queue="w", scheduled_at="+PT0.3S")
        w.join(10)
    assert len(got) == 1
    assert 0.25 < time.monotonic() - start < 2


# ---- the end ----

def test_a_drain_answers_what_waits(new_ojs):
    one = new_ojs().start()
    one.append("s", {"type": "x", "payload": 1})
    one.subscribe("s", "c", from_tick="now")
    got = []
    with Workers() as w:
        w.start(lambda: got.append(one.fetch("d", wait_ms=5000)))
        w.start(lambda: got.append(one.receive("s", "c", wait_ms=5000)))
        wait_until(lambda: one.metrics()["queen_ojs_parked"] == 2)
        start = time.monotonic()
        one.signal(signal.SIGHUP)
        assert one.term() == 0
        w.join(10)
    assert time.monotonic() - start < 4
    assert sorted(got, key=str) == [[], {"batch": None, "messages": []}]

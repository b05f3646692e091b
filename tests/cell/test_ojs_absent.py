# SPDX-License-Identifier: Apache-2.0
"""
A consumer that was away for long: with the default `max` it gets all that came
meanwhile and is never refused, also past the age of retention, and also on
another server after a restore.
"""
import subprocess

import pytest

from queenlib import client_bin, wait_until

Q = "/queues/q"
S = "queen_ojs_1."
APPENDS = 300
# a while ago, in any case more than retention is
PAST = "interval '30 days'"


def append(ojs, first, size):
    ojs.append("q", *({"type": "t", "payload": n}
                      for n in range(first, first + size)))


def drain(ojs, consumer, **more):
    """All that is there, acked: the payloads, and the sizes of batches."""
    seen, sizes = [], []
    while True:
        got = ojs.receive("q", consumer, timeout=120, **more)
        if not got["batch"]:
            return seen, sizes
        seen += [m["payload"] for m in got["messages"]]
        sizes.append(got["batch"]["size"])
        ojs.stream_ack("q", got["batch"]["id"])


def stream(ojs):
    return ojs.ask("GET", Q + "/info")["stream"]


def cared(db, done):
    """The log is due until done() says that its care brought it about."""
    def look():
        db.rows("update queen.ojs_stream_work set due_at = now()")
        return done()
    wait_until(look, every_s=0.05)


def rotate(db, done):
    db.rows("update queen.ojs_streams set segment_started_at = now() - "
            + PAST)
    cared(db, done)


def grow_old(ojs, db):
    """All that is stored is older than retention; due work sees it."""
    db.rows("update %sstream_ticks set created_at = created_at - %s"
            % (S, PAST))
    db.rows("update %sstream_events set created_at = created_at - %s"
            % (S, PAST))
    for segment in 1, 2:
        rotate(db, lambda n=segment: stream(ojs)["segment"] == n)
    db.rows("update %sstream_segments set sealed_at = sealed_at - %s"
            % (S, PAST))
    for name in "back", "small", "near":
        assert drain(ojs, name) == ([], [])
    # the next one to be emptied is needed by who is away
    rotate(db, lambda: db.value("select pinned_at from queen.ojs_streams"))
    assert stream(ojs)["segment"] == 2
    assert stream(ojs)["segments"][0]["pinned_by"] == ["away"]


def restored(db, copy):
    """The database on another server."""
    dump = subprocess.run(
        [client_bin("pg_dump"), "-Fc", "-Z0", "-d", db.conninfo()],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=True)
    subprocess.run(
        [client_bin("pg_restore"), "-1", "-d", copy.conninfo()],
        input=dump.stdout, check=True)
    return copy


@pytest.mark.parametrize("total", [
    pytest.param(30000, id="short"),
    pytest.param(300000, id="long", marks=pytest.mark.soak)])
def test_absent(new_ojs, db, far, total):
    ojs = new_ojs(QUEEN_OJS_SWEEP_MS="20").start()
    size = total // APPENDS
    for name in "away", "back", "small", "near":
        ojs.subscribe("q", name)
    for n in range(APPENDS):
        append(ojs, n * size, size)
        # half of the time somebody is there and makes ticks, then nobody
        if n < APPENDS // 2:
            drain(ojs, "near")
    everything = list(range(total))
    seen, sizes = drain(ojs, "back")
    assert seen == everything
    assert max(sizes) <= 100000 and len(sizes) >= total / 100000
    seen, sizes = drain(ojs, "small", max=3000)
    assert seen == everything
    drain(ojs, "near")
    ticks = stream(ojs)["ticks"]
    grow_old(ojs, db)
    # old ticks are thinned, but those 500 events apart stay
    if size <= 250:
        cared(db, lambda: stream(ojs)["ticks"] < ticks / 2)

    other = new_ojs(restored(db, far), QUEEN_OJS_SWEEPER="false").start()
    if far.rows("select from queen.stream_check_v1()"):
        error = other.refused("POST", Q + "/receive", {"consumer": "away"},
                              503, "backend_error")
        assert "rebase" in error["message"]
    far.rows("select queen.stream_rebase_v1(1)")
    append(other, total, 2)
    seen, sizes = drain(other, "away")
    assert seen == everything + [total, total + 1]

    seen, sizes = drain(ojs, "away", max=3000)
    assert seen == everything
    assert max(sizes) <= 3000

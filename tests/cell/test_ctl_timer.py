# SPDX-License-Identifier: Apache-2.0
"""queenctl timer: exit codes, columns, lines."""
import re

import pytest

from ctlkit import AUTH, NOTHING, SERVER, USER
from queenlib import wait_until

KEY = ("reminders", "trial:acme/7")


def schedule(ctl, *args, key=KEY, **kw):
    return ctl.run("timer", "schedule", *key, *args, **kw)


def test_schedule_peek_cancel(ctl):
    assert re.match(r"scheduled reminders/trial:acme/7 at=2\S+Z txn=t-1\n\Z",
                    schedule(ctl, '{"day":7}', "--delay", "7d", "--txn",
                             "t-1", "--partition", "acme"))
    seen = ctl.json("timer", "peek", *KEY)
    assert (seen["timerKey"], seen["txn"], seen["partition"],
            seen["attempts"]) == (KEY[1], "t-1", "acme", 0)
    assert ctl.run("timer", "peek", *KEY, "--payload") == '{"day":7}\n'
    assert schedule(ctl, "--delay", "1h", stdin="[1]").startswith(
        "rescheduled reminders/trial:acme/7 ")
    assert ctl.run("timer", "peek", *KEY, "--payload") == "[1]\n"
    assert ctl.run("timer", "cancel", *KEY) == \
        "cancelled reminders/trial:acme/7\n"
    assert ctl.fails(NOTHING, "timer", "cancel", *KEY, "--txn", "t") == ""
    assert ctl.fails(NOTHING, "timer", "peek", *KEY) == ""


def test_wrong_use(ctl):
    assert "--delay" in ctl.fails(USER, "timer", "schedule", *KEY, "1")
    assert "not JSON" in ctl.fails(USER, "timer", "schedule", *KEY, "{",
                                   "--delay", "1s")
    assert "one payload" in ctl.fails(USER, "timer", "schedule", *KEY, "1",
                                      "--file", "x", "--delay", "1s")


def test_list_and_count(ctl):
    for key in ("a1", "a2", "b1"):
        schedule(ctl, "1", "--delay", "1h", "-q", key=("q", key))
    assert [t["timerKey"] for t in ctl.json("timer", "list", "q")] == \
        ["a1", "a2", "b1"]
    assert [t["timerKey"] for t in ctl.json(
        "timer", "list", "q", "--limit", "1", "--after", "a1")] == ["a2"]
    assert ctl.err == "there is more: --after 'a2'\n"
    assert ctl.run("timer", "count", "q", "a") == "2\n"
    assert ctl.json("timer", "count", "q", "c") == {"count": 0}
    assert ctl.run("timer", "list", "q", "-o", "table").splitlines()[0] \
        .split() == ["TIMER", "PARTITION", "DUE", "TX", "ATTEMPTS", "ERROR"]


def test_a_timer_becomes_a_message(ctl, cell):
    schedule(ctl, '{"x": 1.50}', "--delay", "0", "--txn", "t-1")
    found = wait_until(lambda: cell.pop("reminders"))
    assert [(m["transactionId"], m["data"]) for m in found] == \
        [("t-1", {"x": 1.5})]
    assert ctl.fails(NOTHING, "timer", "cancel", *KEY) == ""


def test_refusals_are_told(ctl, cell):
    beyond = schedule(ctl, "1", "--delay", "91d", code=AUTH)
    assert beyond == "" and ctl.err == (
        "queenctl: timer_horizon_exceeded: operation 0: delayMs is beyond"
        " the horizon (HTTP 403)\n")
    ctl.run("system", "kv-timers", "--timers-schedule=false", "--yes")
    assert schedule(ctl, "1", "--delay", "1h", code=SERVER) == ""
    assert "timers_disabled" in ctl.err
    assert ctl.fails(NOTHING, "timer", "cancel", *KEY) == ""
    seen = ctl.json("system", "kv-timers")
    assert (seen["timersScheduleEnabled"], seen["timersFireEnabled"]) == (
        False, True)
    ctl.run("system", "kv-timers", "--timers-schedule")
    assert schedule(ctl, "1", "--delay", "1h").startswith("scheduled ")


def test_a_queue_that_seals_needs_a_key(ctl):
    assert ctl.run("queue", "configure", "vault", "--encrypt") == \
        'configured "vault"\n'
    assert ctl.err == (
        "queenctl: this server has no QUEEN_ENCRYPTION_KEY: until it has,"
        " pushes to the queue fail\n")
    # the broker or, when it has not heard of the option, the database says so
    assert re.match("queenctl: timers_error: (encryption_required|operation "
                    r"0: the queue wants sealed payloads and there is no key)"
                    r" \(HTTP 500",
                    ctl.fails(SERVER, "timer", "schedule", "vault", "k", "1",
                              "--delay", "1h"))
    assert ctl.run("push", "vault", stdin="1\n2\n", code=SERVER) == \
        "queued=0 duplicate=0 failed=2\n"
    assert ctl.err == "queenctl: push failed: encryption_required\n"


@pytest.mark.cellenv(QUEEN_ENCRYPTION_KEY="ab" * 32)
def test_a_sealed_payload_is_not_peeked_at(ctl):
    ctl.run("queue", "configure", "vault", "--encrypt")
    assert ctl.err == ""
    ctl.run("timer", "schedule", "vault", "k", "1", "--delay", "1h")
    assert ctl.fails(SERVER, "timer", "peek", "vault", "k", "--payload") == \
        "queenctl: the payload is sealed until the timer fires\n"


@pytest.mark.cellenv(QUEEN_SWEEPER_MAX_ATTEMPTS=1)
def test_what_a_timer_became_is_not_retried(ctl, cell):
    cell.db.psql("-c", "alter table queen.segments add constraint none"
                 " check (false)")
    schedule(ctl, "1", "--delay", "0", "--txn", "t")
    row, = wait_until(lambda: ctl.json("dlq", "list"))
    assert (row["consumerGroup"], row["transactionId"]) == ("__timer__", "t")
    assert "is not replayed" in ctl.fails(
        SERVER, "dlq", "retry", "--id", row["id"], "--yes")
    assert "is not replayed" in ctl.fails(
        SERVER, "dlq", "retry", row["partitionId"], "t", "--yes")
    assert len(ctl.json("dlq", "list")) == 1

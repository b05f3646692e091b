# SPDX-License-Identifier: Apache-2.0
"""queenctl timer: exit codes, columns, lines."""
import re

from ctlkit import NOTHING, USER
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

# SPDX-License-Identifier: Apache-2.0
"""
What README, pages, --help and completion say of rows, timers, locks, tenants,
tokens and sealing is so.
"""
import os
import re
import subprocess

from queenlib import BIN
from test_docs import ctl_help, flags_of, listed, read, section

ROUTES = {"key": "/kv", "timer": "/timers", "authentication": "/auth",
          "tenancy": '"/tenant"', "transaction": "/transaction"}


def test_nothing_that_is_served_is_said_to_be_missing():
    src = read("bin", "queend", "route.c")
    for page in ("queen.7", "queend.8"):
        bugs = section(page, "BUGS")
        for word, path in ROUTES.items():
            assert path in src and word not in bugs, (page, word)
        assert "serves one, the default tenant" not in read("man", page)


def test_the_sweeper_is_said_to_do_all_it_does():
    text = read("man", "queend.8")
    text = text[text.index(".It Ev QUEEN_SWEEPER\n"):]
    item = text[:text.index("\n.El")]
    src = "".join(read("bin", "queend", name) for name in
                  ("kv_sweep.c", "timer_fire.c", "kvlimit_load.c"))
    assert src.count("conf->sweeper)") + src.count("!x->conf->sweeper") >= 3
    for word in ("dead rows", "usage", "timers"):
        assert word in item, word


def test_each_guarantee_has_its_section():
    text = read("man", "queen.7")
    for title in ("Key/value rows", "Timers", "Locks and fencing", "Tokens",
                  "Sealed payloads", "Transactions"):
        assert "\n.Ss %s\n" % title in text, title
    readme = read("README.md")
    for word in ("JWT_ENABLED", "encryptionEnabled", "tenant",
                 "queenctl kv", "queenctl timer", "queenctl lock"):
        assert word in readme, word


def test_examples_of_the_readme_run(cell, folder):
    """The indented commands, the nightly job replaced by an empty one."""
    text = read("README.md")
    text = text[text.index("## State, timers and locks"):]
    text = text[:text.index("\n## ", 3)]
    commands = re.findall(r"^    (queenctl .*)$", text, re.M)
    assert len(commands) == 3
    for command in commands:
        done = subprocess.run(
            ["sh", "-c", command.replace("/usr/local/bin/nightly", "true")],
            env={"PATH": BIN + ":" + os.environ["PATH"], "HOME": folder,
                 "QUEEN_SERVER": "http://127.0.0.1:%d" % cell.port.number},
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, timeout=60, check=False)
        assert done.returncode == 0, (command, done.stdout)
    assert cell.get("/api/v1/timers/reminders/acme-7").body["found"] is True


def completed(folder, *words):
    """What bash offers behind these words."""
    path = os.path.join(folder, "completion")
    with open(path, "wb") as f:
        f.write(subprocess.check_output(
            [os.path.join(BIN, "queenctl"), "completion", "bash"],
            env={"HOME": folder}, timeout=60))
    ask = ('. "$0"; COMP_WORDS=(queenctl "$@"); COMP_CWORD=$#; _queenctl;'
           ' printf "%s\\n" "${COMPREPLY[@]}"')
    return subprocess.check_output(["bash", "-c", ask, path, *words],
                                   timeout=60, text=True).split()


def test_completion_knows_every_command_and_flag(folder):
    groups = listed(ctl_help(), "groups")
    assert {"kv", "timer", "system"} <= set(groups)
    for group in groups:
        names = listed(ctl_help(group), "commands")
        assert set(names) <= set(completed(folder, group, "")), group
    for phrase in (("lock",), ("kv", "put"), ("kv", "incr"),
                   ("timer", "schedule"), ("timer", "list"),
                   ("system", "kv-timers")):
        flags = {"--" + f for f in flags_of(*phrase)}
        assert flags, phrase
        assert flags <= set(completed(folder, *phrase, "--")), phrase

# SPDX-License-Identifier: Apache-2.0
"""queenctl as a whole: every command, columns, formats, wrong use, help,
contexts, completion."""
import json
import os
import re
import shutil
import stat
import subprocess

import pytest

from ctlkit import NOTHING, USER, answer, table, three


def test_the_whole_surface(ctl):
    """Every command once, as the acceptance list goes."""
    ctl.run("ping")
    assert re.match(r"queenctl \S+ \(commit \S+, built \S+\)\n\Z",
                    ctl.run("version", "--short"))
    assert ctl.run("version").splitlines()[2] == "status: healthy"
    three(ctl)
    assert ctl.json("queue", "describe", "orders")["name"] == "orders"
    ctl.run("queue", "configure", "orders", "--lease-time", "30")
    assert ctl.json("queue", "stats")["queues"][0]["name"] == "orders"
    assert len(ctl.json("partition", "describe", "orders", "a")) == 2
    m = ctl.lines("pop", "orders", "-n", "1", "--cg", "g", "--from-mode",
                  "all")[0]
    where = (m["partitionId"], m["transactionId"])
    assert ctl.json("messages", "get", *where)["data"] == m["data"]
    assert ctl.json("messages", "traces", *where) == []
    assert ctl.json("traces", "by-message", *where) == []
    assert ctl.json("traces", "names") == []
    assert ctl.run("cg", "refresh-stats") == "refreshed\n"
    assert ctl.run("cg", "seek", "g", "orders", "--to", "now") == \
        "sought cg=g queue=orders to=now\n"
    assert list(ctl.json("cg", "describe", "g")) == ["orders"]
    assert ctl.json("lag")[0]["name"] == "g"
    assert ctl.json("lag", "--min-seconds", "3600") == []
    ctl.fails(NOTHING, "dlq", "drain", "--dry-run")
    assert ctl.json("namespace", "list")[0]["namespace"] == "orders"
    ctl.json("task", "list")
    assert ctl.json("status")[0]["name"] == "orders"
    assert ctl.json("status", "orders")["queue"] == "orders"
    assert ctl.json("maintenance", "get")["maintenanceMode"] is False
    assert ctl.json("maintenance", "get", "--pop")["popMaintenanceMode"] \
        is False
    assert "uptime" in ctl.json("metrics")
    assert "# TYPE" in ctl.run("metrics", "--prometheus")
    for sub in ("overview", "queue-lag", "queue-ops", "retention",
                "postgres"):
        ctl.json("analytics", sub, "--from", "1h ago", "--to", "now")
    assert ctl.run("replay", "orders", "--cg", "g", "--to", "beginning") == \
        "replayed cg=g queue=orders to=beginning\n"
    assert ctl.json("queue", "depth", "orders", "--group", "g")["pending"] \
        == 3
    assert ctl.run("cg", "delete", "g", "--yes") == 'deleted "g"\n'
    assert ctl.run("queue", "delete", "orders", "--yes") == \
        'deleted "orders"\n'
    assert ctl.fails(NOTHING, "queue", "delete", "orders", "--yes") == ""


# Columns and formats

def test_golden_columns(ctl):
    """The headers scripts cut by."""
    three(ctl)
    ctl.lines("pop", "orders", "--cg", "g", "--from-mode", "all")
    heads = {
        ("queue", "list"): "NAME NAMESPACE TASK PARTITIONS PRIORITY LEASE",
        ("queue", "depth", "orders"): "PENDING PARTITIONS PARTITIONSPENDING",
        ("partition", "list", "orders"): "PARTITION PENDING PROCESSING",
        ("namespace", "list"): "NAMESPACE QUEUES",
        ("task", "list"): "TASK QUEUES",
        ("lag",): "CG QUEUE MESSAGES LAG",
        ("cg", "list"): "CG QUEUE MESSAGES LAG",
        ("cg", "lag"): "CG QUEUE MESSAGES LAG",
        ("messages", "list"): "TX QUEUE PARTITION STATUS RETRIES CREATED",
        ("traces", "names"): "NAME EVENTS FIRST LAST",
        ("traces", "by-name", "x"): "AT EVENT TX PARTITION DATA",
        ("dlq", "list"): "TX QUEUE PARTITION CG RETRIES ERROR",
        ("status",):
            "QUEUE NAMESPACE PENDING PROCESSING COMPLETED FAILED DLQ LAG",
        ("status", "orders"): "QUEUE PENDING PROCESSING COMPLETED FAILED DLQ "
                              "PARTITIONS LAG",
        ("ping",): "STATUS DATABASE VERSION LATENCY",
        ("config", "get-contexts"): "CURRENT NAME SERVER AUTH",
    }
    for args, want in heads.items():
        out = ctl.run(*args, "-o", "table")
        assert out.splitlines()[0].split() == want.split(), args
    wide = {
        ("queue", "list"): "RETRY MAXSIZE ENCRYPTED MESSAGES PENDING",
        ("partition", "list", "orders"):
            "COMPLETED FAILED DLQ TOTAL MESSAGES",
        ("lag",): "PARTITIONS SUBSCRIBED",
        ("messages", "list"): "PARTITIONID PRODUCER",
        ("dlq", "list"): "FAILED-AT PARTITIONID",
    }
    for args, want in wide.items():
        out = ctl.run(*args, "-o", "wide")
        assert out.splitlines()[0].split() == \
            heads[args].split() + want.split(), args


def test_table_cells(ctl):
    three(ctl, "shop.orders")
    assert table(ctl.run("queue", "list", "-o", "table")) == [
        ["NAME", "NAMESPACE", "TASK", "PARTITIONS", "PRIORITY", "LEASE"],
        ["shop.orders", "shop", "orders", "2", "0", "60"]]
    assert ctl.run("queue", "list", "-o", "table", "--no-headers").split() \
        == ["shop.orders", "shop", "orders", "2", "0", "60"]
    assert table(ctl.run("partition", "list", "shop.orders", "-o",
                         "table"))[1:] == [["a", "2", "0"], ["b", "1", "0"]]
    assert table(ctl.run("status", "shop.orders", "-o", "table"))[1][:7] == \
        ["shop.orders", "3", "0", "0", "-", "0", "2"]
    assert table(ctl.run("status", "shop.orders", "--partitions", "-o",
                         "table"))[0] == ["PARTITION", "PENDING",
                                          "PROCESSING"]
    assert table(ctl.run("namespace", "list", "-o", "table"))[1] == \
        ["shop", "1"]
    row = table(ctl.run("messages", "list", "-o", "table"))[1]
    assert row[1:5] == ["shop.orders", row[2], "pending", "-"]
    assert row[5] == "now" or row[5].endswith(" ago")


def test_colour_only_when_it_is_wanted(ctl):
    bold = "\033[1m"
    args = ("queue", "list", "-o", "table")
    three(ctl)
    assert bold not in ctl.run(*args)
    assert ctl.run(*args, "--color").startswith(bold)
    assert bold not in ctl.run(*args, CLICOLOR_FORCE="1", NO_COLOR="1")
    assert bold in ctl.run(*args, CLICOLOR_FORCE="1")


def test_formats(ctl):
    three(ctl)
    rows = json.loads(ctl.run("queue", "list"))
    assert [q["name"] for q in rows] == ["orders"]
    assert ctl.run("queue", "list", "-o", "json").startswith(
        '[\n  {\n    "id": "')
    assert json.loads(ctl.run("queue", "list", "-o", "ndjson")) == rows[0]
    assert ctl.run("queue", "list", "-o", "yaml").startswith("- id: ")
    raw = json.loads(ctl.run("status", "-o", "raw"))
    assert set(raw) == {"queues", "pagination"}
    assert ctl.run("queue", "list", "-o", "jsonpath=.queues[0].name") == \
        "orders\n"
    assert ctl.run("status", "-o", "json-path=.pagination.limit") == "100\n"
    assert "out of range" in ctl.fails(
        USER, "queue", "list", "-o", "jsonpath=.queues[7]")
    # an object command shows yaml where a table was asked for
    assert ctl.run("queue", "describe", "orders", "-o", "table").startswith(
        "id: ")
    assert "unknown output format \"xml\"" in ctl.fails(
        USER, "queue", "list", "-o", "xml")


# Wrong use, contexts

@pytest.mark.parametrize("args,why", [
    (("--nope",), "unknown flag --nope; see queenctl --help"),
    (("queue", "list", "--nope"),
     "unknown flag --nope; see queenctl queue list --help"),
    (("push", "-Z"), "unknown flag -Z; see queenctl push --help"),
    (("nope",), 'unknown command "nope"'),
    (("queue", "describe"), "missing argument"),
    (("ping", "x"), "too many arguments"),
    (("pop", "q", "--limit", "x"), "not an integer"),
    (("pop", "q", "--limit", "0"), "out of range"),
    (("pop",), "which queue?"),
    (("pop", "q", "--conflation"), "needs a group"),
    (("pop", "q", "--cg", "g", "--conflation", "--auto-ack"), "exclude"),
    (("pop", "q", "--from-mode", "some"), "expected all or new"),
    (("push", "q", "--data", "{"), "not JSON"),
    (("replay", "q"), "needs --cg"),
    (("messages", "list", "--status", "odd"), "expected pending"),
    (("completion", "fish"), "no completion for fish"),
    (("up", "--port", "70000"), "out of range"),
    (("--server", "localhost:1", "ping"), "must start with http://"),
    (("--context", "nope", "ping"), 'there is no context "nope"'),
])
def test_wrong_use(alone, args, why):
    assert why in alone.fails(USER, *args)


def test_destructive_commands_ask_first(alone):
    """Before any call: there is no server here."""
    for args in (("queue", "delete", "q"), ("cg", "delete", "g"),
                 ("messages", "delete", "p", "t"), ("dlq", "drain"),
                 ("dlq", "retry", "p", "t"), ("maintenance", "on"),
                 ("maintenance", "on", "--pop")):
        assert re.match(r"queenctl: refusing to .* without --yes\n",
                        alone.fails(USER, *args)), args


def test_no_server_at_all(alone, no_last_cell):
    assert alone.fails(USER, "queue", "list") == (
        "queenctl: no server configured: set --server, QUEEN_SERVER, or run "
        "'queenctl config set-context'\n")
    assert alone.run("version").count("\n") == 1


def test_help_at_every_level(alone):
    assert "usage: queenctl COMMAND" in alone.run()
    assert alone.run("--help") == alone.run("help") == alone.run()
    assert "usage: queenctl queue COMMAND" in alone.run("queue")
    assert "usage: queenctl queue configure <queue>" in \
        alone.run("q", "set", "--help")
    assert "--retry-limit N" in alone.run("help", "queue", "configure")


def test_contexts(alone):
    with_config = os.path.join(alone.home, ".queen", "config.yaml")
    assert alone.fails(NOTHING, "config", "current-context") == ""
    assert alone.run("config", "set-context", "prod", "--server",
                     "https://prod:6632", "--token", "s3cret") == \
        'context "prod" updated\n'
    alone.run("config", "set-context", "local", "--server",
              "http://localhost:1", "--token-ref", "literal:abc",
              "--insecure")
    assert stat.S_IMODE(os.stat(with_config).st_mode) == 0o600
    assert stat.S_IMODE(os.stat(os.path.dirname(with_config)).st_mode) == \
        0o700
    token = os.path.join(alone.home, ".queen", "tokens", "prod")
    assert stat.S_IMODE(os.stat(token).st_mode) == 0o600
    with open(with_config) as f:
        assert "s3cret" not in f.read()
    assert alone.run("config", "current") == "prod\n"
    shown = alone.run("config", "view")
    assert "current-context: prod\n" in shown
    assert "token-ref: file://%s\n" % token in shown
    assert "abc" not in shown and "literal:<set>" in shown
    assert table(alone.run("config", "get-contexts", "-o", "wide"))[1:] == [
        ["*", "prod", "https://prod:6632", "file", "false", "-"],
        ["-", "local", "http://localhost:1", "literal", "true", "-"]]
    assert alone.run("config", "use-context", "local") == \
        'switched to context "local"\n'
    assert 'no context "x"' in alone.fails(USER, "config", "use-context", "x")
    # only what is typed changes
    alone.run("config", "set-context", "local", "--server", "http://l:2")
    assert json.loads(alone.run("config", "get-contexts"))[1] == {
        "current": "*", "name": "local", "server": "http://l:2",
        "auth": "literal", "insecure": True}
    alone.run("config", "delete-context", "prod")
    assert not os.path.exists(token)
    alone.run("config", "delete-context", "local")
    alone.fails(NOTHING, "config", "current-context")
    assert "cannot be the name" in alone.fails(
        USER, "config", "set-context", "../x")


def test_context_names_the_server_and_token(stub, alone):
    ctl = stub(answer(200, {"queues": []}))
    url = ctl.env.pop("QUEEN_SERVER")
    ctl.run("config", "set-context", "c", "--server", url, "--token-ref",
            "env")
    assert ctl.json("queue", "list", QUEEN_TOKEN="tok") == []
    assert ctl.seen[0][2]["Authorization"] == "Bearer tok"
    ctl.run("config", "set-context", "k", "--server", url, "--token-ref",
            "keychain://k")
    assert "keychains are not supported" in ctl.fails(
        USER, "--context", "k", "ping")
    assert "no context" in ctl.fails(USER, "ping", QUEEN_CONTEXT="zz")


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_completion_scripts_load(alone, shell):
    path = os.path.join(alone.home, "script")
    with open(path, "w") as f:
        f.write(alone.run("completion", shell))
    if not shutil.which(shell):
        pytest.skip("no %s here" % shell)
    done = subprocess.run([shell, "-n", path], stderr=subprocess.PIPE,
                          check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    if shell == "bash":
        for line, words in (("-o json queue des", b"describe\n"),
                            ("job dead ''", b"list retry delete\n"),
                            ("jobs dead retry --y", b"--yes\n"),
                            ("job dead retry ''", b"\n")):
            ask = ('. "$0"; COMP_WORDS=(queenctl %s); '
                   'COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _queenctl; '
                   'echo "${COMPREPLY[@]}"' % line)
            assert subprocess.check_output(["bash", "-c", ask, path]) == words

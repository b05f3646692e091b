# SPDX-License-Identifier: Apache-2.0
"""queenctl queue, partition, replay, maintenance and apply."""
import json
import os
import subprocess

from ctlkit import NOTHING, SERVER, USER, three


def test_configure_sends_what_was_typed(ctl):
    assert ctl.run("queue", "configure", "q", "--lease-time", "30") == \
        'configured "q"\n'
    options = ctl.json("queue", "configure", "q", "--retry-limit", "0",
                       "--dlq=false", "--retention", "60")["options"]
    assert (options["leaseTime"], options["retryLimit"],
            options["deadLetterQueue"], options["dlqAfterMaxRetries"],
            options["retentionEnabled"], options["retentionSeconds"]) == \
        (30, 0, False, False, True, 60)
    options = ctl.json("queue", "configure", "q", "--sink-hold", "lake",
                       "--sink-hold-max", "90")["options"]
    assert (options["retentionSinkHold"],
            options["retentionSinkHoldMaxSeconds"],
            options["retentionSeconds"]) == ("lake", 90, 60)
    assert "(HTTP 400)" in ctl.fails(
        SERVER, "queue", "configure", "q", "--lease-time", "-1")


def test_queue_list_filters(ctl):
    for name in ("a.x", "a.y", "b.x"):
        ctl.run("push", name, "--data", "1")

    def names(*args):
        return [q["name"] for q in ctl.json("queue", "list", *args)]
    assert names() == ["a.x", "a.y", "b.x"]
    assert names("--namespace", "a") == ["a.x", "a.y"]
    assert names("--task", "x") == ["a.x", "b.x"]
    assert names("--limit", "1", "--offset", "1") == ["a.y"]


def test_names_are_encoded_in_paths(ctl):
    for name in ("a/b", "..", "q ?&#%", "é€"):
        ctl.run("push", name, "--data", "1")
        assert ctl.json("queue", "describe", name)["name"] == name


def test_seek_of_one_partition(ctl):
    three(ctl)
    ctl.run("partition", "seek", "orders", "a", "--cg", "g")
    depth = ("queue", "depth", "orders", "--group", "g")
    assert {p["partition"]: p["pending"] for p in
            ctl.json(*depth)["partitions"]}["a"] == 0
    ctl.run("partition", "seek", "orders", "a", "--cg", "g", "--to",
            "offset:1")
    assert {p["partition"]: p["pending"] for p in
            ctl.json(*depth)["partitions"]}["a"] == 1
    ctl.run("partition", "seek", "orders", "a", "--cg", "g", "--to", "start")
    assert "(HTTP 404)" in ctl.fails(
        SERVER, "partition", "seek", "orders", "zz", "--cg", "g")
    assert "which group?" in ctl.fails(USER, "partition", "seek", "q", "p")
    assert "belongs to one partition" in ctl.fails(
        USER, "replay", "orders", "--cg", "g", "--to", "offset:1")
    assert "is not a time" in ctl.fails(
        USER, "replay", "orders", "--cg", "g", "--to", "tomorrow")


def test_replay_follows_until_caught_up(ctl):
    three(ctl)
    ctl.run("tail", "orders", "--cg", "g", "--from", "all", "-n", "9",
            "--max-partitions", "0", "--auto-ack")
    ctl.run("replay", "orders", "--cg", "g", "--to", "beginning")
    proc = subprocess.Popen(
        ctl.argv("replay", "orders", "--cg", "g", "--to", "beginning", "-f"),
        env=ctl.env, stdout=subprocess.PIPE, cwd=ctl.home)
    try:
        assert proc.stdout.readline().startswith(b"replayed cg=g")
        assert len(ctl.lines("tail", "orders", "--cg", "g", "-n", "3",
                             "--max-partitions", "0", "--auto-ack")) == 3
        assert proc.wait(60) == 0
    finally:
        proc.kill()
        proc.communicate()


def test_maintenance_on_and_off(ctl):
    assert ctl.run("maintenance", "on", "--yes") == "maintenance on\n"
    assert ctl.json("maintenance", "get")["maintenanceMode"] is True
    ctl.run("push", "q", "--data", "1", code=SERVER)
    assert ctl.run("maintenance", "off") == "maintenance off\n"
    assert ctl.run("maint", "on", "--pop", "--yes") == "pop-maintenance on\n"
    ctl.fails(NOTHING, "pop", "q", "--wait=false")
    assert ctl.run("maint", "off", "--pop") == "pop-maintenance off\n"
    assert ctl.run("push", "q", "--data", "1")


# apply

MANIFEST = """\
kind: Queue
name: orders
namespace: billing
config:
  leaseTime: 77
  deadLetterQueue: false
  retryLimit: 0
---
namespace: nobody
---
kind: ConsumerGroup
name: analyzer
queue: orders
seek-to: beginning
---
kind: cg
name: other
queue: orders
"""


def test_apply_replaces_and_seeks(ctl):
    ctl.run("push", "orders", "--data", "1")
    ctl.run("queue", "configure", "orders", "--retention", "60")
    assert ctl.run("apply", "-f", "-", "--dry-run", stdin=MANIFEST) == (
        '[dry-run] would apply Queue "orders"\n'
        '[skip] document 2 has no name\n'
        '[dry-run] would apply ConsumerGroup "analyzer"\n'
        '[skip] ConsumerGroup "other" has no seek-to\n')
    path = os.path.join(ctl.home, "m.yaml")
    with open(path, "w") as f:
        f.write(MANIFEST)
    assert ctl.run("apply", "-f", path).splitlines()[::2] == [
        'applied Queue "orders"', 'applied ConsumerGroup "analyzer"']
    options = ctl.json("queue", "describe", "orders")["options"]
    assert (options["leaseTime"], options["deadLetterQueue"],
            options["retryLimit"], options["namespace"],
            options["retentionSeconds"], options["retentionEnabled"]) == \
        (77, False, 0, "billing", 0, False)
    assert ctl.json("lag")[0]["totalLag"] == 1
    assert ctl.run("apply", "-f", "-", "-q", stdin=json.dumps(
        {"name": "orders", "config": {"leaseTime": None}})) == ""
    assert ctl.json("queue", "describe", "orders")["options"]["leaseTime"] \
        == 300


APPLY_FAULTS = [
    ("kind: Topic\nname: x\n", 'document 2: unknown kind "Topic"'),
    ("name: x\nconfig: {lease-time: 1}\n",
     'document 2: "lease-time" is spelled "leaseTime"'),
    ("name: x\nconfg: {}\n", 'document 2: unknown key "confg"; there are: '),
    ("kind: ConsumerGroup\nname: g\n", "document 2: a ConsumerGroup needs "),
    ("kind: cg\nname: g\nqueue: q\nseekTo: now\n",
     'document 2: "seekTo" is spelled "seek-to"'),
    ("kind: cg\nname: g\nqueue: q\nseek-to: soon\n", "is not a time"),
    ("[1]\n", "expected a mapping"),
    ("name: [\n", "-: line "),
]


def test_apply_refuses_before_it_sends(ctl):
    for text, why in APPLY_FAULTS:
        assert why in ctl.fails(USER, "apply", "-f", "-",
                                stdin="name: first\n---\n" + text)
        assert ctl.json("queue", "list") == []


def test_apply_of_nothing_is_a_no_op(ctl):
    assert ctl.fails(NOTHING, "apply", "-f", "-", stdin="# empty\n") == ""
    assert "--file" in ctl.fails(USER, "apply")
    assert "cannot open" in ctl.fails(USER, "apply", "-f", "/nowhere")


def test_apply_stops_at_a_server_error(ctl):
    assert ctl.run("apply", "-f", "-", code=SERVER, stdin=(
        "name: a\n---\nname: b\nconfig: {leaseTime: 0}\n---\nname: c\n")) == \
        'applied Queue "a"\n'
    assert [q["name"] for q in ctl.json("queue", "list")] == ["a"]

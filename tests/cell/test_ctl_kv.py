# SPDX-License-Identifier: Apache-2.0
"""queenctl kv and the switches: exit codes, columns, lines."""
import json
import re

from ctlkit import NOTHING, SERVER, USER, home_of

PUT = re.compile(r"put orders/(\S+) version=(\d+)\n\Z")


def put(ctl, key, *args, **kw):
    """The version written."""
    found = PUT.match(ctl.run("kv", "put", "orders", key, *args, **kw))
    assert found and found.group(1) == key
    return int(found.group(2))


def test_put_and_get(ctl):
    version = put(ctl, "a/b", '{"n": 1.50}', "--ttl", "1h")
    row = ctl.json("kv", "get", "orders", "a/b")
    assert (row["found"], row["key"], row["value"], row["version"]) == \
        (True, "a/b", {"n": 1.5}, version)
    assert row["expiresAt"] > row["updatedAt"]
    assert ctl.run("kv", "get", "orders", "a/b", "--value") == '{"n": 1.50}\n'
    assert ctl.fails(NOTHING, "kv", "get", "orders", "a") == ""
    head, line = ctl.run("kv", "get", "orders", "a/b", "-o",
                         "table").splitlines()
    assert head.split() == ["KEY", "VALUE", "VERSION", "EXPIRES"]
    assert line.split()[:3] == ["a/b", "{n}", str(version)]


def test_values_from_everywhere(ctl):
    put(ctl, "k", "--forever", stdin="[1,\n2]")
    assert ctl.run("kv", "get", "orders", "k", "--value") == "[1, 2]\n"
    put(ctl, "k", "--forever", "--file", "-", stdin="null")
    assert ctl.run("kv", "get", "orders", "k", "--value") == "null\n"
    put(ctl, "k", "it's \"me\"\n", "--text", "--forever")
    assert ctl.run("kv", "get", "orders", "k", "--value") == "it's \"me\"\n\n"
    assert "--text sends it as a string" in ctl.fails(
        USER, "kv", "put", "orders", "k", "plain", "--forever")


def test_a_lifetime_is_needed(ctl):
    for args in ([], ["--ttl", "1s", "--forever"], ["--ttl", "500ms"],
                 ["--ttl", "1500ms"], ["--forever", "--expect", "-1"]):
        ctl.fails(USER, "kv", "put", "orders", "k", "1", *args)
    assert ctl.fails(NOTHING, "kv", "get", "orders", "k") == ""


def test_versions_decide(ctl):
    assert ctl.fails(NOTHING, "kv", "put", "orders", "k", "1", "--forever",
                     "--expect", "7") == ""
    first = put(ctl, "k", "1", "--forever", "--expect", "0")
    lost = json.loads(ctl.run("kv", "put-if-absent", "orders", "k", "2",
                              "--forever", "-o", "json", code=NOTHING))
    assert (lost["applied"], lost["reason"], lost["value"],
            lost["version"]) == (False, "exists", 1, first)
    second = put(ctl, "k", "3", "--forever", "--expect", str(first))
    assert second > first
    delete = ("kv", "delete", "orders", "k", "--expect")
    assert "without --yes" in ctl.fails(USER, *delete, str(second))
    assert ctl.fails(NOTHING, *delete, str(first), "--yes") == ""
    assert ctl.run(*delete, str(second), "--yes") == \
        "deleted orders/k version=%d\n" % second
    assert ctl.fails(NOTHING, "kv", "delete", "orders", "k", "--yes") == ""
    assert ctl.run("kv", "put-if-absent", "orders", "k", "2", "--forever",
                   "-q") == ""


def test_incr(ctl):
    incr = ("kv", "incr", "limits", "mail", "--ttl", "1m", "--max", "3")
    assert [ctl.run(*incr) for _ in range(3)] == ["1\n", "2\n", "3\n"]
    assert ctl.fails(NOTHING, *incr) == ""
    assert ctl.run("kv", "incr", "limits", "mail", "-2", "--ttl", "1m") == \
        "1\n"
    assert ctl.json("kv", "incr", "limits", "mail", "0.5", "--ttl",
                    "1m")["value"] == 1.5
    assert "are numbers" in ctl.fails(
        USER, "kv", "incr", "limits", "mail", "x", "--ttl", "1m")


def test_batch(ctl):
    ops = [{"op": "put", "ns": "orders", "key": "a", "value": 1,
            "forever": True},
           {"op": "getMany", "ns": "orders", "keys": ["a", "b"]}]
    done = ctl.json("kv", "batch", "--file", "-", stdin=json.dumps(ops))
    assert done[0]["applied"] is True
    assert done[1]["missing"] == ["b"]
    ops[0].update(op="putIfAbsent", required=True)
    told = "queenctl: nothing was written: kv[0] putIfAbsent orders/a:" \
        " exists, it has version %d\n" % done[0]["version"]
    batch = ("kv", "batch", "--file", "-")
    for body in (ops, {"operations": ops}):
        assert ctl.fails(NOTHING, *batch, stdin=json.dumps(body)) == told
    assert ctl.json(*batch, stdin=json.dumps(ops), code=NOTHING)[
        "failedIndex"] == 0
    assert ctl.err == told
    assert "(HTTP 400)" in ctl.fails(
        SERVER, "kv", "batch", "--file", "-", stdin='[{"op":"no"}]')
    assert "name them with --file" in ctl.fails(USER, "kv", "batch")


def test_incr_of_what_is_no_number(ctl):
    """Told apart from a bound that was met."""
    put(ctl, "k", '"text"', "--forever")
    incr = ("kv", "incr", "orders", "k", "--ttl", "1m", "--max", "3")
    told = "queenctl: orders/k is left as it was: its value is not a number\n"
    assert ctl.fails(SERVER, *incr) == told
    assert ctl.json(*incr, code=SERVER)["reason"] == "type"
    assert ctl.err == told
    assert ctl.run("kv", "get", "orders", "k", "--value") == "text\n"


def test_refusals_say_why(ctl):
    assert ctl.fails(SERVER, "kv", "list", "") == (
        "queenctl: kv_bad_request: ns must match [a-z0-9][a-z0-9._-]{0,63}"
        " (HTTP 400)\n")
    assert "kv_bad_request: operation 0: ns must match" in ctl.fails(
        SERVER, "kv", "get", "N", "k")
    assert ctl.fails(SERVER, "kv", "get", "n", "") == (
        "queenctl: the server has no such path: an argument is empty, or the"
        " server is an older one (HTTP 404)\n")


def test_words_and_sentences_of_refusals(stub):
    for body, text in (
            ({"error": "kv_unavailable", "reason": "connection"},
             "kv_unavailable: connection"),
            ({"error": "e", "reason": "r", "detail": "long"}, "e: long"),
            ({"error": "It is late.", "reason": "late"}, "It is late."),
            ({"error": "It is late.", "detail": "23:59"},
             "It is late.: 23:59"),
            ({"error": "x: y", "detail": "y"}, "x: y"),
            ({"code": "c"}, "c"), ({}, "the server refused"),
            ([], "the server refused")):
        one = stub((409, {}, json.dumps(body)))
        assert one.fails(SERVER, "queue", "configure", "q") == \
            "queenctl: %s (HTTP 409)\n" % text


def test_another_server_has_no_absent_keys(stub):
    """A script takes 4 for `no such key`."""
    one = stub((200, {}, '{"status":"ok"}'))
    for args in (("kv", "get", "n", "k"), ("timer", "peek", "q", "k")):
        assert "does not say whether it was found" in one.fails(
            SERVER, *args)


def test_list_and_namespaces(ctl):
    for key in ("a1", "a2", "b1"):
        put(ctl, key, '"%s"' % key, "--forever")
    ctl.run("kv", "put", "other", "k", "1", "--forever")
    rows = ctl.json("kv", "list", "orders", "--prefix", "a")
    assert [(r["key"], r["value"]) for r in rows] == \
        [("a1", "a1"), ("a2", "a2")]
    rows = ctl.json("kv", "list", "orders", "--limit", "2", "--keys-only")
    assert [sorted(set(r) & {"key", "value"}) for r in rows] == [["key"]] * 2
    assert ctl.err == "there is more: --after 'a2'\n"
    assert [r["key"] for r in ctl.json("kv", "list", "orders", "--after",
                                       "a2")] == ["b1"]
    assert ctl.json("kv", "list", "nowhere") == []
    assert ctl.json("kv", "namespaces") == [
        {"namespace": "orders", "keys": 3}, {"namespace": "other", "keys": 1}]


def test_switches(ctl):
    shown = ctl.json("system", "kv-timers")
    assert [shown[k] for k in ("kvEnabled", "timersScheduleEnabled",
                               "timersFireEnabled")] == [True] * 3
    assert "without --yes" in ctl.fails(USER, "system", "kv-timers",
                                        "--kv=false")
    ctl.run("system", "kv-timers", "--kv=false", "--yes")
    assert "kv_disabled" in ctl.fails(SERVER, "kv", "put", "orders", "k",
                                      "1", "--forever")
    assert ctl.json("system", "kv-timers", "--kv=true")["kvEnabled"] is True
    put(ctl, "k", "1", "--forever")


def test_tx_takes_riders_alone(ctl):
    bundle = {"kv": [{"op": "put", "ns": "orders", "key": "k", "value": 1,
                      "forever": True}]}
    assert ctl.run("tx", "--file", "-", "--dry-run",
                   stdin=json.dumps(bundle)) == "would commit 1 operations\n"
    assert "no operations" in ctl.fails(USER, "tx", "--file", "-",
                                        stdin='{"kv":[],"operations":[]}')


def test_tx_names_the_key_it_failed_on(ctl):
    version = put(ctl, "k", "1", "--forever")
    bundle = {"operations": [{"type": "push", "items": [
        {"queue": "q", "payload": 1}, {"queue": "q", "payload": 2}]}],
        "kv": [{"op": "put", "ns": "orders", "key": "a", "value": 1,
                "forever": True},
               {"op": "put", "ns": "orders", "key": "k", "value": 2,
                "forever": True, "expect": 0, "required": True}]}
    assert ctl.fails(SERVER, "tx", "-f", "-", stdin=json.dumps(bundle)) == (
        "queenctl: transaction rolled back: kv[1] put orders/k: exists, it"
        " has version %d\n" % version)
    bundle["kv"][1].update(expect=version, ns="NO")
    assert "kv_bad_namespace: operation 1: ns must match" in ctl.fails(
        SERVER, "tx", "-f", "-", stdin=json.dumps(bundle))


def test_unreachable(folder):
    dead = home_of(folder, "http://127.0.0.1:1")
    dead.fails(SERVER, "kv", "get", "orders", "k")


def test_a_tenant_is_a_uuid(ctl):
    assert ctl.fails(USER, "queue", "list", "--tenant", "acme") == \
        'queenctl: tenant "acme" is no UUID\n'

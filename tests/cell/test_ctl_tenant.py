# SPDX-License-Identifier: Apache-2.0
"""queenctl on a cell with tenants and tokens: whose data a command sees, what
it says when it may not, where a token shows, and the purge of a tenant."""
import os
import pty
import re
import subprocess

import pytest

from ctlkit import AUTH, NOTHING, OK, SERVER, USER, answer
from queenlib import NIL_TENANT, OTHER_TENANT, TENANT, wait_until
from test_auth import ON as TOKENS
from test_auth import token
from test_purge import lasting, no_jobs, rows_of  # noqa: F401

A, B = OTHER_TENANT, "aabbccdd-1122-3344-5566-778899aabbcc"
ON = dict(QUEEN_TENANCY_HEADER="true", QUEEN_KV_TRUSTED_PROXY="true",
          QUEEN_KV_REQUIRE_GRANT="false")
FLAG = "--tenant"


# Whose data

@pytest.mark.cellenv(**ON)
def test_each_tenant_sees_its_own(ctl):
    for tenant, value in ((A, "a"), (B, "b")):
        who = (FLAG, tenant)
        ctl.run("kv", "put", "n", "k", '"%s"' % value, "--forever", *who)
        ctl.run("kv", "incr", "n", "i", "--forever", *who)
        ctl.run("timer", "schedule", "q", "t", '"%s"' % value, "--delay",
                "1h", *who)
        ctl.run("push", "q", *who, stdin='"%s"\n' % value)
    for tenant, value in ((A, "a"), (B.upper(), "b")):
        who = (FLAG, tenant)
        assert ctl.run("kv", "get", "n", "k", "--value", *who) == value + "\n"
        assert ctl.run("kv", "incr", "n", "i", "--forever", *who) == "2\n"
        assert [r["key"] for r in ctl.json("kv", "list", "n", *who)] == [
            "i", "k"]
        assert ctl.json("kv", "namespaces", *who) == [
            {"namespace": "n", "keys": 2}]
        assert ctl.run("timer", "peek", "q", "t", "--payload",
                       *who) == '"%s"\n' % value
        assert len(ctl.json("timer", "list", "q", *who)) == 1
        popped, = ctl.lines("pop", "q", "--cg", "g", "--from-mode", "all",
                            *who)
        assert popped["data"] == value
        assert [q["name"] for q in ctl.json("queue", "list", *who)] == ["q"]
    # the variable says the same, and the flag wins over it
    assert ctl.run("kv", "get", "n", "k", "--value", QUEEN_TENANT=A) == "a\n"
    assert ctl.run("kv", "get", "n", "k", "--value", FLAG, B,
                   QUEEN_TENANT=A) == "b\n"
    # without either it is the default tenant, who has nothing
    assert ctl.fails(NOTHING, "kv", "get", "n", "k") == ""
    assert ctl.fails(NOTHING, "timer", "peek", "q", "t") == ""
    assert ctl.json("queue", "list") == []
    ctl.run("timer", "cancel", "q", "t", FLAG, A)
    ctl.run("kv", "delete", "n", "k", "--yes", FLAG, A)
    assert ctl.run("kv", "get", "n", "k", "--value", FLAG, B) == "b\n"
    assert ctl.run("timer", "peek", "q", "t", "--payload", FLAG, B) == \
        '"b"\n'


@pytest.mark.cellenv(**ON)
def test_a_lock_is_of_its_tenant(ctl):
    """Held for one it is free for another, and the command inside asks for
    the same tenant when told."""
    inner = " ".join(ctl.argv("lock", "l", "--no-wait"))
    script = "%s --tenant %%s -- true; echo $?" % inner
    assert ctl.run("lock", "l", FLAG, A, "--", "sh", "-c",
                   script % A) == "%d\n" % NOTHING
    assert ctl.run("lock", "l", FLAG, A, "--", "sh", "-c",
                   script % B) == "0\n"
    assert ctl.fails(NOTHING, "kv", "get", "queen-locks", "l", FLAG, A) == ""


def test_a_tenant_that_is_none_sends_nothing(stub):
    one = stub(answer(200, {}))
    for text in ("x", A[:-1], A.replace("-", ""), "{%s}" % A):
        assert "is no UUID" in one.fails(USER, "kv", "get", "n", "k", FLAG,
                                         text)
        assert "is no UUID" in one.fails(USER, "lock", "l", "--", "true",
                                         QUEEN_TENANT=text)
    assert one.seen == []


@pytest.mark.cellenv(**ON)
def test_the_internal_tenant_is_not_for_clients(ctl):
    assert ctl.fails(AUTH, "kv", "get", "n", "k", FLAG, NIL_TENANT) == \
        "queenctl: forbidden (HTTP 403)\n"


# Not allowed

READS = (["kv", "get", "n", "k"], ["kv", "list", "n"], ["kv", "namespaces"],
         ["timer", "peek", "q", "t"], ["timer", "list", "q"],
         ["timer", "count", "q", "t"])
WRITES = (["kv", "put", "n", "k", "1", "--forever"],
          ["kv", "put-if-absent", "n", "k", "1", "--forever"],
          ["kv", "incr", "n", "k", "--forever"],
          ["kv", "delete", "n", "k", "--yes"],
          ["timer", "schedule", "q", "t", "1", "--delay", "1h"],
          ["timer", "cancel", "q", "t"])
ADMIN = (["system", "kv-timers"], ["tenant", "purge", A, "--yes"])


@pytest.mark.cellenv(**{**TOKENS, **ON})
def test_who_may_not_is_told_so(ctl, folder):
    lock = ["lock", "l", "--", "touch", "ran"]
    for args in (*READS, *WRITES, *ADMIN):
        assert ctl.fails(AUTH, *args) == \
            "queenctl: Authentication required (HTTP 401)\n", args
    assert ctl.fails(AUTH, *lock) == \
        'queenctl: cannot lock "l": Authentication required\n'
    reader = token(role="read-only")
    for args in (*WRITES, *ADMIN):
        assert ctl.fails(AUTH, *args, QUEEN_TOKEN=reader) == \
            "queenctl: Insufficient permissions (HTTP 403)\n", args
    assert ctl.fails(AUTH, *lock, QUEEN_TOKEN=reader) == \
        'queenctl: cannot lock "l": Insufficient permissions\n'
    assert ctl.fails(AUTH, *lock, QUEEN_TOKEN=token(role="admin", exp=1)) == \
        'queenctl: cannot lock "l": Token has expired\n'
    for args in ADMIN:
        assert ctl.fails(AUTH, *args, QUEEN_TOKEN=token(role="read-write")) \
            == "queenctl: Insufficient permissions (HTTP 403)\n"
    assert not os.path.exists(os.path.join(ctl.home, "ran"))
    # and with the rights all of them work
    for args in READS:
        ctl.run(*args, QUEEN_TOKEN=reader, code=NOTHING if args[1] in (
            "get", "peek") else OK)
    ctl.run(*lock, QUEEN_TOKEN=token(role="read-write"))
    assert os.path.exists(os.path.join(ctl.home, "ran"))


@pytest.mark.cellenv(**TOKENS)
def test_a_token_shows_nowhere(ctl, folder):
    """Out of the environment or a file it reaches neither an argument nor a
    message, whatever goes wrong."""
    secret = token(role="read-write", sub="a-secret-subject")
    path = os.path.join(folder, "token")
    with open(path, "w") as f:
        f.write(secret + "\n")
    show = ["sh", "-c", "tr '\\0' '\\n' </proc/$PPID/cmdline; "
            "tr '\\0' '\\n' </proc/$$/cmdline"]
    for env in ({"QUEEN_TOKEN": secret}, {"QUEEN_TOKEN_FILE": path}):
        shown = ctl.run("lock", "l", "--", *show, **env)
        assert "lock" in shown and secret not in shown
    for env, code in ((dict(QUEEN_TOKEN=secret + "x"), AUTH),
                      (dict(QUEEN_TOKEN=secret,
                            QUEEN_SERVER="http://127.0.0.1:1"), SERVER),
                      (dict(QUEEN_TOKEN=secret + " x"), USER)):
        for args in (["kv", "put", "n", "k", "1", "--forever"],
                     ["lock", "l", "--", "true"],
                     ["timer", "cancel", "q", "t"]):
            text = ctl.fails(code, *args, **env)
            assert secret not in text and "a-secret" not in text
    # a file that is not there is named, and nothing is sent without it
    assert "nowhere" in ctl.fails(USER, "kv", "get", "n", "k",
                                  QUEEN_TOKEN_FILE=folder + "/nowhere")


# The purge

def purged(rows, done, deleted=0):
    return answer(200, {"tenant": A, "done": done, "phase": "sweep",
                        "queues": {"deleted": deleted, "remaining": 0},
                        "rows": rows})


def test_a_purge_is_refused_before_anything_is_sent(stub):
    one = stub(purged({}, True))
    assert "without --yes" in one.fails(USER, "tenant", "purge", A)
    assert "is no UUID" in one.fails(USER, "tenant", "purge", "x", "--yes")
    assert "names another tenant" in one.fails(
        USER, "tenant", "purge", A, "--yes", FLAG, B)
    assert "--allow-default-tenant" in one.fails(
        USER, "tenant", "purge", TENANT, "--yes")
    one.fails(USER, "tenant", "purge", "--yes")
    assert one.seen == []


def test_a_purge_goes_on_until_it_is_done(stub):
    """Also past passes that met locks; the counts add up."""
    one = stub(purged({"queen.kv": 3, "queen.queues": 1}, False, 1),
               purged({"queen.kv": 0}, False),
               purged({"queen.kv": 2, "queen.timers": 1}, False, 1),
               purged({"queen.kv": 0}, True))
    assert one.json("tenant", "purge", A.upper(), "--yes") == {
        "tenant": A, "done": True, "queues": 2,
        "rows": {"queen.kv": 5, "queen.queues": 1, "queen.timers": 1}}
    assert len(one.seen) == 4
    for method, path, headers, body in one.seen:
        assert (method, path, body) == (
            "DELETE", "/api/v1/resources/tenant?budgetMs=1000", b"")
        assert headers["x-queen-tenant"] == A
    assert one.err == ""


def test_a_default_tenant_is_asked_for_twice(stub):
    one = stub(purged({"queen.kv": 1}, True))
    assert one.run("tenant", "purge", TENANT, "--yes",
                   "--allow-default-tenant") == \
        "purged %s queues=0 rows=1\n" % TENANT
    assert one.seen[0][1].endswith("?budgetMs=1000&allowDefaultTenant=true")


def test_a_server_that_fails_ends_the_purge(stub):
    one = stub(purged({"queen.kv": 3}, False), answer(400, {"error": "no"}))
    assert one.fails(SERVER, "tenant", "purge", A, "--yes") == \
        "queenctl: no (HTTP 400)\n"


@pytest.mark.usefixtures("no_jobs")
@pytest.mark.cellenv(**ON)
def test_a_purge_of_a_real_tenant(ctl, db):
    for tenant in (A, B):
        who = (FLAG, tenant)
        ctl.run("kv", "put", "n", "k", "1", "--forever", *who)
        for queue in ("q1", "q2"):
            ctl.run("push", queue, *who, stdin="1\n2\n")
    kept = lasting(db, B)
    said = ctl.run("tenant", "purge", A, "--yes")
    assert re.match(r"purged %s queues=2 rows=\d+\n\Z" % A, said)
    assert ctl.err == ""
    assert set(rows_of(db, A).values()) == {0}
    assert lasting(db, B) == kept
    assert ctl.fails(NOTHING, "tenant", "purge", A, "--yes") == ""
    assert ctl.run("tenant", "purge", B, "--yes", "-q") == ""
    assert set(rows_of(db, B).values()) == {0}


def test_a_server_without_tenants_keeps_everything(ctl, db):
    ctl.run("push", "q", stdin="1\n")
    assert "reads no x-queen-tenant header" in ctl.fails(
        SERVER, "tenant", "purge", A, "--yes")
    assert db.value("select count(*) from queen.segments") == 1


class Terminal:
    """queenctl with stdin and stderr on a terminal of its own."""

    def __init__(self, ctl, *args):
        self.end, theirs = pty.openpty()
        self.proc = subprocess.Popen(
            ctl.argv(*args), env=ctl.env, cwd=ctl.home, stdin=theirs,
            stdout=subprocess.PIPE, stderr=theirs, text=True)
        os.close(theirs)
        self.text = ""

    def read(self):
        try:
            self.text += os.read(self.end, 4096).decode()
        except OSError:  # its other end is closed
            return False
        return True

    def until(self, text):
        while text not in self.text:
            assert self.read(), self.text

    def finish(self):
        """(exit status, stdout, all that the terminal showed)"""
        while self.read():
            pass
        os.close(self.end)
        out = self.proc.communicate(timeout=60)[0]
        return self.proc.returncode, out, self.text


def test_a_person_is_asked(stub):
    one = stub(purged({"queen.kv": 3}, False, 1), purged({}, True))
    term = Terminal(one, "tenant", "purge", A)
    term.until("Type the tenant to go on: ")
    assert A in term.text and one.env["QUEEN_SERVER"] in term.text
    assert one.seen == []
    os.write(term.end, b"yes\n")
    code, out, text = term.finish()
    assert (code, out, one.seen) == (USER, "", [])
    assert "not confirmed, nothing is removed" in text
    term = Terminal(one, "tenant", "purge", A)
    term.until("go on: ")
    os.write(term.end, A.encode() + b"\n")
    code, out, text = term.finish()
    assert (code, out) == (OK, "purged %s queues=1 rows=3\n" % A)
    assert "3 rows removed" in text
    assert len(one.seen) == 2


def test_a_purge_can_be_interrupted(stub):
    one = stub(purged({"queen.kv": 3}, False))
    proc = subprocess.Popen(one.argv("tenant", "purge", A, "--yes"),
                            env=one.env, cwd=one.home,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    wait_until(lambda: len(one.seen) > 2)
    proc.terminate()
    out, err = proc.communicate(timeout=60)
    assert (proc.returncode, out, err) == (-15, b"", b"")
